"""Which subdomain to visit next: by chance, by covering arrays, by a genetic algorithm, or where a model points.

A policy is a pure function of its name, domain, seed, options and the visits so far: a search that was stopped goes on
as it would have. What a policy keeps between calls only saves time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from fca.studies.generate.stats.domain import Domain
from fca.studies.search.stats.models import (
    PairwiseGP,
    PerSubdomain,
    Prediction,
    Regression,
    Tuned,
    Visits,
    cross_validated_r2,
    pooled,
    working_logits,
)
from fca.types import FcaError, check_choice

Open = Int[np.ndarray, " open"]
History = Int[np.ndarray, "3 seen"]
POPULATION = 10  # of the genetic algorithm: the parents
MUTATION = 0.1  # of the genetic algorithm: the share of values that are drawn anew
CHILDREN = 100  # of the genetic algorithm: drawn at most, until one is open
WORST = 0.1  # share of the subdomains that a search looks for
JUDGED = 30  # subdomains with images from which on a model's skill is judged

_STARTS = {"visits": 1, "starts": 10, "reserve": 0.0}
_BO = {**_STARTS, "acquisition": "greedy", "fallback": True, "features": None}
POLICIES: Mapping[str, Mapping[str, Any]] = {  # name -> its options and their defaults
    "random": {"visits": 1},
    "nwise": {"visits": 1, "strength": 3},
    "genetic": _STARTS,
    "bo": _BO,
    "bo_linear": _BO,
    "bo_forest": _BO,
    "bo_svr": _BO,
    "gp_pairwise": {**_STARTS, "reserve": 0.05, "acquisition": "worst_decile", "fallback": True},
}


class Policy:
    """Visits by chance, and what all policies share. Made by `make_policy`."""

    planned: int | None = None  # visits that the policy plans itself

    def __init__(self, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        self.domain = domain
        self.seed = seed
        self.options = options
        self.row = {tuple(codes): row for row, codes in enumerate(domain.codes.tolist())}

    def next(self, visited: Visits, correct: Visits, n_images: Visits) -> int:
        """The subdomain to visit next, never one that is closed.

        visited, correct, n_images: of each visit so far its subdomain, how many of its images were right, and how many
        there were; 0 where they are not there yet or were all refused. Raises FcaError where no subdomain is open.
        """
        is_closed = np.bincount(visited, minlength=len(self.domain)) >= self.options["visits"]
        is_closed[visited[n_images == 0]] = True
        if is_closed.all():
            raise FcaError("visits", len(visited), "fewer: no subdomain is open", "stop the search, or raise visits")

        rng = np.random.default_rng([self.seed, len(visited)])
        open_ = rng.permutation(np.flatnonzero(~is_closed))
        if self._random(visited, n_images):
            return int(open_[0])
        return self._choose(open_, rng, visited, correct, n_images)

    def skill(self, visited: Visits, correct: Visits, n_images: Visits) -> float | None:
        """How well the policy's model predicts accuracies; None for a policy without a model, and before it has one."""
        return None

    def covers(self, visited: Visits, correct: Visits, n_images: Visits) -> bool:
        """Whether the next choice covers the domain because the policy's model predicts no better than the mean."""
        return False

    def _random(self, visited: Visits, n_images: Visits) -> bool:
        """Whether the next visit is at random: one of the first, or one of the reserved share of the later ones."""
        if "starts" not in self.options:
            return False
        n = len(visited)
        reserve = self.options["reserve"]
        is_start = n < self.options["starts"] or not n_images.any()
        is_reserved = int((n + 1) * reserve) > int(n * reserve)
        return is_start or is_reserved

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits) -> int:
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
        """The covering array: value codes of each row."""
        from covertable import make

        names = list(self.domain.attributes)
        values_of_attributes = [list(values) for values in self.domain.attributes.values()]
        constraints = []
        for rule in self.domain.rules:
            conditions = []
            for name, excluded in rule["not"].items():
                attribute = names.index(name)
                excluded_values = excluded if isinstance(excluded, list | tuple) else [excluded]
                codes = [values_of_attributes[attribute].index(value) for value in excluded_values]
                conditions.append({"operator": "in", "left": attribute, "values": codes})
            constraints.append({"operator": "not", "condition": {"operator": "and", "conditions": conditions}})

        factors = [list(range(len(values))) for values in values_of_attributes]
        return make(factors, strength=self.options["strength"], salt=str(self.seed), constraints=constraints)

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits) -> int:
        pending = self.rows[~np.isin(self.rows, visited)]
        return int(pending[0] if len(pending) else open_[0])


class Genetic(Policy):
    """Children of two of the ten lowest, each attribute's value from either, a tenth of the values drawn anew."""

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits) -> int:
        evidence = pooled(visited, correct, n_images)
        lowest = np.argsort(evidence.accuracy, kind="stable")[:POPULATION]
        parents = self.domain.codes[evidence.subdomains[lowest]]

        open_rows = set(open_.tolist())
        sizes = [len(values) for values in self.domain.attributes.values()]
        for _ in range(CHILDREN):
            child = np.where(rng.random(len(sizes)) < 0.5, *parents[rng.integers(len(parents), size=2)])
            child = np.where(rng.random(len(sizes)) < MUTATION, rng.integers(sizes), child)
            row = self.row.get(tuple(child.tolist()), -1)
            if row in open_rows:
                return row
        return int(open_[0])


