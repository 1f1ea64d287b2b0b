"""The 19 corruptions of CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich, arXiv:1903.12261): shifts and functions.

Every kind is a function of its name: noise, blur, weather, colours and shapes, encoding. It takes and gives an image,
float32 in [0, 1], and its constants; `corrupted` clips. Those of `ON_BYTES` take and give bytes: rounding to bytes is
what they do. `rng` is there where random numbers are drawn. `KINDS`, at the end, lists all of them.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from PIL import Image as Pillow
from scipy import fft, ndimage

from fca.allowed import Allowed, Seed
from fca.geometry import REFERENCE, AfterReference, is_above_reference
from fca.shifts import operations as ops
from fca.shifts.constants import CONSTANTS, Number, constants, each
from fca.shifts.operations import Bytes, Image, Map, Rng
from fca.types import FcaError, Geometry, ImageData, Shift, check_choice, generator

DRAWING = 1  # raised whenever any corruption's pixels change
SMALLEST = 8  # pixels of the shorter side: below, kernels are wider than the image
ON_BYTES = ("jpeg_compression", "pixelate")
PLACES = ("reference", "stored")

Mask = Bool[np.ndarray, "height width"]


@dataclass(frozen=True)
class Corruptions:
    """`shift=corruption/...`: one shift per kind and severity.

    kinds:      names of corruptions (see `KINDS`).    severities: 1 (weakest) to 5.
    seed:       of whatever is drawn: noise, angles, flakes. The same image gets the same under the same seed.
    at:         where an image with a shorter side above 96 pixels is corrupted; see `Corruption`.
    """

    kinds: list[str]
    severities: list[int]
    seed: Seed
    at: Annotated[str, Allowed(choices=PLACES)] = "reference"

    def shifts(self) -> list[Shift]:
        """Kinds in their order, each at every severity. Raises FcaError for a kind, severity or place not allowed."""
        check_choice("shift.at", self.at, PLACES)
        chosen = each(self.kinds, self.severities)
        return [Corruption(kind, severity, self.seed, self.at) for kind, severity in chosen]


@dataclass(frozen=True)
class Corruption:
    """One corruption at one severity, applied before the model's resize and crop.

    at: where an image with a shorter side above 96 pixels is corrupted. `reference`: at the size that ImageNet-C's
        constants were chosen for (shorter side to 256 pixels, then the middle 224 x 224); the model's geometry then
        cuts no margin that is already gone. `stored`: as it is stored, whatever its size; the model's resize averages
        much of the change away. None: no image is above.

    Each image is decided by its own size. Up to 96 pixels it is corrupted as it is stored.
    """

    kind: str
    severity: int
    seed: int = 0
    at: str | None = "reference"

    @property
    def corrupted_at(self) -> str | None:
        """As in the column of that name."""
        return self.at

    def for_images(self, any_above: bool) -> Corruption:
        """The shift of images some of which are above 96 pixels, or of which none is."""
        return self if any_above else replace(self, at=None)

    def label(self) -> str:
        """As in tables.

        >>> Corruption("fog", 2).label()
        'corruption/fog/2'
        """
        return f"corruption/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """Kind, severity, the version of the drawing code; the seed where something is drawn; what the ice of frost is.

        Also that images were brought to the reference size. The other places have no key: rows that were made before
        there was a reference size answer for `stored`, and for images up to 96 pixels.

        >>> Corruption("contrast", 1, seed=7).identity()
        {'corruption': 'contrast', 'severity': 1, 'drawing': 1, 'at': 'reference'}
        >>> Corruption("contrast", 1, at="stored").identity()
        {'corruption': 'contrast', 'severity': 1, 'drawing': 1}
        """
        identity: dict[str, Any] = {"corruption": self.kind, "severity": self.severity, "drawing": DRAWING}
        if draws(self.kind):
            identity["seed"] = self.seed
        if self.kind == "frost":
            identity["ice"] = "procedural, not the published photographs"
        if self.at == "reference":
            identity["at"] = "reference"
        return identity

    def geometry(self, usual: Geometry) -> Geometry:
        """A network's geometry for the corrupted images."""
        return AfterReference(usual) if self.at == "reference" else usual

    def reader(self, data: ImageData) -> Callable[[int], Bytes]:
        """The corrupted pixels of the image at a position; the same in any order, worker or batch.

        Each image has random numbers of its own. Raises FcaError for an image that is too small.
        """
        ids = data.items["image_id"].tolist()

        def read(index: int) -> Bytes:
            image, image_id = data.read(index), ids[index]
            if min(image.shape[:2]) < SMALLEST:
                size, allowed = "{} x {} pixels".format(*image.shape), f"{SMALLEST} pixels or more a side"
                raise FcaError(f"size of {image_id}", size, allowed, "leave it out, or enlarge")
            if self._moves(image):
                image, _ = REFERENCE(image)
            return corrupted(image, self.kind, self.severity, generator(self.seed, image_id, self.label()))

        return read

    def masks(self, data: ImageData) -> Callable[[int], Mask | None]:
        """The object mask of the image at a position, cut as the image is; no corruption moves it otherwise."""

        def mask_of(index: int) -> Mask | None:
            mask = data.mask(index)
            if mask is None or not self._moves(mask):
                return mask
            no_pixels = np.zeros((*mask.shape, 3), np.uint8)
            return REFERENCE(no_pixels, mask)[1]

        return mask_of

    def _moves(self, image: Bytes | Mask) -> bool:
        """Whether an image of this size is brought to the reference size."""
        return self.at == "reference" and is_above_reference(*image.shape[:2])


