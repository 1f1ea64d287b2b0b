"""A mixed logit of the responses to a test: responses to easy items predict those to hard items never evaluated.

    P(right | session, level) = 1 / (1 + exp(-(β_level + s_level u))),   u ~ N(0, 1) for each session

Three kinds: one s for all levels, an s for each level, or also a u for each level, which makes levels independent. The
kind that best predicts the responses of sessions held out of the fit is used. β and s of each group are themselves
drawn around those of all groups, with a spread learned from the groups: similar groups inform each other, dissimilar
groups are estimated alone. An adaptive test chooses items by responses that the model conditions on, so its likelihood
can ignore the rule (missing at random, Rubin 1976); shares of right responses cannot.

In einsum: p patterns (or rows), l levels, n nodes, s loadings, k parameters (β, then s), g groups, t targets.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num
from scipy.special import expit, log_expit, ndtri

from fca.stats.intervals import LEVEL
from fca.studies.adaptive.stats.estimators import Estimate, Interval, normal_estimate, stratified
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import LEVEL_WEIGHTS, TARGETS, Pool, Record

NODES = np.linspace(-4.8, 4.8, 49)  # equal steps: the trapezoid rule is as good as exact for analytic tails
LOG_WEIGHTS = -(NODES**2) / 2 - np.log(np.exp(-(NODES**2) / 2).sum())
BETA_ALONE, S_ALONE = 10.0, 3.0  # standard deviations of β and s of a group alone: only to keep them finite
SPREADS = np.geomspace(0.02, 4.0, 40)  # of β or s among groups, in logits
FOLDS = 2  # of sessions, to choose the kind
MISFIT = (
    "mixed_logit does not fit these responses: the random sample among them contradicts it, and its stratified mean is "
    "the estimate"
)
STEPS = 100
TOLERANCE, ROUGH = 1e-5, 1e-2  # of a step; rough is enough to compare kinds
Parameters = Float[np.ndarray, "groups k"]  # β of the three levels, then s of all or of each
PerParameter = Float[np.ndarray, " k"]
Frequency = Int[np.ndarray, " patterns"]


class Kind(NamedTuple):
    """Which effects a session has.

    loadings:         which s each level has.
    separate_effects: whether a session has a u for each level.
    """

    loadings: Float[np.ndarray, "3 s"]
    separate_effects: bool = False


KINDS = {
    "one effect a session": Kind(np.ones((3, 1))),
    "an effect that differs by level": Kind(np.eye(3)),
    "an effect for each level": Kind(np.eye(3), separate_effects=True),
}


class Rows(NamedTuple):
    """Counts by level of the responses that share a u, one row each: a session, or one level of a session."""

    n_evaluated: Int[np.ndarray, "rows 3"]
    n_right: Int[np.ndarray, "rows 3"]
    n_remaining: Int[np.ndarray, "rows 3"]  # items without a response
    group: Int[np.ndarray, " rows"]  # ascending
    fold: Int[np.ndarray, " rows"]


class Patterns(NamedTuple):
    """Rows with equal counts in the same group, once each, and how often each is in each fold."""

    n_evaluated: Int[np.ndarray, "patterns 3"]
    n_right: Int[np.ndarray, "patterns 3"]
    group: Int[np.ndarray, " patterns"]  # ascending
    frequency: Int[np.ndarray, "folds patterns"]
    pattern_of_row: Int[np.ndarray, " rows"]
    loadings: Float[np.ndarray, "3 s"]


class Prior(NamedTuple):
    """Independent normals of β and s of a group, and the variance of their estimated means."""

    mean: PerParameter
    variance: PerParameter
    mean_variance: PerParameter


class Evaluation(NamedTuple):
    """At some parameters: the penalised log-likelihood of each group, and the posterior of u in each pattern."""

    height: Float[np.ndarray, " groups"]  # penalised log-likelihood
    log_likelihood: Float[np.ndarray, " patterns"]  # of one row with the pattern
    posterior: Float[np.ndarray, "patterns nodes"]
    chance: Float[np.ndarray, "groups 3 nodes"]
    score_by_node: Float[np.ndarray, "patterns k nodes"]  # derivatives by β and s, were u known


class Fit(NamedTuple):
    """Parameters at the mode, the likelihood there, and the prior that was learned from the groups."""

    parameters: Parameters
    evaluation: Evaluation
    prior: Prior


def mixed_logit(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Accuracy and score of each group, from observed responses and a model's mean probabilities of all other items.

        P(right | session, level) = 1 / (1 + exp(-(β_level + s_level u))),   u ~ N(0, 1) for each session

    The mean probability is over u given all responses of the session (a class and an attribute). Each group (an
    attribute) is fitted alone first; the fits show how β and s vary among groups, and each group is fitted again with
    that as its prior (empirical Bayes). The variance has three parts: of the missing responses given u, of u given the
    session's responses, and of β and s (inverse information and the variance of their prior mean, to first order).

    The items that were not chosen by earlier responses are a random sample. Where the stratified mean of their
    responses differs from the model's estimate by more than chance (`contradicted`), it is returned instead, with a
    `warning` that the model does not fit. The argument `bank` is not used.
    """
    # The kind of model: all levels share an s and a u, or each level has an s of its own, or an s and a u of its own.
    # `loadings` (3 levels x number of s, of 0 and 1) is 1 at the s that a level has
    kind = KINDS[choose_kind(pool, record)]
    rows = rows_of(pool, record, kind)  # a row has the counts of right and wrong responses that share one u
    patterns = count_patterns(rows, kind.loadings)  # equal rows, once each
    rows_of_pattern = patterns.frequency.sum(axis=0)  # over the folds, which only `choose_kind` needs
    fit_of_all = fit_groups(patterns, rows_of_pattern)
    estimate = predict(pool, rows, patterns, fit_of_all)

    sample_estimate = stratified(pool, record.random_sample)
    if contradicted(estimate.overall, sample_estimate.overall):
        return sample_estimate._replace(warning=MISFIT)
    return estimate


