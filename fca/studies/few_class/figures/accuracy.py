"""Accuracy against the number of classes: figures and headlines of analysis=few_class."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.few_class.accuracy import (
    ACCURACY_MEANS,
    ACCURACY_POINTS,
    DCN,
    GAP,
    RANK,
    RANK_AGREEMENT,
    RANKS,
    RHO,
)
from fca.studies.few_class.findings import FINDING, FINDINGS, MEASURE, MEASURES, NO_EFFECT, UNIT, VALUE
from fca.studies.table import DATASET, MODEL, MODELS, NCL, PROTOCOL, SUBSETS, TOP1
from fca.types import Column, Table, with_interval

NAMES = {
    "sub": "sub-models",
    "open": "open full models",
    "masked": "masked full models",
    "grouped": "grouped full models",
}
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
    frame = pd.concat([part.astype({TOP1: "float64"}) for part in parts], ignore_index=True)
    frame = _in_order(frame, DATASET, MODEL)
    coloured = kinds.hue(PROTOCOL, frame)
    along, mean = style.ncl_axis(), "datum.mark == 'mean'"
    large = kinds.points_with_intervals(
        TOP1, along, means.columns, coloured, dodge=PROTOCOL, joined=PROTOCOL, where=mean
    )
    one = alt.Chart().transform_filter("datum.mark == 'point'").mark_circle(size=28)
    one = one.encode(x=along, xOffset=f"{PROTOCOL}:N", y=f"{TOP1}:Q", tooltip=kinds.tooltips(points.columns))
    one = one.encode(color=coloured.colour(), opacity=coloured.opacity(0.5))
    title = alt.Title(
        "How does accuracy change with the number of classes?",
        subtitle=[f"Small: one class subset. Large: mean of the subsets with its {_INTERVAL}."],
    )
    return style.faceted(kinds.layers(one, large), frame, title, (DATASET, MODEL, NCL, PROTOCOL))


def dcn_figure(dcn: Table) -> alt.FacetChart:
    """The best accuracy of any model on each subset, against ncl; one panel for each data set."""
    frame = _in_order(dcn.frame, DATASET)
    coloured = kinds.hue(PROTOCOL, frame)
    best = kinds.quantity(alt.Y, TOP1, "accuracy of the best model (DCN)")
    chart = kinds.points_with_intervals(
        TOP1, style.ncl_axis(), dcn.columns, coloured, dodge=PROTOCOL, joined=NCL, scale=best
    )
    title = alt.Title(
        "How accurate is the best of the models?",
        subtitle=["One dot a class subset: the best model's accuracy on it (DCN). Hover to see which model that is."],
    )
    return style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL))


def gap_figure(gap: Table) -> alt.FacetChart:
    """Sub-model minus full model, open and masked, against ncl."""
    ends = ("", "_low", "_high")
    parts = [
        gap.frame.rename(columns={f"sub_minus_{way}{end}": f"{_DIFFERENCE}{end}" for end in ends}).assign(protocol=way)
        for way in ("open", "masked")
    ]
    hover = (DATASET, PROTOCOL, NCL, *with_interval(_DIFFERENCE), MODELS, SUBSETS)
    frame = pd.concat(parts, ignore_index=True)[[*hover, "n"]]
    title = alt.Title(
        "How much more accurate are sub-models than full models?",
        subtitle=[
            "Sub-model minus full model on the same class subsets, mean over models and subsets",
            f"with its {_INTERVAL}. Above the line, training on the subset only pays.",
        ],
    )
    return _by_ncl(frame, _DIFFERENCE, hover, title)


def agreement_figure(agreement: Table) -> alt.FacetChart:
    """Spearman's rho between the models' ranking on all classes and on few, against ncl."""
    title = alt.Title(
        "Does the ranking of models on all classes hold for few?",
        subtitle=[f"1: the same order; 0: unrelated. Mean over class subsets with its {_INTERVAL}."],
    )
    return _by_ncl(agreement.frame, RHO, agreement.columns, title, domainMax=1)


def ranks_figure(ranks: Table) -> alt.FacetChart:
    """Mean rank of every model at every ncl as a heat map, one panel for each protocol."""
    frame = by_protocol(ranks.frame)
    models = frame[MODEL].nunique()
    rows = style.names_axis(MODEL, alt.EncodingSortField(RANK, op="mean"))
    worst = float(max(models, 2))
    chart = kinds.heat_map(RANK, style.ncl_axis(gap=0.04), rows, ranks.columns, (1.0, worst), bright_low=True)
    title = alt.Title(
        "Does the best model change with the number of classes?",
        subtitle=["Mean rank of the models over the class subsets; 1 is the most accurate."],
    )
    columns = frame[PROTOCOL].nunique()
    fields = (DATASET, MODEL, NCL, PROTOCOL)
    return style.faceted(chart, frame, title, fields, height=max(90, 30 * models), columns=columns)


def _by_ncl(
    frame: pd.DataFrame, value: Column, hover: tuple[Column, ...], title: alt.Title, **scale: Any
) -> alt.FacetChart:
    """Dots with intervals, coloured by protocol, over a line at 0."""
    frame = _in_order(frame, DATASET)
    axis = kinds.quantity(alt.Y, value, **scale)
    coloured = kinds.hue(PROTOCOL, frame)
    chart = kinds.points_with_intervals(
        value, style.ncl_axis(), hover, coloured, dodge=PROTOCOL, line=kinds.ZERO, scale=axis, size=90
    )
    return style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL))


def by_protocol(frame: pd.DataFrame) -> pd.DataFrame:
    """By data set, protocol in its usual order, and ncl; with a panel for each, and `way`, the protocol in words."""
    order = pd.CategoricalDtype(list(PROTOCOL.choices))
    frame = frame.astype({PROTOCOL: order}).sort_values([DATASET, PROTOCOL, NCL], kind="stable", ignore_index=True)
    frame = frame.astype({PROTOCOL: "str"}).assign(way=frame[PROTOCOL].astype("str").map(dict(PROTOCOL.choices)))
    return frame.assign(panel=style.panels(frame, DATASET, "way"))


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
    for (dataset, verdict), part in gap.groupby([DATASET, "verdict"], sort=False):
        at = ", ".join(_points(line, "open") for line in part.to_dict("records"))
        yield f"{dataset}: {_VERDICTS[str(verdict)]} at ncl {at}; {_unit(part)}."
    for dataset, part in gap.groupby(DATASET, sort=False):
        at = ", ".join(_points(line, "masked") for line in part.to_dict("records"))
        yield f"{dataset!s}: sub-models minus masked full models at ncl {at}; {_unit(part)}."


def _unit(part: pd.DataFrame) -> str:
    """Of the numbers in a sentence; the bootstrap sees only the spread of the subsets that were drawn."""
    fewest = part[SUBSETS].min()
    return f"points, 95 % over {fewest} subsets" + (", too few for a reliable interval" if fewest < FEW else "")


def _points(line: Mapping[Hashable, Any], protocol: str) -> str:
    mean, low, high = (line[f"sub_minus_{protocol}{end}"] for end in ("", "_low", "_high"))
    interval = "one subset" if pd.isna(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{line[NCL]} ({100 * mean:+.1f} {interval})"


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
        names = " and ".join(same.loc[same[RANK] == same[RANK].min(), MODEL].astype(str))
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
    Figure("accuracy", "Accuracy", (ACCURACY_POINTS, ACCURACY_MEANS), accuracy_figure),
    Figure("gap", "Sub-models against full models", (GAP,), gap_figure),
    Figure("dcn", "The best model (DCN)", (DCN,), dcn_figure),
    Figure("ranks", "Ranks of the models", (RANKS,), ranks_figure),
    Figure("rank_agreement", "Ranks on all classes", (RANK_AGREEMENT,), agreement_figure),
    Figure("findings", "Findings of Few-Class Arena", (FINDINGS,), findings_figure),
)
HEADLINES = {GAP.name: gap_headlines, RANKS.name: rank_headlines}
