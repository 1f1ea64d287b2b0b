"""A folder that `fca generate` filled, without the images that a person struck."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fca.data.manifest import Manifest
from fca.data.splits import Share, shown
from fca.types import FcaError, ImageData

MANIFEST, STRUCK = "manifest.csv", "struck.txt"


@dataclass(frozen=True)
class Generated:
    """`dataset=generated`: all test images, by attribute, level (easy, medium, hard), sublevel and triplet.

    root:   the folder.    name: of the data set; None = the folder's.
    mirror: whether a mirrored image still shows its class.

    Refused and struck images are left out, so that levels may differ in their numbers.
    """

    root: str
    name: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """The images, listed. Raises FcaError for a folder without a manifest, and for struck images it never had."""
        folder = Path(self.root).expanduser()
        if not (folder / MANIFEST).exists():
            step = f"run or go on with: fca generate out={self.root}"
            raise FcaError("dataset.root", self.root, f"a folder with a {MANIFEST}", step)
        struck = struck_ids(folder)
        listed = pd.read_csv(folder / MANIFEST, usecols=["image_id"], dtype="str", na_filter=False)["image_id"]
        if unknown := sorted(struck - set(listed)):
            raise FcaError(f"images in {folder / STRUCK}", shown(unknown), "image ids of the manifest", "correct them")
        where = f"state == 'drawn' and image_id not in {sorted(struck)!r}"
        return Manifest(self.root, MANIFEST, Share(0.1, 0), self.name, where=where, mirror=self.mirror).load()


def struck_ids(folder: Path) -> set[str]:
    """The images that a person struck: one id a line of struck.txt, where there is one; lines in # are remarks."""
    path = folder / STRUCK
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}
