"""Models of every subdomain's accuracy from those visited: scikit-learn regressors and a pairwise Gaussian process."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.special import expit, roots_hermitenorm

FOLDS = 5  # of cross-validation
TREES = 30  # of a forest
RESAMPLES = 5  # bootstrap resamples, for the standard deviation of other regressors
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
    """Expected accuracy of every subdomain and its standard deviation (NaN if it was not requested)."""

    mean: PerSubdomain
    sd: PerSubdomain


class Evidence(NamedTuple):
    """Visits, pooled: the subdomains that have images, how many of them were right, and how many there are."""

    subdomains: Int[np.ndarray, " visited"]
    correct: Float[np.ndarray, " visited"]
    n_images: Float[np.ndarray, " visited"]

    @property
    def accuracy(self) -> Float[np.ndarray, " visited"]:
        return self.correct / self.n_images


def pooled(visited: Visits, correct: Visits, n_images: Visits) -> Evidence:
    """Visits of a subdomain added up, without those that have no images.

    >>> pooled(np.array([4, 2, 4, 3]), np.array([3, 1, 5, 0]), np.array([10, 10, 10, 0])).accuracy
    array([0.1, 0.4])
    """
    has_images = n_images > 0
    subdomains, position = np.unique(visited[has_images], return_inverse=True)
    correct_sum = np.bincount(position, correct[has_images], len(subdomains))
    images_sum = np.bincount(position, n_images[has_images], len(subdomains))
    return Evidence(subdomains.astype(np.int64), correct_sum, images_sum)


class Regression:
    """A regressor of accuracy, weighted by images: `bo` (Lasso, alpha 0.001), `bo_linear`, `bo_forest` or `bo_svr`.

    The standard deviation is that of the forest's 30 trees, or of 5 fits to bootstrap resamples.
    """

    def __init__(self, kind: str, features: Float[np.ndarray, "subdomains features"], seed: int) -> None:
        self.kind = kind
        self.features = features
        self.seed = seed

    def fitted(self, evidence: Evidence, resampled: bool = False, **forest_options: Any) -> Any:
        """The regressor fitted to the accuracies.    resampled: to bootstrap resamples (forests always are)."""
        from sklearn import ensemble, linear_model, svm

        regressor: Any
        if self.kind == "bo_forest":
            regressor = ensemble.RandomForestRegressor(TREES, random_state=self.seed, **forest_options)
        elif self.kind == "bo":
            regressor = linear_model.Lasso(1e-3, max_iter=10_000)
        elif self.kind == "bo_svr":
            regressor = svm.SVR()
        else:
            regressor = linear_model.LinearRegression()
        if resampled and self.kind != "bo_forest":
            regressor = ensemble.BaggingRegressor(regressor, RESAMPLES, random_state=self.seed)

        weight = evidence.n_images / evidence.n_images.mean()
        return regressor.fit(self.features[evidence.subdomains], evidence.accuracy, sample_weight=weight)

    def tune(self, evidence: Evidence) -> Tuned:
        return 0.0, 0.0, 0.0  # there is nothing to tune

    def predict(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        regressor = self.fitted(evidence)
        mean = regressor.predict(self.features)
        if not spread:
            return Prediction(mean, np.full(len(mean), np.nan))

        ensemble = regressor if self.kind == "bo_forest" else self.fitted(evidence, resampled=True)
        predictions = [member.predict(self.features) for member in ensemble.estimators_]
        return Prediction(mean, np.std(predictions, axis=0))

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
    information = evidence.n_images * accuracy * (1 - accuracy)
    return WorkingLogits(logit + (evidence.correct - evidence.n_images * accuracy) / information, 1 / information)


class PairwiseGP:
    """A Gaussian process of the logit of accuracy: constant + attribute values + pairs of values + own effects.

    z_s = m + sum_i u[i, s_i] + sum_{i<j} v[i, s_i, j, s_j] + w_s,   u ~ N(0, a²), v ~ N(0, p²), w ~ N(0, o²)
    c_s ~ Binomial(n_s, expit(z_s))   for c right of n images

    The posterior is Laplace's approximation: normal around the mode, with the curvature there (Rasmussen and Williams
    2006, section 3.4). Newton's steps to the mode are Bayesian linear regressions of `working_logits` on indicators.
    `tune` takes the (a, p, o) of highest marginal likelihood from a grid that has 0 for each; the likelihood is that of
    the working logits at the mode for TYPICAL (penalised quasi-likelihood: Breslow and Clayton 1993, JASA 88:9).
    """

    ADDITIVE = (0.0, 0.25, 0.5, 1.0, 1.6)  # a
    PAIRWISE = (0.0, 0.2, 0.4, 0.7)  # p
    OWN = (0.0, 0.25, 0.5)  # o
    TYPICAL = (1.0, 0.4, 0.25)  # a, p, o

    def __init__(
        self, values: Float[np.ndarray, "subdomains values"], pairs: Float[np.ndarray, "subdomains pairs"]
    ) -> None:
        constant = np.ones((len(values), 1))
        self.features = np.hstack([constant, values, pairs])  # indicators of values and of pairs of values
        self.sparse_features = csr_array(self.features)
        self.part = np.repeat([0, 1, 2], [1, values.shape[1], pairs.shape[1]])  # of each feature: constant, u or v

    def tune(self, evidence: Evidence) -> Tuned:
        centre = self._centre(evidence)
        logits = self._at_mode(evidence, self.TYPICAL)
        moments_by_own = {own: self._moments(evidence, logits, centre, own) for own in self.OWN}

        def log_likelihood(sds: Tuned) -> float:
            additive, pairwise, own = sds
            return round(self._solved(*moments_by_own[own], additive, pairwise)[0], 6)  # the first of equal ones wins

        return max(product(self.ADDITIVE, self.PAIRWISE, self.OWN), key=log_likelihood)

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
        correct = evidence.correct.sum()
        n_images = evidence.n_images.sum()
        return float(np.log((correct + 0.5) / (n_images - correct + 0.5)))

    def _at_mode(self, evidence: Evidence, sds: Tuned) -> WorkingLogits:
        """Working logits at the mode of the posterior, by Newton's method."""
        overall = (evidence.correct.sum() + 0.5) / (evidence.n_images.sum() + 1)
        shrunk = (evidence.correct + PRIOR_IMAGES * overall) / (evidence.n_images + PRIOR_IMAGES)
        logit = np.log(shrunk / (1 - shrunk))

        for _ in range(MOST_STEPS):
            mode = self._posterior(evidence, working_logits(evidence, logit), sds, spread=False).mean[
                evidence.subdomains
            ]
            step = np.clip(mode - logit, -LONGEST_STEP, LONGEST_STEP)  # far from the mode, Newton's may overshoot
            logit = logit + step
            if np.abs(step).max() < TOLERANCE:
                break

        return working_logits(evidence, logit)

    def _posterior(self, evidence: Evidence, logits: WorkingLogits, sds: Tuned, spread: bool) -> Prediction:
        """The logit of every subdomain, given measured ones; without spread, the mean alone."""
        additive, pairwise, own = sds
        centre = self._centre(evidence)
        subdomains = evidence.subdomains
        moments = self._moments(evidence, logits, centre, own)
        _, lower, half, active, scale = self._solved(*moments, additive, pairwise)

        weights = np.zeros(len(self.part))
        weights[active] = scale * solve_triangular(lower, half, lower=True, trans=1)
        mean = centre + self.sparse_features @ weights
        own_share = own**2 / (logits.variance + own**2)  # of a residual that is taken as the subdomain's own effect
        mean[subdomains] += own_share * (logits.value - mean[subdomains])
        if not spread:
            return Prediction(mean, np.full(len(mean), np.nan))

        root = solve_triangular(lower, (self.features[:, active] * scale).T, lower=True)
        shared_variance = np.sum(root**2, axis=0)
        variance = shared_variance + own**2
        variance[subdomains] = (1 - own_share) ** 2 * shared_variance[subdomains] + own_share * logits.variance
        return Prediction(mean, np.sqrt(variance))

    def _moments(self, evidence: Evidence, logits: WorkingLogits, centre: float, own: float) -> tuple[Any, Any, float]:
        """X'V⁻¹X, X'V⁻¹y and the log likelihood without features, for features X, logits y and their variances V."""
        target = logits.value - centre
        variance = logits.variance + own**2
        features = self.sparse_features[evidence.subdomains]
        weighted = (features * (1 / variance)[:, None]).T
        log_likelihood = -0.5 * np.sum(np.log(variance) + target**2 / variance)
        return (weighted @ features).toarray(), weighted @ target, log_likelihood

    def _solved(
        self, gram: Any, moment: Any, log_likelihood_of_noise: float, additive: float, pairwise: float
    ) -> tuple[Any, ...]:
        """The Bayesian linear regression of `_moments` with these standard deviations of the weights.

        Returns the log likelihood, the Cholesky factor L of I + S X'V⁻¹X S, L⁻¹ S X'V⁻¹y, the positions of the
        features with a standard deviation above 0, and these standard deviations, S.
        """
        sd = np.array([3.0, additive, pairwise])[self.part]  # 3: of the constant, around the share that is right
        active = np.flatnonzero(sd)
        scale = sd[active]
        lower = np.linalg.cholesky(np.eye(len(active)) + scale[:, None] * gram[np.ix_(active, active)] * scale)
        half = solve_triangular(lower, scale * moment[active], lower=True)
        log_likelihood = log_likelihood_of_noise - np.log(np.diag(lower)).sum() + 0.5 * half @ half
        return log_likelihood, lower, half, active, scale


