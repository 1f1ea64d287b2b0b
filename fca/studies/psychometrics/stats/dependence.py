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
    >>> found = most_dependent(x, np.full((4, 3), 0.5), 1)
    >>> found.first, found.second, found.z, found.q3
    (array([0]), array([1]), array([2.]), array([1.]))
    """
    present = ~np.isnan(responses)
    residuals = np.where(present, responses - probability, 0.0)
    noise = probability * (1 - probability) * present
    short, short_noise = residuals.astype(np.float32), noise.astype(np.float32)
    first, second, z = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    for start in range(0, short.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        products = short[:, part].T @ short[:, start:]
        products /= np.sqrt(np.maximum(short_noise[:, part].T @ short_noise[:, start:], np.float32(1e-12)))
        products[np.tril_indices_from(products)] = -np.inf  # each pair once, and none with itself
        least = max(z.min() if len(z) >= number else -np.inf, _threshold(products, number))
        row, column = np.nonzero((products >= least) & np.isfinite(products))
        joined = np.append(z, products[row, column])
        order = np.argsort(-joined, kind="stable")[:number]
        first, second = (np.append(old, new + start)[order] for old, new in ((first, row), (second, column)))
        z = joined[order]
    chosen = (np.einsum("sp,sp->p", part[:, first], part[:, second]) for part in (residuals, noise))
    covariance, variance = chosen
    scaled = [scaled_residuals(responses[:, at], probability[:, at]) for at in (first, second)]
    return Pairs(first, second, covariance / np.sqrt(variance), np.einsum("sp,sp->p", *scaled))


def _threshold(products: np.ndarray, number: int) -> float:
    """A value that at least `number` of the products reach, found in their rows' maxima where there are enough."""
    highest = products.max(axis=1)
    return float(np.partition(highest, -number)[-number]) if len(highest) > number else -np.inf


def mean_q3(scaled: Scaled, label: Integer[np.ndarray, " items"]) -> MeanQ3:
    """Mean and standard deviation of Q3 over all pairs of items, and the mean within every class (codes from 0).

    Σ_i<j Q3 = (|Z 1|² - n) / 2 and Σ_i<j Q3² = (|Z Zᵀ|² - n) / 2 for scaled residuals Z: exact for any number of items.
    Without dependence the mean is about -1 / (n - 1) for n items (Yen 1984), and the standard deviation that of a
    correlation over so many subjects.

    >>> mean_q3(np.array([[0.8, 0.8, -0.6], [-0.6, -0.6, 0.8]]), np.array([0, 0, 1])).within
    array([ 1., nan])
    """

    length = (scaled**2).sum(axis=0)  # 1, or 0 for an item without residuals
    every = len(length) * (len(length) - 1) / 2
    mean = (np.square(scaled.sum(axis=1)).sum() - length.sum()) / 2 / every
    squares = (np.square(scaled @ scaled.T).sum() - (length**2).sum()) / 2 / every
    order = np.argsort(label, kind="stable")
    classes, start = np.unique(label[order], return_index=True)
    sums = np.zeros((len(scaled), int(label.max()) + 1))
    sums[:, classes] = np.add.reduceat(scaled[:, order], start, axis=1)
    count, own = np.bincount(label).astype(float), np.bincount(label, weights=length)
    some = count * (count - 1) / 2
    within = np.divide((sums**2).sum(axis=0) - own, 2 * some, out=np.full(len(some), np.nan), where=some > 0)
    return MeanQ3(float(mean), float(np.sqrt(max(squares - mean**2, 0.0))), within, some)


def highest(responses: Matrix, probability: Matrix) -> float:
    """The highest z of any pair (see `most_dependent`).

    No fixed cut such as Q3 = .2 holds for 20 to 90 subjects and millions of pairs; compare with `highest` of responses
    drawn from the fit and fitted again (`fca.studies.psychometrics.stats.item_fit.replicates`; Christensen, Makransky
    & Horton 2017).

    >>> highest(np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), np.full((4, 2), 0.5))
    2.0
    """
    return float(most_dependent(responses, probability, 1).z[0])
