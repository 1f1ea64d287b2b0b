"""What live adaptive tests said, beside the truth: figures and sentences of the tables of analysis=adaptive_tests."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.adaptive.figures.adaptive import TARGETS
from fca.types import Table

_FILTERS = ("dataset", "model")
_WORDS = ["estimate with its 95 % interval", "all images"]
_TOLD = {"dataset": "", "model": "", "shift": "", "way": "", "target": "", "estimate": ".2%", "low": ".2%"}
_TOLD |= {"high": ".2%", "truth": ".2%", "error_pp": "+.2f", "asked_easy": ".0f", "asked_medium": ".0f"}
_TOLD |= {"asked_hard": ".0f"}
_PERCENT = alt.Axis(format=".2~%", tickCount=6)
SHOWN = 6  # tests drawn by attribute
_TELLS = {"shift": "", "way": "", "protocol": "", "budget": "budget ", "width": "width ", "ncl": "ncl "}
_COVERED = alt.Scale(domain=[True, False], range=["#0072b2", "#d55e00"])
_OUTSIDE = alt.Scale(domain=[True, False], range=["circle", "diamond"])
_TEST = {**_TOLD, "n_asked": ".0f", "n_pool": ".0f", "share": ".1%", "rounds": ".0f", "predict_s": ".1f"}
_TEST |= {"full_s": ".1f", "time_share": ".1%", "warning": ""}


def live_figure(tests: Table) -> alt.FacetChart:
    """Estimate and interval of every test, with the truth where it is known; a row a kind of test, seeds beside."""
    frame = named(tests.frame.dropna(subset="estimate"))
    title = alt.Title(
        "What did adaptive tests say, and was it true?",
        subtitle=[
            f"Mean over attributes, from {_percents(frame['share'])} of the images. Crosses: the same network on all",
            "images, where it was run on them too.",
        ],
    )
    drawn = _drawn(frame, "row", _TEST, title)
    drawn.spec.height = alt.Step(16, **{"for": "offset"})
    return drawn


def attributes_figure(attributes: Table) -> alt.FacetChart:
    """The same by attribute, of one test a model; a panel a model and target."""
    frame = named(attributes.frame.dropna(subset="estimate"))
    first = frame.drop_duplicates(["dataset", "model"])["run_id"].head(SHOWN)
    some = "" if set(frame["run_id"]) == set(first) else " Of some models the first test."
    frame = frame[frame["run_id"].isin(first)].reset_index(drop=True)
    frame["panel"] = style.panels(frame, "dataset", "model", "named")
    title = alt.Title(
        "What did adaptive tests say of each attribute, and was it true?",
        subtitle=[f"From the same few images, with each attribute's 95 % interval. Crosses: all images of it.{some}"],
    )
    drawn = _drawn(frame, "attribute", _TOLD, title)
    drawn.spec.height = alt.Step(18)
    return drawn


def truth_figure(attributes: Table) -> alt.FacetChart:
    """Estimates of all tests and attributes against the truth; a panel a way to test and target."""
    frame = named(attributes.frame.dropna(subset=["estimate", "truth"]))
    frame["panel"] = style.panels(frame, "dataset", "way", "named")
    ends = {"low": frame[["low", "truth"]].min(axis=None), "high": frame[["high", "truth"]].max(axis=None)}
    frame = frame.assign(
        **{f"line_{end}": pd.Series(at, frame.drop_duplicates("panel").index) for end, at in ends.items()}
    )
    base = alt.Chart().encode(color=alt.Color("covered:N", scale=_COVERED, legend=_covered_legend()))
    x = alt.X("truth:Q", title="on all images of the attribute", axis=_PERCENT, scale=alt.Scale(zero=False))
    layers = alt.layer(
        alt.Chart()
        .transform_filter("isValid(datum.line_low)")
        .mark_rule(strokeDash=[4, 3])
        .encode(x=alt.X("line_low:Q"), x2="line_high:Q", y=alt.Y("line_low:Q"), y2="line_high:Q"),
        base.transform_filter("isValid(datum.low)").mark_rule(opacity=0.35).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_point(filled=True, size=40, opacity=1).encode(
            x=x,
            y=alt.Y("estimate:Q", title="said by the test", axis=style.PERCENT, scale=alt.Scale(zero=False)),
            shape=alt.Shape("covered:N", scale=_OUTSIDE, legend=_covered_legend()),
            tooltip=style.tooltips(_TOLD | {"attribute": "", "seed": ".0f"}),
        ),
    )
    title = alt.Title(
        "Are the tests right about attributes?",
        subtitle=[
            "Every attribute of every test: what was said, with its 95 % interval, against the truth. On the dashes",
            "both are equal; one interval in twenty may miss.",
        ],
    )
    return style.faceted(layers, frame, title, _FILTERS, height=300, columns=2)


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """With the way of each test (policy and estimator), a name for tests that differ in more than the seed, and panels
    by target."""
    frame = frame.reset_index(drop=True)
    frame = frame.assign(way=frame["policy"] + " + " + frame["estimator"], named=frame["target"].map(TARGETS))
    row = frame["model"].astype(object)
    for column, word in _TELLS.items():
        if style.differs(frame[column]):
            told = [None if pd.isna(value) else f" · {word}{value}" for value in frame[column]]
            row = row + pd.Series(told, index=frame.index, dtype=object).fillna("")
    return frame.assign(row=row, panel=style.panels(frame, "dataset", "named"))


def _drawn(frame: pd.DataFrame, y: str, told: dict[str, str], title: alt.Title) -> alt.FacetChart:
    values = dict(zip(_WORDS, ("estimate", "truth"), strict=True))
    long = pd.concat([frame.assign(says=word, value=frame[column]) for word, column in values.items()])
    long = long.dropna(subset="value").reset_index(drop=True)
    picked, legend = style.picked("says"), alt.Legend(title=None)
    sort = alt.EncodingSortField("estimate", op="max", order="descending") if y == "row" else "ascending"
    base = alt.Chart().encode(
        y=alt.Y(f"{y}:N", title=None, sort=sort, axis=alt.Axis(grid=True, ticks=False, labelLimit=400)),
        color=alt.Color("says:N", scale=alt.Scale(domain=_WORDS), legend=legend),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
        yOffset=alt.YOffset("seed:O") if y == "row" else alt.Undefined,
    )
    shapes = alt.Scale(domain=_WORDS, range=["circle", "cross"])
    layers = alt.layer(
        base.transform_filter(f"datum.says == '{_WORDS[0]}' && isValid(datum.low)")
        .mark_rule(strokeWidth=2)
        .encode(x="low:Q", x2="high:Q"),
        base.mark_point(filled=True, size=70)
        .encode(
            x=alt.X("value:Q", title="share right", axis=_PERCENT, scale=alt.Scale(zero=False)),
            shape=alt.Shape("says:N", scale=shapes, legend=legend),
            tooltip=style.tooltips(told | {"seed": ".0f"}),
        )
        .add_params(picked),
    )
    drawn = style.faceted(layers, long, title, _FILTERS, columns=2)
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    own.align = "each"
    return own


def _covered_legend() -> alt.Legend:
    return alt.Legend(title=None, labelExpr="datum.value ? 'the truth is inside the interval' : 'outside'")


def _percents(shares: pd.Series) -> str:
    low, high = (f"{100 * share:.3g}" for share in (shares.min(), shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"


def live_answers(tests: pd.DataFrame) -> Iterator[str]:
    """How often the intervals held the truth, and what the tests cost beside a full run.

    >>> line = {"dataset": "zoo", "policy": "random", "target": "score", "share": 0.25, "covered": True}
    >>> print(*live_answers(pd.DataFrame([line | {"error_pp": -0.5, "time_share": None}])))
    zoo: 1 live test of 25 % of the images: 1 of 1 intervals hold the truth, largest error 0.5 % points.
    """
    for dataset, part in tests.groupby("dataset", sort=False):
        count = int((part["target"] == part["target"].iloc[0]).sum())
        told = f"{dataset}: {count} live test{'s' if count > 1 else ''} of {_percents(part['share'])} of the images"
        known = part.dropna(subset="covered")
        if len(known):
            told += f": {int(known['covered'].sum())} of {len(known)} intervals hold the truth, "
            told += f"largest error {known['error_pp'].abs().max():.1f} % points"
        timed = part["time_share"].dropna()
        yield told + (f"; {_percents(timed)} of the time of a full run." if len(timed) else ".")


PARTS = (
    Part("adaptive_tests", "Live adaptive tests", "adaptive_tests", ("adaptive_tests",), live_figure),
    Part(
        "adaptive_test_attributes",
        "Live adaptive tests by attribute",
        "adaptive_tests",
        ("adaptive_test_attributes",),
        attributes_figure,
    ),
    Part("adaptive_truth", "Live tests and the truth", "adaptive_tests", ("adaptive_test_attributes",), truth_figure),
)
ANSWERS = {"adaptive_tests": live_answers}
