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
    """Positions of a random sample of about `images` images, equally many of every class, in ascending order.

    Each class has `images` divided by the number of classes, but at least two, and no more than it has. The draw of a
    class depends only on its label and `seed`, so that two subsets of equally many classes that share a class also
    share its sampled images.
    labels: of all images, any integers.

    >>> len(sample_rows(np.repeat([3, 8], 400), images=100))
    100
    """
    classes = np.unique(labels)
    images_per_class = max(2, images // max(1, len(classes)))
    return _sample_classes(labels, dict.fromkeys(classes.tolist(), images_per_class), seed)


def representative_rows(labels: Labels, images: int) -> Integer[np.ndarray, " sampled"]:
    """Positions of a random sample of about `images` images, each class in proportion to its size, in ascending order.

    A mean over this sample estimates the mean over all images; a mean over `sample_rows` weighs all classes equally.
    Each class has at least min(RARE, images / classes) images of the sample, and at least 2, unless it is smaller. All
    positions are returned if there are no more than `images`.

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
    """Positions of a random sample of each class, in ascending order.

    sample_size_by_class: label -> size of its sample; of a smaller class all images are taken.
    """
    rows = []
    for label, sample_size in sample_size_by_class.items():
        members = np.flatnonzero(labels == label)
        shuffled = np.random.default_rng([seed, label]).permutation(members)
        rows.append(shuffled[:sample_size])
    return np.sort(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)


def separation(intra: float, inter: float) -> float:
    """Intra- minus inter-class similarity, in [-1, 1]: half the difference of the mean cosines (eqs. 1 and 2).

    intra, inter: mean similarities (1 + cos) / 2 of images of one class, and of different classes.

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

    The silhouette of an image is (b - a) / max(a, b), with a the mean distance 1 - cos to its own class, and b the mean
    distance to the nearest other class. SimSS has the same form, but takes similarities (1 + cos) / 2 and the mean over
    classes instead of images.
    Raises FcaError as `knn_top1` does.

    >>> cosine_silhouette(np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 7, 7]))
    1.0
    """
    from sklearn.metrics import silhouette_score  # here and below: a second to import

    units, codes = _checked_units(features, labels)
    return float(silhouette_score(units, codes, metric="cosine"))


def knn_top1(features: Features, labels: Labels, neighbours: int = NEIGHBOURS) -> float:
    """Leave-one-out accuracy of a k-nearest-neighbour classifier of these features, in [0, 1].

    The prediction for an image is the most frequent class among the `neighbours` most similar other images by cosine;
    if several classes are equally frequent, the one of them with the nearest image.
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

    # 1/2, 1/4, 1/8 ...: all together are below one vote, so they decide between equal counts only
    tie_breaks = 0.5 ** np.arange(1, k + 1)
    counts = (votes * (1 + tie_breaks)[:, None]).sum(axis=1)
    predicted = counts.argmax(axis=1)
    return float((predicted == codes).mean())


def probe_top1(features: Features, labels: Labels) -> float:
    """Leave-one-out accuracy of a linear probe of these features, in [0, 1].

    The probe is one ridge regression with intercept for each class, on features scaled to length 1; the prediction is
    the class of the largest output. The output for an image left out is y_i - e_i / (1 - h_i), exact without refitting.
    All classes have the same penalty: the one of RIDGE_PENALTIES with the least squared error on images left out.
    Raises FcaError as `knn_top1` does.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1], 20)
    >>> probe_top1(np.eye(2)[labels] + 0.1 * rng.normal(size=(40, 2)), labels)
    1.0
    """
    outputs, codes = left_out_outputs(features, labels)
    return float((outputs.argmax(axis=1) == codes).mean())


def left_out_outputs(features: Features, labels: Labels) -> tuple[Float[np.ndarray, "images classes"], Labels]:
    """Outputs of the probe of `probe_top1` for each image when it is left out, and the labels as 0 to classes - 1.

    The outputs have one column for each class that occurs, in ascending order of labels.
    Raises FcaError as `knn_top1` does.
    """
    from sklearn.linear_model import RidgeCV

    units, codes = _checked_units(features, labels)
    targets = np.eye(codes.max() + 1)[codes]
    ridge = RidgeCV(RIDGE_PENALTIES, scoring="neg_mean_squared_error", store_cv_results=True)
    ridge.fit(units, targets)

    best = RIDGE_PENALTIES.index(ridge.alpha_)
    return ridge.cv_results_[:, :, best], codes  # cv_results_: images x classes x penalties; outputs, as scoring is set


