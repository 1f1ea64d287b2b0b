"""Right and shown images of subdomains whose true accuracies vary: shares with intervals, and tests for low ones.

Images of one subdomain are not independent draws of all images: subdomains differ, so two images of one are correlated,
and 50 images of one subdomain are worth less than one image of each of 50. Of n images c are right, a beta-binomial
count: accuracies of subdomains have mean p and variance rho p (1 - p), and rho is the correlation of two images.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv, betaln, gammaln, ndtri, stdtr, stdtrit, xlogy

from fca.stats.intervals import LEVEL, NO_INTERVAL, UNKNOWN_ESTIMATE, Estimated

NO_CORRELATION = 1e-6  # as good as 0, and still a beta-binomial
CORRELATIONS = np.concatenate([[NO_CORRELATION], np.geomspace(0.003, 0.9, 40)])
EVEN = 0.8  # share of the larger side's subdomains that both sides are worth, so that they count as even
PERMUTED = 999  # null tables of a confirmation
CONFIRMING = 0.025  # the largest p-value that confirms a rule
EDGE = 1e-9  # of accuracies and shares: nearer to 0, 1 or each other is equal

PerSubdomain = Num[np.ndarray, " subdomains"]
Groups = Int[np.ndarray, " subdomains"]
Rules = Bool[np.ndarray, "rules subdomains"]


def effective_images(n_images: PerSubdomain, correlation: float) -> Float[np.ndarray, " subdomains"]:
    """How many independent images the images of each subdomain are worth: n / (1 + (n - 1) rho).

    >>> effective_images(np.array([1, 10, 50]), 0.1).round(2)
    array([1.  , 5.26, 8.47])
    """
    return n_images / (1 + (n_images - 1) * correlation)


def image_correlation(correct: PerSubdomain, n_images: PerSubdomain, group: Groups) -> float:
    """Correlation of two images of a subdomain: the beta-binomial of highest likelihood, each group with its own p.

    A grid search. p of a group is its share of right images, weighted by `effective_images`.

    >>> image_correlation(np.array([10, 0, 10, 0]), np.array([10, 10, 10, 10]), np.zeros(4, int)) > 0.5
    True
    """
    weight = n_images / (1 + np.outer(CORRELATIONS, n_images - 1))
    in_group = np.eye(group.max() + 1)[group]
    share = (weight * correct / n_images) @ in_group / (weight @ in_group)
    mean = np.clip(share, EDGE, 1 - EDGE)[:, group]

    concentration = (1 / CORRELATIONS - 1)[:, None]
    a, b = mean * concentration, (1 - mean) * concentration
    likelihood = np.sum(betaln(correct + a, n_images - correct + b) - betaln(a, b), axis=1)
    return float(CORRELATIONS[likelihood.argmax()])


def share_with_interval(correct: PerSubdomain, n_images: PerSubdomain) -> Estimated:
    """Share of right images of the population that some subdomains were drawn from, with its 95 % interval.

    p  = sum w c / n / sum w,   w: `effective_images`,   k subdomains
    s² = sum w (c / n - p)² / (k - 1)
    n* = p (1 - p) sum w / s² (z / t)², at most all images; t of (sum w)² / sum w² - 1 degrees of freedom
    interval: Clopper and Pearson's of p n* right images of n*    (Korn and Graubard 1998, Survey Methodology 24:193)

    It stays in [0, 1], and where all images are right it is that of so many independent images: it holds less than
    95 % where a few subdomains fail and most are right everywhere, since two to five often contain none of the few
    (experiments/failure_search/README.md). NaN, NaN with a single subdomain; all three are NaN without any.

    >>> value, low, high = share_with_interval(np.array([9, 7, 10, 8, 6]), np.array([10, 10, 10, 10, 10]))
    >>> round(value, 3), round(low, 2), round(high, 2)
    (0.8, 0.53, 0.95)
    """
    if not len(correct):
        return UNKNOWN_ESTIMATE
    everything = np.zeros(len(correct), dtype=np.int64)
    weight = effective_images(n_images, image_correlation(correct, n_images, everything))
    accuracy = correct / n_images
    share = float(weight @ accuracy / weight.sum())
    if len(correct) < 2:
        return Estimated(share, *NO_INTERVAL)

    freedom = max(weight.sum() ** 2 / (weight @ weight) - 1, 1.0)
    variance = weight @ (accuracy - share) ** 2 / (len(correct) - 1)
    narrower = (ndtri(0.5 + LEVEL / 2) / stdtrit(freedom, 0.5 + LEVEL / 2)) ** 2
    independent = float(n_images.sum())
    if variance > EDGE:
        independent = min(independent, share * (1 - share) * weight.sum() / variance * narrower)

    right, wrong = share * independent, (1 - share) * independent
    low = float(betaincinv(right, wrong + 1, 0.5 - LEVEL / 2)) if share > EDGE else 0.0
    high = float(betainccinv(right + 1, wrong, 0.5 - LEVEL / 2)) if share < 1 - EDGE else 1.0
    return Estimated(share, low, high)


def p_lower(correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """One-sided p-value of a lower accuracy inside than outside; NaN with too few subdomains for a test.

    The largest of two or three: of Student's t of the two shares, which sees how much subdomains vary,

    t = (p_in - p_out) / (s sqrt(1 / W_in + 1 / W_out)),   s² = sum w (c / n - p of the side)² / (k - 2)

    with w, the `effective_images`, W, their sum on a side, and (W_in² / sum w² + W_out² / sum w²) - 2 degrees of
    freedom; of Fisher's test of all images (mid-p), which holds where a few images decide; and, unless the sides are
    even, of the same t among tables whose subdomains are dealt to the sides again (mid-p). Accuracies near 1 are
    skewed. This cancels in t between even sides alone: those where either side is worth at least four fifths as many
    subdomains, (sum n)² / sum n², as the larger one has.

    The k subdomains can be dealt in C(k, k_in) ways, and the lowest t of all has a mid-p of 0.5 / C(k, k_in). Where
    this is above 0.025, no rule could be confirmed: NaN between uneven sides of two and two, three or four
    subdomains, as with fewer than two subdomains on any side.

    >>> inside = np.array([True] * 5 + [False] * 5)
    >>> round(p_lower(np.array([3, 5, 4, 2, 6, 9, 8, 10, 9, 7]), np.full(10, 10), inside), 4)
    0.0004
    >>> p_lower(np.array([0, 0, 10, 10, 10]), np.full(5, 10), np.array([True, True, False, False, False]))
    nan
    """
    side = np.where(inside, 0, 1)
    subdomains = np.bincount(side, minlength=2)
    if subdomains.min() < 2:
        return float("nan")

    worth = np.bincount(side, n_images) ** 2 / np.bincount(side, n_images**2)
    even = worth.min() >= EVEN * subdomains.max()
    deals = comb(len(n_images), int(subdomains[0]))
    if not even and 0.5 / deals > CONFIRMING:
        return float("nan")

    correlation = image_correlation(correct, n_images, side)
    weight = effective_images(n_images, correlation)
    freedom = float(np.sum(np.bincount(side, weight) ** 2 / np.bincount(side, weight**2))) - 2
    of_subdomains = float(stdtr(max(freedom, 1.0), _student_t(correct[None], n_images, inside, correlation)[0]))
    p = max(of_subdomains, _fisher_mid_p(correct, n_images, inside))
    return p if even else max(p, _dealt_mid_p(correct, n_images, inside))


def _student_t(
    tables: Num[np.ndarray, "tables subdomains"],
    n_images: PerSubdomain,
    inside: Bool[np.ndarray, " subdomains"],
    correlation: float,
) -> Float[np.ndarray, " tables"]:
    """The t of `p_lower` of each table of right images."""
    weight = effective_images(n_images, correlation)
    accuracy = tables / n_images
    total_inside, total_outside = weight[inside].sum(), weight[~inside].sum()
    share_inside = accuracy[:, inside] @ weight[inside] / total_inside
    share_outside = accuracy[:, ~inside] @ weight[~inside] / total_outside

    share = np.where(inside, share_inside[:, None], share_outside[:, None])
    variance = (accuracy - share) ** 2 @ weight / (len(n_images) - 2)
    return (share_inside - share_outside) / np.sqrt(np.maximum(variance, EDGE) * (1 / total_inside + 1 / total_outside))


def _dealt_mid_p(correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """Share of tables in which the side does not matter with a lower t; half of those with the same."""
    correlation = image_correlation(correct, n_images, np.zeros(len(n_images), dtype=np.int64))
    t = _student_t(_dealt_tables(correct, n_images, inside, correlation), n_images, inside, correlation)

    lower = np.sum(t < t[0] - EDGE)
    same = np.sum(np.abs(t - t[0]) <= EDGE)
    return float((lower + same / 2) / len(t))


def _dealt_tables(
    correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"], correlation: float
) -> Int[np.ndarray, "tables subdomains"]:
    """The table itself, and `alike_tables`: 999 at random, or each choice of subdomains inside equally often.

    The latter where there are up to 999 choices, so that the table's own choice is one of them and no more. With
    equally many images everywhere this is the exact permutation test; with other numbers the order within the sides
    and the quantile within a count's step are random.
    """
    rng = np.random.default_rng(0)  # one answer for one table
    subdomains, chosen = len(n_images), int(inside.sum())
    deals = comb(subdomains, chosen)
    if deals > PERMUTED:
        return np.vstack([correct, alike_tables(correct, n_images, correlation, PERMUTED, rng)])

    choices = np.zeros((deals, subdomains), dtype=bool)
    np.put_along_axis(choices, np.array(list(combinations(range(subdomains), chosen))), True, axis=1)
    others = choices[(choices != inside).any(axis=1)]
    rounds = -(-PERMUTED // deals)
    others = np.tile(others, (rounds, 1))

    below = _cumulative(correct, n_images, correlation)
    quantiles = _quantiles(correct, n_images, below, len(others), rng)
    dealt = np.empty(quantiles.shape)
    for side, from_choice in ((inside, others), (~inside, ~others)):
        dealt[:, side] = rng.permuted(quantiles[from_choice].reshape(len(others), -1), axis=1)
    return np.vstack([np.tile(correct, (rounds, 1)), _counts_at(dealt, n_images, below)])


def _fisher_mid_p(correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """Probability of so few right images inside when all right ones are dealt out at random; half of exactly so few."""
    right, right_inside = int(correct.sum()), int(correct[inside].sum())
    images, images_inside = int(n_images.sum()), int(n_images[inside].sum())
    fewest = max(0, right - (images - images_inside))
    dealt = np.arange(fewest, right_inside + 1)

    log_ways = _log_choose(images_inside, dealt) + _log_choose(images - images_inside, right - dealt)
    probability = np.exp(log_ways - _log_choose(images, right))
    return float(probability.sum() - probability[-1] / 2)


def _log_choose(n: ArrayLike, k: ArrayLike) -> np.ndarray:
    return np.asarray(gammaln(np.add(n, 1)) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1))


def signed_root(
    has: Rules, correct: Num[np.ndarray, "tables subdomains"], n_images: PerSubdomain, weight: PerSubdomain
) -> Float[np.ndarray, "tables rules"]:
    """How much lower (negative) or higher the accuracy is inside each rule than outside, as a normal deviate.

    sign(p_in - p_out) sqrt(2 (L(p_in, p_out) - L(p, p))),   L: log likelihood of independent binomials

    with `weight` images of each subdomain in place of those shown. Each rule needs a subdomain inside and one outside.

    >>> has = np.array([[True, True, False, False]])
    >>> signed_root(has, np.array([[5, 5, 9, 9], [7, 7, 7, 7]]), np.full(4, 10), np.full(4, 10.0)).round(2)
    array([[-2.85],
           [ 0.  ]])
    """
    right = correct / n_images * weight
    right_inside, images_inside = right @ has.T, has @ weight
    right_outside, images_outside = right.sum(axis=1, keepdims=True) - right_inside, weight.sum() - images_inside

    apart = _log_likelihood(right_inside, images_inside) + _log_likelihood(right_outside, images_outside)
    together = _log_likelihood(right.sum(axis=1, keepdims=True), weight.sum())
    difference = right_inside / images_inside - right_outside / images_outside
    sign = np.sign(np.where(np.abs(difference) < EDGE, 0.0, difference))
    return sign * np.sqrt(2 * np.maximum(apart - together, 0.0))


def _log_likelihood(right: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Of binomial counts at their own share."""
    right = np.clip(right, 0.0, images)  # rounding
    return np.asarray(xlogy(right, right / images) + xlogy(images - right, 1 - right / images))


