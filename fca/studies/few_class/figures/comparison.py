"""Which models differ, and how firm their order is: figures and sentences of the tables of analysis=comparison."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.few_class.figures.answers import MODELS
from fca.types import Table

_NO_MODEL = ("dataset", "ncl", "protocol")  # a pair has two models
_SAYS = {True: "told apart", False: "not told apart", None: "no test: answers are not stored, or one draw"}
_TOLD = {
    **dict.fromkeys(("dataset", "protocol", "pair"), ""),
    "order_kept": ".0%",
    **dict.fromkeys(("p", "p_holm"), ".2g"),
    **dict.fromkeys(("difference", "difference_low", "difference_high"), "+.2%"),
    **dict.fromkeys(("ncl", "images", "only_a_right", "only_b_right", "subsets", "seeds"), ".0f"),
    **dict.fromkeys(("more_seeds", "more_seeds_low", "more_seeds_high"), ".0f"),
    "note": "",
}
_POINTS = alt.Axis(grid=True, labelExpr="datum.value == 0 ? '0' : format(100 * datum.value, '+')", tickCount=5)


def paired_figure(paired: Table) -> alt.FacetChart:
    """Every pair's difference in accuracy with its interval, one panel an ncl (down) and protocol (across)."""
    frame = _in_order(paired.frame).sort_values(["dataset", "ncl"], kind="stable", ignore_index=True)
    apart = [_SAYS[value] for value in style.cells(frame["told_apart"])]
    frame = frame.assign(pair=frame["model_a"] + " - " + frame["model_b"], says=apart)
    frame["panel"] = two_lines(frame.assign(ncl="ncl " + frame["ncl"].astype(str)), "ncl")
    colours = alt.Scale(domain=list(_SAYS.values()), range=["#b0568f", "#7d8590", "#b07d00"])
    shapes = alt.Scale(domain=list(_SAYS.values()), range=["circle", "diamond", "square"])
    legend = alt.Legend(title=None, values=[text for text in _SAYS.values() if text in set(apart)])
    picked = style.picked("says")
    base = alt.Chart().encode(
        y=alt.Y("pair:N", title=None, sort=list(dict.fromkeys(frame["pair"])), axis=alt.Axis(grid=True, ticks=False)),
        color=alt.Color("says:N", scale=colours, legend=legend),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
    )
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0)),
        base.transform_filter("isValid(datum.difference_low)")
        .mark_rule(strokeWidth=2)
        .encode(x="difference_low:Q", x2="difference_high:Q"),
        base.mark_point(filled=True, size=80)
        .encode(
            x=alt.X("difference:Q", title="first minus second model (% points)", axis=_POINTS),
            shape=alt.Shape("says:N", scale=shapes, legend=legend),
            tooltip=style.tooltips(_TOLD),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "Which models differ on the same images?",
        subtitle=[
            "Difference in accuracy on the same class subsets, with its 95 % interval. Told apart: McNemar's test,",
            "corrected for the number of pairs (Holm), finds a difference, and the interval leaves out 0.",
        ],
    )
    drawn = style.faceted(layers, frame, title, _NO_MODEL, columns=frame["protocol"].nunique())
    own: alt.FacetChart = drawn.resolve_scale(y="independent")  # panels have their own pairs, and as tall as they need
    own.spec.height, own.align = alt.Step(24), "each"
    return own


def stability_figure(stability: Table) -> alt.FacetChart:
    """The chance of every model to be the best at every ncl as a heat map, one panel a protocol."""
    frame = _in_order(stability.frame.dropna(subset="p_best"))
    frame["panel"] = two_lines(frame)
    told = {"dataset": "", "model": "", "protocol": "", "ncl": ".0f", "p_best": ".0%", "rank": ".1f"}
    told |= {"rank_low": ".1f", "rank_high": ".1f", "kendall_w": ".2f", "subsets": ".0f"}
    base = alt.Chart().encode(
        x=style.ncl_axis(gap=0.04),
        y=alt.Y(
            "model:N",
            title=None,
            sort=alt.EncodingSortField("p_best", op="mean", order="descending"),
            scale=alt.Scale(paddingInner=0.08),
            axis=alt.Axis(domain=False, ticks=False),
        ),
        tooltip=style.tooltips(told),
    )
    layers = alt.layer(
        base.mark_rect().encode(color=alt.Color("p_best:Q", scale=alt.Scale(domain=[0, 1]), legend=None)),
        base.mark_text(fontSize=12).encode(
            text=alt.Text("p_best:Q", format=".0%"),
            color=alt.condition("datum.p_best < 0.5", alt.value("#ffffff"), alt.value("#000000")),
        ),
    )
    title = alt.Title(
        "Would other draws of the classes have another winner?",
        subtitle=["How often each model has the best mean accuracy, over bootstrap resamples of the subset seeds."],
    )
    tall, columns = max(90, 30 * frame["model"].nunique()), frame["protocol"].nunique()
    return style.faceted(layers, frame, title, style.FILTERS, height=tall, columns=columns)


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """By data set, protocol in its usual order, and ncl."""
    order = pd.CategoricalDtype(list(style.PROTOCOLS))
    ordered = frame.astype({"protocol": order}).sort_values(["dataset", "protocol", "ncl"], kind="stable")
    ordered = ordered.reset_index(drop=True).astype({"protocol": "str"})
    return ordered.assign(way=ordered["protocol"].map(style.PROTOCOLS))


