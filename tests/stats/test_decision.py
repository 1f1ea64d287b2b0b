"""Which model is good enough: against exact Beta posteriors, brute force and planted truth."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta

from fca.stats.decision import (
    accuracy_draws,
    cheapest,
    images_needed,
    pareto,
    probability_within,
    strength_of,
)

NOTHING = np.array([np.nan, np.nan]), np.zeros(2)


@pytest.mark.parametrize(
    ("prior", "strength", "right", "wrong"), [(0.8, 30.0, 45, 5), (0.3, 5.0, 0, 12), (0.9, 50, 0, 0)]
)
def test_one_accuracy_is_a_beta_distribution(prior, strength, right, wrong):
    correct = np.array([[1.0] * right + [0.0] * wrong])
    drawn = np.sort(accuracy_draws(correct, np.array([prior]), np.array([float(strength)]), draws=20_000)[:, 0])
    exact = beta(strength * prior + right + 0.5, strength * (1 - prior) + wrong + 0.5)  # Jeffreys' halves
    gap = np.abs(exact.cdf(drawn) - np.linspace(0, 1, len(drawn))).max()
    assert gap < 1.63 / np.sqrt(len(drawn))  # Kolmogorov and Smirnov, p = .01


def test_models_that_fail_on_the_same_images_are_compared_without_the_noise_that_they_share():
    rng = np.random.default_rng(0)
    one = (rng.random(200) < 0.7).astype(float)
    other = one.copy()
    other[:2] = 1 - other[:2]
    same = accuracy_draws(np.stack([one, other]), *NOTHING)
    assert same[:, 0].std() == pytest.approx(np.sqrt(0.7 * 0.3 / 201), rel=0.1)
    assert (same[:, 0] - same[:, 1]).std() < 0.011  # two images of 200
    assert probability_within(same, 0.03).min() > 0.95


def test_a_model_without_images_is_what_was_expected_of_it_and_one_of_which_nothing_is_known_is_missing():
    correct = np.array([[np.nan] * 4, [1.0, 1, 0, 1], [np.nan] * 4])
    draws = accuracy_draws(correct, np.array([0.6, np.nan, np.nan]), np.array([40.0, 0, 0]))
    assert draws[:, 0].mean() == pytest.approx(0.6, abs=0.01)
    assert draws[:, 0].std() == pytest.approx(beta(24.5, 16.5).std(), rel=0.1)
    assert np.isnan(draws[:, 2]).all()
    assert np.isnan(probability_within(draws, 0.1)).tolist() == [False, False, True]


@pytest.mark.parametrize(("n", "sure"), [(10, False), (1000, True)])
def test_no_error_on_a_few_images_leaves_doubt_and_on_many_does_not(n, sure):
    """Models right on every image: 10 images once called one sure which lost 5 points on others."""
    draws = accuracy_draws(np.ones((2, n)), *NOTHING)
    assert draws[:, 0].mean() == pytest.approx((n + 0.5) / (n + 1), abs=0.002)
    found = cheapest(probability_within(draws, 0.01), np.array([1.0, 2.0]), 0.9)
    assert (found == 0) is sure


def test_the_chosen_model_is_within_the_margin_as_often_as_was_claimed():
    """Ten models of nearly the same accuracy, 200 times: the smallest that counts as good enough."""
    rng = np.random.default_rng(1)
    kept, said = [], 0
    for _ in range(200):
        truth = rng.normal(0.85, 0.03, 10)
        common = rng.normal(size=300)  # images are hard or easy for all
        right = common[None] + rng.normal(size=(10, 300)) < np.sqrt(2) * ndtri(truth)[:, None]
        draws = accuracy_draws(right.astype(float), np.full(10, np.nan), np.zeros(10), draws=500)
        found = cheapest(probability_within(draws, 0.02), rng.permutation(10).astype(float), 0.9)
        if found is not None:
            said += 1
            kept.append(truth[found] >= truth.max() - 0.02)
    assert said > 50
    assert np.mean(kept) > 0.9 - 3 * 0.3 / np.sqrt(said)


def test_more_images_settle_what_differs_and_never_what_lies_at_the_margin():
    rng = np.random.default_rng(2)
    good, bad = (rng.random(40) < 0.95).astype(float), (rng.random(40) < 0.8).astype(float)
    cost = np.array([2.0, 1.0])
    times = images_needed(np.stack([good, bad]), *NOTHING, cost, 0.01, 0.9)
    assert times is not None
    assert 1 < times <= 20
    apart = np.array([[1.0] * 100, [1.0] * 95 + [0.0] * 5])
    wide = images_needed(apart, *NOTHING, np.array([2.0, 1.0]), 0.2, 0.9)
    assert wide == 1.5  # the first size tried: it is settled already


def test_an_expectation_counts_for_as_many_images_as_its_interval_is_narrow():
    counted = strength_of(0.7, *beta(70, 30).ppf([0.05, 0.95]), 2 * 1.6449)
    assert counted == pytest.approx(100, rel=0.03)
    assert strength_of(0.5, 0.0, 1.0, 2 * 1.6449) >= 1


def test_the_front_is_that_of_brute_force():
    rng = np.random.default_rng(3)
    accuracy, cost = rng.integers(0, 6, 30) / 6, rng.integers(0, 6, 30).astype(float)

    def beaten(m):
        others = range(30)
        return any(
            accuracy[o] >= accuracy[m] and cost[o] <= cost[m] and (accuracy[o] > accuracy[m] or cost[o] < cost[m])
            for o in others
        )

    assert pareto(accuracy, cost).tolist() == [not beaten(m) for m in range(30)]
