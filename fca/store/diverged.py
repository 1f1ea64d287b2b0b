"""Trainings that diverged: their weights mean nothing, so neither they nor what was made with them has an accuracy.

A training says so itself, in column `flag`. Stores of earlier versions hold accuracies beside that mark, and
predictions of such weights without one: no reader gets to see these numbers.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from fca.store.columns import FLAG, HEADLINES, PARENT, RUN_ID, TASK, WEIGHTS, Row
from fca.types import with_interval

DIVERGED = "diverged"
ACCURACIES = frozenset([*(str(end) for headline in HEADLINES for end in with_interval(headline)), "val_top1"])
OTHER_WEIGHTS = ("train", "latency", "describe")  # tasks whose numbers do not depend on what these weights answer
_RUN = re.compile(r"([0-9a-f]{12})/")  # how column `weights` names a stored run and its snapshot


def source_of(row: Row) -> str | None:
    """The run whose weights or arrays a row was made with; None for a training, and for weights of a file or library.

    >>> source_of({"task": "predict", "weights": "0123456789ab/best"}), source_of({"task": "train", "parent": "a"})
    ('0123456789ab', None)
    """
    if row.get(TASK) in OTHER_WEIGHTS:
        return None
    if row.get(PARENT) is not None:
        return str(row[PARENT])
    named = _RUN.match(str(row.get(WEIGHTS)))
    return None if named is None else named[1]


def of_diverged(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of trainings that diverged, or were made with their weights."""
    is_marked = rows[FLAG].eq(DIVERGED).fillna(value=False).astype(bool)
    if not is_marked.any():
        return is_marked

    of_run = rows[WEIGHTS].astype("object").astype(str).str.extract(f"^{_RUN.pattern}", expand=False)
    source = rows[PARENT].astype("object").where(rows[PARENT].notna(), of_run)
    source = source.mask(rows[TASK].isin(OTHER_WEIGHTS))
    while True:  # a score reads predictions, which read a training
        marked = rows.loc[is_marked, RUN_ID]
        more = is_marked | source.isin(marked)
        if more.equals(is_marked):
            return is_marked
        is_marked = more


def heeded(rows: pd.DataFrame) -> pd.DataFrame:
    """These rows; those of trainings that diverged are marked, and have no accuracy."""
    is_marked = of_diverged(rows)
    if not is_marked.any():
        return rows
    rows = rows.copy()
    rows.loc[is_marked, FLAG] = DIVERGED
    for name in ACCURACIES & set(rows):
        rows[name] = rows[name].mask(is_marked)
    return rows


def without_accuracy(row: Row) -> Row:
    """A row marked as diverged, without its accuracies.

    >>> without_accuracy({"task": "predict", "top1_open": 0.9, "ncl": 2})
    {'task': 'predict', 'ncl': 2, 'flag': 'diverged'}
    """
    kept: dict[str, Any] = {name: value for name, value in row.items() if name not in ACCURACIES}
    return {**kept, str(FLAG): DIVERGED}
