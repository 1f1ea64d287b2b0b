"""When a classifier should not answer: a threshold on its confidence that keeps the error of its answers low."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer
from scipy.stats import beta, binom

STARTS = 3  # counts of answered images at which a sequence of tests starts, where there are enough images
TILTS = np.geomspace(0.003, 30.0, 60)  # t / n_c of Chernoff's bound for a class of mean size; exp(-30) is negligible
BISECTIONS = 50
SMALLEST_FACTOR = 1e-13  # of exp(-t / n_c), about exp(-30): a floor, which loosens the bound of very unequal classes
MOST_TIMES = 1000  # `enough_images` looks no further than this many times the images
SETS_CLASSES = 20_000  # sets x classes that are computed at once: 10 MB


class Abstention(NamedTuple):
    """A classifier answers where its confidence is above the threshold; None: it answers nowhere.

    images: number of images that chose the threshold.    answered: of these, those above it.
    wrong:  of the answered ones, those with a wrong prediction.
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
    section 2.2.1). One sequence avoids Bonferroni's price but may fail at its start by one confident mistake, so three
    are used where there are at least three times the fewest images.

    right:      whether the most probable class is the true one.    error: in (0, 1).
    labels:     true class of each image: the error is then the mean over these classes of that of a class's answered
                images, and p the one of `balanced_p_values`. None: the error of all answered images.
    candidates: number of networks among which these same images chose this one, such as the epochs of its training:
                each of them has to keep the guarantee (union bound).
    Raises ValueError without images and for an error or level outside (0, 1).

    >>> sure = np.linspace(0.5, 1, 400)
    >>> abstention(sure, sure > 0.6, error=0.05)
    Abstention(threshold=0.5889724310776943, images=400, answered=328, wrong=8)
    """
    if not len(right):
        raise ValueError("no images: choosing a threshold needs some")

    images = len(right)
    risk = _risk(error, level, candidates)
    starts = _starts(images, error, risk)
    if images < starts[0]:
        return Abstention(None, images, 0, 0)

    descending = np.argsort(-confidence, kind="stable")
    sorted_confidence = confidence[descending]
    is_wrong = ~right[descending]
    wrong_among_first = np.append(0, np.cumsum(is_wrong))  # wrong_among_first[n]: among the n most confident

    # each test answers the images above a threshold: the n most confident ones, fewer where confidences are equal
    counts = np.arange(starts[0], images + 1)
    thresholds = np.append(sorted_confidence, 0.0)[counts]  # confidence of the image after the n most confident
    n_above = np.searchsorted(-sorted_confidence, -thresholds, side="left")
    answered = np.where(counts < images, n_above, images)
    wrong = wrong_among_first[answered]

    if labels is None:
        p_values = binom.cdf(wrong, answered, error)
    else:
        classes = int(labels.max()) + 1
        is_of_class = np.eye(classes, dtype=np.int64)[labels[descending]]  # images x classes
        is_of_class = is_of_class[:, is_of_class.any(axis=0)]  # without classes that have no image
        answered_by_class = np.cumsum(is_of_class, axis=0)[answered - 1]  # tests x classes
        wrong_by_class = np.cumsum(is_of_class * is_wrong[:, None], axis=0)[answered - 1]
        p_values = balanced_p_values(wrong_by_class, answered_by_class, error)
    is_rejected = p_values <= risk / len(starts)

    # the last test of the longest sequence of rejections
    last = -1
    for first_test in starts - starts[0]:
        rejections = int(np.argmin(np.append(is_rejected[first_test:], False)))
        if rejections:
            last = max(last, int(first_test) + rejections - 1)
    if last < 0:
        return Abstention(None, images, 0, 0)
    return Abstention(float(thresholds[last]), images, int(answered[last]), int(wrong[last]))


def fewest_images(error: float, level: float = 0.95, candidates: int = 1) -> int:
    """Number of images that a threshold needs if the classifier is right on all of them.

    The smallest n with (1 - error)^n <= (1 - level) / candidates.

    >>> fewest_images(0.05), fewest_images(0.05, candidates=10), fewest_images(0.01)
    (59, 104, 299)
    """
    return _fewest_at_risk(error, _risk(error, level, candidates))


def enough_images(
    confidence: Float[np.ndarray, " images"],
    right: Bool[np.ndarray, " images"],
    error: float,
    level: float = 0.95,
    candidates: int = 1,
) -> int | None:
    """Estimated number of such images that would give a threshold, where these give none; None if no number would.

    The smallest multiple of these images that makes the error of some share of the most confident ones significantly
    low, if each share keeps the error that it has among these images.

    >>> sure = np.linspace(0.5, 1, 40)
    >>> enough_images(sure, sure > 0.6, error=0.05)
    101
    """
    descending = np.argsort(-confidence, kind="stable")
    wrong = np.cumsum(~right[descending])
    counts = np.arange(1, len(right) + 1)
    risk = _risk(error, level, candidates) / STARTS

    def suffices(times: float) -> bool:
        p_values = binom.cdf(np.ceil(times * wrong), np.floor(times * counts), error)
        return bool((p_values <= risk).any())

    too_few, enough = 1.0, float(MOST_TIMES)
    if not suffices(enough):
        return None

    while (enough - too_few) * len(right) > 1:
        middle = (too_few + enough) / 2
        if suffices(middle):
            enough = middle
        else:
            too_few = middle
    return max(math.ceil(enough * len(right)), fewest_images(error, level, candidates))


def error_bound(wrong: int, images: int, level: float = 0.95, candidates: int = 1) -> float:
    """Upper bound on the error of a classifier that answers all images: the end of Clopper and Pearson's interval.

    With probability `level` over the draw of the images, the error on new images from the same source is below it, even
    if these images chose this network among `candidates` (union bound). One-sided and exact:

        P(Binomial(images, bound) <= wrong) = (1 - level) / candidates

    Raises ValueError without images, and for a level outside (0, 1).

    >>> round(error_bound(0, 24), 3), round(error_bound(0, 24, candidates=10), 3), error_bound(3, 3)
    (0.117, 0.198, 1.0)
    """
    if not images:
        raise ValueError("no images: bounding an error needs some")
    if not 0 < level < 1:
        raise ValueError(f"level={level} is outside (0, 1)")
    if wrong == images:
        return 1.0
    return float(beta.ppf(1 - (1 - level) / candidates, wrong + 1, images - wrong))


def balanced_error_bound(
    wrong: Int[np.ndarray, " classes"], images: Int[np.ndarray, " classes"], level: float = 0.95, candidates: int = 1
) -> float:
    """Upper bound on the mean over classes of the error of a classifier that answers all images; see `error_bound`.

    The largest error that `balanced_p_values` does not reject at (1 - level) / candidates.

    >>> round(balanced_error_bound(np.array([0, 0]), np.array([12, 12])), 3)  # as `promised_error` of 24 images
    0.117
    >>> round(balanced_error_bound(np.array([0, 0]), np.array([20, 4])), 3)  # half of the mean rests on four images
    0.264
    """
    risk = _risk(0.5, level, candidates)
    low, high = 0.0, 1.0
    for _ in range(40):  # to 1e-12
        middle = (low + high) / 2
        is_rejected = balanced_p_values(wrong[None], images[None], middle)[0] <= risk
        if is_rejected:
            high = middle
        else:
            low = middle
    return high


def balanced_p_values(
    wrong: Int[np.ndarray, "sets classes"], images: Int[np.ndarray, "sets classes"], error: float
) -> Float[np.ndarray, " sets"]:
    """Upper bound on the p value of each set of images for a mean over classes of the share wrong, if `error` is true.

    It bounds the largest probability, over all ways in which the classes can share that error (p_1 to p_K with mean
    `error`), that S = sum_c wrong_c / n_c is as small as it is; so no test that uses it rejects too often, at any
    number of images. By Chernoff's bound, with the numbers n_c of each class as they are,

        P(S <= s) <= min over t > 0 of exp(t s + max over p of sum_c n_c log(1 - p_c (1 - exp(-t / n_c))))

    where the maximum is concave in p; its Lagrange dual gives a value that is never too small. With the price λ of one
    unit of error, and g_c = 1 - exp(-t / n_c),

        p_c(λ) = clip(1 / g_c - n_c / λ, 0, 1),   max <= sum_c n_c log(1 - p_c g_c) + λ (sum_c p_c - sum_c true p_c)

    at any λ; bisection finds that with sum_c p_c = sum_c true p_c. Where nothing is wrong and classes have equally many
    images the bound is exact, (1 - error)^n. A class without images may have any error.
    """
    n_batches = max(1, wrong.size // SETS_CLASSES)
    p_values = []
    for rows in np.array_split(np.arange(len(wrong)), n_batches):
        p_values.append(_p_values_of_batch(wrong[rows], images[rows], error))
    return np.concatenate(p_values)


def _p_values_of_batch(
    wrong: Int[np.ndarray, "sets classes"], images: Int[np.ndarray, "sets classes"], error: float
) -> Float[np.ndarray, " sets"]:
    """The equations of `balanced_p_values`, for all t of TILTS at once; large arrays are sets x tilts x classes."""
    n = np.maximum(images, 1)[:, None].astype(np.float64)  # sets x 1 x classes
    has_images = (images > 0)[:, None]
    s = (wrong / n[:, 0]).sum(axis=1, keepdims=True)  # sets x 1

    # least sum of p_c over the classes with images: each of the others has at most 1
    n_empty_classes = (~has_images).sum(axis=2)
    error_sum = wrong.shape[1] * error - n_empty_classes  # sets x 1

    t = TILTS[:, None] * n.mean(axis=2, keepdims=True)  # sets x tilts x 1
    factor = np.maximum(np.exp(-t / n), SMALLEST_FACTOR)
    g = 1 - factor

    def errors_at(price: Float[np.ndarray, "sets tilts 1"]) -> Float[np.ndarray, "sets tilts classes"]:
        """p_c(λ), and 0 for a class without images."""
        return np.clip(1 / g - n / price, 0, 1) * has_images

    # bisection of log λ between the prices at which all p_c are 0 and at which all are 1
    low = np.log((n * g).min(axis=2))
    high = np.log((n * g / factor).max(axis=2))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        price = np.exp(middle)[:, :, None]
        is_too_cheap = errors_at(price).sum(axis=2) < error_sum
        low = np.where(is_too_cheap, middle, low)
        high = np.where(is_too_cheap, high, middle)

    price = np.exp(high)
    errors = errors_at(price[:, :, None])
    log_factors = (has_images * n * np.log1p(-errors * g)).sum(axis=2)
    dual = log_factors + price * (errors.sum(axis=2) - error_sum)

    log_bound = (t[:, :, 0] * s + dual).min(axis=1)
    bound = np.exp(np.minimum(log_bound, 0.0))
    return np.where(error_sum[:, 0] > 0, bound, 1.0)


def error_that_answers_all(
    confidence: Float[np.ndarray, " images"],
    right: Bool[np.ndarray, " images"],
    level: float = 0.95,
    candidates: int = 1,
    labels: Integer[np.ndarray, " images"] | None = None,
) -> float | None:
    """The smallest error, in whole percent, for which `abstention` answers all images; None if there is none.

    It is not below `error_bound`, the end of an interval, so it may be chosen after a look at these images.

    >>> sure = np.linspace(0.5, 1, 24)
    >>> error_that_answers_all(sure, sure > 0)
    0.12
    """
    if labels is None:
        bound = error_bound(int((~right).sum()), len(right), level, candidates)
    else:
        bound = balanced_error_bound(*wrong_and_images_by_class(right, labels), level, candidates)

    for percent in range(max(1, math.ceil(100 * bound)), 100):
        result = abstention(confidence, right, percent / 100, level, candidates, labels)
        if result.threshold is not None and result.answered == len(right):
            return percent / 100
    return None


def wrong_and_images_by_class(
    right: Bool[np.ndarray, " images"], labels: Integer[np.ndarray, " images"]
) -> tuple[Int[np.ndarray, " classes"], Int[np.ndarray, " classes"]]:
    """Number of wrong images and number of images of each class that has any."""
    _, class_of_image, images = np.unique(labels, return_inverse=True, return_counts=True)
    wrong = np.bincount(class_of_image, ~right, len(images)).astype(np.int64)
    return wrong, images


def _starts(images: int, error: float, risk: float) -> Int[np.ndarray, " starts"]:
    """The counts at which sequences of tests start, ascending."""
    fewest = _fewest_at_risk(error, risk)
    if images < STARTS * fewest:
        return np.array([fewest])

    first_start = _fewest_at_risk(error, risk / STARTS)
    return np.round(np.geomspace(first_start, images, STARTS)).astype(np.int64)


def _fewest_at_risk(error: float, risk: float) -> int:
    """The smallest n with (1 - error)^n <= risk."""
    return math.ceil(math.log(risk) / math.log1p(-error))


def _risk(error: float, level: float, candidates: int) -> float:
    """Significance level of the tests of one network: (1 - level) / candidates."""
    for name, value in (("error", error), ("level", level)):
        if not 0 < value < 1:
            raise ValueError(f"{name}={value} is outside (0, 1)")
    return (1 - level) / candidates
