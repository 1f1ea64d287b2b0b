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
    them so on a yes-no task whose commoner answer is right in 62 %: Kendall's tau .79 to .87 in five draws, without any
    .98, and among the other 70 in the same fit .96 to .98 (experiments/irt_corruption/one_class.py). With ten classes
    of equal size 20 such subjects leave it at .95 to .98.

    correct: 1 right, 0 wrong, NaN missing.    labels: of the items; missing ones (None, NaN) are left out. With fewer
    than two labels no subject can be judged, and none is named.

    >>> correct = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0]], dtype=float)
    >>> one_class(correct, np.array(["no", "no", "yes", "yes"]))
    array([ True, False, False])
    """
    found = np.zeros(len(correct), dtype=bool)
    known = np.array([isinstance(label, str) for label in labels], dtype=bool)
    names, code = np.unique(labels[known].astype(str), return_inverse=True)
    if len(names) < 2:
        return found
    member = (code[:, None] == np.arange(len(names))).astype(float)
    answers = correct[:, known]
    answered = ~np.isnan(answers) @ member
    right = np.nan_to_num(answers) @ member
    others, right_others = answered.sum(1, keepdims=True) - answered, right.sum(1, keepdims=True) - right
    judged = (answered > 0) & (others > 0)
    return (judged & (right >= NEARLY * answered) & (right_others <= (1 - NEARLY) * others)).any(axis=1)