def two_lines(frame: pd.DataFrame, *fields: str) -> pd.Series:
    """Panel headings of these fields and the way, which is on a line of its own, because it is long."""
    panels = style.panels(frame, "dataset", *fields, "way")
    pairs = zip(panels, frame["way"], strict=True)
    return pd.Series([panel.replace(f" · {way}", f"\n{way}") for panel, way in pairs], index=frame.index)


def paired_answers(paired: pd.DataFrame) -> Iterator[str]:
    """How many pairs are told apart at each ncl, and how many more seeds the nearest of the others would need.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model_a": "a", "model_b": "b", "told_apart": False}
    >>> line |= {"more_seeds": 7, "more_seeds_low": 2, "more_seeds_high": None}
    >>> list(paired_answers(pd.DataFrame([line])))
    ['digits: pairs of sub-models told apart: 0 of 1 at ncl 2; next a and b at ncl 2, with 7 (2 to no end) more seeds.']
    """
    for (dataset, protocol), part in paired.groupby(["dataset", "protocol"], sort=False):
        tested = part.dropna(subset="told_apart")
        told = f"{dataset}: pairs of {MODELS[str(protocol)]} told apart: "
        if tested.empty:
            yield f"{told}none can be tested, because answers image by image or subset seeds are too few."
            continue
        at = [f"{same['told_apart'].sum()} of {len(same)} at ncl {ncl}" for ncl, same in tested.groupby("ncl")]
        yield f"{told}{', '.join(at)}{_next(tested[~tested['told_apart'].astype(bool)])}."


def _next(others: pd.DataFrame) -> str:
    """Which of the pairs not told apart needs the fewest more seeds."""
    bounded = others[others["more_seeds"].notna() & (others["more_seeds"] > 0)]
    if bounded.empty:
        return ""
    line = bounded.sort_values("more_seeds", kind="stable").iloc[0]
    high = "no end" if pd.isna(line["more_seeds_high"]) else int(line["more_seeds_high"])
    seeds = f"{int(line['more_seeds'])} ({int(line['more_seeds_low'])} to {high}) more seeds"
    return f"; next {line['model_a']} and {line['model_b']} at ncl {line['ncl']}, with {seeds}"


def stability_answers(stability: pd.DataFrame) -> Iterator[str]:
    """Which model has the best mean accuracy in most resamples of the subset seeds, at each ncl.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model": "a", "p_best": 0.93, "subsets": 5}
    >>> list(stability_answers(pd.DataFrame([line, {**line, "model": "b", "p_best": 0.07}])))
    ['digits: best of sub-models by mean accuracy in most resamples of the subset seeds: a at ncl 2 (93 % of them).']
    """
    known = stability.dropna(subset="p_best")
    for (dataset, protocol), part in known.groupby(["dataset", "protocol"], sort=False):
        best = part.sort_values("p_best", ascending=False, kind="stable").groupby("ncl").first()
        found: dict[str, list[str]] = {}
        for line in best.reset_index().to_dict("records"):
            found.setdefault(line["model"], []).append(f"{line['ncl']} ({100 * line['p_best']:.0f} % of them)")
        at = "; ".join(f"{model} at ncl {', '.join(sizes)}" for model, sizes in found.items())
        best_of = f"best of {MODELS[str(protocol)]} by mean accuracy in most resamples of the subset seeds"
        yield f"{dataset}: {best_of}: {at}."


PARTS = (
    Part("paired", "Models on the same images", "comparison", ("paired",), paired_figure),
    Part("rank_stability", "How firm the order is", "comparison", ("rank_stability",), stability_figure),
)
ANSWERS = {"paired": paired_answers, "rank_stability": stability_answers}
