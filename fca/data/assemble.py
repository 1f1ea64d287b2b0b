"""What every loader ends with: listed images -> ImageData with final splits, order and fingerprint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Bool, UInt8

from fca.data.splits import Share, our_splits, shown, with_val
from fca.identity import fingerprint
from fca.nouns import FcaError, ImageData, no_mask

Read = Callable[[int], UInt8[np.ndarray, "height width 3"]]
Mask = Callable[[int], Bool[np.ndarray, "height width"] | None]


def assemble(
    name: str,
    listed: pd.DataFrame,
    read: Callable[[pd.DataFrame], Read],
    val: Share,
    splits: Mapping[str, str | None] | None = None,
    version: str = "",
    mask: Callable[[pd.DataFrame], Mask] | None = None,
    mirror: bool = True,
    together: str | None = None,
) -> ImageData:
    """The data set of these images, in the order of their ids.

    listed:  a line an image: `image_id`, `label`, the set's own `split` if it has any, other columns (kept).
    read:    items in their final order -> the reader of the image at a position; `mask` likewise, where there are any.
    splits:  own split name -> ours; see our_splits.    val: what to carve when there is no usable val.
    version: what images are meant when they are not files with a size.
    mirror:  whether an image mirrored left to right still shows its class.
    together: a column; images of a class that share its value are never cut apart when val is carved.

    Raises FcaError for no image, an image id that stands twice, one class only, and splits that do not fit.
    """
    items = _in_order(listed, splits, name)
    _check(items, name)
    items = with_val(items, val, name, together)
    return ImageData(
        name=name,
        items=items,
        classes=tuple(sorted(items["label"].unique())),
        fingerprint=fingerprint(items, version),
        read=read(items),
        mask=mask(items) if mask else no_mask,
        mirror=mirror,
    )


def _in_order(listed: pd.DataFrame, splits: Mapping[str, str | None] | None, name: str) -> pd.DataFrame:
    """The lines with our splits, without those that are left out, by image id; our columns first."""
    if splits and "split" not in listed:
        raise FcaError("dataset.splits", ", ".join(splits), f"null: {name} has no splits", "look at dataset.root")
    ours = our_splits(listed["split"].tolist(), splits) if "split" in listed else ["test"] * len(listed)
    items = (
        listed.assign(split=pd.Series(ours, listed.index, dtype="str"))
        .dropna(subset="split")
        .sort_values("image_id", ignore_index=True)
    )
    front = ["image_id", "label", "split"]
    return items[front + [column for column in items if column not in front]]


def _check(items: pd.DataFrame, name: str) -> None:
    if items.empty:
        raise FcaError(f"images of {name}", 0, "at least two classes of images", "look at dataset.root and its keys")
    twice = items["image_id"][items["image_id"].duplicated()].unique().tolist()
    if twice:
        raise FcaError("image ids that stand twice", shown(twice), "one line an image", f"remove the copies in {name}")
    if items["label"].nunique() < 2:
        only = items["label"].iloc[0]
        raise FcaError(f"classes of {name}", only, "at least two", "look at dataset.root and its keys")
