"""Weather in front of the camera. Images are float32 in [0, 1]; the caller clips."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, UInt8
from scipy import ndimage

from fca.shifts.constants import Number
from fca.shifts.sampling import enlarged, plasma, smeared

# Ice on a window pane, drawn from random numbers alone: six-armed crystals with barbs on rough ice.


CELL = 72  # mean distance of two crystals, in pixels of an unshrunk texture
BARB = 7.0  # distance of two barbs of an arm
BENT = 30  # by how many pixels straight lines are bent
MEAN, SPREAD = 0.64, 0.12  # of the six photographs that the published frost lays over images


def ice(height: int, width: int, shrink: Number, *, rng: np.random.Generator) -> Float[np.ndarray, "height width"]:
    """How bright the ice is at every pixel, 0 to 1, about 0.64 in the mean.

    shrink: pixels per pixel of the unshrunk texture. A pixel belongs to its nearest crystal (one in every cell of a
    grid, anywhere within it, at any angle). In the frame of the nearest of its six arms, the arm is the axis, and barbs
    leave it at 60 degrees.

    >>> ice(16, 16, 0.2, rng=np.random.default_rng(0)).shape
    (16, 16)
    """
    rough = plasma(height, width, 1.3, rng=rng)
    bend = plasma(height, width, 1.9, rng=rng)
    rows = np.arange(height, dtype=np.float32)[:, None] / np.float32(shrink) + BENT * bend
    columns = np.arange(width, dtype=np.float32) / np.float32(shrink) + BENT * (bend[::-1, ::-1] + 0.3 * rough)
    down, right, lean = _to_nearest(rows, columns, rng)
    along, beside = _on_arm(down, right, lean)
    barb = (along - beside * np.float32(0.577)) * np.float32(1 / BARB)
    barb = np.abs(barb - np.floor(barb) - np.float32(0.5)) * 2
    feather = barb * barb * np.exp(beside * np.float32(-1 / 14)) + np.exp(np.square(beside) * np.float32(-0.44))
    bright: np.ndarray = (feather * (np.float32(0.3) + bend)) * np.float32(0.6) + rough
    bright -= bright.mean()
    bright *= np.float32(SPREAD) / max(float(bright.std()), 1e-6)
    bright += np.float32(MEAN)
    return bright.clip(0, 1)


def _to_nearest(
    rows: np.ndarray, columns: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def edges(levels: UInt8[np.ndarray, "height width"], weak: float, strong: float) -> Bool[np.ndarray, "height width"]:
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
    found: np.ndarray = kept[parts]
    return found


def _crest(
    steep: Float[np.ndarray, "height width"],
    across: Float[np.ndarray, "height width"],
    down: Float[np.ndarray, "height width"],
) -> Bool[np.ndarray, "height width"]:
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


def equalised(levels: UInt8[np.ndarray, "height width"]) -> UInt8[np.ndarray, "height width"]:
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
    table: np.ndarray = np.rint(np.maximum(upto, 0) * (255 / rest)).astype(np.uint8)
    spread: np.ndarray = table[levels]
    return spread


Image = Float[np.ndarray, "height width 3"]
Map = Float[np.ndarray, "height width"]

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
FROST = np.array([0.89, 1.02, 1.09], np.float32)  # ice is bluish
WATER = np.array([175, 238, 238], np.float32) / 255  # pale turquoise
MUD = np.array([63, 42, 20], np.float32) / 255


def snow(
    image: Image,
    mean: Number,
    spread: Number,
    size: Number,
    threshold: Number,
    radius: Number,
    blur: Number,
    keep: Number,
    *,
    rng: np.random.Generator,
) -> Image:
    """Falling flakes before a whitened scene.

    Flakes are normal noise (mean, spread), enlarged by `size`, dark below `threshold`, smeared downwards (radius, blur)
    at an angle between -135 and -45 degrees; they are added twice, once turned by 180 degrees. The scene becomes
    keep x + (1 - keep) max(x, 1.5 grey + 0.5).

    >>> snow(np.zeros((9, 9, 3), np.float32), 0.1, 0.2, 1, 0.6, 8, 3, 0.8, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    height, width = image.shape[:2]
    small = (int(np.ceil(height / size)), int(np.ceil(width / size)), 1)
    flakes = rng.standard_normal(small, dtype=np.float32) * np.float32(spread) + np.float32(mean)
    flakes = enlarged(flakes, size, height, width)
    flakes[flakes < threshold] = 0
    flakes = smeared(np.minimum(flakes, 1), radius, blur, rng.uniform(-135, -45))
    grey = (image @ LUMA)[..., None]
    scene: np.ndarray = np.maximum(image, grey * np.float32(1.5) + np.float32(0.5)) * np.float32(1 - keep)
    scene += image * np.float32(keep)
    scene += flakes + flakes[::-1, ::-1]
    return scene


def frost(image: Image, keep: Number, cover: Number, shrink: Number, *, rng: np.random.Generator) -> Image:
    """Ice on the lens: keep x + cover ice, with the published `keep` and `cover` but an ice of our own.

    NOT comparable to the published frost, which lays six photographs of ice over the image. Ours is drawn anew for
    every image (see `ice`), bluish, and of the photographs' mean brightness (0.64) and spread.

    >>> frost(np.zeros((9, 9, 3), np.float32), 1, 0.2, 0.2, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    frozen: np.ndarray = ice(image.shape[0], image.shape[1], shrink, rng=rng)[..., None] * (FROST * np.float32(cover))
    frozen += image * np.float32(keep)
    return frozen


def fog(image: Image, thickness: Number, decay: Number, *, rng: np.random.Generator) -> Image:
    """A cloudy layer of light, scaled back so that the brightest stays: (x + t cloud) max(x) / (max(x) + t).

    >>> float(fog(np.zeros((9, 9, 3), np.float32), 0.2, 3, rng=np.random.default_rng(0)).max())
    0.0
    """
    height, width = image.shape[:2]
    bright = float(image.max())
    cloud = plasma(height, width, decay, rng=rng) * np.float32(thickness)
    foggy = image + cloud[..., None]
    foggy *= np.float32(bright / (bright + thickness))
    return foggy


def spatter(
    image: Image,
    mean: Number,
    spread: Number,
    smooth: Number,
    threshold: Number,
    strength: Number,
    mud: Number,
    *,
    rng: np.random.Generator,
) -> Image:
    """Drops on the lens: where smooth normal noise (mean, spread, smooth) exceeds `threshold`; of water, or of mud.

    Where no drop falls, the image stays as it is.

    >>> spatter(np.ones((9, 9, 3), np.float32), 0.6, 0.1, 0.7, 0.7, 0.5, 0, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    noise = rng.standard_normal(image.shape[:2], dtype=np.float32) * np.float32(spread) + np.float32(mean)
    liquid: np.ndarray = ndimage.gaussian_filter(noise, smooth, mode="nearest", truncate=4)
    liquid[liquid < threshold] = 0
    if mud:
        cover: np.ndarray = ndimage.gaussian_filter((liquid > threshold).astype(np.float32), strength, mode="nearest")
        cover[cover < 0.8] = 0
        muddy: np.ndarray = image * (1 - cover[..., None]) + MUD * cover[..., None]
        return muddy
    drops = _drops(np.minimum(liquid * 255, 255).astype(np.uint8))
    return image + drops[..., None] * (WATER * np.float32(strength))


def _drops(liquid: np.ndarray) -> Map:
    """How much light the water throws at each pixel, 0 to 1: lit from one side, brighter away from its edges."""
    found = edges(liquid, 50.0, 150.0)
    deep = ndimage.distance_transform_edt(~found) if found.any() else np.full(liquid.shape, 20.0)
    deep = ndimage.uniform_filter(np.minimum(deep, 20).astype(np.float32), 3, mode="mirror")
    relief = equalised(deep.astype(np.uint8)).astype(np.float32)
    lit = ndimage.correlate(relief, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32), mode="mirror")
    lit = ndimage.uniform_filter(np.clip(lit, 0, 255), 3, mode="mirror")
    light: np.ndarray = lit * liquid
    brightest = light.max()
    if brightest > 0:
        light /= brightest
    return light
