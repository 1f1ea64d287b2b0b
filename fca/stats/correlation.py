"""Pearson's and Spearman's correlation, over all points or within groups, and under resampling; Kendall's tau.

Within groups: the mean of the group is subtracted from both variables (Spearman: after ranking within the group), and
the rest is pooled, so that differences between groups do not count. One group gives the ordinary coefficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Num
from scipy.special import gammaln, ndtri, stdtr

from fca.stats.intervals import LEVEL, NO_INTERVAL, Estimated, percentile_interval, point_weights

METHODS = ("pearson", "spearman")
TIED = 1e-7  # of values between 0 and 1: below what a single response changes

Points = Num[np.ndarray, " points"]
Codes = Integer[np.ndarray, " points"]
Weights = Integer[np.ndarray, "resamples points"]
Values = Float[np.ndarray, "one_or_resamples points"]
Resampled = Float[np.ndarray, " resamples"]
Signs = Float[np.ndarray, "points points"]


class Correlation(NamedTuple):
    """r in [-1, 1]; p of no correlation (two-sided, as if the points were independent); n, the number of points used.

    r is NaN where it is undefined: fewer than two points in every group, or a variable that does not vary. p is NaN
    where r is, and where n leaves no degree of freedom.
    """

    r: float
    p: float
    n: int


def correlation(x: Points, y: Points, method: str = "pearson", groups: Codes | None = None) -> Correlation:
    """Correlation of x and y; with `groups`, pooled within them (a partial correlation given the group).

    p: Student's t of r with n - groups - 1 degrees of freedom; for ranks never below the smallest p of a permutation
    test within groups, 2 / (n_1! n_2! ...), as t would give 0 for four points in order. Groups of one point are not in
    n.

    >>> correlation(np.array([1, 2, 3, 4]), np.array([1, 4, 9, 16]), "spearman").r
    1.0
    >>> correlation(np.array([1.0, 2, 11, 12]), np.array([1.0, 0, 11, 10]), groups=np.array([0, 0, 1, 1])).r
    -1.0
    """
    group = _codes(groups, len(x))
    members = np.bincount(group)
    counted = members[group] > 1
    n = len(x) if groups is None else int(counted.sum())
    [r] = resampled_correlation(x, y, np.ones((1, len(x)), dtype=np.int64), method, groups)
    freedom = n - int((members > 1).sum()) - 1
    if np.isnan(r) or freedom < 1:
        return Correlation(float(r), float("nan"), n)
    p = t_test(r, freedom)
    reachable = float(2 * np.exp(-gammaln(members + 1).sum()))
    return Correlation(float(r), max(p, min(reachable, 1.0)) if method == "spearman" else p, n)


def t_test(r: float, freedom: int) -> float:
    """Two-sided p of no correlation: Student's t of r with so many degrees of freedom.

    >>> round(t_test(0.95, 3), 4), t_test(1.0, 3)
    (0.0133, 0.0)
    """
    with np.errstate(divide="ignore"):  # |r| = 1: t is infinite and p is 0
        t = r * np.sqrt(freedom / np.float64(1 - r**2))
    return float(2 * stdtr(freedom, -abs(t)))


def fisher_interval(r: float, n: int) -> tuple[float, float]:
    """95 % interval of Pearson's r over n independent points, tanh(atanh r ± 1.96 / sqrt(n - 3)) (Fisher 1921).

    Of normal points it contains the true r in 95 to 97 %, from four points on (simulated). NaN, NaN for fewer, and
    for r = -1 and 1.

    >>> [round(end, 2) for end in fisher_interval(0.9, 4)]
    [-0.45, 1.0]
    """
    if n < 4 or not abs(r) < 1:
        return NO_INTERVAL
    half = float(ndtri(0.5 + LEVEL / 2)) / (n - 3) ** 0.5
    return float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half))


def resampled_correlation(
    x: Points,
    y: Num[np.ndarray, "*resamples points"],
    weights: Weights,
    method: str = "pearson",
    groups: Codes | None = None,
) -> Resampled:
    """The coefficient in every resample: as if point i were repeated weights[r, i] times. NaN where undefined.

    y: one value a point, or one a resample and point (a best of resampled models); NaN there leaves the point out.

    >>> resampled_correlation(np.array([1.0, 2, 3]), np.array([2.0, 4, 5]), np.array([[2, 1, 0], [0, 0, 3]]))
    array([ 1., nan])
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}")
    group = _codes(groups, len(x))
    if y.ndim == 1:
        return _one_y(x, y, weights, method, group)
    found = np.empty(len(weights))
    distinct, which = np.unique(y, axis=0, return_inverse=True)
    for k, values in enumerate(distinct):
        rows = which.ravel() == k
        there = ~np.isnan(values)
        found[rows] = _one_y(x[there], values[there], weights[rows][:, there], method, group[there])
    return found


