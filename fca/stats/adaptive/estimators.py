"""Both targets of every group from the responses to a test: shares by stratum, an item bank, or a mixed logit.

The mixed logit has one random effect a session: responses to easy items predict those to hard items never asked.

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
from scipy.special import expit, log_expit, ndtri, stdtrit

from fca.stats.adaptive.policies import ability_of, chances, check_bank
from fca.stats.adaptive.pool import LEVEL_WEIGHTS, Marks, Pool, Record, Sample, fixed_size_variance
from fca.stats.intervals import LEVEL
from fca.stats.irt import ItemBank
from fca.types import FcaError

Z = float(ndtri(0.5 + LEVEL / 2))
STEP = 1e-4  # of ability, for slopes
Targets = Float[np.ndarray, "groups targets"]


class Estimate(NamedTuple):
    """Targets of the finite pool, as shares: with every item asked, `value` is the truth and `se` is 0.

    NaN where no response helps: a level of which a group was asked no item.

    shared: the part of the errors that all groups have in common: each group's standard deviations along independent
    factors, whose squares are in se². None: the errors of the groups are independent.
    df: degrees of freedom of each se. None: se is as good as known, and intervals are those of a normal.
    """

    value: Targets
    se: Targets
    shared: Float[np.ndarray, "groups targets factors"] | None = None
    df: Targets | None = None

    @property
    def overall(self) -> Estimate:
        """The mean over groups, each counting the same, as an estimate of one group.

            se² = Σ_g (se_g² - Σ_f shared_gf²) / G² + Σ_f (Σ_g shared_gf / G)²

        Degrees of freedom by Welch (1947) and Satterthwaite (1946).

        >>> se, common = np.full((4, 1), 0.2), np.full((4, 1, 1), 0.2)
        >>> [Estimate(se, se, shared).overall.se.item() for shared in (None, common)]
        [0.1, 0.2]
        """
        shared = np.zeros((*self.se.shape, 1)) if self.shared is None else self.shared
        own = np.maximum(self.se**2 - (shared**2).sum(axis=2), 0.0)
        together = shared.mean(axis=0)
        variance = own.sum(axis=0) / len(own) ** 2 + (together**2).sum(axis=1)
        df = None if self.df is None else welch(self.se**2, self.df)[None]
        return Estimate(self.value.mean(axis=0)[None], np.sqrt(variance)[None], together[None], df)

    @property
    def low(self) -> Targets:
        """Lower end of the 95 % interval, value - 1.96 se (more for few degrees of freedom), at least 0."""
        return np.maximum(self.value - self._half, 0.0)

    @property
    def high(self) -> Targets:
        """Upper end, at most 1."""
        return np.minimum(self.value + self._half, 1.0)

    @property
    def _half(self) -> Targets:
        return self.se * (Z if self.df is None else stdtrit(self.df, 0.5 + LEVEL / 2))


def welch(variance: Float[np.ndarray, "parts ..."], df: Float[np.ndarray, "parts ..."]) -> Float[np.ndarray, "..."]:
    """Degrees of freedom of a sum of independent parts: (Σ v)² / Σ v² / df; those of all parts where v is 0.

    >>> welch(np.array([1.0, 1.0]), np.array([4.0, 4.0])).item()
    8.0
    """
    squares = (variance**2 / df).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(squares > 0, variance.sum(axis=0) ** 2 / squares, df.sum(axis=0))


def stratified(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The mean over sessions of the share right in each session and level; it rests on the random draw alone.

        Y = Σ_s N_s p_s / Σ_s N_s in each level,   variance Σ_s (N_s / N)² (1 - n_s / N_s) s_s² / n_s,
        s_s² = p_s (1 - p_s) n_s / (n_s - 1)                              (Cochran 1977, sections 5.4 and 3.2)

    No model of responses: unbiased where a session's own responses do not decide how many of its items are asked
    (static_k, random, optimal_allocation), and biased where they do (gre_two_stage).

    A single item of a session and level takes the mean s² of the others, and where all are single the variance of the
    whole level. One response of the largest variance, 1/4, counts beside those observed, so that shares of 0 and 1 are
    not certain. A session without any item takes the level's mean, and the level's variance for what it may differ.
    Intervals are Student's, with Satterthwaite's degrees of freedom.

    >>> from fca.stats.adaptive.pool import make_pool
    >>> pool, record = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int)), Record(12)
    >>> record.add(np.array([0, 1, 4, 5, 8, 9]), np.array([True, True, True, False, False, False]))
    >>> found = stratified(pool, record)
    >>> found.value.round(3), found.se.round(3)
    (array([[0.5  , 0.286]]), array([[0.132, 0.136]]))
    """
    n, right, size = pool.by_stratum(record.asked), pool.by_stratum(record.right), pool.sizes
    seen, many = n > 0, n > 1
    share = right / np.maximum(n, 1)
    asked, correct, sessions = pool.by_group(n), pool.by_group(right), pool.by_group(seen.astype(int))
    with np.errstate(invalid="ignore", divide="ignore"):
        of_seen = size / pool.by_group(size * seen)[pool.session_group]  # the share of a session among those asked
        own = np.where(many, share * (1 - share) * n / (n - 1), 0.0)
        usual = pool.by_group(own) / pool.by_group(many.astype(int))
    level = np.where(asked > 0, pool.by_group(np.where(seen, of_seen, 0.0) * share), np.nan)
    factor = np.where(seen, of_seen**2 * (1 - n / size) / np.maximum(n, 1), 0.0)
    within = pool.by_group(factor * np.where(many, own, np.nan_to_num(usual)[pool.session_group]))
    df = pool.by_group(np.maximum(n - 1, 0))
    whole = (correct + 1) * (asked - correct + 1) / (asked + 2) ** 2  # of the level, one response of each kind added
    factors = pool.by_group(factor)
    variance = np.where(df > 0, (df * within + factors / 4) / (df + 1), factors * whole)
    of_unseen = np.where(seen, 0.0, size / pool.group_sizes[pool.session_group])
    variance += (pool.by_group(of_unseen**2) + pool.by_group(of_unseen) ** 2 / np.maximum(sessions, 1)) * whole
    parts = variance.T[:, :, None] * LEVEL_WEIGHTS.T[:, None] ** 2  # (levels, groups, targets)
    freedom = np.maximum(np.where(df > 0, df, asked - 1), 1).T[:, :, None]
    value = level @ LEVEL_WEIGHTS.T
    se = np.where(np.isnan(value), np.nan, np.sqrt(parts.sum(axis=0)))
    return Estimate(value, se, df=welch(parts, freedom + 0 * parts))


