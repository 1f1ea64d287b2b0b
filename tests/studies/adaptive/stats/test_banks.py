"""What a bank gains over a random sample, and that it costs nothing where it knows nothing of the tested network."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from fca.studies.adaptive.stats import DefensiveIrt, estimate, make_pool, replay, run_policy, start_policy
from fca.studies.adaptive.stats.estimators import regression_predictions
from fca.studies.adaptive.stats.policies import response_probabilities
from fca.studies.irt.stats import ItemBank, fit_irt


def planted(seed=0, networks=40, items=1500, best=0.0):
    """Responses of networks in order of ability, and the chances of a new one that is `best` abler than the ablest."""
    rng = np.random.default_rng(seed)
    ability = np.sort(rng.normal(0.5, 0.8, networks))
    slope, difficulty = rng.lognormal(0, 0.4, items), rng.normal(0, 1.5, items)
    new = ability.max() + best if best else 0.5
    return rng.random((networks, items)) < expit(slope * (ability[:, None] - difficulty)), expit(
        slope * (new - difficulty)
    )


def errors(policy, estimator, bank, chance, n, repeats=120):
    """Errors in points and whether intervals hold, of tests of as many networks with these chances."""
    pool, found = make_pool(None, np.zeros(len(chance), int)), []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        right = rng.random(len(chance)) < chance
        record = run_policy(start_policy(policy, pool, n / pool.n_items, bank), right, rng).record
        value = estimate(estimator, pool, record, bank)
        truth = right.mean()
        held = value.low.item() <= truth <= value.high.item()
        found.append((100 * (value.value.item() - truth), held))
    error, held = np.array(found, dtype=float).T
    return error, held.mean()


@pytest.mark.wide
def test_a_bank_that_knows_nothing_costs_nothing():
    """`neyman_irt` + `difference` errs 1.2 to 1.9 times as much as random images with a shuffled bank."""
    correct, chance = planted()
    bank = fit_irt(correct.astype(float)).bank
    order = np.random.default_rng(0).permutation(len(chance))
    useless = ItemBank(bank.model, *(values[order] for values in bank[1:]))
    plain, _ = errors("random", "hypergeometric", None, chance, 150)
    ours, held = errors("defensive_irt", "regression", useless, chance, 150)
    before, _ = errors("neyman_irt", "difference", useless, chance, 150)
    ratio = np.sqrt(np.mean(ours**2) / np.mean(plain**2))
    assert ratio < 1.2  # two root mean squares of 120 tests: 9 % of error
    assert np.mean(before**2) > 1.1 * np.mean(ours**2)
    assert held > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 120)


def test_a_network_better_than_all_behind_the_bank_is_measured_no_worse_than_by_random_images():
    """Published methods lose to the plain mean here (arXiv 2506.07673); the bank's scale does not cap the ability."""
    correct, chance = planted(best=1.0)
    bank = fit_irt(correct.astype(float)).bank
    plain, _ = errors("random", "hypergeometric", None, chance, 150)
    ours, held = errors("defensive_irt", "regression", bank, chance, 150)
    assert np.sqrt(np.mean(ours**2)) < 1.15 * np.sqrt(np.mean(plain**2))
    assert abs(ours.mean()) < 4 * ours.std() / np.sqrt(120)
    assert held > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 120)


def test_the_slope_follows_the_bank_as_far_as_it_is_right():
    correct, chance = planted()
    bank = fit_irt(correct.astype(float)).bank
    pool, rng = make_pool(None, np.zeros(len(chance), int)), np.random.default_rng(0)
    order = rng.permutation(len(chance))
    right = rng.random(len(chance)) < chance
    slopes = []
    for one in (bank, ItemBank(bank.model, *(values[order] for values in bank[1:]))):
        record = run_policy(start_policy("random", pool, 0.4, one), right, np.random.default_rng(1)).record
        predicted, expected = regression_predictions(pool, record, one)[0], one.probability(np.zeros(1))[0]
        slopes.append(np.ptp(predicted) / np.ptp(expected))
    assert slopes[0] == pytest.approx(1, abs=0.15)
    assert abs(slopes[1]) < 0.2


