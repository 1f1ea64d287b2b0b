"""Searches replayed on a table of all subdomains, what they found, and tables drawn to compare policies on."""

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

INTERCEPT = 2.2  # logit of an average subdomain
HIGH = 4.0  # logit of the subdomains of `scattered` that do not fail
FAILING = -1.0  # logit of those that do
SCATTERED = 0.04  # their share
_STRUCTURED = (0.3, 0.8, 0.35)
# standard deviations, in logits, of the effects of single subdomains, of values, of pairs, of triples
SPREADS: dict[str, tuple[float, ...]] = {
    "structured": _STRUCTURED,
    "harder": (0.4, 0.8, 0.5, 0.2),
    "none": (),
    "dominant": (0.3, 0.2),
    "scattered": (0.3,),
}


class Simulated(NamedTuple):
    """A table of all subdomains. probability: of an image to be right; right: whether each of the images is (1, 0)."""

    probability: Float[np.ndarray, " subdomains"]
    right: Int8[np.ndarray, "subdomains images"]


class Replay(NamedTuple):
    """The visits of a search in their order: the subdomain of each, how many of its images were right, and shown."""

    visited: Int[np.ndarray, " visits"]
    correct: Int[np.ndarray, " visits"]
    n_images: Int[np.ndarray, " visits"]

    @property
    def accuracy(self) -> Float[np.ndarray, " visits"]:
        """Of each visit; NaN without images."""
        return np.divide(self.correct, self.n_images, np.full(len(self.n_images), np.nan), where=self.n_images > 0)


def simulated(domain: Domain, seed: int, kind: str = "structured", images: int = 50) -> Simulated:
    """A table drawn at random: which conditions are hard, and which images are right.

    structured: logit p = 2.2 + N(0, .8) a value + N(0, .35) a pair of values + N(0, .3) a subdomain.
    harder:     pairs .5, triples .2, subdomains .4.        none: subdomains alone, with the spread of `structured`.
    dominant:   one attribute, drawn, has nearly all of it. scattered: 98 % everywhere but for 4 % of the subdomains,
                drawn, which have 27 %.    Raises FcaError for another kind.

    >>> simulated(Domain({"a": [0, 1], "b": [0, 1, 2]}), seed=0, images=20).right.shape
    (6, 20)
    """
    check_choice("kind of table", kind, SPREADS)
    rng = keyed_rng(seed, "simulated", kind)
    n_subdomains = len(domain)
    n_attributes = len(domain.attributes)

    # Standard deviation of all effects of `structured` together: one of the subdomain, C(attributes, n) of n values
    variances = [comb(n_attributes, n) * spread**2 for n, spread in enumerate(_STRUCTURED)]
    total_spread = np.sqrt(sum(variances))

    own_spread, *spreads_of_cells = SPREADS[kind] or (total_spread,)
    mean = HIGH if kind == "scattered" else INTERCEPT
    logit = rng.normal(mean, own_spread, n_subdomains)
    for strength, spread in enumerate(spreads_of_cells, 1):
        for _, cells in domain.indicators(strength):
            logit += cells @ rng.normal(0, spread, cells.shape[1])

    if kind == "dominant":
        _, cells = list(domain.indicators(1))[rng.integers(n_attributes)]
        logit += cells @ rng.normal(0, total_spread, cells.shape[1])
    elif kind == "scattered":
        n_failing = max(1, round(SCATTERED * n_subdomains))
        logit[rng.permutation(n_subdomains)[:n_failing]] = FAILING

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
    """A search whose images are looked up: the policy of this name and seed (see `make_policy`) on a table.

    right:   of each subdomain's images in the order drawn: 1, 0, or -1 where there is none, which is skipped.
    batches: images of a first visit, a second, ...; further ones as the last. A visit shows what is left.
    most:    visits; None: as many as there are subdomains.    options: of the policy.
    """
    visits = SearchVisits(make_policy(name, domain, seed, **options), len(domain) if most is None else most)
    images = [iter(row[row >= 0].tolist()) for row in right]
    sizes = [chain(batches, repeat(batches[-1])) for _ in right]

    def next_images(subdomain: int) -> tuple[int, int]:
        visit = list(islice(images[subdomain], next(sizes[subdomain])))
        return sum(visit), len(visit)

    ask_until_done(visits, next_images)
    return Replay(*visits.history)


def accuracies(right: Int8[np.ndarray, "subdomains images"]) -> Float[np.ndarray, " subdomains"]:
    """Share of each subdomain's images that are right; NaN without images."""
    n_images = (right >= 0).sum(axis=1)
    return Replay(np.arange(len(right)), (right == 1).sum(axis=1), n_images).accuracy


def worst(accuracy: Float[np.ndarray, " subdomains"], share: float = 0.1) -> Bool[np.ndarray, " subdomains"]:
    """Which subdomains are the share of lowest accuracy, of those that have one: 103 of 1,032, ties by row number.

    Raises FcaError where no accuracy is known.

    >>> worst(np.array([0.5, 0.2, 0.9, 0.2]), 0.25)
    array([False,  True, False, False])
    """
    n_known = int(np.isfinite(accuracy).sum())
    if not n_known:
        raise FcaError("accuracies", "none", "one subdomain with images, or more", "draw images first")
    n_worst = max(1, round(share * n_known))
    lowest = np.argsort(accuracy, kind="stable")[:n_worst]
    return np.isin(np.arange(len(accuracy)), lowest)


def coverage(visited: Int[np.ndarray, " n"], lowest: Bool[np.ndarray, " subdomains"]) -> Float[np.ndarray, " n"]:
    """Share of the `worst` subdomains that were visited, after each visit.

    >>> coverage(np.array([3, 1, 1, 0]), np.array([True, True, False, False]))
    array([0. , 0.5, 0.5, 1. ])
    """
    _, first_visits = np.unique(visited, return_index=True)
    is_first_visit = np.isin(np.arange(len(visited)), first_visits)
    return np.cumsum(is_first_visit & lowest[visited]) / lowest.sum()


def visits_until(covered: Float[np.ndarray, " visits"], share: float = 1.0) -> float:
    """Visits until this share of the worst was visited (see `coverage`); NaN where it never was.

    >>> visits_until(np.array([0.0, 0.5, 0.5, 1.0])), visits_until(np.array([0.0, 0.5]))
    (4.0, nan)
    """
    reached = covered >= share - 1e-9  # of a float sum
    return float(reached.argmax() + 1) if reached.any() else float("nan")
