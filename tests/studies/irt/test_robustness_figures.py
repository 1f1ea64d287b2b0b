"""Figures of robust classes draw every line of their tables, name who has a verdict, and compute nothing."""

import numpy as np
import pandas as pd
import pytest
import vl_convert

from fca.report import style
from fca.studies.irt.class_robustness import (
    CLASS_ROBUSTNESS,
    CLASS_SEVERITY,
    ClassRobustness,
    named_classes,
    shown_classes,
    shown_severities,
)
from fca.studies.irt.figures import classes as drawings
from fca.studies.irt.stats.segments import ranks, verdicts
from tests.support.figure_claims import computes, drawn, drawn_findings, marks, refuses_empty, sentences_of, values

FIGURES = {finding.key: finding for finding in drawn_findings(ClassRobustness())}
SPECS = {spec.name: spec for spec in ClassRobustness.tables}
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
            written = list(zip(ranks(spread), verdicts(spread), strict=True))
            for c in range(classes):
                key, e = f"class {c}", spread[c]
                told = (e, e - 0.01, e + 0.01, -e, rank[c], verdict[c], 0.9 if verdict[c] else np.nan, *written[c])
                moves = (-0.1, -0.12, -0.08, -0.2, -0.3, -0.1, ("harder", "easier", "unclear")[c % 3], False)
                lines.append((dataset, kind, mode, key, 100, 5, "1, 2, 3, 4, 5", *told, *moves))
                for parameter, names in SEGMENTS.items():
                    for k in range(6):
                        counts = rng.multinomial(100, np.full(4, 0.25)).tolist()
                        severe += [
                            (dataset, kind, parameter, s, key, k, n, 100, n / 100)
                            for s, n in zip(names, counts, strict=True)
                        ]
    frames = {"class_robustness": pd.DataFrame(lines, columns=list(CLASS_ROBUSTNESS.columns))}
    frames["class_robustness_shown"] = shown_classes(frames["class_robustness"])
    frames["robust_classes"] = named_classes(frames["class_robustness"])
    for parameter in SEGMENTS:
        severities = pd.DataFrame(severe, columns=list(CLASS_SEVERITY.columns))
        shown = shown_severities(severities, frames["class_robustness"], parameter)
        frames[f"class_severity_{parameter}"] = shown
    return {name: SPECS[name].table(frame, {"compat": compat}, ()) for name, frame in frames.items()}


def figure(key, **asked):
    known = tables(**asked)
    return style.spec(FIGURES[key].draw(*(known[spec.name] for spec in FIGURES[key].tables)))


every_figure = pytest.mark.parametrize("key", FIGURES)


@every_figure
def test_figures_transform_nothing_but_by_filter(key):
    assert not computes(figure(key))


@every_figure
@pytest.mark.parametrize(
    "asked",
    [{"classes": 2, "kinds": ("fog",)}, {"classes": 30, "datasets": ("zoo", "sky"), "mode": "mean_b"}],
    ids=["few", "many"],
)
@pytest.mark.slow
def test_figures_are_drawn_however_little_or_much_there_is(key, asked):
    assert drawn(figure(key, **asked))


@every_figure
def test_an_empty_table_says_that_there_is_nothing_to_draw(key):
    known = tables()
    refuses_empty(FIGURES[key].draw, [known[spec.name] for spec in FIGURES[key].tables])


@pytest.mark.wide
@every_figure
def test_a_choice_of_data_set_filters(key):
    spec = figure(key)
    assert marks(spec, "symbol") > 0
    assert marks(spec, "symbol", dataset=["another"]) == 0


def test_every_class_is_a_dot_with_its_interval():
    spec = figure("class_robustness")
    assert marks(spec, "symbol") == marks(spec, "rule") == 2 * 5
    drawn = values(spec)
    assert sorted(drawn["instability"]) == sorted(tables()["class_robustness"].frame["instability"])


def test_classes_stand_from_the_most_robust_down():
    svg = vl_convert.vegalite_to_svg(figure("class_robustness", kinds=("fog",)), vl_version=style.VEGA_LITE)
    ordered = tables(kinds=("fog",))["class_robustness"].frame.sort_values("rank")["label"]
    at = [svg.index(f">{name}<") for name in ordered]
    assert at == sorted(at)


