"""How well frozen features of labelled images separate their classes, without training a network.

Every score here is higher where classes are easier, like SimSS (fca.stats.similarity). `fit_probe` is a linear
classifier, solved exactly for every penalty at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from fca.stats.similarity import check_pairs, unit_vectors
from fca.types import FcaError

IMAGES = 500
SAMPLE_SEED = 0
NEIGHBOURS = 5
RIDGE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # of probe_top1, for features of length 1
PENALTIES = np.logspace(-6, 3, 19)  # of fit_probe: shares of the mean variance of a feature times the number of images
JUDGED = 5000  # about so many images fit_probe leaves out of a fit at most
RARE = 10  # images that a representative sample has of a rare class
FOLDS = 20  # in which it leaves them out
STEPS, TOLERANCE, RANGE = 500, 1e-6, 1e10  # of LogME's fixed point

Features = Float[np.ndarray, "images features"]
Labels = Integer[np.ndarray, " images"]
PerClass = Float[np.ndarray, " classes"]


def sample_rows(labels: Labels, images: int = IMAGES, seed: int = SAMPLE_SEED) -> Integer[np.ndarray, " sampled"]:
    """Positions of at most `images` images, as many of every class (but two at least), in their order.

    The draw of a class depends on its label and `seed` only, so that subsets of one size which share a class share its
    images.

    >>> len(sample_rows(np.repeat([3, 8], 400), images=100))
    100
    """
    classes = np.unique(labels)
    share = max(2, images // max(1, len(classes)))
    return _drawn(labels, dict.fromkeys(classes.tolist(), share), seed)


def representative_rows(labels: Labels, images: int) -> Integer[np.ndarray, " sampled"]:
    """Positions of about `images` images, of each class its share of them, in their order; all if there are no more.

    A mean over them estimates the mean over all images; one over `sample_rows` weighs all classes equally. A class
    whose share is smaller has min(RARE, images / classes) images, but 2 at least, and no more than there are.

    >>> sampled = representative_rows(np.repeat([0, 1], [900, 100]), images=200)
    >>> np.bincount(np.repeat([0, 1], [900, 100])[sampled]).tolist()
    [180, 20]
    """
    if len(labels) <= images:
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    fewest = max(2, min(RARE, images // len(classes)))
    share = np.maximum(images * counts // len(labels), fewest)
    return _drawn(labels, dict(zip(classes.tolist(), share.tolist(), strict=True)), SAMPLE_SEED)


def _drawn(labels: Labels, number_of_class: Mapping[int, int], seed: int) -> Integer[np.ndarray, " drawn"]:
    """Positions of so many images of each class, or all that it has, in their order."""
    rows = [
        np.random.default_rng([seed, label]).permutation(np.flatnonzero(labels == label))[:number]
        for label, number in number_of_class.items()
    ]
    return np.sort(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)


def separation(intra: float, inter: float) -> float:
    """Intra- minus inter-class similarity, in [-1, 1]: half the difference of the mean cosines (eqs. 1 and 2).

    Cao et al. (arXiv:2404.05981) compute their difficulty S from the number of classes and from intra- and inter-class
    cosine similarity. This is NOT their S: how S combines the three is not restated here, and no result on this is a
    result on S. It is judged by straight lines in log ncl and this, or in log ncl, intra and inter with a weight each;
    an S of another form, including one linear in ncl itself, is none of them.

    >>> separation(intra=0.75, inter=0.5)
    0.25
    """
    return intra - inter


def cosine_silhouette(features: Features, labels: Labels) -> float:
    """Mean silhouette of the images under cosine distance (Rousseeuw 1987), in [-1, 1].

    (b - a) / max(a, b) of every image, with a = mean distance 1 - cos to its own class, b = to the nearest other.
    SimSS has the same shape but takes similarities (1 + cos) / 2, and means over classes.
    Raises FcaError as `knn_top1` does.

    >>> cosine_silhouette(np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 7, 7]))
    1.0
    """
    from sklearn.metrics import silhouette_score  # here and below: a second to import

    units, own = _checked(features, labels)
    return float(silhouette_score(units, own, metric="cosine"))


def knn_top1(features: Features, labels: Labels, neighbours: int = NEIGHBOURS) -> float:
    """Share of images whose nearest neighbours predict their class: 1 - kNN error, leave one out, in [0, 1].

    Majority of the `neighbours` most similar other images by cosine; among equal counts, the class of the nearest one.
    Raises FcaError for fewer than two classes, a class of one image, and a feature vector that is zero or not finite.

    >>> knn_top1(np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 7, 7]), neighbours=1)
    1.0
    """
    from sklearn.neighbors import NearestNeighbors

    units, own = _checked(features, labels)
    k = min(neighbours, len(own) - 1)
    nearest = NearestNeighbors(n_neighbors=k, metric="cosine").fit(units).kneighbors(return_distance=False)
    votes = (own[nearest][:, :, None] == np.arange(own.max() + 1)).astype(np.float64)  # images, neighbours, classes
    nearer = 0.5 ** np.arange(1, k + 1)  # all below one vote, each above all later ones: decides between equals only
    return float(((votes * (1 + nearer)[:, None]).sum(axis=1).argmax(axis=1) == own).mean())


def probe_top1(features: Features, labels: Labels) -> float:
    """Share of images that a linear probe fitted to all others gets right: 1 - probe error, in [0, 1].

    One ridge regression with intercept a class on features of length 1; the largest output is the prediction. Leaving
    one out is exact (y_i - e_i / (1 - h_i), no refitting); the penalty is the one of RIDGE_PENALTIES with the least
    squared error left out, one for all classes. Raises FcaError as `knn_top1` does.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1], 20)
    >>> probe_top1(np.eye(2)[labels] + 0.1 * rng.normal(size=(40, 2)), labels)
    1.0
    """
    outputs, own = left_out_outputs(features, labels)
    return float((outputs.argmax(axis=1) == own).mean())


def left_out_outputs(features: Features, labels: Labels) -> tuple[Float[np.ndarray, "images classes"], Labels]:
    """What the probe of `probe_top1` gives each image when that image is left out, and the labels as 0 to classes - 1.

    One column a class that is there, in ascending order. Raises FcaError as `knn_top1` does.
    """
    from sklearn.linear_model import RidgeCV

    units, own = _checked(features, labels)
    ridge = RidgeCV(RIDGE_PENALTIES, scoring="neg_mean_squared_error", store_cv_results=True)
    ridge.fit(units, np.eye(own.max() + 1)[own])
    return ridge.cv_results_[:, :, RIDGE_PENALTIES.index(ridge.alpha_)], own


def logme(features: Features, labels: Labels) -> float:
    """Logarithm of maximum evidence (LogME, arXiv:2102.11005), in nats an image; mean over one-against-rest targets.

    The likelihood of the labels under a Bayesian linear model on these features: y ~ N(F w, 1/b), w ~ N(0, 1/a), at the
    (a, b) of greatest evidence. With F = U S V', z = U'y and l = a / b, one step of MacKay's fixed point is
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
    outside = np.maximum((y**2).sum(axis=0) - z2.sum(axis=0), 0.0)  # the part of y that no feature explains
    n, ratio = len(y), np.full(y.shape[1], s2.mean())
    for _ in range(STEPS):
        effective = (s2 / (s2 + ratio)).sum(axis=0)
        weights2, residual2 = _solution(s2, z2, ratio, outside)
        step = effective * residual2 / ((n - effective) * weights2)
        step = np.clip(step, s2.max() / RANGE, s2.max() * RANGE)  # it diverges where there is no noise, or only noise
        converged, ratio = np.abs(np.log(step / ratio)).max() < TOLERANCE, step
        if converged:
            break
    weights2, residual2 = _solution(s2, z2, ratio, outside)
    precision = n / (residual2 + ratio * weights2)
    evidence = (np.log(precision) - np.log(2 * np.pi) - 1 - np.log1p(s2 / ratio).sum(axis=0) / n) / 2
    return float(evidence.mean())


