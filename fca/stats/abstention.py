"""When a classifier should not answer: a threshold on its confidence that keeps the error of its answers low."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import beta, binom

STARTS = 3  # counts of answered images at which a sequence of tests starts, where there are images enough
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
    rejected = binom.cdf(wrong[above], above, error) <= risk / len(starts)
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


def error_that_answers_all(
    confidence: Float[np.ndarray, " images"],
    right: Bool[np.ndarray, " images"],
    level: float = 0.95,
    candidates: int = 1,
) -> float | None:
    """The smallest error, in whole percent, for which `abstention` answers all images; None if there is none.

    It is not below `promised_error`, the end of an interval, so it may be chosen after a look at these images.

    >>> sure = np.linspace(0.5, 1, 24)
    >>> error_that_answers_all(sure, sure > 0)
    0.12
    """
    bound = promised_error(int((~right).sum()), len(right), level, candidates)
    for percent in range(math.ceil(100 * bound), 100):
        found = abstention(confidence, right, percent / 100, level, candidates)
        if found.threshold is not None and found.answered == len(right):
            return percent / 100
    return None


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
