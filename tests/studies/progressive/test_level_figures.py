"""Figures of levels hold every cell of their tables and compute nothing."""

from dataclasses import replace

import numpy as np
import pytest

from fca.report import style
from fca.studies.progressive import figures
from fca.studies.progressive.attribute_levels import AttributeLevels
from fca.studies.progressive.validate_levels import ValidateLevels
from tests.studies.progressive.support.steps_lab import able, items_of, respond, steps_lab
from tests.support.described import describe
from tests.support.figure_claims import computes, drawn, marks, refuses_empty, values

MODELS, ATTRIBUTES, CLASSES = 3, 2, 4


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    lab = steps_lab(tmp_path_factory.mktemp("levels"))
    describe(lab)
    missed = (items_of(lab)["image_id"] == "cat-size-easy-1").to_numpy()
    for number in range(MODELS):
        confidence = np.random.default_rng(number).random(len(lab.true))
        respond(lab, f"net{number}", able(lab, 0.5 + number / 2, noise=0.7, seed=number) & ~missed, confidence)
    return {table.name: table for analysis in (AttributeLevels(), ValidateLevels()) for table in analysis(lab.store)}


FIGURES = {
    "attribute_scores": figures.scores_figure,
    "attribute_steps": figures.steps_figure,
    "attribute_levels": figures.levels_figure,
    "confidence_levels": figures.bins_figure,
    "confidence_trends": figures.trends_figure,
    "contradictions_shown": figures.contradictions_figure,
}
every_figure = pytest.mark.parametrize("name", list(FIGURES))


@pytest.mark.wide
@every_figure
def test_it_is_drawn_and_computes_nothing(name, tables):
    spec = style.spec(FIGURES[name](tables[name]))
    assert drawn(spec)
    assert not computes(spec)


@every_figure
def test_without_a_line_there_is_nothing_to_draw(name, tables):
    refuses_empty(FIGURES[name], [tables[name]])


def test_the_heat_map_has_a_cell_a_model_and_attribute_the_best_model_on_top(tables):
    spec = style.spec(figures.scores_figure(tables["attribute_scores"]))
    assert marks(spec, "rect") == MODELS * ATTRIBUTES
    assert values(spec)["model"].drop_duplicates().tolist() == ["net2", "net1", "net0"]


def test_every_level_of_every_attribute_and_model_is_a_point(tables):
    spec = style.spec(figures.levels_figure(tables["attribute_levels"]))
    assert marks(spec, "symbol") == MODELS * ATTRIBUTES * 3
    assert marks(spec, "symbol", model=["net1"]) == ATTRIBUTES * 3


def test_both_steps_of_every_attribute_are_points(tables):
    assert marks(style.spec(figures.steps_figure(tables["attribute_steps"])), "symbol") == ATTRIBUTES * 2


def test_every_bin_of_every_level_is_a_bar(tables):
    assert marks(style.spec(figures.bins_figure(tables["confidence_levels"])), "rect") == 3 * 10


def test_names_show_where_confidence_does_not_fall(tables):
    frame = tables["confidence_trends"].frame
    verdicts = ["falls", "rises", "undecided", "trend", "falls", "falls"]
    table = replace(tables["confidence_trends"], frame=frame.assign(verdict=verdicts))
    spec = style.spec(figures.trends_figure(table))
    named = set(values(spec)["named"])
    assert {"light", "size (rises)", "ant (undecided)", "cat (trend)", "wolf"} <= named
    assert marks(spec, "symbol") == (ATTRIBUTES + CLASSES) * 3


def test_contradictions_are_pictures_with_how_many_there_are(tables):
    spec = style.spec(figures.contradictions_figure(tables["contradictions_shown"]))
    shown = tables["contradictions_shown"].frame
    easy = int((shown["kind"] == "easy, missed by all").sum())
    assert easy
    assert f"easy, but no model is right ({easy})" in set(values(spec)["panel"])
    assert set(values(spec)["thumbnail"]) == set(shown["thumbnail"])


def test_without_pictures_the_page_names_the_run_makes_them(tables):
    bare = replace(tables["contradictions_shown"], frame=tables["contradictions_shown"].frame.assign(thumbnail=None))
    with pytest.raises(style.NothingToDraw, match="no pictures; next: fca run task=describe dataset=steps"):
        figures.contradictions_figure(bare)
    with pytest.raises(style.NothingToDraw, match="no image contradicts its level"):
        figures.contradictions_figure(replace(bare, frame=bare.frame.head(0)))
