"""`task=predict shift=corruption/...` on photographs and small images: rows, pixels and what is in the cache."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fca import load_model
from fca.geometry import REFERENCE, ResizeCrop
from fca.shifts.corruption import Corruption, corrupted
from fca.store import Store
from fca.types import keyed_rng
from tests.support.photographs import photograph

SHAPES = {"a": [(150, 200), (96, 120)], "b": [(97, 97), (300, 180)]}
NOISE = Corruption("gaussian_noise", 3)


@pytest.fixture
def network(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "net.safetensors"
    save_file(load_model("test_resnet", input_size=64).build(("a", "b")).module.state_dict(), path)
    words = ["model=test_resnet", "model.input_size=64", "model.crop_pct=0.875", "model.classes=[a,b]"]
    return [*words, f"model.weights={path}"]


def write(folder, shapes):
    for label, sizes in shapes.items():
        (folder / label).mkdir(parents=True)
        for i, (height, width) in enumerate(sizes):
            Image.fromarray(photograph(height, width)).save(folder / label / f"{i}.png")
    return [f"dataset.root={folder}", "dataset=folder"]


@pytest.mark.wide
@pytest.mark.parametrize("cache", [4, 0])
def test_a_mixed_set_is_predicted_on_the_pixels_of_each_image_s_own_size(fca, tmp_path, network, cache, monkeypatch):
    seen = []
    monkeypatch.setattr("fca.tasks.predict.open_pixels", lambda *about: seen.append(opened(*about)) or seen[-1])
    from fca.data.pixels import open_pixels as opened

    line = ["task=predict", *write(tmp_path / "photos", SHAPES), *network, "logger=none", f"machine.cache_gb={cache}"]
    code, _, err = fca(*line, "shift=corruption/gaussian_noise/3")
    assert code == 0, err
    assert fca(*line, "shift=corruption/gaussian_noise", "shift.severities=[3]", "shift.at=stored")[0] == 0
    store = Store(tmp_path / "outputs")
    rows = store.rows()
    assert sorted(rows["corrupted_at"]) == ["reference", "stored"]
    assert set(rows["shift"]) == {"corruption/gaussian_noise/3"}
    assert rows["run_id"].nunique() == 2
    reference, stored = (pixels[np.arange(4)] for pixels in seen)
    names = [(label, i) for label in "ab" for i in (0, 1)]
    for at, (label, i) in enumerate(names):
        image, rng = photograph(*SHAPES[label][i]), keyed_rng(0, f"{label}/{i}.png", NOISE.label())
        is_small = min(SHAPES[label][i]) <= 96
        before = image if is_small else REFERENCE(image)[0]
        network_geometry = ResizeCrop(64, 0.875 if is_small else 1.0, "bilinear")
        expected = network_geometry(corrupted(before, "gaussian_noise", 3, rng))[0]
        np.testing.assert_array_equal(reference[at], expected)
        rng = keyed_rng(0, f"{label}/{i}.png", NOISE.label())
        as_stored = ResizeCrop(64, 0.875, "bilinear")(corrupted(image, "gaussian_noise", 3, rng))[0]
        np.testing.assert_array_equal(stored[at], as_stored)


def test_small_images_are_one_run_whatever_the_place(fca, tmp_path, network):
    line = ["task=predict", *write(tmp_path / "small", {"a": [(40, 60)], "b": [(96, 96)]}), *network, "logger=none"]
    for at in ("reference", "stored"):
        code, _, err = fca(*line, "shift=corruption/contrast", "shift.severities=[2]", f"shift.at={at}")
        assert code == 0, err
    [row] = Store(tmp_path / "outputs").rows().to_dict("records")
    assert row["corrupted_at"] is None or row["corrupted_at"] != row["corrupted_at"]


def test_another_place_is_refused_with_those_that_there_are(fca, tmp_path, network):
    line = ["task=predict", *write(tmp_path / "small", {"a": [(40, 60)], "b": [(96, 96)]}), *network, "logger=none"]
    code, _, err = fca(*line, "shift=corruption/contrast", "shift.at=input")
    assert code == 2
    assert "shift.at = input; allowed: reference, stored" in err
