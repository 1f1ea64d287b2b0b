"""Ice on a window pane, drawn from random numbers alone: six-armed crystals with barbs on rough ice."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fca.shifts.constants import Number
from fca.shifts.fields import plasma

CELL = 72  # mean distance of two crystals, in pixels of an unshrunk texture
BARB = 7.0  # distance of two barbs of an arm
BENT = 30  # by how many pixels straight lines are bent
MEAN, SPREAD = 0.64, 0.12  # of the six photographs that the published frost lays over images


def ice(height: int, width: int, shrink: Number, *, rng: np.random.Generator) -> Float[np.ndarray, "height width"]:
    """How bright the ice is at every pixel, 0 to 1, about 0.64 in the mean.

    shrink: pixels per pixel of the unshrunk texture. A pixel belongs to its nearest crystal (one in every cell of a
    grid, anywhere within it, at any angle). In the frame of the nearest of its six arms, the arm is the axis, and barbs
    leave it at 60 degrees.

    >>> ice(16, 16, 0.2, rng=np.random.default_rng(0)).shape
    (16, 16)
    """
    rough = plasma(height, width, 1.3, rng=rng)
    bend = plasma(height, width, 1.9, rng=rng)
    rows = np.arange(height, dtype=np.float32)[:, None] / np.float32(shrink) + BENT * bend
    columns = np.arange(width, dtype=np.float32) / np.float32(shrink) + BENT * (bend[::-1, ::-1] + 0.3 * rough)
    down, right, lean = _to_nearest(rows, columns, rng)
    along, beside = _on_arm(down, right, lean)
    barb = (along - beside * np.float32(0.577)) * np.float32(1 / BARB)
    barb = np.abs(barb - np.floor(barb) - np.float32(0.5)) * 2
    feather = barb * barb * np.exp(beside * np.float32(-1 / 14)) + np.exp(np.square(beside) * np.float32(-0.44))
    bright: np.ndarray = (feather * (np.float32(0.3) + bend)) * np.float32(0.6) + rough
    bright -= bright.mean()
    bright *= np.float32(SPREAD) / max(float(bright.std()), 1e-6)
    bright += np.float32(MEAN)
    return bright.clip(0, 1)


def _to_nearest(
    rows: np.ndarray, columns: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every place the way down and right from its nearest crystal, and how that crystal is turned (0 to 1)."""
    line, place = (rows * np.float32(1 / CELL)).astype(np.intp), (columns * np.float32(1 / CELL)).astype(np.intp)
    high, wide = int(line.max()) + 3, int(place.max()) + 3
    drawn = rng.random((3, high * wide), dtype=np.float32)
    centre_row = ((drawn[0].reshape(high, wide) + np.arange(-1, high - 1)[:, None]) * CELL).astype(np.float32).ravel()
    centre_column = ((drawn[1].reshape(high, wide) + np.arange(-1, wide - 1)) * CELL).astype(np.float32).ravel()
    cell = line * wide + place
    nearest, least = cell.copy(), np.full(cell.shape, np.inf, np.float32)
    for step in [i * wide + j for i in range(3) for j in range(3)]:
        candidate = cell + step
        away = np.square(rows - centre_row.take(candidate))
        away += np.square(columns - centre_column.take(candidate))
        np.copyto(nearest, candidate, where=away < least)
        np.minimum(least, away, out=least)
    return rows - centre_row.take(nearest), columns - centre_column.take(nearest), drawn[2].take(nearest)


def _on_arm(down: np.ndarray, right: np.ndarray, lean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Length along the nearest of six arms, and distance from it, all in the frame of a crystal turned by `lean`."""
    angle = lean * np.float32(np.pi / 3)
    cosine, sine = np.cos(angle), np.sin(angle)
    x, y = np.abs(cosine * right + sine * down), np.abs(cosine * down - sine * right)
    along = np.maximum(x, np.float32(0.5) * x + np.float32(np.sqrt(0.75)) * y)
    return along, np.sqrt(np.maximum(x * x + y * y - along * along, 0))
