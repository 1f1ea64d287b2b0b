"""Local dependence: pairs of items whose residuals go together although ability is accounted for (Yen's Q3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer

from fca.studies.irt.stats.model import IrtFit, Matrix

BLOCK = 1024  # items that are paired with all later ones at a time
FEWEST = 5.0  # expected right and expected wrong responses of an item that is paired

Scaled = Float[np.ndarray, "subjects items"]


class Pairs(NamedTuple):
    """Pairs of items, the most dependent first.

    z: their residual covariance in standard deviations.   q3: the correlation of their residuals.
    """

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]
    z: Float[np.ndarray, " pairs"]
    q3: Float[np.ndarray, " pairs"]


class MeanQ3(NamedTuple):
    """Q3 over all pairs of items; and of each class over the pairs within it, NaN for classes of one item."""

    mean: float
    sd: float
    within: Float[np.ndarray, " classes"]
    pairs_within: Float[np.ndarray, " classes"]


def pairable(responses: Matrix, fit: IrtFit) -> Int[np.ndarray, " kept"]:
    """Items with five expected right and five expected wrong responses or more.

    >>> from fca.studies.irt.stats import fit_irt
    >>> responses = np.repeat([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], 10, axis=0)
    >>> pairable(responses, fit_irt(responses, "1pl"))
    array([1, 2])
    """
    present = ~np.isnan(responses)
    right = (fit.probability() * present).sum(axis=0)
    return np.flatnonzero(np.minimum(right, present.sum(axis=0) - right) >= FEWEST)


def scaled_residuals(responses: Matrix, probability: Matrix) -> Scaled:
    """Residuals x - P of every item, centred, with sum of squares 1; 0 where a response is missing.

    The product of two items' columns is their Q3. A missing response counts as one without surprise, which draws Q3
    towards 0.

    >>> scaled_residuals(np.array([[1.0], [0.0]]), np.array([[0.5], [0.5]])).round(3).tolist()
    [[0.707], [-0.707]]
    """
    present = ~np.isnan(responses)
    residuals = np.where(present, responses - probability, 0.0)
    residuals -= present * (residuals.sum(axis=0) / np.maximum(present.sum(axis=0), 1))
    return residuals / np.maximum(np.linalg.norm(residuals, axis=0), 1e-12)


def most_dependent(responses: Matrix, probability: Matrix, number: int) -> Pairs:
    """The pairs of highest z, a block of items at a time, with their Q3 = corr(x_i - P_i, x_j - P_j) (Yen 1984).

    z = Σ_s (x_i - P_i)(x_j - P_j) / sqrt(Σ_s P_i (1 - P_i) P_j (1 - P_j))   (score test; Glas & Suárez Falcón 2003)

    Pairs are ranked by z, because among thousands of items answered by few subjects many share all responses, and then
    have Q3 = 1, although the few weakest subjects missed both: z is small there.

    >>> x = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    >>> pairs = most_dependent(x, np.full((4, 3), 0.5), 1)
    >>> pairs.first, pairs.second, pairs.z, pairs.q3
    (array([0]), array([1]), array([2.]), array([1.]))
    """
    present = ~np.isnan(responses)
    residuals = np.where(present, responses - probability, 0.0)
    noise = probability * (1 - probability) * present
    residuals_32 = residuals.astype(np.float32)  # single precision is fast, and enough to rank pairs
    noise_32 = noise.astype(np.float32)

    first = np.empty(0, np.int64)
    second = np.empty(0, np.int64)
    z = np.empty(0, np.float32)
    for start in range(0, residuals_32.shape[1], BLOCK):
        block = slice(start, start + BLOCK)
        covariance_32 = residuals_32[:, block].T @ residuals_32[:, start:]
        variance_32 = noise_32[:, block].T @ noise_32[:, start:]
        z_of_block = covariance_32
        z_of_block /= np.sqrt(np.maximum(variance_32, np.float32(1e-12)))
        z_of_block[np.tril_indices_from(z_of_block)] = -np.inf  # each pair once, and none with itself

        lowest_of_best = z.min() if len(z) >= number else -np.inf
        threshold = max(lowest_of_best, _threshold(z_of_block, number))
        row, column = np.nonzero((z_of_block >= threshold) & np.isfinite(z_of_block))
        candidates = np.append(z, z_of_block[row, column])
        order = np.argsort(-candidates, kind="stable")[:number]
        first = np.append(first, row + start)[order]
        second = np.append(second, column + start)[order]
        z = candidates[order]

    # The chosen pairs in double precision; s: subjects, p: pairs
    covariance = np.einsum("sp,sp->p", residuals[:, first], residuals[:, second])
    variance = np.einsum("sp,sp->p", noise[:, first], noise[:, second])
    q3 = np.einsum(
        "sp,sp->p",
        scaled_residuals(responses[:, first], probability[:, first]),
        scaled_residuals(responses[:, second], probability[:, second]),
    )
    return Pairs(first, second, covariance / np.sqrt(variance), q3)


def _threshold(z: np.ndarray, number: int) -> float:
    """A value that at least `number` of these z reach, taken from the maxima of their rows if there are enough rows."""
    row_maxima = z.max(axis=1)
    return float(np.partition(row_maxima, -number)[-number]) if len(row_maxima) > number else -np.inf


def mean_q3(scaled: Scaled, label: Integer[np.ndarray, " items"]) -> MeanQ3:
    """Mean and standard deviation of Q3 over all pairs of items, and the mean within every class (codes from 0).

    Σ_i<j Q3 = (|Z 1|² - n) / 2 and Σ_i<j Q3² = (|Z Zᵀ|² - n) / 2 for scaled residuals Z: exact for any number of items.
    Without dependence the mean is about -1 / (n - 1) for n items (Yen 1984), and the standard deviation that of a
    correlation over so many subjects.

    >>> mean_q3(np.array([[0.8, 0.8, -0.6], [-0.6, -0.6, 0.8]]), np.array([0, 0, 1])).within
    array([ 1., nan])
    """

    length = (scaled**2).sum(axis=0)  # 1, or 0 for an item without residuals
    n_pairs = len(length) * (len(length) - 1) / 2
    mean = (np.square(scaled.sum(axis=1)).sum() - length.sum()) / 2 / n_pairs
    mean_square = (np.square(scaled @ scaled.T).sum() - (length**2).sum()) / 2 / n_pairs
    sd = np.sqrt(max(mean_square - mean**2, 0.0))

    # The same sums over the items of each class
    order = np.argsort(label, kind="stable")
    classes, start = np.unique(label[order], return_index=True)
    sums = np.zeros((len(scaled), int(label.max()) + 1))  # subjects x classes
    sums[:, classes] = np.add.reduceat(scaled[:, order], start, axis=1)
    n_items = np.bincount(label).astype(float)
    length_of_class = np.bincount(label, weights=length)
    pairs_within = n_items * (n_items - 1) / 2
    within = np.divide(
        (sums**2).sum(axis=0) - length_of_class,
        2 * pairs_within,
        out=np.full(len(pairs_within), np.nan),
        where=pairs_within > 0,
    )
    return MeanQ3(float(mean), float(sd), within, pairs_within)


def highest(responses: Matrix, probability: Matrix) -> float:
    """The highest z of any pair (see `most_dependent`).

    No fixed cut such as Q3 = 0.2 holds for 20 to 90 subjects and millions of pairs; compare with `highest` of responses
    drawn from the fit and fitted again (`fca.studies.psychometrics.stats.item_fit.replicates`; Christensen, Makransky
    & Horton 2017).

    >>> highest(np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), np.full((4, 2), 0.5))
    2.0
    """
    return float(most_dependent(responses, probability, 1).z[0])