def corrupted(image: Bytes, kind: str, severity: int, rng: Rng) -> Bytes:
    """An image after a corruption, with the published constants for its size (see `constants`).

    The published ImageNet-C was made from crops of 224 pixels, and so are runs on larger images (see `Corruption`);
    this function takes an image of any size as it is.
    Raises FcaError for a kind or severity that does not exist.

    >>> image = np.full((32, 48, 3), 100, np.uint8)
    >>> corrupted(image, "brightness", 5, np.random.default_rng(0))[0, 0].tolist()
    [176, 176, 176]
    """
    arguments = constants(kind, severity, *image.shape[:2])
    draw = KINDS[kind].draw
    if kind in ON_BYTES:
        return draw(image, *arguments)

    if draws(kind):
        return ops.to_bytes(draw(ops.to_unit(image), *arguments, rng=rng))
    return ops.to_bytes(draw(ops.to_unit(image), *arguments))


@cache
def draws(kind: str) -> bool:
    """Whether a kind draws random numbers. Raises FcaError for a kind that does not exist.

    >>> draws("fog"), draws("contrast")
    (True, False)
    """
    check_choice("corruption", kind, CONSTANTS)
    return "rng" in inspect.signature(KINDS[kind].draw).parameters


# Noise: every colour of every pixel is changed independently.


def gaussian_noise(image: Image, spread: Number, *, rng: Rng) -> Image:
    """Low light: x + N(0, spread^2), the same spread in the dark and in the bright.

    >>> gaussian_noise(np.zeros((2, 2, 3), np.float32), 0.1, rng=np.random.default_rng(0)).dtype
    dtype('float32')
    """
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(spread)
    noise += image
    return noise


def shot_noise(image: Image, photons: Number, *, rng: Rng) -> Image:
    """Counted light: Poisson(photons x) / photons, where `photons` is the mean count of a white pixel.

    >>> float(shot_noise(np.zeros((2, 2, 3), np.float32), 60, rng=np.random.default_rng(0)).max())
    0.0
    """
    counted = rng.poisson(image * np.float32(photons)).astype(np.float32)
    counted /= np.float32(photons)
    return counted


def impulse_noise(image: Image, share: Number, *, rng: Rng) -> Image:
    """Bit errors, salt and pepper: this share of all values becomes 0 or 1, half of them each.

    >>> impulse_noise(np.full((1, 2, 3), 0.5, np.float32), 0.9, rng=np.random.default_rng(0)).tolist()
    [[[1.0, 1.0, 0.5], [0.0, 0.0, 0.0]]]
    """
    drawn = rng.random(image.shape, dtype=np.float32)
    salted = np.where(drawn > np.float32(1 - share / 2), np.float32(1), image)
    salted[drawn < np.float32(share / 2)] = 0
    return salted


