"""What subset seeds are worth: how many tell two models apart, and how firm the order of models is over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import nctdtr, nctdtrinc, ndtri, stdtrit
from scipy.stats import rankdata

from fca.stats.intervals import LEVEL, percentile_interval, point_weights

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
