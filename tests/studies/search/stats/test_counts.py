"""Shares, intervals and tests of subdomains against scipy, and their levels by simulation."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from fca.studies.search.stats.counts import (
    CONFIRMING,
    CORRELATIONS,
    effective_images,
    image_correlation,
    null_tables,
    p_lower,
    p_of_rules,
    share_with_interval,
    signed_root,
)


def beta_binomial(n_images, accuracy, correlation, rng):
    return rng.binomial(n_images, rng.beta(accuracy * (1 / correlation - 1), (1 - accuracy) * (1 / correlation - 1)))


def test_the_correlation_of_images_has_the_highest_beta_binomial_likelihood():
    rng, n_images = np.random.default_rng(0), np.array([5, 50, 20, 20, 7, 30] * 5)
    correct = beta_binomial(n_images, np.full(30, 0.8), 0.2, rng)

    def likelihood(correlation):
        weight = effective_images(n_images, correlation)
        mean, size = weight @ (correct / n_images) / weight.sum(), 1 / correlation - 1
        return stats.betabinom.logpmf(correct, n_images, mean * size, (1 - mean) * size).sum()

    assert image_correlation(correct, n_images, np.zeros(30, int)) == max(CORRELATIONS, key=likelihood)


def test_groups_that_differ_are_not_taken_for_correlated_images():
    n_images, group = np.full(20, 30), np.repeat([0, 1], 10)
    correct = np.where(group == 0, 6, 24) + np.tile([-1, 1], 10)
    assert image_correlation(correct, n_images, group) < 0.01
    assert image_correlation(correct, n_images, np.zeros(20, int)) > 0.2


def test_with_equal_numbers_the_test_is_students_and_fishers_mid_p_by_scipy():
    rng, inside = np.random.default_rng(1), np.repeat([True, False], 6)
    for low in (0.5, 0.75, 0.8):
        correct, n_images = rng.binomial(20, np.where(inside, low, 0.85)), np.full(12, 20)
        student = stats.ttest_ind(correct[inside] / 20, correct[~inside] / 20, alternative="less").pvalue
        dealt = stats.hypergeom(240, correct.sum(), 120)
        right = correct[inside].sum()
        fisher = dealt.cdf(right) - dealt.pmf(right) / 2
        assert p_lower(correct, n_images, inside) == pytest.approx(max(student, fisher), abs=1e-9)


@pytest.mark.parametrize("right", [0, 20])
def test_without_any_difference_nothing_is_lower(right):
    inside = np.repeat([True, False], 3)
    assert p_lower(np.full(6, right), np.full(6, 20), inside) == pytest.approx(0.5)


def test_a_single_subdomain_has_no_test_and_no_interval():
    assert np.isnan(p_lower(np.array([1, 9, 8]), np.full(3, 10), np.array([True, False, False])))
    value, low, high = share_with_interval(np.array([9]), np.array([10]))
    assert value == pytest.approx(0.9)
    assert np.isnan([low, high]).all()
    assert np.isnan(share_with_interval(np.zeros(0, int), np.zeros(0, int))).all()


@pytest.mark.parametrize(
    ("inside_images", "outside_images", "accuracy"),
    [(50, 5, 0.8), (50, 5, 0.95), (50, 1, 0.95), (1, 20, 0.5), (20, 20, 0.9)],
)
def test_a_rule_that_is_none_is_confirmed_in_one_of_forty(inside_images, outside_images, accuracy):
    # Welch's t of unweighted accuracies: 4, 22 and 66 % of the first three
    inside, rng = np.repeat([True, False], 5), np.random.default_rng(2)
    n_images = np.where(inside, inside_images, outside_images)
    for correlation in (1e-6, 0.1):
        drawn = [beta_binomial(n_images, np.full(10, accuracy), correlation, rng) for _ in range(300)]
        confirmed = sum(p_lower(correct, n_images, inside) <= 0.025 for correct in drawn)
        assert confirmed <= stats.binom.ppf(0.999, 300, 0.025)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("inside_images", "outside_images", "accuracy"),
    [
        ([1, 1, 1, 1, 50], [20] * 5, 0.95),
        ([2, 3, 1, 30, 8], [20] * 5, 0.95),
        ([50] * 2, [50] * 20, 0.98),
        ([50] * 5, [50] * 20, 0.95),
        ([20] * 2, [20] * 5, 0.8),
        ([50] * 5, [50] * 2, 0.8),
        ([50, 40, 10], [50] * 3, 0.8),
        ([50] * 3, [5, 5, 100], 0.8),
    ],
)
def test_uneven_sides_confirm_no_more_than_one_of_forty(inside_images, outside_images, accuracy):
    # by t and Fisher's test alone: 7, 5, 7, 5, 3.5, 1.8, 2 and 3.5 %
    n_images = np.array(inside_images + outside_images)
    inside, rng = np.arange(len(n_images)) < len(inside_images), np.random.default_rng(9)
    drawn = [beta_binomial(n_images, np.full(len(n_images), accuracy), 0.1, rng) for _ in range(400)]
    confirmed = sum(p_lower(correct, n_images, inside) <= 0.025 for correct in drawn)
    assert confirmed <= stats.binom.ppf(0.99, 400, 0.025)


@pytest.mark.parametrize("low", [(9, 12), (13, 16)])
def test_uneven_sides_are_compared_by_permuting_subdomains(low):
    correct, n_images, inside = np.array([*low, 17, 18, 19, 16, 18, 20, 17]), np.full(9, 20), np.arange(9) < 2
    student = stats.ttest_ind(correct[inside], correct[~inside], alternative="less").pvalue
    dealt = stats.hypergeom(180, correct.sum(), 40)
    fisher = dealt.cdf(sum(low)) - dealt.pmf(sum(low)) / 2

    sums = np.array([sum(pair) for pair in combinations(correct, 2)])  # with equal numbers t is in order of these
    exact = np.mean(sums < sum(low)) + np.mean(sums == sum(low)) / 2
    assert exact == pytest.approx(max(student, fisher, exact))  # so that it decides
    assert p_lower(correct, n_images, inside) == pytest.approx(
        exact, abs=1e-12
    )  # 36 ways: all of them, not 999 at random


@pytest.mark.parametrize(
    ("inside_images", "outside_images"),
    [
        ([50] * 5, [50] * 2),
        ([50] * 2, [50] * 5),
        ([20, 13], [20] * 5),
        ([50] * 3, [5, 5, 100]),
        ([5, 5, 100], [50] * 3),
        ([50, 40, 10], [50] * 3),
    ],
)
def test_the_lowest_of_few_deals_confirms_a_rule(inside_images, outside_images):
    # 999 deals at random: 0.0275 with 5 against 2, 0.029 with 5, 5, 100, 0.03 with 50, 40, 10
    n_images = np.array(inside_images + outside_images)
    inside = np.arange(len(n_images)) < len(inside_images)
    lowest_of_all = 0.5 / comb(len(n_images), len(inside_images))
    assert p_lower(np.where(inside, 0, n_images), n_images, inside) == pytest.approx(lowest_of_all, abs=1e-12)
    assert p_lower(np.where(inside, 0, n_images), n_images, inside) <= CONFIRMING


@pytest.mark.parametrize(
    ("inside_images", "outside_images"),
    [
        ([50] * 2, [50] * 3),
        ([50] * 3, [50] * 2),
        ([50] * 2, [50] * 4),
        ([50] * 4, [50] * 2),
        ([50, 10], [50] * 2),
    ],
)
def test_where_no_deal_of_subdomains_could_confirm_a_rule_there_is_no_test(inside_images, outside_images):
    # none of 50 inside, 50 of 50 outside: 0.0555, 0.0555, 0.0355, 0.0395 and 0.08, so never confirmed
    n_images = np.array(inside_images + outside_images)
    inside = np.arange(len(n_images)) < len(inside_images)
    assert np.isnan(p_lower(np.where(inside, 0, n_images), n_images, inside))
    assert p_lower(np.array([0, 0, 50, 50]), np.full(4, 50), np.arange(4) < 2) < 0.001  # even sides are not dealt


def test_rules_of_three_uneven_subdomains_a_side_are_confirmed():
    # 999 deals at random: 39.5 %
    n_images, inside, rng = np.array([50, 40, 10, 50, 50, 50]), np.arange(6) < 3, np.random.default_rng(10)
    drawn = [beta_binomial(n_images, np.where(inside, 0.5, 0.95), 0.02, rng) for _ in range(60)]
    assert np.mean([p_lower(correct, n_images, inside) <= CONFIRMING for correct in drawn]) >= 0.9


def test_the_interval_is_korn_and_graubards():
    correct, n_images = np.array([17, 12, 20, 15, 9]), np.full(5, 20)
    share = correct.sum() / 100
    variance = np.var(correct / 20, ddof=1) / 5
    independent = share * (1 - share) / variance * (stats.norm.ppf(0.975) / stats.t.ppf(0.975, 4)) ** 2
    right, wrong = share * independent, (1 - share) * independent
    ends = stats.beta.ppf(0.025, right, wrong + 1), stats.beta.ppf(0.975, right + 1, wrong)
    assert share_with_interval(correct, n_images) == pytest.approx((share, *ends), abs=1e-9)


def test_where_all_images_are_right_the_interval_is_that_of_independent_ones():
    assert share_with_interval(np.full(5, 5), np.full(5, 5)) == pytest.approx((1, 0.025 ** (1 / 25), 1), abs=1e-9)
    assert share_with_interval(np.zeros(5, int), np.full(5, 5)).high == pytest.approx(1 - 0.025 ** (1 / 25), abs=1e-9)


@pytest.mark.parametrize("accuracy", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("correlation", [1e-6, 0.1])
def test_the_interval_of_five_subdomains_contains_the_accuracy(accuracy, correlation):
    # the percentile bootstrap: 72 to 87 %, and 20 % at 0.99 with 5 images
    rng, n_images = np.random.default_rng(3), np.full(5, 5)
    drawn = [
        share_with_interval(beta_binomial(n_images, np.full(5, accuracy), correlation, rng), n_images)
        for _ in range(300)
    ]
    assert np.mean([low <= accuracy <= high for _, low, high in drawn]) >= 0.93


def test_the_signed_root_is_that_of_the_likelihood_ratio_by_scipy():
    rng, n_images = np.random.default_rng(4), np.full(12, 10)
    has, correct = rng.random((5, 12)) < 0.4, rng.binomial(10, 0.7, (3, 12))
    roots = signed_root(has, correct, n_images, n_images.astype(float))
    for table, row in zip(correct, roots, strict=True):
        for rule, value in zip(has, row, strict=True):
            sides = [[table[side].sum(), 10 * side.sum() - table[side].sum()] for side in (rule, ~rule)]
            statistic = stats.chi2_contingency(sides, correction=False, lambda_="log-likelihood").statistic
            sign = np.sign(table[rule].mean() - table[~rule].mean())
            assert value == pytest.approx(sign * statistic**0.5, abs=1e-6)


def test_with_equal_numbers_a_rule_is_tested_by_permuting_subdomains():
    rng, n_images, rule = np.random.default_rng(5), np.full(9, 20), np.arange(9) < 4
    for low in (0.5, 0.7, 0.9):
        correct = rng.binomial(20, np.where(rule, low, 0.9))
        correlation = image_correlation(correct, n_images, np.zeros(9, int))
        size = 1 / correlation - 1
        counts = stats.betabinom(20, correct.mean() / 20 * size, (1 - correct.mean() / 20) * size)
        quantile = counts.cdf(correct) - counts.pmf(correct) / 2

        sides = [np.isin(np.arange(9), chosen) for chosen in combinations(range(9), 4)]  # the rule's own comes first
        sums = np.array([(quantile - quantile.mean())[side].sum() for side in sides])
        weight = effective_images(n_images, correlation)
        roots = [signed_root(side[None], correct[None], n_images, weight).item() for side in sides]
        lowness = np.minimum(roots, sums / sums.std())
        exact = np.mean(lowness <= lowness[0] + 1e-9)
        p = p_of_rules(rule[None], correct, n_images, 4999, np.random.default_rng(6))[0]
        assert p == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 4999) ** 0.5 + 0.01)  # 126 ways: 0.008 each


def test_null_tables_with_equal_numbers_are_permutations():
    correct, n_images = np.array([0, 3, 3, 17, 20, 20, 11]), np.full(7, 20)
    for table in null_tables(correct, n_images, 0.05, 50, np.random.default_rng(7)):
        assert sorted(table) == sorted(correct)


def test_null_tables_with_unequal_numbers_have_the_accuracy_and_the_spread_of_the_table():
    rng, n_images = np.random.default_rng(8), np.array([1, 5, 20, 50] * 50)
    correct = beta_binomial(n_images, np.full(200, 0.8), 0.1, rng)
    tables = null_tables(correct, n_images, 0.1, 400, rng)
    mean = effective_images(n_images, 0.1) @ (correct / n_images) / effective_images(n_images, 0.1).sum()
    for n in (1, 5, 20, 50):
        share = tables[:, n_images == n] / n
        assert share.mean() == pytest.approx(mean, abs=0.02)  # quantiles are those of one drawn table
        assert share.var() == pytest.approx(mean * (1 - mean) * (1 + (n - 1) * 0.1) / n, rel=0.2)
