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

NAMED = 5  # the most classes that a sentence names
LISTED = 20  # the most classes, or changes of one kind, in a panel
SUBSET_NAME = Column("named", str, "", "classes")
_TWO_COLOURS = kinds.CONTRAST[:2]


def map_figure(pairs: Table) -> alt.FacetChart:
    """The figure of SimSS for every pair of classes: a coloured square for each pair, similar classes side by side.

    SimSS is the similarity score of classes; it is low where classes are hard to separate.
    pairs: table difficulty_map, with each pair once. Its columns place_a and place_b are the positions of both classes
           on the axes, from 0.
    """
    # both halves of the square: each pair (a, b), and the same pair as (b, a)
    swapped_names = {"class_a": "class_b", "class_b": "class_a", "place_a": "place_b", "place_b": "place_a"}
    swapped = pairs.frame.rename(columns=swapped_names)
    # by_encoder adds column `panel`, a heading for each data set and encoder
    frame = by_encoder(pd.concat([pairs.frame, swapped], ignore_index=True))

    n_classes = 0 if frame.empty else int(frame["place_a"].max()) + 1  # of the largest map; places count from 0
    is_large = n_classes > 25  # then labels are smaller, and each map has the full width
    axis: Any = {"labelFontSize": 8 if is_large else 12, "labelLimit": 120, "domain": False, "grid": False}
    order_a = alt.EncodingSortField("place_a", op="min")
    order_b = alt.EncodingSortField("place_b", op="min")
    chart: Any = alt.Chart().mark_rect()
    chart = chart.encode(
        x=kinds.category(alt.X, tables.CLASS_A, order_a, labelAngle=-90, **axis),
        y=kinds.category(alt.Y, tables.CLASS_B, order_b, **axis),
        color=alt.Color(f"{SIMSS}:Q", legend=alt.Legend(title="SimSS (lower: harder)", gradientLength=220)),
        tooltip=kinds.tooltips(pairs.columns),
    )

    title = style.title(
        "Which classes resemble which?",
        "Each square is the SimSS of two classes; dark blocks are groups of classes that are hard to separate.",
    )
    height = 560 if is_large else 400
    columns = 1 if is_large else 2
    figure = style.faceted(chart, frame, title, filters=(DATASET,), height=height, columns=columns)
    figure.usermeta = kinds.FIXED  # the cells of the map stay square
    return figure.resolve_scale(x="independent", y="independent")  # each panel has its own classes


