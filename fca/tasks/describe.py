"""What a data set holds: counts, sizes, masks, copies, groups in several splits, damaged files, unused bits."""

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
from fca.data.files import IN_FILE, WHITE, InFile, fewest_bits, in_order
from fca.data.splits import for_training, groups_across_splits
from fca.store.columns import N_TRAIN, N_VAL
from fca.store.files import write_text
from fca.tasks import FINDINGS, N_UNUSED, Setup
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

    def plan(self, setup: Setup) -> list[Run[None]]:
        """One run, whatever the subset, model and seed."""
        setup.clean_only("describe")
        data = setup.data
        about = {"dataset": data.name, "fingerprint": data.fingerprint, "num_classes": len(data.classes)}
        identity: dict[str, Any] = {"data": data.fingerprint} | ({} if data.group is None else {"group": data.group})
        if data.unused:  # they are counted, but no part of the fingerprint
            identity["unused"] = data.unused
        if data.fingerprint_kind == "content":
            identity["files"] = "damage, bits"  # before, only pixels were looked at
        if (cut := _as_cut(data)) is not data:
            identity["cut"] = cut.fingerprint  # before, a set of one split was described as if all of it were test
        return [Run("describe", identity, about)]

    def run(self, runs: Sequence[Run[None]], setup: Setup) -> Iterator[Finished]:
        """Beside the row and its arrays, findings.csv lists what a person should look at; see `findings`."""
        for run in runs:
            setup.store.keep_items(setup.data)
            arrays = described(setup.data, setup.machine.workers)
            cut = _as_cut(setup.data)
            found = findings(cut, arrays)
            write_text(setup.store.folder(run.run_id) / FINDINGS, csv_text(found))
            columns = summary(cut, arrays)
            if columns[CHECKSUM] is not None:
                columns[CHECKSUM] = checksum(setup.data, arrays["sha256"])  # of the set as it is given
            yield Finished(run, columns, arrays)


def _as_cut(data: ImageData) -> ImageData:
    """The data in the splits that a training uses; as they are where a class has too few images to be trained on."""
    try:
        return for_training(data)
    except FcaError:
        return data


def described(data: ImageData, workers: int = 0) -> Arrays:
    """Arrays over all images, in the order of `data.items`.

    unreadable: whether the image, or its mask, cannot be read; its other values are NaN, or 0 or empty where a type has
    no NaN, and mean nothing.    height, width: pixels.
    mask_area, mask_y, mask_x: the object's share of the image and its centroid as shares of height and width (from the
    top and the left); NaN without a mask, the centroid also for an empty one.    phash: 64-bit perceptual hash.
    sha256: 64 hex digits, as bytes, over "height width " and the decoded RGB pixels (decoders of JPEG may differ by a
    grey level, so compare them between machines of one Pillow).

    largest: the largest value of a file with 16 bits a channel; NaN for all others, and where dataset.white is set.
    damaged: whether the data of a JPEG file are damaged; see `fca.data.jpeg.damage`.

    Of other lengths: duplicates_exact: pairs of positions with equal pixels.    duplicates_near: pairs of pictures that
    differ by no more than a re-encoding, a resizing or a shift by a pixel; the first image stands for its exact copies.
    reasons: why images are unreadable, in their order.    damages: what is wrong with damaged ones, in their order.
    """
    seen: list[Any] = list(in_order(lambda i: _inspect(data, i), len(data.items), workers, f"reading {data.name}"))
    reasons = [one for one in seen if isinstance(one, str)]
    seen = [UNREADABLE if isinstance(one, str) else one for one in seen]
    arrays = {name: np.stack([one[name] for one in seen]) for name in UNREADABLE}
    signatures, digests, damages = arrays.pop("signature"), arrays["sha256"], arrays.pop("damage")
    readable = np.flatnonzero(~arrays["unreadable"])
    smaller_side = np.minimum(arrays["height"], arrays["width"])
    first = readable[np.sort(np.unique(digests[readable], return_index=True)[1])]  # of each group of exact copies
    exact = exact_pairs(digests[readable].tolist())
    near = near_pairs(signatures[first], smaller_side[first])
    return {
        **arrays,
        "phash": np.where(arrays["unreadable"], np.uint64(0), perceptual_hashes(signatures)),
        "duplicates_exact": readable[exact].astype(np.int32),
        "duplicates_near": first[near].astype(np.int32),
        "reasons": np.array(reasons, dtype=np.str_),
        "damaged": damages != "",
        "damages": damages[damages != ""],
    }


