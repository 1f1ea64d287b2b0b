"""A first look at a data set: a few images of every class and split."""

from __future__ import annotations

from dataclasses import replace

from fca.identity import fingerprint
from fca.nouns import ImageData


def first_images(data: ImageData, per_class: int) -> ImageData:
    """The first `per_class` images of every class and split, by image id; its own fingerprint, so never mixed up."""
    chosen = data.items.groupby(["split", "label"]).cumcount() < per_class
    rows = chosen.to_numpy().nonzero()[0]
    items = data.items.iloc[rows].reset_index(drop=True)
    return replace(
        data,
        items=items,
        fingerprint=fingerprint(items, f"{data.fingerprint} first {per_class}"),
        read=lambda i: data.read(int(rows[i])),
        mask=lambda i: data.mask(int(rows[i])),
    )
