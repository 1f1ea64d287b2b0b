"""Accuracy and score of every group from the responses to a test, with and without an item bank.

The design-based estimators (stratified, session_mean, pooled) trust the random draw alone. p_irt trusts an item bank,
difference corrects the bank by the draw, and regression also learns from the draw how far to follow the bank.
fca.studies.adaptive.stats.mixed_logit trusts a model of the sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import betaincinv, ndtri, stdtrit

from fca.stats.intervals import LEVEL
from fca.studies.adaptive.stats.policies import AGREEING, ability_of, check_bank, response_probabilities
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import LEVEL_WEIGHTS, Marks, Pool, Record, Sample, fixed_size_variance
from fca.types import FcaError

Z = float(ndtri(0.5 + LEVEL / 2))  # 1.96
TINY = 1e-12  # in place of a variance of 0, by which nothing can be divided
ABILITY_STEP = 1e-4  # for the slope of a probability by ability
KNOWN_CHANCE_POLICIES = ("defensive_irt", "neyman_irt", "random", "static_k", "proportional")  # those with `samples`
Targets = Float[np.ndarray, "groups targets"]
Counts = Int[np.ndarray, "strata 3"]
ByLevel = Float[np.ndarray, "groups 3"]


class Interval(NamedTuple):
    """Targets as shares, with standard errors and the ends of 95 % intervals, in [0, 1]; NaN where nothing is known."""

    value: Targets
    se: Targets
    low: Targets
    high: Targets


class Estimate(NamedTuple):
    """Targets of the finite pool by group: with every item evaluated, `value` is the truth and `se` is 0.

    NaN where no response helps: a level of which no item of the group was evaluated.

    overall: the mean over groups, which count equally; 1 x targets.
    warning: what the responses showed to be wrong with the requested estimator; else empty.
    """

    value: Targets
    se: Targets
    low: Targets
    high: Targets
    overall: Interval
    warning: str = ""


def normal_estimate(
    value: Targets, se: Targets, shared: Float[np.ndarray, "groups targets factors"] | None = None
) -> Estimate:
    """An estimate with the intervals of a normal distribution, value ± 1.96 se, of every group and of their mean.

    shared: the part of the errors that all groups have in common, as each group's standard deviations along
            independent factors f; se² includes their squares. None: the errors of the groups are independent.

    The mean over the G groups has

        se² = Σ_g (se_g² - Σ_f shared_gf²) / G² + Σ_f (Σ_g shared_gf / G)²

    >>> se, common = np.full((4, 1), 0.2), np.full((4, 1, 1), 0.2)
    >>> [normal_estimate(se, se, shared).overall.se.item() for shared in (None, common)]
    [0.1, 0.2]
    """
    if shared is None:
        shared = np.zeros((*se.shape, 1))
    independent_variance = np.maximum(se**2 - (shared**2).sum(axis=2), 0.0)  # rounding may lead below 0
    shared_variance_of_mean = (shared.mean(axis=0) ** 2).sum(axis=1)
    se_of_mean = np.sqrt(independent_variance.sum(axis=0) / len(se) ** 2 + shared_variance_of_mean)

    overall = _normal(value.mean(axis=0)[None], se_of_mean[None])
    return Estimate(*_normal(value, se), overall)


def _normal(value: Targets, se: Targets) -> Interval:
    """The interval value ± 1.96 se, within [0, 1]."""
    return Interval(value, se, np.maximum(value - Z * se, 0.0), np.minimum(value + Z * se, 1.0))


def level_interval(share: ByLevel, variance: ByLevel, df: ByLevel, n: ByLevel, added: ByLevel) -> Interval:
    """The targets (accuracy and score) of each group with standard errors and 95 % intervals, from shares by level.

    share:    p_l, the share right at level l. A target is a weighted sum Σ w_l p_l.
    variance: the estimated variance of p_l, 0 where every item was evaluated.
    df:       the degrees of freedom with which `variance` is estimated.
    n:        number of responses behind p_l.
    added:    the variance of one further response, which was counted when `variance` was estimated. So `variance` is
              above 0 also if all n responses are right; it is then about added / n².

    The interval of p_l is Jeffreys' for m responses, where m = p (1 - p) / variance is the number of independent
    responses that have this variance. In m, p is p_l moved away from 0 and 1: the share right if a fraction of a right
    response, and the same of a wrong one, are counted beside the n. This fraction is the number `added`. If all n are
    right, p (1 - p) is then about added / n, and m about n.

    The interval of a target reaches sqrt(Σ w_l² (p_l - end_l)²) to either side, with end_l the end of the interval of
    p_l on this side (Zou and Donner 2008, Stat. Med. 27:1693). So near 0 and 1 it is as asymmetric as the intervals of
    the levels. As the variances are estimated, it is widened by t / 1.96, with the quantile t of Student's distribution
    for the degrees of freedom of the sum, (Σ v_l)² / Σ (v_l² / df_l) with v_l = w_l² variance_l (`welch`).

    >>> one = np.ones((1, 3))
    >>> interval = level_interval(one, 0.25 / 12**2 * one, 11 * one, 12 * one, 0.25 * one)
    >>> interval.low.round(2), interval.high
    (array([[0.88, 0.86]]), array([[1., 1.]]))
    """
    # Jeffreys' intervals of the levels, each of m responses of which `share` is right; groups x levels
    p = (share * n + added) / (n + 2 * added)
    m = p * (1 - p) / np.maximum(variance, TINY)  # TINY: no division by 0; those ends are replaced below
    low, high = jeffreys_interval(share, m)
    is_certain = variance == 0  # every item was evaluated
    low = np.where((share == 0) | is_certain, share, low)
    high = np.where((share == 1) | is_certain, share, high)

    # t, by the degrees of freedom of each target. The constant LEVEL is 0.95; Z, in the next step, is 1.96. Arrays are
    # levels x groups x targets, so sums over levels are along the first axis
    squared_weight = LEVEL_WEIGHTS.T[:, None] ** 2  # w_l², levels x 1 x targets
    weighted_variance = variance.T[:, :, None] * squared_weight
    df_of_level = np.broadcast_to(df.T[:, :, None], weighted_variance.shape)
    t = stdtrit(welch(weighted_variance, df_of_level), 0.5 + LEVEL / 2)

    # how far the interval of each target reaches to either side
    squared_below = (share - low).T[:, :, None] ** 2  # (p_l - end_l)²
    squared_above = (share - high).T[:, :, None] ** 2
    below = t / Z * np.sqrt((squared_weight * squared_below).sum(axis=0))
    above = t / Z * np.sqrt((squared_weight * squared_above).sum(axis=0))

    value = share @ LEVEL_WEIGHTS.T
    se = np.where(np.isnan(value), np.nan, np.sqrt(weighted_variance.sum(axis=0)))
    return Interval(value, se, np.maximum(value - below, 0.0), np.minimum(value + above, 1.0))


def jeffreys_interval(
    share: Float[np.ndarray, "groups columns"], n: Float[np.ndarray, "groups columns"]
) -> tuple[Float[np.ndarray, "groups columns"], Float[np.ndarray, "groups columns"]]:
    """Both ends of Jeffreys' 95 % interval of a binomial share (Brown, Cai and DasGupta 2001, Stat. Sci. 16:101).

    They are quantiles of Beta(n share + 1/2, n (1 - share) + 1/2).

    n: number of responses, which need not be whole.

    >>> low, high = jeffreys_interval(np.array([[0.9]]), np.array([[100.0]]))
    >>> low.round(3), high.round(3)
    (array([[0.83]]), array([[0.947]]))
    """
    alpha = n * share + 0.5
    beta = n * (1 - share) + 0.5
    return betaincinv(alpha, beta, (1 - LEVEL) / 2), betaincinv(alpha, beta, (1 + LEVEL) / 2)


def welch(variance: Float[np.ndarray, "parts ..."], df: Float[np.ndarray, "parts ..."]) -> Float[np.ndarray, "..."]:
    """Degrees of freedom of the variance of a sum of independent parts: (Σ v)² / Σ (v² / df) (Welch, Satterthwaite).

    variance, df: v of each part, and its degrees of freedom. Where all v are 0, the result is the sum of the df.

    >>> welch(np.array([1.0, 1.0]), np.array([4.0, 4.0])).item()
    8.0
    """
    squares = (variance**2 / df).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(squares > 0, variance.sum(axis=0) ** 2 / squares, df.sum(axis=0))


def stratified(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The mean over sessions of the share right in each session and level, which trusts only the random draw.

        Y = Σ_s N_s p_s / Σ_s N_s in each level,   variance Σ_s (N_s / N)² (1 - n_s / N_s) s_s² / n_s,
        s_s² = p_s (1 - p_s) n_s / (n_s - 1)                              (Cochran 1977, sections 5.4 and 3.2)

    Session s (a class and an attribute) has N_s items of the level; n_s of them were evaluated, and the share p_s was
    right. Accuracy and score are weighted sums of the Y of the levels. There is no model of responses: Y is unbiased
    where a session's own responses do not decide how many of its items are evaluated (static_k, random,
    optimal_allocation), and biased where they do (gre_two_stage).

    A stratum is a session, or the sessions of a group that are too small to be evaluated one by one. A stratum with a
    single response takes the s² of its level in all groups.

    Few responses estimate a variance poorly, so one further response of a cautious variance is counted beside them. In
    the variance of one group it has the variance of the level in all groups; in the variance of the mean over groups
    it has the largest possible one, 1/4. The intervals of accuracy and score combine Jeffreys' intervals of the levels
    (`level_interval`). For the mean over groups, the groups are first averaged level by level. The argument `bank` is
    not used.

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool, record = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int)), Record(12)
    >>> record.add(np.array([0, 1, 4, 5, 8, 9]), np.array([True, True, True, False, False, False]))
    >>> estimate = stratified(pool, record)
    >>> estimate.value.round(3), estimate.se.round(3)
    (array([[0.5  , 0.286]]), array([[0.125, 0.12 ]]))
    """
    n, n_right, size, group = strata(pool, record)  # three counts, strata x levels, and the group of each stratum
    n_of_group = sums(n, group)  # sums over the strata of each group; groups x levels
    size_of_group = sums(size, group)

    # p_s, Y, s_s², and the factor of s_s² in the variance of Y: (N_s / N)² (1 / n_s - 1 / N_s)
    has_several = n > 1
    share = n_right / np.maximum(n, 1)
    with np.errstate(invalid="ignore", divide="ignore"):  # np.where replaces what n of 0 or 1 divides by 0
        level_share = np.where(n_of_group > 0, sums(size * share, group) / size_of_group, np.nan)
        s_squared = np.where(has_several, share * (1 - share) * n / (n - 1), 0.0)
        factor = np.where(n > 0, (size / size_of_group[group]) ** 2 * (1 / n - 1 / size), 0.0)
    # s² of each level in all groups, and its degrees of freedom
    level_s_squared, level_df = response_variance_by_level(n, n_right, s_squared)

    # the variance of Y in two parts: of strata with several responses (`observed`), and with one (`of_single`)
    shares = LevelShares(
        share=level_share,
        n=n_of_group,
        df=sums(has_several * (n - 1), group),
        observed=sums(factor * s_squared, group),
        factor=sums(factor * has_several, group),
        of_single=sums(factor * ~has_several, group) * level_s_squared,
        level_s_squared=level_s_squared,
        level_df=level_df,
    )
    return Estimate(*_intervals_of_groups(shares), overall=_interval_of_mean(shares))


