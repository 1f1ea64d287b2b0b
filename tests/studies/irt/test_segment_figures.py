"""Figures of easy and hard images draw every line of their tables and nothing that they computed."""

from typing import ClassVar

import numpy as np
import pandas as pd
import vl_convert

from fca.report import style
from fca.report.finding import findings_of
from fca.studies.irt.difficulty_segments import (
    SEGMENT_CLASSES,
    SEGMENT_MODELS,
    DifficultySegments,
    shown_classes,
    shown_subjects,
)
from fca.studies.irt.figures import classes as drawings
from tests.support.figure_claims import FigureClaims, drawn_findings, marks, sentences_of, values

SPECS = {spec.name: spec for spec in DifficultySegments.tables}
NAMES = ["easy", "med_easy", "med_hard", "hard"]


def tables(subjects=3, classes=4, datasets=("zoo",), kinds=("fog",)):
    """Invented shares: better subjects solve more, harder segments are solved less."""
    rng = np.random.default_rng(0)
    models, of_classes = [], []
    for dataset in datasets:
        for kind, severity in (("clean", 0), *((kind, 5) for kind in kinds)):
            for s in range(subjects):
                right = np.sort(rng.integers(40 - s, size=4))[::-1]
                for segment, r in zip(NAMES, right.tolist(), strict=True):
                    share = r / 40
                    line = (dataset, kind, severity, f"net{s}", f"net{s}", segment, r, 40)
                    models.append((*line, share, share - 0.01, share + 0.01, False))
        for parameter in ("difficulty", "discrimination"):
            for quarter in ("top", "bottom"):
                for c in range(classes):
                    share = rng.uniform(0, 0.6)
                    ends = (share, share - 0.1, share + 0.1)
                    of_classes.append((dataset, parameter, quarter, f"class {c}", round(40 * share), 40, *ends, False))
    frames = {"segment_models": pd.DataFrame(models, columns=list(SEGMENT_MODELS.columns))}
    frames["segment_classes"] = pd.DataFrame(of_classes, columns=list(SEGMENT_CLASSES.columns))
    frames["segment_models_shown"] = shown_subjects(frames["segment_models"])
    frames["segment_classes_shown"] = shown_classes(frames["segment_classes"])
    return {name: SPECS[name].table(frame, {}, ()) for name, frame in frames.items()}


class TestEveryFigure(FigureClaims):
    FINDINGS, tables = findings_of(DifficultySegments()), staticmethod(tables)
    CASES: ClassVar = {
        "few": {"subjects": 1, "classes": 1, "kinds": ()},
        "many": {"subjects": 40, "classes": 40, "datasets": ("zoo", "sky")},
    }
    MARKS: ClassVar = {"segment_models": "rect", "segment_classes": "rect"}


figure = TestEveryFigure.figure


def test_every_share_is_a_cell_and_a_choice_filters_them():
    spec = figure(drawings.models_figure)
    assert marks(spec, "rect") == 3 * 4 * 2
    assert marks(spec, "rect", model=["net1"]) == 4 * 2
    assert marks(spec, "rect", dataset=["another"]) == 0
    frame = tables()["segment_models_shown"].frame
    assert sorted(values(spec)["share"]) == sorted(frame["share"])
    assert values(spec)["panel"].unique().tolist() == ["clean", "fog 5"]


def test_subjects_stand_from_the_best_on_clean_images_to_the_worst():
    frame = tables()["segment_models_shown"].frame
    svg = vl_convert.vegalite_to_svg(figure(drawings.models_figure, kinds=()), vl_version=style.VEGA_LITE)
    ordered = frame.sort_values("place")["subject"].unique()
    at = [svg.index(f">{name}<") for name in ordered]
    assert at == sorted(at)


def test_both_quarters_of_every_class_are_bars_away_from_each_other():
    spec = figure(drawings.classes_figure)
    frame = tables()["segment_classes_shown"].frame
    assert marks(spec, "rect") == len(frame) == 2 * 2 * 4
    drawn = values(spec)
    assert (drawn.loc[drawn["quarter"] == "top", "signed"] > 0).all()
    assert (drawn["signed"].abs() == drawn["share"]).all()
    assert (drawn.loc[drawn["quarter"] == "bottom", "signed"] < 0).all()


