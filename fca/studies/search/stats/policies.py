"""Which subdomain to visit next: by chance, by covering arrays, by a genetic algorithm, or where a model points.

A policy is a pure function of its name, domain, seed, options and the visits so far: a search that was stopped goes on
as it would have. What a policy keeps between calls only saves time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int
from scipy.special import ndtr

from fca.studies.generate.stats.domain import Domain
from fca.studies.search.stats.models import (
    PairwiseGP,
    PerSubdomain,
    Prediction,
    Regression,
    Tuned,
    Visits,
    pooled,
    skill,
    working_logits,
)
from fca.types import FcaError, check_choice

Open = Int[np.ndarray, " open"]
History = Int[np.ndarray, "3 seen"]
POPULATION, MUTATION, CHILDREN = 10, 0.1, 100  # of the genetic algorithm; children are drawn until one is open
WORST, JUDGED = 0.1, 30  # share of the subdomains looked for; how many have images before a model's skill is judged

_STARTS = {"visits": 1, "starts": 10, "reserve": 0.0}
_BO = _STARTS | {"acquisition": "greedy", "fallback": True, "features": None}
POLICIES: Mapping[str, Mapping[str, Any]] = {  # name -> its options and their defaults
    "random": {"visits": 1}, "nwise": {"visits": 1, "strength": 3}, "genetic": _STARTS,
    "bo": _BO, "bo_linear": _BO, "bo_forest": _BO, "bo_svr": _BO,
    "gp_pairwise": _STARTS | {"reserve": 0.05, "acquisition": "worst_decile", "fallback": True},
}  # fmt: skip


class Policy:
    """Visits by chance, and what all policies share. Made by `make_policy`."""

    planned: int | None = None  # visits that the policy plans itself

    def __init__(self, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        self.domain, self.seed, self.options = domain, seed, options
        self.row = {tuple(codes): row for row, codes in enumerate(domain.codes.tolist())}

    def next(self, visited: Visits, correct: Visits, shown: Visits) -> int:
        """The subdomain to visit next, never one that is closed.

        visited, correct, shown: of each visit so far its subdomain, how many of its images were right, and how many
        there were; 0 where they are not there yet or were all refused. Raises FcaError where no subdomain is open.
        """
        closed = np.bincount(visited, minlength=len(self.domain)) >= self.options["visits"]
        closed[visited[shown == 0]] = True
        if closed.all():
            raise FcaError("visits", len(visited), "fewer: no subdomain is open", "stop the search, or raise visits")
        rng = np.random.default_rng([self.seed, len(visited)])
        open_ = rng.permutation(np.flatnonzero(~closed))
        return int(open_[0]) if self._random(visited, shown) else self._choose(open_, rng, visited, correct, shown)

    def skill(self, visited: Visits, correct: Visits, shown: Visits) -> float | None:
        """How well the policy's model predicts accuracies; None for a policy without a model, and before it has one."""
        return None

    def covers(self, visited: Visits, correct: Visits, shown: Visits) -> bool:
        """Whether the next choice covers the domain because the policy's model predicts no better than the mean."""
        return False

    def _random(self, visited: Visits, shown: Visits) -> bool:
        if "starts" not in self.options:
            return False
        n, reserve = len(visited), self.options["reserve"]
        return n < self.options["starts"] or not shown.any() or int((n + 1) * reserve) > int(n * reserve)

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, shown: Visits) -> int:
        return int(open_[0])  # they are in random order