def test_the_line_is_the_least_squares_line_of_the_responses_and_ten_that_agree():
    pool, rng = make_pool(None, np.zeros(200, int)), np.random.default_rng(2)
    bank = ItemBank("2pl", rng.normal(size=200), np.ones(200), np.ones(200), np.zeros(200))
    right = rng.random(200) < 0.6
    record = run_policy(start_policy("random", pool, 0.25, bank), right, rng).record
    chance = response_probabilities(record, bank)
    x = np.concatenate([chance[record.evaluated], chance])
    y = np.concatenate([right[record.evaluated], chance])  # all items of the pool, counted as ten: they lie on the line
    weight = np.sqrt(np.concatenate([np.ones(50), np.full(200, 10 / 200)]))
    slope, intercept = np.polyfit(x, y, 1, w=weight)
    assert regression_predictions(pool, record, bank)[0] == pytest.approx(intercept + slope * chance, abs=1e-9)


def test_a_bank_in_which_all_items_are_alike_leaves_the_share_right():
    pool, one = make_pool(None, np.zeros(60, int)), np.ones(60)
    right = np.random.default_rng(0).random(60) < 0.7
    alike = ItemBank("2pl", 0 * one, one, one, 0 * one)
    record = run_policy(start_policy("random", pool, 0.5, alike), right, np.random.default_rng(1)).record
    assert estimate("regression", pool, record, alike).value.item() == pytest.approx(right[record.evaluated].mean())
    run_policy(start_policy("defensive_irt", pool, 0.5, alike), right, np.random.default_rng(1))


def test_a_bank_that_keeps_its_word_is_followed_and_a_useless_one_leaves_equal_chances():
    correct, chance = planted(networks=60)
    bank = fit_irt(correct.astype(float)).bank
    order = np.random.default_rng(0).permutation(len(chance))
    useless = ItemBank(bank.model, *(values[order] for values in bank[1:]))
    pool, uneven = make_pool(None, np.zeros(len(chance), int)), []
    for one in (bank, useless):
        spreads = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            test = DefensiveIrt(pool, 0.3, one)
            record = run_policy(test, rng.random(len(chance)) < chance, rng).record
            inclusion = record.samples[1].inclusion[~record.samples[1].evaluated_before]
            assert inclusion.sum() == pytest.approx(record.evaluated.sum() - record.samples[1].evaluated_before.sum())
            spreads.append(np.ptp(inclusion) > 1e-9)
        uneven.append(np.mean(spreads))
    assert uneven[0] > 0.7
    assert uneven[1] < 0.3


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_the_variance_that_is_foreseen_is_that_of_the_draw_also_of_most_of_a_pool(share):
    """Without the finite population: 0.94 at 80 % of the items, where 0.79 is true."""
    correct, chance = planted()
    bank, pool = fit_irt(correct.astype(float)).bank, make_pool(None, np.zeros(len(chance), int))
    foreseen, true = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        right = rng.random(len(chance)) < chance
        record = run_policy(start_policy("defensive_irt", pool, share, bank), right, rng).record
        open_ = ~record.samples[1].evaluated_before
        inclusion = record.samples[1].inclusion[open_]
        squared = (right - regression_predictions(pool, record, bank)[0])[open_] ** 2
        equal = inclusion.mean()
        foreseen.append(record.samples[1].variance_ratio)
        true.append(squared @ (1 / inclusion - 1) / (squared.sum() * (1 / equal - 1)))
    assert np.mean(foreseen) == pytest.approx(np.mean(true), abs=0.07)  # learned from the third that is random


@pytest.mark.real
@pytest.mark.parametrize("top", [1, 3, 10])
def test_the_best_imagenet_networks_are_measured_by_a_bank_of_all_others(top):
    file = np.load(Path(os.environ["FCA_REAL_DATA"]) / "responses" / "imagenetv2_val50k_top1.npz")
    correct = np.unpackbits(file["correct_bits"], axis=1)[:, : int(file["n_items"])].astype(bool)
    correct = correct[~np.isin(file["models"], ("fv_4k", "fv_16k"))]
    correct = correct[:, np.sort(np.random.default_rng(0).choice(50_000, 5000, replace=False))]
    order = np.argsort(-correct.mean(axis=1))
    bank, classes = fit_irt(correct[order[top:]].astype(float)).bank, np.zeros(5000, int)
    repeats = 240 // top
    ours = replay(correct[order[:top]], None, classes, None, "defensive_irt", "regression", 0.06, bank, repeats=repeats)
    plain = replay(correct[order[:top]], None, classes, None, "random", "hypergeometric", 0.06, repeats=repeats)
    squared = [((found["estimate"] - found["truth"]) ** 2).mean() for found in (ours, plain)]
    assert squared[0] < squared[1]  # root mean squared error 1.1 and 1.8 points
    assert ((ours["low"] <= ours["truth"]) & (ours["truth"] <= ours["high"])).mean() > 0.93 - 0.03
