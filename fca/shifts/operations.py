"""Image operations that several corruptions share, and the maps that weather is made of.

Images are float32 in [0, 1] unless they are bytes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from scipy import fft, ndimage

from fca.shifts.constants import Number

Rng = np.random.Generator
Bytes = UInt8[np.ndarray, "height width 3"]
Image = Float[np.ndarray, "height width 3"]
Map = Float[np.ndarray, "height width"]
Levels = UInt8[np.ndarray, "height width"]
Channels = Float[np.ndarray, "height width channels"]
Indices = Int[np.ndarray, "..."]


def to_unit(image: Bytes) -> Image:
    """Bytes -> float32 in [0, 1].

    >>> to_unit(np.full((1, 1, 3), 255, np.uint8)).tolist()
    [[[1.0, 1.0, 1.0]]]
    """
    return image.astype(np.float32) / np.float32(255)


def to_bytes(image: Image) -> Bytes:
    """float32 -> bytes: clipped to [0, 1], then cut off, not rounded, as the published images were.

    A thousandth of a level is added first, so that a whole level does not fall to the one below by float32's rounding.

    >>> to_bytes(np.array([[[-0.1, 0.999, 1.2]]], np.float32)).tolist()
    [[[0, 254, 255]]]
    """
    levels = image * np.float32(255)
    levels += np.float32(1e-3)
    return np.clip(levels, 0, 255, out=levels).astype(np.uint8)


# Reading an image between and beside its pixels: enlarging, smearing, warping.


def enlarged(part: Float[np.ndarray, "_ _ channels"], factor: Number, height: int, width: int) -> Channels:
    """The middle of an enlargement by `factor`, linear between pixels; corners stay corners of the whole enlargement.

    >>> enlarged(np.array([[[0.0], [1.0]]] * 2, np.float32), 2, 2, 3)[0, :, 0].round(2)
    array([0.  , 0.33, 0.67], dtype=float32)
    """
    rows, row_share = _between(part.shape[0], factor, height)
    columns, column_share = _between(part.shape[1], factor, width)
    tall = _lerp(part[rows], part[rows + 1], row_share[:, None, None])
    return _lerp(np.take(tall, columns, axis=1), np.take(tall, columns + 1, axis=1), column_share[:, None])


def _between(length: int, factor: Number, wanted: int) -> tuple[np.ndarray, np.ndarray]:
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


def smeared(image: Channels, radius: Number, spread: Number, angle: float) -> Channels:
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
    height, width = image.shape[:2]
    total = np.zeros(image.shape, np.float32)
    term = np.empty_like(total)
    for row, column, weight in zip(top + down, left + right, weights, strict=True):
        np.multiply(padded[row : row + height, column : column + width], weight, out=term)
        total += term
    return total


def warped(image: Image, rows: Map, columns: Map, mode: str) -> Image:
    """The image read at these places (in pixels), linear between pixels.

    mode: how the image goes on beyond its edge, as scipy calls it: reflect (c b a | a b c | c b a) or mirror
          (c b | a b c | b a).

    >>> image = np.arange(4, dtype=np.float32)[None, :, None].repeat(3, 2).repeat(2, 0)
    >>> warped(image, np.zeros((2, 4)), np.arange(4) + np.full((2, 4), 0.5), "reflect")[0, :, 0].tolist()
    [0.5, 1.5, 2.5, 3.0]
    """
    height, width = image.shape[:2]
    above, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down = (rows - above).astype(np.float32).reshape(-1, 1)
    right = (columns - left).astype(np.float32).reshape(-1, 1)
    lines = [(_folded(above + i, height, mode) * width).ravel() for i in (0, 1)]
    before, after = (_folded(left + i, width, mode).ravel() for i in (0, 1))
    pixels = image.reshape(-1, 3)
    upper, lower = (
        _lerp(pixels.take(line + before, axis=0), pixels.take(line + after, axis=0), right) for line in lines
    )
    return _lerp(upper, lower, down).reshape(image.shape)


def _folded(index: Indices, length: int, mode: str) -> Indices:
    """Indices beside the image brought into it: mirrored at the edge of its last pixel, or at that pixel's centre."""
    last = 2 * length - 1 if mode == "reflect" else 2 * length - 2
    index = index % (last + (mode == "reflect"))
    return np.minimum(index, last - index)


# Random maps: clouds, smooth wobble, ice.


def plasma(height: int, width: int, decay: Number, *, rng: Rng) -> Map:
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


def _finer(heights: np.ndarray, amplitude: float, rng: Rng) -> np.ndarray:
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


def wobble(height: int, width: int, reach: Number, spread: Number, *, rng: Rng) -> Float[np.ndarray, "2 height width"]:
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
    return fft.idctn(waves, axes=(1, 2)) * np.float32(reach)


@lru_cache(maxsize=64)
def _transfer(length: int, spread: Number) -> Float[np.ndarray, " length"]:
    """The factor by which the cut Gaussian multiplies each cosine of this length."""
    steps = np.arange(1, int(3 * spread + 0.5) + 1)
    weights = np.exp(-(steps**2) / (2 * spread**2))
    waves = np.cos(np.pi / length * np.outer(np.arange(length), steps))
    return ((1 + 2 * waves @ weights) / (1 + 2 * weights.sum())).astype(np.float32)


CELL = 72  # mean distance of two ice crystals, in pixels of an unshrunk texture
BARB = 7.0  # distance of two barbs of an arm
BENT = 30  # by how many pixels straight lines are bent
MEAN, SPREAD = 0.64, 0.12  # of the six photographs that the published frost lays over images


