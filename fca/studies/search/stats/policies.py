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

OpenSubdomains = Int[np.ndarray, " open"]
History = Int[np.ndarray, "3 seen"]  # subdomain, images right and images shown of every visit that has images
# The genetic algorithm.
POPULATION = 10  # subdomains of lowest accuracy, which are parents
MUTATION_RATE = 0.1  # probability that a value is drawn anew
MAX_CHILDREN = 100  # drawn until one is open
WORST_SHARE = 0.1  # of the subdomains, which a search looks for
FEWEST_FOR_SKILL = 30  # subdomains with images before a model's skill is estimated

_STARTS = {"visits": 1, "starts": 10, "reserve": 0.0}
_BO = _STARTS | {"acquisition": "greedy", "fallback": True, "features": None}
POLICIES: Mapping[str, Mapping[str, Any]] = {  # name -> its options and their defaults
    "random": {"visits": 1},
    "nwise": {"visits": 1, "strength": 3},
    "genetic": _STARTS,
    "bo": _BO,
    "bo_linear": _BO,
    "bo_forest": _BO,
    "bo_svr": _BO,
    "gp_pairwise": _STARTS | {"reserve": 0.05, "acquisition": "worst_decile", "fallback": True},
}


class Policy:
    """Visits in random order, and what all policies share. Made by `make_policy`.

    A subdomain is open if it may be visited again: it had fewer visits than the option `visits`, all with images.
    """

    planned: int | None = None  # visits that the policy plans itself

    def __init__(self, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        self.domain = domain
        self.seed = seed
        self.options = options
        self.subdomain_of_codes = {tuple(codes): subdomain for subdomain, codes in enumerate(domain.codes.tolist())}

    def next(self, visited: Visits, correct: Visits, n_images: Visits) -> int:
        """The subdomain to visit next. It is open: its visits are fewer than the option `visits`, and all have images.

        visited, correct, n_images: of each visit so far its subdomain, how many of its images were right, and how many
        there were. A visit that has not ended, or whose images were all refused, has 0 images.
        Raises FcaError if no subdomain is open.
        """
        is_closed = np.bincount(visited, minlength=len(self.domain)) >= self.options["visits"]
        is_closed[visited[n_images == 0]] = True  # in progress, or its images cannot be drawn
        if is_closed.all():
            raise FcaError("visits", len(visited), "fewer: no subdomain is open", "stop the search, or raise visits")

        rng = np.random.default_rng([self.seed, len(visited)])  # a resumed search draws the same
        open_ = rng.permutation(np.flatnonzero(~is_closed))  # in random order, so that the first is a random one
        if self._is_random(visited, n_images):
            return int(open_[0])
        return self._choose(open_, rng, visited, correct, n_images)

    def skill(self, visited: Visits, correct: Visits, n_images: Visits) -> float | None:
        """How well the policy's model predicts accuracies; None for a policy without a model, and before it has one."""
        return None

    def covers(self, visited: Visits, correct: Visits, n_images: Visits) -> bool:
        """Whether the next choice ignores the policy's model, because that predicts no better than the mean.

        Such a choice covers the domain: it is a subdomain with the pairs of values that were visited least.
        """
        return False

    def _is_random(self, visited: Visits, n_images: Visits) -> bool:
        """Whether the next visit is random although the policy learns from visits.

        Random are the first visits (option `starts`), all visits while there is no image to learn from, and a share of
        the later visits (option `reserve`), at equal distances. False for `random` and `nwise`, which learn nothing:
        `_choose` makes all of their choices.
        """
        if "starts" not in self.options:  # `random` or `nwise`
            return False

        n_visits = len(visited)
        if n_visits < self.options["starts"] or not n_images.any():
            return True
        reserve = self.options["reserve"]
        return int((n_visits + 1) * reserve) > int(n_visits * reserve)  # this visit makes one more

    def _choose(
        self, open_: OpenSubdomains, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits
    ) -> int:
        """One of the open subdomains, which are in random order."""
        return int(open_[0])


class NWise(Policy):
    """The subdomains of a covering array, then the others in random order.

    A covering array has every valid combination of values of any `strength` attributes, in few subdomains.
    """

    def __init__(self, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        """Compute the covering array: `rows` are the positions of its subdomains, in the order of visits."""
        super().__init__(domain, seed, options)
        if options["strength"] < len(domain.attributes):
            self.rows = np.array([self.subdomain_of_codes[tuple(codes)] for codes in self._covering_array()])
        else:  # a combination of values of all attributes is a subdomain, so the array has all subdomains
            self.rows = np.random.default_rng(seed).permutation(len(domain))
        self.planned = len(self.rows)

    def _covering_array(self) -> list[list[int]]:
        """The subdomains of a covering array, computed by the package covertable.

        A covering array has every valid combination of values of any `strength` attributes, in few subdomains. A
        subdomain is a list of codes: for each attribute, the position of a value among the attribute's values.
        """
        from covertable import make

        names = list(self.domain.attributes)
        values_by_attribute = [list(values) for values in self.domain.attributes.values()]
        # the rules of the domain, in the form of the library: not (value of attribute in ... and ...)
        constraints = []
        for rule in self.domain.rules:
            conditions = []
            for name, excluded in rule["not"].items():
                attribute = names.index(name)
                excluded_values = excluded if isinstance(excluded, list | tuple) else [excluded]
                codes = [values_by_attribute[attribute].index(value) for value in excluded_values]
                conditions.append({"operator": "in", "left": attribute, "values": codes})

            combination = {"operator": "and", "conditions": conditions}
            constraints.append({"operator": "not", "condition": combination})

        factors = [list(range(len(values))) for values in values_by_attribute]
        # salt: each seed has another array
        return make(factors, strength=self.options["strength"], salt=str(self.seed), constraints=constraints)

    def _choose(
        self, open_: OpenSubdomains, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits
    ) -> int:
        """The first unvisited subdomain of the array; after all of them, a random one of the open subdomains."""
        unvisited_rows = self.rows[~np.isin(self.rows, visited)]
        return int(unvisited_rows[0] if len(unvisited_rows) else open_[0])


class Genetic(Policy):
    """A genetic algorithm: the next subdomain combines the values of two of the ten of lowest accuracy.

    Each attribute's value comes from either parent, and a tenth of the values are drawn anew.
    """

    def _choose(
        self, open_: OpenSubdomains, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits
    ) -> int:
        """A child of two subdomains of low accuracy: each value comes from one of them, or is drawn anew (mutation).

        Children are drawn until one is an open subdomain; after MAX_CHILDREN, an open subdomain is taken at random.

        open_: the open subdomains, in random order.
        """
        # at least one subdomain: as long as no visit has images, `next` chooses at random
        evidence = pooled(visited, correct, n_images)
        lowest = np.argsort(evidence.accuracy, kind="stable")[:POPULATION]
        parents = self.domain.codes[evidence.subdomains[lowest]]  # parents x attributes: the number of each value
        n_values = [len(values) for values in self.domain.attributes.values()]
        open_subdomains = set(open_.tolist())

        for _ in range(MAX_CHILDREN):
            is_from_first = rng.random(len(n_values)) < 0.5  # for each attribute
            first, second = parents[rng.integers(len(parents), size=2)]
            child = np.where(is_from_first, first, second)

            is_mutated = rng.random(len(n_values)) < MUTATION_RATE
            child = np.where(is_mutated, rng.integers(n_values), child)

            subdomain = self.subdomain_of_codes.get(tuple(child.tolist()))  # None: a rule of the domain excludes it
            if subdomain is not None and subdomain in open_subdomains:
                return subdomain

        return int(open_[0])


class Guided(Policy):
    """Visits where a model of accuracy expects the most, by an acquisition function of its predictions."""

    def __init__(self, name: str, domain: Domain, seed: int, options: Mapping[str, Any]) -> None:
        """Build the policy's model. Raises FcaError for features that are no finite matrix with a row per subdomain.

        name: of the policy, which is also the kind of its model.
        """
        super().__init__(domain, seed, options)
        values = _all_indicators(domain, 1)  # subdomains x attribute values, 0 or 1
        pairs = _all_indicators(domain, 2)  # subdomains x pairs of values
        # while the model has no skill, choices cover all pairs of values; a domain of one attribute has only values
        self.covered_cells = pairs if pairs.size else values

        # To save time, the model is not fitted after every visit: during the first `visits_per_pace` visits it is
        # fitted after each, during the next as many after every second, then after every third, and so on. A forest,
        # which is slow to fit, comes sooner to the slower paces.
        self.visits_per_pace = 50 if name == "bo_forest" else 250

        features = options.get("features")
        features = np.asarray(values if features is None else features, dtype=float)
        is_matrix_of_domain = features.ndim == 2 and len(features) == len(domain)
        if not is_matrix_of_domain or not np.isfinite(features).all():
            raise FcaError("features", f"shape {features.shape}", f"finite, ({len(domain)}, any)", "a row a subdomain")

        self.model = PairwiseGP(values, pairs) if name == "gp_pairwise" else Regression(name, features, seed)
        # caches of one result, as the same one is needed several times in a row; made here, so that each policy has
        # its own
        self._cached_tune_and_skill = lru_cache(1)(self._tune_and_skill)
        self._cached_scores = lru_cache(1)(self._scores)

    def predict(self, visited: Visits, correct: Visits, n_images: Visits) -> Prediction:
        """Expected accuracy of every subdomain, with its standard deviation. Raises FcaError without any images."""
        if not n_images.any():
            raise FcaError("visits with images", 0, "1 or more", "visit a subdomain first")
        history = _history(visited, correct, n_images)
        tuned, _ = self._last_tune_and_skill(history)
        return self.model.predict(pooled(*history), tuned)

    def skill(self, visited: Visits, correct: Visits, n_images: Visits) -> float | None:
        """Cross-validated share of the variance of accuracies that the model explains; None below 30 subdomains."""
        if len(np.unique(visited[n_images > 0])) < FEWEST_FOR_SKILL:
            return None
        history = _history(visited, correct, n_images)
        tuned, _ = self._last_tune_and_skill(history)
        return cross_validated_r2(self.model, pooled(*history), tuned)

    def covers(self, visited: Visits, correct: Visits, n_images: Visits) -> bool:
        """Whether the next choice ignores the model and covers the domain, because the model has no skill.

        False for a random visit, and if the option `fallback` is off.
        """
        if not self.options["fallback"] or self._is_random(visited, n_images):
            return False
        _, skill = self._last_tune_and_skill(_history(visited, correct, n_images))
        return skill < 1e-6  # 0, but for rounding

    def _last_tune_and_skill(self, history: History) -> tuple[Tuned, float]:
        """The model's tuned settings and its skill (`_tune_and_skill`), from the first 1.1^k visits of a history.

        1.1^k, with a whole k, is the largest such number that the history has. Tuning is slow, and so it is repeated
        only when the number of visits has grown by a tenth. A resumed search tunes at the same visits, as their number
        depends on the history alone.
        """
        n_visits = history.shape[1]
        last_power = int(np.log(n_visits) / np.log(1.1))  # k
        n_tuned = max(1, int(1.1**last_power))
        return self._cached_tune_and_skill(history[:, :n_tuned].tobytes())  # bytes are the key of a cache

    def _tune_and_skill(self, history: bytes) -> tuple[Tuned, float]:
        """The model's tuned settings, and its cross-validated skill, which counts as 1 below 30 subdomains."""
        evidence = pooled(*_from_bytes(history))
        tuned = self.model.tune(evidence)
        if len(evidence.subdomains) < FEWEST_FOR_SKILL:
            return tuned, 1.0
        return tuned, cross_validated_r2(self.model, evidence, tuned)

    def _choose(
        self, open_: OpenSubdomains, rng: np.random.Generator, visited: Visits, correct: Visits, n_images: Visits
    ) -> int:
        """The open subdomain with the highest score by the model.

        If the model has no skill, it is the open subdomain whose pairs of values were visited least.

        open_: the open subdomains, in random order, which decides between equal scores.
        """
        # a model that predicts no better than the mean: visit the subdomain whose pairs of values were visited least
        if self.covers(visited, correct, n_images):
            n_visits_of_cell = self.covered_cells[visited].sum(axis=0)
            # sum of 1 / (1 + visits) over the pairs of values of each open subdomain
            novelty = self.covered_cells[open_] @ (1 / (1 + n_visits_of_cell))
            return int(open_[np.argmax(novelty.round(9))])  # rounded, so that sums of equal terms are equal

        # else visit the subdomain of highest score, by the model fitted to the first n_fitted visits: to save time, it
        # is fitted after every pace-th visit only
        history = _history(visited, correct, n_images)  # the visits that have images; 3 x visits
        tuned, _ = self._last_tune_and_skill(history)  # settings of the model, which are tuned even less often
        n_visits = history.shape[1]
        pace = 1 + n_visits // self.visits_per_pace
        n_fitted = n_visits - n_visits % pace
        scores = self._cached_scores(history[:, :n_fitted].tobytes(), tuned)[open_]  # bytes are the key of a cache

        # the fit is without the visits since then: by its scores, the same subdomains would be chosen again
        visited_since_fit = np.isin(open_, history[0, n_fitted:])
        return int(open_[np.argmax(np.where(visited_since_fit, -np.inf, scores))])

    def _scores(self, history: bytes, tuned: Tuned) -> PerSubdomain:
        """Every subdomain's score by the option `acquisition`: the higher, the sooner it is visited.

        The model predicts a mean m with standard deviation s for every subdomain: of its accuracy or, if the model is a
        Gaussian process (gp_pairwise), of the logit of its accuracy. q is the tenth percentile of all m.

        greedy:               -m
        expected_improvement: log(s (z Φ(z) + φ(z))),   z = (lowest measured accuracy - m) / s
        straddle:             1.96 s - |m - q|
        worst_decile:         (q - m) / sqrt(s² + noise)

        The last two are for the Gaussian process alone, the first two for all other models. A visit measures a logit
        with an error, whose variance differs between subdomains; `noise` is the median variance over the visited ones.
        Φ of the score of worst_decile is the probability that a visit measures less than q. Scores are rounded, so that
        the random order of subdomains decides between equal ones.

        history: the visits so far, as bytes, so that the result can be cached.    tuned: settings of the model.
        """
        evidence = pooled(*_from_bytes(history))
        acquisition = self.options["acquisition"]
        # m and s on the scale of the model, which is that of accuracies or of logits; greedy needs no s (`spread`)
        mean, sd = self.model.scale(evidence, tuned, spread=acquisition != "greedy")
        above_worst = mean - np.quantile(mean, WORST_SHARE)  # m - q
        sd = np.maximum(sd, 1e-9)  # no division by 0

        if acquisition == "greedy":
            score = -mean
        elif acquisition == "expected_improvement":
            z = (evidence.accuracy.min() - mean) / sd
            improvement = sd * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
            score = np.log(np.maximum(improvement, 1e-300))  # tiny values differ in the log; no log of 0
        elif acquisition == "straddle":
            score = 1.96 * sd - np.abs(above_worst)
        else:
            # worst_decile; `working_logits`: the subdomains' logits as their images measure them, with variances
            noise = np.median(working_logits(evidence, mean[evidence.subdomains]).variance)
            score = -above_worst / np.sqrt(sd**2 + noise)
        return score.round(9)


def _all_indicators(domain: Domain, strength: int) -> Float[np.ndarray, "subdomains cells"]:
    """The indicators of all sets of `strength` attributes side by side (see `Domain.indicators`).

    No columns where there are fewer attributes.
    """
    indicators = [cells for _, cells in domain.indicators(strength)]
    return np.hstack(indicators) if indicators else np.empty((len(domain), 0))


def _history(visited: Visits, correct: Visits, n_images: Visits) -> History:
    """The visits that have images."""
    return np.array((visited, correct, n_images), dtype=np.int64)[:, n_images > 0]


def _from_bytes(history: bytes) -> History:
    """A history as it was before `tobytes`, which makes it the key of a cache."""
    return np.frombuffer(history, np.int64).reshape(3, -1)


def make_policy(name: str, domain: Domain, seed: int, **options: Any) -> Policy:
    """A policy by its name. Raises FcaError for an unknown name or option, and for a value that is not allowed.

    Options, where the policy has them (see POLICIES):

    visits:   how often each subdomain may be visited; it is not visited again after a visit without any image.
    strength: of nwise: every combination of values of so many attributes is visited; 2 to 5.
    starts:   number of first visits, which are random.
    reserve:  share of the later visits that are random.
    acquisition: the score by which the next visit is chosen. For the policies bo*, `greedy` (the paper's: lowest
              prediction) or `expected_improvement`; for gp_pairwise, `worst_decile` (probability of measuring less than
              q, the tenth percentile of the posterior means) or `straddle` (1.96 sd - |mean - q|, which maps the
              boundary).
    features: subdomains x features, for the model, in place of one-hot columns of attribute values.
    fallback: whether choices cover the pairs of values that were visited least while the model predicts no better than
              the mean. This is judged from 30 subdomains on, again whenever visits have grown by a tenth.

    >>> domain = Domain({"time": ["day", "night"], "weather": ["sunny", "rain"]})
    >>> make_policy("nwise", domain, seed=0).planned  # visits of the covering array: here, all 4 subdomains
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

    if "acquisition" in all_options:  # a policy with a model
        acquisitions = ("worst_decile", "straddle") if name == "gp_pairwise" else ("greedy", "expected_improvement")
        check_choice("acquisition", all_options["acquisition"], acquisitions)
        return Guided(name, domain, seed, all_options)

    policy_class = {"random": Policy, "nwise": NWise, "genetic": Genetic}[name]
    return policy_class(domain, seed, all_options)
