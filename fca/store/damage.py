"""Checks of a finished run's folder: it must have the run's row, and the arrays and weights that the row lists.

The row has a line for every file (name, bytes, xxh3_128 and, of an array, dtype and shape) and one for itself. A check
of a run costs one read, and one `stat` per file: only files that changed later than the row are read, and their bytes
compared with the checksum in the row. A process that reads a file for the first time compares it in any case.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import NamedTuple

from fca.store.columns import BASE, CLASSES, RENAMED, Row
from fca.store.files import (
    PLACE,
    SIGNED,
    DamagedFile,
    checksum,
    content_of,
    if_whole,
    is_as_signed,
    opened,
    parsed,
    read_array,
    read_object,
    signed,
    write_json,
)
from fca.types import Column

ROW, ERROR = "row.json", "error.json"
NOTE = "damaged.json"  # left by a reader that found damage: all files are to be compared
FITTED = "fitted.json"  # beside the weights of a network of which all layers were trained
PROGRESS = "progress.json"  # of a running training: epoch, epochs, images_per_s, left_s (an estimate), device
REMOVED = "removed.json"  # files: listed weights that were removed on purpose; why: the reason
FILES = Column("files", tuple, "", "name, bytes, xxh3_128, dtype and shape of each file of the run, and of the row")
SCHEMA = Column("schema", str, "", "what the columns of the row mean: see fca.store.schemas")
OTHERS = (
    "config.yaml",
    "log.txt",
    "journal.jsonl",
    "last.ckpt",
    "findings.csv",
    PROGRESS,
    REMOVED,
)  # files that no row lists
WEIGHTS = (".safetensors", ".onnx", "model.json", "fitted.json", "program.json")  # ends of names, beside arrays
SHOWN = 5  # damaged files that are named in the log, at most
_RUN_ID = re.compile(r"[0-9a-f]{12}")
_KINDS: dict[type, set[type]] = {str: {str, NoneType}, tuple: {list, NoneType}}
# Column -> types that its value may have in JSON; all columns of BASE but texts and tuples are numbers.
_ALLOWED_TYPES = {str(column): _KINDS.get(column.value_type, {int, float, NoneType}) for column in BASE}

log = logging.getLogger(__name__)
_intact_stamps: dict[str, tuple[int, int]] = {}  # file -> its size and time when this process found it intact


class Entry(NamedTuple):
    """Size and checksum of one file, as the row lists them."""

    size: int
    digest: str


class Whole(NamedTuple):
    """An intact row and what row.json has beside it.

    files:    name -> entry of each file that the row lists.
    mtime_ns: when row.json was written.
    schema:   id of the schema of the row's columns; None for a row of an earlier version.
    """

    row: Row
    files: dict[str, Entry]
    mtime_ns: int
    schema: str | None


def is_run_id(name: str) -> bool:
    """Whether a name has the form of a run's id; folders in `runs/` with other names are ignored."""
    return _RUN_ID.fullmatch(name) is not None


def is_listed(name: str) -> bool:
    """Whether rows list files of this name: arrays, weights, and the descriptions beside weights."""
    return name.endswith((".npy", *WEIGHTS)) and not name.startswith(".")


def is_ours(name: str) -> bool:
    """Whether a run may have written a file of this name."""
    return name in (ROW, ERROR, NOTE, *OTHERS) or is_listed(name)


def listing(folder: Path, row: Row, schema: str) -> bytes:
    """The content of row.json for a run whose arrays and weights are already in its folder.

    It has the columns of the row, the id of their schema, a checksum of this content, and a line with the checksum of
    each array and file of weights.

    row:    column -> value.
    schema: id of the schema, as `keep_schema` returns it.
    """
    names = sorted(name for name in os.listdir(folder) if is_listed(name))  # noqa: PTH208
    files = [PLACE.decode(), *(_entry_line(folder / name) for name in names)]  # `signed` fills the first line
    text = json.dumps({**row, SCHEMA: schema, FILES: files}, allow_nan=False, indent=1)
    return signed(text.encode())


