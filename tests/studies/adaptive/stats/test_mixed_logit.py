"""The random-effect logit against numerical quadrature, finite differences, and answers drawn from it."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm

from fca.studies.adaptive.stats import make_pool, run_policy, start_policy
from fca.studies.adaptive.stats.estimators import stratified
from fca.studies.adaptive.stats.mixed_logit import (
    BETA_ALONE,
    KINDS,
    MISFIT,
    S_ALONE,
    Patterns,
    Prior,
    choose_kind,
    count_patterns,
    curvature,
    evaluate,
    fit,
    group_sums,
    learn_prior,
    mixed_logit,
    rows_of,
)

ONE, OWN = (KINDS[name].loadings for name in ("one effect a session", "an effect that differs by level"))
ALONE = np.array([BETA_ALONE] * 3 + [S_ALONE])
FLAT = Prior(np.zeros(4), np.full(4, 1e12), np.zeros(4))
PARAMETERS = np.array([[2.2, 0.4, -1.3, 1.7]])
ONCE = np.ones(4, dtype=np.int64)


def one_group(asked, right, loads=ONE):
    rows = np.arange(len(asked))
    zero = np.zeros(len(asked), dtype=np.int64)
    return Patterns(np.array(asked), np.array(right), zero, np.stack([zero + 1, zero]), rows, loads)


RESPONSES = [[1, 3, 5], [4, 4, 1], [12, 12, 12], [1, 2, 1]], [[1, 2, 0], [2, 1, 0], [12, 9, 3], [1, 2, 1]]
SOME = one_group(*RESPONSES)


def joint(u, asked, right, b):
    """Density of a session's answers (in order) and its effect."""
    p = expit(b[:3] + b[3] * u)
    return norm.pdf(u) * np.prod(p**right * (1 - p) ** (asked - right))


def test_the_likelihood_is_the_integral_over_the_session_effect():
    expected = 0.0
    for asked, right in zip(SOME.n_evaluated, SOME.n_right, strict=True):
        expected += np.log(quad(joint, -12, 12, args=(asked, right, PARAMETERS[0]), epsabs=0, limit=200)[0])
    found = evaluate(SOME, FLAT, PARAMETERS, ONCE).height[0]
    assert found == pytest.approx(expected, abs=1e-5)  # the tails beyond 4.8 hold 2e-6


def test_the_posterior_of_a_session_gives_the_chance_of_its_next_answer():
    local = evaluate(SOME, FLAT, PARAMETERS, ONCE)
    for k, (asked, right) in enumerate(zip(SOME.n_evaluated, SOME.n_right, strict=True)):
        for level in range(3):
            chance = lambda u, level=level: expit(PARAMETERS[0, level] + PARAMETERS[0, 3] * u)  # noqa: E731
            args = (asked, right, PARAMETERS[0])
            whole = quad(lambda u: chance(u) * joint(u, *args), -12, 12, epsabs=0, limit=200)[0]  # noqa: B023
            expected = whole / quad(joint, -12, 12, args=args, epsabs=0, limit=200)[0]
            assert local.posterior[k] @ local.chance[0, level] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("loads", "at"), [(ONE, PARAMETERS), (OWN, np.array([[2.2, 0.4, -1.3, 0.6, 1.7, 2.5]]))])
def test_score_and_curvature_are_the_derivatives_of_the_height(loads, at):
    k, counts = at.shape[1], one_group(*RESPONSES, loads)
    prior = Prior(np.linspace(1, -1, k), np.linspace(4, 0.5, k), np.zeros(k))

    def height(b):
        return evaluate(counts, prior, b[None], ONCE).height[0]

    local = evaluate(counts, prior, at, ONCE)
    score = group_sums(counts, np.einsum("pn,pkn->pk", local.posterior, local.score_by_node), ONCE)
    score = (score - (at - prior.mean) / prior.variance)[0]
    unit = np.eye(k)
    slopes = [(height(at[0] + 1e-5 * e) - height(at[0] - 1e-5 * e)) / 2e-5 for e in unit]
    assert score == pytest.approx(slopes, abs=1e-6)
    bends = np.empty((k, k))
    for i in range(k):
        for j in range(k):
            near = [height(at[0] + 1e-3 * (s * unit[i] + t * unit[j])) for s in (1, -1) for t in (1, -1)]
            bends[i, j] = (near[0] - near[1] - near[2] + near[3]) / 4e-6
    assert -curvature(counts, prior, local, ONCE)[0] == pytest.approx(bends, abs=1e-4)


