"""Where the spread of accuracies comes from: the draw of classes, the initialisation, and the sampling of test images.

Correctness of run i on test image j of class subset s:   x_sij = mean + A_s + B_si + C_sj + E_sij

    subset  var A                   another draw of classes
    init    var B + var(E) / n      another initialisation, scored on the same n images
    test    var C / n               other test images of the same classes

The inits of a subset answer the SAME images, so a hard image C lowers them all: their spread says nothing of it, and
their mean still has it. What a run alone gets wrong (E) is new with every init and so belongs to init; the three add
up to the variance of one accuracy. Images are drawn within their class, as test sets have a fixed number a class.
Subsets that share classes share images, and a full model is one run on every subset: such errors are common to them.

The estimators equate mean squares with their expectation (analysis of variance: Searle, Casella and McCulloch,
Variance Components, 1992; the sources: Bouthillier et al., arXiv:2103.03098; why inits share test error: Jordan,
arXiv:2304.01910). They are unbiased, and so can be negative where there is little to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import chdtri, ndtri

from fca.stats.intervals import LEVEL


class SubsetRuns(NamedTuple):
    """What the runs on one class subset got right.

    correct: inits x images.    images: a number for each image, the same wherever it stands.    strata: its class.
    runs:    a name for each init; subsets with the same names were answered by the same trained networks.
    """

    correct: Bool[np.ndarray, "inits images"]
    images: Integer[np.ndarray, " images"]
    strata: Integer[np.ndarray, " images"]
    runs: tuple[str, ...]


class Component(NamedTuple):
    """A variance of accuracy (a fraction, squared), unbiased, and its interval, cut off at 0.

    NaN: not to be known. An interval that would be 0 alone is none: less spread was seen than the noise in it has, or
    all answers are alike.
    """

    variance: float
    low: float
    high: float


class VarianceSplit(NamedTuple):
    """Variance of the accuracy of one run on one subset, by where it comes from."""

    subset: Component
    init: Component
    test: Component


UNKNOWN = Component(float("nan"), float("nan"), float("nan"))


class _Noise(NamedTuple):
    """Covariance between subsets of their mean accuracies, given their classes: (init - residual) / inits + test."""

    init: Float[np.ndarray, "subsets subsets"]
    residual: Float[np.ndarray, "subsets subsets"]
    test: Float[np.ndarray, "subsets subsets"]


def split_variance(subsets: Sequence[SubsetRuns], level: float = LEVEL) -> VarianceSplit:
    """The three components. All subsets have equal weight; their number of inits and of images may differ.

    subset: variance between mean accuracies, less the mean of the noise within them and plus that which they share.
        Interval: that of a variance of normal numbers (chi-square), less the same noise (Williams 1962, Biometrika).
    init: mean over subsets of the variance between inits. Interval: chi-square.
    test: mean over subsets of the variance from sampling images within their class. Interval: normal, over images.

    With one subset `subset` is NaN. With one init everywhere `init` is NaN; then `test` has the residual E as well (it
    is what one binomial accuracy has) and `subset` has B, but for what is common to subsets that one network answered:
    that is in none. Some subsets with one init: the mean of the others stands for theirs. A class with one test image:
    all images of its subset count as one class. Raises ValueError without subsets.

    >>> image, strata = np.arange(4), np.zeros(4, dtype=int)
    >>> a = SubsetRuns(np.array([[True, True, True, False], [True, False, True, False]]), image, strata, ("a", "b"))
    >>> round(split_variance([a]).init.variance, 6)
    0.03125
    """
    if not subsets:
        raise ValueError("split_variance needs one subset or more, and got none")
    inits = np.array([len(s.runs) for s in subsets])
    noise, images = _noise(subsets)
    of_test = np.diag(noise.test) - np.nan_to_num(np.diag(noise.residual), nan=_known(noise.residual)) / inits
    test = float(of_test.mean())
    half = float(ndtri(0.5 + level / 2)) * np.sqrt(len(images)) * images.std(ddof=1) if len(images) > 1 else np.nan
    freedom = sum(len(runs) - 1 for runs in {s.runs for s in subsets})
    return VarianceSplit(
        subset=_between(subsets, noise, inits, level),
        init=_scaled(_mean(np.diag(noise.init)), freedom, 0.0, level) if freedom else UNKNOWN,
        test=_component(test, test - float(half), test + float(half)),
    )


def _between(
    subsets: Sequence[SubsetRuns], noise: _Noise, inits: Integer[np.ndarray, " subsets"], level: float
) -> Component:
    k = len(subsets)
    if k == 1:
        return UNKNOWN
    own = np.eye(k, dtype=bool)
    parts = [np.where(own & np.isnan(part), _known(part), np.nan_to_num(part)) for part in noise[:2]]
    covariance = (parts[0] - parts[1]) / inits[:, None] + noise.test
    within = float(covariance[own].mean() - covariance[~own].mean())
    spread = float(np.var([s.correct.mean() for s in subsets], ddof=1))
    return _scaled(spread, k - 1, within, level)


def _scaled(mean_square: float, freedom: int, noise: float, level: float) -> Component:
    """A mean square less the noise in it, which is taken as known."""
    if np.isnan(noise):
        return UNKNOWN
    low, high = (freedom * mean_square / chdtri(freedom, 0.5 - side * level / 2) - noise for side in (1, -1))
    return _component(mean_square - noise, float(low), float(high))


def _component(variance: float, low: float, high: float) -> Component:
    return Component(variance, max(0.0, low), high) if high > 0 else Component(variance, np.nan, np.nan)


def _noise(subsets: Sequence[SubsetRuns]) -> tuple[_Noise, Float[np.ndarray, " images"]]:
    """The three covariances (NaN where one init cannot tell), and what every image adds to the mean test variance."""
    k, every = len(subsets), np.unique(np.concatenate([s.images for s in subsets]))
    where = [np.searchsorted(every, s.images) for s in subsets]
    errors, added = np.zeros((k, len(every))), np.zeros(len(every))
    rest = [np.zeros((len(s.runs), len(every))) for s in subsets]
    init, residual = np.zeros((k, k)), np.zeros((k, k))
    for a, one in enumerate(subsets):
        errors[a, where[a]] = _within_classes(one.correct.mean(axis=0, keepdims=True), one.strata)[0]
        several = len(one.runs) > 1
        if several:
            rest[a][:, where[a]] = _residuals(one)
            added -= (rest[a] ** 2).mean(axis=0) / len(one.runs) / k
        for b, other in enumerate(subsets[: a + 1]):
            if one.runs == other.runs:
                both = np.cov(one.correct.mean(axis=1), other.correct.mean(axis=1))[0, 1] if several else np.nan
                init[a, b] = init[b, a] = both
                residual[a, b] = residual[b, a] = (rest[a] * rest[b]).mean(axis=0).sum() if several else np.nan
    return _Noise(init, residual, errors @ errors.T), added + (errors**2).mean(axis=0)


def _residuals(subset: SubsetRuns) -> Float[np.ndarray, "inits images"]:
    """E of every answer, scaled so that squares summed over images and averaged over inits estimate var(E) / n."""
    inits = len(subset.runs)
    own = subset.correct - subset.correct.mean(axis=0)
    scaled: Float[np.ndarray, "inits images"] = _within_classes(own, subset.strata) * np.sqrt(inits / (inits - 1))
    return scaled


def _within_classes(
    values: Float[np.ndarray, "rows images"], strata: Integer[np.ndarray, " images"]
) -> Float[np.ndarray, "rows images"]:
    """Less the mean of the image's class, scaled so that squares sum to the variance of the mean of all n images."""
    n = values.shape[1]
    classes = np.unique(strata, return_inverse=True)[1]
    members = np.bincount(classes)
    if members.min() == 1:
        classes, members = np.zeros(n, dtype=np.int64), np.array([n])
    if n == 1:
        return np.full(values.shape, np.nan)
    means = np.stack([np.bincount(classes, row) / members for row in values])
    unbiased = np.sqrt(members / (members - 1))
    scaled: Float[np.ndarray, "rows images"] = (values - means[:, classes]) * unbiased[classes] / n
    return scaled


def _mean(values: Float[np.ndarray, " values"]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _known(part: Float[np.ndarray, "subsets subsets"]) -> float:
    """The mean of a component over the subsets that can tell, 0 where none can: it is then in the others."""
    return float(np.nan_to_num(_mean(np.diag(part))))
