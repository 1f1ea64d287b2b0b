"""Whether levels are what they claim: figures and sentences of the tables of analysis=validate_levels."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.studies.progressive.figures.levels import LEVELS, level_colour, level_shape
from fca.types import Table

SIDE, STEP = 64, 104  # pixels of a picture, and from the top of one to the next with two lines of text between
_KINDS = {
    "easy, missed by all": "easy, but no model is right",
    "hard, right and confident": "hard, but all models are right and confident",
}


def bins_figure(bins: Table) -> alt.FacetChart:
    """Share of the images of each level by confidence, mean and range of the models."""
    frame = bins.frame.assign(panel=style.panels(bins.frame, "dataset"))
    frame["middle"] = [f"{100 * low:.0f}-{100 * high:.0f}" for low, high in frame[["bin_low", "bin_high"]].to_numpy()]
    told = {"dataset": "", "level": "", "middle": "", "models": ".0f"}
    told |= dict.fromkeys(("share", "share_min", "share_max", "top1"), ".1%")
    base = alt.Chart().encode(
        x=alt.X("middle:O", title="confidence (%)", sort=list(dict.fromkeys(frame["middle"]))),
        xOffset=alt.XOffset("level:N", scale=alt.Scale(domain=list(LEVELS))),
        tooltip=style.tooltips(told),
    )
    layers = alt.layer(
        base.mark_bar().encode(
            y=alt.Y("share:Q", title="images of the level (%)", axis=style.PERCENT), color=level_colour()
        ),
        base.mark_rule(strokeWidth=1.5, color="#7d8590", opacity=0.7).encode(y="share_min:Q", y2="share_max:Q"),
    )
    title = alt.Title(
        "Are models confident of easy images and not of hard ones?",
        subtitle=["The greatest of a model's probabilities, in ten equal bins: mean of the models, grey their range."],
    )
    return style.faceted(layers, frame, title, ("dataset",))


def trends_figure(trends: Table) -> alt.FacetChart:
    """Mean confidence by level of every attribute and class, with what the test says where it does not fall."""
    frame = trends.frame.assign(by="by " + trends.frame["by"])
    frame["panel"] = style.panels(frame, "dataset", "by")
    falls = frame["verdict"] == "falls"
    frame["named"] = frame["value"].where(falls, frame["value"] + " (" + frame["verdict"] + ")")
    frame["low"], frame["high"] = frame[list(LEVELS)].min(axis=1), frame[list(LEVELS)].max(axis=1)
    drops = [f"drop_{level}{end}" for level in LEVELS[1:] for end in ("", "_low", "_high")]
    told = {**dict.fromkeys(("dataset", "by", "value", "verdict"), ""), **dict.fromkeys(LEVELS, ".1%")}
    told |= {**dict.fromkeys(drops, "+.1%"), "p_holm": ".2g", "blocks": ".0f"}
    y = alt.Y("named:N", title=None, sort=frame["named"].tolist(), axis=alt.Axis(grid=True, ticks=False))
    x = alt.X("confidence:Q", title="mean confidence (%)", axis=style.PERCENT, scale=alt.Scale(zero=False))
    frame = pd.concat([frame.assign(level=level, confidence=frame[level]) for level in LEVELS], ignore_index=True)
    base = alt.Chart().encode(y=y, tooltip=style.tooltips(told))
    layers = alt.layer(
        base.transform_filter("datum.level == 'easy'").mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(x=x, color=level_colour(), shape=level_shape()),
    )
    title = alt.Title(
        "Does confidence fall from easy to medium to hard?",
        subtitle=[
            "Mean over models. Named where it does not fall at both steps: trend, only as a whole (Page's test, Holm);",
            "rises, the interval of a step is below 0; cannot tell, neither.",
        ],
    )
    drawn = style.faceted(layers, frame, title, ("dataset",), columns=2)
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    own.spec.height, own.align = alt.Step(20), "each"
    return own


def contradictions_figure(shown: Table) -> alt.FacetChart:
    """A grid of pictures a kind of contradiction, with class, attribute and confidence below each."""
    frame = shown.frame.dropna(subset="thumbnail")
    if frame.empty:
        raise style.NothingToDraw(_nothing(shown.frame))
    frame = frame.assign(way=frame["kind"].map(_KINDS) + " (" + frame["of"].astype(str) + ")")
    frame["panel"] = style.panels(frame, "dataset", "way")
    frame["under"] = [f"{a}, {100 * c:.0f} %" for a, c in zip(frame["attribute"], frame["confidence"], strict=True)]
    wide, tall = frame["column"].max() + 1, frame["row"].max() + 1
    told = {**dict.fromkeys(("image_id", "label", "attribute", "level"), ""), "rank": ".0f", "models": ".0f"}
    base = alt.Chart().encode(
        x=alt.X("column:O", axis=None, scale=alt.Scale(domain=list(range(wide)))),
        y=alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(tall)))),
        tooltip=style.tooltips({**told, **dict.fromkeys(("top1", "confidence", "wanted"), ".0%")}),
    )
    layers = alt.layer(
        base.mark_image(width=SIDE, height=SIDE, yOffset=-12).encode(url="thumbnail:N"),
        base.mark_text(fontSize=10, fontWeight=600, limit=SIDE + 24, dy=SIDE / 2 - 4).encode(text="label:N"),
        base.mark_text(fontSize=9, limit=SIDE + 24, dy=SIDE / 2 + 8).encode(text="under:N"),
    )
    title = alt.Title(
        "Which images contradict their level?",
        subtitle=[
            "The most confident first, with class, attribute and mean confidence; in brackets how many there are."
        ],
    )
    drawn = style.faceted(layers, frame, title, ("dataset",), height=int(tall * STEP), columns=1)
    drawn.spec.width = int(wide * (SIDE + 28))
    return drawn


def _nothing(shown: pd.DataFrame) -> str:
    """Why there is no picture."""
    if shown.empty:
        return "no image contradicts its level"
    names = shown["dataset"].drop_duplicates()
    return "no pictures; next: " + "; ".join(f"fca run task=describe dataset={name}" for name in names)


def trends_answers(trends: pd.DataFrame) -> Iterator[str]:
    """In how many attributes and classes confidence falls, and where it does not.

    >>> line = {"dataset": "zoo", "by": "attribute", "value": "size", "verdict": "falls"}
    >>> list(trends_answers(pd.DataFrame([line, {**line, "value": "view", "verdict": "rises"}])))
    ['zoo: mean confidence falls at both steps in 1 of 2 attributes; rises: view.']
    """
    plural = {"attribute": "attributes", "class": "classes"}
    for (dataset, by), part in trends.groupby(["dataset", "by"], sort=False):
        others = part[part["verdict"] != "falls"]
        named = [
            f"{verdict}: {_some(same['value'].tolist())}" for verdict, same in others.groupby("verdict", sort=False)
        ]
        falls = len(part) - len(others)
        told = f"mean confidence falls at both steps in {falls} of {len(part)} {plural[str(by)]}"
        yield f"{dataset}: " + "; ".join([told, *named]) + "."


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def contradictions_answers(shown: pd.DataFrame) -> Iterator[str]:
    """How many images contradict their level.

    >>> line = {"dataset": "zoo", "kind": "easy, missed by all", "of": 3, "models": 6}
    >>> list(contradictions_answers(pd.DataFrame([line])))
    ['zoo: images that contradict their level by 6 models: 3 easy, but no model is right.']
    """
    for (dataset, models), part in shown.groupby(["dataset", "models"], sort=False):
        counts = [f"{same['of'].iloc[0]} {_KINDS[str(kind)]}" for kind, same in part.groupby("kind", sort=False)]
        yield f"{dataset}: images that contradict their level by {models} models: {'; '.join(counts)}."


PARTS = (
    Part("confidence_levels", "Confidence by level", "validate_levels", ("confidence_levels",), bins_figure),
    Part(
        "confidence_trends",
        "Confidence by attribute and class",
        "validate_levels",
        ("confidence_trends",),
        trends_figure,
    ),
    Part(
        "contradictions",
        "Images that contradict their level",
        "validate_levels",
        ("contradictions_shown",),
        contradictions_figure,
    ),
)
ANSWERS = {"confidence_trends": trends_answers, "contradictions_shown": contradictions_answers}
