"""The real package, and checkpoints in the form that it writes."""

import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fca.models.mmpretrain_models import _import_mmpretrain, _records
from fca.types import FcaError

pytestmark = pytest.mark.slow  # importing mmpretrain alone takes seconds

NAME = "resnet18_8xb32_in1k"
BLUE_FIRST = "mobilevit-xxsmall_3rdparty_in1k"
TWO = ["left", "right"]


@pytest.fixture(scope="module")
def package():
    """mmpretrain and mmengine, imported as fca imports them."""
    pytest.importorskip("mmengine")
    _import_mmpretrain()  # declares the operators that are missing and silences known warnings
    mmpretrain, mmengine = pytest.importorskip("mmpretrain"), pytest.importorskip("mmengine")
    return mmpretrain, mmengine


@pytest.fixture(scope="module")
def original(package):
    """The network as mmpretrain itself builds it, with random weights."""
    torch.manual_seed(0)
    return package[0].get_model(NAME, pretrained=False)


def checkpoint(package, network, **meta):
    """What mmengine's runner writes: numbers of its log beside the weights."""
    from mmengine.logging import HistoryBuffer

    log = {"train/loss": HistoryBuffer([np.float32(1.5), 1.0], [1, 1])}
    told = {"epoch": 3, "seed": 0, "dataset_meta": {"classes": ("a", "b")}, "mmengine_version": "0.10.7", **meta}
    return {"meta": told, "state_dict": network.state_dict(), "message_hub": {"log_scalars": log}}


def test_the_names_read_off_its_index_are_those_that_it_lists(package):
    listed = package[0].list_models(task="Image Classification")
    assert set(listed) == set(_records())


def test_a_network_by_name_has_the_input_of_its_configuration_and_a_head_of_two(model, package):
    classifier = model("mmpretrain", f"model.name={NAME}").build(TWO)
    assert classifier.geometry.key == "224-256-bilinear"
    assert classifier.normalise.mean == pytest.approx((0.485, 0.456, 0.406))
    assert classifier.normalise.std == pytest.approx((0.229, 0.224, 0.225))
    images = classifier.normalise(torch.rand(2, 3, 64, 64))
    module = classifier.module
    assert module.training
    with torch.inference_mode():
        features = classifier.embed(images)
        module.eval()
        assert features.shape == (2, 512)
        assert torch.equal(classifier.head(classifier.embed(images)), module(images))
    module.train()(images).square().sum().backward()
    assert all(w.grad is not None and w.grad.isfinite().all() for w in module.parameters())


@pytest.mark.parametrize(
    ("name", "key", "features"),
    [
        ("deit-tiny-distilled_3rdparty_in1k", "224-256-bicubic", 2),  # the mean over two heads is its own feature
        ("efficientnet-b0_3rdparty_8xb32_in1k", "224-256-bicubic", 1280),
        ("mobilevit-xxsmall_3rdparty_in1k", "256-288-bilinear", 320),
        ("inception-v3_3rdparty_8xb32_in1k", "299-342-bilinear", 2048),  # the backbone gives the logits
    ],
)
def test_other_families_too(model, package, name, key, features):
    classifier = model("mmpretrain", f"model.name={name}").build(TWO)
    module = classifier.module.eval()
    images = torch.rand(1, 3, classifier.input_size, classifier.input_size)
    with torch.inference_mode():
        found = classifier.embed(images)
        assert found.shape == (1, features)
        assert torch.equal(classifier.head(found), module(images))
    assert classifier.geometry.key == key


def test_a_network_that_takes_blue_first_is_given_blue_first(model, package):
    """MobileViT's configuration reads images with OpenCV and leaves them so: blue, green, red in 0..255, over 255."""
    rgb = torch.rand(1, 3, 2, 2)
    torch.testing.assert_close(normalise_of(model("mmpretrain", f"model.name={BLUE_FIRST}"))(rgb), rgb.flip(1))


def test_a_mean_and_std_of_ones_own_are_of_rgb_and_blue_still_comes_first(model, package):
    given = ["model.mean=[0.1,0.2,0.3]", "model.std=[0.25,0.5,1]"]
    normalise = normalise_of(model("mmpretrain", f"model.name={BLUE_FIRST}", *given))
    assert normalise(torch.ones(1, 3, 1, 1)).flatten().tolist() == pytest.approx([0.7 / 1, 0.8 / 0.5, 0.9 / 0.25])


def test_mean_and_std_on_record_are_in_the_order_that_the_network_is_given(model, package):
    """RegNetX: mean=[103.53, 116.28, 123.675], of images as OpenCV reads them."""
    normalise = normalise_of(model("mmpretrain", "model.name=regnetx-400mf_8xb128_in1k"))
    grey = torch.full((1, 3, 1, 1), 103.53 / 255)
    assert normalise(grey).flatten().tolist()[0] == pytest.approx(0, abs=1e-6)  # float32 around 0.4


def normalise_of(made):
    from fca.models.mmpretrain_models import _config, _geometry_and_normalisation

    return _geometry_and_normalisation(made, _config(made))[1]


def test_a_configuration_that_mmengine_takes_for_another_kind_is_read(model, package):
    from fca.models.mmpretrain_models import _config

    assert _config(model("mmpretrain", "model.name=replknet-31b_3rdparty_in1k")).model.backbone.type == "RepLKNet"


