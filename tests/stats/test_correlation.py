"""Correlations against scipy's, and against resamples that are written out point by point."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.stats.correlation import correlation, correlation_interval, kendall, resampled_correlation

SCIPY = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}
methods = pytest.mark.parametrize("method", SCIPY)


def tied(seed, points=40):
    """Two related variables with many ties."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 8, size=points).astype(float)
    return x, np.round(x + rng.normal(scale=3, size=points))


@methods
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_over_all_points_it_equals_scipy(method, seed):
    x, y = tied(seed)
    reference = SCIPY[method](x, y)
    ours = correlation(x, y, method)
    assert (ours.r, ours.p) == pytest.approx((reference.statistic, reference.pvalue), abs=1e-10)
    assert ours.n == 40


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_within_groups_it_is_the_partial_correlation_given_the_group(seed):
    x, y = tied(seed)
    groups = np.arange(40) % 4
    dummies = (groups[:, None] == np.arange(4)).astype(float)

    def residuals(v):
        return v - dummies @ np.linalg.lstsq(dummies, v, rcond=None)[0]

    ours = correlation(x, y, groups=groups)
    r = scipy.stats.pearsonr(residuals(x), residuals(y)).statistic
    t = r * np.sqrt(35 / (1 - r**2))  # 40 points, 4 means, one slope
    assert (ours.r, ours.p) == pytest.approx((r, 2 * scipy.stats.t.sf(abs(t), 35)), abs=1e-10)


def test_within_groups_spearman_ranks_inside_each_group():
    def ranks_in_halves(values):
        return np.concatenate([scipy.stats.rankdata(half) for half in np.split(values, 2)])

    x, y = tied(3)
    groups = np.repeat([7, 2], 20)
    expected = correlation(ranks_in_halves(x), ranks_in_halves(y), groups=groups)
    assert correlation(x, y, "spearman", groups) == pytest.approx(expected)


@methods
def test_a_trend_between_groups_is_no_correlation_within_them(method):
    ncl = np.repeat([2, 3, 4, 5, 10, 100], 40)
    rng = np.random.default_rng(0)
    simss, top1 = (rng.normal(scale=0.5, size=len(ncl)) - np.log(ncl) for _ in range(2))
    assert correlation(simss, top1, method).r > 0.7
    within = correlation(simss, top1, method, ncl)
    assert abs(within.r) < 0.15  # 240 points: standard error 0.065
    assert within.p > 0.05


def test_a_few_ranks_in_order_are_no_proof():
    x = np.arange(5.0)
    reachable = scipy.stats.permutation_test(
        (x,), lambda v: scipy.stats.spearmanr(v, x).statistic, permutation_type="pairings", n_resamples=np.inf
    )
    assert correlation(x, x, "spearman").p == pytest.approx(reachable.pvalue)  # t would say 0
    assert correlation(x[:4], x[:4], "spearman", np.array([0, 0, 1, 1])).p == 0.5


def test_groups_of_one_point_do_not_count():
    ours = correlation(np.array([1.0, 2, 3, 9]), np.array([1.0, 3, 2, 50]), groups=np.array([0, 0, 0, 1]))
    assert ours.n == 3
    assert ours.r == pytest.approx(0.5)


@methods
@pytest.mark.parametrize(("x", "y"), [([1, 2, 3], [0.9, 0.9, 0.9]), ([2, 2], [1, 2]), ([1], [2]), ([], [])])
def test_what_does_not_vary_has_no_correlation_but_keeps_its_n(method, x, y):
    ours = correlation(np.array(x, dtype=float), np.array(y, dtype=float), method)
    assert np.isnan([ours.r, ours.p]).all()
    assert ours.n == len(x)


def test_rounding_alone_is_no_variation():
    assert np.isnan(correlation(np.array([0.1 + 0.2, 0.3, 0.3]), np.array([1.0, 2, 3])).r)


def test_two_points_have_a_sign_and_no_p():
    ours = correlation(np.array([1.0, 2.0]), np.array([5.0, 3.0]))
    assert (ours.r, ours.n) == (-1.0, 2)
    assert np.isnan(ours.p)


@methods
@pytest.mark.parametrize("grouped", [False, True])
def test_a_weight_is_the_same_as_repeating_the_point(method, grouped):
    x, y = tied(5, points=12)
    groups = np.arange(12) % 3 if grouped else None
    weights = np.random.default_rng(1).integers(0, 3, size=(20, 12))
    coefficients = resampled_correlation(x, y, weights, method, groups)
    for coefficient, weight in zip(coefficients, weights, strict=True):
        points = np.repeat(np.arange(12), weight)
        repeated_groups = groups[points] if grouped else None
        written_out = correlation(x[points], y[points], method, repeated_groups)
        assert coefficient == pytest.approx(written_out.r, nan_ok=True, abs=1e-12)


