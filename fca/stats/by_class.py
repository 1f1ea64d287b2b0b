"""The images of a similarity matrix class by class, and SimSS of any subset of classes (arXiv:2411.01099, eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Integer

from fca.nouns import FcaError
from fca.stats.similarity import scores_of, silhouette

Similarity = Float[np.ndarray, "images classes"]
Labels = Integer[np.ndarray, " images"]


@dataclass(frozen=True)
class ByClass:
    """A matrix of class_similarity with its images by class. Classes are columns here, not labels.

    Raises FcaError for fewer than two classes.

    >>> labels = np.array([5, 5, 9, 9])
    >>> ByClass(np.array([[1.0, 0.5]] * 2 + [[0.5, 1.0]] * 2), labels).simss([0, 1])
    0.5
    """

    similarity: Similarity
    labels: Labels

    def __post_init__(self) -> None:
        if len(self.known) < 2:
            raise FcaError("number of classes", len(self.known), "2 or more", "similarity compares classes: name more")

    @cached_property
    def known(self) -> Integer[np.ndarray, " classes"]:
        """Labels, sorted: the label of each column."""
        known: np.ndarray = np.unique(self.labels)
        return known

    @cached_property
    def own(self) -> Integer[np.ndarray, " images"]:
        """Column of each image's class."""
        return np.searchsorted(self.known, self.labels)

    @cached_property
    def counts(self) -> Integer[np.ndarray, " classes"]:
        """Images of each class."""
        counts: np.ndarray = np.bincount(self.own)
        return counts

    @cached_property
    def members(self) -> list[Integer[np.ndarray, " members"]]:
        """Rows of each class' images."""
        return np.split(np.argsort(self.own, kind="stable"), np.cumsum(self.counts)[:-1])

    @cached_property
    def to_own(self) -> Float[np.ndarray, " images"]:
        """Similarity of each image to the others of its class."""
        to_own: np.ndarray = self.similarity[np.arange(len(self.own)), self.own]
        return to_own

    def told_apart(self, c: int, nearest: Float[np.ndarray, "members classes"]) -> Float[np.ndarray, " classes"]:
        """Mean silhouette of the images of class c, for each of several similarities to the nearest other class."""
        own = np.broadcast_to(self.to_own[self.members[c], None], nearest.shape)
        means: np.ndarray = silhouette(own, nearest).mean(axis=0)
        return means

    def with_each(self, subset: Sequence[int]) -> Float[np.ndarray, " classes"]:
        """SimSS of these classes and each one more; NaN for those among them."""
        nearest = self._nearest(subset)
        means: np.ndarray = np.bincount(self.own, weights=silhouette(self.to_own, nearest)) / self.counts
        for c in subset:
            rows = self.members[c]
            means = means + self.told_apart(c, np.maximum(nearest[rows, None], self.similarity[rows]))
        means[list(subset)] = np.nan
        scores: np.ndarray = means / (len(subset) + 1)
        return scores

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
        nearest: np.ndarray = columns.max(axis=1)
        return nearest
