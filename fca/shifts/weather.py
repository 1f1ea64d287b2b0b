"""Weather in front of the camera. Images are float32 in [0, 1]; the caller clips."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from fca.shifts.constants import Number
from fca.shifts.edges import edges, equalised
from fca.shifts.fields import plasma
from fca.shifts.ice import ice
from fca.shifts.sampling import enlarged, smeared

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
