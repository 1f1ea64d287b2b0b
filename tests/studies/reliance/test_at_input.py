"""Predictions under shifts that need masks: many shifts of a batch in one pass, stored as runs of their own."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fca.cli.configure import load_data, load_model
from fca.store import Store
from fca.studies.reliance.ablation import Ablation
from fca.tasks import predict

KEYS = ["car", "lamp"]
RENDERED = {
    "classes": KEYS,
    "attributes": ["size"],
    "per_level": 2,
    "train_per_class": 2,
    "val_per_class": 1,
    "size": 32,
}
DATA = ["dataset=rendered", *(f"dataset.{key}={value}".replace("'", "") for key, value in RENDERED.items())]
FEW = [
    "shift.noises.gaussian=[0.5]",
    "shift.noises.l2=[60]",
    "shift.noises.draws=2",
    "shift.noises.areas=[area_matched]",
]


@pytest.fixture
def words(tmp_path):
    network = load_model("test_resnet", input_size=32).build(KEYS).module
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    model = ["model=test_resnet", f"model.weights={tmp_path / 'weights.safetensors'}", "model.classes=[car,lamp]"]
    return ["task=predict", "logger=none", *model, "model.input_size=32"]


def arrays_of(store):
    """shift -> the arrays of its run."""
    names = ("pred", "p_true", "mask_area", "examples")
    rows = store.rows("shift != 'clean'")
    return {
        shift: {n: np.array(store.array(run, n)) for n in names}
        for run, shift in zip(rows["run_id"], rows["shift"], strict=True)
    }


@pytest.mark.wide
def test_every_shift_of_a_pass_is_a_run_with_its_own_predictions(fca, words, tmp_path, monkeypatch):
    assert fca(*words, *DATA, "shift=ablate/gray")[0] == 0
    builds = []
    monkeypatch.setattr(predict, "LOGITS_HELD_BYTES", 5 * 12 * 2 * 4)  # of five shifts
    original = predict.known_images
    monkeypatch.setattr(predict, "known_images", lambda *given: builds.append(1) or original(*given))
    code, _, err = fca(*words, *DATA, "shift=reliance", *FEW)
    assert code == 0, err
    assert len(builds) == 3, "clean images, which are counted first, and one pass for all that are left"
    found = arrays_of(Store(tmp_path / "outputs"))
    assert len(found) == 3 + 1 + 8

    data = load_data("rendered", **RENDERED)
    classifier = load_model("test_resnet", weights=words[3].partition("=")[2], classes=KEYS, input_size=32).build()
    rows = data.rows("test").tolist()
    masks = np.stack([data.mask(row) for row in rows])
    images = torch.from_numpy(np.stack([data.read(row) for row in rows])).permute(0, 3, 1, 2).float() / 255
    gray = torch.where(torch.from_numpy(masks)[:, None], 0.5, images)
    with torch.inference_mode():
        p = classifier.module.eval()(classifier.normalise(gray)).softmax(1).numpy()
    gray_run = found["ablate/gray"]
    np.testing.assert_array_equal(gray_run["pred"], p.argmax(1))
    np.testing.assert_allclose(gray_run["p_true"], p[np.arange(len(rows)), data.labels[np.array(rows)]], atol=1e-6)
    np.testing.assert_allclose(gray_run["mask_area"], masks.mean((1, 2)), atol=1e-6)
    assert gray_run["examples"].shape == (2, 64, 64, 3)
    enlarged = (gray[[0, 6]].permute(0, 2, 3, 1).numpy() * 255).repeat(2, 1).repeat(2, 2).round()
    np.testing.assert_array_equal(gray_run["examples"], enlarged)
    draws = [found[f"noise/background/gaussian/0.5/area_matched{end}"]["p_true"] for end in ("", "/draw2")]
    assert not np.array_equal(*draws)


@pytest.mark.wide
def test_the_same_predictions_whatever_is_asked_with_a_shift(fca, words, tmp_path):
    assert fca(*words, *DATA, "shift=reliance", *FEW)[0] == 0
    assert fca(*words, *DATA, "shift=noise/background/gaussian/0.5/area_matched", "outputs=alone")[0] == 0
    together, alone = (arrays_of(Store(tmp_path / name)) for name in ("outputs", "alone"))
    assert set(alone) == {f"noise/background/gaussian/0.5/area_matched{end}" for end in ("", "/draw2", "/draw3")}
    for shift in set(together) & set(alone):
        np.testing.assert_array_equal(together[shift]["pred"], alone[shift]["pred"])
        np.testing.assert_allclose(together[shift]["p_true"], alone[shift]["p_true"], atol=1e-6)


def test_images_without_masks_are_refused_by_name(fca, words):
    code, _, err = fca(*words, "dataset=digits", "shift=ablate/gray", "limit=2", "model.classes=['0','1']")
    assert code == 2
    assert "a mask for every image, digits has none" in err


def test_a_task_that_reads_images_as_they_are_refuses_these_shifts(fca, words):
    code, _, err = fca(*words, "task=describe", *DATA, "shift=ablate/gray")
    assert code == 2
    assert f"shift = {Ablation('gray').label()}; allowed: clean" in err
