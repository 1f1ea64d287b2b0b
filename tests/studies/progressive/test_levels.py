"""Responses to images of levels line up with the images, and only full models' final predictions are read."""

import itertools
import logging
from dataclasses import replace

import numpy as np
import pytest

from fca.store import Store
from fca.studies.progressive.levels import levels_of, responses_by_level, sessions_of, with_complete_sessions
from fca.types import FcaError
from tests.studies.progressive.support.steps_lab import able, items_of, respond, steps_lab
from tests.support.lab import Lab, images


@pytest.fixture
def steps(tmp_path):
    return steps_lab(tmp_path / "outputs")


def test_predictions_line_up_with_images_whatever_the_order_of_logits(steps):
    keys = ("yak", "unheard", "ant", "cat", "wolf")
    logits = np.random.default_rng(0).normal(size=(len(steps.true), 5)).astype(np.float32)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    pred = logits.argmax(axis=1).astype(np.int32)
    arrays = {"pred": pred, "p_max": chances.max(axis=1), "logits": logits, "logit_classes": np.array(keys)}
    run = steps.write(arrays, task="predict", model="net", ncl=4, classes=range(4))
    [found] = responses_by_level(steps.store)
    items = items_of(steps)
    columns = ["image_id", "label", "attribute", "level", "triplet"]
    assert found.items.to_dict("list") == items[columns].to_dict("list")
    assert (found.correct[0] == (np.array(keys)[pred] == items["label"])).all()
    assert (found.confidence[0] == chances.max(axis=1)).all()
    assert (found.dataset, found.fingerprint, found.models, found.runs) == ("steps", "levels", ("net",), (run,))


def test_masked_predictions_are_among_the_classes_that_the_images_have(steps):
    keys = ("yak", "unheard", "ant", "cat", "wolf")
    logits = np.random.default_rng(1).normal(size=(len(steps.true), 5)).astype(np.float32)
    logits[:, 1] += 5  # openly it predicts nothing else
    arrays = {"pred": logits.argmax(axis=1).astype(np.int32), "p_max": np.full(len(logits), 0.9, np.float32)}
    arrays |= {"logits": logits, "logit_classes": np.array(keys)}
    steps.write(arrays, task="predict", model="net", ncl=4, classes=range(4))
    [openly], [masked] = (responses_by_level(steps.store, protocol=protocol) for protocol in ("open", "masked"))
    assert not openly.correct.any()
    known = np.delete(logits, 1, axis=1).astype(float)
    best = np.array(["yak", "ant", "cat", "wolf"])[known.argmax(axis=1)]
    assert (masked.correct[0] == (best == masked.items["label"])).all()
    chances = np.exp(known) / np.exp(known).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(masked.confidence[0], chances.max(axis=1), rtol=1e-5)  # float32


def test_a_model_that_knows_only_these_classes_predicts_alike_under_both_protocols(steps):
    respond(steps, "net", able(steps, 1.5), confidence=0.7)
    [openly], [masked] = (responses_by_level(steps.store, protocol=protocol) for protocol in ("open", "masked"))
    assert (openly.correct == masked.correct).all()
    assert (openly.confidence == masked.confidence).all()


def test_snapshots_sub_models_and_shifted_predictions_are_not_read(steps):
    for snapshot in ("0.1", "best"):
        respond(steps, "net", able(steps, 1.5), parent="a" * 12, snapshot=snapshot)
    respond(steps, "net", able(steps, 0.5), shift="corruption/fog/1", parent="a" * 12, snapshot="best")
    respond(steps, "part", able(steps, 0.5), ncl=2, classes=(0, 1))
    [found] = responses_by_level(steps.store)
    assert found.models == ("net",)
    assert len(found.runs) == 1


