"""Which classes a corruption breaks: the order of the classes, Table 1, and the outer segments over severities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

NAMED = 2  # classes in a sentence
_DIRECTIONS = {"harder": "harder than clean", "easier": "easier than clean", "unclear": "neither for sure"}
_COLOURS = alt.Scale(domain=list(_DIRECTIONS.values()), range=["#a9629a", "#b07d00", "#7d8590"])
_SHAPES = alt.Scale(domain=list(_DIRECTIONS.values()), range=["triangle-down", "triangle-up", "circle"])
VERDICTS = ("susceptible", "robust")
TWO = alt.Scale(domain=list(VERDICTS), range=["#a9629a", "#b07d00"])
_NOTE = "as that paper has it, robust = moves most"
_UNITS = {"count": " in % points", "mean_b": ""}
_MOVES = {"count": "the share of its images in a segment", "mean_b": "its mean difficulty"}


def ranking_figure(shown: Table) -> alt.FacetChart:
    """Every class's instability with its interval, the most robust first; one panel a corruption."""
    frame = shown.frame.assign(says=shown.frame["direction"].map(_DIRECTIONS))
    frame["panel"] = style.panels(frame, "dataset", "corruption")
    mode = frame["mode"].iloc[0]
    form = ".2%" if mode == "count" else ".3f"
    told = dict.fromkeys(("dataset", "corruption", "label", "says", "verdict"), "")
    told |= dict.fromkeys(("instability", "instability_low", "instability_high"), form)
    told |= dict.fromkeys((f"{name}{end}" for name in ("trend", "change") for end in ("", "_low", "_high")), f"+{form}")
    told |= {"rank": ".0f", "verdict_kept": ".0%", "images": ".0f"}
    axis = (
        alt.Axis(tickCount=5, grid=True, labelExpr="format(100 * datum.value, '')") if mode == "count" else alt.Axis()
    )
    picked, legend = style.picked("says"), alt.Legend(title=None)
    base = alt.Chart().encode(
        y=alt.Y("label:N", title=None, sort=alt.EncodingSortField("rank", op="min")),
        color=alt.Color("says:N", scale=_COLOURS, legend=legend),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
    )
    layers = alt.layer(
        base.transform_filter("isValid(datum.instability_low)")
        .mark_rule(strokeWidth=2)
        .encode(x="instability_low:Q", x2="instability_high:Q"),
        base.mark_point(filled=True, size=80)
        .encode(
            x=alt.X("instability:Q", title=None, axis=axis, scale=alt.Scale(domainMin=0)),
            shape=alt.Shape("says:N", scale=_SHAPES, legend=legend),
            tooltip=style.tooltips(told),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "Which classes break under which corruption?",
        subtitle=[
            f"How much {_MOVES[mode]} moves between severities: standard deviation{_UNITS[mode]}, 95 % interval.",
            f"Most robust first{as_written(shown.parameters)}.{ends_only(frame)}",
        ],
    )
    tall = max(100, 18 * int(frame["panel"].value_counts().max()))
    columns = None if style.differs(frame["panel"]) else 1
    drawn: alt.FacetChart = style.faceted(layers, frame, title, ("dataset", "corruption"), height=tall, columns=columns)
    own: alt.FacetChart = drawn.resolve_scale(y="independent").resolve_axis(x="independent")
    return own


def table_figure(named: Table) -> alt.FacetChart:
    """The susceptible and the robust classes of every corruption."""
    long = [named.frame.assign(verdict=verdict, label=named.frame[verdict]) for verdict in VERDICTS]
    frame = pd.concat(long).explode("label").dropna(subset="label").reset_index(drop=True)
    frame["panel"] = style.panels(frame, "dataset")
    legend, told = alt.Legend(title=None), dict.fromkeys(("dataset", "corruption", "label", "verdict"), "")
    shapes = alt.Scale(domain=list(VERDICTS), range=["triangle-down", "triangle-up"])
    chart = (
        alt.Chart()
        .mark_point(filled=True, size=130, opacity=1)
        .encode(
            x=alt.X("label:N", title=None, sort="ascending", axis=alt.Axis(labelAngle=-40, grid=True)),
            y=alt.Y(
                "corruption:N", title=None, sort=list(dict.fromkeys(frame["corruption"])), axis=alt.Axis(grid=True)
            ),
            color=alt.Color("verdict:N", scale=TWO, legend=legend),
            shape=alt.Shape("verdict:N", scale=shapes, legend=legend),
            tooltip=style.tooltips(told),
        )
    )
    title = alt.Title(
        "Which classes are susceptible to a corruption, and which robust?",
        subtitle=[f"The two classes that move most and the two that move least{as_written(named.parameters)}."],
    )
    tall = max(80, 24 * frame["corruption"].nunique())
    drawn: alt.FacetChart = style.faceted(chart, frame, title, ("dataset", "corruption"), height=tall, columns=1)
    own: alt.FacetChart = drawn.resolve_scale(x="independent")
    return own


def ends_only(frame: pd.DataFrame) -> str:
    """What is not drawn."""
    counts = frame.groupby(["dataset", "corruption"])["label"].nunique()
    there = frame.groupby(["dataset", "corruption"])["classes"].first()
    return "" if (counts == there).all() else f" Drawn: the {counts.max() // 2} most and least robust classes."


def as_written(parameters: Mapping[str, Any]) -> str:
    """What a subtitle adds where the sign is that of the paper."""
    return f" ({_NOTE})" if parameters.get("compat") else ""


def robust_answers(named: pd.DataFrame) -> Iterator[str]:
    """Which classes are most often susceptible and robust over the corruptions of a data set.

    >>> line = {"dataset": "zoo", "corruption": "fog", "susceptible": ("cat",), "robust": ("yak",)}
    >>> list(robust_answers(pd.DataFrame([line, line | {"corruption": "snow", "susceptible": ("ant",)}])))
    ['zoo: over 2 corruptions the classes most often susceptible are cat (1) and ant (1), most often robust yak (2).']
    """
    for dataset, part in named.groupby("dataset", sort=False):
        told = []
        for verdict in VERDICTS:
            most = Counter(key for keys in part[verdict] for key in keys).most_common(NAMED)
            told.append(" and ".join(f"{key} ({times})" for key, times in most))
        if all(told):
            over = f"over {len(part)} corruption{'s' if len(part) > 1 else ''}"
            verb = "is" if " and " not in told[0] else "are"
            noun = "class" if verb == "is" else "classes"
            yield f"{dataset}: {over} the {noun} most often susceptible {verb} {told[0]}, most often robust {told[1]}."


def direction_answers(classes: pd.DataFrame) -> Iterator[str]:
    """How many classes are harder or easier than when clean, and which rank as robust though they have become harder.

    >>> line = {"dataset": "zoo", "corruption": "fog", "label": "cat", "direction": "harder", "verdict": "robust"}
    >>> told = direction_answers(pd.DataFrame([line, line | {"label": "yak", "direction": "unclear"}]))
    >>> print(*told)
    zoo: over 1 corruption 1 of 2 classes are harder than clean and 0 easier; 1 of 2 robust verdicts are harder too.
    """
    for dataset, part in classes.dropna(subset="direction").groupby("dataset", sort=False):
        counts, corruptions = Counter(part["direction"]), part["corruption"].nunique()
        over = f"over {corruptions} corruption{'s' if corruptions > 1 else ''}"
        told = f"{counts['harder']} of {len(part)} classes are harder than clean and {counts['easier']} easier"
        robust = part[part["verdict"] == "robust"]
        also = f"{(robust['direction'] == 'harder').sum()} of {len(robust)} robust verdicts are harder too"
        yield f"{dataset}: {over} {told}; {also}."


PARTS = (
    Part("class_robustness", "Robust classes", "class_robustness", ("class_robustness_shown",), ranking_figure),
    Part("robust_classes", "Susceptible or robust", "class_robustness", ("robust_classes",), table_figure),
)
ANSWERS = {"robust_classes": robust_answers, "class_robustness": direction_answers}
