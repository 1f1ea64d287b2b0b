"""Reading an image between and beside its pixels: enlarging, smearing, warping; and its way to and from bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy import fft

from fca.shifts.constants import Number


def to_unit(image: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "height width 3"]:
    """Bytes -> float32 in [0, 1].

    >>> to_unit(np.full((1, 1, 3), 255, np.uint8)).tolist()
    [[[1.0, 1.0, 1.0]]]
    """
    return image.astype(np.float32) / np.float32(255)


def to_bytes(image: Float[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "height width 3"]:
    """float32 -> bytes: clipped to [0, 1], then cut off, not rounded, as the published images were.

    A thousandth of a level is added first, so that a whole level does not fall to the one below by float32's rounding.

    >>> to_bytes(np.array([[[-0.1, 0.999, 1.2]]], np.float32)).tolist()
    [[[0, 254, 255]]]
    """
    levels = image * np.float32(255)
    levels += np.float32(1e-3)
    return np.clip(levels, 0, 255, out=levels).astype(np.uint8)


def enlarged(
    part: Float[np.ndarray, "_ _ channels"], factor: Number, height: int, width: int
) -> Float[np.ndarray, "height width channels"]:
    """The middle of an enlargement by `factor`, linear between pixels; corners stay corners of the whole enlargement.

    >>> enlarged(np.array([[[0.0], [1.0]]] * 2, np.float32), 2, 2, 3)[0, :, 0].round(2)
    array([0.  , 0.33, 0.67], dtype=float32)
    """
    rows, row_share = _between(part.shape[0], factor, height)
    columns, column_share = _between(part.shape[1], factor, width)
    tall = _lerp(part[rows], part[rows + 1], row_share[:, None, None])
    return _lerp(np.take(tall, columns, axis=1), np.take(tall, columns + 1, axis=1), column_share[:, None])


def _between(
    length: int, factor: Number, wanted: int
) -> tuple[Int[np.ndarray, " wanted"], Float[np.ndarray, " wanted"]]:
    """For each wanted pixel the one before it, and how far it lies towards the next."""
    enlarged_to = round(length * factor)
    first = (enlarged_to - wanted) // 2
    places = np.arange(first, first + wanted) * ((length - 1) / (enlarged_to - 1))
    before = np.minimum(places.astype(np.int64), length - 2)
    return before, (places - before).astype(np.float32)


def _lerp(start: np.ndarray, end: np.ndarray, share: np.ndarray) -> np.ndarray:
    """start + share (end - start), in the memory of `end`."""
    end -= start
    end *= share
    end += start
    return end


def smeared(
    image: Float[np.ndarray, "height width channels"], radius: Number, spread: Number, angle: float
) -> Float[np.ndarray, "height width channels"]:
    """Motion to one side: the sum over i of w_i x(p + i d), w_i ~ exp(-i^2 / (2 spread^2)), i = 0 .. 2 radius.

    angle: of the direction d, in degrees from rightwards to downwards; offsets are whole pixels. Beyond its edge the
    image goes on as its last pixel. Weights under a millionth are left out.

    >>> smeared(np.array([[[0.0], [0.0], [1.0]]], np.float32), 1, 1.0, 0.0)[0, :, 0].round(2)
    array([0.08, 0.43, 1.  ], dtype=float32)
    """
    steps = np.arange(2 * int(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * spread**2))
    weights /= weights.sum()
    steps, weights = steps[weights > 1e-6], weights[weights > 1e-6].astype(np.float32)
    right = np.ceil(steps * np.cos(np.deg2rad(angle)) - 0.5).astype(int)
    down = np.ceil(steps * np.sin(np.deg2rad(angle)) - 0.5).astype(int)
    top, left = -down.min(), -right.min()
    padded = np.pad(image, ((top, down.max()), (left, right.max()), (0, 0)), "edge")
    return _weighted(padded, top + down, left + right, weights, image.shape[:2])


def _weighted(
    padded: np.ndarray, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """The weighted sum of windows of this shape that start at these rows and columns."""
    height, width = shape
    total = np.zeros((height, width, padded.shape[2]), np.float32)
    term = np.empty_like(total)
    for row, column, weight in zip(rows, columns, weights, strict=True):
        np.multiply(padded[row : row + height, column : column + width], weight, out=term)
        total += term
    return total


def warped(
    image: Float[np.ndarray, "height width 3"],
    rows: Float[np.ndarray, "height width"],
    columns: Float[np.ndarray, "height width"],
    fold: Callable[[Int[np.ndarray, "..."], int], Int[np.ndarray, "..."]],
) -> Float[np.ndarray, "height width 3"]:
    """The image read at these places (in pixels), linear between pixels; `fold` brings an index into the image.

    >>> image = np.arange(4, dtype=np.float32)[None, :, None].repeat(3, 2).repeat(2, 0)
    >>> warped(image, np.zeros((2, 4)), np.arange(4) + np.full((2, 4), 0.5), fold_at_edge)[0, :, 0].tolist()
    [0.5, 1.5, 2.5, 3.0]
    """
    height, width = image.shape[:2]
    above, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down = (rows - above).astype(np.float32).reshape(-1, 1)
    right = (columns - left).astype(np.float32).reshape(-1, 1)
    lines = [(fold(above + i, height) * width).ravel() for i in (0, 1)]
    places = [fold(left + i, width).ravel() for i in (0, 1)]
    pixels = image.reshape(-1, 3)
    upper, lower = (
        _lerp(pixels.take(line + places[0], axis=0), pixels.take(line + places[1], axis=0), right) for line in lines
    )
    return _lerp(upper, lower, down).reshape(image.shape)


def fold_at_edge(index: Int[np.ndarray, "..."], length: int) -> Int[np.ndarray, "..."]:
    """Mirror indices at the outer edge of the last pixel: c b a | a b c | c b a.

    >>> fold_at_edge(np.array([-1, 0, 2, 3]), 3).tolist()
    [0, 0, 2, 2]
    """
    index = index % (2 * length)
    folded: np.ndarray = np.minimum(index, 2 * length - 1 - index)
    return folded


def fold_at_pixel(index: Int[np.ndarray, "..."], length: int) -> Int[np.ndarray, "..."]:
    """Mirror indices at the centre of the last pixel: c b | a b c | b a.

    >>> fold_at_pixel(np.array([-1, 0, 2, 3]), 3).tolist()
    [1, 0, 2, 1]
    """
    period = 2 * (length - 1)
    index = index % period
    folded: np.ndarray = np.minimum(index, period - index)
    return folded


# Random height maps that weather is made of: clouds and smooth wobble.


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
