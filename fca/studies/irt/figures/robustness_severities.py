"""The outer segments of every class while a corruption grows, a line a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.irt.figures.robustness import TWO, VERDICTS, as_written, ends_only
from fca.types import Table

GAP = 0.075  # between names at the ends of lines, as a share of the panel's height


def difficulty_figure(shown: Table) -> alt.FacetChart:
    """The share of each class's images in the easy and the hard segment at every severity."""
    title = "Do easy images stay easy?"
    return _severities(shown, title, {"easy": "easy", "hard": "hard"}, "segment")


def discrimination_figure(shown: Table) -> alt.FacetChart:
    """The share of each class's images in the least and the most discriminating quarter at every severity."""
    title = "Do images still tell models apart?"
    return _severities(shown, title, {"low": "low discrimination", "high": "high discrimination"}, "quarter")


def _severities(shown: Table, title: str, segments: Mapping[str, str], noun: str) -> alt.FacetChart:
    """A line a class over severities, named where it has a verdict; one panel a corruption and segment."""
    frame = shown.frame.assign(part=shown.frame["segment"].map(segments))
    frame = frame.sort_values(["dataset", "corruption"], kind="stable", ignore_index=True)
    frame["panel"] = style.panels(frame, "dataset", "corruption", "part")
    kinds = frame[["dataset", "corruption"]].drop_duplicates().itertuples(index=False, name=None)
    order = [(*kind, part) for kind in kinds for part in segments]
    at = [order.index(key) for key in frame[["dataset", "corruption", "segment"]].itertuples(index=False, name=None)]
    frame = _named_ends(frame.assign(at=at).sort_values("at", kind="stable", ignore_index=True))
    last = int(frame["severity"].max())
    scale = alt.Scale(domain=[int(frame["severity"].min()), 1.45 * last], nice=False)
    axis = alt.Axis(values=sorted(frame["severity"].unique().tolist()), format=".0f", grid=False)
    told = {**dict.fromkeys(("dataset", "corruption", "segment", "label", "verdict"), ""), "share": ".1%"}
    told |= {**dict.fromkeys(("severity", "items", "images", "rank"), ".0f")}
    colour = alt.Color("verdict:N", scale=TWO, legend=alt.Legend(title=None, values=list(VERDICTS)))
    base = alt.Chart().encode(x=alt.X("severity:Q", title=None, scale=scale, axis=axis), detail="label:N")
    y = alt.Y("share:Q", title="share of the class's images", axis=style.PERCENT)
    layers = alt.layer(
        base.transform_filter("!isValid(datum.verdict)")
        .mark_line(color="#7d8590", opacity=0.45, strokeWidth=1.2, point={"color": "#7d8590", "size": 14})
        .encode(y=y, tooltip=style.tooltips(told)),
        base.transform_filter("isValid(datum.verdict)")
        .mark_line(strokeWidth=2.2, point={"size": 26})
        .encode(y=y, color=colour, tooltip=style.tooltips(told)),
        base.transform_filter("isValid(datum.name_at)")
        .mark_text(align="left", dx=7, fontSize=11)
        .encode(y="name_at:Q", text="label:N", color=colour),
    )
    cut = "cut at each severity by itself" if shown.parameters.get("compat") else "cut on clean images"
    subtitle = [
        f"Share of each class's images in the {noun}, {cut}, by severity (0 = clean).{ends_only(frame)}",
        f"Named: the two most susceptible and the two most robust classes{as_written(shown.parameters)}.",
    ]
    columns = 4 if len(order) > 2 else 2
    drawn: alt.FacetChart = style.faceted(
        layers, frame, alt.Title(title, subtitle=subtitle), ("dataset", "corruption"), height=190, columns=columns
    )
    own: alt.FacetChart = drawn.resolve_axis(x="independent")
    return own


def _named_ends(frame: pd.DataFrame) -> pd.DataFrame:
    """name_at: the height of the name of a line at its end, moved up where names would cover each other."""
    gap = GAP * float(frame["share"].max())
    ends = frame[(frame["severity"] == frame["severity"].max()) & frame["verdict"].notna()]
    heights: dict[Any, float] = {}
    for _, part in ends.sort_values("share").groupby("panel"):
        above = -gap
        for index, share in part["share"].items():
            above = max(float(share), above + gap)
            heights[index] = above
    return frame.assign(name_at=pd.Series(heights, dtype=float).reindex(frame.index))


PARTS = (
    Part(
        "class_severity_difficulty",
        "Easy and hard images by severity",
        "class_robustness",
        ("class_severity_difficulty",),
        difficulty_figure,
    ),
    Part(
        "class_severity_discrimination",
        "Discriminating images by severity",
        "class_robustness",
        ("class_severity_discrimination",),
        discrimination_figure,
    ),
)