def contradicted(by_model: Interval, by_sample: Interval) -> bool:
    """Whether an estimate by a model differs from one without a model by more than chance, for any target.

    This is the test of Hausman (1978): if the model is true, its estimate is the more precise one, and the variance of
    the difference is the difference of the variances. This variance is taken to be at least a quarter of the one of
    `by_sample`, as it would be near 0 if both variances were similar. The test is two-sided, at 5 % over both targets
    (Bonferroni: 2.5 % for each).

    >>> half = np.full((1, 2), 0.5)
    >>> contradicted(Interval(half, half / 50, half, half), Interval(half + 0.1, half / 12, half, half))
    True
    """
    variance = np.maximum(by_sample.se**2 - by_model.se**2, by_sample.se**2 / 4)
    difference = np.abs(by_model.value - by_sample.value)
    critical_z = -ndtri((1 - LEVEL) / 2 / len(TARGETS))
    return bool((difference > critical_z * np.sqrt(variance)).any())


def choose_kind(pool: Pool, record: Record) -> str:
    """The name of the kind of model, a key of KINDS, under which the responses of held-out sessions are most likely.

    In all kinds P(right) of an item is 1 / (1 + exp(-(β_level + s_level u))), with a random effect u of its session.
    They differ in whether levels share one s, have an s each, or have an s and a u each.

    Two-fold cross-validation: each kind is fitted to one half of the sessions and evaluated on the other half. Rows of
    sessions with equal counts of responses are merged into patterns; `frequency` (folds x patterns) has the number of
    rows of each pattern in each fold.
    """
    held_out_log_likelihood: dict[str, float] = {}
    for name, kind in KINDS.items():
        patterns = count_patterns(rows_of(pool, record, kind), kind.loadings)
        total = patterns.frequency.sum(axis=0)
        # one fit for each fold, to the rows outside it (ROUGH: a lower precision is enough to compare kinds)
        fits = [fit_groups(patterns, total - rows_in_fold, ROUGH) for rows_in_fold in patterns.frequency]
        # the log-likelihood of one row with each pattern
        log_likelihoods = np.stack([fold_fit.evaluation.log_likelihood for fold_fit in fits])  # folds x patterns
        held_out_log_likelihood[name] = float((patterns.frequency * log_likelihoods).sum())
    return max(held_out_log_likelihood, key=held_out_log_likelihood.__getitem__)


