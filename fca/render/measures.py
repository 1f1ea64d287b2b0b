"""What is measured in an image to place it in a level; every measure is a property of finished pixels or masks."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from fca.render.draw import Drawn

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601

Pixels = Float[np.ndarray, "pixels 3"]
Picture = Float[np.ndarray, "size size 3"]
Cutout = Float[np.ndarray, "rows columns 3"]
Mask = Bool[np.ndarray, "size size"]


def contrast(pixels: Pixels, behind: Pixels) -> float:
    """Root mean square distance of colours, of full scale.

    >>> contrast(np.ones((2, 3)), np.zeros((2, 3)))
    1.0
    """
    return float(np.sqrt(np.square(pixels - behind).mean()))


def luminance(drawn: Drawn) -> float:
    """Mean luminance of the pixels that show the object."""
    return float((np.clip(drawn.picture[drawn.visible], 0, 1) @ LUMA).mean())


def hidden_share(drawn: Drawn) -> float:
    """Share of the object's pixels that something covers."""
    return 1 - float(drawn.visible.sum() / drawn.full.sum())


def extent(full: Mask) -> float:
    """Longer side of the mask's bounding box, as a share of the image's side.

    >>> extent(np.eye(4, dtype=bool))
    1.0
    """
    sides = [np.flatnonzero(full.any(axis=axis)) for axis in (0, 1)]
    return float(max(side[-1] - side[0] + 1 for side in sides) / len(full))


def around(full: Mask) -> tuple[slice, slice]:
    """Rows and columns of the square around a mask, a tenth of its longer side wider each way."""
    rows, columns = (np.flatnonzero(full.any(axis=axis)) for axis in (1, 0))
    more = max(1, round(0.1 * extent(full) * len(full)))
    first, second = (slice(max(int(at[0]) - more, 0), int(at[-1]) + more + 1) for at in (rows, columns))
    return first, second


def correlation(first: Cutout, second: Cutout) -> float:
    """Pearson correlation of the colours of two pictures, all channels together.

    >>> picture = np.arange(12.0).reshape(2, 2, 3)
    >>> round(correlation(picture, 1 - picture), 6)
    -1.0
    """
    a, b = (one.ravel() - one.mean() for one in (first, second))
    return float(np.einsum("i,i", a, b) / np.sqrt(np.einsum("i,i", a, a) * np.einsum("i,i", b, b)))


def background_contrast(behind: Picture) -> float:
    """Root mean square distance of the background's colours from their mean."""
    return float(np.sqrt(np.square(behind - behind.mean(axis=(0, 1))).mean()))
