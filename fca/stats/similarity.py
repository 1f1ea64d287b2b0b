"""How similar the images of classes look, as a measure of how hard the classes are to distinguish (arXiv:2411.01099).

sim(i, j) = (cos(z_i, z_j) + 1) / 2. The mean over the images of a class needs no pairs: with unit vectors u and class
means m_c = mean u, it is (u_i . m_c + 1) / 2. Rows and columns of one matrix of images by classes then give the scores
of every subset of classes. The last part computes the scores exactly as the released Few-Class Arena logs them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import csr_array

from fca.types import FcaError

Features = Float[np.ndarray, "images features"]
Labels = Integer[np.ndarray, " images"]
PerImage = Float[np.ndarray, " images"]
Similarity = Float[np.ndarray, "images classes"]
Subset = Integer[np.ndarray, " subset"]
Classes = Integer[np.ndarray, " classes"]
ImagesByClass = list[Float[np.ndarray, "_ features"]]


class SimilarityScores(NamedTuple):
    """Five scores of a set of classes, all means (arXiv:2411.01099, eqs. 1 to 4).

    a(i) is the mean similarity of image i to the other images of its class, and b(i) its mean similarity to the class
    that is most similar to it among the other classes.

    intra:         eq. 1, a(i): mean over each class, then over classes; in [0, 1].
    inter:         eq. 2, similarity of images of two classes: mean over the pairs of classes; in [0, 1].
    nearest_inter: eq. 3, b(i): mean over each class, then over classes; in [0, 1].
    simss:         eq. 4, (a(i) - b(i)) / max(a(i), b(i)): mean over each class, then over classes; in [-1, 1], higher
                   for easier classes.
    simss_pooled:  as simss, but one mean over all images, so that large classes weigh more.
    """

    intra: float
    inter: float
    nearest_inter: float
    simss: float
    simss_pooled: float


def class_similarity(features: Features, labels: Labels) -> Similarity:
    """Mean similarity (cos + 1) / 2 of every image to the images of every class, in [0, 1].

    G(i, c) = (u_i . m_c + 1) / 2,   and for the image's own class of n images (n G(i, c) - 1) / (n - 1)

    with u_i the image's features scaled to length 1, and m_c the mean of u over class c. The second expression leaves
    the image itself, of similarity 1, out of the mean over its own class.

    features: any scale and float type (computed in float64).
    labels:   any integers; column k of the result is the k-th smallest label.
    Raises FcaError for a feature vector that is zero or not finite, and for a class of one image.

    >>> features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> class_similarity(features, np.array([0, 0, 7, 7]))
    array([[1. , 0.5],
           [1. , 0.5],
           [0.5, 0. ],
           [0.5, 0. ]])
    """
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    check_two_images_a_class(classes, counts)
    vectors, norms = _with_norms(features)

    # class means of unit vectors, without a normalised copy of all features
    rows = np.arange(len(codes))
    n = counts[codes]  # images of the own class
    # classes x images: 1 / (norm n) at each image's own class, so that the product sums u / n
    averaging = csr_array((1 / (norms * n), (codes, rows)), shape=(len(classes), len(codes)))
    means = averaging @ vectors  # classes x features

    # in place: at 50,000 images and 1,000 classes a copy is 400 MB
    similarity: Similarity = vectors @ means.T  # two thirds of the time
    similarity *= 0.5 / norms[:, None]  # scales the image's own features to length 1, and halves
    similarity += 0.5
    similarity[rows, codes] = (n * similarity[rows, codes] - 1.0) / (n - 1.0)
    return np.clip(similarity, 0.0, 1.0, out=similarity)  # only rounding leaves the range


def similarity_scores(features: Features, labels: Labels) -> SimilarityScores:
    """The five scores of all classes together; SimilarityScores defines them, class_similarity lists the errors.

    >>> features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> similarity_scores(features, np.array([0, 0, 1, 1]))
    SimilarityScores(intra=1.0, inter=0.5, nearest_inter=0.5, simss=0.5, simss_pooled=0.5)
    """
    columns = np.unique(labels, return_inverse=True)[1]
    return scores_from_similarity(class_similarity(features, labels), columns)


def subset_scores(similarity: Similarity, labels: Labels, classes: Subset) -> SimilarityScores:
    """The five scores of some classes, from the similarities of all: equal to similarity_scores of their images alone.

    similarity, labels: the result of class_similarity, and the labels given to it.
    classes:            the labels in the subset, at least two.

    >>> features, labels = np.eye(6), np.array([0, 0, 5, 5, 8, 8])
    >>> subset_scores(class_similarity(features, labels), labels, np.array([0, 8])).inter
    0.5
    """
    all_classes, chosen = all_and_chosen_classes(labels, classes)
    rows = np.flatnonzero(np.isin(labels, chosen))
    columns = np.searchsorted(all_classes, chosen)
    column_in_subset = np.searchsorted(chosen, labels[rows])
    return scores_from_similarity(similarity[np.ix_(rows, columns)], column_in_subset)


def silhouette(
    to_own: Float[np.ndarray, "*shape"], to_nearest: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """(to_own - to_nearest) / max(to_own, to_nearest), the summand of eq. 4: between -1 and 1.

    to_own, to_nearest: similarities in [0, 1] to the own class and to the nearest other class. Both are 0 (but for
    rounding) only for an image opposite to all other images; equal similarities score 0.

    >>> silhouette(np.array([1.0, 0.5, 0.0]), np.array([0.5, 1.0, 0.0]))
    array([ 0.5, -0.5,  0. ])
    """
    larger = np.maximum(to_own, to_nearest)
    is_positive = larger > 1e-12
    scores = np.asarray(to_own - to_nearest)
    np.divide(scores, larger, out=scores, where=is_positive)
    scores[~is_positive] = 0.0
    return scores


def all_and_chosen_classes(
    labels: Labels, classes: Subset
) -> tuple[Integer[np.ndarray, " all_classes"], Integer[np.ndarray, " chosen"]]:
    """All labels and those of the subset, both sorted and unique; raises FcaError naming one that has no image."""
    all_classes = np.unique(labels)
    chosen = np.unique(classes)
    missing = np.setdiff1d(chosen, all_classes)
    if len(missing):
        allowed = f"the {len(all_classes)} labels that have images"
        raise FcaError("class", missing[0], allowed, "leave it out of the subset")
    return all_classes, chosen


def scores_from_similarity(similarity: Similarity, columns: Labels) -> SimilarityScores:
    """The five scores of a set of classes (arXiv:2411.01099), from similarities of images to classes.

    a(i) is the mean similarity of image i to the other images of its own class, and b(i) its mean similarity to the
    images of the most similar other class.

    intra:         mean of a(i) over each class, then over classes.
    inter:         mean similarity of an image to the other classes: mean over each class, then over classes.
    nearest_inter: mean of b(i) over each class, then over classes.
    simss:         mean of the silhouette (a(i) - b(i)) / max(a(i), b(i)) over each class, then over classes.
    simss_pooled:  mean of the silhouette over all images.

    similarity: a result of class_similarity. It is overwritten, because at 50,000 images and 1,000 classes a copy is
                400 MB.
    columns:    the column of each image's own class.
    Raises FcaError for fewer than two classes.
    """
    images, classes = similarity.shape
    check_two_classes(classes)

    rows = np.arange(images)
    to_own = similarity[rows, columns]
    to_others = (similarity.sum(axis=1) - to_own) / (classes - 1)  # mean over the other classes
    similarity[rows, columns] = -np.inf  # so that the own class is not the nearest one
    to_nearest = similarity.max(axis=1)
    silhouettes = silhouette(to_own, to_nearest)

    class_sizes = np.bincount(columns)

    def mean_of_class_means(values: PerImage) -> float:
        """Mean over each class, then over classes."""
        class_sums = np.bincount(columns, weights=values)
        return float((class_sums / class_sizes).mean())

    return SimilarityScores(
        intra=mean_of_class_means(to_own),
        inter=mean_of_class_means(to_others),  # equals the mean over pairs of classes (eq. 2): each is counted twice
        nearest_inter=mean_of_class_means(to_nearest),
        simss=mean_of_class_means(silhouettes),
        simss_pooled=float(silhouettes.mean()),
    )


def check_two_classes(classes: int) -> None:
    """Raises FcaError for fewer than two classes."""
    if classes < 2:
        raise FcaError("number of classes", classes, "2 or more", "similarity compares classes: take a larger subset")


def check_two_images_a_class(classes: Classes, counts: Classes) -> None:
    """Raises FcaError for fewer than two classes, and for classes with fewer than two images, which it names.

    classes: their labels.
    counts:  number of images of each class.
    """
    check_two_classes(len(classes))
    has_no_pair = counts < 2
    if has_no_pair.any():
        names = ", ".join(str(name) for name in classes[has_no_pair][:10])
        raise FcaError("class with one image", names, "two images or more a class", "leave it out or add images")


def unit_vectors(features: Features) -> Features:
    """Each row scaled to length 1, in float64; raises FcaError naming the images that are zero or not finite.

    >>> unit_vectors(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    vectors, norms = _with_norms(features)
    vectors /= norms[:, None]
    return vectors


def _with_norms(features: Features) -> tuple[Features, PerImage]:
    """A copy in float64, and the length of each row. Raises FcaError for rows that are zero or not finite."""
    vectors = features.astype(np.float64)
    norms = np.sqrt(np.einsum("if,if->i", vectors, vectors))  # i: image, f: feature
    unusable = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(unusable):
        images = ", ".join(str(image) for image in unusable[:10])
        step = f"{len(unusable)} images: look at them and the encoder"
        raise FcaError("features of image", images, "finite numbers, not all zero", step)
    return vectors, norms


# The released Few-Class Arena (github.com/fewclassarena/fca, tools/ncls/fc-sim.py and configs/_base_/sim.py) visits the
# subsets of a data set one after the other, ncl by ncl and within it seed by seed, and keeps for each class one list of
# images that it never clears:
#
# a. a class that comes for the first time gets an empty list, and its first image (of the validation list) is skipped;
# b. when it comes again in a later subset, all its images are appended once more, including the first one: after k
#    subsets a class of n images has k n - 1 entries, k - 1 of its first image and k of any other;
# c. S_alpha is one mean over all pairs of entries of one class, pooled over the classes (eq. 1 reads: a mean of class
#    means). Copies make pairs of an image with itself, of similarity 1;
# d. S_beta is one mean over the pairs (entry i of a class, entry j of a class drawn later) with j > i, counted along
#    the lists: the upper triangle of each rectangle. So it depends on the order in which classes were drawn, and on
#    the order of images;
# e. SimSS is one mean over all entries (eq. 4 reads: a mean of class means); entries leave out themselves, not their
#    copies.
#
# All use sim(i, j) = (cos + 1) / 2. The released code computes cosines in single precision, and SimSS of 800 classes
# takes hours of pairs; here they are in double precision, and sums over entries come from counted sums of unit vectors.


class ReleasedScores(NamedTuple):
    """One line of the released log; NaN where it has nan (no pair to average)."""

    s_alpha: float
    s_beta: float
    simss: float


def released_draw(num_classes: int, ncl: int, seed: int) -> tuple[int, ...]:
    """The classes of a released subset in the order of their draw, which S_beta depends on; never the last class.

    >>> released_draw(1000, 2, seed=0)
    (864, 394)
    """
    return tuple(random.Random(seed).sample(range(num_classes - 1), ncl))


def fca_released(features: Features, labels: Labels, subsets_in_order: Sequence[Sequence[int]]) -> list[ReleasedScores]:
    """The scores that the released Few-Class Arena logs for each subset, with its flaws.

    The released code keeps a list of images for each class that grows with every subset that has the class. So the
    scores of a subset depend on the subsets before it.

    features, labels:  of the test images (val in the released code), in the order of the released list of images.
    subsets_in_order:  the subsets in the order in which the released code visits them; each has its labels in the order
                       of their draw, on which s_beta depends.

    Raises FcaError for a subset of fewer than two classes, a label twice in one, a class of fewer than two images, and
    features that are zero or not finite.

    >>> features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> first, again = fca_released(features, np.array([0, 0, 0, 1, 1, 1]), [(0, 1), (0, 1)])
    >>> round(first.s_alpha, 3), first.s_beta
    (0.5, 1.0)
    >>> round(again.s_alpha, 3), round(again.s_beta, 3)
    (0.7, 0.8)
    """
    units = unit_vectors(features)
    rows_by_class = {int(c): np.flatnonzero(labels == c) for c in np.unique(labels)}
    times_by_class = dict.fromkeys(rows_by_class, 0)  # the number of subsets so far that have the class
    scores = []
    for subset in subsets_in_order:
        _check_subset(subset, rows_by_class)
        for c in subset:
            times_by_class[c] += 1

        images = [units[rows_by_class[c]] for c in subset]
        times = np.array([times_by_class[c] for c in subset])
        scores.append(_released_scores(images, times))
    return scores


def _check_subset(subset: Sequence[int], rows_by_class: Mapping[int, np.ndarray]) -> None:
    """Raises FcaError for fewer than two classes, a class twice, and a class of fewer than two images."""
    if len(subset) < 2 or len(set(subset)) < len(subset):
        raise FcaError("classes of a subset", list(subset), "two or more different ones", "correct the subset")
    for c in subset:
        images = len(rows_by_class.get(c, ()))
        if images < 2:
            raise FcaError("images of class", f"{images} of {c}", "two images or more a class", "leave the subset out")


def _released_scores(images: ImagesByClass, times: Classes) -> ReleasedScores:
    """The released scores of one subset, from the lists of images that the released code has for its classes.

    s_alpha is the mean similarity over all pairs of entries of one class, s_beta over pairs of entries of two classes,
    and simss the mean silhouette of all entries.

    The list of a class of n images that was in k subsets has the entries j = 0 to k n - 2; entry j is image
    (j + 1) mod n. So the list has k - 1 copies of the first image and k copies of every other one.

    images: unit vectors of each class, one array a class in the order of the draw.
    times:  k of each class.
    """
    lengths = times * np.array([len(units) for units in images]) - 1
    entry_sums = np.empty((len(images), images[0].shape[1]))  # classes x features
    for c, units in enumerate(images):
        entry_sums[c] = times[c] * units.sum(axis=0) - units[0]  # of the first image one copy is missing

    # all ordered pairs of entries of one class: the squared sum of entries, without pairs of an entry with itself
    cosines = float((entry_sums**2).sum()) - lengths.sum()
    pairs = int((lengths * (lengths - 1)).sum())
    return ReleasedScores(
        s_alpha=_mean_similarity(cosines, pairs),
        s_beta=_released_s_beta(images, lengths),
        simss=_released_simss(images, times, lengths, entry_sums),
    )


def _released_s_beta(images: ImagesByClass, lengths: Classes) -> float:
    """S_beta of the released code: the mean similarity of entries of two classes, over only a part of all pairs.

    Entry j of a class is paired with the entries 0 to j - 1 of each class that was drawn before it.
    images:  unit vectors of each class, in the order of the draw; entry j of n images is image (j + 1) mod n.
    lengths: number of entries of each class.
    """
    sizes = np.array([len(units) for units in images])
    all_images = np.concatenate(images)
    starts = np.cumsum(sizes) - sizes  # position of the first image of each class
    previous_sums = np.zeros((len(images), all_images.shape[1]))  # of the entries before j: classes x features

    cosines = 0.0
    pairs = 0
    for j in range(lengths.max()):
        has_entry = lengths > j
        entries = all_images[starts + (j + 1) % sizes] * has_entry[:, None]  # of each class, 0 after its last entry
        sums_of_earlier_classes = np.cumsum(previous_sums, axis=0) - previous_sums
        cosines += float(np.einsum("cf,cf->", entries, sums_of_earlier_classes))  # c: class, f: feature

        previous_counts = np.minimum(j, lengths)
        counts_of_earlier_classes = np.cumsum(previous_counts) - previous_counts
        pairs += int(counts_of_earlier_classes[has_entry].sum())
        previous_sums += entries
    return _mean_similarity(cosines, pairs)


def _released_simss(
    images: ImagesByClass, times: Classes, lengths: Classes, entry_sums: Float[np.ndarray, "classes features"]
) -> float:
    """SimSS of the released code: the mean silhouette of all entries of the lists. NaN if a class has a single entry.

    All copies of an image have the same silhouette, so it is computed once and weighted by the number of copies.
    images:     unit vectors of each class.
    times:      number of copies of each image of a class.
    lengths:    number of entries of each class; its first image has one copy fewer.
    entry_sums: sum of the entries of each class.
    """
    total = 0.0
    for c, units in enumerate(images):
        is_own_class = np.arange(len(lengths)) == c
        n_compared = lengths - is_own_class  # an entry leaves out itself
        if n_compared[c] == 0:
            return float("nan")

        # mean similarity of each image of class c to the entries of every class, without itself (cosine 1)
        cosine_sums = units @ entry_sums.T - is_own_class  # images x classes
        similarity = cosine_sums / n_compared / 2 + 0.5
        to_own = similarity[:, c].copy()
        similarity[:, c] = -np.inf  # so that the own class is not the nearest one
        to_nearest = similarity.max(axis=1)
        silhouettes = (to_own - to_nearest) / np.maximum(to_own, to_nearest)
        total += times[c] * silhouettes.sum() - silhouettes[0]  # the first image has one entry fewer
    return float(total / lengths.sum())


def _mean_similarity(cosines: float, pairs: int) -> float:
    """Mean similarity of this many pairs, from the sum of their cosines; NaN without pairs."""
    return float((cosines / pairs + 1) / 2) if pairs else float("nan")
