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
SETS_CLASSES = 20_000  # sets x classes that `balanced_p_values` computes at once: 10 MB


class Abstention(NamedTuple):
    """A classifier answers where its confidence is above the threshold; None: it answers nowhere.

    images:   number of images that chose the threshold.
    answered: of these, those above it.
    wrong:    of the answered ones, those with a wrong prediction.
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
    """The lowest confidence threshold that keeps the error on new images at or below `error`.

    The classifier answers the images whose confidence is above the threshold. With probability `level` over the draw of
    the given images,  P(wrong | confidence > threshold) <= error  for new images from the same source (selective
    classification with guaranteed risk: Geifman & El-Yaniv 2017, arXiv:1705.08500).

    Method: fixed-sequence testing with several starts (Angelopoulos et al. 2021, arXiv:2110.01052, section 2.2.1). Test
    n has the hypothesis "the n most confident images have an error above `error`", and the p value
    P(Binomial(n, error) <= wrong among the n), as in Clopper and Pearson's exact interval. A sequence of tests begins
    at some n and goes on with growing n until a hypothesis is not rejected. The largest n that was rejected in any
    sequence gives the threshold. The S sequences start at counts that depend only on the number of images; each tests
    at level (1 - level) / S / candidates. S is 3 if there are at least 3 times as many images as one sequence needs,
    so that one confident mistake at the start of a sequence does not prevent a threshold; otherwise S is 1.

    right:      whether the most probable class is the true one.
    error:      in (0, 1).
    labels:     true class of each image. The error is then, averaged over these classes, the share of wrong ones among
                the answered images of a class, with the p values of `balanced_p_values`. None: the share of wrong ones
                among all answered images.
    candidates: number of networks from which these same images selected this one, such as the epochs of its training.
                The guarantee holds for all of them at once (union bound).

    The threshold is None if there are too few images, or if no hypothesis is rejected.
    Raises ValueError without images and for an error or level outside (0, 1).

    >>> sure = np.linspace(0.5, 1, 400)
    >>> abstention(sure, sure > 0.6, error=0.05)
    Abstention(threshold=0.5889724310776943, images=400, answered=328, wrong=8)
    """
    if not len(right):
        raise ValueError("no images: choosing a threshold needs some")

    images = len(right)
    risk = _risk(error, level, candidates)  # (1 - level) / candidates: how probably the guarantee may fail
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
    answered = np.where(counts < images, n_above, images)  # the last test answers all, also those of confidence 0
    wrong = wrong_among_first[answered]

    if labels is None:
        p_values = binom.cdf(wrong, answered, error)
    else:
        classes = int(labels.max()) + 1
        is_of_class = np.eye(classes, dtype=np.int64)[labels[descending]]  # images x classes
        is_of_class = is_of_class[:, is_of_class.any(axis=0)]  # without classes that have no image
        no_image = np.zeros((1, is_of_class.shape[1]), dtype=np.int64)
        # row n counts among the n most confident images: (images + 1) x classes
        images_among_first = np.concatenate([no_image, np.cumsum(is_of_class, axis=0)])
        wrong_of_class_among_first = np.concatenate([no_image, np.cumsum(is_of_class * is_wrong[:, None], axis=0)])

        answered_by_class = images_among_first[answered]  # tests x classes
        wrong_by_class = wrong_of_class_among_first[answered]
        p_values = balanced_p_values(wrong_by_class, answered_by_class, error)
    is_rejected = p_values <= risk / len(starts)

    # the last test that any sequence rejects; -1: none. Test 0 is the one of starts[0] images.
    last = -1
    for first_test in starts - starts[0]:
        rejections = int(np.argmin(np.append(is_rejected[first_test:], False)))  # up to the first one not rejected
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
    """Estimated number of images like these with which `abstention` would find a threshold; None if there is none.

    It serves where `abstention` finds no threshold with the given images. The estimate supposes a larger set whose most
    confident 10 % have the same error as the most confident 10 % here, and likewise every other percentage. It is the
    size of the smallest such set in which the test of one of these parts is rejected; None: not even a set of
    MOST_TIMES as many images is large enough.
    right, error, level, candidates: see `abstention`.

    >>> sure = np.linspace(0.5, 1, 40)
    >>> enough_images(sure, sure > 0.6, error=0.05)
    101
    """
    descending = np.argsort(-confidence, kind="stable")
    wrong = np.cumsum(~right[descending])
    counts = np.arange(1, len(right) + 1)
    risk = _risk(error, level, candidates) / STARTS  # as if the larger set had all sequences of tests

    def suffices(times: float) -> bool:
        """Whether some test is rejected with `times` as many images; counts are rounded to the disadvantage."""
        p_values = binom.cdf(np.ceil(times * wrong), np.floor(times * counts), error)
        return bool((p_values <= risk).any())

    too_few, enough = 1.0, float(MOST_TIMES)  # multiples of the given images
    if not suffices(enough):
        return None

    while (enough - too_few) * len(right) > 1:  # to one image
        middle = (too_few + enough) / 2
        if suffices(middle):
            enough = middle
        else:
            too_few = middle
    # `fewest_images`: so many are needed even if all predictions are right
    return max(math.ceil(enough * len(right)), fewest_images(error, level, candidates))


def error_bound(wrong: int, images: int, level: float = 0.95, candidates: int = 1) -> float:
    """Upper bound on the error of a classifier that answers all images, `wrong` of them wrongly.

    With probability `level` over the draw of the images, the error on new images from the same source is below the
    bound, even if these images selected this network from `candidates` ones (union bound). It is the upper end of
    Clopper and Pearson's interval, one-sided and exact:

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
    """Upper bound on the mean of the classes' errors, for a classifier that answers all images.

    With probability `level` over the draw of the images, the mean of the classes' errors on new images is below the
    bound, even if these images selected this network from `candidates` ones.

    The bound is the largest error e for which the hypothesis "the mean of the classes' errors is e" is not rejected at
    the significance level `risk` = (1 - level) / candidates. Its p value is an upper bound on the probability that
    the mean of the observed errors is as low as here (`balanced_p_values`). Bisection finds e.

    wrong:  number of wrong images of each class.
    images: number of images of each class.

    >>> round(balanced_error_bound(np.array([0, 0]), np.array([12, 12])), 3)  # as `error_bound` of 24 images
    0.117
    >>> round(balanced_error_bound(np.array([0, 0]), np.array([20, 4])), 3)  # half of the mean rests on four images
    0.264
    """
    risk = _risk(0.5, level, candidates)  # any error in (0, 1): it is only checked
    low, high = 0.0, 1.0
    for _ in range(40):  # bisection to 1e-12
        middle = (low + high) / 2
        p_value = balanced_p_values(wrong[None], images[None], middle)[0]  # of "the mean of the errors is `middle`"
        is_rejected = p_value <= risk
        if is_rejected:
            high = middle
        else:
            low = middle
    return high


