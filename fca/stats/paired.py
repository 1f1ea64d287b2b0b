"""Two classifiers on the same images: who is right where the other is not, by how much, and after many such looks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import nctdtr, nctdtrinc, ndtri, stdtrit
from scipy.stats import binomtest, rankdata

from fca.stats.intervals import LEVEL, percentile_interval, point_weights, wilson


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact p that two classifiers are equally often right, from the images that only one of them gets right.

    If they are, each such image is a fair coin: two-sided binomial test of only_a among only_a + only_b (McNemar 1947,
    in its exact form). Images that both or neither get right say nothing. No such image at all: p = 1.

    >>> mcnemar(1, 7)
    0.0703125
    """
    if min(only_a, only_b) < 0:
        raise ValueError(f"only_a={only_a}, only_b={only_b}: counts of images cannot be negative")
    discordant = only_a + only_b
    return float(binomtest(only_a, discordant, 0.5).pvalue) if discordant else 1.0


def paired_interval(
    both: int | float, only_a: int | float, only_b: int | float, neither: int | float, level: float = LEVEL
) -> tuple[float, float]:
    """Interval of accuracy a minus accuracy b on the same n images (Newcombe 1998, Stat. Med. 17:2635, method 10).

    low  = d - sqrt((pa - la)² - 2 φ (pa - la)(ub - pb) + (ub - pb)²)
    high = d + sqrt((ua - pa)² - 2 φ (ua - pa)(pb - lb) + (pb - lb)²)

    with d = pa - pb, the Wilson intervals [la, ua] and [lb, ub] of both accuracies, and φ the correlation of the two
    answers, pulled to 0 by a continuity correction where it is positive. Unlike d ± 2 standard errors it stays in
    [-1, 1], and does not vanish where the two agree on every image. Raises ValueError without images.

    Counts may be fractions (means over several runs of each classifier); Wilson then takes the nearest whole counts.

    >>> [round(end, 4) for end in paired_interval(59, 6, 16, 80)]
    [-0.1186, -0.0046]
    """
    n = both + only_a + only_b + neither
    if min(both, only_a, only_b, neither) < 0 or n == 0:
        cells = (both, only_a, only_b, neither)
        raise ValueError(f"counts (both, only a, only b, neither) = {cells}: none may be negative, one must be above 0")
    right_a, right_b = both + only_a, both + only_b
    (low_a, high_a), (low_b, high_b) = (wilson(round(right), round(n), level) for right in (right_a, right_b))
    pa, pb = round(right_a) / round(n), round(right_b) / round(n)
    phi = _correlation(both * neither - only_a * only_b, right_a * (n - right_a) * right_b * (n - right_b), n)
    d = (only_a - only_b) / n
    low = d - _length(pa - low_a, high_b - pb, phi)
    high = d + _length(high_a - pa, pb - low_b, phi)
    return max(-1.0, low), min(1.0, high)


def _correlation(product: int | float, margins: int | float, n: int | float) -> float:
    """Of the two answers; 0 where one classifier is always right or always wrong."""
    if margins <= 0:
        return 0.0
    return float((max(product - n / 2, 0.0) if product > 0 else product) / margins**0.5)


def _length(one: float, other: float, phi: float) -> float:
    return float(max(one**2 - 2 * phi * one * other + other**2, 0.0) ** 0.5)