@methods
def test_every_resample_may_have_its_own_y(method):
    x, y = tied(6, points=10)
    y_by_resample = np.stack([y, -y, y])
    y_by_resample[2, 4] = np.nan
    has_value = np.arange(10) != 4
    weights = np.random.default_rng(2).integers(0, 3, size=(3, 10))

    first, second, third = resampled_correlation(x, y_by_resample, weights, method)
    [first_alone] = resampled_correlation(x, y, weights[:1], method)
    [second_alone] = resampled_correlation(x, -y, weights[1:2], method)
    [third_alone] = resampled_correlation(x[has_value], y[has_value], weights[2:, has_value], method)
    assert first == pytest.approx(first_alone)
    assert second == pytest.approx(second_alone)
    assert third == pytest.approx(third_alone)


def test_an_unknown_method_is_named():
    with pytest.raises(ValueError, match="method='kendall' is not one of pearson, spearman"):
        correlation(np.arange(3), np.arange(3), "kendall")


def test_tau_is_scipy_s_and_its_interval_leaves_out_whole_models():
    rng = np.random.default_rng(0)
    ability = rng.normal(size=12)
    top1 = rng.integers(0, 6, 12) / 6
    models = np.array(["a", "b", "c", "d", "e", "f"] * 2)
    tau, low, high = kendall(ability, top1, models.tolist())
    assert tau == pytest.approx(scipy.stats.kendalltau(ability, top1).statistic, abs=1e-12)

    z = []
    for model in "abcdef":
        is_other = models != model
        z.append(np.arctanh(scipy.stats.kendalltau(ability[is_other], top1[is_other]).statistic))
    squares = ((z - np.mean(z)) ** 2).sum()
    half_width = scipy.stats.t.ppf(0.975, 5) * (5 / 6 * squares) ** 0.5
    ends = np.arctanh(tau) + np.array([-half_width, half_width])
    assert np.arctanh([low, high]) == pytest.approx(ends)


def test_rounding_is_no_difference_between_subjects_of_equal_answers():
    ability = np.array([0.0, 1e-16, 1.0])
    top1 = np.array([0.5, 0.5, 0.9])
    assert kendall(ability, top1, ["a", "b", "c"]).value == pytest.approx(1.0, abs=1e-12)


def test_ranks_in_perfect_order_without_a_model_keep_their_interval():
    ability = np.arange(8.0)
    top1 = np.array([0.1, 0.2, 0.3, 0.5, 0.4, 0.6, 0.7, 0.8])
    tau, low, high = kendall(ability, top1, ["a", "b", "c", "d"] * 2)
    assert low < tau == 1 - 2 / 28 < high < 1


@pytest.mark.parametrize(("n", "low"), [(5, -0.52), (12, 0.97), (40, 0.999)])
def test_ranks_in_perfect_order_end_at_1_and_are_surer_the_more_there_are(n, low):
    order = np.arange(float(n))
    assert correlation_interval(order, order**3, np.arange(n), "spearman") == pytest.approx((low, 1), abs=0.01)
    assert correlation_interval(order, -order, np.arange(n), "spearman") == pytest.approx((-1, -low), abs=0.01)
    assert np.isnan(correlation_interval(order, 2 * order, np.arange(n))).all(), "a line: Pearson's r shows no spread"


def test_three_ranks_in_perfect_order_have_no_interval():
    assert np.isnan(correlation_interval(np.arange(3.0), np.arange(3.0), np.arange(3), "spearman")).all()


def covered(x, y, rho, **options):
    ends = np.array([correlation_interval(*points, **options) for points in zip(x, y, strict=True)])
    return np.mean((ends[:, 0] <= rho) & (rho <= ends[:, 1]))


@pytest.mark.parametrize(("n", "rho"), [(5, 0.0), (10, 0.9), (20, 0.5)])
def test_correlation_intervals_of_normal_points_hold_their_level(n, rho):
    x, noise = np.random.default_rng(1).normal(size=(2, 600, n))
    y = rho * x + (1 - rho**2) ** 0.5 * noise
    share = covered(x, y, rho, cluster=np.arange(n))
    assert share == pytest.approx(0.96, abs=0.03)  # standard error 0.008; percentiles of a bootstrap: 0.87 to 0.93


def test_a_useless_predictor_within_groups_excludes_0_at_its_level_even_if_seeds_share_something():
    seeds, sizes = 5, 4  # five subset seeds at four numbers of classes, half of the variance shared by a seed
    cluster = np.repeat(np.arange(seeds), sizes)
    groups = np.tile(np.arange(sizes), seeds)
    rng = np.random.default_rng(2)
    seed_effects = rng.normal(size=(2, 600, seeds))[..., cluster]
    noise = rng.normal(size=(2, 600, seeds * sizes))
    x, y = (seed_effects + noise) / 2**0.5 + 3 * groups
    share = covered(x, y, 0.0, cluster=cluster, groups=groups)
    assert share == pytest.approx(0.96, abs=0.02)  # standard error 0.008; Fisher's own interval: 0.87


def test_one_model_alone_has_no_interval_and_equal_accuracies_no_tau():
    ability = np.array([0.0, 1.0])
    tau, low, high = kendall(ability, np.array([0.1, 0.2]), ["a", "a"])
    assert tau == 1.0
    assert np.isnan([low, high]).all()
    assert np.isnan(kendall(ability, np.array([0.5, 0.5]), ["a", "b"]).value)
