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
TREES = 30  # of a random forest
RESAMPLES = 5  # bootstrap resamples for the standard deviation of a prediction
PRIOR_IMAGES = 4.0  # of average accuracy, added to a subdomain's images where Newton's method begins
MAX_STEPS = 50  # of Newton's method
MAX_STEP_LENGTH = 2.0  # in logits
TOLERANCE = 1e-3  # in logits: the error that is left is about the square of the last step
NODES, NODE_WEIGHTS = roots_hermitenorm(9)  # of an integral over a normal distribution
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
Visits = Integer[np.ndarray, " visits"]
PerSubdomain = Float[np.ndarray, " subdomains"]
Tuned = tuple[float, float, float]  # standard deviations a, p, o of `PairwiseGP`; a Regression ignores them


class Prediction(NamedTuple):
    """Expected accuracy of every subdomain and its standard deviation (NaN where it was not asked for)."""

    mean: PerSubdomain
    sd: PerSubdomain


class Evidence(NamedTuple):
    """Visits, pooled: the subdomains that have images, how many of them were right, and how many there are."""

    subdomains: Int[np.ndarray, " visited"]
    correct: Float[np.ndarray, " visited"]
    n_images: Float[np.ndarray, " visited"]

    @property
    def accuracy(self) -> Float[np.ndarray, " visited"]:
        """Share of right images of each subdomain."""
        return self.correct / self.n_images


def pooled(visited: Visits, correct: Visits, n_images: Visits) -> Evidence:
    """Visits of a subdomain added up, without those that have no images.

    >>> pooled(np.array([4, 2, 4, 3]), np.array([3, 1, 5, 0]), np.array([10, 10, 10, 0])).accuracy
    array([0.1, 0.4])
    """
    has_images = n_images > 0
    subdomains, position = np.unique(visited[has_images], return_inverse=True)
    total_correct = np.bincount(position, correct[has_images], len(subdomains))
    total_shown = np.bincount(position, n_images[has_images], len(subdomains))
    return Evidence(subdomains.astype(np.int64), total_correct, total_shown)


