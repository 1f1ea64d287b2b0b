"""The random-effect logit against numerical quadrature, finite differences, and answers drawn from it."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm

from fca.stats.adaptive import make_pool, run_policy, start_policy
from fca.stats.adaptive.mixed_logit import (
    ALONE,
    Counts,
    Prior,
    count_patterns,
    curvature,
    evaluate,
    fit,
    group_sums,
    learn_prior,
    mixed_logit,
)

FLAT = Prior(np.zeros(4), np.full(4, 1e12), np.zeros(4))
PARAMETERS = np.array([[2.2, 0.4, -1.3, 1.7]])


def one_group(asked, right):
    sessions = np.arange(len(asked))
    zero = np.zeros(len(asked), dtype=np.int64)
    return Counts(np.array(asked), np.array(right), zero, zero + 1, sessions)


SOME = one_group([[1, 3, 5], [4, 4, 1], [12, 12, 12], [1, 2, 1]], [[1, 2, 0], [2, 1, 0], [12, 9, 3], [1, 2, 1]])


def joint(u, asked, right, b):
    """Density of a session's answers (in order) and its effect."""
    p = expit(b[:3] + b[3] * u)
    return norm.pdf(u) * np.prod(p**right * (1 - p) ** (asked - right))


def test_the_likelihood_is_the_integral_over_the_session_effect():
    expected = 0.0
    for asked, right in zip(SOME.asked, SOME.right, strict=True):
        expected += np.log(quad(joint, -12, 12, args=(asked, right, PARAMETERS[0]), epsabs=0, limit=200)[0])
    found = evaluate(SOME, FLAT, PARAMETERS).height[0]
    assert found == pytest.approx(expected, abs=1e-5)  # the tails beyond 4.8 hold 2e-6


def test_the_posterior_of_a_session_gives_the_chance_of_its_next_answer():
    local = evaluate(SOME, FLAT, PARAMETERS)
    for k, (asked, right) in enumerate(zip(SOME.asked, SOME.right, strict=True)):
        for level in range(3):
            chance = lambda u, level=level: expit(PARAMETERS[0, level] + PARAMETERS[0, 3] * u)  # noqa: E731
            args = (asked, right, PARAMETERS[0])
            whole = quad(lambda u: chance(u) * joint(u, *args), -12, 12, epsabs=0, limit=200)[0]  # noqa: B023
            expected = whole / quad(joint, -12, 12, args=args, epsabs=0, limit=200)[0]
            assert local.posterior[k] @ local.chance[0, level] == pytest.approx(expected, abs=1e-5)


def test_score_and_curvature_are_the_derivatives_of_the_height():
    prior = Prior(np.array([1.0, 0.0, -1.0, 1.0]), np.array([4.0, 1.0, 2.0, 0.5]), np.zeros(4))

    def height(b):
        return evaluate(SOME, prior, b[None]).height[0]

    local = evaluate(SOME, prior, PARAMETERS)
    score = group_sums(SOME, np.einsum("pn,pkn->pk", local.posterior, local.by_node))
    score = (score - (PARAMETERS - prior.mean) / prior.variance)[0]
    unit = np.eye(4)
    slopes = [(height(PARAMETERS[0] + 1e-5 * e) - height(PARAMETERS[0] - 1e-5 * e)) / 2e-5 for e in unit]
    assert score == pytest.approx(slopes, abs=1e-6)
    bends = np.empty((4, 4))
    for i in range(4):
        for j in range(4):
            near = [height(PARAMETERS[0] + 1e-3 * (s * unit[i] + t * unit[j])) for s in (1, -1) for t in (1, -1)]
            bends[i, j] = (near[0] - near[1] - near[2] + near[3]) / 4e-6
    assert -curvature(SOME, prior, local)[0] == pytest.approx(bends, abs=1e-4)


def test_the_fit_is_the_maximum_that_a_general_optimiser_finds(drawn):
    data = drawn(sessions=80, groups=2, sd=1.5)
    pool = make_pool(*data.pool)
    record = run_policy(start_policy("gre_two_stage", pool, 0.25), data.correct[0], np.random.default_rng(0)).record
    counts, alone = count_patterns(pool, record), Prior(np.zeros(4), ALONE**2, np.zeros(4))
    found, local = fit(counts, alone, np.tile([0.0, 0.0, 0.0, 1.0], (2, 1)))
    best = minimize(lambda b: -evaluate(counts, alone, b.reshape(2, 4)).height.sum(), np.tile([1.0, 0, -1, 0.5], 2))
    assert -local.height.sum() <= best.fun + 1e-6
    assert np.abs(found).ravel() == pytest.approx(np.abs(best.x), abs=2e-3)


def test_merged_patterns_are_the_sessions(drawn):
    data = drawn(sessions=60)
    pool = make_pool(*data.pool)
    record = run_policy(start_policy("random", pool, 0.1), data.correct[0], np.random.default_rng(0)).record
    counts = count_patterns(pool, record)
    assert (counts.asked[counts.of_session] == pool.by_stratum(record.asked)).all()
    assert (counts.right[counts.of_session] == pool.by_stratum(record.right)).all()
    assert (counts.group[counts.of_session] == pool.session_group).all()
    assert counts.times.sum() == 60


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
    counts = one_group([[4, 4, 4]] * 6, right)
    found, local = fit(counts, alone, np.array([[0.0, 0.0, 0.0, 1.0]]))
    best = minimize(lambda b: -evaluate(counts, alone, b[None]).height[0], np.array([2.0, 1.0, 0.0, 0.8]))
    assert found[0] == pytest.approx(best.x, abs=1e-3)
    assert np.linalg.eigvalsh(curvature(counts, alone, local)).min() > 0


@pytest.mark.parametrize("budget", [0.05, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("policy", ["random", "static_k", "fisher_cat"])
def test_small_tests_of_small_pools_have_estimates(policy, budget, drawn):
    data = drawn(sessions=12)
    pool = make_pool(*data.pool)
    for seed in range(4):
        test = start_policy(policy, pool, budget, data.bank)
        found = mixed_logit(pool, run_policy(test, data.correct[seed % 2], np.random.default_rng(seed)).record)
        assert np.isfinite(found.value).all()
        assert (found.se > 0).all()


@pytest.mark.parametrize("right", [True, False])
def test_answers_that_are_all_alike_have_an_estimate(right, drawn):
    data = drawn(sessions=20)
    pool = make_pool(*data.pool)
    record = run_policy(
        start_policy("gre_two_stage", pool, 0.25), np.full(pool.items, right), np.random.default_rng(0)
    ).record
    found = mixed_logit(pool, record)
    assert np.isfinite(found.se).all()
    assert found.value == pytest.approx(np.full((2, 2), float(right)), abs=0.03)
