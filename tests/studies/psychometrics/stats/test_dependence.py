"""Q3 against correlations of residuals, its expectation without dependence, and planted pairs."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fca.studies.irt.stats import ItemBank, fit_irt
from fca.studies.psychometrics.stats.dependence import (
    highest_z,
    mean_q3,
    most_dependent,
    pairable_items,
    scaled_residuals,
)
from fca.studies.psychometrics.stats.item_fit import replicates
from tests.studies.irt.support.planted import planted, with_holes


@pytest.fixture(scope="module")
def fitted():
    responses = planted(40, 60, seed=1).responses
    return responses, fit_irt(responses)


def test_q3_is_the_correlation_of_residuals_whatever_the_blocks(fitted, monkeypatch):
    responses, fit = fitted
    monkeypatch.setattr("fca.studies.psychometrics.stats.dependence.BLOCK", 7)
    residuals = responses - fit.probability()
    p = fit.probability()
    direct = np.corrcoef(residuals.T)[np.triu_indices(60, 1)]
    scaled, found = scaled_residuals(responses, p), most_dependent(responses, p, 25)
    noise = p * (1 - p)
    z = (residuals.T @ residuals / np.sqrt(noise.T @ noise))[np.triu_indices(60, 1)]
    assert found.z == pytest.approx(np.sort(z)[::-1][:25], abs=1e-12)
    for a, b, q3 in zip(found.first, found.second, found.q3, strict=True):
        assert a < b
        assert q3 == pytest.approx(np.corrcoef(residuals[:, a], residuals[:, b])[0, 1], abs=1e-12)
    label = np.arange(60) % 3
    means = mean_q3(scaled, label)
    assert means.mean == pytest.approx(direct.mean(), abs=1e-12)
    assert means.sd == pytest.approx(direct.std(), abs=1e-12)
    for of in range(3):
        own = np.corrcoef(residuals[:, label == of].T)[np.triu_indices(20, 1)]
        assert means.within[of] == pytest.approx(own.mean(), abs=1e-12)
        assert means.pairs_within[of] == 190


def test_without_dependence_the_mean_is_that_of_yen():
    """About -1 / (n - 1), where ability is the most likely one, without a prior."""
    rng, n = np.random.default_rng(0), 20
    bank = ItemBank("1pl", rng.normal(0, 1, n), np.ones(n), np.ones(n), np.zeros(n))
    responses = (rng.random((3000, n)) < bank.probability(rng.normal(size=3000))).astype(float)
    responses = responses[(responses.sum(axis=1) > 0) & (responses.sum(axis=1) < n)]  # others have no likeliest ability

    def of_score(score):
        return minimize_scalar(lambda at: (bank.probability(np.array([float(at)])).sum() - score) ** 2, (-6.0, 6.0)).x

    ability = np.array([of_score(score) for score in range(1, n)])[responses.sum(axis=1).astype(int) - 1]
    means = mean_q3(scaled_residuals(responses, bank.probability(ability)), np.zeros(n, int))
    assert means.mean == pytest.approx(-1 / (n - 1), abs=0.006)  # terms of order 1/n²


def test_planted_copies_are_found_above_all_simulated_pairs():
    responses, rng = planted(65, 400, seed=2).responses, np.random.default_rng(2)
    even = np.flatnonzero(np.abs(responses.mean(axis=0) - 0.5) < 0.15)
    for first, second in even[:6].reshape(3, 2):  # the second repeats nearly all responses to the first
        responses[:, second] = np.where(rng.random(65) < 0.97, responses[:, first], 1 - responses[:, first])
    planted_pairs = {tuple(pair) for pair in even[:6].reshape(3, 2).tolist()}
    fit = fit_irt(responses)
    kept = pairable_items(responses, fit)

    found = most_dependent(responses[:, kept], fit.probability()[:, kept], 3)
    assert {(int(kept[a]), int(kept[b])) for a, b in zip(found.first, found.second, strict=True)} == planted_pairs
    assert found.q3.min() > 0.8
    drawn = replicates(responses, fit, np.random.default_rng(0), 10)
    assert found.z.min() > max(highest_z(x[:, kept], of.probability()[:, kept]) for x, of in drawn)


def test_items_that_share_all_responses_are_not_dependent_for_that():
    """The five weakest of 65 missed both: nothing that ability does not explain, and yet Q3 = 1."""
    ability, responses = np.linspace(-2, 2, 65), np.ones((65, 2))
    responses[:5] = 0.0
    p = 1 / (1 + np.exp(-3 * (ability[:, None] - np.array([-1.75, -1.75]))))
    found = most_dependent(responses, p, 1)
    assert found.q3[0] == pytest.approx(1)
    assert found.z[0] < 2.5


def test_classes_with_an_ability_of_their_own_are_dependent_within():
    rng = np.random.default_rng(3)
    label = np.arange(1000) % 10
    ability = rng.normal(size=(65, 1)) + 0.5 * rng.normal(size=(65, 10))[:, label]
    responses = (rng.random((65, 1000)) < 1 / (1 + np.exp(rng.normal(size=1000) - ability))).astype(float)
    means = mean_q3(scaled_residuals(responses, fit_irt(responses, "1pl").probability()), label)
    assert means.within.min() > 0.02 > means.mean


def test_missing_responses_draw_q3_towards_zero(fitted):
    responses, fit = fitted
    pair = np.column_stack([responses[:, 0], responses[:, 0]])
    p = np.repeat(fit.probability()[:, :1], 2, axis=1)
    holed = with_holes(pair, 0.5)
    assert most_dependent(pair, p, 1).q3[0] == pytest.approx(1)
    assert 0 < most_dependent(holed, p, 1).q3[0] < 0.9


def test_items_that_nearly_all_solve_are_not_paired(fitted):
    responses, _ = fitted
    changed = responses.copy()
    changed[:, :2] = 1.0
    changed[0, :2] = 0.0
    assert not np.isin([0, 1], pairable_items(changed, fit_irt(changed))).any()
