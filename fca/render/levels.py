"""A scene for every (class, attribute, level, index, seed), placed in its level by a measurement in the image.

All levels of a triplet begin with the same jittered base scene. The object's place (view, rotation, size, position) is
then set from its mask, and its look (the other attributes) by bisection at 64 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from colorsys import hsv_to_rgb
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from jaxtyping import Float

from fca.render.draw import (
    COVERS,
    DARK,
    LIGHT,
    STYLES,
    TEXTURES,
    DrawnScene,
    backdrop,
    cover_field,
    draw,
    finish,
    surface,
)
from fca.render.march import Hits, march
from fca.render.objects import Model, model
from fca.render.scene import ATTRIBUTES, BACKGROUND, LEVELS, Colour, Mask, Scene
from fca.types import FcaError, check_choice, keyed_rng

MIN_COLOUR_DISTANCE = 0.28  # root mean square, of the object's colours, as lit, from the background's middle
MAX_DRAWS = 40  # of colours; the last ones are used even if they differ less
PAINTS = 12  # colours of a texture to choose from
LIT = 0.7  # mean brightness of a lit surface, as a share of its colour
USUAL_ELEVATION = 20.0
FILLED = 48  # pixels per side of the image that the object fills, in which its place is measured
PROBE = 64  # pixels per side of the image in which a look is measured
INSET = 0.25  # share of a band at each end that targets avoid, as bisection does not reach them exactly
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
R2 = (0.7548776662466927, 0.5698402909980532)  # steps of a sequence that fills the square evenly (Roberts 2018)

Colours = Float[np.ndarray, "... 3"]
Points = Float[np.ndarray, "2 pixels"]  # in the image, right and down of its centre
Measure = Callable[[Scene], float]


_BANDS: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    # root mean square distance of the object's colours from those behind it, of full scale
    "color": ("contrast", ((0.18, 1.0), (0.25, 0.3), (0.15, 0.18))),
    # mean luminance of the object's pixels
    "light": ("luminance", ((0.12, 1.0), (0.12, 0.14), (0.065, 0.08))),
    # share of the object's pixels behind the cover: medium as in the paper, hard within the paper's 70 to 90 %
    "occlusion": ("hidden_share", ((0.0, 0.0), (0.3, 0.5), (0.7, 0.8))),
    # share of the object outside the frame
    "position": ("outside_share", ((0.0, 0.0), (0.15, 0.27), (0.42, 0.52))),
    # correlation with the unchanged picture, around the object
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
    """An attribute's measure, and the lowest and highest value of a level. Raises FcaError for unknown names.

    >>> band("occlusion", "hard")
    ('hidden_share', 0.7, 0.8)
    """
    check_choice("attribute", attribute, (*ATTRIBUTES, BACKGROUND))
    check_choice("level", level, LEVELS)
    measure, ranges = _BANDS[attribute]
    return measure, *ranges[LEVELS.index(level)]


def scene_of(label: str, attribute: str, level: str, index: int, seed: int) -> Scene:
    """The scene of one image, in which one attribute (such as light or occlusion) has the given level of difficulty.

    For each attribute there is a measure, such as the hidden share of the object, and a range of its values for each
    level. The scene's measure gets a random value in the range of its level. All other attributes have their easy
    values, with a small random variation. The three levels of one (class, attribute, index, seed) are a matched
    triplet: they share everything except the attribute.

    The scene is a function of the arguments alone: it does not depend on the process or the order of calls.

    label: the class of the object.
    index: number of the image among those of the same class, attribute and level.

    Raises FcaError for unknown names and a negative index.

    >>> scene = scene_of("car", "occlusion", "hard", 7, 0)
    >>> scene.measure, 0.7 <= scene.measured <= 0.9
    ('hidden_share', True)
    """
    measure, low, high = band(attribute, level)
    if index < 0:
        raise FcaError("index", index, "0 or above", "take another index")

    scene = replace(base_scene(label, attribute, level, index, seed), measure=measure)
    # Draw the value that the measure should have. It is in the middle half of the range, because the search for it may
    # miss it slightly.
    margin = INSET * (high - low)
    target = float(keyed_rng(scene.noise_key, level).uniform(low + margin, high - margin))
    scene, hits = placed(scene, target)
    if attribute not in _LOOKS:  # view, rotation, size and position, which `placed` has set
        return scene
    if low == high:  # an easy level with only one value, which the unchanged scene has
        return replace(scene, measured=low)
    set_look = _LOOKS[attribute]  # a function for each of the other attributes, such as color or light
    return set_look(scene, at_probe_size(scene, hits), target)


# The measures that place an image in a level: properties of finished pixels or masks.


def contrast(picture: Colours, behind: Colours) -> float:
    """Root mean square difference between the colours of two pictures, or of a picture and one colour.

    Colours are RGB from 0 to 1, so the contrast of black and white is 1.

    >>> contrast(np.ones((2, 3)), np.zeros((2, 3)))
    1.0
    """
    return float(np.sqrt(np.square(picture - behind).mean()))


def luminance(drawn: DrawnScene) -> float:
    """Mean luminance of the pixels that show the object."""
    object_colours = np.clip(drawn.picture[drawn.visible], 0, 1)
    return float((object_colours @ LUMA).mean())


def extent(full: Mask) -> float:
    """Longer side of the mask's bounding box, as a share of the image's side.

    >>> extent(np.eye(4, dtype=bool))
    1.0
    """
    columns = np.flatnonzero(full.any(axis=0))
    rows = np.flatnonzero(full.any(axis=1))
    width = columns[-1] - columns[0] + 1
    height = rows[-1] - rows[0] + 1
    return float(max(width, height) / len(full))


def correlation(first: Colours, second: Colours) -> float:
    """Pearson correlation of the colours of two pictures, all channels together.

    >>> picture = np.arange(12.0).reshape(2, 2, 3)
    >>> round(correlation(picture, 1 - picture), 6)
    -1.0
    """
    a = first.ravel() - first.mean()
    b = second.ravel() - second.mean()
    # i: values; einsum sums in the order that stored scenes were made with
    return float(np.einsum("i,i", a, b) / np.sqrt(np.einsum("i,i", a, a) * np.einsum("i,i", b, b)))


# The default scene of a class with its jitter, before the attribute changes it.

_JITTER = {  # lowest and highest value, drawn in this order
    "azimuth": (-32.0, 32.0),  # relative to the class's usual one
    "elevation": (9.0, 33.0),
    "roll": (-14.0, 14.0),
    "scale": (0.44, 0.76),  # extent of the object; converted to the ball's radius when its mask is known
    "x": (-0.09, 0.09),
    "y": (-0.09, 0.09),
    "light_azimuth": (-60.0, 60.0),
    "light_elevation": (25.0, 65.0),
    "ambient": (0.4, 0.55),
    "exposure": (0.75, 1.1),
    "backdrop_amount": (0.1, 0.45),
}


def base_scene(label: str, attribute: str, level: str, index: int, seed: int) -> Scene:
    """The scene before its attribute is set: random proportions, pose, light and colours.

    It is the same for all levels of one (class, attribute, index, seed), because `level` is stored in it but does not
    enter the key of its random numbers.

    label: the class of the object.
    """
    key = f"{seed}/{label}/{attribute}/{index}"
    random = keyed_rng("fca.render", key)
    width, height, depth = random.uniform(0.88, 1.12, 3).tolist()

    # Each field in _JITTER (azimuth, elevation ... exposure) gets a random value in its range.
    lows, highs = np.transpose([*_JITTER.values()])
    jitter: dict[str, Any] = dict(zip(_JITTER, random.uniform(lows, highs).tolist(), strict=True))
    jitter["azimuth"] += model(label).azimuth  # drawn relative to the usual view of the class

    return Scene(
        label=label,
        attribute=attribute,
        level=level,
        index=index,
        seed=seed,
        noise_key=key,
        proportions=(width, height, depth),
        **jitter,
        **_colours(label, attribute, random),
    )


def _colours(label: str, attribute: str, random: np.random.Generator) -> dict[str, Any]:
    """Random colours of the object and of the background, as fields of a scene.

    color and accent are the colours of the object's main and second parts; backdrop_colors are two of the background.
    They are drawn again, up to MAX_DRAWS times, until object and background differ enough for the object to be visible.
    Half of all objects have the usual hue of their class, the others any hue. If the attribute under test is the color,
    all objects have the usual hue, so that only the contrast to the background makes them unusual.

    label: the class of the object.
    """
    has_usual_hue = attribute == "color" or random.random() < 0.5
    for _ in range(MAX_DRAWS):
        color, accent = _object_colours(model(label), has_usual_hue, random)
        first, second = _background_colours(random)

        middle = (np.array(first) + np.array(second)) / 2
        # A part of an object has one of four colours. In the picture they are darker, by the factor LIT on average.
        lit_tints = LIT * np.array([color, accent, DARK, LIGHT])
        squared_distances = np.square(lit_tints - middle).mean(axis=1)
        # The root mean square over the object's pixels: each colour counts by its share of them.
        distance = np.sqrt((_tint_shares(label) * squared_distances).sum())
        if distance > MIN_COLOUR_DISTANCE:
            break
    return {"color": color, "accent": accent, "backdrop_colors": (first, second)}


def _object_colours(usual_look: Model, has_usual_hue: bool, random: np.random.Generator) -> tuple[Colour, Colour]:
    """Random colours of an object's main parts and second parts; the second colour is darker and of a similar hue.

    usual_look:    the object's class, with its usual hue and saturation.
    has_usual_hue: else the hue is any.
    """
    hue = usual_look.hue + random.uniform(-0.04, 0.04) if has_usual_hue else random.random()
    saturation = float(np.clip(usual_look.saturation + random.uniform(-0.15, 0.15), 0.15, 1))
    value = random.uniform(0.6, 0.95)
    color = hsv_to_rgb(hue % 1, saturation, value)
    accent = hsv_to_rgb((hue + random.uniform(0.04, 0.12)) % 1, saturation * 0.9, value * 0.65)
    return color, accent


def _background_colours(random: np.random.Generator) -> tuple[Colour, Colour]:
    """Random colours of a background: two pale colours of similar hue and different brightness."""
    hue = random.random()
    first_value = random.uniform(0.3, 0.9)
    step = random.choice([-1, 1]) * random.uniform(0.1, 0.25)
    second_value = float(np.clip(first_value + step, 0.15, 1.0))
    first = hsv_to_rgb((hue + random.uniform(-0.05, 0.05)) % 1, random.uniform(0.1, 0.4), first_value)
    second = hsv_to_rgb((hue + random.uniform(-0.05, 0.05)) % 1, random.uniform(0.1, 0.4), second_value)
    return first, second


@lru_cache(maxsize=32)
def _tint_shares(label: str) -> Float[np.ndarray, "4"]:
    """Shares of the object's pixels, in its usual view, with the main, accent, dark and light colour."""
    hits = march(Scene(label, "color", "easy", 0, 0, "", azimuth=model(label).azimuth, scale=0.5), 48)
    tints = np.array([part.tint for part in model(label).parts])[hits.part]
    return np.array([(tints == tint).sum() for tint in ("main", "accent", "dark", "light")]) / len(tints)


