"""The pixels of today: a change of theirs is a change of every run's meaning."""

import numpy as np
import pytest

from fca.shifts.constants import PUBLISHED
from fca.shifts.corruption import DRAWING, corrupted
from fca.types import keyed_rng

# Mean plus weighted mean of the levels at severity 3. Other random numbers move it by 0.02 and more (but glass_blur,
# whose copies keep the mean); one level in twenty of 5,760 values, another processor's last bit, by less than 0.01.
LEVELS = {
    "gaussian_noise": 121.420,
    "shot_noise": 120.602,
    "impulse_noise": 122.038,
    "defocus_blur": 121.448,
    "glass_blur": 121.264,
    "motion_blur": 121.160,
    "zoom_blur": 121.609,
    "snow": 149.101,
    "frost": 172.312,
    "fog": 134.405,
    "brightness": 146.992,
    "contrast": 124.188,
    "elastic_transform": 122.617,
    "pixelate": 121.475,
    "jpeg_compression": 121.407,
    "speckle_noise": 121.126,
    "gaussian_blur": 121.397,
    "spatter": 128.829,
    "saturate": 101.270,
}  # fmt: skip


def level(kind):
    ramp = np.add.outer(np.arange(0, 160, 4), np.arange(0, 96, 2))
    image = np.stack([ramp, ramp[::-1], 255 - ramp], axis=2).astype(np.uint8)
    pixels = corrupted(image, kind, 3, keyed_rng(0, "test/00017", "golden"))
    places = np.linspace(-1, 1, pixels.size).reshape(pixels.shape) ** 3
    return pixels.mean() + (pixels * places).mean()


def test_every_published_kind_has_its_level():
    assert tuple(LEVELS) == PUBLISHED


@pytest.mark.parametrize("kind", LEVELS)
def test_pixels_are_those_of_this_version_of_the_drawing(kind):
    assert DRAWING == 1
    assert level(kind) == pytest.approx(LEVELS[kind], abs=0.01), "raise DRAWING in fca/shifts/corruption.py, then this"
