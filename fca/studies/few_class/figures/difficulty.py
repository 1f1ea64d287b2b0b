"""Figures and statements of the difficulty of classes: all pairs, hard classes, extreme subsets, and what-ifs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.studies.few_class import difficulty_map as tables
from fca.studies.few_class.figures.similarity import SIMSS as SIMSS_SHORT
from fca.studies.few_class.figures.similarity import by_encoder
from fca.studies.few_class.similarity import SIMSS
from fca.tables.table import DATASET, ENCODER, NCL
from fca.types import Column, Table, interval_columns

NAMED = 5  # classes in a sentence
LISTED = 20  # classes, or changes of one kind, in a panel
SUBSET_NAME = Column("named", str, "", "classes")
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


def subsets_statements(subsets: pd.DataFrame) -> Iterator[Statement]:
    """The hardest and the easiest classes: as few as there are, and the most up to five; the first encoder first.

    >>> line = {"dataset": "zoo", "encoder": "hog", "ncl": 2}
    >>> line |= {"random_mean": 0.3, "random_q05": 0.2, "random_q95": 0.4, "random": 9}
    >>> hard, easy = {"extreme": "hardest", "simss": 0.1, "keys": ("a", "b")}, {"extreme": "easiest", "simss": 0.5}
    >>> frame = pd.DataFrame([line | hard, line | easy | {"keys": ("b", "c")}])
    >>> for statement in subsets_statements(frame): print(statement.sentence)
    The classes of zoo hardest to separate are a and b (SimSS 0.100, against 0.200 to 0.400 for 90 % of random ones).
    The 2 classes of zoo easiest to separate by hog are b and c (SimSS 0.500; mean of random ones 0.300).
    """
    is_opening = True
    has_random = subsets["random"] > 1
    for encoder, of_encoder in subsets[has_random].groupby(ENCODER, sort=False):
        sizes = set(of_encoder[NCL])
        few = [ncl for ncl in sizes if ncl <= NAMED]
        for ncl in sorted({min(sizes), max(few, default=min(sizes))}):
            at_ncl = of_encoder[of_encoder[NCL] == ncl].drop_duplicates(tables.EXTREME).set_index(tables.EXTREME)
            hard, easy = (at_ncl.loc[extreme].to_dict() for extreme in ("hardest", "easiest"))
            if not hard[SIMSS] < easy[SIMSS]:  # all subsets are equally hard
                continue

            classes = f"The {ncl} classes of {hard[DATASET]}"
            opening = f"The classes of {hard[DATASET]} hardest to separate"
            subject = opening if is_opening else f"{classes} hardest to separate by {encoder}"
            random = f"{hard['random_q05']:.3f} to {hard['random_q95']:.3f} for 90 % of random ones"
            hardest = f"{_names(hard[tables.KEYS])} (SimSS {hard[SIMSS]:.3f}, against {random})"
            yield Statement(f"{subject} are {hardest}.", _extremes_chart(hard, easy))

            easiest = f"{_names(easy[tables.KEYS])} (SimSS {easy[SIMSS]:.3f}; mean of random ones"
            yield Statement(f"{classes} easiest to separate by {encoder} are {easiest} {easy['random_mean']:.3f}).")
            is_opening = False


def _extremes_chart(hard: Mapping[Hashable, Any], easy: Mapping[Hashable, Any]) -> Any:
    """SimSS of the hardest classes, of random ones with the middle 90 % of them, and of the easiest."""
    of_random = {
        SUBSET_NAME: "random",
        SIMSS_SHORT: hard["random_mean"],
        SIMSS_SHORT.low: hard["random_q05"],
        SIMSS_SHORT.high: hard["random_q95"],
    }
    of_hard, of_easy = ({SUBSET_NAME: _names(line[tables.KEYS]), SIMSS_SHORT: line[SIMSS]} for line in (hard, easy))
    frame = pd.DataFrame([of_hard, of_random, of_easy], columns=[SUBSET_NAME, *interval_columns(SIMSS_SHORT)])
    return small.dots(frame, SUBSET_NAME, SIMSS_SHORT, (SUBSET_NAME, *interval_columns(SIMSS_SHORT)))


def _names(keys: tuple[str, ...]) -> str:
    names = list(map(str, keys))
    return ", ".join(names[:-1]) + " and " + names[-1]


def _rows_of_their_own(chart: alt.LayerChart, frame: pd.DataFrame, title: alt.Title) -> alt.FacetChart:
    """Each panel has its own classes, one row each."""
    tall = max(120, 16 * int(frame["panel"].value_counts().max()))
    return style.faceted(chart, frame, title, (DATASET,), tall).resolve_scale(y="independent")
