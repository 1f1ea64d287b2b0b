"""Which items to ask next, for one model: `next` gives a round's items over all sessions, `record` has the responses.

    while len(positions := policy.next(rng)):
        policy.record.add(positions, run_the_model_on(positions))

That loop is `fca.studies.adaptive.stats.rounds`. After the last round `next` gives no positions, and `policy.record`
holds what an estimator reads. `budget` is the share of the pool to ask; `again` allows as many items once more, so that
a test can go on until its estimate is precise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Shaped

from fca.studies.irt.stats import ItemBank, score_ability
from fca.studies.irt.stats.information import information
from fca.studies.progressive.stats.pool import (
    LEVEL_WEIGHTS,
    LEVELS,
    POINTS,
    TARGETS,
    Codes,
    Pool,
    Record,
    Sample,
    capped_inclusion,
    ranks_within,
    shuffled_ranks,
    systematic,
)
from fca.types import FcaError, check_choice

Positions = Int[np.ndarray, " asked"]
Levels = Integer[np.ndarray, " levels"]
PerGroup = Int[np.ndarray, " groups"]
NONE: Positions = np.empty(0, dtype=np.int64)

FIRST = np.array([1, 2, 1])  # easy, medium, hard items of the first of two rounds
ONE = np.ones(3, dtype=np.int64)
SECOND = 5  # items of the second
FLAT = "proportional, random, defensive_irt, neyman_irt, fisher_cat"  # policies that need no levels
PILOT = 0.05  # of the budget, for a first estimate of the ability
ROUNDS = 4  # of fisher_cat after its pilot
RANDOM_PART = 0.3  # of the budget, of defensive_irt
SHARES_OF_EQUAL = (0.0, 0.25, 0.5, 0.75)  # of equal chances in its mixtures, beside 1
LEAST_FORESEEN = 0.1  # variance over that of equal chances
AGREEING = 10  # responses that agree with a bank, counted beside those observed
LEAST_VARIANCE = 0.005  # of a response that a bank takes as certain: surprises there are rare, but would weigh much

Mapping = Sequence[Sequence[int]]
# Items by level in the second round after 0, 1, ... 9 points. The paper prints one line of its table (7 points) and the
# averages it led to (its Table 1); both tables here agree with that line and those averages.
MAPPING_Q = (
    (4, 1, 0), (4, 1, 0), (3, 2, 0), (2, 2, 1), (1, 2, 2), (0, 3, 2), (0, 2, 3), (0, 2, 3), (0, 1, 4), (0, 0, 5),
)  # fmt: skip
MAPPING_L = (*MAPPING_Q[:4], (0, 3, 2), *MAPPING_Q[5:])
MAPPINGS = {"Q": MAPPING_Q, "L": MAPPING_L}


class Policy(ABC):
    """A test in progress: items in random order within strata, asked in rounds."""

    rounds = 2

    def __init__(self, pool: Pool, stratum: Codes) -> None:
        self.pool, self.stratum, self.record, self.round = pool, stratum, Record(pool.items), 0
        self.rank: Codes = NONE

    def next(self, rng: np.random.Generator) -> Positions:
        """Positions of the next round's items; none when the test is over."""
        if not len(self.rank):
            self.rank = shuffled_ranks(self.stratum, rng)
        while self.round < self.rounds:
            self.round += 1
            if len(positions := self.select(rng)):
                return positions
        return NONE

    @abstractmethod
    def select(self, rng: np.random.Generator) -> Positions:
        """Positions of the items of round `self.round`, which counts from 1; a round without items is passed over."""

    def below(self, wanted: Shaped[np.ndarray, "..."]) -> Positions:
        """Items not asked so far that are among the first `wanted` of their stratum."""
        return np.flatnonzero((self.rank < wanted.ravel()[self.stratum]) & ~self.record.asked)

    @abstractmethod
    def again(self) -> None:
        """After the last round: ask as many items once more, or what is left; `next` gives further rounds."""


StartPolicy = Callable[[Pool, "int | float", "ItemBank | None"], Policy]  # a policy's class, or a partial of it


