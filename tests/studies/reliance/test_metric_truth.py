"""Which metrics follow a truth that is known: on invented networks whose reliance is set."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fca.report import finding, style
from fca.store import Store
from fca.studies.reliance.metric_truth import MetricTruth, metric_verdicts, verdicts
from fca.types import FcaError
from tests.studies.reliance.support.cue_data import cue_data, network
from tests.support.figure_claims import drawn_findings, values
from tests.support.lab import Lab, copy_of

CUES = ("color", "texture")
STRENGTHS = (0.0, 0.5, 1.0)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Six networks a cue; ablate/gray shows their reliance, the pasted swap shows it for colours alone."""
    lab = Lab(Store(tmp_path_factory.mktemp("known") / "outputs"))
    for cue in CUES:
        for strength in STRENGTHS:
            lab.data = cue_data(cue, strength)
            lab.store.keep_items(lab.data)
            for seed in range(2):
                reliance = 0.9 * strength - 0.05 * seed * (strength > 0)
                fooled = reliance if cue == "color" else 0.25
                noise = {
                    "noise__foreground__gaussian__0.25": 0.25 + reliance / 2,
                    "noise__background__gaussian__0.25": 0.75 - reliance / 2,
                    "noise__foreground__l2__60/area_matched": 1.0,
                    "noise__background__l2__60/area_matched": 1.0,
                }
                of = {"clean": 1.0, "swap__background": 1 - reliance, "swap__background__pasted": 1 - fooled}
                network(lab, seed, **of, ablate__gray=0.1 + 0.9 * reliance, **noise)
    return lab


@pytest.fixture
def changed(known, tmp_path):
    """A copy, to change."""
    return copy_of(known, tmp_path / "outputs")


@pytest.fixture(autouse=True)
def six_are_enough(request, monkeypatch):
    if "known" in request.fixturenames:
        monkeypatch.setattr("fca.studies.reliance.metric_truth.MIN_NETWORKS", 6)


def test_metrics_that_follow_and_metrics_that_do_not_are_named_with_the_cues(known):
    assert verdicts(known.store) == {
        "accuracy/ablate/gray": ("follows", []),
        "accuracy/swap/background/pasted": ("not confirmed", ["texture"]),  # the same for all networks
        "rfs/gaussian/0.25": ("follows", []),
        "rfs/l2/60/area_matched": ("not confirmed", ["color", "texture"]),  # not defined where nothing is lost
    }


def test_truths_and_metrics_are_those_of_the_predictions(known):
    truth, networks = (table.frame for table in MetricTruth()(known.store))
    line = networks.query("cue == 'color' and cue_strength == 1 and seed == 0 and metric == 'rfs/gaussian/0.25'").iloc[
        0
    ]
    n, right = 48, np.arange(48)
    labels = known.true

    def class_mean(share):  # literally
        return np.mean([(right[labels == c] < round(share * n)).mean() for c in range(6)])

    foreground, background = class_mean(0.7), class_mean(0.3)
    assert line["reliance"] == pytest.approx(1 - class_mean(0.1), abs=1e-12)
    middle = (foreground + background) / 2
    assert line["value"] == pytest.approx((background - foreground) / (2 * min(middle, 1 - middle)), abs=1e-12)
    of = networks.query("cue == 'color' and metric == 'accuracy/ablate/gray'")
    row = truth.query("cue == 'color' and metric == 'accuracy/ablate/gray'").iloc[0]
    for rho, column in (("rho_cue_strength", "cue_strength"), ("rho_reliance", "reliance")):
        assert row[rho] == pytest.approx(stats.spearmanr(of["value"], of[column]).statistic, abs=1e-12)
        assert row[f"{rho}_low"] <= row[rho] <= row[f"{rho}_high"]
    undefined = truth[truth["metric"] == "rfs/l2/60/area_matched"]
    assert (undefined["undefined"] == undefined["nets"]).all()
    assert list(truth["cue"].unique()) == ["color", "texture", "all"]


def test_accuracy_under_noise_is_the_mean_over_its_draws(changed):
    changed.data = cue_data("color", 0.0)
    run = network(changed, 7, clean=1.0, swap__background=0.9)
    shifts = {"noise/foreground/l2/30": 0.5, "noise/background/l2/30": 1.0, "noise/background/l2/30/draw2": 0.5}
    for shift, share in shifts.items():
        answers = np.arange(48) % 8 < 8 * share  # of every class the same share, roughly
        changed.answered("net", answers, shift, parent=run, seed=7, snapshot="best")
    _, networks = MetricTruth()(changed.store)
    frame = networks.frame
    one = frame[(frame["run_id"] == run) & (frame["metric"] == "rfs/l2/30")]["value"].item()
    assert one == pytest.approx((0.75 - 0.5) / (2 * min(0.625, 0.375)), abs=1e-9)


