"""The variational fit against the truth it was drawn from, the joint mode, numerical integration, and py-irt."""

import numpy as np
import pytest
import scipy.stats
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import digamma, expit

from fca.studies.irt.stats import fit_irt
from fca.studies.irt.stats.likelihood import prepare
from fca.studies.irt.stats.variational import (
    MEAN_VARIANCE,
    Scale,
    State,
    fit_variational,
    grid,
    items_step,
    logs,
    population,
)
from fca.types import FcaError


def drawn(subjects, items, infeasible=0.0, seed=0):
    """Answers and the truth behind them; `infeasible` of the items have an upper asymptote below .5."""
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(0.5, 1.5, subjects), rng.normal(-0.5, 1.2, items)
    slope = np.exp(rng.normal(0.2, 0.4, items))
    feasibility = np.where(rng.random(items) < infeasible, rng.uniform(0, 0.5, items), 1.0)
    chance = feasibility * expit(slope * (ability[:, None] - difficulty))
    return (rng.random((subjects, items)) < chance).astype(float), ability, difficulty, slope, feasibility


def tau(a, b):
    return scipy.stats.kendalltau(a, b).statistic


def spearman(a, b):
    return scipy.stats.spearmanr(a, b).statistic


def test_abilities_and_items_are_recovered_and_ranked_as_by_the_joint_mode():
    answers, ability, difficulty, slope, _ = drawn(60, 800)
    fit = fit_variational(answers, "2pl")
    assert fit.converged
    assert tau(fit.ability, ability) > 0.93  # the joint mode reaches .94 on such answers
    assert spearman(fit.difficulty, difficulty) > 0.93
    assert spearman(fit.discrimination, slope) > 0.65
    assert (fit.feasibility == 1).all()
    mode = fit_irt(answers, "2pl")
    assert tau(fit.ability, mode.ability) > 0.97
    assert spearman(fit.difficulty, mode.difficulty) > 0.98
    assert spearman(fit.discrimination, mode.discrimination) > 0.98


def test_one_parameter_and_complete_answers_rank_subjects_by_accuracy():
    answers = drawn(40, 300)[0]
    fit = fit_variational(answers, "1pl")
    right = answers.sum(axis=1)
    assert (np.diff(fit.ability[np.argsort(right, kind="stable")]) >= -1e-9).all()
    assert (fit.discrimination == 1).all()
    assert (fit.discrimination_se == 0).all()


def test_items_that_nobody_solves_for_sure_are_found():
    answers, _, _, _, feasibility = drawn(60, 600, infeasible=0.1)
    fit = fit_variational(answers, "4pl-feasibility", epochs=200)
    assert fit.model == "3pl-upper"
    order = scipy.stats.rankdata(-fit.p_max)
    bad = feasibility < 0.5
    area = (order[bad].sum() - bad.sum() * (bad.sum() + 1) / 2) / (bad.sum() * (~bad).sum())
    assert 1 - area < 0.01  # low p_max ranks last: the AUC of "infeasible" is 1 - (share of pairs in the wrong order)


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl-upper"])
def test_the_evidence_rises_sweep_by_sweep(model):
    answers = drawn(20, 60, infeasible=0.1)[0]
    answers[np.random.default_rng(1).random(answers.shape) < 0.2] = np.nan
    evidence = [fit_variational(answers, model, epochs=n).log_posterior for n in (1, 2, 3, 5, 10, 20, 40)]
    assert evidence[-1] > evidence[0] + 1
    assert (np.diff(evidence) > -0.1).all()  # nats, of hundreds: the grid moves with the priors, the unit is set


def test_the_posterior_of_an_item_is_that_of_numerical_integration():
    """Mean and deviation of one 1PL difficulty given abilities that are nearly known."""
    ability = np.array([-1.5, -0.5, 0.0, 0.8, 1.7])
    right = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    state = State(ability, np.full(5, 1e-8), Scale(0.3, 1.2, 0.0, 0.0, 1.0))
    at = grid("1pl", 5)
    found = items_step(logs(state, at), prepare(right[:, None]), state.scale, at)

    def moment(power):
        def weighted(b):
            chance = expit(ability - b)
            return b**power * np.exp(-((b - 0.3) ** 2) / (2 * 1.2**2)) * np.where(right == 1, chance, 1 - chance).prod()

        return quad(weighted, -8, 8)[0]

    mean, square = moment(1) / moment(0), moment(2) / moment(0)
    assert found.difficulty[0, 0] == pytest.approx(mean, abs=1e-3)
    inside = (at.width[0] * 1.2) ** 2 / 12  # what a point stands for is counted as spread
    assert found.difficulty[1, 0] == pytest.approx(square - mean**2 + inside, abs=2e-3)


