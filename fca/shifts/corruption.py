"""The 19 corruptions of CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich, arXiv:1903.12261): shifts and functions.

Every kind is a function of its name: noise, blur, weather, colours and shapes, encoding. It takes an image, float32 in
[0, 1], and its constants, and returns an image; `corrupted` clips. Those in `ON_BYTES` take and return bytes, since
rounding to bytes is part of them. Kinds that draw random numbers take `rng`. `KINDS`, at the end, lists all of them.
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

from fca.geometry import REFERENCE, AfterReference, is_above_reference
from fca.shifts import operations as ops
from fca.shifts.constants import CONSTANTS, Number, constants, each
from fca.shifts.operations import Bytes, Image, Map, Rng
from fca.types import FcaError, Geometry, ImageData, Shift, check_choice, keyed_rng
from fca.validation import Allowed, Seed

DRAWING = 1  # raised whenever any corruption's pixels change
SMALLEST = 8  # pixels of the shorter side: kernels are wider than smaller images
ON_BYTES = ("jpeg_compression", "pixelate")
PLACES = ("reference", "stored")

Mask = Bool[np.ndarray, "height width"]


@dataclass(frozen=True)
class Corruptions:
    """`shift=corruption/...`: one shift per kind and severity.

    kinds:      names of corruptions (see `KINDS`).
    severities: 1 (weakest) to 5.
    seed:       of all random numbers: noise, angles, flakes. An image gets the same ones under the same seed.
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

    at: the size at which an image with a shorter side above 96 pixels is corrupted; smaller ones are corrupted as they
        are stored. `reference`: the size for which ImageNet-C's constants were chosen (shorter side resized to 256
        pixels, then the central 224 x 224); the model's geometry then does not cut that margin again. `stored`: the
        image's own size; the model's resize then averages much of the change away. None: no image is above 96 pixels.
    """

    kind: str
    severity: int
    seed: int = 0
    at: str | None = "reference"

    @property
    def corrupted_at(self) -> str | None:
        """The value of the column `corrupted_at` in rows of this shift."""
        return self.at

    def for_images(self, any_above: bool) -> Corruption:
        """This shift for images of which some, or none, are above 96 pixels."""
        return self if any_above else replace(self, at=None)

    def label(self) -> str:
        """The name of the shift in tables.

        >>> Corruption("fog", 2).label()
        'corruption/fog/2'
        """
        return f"corruption/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """What identifies this shift in the id of a run: kind, severity and version of the drawing code.

        The seed is part of it only for kinds that draw random numbers. Frost also names its source of ice. The key `at`
        is part of it only for the reference size. It is left out for `stored` (images keep their size) and None (no
        image is large enough to be resized), so that runs from before the reference size existed keep their ids.

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

    def geometry(self, network_geometry: Geometry) -> Geometry:
        """A network's geometry for the corrupted images."""
        return AfterReference(network_geometry) if self.at == "reference" else network_geometry

    def reader(self, data: ImageData) -> Callable[[int], Bytes]:
        """A function from the position of an image in the data to its corrupted pixels.

        The random numbers of an image depend only on the seed, the image id and the shift. So its pixels are the same
        in any order, worker process or batch. If `at` is "reference", an image with a shorter side above 96 pixels is
        first resized and cropped to 224 x 224 pixels, the size for which the published constants were chosen.

        The function raises FcaError for an image with a side below SMALLEST pixels: kernels would be wider than the
        image.
        """
        image_ids = data.items["image_id"].tolist()

        def read(index: int) -> Bytes:
            """Read the image at this position in the data, and corrupt it as `reader` states.

            Raises FcaError if a side is below SMALLEST pixels.
            """
            image = data.read(index)
            image_id = image_ids[index]
            height, width = image.shape[:2]
            if min(height, width) < SMALLEST:
                allowed = f"{SMALLEST} pixels or more a side"
                raise FcaError(f"size of {image_id}", f"{height} x {width} pixels", allowed, "leave it out, or enlarge")

            if self._is_resized(image):  # to 224 x 224 pixels, for which the constants were chosen
                image, _ = REFERENCE(image)  # the second result is the mask, which is None here
            rng = keyed_rng(self.seed, image_id, self.label())
            return corrupted(image, self.kind, self.severity, rng)

        return read

    def masks(self, data: ImageData) -> Callable[[int], Mask | None]:
        """A function from the position of an image to its object mask, resized and cropped like the image, or None.

        None: the image has no mask. The corruption itself does not change the mask.
        """

        def mask_of(index: int) -> Mask | None:
            """The object mask at this position, at the size of the corrupted image; None if there is no mask."""
            mask = data.mask(index)
            if mask is None or not self._is_resized(mask):
                return mask
            no_pixels = np.zeros((*mask.shape, 3), np.uint8)  # takes the place of the image: only its mask is needed
            return REFERENCE(no_pixels, mask)[1]

        return mask_of

    def _is_resized(self, image: Bytes | Mask) -> bool:
        """Whether an image of this size is resized to the reference size."""
        return self.at == "reference" and is_above_reference(*image.shape[:2])


