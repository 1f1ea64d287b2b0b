"""Scores of every item for a wrong label (higher = more suspect), from responses, and how well a score finds errors.

If a label is wrong, classifiers agree on another class. Low discrimination and low feasibility (Sharma et al., Do
models see corruption as we see?, 2023, section 3.1) show only that an item does not order the subjects well.

A score is judged by items marked as errors: AUC, recall when a share of items is flagged, precision of the first k.
Items of equal score are taken in random order; the results are expectations over that order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import expit, logit, ndtri

from fca.stats.intervals import NO_INTERVAL, UPPER_LEVEL, Estimated, wilson

Score = Float[np.ndarray, " items"]
Marked = Bool[np.ndarray, " items"]
Matrix = Float[np.ndarray, "subjects items"]
Predictions = Integer[np.ndarray, "subjects items"]
Shares = Float[np.ndarray, " shares"]

ROUNDING = 1e-12
RULES = {  # score -> what makes an item suspect
    "modal_wrong_share": "share of subjects that gave the same wrong class, the most frequent one",
    "modal_wrong_minus_top1": "that share minus the share of subjects that were right",
    "low_top1": "few subjects were right",
    "low_p_max": "low chance of success of the ablest subject: guess + (feasibility - guess) * sigmoid(...)",
    "low_item_rest": "low correlation of the item with the subjects' accuracy on all others; 0 where all were alike",
    "low_discrimination_feasibility": "low discrimination and low feasibility, by the sum of their ranks",
}


class ModalWrong(NamedTuple):
    """The most frequent wrong prediction for each item.

    answer: its class; the first of several equally frequent ones; -1 where no wrong class is known.
    share:  its share of the responses; NaN without responses.
    """

    answer: Integer[np.ndarray, " items"]
    share: Score


def modal_wrong(correct: Matrix, pred: Predictions) -> ModalWrong:
    """The most frequent wrong class among the predictions for each item, and its share of all responses to the item.

    correct: subjects x items: 1 right, 0 wrong, NaN for no response.
    pred:    number of the predicted class of each subject and item; -1 for no response, and for a class that is unknown
             or has no number. A wrong prediction of -1 counts as a response, but never as the most frequent class.

    >>> modal_wrong(np.array([[1.0, 0], [0, 0], [0, 0], [0, 0]]), np.array([[0, 2], [2, 2], [2, 2], [1, 1]]))
    ModalWrong(answer=array([2, 2]), share=array([0.5 , 0.75]))
    """
    is_known_and_wrong = (correct == 0) & (pred >= 0)
    sorted_wrong = np.sort(np.where(is_known_and_wrong, pred, -1), axis=0)

    # in a sorted column equal predictions are adjacent: the longest run of an item is its most frequent class
    items = correct.shape[1]
    modal_class = np.full(items, -1)
    longest_run = np.zeros(items, dtype=np.int64)
    run = np.zeros(items, dtype=np.int64)
    previous = np.full(items, -1)
    for predictions in sorted_wrong:
        run = np.where(predictions == previous, run + 1, 1)
        is_longer = (predictions >= 0) & (run > longest_run)
        modal_class[is_longer] = predictions[is_longer]
        longest_run[is_longer] = run[is_longer]
        previous = predictions
    return ModalWrong(modal_class, _share_of_responses(longest_run, correct))


def item_top1(correct: Matrix) -> Score:
    """Share of right responses to each item; NaN without responses.

    >>> item_top1(np.array([[1.0, 0.0], [0.0, np.nan]]))
    array([0.5, 0. ])
    """
    return _share_of_responses(np.nansum(correct, axis=0), correct)


def _share_of_responses(counts: Score | Integer[np.ndarray, " items"], correct: Matrix) -> Score:
    """Counts of responses to each item, divided by the number of its responses; NaN without any."""
    n_responses = (~np.isnan(correct)).sum(axis=0)
    return np.where(n_responses > 0, counts / np.maximum(n_responses, 1), np.nan)


def item_rest(correct: Matrix) -> Score:
    """Pearson's correlation, for each item, of the responses to it with the subjects' accuracies on all other items.

    correct: subjects x items: 1 right, 0 wrong, NaN for no response. Only subjects with a response to an item count.
    NaN where it is undefined: all responses are right, or all wrong, or all subjects are equally accurate elsewhere.

    >>> item_rest(np.array([[1.0, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 1]])).round(3)
    array([ 0.,  0., nan])
    """
    has_response = ~np.isnan(correct)  # subjects x items
    right = np.where(has_response, correct, 0.0)

    # accuracy of each subject on all items but one
    n_elsewhere = np.maximum(has_response.sum(axis=1, keepdims=True) - has_response, 1)
    accuracy_elsewhere = (right.sum(axis=1, keepdims=True) - right) / n_elsewhere  # subjects x items

    n_subjects = np.maximum(has_response.sum(axis=0), 1)

    def deviations(values: Matrix) -> Matrix:
        """Deviations from each item's mean over the subjects with a response; 0 for the other subjects."""
        mean = (values * has_response).sum(axis=0) / n_subjects
        return np.where(has_response, values - mean, 0.0)

    x = deviations(right)
    y = deviations(accuracy_elsewhere)
    sxy = (x * y).sum(axis=0)
    spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    return np.where(spread > ROUNDING, sxy / np.maximum(spread, ROUNDING), np.nan)