def rows_of(pool: Pool, record: Record, kind: Kind) -> Rows:
    """The numbers of evaluated, right and remaining items by level, in a row for each random effect u.

    There is a row for each session, or for each level of a session if `kind` has a separate effect for each level. The
    sessions are dealt out to the folds of a cross-validation in turn; all rows of a session are in the same fold.
    """
    n_evaluated = pool.by_stratum(record.evaluated)  # sessions x levels
    n_right = pool.by_stratum(record.right)
    n_remaining = pool.sizes - n_evaluated
    sessions = np.arange(len(n_evaluated))

    if kind.separate_effects:  # one row for each session and level, 0 at the other levels
        counts = np.stack([n_evaluated, n_right, n_remaining])  # 3 x sessions x levels
        count_of_own_level = counts[:, :, None] * np.eye(3, dtype=np.int64)  # 3 x sessions x levels x levels
        n_evaluated, n_right, n_remaining = count_of_own_level.reshape(3, -1, 3)
        sessions = np.repeat(sessions, 3)
    return Rows(n_evaluated, n_right, n_remaining, pool.session_group[sessions], sessions % FOLDS)


def count_patterns(rows: Rows, loadings: Float[np.ndarray, "3 s"]) -> Patterns:
    """Merge rows of a group with equal counts into one pattern, so that their common likelihood is computed once.

    A row has the counts of evaluated and right items by level that share one random effect u. `frequency` is the
    number of rows with each pattern in each fold.

    loadings: 1 at the s that a level has, else 0. The factor s is how strongly u changes the logit of a right response;
              levels share one s, or have one each. The result keeps `loadings` for the fit.
    """
    keys = np.column_stack([rows.group, rows.n_evaluated, rows.n_right])
    # the first row of each pattern, and the pattern of each row; patterns are sorted by group
    _, first_row, pattern_of_row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    frequency = np.stack(
        [np.bincount(pattern_of_row[rows.fold == fold], minlength=len(first_row)) for fold in range(FOLDS)]
    )
    return Patterns(
        n_evaluated=rows.n_evaluated[first_row],
        n_right=rows.n_right[first_row],
        group=rows.group[first_row],
        frequency=frequency,
        pattern_of_row=pattern_of_row,
        loadings=loadings,
    )


def fit_groups(patterns: Patterns, frequency: Frequency, tolerance: float = TOLERANCE) -> Fit:
    """Fit each group alone, then again with a prior that the first fits of all groups show.

    The parameters of a group are β, the logit of each of the three levels in a session with u = 0, and s, how strongly
    the session's effect u changes these logits (one s for all levels, or one for each). With a single group no prior
    can be learned, so there is no second fit.

    patterns:  the different rows of each group, which are counts of evaluated and right items by level.
    frequency: number of rows (sessions, or single levels of a session) with each pattern, without held-out rows.
    tolerance: the fit has converged when its largest step is smaller.
    """
    number_of_groups = int(patterns.group[-1]) + 1  # groups ascend
    number_of_s = patterns.loadings.shape[1]

    # for the fit of each group alone, a wide normal prior keeps β and s finite if all responses are right, or all wrong
    sd_alone = np.array([BETA_ALONE] * 3 + [S_ALONE] * number_of_s)
    zeros = np.zeros(3 + number_of_s)
    # mean_variance: the error of the prior's mean, 0 because this mean is not estimated
    prior = Prior(mean=zeros, variance=sd_alone**2, mean_variance=zeros)

    # Start at the logits of the shares right (half a right and half a wrong response added), and s = 1
    n_right = group_sums(patterns, patterns.n_right, frequency)
    n_evaluated = group_sums(patterns, patterns.n_evaluated, frequency)
    share = (n_right + 0.5) / (n_evaluated + 1)
    beta = np.log(share / (1 - share))
    start = np.concatenate([beta, np.ones((number_of_groups, number_of_s))], axis=1)
    parameters, evaluation = fit(patterns, prior, start, frequency, tolerance)

    if number_of_groups > 1:
        # the covariance of each group's estimates is the inverse of the negative Hessian of its log-likelihood
        covariance = inverse(curvature(patterns, prior, evaluation, frequency))
        variance = np.diagonal(covariance, axis1=1, axis2=2)  # groups x parameters
        prior = learn_prior(parameters, variance)
        parameters, evaluation = fit(patterns, prior, parameters, frequency, tolerance)
    return Fit(parameters, evaluation, prior)


