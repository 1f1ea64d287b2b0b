"""Responses of subjects to items: the matrix that item response theory, label checks and adaptive tests start from.

Also its files (npz of plain arrays, CSV of 0 and 1, py-irt's JSON lines), and how a file about images of a stored data
set joins that set.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.csv_table import csv_line, read_lines, without_escape
from fca.types import FcaError

MISSING = -1  # among integer responses: no response
_CELLS = {"0": 0.0, "1": 1.0, "": np.nan, "0.0": 0.0, "1.0": 1.0}  # with decimals where pandas wrote gaps
_SHIFT = re.compile(r"[^/@]+/(?P<kind>[^/@]+)/(?P<severity>[1-5])")
_SNAPSHOT = re.compile(r"(?P<model>.+)/(?P<snapshot>best|0?\.\d+|1\.0+)")


@dataclass(frozen=True)
class Responses:
    """Responses of subjects (models, their snapshots, people) to items (images, or images under a shift).

    correct:  1 right, 0 wrong, NaN no response.
    subjects: one line a subject: `subject` (its name, unlike all others), `model` (subjects of one model are not
              independent), `snapshot` (missing where there is none).
    items:    one line an item: `item` (its name), `image_id`, `label` (class key; missing if not known), `corruption`
              (clean, defocus_blur, ...) and `severity` (0 = clean).
    pred:     the predicted class, as a position in `classes`; -1 no response or another class. None: not known.
    classes:  class keys; empty when neither predictions nor labels are known.
    """

    correct: Float[np.ndarray, "subjects items"]
    subjects: pd.DataFrame
    items: pd.DataFrame
    pred: Integer[np.ndarray, "subjects items"] | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for names, column in ((self.subjects, "subject"), (self.items, "item")):
            twice = names[column][names[column].duplicated()]
            if len(twice):
                raise FcaError(f"{column} names", f"{twice.iloc[0]} twice", "names that differ", f"rename one {column}")

    @property
    def accuracy(self) -> Float[np.ndarray, " subjects"]:
        """Share of right responses of each subject among the items it responded to."""
        return np.nanmean(self.correct, axis=1)


class Place(NamedTuple):
    """Where an item's pixels come from."""

    image_id: str
    corruption: str  # clean, or a kind: defocus_blur
    severity: int  # 0 = clean


def kind_and_severity(shift: str) -> tuple[str, int] | None:
    """Of a shift's name; None where it is no corruption.

    >>> kind_and_severity("cifar_c/fog/3"), kind_and_severity("clean"), kind_and_severity("noise/gaussian/0.25")
    (('fog', 3), ('clean', 0), None)
    """
    if shift == "clean":
        return "clean", 0
    found = _SHIFT.fullmatch(shift)
    return (found["kind"], int(found["severity"])) if found else None


def place_of(item: str) -> Place:
    """The place that an item's name states: `<image_id>`, or `<image_id>@<shift>`.

    >>> place_of("a@b.png@corruption/fog/3"), place_of("a@b.png")
    (Place(image_id='a@b.png', corruption='fog', severity=3), Place(image_id='a@b.png', corruption='clean', severity=0))
    """
    image_id, _, shift = item.rpartition("@")
    found = kind_and_severity(shift) if image_id and shift != "clean" else None
    return Place(item, "clean", 0) if found is None else Place(image_id, *found)


def frame_of_items(items: Sequence[str], labels: Sequence[str | None] | None = None) -> pd.DataFrame:
    """The frame of `Responses.items` of these names, with the class keys where they are known.

    >>> frame_of_items(["a.png@corruption/fog/3"], ["cat"]).values.tolist()
    [['a.png@corruption/fog/3', 'a.png', 'cat', 'fog', 3]]
    """
    places = [place_of(item) for item in items]
    labels = [None] * len(items) if labels is None else labels
    columns = {"item": items, "image_id": [place.image_id for place in places], "label": labels}
    frame = pd.DataFrame({name: pd.Series(list(values), dtype=object) for name, values in columns.items()})
    severities = pd.Series([place.severity for place in places], dtype="int64")
    return frame.assign(corruption=[place.corruption for place in places], severity=severities)


def frame_of_subjects(
    subjects: Sequence[str], models: Sequence[str] | None = None, snapshots: Sequence[str | None] | None = None
) -> pd.DataFrame:
    """The frame of `Responses.subjects` of these names; what is not given is read from them: `resnet18/0.1`.

    >>> frame_of_subjects(["resnet18/0.1", "timm/vit_b16"])["model"].tolist()
    ['resnet18', 'timm/vit_b16']
    """
    found = [_SNAPSHOT.fullmatch(name) for name in subjects]
    if models is None:
        models = [match["model"] if match else name for match, name in zip(found, subjects, strict=True)]
    if snapshots is None:
        snapshots = [match and match["snapshot"] for match in found]
    columns = {"subject": subjects, "model": models, "snapshot": [snapshot or None for snapshot in snapshots]}
    return pd.DataFrame({name: pd.Series(list(values), dtype=object) for name, values in columns.items()})


