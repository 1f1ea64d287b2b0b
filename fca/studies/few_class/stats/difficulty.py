"""Which classes are hard to distinguish by SimSS (arXiv:2411.01099, eq. 4), and the effect of adding or merging some.

Everything is computed from the matrix of `class_similarity`, the mean similarity of every image to every class: a pair
needs two of its columns, a subset its rows and columns, and a merged class is a weighted mean of two columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from fca.stats.similarity import (
    Labels,
    Similarity,
    Subset,
    all_and_chosen_classes,
    check_two_classes,
    scores_from_similarity,
    silhouette,
    subset_scores,
)
from fca.types import FcaError

N_IMPROVED = 10  # how many of the grown subsets are improved by swaps
SMALLEST_GAIN = 1e-12  # a smaller gain of SimSS is rounding

PerClass = Float[np.ndarray, " classes"]
PairScores = Float[np.ndarray, "classes classes"]


@dataclass(frozen=True)
class ByClass:
    """A matrix of class_similarity (G, images x classes) with its images sorted by class.

    Classes are columns of the matrix here, not labels. Raises FcaError for fewer than two classes.

    >>> labels = np.array([5, 5, 9, 9])
    >>> ByClass(np.array([[1.0, 0.5]] * 2 + [[0.5, 1.0]] * 2), labels).simss([0, 1])
    0.5
    """

    similarity: Similarity
    labels: Labels

    def __post_init__(self) -> None:
        check_two_classes(len(self.class_labels))

    @cached_property
    def class_labels(self) -> Integer[np.ndarray, " classes"]:
        """The label of each column, in ascending order."""
        return np.unique(self.labels)

    @cached_property
    def column_of_image(self) -> Integer[np.ndarray, " images"]:
        """The column of each image's own class."""
        return np.searchsorted(self.class_labels, self.labels)

    @cached_property
    def counts(self) -> Integer[np.ndarray, " classes"]:
        """The number of images of each class."""
        return np.bincount(self.column_of_image)

    @cached_property
    def rows_of_class(self) -> list[Integer[np.ndarray, " members"]]:
        """For each class, the rows of its images in the matrix."""
        rows_by_class = np.argsort(self.column_of_image, kind="stable")  # class 0 first, and so on
        first_of_later_classes = np.cumsum(self.counts)[:-1]
        return np.split(rows_by_class, first_of_later_classes)

    @cached_property
    def intra(self) -> Float[np.ndarray, " images"]:
        """The mean similarity of each image to the other images of its class."""
        rows = np.arange(len(self.column_of_image))
        return self.similarity[rows, self.column_of_image]

    def mean_silhouette(self, c: int, nearest: Float[np.ndarray, "members alternatives"]) -> PerClass:
        """Mean silhouette of the images of class c, for each of several alternatives of what the nearest class is.

        nearest: the similarity of each image of class c to the nearest other class, one column an alternative.
        """
        intra = np.broadcast_to(self.intra[self.rows_of_class[c], None], nearest.shape)
        return silhouette(intra, nearest).mean(axis=0)

    def simss_with_each(self, subset: Sequence[int]) -> PerClass:
        """SimSS of a subset with each other class in turn added to it; NaN for the classes that are already in it.

        The silhouette of an image is (own - nearest) / max(own, nearest), of its mean similarities to its own class
        (`intra`) and to the most similar other class. SimSS is the mean over classes of their mean silhouettes. The
        images of the added class have their nearest class in the subset. For images of the subset, the added class may
        become the nearest.

        subset: columns of the similarity matrix, not labels.
        """
        # similarity of each image to the nearest class of the subset other than its own
        nearest_in_subset = self._nearest(subset)

        # mean silhouette of each class when it is the added one: sum over its images / number of images
        silhouette_if_added = silhouette(self.intra, nearest_in_subset)
        sums = np.bincount(self.column_of_image, weights=silhouette_if_added) / self.counts

        # plus the mean silhouettes of the classes of the subset, given each added class
        for c in subset:
            rows = self.rows_of_class[c]
            nearest_with_added = np.maximum(nearest_in_subset[rows, None], self.similarity[rows])  # members x classes
            sums += self.mean_silhouette(c, nearest_with_added)

        sums[list(subset)] = np.nan
        return sums / (len(subset) + 1)

    def simss(self, subset: Sequence[int]) -> float:
        """SimSS of a subset of the classes."""
        rows = np.concatenate([self.rows_of_class[c] for c in subset])
        column_of_row = np.repeat(np.arange(len(subset)), [len(self.rows_of_class[c]) for c in subset])
        return scores_from_similarity(self.similarity[np.ix_(rows, np.asarray(subset))], column_of_row).simss

    def _nearest(self, subset: Sequence[int]) -> Float[np.ndarray, " images"]:
        """The similarity of every image to the nearest class of the subset, its own class not counted."""
        similarity = self.similarity[:, list(subset)]  # a copy: images x subset
        for column, c in enumerate(subset):
            similarity[self.rows_of_class[c], column] = -np.inf
        return similarity.max(axis=1)


