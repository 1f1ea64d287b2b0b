"""Whether an accuracy is better than guessing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

from fca.stats.intervals import wilson


def guessing(labels: Shaped[np.ndarray, " images"]) -> float:
    """Accuracy of always predicting the most frequent of these labels; 1 / classes where all are equally frequent.

    Not 1 / classes: a network that learned nothing often predicts one class, and of 90 cats and 10 dogs it is then
    right on 90 %. Raises ValueError without images.

    >>> guessing(np.array(["cat", "cat", "cat", "dog"]))
    0.75
    """
    if not len(labels):
        raise ValueError("no images: guessing has no accuracy")
    _, counts = np.unique(labels, return_counts=True)
    return float(counts.max() / len(labels))


def at_chance(low: float, guess: float) -> bool:
    """Whether an accuracy with this lower end of its 95 % interval is at the level of chance, or below it.

    Then the images do not show that anything was learned, and nothing is to be derived from the predictions: what a
    corruption costs, which classes are confused, which labels look wrong. An accuracy that is truly at chance counts
    as better in 2.5 % of cases. An end or a guess that is unknown (NaN) decides nothing: False.

    >>> at_chance(0.45, 0.5), at_chance(0.51, 0.5), at_chance(float("nan"), 0.5)
    (True, False, False)
    """
    return bool(low <= guess)


def right_at_chance(right: float, n: int, guess: float) -> bool:
    """The same for `right` of n independent images, by Wilson's interval.

    >>> right_at_chance(30, 50, 0.5), right_at_chance(40, 50, 0.5)
    (True, False)
    """
    return at_chance(wilson(round(right), n)[0], guess)
