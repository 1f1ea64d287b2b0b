"""Segments of difficulty (quarters of the items), and how robust a class is while a corruption grows more severe.

Items are cut into quarters on clean images; the same cuts then place images under a shift. Which segments a model
solves is Table 3 of Sharma et al. (Do models see corruption as we see?, 2023); which classes are in the outer quarters,
their Figure 4. Their section 3.2 takes the standard deviation over severities of a score, averaged over the four
segments, and calls a class with a high one robust. Such a class moves most, so here it is the least robust:
robustness = -instability. A standard deviation cannot distinguish better from worse; trend can. Neither detects a class
that breaks at the first severity and stays broken; change, which starts at the clean images, does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.stats import rankdata

from fca.stats.intervals import RESAMPLES, mean_interval, percentile_interval, wilson
from fca.types import FcaError

QUARTERS = 4
SEGMENTS = ("easy", "med_easy", "med_hard", "hard")  # quarters by rising hardness
LEVELS = ("low", "med_low", "med_high", "high")  # quarters by rising discrimination
CLASSES_WITH_VERDICT = 2  # at either end of the ranking
SUSCEPTIBLE, ROBUST = "susceptible", "robust"
DIGITS = 9  # values that agree so far are tied: a fit gives items with equal responses equal values up to rounding

PerItem = Float[np.ndarray, " items"]
Codes = Integer[np.ndarray, " items"]
PerClass = Float[np.ndarray, " classes"]
PerImage = Float[np.ndarray, " images"]
Counts = Integer[np.ndarray, "subjects segments"]
Shares = Float[np.ndarray, "subjects segments"]
Severities = Float[np.ndarray, " severities"]
Values = Float[np.ndarray, "images severities"]
Parts = Float[np.ndarray, "images severities parts"]
Resampled = Float[np.ndarray, "resamples classes"]
ResampledMeans = Float[np.ndarray, "resamples severities parts"]


class Cuts(NamedTuple):
    """The last item of each quarter but the highest: its value, and its place among items of the same value."""

    value: Float[np.ndarray, " cuts"]
    order: Integer[np.ndarray, " cuts"]


class Share(NamedTuple):
    """Right responses among n, as a fraction with Wilson's 95 % interval; NaN where there is no response."""

    right: Counts
    n: Counts
    share: Shares
    low: Shares
    high: Shares


def quarter_cuts(value: PerItem, order: Codes) -> Cuts:
    """Find where to cut items into four parts of rising value, as equal in size as possible (they differ by 1 at most).

    value: hardness of each item (1 - expected success, or difficulty), or its discrimination.
    order: a different number for each item; of items with equal values, the lower number comes first.
    Raises FcaError for fewer than four items.

    >>> quarter_cuts(np.array([0.4, 0.1, 0.2, 0.9]), np.arange(4)).value
    array([0.1, 0.2, 0.4])
    """
    if len(value) < QUARTERS:
        raise FcaError("items to cut into quarters", len(value), f"{QUARTERS} or more", "read answers on more items")
    rounded = value.round(DIGITS)
    lowest_first = np.lexsort((order, rounded))  # by value, then by order
    quarter_ends = np.arange(1, QUARTERS) * len(value) // QUARTERS
    last_items = lowest_first[quarter_ends - 1]
    return Cuts(rounded[last_items], order[last_items])


def quarters(value: PerItem, order: Codes, cuts: Cuts) -> Codes:
    """The quarter of every item, 0 (lowest) to 3: the number of cuts that its value is above.

    A cut is the last item of a quarter. An item whose value equals that of a cut is above it if its `order` is larger
    than that of the cut. So an image whose value a corruption leaves unchanged stays in its quarter, and items of equal
    value do not all move together.
    value, order: of each item, as in `quarter_cuts`. The items may be those that the cuts were found on, or the same
    images under a corruption.

    >>> clean = np.array([0.1, 0.1, 0.1, 0.9])
    >>> cuts = quarter_cuts(clean, np.arange(4))
    >>> quarters(clean, np.arange(4), cuts), quarters(clean + 0.2, np.arange(4), cuts)
    (array([0, 1, 2, 3]), array([3, 3, 3, 3]))
    """
    rounded = value.round(DIGITS)[:, None]  # items x cuts
    is_higher = rounded > cuts.value
    is_later = (rounded == cuts.value) & (order[:, None] > cuts.order)
    return (is_higher | is_later).sum(axis=1)


