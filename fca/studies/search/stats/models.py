"""Models of every subdomain's accuracy from those visited: scikit-learn regressors and a pairwise Gaussian process."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.special import expit, roots_hermitenorm

FOLDS, TREES, RESAMPLES = 5, 30, 5
PRIOR_IMAGES = 4.0  # of average accuracy, added to a subdomain's own where Newton's method begins
MOST_STEPS = 50  # of Newton's method
LONGEST_STEP = 2.0  # in logits
TOLERANCE = 1e-3  # in logits: the error that is left is about the square of the last step
NODES, NODE_WEIGHTS = roots_hermitenorm(9)  # of an integral over a normal distribution
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
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


class WorkingLogits(NamedTuple):
    """Counts of right images as if each subdomain's logit had been measured with normal noise."""

    value: Float[np.ndarray, " visited"]
    variance: Float[np.ndarray, " visited"]


def working_logits(evidence: Evidence, logit: Float[np.ndarray, " visited"]) -> WorkingLogits:
    """The normal measurement whose likelihood has the binomial's slope and curvature at these logits.

    value = z + (c - n p) / (n p (1 - p)),   variance = 1 / (n p (1 - p)),   p = expit(z)

    The variance comes from the model's accuracy, not from the counts themselves: weights that depend on the same counts
    (the empirical logit's) pull every mean towards the subdomains that happened to be near 50 %.

    >>> evidence = Evidence(np.array([0]), np.array([9.0]), np.array([10.0]))
    >>> working_logits(evidence, np.array([0.0]))
    WorkingLogits(value=array([1.6]), variance=array([0.4]))
    """
    accuracy = expit(logit)
    information = evidence.shown * accuracy * (1 - accuracy)
    return WorkingLogits(logit + (evidence.correct - evidence.shown * accuracy) / information, 1 / information)


