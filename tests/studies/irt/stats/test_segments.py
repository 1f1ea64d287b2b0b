"""Quarters by hand and against numpy's own sorting; the same cuts wherever images go; Wilson's interval of a share."""

import numpy as np
import pytest

from fca.stats.intervals import wilson
from fca.studies.irt.stats.segments import class_counts, quarter_cuts, quarters, segment_shares
from fca.types import FcaError


def of(values, order=None, clean=None):
    order = np.arange(len(values)) if order is None else np.asarray(order)
    values = np.asarray(values, dtype=float)
    clean = values if clean is None else np.asarray(clean, dtype=float)
    return quarters(values, order, quarter_cuts(clean, order)).tolist()


def test_eight_items_by_hand():
    assert of([0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4]) == [3, 0, 3, 0, 2, 1, 2, 1]


@pytest.mark.parametrize("items", range(4, 24))
def test_quarters_are_as_equal_as_possible_and_ascend(items):
    values = np.random.default_rng(items).permutation(items)
    found = np.array(of(values))
    sizes = np.bincount(found, minlength=4)
    assert sizes.max() - sizes.min() <= 1
    assert np.all(np.diff(found[np.argsort(values)]) >= 0)


def test_equal_items_are_parted_by_their_order_alone():
    order = [3, 1, 0, 2]
    assert of([0.5] * 4, order) == order


def test_rounding_does_not_part_equal_items():
    noise = 1e-13 * np.random.default_rng(0).normal(size=100)
    order = np.random.default_rng(1).permutation(100)
    assert of(0.5 + noise, order) == of(np.full(100, 0.5), order)


def test_images_that_a_shift_leaves_alone_stay_in_their_quarter_ties_included():
    rng = np.random.default_rng(0)
    clean, order = rng.integers(5, size=200) / 5, rng.permutation(200)
    before = of(clean, order)
    moved = clean.copy()
    moved[:50] += 0.3
    after = of(moved, order, clean=clean)
    assert after[50:] == before[50:]
    assert all(b >= a for a, b in zip(before, after, strict=True))


def test_cuts_are_values_and_a_shift_may_empty_a_quarter():
    clean = np.arange(8) / 10
    assert of(clean + 1.0, clean=clean) == [3] * 8
    assert of(clean - 1.0, clean=clean) == [0] * 8


def test_permuting_items_permutes_their_quarters():
    rng = np.random.default_rng(2)
    values, order, turned = rng.integers(6, size=50) / 6, rng.permutation(50), rng.permutation(50)
    assert np.array(of(values, order))[turned].tolist() == of(values[turned], order[turned])


def test_fewer_than_four_items_are_refused():
    with pytest.raises(FcaError, match="items to cut into quarters = 3; allowed: 4 or more"):
        quarter_cuts(np.zeros(3), np.arange(3))


def test_class_counts_are_counted_one_by_one():
    rng = np.random.default_rng(3)
    quarter, label = rng.integers(4, size=300), rng.integers(5, size=300)
    expected = [[int(((label == c) & (quarter == q)).sum()) for q in range(4)] for c in range(5)]
    assert class_counts(quarter, label, 5).tolist() == expected


def test_shares_are_of_what_was_asked_with_wilsons_interval():
    rng = np.random.default_rng(4)
    correct = rng.integers(2, size=(3, 40)).astype(float)
    correct[rng.random(correct.shape) < 0.3] = np.nan
    quarter = rng.integers(4, size=40)
    correct[1, quarter == 2] = np.nan
    found = segment_shares(correct, quarter)
    for subject in range(3):
        for q in range(4):
            own = correct[subject, quarter == q]
            own = own[~np.isnan(own)]
            assert found.n[subject, q] == len(own)
            if not len(own):
                assert np.isnan([found.share[subject, q], found.low[subject, q], found.high[subject, q]]).all()
                continue
            assert found.right[subject, q] == own.sum()
            assert found.share[subject, q] == own.mean()
            assert (found.low[subject, q], found.high[subject, q]) == wilson(int(own.sum()), len(own))
    assert np.isnan(found.share).sum() == 1
