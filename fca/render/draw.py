"""From a scene to its pixels: background, the object's surface, its cover, light, style and quality.

All patterns are random pictures that look the same at any size: small random grids, enlarged.
"""

from __future__ import annotations

import colorsys
import io
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw

from fca.render.march import Hits, Plane, Points, march
from fca.render.scene import Mask, Picture, Rendered, Scene
from fca.types import FcaError, check_choice, keyed_rng

SIZES = (8, 2048)  # smallest and largest side in pixels
BACKDROPS = ("plain", "clouds", "stripes", "checks", "clutter")
COVERS = ("wall", "slats", "leaves", "blocks")
TEXTURES = ("plain", "checks", "stripes", "dots", "patches")
DARK, LIGHT = (0.13, 0.13, 0.15), (0.88, 0.86, 0.8)
GRAIN = 0.012  # standard deviation of a camera's noise, of full scale, whatever the light

Field = Float[np.ndarray, "size size"]
Colours = Float[np.ndarray, "points 3"]


class DrawnScene(NamedTuple):
    """A picture with values in [0, 1], and its masks as in Rendered."""

    picture: Picture
    visible: Mask
    full: Mask


def render(scene: Scene, size: int) -> Rendered:
    """The image of a scene with its exact masks: a pixel shows the object where the ray through its centre meets it.

    size: of the square image, 8 to 2,048 pixels per side; raises FcaError otherwise.

    >>> from fca.render import scene_of
    >>> image, visible, full = render(scene_of("mug", "occlusion", "medium", 0, 0), 32)
    >>> image.shape, bool(visible.sum() < full.sum())
    ((32, 32, 3), True)
    """
    if not SIZES[0] <= size <= SIZES[1]:
        raise FcaError("size", size, f"{SIZES[0]} to {SIZES[1]} pixels", "take another size")
    drawn = draw(scene, march(scene, size), size)
    return Rendered(_to_bytes(drawn.picture), drawn.visible, drawn.full)


def draw(scene: Scene, hits: Hits, size: int) -> DrawnScene:
    """Draw a scene from back to front: background, object, cover; then apply its exposure, style and quality.

    A cover is something in front of the object that hides a part of it. Returns the picture, the mask of the object's
    visible pixels, and the mask of the whole object without its cover.

    hits: the pixels that show the object and its surface there, from `march`. They depend only on the object's place
          and the view, so pictures that differ only in colours or light can share them.
    size: pixels per side.
    """
    pixels = backdrop(scene, size).reshape(-1, 3).copy()
    pixels[hits.pixels] = surface(scene, hits, pixels[hits.pixels])
    picture = pixels.reshape(size, size, 3)
    full = np.zeros((size, size), bool)
    full.reshape(-1)[hits.pixels] = True
    visible = full

    if scene.cover != "none":
        is_covered = cover_field(scene, size) < scene.cover_limit
        grain = 0.85 + 0.3 * _clouds(scene.noise_key + "/grain", size, cells=10, octaves=2)  # uneven brightness
        cover = np.clip(np.array(scene.cover_color, np.float32) * grain[:, :, None], 0, 1)
        picture = np.where(is_covered[:, :, None], cover, picture)
        visible = full & ~is_covered

    exposed = np.clip(picture * np.float32(scene.exposure), 0, 1)
    return DrawnScene(finish(scene, exposed), visible, full)


def _enlarged(grid: Float[np.ndarray, "rows columns"], size: int, smooth: bool = True) -> Field:
    """A grid at another size: bicubic, or each value as a block."""
    method = Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(grid.astype(np.float32)).resize((size, size), method))


@lru_cache(maxsize=4)  # a level is found by drawing the same picture again and again
def _clouds(key: str, size: int, cells: int = 3, octaves: int = 4) -> Field:
    """Fractal value noise, 0.5 on average with a standard deviation of about 0.22.

    It is the mean of octaves: random grids of `cells`, 2 `cells`, 4 `cells`, ... per side, enlarged, each weighted half
    as much as the coarser one before it.
    """
    random = keyed_rng(key, "clouds", cells)
    total = np.zeros((size, size), np.float32)
    for octave in range(octaves):
        grid = random.random((cells << octave, cells << octave), np.float32)
        total += _enlarged(grid, size) * np.float32(0.5**octave)
    sum_of_weights = 2 - 0.5 ** (octaves - 1)
    return total / np.float32(sum_of_weights)


def _positions(size: int) -> tuple[Field, Field]:
    """The centre of every pixel, right of and below the image's centre, as shares of the side."""
    position = ((np.arange(size) + 0.5) / size - 0.5).astype(np.float32)
    return np.broadcast_to(position, (size, size)), np.broadcast_to(position[:, None], (size, size))


