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
    """Whether any image of the split has a shorter side above 96 pixels (the reference size of shifts).

    Shifts bring larger images to the reference size, so results on them are identified by it. No image is read if all
    images have the known side `data.side`. Otherwise images are read until one is large enough; for photographs that is
    the first. If none is, all have been read, so that is remembered in the user's cache folder. Images that cannot be
    read do not count.
    """
    if data.side is not None:
        return is_above_reference(data.side, data.side)

    key = data.fingerprint, split
    if key not in _known:
        _known[key] = not _is_known_to_be_small(data, split) and _has_large_image(data, split)
    return _known[key]


def _has_large_image(data: ImageData, split: str) -> bool:
    """Read images of a split until one has a shorter side above 96 pixels, and return whether there is one.

    Corruptions resize such images to their reference size first (see fca.geometry.REFERENCE). An image that cannot be
    read counts as small.

    A large image is usually found at once, so only the other answer, for which all images are read, is stored in the
    cache. A warning is logged if the cache cannot be written.
    """
    rows = data.rows(split).tolist()
    for row in watched(rows, f"sizes of {data.name}", long=len(rows) >= MANY_IMAGES):
        with suppress(UnreadableImage):
            if is_above_reference(*data.read(row).shape[:2]):
                return True

    try:
        write_json(_record_path(data, split), {"images": len(rows), "any_above_96": False})
    except OSError as error:
        record_path = _record_path(data, split)
        log.warning("sizes of images are not remembered: %s (%s); set FCA_CACHE", record_path, error.strerror)
    return False


def _is_known_to_be_small(data: ImageData, split: str) -> bool:
    """Whether the cache has a record that no image of the split is above the reference size."""
    with if_whole():  # a missing or damaged record is ignored
        record = read_object(_record_path(data, split), images=int, any_above_96=bool)
        return record["images"] == len(data.rows(split)) and not record["any_above_96"]
    return False


def _record_path(data: ImageData, split: str) -> Path:
    return user_cache() / "sizes" / f"{data.fingerprint}-{split}.json"
