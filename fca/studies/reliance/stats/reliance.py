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
from fca.stats.intervals import EVERYWHERE, FEWEST_DRAWS, UNKNOWN_ESTIMATE, Estimated, jackknife_interval
from fca.types import FcaError, check_choice

CLASSES = "classes"
IMAGES = "images"
OVER = (CLASSES, IMAGES)
RELEASED = "released"
ROUNDING = 1e-9  # by which a mean of accuracies may leave [0, 1]
Share = Num[np.ndarray, "*values"] | float | int
Values = Num[np.ndarray, "conditions images"]
Labels = Integer[np.ndarray, " images"]
PerImage = Float[np.ndarray, " images"]
Maps = Float[np.ndarray, "images height width"]
Masks = Bool[np.ndarray, "images height width"]


def relative_foreground_sensitivity(acc_foreground: Share, acc_background: Share, compat: str | None = None) -> Any:
    """How much more accuracy noise in the object costs than noise around it.

    1 is the largest difference that is possible at this mean accuracy, with noise in the object costing more; -1 is the
    same with noise around it costing more; 0 means that both cost the same.

    RFS = (a_bg - a_fg) / (2 min(m, 1 - m)),   m = (a_fg + a_bg) / 2        (arXiv:2201.10766; Hard ImageNet, sec. 4.2)

    2 min(m, 1 - m) is the largest difference that two accuracies with the mean m can have. At m = 0 and 1 it is 0, and
    RFS is NaN.

    acc_foreground, acc_background: accuracies in [0, 1] with noise in the object, and around it; two floats or two
                                    arrays of equal shape. The result has the same shape.
    compat: None, or "released" for 0 instead of NaN, as in the authors' released code.
    Raises FcaError for an accuracy outside [0, 1] and for another compat.

    >>> relative_foreground_sensitivity(0.5, 0.75), relative_foreground_sensitivity(1.0, 1.0, "released")
    (0.3333333333333333, 0.0)
    """
    check_choice("compat", compat, (None, RELEASED))
    foreground = _accuracies("acc_foreground", acc_foreground)
    background = _accuracies("acc_background", acc_background)

    # 2 min(m, 1 - m), with m = (foreground + background) / 2 multiplied out
    largest_difference = np.minimum(foreground + background, (1 - foreground) + (1 - background))
    undefined_value = 0.0 if compat == RELEASED else np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (background - foreground) / largest_difference
    sensitivity = np.where(largest_difference == 0, undefined_value, ratio)
    sensitivity = np.clip(sensitivity, -1.0, 1.0)  # where one accuracy is 0 or 1, rounding may lead beyond 1
    return sensitivity if sensitivity.ndim else float(sensitivity)


def _accuracies(name: str, shares: Share) -> Float[np.ndarray, "*values"]:
    """The accuracies as an array, clipped to [0, 1]; NaN stays.

    Only a mean of accuracies that rounding took beyond 0 or 1 (by at most ROUNDING) is clipped. For a value farther
    outside, FcaError is raised with this name and value.
    """
    accuracies = np.asarray(shares, float)
    out_of_range = accuracies[(accuracies < -ROUNDING) | (accuracies > 1 + ROUNDING)].tolist()
    if out_of_range:
        raise FcaError(name, out_of_range[0], "an accuracy between 0 and 1", "give fractions, not percent")
    return np.asarray(np.clip(accuracies, 0.0, 1.0))


def class_accuracy(
    right: Shaped[np.ndarray, "*conditions images"], labels: Labels, classes: int
) -> Float[np.ndarray, "*conditions classes"]:
    """The accuracy of each class: the mean of `right` over the images of the class, for each condition separately.

    NaN for a class without images.

    right:   conditions x images, or images alone: 1 or True where a prediction is right, or the share of the draws of
             noise under which it is right. (Any other number per image is averaged in the same way.)
    labels:  class of each image, 0 .. classes - 1.
    classes: number of classes.

    >>> class_accuracy(np.array([[1, 0, 1], [0, 0, 1]]), np.array([0, 0, 1]), 2)
    array([[0.5, 1. ],
           [0. , 1. ]])
    """
    is_of_class = (labels[:, None] == np.arange(classes)).astype(float)  # images x classes
    with np.errstate(invalid="ignore"):
        return (right.astype(float) @ is_of_class) / is_of_class.sum(axis=0)


