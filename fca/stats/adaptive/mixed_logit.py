"""A mixed logit of the responses to a test: responses to easy items predict those to hard items never asked.

    P(right | session, level) = 1 / (1 + exp(-(β_level + s u))),   u ~ N(0, 1) for each session

with β and s of each group, which are themselves drawn around those of all groups, with a spread learned from the
groups: similar groups inform each other, dissimilar ones are estimated alone. An adaptive test chooses items by
responses that the model conditions on, so its likelihood can ignore the rule (missing at random, Rubin 1976); shares
of right responses cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, log_expit

from fca.stats.adaptive.estimators import Estimate, normal_estimate
from fca.stats.adaptive.pool import LEVEL_WEIGHTS, Pool, Record
from fca.stats.irt import ItemBank

NODES = np.linspace(-4.8, 4.8, 49)  # equal steps: the trapezoid rule is as good as exact for analytic tails
LOG_WEIGHTS = -(NODES**2) / 2 - np.log(np.exp(-(NODES**2) / 2).sum())
ALONE = np.array([10.0, 10.0, 10.0, 3.0])  # standard deviations of β and s of a group alone: only to keep them finite
SPREADS = np.geomspace(0.02, 4.0, 40)  # of β or s among groups, in logits
STEPS = 100
TOLERANCE = 1e-5
Parameters = Float[np.ndarray, "groups 4"]  # β of the three levels, and s
Four = Float[np.ndarray, " 4"]


class Counts(NamedTuple):
    """Sessions with equal counts in the same group, once each."""

    asked: Int[np.ndarray, "patterns 3"]
    right: Int[np.ndarray, "patterns 3"]
    group: Int[np.ndarray, " patterns"]  # ascending
    times: Int[np.ndarray, " patterns"]
    of_session: Int[np.ndarray, " sessions"]


class Prior(NamedTuple):
    """Independent normals of β and s of a group, and the variance of their estimated means."""

    mean: Four
    variance: Four
    mean_variance: Four


class Local(NamedTuple):
    """At some parameters: the penalised log-likelihood of each group, and the posterior of u in each session."""

    height: Float[np.ndarray, " groups"]
    posterior: Float[np.ndarray, "patterns nodes"]
    chance: Float[np.ndarray, "groups 3 nodes"]
    by_node: Float[np.ndarray, "patterns 4 nodes"]  # score of β and s, were u known


def mixed_logit(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Responses where asked; elsewhere the mean probability given all responses of the session.

    Each group is fitted alone first; the fits show how β and s vary among groups, and each is fitted again with that as
    its prior (empirical Bayes). Variance of the finite pool: of responses not asked for given u, of u given the
    session's responses, and of β and s (inverse information, and the variance of their mean), linear in them.
    """
    counts = count_patterns(pool, record)
    prior = Prior(np.zeros(4), ALONE**2, np.zeros(4))
    share = pool.by_group(pool.by_stratum(record.right)) + 0.5
    share /= pool.by_group(pool.by_stratum(record.asked)) + 1
    start = np.column_stack([np.log(share / (1 - share)), np.ones(pool.groups)])
    parameters, local = fit(counts, prior, start)
    if pool.groups > 1:
        variance = np.diagonal(np.linalg.inv(curvature(counts, prior, local)), axis1=1, axis2=2)
        prior = learn_prior(parameters, variance)
        parameters, local = fit(counts, prior, parameters)
    return predict(pool, counts, prior, local)


def learn_prior(parameters: Parameters, variance: Parameters) -> Prior:
    """Mean and spread of β and s among groups, from each group's own estimate and its variance.

    The spread is its posterior mean under a flat prior on SPREADS, given the residual likelihood of normal estimates;
    with few groups that is wide, so that two groups that are similar by luck are not taken for one.
    """
    total = variance[:, :, None] + SPREADS**2  # (groups, 4, spreads)
    precision = (1 / total).sum(axis=0)
    mean = (parameters[:, :, None] / total).sum(axis=0) / precision
    height = -((parameters[:, :, None] - mean) ** 2 / total + np.log(total)).sum(axis=0) / 2 - np.log(precision) / 2
    mass = np.exp(height - height.max(axis=1, keepdims=True)) * np.gradient(SPREADS)
    mass /= mass.sum(axis=1, keepdims=True)
    spread = (mass * SPREADS).sum(axis=1)
    weight = 1 / (variance + spread**2)
    mean_variance = 1 / weight.sum(axis=0)
    return Prior((parameters * weight).sum(axis=0) * mean_variance, spread**2, mean_variance)


def count_patterns(pool: Pool, record: Record) -> Counts:
    """Asked and right by level of every session, equal ones of a group merged."""
    asked, right = pool.by_stratum(record.asked), pool.by_stratum(record.right)
    rows = np.column_stack([pool.session_group, asked, right])
    _, first, of_session, times = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return Counts(asked[first], right[first], pool.session_group[first], times, of_session)


