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
SIDE = 32  # of a signature
LOW = 8  # DCT frequencies kept along each axis
ALIKE = 0.8  # least cosine of low frequencies for a closer comparison
SAME_DETAIL = 0.7  # least correlation of edges and texture; a half-size copy of a 32-pixel image keeps .75
TOLERANCE = 0.3  # most that may stay unexplained, as a share of NOISE + what re-encoding and resizing take away
NOISE = 4.0  # grey levels
SHARP = 0.3  # least share of the tolerance for pictures much larger than a signature: their copies agree better
MARGIN = 3  # border left out of the closer comparison: a shift brings in new pixels there
FLAT = 1.0  # grey levels of detail (standard deviation) below which there is nothing to compare
BLOCK = 2048  # images compared with as many others at a time
COPIES = 100  # of one picture, up to which every pair is listed: 60,000 blank images would have 2 * 10^9
LONG = 50  # pairs of blocks from which on a progress bar is shown

INNER = slice(MARGIN, SIDE - MARGIN)
SHIFTS = np.array(list(product((-1, 0, 1), repeat=2)))

Signatures = UInt8[np.ndarray, "images 32 32"]
Pictures = Float32[np.ndarray, "pairs 32 32"]


def signature(image: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "32 32"]:
    """The picture in 32 x 32 grey levels, whatever its shape."""
    return np.asarray(Image.fromarray(image).convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def perceptual_hashes(signatures: Signatures) -> UInt64[np.ndarray, " images"]:
    """64 bits per image, mostly equal for similar pictures: whether each low DCT frequency exceeds their median.

    The bit of frequency (0, 0), the brightness, is always 0.
    """
    low = _low_frequencies(signatures)
    bits = np.pad(low > np.median(low, axis=1, keepdims=True), ((0, 0), (1, 0)))
    return np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64)[:, 0]


def exact_pairs(digests: Sequence[bytes]) -> Int32[np.ndarray, "pairs 2"]:
    """All pairs of positions with equal digests, the smaller first; of over COPIES equal ones each with the first.

    >>> exact_pairs([b"x", b"y", b"x", b"x"]).tolist()
    [[0, 2], [0, 3], [2, 3]]
    """
    groups = defaultdict(list)
    for position, digest in enumerate(digests):
        groups[digest].append(position)
    pairs = [np.asarray(group)[_within(len(group))] for group in groups.values() if len(group) > 1]
    return np.concatenate([np.empty((0, 2), np.int32), *pairs]).astype(np.int32)


def _within(n: int) -> Int[np.ndarray, "pairs 2"]:
    ends = np.triu_indices(n, 1) if n <= COPIES else (np.zeros(n - 1, int), np.arange(1, n))
    return np.stack(ends, axis=1)