def speckle_noise(image: Image, spread: Number, *, rng: Rng) -> Image:
    """Noise in proportion to the light: x + x N(0, spread^2).

    >>> float(speckle_noise(np.zeros((2, 2, 3), np.float32), 0.1, rng=np.random.default_rng(0)).max())
    0.0
    """
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(spread)
    noise += 1
    noise *= image
    return noise


# Blur: light of neighbours is mixed.

DIRECT = 25  # a kernel of more weights than these is faster through the Fourier transform


def gaussian_blur(image: Image, spread: Number) -> Image:
    """A Gaussian of this spread in pixels, cut at 4 spreads; the edge pixel goes on beyond the edge.

    >>> gaussian_blur(np.ones((4, 4, 3), np.float32), 1).round(3).max()
    np.float32(1.0)
    """
    return ndimage.gaussian_filter(image, (spread, spread, 0), mode="nearest", truncate=4)


def defocus_blur(image: Image, radius: Number, softness: Number) -> Image:
    """A lens out of focus: every point becomes a disk of this radius, whose rim is softened by a small Gaussian.

    >>> defocus_blur(np.ones((9, 9, 3), np.float32), 1, 0.2).round(3).max()
    np.float32(1.0)
    """
    kernel = _disk(radius, softness)
    reach = kernel.shape[0] // 2
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), "reflect")
    if np.count_nonzero(kernel) <= DIRECT:
        height, width = image.shape[:2]
        total = np.zeros_like(image)
        for row, column in np.argwhere(kernel):
            total += padded[row : row + height, column : column + width] * kernel[row, column]
        return total
    shape = [fft.next_fast_len(side, real=True) for side in padded.shape[:2]]
    spectrum = fft.rfft2(np.ascontiguousarray(padded.transpose(2, 0, 1)), shape)
    spectrum *= fft.rfft2(kernel, shape)
    found = fft.irfft2(spectrum, shape)[:, 2 * reach : padded.shape[0], 2 * reach : padded.shape[1]]
    return np.ascontiguousarray(found.transpose(1, 2, 0))


