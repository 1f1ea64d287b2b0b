"""Which items to evaluate next, for one model: `next` gives a round's items, `record` has the responses.

    while len(positions := policy.next(rng)):
        policy.record.add(positions, run_the_model_on(positions))

That loop is `fca.studies.adaptive.stats.rounds`. After the last round `next` gives no positions, and `policy.record`
holds what an estimator reads. `budget` is the share of the pool to evaluate; `extend` allows as many items once more,
so that a test can go on until its estimate is precise.
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

Positions = Int[np.ndarray, " positions"]
Levels = Integer[np.ndarray, " levels"]
PerGroup = Int[np.ndarray, " groups"]
PerItem = Float[np.ndarray, " items"]
Marks = Bool[np.ndarray, " items"]
NO_ITEMS: Positions = np.empty(0, dtype=np.int64)

FIRST_ROUND = np.array([1, 2, 1])  # easy, medium, hard items of the first of two rounds
SECOND_ROUND_ITEMS = 5
ONE_PER_LEVEL = np.ones(3, dtype=np.int64)
WITHOUT_LEVELS = "proportional, random, defensive_irt, neyman_irt, fisher_cat"  # policies that need no levels
PILOT_SHARE = 0.05  # of the budget, for a first estimate of the ability
ROUNDS_PER_BUDGET = 4  # of fisher_cat after its pilot
RANDOM_SHARE = 0.3  # of the budget, of defensive_irt
EQUAL_SHARES = (0.0, 0.25, 0.5, 0.75)  # of equal chances in its mixtures, beside 1
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
    """A test of one model in progress: items in random order within strata, evaluated in rounds.

    rounds:  number of rounds per budget.
    stratum: code of each item's stratum; a random sample of a stratum is its first items in that order.
    record:  the responses so far.
    round:   the current round, from 1; 0 before the first.
    """

    rounds = 2

    def __init__(self, pool: Pool, stratum: Codes) -> None:
        self.pool = pool
        self.stratum = stratum
        self.record = Record(pool.n_items)
        self.round = 0
        self.rank: Codes = NO_ITEMS  # place of every item in its stratum, from 0; empty before the first round

    def next(self, rng: np.random.Generator) -> Positions:
        """Positions of the next round's items; an empty array when the budget is spent.

        `rank`, the random order of the items of each stratum, is drawn at the first call and kept for all rounds.
        """
        if not len(self.rank):
            self.rank = shuffled_ranks(self.stratum, rng)
        while self.round < self.rounds:
            self.round += 1
            positions = self.select(rng)
            if len(positions):  # else the round has no items, and the next one follows
                return positions
        return NO_ITEMS

    @abstractmethod
    def select(self, rng: np.random.Generator) -> Positions:
        """Positions of the items of round `self.round`, from 1; a round without items is passed over."""

    def first_of_strata(self, counts: Shaped[np.ndarray, "..."]) -> Positions:
        """Positions of the items that are among the first `counts` of their stratum and were not evaluated so far.

        counts: a number for each stratum; of two axes (sessions x levels), they are in the order of the stratum codes.
        """
        is_among_first = self.rank < counts.ravel()[self.stratum]
        return np.flatnonzero(is_among_first & ~self.record.evaluated)

    @abstractmethod
    def extend(self) -> None:
        """After the last round: allow as many items once more, or what remains; `next` gives further rounds."""


StartPolicy = Callable[[Pool, "int | float", "ItemBank | None"], Policy]  # a policy's class, or a partial of it


class _SimpleSample(Policy):
    """n random items of every stratum, in one round; after `extend`, the old and the new items are one such sample."""

    rounds = 1

    def __init__(self, pool: Pool, stratum: Codes, n: Int[np.ndarray, " strata"]) -> None:
        """n: number of items of each stratum that one budget has."""
        super().__init__(pool, stratum)
        self.n_per_budget = n
        self.n = np.zeros_like(n)
        self.extend()  # allows the items of the first budget

    def select(self, rng: np.random.Generator) -> Positions:
        """The first n items of every stratum, in their random order."""
        return self.first_of_strata(self.n)

    def extend(self) -> None:
        """Allow as many more items of every stratum as one budget has, or all that remain.

        The record then has a single sample, of the old and the new items together: together they are the first items
        of their stratum in its random order.
        """
        sizes = np.bincount(self.stratum)
        self.n = np.minimum(self.n + self.n_per_budget, sizes)
        self.round = 0
        none_before = np.zeros(self.pool.n_items, dtype=bool)
        inclusion_of_stratum = self.n / sizes
        self.record.samples = [Sample(none_before, inclusion_of_stratum[self.stratum], probability=None)]


class StaticK(_SimpleSample):
    """`static_k`: k random items of every level in every session, in one round; k from the budget, rounded.

    >>> from fca.studies.progressive.stats.pool import make_pool
    >>> pool = make_pool(np.repeat([0, 1, 2], 4), np.zeros(12, int), np.zeros(12, int))
    >>> len(StaticK(pool, 0.5).next(np.random.default_rng(0)))
    6
    """

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        """Set k, the number of items of every level in every session, from the budget.

        budget: the share of the pool to evaluate.
        bank:   not used.
        Raises FcaError for a pool without levels, for a budget that is too small for k = 1, and if a session has fewer
        than k items of a level.
        """
        pool.check_levels("policy", "static_k", WITHOUT_LEVELS)
        n_strata = pool.sizes.size  # sessions times levels
        self.k = round(check_budget(budget) * pool.n_items / n_strata)
        if self.k < 1:
            allowed = f"{n_strata / pool.n_items:.3g} or more: k = 1"
            raise FcaError("budget", budget, allowed, "static_k evaluates every level of every session")
        check_room(pool, np.full(3, self.k))
        super().__init__(pool, pool.stratum, np.full(n_strata, self.k))


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

    The sample is systematic along the sessions, with items in random order within each (see `systematic`): every item
    of a group has the same chance n / N, and n N_s / N items of a session of N_s are evaluated, rounded up or down at
    random. The share right then varies no more than in a simple random sample, up to rounding, and less where sessions
    differ (Cochran 1977, sections 5.6 and 8.6).

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
        """Draw a sample of every group, evenly along its sessions; returns the positions of the items drawn.

        Of a group, `self.n[group]` of the items that were not evaluated so far are drawn, or all if fewer remain. The
        sample, with the chance of each item to be drawn, is added to the record.
        """
        inclusion = np.ones(self.pool.n_items)  # stays 1 for items evaluated before, which are not part of the sample
        positions_by_group = [NO_ITEMS]  # one array at least, for np.concatenate
        for group, n in enumerate(self.n):
            items = np.flatnonzero((self.pool.group == group) & ~self.record.evaluated)
            if not len(items):
                continue
            inclusion[items] = min(n / len(items), 1.0)
            session = self.pool.session[items].astype(float)
            # systematic sampling of the items sorted by session, so that each session has its share
            is_drawn = systematic(inclusion[items], rng, along=session)
            positions_by_group.append(items[is_drawn])
        # probability: None, as the items are drawn without a bank
        self.record.samples.append(Sample(self.record.evaluated.copy(), inclusion, probability=None))
        return np.concatenate(positions_by_group)

    def extend(self) -> None:
        """Allow one more sample of the same size, from the items that remain; these still have equal chances."""
        self.round = 0


class GreTwoStage(Policy):
    """`gre_two_stage`: 1 easy, 2 medium and 1 hard item of every session; then 5 more by the points won (1, 2, 4).

    Huang et al. (2025, arXiv 2503.13058), section 4 and figure 5: two rounds per session, as in the GRE. A session has
    nine items; with a budget of twice as many, both rounds have twice as many items, and the mapping is read at the
    points per 4 items, rounded down. `extend` allows two more rounds of other items, the second by the points of these
    alone, as far as a session has such items.

    mapping: for 0, 1, ... 9 points the numbers of easy, medium and hard items in the second round.

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
        """Set the sizes of both rounds from the budget.

        In the paper of this policy (Huang et al. 2025) a session has four items in the first round and five in the
        second. A larger budget multiplies both rounds. In the first round a session wins 1, 2 and 4 points for a right
        easy, medium and hard item; its points decide how many items of each level it has in the second.

        budget:  the share of the pool to evaluate.
        mapping: for 0 to 9 points, the numbers of easy, medium and hard items in the second round.
        bank:    not used.
        Raises FcaError for a pool without levels, too few items, a small budget, and an invalid mapping.
        """
        pool.check_levels("policy", "gre_two_stage", WITHOUT_LEVELS)
        table = check_mapping(mapping)
        items_per_session = pool.n_items / len(pool.sizes)
        if items_per_session < 9:  # FIRST_ROUND has four items, the second round five
            step = "add images (12 a level are usual) or take another policy"
            session = "images a session (class and attribute)"
            raise FcaError(session, f"{items_per_session:.3g}", "9 or more, to evaluate nine", step)
        # a session gets this many times the nine items of the paper
        self.times = round(check_budget(budget) * items_per_session / (FIRST_ROUND.sum() + SECOND_ROUND_ITEMS))
        if self.times < 1:
            allowed = f"{9 / items_per_session:.3g}, nine items a session, or a multiple"
            raise FcaError("budget", budget, allowed, "raise it")
        self.table = table * self.times
        most_by_level = FIRST_ROUND * self.times + self.table.max(axis=0)
        check_room(pool, most_by_level)
        super().__init__(pool, pool.stratum)
        # right responses before the latest `extend`, which starts another pair of rounds; the points of a pair do not
        # count them. sessions x levels
        self.right_in_earlier_pairs = np.zeros_like(pool.sizes)

    def select(self, rng: np.random.Generator) -> Positions:
        """The items of every session's first round (1 easy, 2 medium, 1 hard), or of its second (5, by its points).

        The points of a session are 1, 2 and 4 for a right easy, medium and hard item of the first round. `self.table`
        has the numbers of items by level of the second round for 0 to 9 points. With a larger budget, both rounds are
        `self.times` times as large (in `self.table` too), and the points are divided by `self.times`.

        `right_in_earlier_pairs` has the right responses before this pair of rounds, 0 unless the test was extended.
        """
        n_evaluated = self.pool.by_stratum(self.record.evaluated)  # sessions x levels
        if self.round == 1:
            n_next = FIRST_ROUND * self.times
        else:
            n_right = self.pool.by_stratum(self.record.right) - self.right_in_earlier_pairs
            points = n_right @ POINTS // self.times  # of every session, 0 to 9
            n_next = self.table[points]  # sessions x levels
        # Items have a random order in each session and level. The first ones were evaluated; the next ones follow
        positions = self.first_of_strata(n_evaluated + n_next)
        self.record.chosen_by_responses[positions] = self.round == 2
        return positions

    def extend(self) -> None:
        """Allow two more rounds; the points of the second will not count what was right so far."""
        self.round = 0
        self.right_in_earlier_pairs = self.pool.by_stratum(self.record.right)


