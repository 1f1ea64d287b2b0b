"""How large, central and whole the objects of a data set are, what they look like, and where networks look instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import UInt8
from PIL import Image

from fca.allowed import Allowed
from fca.report.pictures import ACROSS, THUMBNAIL, data_uri, png_of
from fca.stats.intervals import FRACTION, mean_with_interval
from fca.store import Store
from fca.store.columns import Row
from fca.studies.rows import by_version, every_row, narrowed, records, require
from fca.studies.table import DATASET, IMAGE_ID, LABEL, MODEL, N_TEST, TableSpec, filled
from fca.types import Column, Table, with_interval

SIZE_RAW = Column("mask_area_raw", float, ".1%", "share of the stored image that is object")
SIZE = Column("mask_area", float, ".1%", "share of the input, after resize and crop, that is object")
RETAINED = Column("retained", float, ".1%", "share of the object that the crop leaves")
REMOVED = Column("removed", float, ".1%", "share of images whose object the crop removes completely")
CENTRE = Column("centre", float, ".2f", "distance of the object from the image's centre, in half diagonals")
AGREEMENT = Column("agreement", float, ".2f", "IoU of one person's mask with the mask that all agreed on")
MEASURES = (SIZE_RAW, SIZE, RETAINED, REMOVED, CENTRE)
GEOMETRY = Column("geometry", str, "", "resize and crop: side of the input, side before the crop, filter")
SPREAD = (SIZE_RAW, SIZE, RETAINED, AGREEMENT)
QUANTITY = Column("quantity", str, "", "what is counted", {str(column): column.meaning for column in SPREAD})
FROM, WIDTH = Column("from", float, ".2f", "lower end of a bin"), 0.05
SHARE = Column("share", float, ".1%", "share of the images")
_KINDS = {"object": "objects", "average": "average masks", "lowest": "lowest overlap of saliency and object"}
KIND = Column("kind", str, "", "kind of picture", _KINDS)
IOU = Column("iou", float, ".2f", "overlap (IoU) of the salient region and the object")
PLACE = (Column("thumbnail"), Column("row", int), Column("column", int))
ALL, INK, PAPER_GREY, COMMAND = (
    "all classes",
    (72, 20, 120),
    242,
    "fca run task=saliency dataset=rendered model=run model.run_id=...",
)

PAPER = "Moayeri, Singla & Feizi, 2022 (Hard ImageNet),"
OBJECT_STATISTICS = TableSpec(
    "object_statistics",
    "How large and how central are the objects of each class, and how much of them does the crop remove?",
    f"{PAPER} figures 8 and 9, with intervals",
    (DATASET, LABEL, N_TEST, *(end for column in MEASURES for end in with_interval(column)), GEOMETRY),
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
    "intervals": "95 %, over the images of a class, and over classes of all: bootstrap; Student's t of fewer than 5",
    "average": "share of the images of a class whose object covers a pixel: light none, dark all",
}


@dataclass(frozen=True)
class ObjectStatistics:
    """`analysis=object_statistics`: of the masks that saliency runs kept.    shown: pictures of a kind and model."""

    tables: ClassVar = (OBJECT_STATISTICS, OBJECT_DISTRIBUTION, OBJECT_PICTURES)

    query: str | None = None
    shown: Annotated[int, Allowed(1)] = 16

    def __call__(self, store: Store) -> list[Table]:
        """Tables object_statistics (a line a class), object_distribution (histograms) and object_pictures."""
        rows = every_row(store, self.query)
        rows = narrowed(rows[rows["task"] == "saliency"], self.query)
        require(rows, "saliency runs", len(store.rows()), COMMAND)
        [rows, _] = by_version(store, [rows], rows[:0])
        found: tuple[list[Any], ...] = ([], [], [])
        for dataset, part in rows.sort_values([N_TEST, "run_id"], ascending=[False, True]).groupby(DATASET):
            runs = records(part)
            images = images_of(store, runs[0])
            pictures = [*self._objects(store, runs[0], images)]
            for run in sorted(runs, key=lambda run: (run["model"], run["run_id"])):
                pictures += self._lowest(store, run)
            statistics = (line | {GEOMETRY: runs[0]["geometry"]} for line in _statistics(images))
            for lines, more in zip(found, (statistics, _distribution(images), pictures), strict=True):
                lines += [{DATASET: dataset, **line} for line in more]
        return filled(self.tables, found, asdict(self) | METHOD, rows["run_id"])

    def _objects(self, store: Store, run: Row, images: pd.DataFrame) -> Iterator[Row]:
        """The first image of each class with its object tinted, and the mean of the masks of each class."""
        for number, (at, pixels) in enumerate(zip(*_arrays(store, run, "first", "examples"), strict=True)):
            if number < self.shown:
                yield _line("object", number, pixels, images.iloc[at])
        masks, side = store.array(run["run_id"], "mask"), int(run["input_size"])
        for number, (_, part) in enumerate(images.groupby(LABEL, sort=False)):
            if number < self.shown:
                mean = np.unpackbits(masks[part.index], axis=1, count=side**2).mean(axis=0, dtype=np.float32)
                small = Image.fromarray(mean.reshape(side, side)).resize((THUMBNAIL,) * 2, Image.Resampling.BOX)
                pixels = PAPER_GREY - np.asarray(small)[..., None] * (PAPER_GREY - np.array(INK))
                yield _line("average", number, pixels.astype(np.uint8), part[[LABEL]].iloc[0])

    def _lowest(self, store: Store, run: Row) -> Iterator[Row]:
        """The images of one model whose saliency overlaps least with the object."""
        images = images_of(store, run)
        for number, (at, pixels) in enumerate(zip(*_arrays(store, run, "lowest", "overlays"), strict=True)):
            if number < self.shown:
                yield _line("lowest", number, pixels, images.iloc[at]) | {
                    MODEL: run["model"],
                    IOU: images[IOU].iloc[at],
                }


def images_of(store: Store, run: Row) -> pd.DataFrame:
    """The images behind the arrays of a saliency run, in their order, with their measures (NaN: no object is there)."""
    items = store.items(run["fingerprint"])
    known = items[LABEL].cat.codes.isin(list(run["classes"])) & (items["split"] == run["split"])
    images = items[known].reset_index(drop=True)
    for name in (SIZE_RAW, SIZE, RETAINED, CENTRE, IOU):
        images[name] = np.asarray(store.array(run["run_id"], name, lines=len(images)), np.float64)
    images[LABEL] = images[LABEL].cat.remove_unused_categories()
    return images.assign(removed=(images[RETAINED] == 0).where(images[RETAINED].notna()).astype(float))


def _arrays(store: Store, run: Row, *names: str) -> list[np.ndarray]:
    return [store.array(run["run_id"], name) for name in names]


def _line(kind: str, number: int, pixels: UInt8[np.ndarray, "side side 3"], about: pd.Series) -> Row:
    place = dict(zip(PLACE, (data_uri(png_of(pixels)), *divmod(number, ACROSS)), strict=True))
    return {KIND: kind, LABEL: about[LABEL], IMAGE_ID: about.get(IMAGE_ID), **place}


def _statistics(images: pd.DataFrame) -> Iterator[Row]:
    """A line a class, then one of the means over classes."""
    means = images.groupby(LABEL, observed=True)[[*map(str, MEASURES)]].mean()
    for label, part in (*images.groupby(LABEL, observed=True), (ALL, means)):
        line = {LABEL: label, N_TEST: len(images) if label == ALL else len(part)}
        for column in MEASURES:
            line |= zip(with_interval(column), mean_with_interval(part[column], within=FRACTION), strict=True)
        yield line


def _distribution(images: pd.DataFrame) -> Iterator[Row]:
    """Histograms of the quantities that there are."""
    people = images.filter(regex=r"^(iou_\d+|agreement)$")
    for quantity in SPREAD:
        values = (people if quantity == AGREEMENT else images[quantity]).to_numpy(float).ravel()
        values = values[~np.isnan(values)]
        counts, edges = np.histogram(values, bins=round(1 / WIDTH), range=(0, 1))
        for count, edge in zip(counts if len(values) else (), edges, strict=False):
            yield {
                QUANTITY: str(quantity),
                FROM: round(float(edge), 6),
                SHARE: count / len(values),
                N_TEST: len(values),
            }
