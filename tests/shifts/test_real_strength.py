"""On real photographs of three sizes corruptions are as strong as ImageNet-C's, and cost a network as much."""

import csv
import io
import os
import zipfile
from pathlib import Path

import imagecorruptions
import numpy as np
import pytest
from PIL import Image

from fca.data.pixels import geometry_under
from fca.geometry import REFERENCE, ResizeCrop
from fca.shifts.constants import PUBLISHED
from fca.shifts.corruption import Corruption
from fca.store import Store
from tests.support.photographs import data_of

pytestmark = [pytest.mark.real, pytest.mark.slow]

SETS = ("imagenet_sample", "grocery", "clothing")  # shorter sides of 288, about 348 and about 400 pixels
PHOTOGRAPHS = 8
NETWORK = ResizeCrop(224, 0.875, "bilinear")

# How far the mean change of 8 photographs may differ, as a share. An angle, a cloud, some drops are one draw an image.
# frost: our ice has the published textures' mean and spread, no more. elastic_transform: theirs has no affine change at
# severity 3, and half of our displacement (see test_drawing.py, where ours is compared with the paper's code).
BAND = {"impulse_noise": 0.03, "motion_blur": 0.12, "snow": 0.05, "fog": 0.2, "spatter": 0.3, "frost": 0.2}
ELASTIC = (1.1, 1.7)


def photographs(name):
    archive = zipfile.ZipFile(Path(os.environ["FCA_REAL_DATA"], "images", f"{name}.zip"))
    paths = sorted(path for path in archive.namelist() if path.lower().endswith((".jpg", ".jpeg", ".png")))
    every = len(paths) // PHOTOGRAPHS
    images = [Image.open(io.BytesIO(archive.read(path))).convert("RGB") for path in paths[::every][:PHOTOGRAPHS]]
    return [np.asarray(image) for image in images]


def theirs(crop, kind, severity, seed):
    np.random.seed(seed)  # noqa: NPY002  it draws from the global generator, but for two kinds
    seeded = {"seed": seed} if kind in ("impulse_noise", "glass_blur") else {}
    return imagecorruptions.corrupt(crop, severity, kind, **seeded)


def rms(changed, clean):
    return np.sqrt(np.mean((changed.astype(float) - clean) ** 2))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", PUBLISHED)
def test_a_photograph_is_changed_as_much_as_by_imagecorruptions(name, kind):
    shift, images = Corruption(kind, 3), photographs(name)
    read, geometry = shift.reader(data_of(images)), geometry_under(shift, NETWORK)
    crops = [REFERENCE(image)[0] for image in images]
    ours = np.mean([rms(geometry(read(i))[0], crop) for i, crop in enumerate(crops)])
    expected = np.mean([rms(theirs(crop, kind, 3, i), crop) for i, crop in enumerate(crops)])
    if kind == "elastic_transform":
        assert ELASTIC[0] < ours / expected < ELASTIC[1]
    else:
        assert ours == pytest.approx(expected, rel=BAND.get(kind, 0.02))


def test_a_network_is_as_accurate_as_on_images_that_imagecorruptions_changed_and_a_disk_kept(fca, tmp_path):
    """mobilenetv1_100 under gaussian noise 3: images read from a folder of PNG files, made as ImageNet-C was."""
    real = Path(os.environ["FCA_REAL_DATA"])
    archive = zipfile.ZipFile(real / "images/imagenet_sample.zip")
    lines = list(csv.DictReader(io.TextIOWrapper(archive.open("index.csv"))))[::2]
    for at, line in enumerate(lines):
        image = np.asarray(Image.open(io.BytesIO(archive.read(line["path"]))).convert("RGB"))
        for folder, pixels in (("photos", image), ("noisy", theirs(REFERENCE(image)[0], "gaussian_noise", 3, at))):
            path = tmp_path / folder / line["wnid"] / "0.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(pixels).save(path)
    network = ["model=mobilenetv1_100", f"model.weights={real}/weights/mobilenetv1_100.safetensors", "logger=none"]
    photos = ["task=predict", "dataset=folder", f"dataset.root={tmp_path}/photos", *network]
    noisy = ["task=predict", "dataset=folder", f"dataset.root={tmp_path}/noisy", *network, "model.crop_pct=1"]
    for words in (photos, noisy, [*photos, "shift=corruption/gaussian_noise/3"]):
        code, _, err = fca(*words)
        assert code == 0, err
    rows = Store(tmp_path / "outputs").rows().set_index(["dataset", "shift"])
    from_disk, ours = rows.loc[("noisy", "clean")], rows.loc[("photos", "corruption/gaussian_noise/3")]
    assert ours["corrupted_at"] == "reference"
    assert ours["top1_open_low"] < from_disk["top1_open"] < ours["top1_open_high"]
    # 0.47 while the stored images of 288 pixels and more were corrupted
    assert ours["top1_open"] < 0.3
    assert rows.loc[("photos", "clean"), "top1_open"] > 0.8
