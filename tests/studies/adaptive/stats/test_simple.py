"""Items without levels: one target, policies that need no levels, and the exact interval of a share."""

import numpy as np
import pytest
from scipy.stats import binomtest, hypergeom

from fca.studies.adaptive.stats import (
    ESTIMATORS,
    LEVEL_ESTIMATORS,
    POLICIES,
    Record,
    estimate,
    make_pool,
    replay,
    run_policy,
)
from fca.studies.adaptive.stats.simple import exact_interval
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import Sample
from fca.types import FcaError

CLASSES = np.repeat([f"class {c}" for c in range(9)], 20)


def bank_of(items):
    one = np.ones(items)
    return ItemBank("2pl", np.linspace(-3, 1, items), one, one, 0 * one)


@pytest.mark.parametrize(("items", "asked"), [(1, 1), (7, 3), (40, 1), (40, 10), (40, 37), (150, 30)])
def test_an_exact_interval_holds_the_truth_in_95_percent_of_samples_at_every_true_count(items, asked):
    every = [exact_interval(x, asked, items) for x in range(asked + 1)]
    for true in range(items + 1):
        right = np.arange(max(0, asked - items + true), min(asked, true) + 1)
        ends = [every[x] for x in right]
        held = np.array([low <= true / items <= high for low, high in ends])
        chance = hypergeom.pmf(right, items, true, asked)
        assert chance[held].sum() >= 0.95 - 1e-9, (true, ends)


def test_of_a_large_pool_it_is_clopper_and_pearsons():
    for right in (0, 3, 97, 100):
        known = binomtest(right, 100).proportion_ci(0.95, "exact")
        assert exact_interval(right, 100, 10**8) == pytest.approx((known.low, known.high), abs=1e-4)


def test_wald_would_not_hold_the_truth_near_one():
    rng, n, held = np.random.default_rng(0), 45, [0, 0]
    for _ in range(400):
        correct = rng.permutation(np.arange(180) < 177)
        asked = correct[:n]
        half = 1.96 * np.sqrt((1 - n / 180) * asked.mean() * (1 - asked.mean()) / (n - 1))
        low, high = exact_interval(int(asked.sum()), n, 180)
        held[0] += abs(asked.mean() - 177 / 180) <= half
        held[1] += low <= 177 / 180 <= high
    assert held[0] / 400 < 0.7
    assert held[1] / 400 > 0.95


@pytest.mark.parametrize("policy", ["random", "proportional"])
@pytest.mark.parametrize("stretches", [1, 3])
def test_the_share_right_is_unbiased_and_covered_where_classes_differ(policy, stretches):
    pool = make_pool(None, CLASSES)
    chance = np.linspace(0.5, 1.0, 9)[pool.session]
    error, held, repeats = [], 0, 200
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        correct = rng.random(180) < chance
        test = POLICIES[policy](pool, 0.15)
        for stretch in range(stretches):
            run_policy(test, correct, rng)
            if stretch + 1 < stretches:
                test.extend()
        assert test.record.evaluated.sum() == 27 * stretches
        found = estimate("hypergeometric", pool, test.record)
        error.append(found.value.item() - correct.mean())
        held += found.low.item() <= correct.mean() <= found.high.item()
    assert abs(np.mean(error)) < 3.5 * np.std(error) / np.sqrt(repeats)
    assert held / repeats > 0.95 - 3 * np.sqrt(0.95 * 0.05 / repeats)


def test_a_proportional_sample_gives_every_class_its_share_and_varies_less():
    pool, rng = make_pool(None, CLASSES), np.random.default_rng(0)
    correct = pool.session > 2  # three classes are always wrong: the largest difference between classes
    spread = {}
    for policy in ("random", "proportional"):
        found = []
        for _ in range(200):
            test = run_policy(POLICIES[policy](pool, 0.25), correct, rng)
            found.append(test.record.right.sum() / test.record.evaluated.sum())
            if policy == "proportional":
                assert np.bincount(pool.session[test.record.evaluated]).tolist() == [5] * 9
        spread[policy] = np.std(found)
    assert spread["proportional"] == pytest.approx(0, abs=1e-12)
    assert spread["random"] > 0.04


