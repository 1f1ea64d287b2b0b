"""Which labels look wrong, from who answered what: scores of every item, higher = more suspect.

A wrong label shows in that classifiers agree on another class. Low discrimination and low feasibility (Sharma et al.,
Do models see corruption as we see?, 2023, section 3.1) say only that an item does not order the subjects well."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

from fca.stats.intervals import LEVEL, wilson

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

# How well a score finds the few items that are marked: AUC, recall when a share is flagged, precision of the first k.
#
# Items of equal score are taken in random order, and what is told is the expectation over it.


Score = Float[np.ndarray, " items"]
Marked = Bool[np.ndarray, " items"]


class Rate(NamedTuple):
    """A fraction and its 95 % interval; NaN: not to be known."""

    value: float
    low: float
    high: float


def auc(score: Score, marked: Marked, level: float = LEVEL) -> Rate:
    """Chance that a marked item has a higher score than an unmarked one; equal scores count half (Mann and Whitney).

    Interval: normal on the logit scale, with the variance of DeLong et al. (1988, Biometrics 44:837)

        var = var over marked of the share of unmarked below each / marked + the same, exchanged / unmarked

    which sees both kinds of items as drawn. With one marked or unmarked item, or all pairs in order, it says nothing of
    another draw: NaN. Raises ValueError unless some items are marked and some are not.

    >>> round(auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])).value, 2)
    0.75
    """
    _check(score, marked)
    ranks, above, below = rankdata(score), int(marked.sum()), int((~marked).sum())
    of_marked = (ranks[marked] - rankdata(score[marked])) / below  # share of the unmarked below each
    of_unmarked = 1 - (ranks[~marked] - rankdata(score[~marked])) / above
    value = float(of_marked.mean())
    if min(above, below) < 2 or not 0 < value < 1:
        return Rate(value, float("nan"), float("nan"))
    variance = of_marked.var(ddof=1) / above + of_unmarked.var(ddof=1) / below
    half = float(ndtri(0.5 + level / 2)) * float(np.sqrt(variance)) / (value * (1 - value))
    return Rate(value, float(expit(logit(value) - half)), float(expit(logit(value) + half)))


def recall_at(score: Score, marked: Marked, share: float, level: float = LEVEL) -> Rate:
    """Share of the marked items among the `share` of all items with the highest scores; by chance it is `share`.

    Interval: Wilson's over the marked items, with the cut taken as given. Raises ValueError as auc does.

    >>> recall_at(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), 0.5).value
    0.5
    """
    _check(score, marked)
    found, n = float(_found(score, marked, np.array([share * len(score)]))[0]), int(marked.sum())
    return Rate(found / n, *wilson(round(found), n, level))


def precision_at(score: Score, marked: Marked, k: int, level: float = LEVEL) -> Rate:
    """Share of marked items among the k with the highest scores; by chance it is that among all items.

    Interval: Wilson's over the k items. Raises ValueError as auc does, and unless 1 <= k <= items.

    >>> precision_at(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), 3).value
    0.6666666666666666
    """
    _check(score, marked)
    if not 1 <= k <= len(score):
        raise ValueError(f"k={k} is outside [1, {len(score)}], the number of items")
    found = float(_found(score, marked, np.array([float(k)]))[0])
    return Rate(found / k, *wilson(round(found), k, level))


def recall_curve(score: Score, marked: Marked, shares: Float[np.ndarray, " shares"]) -> Float[np.ndarray, " shares"]:
    """Recall at each share of items flagged (see recall_at), without intervals.

    >>> recall_curve(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), np.array([0.0, 0.25, 1.0]))
    array([0. , 0.5, 1. ])
    """
    _check(score, marked)
    recall: Float[np.ndarray, " shares"] = _found(score, marked, shares * len(score)) / marked.sum()
    return recall


def _found(score: Score, marked: Marked, flagged: Float[np.ndarray, " cuts"]) -> Float[np.ndarray, " cuts"]:
    """Expected marked items among the first `flagged`: within items of equal score they lie evenly."""
    _, group = np.unique(-score, return_inverse=True)
    items, found = (np.concatenate([[0.0], np.bincount(group, w).cumsum()]) for w in (None, marked.astype(np.float64)))
    expected: Float[np.ndarray, " cuts"] = np.interp(flagged, items, found)
    return expected


def _check(score: Score, marked: Marked) -> None:
    if np.isnan(score).any():
        raise ValueError(f"{int(np.isnan(score).sum())} of {len(score)} scores are NaN; leave those items out")
    if not 0 < marked.sum() < len(marked):
        raise ValueError(f"{int(marked.sum())} of {len(marked)} items are marked; it takes some of either kind")
