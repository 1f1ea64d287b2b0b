"""Figures and headlines of analysis=spurious_rank: the gap between strong and weak cues, images at both ends."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.reliance import spurious_rank as made
from fca.studies.reliance.spurious_rank import BOTTOM, END, EVERY, GAP, RANK, SUBJECT, TOP
from fca.studies.table import DATASET, LABEL, SPLIT
from fca.types import Table, with_interval

STEP = 100  # pixels from the top of one picture to the next, with two lines of text between


def gap_figure(gap: Table) -> alt.FacetChart:
    """Accuracy with strong cues minus accuracy with weak ones, with intervals, one row a class, widest gap first."""
    if gap.frame.empty:
        raise style.NothingToDraw("no model predicted the ranked images; next: fca run task=predict")
    frame = gap.frame.assign(panel=style.panels(gap.frame, DATASET, SPLIT))
    order = frame[frame[LABEL] != EVERY].groupby(LABEL)[GAP].mean().sort_values(ascending=False).index.tolist()
    rows = kinds.category(alt.Y, LABEL, [*order, EVERY], domain=False, labelPadding=12)
    coloured = kinds.hue(SUBJECT, frame, columns=2)
    chart = kinds.points_with_intervals(GAP, rows, gap.columns, coloured, dodge=SUBJECT, line=kinds.ZERO)
    chosen = "annotated features" if gap.parameters["features"] else "the features that matter most for the class"
    title = style.title(
        gap.question,
        f"Cues: {chosen}, which may lie on the object. Accuracy on the top k minus on the bottom k images, 95 %.",
        "A model ranked by its own features (the encoder) has a gap by construction: it predicts from what ranks.",
    )
    high = (18 + 12 * frame[SUBJECT].nunique()) * (len(order) + 1)
    return style.faceted(chart, frame, title, (DATASET, SUBJECT), height=high, columns=1)


def pictures_figure(pictures: Table) -> alt.FacetChart:
    """The first and the last images of the classes with the widest gaps, with their accuracies (figure 10)."""
    frame = pictures.frame.dropna(subset="thumbnail")
    if frame.empty:
        raise style.NothingToDraw("no pictures: the images are no longer at hand")
    ends = zip(frame[TOP], frame[BOTTOM], strict=True)
    right = ["" if pd.isna(top) else f"{top:.0%} right above, {bottom:.0%} below" for top, bottom in ends]
    frame = frame.assign(right=right, row=(frame[END] == "bottom").astype(int))
    frame["column"] = frame.groupby([DATASET, LABEL, END]).cumcount()
    frame["place"], frame["words"] = frame[RANK].map("rank {:g}".format), frame[END].map(END.choices.get)
    frame["panel"] = style.panels(frame, DATASET, LABEL, "right")
    title = style.title(
        pictures.question,
        "Above: strongest cues, below: weakest, with the share of the top and of the bottom k that models get right.",
    )
    chart = kinds.pictures(frame, [column for column in pictures.columns if column != "thumbnail"], "place", "words")
    drawn = style.faceted(chart, frame, title, (DATASET,), height=2 * STEP, columns=2)
    drawn.spec.width = (int(frame["column"].max()) + 1) * (kinds.SIDE + 18)
    return drawn


def headlines(gap: pd.DataFrame) -> Iterator[str]:
    """The mean gap of each model over the classes, with its interval.

    >>> line = {"dataset": "zoo", "label": EVERY, "subject": "net", "gap": 0.12, "gap_low": 0.03, "gap_high": 0.21}
    >>> list(headlines(pd.DataFrame([line])))
    ['zoo: net is 12 points [3, 21] more accurate on images with the strongest cues of a class than with the weakest.']
    """
    for line in gap[gap[LABEL] == EVERY].dropna(subset=GAP).to_dict("records"):
        value, low, high = (f"{100 * line[end]:.0f}" if pd.notna(line[end]) else "?" for end in with_interval(GAP))
        gained = f"{value} points [{low}, {high}] more accurate on images with the strongest cues of a class"
        why = ", by construction: its own features rank them" if "the encoder" in line[SUBJECT] else ""
        yield f"{line[DATASET]}: {line[SUBJECT]} is {gained} than with the weakest{why}."


FIGURES = (
    Figure("spurious_gap", "Accuracy with strong and weak cues", (made.SPURIOUS_GAP,), gap_figure),
    Figure("spurious_pictures", "Images with strong and weak cues", (made.SPURIOUS_PICTURES,), pictures_figure),
)
HEADLINES = {made.SPURIOUS_GAP.name: headlines}
