"""The finite pool of a test (every item has a level, a session and a group), its record, and how samples are drawn.

Session: a (class, attribute), within which an adaptive test goes up or down in level. Group: an attribute, which gets
one estimate for each target. Both targets of a group are weighted sums over its items, Σ w_i y_i:

    accuracy = (easy + medium + hard) / 3,   score = (easy + 2 medium + 4 hard) / 7

of its level accuracies (Huang et al. 2025, arXiv 2503.13058, section 5.3), each over all items of that level. Items
without levels are all of one level, and have one target, the plain accuracy. Samples are drawn without replacement: in
shuffled order within strata, or with unequal chances of known size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Shaped

from fca.types import FcaError

LEVELS = ("easy", "medium", "hard")
TARGETS = ("accuracy", "score")
POINTS = np.array([1, 2, 4])  # for a right response by level
LEVEL_WEIGHTS = np.stack([np.full(3, 1 / 3), POINTS / POINTS.sum()])  # (targets, levels)
ALL = "all"  # the one level (and group) of items that have none

PerItem = Float[np.ndarray, " items"]
Codes = Int[np.ndarray, " items"]
Marks = Bool[np.ndarray, " items"]
Names = Shaped[np.ndarray, " items"]


@dataclass(frozen=True)
class Pool:
    """Items by level, session and group, as codes. Sessions are numbered so that those of a group follow each other.

    level, session, group: codes of every item.    session_group: the group of every session.
    sizes: how many items each session has by level.    session_names, group_names: the names behind the codes.
    levels: easy, medium and hard; or one, `all`, of items without levels.
    """

    level: Codes
    session: Codes
    group: Codes
    session_group: Int[np.ndarray, " sessions"]
    sizes: Int[np.ndarray, "sessions levels"]
    session_names: Shaped[np.ndarray, " sessions"]
    group_names: Shaped[np.ndarray, " groups"]
    levels: tuple[str, ...] = LEVELS

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.level)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.group_names)

    @property
    def has_levels(self) -> bool:
        """Whether items are easy, medium or hard."""
        return self.levels == LEVELS

    @property
    def targets(self) -> tuple[str, ...]:
        """What can be estimated: accuracy and score, or without levels the accuracy alone."""
        return TARGETS if self.has_levels else TARGETS[:1]

    @property
    def level_weights(self) -> Float[np.ndarray, "targets levels"]:
        """Weight of each level in each target."""
        return LEVEL_WEIGHTS if self.has_levels else np.ones((1, 1))

    @cached_property
    def stratum(self) -> Codes:
        """Code of every item's (session, level): of three levels, 3 session + level."""
        return len(self.levels) * self.session + self.level

    @cached_property
    def group_sizes(self) -> Int[np.ndarray, "groups levels"]:
        """How many items each group has by level."""
        return self.by_group(self.sizes)

    @cached_property
    def weights(self) -> Float[np.ndarray, "targets items"]:
        """w_i of every target: the weight of its level over the items of that level in its group."""
        return self.level_weights[:, self.level] / self.group_sizes[self.group, self.level]

    def by_stratum(self, values: Marks) -> Int[np.ndarray, "sessions levels"]:
        """How many items of each session and level are marked."""
        return np.bincount(self.stratum[values], minlength=self.sizes.size).reshape(-1, len(self.levels))

    def by_group(self, values: Shaped[np.ndarray, "sessions ..."]) -> Shaped[np.ndarray, "groups ..."]:
        """Sums over the sessions of each group."""
        starts = np.searchsorted(self.session_group, np.arange(self.groups))
        return np.add.reduceat(values, starts, axis=0)

    def truth(self, correct: Marks) -> Float[np.ndarray, "groups targets"]:
        """Every target of every group when every item is asked.

        >>> pool = make_pool(np.array([0, 1, 2]), np.zeros(3, int), np.zeros(3, int))
        >>> pool.truth(np.array([True, True, False])).round(3)
        array([[0.667, 0.429]])
        """
        return (self.by_group(self.by_stratum(correct)) / self.group_sizes) @ self.level_weights.T

    def check_levels(self, what: str, name: str, others: str) -> None:
        """Raises FcaError where a policy or estimator needs levels that the items do not have.

        what: policy or estimator.    others: those that need none.
        """
        if not self.has_levels:
            raise FcaError(what, name, f"{others}: these items have no levels", "take one of these")