class _SimpleSample(Policy):
    """n random items of every stratum, in one round; the old and the new items of `again` are one such sample."""

    rounds = 1

    def __init__(self, pool: Pool, stratum: Codes, n: Int[np.ndarray, " strata"]) -> None:
        super().__init__(pool, stratum)
        self.n, self.step = 0 * n, n
        self.again()

    def select(self, rng: np.random.Generator) -> Positions:
        return self.below(self.n)

    def again(self) -> None:
        sizes = np.bincount(self.stratum)
        self.n, self.round = np.minimum(self.n + self.step, sizes), 0
        self.record.samples = [Sample(np.zeros(self.pool.items, dtype=bool), (self.n / sizes)[self.stratum], None)]


class StaticK(_SimpleSample):
    """`static_k`: k random items of every level in every session, in one round; k from the budget, rounded.

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int))
    >>> len(StaticK(pool, 0.5).next(np.random.default_rng(0)))
    6
    """

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        pool.check_levels("policy", "static_k", FLAT)
        self.k = round(check_budget(budget) * pool.items / pool.sizes.size)
        if self.k < 1:
            allowed = f"{pool.sizes.size / pool.items:.3g} or more: k = 1"
            raise FcaError("budget", budget, allowed, "static_k asks every level of every session")
        check_room(pool, np.full(3, self.k))
        super().__init__(pool, pool.stratum, np.full(pool.sizes.size, self.k))


class Random(_SimpleSample):
    """`random`: a simple random sample of every group, in one round, blind to session and level.

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int))
    >>> len(Random(pool, 0.25).next(np.random.default_rng(0)))
    3
    """

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        super().__init__(pool, pool.group, np.maximum(share_of_groups(pool, budget), 1))


class Proportional(Policy):
    """`proportional`: a random sample of every group, spread over its sessions (classes) in proportion to their size.

    Systematic along the sessions, in random order within each: every item of a group has the same chance n / N, and a
    session of N_s items gets n N_s / N of them, rounded up or down at random. The share right then varies no more than
    in a simple random sample, up to rounding, and less where sessions differ (Cochran 1977, sections 5.6 and 8.6).

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool, rng = make_pool(None, np.repeat(["cat", "dog"], 6)), np.random.default_rng(0)
    >>> np.bincount(pool.session[Proportional(pool, 0.5).next(rng)])
    array([3, 3])
    """

    rounds = 1

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        super().__init__(pool, pool.group)
        self.n = np.maximum(share_of_groups(pool, budget), 1)

    def select(self, rng: np.random.Generator) -> Positions:
        inclusion, drawn = np.ones(self.pool.items), [NONE]
        for group, n in enumerate(self.n):
            items = np.flatnonzero((self.pool.group == group) & ~self.record.asked)
            if len(items):
                inclusion[items] = min(n / len(items), 1.0)
                drawn.append(items[systematic(inclusion[items], rng, along=self.pool.session[items].astype(float))])
        self.record.samples.append(Sample(self.record.asked.copy(), inclusion, None))
        return np.concatenate(drawn)

    def again(self) -> None:  # as many of those that are left: still every item has the same chance
        self.round = 0


