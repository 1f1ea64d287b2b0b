"""Subjects that answer a single class, whose responses no scale of ability describes."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Shaped

NEARLY_ALL = 0.95  # share of the items of a class


def one_class(
    correct: Float[np.ndarray, "subjects items"], labels: Shaped[np.ndarray, " items"]
) -> Bool[np.ndarray, " subjects"]:
    """Which subjects predict a single class nearly always, as an early snapshot of a training may.

    Such a subject is right on at least 95 % of the items of one class, and on at most 5 % of all other items. Its
    accuracy is the share of that class, whatever its ability. Two such subjects with different classes disagree on
    nearly every item of these classes. So no single scale of ability describes them, and with many of them ability no
    longer orders all subjects as accuracy does.

    Simulated with a 2PL of 90 subjects, 20 of whom predict a single class of two, the commoner of which has 62 % of the
    items: Kendall's tau of ability with accuracy is 0.79 to 0.87 in five draws, among the other 70 in the same fit 0.96
    to 0.98, and 0.98 without such subjects (experiments/irt_corruption/one_class.py). With ten classes of equal size,
    20 such subjects leave it at 0.95 to 0.98.

    correct: 1 right, 0 wrong, NaN missing.
    labels: class of each item; items without one (None, NaN) are left out.

    With fewer than two classes no subject can be judged, and all are False.

    >>> correct = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0]], dtype=float)
    >>> one_class(correct, np.array(["no", "no", "yes", "yes"]))
    array([ True, False, False])
    """
    has_label = np.array([isinstance(label, str) for label in labels], dtype=bool)
    class_names, class_of_item = np.unique(labels[has_label].astype(str), return_inverse=True)  # item -> class 0..k-1
    if len(class_names) < 2:
        return np.zeros(len(correct), dtype=bool)

    is_item_of_class = (class_of_item[:, None] == np.arange(len(class_names))).astype(float)  # items x classes
    labelled = correct[:, has_label]
    n_answered = ~np.isnan(labelled) @ is_item_of_class  # subjects x classes, as are all below
    n_right = np.nan_to_num(labelled) @ is_item_of_class
    n_answered_elsewhere = n_answered.sum(axis=1, keepdims=True) - n_answered
    n_right_elsewhere = n_right.sum(axis=1, keepdims=True) - n_right

    is_tested = (n_answered > 0) & (n_answered_elsewhere > 0)  # has responses to the class and to other classes
    is_right_on_class = n_right >= NEARLY_ALL * n_answered
    is_wrong_elsewhere = n_right_elsewhere <= (1 - NEARLY_ALL) * n_answered_elsewhere
    return (is_tested & is_right_on_class & is_wrong_elsewhere).any(axis=1)