@dataclass(frozen=True)
class ClassMeans:
    """Under each condition (a change of the images) the mean over classes of the classes' accuracies.

    mean:     that mean, for each condition.
    left_out: the means that remain when one class, or one image, is left out in turn; jackknife intervals need them.
              If classes are left out, it has a single array: conditions x classes. If images are left out, it has an
              array for each class: conditions x images of that class.
    """

    mean: Float[np.ndarray, " conditions"]
    left_out: tuple[Float[np.ndarray, "conditions _"], ...]

    def estimate(
        self, function: Callable[..., Any], *conditions: int, within: tuple[float, float] = EVERYWHERE
    ) -> Estimated:
        """A function of the means under these conditions, such as a ratio of two accuracies, with its 95 % interval.

        Value and interval are NaN where the function is undefined.

        function:   also takes arrays, element by element, for the means with one class or image left out.
        conditions: positions of the conditions whose means are the function's arguments, in their order.
        within:     the range of the function; the interval stays inside it.
        """
        with np.errstate(divide="ignore", invalid="ignore"):  # a ratio to an accuracy of 0
            value = float(function(*self.mean[list(conditions)]))
            left_out = [np.asarray(function(*means[list(conditions)]), dtype=float) for means in self.left_out]
        if not np.isfinite(value):
            return UNKNOWN_ESTIMATE
        low, high = jackknife_interval(value, *left_out, within=within)
        return Estimated(value, low, high)


def class_means(values: Values, labels: Labels, over: str = CLASSES) -> ClassMeans:
    """Under each condition the mean over classes of the class means, and what a jackknife interval of it needs.

    Only classes that have images count.

    With the means a_k of K classes, class k having n_k images of values v_i:

        mean                         a = sum_k a_k / K
        without class k              (sum_j a_j - a_k) / (K - 1)
        without image i of class k   a + (a_k - v_i) / ((n_k - 1) K)

    values: conditions x images; 1 where an image is predicted right under a condition, else 0, or any other number.
    labels: class of each image.
    over:   "classes" leaves out each class with all of its images: intervals then hold for other classes of this kind.
            "images" leaves out each image within its class: intervals hold for these classes alone. With fewer than
            FEWEST_DRAWS classes images are left out whatever `over` is. There is then no interval if a class has a
            single image, whose variance is not known.
    Raises FcaError without images, and for another `over`.

    >>> values, labels = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 1, 0]]), np.arange(5)
    >>> means = class_means(values, labels)
    >>> [round(end, 2) for end in means.estimate(lambda clean, grey: grey / clean, 0, 1, within=(0.0, 1.0))]
    [0.67, 0.0, 1.0]
    """
    check_choice("over", over, OVER)
    if not len(labels):
        raise FcaError("images of these classes", 0, "at least one", "give images with an object and surroundings")

    present, class_of_image, counts = np.unique(labels, return_inverse=True, return_counts=True)
    n_classes = len(present)
    by_class = class_accuracy(values, class_of_image, n_classes)  # conditions x classes
    mean = by_class.mean(axis=1)

    # each class is left out; classes are one kind of random draws, so that there is one array
    if over == CLASSES and n_classes >= FEWEST_DRAWS:
        without_class = (by_class.sum(axis=1, keepdims=True) - by_class) / (n_classes - 1)
        return ClassMeans(mean, (without_class,))

    # each image is left out; the images of each class are draws of their own, with an array of their own
    without_image = []
    for index, n in enumerate(counts.tolist()):
        values_of_class = values[:, class_of_image == index].astype(float)  # conditions x images of the class
        class_mean = values_of_class.mean(axis=1, keepdims=True)
        # 0 / 1 for a class of a single image: without it the class has no mean; `jackknife_interval` returns NaN then
        change_of_class_mean = (class_mean - values_of_class) / max(n - 1, 1)
        without_image.append(mean[:, None] + change_of_class_mean / n_classes)
    return ClassMeans(mean, tuple(without_image))


def grouped_right(
    logits: Float[np.ndarray, "images logits"], group: Integer[np.ndarray, " logits"], true: Labels
) -> PerImage:
    """For each image 1 if its true class is in the predicted group of classes, 0 if not; NaN if it is in no group.

    The predicted group has the largest sum of its classes' probabilities, as in `fca.stats.protocols.grouped_top1`.

    group: the group of the class in each column of the logits; -1 for a class in no group.
    true:  for each image the column of its true class.

    >>> logits = np.array([[2.5, 2.5, 3.0, 9.0], [0.0, 0.0, 3.0, 9.0]])
    >>> grouped_right(logits, np.array([0, 0, 1, -1]), np.array([0, 3]))
    array([ 1., nan])
    """
    groups = np.unique(group[group >= 0])
    # log of a group's summed probability, plus a number that is the same for all groups of an image
    log_sums = [logsumexp(logits[:, group == number].astype(float), axis=1) for number in groups]
    predicted_group = groups[np.stack(log_sums, axis=1).argmax(axis=1)]

    true_group = group[true]
    return np.where(true_group < 0, np.nan, predicted_group == true_group)


