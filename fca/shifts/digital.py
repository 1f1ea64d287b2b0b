"""What cameras and screens do to colours and shapes. Images are float32 in [0, 1]; the caller clips."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fca.shifts.constants import Number
from fca.shifts.sampling import fold_at_edge, fold_at_pixel, warped, wobble

Pixels = Float[np.ndarray, "height width 3"]


def brightness(image: Pixels, more: Number) -> Pixels:
    """The value of HSV (the largest of the three colours) raised by `more`, up to 1; hue and saturation stay.

    >>> brightness(np.array([[[0.2, 0.4, 0.0]]], np.float32), 0.4).round(2)
    array([[[0.4, 0.8, 0. ]]], dtype=float32)
    """
    value = image.max(axis=2, keepdims=True)
    raised = np.minimum(value + np.float32(more), np.float32(1))
    black = value == 0
    brighter: np.ndarray = np.where(black, raised, image * (raised / np.where(black, 1, value)))
    return brighter


def saturate(image: Pixels, factor: Number, more: Number) -> Pixels:
    """The saturation s of HSV becomes factor s + more, in [0, 1]; value and hue stay. The hue of grey counts as red.

    >>> saturate(np.array([[[0.2, 0.4, 0.4]]], np.float32), 0.1, 0).round(2)
    array([[[0.38, 0.4 , 0.4 ]]], dtype=float32)
    """
    value = image.max(axis=2, keepdims=True)
    below = value - image
    reach = below.max(axis=2, keepdims=True)  # s = reach / value
    grey = reach == 0
    saturation = reach / np.where(value == 0, 1, value)
    wanted = np.clip(saturation * np.float32(factor) + np.float32(more), 0, 1)
    red = np.array([0, 1, 1], np.float32)
    coloured: np.ndarray = value - np.where(grey, red, below / np.where(grey, 1, reach)) * (wanted * value)
    return coloured


def contrast(image: Pixels, factor: Number) -> Pixels:
    """Every colour drawn towards its mean over the image: (x - mean) factor + mean.

    >>> contrast(np.array([[[0.0] * 3, [1.0] * 3]], np.float32), 0.5)[0, :, 0].tolist()
    [0.25, 0.75]
    """
    mean = image.mean(axis=(0, 1), dtype=np.float64)
    flat: np.ndarray = image * np.float32(factor) + (mean * (1 - factor)).astype(np.float32)
    return flat


def elastic_transform(
    image: Pixels, reach: Number, spread: Number, jitter: Number, *, rng: np.random.Generator
) -> Pixels:
    """Stretched and wobbling: a random affine change, then a smooth displacement (see `wobble`).

    The affine change moves three corners of the middle third of the image by up to `jitter` pixels each way.

    >>> elastic_transform(np.ones((9, 9, 3), np.float32), 2, 1, 2, rng=np.random.default_rng(0)).round(3).min()
    np.float32(1.0)
    """
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float64)
    backward = _affine(height, width, jitter, rng)
    rows, columns = (a * y + b * x + c for a, b, c in backward)
    changed = warped(image, rows, columns, fold_at_pixel)
    if not reach:
        return changed
    down, right = wobble(height, width, reach, spread, rng=rng)
    return warped(changed, y + down, x + right, fold_at_edge)


def _affine(height: int, width: int, jitter: Number, rng: np.random.Generator) -> Float[np.ndarray, "2 3"]:
    """From places of the changed image back to the image's: row and column as (row, column, 1) times a line each."""
    middle, arm = np.array([height // 2, width // 2]), min(height, width) // 3
    corners = middle + arm * np.array([[1, 1], [-1, 1], [-1, -1]])
    moved = corners + rng.uniform(-jitter, jitter, corners.shape)
    found: np.ndarray = np.linalg.solve(np.c_[moved, np.ones(3)], corners).T
    return found