def alike_tables(
    correct: PerSubdomain, n_images: PerSubdomain, correlation: float, tables: int, rng: np.random.Generator
) -> Int[np.ndarray, "tables subdomains"]:
    """Counts of right images in tables where no attribute matters and subdomains vary as they do here.

    The quantile of each count among beta-binomial counts of as many images (drawn at random within the count's step)
    goes to another subdomain, where the count with this quantile is taken. With equally many images everywhere these
    are permutations of the counts, whatever their distribution; with other numbers the beta-binomial translates.

    >>> rng = np.random.default_rng(0)
    >>> sorted(alike_tables(np.array([1, 4, 9]), np.array([10, 10, 10]), 0.2, 1, rng)[0].tolist())
    [1, 4, 9]
    """
    below = _cumulative(correct, n_images, correlation)
    quantiles = _quantiles(correct, n_images, below, tables, rng)
    return _counts_at(rng.permuted(quantiles, axis=1), n_images, below)


def _quantiles(
    correct: PerSubdomain, n_images: PerSubdomain, below: dict[int, np.ndarray], tables: int, rng: np.random.Generator
) -> Float[np.ndarray, "tables subdomains"]:
    """Of each count, drawn at random within its step.    below: `_cumulative`."""
    low, high = np.array([below[n][right : right + 2] for right, n in zip(correct, n_images, strict=True)]).T
    return np.asarray(low + (high - low) * rng.random((tables, len(n_images))))


