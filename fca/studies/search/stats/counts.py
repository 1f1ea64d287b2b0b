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
CORRELATIONS = np.concatenate([[NO_CORRELATION], np.geomspace(0.003, 0.9, 40)])  # the grid that is searched
EVEN_SHARE = 0.8  # of the larger side's subdomains that either side must be worth, so that the sides count as even
NULL_TABLES = 999  # random tables of a permutation test, beside the observed one
CONFIRMING = 0.025  # the largest p-value that confirms a rule
EDGE = 1e-9  # accuracies, shares or statistics that are nearer to 0, 1 or each other count as equal

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
    """Correlation rho of two images of a subdomain: the value of CORRELATIONS with the highest likelihood.

    The number c of right images of n is beta-binomial. Its mean p is the share of right images in the subdomain's
    group, in which a subdomain has the weight n / (1 + (n - 1) rho), its number of effective images. The likelihood
    leaves out what does not depend on rho:

    L(rho) = sum over subdomains of log B(c + a, n - c + b) - log B(a, b)
             with a = p (1 / rho - 1),   b = (1 - p) (1 / rho - 1),   B the beta function

    correct, n_images: c and n of each subdomain.
    group: the group of each subdomain, as numbers 0, 1, ...; groups may differ in accuracy, and share one rho.

    >>> image_correlation(np.array([10, 0, 10, 0]), np.array([10, 10, 10, 10]), np.zeros(4, int)) > 0.5
    True
    """
    # every rho of the grid at once: `effective_images` at each; correlations x subdomains
    weight = n_images / (1 + np.outer(CORRELATIONS, n_images - 1))
    is_in_group = np.eye(group.max() + 1)[group]  # 1 at the group of each subdomain, else 0; subdomains x groups
    share = (weight * correct / n_images) @ is_in_group / (weight @ is_in_group)  # correlations x groups
    # p of each subdomain's group, correlations x subdomains; clipped, as log B is infinite at 0 and 1
    mean = np.clip(share, EDGE, 1 - EDGE)[:, group]

    concentration = (1 / CORRELATIONS - 1)[:, None]  # a + b
    a = mean * concentration
    b = (1 - mean) * concentration
    likelihood = np.sum(betaln(correct + a, n_images - correct + b) - betaln(a, b), axis=1)
    return float(CORRELATIONS[likelihood.argmax()])


def share_with_interval(correct: PerSubdomain, n_images: PerSubdomain) -> Estimated:
    """Share of right images of the population that some subdomains were drawn from, with its 95 % interval.

    Each of the k subdomains has c right images of n. Its images are correlated (rho, see `image_correlation`), so it
    counts with w effective images, the number of independent images that they are worth.

    w  = n / (1 + (n - 1) rho)
    p  = (sum w c / n) / sum w
    s² = sum w (c / n - p)² / (k - 1),   and s² / sum w is the variance of p
    n* = (z / t)² p (1 - p) (sum w) / s²,   at most the number of images
    interval: Clopper and Pearson's of p n* right images of n*    (Korn and Graubard 1998, Survey Methodology 24:193)

    n* is the number of independent images whose share varies as much as p does. The factor (z / t)² makes it smaller,
    because s² is estimated from few subdomains: z is the normal quantile, and t is Student's with
    (sum w)² / sum w² - 1 degrees of freedom, at least 1.

    The interval stays in [0, 1]. Where all subdomains have the same accuracy, every image counts as independent. The
    interval covers the true share less often than 95 % where most subdomains are always right and a few fail, since two
    to five subdomains often contain none that fails (experiments/failure_search/README.md). With a single subdomain the
    ends are NaN; without any subdomain the share is NaN too.

    >>> value, low, high = share_with_interval(np.array([9, 7, 10, 8, 6]), np.array([10, 10, 10, 10, 10]))
    >>> round(value, 3), round(low, 2), round(high, 2)
    (0.8, 0.53, 0.95)
    """
    if not len(correct):
        return UNKNOWN_ESTIMATE
    one_group = np.zeros(len(correct), dtype=np.int64)  # all subdomains are of one population, with one accuracy p
    weight = effective_images(n_images, image_correlation(correct, n_images, one_group))
    accuracy = correct / n_images
    share = float(weight @ accuracy / weight.sum())
    if len(correct) < 2:
        return Estimated(share, *NO_INTERVAL)

    freedom = max(weight.sum() ** 2 / (weight @ weight) - 1, 1.0)
    variance = weight @ (accuracy - share) ** 2 / (len(correct) - 1)
    student_factor = (ndtri(0.5 + LEVEL / 2) / stdtrit(freedom, 0.5 + LEVEL / 2)) ** 2  # (z / t)²
    independent = float(n_images.sum())
    if variance > EDGE:  # else the subdomains do not differ, and all images count
        independent = min(independent, share * (1 - share) * weight.sum() / variance * student_factor)

    right = share * independent
    wrong = (1 - share) * independent
    low = float(betaincinv(right, wrong + 1, 0.5 - LEVEL / 2)) if share > EDGE else 0.0
    high = float(betainccinv(right + 1, wrong, 0.5 - LEVEL / 2)) if share < 1 - EDGE else 1.0
    return Estimated(share, low, high)


