"""The colour of the object's surface: its parts' colours, a pattern on them, light."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fca.nouns import FcaError
from fca.render.catalogue import model
from fca.render.march import Hits
from fca.render.scene import Scene, generator
from fca.render.solid import Plane, Points

TEXTURES = ("plain", "checks", "stripes", "dots", "patches")
DARK, LIGHT = (0.13, 0.13, 0.15), (0.88, 0.86, 0.8)

Colours = Float[np.ndarray, "points 3"]


def surface(scene: Scene, hits: Hits, behind: Colours) -> Colours:
    """RGB of each hit, at least 0.

    behind: the background's colours at the same pixels. `scene.blend` pulls every colour half to these, half to their
    mean, and the shading to a fifth of its depth, so that at 1 the object has the background's colour.
    """
    shade, gloss = _light(scene, hits)
    lit = albedo(scene, hits) * shade[:, None] + gloss[:, None]
    if scene.texture != "plain":  # painted in the colour that is to be seen, whatever the light
        on = _pattern(scene, hits.points)[:, None] * np.float32(scene.texture_amount)
        lit = lit + on * (np.array(scene.texture_color, np.float32) - lit)
    if scene.blend and len(shade):
        flat = 0.8 + 0.2 * shade / max(float(shade.mean()), 1e-3)
        hidden = (0.4 * behind.mean(axis=0) + 0.6 * behind) * flat[:, None]
        lit = lit + np.float32(scene.blend) * (hidden - lit)
    found: np.ndarray = lit
    return found


def albedo(scene: Scene, hits: Hits) -> Colours:
    """The colour of the part that each point is of."""
    tints = {"main": scene.color, "accent": scene.accent, "dark": DARK, "light": LIGHT}
    table = np.array([tints[part.tint] for part in model(scene.label).parts], np.float32)
    found: np.ndarray = table[hits.part]
    return found


def _pattern(scene: Scene, points: Points) -> Plane:
    """1 where the texture has its second colour, else 0."""
    random = generator(scene.noise_key, "texture")
    cells = np.float32(random.uniform(4.0, 6.0))
    x, y, z = points * cells + random.random((3, 1)).astype(np.float32)
    if scene.texture == "checks":
        on = (np.floor(x) + np.floor(y) + np.floor(z)) % 2 > 0
    elif scene.texture == "stripes":
        a, b, c = random.normal(size=3).astype(np.float32)
        on = ((a * x + b * y + c * z) / np.sqrt(a * a + b * b + c * c)) % 1 < 0.55
    elif scene.texture == "dots":
        on = (x % 1 - 0.5) ** 2 + (y % 1 - 0.5) ** 2 + (z % 1 - 0.5) ** 2 < 0.24
    elif scene.texture == "patches":
        waves = random.normal(size=(4, 3)).astype(np.float32) * 2
        on = sum(np.sin(w[0] * x + w[1] * y + w[2] * z) for w in waves) > 0
    else:
        raise FcaError("texture", scene.texture, ", ".join(TEXTURES), "take one of these")
    found: np.ndarray = on.astype(np.float32)
    return found


def _light(scene: Scene, hits: Hits) -> tuple[Plane, Plane]:
    """Diffuse light on each point (the sky's share, and a lamp's after Lambert), and the lamp's highlight (Blinn)."""
    a, e = np.radians([scene.light_azimuth, scene.light_elevation])
    right, up, to_viewer = hits.frame
    lamp = np.cos(e) * np.sin(a) * right + np.sin(e) * up + np.cos(e) * np.cos(a) * to_viewer
    half = (lamp + to_viewer) / np.linalg.norm(lamp + to_viewer)

    def towards(way: Float[np.ndarray, "3"]) -> Plane:
        found: np.ndarray = np.maximum(sum(np.float32(w) * n for w, n in zip(way, hits.normals, strict=True)), 0)
        return found

    n = hits.normals
    sky = 0.75 + 0.25 * sum(np.float32(w) * one for w, one in zip(up, n, strict=True))
    ambient = np.float32(scene.ambient)
    shade = ambient * sky * hits.open + (1 - ambient) * np.float32(1.15) * towards(lamp)
    return shade.astype(np.float32), (np.float32(0.22) * (1 - ambient) * towards(half) ** 24).astype(np.float32)