def test_the_prior_of_values_that_are_known_is_the_conjugate_one():
    """q(mu) q(tau) that numerical ascent finds, for values without variance, and its evidence."""
    values = np.random.default_rng(0).normal(2.0, 3.0, 12)
    found = population(values, np.zeros(12), np.ones(12))

    def loss(x):
        centre, centre_variance, shape, rate = x[0], *np.exp(x[1:])
        precision, q = shape / rate, scipy.stats.gamma(shape, scale=1 / rate)
        log_precision = digamma(shape) - np.log(rate)
        values_term = 6 * log_precision - precision / 2 * (((values - centre) ** 2) + centre_variance).sum()
        centre_term = -(centre**2 + centre_variance) / (2 * MEAN_VARIANCE) + np.log(centre_variance / MEAN_VARIANCE) / 2
        return -(values_term + centre_term + 0.5 - precision + q.entropy())

    best = minimize(loss, [0.0, 0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-6})
    shape, rate = np.exp(best.x[2:])
    assert [found.centre, found.precision] == pytest.approx([best.x[0], shape / rate], rel=1e-3)  # of its steps
    plain = 6 * np.log(found.precision) - found.precision / 2 * ((values - found.centre) ** 2).sum()
    assert plain + found.evidence == pytest.approx(-best.fun, abs=1e-4)


def test_the_order_of_subjects_and_items_does_not_matter():
    answers = drawn(30, 200)[0]
    rng = np.random.default_rng(0)
    subjects, items = rng.permutation(30), rng.permutation(200)
    fit, other = (fit_variational(z, "2pl") for z in (answers, answers[subjects][:, items]))
    np.testing.assert_allclose(other.ability, fit.ability[subjects], atol=1e-6)
    np.testing.assert_allclose(other.difficulty, fit.difficulty[items], atol=1e-6)


