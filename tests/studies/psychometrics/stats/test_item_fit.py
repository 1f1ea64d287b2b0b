"""Mean squares by hand and on data that fit; S-X² by enumeration; both on planted misfit."""

import itertools

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

from fca.studies.irt.stats import ItemBank, fit_irt
from fca.studies.psychometrics.stats.item_fit import mean_squares, misfit, replicates
from fca.studies.psychometrics.stats.score_fit import expected_share, score_chances, score_fit
from fca.types import FcaError
from tests.studies.irt.support.planted import planted, with_holes


def rasch(subjects, items, seed):
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(size=(subjects, 1)), rng.normal(-0.5, 1.2, items)
    return (rng.random((subjects, items)) < 1 / (1 + np.exp(difficulty - ability))).astype(float)


def misfits(responses, model, number=10, seed=0):
    fit = fit_irt(responses, model)
    drawn = replicates(responses, fit, np.random.default_rng(seed), number)
    items, subjects = zip(*(mean_squares(*pair) for pair in drawn), strict=True)
    observed = mean_squares(responses, fit)
    return misfit(observed[0], items), misfit(observed[1], subjects)


@pytest.mark.parametrize("model", ["1pl", "2pl", "4pl"])
def test_mean_squares_are_those_of_loops_over_responses(model):
    responses = with_holes(planted(12, 30, infeasible=0.1).responses, 0.2)
    fit = fit_irt(responses, model)
    found = mean_squares(responses, fit)
    p = fit.probability()
    for axis, part in enumerate(found):
        for at in range(len(part.infit)):
            lines = [at] if axis else range(12), range(30) if axis else [at]
            seen = [(responses[s, i], p[s, i]) for s in lines[0] for i in lines[1] if not np.isnan(responses[s, i])]
            squares = [(x - chance) ** 2 for x, chance in seen]
            noise = [chance * (1 - chance) for _, chance in seen]
            assert part.infit[at] == pytest.approx(sum(squares) / sum(noise), rel=1e-9)
            assert part.outfit[at] == pytest.approx(np.mean(np.array(squares) / noise), rel=1e-9)


def test_items_and_subjects_that_follow_the_1pl_are_flagged_in_one_of_twenty_cases():
    items, subjects = misfits(rasch(65, 4000, seed=1), "1pl")
    for z in (items.infit_z, items.outfit_z):
        z = z[~np.isnan(z)]
        assert len(z) > 3800
        assert abs(z.mean()) < 0.05
        assert 0.9 < z.std() < 1.08
        assert 0.03 < (np.abs(z) > 1.96).mean() < 0.065
    assert abs(subjects.infit_z.mean()) < 0.5  # ten replicates: their common error is a third of a standard deviation
    assert 0.75 < subjects.infit_z.std() < 1.25
    assert 0.9 < items.infit.mean() < 1.02


@pytest.mark.slow
def test_in_the_2pl_the_level_is_held_and_not_used_up():
    items, subjects = misfits(planted(65, 1500, seed=1).responses, "2pl")
    for z in (items.infit_z, items.outfit_z):
        z = z[~np.isnan(z)]
        assert abs(z.mean()) < 0.2
        assert 0.005 < (np.abs(z) > 1.96).mean() < 0.05
    assert (np.abs(subjects.infit_z) > 1.96).mean() < 0.12


def test_few_subjects_bend_items_and_simulation_knows_by_how_much():
    items, subjects = misfits(rasch(20, 2000, seed=2), "1pl", number=5)
    assert subjects.infit.mean() < 0.93  # not 1, although every response follows the model
    assert subjects.infit.mean() == pytest.approx(subjects.infit_expected.mean(), abs=0.02)
    assert np.nanmean(items.infit_z) == pytest.approx(0, abs=0.15)


def test_an_item_answered_by_coin_and_a_subject_who_guesses_stand_out():
    responses, rng = rasch(200, 300, seed=3), np.random.default_rng(3)
    responses[:, 0], responses[0] = rng.random(200) < 0.5, rng.random(300) < 0.5
    items, subjects = misfits(responses, "1pl", number=3)
    assert np.nanargmax(items.infit_z) == 0
    assert items.infit_z[0] > 4
    assert np.nanargmax(subjects.infit_z) == 0
    assert subjects.infit_z[0] > 5


