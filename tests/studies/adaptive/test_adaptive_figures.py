"""Figures of adaptive tests draw every line of their tables and compute nothing."""

from dataclasses import replace
from typing import ClassVar

import pandas as pd
import pytest

from fca.report import style
from fca.studies.adaptive import figures
from fca.studies.adaptive.adaptive_replay import AdaptiveReplay
from fca.studies.adaptive.adaptive_tests import AdaptiveTests
from tests.studies.adaptive.support.invented_adaptive import tables
from tests.support.figure_claims import FigureClaims, drawn_findings, marks, sentences_of, values


class TestEveryFigure(FigureClaims):
    FINDINGS, tables = figures.FINDINGS, staticmethod(tables)
    CASES: ClassVar = {"few": {"models": 1}, "many": {"models": 8, "datasets": ("rendered", "photos"), "seeds": (0, 1)}}


figure = TestEveryFigure.figure


@pytest.mark.wide
@pytest.mark.parametrize(
    ("draw", "dots", "rules"),
    [
        (figures.errors_figure, 2 * 4 * (3 + 1), 2 * 4),
        (figures.curves_figure, 2 * 4 * 3, 2 * 4 * 3),
        (figures.exposure_figure, 4 * 3 + 4 * 3 * 3, (4 + 3) * 3),
        (figures.evaluated_figure, 3 * 2 * 3, 0),
        (figures.trajectories_figure, 3 * 2 * 3, 0),
        (figures.sessions_figure, 3 * 2 * 9, 3),
        (figures.live_figure, 3 * 2 + 2 * 2, 3 * 2),
        (figures.attributes_figure, 2 * (3 * 2 + 2 * 2), 2 * 3 * 2),
        (figures.truth_figure, 2 * 2 * 2, 2 * 2 * 2 + 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_line_is_drawn(draw, dots, rules):
    spec = figure(draw)
    assert (marks(spec, "symbol"), marks(spec, "rule")) == (dots, rules)


def test_every_session_by_points_is_a_bar():
    assert marks(figure(figures.trajectories_figure), "rect") == 3 * 3


def test_methods_are_coloured_by_what_they_need():
    kinds = values(figure(figures.errors_figure)).drop_duplicates("method").set_index("method")["kind"]
    assert kinds.to_dict() == {
        "Static 3": "evenly drawn",
        "optimal_allocation + stratified": "adaptive, needs levels only",
        "defensive_irt + regression": "needs an item bank",
        "gre_two_stage + pooled": "biased by its adaptive draw",
    }


def test_live_tests_are_named_by_what_differs_but_the_seed():
    frame = tables(seeds=(0, 1))["adaptive_tests"].frame
    assert set(figures.label_tests(frame)["row"]) == {"net0", "net1", "net2"}
    two = pd.concat([frame, frame.assign(policy="optimal_allocation", width=0.03)])
    assert "net1 · gre_two_stage + mixed_logit" in set(figures.label_tests(two)["row"])
    assert "net1 · optimal_allocation + mixed_logit · width 0.03" in set(figures.label_tests(two)["row"])


def test_images_without_levels_have_no_title_that_names_levels():
    """Several estimators are for images without levels, such as `difference`; their only target is accuracy."""
    frame = tables()["adaptive_tests"].frame
    without_levels = frame[frame["target"] == "accuracy"].assign(estimator="difference")
    assert set(figures.label_tests(without_levels)["named"]) == {"accuracy"}
    assert not set(figures.label_tests(frame)["named"]) & {"accuracy", "score"}


def test_by_attribute_one_test_a_model_is_drawn():
    known = tables(seeds=(0, 1))["adaptive_test_attributes"]
    spec = style.spec(figures.attributes_figure(known))
    assert set(values(spec)["seed"]) == {0}
    assert "Of a model with several tests, the first is shown." in " ".join(spec["title"]["subtitle"])
    assert "several tests" not in " ".join(figure(figures.attributes_figure)["title"]["subtitle"])


def test_by_attribute_models_that_are_not_drawn_are_counted():
    spec = style.spec(figures.attributes_figure(tables(models=8)["adaptive_test_attributes"]))
    subtitle = " ".join(spec["title"]["subtitle"])
    assert values(spec)["model"].nunique() == figures.EXAMPLE_TESTS
    assert "The first 6 of 8 models are shown." in subtitle
    assert "several tests" not in subtitle, "each model has one test"


def test_dashes_are_between_the_rounds_of_each_panel():
    """A larger budget multiplies both rounds, so that the first rounds of two data sets may differ in length."""
    sessions = tables(models=1)["adaptive_sessions"]
    long_rounds = sessions.frame.assign(dataset="photos", place=2 * sessions.frame["place"])
    both = replace(sessions, frame=pd.concat([sessions.frame, long_rounds], ignore_index=True))
    drawn = values(style.spec(figures.sessions_figure(both)))
    first_of_second_round = drawn[drawn["round"] == 2].groupby("dataset")["place"].min()
    assert first_of_second_round.nunique() == 2
    dashes = drawn.dropna(subset="between").set_index("dataset")["between"]
    assert dashes.to_dict() == (first_of_second_round - 0.5).to_dict()


def test_statements_have_the_numbers_of_the_tables():
    known = tables()
    accuracy, score = sentences_of(figures.methods_statements, known["adaptive_methods"].frame)
    start = "With 25 % of the images of rendered, an adaptive test (optimal_allocation + stratified) has "
    assert accuracy.startswith(start)
    assert accuracy.endswith(" times the squared error in accuracy of as many evenly drawn images (Static 3).")
    assert "squared error in score" in score
    [line] = sentences_of(figures.evaluated_statements, known["adaptive_asked"].frame)
    assert line == "rendered: a session shows 2.7 hard images to net0 (top1 50 %) and 2.9 to net2 (top1 52 %)."
    [line] = sentences_of(figures.live_statements, known["adaptive_tests"].frame)
    assert line.startswith("rendered: 3 adaptive tests of 25 % of the images: 4 of 4 intervals contain the true value")
    assert line.endswith("; 30 % of the time of a full run.")


def test_the_gain_of_choosing_images_is_that_over_random_draws_with_the_same_bank():
    """In 4 of 12 cells of published responses a choice by the bank erred more than random draws with that bank."""
    frame = tables()["adaptive_methods"].frame
    frame = frame.assign(ratio_same_bank_low=0.7, ratio_same_bank_high=1.1)
    ours = frame[frame["method"] == "defensive_irt + regression"]
    random = ours.assign(method="random draws, same bank (regression)", policy="random", ratio_same_bank=1.0, ratio=0.5)
    random = random.assign(ratio_low=0.4, ratio_high=0.6)
    both = pd.concat([frame, random], ignore_index=True)
    sentence, with_bank, *_ = sentences_of(figures.methods_statements, both)
    assert "With an item bank random images have 0.50 [0.40, 0.60] times" in sentence
    assert sentence.endswith("choosing images by the bank multiplies that by 0.80 [0.70, 1.10].")
    assert with_bank.startswith("On rendered, images chosen by an item bank (defensive_irt + regression) have ")
    assert with_bank.endswith(" times the squared error in accuracy of as many evenly drawn images.")
    without_random_draws = sentences_of(figures.methods_statements, frame)
    assert "item bank" not in " ".join(without_random_draws), "not without what it is compared with"


def test_the_report_finds_these_figures():
    keys = {finding.key for finding in drawn_findings(AdaptiveReplay(), AdaptiveTests())}
    assert keys >= {
        "adaptive_errors",
        "adaptive_curves",
        "adaptive_exposure",
        "adaptive_asked",
        "adaptive_trajectories",
    }
    assert keys >= {"adaptive_sessions", "adaptive_tests", "adaptive_test_attributes", "adaptive_truth"}
