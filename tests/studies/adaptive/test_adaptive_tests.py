"""Live tests stand beside the predictions of the very same weights for all images, if there are any."""

import numpy as np
import pandas as pd
import pytest

from fca.studies.adaptive.adaptive_tests import AdaptiveTests
from fca.studies.adaptive.stats import POINTS
from fca.types import FcaError
from tests.studies.adaptive.support.live_tests import live
from tests.studies.progressive.support.steps_lab import LEVELS, able, items_of, respond, steps_lab

TRAINED = "a" * 12


@pytest.fixture
def steps(tmp_path):
    return steps_lab(tmp_path / "outputs", per_level=4)


def read(lab, **options):
    return [table.frame for table in AdaptiveTests(**options)(lab.store)]


def truth_by_hand(items, right):
    """Accuracy and score of each attribute."""
    rates = items.assign(right=right).pivot_table("right", "attribute", "level")[list(LEVELS)]
    return pd.DataFrame({"accuracy": rates.mean(axis=1), "score": rates @ POINTS / 7})


def test_the_truth_is_that_of_the_same_weights(steps):
    right = able(steps, 1.2, noise=1.0)
    full = respond(steps, "net", right, parent=TRAINED, snapshot="best", predict_s=6.0, device="cpu", host="here")
    respond(steps, "net", ~right, parent=TRAINED, snapshot="0.5")
    respond(steps, "net", ~right, parent="b" * 12, snapshot="best")
    run = live(steps, "net", weights=f"{TRAINED}/best")
    overall, by_attribute = AdaptiveTests()(steps.store)
    known = truth_by_hand(items_of(steps), right)
    for line in overall.frame.to_dict("records"):
        assert line["truth"] == pytest.approx(known[line["target"]].mean())
        assert line["error_pp"] == pytest.approx(100 * (line["estimate"] - line["truth"]))
        assert line["covered"] == (abs(line["estimate"] - line["truth"]) <= 0.1)
        assert (line["full_s"], line["time_share"]) == (6.0, 0.25)
    for line in by_attribute.frame.to_dict("records"):
        assert line["truth"] == pytest.approx(known.loc[line["attribute"], line["target"]])
    assert by_attribute.frame.groupby("target")["attribute"].apply(sorted).to_dict() == {
        "accuracy": ["light", "size"],
        "score": ["light", "size"],
    }
    assert set(overall.runs) == set(by_attribute.runs) == {full, run}


def test_a_test_without_a_full_run_has_no_truth(steps):
    live(steps, "net", weights=f"{TRAINED}/best")
    overall, by_attribute = read(steps)
    for frame in (overall, by_attribute):
        assert frame[["truth", "error_pp", "covered"]].isna().all().all()
        assert frame["estimate"].notna().all()
    assert overall[["full_s", "time_share"]].isna().all().all()


def test_pretrained_weights_are_found_by_their_names(steps):
    respond(steps, "net", able(steps, 1.2), weights="net.tag")
    respond(steps, "net", able(steps, 0.2), weights="net.other")
    live(steps, "net", weights="net.tag")
    [frame, _] = read(steps)
    known = truth_by_hand(items_of(steps), able(steps, 1.2))
    assert frame["truth"].tolist() == pytest.approx(known.mean().tolist())


def test_a_test_under_a_shift_is_beside_predictions_under_that_shift(steps):
    respond(steps, "net", able(steps, 2.2), weights="net.tag")
    respond(steps, "net", able(steps, 0.2), weights="net.tag", shift="corruption/fog/3")
    live(steps, "net", weights="net.tag", shift="corruption/fog/3")
    [frame, _] = read(steps)
    assert frame["truth"].iloc[0] == pytest.approx(1 / 3)


def test_seconds_on_another_device_are_not_compared(steps):
    respond(steps, "net", able(steps, 1.2), weights="net.tag", predict_s=6.0, device="cuda", host="here")
    live(steps, "net", weights="net.tag")
    [frame, _] = read(steps)
    assert (frame["full_s"] == 6.0).all()
    assert frame["time_share"].isna().all()