def learn_prior(parameters: Parameters, variance: Parameters) -> Prior:
    """The prior of a group's β and s: mean and spread of each parameter among the groups.

    parameters, variance: each group's estimate x_g and its variance v_g. The spread τ is its posterior mean under a
    flat prior on the range of SPREADS, given the restricted (residual) likelihood of normal estimates

        log L(τ) = -1/2 Σ_g [(x_g - μ)² / (v_g + τ²) + log(v_g + τ²)] - 1/2 log Σ_g 1 / (v_g + τ²)

    where μ is the mean of x_g with weights 1 / (v_g + τ²). With few groups the posterior is wide, so its mean does not
    vanish for groups that are similar by luck. The result has μ, τ², and as `mean_variance` the variance of μ as an
    estimate, 1 / Σ_g 1 / (v_g + τ²), which `predict` adds to the uncertainty of every group.
    """
    x = parameters[:, :, None]  # groups x k x 1
    total = variance[:, :, None] + SPREADS**2  # groups x k x spreads
    precision = (1 / total).sum(axis=0)
    mean = (x / total).sum(axis=0) / precision
    residual_terms = (x - mean) ** 2 / total + np.log(total)
    log_likelihood = -residual_terms.sum(axis=0) / 2 - np.log(precision) / 2  # k x spreads

    # SPREADS has geometric steps: their widths make the prior flat in τ
    posterior = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True)) * np.gradient(SPREADS)
    posterior /= posterior.sum(axis=1, keepdims=True)
    spread = (posterior * SPREADS).sum(axis=1)

    weight = 1 / (variance + spread**2)
    mean_variance = 1 / weight.sum(axis=0)
    return Prior((parameters * weight).sum(axis=0) * mean_variance, spread**2, mean_variance)


