"""Quick, Draw!: 28 x 28 bitmaps of 50 million drawings, of which a sample is enough."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import UInt8

from fca.data.public import found, released, whole
from fca.data.splits import Share, assemble, held_out
from fca.types import FcaError, ImageData

SIDE = 28
SOURCE = "gsutil -m cp 'gs://quickdraw_dataset/full/numpy_bitmap/*.npy' quickdraw/ (345 files, 37 GB)"


@dataclass(frozen=True)
class QuickDraw:
    """`dataset=quickdraw`: a sample of every class of drawings, white strokes on black as they are published.

    version:     of the published bitmaps; part of the fingerprint (so are the rows that are drawn).
    root:        the folder that holds quickdraw/ (or numpy_bitmap/) with "The Eiffel Tower.npy" and so on, a class
                 a file. They are memory-mapped: only the pages of the sample are read.
    classes:     how many files there are as published; null = whatever is there.
    per_class:   drawings a class, a fixed draw by `sample_seed` (a class with fewer gives all; up to 20,000 of
                 113,613 or more a larger sample holds the smaller).
    test, val:   fixed stratified draws: from the sample, and from what is left.
    compat:      fca = every fifth drawing is test, counted in the class's file. (The release counted in the stream of
                 another library, over all classes and all drawings.)
    mirror:      whether a mirrored image still shows its class.
    """

    version: str
    root: str
    per_class: int
    sample_seed: int
    test: Share
    val: Share
    classes: int | None = None
    compat: str | None = None
    mirror: bool = False

    def load(self) -> ImageData:
        """List the sample. Raises FcaError for absent or damaged files, and for less than 3 drawings a class."""
        as_released = released(self.compat)
        if self.per_class < 3:
            raise FcaError("dataset.per_class", self.per_class, "3 or more", "train, val and test need one each")
        folder = found(self.root, ("quickdraw", "numpy_bitmap"), SOURCE)
        files = sorted(folder.glob("*.npy"))
        whole("classes of quickdraw", len(files), self.classes, folder, "classes")
        if not files:
            raise FcaError(f".npy files in {folder}", 0, "one a class", f"bring {SOURCE}")
        drawings = {file.stem: _drawings(file) for file in files}
        listed = pd.concat([self._sample(key, len(rows)) for key, rows in drawings.items()], ignore_index=True)
        rows = listed.pop("row")
        listed["split"] = np.where(rows % 5 == 0 if as_released else held_out(listed, self.test), "test", "train")

        def reader(items: pd.DataFrame) -> Drawings:
            return Drawings(drawings, items["image_id"].tolist())

        return assemble("quickdraw", listed, reader, self.val, version=self.version, mirror=self.mirror)

    def _sample(self, key: str, n: int) -> pd.DataFrame:
        draw = random.Random(f"quickdraw:{key}:{self.sample_seed}")
        rows = draw.sample(range(n), min(n, self.per_class))
        return pd.DataFrame({"image_id": [f"{key}/{row:06d}" for row in rows], "label": key, "row": rows})


@dataclass(frozen=True)
class Drawings:
    """Reads a row of a class's bitmaps; an id is class/row."""

    drawings: dict[str, UInt8[np.ndarray, "_ pixels"]]
    ids: list[str]

    def __call__(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """RGB pixels of the drawing at this position."""
        key, row = self.ids[index].rsplit("/", 1)
        grey = self.drawings[key][int(row)].reshape(SIDE, SIDE)
        return np.repeat(grey[:, :, None], 3, axis=2)


def _drawings(file: Path) -> UInt8[np.ndarray, "_ pixels"]:
    """A class's bitmaps, memory-mapped: a row of 784 grey values each."""
    try:
        rows: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:  # no .npy, or shorter than its header says
        raise FcaError("file", file, "a whole .npy of bitmaps", f"bring it again: {SOURCE} ({error})") from error
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != SIDE * SIDE:
        raise FcaError("bitmaps", f"{rows.dtype} {rows.shape} in {file}", "uint8 (drawings, 784)", f"bring {SOURCE}")
    return rows
