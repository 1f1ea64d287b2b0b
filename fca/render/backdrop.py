"""What is behind the object: a picture of two colours, or of many for clutter, with a set contrast."""

from __future__ import annotations

import colorsys
import io
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image, ImageDraw

from fca.render.scene import Scene, generator
from fca.types import FcaError

# Random pictures that look the same at any size: small random grids, enlarged.


Field = Float[np.ndarray, "size size"]


def enlarged(grid: Float[np.ndarray, "rows columns"], size: int, smooth: bool = True) -> Field:
    """A grid at another size: bicubic, or each value as a block."""
    how = Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(grid.astype(np.float32)).resize((size, size), how))


@lru_cache(maxsize=4)  # a level is found by drawing the same picture again and again
def clouds(key: str, size: int, cells: int = 3, octaves: int = 4) -> Field:
    """Fractal value noise, 0.5 +- 0.22 or so: octaves of `cells`, 2 cells, ... a side, each half as strong."""
    random = generator(key, "clouds", cells)
    total = np.zeros((size, size), np.float32)
    for octave in range(octaves):
        grid = random.random((cells << octave, cells << octave), np.float32)
        total += enlarged(grid, size) * np.float32(0.5**octave)
    return total / np.float32(2 - 0.5 ** (octaves - 1))


def places(size: int) -> tuple[Field, Field]:
    """Of every pixel: its centre, right and down from the image's, as shares of the side."""
    at = ((np.arange(size) + 0.5) / size - 0.5).astype(np.float32)
    return np.broadcast_to(at, (size, size)), np.broadcast_to(at[:, None], (size, size))


BACKDROPS = ("plain", "clouds", "stripes", "checks", "clutter")


def backdrop(scene: Scene, size: int) -> Float[np.ndarray, "size size 3"]:
    """RGB in [0, 1]: half the distance between the two colours either way at `backdrop_amount` 1."""
    first, second = (np.array(one, np.float32) for one in scene.backdrop_colors)
    middle, amount = (first + second) / 2, np.float32(scene.backdrop_amount)
    if scene.backdrop == "clutter":
        away = _clutter(scene.noise_key, size) - middle
        return np.clip(middle + amount * away, 0, 1)
    wave = _pattern(scene, size)[:, :, None]
    return np.clip(middle + amount * wave * (second - first), 0, 1)


def _pattern(scene: Scene, size: int) -> Field:
    """Between -1 and 1."""
    right, down = places(size)
    if scene.backdrop == "plain":
        return -2 * down
    if scene.backdrop == "clouds":
        return np.clip((clouds(scene.noise_key, size) - 0.5) * 4, -1, 1)
    random = generator(scene.noise_key, "pattern")
    turn, cells = random.uniform(0, np.pi), random.uniform(5, 9)
    a, b = np.float32(np.cos(turn) * cells), np.float32(np.sin(turn) * cells)
    along, across = np.floor((right * a + down * b) * 2), np.floor((down * a - right * b) * 2)
    if scene.backdrop == "stripes":
        return (along % 2) * 2 - 1
    if scene.backdrop == "checks":
        return ((along + across) % 2) * 2 - 1
    raise FcaError("backdrop", scene.backdrop, ", ".join(BACKDROPS), "take one of these")


@lru_cache(maxsize=2)  # a level is found by drawing the same clutter again and again
def _clutter(key: str, size: int) -> Float[np.ndarray, "size size 3"]:
    """Sixty discs, bars and triangles in any colours, the large ones behind."""
    random = generator(key, "clutter")
    image = Image.new("RGB", (size, size), (128, 128, 128))
    pen = ImageDraw.Draw(image)
    for radius in np.sort(random.uniform(0.04, 0.3, 60))[::-1]:
        hue, saturation, value, kind, turn = random.random(5)
        rgb = colorsys.hsv_to_rgb(hue, 0.3 + 0.6 * saturation, 0.25 + 0.7 * value)
        centre = random.random(2)
        sides = 3 if kind < 0.4 else 4 if kind < 0.8 else 24
        angles = 2 * np.pi * (np.arange(sides) / sides + turn)
        flat = 0.35 if sides == 4 else 1.0  # bars
        x, y = radius * np.cos(angles), flat * radius * np.sin(angles)
        cos, sin = np.cos(2 * np.pi * kind), np.sin(2 * np.pi * kind)
        corners = np.stack([centre[0] + cos * x - sin * y, centre[1] + sin * x + cos * y], axis=1) * size
        pen.polygon([(float(a), float(b)) for a, b in corners], fill=tuple(round(255 * c) for c in rgb))
    return np.asarray(image, np.float32) / 255


# What stands before the object. A field over the image; where it is below a limit, it covers.


COVERS = ("wall", "slats", "leaves", "blocks")


def cover_field(scene: Scene, size: int) -> Field:
    """Grows away from where the cover begins, so a higher limit covers all that a lower one does, and more."""
    right, down = places(size)
    random = generator(scene.noise_key, "cover")
    turn = random.uniform(0, 2 * np.pi)
    a, b = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    along = right * a + down * b
    if scene.cover == "wall":
        return along
    if scene.cover == "slats":
        return np.abs((along * np.float32(random.uniform(4.0, 6.0))) % 1 - np.float32(0.5))
    if scene.cover == "leaves":
        return clouds(scene.noise_key + "/leaves", size, cells=9, octaves=2)
    if scene.cover == "blocks":
        grid = generator(scene.noise_key, "blocks").random((8, 8), np.float32)
        return enlarged(grid, size, smooth=False) + np.float32(0.02) * along
    raise FcaError("cover", scene.cover, ", ".join(COVERS), "take one of these")


def cover(scene: Scene, size: int) -> tuple[Bool[np.ndarray, "size size"], Float[np.ndarray, "size size 3"]]:
    """Where it covers, and its colours there (anything elsewhere)."""
    if scene.cover == "none":
        return np.zeros((size, size), bool), np.zeros((size, size, 3), np.float32)
    where = cover_field(scene, size) < scene.cover_limit
    grain = 0.85 + 0.3 * clouds(scene.noise_key + "/grain", size, cells=10, octaves=2)
    colours = np.array(scene.cover_color, np.float32) * grain[:, :, None].astype(np.float32)
    return where, np.clip(colours, 0, 1)


# What is done to the finished picture: another style, and what a bad camera and a small file lose.


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
