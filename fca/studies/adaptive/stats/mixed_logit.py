"""A mixed logit of the responses to a test: responses to easy items predict those to hard items never asked.

    P(right | session, level) = 1 / (1 + exp(-(β_level + s_level u))),   u ~ N(0, 1) for each session

Three kinds: one s for all levels, an s for each level, or also a u for each level, which makes levels independent. The
kind that best predicts the responses of sessions held out of the fit is taken. β and s of each group are themselves
drawn around those of all groups, with a spread learned from the groups: similar groups inform each other, dissimilar
ones are estimated alone. An adaptive test chooses items by responses that the model conditions on, so its likelihood
can ignore the rule (missing at random, Rubin 1976); shares of right responses cannot.
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
Each = Float[np.ndarray, " k"]


class Kind(NamedTuple):
    """loads: which s each level has (levels, number of s).    apart: a session has a u for each level."""

    loads: Float[np.ndarray, "3 s"]
    apart: bool = False


KINDS = {
    "one effect a session": Kind(np.ones((3, 1))),
    "an effect that differs by level": Kind(np.eye(3)),
    "an effect for each level": Kind(np.eye(3), apart=True),
}


class Rows(NamedTuple):
    """What shares a u, one line each: a session, or one level of a session."""

    asked: Int[np.ndarray, "rows 3"]
    right: Int[np.ndarray, "rows 3"]
    left: Int[np.ndarray, "rows 3"]  # items not asked
    group: Int[np.ndarray, " rows"]  # ascending
    fold: Int[np.ndarray, " rows"]


class Counts(NamedTuple):
    """Rows with equal counts in the same group, once each."""

    asked: Int[np.ndarray, "patterns 3"]
    right: Int[np.ndarray, "patterns 3"]
    group: Int[np.ndarray, " patterns"]  # ascending
    times: Int[np.ndarray, "folds patterns"]
    of_row: Int[np.ndarray, " rows"]
    loads: Float[np.ndarray, "3 s"]


class Prior(NamedTuple):
    """Independent normals of β and s of a group, and the variance of their estimated means."""

    mean: Each
    variance: Each
    mean_variance: Each


class Local(NamedTuple):
    """At some parameters: the penalised log-likelihood of each group, and the posterior of u in each pattern."""

    height: Float[np.ndarray, " groups"]
    line: Float[np.ndarray, " patterns"]  # log-likelihood of one
    posterior: Float[np.ndarray, "patterns nodes"]
    chance: Float[np.ndarray, "groups 3 nodes"]
    by_node: Float[np.ndarray, "patterns k nodes"]  # score of β and s, were u known


class Fit(NamedTuple):
    """Parameters at the mode, what is known there, and the prior that was learned from the groups."""

    parameters: Parameters
    local: Local
    prior: Prior


def mixed_logit(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Responses where asked; elsewhere the mean probability given all responses of the session.

    Each group is fitted alone first; the fits show how β and s vary among groups, and each is fitted again with that as
    its prior (empirical Bayes). Variance of the finite pool: of responses not asked for given u, of u given the
    session's responses, and of β and s (inverse information, and the variance of their mean), linear in them.

    Items that no response led to are a random sample. Where their stratified mean contradicts the model (see
    `contradicted`), that is the estimate, with a `warning`: the model does not fit these responses.
    """
    kind = choose_kind(pool, record)
    rows = rows_of(pool, record, KINDS[kind])
    counts = count_patterns(rows, KINDS[kind].loads)
    found = predict(pool, rows, counts, fit_groups(counts, counts.times.sum(axis=0)))
    plain = stratified(pool, record.blind)
    return plain._replace(warning=MISFIT) if contradicted(found.overall, plain.overall) else found


def contradicted(model: Interval, plain: Interval) -> bool:
    """Whether an estimate by a model differs from one without, for any target, by more than chance (Hausman 1978).

    If the model is true its estimate is the better one, and the variance of the difference is the difference of the
    variances; it is taken to be a quarter of that of `plain` or more. Two-sided, 5 % over both targets (Bonferroni).

    >>> one = np.full((1, 2), 0.5)
    >>> contradicted(Interval(one, one / 50, one, one), Interval(one + 0.1, one / 12, one, one))
    True
    """
    variance = np.maximum(plain.se**2 - model.se**2, plain.se**2 / 4)
    apart = np.abs(model.value - plain.value)
    return bool((apart > -ndtri((1 - LEVEL) / 2 / len(TARGETS)) * np.sqrt(variance)).any())


def choose_kind(pool: Pool, record: Record) -> str:
    """The kind under which sessions held out of the fit are the most likely; two folds of sessions."""
    heights = {}
    for name, kind in KINDS.items():
        counts = count_patterns(rows_of(pool, record, kind), kind.loads)
        every = counts.times.sum(axis=0)
        lines = [fit_groups(counts, every - held_out, ROUGH).local.line for held_out in counts.times]
        heights[name] = float((counts.times * np.stack(lines)).sum())
    return max(heights, key=heights.__getitem__)


