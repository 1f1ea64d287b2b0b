"""Sets whose images are rows of arrays, not files: digits, which need no network and no folder, CIFAR, Quick, Draw!"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import UInt8
from PIL import Image

from fca.data.public import Downloaded, PublicSet, check_count, find_tree, splits_as_released, torchvision_sets
from fca.data.splits import Share, assemble, held_out
from fca.types import FcaError, ImageData, check_choice
from fca.validation import Allowed, Seed

Pixels = UInt8[np.ndarray, "height width 3"]


def row_of(arrays: Mapping[str, np.ndarray], image_id: str) -> np.ndarray:
    """The row of an array in memory that is an image; its id is the array's name, a slash and the row."""
    name, _, row = image_id.rpartition("/")
    return arrays[name][int(row)]


@dataclass(frozen=True)
class Digits:
    """`dataset=digits`: 1,797 scans of 10 digits, 8 x 8 pixels of 17 grey levels, shown at 32 x 32.

    They are scikit-learn's handwritten digits: real scans that come with the library.

    version: of these images and of how they are enlarged; part of the fingerprint.
    test, val: the fixed stratified draws of both from all images and from what is left of them.
    mirror:  whether a mirrored image still shows its class.
    """

    version: str
    test: Share
    val: Share
    mirror: bool = False

    def load(self) -> ImageData:
        """The scans, in their own order."""
        from sklearn.datasets import load_digits

        scans, targets = load_digits(return_X_y=True)
        listed = pd.DataFrame({"image_id": [f"{i:04d}" for i in range(len(scans))], "label": targets.astype(str)})
        listed["split"] = np.where(held_out(listed, self.test), "test", "train")
        grey = np.round(scans.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)

        def enlarged(image_id: str) -> Pixels:
            scan = Image.fromarray(grey[int(image_id)])
            return np.array(scan.resize((32, 32), Image.Resampling.BICUBIC).convert("RGB"))

        return assemble("digits", listed, enlarged, self.val, version=self.version, mirror=self.mirror, official=True)


CLASS_OF = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


@dataclass(frozen=True, kw_only=True)
class Cifar(Downloaded):
    """`dataset=cifar10` and `dataset=cifar100`: 50,000 training and 10,000 test images of 32 x 32 pixels.

    As torchvision downloads, checks and reads them.

    name:     cifar10 or cifar100 (its 100 fine classes).    version: of the images; part of the fingerprint.
    root:     the folder that holds, or shall hold, the extracted python archive (cifar-10-batches-py).
    """

    name: Annotated[str, Allowed(choices=tuple(CLASS_OF))]
    version: str

    def load(self) -> ImageData:
        """List the images; torchvision checks the files' md5. Raises FcaError when they are absent or damaged."""
        archives = {split: self._part(train=split == "train") for split in ("train", "test")}
        rows = []
        for split, archive in archives.items():
            for i, target in enumerate(archive.targets):
                rows.append((f"{split}/{i:05d}", archive.classes[target], split))
        listed = pd.DataFrame(rows, columns=["image_id", "label", "split"])

        read = partial(row_of, {split: archive.data for split, archive in archives.items()})
        return assemble(self.name, listed, read, self.val, version=self.version, mirror=self.mirror, official=True)

    def _part(self, *, train: bool) -> Any:
        check_choice("dataset.name", self.name, CLASS_OF)
        archive, root = getattr(torchvision_sets(), CLASS_OF[self.name]), Path(self.root).expanduser()
        try:
            return archive(root, train=train, download=self.download)
        except (RuntimeError, OSError) as error:  # not found or corrupted; no network
            other = "try the download again" if self.download else "set dataset.download=true"
            step = f"bring that folder (from {archive.url}), or {other} ({error})"
            raise FcaError("dataset.root", root, f"a folder that holds {archive.base_folder}, whole", step) from error


SIDE = 28  # pixels of a drawing
SOURCE = "gsutil -m cp 'gs://quickdraw_dataset/full/numpy_bitmap/*.npy' quickdraw/ (345 files, 37 GB)"


@dataclass(frozen=True, kw_only=True)
class QuickDraw(PublicSet):
    """`dataset=quickdraw`: a sample of every class of drawings, white strokes on black as they are published.

    Quick, Draw! has 28 x 28 bitmaps of 50 million drawings, of which a sample is enough.

    version:     of the published bitmaps; part of the fingerprint (so are the rows that are drawn).
    root:        the folder that holds quickdraw/ (or numpy_bitmap/) with "The Eiffel Tower.npy" and so on, a class
                 a file. They are memory-mapped: only the pages of the sample are read.
    classes:     how many files there are as published; null = whatever is there.
    per_class:   drawings per class, a fixed draw by `sample_seed` (a class with fewer gives all; up to 20,000 of
                 113,613 or more a larger sample holds the smaller).
    test, val:   fixed stratified draws: from the sample, and from what is left.
    compat:      fca = every fifth drawing is test, counted in the class's file. (The release counted in the stream of
                 another library, over all classes and all drawings.)
    """

    version: str
    per_class: Annotated[int, Allowed(3)]
    sample_seed: Seed
    test: Share
    classes: Annotated[int | None, Allowed(1)] = None
    compat: str | None = None
    mirror: bool = False

    def load(self) -> ImageData:
        """List the sample. Raises FcaError for absent or damaged files, and for fewer than 3 drawings per class."""
        as_released = splits_as_released(self.compat)
        if self.per_class < 3:
            raise FcaError("dataset.per_class", self.per_class, "3 or more", "train, val and test need one each")

        folder = find_tree(self.root, ("quickdraw", "numpy_bitmap"), SOURCE)
        files = sorted(file for file in folder.glob("*.npy") if file.is_file())
        check_count("classes of quickdraw", len(files), self.classes, folder, "classes")
        if not files:
            raise FcaError(f".npy files in {folder}", 0, "one per class", f"bring {SOURCE}")

        drawings = {file.stem: _drawings(file) for file in files}
        samples = [self._sample(key, len(bitmaps)) for key, bitmaps in drawings.items()]
        listed = pd.concat(samples, ignore_index=True)
        row_in_file = listed.pop("row")
        is_test = row_in_file % 5 == 0 if as_released else held_out(listed, self.test)
        listed["split"] = np.where(is_test, "test", "train")

        def white_on_black(image_id: str) -> Pixels:
            return np.repeat(row_of(drawings, image_id).reshape(SIDE, SIDE, 1), 3, axis=2)

        return assemble(
            "quickdraw", listed, white_on_black, self.val, version=self.version, mirror=self.mirror, official=True
        )

    def _sample(self, key: str, n: int) -> pd.DataFrame:
        draw = random.Random(f"quickdraw:{key}:{self.sample_seed}")
        rows = draw.sample(range(n), min(n, self.per_class))
        return pd.DataFrame({"image_id": [f"{key}/{row:06d}" for row in rows], "label": key, "row": rows})


def _drawings(file: Path) -> UInt8[np.ndarray, "_ pixels"]:
    """A class's bitmaps, memory-mapped: a row of 784 grey values each."""
    try:
        rows: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # no .npy, or shorter than its header declares; its parser raises many kinds
        raise FcaError("file", file, "a whole .npy of bitmaps", f"bring it again: {SOURCE} ({error})") from error
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != SIDE * SIDE:
        raise FcaError("bitmaps", f"{rows.dtype} {rows.shape} in {file}", "uint8 (drawings, 784)", f"bring {SOURCE}")
    return rows
