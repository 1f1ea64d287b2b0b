"""How wrong adaptive tests are on stored answers: figures and sentences of the tables of analysis=adaptive_replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

TARGETS = {"accuracy": "accuracy, (easy + medium + hard) / 3", "score": "score, (easy + 2 medium + 4 hard) / 7"}
_BANK = ("neyman_irt", "fisher_cat")
KINDS = ("evenly drawn", "adaptive, needs levels only", "needs an item bank", "biased by its adaptive draw")
_SHAPES = ("square", "circle", "triangle-up", "cross")
_FILTERS = ("dataset", "model")
_POINTS2 = "squared error (squared % points)"
_LOG = alt.Scale(type="log", nice=False, padding=12)
_NEAR = alt.Scale(zero=False, nice=False, padding=12)
_TOLD = {"dataset": "", "method": "", "kind": "", "target": "", "share": ".1%", "mse_pp2": ".2f", "mse_low": ".2f"}
_TOLD |= {"mse_high": ".2f", "ratio": ".2f", "ratio_low": ".2f", "ratio_high": ".2f", "bias_pp": "+.2f"}
_TOLD |= {"coverage": ".1%", "undefined": ".0f", "models": ".0f", "groups": ".0f", "repeats": ".0f"}


def errors_figure(errors: Table, methods: Table) -> alt.FacetChart:
    """Squared error of every method: a dot a model, and a bar with its interval for the mean over models."""
    frame = with_panel(pd.concat([methods.frame.assign(mark="mean"), errors.frame.assign(mark="model")]))
    picked = style.picked("kind")
    base = alt.Chart().encode(
        x=alt.X("mse_pp2:Q", title=f"{_POINTS2}, log scale", scale=_LOG),
        y=alt.Y("method:N", title=None, sort=_order(methods.frame), axis=alt.Axis(grid=True, ticks=False)),
        color=_kind(alt.Color, frame),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
    )
    mean = base.transform_filter("datum.mark == 'mean'")
    told = style.tooltips({"model": "", **_TOLD})
    layers = alt.layer(
        base.transform_filter("datum.mark == 'model' && datum.mse_pp2 > 0").mark_point(size=22).encode(tooltip=told),
        mean.transform_filter("isValid(datum.mse_low) && datum.mse_low > 0")
        .mark_rule(strokeWidth=2)
        .encode(x="mse_low:Q", x2="mse_high:Q"),
        mean.transform_filter("datum.mse_pp2 > 0")
        .mark_point(filled=True, size=110)
        .encode(shape=_kind(alt.Shape, frame), tooltip=told)
        .add_params(picked),
    )
    share = f"{100 * methods.parameters['budget']:.3g} %"
    title = alt.Title(
        f"What does a test of {share} of the images say about all of them?",
        subtitle=[
            "Squared error over attributes, against all images. Filled: mean over models, with its 95 % interval",
            "(models and attributes resampled); open: each model. Item banks are fitted on other networks' answers.",
        ],
    )
    tall = 28 * frame["method"].nunique()
    return style.faceted(layers, frame, title, _FILTERS, height=tall, columns=2)


def curves_figure(curves: Table) -> alt.FacetChart:
    """Squared error against the share of images asked, a line a policy."""
    frame = with_panel(curves.frame)
    frame["line"] = frame["policy"] + " + " + frame["estimator"]
    order = list(dict.fromkeys(frame["line"]))
    picked, legend = style.picked("line"), alt.Legend(title=None, columns=3)
    x = alt.X("share:Q", title="share of all images asked", axis=alt.Axis(format=".0%", grid=True), scale=_NEAR)
    base = alt.Chart().encode(
        x=x,
        y=alt.Y("mse_pp2:Q", title=f"{_POINTS2}, log scale", scale=_LOG),
        color=alt.Color("line:N", scale=alt.Scale(domain=order), legend=legend),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
    )
    shapes = alt.Scale(domain=order, range=["square", "diamond", "circle", "cross", "triangle-up", "triangle-down"])
    defined = base.transform_filter("datum.mse_pp2 > 0")
    layers = alt.layer(
        defined.mark_line(strokeWidth=2),
        base.transform_filter("isValid(datum.mse_low) && datum.mse_low > 0")
        .mark_rule(strokeWidth=1, opacity=0.6)
        .encode(y="mse_low:Q", y2="mse_high:Q"),
        defined.mark_point(filled=True, size=70)
        .encode(shape=alt.Shape("line:N", scale=shapes, legend=legend), tooltip=style.tooltips(_TOLD))
        .add_params(picked),
    )
    title = alt.Title(
        "How much smaller is the error of a larger test?",
        subtitle=[
            "Mean squared error over models and attributes with its 95 % interval, of every policy with its estimator.",
            "fisher_cat chooses images that rank models; its error is that of the bank's predictions of all others.",
        ],
    )
    return style.faceted(layers, frame, title, _FILTERS, height=300, columns=2)


def with_panel(frame: pd.DataFrame) -> pd.DataFrame:
    """With the kind of each method, and a panel a data set and target."""
    frame = frame.dropna(subset="mse_pp2").reset_index(drop=True)
    kinds = zip(frame["policy"], frame["warning"], strict=True)
    named = frame.assign(kind=[kind_of(policy, said) for policy, said in kinds], named=frame["target"].map(TARGETS))
    return named.assign(panel=style.panels(named, "dataset", "named"))


def kind_of(policy: str, warning: Any) -> str:
    """What a method needs, or what is wrong with it.

    >>> kind_of("neyman_irt", None), kind_of("gre_two_stage", None)
    ('needs an item bank', 'adaptive, needs levels only')
    """
    if isinstance(warning, str):
        return KINDS[3]
    if policy in _BANK:
        return KINDS[2]
    return KINDS[0] if policy in ("static_k", "random") else KINDS[1]


def _kind(channel: Any, frame: pd.DataFrame) -> Any:
    present = [kind for kind in KINDS if kind in set(frame["kind"])]
    legend = alt.Legend(title=None, values=present, columns=2)
    shapes = _SHAPES if channel is alt.Shape else alt.Undefined
    return channel("kind:N", scale=alt.Scale(domain=KINDS, range=shapes), legend=legend)


def _order(methods: pd.DataFrame) -> list[str]:
    """More images first, then evenly drawn, and as they come."""
    firm = methods.sort_values("share", ascending=False, kind="stable", key=lambda share: share.round(2))
    return list(dict.fromkeys(firm["method"]))


def method_answers(methods: pd.DataFrame) -> Iterator[str]:
    """Error of the two-stage test and of the best one against Static at the same budget.

    >>> line = {"dataset": "zoo", "target": "score", "budget": 0.25, "share": 0.25, "models": 6, "warning": None}
    >>> static = line | {"method": "Static 3", "policy": "static_k", "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0}
    >>> gre = line | {"method": "gre + mixed_logit", "policy": "gre_two_stage", "ratio": 0.6, "ratio_low": 0.4}
    >>> list(method_answers(pd.DataFrame([static, gre | {"ratio_high": 0.9}])))
    ['zoo: squared error of score at 25 % of the images, against Static 3: gre + mixed_logit 0.60 [0.40, 0.90].']
    """
    for (dataset, target), part in methods.groupby(["dataset", "target"], sort=False):
        part = part[part["budget"] == part["budget"].min()]
        base = part[part["policy"] == "static_k"]
        right = part[part["warning"].isna() & (part["policy"] != "static_k")].dropna(subset="ratio")
        if base.empty or right.empty:
            continue
        best = right.sort_values("ratio", kind="stable").head(1)
        named = pd.concat([right[right["policy"] == "gre_two_stage"], best]).drop_duplicates("method")
        told = ", ".join(_ratio(line) for line in named.to_dict("records"))
        share = f"{100 * base['share'].iloc[0]:.3g} % of the images"
        yield f"{dataset}: squared error of {target} at {share}, against {base['method'].iloc[0]}: {told}."


def _ratio(line: dict[Any, Any]) -> str:
    interval = "" if pd.isna(line["ratio_low"]) else f" [{line['ratio_low']:.2f}, {line['ratio_high']:.2f}]"
    return f"{line['method']} {line['ratio']:.2f}{interval}"


PARTS = (
    Part(
        "adaptive_errors",
        "Error of adaptive tests",
        "adaptive_replay",
        ("adaptive_errors", "adaptive_methods"),
        errors_figure,
    ),
    Part("adaptive_curves", "Error by share of images", "adaptive_replay", ("adaptive_curves",), curves_figure),
)
ANSWERS = {"adaptive_methods": method_answers}
