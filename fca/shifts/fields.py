"""Random height maps that weather is made of: clouds and smooth wobble."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy import fft

from fca.shifts.constants import Number


def plasma(height: int, width: int, decay: Number, *, rng: np.random.Generator) -> Float[np.ndarray, "height width"]:
    """A cloudy height map in [0, 1] by midpoint displacement on a torus (diamond-square).

    decay: by how much the displacement shrinks from one scale to the next, squared; small = rough. The map is made on
    the next power of two that holds the longer side, scaled there, then cut.

    >>> plasma(8, 5, 2.0, rng=np.random.default_rng(0)).shape
    (8, 5)
    """
    heights = np.zeros((1, 1), np.float32)
    amplitude = 1.0
    while len(heights) < max(height, width):
        heights = _finer(heights, amplitude, rng)
        amplitude /= decay**2 if decay > 1 else 1
    heights -= heights.min()
    heights /= heights.max()
    return heights[:height, :width]


def _finer(heights: np.ndarray, amplitude: float, rng: np.random.Generator) -> np.ndarray:
    """Twice the resolution: each new point is the mean of its four neighbours, displaced."""
    side = len(heights)
    noise = rng.random((3, side, side), dtype=np.float32) * np.float32(2 * amplitude) - np.float32(amplitude)
    below, right = np.roll(heights, -1, axis=0), np.roll(heights, -1, axis=1)
    centres = (heights + below + right + np.roll(below, -1, axis=1)) / 4 + noise[0]
    finer = np.empty((2 * side, 2 * side), np.float32)
    finer[::2, ::2] = heights
    finer[1::2, 1::2] = centres
    finer[::2, 1::2] = (heights + right + centres + np.roll(centres, 1, axis=0)) / 4 + noise[1]
    finer[1::2, ::2] = (heights + below + centres + np.roll(centres, 1, axis=1)) / 4 + noise[2]
    return finer


def wobble(
    height: int, width: int, reach: Number, spread: Number, *, rng: np.random.Generator
) -> Float[np.ndarray, "2 height width"]:
    """Two smooth maps: uniform noise in -1..1, blurred by a Gaussian of this spread (cut at 3), times `reach`.

    The image is mirrored at its edges; there a symmetric filter is a product in the cosine transform, so that a spread
    of hundreds of pixels costs what one of two does.

    >>> wobble(4, 6, 2.0, 50.0, rng=np.random.default_rng(0)).std(axis=(1, 2)).round(2).tolist()
    [0.0, 0.0]
    """
    noise = rng.random((2, height, width), dtype=np.float32) * np.float32(2) - np.float32(1)
    waves = fft.dctn(noise, axes=(1, 2))
    waves *= _transfer(height, spread)[:, None]
    waves *= _transfer(width, spread)
    smooth: np.ndarray = fft.idctn(waves, axes=(1, 2))
    smooth *= np.float32(reach)
    return smooth


@lru_cache(maxsize=64)
def _transfer(length: int, spread: Number) -> Float[np.ndarray, " length"]:
    """What the cut Gaussian does to each cosine of this length."""
    steps = np.arange(1, int(3 * spread + 0.5) + 1)
    weights = np.exp(-(steps**2) / (2 * spread**2))
    waves = np.cos(np.pi / length * np.outer(np.arange(length), steps))
    kept: np.ndarray = (1 + 2 * waves @ weights) / (1 + 2 * weights.sum())
    return kept.astype(np.float32)
