"""Tests that go on: as many items once more, until all are asked; what they estimate on the way, and of all groups."""

import numpy as np
import pytest

from fca.studies.adaptive.stats import POLICIES, estimate, make_pool, replay, start_policy
from fca.studies.adaptive.stats.estimators import normal_estimate

ESTIMATOR = {
    "static_k": "session_mean",
    "random": "difference",
    "gre_two_stage": "mixed_logit",
    "optimal_allocation": "mixed_logit",
    "neyman_irt": "difference",
    "defensive_irt": "regression",
    "fisher_cat": "p_irt",
    "proportional": "difference",
}


def stretches(policy, data, times, budget=0.25, seed=0, model=0, estimator=None):
    """The record and the estimate after each stretch."""
    pool, rng = make_pool(*data.pool), np.random.default_rng(seed)
    test = start_policy(policy, pool, budget, data.bank)
    for _ in range(times):
        while len(positions := test.next(rng)):
            test.record.add(positions, data.correct[model][positions])
        yield pool, test.record, estimate(estimator or ESTIMATOR[policy], pool, test.record, data.bank)
        test.extend()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_test_that_goes_on_asks_as_many_again_until_all_are_asked_and_known(policy, drawn):
    data = drawn(sessions=10)
    shares = []
    for pool, record, found in stretches(policy, data, 12):
        shares.append(record.evaluated.mean())
        if shares[-1] == 1:
            assert found.value == pytest.approx(pool.truth(data.correct[0]), abs=1e-12)
            assert found.se == pytest.approx(0, abs=1e-9)
    assert shares[:2] == [0.25, 0.5]
    assert shares[-1] == 1
    assert (np.diff(shares) >= 0).all()
    if policy != "gre_two_stage":  # a session may have no more items of the level that its points lead to
        assert shares[:4] == [0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("policy", ["fisher_cat", "neyman_irt", "defensive_irt"])
def test_fewer_items_than_rounds_are_asked_too(policy, drawn):
    *_, (_, record, _) = stretches(policy, drawn(sessions=2), 3, budget=0.45)  # 16 of a group's 36 at a time
    assert record.evaluated.all()


@pytest.mark.parametrize(("policy", "estimator"), [*ESTIMATOR.items(), ("static_k", "difference")])
def test_replays_are_the_first_stretch(policy, estimator, drawn):
    data = drawn(sessions=10)
    found = replay(data.correct[:1], *data.pool, policy, estimator, 0.25, data.bank, repeats=1, seed=4)
    _, _, said = next(stretches(policy, data, 1, seed=[4, 0, 0], estimator=estimator))
    assert said.value.ravel().tolist() == found["estimate"].tolist()


def test_samples_one_after_the_other_are_averaged_without_bias_and_with_their_variance(drawn):
    data = drawn(sessions=16, groups=2)
    truth = make_pool(*data.pool).truth(data.correct[0])
    errors = []
    for seed in range(60):
        said = [found for *_, found in stretches("neyman_irt", data, 4, budget=0.1, seed=seed)]
        errors.append([((found.value - truth) / found.se, found.value - truth) for found in said])
    z, error = np.moveaxis(np.array(errors), 2, 0)  # (tests, stretches, groups, targets)
    assert np.abs(error[:, 3].mean(axis=0)).max() < 4 * 0.025 / np.sqrt(60)  # its rmse
    assert (np.abs(z[:, 3]) < 1.96).mean() == pytest.approx(0.97, abs=0.03)  # 240 of them; wider than needed
    rmse = np.sqrt((error**2).mean(axis=(0, 2, 3)))
    assert (np.diff(rmse) < 0).all(), "an old sample still counts beside a new one of the same size"
    assert rmse[3] < 0.5 * rmse[0]


def test_the_mean_over_groups_knows_what_their_errors_share():
    se, value = np.array([[0.3, 0.4], [0.3, 0.0]]), np.array([[0.2, 0.5], [0.4, 0.7]])
    alone = normal_estimate(value, se).overall
    assert alone.value.ravel() == pytest.approx([0.3, 0.6])
    assert alone.se.ravel() == pytest.approx([np.sqrt(2 * 0.09) / 2, 0.2])
    opposed = normal_estimate(value, se, np.array([[[0.3], [0.4]], [[-0.3], [0.0]]])).overall
    assert opposed.se.ravel() == pytest.approx([0.0, 0.2], abs=1e-12)


@pytest.mark.slow
def test_the_interval_of_the_mean_over_groups_holds_the_truth_nineteen_times_in_twenty(drawn):
    data = drawn(sessions=40, groups=10, models=1, seed=2)  # four sessions a group: what is known comes from the others
    truth = make_pool(*data.pool).truth(data.correct[0]).mean(axis=0)
    z, narrow = [], []
    for seed in range(15):
        [(_, _, found)] = stretches("gre_two_stage", data, 1, seed=seed)
        mean = found.overall
        z.append((mean.value[0] - truth) / mean.se[0])
        narrow.append(np.sqrt((found.se**2).sum(axis=0)) / 10 / mean.se[0])
    assert (np.abs(z) < 1.96).mean() > 0.8
    assert np.mean(narrow) < 0.95, "groups taken for independent would make it narrower"
