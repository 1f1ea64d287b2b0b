"""Which labels look wrong, from who answered what: scores of every item, higher = more suspect.

A wrong label shows in that classifiers agree on another class. Low discrimination and low feasibility (Sharma et al.,
Do models see corruption as we see?, 2023, section 3.1) say only that an item does not order the subjects well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.stats import rankdata

RULES = {  # by what each calls suspect
    "modal_wrong_share": "share of subjects that gave the same wrong class, the most frequent one",
    "modal_wrong_minus_top1": "that share minus the share of subjects that were right",
    "low_top1": "few subjects were right",
    "low_p_max": "low chance of success of the ablest subject: guess + (feasibility - guess) * sigmoid(...)",
    "low_item_rest": "low correlation of the item with the subjects' accuracy on all others; 0 where all were alike",
    "low_discrimination_feasibility": "low discrimination and low feasibility, by the sum of their ranks",
}


class ModalWrong(NamedTuple):
    """The most frequent wrong answer to each item.

    answer: its class; the first of several that are as frequent; -1 where no wrong class is known.
    share:  of the subjects that were asked, those that gave it; NaN where none was asked.
    """

    answer: Integer[np.ndarray, " items"]
    share: Float[np.ndarray, " items"]


def modal_wrong(
    correct: Float[np.ndarray, "subjects items"], pred: Integer[np.ndarray, "subjects items"]
) -> ModalWrong:
    """The wrong class that most subjects agree on, and how many do.

    correct: 1 right, 0 wrong, NaN not asked.    pred: the class that was answered; -1 if it has no number, and then a
    wrong answer agrees with no other.

    >>> modal_wrong(np.array([[1.0, 0], [0, 0], [0, 0], [0, 0]]), np.array([[0, 2], [2, 2], [2, 2], [1, 1]]))
    ModalWrong(answer=array([2, 2]), share=array([0.5 , 0.75]))
    """
    said = np.sort(np.where((correct == 0) & (pred >= 0), pred, -1), axis=0)
    items = said.shape[1]
    answer, most, run = np.full(items, -1), np.zeros(items, dtype=np.int64), np.zeros(items, dtype=np.int64)
    before = np.full(items, -1)
    for row in said:  # equal answers stand below each other
        run = np.where(row == before, run + 1, 1)
        longer = (row >= 0) & (run > most)
        answer[longer], most[longer] = row[longer], run[longer]
        before = row
    return ModalWrong(answer, _share(most, correct))


def item_top1(correct: Float[np.ndarray, "subjects items"]) -> Float[np.ndarray, " items"]:
    """Share of right answers to each item among the subjects that were asked; NaN where none was.

    >>> item_top1(np.array([[1.0, 0.0], [0.0, np.nan]]))
    array([0.5, 0. ])
    """
    return _share(np.nansum(correct, axis=0), correct)


def _share(
    counts: Float[np.ndarray, " items"] | Integer[np.ndarray, " items"], correct: Float[np.ndarray, "subjects items"]
) -> Float[np.ndarray, " items"]:
    asked = (~np.isnan(correct)).sum(axis=0)
    return np.where(asked > 0, counts / np.maximum(asked, 1), np.nan)


def item_rest(correct: Float[np.ndarray, "subjects items"]) -> Float[np.ndarray, " items"]:
    """Correlation over subjects of the answer to an item with the accuracy on all other items (Pearson).

    NaN where it is undefined: all who were asked were right, or all wrong, or all are as accurate elsewhere.

    >>> item_rest(np.array([[1.0, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 1]])).round(3)
    array([ 0.,  0., nan])
    """
    asked = ~np.isnan(correct)
    right = np.where(asked, correct, 0.0)
    others = np.maximum(asked.sum(axis=1, keepdims=True) - asked, 1)
    rest = (right.sum(axis=1, keepdims=True) - right) / others
    n = np.maximum(asked.sum(axis=0), 1)
    x, y = (np.where(asked, values - (values * asked).sum(axis=0) / n, 0.0) for values in (right, rest))
    spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    return np.where(spread > _ROUNDING, (x * y).sum(axis=0) / np.maximum(spread, _ROUNDING), np.nan)


def suspicion(
    correct: Float[np.ndarray, "subjects items"],
    pred: Integer[np.ndarray, "subjects items"],
    discrimination: Float[np.ndarray, " items"] | None = None,
    feasibility: Float[np.ndarray, " items"] | None = None,
    p_max: Float[np.ndarray, " items"] | None = None,
) -> dict[str, Float[np.ndarray, " items"]]:
    """Every score of RULES, higher = more suspect; those of item response theory only where its parameters are given.

    discrimination, feasibility, p_max: of a fit with an upper asymptote (3pl-upper); equal values share a rank.

    >>> scores = suspicion(np.array([[1.0, 0], [1, 0]]), np.array([[0, 1], [0, 1]]), p_max=np.array([0.9, 0.1]))
    >>> {rule: score.tolist() for rule, score in scores.items()}["low_p_max"]
    [-0.9, -0.1]
    """
    agreed, top1 = modal_wrong(correct, pred).share, item_top1(correct)
    scores = {"modal_wrong_share": agreed, "modal_wrong_minus_top1": agreed - top1, "low_top1": -top1}
    if p_max is not None:
        scores["low_p_max"] = -p_max
    scores["low_item_rest"] = -np.nan_to_num(item_rest(correct))  # its covariance is 0 where all are alike
    if discrimination is not None and feasibility is not None:
        ranks = rankdata(-discrimination) + rankdata(-feasibility)
        scores["low_discrimination_feasibility"] = ranks.astype(np.float64)
    return scores


_ROUNDING = 1e-12