def holm(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """p values corrected for how many there are: the chance of even one false finding stays below the level.

    In order of size, the i-th smallest of m times (m - i + 1), never below the one before, at most 1 (Holm 1979). Valid
    whatever the dependence between tests, as between pairs of models that share a model and the images.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(steps, 1.0)
    return corrected


# What subset seeds are worth: how many tell two models apart, and how firm the order of models is over them.


POWER = 0.8
MANY = 100_000  # above this many seeds the normal distribution stands for Student's, and no search is needed
NEVER = 1_000_000  # more seeds than this count as no end: nobody draws them, and rounding alone asks for more


class SeedsNeeded(NamedTuple):
    """Subset seeds in all, those at hand among them, with an interval. Infinite: no number is enough; NaN: unknown."""

    total: float
    low: float
    high: float


def t_power(effect: float, seeds: int, level: float = LEVEL) -> float:
    """How likely a paired t test over `seeds` differences finds a true mean of `effect` standard deviations.

    P(|T| > t) for T of Student's noncentral distribution with seeds - 1 degrees of freedom and noncentrality
    effect · sqrt(seeds) (Cohen 1988, chapter 2); t: the two-sided critical value at 1 - level.

    >>> round(t_power(0.5, 34), 3)
    0.808
    """
    t, noncentrality = float(stdtrit(seeds - 1, 0.5 + level / 2)), abs(effect) * seeds**0.5
    # scipy's lower tail is NaN for large noncentrality, where it is below the normal one of 3e-7 at 5
    wrong_side = float(nctdtr(seeds - 1, noncentrality, -t)) if noncentrality < 5 else 0.0
    return float(1 - nctdtr(seeds - 1, noncentrality, t) + wrong_side)


def seeds_for(effect: float, power: float = POWER, level: float = LEVEL) -> float:
    """The fewest subset seeds (2 or more) with which a mean difference of `effect` standard deviations is found.

    Infinite for an effect of 0, and where it would be more than a million.

    >>> seeds_for(0.5), seeds_for(-0.5), seeds_for(0.0)
    (34.0, 34.0, inf)
    """
    normal = float((ndtri(0.5 + level / 2) + ndtri(power)) ** 2)
    if normal > NEVER * effect**2:
        return float("inf")
    if normal > MANY * effect**2:
        return float(np.ceil(normal / effect**2))
    low, high = 1, 2
    while t_power(effect, high, level) < power:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if t_power(effect, middle, level) >= power else (middle, high)
    return float(high)


def seeds_needed(differences: Float[np.ndarray, " seeds"], power: float = POWER, level: float = LEVEL) -> SeedsNeeded:
    """How many subset seeds tell two models apart, if the mean difference seen so far is the true one.

    differences: accuracy a minus accuracy b, one a subset seed.
    total: the fewest seeds with which a two-sided paired t test at 1 - level has this power, for the effect d / s: mean
           and standard deviation of the differences.
    low, high: the same for the ends of the effect's exact interval: the noncentralities with which Student's t of k - 1
           degrees of freedom exceeds d / s · sqrt(k) in 2.5 % and in 97.5 % (Hedges and Olkin 1985, section 5.D). If it
           has 0 inside, the truth may be no difference, and `high` is infinite.

    NaN with fewer than two seeds. Differences that are all the same: 2 seeds, or, all 0, no number.

    >>> seeds_needed(np.array([0.01, 0.05, 0.02, 0.05, -0.01]))
    SeedsNeeded(total=12.0, low=5.0, high=inf)
    """
    k = len(differences)
    if k < 2:
        return SeedsNeeded(float("nan"), float("nan"), float("nan"))
    d, s = abs(float(differences.mean())), float(differences.std(ddof=1))
    if s <= 1e-12:  # rounding of equal accuracies
        total = 2.0 if d > 1e-12 else float("inf")
        return SeedsNeeded(total, total, total)
    t = d / s * k**0.5
    low, high = (float(nctdtrinc(k - 1, 0.5 + side * level / 2, t)) / k**0.5 for side in (1, -1))
    fewest = min(seeds_for(d / s, power, level), seeds_for(high, power, level))
    most = seeds_for(low, power, level) if t > stdtrit(k - 1, 0.5 + level / 2) else float("inf")
    return SeedsNeeded(seeds_for(d / s, power, level), fewest, most)


class RankStability(NamedTuple):
    """Of every model, over subset seeds.

    p_best: chance to be the best.    rank, low, high: of its mean accuracy (1 = best), and the interval.
    kept:   chance that the mean accuracies of models i and j stand in the order of now, and differ; NaN if equal now.
    """

    p_best: Float[np.ndarray, " models"]
    rank: Float[np.ndarray, " models"]
    low: Float[np.ndarray, " models"]
    high: Float[np.ndarray, " models"]
    kept: Float[np.ndarray, "models models"]


def rank_stability(
    accuracy: Float[np.ndarray, "subsets models"], cluster: Integer[np.ndarray, " subsets"]
) -> RankStability:
    """How firm the order of models is, over bootstrap resamples of subset seeds (see point_weights for `cluster`).

    Models that are equal in a resample share its best place and their rank. With fewer than two drawn seeds nothing is
    known about others: all but the rank is NaN.

    >>> rank_stability(np.array([[0.9, 0.8], [0.7, 0.6]]), np.array([0, 1])).p_best
    array([1., 0.])
    """
    means = np.round(accuracy.mean(axis=0), 12)
    rank, models = rankdata(-means), accuracy.shape[1]
    if cluster.max(initial=-1) < 1:
        unknown = np.full(models, np.nan)
        return RankStability(unknown, rank, unknown, unknown, np.full((models, models), np.nan))
    weights = point_weights(cluster)
    drawn = np.round(weights @ accuracy / weights.sum(axis=1, keepdims=True), 12)  # equal models stay equal
    best = drawn == drawn.max(axis=1, keepdims=True)
    ends = [percentile_interval(column) for column in rankdata(-drawn, axis=1).T]
    now = np.sign(means[:, None] - means[None, :])
    same = np.stack([np.sign(drawn[:, [m]] - drawn) == now[m] for m in range(models)]).mean(axis=1)
    return RankStability(
        p_best=(best / best.sum(axis=1, keepdims=True)).mean(axis=0),
        rank=rank,
        low=np.array([low for low, _ in ends]),
        high=np.array([high for _, high in ends]),
        kept=np.where(now == 0, np.nan, same),
    )


def kendall_w(scores: Float[np.ndarray, "judges models"]) -> float:
    """How well judges (class subsets) agree on the order of models: 1 all alike, 0 no agreement (Kendall's W).

    W = 12 Σ (R_i - mean R)² / (m² (n³ - n) - m Σ (t³ - t))   for rank sums R of n models by m judges, t: sizes of ties
    (Kendall and Babington Smith 1939). Mean Spearman correlation between judges without ties: (m W - 1) / (m - 1).

    NaN with fewer than two judges or models, and where no judge tells any two models apart.

    >>> kendall_w(np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]]))
    1.0
    """
    judges, models = scores.shape
    if judges < 2 or models < 2:
        return float("nan")
    sums = rankdata(scores, axis=1).sum(axis=0)
    ties = sum(float((t**3 - t).sum()) for t in (np.unique(row, return_counts=True)[1] for row in scores))
    scale = judges**2 * (models**3 - models) - judges * ties
    return float(12 * ((sums - sums.mean()) ** 2).sum() / scale) if scale > 0 else float("nan")
