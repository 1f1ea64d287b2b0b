"""The contents of a data set: counts, sizes, masks, copies, groups in several splits, damaged files, unused bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float32, Int, Shaped, UInt8

from fca.csv_table import csv_text
from fca.data.duplicates import SIDE, exact_pairs, near_pairs, perceptual_hashes, signature
from fca.data.files import IN_FILE, WHITE, InFile, fewest_bits, parallel_map
from fca.data.splits import for_training, groups_across_splits
from fca.store.columns import N_TRAIN, N_VAL
from fca.store.files import write_text
from fca.tasks import FINDINGS, N_UNUSED, RunContext
from fca.types import Arrays, Column, FcaError, Finished, ImageData, Run, UnreadableImage

N_IMAGES = Column("n_images", int, ",", "images of the set, those of all splits and those left out")
DETAILS = (
    Column("class_min", int, ",", "images of the smallest class"),
    *(
        Column(f"{side}_{end}", int, "d", f"{size} {side} of an image, pixels")
        for side in ("height", "width")
        for end, size in (("min", "smallest"), ("max", "largest"))
    ),
    Column("duplicates_exact", int, ",", "pairs of equal pixels; of more than 100 equal images those with the first"),
    Column("duplicates_near", int, ",", "pairs that differ by no more than re-encoding, resizing, a shift by a pixel"),
    Column("duplicates_between_splits", int, ",", "pairs of duplicates whose images are in different splits"),
    Column("duplicates_two_labels", int, ",", "pairs of duplicates whose images have different labels"),
    Column("duplicates_between_splits_two_labels", int, ",", "pairs of duplicates that differ in split and label"),
    Column("groups_across_splits", int, ",", "groups (dataset.group) with images in several of train, val and test"),
    Column("n_unreadable", int, ",", "images that cannot be read"),
    Column("n_damaged", int, ",", "JPEG files with damaged data, of which a part is shown as something else"),
    Column("n_few_bits", int, ",", "files of 16 bits a channel that use few of them, and are shown too dark"),
)
CHECKSUM = Column("checksum", str, meaning="sha256 of ids, labels, splits and pixels of all images; all can be read")


@dataclass(frozen=True)
class Describe:
    """`task=describe`: one run that reads every image of the set once."""

    columns: ClassVar[tuple[Column, ...]] = (N_IMAGES, N_TRAIN, N_VAL, N_UNUSED, *DETAILS, CHECKSUM)
    summary: ClassVar[tuple[Column | str, ...]] = (N_IMAGES, N_TRAIN, N_VAL, "n_test", N_UNUSED, *DETAILS)

    def plan(self, context: RunContext) -> list[Run[None]]:
        """One run for the data set; subset, model and seed do not matter. Raises FcaError for a shift."""
        context.check_clean("describe")
        data = context.data
        split_data = _split_as_for_training(data)

        # The id of the run is a hash of its identity. Keys are left out where they change nothing, so that results
        # stored before they existed stay valid.
        identity: dict[str, Any] = {"data": data.fingerprint}
        if data.group is not None:
            identity["group"] = data.group
        if data.unused:  # these images are counted, but are no part of the fingerprint
            identity["unused"] = data.unused
        if data.fingerprint_kind == "content":  # sets identified by a version, such as published ones, keep their ids
            identity["files"] = "damage, bits"  # earlier versions examined only the pixels
        if split_data is not data:  # a set with one split; earlier versions described it without splitting it
            identity["cut"] = split_data.fingerprint

        columns = {
            "dataset": data.name,
            "fingerprint": data.fingerprint,
            "num_classes": len(data.classes),
        }
        return [Run("describe", identity, columns)]

    def run(self, runs: Sequence[Run[None]], context: RunContext) -> Iterator[Finished]:
        """Read all images, write findings.csv, and yield the run with its columns and arrays.

        findings.csv lists what a person should look at, such as damaged files and duplicates with different labels.
        """
        for run in runs:
            context.store.keep_items(context.data)
            arrays = describe_images(context.data, context.machine.workers)

            # findings and counts are about the splits that a training would use
            split_data = _split_as_for_training(context.data)
            write_text(context.store.folder(run.run_id) / FINDINGS, csv_text(findings(split_data, arrays)))

            columns = summary(split_data, arrays)
            if columns[CHECKSUM] is not None:  # all images can be read
                # the checksum is about the splits of the data set itself, not those drawn for training, so that people
                # who have the same data get the same checksum
                columns[CHECKSUM] = checksum(context.data, arrays["sha256"])
            yield Finished(run, columns, arrays)


def _split_as_for_training(data: ImageData) -> ImageData:
    """The data in the splits that a training uses; unchanged where a class has too few images to be trained on."""
    try:
        return for_training(data)
    except FcaError:
        return data


def describe_images(data: ImageData, workers: int = 0) -> Arrays:
    """Read every image once, and return what the pixels and files show, as arrays.

    workers: number of threads; 0: one for each core.

    Arrays with one value for each image, in the order of `data.items`:

    unreadable: whether the image, or its mask, cannot be read. The image's other values are NaN then, or 0 or empty
    where a type has no NaN.
    height, width: pixels.
    mask_area: the object's share of the image; NaN without a mask.
    mask_y, mask_x: the object's centroid as shares of height and width, from the top and the left; NaN without a mask,
    and for an empty mask.
    phash: 64-bit perceptual hash.
    sha256: 64 hex digits, as bytes, over "height width " and the decoded RGB pixels. Decoders of JPEG may differ by a
    grey level, so compare these hashes only between machines with the same Pillow.
    largest: the largest value of a file with 16 bits a channel; NaN for all others, and where dataset.white is set, as
    the user has chosen the value of white then.
    damaged: whether the compressed data of a JPEG file are damaged.

    Arrays of other lengths:

    duplicates_exact: pairs of positions whose images have equal pixels.
    duplicates_near: pairs of positions whose images differ by no more than a re-encoding, a resizing or a shift by a
    pixel. Of several exact copies only the first image is compared.
    reasons: for each unreadable image, why it cannot be read.
    damages: for each damaged file, what is wrong with it.
    """
    image_facts: list[dict[str, Any]] = []
    reasons: list[str] = []
    inspections = parallel_map(lambda i: _inspect(data, i), len(data.items), workers, f"reading {data.name}")
    for facts_or_reason in inspections:
        if isinstance(facts_or_reason, str):  # the reason why the image cannot be read
            reasons.append(facts_or_reason)
            image_facts.append(UNREADABLE)
        else:
            image_facts.append(facts_or_reason)

    # The keys of UNREADABLE are the names of all facts. `signature` and `damage` are used here, and not stored.
    arrays = {name: np.stack([facts[name] for facts in image_facts]) for name in UNREADABLE}
    signatures = arrays.pop("signature")  # tiny grey images, for the search of near duplicates
    damages = arrays.pop("damage")
    digests = arrays["sha256"]

    # Pairs are positions among the images that are compared: all readable images for exact duplicates, and the first
    # of each set of exact copies for near duplicates.
    readable = np.flatnonzero(~arrays["unreadable"])
    _, first_of_digest = np.unique(digests[readable], return_index=True)
    distinct = readable[np.sort(first_of_digest)]
    smaller_side = np.minimum(arrays["height"], arrays["width"])
    exact = exact_pairs(digests[readable].tolist())
    near = near_pairs(signatures[distinct], smaller_side[distinct])  # copies of larger images have to agree better

    return {
        **arrays,
        "phash": np.where(arrays["unreadable"], np.uint64(0), perceptual_hashes(signatures)),
        "duplicates_exact": readable[exact].astype(np.int32),
        "duplicates_near": distinct[near].astype(np.int32),
        "reasons": np.array(reasons, dtype=np.str_),
        "damaged": damages != "",
        "damages": damages[damages != ""],
    }


def summary(data: ImageData, arrays: Arrays) -> dict[str, Any]:
    """The columns of the run: counts of images, extreme sizes, counts of duplicates and of bad files, checksum.

    A pair of duplicates is counted as exact or as near. Pairs whose images differ in split, in label, or in both are
    also counted in columns of their own.
    Sizes are those of readable images; without any, there are no columns of sizes. The checksum is a hash over the id,
    label, split and pixels of every image, by which people compare their data; None if an image cannot be read.

    arrays: the result of `describe_images`.
    """
    splits = data.items["split"].to_numpy()
    is_readable = ~arrays["unreadable"]

    sizes = {}
    if is_readable.any():
        for side in ("height", "width"):
            pixels = arrays[side][is_readable]
            sizes[f"{side}_min"] = pixels.min()
            sizes[f"{side}_max"] = pixels.max()

    pairs = np.concatenate([arrays["duplicates_exact"], arrays["duplicates_near"]])
    first, second = pairs.T
    differs_in_split = splits[first] != splits[second]
    differs_in_label = data.labels[first] != data.labels[second]

    return {
        "n_images": len(splits) + data.unused,
        **{f"n_{split}": int((splits == split).sum()) for split in ("train", "val", "test")},
        N_UNUSED: data.unused,
        "class_min": int(np.bincount(data.labels, minlength=len(data.classes)).min()),  # images of the smallest class
        **sizes,
        "duplicates_exact": len(arrays["duplicates_exact"]),
        "duplicates_near": len(arrays["duplicates_near"]),
        "duplicates_between_splits": int(differs_in_split.sum()),
        "duplicates_two_labels": int(differs_in_label.sum()),
        "duplicates_between_splits_two_labels": int((differs_in_split & differs_in_label).sum()),
        # groups, such as patients, whose images are in several splits
        "groups_across_splits": None if data.group is None else len(groups_across_splits(data)),
        "n_unreadable": int((~is_readable).sum()),
        "n_damaged": int(arrays["damaged"].sum()),
        "n_few_bits": int(_uses_few_bits(arrays["largest"]).sum()),  # 16-bit files that are shown too dark
        CHECKSUM: checksum(data, arrays["sha256"]) if is_readable.all() else None,
    }


def findings(data: ImageData, arrays: Arrays) -> pd.DataFrame:
    """The lines of findings.csv, one for each finding that a person should look at.

    Findings are: files that cannot be read, with the reason; files that are damaged, or use few of their 16 bits;
    groups in several of train, val and test, with their numbers of images; pairs of duplicates that differ in split or
    label, exact duplicates before near duplicates.

    Columns: finding (its kind); image_id, split and label of the image; other_image_id, other_split and other_label of
    the second image of a pair; group; detail. Cells that a finding does not have are empty.

    arrays: the result of `describe_images`.
    """
    images = data.items[["image_id", "split", "label"]]
    unreadable = images[arrays["unreadable"]]
    frames = [
        unreadable.assign(finding="unreadable file", detail=arrays["reasons"]),
        _damaged_files(images, arrays),
        _files_of_few_bits(images, arrays["largest"]),
        _crossing_groups(data),
        _contradicting_duplicates(images, arrays["duplicates_exact"], "exact"),
        _contradicting_duplicates(images, arrays["duplicates_near"], "near"),
    ]
    columns = ["finding", *images, *images.add_prefix("other_"), "group", "detail"]  # a frame iterates over its columns
    return pd.concat(frames, ignore_index=True).reindex(columns=columns)


def _crossing_groups(data: ImageData) -> pd.DataFrame:
    """A line for each group (dataset.group) with images in several of train, val and test.

    Its detail is the number of images in each of these splits.
    """
    crossing = groups_across_splits(data)
    details = []
    for _, counts in crossing.iterrows():
        details.append(", ".join(f"{split} {n}" for split, n in counts.items() if n))
    return pd.DataFrame({"finding": "group in several splits", "group": crossing.index, "detail": details})


def _contradicting_duplicates(images: pd.DataFrame, pairs: Int[np.ndarray, "pairs 2"], kind: str) -> pd.DataFrame:
    """A line for each pair of duplicates whose images are in two splits, or have two labels.

    images: image_id, split and label of all images.
    pairs: positions among `images`.
    kind: exact or near.
    """
    first = images.iloc[pairs[:, 0]].reset_index(drop=True)
    second = images.iloc[pairs[:, 1]].reset_index(drop=True)

    # For each pair the words about what contradicts; `mask` replaces the value where its condition holds.
    contradiction = pd.Series("", first.index)
    contradiction = contradiction.mask(first["split"] != second["split"], " in two splits")
    contradiction = contradiction.mask(first["label"] != second["label"], contradiction + " with two labels")

    both_images = first.join(second.add_prefix("other_"))
    lines = both_images.assign(finding=f"{kind} duplicate" + contradiction)
    # descending by the words: pairs with two labels come before pairs that are only in two splits
    return lines[contradiction != ""].sort_values("finding", ascending=False, kind="stable")


def _damaged_files(images: pd.DataFrame, arrays: Arrays) -> pd.DataFrame:
    """A line for each damaged JPEG file, whose detail states the damage.

    images: image_id, split and label of all images.
    arrays: the result of `describe_images`.
    """
    damaged = images[arrays["damaged"]]
    damages = arrays["damages"].tolist()
    details = [f"{image_id}: {damage}" for image_id, damage in zip(damaged["image_id"], damages, strict=True)]
    return damaged.assign(finding="damaged file", detail=details)


EIGHTH_OF_16_BITS = 2**13  # of the range of values
QUARTER_OF_16_BITS = 2**14


def _uses_few_bits(largest: Float32[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
    """Whether each file with 16 bits a channel uses few of them, so that it is shown too dark.

    If no file of the set uses more than 14 bits, this is true for all of them. Otherwise it is true for files whose
    values are all below an eighth of the range.

    largest: the largest value of each file; NaN for files without 16 bits, for which the result is false.
    """
    largest_of_set = _largest_of_set(largest)
    if largest_of_set == 0:  # there is no file of 16 bits, or all are black
        return np.zeros(len(largest), bool)
    limit = QUARTER_OF_16_BITS if largest_of_set < QUARTER_OF_16_BITS else EIGHTH_OF_16_BITS
    return largest < limit  # false for NaN


def _largest_of_set(largest: Float32[np.ndarray, " images"]) -> int:
    """The largest value of any file with 16 bits a channel; 0 without such files."""
    return int(np.nan_to_num(largest).max(initial=0))


def _files_of_few_bits(images: pd.DataFrame, largest: Float32[np.ndarray, " images"]) -> pd.DataFrame:
    """A line for each file that uses few of its 16 bits, so that it is shown too dark.

    Its detail is the largest value of the file and what the user can do.

    images: image_id, split and label of all images.
    largest: the largest value of each; NaN without 16 bits.
    """
    largest_of_set = _largest_of_set(largest)
    if largest_of_set < QUARTER_OF_16_BITS:  # all files use few bits: one setting corrects them
        white = fewest_bits(largest_of_set)  # the largest number of so many bits, such as 4095 for 12 bits
        step = f"no 16-bit file of the set has more than {largest_of_set}: set dataset.white={white}"
    else:
        step = (
            f"others of the set have up to {largest_of_set}: if it is not dark but has fewer bits, scale its values up"
        )

    uses_few_bits = _uses_few_bits(largest)
    dark_images = images[uses_few_bits]
    dark_largest = largest[uses_few_bits].tolist()
    details = [
        f"{image_id}: its largest value is {value:.0f} of {WHITE}; {step}"
        for image_id, value in zip(dark_images["image_id"], dark_largest, strict=True)
    ]
    return dark_images.assign(finding="16-bit file that uses few of its bits", detail=details)


def checksum(data: ImageData, digests: Shaped[np.ndarray, " images"]) -> str:
    """sha256 over the id, label, split and digest of every image, in 64 hex digits; the order of images is irrelevant.

    Two people can compare it to see whether they have the same data: unlike the fingerprint it depends on the pixels.
    Records are sorted; their fields are separated by \\x1f, and each record ends in \\x1e.

    digests: the array `sha256` of `describe_images`.
    """
    columns = [data.items[column].tolist() for column in ("image_id", "label", "split")]
    records = sorted(zip(*columns, digests.astype(str).tolist(), strict=True))
    text = "".join("\x1f".join(record) + "\x1e" for record in records)
    return hashlib.sha256(text.encode()).hexdigest()


UNREADABLE: dict[str, Any] = {
    "unreadable": np.True_,
    "height": np.int32(0),
    "width": np.int32(0),
    "mask_area": np.float32(np.nan),
    "mask_y": np.float32(np.nan),
    "mask_x": np.float32(np.nan),
    "largest": np.float32(np.nan),
    "sha256": np.zeros((), "S64"),
    "signature": np.zeros((SIDE, SIDE), np.uint8),
    "damage": "",
}
"""The values of `_inspect` for an image that cannot be read."""


def _inspect(data: ImageData, index: int) -> dict[str, Any] | str:
    """The facts of one image, by the names in UNREADABLE; or the reason why the image or its mask cannot be read.

    index: position of the image in `data.items`.
    """
    try:
        image, file_facts = _read(data, index)  # the facts: largest value of 16 bits, and damage
        mask = data.mask(index)
    except UnreadableImage as error:
        return str(error)

    height, width = image.shape[:2]
    mask_area, mask_y, mask_x = _area_and_centroid(mask)
    digest = hashlib.sha256(f"{height} {width} ".encode() + image.tobytes()).hexdigest()
    return {
        "unreadable": np.False_,
        "height": np.int32(height),
        "width": np.int32(width),
        "mask_area": np.float32(mask_area),
        "mask_y": np.float32(mask_y),
        "mask_x": np.float32(mask_x),
        "sha256": np.bytes_(digest),
        "signature": signature(image),
        "largest": np.float32(np.nan if file_facts.largest is None else file_facts.largest),
        "damage": file_facts.damage,
    }


def _read(data: ImageData, index: int) -> tuple[UInt8[np.ndarray, "height width 3"], InFile]:
    """An image, and what its file shows beside the pixels: largest value of 16 bits, damage.

    These facts are empty if the image does not come from a file, or its file has neither.
    """
    in_file = InFile()
    token = IN_FILE.set(in_file)  # a context variable: the decoder fills in the object that it holds
    try:
        return data.read(index), in_file
    finally:
        IN_FILE.reset(token)


def _area_and_centroid(mask: Bool[np.ndarray, "height width"] | None) -> tuple[float, float, float]:
    """The object's share of the image, and the (y, x) of its centroid as shares of the image's height and width.

    Without a mask all three are NaN. For an empty mask the share is 0 and the centroid is NaN.
    """
    if mask is None:
        return np.nan, np.nan, np.nan
    if not mask.any():
        return 0.0, np.nan, np.nan

    height, width = mask.shape
    rows, columns = np.nonzero(mask)
    centre_y = (rows.mean() + 0.5) / height  # 0.5: the centre of a pixel
    centre_x = (columns.mean() + 0.5) / width
    return mask.mean(), centre_y, centre_x
