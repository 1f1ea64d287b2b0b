"""Accuracy by attribute and level is that of the predictions; a step falls only where its interval is above 0."""

import numpy as np
import pytest

from fca.stats.intervals import wilson
from fca.studies.progressive.attribute_levels import AttributeLevels
from fca.studies.progressive.figures import steps_statements
from tests.studies.progressive.support.steps_lab import LEVELS, able, items_of, respond, steps_lab
from tests.support.figure_claims import sentences_of


def tables(lab):
    return {table.name: table.frame for table in AttributeLevels()(lab.store)}


@pytest.fixture
def steps(tmp_path):
    return steps_lab(tmp_path / "outputs")


@pytest.fixture
def six(tmp_path):
    """Six classes: enough for a bootstrap."""
    return steps_lab(tmp_path / "outputs", classes=("wolf", "cat", "yak", "ant", "bee", "dog"))


def test_every_cell_is_the_share_of_right_predictions_with_wilsons_interval(steps):
    right = able(steps, 1.2, noise=1.0)
    respond(steps, "net", right)
    items = items_of(steps).assign(right=right)
    for line in tables(steps)["attribute_levels"].to_dict("records"):
        cell = items[(items["attribute"] == line["attribute"]) & (items["level"] == line["level"])]["right"]
        assert line["accuracy"] == pytest.approx(cell.mean())
        assert (line["accuracy_low"], line["accuracy_high"]) == pytest.approx(wilson(int(cell.sum()), len(cell)))
        assert line["n_test"] == len(cell) == 12
        if line["level"] == "easy":
            assert np.isnan(line["drop"])
            continue
        before = LEVELS[LEVELS.index(line["level"]) - 1]
        easier = items[(items["attribute"] == line["attribute"]) & (items["level"] == before)]["right"]
        assert line["drop"] == pytest.approx(easier.mean() - cell.mean())
        assert line["drop_low"] <= line["drop"] <= line["drop_high"]


def test_scores_weigh_levels_1_2_4_and_rank_the_models(six):
    skills = {"weak": 0.5, "fair": 1.5, "strong": 2.5}  # right on easy; and medium; and hard
    for name, skill in skills.items():
        respond(six, name, able(six, skill))
    scores = tables(six)["attribute_scores"]
    wanted = {"weak": (1 / 7, 1 / 3, 3), "fair": (3 / 7, 2 / 3, 2), "strong": (1, 1, 1)}
    for line in scores.to_dict("records"):
        score, accuracy, rank = wanted[line["model"]]
        assert (line["score"], line["accuracy"], line["rank"]) == (pytest.approx(score), pytest.approx(accuracy), rank)
        assert np.isnan([line["score_low"], line["score_high"]]).all(), "all classes are alike: no spread to go by"
        assert not line["monotone"], "two levels are equal"
    assert scores["model"].tolist() == ["strong", "fair", "weak"] * 2


def test_a_step_falls_where_all_classes_do_and_is_unclear_where_they_disagree(six):
    items = items_of(six)
    level = items["level"].map(LEVELS.index).to_numpy()
    number = items["image_id"].str[-1].astype(int).to_numpy()
    falling = number < 3 - level  # right 3, 2, 1 of 3
    steeper = ["wolf-size-hard-0", "cat-size-medium-1", "cat-size-hard-0"]  # a class falls by more at each step
    falling[items["image_id"].isin(steeper)] = False
    contrary = np.where(items["label"].isin(["wolf", "cat", "yak"]), falling, number < 1 + level)
    respond(six, "net", np.where(items["attribute"] == "size", falling, contrary))
    found = tables(six)
    steps_of = found["attribute_steps"].set_index(["attribute", "step"])
    assert steps_of.loc["size", "verdict"].tolist() == ["falls", "falls"]
    assert steps_of.loc["size", "drop"].tolist() == pytest.approx([1 / 3 + 1 / 18] * 2)
    assert steps_of.loc["light", "verdict"].tolist() == ["undecided", "undecided"]
    assert found["attribute_scores"].set_index("attribute")["monotone"].to_dict() == {"size": True, "light": False}
    assert (steps_of["models_falling"] <= 1).all()
    assert (steps_of["classes"] == 6).all()


def test_a_harder_level_that_is_easier_rises(six):
    items = items_of(six)
    right = items["level"].map(LEVELS.index).to_numpy() == 2
    right[items["image_id"].isin(["wolf-size-hard-0", "wolf-light-hard-0"])] = False  # one class rises by less
    respond(six, "net", right)
    assert tables(six)["attribute_steps"]["verdict"].tolist() == ["undecided", "rises"] * 2


def test_four_classes_that_are_all_alike_show_no_spread_to_go_by(steps):
    level = items_of(steps)["level"].map(LEVELS.index).to_numpy()
    respond(steps, "net", level == 2)
    found = tables(steps)["attribute_steps"]
    assert found[["drop_low", "drop_high"]].isna().all(axis=None)
    assert dict(zip(found["drop"].round(9), found["verdict"], strict=True)) == {0: "undecided", -1: "no interval"}
    sentences = sentences_of(steps_statements, found.assign(at_chance=False))
    assert any("without an interval (alike in all classes" in line for line in sentences)


def test_one_class_has_no_interval_over_classes(tmp_path):
    lab = steps_lab(tmp_path / "outputs", classes=("yak",))
    respond(lab, "net", able(lab, 1.5))
    found = tables(lab)
    assert found["attribute_steps"][["drop_low", "drop_high"]].isna().all(axis=None)
    assert set(found["attribute_steps"]["verdict"]) == {"undecided"}  # always right: nothing drops
    assert found["attribute_scores"]["score_low"].isna().all()


def test_classes_count_equally_where_their_images_do_not(tmp_path):
    struck = ["wolf-size-easy-0", "wolf-size-easy-1"]
    lab = steps_lab(tmp_path / "outputs", change=lambda items: items[~items["image_id"].isin(struck)])
    respond(lab, "net", items_of(lab)["label"] == "wolf")
    cell = tables(lab)["attribute_levels"].set_index(["attribute", "level"]).loc[("size", "easy")]
    assert (cell["accuracy"], cell["n_test"]) == (0.25, 10)