def read_responses(path: Path | str) -> Responses:
    """Responses of subjects to items, by the suffix of the file.

    .npz:                  arrays `subjects`, `items`, and `correct` (subjects, items; 1, 0, -1 no response) or `pred`
                           (positions in `classes`, -1 no response) with `labels` (class keys of the items, or positions
                           in `classes`) and `classes`; optional `models` and `snapshots` of the subjects.
    .csv, .csv.gz:         first column the subject, one column an item, cells 0, 1 or empty.
    .jsonlines, .jsonl:    a line a subject, as py-irt has it: {"subject_id": "a", "responses": {"item": 1}}.
    A name `resnet18/0.1` is snapshot 0.1 of model resnet18; an item `cat.png@corruption/fog/3` is that image under fog.
    Raises FcaError for another suffix, no file, one that is damaged or empty, ragged lines, names that are there twice,
    and responses other than 0, 1 or missing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "zoo.csv"
    >>> _ = path.write_text("subject,cat.png,dog.png@corruption/fog/3\\nresnet18/0.1,1,\\nvgg16,0,1\\n")
    >>> found = read_responses(path)
    >>> found.correct.tolist(), found.items["severity"].tolist(), found.subjects["snapshot"].tolist()
    ([[1.0, nan], [0.0, 1.0]], [0, 3], ['0.1', None])
    """
    path = Path(path)
    read, _ = _format(path)
    if not path.is_file():
        raise FcaError("file of responses", path, "a file that exists", "mend the path")
    try:
        responses = read(path)
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise FcaError("file of responses", path, "one that can be read", f"write it again: {error}") from None
    if not responses.correct.size:
        raise FcaError(f"responses in {path}", "none", "1 subject and 1 item or more", "is this the right file?")
    return responses


def write_responses(responses: Responses, path: Path | str) -> None:
    """Write what `read_responses` reads; CSV and JSON lines keep names and right or wrong only.

    Raises FcaError for a suffix that it does not know.
    """
    path = Path(path)
    _, write = _format(path)
    write(responses, path)


def stem_of(path: Path | str) -> str:
    """The name of a file of responses without its suffix: what its data set is called.

    >>> stem_of("responses/cue_conflict.csv.gz")
    'cue_conflict'
    """
    name = Path(path).name
    return name.removesuffix(".gz").rpartition(".")[0]


def _format(path: Path) -> tuple[Any, Any]:
    """The reader and the writer of files with this suffix."""
    for suffix, both in FORMATS.items():
        if path.name.endswith(suffix):
            return both
    raise FcaError("suffix of a file of responses", path.name, ", ".join(FORMATS), "rename or convert it")


def _invalid(value: Any, path: Path, subject: str, item: str) -> FcaError:
    allowed = "0, 1, or missing where there is no response"
    return FcaError(f"response of {subject} to {item} in {path}", value, allowed, "mend that response")


def _read_npz(path: Path) -> Responses:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise FcaError("file of responses", path, "an npz of plain arrays", f"write it again: {error}") from None
    classes = tuple(map(str, found.get("classes", ())))
    needed = ("subjects", "items", *(() if "correct" in found else ("pred", "labels", "classes")))
    missing = [name for name in needed if name not in found]
    if missing:
        allowed = "subjects, items, and correct or pred with labels and classes"
        raise FcaError(f"arrays of {path}", f"no {', '.join(missing)}", allowed, "add them")
    subjects, items = (found[name].astype(str).tolist() for name in ("subjects", "items"))
    both = (len(subjects), len(items))
    shapes = {"correct": both, "pred": both, "labels": both[1:], "models": both[:1], "snapshots": both[:1]}
    for name, shape in shapes.items():
        if name in found and found[name].shape != shape:
            allowed = f"{shape}, of {both[0]} subjects and {both[1]} items"
            raise FcaError(f"shape of {name} in {path}", found[name].shape, allowed, "mend the array")
    labels = _labels(found["labels"], classes, path) if "labels" in found else None
    pred = _pred(found["pred"], classes, path) if "pred" in found else None
    if "correct" in found:
        correct = _correct(found["correct"], path)
    else:
        position = {key: at for at, key in enumerate(classes)}
        true = np.array([position.get(str(key), MISSING - 1) for key in labels or ()])
        correct = np.where(pred == MISSING, np.nan, pred == true)
    unknown = np.argwhere(~np.isin(correct, (0, 1)) & ~np.isnan(correct))
    for at, on in unknown[:1]:
        raise _invalid(correct[at, on], path, subjects[at], items[on])
    about = [found[name].astype(str).tolist() if name in found else None for name in ("models", "snapshots")]
    return Responses(correct, frame_of_subjects(subjects, *about), frame_of_items(items, labels), pred, classes)


