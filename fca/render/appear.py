"""How the object and its picture look: color, light, occlusion, quality, style, texture, background, by measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fca.render import measures
from fca.render.backdrop import backdrop
from fca.render.cover import COVERS, cover_field
from fca.render.draw import draw, finished
from fca.render.effects import STYLES
from fca.render.march import Hits
from fca.render.place import seen_at
from fca.render.scene import Scene, generator
from fca.render.surface import TEXTURES, surface

PROBE = 64  # pixels a side of the image that is measured


def looking(scene: Scene, own: Hits, wanted: float) -> Scene:
    """The scene with its attribute set so that what is measured at 64 pixels is as wanted; `measured` says it."""
    if scene.attribute not in LOOKS:
        return scene
    return LOOKS[scene.attribute](scene, seen_at(scene, own, PROBE), wanted)


def _color(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """Every colour of the object is pulled towards the background's behind it."""
    behind = backdrop(scene, PROBE).reshape(-1, 3)[hits.pixels]

    def contrast(blend: float) -> float:
        return measures.contrast(np.clip(surface(replace(scene, blend=blend), hits, behind), 0, 1), behind)

    blend = 0.0 if scene.level == "easy" else _bisect(lambda blend: -contrast(blend), -wanted)
    return replace(scene, blend=blend, measured=contrast(blend))


def _light(scene: Scene, hits: Hits, wanted: float) -> Scene:
    """Less light for the whole image; in the hard level the lamp stands low, behind the object's back."""
    if scene.level == "hard":
        scene = replace(scene, light_azimuth=scene.light_azimuth * 2, light_elevation=-15.0)
    bright = measures.luminance(draw(scene, hits, PROBE))
    if scene.level == "easy":
        return replace(scene, measured=bright)
    scene = replace(scene, exposure=scene.exposure * wanted / bright)
    return replace(scene, measured=measures.luminance(draw(scene, hits, PROBE)))


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
    whole = measures.contrast(plain, behind)

    def patterned(kind: str) -> Tried:
        def made(amount: float) -> Scene:
            return replace(scene, texture=kind, texture_color=(red, green, blue), texture_amount=amount)

        def change(amount: float) -> float:
            return measures.contrast(np.clip(surface(made(amount), hits, behind), 0, 1), plain) / whole

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
    where = measures.around(plain.full)

    def tried(way: Callable[[float], Scene]) -> Tried:
        def lost(amount: float) -> float:
            return -measures.correlation(finished(way(amount), plain.picture)[where], plain.picture[where])

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
        return measures.background_contrast(backdrop(replace(scene, backdrop_amount=amount), PROBE))

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
