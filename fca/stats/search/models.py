"""Models of every subdomain's accuracy from those visited: scikit-learn regressors and a pairwise Gaussian process."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer
from scipy.linalg import solve_triangular
from scipy.special import expit

FOLDS, TREES, RESAMPLES = 5, 30, 5
Visits = Integer[np.ndarray, " visits"]
PerSubdomain = Float[np.ndarray, " subdomains"]
Tuned = tuple[float, float, float]


class Prediction(NamedTuple):
    """Expected accuracy of every subdomain and its standard deviation (NaN where it was not asked for)."""

    mean: PerSubdomain
    sd: PerSubdomain


class Evidence(NamedTuple):
    """Visits, pooled: the subdomains that have images, how many of them were right, and how many there are."""

    at: Int[np.ndarray, " visited"]
    correct: Float[np.ndarray, " visited"]
    shown: Float[np.ndarray, " visited"]

    @property
    def accuracy(self) -> Float[np.ndarray, " visited"]:
        return self.correct / self.shown


def pooled(visited: Visits, correct: Visits, shown: Visits) -> Evidence:
    """Visits of a subdomain added up, without those that have no images.

    >>> pooled(np.array([4, 2, 4, 3]), np.array([3, 1, 5, 0]), np.array([10, 10, 10, 0])).accuracy
    array([0.1, 0.4])
    """
    at, place = np.unique(visited[shown > 0], return_inverse=True)
    sums = (np.bincount(place, counts[shown > 0], len(at)) for counts in (correct, shown))
    return Evidence(at.astype(np.int64), *sums)


class Regression:
    """A regressor of accuracy, weighted by images: `bo` (Lasso, alpha .001), `bo_linear`, `bo_forest` or `bo_svr`.

    The standard deviation is that of the forest's 30 trees, or of 5 fits to bootstrap resamples.
    """

    def __init__(self, kind: str, features: Float[np.ndarray, "subdomains features"], seed: int) -> None:
        self.kind, self.features, self.seed = kind, features, seed

    def fitted(self, evidence: Evidence, resampled: bool = False, **forest: Any) -> Any:
        from sklearn import ensemble, linear_model, svm

        one: Any = {"bo": linear_model.Lasso(1e-3, max_iter=10_000), "bo_svr": svm.SVR()}.get(
            self.kind, linear_model.LinearRegression()
        )
        if self.kind == "bo_forest":
            one = ensemble.RandomForestRegressor(TREES, random_state=self.seed, **forest)
        elif resampled:
            one = ensemble.BaggingRegressor(one, RESAMPLES, random_state=self.seed)
        weight = evidence.shown / evidence.shown.mean()
        return one.fit(self.features[evidence.at], evidence.accuracy, sample_weight=weight)

    def tune(self, evidence: Evidence) -> Tuned:
        return 0.0, 0.0, 0.0  # nothing is

    def predict(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        fitted = self.fitted(evidence)
        mean = fitted.predict(self.features)
        if not spread:
            return Prediction(mean, np.full(len(mean), np.nan))
        members = fitted if self.kind == "bo_forest" else self.fitted(evidence, resampled=True)
        return Prediction(mean, np.std([one.predict(self.features) for one in members.estimators_], axis=0))

    scale = predict


class PairwiseGP:
    """A Gaussian process of the logit of accuracy: constant + attribute values + pairs of values + own effects.

    z_s = m + sum_i u[i, s_i] + sum_{i<j} v[i, s_i, j, s_j] + w_s,   u ~ N(0, a²), v ~ N(0, p²), w ~ N(0, o²)

    Worked out as Bayesian linear regression on indicators, so the posterior is exact. The noise is that of the
    empirical logit: 1 / (c + .5) + 1 / (n - c + .5) for c right of n images. `tune` takes the (a, p, o) of highest
    marginal likelihood from a grid that has 0 for each.
    """

    ADDITIVE, PAIRWISE, OWN = (0.0, 0.25, 0.5, 1.0, 1.6), (0.0, 0.2, 0.4, 0.7), (0.0, 0.25, 0.5)

    def __init__(self, one: Float[np.ndarray, "subdomains values"], two: Float[np.ndarray, "subdomains pairs"]) -> None:
        self.features = np.hstack([np.ones((len(one), 1)), one, two])  # indicators of values and of pairs of values
        self.part = np.repeat([0, 1, 2], [1, one.shape[1], two.shape[1]])

    @staticmethod
    def logits(evidence: Evidence) -> tuple[Any, Any]:
        right, wrong = evidence.correct + 0.5, evidence.shown - evidence.correct + 0.5
        return np.log(right / wrong), 1 / right + 1 / wrong

    def _moments(self, evidence: Evidence, own: float) -> tuple[Any, Any, float]:
        target, noise = self.logits(evidence)
        known, target, variance = self.features[evidence.at], target - target.mean(), noise + own**2
        weighted = known / variance[:, None]
        base = -0.5 * np.sum(np.log(variance) + target**2 / variance)
        return weighted.T @ known, weighted.T @ target, base

    def _solved(self, gram: Any, moment: Any, base: float, additive: float, pairwise: float) -> tuple[Any, ...]:
        scale = np.array([3.0, additive, pairwise])[self.part]  # 3: of the constant, around the mean visited
        on = np.flatnonzero(scale)
        lower = np.linalg.cholesky(np.eye(len(on)) + scale[on, None] * gram[np.ix_(on, on)] * scale[on])
        half = solve_triangular(lower, scale[on] * moment[on], lower=True)
        return base - np.log(np.diag(lower)).sum() + 0.5 * half @ half, lower, half, on, scale[on]

    def tune(self, evidence: Evidence) -> Tuned:
        moments = {own: self._moments(evidence, own) for own in self.OWN}
        grid = product(self.ADDITIVE, self.PAIRWISE, self.OWN)
        return max(grid, key=lambda sds: round(self._solved(*moments[sds[2]], *sds[:2])[0], 6))

    def scale(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        _, lower, half, on, scale = self._solved(*self._moments(evidence, tuned[2]), *tuned[:2])
        across = solve_triangular(lower, (self.features[:, on] * scale).T, lower=True)
        (target, noise), own, at = self.logits(evidence), tuned[2] ** 2, evidence.at
        mean, shared = target.mean() + across.T @ half, np.sum(across**2, axis=0)
        kept = own / (noise + own)  # the share of a residual that is taken as the subdomain's own effect
        mean[at] += kept * (target - mean[at])
        variance = shared + own
        variance[at] = (1 - kept) ** 2 * shared[at] + kept * noise
        return Prediction(mean, np.sqrt(variance))

    def predict(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        mean, sd = self.scale(evidence, tuned)  # of logits
        return Prediction(expit(mean), expit(mean) * expit(-mean) * sd)


def skill(model: Any, evidence: Evidence, tuned: Tuned) -> float:
    """Share of the variance of accuracies that a model explains over their mean, in 5 folds (forests: out of bag)."""
    accuracy, fold = evidence.accuracy, np.random.default_rng(0).permutation(len(evidence.at)) % FOLDS
    predicted, mean = np.empty((2, len(fold)))
    is_forest = getattr(model, "kind", "") == "bo_forest"  # 5 more fits would take too long
    for out in (fold == one for one in range(FOLDS)):
        mean[out] = accuracy[~out].mean()
        if not is_forest:
            kept = Evidence(*(of[~out] for of in evidence))
            predicted[out] = model.predict(kept, tuned, spread=False).mean[evidence.at[out]]
    if is_forest:
        predicted = model.fitted(evidence, oob_score=True).oob_prediction_
    error = np.sum((accuracy - mean) ** 2)
    return float(1 - np.sum((accuracy - predicted) ** 2) / error) if error > 1e-12 else 0.0
