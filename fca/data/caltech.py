"""Caltech-101 and Caltech-256: a folder a class, numbered files, no official split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fca.data.public import found, matching, public_data, released, whole
from fca.data.splits import Share, held_out
from fca.types import FcaError, ImageData


class Edition(NamedTuple):
    """How one of the two is packed."""

    archive: str  # torchvision's class
    places: tuple[str, ...]
    file: str  # pattern of class/file; strays of the archives do not match
    like: str
    clutter: str  # pictures of no class
    source: str


EDITIONS = {
    "caltech101": Edition(
        "Caltech101",
        ("caltech101/101_ObjectCategories", "101_ObjectCategories", "caltech-101/101_ObjectCategories"),
        r"[^/]+/image_(\d{4})\.jpg",
        "accordion/image_0001.jpg",
        "BACKGROUND_Google",
        "101_ObjectCategories.tar.gz in caltech-101.zip of https://data.caltech.edu/records/mzrjq-6wc02",
    ),
    "caltech256": Edition(
        "Caltech256",
        ("caltech256/256_ObjectCategories", "256_ObjectCategories"),
        r"\d{3}\.[^/]+/\d{3}_(\d{4})\.jpg",
        "001.ak47/001_0001.jpg",
        "257.clutter",
        "256_ObjectCategories.tar of https://data.caltech.edu/records/nyy15-4j048",
    ),
}


@dataclass(frozen=True)
class Caltech:
    """`dataset=caltech101` (8,677 images of 101 classes) and `dataset=caltech256` (29,780 images of 256 classes).

    name:     caltech101 or caltech256.    images: how many there are without the clutter; null = whatever is there.
    root:     the folder that holds, or shall hold, the extracted archive.    download: fetch it when it is not there.
    test:     there is no official split: the fixed stratified draw.    val: of what is left.
    compat:   fca = every fifth file number is test; Caltech-256 with its clutter as a class of its own.
    mirror:   whether a mirrored image still shows its class.
    """

    name: str
    root: str
    download: bool
    test: Share
    val: Share
    images: int | None = None
    compat: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images. Raises FcaError when they are absent or fewer than published."""
        if self.name not in EDITIONS:
            raise FcaError("dataset.name", self.name, ", ".join(EDITIONS), "take one of these")
        as_released, edition = released(self.compat), EDITIONS[self.name]

        def fetch(datasets: Any, into: str) -> None:
            getattr(datasets, edition.archive)(into, download=True)

        folder = found(self.root, edition.places, edition.source, fetch if self.download else None)
        listed = matching(folder, edition.file, edition.like)
        clutter = listed["label"] == edition.clutter
        whole(f"images of {self.name}", int((~clutter).sum()), self.images, folder, "images")
        if not (as_released and self.name == "caltech256"):
            listed = listed[~clutter].reset_index(drop=True)
        number = listed["image_id"].str.extract(f"^{edition.file}$")[0].astype(int)
        test = number % 5 == 0 if as_released else held_out(listed, self.test)
        listed["split"] = np.where(test, "test", "train")
        return public_data(self.name, folder, listed, self.val, self.mirror)
