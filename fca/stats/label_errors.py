"""Scores of every item for a wrong label (higher = more suspect), from responses, and how well a score finds errors.

If a label is wrong, classifiers agree on another class. Low discrimination and low feasibility (Sharma et al., Do
models see corruption as we see?, 2023, section 3.1) show only that an item does not order the subjects well.

A score is judged by items marked as errors: AUC, recall when a share is flagged, precision of the first k. Items of
equal score are taken in random order; the results are expectations over that order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import expit, logit, ndtri

from fca.stats.intervals import LEVEL, NO_INTERVAL, Estimated, wilson

Score = Float[np.ndarray, " items"]
Marked = Bool[np.ndarray, " items"]
Matrix = Float[np.ndarray, "subjects items"]
Predictions = Integer[np.ndarray, "subjects items"]
Shares = Float[np.ndarray, " shares"]

ROUNDING = 1e-12
RULES = {  # with what makes an item suspect
    "modal_wrong_share": "share of subjects that gave the same wrong class, the most frequent one",
    "modal_wrong_minus_top1": "that share minus the share of subjects that were right",
    "low_top1": "few subjects were right",
    "low_p_max": "low chance of success of the ablest subject: guess + (feasibility - guess) * sigmoid(...)",
    "low_item_rest": "low correlation of the item with the subjects' accuracy on all others; 0 where all were alike",
    "low_discrimination_feasibility": "low discrimination and low feasibility, by the sum of their ranks",
}


class ModalWrong(NamedTuple):
    """The most frequent wrong prediction for each item.

    answer: its class; the first of several that are as frequent; -1 where no wrong class is known.
    share:  share of it among the responses; NaN without responses.
    """

    answer: Integer[np.ndarray, " items"]
    share: Score


def modal_wrong(correct: Matrix, pred: Predictions) -> ModalWrong:
    """The wrong class that most subjects agree on, and the share of subjects that predict it.

    correct: 1 right, 0 wrong, NaN missing.    pred: the predicted class; -1 if it has no number, and then a wrong
    prediction agrees with no other.

    >>> modal_wrong(np.array([[1.0, 0], [0, 0], [0, 0], [0, 0]]), np.array([[0, 2], [2, 2], [2, 2], [1, 1]]))
    ModalWrong(answer=array([2, 2]), share=array([0.5 , 0.75]))
    """
    wrong = np.sort(np.where((correct == 0) & (pred >= 0), pred, -1), axis=0)
    answer, before, most, run = (np.full(wrong.shape[1], start) for start in (-1, -1, 0, 0))
    for row in wrong:  # equal predictions are adjacent
        run = np.where(row == before, run + 1, 1)
        longer = (row >= 0) & (run > most)
        answer[longer], most[longer] = row[longer], run[longer]
        before = row
    return ModalWrong(answer, _share(most, correct))


def item_top1(correct: Matrix) -> Score:
    """Share of right responses to each item; NaN without responses.

    >>> item_top1(np.array([[1.0, 0.0], [0.0, np.nan]]))
    array([0.5, 0. ])
    """
    return _share(np.nansum(correct, axis=0), correct)


def _share(counts: Score | Integer[np.ndarray, " items"], correct: Matrix) -> Score:
    present = (~np.isnan(correct)).sum(axis=0)
    return np.where(present > 0, counts / np.maximum(present, 1), np.nan)


def item_rest(correct: Matrix) -> Score:
    """Correlation over subjects of the response to an item with the accuracy on all other items (Pearson).

    NaN where it is undefined: all responses are right, or all wrong, or all subjects are equally accurate elsewhere.

    >>> item_rest(np.array([[1.0, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 1]])).round(3)
    array([ 0.,  0., nan])
    """
    present = ~np.isnan(correct)
    right = np.where(present, correct, 0.0)
    others = np.maximum(present.sum(axis=1, keepdims=True) - present, 1)
    rest = (right.sum(axis=1, keepdims=True) - right) / others
    n = np.maximum(present.sum(axis=0), 1)
    x, y = (np.where(present, values - (values * present).sum(axis=0) / n, 0.0) for values in (right, rest))
    spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    return np.where(spread > ROUNDING, (x * y).sum(axis=0) / np.maximum(spread, ROUNDING), np.nan)


def suspicion(
    correct: Matrix,
    pred: Predictions,
    discrimination: Score | None = None,
    feasibility: Score | None = None,
    p_max: Score | None = None,
) -> dict[str, Score]:
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
        scores["low_discrimination_feasibility"] = low_in_both(discrimination, feasibility)
    return scores


def low_in_both(discrimination: Score, feasibility: Score) -> Score:
    """Low discrimination and low feasibility, by the sum of their ranks; equal values share a rank.

    >>> low_in_both(np.array([1.0, 2.0]), np.array([0.9, 0.9])).tolist()
    [3.5, 2.5]
    """
    from scipy.stats import rankdata  # here and below: half a second to import

    return (rankdata(-discrimination) + rankdata(-feasibility)).astype(np.float64)


class Suspected(NamedTuple):
    """Images whose label other images contradict.

    suggested: the class that they suggest; -1: the label stands.    margin: its probability minus that of the label.
    """

    suggested: Integer[np.ndarray, " items"]
    margin: Score


def confident_learning(
    probabilities: Float[np.ndarray, "items classes"], label: Integer[np.ndarray, " items"]
) -> Suspected:
    """Which labels are wrong, from probabilities that were made without them (Northcutt et al. 2021, arXiv:1911.00068).

    A class k is claimed by an image with p_k at or above the mean of p_k over the images labelled k (eqs. 1 and 2). An
    image is suspected if, of the classes that it claims, the likeliest is another than its label.

    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.85, 0.15]])
    >>> confident_learning(p, np.array([0, 0, 1, 1])).suggested
    array([-1, -1, -1,  0])
    """
    classes = probabilities.shape[1]
    usual = np.array([probabilities[label == k, k].mean() if (label == k).any() else np.inf for k in range(classes)])
    claimed = np.where(probabilities >= usual, probabilities, -np.inf)
    likeliest, own = claimed.argmax(axis=1), probabilities[np.arange(len(label)), label]
    suspect = np.isfinite(claimed.max(axis=1)) & (likeliest != label)
    margin = probabilities[np.arange(len(label)), likeliest] - own
    return Suspected(np.where(suspect, likeliest, -1), np.where(suspect, margin, np.nan))


def auc(score: Score, marked: Marked) -> Estimated:
    """Chance that a marked item has a higher score than an unmarked one; equal scores count half (Mann and Whitney).

    Interval: normal on the logit scale, with the variance of DeLong et al. (1988, Biometrics 44:837)

        var = var over marked of the share of unmarked below each / marked + the same, exchanged / unmarked

    which treats both kinds of items as drawn. NaN with one marked or unmarked item, or all pairs in order: nothing is
    known about another draw. Raises ValueError unless some items are marked and some are not.

    >>> round(auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])).value, 2)
    0.75
    """
    from scipy.stats import rankdata

    _check(score, marked)
    ranks, above, below = rankdata(score), int(marked.sum()), int((~marked).sum())
    of_marked = (ranks[marked] - rankdata(score[marked])) / below  # share of the unmarked below each
    of_unmarked = 1 - (ranks[~marked] - rankdata(score[~marked])) / above
    value = float(of_marked.mean())
    if min(above, below) < 2 or not 0 < value < 1:
        return Estimated(value, *NO_INTERVAL)
    variance = of_marked.var(ddof=1) / above + of_unmarked.var(ddof=1) / below
    half = ndtri(0.5 + LEVEL / 2) * np.sqrt(variance) / (value * (1 - value))
    return Estimated(value, float(expit(logit(value) - half)), float(expit(logit(value) + half)))


def recall_at(score: Score, marked: Marked, share: float) -> Estimated:
    """Share of the marked items among the `share` of all items with the highest scores; by chance it is `share`.

    Interval: Wilson's over the marked items, with the cut taken as given. Raises ValueError as auc does.

    >>> recall_at(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), 0.5).value
    0.5
    """
    [found], n = _found(score, marked, np.array([share * len(score)])).tolist(), int(marked.sum())
    return Estimated(found / n, *wilson(round(found), n))


def precision_at(score: Score, marked: Marked, k: int) -> Estimated:
    """Share of marked items among the k with the highest scores; by chance it is that among all items.

    Interval: Wilson's over the k items. Raises ValueError as auc does, and unless 1 <= k <= items.

    >>> precision_at(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), 3).value
    0.6666666666666666
    """
    if not 1 <= k <= len(score):
        raise ValueError(f"k={k} is outside [1, {len(score)}], the number of items")
    [found] = _found(score, marked, np.array([float(k)])).tolist()
    return Estimated(found / k, *wilson(round(found), k))


def recall_curve(score: Score, marked: Marked, shares: Shares) -> Shares:
    """Recall at each share of items flagged (see recall_at), without intervals.

    >>> recall_curve(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), np.array([0.0, 0.25, 1.0]))
    array([0. , 0.5, 1. ])
    """
    return _found(score, marked, shares * len(score)) / marked.sum()


def _found(score: Score, marked: Marked, flagged: Shares) -> Shares:
    """Expected marked items among the first `flagged`: they are spread evenly within items of equal score."""
    _check(score, marked)
    group = np.unique(-score, return_inverse=True)[1]
    items, found = (np.concatenate([[0.0], np.bincount(group, w).cumsum()]) for w in (None, marked.astype(np.float64)))
    return np.interp(flagged, items, found)


def _check(score: Score, marked: Marked) -> None:
    if np.isnan(score).any():
        raise ValueError(f"{int(np.isnan(score).sum())} of {len(score)} scores are NaN; leave those items out")
    if not 0 < marked.sum() < len(marked):
        raise ValueError(f"{int(marked.sum())} of {len(marked)} items are marked; it takes some of either kind")
