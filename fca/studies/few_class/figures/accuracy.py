"""Accuracy against the number of classes: figures and headlines of analysis=few_class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.few_class import accuracy as tables
from fca.studies.few_class.findings import FINDING, FINDINGS, MEASURE, MEASURES, NO_EFFECT, UNIT, VALUE
from fca.studies.table import DATASET, MODEL, MODELS, NCL, PROTOCOL, SUBSETS, TOP1
from fca.types import Column, Table, with_interval

NAMES = {"sub": "sub-models"} | {way: f"{way} full models" for way in ("open", "masked", "grouped")}
FEW = 5  # subsets at each ncl, or data sets: fewer make an interval unreliable
_INTERVAL = "95 % interval over subset seeds"
_DIFFERENCE = Column("difference", float, "+.2%", "sub-model minus full model")
_VERDICTS = {
    "sub-models above open full models": "sub-models are more accurate than open full models",
    "not above": "sub-models are not more accurate than open full models",
    "cannot tell": "the difference between sub-models and open full models is not significant",
}


def accuracy_figure(points: Table, means: Table) -> alt.FacetChart:
    """Accuracy of every model against ncl: single subsets, their mean and its interval, one panel for each model."""
    parts = [points.frame.assign(mark="point"), means.frame.assign(mark="mean")]
    frame = _in_order(pd.concat([part.astype({TOP1: "float64"}) for part in parts]), DATASET, MODEL)
    coloured, along, mean = kinds.hue(PROTOCOL, frame), style.ncl_axis(), "datum.mark == 'mean'"
    large = kinds.points_with_intervals(
        TOP1, along, means.columns, coloured, dodge=PROTOCOL, joined=PROTOCOL, where=mean
    )
    one = alt.Chart().transform_filter("datum.mark == 'point'").mark_circle(size=28)
    one = one.encode(x=along, xOffset=f"{PROTOCOL}:N", y=f"{TOP1}:Q", tooltip=kinds.tooltips(points.columns))
    one = one.encode(color=coloured.colour(), opacity=coloured.opacity(0.5))
    title = style.title(
        "How does accuracy change with the number of classes?",
        f"Small: one class subset. Large: mean of the subsets with its {_INTERVAL}.",
    )
    return style.faceted(kinds.layers(one, large), frame, title, (DATASET, MODEL, NCL, PROTOCOL))


def dcn_figure(dcn: Table) -> alt.FacetChart:
    """The best accuracy of any model on each subset, against ncl; one panel for each data set."""
    title = style.title(
        "How accurate is the best of the models?",
        "One dot a class subset: the best model's accuracy on it (DCN). Hover to see which model that is.",
    )
    best = kinds.quantity(alt.Y, TOP1, "accuracy of the best model (DCN)")
    return _by_ncl(dcn.frame, TOP1, dcn.columns, title, best, joined=NCL)


def gap_figure(gap: Table) -> alt.FacetChart:
    """Sub-model minus full model, open and masked, against ncl."""
    hover = (DATASET, PROTOCOL, NCL, *with_interval(_DIFFERENCE), MODELS, SUBSETS)
    parts = []
    for way, column in (("open", tables.SUB_MINUS_OPEN), ("masked", tables.SUB_MINUS_MASKED)):
        names = dict(zip(with_interval(column), with_interval(_DIFFERENCE), strict=True))
        parts.append(gap.frame.rename(columns=names).assign(protocol=way)[[*hover, tables.N_PAIRS]])
    title = style.title(
        "How much more accurate are sub-models than full models?",
        "Sub-model minus full model on the same class subsets, mean over models and subsets",
        f"with its {_INTERVAL}. Above the line, training on the subset only pays.",
    )
    axis = kinds.quantity(alt.Y, _DIFFERENCE)
    return _by_ncl(pd.concat(parts), _DIFFERENCE, hover, title, axis, line=kinds.ZERO, size=90)


def agreement_figure(agreement: Table) -> alt.FacetChart:
    """Spearman's rho between the models' ranking on all classes and on few, against ncl."""
    title = style.title(
        "Does the ranking of models on all classes hold for few?",
        f"1: the same order; 0: unrelated. Mean over class subsets with its {_INTERVAL}.",
    )
    axis = kinds.quantity(alt.Y, tables.RHO, domainMax=1)
    return _by_ncl(agreement.frame, tables.RHO, agreement.columns, title, axis, line=kinds.ZERO, size=90)


def ranks_figure(ranks: Table) -> alt.FacetChart:
    """Mean rank of every model at every ncl as a heat map, one panel for each protocol."""
    frame = by_protocol(ranks.frame)
    title = style.title(
        "Does the best model change with the number of classes?",
        "Mean rank of the models over the class subsets; 1 is the most accurate.",
    )
    worst = float(max(frame[MODEL].nunique(), 2))
    return models_by_ncl(frame, tables.RANK, ranks.columns, title, (1.0, worst), best_low=True)


def models_by_ncl(
    frame: pd.DataFrame,
    value: Column,
    hover: tuple[Column, ...],
    title: alt.Title,
    domain: tuple[float, float],
    best_low: bool = False,
) -> alt.FacetChart:
    """A heat map of every model, the best at the top and bright, at every ncl; one panel for each protocol."""
    order: Any = "ascending" if best_low else "descending"
    rows = style.names_axis(MODEL, alt.EncodingSortField(value, op="mean", order=order))
    chart = kinds.heat_map(value, style.ncl_axis(gap=0.04), rows, hover, domain, bright_low=best_low)
    fields, tall = (DATASET, MODEL, NCL, PROTOCOL), max(90, 30 * frame[MODEL].nunique())
    return style.faceted(chart, frame, title, fields, height=tall, columns=frame[PROTOCOL].nunique())


def _by_ncl(
    frame: pd.DataFrame, value: Column, hover: tuple[Column, ...], title: alt.Title, axis: Any, **look: Any
) -> alt.FacetChart:
    """Dots with intervals, coloured by protocol; one panel for each data set."""
    frame = _in_order(frame, DATASET)
    coloured, along = kinds.hue(PROTOCOL, frame), style.ncl_axis()
    chart = kinds.points_with_intervals(value, along, hover, coloured, dodge=PROTOCOL, scale=axis, **look)
    return style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL))


def by_protocol(frame: pd.DataFrame, *fields: str, below: bool = False) -> pd.DataFrame:
    """By data set, protocol in its usual order, and ncl, with a panel for each of these fields and the protocol.

    way: the protocol in words; they are long, and stand `below` the others in the heading of the panel.
    """
    ways = pd.Categorical(frame[PROTOCOL].map(PROTOCOL.choices), list(PROTOCOL.choices.values()))
    frame = frame.assign(way=ways).sort_values([DATASET, "way", NCL], kind="stable", ignore_index=True)
    frame = frame.astype({"way": "str"})
    panels = list(style.panels(frame, DATASET, *fields, "way"))
    if below:
        panels = [panel.replace(f" · {way}", f"\n{way}") for panel, way in zip(panels, frame["way"], strict=True)]
    return frame.assign(panel=panels)


def _in_order(frame: pd.DataFrame, *fields: str) -> pd.DataFrame:
    """With a `panel` of these fields, panels in their order."""
    frame = frame.sort_values([*fields, NCL], kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, *fields))


def gap_headlines(gap: pd.DataFrame) -> Iterator[str]:
    """Whether sub-models beat open full models, verdict by verdict, and how they compare with masked ones.

    >>> line = {"dataset": "digits", "ncl": 2, "subsets": 9, "verdict": "not above"}
    >>> line |= {"sub_minus_open": -0.041, "sub_minus_open_low": -0.08, "sub_minus_open_high": -0.002}
    >>> print(next(gap_headlines(pd.DataFrame([line]))))
    digits: sub-models are not more accurate than open full models at ncl 2 (-4.1 [-8.0, -0.2]); points, 95 % over 9 \
