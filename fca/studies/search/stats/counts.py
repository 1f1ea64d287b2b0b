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

from fca.stats.intervals import LEVEL, NO_INTERVAL, UNKNOWN, Estimated

NO_CORRELATION = 1e-6  # as good as 0, and still a beta-binomial
CORRELATIONS = np.concatenate([[NO_CORRELATION], np.geomspace(0.003, 0.9, 40)])
EVEN = 0.8  # share of the larger side's subdomains that both sides are worth, so that they count as even
PERMUTED = 999  # null tables of a confirmation
CONFIRMING = 0.025  # the largest p-value that confirms a rule
EDGE = 1e-9  # of accuracies and shares: nearer to 0, 1 or each other is equal

PerSubdomain = Num[np.ndarray, " subdomains"]
Groups = Int[np.ndarray, " subdomains"]
Rules = Bool[np.ndarray, "rules subdomains"]


def effective_images(shown: PerSubdomain, correlation: float) -> Float[np.ndarray, " subdomains"]:
    """How many independent images the images of each subdomain are worth: n / (1 + (n - 1) rho).

    >>> effective_images(np.array([1, 10, 50]), 0.1).round(2)
    array([1.  , 5.26, 8.47])
    """
    return shown / (1 + (shown - 1) * correlation)


def image_correlation(correct: PerSubdomain, shown: PerSubdomain, group: Groups) -> float:
    """Correlation of two images of a subdomain: the beta-binomial of highest likelihood, each group with its own p.

    A grid search. p of a group is its share of right images, weighted by `effective_images`.

    >>> image_correlation(np.array([10, 0, 10, 0]), np.array([10, 10, 10, 10]), np.zeros(4, int)) > 0.5
    True
    """
    weight = shown / (1 + np.outer(CORRELATIONS, shown - 1))  # correlations x subdomains
    is_in_group = np.eye(group.max() + 1)[group]  # subdomains x groups
    share = (weight * correct / shown) @ is_in_group / (weight @ is_in_group)  # correlations x groups
    mean = np.clip(share, EDGE, 1 - EDGE)[:, group]

    # beta-binomial: log B(c + a, n - c + b) - log B(a, b), with a + b = 1 / rho - 1
    concentration = (1 / CORRELATIONS - 1)[:, None]
    a = mean * concentration
    b = (1 - mean) * concentration
    log_likelihood = np.sum(betaln(correct + a, shown - correct + b) - betaln(a, b), axis=1)
    return float(CORRELATIONS[log_likelihood.argmax()])


def share_with_interval(correct: PerSubdomain, shown: PerSubdomain) -> Estimated:
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
        return UNKNOWN

    one_group = np.zeros(len(correct), dtype=np.int64)
    weight = effective_images(shown, image_correlation(correct, shown, one_group))
    accuracy = correct / shown
    share = float(weight @ accuracy / weight.sum())
    if len(correct) < 2:
        return Estimated(share, *NO_INTERVAL)

    # n*, the number of independent images that give the same variance
    degrees_of_freedom = max(weight.sum() ** 2 / (weight @ weight) - 1, 1.0)
    variance = weight @ (accuracy - share) ** 2 / (len(correct) - 1)
    normal_by_t = (ndtri(0.5 + LEVEL / 2) / stdtrit(degrees_of_freedom, 0.5 + LEVEL / 2)) ** 2
    n_independent = float(shown.sum())
    if variance > EDGE:
        n_independent = min(n_independent, share * (1 - share) * weight.sum() / variance * normal_by_t)

    right = share * n_independent
    wrong = (1 - share) * n_independent
    low = float(betaincinv(right, wrong + 1, 0.5 - LEVEL / 2)) if share > EDGE else 0.0
    high = float(betainccinv(right + 1, wrong, 0.5 - LEVEL / 2)) if share < 1 - EDGE else 1.0
    return Estimated(share, low, high)


