"""The figures of the parity page. They draw its tables and compute nothing."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
from arena_paper import DATASETS, DCN, MODELS
from arena_tables import MEANS, NOTE, PAPER_DATASET, PAPER_MODEL, RANK, REGRET, RHO, SCOPES, TOP1_PAPER, WHOSE

from fca.report import kinds, style
from fca.studies.few_class.accuracy import SPREAD
from fca.studies.few_class.correlation import COEFFICIENT, N_SUBSETS, PREDICTOR, SCOPE, TARGET
from fca.studies.few_class.subset_accuracy import SUBSET_SEEDS
from fca.tables import table as columns
from fca.tables.table import DATASET, ENCODER, MODEL, NCL, PROTOCOL, TOP1
from fca.types import Column, Table, interval_columns

MEAN = Column("mean", float, ".2%", TOP1.meaning)  # its "interval" is one standard deviation between subsets
COMPARED = Column("compared", str, "", "what is correlated with accuracy")
NAMES = dict(zip(SCOPES, ("SimSS", "SimSS within ncl", "ncl alone"), strict=True))


def table1(table: Table, title: alt.Title) -> alt.FacetChart:
    """Every cell of Table 1: the paper's number and ours with its interval, one panel for each data set."""
    frame = _both(table.frame[table.frame[PAPER_MODEL] != DCN])
    frame = frame.assign(panel=style.panels(frame, PAPER_DATASET))
    hover = (DATASET, MODEL, WHOSE, *interval_columns(TOP1))
    x = kinds.quantity(alt.X, TOP1, domain=[0, 1], padding=0).axis(format=".2~%", values=[0, 0.25, 0.5, 0.75, 1])
    return _paired(frame, TOP1, x, PAPER_MODEL, list(MODELS), hover, title, columns=5)


def best(table: Table, title: alt.Title) -> alt.FacetChart:
    """Figure 2a: the best of the models on every data set, the paper's and ours."""
    frame = _both(table.frame).assign(panel="all classes", model=None)  # none that a filter could hide
    order = frame[frame[WHOSE] == "paper"].sort_values(TOP1, ascending=False)[PAPER_DATASET].tolist()
    x = kinds.quantity(alt.X, TOP1, "DCN", domain=[0, 1], padding=0)
    return _paired(frame, TOP1, x, PAPER_DATASET, order, (DATASET, WHOSE, *interval_columns(TOP1), NOTE), title)


def ranks(table: Table, title: alt.Title) -> alt.FacetChart:
    """Figure 2b: the rank of every model on every data set, as a heat map; the paper's, and ours where it exists."""
    heading = {"paper": "the paper", "ours": "ours, among the models that have a run"}
    x, y = (
        kinds.category(channel, name, list(names), grid=False).scale(domain=list(names))
        for channel, name, names in ((alt.X, PAPER_DATASET, DATASETS), (alt.Y, PAPER_MODEL, MODELS))
    )
    chart = kinds.heat_map(RANK, x, y, table.columns, (1.0, 10.0), bright_low=True)
    frame = table.frame.assign(panel=table.frame[WHOSE].map(heading))
    return style.faceted(chart, frame, title, (DATASET, MODEL), height=260, columns=1)


def agreement(table: Table, title: alt.Title) -> alt.FacetChart:
    """Spearman's rho of every data set's ranking with ImageNet's."""
    frame = table.frame.assign(panel="up to ten models")
    x, order = kinds.quantity(alt.X, RHO, domain=[-1, 1], padding=0), frame[PAPER_DATASET].drop_duplicates().tolist()
    return _paired(frame, RHO, x, PAPER_DATASET, order, table.columns, title, line=kinds.ZERO)


def regret(table: Table, title: alt.Title) -> alt.FacetChart:
    """What always taking one model costs, over the paper's data sets."""
    frame = table.frame.assign(panel="the paper's ten data sets", whose="paper")
    x = kinds.quantity(alt.X, REGRET, "mean regret", zero=True, padding=0)
    return _paired(frame, REGRET, x, PAPER_MODEL, frame[PAPER_MODEL].tolist(), table.columns, title)


