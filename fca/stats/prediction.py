"""How well numbers known in advance predict accuracy on subsets never seen before, and what they add to ncl.

The model is a straight line: accuracy = intercept + weights * regressors, by least squares, cut off at 0 and 1. Not on
the logit: sub-models reach 100 % on easy subsets, where the logit is infinite, and errors are judged in points anyway.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Num
from sklearn.linear_model import RidgeCV
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from fca.stats.intervals import bootstrap_mean
from fca.stats.similarity import unit_vectors
from fca.types import FcaError

LEVEL = 0.9
_RANK = 1e-10  # a regressor that varies by less of its mean, or of the others, is rounding: constant, or another's


class HeldOut(NamedTuple):
    """Prediction of every point from the other folds, as fractions, and its interval; NaN where it has none."""

    predicted: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]


class Judgement(NamedTuple):
    """Means over the held-out points, as fractions, with 95 % bootstrap intervals over clusters.

    error: mean absolute error.    gain: by how much that is below the baseline's (negative: above).
    coverage, width: of the prediction intervals.
    """

    error: float
    error_low: float
    error_high: float
    gain: float
    gain_low: float
    gain_high: float
    coverage: float
    coverage_low: float
    coverage_high: float
    width: float


def held_out(
    regressors: Num[np.ndarray, "points regressors"],
    accuracy: Float[np.ndarray, " points"],
    fold: Integer[np.ndarray, " points"],
    level: float = LEVEL,
) -> HeldOut:
    """Predict each fold from the others, with CV+ intervals (Barber et al. 2021, arXiv:1905.02928).

    Every training point i has a fit f_i that left out its own fold, and a residual R_i = |y_i - f_i(x_i)|. At a point x
    the interval begins at the floor((1 - level)(n + 1))-th smallest of the n values f_i(x) - R_i, and ends at the
    ceil(level (n + 1))-th smallest of f_i(x) + R_i. What is promised is a coverage of 2 level - 1 and little less (0.8
    at 0.9), mostly it is near level; and for exchangeable points only, which those of different data sets are not. So
    it has to be measured (see judge).

    regressors: none gives the mean of the training points.    accuracy: fractions in [0, 1].
    fold:       what is left out together: a data set, or a subset seed. With one fold all is NaN.
    level:      an interval at 0.9 needs 9 training points of 2 folds; it is NaN where there are fewer.

    >>> held_out(np.array([[0.1], [0.2], [0.3]]), np.array([0.2, 0.4, 0.6]), np.array([0, 1, 2])).predicted.round(6)
    array([0.2, 0.4, 0.6])
    """
    x = regressors.astype(np.float64)
    answer = HeldOut(*(np.full(len(accuracy), np.nan) for _ in range(3)))
    for k in np.unique(fold):
        test, train = fold == k, fold != k
        if not train.any():
            continue
        answer.predicted[test] = _predict(x[train], accuracy[train], x[test])
        answer.low[test], answer.high[test] = _cv_plus(x[train], accuracy[train], fold[train], x[test], level)
    return answer


def judge(
    accuracy: Float[np.ndarray, " points"], model: HeldOut, baseline: HeldOut, cluster: Integer[np.ndarray, " points"]
) -> Judgement:
    """Error, gain over the baseline's predictions of the same points, and what the intervals are worth.

    cluster: 0..k-1, the points that were drawn together: those of a subset seed, or of a data set where the claim is
             about others; -1 for a point that was not drawn (all classes).
    What cannot be had (no prediction, no interval, one cluster) is NaN. The fits are taken as they are: the bootstrap
    resamples the points they are judged on.

    >>> sure = HeldOut(np.array([0.9, 0.8]), np.array([0.8, 0.7]), np.array([1.0, 0.9]))
    >>> off = HeldOut(np.array([0.7, 0.7]), *sure[1:])
    >>> [round(value, 3) for value in judge(np.array([0.9, 0.8]), sure, off, np.array([0, 1]))[:6]]
    [0.0, 0.0, 0.0, 0.15, 0.1, 0.2]
    """
    error = np.abs(accuracy - model.predicted)
    inside = ((accuracy >= model.low) & (accuracy <= model.high)).astype(np.float64)
    inside[np.isnan(model.low)] = np.nan
    means = [_mean(values, cluster) for values in (error, np.abs(accuracy - baseline.predicted) - error, inside)]
    return Judgement(*means[0], *means[1], *means[2], _mean(model.high - model.low, cluster)[0])


def verdict(
    gain: tuple[float, float], worth: float, r: tuple[float, float] | None = None, error: float | None = None
) -> str:
    """Whether a predictor tells more than ncl alone, in words, from the intervals of what was found.

    gain:  over ncl alone.    worth: a gain below this is of no use; same unit.
    r:     correlation with accuracy among subsets of equal ncl. For a yes it must leave out 0 as well, because a
           predictor can also gain by tracing an effect of ncl that is no straight line.
    error: of ncl alone, where the r applies. For a no, the strongest r of the interval must not be worth it either, as
           few points can hide a gain: errors shrink by sqrt(1 - r²).

    >>> verdict((0.01, 0.02), 0.005, (0.3, 0.8)), verdict((-0.01, 0.001), 0.005, (-0.2, 0.4), error=0.02)
    ('beyond ncl', 'not beyond ncl')
    >>> verdict((0.01, 0.02), 0.005, (-0.1, 0.8)), verdict((-0.01, 0.001), 0.005, (-0.2, 0.8), error=0.02)
    ('cannot tell', 'cannot tell')
    """
    if gain[0] > 0 and (r is None or r[0] > 0 or r[1] < 0):
        return "beyond ncl"
    hidden = error * (1 - (1 - max(abs(r[0]), abs(r[1])) ** 2) ** 0.5) if r and error is not None else gain[1]
    return "not beyond ncl" if gain[1] < worth and hidden < worth else "cannot tell"


def _predict(
    x: Float[np.ndarray, "train regressors"], y: Float[np.ndarray, " train"], at: Float[np.ndarray, "test regressors"]
) -> Float[np.ndarray, " test"]:
    """Least squares with intercept; of equally good weights the smallest, so a constant regressor gets none."""
    centre, level = x.mean(axis=0), y.mean()
    # what centring leaves of a constant is rounding, which alone would get any weight: it must be an exact 0
    varies = np.ptp(x, axis=0) > _RANK * np.abs(centre)
    weights = np.linalg.lstsq((x - centre) * varies, y - level, rcond=_RANK)[0]
    predicted: Float[np.ndarray, " test"] = np.clip(level + (at - centre) @ weights, 0.0, 1.0)
    return predicted


def _cv_plus(
    x: Float[np.ndarray, "train regressors"],
    y: Float[np.ndarray, " train"],
    fold: Integer[np.ndarray, " train"],
    at: Float[np.ndarray, "test regressors"],
    level: float,
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"]]:
    n = len(y)
    rank = math.ceil(round(level * (n + 1), 9))
    missing = np.full(len(at), np.nan)
    if rank > n or len(np.unique(fold)) < 2:
        return missing, missing
    residual, centre = np.empty(n), np.empty((n, len(at)))
    for k in np.unique(fold):
        out: Bool[np.ndarray, " train"] = fold == k
        both = _predict(x[~out], y[~out], np.concatenate([x[out], at]))
        residual[out], centre[out] = np.abs(y[out] - both[: out.sum()]), both[out.sum() :]
    low = np.sort(centre - residual[:, None], axis=0)[n - rank]
    high = np.sort(centre + residual[:, None], axis=0)[rank - 1]
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def _mean(values: Float[np.ndarray, " points"], cluster: Integer[np.ndarray, " points"]) -> tuple[float, float, float]:
    """Over the points that have a value, with its interval."""
    there = ~np.isnan(values)
    if not there.any():
        return (float("nan"),) * 3
    drawn = cluster[there]
    codes = np.full(len(drawn), -1)
    codes[drawn >= 0] = np.unique(drawn[drawn >= 0], return_inverse=True)[1]
    return (float(values[there].mean()), *bootstrap_mean(values[there], codes))


# What the features of labelled images tell about how hard their classes are to tell apart, without training a network.
#
# Every number here is higher where classes are easier, like SimSS (fca.stats.similarity); fca.stats.prediction judges
# them as predictors of accuracy.


IMAGES = 500
SAMPLE_SEED = 0
NEIGHBOURS = 5
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # of the ridge, for features of length 1
_STEPS, _SETTLED, _RANGE = 500, 1e-6, 1e10  # of LogME's fixed point


def sample_rows(
    labels: Integer[np.ndarray, " images"], images: int = IMAGES, seed: int = SAMPLE_SEED
) -> Integer[np.ndarray, " sampled"]:
    """Positions of at most `images` images, as many of every class (but two at least), in their order.

    The draw of a class depends on its label and `seed` only, so that subsets of one size which share a class share its
    images.

    >>> len(sample_rows(np.repeat([3, 8], 400), images=100))
    100
    """
    classes = np.unique(labels)
    share = max(2, images // max(1, len(classes)))
    rows = [
        np.random.default_rng([seed, int(c)]).permutation(np.flatnonzero(labels == c))[:share] for c in classes.tolist()
    ]
    return np.sort(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)


def separation(intra: float, inter: float) -> float:
    """Intra- minus inter-class similarity, in [-1, 1]: half the difference of the mean cosines (eqs. 1 and 2).

    Cao et al. (arXiv:2404.05981) compute their difficulty S from the number of classes and from intra- and inter-class
    cosine similarity. This is NOT their S: how S combines the three is not restated here, and no result on it is one on
    S. What is judged in its place are straight lines in log ncl and this, or in log ncl, intra and inter with a weight
    each. An S of another form, one linear in ncl itself included, is none of them.

    >>> separation(intra=0.75, inter=0.5)
    0.25
    """
    return intra - inter


def cosine_silhouette(features: Float[np.ndarray, "images features"], labels: Integer[np.ndarray, " images"]) -> float:
    """Mean silhouette of the images under cosine distance (Rousseeuw 1987), in [-1, 1].

    (b - a) / max(a, b) of every image, with a = mean distance 1 - cos to its own class, b = to the nearest other.
    SimSS has the same shape but takes similarities (1 + cos) / 2, and means over classes.
    Raises FcaError as `knn_top1` does.

    >>> cosine_silhouette(np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 7, 7]))
    1.0
    """
    units, own = _checked(features, labels)
    return float(silhouette_score(units, own, metric="cosine"))


def knn_top1(
    features: Float[np.ndarray, "images features"],
    labels: Integer[np.ndarray, " images"],
    neighbours: int = NEIGHBOURS,
) -> float:
    """Share of images whose class is told by their nearest neighbours: 1 - kNN error, leave one out, in [0, 1].

    Majority of the `neighbours` most similar other images by cosine; among equal counts, the class of the nearest one.
    Raises FcaError for fewer than two classes, a class of one image, and a feature vector that is zero or not finite.

    >>> knn_top1(np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 7, 7]), neighbours=1)
    1.0
    """
    units, own = _checked(features, labels)
    k = min(neighbours, len(own) - 1)
    nearest = NearestNeighbors(n_neighbors=k, metric="cosine").fit(units).kneighbors(return_distance=False)
    votes = (own[nearest][:, :, None] == np.arange(own.max() + 1)).astype(np.float64)  # images, neighbours, classes
    nearer = 0.5 ** np.arange(1, k + 1)  # all below one vote, each above all later ones: decides between equals only
    return float(((votes * (1 + nearer)[:, None]).sum(axis=1).argmax(axis=1) == own).mean())


def probe_top1(features: Float[np.ndarray, "images features"], labels: Integer[np.ndarray, " images"]) -> float:
    """Share of images that a linear probe tells right when it is fitted to all others: 1 - probe error, in [0, 1].

    One ridge regression with intercept a class on features of length 1, the largest answer counts. Leave one out is
    exact (y_i - e_i / (1 - h_i), no refitting); the penalty is the one of PENALTIES with the least squared error left
    out, one for all classes. Raises FcaError as `knn_top1` does.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1], 20)
    >>> probe_top1(np.eye(2)[labels] + 0.1 * rng.normal(size=(40, 2)), labels)
    1.0
    """
    units, own = _checked(features, labels)
    ridge = RidgeCV(PENALTIES, scoring="neg_mean_squared_error", store_cv_results=True)
    ridge.fit(units, np.eye(own.max() + 1)[own])
    left_out = ridge.cv_results_[:, :, PENALTIES.index(ridge.alpha_)]
    return float((left_out.argmax(axis=1) == own).mean())


def logme(features: Float[np.ndarray, "images features"], labels: Integer[np.ndarray, " images"]) -> float:
    """Logarithm of maximum evidence (LogME, arXiv:2102.11005), in nats an image; mean over one-against-rest targets.

    How likely a Bayesian linear model on these features makes the labels: y ~ N(F w, 1/b), w ~ N(0, 1/a), at the (a, b)
    of greatest evidence. With F = U S V', z = U'y and l = a / b, one step of MacKay's fixed point is
        g = sum s² / (s² + l),   l <- g |y - F m|² / ((n - g) |m|²)
    and log p(y) / n = (log b - log 2 pi - 1 - sum log(1 + s² / l) / n) / 2   with   b = n / (|y - F m|² + l |m|²).
    Features as they are, without intercept, as published. Raises FcaError as `knn_top1` does.

    >>> labels = np.repeat([0, 1], 20)
    >>> logme(np.eye(2)[labels] + 0.01, labels) > logme(np.eye(2)[labels[::-1] ^ (np.arange(40) % 2)] + 0.01, labels)
    True
    """
    _, own = _checked(features, labels)
    y = np.eye(own.max() + 1)[own]
    u, s, _ = np.linalg.svd(features.astype(np.float64), full_matrices=False)
    s2, z2 = (s**2)[:, None], (u.T @ y) ** 2
    outside = np.maximum((y**2).sum(axis=0) - z2.sum(axis=0), 0.0)  # of y, what no feature reaches
    n, ratio = len(y), np.full(y.shape[1], s2.mean())
    for _ in range(_STEPS):
        effective = (s2 / (s2 + ratio)).sum(axis=0)
        weights2, residual2 = _solution(s2, z2, ratio, outside)
        step = effective * residual2 / ((n - effective) * weights2)
        step = np.clip(step, s2.max() / _RANGE, s2.max() * _RANGE)  # it runs off where noise is nil, or all there is
        settled, ratio = np.abs(np.log(step / ratio)).max() < _SETTLED, step
        if settled:
            break
    weights2, residual2 = _solution(s2, z2, ratio, outside)
    precision = n / (residual2 + ratio * weights2)
    evidence = (np.log(precision) - np.log(2 * np.pi) - 1 - np.log1p(s2 / ratio).sum(axis=0) / n) / 2
    return float(evidence.mean())


def _solution(
    s2: Float[np.ndarray, "rank one"],
    z2: Float[np.ndarray, "rank classes"],
    ratio: Float[np.ndarray, " classes"],
    outside: Float[np.ndarray, " classes"],
) -> tuple[Float[np.ndarray, " classes"], Float[np.ndarray, " classes"]]:
    """|m|² and |y - F m|² of the mean weights m at this ratio a / b, for every class."""
    weights2 = (s2 * z2 / (s2 + ratio) ** 2).sum(axis=0)
    return weights2, (z2 * (ratio / (s2 + ratio)) ** 2).sum(axis=0) + outside


def _checked(
    features: Float[np.ndarray, "images features"], labels: Integer[np.ndarray, " images"]
) -> tuple[Float[np.ndarray, "images features"], Integer[np.ndarray, " images"]]:
    """Features of length 1, and labels as 0 to classes - 1."""
    classes, own, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise FcaError("number of classes", len(classes), "2 or more", "difficulty is of telling classes apart")
    if (counts < 2).any():
        alone = ", ".join(str(c) for c in classes[counts < 2][:10])
        raise FcaError("class with one image", alone, "two images or more a class", "leave it out or add images")
    return unit_vectors(features), own
