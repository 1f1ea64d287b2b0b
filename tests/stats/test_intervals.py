"""Intervals against scipy's, against other ways to the same numbers, and their level by simulation."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fca.stats.intervals import (
    FEWEST_DRAWS,
    FISHER_Z,
    LOG,
    balanced_accuracy,
    cluster_draws,
    freedom_of_mean,
    jackknife_interval,
    left_out_weights,
    mean_interval,
    mean_with_interval,
    percentile_interval,
    point_weights,
    widened_level,
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


@pytest.mark.parametrize(
    ("images", "low", "high"),
    [
        *(([20] * 2, low, high) for low, high in ((0.99, 1.0), (0.9, 0.99), (0.5, 0.95))),
        *(([5] * 20, low, high) for low, high in ((0.99, 1.0), (0.9, 0.99), (0.5, 0.95))),
        *(([260, 260, 30], low, high) for low, high in ((0.99, 1.0), (0.9, 0.99), (0.3, 0.7))),
        *(([100] * 9 + [5], low, high) for low, high in ((0.99, 1.0), (0.9, 0.99), (0.3, 0.7))),
        *(([10] * 60, low, high) for low, high in ((0.99, 1.0), (0.9, 0.99), (0.3, 0.7))),
    ],
)
def test_the_interval_of_a_balanced_accuracy_holds_its_level(images, low, high):
    """1,200 tests of classifiers whose classes differ: a standard error of 0.6 %."""
    assert coverage_over_classes(images, lambda rng: rng.uniform(low, high, len(images))) > 0.95 - 4 * 0.0063


@pytest.mark.parametrize(
    ("images", "accuracy"),
    [
        ([500, 20, 5], [0.99, 0.9, 0.5]),
        ([260, 260, 30], [0.97, 0.97, 0.4]),
        ([500, 10], [0.99, 0.6]),
        ([500, 5], [0.99, 0.8]),
        ([500, 5], [0.99, 0.5]),
    ],
)
def test_it_nearly_holds_its_level_where_the_rare_class_is_the_hard_one(images, accuracy):
    assert coverage_over_classes(images, lambda rng: np.array(accuracy)) > 0.925 - 4 * 0.0076


def coverage_over_classes(images, draw_accuracies):
    rng = np.random.default_rng(0)
    contains_truth = []
    for _ in range(1200):
        accuracies = draw_accuracies(rng)
        _, low, high = balanced_accuracy(rng.binomial(images, accuracies), np.array(images))
        contains_truth.append(low <= accuracies.mean() <= high)
    return np.mean(contains_truth)


@given(st.lists(st.integers(0, 20), min_size=2, max_size=6))
def test_with_as_many_images_of_each_class_it_is_that_of_an_accuracy(correct):
    balanced = balanced_accuracy(np.array(correct), np.full(len(correct), 20))
    images = 20 * len(correct)
    low, high = wilson(sum(correct), images)
    assert balanced == pytest.approx((sum(correct) / images, low, high))


@pytest.mark.parametrize(("correct", "images"), [([1, 0], [1, 0]), ([3, 1], [2, 1]), ([-1, 1], [2, 2])])
def test_a_balanced_accuracy_of_counts_that_cannot_be_is_refused(correct, images):
    with pytest.raises(ValueError, match="a class needs 1 image or more"):
        balanced_accuracy(np.array(correct), np.array(images))


def test_points_of_one_cluster_are_drawn_together_and_the_fixed_ones_stay():
    weights = point_weights(np.array([0, 1, 0, -1, 2, 1]), resamples=500)
    assert (weights[:, 0] == weights[:, 2]).all()
    assert (weights[:, 1] == weights[:, 5]).all()
    assert (weights[:, 3] == 1).all()
    assert (weights[:, [0, 1, 4]].sum(axis=1) == 3).all()
    assert weights[:, 0].mean() == pytest.approx(1, abs=0.15)  # 500 draws of variance 2/3: standard error 0.04


def test_what_was_not_drawn_is_never_left_out():
    assert (point_weights(np.array([-1, -1]), resamples=7) == 1).all()
    assert left_out_weights(np.array([-1, 0, -1, 1])).tolist() == [[1, 0, 1, 1], [1, 1, 1, 0]]
    assert np.isnan(mean_interval(np.array([0.1, 0.9]), np.array([-1, -1]))).all()


def test_the_same_seed_gives_the_same_draws():
    assert (cluster_draws(5, seed=3) == cluster_draws(5, seed=3)).all()
    assert (cluster_draws(5, seed=3) != cluster_draws(5, seed=4)).any()


def students(values):
    reference = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    return reference.low, reference.high


@pytest.mark.parametrize("values", [[0.2, 0.9], [0.1, 0.5, 0.9], [0.3, 0.4, 0.5, 0.6], [1, 2, 2, 3, 4, 4, 5]])
def test_a_mean_of_draws_without_skewness_has_students_interval(values):
    numbers = np.array(values, dtype=float)
    assert mean_with_interval(numbers)[1:] == pytest.approx(students(numbers), abs=1e-12)


@pytest.mark.parametrize(("n", "seed"), [(3, 0), (5, 1), (20, 2)])
def test_a_mean_of_skewed_draws_has_the_interval_of_halls_transformation(n, seed):
    values = np.random.default_rng(seed).exponential(size=n)
    root_n = n**0.5
    t = scipy.stats.t.ppf(0.975, n - 1)
    skewness = scipy.stats.skew(values)

    def transformed(statistic):  # Hall 1992, with Student's quantiles for the normal ones
        linear = statistic + skewness / (6 * root_n)
        return linear + skewness * statistic**2 / (3 * root_n) + skewness**2 * statistic**3 / (27 * n)

    def inverse(quantile):
        return scipy.optimize.brentq(lambda statistic: transformed(statistic) - quantile, -1e4, 1e4)

    statistics = np.clip([inverse(t), inverse(-t)], -2 * t, 2 * t)  # at most twice as far away as Student's
    expected = values.mean() - statistics * values.std(ddof=1) / root_n
    assert mean_with_interval(values)[1:] == pytest.approx(expected, rel=1e-6)


def test_the_interval_of_a_mean_is_cut_off_at_the_range_of_the_quantity():
    values = np.array([0.2, 0.9, 0.4])
    narrow = (values.mean() - 0.01, values.mean() + 0.01)
    assert mean_with_interval(values, within=narrow)[1:] == narrow


def test_repeating_the_points_of_a_cluster_does_not_make_it_surer():
    values, cluster = np.array([0.2, 0.5, 0.6, 0.7, 0.9]), np.arange(5)
    repeated = mean_interval(np.repeat(values, 50), np.repeat(cluster, 50))
    assert repeated == pytest.approx(mean_interval(values, cluster))


def test_a_fixed_point_pulls_the_interval_and_adds_no_doubt():
    values, cluster = np.array([0.0, 0.2, 0.4]), np.arange(3)
    low, high = mean_interval(values, cluster)

    # half of the points are fixed at 1: the mean is 0.6, and leaving out a drawn one moves it less than half as much
    with_fixed = np.append(values, [1.0, 1.0, 1.0])
    low_with_fixed, high_with_fixed = mean_interval(with_fixed, np.append(cluster, [-1, -1, -1]))
    assert (low_with_fixed + high_with_fixed) / 2 == pytest.approx(0.6, abs=0.01)
    assert high_with_fixed - low_with_fixed < (high - low) / 2


@pytest.mark.parametrize("values", [[0.5, 0.7], [0.9, 0.9], [1.0, 1.0, 1.0], [0.95] * 7])
def test_one_draw_and_draws_that_are_all_alike_have_no_interval(values):
    cluster = np.zeros(2, int) if values == [0.5, 0.7] else np.arange(len(values))
    assert np.isnan(mean_interval(np.array(values), cluster)).all()


def test_the_jackknife_of_two_kinds_adds_their_variances_with_satterthwaites_freedom():
    rng = np.random.default_rng(0)
    errors = 50 + rng.exponential(size=(6, 1)) + rng.exponential(size=(1, 4))  # models x groups
    by_model = errors.mean(axis=1)
    by_group = errors.mean(axis=0)
    without_model = np.array([np.delete(by_model, k).mean() for k in range(6)])
    without_group = np.array([np.delete(by_group, k).mean() for k in range(4)])
    low, high = jackknife_interval(errors.mean(), without_model, without_group, scale=LOG)

    # the delta method; the jackknife of a logarithm is near it
    model_variance = by_model.var(ddof=1) / 6
    group_variance = by_group.var(ddof=1) / 4
    variance = model_variance + group_variance
    freedom = variance**2 / (model_variance**2 / 5 + group_variance**2 / 3)
    half_width = scipy.stats.t.ppf(0.975, freedom) * variance**0.5 / errors.mean()
    log_ends = np.log([low, high]) - np.log(errors.mean())
    assert log_ends == pytest.approx([-half_width, half_width], rel=0.02)


@pytest.mark.parametrize("undefined", [np.nan, 1.0, 1 - 1e-16, -1.0])
def test_a_correlation_that_is_undefined_or_perfect_without_a_draw_has_no_interval(undefined):
    assert np.isnan(jackknife_interval(0.5, np.array([0.4, 0.6, undefined]), scale=FISHER_Z)).all()
    assert np.isnan(jackknife_interval(undefined, np.array([0.4, 0.6, 0.5]), scale=FISHER_Z)).all()


def test_a_kind_of_a_single_draw_gives_no_interval():
    assert np.isnan(jackknife_interval(0.5, np.array([0.5]))).all()
    assert np.isnan(jackknife_interval(0.5, np.array([0.4, 0.6]), np.array([0.5]))).all()
    assert np.isnan(jackknife_interval(0.5)).all()


def test_a_percentile_interval_needs_half_of_the_resamples_to_be_defined():
    values = np.append(np.arange(100.0), np.nan)
    low, high = percentile_interval(values, FEWEST_DRAWS)
    tail = (1 - widened_level(FEWEST_DRAWS)) / 2
    assert (low, high) == pytest.approx((99 * tail, 99 * (1 - tail)))
    assert np.isnan(percentile_interval(np.array([np.nan, np.nan, 2.0, 3.0]), FEWEST_DRAWS)).all()
    assert np.isnan(percentile_interval(np.arange(100.0), FEWEST_DRAWS - 1)).all()


def coverage(draw, true_mean, n, repeats=2000):
    """Share of the intervals that contain the true mean, of those that exist."""
    samples = draw(np.random.default_rng(0), (repeats, n))
    intervals = np.array([mean_with_interval(values)[1:] for values in samples])
    low, high = intervals[~np.isnan(intervals[:, 0])].T
    return np.mean((low <= true_mean) & (true_mean <= high))


@pytest.mark.parametrize("n", [5, 20])
def test_intervals_of_normal_draws_hold_their_level(n):
    share = coverage(lambda rng, shape: rng.normal(size=shape), 0.0, n)
    assert share == pytest.approx(0.95, abs=0.015)  # 2,000 repeats: standard error 0.005; a bootstrap has 0.85 at 5


def test_accuracies_near_1_are_covered_too():
    share = coverage(lambda rng, shape: rng.beta(18, 1, size=shape), 18 / 19, 10)
    assert share == pytest.approx(0.94, abs=0.015)  # Student's interval has 0.90


SIZES = [(1, 1, 1), (2, 2, 2), (1, 4, 2), (1, 2, 3, 2), (1, 2, 3, 10, 30), (5, 5, 5, 5, 1, 1, 1, 1), (3, 4, 5, 6, 7)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.slow
def test_intervals_of_clusters_of_any_size_hold_the_true_mean(sizes):
    rng, cluster = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    inside = []
    for effect in rng.normal(size=(2000, len(sizes))):
        _, low, high = mean_with_interval(effect[cluster], cluster)
        inside.append(low <= 0 <= high)
    # standard error 0.005; with as much freedom as of equal clusters 0.83 of (1, 2, 3, 10, 30), 0.90 of the next
    assert 0.93 <= np.mean(inside) <= (0.965 if len(set(sizes)) == 1 else 0.99)


COUNTS = ([4, 4, 4], [1, 2, 3, 10, 30], [5, 5, 5, 5, 1, 1, 1, 1], [7, 1, 1], [1, 100_000], [1, 1, 1, 1, 30_000])


@pytest.mark.parametrize("counts", COUNTS)
def test_the_freedom_of_a_mean_is_that_of_its_quadratic_form(counts):
    """One cluster with nearly all points ended in ZeroDivisionError, or in 0.28 degrees of freedom."""
    share = np.array([Fraction(count, sum(counts)) for count in counts])  # exact
    deviations = np.diag(share) @ (np.eye(len(counts), dtype=int) - np.outer(np.ones(len(counts), dtype=int), share))
    form = deviations.T @ deviations  # the estimated variance is x' form x
    expected = float(np.trace(form) ** 2 / np.trace(form @ form))
    assert freedom_of_mean(np.array(counts)) == pytest.approx(expected, rel=1e-12)
    assert freedom_of_mean(np.array([0, *counts])) == pytest.approx(expected, rel=1e-12)


def test_a_mean_with_its_interval_is_that_of_the_groups():
    values = pd.Series([0.1, 0.2, 0.4, np.nan, 0.8, 0.3, 0.5, 0.6])
    seeds = pd.array([3, 3, 1, 7, None, 4, 5, 6], dtype="Int64")
    mean, low, high = mean_with_interval(values, pd.Series(seeds))

    present = np.array([0.1, 0.2, 0.4, 0.8, 0.3, 0.5, 0.6])
    cluster = np.array([0, 0, 1, -1, 2, 3, 4])
    assert mean == pytest.approx(2.9 / 7, abs=1e-15)
    assert (low, high) == mean_interval(present, cluster)


@pytest.mark.parametrize("values", [np.array([]), np.array([np.nan])])
def test_a_mean_of_no_values_is_missing(values):
    assert np.isnan(mean_with_interval(values)).all()
