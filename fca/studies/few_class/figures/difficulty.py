"""Figures of the difficulty of classes: a map of all pairs, hard classes, extreme subsets, and what-ifs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.few_class.figures.similarity import by_encoder
from fca.types import Table

NAMED = 5  # classes in a sentence
LISTED = 20  # classes, or changes of one kind, in a panel
_HARD = "SimSS (lower: harder to tell apart)"
_SIGNED = alt.Axis(labelExpr="datum.value == 0 ? '0' : format(datum.value, '+')", tickCount=5)
_EXTREMES = alt.Scale(domain=["hardest", "easiest"], range=["#a9629a", "#b07d00"])  # not the colours of protocols


def map_figure(pairs: Table) -> alt.FacetChart:
    """SimSS of every pair of the classes on the map as a square of colours, alike classes side by side."""
    frame = pairs.frame
    turned = frame.rename(
        columns={"class_a": "class_b", "class_b": "class_a", "place_a": "place_b", "place_b": "place_a"}
    )
    frame = by_encoder(pd.concat([frame, turned], ignore_index=True))
    classes = 0 if frame.empty else int(frame["place_a"].max()) + 1
    columns = 1 if classes > 25 else 2
    axis = alt.Axis(labelFontSize=12 if classes <= 25 else 8, labelLimit=120, title=None, ticks=False, domain=False)
    chart = (
        alt.Chart()
        .mark_rect()
        .encode(
            x=alt.X("class_a:N", sort=alt.EncodingSortField("place_a", op="min"), axis=_turned(axis)),
            y=alt.Y("class_b:N", sort=alt.EncodingSortField("place_b", op="min"), axis=axis),
            color=alt.Color("simss:Q", legend=alt.Legend(title="SimSS (lower: harder)", gradientLength=220)),
            tooltip=style.tooltips({"dataset": "", "encoder": "", "class_a": "", "class_b": "", "simss": ".4f"}),
        )
    )
    title = alt.Title(
        "Which classes resemble which?",
        subtitle=["SimSS of every two classes; dark blocks are groups of classes that are hard to tell apart.", ""],
    )
    side = {1: 560, 2: 400}[columns]
    return _own_scales(style.faceted(chart, frame, title, ("dataset",), side, columns), x="independent")


def classes_figure(classes: Table) -> alt.FacetChart:
    """The hardest classes: SimSS with the nearest class, and the mean over all others."""
    frame = classes.frame.dropna(subset="simss_nearest").sort_values("simss_nearest", kind="stable")
    frame = by_encoder(frame.groupby(["dataset", "encoder"], sort=False).head(LISTED))
    told = {"dataset": "", "encoder": "", "class": "", "nearest": "", "simss_nearest": ".4f", "simss_mean": ".4f"}
    base = alt.Chart().encode(y=alt.Y("class:N", title=None, sort=alt.EncodingSortField("simss_nearest", op="min")))
    x = alt.X("simss_nearest:Q", title=_HARD)
    layers = alt.layer(
        base.mark_rule().encode(x=x, x2="simss_mean:Q"),
        base.mark_tick(thickness=2, size=12, color="#7d8590").encode(x="simss_mean:Q"),
        base.mark_point(filled=True, size=80, opacity=1, color="#a9629a").encode(
            x=x, tooltip=style.tooltips({**told, "images": ".0f"})
        ),
    )
    title = alt.Title(
        "Which classes are hard?",
        subtitle=[f"Dot: with the class it is hardest to tell from (hover); tick: mean over all. Up to {LISTED}."],
    )
    return _own_scales(style.faceted(layers, frame, title, ("dataset",), _tall(frame)))


def subsets_figure(subsets: Table) -> alt.FacetChart:
    """SimSS of the hardest and the easiest subset of each size, over the spread of random subsets."""
    frame = by_encoder(subsets.frame)
    told = {"dataset": "", "encoder": "", "extreme": "", "ncl": ".0f", "simss": ".4f", "random_mean": ".4f", "keys": ""}
    told |= {"random_q05": ".4f", "random_q95": ".4f", "random": ".0f"}
    x, picked = style.ncl_axis(gap=None), style.picked("extreme")
    shape = alt.Scale(domain=["hardest", "easiest"], range=["triangle-down", "triangle-up"])
    layers = alt.layer(
        alt.Chart().mark_rule(strokeWidth=5, opacity=0.5).encode(x=x, y="random_q05:Q", y2="random_q95:Q"),
        alt.Chart().mark_tick(thickness=2, size=16, color="#57606a").encode(x=x, y="random_q50:Q"),
        alt.Chart()
        .mark_point(filled=True, size=110)
        .encode(
            x=x,
            y=alt.Y("simss:Q", title=_HARD, scale=alt.Scale(zero=False)),
            color=alt.Color("extreme:N", scale=_EXTREMES, legend=alt.Legend(title=None)),
            shape=alt.Shape("extreme:N", scale=shape, legend=alt.Legend(title=None)),
            opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
            tooltip=style.tooltips(told),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "How hard and how easy can a few classes be?",
        subtitle=[
            "The hardest and the easiest subset of each size (hover for its classes);",
            "bar: 90 % of random subsets.",
        ],
    )
    return style.faceted(layers, frame, title, ("dataset", "ncl"))


def what_if_figure(what_if: Table) -> alt.FacetChart:
    """The change of SimSS by each class added to a subset, and by each two of its classes made one."""
    frame = what_if.frame.groupby(["dataset", "encoder", "change"], sort=False).head(LISTED)
    both = frame["class_a"] + frame["class_b"].map(lambda key: "" if pd.isna(key) else f" = {key}")
    frame = by_encoder(frame.assign(says=frame["change"] + " " + both))
    told = {"dataset": "", "encoder": "", "says": "", "simss_before": ".4f", "simss_after": ".4f", "difference": "+.4f"}
    colours = alt.Scale(domain=["add", "merge"], range=["#a9629a", "#b07d00"])
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0)),
        alt.Chart()
        .mark_bar()
        .encode(
            y=alt.Y("says:N", title=None, sort=alt.EncodingSortField("difference", op="min")),
            x=alt.X("difference:Q", title="change of SimSS (below 0: harder)", axis=_SIGNED),
            color=alt.Color("change:N", scale=colours, legend=alt.Legend(title=None)),
            tooltip=style.tooltips({**told, "subset": ""}),
        ),
    )
    subset = [_names(keys) for keys in dict.fromkeys(frame["subset"])]
    title = alt.Title(
        "What would one class more change, or two made one?",
        subtitle=[
            f"To {subset[0]}" if len(subset) == 1 else "To the subset of each panel (hover)",
            f"Up to {LISTED} of each.",
        ],
    )
    return _own_scales(style.faceted(layers, frame, title, ("dataset",), _tall(frame)))


def subset_answers(subsets: pd.DataFrame) -> Iterator[str]:
    """The hardest and easiest subset of the smallest size and of the largest up to five, beside random ones.

    >>> line = {"dataset": "zoo", "encoder": "hog", "ncl": 2}
    >>> line |= {"random_mean": 0.3, "random_q05": 0.2, "random_q95": 0.4, "random": 9}
    >>> hard, easy = {"extreme": "hardest", "simss": 0.1, "keys": ("a", "b")}, {"extreme": "easiest", "simss": 0.5}
    >>> [told] = subset_answers(pd.DataFrame([line | hard, line | easy | {"keys": ("b", "c")}]))
    >>> told[:80]
    'zoo: by hog the hardest 2 classes are a and b (SimSS 0.100), the easiest b and c'
    """
    for (dataset, encoder), part in subsets.groupby(["dataset", "encoder"], sort=False):
        told = []
        part = part[(part["random"] > 1) & (part["ncl"] <= NAMED)]
        for ncl in sorted({part["ncl"].min(), part["ncl"].max()} if len(part) else ()):
            hard, easy = (part[(part["ncl"] == ncl) & (part["extreme"] == e)].iloc[0] for e in ("hardest", "easiest"))
            told.append(
                f"the hardest {ncl} classes are {_names(hard['keys'])} (SimSS {hard['simss']:.3f}), the easiest "
                f"{_names(easy['keys'])} ({easy['simss']:.3f}); random ones {hard['random_mean']:.3f}, 90 % in "
                f"[{hard['random_q05']:.3f}, {hard['random_q95']:.3f}]"
            )
        if told:
            yield f"{dataset}: by {encoder} {'; '.join(told)}."


def _names(keys: tuple[str, ...]) -> str:
    names = list(map(str, keys))
    return ", ".join(names[:-1]) + " and " + names[-1]


def _turned(axis: alt.Axis) -> alt.Axis:
    return alt.Axis(**{**axis.to_dict(), "labelAngle": -90})


def _tall(frame: pd.DataFrame) -> int:
    return max(120, 16 * int(frame["panel"].value_counts().max()))


def _own_scales(chart: alt.FacetChart, **axes: Any) -> alt.FacetChart:
    """Each panel has its own classes."""
    drawn: alt.FacetChart = chart.resolve_scale(y="independent", **axes)
    return drawn


PARTS = (
    Part("difficulty_map", "Which classes resemble which", "difficulty_map", ("difficulty_map",), map_figure),
    Part("difficulty_classes", "Hard classes", "difficulty_map", ("difficulty_classes",), classes_figure),
    Part("difficulty_subsets", "Extreme subsets", "difficulty_map", ("difficulty_subsets",), subsets_figure),
    Part("difficulty_what_if", "One change to a subset", "difficulty_map", ("difficulty_what_if",), what_if_figure),
)
ANSWERS = {"difficulty_subsets": subset_answers}