# The background: a picture of two colours, or of many for clutter, with a set contrast.


def backdrop(scene: Scene, size: int) -> Picture:
    """The background of a scene, RGB in [0, 1], from its two colours and a pattern with values in [-1, 1].

        middle + backdrop_amount pattern (second - first),   middle = (first + second) / 2

    For the backdrop `clutter`, the colours of a picture of random shapes, minus the middle, take the place of
    pattern (second - first).
    """
    check_choice("backdrop", scene.backdrop, BACKDROPS)
    first, second = np.array(scene.backdrop_colors, np.float32)
    middle = (first + second) / 2
    amount = np.float32(scene.backdrop_amount)
    if scene.backdrop == "clutter":
        return np.clip(middle + amount * (_clutter(scene.noise_key, size) - middle), 0, 1)

    pattern = _backdrop_pattern(scene, size)
    return np.clip(middle + amount * pattern[:, :, None] * (second - first), 0, 1)


def _backdrop_pattern(scene: Scene, size: int) -> Field:
    """The pattern of a background at every pixel, from -1 to 1; `backdrop` mixes the two colours with it.

    The kinds are plain (a gradient from top to bottom), clouds, stripes and checks.
    """
    right, down = _positions(size)
    if scene.backdrop == "plain":
        return -2 * down  # from 1 at the top to -1 at the bottom
    if scene.backdrop == "clouds":
        return np.clip((_clouds(scene.noise_key, size) - 0.5) * 4, -1, 1)  # clouds are 0.5 on average

    # Stripes are bands at a random angle; a length of one side of the image has 2 * cells of them. The pattern is 1 in
    # bands with an odd number, and -1 in the others. For checks, the numbers of crossing bands are added.
    random = keyed_rng(scene.noise_key, "pattern")
    angle = random.uniform(0, np.pi)
    cells = random.uniform(5, 9)
    a = np.float32(np.cos(angle) * cells)
    b = np.float32(np.sin(angle) * cells)
    along = np.floor((right * a + down * b) * 2)
    if scene.backdrop == "stripes":
        return (along % 2) * 2 - 1
    across = np.floor((down * a - right * b) * 2)
    return ((along + across) % 2) * 2 - 1


@lru_cache(maxsize=2)  # the search for the amount that gives a level's contrast draws the same clutter repeatedly
def _clutter(key: str, size: int) -> Picture:
    """A picture of sixty discs, bars and triangles in random colours, drawn from the largest to the smallest.

    key:  a text that seeds its random numbers.
    size: pixels per side.
    """
    random = keyed_rng(key, "clutter")
    image = Image.new("RGB", (size, size), (128, 128, 128))
    pen = ImageDraw.Draw(image)
    for radius in np.sort(random.uniform(0.04, 0.3, 60))[::-1]:
        hue, saturation, value, shape, turn = random.random(5)
        rgb = colorsys.hsv_to_rgb(hue, 0.3 + 0.6 * saturation, 0.25 + 0.7 * value)
        centre = random.random(2)
        if shape < 0.4:
            sides, flattening = 3, 1.0  # a triangle
        elif shape < 0.8:
            sides, flattening = 4, 0.35  # a bar
        else:
            sides, flattening = 24, 1.0  # a disc

        # `turn` turns the corners before they are flattened, so that bars have various slants.
        angles = 2 * np.pi * (np.arange(sides) / sides + turn)
        x = radius * np.cos(angles)
        y = flattening * radius * np.sin(angles)
        rotation = 2 * np.pi * shape  # `shape` is a random number: it serves a second time
        cos = np.cos(rotation)
        sin = np.sin(rotation)
        corners = np.stack([centre[0] + cos * x - sin * y, centre[1] + sin * x + cos * y], axis=1) * size
        colour = tuple(round(255 * channel) for channel in rgb)
        pen.polygon([(float(right), float(down)) for right, down in corners], fill=colour)
    return np.asarray(image, np.float32) / 255


# The object's surface: its parts' colours, a pattern on them, light.