def near_pairs(signatures: Signatures, sides: Int[np.ndarray, " images"]) -> Int32[np.ndarray, "pairs 2"]:
    """Pairs of positions that show the same picture, the smaller first; exact copies are among them.

    sides: the shorter side of each stored image in pixels.

    Three comparisons, each of the pairs that the last one left. All pairs: the cosine of their low DCT frequencies (the
    idea of the perceptual hash before its rounding to bits), one matrix product a block, n^2 / 2 * 63 multiplications.
    Then the correlation of edges and texture, the best over shifts by a cell. Then what one smoothed picture leaves
    unexplained of the other, against the finest detail of both, which is what a resizing loses: smooth pictures must
    agree to a few grey levels (two scans of one digit do not), busy ones may differ more. Flat pictures match nothing;
    below 32 pixels a shift by one is more than a cell and not found.
    """
    low = _low_frequencies(signatures)
    low /= np.maximum(np.linalg.norm(low, axis=1, keepdims=True), 1e-6)
    detail = _smooth(signatures, 0.7) - _smooth(signatures, 2.0)
    smooth = _smooth(signatures, 1.2)
    fine = (signatures - smooth)[:, INNER, INNER].std(axis=(1, 2))
    found = [np.empty((0, 2), np.int64)]
    blocks = list(combinations_with_replacement(_blocks(len(signatures)), 2))
    for first, second in watched(blocks, "comparing pictures", long=len(blocks) >= LONG):
        i, j = np.nonzero(low[first] @ low[second].T > ALIKE)
        candidates = np.stack([i + first.start, j + second.start], axis=1)
        candidates = candidates[candidates[:, 0] < candidates[:, 1]]
        for pairs in np.array_split(candidates, len(candidates) // BLOCK + 1):
            correlation, shift = _best_shift(detail[pairs[:, 0]], detail[pairs[:, 1]])
            same = correlation >= SAME_DETAIL
            kept = pairs[same]
            left = _unexplained(smooth[kept[:, 0]], smooth[kept[:, 1]], shift[same])
            sharp = np.clip(SIDE / sides[kept].min(axis=1), SHARP, 1)
            found.append(kept[left <= TOLERANCE * (NOISE + fine[kept].max(axis=1)) * sharp])
    return np.concatenate(found).astype(np.int32)


def _unexplained(a: Pictures, b: Pictures, shift: Int[np.ndarray, "pairs 2"]) -> Float[np.ndarray, " pairs"]:
    """Standard deviation, in grey levels, of what is left of `b` after fitting it by `a` moved by `shift`.

    The fit has any contrast and brightness, and the derivatives of `a`: a shift by part of a cell.
    """
    by_y, by_x = np.gradient(a, axis=(1, 2))
    parts = np.stack([_centred(_moved(picture, shift)) for picture in (a, by_y, by_x)], axis=2)
    wanted = _centred(b[:, INNER, INNER])
    gram = np.einsum("pik,pil->pkl", parts, parts) + 1e-3 * np.eye(3)  # a picture may not vary along one axis
    weights = np.linalg.solve(gram, np.einsum("pik,pi->pk", parts, wanted)[..., None])
    return (wanted - (parts @ weights)[..., 0]).std(axis=1)


def _low_frequencies(signatures: Signatures) -> Float32[np.ndarray, "images 63"]:
    """Low DCT frequencies but the mean, after fading out the border, where a shift changes most."""
    fade = np.sqrt(np.sin(np.pi * (np.arange(SIDE) + 0.5) / SIDE))
    window = np.outer(fade, fade).astype(np.float32)
    low = np.empty((len(signatures), LOW * LOW - 1), np.float32)
    for rows in _blocks(len(signatures)):
        grey = signatures[rows].astype(np.float32)
        mean = (grey * window).sum(axis=(1, 2), keepdims=True) / window.sum()
        frequencies = dctn((grey - mean) * window, axes=(1, 2), norm="ortho")[:, :LOW, :LOW]
        low[rows] = frequencies.reshape(len(grey), LOW * LOW)[:, 1:]
    return low


def _smooth(signatures: Signatures, sigma: float) -> Pictures:
    return np.asarray(gaussian_filter(signatures.astype(np.float32), (0, sigma, sigma)))


def _best_shift(a: Pictures, b: Pictures) -> tuple[Float32[np.ndarray, " pairs"], Int[np.ndarray, "pairs 2"]]:
    """Pearson correlation of the inner pixels, best over shifts of `a` by -1, 0, 1 along each axis; and that shift."""
    still = _centred(b[:, INNER, INNER])
    scores = np.empty((len(SHIFTS), len(a)), np.float32)
    for k, (y, x) in enumerate(SHIFTS):
        moved = _centred(a[:, MARGIN + y : SIDE - MARGIN + y, MARGIN + x : SIDE - MARGIN + x])
        size = np.linalg.norm(moved, axis=1) * np.linalg.norm(still, axis=1)
        flat = size < FLAT**2 * still.shape[1]
        scores[k] = np.where(flat, -1, np.einsum("ij,ij->i", moved, still) / np.maximum(size, 1e-6))
    return scores.max(axis=0), SHIFTS[scores.argmax(axis=0)]


def _moved(pictures: Pictures, shift: Int[np.ndarray, "pairs 2"]) -> Float32[np.ndarray, "pairs inner inner"]:
    """The inner pixels of each picture, read its own `shift` further down and right."""
    cells = np.arange(MARGIN, SIDE - MARGIN)
    rows, columns = cells + shift[:, :1], cells + shift[:, 1:]
    return pictures[np.arange(len(pictures))[:, None, None], rows[:, :, None], columns[:, None, :]]


def _centred(pixels: Float32[np.ndarray, "pairs inner inner"]) -> Float32[np.ndarray, "pairs pixels"]:
    flat = pixels.reshape(len(pixels), pixels.shape[1] * pixels.shape[2])
    return flat - flat.mean(axis=1, keepdims=True)


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]
