"""Which classes are hard to distinguish by SimSS (arXiv:2411.01099, eq. 4), and the effect of adding or merging some.

All of it comes from the matrix of `class_similarity`, the mean similarity of every image to every class: a pair needs
two of its columns, a subset its rows and columns, and a merged class is a weighted mean of two columns.
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
    check_number,
    chosen_classes,
    scores_of,
    silhouette,
    subset_scores,
)
from fca.types import FcaError

SWAPPED_SUBSETS = 10  # of the grown subsets, those that swaps improve
SMALLEST_GAIN = 1e-12  # less is rounding

PerClass = Float[np.ndarray, " classes"]
PairScores = Float[np.ndarray, "classes classes"]


@dataclass(frozen=True)
class ByClass:
    """A matrix of class_similarity with its images by class; classes are columns here, not labels.

    Raises FcaError for fewer than two classes.

    >>> labels = np.array([5, 5, 9, 9])
    >>> ByClass(np.array([[1.0, 0.5]] * 2 + [[0.5, 1.0]] * 2), labels).simss([0, 1])
    0.5
    """

    similarity: Similarity
    labels: Labels

    def __post_init__(self) -> None:
        check_number(len(self.class_labels))

    @cached_property
    def class_labels(self) -> Integer[np.ndarray, " classes"]:
        """Labels, sorted: the label of each column."""
        return np.unique(self.labels)

    @cached_property
    def column(self) -> Integer[np.ndarray, " images"]:
        """Column of each image's class."""
        return np.searchsorted(self.class_labels, self.labels)

    @cached_property
    def counts(self) -> Integer[np.ndarray, " classes"]:
        """Images of each class."""
        return np.bincount(self.column)

    @cached_property
    def members(self) -> list[Integer[np.ndarray, " members"]]:
        """Rows of each class' images."""
        return np.split(np.argsort(self.column, kind="stable"), np.cumsum(self.counts)[:-1])

    @cached_property
    def own_similarity(self) -> Float[np.ndarray, " images"]:
        """Similarity of each image to the others of its class."""
        return self.similarity[np.arange(len(self.column)), self.column]

    def mean_silhouette(self, c: int, nearest: Float[np.ndarray, "members classes"]) -> PerClass:
        """Mean silhouette of the images of class c, for each of several similarities to the nearest other class."""
        own_similarity = np.broadcast_to(self.own_similarity[self.members[c], None], nearest.shape)
        return silhouette(own_similarity, nearest).mean(axis=0)

    def simss_with_each(self, subset: Sequence[int]) -> PerClass:
        """SimSS of these classes with each other class added; NaN for those among them."""
        nearest = self._nearest(subset)
        means = np.bincount(self.column, weights=silhouette(self.own_similarity, nearest)) / self.counts
        for c in subset:
            rows = self.members[c]
            means += self.mean_silhouette(c, np.maximum(nearest[rows, None], self.similarity[rows]))
        means[list(subset)] = np.nan
        return means / (len(subset) + 1)

    def simss(self, subset: Sequence[int]) -> float:
        """SimSS of these classes."""
        rows = np.concatenate([self.members[c] for c in subset])
        counts = [len(self.members[c]) for c in subset]
        class_of_row = np.repeat(np.arange(len(subset)), counts)
        return scores_of(self.similarity[np.ix_(rows, np.asarray(subset))], class_of_row).simss

    def _nearest(self, subset: Sequence[int]) -> Float[np.ndarray, " images"]:
        """Similarity of every image to the nearest of these classes that is not its own."""
        columns = self.similarity[:, list(subset)]
        for i, c in enumerate(subset):
            columns[self.members[c], i] = -np.inf
        return columns.max(axis=1)


class Extreme(NamedTuple):
    """The classes (labels, sorted) of a hardest or easiest subset, and their SimSS."""

    classes: tuple[int, ...]
    simss: float