def surface(scene: Scene, hits: Hits, behind: Colours) -> Colours:
    """The colour of the object at each pixel that shows it, RGB of at least 0, which may exceed 1.

        lit        = paint shade + gloss
        camouflage = (0.6 behind + 0.4 mean of behind) weak_shade
        colour     = lit + blend (camouflage - lit)

    shade and gloss are the diffuse and reflected light. paint is the colour of the object's part at that pixel (such as
    a wheel), with the scene's texture on it. With blend = 1 the object has the colours of the background, with a fifth
    of its own shading.

    hits:   the pixels that show the object, and its surface there.
    behind: the background's colours at these pixels.
    """
    shade, gloss = _light(scene, hits)

    # The colour of each pixel's part, with the texture on it.
    tints = {"main": scene.color, "accent": scene.accent, "dark": DARK, "light": LIGHT}
    colour_of_part = np.array([tints[part.tint] for part in hits.solid.model.parts], np.float32)
    paint = colour_of_part[hits.part]
    if scene.texture != "plain":
        texture_colour = np.array(scene.texture_color, np.float32)
        has_texture_colour = _texture(scene, hits.points)[:, None]
        pattern = np.where(has_texture_colour, texture_colour, 1 - texture_colour)  # elsewhere the complement
        paint = paint + np.float32(scene.texture_amount) * (pattern - paint)

    lit = paint * shade[:, None] + gloss[:, None]
    if scene.blend and len(shade):  # without pixels there is no mean
        weak_shade = 0.8 + 0.2 * shade / max(float(shade.mean()), 1e-3)
        camouflage = (0.4 * behind.mean(axis=0) + 0.6 * behind) * weak_shade[:, None]
        lit = lit + np.float32(scene.blend) * (camouflage - lit)
    return lit


def _texture(scene: Scene, points: Points) -> Bool[np.ndarray, " points"]:
    """Whether a point shows the colour of the scene's texture; other points show its complement.

    Textures are solid: functions of the position in the object's frame, as if the object were carved from a block.
    """
    check_choice("texture", scene.texture, TEXTURES)
    random = keyed_rng(scene.noise_key, "texture")
    # Positions in units of a cell of the pattern, with a random offset.
    cells = np.float32(random.uniform(4.0, 6.0))
    x, y, z = points * cells + random.random((3, 1)).astype(np.float32)
    if scene.texture == "checks":
        has_colour = (np.floor(x) + np.floor(y) + np.floor(z)) % 2 > 0
    elif scene.texture == "stripes":
        a, b, c = random.normal(size=3).astype(np.float32)  # a random direction, across which the stripes run
        has_colour = ((a * x + b * y + c * z) / np.sqrt(a * a + b * b + c * c)) % 1 < 0.55  # of the width of a cell
    elif scene.texture == "dots":  # a ball in the middle of each cell
        has_colour = (x % 1 - 0.5) ** 2 + (y % 1 - 0.5) ** 2 + (z % 1 - 0.5) ** 2 < 0.24
    else:  # patches, where the sum of four random waves is positive
        waves = random.normal(size=(4, 3)).astype(np.float32) * 2
        has_colour = sum(np.sin(wave[0] * x + wave[1] * y + wave[2] * z) for wave in waves) > 0
    return np.asarray(has_colour, bool)


def _light(scene: Scene, hits: Hits) -> tuple[Plane, Plane]:
    """The light on each point of the object: from the sky and a lamp (Lambert), and the lamp's highlight (Blinn).

        diffuse = ambient (0.75 + 0.25 n·up) sky + 1.15 (1 - ambient) max(n·lamp, 0)
        gloss   = 0.22 (1 - ambient) max(n·half, 0)^24

    n:       the normal of the surface.
    sky:     the share of the sky that nearby parts of the object leave free.
    lamp:    the direction to the lamp.
    half:    the direction midway between the lamp and the viewer.
    ambient: the share of the scene's light that comes from the sky.
    """
    azimuth, elevation = np.radians([scene.light_azimuth, scene.light_elevation])
    right, up, to_viewer = hits.frame
    lamp = (
        np.cos(elevation) * np.sin(azimuth) * right
        + np.sin(elevation) * up
        + np.cos(elevation) * np.cos(azimuth) * to_viewer
    )
    half = (lamp + to_viewer) / np.linalg.norm(lamp + to_viewer)

    def cosine_with(direction: Float[np.ndarray, "3"]) -> Plane:
        """The cosine between a direction and the normal at each point."""
        return sum(np.float32(d) * n for d, n in zip(direction, hits.normals, strict=True))

    ambient = np.float32(scene.ambient)
    lamplight = (1 - ambient) * np.float32(1.15) * np.maximum(cosine_with(lamp), 0)
    diffuse = ambient * (0.75 + 0.25 * cosine_with(up)) * hits.sky_share + lamplight
    gloss = np.float32(0.22) * (1 - ambient) * np.maximum(cosine_with(half), 0) ** 24
    return diffuse.astype(np.float32), gloss.astype(np.float32)


# The cover in front of the object: a field over the image, which covers where it is below a limit.


