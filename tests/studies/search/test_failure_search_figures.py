"""Figures of searches are drawn from their tables, however many searches there are, and compute nothing."""

import numpy as np
import pytest

from fca.report import style
from fca.store import Store
from fca.studies.search.failures import FailureSearch
from tests.studies.search.support.searched_store import arrays_of, searched, small_domain
from tests.support.figure_claims import computes, drawn_findings, refuses_empty, values
from tests.support.lab import Lab

FIGURES = {finding.key: finding for finding in drawn_findings(FailureSearch())}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A complete search, and one without a second classifier whose filter has no scores."""
    lab = Lab(Store(tmp_path_factory.mktemp("searches") / "outputs"))
    searched(lab)
    some = np.arange(30)
    of = arrays_of(small_domain(), some, second=None)
    searched(lab, some, {**of, "image_score": np.full(len(of["image_visit"]), np.nan, np.float32)}, model="other")
    return {table.name: table for table in FailureSearch(shown=3)(lab.store)}


@pytest.fixture
def spec(tables):
    def draw(key):
        return style.spec(FIGURES[key].draw(*(tables[of.name] for of in FIGURES[key].tables)))

    return draw


@pytest.mark.parametrize("key", FIGURES)
def test_figures_compute_nothing_and_refuse_nothing_to_draw(key, spec, tables):
    assert not computes(spec(key))
    refuses_empty(FIGURES[key].draw, [tables[of.name] for of in FIGURES[key].tables])


def test_every_picture_is_drawn_with_its_whole_prompt(spec, tables):
    drawn = spec("search_gallery")
    assert len(values(drawn)) == len(tables["search_gallery"].frame) == 18
    assert values(drawn)["lines"].str.replace("\n", " ").tolist() == tables["search_gallery"].frame["prompt"].tolist()
