"""The default scene of a class under conditions in words: its light, view, size, colour, texture, backdrop and cover.

Each value sets parameters of the scene directly, so that a scene takes no longer than its image. Attributes without a
value are as in easy images.
"""

from __future__ import annotations

from collections.abc import Mapping
from colorsys import hsv_to_rgb
from dataclasses import replace
from typing import Any

import numpy as np

from fca.render.levels import at_probe_size, base_scene, hidden, placed
from fca.render.objects import model
from fca.render.scene import Scene
from fca.types import check_choice, keyed_rng

HALF_HIDDEN = (0.42, 0.58)  # share of a half hidden object's pixels that its cover hides
RED, GREEN, BLUE, ANY = (-0.03, 0.03), (0.29, 0.35), (0.57, 0.63), (0, 1)  # hues
Range = tuple[float | int, float | int]


def _painted(hue: Range, saturation: Range, value: Range) -> dict[str, Any]:
    """Colours of the main parts and, darker, of the second ones."""
    return {"color": (hue, saturation, value), "accent": (hue, saturation, (0.3, 0.5))}


def _patterned(texture: str, value: Range) -> dict[str, Any]:
    """A texture on the object in pale colours of any hue, with a brightness in this range."""
    return {"texture": texture, "texture_amount": (0.25, 0.45), "texture_color": (ANY, (0, 0.3), value)}


def _in_front_of(backdrop: str, amount: Range, *colors: tuple[Range, Range, Range]) -> dict[str, Any]:
    """A kind of background, its contrast and the ranges of its two colours (hue, saturation, value)."""
    return {"backdrop": backdrop, "backdrop_amount": amount, "backdrop_colors": colors}


# attribute -> value -> field of the scene -> its setting: a word, a range to draw from uniformly, a colour (ranges of
# hue, saturation and value), or two colours
_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "light": {
        "noon": {"exposure": (0.9, 1.1), "light_elevation": (45, 70)},
        "dusk": {"exposure": (0.55, 0.7), "light_elevation": (0, 15), "ambient": (0.25, 0.35)},
        "night": {"exposure": (0.32, 0.42), "light_elevation": (-20, 0), "ambient": (0.25, 0.35)},
    },
    "view": {  # azimuth: relative to the usual view of the class; top and bottom keep the usual one
        "usual": {},
        "turned": {"azimuth": (75, 105), "elevation": (5, 25)},
        "top": {"elevation": (55, 70)},
        "bottom": {"elevation": (-35, -20)},
    },
    "size": {"large": {"scale": (0.6, 0.78)}, "small": {"scale": (0.24, 0.32)}},
    "color": {
        "red": _painted(RED, (0.7, 0.95), (0.6, 0.9)),
        "green": _painted(GREEN, (0.5, 0.8), (0.5, 0.8)),
        "blue": _painted(BLUE, (0.5, 0.8), (0.6, 0.9)),
        "gray": _painted(ANY, (0, 0.08), (0.4, 0.65)),
    },
    "texture": {"plain": {}, "striped": _patterned("stripes", (0.8, 1)), "spotted": _patterned("dots", (0, 0.2))},
    "backdrop": {
        "wall": _in_front_of("plain", (0.2, 0.5), (ANY, (0, 0.08), (0.55, 0.7)), (ANY, (0, 0.08), (0.75, 0.9))),
        "greenery": _in_front_of(
            "clouds", (0.4, 0.7), (GREEN, (0.25, 0.45), (0.4, 0.5)), (GREEN, (0.25, 0.45), (0.65, 0.85))
        ),
        "sky": _in_front_of("clouds", (0.6, 1.0), (BLUE, (0.35, 0.6), (0.7, 0.9)), (BLUE, (0, 0.15), (0.85, 1))),
        "clutter": {"backdrop": "clutter", "backdrop_amount": (0.4, 0.6)},
    },
    "cover": {"fully visible": {}, "half hidden": {}},
    "picture": {"sharp": {}, "noisy": {"quality": (0.3, 0.45)}},
}
VALUES: Mapping[str, tuple[str, ...]] = {attribute: tuple(by_value) for attribute, by_value in _SETTINGS.items()}


def scene_under(label: str, values: Mapping[str, Any], seed: int) -> Scene:
    """The scene of one image under the given conditions.

    The scene is a function of the arguments alone: it does not depend on the process or the order of calls.

    label:  the class of the object.
    values: for each attribute that is set, one of its values in `VALUES`. Others keep their usual, random look.
    seed:   the seed of this image.

    Raises FcaError for an unknown class, attribute or value, and lists the allowed ones.

    >>> scene = scene_under("car", {"size": "small", "cover": "half hidden"}, 0)
    >>> scene.measure, 0.42 <= scene.measured <= 0.58
    ('hidden_share', True)
    """
    # A scene has the name of one attribute, which is a part of the key of its random numbers. Here the conditions in
    # words take its place, so that scenes under other conditions differ.
    words = ", ".join(f"{attribute}: {values[attribute]}" for attribute in sorted(values))
    scene = base_scene(label, attribute=words, level="", index=0, seed=seed)
    for attribute, value in values.items():
        check_choice("attribute of the renderer", attribute, VALUES)
        check_choice(f"{attribute} of the renderer", value, VALUES[attribute])

        random = keyed_rng(scene.noise_key, attribute)
        settings = _SETTINGS[attribute][value]  # field of the scene -> a word, or a range to draw from
        changes: dict[str, Any] = {field: _random_value(setting, random) for field, setting in settings.items()}
        if "azimuth" in changes:
            changes["azimuth"] += model(label).azimuth  # the setting is relative to the usual view of the class
        scene = replace(scene, **changes)

    # Set position and scale, and find the object's surface (hits). The target has no effect here: it is for scenes of a
    # single attribute, such as "size", that has to reach it.
    scene, hits = placed(scene, target=0.0)
    if values.get("cover") != "half hidden":
        return scene

    # A cover hides 42 to 58 % of the object's pixels. It is set last, because its place depends on the object's. The
    # scene's field `measured` becomes the share that it hides, and `measure` names what was measured.
    hidden_share = float(keyed_rng(scene.noise_key, "cover").uniform(*HALF_HIDDEN))
    covered = hidden(scene, at_probe_size(scene, hits), hidden_share)
    return replace(covered, measure="hidden_share")


def _random_value(setting: Any, random: np.random.Generator) -> Any:
    """Draw the value of one field of a scene from its setting, which is of one of four kinds.

    A word is returned unchanged. From a range (low, high) a number is drawn. Three ranges (hue, saturation, value) are
    a colour, which is returned as RGB. Two such colours give two colours.
    """
    if isinstance(setting, str):
        return setting
    is_range = isinstance(setting[0], float | int)
    if is_range:
        return float(random.uniform(*setting))

    values = tuple(_random_value(part_setting, random) for part_setting in setting)
    is_colour = len(values) == 3  # else two colours, which are RGB already
    if is_colour:
        hue, saturation, value = values  # a hue is an angle: % 1 wraps those below 0
        return hsv_to_rgb(hue % 1, saturation, value)
    return values
