"""Pearson's and Spearman's correlation, over all points or within groups, with intervals; Kendall's tau.

Within groups: the mean of the group is subtracted from both variables (Spearman: after ranking within the group), and
the deviations are pooled, so that differences between groups do not count. One group gives the ordinary coefficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Num
from scipy.special import gammaln, stdtr, stdtrit

from fca.stats.intervals import FISHER_Z, NO_INTERVAL, UPPER_LEVEL, Estimated, jackknife_interval, left_out_weights

METHODS = ("pearson", "spearman")
TIED = 1e-7  # values in [0, 1] that differ by less are equal: a single response changes them by more
FEWEST_IN_PERFECT_ORDER = 4  # draws that the interval of a rank correlation of 1 needs

Points = Num[np.ndarray, " points"]
Codes = Integer[np.ndarray, " points"]
Weights = Integer[np.ndarray, "resamples points"]
Values = Float[np.ndarray, "one_or_resamples points"]
Resampled = Float[np.ndarray, " resamples"]
Signs = Float[np.ndarray, "points points"]


class Correlation(NamedTuple):
    """A correlation coefficient with its p value.

    r: in [-1, 1]; NaN where it is undefined: fewer than two points in every group, or a variable that does not vary.
    p: two-sided p value of no correlation, as if the points were independent; NaN where r is, and where n leaves no
       degree of freedom.
    n: number of points used.
    """

    r: float
    p: float
    n: int


def correlation(x: Points, y: Points, method: str = "pearson", groups: Codes | None = None) -> Correlation:
    """Correlation of x and y with its p value.

    method: "pearson" or "spearman" (of ranks).
    groups: a number for each point's group. The correlation is then of the deviations from the means of groups, pooled
            over groups (a partial correlation given the group). None: all points are one group.

    p is that of Student's t of r with n - groups - 1 degrees of freedom. A group of one point has no deviation: n and
    the number of groups leave it out. For ranks, p is at least the smallest p value of a permutation test within groups
    of n_1, n_2 ... points, 2 / (n_1! n_2! ...); t alone would give 0 for four points in perfect order.

    >>> correlation(np.array([1, 2, 3, 4]), np.array([1, 4, 9, 16]), "spearman").r
    1.0
    >>> correlation(np.array([1.0, 2, 11, 12]), np.array([1.0, 0, 11, 10]), groups=np.array([0, 0, 1, 1])).r
    -1.0
    """
    codes = _codes(groups, len(x))
    group_sizes = np.bincount(codes)
    n_in_groups = int((group_sizes[codes] > 1).sum())
    n = len(x) if groups is None else n_in_groups  # without groups a single point counts, too

    all_points_once = np.ones((1, len(x)), dtype=np.int64)
    r = float(resampled_correlation(x, y, all_points_once, method, groups)[0])
    freedom = n - int((group_sizes > 1).sum()) - 1
    if np.isnan(r) or freedom < 1:
        return Correlation(r, float("nan"), n)

    p = t_test(r, freedom)
    if method == "spearman":
        smallest_p = float(2 * np.exp(-gammaln(group_sizes + 1).sum()))  # 2 / (n_1! n_2! ...)
        p = max(p, min(smallest_p, 1.0))
    return Correlation(r, p, n)


def t_test(r: float, freedom: int) -> float:
    """Two-sided p of no correlation: Student's t of r with this many degrees of freedom.

    >>> round(t_test(0.95, 3), 4), t_test(1.0, 3)
    (0.0133, 0.0)
    """
    with np.errstate(divide="ignore"):  # |r| = 1: t is infinite and p is 0
        t = r * np.sqrt(freedom / np.float64(1 - r**2))
    return float(2 * stdtr(freedom, -abs(t)))


def correlation_interval(
    x: Points,
    y: Points,
    cluster: Codes,
    method: str = "pearson",
    groups: Codes | None = None,
    also_left_out: Sequence[Resampled] = (),
) -> tuple[float, float]:
    """95 % interval of the `correlation` of x and y: jackknife on Fisher's z over clusters.

    tanh(atanh r ± t(k - 1) sqrt((k - 1) / k · Σ (z_j - mean z)²)),   z_j = atanh of r without cluster j

    A cluster has the points that were drawn together, such as all points of one class subset. Unlike Fisher's interval,
    1.96 / sqrt(n - 3), this one does not suppose that points are normal or independent. With 3 or more clusters it
    contains the true r in 92 to 98 % of cases (experiments/intervals); Fisher's contains it in 80 to 90 % for lognormal
    points with r = 0.88. For ranks in perfect order see _rank_interval.

    cluster: number of each point's cluster, 0..k-1; -1 for a point that was not drawn at random and is never left out.
    method, groups: see `correlation`.
    also_left_out:  for each further kind of random draws, such as models: the values of r with one draw left out.
    NaN, NaN where r becomes undefined when a cluster is left out, and where Pearson's r is -1 or 1, or becomes so.

    >>> x, y = np.array([1.0, 2, 3, 4, 5, 6]), np.array([1.0, 3, 2, 5, 4, 6])
    >>> [round(end, 2) for end in correlation_interval(x, y, np.arange(6))]
    [0.16, 0.99]
    """
    n = len(x)
    all_points_once = np.ones((1, n), dtype=np.int64)
    r = float(resampled_correlation(x, y, all_points_once, method, groups)[0])
    left_out = resampled_correlation(x, y, left_out_weights(cluster), method, groups)
    if method == "pearson":
        return jackknife_interval(r, left_out, *also_left_out, scale=FISHER_Z)

    half_step_below_1 = 1.0
    if n > 1:
        half_step_below_1 -= 6 / (n * (n**2 - 1))  # two neighbours exchanged lower Spearman's r by twice this
    return _rank_interval(r, [left_out, *also_left_out], half_step_below_1)


def _rank_interval(r: float, left_out: Sequence[Resampled], half_step_below_1: float) -> tuple[float, float]:
    """The 95 % jackknife interval of a rank correlation.

    r:                 the correlation of all points.
    left_out:          for each kind of random draws: the values of r with one draw left out.
    half_step_below_1: the middle between 1 and the next lower value that a correlation of so many ranks can have. It
                       replaces a correlation of 1 (and its negative one of -1), of which Fisher's z would be infinite.

    In perfect order (r is 1 or -1) the jackknife shows no spread. Fisher's z then has the standard error
    sqrt(1.5 / (k - 3)) for k draws, that of Spearman's rho near 1 (Bonett and Wright 2000, Psychometrika 65:23), and
    the interval ends at 1 or -1. NaN, NaN for three draws or fewer in perfect order.
    """
    limit = half_step_below_1
    limited = [np.clip(values, -limit, limit) for values in left_out]
    is_perfect_order = abs(r) >= limit
    if not is_perfect_order:
        return jackknife_interval(r, *limited, scale=FISHER_Z)

    draws = min(len(values) for values in left_out)  # of the kind with the fewest draws, which shows least
    if draws < FEWEST_IN_PERFECT_ORDER:
        return NO_INTERVAL
    t = float(stdtrit(draws - 1, UPPER_LEVEL))
    half_width = t * (1.5 / (draws - 3)) ** 0.5
    inner_end = float(np.tanh(np.arctanh(limit) - half_width))
    return (inner_end, 1.0) if r > 0 else (-1.0, -inner_end)


def resampled_correlation(
    x: Points,
    y: Num[np.ndarray, "*resamples points"],
    weights: Weights,
    method: str = "pearson",
    groups: Codes | None = None,
) -> Resampled:
    """The coefficient in every resample: as if point i were repeated weights[r, i] times. NaN where undefined.

    groups: as of `correlation`: deviations are from the mean of a point's group, and pooled over groups.
    y:      a value for each point; or, if the values differ between resamples, a row for each resample, such as the
            accuracies of the best of the models in it. NaN in a row leaves the point out of the resample.

    >>> resampled_correlation(np.array([1.0, 2, 3]), np.array([2.0, 4, 5]), np.array([[2, 1, 0], [0, 0, 3]]))
    array([ 1., nan])
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}")
    codes = _codes(groups, len(x))
    if y.ndim == 1:
        return _coefficients(x, y, weights, method, codes)

    # resamples with equal values of y are computed together
    coefficients = np.empty(len(weights))
    # index_of_distinct: for each resample, which of the distinct rows of y it has
    distinct, index_of_distinct = np.unique(y, axis=0, return_inverse=True)
    for number, values in enumerate(distinct):
        rows = index_of_distinct.ravel() == number
        has_value = ~np.isnan(values)
        coefficients[rows] = _coefficients(
            x[has_value],
            values[has_value],
            weights[rows][:, has_value],
            method,
            codes[has_value],
        )
    return coefficients