def _labels(given: np.ndarray, classes: Sequence[str], path: Path) -> list[str | None]:
    """Class keys of the items, given as such or as positions in `classes`."""
    if given.dtype.kind not in "iu":
        return [key or None for key in given.astype(str).tolist()]
    if given.size and not 0 <= given.min() <= given.max() < len(classes):
        allowed = f"positions among the {len(classes)} classes of the file"
        raise FcaError(f"labels in {path}", f"{given.min()} to {given.max()}", allowed, "add `classes`, or give keys")
    return [classes[at] for at in given]


def _pred(given: np.ndarray, classes: Sequence[str], path: Path) -> Integer[np.ndarray, "subjects items"]:
    """Predicted classes, as positions in `classes`; -1 no response, or another class."""
    whole = given.dtype.kind in "iu"
    if not whole or (given.size and not MISSING <= given.min() <= given.max() < len(classes)):
        value = f"{given.min()} to {given.max()}" if whole else f"an array of {given.dtype}"
        allowed = f"integers, -1 or positions among the {len(classes)} classes of the file"
        raise FcaError(f"pred in {path}", value, allowed, "mend pred, or add `classes`")
    return given.astype(np.int32)


def _correct(given: np.ndarray, path: Path) -> Float[np.ndarray, "subjects items"]:
    if given.dtype.kind not in "biuf":
        raise FcaError(f"correct in {path}", f"an array of {given.dtype}", "numbers: 1, 0, -1", "mend the array")
    correct = given.astype(np.float64)
    return np.where(correct == MISSING, np.nan, correct)


def _write_npz(responses: Responses, path: Path) -> None:
    """All of `Responses`, but for what the items' names state."""
    named = (responses.subjects[["subject", "model", "snapshot"]], responses.items[["item", "label"]])
    arrays = {
        **{f"{name}s": column.fillna("").to_numpy(dtype=str) for frame in named for name, column in frame.items()},
        "classes": np.array(responses.classes, dtype=str),
        "correct": np.nan_to_num(responses.correct, nan=MISSING).astype(np.int8),
    }
    if responses.pred is not None:
        arrays["pred"] = responses.pred.astype(np.int32)
    np.savez_compressed(path, **arrays)


def _text(path: Path, mode: str) -> TextIOWrapper:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    return opened(path, f"{mode}t", encoding="utf-8", newline="")


def _read_csv(path: Path) -> Responses:
    names, lines = read_lines(path, path)
    items = names[1:]
    subjects, rows = [], []
    for subject, *cells in lines:
        if unknown := set(cells) - set(_CELLS):
            item, cell = next((item, cell) for item, cell in zip(items, cells, strict=True) if cell in unknown)
            raise _invalid(cell, path, subject, item)
        subjects.append(without_escape(subject))
        rows.append([_CELLS[cell] for cell in cells])
    correct = np.array(rows, dtype=np.float64).reshape(len(subjects), len(items))

    while items and not items[-1] and np.isnan(correct[:, -1]).all():  # lines that end in separators
        items, correct = items[:-1], correct[:, :-1]
    if "" in items:
        place = items.index("") + 2
        raise FcaError(f"item of column {place} in {path}", "no name", "a name in the first line", "name it")
    return Responses(correct, frame_of_subjects(subjects), frame_of_items(items))


def _write_csv(responses: Responses, path: Path) -> None:
    cells = np.where(np.isnan(responses.correct), "", np.where(responses.correct == 1, "1", "0"))
    with _text(path, "w") as file:
        file.write(csv_line(["subject", *responses.items["item"]]))
        for name, row in zip(responses.subjects["subject"], cells.tolist(), strict=True):
            file.write(csv_line([name, *row]))


def _read_jsonlines(path: Path) -> Responses:
    with _text(path, "r") as file:
        lines = [_line(text, number, path) for number, text in enumerate(file, 1) if text.strip()]
    position = {item: at for at, item in enumerate(dict.fromkeys(item for _, of in lines for item in of))}
    correct = np.full((len(lines), len(position)), np.nan)
    for row, (_, of) in zip(correct, lines, strict=True):
        row[[position[item] for item in of]] = list(of.values())
    return Responses(correct, frame_of_subjects([name for name, _ in lines]), frame_of_items(list(position)))


