"""Figures of adaptive tests draw every line of their tables and compute nothing."""

import pandas as pd
import pytest

from fca.report import style
from fca.report.part import parts as all_parts
from fca.studies.adaptive.figures import adaptive, adaptive_sessions, adaptive_tests
from tests.report.invented_adaptive import tables
from tests.report.specs import computes, drawn, marks, refuses_empty, values

FIGURES = {part.draw: part.tables for part in (*adaptive.PARTS, *adaptive_sessions.PARTS, *adaptive_tests.PARTS)}


def figure(draw, **asked):
    known = tables(**asked)
    return style.spec(draw(*(known[name] for name in FIGURES[draw])))


every_figure = pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)


@every_figure
@pytest.mark.parametrize(
    "asked", [{"models": 1}, {"models": 8, "datasets": ("rendered", "photos"), "seeds": (0, 1)}], ids=["few", "many"]
)
@pytest.mark.slow
def test_figures_are_drawn_however_little_or_much_there_is(draw, asked):
    spec = figure(draw, **asked)
    assert drawn(spec)
    assert not computes(spec)


@every_figure
def test_an_empty_table_says_that_there_is_nothing_to_draw(draw):
    refuses_empty(draw, [tables()[name] for name in FIGURES[draw]])


@every_figure
def test_a_choice_of_data_set_filters(draw):
    spec = figure(draw)
    assert marks(spec, "symbol") > 0
    assert marks(spec, "symbol", dataset=["another"]) == 0


@pytest.mark.parametrize(
    ("draw", "dots", "rules"),
    [
        (adaptive.errors_figure, 2 * 4 * (3 + 1), 2 * 4),
        (adaptive.curves_figure, 2 * 4 * 3, 2 * 4 * 3),
        (adaptive_sessions.asked_figure, 3 * 2 * 3, 0),
        (adaptive_sessions.trajectories_figure, 3 * 2 * 3, 0),
        (adaptive_sessions.sessions_figure, 3 * 2 * 9, 3),
        (adaptive_tests.live_figure, 3 * 2 + 2 * 2, 3 * 2),
        (adaptive_tests.attributes_figure, 2 * (3 * 2 + 2 * 2), 2 * 3 * 2),
        (adaptive_tests.truth_figure, 2 * 2 * 2, 2 * 2 * 2 + 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_line_is_drawn(draw, dots, rules):
    spec = figure(draw)
    assert (marks(spec, "symbol"), marks(spec, "rule")) == (dots, rules)


def test_every_session_by_points_is_a_bar():
    assert marks(figure(adaptive_sessions.trajectories_figure), "rect") == 3 * 3


def test_methods_are_told_apart_by_what_they_need():
    kinds = values(figure(adaptive.errors_figure)).drop_duplicates("method").set_index("method")["kind"]
    assert kinds.to_dict() == {
        "Static 3": "evenly drawn",
        "gre_two_stage + mixed_logit": "adaptive, needs levels only",
        "neyman_irt + difference": "needs an item bank",
        "gre_two_stage + pooled": "biased by its adaptive draw",
    }


def test_live_tests_are_told_apart_by_what_differs_but_the_seed():
    frame = tables(seeds=(0, 1))["adaptive_tests"].frame
    assert set(adaptive_tests.named(frame)["row"]) == {"net0", "net1", "net2"}
    two = pd.concat([frame, frame.assign(policy="optimal_allocation", width=0.03)])
    assert "net1 · gre_two_stage + mixed_logit" in set(adaptive_tests.named(two)["row"])
    assert "net1 · optimal_allocation + mixed_logit · width 0.03" in set(adaptive_tests.named(two)["row"])


def test_by_attribute_one_test_a_model_is_drawn():
    known = tables(seeds=(0, 1))["adaptive_test_attributes"]
    spec = style.spec(adaptive_tests.attributes_figure(known))
    assert set(values(spec)["seed"]) == {0}
    assert "Of some models the first test." in spec["title"]["subtitle"][0]
    assert "Of some" not in figure(adaptive_tests.attributes_figure)["title"]["subtitle"][0]


def test_answers_are_in_words_of_the_tables():
    known = tables()
    accuracy, score = adaptive.method_answers(known["adaptive_methods"].frame)
    assert accuracy.startswith("rendered: squared error of accuracy at 25 % of the images, against Static 3: gre_two")
    assert "score" in score
    [told] = adaptive_sessions.asked_answers(known["adaptive_asked"].frame)
    assert told == "rendered: a session asks 2.7 hard images of net0 (top1 50 %) and 2.9 of net2 (52 %)."
    [told] = adaptive_tests.live_answers(known["adaptive_tests"].frame)
    assert told.startswith("rendered: 3 live tests of 25 % of the images: 4 of 4 intervals hold the truth")
    assert told.endswith("; 30 % of the time of a full run.")


def test_the_report_finds_these_parts():
    keys = {part.key for part in all_parts()}
    assert keys >= {"adaptive_errors", "adaptive_curves", "adaptive_asked", "adaptive_trajectories"}
    assert keys >= {"adaptive_sessions", "adaptive_tests", "adaptive_test_attributes", "adaptive_truth"}
