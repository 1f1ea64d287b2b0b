"""What a row may say: the columns of the results table, declared once. A row is flat JSON; the missing stays out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]

_WITH_INTERVAL = ("top1", "top1_open", "top1_masked", "top1_grouped")
_ESTIMATES = ("accuracy", "score")  # of an adaptive test

COLUMNS: dict[str, type] = {
    "run_id": str,  # 12 hex digits of the run's identity
    "task": str,
    "parent": str,  # the run whose weights or arrays this one read
    "dataset": str,
    "fingerprint": str,  # of the images, labels and splits
    "split": str,
    "num_classes": int,  # classes of the data set
    "model": str,
    "weights": str,
    "snapshot": str,
    "encoder": str,
    "shift": str,
    "adaptation": str,
    "ncl": int,
    "subset_seed": int,
    "sampler": str,
    "classes": tuple,  # label indices in the data set, sorted
    "seed": int,
    "compat": str,
    "groups": str,  # which groups of classes, of the grouped protocol
    **{f"{name}{end}": float for name in _WITH_INTERVAL for end in ("", "_low", "_high")},
    **{f"{name}{end}": float for name in _ESTIMATES for end in ("", "_low", "_high", "_se")},
    "policy": str,  # of an adaptive test
    "estimator": str,
    "budget": float,  # share of the images that it may ask, at a time
    "width": float,  # of the accuracy's interval, at which it stops
    "bank": str,  # id of a saved table irt_items
    "protocol": str,
    "n_asked": int,
    "n_pool": int,  # images that might be asked
    "share": float,  # n_asked / n_pool
    **{f"asked_{level}": int for level in ("easy", "medium", "hard")},
    "rounds": int,
    "warning": str,  # what is known to be wrong with its estimates
    "val_top1": float,
    "penalty": float,  # of a probe
    "n_train": int,
    "n_val": int,
    "n_test": int,
    "n_grouped": int,  # test images whose class is in a group
    "best_epoch": int,
    "flag": str,  # diverged, or chance: not told apart from always naming the commonest class
    "train_s": float,
    "predict_s": float,
    "images_per_s": float,
    "params": int,
    "input_size": int,  # side of the network's square input, pixels
    "n_images": int,
    "class_min": int,  # images of the smallest class
    "height_min": int,
    "height_max": int,
    "width_min": int,
    "width_max": int,
    "duplicates_exact": int,  # pairs
    "duplicates_near": int,
    "duplicates_between_splits": int,
    "checksum": str,  # of all images, labels and splits
    "similarity_calls": int,  # of a user's own pair function
    "device": str,
    "host": str,
    "command": str,
    "commit": str,
    "versions": str,
    "finished": str,  # UTC, ISO 8601
}
RECIPE = "recipe_"  # one column a key of the recipe, e.g. recipe_epochs


def checked(values: Mapping[str, Any]) -> Row:
    """The row of these values, in declared order; raises ValueError for an undeclared column, a wrong type or a NaN.

    >>> checked({"task": "score", "run_id": "0123456789ab", "top1": None})
    {'run_id': '0123456789ab', 'task': 'score'}
    """
    row = {}
    for name in [*COLUMNS, *sorted(set(values) - set(COLUMNS))]:
        value = values.get(name)
        if value is None:
            continue
        if not name.startswith(RECIPE):
            row[name] = _typed(name, value)
        else:
            row[name] = list(value) if isinstance(value, tuple) else value
    return row


def _typed(name: str, value: Any) -> Any:
    if name not in COLUMNS:
        raise ValueError(f"column {name!r} (value {value!r}) is not declared in fca/store/columns.py")
    kind = COLUMNS[name]
    if kind is tuple:
        return [int(v) for v in value]
    if kind is float:
        value = float(value)
        if not math.isfinite(value):
            raise ValueError(f"{name}={value} is not a number; leave out what was not measured")
        return value
    if kind is int:
        if int(value) != value:
            raise ValueError(f"{name}={value!r} is not a whole number")
        return int(value)
    if not isinstance(value, str):
        raise ValueError(f"{name}={value!r} is a {type(value).__name__}, not a string")
    return value