def _solution(
    s2: Float[np.ndarray, "rank one"], z2: Float[np.ndarray, "rank classes"], ratio: PerClass, outside: PerClass
) -> tuple[PerClass, PerClass]:
    """|m|² and |y - F m|² of the mean weights m at this ratio a / b, for every class."""
    weights2 = (s2 * z2 / (s2 + ratio) ** 2).sum(axis=0)
    return weights2, (z2 * (ratio / (s2 + ratio)) ** 2).sum(axis=0) + outside


def _checked(features: Features, labels: Labels) -> tuple[Features, Labels]:
    """Features of length 1, and labels as 0 to classes - 1."""
    classes, own, counts = np.unique(labels, return_inverse=True, return_counts=True)
    check_pairs(classes, counts)
    return unit_vectors(features), own


@dataclass(frozen=True)
class Probe:
    """logits = features @ weight.T + bias; their softmax are the likeliest probabilities for images left out of a fit.

    penalty:  the chosen one of PENALTIES.
    judged:   positions of the training images that were left out in turn, all of them or about JUDGED.
    left_out: logits of each judged image by a probe that is fitted without it; see `fit_probe`.
    """

    weight: Float[np.ndarray, "classes features"]
    bias: PerClass
    penalty: float
    judged: Integer[np.ndarray, " judged"]
    left_out: Float[np.ndarray, "judged classes"]

    def logits(self, features: Features) -> Float[np.ndarray, "images classes"]:
        """Of any number of images. Raises FcaError for features that are not finite."""
        check_finite(features)
        return features.astype(np.float64) @ self.weight.T + self.bias