def corrupted(image: Bytes, kind: str, severity: int, rng: Rng) -> Bytes:
    """An image after a corruption, with the published constants for the image's own size (see `constants`).

    The published ImageNet-C was made from crops of 224 pixels. Runs bring larger images to that size first (see
    `Corruption`); this function does not. Raises FcaError for a kind or severity that does not exist.

    >>> image = np.full((32, 48, 3), 100, np.uint8)
    >>> corrupted(image, "brightness", 5, np.random.default_rng(0))[0, 0].tolist()
    [176, 176, 176]
    """
    arguments = constants(kind, severity, *image.shape[:2])
    draw = KINDS[kind].draw
    if kind in ON_BYTES:  # this function takes and returns bytes; others take and return values of 0 to 1
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


# Noise: every value of every pixel is changed independently.


def gaussian_noise(image: Image, spread: Number, *, rng: Rng) -> Image:
    """Low light: x + N(0, spread^2), with the same spread in dark and bright regions.

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
    random = rng.random(image.shape, dtype=np.float32)
    noisy = np.where(random > np.float32(1 - share / 2), np.float32(1), image)
    noisy[random < np.float32(share / 2)] = 0
    return noisy


def speckle_noise(image: Image, spread: Number, *, rng: Rng) -> Image:
    """Noise proportional to the light: x + x N(0, spread^2).

    >>> float(speckle_noise(np.zeros((2, 2, 3), np.float32), 0.1, rng=np.random.default_rng(0)).max())
    0.0
    """
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(spread)
    noise += 1
    noise *= image
    return noise


# Blur: the light of neighbours is mixed.

MAX_WEIGHTS_OF_DIRECT_SUM = 25  # of a kernel; with more weights the Fourier transform is faster


def gaussian_blur(image: Image, spread: Number) -> Image:
    """A Gaussian of this spread in pixels, cut at 4 spreads; beyond the edge, the edge pixel is repeated.

    >>> gaussian_blur(np.ones((4, 4, 3), np.float32), 1).round(3).max()
    np.float32(1.0)
    """
    return ndimage.gaussian_filter(image, (spread, spread, 0), mode="nearest", truncate=4)


def defocus_blur(image: Image, radius: Number, softness: Number) -> Image:
    """A lens out of focus: the image convolved with a disk whose rim is softened by a small Gaussian.

    radius:   of the disk, in pixels.
    softness: standard deviation of the Gaussian, in pixels.

    Beyond its edge the image is mirrored, without repeating the last pixel. The sum over the disk's weights is computed
    directly if they are few, otherwise by Fourier transforms.

    >>> defocus_blur(np.ones((9, 9, 3), np.float32), 1, 0.2).round(3).max()
    np.float32(1.0)
    """
    kernel = _disk(radius, softness)
    reach = kernel.shape[0] // 2
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), "reflect")
    if np.count_nonzero(kernel) <= MAX_WEIGHTS_OF_DIRECT_SUM:  # then the direct sum is faster
        height, width = image.shape[:2]
        total = np.zeros_like(image)
        for row, column in np.argwhere(kernel):
            total += padded[row : row + height, column : column + width] * kernel[row, column]
        return total

    # A convolution is a product of Fourier transforms. Row and column 2 * reach of the result belong to the first
    # pixel of the image: reach for the padding, and reach because the kernel's first element is not its centre.
    shape = [fft.next_fast_len(side, real=True) for side in padded.shape[:2]]
    channels = np.ascontiguousarray(padded.transpose(2, 0, 1))
    spectrum = fft.rfft2(channels, shape)
    spectrum *= fft.rfft2(kernel, shape)
    blurred = fft.irfft2(spectrum, shape)[:, 2 * reach : padded.shape[0], 2 * reach : padded.shape[1]]
    return np.ascontiguousarray(blurred.transpose(1, 2, 0))


@lru_cache(maxsize=32)
def _disk(radius: Number, softness: Number) -> Float[np.ndarray, "side side"]:
    """The weights of a disk softened by a Gaussian, cropped to the square that holds all non-zero weights.

    The grids are those of the published generator. A disk with a radius of up to 8 is drawn on 17 x 17 pixels and
    softened with 3 taps of the Gaussian. A larger disk is drawn on a grid of its own size and softened with 5 taps.

    radius, softness: of the disk, and the standard deviation of the Gaussian, both in pixels.
    """
    # Pixels to each side of the centre: of the disk's grid, and of the Gaussian (1 makes 3 taps, 2 make 5).
    reach, gaussian_reach = (8, 1) if radius <= 8 else (int(radius), 2)
    x = np.arange(-reach, reach + 1)
    # 1 where row² + column² <= radius², counted from the centre
    disk = (x[:, None] ** 2 + x**2 <= radius**2).astype(np.float32)
    disk /= disk.sum()

    gaussian = np.exp(-(np.arange(-gaussian_reach, gaussian_reach + 1) ** 2) / (2 * softness**2))
    gaussian /= gaussian.sum()
    disk = ndimage.correlate1d(disk, gaussian, axis=0, mode="mirror")
    disk = ndimage.correlate1d(disk, gaussian, axis=1, mode="mirror")

    # Weights that are too small to change a pixel become 0: the convolution is faster with fewer weights.
    disk[disk < 1e-7 * disk.max()] = 0
    # Crop equally on all sides, so that the centre of the disk stays in the middle.
    used_reach = int(np.abs(x[disk.any(axis=0)]).max())
    used = slice(reach - used_reach, reach + used_reach + 1)
    return disk[used, used]


def glass_blur(image: Image, spread: Number, reach: Number, times: Number, *, rng: Rng) -> Image:
    """Frosted glass: the image is blurred, then pixels are copied from near neighbours at random, then it is blurred.

    reach: neighbours are -reach to reach - 1 pixels away in each direction; a frame of that width is unchanged.
    times: how many rounds of copies.

    In a round the pixels are visited from the bottom right to the top left, and each takes the colour that its
    neighbour has at that time. This is how the published images were made; the paper's text calls it an exchange.

    >>> glass_blur(np.ones((9, 9, 3), np.float32), 0.4, 1, 2, rng=np.random.default_rng(0)).round(3).min()
    np.float32(1.0)
    """
    pixels = ops.to_bytes(gaussian_blur(image, spread))
    for _ in range(int(times)):
        sources = _sources(image.shape[0], image.shape[1], int(reach), rng)
        pixels = pixels.reshape(-1, 3)[sources].reshape(image.shape)
    return gaussian_blur(ops.to_unit(pixels), spread)


def _sources(height: int, width: int, reach: int, rng: Rng) -> Int[np.ndarray, " pixels"]:
    """For every pixel, the pixel that its colour comes from after one round of copies in `glass_blur`.

    Both are indices into the flattened image (row by row). In a round, pixels are visited from the bottom right to the
    top left, and each copies the present colour of a random neighbour. That neighbour may have copied before in this
    round, so a colour can come from a chain of pixels. Each entry of `path` is the next pixel of a chain. All chains
    are followed to their ends at once: every `path = path[path]` doubles the steps taken.

    reach: a neighbour is -reach to reach - 1 pixels away in each direction; a frame of about that width copies nothing.
    """
    n_pixels = height * width
    pixel = np.arange(n_pixels).reshape(height, width)
    # Only pixels whose possible neighbours are all inside the image copy. That holds for row and column `reach`, too,
    # but the published generator leaves them out.
    is_copying = np.zeros((height, width), bool)
    is_copying[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = True
    copying = pixel[is_copying]

    down, right = rng.integers(-reach, reach, (2, len(copying)))
    neighbour = copying + down * width + right  # index of one neighbour for each copying pixel

    # Pixels with larger indices come first in a round, so a neighbour with a larger index has its new colour already.
    was_visited = is_copying.ravel()[neighbour] & (neighbour > copying)

    # The first half of `path` is the pixels after this round, from which chains begin. The second half is their colours
    # before the round, where chains end: pixel i has index n_pixels + i there, and this index leads to itself.
    old_colour = pixel.ravel() + n_pixels
    path = np.concatenate([old_colour, old_colour])
    path[copying] = np.where(was_visited, neighbour, neighbour + n_pixels)
    while (path[:n_pixels] < n_pixels).any():
        path = path[path]
    return path[:n_pixels] - n_pixels


def motion_blur(image: Image, radius: Number, spread: Number, *, rng: Rng) -> Image:
    """A moving camera: smeared to one side at an angle between -45 and 45 degrees (see `smeared`).

    >>> motion_blur(np.ones((9, 9, 3), np.float32), 6, 1, rng=np.random.default_rng(0)).round(3).max()
    np.float32(1.0)
    """
    return ops.smeared(image, radius, spread, rng.uniform(-45, 45))


def zoom_blur(image: Image, stop: Number, step: Number) -> Image:
    """A camera that moves towards its object: the mean of the image and of its enlargements by 1, 1 + step, ... < stop.

    The image counts twice, by itself and enlarged by 1, as in the published generator.

    >>> zoom_blur(np.ones((9, 9, 3), np.float32), 1.06, 0.01).round(3).max()
    np.float32(1.0)
    """
    height, width = image.shape[:2]
    factors = np.arange(1, stop, step)
    total = image + image  # the image itself, and its enlargement by 1
    for factor in factors[1:]:
        # enlarge only the middle that still fills the image afterwards
        crop_height = int(np.ceil(height / factor))
        crop_width = int(np.ceil(width / factor))
        top = (height - crop_height) // 2
        left = (width - crop_width) // 2
        crop = image[top : top + crop_height, left : left + crop_width]
        total += ops.enlarged(crop, float(factor), height, width)
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
    """Falling flakes in front of a whitened scene.

    Flakes are normal noise with this mean and spread. The noise is enlarged by the factor `size`, set to 0 below
    `threshold`, and smeared by `operations.smeared` with `radius` and `blur` at a random angle between -135 and -45
    degrees. The flakes are added twice, once turned by 180 degrees. The image x behind them is whitened to
    keep x + (1 - keep) max(x, 1.5 grey + 0.5), where grey is its brightness.

    >>> snow(np.zeros((9, 9, 3), np.float32), 0.1, 0.2, 1, 0.6, 8, 3, 0.8, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    height, width = image.shape[:2]
    small_shape = (int(np.ceil(height / size)), int(np.ceil(width / size)), 1)
    flakes = rng.standard_normal(small_shape, dtype=np.float32) * np.float32(spread) + np.float32(mean)
    flakes = ops.enlarged(flakes, size, height, width)
    flakes[flakes < threshold] = 0  # elsewhere no flake
    flakes = ops.smeared(np.minimum(flakes, 1), radius, blur, rng.uniform(-135, -45))

    # whitened scene, then the flakes upright and turned by 180 degrees
    grey = (image @ LUMA)[..., None]
    scene = np.maximum(image, grey * np.float32(1.5) + np.float32(0.5)) * np.float32(1 - keep)
    scene += image * np.float32(keep)
    scene += flakes + flakes[::-1, ::-1]
    return scene


def frost(image: Image, keep: Number, cover: Number, shrink: Number, *, rng: Rng) -> Image:
    """Ice on the lens: keep x + cover ice, with the published `keep` and `cover`, but with procedural ice.

    NOT comparable to the published frost, which lays six photographs of ice over the image. This ice is drawn for each
    image (see `ice`); it is bluish, and has the photographs' mean brightness (0.64) and spread.

    >>> frost(np.zeros((9, 9, 3), np.float32), 1, 0.2, 0.2, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    frozen = ops.ice(image.shape[0], image.shape[1], shrink, rng=rng)[..., None] * (FROST * np.float32(cover))
    frozen += image * np.float32(keep)
    return frozen


def fog(image: Image, thickness: Number, decay: Number, *, rng: Rng) -> Image:
    """A cloudy layer of light, scaled so that the brightest value stays: (x + t cloud) max(x) / (max(x) + t).

    x is the image, t the thickness, and cloud a cloudy map of values from 0 to 1.

    >>> float(fog(np.zeros((9, 9, 3), np.float32), 0.2, 3, rng=np.random.default_rng(0)).max())
    0.0
    """
    brightest = float(image.max())
    cloud = ops.plasma(image.shape[0], image.shape[1], decay, rng=rng) * np.float32(thickness)
    foggy = image + cloud[..., None]
    foggy *= np.float32(brightest / (brightest + thickness))
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
    """Drops of water or mud on the lens; pixels without a drop stay unchanged.

    Drops are where normal noise with this mean and spread, blurred by a Gaussian of `smooth` pixels, reaches
    `threshold`.

    mud:      0: drops of water, which add reflected light; 1: drops of mud, which cover the image.
    strength: of water: the factor of the added light; of mud: the blur of the edge of the drops, in pixels.

    >>> spatter(np.ones((9, 9, 3), np.float32), 0.6, 0.1, 0.7, 0.7, 0.5, 0, rng=np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    noise = rng.standard_normal(image.shape[:2], dtype=np.float32) * np.float32(spread) + np.float32(mean)
    liquid = ndimage.gaussian_filter(noise, smooth, mode="nearest", truncate=4)
    liquid[liquid < threshold] = 0
    if mud:
        cover = ndimage.gaussian_filter((liquid > threshold).astype(np.float32), strength, mode="nearest")
        cover[cover < 0.8] = 0  # opacity of the mud; the cut gives the drops a sharp edge
        return image * (1 - cover[..., None]) + MUD * cover[..., None]
    light = _light_on_water(np.minimum(liquid * 255, 255).astype(np.uint8))
    return image + light[..., None] * (WATER * np.float32(strength))


def _light_on_water(liquid: np.ndarray) -> Map:
    """The light that drops of water reflect at each pixel, 0 to 1. Pixels without water reflect none.

    Drops are lit from one side. The depth of the water grows with the distance from the nearest edge, and pixels whose
    depth rises towards the lower right are bright. All steps and constants are those of the published generator.

    liquid: amount of water at each pixel, 0 to 255.
    """
    is_edge = ops.edges(liquid, 50.0, 150.0)
    if is_edge.any():
        depth = ndimage.distance_transform_edt(~is_edge)  # distance from the nearest edge, in pixels
    else:  # no edge to measure from: the largest depth everywhere (all depths are cut to 20 below)
        depth = np.full(liquid.shape, 20.0)
    depth = ndimage.uniform_filter(np.minimum(depth, 20).astype(np.float32), 3, mode="mirror")

    # Depths are spread over all levels from 0 to 255, so that gentle slopes reflect light, too. Then embossing: the
    # correlation is large where the depth rises towards the lower right.
    relief = ops.equalised(depth.astype(np.uint8)).astype(np.float32)
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
    lit = ndimage.correlate(relief, emboss, mode="mirror")
    light = ndimage.uniform_filter(np.clip(lit, 0, 255), 3, mode="mirror") * liquid
    brightest = light.max()
    return light / brightest if brightest > 0 else light  # without any light there is nothing to scale


# Changes of colours and shapes by cameras and screens.


def brightness(image: Image, increase: Number) -> Image:
    """The value of HSV (the largest of the three channels) increased, up to 1; hue and saturation stay.

    >>> brightness(np.array([[[0.2, 0.4, 0.0]]], np.float32), 0.4).round(2)
    array([[[0.4, 0.8, 0. ]]], dtype=float32)
    """
    value = image.max(axis=2, keepdims=True)
    raised = np.minimum(value + np.float32(increase), np.float32(1))
    is_black = value == 0  # without a hue: it becomes grey
    return np.where(is_black, raised, image * (raised / np.where(is_black, 1, value)))


def saturate(image: Image, factor: Number, increase: Number) -> Image:
    """Change the saturation s of HSV to factor s + increase, clipped to [0, 1]. Value and hue stay the same.

    In terms of HSV, each channel (red, green and blue) is value - share * saturation * value. The share of a channel,
    between 0 and 1, depends only on the hue. Grey has no hue; it gets the hue of red, as is usual in HSV.

    >>> saturate(np.array([[[0.2, 0.4, 0.4]]], np.float32), 0.1, 0).round(2)
    array([[[0.38, 0.4 , 0.4 ]]], dtype=float32)
    """
    value = image.max(axis=2, keepdims=True)
    below_value = value - image
    chroma = below_value.max(axis=2, keepdims=True)  # largest minus smallest channel
    saturation = chroma / np.where(value == 0, 1, value)
    new_saturation = np.clip(saturation * np.float32(factor) + np.float32(increase), 0, 1)

    # Each channel's distance below the value, as a share of the chroma.
    is_grey = chroma == 0
    red = np.array([0, 1, 1], np.float32)  # shares of pure red: channels green and blue are 0
    share_of_chroma = np.where(is_grey, red, below_value / np.where(is_grey, 1, chroma))
    return value - share_of_chroma * (new_saturation * value)


def contrast(image: Image, factor: Number) -> Image:
    """Every channel moved towards its mean over the image: (x - mean) factor + mean.

    >>> contrast(np.array([[[0.0] * 3, [1.0] * 3]], np.float32), 0.5)[0, :, 0].tolist()
    [0.25, 0.75]
    """
    mean = image.mean(axis=(0, 1), dtype=np.float64)
    return image * np.float32(factor) + (mean * (1 - factor)).astype(np.float32)


def elastic_transform(image: Image, reach: Number, spread: Number, jitter: Number, *, rng: Rng) -> Image:
    """Stretched and wobbling: a random affine change, then a smooth random displacement of each pixel.

    The affine change moves three corners of a square in the middle of the image, each by up to `jitter` pixels in each
    direction.

    reach, spread: the displacement is uniform noise between -reach and reach pixels, smoothed by a Gaussian of `spread`
                   pixels, see `operations.wobble`; reach 0: none.

    >>> elastic_transform(np.ones((9, 9, 3), np.float32), 2, 1, 2, rng=np.random.default_rng(0)).round(3).min()
    np.float32(1.0)
    """
    height, width = image.shape[:2]
    middle = np.array([height // 2, width // 2])
    half_side = min(height, width) // 3  # of the square
    corners = middle + half_side * np.array([[1, 1], [-1, 1], [-1, -1]])  # three, each as (row, column)
    moved_corners = corners + rng.uniform(-jitter, jitter, corners.shape)

    # The affine map A (2 x 3) that takes the moved corners back to the corners: (row, column) = A (row', column', 1).
    # It gives for each pixel of the changed image the position in the original where its colour is read.
    to_original = np.linalg.solve(np.c_[moved_corners, np.ones(3)], corners).T
    y, x = np.mgrid[:height, :width].astype(np.float64)
    rows = to_original[0][0] * y + to_original[0][1] * x + to_original[0][2]
    columns = to_original[1][0] * y + to_original[1][1] * x + to_original[1][2]
    # Beyond its edge the image is mirrored, in both steps in the way that the published generator does it.
    stretched = ops.warped(image, rows, columns, "mirror")
    if not reach:  # no displacement
        return stretched

    down, right = ops.wobble(height, width, reach, spread, rng=rng)
    return ops.warped(stretched, y + down, x + right, "reflect")


# Losses of storing an image small.


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
    """A kind of corruption: the function that draws it, and its cause in words, for the help."""

    draw: Callable[..., Any]
    cause: str


KINDS = {
    kind.draw.__name__: kind
    for kind in (
        Kind(gaussian_noise, "sensor noise as in low light"),
        Kind(shot_noise, "the noise of counted light, stronger in the bright"),
        Kind(impulse_noise, "values flipped to black or white, as by bit errors"),
        Kind(speckle_noise, "noise proportional to the light"),
        Kind(gaussian_blur, "a Gaussian blur"),
        Kind(defocus_blur, "a lens out of focus"),
        Kind(glass_blur, "frosted glass in front of the lens"),
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
