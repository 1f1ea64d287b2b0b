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

CLIMBED = 10  # of the grown subsets are improved by swaps
GAIN = 1e-12  # less is rounding

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
        check_number(len(self.known))

    @cached_property
    def known(self) -> Integer[np.ndarray, " classes"]:
        """Labels, sorted: the label of each column."""
        return np.unique(self.labels)

    @cached_property
    def own(self) -> Integer[np.ndarray, " images"]:
        """Column of each image's class."""
        return np.searchsorted(self.known, self.labels)

    @cached_property
    def counts(self) -> Integer[np.ndarray, " classes"]:
        """Images of each class."""
        return np.bincount(self.own)

    @cached_property
    def members(self) -> list[Integer[np.ndarray, " members"]]:
        """Rows of each class' images."""
        return np.split(np.argsort(self.own, kind="stable"), np.cumsum(self.counts)[:-1])

    @cached_property
    def to_own(self) -> Float[np.ndarray, " images"]:
        """Similarity of each image to the others of its class."""
        return self.similarity[np.arange(len(self.own)), self.own]

    def mean_silhouette(self, c: int, nearest: Float[np.ndarray, "members classes"]) -> PerClass:
        """Mean silhouette of the images of class c, for each of several similarities to the nearest other class."""
        own = np.broadcast_to(self.to_own[self.members[c], None], nearest.shape)
        return silhouette(own, nearest).mean(axis=0)

    def simss_with_each(self, subset: Sequence[int]) -> PerClass:
        """SimSS of these classes with each other class added; NaN for those among them."""
        nearest = self._nearest(subset)
        means = np.bincount(self.own, weights=silhouette(self.to_own, nearest)) / self.counts
        for c in subset:
            rows = self.members[c]
            means += self.mean_silhouette(c, np.maximum(nearest[rows, None], self.similarity[rows]))
        means[list(subset)] = np.nan
        return means / (len(subset) + 1)

    def simss(self, subset: Sequence[int]) -> float:
        """SimSS of these classes."""
        rows = np.concatenate([self.members[c] for c in subset])
        own = np.repeat(np.arange(len(subset)), [len(self.members[c]) for c in subset])
        return scores_of(self.similarity[np.ix_(rows, np.asarray(subset))], own).simss

    def _nearest(self, subset: Sequence[int]) -> Float[np.ndarray, " images"]:
        """Similarity of every image to the nearest of these classes that is not its own."""
        columns = self.similarity[:, list(subset)]
        for place, c in enumerate(subset):
            columns[self.members[c], place] = -np.inf
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
    images = ByClass(similarity, labels)
    one_sided = np.stack([images.mean_silhouette(c, similarity[rows]) for c, rows in enumerate(images.members)])
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
    such swap helps. Exact for two classes, and for three where all pairs are tried (200 starts: up to 20 classes);
    beyond that no single swap improves the result.

    pairs: pair_simss of the same matrix, if known.    Raises FcaError unless 2 <= size <= number of classes.

    >>> from fca.stats.similarity import class_similarity
    >>> labels, angles = np.arange(4).repeat(2), np.array([0.0, 0.1, 1.5, 1.6, 1.8, 1.9, 3.0, 3.1])
    >>> features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    >>> extreme_subset(class_similarity(features, labels), labels, 2).classes
    (1, 2)
    """
    images = ByClass(similarity, labels)
    _check_size(size, len(images.known))
    sign = 1.0 if hardest else -1.0
    first, second = np.triu_indices(len(images.known), 1)
    scores = sign * (pair_simss(similarity, labels) if pairs is None else pairs)[first, second]
    best = np.argsort(scores, kind="stable")[: 1 if size == 2 else starts]
    grown: dict[tuple[int, ...], float] = {(int(first[p]), int(second[p])): float(scores[p]) for p in best}
    for _ in range(size - 2):  # two that become equal continue as one
        grown = dict(_with_best(images, subset, sign) for subset in grown)
    if 2 < size < len(images.known):
        few = sorted(grown, key=lambda subset: grown[subset])[:CLIMBED]
        grown = dict(_swapped(images, subset, grown[subset], sign) for subset in few)
    subset = min(grown, key=lambda subset: (grown[subset], subset))
    return Extreme(tuple(int(label) for label in images.known[list(subset)]), sign * grown[subset])


def what_if_added(similarity: Similarity, labels: Labels, subset: Subset) -> PerClass:
    """The change of SimSS of a subset (labels, two or more) by adding each other class; NaN for those already in it.

    Entry k is the k-th smallest label. Raises FcaError for a label without images.

    >>> from fca.stats.similarity import class_similarity
    >>> labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> alike = class_similarity(np.eye(3)[[0, 0, 1, 1, 2, 2, 2, 2]], labels)
    >>> what_if_added(alike, labels, np.array([0, 2])).round(3)
    array([   nan,  0.   ,    nan, -0.333])
    """
    known, chosen = chosen_classes(labels, subset)
    before = subset_scores(similarity, labels, chosen).simss
    return ByClass(similarity, labels).simss_with_each(np.searchsorted(known, chosen).tolist()) - before


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
    known, chosen = chosen_classes(labels, subset)
    if a == b or not {a, b} <= set(chosen.tolist()):
        raise FcaError("classes to merge", f"{a} and {b}", f"two different ones of {chosen.tolist()}", "change them")
    if len(chosen) < 3:
        raise FcaError("number of classes", len(chosen), "3 or more, to merge two", "take a larger subset")
    rows = np.flatnonzero(np.isin(labels, chosen))
    matrix = similarity[np.ix_(rows, np.searchsorted(known, chosen))]
    own = np.searchsorted(chosen, labels[rows])
    kept, gone = np.searchsorted(chosen, sorted((a, b)))
    others = np.bincount(own)[[kept, gone]] - (own[:, None] == np.array([kept, gone]))
    matrix[:, kept] = (matrix[:, [kept, gone]] * others).sum(axis=1) / others.sum(axis=1)
    own[own == gone] = kept
    return scores_of(np.delete(matrix, gone, axis=1), own - (own > gone)).simss


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
    images = ByClass(similarity, labels)
    classes = len(images.known)
    _check_size(size, classes)
    if comb(classes, size) <= draws:
        return np.array([images.simss(subset) for subset in combinations(range(classes), size)])
    rng = np.random.default_rng([seed, size])
    return np.array([images.simss(sorted(rng.choice(classes, size, replace=False).tolist())) for _ in range(draws)])


def _check_size(size: int, classes: int) -> None:
    if not 2 <= size <= classes:
        raise FcaError("size of the subset", size, f"2 to {classes}, the classes there are", "change it")


def _with_best(images: ByClass, subset: tuple[int, ...], sign: float) -> tuple[tuple[int, ...], float]:
    scores = sign * images.simss_with_each(subset)
    best = int(np.nanargmin(scores))
    return tuple(sorted((*subset, best))), float(scores[best])


def _swapped(images: ByClass, subset: tuple[int, ...], score: float, sign: float) -> tuple[tuple[int, ...], float]:
    """Swap one class for another, each time the swap that helps most, until none does."""
    while True:
        rests = [tuple(c for c in subset if c != out) for out in subset]
        best, found = min((_with_best(images, rest, sign) for rest in rests), key=lambda one: one[1])
        if found > score - GAIN:
            return subset, score
        subset, score = best, found
