"""Numbers of seeds against published sample sizes and simulation; ranks against scipy and resamples written out."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chi, norm
from statsmodels.stats.power import TTestPower

from fca.stats.comparison import MANY, kendall_w, rank_stability, seeds_for, seeds_needed, t_power
from fca.stats.intervals import point_weights, widened_level


@pytest.mark.parametrize(("effect", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_numbers_of_pairs_are_those_of_the_published_tables(effect, pairs):
    assert seeds_for(effect) == pairs  # two-sided paired t, level 0.05, power 0.8: G*Power 3 gives these


def test_power_is_how_often_a_simulated_t_test_finds_the_difference():
    samples = np.random.default_rng(0).normal(0.7, 1.0, size=(20_000, 12))
    is_significant = scipy.stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05
    assert t_power(0.7, 12) == pytest.approx(is_significant.mean(), abs=0.01)  # 3 standard errors of 20,000 tests
    assert t_power(-0.7, 12) == t_power(0.7, 12)
    assert t_power(0.0, 12) == pytest.approx(0.05)


@settings(max_examples=40)
@given(st.floats(0.004, 8))
def test_one_seed_fewer_would_not_do(effect):
    def power(n):  # scipy's noncentral t, the slower and independent way
        critical = scipy.stats.t.isf(0.025, n - 1)
        return scipy.stats.nct.sf(critical, n - 1, effect * n**0.5)

    seeds = int(seeds_for(effect))
    if seeds >= 5000:
        assert t_power(effect, seeds) == pytest.approx(0.8, abs=1e-4)
        return
    assert power(seeds) > 0.8 - 1e-6
    assert seeds == 2 or power(seeds - 1) < 0.8


def test_the_normal_distribution_takes_over_where_it_makes_no_difference():
    edge = (7.8489 / MANY) ** 0.5  # (1.960 + 0.8416)² = 7.849
    assert seeds_for(0.99 * edge) == pytest.approx(seeds_for(1.01 * edge) * (1.01 / 0.99) ** 2, rel=1e-4)


@pytest.mark.parametrize("effect", [0.0, 1e-300, 1e-17, 0.0027])
def test_more_than_a_million_seeds_is_no_end(effect):
    assert seeds_for(effect) == np.inf
    assert seeds_for(0.0029) < 1e6


def test_the_interval_of_seeds_covers_the_truth():
    true_effect = 1.2
    true_seeds = seeds_for(true_effect)
    samples = np.random.default_rng(1).normal(true_effect, 1.0, size=(600, 6))
    estimates = [seeds_needed(differences) for differences in samples]
    covered = np.mean([estimate.low <= true_seeds <= estimate.high for estimate in estimates])
    assert 0.92 < covered <= 0.995  # 95 %, standard error 0.009; whole numbers round it up


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 9), st.floats(-3, 3))
@example(3942, 5, 0.5546875)  # p = 0.04997: an effect so near 0 needs over a million seeds, which counts as no number
def test_no_bound_exactly_where_the_t_test_finds_nothing(seed, seeds, mean):
    differences = np.random.default_rng(seed).normal(mean, 1.0, size=seeds)
    needed = seeds_needed(differences)
    p = scipy.stats.ttest_1samp(differences, 0).pvalue
    assert np.isinf(needed.high) == (p > 0.05) or 0.048 < p < 0.05
    assert 2 <= needed.low <= needed.value <= needed.high
    assert needed.value == seeds_for(differences.mean() / differences.std(ddof=1))
    assert seeds_needed(-differences) == needed


def test_what_cannot_be_known_is_missing_and_what_never_ends_is_infinite():
    assert np.isnan(seeds_needed(np.array([0.1]))).all()
    assert np.isnan(seeds_needed(np.array([]))).all()
    assert seeds_needed(np.array([0.1, 0.1, 0.1])) == (2, 2, 2)
    assert seeds_needed(np.array([0.1, 0.1 + 1e-9, 0.1])) == (2, 2, 2), "before, scipy did not return"
    assert seeds_needed(np.zeros(3)) == (np.inf, np.inf, np.inf)


def scores(seed, subsets=7, models=4):
    """Accuracies with ties."""
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(size=(subsets, models)) + np.arange(models), 0) / 10


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_kendalls_w_is_friedmans_statistic_over_its_largest(seed):
    accuracy = scores(seed)
    friedman = scipy.stats.friedmanchisquare(*accuracy.T).statistic
    assert kendall_w(accuracy) == pytest.approx(friedman / (7 * 3), abs=1e-12)


def test_kendalls_w_gives_the_mean_spearman_correlation_between_subsets():
    accuracy = np.random.default_rng(2).normal(size=(6, 5))
    pairs = [scipy.stats.spearmanr(a, b).statistic for a, b in itertools.combinations(accuracy, 2)]
    assert (6 * kendall_w(accuracy) - 1) / 5 == pytest.approx(np.mean(pairs), abs=1e-12)


@pytest.mark.parametrize("accuracy", [np.ones((1, 3)), np.ones((3, 1)), np.ones((3, 3))])
def test_kendalls_w_is_missing_where_nothing_is_ranked(accuracy):
    assert np.isnan(kendall_w(accuracy))


def test_rank_stability_counts_resamples_one_by_one():
    accuracy = scores(3)
    cluster = np.array([0, 1, 2, 3, 3, 4, -1])
    mean_accuracy = accuracy.mean(axis=0)
    weights = point_weights(cluster)

    times_best = np.zeros(4)
    times_same_order = np.zeros((4, 4))
    ranks = []
    for weight in weights:
        resampled = np.round(np.average(accuracy, axis=0, weights=weight), 12)
        is_best = resampled == resampled.max()
        times_best += is_best / is_best.sum()
        ranks.append(scipy.stats.rankdata(-resampled))
        for a, b in itertools.product(range(4), repeat=2):
            times_same_order[a, b] += (resampled[a] - resampled[b]) * (mean_accuracy[a] - mean_accuracy[b]) > 0

    stability = rank_stability(accuracy, cluster)
    assert stability.p_best == pytest.approx(times_best / len(weights))
    assert stability.p_best.sum() == pytest.approx(1)
    assert stability.rank.tolist() == scipy.stats.rankdata(-mean_accuracy.round(12)).tolist()

    tail = (1 - widened_level(5)) / 2  # of five drawn clusters
    ends = np.quantile(ranks, [tail, 1 - tail], axis=0)
    assert np.stack([stability.low, stability.high]) == pytest.approx(ends)

    is_different = ~np.isnan(stability.kept)
    assert stability.kept[is_different] == pytest.approx(times_same_order[is_different] / len(weights))
    assert np.isnan(np.diag(stability.kept)).all()


def test_equal_models_share_the_best_place():
    stability = rank_stability(np.tile([[0.7, 0.7, 0.1]], (5, 1)), np.arange(5))
    assert stability.p_best.tolist() == [0.5, 0.5, 0.0]
    assert stability.rank.tolist() == [1.5, 1.5, 3.0]
    assert np.isnan(stability.kept[0, 1])


@pytest.mark.parametrize("seeds", [1, 4])
def test_few_seeds_show_too_little_of_others(seeds):
    accuracy = np.tile([0.9, 0.8], (seeds + 1, 1))
    stability = rank_stability(accuracy, cluster=np.array([*range(seeds), -1]))
    assert stability.rank.tolist() == [1.0, 2.0]
    for unknown in (stability.p_best, stability.low, stability.high, stability.kept):
        assert np.isnan(unknown).all()


def power_by_quadrature(effect, n):
    """Over the standard deviation of the sample; the noncentral t of scipy 1.16 has no number for 2 seeds."""
    freedom = n - 1
    shift = effect * n**0.5
    critical = scipy.stats.t.ppf(0.975, freedom)

    def density_of_rejection(spread):
        boundary = critical * spread / freedom**0.5
        p_rejected = norm.sf(boundary - shift) + norm.cdf(-boundary - shift)
        return p_rejected * chi.pdf(spread, freedom)

    middle = freedom**0.5  # within 10 of it is all but 1e-20 of the density
    below, _ = quad(density_of_rejection, max(0.0, middle - 10), middle, epsabs=1e-12)
    above, _ = quad(density_of_rejection, middle, middle + 10, epsabs=1e-12)
    return below + above


@pytest.mark.parametrize("effect", [0.05, 0.2, 0.5, 1.0, 2.0, 5.0])
def test_seeds_and_power_are_those_of_statsmodels_where_its_solver_is_right(effect):
    seeds = seeds_for(effect)
    assert seeds == max(2, np.ceil(TTestPower().solve_power(effect, alpha=0.05, power=0.8)))
    assert t_power(effect, int(seeds)) == pytest.approx(power_by_quadrature(effect, int(seeds)), abs=1e-9)
