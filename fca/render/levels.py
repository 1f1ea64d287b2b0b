"""A scene for every (class, attribute, level, index, seed), placed in its level by what is measured in the image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fca.render.backdrop import COVERS, STYLES, backdrop, cover_field
from fca.render.draw import Drawn, draw, finished
from fca.render.march import TEXTURES, Hits, surface
from fca.render.place import nominal, placed, seen_at
from fca.render.scene import ATTRIBUTES, BACKGROUND, LEVELS, Scene, generator
from fca.types import FcaError

# What easy, medium and hard mean: what is measured in the image for each attribute, and each level's range.


class Band(NamedTuple):
    """A measure by name, and the lowest and highest value of a level."""

    measure: str
    low: float
    high: float


_BANDS: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    # root mean square distance of the object's colours from those behind it, of full scale
    "color": ("contrast", ((0.18, 1.0), (0.18, 0.22), (0.15, 0.17))),
    # mean luminance of the object's pixels
    "light": ("luminance", ((0.12, 1.0), (0.1, 0.12), (0.07, 0.085))),
    # share of the object's pixels behind the cover, medium as in the paper, hard within its 70 to 90 %
    "occlusion": ("hidden_share", ((0.0, 0.0), (0.3, 0.5), (0.7, 0.8))),
    # share of the object outside the frame
    "position": ("outside_share", ((0.0, 0.0), (0.15, 0.27), (0.42, 0.52))),
    # correlation with the picture before, around the object
    "quality": ("correlation", ((1.0, 1.0), (0.9, 0.95), (0.82, 0.87))),
    # degrees from upright, in the image
    "rotation": ("degrees", ((0.0, 14.0), (30.0, 50.0), (80.0, 150.0))),
    # longer side of the object's bounding box, as a share of the image's
    "size": ("extent", ((0.42, 0.8), (0.3, 0.36), (0.21, 0.25))),
    "style": ("correlation", ((1.0, 1.0), (0.82, 0.9), (0.4, 0.55))),
    # root mean square change of the object's pixels by the pattern, as a share of their distance from those behind
    "texture": ("pattern_share", ((0.0, 0.0), (0.35, 0.45), (0.6, 0.7))),
    # degrees between the direction to the viewer and the usual one
    "view": ("degrees", ((0.0, 37.0), (42.0, 54.0), (62.0, 80.0))),
    # root mean square distance of the background's pixels from their mean
    "background": ("background_contrast", ((0.0, 0.05), (0.12, 0.16), (0.22, 0.28))),
}


def band(attribute: str, level: str) -> Band:
    """The measure of an attribute and a level's range. Raises FcaError for names that are none.

    >>> band("occlusion", "hard")
    Band(measure='hidden_share', low=0.7, high=0.8)
    """
    if attribute not in _BANDS:
        raise FcaError("attribute", attribute, ", ".join((*ATTRIBUTES, BACKGROUND)), "take one of these")
    if level not in LEVELS:
        raise FcaError("level", level, ", ".join(LEVELS), "take one of these")
    measure, ranges = _BANDS[attribute]
    return Band(measure, *ranges[LEVELS.index(level)])


# What is measured in an image to place it in a level; every measure is a property of finished pixels or masks.


LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601

Pixels = Float[np.ndarray, "pixels 3"]
Picture = Float[np.ndarray, "size size 3"]
Cutout = Float[np.ndarray, "rows columns 3"]
Mask = Bool[np.ndarray, "size size"]


def contrast(pixels: Pixels, behind: Pixels) -> float:
    """Root mean square distance of colours, of full scale.

    >>> contrast(np.ones((2, 3)), np.zeros((2, 3)))
    1.0
    """
    return float(np.sqrt(np.square(pixels - behind).mean()))


def luminance(drawn: Drawn) -> float:
    """Mean luminance of the pixels that show the object."""
    return float((np.clip(drawn.picture[drawn.visible], 0, 1) @ LUMA).mean())


def hidden_share(drawn: Drawn) -> float:
    """Share of the object's pixels that something covers."""
    return 1 - float(drawn.visible.sum() / drawn.full.sum())