def test_networks_trained_on_other_data_and_predictions_that_lack_the_truth_are_left_out(changed):
    before = MetricTruth()(changed.store)
    changed.data = cue_data("color", 0.0)
    changed.answered("net", 0.5, "swap/background", parent="f" * 12, snapshot="best")  # by a network of other data
    network(changed, 8, clean=1.0, ablate__gray=0.5)  # without the exact swap
    after = MetricTruth()(changed.store)
    for one, other in zip(before, after, strict=True):
        pd.testing.assert_frame_equal(one.frame, other.frame)


def test_a_query_narrows(known):
    truth, _ = MetricTruth(query="dataset in ['rendered color 0', 'rendered color 1']")(known.store)
    assert set(truth.frame["cue"]) == {"color", "all"}


def test_without_cue_data_there_is_no_verdict_and_a_named_error(lab):
    assert verdicts(lab.store) == {}
    network(lab, 0, clean=1.0, swap__background=0.5)
    assert verdicts(lab.store) == {}, "images without a cue"
    with pytest.raises(FcaError, match="exchanged backgrounds = none among the 3 stored rows"):
        MetricTruth()(lab.store)


def lines(cue, value, reliance, metric="accuracy/ablate/gray"):
    reliance = np.asarray(reliance, float)
    return pd.DataFrame({"metric": metric, "cue": cue, "cue_strength": reliance, "reliance": reliance, "value": value})


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([lines("color", range(12), np.arange(12) / 11)], ("follows", "")),
        ([lines("color", range(12), -np.arange(12) / 11)], ("not confirmed", "color")),
        ([lines("color", range(9), np.arange(9) / 8)], ("undecided", "")),  # too few for a refutation
        ([lines("color", range(12), np.arange(12) / 100)], ("undecided", "")),  # networks that hardly differ
        ([lines("color", [np.nan] * 12, np.arange(12) / 11)], ("not confirmed", "color")),
        ([lines("color", range(12), np.arange(12) / 11), lines("object", range(3), np.arange(3))], ("undecided", "")),
        (
            [lines("color", [2] * 12, np.arange(12) / 11), lines("object", range(3), np.arange(3))],
            ("not confirmed", "color"),
        ),
        ([lines("color", range(12), -np.arange(12) / 5, "saliency/iou")], ("follows", "")),
    ],
    ids=["right", "wrong", "few", "alike", "undefined", "one cue untested", "one cue fails", "should fall"],
)
def test_a_verdict_needs_networks_that_differ_in_the_truth(parts, verdict):
    found = metric_verdicts(pd.concat(parts))
    assert set(zip(found["verdict"], found["fails"], strict=True)) == {verdict}


def test_the_order_of_the_rows_is_of_no_matter(known):
    _, networks = MetricTruth()(known.store)
    shuffled = networks.frame.sample(frac=1, random_state=1).sort_values("metric", kind="stable")
    first, second = (
        metric_verdicts(frame).set_index(["metric", "cue"]).sort_index() for frame in (networks.frame, shuffled)
    )
    assert list(first["verdict"]) == list(second["verdict"])
    assert np.allclose(first["rho_reliance"], second["rho_reliance"], equal_nan=True)


def test_figures_are_drawn_and_headlines_name_what_fails(known):
    analysis = MetricTruth()
    tables = {table.name: table for table in analysis(known.store)}
    findings = drawn_findings(analysis)
    assert [one.key for one in findings] == ["metric_truth", "metric_truth_networks"]
    for one in findings:
        drawn = one.draw(*(tables[table.name] for table in one.tables))
        assert "<svg" in style.as_svg(style.spec(drawn))
    sentences = finding.sentences(analysis, tables)
    follows, *unconfirmed = sentences
    assert "by accuracy/ablate/gray, rfs/gaussian/0.25; none more weakly than the others, rank" in follows
    assert [line.split(":")[0] for line in unconfirmed] == [
        "accuracy/swap/background/pasted is not confirmed",
        "rfs/l2/60/area_matched is not confirmed",
    ]
    assert "rank correlation for texture none" in unconfirmed[0]
    assert "colour none (not defined for 6 of 6 networks)" in unconfirmed[1]


def test_an_interval_whose_sign_changes_keeps_its_ends_in_order(known):
    truth, _ = MetricTruth()(known.store)
    [drawn] = [one.draw for one in drawn_findings(MetricTruth()) if one.key == "metric_truth"]
    lines = values(style.spec(drawn(truth))).dropna(subset="agrees_low")
    falls = lines[lines["metric"].str.startswith("rfs/gaussian")]
    assert len(falls), "a metric whose claimed sign is -1 has an interval"
    assert (falls["agrees_low"] <= falls["agrees"]).all()
    assert (falls["agrees"] <= falls["agrees_high"]).all()
