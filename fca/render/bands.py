"""What easy, medium and hard mean: what is measured in the image for each attribute, and each level's range."""

from __future__ import annotations

from typing import NamedTuple

from fca.nouns import FcaError
from fca.render.scene import ATTRIBUTES, BACKGROUND, LEVELS


class Band(NamedTuple):
    """A measure by name, and the lowest and highest value of a level."""

    measure: str
    low: float
    high: float


_BANDS: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    # root mean square distance of the object's colours from those behind it, of full scale
    "color": ("contrast", ((0.18, 1.0), (0.18, 0.22), (0.15, 0.17))),
    # mean luminance of the object's pixels
    "light": ("luminance", ((0.12, 1.0), (0.1, 0.12), (0.07, 0.085))),
    # share of the object's pixels behind the cover, medium as in the paper, hard within its 70 to 90 %
    "occlusion": ("hidden_share", ((0.0, 0.0), (0.3, 0.5), (0.7, 0.8))),
    # share of the object outside the frame
    "position": ("outside_share", ((0.0, 0.0), (0.15, 0.27), (0.42, 0.52))),
    # correlation with the picture before, around the object
    "quality": ("correlation", ((1.0, 1.0), (0.9, 0.95), (0.82, 0.87))),
    # degrees from upright, in the image
    "rotation": ("degrees", ((0.0, 14.0), (30.0, 50.0), (80.0, 150.0))),
    # longer side of the object's bounding box, as a share of the image's
    "size": ("extent", ((0.42, 0.8), (0.3, 0.36), (0.21, 0.25))),
    "style": ("correlation", ((1.0, 1.0), (0.82, 0.9), (0.4, 0.55))),
    # root mean square change of the object's pixels by the pattern, as a share of their distance from those behind
    "texture": ("pattern_share", ((0.0, 0.0), (0.35, 0.45), (0.6, 0.7))),
    # degrees between the direction to the viewer and the usual one
    "view": ("degrees", ((0.0, 37.0), (42.0, 54.0), (62.0, 80.0))),
    # root mean square distance of the background's pixels from their mean
    "background": ("background_contrast", ((0.0, 0.05), (0.12, 0.16), (0.22, 0.28))),
}


def band(attribute: str, level: str) -> Band:
    """The measure of an attribute and a level's range. Raises FcaError for names that are none.

    >>> band("occlusion", "hard")
    Band(measure='hidden_share', low=0.7, high=0.8)
    """
    if attribute not in _BANDS:
        raise FcaError("attribute", attribute, ", ".join((*ATTRIBUTES, BACKGROUND)), "take one of these")
    if level not in LEVELS:
        raise FcaError("level", level, ", ".join(LEVELS), "take one of these")
    measure, ranges = _BANDS[attribute]
    return Band(measure, *ranges[LEVELS.index(level)])