def rows_of(pool: Pool, record: Record, kind: Kind) -> Rows:
    """Sessions, or their levels one by one. Folds are of sessions, one after the other of each group."""
    asked, right = pool.by_stratum(record.asked), pool.by_stratum(record.right)
    counts = np.stack([asked, right, pool.sizes - asked])
    sessions = np.arange(len(asked))
    if kind.apart:
        counts = (counts[:, :, None] * np.eye(3, dtype=np.int64)).reshape(3, -1, 3)
        sessions = np.repeat(sessions, 3)
    asked, right, left = counts
    return Rows(asked, right, left, pool.session_group[sessions], sessions % FOLDS)


def count_patterns(rows: Rows, loads: Float[np.ndarray, "3 s"]) -> Counts:
    """Asked and right by level of every row, equal ones of a group merged; how often each is in each fold."""
    lines = np.column_stack([rows.group, rows.asked, rows.right])
    _, first, of_row = np.unique(lines, axis=0, return_index=True, return_inverse=True)
    times = np.stack([np.bincount(of_row[rows.fold == fold], minlength=len(first)) for fold in range(FOLDS)])
    return Counts(rows.asked[first], rows.right[first], rows.group[first], times, of_row, loads)


def fit_groups(counts: Counts, times: Int[np.ndarray, " patterns"], tolerance: float = TOLERANCE) -> Fit:
    """Each group alone, then each with the prior that the groups show; times: how often each pattern counts."""
    groups, s = int(counts.group[-1]) + 1, counts.loads.shape[1]
    alone = np.array([BETA_ALONE] * 3 + [S_ALONE] * s)
    prior = Prior(np.zeros(3 + s), alone**2, np.zeros(3 + s))
    right, asked = (group_sums(counts, values, times) for values in (counts.right, counts.asked))
    share = (right + 0.5) / (asked + 1)
    start = np.concatenate([np.log(share / (1 - share)), np.ones((groups, s))], axis=1)
    parameters, local = fit(counts, prior, start, times, tolerance)
    if groups > 1:
        variance = np.diagonal(inverse(curvature(counts, prior, local, times)), axis1=1, axis2=2)
        prior = learn_prior(parameters, variance)
        parameters, local = fit(counts, prior, parameters, times, tolerance)
    return Fit(parameters, local, prior)


def learn_prior(parameters: Parameters, variance: Parameters) -> Prior:
    """Mean and spread of β and s among groups, from each group's own estimate and its variance.

    The spread is its posterior mean under a flat prior on SPREADS, given the residual likelihood of normal estimates;
    with few groups that is wide, so that two groups that are similar by luck are not taken for one.
    """
    total = variance[:, :, None] + SPREADS**2  # (groups, k, spreads)
    precision = (1 / total).sum(axis=0)
    mean = (parameters[:, :, None] / total).sum(axis=0) / precision
    height = -((parameters[:, :, None] - mean) ** 2 / total + np.log(total)).sum(axis=0) / 2 - np.log(precision) / 2
    mass = np.exp(height - height.max(axis=1, keepdims=True)) * np.gradient(SPREADS)
    mass /= mass.sum(axis=1, keepdims=True)
    spread = (mass * SPREADS).sum(axis=1)
    weight = 1 / (variance + spread**2)
    mean_variance = 1 / weight.sum(axis=0)
    return Prior((parameters * weight).sum(axis=0) * mean_variance, spread**2, mean_variance)


def evaluate(counts: Counts, prior: Prior, parameters: Parameters, times: Int[np.ndarray, " patterns"]) -> Local:
    """The likelihood over a grid of u, and the posterior of u in each pattern."""
    effect = parameters[:, 3:] @ counts.loads.T
    eta = parameters[:, :3, None] + effect[:, :, None] * NODES
    chance = expit(eta)
    lines = np.einsum("pl,pln->pn", counts.right, log_expit(eta)[counts.group])
    lines += np.einsum("pl,pln->pn", counts.asked - counts.right, log_expit(-eta)[counts.group]) + LOG_WEIGHTS
    top = lines.max(axis=1, keepdims=True)
    mass = np.exp(lines - top)
    total = mass.sum(axis=1, keepdims=True)
    line = (np.log(total) + top)[:, 0]
    height = np.bincount(counts.group, weights=times * line, minlength=len(parameters))
    height -= ((parameters - prior.mean) ** 2 / (2 * prior.variance)).sum(axis=1)
    surplus = counts.right[:, :, None] - counts.asked[:, :, None] * chance[counts.group]
    by_node = np.concatenate([surplus, np.einsum("ls,pln->psn", counts.loads, surplus) * NODES], axis=1)
    return Local(height, line, mass / total, chance, by_node)


def group_sums(
    counts: Counts, values: Num[np.ndarray, "patterns ..."], times: Int[np.ndarray, " patterns"]
) -> Num[np.ndarray, "groups ..."]:
    """Sums over the rows of each group."""
    starts = np.searchsorted(counts.group, np.arange(counts.group[-1] + 1))
    return np.add.reduceat((values.T * times).T, starts, axis=0)


