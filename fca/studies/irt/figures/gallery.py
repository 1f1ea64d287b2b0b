"""Pictures of the hardest, easiest and most suspect images: a figure and sentences of the table of analysis=gallery."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

SIDE = 64  # pixels of a picture
STEP = 100  # from the top of one picture to the next, with two lines of text between
_KINDS = {
    "hardest": "hardest for the models",
    "easiest": "easiest (one draw among equals)",
    "suspect": "most suspect: the models agree on another class",
}
_TOLD = {
    **dict.fromkeys(("image_id", "label", "said"), ""),
    "rank": ".0f",
    **dict.fromkeys(("top1", "modal_wrong_share"), ".0%"),
    **dict.fromkeys(("difficulty", "discrimination"), ".2f"),
}


def gallery_figure(gallery: Table) -> alt.FacetChart:
    """A grid of pictures a kind, with the label and what the models said below each."""
    frame = gallery.frame
    shown = frame.dropna(subset="thumbnail")
    if shown.empty and len(frame):
        raise style.NothingToDraw(_undescribed(frame))
    shown = shown.assign(way=shown["kind"].map(_KINDS))
    shown["panel"] = style.panels(shown, "dataset", "way")
    wide, tall = shown["column"].max() + 1, shown["row"].max() + 1
    base = alt.Chart().encode(
        x=alt.X("column:O", axis=None, scale=alt.Scale(domain=list(range(wide)))),
        y=alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(tall)))),
        tooltip=style.tooltips(_TOLD),
    )
    told = base.transform_filter("isValid(datum.said)")  # a file may say only right or wrong
    layers = alt.layer(
        base.mark_image(width=SIDE, height=SIDE, yOffset=-12).encode(url="thumbnail:N"),
        base.transform_filter("isValid(datum.label)")
        .mark_text(fontSize=10, fontWeight=600, limit=SIDE + 14, dy=SIDE / 2 - 4)
        .encode(text="label:N"),
        told.mark_text(fontSize=9, limit=SIDE + 14, dy=SIDE / 2 + 8).encode(text="said:N"),
    )
    title = alt.Title(
        "Which images are hard, which easy, and which labels look wrong?",
        subtitle=["Below each picture its label and what the models said, with how many of them; hover for more."],
    )
    drawn = style.faceted(layers, shown, title, ("dataset",), height=int(tall * STEP), columns=1)
    drawn.spec.width = int(wide * (SIDE + 18))
    return drawn


def _undescribed(frame: pd.DataFrame) -> str:
    """Which data sets have no picture, and what makes them."""
    bare = frame.loc[frame["thumbnail"].isna(), "dataset"].drop_duplicates()
    runs = "; ".join(f"fca run task=describe dataset={name}" for name in bare)
    return f"no pictures of {', '.join(bare)}; next: {runs} (for answers from files, the data set that they are about)"


def gallery_answers(gallery: pd.DataFrame) -> Iterator[str]:
    """The hardest image of each data set and the most suspect one, and which sets still lack pictures.

    >>> line = {"dataset": "zoo", "kind": "suspect", "rank": 1, "image_id": "7.png", "label": "cat", "thumbnail": None}
    >>> list(gallery_answers(pd.DataFrame([{**line, "said": "dog 9, cat 1", "difficulty": 2.5, "top1": 0.1}])))[0]
    'zoo: the label that looks most wrong is cat of 7.png, to which the models say dog 9, cat 1.'
    """
    for dataset, part in gallery.groupby("dataset", sort=False):
        for line in part[(part["rank"] == 1) & (part["kind"] == "suspect")].to_dict("records"):
            told = f"the label that looks most wrong is {line['label']} of {line['image_id']}"
            yield f"{dataset}: {told}, to which the models say {line['said']}."
    if gallery["thumbnail"].isna().any():
        yield f"Gallery: {_undescribed(gallery)}."


PARTS = (Part("gallery", "Hardest, easiest and most suspect images", "gallery", ("gallery",), gallery_figure),)
ANSWERS = {"gallery": gallery_answers}
