"""A directory or .zip of images, a folder a class."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from fca.data.assemble import assemble
from fca.data.files import ImageReader, images_of, name_of, open_root
from fca.data.layout import by_layout, recognised
from fca.data.splits import Share
from fca.nouns import ImageData


@dataclass(frozen=True)
class Folder:
    """`dataset=folder`: images in folders that are named by their class, below split folders or not.

    root:   the directory or .zip archive.    name: what the set is called; null = the root's name.
    layout: what each folder of a path is; null = recognised from the folders' names. See fca.data.layout.
    splits: the set's own split names -> train, val or test, or null to leave one out.    val: how to carve one.
    mirror: whether a mirrored image still shows its class.
    """

    root: str
    val: Share
    name: str | None = None
    layout: str | None = None
    splits: dict[str, str | None] | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images; nothing is decoded. Files that are no images are ignored."""
        files = open_root(self.root, "images in folders that are named by their class")
        listing = files.listing()
        images = images_of(listing)
        layout = self.layout or recognised([path for path, _ in images], self.splits)
        listed = by_layout(images, listing.folders, layout, self.splits)

        def reader(items: pd.DataFrame) -> ImageReader:
            return ImageReader(files, items["image_id"].tolist())

        return assemble(self.name or name_of(self.root), listed, reader, self.val, self.splits, mirror=self.mirror)
