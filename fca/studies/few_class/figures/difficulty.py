"""The difficulty of classes: a map of all pairs, hard classes, extreme subsets, and what-ifs; figures and headlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.few_class.difficulty_map import (
    CHANGE,
    CLASS,
    CLASS_A,
    CLASS_B,
    DIFFICULTY_CLASSES,
    DIFFICULTY_MAP,
    DIFFICULTY_SUBSETS,
    DIFFICULTY_WHAT_IF,
    EXTREME,
    SIMSS_CHANGE,
    SIMSS_MEAN,
    SIMSS_NEAREST,
)
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
        x=kinds.category(alt.X, CLASS_A, places["a"], labelAngle=-90, **axis),
        y=kinds.category(alt.Y, CLASS_B, places["b"], **axis),
        color=alt.Color(f"{SIMSS}:Q", legend=alt.Legend(title="SimSS (lower: harder)", gradientLength=220)),
        tooltip=kinds.tooltips(pairs.columns),
    )
    title = alt.Title(
        "Which classes resemble which?",
        subtitle=["SimSS of every two classes; dark blocks are groups of classes that are hard to separate.", ""],
    )
    side = {1: 560, 2: 400}[columns]
    return _own_scales(style.faceted(chart, frame, title, (DATASET,), side, columns), x="independent")


def classes_figure(classes: Table) -> alt.FacetChart:
    """The hardest classes: SimSS with the nearest class, and the mean over all others."""
    frame = classes.frame.dropna(subset=SIMSS_NEAREST).sort_values(SIMSS_NEAREST, kind="stable")
    frame = by_encoder(frame.groupby([DATASET, ENCODER], sort=False).head(LISTED))
    rows = kinds.category(alt.Y, CLASS, alt.EncodingSortField(SIMSS_NEAREST, op="min"), grid=False)
    x = kinds.quantity(alt.X, SIMSS_NEAREST, SIMSS.meaning, zero=True, padding=0)
    base: Any = alt.Chart().encode(y=rows)
    mean = base.mark_tick(thickness=2, size=12, color=kinds.GREY).encode(x=f"{SIMSS_MEAN}:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1, color=kinds.CONTRAST[0])
    dots = dots.encode(x=x, tooltip=kinds.tooltips(classes.columns))
    chart = kinds.layers(base.mark_rule().encode(x=x, x2=f"{SIMSS_MEAN}:Q"), mean, dots)
    title = alt.Title(
        "Which classes are hard?",
        subtitle=[f"Dot: with the class it is hardest to separate from (hover); tick: mean over all. Up to {LISTED}."],
    )
    return _own_scales(style.faceted(chart, frame, title, (DATASET,), _tall(frame)))


def subsets_figure(subsets: Table) -> alt.FacetChart:
    """SimSS of the hardest and the easiest subset of each size, over the spread of random subsets."""
    frame = by_encoder(subsets.frame)
    x = style.ncl_axis(gap=None)
    y = kinds.quantity(alt.Y, SIMSS)
    behind: Any = alt.Chart().encode(x=x)
    spread = behind.mark_rule(strokeWidth=5, opacity=0.5).encode(y="random_q05:Q", y2="random_q95:Q")
    median = behind.mark_tick(thickness=2, size=16, color="#57606a").encode(y="random_q50:Q")
    coloured = kinds.hue(EXTREME, frame, _TWO, ("triangle-down", "triangle-up"))
    marks = kinds.scatter(x, y, subsets.columns, coloured, size=110)
    title = alt.Title(
        "How hard and how easy can a few classes be?",
        subtitle=[
            "The hardest and the easiest subset of each size (hover for its classes);",
            "bar: 90 % of random subsets.",
        ],
    )
    return style.faceted(kinds.layers(spread, median, marks), frame, title, (DATASET, NCL))


def what_if_figure(what_if: Table) -> alt.FacetChart:
    """The change of SimSS by each class added to a subset, and by each two of its classes made one."""
    frame = what_if.frame.groupby([DATASET, ENCODER, CHANGE], sort=False).head(LISTED)
    both = frame[CLASS_A] + frame[CLASS_B].map(lambda key: "" if pd.isna(key) else f" = {key}")
    frame = by_encoder(frame.assign(named=frame[CHANGE] + " " + both))
    rows = kinds.category(alt.Y, "named", alt.EncodingSortField(SIMSS_CHANGE, op="min"), grid=False)
    x = kinds.quantity(alt.X, SIMSS_CHANGE, zero=True, padding=0)
    marks = kinds.bars(x, rows, what_if.columns, kinds.hue(CHANGE, frame, _TWO))
    subset = [_names(keys) for keys in dict.fromkeys(frame["subset"])]
    title = alt.Title(
        "What would one class more change, or two made one?",
        subtitle=[
            f"To {subset[0]}" if len(subset) == 1 else "To the subset of each panel (hover)",
            f"Up to {LISTED} of each.",
        ],
    )
    chart = kinds.layers(kinds.reference(kinds.ZERO, upright=False), marks)
    return _own_scales(style.faceted(chart, frame, title, (DATASET,), _tall(frame)))


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
            hard, easy = (part[(part[NCL] == ncl) & (part[EXTREME] == e)].iloc[0] for e in ("hardest", "easiest"))
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


def _tall(frame: pd.DataFrame) -> int:
    return max(120, 16 * int(frame["panel"].value_counts().max()))


def _own_scales(chart: alt.FacetChart, **axes: Any) -> alt.FacetChart:
    """Each panel has its own classes."""
    return chart.resolve_scale(y="independent", **axes)


FIGURES = (
    Figure("difficulty_map", "Which classes resemble which", (DIFFICULTY_MAP,), map_figure),
    Figure("difficulty_classes", "Hard classes", (DIFFICULTY_CLASSES,), classes_figure),
    Figure("difficulty_subsets", "Extreme subsets", (DIFFICULTY_SUBSETS,), subsets_figure),
    Figure("difficulty_what_if", "One change to a subset", (DIFFICULTY_WHAT_IF,), what_if_figure),
)
HEADLINES = {DIFFICULTY_SUBSETS.name: subset_headlines}
