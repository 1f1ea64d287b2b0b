"""Reliance on surroundings: the formula against hand-computed cases and laws, resampling against literal loops."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from fca.stats.intervals import jackknife_interval
from fca.stats.protocols import grouped_top1
from fca.studies.reliance.stats.reliance import (
    class_accuracy,
    class_means,
    grouped_right,
    rank_stability,
)
from fca.studies.reliance.stats.reliance import relative_foreground_sensitivity as rfs
from fca.types import FcaError

share = st.floats(0, 1)
hundredths = st.integers(0, 100)


@pytest.mark.parametrize(
    ("foreground", "background", "expected"),
    [(0.5, 0.5, 0), (0, 0.4, 1), (0.6, 1, 1), (0.4, 0, -1), (0.5, 0.75, 1 / 3), (0.2, 0.4, 1 / 3), (0.9, 0.8, -1 / 3)],
)
def test_rfs_of_cases_computed_by_hand(foreground, background, expected):
    assert rfs(foreground, background) == pytest.approx(expected, abs=1e-12)


@given(share, share)
def test_rfs_changes_its_sign_when_object_and_surroundings_are_exchanged(a, b):
    assume(0 < a + b < 2)
    assert rfs(a, b) == -rfs(b, a)


@given(share, share)
def test_rfs_lies_between_minus_one_and_one(a, b):
    assume(0 < a + b < 2)
    assert -1 <= rfs(a, b) <= 1


@given(hundredths, hundredths)
def test_rfs_of_errors_is_that_of_accuracies_exchanged(a, b):
    """In hundredths: of 1 - 1e-17 nothing is left."""
    assume(0 < a + b < 200)
    assert rfs(1 - b / 100, 1 - a / 100) == pytest.approx(rfs(a / 100, b / 100), abs=1e-9)  # 1e-16 / 0.01 of each


@given(hundredths, hundredths)
def test_rfs_is_extreme_only_where_one_accuracy_is_all_or_nothing(a, b):
    """Below .5 the largest difference needs an accuracy of 0, above it one of 1."""
    assume(0 < a + b < 200)
    at_end = min(a, b) == 0 if a + b <= 100 else max(a, b) == 100
    assert (abs(rfs(a / 100, b / 100)) > 1 - 1e-9) == at_end


@pytest.mark.parametrize("both", [0.0, 1.0])
def test_rfs_is_not_defined_where_no_difference_is_possible(both):
    assert np.isnan(rfs(both, both))
    assert rfs(both, both, compat="released") == 0


def test_rfs_of_arrays_is_that_of_their_values():
    foreground, background = np.array([0.5, 0.0, 1.0]), np.array([0.75, 0.0, 1.0])
    assert rfs(foreground, background).tolist() == pytest.approx([1 / 3, np.nan, np.nan], nan_ok=True)
    assert rfs(foreground, background, "released").tolist() == pytest.approx([1 / 3, 0, 0])


def test_percent_are_no_accuracies():
    with pytest.raises(FcaError, match=r"acc_background = 62\.0; allowed: an accuracy between 0 and 1"):
        rfs(0.5, 62.0)
    with pytest.raises(FcaError, match=r"acc_foreground = -0\.1"):
        rfs(np.array([0.5, -0.1]), 0.5)
    with pytest.raises(FcaError, match="compat = paper; allowed: None, released"):
        rfs(0.5, 0.5, "paper")


def test_a_mean_that_rounding_carries_past_one_is_an_accuracy():
    """Of 5 classes of 6 images one image is wrong: without it the mean of class means is 1.0000000000000002."""
    labels = np.repeat(np.arange(5), 6)
    right = np.ones((2, 30))
    right[1, 0] = 0
    means = class_means(right, labels, "images")
    assert max(left_out.max() for left_out in means.left_out) > 1

    assert means.estimate(rfs, 1, 0, within=(-1.0, 1.0)).value == 1.0


@pytest.fixture
def answers():
    """Three conditions of 60 images in 6 classes of unequal size; the second has shares of draws."""
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(6), [4, 16, 10, 10, 12, 8])
    return np.stack([rng.random(60) < 0.8, rng.integers(0, 4, 60) / 3, rng.random(60) < 0.4]).astype(float), labels


def test_class_accuracy_is_the_mean_of_each_class(answers):
    values, labels = answers
    loop = [[np.mean([v for v, c in zip(row, labels, strict=True) if c == k]) for k in range(6)] for row in values]
    assert class_accuracy(values, labels, 6) == pytest.approx(np.array(loop), abs=1e-12)
    assert np.isnan(class_accuracy(values, labels, 7)[:, 6]).all()


def test_leaving_out_a_class_takes_all_of_its_images(answers):
    values, labels = answers
    means = class_means(values, labels)
    of_class = np.array([[row[labels == k].mean() for k in range(6)] for row in values])
    [left_out] = means.left_out
    np.testing.assert_allclose(left_out.T, [np.delete(of_class, k, axis=1).mean(axis=1) for k in range(6)], atol=1e-12)
    assert means.mean == pytest.approx(of_class.mean(axis=1))


def test_leaving_out_an_image_keeps_every_class(answers):
    values, labels = answers
    means = class_means(values, labels, over="images")
    for at, left_out in enumerate(means.left_out):
        for image, own in zip(np.flatnonzero(labels == at), left_out.T, strict=True):
            others = np.delete(values, image, axis=1), np.delete(labels, image)
            assert own == pytest.approx(class_accuracy(*others, 6).mean(axis=1))


def test_intervals_over_images_add_the_variances_of_the_classes(answers):
    values, labels = answers
    low, high = class_means(values, labels, over="images").estimate(np.positive, 1)[1:]
    shares = [values[1][labels == k] for k in range(6)]
    variances = np.array([part.var(ddof=1) / len(part) for part in shares]) / 36
    freedom = variances.sum() ** 2 / sum(v**2 / (len(s) - 1) for v, s in zip(variances, shares, strict=True))
    width = 2 * scipy.stats.t.ppf(0.975, freedom) * variances.sum() ** 0.5
    assert high - low == pytest.approx(width, rel=0.05)  # the correction for skewness widens it a little


def test_of_four_classes_images_are_left_out(answers):
    values, labels = answers[0][:, 4:50], answers[1][4:50]
    few, over_images = (class_means(values, labels, over) for over in ("classes", "images"))
    assert few.estimate(np.positive, 0) == over_images.estimate(np.positive, 0)


def test_a_ratio_has_the_jackknife_interval_of_the_ratios_without_each_class(answers):
    values, labels = answers
    means = class_means(values, labels)
    value, low, high = means.estimate(lambda clean, grey: grey / clean, 0, 2)
    assert value == means.mean[2] / means.mean[0]
    [left_out] = means.left_out
    assert (low, high) == jackknife_interval(value, left_out[2] / left_out[0])


def test_no_image_has_no_accuracy():
    with pytest.raises(FcaError, match="images of these classes = 0"):
        class_means(np.zeros((2, 0)), np.zeros(0, np.int64))
    with pytest.raises(FcaError, match="over = pixels; allowed: classes, images"):
        class_means(np.zeros((2, 1)), np.zeros(1, np.int64), over="pixels")


def test_grouped_predictions_have_the_accuracy_of_the_grouped_protocol():
    rng = np.random.default_rng(0)
    logits, group, true = rng.normal(size=(40, 7)), np.array([0, 2, 1, -1, 2, 0, 1]), rng.integers(0, 7, 40)
    right = grouped_right(logits, group, true)
    assert np.isnan(right).tolist() == (true == 3).tolist()
    assert (np.nanmean(right), (~np.isnan(right)).sum()) == grouped_top1(logits, group, true)


def test_the_stability_of_ranks_is_spearmans_with_an_interval_around_it():
    rng = np.random.default_rng(1)
    first = rng.random(20)
    second = np.where(np.arange(20) == 7, np.nan, first + 0.2 * rng.random(20))
    value, low, high = rank_stability(first, second)
    assert value == pytest.approx(spearmanr(first, second, nan_policy="omit").statistic)
    assert low < value < high
    assert np.isnan(rank_stability(first[:2], np.array([np.nan, np.nan])).value)
