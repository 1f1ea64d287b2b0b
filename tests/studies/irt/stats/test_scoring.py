"""New subjects against a bank: the ability that a joint fit would give them, found without one."""

import time

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.studies.irt.stats import MODELS, ItemBank, fit_irt, score_ability
from fca.types import FcaError
from tests.studies.irt.support.planted import planted, with_holes

BANKS = {model: fit_irt(planted(30, 150, infeasible=0.05).responses, model).bank for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_subjects_of_the_fit_get_their_own_ability_back(model):
    responses = planted(30, 150, infeasible=0.05).responses
    fit = fit_irt(responses, model)
    scored = score_ability(responses, fit.bank)
    assert scored.ability == pytest.approx(fit.ability, abs=1e-6)
    assert (scored.ability_se <= fit.ability_se * 1.05).all()  # items as known: less to be unsure of


@pytest.mark.parametrize("model", MODELS)
def test_scores_are_the_highest_points_of_the_posterior(model):
    bank = BANKS[model]
    responses = with_holes(planted(5, 150, seed=9).responses, 0.5)
    scored = score_ability(responses, bank)

    def depth(theta, answers):
        p = bank.probability(np.array([theta]))[0]
        chance = np.where(answers == 1, p, 1 - p)[~np.isnan(answers)]
        return theta**2 / 2 - np.log(chance).sum()

    for answers, ability in zip(responses, scored.ability, strict=True):
        grid = np.linspace(-6, 6, 241)
        near = grid[np.argmin([depth(theta, answers) for theta in grid])]
        best = scipy.optimize.minimize_scalar(
            depth, args=(answers,), bounds=(near - 0.1, near + 0.1), method="bounded", options={"xatol": 1e-9}
        )
        assert ability == pytest.approx(best.x, abs=1e-5)


def test_the_standard_error_is_that_of_the_expected_information():
    a, b = np.array([1.0, 2.0, 0.5]), np.array([-1.0, 0.0, 1.0])
    bank = ItemBank("2pl", b, a, np.ones(3), np.zeros(3))
    scored = score_ability(np.array([[1.0, np.nan, 0.0]]), bank)
    p = bank.probability(scored.ability)[0]
    information = (a**2 * p * (1 - p))[[0, 2]].sum()
    assert scored.ability_se[0] == pytest.approx((1 + information) ** -0.5, rel=1e-9)


@settings(deadline=None)
@given(st.integers(0, 149), st.integers(0, 1000))
def test_one_more_right_answer_never_lowers_an_ability_in_the_2pl(item, seed):
    responses = np.repeat(planted(1, 150, seed=seed).responses, 2, axis=0)
    responses[:, item] = [0.0, 1.0]
    lower, higher = score_ability(responses, BANKS["2pl"]).ability
    assert higher > lower


def test_all_right_and_all_wrong_are_finite():
    scored = score_ability(np.array([[1.0] * 150, [0.0] * 150]), BANKS["3pl-upper"])
    assert 0 < scored.ability[0] < 20
    assert -20 < scored.ability[1] < 0


def test_ten_thousand_items_take_milliseconds():
    true = planted(2, 10_000)
    ones = np.ones(10_000)
    bank = ItemBank("2pl", true.difficulty, true.discrimination, ones, 0 * ones)
    begun = time.process_time()
    score_ability(true.responses[:1], bank)
    assert time.process_time() - begun < 0.2  # about 0.01


def test_a_bank_of_other_items_and_a_subject_without_answers_are_told():
    with pytest.raises(FcaError, match="items answered = 149; allowed: 150, the items of the bank"):
        score_ability(np.ones((1, 149)), BANKS["2pl"])
    with pytest.raises(FcaError, match="subjects without any answer = 1, the first at position 1"):
        score_ability(np.array([[1.0] * 150, [np.nan] * 150]), BANKS["2pl"])
