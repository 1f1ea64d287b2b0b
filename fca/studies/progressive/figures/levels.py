"""What each level of each attribute costs: figures and sentences of the tables of analysis=attribute_levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

LEVELS = ("easy", "medium", "hard")
_SHAPES = ("circle", "square", "triangle-up")
_STEPS = ("easy to medium", "medium to hard")
_POINTS = alt.Axis(grid=True, labelExpr="datum.value == 0 ? '0' : format(100 * datum.value, '+')", tickCount=6)


def level_colour(field: str = "level", names: Iterable[str] = LEVELS) -> alt.Color:
    """Each level in its own colour, dark to light."""
    return alt.Color(f"{field}:O", scale=alt.Scale(domain=list(names)), legend=alt.Legend(title=None))


def level_shape(field: str = "level", names: Iterable[str] = LEVELS) -> alt.Shape:
    """Each level in its own shape too."""
    domain = list(names)
    scale = alt.Scale(domain=domain, range=list(_SHAPES[: len(domain)]))
    return alt.Shape(f"{field}:N", scale=scale, legend=alt.Legend(title=None))


def scores_figure(scores: Table) -> alt.FacetChart:
    """Score of every model on every attribute as a heat map; the best in bold, the second best in italics."""
    frame = scores.frame.assign(panel=style.panels(scores.frame, "dataset"))
    ends = [f"{name}{end}" for name in ("score", "accuracy") for end in ("", "_low", "_high")]
    told = {**dict.fromkeys(("dataset", "model", "attribute"), ""), **dict.fromkeys((*ends, *LEVELS), ".1%")}
    best = list(dict.fromkeys(frame["model"]))
    base = alt.Chart().encode(
        x=alt.X("attribute:N", title=None, scale=alt.Scale(paddingInner=0.03), axis=alt.Axis(domain=False)),
        y=alt.Y("model:N", title=None, sort=best, scale=alt.Scale(paddingInner=0.06), axis=alt.Axis(domain=False)),
        tooltip=style.tooltips({**told, "rank": ".0f", "classes": ".0f"}),
    )
    text = base.encode(
        text=alt.Text("score:Q", format=".0%"),
        color=alt.condition("datum.score < 0.5", alt.value("#ffffff"), alt.value("#000000")),
    )
    layers = alt.layer(
        base.mark_rect().encode(color=alt.Color("score:Q", scale=alt.Scale(domain=[0, 1]), legend=None)),
        text.transform_filter("datum.rank == 1").mark_text(fontSize=12, fontWeight=700),
        text.transform_filter("datum.rank == 2").mark_text(fontSize=12, fontStyle="italic"),
        text.transform_filter("datum.rank > 2").mark_text(fontSize=12),
    )
    title = alt.Title(
        "Which model is good at which attribute?",
        subtitle=[
            "Score, (easy + 2 medium + 4 hard) / 7, over classes; bold is the best on an attribute, italic second."
        ],
    )
    tall = max(60, 30 * frame["model"].nunique())
    drawn = style.faceted(layers, frame, title, ("dataset", "model"), height=tall, columns=1)
    drawn.spec.width = max(320, 66 * frame["attribute"].nunique())
    return drawn


def steps_figure(steps: Table) -> alt.FacetChart:
    """How much accuracy each step of each attribute costs, mean over models, with its interval over classes."""
    frame = steps.frame.assign(panel=style.panels(steps.frame, "dataset"))
    told = {**dict.fromkeys(("dataset", "attribute", "step", "verdict"), "")}
    told |= {**dict.fromkeys(("drop", "drop_low", "drop_high"), "+.1%")}
    told |= dict.fromkeys(("models_falling", "models", "classes"), ".0f")
    base = alt.Chart().encode(
        y=alt.Y("attribute:N", title=None, axis=alt.Axis(grid=True, ticks=False)),
        yOffset=alt.YOffset("step:N", scale=alt.Scale(domain=list(_STEPS))),
        color=level_colour("step", _STEPS),
    )
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0)),
        base.transform_filter("isValid(datum.drop_low)")
        .mark_rule(strokeWidth=2)
        .encode(x="drop_low:Q", x2="drop_high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=alt.X("drop:Q", title="accuracy lost (% points)", axis=_POINTS),
            shape=level_shape("step", _STEPS),
            tooltip=style.tooltips(told),
        ),
    )
    title = alt.Title(
        "Does every level cost accuracy?",
        subtitle=[
            "Mean over models with its 95 % interval over classes; right of the line the harder level is harder."
        ],
    )
    return _in_rows(style.faceted(layers, frame, title, ("dataset",)), 13)


def levels_figure(levels: Table) -> alt.FacetChart:
    """Accuracy of every model on the levels of each attribute with Wilson's intervals; one panel a model."""
    frame = levels.frame.assign(panel=style.panels(levels.frame, "dataset", "model"))
    told = {**dict.fromkeys(("dataset", "model", "attribute", "level"), ""), "n_test": ".0f"}
    told |= dict.fromkeys(("accuracy", "accuracy_low", "accuracy_high"), ".1%")
    told |= dict.fromkeys(("drop", "drop_low", "drop_high"), "+.1%")
    base = alt.Chart().encode(
        y=alt.Y("attribute:N", title=None, axis=alt.Axis(grid=True, ticks=False)),
        yOffset=alt.YOffset("level:N", scale=alt.Scale(domain=list(LEVELS))),
        color=level_colour(),
    )
    axis = alt.Axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1])
    x = alt.X("accuracy:Q", title="top-1 accuracy (%)", axis=axis, scale=alt.Scale(domain=[0, 1]))
    layers = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(x="accuracy_low:Q", x2="accuracy_high:Q"),
        base.mark_point(filled=True, size=55, opacity=1).encode(x=x, shape=level_shape(), tooltip=style.tooltips(told)),
    )
    title = alt.Title(
        "How accurate is each model on easy, medium and hard images of each attribute?",
        subtitle=["With Wilson's 95 % intervals."],
    )
    return _in_rows(style.faceted(layers, frame, title, ("dataset", "model")), 11)


