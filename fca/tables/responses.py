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
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.csv_table import csv_line, read_lines, without_escape
from fca.types import FcaError

MISSING = -1  # among integer responses: no response
# Text of a cell in a CSV file -> response; pandas writes decimals where a column has gaps.
_RESPONSE_OF_CELL = {"0": 0.0, "1": 1.0, "": np.nan, "0.0": 0.0, "1.0": 1.0}
_SHIFT = re.compile(r"[^/@]+/(?P<kind>[^/@]+)/(?P<severity>[1-5])")  # corruption/fog/3
_SNAPSHOT = re.compile(r"(?P<model>.+)/(?P<snapshot>best|0?\.\d+|1\.0+)")  # resnet18/best, resnet18/0.1


@dataclass(frozen=True)
class Responses:
    """Responses of subjects (models, their snapshots, people) to items (images, or images under a shift).

    correct:  1 right, 0 wrong, NaN no response.
    subjects: a frame with one line for each subject: `subject` (its unique name), `model` (the network of which it is a
              snapshot; subjects of one model are not independent), `snapshot` (missing where there is none).
    items:    a frame with one line for each item: `item` (its name, which is unique), `image_id`, `label` (class key;
              missing if not known), `corruption` (clean, defocus_blur, ...) and `severity` (0 = clean).
    pred:     the predicted class, as a position in `classes`; -1 for no response or another class. None: not known.
    classes:  class keys; empty when neither predictions nor labels are known.
    Raises FcaError for a name that two subjects or two items have.
    """

    correct: Float[np.ndarray, "subjects items"]
    subjects: pd.DataFrame
    items: pd.DataFrame
    pred: Integer[np.ndarray, "subjects items"] | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for names, column in ((self.subjects, "subject"), (self.items, "item")):
            repeated_names = names[column][names[column].duplicated()]
            if len(repeated_names):
                value = f"{repeated_names.iloc[0]} twice"
                raise FcaError(f"{column} names", value, "names that differ", f"rename one {column}")

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
    """Kind and severity of a corruption, read from the name of a shift; None for a shift that is no corruption.

    Clean images count as the kind "clean" of severity 0.

    >>> kind_and_severity("cifar_c/fog/3"), kind_and_severity("clean"), kind_and_severity("noise/gaussian/0.25")
    (('fog', 3), ('clean', 0), None)
    """
    if shift == "clean":
        return "clean", 0

    match = _SHIFT.fullmatch(shift)
    if match is None:
        return None
    return match["kind"], int(match["severity"])


def place_of(item: str) -> Place:
    """The image, corruption and severity that the name of an item states: `<image_id>` or `<image_id>@<shift>`.

    A name without a corruption behind the last @ is as a whole the id of a clean image.

    >>> place_of("a@b.png@corruption/fog/3"), place_of("a@b.png")
    (Place(image_id='a@b.png', corruption='fog', severity=3), Place(image_id='a@b.png', corruption='clean', severity=0))
    """
    clean_place = Place(item, "clean", 0)
    image_id, _, shift = item.rpartition("@")
    if not image_id or shift == "clean":  # without an @ the whole name is the image's
        return clean_place

    corruption = kind_and_severity(shift)
    if corruption is None:  # the @ belongs to the name of the image
        return clean_place
    kind, severity = corruption
    return Place(image_id, kind, severity)