# The object's place and the view: extent, position, rotation and view angle, from its mask.


def placed(scene: Scene, target: float) -> tuple[Scene, Hits]:
    """Put the object in its place: returns the scene, and the object's surface in an image that the object fills.

    First the angles are set, then the scale, then the position. Scale and position are measured on a small image of
    FILLED pixels a side, which shows the ball around the object at full width. (The ball is a sphere that holds the
    object; its radius is the unit of lengths.)

    In the scene that comes in, `scale` is the extent that the object should have: the longer side of its bounding box,
    as a share of the image's side. In the scene that is returned, `scale` is the radius of the ball, in the same unit:

        radius of the ball = extent of the object / (extent of the object in radii of the ball)

    target: the value that the measure of the scene's attribute should have. It is used only if the attribute is view,
            rotation, size or position.
    """
    if scene.attribute == "view":
        scene = _with_view(scene, target)
    if scene.attribute == "rotation":
        side = keyed_rng(scene.noise_key, "rotation").choice([-1.0, 1.0])  # to the left or to the right
        scene = replace(scene, roll=float(side) * target, measured=target)

    # With scale 0.5 the radius of the ball is half of the image's side, so the ball fills the image.
    hits = march(replace(scene, x=0.0, y=0.0, scale=0.5), FILLED)
    row, column = np.divmod(hits.pixels, FILLED)
    # The object as points, one in each of its pixels, at places that an evenly spread sequence (R2) gives. If all were
    # at the centres of pixels, whole columns of them would leave the frame at once when the object moves.
    offsets = np.stack([np.arange(len(column)) * step % 1 for step in R2])
    points = (np.stack([column, row]) + offsets) / FILLED * 2 - 1  # in radii of the ball

    # From the wanted extent to the radius of the ball: divide by the extent that the object has for a radius of 1.
    if scene.attribute == "size":
        scene = replace(scene, scale=target, measured=target)
    pixel = 2 / FILLED  # its side in radii; added, because the outermost points are inside their pixels
    extent_in_radii = float((points.max(axis=1) - points.min(axis=1)).max()) + pixel
    scene = replace(scene, scale=scene.scale / extent_in_radii)
    if scene.attribute == "position":
        scene = _with_shift(scene, points * scene.scale, target)
    return scene, hits