def class_counts(quarter: Codes, label: Codes, classes: int) -> Integer[np.ndarray, "classes quarters"]:
    """How many items of each class (label 0 to classes - 1) are in each quarter.

    >>> class_counts(np.array([0, 3, 3]), np.array([0, 0, 1]), 2)
    array([[1, 0, 0, 1],
           [0, 0, 0, 1]])
    """
    cell = label * QUARTERS + quarter  # position in the flattened table of classes x quarters
    return np.bincount(cell, minlength=classes * QUARTERS).reshape(classes, QUARTERS)


def segment_shares(correct: Float[np.ndarray, "subjects items"], quarter: Codes) -> Share:
    """Each subject's share of right responses among its responses in each quarter, with Wilson's 95 % interval.

    correct: 1 right, 0 wrong, NaN for no response.
    quarter: of each item, 0 to 3: where it is among all items by hardness or by discrimination (`quarters`).

    >>> segment_shares(np.array([[1.0, 0.0, np.nan, 1.0]]), np.array([0, 0, 0, 3])).share
    array([[0.5, nan, nan, 1. ]])
    """
    is_in_quarter = (quarter[:, None] == np.arange(QUARTERS)).astype(float)  # items x quarters
    has_response = ~np.isnan(correct)
    n = (has_response @ is_in_quarter).astype(np.int64)  # subjects x quarters
    right = (np.nan_to_num(correct) @ is_in_quarter).round().astype(np.int64)

    # NaN where a subject has no response in a quarter
    share = np.full(n.shape, np.nan)
    low = np.full(n.shape, np.nan)
    high = np.full(n.shape, np.nan)
    for subject, column in np.argwhere(n > 0):  # a column for each quarter
        cell = (subject, column)
        n_right, n_responses = int(right[cell]), int(n[cell])
        share[cell] = n_right / n_responses
        low[cell], high[cell] = wilson(n_right, n_responses)
    return Share(right, n, share, low, high)


class Robustness(NamedTuple):
    """Three measures of every class, with 95 % intervals; resampled: instability in resamples of each class's images.

    instability: 0 or more; share of the class's images that change segment, or the unit of difficulty.
    trend:       change of the class's mean value a severity step.
    change:      of the class's mean value from clean images to the mean over severities; NaN without clean ones.
    """

    instability: PerClass
    instability_low: PerClass
    instability_high: PerClass
    trend: PerClass
    trend_low: PerClass
    trend_high: PerClass
    change: PerClass
    change_low: PerClass
    change_high: PerClass
    resampled: Resampled


def quarter_parts(quarter: Integer[np.ndarray, "images severities"]) -> Float[np.ndarray, "images severities quarters"]:
    """Indicators of the quarter that each image is in at each severity: 1 for this quarter, 0 for the others.

    Their mean over the images of a class is the class's share of images in each quarter.

    >>> quarter_parts(np.array([[0, 3]]))
    array([[[1., 0., 0., 0.],
            [0., 0., 0., 1.]]])
    """
    return (quarter[..., None] == np.arange(QUARTERS)).astype(float)


def instability(means: Float[np.ndarray, "*draws severities parts"]) -> Float[np.ndarray, "*draws"]:
    """How much the means of a class vary over severities: their standard deviation, averaged over parts.

    instability = 1/S · sum over segments s of std over severities k of share(s, k)   (Sharma et al. 2023, section 3.2)

    The standard deviation divides by the number of severities, as these are all severities and not a sample of them.
    means: at each severity, a class's share of images in each segment (the parts), or its mean difficulty as the only
    part. Leading axes, if any, are resamples.

    >>> float(instability(np.array([[1.0, 0.0], [0.0, 1.0]])))
    0.5
    """
    return np.asarray(means.std(axis=-2).mean(axis=-1))


