"""Every family of models keeps the contract of `fca.types.Model`: trained, stored, loaded, exported, it predicts alike.

The code of the recipe on docs/recipes/model.md counts as a family.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fca as api
from fca.cli import export
from fca.cli.configure import load_model
from fca.cli.places import CONF
from fca.cli.trust import plain_values
from fca.data.splits import first_images
from fca.plugins import check_contract
from fca.store import Store
from fca.tables.predictions import predictions
from fca.types import Model
from tests.support.open_clip_towers import NAME, write_towers

RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "model.md"
CLASSES = ("1", "4", "7")
OF_DATA = {"dataset": "digits", "limit": 8, "logger": "none"}
TRAINED = {"subset.classes": list(CLASSES), "recipe.epochs": 1, "recipe.min_steps": 0}
FAMILIES = {
    "timm": {"model": "test_resnet"},
    "torchvision": {"model": "torchvision", "model.name": "mobilenet_v3_small", "model.input_size": 32},
    "cifar_resnet20": {"model": "cifar_resnet20", "model.depth": 8},
    "mmpretrain": {
        "model": "mmpretrain",
        "model.name": "resnet18_8xb16_cifar10",
        "model.input_size": 32,
        "model.crop_pct": 1,
    },
    "open_clip": {"model": "open_clip", "model.name": NAME, "adaptation": "probe"},
    "recipe": {"model": "smallnet"},
}
NOT_TRAINED = {
    "compiled": "a program of one of these, which is probed, not trained",
    "grouped": "sums what one of these predicts of 1000 classes",
    "hog": "no weights",
    "pixels": "no weights",
    "own": "features of a function of one's own",
    "pair": "similarities by a function of one's own",
    "onnx": "what an export of these writes",
    "run": "what a training of these stores",
}


@pytest.fixture
def family(request, tmp_path, monkeypatch):
    """What to type for a family; the recipe's files are in the working folder."""
    monkeypatch.chdir(tmp_path)
    keys = {**FAMILIES[request.param]}
    if request.param == "recipe":
        for title, text in re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', RECIPE.read_text(), re.DOTALL):
            file = tmp_path / title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("FCA_PLUGINS", "my_parts")
        sys.modules.pop("my_parts", None)
        keys["hydra.searchpath"] = [f"file://{tmp_path}/conf"]
    if request.param == "open_clip":
        keys["model.weights"] = str(tmp_path / "clip.safetensors")
        write_towers(keys["model.weights"])
    return keys


def logits_of(classifier, data, test_images):
    """Logits of test images by the parts of a classifier, one after the other, as its contract has them."""
    rows = data.rows("test")[test_images]
    pixels = np.stack([classifier.geometry(data.read(int(row)))[0] for row in rows])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    classifier.module.eval()
    with torch.inference_mode():
        return classifier.head(classifier.embed(classifier.normalise(images))).numpy()


def test_a_class_of_models_is_a_family_here_or_is_not_trained():
    classes = {path.stem: plain_values(path).get("_target_") for path in (CONF / "model").glob("*.yaml")}
    trained = {target for name, target in classes.items() if target is not None and name not in NOT_TRAINED}
    assert trained == {classes[name] for name in FAMILIES if name in classes}


SLOW = ("torchvision", "mmpretrain", "open_clip")  # to export


@pytest.mark.wide
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FAMILIES], indirect=True
)
def test_a_trained_model_predicts_alike_as_a_run_and_as_a_file(family, fca, tmp_path):
    rows = api.run({**OF_DATA, **TRAINED, **family})
    trained, tested = (rows.loc[rows["task"] == task].iloc[0] for task in ("train", "predict"))
    store = Store(tmp_path / "outputs")
    expected = predictions(store, tested)
    assert expected.logit_classes == CLASSES

    loaded = load_model("run", run_id=trained["run_id"])
    check_contract("model", loaded, Model)
    logits = logits_of(loaded.build(), first_images(api.load_data("digits"), OF_DATA["limit"]), expected.images)
    of_half_features = 0.02 * (family.get("adaptation") == "probe")  # float16 keeps 11 binary digits of each
    np.testing.assert_allclose(logits, expected.logits, atol=1e-4 + of_half_features)  # batches sum in another order

    code, out, err = fca(f"run={trained['run_id']}", "out=net.onnx", door=export)
    assert code == 0, out + err
    as_file = api.run({**OF_DATA, "task": "predict", "model": "onnx", "model.file": str(tmp_path / "net.onnx")})
    of_file = predictions(store, as_file.iloc[0])
    assert of_file.logit_classes == CLASSES
    np.testing.assert_allclose(of_file.logits, expected.logits, atol=1e-3 + of_half_features)  # as another library does


@pytest.mark.parametrize("family", ["recipe"], indirect=True)
def test_a_model_that_lacks_a_part_is_refused_when_it_is_loaded_with_the_part(family, fca, tmp_path):
    code = tmp_path / "my_parts.py"
    code.write_text(code.read_text().replace("(Model)", "").replace("def weights_label", "def weight_label"))
    code, _, err = fca(
        "model=smallnet", "model.width=8", "limit=8", *(f"{key}={value}" for key, value in family.items() if "." in key)
    )
    assert code == 2
    assert "model._target_ = my_parts.SmallNet; allowed: a class with all parts of fca.types.Model; " in err
    assert "next: add to SmallNet: from_scratch, learns, weights_label" in err
    assert not (tmp_path / "outputs").exists()
