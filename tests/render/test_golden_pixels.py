"""A change of the pixels needs another VERSION, which identifies data sets.

After an intended change: set another fca.render.scene.VERSION, then run `python tests/render/test_golden_pixels.py`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from fca.render import ATTRIBUTES, BACKGROUND, CLASSES, VERSION, render, scene_of
from fca.render.levels import band
from fca.render.scene import LEVELS

STORED = Path(__file__).with_name("golden_pixels.json")
KEYS = [(attribute, "hard") for attribute in (*ATTRIBUTES, BACKGROUND)] + [("size", "easy")]


def coarse(place):
    """Mean colour of the image's quarters and of the object, of 255, and the masks' shares of 1,000: 17 numbers."""
    image, visible, full = render(scene_of(CLASSES[place % len(CLASSES)], *KEYS[place], 3, 7), 32)
    quarters = image.reshape(2, 16, 2, 16, 3).mean(axis=(1, 3)).ravel()
    return [*quarters, *image[full].mean(axis=0), 1000 * visible.mean(), 1000 * full.mean()]


def levels():
    """Every level's range."""
    return {f"{a}/{level}": list(band(a, level)) for a in (*ATTRIBUTES, BACKGROUND) for level in LEVELS}


def test_levels_and_version_are_those_of_the_stored_pixels():
    stored = json.loads(STORED.read_text())
    assert stored["version"] == VERSION
    assert stored["levels"] == levels()


@pytest.mark.parametrize("place", range(len(KEYS)), ids=["/".join(key) for key in KEYS])
def test_pixels_are_those_of_this_version(place):
    stored = json.loads(STORED.read_text())["pixels"]["/".join(KEYS[place])]
    # other processors round differently: one pixel in 1,024 may differ, which weighs 1 in 1,000 and in a quarter
    # 1 in 255; a mean over the smallest objects (some 15 pixels) moves most
    assert coarse(place) == pytest.approx(stored, abs=2.5)


if __name__ == "__main__":
    pixels = {"/".join(key): np.round(coarse(place), 1).tolist() for place, key in enumerate(KEYS)}
    STORED.write_text(json.dumps({"version": VERSION, "levels": levels(), "pixels": pixels}, indent=1) + "\n")
