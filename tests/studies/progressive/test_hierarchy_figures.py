"""Figures of hierarchy hold every model, its parts and its coefficients, and compute nothing."""

import numpy as np
import pytest

from fca.report import style
from fca.studies.progressive import figures
from fca.studies.progressive.hierarchy import Hierarchy
from tests.studies.progressive.support.steps_lab import able, respond, steps_lab
from tests.support.figure_claims import computes, drawn, marks, refuses_empty, sentences_of, values

MODELS = 5


def made(outputs, models=MODELS, change=lambda items: items):
    lab = steps_lab(outputs, change=change)
    for number in range(models):
        respond(lab, f"net{number}", able(lab, 0.4 + 0.4 * number, noise=0.7, seed=number))
    return {table.name: table for table in Hierarchy()(lab.store)}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return made(tmp_path_factory.mktemp("hierarchy"))


def test_every_model_has_three_scores_the_most_accurate_first(tables):
    spec = style.spec(figures.hierarchy_figure(tables["hierarchy"]))
    points = values(spec)
    assert points.groupby("model").size().tolist() == [3] * MODELS
    [line] = tables["hierarchy"].frame.query("model == 'net2'").to_dict("records")
    of_series = points[points["model"] == "net2"].set_index("series")["value"]
    assert of_series["matched triplets"] == line["hierarchical_score"]
    assert of_series["accuracies of each session alone"] == line["session_rates"]
    assert of_series["accuracies by level alone"] == line["level_rates"]
    assert marks(spec, "symbol", model=["net2"]) == 3
    assert not computes(spec)


def test_without_triplets_there_is_no_matched_score(tmp_path):
    bare = made(tmp_path, change=lambda items: items.drop(columns="triplet"))
    series = set(values(style.spec(figures.hierarchy_figure(bare["hierarchy"])))["series"])
    assert series == {"accuracies of each session alone", "accuracies by level alone"}
    parts = style.spec(figures.parts_figure(bare["hierarchy"]))
    assert set(values(parts)["series"]) == {"sessions minus levels: these differ"}
    assert "No triplets are named" in str(parts["title"])
    [line] = sentences_of(figures.parts_statements, bare["hierarchy"].frame)
    assert "no triplets are named: objects are not tested" in line
    for name in ("hierarchy_patterns", "hierarchy_correlation"):
        assert len(bare[name].frame)
    assert drawn(style.spec(figures.correlation_figure(bare["hierarchy"], bare["hierarchy_correlation"])))


def test_every_model_has_both_parts_of_what_is_beyond_its_accuracy(tables):
    spec = style.spec(figures.parts_figure(tables["hierarchy"]))
    assert values(spec).groupby("model").size().tolist() == [2] * MODELS
    assert drawn(spec)
    assert not computes(spec)


def test_each_model_shows_eight_patterns_of_two_kinds(tables):
    spec = style.spec(figures.patterns_figure(tables["hierarchy_patterns"]))
    points = values(spec)
    assert points.groupby("panel")["right"].nunique().tolist() == [8] * MODELS
    assert set(points.loc[points["follows"] == "harder images fail first", "right"]) == {"none", "e", "em", "emh"}
    assert list(dict.fromkeys(points["panel"])) == [f"net{number}" for number in reversed(range(MODELS))]
    assert drawn(spec)
    assert not computes(spec)


def test_the_heading_has_both_coefficients(tables):
    both = tables["hierarchy"], tables["hierarchy_correlation"]
    spec = style.spec(figures.correlation_figure(*both))
    [panel] = set(values(spec)["panel"])
    r = both[1].frame.set_index("kind")["r"]
    assert panel.startswith(f"steps\ncorrelation {r['pearson']:.2f}".replace("0.", ".", 1))
    assert f"given level rates {r['partial']:.2f}".replace("0.", ".", 1) in panel
    assert drawn(spec)
    assert not computes(spec)


def test_few_models_have_no_coefficient_as_the_statement_has_it(tmp_path):
    few = made(tmp_path, models=2)
    [line] = sentences_of(figures.correlation_statements, few["hierarchy_correlation"].frame)
    assert line == (
        "steps: accuracy and hierarchical score over 2 models: correlation not defined; given level rates not defined."
    )
    assert drawn(style.spec(figures.correlation_figure(few["hierarchy"], few["hierarchy_correlation"])))


def test_the_statement_counts_models_whose_objects_fail_in_order(tables):
    low = {"matched_excess_low": np.array([-0.1, 0.01, 0.02, -0.3, 0.2]), "session_excess_low": 0.1}
    frame = tables["hierarchy"].frame.assign(**low)
    [unknown] = sentences_of(figures.parts_statements, frame.assign(matched_excess_low=np.nan))
    assert "(p of the matching below 0.05; no interval over classes)." in unknown
    [line] = sentences_of(figures.parts_statements, frame)
    assert "in 3 of 5 models (matched minus all triplets" in line
    assert line.endswith("classes and attributes differ in 5 of 5.")


def test_a_single_model_has_no_range_of_scores(tables):
    best = tables["hierarchy"].frame.query("model == 'net4'").assign(hierarchical_score=0.9, session_rates=0.87)
    best = best.assign(hierarchical_score_low=0.8, hierarchical_score_high=0.95, level_rates=0.85)
    assert sentences_of(figures.order_statements, best) == [
        "On steps, net4 fails on the harder image first in 90 % [80, 95] of triplets; its accuracies by level alone "
        "make 85 %.",
        "steps: accuracies of each class and attribute alone make 87 % of triplets.",
    ]


def test_models_at_the_level_of_chance_have_no_order(tables):
    guessing = tables["hierarchy"].frame.assign(at_chance=True)
    assert sentences_of(figures.order_statements, guessing) == []
    assert sentences_of(figures.parts_statements, guessing) == [
        "steps: all models are at the level of chance; in which order they fail shows nothing."
    ]


def test_without_a_line_there_is_nothing_to_draw(tables):
    refuses_empty(figures.hierarchy_figure, [tables["hierarchy"]])
    refuses_empty(figures.parts_figure, [tables["hierarchy"]])
    refuses_empty(figures.patterns_figure, [tables["hierarchy_patterns"]])
    refuses_empty(figures.correlation_figure, [tables["hierarchy"], tables["hierarchy_correlation"]])