class GreTwoStage(Policy):
    """`gre_two_stage`: 1 easy, 2 medium and 1 hard item of every session; then 5 more by the points won (1, 2, 4).

    Huang et al. (2025, arXiv 2503.13058), section 4 and figure 5: two rounds a session, as in the GRE. Nine items a
    session; a budget of twice as many asks twice as many in both rounds, and reads the mapping at the points per 4
    items, rounded down. `again` is two more rounds of other items, the second by the points of these alone, as far as a
    session has such items.

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int))
    >>> test, rng = GreTwoStage(pool, 0.25), np.random.default_rng(0)
    >>> first = test.next(rng)
    >>> test.record.add(first, np.ones(4, dtype=bool))
    >>> pool.level[test.next(rng)]
    array([2, 2, 2, 2, 2])
    """

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, mapping: Mapping = MAPPING_Q
    ) -> None:
        pool.check_levels("policy", "gre_two_stage", FLAT)
        table = check_mapping(mapping)
        items = pool.items / len(pool.sizes)  # of a session
        if items < 9:
            step = "add images (12 a level are usual) or take another policy"
            raise FcaError("images a session (class and attribute)", f"{items:.3g}", "9 or more, to ask nine", step)
        self.times = round(check_budget(budget) * items / (FIRST.sum() + SECOND))
        if self.times < 1:
            raise FcaError("budget", budget, f"{9 / items:.3g}, nine items a session, or a multiple", "raise it")
        self.table = table * self.times
        check_room(pool, FIRST * self.times + self.table.max(axis=0))
        super().__init__(pool, pool.stratum)
        self.before = np.zeros_like(pool.sizes)  # right responses of earlier pairs of rounds

    def select(self, rng: np.random.Generator) -> Positions:
        wanted = FIRST * self.times
        if self.round == 2:
            right = self.pool.by_stratum(self.record.right) - self.before
            wanted = self.table[right @ POINTS // self.times]
        positions = self.below(self.pool.by_stratum(self.record.asked) + wanted)
        self.record.led[positions] = self.round == 2
        return positions

    def again(self) -> None:
        self.round, self.before = 0, self.pool.by_stratum(self.record.right)


class OptimalAllocation(Policy):
    """`optimal_allocation`: a first round as in `gre_two_stage`, then each group's rest by level where it helps most.

    Items of a level in proportion to c sqrt(p (1 - p)) (Neyman 1934), with c its weight in the objective and p the
    share right in the OTHER groups so far (half a response of each kind added), spread evenly over sessions. Its own
    responses decide nothing of what a group is asked: else a level with unlucky first responses would be asked little
    more and stay low, a bias of a point in pools of a few hundred items. The first round is at most half of the budget.

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int))
    >>> test, rng = OptimalAllocation(pool, 0.5), np.random.default_rng(0)
    >>> first = test.next(rng)
    >>> test.record.add(first, pool.level[first] < 2)
    >>> np.bincount(pool.level[test.next(rng)])
    array([5, 4, 5])
    """

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, objective: str = "accuracy"
    ) -> None:
        pool.check_levels("policy", "optimal_allocation", FLAT)
        self.weight = LEVEL_WEIGHTS[objective_row(objective)]
        self.total = self.step = share_of_groups(pool, budget)
        if (self.total < 6).any():
            raise FcaError("budget", budget, "six items of every group, or more", "raise it")
        super().__init__(pool, pool.stratum)

    def select(self, rng: np.random.Generator) -> Positions:
        pool = self.pool
        if self.round == 1:
            self.start = rng.random(len(pool.sizes))  # of each session; the same when the test goes on
            most = FIRST.sum() * np.bincount(pool.session_group)
            of_groups = zip(np.minimum(most, self.total // 2), pool.group_sizes, strict=True)
            return self.first([spread(int(n), FIRST.astype(float), ONE, sizes) for n, sizes in of_groups])
        asked, right = (pool.by_group(pool.by_stratum(marked)) for marked in (self.record.asked, self.record.right))
        asked_elsewhere, right_elsewhere = asked.sum(axis=0) - asked, right.sum(axis=0) - right
        share = (right_elsewhere + 0.5) / (asked_elsewhere + 1)
        rows = zip(self.total, self.weight * np.sqrt(share * (1 - share)), asked, pool.group_sizes, strict=True)
        return self.first([spread(int(n), size, least, most) for n, size, least, most in rows])

    def first(self, wanted: Sequence[Levels]) -> Positions:
        """Items not asked so far that are among the first `wanted` of their group and level.

        A session's items stand at equal steps from a random start, so that of any number each session has its share,
        rounded up or down.
        """
        pool = self.pool
        place = (self.rank + self.start[pool.session]) / pool.sizes[pool.session, pool.level]
        cell = 3 * pool.group + pool.level
        ranks = ranks_within(cell, np.lexsort((place, cell)))
        return np.flatnonzero((ranks < np.stack(wanted).ravel()[cell]) & ~self.record.asked)

    def again(self) -> None:  # a larger total, of which the items already asked are part
        self.total, self.round = np.minimum(self.total + self.step, self.pool.group_sizes.sum(axis=1)), 1


class _WithBank(Policy):
    """A policy that knows the items from a bank: a random pilot for the ability, then items chosen by that ability."""

    name: str

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        super().__init__(pool, pool.group)
        self.bank = check_bank(self.name, pool, bank)
        self.total = share_of_groups(pool, budget)
        if (self.total < 2).any():
            raise FcaError("budget", budget, "two items of every group, or more", "raise it")
        self.pilot = np.maximum(np.round(PILOT * self.total).astype(np.int64), 1)
        self.rest = self.total - self.pilot

    def again(self) -> None:
        """As many items of every group once more, or all that are left of it, without a pilot."""
        left = np.bincount(self.pool.group[~self.record.asked], minlength=self.pool.groups)
        self.rest, self.round = np.minimum(self.total, left), 1


class NeymanIrt(_WithBank):
    """`neyman_irt`: a random twentieth of the budget gives the ability; then items with uncertain responses.

    Of every group's other items a sample of fixed size without replacement, with chances

        π_i proportional to w_i sqrt(p_i (1 - p_i)), at most 1,

    p_i the bank's probability at that ability (p (1 - p) at least 0.005) and w_i the item's weight in the objective.
    Drawn along p, so that every range of p is in the sample. For estimator `difference`. Needs a bank. `again` draws
    from the items that are left; those asked before are known.
    """

    name = "neyman_irt"

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, objective: str = "accuracy"
    ) -> None:
        super().__init__(pool, budget, bank)
        self.weight = pool.weights[objective_row(objective, pool.targets)]

    def select(self, rng: np.random.Generator) -> Positions:
        if self.round == 1:
            return self.below(self.pilot)
        chance = chances(self.record, self.bank)
        size = self.weight * np.sqrt(np.maximum(chance * (1 - chance), LEAST_VARIANCE))
        inclusion, drawn = np.ones(self.pool.items), [NONE]
        for group, n in enumerate(self.rest):
            items = np.flatnonzero((self.pool.group == group) & ~self.record.asked)
            if len(items):
                inclusion[items] = capped_inclusion(size[items], int(n))
                drawn.append(items[systematic(inclusion[items], rng, along=chance[items])])
        self.record.samples.append(Sample(self.record.asked.copy(), inclusion, chance))
        self.record.led[positions := np.concatenate(drawn)] = True
        return positions


class DefensiveIrt(_WithBank):
    """`defensive_irt`: as `neyman_irt`, but only as far as the responses of a random part show that it helps.

    The first 30 % of the budget are random. They show the ability, and how well the bank predicts this model. The rest
    of every group is drawn without replacement, along p, with chances

        π_i proportional to w_i (λ + (1 - λ) s_i),   s_i proportional to sqrt(p_i (1 - p_i)), with mean 1

    a mixture with equal chances (defensive importance sampling: Hesterberg 1995, Technometrics 37:185), where λ of 0,
    0.25, ... 1 has the least D + se(D): D is the mean of w_i² e_i² (1 / π_i - 1 / equal chance) over the random items,
    e_i the residuals of m = a + b p (see estimator `regression`), with one response more of the largest variance, 1/4,
    in every item. λ = 1 has D = 0. A bank that does not know this model leaves a random sample; p is taken at its word
    only where it has kept it. For estimator `regression`. Needs a bank.

    `again` draws from the items that are left, with λ by the same random items.
    """

    name = "defensive_irt"

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, objective: str = "accuracy"
    ) -> None:
        super().__init__(pool, budget, bank)
        self.weight = pool.weights[objective_row(objective, pool.targets)]
        self.pilot = np.maximum(np.round(RANDOM_PART * self.total).astype(np.int64), 1)
        self.rest = self.total - self.pilot

    def select(self, rng: np.random.Generator) -> Positions:
        pool = self.pool
        certain = self.record.asked.copy()
        if self.round == 1:
            inclusion = (self.pilot / pool.group_sizes.sum(axis=1))[pool.group]
            self.record.samples.append(Sample(certain, inclusion, None))
            return self.below(self.pilot)
        if certain.all():
            return NONE

        chance = chances(self.record, self.bank)
        inclusion, variance = self._mixture(chance)
        drawn = [NONE]
        for group in range(pool.groups):
            items = np.flatnonzero((pool.group == group) & ~certain)
            if len(items):
                drawn.append(items[systematic(inclusion[items], rng, along=chance[items])])
        positions = np.concatenate(drawn)
        self.record.samples.append(Sample(certain, inclusion, chance, variance))
        self.record.led[positions] = True
        return positions

    def _mixture(self, chance: Float[np.ndarray, " items"]) -> tuple[Float[np.ndarray, " items"], float]:
        """Chances of the items not asked so far, and the variance foreseen for them over that of equal chances."""
        random_part = self.record.asked & ~self.record.led
        squared = self._residuals(chance, random_part) ** 2
        open_ = ~self.record.asked
        spread = np.sqrt(np.maximum(chance * (1 - chance), LEAST_VARIANCE))
        alike = self._inclusion(np.ones_like(spread), open_)

        best, least, foreseen = alike, 0.0, 1.0
        count, largest = len(squared), 1 / 4
        of_random = self.weight**2 * (1 / alike - 1)
        before = ((of_random[random_part] * squared).sum() + largest * of_random[open_].mean()) / (count + 1)
        for share in SHARES_OF_EQUAL:
            inclusion = self._inclusion(share + (1 - share) * spread / spread[open_].mean(), open_)
            change = self.weight**2 * (1 / inclusion - 1 / alike)
            changes = change[random_part] * squared
            mean = (changes.sum() + largest * change[open_].mean()) / (count + 1)
            if mean + changes.std() / np.sqrt(count) < least:
                best, least = inclusion, mean + changes.std() / np.sqrt(count)
                foreseen = 1 + mean / before
        return np.where(open_, np.minimum(best, 1.0), 1.0), max(foreseen, LEAST_FORESEEN)

    def _residuals(
        self, chance: Float[np.ndarray, " items"], random_part: Bool[np.ndarray, " items"]
    ) -> Float[np.ndarray, " asked"]:
        """Of the line through the random responses and ten that agree with the bank; see estimator `regression`."""
        line = np.stack([np.ones_like(chance), chance])
        here, right = line[:, random_part], self.record.right[random_part]
        inner = here @ here.T + AGREEING * line @ line.T / len(chance)
        residual = right - chance[random_part]
        line_of_residuals = np.linalg.lstsq(inner, here @ residual)[0]  # chances may all be equal
        return residual - line_of_residuals @ here

    def _inclusion(
        self, size: Float[np.ndarray, " items"], open_: Bool[np.ndarray, " items"]
    ) -> Float[np.ndarray, " items"]:
        """Chances in proportion to the weight and to `size`, of every group; of items asked, those they would have."""
        pool = self.pool
        size = self.weight * size
        total = np.bincount(pool.group[open_], weights=size[open_], minlength=pool.groups)
        scale = np.divide(self.rest, total, out=np.full(pool.groups, np.inf), where=total > 0)
        inclusion = scale[pool.group] * size

        for group in np.unique(pool.group[(inclusion > 1) & open_]):  # some items are taken for certain
            members = pool.group == group
            items = np.flatnonzero(members & open_)
            capped = capped_inclusion(size[items], int(self.rest[group]))
            least = int(capped.argmin())
            inclusion[members] = size[members] * capped[least] / size[items[least]]
            inclusion[items] = capped
        return np.minimum(inclusion, 1.0)


