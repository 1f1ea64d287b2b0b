"""A scene for every (class, attribute, level, index, seed), placed in its level by what is measured in the image."""

from __future__ import annotations

from dataclasses import replace

from fca.nouns import FcaError
from fca.render.appear import looking
from fca.render.bands import band
from fca.render.look import nominal
from fca.render.place import placed
from fca.render.scene import Scene, generator

INSET = 0.25  # of a band is kept at each end for what bisection cannot reach exactly


def scene_of(label: str, attribute: str, level: str, index: int, seed: int) -> Scene:
    """The scene of an image, by name; the same for the same arguments in any process or order.

    The three levels of one (class, attribute, index, seed) are a matched triplet: they share everything but what makes
    the level. All other attributes are at their easy values, with a jitter.

    Raises FcaError for unknown names and a negative index.

    >>> scene = scene_of("car", "occlusion", "hard", 7, 0)
    >>> scene.measure, 0.7 <= scene.measured <= 0.9
    ('hidden_share', True)
    """
    asked = band(attribute, level)
    if index < 0:
        raise FcaError("index", index, "0 or above", "take another index")
    scene = nominal(label, attribute, level, index, seed)
    margin = INSET * (asked.high - asked.low)
    wanted = float(generator(scene.noise_key, level).uniform(asked.low + margin, asked.high - margin))
    scene, hits = placed(replace(scene, measure=asked.measure), wanted)
    return looking(scene, hits, wanted)
