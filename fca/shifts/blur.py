"""Blurs: light of neighbours is mixed. Images are float32 in [0, 1]; the caller clips."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy import fft, ndimage

from fca.shifts.constants import Number
from fca.shifts.sampling import enlarged, smeared, to_bytes, to_unit

Image = Float[np.ndarray, "height width 3"]

DIRECT = 25  # a kernel of more weights than these is faster through the Fourier transform


def gaussian_blur(image: Image, spread: Number) -> Image:
    """A Gaussian of this spread in pixels, cut at 4 spreads; the edge pixel goes on beyond the edge.

    >>> gaussian_blur(np.ones((4, 4, 3), np.float32), 1).round(3).max()
    np.float32(1.0)
    """
    blurred: np.ndarray = ndimage.gaussian_filter(image, (spread, spread, 0), mode="nearest", truncate=4)
    return blurred


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
    planes = np.ascontiguousarray(padded.transpose(2, 0, 1))
    spectrum = fft.rfft2(planes, shape)
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
    kernel: np.ndarray = disk[reach - used : reach + used + 1, reach - used : reach + used + 1]
    return kernel


def glass_blur(image: Image, spread: Number, reach: Number, times: Number, *, rng: np.random.Generator) -> Image:
    """Frosted glass: blurred, then pixels copied from near neighbours at random, then blurred again.

    reach: of the neighbours, -reach to reach - 1 pixels in each direction; the frame of that width stays.

    The pixels are visited from the bottom right to the top left, and each takes the colour that its neighbour has then
    (the published images were made so: the exchange of the paper's text is a copy). A chain of copies is a path through
    a table of sources, so all pixels find theirs at once by doubling the path.

    >>> glass_blur(np.ones((9, 9, 3), np.float32), 0.4, 1, 2, rng=np.random.default_rng(0)).round(3).min()
    np.float32(1.0)
    """
    pixels = to_bytes(gaussian_blur(image, spread))
    for _ in range(int(times)):
        sources = _sources(pixels.shape[0], pixels.shape[1], int(reach), rng)
        pixels = pixels.reshape(-1, 3)[sources].reshape(image.shape)
    return gaussian_blur(to_unit(pixels), spread)


def _sources(height: int, width: int, reach: int, rng: np.random.Generator) -> Int[np.ndarray, " pixels"]:
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


def motion_blur(image: Image, radius: Number, spread: Number, *, rng: np.random.Generator) -> Image:
    """A moving camera: smeared to one side at an angle between -45 and 45 degrees (see `smeared`).

    >>> motion_blur(np.ones((9, 9, 3), np.float32), 6, 1, rng=np.random.default_rng(0)).round(3).max()
    np.float32(1.0)
    """
    return smeared(image, radius, spread, rng.uniform(-45, 45))


def zoom_blur(image: Image, stop: Number, step: Number) -> Image:
    """A camera that moves towards its object: the mean of the image and of its enlargements 1, 1 + step, .. < stop.

    >>> zoom_blur(np.ones((9, 9, 3), np.float32), 1.06, 0.01).round(3).max()
    np.float32(1.0)
    """
    height, width = image.shape[:2]
    factors = np.arange(1, stop, step)
    total: np.ndarray = image + image  # itself, and enlarged by 1
    for factor in factors[1:]:
        tall, wide = int(np.ceil(height / factor)), int(np.ceil(width / factor))
        top, left = (height - tall) // 2, (width - wide) // 2
        total += enlarged(image[top : top + tall, left : left + wide], float(factor), height, width)
    total /= np.float32(len(factors) + 1)
    return total