def extent(full: Mask) -> float:
    """Longer side of the mask's bounding box, as a share of the image's side.

    >>> extent(np.eye(4, dtype=bool))
    1.0
    """
    sides = [np.flatnonzero(full.any(axis=axis)) for axis in (0, 1)]
    return float(max(side[-1] - side[0] + 1 for side in sides) / len(full))


def around(full: Mask) -> tuple[slice, slice]:
    """Rows and columns of the square around a mask, a tenth of its longer side wider each way."""
    rows, columns = (np.flatnonzero(full.any(axis=axis)) for axis in (1, 0))
    more = max(1, round(0.1 * extent(full) * len(full)))
    first, second = (slice(max(int(at[0]) - more, 0), int(at[-1]) + more + 1) for at in (rows, columns))
    return first, second


def correlation(first: Cutout, second: Cutout) -> float:
    """Pearson correlation of the colours of two pictures, all channels together.

    >>> picture = np.arange(12.0).reshape(2, 2, 3)
    >>> round(correlation(picture, 1 - picture), 6)
    -1.0
    """
    a, b = (one.ravel() - one.mean() for one in (first, second))
    return float(np.einsum("i,i", a, b) / np.sqrt(np.einsum("i,i", a, a) * np.einsum("i,i", b, b)))


def background_contrast(behind: Picture) -> float:
    """Root mean square distance of the background's colours from their mean."""
    return float(np.sqrt(np.square(behind - behind.mean(axis=(0, 1))).mean()))


# How the object and its picture look: color, light, occlusion, quality, style, texture, background, by measurement.


PROBE = 64  # pixels a side of the image that is measured


def looking(scene: Scene, own: Hits, wanted: float) -> Scene:
    """The scene with its attribute set so that what is measured at 64 pixels is as wanted; `measured` says it."""
    if scene.attribute not in LOOKS:
        return scene
    return LOOKS[scene.attribute](scene, seen_at(scene, own, PROBE), wanted)


