"""Anchors: a few items that stand for all; how far off they are, and whether their intervals hold for other models."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from fca.stats.adaptive import anchors
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
        found = anchors(correct[:35], 40, space, estimator)
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
        found = anchors(correct[:40], 30)
        value, low, high = found.estimate(correct[40:, found.items]).T
        assert ((low <= value) & (value <= high)).all()
        held.append(((low <= correct[40:].mean(axis=1)) & (correct[40:].mean(axis=1) <= high)).mean())
    assert 0.9 < np.mean(held) <= 1  # 95 % over choices of models; eight choices


def test_shift_and_reach_are_those_of_held_out_residuals():
    correct = planted(0, models=40)
    networks = [f"net{n // 2}" for n in range(40)]  # two snapshots each
    found = anchors(correct, 30, "ease", "weighted", networks)
    weighted = correct[:, found.items] @ found.weights
    spread = np.abs(logit(correct.mean(axis=1)) - logit(np.clip(weighted, 1 / 1200, 1 - 1 / 1200)) - found.shift)
    assert 0.2 * spread.max() < found.reach < 5 * spread.max()
    low, high = found.estimate(correct[:, found.items])[:, 1:].T
    assert logit(high) - logit(low) == pytest.approx(2 * found.reach)


@pytest.mark.parametrize("space", ["ease", "responses", "irt"])
def test_anchors_are_distinct_items_in_order_and_weights_sum_to_one(space):
    found = anchors(planted(1, models=25, items=200), 20, space, "weighted", seed=3)
    again = anchors(planted(1, models=25, items=200), 20, space, "weighted", seed=3)
    assert (np.diff(found.items) > 0).all()
    assert found.weights.sum() == pytest.approx(1)
    assert found.items.tolist() == again.items.tolist()


def test_clusters_of_alike_items_are_found_and_weighed():
    kinds = (
        np.random.default_rng(0).random((24, 4)) < 0.5
    )  # four kinds of items; those of a kind are solved by the same
    correct = kinds[:, np.repeat(np.arange(4), [10, 20, 30, 40])]
    found = anchors(correct, 4, "responses", "weighted")
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
        anchors(**{"correct": planted(0, models=20), "k": 10, **change})


def test_anchors_that_were_not_all_answered_are_refused():
    correct = planted(0, models=20)
    found = anchors(correct, 10)
    for responses in (correct[:, :9], np.where(correct[:, :10], np.nan, 0.0)):
        with pytest.raises(FcaError, match="0 or 1 for each of the 10 anchors"):
            found.estimate(responses)


@pytest.mark.real
def test_a_hundred_imagenet_images_err_less_than_random_ones_and_their_intervals_hold():
    file = np.load(Path(os.environ["FCA_REAL_DATA"]) / "responses" / "imagenetv2_val50k_top1.npz")
    correct = np.unpackbits(file["correct_bits"], axis=1)[:, : int(file["n_items"])].astype(bool)
    correct = correct[~np.isin(file["models"], ("fv_4k", "fv_16k"))]
    squared, random, held = [], [], []
    for split in (8, 9, 10):  # of the twelve whose figures stand in fca/stats/adaptive/anchors.py
        rng = np.random.default_rng(split)
        models = rng.permutation(65)
        pool = correct[:, np.sort(rng.choice(50_000, 5000, replace=False))]
        chosen, tested = pool[models[:45]], pool[models[45:]]
        found, truth = anchors(chosen, 100, seed=split), tested.mean(axis=1)
        value, low, high = found.estimate(tested[:, found.items]).T
        squared.append(((value - truth) ** 2).mean())
        held.append(((low <= truth) & (truth <= high)).mean())
        draws = [tested[:, rng.choice(5000, 100, replace=False)].mean(axis=1) - truth for _ in range(20)]
        random.append(np.square(draws).mean())
    assert np.sqrt(np.mean(squared)) < 0.7 * np.sqrt(np.mean(random))  # .49 over the twelve splits
    assert np.mean(held) > 0.85
