"""Intervals against scipy's, and the bootstrap against what it must and must not resample."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fca.stats.intervals import (
    bootstrap_mean,
    cluster_draws,
    mean_with_interval,
    percentile_interval,
    point_weights,
    wilson,
)


@given(
    st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.5, 0.9, 0.95])
)
def test_wilson_equals_scipy(counts, level):
    correct, n = counts
    reference = scipy.stats.binomtest(correct, n).proportion_ci(level, method="wilson")
    assert wilson(correct, n, level) == pytest.approx((reference.low, reference.high), abs=1e-12)


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"),  # 95 % accuracy on 100, 80 and 58 test images
    [(95, 100, 0.888, 0.978), (76, 80, 0.878, 0.980), (55, 58, 0.859, 0.982)],
)
def test_wilson_gives_the_intervals_of_small_test_sets(correct, n, low, high):
    assert wilson(correct, n) == pytest.approx((low, high), abs=0.002)


@pytest.mark.parametrize(("correct", "n"), [(0, 0), (3, 2), (-1, 5)])
def test_wilson_refuses_counts_that_cannot_be(correct, n):
    with pytest.raises(ValueError, match=f"correct={correct} of n={n}"):
        wilson(correct, n)


def test_points_of_one_cluster_are_drawn_together_and_the_fixed_ones_stay():
    weights = point_weights(np.array([0, 1, 0, -1, 2, 1]), resamples=500)
    assert (weights[:, 0] == weights[:, 2]).all()
    assert (weights[:, 1] == weights[:, 5]).all()
    assert (weights[:, 3] == 1).all()
    assert (weights[:, [0, 1, 4]].sum(axis=1) == 3).all()
    assert weights[:, 0].mean() == pytest.approx(1, abs=0.15)  # 500 draws of variance 2/3: standard error 0.04


def test_what_was_not_drawn_is_never_resampled():
    assert (point_weights(np.array([-1, -1]), resamples=7) == 1).all()
    assert np.isnan(bootstrap_mean(np.array([0.1, 0.9]), np.array([-1, -1]))).all()


def test_the_same_seed_gives_the_same_draws():
    assert (cluster_draws(5, seed=3) == cluster_draws(5, seed=3)).all()
    assert (cluster_draws(5, seed=3) != cluster_draws(5, seed=4)).any()


def test_the_bootstrap_of_single_points_equals_scipy():
    values = np.random.default_rng(0).normal(size=40)
    reference = scipy.stats.bootstrap((values,), np.mean, n_resamples=9999, method="percentile", rng=1)
    ours = bootstrap_mean(values, np.arange(40))
    # Each end is a quantile from 2,000 (9,999) draws of a mean with standard error 0.16: good to about 0.01.
    assert ours == pytest.approx(reference.confidence_interval, abs=0.03)


def test_repeating_the_points_of_a_cluster_does_not_make_it_surer():
    values, cluster = np.array([0.2, 0.5, 0.6, 0.9]), np.arange(4)
    assert bootstrap_mean(np.repeat(values, 50), np.repeat(cluster, 50)) == pytest.approx(
        bootstrap_mean(values, cluster)
    )


def test_a_fixed_point_pulls_the_mean_of_every_resample():
    low, high = bootstrap_mean(np.array([0.0, 0.0, 1.0]), np.array([0, 1, -1]))
    assert (low, high) == pytest.approx((1 / 3, 1 / 3))


def test_one_draw_has_no_interval():
    assert np.isnan(bootstrap_mean(np.array([0.5, 0.7]), np.array([0, 0]))).all()


def test_an_interval_needs_half_of_the_resamples_to_be_defined():
    some = np.array([np.nan, 1.0, 2.0, 3.0])
    assert percentile_interval(some, level=0.5) == pytest.approx((1.5, 2.5))
    assert np.isnan(percentile_interval(np.array([np.nan, np.nan, 2.0, 3.0]))).all()


def test_a_mean_with_its_interval_is_that_of_the_resampled_groups():
    values = pd.Series([0.1, 0.2, 0.4, np.nan, 0.8])
    seeds = pd.array([3, 3, 1, 7, None], dtype="Int64")
    mean, *ends = mean_with_interval(values, pd.Series(seeds))
    assert mean == pytest.approx(0.375, abs=1e-15)
    assert tuple(ends) == bootstrap_mean(np.array([0.1, 0.2, 0.4, 0.8]), np.array([0, 0, 1, -1]))


def test_a_mean_with_its_interval_resamples_single_values_without_groups():
    values = np.array([1, 2, 4])
    assert mean_with_interval(values, seed=3)[1:] == bootstrap_mean(values, np.arange(3), seed=3)


@pytest.mark.parametrize("values", [np.array([]), np.array([np.nan])])
def test_a_mean_of_no_values_is_missing(values):
    assert np.isnan(mean_with_interval(values)).all()