def cross_validated_r2(model: Regression | PairwiseGP, evidence: Evidence, tuned: Tuned) -> float:
    """Share of the variance of accuracies that a model explains over their mean, in 5 folds (forests: out of bag)."""
    accuracy = evidence.accuracy
    fold = np.random.default_rng(0).permutation(len(accuracy)) % FOLDS

    baseline = np.empty(len(accuracy))  # the mean accuracy of the other folds
    for k in range(FOLDS):
        is_held_out = fold == k
        baseline[is_held_out] = accuracy[~is_held_out].mean()

    predicted = _held_out_predictions(model, evidence, tuned, fold, baseline)
    baseline_error = np.sum((accuracy - baseline) ** 2)
    if baseline_error <= 1e-12:
        return 0.0
    return float(1 - np.sum((accuracy - predicted) ** 2) / baseline_error)


def _held_out_predictions(
    model: Regression | PairwiseGP,
    evidence: Evidence,
    tuned: Tuned,
    fold: Int[np.ndarray, " visited"],
    baseline: Float[np.ndarray, " visited"],
) -> Float[np.ndarray, " visited"]:
    """The prediction of each subdomain from the other folds; a forest's out of bag, as five more would take too long.

    The baseline where a model predicts one value for a whole fold: it explains nothing there.
    """
    if isinstance(model, Regression) and model.kind == "bo_forest":
        return np.asarray(model.fitted(evidence, oob_score=True).oob_prediction_)

    predicted = np.empty(len(fold))
    for k in range(FOLDS):
        is_held_out = fold == k
        others = Evidence(*(values[~is_held_out] for values in evidence))
        prediction = model.predict(others, tuned, spread=False).mean[evidence.subdomains[is_held_out]]
        is_constant = np.ptp(prediction) < 1e-9
        predicted[is_held_out] = baseline[is_held_out] if is_constant else prediction
    return predicted
