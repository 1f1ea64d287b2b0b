"""Edges and levels of an 8-bit map, as the drops of `spatter` need them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, UInt8
from scipy import ndimage


def edges(levels: UInt8[np.ndarray, "height width"], weak: float, strong: float) -> Bool[np.ndarray, "height width"]:
    """Canny's edges: crests of the Sobel gradient |dx| + |dy| above `weak` that touch one above `strong`.

    >>> edges(np.array([[0, 0, 9, 9]] * 3, np.uint8), 1.0, 2.0)[1].tolist()
    [False, True, False, False]
    """
    across, down = (ndimage.sobel(levels.astype(np.float32), axis=axis, mode="nearest") for axis in (1, 0))
    steep = np.abs(across) + np.abs(down)
    crest = _crest(steep, across, down) & (steep > weak)
    parts, count = ndimage.label(crest, structure=np.ones((3, 3)))
    kept = np.zeros(count + 1, bool)
    kept[parts[crest & (steep > strong)]] = True
    found: np.ndarray = kept[parts]
    return found


def _crest(
    steep: Float[np.ndarray, "height width"],
    across: Float[np.ndarray, "height width"],
    down: Float[np.ndarray, "height width"],
) -> Bool[np.ndarray, "height width"]:
    """Whether a pixel is steeper than both neighbours along its gradient, to the nearest of four directions."""
    height, width = steep.shape
    around = np.pad(steep, 1)

    def beside(rows: int, columns: int) -> np.ndarray:
        return around[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    flat = np.abs(down) < np.tan(np.pi / 8) * np.abs(across)
    upright = np.abs(down) > np.tan(3 * np.pi / 8) * np.abs(across)
    falling = across * down >= 0
    before = np.where(falling, beside(-1, -1), beside(-1, 1))
    after = np.where(falling, beside(1, 1), beside(1, -1))
    before = np.where(flat, beside(0, -1), np.where(upright, beside(-1, 0), before))
    after = np.where(flat, beside(0, 1), np.where(upright, beside(1, 0), after))
    return (steep > before) & (steep >= after)


def equalised(levels: UInt8[np.ndarray, "height width"]) -> UInt8[np.ndarray, "height width"]:
    """Levels spread so that each is as common as possible: the darkest becomes 0, the brightest 255.

    >>> equalised(np.array([[3, 3, 7, 9]], np.uint8)).tolist()
    [[0, 0, 128, 255]]
    """
    counts = np.bincount(levels.ravel(), minlength=256)
    darkest = int(levels.min())
    rest = levels.size - counts[darkest]
    if rest == 0:
        return levels
    upto = np.cumsum(counts) - counts[darkest]
    table: np.ndarray = np.rint(np.maximum(upto, 0) * (255 / rest)).astype(np.uint8)
    spread: np.ndarray = table[levels]
    return spread
