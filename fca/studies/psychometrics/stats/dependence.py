"""Local dependence: pairs of items whose residuals go together although ability is accounted for (Yen's Q3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer

from fca.studies.irt.stats.model import IrtFit, Matrix

BLOCK = 1024  # items that are paired with all later ones at a time
FEWEST = 5.0  # an item is paired if it has as many expected right and expected wrong responses

Scaled = Float[np.ndarray, "subjects items"]


class Pairs(NamedTuple):
    """Pairs of items, the most dependent first.

    first, second: positions of the items.
    z: the covariance of their residuals, in standard deviations.
    q3: the correlation of their residuals.
    """

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]
    z: Float[np.ndarray, " pairs"]
    q3: Float[np.ndarray, " pairs"]


class MeanQ3(NamedTuple):
    """Mean and standard deviation of Q3 over all pairs of items, and its mean over the pairs within each class.

    Q3 of a pair is the correlation of the residuals of its two items.

    within: mean of each class; NaN for a class of one item.
    pairs_within: number of pairs of each class.
    """

    mean: float
    sd: float
    within: Float[np.ndarray, " classes"]
    pairs_within: Float[np.ndarray, " classes"]


def pairable_items(responses: Matrix, fit: IrtFit) -> Int[np.ndarray, " pairable"]:
    """Positions of the items with at least five expected right and five expected wrong responses.

    Numbers are expected under the fit. With fewer, the residuals of an item are too few to be compared with others.

    responses: those of the fit, subjects x items; 1, 0, NaN for no response.

    >>> from fca.studies.irt.stats import fit_irt
    >>> responses = np.repeat([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], 10, axis=0)
    >>> pairable_items(responses, fit_irt(responses, "1pl"))
    array([1, 2])
    """
    present = ~np.isnan(responses)
    expected_right = (fit.probability() * present).sum(axis=0)
    expected_wrong = present.sum(axis=0) - expected_right
    return np.flatnonzero(np.minimum(expected_right, expected_wrong) >= FEWEST)


def scaled_residuals(responses: Matrix, probability: Matrix) -> Scaled:
    """Residuals x - P of every item, centred, with a sum of squares of 1; 0 where a response is missing.

    The scalar product of two items' columns is their Q3, the correlation of their residuals. A missing response counts
    as an unsurprising one, which draws Q3 towards 0. An item without residuals stays 0.

    responses: x, subjects x items; 1, 0, NaN for no response.
    probability: P, the predicted chance of a right response.

    >>> scaled_residuals(np.array([[1.0], [0.0]]), np.array([[0.5], [0.5]])).round(3).tolist()
    [[0.707], [-0.707]]
    """
    present = ~np.isnan(responses)
    residuals = np.where(present, responses - probability, 0.0)
    item_means = residuals.sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    residuals -= present * item_means
    return residuals / np.maximum(np.linalg.norm(residuals, axis=0), 1e-12)


def most_dependent(responses: Matrix, probability: Matrix, number: int) -> Pairs:
    """The `number` pairs of items of highest z, with their Q3 = corr(x_i - P_i, x_j - P_j) (Yen 1984).

    z = Σ_s (x_i - P_i)(x_j - P_j) / sqrt(Σ_s P_i (1 - P_i) P_j (1 - P_j))   (score test; Glas & Suárez Falcón 2003)

    z is the covariance of the residuals of items i and j over subjects s, in standard deviations. Pairs are ranked by z
    because Q3 misleads with thousands of items and few subjects: many items share all responses and then have Q3 = 1,
    although only the few weakest subjects missed both. Their z is small.

    responses: x, subjects x items; 1, 0, NaN for no response.
    probability: P, the predicted chance of a right response.

    >>> x = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    >>> pairs = most_dependent(x, np.full((4, 3), 0.5), 1)
    >>> pairs.first, pairs.second, pairs.z, pairs.q3
    (array([0]), array([1]), array([2.]), array([1.]))
    """
    present = ~np.isnan(responses)
    residuals = np.where(present, responses - probability, 0.0)
    variances = probability * (1 - probability) * present

    # the search over all pairs is in single precision, which is faster
    first, second = _pairs_of_highest_z(residuals.astype(np.float32), variances.astype(np.float32), number)

    # z of the listed pairs again, in double precision, and Q3, the product of residuals that are centred and scaled to
    # a sum of squares of 1; s: subject, p: pair
    covariance = np.einsum("sp,sp->p", residuals[:, first], residuals[:, second])
    covariance_variance = np.einsum("sp,sp->p", variances[:, first], variances[:, second])
    z = covariance / np.sqrt(covariance_variance)
    scaled_first = scaled_residuals(responses[:, first], probability[:, first])
    scaled_second = scaled_residuals(responses[:, second], probability[:, second])
    q3 = np.einsum("sp,sp->p", scaled_first, scaled_second)
    return Pairs(first, second, z, q3)


def _pairs_of_highest_z(
    residuals: Float[np.ndarray, "subjects items"], variances: Float[np.ndarray, "subjects items"], number: int
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Positions of the first and of the second item of the `number` pairs of highest z, the highest first.

    z of items i and j is Σ_s r_i r_j / sqrt(Σ_s v_i v_j) over subjects s. One block of items at a time is paired
    with all later items, to bound memory.

    residuals: r = x - P; 0 for a missing response.
    variances: v = P (1 - P); 0 for a missing response.
    """
    first = np.empty(0, np.int64)
    second = np.empty(0, np.int64)
    z = np.empty(0, np.float32)

    for start in range(0, residuals.shape[1], BLOCK):
        block = slice(start, start + BLOCK)
        block_z = residuals[:, block].T @ residuals[:, start:]  # items of the block x items from the block on
        block_variance = np.maximum(variances[:, block].T @ variances[:, start:], np.float32(1e-12))  # never 0
        block_z /= np.sqrt(block_variance)
        # row i and column i are the same item: above the diagonal is each pair once, and no item with itself
        block_z[np.tril_indices_from(block_z)] = -np.inf

        # only candidates are sorted, the pairs of the block that can enter the list. Their z reaches the lowest z of a
        # full list. It also reaches a threshold that at least `number` pairs of the block reach: these alone would fill
        # the list
        lowest_listed = z.min() if len(z) >= number else -np.inf
        threshold = max(lowest_listed, _reached_threshold(block_z, number))
        row, column = np.nonzero((block_z >= threshold) & np.isfinite(block_z))

        # the list with the candidates of the block appended, cut to the highest
        candidate_z = np.append(z, block_z[row, column])
        order = np.argsort(-candidate_z, kind="stable")[:number]
        first = np.append(first, row + start)[order]
        second = np.append(second, column + start)[order]
        z = candidate_z[order]

    return first, second