class NWise(Policy):
    """The rows of a covering array, which has every valid tuple of `strength` attributes' values; then by chance."""

    def __init__(self, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        super().__init__(domain, seed, options)
        self.rows = np.random.default_rng(seed).permutation(len(domain))
        if options["strength"] < len(domain.attributes):
            self.rows = np.array([self.row[tuple(codes)] for codes in self._array()])
        self.planned = len(self.rows)

    def _array(self) -> list[list[int]]:
        from covertable import make

        names, attributes = list(self.domain.attributes), [list(values) for values in self.domain.attributes.values()]
        constraints = []
        for rule in self.domain.rules:
            all_of = []
            for at, values in ((names.index(name), values) for name, values in rule["not"].items()):
                excluded = values if isinstance(values, list | tuple) else [values]
                all_of.append({"operator": "in", "left": at, "values": [attributes[at].index(one) for one in excluded]})
            constraints.append({"operator": "not", "condition": {"operator": "and", "conditions": all_of}})
        factors = [list(range(len(values))) for values in attributes]
        return make(factors, strength=self.options["strength"], salt=str(self.seed), constraints=constraints)

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, shown: Visits) -> int:
        left = self.rows[~np.isin(self.rows, visited)]
        return int(left[0] if len(left) else open_[0])


class Genetic(Policy):
    """Children of two of the ten lowest, each attribute's value from either, a tenth of the values drawn anew."""

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, shown: Visits) -> int:
        evidence, allowed = pooled(visited, correct, shown), set(open_.tolist())
        parents = self.domain.codes[evidence.at[np.argsort(evidence.accuracy, kind="stable")[:POPULATION]]]
        sizes = [len(values) for values in self.domain.attributes.values()]
        for _ in range(CHILDREN):
            child = np.where(rng.random(len(sizes)) < 0.5, *parents[rng.integers(len(parents), size=2)])
            child = np.where(rng.random(len(sizes)) < MUTATION, rng.integers(sizes), child)
            if (row := self.row.get(tuple(child.tolist()), -1)) in allowed:
                return row
        return int(open_[0])


