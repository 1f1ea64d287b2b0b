"""Fits of few responses claim no more than a posterior by quadrature, and name the scales that they leave open."""

import numpy as np
import pytest

from fca.studies.irt.stats import MODELS, fit_irt, fit_items
from fca.studies.psychometrics.stats.item_fit import mean_squares
from tests.studies.irt.support.planted import planted

# difficulties were -0.012, 0, 0, 0.012 with standard errors of 0.1
FOUR_BY_FOUR = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=float)  # 3, 2, 2, 1 right


def by_quadrature(responses, spread):
    """Posterior mean and standard deviation of four difficulties: θ ~ N(0, 1), b ~ N(m, spread²), m ~ N(0, 5²)."""
    grid = np.linspace(-6, 6, 21)
    ability, weight = np.polynomial.hermite_e.hermegauss(21)
    log_right = -np.logaddexp(0, grid - ability[:, None])
    log_wrong = -np.logaddexp(0, ability[:, None] - grid)
    place = np.stack(np.meshgrid(*[np.arange(len(grid))] * 4, indexing="ij"), axis=-1).reshape(-1, 4)

    difficulty = grid[place]
    precision = np.linalg.inv(spread**2 * np.eye(4) + 5.0**2)
    density = np.exp(-0.5 * np.einsum("ni,ij,nj->n", difficulty, precision, difficulty))
    for row in responses:
        log_chance = sum((log_right if row[item] else log_wrong)[:, place[:, item]] for item in range(4))
        density *= weight @ np.exp(log_chance)
    density /= density.sum()
    mean = density @ difficulty
    return mean, np.sqrt(density @ difficulty**2 - mean**2)


def test_four_by_four_is_as_uncertain_as_its_posterior():
    fit = fit_irt(FOUR_BY_FOUR, "1pl")
    assert fit.not_estimable == ("spread of difficulty",)
    mean, sd = by_quadrature(FOUR_BY_FOUR, spread=1.0)
    assert fit.difficulty == pytest.approx(mean, abs=0.1)  # a mode and a mean of a posterior that is nearly normal
    assert fit.difficulty_se == pytest.approx(sd, rel=0.15)  # Laplace's approximation


@pytest.mark.parametrize("model", MODELS)
def test_no_model_is_sure_of_four_by_four(model):
    fit = fit_irt(FOUR_BY_FOUR, model)
    assert fit.converged
    assert fit.not_estimable
    assert fit.difficulty_se.min() > 0.7
    assert fit.ability_se.min() > 0.5
    assert (fit.discrimination < 3).all()
    for squares in mean_squares(FOUR_BY_FOUR, fit):
        assert np.nanmax(squares.outfit) < 5  # was 12,469


@pytest.mark.wide
@pytest.mark.parametrize(("subjects", "items"), [(4, 8), (5, 10), (3, 100)])
@pytest.mark.parametrize("model", ["1pl", "2pl"])
def test_small_fits_end_and_none_is_surer_than_its_responses(model, subjects, items):
    rng = np.random.default_rng(0)
    for _ in range(4):
        ability, difficulty = rng.normal(size=(subjects, 1)), rng.normal(-1, 1, items)
        responses = (rng.random((subjects, items)) < 1 / (1 + np.exp(difficulty - ability))).astype(float)
        fit = fit_irt(responses, model)
        assert fit.converged
        # an item of `subjects` responses has an information of a quarter each, the prior one of at most 1 / 0.5² = 4
        assert np.median(fit.difficulty_se * fit.discrimination) > 1 / np.sqrt(4 + subjects * 0.25 * 1.5**2)


def test_subjects_that_differ_by_chance_alone_have_no_spread_of_ability():
    responses = (np.random.default_rng(0).random((5, 400)) < 0.6).astype(float)
    fit = fit_irt(responses)
    assert "spread of ability" in fit.not_estimable
    # in logits: 400 responses at 0.6 have a standard error of 1 / sqrt(400 · 0.24) = 0.1
    assert fit.ability_se == pytest.approx(0.1, abs=0.03)


def test_many_responses_leave_no_scale_open():
    for subjects, items in ((20, 1000), (3, 5000)):
        assert fit_irt(planted(subjects, items).responses).not_estimable == ()


def test_hardly_different_subjects_with_many_responses_keep_their_scale():
    true = planted(4, 20_000, ability_sd=0.3)
    fit = fit_irt(true.responses)
    assert fit.not_estimable == ()
    assert np.mean(fit.ability**2) == pytest.approx(1, abs=0.1)


@pytest.mark.wide
def test_slopes_at_fixed_abilities_do_not_grow_without_end():
    # difficulties at 0.1 of each other, mean discrimination exp(15), not converged
    true = planted(10, 300, seed=10)
    items = fit_items(true.responses, true.ability, "3pl-upper")
    assert items.converged
    assert np.median(items.discrimination) < 5
    assert np.corrcoef(items.difficulty, true.difficulty)[0, 1] > 0.5


def test_one_surprise_among_sure_responses_is_no_outfit_of_thousands():
    responses = np.ones((30, 40))
    responses[:15, :20] = 0.0
    responses[0, 39], responses[29, 0] = 0.0, 0.0
    responses[:, 20:25] = planted(30, 5).responses
    fit = fit_irt(responses)
    for squares in mean_squares(responses, fit):
        assert not (squares.outfit > 1000).any()
