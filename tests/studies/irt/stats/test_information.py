"""Information against numerical derivatives, reliability against simulated correlations, EAP against quadrature."""

import numpy as np
import pytest
from scipy.integrate import quad

from fca.studies.irt.stats import ItemBank, fit_irt, score_ability
from fca.studies.irt.stats.information import (
    empirical_reliability,
    information,
    items_needed,
    marginal_reliability,
    total_information,
)
from fca.studies.irt.stats.scoring import score_eap
from tests.studies.irt.support.planted import planted, with_holes


def random_bank(items, seed=0, asymptotes=False):
    rng = np.random.default_rng(seed)
    upper = rng.uniform(0.7, 1.0, items) if asymptotes else np.ones(items)
    lower = rng.uniform(0.0, 0.3, items) if asymptotes else np.zeros(items)
    slopes = np.exp(rng.normal(0, 0.4, items))
    return ItemBank("4pl" if asymptotes else "2pl", rng.normal(0, 1.2, items), slopes, upper, lower)


@pytest.mark.parametrize("asymptotes", [False, True])
@pytest.mark.parametrize("ability", [-2.0, 0.3, 3.0])
def test_information_is_the_variance_of_the_numerical_slope_of_the_log_likelihood(asymptotes, ability):
    bank, step = random_bank(20, asymptotes=asymptotes), 1e-6

    def log_chance(theta, right):
        p = bank.probability(np.array([theta]))[0]
        return np.log(p if right else 1 - p)

    p = bank.probability(np.array([ability]))[0]
    slopes = [(log_chance(ability + step, right) - log_chance(ability - step, right)) / (2 * step) for right in (0, 1)]
    assert information(bank, ability) == pytest.approx((1 - p) * slopes[0] ** 2 + p * slopes[1] ** 2, rel=1e-5)
    assert total_information(bank, np.array([ability]))[0] == pytest.approx(information(bank, ability).sum())


@pytest.mark.parametrize("items", [10, 40, 200])
@pytest.mark.slow
def test_marginal_reliability_is_the_squared_correlation_of_ability_and_its_estimate(items):
    bank, rng = random_bank(items, seed=items), np.random.default_rng(1)
    ability = rng.normal(size=2500)
    responses = (rng.random((2500, items)) < bank.probability(ability)).astype(float)
    scored = score_eap(responses, bank)
    found = np.corrcoef(ability, scored.ability)[0, 1] ** 2
    # both are averages over 2,500 subjects (Monte Carlo error below .01); by information: exact for long tests
    assert marginal_reliability(bank) == pytest.approx(found, abs=0.03 if items == 10 else 0.012)
    assert empirical_reliability(*scored) == pytest.approx(found, abs=0.03 if items == 10 else 0.012)


def test_items_drawn_in_the_number_needed_reach_the_reliability():
    bank, rng = random_bank(3000), np.random.default_rng(2)
    number = items_needed(bank, 0.9)
    drawn = rng.choice(3000, number, replace=False)
    part = ItemBank("2pl", *(values[drawn] for values in bank[1:]))
    assert marginal_reliability(part) == pytest.approx(0.9, abs=0.015)  # one draw of about 40 of 3,000 items
    assert marginal_reliability(bank, number / 3000) >= 0.9 > marginal_reliability(bank, (number - 1) / 3000)


def test_a_wider_population_is_measured_more_reliably():
    bank = random_bank(30)
    assert marginal_reliability(bank, spread=0.5) < marginal_reliability(bank) < marginal_reliability(bank, spread=2.0)


@pytest.mark.parametrize("asymptotes", [False, True])
def test_posterior_means_are_those_of_adaptive_integration(asymptotes):
    bank = random_bank(12, asymptotes=asymptotes)
    responses = with_holes((np.random.default_rng(3).random((6, 12)) < 0.6).astype(float), 0.2)
    responses[0], responses[1] = 1.0, 0.0  # all right, all wrong
    scored = score_eap(responses, bank)
    for row, mean, sd in zip(responses, *scored, strict=True):

        def density(theta, power, row=row):
            p = bank.probability(np.array([theta]))[0]
            chance = np.where(row == 1, p, 1 - p)[~np.isnan(row)]
            return theta**power * np.exp(np.log(chance).sum() - theta**2 / 2)

        mass, first, second = (quad(density, -12, 12, args=(power,), epsabs=0, limit=200)[0] for power in range(3))
        assert mean == pytest.approx(first / mass, abs=1e-6)
        assert sd == pytest.approx((second / mass - (first / mass) ** 2) ** 0.5, abs=1e-5)


def test_after_many_items_mean_and_mode_agree_and_the_posterior_is_narrow():
    found = planted(10, 5000)
    fit = fit_irt(found.responses)
    eap, mode = score_eap(found.responses, fit.bank), score_ability(found.responses, fit.bank)
    assert np.abs(eap.ability - mode.ability).max() < 0.05 * mode.ability_se.min()
    assert eap.ability_se == pytest.approx(mode.ability_se, rel=0.02)


def test_no_number_of_items_orders_equal_abilities():
    assert items_needed(random_bank(10), 0.9, spread=0.0) is None


def test_equal_abilities_without_error_have_no_reliability():
    assert np.isnan(empirical_reliability(np.zeros(3), np.zeros(3)))
    assert np.isnan(empirical_reliability(np.ones(1), np.ones(1)))
