"""Which model is good enough: against exact Beta posteriors, brute force and planted truth."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta

from fca.stats.decision import accuracy_draws, pareto, probability_within


@pytest.mark.parametrize(("right", "wrong"), [(45, 5), (0, 12), (3, 3)])
def test_one_accuracy_is_a_beta_distribution(right, wrong):
    correct = np.array([[1.0] * right + [0.0] * wrong])
    draws = np.sort(accuracy_draws(correct, draws=20_000)[:, 0])
    exact = beta(right + 0.5, wrong + 0.5)  # Jeffreys' halves
    gap = np.abs(exact.cdf(draws) - np.linspace(0, 1, len(draws))).max()
    assert gap < 1.63 / np.sqrt(len(draws))  # Kolmogorov and Smirnov, p = 0.01


def test_models_that_fail_on_the_same_images_are_compared_without_the_noise_that_they_share():
    first = (np.random.default_rng(0).random(200) < 0.7).astype(float)
    second = first.copy()
    second[:2] = 1 - second[:2]
    draws = accuracy_draws(np.stack([first, second]))
    assert draws[:, 0].std() == pytest.approx(np.sqrt(0.7 * 0.3 / 201), rel=0.1)
    assert (draws[:, 0] - draws[:, 1]).std() < 0.011  # two images of 200
    assert probability_within(draws, 0.03).min() > 0.95


def test_a_model_of_which_nothing_is_known_is_not_compared():
    draws = np.array([[0.9, np.nan, 0.5], [0.8, np.nan, 0.9]])
    assert probability_within(draws, 0.1).tolist()[::2] == [1.0, 0.5]
    assert np.isnan(probability_within(draws, 0.1)[1])


@pytest.mark.parametrize(("n", "sure"), [(10, False), (1000, True)])
def test_no_error_on_a_few_images_leaves_doubt_and_on_many_does_not(n, sure):
    """Models right on every image: 10 images once called one sure which lost 5 points on others."""
    draws = accuracy_draws(np.ones((2, n)))
    assert draws[:, 0].mean() == pytest.approx((n + 0.5) / (n + 1), abs=0.002)
    assert (probability_within(draws, 0.01)[0] >= 0.9) == sure


def test_the_chosen_model_is_within_the_margin_as_often_as_was_claimed():
    """Ten models of nearly the same accuracy, 200 times: any one that counts as good enough."""
    rng = np.random.default_rng(1)
    is_within = []
    for _ in range(200):
        truth = rng.normal(0.85, 0.03, 10)
        ease_of_image = rng.normal(size=300)  # for all models
        noise = rng.normal(size=(10, 300))
        right = ease_of_image[None] + noise < np.sqrt(2) * ndtri(truth)[:, None]
        draws = accuracy_draws(right.astype(float), draws=500)
        good_enough = np.flatnonzero(probability_within(draws, 0.02) >= 0.9)
        if len(good_enough):
            chosen = rng.choice(good_enough)
            is_within.append(truth[chosen] >= truth.max() - 0.02)
    claims = len(is_within)
    assert claims > 50
    assert np.mean(is_within) > 0.9 - 3 * 0.3 / np.sqrt(claims)


def test_the_front_is_that_of_brute_force():
    rng = np.random.default_rng(3)
    accuracy = rng.integers(0, 6, 30) / 6
    cost = rng.integers(0, 6, 30).astype(float)

    def dominates(a, b):
        is_as_good = accuracy[a] >= accuracy[b] and cost[a] <= cost[b]
        is_better = accuracy[a] > accuracy[b] or cost[a] < cost[b]
        return is_as_good and is_better

    is_on_front = [not any(dominates(a, b) for a in range(30)) for b in range(30)]
    assert pareto(accuracy, cost).tolist() == is_on_front
