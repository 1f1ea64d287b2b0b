import importlib
import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from fca.models.cifar_resnet import CifarResNet
from fca.models.stored import Probed, StoredRun, describe_model, model_from_description
from fca.store.files import DamagedFile
from fca.types import FcaError

CLASSES = ["owl", "cat", "dog"]
IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model):
    """A train run, as the train task leaves it: three epochs' worth of different weights."""
    made = model("test_vit", "+model.kwargs.drop_rate=0.1")
    folder = tmp_path_factory.mktemp("trained")
    (folder / "model.json").write_text(json.dumps(describe_model(made, CLASSES)))
    for seed, name in enumerate(("best", "snapshot-0.50", "snapshot-0.125")):
        torch.manual_seed(seed)
        save_file(made.build(CLASSES).module.state_dict(), folder / f"{name}.safetensors")
    return folder


@pytest.fixture
def outputs(trained, tmp_path):
    """A store with a copy of it."""
    shutil.copytree(trained, tmp_path / "runs" / "0123456789ab")
    return tmp_path


def stored(outputs, snapshot="best", run_id="0123456789ab"):
    return StoredRun(str(outputs), run_id, snapshot)


@pytest.mark.parametrize(("snapshot", "seed"), [("best", 0), ("0.5", 1), ("0.50", 1), ("0.125", 2)])
def test_a_snapshot_answers_as_the_network_did_then(outputs, model, snapshot, seed):
    torch.manual_seed(seed)
    then = model("test_vit").build(CLASSES)
    now = stored(outputs, snapshot).build()
    with torch.inference_mode():
        assert torch.equal(now.module.eval()(IMAGES), then.module.eval()(IMAGES))
    assert now.classes == tuple(CLASSES)
    assert now.geometry == then.geometry
    assert now.normalise == then.normalise


def test_a_snapshot_has_one_identity_however_it_is_written(outputs):
    assert stored(outputs, "0.50").identity() == {"run": "0123456789ab", "snapshot": "0.5"}
    assert stored(outputs, "0.5").identity() == stored(outputs, "0.50").identity()
    assert stored(outputs).identity() == {"run": "0123456789ab", "snapshot": "best"}


def test_it_is_called_like_the_network_that_was_trained(outputs):
    assert stored(outputs).label() == "test_vit drop_rate=0.1"
    assert stored(outputs, "0.50").weights_label() == "0123456789ab/0.5"


def test_training_can_begin_with_it_under_a_fresh_head(outputs):
    old, new = stored(outputs).build(), stored(outputs).build(["left", "right"])
    state = new.module.state_dict()
    same = {key for key, value in old.module.state_dict().items() if torch.equal(value, state[key])}
    assert set(state) - same == {"head.weight", "head.bias"}
    assert new.classes == ("left", "right")
    described = describe_model(stored(outputs), ["left", "right"])
    assert described["target"] == "fca.models.timm_models.TimmModel"
    assert described["classes"] == ["left", "right"]


def test_every_family_comes_back_from_its_description(model):
    mmpretrain = model("mmpretrain", "model.name=resnet18_8xb32_in1k", "+model.kwargs.backbone.norm_eval=true")
    open_clip = model("open_clip", "model.name=ViT-B-32", "+model.names.cat=kitten")
    others = (model("squeezenet1_0"), model("timm", "model.name=resnet18"), mmpretrain, open_clip)
    for made in (model("cifar_resnet20"), *others):
        described = json.loads(json.dumps(describe_model(made, CLASSES)))
        assert model_from_description(described) == (made, CLASSES)


def test_weights_that_training_began_with_are_not_needed_again(outputs, tmp_path):
    first = tmp_path / "first.safetensors"
    save_file(CifarResNet(8, None, None).build(CLASSES).module.state_dict(), first)
    made = CifarResNet(8, str(first), CLASSES)
    folder = outputs / "runs" / "ba9876543210"
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(describe_model(made, CLASSES)))
    save_file(made.build(CLASSES).module.state_dict(), folder / "best.safetensors")
    first.unlink()
    assert stored(outputs, run_id="ba9876543210").build().classes == tuple(CLASSES)