def _entry_line(path: Path) -> str:
    """The line of a row for one of its files: name, bytes, checksum and, of an array, dtype and shape."""
    entry = f"{path.name} {path.stat().st_size} {checksum(path)}"
    if path.suffix != ".npy":
        return entry

    array = read_array(path)
    shape = "x".join(map(str, array.shape)) or "scalar"
    return f"{entry} {array.dtype.str} {shape}"


def read_row(folder: str | Path) -> Whole:
    """The row (stored result) in a run's folder, with the files that it lists; columns get their present names.

    Only row.json is read. Beside the columns it has a list under the key FILES: first a checksum of row.json itself,
    marked by SIGNED, then a line "NAME BYTES CHECKSUM ..." for each array and file of weights. These are not checked.
    Raises DamagedFile if row.json is damaged, FileNotFoundError for a run that is not finished.
    """
    path = f"{folder}/{ROW}"
    content = content_of(path)
    row = parsed(path, content, run_id=str, task=str)
    mtime_ns = os.stat(path).st_mtime_ns  # noqa: PTH116  half the time of Path, over thousands of rows
    if row["run_id"] != os.path.basename(folder):  # noqa: PTH119
        raise DamagedFile(path, f"is the row of run {row['run_id']:.40}")

    listed = row.pop(FILES, None)  # this and the id of the schema describe the row, and are no columns of it
    schema = row.pop(SCHEMA, None)
    if listed is None and SIGNED not in content:
        raise DamagedFile(path, "lists no files: written by an earlier version; repeat the command")
    if listed is None or not is_as_signed(content):  # a checksum but no list, or no checksum that matches
        raise DamagedFile(path, "was altered")
    for old_name in RENAMED.keys() & row.keys():
        row[RENAMED[old_name]] = row.pop(old_name)
    _check_types(path, row)

    try:
        fields_by_file = [line.split(" ") for line in listed[1:]]  # the first line is the row's own checksum
        files = {name: Entry(int(size), digest) for name, size, digest, *_ in fields_by_file}  # _: dtype and shape
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedFile(path, "was altered") from error
    return Whole(row, files, mtime_ns, schema if isinstance(schema, str) else None)


def _check_types(path: str, row: Row) -> None:
    """Raise DamagedFile for a value of another type than its column has, in the columns that all tasks share."""
    for name, value in row.items():
        if name in _ALLOWED_TYPES and type(value) not in _ALLOWED_TYPES[name]:
            raise DamagedFile(path, f"has {value!s:.60} as {name}")
    classes = row.get(CLASSES) or ()
    if not set(map(type, classes)) <= {int}:
        raise DamagedFile(path, f"has {row[CLASSES]!s:.60} as {CLASSES}")


def problem_of(folder: str | Path) -> DamagedFile | None:
    """The first damaged file of a finished run; None if the run is intact.

    Files older than the row are compared only by size, which is fast, unless a reader that found damage left a note in
    the folder: then all bytes are compared. A listed file that was removed on purpose, for which there is a record in
    the folder, is no damage.
    Raises FileNotFoundError for a run that is not finished.
    """
    try:
        intact = read_row(folder)
        has_note = os.path.lexists(f"{folder}/{NOTE}")
        for name, entry in intact.files.items():
            try:
                _check_file(f"{folder}/{name}", entry, intact.mtime_ns, always=has_note)
            except DamagedFile:
                was_removed_on_purpose = not os.path.lexists(f"{folder}/{name}") and name in removed(folder)
                if not was_removed_on_purpose:
                    raise
    except DamagedFile as damage:
        return damage

    if has_note:  # all files are intact, so the run was repaired by hand
        with suppress(OSError):  # a store may be read-only
            Path(folder, NOTE).unlink()
    return None


def removed(folder: str | Path) -> dict[str, str]:
    """Names of weights that were removed from a run's folder on purpose -> the reason; empty without a record of it."""
    with if_whole():
        record = read_object(f"{folder}/{REMOVED}", files=list, why=str)
        # only weights are ever removed on purpose; a record that names other files excuses none of them
        return {name: record["why"] for name in map(str, record["files"]) if name.endswith(".safetensors")}
    return {}