def summary(data: ImageData, arrays: Arrays) -> dict[str, Any]:
    """The row's columns: counts, extreme sizes, pairs of duplicates (those between splits are counted again), checksum.

    The checksum is one value for the whole set, which two people can compare; see `checksum`. It is missing where an
    image cannot be read; sizes are those of the others.
    """
    splits, readable = data.items["split"].to_numpy(), ~arrays["unreadable"]
    pairs = np.concatenate([arrays["duplicates_exact"], arrays["duplicates_near"]])
    between, two_labels = (np.not_equal(*values[pairs].T) for values in (splits, data.labels))
    sizes = {side: arrays[side][readable] for side in ("height", "width")} if readable.any() else {}
    return {
        "n_images": len(splits) + data.unused,
        **{f"n_{split}": int((splits == split).sum()) for split in ("train", "val", "test")},
        N_UNUSED: data.unused,
        "class_min": int(np.bincount(data.labels, minlength=len(data.classes)).min()),
        **{f"{side}_{end}": getattr(values, end)() for side, values in sizes.items() for end in ("min", "max")},
        "duplicates_exact": len(arrays["duplicates_exact"]),
        "duplicates_near": len(arrays["duplicates_near"]),
        "duplicates_between_splits": int(between.sum()),
        "duplicates_two_labels": int(two_labels.sum()),
        "duplicates_between_splits_two_labels": int((between & two_labels).sum()),
        "groups_across_splits": None if data.group is None else len(groups_across_splits(data)),
        "n_unreadable": int((~readable).sum()),
        "n_damaged": int(arrays["damaged"].sum()),
        "n_few_bits": int(_few_bits(arrays["largest"]).sum()),
        CHECKSUM: checksum(data, arrays["sha256"]) if readable.all() else None,
    }


def findings(data: ImageData, arrays: Arrays) -> pd.DataFrame:
    """What a person should look at, a line each: columns finding, image_id, split, label, other_*, group, detail.

    Files that cannot be read, with the reason; those that are damaged, or use few of their 16 bits; groups in several
    of train, val and test, with their numbers of images; pairs of duplicates that differ in split or label, exact ones
    before near ones.
    """
    images = data.items[["image_id", "split", "label"]]
    found = [
        images[arrays["unreadable"]].assign(finding="unreadable file", detail=arrays["reasons"]),
        _damaged_files(images, arrays),
        _files_of_few_bits(images, arrays["largest"]),
        _crossing_groups(data),
        _odd_duplicates(images, arrays["duplicates_exact"], "exact"),
        _odd_duplicates(images, arrays["duplicates_near"], "near"),
    ]
    columns = ["finding", *images, *images.add_prefix("other_"), "group", "detail"]
    return pd.concat(found, ignore_index=True).reindex(columns=columns)


def _crossing_groups(data: ImageData) -> pd.DataFrame:
    """The groups in several of train, val and test, with their numbers of images."""
    crossing = groups_across_splits(data)
    counts = [", ".join(f"{split} {n}" for split, n in line.items() if n) for _, line in crossing.iterrows()]
    return pd.DataFrame({"finding": "group in several splits", "group": crossing.index, "detail": counts})


def _odd_duplicates(images: pd.DataFrame, pairs: Int[np.ndarray, "pairs 2"], kind: str) -> pd.DataFrame:
    """The pairs of duplicates whose images are in two splits, or have two labels."""
    one, other = (images.iloc[side].reset_index(drop=True) for side in pairs.T)
    oddity = pd.Series("", one.index).mask(one["split"] != other["split"], " in two splits")
    oddity = oddity.mask(one["label"] != other["label"], oddity + " with two labels")
    named = one.join(other.add_prefix("other_")).assign(finding=f"{kind} duplicate" + oddity)
    return named[oddity != ""].sort_values("finding", ascending=False, kind="stable")