def evaluate(counts: Counts, prior: Prior, parameters: Parameters) -> Local:
    """The likelihood over a grid of u, and the posterior of u in each session."""
    eta = parameters[:, :3, None] + parameters[:, 3, None, None] * NODES
    chance = expit(eta)
    lines = np.einsum("pl,pln->pn", counts.right, log_expit(eta)[counts.group])
    lines += np.einsum("pl,pln->pn", counts.asked - counts.right, log_expit(-eta)[counts.group]) + LOG_WEIGHTS
    top = lines.max(axis=1, keepdims=True)
    mass = np.exp(lines - top)
    total = mass.sum(axis=1, keepdims=True)
    terms = counts.times * (np.log(total) + top)[:, 0]
    height = np.bincount(counts.group, weights=terms, minlength=len(parameters))
    height -= ((parameters - prior.mean) ** 2 / (2 * prior.variance)).sum(axis=1)
    surplus = counts.right[:, :, None] - counts.asked[:, :, None] * chance[counts.group]
    by_node = np.concatenate([surplus, surplus.sum(axis=1, keepdims=True) * NODES], axis=1)
    return Local(height, mass / total, chance, by_node)


def group_sums(counts: Counts, values: Float[np.ndarray, "patterns ..."]) -> Float[np.ndarray, "groups ..."]:
    """Sums over the sessions of each group."""
    starts = np.searchsorted(counts.group, np.arange(counts.group[-1] + 1))
    return np.add.reduceat((values.T * counts.times).T, starts, axis=0)


def curvature(counts: Counts, prior: Prior, local: Local) -> Float[np.ndarray, "groups 4 4"]:
    """Negative Hessian of the penalised log-likelihood: information if u were known, less what u hides (Louis 1982)."""
    seen = np.einsum("pn,pkn->pk", local.posterior, local.by_node)
    hidden = (local.by_node * local.posterior[:, None]) @ local.by_node.swapaxes(1, 2)
    hidden -= seen[:, :, None] * seen[:, None]
    noise = (local.chance * (1 - local.chance))[counts.group] * counts.asked[:, :, None]
    powers = np.stack([np.ones_like(NODES), NODES, NODES**2])
    levels, slope, curve = np.moveaxis(noise @ (local.posterior[:, None] * powers).swapaxes(1, 2), 2, 0)
    known = np.zeros_like(hidden)
    known[:, range(3), range(3)] = levels
    known[:, :3, 3] = known[:, 3, :3] = slope
    known[:, 3, 3] = curve.sum(axis=1)
    return group_sums(counts, known - hidden) + np.diag(1 / prior.variance)


def fit(counts: Counts, prior: Prior, parameters: Parameters) -> tuple[Parameters, Local]:
    """β and s at the mode, by Newton's method with steps halved where the likelihood would fall; s stays above 0."""
    local = evaluate(counts, prior, parameters)
    for _ in range(STEPS):
        score = group_sums(counts, np.einsum("pn,pkn->pk", local.posterior, local.by_node))
        score -= (parameters - prior.mean) / prior.variance
        values, vectors = np.linalg.eigh(curvature(counts, prior, local))
        turned = np.einsum("gki,gk->gi", vectors, score) / np.maximum(np.abs(values), 1e-3)  # uphill, also off a saddle
        step = np.einsum("gki,gi->gk", vectors, turned)
        # shorter where too long or where s would reach 0, at which its slope vanishes whatever lies beyond
        long = np.maximum(np.abs(step).max(axis=1) / 2, -step[:, 3] / (0.7 * parameters[:, 3]))
        step /= np.maximum(long, 1.0)[:, None]
        new = evaluate(counts, prior, parameters + step)
        while (fell := new.height < local.height - 1e-9 * np.abs(local.height)).any():
            step[fell] /= 2
            new = evaluate(counts, prior, parameters + step)
        parameters, local = parameters + step, new
        if np.abs(step).max() < TOLERANCE:
            break
    return parameters, local


def predict(pool: Pool, counts: Counts, prior: Prior, local: Local) -> Estimate:
    """Both targets of the pool and their standard errors; see `mixed_logit`."""
    covariance = np.linalg.inv(curvature(counts, prior, local))
    pull = covariance / prior.variance
    covariance = covariance + (pull * prior.mean_variance) @ pull.swapaxes(1, 2)
    chance = local.chance[counts.group]
    mean = np.einsum("pn,pln->pl", local.posterior, chance)
    noise = mean - np.einsum("pn,pln->pl", local.posterior, chance**2)
    together = (chance * local.posterior[:, None]) @ chance.swapaxes(1, 2) - mean[:, :, None] * mean[:, None]
    slopes = np.zeros((len(mean), 3, 4))
    bend = chance * (1 - chance)
    slopes[:, range(3), range(3)] = noise
    slopes[:, :, 3] = np.einsum("pn,pln,n->pl", local.posterior, bend, NODES)
    seen = np.einsum("pn,pkn->pk", local.posterior, local.by_node)
    slopes += (chance * local.posterior[:, None]) @ local.by_node.swapaxes(1, 2) - mean[:, :, None] * seen[:, None]
    of = counts.of_session
    left = pool.sizes - counts.asked[of]
    a_item = LEVEL_WEIGHTS[:, None] / pool.group_sizes[pool.session_group]  # (targets, sessions, levels)
    weight = a_item * left
    value = (a_item * (counts.right[of] + left * mean[of])).sum(axis=2)
    variance = (a_item**2 * left * noise[of]).sum(axis=2)
    variance += np.einsum("tsl,slm,tsm->ts", weight, together[of], weight)
    towards = pool.by_group(np.einsum("tsl,slk->stk", weight, slopes[of]))
    of_parameters = np.einsum("gtk,gkm,gtm->gt", towards, covariance, towards)
    shared = np.einsum("gtk,gkm,m->gtm", towards, pull, np.sqrt(prior.mean_variance))  # the prior's mean serves all
    return normal_estimate(pool.by_group(value.T), np.sqrt(pool.by_group(variance.T) + of_parameters), shared)
