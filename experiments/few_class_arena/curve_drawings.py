"""The figures of accuracy against the number of classes. They draw tables of curves.py and compute nothing."""

from __future__ import annotations

import altair as alt
import pandas as pd
from drawings import stacked, wide

from fca.report import style

FILTERS = ("dataset", "ncl", "protocol")


def scaling(frame: pd.DataFrame, what: str) -> alt.FacetChart:
    """Figure 1: every model against ncl, one panel a protocol; the bars are the spread between subsets."""
    frame = frame.dropna(subset="top1")
    models = list(dict.fromkeys(frame["model"]))
    frame = stacked(_padded(frame).assign(heading=lambda f: f["protocol"].map(style.PROTOCOLS)), "dataset", "heading")
    picked = style.picked("model")
    told = {"dataset": "", "model": "", "protocol": "", "ncl": ".0f", "top1": ".2%", "spread": ".2%"}
    told |= {"top1_low": ".2%", "top1_high": ".2%", "subsets": ".0f"}
    base = alt.Chart().encode(
        x=style.ncl_axis(),
        xOffset=style.side_by_side("model", models),
        color=alt.Color("model:N", scale=_shades(models), legend=alt.Legend(title=None, columns=5)),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
    )
    y = alt.Y("top1:Q", title="top-1 accuracy (%)", axis=style.PERCENT, scale=alt.Scale(zero=False))
    layers = alt.layer(
        base.mark_line(strokeWidth=1).encode(y=y),
        base.transform_calculate(low="datum.top1 - datum.spread", high="min(1, datum.top1 + datum.spread)")
        .transform_filter("isValid(datum.spread)")
        .mark_rule(strokeWidth=2)
        .encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=50).encode(y="top1:Q", tooltip=style.tooltips(told)).add_params(picked),
    )
    title = alt.Title(
        f"Figure 1{what}",
        subtitle=["Mean over class subsets; bars: one standard deviation between subsets."],
    )
    columns = frame["protocol"].nunique()
    drawn = style.faceted(layers, frame, title, (*FILTERS, "model"), columns=columns)
    return drawn.resolve_scale(x="independent", xOffset="independent") if style.differs(frame["dataset"]) else drawn


def _padded(frame: pd.DataFrame) -> pd.DataFrame:
    """With an empty panel where a data set has no run of a protocol, so that each protocol has its column."""
    protocols = [p for p in style.PROTOCOLS if p in set(frame["protocol"])]
    lines = [
        {**part.iloc[0].to_dict(), "protocol": p, "top1": None, "spread": None}
        for _, part in frame.groupby("dataset", sort=False)
        for p in protocols
        if p not in set(part["protocol"])
    ]
    frame = pd.concat([frame, pd.DataFrame(lines)], ignore_index=True) if lines else frame
    place = {name: i for i, name in enumerate(dict.fromkeys(frame["dataset"]))}
    order = frame["dataset"].map(place) * len(protocols) + frame["protocol"].map(protocols.index)
    return frame.iloc[order.argsort(kind="stable")].reset_index(drop=True)


def dcn_curve(frame: pd.DataFrame, title: alt.Title) -> alt.FacetChart:
    """Figures 3 and 4: the best of the models against ncl, one panel a data set; the paper's number on all classes."""
    paper = "top1_paper" in frame
    there = set(frame.loc[frame["top1"].notna(), "dataset"])
    frame = frame[
        frame["dataset"].isin(there) & (frame["top1"].notna() | (frame["top1_paper"].notna() if paper else False))
    ]
    frame = frame.assign(panel=style.panels(frame, "dataset"))
    present = [protocol for protocol in style.PROTOCOLS if protocol in set(frame["protocol"])]
    picked = style.picked("protocol")
    told = {"dataset": "", "protocol": "", "ncl": ".0f", "top1": ".2%", "spread": ".2%", "top1_low": ".2%"}
    told |= {"top1_high": ".2%", "subsets": ".0f", "models": ".0f", **({"top1_paper": ".2%"} if paper else {})}
    base = alt.Chart().encode(
        x=_sparse(), xOffset=style.side_by_side("protocol", present), color=style.protocol_colour(present)
    )
    ours = base.transform_filter("isValid(datum.top1)")
    y = alt.Y("top1:Q", title="DCN (%)", axis=style.PERCENT, scale=alt.Scale(zero=False))
    dimmed = alt.condition(picked, alt.value(1.0), alt.value(0.1))
    layers = [
        ours.mark_line(strokeWidth=1.5).encode(y=y, opacity=dimmed),
        ours.transform_calculate(low="datum.top1 - datum.spread", high="min(1, datum.top1 + datum.spread)")
        .transform_filter("isValid(datum.spread)")
        .mark_rule(strokeWidth=2)
        .encode(y="low:Q", y2="high:Q", opacity=dimmed),
        ours.mark_point(filled=True, size=60)
        .encode(y="top1:Q", shape=style.protocol_shape(present), opacity=dimmed, tooltip=style.tooltips(told))
        .add_params(picked),
    ]
    if paper:
        whole = alt.Chart().transform_filter("isValid(datum.top1_paper)").encode(x=_sparse())
        mark = whole.mark_point(shape="diamond", size=110, color="#7d8590", strokeWidth=2)
        layers.append(mark.encode(y=alt.Y("top1_paper:Q"), tooltip=style.tooltips({"top1_paper": ".2%"})))
    columns = min(5, len(set(frame["panel"])))
    drawn = style.faceted(alt.layer(*layers), frame, title, FILTERS, height=180, columns=columns)
    wide(drawn, {1: 560, 2: 400, 3: 290}.get(columns, 210))
    apart: alt.FacetChart = drawn.resolve_scale(x="independent", xOffset="independent", y="independent")
    return apart


def _sparse() -> alt.X:
    """Numbers of classes without labels that would run into each other."""
    return style.ncl_axis().axis(labelOverlap="greedy", labelSeparation=3)


def _shades(models: list[str]) -> alt.Scale:
    return alt.Scale(domain=models, scheme=alt.SchemeParams("viridis", extent=[0, 0.85]))
