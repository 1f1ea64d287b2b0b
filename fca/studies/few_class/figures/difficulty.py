"""The difficulty of classes: a map of all pairs, hard classes, extreme subsets, and what-ifs; figures and headlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.few_class import difficulty_map as tables
from fca.studies.few_class.figures.similarity import by_encoder
from fca.studies.few_class.similarity import SIMSS
from fca.studies.table import DATASET, ENCODER, NCL
from fca.types import Table

NAMED = 5  # classes in a sentence
LISTED = 20  # classes, or changes of one kind, in a panel
_TWO = kinds.CONTRAST[:2]


def map_figure(pairs: Table) -> alt.FacetChart:
    """SimSS of every pair of the classes on the map as a square of colours, alike classes side by side."""
    frame = pairs.frame
    turned = {"class_a": "class_b", "class_b": "class_a", "place_a": "place_b", "place_b": "place_a"}
    frame = by_encoder(pd.concat([frame, frame.rename(columns=turned)], ignore_index=True))
    classes = 0 if frame.empty else int(frame["place_a"].max()) + 1
    columns = 1 if classes > 25 else 2
    axis: Any = {"labelFontSize": 12 if classes <= 25 else 8, "labelLimit": 120, "domain": False, "grid": False}
    places = {way: alt.EncodingSortField(f"place_{way}", op="min") for way in "ab"}
    chart: Any = alt.Chart().mark_rect()
    chart = chart.encode(
        x=kinds.category(alt.X, tables.CLASS_A, places["a"], labelAngle=-90, **axis),
        y=kinds.category(alt.Y, tables.CLASS_B, places["b"], **axis),
        color=alt.Color(f"{SIMSS}:Q", legend=alt.Legend(title="SimSS (lower: harder)", gradientLength=220)),
        tooltip=kinds.tooltips(pairs.columns),
    )
    title = style.title(
        "Which classes resemble which?",
        "Each square is the SimSS of two classes; dark blocks are groups of classes that are hard to separate.",
    )
    side = {1: 560, 2: 400}[columns]
    drawn = style.faceted(chart, frame, title, (DATASET,), side, columns)
    drawn.usermeta = kinds.FIXED  # squares
    return drawn.resolve_scale(x="independent", y="independent")  # each panel has its own classes


def classes_figure(classes: Table) -> alt.FacetChart:
    """The hardest classes: SimSS with the nearest class, and the mean over all others."""
    frame = classes.frame.dropna(subset=tables.SIMSS_NEAREST).sort_values(tables.SIMSS_NEAREST, kind="stable")
    frame = by_encoder(frame.groupby([DATASET, ENCODER], sort=False).head(LISTED))
    rows = kinds.category(alt.Y, tables.CLASS, alt.EncodingSortField(tables.SIMSS_NEAREST, op="min"), grid=False)
    x = kinds.quantity(alt.X, tables.SIMSS_NEAREST, SIMSS.meaning, zero=True, padding=0)
    base: Any = alt.Chart().encode(y=rows)
    mean = base.mark_tick(thickness=2, size=12, color=kinds.GREY).encode(x=f"{tables.SIMSS_MEAN}:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1, color=kinds.CONTRAST[0])
    dots = dots.encode(x=x, tooltip=kinds.tooltips(classes.columns))
    chart = kinds.layers(base.mark_rule().encode(x=x, x2=f"{tables.SIMSS_MEAN}:Q"), mean, dots)
    title = style.title(
        "Which classes are hard?",
        "Each dot is the SimSS of a class with the class it is hardest to separate from (hover for its "
        "name), each tick "
        f"the mean over all other classes. At most {LISTED} classes are shown.",
    )
    return _rows_of_their_own(chart, frame, title)


def subsets_figure(subsets: Table) -> alt.FacetChart:
    """SimSS of the hardest and the easiest subset of each size, over the spread of random subsets."""
    frame = by_encoder(subsets.frame)
    x = style.ncl_axis(gap=None)
    behind: Any = alt.Chart().encode(x=x)
    spread = behind.mark_rule(strokeWidth=5, opacity=0.5).encode(y="random_q05:Q", y2="random_q95:Q")
    median = behind.mark_tick(thickness=2, size=16, color="#57606a").encode(y="random_q50:Q")
    coloured = kinds.hue(tables.EXTREME, frame, _TWO, ("triangle-down", "triangle-up"))
    marks = kinds.scatter(x, kinds.quantity(alt.Y, SIMSS), subsets.columns, coloured, size=110)
    title = style.title(
        "How hard and how easy can a few classes be?",
        "Triangles are the hardest and the easiest subset of each size (hover for its classes);",
        "grey bars hold 90 % of random subsets, with their median.",
    )
    return style.faceted(kinds.layers(spread, median, marks), frame, title, (DATASET, NCL))


def what_if_figure(what_if: Table) -> alt.FacetChart:
    """The change of SimSS by each class added to a subset, and by each two of its classes made one."""
    frame = what_if.frame.groupby([DATASET, ENCODER, tables.CHANGE], sort=False).head(LISTED)
    both = frame[tables.CLASS_A] + frame[tables.CLASS_B].map(lambda key: "" if pd.isna(key) else f" = {key}")
    frame = by_encoder(frame.assign(named=frame[tables.CHANGE] + " " + both))
    rows = kinds.category(alt.Y, "named", alt.EncodingSortField(tables.SIMSS_CHANGE, op="min"), grid=False)
    x = kinds.quantity(alt.X, tables.SIMSS_CHANGE, zero=True, padding=0)
    marks = kinds.bars(x, rows, what_if.columns, kinds.hue(tables.CHANGE, frame, _TWO))
    subset = [_names(keys) for keys in dict.fromkeys(frame["subset"])]
    title = style.title(
        "What would one class more change, or two made one?",
        "Each bar is the change of SimSS when a class is added, or when two are made one; the subset is "
        + (f"{subset[0]}." if len(subset) == 1 else "in the tooltip of each panel."),
        f"At most {LISTED} changes of each kind are shown.",
    )
    chart = kinds.layers(kinds.reference(kinds.ZERO, upright=False), marks)
    return _rows_of_their_own(chart, frame, title)


def subset_headlines(subsets: pd.DataFrame) -> Iterator[str]:
    """The hardest and easiest subset of the smallest size and of the largest up to five, beside random ones.

    >>> line = {"dataset": "zoo", "encoder": "hog", "ncl": 2}
    >>> line |= {"random_mean": 0.3, "random_q05": 0.2, "random_q95": 0.4, "random": 9}
    >>> hard, easy = {"extreme": "hardest", "simss": 0.1, "keys": ("a", "b")}, {"extreme": "easiest", "simss": 0.5}
    >>> [headline] = subset_headlines(pd.DataFrame([line | hard, line | easy | {"keys": ("b", "c")}]))
    >>> headline[:80]
    'zoo: by hog the hardest 2 classes are a and b (SimSS 0.100), the easiest b and c'
    """
    for (dataset, encoder), part in subsets.groupby([DATASET, ENCODER], sort=False):
        found = []
        part = part[(part["random"] > 1) & (part[NCL] <= NAMED)]
        for ncl in sorted({part[NCL].min(), part[NCL].max()} if len(part) else ()):
            hard, easy = (
                part[(part[NCL] == ncl) & (part[tables.EXTREME] == e)].iloc[0] for e in ("hardest", "easiest")
            )
            if not hard[SIMSS] < easy[SIMSS]:  # all are equally hard
                continue
            found.append(
                f"the hardest {ncl} classes are {_names(hard['keys'])} (SimSS {hard[SIMSS]:.3f}), the easiest "
                f"{_names(easy['keys'])} ({easy[SIMSS]:.3f}); random ones {hard['random_mean']:.3f}, 90 % in "
                f"[{hard['random_q05']:.3f}, {hard['random_q95']:.3f}]"
            )
        if found:
            yield f"{dataset}: by {encoder} {'; '.join(found)}."


def _names(keys: tuple[str, ...]) -> str:
    names = list(map(str, keys))
    return ", ".join(names[:-1]) + " and " + names[-1]


def _rows_of_their_own(chart: alt.LayerChart, frame: pd.DataFrame, title: alt.Title) -> alt.FacetChart:
    """Each panel has its own classes, one row each."""
    tall = max(120, 16 * int(frame["panel"].value_counts().max()))
    return style.faceted(chart, frame, title, (DATASET,), tall).resolve_scale(y="independent")


FIGURES = (
    Figure("difficulty_map", "Which classes resemble which", (tables.DIFFICULTY_MAP,), map_figure),
    Figure("difficulty_classes", "Hard classes", (tables.DIFFICULTY_CLASSES,), classes_figure),
    Figure("difficulty_subsets", "Extreme subsets", (tables.DIFFICULTY_SUBSETS,), subsets_figure),
    Figure("difficulty_what_if", "One change to a subset", (tables.DIFFICULTY_WHAT_IF,), what_if_figure),
)
HEADLINES = {tables.DIFFICULTY_SUBSETS.name: subset_headlines}