def evaluate(patterns: Patterns, prior: Prior, parameters: Parameters, frequency: Frequency) -> Evaluation:
    """The penalised log-likelihood of each group at these parameters, and the posterior of u for each pattern.

    A pattern is the counts of evaluated and right items by level that rows (sessions) of a group share; u is a row's
    effect, on the grid NODES. In a group with β and s, P(right) at level l is 1 / (1 + exp(-(β_l + s_l u))).

    prior:      mean and variance of the normal prior of β and s; the penalty is (x - mean)² / (2 variance) for each.
    parameters: of each group, β of the three levels, then its values of s: one for all levels, or one for each.
                `patterns.loadings` (3 levels x number of s) is 1 at the s that a level has, else 0.
    frequency:  number of rows with each pattern.

    Returns the penalised log-likelihood of each group (`height`); of each pattern the log-likelihood of one row and
    the posterior of u at the nodes; P(right) of each group and level at the nodes (`chance`); and for each pattern the
    derivatives of its log-likelihood by β and s if u were at a node (`score_by_node`, without the penalty).
    """
    s = parameters[:, 3:] @ patterns.loadings.T  # s of each level; groups x levels
    eta = parameters[:, :3, None] + s[:, :, None] * NODES  # groups x levels x nodes
    chance = expit(eta)

    # log of P(responses | u) times the weight of node u; patterns (p) x nodes (n), summed over levels (l)
    n_wrong = patterns.n_evaluated - patterns.n_right
    log_right = log_expit(eta)[patterns.group]
    log_wrong = log_expit(-eta)[patterns.group]
    joint = np.einsum("pl,pln->pn", patterns.n_right, log_right)
    joint += np.einsum("pl,pln->pn", n_wrong, log_wrong) + LOG_WEIGHTS

    # log_likelihood: the log of its integral over u, with the maximum taken out against underflow
    maximum = joint.max(axis=1, keepdims=True)
    mass = np.exp(joint - maximum)
    total = mass.sum(axis=1, keepdims=True)
    log_likelihood = (np.log(total) + maximum)[:, 0]

    # height: the log-likelihood of each group, less the penalty by the normal prior of β and s
    height = np.bincount(patterns.group, weights=frequency * log_likelihood, minlength=len(parameters))
    height -= ((parameters - prior.mean) ** 2 / (2 * prior.variance)).sum(axis=1)

    # derivatives by β_l: right - evaluated p; by s: the same times u, over the levels that have this s (`loadings`)
    expected_right = patterns.n_evaluated[:, :, None] * chance[patterns.group]
    surplus = patterns.n_right[:, :, None] - expected_right
    score_of_s = np.einsum("ls,pln->psn", patterns.loadings, surplus) * NODES
    score_by_node = np.concatenate([surplus, score_of_s], axis=1)
    return Evaluation(height, log_likelihood, mass / total, chance, score_by_node)


def group_sums(
    patterns: Patterns, values: Num[np.ndarray, "patterns ..."], frequency: Frequency
) -> Num[np.ndarray, "groups ..."]:
    """Sums of `values` over the patterns of each group, in which a pattern counts `frequency` times."""
    starts = np.searchsorted(patterns.group, np.arange(patterns.group[-1] + 1))  # first pattern of each group
    return np.add.reduceat((values.T * frequency).T, starts, axis=0)


def posterior_score(evaluation: Evaluation) -> Float[np.ndarray, "patterns k"]:
    """Derivatives of each pattern's log-likelihood by β and s: their mean over the posterior of u."""
    # p patterns, k parameters, n nodes of u
    return np.einsum("pn,pkn->pk", evaluation.posterior, evaluation.score_by_node)


def curvature(
    patterns: Patterns, prior: Prior, evaluation: Evaluation, frequency: Frequency
) -> Num[np.ndarray, "groups ..."]:
    """Negative Hessian of each group's penalised log-likelihood by its k parameters β and s, groups x k x k.

    It is the information if u were known, less the information that is lost because u is not (Louis 1982), plus the
    precision of the prior:

        E[n p (1 - p) z z'] - Cov[score] + diag(1 / prior variance),   summed over the rows of the group

    Mean and covariance are over the posterior of u. The score is the derivative of a row's log-likelihood by β and s
    at a given u, and z the derivative of a level's logit: 1 for its own β, and u for its own s (`loadings`, 3 levels x
    number of s, is 1 at the s that a level has).
    """
    # What u hides: the covariance of the score over the posterior of u; patterns x k x k
    score = posterior_score(evaluation)  # the mean of the score over the posterior of u; patterns x k
    weighted_score = evaluation.score_by_node * evaluation.posterior[:, None]
    hidden = weighted_score @ evaluation.score_by_node.swapaxes(1, 2)
    hidden -= score[:, :, None] * score[:, None]

    # Posterior means of n p (1 - p) times 1, u and u²; patterns x levels
    response_variance = (evaluation.chance * (1 - evaluation.chance))[patterns.group]
    noise = response_variance * patterns.n_evaluated[:, :, None]
    powers = np.stack([np.ones_like(NODES), NODES, NODES**2])
    weighted_powers = evaluation.posterior[:, None] * powers
    moments = noise @ weighted_powers.swapaxes(1, 2)
    moment_0, moment_1, moment_2 = np.moveaxis(moments, 2, 0)

    # Information were u known: blocks (β, β), (β, s), (s, β) and (s, s)
    complete = np.zeros_like(hidden)
    complete[:, range(3), range(3)] = moment_0
    complete[:, :3, 3:] = moment_1[:, :, None] * patterns.loadings
    complete[:, 3:, :3] = complete[:, :3, 3:].swapaxes(1, 2)
    # p patterns, l levels, s and t loadings
    complete[:, 3:, 3:] = np.einsum("pl,ls,lt->pst", moment_2, patterns.loadings, patterns.loadings)
    return group_sums(patterns, complete - hidden, frequency) + np.diag(1 / prior.variance)