def coefficients(table: Table, title: alt.Title) -> alt.FacetChart:
    """Figure 5: Pearson's r with its interval, the paper's and ours, over all subsets and within ncl, and ncl alone."""
    pairs = zip(table.frame[PREDICTOR], table.frame[SCOPE], strict=True)
    frame = table.frame.assign(**{COMPARED: [NAMES[pair] for pair in pairs], WHOSE: "ours"})
    if "r_paper" in frame:
        published = {f"{name[0]}_paper{name[1:]}": str(name) for name in (*interval_columns(COEFFICIENT), N_SUBSETS)}
        paper = frame.drop(columns=list(published.values())).rename(columns=published).assign(whose="paper")
        frame = pd.concat([paper, frame], ignore_index=True)
    frame = _in_lines(frame.dropna(subset=COEFFICIENT), ENCODER, TARGET)
    hover = (
        DATASET,
        ENCODER,
        TARGET,
        COMPARED,
        WHOSE,
        *interval_columns(COEFFICIENT),
        N_SUBSETS,
        SUBSET_SEEDS,
        columns.MODELS,
    )
    x = kinds.quantity(alt.X, COEFFICIENT, "Pearson's r with accuracy", domain=[-1, 1], padding=0)
    return _paired(frame, COEFFICIENT, x, COMPARED, list(NAMES.values()), hover, title, line=kinds.ZERO, columns=4)


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
    chart = _curves(frame, style.ncl_axis(), MEAN.meaning, kinds.hue(named, known, ordered=True), (MODEL, PROTOCOL))
    drawn = style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL, MODEL), columns=len(present))
    return drawn.resolve_scale(x="independent", xOffset="independent") if len(sets) > 1 else drawn


def dcn(table: Table, title: alt.Title) -> alt.FacetChart:
    """Figures 3 and 4: the best of the models against ncl, one panel for each data set; the paper's on all classes."""
    known = table.frame[table.frame[DATASET].isin(table.frame.dropna(subset=TOP1)[DATASET])]
    paper = [TOP1_PAPER] if TOP1_PAPER in known else []
    frame = known.dropna(subset=[TOP1, *paper], how="all")
    frame = _with_spread(frame.assign(panel=style.panels(frame, DATASET)))
    x = style.ncl_axis().axis(labelOverlap="greedy", labelSeparation=3)
    chart = _curves(frame, x, "DCN", kinds.hue(PROTOCOL, frame), (PROTOCOL, columns.MODELS, *paper))
    if paper:
        mark: Any = alt.Chart().transform_filter(f"isValid(datum.{TOP1_PAPER})")
        mark = mark.mark_point(shape="diamond", size=110, color=kinds.GREY, strokeWidth=2)
        chart += mark.encode(x=x, y=f"{TOP1_PAPER}:Q", tooltip=kinds.tooltips(paper))
    wide = min(5, frame[DATASET].nunique())
    drawn = style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL), height=180, columns=wide)
    return drawn.resolve_scale(x="independent", xOffset="independent", y="independent")


def _curves(frame: pd.DataFrame, x: alt.X, name: str, coloured: kinds.Hue, also: tuple[Column, ...]) -> alt.LayerChart:
    """Means against ncl, joined by lines, with one standard deviation between subsets."""
    hover, y = (DATASET, NCL, *interval_columns(MEAN), *MEANS[1:], *also), kinds.quantity(alt.Y, MEAN, name)
    by, known = str(coloured.column), f"isValid(datum.{MEAN})"
    return kinds.points_with_intervals(MEAN, x, hover, coloured, dodge=by, joined=by, where=known, scale=y, size=60)


def _both(cells: pd.DataFrame) -> pd.DataFrame:
    """The paper's numbers and ours as lines of their own."""
    paper = cells.drop(columns=[*interval_columns(TOP1)]).rename(columns={TOP1_PAPER: TOP1})
    parts = [paper.drop_duplicates([DATASET, MODEL]).assign(whose="paper"), cells.assign(whose="ours")]
    return pd.concat(parts, ignore_index=True).dropna(subset=TOP1)


def _paired(
    frame: pd.DataFrame, value: Column, x: alt.X, y: Column, order: list[str], hover: Any, title: alt.Title, **how: Any
) -> alt.FacetChart:
    """Dots with intervals in rows named by `y`: the paper's diamond above our circle."""
    coloured = kinds.hue(WHOSE, frame, (kinds.GREY, "#d55e00"), ("diamond", "circle"))
    dodge, rows = str(WHOSE) if style.differs(frame[WHOSE]) else None, kinds.category(alt.Y, y, order, bands=True)
    line, columns = how.get("line"), how.get("columns")
    chart = kinds.points_with_intervals(value, rows, hover, coloured, dodge=dodge, line=line, scale=x, size=60)
    filters, height = [name for name in (DATASET, MODEL) if name in frame], max(70, 22 * frame[y].nunique())
    return style.faceted(chart, frame, title, filters, height=height, columns=columns)


def _with_spread(frame: pd.DataFrame) -> pd.DataFrame:
    """With the mean, and one standard deviation between subsets below and above it."""
    top1, sd = frame[TOP1], frame[SPREAD]
    return frame.assign(**{MEAN: top1, MEAN.low: top1 - sd, MEAN.high: (top1 + sd).clip(upper=1)})


def _in_lines(frame: pd.DataFrame, *fields: str) -> pd.DataFrame:
    """With panels whose heading has a line for the data set, if it differs, and one for these fields."""
    panels = style.panels(frame, *fields)
    return frame.assign(panel=frame[DATASET] + "\n" + panels if style.differs(frame[DATASET]) else panels)