def test_table_one_has_two_marks_of_each_kind_a_corruption():
    spec = figure("robust_classes")
    assert marks(spec, "symbol") == 2 * 4
    drawn = values(spec)
    frame = tables()["class_robustness"].frame.dropna(subset="verdict")
    named = set(zip(drawn["corruption"], drawn["label"], drawn["verdict"], strict=True))
    assert named == set(zip(frame["corruption"], frame["label"], frame["verdict"], strict=True))


@pytest.mark.wide
@pytest.mark.parametrize("key", ["class_severity_difficulty", "class_severity_discrimination"])
def test_every_count_is_a_point_and_classes_with_a_verdict_are_named(key):
    spec = figure(key)
    assert marks(spec, "symbol") == 2 * 2 * 5 * 6  # corruptions, outer segments, classes, severities
    assert marks(spec, "text") == 2 * 2 * 4
    assert values(spec)["panel"].nunique() == 4


def test_names_at_the_ends_of_lines_do_not_cover_each_other():
    drawn = values(figure("class_severity_difficulty", classes=12)).dropna(subset="name_at")
    gap = drawings.NAME_GAP * values(figure("class_severity_difficulty", classes=12))["share"].max()
    for _, part in drawn.groupby("panel"):
        assert np.diff(np.sort(part["name_at"])).min() >= gap - 1e-9
        assert (part["name_at"] >= part["share"]).all()
        assert part.sort_values(["share", "name_at"])["name_at"].is_monotonic_increasing


def test_the_subtitle_states_that_classes_are_left_out():
    many = figure("class_robustness", classes=30)
    assert "Drawn: the 5 most and least robust classes." in " ".join(many["title"]["subtitle"])
    assert "Drawn" not in " ".join(figure("class_robustness")["title"]["subtitle"])


@pytest.mark.wide
@every_figure
def test_the_subtitle_states_the_sign_of_the_paper(key):
    note = "as that paper has it, robust = moves most"
    assert note in " ".join(figure(key, compat="seed001")["title"]["subtitle"])
    assert note not in " ".join(figure(key)["title"]["subtitle"])


def test_headlines_are_in_words_of_the_tables():
    known = tables()
    [sentence] = sentences_of(drawings.robust_classes_statements, known["robust_classes"].frame)
    assert sentence.startswith("zoo: over 2 corruptions, susceptible: ")
    classes = known["class_robustness"].frame
    first, directions = sentences_of(drawings.instability_statements, classes)
    least_stable = classes.loc[classes["instability"].idxmax()]
    name = f"Class {least_stable['label']} of zoo changes most under {least_stable['corruption']}: "
    assert first.startswith(f"{name}its shares of easy to hard images vary by {least_stable['instability']:.2f} [")
    assert "4 of 10 classes are harder than clean and 4 easier" in directions


def test_a_corruption_whose_clean_images_nobody_recognises_is_left_out():
    classes = tables()["class_robustness"].frame
    is_fog = classes["corruption"] == "fog"
    first, directions = sentences_of(drawings.instability_statements, classes.assign(at_chance=is_fog))
    assert " changes most under snow: " in first
    assert "over 1 corruption, 2 of 5 classes are harder" in directions
    assert sentences_of(drawings.instability_statements, classes.assign(at_chance=True)) == [
        "Not known: on clean images of zoo, all subjects are at the level of chance."
    ]


def test_of_classes_that_are_susceptible_as_often_none_is_picked():
    """It named the first two of four with equal counts."""
    line = {"dataset": "zoo", "at_chance": False, "robust": ("yak", "owl")}
    named = pd.DataFrame(
        [
            line | {"corruption": "fog", "susceptible": ("ant", "bee")},
            line | {"corruption": "snow", "susceptible": ("cat", "dog")},
        ]
    )
    assert sentences_of(drawings.robust_classes_statements, named) == [
        "zoo: over 2 corruptions, susceptible: no class more than once; robust: yak and owl under both."
    ]
    assert sentences_of(drawings.robust_classes_statements, named.assign(at_chance=True)) == [
        "zoo: on clean images all subjects are at the level of chance; no class can be said to be susceptible or "
        "robust."
    ]
    [one_known] = sentences_of(drawings.robust_classes_statements, named.assign(at_chance=[True, False]))
    assert one_known == "zoo: under snow, susceptible: cat and dog; robust: yak and owl."


def test_the_report_finds_these_figures():
    assert list(FIGURES) == [
        "class_robustness",
        "robust_classes",
        "class_severity_difficulty",
        "class_severity_discrimination",
    ]
