"""The usual scene of a class, jittered: what every image shares but what its attribute changes."""

from __future__ import annotations

import colorsys
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from fca.render.catalogue import model, usual
from fca.render.march import march
from fca.render.scene import Colour, Scene, generator
from fca.render.surface import DARK, LIGHT

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