def _in_rows(drawn: alt.FacetChart, pixels: int) -> alt.FacetChart:
    """As tall as there are rows: so many pixels a mark beside its neighbours."""
    drawn.spec.height = alt.Step(pixels)
    return drawn


def steps_answers(steps: pd.DataFrame) -> Iterator[str]:
    """In how many attributes each level costs accuracy, and which others there are.

    >>> line = {"dataset": "zoo", "attribute": "size", "step": "easy to medium", "verdict": "falls"}
    >>> list(steps_answers(pd.DataFrame([line, {**line, "step": "medium to hard", "verdict": "cannot tell"}])))
    ['zoo: both steps, easy to medium and medium to hard, cost accuracy in 0 of 1 attributes; cannot tell: size \
(medium to hard).']
    """
    for dataset, part in steps.groupby("dataset", sort=False):
        falls = part["verdict"].eq("falls").groupby(part["attribute"]).all()
        others = [
            f"{verdict}: " + ", ".join(same["attribute"] + " (" + same["step"] + ")")
            for verdict, same in part[part["verdict"] != "falls"].groupby("verdict", sort=False)
        ]
        told = f"both steps, {' and '.join(_STEPS)}, cost accuracy in {falls.sum()} of {len(falls)} attributes"
        yield f"{dataset}: " + "; ".join([told, *others]) + "."


PARTS = (
    Part("attribute_scores", "Scores by attribute", "attribute_levels", ("attribute_scores",), scores_figure),
    Part("attribute_steps", "What a level costs", "attribute_levels", ("attribute_steps",), steps_figure),
    Part(
        "attribute_levels", "Accuracy by attribute and level", "attribute_levels", ("attribute_levels",), levels_figure
    ),
)
ANSWERS = {"attribute_steps": steps_answers}
