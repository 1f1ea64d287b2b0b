"""A scene for every (class, attribute, level, index, seed), placed in its level by what is measured in the image.

All levels of a triplet begin with the same base scene, jittered. The object's place (view, rotation, size, position) is
then set from its mask, and how it looks (the other attributes) by bisection at 64 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from colorsys import hsv_to_rgb
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from jaxtyping import Float

from fca.render.draw import COVERS, DARK, LIGHT, STYLES, TEXTURES, Drawn, backdrop, cover_field, draw, finish, surface
from fca.render.march import Hits, march
from fca.render.objects import model
from fca.render.scene import ATTRIBUTES, BACKGROUND, LEVELS, Mask, Scene
from fca.types import FcaError, check_choice, generator

CLEAR = 0.28  # least root mean square distance of the object's colours, half lit, from the background's middle
TRIES = 40
PAINTS = 12  # colours of a texture to choose from
LIT = 0.7  # of a colour is what a surface shows on average
USUAL_ELEVATION = 20.0
OWN = 48  # pixels a side of the image in which an object is measured: it fills it
PROBE = 64  # pixels a side of the image in which a look is measured
INSET = 0.25  # of a band is kept at each end for what bisection cannot reach exactly
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
R2 = (0.7548776662466927, 0.5698402909980532)  # steps of a sequence that fills the square evenly (Roberts 2018)

Colours = Float[np.ndarray, "... 3"]
Points = Float[np.ndarray, "2 pixels"]  # in the image: right and down
Measure = Callable[[Scene], float]


_BANDS: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    # root mean square distance of the object's colours from those behind it, of full scale
    "color": ("contrast", ((0.18, 1.0), (0.25, 0.3), (0.15, 0.18))),
    # mean luminance of the object's pixels
    "light": ("luminance", ((0.12, 1.0), (0.12, 0.14), (0.065, 0.08))),
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
    "texture": ("pattern_share", ((0.0, 0.0), (0.28, 0.38), (0.44, 0.56))),
    # degrees between the direction to the viewer and the usual one
    "view": ("degrees", ((0.0, 37.0), (42.0, 54.0), (62.0, 80.0))),
    # root mean square distance of the background's pixels from their mean
    "background": ("background_contrast", ((0.0, 0.05), (0.12, 0.16), (0.22, 0.28))),
}


def band(attribute: str, level: str) -> tuple[str, float, float]:
    """An attribute's measure, and the lowest and highest value of a level. Raises FcaError for names that are none.

    >>> band("occlusion", "hard")
    ('hidden_share', 0.7, 0.8)
    """
    check_choice("attribute", attribute, (*ATTRIBUTES, BACKGROUND))
    check_choice("level", level, LEVELS)
    measure, ranges = _BANDS[attribute]
    return measure, *ranges[LEVELS.index(level)]


def scene_of(label: str, attribute: str, level: str, index: int, seed: int) -> Scene:
    """The scene of an image, by name; the same for the same arguments in any process or order.

    The three levels of one (class, attribute, index, seed) are a matched triplet: they share everything but what makes
    the level. All other attributes are at their easy values, with a jitter.

    Raises FcaError for unknown names and a negative index.

    >>> scene = scene_of("car", "occlusion", "hard", 7, 0)
    >>> scene.measure, 0.7 <= scene.measured <= 0.9
    ('hidden_share', True)
    """
    measure, low, high = band(attribute, level)
    if index < 0:
        raise FcaError("index", index, "0 or above", "take another index")
    scene = replace(base_scene(label, attribute, level, index, seed), measure=measure)
    margin = INSET * (high - low)
    target = float(generator(scene.noise_key, level).uniform(low + margin, high - margin))
    scene, hits = placed(scene, target)
    if attribute not in _LOOKS:
        return scene
    if low == high:  # an easy level in which nothing is changed
        return replace(scene, measured=low)
    return _LOOKS[attribute](scene, at_probe_size(scene, hits), target)


# What is measured in an image to place it in a level: properties of finished pixels or masks.


def contrast(picture: Colours, behind: Colours) -> float:
    """Root mean square distance of the colours of two pictures, or of one from a single colour, of full scale.

    >>> contrast(np.ones((2, 3)), np.zeros((2, 3)))
    1.0
    """
    return float(np.sqrt(np.square(picture - behind).mean()))


def luminance(drawn: Drawn) -> float:
    """Mean luminance of the pixels that show the object."""
    return float((np.clip(drawn.picture[drawn.visible], 0, 1) @ LUMA).mean())


def extent(full: Mask) -> float:
    """Longer side of the mask's bounding box, as a share of the image's side.

    >>> extent(np.eye(4, dtype=bool))
    1.0
    """
    sides = [np.flatnonzero(full.any(axis=axis)) for axis in (0, 1)]
    return float(max(side[-1] - side[0] + 1 for side in sides) / len(full))


def correlation(first: Colours, second: Colours) -> float:
    """Pearson correlation of the colours of two pictures, all channels together.

    >>> picture = np.arange(12.0).reshape(2, 2, 3)
    >>> round(correlation(picture, 1 - picture), 6)
    -1.0
    """
    a, b = (one.ravel() - one.mean() for one in (first, second))
    return float(np.einsum("i,i", a, b) / np.sqrt(np.einsum("i,i", a, a) * np.einsum("i,i", b, b)))


# The usual scene of a class, jittered: what every image shares but what its attribute changes.

_JITTER = {  # lowest and highest value, drawn in this order
    "azimuth": (-32.0, 32.0),  # from the class's usual one
    "elevation": (9.0, 33.0),
    "roll": (-14.0, 14.0),
    "scale": (0.44, 0.76),  # of the longer side; made the ball's radius when the object's mask is known
    "x": (-0.09, 0.09),
    "y": (-0.09, 0.09),
    "light_azimuth": (-60.0, 60.0),
    "light_elevation": (25.0, 65.0),
    "ambient": (0.4, 0.55),
    "exposure": (0.75, 1.1),
    "backdrop_amount": (0.1, 0.45),
}


def base_scene(label: str, attribute: str, level: str, index: int, seed: int) -> Scene:
    """The scene before its attribute is set: the same for all levels of a (class, attribute, index, seed)."""
    key = f"{seed}/{label}/{attribute}/{index}"
    random = generator("fca.render", key)
    x, y, z = random.uniform(0.88, 1.12, 3).tolist()
    drawn = random.uniform(*np.transpose([*_JITTER.values()])).tolist()
    jitter: dict[str, Any] = dict(zip(_JITTER, drawn, strict=True))
    jitter["azimuth"] += model(label).azimuth
    return Scene(label, attribute, level, index, seed, key, (x, y, z), **jitter, **_colours(label, attribute, random))


def _colours(label: str, attribute: str, random: np.random.Generator) -> dict[str, Any]:
    """Of the object's main and second parts, and of the background: drawn again until they are far enough apart.

    Half of all objects have their class's usual hue (all do whose color is tested), the others any.
    """
    known = model(label)
    usual_hue = attribute == "color" or random.random() < 0.5
    for _ in range(TRIES):
        hue = known.hue + random.uniform(-0.04, 0.04) if usual_hue else random.random()
        saturation = float(np.clip(known.saturation + random.uniform(-0.15, 0.15), 0.15, 1))
        value = random.uniform(0.6, 0.95)
        color = hsv_to_rgb(hue % 1, saturation, value)
        accent = hsv_to_rgb((hue + random.uniform(0.04, 0.12)) % 1, saturation * 0.9, value * 0.65)
        back, level = random.random(), random.uniform(0.3, 0.9)
        step = random.choice([-1, 1]) * random.uniform(0.1, 0.25)
        ends = (level, float(np.clip(level + step, 0.15, 1.0)))
        first, second = (
            hsv_to_rgb((back + random.uniform(-0.05, 0.05)) % 1, random.uniform(0.1, 0.4), end) for end in ends
        )
        middle = (np.array(first) + np.array(second)) / 2
        far = np.square(LIT * np.array([color, accent, DARK, LIGHT]) - middle).mean(axis=1)
        if np.sqrt((_tint_shares(label) * far).sum()) > CLEAR:
            break
    return {"color": color, "accent": accent, "backdrop_colors": (first, second)}


@lru_cache(maxsize=32)
def _tint_shares(label: str) -> Float[np.ndarray, "4"]:
    """How much of the object, as usually seen, has its main, accent, dark and light colour."""
    hits = march(Scene(label, "color", "easy", 0, 0, "", azimuth=model(label).azimuth, scale=0.5), 48)
    tints = np.array([part.tint for part in model(label).parts])[hits.part]
    return np.array([(tints == tint).sum() for tint in ("main", "accent", "dark", "light")]) / len(tints)


# Where the object is and from where it is seen: extent, position, rotation and view, from its mask.


def placed(scene: Scene, target: float) -> tuple[Scene, Hits]:
    """The scene with its place in the image: angles first, then the extent they lead to, then the shift.

    Beside it the hits of the image that the object fills, from which the place was measured.
    """
    if scene.attribute == "view":
        scene = _viewed(scene, target)
    if scene.attribute == "rotation":
        side = generator(scene.noise_key, "rotation").choice([-1.0, 1.0])
        scene = replace(scene, roll=float(side) * target, measured=target)
    hits = march(replace(scene, x=0.0, y=0.0, scale=0.5), OWN)
    down, right = np.divmod(hits.pixels, OWN)
    # a point within each pixel, or whole columns would leave the frame at once
    within = np.stack([np.arange(len(right)) * step % 1 for step in R2])
    own = (np.stack([right, down]) + within) / OWN * 2 - 1
    longest = float((own.max(axis=1) - own.min(axis=1)).max()) + 2 / OWN
    if scene.attribute == "size":
        scene = replace(scene, scale=target, measured=target)
    scene = replace(scene, scale=scene.scale / longest)
    return (_shifted(scene, own * scene.scale, target) if scene.attribute == "position" else scene), hits


def at_probe_size(scene: Scene, hits: Hits) -> Hits:
    """The hits at the object's place in an image of PROBE pixels a side, from those of the image that it fills.

    Nearest neighbours: right to half a pixel of that image, which is enough to measure colours.
    """
    filled = np.full(OWN * OWN, -1)
    filled[hits.pixels] = np.arange(len(hits.pixels))
    at = (np.arange(PROBE) + 0.5) / PROBE - 0.5
    column, row = (np.floor(((at - c) / scene.scale + 1) / 2 * OWN).astype(int) for c in (scene.x, scene.y))
    columns, rows = (np.flatnonzero((one >= 0) & (one < OWN)) for one in (column, row))
    found = np.full((PROBE, PROBE), -1)
    found[np.ix_(rows, columns)] = filled.reshape(OWN, OWN)[np.ix_(row[rows], column[columns])]
    pixels = np.flatnonzero(found >= 0)
    return replace(hits, pixels=pixels, points=hits.points[:, found.ravel()[pixels]])


def _view_angles(around: Float[np.ndarray, " ways"], elevation: float) -> Float[np.ndarray, " ways"]:
    """Degrees between directions to the viewer and the usual one of the class, as between two points of a globe."""
    e, usual = np.radians([elevation, USUAL_ELEVATION])
    cosine = np.sin(e) * np.sin(usual) + np.cos(e) * np.cos(usual) * np.cos(np.radians(around))
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def _viewed(scene: Scene, target: float) -> Scene:
    """The viewer goes up, over or under the object: round objects look the same from all sides at one height.

    Easy views stay as drawn; a harder one turns by most of its angle in height, and by the rest around.
    """
    usual_azimuth = model(scene.label).azimuth
    if scene.level != "easy":
        random = generator(scene.noise_key, "view")
        rise = target * float(random.uniform(0.85, 1.0))
        under = USUAL_ELEVATION + rise > 90 or random.random() < 0.35
        elevation = USUAL_ELEVATION - rise if under else USUAL_ELEVATION + rise
        around = random.choice([-1.0, 1.0]) * np.linspace(0, 180, 721)
        turn = around[np.abs(_view_angles(around, elevation) - target).argmin()]
        scene = replace(scene, azimuth=usual_azimuth + float(turn), elevation=elevation)
    angle = _view_angles(np.array([scene.azimuth - usual_azimuth]), scene.elevation)[0]
    return replace(scene, measured=float(angle))


def _shifted(scene: Scene, own: Points, target: float) -> Scene:
    """The object pushed out of the frame in some direction until the target share of it is outside."""
    if scene.level == "easy":
        return replace(scene, measured=_outside(own, scene.x, scene.y))
    turn = float(generator(scene.noise_key, "position").integers(8)) * np.pi / 4
    a, b = float(np.cos(turn)), float(np.sin(turn))
    low, high = 0.0, 1.5
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if _outside(own, a * middle, b * middle) < target else (low, middle)
    return replace(scene, x=a * high, y=b * high, measured=_outside(own, a * high, b * high))


def _outside(own: Points, x: float, y: float) -> float:
    """Share of the pixels that a shift by (x, y) brings outside the image."""
    return float((np.abs(own + np.array([[x], [y]])) > 0.5).any(axis=0).mean())


# How the object and its picture look: the scene with its attribute set so that what is measured is the target.


def _color(scene: Scene, hits: Hits, target: float) -> Scene:
    """Every colour of the object is pulled towards the background's behind it."""
    behind = backdrop(scene, PROBE).reshape(-1, 3)[hits.pixels]

    def measured(changed: Scene) -> float:
        return contrast(np.clip(surface(changed, hits, behind), 0, 1), behind)

    if scene.level == "easy":
        return replace(scene, measured=measured(scene))
    return _fitted([scene], "blend", measured, target, sign=-1)


