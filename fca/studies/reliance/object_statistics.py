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
from fca.tables.rows import apply_query, readable_rows, records, require_rows, with_names_of_versions
from fca.tables.table import DATASET, IMAGE_ID, LABEL, MODEL, N_TEST, PICTURE_KIND, PLACE, TableSpec, filled
from fca.types import Column, Table, interval_columns
from fca.validation import Allowed

RAW = Column("mask_area_raw", float, ".1%", "share of the stored image that is object")
SIZE = Column("mask_area", float, ".1%", "share of the input, after resize and crop, that is object")
RETAINED = Column("retained", float, ".1%", "share of the object that the crop leaves")
CENTRE = Column("centre", float, ".0%", "distance of the object from the image's centre, share of the half diagonal")
REMOVED = Column("removed", float, ".1%", "share of the images whose object the crop removes completely")
AGREEMENT = Column("agreement", float, ".2f", "IoU of one person's mask with the mask that all agreed on")
MEANS = (RAW, SIZE, RETAINED, CENTRE)  # their mean over images is in the table of statistics
HISTOGRAMS = (RAW, SIZE, RETAINED, AGREEMENT)
QUANTITY = Column("quantity", str, "", "what is counted", {str(column): column.meaning for column in HISTOGRAMS})
BIN_START = Column("from", float, ".2f", "lower end of the bin")
BIN_WIDTH = 0.05
SHARE = Column("share", float, ".1%", "share of the images")
KINDS = {"object": "objects", "average": "average masks", "lowest": "lowest overlap of saliency and object"}
KIND = PICTURE_KIND.with_choices(KINDS)
IOU = Column("iou", float, ".2f", "overlap (IoU) of the salient region and the object")
ALL_CLASSES = "all classes"
LIGHT = 242  # of an average mask, where no image has the object; gray
DARK = (72, 20, 120)  # where all images have it

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
    (DATASET, QUANTITY, BIN_START, SHARE, N_TEST),
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
    """`analysis=object_statistics`: size and place of objects, from the masks that saliency runs stored."""

    tables: ClassVar = (OBJECT_STATISTICS, OBJECT_DISTRIBUTION, OBJECT_PICTURES)

    query: Query = None
    shown: Annotated[int, Allowed(1), "pictures of each kind and model"] = 16

    def __call__(self, store: Store) -> list[Table]:
        """Tables object_statistics (a line a class), object_distribution (histograms) and object_pictures.

        The objects of a data set are taken from its saliency run with the most images. Only the pictures of low overlap
        come from all runs, since each model has its own maps. Raises FcaError without saliency runs.
        """
        rows = readable_rows(store, self.query)  # only checks the query, which is then applied to saliency runs alone
        rows = apply_query(rows[rows["task"] == "saliency"], self.query)
        require_rows(rows, "saliency runs", len(store.rows()), "fca run task=saliency dataset=rendered model=...")
        rows = with_names_of_versions(store, rows)

        statistics: list[Row] = []
        distributions: list[Row] = []
        pictures: list[Row] = []
        largest_first = rows.sort_values([N_TEST, "run_id"], ascending=[False, True])
        for dataset, rows_of_dataset in largest_first.groupby(DATASET):
            largest_run = records(rows_of_dataset)[0]
            images = images_of(store, largest_run)
            for line in _statistics(images):
                statistics.append({DATASET: dataset, GEOMETRY: largest_run["geometry"], **line})
            for line in _distributions(images):
                distributions.append({DATASET: dataset, **line})
            for line in _pictures(store, rows_of_dataset, images):
                place = line["row"] * ACROSS + line["column"]  # number of the picture in its grid, counted row by row
                if place < self.shown:  # the first pictures of each grid
                    pictures.append({DATASET: dataset, **line})

        lines_by_table = (statistics, distributions, pictures)
        return filled(self.tables, lines_by_table, asdict(self) | METHOD, rows["run_id"])


def images_of(store: Store, run: Row) -> pd.DataFrame:
    """The images of a saliency run, a line each in the order of its arrays, with their measures as columns.

    The measures are size and place of the object (MEANS), and the overlap (IoU) of saliency and object. A measure is
    NaN where it is not defined, such as the overlap in an input without an object.

    run: the stored row of the saliency run.
    """
    items = store.items(run["fingerprint"])
    is_known_class = items[LABEL].cat.codes.isin(list(run["classes"]))  # the model may know only some classes
    is_of_run = is_known_class & (items["split"] == run["split"])
    images = items[is_of_run].reset_index(drop=True)

    images[LABEL] = images[LABEL].astype(str)
    for column in (*MEANS, IOU):
        name = str(column)
        images[name] = store.array(run["run_id"], name, lines=len(images)).astype(float)
    return images


def _statistics(images: pd.DataFrame) -> Iterator[Row]:
    """Lines of the table object_statistics: one for each class, then one with the means over classes.

    images: a line for each image, as from `images_of`.
    """
    by_class = images.groupby(LABEL, sort=False)
    for label, images_of_class in by_class:
        yield {LABEL: label, **_statistics_columns(images_of_class, images_of_class)}

    class_means = by_class[[str(column) for column in MEANS]].mean()
    yield {LABEL: ALL_CLASSES, **_statistics_columns(class_means, images)}