def _check_file(path: str, entry: Entry, written_ns: int, *, always: bool) -> None:
    """Raise DamagedFile for a file that is missing, or does not have the size and bytes that the row lists.

    The bytes are compared if the file is later than the row, or if `always` is true; in both cases only once in this
    process, which remembers intact files, as a large file takes long.

    entry:      size and checksum in the row.
    written_ns: the time when the row was written.
    """
    size, mtime_ns = _stamp(path)
    if size != entry.size:
        raise DamagedFile(path, f"has {size:,} bytes, not {entry.size:,}" if size else "is empty")

    is_later_than_row = mtime_ns > written_ns
    should_compare = always or is_later_than_row
    if not should_compare or was_whole(path):
        return

    if checksum(path) != entry.digest:
        raise DamagedFile(path, "was altered")
    # An intact file may be later than its row, as in a copied store. It is given the row's time, so that no later
    # process reads it again
    if is_later_than_row:
        with suppress(OSError):  # a store may be read-only
            os.utime(path, ns=(mtime_ns, written_ns))  # times of access, which fca never reads, and of change
    remember(path)


def check_header(path: Path) -> None:
    """Raise DamagedFile for weights (.safetensors) that are missing, or not as long as their header states.

    It is for weights that no row lists yet, so that there is no checksum to compare. A file of weights begins with 8
    bytes, the length of the header. The header is JSON: for each tensor, where its bytes begin and end in the part of
    the file behind the header.
    """
    try:
        with opened(path) as file:
            header_length = int.from_bytes(file.read(8), "little")
            # no more than the file has: a damaged length may be enormous
            header_bytes = file.read(min(header_length, path.stat().st_size))
        tensors = json.loads(header_bytes)
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        if path.stat().st_size != 8 + header_length + max(ends, default=0):
            raise DamagedFile(path, "is not as long as its header promises")
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedFile(path, "is no whole file of weights") from error


def compare(path: Path) -> None:
    """Raise DamagedFile for a file of a run whose size or bytes are not those that the run's row lists.

    The file is read only once in this process. A file that no row lists is not checked.
    """
    if was_whole(path):  # compared before
        return
    try:
        intact = read_row(path.parent)
    except FileNotFoundError:  # the run is not finished
        return
    if path.name in intact.files:
        _check_file(str(path), intact.files[path.name], intact.mtime_ns, always=True)


def was_whole(path: str | Path) -> bool:
    """Whether this process has found the file intact, and its size and time have not changed since then."""
    intact_stamp = _intact_stamps.get(os.path.abspath(path))  # noqa: PTH100
    return intact_stamp is not None and intact_stamp == _stamp(path)


def remember(path: str | Path) -> None:
    """Remember, for `was_whole`, that this process found the file intact."""
    _intact_stamps[os.path.abspath(path)] = _stamp(path)  # noqa: PTH100


@contextmanager
def noting() -> Iterator[None]:
    """If the `with` block raises DamagedFile, leave a note in the folder of that file's run; the error goes on.

    The note makes `problem_of` compare the bytes of all files of the run.
    """
    try:
        yield
    except DamagedFile as damage:
        with suppress(OSError):  # a store may be read-only
            if damage.path.parent.is_dir():
                write_json(damage.path.parent / NOTE, {"file": damage.path.name, "problem": damage.problem})
        raise


def warn(damaged: Sequence[DamagedFile]) -> None:
    """Log a warning for each of the first damaged files, and the number of the others."""
    for line in shortened_list(damaged):
        log.warning("%s", line)


def shortened_list(damaged: Iterable[DamagedFile]) -> list[str]:
    """A sentence for each of the first SHOWN damaged files, which readers leave out, and one that counts the others."""
    sentences = [f"left out: {damage}" for damage in damaged]
    if len(sentences) <= SHOWN:
        return sentences
    return [*sentences[:SHOWN], f"left out: {len(sentences) - SHOWN} more damaged files; all of them: fca status"]


def _stamp(path: str | Path) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds of a file. Raises DamagedFile if it is missing."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise DamagedFile(path, "is missing") from error
    return status.st_size, status.st_mtime_ns