def fit(
    patterns: Patterns,
    prior: Prior,
    parameters: Parameters,
    frequency: Frequency,
    tolerance: float = TOLERANCE,
) -> tuple[Parameters, Evaluation]:
    """The β and s at which every group's penalised likelihood is largest, by Newton's method; and `evaluate` there.

    Groups are independent, so their steps are taken together. A group's step is shortened so that s stays above 0, and
    halved until its likelihood does not fall. The search ends if the largest step of all is below `tolerance`, or after
    STEPS steps.

    parameters: where the search begins, of each group: β (the logits of three levels), then s (how strongly a
                session's effect changes these logits; one value for all levels, or one for each).
    frequency:  how often each pattern (equal counts of responses) counts.
    """
    evaluation = evaluate(patterns, prior, parameters, frequency)
    for _ in range(STEPS):
        # the derivative of the log-likelihood (without the prior), and then of the log prior
        score = group_sums(patterns, posterior_score(evaluation), frequency)
        score -= (parameters - prior.mean) / prior.variance
        covariance = inverse(curvature(patterns, prior, evaluation, frequency))
        step = np.einsum("gkl,gl->gk", covariance, score)  # g groups, k and l parameters

        # no parameter changes by more than 2, and no s loses more than 0.7 of itself: at s = 0 its derivative is 0,
        # whatever lies beyond, and the search would stop there
        longest = np.abs(step).max(axis=1) / 2
        towards_zero = (-step[:, 3:] / (0.7 * parameters[:, 3:])).max(axis=1)
        step /= np.maximum(np.maximum(longest, towards_zero), 1.0)[:, None]

        next_evaluation = evaluate(patterns, prior, parameters + step, frequency)
        # `height`: penalised log-likelihood of each group; a fall by rounding is allowed
        lowest_allowed = evaluation.height - 1e-9 * np.abs(evaluation.height)
        has_fallen = next_evaluation.height < lowest_allowed
        while has_fallen.any():
            step[has_fallen] /= 2
            next_evaluation = evaluate(patterns, prior, parameters + step, frequency)
            has_fallen = next_evaluation.height < lowest_allowed

        parameters = parameters + step
        evaluation = next_evaluation
        if np.abs(step).max() < tolerance:
            break
    return parameters, evaluation


