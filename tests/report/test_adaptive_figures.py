"""Figures of adaptive tests draw every line of their tables and compute nothing."""

from typing import ClassVar

import pandas as pd
import pytest
from fca.report.figure import visuals_of

from fca.report import style
from fca.studies.adaptive import figures
from fca.studies.adaptive.adaptive_tests import AdaptiveTests
from fca.studies.adaptive.replay import AdaptiveReplay
from tests.report.invented_adaptive import tables
from tests.report.specs import FigureClaims, marks, values


class TestEveryFigure(FigureClaims):
    FIGURES, tables = figures.FIGURES, staticmethod(tables)
    CASES: ClassVar = {"few": {"models": 1}, "many": {"models": 8, "datasets": ("rendered", "photos"), "seeds": (0, 1)}}


figure = TestEveryFigure.figure


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
    assert set(figures.named(frame)["row"]) == {"net0", "net1", "net2"}
    two = pd.concat([frame, frame.assign(policy="optimal_allocation", width=0.03)])
    assert "net1 · gre_two_stage + mixed_logit" in set(figures.named(two)["row"])
    assert "net1 · optimal_allocation + mixed_logit · width 0.03" in set(figures.named(two)["row"])


def test_by_attribute_one_test_a_model_is_drawn():
    known = tables(seeds=(0, 1))["adaptive_test_attributes"]
    spec = style.spec(figures.attributes_figure(known))
    assert set(values(spec)["seed"]) == {0}
    assert "Of a model with several tests, the first is shown." in " ".join(spec["title"]["subtitle"])
    assert "several tests" not in " ".join(figure(figures.attributes_figure)["title"]["subtitle"])


def test_headlines_have_the_numbers_of_the_tables():
    known = tables()
    accuracy, score = figures.method_headlines(known["adaptive_methods"].frame)
    start = "rendered: with 25 % of the images, the squared error of accuracy relative to Static 3 is "
    assert accuracy.startswith(start)
    assert "for optimal_allocation + stratified" in accuracy
    assert "score" in score
    [line] = figures.evaluated_headlines(known["adaptive_asked"].frame)
    assert line == "rendered: a session shows 2.7 hard images to net0 (top1 50 %) and 2.9 to net2 (top1 52 %)."
    [line] = figures.live_headlines(known["adaptive_tests"].frame)
    assert line.startswith("rendered: 3 adaptive tests of 25 % of the images: 4 of 4 intervals contain the true value")
    assert line.endswith("; 30 % of the time of a full run.")


def test_what_a_choice_of_images_gains_is_said_against_random_draws_with_the_same_bank():
    """In 4 of 12 cells of published responses a choice by the bank erred more than random draws with that bank."""
    frame = tables()["adaptive_methods"].frame
    frame = frame.assign(ratio_same_bank_low=0.7, ratio_same_bank_high=1.1)
    ours = frame[frame["method"] == "defensive_irt + regression"]
    random = ours.assign(method="random draws, same bank (regression)", policy="random", ratio_same_bank=1.0, ratio=0.5)
    random = random.assign(ratio_low=0.4, ratio_high=0.6)
    both = pd.concat([frame, random], ignore_index=True)
    sentence, _ = figures.error_answer(both)
    assert "With an item bank random images have 0.50 [0.40, 0.60] times" in sentence
    assert sentence.endswith("choosing images by the bank multiplies that by 0.80 [0.70, 1.10].")
    headline = next(iter(figures.method_headlines(both)))
    assert headline.endswith("for defensive_irt + regression, 0.80 [0.70, 1.10] times that of the random draws.")
    assert "item bank" not in figures.error_answer(frame)[0], "not without what it is compared with"


def test_the_report_finds_these_figures():
    keys = {figure.key for analysis in (AdaptiveReplay(), AdaptiveTests()) for figure in visuals_of(analysis).figures}
    assert keys >= {
        "adaptive_errors",
        "adaptive_curves",
        "adaptive_exposure",
        "adaptive_asked",
        "adaptive_trajectories",
    }
    assert keys >= {"adaptive_sessions", "adaptive_tests", "adaptive_test_attributes", "adaptive_truth"}
