"""Image operations that several corruptions share, and the random maps of weather.

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
    """float32 -> bytes: clipped to [0, 1], then truncated, not rounded, as the published images were.

    A thousandth of a level is added first, so that a whole level does not fall to the next lower one by float32's
    rounding.

    >>> to_bytes(np.array([[[-0.1, 0.999, 1.2]]], np.float32)).tolist()
    [[[0, 254, 255]]]
    """
    levels = image * np.float32(255)
    levels += np.float32(1e-3)
    return np.clip(levels, 0, 255, out=levels).astype(np.uint8)


# Reading an image between and beyond its pixels: enlarging, smearing, warping.


def enlarged(image: Float[np.ndarray, "_ _ channels"], factor: Number, height: int, width: int) -> Channels:
    """The middle (height x width pixels) of an enlargement of the image by `factor`, linear between pixels.

    The corner pixels of the image become the corner pixels of the whole enlargement.

    >>> enlarged(np.array([[[0.0], [1.0]]] * 2, np.float32), 2, 2, 3)[0, :, 0].round(2)
    array([0.  , 0.33, 0.67], dtype=float32)
    """
    rows, row_fraction = _source_pixels(image.shape[0], factor, height)
    columns, column_fraction = _source_pixels(image.shape[1], factor, width)
    tall = _lerp(image[rows], image[rows + 1], row_fraction[:, None, None])
    left = np.take(tall, columns, axis=1)
    right = np.take(tall, columns + 1, axis=1)
    return _lerp(left, right, column_fraction[:, None])


def _source_pixels(length: int, factor: Number, output_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the output pixels of an enlargement lie between the source pixels, along one axis.

    Returns for each output pixel the number of the source pixel before it, and how far it is from there to the next
    source pixel, 0 to 1. The output is the middle of the whole enlargement.

    length, output_length: number of source and output pixels.
    factor:                of the enlargement.
    """
    enlarged_length = round(length * factor)
    first = (enlarged_length - output_length) // 2
    positions = np.arange(first, first + output_length) * ((length - 1) / (enlarged_length - 1))
    pixel_before = np.minimum(positions.astype(np.int64), length - 2)  # the last pixel has none after it
    return pixel_before, (positions - pixel_before).astype(np.float32)