def _coefficients(x: Points, y: Points, weights: Weights, method: str, group: Codes) -> Resampled:
    """The coefficient in every resample of points whose values are the same in all resamples."""
    if method == "spearman":
        x_ranks = _ranks(x, weights, group)
        y_ranks = _ranks(y, weights, group)
        return _pearson(x_ranks, y_ranks, weights, group)
    x_values = x.astype(np.float64)[None]  # 1 x points
    y_values = y.astype(np.float64)[None]
    return _pearson(x_values, y_values, weights, group)


def _ranks(values: Points, weights: Weights, group: Codes) -> Float[np.ndarray, "resamples points"]:
    """Ranks of the points within their group in every resample, where point i occurs weights[r, i] times.

    The rank is the number of points below plus (points equal + 1) / 2, which gives tied points their mean rank.
    """
    is_above = values[:, None] > values[None, :]
    is_equal = values[:, None] == values[None, :]
    is_same_group = group[:, None] == group[None, :]
    shares_below = (is_above + 0.5 * is_equal) * is_same_group  # how much point j adds to the rank of point i
    return weights @ shares_below.T + 0.5


def _pearson(x: Values, y: Values, weights: Weights, group: Codes) -> Resampled:
    """Pearson's r in every resample: sxy / sqrt(sxx syy), with deviations from the means of groups in that resample.

    x, y:    one value a point, or one a resample and point.
    weights: how often each point is in each resample.
    NaN where a variable does not vary, up to rounding.
    """
    dx = _deviations(x, weights, group)
    dy = _deviations(y, weights, group)
    sxx = (weights * dx * dx).sum(axis=1)
    syy = (weights * dy * dy).sum(axis=1)
    sxy = (weights * dx * dy).sum(axis=1)

    x_varies = sxx > _rounding(x)  # above the sum of squares that rounding alone may leave of equal values
    y_varies = syy > _rounding(y)
    r = _ratio(sxy, sxx, syy, x_varies & y_varies)
    return np.clip(r, -1.0, 1.0)


