"""Anchors: a few items that stand for all; how far off they are, and whether their intervals hold for other models."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from fca.studies.adaptive.stats import choose_anchors
from fca.studies.adaptive.stats.anchors import METHODS
from fca.types import FcaError


def planted(seed, models=60, items=600, dimensions=1):
    rng = np.random.default_rng(seed)
    ability, slope = rng.normal(0.5, 1.0, (models, dimensions)), rng.lognormal(0, 0.4, (dimensions, items))
    return rng.random((models, items)) < expit(ability @ slope - rng.normal(0, 1.5, items))


@pytest.mark.parametrize(("space", "estimator"), [("ease", "p_irt"), ("ease", "weighted"), ("responses", "weighted")])
@pytest.mark.slow
def test_anchors_err_less_than_as_many_random_items(space, estimator):
    squared = {"anchors": [], "random": []}
    for seed in range(4):
        correct, rng = planted(seed), np.random.default_rng(seed)
        found = choose_anchors(correct[:35], 40, space, estimator)
        truth = correct[35:].mean(axis=1)
        squared["anchors"].append((found.estimate(correct[35:, found.items])[:, 0] - truth) ** 2)
        random = [correct[35:, rng.choice(600, 40, replace=False)].mean(axis=1) - truth for _ in range(20)]
        squared["random"].append(np.mean(np.square(random), axis=0))
    assert np.mean(squared["anchors"]) < np.mean(squared["random"])


@pytest.mark.slow
def test_intervals_hold_for_models_that_chose_nothing_also_where_the_item_model_is_wrong():
    held = []
    for seed in range(8):
        correct = planted(seed, models=80, items=300, dimensions=2)  # two abilities, where p_irt knows one
        found = choose_anchors(correct[:40], 30)
        value, low, high = found.estimate(correct[40:, found.items]).T
        assert ((low <= value) & (value <= high)).all()
        held.append(((low <= correct[40:].mean(axis=1)) & (correct[40:].mean(axis=1) <= high)).mean())
    assert 0.9 < np.mean(held) <= 1  # 95 % over choices of models; eight choices


@pytest.mark.wide
@pytest.mark.parametrize("seed", [15, 17, 18])
def test_the_way_that_is_taken_has_the_least_error_of_those_printed_beside_it(seed):
    # chosen by a share and a shift that were fitted on the models judged, it was another in these
    rng = np.random.default_rng(seed)
    correct = rng.random((25, 150)) < expit(rng.normal(size=(25, 1)) - rng.normal(size=150) * 1.2)
    found = choose_anchors(correct, 15, seed=seed)
    assert found.method == min(found.errors, key=found.errors.__getitem__)


def test_the_nested_error_is_that_of_a_way_that_the_other_folds_would_take():
    correct = planted(3, models=24, items=200)
    found = choose_anchors(correct, 15, "random", seed=2)
    ways = {method: choose_anchors(correct, 15, *method, seed=2).checked[:, 1] for method in found.errors}
    truth = correct.mean(axis=1)
    for method, estimates in ways.items():
        assert found.errors[method] == pytest.approx(np.sqrt(np.mean((estimates - truth) ** 2)), abs=1e-12)
    is_of_a_way = np.any([found.checked[:, 1] == estimates for estimates in ways.values()], axis=0)
    assert is_of_a_way.all()


def test_shift_and_reach_are_those_of_held_out_residuals():
    correct = planted(0, models=40)
    networks = [f"net{n // 2}" for n in range(40)]  # two snapshots each
    found = choose_anchors(correct, 30, "ease", "weighted", networks)
    weighted = correct[:, found.items] @ found.weights
    spread = np.abs(logit(correct.mean(axis=1)) - logit(np.clip(weighted, 1 / 1200, 1 - 1 / 1200)) - found.shift)
    assert 0.2 * spread.max() < found.reach < 5 * spread.max()
    low, high = found.estimate(correct[:, found.items])[:, 1:].T
    assert logit(high) - logit(low) == pytest.approx(2 * found.reach)


@pytest.mark.parametrize("space", ["ease", "responses", "irt"])
def test_anchors_are_distinct_items_in_order_and_weights_sum_to_one(space):
    found = choose_anchors(planted(1, models=25, items=200), 20, space, "weighted", seed=3)
    again = choose_anchors(planted(1, models=25, items=200), 20, space, "weighted", seed=3)
    assert (np.diff(found.items) > 0).all()
    assert found.weights.sum() == pytest.approx(1)
    assert found.items.tolist() == again.items.tolist()


def test_clusters_of_alike_items_are_found_and_weighed():
    kinds = (
        np.random.default_rng(0).random((24, 4)) < 0.5
    )  # four kinds of items; those of a kind are solved by the same
    correct = kinds[:, np.repeat(np.arange(4), [10, 20, 30, 40])]
    found = choose_anchors(correct, 4, "responses", "weighted")
    assert np.searchsorted([10, 30, 60], found.items, side="right").tolist() == [0, 1, 2, 3]
    assert found.weights.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert found.estimate(correct[:, found.items])[:, 0] == pytest.approx(np.clip(correct.mean(axis=1), 0.005, 0.995))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"correct": planted(0, models=18)}, "models to choose anchors on = 18; allowed: 19 or more"),
        ({"k": 600}, "k = 600; allowed: 1 to 599"),
        ({"space": "pixels"}, "space = pixels; allowed: ease, responses, irt, random"),
        ({"estimator": "mean"}, "estimator = mean; allowed: p_irt, gp_irt, line, weighted"),
        ({"networks": ["one"] * 20}, "networks to choose anchors on = 1; allowed: 2 or more"),
    ],
)
def test_what_cannot_be_chosen_is_refused(change, told):
    with pytest.raises(FcaError, match=told):
        choose_anchors(**{"correct": planted(0, models=20), "k": 10, **change})


def test_anchors_that_were_not_all_answered_are_refused():
    correct = planted(0, models=20)
    found = choose_anchors(correct, 10)
    for responses in (correct[:, :9], np.where(correct[:, :10], np.nan, 0.0)):
        with pytest.raises(FcaError, match="0 or 1 for each of the 10 anchors"):
            found.estimate(responses)


def test_the_way_with_the_least_held_out_error_is_taken_and_every_way_is_reported():
    found = choose_anchors(planted(2, models=40, items=400), 30, networks=[f"net{n // 2}" for n in range(40)])
    assert set(found.errors) == set(METHODS)
    assert found.errors[found.method] <= 1.05 * min(
        found.errors.values()
    )  # reported errors are nested, the choice is not
    printed = np.sqrt(np.mean(np.diff(found.checked, axis=1) ** 2))
    assert printed > 0.9 * min(found.errors.values())


@pytest.mark.wide
def test_items_that_no_model_of_responses_explains_are_drawn_at_random():
    """Every network knows its own half of the images: difficulty is alike, and p_irt has nothing to go by."""
    rng = np.random.default_rng(0)
    accuracy = rng.uniform(0.3, 0.9, 40)
    found = choose_anchors(rng.random((40, 500)) < accuracy[:, None], 50)
    plain = np.sqrt(np.mean(accuracy * (1 - accuracy)) * (1 - 50 / 500) / 50)
    printed = np.sqrt(np.mean(np.diff(found.checked, axis=1) ** 2))
    assert printed < 1.35 * plain  # 40 networks: 11 % of error; a line or a shift is fitted on 36


def test_a_line_is_that_of_least_squares_and_gp_irt_is_between_its_two_parts():
    correct = planted(3, models=30, items=300)
    line = choose_anchors(correct, 25, "random", "line")
    slope, intercept = np.polyfit(correct[:, line.items].mean(axis=1), correct.mean(axis=1), 1)
    assert line.line == pytest.approx((intercept, slope))
    mixed = choose_anchors(correct, 25, "ease", "gp_irt")
    parts = [choose_anchors(correct, 25, "ease", estimator) for estimator in ("weighted", "p_irt")]
    weighted, p_irt = (one.shares(correct[:, one.items]) for one in parts)
    expected = mixed.share * weighted + (1 - mixed.share) * p_irt
    assert mixed.shares(correct[:, mixed.items]) == pytest.approx(expected, abs=1e-12)
    assert 0 <= mixed.share <= 1


@pytest.mark.slow
def test_the_error_that_is_stated_is_that_of_new_networks_although_the_best_of_six_ways_was_taken():
    stated, new = [], []
    for seed in range(12):
        correct = planted(seed, models=60, items=400, dimensions=2)
        found = choose_anchors(correct[:30], 30, seed=seed)
        stated.append(np.mean(np.diff(found.checked, axis=1) ** 2))
        estimate = found.estimate(correct[30:, found.items])[:, 0]
        new.append(np.mean((estimate - correct[30:].mean(axis=1)) ** 2))
    ratio = np.mean(stated) / np.mean(new)
    assert (
        0.75 < ratio < 1.45
    )  # mean squares of 360 networks, in 12 choices; they choose by nine tenths of the networks


@pytest.mark.real
@pytest.mark.parametrize(
    ("way", "most"),
    [
        (("ease", "p_irt"), 0.7),  # .49 over twelve splits
        (
            (None, None),
            0.9,
        ),  # in split 10 irt + gp_irt is taken, and errs by 18 points on one network unlike the others
    ],
)
def test_a_hundred_imagenet_images_err_less_than_random_ones_and_their_intervals_hold(way, most):
    file = np.load(Path(os.environ["FCA_REAL_DATA"]) / "responses" / "imagenetv2_val50k_top1.npz")
    correct = np.unpackbits(file["correct_bits"], axis=1)[:, : int(file["n_items"])].astype(bool)
    correct = correct[~np.isin(file["models"], ("fv_4k", "fv_16k"))]
    squared, random, held = [], [], []
    for split in (8, 9, 10):
        rng = np.random.default_rng(split)
        models = rng.permutation(65)
        pool = correct[:, np.sort(rng.choice(50_000, 5000, replace=False))]
        chosen, tested = pool[models[:45]], pool[models[45:]]
        found, truth = choose_anchors(chosen, 100, *way, seed=split), tested.mean(axis=1)
        value, low, high = found.estimate(tested[:, found.items]).T
        squared.append(((value - truth) ** 2).mean())
        held.append(((low <= truth) & (truth <= high)).mean())
        draws = [tested[:, rng.choice(5000, 100, replace=False)].mean(axis=1) - truth for _ in range(20)]
        random.append(np.square(draws).mean())
    assert np.sqrt(np.mean(squared)) < most * np.sqrt(np.mean(random))
    assert np.mean(held) > 0.85