def cover_field(scene: Scene, size: int) -> Field:
    """A number for every pixel: the scene's cover is where the number is below `scene.cover_limit`.

    A cover is something in front of the object that hides a part of it. A higher limit covers all that a lower limit
    covers, and more: the limit sets the share of the object that is hidden. The kinds of cover are wall (one side of a
    straight edge), slats (parallel bars), leaves (clouds) and blocks (squares of a grid).

    size: pixels per side.
    """
    check_choice("cover", scene.cover, COVERS)
    right, down = _positions(size)
    random = keyed_rng(scene.noise_key, "cover")
    angle = random.uniform(0, 2 * np.pi)
    along = right * np.float32(np.cos(angle)) + down * np.float32(np.sin(angle))
    if scene.cover == "wall":
        return along
    if scene.cover == "slats":
        return np.abs((along * np.float32(random.uniform(4.0, 6.0))) % 1 - np.float32(0.5))
    if scene.cover == "leaves":
        return _clouds(scene.noise_key + "/leaves", size, cells=9, octaves=2)
    blocks = keyed_rng(scene.noise_key, "blocks").random((8, 8), np.float32)
    slope = np.float32(0.02) * along  # pixels of one block differ, so that any share of the object can be covered
    return _enlarged(blocks, size, smooth=False) + slope


# Changes of the finished picture: another style, and the losses of a bad camera and a small file.


def finish(scene: Scene, picture: Picture) -> Picture:
    """The picture after the last steps of drawing: style, noise of dim light, and loss of quality.

    The picture is mixed with its version in `scene.style`, which has the weight `scene.style_amount`. `scene.quality`
    is a loss from 0 to 1: 0 changes nothing; a higher loss means fewer sensor cells, more noise and stronger JPEG
    compression. The number of cells does not depend on the size of the image, so the loss looks the same at any size.

    picture: RGB of 0 to 1, after its exposure.
    """
    if scene.style != "none" and scene.style_amount:
        check_choice("style", scene.style, STYLES)
        styled = STYLES[scene.style](picture)
        picture = picture + np.float32(scene.style_amount) * (styled - picture)

    size = len(picture)
    if scene.exposure < 0.6:  # in brighter light the noise is not visible
        picture = picture + GRAIN * _noise(scene, 64, size)  # of a sensor with 64 x 64 cells

    loss = scene.quality
    if not loss:
        return picture

    # The picture on a sensor with few cells (64 to 10 a side), with its noise, saved as JPEG and enlarged again.
    cells = round(10 + 54 * (1 - loss) ** 1.5)
    on_sensor = np.asarray(_image(picture).resize((cells, cells), Image.Resampling.BOX), np.float32) / 255
    noisy = on_sensor + np.float32(0.45 * loss * loss) * _noise(scene, cells, cells)  # one value per cell and channel
    file = io.BytesIO()
    _image(noisy).save(file, "JPEG", quality=round(90 - 75 * loss))
    decoded = Image.open(file).convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(decoded, np.float32) / 255


def _noise(scene: Scene, cells: int, size: int) -> Picture:
    """Standard normal noise of a sensor with cells x cells pixels, in an image of this size: cells are squares."""
    values = keyed_rng(scene.noise_key, "noise", cells).normal(size=(3, cells, cells)).astype(np.float32)
    return np.stack([_enlarged(value, size, smooth=False) for value in values], axis=2)


def _image(picture: Picture) -> Image.Image:
    """The picture as an image of Pillow's."""
    return Image.fromarray(_to_bytes(picture))


def _to_bytes(picture: Picture) -> UInt8[np.ndarray, "size size 3"]:
    """Rounded to 0..255."""
    return np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def _edges(picture: Picture) -> Field:
    """Strength of the picture's edges: 0 where it is flat, 1 at an edge."""
    down = np.abs(np.diff(picture, axis=0, prepend=picture[:1]))
    right = np.abs(np.diff(picture, axis=1, prepend=picture[:, :1]))
    steepness = np.maximum(down, right).max(axis=2)
    return np.clip(steepness * 5 - 0.2, 0, 1)


def _sketch(picture: Picture) -> Picture:
    """Pencil lines on paper."""
    gray = 0.95 - 0.85 * _edges(picture)
    return np.repeat(gray[:, :, None], 3, axis=2)


def _mosaic(picture: Picture) -> Picture:
    """Fourteen tiles per side."""
    size = len(picture)
    tiles = _image(picture).resize((14, 14), Image.Resampling.BOX)
    return np.asarray(tiles.resize((size, size), Image.Resampling.NEAREST), np.float32) / 255


def _poster(picture: Picture) -> Picture:
    """Three levels per channel, and dark outlines."""
    levels = np.round(np.clip(picture, 0, 1) * 2) / 2
    return levels * (1 - _edges(picture))[:, :, None]


def _negative(picture: Picture) -> Picture:
    """Every colour inverted."""
    return 1 - np.clip(picture, 0, 1)


STYLES: dict[str, Callable[[Picture], Picture]] = {
    "sketch": _sketch,
    "mosaic": _mosaic,
    "negative": _negative,
    "poster": _poster,
}