def balanced_p_values(
    wrong: Int[np.ndarray, "sets classes"], images: Int[np.ndarray, "sets classes"], error: float
) -> Float[np.ndarray, " sets"]:
    """p values of the hypothesis that the mean of the classes' errors is `error`, one for each set of images.

    Each set of images is a line of `wrong` and `images`: the number of wrong images and of images of each class.

    The p value is an upper bound on the probability that S = sum_c wrong_c / n_c is as small as observed (s), with n_c
    the number of images of class c. Classes may have different errors p_1 to p_K, of which only the mean is `error`.
    The bound holds for all such p, so a test that uses it never rejects too often. By Chernoff's bound

        P(S <= s) <= min over t > 0 of exp(t s + max over p of sum_c n_c log(1 - p_c g_c)),   g_c = 1 - exp(-t / n_c)

    The maximised sum is concave in p. Its Lagrange dual, with the multiplier λ for the constraint sum_c p_c = K error,
    is at least the maximum for any λ:

        p_c(λ) = clip(1 / g_c - n_c / λ, 0, 1),   max <= sum_c n_c log(1 - p_c(λ) g_c) + λ (sum_c p_c(λ) - K error)

    Bisection finds the λ with sum_c p_c(λ) = K error. A class without images may have any error from 0 to 1. If no
    image is wrong and all classes have equally many images, the bound is exact: (1 - error)^n.
    """
    n_batches = max(1, wrong.size // SETS_CLASSES)  # limits the memory
    p_values = []
    for rows in np.array_split(np.arange(len(wrong)), n_batches):
        p_values.append(_p_values_of_batch(wrong[rows], images[rows], error))
    return np.concatenate(p_values)


def _p_values_of_batch(
    wrong: Int[np.ndarray, "sets classes"], images: Int[np.ndarray, "sets classes"], error: float
) -> Float[np.ndarray, " sets"]:
    """p values of "the mean of the classes' errors is `error`", for a batch of sets of images (`balanced_p_values`).

    With n_c images of class c, K classes, and s the observed sum over classes of wrong_c / n_c, the p value is the
    bound on P(S <= s), the probability of a sum S as small as s:

        P(S <= s) <= min over t > 0 of exp(t s + dual),   dual = sum_c n_c log(1 - p_c g_c) + λ (sum_c p_c - K error)
        g_c = 1 - exp(-t / n_c),   p_c = p_c(λ) = clip(1 / g_c - n_c / λ, 0, 1)

    The p_c are the classes' errors, with mean `error`, for which the bound is largest. λ, the `multiplier` of the
    constraint sum_c p_c = K error, is found by bisection; t is tried on a grid, TILTS times the mean of n_c. A class
    without images is left out of the sums, and reduces K error by 1, the most that its own error can be.

    Arrays with all three axes are sets x tilts x classes, with a tilt for each t; axes of length 1 are broadcast.
    """
    n = np.maximum(images, 1)[:, None].astype(np.float64)  # sets x 1 x classes
    has_images = (images > 0)[:, None]
    s = (wrong / n[:, 0]).sum(axis=1, keepdims=True)  # sets x 1

    # least sum of p_c over the classes with images: each class without images contributes at most 1
    n_empty_classes = (~has_images).sum(axis=2)
    error_sum = wrong.shape[1] * error - n_empty_classes  # sets x 1

    t = TILTS[:, None] * n.mean(axis=2, keepdims=True)  # sets x tilts x 1
    # the factors are divisors below, so none may be 0; larger factors only loosen the bound
    factor = np.maximum(np.exp(-t / n), SMALLEST_FACTOR)
    g = 1 - factor

    def errors_at(multiplier: Float[np.ndarray, "sets tilts 1"]) -> Float[np.ndarray, "sets tilts classes"]:
        """p_c(λ), and 0 for a class without images."""
        return np.clip(1 / g - n / multiplier, 0, 1) * has_images

    # bisection of log λ: all p_c(λ) are 0 at the lower end, and 1 at the upper end
    low = np.log((n * g).min(axis=2))
    high = np.log((n * g / factor).max(axis=2))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        multiplier = np.exp(middle)[:, :, None]
        is_too_small = errors_at(multiplier).sum(axis=2) < error_sum
        low = np.where(is_too_small, middle, low)
        high = np.where(is_too_small, high, middle)

    multiplier = np.exp(high)
    errors = errors_at(multiplier[:, :, None])
    log_factors = (has_images * n * np.log1p(-errors * g)).sum(axis=2)
    dual = log_factors + multiplier * (errors.sum(axis=2) - error_sum)

    log_bound = (t[:, :, 0] * s + dual).min(axis=1)
    bound = np.exp(np.minimum(log_bound, 0.0))
    # where error_sum is 0 or less, the empty classes alone may have all of the error: nothing can be rejected
    return np.where(error_sum[:, 0] > 0, bound, 1.0)


def error_that_answers_all(
    confidence: Float[np.ndarray, " images"],
    right: Bool[np.ndarray, " images"],
    level: float = 0.95,
    candidates: int = 1,
    labels: Integer[np.ndarray, " images"] | None = None,
) -> float | None:
    """The smallest error in whole percent, as a fraction, for which `abstention` answers all images; None if none does.

    Unlike the error given to `abstention`, this one may be chosen after a look at these images, because it is never
    smaller than the `error_bound` (with labels the `balanced_error_bound`). With probability `level`, the error of
    answers to all new images is below that bound. Arguments: see `abstention`.

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
    """The numbers of images at which the sequences of tests in `abstention` start, ascending.

    There is one start, the fewest images that a test can reject, or STARTS of them if there are enough images.
    """
    fewest = _fewest_at_risk(error, risk)
    if images < STARTS * fewest:
        return np.array([fewest])

    first_start = _fewest_at_risk(error, risk / STARTS)  # the sequences share the risk
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
