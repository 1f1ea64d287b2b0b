"""Searches replayed on a table of all subdomains, how much they find, and simulated tables to compare policies on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, repeat
from math import comb
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int8
from scipy.special import expit

from fca.stats.ask import ask_until_done
from fca.studies.generate.stats.domain import Domain
from fca.studies.search.stats.policies import make_policy
from fca.studies.search.stats.visits import SearchVisits
from fca.types import FcaError, check_choice, keyed_rng

INTERCEPT = 2.2  # mean logit of all tables but scattered ones
HIGH_LOGIT, FAILING_LOGIT = 4.0, -1.0  # of a scattered table: most subdomains, and those that fail
FAILING_SHARE = 0.04  # of the subdomains of a scattered table
# standard deviations, in logits, of the effects of single subdomains, of values, of pairs, of triples
_STRUCTURED = (0.3, 0.8, 0.35)
SPREADS = {
    "structured": _STRUCTURED,
    "harder": (0.4, 0.8, 0.5, 0.2),
    "none": (),
    "dominant": (0.3, 0.2),
    "scattered": (0.3,),
}


class Simulated(NamedTuple):
    """A table of all subdomains.

    probability: that an image of the subdomain is right.    right: whether each of the images is (1, 0).
    """

    probability: Float[np.ndarray, " subdomains"]
    right: Int8[np.ndarray, "subdomains images"]


class Replay(NamedTuple):
    """The visits of a search in their order: subdomain, number of right images, and number of images."""

    visited: Int[np.ndarray, " visits"]
    correct: Int[np.ndarray, " visits"]
    n_images: Int[np.ndarray, " visits"]

    @property
    def accuracy(self) -> Float[np.ndarray, " visits"]:
        """Of each visit; NaN without images."""
        accuracy = np.full(len(self.n_images), np.nan)
        return np.divide(self.correct, self.n_images, accuracy, where=self.n_images > 0)


def simulated(domain: Domain, seed: int, kind: str = "structured", images: int = 50) -> Simulated:
    """A random table of subdomains x images: which conditions are hard, and which images are right.

    The kind of table decides how the logit of a subdomain's accuracy p is drawn:

    structured: logit p = 2.2 + N(0, 0.8²) per value + N(0, 0.35²) per pair of values + N(0, 0.3²) per subdomain.
    harder:     as structured, with standard deviations 0.5 for pairs, 0.2 for triples, 0.4 for subdomains.
    none:       only effects of subdomains, with the total spread of `structured`, so that attributes predict nothing.
    dominant:   one attribute, drawn at random, has nearly all of the spread.
    scattered:  accuracy is about 98 %, but about 27 % in 4 % of the subdomains, which are drawn at random.

    images: number of images of each subdomain.    Raises FcaError for another kind.

    >>> simulated(Domain({"a": [0, 1], "b": [0, 1, 2]}), seed=0, images=20).right.shape
    (6, 20)
    """
    check_choice("kind of table", kind, SPREADS)
    rng = keyed_rng(seed, "simulated", kind)
    n_subdomains = len(domain)
    n_attributes = len(domain.attributes)

    # standard deviation of a structured table's logits: a subdomain has C(attributes, n) tuples of n values, whose
    # effects are independent
    subdomain_sd, *tuple_sds = _STRUCTURED
    variances = [subdomain_sd**2, *(comb(n_attributes, n) * sd**2 for n, sd in enumerate(tuple_sds, 1))]
    total_sd = np.sqrt(sum(variances))

    # SPREADS has the standard deviations of the effects in a table of this kind: of a subdomain, then of tuples of 1,
    # 2, ... values. It has no entries for `none`, where subdomains get the whole spread
    subdomain_sd, *tuple_sds = SPREADS[kind] or (total_sd,)
    logit = rng.normal(HIGH_LOGIT if kind == "scattered" else INTERCEPT, subdomain_sd, n_subdomains)
    for strength, tuple_sd in enumerate(tuple_sds, 1):  # values, pairs, triples
        for _, cells in domain.indicators(strength):  # cells: subdomains x tuples of values, 0 or 1
            logit += cells @ rng.normal(0, tuple_sd, cells.shape[1])

    if kind == "dominant":
        attribute = rng.integers(n_attributes)
        _, cells = list(domain.indicators(1))[attribute]
        logit += cells @ rng.normal(0, total_sd, cells.shape[1])
    elif kind == "scattered":
        n_failing = max(1, round(FAILING_SHARE * n_subdomains))
        logit[rng.permutation(n_subdomains)[:n_failing]] = FAILING_LOGIT

    probability = expit(logit)
    right = rng.random((n_subdomains, images)) < probability[:, None]
    return Simulated(probability, right.astype(np.int8))


def replay(
    domain: Domain,
    right: Int8[np.ndarray, "subdomains images"],
    name: str,
    seed: int,
    batches: Sequence[int] = (50,),
    most: int | None = None,
    **options: Any,
) -> Replay:
    """Run a search in which images are not drawn but looked up in a table of all subdomains; returns its visits.

    name, seed, options: of the policy, see `make_policy`, which raises FcaError for wrong ones.
    right:   for each subdomain, whether its images are right, in the order drawn: 1 or 0; -1 where there is none.
    batches: number of images of the first, second, ... visit of a subdomain; the last number applies to later visits. A
             visit has fewer images if fewer remain in the table.
    most:    the largest number of visits; None: as many as there are subdomains.
    """
    policy = make_policy(name, domain, seed, **options)
    visits = SearchVisits(policy, len(domain) if most is None else most)
    # iterators, so that each visit of a subdomain takes the next images and the next size
    images_by_subdomain = [iter(row[row >= 0].tolist()) for row in right]
    sizes_by_subdomain = [chain(batches, repeat(batches[-1])) for _ in right]

    def next_images(subdomain: int) -> tuple[int, int]:
        """The next images of a subdomain: how many are right, and how many there are."""
        size = next(sizes_by_subdomain[subdomain])
        images = list(islice(images_by_subdomain[subdomain], size))
        return sum(images), len(images)

    ask_until_done(visits, next_images)
    return Replay(*visits.history)


def accuracies(right: Int8[np.ndarray, "subdomains images"]) -> Float[np.ndarray, " subdomains"]:
    """Share of each subdomain's images that are right; NaN without images."""
    n_right = (right == 1).sum(axis=1)
    n_shown = (right >= 0).sum(axis=1)
    return Replay(np.arange(len(right)), n_right, n_shown).accuracy