def at_probe_size(scene: Scene, hits: Hits) -> Hits:
    """The object's surface at its place in an image of PROBE pixels a side.

    This small image serves to measure how the object looks, such as its contrast with the background. The surface is
    resampled from the image that the object fills, which is faster than marching rays again. Nearest neighbours are
    exact to half a pixel of that image, which is enough to measure colours.

    scene: its x, y and scale are the place of the object.
    hits:  the surface in the image of FILLED pixels a side that the object fills, as `placed` returns it.
    """
    # For each pixel of the filled image, the number of the hit there; -1 beside the object.
    hit_of_filled = np.full((FILLED, FILLED), -1)
    hit_of_filled.reshape(-1)[hits.pixels] = np.arange(len(hits.pixels))

    # For each column and row of the probe: the column and row of the filled image that is seen there. The filled image
    # shows the ball around the object, from -1 to 1 radius. A point that is p sides of the probe from its middle is
    # (p - x) / scale radii from the middle of that ball.
    position = (np.arange(PROBE) + 0.5) / PROBE - 0.5
    filled_column = np.floor(((position - scene.x) / scene.scale + 1) / 2 * FILLED).astype(int)
    filled_row = np.floor(((position - scene.y) / scene.scale + 1) / 2 * FILLED).astype(int)
    # Only these columns and rows of the probe show a part of the filled image.
    columns = np.flatnonzero((filled_column >= 0) & (filled_column < FILLED))
    rows = np.flatnonzero((filled_row >= 0) & (filled_row < FILLED))

    hit_of_probe = np.full((PROBE, PROBE), -1)
    hit_of_probe[np.ix_(rows, columns)] = hit_of_filled[np.ix_(filled_row[rows], filled_column[columns])]
    pixels = np.flatnonzero(hit_of_probe >= 0)
    return replace(hits, pixels=pixels, points=hits.points[:, hit_of_probe.ravel()[pixels]])


