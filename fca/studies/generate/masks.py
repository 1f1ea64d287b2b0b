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
    """Segment the object in all images of a folder that lack a mask, and store the masks; return a summary in words.

    Images are left out if the generator made a mask, or if this segmenter tried them before. If the object is not
    found, the image gets no mask; the journal records the attempt, so that it is not repeated.

    name: the name of the plan, for the review page.

    Raises FcaError while another command adds to the folder, and UnreadableImage for an image that cannot be decoded.
    """
    with folder.held(wait=False):
        lines = folder.journal.lines()
        mask_lines = masked(lines)  # key of an image -> the line of a segmenter's attempt
        label = segmenter.label()
        without_mask = [line for line in latest(lines).values() if line["kind"] == "image" and not line["mask"]]
        to_segment = [line for line in without_mask if mask_lines.get(line["key"], {}).get("by") != label]

        n_empty = 0
        for line in track(to_segment, "masks"):
            file = folder.root / line["file"]
            mask = segmenter.mask(decode(file.read_bytes(), str(file)), line["name"])
            path = None
            if mask.any():
                path = f"masks/{line['key']}.png"
                write_whole(folder.root / path, partial(Image.fromarray(mask).save, format="PNG"))
            else:
                n_empty += 1
            folder.journal.add({"kind": "mask", "key": line["key"], "by": label, "mask": path})

        lines = folder.journal.lines()
        if lines:
            folder.write_lists(lines, name)
    return f"masks: {len(to_segment):,} by {label}, {n_empty:,} without the object"