class Regression:
    """A regressor of accuracy, weighted by images: `bo` (Lasso, alpha 0.001), `bo_linear`, `bo_forest` or `bo_svr`.

    The standard deviation is that of the forest's 30 trees, or of 5 fits to bootstrap resamples.
    """

    def __init__(self, kind: str, features: Float[np.ndarray, "subdomains features"], seed: int) -> None:
        self.kind = kind
        self.features = features
        self.seed = seed

    def fitted(self, evidence: Evidence, resampled: bool = False, **forest: Any) -> Any:
        """scikit-learn's regressor, fitted to the evidence; each subdomain is weighted by its number of images.

        resampled: fit an ensemble of RESAMPLES such regressors to bootstrap resamples instead; the spread of its
                   predictions is a standard deviation.
        forest:    further options of a random forest.
        """
        regressor = self._regressor(**forest)
        if resampled and self.kind != "bo_forest":  # a forest resamples by itself
            from sklearn.ensemble import BaggingRegressor

            regressor = BaggingRegressor(regressor, RESAMPLES, random_state=self.seed)

        weight = evidence.n_images / evidence.n_images.mean()
        return regressor.fit(self.features[evidence.subdomains], evidence.accuracy, sample_weight=weight)

    def _regressor(self, **forest: Any) -> Any:
        """scikit-learn's regressor of `self.kind`, not fitted.

        bo: Lasso; bo_svr: a support vector machine; bo_forest: a random forest; bo_linear: least squares.
        forest: further options of a random forest, such as oob_score; other kinds have none.
        """
        from sklearn import ensemble, linear_model, svm

        if self.kind == "bo":
            return linear_model.Lasso(alpha=1e-3, max_iter=10_000)
        if self.kind == "bo_svr":
            return svm.SVR()
        if self.kind == "bo_forest":
            return ensemble.RandomForestRegressor(TREES, random_state=self.seed, **forest)
        return linear_model.LinearRegression()

    def tune(self, evidence: Evidence) -> Tuned:
        """Nothing: these regressors have fixed settings."""
        return 0.0, 0.0, 0.0

    def predict(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        """Expected accuracy of every subdomain; without `spread`, standard deviations are NaN, which saves time."""
        fitted = self.fitted(evidence)
        mean = fitted.predict(self.features)
        if not spread:
            return Prediction(mean, np.full(len(mean), np.nan))

        ensemble = fitted if self.kind == "bo_forest" else self.fitted(evidence, resampled=True)
        member_predictions = [member.predict(self.features) for member in ensemble.estimators_]
        return Prediction(mean, np.std(member_predictions, axis=0))

    scale = predict  # the scale on which acquisitions compare subdomains: accuracy itself


class WorkingLogits(NamedTuple):
    """Counts of right images as if each subdomain's logit had been measured with normal noise."""

    value: Float[np.ndarray, " visited"]
    variance: Float[np.ndarray, " visited"]


def working_logits(evidence: Evidence, logit: Float[np.ndarray, " visited"]) -> WorkingLogits:
    """The normal measurement whose likelihood has the binomial's slope and curvature at these logits.

    value = z + (c - n p) / (n p (1 - p)),   variance = 1 / (n p (1 - p)),   p = expit(z)

    z is the logit of a subdomain's accuracy p by the model, and c of the subdomain's n images are right. The variance
    comes from p and not from the counts themselves: weights that depend on the same counts (the empirical logit's) pull
    every mean towards the subdomains that happened to be near 50 %.

    logit: z of each visited subdomain.

    >>> evidence = Evidence(np.array([0]), np.array([9.0]), np.array([10.0]))
    >>> working_logits(evidence, np.array([0.0]))
    WorkingLogits(value=array([1.6]), variance=array([0.4]))
    """
    accuracy = expit(logit)
    information = evidence.n_images * accuracy * (1 - accuracy)
    return WorkingLogits(logit + (evidence.correct - evidence.n_images * accuracy) / information, 1 / information)


class PairwiseGP:
    """A Gaussian process of the logit of accuracy: constant + attribute values + pairs of values + subdomain effects.

    z_s = m + sum_i u[i, s_i] + sum_{i<j} v[i, s_i, j, s_j] + w_s,   u ~ N(0, a²), v ~ N(0, p²), w ~ N(0, o²)
    c_s ~ Binomial(n_s, expit(z_s))   for c right of n images

    The posterior is Laplace's approximation: normal around the mode, with the curvature there (Rasmussen and Williams
    2006, section 3.4). Newton's steps to the mode are Bayesian linear regressions of `working_logits` on indicators.
    `tune` takes the (a, p, o) of highest marginal likelihood from a grid that has 0 for each; the likelihood is that of
    the working logits at the mode for TYPICAL (penalised quasi-likelihood: Breslow and Clayton 1993, JASA 88:9).
    """

    ADDITIVE = (0.0, 0.25, 0.5, 1.0, 1.6)  # a: standard deviations of the effects, in logits
    PAIRWISE = (0.0, 0.2, 0.4, 0.7)  # p
    INDIVIDUAL = (0.0, 0.25, 0.5)  # o
    TYPICAL = (1.0, 0.4, 0.25)  # a, p, o

    def __init__(
        self,
        values: Float[np.ndarray, "subdomains values"],
        pairs: Float[np.ndarray, "subdomains pairs"],
    ) -> None:
        constant = np.ones((len(values), 1))
        self.features = np.hstack([constant, values, pairs])  # indicators of values and of pairs of values
        self.sparse_features = csr_array(self.features)
        # for each feature: 0 the constant, 1 a value, 2 a pair of values
        self.strength = np.repeat([0, 1, 2], [1, values.shape[1], pairs.shape[1]])

    def tune(self, evidence: Evidence) -> Tuned:
        """The prior standard deviations (a, p, o) of highest marginal likelihood, from the grid of this class.

        In this model the logit of a subdomain's accuracy is a constant plus normal effects: of attribute values
        (standard deviation a), of pairs of values (p) and of the individual subdomain (o).

        To save time, the binomial counts are replaced, once, by working logits: normal measurements of the subdomains'
        logits. Their likelihood has the slope and curvature of the binomial one at the mode of the posterior, for the
        typical (a, p, o) of TYPICAL. The likelihood of each (a, p, o) is then that of a Bayesian linear regression of
        these measurements.
        """
        centre = self._centre(evidence)  # logit of the share of all images that are right
        logits = self._working_logits_at_mode(evidence, self.TYPICAL)
        # the sums of the regression, which depend on o alone
        moments = {individual: self._moments(evidence, logits, centre, individual) for individual in self.INDIVIDUAL}

        def log_likelihood(sds: Tuned) -> float:
            """The marginal log likelihood of the working logits with these prior standard deviations (a, p, o)."""
            additive, pairwise, individual = sds
            regression = self._regression(moments[individual], additive, pairwise)
            # rounded, so that of equal likelihoods `max` takes the first, with the smaller deviations
            return round(regression.log_likelihood, 6)

        return max(product(self.ADDITIVE, self.PAIRWISE, self.INDIVIDUAL), key=log_likelihood)

    def scale(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        """Mean and standard deviation of every subdomain's logit, on which acquisitions compare subdomains."""
        return self._posterior(evidence, self._working_logits_at_mode(evidence, tuned), tuned, spread=True)

    def predict(self, evidence: Evidence, tuned: Tuned, spread: bool = True) -> Prediction:
        """Expected accuracy: the mean over the posterior of the logit, not the accuracy at its mean."""
        logit = self.scale(evidence, tuned)
        # the integrals over the normal posterior, by Gauss-Hermite quadrature: weighted sums over its nodes
        accuracy = expit(logit.mean[:, None] + logit.sd[:, None] * NODES)  # subdomains x nodes
        mean = accuracy @ NODE_WEIGHTS
        variance = (accuracy - mean[:, None]) ** 2 @ NODE_WEIGHTS
        return Prediction(mean, np.sqrt(variance))

    @staticmethod
    def _centre(evidence: Evidence) -> float:
        """Logit of the share of all images that are right, around which the constant varies."""
        n_right = evidence.correct.sum()
        n_wrong = evidence.n_images.sum() - n_right
        return float(np.log((n_right + 0.5) / (n_wrong + 0.5)))

    def _working_logits_at_mode(self, evidence: Evidence, sds: Tuned) -> WorkingLogits:
        """Working logits of the visited subdomains at the mode of the posterior, by Newton's method.

        Working logits are a normal measurement of the subdomains' logits z, which replaces the binomial counts: its
        likelihood has the same slope and curvature at z. Each step computes them at the current z; the posterior mean
        given these measurements, by a Bayesian linear regression, is the next z.

        sds: prior standard deviations (a, p, o) of the effects of values, of pairs of values and of subdomains.
        """
        # start from shares that are shrunk towards the overall share, so that no share is 0 or 1
        overall = (evidence.correct.sum() + 0.5) / (evidence.n_images.sum() + 1)
        shrunk = (evidence.correct + PRIOR_IMAGES * overall) / (evidence.n_images + PRIOR_IMAGES)
        logit = np.log(shrunk / (1 - shrunk))

        for _ in range(MAX_STEPS):
            # spread=False: the mean alone
            posterior = self._posterior(evidence, working_logits(evidence, logit), sds, spread=False)
            step = posterior.mean[evidence.subdomains] - logit
            step = np.clip(step, -MAX_STEP_LENGTH, MAX_STEP_LENGTH)  # far from the mode a step may overshoot
            logit = logit + step
            if np.abs(step).max() < TOLERANCE:
                break

        return working_logits(evidence, logit)

    def _posterior(self, evidence: Evidence, logits: WorkingLogits, sds: Tuned, spread: bool) -> Prediction:
        """Posterior mean and standard deviation of every subdomain's logit, given measured logits of visited ones.

        Constant, values and pairs of values form a Bayesian regression, which gives every subdomain a logit with mean f
        and variance v. A subdomain with a measured logit y of variance r has

        mean     = f + k (y - f),   k = o² / (r + o²)
        variance = (1 - k)² v + k r

        where k is the share of the residual y - f that is taken as the subdomain's individual effect. That effect has
        variance o² before the measurement and k r after it. A subdomain that was not visited has the mean f and the
        variance v + o².

        logits: y and r of the visited subdomains.
        sds:    prior standard deviations (a, p, o) of the effects of values, of pairs of values and of subdomains.
        spread: whether standard deviations are computed; without it they are NaN, which saves time.
        """
        additive, pairwise, individual = sds
        visited = evidence.subdomains
        centre = self._centre(evidence)
        regression = self._regression(self._moments(evidence, logits, centre, individual), additive, pairwise)

        # f is the centre (the logit of the share right of all images) plus the features X (indicators of values and
        # pairs) times the posterior mean of their weights, S (L')⁻¹ h. S has the prior deviations, L (`lower`) is the
        # Cholesky factor of I + S X' V⁻¹ X S, and h (`half_solution`) is L⁻¹ S X' V⁻¹ (y - centre), with V = r + o².
        # Features with prior deviation 0 are not `active`: their weights are 0
        weights = np.zeros(self.features.shape[1])
        solution = solve_triangular(regression.lower, regression.half_solution, lower=True, trans=1)
        weights[regression.active] = regression.prior_sd * solution
        mean = centre + self.sparse_features @ weights
        individual_share = individual**2 / (logits.variance + individual**2)  # k
        mean[visited] += individual_share * (logits.value - mean[visited])
        if not spread:
            return Prediction(mean, np.full(len(mean), np.nan))

        # v of every subdomain: the squared length of L⁻¹ S x, for its features x
        scaled_features = self.features[:, regression.active] * regression.prior_sd
        whitened = solve_triangular(regression.lower, scaled_features.T, lower=True)  # features x subdomains
        variance_of_f = np.sum(whitened**2, axis=0)
        variance = variance_of_f + individual**2
        variance[visited] = (1 - individual_share) ** 2 * variance_of_f[visited] + individual_share * logits.variance
        return Prediction(mean, np.sqrt(variance))

    def _moments(self, evidence: Evidence, logits: WorkingLogits, centre: float, individual: float) -> _Moments:
        """The sums over visited subdomains that the Bayesian linear regression of measured logits needs.

        X are the features of a subdomain (indicators of its values and pairs of values), y is its measured logit less
        `centre`, and V is the variance of y, which includes o² of the subdomain's individual effect. The sums are:

        gram = X' V⁻¹ X,   moment = X' V⁻¹ y,   log_density = log N(y; 0, V), but for a constant

        They depend on o (`individual`) and not on the other prior deviations, so `tune` computes them once for each o.

        logits: the measured logits and their variances.    centre: the logit around which the constant varies.
        """
        target = logits.value - centre
        variance = logits.variance + individual**2
        features = self.sparse_features[evidence.subdomains]
        weighted = (features * (1 / variance)[:, None]).T  # features x visited, each divided by its variance
        return _Moments(
            gram=(weighted @ features).toarray(),
            moment=weighted @ target,
            log_density=-0.5 * np.sum(np.log(variance) + target**2 / variance),
        )

    def _regression(self, moments: _Moments, additive: float, pairwise: float) -> _Regression:
        """Bayesian linear regression of measured logits on the features X, whose weights have prior deviations S.

        L L' = I + S X' V⁻¹ X S,   h = L⁻¹ S X' V⁻¹ y,   log likelihood = log N(y; 0, V) - log |L| + h'h / 2

        y are the measured logits less their centre, V their variances. `_posterior` needs L and h: the posterior mean
        of the weights is S (L')⁻¹ h.

        moments:  the sums of X, y and V over the visited subdomains.
        additive, pairwise: prior deviations of the weights of values, and of pairs of values.
        """
        # of each feature, by `strength`: 0 is the constant, which varies by 3 around the centre, 1 a value, 2 a pair
        prior_sd = np.array([3.0, additive, pairwise])[self.strength]
        active = np.flatnonzero(prior_sd)  # a weight with prior deviation 0 is 0
        sd = prior_sd[active]

        lower = np.linalg.cholesky(np.eye(len(active)) + sd[:, None] * moments.gram[np.ix_(active, active)] * sd)
        half_solution = solve_triangular(lower, sd * moments.moment[active], lower=True)
        log_likelihood = moments.log_density - np.log(np.diag(lower)).sum() + 0.5 * half_solution @ half_solution
        return _Regression(log_likelihood, lower, half_solution, active, sd)


class _Moments(NamedTuple):
    """Sums over the visited subdomains: features X, measured logits y around the centre, their variances V."""

    gram: Float[np.ndarray, "features features"]  # X' V⁻¹ X
    moment: Float[np.ndarray, " features"]  # X' V⁻¹ y
    log_density: float  # log N(y; 0, V), but for a constant


class _Regression(NamedTuple):
    """See `PairwiseGP._regression`; active: the features whose weights vary (prior standard deviation above 0)."""

    log_likelihood: float
    lower: Float[np.ndarray, "active active"]  # L
    half_solution: Float[np.ndarray, " active"]  # h
    active: Int[np.ndarray, " active"]
    prior_sd: Float[np.ndarray, " active"]  # S


def cross_validated_r2(model: Regression | PairwiseGP, evidence: Evidence, tuned: Tuned) -> float:
    """Share of the variance of accuracies that a model explains, cross-validated in 5 folds.

    1 - sum (accuracy - predicted)² / sum (accuracy - baseline)²

    The baseline of a subdomain is the mean accuracy of the other folds, and its prediction is by a model fitted to
    them. Only a random forest predicts each subdomain by the trees that were not fitted to it (out of bag). The result
    is 0 where all accuracies are equal, and negative for a model that predicts worse than the mean.

    evidence: right images and images of each visited subdomain; FOLDS or more of them.
    tuned: settings from the model's `tune`.
    """
    accuracy = evidence.accuracy
    fold_of = np.random.default_rng(0).permutation(len(accuracy)) % FOLDS

    baseline = np.empty(len(accuracy))
    for fold in range(FOLDS):
        is_held_out = fold_of == fold
        baseline[is_held_out] = accuracy[~is_held_out].mean()

    if isinstance(model, Regression) and model.kind == "bo_forest":  # out of bag: 5 more fits are too slow
        predicted = model.fitted(evidence, oob_score=True).oob_prediction_
    else:
        predicted = _held_out_predictions(model, evidence, tuned, fold_of, baseline)

    baseline_error = np.sum((accuracy - baseline) ** 2)
    if baseline_error <= 1e-12:  # equal accuracies, but for rounding: there is nothing to explain
        return 0.0
    return float(1 - np.sum((accuracy - predicted) ** 2) / baseline_error)


def _held_out_predictions(
    model: Regression | PairwiseGP,
    evidence: Evidence,
    tuned: Tuned,
    fold_of: Int[np.ndarray, " visited"],
    baseline: Float[np.ndarray, " visited"],
) -> Float[np.ndarray, " visited"]:
    """Accuracy of each visited subdomain, predicted by a model that was fitted to the other folds.

    Where a model predicts one value for its whole fold, the baseline takes the place of the predictions.

    fold_of: the fold of each visited subdomain.    baseline: mean accuracy of the other folds.
    """
    predicted = np.empty(len(fold_of))
    for fold in range(FOLDS):
        is_held_out = fold_of == fold
        other_folds = Evidence(*(values[~is_held_out] for values in evidence))
        # the mean alone (spread=False), for all subdomains of the domain
        expected = model.predict(other_folds, tuned, spread=False).mean
        of_fold = expected[evidence.subdomains[is_held_out]]
        is_constant = np.ptp(of_fold) < 1e-9  # such a model explains nothing: its skill must be 0
        predicted[is_held_out] = baseline[is_held_out] if is_constant else of_fold
    return predicted