@lru_cache(maxsize=32)
def _disk(radius: Number, softness: Number) -> Float[np.ndarray, "side side"]:
    """The weights of a softened disk, without the zeros around it.

    The disk lies on a grid of 17 pixels (or just its own size, above radius 8), and so does its Gaussian of 3 (5) taps.
    """
    reach, taps = (8, 1) if radius <= 8 else (int(radius), 2)
    x = np.arange(-reach, reach + 1)
    disk = (x[:, None] ** 2 + x**2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    gauss = np.exp(-(np.arange(-taps, taps + 1) ** 2) / (2 * softness**2))
    for axis in (0, 1):
        disk = ndimage.correlate1d(disk, gauss / gauss.sum(), axis=axis, mode="mirror")
    disk[disk < 1e-7 * disk.max()] = 0
    used = int(np.abs(x[disk.any(axis=0)]).max())
    return disk[reach - used : reach + used + 1, reach - used : reach + used + 1]


def glass_blur(image: Image, spread: Number, reach: Number, times: Number, *, rng: Rng) -> Image:
    """Frosted glass: blurred, then pixels copied from near neighbours at random, then blurred again.

    reach: of the neighbours, -reach to reach - 1 pixels in each direction; the frame of that width stays.

    The pixels are visited from the bottom right to the top left, and each takes the colour that its neighbour has then
    (the published images were made so: the exchange of the paper's text is a copy). A chain of copies is a path through
    a table of sources, so all pixels find theirs at once by doubling the path.

    >>> glass_blur(np.ones((9, 9, 3), np.float32), 0.4, 1, 2, rng=np.random.default_rng(0)).round(3).min()
    np.float32(1.0)
    """
    pixels = ops.to_bytes(gaussian_blur(image, spread))
    for _ in range(int(times)):
        sources = _sources(image.shape[0], image.shape[1], int(reach), rng)
        pixels = pixels.reshape(-1, 3)[sources].reshape(image.shape)
    return gaussian_blur(ops.to_unit(pixels), spread)


def _sources(height: int, width: int, reach: int, rng: Rng) -> Int[np.ndarray, " pixels"]:
    """Where the colour of every pixel (row by row) comes from after one round of copies."""
    pixels = height * width
    place = np.arange(pixels).reshape(height, width)
    within = np.zeros((height, width), bool)
    within[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = True
    inside = place[within]
    down, right = rng.integers(-reach, reach, (2, len(inside)))
    chosen = inside + down * width + right
    old = place.ravel() + pixels  # a source at `pixels` and above: the colour before this round
    done = within.ravel()[chosen] & (chosen > inside)
    path = np.concatenate([old, old])
    path[inside] = np.where(done, chosen, chosen + pixels)
    while (path[:pixels] < pixels).any():
        path = path[path]
    return path[:pixels] - pixels


def motion_blur(image: Image, radius: Number, spread: Number, *, rng: Rng) -> Image:
    """A moving camera: smeared to one side at an angle between -45 and 45 degrees (see `smeared`).

    >>> motion_blur(np.ones((9, 9, 3), np.float32), 6, 1, rng=np.random.default_rng(0)).round(3).max()
    np.float32(1.0)
    """
    return ops.smeared(image, radius, spread, rng.uniform(-45, 45))


def zoom_blur(image: Image, stop: Number, step: Number) -> Image:
    """A camera that moves towards its object: the mean of the image and of its enlargements 1, 1 + step, .. < stop.

    >>> zoom_blur(np.ones((9, 9, 3), np.float32), 1.06, 0.01).round(3).max()
    np.float32(1.0)
    """
    height, width = image.shape[:2]
    factors = np.arange(1, stop, step)
    total = image + image  # itself, and enlarged by 1
    for factor in factors[1:]:
        tall, wide = int(np.ceil(height / factor)), int(np.ceil(width / factor))
        top, left = (height - tall) // 2, (width - wide) // 2
        total += ops.enlarged(image[top : top + tall, left : left + wide], float(factor), height, width)
    total /= np.float32(len(factors) + 1)
    return total


# Weather in front of the camera.

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
FROST = np.array([0.89, 1.02, 1.09], np.float32)  # ice is bluish
WATER = np.array([175, 238, 238], np.float32) / 255  # pale turquoise
MUD = np.array([63, 42, 20], np.float32) / 255


def snow(
    image: Image,
    mean: Number,
    spread: Number,
    size: Number,
    threshold: Number,
    radius: Number,
    blur: Number,
    keep: Number,
    *,
    rng: Rng,
) -> Image:
    """Falling flakes before a whitened scene.

    Flakes are normal noise (mean, spread), enlarged by `size`, dark below `threshold`, smeared downwards (radius, blur)
    at an angle between -135 and -45 degrees; they are added twice, once turned by 180 degrees. The scene becomes
    keep x + (1 - keep) max(x, 1.5 grey + 0.5).

    >>> snow(np.zeros((9, 9, 3), np.float32), 0.1, 0.2, 1, 0.6, 8, 3, 0.8, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    height, width = image.shape[:2]
    small = (int(np.ceil(height / size)), int(np.ceil(width / size)), 1)
    flakes = rng.standard_normal(small, dtype=np.float32) * np.float32(spread) + np.float32(mean)
    flakes = ops.enlarged(flakes, size, height, width)
    flakes[flakes < threshold] = 0
    flakes = ops.smeared(np.minimum(flakes, 1), radius, blur, rng.uniform(-135, -45))
    grey = (image @ LUMA)[..., None]
    scene = np.maximum(image, grey * np.float32(1.5) + np.float32(0.5)) * np.float32(1 - keep)
    scene += image * np.float32(keep)
    scene += flakes + flakes[::-1, ::-1]
    return scene


def frost(image: Image, keep: Number, cover: Number, shrink: Number, *, rng: Rng) -> Image:
    """Ice on the lens: keep x + cover ice, with the published `keep` and `cover` but an ice of our own.

    NOT comparable to the published frost, which lays six photographs of ice over the image. Ours is drawn anew for
    every image (see `ice`), bluish, and of the photographs' mean brightness (0.64) and spread.

    >>> frost(np.zeros((9, 9, 3), np.float32), 1, 0.2, 0.2, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    frozen = ops.ice(image.shape[0], image.shape[1], shrink, rng=rng)[..., None] * (FROST * np.float32(cover))
    frozen += image * np.float32(keep)
    return frozen


def fog(image: Image, thickness: Number, decay: Number, *, rng: Rng) -> Image:
    """A cloudy layer of light, scaled back so that the brightest stays: (x + t cloud) max(x) / (max(x) + t).

    >>> float(fog(np.zeros((9, 9, 3), np.float32), 0.2, 3, rng=np.random.default_rng(0)).max())
    0.0
    """
    bright = float(image.max())
    cloud = ops.plasma(image.shape[0], image.shape[1], decay, rng=rng) * np.float32(thickness)
    foggy = image + cloud[..., None]
    foggy *= np.float32(bright / (bright + thickness))
    return foggy


def spatter(
    image: Image,
    mean: Number,
    spread: Number,
    smooth: Number,
    threshold: Number,
    strength: Number,
    mud: Number,
    *,
    rng: Rng,
) -> Image:
    """Drops on the lens: where smooth normal noise (mean, spread, smooth) exceeds `threshold`; of water, or of mud.

    Where no drop falls, the image stays as it is.

    >>> spatter(np.ones((9, 9, 3), np.float32), 0.6, 0.1, 0.7, 0.7, 0.5, 0, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    noise = rng.standard_normal(image.shape[:2], dtype=np.float32) * np.float32(spread) + np.float32(mean)
    liquid = ndimage.gaussian_filter(noise, smooth, mode="nearest", truncate=4)
    liquid[liquid < threshold] = 0
    if mud:
        cover = ndimage.gaussian_filter((liquid > threshold).astype(np.float32), strength, mode="nearest")
        cover[cover < 0.8] = 0
        return image * (1 - cover[..., None]) + MUD * cover[..., None]
    drops = _drops(np.minimum(liquid * 255, 255).astype(np.uint8))
    return image + drops[..., None] * (WATER * np.float32(strength))


def _drops(liquid: np.ndarray) -> Map:
    """How much light the water throws at each pixel, 0 to 1: lit from one side, brighter away from its edges."""
    found = ops.edges(liquid, 50.0, 150.0)
    deep = ndimage.distance_transform_edt(~found) if found.any() else np.full(liquid.shape, 20.0)
    deep = ndimage.uniform_filter(np.minimum(deep, 20).astype(np.float32), 3, mode="mirror")
    relief = ops.equalised(deep.astype(np.uint8)).astype(np.float32)
    lit = ndimage.correlate(relief, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32), mode="mirror")
    light = ndimage.uniform_filter(np.clip(lit, 0, 255), 3, mode="mirror") * liquid
    brightest = light.max()
    return light / brightest if brightest > 0 else light


# What cameras and screens do to colours and shapes.


def brightness(image: Image, more: Number) -> Image:
    """The value of HSV (the largest of the three colours) raised by `more`, up to 1; hue and saturation stay.

    >>> brightness(np.array([[[0.2, 0.4, 0.0]]], np.float32), 0.4).round(2)
    array([[[0.4, 0.8, 0. ]]], dtype=float32)
    """
    value = image.max(axis=2, keepdims=True)
    raised = np.minimum(value + np.float32(more), np.float32(1))
    black = value == 0
    return np.where(black, raised, image * (raised / np.where(black, 1, value)))


def saturate(image: Image, factor: Number, more: Number) -> Image:
    """The saturation s of HSV becomes factor s + more, in [0, 1]; value and hue stay. The hue of grey counts as red.

    >>> saturate(np.array([[[0.2, 0.4, 0.4]]], np.float32), 0.1, 0).round(2)
    array([[[0.38, 0.4 , 0.4 ]]], dtype=float32)
    """
    value = image.max(axis=2, keepdims=True)
    below = value - image
    reach = below.max(axis=2, keepdims=True)  # s = reach / value
    grey = reach == 0
    saturation = reach / np.where(value == 0, 1, value)
    wanted = np.clip(saturation * np.float32(factor) + np.float32(more), 0, 1)
    red = np.array([0, 1, 1], np.float32)
    return value - np.where(grey, red, below / np.where(grey, 1, reach)) * (wanted * value)


def contrast(image: Image, factor: Number) -> Image:
    """Every colour drawn towards its mean over the image: (x - mean) factor + mean.

    >>> contrast(np.array([[[0.0] * 3, [1.0] * 3]], np.float32), 0.5)[0, :, 0].tolist()
    [0.25, 0.75]
    """
    mean = image.mean(axis=(0, 1), dtype=np.float64)
    return image * np.float32(factor) + (mean * (1 - factor)).astype(np.float32)


def elastic_transform(image: Image, reach: Number, spread: Number, jitter: Number, *, rng: Rng) -> Image:
    """Stretched and wobbling: a random affine change, then a smooth displacement (see `wobble`).

    The affine change moves three corners of the middle third of the image by up to `jitter` pixels each way.

    >>> elastic_transform(np.ones((9, 9, 3), np.float32), 2, 1, 2, rng=np.random.default_rng(0)).round(3).min()
    np.float32(1.0)
    """
    height, width = image.shape[:2]
    middle, arm = np.array([height // 2, width // 2]), min(height, width) // 3
    corners = middle + arm * np.array([[1, 1], [-1, 1], [-1, -1]])
    moved = corners + rng.uniform(-jitter, jitter, corners.shape)
    # from places of the changed image back to the image's: row and column as (row, column, 1) times a line each
    backward = np.linalg.solve(np.c_[moved, np.ones(3)], corners).T
    y, x = np.mgrid[:height, :width].astype(np.float64)
    rows, columns = (a * y + b * x + c for a, b, c in backward)
    changed = ops.warped(image, rows, columns, "mirror")
    if not reach:
        return changed
    down, right = ops.wobble(height, width, reach, spread, rng=rng)
    return ops.warped(changed, y + down, x + right, "reflect")


# What is lost when an image is stored small.


def jpeg_compression(image: Bytes, quality: Number) -> Bytes:
    """Written and read as a JPEG of this quality, 1 to 95.

    >>> int(jpeg_compression(np.full((8, 8, 3), 255, np.uint8), 25).min())
    255
    """
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=int(quality))
    return np.asarray(Pillow.open(file))


def pixelate(image: Bytes, share: Number) -> Bytes:
    """Shrunk to this share of each side and enlarged again, both by area.

    >>> int(pixelate(np.full((8, 8, 3), 255, np.uint8), 0.25).min())
    255
    """
    height, width = image.shape[:2]
    small = Pillow.fromarray(image).resize((int(width * share), int(height * share)), Pillow.Resampling.BOX)
    return np.asarray(small.resize((width, height), Pillow.Resampling.BOX))


class Kind(NamedTuple):
    """A kind of corruption: the function that draws it, and what costs accuracy there, in words for the help."""

    draw: Callable[..., Any]
    cause: str


KINDS = {
    kind.draw.__name__: kind
    for kind in (
        Kind(gaussian_noise, "sensor noise as in low light"),
        Kind(shot_noise, "the noise of counted light, stronger in the bright"),
        Kind(impulse_noise, "values flipped to black or white, as by bit errors"),
        Kind(speckle_noise, "noise in proportion to the light"),
        Kind(gaussian_blur, "a Gaussian blur"),
        Kind(defocus_blur, "a lens out of focus"),
        Kind(glass_blur, "frosted glass before the lens"),
        Kind(motion_blur, "a camera that moves"),
        Kind(zoom_blur, "a camera that moves towards its object"),
        Kind(snow, "falling snow"),
        Kind(frost, "ice on the lens"),
        Kind(fog, "fog"),
        Kind(spatter, "drops of water (weak) or mud (strong) on the lens"),
        Kind(brightness, "too much light"),
        Kind(saturate, "colours too pale (1, 2) or too strong (3 to 5)"),
        Kind(contrast, "flat light"),
        Kind(elastic_transform, "stretched and wobbling shapes"),
        Kind(jpeg_compression, "strong JPEG compression"),
        Kind(pixelate, "an image enlarged from few pixels"),
    )
}
"""Every kind by the name that `shift=corruption/KIND` selects; their constants are in `fca.shifts.constants`."""