def test_one_seed_gives_one_answer_and_two_seeds_nearly_the_same():
    answers = drawn(40, 400)[0]
    first, again, other = (fit_variational(answers, "2pl", seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.difficulty, again.difficulty)
    assert first.log_posterior == again.log_posterior
    assert not np.array_equal(first.difficulty, other.difficulty)
    np.testing.assert_allclose(other.ability, first.ability, atol=3e-3)  # ten times the tolerance of a sweep


def test_the_joint_fit_s_compat_name_leads_here():
    answers = drawn(20, 60)[0]
    found = fit_irt(answers, "2pl", compat="seed001", seed=3).ability
    np.testing.assert_array_equal(found, fit_variational(answers, "2pl", seed=3).ability)


@pytest.mark.wide
@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl-upper"])
def test_answers_that_are_missing_say_nothing(model):
    answers, ability, *_ = drawn(40, 400)
    answers[:, :2], answers[0], answers[1] = [1.0, 0.0], 1.0, 0.0  # items and subjects that are constant
    holes = np.where(np.random.default_rng(2).random(answers.shape) < 0.5, np.nan, answers)
    fit, full = (fit_variational(z, model, epochs=200) for z in (holes, answers))
    assert tau(fit.ability[2:], ability[2:]) > 0.85
    assert fit.ability[0] == fit.ability.max()
    assert fit.ability[1] == fit.ability.min()
    for name in ("ability_se", "difficulty_se", "discrimination_se", "difficulty", "discrimination", "p_max"):
        assert np.isfinite(getattr(fit, name)).all()
    assert np.median(fit.ability_se / full.ability_se) > 1.2  # half the answers: up to the root of 2 wider
    assert (fit.difficulty_se > 0).all()


def test_an_item_that_the_better_subjects_miss_discriminates_least():
    answers, ability, *_ = drawn(60, 300)
    answers[:, 0] = (ability < np.median(ability)).astype(float)
    fit = fit_variational(answers, "2pl")
    assert fit.discrimination.argmin() == 0
    assert tau(fit.ability, answers.mean(axis=1)) > 0.9


PEDRO, PINGUINO, KEN, BURT = [1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]
# py-irt 0.7.1 on its own tests' file (minitest.jsonlines: these four), torch 2.13.0 on a CPU, hierarchical priors,
# lr .1, 2,000 epochs, pyro.set_rng_seed(1): abilities and difficulties. Its seeds 0 and 2 differ by up to 3.2 in the
# 1pl and agree in the order below; its 2pl has discriminations of .01 with these two, so seed 1 it is.
PY_IRT = {
    "1pl": ([-0.363, -0.336, 6.916, -7.833], [-4.137, -0.583, -0.34, 3.664]),
    "2pl": ([0.224, -0.099, 4.052, -3.749], [-1.967, -0.374, -0.194, 1.185]),
    "3pl-upper": ([1.88, 1.537, 8.315, -5.887], [-1.651, -0.773, -0.186, 0.976]),  # "4pl" there
}


@pytest.mark.parametrize("model", PY_IRT)
def test_py_irt_s_own_file_is_ordered_as_py_irt_orders_it(model):
    fit = fit_variational(np.array([PEDRO, PINGUINO, KEN, BURT], dtype=float), model)
    ability, difficulty = map(np.array, PY_IRT[model])
    for ours, theirs, middle in ((fit.ability, ability, [0, 1]), (fit.difficulty, difficulty, [1, 2])):
        assert ours.argmax() == theirs.argmax()
        assert ours.argmin() == theirs.argmin()
        assert np.ptp(ours[middle]) < 0.1 * np.ptp(ours)  # two of each have the same number of right answers
        assert np.corrcoef(ours, theirs)[0, 1] > 0.95


def two_blocks(subjects=60, items=1500, seed=0):
    """Half of the items discriminate at .6, half at 2."""
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(size=subjects), rng.normal(0, 1, items)
    slope = np.where(np.arange(items) < items // 2, 0.6, 2.0)
    chance = expit(slope * (ability[:, None] - difficulty))
    return (rng.random(chance.shape) < chance).astype(float), slope


@pytest.mark.parametrize("compat", [None, "seed001"])
@pytest.mark.parametrize("model", ["2pl", "3pl-upper"])
@pytest.mark.slow
def test_two_blocks_of_items_keep_their_two_discriminations(model, compat):
    """With λ ~ U[0, 1] for every item the ratio of 3.3 came out as 1.0 (ADR 24). Found: 1.75 to 2.50."""
    answers, slope = two_blocks()
    fit = fit_irt(answers, model, compat=compat)
    assert fit.converged
    assert np.median(fit.discrimination[slope == 2]) / np.median(fit.discrimination[slope < 2]) > 1.6


def test_caps_are_seen_where_they_are():
    """Half of the items have one, drawn as the model has it."""
    rng = np.random.default_rng(0)
    ability, difficulty = rng.normal(0, 2.5, 60), rng.normal(0, 1, 400)
    feasibility = np.where(np.arange(400) < 200, rng.random(400), 1.0)
    answers = (rng.random((60, 400)) < feasibility * expit(1.5 * (ability[:, None] - difficulty))).astype(float)
    found = fit_variational(answers, epochs=40).feasibility
    assert spearman(found[:200], feasibility[:200]) > 0.9
    assert np.median(found[200:]) > 0.95


LEARNS = {
    "1pl": ("difficulty",),
    "2pl": ("difficulty", "discrimination"),
    "3pl": ("difficulty", "discrimination", "guess"),
    "3pl-upper": ("difficulty", "discrimination", "feasibility"),
    "4pl": ("difficulty", "discrimination", "feasibility", "guess"),
}


def planted(model, subjects=1000, items=300, seed=0):
    """Continuous parameters. Abilities are 2.5 wide, so that some subjects stand on each asymptote of every item."""
    rng, learned = np.random.default_rng(seed), LEARNS[model]
    ability, difficulty = rng.normal(0, 2.5, subjects), rng.normal(0, 1, items)
    slope = np.exp(rng.normal(0.2, 0.5, items)) if "discrimination" in learned else np.ones(items)
    feasibility = rng.uniform(0.5, 1, items) if "feasibility" in learned else np.ones(items)
    guess = feasibility * (rng.uniform(0, 0.4, items) if "guess" in learned else np.zeros(items))
    chance = guess + (feasibility - guess) * expit(slope * (ability[:, None] - difficulty))
    truth = {"difficulty": difficulty, "discrimination": slope, "feasibility": feasibility, "guess": guess}
    return (rng.random(chance.shape) < chance).astype(float), ability, {name: truth[name] for name in learned}


# The 4PL does not reach .9 in this design: .895 (b), .745 (a), .859 (λ), .831 (guess). Between two learned asymptotes
# a slope has .55 of the answers' range to show in, and a shallow item reaches neither. Abilities 5 wide and slopes
# spread by .8 give .853, .823, .906, .854; 2,000 subjects, slopes spread by .8 around 1.6: .922, .800, .795, .669.
# What could be reached: posterior means of items at the planted abilities, with the planted densities as priors, give
# .937, .868, .958, .932, so .9 is out of reach for a. `fit_items` at those abilities gives .932, .856, .954, .925, at
# the fitted ones .924, .797, .923, .871: the rest is lost in the joint mode, whose scale of slopes is learned too low.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "compat"),
    [*((model, None) for model in LEARNS), *((model, "seed001") for model in ("1pl", "2pl", "3pl-upper"))],
)
def test_every_parameter_of_every_model_is_recovered(model, compat):
    answers, ability, truth = planted(model)
    fit = fit_irt(answers, model, compat=compat)
    assert fit.converged
    assert spearman(fit.ability, ability) > 0.9
    found = {name: spearman(getattr(fit, name), values) for name, values in truth.items()}
    assert min(found.values()) > (0.7 if model == "4pl" else 0.9), found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "4pl"}, "model = 4pl; allowed: 1pl, 2pl, 3pl-upper"),
        ({"epochs": 0}, "epochs = 0; allowed: 1 or more"),
    ],
)
def test_what_cannot_be_fitted_is_named(change, message):
    with pytest.raises(FcaError, match=message):
        fit_variational(drawn(5, 10)[0], **change)
