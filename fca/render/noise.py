"""Random pictures that look the same at any size: small random grids, enlarged."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float
from PIL import Image

from fca.render.scene import generator

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