class Guided(Policy):
    """Visits where a model points, by its acquisition."""

    def __init__(self, name: str, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        super().__init__(domain, seed, options)
        values = _indicators(domain, 1)
        pairs = _indicators(domain, 2)
        self.pace = 50 if name == "bo_forest" else 250  # visits from which on only every second is followed by a fit
        self.cells = pairs if pairs.size else values  # what a covering choice covers

        features = np.asarray(values if options.get("features") is None else options["features"], dtype=float)
        if features.ndim != 2 or len(features) != len(domain) or not np.isfinite(features).all():
            raise FcaError("features", f"shape {features.shape}", f"finite, ({len(domain)}, any)", "a row a subdomain")
        self.model = PairwiseGP(values, pairs) if name == "gp_pairwise" else Regression(name, features, seed)
        self._cached_judgement = lru_cache(1)(self._judge)
        self._cached_score = lru_cache(1)(self._score)

    def predict(self, visited: Visits, correct: Visits, n_images: Visits) -> Prediction:
        """Expected accuracy of every subdomain, with its standard deviation. Raises FcaError without any images."""
        if not n_images.any():
            raise FcaError("visits with images", 0, "1 or more", "visit a subdomain first")
        history, tuned, _ = self._state(visited, correct, n_images)
        return self.model.predict(pooled(*history), tuned)

    def skill(self, visited: Visits, correct: Visits, n_images: Visits) -> float | None:
        """Cross-validated share of the variance of accuracies that the model explains; None below 30 subdomains."""
        if len(np.unique(visited[n_images > 0])) < JUDGED:
            return None
        history, tuned, _ = self._state(visited, correct, n_images)
        return cross_validated_r2(self.model, pooled(*history), tuned)

    def covers(self, visited: Visits, correct: Visits, n_images: Visits) -> bool:
        if not self.options["fallback"] or self._random(visited, n_images):
            return False
        _, _, skill = self._state(visited, correct, n_images)
        return skill < 1e-6  # 0, but for rounding

    def _state(self, visited: Visits, correct: Visits, n_images: Visits) -> tuple[History, Tuned, float]:
        """Visits with images; what the model chose and its skill (1 below 30) when they had last grown by a tenth."""
        history = np.array((visited, correct, n_images), dtype=np.int64)[:, n_images > 0]
        n_tenths = int(np.log(history.shape[1]) / np.log(1.1))
        n_judged = max(1, int(1.1**n_tenths))
        return history, *self._cached_judgement(history[:, :n_judged].tobytes())

    def _judge(self, history: bytes) -> tuple[Tuned, float]:
        """What the model chose, and its skill.    history: of `_state`, as bytes, which a cache can compare."""
        evidence = pooled(*np.frombuffer(history, np.int64).reshape(3, -1))
        tuned = self.model.tune(evidence)
        if len(evidence.subdomains) < JUDGED:
            return tuned, 1.0
        return tuned, cross_validated_r2(self.model, evidence, tuned)

    def _choose(self, open_: Open, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits) -> int:
        if self.covers(visited, correct, n_images):
            n_visits_of_cell = self.cells[visited].sum(axis=0)
            rarity = self.cells[open_] @ (1 / (1 + n_visits_of_cell))
            return int(open_[np.argmax(rarity.round(9))])

        history, tuned, _ = self._state(visited, correct, n_images)
        n_visits = history.shape[1]
        n_fitted = n_visits - n_visits % (1 + n_visits // self.pace)
        score = self._cached_score(history[:, :n_fitted].tobytes(), tuned)[open_]
        is_unfitted = np.isin(
            open_, history[0, n_fitted:]
        )  # the model does not know of these visits: it would repeat them
        return int(open_[np.argmax(np.where(is_unfitted, -np.inf, score))])

    def _score(self, history: bytes, tuned: Tuned) -> PerSubdomain:
        """What the acquisition gives every subdomain, rounded: chance decides among equal ones."""
        evidence = pooled(*np.frombuffer(history, np.int64).reshape(3, -1))
        acquisition = self.options["acquisition"]
        mean, sd = self.model.scale(evidence, tuned, spread=acquisition != "greedy")
        sd = np.maximum(sd, 1e-9)
        above_worst = mean - np.quantile(mean, WORST)

        if acquisition == "greedy":
            score = -mean
        elif acquisition == "expected_improvement":
            # sd (z Φ(z) + φ(z)),   z = (lowest accuracy - mean) / sd
            z = (evidence.accuracy.min() - mean) / sd
            improvement = sd * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
            score = np.log(np.maximum(improvement, 1e-300))
        elif acquisition == "straddle":
            score = 1.96 * sd - np.abs(above_worst)
        else:  # worst_decile: what counts is what one would measure, so the noise of a visit comes on top
            noise = np.median(working_logits(evidence, mean[evidence.subdomains]).variance)
            score = -above_worst / np.sqrt(sd**2 + noise)
        return score.round(9)


def _indicators(domain: Domain, strength: int) -> Float[np.ndarray, "subdomains cells"]:
    """Indicators of all values (strength 1) or pairs of values (2), side by side."""
    cells = [cells for _, cells in domain.indicators(strength)]
    return np.hstack(cells) if cells else np.empty((len(domain), 0))


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
    all_options = {**POLICIES[name], **options}
    limits = {"visits": (1, np.inf), "strength": (2, 5), "starts": (0, np.inf), "reserve": (0, 1)}
    for option, (low, high) in limits.items():
        if not low <= all_options.get(option, low) <= high:
            raise FcaError(option, all_options[option], f"{low} to {high}", "take one in this range")

    if "acquisition" in all_options:
        acquisitions = ("worst_decile", "straddle") if name == "gp_pairwise" else ("greedy", "expected_improvement")
        check_choice("acquisition", all_options["acquisition"], acquisitions)
        return Guided(name, domain, seed, all_options)
    policy_class = {"random": Policy, "nwise": NWise, "genetic": Genetic}[name]
    return policy_class(domain, seed, all_options)
