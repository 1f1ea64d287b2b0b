"""Figures of robust classes draw every line of their tables, name who has a verdict, and compute nothing."""

import numpy as np
import pandas as pd
import pytest
import vl_convert

from fca.report import style
from fca.report.part import parts as all_parts
from fca.stats.robustness import ranks, verdicts
from fca.studies.irt.class_robustness import CLASSES, SEVERITY, named_classes, shown_classes, shown_severities
from fca.studies.irt.figures import robustness, robustness_severities
from fca.types import Table
from tests.report.specs import computes, drawn, marks, refuses_empty, values

FIGURES = {part.draw: part.tables for part in (*robustness.PARTS, *robustness_severities.PARTS)}
SEGMENTS = {"difficulty": ("easy", "med_easy", "med_hard", "hard")}
SEGMENTS["discrimination"] = ("low", "med_low", "med_high", "high")


def tables(classes=5, datasets=("zoo",), kinds=("fog", "snow"), mode="count", compat=None):
    """Invented classes, each as unstable as chance has it."""
    rng = np.random.default_rng(0)
    lines, severe = [], []
    for dataset in datasets:
        for kind in kinds:
            spread = rng.uniform(0.01, 0.2, classes)
            rank, verdict = ranks(-spread), verdicts(-spread)
            for c in range(classes):
                key, e = f"class {c}", spread[c]
                told = (e, e - 0.01, e + 0.01, -e, rank[c], verdict[c], 0.9 if verdict[c] else np.nan)
                moves = (-0.1, -0.12, -0.08, -0.2, -0.3, -0.1, ("harder", "easier", "unclear")[c % 3])
                lines.append((dataset, kind, mode, key, 100, 5, *told, *moves))
                for parameter, names in SEGMENTS.items():
                    for k in range(6):
                        counts = rng.multinomial(100, np.full(4, 0.25)).tolist()
                        severe += [
                            (dataset, kind, parameter, s, key, k, n, 100, n / 100)
                            for s, n in zip(names, counts, strict=True)
                        ]
    frames = {"class_robustness": pd.DataFrame(lines, columns=CLASSES)}
    frames["class_robustness_shown"] = shown_classes(frames["class_robustness"])
    frames["robust_classes"] = named_classes(frames["class_robustness"])
    for parameter in SEGMENTS:
        severities = pd.DataFrame(severe, columns=SEVERITY)
        shown = shown_severities(severities, frames["class_robustness"], parameter)
        frames[f"class_severity_{parameter}"] = shown
    return {name: Table(name, "how?", "Table 1", frame, {"compat": compat}, ()) for name, frame in frames.items()}


def figure(draw, **asked):
    known = tables(**asked)
    return style.spec(draw(*(known[name] for name in FIGURES[draw])))


every_figure = pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)


@every_figure
def test_figures_transform_nothing_but_by_filter(draw):
    assert not computes(figure(draw))


@every_figure
@pytest.mark.parametrize(
    "asked",
    [{"classes": 2, "kinds": ("fog",)}, {"classes": 30, "datasets": ("zoo", "sky"), "mode": "mean_b"}],
    ids=["few", "many"],
)
@pytest.mark.slow
def test_figures_are_drawn_however_little_or_much_there_is(draw, asked):
    assert drawn(figure(draw, **asked))


@every_figure
def test_an_empty_table_says_that_there_is_nothing_to_draw(draw):
    known = tables()
    refuses_empty(draw, [known[name] for name in FIGURES[draw]])


@every_figure
def test_a_choice_of_data_set_filters(draw):
    spec = figure(draw)
    assert marks(spec, "symbol") > 0
    assert marks(spec, "symbol", dataset=["another"]) == 0


def test_every_class_is_a_dot_with_its_interval():
    spec = figure(robustness.ranking_figure)
    assert marks(spec, "symbol") == marks(spec, "rule") == 2 * 5
    drawn = values(spec)
    assert sorted(drawn["instability"]) == sorted(tables()["class_robustness"].frame["instability"])


def test_classes_stand_from_the_most_robust_down():
    svg = vl_convert.vegalite_to_svg(figure(robustness.ranking_figure, kinds=("fog",)), vl_version=style.VEGA_LITE)
    ordered = tables(kinds=("fog",))["class_robustness"].frame.sort_values("rank")["label"]
    at = [svg.index(f">{name}<") for name in ordered]
    assert at == sorted(at)


def test_table_one_has_two_marks_of_each_kind_a_corruption():
    spec = figure(robustness.table_figure)
    assert marks(spec, "symbol") == 2 * 4
    drawn = values(spec)
    frame = tables()["class_robustness"].frame.dropna(subset="verdict")
    told = set(zip(drawn["corruption"], drawn["label"], drawn["verdict"], strict=True))
    assert told == set(zip(frame["corruption"], frame["label"], frame["verdict"], strict=True))


@pytest.mark.parametrize("draw", [robustness_severities.difficulty_figure, robustness_severities.discrimination_figure])
def test_every_count_is_a_point_and_classes_with_a_verdict_are_named(draw):
    spec = figure(draw)
    assert marks(spec, "symbol") == 2 * 2 * 5 * 6  # corruptions, outer segments, classes, severities
    assert marks(spec, "text") == 2 * 2 * 4
    assert values(spec)["panel"].nunique() == 4


def test_names_at_the_ends_of_lines_do_not_cover_each_other():
    drawn = values(figure(robustness_severities.difficulty_figure, classes=12)).dropna(subset="name_at")
    gap = robustness_severities.GAP * values(figure(robustness_severities.difficulty_figure, classes=12))["share"].max()
    for _, part in drawn.groupby("panel"):
        assert np.diff(np.sort(part["name_at"])).min() >= gap - 1e-9
        assert (part["name_at"] >= part["share"]).all()
        assert part.sort_values(["share", "name_at"])["name_at"].is_monotonic_increasing


def test_many_classes_are_told_to_be_left_out():
    many = figure(robustness.ranking_figure, classes=30)
    assert "Drawn: the 5 most and least robust classes." in many["title"]["subtitle"][1]
    assert "Drawn" not in figure(robustness.ranking_figure)["title"]["subtitle"][1]


@every_figure
def test_the_sign_of_the_paper_is_told_where_it_was_asked_for(draw):
    note = "as that paper has it, robust = moves most"
    assert note in " ".join(figure(draw, compat="seed001")["title"]["subtitle"])
    assert note not in " ".join(figure(draw)["title"]["subtitle"])


def test_answers_are_in_words_of_the_tables():
    known = tables()
    [told] = robustness.robust_answers(known["robust_classes"].frame)
    assert told.startswith("zoo: over 2 corruptions the classes most often susceptible are class")
    [told] = robustness.direction_answers(known["class_robustness"].frame)
    assert "4 of 10 classes are harder than clean and 4 easier" in told


def test_the_report_finds_these_parts():
    keys = {part.key for part in all_parts()}
    assert keys >= {"class_robustness", "robust_classes", "class_severity_difficulty", "class_severity_discrimination"}
