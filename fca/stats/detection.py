"""How well a score finds the few items that are marked: AUC, recall when a share is flagged, precision of the first k.

Items of equal score are taken in random order, and what is told is the expectation over it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

from fca.stats.intervals import LEVEL, wilson

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
