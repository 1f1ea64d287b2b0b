"""The finite pool of a test (every item has a level, a session and a group), its record, and how samples are drawn.

Session: a (class, attribute), within which an adaptive test goes up or down in level. Group: an attribute, which has
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
    """The items of a test by level, session and group, as codes from 0.

    Sessions are numbered so that those of a group follow each other.

    level, session, group:      the codes of every item.
    session_group:              the code of every session's group, ascending.
    sizes:                      number of items of each session by level.
    session_names, group_names: the names behind the codes.
    levels:                     the names of the levels: easy, medium and hard, or `all` for items without levels.
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
    def n_items(self) -> int:
        """Number of items."""
        return len(self.level)

    @property
    def n_groups(self) -> int:
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
        """Weight w_i of every item in each target of its group: the level's weight over its number of items there."""
        return self.level_weights[:, self.level] / self.group_sizes[self.group, self.level]

    def by_stratum(self, values: Marks) -> Int[np.ndarray, "sessions levels"]:
        """How many items of each session and level are marked."""
        return np.bincount(self.stratum[values], minlength=self.sizes.size).reshape(-1, len(self.levels))

    def by_group(self, values: Shaped[np.ndarray, "sessions ..."]) -> Shaped[np.ndarray, "groups ..."]:
        """Sums over the sessions of each group; sessions of a group follow each other."""
        starts = np.searchsorted(self.session_group, np.arange(self.n_groups))
        return np.add.reduceat(values, starts, axis=0)

    def truth(self, correct: Marks) -> Float[np.ndarray, "groups targets"]:
        """Every target of every group when every item is evaluated.

        >>> pool = make_pool(np.array([0, 1, 2]), np.zeros(3, int), np.zeros(3, int))
        >>> pool.truth(np.array([True, True, False])).round(3)
        array([[0.667, 0.429]])
        """
        return (self.by_group(self.by_stratum(correct)) / self.group_sizes) @ self.level_weights.T

    def check_levels(self, what: str, name: str, others: str) -> None:
        """Raise FcaError where a policy or estimator needs levels, and the items have none.

        what: the setting, such as "policy".    name: its value.    others: the values that need no levels.
        """
        if not self.has_levels:
            raise FcaError(what, name, f"{others}: these items have no levels", "take one of these")


class Sample(NamedTuple):
    """How a sample was drawn at random from the items that were not evaluated before; all arrays are over the pool.

    evaluated_before: whether an item was evaluated before (in a pilot round, or by an earlier sample), so that it could
                      not be drawn.
    inclusion:        the chance of every other item to be drawn, given what was evaluated before.
    probability:      the predicted probability of a right response, by what was known before; None without bank.
    variance_ratio:   the variance of the estimate that is expected before the draw, relative to the variance for the
                      same number of items drawn with equal chances.
    """

    evaluated_before: Marks
    inclusion: PerItem
    probability: PerItem | None
    variance_ratio: float = 1.0


class Record:
    """The items that a test has evaluated, the responses to them, and how the policy chose them.

    evaluated, right:    for every item of the pool, whether it was evaluated, and whether the response was right (False
                         if it was not evaluated).
    chosen_by_responses: whether an item was chosen because of earlier responses in its own session, or because of the
                         model's ability on the scale of an item bank.
    samples:             the samples in the order of drawing, each from the items that remained; empty after a policy
                         under which the items' chances to be drawn are unknown.
    """

    def __init__(self, items: int) -> None:
        self.evaluated = np.zeros(items, dtype=bool)
        self.right = np.zeros(items, dtype=bool)
        self.chosen_by_responses = np.zeros(items, dtype=bool)
        self.samples: list[Sample] = []

    @property
    def random_sample(self) -> Record:
        """The record without items that were chosen by responses.

        Within a session and level, the items that are left are a simple random sample.
        """
        sample = Record(len(self.evaluated))
        sample.evaluated = self.evaluated & ~self.chosen_by_responses
        sample.right = self.right & ~self.chosen_by_responses
        return sample

    def add(self, positions: Integer[np.ndarray, " evaluated"], correct: Bool[np.ndarray, " evaluated"]) -> None:
        """Record the responses to the items at these positions. Raises ValueError for one that was evaluated before."""
        n_before = int(self.evaluated.sum())
        self.evaluated[positions] = True
        if int(self.evaluated.sum()) < n_before + len(positions):  # some were evaluated before, or are given twice
            raise ValueError("an item was answered twice: a test draws without replacement")
        self.right[positions] = correct