def _counts_at(
    quantiles: Float[np.ndarray, "tables subdomains"], n_images: PerSubdomain, below: dict[int, np.ndarray]
) -> Int[np.ndarray, "tables subdomains"]:
    """The counts that have these quantiles.    below: `_cumulative`."""
    counts = np.empty(quantiles.shape, dtype=np.int64)
    for n, cumulative in below.items():
        same = n_images == n
        counts[:, same] = np.minimum(np.searchsorted(cumulative, quantiles[:, same], side="right") - 1, n)
    return counts


def _cumulative(correct: PerSubdomain, n_images: PerSubdomain, correlation: float) -> dict[int, np.ndarray]:
    """For every number n of images: probability of fewer than 0, 1, ..., n + 1 right ones, beta-binomial."""
    weight = effective_images(n_images, correlation)
    mean = float(np.clip(weight @ (correct / n_images) / weight.sum(), EDGE, 1 - EDGE))
    a, b = mean * (1 / correlation - 1), (1 - mean) * (1 / correlation - 1)

    below = {}
    for n in np.unique(n_images).tolist():
        right = np.arange(n + 1)
        probability = np.exp(_log_choose(n, right) + betaln(right + a, n - right + b) - betaln(a, b))
        below[n] = np.concatenate([[0.0], probability.cumsum() / probability.sum()])
    return below


