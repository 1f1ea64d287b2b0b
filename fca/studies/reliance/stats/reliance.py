"""Does a classifier see the object or its surroundings? Accuracies by class when one of the two is changed.

Accuracies are unweighted means of class accuracies, as in Hard ImageNet (Moayeri et al. 2022) and RIVAL10
(arXiv:2201.10766); noise is averaged over its draws first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer, Num, Shaped
from scipy.special import logsumexp

from fca.stats.correlation import correlation, correlation_interval
from fca.stats.intervals import EVERYWHERE, FEWEST_DRAWS, UNKNOWN, Estimated, jackknife_interval
from fca.types import FcaError, check_choice

CLASSES, IMAGES = OVER = ("classes", "images")
RELEASED = "released"
Share = Num[np.ndarray, "*values"] | float | int
Values = Num[np.ndarray, "conditions images"]
Labels = Integer[np.ndarray, " images"]


def relative_foreground_sensitivity(acc_foreground: Share, acc_background: Share, compat: str | None = None) -> Any:
    """How much more accuracy noise in the object costs than noise around it: 1 = only noise in it does, -1 = around it.

    RFS = (a_bg - a_fg) / (2 min(m, 1 - m)),   m = (a_fg + a_bg) / 2        (arXiv:2201.10766; Hard ImageNet, sec. 4.2)

    2 min(m, 1 - m) is the largest difference of two accuracies with this mean. NaN at m = 0 and 1, where it is 0.

    acc_foreground, acc_background: accuracies in [0, 1] with noise in the object, and around it.
    compat: released = 0 instead of NaN, as in the released code.
    A float for two floats. Raises FcaError for an accuracy outside [0, 1] and another compat.

    >>> relative_foreground_sensitivity(0.5, 0.75), relative_foreground_sensitivity(1.0, 1.0, "released")
    (0.3333333333333333, 0.0)
    """
    check_choice("compat", compat, (None, RELEASED))
    foreground, background = np.asarray(acc_foreground, float), np.asarray(acc_background, float)
    for name, values in (("acc_foreground", foreground), ("acc_background", background)):
        if wrong := values[(values < 0) | (values > 1)].tolist():  # NaN is no such value
            raise FcaError(name, wrong[0], "an accuracy between 0 and 1", "give fractions, not percent")
    room = np.minimum(foreground + background, (1 - foreground) + (1 - background))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(room == 0, 0.0 if compat == RELEASED else np.nan, (background - foreground) / room)
    found = np.clip(found, -1.0, 1.0)  # rounding where one of the two is 0 or 1
    return found if found.ndim else float(found)


def class_accuracy(
    right: Shaped[np.ndarray, "*conditions images"], labels: Labels, classes: int
) -> Float[np.ndarray, "*conditions classes"]:
    """Mean over the images of each class (labels 0..classes-1), under each condition; NaN for a class without images.

    right: 1 or True where a prediction is right (a share of draws, or any other value of an image).

    >>> class_accuracy(np.array([[1, 0, 1], [0, 0, 1]]), np.array([0, 0, 1]), 2)
    array([[0.5, 1. ],
           [0. , 1. ]])
    """
    member = (labels[:, None] == np.arange(classes)).astype(float)
    with np.errstate(invalid="ignore"):
        return (right.astype(float) @ member) / member.sum(axis=0)


@dataclass(frozen=True)
class ClassMeans:
    """Means over classes, and the same with each draw left out: one array a kind of draws (see jackknife_interval)."""

    mean: Float[np.ndarray, " conditions"]
    left_out: tuple[Float[np.ndarray, "conditions _"], ...]

    def estimate(
        self, function: Callable[..., Any], *conditions: int, within: tuple[float, float] = EVERYWHERE
    ) -> Estimated:
        """A function of the means of these conditions, with its interval; within: the range of the function."""
        with np.errstate(divide="ignore", invalid="ignore"):  # a ratio to an accuracy of 0
            value = float(function(*self.mean[list(conditions)]))
            left_out = [np.asarray(function(*kind[list(conditions)]), dtype=float) for kind in self.left_out]
        if not np.isfinite(value):
            return UNKNOWN
        return Estimated(value, *jackknife_interval(value, *left_out, within=within))


def class_means(values: Values, labels: Labels, over: str = CLASSES) -> ClassMeans:
    """Class means of values in every condition, averaged over the classes that have images.

    over: classes = intervals are about other such classes: each is left out with all of its images;
          images = about these classes alone: images are left out within their class; also below FEWEST_DRAWS classes.
          No interval with a class of a single image, whose variance they do not show.
    Raises FcaError without images, and for another `over`.

    >>> values, labels = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 1, 0]]), np.arange(5)
    >>> means = class_means(values, labels)
    >>> [round(end, 2) for end in means.estimate(lambda clean, grey: grey / clean, 0, 1, within=(0.0, 1.0))]
    [0.67, 0.0, 1.0]
    """
    check_choice("over", over, OVER)
    if not len(labels):
        raise FcaError("images of these classes", 0, "at least one", "give images with an object and surroundings")
    known, code, counts = np.unique(labels, return_inverse=True, return_counts=True)
    by_class = class_accuracy(values, code, len(known))
    mean = by_class.mean(axis=1)
    if over == CLASSES and len(known) >= FEWEST_DRAWS:
        return ClassMeans(mean, ((by_class.sum(axis=1, keepdims=True) - by_class) / (len(known) - 1),))

    of_images = []
    for index, n in enumerate(counts.tolist()):
        own = values[:, code == index].astype(float)
        change = (own.mean(axis=1, keepdims=True) - own) / max(n - 1, 1)  # of the class's mean without each image
        of_images.append(mean[:, None] + change / len(known))
    return ClassMeans(mean, tuple(of_images))


def grouped_right(
    logits: Float[np.ndarray, "images logits"], group: Integer[np.ndarray, " logits"], true: Labels
) -> Float[np.ndarray, " images"]:
    """Whether the group with the largest summed probability is that of the image's class; NaN: its class has none.

    As `fca.stats.protocols.grouped_top1`, image by image.    group: of every column, -1 for none.    true: columns.

    >>> logits = np.array([[2.5, 2.5, 3.0, 9.0], [0.0, 0.0, 3.0, 9.0]])
    >>> grouped_right(logits, np.array([0, 0, 1, -1]), np.array([0, 3]))
    array([ 1., nan])
    """
    known = np.unique(group[group >= 0])
    sums = np.stack([logsumexp(logits[:, group == g].astype(float), axis=1) for g in known], axis=1)
    return np.where(group[true] < 0, np.nan, known[sums.argmax(axis=1)] == group[true])


def rank_stability(first: Float[np.ndarray, " classes"], second: Float[np.ndarray, " classes"]) -> Estimated:
    """Spearman's correlation of two models' values of the same classes, with its interval over classes.

    A class without a value (NaN) in either is left out. NaN where it is not defined.

    >>> rank_stability(np.array([0.1, 0.4, 0.2, np.nan]), np.array([0.3, 0.9, 0.5, 0.1])).value
    1.0
    """
    there = ~(np.isnan(first) | np.isnan(second))
    if not there.any():
        return UNKNOWN
    x, y = first[there], second[there]
    interval = correlation_interval(x, y, np.arange(len(x)), "spearman")
    return Estimated(correlation(x, y, "spearman").r, *interval)


# Saliency


def mask_iou(
    salient: Bool[np.ndarray, "images height width"], mask: Bool[np.ndarray, "images height width"]
) -> Float[np.ndarray, " images"]:
    """Intersection over union of the salient pixels and the object; NaN where the object's mask is empty.

    An image without a salient pixel has 0 (Hard ImageNet, Moayeri et al. 2022, section 4.3).

    >>> mask_iou(np.array([[[True, True, False]]]), np.array([[[False, True, True]]])).round(3)
    array([0.333])
    """
    inside, either = ((part).sum(axis=(1, 2)) for part in (salient & mask, salient | mask))
    return np.divide(inside, either, out=np.full(len(mask), np.nan), where=mask.any(axis=(1, 2)))


def mass_inside(
    saliency: Float[np.ndarray, "images height width"], mask: Bool[np.ndarray, "images height width"]
) -> Float[np.ndarray, " images"]:
    """Share of a non-negative map's sum inside the object; NaN for an empty mask and for a map of zeros.

    A map that ignores the object has the object's share of the image.

    >>> mass_inside(np.array([[[3.0, 1.0]]]), np.array([[[True, False]]]))
    array([0.75])
    """
    inside, whole = (part.sum(axis=(1, 2), dtype=np.float64) for part in (saliency * mask, saliency))
    return np.divide(inside, whole, out=np.full(len(mask), np.nan), where=mask.any(axis=(1, 2)) & (whole > 0))


def density_gap(
    saliency: Float[np.ndarray, "images height width"], mask: Bool[np.ndarray, "images height width"]
) -> Float[np.ndarray, " images"]:
    """Mean of a map on the object minus its mean off it; NaN where either region is empty.

    >>> density_gap(np.array([[[0.75, 0.25, 0.0]]]), np.array([[[True, False, False]]]))
    array([0.625])
    """
    means = []
    for region in (mask, ~mask):
        n, total = region.sum(axis=(1, 2)), (saliency * region).sum(axis=(1, 2), dtype=np.float64)
        means.append(np.divide(total, n, out=np.full(len(mask), np.nan), where=n > 0))
    return means[0] - means[1]


def centre_distance(mask: Bool[np.ndarray, "height width"]) -> float:
    """Distance of the object's centroid from the image's centre, in half diagonals: 0 to 1; NaN for an empty mask.

    >>> centre_distance(np.ones((2, 2), bool)), round(centre_distance(np.array([[True, False]])), 3)
    (0.0, 0.447)
    """
    if not mask.any():
        return float("nan")
    at = np.mean(np.nonzero(mask), axis=1) + 0.5 - np.array(mask.shape) / 2
    return float(np.hypot(*at) / (np.hypot(*mask.shape) / 2))