def slopes(value: Values, severity: Severities) -> PerImage:
    """Least-squares slope of each image's value over severity, per severity step.

    >>> slopes(np.array([[0.9, 0.8, 0.7]]), np.array([1.0, 2.0, 3.0])).round(6)
    array([-0.1])
    """
    centred = severity - severity.mean()
    return value @ (centred / (centred @ centred))


def class_robustness(
    parts: Parts,
    value: Values,
    label: Integer[np.ndarray, " images"],
    severity: Severities,
    clean: PerImage | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Robustness:
    """Instability, trend and change of every class, with 95 % intervals over its images.

    instability: how much the class's means of `parts` vary: their standard deviation over severities, averaged over
                 parts.
    trend: slope over severity of the class's mean of `value`.
    change: the class's mean of `value` over all severities, minus its mean of `clean`.

    parts: images x severities x parts. With four parts they state which quarter of difficulty an image is in, as 1 or
    0 (`quarter_parts`), so their class means are the class's shares of images in the quarters. A single part is any
    number of the image, such as its difficulty.
    value: one number for each image at each severity, its expected success or its difficulty.
    label: class of each image, 0 to classes - 1, each with at least one image.
    severity: two or more, all above 0.
    clean: `value` of each image at severity 0; if it is None, change is NaN.
    seed, resamples: of the bootstrap for the interval of instability.

    The intervals take the fit and the cuts of quarters as known. The interval of instability is made of percentiles of
    a bootstrap over images. The means of a few images vary over severities even if the class does not move. This effect
    of sampling is subtracted in every resample, though not from the estimate, which is the paper's. In simulation the
    interval contains the true instability in 93 to 100 % of cases. Without the subtraction it would never contain the
    0 of a class that does not move. It is NaN with fewer than five images. The other intervals are those of means
    (`mean_interval`), NaN with one image.

    `Robustness` also has the instability of every class in each resample (`resampled`); from it nothing is subtracted.

    Raises FcaError for fewer than two severities.

    >>> solved = np.array([[0.9, 0.7], [0.8, 0.6]])
    >>> measures = class_robustness(solved[..., None], solved, np.array([0, 0]), np.array([1.0, 2.0]))
    >>> measures.instability.round(6), measures.trend.round(6)
    (array([0.1]), array([-0.2]))
    """
    if len(severity) < 2:
        raise FcaError("severities of a corruption", len(severity), "2 or more", "predict more of them")

    trend = slopes(value, severity)  # by image; the trend of a class is the mean over its images
    change = np.full(len(value), np.nan) if clean is None else value.mean(axis=1) - clean

    rng = np.random.default_rng(seed)
    estimates: list[list[float]] = []
    resampled_instability = []
    for class_index in range(int(label.max()) + 1):
        images = np.flatnonzero(label == class_index)
        parts_of_class = parts[images]
        image_groups = np.arange(len(images))  # for `mean_interval`: every image is an independent draw

        resampled_means = _means_of_resamples(parts_of_class, rng, resamples)
        resampled_instability.append(instability(resampled_means))
        # for the interval: the instability of each resample, less what the sampling of images adds to it
        net_instability = _instability_without_sampling(resampled_means, parts_of_class)

        estimates.append(  # instability, trend and change, each with low and high end, as `Robustness` orders them
            [
                float(instability(parts_of_class.mean(axis=0))),
                *percentile_interval(net_instability, len(images)),  # wider for few images, NaN for fewer than five
                trend[images].mean(),
                *mean_interval(trend[images], image_groups),
                change[images].mean(),
                *mean_interval(change[images], image_groups),
            ]
        )
    measures = np.array(estimates).T  # measures x classes
    return Robustness._make([*measures, np.stack(resampled_instability, axis=1)])


def _means_of_resamples(parts: Parts, rng: np.random.Generator, resamples: int) -> ResampledMeans:
    """The mean of each part at each severity in bootstrap resamples of the images of one class.

    parts: of the images of the class.
    """
    weights = _resample_weights(len(parts), rng, resamples)  # resamples x images, each row sums to 1
    means = weights @ parts.reshape(len(parts), -1)
    return means.reshape(resamples, *parts.shape[1:])


def _instability_without_sampling(resampled_means: ResampledMeans, parts: Parts) -> Float[np.ndarray, " resamples"]:
    """Instability of one class in each resample of its images, less what sampling adds to it.

    Few images stand for a class, so the variance of its means over severities includes their sampling variance; a
    resample adds the same amount once more. So twice the sampling variance is subtracted from the variance in a
    resample (not below 0) before its root is taken. The roots are averaged over parts, as in `instability`.
    parts: of the images of the class.
    """
    net_variance = resampled_means.var(axis=1) - 2 * _sampling_variance(parts)  # resamples x parts
    return np.asarray(np.sqrt(np.clip(net_variance, 0, None)).mean(axis=1))


def _resample_weights(images: int, rng: np.random.Generator, resamples: int) -> Float[np.ndarray, "resamples images"]:
    """Bootstrap weights of the images in each resample: the share of its draws that fell on the image; rows sum to 1.

    images: their number. A resample draws as many images, with replacement.
    """
    drawn_images = rng.integers(images, size=(resamples, images))  # with replacement
    cells = drawn_images + images * np.arange(resamples)[:, None]  # position in the flattened resamples x images
    counts = np.bincount(cells.ravel(), minlength=resamples * images)
    return counts.reshape(resamples, images) / images


def _sampling_variance(parts: Parts) -> Float[np.ndarray, " parts"]:
    """How much the sampling of a class's images adds to the variance over severities of their mean, for each part.

    parts: of the images of one class. From each image its mean over severities is subtracted, because a constant adds
    nothing to the variance over severities. The result is the variance between images at a severity, divided by their
    number and averaged over severities; NaN for one image.
    """
    images = len(parts)
    if images < 2:
        return np.full(parts.shape[-1], np.nan)
    deviation = parts - parts.mean(axis=1, keepdims=True)
    return deviation.var(axis=0, ddof=1).mean(axis=0) / images


def ranks(score: PerClass) -> Integer[np.ndarray, " classes"]:
    """Rank of each class, 1 = the highest score; of equal scores the first class comes first.

    >>> ranks(np.array([-0.2, -0.1, -0.2]))
    array([2, 1, 3])
    """
    return rankdata(-score, method="ordinal")


def verdicts(score: PerClass) -> list[str | None]:
    """The verdict on each class: `robust` for the two highest scores, `susceptible` for the two lowest, else None.

    With two or three classes, only the highest and the lowest score have a verdict; a single class has none.
    score: robustness of each class.

    >>> verdicts(np.array([-0.1, -0.5, -0.2, -0.4, -0.3]))
    ['robust', 'susceptible', 'robust', 'susceptible', None]
    """
    n_at_each_end = min(CLASSES_WITH_VERDICT, len(score) // 2)
    verdict_by_rank: list[str | None] = [None] * len(score)
    verdict_by_rank[:n_at_each_end] = [ROBUST] * n_at_each_end
    verdict_by_rank[len(score) - n_at_each_end :] = [SUSCEPTIBLE] * n_at_each_end
    return [verdict_by_rank[rank - 1] for rank in ranks(score).tolist()]


def verdict_kept(score: PerClass, resampled: Resampled) -> PerClass:
    """Share of the resamples in which each class has the verdict that its score gives it; NaN for classes without one.

    The two classes with the highest scores are robust, the two with the lowest are susceptible (one each among two or
    three classes); the others have no verdict.
    score: robustness of each class.
    resampled: scores of all classes in bootstrap resamples.

    >>> verdict_kept(np.array([-0.1, -0.3]), np.array([[-0.1, -0.3], [-0.2, -0.1]]))
    array([0.5, 0.5])
    """
    n_at_each_end = min(CLASSES_WITH_VERDICT, len(score) // 2)
    rank = rankdata(-resampled, method="ordinal", axis=1)  # resamples x classes; 1 is the highest score
    share_by_verdict = {
        ROBUST: (rank <= n_at_each_end).mean(axis=0),
        SUSCEPTIBLE: (rank > len(score) - n_at_each_end).mean(axis=0),
    }
    shares = np.full(len(score), np.nan)
    for class_index, verdict in enumerate(verdicts(score)):
        if verdict is not None:
            shares[class_index] = share_by_verdict[verdict][class_index]
    return shares
