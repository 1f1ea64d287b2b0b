"""Shapes in signatures are really checked while tests run."""

from dataclasses import dataclass

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float

from fca.stats.similarity import class_similarity, silhouette
from tests import jaxtyped


@jaxtyped
def first(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return values[:1]


@jaxtyped
@dataclass
class Pair:
    left: Float[np.ndarray, " n"]
    right: Float[np.ndarray, " n"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: class_similarity(np.ones(3), np.zeros(3, int)),  # an axis too few
        lambda: class_similarity(np.ones((3, 2)), np.zeros(4, int)),  # not as many labels as images
        lambda: class_similarity(np.ones((3, 2)), np.zeros(3)),  # labels are integers
        lambda: silhouette(np.ones(3), np.ones((3, 2))),
        lambda: first(np.ones(2)),  # the result has another shape
        lambda: Pair(np.ones(2), np.ones(3)),
    ],
)
def test_wrong_shapes_are_refused(call):
    with pytest.raises(BeartypeCallHintViolation):
        call()


def test_right_shapes_are_not():
    assert first(np.ones(1)) == 1
    assert len(Pair(np.ones(2), np.ones(2)).left) == 2