def suspicion(
    correct: Matrix,
    pred: Predictions,
    discrimination: Score | None = None,
    feasibility: Score | None = None,
    p_max: Score | None = None,
) -> dict[str, Score]:
    """Scores of every item for a wrong label, higher for a more suspect one: name of the score -> score of each item.

    modal_wrong_share:      share of the item's responses that are its most frequent wrong class.
    modal_wrong_minus_top1: that share minus the share of right responses.
    low_top1:               minus the share of right responses.
    low_p_max:              minus `p_max`.
    low_item_rest:          minus the correlation of the item's responses with the subjects' accuracy on all others.
    low_discrimination_feasibility: the rank of the item by low discrimination plus its rank by low feasibility.

    correct: subjects x items: 1 right, 0 wrong, NaN for no response.
    pred:    number of the predicted class of each subject and item; -1 as in `modal_wrong`.
    discrimination, feasibility: parameters of the items from a fit of item response theory with an upper asymptote
             (3pl-upper): the slope of an item, and the upper end of its chance of success.
    p_max:   chance of success of the ablest subject on each item, from the same fit.
    Scores whose arguments are None are left out.

    >>> scores = suspicion(np.array([[1.0, 0], [1, 0]]), np.array([[0, 1], [0, 1]]), p_max=np.array([0.9, 0.1]))
    >>> {rule: score.tolist() for rule, score in scores.items()}["low_p_max"]
    [-0.9, -0.1]
    """
    modal_share = modal_wrong(correct, pred).share
    top1 = item_top1(correct)
    scores = {
        "modal_wrong_share": modal_share,
        "modal_wrong_minus_top1": modal_share - top1,
        "low_top1": -top1,
    }
    if p_max is not None:
        scores["low_p_max"] = -p_max
    scores["low_item_rest"] = -np.nan_to_num(item_rest(correct))  # 0 where it is undefined: the covariance is 0 there
    if discrimination is not None and feasibility is not None:
        scores["low_discrimination_feasibility"] = low_in_both(discrimination, feasibility)
    return scores


def low_in_both(discrimination: Score, feasibility: Score) -> Score:
    """The rank of each item by low discrimination plus its rank by low feasibility; equal values share a rank.

    The item of the highest value has rank 1, so the sum is large where both are low.

    >>> low_in_both(np.array([1.0, 2.0]), np.array([0.9, 0.9])).tolist()
    [3.5, 2.5]
    """
    from scipy.stats import rankdata  # here and below: half a second to import

    return (rankdata(-discrimination) + rankdata(-feasibility)).astype(np.float64)


class Suspected(NamedTuple):
    """Images whose label other images contradict.

    suggested: the class that they suggest; -1: the label stands.
    margin:    its probability minus that of the label.
    """

    suggested: Integer[np.ndarray, " items"]
    margin: Score


def confident_learning(
    probabilities: Float[np.ndarray, "items classes"], label: Integer[np.ndarray, " items"]
) -> Suspected:
    """Which labels are probably wrong, by confident learning (Northcutt et al. 2021, arXiv:1911.00068).

    probabilities: p_k of each class k, predicted for every image by a model that was not fitted to this image.
    label:         number of each image's class.

    A class k is confident for an image if p_k is at or above the mean of p_k over the images labelled k (eqs. 1 and 2).
    An image is suspected if the most probable of its confident classes is not its label. Images without a confident
    class are not suspected. The result has, for each suspected image, this class and its probability minus that of the
    label; -1 and NaN for all others.

    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.85, 0.15]])
    >>> confident_learning(p, np.array([0, 0, 1, 1])).suggested
    array([-1, -1, -1,  0])
    """
    items, classes = probabilities.shape
    thresholds = np.full(classes, np.inf)  # a class that no image is labelled with is never confident
    for k in range(classes):
        is_labelled_k = label == k
        if is_labelled_k.any():
            thresholds[k] = probabilities[is_labelled_k, k].mean()

    confident = np.where(probabilities >= thresholds, probabilities, -np.inf)
    likeliest = confident.argmax(axis=1)
    has_confident_class = np.isfinite(confident.max(axis=1))
    is_suspect = has_confident_class & (likeliest != label)

    rows = np.arange(items)
    margin = probabilities[rows, likeliest] - probabilities[rows, label]
    return Suspected(np.where(is_suspect, likeliest, -1), np.where(is_suspect, margin, np.nan))


