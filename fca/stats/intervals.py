"""Intervals: Wilson's for an accuracy; elsewhere the bootstrap over what was drawn at random, from five draws on.

The bootstrap sees only the spread of what was drawn. Of two, three, four and five normal draws its 95 % interval of a
mean contains the true mean in 51, 75, 81 and 84 % (simulated; Student's t: 95 %). So below FEWEST_DRAWS a mean has
Student's interval, Pearson's r of four points Fisher's (fca.stats.correlation), and what has neither has no interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer, Num, Shaped
from scipy.special import bdtr, ndtr, ndtri, stdtrit  # not scipy.stats, which takes a third of a second to import

LEVEL = 0.95
RESAMPLES = 2000
FEWEST_DRAWS = 5  # independent draws (subset seeds, models, images ...) that a bootstrap needs
NO_INTERVAL = (float("nan"), float("nan"))
EVERYWHERE = (-float("inf"), float("inf"))
FRACTION, SIGNED_FRACTION = (0.0, 1.0), (-1.0, 1.0)  # the ranges of an accuracy and of a difference of two


class Estimated(NamedTuple):
    """A number and both ends of its 95 % interval; NaN: unknown."""

    value: float
    low: float
    high: float


UNKNOWN = Estimated(float("nan"), *NO_INTERVAL)


def median_with_interval(values: Sequence[float], level: float = LEVEL) -> Estimated:
    """The median, and the interval between two of the values that contains the true one, whatever they are drawn from.

    The k-th smallest of n is below the true median, and the k-th largest above it, but with probability
    2 P(B < k), B ~ Binomial(n, 1/2); k is the largest for which that is at most 1 - level. Unknown for fewer than six
    values at 95 %.    Raises ValueError without values.

    >>> median_with_interval([5.0, 1.0, 2.0, 9.0, 4.0, 3.0, 8.0, 7.0, 6.0])
    Estimated(value=5.0, low=2.0, high=8.0)
    """
    ordered, n = sorted(values), len(values)
    if not n:
        raise ValueError("no values: there is no median")
    missed_below = bdtr(np.arange(n + 1), n, 0.5)  # P(B <= k)
    k = int(np.searchsorted(missed_below, (1 - level) / 2))
    ends = (ordered[k - 1], ordered[n - k]) if k else NO_INTERVAL
    return Estimated(statistics.median(ordered), *ends)


def wilson(correct: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of an accuracy: the true accuracies consistent with `correct` of `n` independent images.

    centre = (p + z²/2n) / (1 + z²/n),   half = z / (1 + z²/n) · sqrt(p(1-p)/n + z²/4n²)   (Wilson 1927)

    Unlike p ± 2 standard errors it stays in [0, 1] and does not vanish at p = 1. Raises ValueError without images.

    >>> [round(end, 3) for end in wilson(95, 100)]
    [0.888, 0.978]
    """
    if not 0 <= correct <= n or n == 0:
        raise ValueError(f"correct={correct} of n={n} images: n must be 1 or more, and correct between 0 and n")
    z = float(ndtri(0.5 + level / 2))
    p = correct / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    low = 0.0 if correct == 0 else centre - half  # exactly so in theory; rounding would leave the range
    high = 1.0 if correct == n else centre + half
    return low, high


def cluster_draws(clusters: int, seed: int = 0, resamples: int = RESAMPLES) -> Integer[np.ndarray, "draws clusters"]:
    """Count of each cluster in each bootstrap resample of all of them, with replacement.

    >>> cluster_draws(3, resamples=4).sum(axis=1)
    array([3, 3, 3, 3])
    """
    return np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples)


def point_weights(
    cluster: Integer[np.ndarray, " points"], seed: int = 0, resamples: int = RESAMPLES
) -> Integer[np.ndarray, "resamples points"]:
    """Count of each point in each resample when whole clusters are drawn (points of one cluster come together).

    cluster: 0..k-1, or -1 for a point that was not drawn at random and so is in every resample once.

    >>> weights = point_weights(np.array([0, 0, 1, -1]))
    >>> sorted({tuple(row) for row in weights.tolist()})
    [(0, 0, 2, 1), (1, 1, 1, 1), (2, 2, 0, 1)]
    """
    clusters = int(cluster.max(initial=-1)) + 1
    if not clusters:
        return np.ones((resamples, len(cluster)), dtype=np.int64)
    return np.where(cluster < 0, 1, cluster_draws(clusters, seed, resamples)[:, cluster])


def no_interval(draws: int, what: str) -> str | None:
    """The reason why a bootstrap over so many independent draws of `what` gives no interval; None where it gives one.

    >>> no_interval(3, "subset seeds"), no_interval(5, "subset seeds")
    ('no interval: 3 subset seeds, 5 needed', None)
    """
    if draws >= FEWEST_DRAWS:
        return None
    return f"no interval: {draws} {what.removesuffix('s') if draws == 1 else what}, {FEWEST_DRAWS} needed"


def resampled(what: str) -> str:
    """How the interval of a mean is made (see mean_with_interval): for the parameters of a table."""
    return f"{RESAMPLES} bootstrap resamples of {what}, of fewer than {FEWEST_DRAWS} Student's t"


