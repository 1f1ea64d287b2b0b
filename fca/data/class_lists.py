"""Sets with a folder a class and a text file a split that lists class/file: Food-101, DTD, Indoor67."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fca.data.public import found, lines, public_data, released
from fca.data.splits import Share
from fca.types import FcaError, ImageData

FOLDS = range(1, 11)  # of DTD


@dataclass(frozen=True)
class Food101:
    """`dataset=food101`: 101 dishes, 750 training and 250 test images each; the training images are not cleaned.

    root:     the folder that holds, or shall hold, food-101.    download: fetch it when it is not there.
    val:      what to carve from the training images.    mirror: whether a mirrored image still shows its class.
    """

    root: str
    download: bool
    val: Share
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images. Raises FcaError when they or their lists are absent."""
        source = "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz"

        def fetch(datasets: Any, into: str) -> None:
            datasets.Food101(into, download=True)

        folder = found(self.root, ("food-101",), source, fetch if self.download else None)
        listed = _listed(folder, {split: f"meta/{split}.txt" for split in ("train", "test")}, ".jpg")
        return public_data("food101", folder / "images", listed, self.val, self.mirror)


@dataclass(frozen=True)
class Dtd:
    """`dataset=dtd`: 47 textures, 120 images each, in ten published folds of 40 for train, val and test.

    fold:     1 to 10.    root: the folder that holds, or shall hold, dtd.    download: fetch it when it is not there.
    val:      what to carve from the training images when there is no val (that is, with compat).
    compat:   fca = fold 1 with its val as test, and its test left out.
    mirror:   whether a mirrored image still shows its class.
    """

    root: str
    download: bool
    val: Share
    fold: int = 1
    compat: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images. Raises FcaError for another fold, and when images or lists are absent."""
        if self.fold not in FOLDS:
            raise FcaError("dataset.fold", self.fold, "1 to 10", "take one of the published folds")
        if (as_released := released(self.compat)) and self.fold != 1:
            raise FcaError("dataset.fold", self.fold, "1 with compat=fca", "leave fold or compat as it was")
        source = "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz"

        def fetch(datasets: Any, into: str) -> None:
            datasets.DTD(into, download=True)

        folder = found(self.root, ("dtd/dtd", "dtd"), source, fetch if self.download else None)
        files = {"train": "train", "test": "val"} if as_released else {s: s for s in ("train", "val", "test")}
        listed = _listed(folder, {split: f"labels/{file}{self.fold}.txt" for split, file in files.items()})
        return public_data("dtd", folder / "images", listed, self.val, self.mirror)


@dataclass(frozen=True)
class Indoor67:
    """`dataset=indoor67`: 67 indoor scenes, 80 training and 20 test images each (of the 15,620 that were collected).

    root:     the folder that holds indoor67/ (or is it) with Images/, TrainImages.txt and TestImages.txt. Nobody
              published a checksum, so nothing is downloaded.
    val:      what to carve from the training images.    mirror: whether a mirrored image still shows its class.
    """

    root: str
    val: Share
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images that the two lists name. Raises FcaError when images or lists are absent."""
        source = "indoorCVPR_09.tar, TrainImages.txt and TestImages.txt of http://web.mit.edu/torralba/www/indoor.html"
        images = found(self.root, ("indoor67/Images", "Images"), source)
        listed = _listed(images.parent, {"train": "TrainImages.txt", "test": "TestImages.txt"})
        return public_data("indoor67", images, listed, self.val, self.mirror)


def _listed(folder: Path, lists: Mapping[str, str], suffix: str = "") -> pd.DataFrame:
    """A line an image of these lists (our split -> file); `suffix` is what the lists leave out of the file names."""
    paths = [(line + suffix, split) for split, file in lists.items() for line in lines(folder / file)]
    listed = pd.DataFrame(paths, columns=["image_id", "split"])
    return listed.assign(label=[path.split("/")[0] for path, _ in paths])
