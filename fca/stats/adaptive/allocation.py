"""More items of the levels where answers vary, as a first round shows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from fca.nouns import FcaError
from fca.stats.adaptive.gre import FIRST
from fca.stats.adaptive.policies import check_budget, check_room
from fca.stats.adaptive.pool import LEVEL_WEIGHTS, TARGETS, Pool, Record
from fca.stats.adaptive.sampling import shuffled_ranks
from fca.stats.irt import ItemBank


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
