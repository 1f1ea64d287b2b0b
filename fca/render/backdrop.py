"""What is behind the object: a picture of two colours, or of many for clutter, with a set contrast."""

from __future__ import annotations

import colorsys
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw

from fca.nouns import FcaError
from fca.render.noise import Field, clouds, places
from fca.render.scene import Scene, generator

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
