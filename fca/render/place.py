"""Where the object is and from where it is seen: extent, position, rotation and view, from its mask."""

from __future__ import annotations

import colorsys
from dataclasses import replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from fca.render.march import DARK, LIGHT, Hits, march
from fca.render.objects import model, usual
from fca.render.scene import Colour, Scene, generator

# The usual scene of a class, jittered: what every image shares but what its attribute changes.


CLEAR = 0.28  # least root mean square distance of the object's colours, half lit, from the background's middle
TRIES = 40
LIT = 0.7  # of a colour is what a surface shows on average
USUAL_ELEVATION = 20.0


def nominal(label: str, attribute: str, level: str, index: int, seed: int) -> Scene:
    """The scene before its attribute is set: the same for all levels of a (class, attribute, index, seed)."""
    key = f"{seed}/{label}/{attribute}/{index}"
    random = generator("fca.render", key)
    known = usual(label)
    stretch = random.uniform(0.88, 1.12, 3).tolist()
    around, height, lean, extent, x, y = (float(one) for one in random.uniform(_LOW, _HIGH))
    lamp_side, lamp_height, ambient, exposure, clouds = (float(one) for one in random.uniform(_DIM, _BRIGHT))
    color, accent, backdrop = _colours(label, attribute, random)
    return Scene(
        *(label, attribute, level, index, seed, key),
        proportions=(stretch[0], stretch[1], stretch[2]),
        azimuth=known.azimuth + around,
        elevation=height,
        roll=lean,
        scale=extent,  # of the longer side; made the ball's radius when the object's mask is known
        x=x,
        y=y,
        color=color,
        accent=accent,
        light_azimuth=lamp_side,
        light_elevation=lamp_height,
        ambient=ambient,
        exposure=exposure,
        backdrop_amount=clouds,
        backdrop_colors=backdrop,
    )


_LOW, _HIGH = (-32.0, 9.0, -14.0, 0.44, -0.09, -0.09), (32.0, 33.0, 14.0, 0.76, 0.09, 0.09)
_DIM, _BRIGHT = (-60.0, 25.0, 0.4, 0.75, 0.1), (60.0, 65.0, 0.55, 1.1, 0.45)


def _colours(label: str, attribute: str, random: np.random.Generator) -> tuple[Colour, Colour, tuple[Colour, Colour]]:
    """Of the object's main and second parts, and of the background: drawn again until they are far enough apart.

    Half of all objects have their class's usual hue (all do whose color is tested), the others any.
    """
    known = usual(label)
    usually = attribute == "color" or random.random() < 0.5
    for _ in range(TRIES):
        hue = known.hue + random.uniform(-0.04, 0.04) if usually else random.random()
        saturation = np.clip(known.saturation + random.uniform(-0.15, 0.15), 0.15, 1)
        value = random.uniform(0.6, 0.95)
        color = hsv(hue, saturation, value)
        accent = hsv(hue + random.uniform(0.04, 0.12), saturation * 0.9, value * 0.65)
        back, level, step = (
            random.random(),
            random.uniform(0.3, 0.9),
            random.choice([-1, 1]) * random.uniform(0.1, 0.25),
        )
        ends = (level, float(np.clip(level + step, 0.15, 1.0)))
        first, second = (hsv(back + random.uniform(-0.05, 0.05), random.uniform(0.1, 0.4), end) for end in ends)
        middle = (np.array(first) + np.array(second)) / 2
        far = np.square(LIT * np.array([color, accent, DARK, LIGHT]) - middle).mean(axis=1)
        if np.sqrt((tint_shares(label) * far).sum()) > CLEAR:
            break
    return color, accent, (first, second)


def hsv(hue: float, saturation: float, value: float) -> Colour:
    """RGB of a hue (1 = all around), a saturation and a value.

    >>> hsv(1.0, 1.0, 0.5)
    (0.5, 0.0, 0.0)
    """
    r, g, b = colorsys.hsv_to_rgb(hue % 1, float(saturation), float(value))
    return (r, g, b)


@lru_cache(maxsize=32)
def tint_shares(label: str) -> Float[np.ndarray, "4"]:
    """How much of the object, as usually seen, has its main, accent, dark and light colour."""
    hits = march(Scene(label, "color", "easy", 0, 0, "", azimuth=usual(label).azimuth, scale=0.5), 48)
    tints = [part.tint for part in model(label).parts]
    counts = np.bincount(hits.part, minlength=len(tints))
    found: np.ndarray = (
        np.array([sum(n for n, t in zip(counts, tints, strict=True) if t == tint) for tint in _TINTS]) / counts.sum()
    )
    return found


_TINTS = ("main", "accent", "dark", "light")

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
