"""Fitted images: the plane of difficulty and discrimination, what severities change, and item curves."""

from __future__ import annotations

import altair as alt

from fca.report import style
from fca.report.part import Part
from fca.types import Table

_RIDGE = 0.9  # of the distance between severities, at the highest bin of a panel
FEW = 4  # corruptions whose histograms are drawn tall
_PERCENT = alt.Axis(format=".0%", tickCount=5)


def plane_figure(plane: Table) -> alt.FacetChart:
    """Discrimination against difficulty of sampled items, coloured by how high the chance of the best can be."""
    frame = plane.frame
    fields = ("dataset", "corruption") if style.differs(frame["corruption"]) else ("corruption", "dataset")
    frame = frame.assign(panel=style.panels(frame, *fields))
    coloured = " or ".join(dict.fromkeys(frame["ceiling_is"]))
    told = {"dataset": "", "corruption": "", "severity": ".0f", "item": "", "label": "", "difficulty": ".2f"}
    told |= {"discrimination": ".2f", "ceiling_is": "", "ceiling": ".2f", "top1": ".0%"}
    colour = alt.Color(
        "ceiling:Q",
        scale=alt.Scale(domain=[0, 1], range="ordinal"),
        legend=alt.Legend(title=coloured, gradientLength=200),
    )
    chart = (
        alt.Chart()
        .mark_circle(size=28, opacity=0.7)
        .encode(
            x=alt.X("difficulty:Q", title="difficulty", scale=alt.Scale(zero=False)),
            y=alt.Y("discrimination:Q", title="discrimination"),
            color=colour,
            tooltip=style.tooltips(told),
        )
    )
    title = alt.Title(
        "Are hard images the ones that tell models apart?",
        subtitle=[
            "One dot an image, of a sample; the darker, the smaller the chance of even the best.",
            "p_max: the chance of the ablest subject; feasibility: the highest chance that any ability reaches.",
        ],
    )
    return style.faceted(chart, frame, title, ("dataset", "corruption"), height=280)


def severity_figure(severity: Table) -> alt.FacetChart:
    """Histograms of the parameters, one below the other by severity; one panel a corruption and parameter."""
    frame = severity.frame
    shifted = frame.loc[frame["corruption"] != "clean", "dataset"]
    frame = frame[(frame["corruption"] != "clean") | ~frame["dataset"].isin(shifted)]  # they have clean images too
    panel = style.panels(frame, "dataset", "corruption", "parameter")
    highest = frame.groupby(panel, sort=False)["share"].transform("max")
    frame = frame.assign(panel=panel, ridge=frame["severity"] - _RIDGE * frame["share"] / highest)
    levels = sorted(frame["severity"].unique().tolist())
    told = {"dataset": "", "corruption": "", "parameter": "", "severity": ".0f", "bin_low": ".2f", "bin_high": ".2f"}
    ticks = alt.Axis(values=levels, labelExpr="datum.value == 0 ? 'clean' : datum.value", format=".0f", domain=False)
    scale = alt.Scale(domain=[levels[0] - 1, levels[-1] + 0.1], reverse=True, nice=False, zero=False)
    chart = (
        alt.Chart()
        .mark_rect(stroke=None)
        .encode(
            x=alt.X("bin_low:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=5)),
            x2="bin_high:Q",
            y=alt.Y("ridge:Q", title="severity", axis=ticks, scale=scale),
            y2="severity:Q",
            color=alt.Color("severity:O", legend=None),
            tooltip=style.tooltips({**told, "share": ".1%"}),
        )
    )
    asked = "What does a corruption change as it gets more severe?" if len(levels) > 1 else "How hard, how telling?"
    title = alt.Title(
        asked,
        subtitle=["Share of images at each value, severity by severity; the outer bins hold what lies beyond."],
    )
    tall = 60 + (34 if frame["corruption"].nunique() <= FEW else 20) * len(levels)
    drawn = style.faceted(chart, frame, title, ("dataset", "corruption"), height=tall, columns=3)
    own: alt.FacetChart = drawn.resolve_scale(x="independent")  # parameters have their own units
    return own


def curves_figure(curves: Table) -> alt.FacetChart:
    """Item curves, and dots where groups of subjects were; hovering leaves one item."""
    frame = curves.frame
    [trait, *_] = frame["trait"]
    frame = frame.assign(panel=style.panels(frame, "dataset"))
    hovered = alt.selection_point(name="hovered_item", fields=["item"], on="pointerover", clear="pointerout")
    told = {"dataset": "", "item": "", "label": "", "difficulty": ".2f", "discrimination": ".2f", "ability": ".2f"}
    tips = style.tooltips({**told, "probability": ".0%", "n_subjects": ".0f"})
    base = alt.Chart().encode(
        x=alt.X("ability:Q", title=trait, scale=alt.Scale(zero=False, nice=False)),
        y=alt.Y("probability:Q", title="chance of a right answer", axis=_PERCENT, scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("place:O", legend=None),
        detail="item:N",
        tooltip=tips,
    )
    layers = alt.layer(
        base.transform_filter("datum.mark == 'curve'")
        .mark_line(strokeWidth=2.5)
        .encode(opacity=alt.condition(hovered, alt.value(0.9), alt.value(0.08)))
        .add_params(hovered),
        base.transform_filter("datum.mark == 'observed'")
        .mark_point(filled=True, size=45)
        .encode(opacity=alt.condition(hovered, alt.value(0.8), alt.value(0.05))),
    )
    title = alt.Title(
        "Do the fitted curves follow the answers?",
        subtitle=[
            "Lines: the fitted chance of a right answer, of images from easy (dark) to hard. Dots: share of right",
            f"answers in groups of subjects of like {trait}. Hover over a line to see its image alone.",
        ],
    )
    return style.faceted(layers, frame, title, ("dataset",), height=340)


PARTS = (
    Part("irt_plane", "Difficulty and discrimination", "irt", ("irt_plane",), plane_figure),
    Part("irt_severity", "What severity changes", "irt", ("irt_severity",), severity_figure),
    Part("irt_curves", "Item curves", "irt", ("irt_curves",), curves_figure),
)