def _color(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """Every colour of the object is pulled towards the background's behind it."""
    behind = backdrop(scene, PROBE).reshape(-1, 3)[hits.pixels]

    def contrast_at(blend: float) -> float:
        return contrast(np.clip(surface(replace(scene, blend=blend), hits, behind), 0, 1), behind)

    blend = 0.0 if scene.level == "easy" else _bisect(lambda blend: -contrast_at(blend), -wanted)
    return replace(scene, blend=blend, measured=contrast_at(blend))


def _light(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """Less light for the whole image; in the hard level the lamp stands low, behind the object's back."""
    if scene.level == "hard":
        scene = replace(scene, light_azimuth=scene.light_azimuth * 2, light_elevation=-15.0)
    bright = luminance(draw(scene, hits, PROBE))
    if scene.level == "easy":
        return replace(scene, measured=bright)
    scene = replace(scene, exposure=scene.exposure * wanted / bright)
    return replace(scene, measured=luminance(draw(scene, hits, PROBE)))


def _occlusion(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """The cover reaches as far as hides the wanted share of the object's pixels."""
    if scene.level == "easy":
        return scene
    random = generator(scene.noise_key, "occlusion")
    shade = np.array(scene.backdrop_colors[0]) * random.uniform(0.8, 0.92)  # or the cover is what a network looks at
    scene = replace(
        scene, cover=str(random.choice(COVERS)), cover_color=(float(shade[0]), float(shade[1]), float(shade[2]))
    )
    values = cover_field(scene, PROBE).reshape(-1)[hits.pixels]
    limit = float(np.quantile(values, wanted))
    return replace(scene, cover_limit=limit, measured=float((values < limit).mean()))


def _texture(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """A pattern in the background's middle colour, which breaks up the object's outline."""
    if scene.level == "easy":
        return scene
    red, green, blue = np.array(scene.backdrop_colors).mean(axis=0).tolist()
    kinds = generator(scene.noise_key, "pattern").permutation(TEXTURES[1:])
    behind = backdrop(scene, PROBE).reshape(-1, 3)[hits.pixels]
    plain = np.clip(surface(scene, hits, behind), 0, 1)
    whole = contrast(plain, behind)

    def patterned(kind: str) -> Tried:
        def made(amount: float) -> Scene:
            return replace(scene, texture=kind, texture_color=(red, green, blue), texture_amount=amount)

        def change(amount: float) -> float:
            return contrast(np.clip(surface(made(amount), hits, behind), 0, 1), plain) / whole

        amount = _bisect(change, wanted)
        return Tried(made(amount), change(amount))

    return _nearest((patterned(str(kind)) for kind in kinds), wanted)


def _style(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """The picture mixed with one in another style until it is as like the plain one as wanted."""
    if scene.level == "easy":
        return replace(scene, measured=1.0)
    kinds = generator(scene.noise_key, "style").permutation(STYLES)
    return _changed(scene, hits, wanted, [partial(_in_style, scene, str(kind)) for kind in kinds])


def _in_style(scene: Scene, kind: str, amount: float) -> Scene:
    return replace(scene, style=kind, style_amount=amount)


def _quality(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """The picture loses cells, gains noise and is packed until it is as like the good one as wanted."""
    if scene.level == "easy":
        return replace(scene, measured=1.0)
    return _changed(scene, hits, wanted, [lambda loss: replace(scene, quality=loss)])


def _changed(scene: Scene, hits: Hits, wanted: float, ways: list[Callable[[float], Scene]]) -> Scene:
    """The first way of changing the picture that brings its correlation with the plain one to what is wanted."""
    plain = draw(scene, hits, PROBE)
    where = around(plain.full)

    def tried(way: Callable[[float], Scene]) -> Tried:
        def lost(amount: float) -> float:
            return -correlation(finished(way(amount), plain.picture)[where], plain.picture[where])

        amount = _bisect(lost, -wanted)
        return Tried(way(amount), -lost(amount))

    return _nearest((tried(way) for way in ways), wanted)


class Tried(NamedTuple):
    """A scene and what is measured in it."""

    scene: Scene
    measured: float


def _nearest(trials: Iterable[Tried], wanted: float) -> Scene:
    """The first that is as wanted, to 0.02, with its measure; if none is, the nearest."""
    seen: list[Tried] = []
    for trial in trials:
        seen.append(trial)
        if abs(trial.measured - wanted) < 0.02:
            break
    best = min(seen, key=lambda one: abs(one.measured - wanted))
    return replace(best.scene, measured=best.measured)


def _background(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """Plain, then a pattern of two colours, then clutter of many."""
    random = generator(scene.noise_key, "background")
    kind = {"easy": "plain", "medium": str(random.choice(["stripes", "checks"])), "hard": "clutter"}[scene.level]
    scene = replace(scene, backdrop=kind)

    def spread(amount: float) -> float:
        return background_contrast(backdrop(replace(scene, backdrop_amount=amount), PROBE))

    amount = _bisect(spread, wanted, high=4.0)
    return replace(scene, backdrop_amount=amount, measured=spread(amount))


def _bisect(measure: Callable[[float], float], wanted: float, high: float = 1.0, steps: int = 8) -> float:
    """Where in [0, high] a measure that grows comes nearest to what is wanted, of the places that are tried.

    Noise and whole numbers of cells make some measures jump on their way: if bisection ends beside a jump, places
    around it are tried too.
    """
    low, top, tried = 0.0, high, {high: measure(high)}
    for _ in range(steps):
        middle = (low + top) / 2
        tried[middle] = measure(middle)
        low, top = (middle, top) if tried[middle] < wanted else (low, middle)
    if abs(tried[middle] - wanted) > 0.01 and 0.02 * high < middle < 0.98 * high:
        around = np.clip(np.linspace(middle - 0.12 * high, middle + 0.12 * high, 16), 0, high)
        tried |= {place: measure(place) for place in around.tolist()}
    return min(tried, key=lambda place: abs(tried[place] - wanted))


LOOKS: dict[str, Callable[[Scene, Hits, float], Scene]] = {
    "color": _color,
    "light": _light,
    "occlusion": _occlusion,
    "texture": _texture,
    "style": _style,
    "quality": _quality,
    "background": _background,
}

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
