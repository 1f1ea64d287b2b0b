"""Easy and hard images: who solves how much of them, and which classes they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

NAMED = 3  # classes in a sentence
_SEGMENTS = {"easy": "easy", "med_easy": "med-easy", "med_hard": "med-hard", "hard": "hard"}
_ENDS = alt.Scale(domain=["top quarter", "bottom quarter"], range=["#a9629a", "#b07d00"])
_ABOUT = {"difficulty": "difficulty (top: hardest)", "discrimination": "discrimination (top: tells models apart best)"}
_TOLD = {**dict.fromkeys(("dataset", "corruption", "subject", "model", "segment"), ""), "severity": ".0f"}
_TOLD |= {**dict.fromkeys(("share", "share_low", "share_high"), ".1%"), "right": ".0f", "n": ".0f"}
_AWAY = alt.Axis(format="%", labelExpr="format(abs(datum.value), '.0%')", grid=True, tickCount=5)


def models_figure(shown: Table) -> alt.FacetChart:
    """The share of right answers of every subject in every segment, one panel a corruption."""
    frame = shown.frame.assign(segment=shown.frame["segment"].map(_SEGMENTS))
    places = zip(frame["corruption"], frame["severity"], strict=True)
    frame["shift"] = [f"{kind} {severity}" if severity else "clean" for kind, severity in places]
    frame["panel"] = style.panels(frame, "dataset", "shift")
    text = frame["share"].map(lambda share: f"{100 * share:.0f}")
    base = alt.Chart().encode(
        x=alt.X(
            "segment:N",
            title=None,
            sort=list(_SEGMENTS.values()),
            scale=alt.Scale(paddingInner=0.04),
            axis=alt.Axis(domain=False, ticks=False, labelFontSize=10),
        ),
        y=alt.Y(
            "subject:N",
            title=None,
            sort=alt.EncodingSortField("place", op="min"),
            scale=alt.Scale(paddingInner=0.06),
            axis=alt.Axis(domain=False, ticks=False, labelLimit=160),
        ),
        tooltip=style.tooltips(_TOLD),
    )
    legend = alt.Legend(title="right answers", format="%", gradientLength=200)
    layers = alt.layer(
        base.mark_rect().encode(color=alt.Color("share:Q", scale=alt.Scale(domain=[0, 1]), legend=legend)),
        base.mark_text(fontSize=10).encode(
            text="text:N", color=alt.condition("datum.share < 0.5", alt.value("#ffffff"), alt.value("#000000"))
        ),
    )
    all_shown = (frame.groupby("dataset")["subject"].nunique() == frame.groupby("dataset")["subjects"].first()).all()
    title = alt.Title(
        "Who solves the hard images?",
        subtitle=[
            "Right answers (%) in each quarter of the images by expected success; quarters are cut on clean images.",
            "Best on clean images first" + ("." if all_shown else "; subjects spread evenly from best to worst."),
        ],
    )
    tall = max(80, 19 * int(frame.groupby("panel")["subject"].nunique().max()))
    drawn: alt.FacetChart = style.faceted(
        layers, frame.assign(text=text), title, ("dataset", "model", "corruption"), height=tall
    )
    drawn = drawn.resolve_axis(x="independent")
    return drawn.resolve_scale(y="independent") if style.differs(frame["dataset"]) else drawn


def classes_figure(shown: Table) -> alt.FacetChart:
    """The share of each class's images in the top quarter to the right, in the bottom quarter to the left."""
    frame = shown.frame.assign(about=shown.frame["parameter"].map(_ABOUT))
    frame["panel"] = style.panels(frame, "dataset", "about")
    away = frame["quarter"].map({"top": 1, "bottom": -1})
    signed = {name.replace("share", "signed"): away * frame[name] for name in ("share", "share_low", "share_high")}
    frame = frame.assign(**signed, end=frame["quarter"] + " quarter")
    told = {**dict.fromkeys(("dataset", "parameter", "label", "end"), ""), "items": ".0f", "images": ".0f"}
    y = alt.Y("label:N", title=None, sort=alt.EncodingSortField("difference", op="min", order="descending"))
    base = alt.Chart().encode(y=y)
    layers = alt.layer(
        base.mark_bar(height={"band": 0.7}).encode(
            x=alt.X("signed:Q", title="share of the class's images", axis=_AWAY),
            color=alt.Color("end:N", scale=_ENDS, legend=alt.Legend(title=None)),
            tooltip=style.tooltips({**told, **dict.fromkeys(("share", "share_low", "share_high"), ".1%")}),
        ),
        base.mark_rule().encode(x="signed_low:Q", x2="signed_high:Q"),
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0.25)),
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(-0.25)),
        alt.Chart().mark_rule().encode(x=alt.datum(0)),
    )
    title = alt.Title(
        "Which classes are hard, and which tell models apart?",
        subtitle=[
            "Clean images of each class in the top and the bottom quarter of all, with 95 % intervals.",
            "Dashed: a class like all others has 25 % in each.",
        ],
    )
    tall = max(120, 18 * int(frame.groupby("panel")["label"].nunique().max()))
    drawn: alt.FacetChart = style.faceted(layers, frame, title, ("dataset",), height=tall)
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    return own