def auc(score: Score, marked: Marked) -> Estimated:
    """AUC: the probability that a marked item has a higher score than an unmarked one; equal scores count half.

    The 95 % interval is normal on the logit scale, with the variance of DeLong et al. (1988, Biometrics 44:837)

        var = var(B) / n_marked + var(A) / n_unmarked

    where B is, for each marked item, the share of unmarked items with a lower score, and A is, for each unmarked item,
    the share of marked items with a higher score. Marked and unmarked items both count as random draws.
    The interval is NaN with one marked or one unmarked item, and if the AUC is 0 or 1: the variance is then unknown.
    Raises ValueError for a score that is NaN, and unless some items are marked and some are not.

    >>> round(auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])).value, 2)
    0.75
    """
    from scipy.stats import rankdata

    _check(score, marked)
    ranks = rankdata(score)
    n_marked = int(marked.sum())
    n_unmarked = int((~marked).sum())

    # rank among all items - rank among items of the same kind = number of items of the other kind below
    unmarked_below = (ranks[marked] - rankdata(score[marked])) / n_unmarked
    marked_above = 1 - (ranks[~marked] - rankdata(score[~marked])) / n_marked
    value = float(unmarked_below.mean())
    if min(n_marked, n_unmarked) < 2 or not 0 < value < 1:
        return Estimated(value, *NO_INTERVAL)

    variance = unmarked_below.var(ddof=1) / n_marked + marked_above.var(ddof=1) / n_unmarked
    half_width = ndtri(UPPER_LEVEL) * np.sqrt(variance) / (value * (1 - value))  # on the logit scale
    low = float(expit(logit(value) - half_width))
    high = float(expit(logit(value) + half_width))
    return Estimated(value, low, high)


def recall_at(score: Score, marked: Marked, share: float) -> Estimated:
    """The share of the marked items that are flagged, if a `share` of all items with the highest scores is flagged.

    By chance it is `share`. The interval is Wilson's over the marked items, as if the lowest flagged score were fixed.
    Raises ValueError as auc does.

    >>> recall_at(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), 0.5).value
    0.5
    """
    n_found = float(_expected_marked(score, marked, np.array([share * len(score)]))[0])
    n_marked = int(marked.sum())
    return Estimated(n_found / n_marked, *wilson(round(n_found), n_marked))


def precision_at(score: Score, marked: Marked, k: int) -> Estimated:
    """Share of marked items among the k with the highest scores; by chance it is their share of all items.

    Interval: Wilson's over the k items. Raises ValueError as auc does, and unless 1 <= k <= items.

    >>> precision_at(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), 3).value
    0.6666666666666666
    """
    if not 1 <= k <= len(score):
        raise ValueError(f"k={k} is outside [1, {len(score)}], the number of items")
    n_found = float(_expected_marked(score, marked, np.array([float(k)]))[0])
    return Estimated(n_found / k, *wilson(round(n_found), k))


def recall_curve(score: Score, marked: Marked, shares: Shares) -> Shares:
    """Recall at each share of items flagged (see recall_at), without intervals.

    >>> recall_curve(np.array([3.0, 2, 1, 0]), np.array([True, False, True, False]), np.array([0.0, 0.25, 1.0]))
    array([0. , 0.5, 1. ])
    """
    return _expected_marked(score, marked, shares * len(score)) / marked.sum()


def _expected_marked(score: Score, marked: Marked, n_flagged: Shares) -> Shares:
    """Expected number of marked items among the n items of highest score, for each n of `n_flagged`.

    Items of equal score are in random order, so the marked ones are spread evenly among them; n may be a fraction.
    """
    _check(score, marked)
    group = np.unique(-score, return_inverse=True)[1]  # items of equal score, the highest first
    items_by_group = np.bincount(group)
    marked_by_group = np.bincount(group, weights=marked.astype(np.float64))

    # from 0 on, the number of items down to each group -> the marked ones among them
    n_items = np.append(0.0, items_by_group.cumsum())
    n_marked = np.append(0.0, marked_by_group.cumsum())
    return np.interp(n_flagged, n_items, n_marked)


def _check(score: Score, marked: Marked) -> None:
    """Raises ValueError for scores that are NaN, and unless some items are marked and some are not."""
    missing = int(np.isnan(score).sum())
    if missing:
        raise ValueError(f"{missing} of {len(score)} scores are NaN; leave those items out")
    n_marked = int(marked.sum())
    if not 0 < n_marked < len(marked):
        raise ValueError(f"{n_marked} of {len(marked)} items are marked; some must be marked and some not")