def p_lower(correct: PerSubdomain, shown: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
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
    n_subdomains = np.bincount(side, minlength=2)  # inside, outside
    if n_subdomains.min() < 2:
        return float("nan")

    subdomains_worth = np.bincount(side, shown) ** 2 / np.bincount(side, shown**2)
    is_even = subdomains_worth.min() >= EVEN * n_subdomains.max()
    n_deals = comb(len(shown), int(n_subdomains[0]))
    if not is_even and 0.5 / n_deals > CONFIRMING:
        return float("nan")

    correlation = image_correlation(correct, shown, side)
    weight = effective_images(shown, correlation)
    worth = np.bincount(side, weight) ** 2 / np.bincount(side, weight**2)
    degrees_of_freedom = max(float(np.sum(worth)) - 2, 1.0)
    [t] = _student_t(correct[None], shown, inside, correlation)
    p_of_subdomains = float(stdtr(degrees_of_freedom, t))

    p = max(p_of_subdomains, _fisher_mid_p(correct, shown, inside))
    if is_even:
        return p
    return max(p, _dealt_mid_p(correct, shown, inside))


def _student_t(
    tables: Num[np.ndarray, "tables subdomains"],
    shown: PerSubdomain,
    inside: Bool[np.ndarray, " subdomains"],
    correlation: float,
) -> Float[np.ndarray, " tables"]:
    """The t of `p_lower` of each table of right images."""
    weight = effective_images(shown, correlation)
    accuracy = tables / shown
    total_inside = weight[inside].sum()
    total_outside = weight[~inside].sum()
    share_inside = accuracy[:, inside] @ weight[inside] / total_inside
    share_outside = accuracy[:, ~inside] @ weight[~inside] / total_outside

    share = np.where(inside, share_inside[:, None], share_outside[:, None])
    variance = np.maximum((accuracy - share) ** 2 @ weight / (len(shown) - 2), EDGE)
    return (share_inside - share_outside) / np.sqrt(variance * (1 / total_inside + 1 / total_outside))


def _dealt_mid_p(correct: PerSubdomain, shown: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """Share of tables in which the side does not matter with a lower t; half of those with the same."""
    one_group = np.zeros(len(shown), dtype=np.int64)
    correlation = image_correlation(correct, shown, one_group)
    tables = _dealt_tables(correct, shown, inside, correlation)
    t = _student_t(tables, shown, inside, correlation)

    n_lower = np.sum(t < t[0] - EDGE)  # the first table is the measured one
    n_equal = np.sum(np.abs(t - t[0]) <= EDGE)
    return float((n_lower + n_equal / 2) / len(t))


def _dealt_tables(
    correct: PerSubdomain, shown: PerSubdomain, inside: Bool[np.ndarray, " subdomains"], correlation: float
) -> Int[np.ndarray, "tables subdomains"]:
    """The table itself, and `alike_tables`: 999 at random, or each choice of subdomains inside equally often.

    The latter where there are up to 999 choices, so that the table's own choice is one of them and no more. With
    equally many images everywhere this is the exact permutation test; with other numbers the order within the sides
    and the quantile within a count's step are random.
    """
    rng = np.random.default_rng(0)  # the same p-value whenever the table is the same
    n_subdomains = len(shown)
    n_inside = int(inside.sum())
    n_deals = comb(n_subdomains, n_inside)
    if n_deals > PERMUTED:
        return np.vstack([correct, alike_tables(correct, shown, correlation, PERMUTED, rng)])

    # every choice of subdomains inside but the table's own, as often as it takes for 999 tables
    choices = np.zeros((n_deals, n_subdomains), dtype=bool)
    chosen_subdomains = np.array(list(combinations(range(n_subdomains), n_inside)))
    np.put_along_axis(choices, chosen_subdomains, True, axis=1)
    differs_from_table = (choices != inside).any(axis=1)
    rounds = -(-PERMUTED // n_deals)
    choices = np.tile(choices[differs_from_table], (rounds, 1))  # tables x subdomains

    # the quantiles of the chosen subdomains go inside in random order, those of the others outside
    below = _cumulative(correct, shown, correlation)
    quantiles = _quantiles(correct, shown, below, len(choices), rng)
    dealt = np.empty(quantiles.shape)
    for side, is_source in ((inside, choices), (~inside, ~choices)):
        dealt[:, side] = rng.permuted(quantiles[is_source].reshape(len(choices), -1), axis=1)
    return np.vstack([np.tile(correct, (rounds, 1)), _counts_at(dealt, shown, below)])


def _fisher_mid_p(correct: PerSubdomain, shown: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """Probability of so few right images inside when all right ones are dealt out at random; half of exactly so few."""
    n_right = int(correct.sum())
    n_right_inside = int(correct[inside].sum())
    n_images = int(shown.sum())
    n_images_inside = int(shown[inside].sum())
    n_images_outside = n_images - n_images_inside

    # hypergeometric probability of every number up to the measured one
    fewest = max(0, n_right - n_images_outside)
    dealt_inside = np.arange(fewest, n_right_inside + 1)
    log_ways = _log_choose(n_images_inside, dealt_inside) + _log_choose(n_images_outside, n_right - dealt_inside)
    probability = np.exp(log_ways - _log_choose(n_images, n_right))
    return float(probability.sum() - probability[-1] / 2)


def _log_choose(n: ArrayLike, k: ArrayLike) -> np.ndarray:
    """Logarithm of the number of ways to choose k of n."""
    return np.asarray(gammaln(np.add(n, 1)) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1))


def signed_root(
    has: Rules, correct: Num[np.ndarray, "tables subdomains"], shown: PerSubdomain, weight: PerSubdomain
) -> Float[np.ndarray, "tables rules"]:
    """How much lower (negative) or higher the accuracy is inside each rule than outside, as a normal deviate.

    sign(p_in - p_out) sqrt(2 (L(p_in, p_out) - L(p, p))),   L: log likelihood of independent binomials

    with `weight` images of each subdomain in place of those shown. Each rule needs a subdomain inside and one outside.

    >>> has = np.array([[True, True, False, False]])
    >>> signed_root(has, np.array([[5, 5, 9, 9], [7, 7, 7, 7]]), np.full(4, 10), np.full(4, 10.0)).round(2)
    array([[-2.85],
           [ 0.  ]])
    """
    right = correct / shown * weight  # tables x subdomains
    total_right = right.sum(axis=1, keepdims=True)
    total_images = weight.sum()
    right_inside = right @ has.T  # tables x rules
    images_inside = has @ weight
    right_outside = total_right - right_inside
    images_outside = total_images - images_inside

    two_shares = _log_likelihood(right_inside, images_inside) + _log_likelihood(right_outside, images_outside)
    one_share = _log_likelihood(total_right, total_images)
    difference = right_inside / images_inside - right_outside / images_outside
    sign = np.sign(np.where(np.abs(difference) < EDGE, 0.0, difference))
    return sign * np.sqrt(2 * np.maximum(two_shares - one_share, 0.0))


def _log_likelihood(right: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Log likelihood of binomial counts at p = right / images, but for a constant."""
    right = np.clip(right, 0.0, images)  # rounding may leave the range
    return np.asarray(xlogy(right, right / images) + xlogy(images - right, 1 - right / images))


def alike_tables(
    correct: PerSubdomain, shown: PerSubdomain, correlation: float, tables: int, rng: np.random.Generator
) -> Int[np.ndarray, "tables subdomains"]:
    """Counts of right images in tables where no attribute matters and subdomains vary as they do here.

    The quantile of each count among beta-binomial counts of as many images (drawn at random within the count's step)
    goes to another subdomain, where the count with this quantile is taken. With equally many images everywhere these
    are permutations of the counts, whatever their distribution; with other numbers the beta-binomial translates.

    >>> rng = np.random.default_rng(0)
    >>> sorted(alike_tables(np.array([1, 4, 9]), np.array([10, 10, 10]), 0.2, 1, rng)[0].tolist())
    [1, 4, 9]
    """
    below = _cumulative(correct, shown, correlation)
    quantiles = _quantiles(correct, shown, below, tables, rng)
    return _counts_at(rng.permuted(quantiles, axis=1), shown, below)


def _quantiles(
    correct: PerSubdomain, shown: PerSubdomain, below: dict[int, np.ndarray], tables: int, rng: np.random.Generator
) -> Float[np.ndarray, "tables subdomains"]:
    """Quantile of each count, drawn at random within its step.    below: `_cumulative`."""
    steps = np.array([below[n][right : right + 2] for right, n in zip(correct, shown, strict=True)])
    low, high = steps.T
    return np.asarray(low + (high - low) * rng.random((tables, len(shown))))


def _counts_at(
    quantiles: Float[np.ndarray, "tables subdomains"], shown: PerSubdomain, below: dict[int, np.ndarray]
) -> Int[np.ndarray, "tables subdomains"]:
    """The counts that have these quantiles.    below: `_cumulative`."""
    counts = np.empty(quantiles.shape, dtype=np.int64)
    for n, cumulative in below.items():
        has_n_images = shown == n
        right = np.searchsorted(cumulative, quantiles[:, has_n_images], side="right") - 1
        counts[:, has_n_images] = np.minimum(right, n)
    return counts


def _cumulative(correct: PerSubdomain, shown: PerSubdomain, correlation: float) -> dict[int, np.ndarray]:
    """For every number n of images: probability of fewer than 0, 1, ..., n + 1 right ones, beta-binomial."""
    weight = effective_images(shown, correlation)
    mean = float(np.clip(weight @ (correct / shown) / weight.sum(), EDGE, 1 - EDGE))
    concentration = 1 / correlation - 1
    a = mean * concentration
    b = (1 - mean) * concentration

    below = {}
    for n in np.unique(shown).tolist():
        right = np.arange(n + 1)
        probability = np.exp(_log_choose(n, right) + betaln(right + a, n - right + b) - betaln(a, b))
        below[n] = np.concatenate([[0.0], probability.cumsum() / probability.sum()])
    return below


def quantile_deviate(
    has: Rules, tables: Int[np.ndarray, "tables subdomains"], shown: PerSubdomain, correlation: float
) -> Float[np.ndarray, "tables rules"]:
    """How low the counts inside each rule are among those of as many images, as a normal deviate over the tables.

    Sum over the subdomains inside of each count's quantile (middle of its step) less the table's mean. With equally
    many images it is nearly a rank sum. A few subdomains that fail wholly move it less than `signed_root`.
    tables: first the one that is judged, from which the quantiles are fitted.
    """
    quantiles = np.empty(tables.shape)
    for n, cumulative in _cumulative(tables[0], shown, correlation).items():
        middle_of_step = (cumulative[:-1] + cumulative[1:]) / 2
        has_n_images = shown == n
        quantiles[:, has_n_images] = middle_of_step[tables[:, has_n_images]]

    centred = quantiles - quantiles.mean(axis=1, keepdims=True)
    sum_inside = centred @ has.T  # tables x rules
    return (sum_inside - sum_inside.mean(axis=0)) / np.maximum(sum_inside.std(axis=0), EDGE)


def p_of_rules(
    has: Rules, correct: PerSubdomain, shown: PerSubdomain, tables: int, rng: np.random.Generator
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
    one_group = np.zeros(len(shown), dtype=np.int64)
    correlation = image_correlation(correct, shown, one_group)
    null_tables = alike_tables(correct, shown, correlation, tables, rng)
    measured_and_null = np.vstack([correct, null_tables])

    roots = signed_root(has, measured_and_null, shown, effective_images(shown, correlation))
    deviates = np.minimum(roots, quantile_deviate(has, measured_and_null, shown, correlation))
    lowest_of_null = np.sort(deviates[1:].min(axis=1))
    n_as_low = np.searchsorted(lowest_of_null, deviates[0] + EDGE, side="right")
    return (1 + n_as_low) / (tables + 1)