def test_normalisation_agrees_with_its_own_package(model, package):
    """Images on the way in, against mmpretrain's own ClsDataPreprocessor."""
    image = torch.randint(0, 256, (3, 4, 4), dtype=torch.uint8)  # blue first, as its loader reads them
    theirs = package[0].models.ClsDataPreprocessor(
        mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True
    )
    expected = theirs({"inputs": [image]})["inputs"]
    ours = normalise_of(model("mmpretrain", f"model.name={NAME}"))(image.flip(0)[None] / 255)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)  # float32 around 2


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_answers_as_the_network_that_wrote_it(model, package, original, tmp_path, zipped):
    path = tmp_path / "epoch_3.pth"
    torch.save(checkpoint(package, original), path, _use_new_zipfile_serialization=zipped)
    classifier = model("mmpretrain", f"model.name={NAME}", f"model.weights={path}", "model.classes=imagenet-1k").build()
    images = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(classifier.module.eval()(images), original(images))
    assert len(classifier.classes) == 1000


def test_a_checkpoint_written_beside_numpy_1_is_read_too(model, package, original, tmp_path):
    path = tmp_path / "old.pth"
    torch.save(checkpoint(package, original), path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    assert b"numpy._core.multiarray" in content
    path.write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert model("mmpretrain", f"model.name={NAME}", f"model.weights={path}").build(TWO).classes == tuple(TWO)


def test_published_weights_know_the_classes_of_their_data(model, package, original, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    made = model("mmpretrain", f"model.name={NAME}", "model.weights=pretrained")
    assert made.weights_label() == "resnet18_8xb32_in1k_20210831-fbbb1da6.pth"
    assert made.identity()["weights"] == made.weights_label()
    torch.save(checkpoint(package, original), tmp_path / "checkpoints" / made.weights_label())
    classifier = made.build()
    assert (classifier.classes[0], len(classifier.classes)) == ("n01440764", 1000)
    small = model("mmpretrain", "model.name=resnet18_8xb16_cifar10", "model.weights=pretrained", "model.input_size=32")
    from fca.models.mmpretrain_models import _class_keys_of_test_data, _config

    assert _class_keys_of_test_data(_config(small))[:3] == ("airplane", "automobile", "bird")


def test_published_weights_that_cannot_be_fetched_are_named(model, package, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))

    def no_network(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    said = r"copy https://download.openmmlab.com/.*resnet18_8xb32_in1k_20210831-fbbb1da6.pth here .* model.weights=PATH"
    with pytest.raises(FcaError, match=said):
        model("mmpretrain", f"model.name={NAME}", "model.weights=pretrained").build()


class Harmful:
    def __init__(self, trap):
        self.trap = trap

    def __reduce__(self):
        return os.mkdir, (str(self.trap),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_that_would_run_code_is_refused_and_does_not(model, package, original, tmp_path, zipped):
    trap, path = tmp_path / "trap", tmp_path / "harmful.pth"
    torch.save(checkpoint(package, original, hook=Harmful(trap)), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        FcaError, match=r"harmful.pth; .* this one holds code: to read it would run posix.mkdir .*container"
    ) as caught:
        model("mmpretrain", f"model.name={NAME}", f"model.weights={path}").build(TWO)
    assert "harmful.safetensors" in str(caught.value)
    assert not trap.exists()
    pickle.loads(pickle.dumps(Harmful(trap)))
    assert trap.exists(), "the trap was none"


def test_the_way_out_that_the_refusal_names_works(model, package, original, tmp_path):
    save_file(original.state_dict(), tmp_path / "harmless.safetensors")
    path = f"model.weights={tmp_path}/harmless.safetensors"
    assert model("mmpretrain", f"model.name={NAME}", path).build(TWO).classes == tuple(TWO)


def test_from_scratch_fetches_nothing_whatever_the_configuration_says(model, package, monkeypatch):
    """This one is for fine-tuning: its configuration names a checkpoint to begin with."""
    import mmengine.runner.checkpoint as loading

    monkeypatch.setattr(loading, "_load_checkpoint", lambda *_, **__: pytest.fail("it fetched weights"))
    smaller = ["+model.kwargs.backbone.depth=18", "+model.kwargs.head.in_channels=512", "model.input_size=64"]
    classifier = model("mmpretrain", "model.name=resnet50_8xb8_cub", *smaller).build(TWO)
    assert classifier.classes == tuple(TWO)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            [f"model.name={NAME}x"],
            r"model.name = resnet18_8xb32_in1kx; allowed: one of mmpretrain's \d+ classifiers, such",
        ),
        (
            ["model.name=resnet18_8xb16_cifar10"],
            r"model.input_size = None; allowed: a size: resnet18_8xb16_cifar10 takes",
        ),
        (
            [f"model.name={NAME}", "+model.kwargs.backbone={type: subprocess.Popen, args: [touch, made]}"],
            "model.kwargs = subprocess.Popen; allowed: names of mmpretrain's own registry",
        ),
        (
            [f"model.name={NAME}", "+model.kwargs.head.loss=[{type: os.system, command: touch made}]"],
            "model.kwargs = os.system; allowed: names of mmpretrain's own registry",
        ),
        (
            [f"model.name={NAME}", "+model.kwargs.backbone.depht=18"],
            r"'depht': 18}}; allowed: what mmpretrain's resnet18_8xb",
        ),
        (["model.name=conformer-tiny-p16_3rdparty_in1k"], "answers with a tuple, not with logits"),
        ([f"model.name={NAME}", "model.mean=[0.5]"], r"model.mean = \[0.5\]; allowed: three numbers"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(model, package, overrides, said):
    with pytest.raises(FcaError, match=said) as caught:
        model("mmpretrain", *overrides).build(TWO)
    assert "\n" not in str(caught.value)
