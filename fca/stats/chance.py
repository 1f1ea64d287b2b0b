"""Whether an accuracy is better than guessing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

from fca.stats.intervals import wilson


def guessing_accuracy(labels: Shaped[np.ndarray, " images"]) -> float:
    """Accuracy of always predicting the most frequent of these labels; 1 / classes where all are equally frequent.

    Not 1 / classes: a network that learned nothing often predicts a single class, and is then right on 90 % of 90 cats
    and 10 dogs. Raises ValueError without images.

    >>> guessing_accuracy(np.array(["cat", "cat", "cat", "dog"]))
    0.75
    """
    if not len(labels):
        raise ValueError("no images: guessing has no accuracy")
    _, counts = np.unique(labels, return_counts=True)
    return float(counts.max() / len(labels))


def is_at_chance(low: float, guess: float) -> bool:
    """Whether an accuracy with this lower end of its 95 % interval is at the level of chance, or below it.

    Then the images do not show that the model learned anything, and nothing should be derived from its predictions:
    the cost of a corruption, confused classes, suspicious labels. An accuracy that is truly at chance counts as better
    in 2.5 % of cases. False if the end or the guess is unknown (NaN).

    >>> is_at_chance(0.45, 0.5), is_at_chance(0.51, 0.5), is_at_chance(float("nan"), 0.5)
    (True, False, False)
    """
    return bool(low <= guess)


def count_is_at_chance(right: float, n: int, guess: float) -> bool:
    """Whether `right` of n independent images are at the level of chance, by Wilson's interval.

    >>> count_is_at_chance(30, 50, 0.5), count_is_at_chance(40, 50, 0.5)
    (True, False)
    """
    low, _ = wilson(round(right), n)
    return is_at_chance(low, guess)
