"""How alike the images of classes look, as a measure of how hard they are to tell apart (arXiv:2411.01099).

sim(i, j) = (cos(z_i, z_j) + 1) / 2. The mean over the images of a class needs no pairs: with unit vectors u and class
means m_c = mean u, it is (u_i . m_c + 1) / 2. One matrix of images by classes then answers every subset of classes by
selecting rows and columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from fca.nouns import FcaError


class SimilarityScores(NamedTuple):
    """Five scores of a set of classes, all means; the first three lie in [0, 1], SimSS in [-1, 1] (higher = easier).

    With a(i) = similarity of image i to its own class (itself left out), b(i) = to the nearest other class, nearest
    for this image:
    intra:         eq. 1, a(i): mean over a class, then over classes.
    inter:         eq. 2, mean over the pairs of classes.
    nearest_inter: eq. 3, b(i): mean over a class, then over classes.
    simss:         eq. 4, (a(i) - b(i)) / max(a(i), b(i)): mean over a class, then over classes.
    simss_pooled:  the same, one mean over all images, so that large classes weigh more.
    """

    intra: float
    inter: float
    nearest_inter: float
    simss: float
    simss_pooled: float


def class_similarity(
    features: Float[np.ndarray, "images features"], labels: Integer[np.ndarray, " images"]
) -> Float[np.ndarray, "images classes"]:
    """Mean similarity of every image to every class, in [0, 1]; an image is left out of its own class' mean.

    G(i, c) = (u_i . m_c + 1) / 2,   and for the own class of n images (n G(i, c) - 1) / (n - 1).

    features: any scale and float type (computed in float64).
    labels:   any integers; column k of the answer is the k-th smallest label.
    Raises FcaError for a feature vector that is zero or not finite, and for a class of one image.

    >>> features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> class_similarity(features, np.array([0, 0, 7, 7]))
    array([[1. , 0.5],
           [1. , 0.5],
           [0.5, 0. ],
           [0.5, 0. ]])
    """
    classes, own, counts = np.unique(labels, return_inverse=True, return_counts=True)
    _check_counts(classes, counts)
    units = unit_vectors(features)
    means = np.stack([units[own == c].mean(axis=0) for c in range(len(classes))])
    similarity: Float[np.ndarray, "images classes"] = units @ means.T
    similarity += 1.0
    similarity /= 2.0
    rows, n = np.arange(len(own)), counts[own]
    similarity[rows, own] = (n * similarity[rows, own] - 1.0) / (n - 1.0)
    return np.clip(similarity, 0.0, 1.0, out=similarity)  # rounding alone leaves the range


def similarity_scores(
    features: Float[np.ndarray, "images features"], labels: Integer[np.ndarray, " images"]
) -> SimilarityScores:
    """The five scores of all classes together; see SimilarityScores for what they are and class_similarity for errors.

    >>> features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> similarity_scores(features, np.array([0, 0, 1, 1]))
    SimilarityScores(intra=1.0, inter=0.5, nearest_inter=0.5, simss=0.5, simss_pooled=0.5)
    """
    own = np.unique(labels, return_inverse=True)[1]
    return scores_of(class_similarity(features, labels), own)


def subset_scores(
    similarity: Float[np.ndarray, "images classes"],
    labels: Integer[np.ndarray, " images"],
    classes: Integer[np.ndarray, " subset"],
) -> SimilarityScores:
    """The five scores of some classes, from the similarities of all: equal to similarity_scores of their images alone.

    similarity, labels: what class_similarity answered, and the labels it was asked with.
    classes:            the labels in the subset, at least two.

    >>> features, labels = np.eye(6), np.array([0, 0, 5, 5, 8, 8])
    >>> subset_scores(class_similarity(features, labels), labels, np.array([0, 8])).inter
    0.5
    """
    known, chosen = chosen_classes(labels, classes)
    rows = np.flatnonzero(np.isin(labels, chosen))
    columns = np.searchsorted(known, chosen)
    return scores_of(similarity[np.ix_(rows, columns)], np.searchsorted(chosen, labels[rows]))


def silhouette(own: Float[np.ndarray, "*shape"], nearest: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """(own - nearest) / max(own, nearest), the summand of eq. 4, for similarities in [0, 1]: between -1 and 1.

    Both are 0 (but for rounding) only for an image opposite to every other one; equal ones score 0.

    >>> silhouette(np.array([1.0, 0.5, 0.0]), np.array([0.5, 1.0, 0.0]))
    array([ 0.5, -0.5,  0. ])
    """
    larger = np.maximum(own, nearest)
    scored: Float[np.ndarray, "*shape"] = own - nearest
    np.divide(scored, larger, out=scored, where=larger > 1e-12)
    scored[larger <= 1e-12] = 0.0
    return scored


def chosen_classes(
    labels: Integer[np.ndarray, " images"], classes: Integer[np.ndarray, " subset"]
) -> tuple[Integer[np.ndarray, " known"], Integer[np.ndarray, " chosen"]]:
    """All labels and those asked for, both sorted and once each; raises FcaError naming one that has no image."""
    known, chosen = np.unique(labels), np.unique(classes)
    missing = np.setdiff1d(chosen, known)
    if len(missing):
        raise FcaError("class", missing[0], f"the {len(known)} labels that have images", "leave it out of the subset")
    return known, chosen


def scores_of(similarity: Float[np.ndarray, "images classes"], own: Integer[np.ndarray, " images"]) -> SimilarityScores:
    """The five scores from a matrix of class_similarity and the column of each image's class; raises as above.

    Uses up `similarity`: at 50,000 images and 1,000 classes a copy of it is 400 MB.
    """
    images, classes = similarity.shape
    if classes < 2:
        raise FcaError("number of classes", classes, "2 or more", "similarity compares classes: name more")
    rows = np.arange(images)
    to_own = similarity[rows, own]
    to_others = (similarity.sum(axis=1) - to_own) / (classes - 1)
    similarity[rows, own] = -np.inf
    to_nearest = similarity.max(axis=1)
    scored = silhouette(to_own, to_nearest)
    counts = np.bincount(own)

    def mean_of_class_means(values: Float[np.ndarray, " images"]) -> float:
        return float((np.bincount(own, weights=values) / counts).mean())

    return SimilarityScores(
        intra=mean_of_class_means(to_own),
        inter=mean_of_class_means(to_others),  # every pair of classes is met from both sides with the same mean
        nearest_inter=mean_of_class_means(to_nearest),
        simss=mean_of_class_means(scored),
        simss_pooled=float(scored.mean()),
    )


def _check_counts(classes: Integer[np.ndarray, " classes"], counts: Integer[np.ndarray, " classes"]) -> None:
    if len(classes) < 2:
        raise FcaError(
            "number of classes", len(classes), "2 or more", "similarity compares classes: take a larger subset"
        )
    if (counts < 2).any():
        alone = ", ".join(str(c) for c in classes[counts < 2][:10])
        raise FcaError("class with one image", alone, "two images or more a class", "leave it out or add images")


def unit_vectors(features: Float[np.ndarray, "images features"]) -> Float[np.ndarray, "images features"]:
    """Each line scaled to length 1, in float64; raises FcaError naming the images that are zero or not finite.

    >>> unit_vectors(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    units = features.astype(np.float64)
    norms = np.sqrt(np.einsum("if,if->i", units, units))
    bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(bad):
        where = ", ".join(str(i) for i in bad[:10])
        raise FcaError(
            "features of image",
            where,
            "finite numbers, not all zero",
            f"{len(bad)} images: look at them and the encoder",
        )
    units /= norms[:, None]
    return units
