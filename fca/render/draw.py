"""A scene -> its image and masks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fca.render.backdrop import backdrop, cover, degraded, styled, to_bytes
from fca.render.march import Hits, march, surface
from fca.render.scene import Rendered, Scene
from fca.types import FcaError

SIZES = (8, 2048)  # smallest and largest side in pixels


class Drawn(NamedTuple):
    """A picture before it is bytes, and what is behind its object."""

    picture: Float[np.ndarray, "size size 3"]
    behind: Float[np.ndarray, "size size 3"]
    visible: Bool[np.ndarray, "size size"]
    full: Bool[np.ndarray, "size size"]


def render(scene: Scene, size: int) -> Rendered:
    """The image of a scene with its exact masks: a pixel shows the object where the ray through its centre meets it.

    size: of the square image, 8 to 2,048 pixels a side; raises FcaError otherwise.

    >>> from fca.render import scene_of
    >>> image, visible, full = render(scene_of("mug", "occlusion", "medium", 0, 0), 32)
    >>> image.shape, bool(visible.sum() < full.sum())
    ((32, 32, 3), True)
    """
    if not SIZES[0] <= size <= SIZES[1]:
        raise FcaError("size", size, f"{SIZES[0]} to {SIZES[1]} pixels", "take another size")
    drawn = draw(scene, march(scene, size), size)
    return Rendered(to_bytes(drawn.picture), drawn.visible, drawn.full)


def draw(scene: Scene, hits: Hits, size: int) -> Drawn:
    """All but the march, which only depends on where the object is and from where it is seen."""
    behind = backdrop(scene, size)
    flat = behind.reshape(-1, 3).copy()
    flat[hits.pixels] = surface(scene, hits, flat[hits.pixels])
    shown = np.zeros(size * size, bool)
    shown[hits.pixels] = True
    full = shown.reshape(size, size)
    covered, colours = cover(scene, size)
    picture = np.where(covered[:, :, None], colours, flat.reshape(size, size, 3)) * np.float32(scene.exposure)
    return Drawn(finished(scene, np.clip(picture, 0, 1)), behind, full & ~covered, full)


def finished(scene: Scene, picture: Float[np.ndarray, "size size 3"]) -> Float[np.ndarray, "size size 3"]:
    """What is done to the whole picture: style, then quality."""
    return degraded(scene, styled(scene, picture))
