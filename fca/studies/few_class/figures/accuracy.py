"""Figures of accuracy against the number of classes. They draw the tables of analysis=few_class and compute nothing."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.few_class.figures.answers import gap_answers
from fca.types import Table

_NO_MODEL = ("dataset", "ncl", "protocol")  # filters of what was found over all models: it cannot be asked of some
_INTERVAL = "95 % interval over subset seeds"


def accuracy_figure(points: Table, means: Table) -> alt.FacetChart:
    """Accuracy of every model against ncl: single subsets, their mean and its interval, one panel a model."""
    parts = [points.frame.assign(mark="point"), means.frame.assign(mark="mean")]
    frame = pd.concat([part.astype({"top1": "float64"}) for part in parts], ignore_index=True)
    frame = _in_order(frame, "dataset", "model")
    asked = {"dataset": "", "model": "", "protocol": "", "ncl": ".0f"}
    one = {"subset_seed": ".0f", "classes": "", "sampler": "", "seed": ".0f", "n_test": ".0f", "run_id": ""}
    top1 = {"top1": ".2%", "top1_low": ".2%", "top1_high": ".2%"}
    picked = style.picked("protocol")
    base = alt.Chart().encode(
        x=style.ncl_axis(),
        xOffset=style.side_by_side("protocol", _present(frame)),
        color=style.protocol_colour(frame["protocol"]),
    )
    mean = base.transform_filter("datum.mark == 'mean'")
    y = alt.Y("top1:Q", title="top-1 accuracy (%)", axis=style.PERCENT, scale=alt.Scale(zero=False))
    layers = alt.layer(
        mean.mark_line(strokeWidth=1.5).encode(y=y, opacity=_dimmed(picked)),
        mean.transform_filter("isValid(datum.top1_low)")
        .mark_rule(strokeWidth=2)
        .encode(y="top1_low:Q", y2="top1_high:Q", opacity=_dimmed(picked)),
        base.transform_filter("datum.mark == 'point'")
        .mark_circle(size=28)
        .encode(y="top1:Q", opacity=_dimmed(picked, 0.5), tooltip=style.tooltips({**asked, **top1, **one}))
        .add_params(picked),
        mean.mark_point(filled=True, size=80).encode(
            y="top1:Q",
            shape=style.protocol_shape(frame["protocol"]),
            opacity=_dimmed(picked),
            tooltip=style.tooltips({**asked, **top1, "spread": ".2%", "subsets": ".0f"}),
        ),
    )
    title = alt.Title(
        "How does accuracy change with the number of classes?",
        subtitle=[f"Small: one class subset. Large: mean of the subsets with its {_INTERVAL}."],
    )
    return style.faceted(layers, frame, title, style.FILTERS)


def dcn_figure(dcn: Table) -> alt.FacetChart:
    """The best accuracy of any model on each subset, against ncl; one panel a data set."""
    frame = _in_order(dcn.frame, "dataset")
    picked = style.picked("protocol")
    told = {"dataset": "", "protocol": "", "ncl": ".0f", "top1": ".2%", "model": "", "models": ".0f"}
    base = alt.Chart().encode(
        x=style.ncl_axis(),
        xOffset=style.side_by_side("protocol", _present(frame)),
        y=alt.Y("top1:Q", title="DCN (%)", axis=style.PERCENT, scale=alt.Scale(zero=False)),
        color=style.protocol_colour(frame["protocol"]),
    )
    layers = alt.layer(
        base.mark_line(strokeWidth=1.5).encode(detail="ncl:N", order="top1:Q", opacity=_dimmed(picked, 0.4)),
        base.mark_point(filled=True, size=80)
        .encode(
            shape=style.protocol_shape(frame["protocol"]),
            opacity=_dimmed(picked),
            tooltip=style.tooltips({**told, "subset_seed": ".0f", "classes": ""}),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "How accurate is the best of the models?",
        subtitle=["One dot a class subset: the best model's accuracy on it (DCN). Hover to see which model that is."],
    )
    return style.faceted(layers, frame, title, _NO_MODEL)


def gap_figure(gap: Table) -> alt.FacetChart:
    """Sub-model minus full model, open and masked, against ncl."""
    asked = ["dataset", "ncl", "n", "models", "subsets"]
    ends = ("", "_low", "_high")
    parts = [
        gap.frame[[*asked, *(f"sub_minus_{protocol}{end}" for end in ends)]]
        .rename(columns={f"sub_minus_{protocol}{end}": f"difference{end}" for end in ends})
        .assign(protocol=protocol)
        for protocol in ("open", "masked")
    ]
    frame = _in_order(pd.concat(parts, ignore_index=True), "dataset")
    told = {"dataset": "", "protocol": "", "ncl": ".0f", "difference": "+.2%", "difference_low": "+.2%"}
    told |= {"difference_high": "+.2%", "n": ".0f", "models": ".0f", "subsets": ".0f"}
    title = alt.Title(
        "How much more accurate are sub-models than full models?",
        subtitle=[
            "Sub-model minus full model on the same class subsets, mean over models and subsets",
            f"with its {_INTERVAL}. Above the line, training on the subset only pays.",
        ],
    )
    axis = alt.Axis(labelExpr="datum.value == 0 ? '0' : format(100 * datum.value, '+')")
    y = alt.Y("difference:Q", title="sub-model minus full (% points)", axis=axis)
    return _intervals_by_ncl(frame, "difference", y, told, title)


def agreement_figure(agreement: Table) -> alt.FacetChart:
    """Spearman's rho between the models' ranking on all classes and on few, against ncl."""
    frame = _in_order(agreement.frame, "dataset")
    told = {"dataset": "", "protocol": "", "ncl": ".0f", "rho": ".3f", "rho_low": ".3f", "rho_high": ".3f"}
    title = alt.Title(
        "Does the ranking of models on all classes hold for few?",
        subtitle=[f"1: the same order; 0: unrelated. Mean over class subsets with its {_INTERVAL}."],
    )
    y = alt.Y("rho:Q", title="Spearman's rho of the rankings", scale=alt.Scale(domainMax=1))
    return _intervals_by_ncl(frame, "rho", y, {**told, "models": ".0f", "subsets": ".0f"}, title)


def _intervals_by_ncl(
    frame: pd.DataFrame, name: str, y: alt.Y, told: dict[str, str], title: alt.Title
) -> alt.FacetChart:
    """Dots with the interval `<name>_low` to `<name>_high`, coloured by protocol, over a line at 0."""
    picked = style.picked("protocol")
    base = alt.Chart().encode(
        x=style.ncl_axis(),
        xOffset=style.side_by_side("protocol", _present(frame)),
        color=style.protocol_colour(frame["protocol"]),
        opacity=_dimmed(picked),
    )
    shape = style.protocol_shape(frame["protocol"])
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(0)),
        base.transform_filter(f"isValid(datum.{name}_low)")
        .mark_rule(strokeWidth=2)
        .encode(y=f"{name}_low:Q", y2=f"{name}_high:Q"),
        base.mark_point(filled=True, size=90, opacity=1)
        .encode(y=y, shape=shape, tooltip=style.tooltips(told))
        .add_params(picked),
    )
    return style.faceted(layers, frame, title, _NO_MODEL)


def _in_order(frame: pd.DataFrame, *fields: str) -> pd.DataFrame:
    """With a `panel` of these fields, panels in their order."""
    frame = frame.sort_values([*fields, "ncl"], kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, *fields))


def _present(frame: pd.DataFrame) -> list[str]:
    return [protocol for protocol in style.PROTOCOLS if protocol in set(frame["protocol"])]


def _dimmed(picked: alt.Parameter, opacity: float = 1.0) -> Any:
    return alt.condition(picked, alt.value(opacity), alt.value(0.1 * opacity))


PARTS = (
    Part("accuracy", "Accuracy", "few_class", ("accuracy_points", "accuracy"), accuracy_figure),
    Part("gap", "Sub-models against full models", "few_class", ("gap",), gap_figure),
    Part("dcn", "The best model (DCN)", "few_class", ("dcn",), dcn_figure),
    Part("rank_agreement", "Ranks on all classes", "few_class", ("rank_agreement",), agreement_figure),
)
ANSWERS = {"gap": gap_answers}
