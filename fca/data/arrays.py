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
    """The row of an array that holds an image, whose id is the array's name, a slash and the row's number."""
    name, _, row = image_id.rpartition("/")
    return arrays[name][int(row)]


@dataclass(frozen=True)
class Digits:
    """`dataset=digits`: 1,797 scans of 10 digits, 8 x 8 pixels of 17 grey levels, shown at 32 x 32.

    They are scikit-learn's handwritten digits: real scans that come with the library.

    version: of these images and of how they are enlarged; part of the fingerprint.
    test:    what to hold out of all images.
    val:     what to hold out of the rest.
    mirror:  whether a mirrored image still shows its class.
    """

    version: str
    test: Share
    val: Share
    mirror: bool = False

    def load(self) -> ImageData:
        """List the scans, and draw which ones are test and val. An image id is a position in scikit-learn's array.

        The share `self.test` of each class becomes the test split, and the share `self.val` of the others becomes val.
        """
        from sklearn.datasets import load_digits  # imported here, because it takes long

        scans, targets = load_digits(return_X_y=True)
        listed = pd.DataFrame({"image_id": [f"{i:04d}" for i in range(len(scans))], "label": targets.astype(str)})
        listed["split"] = np.where(held_out(listed, self.test), "test", "train")
        grey = np.round(scans.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)  # scans have values of 0 to 16

        def enlarged(image_id: str) -> Pixels:
            """The scan with this id, enlarged from 8 x 8 to 32 x 32 pixels."""
            scan = Image.fromarray(grey[int(image_id)])
            return np.array(scan.resize((32, 32), Image.Resampling.BICUBIC).convert("RGB"))

        return assemble(
            "digits",
            listed,
            enlarged,
            self.val,
            version=self.version,
            mirror=self.mirror,
            official=True,  # a published set: no warning that validation images are held out from training images
        )


TORCHVISION_CLASS = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


@dataclass(frozen=True, kw_only=True)
class Cifar(Downloaded):
    """`dataset=cifar10` and `dataset=cifar100`: 50,000 training and 10,000 test images of 32 x 32 pixels.

    torchvision downloads, checks and reads them.

    name:     cifar10 or cifar100 (its 100 fine classes).
    version:  of the images; part of the fingerprint.
    root:     the folder that holds (or will hold, after the download) the extracted python archive
              (cifar-10-batches-py).
    """

    name: Annotated[str, Allowed(choices=tuple(TORCHVISION_CLASS))]
    version: str

    def load(self) -> ImageData:
        """List the images, after torchvision has checked the files' md5.

        An image id is the split and the number of the image in it, such as train/00012. The share `self.val` of the
        training images becomes val. Raises FcaError if the files are absent or damaged.
        """
        data_sets = {"train": self._torchvision_set(train=True), "test": self._torchvision_set(train=False)}
        rows = []
        for split, data_set in data_sets.items():
            for i, target in enumerate(data_set.targets):
                rows.append((f"{split}/{i:05d}", data_set.classes[target], split))
        listed = pd.DataFrame(rows, columns=["image_id", "label", "split"])

        pixels_of_split = {split: data_set.data for split, data_set in data_sets.items()}  # images x 32 x 32 x 3
        read = partial(row_of, pixels_of_split)  # image id -> the image's row of its split's array
        return assemble(
            self.name,
            listed,
            read,
            self.val,
            version=self.version,
            mirror=self.mirror,
            official=True,  # a published set: no warning that validation images are held out from training images
        )

    def _torchvision_set(self, *, train: bool) -> Any:
        """torchvision's data set of the training or test images, with all pixels in `data`.

        Raises FcaError for an unknown `self.name`, and if the files are absent, damaged, or cannot be downloaded.
        """
        check_choice("dataset.name", self.name, TORCHVISION_CLASS)
        data_set = getattr(torchvision_sets(), TORCHVISION_CLASS[self.name])
        root = Path(self.root).expanduser()
        try:
            return data_set(root, train=train, download=self.download)
        except (RuntimeError, OSError) as error:  # not found or corrupted; no network
            alternative = "try the download again" if self.download else "set dataset.download=true"
            step = f"bring that folder (from {data_set.url}), or {alternative} ({error})"
            raise FcaError("dataset.root", root, f"a folder that holds {data_set.base_folder}, whole", step) from error


SIDE = 28  # pixels of a drawing
SOURCE = "gsutil -m cp 'gs://quickdraw_dataset/full/numpy_bitmap/*.npy' quickdraw/ (345 files, 37 GB)"


