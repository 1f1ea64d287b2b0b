"""The constants of each size, measured in pixels: the published tables against what the images show."""

import io

import numpy as np
import pytest
from PIL import Image
from skimage.filters import gaussian

from fca.shifts.constants import CONSTANTS, PUBLISHED, constants
from fca.shifts.corruption import KINDS, corrupted
from tests.support.photographs import photograph

CIFAR, TINY, IMAGENET = (32, 32), (64, 64), (224, 224)


def seen(image, kind, severity):
    return corrupted(image, kind, severity, np.random.default_rng(0)).astype(float)


def test_every_kind_has_five_severities_of_equal_length_at_every_size():
    assert len(PUBLISHED) == 19
    assert set(PUBLISHED) <= set(CONSTANTS) == set(KINDS)
    for kind, sizes in CONSTANTS.items():
        assert list(sizes) == ["cifar", "tiny_imagenet", "imagenet"], kind
        for fives in sizes.values():
            assert len(fives) == 5
            assert len({len(five) for five in fives}) == 1


@pytest.mark.parametrize(
    ("shape", "size"),
    [((48, 300), "cifar"), ((49, 49), "tiny_imagenet"), ((96, 97), "tiny_imagenet"), ((97, 97), "imagenet")],
)
def test_the_shorter_side_decides(shape, size):
    assert constants("shot_noise", 2, *shape) == CONSTANTS["shot_noise"][size][1]


@pytest.mark.parametrize(
    ("size", "spreads"),
    [
        (CIFAR, (0.04, 0.06, 0.08, 0.09, 0.10)),
        (TINY, (0.04, 0.08, 0.12, 0.15, 0.18)),
        (IMAGENET, (0.08, 0.12, 0.18, 0.26, 0.38)),
    ],
)
def test_gaussian_noise_has_the_published_spread(size, spreads):
    grey = np.full((*size, 3), 128, np.uint8)
    for severity, spread in enumerate(spreads, 1):
        if spread < 0.2:  # above, much is clipped
            # 3,072 values at least: a standard error of 1.3 %
            assert seen(grey, "gaussian_noise", severity).std() / 255 == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize(("size", "counts"), [(CIFAR, (500, 250, 100, 75, 50)), (IMAGENET, (60, 25, 12, 5, 3))])
def test_shot_noise_has_the_spread_of_the_published_counts(size, counts):
    grey = np.full((*size, 3), 51, np.uint8)  # 0.2: little is clipped
    for severity, count in enumerate(counts, 1):
        assert seen(grey, "shot_noise", severity).var() / 255**2 == pytest.approx(0.2 / count, rel=0.1)


@pytest.mark.parametrize(
    ("size", "shares"), [(CIFAR, (0.01, 0.02, 0.03, 0.05, 0.07)), (IMAGENET, (0.03, 0.06, 0.09, 0.17, 0.27))]
)
def test_impulse_noise_flips_the_published_share(size, shares):
    grey = np.full((*size, 3), 100, np.uint8)
    for severity, share in enumerate(shares, 1):
        values = seen(grey, "impulse_noise", severity)
        tolerance = 4 * np.sqrt(share / values.size)  # four standard errors
        assert (values != 100).mean() == pytest.approx(share, abs=tolerance)
        assert (values == 255).mean() == pytest.approx(share / 2, abs=tolerance)


def test_jpeg_and_pixelate_at_32_pixels_are_those_of_cifar_c():
    image = photograph(32, 32)
    for severity, (quality, share) in enumerate(
        zip((80, 65, 58, 50, 40), (0.95, 0.9, 0.85, 0.75, 0.65), strict=True), 1
    ):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        assert (seen(image, "jpeg_compression", severity) == np.asarray(Image.open(file))).all()
        side = int(32 * share)
        small = Image.fromarray(image).resize((side, side), Image.Resampling.BOX)
        back = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
        assert (seen(image, "pixelate", severity) == back).all()


def test_blur_contrast_and_brightness_at_32_pixels_are_those_of_cifar_c():
    image = photograph(32, 32)
    unit = image / 255
    for severity, (spread, factor, more) in enumerate(
        zip((0.4, 0.6, 0.7, 0.8, 1), (0.75, 0.5, 0.4, 0.3, 0.15), (0.05, 0.1, 0.15, 0.2, 0.3), strict=True), 1
    ):
        mean = unit.mean(axis=(0, 1))
        value = unit.max(axis=2, keepdims=True)
        expected = {
            "gaussian_blur": gaussian(unit, sigma=spread, channel_axis=-1),
            "contrast": (unit - mean) * factor + mean,
            "brightness": unit * np.minimum(value + more, 1) / value,
        }
        for kind, pixels in expected.items():
            # cut off, not rounded: float32 and float64 may fall on two sides of a whole level
            assert np.abs(seen(image, kind, severity) - np.floor(pixels * 255 + 1e-6)).max() <= 1, kind