def model_answers(models: pd.DataFrame) -> Iterator[str]:
    """Who solves most and fewest of the hard clean images, and who most under corruptions.

    >>> line = {"dataset": "zoo", "corruption": "clean", "severity": 0, "segment": "hard"}
    >>> a = {"subject": "a", "share": 0.5, "share_low": 0.4, "share_high": 0.6}
    >>> b = {"subject": "b", "share": 0.2, "share_low": 0.1, "share_high": 0.3}
    >>> print(*model_answers(pd.DataFrame([line | a, line | b])))
    zoo: of the hard quarter of clean images a solves 50.0 % [40, 60], the most, and b 20.0 % [10, 30], the fewest.
    """
    hard = models[models["segment"] == "hard"]
    for dataset, part in hard.groupby("dataset", sort=False):
        clean = part[part["severity"] == 0].sort_values("share", ascending=False, kind="stable")
        if clean["subject"].nunique() < 2:
            continue
        told = f"{_share(clean.iloc[0], ' solves')}, the most, and {_share(clean.iloc[-1])}, the fewest"
        shifted = part[part["severity"] > 0]
        highest = shifted[shifted["severity"] == shifted.groupby("corruption")["severity"].transform("max")]
        leads = Counter(highest.loc[highest.groupby("corruption")["share"].idxmax(), "subject"])
        first = [f"{name} ({times} of {leads.total()})" for name, times in leads.most_common(1)]
        also = f"; under corruptions at their highest severity most often {first[0]} solves the most" if first else ""
        yield f"{dataset}: of the hard quarter of clean images {told}{also}."


def _share(line: pd.Series, verb: str = "") -> str:
    low, high = (f"{100 * line[name]:.0f}" for name in ("share_low", "share_high"))
    return f"{line['subject']}{verb} {100 * line['share']:.1f} % [{low}, {high}]"


def class_answers(classes: pd.DataFrame) -> Iterator[str]:
    """The classes with the largest share of their images in the top quarter, by each parameter.

    >>> line = {"dataset": "zoo", "parameter": "difficulty", "quarter": "top", "label": "cat", "share": 0.5}
    >>> list(class_answers(pd.DataFrame([line, line | {"label": "yak", "share": 0.1}])))
    ['zoo: the classes with most images in the hardest quarter are cat (50 %) and yak (10 %).']
    """
    which = {"difficulty": "hardest", "discrimination": "most discriminating"}
    top = classes[classes["quarter"] == "top"]
    for (dataset, parameter), part in top.groupby(["dataset", "parameter"], sort=False):
        most = part.sort_values("share", ascending=False, kind="stable").head(NAMED)
        shares = [f"{key} ({100 * share:.0f} %)" for key, share in zip(most["label"], most["share"], strict=True)]
        if len(shares) > 1:
            named = ", ".join(shares[:-1]) + " and " + shares[-1]
            yield f"{dataset}: the classes with most images in the {which[str(parameter)]} quarter are {named}."


PARTS = (
    Part("segment_models", "Easy and hard images", "difficulty_segments", ("segment_models_shown",), models_figure),
    Part("segment_classes", "Hard classes", "difficulty_segments", ("segment_classes_shown",), classes_figure),
)
ANSWERS = {"segment_models": model_answers, "segment_classes": class_answers}