def pair_simss(similarity: Similarity, labels: Labels) -> PairScores:
    """SimSS of every subset of two classes: symmetric, NaN on the diagonal (a class with itself is no subset).

    With D(i, c) = (G(i, own) - G(i, c)) / max(G(i, own), G(i, c)) and d(a, c) its mean over the images of class a,
    SimSS({a, b}) = (d(a, b) + d(b, a)) / 2.

    similarity, labels: the result of class_similarity, and the labels given to it; row and column k of the result are
    the k-th smallest label.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1])
    >>> pair_simss(class_similarity(np.eye(2)[labels], labels), labels)
    array([[nan, 0.5],
           [0.5, nan]])
    """
    matrix = ByClass(similarity, labels)
    rows_by_class = enumerate(matrix.members)
    one_sided = np.stack([matrix.mean_silhouette(c, similarity[rows]) for c, rows in rows_by_class])
    pairs = (one_sided + one_sided.T) / 2
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

    The best `starts` pairs grow by the best class at a time; then the best few change one class for another until no
    such swap helps. Exact for two classes, and for three if all pairs are tried (200 starts: up to 20 classes);
    beyond that no single swap improves the result.

    pairs: pair_simss of the same matrix, if known.    Raises FcaError unless 2 <= size <= number of classes.

    >>> from fca.stats.similarity import class_similarity
    >>> labels, angles = np.arange(4).repeat(2), np.array([0.0, 0.1, 1.5, 1.6, 1.8, 1.9, 3.0, 3.1])
    >>> features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    >>> extreme_subset(class_similarity(features, labels), labels, 2).classes
    (1, 2)
    """
    matrix = ByClass(similarity, labels)
    n_classes = len(matrix.class_labels)
    _check_size(size, n_classes)

    # Scores are negative where the easiest is sought, so that the lowest score is the best
    sign = 1.0 if hardest else -1.0
    first, second = np.triu_indices(n_classes, 1)
    pair_scores = sign * (pair_simss(similarity, labels) if pairs is None else pairs)[first, second]
    n_starts = 1 if size == 2 else starts
    best_pairs = np.argsort(pair_scores, kind="stable")[:n_starts]
    score_by_subset: dict[tuple[int, ...], float] = {
        (int(first[pair]), int(second[pair])): float(pair_scores[pair]) for pair in best_pairs
    }

    for _ in range(size - 2):  # two subsets that become equal continue as one
        score_by_subset = dict(_with_best(matrix, subset, sign) for subset in score_by_subset)

    if 2 < size < n_classes:
        best_subsets = sorted(score_by_subset, key=lambda subset: score_by_subset[subset])[:SWAPPED_SUBSETS]
        score_by_subset = dict(_swapped(matrix, subset, score_by_subset[subset], sign) for subset in best_subsets)

    subset = min(score_by_subset, key=lambda subset: (score_by_subset[subset], subset))
    classes = tuple(int(label) for label in matrix.class_labels[list(subset)])
    return Extreme(classes, sign * score_by_subset[subset])


def what_if_added(similarity: Similarity, labels: Labels, subset: Subset) -> PerClass:
    """The change of SimSS of a subset (labels, two or more) by adding each other class; NaN for those already in it.

    Entry k is the k-th smallest label. Raises FcaError for a label without images.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> alike = class_similarity(np.eye(3)[[0, 0, 1, 1, 2, 2, 2, 2]], labels)
    >>> what_if_added(alike, labels, np.array([0, 2])).round(3)
    array([   nan,  0.   ,    nan, -0.333])
    """
    class_labels, chosen = chosen_classes(labels, subset)
    before = subset_scores(similarity, labels, chosen).simss
    columns = np.searchsorted(class_labels, chosen).tolist()
    return ByClass(similarity, labels).simss_with_each(columns) - before


def what_if_merged(similarity: Similarity, labels: Labels, subset: Subset, a: int, b: int) -> float:
    """SimSS of a subset (labels) if its classes a and b were one; the same as from features under merged labels.

    An image is as similar to the merged class as to a and b on average, weighted by their images; an image of a counts
    the n_a - 1 others of a, then the n_b of b:    a'(i) = ((n_a - 1) G(i, a) + n_b G(i, b)) / (n_a + n_b - 1).

    Raises FcaError if a or b is not in the subset, if they are one class, or if no third is there to compare with.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1, 2, 2])
    >>> what_if_merged(class_similarity(np.eye(2)[[0, 0, 1, 1, 1, 1]], labels), labels, np.array([0, 1, 2]), 1, 2)
    0.5
    """
    class_labels, chosen = chosen_classes(labels, subset)
    if a == b or not {a, b} <= set(chosen.tolist()):
        raise FcaError("classes to merge", f"{a} and {b}", f"two different ones of {chosen.tolist()}", "change them")
    if len(chosen) < 3:
        raise FcaError("number of classes", len(chosen), "3 or more, to merge two", "take a larger subset")

    rows = np.flatnonzero(np.isin(labels, chosen))
    matrix = similarity[np.ix_(rows, np.searchsorted(class_labels, chosen))]  # images x classes of the subset
    column = np.searchsorted(chosen, labels[rows])  # of each image's class
    merged, removed = np.searchsorted(chosen, sorted((a, b)))
    pair = np.array([merged, removed])

    # Weighted mean over both classes, without the image itself
    is_own_class = column[:, None] == pair
    n_others = np.bincount(column)[pair] - is_own_class  # images x 2
    matrix[:, merged] = (matrix[:, pair] * n_others).sum(axis=1) / n_others.sum(axis=1)

    column[column == removed] = merged
    column -= column > removed
    return scores_of(np.delete(matrix, removed, axis=1), column).simss


def random_simss(
    similarity: Similarity, labels: Labels, size: int, draws: int = 1000, seed: int = 0
) -> Float[np.ndarray, " subsets"]:
    """SimSS of random subsets of `size` classes, each drawn by itself; of every subset where there are no more.

    seed: of numpy's default generator, together with the size. Raises FcaError as extreme_subset does.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1, 2, 2])
    >>> random_simss(class_similarity(np.eye(3)[labels], labels), labels, 2)
    array([0.5, 0.5, 0.5])
    """
    matrix = ByClass(similarity, labels)
    n_classes = len(matrix.class_labels)
    _check_size(size, n_classes)
    if comb(n_classes, size) <= draws:
        return np.array([matrix.simss(subset) for subset in combinations(range(n_classes), size)])

    rng = np.random.default_rng([seed, size])
    scores = []
    for _ in range(draws):
        subset = sorted(rng.choice(n_classes, size, replace=False).tolist())
        scores.append(matrix.simss(subset))
    return np.array(scores)


def _check_size(size: int, classes: int) -> None:
    if not 2 <= size <= classes:
        raise FcaError("size of the subset", size, f"2 to {classes}, the classes there are", "change it")


def _with_best(matrix: ByClass, subset: tuple[int, ...], sign: float) -> tuple[tuple[int, ...], float]:
    """The subset with the best further class added, and its score."""
    scores = sign * matrix.simss_with_each(subset)
    best = int(np.nanargmin(scores))
    return tuple(sorted((*subset, best))), float(scores[best])


def _swapped(matrix: ByClass, subset: tuple[int, ...], score: float, sign: float) -> tuple[tuple[int, ...], float]:
    """Swap one class for another, each time the swap that helps most, until none does."""
    while True:
        swaps = []
        for removed in subset:
            remaining = tuple(c for c in subset if c != removed)
            swaps.append(_with_best(matrix, remaining, sign))
        best_subset, best_score = min(swaps, key=lambda swap: swap[1])
        if best_score > score - SMALLEST_GAIN:
            return subset, score
        subset = best_subset
        score = best_score