class OptimalAllocation(Policy):
    """`optimal_allocation`: a first round as in `gre_two_stage`, then each group's items by level where they help most.

    The number of items of a level is proportional to c sqrt(p (1 - p)) (Neyman 1934), with c the weight of the level in
    the objective, and p the share right at the level in the OTHER groups so far (half a response of each kind is
    added). The items are spread evenly over sessions. A group's own responses do not decide which of its items are
    evaluated: otherwise few more items of a level with unlucky first responses would be evaluated, and its estimate
    would stay low, a bias of a point in pools of a few hundred items. The first round is at most half of the budget.

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
        """Set the number of items of every group from the budget, and the weights of levels from the objective.

        Raises FcaError for a pool without levels, fewer than six items a group, and another objective.
        bank:      not used.
        objective: accuracy or score.
        """
        pool.check_levels("policy", "optimal_allocation", WITHOUT_LEVELS)
        self.weight = LEVEL_WEIGHTS[objective_row(objective)]
        self.n_per_budget = share_of_groups(pool, budget)
        self.n_total = self.n_per_budget
        if (self.n_total < 6).any():  # half of six is an item of each level in the first round
            raise FcaError("budget", budget, "six items of every group, or more", "raise it")
        super().__init__(pool, pool.stratum)

    def select(self, rng: np.random.Generator) -> Positions:
        """The items of the first round; in the second, all items up to the final counts, without those of the first."""
        if self.round == 1:
            # a random place of each session in the order of `first_of_groups`, in [0, 1); drawn once, as `extend` does
            # not repeat the first round
            self.session_starts = rng.random(len(self.pool.sizes))
            return self.first_of_groups(self._first_round_counts())
        return self.first_of_groups(self._final_counts())

    def _first_round_counts(self) -> list[Levels]:
        """How many items of each group are evaluated in the first round, by level.

        A group gets FIRST_ROUND for each of its sessions, but at most half of its budget. Then the levels are in the
        same proportion as in FIRST_ROUND, and each has at least one item.
        """
        pool = self.pool
        full_round = FIRST_ROUND.sum() * np.bincount(pool.session_group)  # items of each group
        n_by_group = np.minimum(full_round, self.n_total // 2)
        weight = FIRST_ROUND.astype(float)
        return [
            spread(int(n), weight, ONE_PER_LEVEL, sizes) for n, sizes in zip(n_by_group, pool.group_sizes, strict=True)
        ]

    def _final_counts(self) -> list[Levels]:
        """How many items of each group are evaluated in both rounds together, by level.

        They are in proportion to c sqrt(p (1 - p)) (Neyman allocation), with c the weight of the level in the objective
        and p the share right at the level in the OTHER groups: if a group's own responses decided, its estimate would
        be biased. There are at least as many as were evaluated so far, and at most as many as the group has.
        """
        pool = self.pool
        n_evaluated = pool.by_group(pool.by_stratum(self.record.evaluated))  # groups x levels
        n_right = pool.by_group(pool.by_stratum(self.record.right))
        n_evaluated_elsewhere = n_evaluated.sum(axis=0) - n_evaluated
        n_right_elsewhere = n_right.sum(axis=0) - n_right
        # half a right and half a wrong response are added, so that a single group has a share, too
        share = (n_right_elsewhere + 0.5) / (n_evaluated_elsewhere + 1)

        size = self.weight * np.sqrt(share * (1 - share))  # c sqrt(p (1 - p))
        groups = zip(self.n_total, size, n_evaluated, pool.group_sizes, strict=True)
        return [spread(int(n), size_of_group, least, most) for n, size_of_group, least, most in groups]

    def first_of_groups(self, counts: Sequence[Levels]) -> Positions:
        """Positions of the first `counts` items of each group and level, without those evaluated so far.

        counts: for each group, the number of items by level, in which the items evaluated so far count too.
        The items of a group and level are ordered by (rank in session + start of session) / size of session. The rank
        is random, from 0, and the start is random in [0, 1). The items of every session are then equally spaced from 0
        to 1, so that the first k items of the order have each session's share, rounded up or down, for any k.
        """
        pool = self.pool
        place = (self.rank + self.session_starts[pool.session]) / pool.sizes[pool.session, pool.level]
        cell = 3 * pool.group + pool.level  # code of (group, level)
        order = np.lexsort((place, cell))  # by cell, then by place
        rank_in_cell = ranks_within(cell, order)
        count_of_cell = np.stack(counts).ravel()
        is_among_first = rank_in_cell < count_of_cell[cell]
        return np.flatnonzero(is_among_first & ~self.record.evaluated)

    def extend(self) -> None:
        """Repeat the second round with a larger total, which includes the items evaluated so far."""
        self.n_total = np.minimum(self.n_total + self.n_per_budget, self.pool.group_sizes.sum(axis=1))
        self.round = 1  # the next round is the second


class _WithBank(Policy):
    """A policy with an item bank: a pilot of random items gives the ability, by which the other items are chosen.

    name: of the policy, for messages. Of each group n_total items are evaluated per budget: n_pilot in the pilot, which
    is the first round, and n_after_pilot in all later rounds.
    """

    name: str

    def __init__(self, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> None:
        """Set the numbers of items of every group, in the pilot and after it, from the budget.

        Raises FcaError without a bank of the pool's items, and for fewer than two items a group.
        """
        super().__init__(pool, pool.group)
        self.bank = check_bank(self.name, pool, bank)
        self.n_total = share_of_groups(pool, budget)
        if (self.n_total < 2).any():  # one for the pilot, one after it
            raise FcaError("budget", budget, "two items of every group, or more", "raise it")
        self.n_pilot = np.maximum(np.round(PILOT_SHARE * self.n_total).astype(np.int64), 1)
        self.n_after_pilot = self.n_total - self.n_pilot

    def extend(self) -> None:
        """Allow as many items of every group once more, or all that remain of it, without another pilot."""
        remaining = np.bincount(self.pool.group[~self.record.evaluated], minlength=self.pool.n_groups)
        self.n_after_pilot = np.minimum(self.n_total, remaining)
        self.round = 1  # the next round is the first after the pilot


class NeymanIrt(_WithBank):
    """`neyman_irt`: a random twentieth of the budget gives the ability; then items with uncertain responses.

    From every group's other items a sample of fixed size is drawn without replacement, with chances

        π_i proportional to w_i sqrt(p_i (1 - p_i)), at most 1,

    where p_i is the bank's probability at that ability (p (1 - p) counts as LEAST_VARIANCE or more), and w_i is the
    item's weight in the objective. It is drawn along p, so that every range of p is in the sample. For estimator
    `difference`. Needs a bank. After `extend` a sample is drawn from the items that remain.
    """

    name = "neyman_irt"

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, objective: str = "accuracy"
    ) -> None:
        super().__init__(pool, budget, bank)
        self.weight = pool.weights[objective_row(objective, pool.targets)]

    def select(self, rng: np.random.Generator) -> Positions:
        """The random pilot in round 1; then items with unequal chances, as a sample that is added to the record.

        The pilot has `n_pilot` random items of each group, the sample `n_after_pilot`. The chances of an item to be
        drawn into the sample are proportional to w sqrt(p (1 - p)), at most 1: w is the item's weight in the objective,
        and p the bank's probability of a right response at the ability that the responses so far show.
        """
        if self.round == 1:
            # random, as items have a random order in their stratum; the strata of this policy are the groups
            return self.first_of_strata(self.n_pilot)

        probability = response_probabilities(self.record, self.bank)  # p
        # p (1 - p) counts as LEAST_VARIANCE at least: an item with nearly no chance to be drawn would have too much
        # weight if it is drawn and its response is a surprise
        size = self.weight * np.sqrt(np.maximum(probability * (1 - probability), LEAST_VARIANCE))
        inclusion = np.ones(self.pool.n_items)  # stays 1 for items evaluated before, which are not part of the sample
        positions_by_group = [NO_ITEMS]  # one array at least, for np.concatenate
        for group, n in enumerate(self.n_after_pilot):
            items = np.flatnonzero((self.pool.group == group) & ~self.record.evaluated)
            if len(items):
                inclusion[items] = capped_inclusion(size[items], int(n))
                is_drawn = systematic(inclusion[items], rng, along=probability[items])  # evenly over all p
                positions_by_group.append(items[is_drawn])

        positions = np.concatenate(positions_by_group)
        self.record.samples.append(Sample(self.record.evaluated.copy(), inclusion, probability))
        self.record.chosen_by_responses[positions] = True  # the ability, which chose them, is from the responses
        return positions


class DefensiveIrt(_WithBank):
    """`defensive_irt`: as `neyman_irt`, but only as far as the responses of a random part show that it helps.

    The first 30 % of the budget (RANDOM_SHARE) are random items. They show the ability, and how well the bank predicts
    this model. The other items of every group are drawn without replacement, along p, with chances

        π_i proportional to w_i (λ + (1 - λ) s_i),   s_i proportional to sqrt(p_i (1 - p_i)), with mean 1

    which is a mixture with equal chances (defensive importance sampling: Hesterberg 1995, Technometrics 37:185). Of the
    λ 0, 0.25, 0.5, 0.75 and 1 it takes the one with the least D + se(D). D, the change in variance against equal
    chances, is the mean of w_i² e_i² (1 / π_i - 1 / equal chance) over the random items; e_i are the residuals of
    m = a + b p (see estimator `regression`), and one more response of the largest variance, 1/4, is counted, with the
    mean factor of the remaining items. λ = 1 has D = 0. So the bank decides only as far as it predicted the random
    responses, and with a bank that does not fit this model the sample stays random. For estimator `regression`. Needs
    a bank.

    After `extend` items are drawn from those that remain, with λ by the same random items.
    """

    name = "defensive_irt"

    def __init__(
        self, pool: Pool, budget: int | float, bank: ItemBank | None = None, *, objective: str = "accuracy"
    ) -> None:
        super().__init__(pool, budget, bank)
        self.weight = pool.weights[objective_row(objective, pool.targets)]
        self.n_pilot = np.maximum(np.round(RANDOM_SHARE * self.n_total).astype(np.int64), 1)
        self.n_after_pilot = self.n_total - self.n_pilot

    def select(self, rng: np.random.Generator) -> Positions:
        """Random items in round 1; then items whose chances to be drawn are the best mixture of equal and unequal ones.

        Each of the two samples is added to the record, with the items' chances to be drawn and, in the second, the
        bank's probabilities p of a right response, by which they were chosen.
        """
        pool = self.pool
        evaluated_before = self.record.evaluated.copy()
        if self.round == 1:  # n_pilot random items of each group
            inclusion = (self.n_pilot / pool.group_sizes.sum(axis=1))[pool.group]
            self.record.samples.append(Sample(evaluated_before, inclusion, probability=None))
            return self.first_of_strata(self.n_pilot)
        if evaluated_before.all():  # no items remain, whose chances `_best_mixture` would need
            return NO_ITEMS

        probability = response_probabilities(self.record, self.bank)  # p
        inclusion, variance_ratio = self._best_mixture(probability)
        positions_by_group = [NO_ITEMS]  # one array at least, for np.concatenate
        for group in range(pool.n_groups):
            items = np.flatnonzero((pool.group == group) & ~evaluated_before)
            if len(items):
                is_drawn = systematic(inclusion[items], rng, along=probability[items])  # evenly over all p
                positions_by_group.append(items[is_drawn])

        positions = np.concatenate(positions_by_group)
        self.record.samples.append(Sample(evaluated_before, inclusion, probability, variance_ratio))
        self.record.chosen_by_responses[positions] = True
        return positions

    def _best_mixture(self, chance: PerItem) -> tuple[PerItem, float]:
        """The chances π of the remaining items to be drawn, and the variance expected, relative to equal chances.

        π is proportional to w (λ + (1 - λ) s), where w is an item's weight in the objective and s, with mean 1, is
        proportional to sqrt(p (1 - p)). λ = 1 gives equal chances. λ is the one of 1 and EQUAL_SHARES with the least
        D + se(D). D is the expected change of the variance against equal chances: the mean of
        w² e² (1 / π - 1 / π₁) over the items of the random first round, with π₁ the equal chances and e an item's
        residual, which shows how well the bank predicts. se(D) is added so that unequal chances need evidence that they
        help.

        The relative variance is 1 + D / (the variance with equal chances). It is at least LEAST_FORESEEN, because
        estimates divide by it.

        chance: p, the bank's probability of a right response to every item; not π, the chance to be drawn.
        The returned π are over all items of the pool; those of items evaluated so far are 1.
        """
        is_random = self.record.evaluated & ~self.record.chosen_by_responses  # the items of the first round
        is_remaining = ~self.record.evaluated
        squared_residual = self._residuals(chance, is_random) ** 2  # e²: response minus a line a + b p
        n_random = len(squared_residual)

        def mean_with_one_more(factor: PerItem) -> float:
            """Mean of factor e² over the random items and one further response.

            The further response has e² = 1/4 and the mean factor of the remaining items. 1/4 is the largest variance of
            a response: random items without surprises do not prove that there are none.
            """
            observed = factor[is_random] * squared_residual
            return (observed.sum() + 1 / 4 * factor[is_remaining].mean()) / (n_random + 1)

        # with equal chances the variance is the mean of w² e² (1 / π - 1)
        spread_of_item = np.sqrt(np.maximum(chance * (1 - chance), LEAST_VARIANCE))
        equal_inclusion = self._inclusion(np.ones_like(spread_of_item), is_remaining)
        equal_variance = mean_with_one_more(self.weight**2 * (1 / equal_inclusion - 1))

        # λ with the least D + se(D); equal chances, λ = 1, have D = 0
        best_inclusion, best_criterion, variance_ratio = equal_inclusion, 0.0, 1.0
        for equal_share in EQUAL_SHARES:
            scaled_spread = spread_of_item / spread_of_item[is_remaining].mean()  # s, with mean 1
            mixed_size = equal_share + (1 - equal_share) * scaled_spread
            inclusion = self._inclusion(mixed_size, is_remaining)
            change = self.weight**2 * (1 / inclusion - 1 / equal_inclusion)
            mean_change = mean_with_one_more(change)  # D
            se_of_change = (change[is_random] * squared_residual).std() / np.sqrt(n_random)
            criterion = mean_change + se_of_change
            if criterion < best_criterion:
                best_inclusion = inclusion
                best_criterion = criterion
                variance_ratio = 1 + mean_change / equal_variance

        inclusion_of_remaining = np.where(is_remaining, best_inclusion, 1.0)
        return inclusion_of_remaining, max(variance_ratio, LEAST_FORESEEN)

    def _residuals(self, chance: PerItem, is_random: Marks) -> Float[np.ndarray, " random"]:
        """Residuals e of the random items: response minus a + b p, the line that estimator `regression` would fit.

        a and b are fitted to the responses to the random items. AGREEING further responses that equal p, spread over
        the pool, are counted beside them, so that few responses do not lead the line far from p.

        chance:    the bank's probability p of every item.
        is_random: which items of the pool are the random ones.
        """
        columns = np.stack([np.ones_like(chance), chance])  # 2 x items
        random_columns = columns[:, is_random]
        residual = self.record.right[is_random] - chance[is_random]

        # least squares of the residuals from p: further responses that equal p have residual 0
        normal_matrix = random_columns @ random_columns.T + AGREEING * columns @ columns.T / len(chance)
        line = np.linalg.lstsq(normal_matrix, random_columns @ residual)[0]  # singular where chances are all equal
        return residual - line @ random_columns

    def _inclusion(self, size: PerItem, is_remaining: Marks) -> PerItem:
        """The chance of each item to be drawn: proportional to w_i `size`, at most 1, where w_i is the item's weight.

        Over a group's remaining items the chances sum to the number of items to draw, `n_after_pilot[group]`. Items
        evaluated so far get the chances that they would have if they remained, because `_best_mixture` judges chances
        by the responses to such items. The result is over all items of the pool.
        """
        pool = self.pool
        weighted_size = self.weight * size
        total = np.bincount(pool.group[is_remaining], weights=weighted_size[is_remaining], minlength=pool.n_groups)
        # infinite for a group without remaining items, whose chances are then 1
        scale = np.divide(self.n_after_pilot, total, out=np.full(pool.n_groups, np.inf), where=total > 0)
        inclusion = scale[pool.group] * weighted_size

        # groups in which some items would pass 1: these are drawn for certain, which changes the scale of the others
        for group in np.unique(pool.group[(inclusion > 1) & is_remaining]):
            is_of_group = pool.group == group
            items = np.flatnonzero(is_of_group & is_remaining)
            # these chances sum to n_after_pilot
            capped = capped_inclusion(weighted_size[items], int(self.n_after_pilot[group]))
            # the smallest of them is not capped, unless all are: divided by weighted_size it is the new scale, with
            # which the evaluated items of the group get their chances
            least = int(capped.argmin())
            inclusion[is_of_group] = weighted_size[is_of_group] * capped[least] / weighted_size[items[least]]
            inclusion[items] = capped
        return np.minimum(inclusion, 1.0)


class FisherCat(_WithBank):
    """`fisher_cat`: a random twentieth of the budget, then rounds of the most informative items.

    A round has those items of every group with the largest information at the ability so far, P'² / (P (1 - P)). It is
    for ranking models: the items that it selects are not like the pool, so estimates of accuracy rely on the bank
    alone. Needs a bank.

    batch:       items per round, of all groups together; None: four rounds per budget. Large ones keep a GPU busy. With
                 400 of 4,000 ImageNet images (20 models, seed 0, experiments/progressive/ability.py) batches of 1, 16,
                 64 and 256 give mean standard errors of 0.0837, 0.0837, 0.0838 and 0.0842, and abilities that differ
                 from those on all images by 0.16, 0.16, 0.18 and 0.22 (root mean square).
    randomesque: items of a round are drawn at random among so many times as many of the most informative ones, so that
                 tests of equally able models differ (Kingsbury & Zara 1989); 1: always the most informative. In the
                 same experiment, with 5 and batches of 64, two tests share 46 instead of 59 % of their images, at a
                 standard error of 0.0913.
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
        """Set the sizes of pilot and batches.

        batch:       items of each round after the pilot, of all groups together; None: four rounds per budget.
        randomesque: items are drawn at random among this many times as many of the most informative ones; 1: the most
                     informative ones are taken.
        Raises FcaError as other policies with a bank, and for a batch or randomesque below 1.
        """
        super().__init__(pool, budget, bank)
        for option, value in (("batch", batch), ("randomesque", randomesque)):
            if value is not None and value < 1:
                raise FcaError(option, value, "1 or more", "raise it")
        self.batch, self.randomesque = batch, randomesque

    @property
    def rounds(self) -> int:  # type: ignore[override]  # depends on how many items the budget has after the pilot
        """The pilot and, after it, as many rounds as batches."""
        if self.batch is None:
            return 1 + ROUNDS_PER_BUDGET
        n_after_pilot = int(self.n_after_pilot.sum())
        return 1 + -(-n_after_pilot // self.batch)  # rounded up

    def select(self, rng: np.random.Generator) -> Positions:
        """The random pilot in round 1; then a batch of the items that are most informative about the ability so far.

        With `randomesque` r above 1, a batch is drawn at random among the r times as many most informative items, so
        that tests of equally able models differ.
        """
        if self.round == 1:
            return self.first_of_strata(self.n_pilot)  # random items of each group

        # the number of items of each group in this round. All rounds after the pilot have `n_after_pilot` together, so
        # it is the number that is due by the end of this round, less the number that was due before it
        rounds_after_pilot = self.rounds - 1
        due_by_end = self.n_after_pilot * (self.round - 1) // rounds_after_pilot
        due_before = self.n_after_pilot * (self.round - 2) // rounds_after_pilot
        group = self.pool.group
        n_of_round = (due_by_end - due_before)[group]  # for each item, the number of its group

        ability, _ = ability_of(self.record, self.bank)
        # -1 puts items evaluated before behind all others; information is never negative
        item_information = np.where(self.record.evaluated, -1.0, information(self.bank, ability))
        most_informative_first = np.lexsort((-item_information, group))  # group by group
        rank = ranks_within(group, most_informative_first)
        if self.randomesque > 1:  # rank the candidates at random, and before all other items
            is_candidate = (rank < self.randomesque * n_of_round) & ~self.record.evaluated
            random_order = np.where(is_candidate, rng.random(len(group)), 1.0)
            rank = ranks_within(group, np.lexsort((random_order, group)))

        positions = np.flatnonzero((rank < n_of_round) & ~self.record.evaluated)
        self.record.chosen_by_responses[positions] = True
        return positions


def check_budget(budget: int | float) -> float:
    """The share unchanged, in (0, 1]; raises FcaError outside.

    >>> check_budget(0.25)
    0.25
    """
    if not 0 < budget <= 1:
        raise FcaError("budget", budget, "above 0, at most 1: a share of the pool", "0.25 evaluates a quarter")
    return float(budget)


def share_of_groups(pool: Pool, budget: int | float) -> PerGroup:
    """How many items of every group a budget (a share of the pool) allows, rounded."""
    return np.round(check_budget(budget) * pool.group_sizes.sum(axis=1)).astype(np.int64)


def check_room(pool: Pool, needed: Levels) -> None:
    """Raise FcaError where a session has fewer items of a level than a policy may evaluate there.

    needed: the largest number of items that the policy may evaluate in a session, by level.
    """
    too_small = np.argwhere(pool.sizes < needed)  # a row (session, level) for each case
    if not len(too_small):
        return
    session, level = too_small[0]
    items = f"{LEVELS[level]} items evaluated of session {pool.session_names[session]}"
    allowed = f"at most {pool.sizes[session, level]}, all it has"
    step = f"lower k or the budget, or leave out such sessions ({len(np.unique(too_small[:, 0]))})"
    raise FcaError(items, int(needed[level]), allowed, step)


def check_bank(policy: str, pool: Pool, bank: ItemBank | None) -> ItemBank:
    """The bank unchanged. Raises FcaError if it is None, or has another number of items than the pool.

    policy: the policy or estimator that needs it, for the message.
    """
    if bank is None:
        step = "fit one on other models' answers (fca.studies.irt.stats.fit_irt(...).bank), or take what needs none"
        raise FcaError("bank", None, f"an item bank: {policy} needs one", step)
    if len(bank.difficulty) != pool.n_items:
        step = "take the bank of these items, in their order"
        raise FcaError("items of the bank", len(bank.difficulty), f"{pool.n_items}, those of the pool", step)
    return bank


def check_mapping(mapping: Mapping) -> Int[np.ndarray, "10 3"]:
    """The mapping as an array of points (0 to 9) x levels.

    Raises FcaError unless it has ten lines of three numbers from 0 with sum SECOND_ROUND_ITEMS; it names the line.

    >>> check_mapping(MAPPING_Q)[7]
    array([0, 2, 3])
    """
    if len(mapping) != 10:
        raise FcaError("lines of the mapping", len(mapping), "10, for 0 to 9 points", "add or remove lines")
    for points, line in enumerate(mapping):
        if len(line) != 3 or min(line) < 0 or sum(line) != SECOND_ROUND_ITEMS:
            allowed = f"three counts (easy, medium, hard) from 0, with sum {SECOND_ROUND_ITEMS}"
            raise FcaError(f"mapping after {points} points", tuple(line), allowed, "mend this line")
    return np.array(mapping, dtype=np.int64)


def objective_row(objective: str, targets: Sequence[str] = TARGETS) -> int:
    """Position of the objective, on which a policy spends its budget, among the targets.

    Raises FcaError for another name.

    >>> objective_row("score")
    1
    """
    check_choice("objective", objective, targets)
    return targets.index(objective)


def spread(n: int, size: Float[np.ndarray, " levels"], least: Levels, most: Levels) -> Levels:
    """Distribute n items over levels: returns the whole number of items of each level, from `least` to `most`.

    The numbers are about proportional to `size`, the weight of a level times the standard deviation of a response to
    it. Beyond `least`, one item after the other goes to the level where size² / (k (k + 1)) is largest, k being the
    number of items that the level has so far. In whole numbers this minimises the variance Σ size² / k (Wright 2012).

    least: 1 or more for every level, as a level without a response has no estimate.

    >>> spread(10, np.array([1.0, 2.0, 4.0]), np.array([1, 1, 1]), np.array([12, 12, 4]))
    array([2, 4, 4])
    """
    # a candidate is one more item of a level that has k; its gain falls with k, so all can be ranked at once
    k_by_level = [np.arange(low, high) for low, high in zip(least, most, strict=True)]
    level = np.repeat(np.arange(len(size)), [len(numbers) for numbers in k_by_level])  # of each candidate
    k = np.concatenate(k_by_level)
    gain = size[level] ** 2 / (k * (k + 1))
    n_beyond_least = n - int(least.sum())
    best = np.argsort(-gain, kind="stable")[:n_beyond_least]
    return least + np.bincount(level[best], minlength=len(size))


def ability_of(record: Record, bank: ItemBank) -> tuple[float, float]:
    """A model's ability on the scale of the bank, and its standard error, from the responses so far."""
    parameters_of_evaluated = [values[record.evaluated] for values in bank[1:]]  # the first field is the model
    evaluated_items = ItemBank(bank.model, *parameters_of_evaluated)
    responses = record.right[record.evaluated][None].astype(float)  # 1 x evaluated
    scored = score_ability(responses, evaluated_items)
    return float(scored.ability[0]), float(scored.ability_se[0])


def response_probabilities(record: Record, bank: ItemBank) -> PerItem:
    """The bank's probability of a right response to every item, at the ability so far."""
    ability, _ = ability_of(record, bank)
    return bank.probability(np.array([ability]))[0]