class Sample(NamedTuple):
    """Items drawn at random from those not asked before.

    certain:   asked before (in a pilot round, or by an earlier sample), and so no part of this sample.
    inclusion: chance of every other item to be asked, given those.
    chance:    predicted probability of a right response, before the sample was drawn; None without bank.
    variance:  foreseen before it was drawn, over that of as many items with equal chances.
    """

    certain: Marks
    inclusion: PerItem
    chance: PerItem | None
    variance: float = 1.0


class Record:
    """The items asked and the responses so far, and how the policy chose the items.

    asked, right: of every item (right is False where not asked).
    led:          items that responses led to: asked because of what their own session, or an item bank, had shown.
    samples:      those drawn one after the other, each from the items left then; none where chances are unknown.
    """

    def __init__(self, items: int) -> None:
        self.asked, self.right, self.led = np.zeros((3, items), dtype=bool)
        self.samples: list[Sample] = []

    @property
    def blind(self) -> Record:
        """The part that was asked whatever the responses: within a session and level, a simple random sample."""
        part = Record(len(self.asked))
        part.asked, part.right = self.asked & ~self.led, self.right & ~self.led
        return part

    def add(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        """Responses to the items at these positions, each asked for the first time."""
        before = int(self.asked.sum())
        self.asked[positions] = True
        if int(self.asked.sum()) < before + len(positions):
            raise ValueError("an item was answered twice: a test draws without replacement")
        self.right[positions] = correct


def make_pool(
    levels: Integer[np.ndarray, " items"] | None, sessions: Names, groups: Shaped[np.ndarray, " items"] | None = None
) -> Pool:
    """Codes and counts of a pool; raises FcaError where a session lacks a level or lies in two groups.

    levels: 0 easy, 1 medium, 2 hard; None: the items have no levels.
    sessions, groups: any names, without levels e.g. classes. groups None: one group, `all`.

    >>> make_pool(np.array([2, 1, 0, 0]), np.array(["dog"] * 4), np.array(["size"] * 4)).sizes
    array([[2, 1, 1]])
    >>> pool = make_pool(None, np.array(["dog", "cat", "dog"]))
    >>> pool.sizes.tolist(), pool.levels, pool.truth(np.array([True, True, False])).round(3)
    ([[1], [2]], ('all',), array([[0.667]]))
    """
    if not len(sessions):
        raise FcaError("items of the pool", 0, "1 or more", "add items")
    kinds = (ALL,) if levels is None else LEVELS
    levels = np.zeros(len(sessions), dtype=np.int64) if levels is None else levels
    groups = np.full(len(sessions), ALL) if groups is None else groups
    wrong = levels[~np.isin(levels, range(len(kinds)))]
    if len(wrong):
        raise FcaError("level of an item", int(wrong[0]), "0 (easy), 1 (medium), 2 (hard)", "code levels so")
    session_names, first, session = np.unique(sessions, return_index=True, return_inverse=True)
    group_names, group = np.unique(groups, return_inverse=True)
    stray = np.flatnonzero(group != group[first][session])
    if len(stray):
        where = f"{groups[stray[0]]} and {groups[first[session[stray[0]]]]}"
        step = "name sessions by class and attribute together"
        raise FcaError(f"groups of session {sessions[stray[0]]}", where, "one", step)
    order = np.argsort(group[first], kind="stable")
    session = np.argsort(order)[session]
    cells = len(kinds) * session + levels
    sizes = np.bincount(cells, minlength=len(kinds) * len(order)).reshape(-1, len(kinds))
    lacking = np.argwhere(sizes == 0)
    if len(lacking):
        name, level = session_names[order[lacking[0][0]]], LEVELS[lacking[0][1]]
        step = f"add such items or leave the session out ({len(lacking)} such gaps)"
        raise FcaError(f"{level} items of session {name}", 0, "1 or more", step)
    codes = levels.astype(np.int64), session, group, group[first][order]
    return Pool(*codes, sizes, session_names[order], group_names, kinds)


def ranks_within(stratum: Codes, order: Codes) -> Codes:
    """Place of every item among those of its stratum, from 0, along an `order` in which strata follow each other.

    >>> ranks_within(np.array([0, 1, 0]), np.array([2, 0, 1]))
    array([1, 0, 0])
    """
    sizes = np.bincount(stratum)
    ranks = np.empty(len(stratum), dtype=np.int64)
    ranks[order] = np.arange(len(stratum)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def shuffled_ranks(stratum: Integer[np.ndarray, " items"], rng: np.random.Generator) -> Codes:
    """Place of every item in a random order of its stratum, from 0: those below k are a simple random sample of k.

    >>> ranks = shuffled_ranks(np.array([0, 1, 0, 1, 1]), np.random.default_rng(0))
    >>> sorted(ranks[[0, 2]].tolist()), sorted(ranks[[1, 3, 4]].tolist())
    ([0, 1], [0, 1, 2])
    """
    return ranks_within(stratum, np.argsort(stratum + rng.random(len(stratum))))


def capped_inclusion(size: PerItem, n: int) -> PerItem:
    """Chances proportional to `size`, at most 1, that sum to n; items that would pass 1 are taken for certain.

    >>> capped_inclusion(np.array([8.0, 1.0, 1.0, 2.0]), 2)
    array([1.  , 0.25, 0.25, 0.5 ])
    """
    if not 0 <= n <= len(size):
        raise ValueError(f"n={n} of {len(size)} items")
    if (size <= 0).any():
        raise ValueError("an item of size 0 could never be drawn")
    full = np.zeros(len(size), dtype=bool)
    while True:
        chance = np.where(full, 1.0, size * (n - full.sum()) / max(size[~full].sum(), np.finfo(float).tiny))
        if (chance <= 1).all() or full.sum() == n:
            return np.minimum(chance, 1.0)
        full |= chance > 1


def systematic(inclusion: PerItem, rng: np.random.Generator, along: PerItem | None = None) -> Marks:
    """A sample of fixed size in which every item is with exactly its chance (Madow 1949).

    The items' chances are laid end to end; an item is drawn if a point u, u + 1, ... falls into its stretch. In random
    order joint chances are close to those of conditional Poisson sampling (Hartley & Rao 1962); ordered `along` a
    number, the sample covers every range of it evenly, and varies less where residuals depend on it.

    >>> int(systematic(np.array([1.0, 0.5, 0.5]), np.random.default_rng(0)).sum())
    2
    """
    order = rng.permutation(len(inclusion))
    if along is not None:
        order = order[np.argsort(along[order], kind="stable")]
    ends = np.cumsum(inclusion[order])
    n = round(ends[-1])
    points = np.floor(np.concatenate([[0.0], ends * (n / ends[-1])]) + rng.random())
    points[-1] = points[0] + n  # rounding must not cost the last item
    drawn = np.empty(len(inclusion), dtype=bool)
    drawn[order] = np.diff(points) > 0
    return drawn


def fixed_size_variance(
    residual: Float[np.ndarray, "targets drawn"], inclusion: Float[np.ndarray, " drawn"]
) -> Float[np.ndarray, " targets"]:
    """Estimated variance of Σ residual / inclusion over a sample of fixed size with unequal chances.

        m / (m - 1) Σ (1 - π_i) (e_i / π_i - B)²,   B = Σ (1 - π_i) e_i / π_i / Σ (1 - π_i)

    over the m items with π < 1: the Horvitz-Thompson variance with Hájek's (1964) approximation of joint chances, which
    is exact for equal ones (m / π is then the pool: the simple random sample's (1 - f) s² N² / m).

    >>> fixed_size_variance(np.array([[1.0, 0.0, 1.0, 0.0]]), np.full(4, 0.5))
    array([2.66666667])
    """
    open_ = inclusion < 1
    m = int(open_.sum())
    if not m:
        return np.zeros(len(residual))
    if m == 1:
        return np.full(len(residual), np.nan)
    free = 1 - inclusion[open_]
    scaled = residual[:, open_] / inclusion[open_]
    centre = scaled @ free / free.sum()
    return m / (m - 1) * ((scaled - centre[:, None]) ** 2 @ free)