class LevelShares(NamedTuple):
    """The share right of each group by level, and what its variance is estimated from; see `stratified`.

    The variance of a share is the sum of factor s² over the group's strata, with s² the variance of a response in the
    stratum. A stratum with several responses has an s² of its own. One with a single response takes level_s_squared.

    share, n:        the share right, and the number of responses behind it.
    df, observed:    of the strata with several responses: degrees of freedom, and their part of the variance.
    factor:          sum of the factors of these strata. Their part would be factor v if all s² were v.
    of_single:       the part of the strata with a single response.
    level_s_squared: variance of a response within the strata of a level, over all groups.
    level_df:        degrees of freedom of level_s_squared.
    """

    share: ByLevel
    n: ByLevel
    df: ByLevel
    observed: ByLevel
    factor: ByLevel
    of_single: ByLevel
    level_s_squared: Float[np.ndarray, " 3"]
    level_df: Float[np.ndarray, " 3"]


def _intervals_of_groups(shares: LevelShares) -> Interval:
    """Accuracy and score of each group with their intervals, for `stratified`.

    The variance of a group's share right at a level has two parts: `observed`, of the strata with several responses
    (with `df` degrees of freedom), and `of_single`, of the strata with a single response. A group's few responses
    estimate the first part poorly. So it is averaged, by degrees of freedom, with what it would be if the variance of a
    response were v, the one of the level in all groups (level_s_squared, with level_df degrees of freedom):

        (df observed + factor v) / (df + 1)

    `factor` v is this first part if every response has the variance v. It counts as one further response. The second
    part is estimated by v alone. The degrees of freedom of both parts together are Welch and Satterthwaite's, the
    squared sum of the parts, divided by the sum of each part² / its degrees of freedom.
    """
    df_and_one = shares.df + 1  # with the further response
    of_several = (shares.df * shares.observed + shares.factor * shares.level_s_squared) / df_and_one
    variance_parts = np.stack([of_several, shares.of_single])
    df_of_parts = np.stack([df_and_one, np.broadcast_to(shares.level_df, df_and_one.shape)])
    return level_interval(
        share=shares.share,
        variance=of_several + shares.of_single,
        df=welch(variance_parts, df_of_parts),
        n=shares.n,
        added=np.broadcast_to(shares.level_s_squared, shares.share.shape),  # variance of the further response
    )