class FisherCat(_WithBank):
    """`fisher_cat`: a random twentieth of the budget, then rounds of the most informative items.

    Item information at the ability so far, P'² / (P (1 - P)), largest first, equally many of every group. For ranking
    models: the items it asks are not like the pool, so estimates of accuracy rely on the bank alone. Needs a bank.

    batch:       items a round, of all groups together; None: four rounds a budget. Larger ones keep a GPU busy. With
                 400 of 4,000 ImageNet images (20 models, seed 0, experiments/progressive/ability.py) batches of 1, 16,
                 64 and 256 give mean standard errors of .0837, .0837, .0838 and .0842, and abilities that differ from
                 those on all images by .16, .16, .18 and .22 (root mean square).
    randomesque: items of a round are drawn at random among so many times as many of the most informative ones, so that
                 tests of equally able models differ (Kingsbury & Zara 1989); 1: always the most informative. There,
                 with 5 and batches of 64, two tests share 46 instead of 59 % of their images, at a standard error of
                 .0913.
    """

    name = "fisher_cat"

    def __init__(
        self,
        pool: Pool,
        budget: int | float,
        bank: ItemBank | None = None,
        *,
        batch: int | None = None,
        randomesque: int = 1,
    ) -> None:
        super().__init__(pool, budget, bank)
        for option, value in (("batch", batch), ("randomesque", randomesque)):
            if value is not None and value < 1:
                raise FcaError(option, value, "1 or more", "raise it")
        self.batch, self.randomesque = batch, randomesque

    @property
    def rounds(self) -> int:  # type: ignore[override]  # depends on what is left
        """The pilot and, after it, as many rounds as batches."""
        return 1 + (ROUNDS if self.batch is None else -(-int(self.rest.sum()) // self.batch))

    def select(self, rng: np.random.Generator) -> Positions:
        if self.round == 1:
            return self.below(self.pilot)
        group, times = self.pool.group, self.rounds - 1
        ability = ability_of(self.record, self.bank)[0]
        informative = np.where(self.record.asked, -1.0, information(self.bank, ability))
        place = ranks_within(group, np.lexsort((-informative, group)))
        now = (self.rest * (self.round - 1) // times - self.rest * (self.round - 2) // times)[group]
        if self.randomesque > 1:
            among = (place < self.randomesque * now) & ~self.record.asked
            place = ranks_within(group, np.lexsort((np.where(among, rng.random(len(group)), 1.0), group)))
        self.record.led[positions := np.flatnonzero((place < now) & ~self.record.asked)] = True
        return positions


def check_budget(budget: int | float) -> float:
    """The share unchanged, in (0, 1]; raises FcaError outside.

    >>> check_budget(0.25)
    0.25
    """
    if not 0 < budget <= 1:
        raise FcaError("budget", budget, "above 0, at most 1: a share of the pool", "0.25 asks a quarter")
    return float(budget)


def share_of_groups(pool: Pool, budget: int | float) -> PerGroup:
    """The share of the items of every group, rounded."""
    return np.round(check_budget(budget) * pool.group_sizes.sum(axis=1)).astype(np.int64)


def check_room(pool: Pool, needed: Levels) -> None:
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
        step = "fit one on other models' answers (fca.studies.irt.stats.fit_irt(...).bank), or take what needs none"
        raise FcaError("bank", None, f"an item bank: {policy} needs one", step)
    if len(bank.difficulty) != pool.items:
        step = "take the bank of these items, in their order"
        raise FcaError("items of the bank", len(bank.difficulty), f"{pool.items}, those of the pool", step)
    return bank


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


def objective_row(objective: str, targets: Sequence[str] = TARGETS) -> int:
    """Which of the targets a policy spends its budget on; raises FcaError for another name.

    >>> objective_row("score")
    1
    """
    check_choice("objective", objective, targets)
    return targets.index(objective)


def spread(n: int, size: Float[np.ndarray, " levels"], least: Levels, most: Levels) -> Levels:
    """n whole items over levels, each in turn where size² / (k (k + 1)) is largest, from `least` to `most`.

    That greedy rule is optimal for the sum of size² / k in whole numbers (Wright 2012).

    >>> spread(10, np.array([1.0, 2.0, 4.0]), np.array([1, 1, 1]), np.array([12, 12, 4]))
    array([2, 4, 4])
    """
    steps = [np.arange(low, high) for low, high in zip(np.maximum(least, 1), most, strict=True)]
    level = np.repeat(np.arange(len(size)), [len(step) for step in steps])
    k = np.concatenate(steps)
    best = np.argsort(-(size[level] ** 2) / (k * (k + 1)), kind="stable")[: n - int(least.sum())]
    return least + np.bincount(level[best], minlength=len(size))


def ability_of(record: Record, bank: ItemBank) -> tuple[float, float]:
    """Ability and its standard error from the responses so far."""
    asked = record.asked
    part = ItemBank(bank.model, *(values[asked] for values in bank[1:]))
    scored = score_ability(record.right[asked][None].astype(float), part)
    return float(scored.ability[0]), float(scored.ability_se[0])


def chances(record: Record, bank: ItemBank) -> Float[np.ndarray, " items"]:
    """The bank's probability of a right response to every item, at the ability so far."""
    return bank.probability(np.array([ability_of(record, bank)[0]]))[0]
