"""Where the object is and from where it is seen: extent, position, rotation and view, from its mask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from fca.render.catalogue import usual
from fca.render.look import USUAL_ELEVATION
from fca.render.march import Hits, march
from fca.render.scene import Scene, generator

OWN = 48  # pixels a side of the image in which an object is measured: it fills it
R2 = (0.7548776662466927, 0.5698402909980532)  # steps of a sequence that fills the square evenly (Roberts 2018)

Plane = Float[np.ndarray, "2 pixels"]


def placed(scene: Scene, wanted: float) -> tuple[Scene, Hits]:
    """The scene with its place in the image: angles first, then the extent they lead to, then the shift.

    Beside it the hits of the image that the object fills, from which the place was measured.
    """
    if scene.attribute == "view":
        scene = _viewed(scene, wanted)
    if scene.attribute == "rotation":
        side = generator(scene.noise_key, "rotation").choice([-1.0, 1.0])
        scene = replace(scene, roll=float(side) * wanted, measured=wanted)
    hits = march(replace(scene, x=0.0, y=0.0, scale=0.5), OWN)
    down, right = np.divmod(hits.pixels, OWN)
    within = np.stack(
        [np.arange(len(right)) * step % 1 for step in R2]
    )  # or whole columns would leave the frame at once
    own = (np.stack([right, down]) + within) / OWN * 2 - 1
    extent = wanted if scene.attribute == "size" else scene.scale
    longest = float((own.max(axis=1) - own.min(axis=1)).max()) + 2 / OWN
    scene = replace(scene, scale=extent / longest)
    if scene.attribute == "size":
        scene = replace(scene, measured=extent)
    if scene.attribute == "position":
        scene = _shifted(scene, own * scene.scale, wanted)
    return scene, hits


def seen_at(scene: Scene, hits: Hits, size: int) -> Hits:
    """The hits at the object's place in an image of this size, from those of the image that it fills.

    Nearest neighbours: right to half a pixel of that image, which is enough to measure colours.
    """
    filled = np.full(OWN * OWN, -1)
    filled[hits.pixels] = np.arange(len(hits.pixels))
    at = (np.arange(size) + 0.5) / size - 0.5
    column, row = (np.floor(((at - c) / scene.scale + 1) / 2 * OWN).astype(int) for c in (scene.x, scene.y))
    inside = np.ix_((row >= 0) & (row < OWN), (column >= 0) & (column < OWN))
    found = np.full((size, size), -1)
    found[inside] = filled.reshape(OWN, OWN)[np.ix_(row[inside[0].ravel()], column[inside[1].ravel()])]
    pixels = np.flatnonzero(found >= 0)
    of = found.ravel()[pixels]
    return replace(hits, pixels=pixels, points=hits.points[:, of])


def view_angle(scene: Scene) -> float:
    """Degrees between the direction to the viewer and the usual one of the class, as between two points of a globe."""
    around = np.array([scene.azimuth - usual(scene.label).azimuth])
    return float(_angles(around, scene.elevation)[0])


def _angles(around: Float[np.ndarray, " ways"], elevation: float) -> Float[np.ndarray, " ways"]:
    e, usual_e = np.radians([elevation, USUAL_ELEVATION])
    cosine = np.sin(e) * np.sin(usual_e) + np.cos(e) * np.cos(usual_e) * np.cos(np.radians(around))
    found: np.ndarray = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    return found


def _viewed(scene: Scene, wanted: float) -> Scene:
    """The viewer goes up, over or under the object: round objects look the same from all sides at one height.

    Easy views stay as drawn; a harder one turns by most of its angle in height, and by the rest around.
    """
    if scene.level != "easy":
        random = generator(scene.noise_key, "view")
        rise = wanted * float(random.uniform(0.85, 1.0))
        under = USUAL_ELEVATION + rise > 90 or random.random() < 0.35
        elevation = USUAL_ELEVATION - rise if under else USUAL_ELEVATION + rise
        around = random.choice([-1.0, 1.0]) * np.linspace(0, 180, 721)
        turn = around[np.abs(_angles(around, elevation) - wanted).argmin()]
        scene = replace(scene, azimuth=usual(scene.label).azimuth + float(turn), elevation=elevation)
    return replace(scene, measured=view_angle(scene))


def _shifted(scene: Scene, own: Plane, wanted: float) -> Scene:
    """The object pushed out of the frame in some direction until the wanted share of it is outside."""
    if scene.level == "easy":
        return replace(scene, measured=_outside(own, scene.x, scene.y))
    turn = float(generator(scene.noise_key, "position").integers(8)) * np.pi / 4
    a, b = float(np.cos(turn)), float(np.sin(turn))
    low, high = 0.0, 1.5
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if _outside(own, a * middle, b * middle) < wanted else (low, middle)
    return replace(scene, x=a * high, y=b * high, measured=_outside(own, a * high, b * high))


def _outside(own: Plane, x: float, y: float) -> float:
    """Share of the pixels that a shift by (x, y) brings outside the image."""
    return float((np.abs(own + np.array([[x], [y]])) > 0.5).any(axis=0).mean())
