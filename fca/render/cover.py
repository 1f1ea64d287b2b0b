"""What stands before the object. A field over the image; where it is below a limit, it covers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from fca.nouns import FcaError
from fca.render.noise import Field, clouds, enlarged, places
from fca.render.scene import Scene, generator

COVERS = ("wall", "slats", "leaves", "blocks")


def cover_field(scene: Scene, size: int) -> Field:
    """Grows away from where the cover begins, so a higher limit covers all that a lower one does, and more."""
    right, down = places(size)
    random = generator(scene.noise_key, "cover")
    turn = random.uniform(0, 2 * np.pi)
    a, b = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    along = right * a + down * b
    if scene.cover == "wall":
        return along
    if scene.cover == "slats":
        return np.abs((along * np.float32(random.uniform(4.0, 6.0))) % 1 - np.float32(0.5))
    if scene.cover == "leaves":
        return clouds(scene.noise_key + "/leaves", size, cells=9, octaves=2)
    if scene.cover == "blocks":
        grid = generator(scene.noise_key, "blocks").random((8, 8), np.float32)
        return enlarged(grid, size, smooth=False) + np.float32(0.02) * along
    raise FcaError("cover", scene.cover, ", ".join(COVERS), "take one of these")


def cover(scene: Scene, size: int) -> tuple[Bool[np.ndarray, "size size"], Float[np.ndarray, "size size 3"]]:
    """Where it covers, and its colours there (anything elsewhere)."""
    if scene.cover == "none":
        return np.zeros((size, size), bool), np.zeros((size, size, 3), np.float32)
    where = cover_field(scene, size) < scene.cover_limit
    grain = 0.85 + 0.3 * clouds(scene.noise_key + "/grain", size, cells=10, octaves=2)
    colours = np.array(scene.cover_color, np.float32) * grain[:, :, None].astype(np.float32)
    return where, np.clip(colours, 0, 1)
