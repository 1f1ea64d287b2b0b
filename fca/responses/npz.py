"""Answers as an npz of plain arrays, our own format: also classes, labels and what was answered."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.nouns import FcaError
from fca.responses import Responses, frame_of_items, frame_of_subjects

NOT_ASKED = -1  # of integer answers


def no_answer(value: Any, where: tuple[Path, str, str]) -> FcaError:
    """The error of an answer that is none. where: file, subject and item."""
    path, subject, item = where
    allowed = "0, 1, or missing where it was not asked"
    return FcaError(f"answer of {subject} to {item} in {path}", value, allowed, "mend that answer")


def read_npz(path: Path) -> Responses:
    """What `fca.responses.files.read_responses` says of an npz."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise FcaError("file of answers", path, "an npz of plain arrays", f"write it again: {error}") from None
    classes = tuple(map(str, found.get("classes", ())))
    needed = ("subjects", "items", *(() if "correct" in found else ("pred", "labels", "classes")))
    missing = [name for name in needed if name not in found]
    if missing:
        allowed = "subjects, items, and correct or pred with labels and classes"
        raise FcaError(f"arrays of {path}", f"no {', '.join(missing)}", allowed, "add them")
    subjects, items = found["subjects"].astype(str).tolist(), found["items"].astype(str).tolist()
    for name in {"correct", "pred"} & set(found):
        if found[name].shape != (len(subjects), len(items)):
            allowed = f"({len(subjects)}, {len(items)}), subjects and items"
            raise FcaError(f"shape of {name} in {path}", found[name].shape, allowed, "mend the array")
    labels = _labels(found.get("labels"), classes, len(items), path)
    pred = _pred(found["pred"], classes, path) if "pred" in found else None
    correct = _correct(found.get("correct"), pred, labels, classes, path)
    unknown = ~np.isin(correct, (0, 1)) & ~np.isnan(correct)
    if unknown.any():
        at, on = np.argwhere(unknown)[0]
        raise no_answer(correct[at, on], (path, subjects[at], items[on]))
    about = [_optional(found, name, len(subjects), path) for name in ("models", "snapshots")]
    return Responses(correct, frame_of_subjects(subjects, *about), frame_of_items(items, labels), pred, classes)


def _optional(found: Mapping[str, np.ndarray], name: str, length: int, path: Path) -> list[str] | None:
    """An array of names, one a subject, if it is there."""
    if name in found and found[name].shape != (length,):
        raise FcaError(f"shape of {name} in {path}", found[name].shape, f"({length},)", "mend the array")
    return found[name].astype(str).tolist() if name in found else None


def _labels(given: np.ndarray | None, classes: Sequence[str], items: int, path: Path) -> list[str | None] | None:
    """Class keys of the items, given as such or as positions in `classes`."""
    if given is None:
        return None
    if given.shape != (items,):
        raise FcaError(f"shape of labels in {path}", given.shape, f"({items},), one an item", "mend the array")
    if given.dtype.kind not in "iu":
        return [key or None for key in given.astype(str).tolist()]
    if given.size and not 0 <= given.min() <= given.max() < len(classes):
        allowed = f"positions among the {len(classes)} classes of the file"
        raise FcaError(f"labels in {path}", f"{given.min()} to {given.max()}", allowed, "add `classes`, or give keys")
    return [classes[at] for at in given]


def _pred(given: np.ndarray, classes: Sequence[str], path: Path) -> Integer[np.ndarray, "subjects items"]:
    """What was answered, as positions in `classes`; -1 not asked, or another class."""
    whole = given.dtype.kind in "iu"
    if not whole or (given.size and not NOT_ASKED <= given.min() <= given.max() < len(classes)):
        value = f"{given.min()} to {given.max()}" if whole else f"an array of {given.dtype}"
        allowed = f"integers, -1 or positions among the {len(classes)} classes of the file"
        raise FcaError(f"pred in {path}", value, allowed, "mend pred, or add `classes`")
    return given.astype(np.int32)


def _correct(
    given: np.ndarray | None,
    pred: Integer[np.ndarray, "subjects items"] | None,
    labels: Iterable[str | None] | None,
    classes: Sequence[str],
    path: Path,
) -> Float[np.ndarray, "subjects items"]:
    """1, 0 and NaN: as given, or whether `pred` is the label."""
    if given is not None:
        if given.dtype.kind not in "biuf":
            raise FcaError(f"correct in {path}", f"an array of {given.dtype}", "numbers: 1, 0, -1", "mend the array")
        correct = given.astype(np.float64)
        return np.where(correct == NOT_ASKED, np.nan, correct)
    assert pred is not None  # either is in the file
    assert labels is not None
    position = {key: at for at, key in enumerate(classes)}
    true = np.array([position.get(str(key), NOT_ASKED - 1) for key in labels])
    return np.where(pred == NOT_ASKED, np.nan, (pred == true).astype(np.float64))


def write_npz(responses: Responses, path: Path) -> None:
    """All that the noun says, but for what the items' names say already."""

    def names(column: pd.Series) -> np.ndarray:
        return column.fillna("").to_numpy(dtype=str)

    arrays = {
        "subjects": names(responses.subjects["subject"]),
        "models": names(responses.subjects["model"]),
        "snapshots": names(responses.subjects["snapshot"]),
        "items": names(responses.items["item"]),
        "labels": names(responses.items["label"]),
        "classes": np.array(responses.classes, dtype=str),
        "correct": np.nan_to_num(responses.correct, nan=NOT_ASKED).astype(np.int8),
    }
    if responses.pred is not None:
        arrays["pred"] = responses.pred.astype(np.int32)
    np.savez_compressed(path, **arrays)