def classes_figure(classes: Table) -> alt.FacetChart:
    """The figure of the hardest classes of each data set and encoder, at most LISTED of them.

    Each class has a dot at its SimSS with the nearest class, and a tick at its mean SimSS with all other classes.
    classes: table difficulty_classes, with a line for each class.
    """
    frame = classes.frame.dropna(subset=tables.SIMSS_NEAREST).sort_values(tables.SIMSS_NEAREST, kind="stable")
    # by_encoder adds column `panel`, a heading for each data set and encoder
    frame = by_encoder(frame.groupby([DATASET, ENCODER], sort=False).head(LISTED))
    hardest_first = alt.EncodingSortField(tables.SIMSS_NEAREST, op="min")
    rows = kinds.category(alt.Y, tables.CLASS, hardest_first, grid=False)
    x = kinds.quantity(alt.X, tables.SIMSS_NEAREST, SIMSS.meaning, zero=True, padding=0)

    # a dot for the nearest class, a tick for the mean, a line between them
    base: Any = alt.Chart().encode(y=rows)
    lines = base.mark_rule().encode(x=x, x2=f"{tables.SIMSS_MEAN}:Q")
    ticks = base.mark_tick(thickness=2, size=12, color=kinds.GREY).encode(x=f"{tables.SIMSS_MEAN}:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1, color=kinds.CONTRAST[0])
    dots = dots.encode(x=x, tooltip=kinds.tooltips(classes.columns))
    chart = kinds.layers(lines, ticks, dots)

    title = style.title(
        "Which classes are hard?",
        "Each dot is the SimSS of a class with the class it is hardest to separate from (hover for its "
        "name), each tick "
        f"the mean over all other classes. At most {LISTED} classes are shown.",
    )
    return _with_independent_rows(chart, frame, title)


def subsets_figure(subsets: Table) -> alt.FacetChart:
    """The figure of SimSS for the hardest and the easiest subset of each size, in front of random subsets.

    subsets: table difficulty_subsets, with two lines for each size: column `extreme` is hardest or easiest. Columns
             random_q05, random_q50 and random_q95 are quantiles of the SimSS of random subsets of this size.
    """
    frame = by_encoder(subsets.frame)  # adds column `panel`, a heading for each data set and encoder
    x = style.ncl_axis(gap=None)  # single marks: no gap between the steps of the axis
    y = kinds.quantity(alt.Y, SIMSS)

    # random subsets in the background: bars from 5 % to 95 %, ticks at the median
    random: Any = alt.Chart().encode(x=x)
    random_bars = random.mark_rule(strokeWidth=5, opacity=0.5).encode(y="random_q05:Q", y2="random_q95:Q")
    random_medians = random.mark_tick(thickness=2, size=16, color="#57606a").encode(y="random_q50:Q")

    coloured = kinds.hue(tables.EXTREME, frame, _TWO_COLOURS, ("triangle-down", "triangle-up"))
    triangles = kinds.scatter(x, y, subsets.columns, coloured, size=110)

    title = style.title(
        "How hard and how easy can a few classes be?",
        "Triangles are the hardest and the easiest subset of each size (hover for its classes);",
        "grey bars hold 90 % of random subsets, with their median.",
    )
    return style.faceted(kinds.layers(random_bars, random_medians, triangles), frame, title, filters=(DATASET, NCL))


def what_if_figure(what_if: Table) -> alt.FacetChart:
    """The figure of how SimSS of a subset changes if a class is added, or if two of its classes are merged.

    Of each kind of change (add, merge), at most LISTED are drawn.
    what_if: table difficulty_what_if. The classes to add that lower SimSS most come first in it, and of the pairs to
             merge those that raise SimSS most.
    """
    frame = what_if.frame.groupby([DATASET, ENCODER, tables.CHANGE], sort=False).head(LISTED)
    # labels of the rows: "add a" (which has no second class), or "merge a = b"
    merged_with = frame[tables.CLASS_B].map(lambda key: "" if pd.isna(key) else f" = {key}")
    # by_encoder adds column `panel`, a heading for each data set and encoder
    frame = by_encoder(frame.assign(named=frame[tables.CHANGE] + " " + frame[tables.CLASS_A] + merged_with))

    lowest_first = alt.EncodingSortField(tables.SIMSS_CHANGE, op="min")
    rows = kinds.category(alt.Y, "named", lowest_first, grid=False)
    x = kinds.quantity(alt.X, tables.SIMSS_CHANGE, zero=True, padding=0)
    bars = kinds.bars(x, rows, what_if.columns, kinds.hue(tables.CHANGE, frame, _TWO_COLOURS))
    # a vertical line at 0 of the horizontal axis
    zero_line = kinds.reference(kinds.ZERO, on_y=False)
    chart = kinds.layers(zero_line, bars)

    # each encoder may have its own subset; the title names the subset only if it is the same for all
    subset_names = [_listed_keys(keys) for keys in dict.fromkeys(frame["subset"])]
    subset_text = f"{subset_names[0]}." if len(subset_names) == 1 else "in the tooltip of each panel."
    title = style.title(
        "What would one class more change, or two made one?",
        f"Each bar is the change of SimSS when a class is added, or when two are made one; the subset is {subset_text}",
        f"At most {LISTED} changes of each kind are shown.",
    )
    return _with_independent_rows(chart, frame, title)


def subsets_statements(subsets: pd.DataFrame) -> Iterator[Statement]:
    """Two statements for each encoder and size: which classes are the hardest to separate, and which the easiest.

    Size is the number of classes of a subset. The statements are about the smallest size, and about the largest size
    with at most NAMED classes, so that a sentence can name them. Sizes without random subsets to compare with are left
    out, and so are sizes at which all subsets are equally hard.

    subsets: lines of table difficulty_subsets, of one data set.

    >>> line = {"dataset": "zoo", "encoder": "hog", "ncl": 2}
    >>> line |= {"random_mean": 0.3, "random_q05": 0.2, "random_q95": 0.4, "random": 9}
    >>> hard, easy = {"extreme": "hardest", "simss": 0.1, "keys": ("a", "b")}, {"extreme": "easiest", "simss": 0.5}
    >>> frame = pd.DataFrame([line | hard, line | easy | {"keys": ("b", "c")}])
    >>> for statement in subsets_statements(frame): print(statement.sentence)
    The classes of zoo hardest to separate are a and b (SimSS 0.100, against 0.200 to 0.400 for 90 % of random ones).
    The 2 classes of zoo easiest to separate by hog are b and c (SimSS 0.500; mean of random ones 0.300).
    """
    is_opening = True  # the first sentence opens a page; it is shorter, without size and encoder
    # a size that all classes together make up has only one subset, so nothing to compare it with
    has_random = subsets["random"] > 1
    for encoder, lines_of_encoder in subsets[has_random].groupby(ENCODER, sort=False):
        sizes = set(lines_of_encoder[NCL])
        smallest = min(sizes)
        largest_named = max((ncl for ncl in sizes if ncl <= NAMED), default=smallest)

        for ncl in sorted({smallest, largest_named}):  # a set, as both may be the same size
            at_ncl = lines_of_encoder[lines_of_encoder[NCL] == ncl]
            by_extreme = at_ncl.drop_duplicates(tables.EXTREME).set_index(tables.EXTREME)
            hard = by_extreme.loc["hardest"].to_dict()
            easy = by_extreme.loc["easiest"].to_dict()
            if not hard[SIMSS] < easy[SIMSS]:  # all subsets are equally hard
                continue

            classes = f"The {ncl} classes of {hard[DATASET]}"
            opening = f"The classes of {hard[DATASET]} hardest to separate"
            subject = opening if is_opening else f"{classes} hardest to separate by {encoder}"
            random = f"{hard['random_q05']:.3f} to {hard['random_q95']:.3f} for 90 % of random ones"
            hardest = f"{_listed_keys(hard[tables.KEYS])} (SimSS {hard[SIMSS]:.3f}, against {random})"
            yield Statement(f"{subject} are {hardest}.", _extremes_chart(hard, easy))

            easiest = f"{_listed_keys(easy[tables.KEYS])} (SimSS {easy[SIMSS]:.3f}; mean of random ones"
            yield Statement(f"{classes} easiest to separate by {encoder} are {easiest} {easy['random_mean']:.3f}).")
            is_opening = False


def _extremes_chart(hard: Mapping[Hashable, Any], easy: Mapping[Hashable, Any]) -> Any:
    """A small chart of SimSS in three rows: the hardest classes, random ones (mean and middle 90 %), and the easiest.

    hard, easy: lines of table difficulty_subsets of one size and encoder.
    """
    hardest_row = {SUBSET_NAME: _listed_keys(hard[tables.KEYS]), SIMSS_SHORT: hard[SIMSS]}
    random_row = {
        SUBSET_NAME: "random",
        SIMSS_SHORT: hard["random_mean"],
        SIMSS_SHORT.low: hard["random_q05"],
        SIMSS_SHORT.high: hard["random_q95"],
    }
    easiest_row = {SUBSET_NAME: _listed_keys(easy[tables.KEYS]), SIMSS_SHORT: easy[SIMSS]}

    columns = (SUBSET_NAME, *interval_columns(SIMSS_SHORT))
    frame = pd.DataFrame([hardest_row, random_row, easiest_row], columns=list(columns))
    return small.dots(frame, SUBSET_NAME, SIMSS_SHORT, columns)


def _listed_keys(keys: tuple[str, ...]) -> str:
    """Two or more class keys joined for a sentence: `a, b and c`."""
    names = list(map(str, keys))
    return ", ".join(names[:-1]) + " and " + names[-1]


def _with_independent_rows(chart: alt.LayerChart, frame: pd.DataFrame, title: alt.Title) -> alt.FacetChart:
    """A figure in which each panel lists its own names, one row for each line; as high as the longest list needs."""
    most_rows = int(frame["panel"].value_counts().max())
    height = max(120, 16 * most_rows)
    return style.faceted(chart, frame, title, filters=(DATASET,), height=height).resolve_scale(y="independent")
