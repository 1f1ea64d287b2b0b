"""Both targets of every group from the responses to a test: shares by stratum, or what an item bank adds to them.

Design-based ones (stratified, session_mean, pooled) trust the random draw alone; p_irt trusts an item bank, difference
corrects the bank by the draw, and regression also learns from the draw how far to follow the bank.
fca.studies.adaptive.stats.mixed_logit trusts a model of the sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import betaincinv, ndtri, stdtrit

from fca.stats.intervals import LEVEL
from fca.studies.adaptive.stats.policies import AGREEING, ability_of, chances, check_bank
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import LEVEL_WEIGHTS, Marks, Pool, Record, Sample, fixed_size_variance
from fca.types import FcaError

Z = float(ndtri(0.5 + LEVEL / 2))
TINY = 1e-12  # a variance of nothing
STEP = 1e-4  # of ability, for slopes
KNOWN_CHANCE_POLICIES = ("defensive_irt", "neyman_irt", "random", "static_k", "proportional")  # policies with `samples`
Targets = Float[np.ndarray, "groups targets"]
Counted = Int[np.ndarray, "strata 3"]
ByLevel = Float[np.ndarray, "groups 3"]


class Interval(NamedTuple):
    """Targets as shares, with standard errors and the ends of 95 % intervals, in [0, 1]; NaN where nothing is known."""

    value: Targets
    se: Targets
    low: Targets
    high: Targets


class Estimate(NamedTuple):
    """Targets of the finite pool by group: with every item asked, `value` is the truth and `se` is 0.

    NaN where no response helps: a level of which a group was asked no item.

    overall: of the mean over groups, each counting the same (one line).
    warning: what the responses at hand showed to be wrong with the estimator that was asked for; else empty.
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
    """Intervals of a normal, value ± 1.96 se.

    shared: the part of the errors that all groups have in common: each group's standard deviations along independent
    factors, whose squares are in se². None: the errors of the groups are independent. Of the mean over groups

        se² = Σ_g (se_g² - Σ_f shared_gf²) / G² + Σ_f (Σ_g shared_gf / G)²

    >>> se, common = np.full((4, 1), 0.2), np.full((4, 1, 1), 0.2)
    >>> [normal_estimate(se, se, shared).overall.se.item() for shared in (None, common)]
    [0.1, 0.2]
    """
    shared = np.zeros((*se.shape, 1)) if shared is None else shared
    own = np.maximum(se**2 - (shared**2).sum(axis=2), 0.0)
    of_mean = np.sqrt(own.sum(axis=0) / len(own) ** 2 + (shared.mean(axis=0) ** 2).sum(axis=1))
    return Estimate(*_normal(value, se), _normal(value.mean(axis=0)[None], of_mean[None]))


def _normal(value: Targets, se: Targets) -> Interval:
    return Interval(value, se, np.maximum(value - Z * se, 0.0), np.minimum(value + Z * se, 1.0))


