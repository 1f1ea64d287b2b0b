"""Policies that know the items from a bank: they ask where answers are least foreseen, or tell most about ability."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from fca.nouns import FcaError
from fca.stats.adaptive.allocation import objective_row
from fca.stats.adaptive.policies import check_bank, check_budget
from fca.stats.adaptive.pool import Pool, Record
from fca.stats.adaptive.sampling import capped_inclusion, shuffled_ranks, systematic
from fca.stats.irt import ItemBank, score_ability

PILOT = 0.05  # of the budget, for a first idea of the ability
ROUNDS = 4  # of fisher_cat after its pilot
LEAST_VARIANCE = 0.005  # of an answer that a bank calls certain: surprises there are rare, but would weigh much


class NeymanIrt:
    """`neyman_irt`: a random twentieth of the budget gives the ability; then items whose answers are hard to foresee.

    Of every group's other items a sample of fixed size without replacement, with chances

        π_i proportional to w_i sqrt(p_i (1 - p_i)), at most 1,

    p_i the bank's probability at that ability (p (1 - p) at least 0.005) and w_i the item's weight in the objective.
    Drawn along p, so that every range of p is in the sample. For estimator `difference`. Needs a bank. `again` draws
    from the items that are left, those asked before being known.
    """

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, objective: str = "accuracy"
    ) -> None:
        self.weight = pool.weights[objective_row(objective)]
        self.bank = check_bank("neyman_irt", pool, bank)
        self.pilot, self.rest = pilot_and_rest(pool, budget)
        self.total = self.pilot + self.rest
        self.pool, self.record, self.round = pool, Record(pool.items), 0

    def ask(self, rng: np.random.Generator) -> Int[np.ndarray, " asked"]:
        self.round += 1
        pool = self.pool
        if self.round == 1:
            return np.flatnonzero(shuffled_ranks(pool.group, rng) < self.pilot[pool.group])
        if self.round > 2 or self.record.asked.all():
            return np.empty(0, dtype=np.int64)
        chance = self.bank.probability(np.array([ability_of(self.record, self.bank)[0]]))[0]
        size = self.weight * np.sqrt(np.maximum(chance * (1 - chance), LEAST_VARIANCE))
        inclusion, drawn = np.ones(pool.items), []
        for group, n in enumerate(self.rest):
            items = np.flatnonzero((pool.group == group) & ~self.record.asked)
            if not len(items):
                continue
            inclusion[items] = capped_inclusion(size[items], int(n))
            drawn.append(items[systematic(inclusion[items], rng, along=chance[items])])
        self.record.certain = self.record.asked.copy()
        self.record.inclusion, self.record.chance = inclusion, chance
        return np.concatenate(drawn)

    def tell(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        self.record.add(positions, correct)

    def again(self) -> None:
        """One more sample, of the items that are left, by the ability that all answers give."""
        self.record.keep_sample()
        self.rest, self.round = as_many_again(self.pool, self.record, self.total), 1


class FisherCat:
    """`fisher_cat`: a random twentieth of the budget, then four rounds of the items that tell most about the ability.

    Item information at the ability so far, P'² / (P (1 - P)), largest first, equally many of every group. For ranking
    models: what it asks is not like the pool, so estimates of accuracy lean on the bank alone. Needs a bank.
    """

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        self.bank = check_bank("fisher_cat", pool, bank)
        self.pilot, self.rest = pilot_and_rest(pool, budget)
        self.total = self.pilot + self.rest
        self.pool, self.record, self.round = pool, Record(pool.items), 0

    def ask(self, rng: np.random.Generator) -> Int[np.ndarray, " asked"]:
        self.round += 1
        pool = self.pool
        if self.round == 1:
            return np.flatnonzero(shuffled_ranks(pool.group, rng) < self.pilot[pool.group])
        while self.round <= ROUNDS + 1 and not (now := self._now()).any():  # fewer items than rounds
            self.round += 1
        if self.round > ROUNDS + 1:
            return np.empty(0, dtype=np.int64)
        ability = ability_of(self.record, self.bank)[0]
        telling = information(self.bank, ability)
        telling[self.record.asked] = -1.0
        order = np.lexsort((-telling, pool.group))
        sizes = pool.group_sizes.sum(axis=1)
        place = np.arange(pool.items) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[place < now[pool.group[order]]])

    def tell(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        self.record.add(positions, correct)

    def again(self) -> None:
        """Four more rounds."""
        self.rest, self.round = as_many_again(self.pool, self.record, self.total), 1

    def _now(self) -> Int[np.ndarray, " groups"]:
        """How many items of every group this round has."""
        return np.asarray(self.rest * (self.round - 1) // ROUNDS - self.rest * (self.round - 2) // ROUNDS)


def pilot_and_rest(pool: Pool, budget: int | float) -> tuple[Int[np.ndarray, " groups"], Int[np.ndarray, " groups"]]:
    """How many items of every group before and after abilities are known; both 1 or more."""
    total = np.round(check_budget(budget) * pool.group_sizes.sum(axis=1)).astype(np.int64)
    if (total < 2).any():
        raise FcaError("budget", budget, "two items of every group, or more", "raise it")
    pilot = np.maximum(np.round(PILOT * total).astype(np.int64), 1)
    return pilot, total - pilot


def as_many_again(pool: Pool, record: Record, total: Int[np.ndarray, " groups"]) -> Int[np.ndarray, " groups"]:
    """As many items of every group, or all that are left of it."""
    return np.asarray(np.minimum(total, np.bincount(pool.group[~record.asked], minlength=pool.groups)))


def ability_of(record: Record, bank: ItemBank) -> tuple[float, float]:
    """Ability and its standard error from what was asked so far."""
    asked = record.asked
    part = ItemBank(bank.model, *(values[asked] for values in bank[1:]))
    scored = score_ability(record.right[asked][None].astype(float), part)
    return float(scored.ability[0]), float(scored.ability_se[0])


def information(bank: ItemBank, ability: float) -> Float[np.ndarray, " items"]:
    """Fisher information of every item at an ability: P'² / (P (1 - P)).

    >>> one = np.ones(1)
    >>> information(ItemBank("2pl", 0 * one, 2 * one, one, 0 * one), 0.0)
    array([1.])
    """
    p = bank.probability(np.array([ability]))[0]
    span = bank.feasibility - bank.guess
    share = (p - bank.guess) / span
    return np.asarray((bank.discrimination * span * share * (1 - share)) ** 2 / np.maximum(p * (1 - p), 1e-300))
