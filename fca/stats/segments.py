"""Quarters of items: where they are cut on clean images, and where those same cuts put images under a shift.

Which segments a model solves is Table 3 of Sharma et al. (Do models see corruption as we see?, 2023); which classes are
in the outer quarters, their Figure 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from fca.stats.intervals import wilson
from fca.types import FcaError

QUARTERS = 4
SEGMENTS = ("easy", "med_easy", "med_hard", "hard")  # quarters by rising hardness
LEVELS = ("low", "med_low", "med_high", "high")  # quarters by rising discrimination
DIGITS = 9  # values that agree so far are tied: a fit gives the same answers the same value up to rounding


class Cuts(NamedTuple):
    """The last item of each quarter but the highest: its value, and its place among items of the same value."""

    value: Float[np.ndarray, " cuts"]
    order: Integer[np.ndarray, " cuts"]


class Share(NamedTuple):
    """Right answers among n, as a fraction with Wilson's 95 % interval; NaN where nothing was asked."""

    right: Integer[np.ndarray, "subjects segments"]
    n: Integer[np.ndarray, "subjects segments"]
    share: Float[np.ndarray, "subjects segments"]
    low: Float[np.ndarray, "subjects segments"]
    high: Float[np.ndarray, "subjects segments"]


def quarter_cuts(value: Float[np.ndarray, " items"], order: Integer[np.ndarray, " items"]) -> Cuts:
    """Where to cut items into four parts of rising value, their sizes as equal as possible (they differ by 1 at most).

    value: hardness (1 - expected success, or difficulty) or discrimination.
    order: who comes first among equal values; all different.    Raises FcaError for fewer than four items.

    >>> quarter_cuts(np.array([0.4, 0.1, 0.2, 0.9]), np.arange(4)).value
    array([0.1, 0.2, 0.4])
    """
    if len(value) < QUARTERS:
        raise FcaError("items to cut into quarters", len(value), f"{QUARTERS} or more", "read answers on more items")
    rounded = value.round(DIGITS)
    sorted_items = np.lexsort((order, rounded))
    last = sorted_items[np.arange(1, QUARTERS) * len(value) // QUARTERS - 1]
    return Cuts(rounded[last], order[last])


def quarters(
    value: Float[np.ndarray, " items"], order: Integer[np.ndarray, " items"], cuts: Cuts
) -> Integer[np.ndarray, " items"]:
    """The quarter of every item, 0 (lowest) to 3: how many cuts its value is above.

    An item as high as a cut is above it if its `order` is. So an image whose value a shift leaves alone stays in its
    quarter, and items that cannot be told apart do not all move together.

    >>> clean = np.array([0.1, 0.1, 0.1, 0.9])
    >>> cuts = quarter_cuts(clean, np.arange(4))
    >>> quarters(clean, np.arange(4), cuts), quarters(clean + 0.2, np.arange(4), cuts)
    (array([0, 1, 2, 3]), array([3, 3, 3, 3]))
    """
    rounded = value.round(DIGITS)[:, None]
    above = (rounded > cuts.value) | ((rounded == cuts.value) & (order[:, None] > cuts.order))
    return np.asarray(above.sum(axis=1))


def class_counts(
    quarter: Integer[np.ndarray, " items"], label: Integer[np.ndarray, " items"], classes: int
) -> Integer[np.ndarray, "classes quarters"]:
    """How many items of each class (label 0 to classes - 1) each quarter holds.

    >>> class_counts(np.array([0, 3, 3]), np.array([0, 0, 1]), 2)
    array([[1, 0, 0, 1],
           [0, 0, 0, 1]])
    """
    cells = np.bincount(label * QUARTERS + quarter, minlength=classes * QUARTERS)
    return cells.reshape(classes, QUARTERS)


def segment_shares(correct: Float[np.ndarray, "subjects items"], quarter: Integer[np.ndarray, " items"]) -> Share:
    """How much of each quarter every subject solves, of what it was asked.

    correct: 1, 0, or NaN for not asked.

    >>> segment_shares(np.array([[1.0, 0.0, np.nan, 1.0]]), np.array([0, 0, 0, 3])).share
    array([[0.5, nan, nan, 1. ]])
    """
    member = (quarter[:, None] == np.arange(QUARTERS)).astype(float)
    n = (~np.isnan(correct) @ member).astype(np.int64)
    right = (np.nan_to_num(correct) @ member).round().astype(np.int64)
    share = np.divide(right, n, out=np.full(n.shape, np.nan), where=n > 0)
    pairs = zip(right.ravel().tolist(), n.ravel().tolist(), strict=True)
    ends = np.array([wilson(r, asked) if asked else (np.nan, np.nan) for r, asked in pairs]).reshape(*n.shape, 2)
    return Share(right, n, share, ends[..., 0], ends[..., 1])
