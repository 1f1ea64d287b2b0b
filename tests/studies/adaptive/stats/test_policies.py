"""What each policy asks: how many, of which level, of whom; and what it refuses."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize

from fca.studies.adaptive.stats import (
    MAPPING_L,
    MAPPING_Q,
    POLICIES,
    GreTwoStage,
    NeymanIrt,
    check_mapping,
    make_pool,
    run_policy,
    start_policy,
)
from fca.studies.adaptive.stats.policies import information, spread
from fca.types import FcaError


def played(policy, data, budget=0.25, seed=0, model=0):
    pool = make_pool(*data.pool)
    test = start_policy(policy, pool, budget, data.bank)
    return pool, run_policy(test, data.correct[model], np.random.default_rng(seed)).record


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("budget", [0.25, 0.5])
def test_every_policy_asks_its_budget_of_every_group(policy, budget, drawn):
    data = drawn()
    pool, record = played(policy, data, budget)
    asked = pool.by_group(pool.by_stratum(record.evaluated)).sum(axis=1)
    assert asked.tolist() == [budget * 720] * 2
    assert (record.right == (record.evaluated & data.correct[0])).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_seed_decides_what_is_asked(policy, drawn):
    data = drawn(sessions=10)
    first, again, other = (played(policy, data, seed=seed)[1].evaluated for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_static_k_asks_k_of_every_level_of_every_session(drawn):
    pool, record = played("static_k", drawn())
    assert (pool.by_stratum(record.evaluated) == 3).all()


def test_random_is_blind_to_levels(drawn):
    pool, record = played("random", drawn(sessions=200))
    assert pool.by_stratum(record.evaluated).sum(axis=0) / 600 == pytest.approx([1, 1, 1], abs=0.12)  # of 3 a level
    assert len(np.unique(pool.by_stratum(record.evaluated))) > 3


@pytest.mark.parametrize("mapping", [MAPPING_Q, MAPPING_L])
def test_the_second_round_is_the_line_of_the_points_won(mapping, drawn):
    data = drawn(sessions=120)
    pool = make_pool(*data.pool)
    test, rng = GreTwoStage(pool, 0.25, mapping=mapping), np.random.default_rng(0)
    first = test.next(rng)
    assert (np.bincount(pool.stratum[first], minlength=360).reshape(-1, 3) == [1, 2, 1]).all()
    test.record.add(first, data.correct[0, first])
    second = test.next(rng)
    assert not np.intersect1d(first, second).size
    points = np.zeros(120, dtype=int)
    np.add.at(points, pool.session[first], np.array([1, 2, 4])[pool.level[first]] * data.correct[0, first])
    asked = np.bincount(pool.stratum[second], minlength=360).reshape(-1, 3)
    assert (asked == np.array(mapping)[points]).all()
    assert len(np.unique(points)) >= 7
    test.record.add(second, data.correct[0, second])
    assert not len(test.next(rng))


def test_optimal_allocation_spends_a_group_s_rest_evenly_over_sessions(drawn):
    pool, record = played("optimal_allocation", drawn(sessions=40))
    asked = pool.by_stratum(record.evaluated)
    for group in range(2):
        counts = asked[pool.session_group == group]
        assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
        assert (counts >= [1, 2, 1]).all()


def test_whole_numbers_spread_as_the_continuous_optimum_does():
    size, n = np.array([0.2, 0.8, 1.5]), 900
    found = spread(n, size, np.array([1, 1, 1]), np.array([5000] * 3))
    best = minimize(lambda k: (size**2 / np.exp(k)).sum() + 10 * (np.exp(k).sum() / n - 1) ** 2, np.log([300.0] * 3))
    assert found.sum() == n
    assert found / n == pytest.approx(np.exp(best.x) / np.exp(best.x).sum(), abs=0.01)
    assert found / n == pytest.approx(size / size.sum(), abs=0.002)


def test_neyman_asks_what_is_hard_to_foresee_with_the_chances_it_states(drawn):
    data = drawn(sessions=20)
    pool = make_pool(*data.pool)
    seen, stated = np.zeros(pool.n_items), np.zeros(pool.n_items)
    for seed in range(200):
        _, record = played("neyman_irt", data, seed=seed)
        [sample] = record.samples
        seen += record.evaluated & ~sample.evaluated_before
        stated += np.where(sample.evaluated_before, 0, sample.inclusion)
    assert seen.sum() == pytest.approx(stated.sum())
    # binomial at most, in 200 draws
    assert (np.abs(seen - stated) < 5 * np.sqrt(np.maximum(stated, 1))).all()
    spread_ = data.chance[0] * (1 - data.chance[0])
    assert np.corrcoef(seen, np.sqrt(spread_))[0, 1] > 0.9


def test_fisher_cat_asks_where_information_is_largest(drawn):
    data = drawn(sessions=40)
    record = played("fisher_cat", data)[1]
    telling = information(data.bank, data.ability[0])
    assert telling[record.evaluated].mean() > 1.5 * telling[~record.evaluated].mean()


def test_information_is_the_expected_squared_slope_of_the_log_likelihood(drawn):
    bank = drawn(sessions=2).bank._replace(feasibility=np.full(72, 0.9), guess=np.full(72, 0.1))
    below, p, above = bank.probability(np.array([0.3 - 1e-5, 0.3, 0.3 + 1e-5]))
    slope = (above - below) / 2e-5
    assert information(bank, 0.3) == pytest.approx(slope**2 / p + slope**2 / (1 - p), rel=1e-6)


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        (MAPPING_Q[:9], "lines of the mapping = 9; allowed: 10"),
        ((*MAPPING_Q[:3], (2, 2, 2), *MAPPING_Q[4:]), r"mapping after 3 points = \(2, 2, 2\)"),
        ((*MAPPING_Q[:9], (0, -1, 6)), r"mapping after 9 points = \(0, -1, 6\)"),
        ((*MAPPING_Q[:9], (0, 5)), r"mapping after 9 points = \(0, 5\)"),
    ],
)
def test_a_mapping_must_be_ten_triples_of_five(mapping, told, drawn):
    with pytest.raises(FcaError, match=told):
        check_mapping(mapping)
    with pytest.raises(FcaError, match=told):
        start_policy(partial(GreTwoStage, mapping=mapping), make_pool(*drawn().pool), 0.25)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("budget", [0, -0.1, 1.5, 25])
def test_a_budget_is_a_share(policy, budget, drawn):
    data = drawn(sessions=4)
    with pytest.raises(FcaError, match=f"budget = {budget}"):
        start_policy(policy, make_pool(*data.pool), budget, data.bank)


@pytest.mark.parametrize("policy", ["static_k", "gre_two_stage", "optimal_allocation", "neyman_irt", "fisher_cat"])
def test_a_budget_too_small_for_the_policy_is_refused(policy, drawn):
    data = drawn(sessions=4)
    with pytest.raises(FcaError, match=r"budget = 0\.01"):
        start_policy(policy, make_pool(*data.pool), 0.01, data.bank)


@pytest.mark.parametrize(("policy", "budget"), [("static_k", 0.5), ("gre_two_stage", 0.27)])
def test_k_above_a_level_s_count_names_the_session(policy, budget, drawn):
    data = drawn(sessions=4)
    kept = np.ones(len(data.levels), dtype=bool)
    kept[np.flatnonzero((data.sessions == 2) & (data.levels == 2))[:9]] = False
    pool = make_pool(*(column[kept] for column in data.pool))
    with pytest.raises(FcaError, match=r"hard items evaluated of session 2 = \d; allowed: at most 3"):
        start_policy(policy, pool, budget)


def test_a_gre_of_three_times_the_items_needs_longer_levels(drawn):
    with pytest.raises(FcaError, match=r"easy items evaluated of session 0 = 15"):
        start_policy("gre_two_stage", make_pool(*drawn(sessions=4).pool), 0.75)


def test_names_and_objectives_are_listed(drawn):
    data = drawn(sessions=4)
    pool = make_pool(*data.pool)
    with pytest.raises(FcaError, match="policy = 'gre'; allowed: static_k, random, gre_two_stage"):
        start_policy("gre", pool, 0.25)
    with pytest.raises(FcaError, match="objective = top1; allowed: accuracy, score"):
        NeymanIrt(pool, 0.25, data.bank, objective="top1")


@pytest.mark.parametrize("policy", ["neyman_irt", "fisher_cat"])
def test_a_bank_is_asked_for_and_must_fit(policy, drawn):
    pool = make_pool(*drawn(sessions=4).pool)
    with pytest.raises(FcaError, match=f"bank = None; allowed: an item bank: {policy} needs one"):
        start_policy(policy, pool, 0.25)
    with pytest.raises(FcaError, match="items of the bank = 72; allowed: 144"):
        start_policy(policy, pool, 0.25, drawn(sessions=2).bank)