class Extreme(NamedTuple):
    """A hardest or easiest subset: its classes (labels, sorted) and its SimSS."""

    classes: tuple[int, ...]
    simss: float


def pair_simss(similarity: Similarity, labels: Labels) -> PairScores:
    """SimSS of every subset of two classes: symmetric, NaN on the diagonal (a class with itself is no subset).

    G(i, c) is the mean similarity of image i to the images of class c. With the silhouette of an image,
    D(i, c) = (G(i, own) - G(i, c)) / max(G(i, own), G(i, c)), and d(a, c), its mean over the images of class a,
    SimSS({a, b}) = (d(a, b) + d(b, a)) / 2.

    similarity, labels: the result G of class_similarity, and the labels given to it; row and column k of the result are
    the k-th smallest label.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1])
    >>> pair_simss(class_similarity(np.eye(2)[labels], labels), labels)
    array([[nan, 0.5],
           [0.5, nan]])
    """
    images = ByClass(similarity, labels)
    lines = []
    for a, rows in enumerate(images.rows_of_class):  # rows: of the images of class a
        lines.append(images.mean_silhouette(a, similarity[rows]))  # d(a, c) of every class c
    d = np.stack(lines)
    pairs = (d + d.T) / 2
    np.fill_diagonal(pairs, np.nan)
    return pairs


def extreme_subset(
    similarity: Similarity,
    labels: Labels,
    size: int,
    hardest: bool = True,
    starts: int = 200,
    pairs: PairScores | None = None,
) -> Extreme:
    """The subset of `size` classes with the lowest SimSS (hardest) or the highest.

    This is a greedy search. It begins with the `starts` pairs of classes of lowest (or highest) SimSS, and adds to each
    the class that lowers (or raises) SimSS most, until it has `size` classes. Then the best few subsets swap one class
    for another until no swap improves them. The result is exact for two classes, and for three where all pairs are
    tried (200 starts: up to 20 classes). Otherwise it may not be the best, but no single swap improves it.

    similarity, labels: the result of class_similarity, and the labels given to it.
    pairs: pair_simss of the same matrix, to save time if the caller has it.
    Raises FcaError unless 2 <= size <= number of classes.

    >>> from fca.stats.similarity import class_similarity
    >>> labels, angles = np.arange(4).repeat(2), np.array([0.0, 0.1, 1.5, 1.6, 1.8, 1.9, 3.0, 3.1])
    >>> features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    >>> extreme_subset(class_similarity(features, labels), labels, 2).classes
    (1, 2)
    """
    images = ByClass(similarity, labels)
    n_classes = len(images.class_labels)
    _check_size(size, n_classes)
    if pairs is None:
        pairs = pair_simss(similarity, labels)
    sign = 1.0 if hardest else -1.0  # the search minimises sign * SimSS

    # the best pairs
    first, second = np.triu_indices(n_classes, 1)  # all pairs with first < second
    pair_scores = sign * pairs[first, second]
    n_starts = 1 if size == 2 else starts  # the best pair is the result
    score_by_subset: dict[tuple[int, ...], float] = {}
    for i in np.argsort(pair_scores, kind="stable")[:n_starts]:
        score_by_subset[int(first[i]), int(second[i])] = float(pair_scores[i])

    # add the best class to each, and score the larger subset; subsets that become equal continue as one
    for _ in range(size - 2):
        score_by_subset = dict(_add_best_class(images, subset, sign) for subset in score_by_subset)

    # improve the best few by swaps; pairs are exact already, and a subset of all classes has none to swap for
    if 2 < size < n_classes:
        best_first = sorted(score_by_subset, key=lambda subset: score_by_subset[subset])
        improved = [_swap_classes(images, s, score_by_subset[s], sign) for s in best_first[:N_IMPROVED]]
        score_by_subset = dict(improved)

    # of equal scores, the first subset in the order of labels
    best = min(score_by_subset, key=lambda subset: (score_by_subset[subset], subset))
    best_labels = tuple(int(label) for label in images.class_labels[list(best)])
    return Extreme(best_labels, sign * score_by_subset[best])


def what_if_added(similarity: Similarity, labels: Labels, subset: Subset) -> PerClass:
    """The change of a subset's SimSS by adding each other class; NaN for the classes that are already in it.

    Entry k of the result is about the k-th smallest label.

    similarity, labels: the result of class_similarity, and the labels given to it.
    subset: two labels or more. Raises FcaError for a label without images.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> alike = class_similarity(np.eye(3)[[0, 0, 1, 1, 2, 2, 2, 2]], labels)
    >>> what_if_added(alike, labels, np.array([0, 2])).round(3)
    array([   nan,  0.   ,    nan, -0.333])
    """
    class_labels, subset_labels = all_and_chosen_classes(labels, subset)
    simss_before = subset_scores(similarity, labels, subset_labels).simss
    columns = np.searchsorted(class_labels, subset_labels).tolist()
    return ByClass(similarity, labels).simss_with_each(columns) - simss_before