def _line(text: str, number: int, path: Path) -> tuple[str, dict[str, float]]:
    """One subject and its responses; a name that is there twice would be lost in a dict."""
    try:
        line = json.loads(text, object_pairs_hook=_once)
        subject, responses = str(line["subject_id"]), dict(line["responses"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = '{"subject_id": "a", "responses": {"item": 1}}, every name once'
        raise FcaError(f"line {number} of {path}", text.strip()[:60], allowed, f"mend it: {error!r}") from None
    for item, value in responses.items():
        if value not in (0, 1, None):
            raise _invalid(value, path, subject, item)
    return subject, {item: np.nan if value is None else float(value) for item, value in responses.items()}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} twice")
    return found


def _write_jsonlines(responses: Responses, path: Path) -> None:
    items = responses.items["item"].to_numpy(dtype=object)
    with _text(path, "w") as file:
        for name, row in zip(responses.subjects["subject"], responses.correct, strict=True):
            known = ~np.isnan(row)
            given = dict(zip(items[known], row[known].astype(int).tolist(), strict=True))
            file.write(json.dumps({"subject_id": name, "responses": given}) + "\n")


FORMATS = {  # suffix -> reader and writer
    ".npz": (_read_npz, _write_npz),
    ".csv": (_read_csv, _write_csv),
    ".csv.gz": (_read_csv, _write_csv),
    ".jsonlines": (_read_jsonlines, _write_jsonlines),
    ".jsonl": (_read_jsonlines, _write_jsonlines),
}


def stored_set(read: Responses, stored: Mapping[str, Responses], file: str) -> str | None:
    """The stored data set (by name) whose images all items of a file are; None where it has none of any.

    Data sets may name their images alike (cifar10 and cifar100: test/00000), so labels in the file must be those
    stored; where several sets remain, the file is of the one that it is called after.
    Raises FcaError where only some items are known, where labels differ, and where several sets remain.
    """
    known = {name: read.items["item"].isin(set(of.items["image_id"])) for name, of in stored.items()}
    whole = [name for name, those in known.items() if those.all()]
    if not whole:
        for name, those in known.items():
            if those.any():
                unknown = read.items.loc[~those, "item"]
                allowed = f"all or none are image_ids of {name}, of which it names {those.sum()}"
                what = f"{len(unknown)} of {len(those)} items of {file}"
                raise FcaError(what, ", ".join(unknown.head(5)), allowed, "rename the items, or leave them out")
        return None
    relabelled = {name: _first_relabelled(read, stored[name]) for name in whole}
    alike = [name for name, first in relabelled.items() if first is None]
    if not alike:
        allowed = f"the labels of {', '.join(whole)}, which has images of these names"
        raise FcaError(f"labels in {file}", relabelled[whole[0]], allowed, "take its class keys, or rename the items")
    if len(alike) == 1 or stem_of(file) in alike:
        return alike[0] if len(alike) == 1 else stem_of(file)
    step = f"call the file after its data set, e.g. {alike[0]}.npz, or give labels"
    raise FcaError(f"data set of {file}", " or ".join(alike), "one: all of these have images of its names", step)


def _first_relabelled(read: Responses, stored: Responses) -> str | None:
    """The first item whose label in the file is not the stored one; None if there is none, or no label in the file."""
    ours = read.items["item"].map(stored.items.set_index("item")["label"])
    other = read.items["label"].notna() & (read.items["label"] != ours)
    for item, label, as_stored in zip(read.items["item"][other], read.items["label"][other], ours[other], strict=True):
        return f"{item}: {label}, stored as {as_stored}"
    return None


def joined(stored: Responses, read: Responses) -> Responses:
    """The subjects of a file below those of the store; NaN for items without a response.

    Of a file that has only right or wrong, the class of right responses is known; wrong ones are "another class".
    """
    at = pd.Index(stored.items["item"]).get_indexer(pd.Index(read.items["item"]))
    correct = np.full((len(read.subjects), len(stored.items)), np.nan)
    correct[:, at] = read.correct
    pred = np.full(correct.shape, MISSING, dtype=np.int32)
    position = {key: place for place, key in enumerate(stored.classes)}
    if read.pred is None:
        label = stored.items["label"].map(position).to_numpy()[at]
        pred[:, at] = np.where(read.correct == 1, label, MISSING)
    else:
        class_of = np.array([*(position.get(key, MISSING) for key in read.classes), MISSING])  # the last for -1
        pred[:, at] = class_of[read.pred]
    assert stored.pred is not None  # as stored rows have it
    subjects = pd.concat([stored.subjects, read.subjects], ignore_index=True)
    correct, pred = np.vstack([stored.correct, correct]), np.vstack([stored.pred, pred])
    return replace(stored, subjects=subjects, correct=correct, pred=pred)
