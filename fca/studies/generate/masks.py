"""Masks of generated images by a segmenter: lines of the journal, beside the images."""

from __future__ import annotations

from functools import partial

from PIL import Image

from fca.data.files import decode
from fca.progress import track
from fca.store.files import write_whole
from fca.studies.generate.folder import Folder, latest, masked
from fca.studies.generate.segmenters import Segmenter


def add_masks(folder: Folder, segmenter: Segmenter, name: str) -> str:
    """Masks for all images that have none of the generator's or this segmenter's; returns what was done.

    name: of the plan. An image in which nothing is found gets no mask, and is not asked about again.
    """
    with folder.held(wait=False):
        lines = folder.journal.lines()
        known, label = masked(lines), segmenter.label()
        images = [line for line in latest(lines).values() if line["kind"] == "image" and not line["mask"]]
        new = [line for line in images if known.get(line["key"], {}).get("by") != label]
        empty = 0
        for line in track(new, "masks"):
            file = folder.root / line["file"]
            mask = segmenter.mask(decode(file.read_bytes(), str(file)), line["name"])
            path = f"masks/{line['key']}.png" if mask.any() else None
            if path is not None:
                write_whole(folder.root / path, partial(Image.fromarray(mask).save, format="PNG"))
            empty += path is None
            folder.journal.add({"kind": "mask", "key": line["key"], "by": label, "mask": path})
        if lines := folder.journal.lines():
            folder.write_lists(lines, name)
    return f"masks: {len(new):,} by {label}, {empty:,} without the object"