def quantile_deviate(
    has: Rules, tables: Int[np.ndarray, "tables subdomains"], n_images: PerSubdomain, correlation: float
) -> Float[np.ndarray, "tables rules"]:
    """How low the counts inside each rule are among those of as many images, as a normal deviate over the tables.

    Sum over the subdomains inside of each count's quantile (middle of its step) less the table's mean. With equally
    many images it is nearly a rank sum. A few subdomains that fail wholly move it less than `signed_root`.
    tables: first the one that is judged, from which the quantiles are fitted.
    """
    quantiles = np.empty(tables.shape)
    for n, cumulative in _cumulative(tables[0], n_images, correlation).items():
        middle = (cumulative[:-1] + cumulative[1:]) / 2
        quantiles[:, n_images == n] = middle[tables[:, n_images == n]]

    inside = (quantiles - quantiles.mean(axis=1, keepdims=True)) @ has.T
    return (inside - inside.mean(axis=0)) / np.maximum(inside.std(axis=0), EDGE)


def p_of_rules(
    has: Rules, correct: PerSubdomain, n_images: PerSubdomain, tables: int, rng: np.random.Generator
) -> Float[np.ndarray, " rules"]:
    """One-sided p-value of each rule's low accuracy inside, adjusted for looking at all of them.

    A rule is as low as the lower of its `signed_root`, which sees a few subdomains that fail wholly, and its
    `quantile_deviate`, which sees many that are a little lower. p: share of `alike_tables` (and the table itself) in
    which any rule is as low (the maximum statistic of Westfall and Young 1993). So of tables where no rule holds, one
    in twenty has a p-value up to 0.05.

    >>> has = np.array([[True] * 6 + [False] * 6, [True, False] * 6])
    >>> correct = np.array([4, 5, 3, 6, 5, 4, 9, 9, 8, 9, 10, 9])
    >>> p_of_rules(has, correct, np.full(12, 10), 99, np.random.default_rng(0)) <= 0.05
    array([ True, False])
    """
    correlation = image_correlation(correct, n_images, np.zeros(len(n_images), dtype=np.int64))
    judged_and_null = np.vstack([correct, alike_tables(correct, n_images, correlation, tables, rng)])
    roots = signed_root(has, judged_and_null, n_images, effective_images(n_images, correlation))
    deviates = np.minimum(roots, quantile_deviate(has, judged_and_null, n_images, correlation))

    lowest = np.sort(deviates[1:].min(axis=1))
    return (1 + np.searchsorted(lowest, deviates[0] + EDGE, side="right")) / (tables + 1)
