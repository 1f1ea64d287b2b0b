"""How large, central and whole the objects of a data set are, what they look like, and where networks look instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from PIL import Image

from fca.report.pictures import ACROSS, THUMBNAIL, data_uri, png_of
from fca.stats.intervals import FRACTION, mean_with_interval, wilson
from fca.store import Store
from fca.store.columns import Row
from fca.studies.reliance.columns import GEOMETRY
from fca.tables.keys import Query
from fca.tables.rows import apply_query, by_version, readable_rows, records, require_rows
from fca.tables.table import DATASET, IMAGE_ID, LABEL, MODEL, N_TEST, PICTURE_KIND, PLACE, TableSpec, filled
from fca.types import Column, Table, interval_columns
from fca.validation import Allowed

RAW = Column("mask_area_raw", float, ".1%", "share of the stored image that is object")
SIZE = Column("mask_area", float, ".1%", "share of the input, after resize and crop, that is object")
RETAINED = Column("retained", float, ".1%", "share of the object that the crop leaves")
CENTRE = Column("centre", float, ".0%", "distance of the object from the image's centre, share of the half diagonal")
REMOVED = Column("removed", float, ".1%", "share of the images whose object the crop removes completely")
AGREEMENT = Column("agreement", float, ".2f", "IoU of one person's mask with the mask that all agreed on")
MEANS, SPREAD = (RAW, SIZE, RETAINED, CENTRE), (RAW, SIZE, RETAINED, AGREEMENT)
QUANTITY = Column("quantity", str, "", "what is counted", {str(column): column.meaning for column in SPREAD})
FROM, WIDTH = Column("from", float, ".2f", "lower end of the bin"), 0.05
SHARE = Column("share", float, ".1%", "share of the images")
KINDS = {"object": "objects", "average": "average masks", "lowest": "lowest overlap of saliency and object"}
KIND = PICTURE_KIND.with_choices(KINDS)
IOU = Column("iou", float, ".2f", "overlap (IoU) of the salient region and the object")
ALL, LIGHT, DARK = "all classes", 242, (72, 20, 120)

PAPER = "Moayeri, Singla & Feizi, 2022 (Hard ImageNet),"
OBJECT_STATISTICS = TableSpec(
    "object_statistics",
    "How large and how central are the objects of each class, and how much of them does the crop remove?",
    f"{PAPER} figures 8 and 9, with intervals",
    (DATASET, LABEL, N_TEST, *(end for column in (*MEANS, REMOVED) for end in interval_columns(column)), GEOMETRY),
)
OBJECT_DISTRIBUTION = TableSpec(
    "object_distribution",
    "How are sizes of objects, their retained shares and the agreement of people about them distributed?",
    f"{PAPER} figures 2, 8 and 9",
    (DATASET, QUANTITY, FROM, SHARE, N_TEST),
)
OBJECT_PICTURES = TableSpec(
    "object_pictures",
    "What do the objects look like, where are they on average, and where do networks look instead?",
    f"{PAPER} figures 1, 5 and 7",
    (DATASET, KIND, MODEL, LABEL, IMAGE_ID, IOU, *PLACE),
)
METHOD = {
    "objects": "of the stored run with the most images of each data set, after the resize and crop that it names",
    "intervals": "95 %: Student's t over the images of a class, or over classes, corrected for skewness; removed: "
    "Wilson's, over all images in the line of all classes, whose other values are means over classes",
}


@dataclass(frozen=True)
class ObjectStatistics:
    """`analysis=object_statistics`: of the masks that saliency runs kept."""

    tables: ClassVar = (OBJECT_STATISTICS, OBJECT_DISTRIBUTION, OBJECT_PICTURES)

    query: Query = None
    shown: Annotated[int, Allowed(1), "pictures of each kind and model"] = 16

    def __call__(self, store: Store) -> list[Table]:
        """Tables object_statistics (a line a class), object_distribution (histograms) and object_pictures."""
        rows = readable_rows(store, self.query)
        rows = apply_query(rows[rows["task"] == "saliency"], self.query)
        require_rows(rows, "saliency runs", len(store.rows()), "fca run task=saliency dataset=rendered model=...")
        [rows, _] = by_version(store, [rows], rows[:0])
        found: tuple[list[Row], ...] = ([], [], [])
        for dataset, part in rows.sort_values([N_TEST, "run_id"], ascending=[False, True]).groupby(DATASET):
            runs = records(part)
            images = images_of(store, runs[0])
            pictures = [*_pictures(store, runs[0], "object", "first", "examples"), *_average(store, runs[0], images)]
            names = part[MODEL] + (", run " + part["run_id"]).where(part[MODEL].duplicated(keep=False), "")
            for name, run in sorted(zip(names, runs, strict=True), key=lambda pair: pair[0]):
                pictures += ({MODEL: name, **line} for line in _pictures(store, run, "lowest", "lowest", "overlays"))
            pictures = [line for line in pictures if line["row"] * ACROSS + line["column"] < self.shown]
            statistics = [{GEOMETRY: runs[0]["geometry"], **line} for line in _statistics(images)]
            for lines, more in zip(found, (statistics, _distribution(images), pictures), strict=True):
                lines += [{DATASET: dataset, **line} for line in more]
        return filled(self.tables, found, asdict(self) | METHOD, rows["run_id"])


def images_of(store: Store, run: Row) -> pd.DataFrame:
    """The images behind the arrays of a saliency run, in their order, with their measures (NaN: no object is there)."""
    items = store.items(run["fingerprint"])
    known = items[LABEL].cat.codes.isin(list(run["classes"])) & (items["split"] == run["split"])
    images = items[known].reset_index(drop=True)
    read = {str(name): store.array(run["run_id"], name, lines=len(images)).astype(float) for name in (*MEANS, IOU)}
    return images.assign(**read, label=images[LABEL].astype(str))


def _statistics(images: pd.DataFrame) -> Iterator[Row]:
    """A line a class, then one of the means over classes."""
    classes = images.groupby(LABEL, sort=False)
    means = classes[[str(column) for column in MEANS]].mean()
    for label, part, of in (*((key, part, part) for key, part in classes), (ALL, means, images)):
        line: Row = {LABEL: label, N_TEST: len(of)}
        for column in MEANS:
            line |= zip(interval_columns(column), mean_with_interval(part[column], within=FRACTION), strict=True)
        if n := int(of[RETAINED].count()):
            gone = int((of[RETAINED] == 0).sum())
            line |= zip(interval_columns(REMOVED), (gone / n, *wilson(gone, n)), strict=True)
        yield line


def _distribution(images: pd.DataFrame) -> Iterator[Row]:
    """Histograms of the quantities that there are."""
    people = images.filter(regex=r"^iou_\d+$")  # each person's mask; of some sets only their mean is known
    for quantity in SPREAD:
        found = people if quantity == AGREEMENT and len(people.columns) else images.filter(items=[str(quantity)])
        values = found.to_numpy(float).ravel()
        n = int((~np.isnan(values)).sum())
        for bin_, count in enumerate(np.histogram(values, round(1 / WIDTH), (0, 1))[0] if n else ()):
            yield {QUANTITY: str(quantity), FROM: bin_ * WIDTH, SHARE: count / n, N_TEST: n}


def _pictures(store: Store, run: Row, kind: str, where: str, pictures: str) -> Iterator[Row]:
    """Pictures that a saliency run kept, at its images of those positions."""
    images = images_of(store, run)
    for number, at in enumerate(store.array(run["run_id"], where).tolist()):
        about = {LABEL: images[LABEL][at], IMAGE_ID: images[IMAGE_ID][at]}
        about |= {IOU: images[IOU][at]} if kind == "lowest" else {}
        yield {KIND: kind, **about} | _placed(number, store.array(run["run_id"], pictures)[number])


def _average(store: Store, run: Row, images: pd.DataFrame) -> Iterator[Row]:
    """The mean of the masks of each class: light where no image has the object, dark where all have it."""
    masks, side = store.array(run["run_id"], "mask"), int(run["input_size"])
    for number, (label, part) in enumerate(images.groupby(LABEL, sort=False)):
        mean = np.unpackbits(masks[part.index], axis=1, count=side**2).mean(axis=0, dtype=np.float32)
        small = Image.fromarray(mean.reshape(side, side)).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
        pixels = LIGHT - np.asarray(small)[..., None] * (LIGHT - np.array(DARK))
        yield {KIND: "average", LABEL: label} | _placed(number, pixels.astype(np.uint8))


def _placed(number: int, pixels: np.ndarray) -> Row:
    """A picture and its place in a grid."""
    row, column = divmod(number, ACROSS)
    return {"thumbnail": data_uri(png_of(np.asarray(pixels))), "row": row, "column": column}
