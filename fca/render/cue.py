"""Images whose background carries the cue of a class, so that measures of spurious reliance can be checked.

A background depends only on its key and its cue, not on the object, so it reveals nothing about the object but whose
cue it shows. No colour of the object depends on the background either: any object can be put on any background, pixel
by pixel, as the renderer would have drawn it.
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
from fca.types import FcaError, check_choice, keyed_rng

CUES = ("color", "texture", "object")
VERSION = "1"  # of the drawing of cues: changes whenever their pixels change
LARGEST_SHARE = 0.1  # of the image that may show the object
PROBE = 40  # pixels per side of the image in which that share is measured
CYCLES = (4.0, 9.0)  # of a grating, over the image's side
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
    """Class -> the object that appears beside its objects, which is not a class itself.

    Raises FcaError for more classes than there are other objects.

    >>> co_objects(["airplane", "bottle"])
    {'airplane': 'bear', 'bottle': 'boat'}
    """
    free_objects = [name for name in CLASSES if name not in classes]
    if len(free_objects) < len(classes):
        step = "take fewer classes, or another dataset.cue"
        raise FcaError("dataset.classes", len(classes), f"{len(CLASSES) // 2} or fewer with co-objects", step)
    return dict(zip(classes, free_objects, strict=False))


def cued(scene: Scene, cue: str, class_name: str, classes: Sequence[str], key: str, size: int) -> Cued:
    """Draw the object of a scene, made smaller, on a background that shows the cue of a class.

    A cue is something that occurs with a class but is not its object, such as a colour. Returns the image, the mask of
    the object and the background alone.

    scene:      the scene of the object; its own background is not used.
    cue:        color, texture or object; see `background`.
    class_name: the class whose cue is shown, one of `classes`. It may differ from the class of the object.
    key:        a text that seeds the random numbers of the background.
    size:       pixels per side.

    >>> image, mask, behind = cued(scene_of("mug", "view", "easy", 0, 0), "color", "car", ["mug", "car"], "a", 48)
    >>> bool((image[~mask] == behind[~mask]).all()), bool(0.05 < mask.mean() < 0.15)
    (True, True)
    """
    behind = background(cue, class_name, classes, key, size)

    # Shrink the object so that it covers at most LARGEST_SHARE of the image. Its share is measured in a small image.
    # The area grows with the square of the scale.
    object_share = len(march(scene, PROBE).pixels) / PROBE**2
    shrinkage = min(1.0, (LARGEST_SHARE / max(object_share, 1e-6)) ** 0.5)
    scene = replace(scene, scale=scene.scale * shrinkage, blend=0.0)

    hits = march(scene, size)  # the pixels that show the object
    no_colours = np.zeros((len(hits.pixels), 3), np.float32)  # of the background: with blend 0 they have no influence
    image = behind.copy()
    image.reshape(-1, 3)[hits.pixels] = _to_bytes(surface(scene, hits, no_colours))
    mask = np.zeros((size, size), bool)
    mask.reshape(-1)[hits.pixels] = True
    return Cued(image, mask, behind)


def background(cue: str, class_name: str, classes: Sequence[str], key: str, size: int) -> Image:
    """A picture of the cue of one class, which does not show an object of the class itself.

    color:   clouds in the hue of the class; the hues of all classes are evenly spaced on the colour circle.
    texture: a grating in the orientation and frequency of the class. Its mean colour and the variance of its luminance
             do not depend on the class.
    object:  a small solid that stands for the class (see co_objects), near a corner, on clouds of any hue.

    key:  seeds all random numbers.
    size: pixels per side.

    Raises FcaError for an unknown cue, and for a class that is not among `classes`.
    """
    check_choice("cue", cue, CUES)
    check_choice("class", class_name, classes)
    # Every cue draws these random numbers first, whether it needs them or not, so that all cues of one key are
    # comparable.
    random = keyed_rng("fca.render.cue", VERSION, key)
    class_index = classes.index(class_name)
    hue = random.random()
    amount = random.uniform(0.1, 0.45)  # contrast of the clouds
    saturation = random.uniform(0.1, 0.4)
    dark, light = random.uniform((0.35, 0.55), (0.5, 0.8)).tolist()  # of the clouds: 0.35 to 0.5, 0.55 to 0.8

    if cue == "texture":
        mean_colour = np.array(hsv_to_rgb(hue, saturation / 2, (dark + light) / 2), np.float32)
        grating = _grating(class_index, len(classes), random, size)
        return _to_bytes(mean_colour + np.float32(CONTRAST) * grating[:, :, None])

    if cue == "color":
        hue = (class_index + random.uniform(-0.25, 0.25)) / len(classes)  # nearer to this class's hue than to others
        saturation = 0.3 + saturation / 2  # strong enough for a hue to be seen

    # Clouds in two brightnesses of nearly the same hue. Of the scene only the background is used.
    second_hue = (hue + random.uniform(-0.02, 0.02)) % 1
    colours = (hsv_to_rgb(hue % 1, saturation, dark), hsv_to_rgb(second_hue, saturation, light))
    scene_of_clouds = Scene("", "", "", 0, 0, key, backdrop_amount=amount, backdrop_colors=colours)
    picture = backdrop(scene_of_clouds, size).copy()

    if cue == "object":  # draw the solid that stands for the class in one of the four corners
        right, down = random.choice([-BESIDE, BESIDE], 2).tolist()
        co_object = replace(_scene_of_co_object(co_objects(classes)[class_name]), x=right, y=down, scale=SMALL)
        hits = march(co_object, size)
        pixels = picture.reshape(-1, 3)
        pixels[hits.pixels] = surface(co_object, hits, pixels[hits.pixels])
    return _to_bytes(picture)


@lru_cache(maxsize=len(CLASSES))
def _scene_of_co_object(label: str) -> Scene:
    """A co-object always looks the same; otherwise the objects themselves would be easier to learn."""
    return scene_of(label, "color", "easy", 0, 0)


def _grating(class_index: int, n_classes: int, random: np.random.Generator, size: int) -> Field:
    """A sine wave over the image with the orientation and frequency of a class; mean 0 and standard deviation 1.

    Classes 2 k and 2 k + 1 have the same orientation and different frequencies (CYCLES per side of the image).
    Orientation and frequency vary a little at random.
    """
    n_orientations = -(-n_classes // 2)  # half of the classes, rounded up
    orientation = np.pi * (class_index // 2 + random.uniform(-0.15, 0.15)) / n_orientations
    cycles = CYCLES[class_index % 2] * random.uniform(0.93, 1.07)
    phase = random.uniform(0, 2 * np.pi)

    position = (np.arange(size) + 0.5) / size - 0.5
    along = position[None, :] * np.cos(orientation) + position[:, None] * np.sin(orientation)
    wave = np.sin(2 * np.pi * cycles * along + phase)
    return ((wave - wave.mean()) / wave.std()).astype(np.float32)


def _to_bytes(picture: Float[np.ndarray, "*pixels 3"]) -> UInt8[np.ndarray, "*pixels 3"]:
    """Colours in [0, 1] as bytes, rounded; of a picture of any shape."""
    return np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