def _lerp(start: np.ndarray, end: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    """start + fraction (end - start), in the memory of `end`."""
    end -= start
    end *= fraction
    end += start
    return end


def smeared(image: Channels, radius: Number, spread: Number, angle: float) -> Channels:
    """Blur by motion in one direction: every pixel becomes a weighted mean of pixels in that direction.

        result(p) = sum over i of w_i image(p + i d),   i = 0 .. 2 radius
        w_i proportional to exp(-i^2 / (2 spread^2)), with the sum 1

    The direction d is a step of one pixel; the offsets i d are rounded to whole pixels. Weights up to 1e-6 are left out
    to save time. Beyond the edge of the image its last pixel is repeated.

    angle: of the direction d, in degrees; 0 points to the right, 90 downwards.

    >>> smeared(np.array([[[0.0], [0.0], [1.0]]], np.float32), 1, 1.0, 0.0)[0, :, 0].round(2)
    array([0.08, 0.43, 1.  ], dtype=float32)
    """
    steps = np.arange(2 * int(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * spread**2))
    weights /= weights.sum()
    is_used = weights > 1e-6
    steps = steps[is_used]
    weights = weights[is_used].astype(np.float32)

    # The offsets i d, rounded: ceil(x - 0.5) rounds halves down, as the published generator does.
    right = np.ceil(steps * np.cos(np.deg2rad(angle)) - 0.5).astype(int)
    down = np.ceil(steps * np.sin(np.deg2rad(angle)) - 0.5).astype(int)

    # Padding by the largest offset in each direction. Offset 0 is among the offsets, so no padding is negative.
    top = -down.min()
    left = -right.min()
    padded = np.pad(image, ((top, down.max()), (left, right.max()), (0, 0)), "edge")

    height, width = image.shape[:2]
    total = np.zeros(image.shape, np.float32)
    weighted = np.empty_like(total)  # one buffer for all steps
    # The image moved by an offset begins in `padded` at this row and column.
    for row, column, weight in zip(top + down, left + right, weights, strict=True):
        np.multiply(padded[row : row + height, column : column + width], weight, out=weighted)
        total += weighted
    return total


def warped(image: Image, rows: Map, columns: Map, mode: str) -> Image:
    """The image whose pixels are read from the given positions of `image`, with linear interpolation between pixels.

    rows, columns: for each pixel of the result, the position in `image` (in pixels) that its colour is read from.
    mode: how the image continues beyond its edge, by scipy's names: reflect (c b a | a b c | c b a) or mirror
          (c b | a b c | b a).

    >>> image = np.arange(4, dtype=np.float32)[None, :, None].repeat(3, 2).repeat(2, 0)
    >>> warped(image, np.zeros((2, 4)), np.arange(4) + np.full((2, 4), 0.5), "reflect")[0, :, 0].tolist()
    [0.5, 1.5, 2.5, 3.0]
    """
    height, width = image.shape[:2]
    above = np.floor(rows).astype(np.int64)
    left = np.floor(columns).astype(np.int64)
    down_fraction = (rows - above).astype(np.float32).reshape(-1, 1)
    right_fraction = (columns - left).astype(np.float32).reshape(-1, 1)

    # positions of the four neighbours in the flattened image
    upper_row = (_folded(above, height, mode) * width).ravel()
    lower_row = (_folded(above + 1, height, mode) * width).ravel()
    left_column = _folded(left, width, mode).ravel()
    right_column = _folded(left + 1, width, mode).ravel()

    # linear between left and right, then between upper and lower
    pixels = image.reshape(-1, 3)
    upper_left = pixels.take(upper_row + left_column, axis=0)
    upper_right = pixels.take(upper_row + right_column, axis=0)
    upper = _lerp(upper_left, upper_right, right_fraction)
    lower_left = pixels.take(lower_row + left_column, axis=0)
    lower_right = pixels.take(lower_row + right_column, axis=0)
    lower = _lerp(lower_left, lower_right, right_fraction)
    return _lerp(upper, lower, down_fraction).reshape(image.shape)


def _folded(index: Indices, length: int, mode: str) -> Indices:
    """Indices of rows (or columns), where every index outside the image is replaced by the index of its mirror image.

    length: number of rows (or columns) of the image.
    mode:   `reflect` mirrors at the outer edge of the first and last pixel, so the pattern repeats after 2 length
            pixels. `mirror` mirrors at the centre of these pixels, so it repeats after 2 length - 2.
    """
    if mode == "reflect":
        period = 2 * length
        mirror_image_of_0 = period - 1
    else:
        period = 2 * length - 2
        mirror_image_of_0 = period
    index = index % period
    return np.minimum(index, mirror_image_of_0 - index)


# Random maps: clouds, smooth wobble, ice.


def plasma(height: int, width: int, decay: Number, *, rng: Rng) -> Map:
    """A cloudy height map in [0, 1] by midpoint displacement on a torus (the diamond-square algorithm).

    The map is computed on a square whose side is the smallest power of two that is not below height and width. It is
    scaled to [0, 1] there and then cropped to height x width.

    decay: from each scale to the next finer one, the random displacement is divided by decay²; with a decay of 1 or
           less it stays the same. A small decay gives a rough map.

    >>> plasma(8, 5, 2.0, rng=np.random.default_rng(0)).shape
    (8, 5)
    """
    shrinkage = decay**2 if decay > 1 else 1
    heights = np.zeros((1, 1), np.float32)
    amplitude = 1.0
    while len(heights) < max(height, width):
        heights = _finer(heights, amplitude, rng)
        amplitude /= shrinkage
    heights -= heights.min()
    heights /= heights.max()
    return heights[:height, :width]


def _finer(heights: np.ndarray, amplitude: float, rng: Rng) -> np.ndarray:
    """A square height map at twice its resolution: each new point is the mean of its four neighbours plus noise.

    The map is a torus: the neighbours of its last row and column are in the first row and column.

    amplitude: the noise is uniform between -amplitude and amplitude.
    """
    side = len(heights)
    noise = rng.random((3, side, side), dtype=np.float32) * np.float32(2 * amplitude) - np.float32(amplitude)
    below = np.roll(heights, -1, axis=0)
    right = np.roll(heights, -1, axis=1)
    below_right = np.roll(below, -1, axis=1)

    # Each old point is the upper left corner of a square. New points are the centre of the square, and the middles of
    # its upper and left sides, which are between two corners and two centres.
    centres = (heights + below + right + below_right) / 4 + noise[0]
    upper_middles = (heights + right + centres + np.roll(centres, 1, axis=0)) / 4 + noise[1]
    left_middles = (heights + below + centres + np.roll(centres, 1, axis=1)) / 4 + noise[2]

    finer = np.empty((2 * side, 2 * side), np.float32)
    finer[::2, ::2] = heights
    finer[1::2, 1::2] = centres
    finer[::2, 1::2] = upper_middles
    finer[1::2, ::2] = left_middles
    return finer


def wobble(height: int, width: int, reach: Number, spread: Number, *, rng: Rng) -> Float[np.ndarray, "2 height width"]:
    """Two smooth random maps, by which images are displaced: uniform noise in -1..1, blurred and multiplied by `reach`.

    spread: the standard deviation of the Gaussian that blurs the noise, in pixels; it is cut at 3 spreads.

    The blur mirrors the maps at their edges. With this border a symmetric filter is a product in the cosine transform,
    so a spread of hundreds of pixels costs as much as a spread of two.

    >>> wobble(4, 6, 2.0, 50.0, rng=np.random.default_rng(0)).std(axis=(1, 2)).round(2).tolist()
    [0.0, 0.0]
    """
    noise = rng.random((2, height, width), dtype=np.float32) * np.float32(2) - np.float32(1)
    spectrum = fft.dctn(noise, axes=(1, 2))
    # The blur multiplies each frequency along an axis by a factor.
    spectrum *= _transfer(height, spread)[:, None]
    spectrum *= _transfer(width, spread)
    return fft.idctn(spectrum, axes=(1, 2)) * np.float32(reach)


@lru_cache(maxsize=64)
def _transfer(length: int, spread: Number) -> Float[np.ndarray, " length"]:
    """The factor by which the blur with a Gaussian, cut at 3 spreads, multiplies each cosine of a mirrored signal.

        factor[k] = (1 + 2 sum over s of w[s] cos(pi k s / length)) / (1 + 2 sum over s of w[s])
        w[s] = exp(-s^2 / (2 spread^2)),   s = 1 .. 3 spread

    length: of the signal, in pixels; also the number of its cosines, k = 0 .. length - 1.
    spread: standard deviation of the Gaussian, in pixels.
    """
    steps = np.arange(1, int(3 * spread + 0.5) + 1)
    weights = np.exp(-(steps**2) / (2 * spread**2))
    cosines = np.cos(np.pi / length * np.outer(np.arange(length), steps))  # frequencies x steps
    return ((1 + 2 * cosines @ weights) / (1 + 2 * weights.sum())).astype(np.float32)


# Lengths of ice crystals, in pixels of an unshrunk texture.
CELL = 72  # side of a cell of the grid, each with one crystal
BARB = 7.0  # distance of two barbs of an arm
BEND = 30  # largest displacement of straight lines
MEAN, SPREAD = 0.64, 0.12  # brightness of the six photographs that the published frost lays over images


def ice(height: int, width: int, shrink: Number, *, rng: Rng) -> Map:
    """The brightness of ice on a window pane at every pixel, between 0 and 1 and about 0.64 on average.

    The ice is drawn from random numbers alone: crystals with six arms on rough ice. Each cell of a grid has one
    crystal, at a random position and angle. A pixel shows the nearest arm of its nearest crystal, with barbs that leave
    the arm at 60 degrees:

        brightness = 0.6 (0.3 + bend) feather + rough
        feather    = barb^2 exp(-beside / 14) + exp(-0.44 beside^2)

    beside is the distance of the pixel from the arm. barb is a wave along the arm, from 0 to 1. rough and bend are
    cloudy maps. The brightness is then scaled to the mean and spread of the photographs that the published corruption
    uses (MEAN, SPREAD). The ice has nothing else in common with them, so the other constants are free choices.

    shrink: factor on the size of the texture; 0.2 draws everything at a fifth of its full size.

    >>> ice(16, 16, 0.2, rng=np.random.default_rng(0)).shape
    (16, 16)
    """
    rough = plasma(height, width, 1.3, rng=rng)
    bend = plasma(height, width, 1.9, rng=rng)
    # Each pixel's position in the full-size texture. The positions are displaced by smooth maps, so that straight arms
    # look bent. The same map, turned by 180 degrees, displaces the other axis.
    rows = np.arange(height, dtype=np.float32)[:, None] / np.float32(shrink) + BEND * bend
    columns = np.arange(width, dtype=np.float32) / np.float32(shrink) + BEND * (bend[::-1, ::-1] + 0.3 * rough)
    down, right, turn = _from_nearest_crystal(rows, columns, rng)
    along, beside = _on_arm(down, right, turn)

    # Barbs are a triangle wave with the period BARB along the arm. Beside the arm the wave is shifted by tan 30 degrees
    # (0.577) per pixel, so that barbs leave the arm at 60 degrees. The arm itself is the second summand of `feather`.
    phase = (along - beside * np.float32(0.577)) * np.float32(1 / BARB)
    barb = np.abs(phase - np.floor(phase) - np.float32(0.5)) * 2
    feather = barb * barb * np.exp(beside * np.float32(-1 / 14)) + np.exp(np.square(beside) * np.float32(-0.44))

    brightness = (feather * (np.float32(0.3) + bend)) * np.float32(0.6) + rough
    brightness -= brightness.mean()
    brightness *= np.float32(SPREAD) / max(float(brightness.std()), 1e-6)  # no division by 0 if all pixels are equal
    brightness += np.float32(MEAN)
    return brightness.clip(0, 1)


def _from_nearest_crystal(rows: np.ndarray, columns: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place ice crystals at random, and describe for every position its nearest crystal.

    The three results have one value per position: how far it is below that crystal, how far it is to its right, and the
    turn of the crystal. The turn is random between 0 and 1; 1 is a turn by 60 degrees, after which a crystal with six
    arms looks the same.

    rows, columns: of the positions, in pixels of the full-size texture, as are the distances.

    The texture is a grid of cells of CELL x CELL pixels, each with one crystal at a random place. The crystal that is
    nearest to a position is looked for in the position's own cell and in the eight cells around it. For positions at
    the border of the texture, the grid has a frame of further cells.
    """
    # The cell of each position, counted without the frame. The grid has one more cell on each side than the positions
    # need.
    cell_row = (rows * np.float32(1 / CELL)).astype(np.intp)
    cell_column = (columns * np.float32(1 / CELL)).astype(np.intp)
    n_rows = int(cell_row.max()) + 3
    n_columns = int(cell_column.max()) + 3

    # For each cell: the place of its crystal in it (0 to 1 along each axis), and the crystal's turn.
    random = rng.random((3, n_rows * n_columns), dtype=np.float32)
    row_in_cell = random[0].reshape(n_rows, n_columns)
    column_in_cell = random[1].reshape(n_rows, n_columns)
    turn = random[2]

    # The crystals' positions in the texture, flattened row by row. The frame's cells above and to the left are at -1.
    crystal_row = ((row_in_cell + np.arange(-1, n_rows - 1)[:, None]) * CELL).astype(np.float32).ravel()
    crystal_column = ((column_in_cell + np.arange(-1, n_columns - 1)) * CELL).astype(np.float32).ravel()

    # Compare the crystals of the nine cells around each position, and keep the number of the nearest one so far. The
    # position's own cell is in row `cell_row` of the grid without the frame, so in row `cell_row + 1` with it. The nine
    # cells begin one row above that, in row `cell_row`; columns likewise.
    upper_left = cell_row * n_columns + cell_column
    nearest = upper_left.copy()
    least = np.full(upper_left.shape, np.inf, np.float32)  # squared distance to `nearest`
    for cells_down in range(3):
        for cells_right in range(3):
            candidate = upper_left + (cells_down * n_columns + cells_right)
            squared_distance = np.square(rows - crystal_row.take(candidate))
            squared_distance += np.square(columns - crystal_column.take(candidate))
            np.copyto(nearest, candidate, where=squared_distance < least)
            np.minimum(least, squared_distance, out=least)
    return rows - crystal_row.take(nearest), columns - crystal_column.take(nearest), turn.take(nearest)


def _on_arm(down: np.ndarray, right: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For positions relative to a crystal with six arms: how far along and beside its nearest arm they are.

    down, right: how far below the crystal and to its right the positions are.
    turn:        by how much the crystal is turned, 0 to 1; 1 is 60 degrees.
    """
    # The positions in the crystal's own frame, in which arms are at 0, 60, 120 ... degrees.
    angle = turn * np.float32(np.pi / 3)
    cosine = np.cos(angle)
    sine = np.sin(angle)
    x = np.abs(cosine * right + sine * down)
    y = np.abs(cosine * down - sine * right)

    # The arms are symmetric to both axes, so absolute values suffice. In this quadrant the nearest arm is at 0 or at 60
    # degrees: it is the one on which the projection is longer.
    along = np.maximum(x, np.float32(0.5) * x + np.float32(np.sqrt(0.75)) * y)
    beside = np.sqrt(np.maximum(x * x + y * y - along * along, 0))
    return along, beside


# Edges and levels of an 8-bit map, as the drops of `spatter` need them.


def edges(levels: Levels, weak: float, strong: float) -> Bool[np.ndarray, "height width"]:
    """Whether each pixel is on an edge, by Canny's method.

    The steepness of a pixel is |dx| + |dy| of its Sobel gradient. Edge pixels are steeper than `weak`, and steeper than
    both neighbours in the direction of the gradient (a crest). Edge pixels that touch each other form a component; a
    component counts only if at least one of its pixels is steeper than `strong`.

    levels: grey levels, 0 to 255.

    >>> edges(np.array([[0, 0, 9, 9]] * 3, np.uint8), 1.0, 2.0)[1].tolist()
    [False, True, False, False]
    """
    float_levels = levels.astype(np.float32)
    dx = ndimage.sobel(float_levels, axis=1, mode="nearest")
    dy = ndimage.sobel(float_levels, axis=0, mode="nearest")
    steepness = np.abs(dx) + np.abs(dy)
    is_weak = _is_crest(steepness, dx, dy) & (steepness > weak)

    # Number the components, of pixels that touch at a side or corner, from 1 on; 0 is the background.
    component_of_pixel, n_components = ndimage.label(is_weak, structure=np.ones((3, 3)))
    has_strong_pixel = np.zeros(n_components + 1, bool)
    has_strong_pixel[component_of_pixel[is_weak & (steepness > strong)]] = True
    return has_strong_pixel[component_of_pixel]


def _is_crest(steepness: Map, dx: Map, dy: Map) -> Bool[np.ndarray, "height width"]:
    """Whether each pixel is a crest: steeper than both of its neighbours in the direction of its gradient.

    Of two equally steep neighbours only the first one (by rows, then columns) counts. The direction of the gradient is
    rounded to a multiple of 45 degrees, so the two neighbours are above and below, left and right, or on a diagonal.

    steepness: |dx| + |dy|.
    dx, dy:    the Sobel gradient to the right and downwards.
    """
    height, width = steepness.shape
    padded = np.pad(steepness, 1)  # a frame of zeros: beyond the image nothing is steep

    def neighbour(rows: int, columns: int) -> np.ndarray:
        """The steepness of the neighbour that is `rows` below and `columns` to the right of each pixel."""
        return padded[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    # `before` and `after` are the steepness of the two neighbours, the first one by rows and columns being `before`.
    # They are on a diagonal, unless the lines below replace them because the gradient is nearer to an axis.
    is_falling = dx * dy >= 0  # both signs are equal: the diagonal from the upper left to the lower right
    before = np.where(is_falling, neighbour(-1, -1), neighbour(-1, 1))
    after = np.where(is_falling, neighbour(1, 1), neighbour(1, -1))

    # The gradient is within 22.5 degrees of the vertical axis: halfway to the diagonal.
    is_vertical = np.abs(dy) > np.tan(3 * np.pi / 8) * np.abs(dx)
    before = np.where(is_vertical, neighbour(-1, 0), before)
    after = np.where(is_vertical, neighbour(1, 0), after)

    # The gradient is within 22.5 degrees of the horizontal axis.
    is_horizontal = np.abs(dy) < np.tan(np.pi / 8) * np.abs(dx)
    before = np.where(is_horizontal, neighbour(0, -1), before)
    after = np.where(is_horizontal, neighbour(0, 1), after)
    return (steepness > before) & (steepness >= after)


def equalised(levels: Levels) -> Levels:
    """Histogram equalisation, so that all levels from 0 to 255 are used about equally often.

    Pixels of the darkest level become 0. Among the other pixels, a level becomes 255 times the share of pixels that
    have this level or a darker one. An image of a single level is returned unchanged.

    >>> equalised(np.array([[3, 3, 7, 9]], np.uint8)).tolist()
    [[0, 0, 128, 255]]
    """
    counts = np.bincount(levels.ravel(), minlength=256)
    n_darkest = counts[int(levels.min())]
    n_brighter = levels.size - n_darkest
    if n_brighter == 0:
        return levels

    n_up_to = np.maximum(np.cumsum(counts) - n_darkest, 0)
    new_level = np.rint(n_up_to * (255 / n_brighter)).astype(np.uint8)
    return new_level[levels]