def logme(features: Features, labels: Labels) -> float:
    """Logarithm of maximum evidence (LogME, arXiv:2102.11005), in nats an image; the mean over classes.

    For each class y is 1 for its images and 0 for all others. The evidence is the likelihood of y under a Bayesian
    linear model on the features F: y ~ N(F w, 1/b), w ~ N(0, 1/a), at the a and b where it is greatest. With
    F = U S V', z = U'y, m the posterior mean of w, the ratio l = a / b, and n images, one step of MacKay's fixed point
    is
        g = sum s² / (s² + l),   l <- g |y - F m|² / ((n - g) |m|²)   (g: the effective number of weights)
    and log p(y) / n = (log b - log 2 pi - 1 - sum log(1 + s² / l) / n) / 2   with   b = n / (|y - F m|² + l |m|²).
    As published, features are neither scaled nor centred, and there is no intercept.
    Raises FcaError as `knn_top1` does.

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

    ratio = np.full(y.shape[1], s2.mean())  # l of each class, to start from
    for _ in range(STEPS):
        g = (s2 / (s2 + ratio)).sum(axis=0)
        # |m|² and |y - F m|² of each class at its l
        weights2, residual2 = _squared_weights_and_residuals(s2, z2, ratio, unexplained)
        new_ratio = g * residual2 / ((n - g) * weights2)
        # where y has no noise the ratio goes to 0, and where y is only noise to infinity
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
    """|m|² and |y - F m|² of `logme` for every class, with the posterior mean m of the weights at this ratio a / b.

    s2: squared singular values of the features.
    z2: squared components of each y along the singular vectors.
    unexplained: the part of each |y|² outside the singular vectors.
    """
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
    """A linear classifier of features: logits = features @ weight.T + bias.

    Weight and bias are scaled so that the softmax of the logits makes the labels of images left out of the fit
    likeliest.
    penalty:  the chosen one of PENALTIES.
    judged:   positions of the training images that were left out in turn: all of them, or about MAX_LEFT_OUT.
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
    """Fit a linear classifier of features: ridge regression onto one-hot classes (Hoerl and Kennard 1970).

    W = (X'X + λ n v I)^-1 X'Y for n images, with X (features) and Y (one-hot labels) centred, so that the intercept is
    not penalised. v is the mean variance of a feature, so that λ means the same for every encoder.

    λ is chosen from PENALTIES by leaving images out, fold by fold: it has the smallest mean squared error on images to
    which the regression was not fitted. A fold has one image of each class, or several of a class with more than FOLDS
    images. Single images are not left out, because the fit then has fewest images of just that class: the error on them
    is too high by 4.5 points for ten classes of 15 photographs, with folds by 1.4.

    The logits are the outputs of the regression times a `temperature` that is fitted to the images left out.

    labels: 0..classes-1, each at least once.
    groups: a number for each image; images of one group, such as copies or frames of one video, are left out together.
            None, or one group for all: each image is a group.
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

    # singular value decomposition, for all penalties: x = basis · sqrt(spectrum) · directions'; scores = basis' y
    directions, spectrum = _principal_directions(x)
    scores = directions.T @ (x.T @ (y - y_mean)) / np.sqrt(spectrum)[:, None]  # rank x classes
    mean_variance = max(float(np.square(x).mean()), np.finfo(np.float64).tiny)  # tiny: equal images have none
    penalties = PENALTIES * mean_variance * len(x)  # λ n v

    # λ is chosen by the errors on the judged images: all, or a sample of MAX_LEFT_OUT, which bounds the time. All
    # images of their groups are left out with them.
    if groups is None or len(np.unique(groups)) == 1:  # without the only group nothing would be left to fit
        groups = np.arange(len(labels))
    judged = representative_rows(labels, MAX_LEFT_OUT)
    left_out_rows = np.flatnonzero(np.isin(groups, groups[judged]))
    is_judged = np.isin(left_out_rows, judged)

    # the penalty with the smallest error on the judged images
    basis = x[left_out_rows] @ directions / np.sqrt(spectrum)
    folds = _folds(labels[left_out_rows], groups[left_out_rows])
    centred_y = (y - y_mean)[left_out_rows]
    errors = _left_out_errors(basis, centred_y, scores, spectrum, penalties, folds, len(x))
    errors = errors[:, is_judged]  # penalties x judged x classes
    best = int(np.argmin(np.square(errors).mean(axis=(1, 2))))
    left_out = y[judged] - errors[best]  # outputs of regressions that were fitted without the image's fold

    # W and the intercept of the chosen penalty, times the temperature
    scale = temperature(left_out, labels[judged])
    shrinkage = spectrum / (spectrum + penalties[best])
    weight = (directions @ (scores * (shrinkage / np.sqrt(spectrum))[:, None])).T
    bias = y_mean - weight @ x_mean
    return Probe(scale * weight, scale * bias, float(PENALTIES[best]), judged, scale * left_out)


def check_finite(features: Features) -> None:
    """Raises FcaError if some features are infinite or NaN; the message has the number of such images.

    Stored features are float16, whose largest number is 65,504: larger ones become infinite.

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
    """The fold of each image, a number from 0; the images of one group are in one fold.

    The groups of each class are put in a random order and dealt to at most FOLDS folds in turn, so that every fold has
    about equally many groups of each class. A group belongs to the class of its first image. If each class has one
    group, all would be in fold 0, and nothing would be left to fit without it: then every group is a fold.
    """
    _, first_images, group_of_image = np.unique(groups, return_index=True, return_inverse=True)
    group_labels = labels[first_images]
    fold_of_group = np.empty(len(first_images), np.int64)
    for label in np.unique(group_labels):
        members = np.flatnonzero(group_labels == label)
        shuffled = np.random.default_rng([SAMPLE_SEED, int(label)]).permutation(members)
        fold_of_group[shuffled] = np.arange(len(members)) % FOLDS

    if not fold_of_group.any():  # all in fold 0
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
    """Errors of the ridge regression of `fit_probe` on each image when it is fitted without the image's fold.

    For each fold F and penalty λ they are

        (I - H_FF)^-1 e_F,   e = Y - H Y,   H = 1 1' / n + B S (S + λ)^-1 B'

    exact and without refitting (Allen 1974; for folds Cook and Weisberg 1982, eq. 2.2.23). H turns the targets Y of all
    n images into the outputs of the fit to all of them; H_FF is its part at F. Errors are computed for some or all of
    these images, those in the first axis of the arguments.

    basis:    B, left singular vectors of the centred features of all n images, at these images.
    y:        centred one-hot targets of these images.
    scores:   components along the basis of the targets of all n images.
    spectrum: S, squared singular values, the sums of squares of all n images along the basis.
    folds:    of each of these images.

    I - H is computed as (I - 1 1' / n - B B') + B λ (S + λ)^-1 B': the part outside of the basis (0 if there are more
    features than images) plus the part of the basis that the penalty removes. This sum loses no digits at a small
    penalty, where H is nearly I; subtracting H from I would.
    """
    removed_shares = penalties / (spectrum[:, None] + penalties)  # rank x penalties: of each score
    removed_scores = removed_shares.T[:, :, None] * scores  # penalties x rank x classes
    outside_basis = y - basis @ scores
    errors = np.empty((len(penalties), *y.shape))
    for fold in np.unique(folds):
        members = np.flatnonzero(folds == fold)
        fold_basis = basis[members]
        fitted_errors = outside_basis[members] + fold_basis @ removed_scores  # e_F for every penalty

        # for so large a fold one eigendecomposition is faster than solving for every penalty
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
    """(I - H_FF)^-1 e_F of one large fold F, for all penalties λ from one eigendecomposition.

    These are the errors of the ridge regression of `fit_probe` on the images of the fold when it is fitted without
    them. With B the basis at the fold, S the spectrum, K = I - 1 1' / n, and the fold's part of the hat matrix of the
    fit to all n images, H_FF = 1 1' / n + B S (S + λ)^-1 B', by Woodbury

        (I - H_FF)^-1 = K^-1 + W (G + λ I)^-1 W',   W = K^-1 B S^1/2,   G = S - S^1/2 B' W

    G is the scatter of the images outside the fold, whose eigendecomposition serves every λ.

    fold_basis:    B, the left singular vectors of the centred features of all n images, at the images of the fold.
    fitted_errors: e_F, errors of the fit to all n images.
    spectrum:      S, the squared singular values of these features.
    penalties:     the values of λ.
    """
    n_outside = n - len(fold_basis)
    scaled_basis = fold_basis * np.sqrt(spectrum)  # B S^1/2
    w = scaled_basis + scaled_basis.sum(axis=0) / n_outside  # K^-1 = I + 1 1' / (images outside the fold)
    g, rotation = np.linalg.eigh(np.diag(spectrum) - scaled_basis.T @ w)
    g = np.maximum(g, 0.0)  # rounding may make eigenvalues of a scatter slightly negative

    w = w @ rotation
    correction = w @ (w.T @ fitted_errors / (g[:, None] + penalties[:, None, None]))
    return fitted_errors + fitted_errors.sum(axis=1, keepdims=True) / n_outside + correction