def widened(draws: int, level: float = LEVEL) -> float:
    """The level whose percentile interval of a mean of so few draws covers the mean in about `level` of the cases.

    2 Φ(t sqrt(k / (k - 1))) - 1 with Student's t of k - 1 degrees of freedom: Hesterberg's expanded percentiles (2015,
    Am. Stat. 69:371). Of ten normal draws the plain interval holds the mean in 90 to 92 %, this one in 94 %.

    >>> round(widened(10), 3), round(widened(1000), 3)
    (0.983, 0.95)
    """
    half = float(stdtrit(draws - 1, 0.5 + level / 2)) * (draws / (draws - 1)) ** 0.5
    return 2 * float(ndtr(half)) - 1


def percentile_interval(
    values: Float[np.ndarray, " resamples"], draws: int, level: float = LEVEL
) -> tuple[float, float]:
    """The middle `level` of a statistic over resamples of so many independent draws.

    NaN, NaN with fewer than FEWEST_DRAWS draws, and if the statistic is undefined (NaN) in half of the resamples or
    more.
    """
    defined = values[~np.isnan(values)]
    if draws < FEWEST_DRAWS or 2 * len(defined) <= len(values):
        return NO_INTERVAL
    low, high = np.quantile(defined, [0.5 - level / 2, 0.5 + level / 2]).tolist()
    return low, high


def bootstrap_mean(
    values: Num[np.ndarray, " points"], cluster: Integer[np.ndarray, " points"], seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean whose points come in clusters (see point_weights).

    NaN, NaN with fewer than FEWEST_DRAWS drawn clusters.

    >>> [round(end, 2) for end in bootstrap_mean(np.array([0.5, 0.6, 0.7, 0.8, 0.9]), np.arange(5))]
    [0.58, 0.82]
    """
    sums, counts, fixed = _clusters(values, cluster)
    if not len(sums):
        return NO_INTERVAL
    draws = cluster_draws(len(sums), seed)
    return percentile_interval((draws @ sums + fixed.sum()) / (draws @ counts + len(fixed)), len(sums))


def t_mean(
    values: Num[np.ndarray, " points"],
    cluster: Integer[np.ndarray, " points"],
    within: tuple[float, float] = EVERYWHERE,
) -> tuple[float, float]:
    """Student's interval of a mean whose points come in clusters (see point_weights).

    mean ± t(k - 1) · sqrt(k / (k - 1) · Σ (e_j - mean e)²) / n,   e_j = sum of cluster j - its number of points · mean

    for k drawn clusters and n points: of clusters of one point, the usual interval; of clusters that differ in size,
    that of a ratio of sums (Cochran 1977, section 6.4). It is cut off at `within`, the range of the quantity.

    NaN, NaN with fewer than two drawn clusters, and where they are all alike: then they show no spread to go by.

    >>> [round(end, 2) for end in t_mean(np.array([0.7, 0.8, 0.9]), np.arange(3))]
    [0.55, 1.05]
    """
    sums, counts, _ = _clusters(values, cluster)
    k, n = len(sums), len(values)
    if k < 2:
        return NO_INTERVAL
    mean = float(values.mean())
    deviation = float(np.std(sums - counts * mean, ddof=1)) * k**0.5 / n
    if deviation <= 1e-12:  # rounding of equal accuracies
        return NO_INTERVAL
    half = float(stdtrit(k - 1, 0.5 + LEVEL / 2)) * deviation
    return max(within[0], mean - half), min(within[1], mean + half)


def _clusters(
    values: Num[np.ndarray, " points"], cluster: Integer[np.ndarray, " points"]
) -> tuple[Float[np.ndarray, " clusters"], Integer[np.ndarray, " clusters"], Num[np.ndarray, " fixed"]]:
    """Sum and number of the points of each drawn cluster, and the points that were not drawn."""
    drawn, clusters = cluster >= 0, int(cluster.max(initial=-1)) + 1
    sums = np.bincount(cluster[drawn], weights=values[drawn], minlength=clusters).astype(np.float64)  # int of none
    return sums, np.bincount(cluster[drawn], minlength=clusters), values[~drawn]


def mean_with_interval(
    values: Num[np.ndarray, " points"] | pd.Series,
    groups: Shaped[np.ndarray, " points"] | pd.Series | None = None,
    seed: int = 0,
    within: tuple[float, float] = EVERYWHERE,
) -> Estimated:
    """The mean of the values that are not missing, and its interval: percentile bootstrap, or t of few groups.

    groups: names of what was drawn at random and is resampled whole, such as the subset seed of each value; a value
            with a missing name (None, NaN) was not drawn and is in every resample once. None: every value is its own
            group.
    within: the range of the quantity, which Student's interval may leave.
    From FEWEST_DRAWS groups on see bootstrap_mean, below t_mean. The interval is NaN, NaN with a single group, and with
    few groups that are all alike; all three are NaN without values.

    >>> mean_with_interval(np.array([0.7, 0.9]), within=FRACTION)
    Estimated(value=0.8, low=0.0, high=1.0)
    >>> mean_with_interval(np.array([0.7, 0.9]), np.array(["a", "a"]))
    Estimated(value=0.8, low=nan, high=nan)
    """
    numbers = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(numbers)
    if not known.any():
        return UNKNOWN
    codes = np.arange(known.sum()) if groups is None else pd.factorize(pd.Series(groups)[known])[0]
    few = codes.max(initial=-1) + 1 < FEWEST_DRAWS
    ends = t_mean(numbers[known], codes, within) if few else bootstrap_mean(numbers[known], codes, seed)
    return Estimated(float(numbers[known].mean()), *ends)
