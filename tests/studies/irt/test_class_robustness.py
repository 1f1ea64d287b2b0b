"""Planted classes that break, stay or become easier are found; every number against one computed from the fit."""

import numpy as np
import pandas as pd
import pytest

from fca.store import Store
from fca.studies.irt.class_robustness import ClassRobustness, shown_classes
from fca.studies.irt.fits import fitted
from fca.studies.irt.fittable import shifted_responses
from fca.types import FcaError
from tests.studies.irt.support.shifted_lab import FOG, GLOW, shifted
from tests.support.lab import KEYS, Lab, images

pytestmark = pytest.mark.slow  # many fits

SEGMENTS = ["easy", "med_easy", "med_hard", "hard"]


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    return shifted(Lab(Store(tmp_path_factory.mktemp("moved")), images(per_class=30)))


def tables(lab, **fields):
    return {table.name: table.frame for table in ClassRobustness(**fields)(lab.store)}


def of(frame, **same):
    for name, value in same.items():
        frame = frame[frame[name] == value]
    return frame


def test_planted_classes_are_found(moved):
    found = tables(moved)
    named = found["robust_classes"].set_index("corruption")
    assert set(named.loc["fog", "susceptible"]) == {"wolf", "yak"}
    assert set(named.loc["fog", "robust"]) == {"bee", "dog"}
    assert "cat" in named.loc["glow", "susceptible"]
    lines = found["class_robustness"].set_index(["corruption", "label"])
    assert lines.loc[("fog", "wolf"), "direction"] == lines.loc[("fog", "yak"), "direction"] == "harder"
    assert lines.loc[("glow", "cat"), "direction"] == "easier"
    assert lines.loc[("fog", "wolf"), "trend_high"] < 0 < lines.loc[("glow", "cat"), "trend_low"]
    assert lines.loc[("fog", "wolf"), "verdict_kept"] > 0.8


def test_counts_and_scores_are_those_of_loops_over_the_fit(moved):
    found = tables(moved)
    (_, gathered), *_ = shifted_responses(moved.store, "shift != 'corruption/glow'")
    items, fit = gathered.responses.items, fitted(gathered)
    hardness, severity = 1 - fit.expected_success, items["severity"].to_numpy()
    cuts = np.sort(hardness[severity == 0])[[44, 89, 134]]
    apart = not np.isclose(hardness[:, None], cuts, atol=1e-9).sum() > 3  # nothing but the cuts is on a cut
    counts = of(found["class_severity"], corruption="fog", parameter="difficulty")
    counts = counts.set_index(["label", "severity", "segment"])
    lines = of(found["class_robustness"], corruption="fog").set_index("label")
    for key in KEYS:
        own = (items["label"] == key).to_numpy()
        shares = np.zeros((6, 4))
        for k in range(6):
            above = (hardness[own & (severity == k), None] > cuts).sum(axis=1)
            shares[k] = np.bincount(above, minlength=4) / 30
            if apart:
                told = [counts.loc[(key, k, s), "share"] for s in SEGMENTS]
                assert told == pytest.approx(shares[k])
        shares = np.array([[counts.loc[(key, k, s), "items"] / 30 for s in SEGMENTS] for k in range(1, 6)])
        assert lines.loc[key, "instability"] == pytest.approx(shares.std(axis=0).mean())
        means = [fit.expected_success[own & (severity == k)].mean() for k in range(6)]
        assert lines.loc[key, "trend"] == pytest.approx(np.polyfit(range(1, 6), means[1:], 1)[0])
        assert lines.loc[key, "change"] == pytest.approx(np.mean(means[1:]) - means[0])


def test_mean_difficulty_is_the_other_mode(moved):
    lines = of(tables(moved, mode="mean_b")["class_robustness"], corruption="fog").set_index("label")
    (_, gathered), *_ = shifted_responses(moved.store, None)
    items, fit = gathered.responses.items, fitted(gathered)
    for key in KEYS:
        means = [fit.difficulty[(items["label"] == key) & (items["severity"] == k)].mean() for k in range(1, 6)]
        assert lines.loc[key, "instability"] == pytest.approx(np.std(means))
        assert lines.loc[key, "trend"] == pytest.approx(np.polyfit(range(1, 6), means, 1)[0])
    assert lines.loc["wolf", "direction"] == "harder"
    assert lines.loc["wolf", "trend_low"] > 0