def test_two_seeds_of_one_network_are_two_models(steps):
    for seed in (0, 1):
        respond(steps, "net", able(steps, 1.5, 0.5, seed), parent=f"{seed:012x}", snapshot="best", seed=seed)
        respond(steps, "net", able(steps, 0.5), parent=f"{seed:012x}", snapshot="0.5", seed=seed)
    [found] = responses_by_level(steps.store)
    assert found.models == ("net, seed 0", "net, seed 1")


def test_data_sets_without_levels_are_passed_over(tmp_path):
    data = images()
    bare = replace(data, items=data.items.drop(columns=["attribute", "level"]))
    lab = Lab(Store(tmp_path / "outputs"), bare)
    lab.predict("net", lab.logits(seed=0))
    with pytest.raises(FcaError, match=r"columns attribute and level = none among the 1 stored rows.*experiment=prog"):
        responses_by_level(lab.store)


def test_images_without_a_level_are_left_out(tmp_path):
    bare = ["cat-size-easy-0", "ant-light-hard-2"]
    steps = steps_lab(
        tmp_path / "outputs",
        change=lambda items: items.assign(level=items["level"].where(~items["image_id"].isin(bare))),
    )
    right = np.random.default_rng(0).random(len(steps.true)) < 0.5
    respond(steps, "net", right)
    [found] = responses_by_level(steps.store)
    kept = items_of(steps)["level"].notna().to_numpy()
    assert len(found.items) == kept.sum() == 70
    assert (found.correct[0] == right[kept]).all()


def test_a_level_of_another_name_is_named(tmp_path):
    steps = steps_lab(tmp_path / "outputs", change=lambda items: items.replace({"level": {"hard": "severe"}}))
    respond(steps, "net", [True] * len(steps.true))
    with pytest.raises(FcaError, match="level of steps = severe; allowed: easy, medium, hard"):
        responses_by_level(steps.store)


def test_a_level_of_another_name_costs_its_data_set_only(steps, caplog):
    respond(steps, "net", [True] * len(steps.true))
    other = steps_lab(steps.store.outputs, change=lambda items: items.replace({"level": {"hard": "severe"}}))
    other = Lab(other.store, replace(other.data, name="worse", fingerprint="worse"), itertools.count(1000))
    respond(other, "net", [True] * len(other.true))
    assert [found.dataset for found in responses_by_level(steps.store)] == ["steps"]
    assert "a data set is left out: level of worse = severe" in caplog.text


def test_an_unknown_protocol_is_refused(steps):
    with pytest.raises(FcaError, match=r"analysis\.protocol = grouped; allowed: open or masked"):
        responses_by_level(steps.store, protocol="grouped")


def test_sessions_that_lack_a_level_are_left_out_and_named(steps, caplog):
    respond(steps, "net", able(steps, 1.5))
    [found] = responses_by_level(steps.store)
    struck = (sessions_of(found.items) == "yak/light") & (levels_of(found.items) == 1)
    kept = found._replace(items=found.items[~struck], correct=found.correct[:, ~struck])
    kept = kept._replace(confidence=found.confidence[:, ~struck])
    with caplog.at_level(logging.WARNING):
        whole = with_complete_sessions(kept)
    assert "steps: 1 sessions lack a level and are left out: yak/light" in caplog.text
    assert set(sessions_of(found.items)) - set(sessions_of(whole.items)) == {"yak/light"}
    there = (sessions_of(found.items) != "yak/light").nonzero()[0]
    assert (whole.correct == found.correct[:, there]).all()
    assert whole.confidence.shape == whole.correct.shape == (1, len(whole.items))


def test_without_a_whole_session_nothing_is_left(steps):
    respond(steps, "net", able(steps, 1.5))
    [found] = responses_by_level(steps.store)
    easy = levels_of(found.items) == 0
    only = found._replace(items=found.items[easy], correct=found.correct[:, easy], confidence=found.confidence[:, easy])
    with pytest.raises(FcaError, match="easy, medium, hard images = none of 8; allowed: 1 or more"):
        with_complete_sessions(only)