def test_with_equal_effects_an_effect_that_differs_by_level_is_one_effect():
    own = evaluate(
        one_group(*RESPONSES, OWN),
        Prior(np.zeros(6), np.full(6, 1e12), np.zeros(6)),
        np.array([[2.2, 0.4, -1.3, 1.7, 1.7, 1.7]]),
        ONCE,
    )
    assert own.height == pytest.approx(evaluate(SOME, FLAT, PARAMETERS, ONCE).height, abs=1e-9)


def asked_of(drawn, policy="gre_two_stage", budget=0.25, **design):
    data = drawn(**design)
    pool = make_pool(*data.pool)
    return pool, run_policy(start_policy(policy, pool, budget), data.correct[0], np.random.default_rng(0)).record


def test_the_fit_is_the_maximum_that_a_general_optimiser_finds(drawn):
    pool, record = asked_of(drawn, sessions=80, groups=2, sd=1.5)
    counts, alone = (
        count_patterns(rows_of(pool, record, KINDS["one effect a session"]), ONE),
        Prior(np.zeros(4), ALONE**2, np.zeros(4)),
    )
    times = counts.frequency.sum(axis=0)
    found, local = fit(counts, alone, np.tile([0.0, 0.0, 0.0, 1.0], (2, 1)), times)
    best = minimize(
        lambda b: -evaluate(counts, alone, b.reshape(2, 4), times).height.sum(), np.tile([1.0, 0, -1, 0.5], 2)
    )
    assert -local.height.sum() <= best.fun + 1e-6
    assert np.abs(found).ravel() == pytest.approx(np.abs(best.x), abs=2e-3)


@pytest.mark.parametrize("name", KINDS)
def test_merged_patterns_are_the_rows_and_rows_are_the_sessions(name, drawn):
    pool, record = asked_of(drawn, "random", 0.1, sessions=60)
    rows = rows_of(pool, record, KINDS[name])
    counts = count_patterns(rows, KINDS[name].loadings)
    assert (counts.n_evaluated[counts.pattern_of_row] == rows.n_evaluated).all()
    assert (counts.n_right[counts.pattern_of_row] == rows.n_right).all()
    assert (counts.group[counts.pattern_of_row] == rows.group).all()
    assert counts.frequency.sum() == len(rows.group) == (180 if KINDS[name].separate_effects else 60)
    by_session = [
        one.reshape(60, -1, 3).sum(axis=1)
        for one in (rows.n_evaluated, rows.n_right, rows.n_evaluated + rows.n_remaining)
    ]
    for found, expected in zip(by_session, (record.evaluated, record.right, np.ones(pool.n_items, bool)), strict=True):
        assert (found == pool.by_stratum(expected)).all()


def sessions_drawn(logits, seed=0, sessions=200):
    """A pool and right or wrong, from the logit of each session and level."""
    rng = np.random.default_rng(seed)
    session = np.repeat(np.arange(sessions), 36)
    pool = make_pool(np.tile(np.repeat([0, 1, 2], 12), sessions), session, session % 4)
    eta = np.array([2.0, 0.5, -1.0]) + logits(rng, sessions)
    return pool, rng.random(pool.n_items) < expit(eta[pool.session, pool.level])


@pytest.mark.parametrize(
    ("name", "logits"),
    [
        ("one effect a session", lambda rng, n: 1.5 * rng.normal(size=(n, 1))),
        ("an effect that differs by level", lambda rng, n: np.array([0.1, 1.5, 4.0]) * rng.normal(size=(n, 1))),
        ("an effect for each level", lambda rng, n: 2.0 * rng.normal(size=(n, 3))),
    ],
)
def test_the_planted_kind_is_chosen(name, logits):
    pool, correct = sessions_drawn(logits)
    record = run_policy(start_policy("static_k", pool, 0.5), correct, np.random.default_rng(0)).record
    assert choose_kind(pool, record) == name


def test_a_random_sample_that_contradicts_the_model_takes_its_place():
    """After round one, a network that fails where it did well at first: no effect of sessions explains that."""
    pool, correct = sessions_drawn(lambda rng, n: 1.5 * rng.normal(size=(n, 1)), sessions=100)
    test, rng = start_policy("gre_two_stage", pool, 0.25), np.random.default_rng(0)
    test.record.add(first := test.next(rng), correct[first])
    test.record.add(second := test.next(rng), np.zeros(len(second), dtype=bool))
    found = mixed_logit(pool, test.record)
    assert found.warning == MISFIT
    assert found.value == pytest.approx(stratified(pool, test.record.random_sample).value, abs=1e-12)
    assert test.record.random_sample.evaluated.sum() == len(first)
    fine = mixed_logit(pool, run_policy(start_policy("gre_two_stage", pool, 0.25), correct, rng).record)
    assert not fine.warning


