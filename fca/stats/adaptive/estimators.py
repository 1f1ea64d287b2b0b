"""Both targets of every group from the responses to a test: plain shares, or with the help of an item bank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

from fca.stats.adaptive.policies import ability_of, check_bank
from fca.stats.adaptive.pool import LEVEL_WEIGHTS, Pool, Record, Sample, fixed_size_variance
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
    """

    value: Targets
    se: Targets
    shared: Float[np.ndarray, "groups targets factors"] | None = None

    @property
    def overall(self) -> Estimate:
        """The mean over groups, each counting the same, as an estimate of one group.

            se² = Σ_g (se_g² - Σ_f shared_gf²) / G² + Σ_f (Σ_g shared_gf / G)²

        >>> se, common = np.full((4, 1), 0.2), np.full((4, 1, 1), 0.2)
        >>> [Estimate(se, se, shared).overall.se.item() for shared in (None, common)]
        [0.1, 0.2]
        """
        shared = np.zeros((*self.se.shape, 1)) if self.shared is None else self.shared
        own = np.maximum(self.se**2 - (shared**2).sum(axis=2), 0.0)
        together = shared.mean(axis=0)
        variance = own.sum(axis=0) / len(own) ** 2 + (together**2).sum(axis=1)
        return Estimate(self.value.mean(axis=0)[None], np.sqrt(variance)[None], together[None])

    @property
    def low(self) -> Targets:
        """Lower end of the 95 % interval, value - 1.96 se, at least 0."""
        return np.maximum(self.value - Z * self.se, 0.0)

    @property
    def high(self) -> Targets:
        """Upper end, at most 1."""
        return np.minimum(self.value + Z * self.se, 1.0)


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
    left = np.where(record.asked, 0.0, chance * (1 - chance))
    slope = np.where(record.asked, 0.0, slope)
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
    if record.inclusion is None:
        allowed = "neyman_irt, random, static_k: each item's chance to be asked is known"
        raise FcaError("policy", "one of unknown chances", allowed, "take one of these, or estimator mixed_logit")
    chance = record.chance
    if chance is None:
        chance = bank.probability(np.array([ability_of(record, bank)[0]]))[0]
    now = Sample(record.asked, record.certain, record.inclusion, chance)
    found = [_corrected(pool, record.right, sample) for sample in (*record.earlier, now)]
    weight = np.stack([one.weight for one in found])[:, :, None]
    weight = weight / weight.sum(axis=0)
    value = (weight * np.stack([one.value for one in found])).sum(axis=0)
    return Estimate(value, np.sqrt((weight**2 * np.stack([one.variance for one in found])).sum(axis=0)))


class Corrected(NamedTuple):
    """The estimate from one sample for every group, and its weight beside others."""

    value: Targets
    variance: Targets
    weight: Float[np.ndarray, " groups"]


def _corrected(pool: Pool, right: Bool[np.ndarray, " items"], sample: Sample) -> Corrected:
    """The bank's probabilities corrected by one sample; see `difference`."""
    residual = right - sample.chance
    known = np.where(sample.certain, right, sample.chance)
    sampled = sample.asked & ~sample.certain
    value = _sums(pool, pool.weights * (known + np.where(sampled, residual / sample.inclusion, 0.0)))
    variance = np.empty_like(value)
    for group in range(pool.groups):
        drawn = np.flatnonzero(sampled & (pool.group == group))
        variance[group] = fixed_size_variance(pool.weights[:, drawn] * residual[drawn], sample.inclusion[drawn])
    n, rest = (np.bincount(pool.group[one], minlength=pool.groups) for one in (sampled, ~sample.certain))
    spread = rest * (rest - n) / np.maximum(n, 1)
    return Corrected(value, variance, 1 / np.maximum(spread, 1e-9))  # a sample of all items left is all that counts


def _sums(pool: Pool, values: Float[np.ndarray, "targets items"]) -> Targets:
    return np.stack([np.bincount(pool.group, weights=row, minlength=pool.groups) for row in values], axis=1)
