"""What the features of labelled images tell about how hard their classes are to tell apart, without training a network.

Every number here is higher where classes are easier, like SimSS (fca.stats.similarity); fca.stats.prediction judges
them as predictors of accuracy.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Integer
from sklearn.linear_model import RidgeCV
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from fca.nouns import FcaError
from fca.stats.similarity import unit_vectors

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
