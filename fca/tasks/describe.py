"""What a data set holds: counts, sizes, thumbnails, masks, and which images are copies of each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Shaped
from PIL import Image, ImageOps

from fca.data.duplicates import exact_pairs, near_pairs, perceptual_hashes, signature
from fca.data.files import in_order
from fca.tasks import N_TRAIN, N_VAL, Setup
from fca.types import Arrays, Column, Finished, ImageData, Run, UnreadableImage

THUMBNAIL = 64  # pixels a side
SHOWN = 5  # unreadable images that are named
N_IMAGES = Column("n_images", int, ",", "images of the set, all splits together")
DETAILS = (
    Column("class_min", int, ",", "images of the smallest class"),
    *(
        Column(f"{side}_{end}", int, "d", f"{size} {side} of an image, pixels")
        for side in ("height", "width")
        for end, size in (("min", "smallest"), ("max", "largest"))
    ),
    Column("duplicates_exact", int, ",", "pairs of images with equal pixels"),
    Column("duplicates_near", int, ",", "pairs that differ by no more than re-encoding, resizing, a shift by a pixel"),
    Column("duplicates_between_splits", int, ",", "pairs of duplicates whose images are in different splits"),
)
CHECKSUM = Column("checksum", str, meaning="sha256 of ids, labels, splits and pixels of all images")


@dataclass(frozen=True)
class Describe:
    """`task=describe`: one run that reads every image of the set once."""

    columns: ClassVar[tuple[Column, ...]] = (N_IMAGES, N_TRAIN, N_VAL, *DETAILS, CHECKSUM)
    summary: ClassVar[tuple[Column | str, ...]] = (N_IMAGES, N_TRAIN, N_VAL, "n_test", *DETAILS)

    def plan(self, setup: Setup) -> list[Run]:
        """One run, whatever the subset, model and seed."""
        setup.clean_only("describe")
        data = setup.data
        about = {"dataset": data.name, "fingerprint": data.fingerprint, "num_classes": len(data.classes)}
        return [Run("describe", {"data": data.fingerprint}, about)]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Raises UnreadableImage, naming the images, when some cannot be read."""
        for run in runs:
            setup.store.keep_items(setup.data)
            arrays = described(setup.data, setup.machine.workers)
            yield Finished(run, summary(setup.data, arrays), arrays)


def described(data: ImageData, workers: int = 0) -> Arrays:
    """Arrays over all images, in the order of `data.items`; 12 kB an image, most of it thumbnails.

    thumbnails: uint8 (images, 64, 64, 3), the whole image fitted in and framed with white.    height, width: pixels.
    mask_area, mask_y, mask_x: the object's share of the image and its centroid as shares of height and width (from the
    top and the left); NaN without a mask, the centroid also for an empty one.    phash: 64-bit perceptual hash.
    sha256: 64 hex digits, as bytes, over "height width " and the decoded RGB pixels (decoders of JPEG may differ by a
    grey level, so compare them between machines of one Pillow).
    duplicates_exact: pairs of positions with equal pixels.    duplicates_near: pairs of pictures that differ by no
    more than a re-encoding, a resizing or a shift by a pixel; the first image stands for its exact copies.

    Raises UnreadableImage once all were tried, naming the first few.
    """
    seen: list[Any] = list(in_order(lambda i: _inspect(data, i), len(data.items), workers, f"reading {data.name}"))
    if unreadable := [one for one in seen if isinstance(one, UnreadableImage)]:
        more = f" and {len(unreadable) - SHOWN} more" if len(unreadable) > SHOWN else ""
        raise UnreadableImage("; ".join(map(str, unreadable[:SHOWN])) + more)
    arrays = {name: np.stack([one[name] for one in seen]) for name in seen[0]}
    signatures, digests = arrays.pop("signature"), arrays["sha256"]
    smaller_side = np.minimum(arrays["height"], arrays["width"])
    first = np.sort(np.unique(digests, return_index=True)[1])  # of each group of exact copies
    near = first[near_pairs(signatures[first], smaller_side[first])]
    return {
        **arrays,
        "phash": perceptual_hashes(signatures),
        "duplicates_exact": exact_pairs(digests.tolist()),
        "duplicates_near": near.astype(np.int32),
    }


def summary(data: ImageData, arrays: Arrays) -> dict[str, Any]:
    """The row's columns: counts, extreme sizes, pairs of duplicates (those between splits are counted again), checksum.

    The checksum is one value for the whole set, which two people can compare; see `checksum`.
    """
    splits = data.items["split"].to_numpy()
    exact, near = arrays["duplicates_exact"], arrays["duplicates_near"]
    first, second = splits[np.concatenate([exact, near])].T
    return {
        "n_images": len(splits),
        **{f"n_{split}": int((splits == split).sum()) for split in ("train", "val", "test")},
        "class_min": int(np.bincount(data.labels, minlength=len(data.classes)).min()),
        **{f"{side}_{end}": getattr(arrays[side], end)() for side in ("height", "width") for end in ("min", "max")},
        "duplicates_exact": len(exact),
        "duplicates_near": len(near),
        "duplicates_between_splits": int((first != second).sum()),
        CHECKSUM: checksum(data, arrays["sha256"]),
    }


def checksum(data: ImageData, digests: Shaped[np.ndarray, " images"]) -> str:
    """sha256 over every image's id, label, split and digest, whatever their order: 64 hex digits.

    A record a line, sorted; fields end in \\x1f, records in \\x1e. Unlike the fingerprint it depends on the pixels.
    """
    columns = [data.items[column].tolist() for column in ("image_id", "label", "split")]
    records = sorted(zip(*columns, digests.astype(str).tolist(), strict=True))
    return hashlib.sha256("".join("\x1f".join(record) + "\x1e" for record in records).encode()).hexdigest()


def _inspect(data: ImageData, index: int) -> dict[str, Any] | UnreadableImage:
    """The values of one image by the names of `described`, and its signature."""
    try:
        image, mask = data.read(index), data.mask(index)
    except UnreadableImage as error:
        return error
    height, width = image.shape[:2]
    small = ImageOps.pad(Image.fromarray(image), (THUMBNAIL, THUMBNAIL), Image.Resampling.BICUBIC, "white")
    area, y, x = _mask_facts(mask)
    return {
        "thumbnails": np.asarray(small),
        "height": np.int32(height),
        "width": np.int32(width),
        "mask_area": np.float32(area),
        "mask_y": np.float32(y),
        "mask_x": np.float32(x),
        "sha256": np.bytes_(hashlib.sha256(f"{height} {width} ".encode() + image.tobytes()).hexdigest()),
        "signature": signature(image),
    }


def _mask_facts(mask: Bool[np.ndarray, "height width"] | None) -> tuple[float, float, float]:
    if mask is None or not mask.any():
        return (np.nan if mask is None else 0.0), np.nan, np.nan
    rows, columns = np.nonzero(mask)
    return mask.mean(), (rows.mean() + 0.5) / mask.shape[0], (columns.mean() + 0.5) / mask.shape[1]