def _view_angles(turns: Float[np.ndarray, " turns"], elevation: float) -> Float[np.ndarray, " turns"]:
    """Degrees between directions to the viewer and the usual one of the class, as between two points on a globe.

    cos angle = sin e sin u + cos e cos u cos turn,   e: elevation, u: the usual one, turn: difference of azimuths
    """
    e, u = np.radians([elevation, USUAL_ELEVATION])
    cosine = np.sin(e) * np.sin(u) + np.cos(e) * np.cos(u) * np.cos(np.radians(turns))
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def _with_view(scene: Scene, target: float) -> Scene:
    """The scene seen from a direction `target` degrees away from the usual one; easy views stay as they are.

    Most of the angle is in elevation, and the rest is a turn around the object. A turn alone would not change how a
    round object looks. The angle that is reached is stored as the scene's measure.
    """
    usual_azimuth = model(scene.label).azimuth
    if scene.level != "easy":
        random = keyed_rng(scene.noise_key, "view")
        rise = target * float(random.uniform(0.85, 1.0))
        # the view moves up or, in about a third of scenes, down; also down where it would pass 90, straight from above
        moves_down = USUAL_ELEVATION + rise > 90 or random.random() < 0.35
        elevation = USUAL_ELEVATION - rise if moves_down else USUAL_ELEVATION + rise

        # Try all turns to one side, in steps of a quarter degree, and take the one with the angle nearest to the
        # target.
        turns = random.choice([-1.0, 1.0]) * np.linspace(0, 180, 721)
        best_turn = turns[np.abs(_view_angles(turns, elevation) - target).argmin()]
        scene = replace(scene, azimuth=usual_azimuth + float(best_turn), elevation=elevation)

    angle = _view_angles(np.array([scene.azimuth - usual_azimuth]), scene.elevation)[0]
    return replace(scene, measured=float(angle))


