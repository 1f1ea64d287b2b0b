"""Where the spread of accuracies comes from: the figure and the sentence of the table of analysis=variance."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.few_class.figures.answers import MODELS
from fca.studies.few_class.figures.comparison import two_lines
from fca.types import Table

_FROM = {"subset": "draw of the classes", "init": "initialisation", "test": "sampling of test images"}
_ENDS = ("", "_low", "_high")
_TOLD = {
    **dict.fromkeys(("dataset", "model", "protocol", "source"), ""),
    **dict.fromkeys(("sd", "sd_low", "sd_high"), ".2%"),
    "share": ".0%",
    **dict.fromkeys(("ncl", "subsets", "inits", "images"), ".0f"),
    "note": "",
}


def variance_figure(variance: Table) -> alt.FacetChart:
    """The standard deviation of one accuracy by its source, against ncl; one panel a model and protocol."""
    frame = _long(variance.frame).dropna(subset="sd")
    frame = frame.assign(way=frame["protocol"].map(style.PROTOCOLS))
    frame["panel"] = two_lines(frame, "model")
    colours = alt.Scale(domain=list(_FROM.values()), range=["#a9629a", "#b07d00", "#7d8590"])  # not the protocols'
    shapes = alt.Scale(domain=list(_FROM.values()), range=["circle", "diamond", "square"])
    picked = style.picked("source")
    base = alt.Chart().encode(
        y=alt.Y(
            "ncl:O",
            title="ncl, number of classes",
            sort="ascending",
            axis=alt.Axis(grid=True, bandPosition=0, ticks=False),
        ),
        yOffset=alt.YOffset("source:N", scale=alt.Scale(domain=list(_FROM.values()))),
        color=alt.Color("source:N", scale=colours, legend=alt.Legend(title=None)),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
    )
    x = alt.X("sd:Q", title="standard deviation of one accuracy (% points)", axis=_POINTS, scale=_range(frame))
    layers = alt.layer(
        base.transform_filter("isValid(datum.sd_low)")
        .mark_rule(strokeWidth=2, clip=True)
        .encode(x="sd_low:Q", x2="sd_high:Q"),
        base.mark_point(filled=True, size=70)
        .encode(
            x=x, shape=alt.Shape("source:N", scale=shapes, legend=alt.Legend(title=None)), tooltip=style.tooltips(_TOLD)
        )
        .add_params(picked),
    )
    title = alt.Title(
        "What does an accuracy vary with?",
        subtitle=[
            "Standard deviation by source, with its 95 % interval (cut off where it leaves the panel).",
            "Squared, the sources add up to the variance of the accuracy of one run on one subset.",
        ],
    )
    tall = max(110, 48 * frame["ncl"].nunique())
    return style.faceted(layers, frame, title, style.FILTERS, height=tall)


def _range(frame: pd.DataFrame) -> alt.Scale:
    """From 0 to the intervals' ends, but only so far that the dots stay apart: two subsets allow 32 times the dot."""
    end = min(frame["sd_high"].max(), 3 * frame["sd"].max())
    return alt.Scale(domain=[0, end], nice=True) if end > 0 else alt.Scale(domainMin=0)


_POINTS = alt.Axis(grid=True, labelExpr="format(100 * datum.value, '')", tickCount=5)


def _long(frame: pd.DataFrame) -> pd.DataFrame:
    """One line a source."""
    asked = ["dataset", "model", "protocol", "ncl", "subsets", "inits", "images", "note"]
    parts = [
        frame[[*asked, f"share_{name}", *(f"sd_{name}{end}" for end in _ENDS)]]
        .rename(columns={f"share_{name}": "share"} | {f"sd_{name}{end}": f"sd{end}" for end in _ENDS})
        .assign(source=source)
        for name, source in _FROM.items()
    ]
    order = pd.CategoricalDtype(list(style.PROTOCOLS))
    long = pd.concat(parts, ignore_index=True).astype({"protocol": order})
    return long.sort_values(asked[:4], kind="stable", ignore_index=True).astype({"protocol": "str"})


def variance_answers(variance: pd.DataFrame) -> Iterator[str]:
    """Which source has the largest share of the variance, in how many of the models and ncl; by protocol.

    Where init is unknown, the other two have its share: such lines are counted by themselves.

    >>> line = {"dataset": "digits", "protocol": "sub", "share_subset": 0.6, "share_init": 0.3, "share_test": 0.1}
    >>> next(variance_answers(pd.DataFrame([line])))
    'digits: what accuracies of sub-models vary with most is the draw of the classes (1 of 1 models and ncl).'
    """
    shares = [f"share_{name}" for name in _FROM]
    known = variance.dropna(subset="share_subset")
    known = known.assign(several=known["share_init"].notna())
    for (dataset, protocol, several), part in known.groupby(["dataset", "protocol", "several"], sort=False):
        most = part[shares].idxmax(axis="columns").value_counts()
        told = [
            f"the {_FROM[str(name).removeprefix('share_')]} ({n} of {len(part)} models and ncl)"
            for name, n in most.items()
        ]
        alone = "" if several else " where one initialisation leaves its share in both"
        yield f"{dataset}: what accuracies of {MODELS[str(protocol)]} vary with most is {', '.join(told)}{alone}."


PARTS = (Part("variance", "What accuracy varies with", "variance", ("variance",), variance_figure),)
ANSWERS = {"variance": variance_answers}