def _principal_directions(x: Features) -> tuple[Float[np.ndarray, "features rank"], Float[np.ndarray, " rank"]]:
    """Orthonormal directions along which the centred features vary, and the sum of squares along each direction.

    x: centred features. Directions along which they vary by rounding alone are left out.
    """
    has_more_features = x.shape[1] > x.shape[0]  # then x x' is the smaller matrix, with the same eigenvalues
    spectrum, vectors = np.linalg.eigh(x @ x.T if has_more_features else x.T @ x)

    is_above_rounding = spectrum > spectrum.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    spectrum = spectrum[is_above_rounding]
    vectors = vectors[:, is_above_rounding]
    if has_more_features:
        vectors = x.T @ vectors / np.sqrt(spectrum)  # eigenvectors of x x' -> those of x' x
    return vectors, spectrum


def temperature(outputs: Float[np.ndarray, "val classes"], labels: Integer[np.ndarray, " val"]) -> float:
    """The factor by which outputs are multiplied so that their softmax makes the labels likeliest (arXiv:1706.04599).

    outputs: of a regression onto one-hot classes, so between about 0 and 1; the factor is between 1 and 1,000.
    labels:  0..classes-1, of images that the regression was not fitted to.
    """
    rows = np.arange(len(labels))

    def mean_log_loss(log_factor: float) -> float:
        """Mean negative log likelihood of the labels with this factor."""
        logits = outputs * np.exp(log_factor)
        return float((logsumexp(logits, axis=1) - logits[rows, labels]).mean())

    result = minimize_scalar(mean_log_loss, bounds=(0.0, np.log(1000.0)), method="bounded")
    return float(np.exp(result.x))