def frame_of_items(items: Sequence[str], labels: Sequence[str | None] | None = None) -> pd.DataFrame:
    """The frame `Responses.items` for these names of items.

    labels: the class key of each item, None where it is not known; None: no label is known.

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
    """The frame `Responses.subjects` (columns subject, model, snapshot) for these names of subjects.

    models, snapshots: the model and the snapshot of each subject. If they are None, they are read from the names:
    `resnet18/0.1` is snapshot 0.1 of resnet18, and any other name is the name of a model without a snapshot.

    >>> frame_of_subjects(["resnet18/0.1", "timm/vit_b16"])["model"].tolist()
    ['resnet18', 'timm/vit_b16']
    """
    matches = [_SNAPSHOT.fullmatch(name) for name in subjects]
    if models is None:
        models = [match["model"] if match else name for match, name in zip(matches, subjects, strict=True)]
    if snapshots is None:
        snapshots = [match["snapshot"] if match else None for match in matches]

    columns = {
        "subject": subjects,
        "model": models,
        "snapshot": [snapshot or None for snapshot in snapshots],  # npz files have "" for no snapshot
    }
    return pd.DataFrame({name: pd.Series(list(values), dtype=object) for name, values in columns.items()})


def read_responses(path: Path | str) -> Responses:
    """Read a file of responses; its suffix states the format.

    .npz:                  arrays `subjects`, `items`, and `correct` (subjects x items; 1, 0, -1 for no response) or
                           `pred` (positions in `classes`, -1 for no response) with `labels` (class keys of the items,
                           or positions in `classes`) and `classes`; optional: `models` and `snapshots` of the subjects.
    .csv, .csv.gz:         the first column has the subjects, each other column an item, with cells 0, 1 or empty.
    .jsonlines, .jsonl:    one line for each subject, as in py-irt: {"subject_id": "a", "responses": {"item": 1}}.
    A subject `resnet18/0.1` is snapshot 0.1 of model resnet18; an item `cat.png@corruption/fog/3` is that image in fog.
    Raises FcaError for another suffix, a missing, damaged or empty file, lines of different lengths, repeated names,
    and responses other than 0, 1 or missing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "zoo.csv"
    >>> _ = path.write_text("subject,cat.png,dog.png@corruption/fog/3\\nresnet18/0.1,1,\\nvgg16,0,1\\n")
    >>> found = read_responses(path)
    >>> found.correct.tolist(), found.items["severity"].tolist(), found.subjects["snapshot"].tolist()
    ([[1.0, nan], [0.0, 1.0]], [0, 3], ['0.1', None])
    """
    path = Path(path)
    read, _ = _reader_and_writer(path)
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
    """Write a file that `read_responses` reads; its suffix states the format.

    CSV and JSON lines keep only the names and which responses are right. Raises FcaError for an unknown suffix.
    """
    path = Path(path)
    _, write = _reader_and_writer(path)
    write(responses, path)


def stem_of(path: Path | str) -> str:
    """The name of a file of responses without its suffix, which names its data set.

    >>> stem_of("responses/cue_conflict.csv.gz")
    'cue_conflict'
    """
    name = Path(path).name
    return name.removesuffix(".gz").rpartition(".")[0]


def _reader_and_writer(path: Path) -> tuple[Any, Any]:
    """The functions that read and write files with the suffix of this path. Raises FcaError for an unknown suffix."""
    for suffix, reader_and_writer in FORMATS.items():
        if path.name.endswith(suffix):
            return reader_and_writer
    raise FcaError("suffix of a file of responses", path.name, ", ".join(FORMATS), "rename or convert it")


def _invalid_response_error(value: Any, path: Path, subject: str, item: str) -> FcaError:
    """The error to raise for a response in a file that is neither 0 nor 1 nor missing."""
    allowed = "0, 1, or missing where there is no response"
    return FcaError(f"response of {subject} to {item} in {path}", value, allowed, "mend that response")


def _read_npz(path: Path) -> Responses:
    """Read the responses in an npz of plain arrays, whose names `read_responses` lists.

    Without the array `correct`, a response is right where the predicted class equals the label.
    Raises FcaError for arrays that do not fit together, and for responses other than 0, 1 or missing.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise FcaError("file of responses", path, "an npz of plain arrays", f"write it again: {error}") from None

    _check_arrays(arrays, path)
    subjects = arrays["subjects"].astype(str).tolist()
    items = arrays["items"].astype(str).tolist()
    classes = tuple(map(str, arrays.get("classes", ())))
    labels = _label_keys(arrays["labels"], classes, path) if "labels" in arrays else None
    pred = _predicted_classes(arrays["pred"], classes, path) if "pred" in arrays else None

    if "correct" in arrays:
        correct = _right_wrong_or_missing(arrays["correct"], path)
    else:
        class_positions = {key: position for position, key in enumerate(classes)}
        no_class = MISSING - 1  # for a label that is no class: it equals no prediction, not even a missing one
        true = np.array([class_positions.get(str(key), no_class) for key in labels or ()])
        correct = np.where(pred == MISSING, np.nan, pred == true)  # subjects x items

    invalid_cells = np.argwhere(~np.isin(correct, (0, 1)) & ~np.isnan(correct))
    if len(invalid_cells):
        row, column = invalid_cells[0]
        raise _invalid_response_error(correct[row, column], path, subjects[row], items[column])

    models = arrays["models"].astype(str).tolist() if "models" in arrays else None
    snapshots = arrays["snapshots"].astype(str).tolist() if "snapshots" in arrays else None
    return Responses(
        correct,
        frame_of_subjects(subjects, models, snapshots),
        frame_of_items(items, labels),
        pred,
        classes,
    )