def level_interval(share: ByLevel, variance: ByLevel, df: ByLevel, n: ByLevel, added: ByLevel) -> Interval:
    """Targets from the shares right of each level.

    share, variance, df: the share, its variance, and the degrees of freedom of that.    n: responses behind it.
    added: the variance of a response that was added to those observed, to estimate `variance`.

    The interval of a level is Jeffreys' (the quantiles of Beta(m share + 1/2, m (1 - share) + 1/2); Brown, Cai and
    DasGupta 2001, Stat. Sci. 16:101) for m = p (1 - p) / variance responses, where p counts `added` responses of each
    kind beside the n. The ends of the sum Σ w_l p_l lie sqrt(Σ w_l² (p_l - end_l)²) off it (Zou and Donner 2008, Stat.
    Med. 27:1693), times t / 1.96 with Student's t for the degrees of freedom of the sum (Welch, Satterthwaite): near 0
    and 1 they are as lopsided as those of the levels.

    >>> one = np.ones((1, 3))
    >>> found = level_interval(one, 0.25 / 12**2 * one, 11 * one, 12 * one, 0.25 * one)
    >>> found.low.round(2), found.high
    (array([[0.88, 0.86]]), array([[1., 1.]]))
    """
    weight = LEVEL_WEIGHTS.T[:, None] ** 2  # (levels, 1, targets)
    parts = variance.T[:, :, None] * weight
    p = (share * n + added) / (n + 2 * added)
    t = stdtrit(welch(parts, df.T[:, :, None] + 0 * parts), 0.5 + LEVEL / 2)
    m = p * (1 - p) / np.maximum(variance, TINY)
    ends = (betaincinv(m * share + 0.5, m * (1 - share) + 0.5, (1 + sign * LEVEL) / 2) for sign in (-1, 1))
    low, high = (
        np.where((share == edge) | (variance == 0), share, end).T[:, :, None]
        for edge, end in zip((0, 1), ends, strict=True)
    )
    value, right = share @ LEVEL_WEIGHTS.T, share.T[:, :, None]
    below, above = (t / Z * np.sqrt((weight * (right - end) ** 2).sum(axis=0)) for end in (low, high))
    se = np.where(np.isnan(value), np.nan, np.sqrt(parts.sum(axis=0)))
    return Interval(value, se, np.maximum(value - below, 0.0), np.minimum(value + above, 1.0))


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

    Sessions too small to be asked are one stratum (see `strata`); a single item of a stratum takes the s² of its level
    in all groups. Few responses estimate a variance poorly: beside those of a group's level counts one with the
    variance of the whole level, and beside those of the whole level one with the largest, 1/4. Intervals: see
    `level_interval`; those of the mean over groups pool the groups level by level.

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool, record = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int)), Record(12)
    >>> record.add(np.array([0, 1, 4, 5, 8, 9]), np.array([True, True, True, False, False, False]))
    >>> found = stratified(pool, record)
    >>> found.value.round(3), found.se.round(3)
    (array([[0.5  , 0.286]]), array([[0.125, 0.12 ]]))
    """
    n, right, size, group = strata(pool, record)
    many, asked, sizes = n > 1, sums(n, group), sums(size, group)
    share = right / np.maximum(n, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.where(asked > 0, sums(size * share, group) / sizes, np.nan)
        spread = np.where(many, share * (1 - share) * n / (n - 1), 0.0)
        factor = np.where(n > 0, (size / sizes[group]) ** 2 * (1 / n - 1 / size), 0.0)
    of_level, freedom = level_variance(n, right, spread)
    df, own, seen, single = (
        sums(one, group) for one in (many * (n - 1), factor * spread, factor * many, factor * ~many)
    )
    single *= of_level
    several = (df * own + seen * of_level) / (df + 1)
    both = np.stack([several, single]), np.stack([df + 1, np.broadcast_to(freedom, df.shape)])
    found = level_interval(level, several + single, welch(*both), asked, np.broadcast_to(of_level, level.shape))
    added, total, single = np.where(df.any(axis=0), 1 / 4, of_level), df.sum(axis=0), single.sum(axis=0)
    several = (total * own.sum(axis=0) + seen.sum(axis=0) * added) / (total + 1)
    freedom = welch(np.concatenate([own, single[None]]), np.concatenate([df + 1, freedom[None]]))
    of_mean = level.mean(axis=0), (several + single) / len(own) ** 2, freedom, asked.sum(axis=0), added
    return Estimate(*found, level_interval(*(one[None] for one in of_mean)))


def strata(pool: Pool, record: Record) -> tuple[Counted, Counted, Counted, Int[np.ndarray, " strata"]]:
    """Items asked, items right and all items of every stratum by level, and the group of each stratum.

    First the sessions, then one stratum a group for its small sessions: those whose part of the items asked of the
    level is below one, and those that were asked none. Where none of these was asked any, it has all sessions.
    """
    n, right, group = pool.by_stratum(record.asked), pool.by_stratum(record.right), pool.session_group
    small = (n == 0) | (pool.by_group(n)[group] * pool.sizes < pool.group_sizes[group])
    small |= (pool.by_group(small.astype(int)) > 0)[group] & (pool.by_group(n * small) == 0)[group]
    n, right, size = (np.concatenate([one * ~small, pool.by_group(one * small)]) for one in (n, right, pool.sizes))
    return n, right, size, np.concatenate([group, np.arange(pool.groups)])


def sums(values: Shaped[np.ndarray, "strata 3"], group: Int[np.ndarray, " strata"]) -> ByLevel:
    """Sums over the strata of each group.

    >>> sums(np.ones((3, 3)), np.array([0, 1, 0]))
    array([[2., 2., 2.],
           [1., 1., 1.]])
    """
    return np.stack([np.bincount(group, weights=column) for column in values.T], axis=1)


def level_variance(
    n: Counted, right: Counted, spread: Float[np.ndarray, "strata 3"]
) -> tuple[Float[np.ndarray, " 3"], Float[np.ndarray, " 3"]]:
    """Variance of a response within the strata of each level, and its degrees of freedom.

    From all groups and one more response, of variance 1/4. Where every stratum has a single response, the variance of
    all responses to the level.    spread: the variance of each stratum.
    """
    df, asked, correct = (one.sum(axis=0) for one in (np.maximum(n - 1, 0), n, right))
    within = ((np.maximum(n - 1, 0) * spread).sum(axis=0) + 1 / 4) / (df + 1)
    whole = (correct + 1) * (asked - correct + 1) / (asked + 2) ** 2
    return np.where(df > 0, within, whole), np.where(df > 0, df + 1.0, asked + 1.0)


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
    return normal_estimate(level @ LEVEL_WEIGHTS.T, np.sqrt(total @ LEVEL_WEIGHTS.T**2))


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
    return normal_estimate(level @ LEVEL_WEIGHTS.T, np.sqrt(variance @ LEVEL_WEIGHTS.T**2))


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
    return normal_estimate(value, np.sqrt(own + shared**2), shared[:, :, None])


def difference(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The bank's probabilities of all items, corrected by the asked ones. Needs a bank and a policy of known chances.

        Y = Σ_i w_i p_i + Σ_{i asked} w_i (y_i - p_i) / π_i      (Särndal, Swensson & Wretman 1992, section 6.3)

    Unbiased however wrong the bank is, for p_i fixed before the sample was drawn (`neyman_irt`, from its pilot; the
    items of a pilot are known and leave the sum). After `static_k` and `random` the ability comes from the sample
    itself, a bias of the order of 1 / n. Variance: Horvitz-Thompson, by group (wide where the draw was spread), and two
    responses of variance 1/4 beside those observed. Intervals: see `share_interval`.

    A test that went on drew several samples, each from the items left. Given what was known then, each estimate is
    unbiased, so their errors are uncorrelated: they are averaged with weights n / (R (R - n)), from n drawn of R alone.
    """
    bank = check_bank("difference", pool, bank)
    _check_samples(record)
    latest = chances(record, bank)
    predicted = [latest if sample.chance is None else sample.chance for sample in record.samples]
    return _from_samples(pool, record, [chance[None] for chance in predicted])