subsets.
    """
    for (dataset, verdict), part in gap.groupby([DATASET, tables.VERDICT], sort=False):
        yield f"{dataset}: {_VERDICTS[str(verdict)]} at ncl {_points(part, tables.SUB_MINUS_OPEN)}."
    for dataset, part in gap.groupby(DATASET, sort=False):
        yield f"{dataset!s}: sub-models minus masked full models at ncl {_points(part, tables.SUB_MINUS_MASKED)}."


def _points(part: pd.DataFrame, column: Column) -> str:
    """A difference at each ncl, and its unit; the bootstrap sees only the spread of the subsets that were drawn."""
    at = []
    for ncl, mean, low, high in part[[NCL, *with_interval(column)]].itertuples(index=False):
        interval = "one subset" if pd.isna(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
        at.append(f"{ncl} ({100 * mean:+.1f} {interval})")
    fewest = part[SUBSETS].min()
    few = ", too few for a reliable interval" if fewest < FEW else ""
    return f"{', '.join(at)}; points, 95 % over {fewest} subsets{few}"


def rank_headlines(ranks: pd.DataFrame) -> Iterator[str]:
    """Which model has the best mean rank, protocol by protocol, at which ncl; nothing where there is one model.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2}
    >>> frame = pd.DataFrame([{**line, "model": "a", "rank": 1.2}, {**line, "model": "b", "rank": 1.8}])
    >>> list(rank_headlines(frame))
    ['digits: best by mean rank among sub-models: a (ncl 2).']
    """
    for dataset, part in ranks.groupby(DATASET, sort=False):
        for protocol, name in NAMES.items():
            models = part[part[PROTOCOL] == protocol]
            if style.differs(models[MODEL]):
                yield f"{dataset}: best by mean rank among {name}: {_best(models)}."


def _best(ranks: pd.DataFrame) -> str:
    best: dict[str, list[str]] = {}
    for ncl, same in ranks.groupby(NCL):
        names = " and ".join(same.loc[same[tables.RANK] == same[tables.RANK].min(), MODEL].astype(str))
        best.setdefault(names, []).append(str(ncl))
    return ", ".join(f"{names} (ncl {', '.join(ncl)})" for names, ncl in best.items())


def findings_figure(findings: Table) -> alt.FacetChart:
    """Every measure with its interval, one panel for each data set and unit, over a line where there is no effect."""
    frame = findings.frame.assign(words=findings.frame[UNIT].map(dict(UNIT.choices)))
    frame["panel"] = style.panels(frame, DATASET, "words")
    order = [what for what, _ in MEASURES.values()]
    along = kinds.category(alt.Y, MEASURE, order, labelLimit=480)
    axis = kinds.quantity(alt.X, VALUE, "")
    chart = kinds.points_with_intervals(VALUE, along, findings.columns, scale=axis, line=str(NO_EFFECT))
    title = style.title(
        "Do the findings of Few-Class Arena hold here?",
        "Mean over class subsets with its 95 % interval over subset seeds; dashed: no effect.",
    )
    drawn = style.faceted(chart, frame, title, (DATASET, FINDING), columns=1, row=24)
    return drawn.resolve_scale(x="independent", y="independent")


FIGURES = (
    Figure("accuracy", "Accuracy", (tables.ACCURACY_POINTS, tables.ACCURACY_MEANS), accuracy_figure),
    Figure("gap", "Sub-models against full models", (tables.GAP,), gap_figure),
    Figure("dcn", "The best model (DCN)", (tables.DCN,), dcn_figure),
    Figure("ranks", "Ranks of the models", (tables.RANKS,), ranks_figure),
    Figure("rank_agreement", "Ranks on all classes", (tables.RANK_AGREEMENT,), agreement_figure),
    Figure("findings", "Findings of Few-Class Arena", (FINDINGS,), findings_figure),
)
HEADLINES = {tables.GAP.name: gap_headlines, tables.RANKS.name: rank_headlines}