def _check_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise FcaError for an array of an npz that is missing, or whose shape does not fit the subjects and items."""
    required = ["subjects", "items"]
    if "correct" not in arrays:
        required += ["pred", "labels", "classes"]
    missing = [name for name in required if name not in arrays]
    if missing:
        allowed = "subjects, items, and correct or pred with labels and classes"
        raise FcaError(f"arrays of {path}", f"no {', '.join(missing)}", allowed, "add them")

    # not `len` of the arrays themselves, which raises TypeError for an array without dimensions
    n_subjects = len(arrays["subjects"].astype(str).tolist())
    n_items = len(arrays["items"].astype(str).tolist())
    shapes: dict[str, tuple[int, ...]] = {
        "correct": (n_subjects, n_items),
        "pred": (n_subjects, n_items),
        "labels": (n_items,),
        "models": (n_subjects,),
        "snapshots": (n_subjects,),
    }
    for name, shape in shapes.items():
        if name in arrays and arrays[name].shape != shape:
            allowed = f"{shape}, of {n_subjects} subjects and {n_items} items"
            raise FcaError(f"shape of {name} in {path}", arrays[name].shape, allowed, "mend the array")


def _label_keys(labels: np.ndarray, classes: Sequence[str], path: Path) -> list[str | None]:
    """The class key of each item; None where it is not known.

    labels:  class keys ("": not known), or positions in `classes`.
    classes: class keys.
    path:    for errors.
    Raises FcaError for a position that `classes` does not have.
    """
    if labels.dtype.kind not in "iu":
        return [key or None for key in labels.astype(str).tolist()]

    if labels.size and not 0 <= labels.min() <= labels.max() < len(classes):
        allowed = f"positions among the {len(classes)} classes of the file"
        raise FcaError(f"labels in {path}", f"{labels.min()} to {labels.max()}", allowed, "add `classes`, or give keys")
    return [classes[position] for position in labels]


def _predicted_classes(pred: np.ndarray, classes: Sequence[str], path: Path) -> Integer[np.ndarray, "subjects items"]:
    """The predicted classes of a file as positions in `classes`; -1 for no response or another class.

    pred: the array of the file, already in this form.
    path: for errors.
    Raises FcaError if the array is of another type or has other numbers.
    """
    allowed = f"integers, -1 or positions among the {len(classes)} classes of the file"
    step = "mend pred, or add `classes`"
    if pred.dtype.kind not in "iu":
        raise FcaError(f"pred in {path}", f"an array of {pred.dtype}", allowed, step)
    if pred.size and not MISSING <= pred.min() <= pred.max() < len(classes):
        raise FcaError(f"pred in {path}", f"{pred.min()} to {pred.max()}", allowed, step)
    return pred.astype(np.int32)


def _right_wrong_or_missing(correct: np.ndarray, path: Path) -> Float[np.ndarray, "subjects items"]:
    """The array `correct` of a file as floats, with NaN in place of -1 for no response.

    Raises FcaError if it is no array of numbers. Numbers other than 0 and 1 are refused later, by the caller.
    """
    if correct.dtype.kind not in "biuf":
        raise FcaError(f"correct in {path}", f"an array of {correct.dtype}", "numbers: 1, 0, -1", "mend the array")

    scores = correct.astype(np.float64)
    return np.where(scores == MISSING, np.nan, scores)


def _write_npz(responses: Responses, path: Path) -> None:
    """Write responses to an npz, from which `_read_npz` reads them.

    Columns image_id, corruption and severity are not written, because the names of the items contain them.
    """
    subjects = responses.subjects[["subject", "model", "snapshot"]]
    items = responses.items[["item", "label"]]
    arrays: dict[str, np.ndarray] = {}
    for frame in (subjects, items):
        for name, column in frame.items():
            arrays[f"{name}s"] = column.fillna("").to_numpy(dtype=str)  # subjects, models, snapshots, items, labels

    arrays["classes"] = np.array(responses.classes, dtype=str)
    arrays["correct"] = np.nan_to_num(responses.correct, nan=MISSING).astype(np.int8)
    if responses.pred is not None:
        arrays["pred"] = responses.pred.astype(np.int32)
    np.savez_compressed(path, **cast("dict[str, Any]", arrays))


def _opened_text(path: Path, mode: str) -> TextIOWrapper:
    """The opened text file, read or written through gzip if its suffix is .gz.

    It is opened with newline="", which leaves line breaks as they are: cells of a CSV may contain them.

    mode: "r" or "w".
    """
    open_file: Any = gzip.open if path.suffix == ".gz" else open
    return open_file(path, f"{mode}t", encoding="utf-8", newline="")


def _read_csv(path: Path) -> Responses:
    """Read responses from a CSV file: a header line with the items, then a line for each subject.

    A cell is 0, 1 or empty (no response). Raises FcaError for another cell, and for an item without a name.
    """
    column_names, lines = read_lines(path, path)
    items = column_names[1:]
    subjects: list[str] = []
    rows: list[list[float]] = []
    for subject, *cells in lines:
        invalid_cells = set(cells) - set(_RESPONSE_OF_CELL)  # one check a line is fast: files have millions of cells
        if invalid_cells:
            column = next(column for column, cell in enumerate(cells) if cell in invalid_cells)
            raise _invalid_response_error(cells[column], path, subject, items[column])
        subjects.append(without_escape(subject))  # without the apostrophe before what looks like a formula
        rows.append([_RESPONSE_OF_CELL[cell] for cell in cells])
    # reshaped for a file without subjects, whose array would not have two dimensions
    correct = np.array(rows, dtype=np.float64).reshape(len(subjects), len(items))

    # Spreadsheets may end every line with separators, which look like empty columns without a name
    while items and not items[-1] and np.isnan(correct[:, -1]).all():
        items = items[:-1]
        correct = correct[:, :-1]

    if "" in items:
        column_number = items.index("") + 2  # counted from 1, after the column of subjects
        raise FcaError(f"item of column {column_number} in {path}", "no name", "a name in the first line", "name it")
    return Responses(correct, frame_of_subjects(subjects), frame_of_items(items))


def _write_csv(responses: Responses, path: Path) -> None:
    """Write a CSV file: a header line with the names of the items, then a line for each subject.

    A line has the subject's name and its responses: 1, 0, or an empty cell where there is none.
    """
    right_or_wrong = np.where(responses.correct == 1, "1", "0")
    cells = np.where(np.isnan(responses.correct), "", right_or_wrong)  # subjects x items
    with _opened_text(path, "w") as file:
        file.write(csv_line(["subject", *responses.items["item"]]))
        for name, row in zip(responses.subjects["subject"], cells.tolist(), strict=True):
            file.write(csv_line([name, *row]))


def _read_jsonlines(path: Path) -> Responses:
    """Read responses from JSON lines, as py-irt writes them: one subject in each line.

    Items are in the order in which the lines first name them. An item that a line lacks has no response (NaN).
    Raises FcaError for an invalid line.
    """
    with _opened_text(path, "r") as file:  # empty lines are skipped
        lines = [_subject_and_responses(text, number, path) for number, text in enumerate(file, 1) if text.strip()]

    column_of_item: dict[str, int] = {}  # in order of first appearance
    for _, responses in lines:
        for item in responses:
            column_of_item.setdefault(item, len(column_of_item))

    correct = np.full((len(lines), len(column_of_item)), np.nan)
    for subject_responses, (_, responses) in zip(correct, lines, strict=True):
        columns = [column_of_item[item] for item in responses]
        subject_responses[columns] = list(responses.values())  # a view: this fills a line of `correct`

    subjects = [subject for subject, _ in lines]
    return Responses(correct, frame_of_subjects(subjects), frame_of_items(list(column_of_item)))


def _subject_and_responses(text: str, number: int, path: Path) -> tuple[str, dict[str, float]]:
    """The subject of one line of JSON, and its responses: item -> 1.0, 0.0, or NaN for null.

    number: the number of the line, for errors.
    Raises FcaError for a line of another form, and for a response other than 0, 1 and null.
    """
    try:
        line = json.loads(text, object_pairs_hook=_dict_of_unique_names)  # raises ValueError for a repeated name
        subject, responses = str(line["subject_id"]), dict(line["responses"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = '{"subject_id": "a", "responses": {"item": 1}}, every name once'
        raise FcaError(f"line {number} of {path}", text.strip()[:60], allowed, f"mend it: {error!r}") from None

    for item, value in responses.items():
        if value not in (0, 1, None):
            raise _invalid_response_error(value, path, subject, item)
    return subject, {item: np.nan if value is None else float(value) for item, value in responses.items()}


def _dict_of_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dictionary. Raises ValueError for a repeated name, because a dict would lose a value."""
    values_by_name = dict(pairs)
    if len(values_by_name) == len(pairs):
        return values_by_name

    names = [name for name, _ in pairs]
    first_repeated = next(name for name in names if names.count(name) > 1)
    raise ValueError(f"{first_repeated} twice")


