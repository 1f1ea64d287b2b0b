"""Top-1 accuracy of one classifier on few classes, from logits that were computed once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Integer

from fca.nouns import FcaError


def open_top1(logits: Float[np.ndarray, "images logits"], true: Integer[np.ndarray, " images"]) -> float:
    """Accuracy when the classifier may answer any class it knows: the arg max over all logits.

    This is how the Few-Class Arena scores its full models (FC-Full, arXiv:2411.01099 section 3.4).
    logits: of the images to be scored only.    true: the column of each image's class.
    Equal logits: the first column is the answer. Raises FcaError if there is no image.

    >>> open_top1(np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), np.array([0, 1]))
    0.5
    """
    _check(true)
    return float((_largest(logits) == true).mean())


def masked_top1(
    logits: Float[np.ndarray, "images logits"],
    columns: Integer[np.ndarray, " subset"],
    true: Integer[np.ndarray, " images"],
) -> float:
    """Accuracy when the classifier is told which classes there are: the arg max over the logits of `columns` alone.

    Images of other classes are not the subset's and are left out, so the logits of a whole data set answer any subset.
    Never below open_top1 of the same images. Raises FcaError if no image is of these classes.

    >>> logits = np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 2.0], [1.0, 1.0, 9.0]])
    >>> masked_top1(logits, np.array([0, 1]), true=np.array([0, 1, 2]))
    1.0
    """
    rows = np.flatnonzero(np.isin(true, columns))
    _check(rows)
    answers = columns[_largest(np.take(logits[rows], columns, axis=1))]
    return float((answers == true[rows]).mean())


def _largest(logits: Float[np.ndarray, "images logits"]) -> Integer[np.ndarray, " images"]:
    """The arg max of each row; half precision is widened first, which takes a third of the time."""
    wide = logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)
    largest: Integer[np.ndarray, " images"] = wide.argmax(axis=1)
    return largest


def _check(images: Integer[np.ndarray, " images"]) -> None:
    if not len(images):
        raise FcaError("images of these classes", 0, "at least one", "take another subset or split")