def _with_shift(scene: Scene, points: Points, target: float) -> Scene:
    """The scene with the object pushed out of the frame, in one of eight directions, until `target` of it is outside.

    Easy positions stay as they are. The share that is reached is stored as the scene's measure.

    points: of the object, right and down of its centre, in sides of the image. The share is the share of these points.
    """
    if scene.level == "easy":
        return replace(scene, measured=_outside_share(points, scene.x, scene.y))

    angle = float(keyed_rng(scene.noise_key, "position").integers(8)) * np.pi / 4
    right = float(np.cos(angle))
    down = float(np.sin(angle))
    # Bisection on the distance from the centre, in sides of the image: at 1.5 all of the object is outside.
    low, high = 0.0, 1.5
    for _ in range(20):
        middle = (low + high) / 2
        if _outside_share(points, right * middle, down * middle) < target:
            low = middle
        else:
            high = middle
    return replace(scene, x=right * high, y=down * high, measured=_outside_share(points, right * high, down * high))


def _outside_share(points: Points, x: float, y: float) -> float:
    """Share of the points that a shift by (x, y) moves out of the image."""
    is_outside = np.abs(points + np.array([[x], [y]])) > 0.5
    return float(is_outside.any(axis=0).mean())


# The looks: each function sets the scene's attribute so that its measure is the target.


def _color(scene: Scene, hits: Hits, target: float) -> Scene:
    """The scene in which the object is mixed with the background behind it, until their contrast is the target.

    The contrast is the root mean square difference between the colours of the object's pixels and of the background
    behind them. Easy scenes stay as they are.

    hits: the pixels that show the object, in an image of PROBE pixels a side.
    """
    behind = backdrop(scene, PROBE).reshape(-1, 3)[hits.pixels]

    def measured(changed: Scene) -> float:
        """The contrast in a scene that differs from `scene` only in its blend."""
        return contrast(np.clip(surface(changed, hits, behind), 0, 1), behind)

    if scene.level == "easy":
        return replace(scene, measured=measured(scene))
    return _fitted([scene], "blend", measured, target, sign=-1)


def _light(scene: Scene, hits: Hits, target: float) -> Scene:
    """The scene with less light, so that the mean luminance of the object is the target.

    In hard scenes the lamp also shines from below, and is twice as far to the side. Easy scenes stay as they are.

    hits: the pixels that show the object, in an image of PROBE pixels a side.
    """
    if scene.level == "hard":
        scene = replace(scene, light_azimuth=scene.light_azimuth * 2, light_elevation=-15.0)
    present_luminance = luminance(draw(scene, hits, PROBE))
    if scene.level == "easy":
        return replace(scene, measured=present_luminance)

    # Luminance is nearly proportional to exposure. It is measured again, because bright pixels are clipped.
    scene = replace(scene, exposure=scene.exposure * target / present_luminance)
    return replace(scene, measured=luminance(draw(scene, hits, PROBE)))


