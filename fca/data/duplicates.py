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
MIN_SIZE_FACTOR = 0.3  # least share of the tolerance for pictures much larger than a signature
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
    """The picture as SIDE x SIDE grey pixels (32 x 32), whatever its own shape; `near_pairs` compares these."""
    return np.asarray(Image.fromarray(image).convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def perceptual_hashes(signatures: Signatures) -> UInt64[np.ndarray, " images"]:
    """A hash of 64 bits for each image. The hashes of similar pictures agree in most of their bits.

    Each bit states whether one low DCT frequency of the image exceeds the median of its low frequencies. The bit of
    frequency (0, 0), the brightness, is always 0.

    signatures: every image, resized to 32 x 32 grey pixels.
    """
    frequencies = _low_frequencies(signatures)
    is_above_median = frequencies > np.median(frequencies, axis=1, keepdims=True)
    bits = np.pad(is_above_median, ((0, 0), (1, 0)))  # images x 64: a 0 for the brightness, then the 63 frequencies
    bytes_of_hash = np.ascontiguousarray(np.packbits(bits, axis=1))  # images x 8
    return bytes_of_hash.view(np.uint64)[:, 0]


def exact_pairs(digests: Sequence[bytes]) -> Int32[np.ndarray, "pairs 2"]:
    """All pairs of images whose digests are equal: the positions of both images, the smaller position first.

    digests: of the content of each image.

    If more than MAX_ALL_PAIRS images have the same digest, each of them is paired only with the first one, because the
    number of all pairs would be too large.

    >>> exact_pairs([b"x", b"y", b"x", b"x"]).tolist()
    [[0, 2], [0, 3], [2, 3]]
    """
    positions_by_digest = defaultdict(list)
    for position, digest in enumerate(digests):
        positions_by_digest[digest].append(position)

    # A list of index pairs, used as an index, turns the positions of one digest into pairs of positions.
    copies = [np.asarray(positions) for positions in positions_by_digest.values() if len(positions) > 1]
    pairs = [positions[_pairs_within(len(positions))] for positions in copies]
    no_pairs = np.empty((0, 2), np.int32)  # the result if all digests differ
    return np.concatenate([no_pairs, *pairs]).astype(np.int32)


def _pairs_within(n: int) -> Int[np.ndarray, "pairs 2"]:
    """All pairs of the numbers 0 to n - 1, the smaller first; if n > MAX_ALL_PAIRS, only the pairs with 0."""
    if n <= MAX_ALL_PAIRS:
        first, second = np.triu_indices(n, 1)
    else:
        first = np.zeros(n - 1, int)
        second = np.arange(1, n)
    return np.stack([first, second], axis=1)


def near_pairs(signatures: Signatures, sides: Int[np.ndarray, " images"]) -> Int32[np.ndarray, "pairs 2"]:
    """Find the pairs of images that show the same picture: copies that were re-encoded, resized or shifted a little.

    Returns the positions of both images of each pair, the smaller position first. Exact copies are among the pairs.

    signatures: every image, resized to 32 x 32 grey pixels, which are called cells here. See `signature`.
    sides:      the shorter side of each image before it was resized, in pixels.

    Three comparisons follow one another, the fastest first. Each one sees only the pairs that passed the one before:

    1. The cosine between the low DCT frequencies of both images exceeds MIN_COSINE. All pairs are
       compared, with one matrix product per pair of blocks of images: n^2 / 2 * 63 multiplications for n images.
    2. The correlation of edges and texture is at least MIN_CORRELATION, at the best shift by up to one cell.
    3. One smoothed picture is fitted to the other. What remains is at most the tolerance, in grey levels:

           tolerance = TOLERANCE (NOISE + fine contrast) (size factor)

       NOISE is what re-encoding changes in any picture. The fine contrast is that of the finest detail (of the picture
       with more of it), because a resize loses detail. So smooth pictures must agree to a few grey levels (two scans of
       one digit do not), and pictures with much detail may differ more. The size factor is 1 for images of up to 32
       pixels a side. For larger ones it falls to MIN_SIZE_FACTOR, because their copies agree better.

    The fine contrast and comparisons 2 and 3 leave out the cells at the border: INNER is the slice of all others.

    Pictures without any contrast match nothing. An image below 32 pixels has more than one cell per pixel, so a shift
    of it by one pixel is not detected.
    """
    frequencies = _low_frequencies(signatures)
    frequencies /= np.maximum(np.linalg.norm(frequencies, axis=1, keepdims=True), 1e-6)  # a flat picture has norm 0
    # The difference of a slightly and a strongly smoothed picture is free of slow changes of brightness. The second
    # argument of `_smooth` is the standard deviation of its Gaussian filter, in cells.
    edges_and_texture = _smooth(signatures, 0.7) - _smooth(signatures, 2.0)
    smooth = _smooth(signatures, 1.2)
    fine_contrast = (signatures - smooth)[:, INNER, INNER].std(axis=(1, 2))  # of each image, in grey levels

    found_pairs = [np.empty((0, 2), np.int64)]  # begins with an empty array, in case none are found
    pairs_of_blocks = list(combinations_with_replacement(_blocks(len(signatures)), 2))  # also each block with itself
    for first, second in watched(pairs_of_blocks, "comparing pictures", long=len(pairs_of_blocks) >= MANY_BLOCKS):
        cosine = frequencies[first] @ frequencies[second].T  # images of the first block x images of the second block
        i, j = np.nonzero(cosine > MIN_COSINE)
        candidates = np.stack([i + first.start, j + second.start], axis=1)  # positions among all images
        # A block with itself has each pair twice, and each image with itself.
        candidates = candidates[candidates[:, 0] < candidates[:, 1]]

        # The closer comparisons need much memory, so they take at most BLOCK pairs at a time.
        for pairs in np.array_split(candidates, len(candidates) // BLOCK + 1):
            correlation, shift = _best_shift(edges_and_texture[pairs[:, 0]], edges_and_texture[pairs[:, 1]])
            is_correlated = correlation >= MIN_CORRELATION

            correlated = pairs[is_correlated]
            residual = _unexplained(smooth[correlated[:, 0]], smooth[correlated[:, 1]], shift[is_correlated])
            side_of_smaller = sides[correlated].min(axis=1)  # the shorter side of the smaller image of each pair
            size_factor = np.clip(SIDE / side_of_smaller, MIN_SIZE_FACTOR, 1)
            tolerance = TOLERANCE * (NOISE + fine_contrast[correlated].max(axis=1)) * size_factor
            found_pairs.append(correlated[residual <= tolerance])
    return np.concatenate(found_pairs).astype(np.int32)


def _unexplained(a: Pictures, b: Pictures, shift: Int[np.ndarray, "pairs 2"]) -> Float[np.ndarray, " pairs"]:
    """How much of picture `b` is not explained by picture `a`: the standard deviation of the residuals, in grey levels.

    For each pair, `a` is moved by `shift` (in cells, along each axis) and fitted to `b` by least squares:

        b ~ w0 a + w1 da/dy + w2 da/dx + constant

    w0 and the constant allow for another contrast and brightness, and the derivatives for a shift by a fraction of a
    cell. Subtracting the means of all four pictures takes the place of the constant. Only the inner cells are compared.
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
    """The lowest 8 x 8 DCT frequencies of each image without frequency (0, 0), which is its brightness.

    Before the transform the images are faded out towards the border, because a shift changes the cells there most. The
    mean is subtracted before that: a faded brightness would add to other frequencies than (0, 0).

    signatures: every image, resized to 32 x 32 grey pixels.
    """
    fade = np.sqrt(np.sin(np.pi * (np.arange(SIDE) + 0.5) / SIDE))  # 0.2 at both ends, 1 in the middle
    window = np.outer(fade, fade).astype(np.float32)
    low = np.empty((len(signatures), N_FREQUENCIES * N_FREQUENCIES - 1), np.float32)
    for rows in _blocks(len(signatures)):  # the DCT of all images at once would need much memory
        grey = signatures[rows].astype(np.float32)
        mean = (grey * window).sum(axis=(1, 2), keepdims=True) / window.sum()  # weighted by the window
        frequencies = dctn((grey - mean) * window, axes=(1, 2), norm="ortho")[:, :N_FREQUENCIES, :N_FREQUENCIES]
        low[rows] = frequencies.reshape(len(grey), N_FREQUENCIES * N_FREQUENCIES)[:, 1:]
    return low


def _smooth(signatures: Signatures, sigma: float) -> Pictures:
    """Each image after a Gaussian filter; sigma in cells."""
    return np.asarray(gaussian_filter(signatures.astype(np.float32), (0, sigma, sigma)))


def _best_shift(a: Pictures, b: Pictures) -> tuple[Float32[np.ndarray, " pairs"], Int[np.ndarray, "pairs 2"]]:
    """Move the first picture of each pair to where it correlates best with the second: that correlation, and the shift.

    a, b: the first and the second picture of every pair.

    The first picture is moved by -1, 0 or 1 cell along each axis (nine shifts). The Pearson correlation is that of the
    inner cells, because a shift brings new cells in at the border. It is -1 if a picture has too little contrast to be
    compared.
    """
    target = _centred(b[:, INNER, INNER])
    correlations = np.empty((len(SHIFTS), len(a)), np.float32)
    for k, (y, x) in enumerate(SHIFTS):
        moved = _centred(a[:, MARGIN + y : SIDE - MARGIN + y, MARGIN + x : SIDE - MARGIN + x])
        norms = np.linalg.norm(moved, axis=1) * np.linalg.norm(target, axis=1)
        # A norm is (standard deviation) * sqrt(number of pixels): if both deviations are MIN_CONTRAST, the product of
        # the norms is MIN_CONTRAST^2 * (number of pixels).
        is_flat = norms < MIN_CONTRAST**2 * target.shape[1]
        products = np.einsum("ij,ij->i", moved, target)  # i: pair, j: pixel
        correlations[k] = np.where(is_flat, -1, products / np.maximum(norms, 1e-6))  # 1e-6: no division by 0
    return correlations.max(axis=0), SHIFTS[correlations.argmax(axis=0)]


def _moved(pictures: Pictures, shifts: Int[np.ndarray, "pairs 2"]) -> Float32[np.ndarray, "pairs inner inner"]:
    """The inner cells of each picture after a shift of its own: the value of a cell is read `shift` cells further on.

    shifts: for each picture, the number of cells down and to the right.
    """
    cells = np.arange(MARGIN, SIDE - MARGIN)
    rows = cells + shifts[:, :1]  # pairs x inner: the rows to read for each picture
    columns = cells + shifts[:, 1:]
    picture = np.arange(len(pictures))
    return pictures[picture[:, None, None], rows[:, :, None], columns[:, None, :]]  # indices: picture, row, column


def _centred(pixels: Float32[np.ndarray, "pairs inner inner"]) -> Float32[np.ndarray, "pairs pixels"]:
    """The pixels of each picture as one flat line, from which the picture's mean is subtracted."""
    flat = pixels.reshape(len(pixels), pixels.shape[1] * pixels.shape[2])
    return flat - flat.mean(axis=1, keepdims=True)


def _blocks(n: int) -> list[slice]:
    """Divide n images into blocks of at most BLOCK, and return the slice of each block."""
    return [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]
