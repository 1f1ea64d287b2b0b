"""Figures draw what the tables say, all of it, and nothing that they computed."""

import json
from functools import cache

import altair as alt
import pytest

from fca.report import style
from fca.studies.few_class.accuracy import DCN
from fca.studies.few_class.figures import accuracy, similarity
from fca.types import Table
from tests.studies.few_class.support.invented import tables
from tests.support.figure_claims import drawn, marks, parts, values

FIGURES = {
    accuracy.accuracy_figure: ("accuracy_points", "accuracy"),
    accuracy.gap_figure: ("gap",),
    accuracy.dcn_figure: ("dcn",),
    accuracy.ranks_figure: ("ranks",),
    accuracy.agreement_figure: ("rank_agreement",),
    similarity.similarity_figure: ("similarity",),
    similarity.scatter_figure: ("correlation_points", "correlation"),
    similarity.correlation_figure: ("correlation", "correlation_points"),
}
CASES = {
    "few": {},
    "one": {"models": ["vit"], "ncl": [5], "seeds": [0]},
    "many": {"datasets": ["a", "b"], "encoders": ["hog", "clip"], "seeds": [0, 1]},
}


@cache
def known(case: str = "few") -> dict[str, Table]:
    return {table.name: table for table in tables(**CASES[case])}


@cache
def figure(draw, case: str = "few") -> dict:
    return style.spec(draw(*(known(case)[name] for name in FIGURES[draw])))


@pytest.mark.wide
@pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)
def test_figures_transform_nothing_but_by_filter_and_least_squares(draw):
    for part in parts(figure(draw)):
        for transform in part.get("transform", []):
            assert set(transform) <= {"filter", "regression", "on"}
        assert not {"aggregate", "bin", "timeUnit", "impute", "stack"} & set(part)


MISSING = "no run has what this figure needs"  # a subset below the full set, two models, two points to correlate
NEEDS_MORE = dict.fromkeys((accuracy.gap_figure, accuracy.agreement_figure, similarity.correlation_figure), MISSING)
NEEDS_MORE[accuracy.ranks_figure] = "one model has no order"


@pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("case", ["one", "many"])
@pytest.mark.slow
def test_figures_are_drawn_however_little_or_much_there_is(draw, case):
    if case == "one" and draw in NEEDS_MORE:
        with pytest.raises(style.NothingToDraw, match=NEEDS_MORE[draw]):
            figure(draw, case)
    else:
        assert drawn(figure(draw, case))


def test_accuracy_draws_every_point_and_every_mean_of_the_tables():
    spec, points, means = figure(accuracy.accuracy_figure), known()["accuracy_points"].frame, known()["accuracy"].frame
    drawn = values(spec)
    assert sorted(drawn.loc[drawn["mark"] == "point", "top1"]) == sorted(points["top1"])
    assert sorted(drawn.loc[drawn["mark"] == "mean", "top1"]) == sorted(means["top1"])
    assert marks(spec, "symbol") == len(points) + len(means)


def test_an_interval_that_is_missing_is_not_drawn():
    lows = known()["accuracy"].frame["top1_low"]
    assert lows.isna().any()
    assert marks(figure(accuracy.accuracy_figure), "rule") == lows.notna().sum()
    assert known("one")["accuracy"].frame["top1_low"].isna().all()
    assert marks(figure(accuracy.accuracy_figure, "one"), "rule") == 0


@pytest.mark.wide
@pytest.mark.parametrize(
    ("draw", "kind", "name", "query"),
    [
        (accuracy.dcn_figure, "symbol", "dcn", "ncl == 3 and protocol == 'sub'"),
        (accuracy.ranks_figure, "rect", "ranks", "ncl == 3 and protocol == 'sub'"),
        (accuracy.agreement_figure, "symbol", "rank_agreement", "ncl == 3 and protocol == 'sub'"),
        (similarity.similarity_figure, "symbol", "similarity", "ncl == 3"),
        (similarity.scatter_figure, "symbol", "correlation_points", "ncl == 3 and target == 'DCN sub'"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_one_choice_of_the_page_filters_every_figure(draw, kind, name, query):
    everything = known()[name].frame
    if name == "correlation_points":
        everything = everything[everything["target"].str.startswith("DCN")]
    spec = figure(draw)
    assert marks(spec, kind) == len(everything)
    assert marks(spec, kind, ncl=[3], protocol=["sub"]) == len(known()[name].frame.query(query))


def test_a_choice_of_model_filters_single_models_and_leaves_the_best_of_all():
    spec = figure(similarity.correlation_figure)
    both = 2 * 3  # methods times SimSS, SimSS within ncl, ncl
    assert marks(spec, "symbol", protocol=["sub"]) == both * 4  # DCN and three models
    assert marks(spec, "symbol", protocol=["sub"], model=["test_vit"]) == both * 2


def test_gap_draws_both_differences_of_every_line():
    gap = known()["gap"].frame
    drawn = values(figure(accuracy.gap_figure)).set_index(["protocol", "ncl"])
    for line in gap.to_dict("records"):
        for protocol in ("open", "masked"):
            for end in ("", "_low", "_high"):
                expected = pytest.approx(line[f"sub_minus_{protocol}{end}"], abs=0, nan_ok=True)
                assert drawn.loc[(protocol, line["ncl"]), f"difference{end}"] == expected


def test_headings_of_the_scatter_state_r_p_and_n_of_the_table():
    frame = known()["correlation"].frame.query("method == 'pearson' and target == 'DCN sub' and predictor == 'simss'")
    line = frame.set_index("scope")
    (heading,) = [p for p in values(figure(similarity.scatter_figure))["panel"].unique() if p.startswith("DCN sub")]
    every, within = heading.splitlines()[1:]
    assert every == f"r = {line.loc['all', 'r']:.2f}, p = {line.loc['all', 'p']:.2g}, n = {line.loc['all', 'n']}"
    assert within.startswith(f"within ncl: r = {line.loc['within ncl', 'r']:.2f}")


def test_a_correlation_that_is_undefined_is_named_so():
    assert similarity.in_words({"r": float("nan"), "p": float("nan"), "n": 1}) == "r undefined, n = 1"
    assert similarity.in_words({"r": 1.0, "p": float("nan"), "n": 2}) == "r = 1.00, p = undefined, n = 2"


def test_a_protocol_keeps_its_colour_when_another_is_absent():
    only = known()["dcn"].frame.query("protocol == 'masked'")
    alone = DCN.table(only, {}, ())
    scales = [
        [part["color"]["scale"] for part in parts(spec) if "scale" in part.get("color", {})]
        for spec in (figure(accuracy.dcn_figure), style.spec(accuracy.dcn_figure(alone)))
    ]
    assert scales[0] == scales[1] != []


def test_markup_in_names_is_text_in_the_files(tmp_path):
    frame = known()["dcn"].frame.assign(dataset="<script>alert(1)</script>")
    style.save(style.spec(accuracy.dcn_figure(DCN.table(frame, {}, ()))), tmp_path / "dcn")
    assert "<script" not in (tmp_path / "dcn.svg").read_text()


def test_figures_leave_their_look_to_the_page():
    assert all("config" not in figure(draw) for draw in FIGURES)
    assert json.dumps(style.config()) != json.dumps(style.config(dark=True))
    assert alt.SCHEMA_VERSION.removeprefix("v").startswith(style.VEGA_LITE)