def _write_jsonlines(responses: Responses, path: Path) -> None:
    """Write JSON lines in py-irt's form, one for each subject; items to which it did not respond are left out."""
    items = responses.items["item"].to_numpy(dtype=object)
    with _opened_text(path, "w") as file:
        for name, row in zip(responses.subjects["subject"], responses.correct, strict=True):
            has_response = ~np.isnan(row)
            scores = row[has_response].astype(int).tolist()
            score_by_item = dict(zip(items[has_response], scores, strict=True))
            file.write(json.dumps({"subject_id": name, "responses": score_by_item}) + "\n")


FORMATS = {  # suffix -> reader and writer
    ".npz": (_read_npz, _write_npz),
    ".csv": (_read_csv, _write_csv),
    ".csv.gz": (_read_csv, _write_csv),
    ".jsonlines": (_read_jsonlines, _write_jsonlines),
    ".jsonl": (_read_jsonlines, _write_jsonlines),
}


def matching_stored_dataset(read: Responses, stored: Mapping[str, Responses], file: str) -> str | None:
    """The name of the stored data set whose images are the items of a file of responses.

    The set must have all items of the file as images; None if no stored set has any of them.

    Two data sets may give their images the same names (cifar10 and cifar100: test/00000), so labels in the file must
    equal the stored labels. If several sets remain, the stem of the file must name one of them.

    read:   the content of the file.
    stored: data set -> its responses.
    file:   the path of the file.
    Raises FcaError if stored sets have only some of the items, if labels differ, or if several sets remain.
    """
    items = read.items["item"]
    is_stored_by_set = {  # data set -> for each item of the file, whether it is an image of this set
        name: items.isin(set(responses.items["image_id"])) for name, responses in stored.items()
    }
    complete_sets = [name for name, is_stored in is_stored_by_set.items() if is_stored.all()]
    if not complete_sets:
        for name, is_stored in is_stored_by_set.items():
            if is_stored.any():
                unknown = items.loc[~is_stored]
                allowed = f"all or none are image_ids of {name}, of which it names {is_stored.sum()}"
                what = f"{len(unknown)} of {len(is_stored)} items of {file}"
                raise FcaError(what, ", ".join(unknown.head(5)), allowed, "rename the items, or leave them out")
        return None

    relabelled_item_by_set = {name: _first_relabelled(read, stored[name]) for name in complete_sets}
    candidates = [name for name, item in relabelled_item_by_set.items() if item is None]
    if not candidates:
        relabelled_item = relabelled_item_by_set[complete_sets[0]]
        allowed = f"the labels of {', '.join(complete_sets)}, which has images of these names"
        raise FcaError(f"labels in {file}", relabelled_item, allowed, "take its class keys, or rename the items")

    if len(candidates) == 1:
        return candidates[0]
    if stem_of(file) in candidates:
        return stem_of(file)
    step = f"call the file after its data set, e.g. {candidates[0]}.npz, or give labels"
    raise FcaError(f"data set of {file}", " or ".join(candidates), "one: all of these have images of its names", step)


