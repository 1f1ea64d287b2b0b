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

from fca.stats.similarity import check_two_images_a_class, unit_vectors
from fca.types import FcaError

IMAGES = 500  # of a sample
SAMPLE_SEED = 0
NEIGHBOURS = 5
RIDGE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # of probe_top1, for features of length 1
PENALTIES = np.logspace(-6, 3, 19)  # of fit_probe: multiples of (mean variance of a feature x number of images)
MAX_LEFT_OUT = 5000  # approximate maximum number of images that fit_probe leaves out in turn
FOLDS = 20  # in which it leaves them out
RARE = 10  # images that a representative sample has of a rare class

# LogME's fixed point
STEPS = 500
TOLERANCE = 1e-6
RANGE = 1e10

Features = Float[np.ndarray, "images features"]
Labels = Integer[np.ndarray, " images"]
PerClass = Float[np.ndarray, " classes"]


def sample_rows(labels: Labels, images: int = IMAGES, seed: int = SAMPLE_SEED) -> Integer[np.ndarray, " sampled"]:
    """Positions of at most `images` images, equally many of every class (but two at least), in their order.

    The draw of a class depends only on its label and `seed`, so that subsets of one size which share a class share its
    images.

    >>> len(sample_rows(np.repeat([3, 8], 400), images=100))
    100
    """
    classes = np.unique(labels)
    images_per_class = max(2, images // max(1, len(classes)))
    return _sample_classes(labels, dict.fromkeys(classes.tolist(), images_per_class), seed)


def representative_rows(labels: Labels, images: int) -> Integer[np.ndarray, " sampled"]:
    """Positions of about `images` images, of each class in proportion to its size, in order; all if there are no more.

    A mean over them estimates the mean over all images; a mean over `sample_rows` weighs all classes equally. A class
    whose proportion is smaller has min(RARE, images / classes) images, but at least 2, and no more than it has.

    >>> sampled = representative_rows(np.repeat([0, 1], [900, 100]), images=200)
    >>> np.bincount(np.repeat([0, 1], [900, 100])[sampled]).tolist()
    [180, 20]
    """
    if len(labels) <= images:
        return np.arange(len(labels))

    classes, class_sizes = np.unique(labels, return_counts=True)
    fewest = max(2, min(RARE, images // len(classes)))
    sample_sizes = np.maximum(images * class_sizes // len(labels), fewest)
    sample_size_by_class = dict(zip(classes.tolist(), sample_sizes.tolist(), strict=True))
    return _sample_classes(labels, sample_size_by_class, SAMPLE_SEED)


def _sample_classes(
    labels: Labels, sample_size_by_class: Mapping[int, int], seed: int
) -> Integer[np.ndarray, " sampled"]:
    """Positions of a random sample of each class, of the given size or the whole class, in their order."""
    rows = []
    for label, sample_size in sample_size_by_class.items():
        members = np.flatnonzero(labels == label)
        shuffled = np.random.default_rng([seed, label]).permutation(members)
        rows.append(shuffled[:sample_size])
    return np.sort(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)


def separation(intra: float, inter: float) -> float:
    """Intra- minus inter-class similarity, in [-1, 1]: half the difference of the mean cosines (eqs. 1 and 2).

    Cao et al. (arXiv:2404.05981) compute their difficulty S from the number of classes and from intra- and inter-class
    cosine similarity. This is NOT their S: how S combines the three is not restated here, and no result on this score
    is a result on S. The score is judged by linear models in log ncl and this score, or in log ncl, intra and inter
    with a weight each. An S of another form, including one linear in ncl itself, is not among these models.

    >>> separation(intra=0.75, inter=0.5)
    0.25
    """
    return intra - inter


def cosine_silhouette(features: Features, labels: Labels) -> float:
    """Mean silhouette of the images under cosine distance (Rousseeuw 1987), in [-1, 1].

    (b - a) / max(a, b) of every image, with a = mean distance 1 - cos to its own class, b = to the nearest other class.
    SimSS has the same form but takes similarities (1 + cos) / 2, and means over classes.
    Raises FcaError as `knn_top1` does.

    >>> cosine_silhouette(np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 7, 7]))
    1.0
    """
    from sklearn.metrics import silhouette_score  # here and below: a second to import

    units, codes = _checked_units(features, labels)
    return float(silhouette_score(units, codes, metric="cosine"))


def knn_top1(features: Features, labels: Labels, neighbours: int = NEIGHBOURS) -> float:
    """Share of images whose nearest neighbours predict their class: 1 - kNN error, leave one out, in [0, 1].

    Majority of the `neighbours` most similar other images by cosine; among equal counts, the class of the nearest one.
    Raises FcaError for fewer than two classes, a class of one image, and a feature vector that is zero or not finite.

    >>> knn_top1(np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 7, 7]), neighbours=1)
    1.0
    """
    from sklearn.neighbors import NearestNeighbors

    units, codes = _checked_units(features, labels)
    k = min(neighbours, len(codes) - 1)
    search = NearestNeighbors(n_neighbors=k, metric="cosine").fit(units)
    nearest = search.kneighbors(return_distance=False)  # images x neighbours, the nearest first
    classes = np.arange(codes.max() + 1)
    votes = (codes[nearest][:, :, None] == classes).astype(np.float64)  # images x neighbours x classes

    # below one vote in all, and each above all later ones: decides between equal counts only
    tie_breaks = 0.5 ** np.arange(1, k + 1)
    counts = (votes * (1 + tie_breaks)[:, None]).sum(axis=1)
    predicted = counts.argmax(axis=1)
    return float((predicted == codes).mean())


def probe_top1(features: Features, labels: Labels) -> float:
    """Share of images that a linear probe fitted to all other images gets right: 1 - probe error, in [0, 1].

    One ridge regression with intercept a class on features of length 1; the largest output is the prediction. Leaving
    one out is exact (y_i - e_i / (1 - h_i), no refitting); the penalty is the one of RIDGE_PENALTIES with the least
    squared error left out, one for all classes. Raises FcaError as `knn_top1` does.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1], 20)
    >>> probe_top1(np.eye(2)[labels] + 0.1 * rng.normal(size=(40, 2)), labels)
    1.0
    """
    outputs, codes = left_out_outputs(features, labels)
    return float((outputs.argmax(axis=1) == codes).mean())


def left_out_outputs(features: Features, labels: Labels) -> tuple[Float[np.ndarray, "images classes"], Labels]:
    """Outputs of the probe of `probe_top1` for each image when it is left out, and the labels as 0 to classes - 1.

    One column for each class that occurs, in ascending order. Raises FcaError as `knn_top1` does.
    """
    from sklearn.linear_model import RidgeCV

    units, codes = _checked_units(features, labels)
    targets = np.eye(codes.max() + 1)[codes]
    ridge = RidgeCV(RIDGE_PENALTIES, scoring="neg_mean_squared_error", store_cv_results=True)
    ridge.fit(units, targets)

    best = RIDGE_PENALTIES.index(ridge.alpha_)
    return ridge.cv_results_[:, :, best], codes


def logme(features: Features, labels: Labels) -> float:
    """Logarithm of maximum evidence (LogME, arXiv:2102.11005), in nats an image; mean over one-against-rest targets.

    The likelihood of the labels under a Bayesian linear model on these features: y ~ N(F w, 1/b), w ~ N(0, 1/a), at the
    (a, b) of greatest evidence. With F = U S V', z = U'y, m the posterior mean of w, and the ratio l = a / b, one step
    of MacKay's fixed point is
        g = sum s² / (s² + l),   l <- g |y - F m|² / ((n - g) |m|²)
    and log p(y) / n = (log b - log 2 pi - 1 - sum log(1 + s² / l) / n) / 2   with   b = n / (|y - F m|² + l |m|²).
    Features as they are, without intercept, as published. Raises FcaError as `knn_top1` does.

    >>> labels = np.repeat([0, 1], 20)
    >>> unrelated = np.tile([0, 1], 20)
    >>> logme(np.eye(2)[labels] + 0.01, labels) > logme(np.eye(2)[unrelated] + 0.01, labels)
    True
    """
    _, codes = _checked_units(features, labels)
    y = np.eye(codes.max() + 1)[codes]  # images x classes
    n = len(y)
    u, s, _ = np.linalg.svd(features.astype(np.float64), full_matrices=False)
    s2 = (s**2)[:, None]  # rank x 1
    z2 = (u.T @ y) ** 2  # rank x classes
    unexplained = np.maximum((y**2).sum(axis=0) - z2.sum(axis=0), 0.0)  # the part of |y|² that no feature explains

    ratio = np.full(y.shape[1], s2.mean())  # l of each class
    for _ in range(STEPS):
        g = (s2 / (s2 + ratio)).sum(axis=0)
        weights2, residual2 = _squared_weights_and_residuals(s2, z2, ratio, unexplained)
        new_ratio = g * residual2 / ((n - g) * weights2)
        # the ratio goes to 0 where there is no noise, and to infinity where there is nothing else
        new_ratio = np.clip(new_ratio, s2.max() / RANGE, s2.max() * RANGE)
        has_converged = np.abs(np.log(new_ratio / ratio)).max() < TOLERANCE
        ratio = new_ratio
        if has_converged:
            break

    weights2, residual2 = _squared_weights_and_residuals(s2, z2, ratio, unexplained)
    b = n / (residual2 + ratio * weights2)
    log_determinant = np.log1p(s2 / ratio).sum(axis=0)
    evidence = (np.log(b) - np.log(2 * np.pi) - 1 - log_determinant / n) / 2
    return float(evidence.mean())


def _squared_weights_and_residuals(
    s2: Float[np.ndarray, "rank one"], z2: Float[np.ndarray, "rank classes"], ratio: PerClass, unexplained: PerClass
) -> tuple[PerClass, PerClass]:
    """|m|² and |y - F m|² of the mean weights m at this ratio a / b, for every class."""
    weights2 = (s2 * z2 / (s2 + ratio) ** 2).sum(axis=0)
    residual2 = (z2 * (ratio / (s2 + ratio)) ** 2).sum(axis=0) + unexplained
    return weights2, residual2


def _checked_units(features: Features, labels: Labels) -> tuple[Features, Labels]:
    """Features of length 1, and labels as 0 to classes - 1. Raises FcaError as `knn_top1` does."""
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    check_two_images_a_class(classes, counts)
    return unit_vectors(features), codes


@dataclass(frozen=True)
class Probe:
    """logits = features @ weight.T + bias; their softmax is calibrated to be likeliest for images left out of a fit.

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
        """Logits of any number of images. Raises FcaError for features that are not finite."""
        check_finite(features)
        return features.astype(np.float64) @ self.weight.T + self.bias


def fit_probe(features: Features, labels: Labels, groups: Integer[np.ndarray, " images"] | None = None) -> Probe:
    """Ridge regression onto one-hot classes (Hoerl and Kennard 1970), its penalty chosen by leaving images out.

    W = (X'X + λ n v I)^-1 X'Y with X and Y centred and v the mean variance of a feature: an intercept that is not
    penalised, and a λ that means the same for any encoder. Without the images of a fold F the regression gives them

        Y_F - (I - H_FF)^-1 e_F,   e = Y - H Y,   H = 1 1' / n + X (X'X + λ n v I)^-1 X'

    which is exact and needs no refitting (Allen 1974; for folds Cook and Weisberg 1982, eq. 2.2.23). A fold has one
    image of each class, or several of a class with more than FOLDS images: a probe that lacks a single image knows the
    class of that image least, and is wrong on it too often (by 4.5 points for ten classes of 15 photographs, instead of
    1.4). λ is the one of PENALTIES with the smallest mean square of (I - H_FF)^-1 e_F. One eigendecomposition of X'X
    (or of X X', whichever is smaller) serves all penalties, n d min(n, d) operations in all; each large fold needs
    another one. The logits are the outputs of the regression times the temperature that makes the labels of the images
    left out likeliest.

    labels: 0..classes-1, each at least once.    groups: of each image, such as copies or frames of one video, which are
    left out together; None: each image is a group. One group of all images counts as none.
    Raises FcaError for fewer than two classes, for a class without images, and for features that are not finite.

    >>> x, y = np.array([[-1.0], [-2.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> probe = fit_probe(x, y)
    >>> probe.logits(np.array([[-3.0], [3.0]])).argmax(axis=1), probe.left_out.argmax(axis=1)
    (array([0, 1]), array([0, 0, 1, 1]))
    """
    check_finite(features)
    y = np.eye(_number_of_classes(labels))[labels]
    y_mean = y.mean(axis=0)
    x = features.astype(np.float64)
    x_mean = x.mean(axis=0)
    x -= x_mean

    directions, spectrum = _principal_directions(x)
    scores = directions.T @ (x.T @ (y - y_mean)) / np.sqrt(spectrum)[:, None]  # rank x classes
    mean_variance = max(float(np.square(x).mean()), np.finfo(np.float64).tiny)
    penalties = PENALTIES * mean_variance * len(x)  # λ n v

    # the judged images, and all images that are left out with them
    if groups is None or len(np.unique(groups)) == 1:
        groups = np.arange(len(labels))
    judged = representative_rows(labels, MAX_LEFT_OUT)
    left_out_rows = np.flatnonzero(np.isin(groups, groups[judged]))
    is_judged = np.isin(left_out_rows, judged)

    # their errors choose the penalty
    basis = x[left_out_rows] @ directions / np.sqrt(spectrum)
    folds = _folds(labels[left_out_rows], groups[left_out_rows])
    centred_y = (y - y_mean)[left_out_rows]
    errors = _left_out_errors(basis, centred_y, scores, spectrum, penalties, folds, len(x))
    errors = errors[:, is_judged]  # penalties x judged x classes
    best = int(np.argmin(np.square(errors).mean(axis=(1, 2))))
    left_out = y[judged] - errors[best]

    scale = temperature(left_out, labels[judged])
    shrinkage = spectrum / (spectrum + penalties[best])
    weight = (directions @ (scores * (shrinkage / np.sqrt(spectrum))[:, None])).T
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
    is_affected = (~np.isfinite(features)).any(axis=1)
    if not is_affected.any():
        return
    raise FcaError(
        "images with infinite or missing features",
        f"{int(is_affected.sum())} of {len(features)}",
        "0 (stored features reach 65,504)",
        "choose another network or other weights, or leave these images out",
    )


def _number_of_classes(labels: Labels) -> int:
    """Number of classes. Raises FcaError for fewer than two, and for a class without images."""
    counts = np.bincount(labels)
    if len(counts) < 2 or (counts == 0).any():
        numbers = f"{counts.tolist()} images a class"
        raise FcaError("training images of a probe", numbers, "two classes or more, each with images", "add some")
    return len(counts)


def _folds(labels: Labels, groups: Integer[np.ndarray, " images"]) -> Integer[np.ndarray, " images"]:
    """The fold of each image: groups stay together; those of a class are dealt to FOLDS folds in a random order.

    If each class has one group, every group is a fold: without all of them nothing is left to fit.
    """
    _, first_images, group_of_image = np.unique(groups, return_index=True, return_inverse=True)
    group_labels = labels[first_images]
    fold_of_group = np.empty(len(first_images), np.int64)
    for label in np.unique(group_labels):
        members = np.flatnonzero(group_labels == label)
        shuffled = np.random.default_rng([SAMPLE_SEED, int(label)]).permutation(members)
        fold_of_group[shuffled] = np.arange(len(members)) % FOLDS

    if not fold_of_group.any():
        fold_of_group = np.arange(len(first_images))
    return fold_of_group[group_of_image]


def _left_out_errors(
    basis: Float[np.ndarray, "images rank"],
    y: Float[np.ndarray, "images classes"],
    scores: Float[np.ndarray, "rank classes"],
    spectrum: Float[np.ndarray, " rank"],
    penalties: Float[np.ndarray, " penalties"],
    folds: Integer[np.ndarray, " images"],
    n: int,
) -> Float[np.ndarray, "penalties images classes"]:
    """Errors of a ridge regression on each image when it is fitted without the image's fold: (I - H_FF)^-1 e_F.

    basis:  left singular vectors of the n centred images, at these images.    y: centred targets of these images.
    scores: the targets of all n images along the basis.    spectrum: sums of squares of all n images along it.

    I - H is the part outside of the basis (nothing, where features outnumber images) plus the part that a penalty
    removes; the sum of two parts loses no digits at a small penalty, where H is nearly I.
    """
    removed_shares = penalties / (spectrum[:, None] + penalties)  # rank x penalties: of each score
    removed_scores = removed_shares.T[:, :, None] * scores  # penalties x rank x classes
    outside_basis = y - basis @ scores
    errors = np.empty((len(penalties), *y.shape))
    for fold in np.unique(folds):
        members = np.flatnonzero(folds == fold)
        fold_basis = basis[members]
        fitted_errors = outside_basis[members] + fold_basis @ removed_scores  # e_F for every penalty

        # from here on one eigendecomposition is faster than solving for every penalty
        if 2 * len(members) > len(spectrum):
            errors[:, members] = _errors_of_large_fold(fold_basis, fitted_errors, spectrum, penalties, n)
            continue

        identity_minus_basis = np.eye(len(members)) - 1 / n - fold_basis @ fold_basis.T
        for penalty, removed_share in enumerate(removed_shares.T):
            identity_minus_hat = identity_minus_basis + (fold_basis * removed_share) @ fold_basis.T  # I - H_FF
            errors[penalty, members] = np.linalg.solve(identity_minus_hat, fitted_errors[penalty])
    return errors


def _errors_of_large_fold(
    fold_basis: Float[np.ndarray, "fold rank"],
    fitted_errors: Float[np.ndarray, "penalties fold classes"],
    spectrum: Float[np.ndarray, " rank"],
    penalties: Float[np.ndarray, " penalties"],
    n: int,
) -> Float[np.ndarray, "penalties fold classes"]:
    """(I - H_FF)^-1 e_F for all penalties from one eigendecomposition, faster for a fold of many images.

    With B the basis at the fold, S the spectrum, K = I - 1 1' / n and H_FF = 1 1' / n + B S (S + λ)^-1 B', by Woodbury

        (I - H_FF)^-1 = K^-1 + W (G + λ I)^-1 W',   W = K^-1 B S^1/2,   G = S - S^1/2 B' W

    and G is the scatter of the images outside the fold.    fitted_errors: e_F, errors of the fit to all images.
    """
    n_outside = n - len(fold_basis)
    scaled_basis = fold_basis * np.sqrt(spectrum)  # B S^1/2
    w = scaled_basis + scaled_basis.sum(axis=0) / n_outside  # K^-1 = I + 1 1' / (images outside the fold)
    g, rotation = np.linalg.eigh(np.diag(spectrum) - scaled_basis.T @ w)
    g = np.maximum(g, 0.0)

    w = w @ rotation
    correction = w @ (w.T @ fitted_errors / (g[:, None] + penalties[:, None, None]))
    return fitted_errors + fitted_errors.sum(axis=1, keepdims=True) / n_outside + correction


def _principal_directions(x: Features) -> tuple[Float[np.ndarray, "features rank"], Float[np.ndarray, " rank"]]:
    """Orthonormal directions along which the centred features vary, and the sum of squares along each of them."""
    has_more_features = x.shape[1] > x.shape[0]
    spectrum, vectors = np.linalg.eigh(x @ x.T if has_more_features else x.T @ x)

    is_above_rounding = spectrum > spectrum.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    spectrum = spectrum[is_above_rounding]
    vectors = vectors[:, is_above_rounding]
    if has_more_features:
        vectors = x.T @ vectors / np.sqrt(spectrum)  # of images -> of features
    return vectors, spectrum


def temperature(outputs: Float[np.ndarray, "val classes"], labels: Integer[np.ndarray, " val"]) -> float:
    """The factor between 1 and 1,000 of the outputs that makes the labels likeliest (arXiv:1706.04599)."""
    rows = np.arange(len(labels))

    def mean_log_loss(log_factor: float) -> float:
        logits = outputs * np.exp(log_factor)
        return float((logsumexp(logits, axis=1) - logits[rows, labels]).mean())

    result = minimize_scalar(mean_log_loss, bounds=(0.0, np.log(1000.0)), method="bounded")
    return float(np.exp(result.x))