def worst(accuracy: Float[np.ndarray, " subdomains"], share: float = 0.1) -> Bool[np.ndarray, " subdomains"]:
    """Which subdomains are the worst: this share of those that have an accuracy, such as 103 of 1,032.

    At least one is. Of equal accuracies at the edge, the first subdomains are taken.
    Raises FcaError where no accuracy is known.

    >>> worst(np.array([0.5, 0.2, 0.9, 0.2]), 0.25)
    array([False,  True, False, False])
    """
    n_known = int(np.isfinite(accuracy).sum())
    if not n_known:
        raise FcaError("accuracies", "none", "one subdomain with images, or more", "draw images first")
    n_lowest = max(1, round(share * n_known))
    lowest = np.argsort(accuracy, kind="stable")[:n_lowest]
    return np.isin(np.arange(len(accuracy)), lowest)


def coverage(visited: Int[np.ndarray, " n"], lowest: Bool[np.ndarray, " subdomains"]) -> Float[np.ndarray, " n"]:
    """Share of the `worst` subdomains that were visited, after each visit.

    visited: the subdomain of each visit.    lowest: which subdomains are the worst.

    >>> coverage(np.array([3, 1, 1, 0]), np.array([True, True, False, False]))
    array([0. , 0.5, 0.5, 1. ])
    """
    _, first_visits = np.unique(visited, return_index=True)  # a further visit of a subdomain finds nothing new
    is_first_visit = np.isin(np.arange(len(visited)), first_visits)
    return np.cumsum(is_first_visit & lowest[visited]) / lowest.sum()


def visits_until(covered: Float[np.ndarray, " visits"], share: float = 1.0) -> float:
    """Visits until this share of the worst was visited (see `coverage`); NaN where it never was.

    >>> visits_until(np.array([0.0, 0.5, 0.5, 1.0])), visits_until(np.array([0.0, 0.5]))
    (4.0, nan)
    """
    is_reached = covered >= share - 1e-9  # rounding of a sum
    if not is_reached.any():
        return float("nan")
    return float(is_reached.argmax() + 1)
