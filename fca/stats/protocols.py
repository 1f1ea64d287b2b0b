"""Top-1 accuracy of one classifier on few classes, from logits that were computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Integer
from scipy.special import logsumexp

from fca.types import FcaError

Logits = Float[np.ndarray, "images logits"]
Images = Integer[np.ndarray, " images"]
Columns = Integer[np.ndarray, " subset"]


def logit_columns(logit_classes: Sequence[str], classes: Sequence[str]) -> Int[np.ndarray, " classes"]:
    """The column of each class among the logits of a classifier; -1 for a class that it does not know.

    logit_classes: class keys of the logits, in order.
    classes:       class keys of the data, in label order.

    >>> logit_columns(["cat", "dog"], ["dog", "eel", "cat"])
    array([ 1, -1,  0])
    """
    column_of_class = {key: column for column, key in enumerate(logit_classes)}
    return np.array([column_of_class.get(key, -1) for key in classes], dtype=np.int64)


def open_top1(logits: Logits, true: Images) -> float:
    """Accuracy when the classifier may predict any class it knows: the arg max over all logits.

    This is how the Few-Class Arena scores its full models (FC-Full, arXiv:2411.01099 section 3.4).
    logits: of the images to be scored only.
    true:   the column of each image's class.
    Equal logits: the first column is the prediction. Raises FcaError if there is no image.

    >>> open_top1(np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), np.array([0, 1]))
    0.5
    """
    _check_not_empty(true)
    return float((_arg_max(logits) == true).mean())


def masked_top1(logits: Logits, columns: Columns, true: Images) -> float:
    """Accuracy when the classifier knows the classes of the subset: the arg max over the logits of `columns` alone.

    Images of other classes are left out, so the logits of a whole data set serve any subset.
    Never below open_top1 of the same images. Raises FcaError if no image is of these classes.

    >>> logits = np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 2.0], [1.0, 1.0, 9.0]])
    >>> masked_top1(logits, np.array([0, 1]), true=np.array([0, 1, 2]))
    1.0
    """
    rows = np.flatnonzero(np.isin(true, columns))
    _check_not_empty(rows)
    return float((masked_answers(logits[rows], columns) == true[rows]).mean())


def masked_answers(logits: Logits, columns: Columns) -> Images:
    """The column that a classifier predicts when only these are allowed; of equal logits the first of `columns`.

    >>> masked_answers(np.array([[3.0, 1.0, 9.0], [0.0, 1.0, 2.0]]), np.array([0, 1]))
    array([0, 1])
    """
    allowed_logits = np.take(logits, columns, axis=1)
    return columns[_arg_max(allowed_logits)]


def grouped_top1(logits: Logits, group: Integer[np.ndarray, " logits"], true: Images) -> tuple[float, int]:
    """Accuracy of predicted groups of classes, such as dog and not dog, and the number of images that it is over.

    The predicted group has the largest sum of softmax(logits) over its columns (model-vs-human, arXiv:2106.07411, takes
    their mean instead). Images whose class is in no group are left out.

    group: number of each column's group, 0..groups-1; -1 for a class in no group, whose probability counts for none.
    true:  the column of each image's class.
    Raises FcaError for fewer than two groups, and if no image's class is in a group.

    >>> logits = np.array([[2.5, 2.5, 3.0, 9.0], [0.0, 0.0, 3.0, 9.0]])
    >>> grouped_top1(logits, np.array([0, 0, 1, -1]), true=np.array([0, 3]))
    (1.0, 1)
    """
    groups = np.unique(group[group >= 0])
    if len(groups) < 2:
        raise FcaError("groups of these classes", len(groups), "two or more", "give groups of this data set's classes")

    is_in_group = group[true] >= 0
    _check_not_empty(np.flatnonzero(is_in_group))
    double_logits = logits[is_in_group].astype(np.float64)

    # log p(group) up to a constant of the image: images x groups
    log_sums = np.empty((len(double_logits), len(groups)))
    for column, code in enumerate(groups):
        log_sums[:, column] = logsumexp(double_logits[:, group == code], axis=1)
    predicted_group = groups[log_sums.argmax(axis=1)]
    true_group = group[true[is_in_group]]
    return float((predicted_group == true_group).mean()), len(true_group)


def _arg_max(logits: Logits) -> Images:
    """The arg max of each row; half precision is widened first, which takes a third of the time."""
    at_least_single = np.promote_types(logits.dtype, np.float32)
    return logits.astype(at_least_single, copy=False).argmax(axis=1)


def _check_not_empty(images: Images) -> None:
    if not len(images):
        raise FcaError("images of these classes", 0, "at least one", "take another subset or split")
