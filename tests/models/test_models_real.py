"""Weights that other people trained, on images that other people took: the figures that were measured for them."""

import csv
import io
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

DATA = os.environ.get("FCA_REAL_DATA")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(DATA is None, reason="FCA_REAL_DATA does not say where the real data are"),
]


def images_of(name, key):
    """RGB images of an archive in the order of its index, and the class key of each."""
    archive = zipfile.ZipFile(Path(DATA, "images", f"{name}.zip"))
    lines = list(csv.DictReader(io.TextIOWrapper(archive.open("index.csv"))))
    lines = [line for line in lines if line["split"] in ("test", "all")]
    images = [np.asarray(Image.open(io.BytesIO(archive.read(line["path"]))).convert("RGB")) for line in lines]
    return images, [line[key] for line in lines]


def top1(classifier, images, keys):
    """Open accuracy, batch by batch."""
    module = classifier.module.eval()
    with ThreadPoolExecutor(2) as pool:
        pixels = np.stack(list(pool.map(lambda image: classifier.geometry(image)[0], images)))
    said = []
    with torch.inference_mode():
        for batch in np.array_split(pixels, -(-len(pixels) // 50)):
            unit = torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous() / 255
            said.append(module(classifier.normalise(unit)).argmax(1))
    told = np.array(classifier.classes)[torch.cat(said).numpy()]
    return (told == np.array(keys)).mean()


def with_file(model, name):
    return model(name, f"model.weights={DATA}/weights/{name.replace('cifar_', 'cifar10_')}.safetensors").build()


@pytest.fixture(scope="module")
def cifar10():
    return images_of("cifar10", "label")


@pytest.fixture(scope="module")
def imagenet_sample():
    return images_of("imagenet_sample", "wnid")


@pytest.mark.parametrize(("name", "measured"), [("cifar_resnet20", 0.9173), ("cifar_resnet56", 0.9339)])
def test_cifar_resnets_score_what_was_measured(model, cifar10, name, measured):
    assert round(top1(with_file(model, name), *cifar10), 4) == measured


@pytest.mark.parametrize(
    ("name", "here", "published"),
    [
        ("mobilenetv1_025", 0.466, 0.470),
        ("mobilenetv1_050", 0.680, 0.691),
        pytest.param("mobilenetv1_100", 0.860, 0.887, marks=pytest.mark.slow),
        pytest.param("squeezenet1_0", 0.599, 0.637, marks=pytest.mark.slow),
    ],
)
def test_imagenet_networks_score_what_images_of_288_pixels_allow(model, imagenet_sample, name, here, published):
    """The published figures lie higher: they are probably of the photographs before these were stored at 288 pixels.

    A crop of 0.875 agrees best with the predictions kept beside them, but no resize of the stored images comes near
    agreeing with all. Storing the images once more in that way costs mobilenetv1_050 another 4 to 8 points.
    """
    score = top1(with_file(model, name), *imagenet_sample)
    assert score == pytest.approx(here, abs=0.003)  # an image or two may turn with the order of additions
    assert score == pytest.approx(published, abs=0.04)
