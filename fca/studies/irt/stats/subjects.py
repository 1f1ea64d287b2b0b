"""Subjects whose responses no scale of ability describes."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Shaped

NEARLY = 0.95  # of the items


def one_class(
    correct: Float[np.ndarray, "subjects items"], labels: Shaped[np.ndarray, " items"]
) -> Bool[np.ndarray, " subjects"]:
    """Which subjects answer one class nearly always, as an early snapshot of a training may.

    They are right on at least 95 % of the items of one label, and on at most 5 % of all others. Their accuracy is that
    class's share, whatever their ability, and those of different classes disagree on every item, so that one scale
    cannot hold them: ability then no longer orders all subjects as accuracy does. Simulated, 2PL, 90 subjects, 20 of
    them so on a yes-no task whose commoner answer is right in 62 %: Kendall's tau 0.79 to 0.87 in five draws, without
    any 0.98, and among the other 70 in the same fit 0.96 to 0.98 (experiments/irt_corruption/one_class.py). With ten
    classes of equal size 20 such subjects leave it at 0.95 to 0.98.

    correct: 1 right, 0 wrong, NaN missing.    labels: of the items; missing ones (None, NaN) are left out. With fewer
    than two labels no subject can be judged, and none is named.

    >>> correct = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0]], dtype=float)
    >>> one_class(correct, np.array(["no", "no", "yes", "yes"]))
    array([ True, False, False])
    """
    is_labelled = np.array([isinstance(label, str) for label in labels], dtype=bool)
    names, code = np.unique(labels[is_labelled].astype(str), return_inverse=True)
    if len(names) < 2:
        return np.zeros(len(correct), dtype=bool)

    # Responses and right responses of each subject to each class, and to all other classes: subjects x classes
    member = (code[:, None] == np.arange(len(names))).astype(float)
    responses = correct[:, is_labelled]
    n_class = ~np.isnan(responses) @ member
    right_class = np.nan_to_num(responses) @ member
    n_others = n_class.sum(axis=1, keepdims=True) - n_class
    right_others = right_class.sum(axis=1, keepdims=True) - right_class

    has_both = (n_class > 0) & (n_others > 0)
    nearly_always_class = right_class >= NEARLY * n_class
    nearly_never_others = right_others <= (1 - NEARLY) * n_others
    return (has_both & nearly_always_class & nearly_never_others).any(axis=1)
