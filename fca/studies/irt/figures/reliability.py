"""Whether ability orders models as accuracy does under every corruption: figure and sentence."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

PAPER_SEVERITY = 1


def reliability_figure(reliability: Table) -> alt.FacetChart:
    """Kendall's tau with its interval of every corruption and severity; severity 1 as a diamond."""
    frame = reliability.frame.dropna(subset="tau").reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, "dataset"))
    levels = sorted(frame["severity"].unique().tolist())
    middle = levels[(len(levels) - 1 + (0 in levels)) // 2]  # clean is alone in its row
    frame["slot"] = frame["severity"].where(frame["severity"] > 0, middle)
    rows = sorted(frame["corruption"].unique(), key=lambda kind: (kind != "clean", kind))
    shapes = ["diamond" if level == PAPER_SEVERITY else "circle" for level in levels]
    legend = alt.Legend(title="severity", labelExpr="datum.value == 0 ? 'clean' : datum.label")
    colour = alt.Color("severity:O", scale=alt.Scale(domain=levels), legend=legend)
    base = alt.Chart().encode(
        y=alt.Y("corruption:N", title=None, sort=rows, axis=alt.Axis(grid=True, ticks=False)),
        yOffset=alt.YOffset("slot:O", scale=alt.Scale(domain=[level for level in levels if level] or levels)),
        color=colour,
    )
    told = {"dataset": "", "corruption": "", "severity": ".0f", "irt_model": "", "tau": ".4f", "tau_low": ".4f"}
    told |= {"tau_high": ".4f", "n_subjects": ".0f", "n_models": ".0f", "n_items": ".0f"}
    layers = alt.layer(
        base.transform_filter("isValid(datum.tau_low)").mark_rule(strokeWidth=2).encode(x="tau_low:Q", x2="tau_high:Q"),
        base.mark_point(filled=True, opacity=1, size=70).encode(
            x=alt.X("tau:Q", title="Kendall's tau of ability with accuracy", scale=alt.Scale(zero=False)),
            shape=alt.Shape("severity:O", scale=alt.Scale(domain=levels, range=shapes), legend=legend),
            tooltip=style.tooltips(told),
        ),
    )
    title = alt.Title(
        "Does ability order the models as accuracy does?",
        subtitle=[
            "Every corruption and severity has a fit of its own; bars: 95 %, by resampling models.",
            "Diamonds: the severity of the paper's table.",
        ],
    )
    drawn = style.faceted(layers, frame, title, ("dataset", "corruption"))
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    own.spec.height, own.align = alt.Step(10, **{"for": "offset"}), "each"
    return own


def reliability_answers(reliability: pd.DataFrame) -> Iterator[str]:
    """The range of tau at severity 1, as in the paper's table, and at all severities.

    >>> line = {"dataset": "zoo", "corruption": "fog", "severity": 1, "tau": 0.97}
    >>> list(reliability_answers(pd.DataFrame([line, {**line, "severity": 5, "tau": 0.9}])))
    ['zoo: tau of ability with accuracy is 0.970 (fog) at severity 1, and 0.900 to 0.970 at all of them.']
    """
    shifted = reliability[reliability["severity"] > 0].dropna(subset="tau")
    for dataset, part in shifted.groupby("dataset", sort=False):
        first = part[part["severity"] == PAPER_SEVERITY].sort_values("tau", kind="stable")
        ends = first.iloc[[0, -1]] if len(first) > 1 else first
        named = " to ".join(f"{line['tau']:.3f} ({line['corruption']})" for line in ends.to_dict("records"))
        at = f"{named} at severity {PAPER_SEVERITY}, and " if len(first) else ""
        every = f"{part['tau'].min():.3f} to {part['tau'].max():.3f} at all of them"
        yield f"{dataset}: tau of ability with accuracy is {at}{every}."


PARTS = (Part("reliability", "Ability and accuracy", "reliability", ("reliability",), reliability_figure),)
ANSWERS = {"reliability": reliability_answers}