def make_pool(
    levels: Integer[np.ndarray, " items"] | None, sessions: Names, groups: Shaped[np.ndarray, " items"] | None = None
) -> Pool:
    """The pool of a test: its items in the given order, with their levels, sessions and groups as codes from 0.

    levels:   0 easy, 1 medium, 2 hard; None: the items have no levels.
    sessions: name of each item's session, a class and an attribute, in which an adaptive test goes up or down in level;
              without levels it may be a class.
    groups:   name of each item's group, an attribute, for which a test estimates the accuracy; it is the same for all
              items of a session. None: all items are in one group, `all`.
    Raises FcaError without items, for another level, and if a session lacks a level or belongs to two groups.

    >>> make_pool(np.array([2, 1, 0, 0]), np.array(["dog"] * 4), np.array(["size"] * 4)).sizes
    array([[2, 1, 1]])
    >>> pool = make_pool(None, np.array(["dog", "cat", "dog"]))
    >>> pool.sizes.tolist(), pool.levels, pool.truth(np.array([True, True, False])).round(3)
    ([[1], [2]], ('all',), array([[0.667]]))
    """
    if not len(sessions):
        raise FcaError("items of the pool", 0, "1 or more", "add items")
    level_names = (ALL,) if levels is None else LEVELS
    if levels is None:
        levels = np.zeros(len(sessions), dtype=np.int64)
    if groups is None:
        groups = np.full(len(sessions), ALL)
    invalid_levels = levels[~np.isin(levels, range(len(level_names)))]
    if len(invalid_levels):
        raise FcaError("level of an item", int(invalid_levels[0]), "0 (easy), 1 (medium), 2 (hard)", "code levels so")

    group_names, group = np.unique(groups, return_inverse=True)
    session, session_names, session_group = _numbered_sessions(sessions, group, group_names)

    number_of_levels = len(level_names)
    cells = number_of_levels * session + levels  # code of each item's (session, level)
    sizes = np.bincount(cells, minlength=number_of_levels * len(session_names)).reshape(-1, number_of_levels)
    empty_cells = np.argwhere(sizes == 0)
    if len(empty_cells):
        empty_session, empty_level = empty_cells[0]
        items = f"{LEVELS[empty_level]} items of session {session_names[empty_session]}"
        step = f"add such items or leave the session out ({len(empty_cells)} such gaps)"
        raise FcaError(items, 0, "1 or more", step)

    return Pool(
        level=levels.astype(np.int64),
        session=session,
        group=group,
        session_group=session_group,
        sizes=sizes,
        session_names=session_names,
        group_names=group_names,
        levels=level_names,
    )


def _numbered_sessions(
    sessions: Names, group: Codes, group_names: Shaped[np.ndarray, " groups"]
) -> tuple[Codes, Shaped[np.ndarray, " sessions"], Int[np.ndarray, " sessions"]]:
    """The number of each item's session, and the name and the group of each session, in the order of these numbers.

    Sessions of a group follow each other, which `Pool.by_group` needs for its sums.

    sessions: the name of each item's session.    group: the code of each item's group, a position in `group_names`.
    Raises FcaError if a session belongs to two groups.
    """
    # Sorted names, the first item of each session, and for each item the number of its session in the order of names.
    session_names, first_item, number_by_name = np.unique(sessions, return_index=True, return_inverse=True)
    group_of_session = group[first_item]
    in_another_group = np.flatnonzero(group != group_of_session[number_by_name])
    if len(in_another_group):
        item = in_another_group[0]
        two_groups = f"{group_names[group[item]]} and {group_names[group_of_session[number_by_name[item]]]}"
        step = "name sessions by class and attribute together"
        raise FcaError(f"groups of session {sessions[item]}", two_groups, "one", step)

    order = np.argsort(group_of_session, kind="stable")  # by group, within a group by name
    new_number = np.argsort(order)  # the inverse permutation
    return new_number[number_by_name], session_names[order], group_of_session[order]


def ranks_within(stratum: Codes, order: Codes) -> Codes:
    """Rank of every item within its stratum, from 0, along `order`.

    stratum: code of each item's stratum.
    order:   positions of all items, sorted by stratum first.

    >>> ranks_within(np.array([0, 1, 0]), np.array([2, 0, 1]))
    array([1, 0, 0])
    """
    sizes = np.bincount(stratum)
    start_of_stratum = np.cumsum(sizes) - sizes  # its place along `order`
    start_along_order = np.repeat(start_of_stratum, sizes)  # for each place along `order`, where its stratum starts
    ranks = np.empty(len(stratum), dtype=np.int64)
    ranks[order] = np.arange(len(stratum)) - start_along_order
    return ranks


def shuffled_ranks(stratum: Integer[np.ndarray, " items"], rng: np.random.Generator) -> Codes:
    """Rank of every item in a random order of its stratum, from 0.

    The items of a stratum with ranks below k are a simple random sample of k of them.

    >>> ranks = shuffled_ranks(np.array([0, 1, 0, 1, 1]), np.random.default_rng(0))
    >>> sorted(ranks[[0, 2]].tolist()), sorted(ranks[[1, 3, 4]].tolist())
    ([0, 1], [0, 1, 2])
    """
    random_order = np.argsort(stratum + rng.random(len(stratum)))  # in [0, 1), so that strata follow each other
    return ranks_within(stratum, random_order)


