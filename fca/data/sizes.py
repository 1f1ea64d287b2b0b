"""How large the images of a data set are, as far as a run's identity depends on it."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from fca.data.content import user_cache
from fca.data.files import MANY_IMAGES, watched
from fca.geometry import is_above_reference
from fca.store.files import if_whole, read_object, write_json
from fca.types import ImageData, UnreadableImage

log = logging.getLogger(__name__)
_known: dict[tuple[str, str], bool] = {}


def any_above_reference(data: ImageData, split: str) -> bool:
    """Whether an image of the split has a shorter side above 96 pixels.

    Images are read until one has: of photographs the first is enough. None is read where `data.side` is known. That a
    split has none, for which all of its images are read, is remembered in the user's cache folder. Images that cannot
    be read do not count.
    """
    if data.side is not None:
        return is_above_reference(data.side, data.side)

    key = data.fingerprint, split
    if key not in _known:
        _known[key] = not _is_remembered(data, split) and _has_large_image(data, split)
    return _known[key]


def _has_large_image(data: ImageData, split: str) -> bool:
    """Whether any image of a split is above the reference size; an image that cannot be read counts as small.

    All images must be read for a no, so that is remembered in the cache; the first large one is enough for a yes.
    """
    rows = data.rows(split).tolist()
    for row in watched(rows, f"sizes of {data.name}", long=len(rows) >= MANY_IMAGES):
        with suppress(UnreadableImage):
            if is_above_reference(*data.read(row).shape[:2]):
                return True

    try:
        write_json(_record(data, split), {"images": len(rows), "any_above_96": False})
    except OSError as error:
        log.warning("sizes of images are not remembered: %s (%s); set FCA_CACHE", _record(data, split), error.strerror)
    return False


def _is_remembered(data: ImageData, split: str) -> bool:
    """Whether the cache has it that none of the images is above."""
    with if_whole():
        record = read_object(_record(data, split), images=int, any_above_96=bool)
        return record["images"] == len(data.rows(split)) and not record["any_above_96"]
    return False


def _record(data: ImageData, split: str) -> Path:
    return user_cache() / "sizes" / f"{data.fingerprint}-{split}.json"
