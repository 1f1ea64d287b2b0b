"""Images and their objects: figures and headlines of analysis=object_statistics and spurious_rank."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.reliance import object_statistics as objects
from fca.studies.reliance import spurious_rank as made
from fca.studies.reliance.object_statistics import IOU, KIND, QUANTITY, RAW, REMOVED, SHARE
from fca.studies.reliance.spurious_rank import BOTTOM, END, EVERY, GAP, RANK, SUBJECT, TOP
from fca.studies.table import DATASET, LABEL, MODEL, SPLIT
from fca.types import Column, Table, with_interval

STEP, STEP_OF_ENDS = kinds.SIDE + 32, kinds.SIDE + 36  # pixels from a row of pictures to the next
SHOWN = 8  # panels of pictures
MEASURED = Column("measured", float, ".1%", "")
_NAMES = ("size in the stored image", "size in the input", "left by the crop", "off centre")
SHORT = dict(zip(objects.MEANS, _NAMES, strict=True))
NAMES = {**SHORT, objects.AGREEMENT: "agreement of people"}


def classes_figure(shown: Table) -> alt.FacetChart:
    """Size before and after the crop, what the crop leaves and the distance from the centre, class by class."""
    frame = pd.concat([_measure(shown.frame, column) for column in SHORT], ignore_index=True)
    frame = frame[frame[MEASURED].notna() & (frame[LABEL] != objects.ALL)].sort_values(DATASET, kind="stable")
    frame["panel"] = style.panels(frame, DATASET, "measure")
    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField("size", op="min"), grid=False)
    coloured = kinds.hue(Column(DATASET), frame, legend=style.differs(frame[DATASET]))
    hover = (DATASET, LABEL, Column("measure"), *with_interval(MEASURED))
    across = kinds.quantity(alt.X, MEASURED, "", grid=True, domainMin=0, padding=4)
    chart = kinds.points_with_intervals(MEASURED, rows, hover, coloured, scale=across)
    title = style.title(
        "How large, whole and central are the objects of each class?",
        "Each mark is the mean over the images of a class, with its 95 % interval; the smallest objects come first.",
        f"Input: {'; '.join(dict.fromkeys(shown.frame[objects.GEOMETRY]))} (side, side before the crop, filter).",
    )
    figure = style.faceted(chart, frame, title, (DATASET,), columns=len(SHORT), row=18)
    return figure.resolve_scale(x="independent", y="independent")


def _measure(frame: pd.DataFrame, column: Column) -> pd.DataFrame:
    """One measure of every class as the value that is drawn."""
    values = {str(new): frame[end] for new, end in zip(with_interval(MEASURED), with_interval(column), strict=True)}
    return frame[[DATASET, LABEL]].assign(measure=SHORT[column], size=frame[RAW], **values)


def distribution_figure(shown: Table) -> alt.FacetChart:
    """The histogram of every quantity over images, one panel a quantity and data set."""
    frame = shown.frame.sort_values(QUANTITY, key=lambda names: names.map([*NAMES].index), kind="stable")
    frame = frame.assign(what=frame[QUANTITY].map(NAMES), to=frame[objects.FROM] + objects.WIDTH)
    frame["panel"] = style.panels(frame, "what", DATASET)
    sets = frame[DATASET].nunique()
    title = style.title(
        "How are sizes, shares left by the crop and agreement distributed?",
        f"Each bar is the share of the images in a bin of {objects.WIDTH:.0%}.",
    )
    across = kinds.quantity(alt.X, Column(objects.FROM, float, ".0%", ""), "", domain=[0, 1], padding=0)
    up = kinds.quantity(alt.Y, SHARE, zero=True, padding=0)
    chart = kinds.bars(across, up, shown.columns, x2="to:Q", y2=alt.datum(0))
    figure = style.faceted(chart, frame, title, (DATASET,), height=120, columns=sets if 1 < sets < 5 else 2)
    return figure.resolve_scale(y="independent")


def pictures_figure(kind: str, question: str, line: str, shown: Table) -> alt.FacetChart:
    """A grid of the pictures of one kind, one panel a data set (and a model)."""
    frame = shown.frame[shown.frame[KIND] == kind].dropna(subset="thumbnail")
    frame = frame.assign(panel=style.panels(frame, DATASET, *([MODEL] if kind == "lowest" else [])))
    panels = list(dict.fromkeys(frame["panel"]))
    frame = frame[frame["panel"].isin(panels[:SHOWN])].reset_index(drop=True)
    line += f" The first {SHOWN} of {len(panels)}; all are in the table." * (len(panels) > SHOWN)
    frame["below"] = frame[IOU].map("IoU {:.2f}".format).where(frame[IOU].notna(), "")
    hover = [column for column in shown.columns if column not in objects.PLACE]
    tall, wide = (int(frame[name].max()) + 1 for name in ("row", "column"))
    chart = kinds.pictures(frame, hover, LABEL, "below")
    drawn = style.faceted(chart, frame, style.title(question, line), (DATASET,), height=tall * STEP, columns=1)
    drawn.usermeta, drawn.spec.width = kinds.FIXED, wide * (kinds.SIDE + kinds.GAP)
    return drawn


def headlines(statistics: pd.DataFrame) -> Iterator[str]:
    """Size of the objects, what the crop removes and how far off centre they are, in a sentence for each data set.

    >>> line = {"dataset": "zoo", "label": "all classes"}
    >>> for name in ("mask_area_raw", "mask_area", "retained", "removed", "centre"):
    ...     line |= {name: 0.25, f"{name}_low": 0.2, f"{name}_high": 0.3}
    >>> print(*headlines(pd.DataFrame([line])))
    zoo: objects take 25.0 % [20.0, 30.0] of an image, and the crop removes 25.0 % [20.0, 30.0] of them completely.
    """
    for line in statistics[statistics[LABEL] == objects.ALL].to_dict("records"):
        size, removed = (_percent(line, column) for column in (RAW, REMOVED))
        lost = f", and the crop removes {removed} of them completely" if removed else ""
        if size:
            yield f"{line[DATASET]}: objects take {size} of an image{lost}."


def _percent(line: dict[Any, Any], column: Column) -> str | None:
    """A share with its interval, where there is one; None where it is missing."""
    value, low, high = (100 * line[end] for end in with_interval(column))
    if pd.isna(value):
        return None
    return f"{value:.1f} %" + ("" if pd.isna(low) else f" [{low:.1f}, {high:.1f}]")


# Images ranked by their cues


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


def ends_figure(pictures: Table) -> alt.FacetChart:
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
        "Above stand the strongest cues, below the weakest, with the share of the top and bottom k that is right.",
    )
    chart = kinds.pictures(frame, [column for column in pictures.columns if column != "thumbnail"], "place", "words")
    drawn = style.faceted(chart, frame, title, (DATASET,), height=2 * STEP_OF_ENDS, columns=2)
    drawn.usermeta, drawn.spec.width = kinds.FIXED, (int(frame["column"].max()) + 1) * (kinds.SIDE + kinds.GAP)
    return drawn


def gap_headlines(gap: pd.DataFrame) -> Iterator[str]:
    """The mean gap of each model over the classes, with its interval.

    >>> line = {"dataset": "zoo", "label": EVERY, "subject": "net", "gap": 0.12, "gap_low": 0.03, "gap_high": 0.21}
    >>> list(gap_headlines(pd.DataFrame([line])))
    ['zoo: net is 12 points [3, 21] more accurate on images with the strongest cues of a class than with the weakest.']
    """
    for line in gap[gap[LABEL] == EVERY].dropna(subset=GAP).to_dict("records"):
        value, low, high = (f"{100 * line[end]:.0f}" for end in with_interval(GAP))
        points = f"{value} points [{low}, {high}]"
        images = "more accurate on images with the strongest cues of a class than with the weakest"
        why = ", by construction: its own features rank them" if "the encoder" in line[SUBJECT] else ""
        who = f"{line[DATASET]}: {line[SUBJECT]}"
        if pd.isna(line[GAP.low]):
            yield f"{who} is {value} points {images} (no interval){why}."
        elif line[GAP.low] > 0:
            yield f"{who} is {points} {images}{why}."
        else:
            yield f"{who} is not significantly {images}: {points}{why}."


_PICTURES = (
    ("object", "What do the objects look like?", "The first image of each class at input size, its object tinted."),
    ("average", "Where are the objects on average?", "Share of the images with the object there: light 0, dark 1."),
    ("lowest", "Where do networks look instead?", "Heat: GradCAM of the image's class; outline: the object."),
)
FIGURES = (
    Figure("object_statistics", "Objects of each class", (objects.OBJECT_STATISTICS,), classes_figure),
    Figure("object_distribution", "Sizes and retained shares", (objects.OBJECT_DISTRIBUTION,), distribution_figure),
    *(
        Figure(f"pictures_{kind}", question, (objects.OBJECT_PICTURES,), partial(pictures_figure, kind, question, line))
        for kind, question, line in _PICTURES
    ),
    Figure("spurious_gap", "Accuracy with strong and weak cues", (made.SPURIOUS_GAP,), gap_figure),
    Figure("spurious_pictures", "Images with strong and weak cues", (made.SPURIOUS_PICTURES,), ends_figure),
)
HEADLINES = {objects.OBJECT_STATISTICS.name: headlines, made.SPURIOUS_GAP.name: gap_headlines}