def what_if_merged(similarity: Similarity, labels: Labels, subset: Subset, a: int, b: int) -> float:
    """SimSS of a subset after its classes a and b are made one; the same as from features under merged labels.

    The similarity G of an image to the merged class is the mean of its similarities to a and b, weighted by their
    numbers of images. An image of a does not count itself:

        G'(i) = ((n_a - 1) G(i, a) + n_b G(i, b)) / (n_a + n_b - 1)

    similarity, labels: the result G of class_similarity, and the labels given to it.
    subset, a, b:       labels: the classes of the subset, and the two of them to merge.
    Raises FcaError if a or b is not in the subset, if they are one class, or if there is no third class to compare
    with.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1, 2, 2])
    >>> what_if_merged(class_similarity(np.eye(2)[[0, 0, 1, 1, 1, 1]], labels), labels, np.array([0, 1, 2]), 1, 2)
    0.5
    """
    class_labels, subset_labels = all_and_chosen_classes(labels, subset)
    if a == b or not {a, b} <= set(subset_labels.tolist()):
        allowed = f"two different ones of {subset_labels.tolist()}"
        raise FcaError("classes to merge", f"{a} and {b}", allowed, "change them")
    if len(subset_labels) < 3:
        raise FcaError("number of classes", len(subset_labels), "3 or more, to merge two", "take a larger subset")

    # the images and classes of the subset
    rows = np.flatnonzero(np.isin(labels, subset_labels))
    columns = np.searchsorted(class_labels, subset_labels)
    matrix = similarity[np.ix_(rows, columns)]  # a copy: images x subset
    column_of_image = np.searchsorted(subset_labels, labels[rows])

    # the equation above; the first column of the two becomes the merged class
    merged, removed = np.searchsorted(subset_labels, sorted((a, b)))
    is_of_class = column_of_image[:, None] == np.array([merged, removed])  # images x 2
    weights = np.bincount(column_of_image)[[merged, removed]] - is_of_class  # n_a and n_b, without the image itself
    matrix[:, merged] = (matrix[:, [merged, removed]] * weights).sum(axis=1) / weights.sum(axis=1)

    # the second column is removed, and later columns move to the left
    column_of_image[column_of_image == removed] = merged
    column_of_image = column_of_image - (column_of_image > removed)
    return scores_from_similarity(np.delete(matrix, removed, axis=1), column_of_image).simss


def random_simss(
    similarity: Similarity, labels: Labels, size: int, draws: int = 1000, seed: int = 0
) -> Float[np.ndarray, " subsets"]:
    """SimSS of random subsets of `size` classes, drawn independently; of every subset if there are at most `draws`.

    similarity, labels: the result of class_similarity, and the labels given to it.
    draws: the number of random subsets.
    seed:  of numpy's default generator, together with the size.
    Raises FcaError unless 2 <= size <= number of classes.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1, 2, 2])
    >>> random_simss(class_similarity(np.eye(3)[labels], labels), labels, 2)
    array([0.5, 0.5, 0.5])
    """
    images = ByClass(similarity, labels)
    n_classes = len(images.class_labels)
    _check_size(size, n_classes)
    if comb(n_classes, size) <= draws:
        return np.array([images.simss(subset) for subset in combinations(range(n_classes), size)])

    rng = np.random.default_rng([seed, size])
    simss = []
    for _ in range(draws):
        subset = sorted(rng.choice(n_classes, size, replace=False).tolist())
        simss.append(images.simss(subset))
    return np.array(simss)


def _check_size(size: int, n_classes: int) -> None:
    if not 2 <= size <= n_classes:
        raise FcaError("size of the subset", size, f"2 to {n_classes}, the classes there are", "change it")


def _add_best_class(images: ByClass, subset: tuple[int, ...], sign: float) -> tuple[tuple[int, ...], float]:
    """Add the class that makes sign * SimSS smallest; returns the larger subset (sorted) and this score.

    subset: columns of the matrix, not labels.
    """
    scores = sign * images.simss_with_each(subset)
    best = int(np.nanargmin(scores))
    return tuple(sorted((*subset, best))), float(scores[best])


def _swap_classes(images: ByClass, subset: tuple[int, ...], score: float, sign: float) -> tuple[tuple[int, ...], float]:
    """Swap one class of a subset for another, each time the swap that lowers the score most, until none lowers it.

    The score is sign * SimSS, with sign 1 to search for the hardest subset and -1 for the easiest. Returns the last
    subset and its score.

    images: the similarity of images to classes.
    subset: classes as columns of the similarity matrix, not as labels.
    score:  the score of `subset`.
    """
    while True:
        candidates = []
        for removed in subset:
            remaining = tuple(c for c in subset if c != removed)
            # a subset and its score: `subset` itself if no other class is better than the removed one
            candidates.append(_add_best_class(images, remaining, sign))

        best_subset, best_score = min(candidates, key=lambda candidate: candidate[1])
        if best_score > score - SMALLEST_GAIN:  # no swap lowers the score by more than rounding
            return subset, score
        subset = best_subset
        score = best_score