def test_groups_that_are_alike_share_and_groups_that_are_not_stand_alone():
    rng = np.random.default_rng(0)
    noise = 0.3 * rng.standard_normal((10, 4))
    variance = np.full((10, 4), 0.09)
    alike = learn_prior(noise, variance)
    assert (np.sqrt(alike.variance) < 0.25).all()
    unlike = learn_prior(noise + 2 * rng.standard_normal((10, 4)), variance)
    assert (np.sqrt(unlike.variance) > 1).all()
    assert unlike.mean_variance == pytest.approx((unlike.variance + 0.09) / 10)
    two = learn_prior(noise[:2], variance[:2])
    assert (np.sqrt(two.variance) > 0.5).all(), "two groups cannot show that they are alike"


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "between"), [("gre_two_stage", 0.0), ("gre_two_stage", 0.8), ("static_k", 0.8)])
def test_intervals_cover_the_pool_when_the_model_is_true(policy, between):
    """Session effects of sd 1.5, groups that differ by `between` in their intercepts: each pool is its own truth."""
    rng = np.random.default_rng(1)
    sessions, groups = 200, 5
    levels, session = np.tile(np.repeat([0, 1, 2], 12), sessions), np.repeat(np.arange(sessions), 36)
    pool = make_pool(levels, session, session % groups)
    covered, errors = [], []
    for _ in range(80):
        shift = between * rng.standard_normal((groups, 3))
        eta = np.array([2.0, 0.8, -1.0])[levels] + shift[session % groups, levels]
        correct = rng.random(len(eta)) < expit(eta + 1.5 * rng.standard_normal(sessions)[session])
        found = mixed_logit(pool, run_policy(start_policy(policy, pool, 0.25), correct, rng).record)
        truth = pool.truth(correct)
        covered.append((found.low <= truth) & (truth <= found.high))
        errors.append((found.value - truth) / found.se)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)  # 400 pairs of correlated targets: standard error 0.012
    assert np.mean(errors) == pytest.approx(0, abs=0.2)
    assert np.mean(np.square(errors)) == pytest.approx(1, abs=0.2)


def test_few_sessions_do_not_stop_the_fit_where_no_spread_is_a_trough():
    """These answers once held it at s = 0, from which every direction is uphill."""
    right = [[3, 1, 0], [3, 4, 3], [4, 2, 1], [4, 2, 2], [4, 4, 2], [4, 4, 3]]
    alone = Prior(np.zeros(4), ALONE**2, np.zeros(4))
    counts, once = one_group([[4, 4, 4]] * 6, right), np.ones(6, dtype=np.int64)
    found, local = fit(counts, alone, np.array([[0.0, 0.0, 0.0, 1.0]]), once)
    best = minimize(lambda b: -evaluate(counts, alone, b[None], once).height[0], np.array([2.0, 1.0, 0.0, 0.8]))
    assert found[0] == pytest.approx(best.x, abs=1e-3)
    assert np.linalg.eigvalsh(curvature(counts, alone, local, once)).min() > 0


@pytest.mark.parametrize("budget", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("policy", ["random", "static_k", "fisher_cat"])
def test_small_tests_of_small_pools_have_estimates(policy, budget, drawn):
    data = drawn(sessions=12)
    pool = make_pool(*data.pool)
    for seed in range(2):
        test = start_policy(policy, pool, budget, data.bank)
        found = mixed_logit(pool, run_policy(test, data.correct[seed], np.random.default_rng(seed)).record)
        assert np.isfinite(found.value).all()
        assert (found.se > 0).all()


@pytest.mark.parametrize("right", [True, False])
def test_answers_that_are_all_alike_have_an_estimate(right, drawn):
    data = drawn(sessions=20)
    pool = make_pool(*data.pool)
    record = run_policy(
        start_policy("gre_two_stage", pool, 0.25), np.full(pool.n_items, right), np.random.default_rng(0)
    ).record
    found = mixed_logit(pool, record)
    assert np.isfinite(found.se).all()
    assert found.value == pytest.approx(np.full((2, 2), float(right)), abs=0.03)