def test_rank_one_is_the_most_robust_and_every_image_is_counted_once(moved):
    found = tables(moved)
    for _, part in found["class_robustness"].groupby("corruption"):
        ordered = part.sort_values("rank")
        assert ordered["rank"].tolist() == [1, 2, 3, 4, 5, 6]
        assert ordered["robustness"].is_monotonic_decreasing
        assert (ordered["robustness"] == -ordered["instability"]).all()
        assert part.sort_values("rank_as_written")["instability"].is_monotonic_decreasing
        robust = set(part.loc[part["verdict"] == "robust", "label"])
        assert robust == set(part.loc[part["verdict_as_written"] == "susceptible", "label"])
        assert ordered["verdict"].tolist()[:2] == ["robust"] * 2
        assert ordered["verdict"].tolist()[-2:] == ["susceptible"] * 2
        assert ordered["verdict"][2:-2].isna().all()
    sums = found["class_severity"].groupby(["corruption", "parameter", "label", "severity"])["items"].sum()
    assert set(sums) == {30}
    assert len(sums) == 2 * 2 * 6 * 6


def test_compat_turns_the_sign_and_cuts_each_severity(moved, monkeypatch):
    def plain(gathered, model, compat, seed):  # the paper's way of fitting has its own tests, and takes longer
        return fitted(gathered, model)

    monkeypatch.setattr("fca.studies.irt.difficulty_segments.fitted", plain)
    theirs = tables(moved, compat="seed001")
    lines = theirs["class_robustness"]
    assert (lines["robustness"] == lines["instability"]).all()
    assert (lines["rank"] == lines["rank_as_written"]).all()
    first = lines[lines["rank"] == 1].set_index("corruption")["instability"]
    assert (first == lines.groupby("corruption")["instability"].max()).all()
    each = theirs["class_severity"].groupby(["corruption", "parameter", "severity", "segment"])["items"].sum()
    assert set(each) == {45}  # a quarter of 180 images at every severity, whatever the corruption does
    ours = tables(moved)["class_severity"]
    hard = of(ours, corruption="fog", parameter="difficulty", segment="hard").groupby("severity")["items"].sum()
    assert hard.loc[5] > 1.3 * hard.loc[0] == 1.3 * 45


def test_a_class_that_breaks_at_once_is_steady_and_its_change_tells(lab):
    class AtOnce(dict):
        """No more than the first step, whatever the severity it is multiplied by."""

    lab = Lab(lab.store, images(per_class=30))
    broken = {**dict.fromkeys(KEYS, 0.0), "wolf": 30.0}  # beyond every model from severity 1 on
    line = of(tables(shifted(lab, {"fog": AtOnce(broken)}))["class_robustness"], label="wolf").iloc[0]
    assert (line["verdict"], line["direction"]) == ("robust", "harder")
    assert line["change_high"] < -0.1
    assert line["instability"] == pytest.approx(0, abs=0.02)


def test_kinds_with_one_severity_are_left_out_by_name(lab):
    shifted(lab, {"glow": GLOW}, severities=(2,), clean=False)
    with pytest.raises(FcaError, match=r"two severities = none among the \d+ stored rows; zoo glow: one severity"):
        tables(lab)
    shifted(lab, {"fog": FOG}, severities=(1, 3))
    found = ClassRobustness()(lab.store)
    assert set(found[0].frame["corruption"]) == {"fog"}
    assert set(found[0].frame["severities"]) == {2}
    assert found[0].parameters["left_out"] == "zoo glow: one severity"


def test_an_unknown_mode_is_named(moved):
    with pytest.raises(FcaError, match=r"analysis\.mode = sum; allowed: count or mean_b"):
        tables(moved, mode="sum")


def test_the_seed_names_the_resamples_and_moves_no_estimate(moved):
    once, other = (tables(moved, seed=seed)["class_robustness"] for seed in (0, 1))
    assert (other["instability_low"].dropna() != once["instability_low"].dropna()).any()
    assert other["trend_low"].tolist() == once["trend_low"].tolist(), "of a mean, whose interval draws nothing"
    assert other["trend"].tolist() == once["trend"].tolist()


def test_of_many_classes_the_ends_are_shown():
    lines = [
        {"dataset": "zoo", "corruption": kind, "label": f"c{c:02d}", "rank": c + 1} for kind in "ab" for c in range(40)
    ]
    shown = shown_classes(pd.DataFrame(lines))
    assert sorted(shown["rank"].unique()) == [1, 2, 3, 4, 5, 36, 37, 38, 39, 40]
    assert set(shown["classes"]) == {40}
    few = pd.DataFrame(lines).query("rank <= 20")
    assert len(shown_classes(few)) == len(few)


def test_drawn_tables_have_the_outer_segments_and_the_verdicts(moved):
    found = tables(moved)
    for parameter, outer in (("difficulty", {"easy", "hard"}), ("discrimination", {"low", "high"})):
        drawn = found[f"class_severity_{parameter}"]
        assert set(drawn["segment"]) == outer
        assert len(drawn) == 2 * 6 * 6 * 2
        both = drawn.merge(found["class_robustness"], on=["dataset", "corruption", "label"])
        assert (both["verdict_x"].fillna("") == both["verdict_y"].fillna("")).all()