def hidden(scene: Scene, hits: Hits, target: float) -> Scene:
    """The scene with a cover in front of the object that hides the share `target` of its pixels.

    hits: the pixels that show the object without a cover, in an image of PROBE pixels a side.
    """
    random = keyed_rng(scene.noise_key, "occlusion")
    # The cover has a shade of the background, so that it does not attract a network.
    shade = np.array(scene.backdrop_colors[0]) * random.uniform(0.8, 0.92)
    red, green, blue = shade.tolist()
    scene = replace(scene, cover=str(random.choice(COVERS)), cover_color=(red, green, blue))

    # The cover is where its field is below a limit, so the limit is a quantile of the field over the object's pixels.
    values = cover_field(scene, PROBE).reshape(-1)[hits.pixels]
    limit = float(np.quantile(values, target))
    return replace(scene, cover_limit=limit, measured=float((values < limit).mean()))


def _texture(scene: Scene, hits: Hits, target: float) -> Scene:
    """The scene with a pattern on the object, strong enough for the measure `pattern_share` to reach the target.

    pattern_share is the contrast of the textured object with the plain object, divided by the contrast of the plain
    object with the background. A contrast is the root mean square difference of colours. Several colours and patterns
    are tried, because not all reach the target.

    hits: the pixels that show the object in an image of PROBE pixels a side, and its surface there.
    """
    behind = backdrop(scene, PROBE).reshape(-1, 3)[hits.pixels]
    plain = np.clip(surface(scene, hits, behind), 0, 1)
    contrast_with_background = contrast(plain, behind)

    def measured(changed: Scene) -> float:
        """The measure of a scene that differs from `scene` only in its texture."""
        textured = np.clip(surface(changed, hits, behind), 0, 1)
        return contrast(textured, plain) / contrast_with_background

    textures = keyed_rng(scene.noise_key, "pattern").permutation(TEXTURES[1:]).tolist()  # all but `plain`
    scenes = (
        replace(scene, texture=texture, texture_color=colour)
        for colour in _texture_colours(scene)
        for texture in textures
    )
    # The first scene that comes near the target with its best texture_amount, or else the nearest one.
    return _fitted(scenes, "texture_amount", measured, target)


def _texture_colours(scene: Scene) -> list[Colour]:
    """Four colours to try for a texture, the most promising first. A texture consists of a colour and its complement.

    The first three are the colours, out of PAINTS random ones, that are farthest from the colours of object and
    background when they are lit. The last is white: with its complement, black, it changes the object most.
    """
    random = keyed_rng(scene.noise_key, "paint")
    # The colours as they appear in the picture: those of the object are darker when lit, and a background is not lit.
    colours_of_scene = np.stack(
        [LIT * np.array(scene.color), LIT * np.array(scene.accent), *np.array(scene.backdrop_colors)]
    )

    def squared_distance(colour: Colour) -> float:
        """Mean squared difference between a colour, when lit, and the nearest colour of the scene."""
        return float(np.square(LIT * np.array(colour) - colours_of_scene).mean(axis=1).min())

    candidates = [hsv_to_rgb(*random.uniform((0, 0.2, 0.05), (1, 1, 1))) for _ in range(PAINTS)]
    farthest_first = sorted(candidates, key=lambda colour: -squared_distance(colour))
    white = (1.0, 1.0, 1.0)
    return [*farthest_first[:3], white]


def _finished(scene: Scene, hits: Hits, target: float) -> Scene:
    """The scene in another style or with less quality, so that its correlation with the plain picture is the target.

    That is Pearson's correlation of the colours in a rectangle around the object: the bounding box of its mask,
    extended by a tenth of its longer side in each direction. The attribute of the scene is style or quality. For style,
    scenes of all styles are tried in random order.
    """
    if scene.attribute == "style":
        styles = keyed_rng(scene.noise_key, "style").permutation(list(STYLES)).tolist()
        scenes = [replace(scene, style=style) for style in styles]
        field = "style_amount"
    else:
        scenes = [scene]
        field = "quality"

    plain = draw(scene, hits, PROBE)  # the picture is PROBE pixels wide; `plain.full` is the object's mask in it
    margin = max(1, round(0.1 * extent(plain.full) * PROBE))  # extent: the longer side, as a share of the picture's
    rows = np.flatnonzero(plain.full.any(axis=1))
    columns = np.flatnonzero(plain.full.any(axis=0))
    around_object = (
        slice(max(int(rows[0]) - margin, 0), int(rows[-1]) + margin + 1),
        slice(max(int(columns[0]) - margin, 0), int(columns[-1]) + margin + 1),
    )

    def measured(changed: Scene) -> float:
        """The correlation of the plain picture with the same picture in the style and quality of `changed`."""
        return correlation(finish(changed, plain.picture)[around_object], plain.picture[around_object])

    # The first scene that comes near the target with its best value of the field, or else the nearest one.
    # -1: the correlation falls as the field grows; a larger `quality` is a larger loss
    return _fitted(scenes, field, measured, target, sign=-1)