def _light(scene: Scene, hits: Hits, target: float) -> Scene:
    """Less light for the whole image; in the hard level the lamp stands low, behind the object's back."""
    if scene.level == "hard":
        scene = replace(scene, light_azimuth=scene.light_azimuth * 2, light_elevation=-15.0)
    bright = luminance(draw(scene, hits, PROBE))
    if scene.level == "easy":
        return replace(scene, measured=bright)
    scene = replace(scene, exposure=scene.exposure * target / bright)
    return replace(scene, measured=luminance(draw(scene, hits, PROBE)))


def hidden(scene: Scene, hits: Hits, target: float) -> Scene:
    """The cover reaches as far as hides the target share of the object's pixels."""
    random = generator(scene.noise_key, "occlusion")
    shade = np.array(scene.backdrop_colors[0]) * random.uniform(0.8, 0.92)  # or the cover is what a network looks at
    red, green, blue = shade.tolist()
    scene = replace(scene, cover=str(random.choice(COVERS)), cover_color=(red, green, blue))
    values = cover_field(scene, PROBE).reshape(-1)[hits.pixels]
    limit = float(np.quantile(values, target))
    return replace(scene, cover_limit=limit, measured=float((values < limit).mean()))


def _texture(scene: Scene, hits: Hits, target: float) -> Scene:
    """A pattern on the surface, in a colour that is neither the object's nor the background's."""
    behind = backdrop(scene, PROBE).reshape(-1, 3)[hits.pixels]
    plain = np.clip(surface(scene, hits, behind), 0, 1)
    whole = contrast(plain, behind)

    def measured(changed: Scene) -> float:
        return contrast(np.clip(surface(changed, hits, behind), 0, 1), plain) / whole

    kinds = generator(scene.noise_key, "pattern").permutation(TEXTURES[1:]).tolist()
    ways = ((kind, paint) for paint in _foreign_colours(scene) for kind in kinds)
    scenes = (replace(scene, texture=kind, texture_color=paint) for kind, paint in ways)
    return _fitted(scenes, "texture_amount", measured, target)


