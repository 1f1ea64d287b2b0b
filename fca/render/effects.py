"""What is done to the finished picture: another style, and what a bad camera and a small file lose."""

from __future__ import annotations

import io

import numpy as np
from jaxtyping import Float
from PIL import Image

from fca.nouns import FcaError
from fca.render.noise import enlarged
from fca.render.scene import Scene, generator

STYLES = ("sketch", "mosaic", "negative", "poster")
GRAIN = 0.012  # standard deviation of a camera's noise, of full scale, whatever the light

Picture = Float[np.ndarray, "size size 3"]


def styled(scene: Scene, picture: Picture) -> Picture:
    """The picture mixed with itself in another style, by `style_amount`."""
    if scene.style == "none" or not scene.style_amount:
        return picture
    if scene.style not in STYLES:
        raise FcaError("style", scene.style, ", ".join(STYLES), "take one of these")
    other = {"poster": _poster, "sketch": _sketch, "mosaic": _mosaic, "negative": _negative}[scene.style](picture)
    found: np.ndarray = picture + np.float32(scene.style_amount) * (other - picture)
    return found


def degraded(scene: Scene, picture: Picture) -> Picture:
    """The picture after a loss `scene.quality` in [0, 1]: fewer sensor cells, noise, JPEG; and noise of dim light.

    Cells, noise and JPEG blocks are shares of the image's side, so the loss looks the same at any size.
    """
    size, loss = len(picture), scene.quality
    if scene.exposure < 0.6:  # else it is not seen
        picture = picture + GRAIN * _noise(scene, 64, size)
    if not loss:
        return picture
    cells = round(10 + 54 * (1 - loss) ** 1.5)
    small = np.asarray(_image(picture).resize((cells, cells), Image.Resampling.BOX), np.float32) / 255
    noisy = small + np.float32(0.45 * loss * loss) * _noise(scene, cells, cells)
    file = io.BytesIO()
    _image(noisy).save(file, "JPEG", quality=round(90 - 75 * loss))
    decoded = Image.open(file).convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(decoded, np.float32) / 255


def _noise(scene: Scene, cells: int, size: int) -> Picture:
    values = generator(scene.noise_key, "noise", cells).normal(size=(3, cells, cells)).astype(np.float32)
    return np.stack([enlarged(value, size, smooth=False) for value in values], axis=2)


def _image(picture: Picture) -> Image.Image:
    return Image.fromarray(to_bytes(picture))


def to_bytes(picture: Picture) -> np.ndarray:
    """Rounded to 0..255."""
    found: np.ndarray = np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    return found


def _poster(picture: Picture) -> Picture:
    """Three steps a colour, and dark outlines."""
    steps = np.round(np.clip(picture, 0, 1) * 2) / 2
    found: np.ndarray = steps * (1 - _edges(picture))[:, :, None]
    return found


def _sketch(picture: Picture) -> Picture:
    """Pencil lines on paper."""
    return np.repeat((0.95 - 0.85 * _edges(picture))[:, :, None], 3, axis=2)


def _edges(picture: Picture) -> Float[np.ndarray, "size size"]:
    """How steep the picture is: 0 flat, 1 an edge."""
    down, right = (np.zeros_like(picture) for _ in range(2))
    down[1:] = np.abs(np.diff(picture, axis=0))
    right[:, 1:] = np.abs(np.diff(picture, axis=1))
    found: np.ndarray = np.clip(np.maximum(down, right).max(axis=2) * 5 - 0.2, 0, 1)
    return found


def _mosaic(picture: Picture) -> Picture:
    """Fourteen tiles a side."""
    size = len(picture)
    tiles = _image(picture).resize((14, 14), Image.Resampling.BOX)
    return np.asarray(tiles.resize((size, size), Image.Resampling.NEAREST), np.float32) / 255


def _negative(picture: Picture) -> Picture:
    """Light and dark exchanged."""
    found: np.ndarray = 1 - np.clip(picture, 0, 1)
    return found
