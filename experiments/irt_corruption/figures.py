"""The figures of the page. They draw its tables and compute nothing."""

from __future__ import annotations

import altair as alt
import pandas as pd
from compared import THEIRS, VERDICTS, WHOSE
from sharma import SEGMENTS

from fca.report import kinds, style
from fca.studies.irt.class_robustness import CLASS_RANK, DIRECTION, INSTABILITY
from fca.studies.irt.difficulty_segments import ITEMS, QUARTER, RIGHT, SEGMENT, SHARE_RIGHT
from fca.studies.irt.fits import PARAMETER, SHARE_OF_CLASS, SUBJECT
from fca.studies.irt.irt import TAU
from fca.tables.table import CORRUPTION, LABEL, SEVERITY
from fca.types import Column, interval_columns

WORDS = {word: word for word in (*VERDICTS, "neither", "not in table 1")}
TABLE1 = Column("table 1", str, "", "verdict in table 1", WORDS)
STATED = Column("stated", str, "", "the paper states", {word: word for word in ("few", "many", "nothing")})
OURS = Column("whose", str, "", "whose", {word: word for word in WHOSE})
SHARE = SHARE_OF_CLASS.with_format(".1%", "share of the class's images, a quarter if like all")


def table1(classes: pd.DataFrame) -> alt.FacetChart:
    """How steady each class is under each stored corruption, coloured by its verdict in Table 1."""
    printed = classes.groupby("corruption")["paper"].transform("count") > 0
    frame = classes.assign(panel=style.panels(classes, CORRUPTION))
    frame[TABLE1] = frame["paper"].fillna("neither").where(printed, "not in table 1").astype(object)
    coloured = kinds.hue(TABLE1, frame, ("#d55e00", "#0072b2", "#b9bec6", "#000000"), title=TABLE1.meaning)
    hover = (
        CORRUPTION,
        LABEL,
        TABLE1,
        *interval_columns(INSTABILITY),
        CLASS_RANK,
        Column(CLASS_RANK + THEIRS, int, ".0f"),
        DIRECTION,
    )
    chart = kinds.points_with_intervals(INSTABILITY, kinds.category(alt.Y, LABEL), hover, coloured)
    title = alt.Title(
        "Table 1: do the classes it calls susceptible move most, and the robust ones least?",
        subtitle=[
            "Ours, default way. Instability: how much the class moves between segments; bars: 95 % over its images."
        ],
    )
    return style.faceted(chart, frame, title, (), height=220, columns=min(3, frame["panel"].nunique()))


def table2(table: pd.DataFrame) -> alt.FacetChart:
    """Kendall's tau, the paper's and ours in both ways."""
    frame = _by_way(table, [CORRUPTION], interval_columns(TAU), dict(zip(WHOSE, ("_paper", "", THEIRS), strict=True)))
    frame = frame.dropna(subset=TAU).assign(panel="severity 1")
    rows = kinds.category(alt.Y, CORRUPTION, table[CORRUPTION].tolist())
    coloured = kinds.hue(OURS, frame, (kinds.GREY, "#d55e00", "#0072b2"), ("diamond", "circle", "square"))
    hover = (CORRUPTION, OURS, *interval_columns(TAU))
    chart = kinds.points_with_intervals(TAU, rows, hover, coloured, dodge=OURS)
    title = alt.Title(
        "Table 2: does ability order the models as accuracy does?",
        subtitle=["Severity 1. Bars: 95 % over models (all snapshots of one together); the paper has no intervals."],
    )
    return style.faceted(chart, frame, title, (), height=26 * frame[CORRUPTION].nunique())


def table3(shares: pd.DataFrame) -> alt.FacetChart:
    """Which share of each segment a subject gets right, as a heat map; the paper, ours, and ours as it did."""
    frame = shares.assign(panel=shares[OURS])
    means = frame.groupby(SUBJECT)[SHARE_RIGHT].mean()
    first = frame[SUBJECT].isin(frame.loc[frame[OURS] == WHOSE[0], SUBJECT])
    parts = [means[frame.loc[own, SUBJECT].unique()] for own in (first, ~first)]  # the paper's, then ours
    order = [name for part in parts for name in part.sort_values(ascending=False).index]
    across, rows = alt.X(f"{SEGMENT}:N", title=None, sort=list(SEGMENTS)), style.names_axis(SUBJECT, order)
    hover = (SUBJECT, SEGMENT, SEVERITY, RIGHT, Column("n", int, ".0f"), SHARE_RIGHT)
    chart = kinds.heat_map(SHARE_RIGHT.with_format(".0%"), across, rows, hover, (0.0, 1.0))
    highest = shares[SEVERITY].max()
    ours = "" if pd.isna(highest) else f" Ours: severity {highest}."
    title = alt.Title(
        "Table 3: how much of the easy and of the hard images does each subject solve, under brightness?",
        subtitle=[f"Share of a segment's images that are right.{ours} The paper's counts are divided by 2,500."],
    )
    drawn = style.faceted(chart, frame, title, ("model",), columns=3)
    drawn.spec.height = alt.Step(20)
    return drawn


def figure4(table: pd.DataFrame) -> alt.FacetChart:
    """The share of each class's images in the top and the bottom quarter, in both ways, coloured by the statement."""
    ways = dict(zip(WHOSE[1:], ("", THEIRS), strict=True))
    frame = _by_way(table, [PARAMETER, QUARTER, LABEL, "paper"], (ITEMS, *interval_columns(SHARE)), ways)
    frame = frame.dropna(subset=SHARE).assign(stated=lambda lines: lines["paper"].fillna("nothing"))
    frame["panel"] = style.panels(frame, PARAMETER, QUARTER, OURS)
    coloured = kinds.hue(STATED, frame, ("#0072b2", "#d55e00", "#b9bec6"), title=STATED.meaning)
    hover = (PARAMETER, QUARTER, LABEL, OURS, ITEMS, *interval_columns(SHARE), STATED)
    chart = kinds.points_with_intervals(SHARE, kinds.category(alt.Y, LABEL), hover, coloured, line=0.25, size=50)
    title = alt.Title(
        "Figure 4: which classes are in the outer quarters of difficulty and discrimination?",
        subtitle=[
            "Clean images. The paper states of the top quarter: few cats, dogs, birds; many ships, trucks, cars."
        ],
    )
    return style.faceted(chart, frame, title, (), height=220, columns=4)


def _by_way(table: pd.DataFrame, kept: list[str], values: tuple[str, ...], ways: dict[str, str]) -> pd.DataFrame:
    """The values of each way below each other; a way's columns end in ways[whose]."""
    parts = []
    for whose, end in ways.items():
        renamed = {name + end: str(name) for name in values if name + end in table}
        parts.append(table[[*kept, *renamed]].rename(columns=renamed).assign(whose=whose))
    return pd.concat(parts, ignore_index=True)