def regression(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The bank's probabilities as far as the responses bear them out. Needs a bank and a policy of known chances.

        Y = Σ_i w_i m_i + Σ_{i asked} w_i (y_i - m_i) / π_i,   m_i = a + b p_i

    the generalised regression estimator (Särndal, Swensson & Wretman 1992, section 6.4): `difference` with a slope b,
    and an intercept a for each level, that minimise Σ (1 - π_i) (w_i / π_i)² (y_i - m_i)² over the items asked, the
    variance of what is estimated. Ten responses that agree with the bank, spread over the pool, count beside them. A
    bank that says nothing of this model has b near 0, and what is left is the share right of a random sample; p_i is
    that of the ability by all responses. The bias is of the order of 1 / n, whatever the bank; variance and intervals
    are those of `difference`.

    >>> from fca.studies.progressive.stats.pool import Sample, make_pool
    >>> bank = ItemBank("2pl", np.tile([-2.0, 2.0], 50), np.ones(100), np.ones(100), np.zeros(100))
    >>> pool, record = make_pool(None, np.zeros(100, int)), Record(100)
    >>> record.samples.append(Sample(record.asked.copy(), np.full(100, 0.5), None))
    >>> record.add(np.arange(50), np.arange(50) % 2 == 0)  # the easy items of the first half
    >>> regression(pool, record, bank).value.round(2)
    array([[0.5]])
    """
    bank = check_bank("regression", pool, bank)
    _check_samples(record)
    predicted = regressed(pool, record, bank)
    return _from_samples(pool, record, [predicted] * len(record.samples))


def regressed(pool: Pool, record: Record, bank: ItemBank) -> Float[np.ndarray, "targets items"]:
    """The predictions m of every item for each target; see `regression`."""
    chance = chances(record, bank)
    of_levels = [pool.level == level for level in range(len(pool.levels))]
    columns = np.stack([*of_levels, chance]).astype(np.float64)

    importance = np.zeros_like(pool.weights)  # of each item asked, in the variance of each target
    samples = zip(record.samples, asked_by_sample(record), sample_weights(pool, record), strict=True)
    for sample, asked, of_groups in samples:
        drawn = asked & ~sample.certain
        factor = of_groups[pool.group] * pool.weights / sample.inclusion
        importance += np.where(drawn, (1 - sample.inclusion) * factor**2, 0.0)

    predicted = np.tile(chance, (len(pool.targets), 1))
    agreeing = AGREEING * (columns @ columns.T) / pool.items
    for target, each in enumerate(importance):
        if not each.any():  # every item was asked
            continue
        inner = (columns * each) @ columns.T + each[each > 0].mean() * agreeing
        change = np.linalg.lstsq(inner, (columns * each) @ (record.right - chance))[0]  # chances may all be equal
        predicted[target] += change @ columns
    return predicted


def _check_samples(record: Record) -> None:
    if not record.samples:
        allowed = f"{', '.join(KNOWN_CHANCE_POLICIES)}: each item's chance to be asked is known"
        raise FcaError("policy", "one of unknown chances", allowed, "take one of these, or estimator mixed_logit")


def asked_by_sample(record: Record) -> list[Marks]:
    """Items asked by the end of each sample."""
    return [*(later.certain for later in record.samples[1:]), record.asked]


def sample_weights(pool: Pool, record: Record) -> Float[np.ndarray, "samples groups"]:
    """Weight of each sample in the estimate of each group: n / (R (R - n) v), with sum 1; v is `Sample.variance`."""
    weights = np.empty((len(record.samples), pool.groups))
    for at, (sample, asked) in enumerate(zip(record.samples, asked_by_sample(record), strict=True)):
        drawn = asked & ~sample.certain
        n, left = (np.bincount(pool.group[one], minlength=pool.groups) for one in (drawn, ~sample.certain))
        # a sample of all items left is all that counts
        weights[at] = 1 / np.maximum(left * (left - n) / np.maximum(n, 1), 1e-9) / sample.variance
    return weights / weights.sum(axis=0)


def _from_samples(pool: Pool, record: Record, predicted: Sequence[Float[np.ndarray, "#targets items"]]) -> Estimate:
    """The mean over samples of the predictions that each corrects; see `difference`."""
    weight = sample_weights(pool, record)[:, :, None]
    each_sample = zip(predicted, record.samples, asked_by_sample(record), strict=True)
    samples = [_corrected(pool, record, *each) for each in each_sample]
    value, variance, most, squares = (np.stack(parts) for parts in zip(*samples, strict=True))
    value, variance, most, squares = (
        (weight**power * part).sum(axis=0) for power, part in ((1, value), (2, variance), (2, most), (4, squares))
    )
    right, count = (
        np.bincount(pool.group[one], minlength=pool.groups)[:, None] for one in (record.right, record.asked)
    )
    alike = right == 0, right == count
    of_groups = share_interval(value, variance, most, squares, *alike)
    of_mean = (
        (part / pool.groups**power).sum(axis=0)[None]
        for power, part in ((1, value), (2, variance), (2, most), (4, squares))
    )
    return Estimate(*of_groups, share_interval(*of_mean, *(one.all(axis=0)[None] for one in alike)))


def share_interval(
    value: Targets,
    variance: Targets,
    most: Targets,
    squares: Targets,
    wrong: Bool[np.ndarray, "groups 1"],
    right: Bool[np.ndarray, "groups 1"],
) -> Interval:
    """Intervals of shares that a bank helped to estimate, as lopsided as those of shares of as few responses.

    most, squares: see `Corrected`.    wrong, right: whether all responses were.

    The responses count as n = most² / squares of equal weight (Kish 1965). Surprises are rare, and where none was seen
    the variance would be too small: two responses of variance 1/4 count beside those n. The interval is Jeffreys' (see
    `level_interval`) of m = p (1 - p) / variance responses, at most n, scaled to the standard error: a bank makes
    errors smaller, but the few responses it does not foresee no more frequent. Times t / 1.96, with Student's t for
    n + 1 degrees of freedom. Responses that are all right do not exclude the share 1, all wrong ones not 0.

    >>> one = np.ones((1, 1))
    >>> found = share_interval(0.95 * one, 0.0002 * one, 0.25 / 60 * one, (0.25 / 60) ** 2 / 60 * one, one < 0, one < 0)
    >>> found.low.round(3), found.high.round(3)
    (array([[0.901]]), array([[0.973]]))
    """
    share, n = np.clip(value, 0.0, 1.0), most**2 / np.maximum(squares, TINY**4)
    df = np.maximum(n - 1, 0.0)
    variance = (df * variance + 2 * most) / (df + 2)
    p = (share * n + 1 / 4) / (n + 1 / 2)
    m = np.minimum(p * (1 - p) / np.maximum(variance, TINY), n)
    low, high = (betaincinv(m * share + 0.5, m * (1 - share) + 0.5, (1 + sign * LEVEL) / 2) for sign in (-1, 1))
    narrower = stdtrit(df + 2, 0.5 + LEVEL / 2) / Z * np.sqrt(m * variance / (p * (1 - p)))
    low = np.where(wrong | (share == 0), 0.0, np.maximum(value - narrower * (share - low), 0.0))
    high = np.where(right | (share == 1), 1.0, np.minimum(value + narrower * (high - share), 1.0))
    known = variance == 0
    return Interval(value, np.sqrt(variance), np.where(known, value, low), np.where(known, value, high))


class Corrected(NamedTuple):
    """Values from one sample, and their variances.

    most: what the variances would be if every response had the variance 1/4.    squares: the sum of the squares of the
    items' parts of `most`.
    """

    value: Targets
    variance: Targets
    most: Targets
    squares: Targets


def _corrected(
    pool: Pool, record: Record, predicted: Float[np.ndarray, "#targets items"], sample: Sample, asked: Marks
) -> Corrected:
    """Predictions corrected by one sample; see `difference`."""
    residual = record.right - predicted
    known = np.where(sample.certain, record.right, predicted)
    sampled = asked & ~sample.certain
    value = _sums(pool, pool.weights * (known + np.where(sampled, residual / sample.inclusion, 0.0)))
    variance = np.empty_like(value)
    weighted = pool.weights * residual
    for group in range(pool.groups):
        drawn = np.flatnonzero(sampled & (pool.group == group))
        variance[group] = fixed_size_variance(weighted[:, drawn], sample.inclusion[drawn])
    each = np.where(sampled, 1 - sample.inclusion, 0.0) * (pool.weights / sample.inclusion) ** 2 / 4
    return Corrected(value, np.nan_to_num(variance), _sums(pool, each), _sums(pool, each**2))


def _sums(pool: Pool, values: Float[np.ndarray, "targets items"]) -> Targets:
    return np.stack([np.bincount(pool.group, weights=row, minlength=pool.groups) for row in values], axis=1)
