"""The mode and its standard errors against the posterior written out in loops, climbed by scipy, bent numerically."""

import numpy as np
import pytest
import scipy.optimize

from fca.studies.irt.stats import as_fit
from fca.studies.irt.stats.likelihood import Cells, fill, first_state, prepare, random_state
from fca.studies.irt.stats.model import MODELS
from fca.studies.irt.stats.solve import derivatives, find_mode
from tests.studies.irt.support.irt_reference import gradient, hessian, log_posterior
from tests.studies.irt.support.planted import planted, with_holes

pytestmark = pytest.mark.slow  # long fits

SUBJECTS, ITEMS = 6, 8
RESPONSES = with_holes(planted(SUBJECTS, ITEMS, seed=3).responses, 0.15, seed=1)


def solved(model):
    answers = prepare(RESPONSES, one_slope=model == "1pl")
    mode = find_mode(answers, first_state(answers, model))
    assert mode.converged
    return answers, mode


def written_out(model, prior):
    """The posterior of abilities, items and the prior's centre, at the scales that were learned."""
    return lambda vector: log_posterior(vector[:-1], RESPONSES, model, prior.spread, prior.log_slope, vector[-1])


def as_vector(state, answers):
    return np.concatenate([state.ability, state.item[:, answers.group].ravel(), [state.prior.centre]])


@pytest.mark.parametrize("model", MODELS)
def test_no_climb_from_elsewhere_ends_higher(model):
    answers, mode = solved(model)
    function, found = written_out(model, mode.state.prior), as_vector(mode.state, answers)
    assert np.abs(gradient(function, found)).max() < 1e-5  # central differences of 1e-5 on sums of 50 terms
    elsewhere = np.random.default_rng(0).normal(0, 0.5, len(found))
    climbed = scipy.optimize.minimize(
        lambda vector: -function(vector), elsewhere, method="BFGS", options={"gtol": 1e-4}
    )
    assert -climbed.fun == pytest.approx(function(found), abs=1e-6)
    assert climbed.x == pytest.approx(found, abs=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_standard_errors_are_those_of_the_inverse_hessian(model):
    answers, mode = solved(model)
    function, found = written_out(model, mode.state.prior), as_vector(mode.state, answers)
    given_prior = hessian(lambda vector: function(np.append(vector, found[-1])), found[:-1])
    se = np.sqrt(np.diag(np.linalg.inv(-given_prior)))
    fit = as_fit(mode, answers)
    assert fit.ability_se == pytest.approx(se[:SUBJECTS], rel=1e-4)
    assert fit.difficulty_se == pytest.approx(se[-ITEMS:], rel=1e-4)
    if model != "1pl":  # of a, not of its logarithm
        assert fit.discrimination_se == pytest.approx(fit.discrimination * se[-2 * ITEMS : -ITEMS], rel=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_learned_scales_are_where_the_equations_hold(model):
    answers, mode = solved(model)
    state, prior = mode.state, mode.state.prior
    function, found = written_out(model, prior), as_vector(state, answers)
    bent = -hessian(function, found)
    rows = np.arange(len(state.item)) * ITEMS + SUBJECTS
    item_blocks = [bent[np.ix_(rows + i, rows + i)] for i in range(ITEMS)]
    variance = np.array([np.linalg.inv(block)[-1, -1] for block in item_blocks])
    squares = ((found[-1 - ITEMS : -1] - prior.centre) ** 2 + variance).sum()
    # derivative of -items log s - squares / (2 s²) - s² / 18, or the floor
    downhill = -ITEMS / prior.spread + squares / prior.spread**3 - prior.spread / 9
    assert downhill == pytest.approx(0, abs=1e-3) or (prior.spread == 0.1 and downhill < 0)
    if model != "1pl":
        mean_square = np.mean(state.ability**2 + 1 / np.diag(bent)[:SUBJECTS])
        assert mean_square == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_derivatives_are_those_of_the_posterior_anywhere(model):
    answers = prepare(RESPONSES)
    state = random_state(answers, model, np.random.default_rng(5))
    cells = Cells.empty(answers, model)
    fill(cells, answers, state)
    found = derivatives(state, cells, answers.count, observed=True)
    function, vector = written_out(model, state.prior), as_vector(state, answers)
    slope = gradient(function, vector)
    assert np.append(found.shared[:-1], found.shared[-1]) == pytest.approx(
        np.append(slope[:SUBJECTS], slope[-1]), abs=1e-6
    )
    assert found.item[:, answers.group].ravel() == pytest.approx(slope[SUBJECTS:-1], abs=1e-6)
    bent = -hessian(function, vector)[:SUBJECTS, SUBJECTS:-1].reshape(SUBJECTS, -1, ITEMS)
    np.testing.assert_allclose(found.cross[:, :-1, answers.group], bent.transpose(1, 0, 2), atol=1e-5)
