"""Which model is best at each number of classes: the figure and the sentence of the table of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.few_class.figures.answers import MODELS
from fca.types import Table


def ranks_figure(ranks: Table) -> alt.FacetChart:
    """Mean rank of every model at every ncl as a heat map, one panel a protocol."""
    frame = ranks.frame.assign(way=ranks.frame["protocol"].map(style.PROTOCOLS))
    frame["protocol"] = pd.Categorical(frame["protocol"], categories=list(style.PROTOCOLS))
    frame = frame.sort_values(["dataset", "protocol", "ncl"], ignore_index=True).astype({"protocol": "str"})
    frame["panel"] = style.panels(frame, "dataset", "way")
    models = frame["model"].nunique()
    told = {"dataset": "", "model": "", "protocol": "", "ncl": ".0f", "rank": ".2f", "rank_low": ".2f"}
    by_rank = alt.EncodingSortField("rank", op="mean")
    base = alt.Chart().encode(
        x=style.ncl_axis(gap=0.04),
        y=alt.Y(
            "model:N",
            scale=alt.Scale(paddingInner=0.08),
            title=None,
            sort=by_rank,
            axis=alt.Axis(domain=False, ticks=False),
        ),
        tooltip=style.tooltips({**told, "rank_high": ".2f", "subsets": ".0f"}),
    )
    best_is_bright = alt.Scale(domain=[1, max(models, 2)], reverse=True)
    middle = (1 + max(models, 2)) / 2
    layers = alt.layer(
        base.mark_rect().encode(color=alt.Color("rank:Q", scale=best_is_bright, legend=None)),
        base.mark_text(fontSize=12).encode(
            text=alt.Text("rank:Q", format=".1f"),
            color=alt.condition(f"datum.rank > {middle}", alt.value("#ffffff"), alt.value("#000000")),
        ),
    )
    title = alt.Title(
        "Does the best model change with the number of classes?",
        subtitle=["Mean rank of the models over the class subsets; 1 is the most accurate."],
    )
    tall, columns = max(90, 30 * models), frame["protocol"].nunique()
    return style.faceted(layers, frame, title, style.FILTERS, height=tall, columns=columns)


def rank_answers(ranks: pd.DataFrame) -> Iterator[str]:
    """Which model has the best mean rank, protocol by protocol, at which ncl; nothing where there is one model.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2}
    >>> frame = pd.DataFrame([{**line, "model": "a", "rank": 1.2}, {**line, "model": "b", "rank": 1.8}])
    >>> list(rank_answers(frame))
    ['digits: best by mean rank are, among sub-models, a (ncl 2).']
    """
    for dataset, part in ranks.groupby("dataset", sort=False):
        found = [
            f"among {name}, {_best(part[part['protocol'] == protocol])}"
            for protocol, name in MODELS.items()
            if style.differs(part.loc[part["protocol"] == protocol, "model"])
        ]
        if found:
            yield f"{dataset}: best by mean rank are, {'; '.join(found)}."


def _best(ranks: pd.DataFrame) -> str:
    best: dict[str, list[str]] = {}
    for ncl, same in ranks.groupby("ncl"):
        names = " and ".join(same.loc[same["rank"] == same["rank"].min(), "model"].astype(str))
        best.setdefault(names, []).append(str(ncl))
    return ", ".join(f"{names} (ncl {', '.join(ncl)})" for names, ncl in best.items())


PARTS = (Part("ranks", "Ranks of the models", "few_class", ("ranks",), ranks_figure),)
ANSWERS = {"ranks": rank_answers}