def _first_relabelled(read: Responses, stored: Responses) -> str | None:
    """Words on the first item whose label in the file differs from its stored label, with both; None if all are equal.

    Items without a label in the file are not compared.

    read:   the content of the file.
    stored: the responses of a data set that has all items of the file.
    """
    items = read.items["item"]
    file_labels = read.items["label"]
    stored_labels = items.map(stored.items.set_index("item")["label"])

    is_relabelled = file_labels.notna() & (file_labels != stored_labels)
    if not is_relabelled.any():
        return None
    item = items[is_relabelled].iloc[0]
    file_label = file_labels[is_relabelled].iloc[0]
    stored_label = stored_labels[is_relabelled].iloc[0]
    return f"{item}: {file_label}, stored as {stored_label}"


def with_file_subjects(stored: Responses, read: Responses) -> Responses:
    """The responses of one stored data set, with the subjects of a file added below the stored subjects.

    All items of the file must be stored items. The file's subjects have no response (NaN) to stored items that the file
    lacks. If the file has no predictions, the predicted class is the label where a response is right, and unknown (-1)
    where it is wrong.

    stored: the stored responses.
    read:   the content of the file.
    """
    # for each item of the file its position among the stored items
    columns = pd.Index(stored.items["item"]).get_indexer(pd.Index(read.items["item"]))
    correct = np.full((len(read.subjects), len(stored.items)), np.nan)
    correct[:, columns] = read.correct

    pred = np.full(correct.shape, MISSING, dtype=np.int32)
    class_positions = {key: position for position, key in enumerate(stored.classes)}
    if read.pred is None:
        labels = stored.items["label"].map(class_positions).to_numpy()[columns]
        pred[:, columns] = np.where(read.correct == 1, labels, MISSING)
    else:
        stored_positions = [class_positions.get(key, MISSING) for key in read.classes]
        stored_positions.append(MISSING)  # -1, no response, indexes this last entry
        pred[:, columns] = np.array(stored_positions)[read.pred]  # positions in the file's classes -> in stored classes

    assert stored.pred is not None  # stored runs always have predictions
    return replace(
        stored,
        subjects=pd.concat([stored.subjects, read.subjects], ignore_index=True),
        correct=np.vstack([stored.correct, correct]),
        pred=np.vstack([stored.pred, pred]),
    )
