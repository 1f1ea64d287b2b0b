"""Whether harder images fail first, and whether by chance: figures, sentences of the tables of analysis=hierarchy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

_SERIES = {  # column -> what it is called
    "hierarchical_score": "matched triplets",
    "all_triplets": "all triplets of a session",
    "chance": "chance, at the same accuracy by level",
}
_RIGHT = {
    pattern: "".join(level for level, mark in zip("emh", pattern, strict=True) if mark == "1") or "none"
    for pattern in ("000", "100", "110", "111", "001", "010", "011", "101")
}
_FOLLOWS = {True: "harder images fail first", False: "a harder image is right, an easier one wrong"}
_COLOURS = ("#0072b2", "#009e73", "#7d8590")
_TOLD = {
    **dict.fromkeys(("dataset", "model", "series"), ""),
    **dict.fromkeys(("value", "low", "high", "accuracy", "score", "easy", "medium", "hard"), ".1%"),
    **dict.fromkeys(("triplets", "sessions", "n_test"), ".0f"),
}
_ROW = 12  # pixels a mark
_BOTH = ("hierarchy", "hierarchy_correlation")


def hierarchy_figure(hierarchy: Table) -> alt.FacetChart:
    """The score of every model with its interval, over matched and over all triplets, and that of chance."""
    frame = _series(hierarchy.frame, *_SERIES)
    frame["panel"] = style.panels(frame, "dataset")
    sort = alt.EncodingSortField("accuracy", op="max", order="descending")
    legend = alt.Legend(title=None)
    names = [name for name in _SERIES.values() if name in set(frame["series"])]
    domain = list(_SERIES.values())
    base = alt.Chart().encode(
        y=alt.Y("model:N", title=None, sort=sort, axis=alt.Axis(grid=True, ticks=False)),
        yOffset=alt.YOffset("series:N", scale=alt.Scale(domain=names)),
        color=alt.Color("series:N", scale=alt.Scale(domain=domain, range=list(_COLOURS)), legend=legend),
    )
    shape = alt.Shape("series:N", scale=alt.Scale(domain=domain, range=["circle", "square", "diamond"]), legend=legend)
    x = alt.X("value:Q", title="triplets that follow the order (%)", axis=style.PERCENT, scale=alt.Scale(zero=False))
    layers = alt.layer(
        base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(x=x, shape=shape, tooltip=style.tooltips(_TOLD)),
    )
    title = alt.Title(
        "Do models fail hard images before easy ones, beyond what accuracy makes of it?",
        subtitle=[
            "Hierarchical score with its 95 % interval over sessions (class and attribute); most accurate model first.",
            "Chance: answers that are independent, at the model's accuracies on easy, medium and hard images.",
        ],
    )
    drawn = style.faceted(layers, frame, title, ("dataset", "model"))
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    own.spec.height, own.align = alt.Step(_ROW), "each"
    return own


def _series(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """A line a model and score; that of matched triplets only where triplets are matched."""
    parts = []
    for column in columns:
        known = frame[frame["triplets"].notna()] if column == "hierarchical_score" else frame
        ends = {"value": known[column], "low": known[f"{column}_low"], "high": known[f"{column}_high"]}
        parts.append(known.assign(series=_SERIES[column], **ends))
    return pd.concat(parts, ignore_index=True)


def patterns_figure(patterns: Table) -> alt.FacetChart:
    """How often each model shows each of the eight patterns, and how often by chance; one panel a model."""
    frame = patterns.frame.sort_values(["dataset", "accuracy"], ascending=[True, False], kind="stable")
    frame = frame.assign(right=frame["pattern"].map(_RIGHT), says=frame["follows"].map(_FOLLOWS))
    frame["panel"] = style.panels(frame, "dataset", "model")
    scale = alt.Scale(domain=list(_FOLLOWS.values()), range=["#2b9c6f", "#b0568f"])
    told = {"dataset": "", "model": "", "right": "", "share": ".1%", "chance": ".1%", "triplets": ".0f"}
    base = alt.Chart().encode(
        x=alt.X("right:N", title="levels answered right", sort=list(_RIGHT.values())),
        tooltip=style.tooltips(told),
    )
    layers = alt.layer(
        base.mark_bar().encode(
            y=alt.Y("share:Q", title="triplets (%)", axis=style.PERCENT),
            color=alt.Color("says:N", scale=scale, legend=alt.Legend(title=None, values=list(_FOLLOWS.values()))),
        ),
        base.mark_tick(thickness=2, size=22, color="#7d8590").encode(y="chance:Q"),
    )
    title = alt.Title(
        "Which of easy, medium and hard does a model get right together?",
        subtitle=["e easy, m medium, h hard. Grey ticks: chance at the same accuracies by level."],
    )
    return style.faceted(layers, frame, title, ("dataset", "model"), height=190)


def correlation_figure(hierarchy: Table, correlation: Table) -> alt.FacetChart:
    """Score against accuracy, a point a model, beside chance at the same accuracies; the coefficients as headings."""
    heading = {str(name): _heading(part) for name, part in correlation.frame.groupby("dataset")}
    frame = _series(hierarchy.frame.assign(triplets=1), "hierarchical_score", "chance")
    frame["series"] = frame["series"].replace(_SERIES["hierarchical_score"], "hierarchical score")
    frame["panel"] = [f"{name}\n{heading[name]}" for name in style.panels(frame, "dataset")]
    domain = ["hierarchical score", _SERIES["chance"]]
    scale = alt.Scale(domain=domain, range=["#0072b2", "#7d8590"])
    room = alt.Scale(zero=False, padding=40)  # for names beside the outermost points
    base = alt.Chart().encode(
        x=alt.X(
            "accuracy:Q", title="accuracy, mean of the levels (%)", axis=alt.Axis(format=".0%", tickCount=7), scale=room
        ),
        y=alt.Y(
            "value:Q",
            title="triplets that follow the order (%)",
            axis=style.PERCENT,
            scale=alt.Scale(zero=False),
        ),
    )
    frame["below"] = frame.groupby("series")["accuracy"].rank(method="first") % 2 == 0  # names of neighbours part
    scores = base.transform_filter("datum.series == 'hierarchical score'")
    names = [
        scores.transform_filter(f"{side} && isValid(datum.low)")
        .mark_text(dy=dy, fontSize=11)
        .encode(y=f"{end}:Q", text="model:N")
        for side, end, dy in (("datum.below", "low", 10), ("!datum.below", "high", -8))
    ]
    layers = alt.layer(
        scores.transform_filter("isValid(datum.low)").mark_rule(color="#0072b2").encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(
            color=alt.Color("series:N", scale=scale, legend=alt.Legend(title=None)),
            shape=alt.Shape("series:N", scale=alt.Scale(domain=domain, range=["circle", "diamond"])),
            tooltip=style.tooltips(_TOLD),
        ),
        *names,
    )
    title = alt.Title(
        "Do more accurate models follow the order more?",
        subtitle=[
            "One point a model with its 95 % interval. Given chance: the correlation of what chance leaves of both."
        ],
    )
    return style.faceted(layers, frame, title, ("dataset", "model"), height=300)


def _heading(lines: pd.DataFrame) -> str:
    told = {line["kind"]: says_r(line) for line in lines.to_dict("records")}
    return f"correlation {told['pearson']}; given chance {told['partial']}"


def says_r(line: Mapping[Any, Any]) -> str:
    """A coefficient with its interval, or that there is none.

    >>> says_r({"r": 0.77, "r_low": 0.2, "r_high": None}), says_r({"r": None})
    ('.77', 'not defined')
    """
    if pd.isna(line["r"]):
        return "not defined"
    ends = "" if pd.isna(line["r_low"]) or pd.isna(line["r_high"]) else f" [{_r(line['r_low'])}, {_r(line['r_high'])}]"
    return _r(line["r"]) + ends


def _r(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


def hierarchy_answers(hierarchy: pd.DataFrame) -> Iterator[str]:
    """How far the scores go, and how far chance alone.

    >>> line = {"dataset": "zoo", "hierarchical_score": 0.9, "chance": 0.8, "excess_low": 0.01}
    >>> list(hierarchy_answers(pd.DataFrame([line, {**line, "chance": 0.86, "excess_low": -0.02}])))
    ['zoo: 2 models answer 90 to 90 % of triplets in the order of levels; chance at their accuracies 80 to 86 %; 1 of \
2 do so more than chance (interval over sessions above 0).']
    """
    for dataset, part in hierarchy.groupby("dataset", sort=False):
        score, chance = (
            f"{100 * part[c].min():.0f} to {100 * part[c].max():.0f} %" for c in ("hierarchical_score", "chance")
        )
        beyond = (
            f"{(part['excess_low'] > 0).sum()} of {len(part)} do so more than chance (interval over sessions above 0)"
        )
        told = f"{len(part)} models answer {score} of triplets in the order of levels"
        yield f"{dataset}: {told}; chance at their accuracies {chance}; {beyond}."


def correlation_answers(correlation: pd.DataFrame) -> Iterator[str]:
    """Accuracy and score over models, plain and given chance."""
    for dataset, part in correlation.groupby("dataset", sort=False):
        yield f"{dataset}: over {part['models'].iloc[0]} models, accuracy and hierarchical score have {_heading(part)}."


PARTS = (
    Part("hierarchy", "Hard images fail first", "hierarchy", ("hierarchy",), hierarchy_figure),
    Part("hierarchy_patterns", "Patterns of right and wrong", "hierarchy", ("hierarchy_patterns",), patterns_figure),
    Part("hierarchy_correlation", "Order and accuracy", "hierarchy", _BOTH, correlation_figure),
)
ANSWERS = {"hierarchy": hierarchy_answers, "hierarchy_correlation": correlation_answers}