def _background(scene: Scene, hits: Hits, target: float) -> Scene:
    """The scene with a background whose contrast is the target: plain if easy, a pattern if medium, clutter if hard.

    The contrast is the root mean square distance of the background's colours from their mean.

    hits: not used; all functions that set a look take it.
    """
    pattern = str(keyed_rng(scene.noise_key, "background").choice(["stripes", "checks"]))
    backdrop_of_level = {"easy": "plain", "medium": pattern, "hard": "clutter"}

    def measured(changed: Scene) -> float:
        """The contrast of the background of a scene."""
        behind = backdrop(changed, PROBE)
        return contrast(behind, behind.mean(axis=(0, 1)))

    scene = replace(scene, backdrop=backdrop_of_level[scene.level])
    # The two colours of a background are alike, so a high contrast needs colours far beyond them, clipped to [0, 1].
    return _fitted([scene], "backdrop_amount", measured, target, high=4.0)


_LOOKS: dict[str, Callable[[Scene, Hits, float], Scene]] = {
    "color": _color,
    "light": _light,
    "occlusion": hidden,
    "texture": _texture,
    "style": _finished,
    "quality": _finished,
    "background": _background,
}


def _fitted(
    scenes: Iterable[Scene], field: str, measure: Measure, target: float, sign: int = 1, high: float = 1.0
) -> Scene:
    """Find the value of a field with which a scene's measure is the target.

    The search ends at the first of `scenes` that comes within 0.02 of the target with its best value: with several
    scenes, that is near enough for the range of the level. If none does, the result is the one whose measure is nearest
    to the target. The measure is stored in `measured`.

    scenes:  those to try, in random order or the most promising first.
    field:   a field of Scene, which gets a value from 0 to `high`.
    measure: a function that measures a scene, such as its contrast.
    sign:    1 for a measure that rises with the field, -1 for one that falls.
    """
    fitted: list[Scene] = []
    for scene in scenes:
        fitted.append(_bisected(scene, field, measure, target, sign, high))
        if abs(fitted[-1].measured - target) < 0.02:
            break
    return min(fitted, key=lambda scene: abs(scene.measured - target))


def _bisected(scene: Scene, field: str, measure: Measure, target: float, sign: int, high: float) -> Scene:
    """Find the value of a field with which the scene's measure is nearest to the target: the scene with that value.

    The search bisects the range from 0 to `high`. Noise and whole numbers of sensor cells make some measures jump: if
    bisection ends beside a jump, values around that place are tried, too.

    field: a field of Scene.
    sign:  1 for a measure that rises with the field, -1 for one that falls.
    """
    change: Any = partial(replace, scene)

    def measured_at(amount: float) -> Scene:
        """The scene with this amount in the field, and with its measure in `measured`."""
        changed = change(**{field: amount})
        return replace(changed, measured=measure(changed))

    lower, upper = 0.0, high
    tried = [measured_at(high)]  # bisection itself only comes near the end of the range
    for _ in range(8):
        middle = (lower + upper) / 2
        tried.append(measured_at(middle))
        is_below_target = sign * (tried[-1].measured - target) < 0
        if is_below_target:
            lower = middle
        else:
            upper = middle

    # Bisection missed the target. At an end of the range the target is out of reach; anywhere else the measure jumps.
    is_beside_jump = abs(tried[-1].measured - target) > 0.01 and 0.02 * high < middle < 0.98 * high
    if is_beside_jump:
        neighbours = np.clip(np.linspace(middle - 0.12 * high, middle + 0.12 * high, 16), 0, high)
        tried += [measured_at(amount) for amount in neighbours.tolist()]
    return min(tried, key=lambda scene: abs(scene.measured - target))
