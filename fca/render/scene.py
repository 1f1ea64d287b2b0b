"""The true parameters of an image, as numbers and names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

ATTRIBUTES = ("color", "light", "occlusion", "position", "quality", "rotation", "size", "style", "texture", "view")
LEVELS = ("easy", "medium", "hard")  # how hard a scene is to recognise
BACKGROUND = "background"  # beside the ten: what is behind the object

VERSION = "6"  # of the drawing: changes whenever a scene or its pixels change

Colour = tuple[float, float, float]
Mask = Bool[np.ndarray, "size size"]
Picture = Float[np.ndarray, "size size 3"]


class Rendered(NamedTuple):
    """An image and where its object is.

    visible: pixels that show the object.
    full:    pixels that would show it without a cover.
    """

    image: UInt8[np.ndarray, "size size 3"]
    visible: Mask
    full: Mask


@dataclass(frozen=True)
class Scene:
    """The true parameters of an image; equal scenes give equal pixels.

    label, attribute, level, index, seed: what was requested.
    proportions: stretch of the object along its own x, y, z.
    azimuth, elevation: of the viewer, degrees.
    roll:        degrees, counter-clockwise in the image.
    scale:       radius of the ball around the object, as a share of the image's side.
    x, y:        the ball's centre, right and down of the image's centre, as a share of the side.
    color, accent: of the main and the second parts, RGB in [0, 1].
    blend:       how much all its colours are mixed with the background's, from 0 (not at all) to 1 (completely).
    texture:     pattern on the object's surface, of texture_color and its complement (before light falls on them).
    texture_amount: their share in [0, 1]; the rest is the object's own colours.
    light_azimuth, light_elevation: direction of the light, degrees.
    ambient:     share of the light that comes from all directions.
    exposure:    factor on the whole image.
    cover:       kind of cover in front of the object, in cover_color.
    cover_limit: the value of the cover's field below which it covers.
    backdrop:    kind of background, in the two backdrop_colors.
    backdrop_amount: the background's contrast.
    style, style_amount: change of the finished picture, and how much of it.
    quality:     a loss of the finished picture in [0, 1].
    noise_key:   names all random patterns.
    measure, measured: the measure that places the image in its level, and its value in this image.
    """

    label: str
    attribute: str
    level: str
    index: int
    seed: int
    noise_key: str
    proportions: tuple[float, float, float] = (1.0, 1.0, 1.0)
    azimuth: float = 0.0
    elevation: float = 20.0
    roll: float = 0.0
    scale: float = 0.38
    x: float = 0.0
    y: float = 0.0
    color: Colour = (0.8, 0.3, 0.2)
    accent: Colour = (0.6, 0.2, 0.1)
    blend: float = 0.0
    texture: str = "plain"
    texture_amount: float = 0.0
    texture_color: Colour = (1.0, 1.0, 1.0)
    light_azimuth: float = -40.0
    light_elevation: float = 45.0
    ambient: float = 0.4
    exposure: float = 1.0
    cover: str = "none"
    cover_limit: float = 0.0
    cover_color: Colour = (0.35, 0.25, 0.15)
    backdrop: str = "clouds"
    backdrop_amount: float = 0.25
    backdrop_colors: tuple[Colour, Colour] = ((0.6, 0.7, 0.8), (0.8, 0.85, 0.9))
    style: str = "none"
    style_amount: float = 0.0
    quality: float = 0.0
    measure: str = "none"
    measured: float = 0.0

    def parameters(self) -> dict[str, Any]:
        """All of them as JSON (tuples as lists)."""
        return json.loads(json.dumps(asdict(self)))
