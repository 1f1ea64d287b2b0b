"""CIFAR-10 and CIFAR-100 as torchvision downloads, checks and reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import UInt8

from fca.data.splits import Share, assemble
from fca.types import FcaError, ImageData

CLASS_OF = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


@dataclass(frozen=True)
class Cifar:
    """`dataset=cifar10` and `dataset=cifar100`: 50,000 training and 10,000 test images of 32 x 32 pixels.

    name:     cifar10 or cifar100 (its 100 fine classes).    version: of the images; part of the fingerprint.
    root:     the folder that holds, or shall hold, the extracted python archive (cifar-10-batches-py).
    download: fetch it when it is not there.    val: what to carve from the training images.
    mirror:   whether a mirrored image still shows its class.
    """

    name: str
    version: str
    root: str
    download: bool
    val: Share
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images; torchvision checks the files' md5. Raises FcaError when they are absent or damaged."""
        parts = {split: self._part(train=split == "train") for split in ("train", "test")}
        listed = pd.concat(
            pd.DataFrame(
                {
                    "image_id": [f"{split}/{i:05d}" for i in range(len(part.targets))],
                    "label": [part.classes[target] for target in part.targets],
                    "split": split,
                }
            )
            for split, part in parts.items()
        )
        images = {split: part.data for split, part in parts.items()}

        def reader(items: pd.DataFrame) -> Rows:
            return Rows(images, items["image_id"].tolist())

        return assemble(self.name, listed, reader, self.val, version=self.version, mirror=self.mirror)

    def _part(self, *, train: bool) -> Any:
        from fca.torchvision_ops import declare_torchvision_ops

        declare_torchvision_ops()
        from torchvision import datasets

        if self.name not in CLASS_OF:
            raise FcaError("dataset.name", self.name, ", ".join(CLASS_OF), "take one of these")
        archive = getattr(datasets, CLASS_OF[self.name])
        root = Path(self.root).expanduser()
        try:
            return archive(root, train=train, download=self.download)
        except (RuntimeError, OSError) as error:  # not found or corrupted; no network
            raise FcaError(
                "dataset.root",
                root,
                f"a folder that holds {archive.base_folder}, whole",
                f"bring that folder (from {archive.url}), or set dataset.download=true ({error})",
            ) from error


@dataclass(frozen=True)
class Rows:
    """Reads images that are rows of arrays in memory; an id is split/row."""

    images: dict[str, UInt8[np.ndarray, "_ height width 3"]]
    ids: list[str]

    def __call__(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """RGB pixels of the image at this position."""
        split, row = self.ids[index].split("/")
        pixels: np.ndarray = self.images[split][int(row)]
        return pixels
