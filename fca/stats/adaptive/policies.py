"""What to ask next, for one model: `ask` gives a round's items over all sessions at once, `tell` takes the answers.

    while len(positions := policy.ask(rng)):
        policy.tell(positions, run_the_model_on(positions))

After the last round `ask` gives no positions, and `policy.record` holds what an estimator reads. `budget` is the share
of the pool that may be asked; `again` allows as many once more, so that a test can go on until it knows enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, Integer

from fca.nouns import FcaError
from fca.stats.adaptive.pool import LEVELS, Pool, Record
from fca.stats.adaptive.sampling import shuffled_ranks
from fca.stats.irt import ItemBank


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
