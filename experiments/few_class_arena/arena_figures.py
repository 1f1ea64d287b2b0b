"""The figures of the parity page. They draw its tables and compute nothing."""

from __future__ import annotations

from typing import Any

import altair as alt
import arena_tables as tables
import pandas as pd
from arena_paper import DATASETS, DCN, MODELS
from arena_tables import MEANS, NOTE, PAPER_DATASET, PAPER_MODEL, RANK, REGRET, RHO, TOP1_PAPER, WHOSE

from fca.report import kinds, style
from fca.studies import table as columns
from fca.studies.few_class.accuracy import SPREAD
from fca.studies.few_class.correlation import COEFFICIENT, PREDICTOR, SCOPE, SEEDS, TARGET
from fca.studies.few_class.correlation import N as SUBSETS
from fca.studies.table import DATASET, ENCODER, MODEL, NCL, PROTOCOL, TOP1
from fca.types import Column, Table, with_interval

MEAN = Column("mean", float, ".2%", TOP1.meaning)  # its "interval" is one standard deviation between subsets
COMPARED = Column("compared", str, "", "what is correlated with accuracy")
NAMES = dict(zip(tables.SCOPES, ("SimSS", "SimSS within ncl", "ncl alone"), strict=True))


def table1(table: Table) -> alt.FacetChart:
    """Every cell of Table 1: the paper's number and ours with its interval, one panel for each data set."""
    frame = _both(table.frame[table.frame[PAPER_MODEL] != DCN])
    frame = frame.assign(panel=style.panels(frame, PAPER_DATASET))
    title = alt.Title(
        "Table 1: are full models as accurate as in the paper?",
        subtitle=["Top-1 over all classes. Ours: open, on the test split, with Wilson's 95 % interval."],
    )
    hover = (DATASET, MODEL, WHOSE, *with_interval(TOP1))
    x = kinds.quantity(alt.X, TOP1, domain=[0, 1], padding=0).axis(format=".2~%", values=[0, 0.25, 0.5, 0.75, 1])
    return _paired(
        frame, TOP1, x, kinds.category(alt.Y, PAPER_MODEL, list(MODELS), bands=True), hover, title, columns=5
    )


def best(table: Table) -> alt.FacetChart:
    """Figure 2a: the best of the models on every data set, the paper's and ours."""
    frame = _both(table.frame).assign(panel="all classes")
    order = frame[frame[WHOSE] == "paper"].sort_values(TOP1, ascending=False)[PAPER_DATASET].tolist()
    title = alt.Title(
        "Figure 2a: how accurate is the best of the models on all classes (DCN)?",
        subtitle=["Ours: the best of the models that have a run there; hover to see which one, and of how many."],
    )
    hover = (DATASET, WHOSE, *with_interval(TOP1), NOTE)
    rows = kinds.category(alt.Y, PAPER_DATASET, order, bands=True)
    return _paired(frame, TOP1, kinds.quantity(alt.X, TOP1, "DCN", domain=[0, 1], padding=0), rows, hover, title)


def ranks(table: Table) -> alt.FacetChart:
    """Figure 2b: the rank of every model on every data set, as a heat map; the paper's, and ours where it exists."""
    heading = {"paper": "the paper", "ours": "ours, among the models that have a run"}
    frame = table.frame.assign(panel=table.frame[WHOSE].map(heading))
    x, y = (
        kinds.category(channel, name, list(names), grid=False).scale(domain=list(names))
        for channel, name, names in ((alt.X, PAPER_DATASET, DATASETS), (alt.Y, PAPER_MODEL, MODELS))
    )
    title = alt.Title(
        "Figure 2b: does the ranking of the models change with the data set?",
        subtitle=["Rank by top-1 on all classes; 1 is the most accurate."],
    )
    chart = kinds.heat_map(RANK, x, y, table.columns, (1.0, 10.0), bright_low=True)
    return style.faceted(chart, frame, title, (DATASET, MODEL), height=260, columns=1)


