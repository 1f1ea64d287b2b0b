"""What to ask next, for one model: `ask` gives a round's items over all sessions at once, `tell` takes the answers.

    while len(positions := policy.ask(rng)):
        policy.tell(positions, run_the_model_on(positions))

After the last round `ask` gives no positions, and `policy.record` holds what an estimator reads. `budget` is the share
of the pool that may be asked; `again` allows as many once more, so that a test can go on until it knows enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from fca.stats.adaptive.pool import (
    LEVEL_WEIGHTS,
    LEVELS,
    POINTS,
    TARGETS,
    Pool,
    Record,
    capped_inclusion,
    shuffled_ranks,
    systematic,
)
from fca.stats.irt import ItemBank, score_ability
from fca.types import FcaError


@runtime_checkable
class Policy(Protocol):
    """A test in progress."""

    record: Record

    def ask(self, rng: np.random.Generator) -> Int[np.ndarray, " asked"]:
        """Positions of the next round's items; none when the test is over."""

    def tell(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        """Which of the asked items the model got right."""

    def again(self) -> None:
        """After the last round: ask as many items once more, or what is left; `ask` gives further rounds."""


StartPolicy = Callable[[Pool, "int | float", "ItemBank | None"], Policy]  # a policy's class, or a partial of it


def check_budget(budget: int | float) -> float:
    """The share as it is, in (0, 1]; raises FcaError outside.

    >>> check_budget(0.25)
    0.25
    """
    if not 0 < budget <= 1:
        raise FcaError("budget", budget, "above 0, at most 1: a share of the pool", "0.25 asks a quarter")
    return float(budget)


def check_room(pool: Pool, needed: Integer[np.ndarray, " levels"]) -> None:
    """Raises FcaError where a session has fewer items of a level than a policy may ask there."""
    short = np.argwhere(pool.sizes < needed)
    if len(short):
        session, level = short[0]
        what = f"{LEVELS[level]} items asked of session {pool.session_names[session]}"
        step = f"lower k or the budget, or leave out such sessions ({len(np.unique(short[:, 0]))})"
        raise FcaError(what, int(needed[level]), f"at most {pool.sizes[session, level]}, all it has", step)


def check_bank(policy: str, pool: Pool, bank: ItemBank | None) -> ItemBank:
    """The bank, if there is one and it has the pool's items; else FcaError."""
    if bank is None:
        step = "fit one on other models' answers (fca.stats.irt.fit_irt(...).bank), or take what needs none"
        raise FcaError("bank", None, f"an item bank: {policy} needs one", step)
    if len(bank.difficulty) != pool.items:
        step = "take the bank of these items, in their order"
        raise FcaError("items of the bank", len(bank.difficulty), f"{pool.items}, those of the pool", step)
    return bank


class StaticK:
    """`static_k`: k random items of every level in every session, in one round; k from the budget, rounded.

    >>> from fca.stats.adaptive.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int))
    >>> len(StaticK(pool, 0.5).ask(np.random.default_rng(0)))
    6
    """

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        self.k = round(check_budget(budget) * pool.items / pool.sizes.size)
        if self.k < 1:
            least = pool.sizes.size / pool.items
            raise FcaError(
                "budget", budget, f"{least:.3g} or more: k = 1", "static_k asks every level of every session"
            )
        check_room(pool, np.full(3, self.k))
        self.pool, self.record, self.step = pool, Record(pool.items), self.k
        self.rank: Int[np.ndarray, " items"] | None = None
        self.record.inclusion = self.k / pool.sizes[pool.session, pool.level]

    def ask(self, rng: np.random.Generator) -> Int[np.ndarray, " asked"]:
        if self.rank is None:
            self.rank = shuffled_ranks(self.pool.stratum, rng)
        return np.flatnonzero((self.rank < self.k) & ~self.record.asked)

    def tell(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        self.record.add(positions, correct)

    def again(self) -> None:
        """The old and the new items of a stratum together are one simple random sample."""
        self.k += self.step
        self.record.inclusion = np.minimum(self.k / self.pool.sizes, 1.0)[self.pool.session, self.pool.level]


class Random:
    """`random`: a simple random sample of every group, in one round, blind to session and level.

    >>> from fca.stats.adaptive.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int))
    >>> len(Random(pool, 0.25).ask(np.random.default_rng(0)))
    3
    """

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        sizes = pool.group_sizes.sum(axis=1)
        self.n = np.maximum(np.round(check_budget(budget) * sizes).astype(np.int64), 1)
        self.pool, self.record, self.step = pool, Record(pool.items), self.n
        self.rank: Int[np.ndarray, " items"] | None = None
        self.record.inclusion = (self.n / sizes)[pool.group]

    def ask(self, rng: np.random.Generator) -> Int[np.ndarray, " asked"]:
        if self.rank is None:
            self.rank = shuffled_ranks(self.pool.group, rng)
        return np.flatnonzero((self.rank < self.n[self.pool.group]) & ~self.record.asked)

    def tell(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        self.record.add(positions, correct)

    def again(self) -> None:
        """The old and the new items of a group together are one simple random sample."""
        sizes = self.pool.group_sizes.sum(axis=1)
        self.n = np.minimum(self.n + self.step, sizes)
        self.record.inclusion = (self.n / sizes)[self.pool.group]


# Two rounds a session, as in the GRE: the points of the first decide the levels of the second.


Mapping = Sequence[Sequence[int]]
FIRST = np.array([1, 2, 1])  # easy, medium, hard items of the first round
SECOND = 5
# Items by level in the second round after 0, 1, ... 9 points. The paper prints one line of its table (7 points) and the
# averages it led to (its Table 1); both tables here agree with that line and those averages.
MAPPING_Q = (
    (4, 1, 0), (4, 1, 0), (3, 2, 0), (2, 2, 1), (1, 2, 2), (0, 3, 2), (0, 2, 3), (0, 2, 3), (0, 1, 4), (0, 0, 5),
)  # fmt: skip
MAPPING_L = (*MAPPING_Q[:4], (0, 3, 2), *MAPPING_Q[5:])


def check_mapping(mapping: Mapping) -> Int[np.ndarray, "10 3"]:
    """Ten triples of items by level, each summing to 5; raises FcaError naming the line that does not.

    >>> check_mapping(MAPPING_Q)[7]
    array([0, 2, 3])
    """
    if len(mapping) != 10:
        raise FcaError("lines of the mapping", len(mapping), "10, for 0 to 9 points", "add or remove lines")
    for points, line in enumerate(mapping):
        if len(line) != 3 or min(line) < 0 or sum(line) != SECOND:
            allowed = f"three counts (easy, medium, hard) from 0, with sum {SECOND}"
            raise FcaError(f"mapping after {points} points", tuple(line), allowed, "mend this line")
    return np.array(mapping, dtype=np.int64)


class GreTwoStage:
    """`gre_two_stage`: 1 easy, 2 medium and 1 hard item of every session; then 5 more by the points won (1, 2, 4).

    Huang et al. (2025, arXiv 2503.13058), section 4 and figure 5. Nine items a session; a budget of twice as many asks
    twice as many in both rounds, and reads the mapping at the points per 4 items, rounded down. `again` is two more
    rounds of other items, the second by the points of these alone, as far as a session has such items.

    >>> from fca.stats.adaptive.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int))
    >>> test, rng = GreTwoStage(pool, 0.25), np.random.default_rng(0)
    >>> first = test.ask(rng)
    >>> test.tell(first, np.ones(4, dtype=bool))
    >>> pool.level[test.ask(rng)]
    array([2, 2, 2, 2, 2])
    """

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, mapping: Mapping = MAPPING_Q
    ) -> None:
        table = check_mapping(mapping)
        items = pool.items / len(pool.sizes)  # of a session
        if items < 9:
            step = "add images (12 a level are usual) or take another policy"
            raise FcaError("images a session (class and attribute)", f"{items:.3g}", "9 or more, to ask nine", step)
        a_session = check_budget(budget) * items
        self.times = round(a_session / (FIRST.sum() + SECOND))
        if self.times < 1:
            raise FcaError("budget", budget, f"{9 / items:.3g}, nine items a session, or a multiple", "raise it")
        self.table = table * self.times
        check_room(pool, FIRST * self.times + self.table.max(axis=0))
        self.pool, self.record, self.round = pool, Record(pool.items), 0
        self.rank: Int[np.ndarray, " items"] | None = None
        self.before = np.zeros_like(pool.sizes)  # right answers of earlier pairs of rounds

    def ask(self, rng: np.random.Generator) -> Int[np.ndarray, " asked"]:
        self.round += 1
        if self.round > 2:
            return np.empty(0, dtype=np.int64)
        if self.rank is None:
            self.rank = shuffled_ranks(self.pool.stratum, rng)
        wanted: Int[np.ndarray, "..."] = FIRST * self.times
        if self.round == 2:
            right = self.pool.by_stratum(self.record.right) - self.before
            wanted = self.table[right @ POINTS // self.times]
        last = (self.pool.by_stratum(self.record.asked) + wanted)[self.pool.session, self.pool.level]
        return np.flatnonzero((self.rank < last) & ~self.record.asked)

    def tell(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        self.record.add(positions, correct)

    def again(self) -> None:
        """Two more rounds."""
        self.round, self.before = 0, self.pool.by_stratum(self.record.right)


# More items of the levels where answers vary, as a first round shows.


def objective_row(objective: str) -> int:
    """Which target a policy spends its budget on; raises FcaError for another name.

    >>> objective_row("score")
    1
    """
    if objective not in TARGETS:
        raise FcaError("objective", objective, ", ".join(TARGETS), "take one of these")
    return TARGETS.index(objective)


class OptimalAllocation:
    """`optimal_allocation`: a first round as in `gre_two_stage`, then each group's rest by level where it helps most.

    Items of a level in proportion to c sqrt(p (1 - p)) (Neyman 1934), with c its weight in the objective and p the
    share right in the group so far (half an answer of each kind added), spread evenly over sessions.

    >>> from fca.stats.adaptive.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int))
    >>> test, rng = OptimalAllocation(pool, 0.5), np.random.default_rng(0)
    >>> first = test.ask(rng)
    >>> test.tell(first, pool.level[first] < 2)
    >>> np.bincount(pool.level[test.ask(rng)])
    array([5, 4, 5])
    """

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, objective: str = "accuracy"
    ) -> None:
        self.weight = LEVEL_WEIGHTS[objective_row(objective)]
        self.total = np.round(check_budget(budget) * pool.group_sizes.sum(axis=1)).astype(np.int64)
        check_room(pool, FIRST)
        if (self.total <= FIRST.sum() * np.bincount(pool.session_group)).any():
            least = FIRST.sum() * len(pool.sizes) / pool.items
            raise FcaError("budget", budget, f"above {least:.3g}, the first round", "raise it")
        self.pool, self.record, self.round, self.step = pool, Record(pool.items), 0, self.total
        self.rank: Int[np.ndarray, " items"] | None = None
        self.chosen: Float[np.ndarray, " sessions"] | None = None

    def ask(self, rng: np.random.Generator) -> Int[np.ndarray, " asked"]:
        self.round += 1
        pool = self.pool
        if self.rank is None:
            self.rank = shuffled_ranks(pool.stratum, rng)
            return np.flatnonzero(self.rank < FIRST[pool.level])
        if self.round > 2:
            return np.empty(0, dtype=np.int64)
        if self.chosen is None:  # sessions in random order, the same when the test goes on
            self.chosen = rng.random(len(pool.sizes))
        asked, right = (pool.by_group(pool.by_stratum(marked)) for marked in (self.record.asked, self.record.right))
        share = (right + 0.5) / (asked + 1)
        wanted = np.stack(
            [
                spread(int(n), self.weight * np.sqrt(p * (1 - p)), least, most)
                for n, p, least, most in zip(self.total, share, asked, pool.group_sizes, strict=True)
            ]
        )
        cell = 3 * pool.group + pool.level  # within it: low ranks first, sessions of equal rank in random order
        order = np.lexsort((self.chosen[pool.session], self.rank, cell))
        place = np.empty(pool.items, dtype=np.int64)
        starts = np.cumsum(pool.group_sizes) - pool.group_sizes.ravel()
        place[order] = np.arange(pool.items) - starts[cell[order]]
        return np.flatnonzero((place < wanted.ravel()[cell]) & ~self.record.asked)

    def tell(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        self.record.add(positions, correct)

    def again(self) -> None:
        """A larger total, allocated by all answers so far; what was asked stays part of it."""
        self.total, self.round = np.minimum(self.total + self.step, self.pool.group_sizes.sum(axis=1)), 1


def spread(
    n: int,
    size: Float[np.ndarray, " levels"],
    least: Integer[np.ndarray, " levels"],
    most: Integer[np.ndarray, " levels"],
) -> Int[np.ndarray, " levels"]:
    """n whole items over levels, each in turn where size² / (k (k + 1)) is largest, from `least` to `most`.

    That greedy rule is optimal for the sum of size² / k in whole numbers (Wright 2012).

    >>> spread(10, np.array([1.0, 2.0, 4.0]), np.array([1, 1, 1]), np.array([12, 12, 4]))
    array([2, 4, 4])
    """
    steps = [np.arange(low, high) for low, high in zip(np.maximum(least, 1), most, strict=True)]
    level = np.repeat(np.arange(len(size)), [len(step) for step in steps])
    k = np.concatenate(steps)
    best = np.argsort(-(size[level] ** 2) / (k * (k + 1)), kind="stable")[: n - int(least.sum())]
    return np.asarray(least + np.bincount(level[best], minlength=len(size)))


# Policies that know the items from a bank: they ask where answers are least foreseen, or tell most about ability.


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