def test_an_item_that_nearly_all_solve_has_no_z():
    responses = rasch(30, 100, seed=4)
    responses[:, 0] = 1.0
    found, _ = mean_squares(responses, fit_irt(responses, "1pl"))
    assert np.isnan(found.infit_sd[0])
    assert np.isfinite(found.infit).all()


def test_responses_of_another_fit_are_refused():
    fit = fit_irt(rasch(10, 40, seed=0), "1pl")
    with pytest.raises(FcaError, match=r"subjects x items of responses = 10 x 39; allowed: 10 x 40"):
        mean_squares(rasch(10, 39, seed=0), fit)


def random_bank(items, seed=0):
    rng = np.random.default_rng(seed)
    one = np.ones(items)
    return ItemBank("2pl", rng.normal(0, 1, items), np.exp(rng.normal(0, 0.4, items)), one, 0 * one)


def test_chances_of_scores_are_those_of_all_patterns():
    p = random_bank(6).probability(np.array([-1.0, 0.5, 4.0]))
    at, weight = hermegauss(15)
    of_nodes, weight = random_bank(6).probability(at), weight / weight.sum()
    chances, right, every = np.zeros((3, 7)), np.zeros((7, 6)), np.zeros(7)
    for pattern in itertools.product((0, 1), repeat=6):
        x = np.array(pattern)
        chances[:, x.sum()] += np.where(x == 1, p, 1 - p).prod(axis=1)
        mass = weight @ np.where(x == 1, of_nodes, 1 - of_nodes).prod(axis=1)
        every[x.sum()] += mass
        right[x.sum()] += mass * x
    assert score_chances(p) == pytest.approx(chances, abs=1e-14)
    assert expected_share(of_nodes, weight) == pytest.approx((right / every[:, None])[1:-1], abs=1e-12)


def test_expected_shares_stay_exact_for_many_items_and_extreme_chances():
    bank = random_bank(250)
    shares = expected_share(bank.probability(np.linspace(-4, 4, 9)), np.full(9, 1 / 9))
    scores = np.arange(1, 250)
    assert shares.sum(axis=1) == pytest.approx(scores, rel=1e-9)  # whoever has k right has k right
    assert ((shares >= 0) & (shares <= 1)).all()


@pytest.mark.slow
def test_items_that_follow_the_2pl_are_flagged_in_one_of_twenty_cases_and_a_bent_one_is_found():
    flagged = []
    for seed in range(4):
        rng, bank = np.random.default_rng(seed), random_bank(100, seed)
        ability = rng.normal(size=400)
        p = bank.probability(ability)
        p[:, 0] = np.where(np.abs(ability) > 0.7, 0.85, 0.15)
        responses = (rng.random(p.shape) < p).astype(float)
        found = score_fit(responses, fit_irt(responses).bank)
        assert found.p[0] < 0.01
        flagged += (found.p[1:] < 0.05).tolist()
    assert 0.025 < np.mean(flagged) < 0.075  # .05 ± 2 standard errors of 396 items


def test_known_items_are_flagged_in_one_of_twenty_cases():
    from scipy.stats import chi2

    flagged = []
    for seed in range(20):
        rng, bank = np.random.default_rng(seed), random_bank(20, seed)
        responses = (rng.random((1000, 20)) < bank.probability(rng.normal(size=1000))).astype(float)
        found = score_fit(responses, bank)
        flagged += (chi2.sf(found.statistic, found.df + 2) < 0.05).tolist()  # no parameter was fitted
    assert 0.03 < np.mean(flagged) < 0.07  # .05 ± 2 standard errors of 400 items


def test_too_few_items_or_subjects_leave_cells_empty():
    assert np.isnan(score_fit(np.ones((50, 2)), random_bank(2)).p).all()
    assert np.isnan(score_fit(np.full((5, 4), np.nan), random_bank(4)).p).all()
    assert np.isnan(score_fit((np.random.default_rng(0).random((3, 40)) < 0.5).astype(float), random_bank(40)).p).all()
