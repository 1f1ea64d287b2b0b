"""When a classifier should not answer: a threshold on its confidence that keeps the error of its answers low."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer
from scipy.stats import beta, binom

STARTS = 3  # counts of answered images at which a sequence of tests starts, where there are images enough
TILTS = np.geomspace(0.003, 30.0, 60)  # images of a class by which Chernoff's bound weighs it; exp(-30) is nothing
BISECTIONS = 50
LEAST_KEPT = 1e-13  # about exp(-30): beyond, where classes are very unequal, a larger bound is taken instead
FARTHEST = 1000  # times as many images: beyond that `enough_images` does not look


class Abstention(NamedTuple):
    """A classifier answers where its confidence is above the threshold; None: nowhere.

    images: that chose the threshold.    answered: those of them above it.    wrong: those of the answered.
    """

    threshold: float | None
    images: int
    answered: int
    wrong: int


def abstention(
    confidence: Float[np.ndarray, " images"],
    right: Bool[np.ndarray, " images"],
    error: float,
    level: float = 0.95,
    candidates: int = 1,
    labels: Integer[np.ndarray, " images"] | None = None,
) -> Abstention:
    """The lowest threshold at which new images are answered with an error of at most `error`, with this confidence.

    With probability `level` over the draw of these images,  P(wrong | confidence > threshold) <= error  for new images
    from the same source (selective classification with guaranteed risk: Geifman & El-Yaniv 2017, arXiv:1705.08500).

    Tests of "the n most confident have a higher error", n growing: p = P(Binomial(n, error) <= wrong among them), the
    exact test whose interval is Clopper and Pearson's. In each of S sequences, which start at counts that depend on
    the number of images alone, tests go on at level (1 - level) / S / candidates until the first that is not rejected;
    the longest sequence counts (fixed-sequence testing with several starts: Angelopoulos et al. 2021, arXiv:2110.01052,
    section 2.2.1). One sequence is free of Bonferroni's price but may fail at its start by one confident mistake, so
    three are used where there are at least three times the fewest images.

    right:      whether the most probable class is the true one.    error: in (0, 1).
    labels:     true class of each image: the error is then the mean over these classes of that of a class's answered
                images, and p the one of `balanced_p_values`. None: of all answered images.
    candidates: networks of which these same images chose this one, such as the epochs of its training: each of them has
                to keep the guarantee (union bound).
    Raises ValueError without images and for an error or level outside (0, 1).

    >>> sure = np.linspace(0.5, 1, 400)
    >>> abstention(sure, sure > 0.6, error=0.05)
    Abstention(threshold=0.5889724310776943, images=400, answered=328, wrong=8)
    """
    if not len(right):
        raise ValueError("no images: a threshold is chosen on some")
    images, risk = len(right), _risk(error, level, candidates)
    order = np.argsort(-confidence, kind="stable")
    sure, wrong = confidence[order], np.append(0, np.cumsum(~right[order]))
    starts = _starts(images, error, risk)
    if images < starts[0]:
        return Abstention(None, images, 0, 0)
    counts = np.arange(starts[0], images + 1)
    threshold = np.append(sure, 0.0)[counts]  # of the n most confident: the confidence of the next one
    above = np.where(counts < images, np.searchsorted(-sure, -threshold, side="left"), images)  # n, but for ties
    if labels is None:
        p_values = binom.cdf(wrong[above], above, error)
    else:
        of_class = np.eye(int(labels.max()) + 1, dtype=np.int64)[labels[order]]
        of_class = of_class[:, of_class.any(axis=0)]
        number = np.cumsum(of_class, axis=0)[above - 1]
        p_values = balanced_p_values(np.cumsum(of_class * ~right[order, None], axis=0)[above - 1], number, error)
    rejected = p_values <= risk / len(starts)
    lengths = [int(np.argmin(np.append(rejected[start - starts[0] :], False))) for start in starts]
    ends = [start + length - 1 for start, length in zip(starts, lengths, strict=True) if length]
    if not ends:
        return Abstention(None, images, 0, 0)
    last = max(ends) - starts[0]
    return Abstention(float(threshold[last]), images, int(above[last]), int(wrong[above[last]]))


def fewest_images(error: float, level: float = 0.95, candidates: int = 1) -> int:
    """Images that a threshold needs if the classifier is right on all of them: (1 - error)^n <= (1 - level)/candidates.

    >>> fewest_images(0.05), fewest_images(0.05, candidates=10), fewest_images(0.01)
    (59, 104, 299)
    """
    return _fewest(error, _risk(error, level, candidates))


def enough_images(
    confidence: Float[np.ndarray, " images"],
    right: Bool[np.ndarray, " images"],
    error: float,
    level: float = 0.95,
    candidates: int = 1,
) -> int | None:
    """About how many images of this kind would give a threshold, where these give none; None if no number would.

    As many times these as make the error of some share of the most confident ones significantly low, if each share
    keeps the error that it has here.

    >>> sure = np.linspace(0.5, 1, 40)
    >>> enough_images(sure, sure > 0.6, error=0.05)
    101
    """
    wrong = np.cumsum(~right[np.argsort(-confidence, kind="stable")])
    counts = np.arange(1, len(right) + 1)
    risk = _risk(error, level, candidates) / STARTS
    low, high = 1.0, float(FARTHEST)

    def suffices(times: float) -> bool:
        return bool((binom.cdf(np.ceil(times * wrong), np.floor(times * counts), error) <= risk).any())

    if not suffices(high):
        return None
    while (high - low) * len(right) > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return max(math.ceil(high * len(right)), fewest_images(error, level, candidates))


def promised_error(wrong: int, images: int, level: float = 0.95, candidates: int = 1) -> float:
    """The error of answers to all images that these images promise: the upper end of Clopper and Pearson's interval.

    With probability `level` over the draw of the images, the error on new images from the same source is below it,
    also where they chose this network among `candidates` (union bound). One-sided and exact:

        P(Binomial(images, bound) <= wrong) = (1 - level) / candidates

    Raises ValueError without images, and for a level outside (0, 1).

    >>> round(promised_error(0, 24), 3), round(promised_error(0, 24, candidates=10), 3), promised_error(3, 3)
    (0.117, 0.198, 1.0)
    """
    if not images:
        raise ValueError("no images: an error is promised by some")
    if not 0 < level < 1:
        raise ValueError(f"level={level} is outside (0, 1)")
    if wrong == images:
        return 1.0
    return float(beta.ppf(1 - (1 - level) / candidates, wrong + 1, images - wrong))


def promised_balanced_error(
    wrong: Int[np.ndarray, " classes"], images: Int[np.ndarray, " classes"], level: float = 0.95, candidates: int = 1
) -> float:
    """The mean over classes of the error of answers to all images that these images promise; see `promised_error`.

    The largest error that `balanced_p_values` does not reject at (1 - level) / candidates.

    >>> round(promised_balanced_error(np.array([0, 0]), np.array([12, 12])), 3)  # as `promised_error` of 24 images
    0.117
    >>> round(promised_balanced_error(np.array([0, 0]), np.array([20, 4])), 3)  # half of the mean rests on four images
    0.264
    """
    risk = _risk(0.5, level, candidates)
    low, high = 0.0, 1.0
    for _ in range(40):  # 1e-12
        middle = (low + high) / 2
        is_possible = balanced_p_values(wrong[None], images[None], middle)[0] > risk
        low, high = (middle, high) if is_possible else (low, middle)
    return high


def balanced_p_values(
    wrong: Int[np.ndarray, "sets classes"], images: Int[np.ndarray, "sets classes"], error: float
) -> Float[np.ndarray, " sets"]:
    """For each set of images: how likely so small a mean over classes of the share wrong is, if `error` is expected.

    An upper bound of the largest probability, over all ways in which the classes can share that error (p_1 to p_K with
    mean `error`), that S = sum_c wrong_c / n_c is as small as it is; so no test that uses it rejects too often, at any
    number of images. By Chernoff's bound, with the numbers n_c of each class as they are,

        P(S <= s) <= min over t > 0 of exp(t s + max over p of sum_c n_c log(1 - p_c (1 - exp(-t / n_c))))

    where the maximum is concave in p; its Lagrange dual gives a value that is never too small. Where nothing is wrong
    and classes have equally many images it is exact, (1 - error)^n. A class without images may have any error.
    """
    parts = np.array_split(np.arange(len(wrong)), max(1, wrong.size // 20_000))  # of 10 MB
    return np.concatenate([_balanced_p_values(wrong[part], images[part], error) for part in parts])


def _balanced_p_values(
    wrong: Int[np.ndarray, "sets classes"], images: Int[np.ndarray, "sets classes"], error: float
) -> Float[np.ndarray, " sets"]:
    is_there = images > 0
    n = np.maximum(images, 1)[:, None].astype(np.float64)  # sets, tilts, classes
    observed = (wrong / n[:, 0]).sum(axis=1)
    shared = wrong.shape[1] * error - (~is_there).sum(axis=1)  # the errors of classes with images add up to this

    tilt = TILTS[:, None] * n.mean(axis=2, keepdims=True)
    kept = np.maximum(np.exp(-tilt / n), LEAST_KEPT)
    taken = 1 - kept
    low = np.log((n * taken).min(axis=2))
    high = np.log((n * taken / kept).max(axis=2))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        price = np.exp(middle)[:, :, None]
        sum_of_errors = (np.clip(1 / taken - n / price, 0, 1) * is_there[:, None]).sum(axis=2)
        is_too_cheap = sum_of_errors < shared[:, None]
        low, high = np.where(is_too_cheap, middle, low), np.where(is_too_cheap, high, middle)

    price = np.exp(high)[:, :, None]
    errors = np.clip(1 / taken - n / price, 0, 1) * is_there[:, None]
    logarithm = (is_there[:, None] * n * np.log1p(-errors * taken)).sum(axis=2)
    dual = logarithm + price[:, :, 0] * (errors.sum(axis=2) - shared[:, None])
    bound = np.exp(np.minimum((tilt[:, :, 0] * observed[:, None] + dual).min(axis=1), 0.0))
    return np.where(shared > 0, bound, 1.0)


def error_that_answers_all(
    confidence: Float[np.ndarray, " images"],
    right: Bool[np.ndarray, " images"],
    level: float = 0.95,
    candidates: int = 1,
    labels: Integer[np.ndarray, " images"] | None = None,
) -> float | None:
    """The smallest error, in whole percent, for which `abstention` answers all images; None if there is none.

    It is not below `promised_error`, the end of an interval, so it may be chosen after a look at these images.

    >>> sure = np.linspace(0.5, 1, 24)
    >>> error_that_answers_all(sure, sure > 0)
    0.12
    """
    if labels is None:
        bound = promised_error(int((~right).sum()), len(right), level, candidates)
    else:
        bound = promised_balanced_error(*wrong_of_class(right, labels), level, candidates)
    for percent in range(max(1, math.ceil(100 * bound)), 100):
        found = abstention(confidence, right, percent / 100, level, candidates, labels)
        if found.threshold is not None and found.answered == len(right):
            return percent / 100
    return None


def wrong_of_class(
    right: Bool[np.ndarray, " images"], labels: Integer[np.ndarray, " images"]
) -> tuple[Int[np.ndarray, " classes"], Int[np.ndarray, " classes"]]:
    """How many images of each class that is there are wrong, and how many there are."""
    _, of_class, number = np.unique(labels, return_inverse=True, return_counts=True)
    return np.bincount(of_class, ~right, len(number)).astype(np.int64), number


def _starts(images: int, error: float, risk: float) -> Int[np.ndarray, " starts"]:
    """The counts at which sequences of tests start, ascending."""
    if images < STARTS * _fewest(error, risk):
        return np.array([_fewest(error, risk)])
    return np.round(np.geomspace(_fewest(error, risk / STARTS), images, STARTS)).astype(np.int64)


def _fewest(error: float, risk: float) -> int:
    return math.ceil(math.log(risk) / math.log1p(-error))


def _risk(error: float, level: float, candidates: int) -> float:
    """Level of the tests of one network."""
    for name, value in (("error", error), ("level", level)):
        if not 0 < value < 1:
            raise ValueError(f"{name}={value} is outside (0, 1)")
    return (1 - level) / candidates