def ice(height: int, width: int, shrink: Number, *, rng: Rng) -> Map:
    """Ice on a window pane, from random numbers alone: its brightness at every pixel, 0 to 1, about 0.64 in the mean.

    shrink: pixels per pixel of the unshrunk texture. On rough ice lie six-armed crystals with barbs. A pixel belongs to
    its nearest crystal (one in every cell of a grid, anywhere within it, at any angle). In the frame of the nearest of
    its six arms, the arm is the axis, and barbs leave it at 60 degrees.

    >>> ice(16, 16, 0.2, rng=np.random.default_rng(0)).shape
    (16, 16)
    """
    rough = plasma(height, width, 1.3, rng=rng)
    bend = plasma(height, width, 1.9, rng=rng)
    rows = np.arange(height, dtype=np.float32)[:, None] / np.float32(shrink) + BENT * bend
    columns = np.arange(width, dtype=np.float32) / np.float32(shrink) + BENT * (bend[::-1, ::-1] + 0.3 * rough)
    along, beside = _on_arm(*_to_nearest(rows, columns, rng))
    barb = (along - beside * np.float32(0.577)) * np.float32(1 / BARB)
    barb = np.abs(barb - np.floor(barb) - np.float32(0.5)) * 2
    feather = barb * barb * np.exp(beside * np.float32(-1 / 14)) + np.exp(np.square(beside) * np.float32(-0.44))
    bright = (feather * (np.float32(0.3) + bend)) * np.float32(0.6) + rough
    bright -= bright.mean()
    bright *= np.float32(SPREAD) / max(float(bright.std()), 1e-6)
    bright += np.float32(MEAN)
    return bright.clip(0, 1)


def _to_nearest(rows: np.ndarray, columns: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every place the way down and right from its nearest crystal, and how that crystal is turned (0 to 1)."""
    line, place = (rows * np.float32(1 / CELL)).astype(np.intp), (columns * np.float32(1 / CELL)).astype(np.intp)
    high, wide = int(line.max()) + 3, int(place.max()) + 3
    drawn = rng.random((3, high * wide), dtype=np.float32)
    centre_row = ((drawn[0].reshape(high, wide) + np.arange(-1, high - 1)[:, None]) * CELL).astype(np.float32).ravel()
    centre_column = ((drawn[1].reshape(high, wide) + np.arange(-1, wide - 1)) * CELL).astype(np.float32).ravel()
    cell = line * wide + place
    nearest, least = cell.copy(), np.full(cell.shape, np.inf, np.float32)
    for step in [i * wide + j for i in range(3) for j in range(3)]:
        candidate = cell + step
        away = np.square(rows - centre_row.take(candidate))
        away += np.square(columns - centre_column.take(candidate))
        np.copyto(nearest, candidate, where=away < least)
        np.minimum(least, away, out=least)
    return rows - centre_row.take(nearest), columns - centre_column.take(nearest), drawn[2].take(nearest)


def _on_arm(down: np.ndarray, right: np.ndarray, lean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Length along the nearest of six arms, and distance from it, all in the frame of a crystal turned by `lean`."""
    angle = lean * np.float32(np.pi / 3)
    cosine, sine = np.cos(angle), np.sin(angle)
    x, y = np.abs(cosine * right + sine * down), np.abs(cosine * down - sine * right)
    along = np.maximum(x, np.float32(0.5) * x + np.float32(np.sqrt(0.75)) * y)
    return along, np.sqrt(np.maximum(x * x + y * y - along * along, 0))


# Edges and levels of an 8-bit map, as the drops of `spatter` need them.


def edges(levels: Levels, weak: float, strong: float) -> Bool[np.ndarray, "height width"]:
    """Canny's edges: crests of the Sobel gradient |dx| + |dy| above `weak` that touch one above `strong`.

    >>> edges(np.array([[0, 0, 9, 9]] * 3, np.uint8), 1.0, 2.0)[1].tolist()
    [False, True, False, False]
    """
    across, down = (ndimage.sobel(levels.astype(np.float32), axis=axis, mode="nearest") for axis in (1, 0))
    steep = np.abs(across) + np.abs(down)
    crest = _crest(steep, across, down) & (steep > weak)
    parts, count = ndimage.label(crest, structure=np.ones((3, 3)))
    kept = np.zeros(count + 1, bool)
    kept[parts[crest & (steep > strong)]] = True
    return kept[parts]


def _crest(steep: Map, across: Map, down: Map) -> Bool[np.ndarray, "height width"]:
    """Whether a pixel is steeper than both neighbours along its gradient, to the nearest of four directions."""
    height, width = steep.shape
    around = np.pad(steep, 1)

    def beside(rows: int, columns: int) -> np.ndarray:
        return around[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    flat = np.abs(down) < np.tan(np.pi / 8) * np.abs(across)
    upright = np.abs(down) > np.tan(3 * np.pi / 8) * np.abs(across)
    falling = across * down >= 0
    before = np.where(falling, beside(-1, -1), beside(-1, 1))
    after = np.where(falling, beside(1, 1), beside(1, -1))
    before = np.where(flat, beside(0, -1), np.where(upright, beside(-1, 0), before))
    after = np.where(flat, beside(0, 1), np.where(upright, beside(1, 0), after))
    return (steep > before) & (steep >= after)


def equalised(levels: Levels) -> Levels:
    """Levels spread so that each is as common as possible: the darkest becomes 0, the brightest 255.

    >>> equalised(np.array([[3, 3, 7, 9]], np.uint8)).tolist()
    [[0, 0, 128, 255]]
    """
    counts = np.bincount(levels.ravel(), minlength=256)
    darkest = int(levels.min())
    rest = levels.size - counts[darkest]
    if rest == 0:
        return levels
    upto = np.cumsum(counts) - counts[darkest]
    return np.rint(np.maximum(upto, 0) * (255 / rest)).astype(np.uint8)[levels]
