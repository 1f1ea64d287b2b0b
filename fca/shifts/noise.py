"""Noises: every colour of every pixel is changed for itself. Images are float32 in [0, 1]; the caller clips."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fca.shifts.constants import Number

Image = Float[np.ndarray, "height width 3"]


def gaussian_noise(image: Image, spread: Number, *, rng: np.random.Generator) -> Image:
    """Low light: x + N(0, spread^2), the same spread in the dark and in the bright.

    >>> gaussian_noise(np.zeros((2, 2, 3), np.float32), 0.1, rng=np.random.default_rng(0)).dtype
    dtype('float32')
    """
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(spread)
    noise += image
    return noise


def shot_noise(image: Image, photons: Number, *, rng: np.random.Generator) -> Image:
    """Counted light: Poisson(photons x) / photons, where `photons` is the mean count of a white pixel.

    >>> float(shot_noise(np.zeros((2, 2, 3), np.float32), 60, rng=np.random.default_rng(0)).max())
    0.0
    """
    counted = rng.poisson(image * np.float32(photons)).astype(np.float32)
    counted /= np.float32(photons)
    return counted


def impulse_noise(image: Image, share: Number, *, rng: np.random.Generator) -> Image:
    """Bit errors, salt and pepper: this share of all values becomes 0 or 1, half of them each.

    >>> impulse_noise(np.full((1, 2, 3), 0.5, np.float32), 0.9, rng=np.random.default_rng(0)).tolist()
    [[[1.0, 1.0, 0.5], [0.0, 0.0, 0.0]]]
    """
    drawn = rng.random(image.shape, dtype=np.float32)
    salted = np.where(drawn > np.float32(1 - share / 2), np.float32(1), image)
    salted[drawn < np.float32(share / 2)] = 0
    return salted


def speckle_noise(image: Image, spread: Number, *, rng: np.random.Generator) -> Image:
    """Noise in proportion to the light: x + x N(0, spread^2).

    >>> float(speckle_noise(np.zeros((2, 2, 3), np.float32), 0.1, rng=np.random.default_rng(0)).max())
    0.0
    """
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(spread)
    noise += 1
    noise *= image
    return noise
