"""The finite pool that a test is about: every item has a level, a session and a group; what is asked, and what it says.

Session: a (class, attribute), within which an adaptive test goes up or down in level. Group: an attribute, for which a
number is wanted. Both targets of a group are weighted sums over its items, Σ w_i y_i:

    accuracy = (easy + medium + hard) / 3,   score = (easy + 2 medium + 4 hard) / 7

of its level accuracies (Huang et al. 2025, arXiv 2503.13058, section 5.3), each over all items of that level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Shaped

from fca.nouns import FcaError

LEVELS = ("easy", "medium", "hard")
TARGETS = ("accuracy", "score")
POINTS = np.array([1, 2, 4])  # for a right answer by level
LEVEL_WEIGHTS = np.stack([np.full(3, 1 / 3), POINTS / POINTS.sum()])  # (targets, levels)


@dataclass(frozen=True)
class Pool:
    """Items by level, session and group, as codes. Sessions are numbered so that those of a group follow each other.

    level, session, group: codes of every item.    session_group: the group of every session.
    sizes: how many items each session has by level.    session_names, group_names: what the codes stand for.
    """

    level: Int[np.ndarray, " items"]
    session: Int[np.ndarray, " items"]
    group: Int[np.ndarray, " items"]
    session_group: Int[np.ndarray, " sessions"]
    sizes: Int[np.ndarray, "sessions 3"]
    session_names: Shaped[np.ndarray, " sessions"]
    group_names: Shaped[np.ndarray, " groups"]

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.level)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.group_names)

    @cached_property
    def stratum(self) -> Int[np.ndarray, " items"]:
        """Code of every item's (session, level): 3 session + level."""
        return np.asarray(3 * self.session + self.level)

    @cached_property
    def group_sizes(self) -> Int[np.ndarray, "groups 3"]:
        """How many items each group has by level."""
        return self.by_group(self.sizes)

    @cached_property
    def weights(self) -> Float[np.ndarray, "targets items"]:
        """w_i of both targets: the weight of its level over the items of that level in its group."""
        return np.asarray(LEVEL_WEIGHTS[:, self.level] / self.group_sizes[self.group, self.level])

    def by_stratum(self, values: Shaped[np.ndarray, " items"]) -> Int[np.ndarray, "sessions 3"]:
        """How many items of each session and level are marked (values: booleans)."""
        return np.bincount(self.stratum[values], minlength=self.sizes.size).reshape(-1, 3)

    def by_group(self, values: Shaped[np.ndarray, "sessions ..."]) -> Shaped[np.ndarray, "groups ..."]:
        """Sums over the sessions of each group."""
        starts = np.searchsorted(self.session_group, np.arange(self.groups))
        return np.asarray(np.add.reduceat(values, starts, axis=0))

    def truth(self, correct: Bool[np.ndarray, " items"]) -> Float[np.ndarray, "groups targets"]:
        """Both targets of every group when every item is asked.

        >>> pool = make_pool(np.array([0, 1, 2]), np.zeros(3, int), np.zeros(3, int))
        >>> pool.truth(np.array([True, True, False])).round(3)
        array([[0.667, 0.429]])
        """
        right = self.by_group(self.by_stratum(correct)) / self.group_sizes
        return np.asarray(right @ LEVEL_WEIGHTS.T)


class Sample(NamedTuple):
    """A sample that a test drew and went on from; its fields are those of the record at that time."""

    asked: Bool[np.ndarray, " items"]
    certain: Bool[np.ndarray, " items"]
    inclusion: Float[np.ndarray, " items"]
    chance: Float[np.ndarray, " items"]


class Record:
    """What a test has asked and heard, and what its policy knows about how items were chosen.

    asked, right: of every item (right is False where not asked).
    certain:      asked in a pilot round, and so no part of the sample that `inclusion` is about.
    inclusion:    chance of every other item to be asked, given the pilot; None where the policy cannot say.
    chance:       the probability that each answer is right, as foreseen before the sample was drawn; None without bank.
    earlier:      samples before that one, each drawn from what was left then.
    """

    def __init__(self, items: int) -> None:
        self.asked = np.zeros(items, dtype=bool)
        self.right = np.zeros(items, dtype=bool)
        self.certain = np.zeros(items, dtype=bool)
        self.inclusion: Float[np.ndarray, " items"] | None = None
        self.chance: Float[np.ndarray, " items"] | None = None
        self.earlier: list[Sample] = []

    def keep_sample(self) -> None:
        """Put the sample as it is among the earlier ones, before another is drawn from what is left."""
        if self.inclusion is not None and self.chance is not None:
            self.earlier.append(Sample(self.asked.copy(), self.certain, self.inclusion, self.chance))

    def add(self, positions: Integer[np.ndarray, " asked"], correct: Bool[np.ndarray, " asked"]) -> None:
        """Answers to the items at these positions, each asked for the first time."""
        before = int(self.asked.sum())
        self.asked[positions] = True
        if int(self.asked.sum()) < before + len(positions):
            raise ValueError("an item was answered twice: a test draws without replacement")
        self.right[positions] = correct


def make_pool(
    levels: Integer[np.ndarray, " items"],
    sessions: Shaped[np.ndarray, " items"],
    groups: Shaped[np.ndarray, " items"],
) -> Pool:
    """Codes and counts of a pool; raises FcaError where a session lacks a level or lies in two groups.

    levels: 0 easy, 1 medium, 2 hard.    sessions, groups: any names.

    >>> make_pool(np.array([2, 1, 0, 0]), np.array(["dog"] * 4), np.array(["size"] * 4)).sizes
    array([[2, 1, 1]])
    """
    if not len(levels):
        raise FcaError("items of the pool", 0, "1 or more", "add items")
    if not np.isin(levels, [0, 1, 2]).all():
        wrong = levels[~np.isin(levels, [0, 1, 2])][0]
        raise FcaError("level of an item", int(wrong), "0 (easy), 1 (medium), 2 (hard)", "code levels so")
    session_names, first, session = np.unique(sessions, return_index=True, return_inverse=True)
    group_names, group = np.unique(groups, return_inverse=True)
    stray = np.flatnonzero(group != group[first][session])
    if len(stray):
        where = f"{groups[stray[0]]} and {groups[first[session[stray[0]]]]}"
        step = "name sessions by class and attribute together"
        raise FcaError(f"groups of session {sessions[stray[0]]}", where, "one", step)
    order = np.argsort(group[first], kind="stable")
    place = np.argsort(order)
    session = place[session].astype(np.int64)
    sizes = np.bincount(3 * session + levels, minlength=3 * len(order)).reshape(-1, 3)
    lacking = np.argwhere(sizes == 0)
    if len(lacking):
        name, level = session_names[order[lacking[0][0]]], LEVELS[lacking[0][1]]
        step = f"add such items or leave the session out ({len(lacking)} such gaps)"
        raise FcaError(f"{level} items of session {name}", 0, "1 or more", step)
    return Pool(
        levels.astype(np.int64),
        session,
        group.astype(np.int64),
        group[first][order].astype(np.int64),
        sizes,
        session_names[order],
        group_names,
    )
