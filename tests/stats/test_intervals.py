"""Intervals against scipy's, and the bootstrap against what it must and must not resample."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fca.stats.intervals import (
    FEWEST_DRAWS,
    bootstrap_mean,
    cluster_draws,
    mean_with_interval,
    percentile_interval,
    point_weights,
    t_mean,
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
    values, cluster = np.array([0.2, 0.5, 0.6, 0.7, 0.9]), np.arange(5)
    for interval, n in ((bootstrap_mean, 5), (t_mean, 3)):
        repeated = interval(np.repeat(values[:n], 50), np.repeat(cluster[:n], 50))
        assert repeated == pytest.approx(interval(values[:n], cluster[:n]))


def test_a_fixed_point_pulls_the_mean_of_every_resample():
    low, high = bootstrap_mean(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), np.array([0, 1, 2, 3, 4, -1]))
    assert (low, high) == pytest.approx((1 / 6, 1 / 6))


@pytest.mark.parametrize("values", [[0.5, 0.7], [0.9, 0.9], [1.0, 1.0, 1.0]])
def test_one_draw_and_few_that_are_all_alike_have_no_interval(values):
    cluster = np.zeros(2, int) if values == [0.5, 0.7] else np.arange(len(values))
    assert np.isnan([*bootstrap_mean(np.array(values), cluster), *t_mean(np.array(values), cluster)]).all()


def test_an_interval_needs_half_of_the_resamples_to_be_defined():
    some = np.array([np.nan, 1.0, 2.0, 3.0])
    assert percentile_interval(some, FEWEST_DRAWS, level=0.5) == pytest.approx((1.5, 2.5))
    assert np.isnan(percentile_interval(np.array([np.nan, np.nan, 2.0, 3.0]), FEWEST_DRAWS)).all()


def test_a_bootstrap_of_four_draws_gives_no_interval():
    assert np.isnan(percentile_interval(np.arange(100.0), FEWEST_DRAWS - 1)).all()
    assert np.isnan(bootstrap_mean(np.array([0.1, 0.2, 0.3, 0.4]), np.arange(4))).all()


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_mean_of_few_draws_has_the_t_interval_of_scipy(n):
    values = np.random.default_rng(n).normal(size=n)
    reference = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert mean_with_interval(values)[1:] == pytest.approx((reference.low, reference.high))
    narrow = (values.mean() - 0.01, values.mean() + 0.01)
    assert mean_with_interval(values, within=narrow)[1:] == narrow


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 2), (1, 4, 2), (1, 1, 1, 1), (1, 2, 3, 2), (1, 1, 1, 1, 1)])
@pytest.mark.slow
def test_intervals_of_the_mean_of_three_to_five_normal_draws_hold_the_true_mean(sizes):
    rng, cluster = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    inside = []
    for effect in rng.normal(size=(1000, len(sizes))):
        _, low, high = mean_with_interval(effect[cluster], cluster)
        inside.append(low <= 0 <= high)
    share = np.mean(inside)  # standard error 0.007
    if len(sizes) == FEWEST_DRAWS:  # the bootstrap is too narrow: 84 % of intervals hold the mean
        assert share == pytest.approx(0.84, abs=0.03)
    else:  # exact for clusters of one size; of others, where a ratio is linearised, close to it
        assert share == pytest.approx(0.95, abs=0.02 if len(set(sizes)) == 1 else 0.05)


def test_a_mean_with_its_interval_is_that_of_the_resampled_groups():
    values = pd.Series([0.1, 0.2, 0.4, np.nan, 0.8, 0.3, 0.5, 0.6])
    seeds = pd.array([3, 3, 1, 7, None, 4, 5, 6], dtype="Int64")
    mean, *ends = mean_with_interval(values, pd.Series(seeds))
    assert mean == pytest.approx(2.9 / 7, abs=1e-15)
    known = np.array([0.1, 0.2, 0.4, 0.8, 0.3, 0.5, 0.6])
    assert tuple(ends) == bootstrap_mean(known, np.array([0, 0, 1, -1, 2, 3, 4]))


def test_a_mean_with_its_interval_resamples_single_values_without_groups():
    values = np.array([1, 2, 4, 5, 9])
    assert mean_with_interval(values, seed=3)[1:] == bootstrap_mean(values, np.arange(5), seed=3)


@pytest.mark.parametrize("values", [np.array([]), np.array([np.nan])])
def test_a_mean_of_no_values_is_missing(values):
    assert np.isnan(mean_with_interval(values)).all()