def curvature(
    counts: Counts, prior: Prior, local: Local, times: Int[np.ndarray, " patterns"]
) -> Num[np.ndarray, "groups ..."]:
    """Negative Hessian of the penalised log-likelihood: information if u were known, less what u hides (Louis 1982)."""
    seen = np.einsum("pn,pkn->pk", local.posterior, local.by_node)
    hidden = (local.by_node * local.posterior[:, None]) @ local.by_node.swapaxes(1, 2)
    hidden -= seen[:, :, None] * seen[:, None]
    noise = (local.chance * (1 - local.chance))[counts.group] * counts.asked[:, :, None]
    powers = np.stack([np.ones_like(NODES), NODES, NODES**2])
    levels, slope, curve = np.moveaxis(noise @ (local.posterior[:, None] * powers).swapaxes(1, 2), 2, 0)
    known = np.zeros_like(hidden)
    known[:, range(3), range(3)] = levels
    known[:, :3, 3:] = slope[:, :, None] * counts.loads
    known[:, 3:, :3] = known[:, :3, 3:].swapaxes(1, 2)
    known[:, 3:, 3:] = np.einsum("pl,ls,lt->pst", curve, counts.loads, counts.loads)
    return group_sums(counts, known - hidden, times) + np.diag(1 / prior.variance)


def fit(
    counts: Counts,
    prior: Prior,
    parameters: Parameters,
    times: Int[np.ndarray, " patterns"],
    tolerance: float = TOLERANCE,
) -> tuple[Parameters, Local]:
    """β and s at the mode, by Newton's method with steps halved where the likelihood would fall; s stays above 0."""
    local = evaluate(counts, prior, parameters, times)
    for _ in range(STEPS):
        score = group_sums(counts, np.einsum("pn,pkn->pk", local.posterior, local.by_node), times)
        score -= (parameters - prior.mean) / prior.variance
        step = np.einsum("gkl,gl->gk", inverse(curvature(counts, prior, local, times)), score)
        # shorter where too long or where an s would reach 0, at which its slope vanishes whatever lies beyond
        long = np.maximum(np.abs(step).max(axis=1) / 2, (-step[:, 3:] / (0.7 * parameters[:, 3:])).max(axis=1))
        step /= np.maximum(long, 1.0)[:, None]
        new = evaluate(counts, prior, parameters + step, times)
        while (fell := new.height < local.height - 1e-9 * np.abs(local.height)).any():
            step[fell] /= 2
            new = evaluate(counts, prior, parameters + step, times)
        parameters, local = parameters + step, new
        if np.abs(step).max() < tolerance:
            break
    return parameters, local


def inverse(matrix: Float[np.ndarray, "groups k k"]) -> Float[np.ndarray, "groups k k"]:
    """Of curvatures; a negative one is turned, so that a step leads uphill off a saddle too.

    >>> inverse(np.diag([2.0, -4.0])[None])[0].tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.maximum(np.abs(values), 1e-3)[:, None]) @ vectors.swapaxes(1, 2)


def predict(pool: Pool, rows: Rows, counts: Counts, found: Fit) -> Estimate:
    """Both targets of the pool and their standard errors; see `mixed_logit`."""
    local, prior = found.local, found.prior
    covariance = inverse(curvature(counts, prior, local, counts.times.sum(axis=0)))
    pull = covariance / prior.variance
    covariance = covariance + (pull * prior.mean_variance) @ pull.swapaxes(1, 2)
    chance = local.chance[counts.group]
    mean = np.einsum("pn,pln->pl", local.posterior, chance)
    noise = mean - np.einsum("pn,pln->pl", local.posterior, chance**2)
    together = (chance * local.posterior[:, None]) @ chance.swapaxes(1, 2) - mean[:, :, None] * mean[:, None]
    bend = np.einsum("pn,pln,n->pl", local.posterior, chance * (1 - chance), NODES)
    slopes = np.concatenate([noise[:, :, None] * np.eye(3), bend[:, :, None] * counts.loads], axis=2)
    seen = np.einsum("pn,pkn->pk", local.posterior, local.by_node)
    slopes += (chance * local.posterior[:, None]) @ local.by_node.swapaxes(1, 2) - mean[:, :, None] * seen[:, None]
    of, starts = counts.of_row, np.searchsorted(rows.group, np.arange(pool.groups))
    total = partial(np.add.reduceat, indices=starts, axis=0)
    a_item = LEVEL_WEIGHTS[:, None] / pool.group_sizes[rows.group]  # (targets, rows, levels)
    weight = a_item * rows.left
    value = (a_item * (rows.right + rows.left * mean[of])).sum(axis=2)
    variance = (a_item**2 * rows.left * noise[of]).sum(axis=2)
    variance += np.einsum("tsl,slm,tsm->ts", weight, together[of], weight)
    towards = total(np.einsum("tsl,slk->stk", weight, slopes[of]))
    of_parameters = np.einsum("gtk,gkm,gtm->gt", towards, covariance, towards)
    shared = np.einsum("gtk,gkm,m->gtm", towards, pull, np.sqrt(prior.mean_variance))  # the prior's mean serves all
    return normal_estimate(total(value.T), np.sqrt(total(variance.T) + of_parameters), shared)