def _foreign_colours(scene: Scene) -> list[tuple[float, float, float]]:
    """Paints: first the one that, lit, is farthest from the colours of object and background; the last is white."""
    random = generator(scene.noise_key, "paint")
    known = np.stack([LIT * np.array(scene.color), LIT * np.array(scene.accent), *np.array(scene.backdrop_colors)])
    paints = [hsv_to_rgb(*random.uniform((0, 0.2, 0.05), (1, 1, 1))) for _ in range(PAINTS)]
    paints.sort(key=lambda paint: -float(np.square(LIT * np.array(paint) - known).mean(axis=1).min()))
    return [*paints[:3], (1.0, 1.0, 1.0)]  # with black, its complement: what changes most


def _finished(scene: Scene, hits: Hits, target: float) -> Scene:
    """Another style or less quality, until the finished picture has the target correlation with the plain one.

    It is measured in the square around the mask, a tenth of its longer side wider each way.
    """
    scenes, field = [scene], "quality"
    if scene.attribute == "style":
        kinds = generator(scene.noise_key, "style").permutation(list(STYLES)).tolist()
        scenes, field = [replace(scene, style=kind) for kind in kinds], "style_amount"
    plain = draw(scene, hits, PROBE)
    more = max(1, round(0.1 * extent(plain.full) * PROBE))
    sides = (np.flatnonzero(plain.full.any(axis=axis)) for axis in (1, 0))
    where = tuple(slice(max(int(side[0]) - more, 0), int(side[-1]) + more + 1) for side in sides)

    def measured(changed: Scene) -> float:
        return correlation(finish(changed, plain.picture)[where], plain.picture[where])

    return _fitted(scenes, field, measured, target, sign=-1)


