"""Two rounds a session, as in the GRE: the points of the first decide the levels of the second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int, Integer

from fca.nouns import FcaError
from fca.stats.adaptive.policies import check_budget, check_room
from fca.stats.adaptive.pool import POINTS, Pool, Record
from fca.stats.adaptive.sampling import shuffled_ranks
from fca.stats.irt import ItemBank

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