def _statistics_columns(averaged: pd.DataFrame, images: pd.DataFrame) -> Row:
    """Columns of one line: the mean of each measure with its interval, and the share of objects that the crop removes.

    That share is left out if nothing is known about the crop (the geometry is no resize and crop).

    averaged: the lines over which the means are taken: the images of one class, or for all classes one line for each
              class with its means.
    images:   the images of the class, or of all classes; the removed objects are counted in them.
    """
    columns: Row = {N_TEST: len(images)}
    for column in MEANS:
        mean = mean_with_interval(averaged[column], within=FRACTION)  # the interval is cut to [0, 1]
        columns |= zip(interval_columns(column), mean, strict=True)

    n_known = int(images[RETAINED].count())
    if n_known:
        n_removed = int((images[RETAINED] == 0).sum())
        share = (n_removed / n_known, *wilson(n_removed, n_known))
        columns |= zip(interval_columns(REMOVED), share, strict=True)
    return columns


def _distributions(images: pd.DataFrame) -> Iterator[Row]:
    """Lines of the table object_distribution: a line for each bin of each quantity of HISTOGRAMS that is known.

    A line has the share of the images in its bin. The agreement of people is the overlap (IoU) of each person's mask of
    an image with the majority of its masks. Where a data set has it for each person (columns iou_1, iou_2, ...), the
    masks of all persons are counted; some data sets have only the mean over persons, one value for each image.

    images: a line for each image, with its quantities in columns.
    """
    agreement_by_person = images.filter(regex=r"^iou_\d+$")
    for quantity in HISTOGRAMS:
        measured = images.filter(items=[str(quantity)])  # no column where the quantity is not stored
        if quantity == AGREEMENT and len(agreement_by_person.columns):
            measured = agreement_by_person

        values = measured.to_numpy(float).ravel()  # one for each image, or for each image and person
        n_known = int((~np.isnan(values)).sum())
        if not n_known:
            continue
        counts, _ = np.histogram(values, round(1 / BIN_WIDTH), (0, 1))
        for number, count in enumerate(counts):
            yield {
                QUANTITY: str(quantity),
                BIN_START: number * BIN_WIDTH,
                SHARE: count / n_known,
                N_TEST: n_known,
            }


def _pictures(store: Store, rows: pd.DataFrame, images: pd.DataFrame) -> Iterator[Row]:
    """Lines of the table object_pictures for one data set, one for each picture.

    First come objects, then the average mask of each class, then for each model its saliency maps with the lowest
    overlap with the object.

    rows:   the saliency runs of the data set. Objects and masks are taken from the first.
    images: the images of the first run, in the order of its arrays.
    """
    first_run = records(rows)[0]
    # the run's arrays: `first` has the positions of the first image of each class, `examples` their pictures
    yield from _stored_pictures(store, first_run, "object", positions_array="first", pictures_array="examples")
    yield from _average_masks(store, first_run, images)

    # where a model has several runs, such as one for each of two layers, their names get the run ids
    is_ambiguous = rows[MODEL].duplicated(keep=False)
    run_suffix = (", run " + rows["run_id"]).where(is_ambiguous, "")
    by_name = rows.assign(name=rows[MODEL] + run_suffix).sort_values("name", kind="stable")
    for name, run in zip(by_name["name"], records(by_name), strict=True):
        for line in _stored_pictures(store, run, "lowest", positions_array="lowest", pictures_array="overlays"):
            yield {MODEL: name, **line}


def _stored_pictures(store: Store, run: Row, kind: str, positions_array: str, pictures_array: str) -> Iterator[Row]:
    """A line for each picture of one kind that a saliency run stored, with the class and id of its image.

    kind:            "object": the first image of each class; "lowest": images whose salient pixels overlap least with
                     their object. Only lines of the second kind have the overlap (IOU).
    positions_array: name of the run's array of positions: which image each picture shows.
    pictures_array:  name of its array of pixels, in the same order.
    """
    images = images_of(store, run)
    positions = store.array(run["run_id"], positions_array).tolist()
    pixels_of_pictures = store.array(run["run_id"], pictures_array)
    for number, position in enumerate(positions):
        line: Row = {KIND: kind, LABEL: images[LABEL][position], IMAGE_ID: images[IMAGE_ID][position]}
        if kind == "lowest":
            line[IOU] = images[IOU][position]
        yield {**line, **_picture_columns(number, pixels_of_pictures[number])}


def _average_masks(store: Store, run: Row, images: pd.DataFrame) -> Iterator[Row]:
    """A line for each class with the picture of its average mask.

    A place is the darker, the larger the share of the class's images that have the object there.

    run:    the stored row of a saliency run, whose array `mask` has the masks at input size, 8 pixels in a byte.
    images: the images of this run, in the order of the array.
    """
    packed_masks = store.array(run["run_id"], "mask")  # images x bytes
    side = int(run["input_size"])  # of the masks, pixels
    by_class = images.groupby(LABEL, sort=False)
    for number, (label, images_of_class) in enumerate(by_class):
        packed = packed_masks[images_of_class.index]
        masks = np.unpackbits(packed, axis=1, count=side**2)  # images x pixels
        mean = masks.mean(axis=0, dtype=np.float32).reshape(side, side)
        resized = Image.fromarray(mean).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)

        # from LIGHT (no image has the object there) to DARK (all have it)
        share = np.asarray(resized)[..., None]  # height x width x 1
        pixels = LIGHT - share * (LIGHT - np.array(DARK))
        columns = _picture_columns(number, pixels.astype(np.uint8))
        yield {KIND: "average", LABEL: label, **columns}


def _picture_columns(number: int, pixels: np.ndarray) -> Row:
    """Columns of a picture: its thumbnail as a data URI, and its row and column in a grid that is ACROSS wide.

    number: of the picture in its grid, from 0.
    pixels: height x width x 3.
    """
    row, column = divmod(number, ACROSS)
    return {"thumbnail": data_uri(png_of(np.asarray(pixels))), "row": row, "column": column}
