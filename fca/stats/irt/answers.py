"""Answers made ready for fitting: items with the same answers are one item that counts several times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Answers:
    """The likelihood's whole input.

    right:  share of right answers among the items of a group; 0 where not asked.
    asked:  which cells hold an answer; None when all do.
    count:  items in each group.    group: the group of each item.
    """

    right: Float[np.ndarray, "subjects groups"]
    asked: Bool[np.ndarray, "subjects groups"] | None
    count: Float[np.ndarray, " groups"]
    group: Int[np.ndarray, " items"]


def prepare(responses: Float[np.ndarray, "subjects items"], one_slope: bool = False) -> Answers:
    """Group items whose parameters must come out equal; nothing is approximated.

    Items with the same answers have the same posterior. With one slope for all (1PL), an item's number of right answers
    among the subjects that were asked says all about it (sufficiency; Rasch 1960), and the answers enter a subject's
    likelihood only as a sum, so that such items share their mean answers.

    >>> prepare(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).count
    array([1., 2.])
    """
    absent = np.isnan(responses)
    holes = bool(absent.any())
    right = np.where(absent, 0.0, responses) if holes else responses
    key = right.sum(axis=0).astype("<u4").view("u1").reshape(-1, 4) if one_slope else _bits(right == 1)
    if holes:
        key = np.concatenate([key, _bits(absent)], axis=1)
    words = np.ascontiguousarray(key).view(f"V{key.shape[1]}").ravel()
    _, first, group, count = np.unique(words, return_index=True, return_inverse=True, return_counts=True)
    asked = ~absent[:, first] if holes else None
    if one_slope:
        order = np.argsort(group, kind="stable")
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        means = np.add.reduceat(right[:, order], starts, axis=1) / count
    else:
        means = np.ascontiguousarray(right[:, first], dtype=np.float64)
    return Answers(means, asked, count.astype(float), group)


def _bits(cells: Bool[np.ndarray, "subjects items"]) -> np.ndarray:
    return np.packbits(cells, axis=0).T