def _interval_of_mean(shares: LevelShares) -> Interval:
    """The mean of accuracy and of score over the groups with their intervals, for `stratified`; 1 x targets.

    The groups' shares are averaged level by level. The variance of the mean over G groups is the sum of the groups'
    variances, divided by G². Its first part, `observed`, is of the strata with several responses and has `df` degrees
    of freedom; one further response of variance a is counted beside them:

        (df observed + factor a) / (df + 1),   a = 1/4, the largest possible variance of a response

    `factor` a is the first part if every response has the variance a. The second part, `of_single`, is of the strata
    with a single response; it is estimated by level_s_squared, the variance of a response to the level in all groups,
    with level_df degrees of freedom.
    """
    # At a level where every stratum has a single response at most, a is level_s_squared. This is then the variance of
    # all responses, with a right and a wrong one added, so it is cautious already
    added = np.where(shares.df.any(axis=0), 1 / 4, shares.level_s_squared)  # a of each level
    df = shares.df.sum(axis=0)
    observed = shares.observed.sum(axis=0)
    of_several = (df * observed + shares.factor.sum(axis=0) * added) / (df + 1)
    of_single = shares.of_single.sum(axis=0)

    # degrees of freedom of a sum of independent parts v, (Σ v)² / Σ (v² / df) (`welch`): one part for each group, with
    # one more df for the further response, and one for all single responses, as these share level_s_squared
    variance_parts = np.concatenate([shares.observed, of_single[None]])
    df_of_parts = np.concatenate([shares.df + 1, shares.level_df[None]])
    n_groups = len(shares.share)
    return level_interval(
        share=shares.share.mean(axis=0)[None],
        variance=((of_several + of_single) / n_groups**2)[None],
        df=welch(variance_parts, df_of_parts)[None],
        n=shares.n.sum(axis=0)[None],
        added=added[None],
    )


