"""Answers as files: our own npz, a table of 0 and 1 as CSV, and py-irt's lines of JSON; reading and writing."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from fca.nouns import FcaError
from fca.responses import Responses, frame_of_items, frame_of_subjects
from fca.responses.npz import no_answer, read_npz, write_npz

_ANSWERS = {"0": 0.0, "1": 1.0, "": np.nan, "0.0": 0.0, "1.0": 1.0}  # with decimals where pandas wrote gaps


def read_responses(path: Path | str) -> Responses:
    """Answers of subjects on items, by the suffix of the file.

    .npz:                  arrays `subjects`, `items`, and `correct` (subjects, items; 1, 0, -1 not asked) or `pred`
                           (positions in `classes`, -1 not asked) with `labels` (class keys of the items, or positions
                           in `classes`) and `classes`; optional `models` and `snapshots` of the subjects.
    .csv, .csv.gz:         first column the subject, one column an item, cells 0, 1 or empty.
    .jsonlines, .jsonl:    a line a subject, as py-irt has it: {"subject_id": "a", "responses": {"item": 1}}.
    A name `resnet18/0.1` is snapshot 0.1 of model resnet18; an item `cat.png@corruption/fog/3` is that image under fog.
    Raises FcaError for another suffix, no file, one that is damaged or empty, ragged lines, names that are there twice,
    and answers other than 0, 1 or missing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "zoo.csv"
    >>> _ = path.write_text("subject,cat.png,dog.png@corruption/fog/3\\nresnet18/0.1,1,\\nvgg16,0,1\\n")
    >>> found = read_responses(path)
    >>> found.correct.tolist(), found.items["severity"].tolist(), found.subjects["snapshot"].tolist()
    ([[1.0, nan], [0.0, 1.0]], [0, 3], ['0.1', None])
    """
    read = _of_suffix(path, {".npz": read_npz, ".csv": _read_csv, ".csv.gz": _read_csv}, _read_jsonlines)
    if not Path(path).is_file():
        raise FcaError("file of answers", path, "a file that exists", "mend the path")
    try:
        responses: Responses = read(Path(path))
    except (UnicodeDecodeError, OSError, EOFError, csv.Error, zlib.error) as error:
        raise FcaError("file of answers", path, "one that can be read", f"write it again: {error}") from None
    if not responses.correct.size:
        raise FcaError(f"answers in {path}", "none", "1 subject and 1 item or more", "is this the right file?")
    return responses


def write_responses(responses: Responses, path: Path | str) -> None:
    """Write what `read_responses` reads; CSV and JSON lines keep names and right or wrong only.

    Raises FcaError for a suffix that it does not know.
    """
    write = _of_suffix(path, {".npz": write_npz, ".csv": _write_csv, ".csv.gz": _write_csv}, _write_jsonlines)
    write(responses, Path(path))


def stem_of(path: Path | str) -> str:
    """The name of a file of answers without its suffix: what its data set is called.

    >>> stem_of("answers/cue_conflict.csv.gz")
    'cue_conflict'
    """
    name = Path(path).name
    return name.removesuffix(".gz").rpartition(".")[0]


def _of_suffix(path: Path | str, known: Mapping[str, Callable[..., Any]], lines: Callable[..., Any]) -> Any:
    every = {**known, ".jsonlines": lines, ".jsonl": lines}
    for suffix, do in every.items():
        if Path(path).name.endswith(suffix):
            return do
    raise FcaError("suffix of a file of answers", Path(path).name, ", ".join(every), "rename or convert it")


def _text(path: Path, mode: str) -> TextIOWrapper:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    file: TextIOWrapper = opened(path, f"{mode}t", encoding="utf-8", newline="")
    return file


def _read_csv(path: Path) -> Responses:
    with _text(path, "r") as file:
        lines = csv.reader(file)
        items = next(lines, [])[1:]
        subjects, rows = [], []
        for line in filter(None, lines):  # an empty line at the end is no subject
            if len(line) != len(items) + 1:
                what = f"cells in line {lines.line_num} of {path}"
                raise FcaError(what, len(line), f"{len(items) + 1}, as in the first line", "mend that line")
            subjects.append(line[0])
            rows.append([_answer(cell, (path, line[0], item)) for cell, item in zip(line[1:], items, strict=True)])
    correct = np.array(rows, dtype=np.float64).reshape(len(subjects), len(items))
    return Responses(correct, frame_of_subjects(subjects), frame_of_items(items))


def _answer(cell: str, where: tuple[Path, str, str]) -> float:
    found = _ANSWERS.get(cell)
    if found is None:
        raise no_answer(cell, where)
    return found


def _write_csv(responses: Responses, path: Path) -> None:
    cells = np.where(np.isnan(responses.correct), "", np.where(responses.correct == 1, "1", "0"))
    with _text(path, "w") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write(["subject", *responses.items["item"]])
        for name, row in zip(responses.subjects["subject"], cells.tolist(), strict=True):
            write([name, *row])


def _read_jsonlines(path: Path) -> Responses:
    said: list[tuple[str, dict[str, float]]] = []
    with _text(path, "r") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                said.append(_line(text, number, path))
    position = {item: at for at, item in enumerate(dict.fromkeys(item for _, of in said for item in of))}
    correct = np.full((len(said), len(position)), np.nan)
    for row, (_, of) in zip(correct, said, strict=True):
        row[[position[item] for item in of]] = list(of.values())
    return Responses(correct, frame_of_subjects([name for name, _ in said]), frame_of_items(list(position)))


def _line(text: str, number: int, path: Path) -> tuple[str, dict[str, float]]:
    """One subject and its answers; a name that is there twice would be lost in a dict."""
    try:
        line = json.loads(text, object_pairs_hook=_once)
        subject, responses = str(line["subject_id"]), dict(line["responses"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = '{"subject_id": "a", "responses": {"item": 1}}, every name once'
        raise FcaError(f"line {number} of {path}", text.strip()[:60], allowed, f"mend it: {error!r}") from None
    for item, value in responses.items():
        if value not in (0, 1, None):
            raise no_answer(value, (path, subject, item))
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
            asked = np.flatnonzero(~np.isnan(row))
            answers = dict(zip(items[asked], row[asked].astype(int).tolist(), strict=True))
            file.write(json.dumps({"subject_id": name, "responses": answers}) + "\n")