def _reached_threshold(z: np.ndarray, number: int) -> float:
    """A value that at least `number` entries of a matrix reach: the `number`-th highest of the maxima of its rows.

    It saves sorting all entries. -inf if there are not more rows than that.
    """
    row_maxima = z.max(axis=1)
    if len(row_maxima) <= number:
        return -np.inf
    return float(np.partition(row_maxima, -number)[-number])


def mean_q3(scaled: Scaled, label: Integer[np.ndarray, " items"]) -> MeanQ3:
    """Mean and standard deviation of Q3 over all pairs of items, and the mean over the pairs of items of each class.

    Q3 is the correlation of the residuals of two items (Yen 1984). For items i and j it is z_i · z_j, the scalar
    product of their columns of the scaled residuals Z. So sums over all pairs need no list of pairs:

    Σ_i<j Q3  = (|Σ_i z_i|² - Σ_i |z_i|²) / 2
    Σ_i<j Q3² = (|Z Zᵀ|² - Σ_i |z_i|⁴) / 2,   |.|² of a matrix: the sum of its squared elements

    Without dependence the mean is about -1 / (n - 1) for n items (Yen 1984), and the standard deviation is that of the
    correlation of two independent variables over the same number of subjects.

    scaled: Z, subjects x two or more items: residuals of each item, centred, with a sum of squares of 1.
    label: class of each item, a number from 0.

    >>> mean_q3(np.array([[0.8, 0.8, -0.6], [-0.6, -0.6, 0.8]]), np.array([0, 0, 1])).within
    array([ 1., nan])
    """
    squared_norm = (scaled**2).sum(axis=0)  # |z_i|²: 1, or 0 for an item without residuals
    n_items = len(squared_norm)
    n_pairs = n_items * (n_items - 1) / 2
    squared_total = np.square(scaled.sum(axis=1)).sum()  # |Σ_i z_i|²
    mean = (squared_total - squared_norm.sum()) / 2 / n_pairs
    squared_products = np.square(scaled @ scaled.T).sum()  # |Z Zᵀ|²; Z Zᵀ is subjects x subjects
    mean_square = (squared_products - (squared_norm**2).sum()) / 2 / n_pairs
    sd = np.sqrt(max(mean_square - mean**2, 0.0))  # max: rounding may make it slightly negative

    # Σ z_i over the items of each class, subjects x classes: items are sorted by class, and reduceat sums each class
    order = np.argsort(label, kind="stable")
    classes, class_starts = np.unique(label[order], return_index=True)
    class_sums = np.zeros((len(scaled), int(label.max()) + 1))
    class_sums[:, classes] = np.add.reduceat(scaled[:, order], class_starts, axis=1)

    # the first equation for the items of each class; a class of one item has no pairs and stays NaN
    class_sizes = np.bincount(label).astype(float)
    squared_norms_of_class = np.bincount(label, weights=squared_norm)  # Σ |z_i|²
    squared_sums_of_class = (class_sums**2).sum(axis=0)  # |Σ z_i|²
    pairs_within = class_sizes * (class_sizes - 1) / 2
    within = np.full(len(pairs_within), np.nan)
    np.divide(squared_sums_of_class - squared_norms_of_class, 2 * pairs_within, out=within, where=pairs_within > 0)
    return MeanQ3(float(mean), float(sd), within, pairs_within)


def highest_z(responses: Matrix, probability: Matrix) -> float:
    """The highest z of any pair of items: the covariance of their residuals x - P, in standard deviations.

    No fixed cut such as Q3 = 0.2 holds for 20 to 90 subjects and millions of pairs. Compare with `highest_z` of
    responses that are simulated from the fit and fitted again
    (`fca.studies.psychometrics.stats.item_fit.replicates`; Christensen, Makransky & Horton 2017).

    responses: x, subjects x items; 1, 0, NaN for no response.
    probability: P, the predicted chance of a right response.

    >>> highest_z(np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), np.full((4, 2), 0.5))
    2.0
    """
    return float(most_dependent(responses, probability, 1).z[0])