def strata(pool: Pool, record: Record) -> tuple[Counts, Counts, Counts, Int[np.ndarray, " strata"]]:
    """Counts of evaluated items, right ones and all items by stratum and level, and the group of each stratum.

    The strata are the sessions, followed by one stratum for each group, which merges the group's small sessions. A
    session is small at a level if none of its items was evaluated, or if its proportional share of the items evaluated
    in the group is below one. At this level the counts of its own stratum are then 0.

    A stratum without responses has no estimate. So if a group has small sessions at a level, and none of their items
    was evaluated, all sessions of the group are merged at this level.
    """
    n = pool.by_stratum(record.evaluated)  # sessions x levels
    n_right = pool.by_stratum(record.right)
    group = pool.session_group

    # n_group N_s / N_group < 1, without the division
    proportional_share_is_below_one = pool.by_group(n)[group] * pool.sizes < pool.group_sizes[group]
    is_small = (n == 0) | proportional_share_is_below_one
    group_has_small = pool.by_group(is_small.astype(int)) > 0  # groups x levels
    small_are_unevaluated = pool.by_group(n * is_small) == 0  # true also for a group without small sessions
    is_small |= group_has_small[group] & small_are_unevaluated[group]

    def merge_small(counts: Int[np.ndarray, "sessions 3"]) -> Counts:
        """Counts by stratum: of each session, 0 if it is small; then of each group, the sum of its small sessions."""
        return np.concatenate([counts * ~is_small, pool.by_group(counts * is_small)])

    group_of_stratum = np.concatenate([group, np.arange(pool.n_groups)])
    return merge_small(n), merge_small(n_right), merge_small(pool.sizes), group_of_stratum


def sums(values: Shaped[np.ndarray, "strata 3"], group: Int[np.ndarray, " strata"]) -> ByLevel:
    """Sums over the strata of each group, level by level.

    group: the group of each stratum.

    >>> sums(np.ones((3, 3)), np.array([0, 1, 0]))
    array([[2., 2., 2.],
           [1., 1., 1.]])
    """
    return np.stack([np.bincount(group, weights=column) for column in values.T], axis=1)


def response_variance_by_level(
    n: Counts, n_right: Counts, s_squared: Float[np.ndarray, "strata 3"]
) -> tuple[Float[np.ndarray, " 3"], Float[np.ndarray, " 3"]]:
    """Variance of a response within the strata of each level, over all groups, and its degrees of freedom.

    It is the mean of the strata's variances by degrees of freedom. One more response, of the largest variance 1/4, is
    counted beside those observed. Where no stratum of a level has the two responses that a variance takes, it is the
    variance of all responses to the level, with one right and one wrong response added.

    n, n_right: number of responses, and of right ones, by stratum and level.
    s_squared:  variance of a response within each stratum and level; not used where n is below 2.
    """
    df_of_stratum = np.maximum(n - 1, 0)
    df = df_of_stratum.sum(axis=0)
    total = n.sum(axis=0)
    total_right = n_right.sum(axis=0)

    within = ((df_of_stratum * s_squared).sum(axis=0) + 1 / 4) / (df + 1)
    overall = (total_right + 1) * (total - total_right + 1) / (total + 2) ** 2
    return np.where(df > 0, within, overall), np.where(df > 0, df + 1.0, total + 1.0)


