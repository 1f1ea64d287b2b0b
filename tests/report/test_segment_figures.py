"""Figures of easy and hard images draw every line of their tables and nothing that they computed."""

import numpy as np
import pandas as pd
import pytest
import vl_convert

from fca.report import style
from fca.report.part import parts as all_parts
from fca.studies.irt.difficulty_segments import CLASSES, MODELS, shown_classes, shown_subjects
from fca.studies.irt.figures import segments
from fca.types import Table
from tests.report.specs import computes, drawn, marks, refuses_empty, values

FIGURES = {part.draw: part.tables for part in segments.PARTS}
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
                    models.append((*line, share, share - 0.01, share + 0.01))
        for parameter in ("difficulty", "discrimination"):
            for quarter in ("top", "bottom"):
                for c in range(classes):
                    share = rng.uniform(0, 0.6)
                    ends = (share, share - 0.1, share + 0.1)
                    of_classes.append((dataset, parameter, quarter, f"class {c}", round(40 * share), 40, *ends))
    frames = {"segment_models": pd.DataFrame(models, columns=MODELS)}
    frames["segment_classes"] = pd.DataFrame(of_classes, columns=CLASSES)
    frames["segment_models_shown"] = shown_subjects(frames["segment_models"])
    frames["segment_classes_shown"] = shown_classes(frames["segment_classes"])
    return {name: Table(name, "how?", "Table 3", frame, {}, ()) for name, frame in frames.items()}


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
    [{"subjects": 1, "classes": 1, "kinds": ()}, {"subjects": 40, "classes": 40, "datasets": ("zoo", "sky")}],
    ids=["few", "many"],
)
@pytest.mark.slow
def test_figures_are_drawn_however_little_or_much_there_is(draw, asked):
    assert drawn(figure(draw, **asked))


@every_figure
def test_an_empty_table_says_that_there_is_nothing_to_draw(draw):
    known = tables()
    refuses_empty(draw, [known[name] for name in FIGURES[draw]])


def test_every_share_is_a_cell_and_a_choice_filters_them():
    spec = figure(segments.models_figure)
    assert marks(spec, "rect") == 3 * 4 * 2
    assert marks(spec, "rect", model=["net1"]) == 4 * 2
    assert marks(spec, "rect", dataset=["another"]) == 0
    frame = tables()["segment_models_shown"].frame
    assert sorted(values(spec)["share"]) == sorted(frame["share"])
    assert values(spec)["panel"].unique().tolist() == ["clean", "fog 5"]


def test_subjects_stand_from_the_best_on_clean_images_to_the_worst():
    frame = tables()["segment_models_shown"].frame
    svg = vl_convert.vegalite_to_svg(figure(segments.models_figure, kinds=()), vl_version=style.VEGA_LITE)
    ordered = frame.sort_values("place")["subject"].unique()
    at = [svg.index(f">{name}<") for name in ordered]
    assert at == sorted(at)


def test_both_quarters_of_every_class_are_bars_away_from_each_other():
    spec = figure(segments.classes_figure)
    frame = tables()["segment_classes_shown"].frame
    assert marks(spec, "rect") == len(frame) == 2 * 2 * 4
    drawn = values(spec)
    assert (drawn.loc[drawn["quarter"] == "top", "signed"] > 0).all()
    assert (drawn["signed"].abs() == drawn["share"]).all()
    assert (drawn.loc[drawn["quarter"] == "bottom", "signed"] < 0).all()


def test_answers_name_the_extremes_of_the_tables():
    known = tables(subjects=5, kinds=("fog", "snow"))
    frame = known["segment_models"].frame
    hard = frame[(frame["segment"] == "hard") & (frame["severity"] == 0)].sort_values("share", kind="stable")
    [told] = segments.model_answers(frame)
    best = hard[hard["share"] == hard["share"].max()].iloc[0]
    assert f"images {best['subject']} solves {100 * best['share']:.1f} %" in told
    assert "most often net" in told
    told = list(segments.class_answers(known["segment_classes"].frame))
    assert len(told) == 2
    top = known["segment_classes"].frame.query("parameter == 'difficulty' and quarter == 'top'")
    assert top.sort_values("share")["label"].iloc[-1] in told[0].split(" and ")[0]


def test_one_subject_has_no_best():
    assert list(segments.model_answers(tables(subjects=1)["segment_models"].frame)) == []


def test_the_report_finds_these_parts():
    assert {part.key for part in all_parts()} >= {"segment_models", "segment_classes"}
