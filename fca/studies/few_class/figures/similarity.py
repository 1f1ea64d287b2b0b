"""Figures of class similarity: SimSS against ncl, accuracy against SimSS, and what the correlations are worth."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

_SAYS = {  # (predictor, scope) of the correlation table, in the order drawn
    ("simss", "all"): "SimSS, all subsets",
    ("simss", "within ncl"): "SimSS, among subsets of equal ncl",
    ("ncl", "all"): "ncl alone (baseline)",
}


def similarity_figure(similarity: Table) -> alt.FacetChart:
    """SimSS of every subset against ncl, one panel an encoder."""
    frame = by_encoder(similarity.frame.dropna(subset="simss"))
    told = {"dataset": "", "encoder": "", "ncl": ".0f", "simss": ".4f", "simss_pooled": ".4f", "intra": ".4f"}
    told |= {"inter": ".4f", "nearest_inter": ".4f", "subset_seed": ".0f", "classes": "", "images": ".0f"}
    chart = (
        alt.Chart()
        .mark_point(filled=True, size=80, opacity=0.8)
        .encode(
            x=style.ncl_axis(gap=None),
            y=alt.Y("simss:Q", title="SimSS", scale=alt.Scale(zero=False)),
            color=_ncl_colour(frame, None),
            tooltip=style.tooltips(told),
        )
    )
    title = alt.Title(
        "How alike are the images of the class subsets?",
        subtitle=["One dot a class subset. High SimSS: images resemble their own class more than the nearest other."],
    )
    return style.faceted(chart, frame, title, ("dataset", "ncl"))


def scatter_figure(points: Table, correlation: Table) -> alt.FacetChart:
    """The best accuracy of any model against SimSS, one panel a protocol; each heading gives r, p and n."""
    best = points.frame[points.frame["target"].str.startswith("DCN ")]
    keys = ["dataset", "encoder", "target"]
    pearson = correlation.frame[correlation.frame["method"] == "pearson"]
    told = {key: _told(part) for key, part in pearson.groupby(keys)}
    frame = by_encoder(best)
    where = frame["panel"] + " · " if style.differs(frame["panel"]) else ""
    lines = [told[key] for key in frame[keys].itertuples(index=False, name=None)]
    frame["panel"] = where + frame["target"] + "\n" + pd.Series(lines, index=frame.index)
    picked = style.picked("ncl")
    hover = {"dataset": "", "encoder": "", "target": "", "ncl": ".0f", "simss": ".4f", "top1": ".2%", "model": ""}
    base = alt.Chart().encode(
        x=alt.X("simss:Q", title="SimSS (higher: easier to tell apart)", scale=_OPEN, axis=alt.Axis(tickCount=5)),
        y=alt.Y("top1:Q", title="accuracy of the best model (%)", axis=style.PERCENT, scale=_OPEN),
    )
    layers = alt.layer(
        base.transform_regression("simss", "top1").mark_line(
            strokeDash=[5, 3], color="#8b949e", strokeWidth=1.5, clip=True
        ),
        base.mark_point(filled=True, size=90)
        .encode(
            color=_ncl_colour(frame, alt.Legend(title="ncl, number of classes")),
            shape=style.protocol_shape([]),
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.1)),
            tooltip=style.tooltips({**hover, "subset_seed": ".0f", "classes": ""}),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "Do alike classes make a subset harder?",
        subtitle=[
            "One mark a class subset; dashed: least squares over the marks shown.",
            "r: Pearson's, over all subsets and, below, among subsets of equal ncl.",
        ],
    )
    # not by model, as for DCN; the protocol is the panel
    columns = frame["protocol"].nunique()
    return style.faceted(layers, frame, title, ("dataset", "ncl", "protocol"), columns=columns)


def correlation_figure(correlation: Table, points: Table) -> alt.FacetChart:
    """Every correlation with its interval: SimSS over all subsets, within equal ncl, and ncl alone beside it."""
    frame = _coefficients(correlation.frame, points.frame)
    targets = list(dict.fromkeys(frame["target"]))
    # not the colours of the protocols; these three have 3:1 on white and on black
    colours = alt.Scale(domain=list(_SAYS.values()), range=["#a9629a", "#b07d00", "#7d8590"])
    shapes = alt.Scale(domain=list(_SAYS.values()), range=["circle", "diamond", "square"])
    picked = style.picked("says")
    told = {"dataset": "", "encoder": "", "target": "", "says": "", "method": "", "r": ".3f", "r_low": ".3f"}
    told |= {"r_high": ".3f", "p": ".2g", "n": ".0f", "seeds": ".0f", "models": ".0f"}
    dimmed = alt.condition(picked, alt.value(1.0), alt.value(0.1))
    base = alt.Chart().encode(
        y=alt.Y("target:N", title=None, sort=targets, axis=alt.Axis(grid=True, bandPosition=0, ticks=False)),
        yOffset=alt.YOffset("says:N", scale=alt.Scale(domain=list(_SAYS.values()))),
        color=alt.Color("says:N", scale=colours, legend=alt.Legend(title=None)),
        opacity=dimmed,
    )
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0)),
        base.transform_filter("isValid(datum.r_low)").mark_rule(strokeWidth=2).encode(x="r_low:Q", x2="r_high:Q"),
        base.mark_point(filled=True, size=60)
        .encode(
            x=alt.X("r:Q", title="correlation with accuracy", scale=alt.Scale(domain=[-1, 1]), axis=_HALVES),
            shape=alt.Shape("says:N", scale=shapes, legend=alt.Legend(title=None)),
            tooltip=style.tooltips(told),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "Does similarity tell more than the number of classes?",
        subtitle=[
            "Correlation of each accuracy with SimSS or with ncl, and its 95 % interval over subset seeds.",
            "DCN: the best model of each subset; its interval is over models too.",
        ],
    )
    tall = max(150, 32 * len(targets))
    return style.faceted(layers, frame, title, ("dataset", "model", "protocol"), height=tall)


def _coefficients(frame: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """The defined coefficients to draw, with what they say and the model and protocol of their target."""
    known = points.drop_duplicates("target").set_index("target")
    pairs = zip(frame["predictor"], frame["scope"], strict=True)
    frame = frame.assign(
        says=pd.Series([_SAYS.get(pair) for pair in pairs], index=frame.index, dtype="str"),
        protocol=frame["target"].map(known["protocol"]),
        model=frame["target"].map(known["model"].where(~known.index.str.startswith("DCN "))),
    )
    frame = by_encoder(frame.dropna(subset=["says", "r"]))
    return frame.assign(panel=frame["method"] + (" · " + frame["panel"] if style.differs(frame["panel"]) else ""))


_OPEN = alt.Scale(zero=False, padding=8)
_HALVES = alt.Axis(values=[-1, -0.5, 0, 0.5, 1], grid=True)


def _ncl_colour(frame: pd.DataFrame, legend: alt.Legend | None) -> alt.Color:
    """The named domain keeps every ncl in its colour while a filter hides the others."""
    return alt.Color("ncl:O", scale=alt.Scale(domain=sorted(frame["ncl"].unique().tolist())), legend=legend)


def by_encoder(frame: pd.DataFrame) -> pd.DataFrame:
    """With a `panel` for each data set and encoder, in their order."""
    frame = frame.sort_values(["dataset", "encoder"], kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, "dataset", "encoder"))


def _told(lines: pd.DataFrame) -> str:
    """r, p and n of one target, over all subsets and within equal ncl: the second and third line of its heading."""
    line = {one["scope"]: one for one in lines[lines["predictor"] == "simss"].to_dict("records")}
    return f"{says(line['all'])}\nwithin ncl: {says(line['within ncl'])}"


def says(line: Mapping[Hashable, Any]) -> str:
    """A correlation in words: `r = 0.84, p = 2.1e-05, n = 30`, or that it is undefined."""
    if pd.isna(line["r"]):
        return f"r undefined, n = {line['n']}"
    p = "undefined" if pd.isna(line["p"]) else f"{line['p']:.2g}"
    return f"r = {line['r']:.2f}, p = {p}, n = {line['n']}"


PARTS = (
    Part("similarity", "Similarity of the subsets", "similarity", ("similarity",), similarity_figure),
    Part(
        "simss_accuracy",
        "Similarity and accuracy",
        "correlation",
        ("correlation_points", "correlation"),
        scatter_figure,
    ),
    Part(
        "correlation", "What similarity tells", "correlation", ("correlation", "correlation_points"), correlation_figure
    ),
)