def _damaged_files(about: pd.DataFrame, arrays: Arrays) -> pd.DataFrame:
    found = about[arrays["damaged"]]
    details = [f"{name}: {why}" for name, why in zip(found["image_id"], arrays["damages"].tolist(), strict=True)]
    return found.assign(finding="damaged file", detail=details)


EIGHTH, QUARTER = 2**13, 2**14  # of the range of 16 bits


def _few_bits(largest: Float32[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
    """Which files use few of their 16 bits: below an eighth of the range, or of a set that uses 14 bits at most."""
    of_set = _largest_of_set(largest)
    if of_set == 0:  # there is no such file, or they are black
        return np.zeros(len(largest), bool)
    return largest < (QUARTER if of_set < QUARTER else EIGHTH)


def _largest_of_set(largest: Float32[np.ndarray, " images"]) -> int:
    return int(np.nan_to_num(largest).max(initial=0))


def _files_of_few_bits(about: pd.DataFrame, largest: Float32[np.ndarray, " images"]) -> pd.DataFrame:
    few, of_set = _few_bits(largest), _largest_of_set(largest)
    if of_set < QUARTER:
        step = f"no 16-bit file of the set has more than {of_set}: set dataset.white={fewest_bits(of_set)}"
    else:
        step = f"others of the set have up to {of_set}: if it is not dark but has fewer bits, scale its values up"
    found = about[few]
    details = [
        f"{name}: its largest value is {value:.0f} of {WHITE}; {step}"
        for name, value in zip(found["image_id"], largest[few].tolist(), strict=True)
    ]
    return found.assign(finding="16-bit file that uses few of its bits", detail=details)


def checksum(data: ImageData, digests: Shaped[np.ndarray, " images"]) -> str:
    """sha256 over every image's id, label, split and digest, whatever their order: 64 hex digits.

    A record a line, sorted; fields end in \\x1f, records in \\x1e. Unlike the fingerprint it depends on the pixels.
    """
    columns = [data.items[column].tolist() for column in ("image_id", "label", "split")]
    records = sorted(zip(*columns, digests.astype(str).tolist(), strict=True))
    return hashlib.sha256("".join("\x1f".join(record) + "\x1e" for record in records).encode()).hexdigest()


UNREADABLE = {
    "unreadable": np.True_,
    **dict.fromkeys(("height", "width"), np.int32(0)),
    **dict.fromkeys(("mask_area", "mask_y", "mask_x", "largest"), np.float32(np.nan)),
    "sha256": np.zeros((), "S64"),
    "signature": np.zeros((SIDE, SIDE), np.uint8),
    "damage": "",
}


def _inspect(data: ImageData, index: int) -> dict[str, Any] | str:
    """The values of one image by the names of `described`, and its signature; why it cannot be read."""
    try:
        image, in_file = _read(data, index)
        mask = data.mask(index)
    except UnreadableImage as error:
        return str(error)
    height, width = image.shape[:2]
    area, y, x = _mask_facts(mask)
    return {
        "unreadable": np.False_,
        "height": np.int32(height),
        "width": np.int32(width),
        "mask_area": np.float32(area),
        "mask_y": np.float32(y),
        "mask_x": np.float32(x),
        "sha256": np.bytes_(hashlib.sha256(f"{height} {width} ".encode() + image.tobytes()).hexdigest()),
        "signature": signature(image),
        "largest": np.float32(np.nan if in_file.largest is None else in_file.largest),
        "damage": in_file.damage,
    }


def _read(data: ImageData, index: int) -> tuple[UInt8[np.ndarray, "height width 3"], InFile]:
    """An image, and what its file holds beside the pixels; that is empty where it is no file."""
    in_file = InFile()
    token = IN_FILE.set(in_file)
    try:
        return data.read(index), in_file
    finally:
        IN_FILE.reset(token)


def _mask_facts(mask: Bool[np.ndarray, "height width"] | None) -> tuple[float, float, float]:
    if mask is None or not mask.any():
        return (np.nan if mask is None else 0.0), np.nan, np.nan
    rows, columns = np.nonzero(mask)
    return mask.mean(), (rows.mean() + 0.5) / mask.shape[0], (columns.mean() + 0.5) / mask.shape[1]