def _background(scene: Scene, hits: Hits, target: float) -> Scene:
    """Plain, then a pattern of two colours, then clutter of many."""
    random = generator(scene.noise_key, "background")
    kind = {"easy": "plain", "medium": str(random.choice(["stripes", "checks"])), "hard": "clutter"}[scene.level]

    def measured(changed: Scene) -> float:
        behind = backdrop(changed, PROBE)
        return contrast(behind, behind.mean(axis=(0, 1)))

    return _fitted([replace(scene, backdrop=kind)], "backdrop_amount", measured, target, high=4.0)


_LOOKS: dict[str, Callable[[Scene, Hits, float], Scene]] = {
    "color": _color, "light": _light, "occlusion": hidden, "texture": _texture, "style": _finished,
    "quality": _finished, "background": _background,
}  # fmt: skip


def _fitted(
    scenes: Iterable[Scene], field: str, measure: Measure, target: float, sign: int = 1, high: float = 1.0
) -> Scene:
    """The first scene that comes within 0.02 of the target by its best `field` in [0, high]; if none does, the nearest.

    sign: 1 for a measure that rises with the field, -1 for one that falls.
    """
    fitted: list[Scene] = []
    for scene in scenes:
        fitted.append(_bisected(scene, field, measure, target, sign, high))
        if abs(fitted[-1].measured - target) < 0.02:
            break
    return min(fitted, key=lambda scene: abs(scene.measured - target))


def _bisected(scene: Scene, field: str, measure: Measure, target: float, sign: int, high: float) -> Scene:
    """The scene with that value of `field`, of those that are tried, which brings its measure nearest to the target.

    Noise and whole numbers of cells make some measures jump on their way: if bisection ends beside a jump, places
    around it are tried too.
    """
    change: Any = partial(replace, scene)

    def at(amount: float) -> Scene:
        return change(**{field: amount}, measured=measure(change(**{field: amount})))

    low, top, tried = 0.0, high, [at(high)]
    for _ in range(8):
        middle = (low + top) / 2
        tried.append(at(middle))
        low, top = (middle, top) if sign * (tried[-1].measured - target) < 0 else (low, middle)
    if abs(tried[-1].measured - target) > 0.01 and 0.02 * high < middle < 0.98 * high:
        around = np.clip(np.linspace(middle - 0.12 * high, middle + 0.12 * high, 16), 0, high)
        tried += map(at, around.tolist())
    return min(tried, key=lambda scene: abs(scene.measured - target))
