"""One split of a data set as a shift shows it: the same images, other pixels."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from fca.nouns import ImageData, Shift


def shifted(data: ImageData, shift: Shift, split: str) -> ImageData:
    """The images of `split` alone, in their order, each changed by `shift` before geometry; masks stay what they were.

    Its fingerprint names the changed pixels among cached ones and nothing else: the images are those of `data`.
    Raises FcaError if the shift has no such images.
    """
    rows = data.rows(split)
    items = data.items.iloc[rows].reset_index(drop=True)
    read = shift.reader(data)
    meaning = hashlib.sha256(json.dumps(shift.identity(), sort_keys=True).encode()).hexdigest()[:12]
    return replace(
        data,
        name=f"{data.name}, {shift.label()}",
        items=items,
        fingerprint=f"{data.fingerprint}-{split}-{meaning}",
        read=lambda i: read(int(rows[i])),
        mask=lambda i: data.mask(int(rows[i])),
    )