def session_mean(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Share right by session and level, averaged over a group's sessions (each counts as many items as it has there).

    Variance: within sessions, (1 - n / N) s² / n; a single item takes the mean s² of the group's level, and a session
    without any counts with the whole variance of the level. Unbiased for `static_k`; biased where the responses of a
    session decide how many more items it is asked.
    """
    asked, right = pool.by_stratum(record.asked), pool.by_stratum(record.right)
    some = asked > 0
    share = right / np.maximum(asked, 1)
    seen = pool.by_group(pool.sizes * some)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = pool.by_group(pool.sizes * share * some) / seen
        spread = share * (1 - share) * asked / (asked - 1)
        many = asked > 1
        known = pool.by_group(np.where(many, spread, 0.0)) / pool.by_group(many.astype(int))
    whole = level * (1 - level)
    usual = np.where(np.isnan(known), whole, known)[pool.session_group]
    within = np.where(many, spread, usual) * (1 - asked / pool.sizes) / np.maximum(asked, 1)
    variance = np.where(some, within, whole[pool.session_group])
    total = pool.by_group(pool.sizes**2 * variance) / pool.group_sizes**2
    return Estimate(level @ LEVEL_WEIGHTS.T, np.sqrt(total @ LEVEL_WEIGHTS.T**2))


def pooled(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Share right by level of all asked items of a group, whatever their session.

    Variance (1 - n / N) p (1 - p) / (n - 1), as of a simple random sample. Unbiased for `random`, where it is the
    post-stratified mean; biased where sessions are asked unequally because of their responses.
    """
    asked = pool.by_group(pool.by_stratum(record.asked))
    right = pool.by_group(pool.by_stratum(record.right))
    with np.errstate(invalid="ignore"):
        level = right / asked
    variance = level * (1 - level) * (1 - asked / pool.group_sizes) / np.maximum(asked - 1, 1)
    return Estimate(level @ LEVEL_WEIGHTS.T, np.sqrt(variance @ LEVEL_WEIGHTS.T**2))


def p_irt(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Responses where asked, elsewhere the bank's probabilities at the estimated ability. Needs a bank.

    Variance: of responses not asked for, Σ w² p (1 - p), and of the ability, (Σ w dp/dθ)² se². It trusts the bank:
    errors of the bank are a bias that the interval does not cover.
    """
    bank = check_bank("p_irt", pool, bank)
    ability, ability_se = ability_of(record, bank)
    below, chance, above = bank.probability(ability + STEP * np.array([-1.0, 0.0, 1.0]))
    slope = (above - below) / (2 * STEP)
    expected = np.where(record.asked, record.right, chance)
    left, slope = np.where(record.asked, 0.0, [chance * (1 - chance), slope])
    value, own, shared = (
        _sums(pool, w) for w in (pool.weights * expected, pool.weights**2 * left, pool.weights * slope)
    )
    shared = shared * ability_se
    return Estimate(value, np.sqrt(own + shared**2), shared[:, :, None])


def difference(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The bank's probabilities of all items, corrected by the asked ones. Needs a bank and a policy of known chances.

        Y = Σ_i w_i p_i + Σ_{i asked} w_i (y_i - p_i) / π_i      (Särndal, Swensson & Wretman 1992, section 6.3)

    Unbiased however wrong the bank is, for p_i fixed before the sample was drawn (`neyman_irt`, from its pilot; the
    items of a pilot are known and leave the sum). After `static_k` and `random` the ability comes from the sample
    itself, a bias of the order of 1 / n. Variance: Horvitz-Thompson, by group (wide where the draw was spread).

    A test that went on drew several samples, each from the items left. Given what was known then, each estimate is
    unbiased, so their errors are uncorrelated: they are averaged with weights n / (R (R - n)), from n drawn of R alone.
    """
    bank = check_bank("difference", pool, bank)
    if not record.samples:
        allowed = "neyman_irt, random, static_k: each item's chance to be asked is known"
        raise FcaError("policy", "one of unknown chances", allowed, "take one of these, or estimator mixed_logit")
    asked = [*(later.certain for later in record.samples[1:]), record.asked]  # at the end of each sample
    found = [_corrected(pool, record, bank, *pair) for pair in zip(record.samples, asked, strict=True)]
    value, variance, weight = (np.stack(parts) for parts in zip(*found, strict=True))
    weight = (weight / weight.sum(axis=0))[:, :, None]
    return Estimate((weight * value).sum(axis=0), np.sqrt((weight**2 * variance).sum(axis=0)))


def _corrected(
    pool: Pool, record: Record, bank: ItemBank, sample: Sample, asked: Marks
) -> tuple[Targets, Targets, Float[np.ndarray, " groups"]]:
    """The bank's probabilities corrected by one sample; see `difference`. Values, variances, weights beside others."""
    chance = chances(record, bank) if sample.chance is None else sample.chance
    residual = record.right - chance
    known = np.where(sample.certain, record.right, chance)
    sampled = asked & ~sample.certain
    value = _sums(pool, pool.weights * (known + np.where(sampled, residual / sample.inclusion, 0.0)))
    variance = np.empty_like(value)
    for group in range(pool.groups):
        drawn = np.flatnonzero(sampled & (pool.group == group))
        variance[group] = fixed_size_variance(pool.weights[:, drawn] * residual[drawn], sample.inclusion[drawn])
    n, rest = (np.bincount(pool.group[one], minlength=pool.groups) for one in (sampled, ~sample.certain))
    spread = rest * (rest - n) / np.maximum(n, 1)
    return value, variance, 1 / np.maximum(spread, 1e-9)  # a sample of all items left is all that counts


def _sums(pool: Pool, values: Float[np.ndarray, "targets items"]) -> Targets:
    return np.stack([np.bincount(pool.group, weights=row, minlength=pool.groups) for row in values], axis=1)


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
    return Estimate(pool.by_group(value.T), np.sqrt(pool.by_group(variance.T) + of_parameters), shared)