def capped_inclusion(size: PerItem, n: int) -> PerItem:
    """The chance of each item to be drawn into a sample of n items: proportional to its `size`, but at most 1.

    The chances sum to n. An item whose chance would be above 1 is certain to be drawn; the other items share what is
    left of n.
    Raises ValueError if n is not from 0 to the number of items, and for a size that is not finite and above 0.

    >>> capped_inclusion(np.array([8.0, 1.0, 1.0, 2.0]), 2)
    array([1.  , 0.25, 0.25, 0.5 ])
    """
    if not 0 <= n <= len(size):
        raise ValueError(f"n={n} of {len(size)} items")
    if not (np.isfinite(size) & (size > 0)).all():
        raise ValueError("a size that is not finite and above 0: an item of size 0 could never be drawn")
    is_certain = np.zeros(len(size), dtype=bool)
    while True:
        n_left = n - is_certain.sum()  # for the items that are not certain to be drawn
        total_size = max(size[~is_certain].sum(), np.finfo(float).tiny)  # if all items are certain: not to divide by 0
        chance = np.where(is_certain, 1.0, size * n_left / total_size)
        if (chance <= 1).all():
            return chance
        is_certain |= chance > 1  # raises the chances of the others, which may then pass 1


def systematic(inclusion: PerItem, rng: np.random.Generator, along: PerItem | None = None) -> Marks:
    """Draw a sample of fixed size that includes every item with exactly its chance (Madow 1949).

    inclusion: the chance of each item; their sum is the size of the sample.
    along:     a number of each item; items are ordered by it, those with equal numbers at random. None: at random.
    Returns whether each item is drawn.

    The items' chances are laid end to end as segments of a line; an item is drawn if one of the points u, u + 1, ...
    lies in its segment, with u uniform in [0, 1). In random order the chances of pairs of items are close to those of
    conditional Poisson sampling (Hartley & Rao 1962). If items are ordered `along` a number, the sample covers every
    range of this number evenly; the estimate then varies less if the residuals depend on the number.

    >>> int(systematic(np.array([1.0, 0.5, 0.5]), np.random.default_rng(0)).sum())
    2
    """
    order = rng.permutation(len(inclusion))
    if along is not None:
        order = order[np.argsort(along[order], kind="stable")]

    ends = np.cumsum(inclusion[order])  # of the segments
    n = round(ends[-1])  # the sum is a whole number but for rounding
    boundaries = np.concatenate([[0.0], ends * (n / ends[-1])])  # items + 1: each item's segment begins where one ends
    points_so_far = np.floor(boundaries + rng.random())  # grows over a segment if a point lies in it
    points_so_far[-1] = points_so_far[0] + n  # by rounding, the last point could be missed

    is_drawn = np.empty(len(inclusion), dtype=bool)
    is_drawn[order] = np.diff(points_so_far) > 0
    return is_drawn


def fixed_size_variance(
    residual: Float[np.ndarray, "targets drawn"], inclusion: Float[np.ndarray, " drawn"]
) -> Float[np.ndarray, " targets"]:
    """Estimated variance of Σ residual / inclusion over a sample of fixed size with unequal chances.

        m / (m - 1) Σ (1 - π_i) (e_i / π_i - B)²,   B = Σ (1 - π_i) e_i / π_i / Σ (1 - π_i)

    e_i: the residual of a drawn item (response minus prediction, weighted), for each target, such as the accuracy.
    π_i: its inclusion, the chance with which it was drawn.

    Sums are over the m items with π < 1. It is the Horvitz-Thompson variance with Hájek's (1964) approximation of the
    chances of pairs. For equal chances this is exact: (1 - f) s² N² / m of a simple random sample, a fraction f of N
    items. The variance is 0 if m is 0 (all items were certain to be drawn), and NaN if m is 1.

    >>> fixed_size_variance(np.array([[1.0, 0.0, 1.0, 0.0]]), np.full(4, 0.5))
    array([2.66666667])
    """
    is_uncertain = inclusion < 1
    m = int(is_uncertain.sum())
    if not m:
        return np.zeros(len(residual))
    if m == 1:
        return np.full(len(residual), np.nan)

    weight = 1 - inclusion[is_uncertain]  # 1 - π
    scaled = residual[:, is_uncertain] / inclusion[is_uncertain]  # e / π, targets x m
    centre = scaled @ weight / weight.sum()  # B of each target
    return m / (m - 1) * ((scaled - centre[:, None]) ** 2 @ weight)
