"""CUB-200-2011: 200 species of birds, listed by numbers that four text files share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fca.data.public import found, lines, public_data
from fca.data.splits import Share
from fca.types import FcaError, ImageData

URL = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
MD5 = "97eceeb196236b17998738112f37df78"


@dataclass(frozen=True)
class Cub200:
    """`dataset=cub200`: 5,994 training and 5,794 test photographs of 200 species.

    root:     the folder that holds, or shall hold, CUB_200_2011.    download: fetch it when it is not there.
    val:      what to carve from the training images.    mirror: whether a mirrored image still shows its class.
    """

    root: str
    download: bool
    val: Share
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images. Raises FcaError when images or lists are absent, or the lists do not fit each other."""

        def fetch(datasets: Any, into: str) -> None:
            datasets.utils.download_and_extract_archive(URL, into, md5=MD5)

        folder = found(self.root, ("CUB_200_2011",), URL, fetch if self.download else None)
        names = {file: _numbered(folder, f"{file}.txt") for file in ("images", "image_class_labels", "classes")}
        training = _numbered(folder, "train_test_split.txt")
        images, labels = names["images"], names["image_class_labels"]
        if not set(images) == set(labels) == set(training):
            odd = sorted((set(images) ^ set(labels)) | (set(images) ^ set(training)))
            raise FcaError("images of cub200 in some lists only", len(odd), "the same images in all", f"bring {URL}")
        listed = pd.DataFrame(
            {
                "image_id": list(images.values()),
                "label": [names["classes"][labels[number]] for number in images],
                "split": ["train" if training[number] == "1" else "test" for number in images],
            }
        )
        return public_data("cub200", folder / "images", listed, self.val, self.mirror)


def _numbered(folder: Path, file: str) -> dict[str, str]:
    """Number -> the rest of its line."""
    return {number: rest for number, _, rest in (line.partition(" ") for line in lines(folder / file))}
