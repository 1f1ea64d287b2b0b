"""Confidence is binned as it is, a fall needs tests that show it, and contradictions are found by name."""

import numpy as np
import pytest
import scipy.stats

from fca.studies.progressive.validate_levels import ValidateLevels
from fca.types import FcaError
from tests.studies.progressive.support.steps_lab import CLASSES, LEVELS, able, items_of, respond, steps_lab
from tests.support.described import describe, pixels

SURE = {"easy": 0.9, "medium": 0.6, "hard": 0.3}


def tables(lab, **options):
    return {table.name: table.frame for table in ValidateLevels(**options)(lab.store)}


@pytest.fixture
def steps(tmp_path):
    return steps_lab(tmp_path / "outputs", attributes=("size", "light", "view"))


def sure(lab, noise=0.02, seed=0):
    """Confidence that falls with the level."""
    level = items_of(lab)["level"].map(SURE).to_numpy()
    return level + np.random.default_rng(seed).uniform(-noise, noise, len(level))


def test_bins_hold_every_image_once_and_the_last_both_its_ends(steps):
    confidence = np.linspace(0.05, 1.0, len(steps.true)).astype(np.float32)
    right = np.arange(len(steps.true)) % 2 == 0
    respond(steps, "net", right, confidence)
    respond(steps, "net2", right, np.full(len(steps.true), 0.5))
    bins = tables(steps)["confidence_levels"]
    items = items_of(steps).assign(confidence=confidence, right=right)
    for line in bins.to_dict("records"):
        part = items[items["level"] == line["level"]]
        last = line["bin_high"] == 1.0
        inside = (part["confidence"] >= line["bin_low"]) & ((part["confidence"] < line["bin_high"]) | last)
        at_half = line["bin_low"] == 0.5
        assert line["share"] == pytest.approx((inside.mean() + at_half) / 2)
        assert {line["share_min"], line["share_max"]} == {float(inside.mean()), float(at_half)}
        if not inside.any() and not at_half:
            assert np.isnan(line["top1"])
    assert bins.groupby("level")["share"].sum().to_dict() == pytest.approx(dict.fromkeys(LEVELS, 1.0))


def test_confidence_that_falls_everywhere_is_found_falling(steps):
    for seed in range(3):
        respond(steps, f"net{seed}", able(steps, 1.5), sure(steps, seed=seed))
    trends = tables(steps)["confidence_trends"]
    assert trends["by"].tolist() == ["attribute"] * 3 + ["class"] * 4
    of_attributes = trends[trends["by"] == "attribute"]
    assert set(of_attributes["verdict"]) == {"falls"}
    assert (of_attributes["page_l"] == 4 * (3 * 3 + 2 * 2 + 1)).all(), "each of 4 classes in the very order predicted"
    assert of_attributes["drop_medium"].tolist() == pytest.approx([0.3] * 3, abs=0.02)
    assert trends["blocks"].tolist() == [4] * 3 + [3] * 4


def test_pages_statistic_is_the_sum_of_ranks_by_prediction(steps):
    respond(steps, "net", able(steps, 1.5), np.random.default_rng(4).permutation(len(steps.true)) / 200)
    trends = tables(steps)["confidence_trends"].set_index("value")
    [run] = steps.store.rows()["run_id"]
    items = items_of(steps).assign(confidence=steps.store.array(run, "p_max"))
    for attribute in ("size", "light", "view"):
        part = items[items["attribute"] == attribute]
        found = 0
        for label in CLASSES:
            means = [part[(part["label"] == label) & (part["level"] == level)]["confidence"].mean() for level in LEVELS]
            ranks = np.argsort(np.argsort(means)) + 1
            found += int(ranks @ [3, 2, 1])
        assert trends.loc[attribute, "page_l"] == found


def test_an_attribute_whose_hard_images_are_not_hard_is_not_called_falling(steps):
    confidence = sure(steps)
    light = (items_of(steps)["attribute"] == "light") & (items_of(steps)["level"] == "hard")
    respond(steps, "net", able(steps, 1.5), np.where(light, 0.8, confidence))
    verdicts = tables(steps)["confidence_trends"].set_index("value")["verdict"]
    assert verdicts[["size", "light", "view"]].tolist() == ["falls", "rises", "falls"]