def test_an_unknown_run_is_refused_with_those_there_are(outputs):
    with pytest.raises(FcaError, match=r"model.run_id = ffff; allowed: a train run in .*: 0123456789ab; next"):
        stored(outputs, run_id="ffff").identity()
    with pytest.raises(FcaError, match=r"model.run_id = ffff; allowed: a train run in .*: none yet"):
        stored(outputs / "nowhere", run_id="ffff").label()


def test_an_unknown_snapshot_is_refused_with_those_there_are(outputs):
    with pytest.raises(FcaError, match=r"model.snapshot = 0.75; allowed: .* kept: 0.125, 0.5, best; next"):
        stored(outputs, "0.75").identity()
    (outputs / "runs" / "0123456789ab" / "best.safetensors").rename(outputs / "moved.safetensors")
    with pytest.raises(FcaError, match=r"model.snapshot = best; allowed: .* kept: 0.125, 0.5; next"):
        stored(outputs).build()


FIELDS = {"depth": 8, "weights": None, "classes": None}
OURS = {"target": "fca.models.cifar_resnet.CifarResNet", "fields": FIELDS, "classes": CLASSES}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"target": "subprocess.call", "fields": {"args": ["touch", "made"]}},
            "= subprocess.call; ",
        ),
        (
            {"target": "os.system", "fields": {"command": "touch made"}},
            "= os.system; allowed: a comp",
        ),
        ({"target": "fca.store.files.write_text"}, r"target in \S+model.json = fca.store.files.write_text; "),
        ({"target": "fca.models.stored.Path"}, "no dataclass Path"),
        ({"target": "fca.models.stored.asdict"}, "no dataclass asdict"),
        (
            {"target": "fca.models.Normalise", "fields": {"mean": [], "std": []}},
            r"target in \S+model.json = fca.models.Normalise; .*add to Normalise: build",
        ),
        ({"target": "fca.models.no_such.Net"}, "a class in a module that imports"),
        ({"target": "fca.models.cifar_resnet"}, "no dataclass cifar_resnet"),
        ({"target": "fca.models.../../x"}, "= fca.models.../../x; allowed: a component of fca.models"),
        ({"target": "users_networks.Net"}, r"if you trust its code, type plugins=\[users_networks\]"),
        ({"target": ["os.system"]}, "as target, not a str"),
        ({"target": None}, "has None as target, not a str"),
        (
            {"fields": {**FIELDS, "extra": 1}},
            "allowed: depth, weights, classes of CifarResNet; next: train this run again",
        ),
        ({"fields": {"depth": 8}}, "allowed: depth, weights, classes of CifarResNet"),
        ({"fields": {**FIELDS, "depth": "8"}}, r"depth in \S+model.json = '8'; allowed: a value of <class 'int'>"),
        ({"fields": {**FIELDS, "depth": True}}, "depth in .* = True; "),
        ({"fields": {**FIELDS, "weights": ["x"]}}, r"weights in .* = \['x'\]; "),
        ({"fields": [1]}, r"has \[1\] as fields, not a dict"),
        ({"classes": "owl"}, "has owl as classes, not a list"),
        ({"classes": [1]}, "allowed: target, fields and classes of a model"),
    ],
)
def test_a_description_from_elsewhere_makes_a_model_of_ours_or_nothing(change, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users_networks.py").write_text("open('made', 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "outputs" / "runs" / "0123456789ab"
    folder.mkdir(parents=True)
    (folder / "model.json").write_text(json.dumps({**OURS, **change}))
    with pytest.raises((FcaError, DamagedFile), match=message):
        stored(tmp_path / "outputs").identity()
    assert not (tmp_path / "made").exists()


def runs_of(outputs, **described):
    """Train runs with these descriptions, that have weights."""
    for run_id, description in described.items():
        folder = outputs / "runs" / (run_id * 12)
        folder.mkdir(exist_ok=True)
        (folder / "model.json").write_text(json.dumps(description))
        save_file({"weight": torch.zeros(3, 192), "bias": torch.zeros(3)}, folder / "best.safetensors")


def probe_over(outputs, run_id):
    base = {"target": "fca.models.stored.StoredRun"}
    base["fields"] = {"outputs": str(outputs), "run_id": run_id, "snapshot": "best"}
    return {"target": "fca.models.stored.Probed", "fields": {"base": base}, "classes": CLASSES}


def test_runs_of_a_strangers_store_that_name_each_other_are_refused(outputs):
    """Before, each of these was a RecursionError."""
    runs_of(outputs, a=probe_over(outputs, "a" * 12), b=probe_over(outputs, "c" * 12), c=probe_over(outputs, "b" * 12))
    itself, nested = probe_over(outputs, "d" * 12)["fields"]["base"], probe_over(outputs, "0123456789ab")
    for _ in range(10):
        nested = {**nested, "fields": {"base": nested}}
    runs_of(outputs, d={**itself, "classes": CLASSES}, e=nested)
    for run_id in "abcde":
        model = stored(outputs, run_id=run_id * 12)
        for use in (model.label, model.build, Probed.of(model).label, Probed.of(model).identity):
            with pytest.raises((FcaError, DamagedFile), match=r"allowed: a network; |describes no network but run d"):
                use()


def test_a_probe_of_a_probe_reads_the_features_of_the_network_under_both(outputs, model):
    runs_of(outputs, a=probe_over(outputs, "0123456789ab"), b=probe_over(outputs, "a" * 12))
    first, second = (stored(outputs, run_id=run_id * 12) for run_id in "ab")
    assert first.label() == second.label() == stored(outputs).label()
    assert second.identity() == {"run": "b" * 12, "snapshot": "best"}
    network, above = stored(outputs).build(), second.build()
    for classifier in (network, above):
        classifier.module.eval()
    with torch.inference_mode():
        assert torch.equal(above.embed(IMAGES), network.embed(IMAGES))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"target": 1}', "[" * 100_000, "\x00"])
def test_a_description_that_cannot_be_read_is_named(outputs, text):
    (outputs / "runs" / "0123456789ab" / "model.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"0123456789ab/model\.json "):
        stored(outputs).label()


def test_the_model_of_a_plugin_comes_back_from_its_description(tmp_path, monkeypatch):
    text = "from dataclasses import dataclass\nfrom fca.types import Model\n"
    text += "@dataclass(frozen=True)\nclass Net(Model):\n    width: float\n"
    (tmp_path / "plugged_networks.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FCA_PLUGINS", "plugged_networks")
    described = {"target": "plugged_networks.Net", "fields": {"width": 2}, "classes": CLASSES}
    made, classes = model_from_description(described)
    assert (made.width, classes) == (2, CLASSES)


def test_fields_of_a_plugin_may_be_tuples_optional_or_computed_and_others_are_refused_before_training(
    tmp_path, monkeypatch
):
    text = """
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fca.types import Model

@dataclass(frozen=True)
class Net(Model):
    widths: tuple[int, ...]
    name: Optional[str] = None
    computed: int = field(init=False, default=3)
    place: object = None
"""
    (tmp_path / "plugged_fields.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FCA_PLUGINS", "plugged_fields")
    net = importlib.import_module("plugged_fields").Net
    described = json.loads(json.dumps(describe_model(net((8, 16), "a"), CLASSES)))
    del described["fields"]["place"]
    made, _ = model_from_description(described)
    assert (list(made.widths), made.name, made.computed) == ([8, 16], "a", 3)
    with pytest.raises(FcaError, match=r"fields of Net = .*; allowed: text, numbers, lists and dictionaries"):
        describe_model(net((8,), place=tmp_path), CLASSES)


@pytest.mark.parametrize("run_id", ["..", "../runs/0123456789ab", "0123456789AB", "", ".", "/etc"])
def test_a_run_is_named_by_twelve_hex_digits_and_by_nothing_else(outputs, run_id):
    with pytest.raises(FcaError, match=r"model.run_id = .*; allowed: a train run in .*: 0123456789ab"):
        stored(outputs, run_id=run_id).identity()


@pytest.mark.parametrize("snapshot", ["../0123456789ab/best", "../../secret", "best.safetensors", "*", ""])
def test_a_snapshot_is_a_file_of_that_run(outputs, snapshot):
    save_file({"x": torch.zeros(1)}, outputs / "secret.safetensors")
    with pytest.raises(FcaError, match=r"model.snapshot = .*; allowed: what run 0123456789ab kept: 0.125, 0.5, best"):
        stored(outputs, snapshot).identity()