class PairwiseGP:
    """A Gaussian process of the logit of accuracy: constant + attribute values + pairs of values + own effects.

    z_s = m + sum_i u[i, s_i] + sum_{i<j} v[i, s_i, j, s_j] + w_s,   u ~ N(0, a²), v ~ N(0, p²), w ~ N(0, o²)
    c_s ~ Binomial(n_s, expit(z_s))   for c right of n images

    The posterior is Laplace's approximation: normal around the mode, with the curvature there (Rasmussen and Williams
    2006, section 3.4). Newton's steps to the mode are Bayesian linear regressions of `working_logits` on indicators.
    `tune` takes the (a, p, o) of highest marginal likelihood from a grid that has 0 for each; the likelihood is that of
    the working logits at the mode for TYPICAL (penalised quasi-likelihood: Breslow and Clayton 1993, JASA 88:9).
    """

    ADDITIVE, PAIRWISE, OWN = (0.0, 0.25, 0.5, 1.0, 1.6), (0.0, 0.2, 0.4, 0.7), (0.0, 0.25, 0.5)
    TYPICAL = (1.0, 0.4, 0.25)

    def __init__(self, one: Float[np.ndarray, "subdomains values"], two: Float[np.ndarray, "subdomains pairs"]) -> None:
        self.features = np.hstack([np.ones((len(one), 1)), one, two])  # indicators of values and of pairs of values
        self.sparse_features = csr_array(self.features)
        self.part = np.repeat([0, 1, 2], [1, one.shape[1], two.shape[1]])

    def tune(self, evidence: Evidence) -> Tuned:
        centre, logits = self._centre(evidence), self._at_mode(evidence, self.TYPICAL)
        moments = {own: self._moments(evidence, logits, centre, own) for own in self.OWN}
        grid = product(self.ADDITIVE, self.PAIRWISE, self.OWN)
        return max(grid, key=lambda sds: round(self._solved(*moments[sds[2]], *sds[:2])[0], 6))

    def scale(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        """Mean and standard deviation of every subdomain's logit."""
        return self._posterior(evidence, self._at_mode(evidence, tuned), tuned, spread=True)

    def predict(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        """Expected accuracy: the mean over the posterior of the logit, not the accuracy at its mean."""
        logit = self.scale(evidence, tuned)
        accuracy = expit(logit.mean[:, None] + logit.sd[:, None] * NODES)
        mean = accuracy @ NODE_WEIGHTS
        variance = (accuracy - mean[:, None]) ** 2 @ NODE_WEIGHTS
        return Prediction(mean, np.sqrt(variance))

    @staticmethod
    def _centre(evidence: Evidence) -> float:
        """Logit of the share of all images that are right, around which the constant varies."""
        right, shown = evidence.correct.sum(), evidence.shown.sum()
        return float(np.log((right + 0.5) / (shown - right + 0.5)))

    def _at_mode(self, evidence: Evidence, sds: Tuned) -> WorkingLogits:
        """Working logits at the mode of the posterior, by Newton's method."""
        overall = (evidence.correct.sum() + 0.5) / (evidence.shown.sum() + 1)
        shrunk = (evidence.correct + PRIOR_IMAGES * overall) / (evidence.shown + PRIOR_IMAGES)
        logit = np.log(shrunk / (1 - shrunk))

        for _ in range(MOST_STEPS):
            mode = self._posterior(evidence, working_logits(evidence, logit), sds, spread=False).mean[evidence.at]
            step = np.clip(mode - logit, -LONGEST_STEP, LONGEST_STEP)  # far from the mode, Newton's may overshoot
            logit = logit + step
            if np.abs(step).max() < TOLERANCE:
                break

        return working_logits(evidence, logit)

    def _posterior(self, evidence: Evidence, logits: WorkingLogits, sds: Tuned, spread: bool) -> Prediction:
        """Of the logit of every subdomain, given measured ones; without spread, the mean alone."""
        additive, pairwise, own = sds
        centre, at = self._centre(evidence), evidence.at
        _, lower, half, on, scale = self._solved(*self._moments(evidence, logits, centre, own), additive, pairwise)

        weights = np.zeros(len(self.part))
        weights[on] = scale * solve_triangular(lower, half, lower=True, trans=1)
        mean = centre + self.sparse_features @ weights
        # kept: the share of a residual that is taken as the subdomain's own effect
        kept = own**2 / (logits.variance + own**2)
        mean[at] += kept * (logits.value - mean[at])
        if not spread:
            return Prediction(mean, np.full(len(mean), np.nan))

        across = solve_triangular(lower, (self.features[:, on] * scale).T, lower=True)
        shared = np.sum(across**2, axis=0)
        variance = shared + own**2
        variance[at] = (1 - kept) ** 2 * shared[at] + kept * logits.variance
        return Prediction(mean, np.sqrt(variance))

    def _moments(self, evidence: Evidence, logits: WorkingLogits, centre: float, own: float) -> tuple[Any, Any, float]:
        target, variance = logits.value - centre, logits.variance + own**2
        known = self.sparse_features[evidence.at]
        weighted = (known * (1 / variance)[:, None]).T
        base = -0.5 * np.sum(np.log(variance) + target**2 / variance)
        return (weighted @ known).toarray(), weighted @ target, base

    def _solved(self, gram: Any, moment: Any, base: float, additive: float, pairwise: float) -> tuple[Any, ...]:
        scale = np.array([3.0, additive, pairwise])[self.part]  # 3: of the constant, around the share that is right
        on = np.flatnonzero(scale)
        lower = np.linalg.cholesky(np.eye(len(on)) + scale[on, None] * gram[np.ix_(on, on)] * scale[on])
        half = solve_triangular(lower, scale[on] * moment[on], lower=True)
        return base - np.log(np.diag(lower)).sum() + 0.5 * half @ half, lower, half, on, scale[on]


def skill(model: Regression | PairwiseGP, evidence: Evidence, tuned: Tuned) -> float:
    """Share of the variance of accuracies that a model explains over their mean, in 5 folds (forests: out of bag)."""
    accuracy, fold = evidence.accuracy, np.random.default_rng(0).permutation(len(evidence.at)) % FOLDS
    predicted, mean = np.empty((2, len(fold)))
    forest = model if isinstance(model, Regression) and model.kind == "bo_forest" else None
    for out in (fold == one for one in range(FOLDS)):
        mean[out] = accuracy[~out].mean()
        if forest is None:  # 5 more fits of one would take too long
            kept = Evidence(*(of[~out] for of in evidence))
            of_fold = model.predict(kept, tuned, spread=False).mean[evidence.at[out]]
            predicted[out] = mean[out] if np.ptp(of_fold) < 1e-9 else of_fold  # one value for all explains nothing
    if forest is not None:
        predicted = forest.fitted(evidence, oob_score=True).oob_prediction_
    error = np.sum((accuracy - mean) ** 2)
    return float(1 - np.sum((accuracy - predicted) ** 2) / error) if error > 1e-12 else 0.0