def test_a_rise_has_to_survive_the_number_of_steps(tmp_path):
    attributes = tuple(f"a{number}" for number in range(30))
    lab = steps_lab(tmp_path / "outputs", attributes=attributes, per_level=1, classes=tuple("abcdefgh"))
    rising = items_of(lab)["attribute"].eq("a7") & items_of(lab)["level"].eq("hard")
    confidence = 0.3 + 0.1 * np.random.default_rng(7).random(len(lab.true)) + 0.3 * rising.to_numpy()
    respond(lab, "net", np.ones(len(lab.true), dtype=bool), confidence)
    trends = tables(lab)["confidence_trends"]
    of_attributes = trends[trends["by"] == "attribute"].set_index("value")
    below = (of_attributes[["drop_medium_high", "drop_hard_high"]] < 0).any(axis=1)
    assert below.sum() > 1, "of sixty steps without a change some intervals lie below 0"
    assert of_attributes.index[of_attributes["verdict"] == "rises"].tolist() == ["a7"]
    of_a7 = items_of(lab).assign(confidence=confidence.astype(np.float32)).query("attribute == 'a7'")
    wide = of_a7.pivot_table(index="label", columns="level", values="confidence")
    p = scipy.stats.ttest_rel(wide["medium"], wide["hard"], alternative="less").pvalue
    assert of_attributes.loc["a7", "p_rise_hard"] == pytest.approx(60 * p, rel=1e-3)  # the smallest of 60


def test_contradictions_are_the_planted_images_the_most_confident_first(steps):
    items = items_of(steps).set_index("image_id", drop=False)
    right = (items["level"] != "hard").to_numpy(copy=True)
    confidence = sure(steps, noise=0)
    planted = {"cat-size-easy-1": 0.7, "yak-view-easy-0": 0.95, "ant-light-hard-2": 0.97, "cat-view-hard-0": 0.5}
    for name, value in planted.items():
        at = items.index.get_loc(name)
        right[at] = not right[at]
        confidence[at] = value
    respond(steps, "one", right, confidence)
    respond(steps, "two", right, confidence)
    alone = right.copy()
    alone[items.index.get_loc("wolf-size-easy-0")] = False  # one model misses it: no contradiction
    respond(steps, "three", alone, confidence)
    found = tables(steps, shown=1)
    every = found["contradictions"]
    assert every.groupby("kind")["image_id"].agg(list).to_dict() == {
        "easy, missed by all": ["yak-view-easy-0", "cat-size-easy-1"],
        "hard, right and confident": ["ant-light-hard-2"],  # cat-view-hard-0 is right without confidence
    }
    assert (every["models"] == 3).all()
    assert every["wanted"].tolist() == pytest.approx([0.9] * 3)
    shown = found["contradictions_shown"]
    assert shown[["image_id", "of"]].values.tolist() == [["yak-view-easy-0", 2], ["ant-light-hard-2", 1]]


def test_pictures_are_those_that_describe_stored(steps):
    described = describe(steps)
    respond(steps, "net", [False] * len(steps.true))
    shown = next(table for table in ValidateLevels(shown=10)(steps.store) if table.name == "contradictions_shown")
    assert described in shown.runs
    names = steps.data.items["image_id"].tolist()
    for line in shown.frame.to_dict("records"):
        assert (pixels(line["thumbnail"]) == names.index(line["image_id"])).all()
    assert shown.frame[["row", "column"]].values.tolist() == [[at // 8, at % 8] for at in range(10)]


def test_without_contradictions_the_tables_are_empty_not_wrong(steps):
    respond(steps, "net", able(steps, 1.5), sure(steps))
    found = tables(steps)
    assert len(found["contradictions"]) == len(found["contradictions_shown"]) == 0
    assert "thumbnail" in found["contradictions_shown"]


def test_at_least_one_picture_is_wanted(steps):
    with pytest.raises(FcaError, match=r"analysis\.shown = 0"):
        ValidateLevels(shown=0)(steps.store)


def test_one_attribute_alone_is_no_test_of_a_class(tmp_path):
    """Confidence that fell from 0.9 to 0.3 "does not change significantly", by a test that there was not."""
    lab = steps_lab(tmp_path / "outputs", attributes=("size",))
    for seed in range(3):
        respond(lab, f"net{seed}", able(lab, 1.5), sure(lab, seed=seed))
    trends = tables(lab)["confidence_trends"].set_index("by")
    assert set(trends.loc["class", "verdict"]) == {"not tested"}
    assert trends.loc["class", "p_holm"].isna().all()
    assert trends.loc["attribute", "verdict"] == "falls"