def test_headlines_name_the_extremes_of_the_tables():
    known = tables(subjects=5, kinds=("fog", "snow"))
    frame = known["segment_models"].frame
    hard = frame[(frame["segment"] == "hard") & (frame["severity"] == 0)].sort_values("share", kind="stable")
    first, under_corruptions = sentences_of(drawings.hard_images_statements, frame)
    best, weakest = hard.iloc[-1], hard.iloc[0]
    assert f"images of zoo, {best['subject']} is right on {100 * best['share']:.0f} % [" in first
    assert f"the weakest of 5, {weakest['subject']}, on {100 * weakest['share']:.0f} %." in first
    assert "at the highest severity, net" in under_corruptions
    sentences = sentences_of(drawings.hard_classes_statements, known["segment_classes"].frame)
    assert len(sentences) == 2
    top = known["segment_classes"].frame.query("parameter == 'difficulty' and quarter == 'top'")
    assert top.sort_values("share")["label"].iloc[-1] in sentences[0].split(" and ")[0]


def segment_models(**shares):
    """Shares of each subject on the hard quarter: clean, and under each of the corruptions that follow."""
    lines = [
        ("zoo", "clean" if at == 0 else f"corruption {at}", 5 * (at > 0), name, name, "hard", 0, 40, share, 0, 1, False)
        for name, of in shares.items()
        for at, share in enumerate(of)
    ]
    return pd.DataFrame(lines, columns=list(SEGMENT_MODELS.columns)).assign(share_low=np.nan, share_high=np.nan)


def test_equal_subjects_share_a_superlative():
    """It named the first of equals: "a solves the most and d the fewest" with a = b and c = d."""
    ties = segment_models(a=[0.5], b=[0.5], c=[0.2], d=[0.2])
    assert sentences_of(drawings.hard_images_statements, ties) == [
        "On the hard quarter of the images of zoo, a and b are each right on 50 %; the weakest of 4, c and d, on 20 %."
    ]
    tied = segment_models(a=[0.5, 0.3, 0.3], b=[0.4, 0.3, 0.3], c=[0.2, 0.1, 0.1])
    assert sentences_of(drawings.hard_images_statements, tied) == [
        "On the hard quarter of the images of zoo, a is right on 50 %; the weakest of 3, c, on 20 %.",
        "zoo: at the highest severity, nobody alone solves the most of the hard quarter under any of 2 corruptions.",
    ]
    one_lead = segment_models(a=[0.5, 0.3, 0.3], b=[0.4, 0.3, 0.5])
    [_, sentence] = sentences_of(drawings.hard_images_statements, one_lead)
    assert sentence == "zoo: at the highest severity, b solves the most of the hard quarter under 1 of 2 corruptions."
    at_chance = segment_models(a=[0.5, 0.3], b=[0.4, 0.2], c=[0.4, 0.2]).assign(at_chance=True)
    assert sentences_of(drawings.hard_images_statements, at_chance) == [
        "Not known: on clean images of zoo, all subjects are at the level of chance."
    ]


def segment_classes(*shares):
    line = {"dataset": "zoo", "parameter": "difficulty", "quarter": "top"}
    return pd.DataFrame([line | {"label": key, "share": share} for key, share in zip("abcdefg", shares, strict=False)])


def test_classes_that_equal_the_next_one_are_not_named_as_the_most():
    """It named three: "a (38 %), b (38 %) and c (25 %)" with d and e at 25 %, too."""
    of = "zoo: the classes with most images in the hardest quarter are "
    assert sentences_of(drawings.hard_classes_statements, segment_classes(0.38, 0.38, 0.25, 0.25, 0.25)) == [
        f"{of}a (38 %) and b (38 %)."
    ]
    assert sentences_of(drawings.hard_classes_statements, segment_classes(0.3, 0.3, 0.3, 0.3, 0.1)) == [
        f"{of}a, b, c and d (30 % each)."
    ]
    [one] = sentences_of(drawings.hard_classes_statements, segment_classes(0.4, 0.3, 0.3, 0.3))
    assert one == "zoo: the class with most images in the hardest quarter is a (40 %)."
    [at_chance] = sentences_of(drawings.hard_classes_statements, segment_classes(0.4, 0.3).assign(at_chance=True))
    assert (
        at_chance
        == "zoo: which classes are in the hardest quarter is not informative: all subjects are at the level of chance."
    )


def test_one_subject_has_no_best():
    frame = tables(subjects=1, kinds=("fog", "snow"))["segment_models"].frame
    [sentence] = sentences_of(drawings.hard_images_statements, frame)
    assert sentence.startswith("On the hard quarter of the images of zoo, net0 is right on ")
    assert "weakest" not in sentence


def test_the_report_finds_these_figures():
    assert [finding.key for finding in drawn_findings(DifficultySegments())] == ["segment_models", "segment_classes"]
