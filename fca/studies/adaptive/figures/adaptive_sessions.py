"""What two-stage tests ask: images by level (Table 1), where sessions go, and a few of them image by image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

LEVELS = ("easy", "medium", "hard")
_SHAPES = ("circle", "square", "triangle-up")
_FILTERS = ("dataset", "model")
_ROW = 22


def asked_figure(asked: Table) -> alt.FacetChart:
    """Images a session by level, a row a model, the most accurate first; a panel a mapping."""
    frame = asked.frame.assign(named="second round by mapping " + asked.frame["mapping"])
    frame["panel"] = style.panels(frame, "dataset", "named")
    told = {"dataset": "", "model": "", "top1": ".1%", "mapping": "", "level": "", "first": ".2f", "second": ".2f"}
    told |= {"asked": ".2f", "sessions": ".0f", "repeats": ".0f"}
    picked = style.picked("level")
    layers = (
        alt.Chart()
        .mark_point(filled=True, size=80)
        .encode(
            x=alt.X("asked:Q", title="images a session, both rounds", axis=alt.Axis(grid=True)),
            y=_models(),
            color=_level(alt.Color),
            shape=_level(alt.Shape),
            opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
            tooltip=style.tooltips(told),
        )
        .add_params(picked)
    )
    title = alt.Title(
        "Are different models asked different images?",
        subtitle=[
            "Mean images of each level that a session asks, most accurate model first. The first round is the same",
            "for all; the second goes by its points. Table 1 of Huang et al. (2025) has averages of this kind.",
        ],
    )
    drawn = style.faceted(layers, frame, title, _FILTERS, columns=2)
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    own.spec.height, own.align = alt.Step(_ROW), "each"
    return own


def trajectories_figure(trajectories: Table) -> alt.FacetChart:
    """How many sessions have how many points after round one, and what they then get right; a panel a model."""
    frame = trajectories.frame.sort_values(["dataset", "top1", "points"], kind="stable").reset_index(drop=True)
    frame["panel"] = style.panels(frame, "dataset", "model")
    lines = {"right_second": "right in the second round", "truth": "right of all the session's images"}
    long = pd.concat([frame.assign(value=frame[column], line=name) for column, name in lines.items()])
    long = pd.concat([frame.assign(line="sessions"), long], ignore_index=True)
    told = {"dataset": "", "model": "", "points": ".0f", "sessions": ".0f", "share": ".1%", "next_easy": ".2f"}
    told |= {"next_medium": ".2f", "next_hard": ".2f", "right_first": ".1%", "right_second": ".1%", "truth": ".1%"}
    names = list(lines.values())
    legend = alt.Legend(title=None, values=names)
    base = alt.Chart().encode(
        x=alt.X("points:O", title="points after the first round", scale=alt.Scale(domain=list(range(10))))
    )
    right = base.transform_filter("isValid(datum.value)").encode(
        y=alt.Y("value:Q", title="share", axis=style.PERCENT, scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("line:N", scale=alt.Scale(domain=names), legend=legend),
    )
    layers = alt.layer(
        base.transform_filter("datum.line == 'sessions'")
        .mark_bar(color="#8b949e", opacity=0.5)
        .encode(y=alt.Y("share:Q"), tooltip=style.tooltips(told)),
        right.mark_line(strokeWidth=2),
        right.mark_point(filled=True, size=60, opacity=1).encode(
            shape=alt.Shape("line:N", scale=alt.Scale(domain=names), legend=legend), tooltip=style.tooltips(told)
        ),
    )
    title = alt.Title(
        "Where do sessions go after their first round?",
        subtitle=[
            "Bars: sessions by their points after round one (1, 2 and 4 for an easy, medium and hard image), weakest",
            "model first. More points bring harder images: what is right then says less of a session than it seems.",
        ],
    )
    return style.faceted(layers, long, title, _FILTERS, height=170, columns=3)


def sessions_figure(sessions: Table) -> alt.FacetChart:
    """A few sessions image by image: level by colour, filled where right; a panel a model."""
    frame = sessions.frame.sort_values(["dataset", "top1", "points", "session", "place"], kind="stable")
    frame = frame.reset_index(drop=True).assign(answer=frame["right"].map({True: "right", False: "wrong"}).to_numpy())
    frame["panel"] = style.panels(frame, "dataset", "model")
    frame["row"] = frame["session"] + " · " + frame["points"].astype(str) + " of 9"
    frame["step"] = frame["round"].map({1: "1st round, image ", 2: "2nd round, image "}) + frame["place"].astype(str)
    told = dict.fromkeys(("dataset", "model", "session", "step", "level", "answer", "image_id"), "")
    told |= {"points": ".0f", "truth": ".1%"}
    order = alt.EncodingSortField("points", op="max", order="ascending")
    fill = alt.Scale(domain=["right", "wrong"], range=[1.0, 0.0])
    starts = frame.loc[frame["round"] == 2, "place"].min() - 0.5
    frame["between"] = pd.Series(starts, index=frame.drop_duplicates("panel").index)
    base = alt.Chart().encode(y=alt.Y("row:N", title=None, sort=order, axis=alt.Axis(grid=True, ticks=False)))
    layers = alt.layer(
        alt.Chart()
        .transform_filter("isValid(datum.between)")
        .mark_rule(strokeDash=[4, 3])
        .encode(x=alt.X("between:Q")),
        base.mark_point(size=110, strokeWidth=2, opacity=1).encode(
            x=alt.X(
                "place:Q",
                title="image, in the order asked",
                scale=alt.Scale(domain=[0.5, float(frame["place"].max()) + 0.5], nice=False),
                axis=alt.Axis(values=sorted(frame["place"].unique().tolist()), format=".0f"),
            ),
            color=_level(alt.Color),
            fill=_level(alt.Fill),
            shape=_level(alt.Shape),
            fillOpacity=alt.FillOpacity("answer:O", scale=fill, legend=None),
            tooltip=style.tooltips(told),
        ),
    )
    title = alt.Title(
        "How does a single session go?",
        subtitle=[
            "A row a session, with its points after round one (left of the dashes). Filled: right, open: wrong.",
            "Of a few models, weakest first, a few sessions from the fewest points to the most.",
        ],
    )
    drawn = style.faceted(layers, frame, title, _FILTERS, columns=2)
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    own.spec.height, own.align = alt.Step(_ROW), "each"
    return own


def _models() -> alt.Y:
    order = alt.EncodingSortField("top1", op="max", order="descending")
    return alt.Y("model:N", title=None, sort=order, axis=alt.Axis(grid=True, ticks=False))


def _level(channel: Any) -> Any:
    shapes = _SHAPES if channel is alt.Shape else alt.Undefined
    legend = alt.Legend(title=None, values=LEVELS)
    return channel("level:N", scale=alt.Scale(domain=LEVELS, range=shapes), legend=legend)


def asked_answers(asked: pd.DataFrame) -> Iterator[str]:
    """How many hard images a session asks of the weakest and of the most accurate model.

    >>> line = {"dataset": "zoo", "mapping": "Q", "level": "hard"}
    >>> lines = [line | {"model": "vgg", "top1": 0.5, "asked": 1.6}, line | {"model": "vit", "top1": 0.7, "asked": 3.9}]
    >>> list(asked_answers(pd.DataFrame(lines)))
    ['zoo: a session asks 1.6 hard images of vgg (top1 50 %) and 3.9 of vit (70 %).']
    """
    hard = asked[(asked["level"] == "hard") & (asked["mapping"] == "Q")]
    for dataset, part in hard.groupby("dataset", sort=False):
        part = part.sort_values("top1", kind="stable")
        if len(part) > 1:
            weak, strong = (part.iloc[at] for at in (0, -1))
            told = f"{weak['asked']:.1f} hard images of {weak['model']} (top1 {100 * weak['top1']:.0f} %)"
            more = f"{strong['asked']:.1f} of {strong['model']} ({100 * strong['top1']:.0f} %)"
            yield f"{dataset}: a session asks {told} and {more}."


PARTS = (
    Part("adaptive_asked", "Images asked by level", "adaptive_replay", ("adaptive_asked",), asked_figure),
    Part(
        "adaptive_trajectories",
        "Where sessions go",
        "adaptive_replay",
        ("adaptive_trajectories",),
        trajectories_figure,
    ),
    Part("adaptive_sessions", "A few sessions", "adaptive_replay", ("adaptive_sessions",), sessions_figure),
)
ANSWERS = {"adaptive_asked": asked_answers}