def test_the_truth_of_a_subset_is_that_of_its_classes(steps):
    right = able(steps, 1.2, noise=1.0)
    respond(steps, "net", right, weights="net.tag")
    live(steps, "net", weights="net.tag", ncl=2, classes=(0, 2))
    [frame, _] = read(steps)
    items = items_of(steps)
    mine = items["label"].isin(["wolf", "yak"]).to_numpy()
    assert frame["truth"].tolist() == pytest.approx(truth_by_hand(items[mine], right[mine]).mean().tolist())


def test_masked_truth_is_from_logits(steps):
    keys = (*steps.data.classes, "unheard")
    logits = np.eye(5, dtype=np.float32)[steps.true]
    logits[::2, 4] = 2  # half of the images are another class to it
    arrays = {"pred": logits.argmax(axis=1).astype(np.int32), "logits": logits, "logit_classes": np.array(keys)}
    about = {"task": "predict", "model": "net", "weights": "net.tag", "ncl": 4, "classes": range(4)}
    steps.write(arrays, **about)
    live(steps, "net", weights="net.tag")
    live(steps, "net", weights="net.tag", protocol="masked")
    del arrays["logits"]
    steps.write(arrays, **{**about, "weights": "net.bare"})
    live(steps, "net", weights="net.bare", protocol="masked")
    [frame, _] = read(steps)
    openly, masked, unknown = (frame[frame["target"] == "accuracy"]["truth"]).tolist()
    assert openly == pytest.approx(0.5, abs=0.1)
    assert masked == 1
    assert pd.isna(unknown)


def test_a_query_narrows_and_an_empty_store_is_refused(steps):
    live(steps, "net", weights="net.tag")
    live(steps, "web", weights="web.tag")
    [frame, _] = read(steps, query="model == 'web'")
    assert set(frame["model"]) == {"web"}
    with pytest.raises(FcaError, match=r"adaptive tests = none among the 2 stored rows.*task=adaptive_test"):
        read(steps, query="model == 'wed'")


def test_a_test_of_images_without_levels_has_one_target_and_no_attributes(tmp_path):
    lab = steps_lab(tmp_path / "outputs", change=lambda items: items.drop(columns=["attribute", "level"]))
    right = np.random.default_rng(0).random(len(lab.true)) < 0.7
    respond(lab, "net", right, weights="net.tag")
    arrays = {"groups": np.array(["all"]), "group_asked": np.array([[18]], dtype=np.int32)}
    arrays["group_estimate"] = np.array([[[0.7, 0.05, 0.6, 0.8]]])
    row = {"task": "adaptive_test", "model": "net", "weights": "net.tag", "policy": "proportional", "protocol": "open"}
    row |= {"estimator": "hypergeometric", "budget": 0.25, "ncl": 4, "classes": range(4), "seed": 3, "rounds": 1}
    row |= {"accuracy": 0.7, "accuracy_low": 0.6, "accuracy_high": 0.8, "accuracy_se": 0.05, "predict_s": 1.5}
    lab.write(arrays, **row, n_evaluated=18, n_pool=72, share=0.25)
    overall, by_attribute = AdaptiveTests()(lab.store)
    [line] = overall.frame.to_dict("records")
    assert (line["target"], line["estimate"], line["truth"]) == ("accuracy", 0.7, pytest.approx(right.mean()))
    assert by_attribute.frame.empty
    live(steps_lab(tmp_path / "outputs", per_level=4), "net")  # beside one of images with levels
    overall, by_attribute = AdaptiveTests()(lab.store)
    assert overall.frame.groupby("policy")["target"].apply(list).to_dict() == {
        "gre_two_stage": ["accuracy", "score"],
        "proportional": ["accuracy"],
    }
