"""Figures and sentences of predicted accuracy draw and say what the tables say."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from fca.report import style
from fca.report.finding import sentences
from fca.studies.few_class.figures import prediction as figures
from fca.studies.few_class.figures.prediction import prediction_statements, simss_statements
from fca.studies.few_class.prediction import PREDICTION, PREDICTORS, Prediction, judge_predictors
from fca.subset import draw_subset
from tests.support.figure_claims import drawn, drawn_findings, sentences_of

SPREAD = {"simss": 0.4, "separation": 0.6, "intra": 3, "inter": 3, "silhouette": 0.5, "knn": 0.3, "probe": 0.2}
DRAWS = {
    figures.gain_figure: ("prediction",),
    figures.error_figure: ("prediction",),
    figures.observed_figure: ("prediction_points", "prediction"),
}


def points(datasets, encoders, seeds, signal):
    """Subsets whose accuracy falls with ncl and with a hardness that every predictor sees more or less well."""
    rng = np.random.default_rng(3)
    lines = []
    for dataset in datasets:
        for subset in [draw_subset(10, n, s) for n in (2, 5) for s in range(seeds)]:
            hard = rng.normal()
            top1 = float(np.clip(0.97 - 0.06 * np.log(subset.ncl) - signal * hard + 0.01 * rng.normal(), 0, 1))
            drawn = {"ncl": subset.ncl, "subset_seed": subset.seed, "classes": subset.classes}
            for encoder in encoders:
                scores = {name: -hard + sd * rng.normal() for name, sd in {**SPREAD, "logme": 0.3}.items()}
                same = {
                    "dataset": dataset,
                    "stored": dataset,
                    "encoder": encoder,
                    "target": "DCN sub",
                    "model": "net",
                    "models": 3,
                }
                lines.append({**same, **drawn, **scores, "log_ncl": np.log(subset.ncl), "top1": top1})
    return pd.DataFrame(lines).astype({"subset_seed": "Int64"})


@cache
def tables(datasets=("digits",), encoders=("hog",), seeds=6, signal=0.03):
    made = points(datasets, encoders, seeds, signal)
    found = [
        pair for _, part in made.groupby("encoder") for pair in judge_predictors(part.reset_index(drop=True), 0.005)
    ]
    frames = {
        "prediction": PREDICTION.frame(line for line, _ in found).astype({"better_in": "Int64"}),
        "prediction_points": pd.concat([held for _, held in found], ignore_index=True),
    }
    return {spec.name: spec.table(frames[spec.name], {}, ()) for spec in Prediction.tables}


def figure(draw, **study):
    known = tables(**study)
    return style.spec(draw(*(known[name] for name in DRAWS[draw])))


def values(spec):
    return pd.DataFrame(spec["datasets"][spec["data"]["name"]])


MANY = {"datasets": ("a", "b", "c"), "encoders": ("hog", "clip"), "seeds": 6}


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.__name__)
@pytest.mark.slow
def test_figures_of_several_encoders_and_data_sets_are_drawn(draw):
    assert drawn(figure(draw, **MANY))


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.__name__)
def test_one_subset_seed_gives_no_figure_but_its_reason(draw):
    with pytest.raises(style.NothingToDraw, match="no run has what this figure needs"):
        figure(draw, seeds=1)


@pytest.mark.parametrize("draw", [figures.gain_figure, figures.error_figure], ids=lambda draw: draw.__name__)
def test_every_predictor_stands_in_every_panel_with_its_number(draw):
    drawn, known = values(figure(draw, **MANY)), tables(**MANY)["prediction"].frame
    name = "gain_points" if draw is figures.gain_figure else "error_points"
    known = known.dropna(subset=name)
    assert sorted(drawn[name]) == sorted(known[name])
    assert drawn["panel"].nunique() == 4  # encoders times ways of holding out
    assert set(drawn["named"]) == {figures.NAMES[p] for p in known["predictor"]}


def test_the_dashed_line_is_the_error_of_ncl_alone():
    drawn = values(figure(figures.error_figure, **MANY))
    alone = drawn[drawn["predictor"] == "log_ncl"].set_index("panel")["error_points"]
    assert (drawn["line"] == drawn["panel"].map(alone)).all()
    assert (values(figure(figures.gain_figure))["line"] == 0).all()


def test_observed_shows_ncl_alone_and_the_three_that_err_least():
    drawn, known = values(figure(figures.observed_figure)), tables()["prediction"].frame
    best = known[known["verdict"] != "baseline"].nsmallest(3, "error_points")["predictor"]
    assert list(dict.fromkeys(drawn["predictor"])) == ["log_ncl", *best]
    points = tables()["prediction_points"].frame
    for one in (points[points["predictor"] == p] for p in ("log_ncl", *best)):
        shown = drawn[drawn["predictor"] == one["predictor"].iloc[0]]
        assert sorted(shown["top1_predicted"]) == sorted(one["top1_predicted"])


def test_every_predictor_of_the_analysis_has_a_name_to_be_read():
    assert list(figures.NAMES) == list(PREDICTORS)


def test_the_first_lines_answer_for_every_encoder_and_way():
    known = tables(**MANY)["prediction"].frame
    best = [line for line in sentences_of(prediction_statements, known) if line.startswith("Before training, ")]
    lines = sentences_of(simss_statements, known)
    assert len(best) == len(lines) == 4
    simss = known.set_index(["encoder", "held_out", "predictor"]).loc[("clip", "subset seed", "simss")]
    [line] = [one for one in lines if one.startswith("SimSS by clip") and "new subsets" in one]
    assert simss["verdict"] == "beyond ncl"
    assert "clip predicts accuracy (DCN sub) beyond the number of classes" in line
    for number in (f"r = {simss['within_ncl_r']:.2f} [", f"error is {simss['error_points']:.1f} ["):
        assert number in line
    assert f"gain of {simss['gain_points']:+.2f} [{simss['gain_points_low']:+.2f}, " in line
    assert f"hold {100 * simss['coverage']:.0f} %" in line


def test_no_signal_is_reported_as_none():
    known = tables(seeds=20, signal=0.0)["prediction"].frame
    [simss] = sentences_of(simss_statements, known)
    assert simss.startswith("SimSS by hog does not predict accuracy")
    [best] = sentences_of(prediction_statements, known)
    assert best.startswith("Before training, nothing predicts significantly better than the number of classes alone")


def test_one_subset_seed_is_reported_as_too_little():
    known = tables(seeds=1)["prediction"].frame
    [simss] = sentences_of(simss_statements, known)
    assert simss.startswith("SimSS by hog may or may not predict")
    assert simss.endswith("there is nothing unseen.")
    assert not sentences_of(prediction_statements, known)


def test_the_report_finds_figures_and_statements():
    keys = [finding.key for finding in drawn_findings(Prediction())]
    assert keys == ["prediction_gain", "prediction_error", "predicted_accuracy"]
    assert any(sentence.startswith("SimSS by hog") for sentence in sentences(Prediction(), tables()))
