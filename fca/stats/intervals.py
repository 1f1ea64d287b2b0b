"""Intervals: Wilson's for an accuracy; elsewhere the bootstrap over what was drawn at random."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer, Num, Shaped
from scipy.special import ndtri

LEVEL = 0.95
RESAMPLES = 2000
NO_INTERVAL = (float("nan"), float("nan"))


class Estimated(NamedTuple):
    """A number and both ends of its 95 % interval; NaN: unknown."""

    value: float
    low: float
    high: float


UNKNOWN = Estimated(float("nan"), *NO_INTERVAL)


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


def percentile_interval(values: Float[np.ndarray, " resamples"], level: float = LEVEL) -> tuple[float, float]:
    """The middle `level` of a statistic over resamples; NaN, NaN if it is undefined (NaN) in half of them or more."""
    defined = values[~np.isnan(values)]
    if 2 * len(defined) <= len(values):
        return NO_INTERVAL
    low, high = np.quantile(defined, [0.5 - level / 2, 0.5 + level / 2]).tolist()
    return low, high


def bootstrap_mean(
    values: Num[np.ndarray, " points"], cluster: Integer[np.ndarray, " points"], seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean whose points come in clusters (see point_weights).

    With fewer than two drawn clusters nothing is known about another draw: NaN, NaN. With three or four it is too
    narrow: the bootstrap sees only the spread of those that were drawn.

    >>> bootstrap_mean(np.array([0.7, 0.9]), np.array([0, 1]))
    (0.7, 0.9)
    """
    clusters = int(cluster.max(initial=-1)) + 1
    if clusters < 2:
        return NO_INTERVAL
    drawn, fixed = cluster >= 0, values[cluster < 0]
    sums = np.bincount(cluster[drawn], weights=values[drawn], minlength=clusters)
    counts = np.bincount(cluster[drawn], minlength=clusters)
    draws = cluster_draws(clusters, seed)
    return percentile_interval((draws @ sums + fixed.sum()) / (draws @ counts + len(fixed)))


def mean_with_interval(
    values: Num[np.ndarray, " points"] | pd.Series,
    groups: Shaped[np.ndarray, " points"] | pd.Series | None = None,
    seed: int = 0,
) -> Estimated:
    """The mean of the values that are not missing, with its percentile bootstrap interval.

    groups: names of what was drawn at random and is resampled whole, such as the subset seed of each value; a value
            with a missing name (None, NaN) was not drawn and is in every resample once. None: every value is its own
            group.
    The interval is NaN, NaN with fewer than two groups; all three are NaN without values. With three or four groups it
    is too narrow: the bootstrap sees only the spread of those that were drawn.

    >>> mean_with_interval(np.array([0.7, 0.9]))
    Estimated(value=0.8, low=0.7, high=0.9)
    >>> mean_with_interval(np.array([0.7, 0.9]), np.array(["a", "a"]))
    Estimated(value=0.8, low=nan, high=nan)
    """
    numbers = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(numbers)
    if not known.any():
        return UNKNOWN
    codes = np.arange(known.sum()) if groups is None else pd.factorize(pd.Series(groups)[known])[0]
    return Estimated(float(numbers[known].mean()), *bootstrap_mean(numbers[known], codes, seed))