def p_lower(correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """One-sided p-value for a lower accuracy inside a rule than outside; NaN with too few subdomains for a test.

    A rule has two sides: the subdomains inside and those outside. A table is the number of right images of every
    subdomain. The result is the largest of two or three p-values, because each alone is too small for some tables:

    - Student's t: the difference of the two accuracies over its standard error (`_student_t`), which accounts for how
      much subdomains vary. A subdomain's n images are worth w = n / (1 + (n - 1) rho) independent images, with rho the
      correlation of two images of a subdomain. The degrees of freedom are the sum of (sum w)² / sum w² of both sides,
      less 2, but at least 1.
    - Fisher's test of all images (mid-p), for tables in which a few images decide.
    - If the sides are uneven: the permutation p-value (mid-p) of the same t, among tables whose subdomains are dealt to
      the two sides again. Accuracies near 1 are skewed, and the skew cancels in t only between even sides.

    A side is worth (sum n)² / sum n² subdomains, which is their number if all have equally many images. Sides are even
    if each is worth at least EVEN_SHARE times the number of subdomains of the larger side.

    The result is NaN with fewer than two subdomains on a side, and for uneven sides with so few subdomains that the
    permutation test cannot confirm any rule. Its lowest mid-p with k subdomains, k_in of them inside, is
    0.5 / C(k, k_in). This is above CONFIRMING if one side has two subdomains and the other two, three or four.

    inside: which subdomains the rule holds for.

    >>> inside = np.array([True] * 5 + [False] * 5)
    >>> round(p_lower(np.array([3, 5, 4, 2, 6, 9, 8, 10, 9, 7]), np.full(10, 10), inside), 4)
    0.0004
    >>> p_lower(np.array([0, 0, 10, 10, 10]), np.full(5, 10), np.array([True, True, False, False, False]))
    nan
    """
    side = np.where(inside, 0, 1)
    n_subdomains = np.bincount(side, minlength=2)  # of each side
    if n_subdomains.min() < 2:
        return float("nan")

    worth = np.bincount(side, n_images) ** 2 / np.bincount(side, n_images**2)  # (sum n)² / sum n² of each side
    is_even = worth.min() >= EVEN_SHARE * n_subdomains.max()
    n_deals = comb(len(n_images), int(n_subdomains[0]))
    if not is_even and 0.5 / n_deals > CONFIRMING:
        return float("nan")

    correlation = image_correlation(correct, n_images, side)  # rho; the sides may differ in accuracy
    weight = effective_images(n_images, correlation)
    freedom = float(np.sum(np.bincount(side, weight) ** 2 / np.bincount(side, weight**2))) - 2
    t = _student_t(correct[None], n_images, inside, correlation)[0]  # of one table
    p_of_student = float(stdtr(max(freedom, 1.0), t))
    p = max(p_of_student, _fisher_mid_p(correct, n_images, inside))
    if is_even:
        return p
    return max(p, _dealt_mid_p(correct, n_images, inside))


def _student_t(
    tables: Num[np.ndarray, "tables subdomains"],
    n_images: PerSubdomain,
    inside: Bool[np.ndarray, " subdomains"],
    correlation: float,
) -> Float[np.ndarray, " tables"]:
    """Student's t for each table: accuracy inside a rule less accuracy outside, over its standard error.

    t = (p_in - p_out) / (s sqrt(1 / W_in + 1 / W_out)),   s² = sum w (c / n - p of the side)² / (k - 2)

    c of the n images of each of the k subdomains are right. The images are worth w = n / (1 + (n - 1) rho) independent
    ones, with rho the `correlation` of two images of a subdomain. On each side (inside or outside the rule), W is the
    sum of w, and p the mean of c / n weighted by w. Each side has at least two subdomains.

    tables: c of each subdomain, a row for each table.    inside: which subdomains the rule holds for.
    """
    weight = effective_images(n_images, correlation)
    accuracy = tables / n_images
    weight_inside = weight[inside].sum()
    weight_outside = weight[~inside].sum()
    share_inside = accuracy[:, inside] @ weight[inside] / weight_inside
    share_outside = accuracy[:, ~inside] @ weight[~inside] / weight_outside

    share = np.where(inside, share_inside[:, None], share_outside[:, None])  # the share of each subdomain's side
    variance = (accuracy - share) ** 2 @ weight / (len(n_images) - 2)
    variance = np.maximum(variance, EDGE)  # no division by 0 where subdomains do not differ
    return (share_inside - share_outside) / np.sqrt(variance * (1 / weight_inside + 1 / weight_outside))


def _dealt_mid_p(correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """The permutation p-value (mid-p) for a lower accuracy inside a rule than outside.

    The statistic is Student's t of the two accuracies (`_student_t`). The p-value is the share of tables with a lower t
    than the observed table, plus half of the share with the same t. In all tables but the observed one, the results of
    subdomains are dealt at random to the two sides of the rule (`_dealt_tables`).

    correct, n_images: right images and images of each subdomain.    inside: which subdomains the rule holds for.
    """
    # one correlation of two images for all subdomains, as sides do not matter in the dealt tables
    one_group = np.zeros(len(n_images), dtype=np.int64)
    correlation = image_correlation(correct, n_images, one_group)
    tables = _dealt_tables(correct, n_images, inside, correlation)
    t = _student_t(tables, n_images, inside, correlation)
    observed_t = t[0]  # the observed table is the first

    n_lower = np.sum(t < observed_t - EDGE)
    n_same = np.sum(np.abs(t - observed_t) <= EDGE)
    return float((n_lower + n_same / 2) / len(t))


def _dealt_tables(
    correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"], correlation: float
) -> Int[np.ndarray, "tables subdomains"]:
    """Tables for a permutation test of a rule: the observed one, then tables in which the rule does not matter.

    A table has the number of right images of every subdomain. In the other tables, the results of subdomains are dealt
    again: some go inside the rule and the others outside, and on each side they are in random order. If there are more
    than NULL_TABLES ways to choose the results that go inside, NULL_TABLES random choices are made. Otherwise every
    choice is made equally often. The choice that leaves every result on its own side is the observed table itself.

    A count of right images cannot move to a subdomain with another number of images. So its quantile is dealt: its
    place in the beta-binomial distribution of counts of as many images. A count covers a range of quantiles, and one of
    these is drawn at random for each table. The new subdomain gets the count that has this quantile among counts of its
    own number of images. If all subdomains have equally many images, the counts themselves move, and the p-value over
    all choices is exact.

    inside: which subdomains the rule holds for.    correlation: rho of two images of a subdomain.
    """
    rng = np.random.default_rng(0)  # always the same draws, so that a table always has the same p-value
    n_subdomains = len(n_images)
    n_inside = int(inside.sum())
    n_choices = comb(n_subdomains, n_inside)
    if n_choices > NULL_TABLES:
        # random tables: the quantiles of all subdomains are permuted
        return np.vstack([correct, null_tables(correct, n_images, correlation, NULL_TABLES, rng)])

    # whether each choice has each subdomain inside; choices x subdomains
    choices = np.zeros((n_choices, n_subdomains), dtype=bool)
    chosen_subdomains = np.array(list(combinations(range(n_subdomains), n_inside)))
    np.put_along_axis(choices, chosen_subdomains, True, axis=1)

    # Every choice gets the same number of tables (`repeats`), so that there are NULL_TABLES or more. The tables of one
    # choice differ in the drawn quantiles and in their order on each side; the tables of the observed choice are equal
    is_other = (choices != inside).any(axis=1)
    repeats = -(-NULL_TABLES // n_choices)  # rounded up
    other_choices = np.tile(choices[is_other], (repeats, 1))  # tables x subdomains
    observed_tables = np.tile(correct, (repeats, 1))

    distributions = _cumulative(correct, n_images, correlation)  # of the counts of each number of images
    quantiles = _quantiles(correct, n_images, distributions, len(other_choices), rng)  # tables x subdomains
    # a boolean index of two axes gives a flat array, table by table; n_inside quantiles of each table go inside
    go_inside = quantiles[other_choices].reshape(len(other_choices), -1)
    go_outside = quantiles[~other_choices].reshape(len(other_choices), -1)
    dealt = np.empty(quantiles.shape)
    dealt[:, inside] = rng.permuted(go_inside, axis=1)
    dealt[:, ~inside] = rng.permuted(go_outside, axis=1)
    return np.vstack([observed_tables, _counts_at(dealt, n_images, distributions)])


def _fisher_mid_p(correct: PerSubdomain, n_images: PerSubdomain, inside: Bool[np.ndarray, " subdomains"]) -> float:
    """One-sided mid-p of Fisher's exact test for fewer right images inside; the images of a side are pooled.

    With K right images among all images and n images inside, the number k of right images inside is hypergeometric:

    P(k) = C(n, k) C(images - n, K - k) / C(images, K),   mid-p = sum over k < observed of P(k) + P(observed) / 2
    """
    right = int(correct.sum())
    right_inside = int(correct[inside].sum())
    images = int(n_images.sum())
    images_inside = int(n_images[inside].sum())
    fewest = max(0, right - (images - images_inside))  # right images that do not fit outside must be inside
    k = np.arange(fewest, right_inside + 1)  # up to the observed number, which is the last

    log_ways = _log_choose(images_inside, k) + _log_choose(images - images_inside, right - k)
    probability = np.exp(log_ways - _log_choose(images, right))
    return float(probability.sum() - probability[-1] / 2)


def _log_choose(n: ArrayLike, k: ArrayLike) -> np.ndarray:
    """The logarithm of the binomial coefficient n over k."""
    return np.asarray(gammaln(np.add(n, 1)) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1))


def signed_root(
    has: Rules, correct: Num[np.ndarray, "tables subdomains"], n_images: PerSubdomain, weight: PerSubdomain
) -> Float[np.ndarray, "tables rules"]:
    """How much lower (negative) or higher the accuracy is inside each rule than outside, as a normal deviate.

    It is the signed root of the likelihood ratio:

    sign(p_in - p_out) sqrt(2 (L_in + L_out - L_all)),   L = R log p + (N - R) log(1 - p),   p = R / N

    L is the log likelihood of N independent images of which R are right: of the subdomains inside the rule, of those
    outside, and of all. Each subdomain adds its `weight` to N, and `weight` times its share of right images to R.

    has:     which subdomains each rule holds for. Each rule needs a subdomain inside and one outside.
    correct: number of right images of each subdomain, in each table.
    weight:  number of independent images that a subdomain is worth (`effective_images`).

    >>> has = np.array([[True, True, False, False]])
    >>> signed_root(has, np.array([[5, 5, 9, 9], [7, 7, 7, 7]]), np.full(4, 10), np.full(4, 10.0)).round(2)
    array([[-2.85],
           [ 0.  ]])
    """
    right = correct / n_images * weight
    total_right = right.sum(axis=1, keepdims=True)
    right_inside = right @ has.T  # tables x rules
    right_outside = total_right - right_inside
    images_inside = has @ weight  # of each rule
    images_outside = weight.sum() - images_inside

    apart = _log_likelihood(right_inside, images_inside) + _log_likelihood(right_outside, images_outside)
    together = _log_likelihood(total_right, weight.sum())
    difference = right_inside / images_inside - right_outside / images_outside
    sign = np.sign(np.where(np.abs(difference) < EDGE, 0.0, difference))  # a difference by rounding has no sign
    return sign * np.sqrt(2 * np.maximum(apart - together, 0.0))


def _log_likelihood(right: np.ndarray, images: np.ndarray) -> np.ndarray:
    """The log likelihood of binomial counts at their own share, without the binomial coefficient."""
    right = np.clip(right, 0.0, images)  # rounding may lead outside
    return np.asarray(xlogy(right, right / images) + xlogy(images - right, 1 - right / images))


def null_tables(
    correct: PerSubdomain, n_images: PerSubdomain, correlation: float, tables: int, rng: np.random.Generator
) -> Int[np.ndarray, "tables subdomains"]:
    """Random tables of right images in which no attribute matters and subdomains vary as they do in the observed one.

    If all subdomains have equally many images, the tables are permutations of the counts, whatever the distribution of
    the counts. If they do not, a count cannot move to a subdomain with another number of images. Then the quantiles of
    the counts are permuted, each among beta-binomial counts of as many images. A subdomain gets the count that has its
    new quantile among counts of its own number of images.

    correct: number of right images of each subdomain.    correlation: rho of two images of a subdomain.
    tables:  how many are drawn.

    >>> rng = np.random.default_rng(0)
    >>> sorted(null_tables(np.array([1, 4, 9]), np.array([10, 10, 10]), 0.2, 1, rng)[0].tolist())
    [1, 4, 9]
    """
    distributions = _cumulative(correct, n_images, correlation)  # of the counts of each number of images
    quantiles = _quantiles(correct, n_images, distributions, tables, rng)
    return _counts_at(rng.permuted(quantiles, axis=1), n_images, distributions)


def _quantiles(
    correct: PerSubdomain,
    n_images: PerSubdomain,
    distributions: dict[int, np.ndarray],
    tables: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "tables subdomains"]:
    """Random quantiles of the counts in their beta-binomial distributions, a row for each of a number of tables.

    A count c covers all quantiles from P(fewer than c) to P(fewer than c + 1), and one of these is drawn, uniformly.

    distributions: number n of images -> P(fewer than c right images) for c = 0 .. n + 1, as `_cumulative` returns them.
    """
    steps = [distributions[n][right : right + 2] for right, n in zip(correct, n_images, strict=True)]
    low, high = np.array(steps).T
    return np.asarray(low + (high - low) * rng.random((tables, len(n_images))))


def _counts_at(
    quantiles: Float[np.ndarray, "tables subdomains"], n_images: PerSubdomain, distributions: dict[int, np.ndarray]
) -> Int[np.ndarray, "tables subdomains"]:
    """The counts that have these quantiles in their beta-binomial distributions; the inverse of `_quantiles`.

    distributions: number n of images -> P(fewer than c right images) for c = 0 .. n + 1, as `_cumulative` returns them.
    """
    counts = np.empty(quantiles.shape, dtype=np.int64)
    for n, cumulative in distributions.items():
        has_n_images = n_images == n
        # the last count c with P(fewer than c) <= quantile
        counts_at = np.searchsorted(cumulative, quantiles[:, has_n_images], side="right") - 1
        counts[:, has_n_images] = np.minimum(counts_at, n)  # n + 1 at a quantile of 1
    return counts


def _cumulative(correct: PerSubdomain, n_images: PerSubdomain, correlation: float) -> dict[int, np.ndarray]:
    """Cumulative distributions of counts: number n of images -> P(fewer than k right images) for k = 0 .. n + 1.

    There is one for each n in n_images. With them a count of right images is turned into its quantile, which can be
    compared between subdomains of unequal numbers of images. The distribution is beta-binomial with this correlation
    rho of two images of a subdomain. Its mean p is the accuracy of the table, in which a subdomain has the weight
    n / (1 + (n - 1) rho) (`effective_images`):

    P(c) = C(n, c) B(c + a, n - c + b) / B(a, b),   a = p (1 / rho - 1),   b = (1 - p) (1 / rho - 1)
    """
    weight = effective_images(n_images, correlation)
    mean = float(np.clip(weight @ (correct / n_images) / weight.sum(), EDGE, 1 - EDGE))
    a = mean * (1 / correlation - 1)
    b = (1 - mean) * (1 / correlation - 1)

    distributions = {}
    for n in np.unique(n_images).tolist():
        right = np.arange(n + 1)
        probability = np.exp(_log_choose(n, right) + betaln(right + a, n - right + b) - betaln(a, b))
        distributions[n] = np.concatenate([[0.0], probability.cumsum() / probability.sum()])
    return distributions


def quantile_deviate(
    has: Rules, tables: Int[np.ndarray, "tables subdomains"], n_images: PerSubdomain, correlation: float
) -> Float[np.ndarray, "tables rules"]:
    """How much lower (negative) or higher the counts inside each rule are than in the whole table, in quantiles.

    A count's quantile is its place among beta-binomial counts of as many images (the middle of its step). The statistic
    is the sum over the subdomains inside of the quantile less the table's mean quantile, standardised over the tables
    for each rule. If all subdomains have equally many images, it is nearly a rank sum. A few subdomains that fail
    completely move it less than `signed_root`.

    has:    which subdomains each rule holds for.
    tables: numbers of right images; first the judged table, to which the distribution is fitted, then null tables.
    """
    quantiles = np.empty(tables.shape)
    for n, cumulative in _cumulative(tables[0], n_images, correlation).items():
        middle_of_step = (cumulative[:-1] + cumulative[1:]) / 2
        has_n_images = n_images == n
        quantiles[:, has_n_images] = middle_of_step[tables[:, has_n_images]]

    sum_inside = (quantiles - quantiles.mean(axis=1, keepdims=True)) @ has.T  # tables x rules
    return (sum_inside - sum_inside.mean(axis=0)) / np.maximum(sum_inside.std(axis=0), EDGE)


def p_of_rules(
    has: Rules, correct: PerSubdomain, n_images: PerSubdomain, tables: int, rng: np.random.Generator
) -> Float[np.ndarray, " rules"]:
    """One-sided p-value for a low accuracy inside each rule, adjusted for testing all rules together.

    The statistic of a rule is the lower of two normal deviates, which are negative if accuracy is lower inside: the
    signed root of a likelihood ratio, which detects a few subdomains that fail completely, and a standardised sum of
    quantiles (nearly a rank sum), which detects many subdomains that are a little lower.

    Null tables are random tables in which no attribute matters: the results of the judged table, permuted among its
    subdomains. p is the share of tables (null tables and the judged table itself) in which the lowest statistic of all
    rules is at most the rule's statistic (the maximum statistic of Westfall and Young 1993). So where no rule matters,
    only one judged table in twenty has a rule with a p-value up to 0.05.

    has:     which subdomains each rule holds for. Each rule needs a subdomain inside and one outside.
    correct: number of right images of each subdomain in the judged table.
    tables:  number of null tables.

    >>> has = np.array([[True] * 6 + [False] * 6, [True, False] * 6])
    >>> correct = np.array([4, 5, 3, 6, 5, 4, 9, 9, 8, 9, 10, 9])
    >>> p_of_rules(has, correct, np.full(12, 10), 99, np.random.default_rng(0)) <= 0.05
    array([ True, False])
    """
    one_group = np.zeros(len(n_images), dtype=np.int64)  # where no attribute matters, one accuracy is behind all
    correlation = image_correlation(correct, n_images, one_group)  # of two images of a subdomain
    judged_and_null = np.vstack([correct, null_tables(correct, n_images, correlation, tables, rng)])
    roots = signed_root(has, judged_and_null, n_images, effective_images(n_images, correlation))
    quantile_deviates = quantile_deviate(has, judged_and_null, n_images, correlation)
    statistics = np.minimum(roots, quantile_deviates)  # tables x rules

    lowest_of_null = np.sort(statistics[1:].min(axis=1))  # of each null table
    # for each rule, the number of null tables whose lowest statistic is at most the rule's
    n_as_low = np.searchsorted(lowest_of_null, statistics[0] + EDGE, side="right")
    return (1 + n_as_low) / (tables + 1)  # 1: the judged table itself
