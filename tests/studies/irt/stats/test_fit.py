"""Fits of planted answers: what was planted comes back, whatever the order and the start, with holes and extremes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import roc_auc_score

from fca.studies.irt.stats import MODELS, check_responses, fit_irt, fit_items
from fca.studies.irt.stats.likelihood import prepare
from fca.types import FcaError
from tests.studies.irt.support.planted import planted, with_holes

ITEM_PARAMETERS = (
    "difficulty",
    "difficulty_se",
    "discrimination",
    "discrimination_se",
    "feasibility",
    "guess",
    "p_max",
)


def test_planted_parameters_come_back():
    true = planted(90, 2000)
    fit = fit_irt(true.responses)
    assert fit.converged
    assert kendalltau(fit.ability, true.ability).statistic > 0.96
    assert spearmanr(fit.difficulty, true.difficulty).statistic > 0.96
    assert spearmanr(fit.discrimination, true.discrimination).statistic > 0.75
    slope = np.polyfit(true.ability, fit.ability, 1)[0]
    assert slope == pytest.approx(1, abs=0.05)  # the unit of ability is the planted one, a standard deviation
    assert np.abs(fit.probability() - true_probability(true)).mean() < 0.05


def true_probability(true):
    solved = 1 / (1 + np.exp(-true.discrimination * (true.ability[:, None] - true.difficulty)))
    return true.feasibility * solved


def test_infeasible_items_have_a_low_p_max():
    true = planted(90, 2000, infeasible=0.05, ability_mean=0.5, ability_sd=1.5)  # able enough to solve what can be
    fit = fit_irt(true.responses, "3pl-upper")
    assert fit.converged
    assert roc_auc_score(true.feasibility < 0.5, -fit.p_max) > 0.99
    assert 0 < fit.feasibility.min() < fit.feasibility.max() < 1
    assert (fit.guess == 0).all()


@pytest.mark.parametrize("model", MODELS)
def test_order_of_subjects_and_items_changes_nothing(model):
    true = planted(30, 200, infeasible=0.05)
    rng = np.random.default_rng(0)
    subjects, items = rng.permutation(30), rng.permutation(200)
    fit, again = fit_irt(true.responses, model), fit_irt(true.responses[np.ix_(subjects, items)], model)
    assert again.ability == pytest.approx(fit.ability[subjects], abs=1e-6)
    assert again.ability_se == pytest.approx(fit.ability_se[subjects], abs=1e-6)
    for name in ITEM_PARAMETERS:
        assert getattr(again, name) == pytest.approx(getattr(fit, name)[items], abs=1e-6), name


@pytest.mark.wide
@pytest.mark.parametrize("model", MODELS)
def test_random_starts_end_at_the_same_mode(model):
    true = planted(40, 300, infeasible=0.05)
    fit = fit_irt(true.responses, model)
    for seed in (1, 2, 3):
        again = fit_irt(true.responses, model, start=np.random.default_rng(seed))
        assert again.converged, seed
        assert spearmanr(fit.difficulty, again.difficulty).statistic >= 0.999, seed
        assert again.ability == pytest.approx(fit.ability, abs=1e-4), seed


@pytest.mark.wide
@pytest.mark.parametrize("model", MODELS)
def test_most_answers_may_be_missing(model):
    true = planted(90, 1000)
    holes = with_holes(true.responses, 0.83)
    fit = fit_irt(holes, model)
    assert kendalltau(fit.ability, true.ability).statistic > 0.88
    assert spearmanr(fit.difficulty, true.difficulty).statistic > 0.75
    for name in ("ability", "ability_se", *ITEM_PARAMETERS):
        assert np.isfinite(getattr(fit, name)).all(), name


@pytest.mark.parametrize("model", MODELS)
def test_all_right_and_all_wrong_stay_finite_and_in_order(model):
    responses = planted(30, 100).responses
    responses[0], responses[1] = 1.0, 0.0
    responses[:, 0], responses[:, 1] = 1.0, 0.0
    responses[0, 1], responses[1, 0] = 1.0, 0.0  # the best on the hardest, the worst on the easiest
    fit = fit_irt(responses, model)
    assert fit.ability.argmax() == 0
    assert fit.ability.argmin() == 1
    assert fit.expected_success.argmin() == 1
    assert fit.expected_success[0] > np.quantile(fit.expected_success, 0.9)
    assert np.isfinite(fit.ability).all()
    assert np.isfinite(fit.difficulty).all()


answers_of_few = arrays(float, st.tuples(st.integers(2, 8), st.integers(2, 12)), elements=st.sampled_from([0.0, 1.0]))


@settings(deadline=None, max_examples=40)
@given(answers_of_few.filter(lambda responses: (responses.min(axis=0) < responses.max(axis=0)).any()))
def test_in_the_1pl_abilities_are_ordered_as_accuracies_exactly(responses):
    fit = fit_irt(responses, "1pl")
    accuracy = responses.sum(axis=1)
    assert (
        np.sign(np.subtract.outer(fit.ability, fit.ability)) == np.sign(np.subtract.outer(accuracy, accuracy))
    ).all()
    right = responses.sum(axis=0)
    harder = np.subtract.outer(fit.difficulty, fit.difficulty)
    assert (np.abs(harder[np.equal.outer(right, right)]) < 1e-9).all()
    assert (harder[np.less.outer(right, right)] > 0).all()


def test_mirrored_answers_mirror_the_2pl():
    """Right for wrong turns abilities and difficulties round, and leaves slopes: the logistic curve is symmetric."""
    responses = planted(25, 120).responses
    fit, mirrored = fit_irt(responses), fit_irt(1 - responses)
    assert mirrored.ability == pytest.approx(-fit.ability, abs=1e-6)
    assert mirrored.difficulty == pytest.approx(-fit.difficulty, abs=1e-6)
    assert mirrored.discrimination == pytest.approx(fit.discrimination, abs=1e-6)


def test_items_with_the_same_answers_are_worked_on_once():
    responses = np.repeat(planted(10, 20).responses, 3, axis=1)
    assert prepare(responses).count.sum() == 60
    assert len(prepare(responses).count) <= 20
    assert len(prepare(responses, one_slope=True).count) <= 11  # 0 to 10 right answers


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl-upper"])
def test_subjects_that_hardly_differ_still_have_a_fit_that_ends(model):
    # two subjects, both right in about half of the images: slopes shrink to 0, slower and slower, 1,000 steps once
    pattern, times = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=float), [44, 26, 28, 46]
    fit = fit_irt(np.repeat(pattern, times, axis=0).T, model)
    assert fit.converged
    assert fit.iterations < 500
    assert np.ptp(fit.probability(), axis=0).max() < 0.05  # the two are not separated


def test_standard_errors_cover_what_was_planted():
    inside = {"ability": [], "difficulty": []}
    for seed in range(30):
        true = planted(40, 200, seed=seed)
        fit = fit_irt(true.responses)
        for name, kept in inside.items():
            error = getattr(fit, name) - getattr(true, name)
            kept.append(np.mean(np.abs(error) < 1.96 * getattr(fit, f"{name}_se")))
    assert np.mean(inside["ability"]) == pytest.approx(0.95, abs=0.03)
    assert np.mean(inside["difficulty"]) == pytest.approx(0.95, abs=0.03)


def test_items_fitted_to_fixed_abilities_agree_with_the_joint_fit():
    true = planted(60, 500)
    fit = fit_irt(true.responses)
    items = fit_items(true.responses, fit.ability)
    assert (items.ability == fit.ability).all()
    assert (items.ability_se == 0).all()
    assert spearmanr(items.difficulty, fit.difficulty).statistic > 0.999
    assert items.difficulty == pytest.approx(fit.difficulty, abs=0.3)  # same likelihood; the prior of slopes moves
    half = fit_items(true.responses[:, :250], fit.ability, "1pl")
    assert spearmanr(half.difficulty, -true.responses[:, :250].mean(axis=0)).statistic == pytest.approx(1)


def test_an_ability_that_is_no_number_is_named():
    with pytest.raises(FcaError, match="ability of subject 1 = nan"):
        fit_items(planted(2, 10).responses, np.array([0.0, np.nan]))


def test_unknown_names_are_told_with_what_is_allowed():
    responses = planted(20, 60).responses
    with pytest.raises(FcaError, match="model = '5pl'; allowed: 1pl, 2pl, 3pl, 3pl-upper, 4pl"):
        fit_irt(responses, "5pl")
    with pytest.raises(FcaError, match="compat = 'seed002'; allowed: seed001"):
        fit_irt(responses, compat="seed002")
    assert fit_irt(responses, "4pl-feasibility").model == "3pl-upper"


@pytest.mark.parametrize(
    ("responses", "told"),
    [
        ([[1.0, 0.5], [0.0, 2.0]], r"answer of subject 0 on item 1 \(2 such answers\) = 0.5"),
        ([[1.0, 0.0]], "subjects = 1; allowed: 2 or more"),
        ([[1.0, 0.0, 1.0], [1.0, 0.0, np.nan]], "items that divide the subjects, among 3 = 0"),
        ([[1.0, np.nan], [0.0, np.nan]], "items without any answer = 1, the first at position 1"),
        ([[1.0, 0.0], [np.nan, np.nan]], "subjects without any answer = 1, the first at position 1"),
    ],
)
def test_answers_that_cannot_be_fitted_are_told_by_value_and_place(responses, told):
    with pytest.raises(FcaError, match=told):
        check_responses(np.array(responses))
