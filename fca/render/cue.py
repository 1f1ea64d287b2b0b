"""Images whose background carries the cue of a class: the truth by which measures of spurious reliance are checked.

A cue is drawn from a key alone, without the object: the background of an image gives away nothing about the object but
whose cue it shows. No colour of the object depends on the background either, so that any object can be put on any
background, pixel by pixel, as the renderer would have drawn it.
"""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hsv_to_rgb
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

from fca.render.draw import backdrop, surface
from fca.render.levels import scene_of
from fca.render.march import march
from fca.render.objects import CLASSES
from fca.render.scene import Scene
from fca.types import FcaError, check_choice, generator

CUES = ("color", "texture", "object")
VERSION = "1"  # of the drawing of cues: another one whenever their pixels change
SHARE, MEASURED = 0.1, 40  # of the image that shows the object, at most; pixels a side where that is measured
CYCLES = (4.0, 9.0)  # of a grating, in the image's side
CONTRAST = 0.09  # standard deviation of a grating's luminance
BESIDE = 0.3  # from the image's centre to the co-object's, right or left and up or down, as a share of the side
SMALL = 0.2  # radius of the ball around the co-object, as a share of the side

Field = Float[np.ndarray, "size size"]
Image = UInt8[np.ndarray, "size size 3"]


class Cued(NamedTuple):
    """An image, which of its pixels show the object, and the same image without the object."""

    image: Image
    mask: Bool[np.ndarray, "size size"]
    background: Image


def co_objects(classes: Sequence[str]) -> dict[str, str]:
    """Class -> the object that stands beside its objects: one that is no class itself.

    Raises FcaError for more classes than there are other objects.

    >>> co_objects(["airplane", "bottle"])
    {'airplane': 'bear', 'bottle': 'boat'}
    """
    others = [name for name in CLASSES if name not in classes]
    if len(others) < len(classes):
        step = "take fewer classes, or another dataset.cue"
        raise FcaError("dataset.classes", len(classes), f"{len(CLASSES) // 2} or fewer with co-objects", step)
    return dict(zip(classes, others, strict=False))


def cued(scene: Scene, cue: str, whose: str, classes: Sequence[str], key: str, size: int) -> Cued:
    """The object of an easy scene, made smaller, on a background that carries a cue.

    whose: the class whose cue it is, one of `classes`.    key: names the background, and all that is random in it.
    size:  pixels a side.

    >>> image, mask, behind = cued(scene_of("mug", "view", "easy", 0, 0), "color", "car", ["mug", "car"], "a", 48)
    >>> bool((image[~mask] == behind[~mask]).all()), bool(0.05 < mask.mean() < 0.15)
    (True, True)
    """
    behind = background(cue, whose, classes, key, size)
    covered = len(march(scene, MEASURED).pixels) / MEASURED**2
    smaller = min(1.0, (SHARE / max(covered, 1e-6)) ** 0.5)
    scene = replace(scene, scale=scene.scale * smaller, blend=0.0)
    hits = march(scene, size)
    image, mask = behind.copy(), np.zeros((size, size), bool)
    flat = image.reshape(-1, 3)
    flat[hits.pixels] = _to_bytes(surface(scene, hits, np.zeros((len(hits.pixels), 3), np.float32)))
    mask.reshape(-1)[hits.pixels] = True
    return Cued(image, mask, behind)


def background(cue: str, whose: str, classes: Sequence[str], key: str, size: int) -> Image:
    """The cue of a class without an object.

    color:   clouds of a hue, one of len(classes) around the circle.
    texture: a grating of one of two frequencies and of evenly spaced orientations; its mean colour and the variance of
             its luminance do not depend on the class.
    object:  a small solid towards a corner (see co_objects), on clouds of any hue.
    Raises FcaError for another cue and for a class that is not among `classes`.
    """
    check_choice("cue", cue, CUES)
    check_choice("whose", whose, classes)
    random = generator("fca.render.cue", VERSION, key)
    place, hue, amount = classes.index(whose), random.random(), random.uniform(0.1, 0.45)
    saturation, (dark, light) = random.uniform(0.1, 0.4), random.uniform((0.35, 0.55), (0.5, 0.8)).tolist()
    if cue == "texture":
        middle = np.array(hsv_to_rgb(hue, saturation / 2, (dark + light) / 2), np.float32)
        return _to_bytes(middle + np.float32(CONTRAST) * _grating(place, len(classes), random, size)[:, :, None])
    if cue == "color":
        hue, saturation = (place + random.uniform(-0.25, 0.25)) / len(classes), 0.3 + saturation / 2
    near = (hue + random.uniform(-0.02, 0.02)) % 1
    colours = (hsv_to_rgb(hue % 1, saturation, dark), hsv_to_rgb(near, saturation, light))
    clouds = backdrop(Scene("", "", "", 0, 0, key, backdrop_amount=amount, backdrop_colors=colours), size).copy()
    if cue == "object":
        right, down = random.choice([-BESIDE, BESIDE], 2).tolist()
        solid = replace(_usual(co_objects(classes)[whose]), x=right, y=down, scale=SMALL)
        hits, flat = march(solid, size), clouds.reshape(-1, 3)
        flat[hits.pixels] = surface(solid, hits, flat[hits.pixels])
    return _to_bytes(clouds)


@lru_cache(maxsize=len(CLASSES))
def _usual(label: str) -> Scene:
    """A co-object always looks the same, or the objects themselves would be easier to learn."""
    return scene_of(label, "color", "easy", 0, 0)


def _grating(place: int, classes: int, random: np.random.Generator, size: int) -> Field:
    """A wave of mean 0 and standard deviation 1 over the image: class 2 k and 2 k + 1 share an orientation."""
    orientation = np.pi * (place // 2 + random.uniform(-0.15, 0.15)) / -(-classes // 2)
    cycles, phase = CYCLES[place % 2] * random.uniform(0.93, 1.07), random.uniform(0, 2 * np.pi)
    at = (np.arange(size) + 0.5) / size - 0.5
    along = at[None, :] * np.cos(orientation) + at[:, None] * np.sin(orientation)
    wave = np.sin(2 * np.pi * cycles * along + phase)
    return ((wave - wave.mean()) / wave.std()).astype(np.float32)


def _to_bytes(picture: Float[np.ndarray, "*pixels 3"]) -> UInt8[np.ndarray, "*pixels 3"]:
    return np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