def fit_probe(features: Features, labels: Labels, groups: Integer[np.ndarray, " images"] | None = None) -> Probe:
    """Ridge regression onto one-hot classes (Hoerl and Kennard 1970), its penalty chosen by leaving images out.

    W = (X'X + λ n v I)^-1 X'Y with X and Y centred and v the mean variance of a feature: an intercept that is not
    penalised, and a λ that means the same for any encoder. Without the images of a fold F the regression gives them

        Y_F - (I - H_FF)^-1 e_F,   e = Y - H Y,   H = 1 1' / n + X (X'X + λ n v I)^-1 X'

    which is exact and needs no other fit (Allen 1974; for folds Cook and Weisberg 1982, eq. 2.2.23). A fold is an image
    of each class, of more than FOLDS images a class several: a probe without one image alone knows its class least, and
    is wrong on it too often (by 4.5 points for ten classes of 15 photographs, instead of 1.4).
    λ is the one of PENALTIES with the smallest mean square of Y minus that. One eigendecomposition of X'X (or of X X',
    whichever is smaller) serves all of them, n d min(n, d) operations in all; each large fold has another one. The
    logits are the outputs of the regression times the temperature that makes the labels of the images left out
    likeliest.

    labels: 0..classes-1, each at least once.    groups: of each image, such as copies or frames of one video, which are
    left out together; None: each image is alone. One group of all images counts as none.
    Raises FcaError for fewer than two classes, for one without images, and for features that are not finite.

    >>> x, y = np.array([[-1.0], [-2.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> probe = fit_probe(x, y)
    >>> probe.logits(np.array([[-3.0], [3.0]])).argmax(axis=1), probe.left_out.argmax(axis=1)
    (array([0, 1]), array([0, 0, 1, 1]))
    """
    check_finite(features)
    target = np.eye(_classes(labels))[labels]
    y_mean = target.mean(axis=0)
    x = features.astype(np.float64)
    x_mean = x.mean(axis=0)
    x -= x_mean

    directions, spectrum = _directions(x)
    scores = directions.T @ (x.T @ (target - y_mean)) / np.sqrt(spectrum)[:, None]
    penalties = PENALTIES * max(float(np.square(x).mean()), np.finfo(np.float64).tiny) * len(x)

    if groups is None or len(np.unique(groups)) == 1:
        groups = np.arange(len(labels))
    judged = representative_rows(labels, JUDGED)
    beside = np.flatnonzero(np.isin(groups, groups[judged]))  # the judged images and all that are left out with them
    basis = x[beside] @ directions / np.sqrt(spectrum)
    folds = _folds(labels[beside], groups[beside])
    is_judged = np.isin(beside, judged)
    errors = _errors_left_out(basis, (target - y_mean)[beside], scores, spectrum, penalties, folds, len(x))
    errors = errors[:, is_judged]
    best = int(np.argmin(np.square(errors).mean(axis=(1, 2))))
    left_out = target[judged] - errors[best]

    scale = temperature(left_out, labels[judged])
    kept = spectrum / (spectrum + penalties[best])  # what the penalty leaves along each direction
    weight = (directions @ (scores * (kept / np.sqrt(spectrum))[:, None])).T
    bias = y_mean - weight @ x_mean
    return Probe(scale * weight, scale * bias, float(PENALTIES[best]), judged, scale * left_out)


def check_finite(features: Features) -> None:
    """Raises FcaError for infinite or missing values, with the number of images that have some.

    >>> try:
    ...     check_finite(np.array([[0.0, 1.0], [np.inf, 2.0]]))
    ... except FcaError as error:
    ...     print(str(error).partition("; next: ")[0])
    images with infinite or missing features = 1 of 2; allowed: 0 (stored features reach 65,504)
    """
    images_with_some = int((~np.isfinite(features)).any(axis=1).sum())
    if images_with_some:
        what = "images with infinite or missing features"
        step = "choose another network or other weights, or leave these images out"
        raise FcaError(what, f"{images_with_some} of {len(features)}", "0 (stored features reach 65,504)", step)


def _classes(labels: Labels) -> int:
    counts = np.bincount(labels)
    if len(counts) < 2 or (counts == 0).any():
        numbers = f"{counts.tolist()} images a class"
        raise FcaError("training images of a probe", numbers, "two classes or more, each with images", "add some")
    return len(counts)