@dataclass(frozen=True, kw_only=True)
class QuickDraw(PublicSet):
    """`dataset=quickdraw`: a sample of the drawings of every class, white strokes on black as they are published.

    Quick, Draw! has 28 x 28 bitmaps of 50 million drawings, of which a sample is enough.

    version:     of the published bitmaps; part of the fingerprint (so are the numbers of the sampled drawings).
    root:        the folder that holds quickdraw/ (or numpy_bitmap/) with one file per class, as "The Eiffel Tower.npy".
                 They are memory-mapped: only the pages of the sample are read.
    classes:     how many files there are as published; null = whatever is there.
    per_class:   number of drawings to sample from each class, by `sample_seed` (all of them if a class has fewer). Up
                 to 20,000 of 113,613 or more drawings, a larger sample contains the smaller one.
    test:        what to hold out of the sample.
    val:         what to hold out of the rest.
    compat:      fca = every fifth drawing in the file of a class is test. (The released code counted in the stream of
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
        """Draw a sample of `per_class` drawings of each class, and list it with a split into train, val and test.

        An image id is the class, a slash and the number of the drawing in the class's file. The share `self.test` of
        each class becomes test (as released: every fifth drawing of a file), and the share `self.val` of the others
        becomes val.

        Raises FcaError for absent or damaged files, another number of files than `classes`, a `per_class` below 3, and
        an unknown `compat`.
        """
        as_released = splits_as_released(self.compat)  # whether to split as the code of the Few-Class Arena does
        if self.per_class < 3:
            raise FcaError("dataset.per_class", self.per_class, "3 or more", "train, val and test need one each")

        folder = find_tree(self.root, ("quickdraw", "numpy_bitmap"), SOURCE)
        files = sorted(file for file in folder.glob("*.npy") if file.is_file())
        check_count("classes of quickdraw", len(files), self.classes, folder, "classes")  # None accepts any number
        if not files:
            raise FcaError(f".npy files in {folder}", 0, "one per class", f"bring {SOURCE}")

        drawings = {file.stem: _map_bitmaps(file) for file in files}  # class -> all its bitmaps, drawings x 784
        samples = [self._sample(class_key, len(bitmaps)) for class_key, bitmaps in drawings.items()]
        listed = pd.concat(samples, ignore_index=True)
        row_in_file = listed.pop("row")  # the number of each drawing, which is not kept: the image id has it, too
        if as_released:
            is_test = row_in_file.to_numpy() % 5 == 0  # every fifth drawing in the file of a class
        else:
            is_test = held_out(listed, self.test)
        listed["split"] = np.where(is_test, "test", "train")

        def white_on_black(image_id: str) -> Pixels:
            """The drawing with this id, with its grey values in all three channels."""
            return np.repeat(row_of(drawings, image_id).reshape(SIDE, SIDE, 1), 3, axis=2)

        return assemble(
            "quickdraw",
            listed,
            white_on_black,
            self.val,
            version=self.version,
            mirror=self.mirror,
            official=True,  # a published set: no warning that validation images are held out from training images
        )

    def _sample(self, class_key: str, n: int) -> pd.DataFrame:
        """Draw a sample of `per_class` of the n drawings of a class: columns image_id, label and row.

        class_key: the class, which also seeds the draw.
        row:       the number of a drawing in the class's file.
        """
        rng = random.Random(f"quickdraw:{class_key}:{self.sample_seed}")
        rows = rng.sample(range(n), min(n, self.per_class))
        ids = [f"{class_key}/{row:06d}" for row in rows]
        return pd.DataFrame({"image_id": ids, "label": class_key, "row": rows})


def _map_bitmaps(file: Path) -> UInt8[np.ndarray, "_ pixels"]:
    """The bitmaps of a class, mapped into memory: drawings x 784 grey values.

    Raises FcaError for a file that is damaged or holds anything else.
    """
    try:
        bitmaps: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # no .npy, or shorter than its header declares; its parser raises many kinds
        raise FcaError("file", file, "a whole .npy of bitmaps", f"bring it again: {SOURCE} ({error})") from error
    if bitmaps.dtype != np.uint8 or bitmaps.ndim != 2 or bitmaps.shape[1] != SIDE * SIDE:
        actual = f"{bitmaps.dtype} {bitmaps.shape} in {file}"
        raise FcaError("bitmaps", actual, "uint8 (drawings, 784)", f"bring {SOURCE}")
    return bitmaps