def agreement(table: Table) -> alt.FacetChart:
    """Spearman's rho of every data set's ranking with ImageNet's."""
    title = alt.Title(
        "Does the ranking on ImageNet predict that on another data set?",
        subtitle=["Spearman's rho over the models and its 95 % interval over models; 1: the same order, 0: unrelated."],
    )
    order = table.frame[PAPER_DATASET].drop_duplicates().tolist()
    rows = kinds.category(alt.Y, PAPER_DATASET, order, bands=True)
    x = kinds.quantity(alt.X, RHO, domain=[-1, 1], padding=0)
    frame = table.frame.assign(panel="up to ten models")
    return _paired(frame, RHO, x, rows, table.columns, title, line=kinds.ZERO)


def regret(table: Table) -> alt.FacetChart:
    """What always taking one model costs, over the paper's data sets."""
    frame = table.frame.assign(panel="the paper's ten data sets", whose="paper")
    title = alt.Title(
        "What does always taking the same model cost?",
        subtitle=["Points below each data set's best, mean over the ten and its 95 % interval over data sets."],
    )
    rows = kinds.category(alt.Y, PAPER_MODEL, frame[PAPER_MODEL].tolist(), bands=True)
    x = kinds.quantity(alt.X, REGRET, "mean regret", zero=True, padding=0)
    return _paired(frame, REGRET, x, rows, table.columns, title, filters=())


def coefficients(table: Table, name: str) -> alt.FacetChart:
    """Figure 5: Pearson's r with its interval, the paper's and ours, over all subsets and within ncl, and ncl alone."""
    pairs = zip(table.frame[PREDICTOR], table.frame[SCOPE], strict=True)
    frame = table.frame.assign(**{COMPARED: [NAMES[pair] for pair in pairs], WHOSE: "ours"})
    if "r_paper" in frame:
        ours = [*with_interval(COEFFICIENT), SUBSETS]
        published = {f"r_paper{name[1:]}" if name[0] == "r" else "n_paper": str(name) for name in ours}
        paper = frame.drop(columns=ours).rename(columns=published).assign(whose="paper")
        frame = pd.concat([paper, frame], ignore_index=True)
    frame = _in_lines(frame.dropna(subset=COEFFICIENT), ENCODER, TARGET)
    title = alt.Title(
        f"{name}: does SimSS predict accuracy?",
        subtitle=["Pearson's r. Ours: 95 % interval over subset seeds and models; the paper's: Fisher's."],
    )
    hover = (DATASET, ENCODER, TARGET, COMPARED, WHOSE, *with_interval(COEFFICIENT), SUBSETS, SEEDS, columns.MODELS)
    x = kinds.quantity(alt.X, COEFFICIENT, "Pearson's r with accuracy", domain=[-1, 1], padding=0)
    rows = kinds.category(alt.Y, COMPARED, list(NAMES.values()), bands=True)
    return _paired(frame, COEFFICIENT, x, rows, hover, title, line=kinds.ZERO, columns=4)


def by_ncl(table: Table, title: alt.Title) -> alt.FacetChart:
    """Figure 1: every model against ncl, one panel for each protocol; the bars are the spread between subsets."""
    known = table.frame.dropna(subset=TOP1)
    style.panels(known, DATASET)  # raises NothingToDraw where there is no point
    present = [protocol for protocol in PROTOCOL.choices if protocol in set(known[PROTOCOL])]
    sets = known[DATASET].drop_duplicates().to_frame()
    frame = sets.merge(pd.DataFrame({PROTOCOL: present}), how="cross").merge(known, how="left")  # panels may be empty
    some = frame.groupby(DATASET)[[MODEL, NCL]].transform("first")
    frame = _with_spread(frame.fillna({MODEL: some[MODEL], NCL: some[NCL]}))
    frame = _in_lines(frame.assign(heading=frame[PROTOCOL].map(dict(PROTOCOL.choices))), "heading")
    named = Column(MODEL, choices={model: model for model in known[MODEL].drop_duplicates()})
    coloured = kinds.hue(named, known, ordered=True)
    hover = (DATASET, MODEL, PROTOCOL, NCL, *with_interval(MEAN), *MEANS[1:])
    chart = kinds.points_with_intervals(
        *(MEAN, style.ncl_axis(), hover, coloured),
        dodge=MODEL,
        joined=MODEL,
        scale=kinds.quantity(alt.Y, MEAN),
        size=50,
    )
    drawn = style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL, MODEL), columns=len(present))
    return drawn.resolve_scale(x="independent", xOffset="independent") if len(sets) > 1 else drawn