def inverse(matrix: Float[np.ndarray, "groups k k"]) -> Float[np.ndarray, "groups k k"]:
    """Inverse of symmetric matrices of curvature, with the absolute values of their eigenvalues, at least 1e-3.

    A Newton step with this inverse leads uphill also near a saddle, where a curvature is negative, and stays finite.

    >>> inverse(np.diag([2.0, -4.0])[None])[0].tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.maximum(np.abs(values), 1e-3)[:, None]) @ vectors.swapaxes(1, 2)


def predict(pool: Pool, rows: Rows, patterns: Patterns, fit_of_all: Fit) -> Estimate:
    """Accuracy and score of every group with their standard errors, from the fitted model.

    In the model P(right) at level l is p_l = 1 / (1 + exp(-(β_l + s_l u))), with a random effect u of each row.
    Accuracy and score, the targets, are weighted sums of the observed responses, and of the predicted probabilities
    E p of the items without a response. E is the mean over the posterior of u. The variance of a target is

        Σ_rows Σ_l w_l² r_l E[p_l (1 - p_l)]  +  Σ_rows Var(Σ_l w_l r_l p_l)  +  g' C g

    with w_l the weight of an item of level l, and r_l the number of a row's items without a response. The parts are
    from the missing responses given u, from u, and from the parameters: g is the gradient of the target by a group's β
    and s, and C their covariance. All groups share the error of the prior's mean.

    rows:       the counts of right, evaluated and remaining items by level, of every session (or level of one).
    patterns:   the same rows, equal ones merged. `patterns.loadings` is 1 at the s that a level has, else 0.
    fit_of_all: the model, fitted to all rows.
    """
    evaluation = fit_of_all.evaluation
    prior = fit_of_all.prior

    # C, covariance of each group's k parameters β and s: inverse information, and what the prior's mean adds
    covariance = inverse(curvature(patterns, prior, evaluation, patterns.frequency.sum(axis=0)))  # groups x k x k
    pull = covariance / prior.variance  # derivative of a group's parameters by the prior's mean
    covariance = covariance + (pull * prior.mean_variance) @ pull.swapaxes(1, 2)

    # Of a missing response of each pattern, over the posterior of u: E p, E p (1 - p), and cov(p_l, p_m) of two levels
    # p patterns, l levels, n nodes of u
    chance = evaluation.chance[patterns.group]  # patterns x levels x nodes
    weighted_chance = chance * evaluation.posterior[:, None]
    mean = np.einsum("pn,pln->pl", evaluation.posterior, chance)
    response_variance = mean - np.einsum("pn,pln->pl", evaluation.posterior, chance**2)
    chance_covariance = weighted_chance @ chance.swapaxes(1, 2) - mean[:, :, None] * mean[:, None]

    # Derivatives of E p by β and s, in two parts; patterns x levels x k. At a given u they are E p (1 - p) by β, and
    # E u p (1 - p) by s
    slope_by_s = np.einsum("pn,pln,n->pl", evaluation.posterior, chance * (1 - chance), NODES)
    slopes = np.concatenate(
        [response_variance[:, :, None] * np.eye(3), slope_by_s[:, :, None] * patterns.loadings],
        axis=2,
    )
    score = posterior_score(evaluation)
    # as β and s also change the posterior of u, the covariance of p and the score is added (the score is the derivative
    # of a row's log-likelihood)
    slopes += weighted_chance @ evaluation.score_by_node.swapaxes(1, 2) - mean[:, :, None] * score[:, None]

    # Value, and its variance from missing responses and from u: sums over the items of each row; targets x rows
    pattern = patterns.pattern_of_row
    item_weight = LEVEL_WEIGHTS[:, None] / pool.group_sizes[rows.group]  # targets x rows x levels
    remaining_weight = item_weight * rows.n_remaining
    value = (item_weight * (rows.n_right + rows.n_remaining * mean[pattern])).sum(axis=2)
    variance = (item_weight**2 * rows.n_remaining * response_variance[pattern]).sum(axis=2)
    # t targets, p rows, l and m levels
    variance += np.einsum("tpl,plm,tpm->tp", remaining_weight, chance_covariance[pattern], remaining_weight)

    # Sums over the rows of each group, and the variance from β and s, g' C g
    starts = np.searchsorted(rows.group, np.arange(pool.n_groups))  # first row of each group
    sum_by_group = partial(np.add.reduceat, indices=starts, axis=0)
    gradient = sum_by_group(np.einsum("tpl,plk->ptk", remaining_weight, slopes[pattern]))  # groups x targets x k
    # g groups, t targets, k and m parameters
    variance_of_parameters = np.einsum("gtk,gkm,gtm->gt", gradient, covariance, gradient)
    # errors that all groups share: of each parameter of the prior's mean
    shared = np.einsum("gtk,gkm,m->gtm", gradient, pull, np.sqrt(prior.mean_variance))
    se = np.sqrt(sum_by_group(variance.T) + variance_of_parameters)
    return normal_estimate(sum_by_group(value.T), se, shared)
