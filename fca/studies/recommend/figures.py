"""Figures and headlines of analysis=recommendation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.recommend import images
from fca.studies.recommend.evidence import ADAPTATION, LATENCY, name_of
from fca.studies.recommend.images import CLASSES, CONFUSIONS, ERRORS, PREDICTED_CLASS, RELABEL, THUMBNAIL
from fca.studies.recommend.recommendation import (
    CHOSEN,
    EXPECTED,
    GUESS,
    N_VAL,
    NEXT,
    RECOMMENDATION,
    STEP,
    VERDICT,
    WITHIN,
)
from fca.studies.table import DATASET, IMAGE_ID, LABEL, MODEL, N_TEST, TOP1
from fca.types import Column, Table

CANDIDATE = Column("candidate", str, "", "model")
SHOWN = 15  # confusions in the figure
_VERDICTS = ("#0072b2", "#0072b2", "#009e73", "#b07d00", "#7d8590", "#7d8590", "#7d8590", "#7d8590")


def front_figure(candidates: Table) -> alt.FacetChart:
    """Expected accuracy of each candidate against the time for one image."""
    frame = candidates.frame.dropna(subset=[EXPECTED, LATENCY]).reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, "ncl", DATASET), candidate=_names(frame))
    coloured, way = kinds.hue(VERDICT, frame, _VERDICTS, columns=4), kinds.hue(ADAPTATION, frame, title="")
    across = kinds.quantity(alt.X, LATENCY, "time for one image, ms", grid=True, type="log", padding=70, nice=False)
    up = kinds.quantity(alt.Y, EXPECTED, "expected accuracy", grid=True)
    base = alt.Chart().encode(x=across, color=coloured.colour(), opacity=coloured.opacity())
    hover = (CANDIDATE, *(column for column in candidates.columns if column not in (MODEL, "adaptation", "weights")))
    dots: Any = base.mark_point(filled=True, size=90)
    dots = dots.encode(y=up, shape=way.shape(), tooltip=kinds.tooltips(hover)).add_params(coloured.picked)
    named: Any = alt.Chart().mark_text(align="right", dx=-9, fontSize=10).transform_filter("datum.on_front")
    words = named.encode(x=across, y=f"{EXPECTED}:Q", text=f"{MODEL}:N")
    title = style.title(
        "Which model is accurate enough, and how fast is it?",
        "Expected accuracy with its 90 % interval. Named are those that no other one equals in both.",
    )
    return style.faceted(kinds.layers(kinds.interval(base, EXPECTED, True), dots, words), frame, title, (DATASET,), 320)


def confusions_figure(confusions: Table) -> alt.FacetChart:
    """The pairs of classes with the most errors."""
    frame = confusions.frame.groupby(DATASET).head(SHOWN).reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET), pair=frame[LABEL] + " → " + frame[PREDICTED_CLASS])
    down = kinds.category(alt.Y, "pair", None)
    chart = kinds.bars(kinds.quantity(alt.X, ERRORS, "test images", zero=True, padding=0), down, confusions.columns)
    title = style.title("What does the recommended model confuse?", "Class → what it was taken for; most errors first.")
    return style.faceted(chart, frame, title, (DATASET,), row=18)


def relabel_figure(relabel: Table) -> alt.FacetChart:
    """Images whose label looks wrong, with the label and the class that similar images have."""
    frame = relabel.frame.dropna(subset=THUMBNAIL)
    frame = frame.assign(panel=style.panels(frame, DATASET), suggestion="→ " + frame[images.SUGGESTED].astype(str))
    hover = [column for column in relabel.columns if column not in (THUMBNAIL, images.ROW, images.COLUMN)]
    chart = kinds.pictures(frame, hover, LABEL, "suggestion")
    lines = "Below each picture its label, and the class that similar images have. Look before you change one."
    tall, wide = (int(frame[name].max()) + 1 for name in (images.ROW, images.COLUMN))
    title = style.title("Which labels look wrong?", lines)
    drawn = style.faceted(chart, frame, title, (DATASET,), height=tall * (kinds.SIDE + 40), columns=1)
    drawn.spec.width = wide * (kinds.SIDE + 18)
    return drawn


def classes_figure(classes: Table) -> alt.FacetChart:
    """Images of each class, by split."""
    splits = {str(column): split for split, column in images.N_SPLITS.items()}
    frame = classes.frame.melt([DATASET, LABEL, images.SUSPECTS], list(splits), "split", "images")
    frame = frame.assign(panel=style.panels(frame, DATASET), split=frame["split"].map(splits))
    split = Column("split", str, "", "split", {name: name for name in images.N_SPLITS})
    number = Column("images", int, ",.0f", "images")
    coloured = kinds.hue(split, frame, shapes=None)
    across = kinds.quantity(alt.X, number, "images", zero=True, padding=0)
    chart = kinds.bars(across, kinds.category(alt.Y, str(LABEL)), (LABEL, split, number), coloured)
    return style.faceted(chart, frame, style.title("How many images does each class have?"), (DATASET,), row=18)


def _names(frame: pd.DataFrame) -> list[str]:
    return [name_of((model, None, way)) for model, way in zip(frame[MODEL], frame["adaptation"], strict=True)]


def answer(candidates: pd.DataFrame) -> Iterator[str]:
    """Which model to use, how accurate and fast it is, and what the next larger one would bring."""
    several = style.differs(candidates[DATASET])
    for dataset, part in candidates.groupby(DATASET, sort=False):
        first = part.iloc[0]
        if first[VERDICT] not in (CHOSEN, GUESS):
            continue
        name = name_of((first[MODEL], None, first["adaptation"]))
        found = f"{first[TOP1]:.1%} [{first[TOP1.low]:.0%}, {first[TOP1.high]:.0%}] of {first[N_TEST]:.0f} test images"
        sure = f"with probability {first[WITHIN]:.0%} it is within the margin of the best"
        sure = sure if first[VERDICT] == CHOSEN else f"not certain: {sure}, by {first[N_VAL]:.0f} validation images"
        about = f"{dataset}: use" if several else "Use"
        yield f"{about} {name}: right on {found}, {first[LATENCY]:.1f} ms an image; {sure}."


def confused(confusions: pd.DataFrame) -> Iterator[str]:
    """The pair that costs most."""
    for dataset, part in confusions.groupby(DATASET, sort=False):
        worst = part.iloc[0]
        pair = f"{worst[LABEL]} taken for {worst[PREDICTED_CLASS]}"
        yield f"{dataset}: the most frequent error is {pair}, {worst[ERRORS]:.0f} of {part[ERRORS].sum():.0f} errors."


def suspected(relabel: pd.DataFrame) -> Iterator[str]:
    """How many labels look wrong, and the first."""
    for dataset, part in relabel.groupby(DATASET, sort=False):
        worst = part.iloc[0]
        first = f"first {worst[IMAGE_ID]}, labelled {worst[LABEL]}, which looks like {worst[images.SUGGESTED]}"
        yield f"{dataset}: {len(part)} labels should be looked at, {first}."


def next_step(steps: pd.DataFrame) -> Iterator[str]:
    """The first thing to try."""
    for dataset, part in steps.groupby(DATASET, sort=False):
        line = part.iloc[0]
        yield f"{dataset}: to be surer, {line[STEP]}: {line['reason']}."


FIGURES = (
    Figure("recommendation", "Accuracy and speed", (RECOMMENDATION,), front_figure),
    Figure("recommendation_confusions", "Confusions", (CONFUSIONS,), confusions_figure),
    Figure("recommendation_relabel", "Labels to look at", (RELABEL,), relabel_figure),
    Figure("recommendation_classes", "Images of each class", (CLASSES,), classes_figure),
)
HEADLINES = {
    RECOMMENDATION.name: answer,
    CONFUSIONS.name: confused,
    RELABEL.name: suspected,
    NEXT.name: next_step,
}