def rank_stability(first: Float[np.ndarray, " classes"], second: Float[np.ndarray, " classes"]) -> Estimated:
    """Spearman's correlation over classes between the values of two models, with its 95 % interval over classes.

    A class for which a model has no value (NaN) is left out. The result is NaN where the correlation is not defined,
    for example without any class.

    first, second: a value for each class, in the same order of classes.

    >>> rank_stability(np.array([0.1, 0.4, 0.2, np.nan]), np.array([0.3, 0.9, 0.5, 0.1])).value
    1.0
    """
    is_defined = ~(np.isnan(first) | np.isnan(second))
    if not is_defined.any():
        return UNKNOWN_ESTIMATE

    x = first[is_defined]
    y = second[is_defined]
    each_class_alone = np.arange(len(x))  # the jackknife leaves out one class in turn
    low, high = correlation_interval(x, y, each_class_alone, "spearman")
    return Estimated(correlation(x, y, "spearman").r, low, high)


# Saliency


def mask_iou(salient: Masks, mask: Masks) -> PerImage:
    """For each image the intersection over union of its salient pixels and its object's mask.

    It is 0 for an image without a salient pixel, and NaN for one with an empty mask (Hard ImageNet, Moayeri et al.
    2022, section 4.3).

    >>> mask_iou(np.array([[[True, True, False]]]), np.array([[[False, True, True]]])).round(3)
    array([0.333])
    """
    intersection = (salient & mask).sum(axis=(1, 2))
    union = (salient | mask).sum(axis=(1, 2))
    has_object = mask.sum(axis=(1, 2)) > 0
    return _ratio(intersection, union, where=has_object)


def mass_inside(saliency: Maps, mask: Masks) -> PerImage:
    """For each image the share of its saliency that is on the object: a sum over the object divided by the total.

    NaN for an empty mask and for a map of zeros. For comparison: the share of a uniform map equals the object's share
    of the image.

    saliency: maps without negative values.
    mask:     True on the object.

    >>> mass_inside(np.array([[[3.0, 1.0]]]), np.array([[[True, False]]]))
    array([0.75])
    """
    on_object = (saliency * mask).sum(axis=(1, 2), dtype=np.float64)
    total = saliency.sum(axis=(1, 2), dtype=np.float64)
    has_object = mask.sum(axis=(1, 2)) > 0
    return _ratio(on_object, total, where=has_object & (total > 0))


def density_gap(saliency: Maps, mask: Masks) -> PerImage:
    """For each image the mean saliency on the object minus the mean off it; NaN where one of the regions is empty.

    >>> density_gap(np.array([[[0.75, 0.25, 0.0]]]), np.array([[[True, False, False]]]))
    array([0.625])
    """
    means = []
    for region in (mask, ~mask):
        n_pixels = region.sum(axis=(1, 2))
        total = (saliency * region).sum(axis=(1, 2), dtype=np.float64)
        means.append(_ratio(total, n_pixels, where=n_pixels > 0))
    mean_on_object, mean_off_object = means
    return mean_on_object - mean_off_object


def _ratio(
    numerator: Num[np.ndarray, " images"],
    denominator: Num[np.ndarray, " images"],
    where: Bool[np.ndarray, " images"],
) -> PerImage:
    """numerator / denominator where the condition `where` holds, and NaN elsewhere, without a warning of numpy."""
    return np.divide(numerator, denominator, out=np.full(len(where), np.nan), where=where)


def centre_distance(mask: Bool[np.ndarray, "height width"]) -> float:
    """How far the centroid of the object is from the image's centre, as a share of half the diagonal (0 to 1).

    NaN for an empty mask.

    >>> centre_distance(np.ones((2, 2), bool)), round(centre_distance(np.array([[True, False]])), 3)
    (0.0, 0.447)
    """
    if not mask.any():
        return float("nan")
    centroid = np.mean(np.nonzero(mask), axis=1) + 0.5  # row and column; a pixel's centre is half a pixel in
    down, across = centroid - np.array(mask.shape) / 2
    half_diagonal = np.hypot(*mask.shape) / 2
    return float(np.hypot(down, across) / half_diagonal)
