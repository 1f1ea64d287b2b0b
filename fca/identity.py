"""Identities: hashes of content and meaning that do not depend on where something is stored or when it was made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

ADDED_LATER: Mapping[str, Mapping[str, Any]] = {
    "recipe": {
        "lr_batch": 0,
        "finetune_lr": 1.0,
        "lr_min": 0.0,
        "step_epochs": 0.0,
        "cutmix": 0.0,
        "ema": 0.0,
        "ema_warmup": False,
        "steps": 0,
        "min_steps": 0,
        "passes": 1,
        "accumulate": 1,
        "layer_decay": 1.0,
        "optimiser_options": {},
        "crop_from": "input",
        "repeats": 1,
        "val_max": 0,
        "patience": 0,
        "frozen_norms": False,
        "augment": {"policy": "none", "ops": 0, "magnitude": 0, "jitter": 0.0, "erasing": 0.0},
    },
    "model": {"package": None, "depth": "whole"},
}
"""group -> key -> its value for the behaviour before the key existed. So run ids stay the same when a key is added."""

UNREADABLE = "unreadable"  # in place of a digest: no permission, gone, or damaged in its archive
FILE_COLUMNS = ("bytes", "content", "mask_content")
"""Columns of items that enter a fingerprint."""


def fingerprint(items: pd.DataFrame, version: str = "") -> str:
    """The fingerprint of a data set: 12 hex digits that change with its images, their labels and their splits.

    items:   one line per image, in any order: `image_id`, `label`, `split`; if images are files, also `content` (and
             `mask_content`), digests of their bytes, or `bytes`, the file sizes of a set that has a version.
    version: a text that identifies the content of the images of a set that is published in versions; otherwise "".

    The fingerprint is the start of the sha256 of a text with one record per image: (image_id, bytes, content,
    mask_content, label, split), as far as these columns exist. Records are sorted by image_id; \\x1f separates fields,
    \\x1e ends a record, and the version comes last. So different sets never give the same text.

    >>> fingerprint(pd.DataFrame({"image_id": ["a", "b"], "label": ["cat", "dog"], "split": ["test", "test"]}))
    '705e9bb044d9'
    """
    columns = [column for column in ("image_id", *FILE_COLUMNS, "label", "split") if column in items]
    values_by_column = [items[column].astype(str).tolist() for column in columns]
    records = sorted(zip(*values_by_column, strict=True))
    text = "".join("\x1f".join(record) + "\x1e" for record in records) + version
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def file_sha256(path: str | Path) -> str:
    """The sha256 of a file's content, 64 hex digits.

    It is computed once per process, and again only if the file's size or time of modification changes.
    """
    resolved = Path(path).expanduser().resolve()
    stat = resolved.stat()
    return _file_sha256(resolved, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1024)
def _file_sha256(path: Path, _size: int, _mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical(group: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that enter an identity: without keys that were added later and have the value for the old behaviour.

    group: the kind of values, a key of `ADDED_LATER`.

    >>> canonical("recipe", {"epochs": 3, "ema": 0.0})
    {'epochs': 3}
    """
    old_defaults = ADDED_LATER.get(group, {})
    return {key: value for key, value in values.items() if key not in old_defaults or value != old_defaults[key]}