class Guided(Policy):
    """Visits where a model points, by its acquisition."""

    def __init__(self, name: str, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        super().__init__(domain, seed, options)
        none = np.empty((len(domain), 0))
        one, pairs = (np.hstack([cells for _, cells in domain.indicators(n)] or [none]) for n in (1, 2))
        self.pace = 50 if name == "bo_forest" else 250  # visits from which on only every second is followed by a fit
        self.cells = pairs if pairs.size else one  # what a covering choice covers
        features = np.asarray(one if options.get("features") is None else options["features"], dtype=float)
        if features.ndim != 2 or len(features) != len(domain) or not np.isfinite(features).all():
            raise FcaError("features", f"shape {features.shape}", f"finite, ({len(domain)}, any)", "a row a subdomain")
        self.model = PairwiseGP(one, pairs) if name == "gp_pairwise" else Regression(name, features, seed)
        self._judged, self._scored = lru_cache(1)(self._judge), lru_cache(1)(self._score)

    def predict(self, visited: Visits, correct: Visits, shown: Visits) -> Prediction:
        """Expected accuracy of every subdomain, with its standard deviation. Raises FcaError without any images."""
        if not shown.any():
            raise FcaError("visits with images", 0, "1 or more", "visit a subdomain first")
        seen, tuned, _ = self._state(visited, correct, shown)
        return self.model.predict(pooled(*seen), tuned)

    def skill(self, visited: Visits, correct: Visits, shown: Visits) -> float | None:
        """Cross-validated share of the variance of accuracies that the model explains; None below 30 subdomains."""
        if len(np.unique(visited[shown > 0])) < JUDGED:
            return None
        seen, tuned, _ = self._state(visited, correct, shown)
        return skill(self.model, pooled(*seen), tuned)

    def covers(self, visited: Visits, correct: Visits, shown: Visits) -> bool:
        may = self.options["fallback"] and not self._random(visited, shown)
        return may and self._state(visited, correct, shown)[2] < 1e-6  # 0, but for rounding

    def _state(self, visited: Visits, correct: Visits, shown: Visits) -> tuple[History, Tuned, float]:
        """Visits with images; what the model chose and its skill (1 below 30) when they had last grown by a tenth."""
        seen = np.array((visited, correct, shown), dtype=np.int64)[:, shown > 0]
        last = max(1, int(1.1 ** int(np.log(seen.shape[1]) / np.log(1.1))))
        return seen, *self._judged(seen[:, :last].tobytes())

    def _judge(self, visits: bytes) -> tuple[Tuned, float]:
        evidence = pooled(*np.frombuffer(visits, np.int64).reshape(3, -1))
        tuned = self.model.tune(evidence)
        return tuned, skill(self.model, evidence, tuned) if len(evidence.at) >= JUDGED else 1.0

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, shown: Visits) -> int:
        if self.covers(visited, correct, shown):
            return int(open_[np.argmax((self.cells[open_] @ (1 / (1 + self.cells[visited].sum(axis=0)))).round(9))])
        seen, tuned, _ = self._state(visited, correct, shown)
        fitted = (count := seen.shape[1]) - count % (1 + count // self.pace)
        score = self._scored(seen[:, :fitted].tobytes(), tuned)[open_]
        return int(open_[np.argmax(np.where(np.isin(open_, seen[0, fitted:]), -np.inf, score))])  # it would repeat them

    def _score(self, visits: bytes, tuned: Tuned) -> PerSubdomain:
        """What the acquisition gives every subdomain, rounded: chance decides among equal ones."""
        evidence, acquisition = pooled(*np.frombuffer(visits, np.int64).reshape(3, -1)), self.options["acquisition"]
        mean, sd = self.model.scale(evidence, tuned, spread=acquisition != "greedy")
        above, sd = mean - np.quantile(mean, WORST), np.maximum(sd, 1e-9)

        if acquisition == "greedy":
            score = -mean
        elif acquisition == "expected_improvement":
            z = (evidence.accuracy.min() - mean) / sd
            improvement = sd * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
            score = np.log(np.maximum(improvement, 1e-300))
        elif acquisition == "straddle":
            score = 1.96 * sd - np.abs(above)
        else:  # worst_decile: what counts is what one would measure, so the noise of a visit comes on top
            noise = np.median(working_logits(evidence, mean[evidence.at]).variance)
            score = -above / np.sqrt(sd**2 + noise)
        return score.round(9)


def make_policy(name: str, domain: Domain, seed: int, **options: Any) -> Policy:
    """A policy by its name; raises FcaError for a name, an option or a value that there is not.

    visits:   how often a subdomain may be visited; never again where its images are missing or were all refused.
    strength: of nwise, 2 to 5.    starts, reserve: first visits at random, and the share of the later ones that is.
    acquisition: of bo*, `greedy` (the paper's: lowest prediction) or `expected_improvement`; of gp_pairwise,
              `worst_decile` (probability of measuring less than q, the tenth percentile of the posterior means) or
              `straddle` (1.96 sd - |mean - q|, which maps the boundary).    features: in place of one-hot columns.
    fallback: from 30 subdomains on, choices cover the pairs of values least visited while the model predicts no better
              than the mean, judged when visits have grown by a tenth.

    >>> domain = Domain({"time": ["day", "night"], "weather": ["sunny", "rain"]})
    >>> make_policy("nwise", domain, seed=0).planned
    4
    """
    check_choice("policy", name, POLICIES)
    for option in options:
        check_choice(f"option of {name}", option, POLICIES[name])
    chosen = {**POLICIES[name], **options}
    limits = {"visits": (1, np.inf), "strength": (2, 5), "starts": (0, np.inf), "reserve": (0, 1)}
    for option, (low, high) in limits.items():
        if not low <= chosen.get(option, low) <= high:
            raise FcaError(option, chosen[option], f"{low} to {high}", "take one in this range")
    if "acquisition" in chosen:
        acquisitions = ("worst_decile", "straddle") if name == "gp_pairwise" else ("greedy", "expected_improvement")
        check_choice("acquisition", chosen["acquisition"], acquisitions)
        return Guided(name, domain, seed, chosen)
    return {"random": Policy, "nwise": NWise, "genetic": Genetic}[name](domain, seed, chosen)