def _deviations(values: Values, weights: Weights, group: Codes) -> Float[np.ndarray, "resamples points"]:
    """Values minus the weighted mean of their group in every resample."""
    groups = group.max(initial=0) + 1
    is_member = (group[:, None] == np.arange(groups)).astype(np.float64)  # points x groups
    group_sums = (weights * values) @ is_member  # resamples x groups
    group_weights = np.maximum(weights @ is_member, 1)  # a group absent from the resample may have any mean
    means = group_sums / group_weights
    return values - means[:, group]


def _rounding(values: Values) -> float:
    """A generous bound on the sum of squares of equal numbers after centring: rounding alone."""
    return float(values.size * (1e-13 * np.abs(values).max(initial=0.0)) ** 2)


def _codes(groups: Codes | None, points: int) -> Codes:
    """Groups numbered from 0; one group of all points if there are none."""
    if groups is None:
        return np.zeros(points, dtype=np.int64)
    return np.unique(groups, return_inverse=True)[1]


def kendall(x: Float[np.ndarray, " points"], y: Float[np.ndarray, " points"], clusters: Sequence[str]) -> Estimated:
    """Kendall's tau-b of x and y, with a 95 % jackknife interval on Fisher's z over clusters.

    tau_b = Σ s(i, j) t(i, j) / sqrt(Σ s² Σ t²)   over pairs of points i, j, with s and t the signs of the differences
    x_i - x_j and y_i - y_j. Values that differ by less than 1e-7 are tied.

    clusters: a name for each point; the points of one name are left out together.
    tau is NaN if no two values of x, or of y, differ. The interval is NaN if tau becomes so when a cluster is left out,
    and for three clusters or fewer in perfect order.

    >>> kendall(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.7, 0.6]), ["a", "a", "b"]).value
    0.3333333333333333
    """
    n = len(x)
    s = _signs(x)
    t = _signs(y)
    all_points_once = np.ones((1, n))
    tau = float(_tau_b(s, t, all_points_once)[0])

    codes = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)[1]
    weights = left_out_weights(codes).astype(np.float64)
    left_out = _tau_b(s, t, weights)

    half_step_below_1 = 1.0
    if n > 1:
        half_step_below_1 -= 2 / (n * (n - 1))  # two neighbours exchanged lower tau by twice this
    return Estimated(tau, *_rank_interval(tau, [left_out], half_step_below_1))


def _signs(values: Float[np.ndarray, " points"]) -> Signs:
    """Signs of the differences of all pairs; 0 below TIED: equal responses give abilities that differ by rounding."""
    differences = values[:, None] - values[None, :]
    return np.sign(np.where(np.abs(differences) < TIED, 0.0, differences))


def _tau_b(s: Signs, t: Signs, weights: Float[np.ndarray, "resamples points"]) -> Resampled:
    """Kendall's tau-b in every resample, as if point i were repeated weights[r, i] times.

    tau_b = Σ s(i, j) t(i, j) / sqrt(Σ s² Σ t²) over pairs of points, with s and t the signs of x_i - x_j and y_i - y_j.
    NaN where all x or all y of a resample are tied.
    """

    def sums_over_pairs(products: Signs) -> Resampled:
        """The sum of products[i, j] over all pairs of points, in every resample."""
        return ((weights @ products) * weights).sum(axis=1)

    sum_st = sums_over_pairs(s * t)
    sum_ss = sums_over_pairs(s * s)
    sum_tt = sums_over_pairs(t * t)
    is_defined = (sum_ss > 0) & (sum_tt > 0)
    return _ratio(sum_st, sum_ss, sum_tt, is_defined)


def _ratio(sxy: Resampled, sxx: Resampled, syy: Resampled, is_defined: Bool[np.ndarray, " resamples"]) -> Resampled:
    """sxy / sqrt(sxx syy); NaN where it is not defined."""
    ratio = np.full(len(sxy), np.nan)
    ratio[is_defined] = sxy[is_defined] / np.sqrt(sxx[is_defined] * syy[is_defined])
    return ratio