def _folds(labels: Labels, groups: Integer[np.ndarray, " images"]) -> Integer[np.ndarray, " images"]:
    """The fold of each image: groups stay whole, those of a class are dealt to FOLDS folds in a random order."""
    first, of = np.unique(groups, return_index=True, return_inverse=True)[1:]
    fold = np.empty(len(first), np.int64)
    for label in np.unique(labels[first]):
        members = np.flatnonzero(labels[first] == label)
        fold[np.random.default_rng([SAMPLE_SEED, int(label)]).permutation(members)] = np.arange(len(members)) % FOLDS
    if not fold.any():  # one group of each class: without all of them nothing is left to fit
        fold = np.arange(len(first))
    return fold[of]


def _errors_left_out(
    basis: Float[np.ndarray, "images rank"],
    target: Float[np.ndarray, "images classes"],
    scores: Float[np.ndarray, "rank classes"],
    spectrum: Float[np.ndarray, " rank"],
    penalties: Float[np.ndarray, " penalties"],
    folds: Integer[np.ndarray, " images"],
    n: int,
) -> Float[np.ndarray, "penalties images classes"]:
    """What a ridge regression misses of each target when it is fitted without the image's fold: (I - H_FF)^-1 e_F.

    basis:  left singular vectors of the n centred images, at these images.    target: centred.
    scores: the target of all images along the basis.    spectrum: sums of squares of the images along it.

    I - H is the part outside of the basis (nothing, where features outnumber images) plus that which a penalty takes
    away; the sum of two parts loses no digits at a small penalty, where H is nearly I.
    """
    shrinkage = penalties / (spectrum[:, None] + penalties)  # the share that a penalty takes away of each score
    outside = target - basis @ scores
    errors = np.empty((len(penalties), *target.shape))
    for fold in np.unique(folds):
        members = np.flatnonzero(folds == fold)
        inside = basis[members]
        fitted = outside[members] + inside @ (shrinkage.T[:, :, None] * scores)
        if 2 * len(inside) > len(spectrum):  # from here on one decomposition is faster than a solution a penalty
            errors[:, members] = _errors_of_large_fold(inside, fitted, spectrum, penalties, n)
            continue

        free_outside = np.eye(len(inside)) - 1 / n - inside @ inside.T
        for penalty, taken in enumerate(shrinkage.T):
            free = free_outside + (inside * taken) @ inside.T
            errors[penalty, members] = np.linalg.solve(free, fitted[penalty])
    return errors


def _errors_of_large_fold(
    inside: Float[np.ndarray, "fold rank"],
    fitted: Float[np.ndarray, "penalties fold classes"],
    spectrum: Float[np.ndarray, " rank"],
    penalties: Float[np.ndarray, " penalties"],
    n: int,
) -> Float[np.ndarray, "penalties fold classes"]:
    """(I - H_FF)^-1 e_F for all penalties from one eigendecomposition, faster where images of the fold are many.

    With B the basis at the fold, S the spectrum, K = I - 1 1' / n and H_FF = 1 1' / n + B S (S + λ)^-1 B', by Woodbury

        (I - H_FF)^-1 = K^-1 + W (G + λ I)^-1 W',   W = K^-1 B S^1/2,   G = S - S^1/2 B' W

    and G is the scatter of the other images.    fitted: e_F, what the fit to all images misses.
    """
    others = n - len(inside)
    scaled = inside * np.sqrt(spectrum)
    w = scaled + scaled.sum(axis=0) / others
    of_others, rotation = np.linalg.eigh(np.diag(spectrum) - scaled.T @ w)
    of_others = np.maximum(of_others, 0.0)

    w = w @ rotation
    correction = w @ (w.T @ fitted / (of_others[:, None] + penalties[:, None, None]))
    return fitted + fitted.sum(axis=1, keepdims=True) / others + correction


def _directions(x: Features) -> tuple[Float[np.ndarray, "features rank"], Float[np.ndarray, " rank"]]:
    """Orthonormal directions that the centred features vary along, and the sum of squares along each."""
    wide = x.shape[1] > x.shape[0]
    spectrum, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    kept = spectrum > spectrum.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    spectrum, vectors = spectrum[kept], vectors[:, kept]
    return (x.T @ vectors / np.sqrt(spectrum) if wide else vectors), spectrum


def temperature(outputs: Float[np.ndarray, "val classes"], labels: Integer[np.ndarray, " val"]) -> float:
    """The factor between 1 and 1,000 that makes the labels likeliest (arXiv:1706.04599, one number)."""
    rows = np.arange(len(labels))

    def surprise(log_factor: float) -> float:
        logits = outputs * np.exp(log_factor)
        return float((logsumexp(logits, axis=1) - logits[rows, labels]).mean())

    return float(np.exp(minimize_scalar(surprise, bounds=(0.0, np.log(1000.0)), method="bounded").x))