def dcn(table: Table, title: alt.Title) -> alt.FacetChart:
    """Figures 3 and 4: the best of the models against ncl, one panel for each data set; the paper's on all classes."""
    known = table.frame[table.frame[DATASET].isin(table.frame.dropna(subset=TOP1)[DATASET])]
    paper = TOP1_PAPER in known
    frame = known.dropna(subset=[TOP1, TOP1_PAPER] if paper else TOP1, how="all")
    frame = _with_spread(frame.assign(panel=style.panels(frame, DATASET)))
    x, y = style.ncl_axis().axis(labelOverlap="greedy", labelSeparation=3), kinds.quantity(alt.Y, MEAN, "DCN")
    hover = (DATASET, PROTOCOL, NCL, *with_interval(MEAN), *MEANS[1:], columns.MODELS, *([TOP1_PAPER] if paper else []))
    chart = kinds.points_with_intervals(
        *(MEAN, x, hover, kinds.hue(PROTOCOL, frame)),
        dodge=PROTOCOL,
        joined=PROTOCOL,
        where=f"isValid(datum.{MEAN})",
        scale=y,
        size=60,
    )
    if paper:
        mark: Any = alt.Chart().transform_filter(f"isValid(datum.{TOP1_PAPER})")
        mark = mark.mark_point(shape="diamond", size=110, color=kinds.GREY, strokeWidth=2)
        chart += mark.encode(x=x, y=f"{TOP1_PAPER}:Q", tooltip=kinds.tooltips([TOP1_PAPER]))
    wide = min(5, frame[DATASET].nunique())
    drawn = style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL), height=180, columns=wide)
    return drawn.resolve_scale(x="independent", xOffset="independent", y="independent")


def _both(cells: pd.DataFrame) -> pd.DataFrame:
    """The paper's numbers and ours as lines of their own."""
    paper = cells.drop(columns=[*with_interval(TOP1)]).rename(columns={TOP1_PAPER: TOP1})
    parts = [paper.drop_duplicates([DATASET, MODEL]).assign(whose="paper"), cells.assign(whose="ours")]
    return pd.concat(parts, ignore_index=True).dropna(subset=TOP1)


def _paired(
    frame: pd.DataFrame,
    value: Column,
    x: alt.X,
    rows: alt.Y,
    hover: tuple[Column, ...],
    title: alt.Title,
    line: float | None = None,
    columns: int | None = None,
    filters: tuple[Column, ...] = (DATASET, MODEL),
) -> alt.FacetChart:
    """Dots with intervals in rows: the paper's diamond above our circle."""
    coloured = kinds.hue(WHOSE, frame, (kinds.GREY, "#d55e00"), ("diamond", "circle"))
    dodge = str(WHOSE) if style.differs(frame[WHOSE]) else None
    chart = kinds.points_with_intervals(value, rows, hover, coloured, dodge=dodge, line=line, scale=x, size=60)
    height = max(70, 22 * frame[rows.shorthand.removesuffix(":N")].nunique())
    filters = tuple(name for name in filters if name in frame)
    return style.faceted(chart, frame, title, filters, height=height, columns=columns)


def _with_spread(frame: pd.DataFrame) -> pd.DataFrame:
    """With the mean, and one standard deviation between subsets below and above it."""
    top1, sd = frame[TOP1], frame[SPREAD]
    return frame.assign(**{MEAN: top1, MEAN.low: top1 - sd, MEAN.high: (top1 + sd).clip(upper=1)})


def _in_lines(frame: pd.DataFrame, *fields: str) -> pd.DataFrame:
    """With panels whose heading has a line for the data set, if it differs, and one for these fields."""
    panels = style.panels(frame, *fields)
    return frame.assign(panel=frame[DATASET] + "\n" + panels if style.differs(frame[DATASET]) else panels)
