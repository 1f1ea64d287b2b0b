"""The variational fit against the truth it was drawn from, the joint mode, Monte Carlo, and numerical optimisation."""

import numpy as np
import pytest
import scipy.stats
from scipy.optimize import minimize
from scipy.special import expit

from fca.stats.irt import fit_irt, variational
from fca.stats.irt.likelihood import prepare
from fca.stats.irt.variational import MEAN_VARIANCE, Family, ascend, first_posterior, fit_variational, standardise
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
    evidence = [fit_variational(answers, model, epochs=n).log_posterior for n in (1, 2, 3, 4, 5, 10, 20, 40)]
    assert (np.diff(evidence) > -1e-8).all()  # rounding, of some hundreds of nats


@pytest.mark.parametrize(("model", "gap"), [("2pl", 0.02), ("3pl-upper", 0.05)])  # nats an answer; found .016, .042
def test_the_evidence_is_below_that_of_the_exact_likelihood_and_close(model, gap):
    """E log p(answers, z) - E log q(z) by sampling from q, without the quadratic bound and the indicators."""
    responses = drawn(15, 30, infeasible=0.2)[0]
    answers = prepare(responses)
    q = first_posterior(answers, model, np.random.default_rng(0))
    evidence, _, _ = ascend(q, answers, 500)
    rng, draws = np.random.default_rng(1), 5_000
    theta, b, a = (
        f.mean[g] + np.sqrt(f.variance[g]) * rng.standard_normal((draws, len(g)))
        for f, g in ((q.ability, np.arange(15)), (q.difficulty, answers.group), (q.discrimination, answers.group))
    )
    exact = sum(f.evidence() for f in (q.ability, q.difficulty, q.discrimination))
    feasibility = np.ones((draws, 30))
    if q.beta is not None:
        beta = scipy.stats.beta(*q.beta[:, answers.group])
        feasibility = beta.rvs((draws, 30), random_state=rng)
        exact += beta.entropy().sum()  # the prior's density is 1
    for s in range(15):
        chance = feasibility * expit(a * (theta[:, [s]] - b))
        exact += np.log(np.where(responses[s] == 1, chance, 1 - chance)).sum(axis=1).mean()
    assert exact - gap * responses.size < evidence < exact


def test_the_prior_of_values_that_are_known_is_the_conjugate_one():
    """q(mu) q(tau) that numerical ascent finds, for values without variance."""
    values = np.random.default_rng(0).normal(2.0, 3.0, 12)
    family = Family.around(values, np.ones(12), 0.0)
    for _ in range(100):
        family.update_prior()

    def loss(x):
        centre, centre_variance, shape, rate = x[0], *np.exp(x[1:])
        precision, q = shape / rate, scipy.stats.gamma(shape, scale=1 / rate)
        log_precision = scipy.special.digamma(shape) - np.log(rate)
        values_term = 6 * log_precision - precision / 2 * (((values - centre) ** 2) + centre_variance).sum()
        centre_term = -(centre**2 + centre_variance) / (2 * MEAN_VARIANCE) + np.log(centre_variance) / 2
        return -(values_term + centre_term - precision + q.entropy())

    best = minimize(loss, [0.0, 0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-6})
    found = [family.centre, family.centre_variance, family.shape, family.rate]
    assert found == pytest.approx([best.x[0], *np.exp(best.x[1:])], rel=1e-3)  # of the optimiser's steps


def test_the_unit_of_the_scale_is_the_best_one():
    rng = np.random.default_rng(0)
    families = [Family.around(rng.normal(1, sd, 20), np.ones(20), 0.2) for sd in (1, 2, 3)]
    standardise(*families)
    best = sum(f.evidence() for f in families)
    for factor, shift in ((0.9, 0.0), (0.99, 0.0), (1.01, 0.0), (1.1, 0.0), (1.0, -1.0), (1.0, 1.0)):
        moved = [Family(**vars(f)) for f in families]
        for family, by in zip(moved, (factor, factor, 1 / factor), strict=True):
            family.scale(by)
        for family in moved[:2]:
            family.mean, family.centre = family.mean + shift, family.centre + shift
        assert sum(f.evidence() for f in moved) < best


def test_leaps_end_where_plain_sweeps_do_and_sooner(monkeypatch):
    answers = drawn(40, 200, infeasible=0.1)[0]
    leapt = fit_variational(answers, "3pl-upper")
    monkeypatch.setattr(variational, "extrapolate", lambda first, second, third: third)
    plain = fit_variational(answers, "3pl-upper")
    assert leapt.converged
    assert leapt.iterations < plain.iterations / 2
    assert leapt.log_posterior > plain.log_posterior - 1  # nat, of some thousands: plain sweeps stop while they creep
    assert tau(leapt.ability, plain.ability) > 0.98


def test_the_order_of_subjects_and_items_does_not_matter():
    answers = drawn(30, 200)[0]
    rng = np.random.default_rng(0)
    subjects, items = rng.permutation(30), rng.permutation(200)
    fit, other = (fit_variational(z, "2pl") for z in (answers, answers[subjects][:, items]))
    np.testing.assert_allclose(other.ability, fit.ability[subjects], atol=1e-6)
    np.testing.assert_allclose(other.difficulty, fit.difficulty[items], atol=1e-6)


def test_one_seed_gives_one_answer_and_two_seeds_the_same_order():
    answers = drawn(40, 400)[0]
    first, again, other = (fit_variational(answers, "2pl", seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.difficulty, again.difficulty)
    assert first.log_posterior == again.log_posterior
    assert not np.array_equal(first.difficulty, other.difficulty)
    assert spearman(first.difficulty, other.difficulty) > 0.999


def test_the_joint_fit_s_compat_name_leads_here():
    answers = drawn(20, 60)[0]
    found = fit_irt(answers, "2pl", compat="seed001", seed=3).ability
    np.testing.assert_array_equal(found, fit_variational(answers, "2pl", seed=3).ability)


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl-upper"])
def test_answers_that_are_missing_say_nothing(model):
    answers, ability, *_ = drawn(40, 400)
    holes = np.where(np.random.default_rng(2).random(answers.shape) < 0.5, np.nan, answers)
    fit = fit_variational(holes, model, epochs=100)
    assert tau(fit.ability, ability) > 0.85
    assert all(
        np.isfinite(getattr(fit, name)).all() for name in ("ability_se", "difficulty", "discrimination", "p_max")
    )
    full = fit_variational(answers, model, epochs=100)
    assert (fit.ability_se > full.ability_se).all()  # fewer answers, wider


def test_an_item_that_the_better_subjects_miss_keeps_its_negative_discrimination():
    answers, ability, *_ = drawn(60, 300)
    answers[:, 0] = (ability < np.median(ability)).astype(float)
    fit = fit_variational(answers, "2pl")
    assert fit.discrimination[0] < 0
    assert np.median(fit.discrimination) > 0
    assert tau(fit.ability, answers.mean(axis=1)) > 0.9


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