@pytest.mark.wide
@pytest.mark.parametrize(
    ("policy", "estimator"),
    [
        *(("random", "difference"), ("proportional", "difference"), ("neyman_irt", "difference")),
        *(("random", "regression"), ("defensive_irt", "regression")),
    ],
)
def test_a_bank_corrects_items_without_levels_without_bias(policy, estimator):
    bank, classes = bank_of(180), CLASSES
    chance = bank.probability(np.array([0.5]))[0]
    correct = (np.random.default_rng(1).random((1, 180)) < chance).repeat(1, axis=0)
    found = replay(correct, None, classes, None, policy, estimator, 0.3, bank, repeats=300)
    assert found["target"].unique().tolist() == ["accuracy"]
    error = found["estimate"] - found["truth"]
    assert abs(error.mean()) < 3.5 * error.std() / np.sqrt(300) + 0.003  # random: the ability is of the sample itself
    assert ((found["low"] <= found["truth"]) & (found["truth"] <= found["high"])).mean() > 0.9


@pytest.mark.parametrize("policy", ["random", "proportional", "neyman_irt", "defensive_irt", "fisher_cat"])
def test_going_on_ends_with_every_item_asked_and_the_truth(policy):
    correct = np.random.default_rng(0).random(180) < 0.9
    pool, bank, rng = make_pool(None, CLASSES), bank_of(180), np.random.default_rng(1)
    test = POLICIES[policy](pool, 0.3, bank)
    for _ in range(5):
        run_policy(test, correct, rng)
        test.extend()
    assert test.record.evaluated.all()
    of_policy = {"random": ("hypergeometric", "difference", "regression"), "fisher_cat": ("p_irt",)}
    for estimator in of_policy.get(policy, ("difference", "regression")):
        found = estimate(estimator, pool, test.record, bank).overall
        ends = [end.item() for end in (found.value, found.low, found.high)]
        assert ends == pytest.approx([correct.mean()] * 3, abs=1e-10)  # a line is fitted, with pseudo-responses


@pytest.mark.parametrize("policy", ["static_k", "gre_two_stage", "optimal_allocation"])
def test_policies_of_levels_are_refused_where_there_are_none(policy):
    with pytest.raises(FcaError, match=rf"policy = {policy}; allowed: proportional, random, .* have no levels"):
        POLICIES[policy](make_pool(None, CLASSES), 0.5)


@pytest.mark.parametrize("estimator", LEVEL_ESTIMATORS)
def test_estimators_of_levels_are_refused_where_there_are_none(estimator):
    assert set(LEVEL_ESTIMATORS) < set(ESTIMATORS)
    with pytest.raises(
        FcaError, match=rf"estimator = {estimator}; allowed: hypergeometric, p_irt, difference, regression: .*no"
    ):
        replay(np.ones((1, 180)), None, CLASSES, None, "random", estimator)


def test_a_share_is_refused_where_it_would_mislead():
    leveled = [np.tile([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int)]
    with pytest.raises(FcaError, match="hypergeometric of items with levels; allowed: stratified"):
        replay(np.ones((1, 36)), *leveled, "random", "hypergeometric")
    for policy in ("neyman_irt", "fisher_cat"):
        with pytest.raises(FcaError, match="policy = one of different chances; allowed: proportional, random"):
            replay(np.ones((1, 180)), None, CLASSES, None, policy, "hypergeometric", bank=bank_of(180))
    with pytest.raises(FcaError, match="objective = score; allowed: accuracy"):
        POLICIES["neyman_irt"](make_pool(None, CLASSES), 0.5, bank_of(180), objective="score")


def test_intervals_of_groups_are_joined_by_their_own_ends():
    pool = make_pool(None, np.arange(8), np.repeat(["a", "b"], 4))
    record = Record(8)
    record.samples.append(Sample(record.evaluated.copy(), np.full(8, 0.5), None))
    record.add(np.array([0, 1, 4, 5]), np.array([True, True, True, False]))
    found = estimate("hypergeometric", pool, record)
    (low, _), (low_b, high_b) = exact_interval(2, 2, 4), exact_interval(1, 2, 4)
    assert found.low.ravel().tolist() == [low, low_b]
    both = found.overall
    assert both.value.item() == 0.75
    assert both.low.item() == pytest.approx(0.75 - np.hypot(1 - low, 0.5 - low_b) / 2)
    assert both.high.item() == pytest.approx(0.75 + (high_b - 0.5) / 2)
