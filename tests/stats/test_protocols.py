"""Accuracy on class subsets from stored logits."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.stats.protocols import masked_top1, open_top1
from fca.types import FcaError


@st.composite
def answers(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    classes, images = draw(st.integers(2, 8)), draw(st.integers(1, 50))
    return rng.normal(size=(images, classes)).astype(np.float32), rng.integers(0, classes, size=images)


@settings(deadline=None)
@given(answers(), st.data())
def test_masked_equals_a_loop_over_images_and_is_never_below_open(drawn, data):
    logits, true = drawn
    columns = data.draw(st.lists(st.integers(0, logits.shape[1] - 1), min_size=1, unique=True))
    inside = [i for i in range(len(true)) if true[i] in columns]
    if not inside:
        return
    right = [max(columns, key=lambda c: logits[i][c]) == true[i] for i in inside]
    masked = masked_top1(logits, np.array(columns), true)
    assert masked == pytest.approx(np.mean(right))
    assert masked >= open_top1(logits[inside], true[inside])


@given(answers())
def test_all_columns_masked_is_open(drawn):
    logits, true = drawn
    assert masked_top1(logits, np.arange(logits.shape[1]), true) == open_top1(logits, true)


def test_open_accuracy_averaged_over_all_pairs_of_equal_classes_is_the_full_accuracy():
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(6), 20)
    logits = rng.normal(size=(120, 6)) + 2 * np.eye(6)[true]
    pairs = [np.isin(true, pair) for pair in itertools.combinations(range(6), 2)]
    mean = np.mean([open_top1(logits[inside], true[inside]) for inside in pairs])
    assert mean == pytest.approx(open_top1(logits, true))


def test_half_precision_from_a_memory_map_is_fine(tmp_path):
    logits = np.array([[1.0, 3.0, 2.0], [5.0, 1.0, 0.0]], dtype=np.float16)
    np.save(tmp_path / "logits.npy", logits)
    stored = np.load(tmp_path / "logits.npy", mmap_mode="r")
    assert masked_top1(stored, np.array([0, 2]), np.array([2, 0])) == 1.0
    assert open_top1(stored, np.array([2, 0])) == 0.5


def test_no_image_has_no_accuracy():
    logits = np.eye(3)
    with pytest.raises(FcaError, match="images of these classes = 0"):
        masked_top1(logits, np.array([2]), np.array([0, 1, 1]))
    with pytest.raises(FcaError, match="images of these classes = 0"):
        open_top1(logits[:0], np.array([], dtype=np.int64))