def session_mean(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Share right by session (a class and an attribute) and level, averaged over the sessions of each group.

    Sessions are weighted by their number of items of the level, and levels as accuracy and score weigh them.
    Sessions of which no item of a level was evaluated are left out of the average of that level.

    The variance of a session's share is (1 - n / N) s² / n, with n of N items evaluated and s² the variance of a
    response. A session with a single response takes the mean s² of the level in its group. A session that was left out
    counts with the whole variance of the level, p (1 - p).

    The mean is unbiased for `static_k`, and biased where the responses of a session decide how many more of its items
    are evaluated. The argument `bank` is not used.
    """
    n = pool.by_stratum(record.evaluated)  # sessions x levels
    n_right = pool.by_stratum(record.right)
    is_evaluated = n > 0
    has_several = n > 1

    share = n_right / np.maximum(n, 1)
    size_evaluated = pool.by_group(pool.sizes * is_evaluated)  # groups x levels
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN for levels without responses; n = 1 is replaced below
        level_share = pool.by_group(pool.sizes * share * is_evaluated) / size_evaluated
        s_squared = share * (1 - share) * n / (n - 1)
        mean_s_squared = pool.by_group(np.where(has_several, s_squared, 0.0)) / pool.by_group(has_several.astype(int))

    level_variance = level_share * (1 - level_share)
    # s² of a session with a single response; the mean is NaN where no session of the group has several to the level
    single_s_squared = np.where(np.isnan(mean_s_squared), level_variance, mean_s_squared)[pool.session_group]
    s_squared = np.where(has_several, s_squared, single_s_squared)
    within = s_squared * (1 - n / pool.sizes) / np.maximum(n, 1)  # no size is 0: every session has all levels
    variance = np.where(is_evaluated, within, level_variance[pool.session_group])
    variance_of_share = pool.by_group(pool.sizes**2 * variance) / pool.group_sizes**2
    return normal_estimate(level_share @ LEVEL_WEIGHTS.T, np.sqrt(variance_of_share @ LEVEL_WEIGHTS.T**2))


def pooled(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Share right by level of all evaluated items of a group, whatever their session, weighted by level.

    The variance of a level's share p is (1 - n / N) p (1 - p) / (n - 1), as for a simple random sample of n of N items.
    The estimate is unbiased for `random`, where it is the post-stratified mean. It is biased where a session's
    responses decide how many of its items are evaluated. The argument `bank` is not used.
    """
    n = pool.by_group(pool.by_stratum(record.evaluated))  # groups x levels
    n_right = pool.by_group(pool.by_stratum(record.right))
    with np.errstate(invalid="ignore"):  # NaN for a level without responses
        share = n_right / n
    variance = share * (1 - share) * (1 - n / pool.group_sizes) / np.maximum(n - 1, 1)
    return normal_estimate(share @ LEVEL_WEIGHTS.T, np.sqrt(variance @ LEVEL_WEIGHTS.T**2))


def p_irt(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Weighted mean of the responses to evaluated items and of the bank's probabilities p of all others. Needs a bank.

    With the weight w of an item in a target of its group, and the ability θ that the responses show:

        value = Σ_{evaluated} w y + Σ_{others} w p(θ)
        variance = Σ_{others} w² p (1 - p) + (Σ_{others} w dp/dθ)² se(θ)²

    The second part of the variance is from the error of θ, which all groups have in common. The estimate trusts the
    bank: errors of the bank are a bias that the interval does not cover.
    """
    bank = check_bank("p_irt", pool, bank)
    ability, ability_se = ability_of(record, bank)
    chance_below, chance, chance_above = bank.probability(ability + ABILITY_STEP * np.array([-1.0, 0.0, 1.0]))

    expected = np.where(record.evaluated, record.right, chance)
    response_variance = np.where(record.evaluated, 0.0, chance * (1 - chance))
    slope = np.where(record.evaluated, 0.0, (chance_above - chance_below) / (2 * ABILITY_STEP))  # dp/dθ

    value = _group_sums(pool, pool.weights * expected)
    variance_of_responses = _group_sums(pool, pool.weights**2 * response_variance)
    se_of_ability = _group_sums(pool, pool.weights * slope) * ability_se  # shared by all groups
    se = np.sqrt(variance_of_responses + se_of_ability**2)
    return normal_estimate(value, se, shared=se_of_ability[:, :, None])  # one shared factor, the ability


def difference(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The bank's probabilities of all items, corrected by the evaluated ones.

        Y = Σ_i w_i p_i + Σ_{i evaluated} w_i (y_i - p_i) / π_i   (Särndal, Swensson & Wretman 1992, section 6.3)

    Here w_i is the weight of item i in the target, y_i the response, p_i the bank's probability of a right response at
    the model's ability, and π_i the known chance of the item to be drawn (`Sample.inclusion`). Needs a bank, and a
    policy under which the π_i are known.

    The estimate is unbiased however wrong the bank is, if p_i was fixed before the sample was drawn. Policy
    `neyman_irt` fixes it by a first round, whose items count with their responses. After `static_k` and `random` the
    ability comes from the sample itself, which causes a bias of the order of 1 / n. The variance is Horvitz and
    Thompson's, by group (too large where a systematic draw spread the sample evenly). Two further responses of variance
    1/4 are counted in it beside those observed. The intervals near 0 and 1 are as asymmetric as Jeffreys'
    (`share_interval`).

    A test that was extended, and one by `defensive_irt`, drew several samples, each from the items that remained. Given
    what was known before, each estimate is unbiased, so their errors are uncorrelated. They are averaged with weights
    inverse to the variances that were expected before the samples were drawn (`sample_weights`).
    """
    bank = check_bank("difference", pool, bank)
    _check_samples(record)  # raises FcaError if the policy drew no samples with known chances
    p_by_all_responses = response_probabilities(record, bank)
    predictions = []
    for sample in record.samples:
        # `sample.probability`: the p_i by which the sample was drawn; None if it was drawn without the bank
        p = p_by_all_responses if sample.probability is None else sample.probability
        predictions.append(p[None])  # 1 x items: the same for all targets
    return _combine_samples(pool, record, predictions)


def regression(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The bank's probabilities as far as the responses confirm them, corrected by the responses.

    Needs a bank and a policy of known chances π_i.

        Y = Σ_i w_i m_i + Σ_{i evaluated} w_i (y_i - m_i) / π_i,   m_i = a + b p_i

    This is the generalised regression estimator (Särndal, Swensson & Wretman 1992, section 6.4). Here w_i is the weight
    of item i in the target, y_i the response, and p_i the bank's probability of a right response at the ability that
    all responses show. The slope b, and the intercept a of each level, minimise the variance of the estimate,
    Σ (1 - π_i) (w_i / π_i)² (y_i - m_i)² over the evaluated items. Ten responses that agree with the bank, spread over
    the pool, count beside them. With a bank without information on this model, b is near 0, and the estimate is the
    share right of a random sample. The bias is of the order of 1 / n, whatever the bank. Variance and intervals are
    computed as in `difference`.

    >>> from fca.studies.progressive.stats.pool import Sample, make_pool
    >>> bank = ItemBank("2pl", np.tile([-2.0, 2.0], 50), np.ones(100), np.ones(100), np.zeros(100))
    >>> pool, record = make_pool(None, np.zeros(100, int)), Record(100)
    >>> record.samples.append(Sample(record.evaluated.copy(), np.full(100, 0.5), None))
    >>> record.add(np.arange(50), np.arange(50) % 2 == 0)  # the easy items of the first half
    >>> regression(pool, record, bank).value.round(2)
    array([[0.5]])
    """
    bank = check_bank("regression", pool, bank)
    _check_samples(record)  # raises FcaError if the policy drew no samples with known chances
    predicted = regression_predictions(pool, record, bank)
    return _combine_samples(pool, record, [predicted] * len(record.samples))


def regression_predictions(pool: Pool, record: Record, bank: ItemBank) -> Float[np.ndarray, "targets items"]:
    """The predicted response to every item for each target, as `regression` uses it.

    The prediction of an item is p + a_level + b p, with p the bank's probability of a right response at the model's
    ability (`probability`). The correction a_level + b p is fitted to the residuals y - p of the evaluated items, with
    y the response, by weighted least squares. An item's weight is the one of its squared residual in the variance of
    the target, (1 - π) (w / π)², where π is the known chance of the item to be drawn and w its weight in the target.
    The correction is shrunk towards 0: AGREEING further responses are counted, spread over the pool, whose residual is
    0.
    """
    probability = response_probabilities(record, bank)
    is_of_level = [pool.level == level for level in range(len(pool.levels))]
    columns = np.stack([*is_of_level, probability]).astype(np.float64)  # (levels + 1) x items

    importance = np.zeros_like(pool.weights)  # (1 - π) (w / π)² of each evaluated item, targets x items
    # a test may have drawn several samples, whose estimates are averaged: w is multiplied by the sample's weight
    samples = zip(record.samples, evaluated_by_sample(record), sample_weights(pool, record), strict=True)
    for sample, is_evaluated, weight_of_group in samples:
        is_sampled = is_evaluated & ~sample.evaluated_before
        factor = weight_of_group[pool.group] * pool.weights / sample.inclusion  # w / π, targets x items
        importance += np.where(is_sampled, (1 - sample.inclusion) * factor**2, 0.0)

    predicted = np.tile(probability, (len(pool.targets), 1))
    # what AGREEING responses to average items add to the normal matrix X' W X of the fit; to its right side
    # X' W (y - p) they add nothing, as their residual is 0
    agreeing_responses = AGREEING * (columns @ columns.T) / pool.n_items
    for target, item_importance in enumerate(importance):
        if not item_importance.any():  # every item was evaluated
            continue
        weighted_columns = columns * item_importance
        mean_importance = item_importance[item_importance > 0].mean()  # an agreeing response weighs as much as this
        normal_matrix = weighted_columns @ columns.T + mean_importance * agreeing_responses
        moments = weighted_columns @ (record.right - probability)
        coefficients = np.linalg.lstsq(normal_matrix, moments)[0]  # singular where all p are equal
        predicted[target] += coefficients @ columns
    return predicted


def _check_samples(record: Record) -> None:
    """Raise FcaError after a policy whose chances are unknown: its record has no samples."""
    if not record.samples:
        allowed = f"{', '.join(KNOWN_CHANCE_POLICIES)}: each item's chance to be evaluated is known"
        raise FcaError("policy", "one of unknown chances", allowed, "take one of these, or estimator mixed_logit")


def evaluated_by_sample(record: Record) -> list[Marks]:
    """For each sample of a test, which items were evaluated by its end; for the last sample, which were so far."""
    evaluated_before_next = [sample.evaluated_before for sample in record.samples[1:]]
    return [*evaluated_before_next, record.evaluated]


def sample_weights(pool: Pool, record: Record) -> Float[np.ndarray, "samples groups"]:
    """Weight of each sample in the estimate of each group: proportional to 1 / its variance, with sum 1 over samples.

    The variance is taken as proportional to v R (R - n) / n, where n of the R items of the group that remained were
    drawn. This is the variance of the total of a simple random sample, times v (`Sample.variance_ratio`), the variance
    that was expected before the draw relative to such a sample.
    """
    weights = np.empty((len(record.samples), pool.n_groups))
    for i, (sample, is_evaluated) in enumerate(zip(record.samples, evaluated_by_sample(record), strict=True)):
        is_sampled = is_evaluated & ~sample.evaluated_before
        n = np.bincount(pool.group[is_sampled], minlength=pool.n_groups)
        remaining = np.bincount(pool.group[~sample.evaluated_before], minlength=pool.n_groups)
        variance = remaining * (remaining - n) / np.maximum(n, 1)  # no division by 0 in a group without drawn items
        # 1e-9: a sample of all remaining items has no variance, and gets nearly all the weight
        weights[i] = 1 / np.maximum(variance, 1e-9) / sample.variance_ratio
    return weights / weights.sum(axis=0)


def _combine_samples(
    pool: Pool, record: Record, predictions: Sequence[Float[np.ndarray, "#targets items"]]
) -> Estimate:
    """The weighted mean of the estimates from each sample of a test, with its intervals; for estimators with a bank.

    A test has several samples if it was extended, and under `defensive_irt`; each was drawn from the items that
    remained. The estimate from a sample is the weighted sum of predicted responses, corrected by the residuals of its
    items.

    The intervals need two more sums. `bound` is what the variance would be if every residual had the variance 1/4.
    `bound_squares` is the sum of the squares of the terms of `bound`: bound² / bound_squares is the number of equally
    weighted responses that the responses are worth.

    predictions: for each sample, the predicted response to every item: one row for all targets, or a row for each.
    """
    samples = zip(predictions, record.samples, evaluated_by_sample(record), strict=True)
    estimates = [
        _estimate_by_sample(pool, record, predicted, sample, is_evaluated)
        for predicted, sample, is_evaluated in samples
    ]
    # the errors of samples are uncorrelated, so variances and their bounds add up with squared weights, and the squares
    # of the bounds' terms with fourth powers
    weight = sample_weights(pool, record)[:, :, None]  # samples x groups x 1
    value = (weight * np.stack([estimate.value for estimate in estimates])).sum(axis=0)
    variance = (weight**2 * np.stack([estimate.variance for estimate in estimates])).sum(axis=0)
    bound = (weight**2 * np.stack([estimate.bound for estimate in estimates])).sum(axis=0)
    bound_squares = (weight**4 * np.stack([estimate.bound_squares for estimate in estimates])).sum(axis=0)

    n_right = np.bincount(pool.group[record.right], minlength=pool.n_groups)[:, None]
    n_evaluated = np.bincount(pool.group[record.evaluated], minlength=pool.n_groups)[:, None]
    all_wrong = n_right == 0
    all_right = n_right == n_evaluated
    of_groups = share_interval(value, variance, bound, bound_squares, all_wrong, all_right)

    # the mean over groups, whose errors are independent; each 1 x targets
    overall = share_interval(
        value=(value / pool.n_groups).sum(axis=0)[None],
        variance=(variance / pool.n_groups**2).sum(axis=0)[None],
        bound=(bound / pool.n_groups**2).sum(axis=0)[None],
        bound_squares=(bound_squares / pool.n_groups**4).sum(axis=0)[None],
        all_wrong=all_wrong.all(axis=0)[None],
        all_right=all_right.all(axis=0)[None],
    )
    return Estimate(*of_groups, overall)


def share_interval(
    value: Targets,
    variance: Targets,
    bound: Targets,
    bound_squares: Targets,
    all_wrong: Bool[np.ndarray, "groups 1"],
    all_right: Bool[np.ndarray, "groups 1"],
) -> Interval:
    """Intervals of targets that were estimated with a bank; near 0 and 1 as asymmetric as those of few responses.

    value, variance:      each target, and its estimated variance.
    bound:                what the variance would be if every residual had the variance 1/4; a sum over the evaluated
                          items, 0 where every item was evaluated.
    bound_squares:        the sum of the squares of the terms of `bound`.
    all_wrong, all_right: whether all responses of a group were wrong, or right. Responses that are all right do not
                          exclude the value 1, and responses that are all wrong do not exclude 0.

    The responses count as n = bound² / bound_squares responses of equal weight (Kish 1965). Responses that contradict
    the bank are rare, and where none was observed the variance would be too small. So two further responses of variance
    1/4 are counted beside the n:

        ((n - 1) variance + 2 bound) / (n + 1)

    The interval is Jeffreys' for m = p (1 - p) / variance responses, the number of independent responses that have this
    variance, but at most n. A good bank makes the variance small and m large, but not the contradicting responses more
    frequent, and where these are few the interval has to be asymmetric. It is then scaled to the standard error, times
    t / 1.96 with the quantile t of Student's distribution for n + 1 degrees of freedom.

    >>> one, no = np.ones((1, 1)), np.zeros((1, 1), dtype=bool)
    >>> interval = share_interval(0.95 * one, 0.0002 * one, 0.25 / 60 * one, (0.25 / 60) ** 2 / 60 * one, no, no)
    >>> interval.low.round(3), interval.high.round(3)
    (array([[0.901]]), array([[0.973]]))
    """
    # both sums are 0 where every item was evaluated; n is then 0, as TINY**4 keeps the division from 0 / 0 (it is too
    # small to change any other quotient)
    n = bound**2 / np.maximum(bound_squares, TINY**4)
    df_observed = np.maximum(n - 1, 0.0)
    df = df_observed + 2  # with the two further responses: n + 1, and at least 2
    variance = (df_observed * variance + 2 * bound) / df

    # Jeffreys' interval of m responses; a quarter of a right and of a wrong response keep p away from 0 and 1
    share = np.clip(value, 0.0, 1.0)  # a corrected estimate may be outside
    p = (share * n + 1 / 4) / (n + 1 / 2)
    m = np.minimum(p * (1 - p) / np.maximum(variance, TINY), n)
    low, high = jeffreys_interval(share, m)

    # scaled to the standard error, times t / Z (Z is 1.96); the interval of m responses is for the variance
    # p (1 - p) / m
    scale = stdtrit(df, 0.5 + LEVEL / 2) / Z * np.sqrt(m * variance / (p * (1 - p)))
    low = np.where(all_wrong | (share == 0), 0.0, np.maximum(value - scale * (share - low), 0.0))
    high = np.where(all_right | (share == 1), 1.0, np.minimum(value + scale * (high - share), 1.0))

    is_certain = variance == 0  # every item was evaluated
    low = np.where(is_certain, value, low)
    high = np.where(is_certain, value, high)
    return Interval(value, np.sqrt(variance), low, high)


class SampleEstimate(NamedTuple):
    """Targets estimated from one sample, and their variances.

    bound:         what the variance would be if the residual of every item had the variance 1/4; a sum over the items
                   drawn.
    bound_squares: the sum of the squares of the terms of `bound`.
    """

    value: Targets
    variance: Targets
    bound: Targets
    bound_squares: Targets


def _estimate_by_sample(
    pool: Pool, record: Record, predicted: Float[np.ndarray, "#targets items"], sample: Sample, is_evaluated: Marks
) -> SampleEstimate:
    """The targets as weighted sums of predictions, corrected by the responses in one sample.

        value = Σ_i w_i m_i + Σ_{i in the sample} w_i (y_i - m_i) / π_i        (generalised difference estimator)

    w_i is the weight of item i in the target, y_i its response, m_i the prediction of it, and π_i the known chance of
    the item to be drawn. The variance is Horvitz and Thompson's, by group, over the n items drawn with π_i < 1:

        n / (n - 1) Σ (1 - π_i) (e_i / π_i - B)²,   e_i = w_i (y_i - m_i),   B = Σ (1 - π_i) e_i / π_i / Σ (1 - π_i)

    predicted:    m_i of every item. For items evaluated before the sample the response is used instead.
    is_evaluated: which items were evaluated by the end of the sample.
    """
    residual = record.right - predicted  # targets x items
    is_sampled = is_evaluated & ~sample.evaluated_before
    responses_or_predictions = np.where(sample.evaluated_before, record.right, predicted)
    correction = np.where(is_sampled, residual / sample.inclusion, 0.0)
    value = _group_sums(pool, pool.weights * (responses_or_predictions + correction))

    variance = np.empty_like(value)
    weighted_residual = pool.weights * residual  # e_i
    for group in range(pool.n_groups):
        positions = np.flatnonzero(is_sampled & (pool.group == group))
        variance[group] = fixed_size_variance(weighted_residual[:, positions], sample.inclusion[positions])

    # what each item drawn would add to the variance if its residual had the variance 1/4, (1 - π) (w / π)² / 4;
    # targets x items. Of these terms, bound² / bound_squares is the number of responses that the sample is worth
    bound_terms = np.where(is_sampled, 1 - sample.inclusion, 0.0) * (pool.weights / sample.inclusion) ** 2 / 4
    bound = _group_sums(pool, bound_terms)
    bound_squares = _group_sums(pool, bound_terms**2)
    # A group with a single item drawn has the variance NaN, as one item cannot show a variance. It becomes 0. For n
    # responses `share_interval` weighs it by n - 1, here 0, so the group's own interval is from `bound` alone
    return SampleEstimate(value, np.nan_to_num(variance), bound, bound_squares)


def _group_sums(pool: Pool, values: Float[np.ndarray, "targets items"]) -> Targets:
    """Sums over the items of each group, for each target."""
    return np.stack([np.bincount(pool.group, weights=row, minlength=pool.n_groups) for row in values], axis=1)
