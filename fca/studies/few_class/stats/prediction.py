"""How well numbers known in advance predict accuracy on subsets never seen before, and what they add to ncl.

The model is a straight line: accuracy = intercept + weights * regressors, by least squares, cut off at 0 and 1. Not on
the logit: sub-models reach 100 % on easy subsets, where the logit is infinite, and errors are judged in points anyway.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer, Num

from fca.stats.intervals import FRACTION, SIGNED_FRACTION, Estimated, mean_with_interval

LEVEL = 0.9  # of prediction intervals
UNCLEAR = "undecided"  # the verdict where intervals are too wide
RANK = 1e-10  # a regressor that varies by less of its mean, or of the others, is constant or collinear up to rounding

Points = Float[np.ndarray, " points"]
Codes = Integer[np.ndarray, " points"]
Train = Float[np.ndarray, " train"]
Unseen = Float[np.ndarray, " test"]
TrainX = Float[np.ndarray, "train regressors"]
UnseenX = Float[np.ndarray, "test regressors"]


class HeldOut(NamedTuple):
    """A prediction of every point that was made without its own fold, and both ends of its interval; as fractions.

    NaN where there is no prediction or no interval.
    """

    predicted: Points
    low: Points
    high: Points


class Judgement(NamedTuple):
    """Means over the held-out points, as fractions, with 95 % intervals over clusters.

    error: mean absolute error.
    gain: the baseline's error minus this error.
    coverage, width: of the prediction intervals.
    """

    error: Estimated
    gain: Estimated
    coverage: Estimated
    width: float


def held_out(
    regressors: Num[np.ndarray, "points regressors"], accuracy: Points, fold: Codes, level: float = LEVEL
) -> HeldOut:
    """Predict each fold from the others, with CV+ intervals (Barber et al. 2021, arXiv:1905.02928).

    Every fit is linear, by least squares with an intercept, and its predictions are cut off at 0 and 1. Every training
    point i has a fit f_i that left out its own fold, and a residual R_i = |y_i - f_i(x_i)|. At a point x the interval
    begins at the floor((1 - level)(n + 1))-th smallest of the n values f_i(x) - R_i, and ends at the
    ceil(level (n + 1))-th smallest of f_i(x) + R_i. The guaranteed coverage is 2 level - 1 or slightly less (0.8 at
    level 0.9); the typical coverage is near level. Both hold only for exchangeable points, and points of different data
    sets are not. So coverage has to be measured.

    regressors: with no columns, the prediction is the mean of the training points.
    accuracy:   fractions in [0, 1].
    fold:       points with equal numbers are left out together: the points of a data set, or of a subset seed. With one
                fold all is NaN.
    level:      an interval at 0.9 needs 9 training points of 2 folds; it is NaN where there are fewer.

    >>> held_out(np.array([[0.1], [0.2], [0.3]]), np.array([0.2, 0.4, 0.6]), np.array([0, 1, 2])).predicted.round(6)
    array([0.2, 0.4, 0.6])
    """
    x = regressors.astype(np.float64)
    predicted = np.full(len(accuracy), np.nan)
    low = np.full(len(accuracy), np.nan)
    high = np.full(len(accuracy), np.nan)

    for k in np.unique(fold):
        test = fold == k
        train = fold != k
        if not train.any():  # a single fold
            continue

        predicted[test] = _predict(x[train], accuracy[train], x[test])
        low[test], high[test] = _cv_plus(x[train], accuracy[train], fold[train], x[test], level)
    return HeldOut(predicted, low, high)


def judge(accuracy: Points, model: HeldOut, baseline: HeldOut, cluster: Codes) -> Judgement:
    """The error of predictions, their gain over a baseline on the same points, and how good their intervals are.

    accuracy: measured, as fractions.
    model:    the predictions to judge.
    baseline: the predictions to compare with.
    cluster:  0..k-1, equal for points that were drawn together: those of a subset seed, or of a data set where whole
              data sets were held out; -1 for a point that was not drawn (all classes).

    What is unknown (no prediction, no interval, one cluster) is NaN. The 95 % intervals of means are over clusters of
    judged points; the fits are not repeated for them. Since the fits of k clusters share most of their points, the
    intervals of error and gain are made sqrt(1 + k / (k - 1)) times as wide (Nadeau and Bengio 2003, Machine Learning
    52).

    >>> sure = HeldOut(np.array([0.9, 0.8]), np.array([0.8, 0.7]), np.array([1.0, 0.9]))
    >>> off = HeldOut(np.array([0.7, 0.7]), *sure[1:])
    >>> [round(value, 3) for value in judge(np.array([0.9, 0.8]), sure, off, np.array([0, 1])).gain]
    [0.15, -0.95, 1.0]
    """
    error = np.abs(accuracy - model.predicted)
    gain = np.abs(accuracy - baseline.predicted) - error
    is_inside = (accuracy >= model.low) & (accuracy <= model.high)
    coverage = np.where(np.isnan(model.low), np.nan, is_inside)  # 1 or 0, NaN without an interval
    width = model.high - model.low

    # sorted by cluster, so that clusters enter the intervals in one order, whatever the order of the points
    order = np.argsort(cluster, kind="stable")
    # NaN: a point that was not drawn counts in the means, but adds no variance to their intervals
    groups = np.where(cluster < 0, np.nan, cluster)[order]
    # within: the possible values of what is averaged
    mean_error = mean_with_interval(error[order], groups, within=FRACTION)
    mean_gain = mean_with_interval(gain[order], groups, within=SIGNED_FRACTION)
    mean_coverage = mean_with_interval(coverage[order], groups, within=FRACTION)
    mean_width = mean_with_interval(width[order], groups, within=FRACTION)

    n_clusters = int(cluster.max(initial=-1)) + 1
    return Judgement(
        error=_for_shared_fits(mean_error, n_clusters, FRACTION),
        gain=_for_shared_fits(mean_gain, n_clusters, SIGNED_FRACTION),
        coverage=mean_coverage,
        width=mean_width.value,
    )


def _for_shared_fits(mean: Estimated, n_clusters: int, within: tuple[float, float]) -> Estimated:
    """A cross-validated mean with a wider interval, because the fits of all folds share most of their points.

    Both halves of the interval become sqrt(1 + k / (k - 1)) times as wide. The variance s² / k of the mean of k
    independent clusters becomes

        s² (1 / k + n_test / n_train),   n_test / n_train = 1 / (k - 1)    (Nadeau and Bengio 2003, Machine Learning 52)

    n_clusters: k; where fits are within several data sets, it counts the clusters of all. Fewer than 2 have no
                interval to widen.
    within:     the range of the quantity, where the interval is cut off.
    """
    if n_clusters < 2:
        return mean

    factor = math.sqrt(1 + n_clusters / (n_clusters - 1))
    low = mean.value - factor * (mean.value - mean.low)
    high = mean.value + factor * (mean.high - mean.value)
    return Estimated(mean.value, max(within[0], low), min(within[1], high))


def verdict(
    gain: tuple[float, float], worth: float, r: tuple[float, float] | None = None, error: float | None = None
) -> str:
    """Whether a predictor predicts accuracy beyond ncl alone: "beyond ncl", "not beyond ncl" or "undecided".

    gain:  the interval of its gain over ncl alone.
    worth: a gain below this is of no use; same unit.
    r:     the interval of its correlation with accuracy among subsets of equal ncl; None if it has none. For
           "beyond ncl" it must exclude 0 as well, because a predictor can also gain by following an effect of ncl that
           is not a straight line.
    error: the mean error of ncl alone. A predictor with correlation r can at best shrink it by the factor sqrt(1 - r²).
           For "not beyond ncl" the gain by the strongest r in its interval must be below worth too, because with few
           points a useful predictor may seem to gain nothing. None for new data sets: r, which is within data sets,
           does not limit the gain there.

    >>> verdict((0.01, 0.02), 0.005, (0.3, 0.8)), verdict((-0.01, 0.001), 0.005, (-0.2, 0.4), error=0.02)
    ('beyond ncl', 'not beyond ncl')
    >>> verdict((0.01, 0.02), 0.005, (-0.1, 0.8)) == verdict((-0.01, 0.001), 0.005, (-0.2, 0.8), error=0.02) == UNCLEAR
    True
    """
    gain_low, gain_high = gain
    r_allows_yes = r is None or r[0] > 0 or r[1] < 0
    if gain_low > 0 and r_allows_yes:
        return "beyond ncl"

    # the largest gain that the interval of r allows: error - error * sqrt(1 - r²)
    largest_gain_by_r = gain_high
    if r and error is not None:
        strongest_r = max(abs(r[0]), abs(r[1]))
        largest_gain_by_r = error * (1 - (1 - strongest_r**2) ** 0.5)
    if gain_high < worth and largest_gain_by_r < worth:
        return "not beyond ncl"
    return UNCLEAR


def _predict(x: TrainX, y: Train, x_unseen: UnseenX) -> Unseen:
    """Fit y by least squares with an intercept, and predict it at x_unseen, cut off at 0 and 1.

    y = mean y + (x - mean x) w,   w = argmin |y - mean y - (x - mean x) w|²

    Of equally good weights the smallest are taken, so a constant regressor gets none.
    """
    mean_x = x.mean(axis=0)
    mean_y = y.mean()
    # a centred constant is only rounding, which alone could get any weight: it must be exactly 0
    varies = np.ptp(x, axis=0) > RANK * np.abs(mean_x)
    weights = np.linalg.lstsq((x - mean_x) * varies, y - mean_y, rcond=RANK)[0]
    return np.clip(mean_y + (x_unseen - mean_x) @ weights, 0.0, 1.0)


def _cv_plus(
    x: TrainX, y: Train, fold: Integer[np.ndarray, " train"], x_unseen: UnseenX, level: float
) -> tuple[Unseen, Unseen]:
    """Both ends of the CV+ intervals at x_unseen, from training points only (Barber et al. 2021, arXiv:1905.02928).

    Every training point i has a linear fit f_i that left out its own fold, and a residual R_i = |y_i - f_i(x_i)|. With
    n training points and k = ceil(level (n + 1)), the interval at x goes from the k-th largest of the values
    f_i(x) - R_i to the k-th smallest of the values f_i(x) + R_i, cut off at 0 and 1.

    x, y:     regressors and accuracies of the training points.
    fold:     a number for the fold of each training point.
    x_unseen: regressors of the points to predict.
    level:    of the intervals, such as 0.9.
    NaN for too few training points, or if they are of one fold.
    """
    n = len(y)
    folds = np.unique(fold)
    rank = math.ceil(round(level * (n + 1), 9))  # rounded first: 0.55 * 100 comes out above 55
    if rank > n or len(folds) < 2:
        return np.full(len(x_unseen), np.nan), np.full(len(x_unseen), np.nan)

    residual = np.empty(n)  # R_i
    fitted = np.empty((n, len(x_unseen)))  # f_i(x): the same fit for all points i of a fold
    for k in folds:
        test = fold == k
        n_test = test.sum()
        # one fit without this fold, at its points and at x_unseen
        predicted = _predict(x[~test], y[~test], np.concatenate([x[test], x_unseen]))
        residual[test] = np.abs(y[test] - predicted[:n_test])
        fitted[test] = predicted[n_test:]

    # the rank-th largest and the rank-th smallest of n values, at each unseen point
    low = np.sort(fitted - residual[:, None], axis=0)[n - rank]
    high = np.sort(fitted + residual[:, None], axis=0)[rank - 1]
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
