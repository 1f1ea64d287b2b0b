"""The figures of the page. They draw its tables and compute nothing."""

from __future__ import annotations

import altair as alt
import pandas as pd
from cells import THEIRS, WHOSE
from paper import SEGMENTS

from fca.report import style

COLOUR = alt.Scale(domain=list(WHOSE), range=["#7d8590", "#d55e00", "#0072b2"])
SHAPE = alt.Scale(domain=list(WHOSE), range=["diamond", "circle", "square"])
SAYS = alt.Scale(domain=["susceptible", "robust", "neither", "not in table 1"],
                 range=["#d55e00", "#0072b2", "#b9bec6", "#000000"])  # fmt: skip

STATED = alt.Scale(domain=["few", "many", "nothing"], range=["#0072b2", "#d55e00", "#b9bec6"])


def table1(classes: pd.DataFrame) -> alt.FacetChart:
    """How steady each class is under each stored corruption, coloured by what Table 1 calls it."""
    printed = classes.groupby("corruption")["paper"].transform("count") > 0
    frame = classes.assign(panel=style.panels(classes, "corruption"))
    frame["says"] = frame["paper"].fillna("neither").where(printed, "not in table 1").astype(object)
    order = sorted(set(frame["label"]))
    base = alt.Chart().encode(
        y=alt.Y("label:N", title=None, sort=order, axis=alt.Axis(grid=True, ticks=False)),
        color=alt.Color(
            "says:N", scale=SAYS, legend=alt.Legend(title="table 1 says", values=_present(frame["says"], SAYS))
        ),
    )
    told = {"corruption": "", "label": "", "says": "", "instability": ".3f", "instability_low": ".3f"}
    told |= {"instability_high": ".3f", "rank": ".0f", f"rank{THEIRS}": ".0f", "direction": ""}
    x = alt.X("instability:Q", title="instability")
    layers = alt.layer(
        base.mark_rule(strokeWidth=2).encode(x="instability_low:Q", x2="instability_high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=x, tooltip=style.tooltips(told)),
    )
    title = alt.Title(
        "Table 1: do the classes it calls susceptible move most, and the robust ones least?",
        subtitle=[
            "Ours, default way. Instability: how much the class moves between segments; bars: 95 % over its images."
        ],
    )
    return style.faceted(layers, frame, title, (), height=220, columns=min(3, frame["panel"].nunique()))


def table2(table: pd.DataFrame) -> alt.FacetChart:
    """Kendall's tau, the paper's and ours in both ways."""
    names = ["tau", "tau_low", "tau_high"]
    ends = {WHOSE[0]: "_paper", WHOSE[1]: "", WHOSE[2]: THEIRS}
    parts = []
    for whose, end in ends.items():
        columns = {name + end: name for name in names if name + end in table}
        parts.append(table[["corruption", *columns]].rename(columns=columns).assign(whose=whose))
    frame = pd.concat(parts, ignore_index=True).dropna(subset="tau").assign(panel="severity 1")
    legend = alt.Legend(title=None, values=_present(frame["whose"], COLOUR))
    base = alt.Chart().encode(
        y=alt.Y("corruption:N", title=None, sort=table["corruption"].tolist(), axis=alt.Axis(grid=True, ticks=False)),
        yOffset=alt.YOffset("whose:N", scale=alt.Scale(domain=list(WHOSE))),
        color=alt.Color("whose:N", scale=COLOUR, legend=legend),
    )
    told = {"corruption": "", "whose": "", "tau": ".4f", "tau_low": ".4f", "tau_high": ".4f"}
    x = alt.X("tau:Q", title="Kendall's tau of ability with accuracy", scale=alt.Scale(zero=False))
    layers = alt.layer(
        base.transform_filter("isValid(datum.tau_low)").mark_rule(strokeWidth=2).encode(x="tau_low:Q", x2="tau_high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, shape=alt.Shape("whose:N", scale=SHAPE, legend=legend), tooltip=style.tooltips(told)
        ),
    )
    title = alt.Title(
        "Table 2: does ability order the models as accuracy does?",
        subtitle=["Severity 1. Bars: 95 % over models (all snapshots of one together); the paper has no intervals."],
    )
    return style.faceted(layers, frame, title, (), height=26 * frame["corruption"].nunique())


def table3(shares: pd.DataFrame) -> alt.FacetChart:
    """Which share of each segment a subject gets right, as a heat map; the paper, ours, and ours as it did."""
    frame = shares.assign(panel=shares["whose"])
    means = frame.groupby("subject")["share"].mean()
    first = frame["subject"].isin(frame.loc[frame["whose"] == WHOSE[0], "subject"])
    parts = [means[frame.loc[own, "subject"].unique()] for own in (first, ~first)]  # the paper's, then ours
    order = [name for part in parts for name in part.sort_values(ascending=False).index]
    ink = alt.condition("datum.share > 0.55", alt.value("#000000"), alt.value("#ffffff"))
    base = alt.Chart().encode(
        x=alt.X("segment:N", title=None, sort=list(SEGMENTS)),
        y=alt.Y("subject:N", title=None, sort=order),
        tooltip=style.tooltips(
            {"subject": "", "segment": "", "severity": "", "right": ".0f", "n": ".0f", "share": ".1%"}
        ),
    )
    scale = alt.Scale(domain=[0, 1])
    layers = alt.layer(
        base.mark_rect().encode(color=alt.Color("share:Q", scale=scale, legend=None)),
        base.mark_text(fontSize=11).encode(text=alt.Text("share:Q", format=".0%"), color=ink),
    )
    highest = shares["severity"].max()
    ours = "" if pd.isna(highest) else f" Ours: severity {highest}."
    title = alt.Title(
        "Table 3: how much of the easy and of the hard images does each subject solve, under brightness?",
        subtitle=[f"Share of a segment's images that are right.{ours} The paper's counts are divided by 2,500."],
    )
    drawn = style.faceted(layers, frame, title, ("model",), columns=3)
    drawn.spec.height = alt.Step(20)
    return drawn


def figure4(table: pd.DataFrame) -> alt.FacetChart:
    """The share of each class's images in the top and the bottom quarter, in both ways, coloured by the statement."""
    ends = {WHOSE[1]: "", WHOSE[2]: THEIRS}
    names = ["items", "share", "share_low", "share_high"]
    parts = []
    for whose, end in ends.items():
        renamed = {name + end: name for name in names}
        kept = table[["parameter", "quarter", "label", "paper", *renamed]].rename(columns=renamed)
        parts.append(kept.assign(whose=whose))
    frame = pd.concat(parts, ignore_index=True).dropna(subset="share")
    frame = frame.assign(panel=style.panels(frame, "parameter", "quarter"), says=frame["paper"].fillna("nothing"))
    legend = alt.Legend(title=None, values=_present(frame["whose"], COLOUR))
    base = alt.Chart().encode(
        y=alt.Y("label:N", title=None, axis=alt.Axis(grid=True, ticks=False)),
        yOffset=alt.YOffset("whose:N", scale=alt.Scale(domain=list(ends))),
        color=alt.Color(
            "says:N", scale=STATED, legend=alt.Legend(title="the paper states", values=_present(frame["says"], STATED))
        ),
    )
    told = {"parameter": "", "quarter": "", "label": "", "whose": "", "items": ".0f", "share": ".1%", "says": ""}
    x = alt.X("share:Q", title="share of the class's images (a quarter if like all)", axis=style.PERCENT)
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0.25)),
        base.mark_rule(strokeWidth=2).encode(x="share_low:Q", x2="share_high:Q"),
        base.mark_point(filled=True, size=50, opacity=1).encode(
            x=x, shape=alt.Shape("whose:N", scale=SHAPE, legend=legend), tooltip=style.tooltips(told)
        ),
    )
    title = alt.Title(
        "Figure 4: which classes are in the outer quarters of difficulty and discrimination?",
        subtitle=[
            "Clean images. The paper states of the top quarter: few cats, dogs, birds; many ships, trucks, cars."
        ],
    )
    return style.faceted(layers, frame, title, (), height=280, columns=2)


def _present(values: pd.Series, scale: alt.Scale) -> list[str]:
    """In the order of the scale."""
    found = set(values)
    return [name for name in scale.domain if name in found]
