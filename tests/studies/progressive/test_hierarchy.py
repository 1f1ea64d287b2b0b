"""Scores of hierarchy are those of predictions, beside what accuracies make; over models they correlate, both ways."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from fca.studies.progressive.hierarchy import Hierarchy, correlation_lines
from tests.studies.progressive.support.steps_lab import LEVELS, able, items_of, respond, steps_lab

FOLLOWING = {"000", "100", "110", "111"}


@pytest.fixture
def steps(tmp_path):
    return steps_lab(tmp_path / "outputs")


def tables(lab, **options):
    return {table.name: table.frame for table in Hierarchy(**options)(lab.store)}


def patterns_by_hand(lab, right):
    """How often each pattern occurs over matched triplets, by looking each image up by name."""
    right_of = dict(zip(items_of(lab)["image_id"], right, strict=True))
    found = dict.fromkeys(("".join(marks) for marks in itertools.product("01", repeat=3)), 0)
    for triplet in items_of(lab)["triplet"].unique():
        start, _, index = triplet.rpartition("-")
        found["".join(str(int(right_of[f"{start}-{level}-{index}"])) for level in LEVELS)] += 1
    return found


def test_the_score_is_the_share_of_matched_triplets_in_order(steps):
    right = able(steps, 1.2, noise=1.0)
    respond(steps, "net", right)
    found = tables(steps)
    counts = patterns_by_hand(steps, right)
    [line] = found["hierarchy"].to_dict("records")
    assert line["hierarchical_score"] == pytest.approx(sum(counts[name] for name in FOLLOWING) / 24)
    assert line["triplets"] == 24
    shares = found["hierarchy_patterns"].set_index("pattern")
    assert (shares["share"] * 24).round(9).to_dict() == counts
    assert set(shares.index[shares["follows"]]) == FOLLOWING
    level = items_of(steps)["level"]
    easy, medium, hard = (right[level == name].mean() for name in LEVELS)
    assert line["accuracy"] == pytest.approx((easy + medium + hard) / 3)
    assert line["score"] == pytest.approx((easy + 2 * medium + 4 * hard) / 7)
    assert line["level_rates"] == pytest.approx((1 - medium) * (1 - hard) + easy * medium)
    assert shares["level_rates"].sum() == shares["session_rates"].sum() == pytest.approx(1)
    assert shares.loc["110", "level_rates"] == pytest.approx(easy * medium * (1 - hard))
    assert shares.loc[shares["follows"], "session_rates"].sum() == pytest.approx(line["session_rates"])
    parts = line["level_rates"] + line["session_excess"] + line["matched_excess"]
    assert parts == pytest.approx(line["hierarchical_score"])
    assert 0 < line["p_matched"] <= 1
    for name in ("accuracy", "score", "hierarchical_score", "session_rates", "matched_excess"):
        assert line[f"{name}_low"] <= line[name] <= line[f"{name}_high"]
    assert (line["classes"], pd.isna(line["session_excess_low"])) == (4, False)


MANY = tuple(f"c{number}" for number in range(8))  # classes


def test_whole_sessions_in_order_show_that_sessions_differ_and_nothing_about_objects(tmp_path):
    lab = steps_lab(tmp_path / "outputs", classes=MANY)
    items = items_of(lab)
    strength = items.groupby(["label", "attribute"]).ngroup() * 5 // 3 % 4  # how many levels each session is solved at
    respond(lab, "net", strength.to_numpy() > items["level"].map(LEVELS.index).to_numpy())
    [line] = tables(lab)["hierarchy"].to_dict("records")
    assert line["hierarchical_score"] == line["session_rates"] == 1
    assert line["level_rates"] < 0.8
    assert line["session_excess_low"] > 0
    assert (line["matched_excess"], line["p_matched"]) == (0, 1)


def test_objects_that_fail_in_order_show_in_the_matching_alone(tmp_path):
    lab = steps_lab(tmp_path / "outputs", classes=MANY, per_level=8)
    items = items_of(lab)
    strength = items["triplet"].str.rsplit("-", n=1).str[-1].astype(int) % 4  # of the object, alike in all sessions
    respond(lab, "net", strength.to_numpy() > items["level"].map(LEVELS.index).to_numpy())
    [line] = tables(lab)["hierarchy"].to_dict("records")
    assert line["session_excess"] == pytest.approx(0)
    assert line["matched_excess"] == pytest.approx(1 - line["session_rates"])
    assert line["p_matched"] < 1e-6


def test_predictions_at_random_have_no_part_beyond_their_accuracy(tmp_path):
    lab = steps_lab(tmp_path / "outputs", attributes=tuple("abcdefghij"), per_level=6, classes=MANY)
    respond(lab, "net", np.random.default_rng(3).random(len(lab.true)) < 0.6)
    [line] = tables(lab)["hierarchy"].to_dict("records")
    assert line["session_excess_low"] < 0 < line["session_excess_high"]
    assert line["matched_excess_low"] < 0 < line["matched_excess_high"]
    assert line["p_matched"] > 0.05


def test_whole_classes_are_resampled(tmp_path):
    lab = steps_lab(tmp_path / "outputs", attributes=tuple("abcdefghij"), classes=MANY)
    solved = items_of(lab)["label"].isin(MANY[:4]).to_numpy()  # every session of a class alike
    respond(lab, "net", solved)
    [line] = tables(lab)["hierarchy"].to_dict("records")
    assert line["accuracy"] == 0.5
    assert line["accuracy_high"] - line["accuracy_low"] > 0.6  # of 8 classes; of 80 sessions taken apart it is .22


def test_without_triplets_the_score_is_over_all_that_a_session_forms(tmp_path):
    lab = steps_lab(tmp_path / "outputs", change=lambda items: items.drop(columns="triplet"))
    respond(lab, "net", able(lab, 1.2, noise=1.0))
    found = tables(lab)
    [line] = found["hierarchy"].to_dict("records")
    assert pd.isna(line["triplets"])
    assert line["hierarchical_score"] == line["session_rates"]
    assert pd.isna(line["matched_excess"])
    assert pd.isna(line["p_matched"])
    shares = found["hierarchy_patterns"]
    assert shares.loc[shares["follows"], "share"].sum() == pytest.approx(line["session_rates"])
    assert shares["share"].sum() == pytest.approx(1)


def test_triplets_that_lack_an_image_are_left_out(tmp_path):
    lab = steps_lab(tmp_path / "outputs", change=lambda items: items[items["image_id"] != "cat-size-medium-1"])
    respond(lab, "net", able(lab, 1.2, noise=1.0))
    [line] = tables(lab)["hierarchy"].to_dict("records")
    assert (line["triplets"], line["n_test"], line["sessions"]) == (23, 71, 8)


def test_masked_accuracy_stands_beside_the_open_one(steps):
    keys = ("wolf", "cat", "yak", "ant", "unheard")
    logits = np.eye(5, dtype=np.float32)[steps.true]
    logits[::2, 4] = 2  # half of the images are another class to it
    arrays = {"pred": logits.argmax(axis=1).astype(np.int32), "p_max": logits.max(axis=1), "logits": logits}
    steps.write({**arrays, "logit_classes": np.array(keys)}, task="predict", model="net", ncl=4, classes=range(4))
    [line] = tables(steps)["hierarchy"].to_dict("records")
    assert line["accuracy"] == pytest.approx(0.5, abs=0.1)
    assert line["accuracy_masked"] == line["score_masked"] == 1
    [masked] = tables(steps, protocol="masked")["hierarchy"].to_dict("records")
    assert masked["accuracy"] == masked["accuracy_masked"] == 1


def models_frame(accuracy, beyond=0.0, names=None):
    by_level = 0.6 + 0.3 * accuracy**2
    names = [f"net{number}" for number in range(len(accuracy))] if names is None else names
    return pd.DataFrame(
        {"model": names, "accuracy": accuracy, "level_rates": by_level, "hierarchical_score": by_level + beyond}
    )


def test_fewer_than_four_models_have_no_correlation():
    lines = list(correlation_lines("steps", models_frame(np.array([0.2, 0.5, 0.7]))))
    assert [(line["kind"], line["models"], line.get("r")) for line in lines] == [
        ("pearson", 3, None),
        ("partial", 3, None),
    ]


def test_what_level_rates_make_is_taken_out_of_the_partial_correlation():
    rng = np.random.default_rng(0)
    accuracy = rng.uniform(0.3, 0.9, 12)
    frame = models_frame(accuracy, rng.normal(0, 0.01, 12))
    pearson, partial = correlation_lines("steps", frame)
    assert pearson["r"] == pytest.approx(scipy.stats.pearsonr(frame["accuracy"], frame["hierarchical_score"])[0])
    left = [np.polynomial.Polynomial.fit(frame["level_rates"], frame[c], 1) for c in ("accuracy", "hierarchical_score")]
    rest = [
        frame[c] - fit(frame["level_rates"]) for c, fit in zip(("accuracy", "hierarchical_score"), left, strict=True)
    ]
    assert partial["r"] == pytest.approx(scipy.stats.pearsonr(*rest)[0])
    assert pearson["r_low"] > 0.9
    assert partial["r_low"] < 0 < partial["r_high"]


def test_seeds_of_one_network_are_resampled_together():
    rng = np.random.default_rng(1)
    names = [f"net{number}, seed {seed}" for number in range(4) for seed in range(3)]
    frame = models_frame(np.repeat([0.3, 0.5, 0.6, 0.9], 3) + rng.normal(0, 0.01, 12), rng.normal(0, 0.05, 12), names)
    together = next(iter(correlation_lines("steps", frame)))
    apart = next(iter(correlation_lines("steps", frame.assign(model=[f"net{number}" for number in range(12)]))))
    assert (together["models"], together["networks"], apart["networks"]) == (12, 4, 12)
    assert together["r"] == apart["r"]
    assert together["r_low"] != apart["r_low"]
