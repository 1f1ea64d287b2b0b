"""The similarity scores that the released Few-Class Arena logs, with every quirk of its code.

Source: arXiv:2411.01099 and the code released with it, github.com/fewclassarena/fca (tools/ncls/fc-sim.py and
configs/_base_/sim.py). It goes through the subsets of a data set one after the other, ncl by ncl and within it seed by
seed, and keeps for each class one list of images that it never clears:

a. a class met for the first time gets an empty list, and its first image (of the validation list) is not put in;
b. met again in a later subset, all its images are put in once more, the first one too: a class of n images met k times
   has k n - 1 entries, of which its first image has k - 1 and any other k;
c. S_alpha is one mean over all pairs of entries of one class, pooled over the classes (eq. 1 reads: a mean of class
   means). Copies make pairs of an image with itself, of similarity 1;
d. S_beta is one mean over the pairs (entry i of a class, entry j of a class drawn later) with j > i, counted along the
   lists: the upper triangle of each rectangle. So it depends on the order in which classes were drawn, and of images;
e. SimSS is one mean over all entries (eq. 4 reads: a mean of class means); entries leave out themselves, not their
   copies.

All with sim(i, j) = (cos + 1) / 2. There the cosine is single precision and SimSS of 800 classes takes hours of pairs;
here it is double precision, and sums over entries come from counted sums of unit vectors.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from fca.nouns import FcaError
from fca.stats.similarity import unit_vectors


class ReleasedScores(NamedTuple):
    """What one line of the released log says; NaN where it says nan (no pair to average)."""

    s_alpha: float
    s_beta: float
    simss: float


def released_draw(num_classes: int, ncl: int, seed: int) -> tuple[int, ...]:
    """The classes of a released subset in the order of their draw, which S_beta depends on; never the last class.

    >>> released_draw(1000, 2, seed=0)
    (864, 394)
    """
    return tuple(random.Random(seed).sample(range(num_classes - 1), ncl))


def fca_released(
    features: Float[np.ndarray, "images features"],
    labels: Integer[np.ndarray, " images"],
    subsets_in_order: Sequence[Sequence[int]],
) -> list[ReleasedScores]:
    """The released scores of each subset, carrying the lists over from subset to subset.

    features, labels:  of the test images (there: val), in the order of the released list of images.
    subsets_in_order:  the labels of each subset in the order of their draw; the subsets in the order of the loop.

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
    members = {int(c): np.flatnonzero(labels == c) for c in np.unique(labels)}
    met = dict.fromkeys(members, 0)
    lines = []
    for subset in subsets_in_order:
        _check(subset, members)
        for c in subset:
            met[c] += 1
        lists = _Lists([units[members[c]] for c in subset], np.array([met[c] for c in subset]))
        lines.append(ReleasedScores(lists.s_alpha(), lists.s_beta(), lists.simss()))
    return lines


def _check(subset: Sequence[int], members: Mapping[int, np.ndarray]) -> None:
    if len(subset) < 2 or len(set(subset)) < len(subset):
        raise FcaError("classes of a subset", list(subset), "two or more different ones", "mend the subset")
    for c in subset:
        if len(members.get(c, ())) < 2:
            allowed = "two images or more a class"
            raise FcaError("images of class", f"{len(members.get(c, ()))} of {c}", allowed, "leave the subset out")


@dataclass(frozen=True)
class _Lists:
    """The lists of one subset: entry j of a class is its image (j + 1) mod n, up to entry k n - 2.

    images: unit vectors, one array a class in the order of the draw.    times: k, how often each class was met.
    """

    images: list[Float[np.ndarray, "_ features"]]
    times: Integer[np.ndarray, " classes"]

    @cached_property
    def sizes(self) -> Integer[np.ndarray, " classes"]:
        return np.array([len(own) for own in self.images])

    @cached_property
    def lengths(self) -> Integer[np.ndarray, " classes"]:
        lengths: np.ndarray = self.times * self.sizes - 1
        return lengths

    @cached_property
    def sums(self) -> Float[np.ndarray, "classes features"]:
        """Of the entries of each class."""
        return np.stack([k * own.sum(axis=0) - own[0] for own, k in zip(self.images, self.times, strict=True)])

    def s_alpha(self) -> float:
        """Half of all ordered pairs of entries of a class, but for an entry with itself."""
        pairs = int((self.lengths * (self.lengths - 1)).sum())
        return _mean_similarity(float((self.sums**2).sum()) - self.lengths.sum(), pairs)

    def s_beta(self) -> float:
        """Down the lists, entry j by entry: that of a class with those above j in the classes drawn before it."""
        flat, starts = np.concatenate(self.images), np.cumsum(self.sizes) - self.sizes
        above = np.zeros_like(self.sums)
        cosines, pairs = 0.0, 0
        for j in range(self.lengths.max()):
            there = self.lengths > j
            entries = flat[starts + (j + 1) % self.sizes] * there[:, None]
            cosines += float(np.einsum("cf,cf->", entries, np.cumsum(above, axis=0) - above))
            counts = np.minimum(j, self.lengths)
            pairs += int((np.cumsum(counts) - counts)[there].sum())
            above += entries
        return _mean_similarity(cosines, pairs)

    def simss(self) -> float:
        """Entry by entry; copies of an image score the same."""
        total = 0.0
        for c, own in enumerate(self.images):
            cosines = own @ self.sums.T
            others = self.lengths - (np.arange(len(self.lengths)) == c)
            if others[c] == 0:
                return float("nan")
            similarity = (cosines - (others < self.lengths)) / others / 2 + 0.5
            to_own = similarity[:, c].copy()
            similarity[:, c] = -np.inf
            nearest = similarity.max(axis=1)
            scored = (to_own - nearest) / np.maximum(to_own, nearest)
            total += self.times[c] * scored.sum() - scored[0]
        return float(total / self.lengths.sum())


def _mean_similarity(cosines: float, pairs: int) -> float:
    """Of so many pairs, from the sum of their cosines."""
    return float((cosines / pairs + 1) / 2) if pairs else float("nan")
