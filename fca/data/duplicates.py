"""Which images of a set are the same picture: pixel for pixel, or re-encoded, resized or shifted by a pixel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations_with_replacement, product

import numpy as np
from jaxtyping import Float, Float32, Int, Int32, UInt8, UInt64
from PIL import Image
from scipy.fft import dctn
from scipy.ndimage import gaussian_filter

from fca.data.files import watched

# The thresholds were set on CIFAR-10 test, digits, Omniglot, sign language, grocery and ImageNet pictures with planted
# copies (JPEG and WebP of quality 30 to 90, resizes from a half to twice, shifts and crops by a pixel).
SIDE = 32  # of a signature, in cells
N_FREQUENCIES = 8  # lowest DCT frequencies kept along each axis
MIN_COSINE = 0.8  # least cosine of low frequencies for a closer comparison
MIN_CORRELATION = 0.7  # least correlation of edges and texture; a half-size copy of a 32-pixel image has 0.75
TOLERANCE = 0.3  # largest unexplained residual, as a share of NOISE + what re-encoding and resizing take away
NOISE = 4.0  # grey levels
MIN_SHARPNESS = 0.3  # least share of the tolerance for pictures much larger than a signature: their copies agree better
MARGIN = 3  # cells at the border left out of the closer comparison: a shift brings in new pixels there
MIN_CONTRAST = 1.0  # grey levels of detail (standard deviation) below which there is nothing to compare
BLOCK = 2048  # images compared with as many others at a time
MAX_ALL_PAIRS = 100  # copies of a picture up to which every pair is listed: 60,000 blank images would have 2 * 10^9
MANY_BLOCKS = 50  # pairs of blocks from which on a progress bar is shown

INNER = slice(MARGIN, SIDE - MARGIN)  # the cells that are compared closely, along each axis
SHIFTS = np.array(list(product((-1, 0, 1), repeat=2)))  # 9 x 2: cells down and right

Signatures = UInt8[np.ndarray, "images 32 32"]
Pictures = Float32[np.ndarray, "pairs 32 32"]


def signature(image: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "32 32"]:
    """The picture resized to 32 x 32 cells of grey, whatever its shape."""
    return np.asarray(Image.fromarray(image).convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def perceptual_hashes(signatures: Signatures) -> UInt64[np.ndarray, " images"]:
    """A hash of 64 bits per image, most of which are equal for similar pictures.

    Each bit is whether a low DCT frequency exceeds the median of the image's low frequencies. The bit of frequency
    (0, 0), the brightness, is always 0.
    """
    frequencies = _low_frequencies(signatures)
    is_above_median = frequencies > np.median(frequencies, axis=1, keepdims=True)
    bits = np.pad(is_above_median, ((0, 0), (1, 0)))  # images x 64: a 0 for the brightness before the 63 others
    bytes_of_hash = np.ascontiguousarray(np.packbits(bits, axis=1))  # images x 8
    return bytes_of_hash.view(np.uint64)[:, 0]


def exact_pairs(digests: Sequence[bytes]) -> Int32[np.ndarray, "pairs 2"]:
    """All pairs of positions with equal digests, the smaller position first.

    If more than MAX_ALL_PAIRS digests are equal, each of them is paired only with the first.

    >>> exact_pairs([b"x", b"y", b"x", b"x"]).tolist()
    [[0, 2], [0, 3], [2, 3]]
    """
    positions_by_digest = defaultdict(list)
    for position, digest in enumerate(digests):
        positions_by_digest[digest].append(position)

    copies = [np.asarray(positions) for positions in positions_by_digest.values() if len(positions) > 1]
    pairs = [positions[_pairs_within(len(positions))] for positions in copies]
    return np.concatenate([np.empty((0, 2), np.int32), *pairs]).astype(np.int32)


def _pairs_within(n: int) -> Int[np.ndarray, "pairs 2"]:
    """All pairs of the numbers 0 to n - 1, the smaller first; if n > MAX_ALL_PAIRS, only the pairs with 0."""
    if n <= MAX_ALL_PAIRS:
        first, second = np.triu_indices(n, 1)
    else:
        first = np.zeros(n - 1, int)
        second = np.arange(1, n)
    return np.stack([first, second], axis=1)


def near_pairs(signatures: Signatures, sides: Int[np.ndarray, " images"]) -> Int32[np.ndarray, "pairs 2"]:
    """Pairs of positions of images that show the same picture, the smaller position first, also of exact copies.

    sides: the shorter side of each stored image in pixels.

    There are three comparisons; each takes the pairs that passed the one before it:

    1. The cosine of the low DCT frequencies of all pairs (the idea of the perceptual hash before it is rounded to
       bits), with one matrix product per pair of blocks of images: n^2 / 2 * 63 multiplications.
    2. The correlation of edges and texture, the best over shifts by a cell.
    3. What remains of one smoothed picture after a fit by the other. The tolerance grows with the finest detail of
       both, which a resize loses: smooth pictures must agree to a few grey levels (two scans of one digit do not), and
       busy ones may differ more.

    Flat pictures match nothing. In images below 32 pixels a shift by one pixel is more than a cell and is not detected.
    """
    frequencies = _low_frequencies(signatures)
    frequencies /= np.maximum(np.linalg.norm(frequencies, axis=1, keepdims=True), 1e-6)  # a flat picture has norm 0
    detail = _smooth(signatures, 0.7) - _smooth(signatures, 2.0)  # edges and texture: a difference of Gaussians
    smooth = _smooth(signatures, 1.2)
    fine_contrast = (signatures - smooth)[:, INNER, INNER].std(axis=(1, 2))  # of each image, in grey levels

    near_pairs_by_step = [np.empty((0, 2), np.int64)]  # the empty one: for no pairs
    blocks = list(combinations_with_replacement(_blocks(len(signatures)), 2))
    for first, second in watched(blocks, "comparing pictures", long=len(blocks) >= MANY_BLOCKS):
        i, j = np.nonzero(frequencies[first] @ frequencies[second].T > MIN_COSINE)
        candidates = np.stack([i + first.start, j + second.start], axis=1)
        candidates = candidates[candidates[:, 0] < candidates[:, 1]]  # a block with itself has each pair twice

        # At most BLOCK pairs at a time, because the closer comparisons need memory.
        for pairs in np.array_split(candidates, len(candidates) // BLOCK + 1):
            correlation, shift = _best_shift(detail[pairs[:, 0]], detail[pairs[:, 1]])
            is_correlated = correlation >= MIN_CORRELATION
            pairs = pairs[is_correlated]
            shift = shift[is_correlated]

            residual = _unexplained(smooth[pairs[:, 0]], smooth[pairs[:, 1]], shift)
            sharpness = np.clip(SIDE / sides[pairs].min(axis=1), MIN_SHARPNESS, 1)
            tolerance = TOLERANCE * (NOISE + fine_contrast[pairs].max(axis=1)) * sharpness
            near_pairs_by_step.append(pairs[residual <= tolerance])
    return np.concatenate(near_pairs_by_step).astype(np.int32)


def _unexplained(a: Pictures, b: Pictures, shift: Int[np.ndarray, "pairs 2"]) -> Float[np.ndarray, " pairs"]:
    """The standard deviation, in grey levels, of what remains of `b` after a least-squares fit by `a` moved by `shift`.

    b ~ w0 a + w1 da/dy + w2 da/dx + constant

    w0 and the constant allow for another contrast and brightness, the derivatives for a shift by a fraction of a cell.
    """
    da_dy, da_dx = np.gradient(a, axis=(1, 2))
    moved_inner_pixels = [_moved(picture, shift) for picture in (a, da_dy, da_dx)]
    regressors = np.stack([_centred(pixels) for pixels in moved_inner_pixels], axis=2)  # pairs x pixels x 3
    target = _centred(b[:, INNER, INNER])

    # Normal equations (X'X + 0.001 I) w = X'y of each pair; 0.001 because X'X is singular if a varies along one axis
    # only. p: pair, i: pixel, k and l: regressor
    gram = np.einsum("pik,pil->pkl", regressors, regressors) + 1e-3 * np.eye(3)
    moments = np.einsum("pik,pi->pk", regressors, target)
    weights = np.linalg.solve(gram, moments[..., None])
    return (target - (regressors @ weights)[..., 0]).std(axis=1)


def _low_frequencies(signatures: Signatures) -> Float32[np.ndarray, "images 63"]:
    """The lowest 8 x 8 DCT frequencies of each image, without the first one, the mean.

    The images are faded out towards the border, where a shift changes most.
    """
    fade = np.sqrt(np.sin(np.pi * (np.arange(SIDE) + 0.5) / SIDE))
    window = np.outer(fade, fade).astype(np.float32)
    low = np.empty((len(signatures), N_FREQUENCIES * N_FREQUENCIES - 1), np.float32)
    for rows in _blocks(len(signatures)):  # in blocks, because the DCT of all images would need much memory
        grey = signatures[rows].astype(np.float32)
        mean = (grey * window).sum(axis=(1, 2), keepdims=True) / window.sum()
        frequencies = dctn((grey - mean) * window, axes=(1, 2), norm="ortho")[:, :N_FREQUENCIES, :N_FREQUENCIES]
        low[rows] = frequencies.reshape(len(grey), N_FREQUENCIES * N_FREQUENCIES)[:, 1:]
    return low


def _smooth(signatures: Signatures, sigma: float) -> Pictures:
    """Each image after a Gaussian filter; sigma in cells."""
    return np.asarray(gaussian_filter(signatures.astype(np.float32), (0, sigma, sigma)))


def _best_shift(a: Pictures, b: Pictures) -> tuple[Float32[np.ndarray, " pairs"], Int[np.ndarray, "pairs 2"]]:
    """The Pearson correlation of the inner pixels of each pair at its best shift, and that shift.

    The shifts move `a` by -1, 0 or 1 cell along each axis. The correlation is -1 if a picture of the pair is flat.
    """
    target = _centred(b[:, INNER, INNER])
    correlations = np.empty((len(SHIFTS), len(a)), np.float32)
    for k, (y, x) in enumerate(SHIFTS):
        moved = _centred(a[:, MARGIN + y : SIDE - MARGIN + y, MARGIN + x : SIDE - MARGIN + x])
        norms = np.linalg.norm(moved, axis=1) * np.linalg.norm(target, axis=1)
        # A norm is the standard deviation * sqrt(pixels), so their product compares with MIN_CONTRAST^2 * pixels.
        is_flat = norms < MIN_CONTRAST**2 * target.shape[1]
        products = np.einsum("ij,ij->i", moved, target)  # i: pair, j: pixel
        correlations[k] = np.where(is_flat, -1, products / np.maximum(norms, 1e-6))  # 1e-6: never divide by 0
    return correlations.max(axis=0), SHIFTS[correlations.argmax(axis=0)]


def _moved(pictures: Pictures, shift: Int[np.ndarray, "pairs 2"]) -> Float32[np.ndarray, "pairs inner inner"]:
    """The inner pixels of each picture, read its own `shift` (cells down and right) further on."""
    cells = np.arange(MARGIN, SIDE - MARGIN)
    rows = cells + shift[:, :1]  # pairs x inner
    columns = cells + shift[:, 1:]
    picture = np.arange(len(pictures))
    return pictures[picture[:, None, None], rows[:, :, None], columns[:, None, :]]  # indices: picture, row, column


def _centred(pixels: Float32[np.ndarray, "pairs inner inner"]) -> Float32[np.ndarray, "pairs pixels"]:
    """The pixels of each picture in one line, minus their mean."""
    flat = pixels.reshape(len(pixels), pixels.shape[1] * pixels.shape[2])
    return flat - flat.mean(axis=1, keepdims=True)


def _blocks(n: int) -> list[slice]:
    """Slices of at most BLOCK of n images."""
    return [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]