def _one_y(x: Points, y: Points, weights: Weights, method: str, group: Codes) -> Resampled:
    if method == "spearman":
        return _pearson(_ranks(x, weights, group), _ranks(y, weights, group), weights, group)
    return _pearson(x.astype(np.float64)[None], y.astype(np.float64)[None], weights, group)


def _ranks(values: Points, weights: Weights, group: Codes) -> Float[np.ndarray, "resamples points"]:
    """Ranks within the group among repeated points, ties averaged: (points below) + (points equal + 1) / 2."""
    below = values[:, None] > values[None, :]
    equal = values[:, None] == values[None, :]
    same = group[:, None] == group[None, :]
    return weights @ ((below + 0.5 * equal) * same).T + 0.5


def _pearson(x: Values, y: Values, weights: Weights, group: Codes) -> Resampled:
    dx, dy = _centred(x, weights, group), _centred(y, weights, group)
    sxx, syy, sxy = ((weights * a * b).sum(axis=1) for a, b in ((dx, dx), (dy, dy), (dx, dy)))
    return np.clip(_ratio(sxy, sxx, syy, (sxx > _noise(x)) & (syy > _noise(y))), -1.0, 1.0)


def _centred(values: Values, weights: Weights, group: Codes) -> Float[np.ndarray, "resamples points"]:
    member = (group[:, None] == np.arange(group.max(initial=0) + 1)).astype(np.float64)
    total = weights @ member
    mean = (weights * values) @ member / np.maximum(total, 1)  # any mean will do for a group absent from the resample
    return values - mean[:, group]


def _noise(values: Values) -> float:
    """A generous bound on the sum of squares of equal numbers after centring: rounding alone."""
    return float(values.size * (1e-13 * np.abs(values).max(initial=0.0)) ** 2)


def _codes(groups: Codes | None, points: int) -> Codes:
    if groups is None:
        return np.zeros(points, dtype=np.int64)
    return np.unique(groups, return_inverse=True)[1]


def kendall(x: Float[np.ndarray, " points"], y: Float[np.ndarray, " points"], clusters: Sequence[str]) -> Estimated:
    """Tau-b of x and y; the interval resamples clusters, all points of one together.

    tau_b = sum s(i, j) t(i, j) / sqrt(sum s² sum t²) over pairs of points, s and t the signs of their differences.
    A point that is drawn twice is no pair with itself. Values closer than 1e-7 are tied. NaN where it is undefined: no
    two points differ; without an interval where there are few clusters (see fca.stats.intervals).

    >>> kendall(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.7, 0.6]), ["a", "a", "b"]).value
    0.3333333333333333
    """
    s, t = (_signs(values) for values in (x, y))
    cluster = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)[1]
    [tau] = _tau(s, t, np.ones((1, len(x)))).tolist()
    taus = _tau(s, t, point_weights(cluster).astype(np.float64))
    return Estimated(tau, *percentile_interval(taus, int(cluster.max(initial=-1)) + 1))


def _signs(values: Float[np.ndarray, " points"]) -> Signs:
    """Of all differences; equal responses give abilities that differ by rounding."""
    difference = values[:, None] - values[None, :]
    return np.sign(np.where(np.abs(difference) < TIED, 0.0, difference))


def _tau(s: Signs, t: Signs, weights: Float[np.ndarray, "resamples points"]) -> Resampled:
    """Tau-b in every resample, as if point i were there weights[r, i] times."""
    both, of_s, of_t = (((weights @ pairs) * weights).sum(axis=1) for pairs in (s * t, s * s, t * t))
    return _ratio(both, of_s, of_t, (of_s > 0) & (of_t > 0))


def _ratio(both: Resampled, of_x: Resampled, of_y: Resampled, defined: Bool[np.ndarray, " resamples"]) -> Resampled:
    """A coefficient from the sum of products and both sums of squares; NaN where it is not defined."""
    ratio = np.full(len(both), np.nan)
    ratio[defined] = both[defined] / np.sqrt(of_x[defined] * of_y[defined])
    return ratio
