"""The figure of the variance split draws every component that is known, and the sentence repeats the table."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from fca.report import style
from fca.studies.few_class.figures.variance import variance_figure, variance_statements
from fca.studies.few_class.variance import VARIANCE, variance
from fca.types import Table
from tests.studies.few_class.support.subset_points import points
from tests.support.figure_claims import computes, marks, parts, sentences_of, values

SOURCES = {
    "subset": "draw of the classes",
    "init": "initialisation",
    "luck": "luck: which images a training gets right",
    "test": "sampling of test images",
}


@cache
def table(**asked) -> Table:
    return VARIANCE.table(variance(points(**{"models": 2, "inits": 3, **asked})), {}, ())


def test_every_known_component_is_drawn_with_its_interval():
    frame, spec = table().frame, style.spec(variance_figure(table()))
    drawn = values(spec)
    known = 0
    for name, source in SOURCES.items():
        part = drawn[drawn["source"] == source]
        assert sorted(part["sd"]) == sorted(frame[f"sd_{name}"].dropna())
        known += len(part)
    assert frame["sd_init"].isna().sum() == 2 * 2 * 2  # open and masked: one network a model
    assert frame["sd_luck"].isna().sum() == 2 * 2 * 2
    assert marks(spec, "symbol") == known == 4 * len(frame) - 2 * 8
    assert marks(spec, "rule") == known
    assert marks(spec, "symbol", protocol=["sub"], ncl=[2], model=["net0"]) == 4


def test_the_figure_computes_nothing():
    assert not computes(style.spec(variance_figure(table())))


def test_the_widest_interval_does_not_crowd_the_dots():
    two = style.spec(variance_figure(table(seeds=2)))
    largest = np.nanmax(values(two)["sd"])
    assert values(two)["sd_high"].max() > 20 * largest / 3
    domains = [part["x"]["scale"]["domain"] for part in parts(two) if "domain" in part.get("x", {}).get("scale", {})]
    assert domains == [[0, pytest.approx(3 * largest)]]


def test_what_is_unknown_is_not_drawn():
    one = table(seeds=1, protocols=("open",))
    assert set(values(style.spec(variance_figure(one)))["source"]) == {SOURCES["test"]}
    with pytest.raises(style.NothingToDraw):
        variance_figure(VARIANCE.table(one.frame.assign(sd_test=np.nan), {}, ()))
    assert sentences_of(variance_statements, one.frame) == []


def test_one_initialisation_is_not_passed_off_as_the_draw_of_the_classes():
    frame = table().frame.query("protocol == 'open'")
    [line] = sentences_of(variance_statements, frame)
    assert frame["share_init"].isna().all()
    assert line.endswith("with one initialisation, its share and luck are within the other two.")
    assert frame["note"].str.contains("as one network predicted them all").all()
    assert not table(inits=1).frame.query("protocol == 'sub'")["note"].str.contains("one network").any()


def test_the_sentence_counts_the_largest_shares():
    frame = table().frame.query("protocol == 'sub'")
    [line] = sentences_of(variance_statements, frame)
    names = frame[["share_subset", "share_init", "share_luck", "share_test"]].idxmax(axis=1)
    for name, source in SOURCES.items():
        count = (names == f"share_{name}").sum()
        noun = "luck (which images a training happens to get right)" if name == "luck" else f"the {source}"
        assert (f"{noun} ({count} of 4 models and ncl)" in line) == bool(count)


def test_equal_shares_have_no_largest_source():
    line = {"dataset": "digits", "protocol": "sub", **{f"share_{name}": 0.25 for name in SOURCES}}
    [sentence] = sentences_of(variance_statements, pd.DataFrame([line]))
    assert sentence == "digits: no source of variance of sub-models is larger than the others."
