"""What a finished run's folder must hold: a row that is its own, and the arrays and weights that the row lists.

The row has a line for every file (name, bytes, xxh3_128 and, of an array, dtype and shape) and one for itself. To
look at a run costs one read and a `stat` a file: only what changed later than the row is read and compared. A file is
compared in any case when a process first reads it.
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

ROW, ERROR, NOTE = "row.json", "error.json", "damaged.json"
FITTED = "fitted.json"  # beside the weights of a network that was trained whole
PROGRESS = "progress.json"  # of a training at work: epoch, epochs, images_per_s, left_s (of its own estimate), device
REMOVED = "removed.json"  # files: weights that the row lists and that were removed on purpose; why
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
SHOWN = 5  # damaged files that are named, where others follow
_RUN_ID = re.compile(r"[0-9a-f]{12}")
_KINDS: dict[type, set[type]] = {str: {str, NoneType}, tuple: {list, NoneType}}
_BASE = {str(column): _KINDS.get(column.value_type, {int, float, NoneType}) for column in BASE}

log = logging.getLogger(__name__)
_compared: dict[str, tuple[int, int]] = {}  # file -> size and time at which this process found it whole


class Entry(NamedTuple):
    """What a row has of one file."""

    size: int
    digest: str


class Whole(NamedTuple):
    """A row that is whole, what it lists, its time, and its schema if it names one."""

    row: Row
    files: dict[str, Entry]
    mtime_ns: int
    schema: str | None


def is_run_id(name: str) -> bool:
    """Whether a folder of this name may be a run's; all others in `runs/` are somebody else's."""
    return _RUN_ID.fullmatch(name) is not None


def is_listed(name: str) -> bool:
    """Whether a row lists a file of this name: an array, or weights with what describes them."""
    return name.endswith((".npy", *WEIGHTS)) and not name.startswith(".")


def is_ours(name: str) -> bool:
    """Whether a run may write a file of this name."""
    return name in (ROW, ERROR, NOTE, *OTHERS) or is_listed(name)


def listing(folder: Path, row: Row, schema: str) -> bytes:
    """The content of row.json: the row, its schema, a checksum of this content, and a line for each file it lists."""
    names = sorted(name for name in os.listdir(folder) if is_listed(name))  # noqa: PTH208
    files = [PLACE.decode(), *(_of_file(folder / name) for name in names)]
    text = json.dumps({**row, SCHEMA: schema, FILES: files}, allow_nan=False, indent=1)
    return signed(text.encode())


def _of_file(path: Path) -> str:
    entry = f"{path.name} {path.stat().st_size} {checksum(path)}"
    if path.suffix != ".npy":
        return entry
    array = read_array(path)
    return f"{entry} {array.dtype.str} {'x'.join(map(str, array.shape)) or 'scalar'}"


def read_row(folder: str | Path) -> Whole:
    """A run's row, what it lists and its schema. Raises DamagedFile if not whole; FileNotFoundError for none."""
    path = f"{folder}/{ROW}"
    content = content_of(path)
    row = parsed(path, content, run_id=str, task=str)
    mtime_ns = os.stat(path).st_mtime_ns  # noqa: PTH116  half the time of Path, over thousands of rows
    if row["run_id"] != os.path.basename(folder):  # noqa: PTH119
        raise DamagedFile(path, f"is the row of run {row['run_id']:.40}")
    listed, schema = row.pop(FILES, None), row.pop(SCHEMA, None)
    if listed is None and SIGNED not in content:
        raise DamagedFile(path, "lists no files: written by an earlier version; repeat the command")
    if listed is None or not is_as_signed(content):
        raise DamagedFile(path, "was altered")
    for old_name in RENAMED.keys() & row.keys():
        row[RENAMED[old_name]] = row.pop(old_name)
    _check_kinds(path, row)
    try:
        parts = [line.split(" ") for line in listed[1:]]
        files = {name: Entry(int(size), digest) for name, size, digest, *_ in parts}
        return Whole(row, files, mtime_ns, schema if isinstance(schema, str) else None)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedFile(path, "was altered") from error


def _check_kinds(path: str, row: Row) -> None:
    """Raise DamagedFile for a value of another kind than its column has, in the columns that all tasks share."""
    if odd := [name for name, value in row.items() if name in _BASE and type(value) not in _BASE[name]]:
        raise DamagedFile(path, f"has {row[odd[0]]!s:.60} as {odd[0]}")
    if not set(map(type, row.get(CLASSES) or ())) <= {int}:
        raise DamagedFile(path, f"has {row[CLASSES]!s:.60} as {CLASSES}")


def problem_of(folder: str | Path) -> DamagedFile | None:
    """What is wrong with a finished run; None for a whole one. Raises FileNotFoundError for one without a row.

    Where a reader left a note, every file is compared.
    """
    try:
        whole = read_row(folder)
        noted = os.path.lexists(f"{folder}/{NOTE}")
        for name, entry in whole.files.items():
            try:
                _look_at(f"{folder}/{name}", entry, whole.mtime_ns, always=noted)
            except DamagedFile:
                if os.path.lexists(f"{folder}/{name}") or name not in removed(folder):
                    raise
    except DamagedFile as damage:
        return damage
    if noted:  # repaired by hand
        with suppress(OSError):
            Path(folder, NOTE).unlink()
    return None


def removed(folder: str | Path) -> dict[str, str]:
    """The weights of a run that were removed on purpose -> why."""
    with if_whole():
        record = read_object(f"{folder}/{REMOVED}", files=list, why=str)
        return {name: record["why"] for name in map(str, record["files"]) if name.endswith(".safetensors")}
    return {}


def _look_at(path: str, entry: Entry, written_ns: int, *, always: bool) -> None:
    """Raise DamagedFile for a listed file that is missing, of another size or of other bytes.

    written_ns: time of the row.    always: compare the bytes whatever the file's time; else those of a later file.
    """
    size, mtime_ns = _stamp(path)
    if size != entry.size:
        raise DamagedFile(path, f"has {size:,} bytes, not {entry.size:,}" if size else "is empty")
    if not (always or mtime_ns > written_ns) or was_whole(path):
        return
    if checksum(path) != entry.digest:
        raise DamagedFile(path, "was altered")
    if mtime_ns > written_ns:  # as in a copied store; the next look need not read it again
        with suppress(OSError):
            os.utime(path, ns=(mtime_ns, written_ns))
    remember(path)


def check_header(path: Path) -> None:
    """Raise DamagedFile for weights (.safetensors) that are missing, or of another length than their header promises.

    For those that no row lists yet.
    """
    try:
        with opened(path) as file:
            length = int.from_bytes(file.read(8), "little")
            tensors = json.loads(file.read(min(length, path.stat().st_size)))
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        if path.stat().st_size != 8 + length + max(ends, default=0):
            raise DamagedFile(path, "is not as long as its header promises")
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedFile(path, "is no whole file of weights") from error


def compare(path: Path) -> None:
    """Raise DamagedFile for a file of a run that is not what the run's row lists; read once a process.

    A file that no row lists is taken as it is.
    """
    if was_whole(path):
        return
    try:
        whole = read_row(path.parent)
    except FileNotFoundError:  # the run is still at work
        return
    if path.name in whole.files:
        _look_at(str(path), whole.files[path.name], whole.mtime_ns, always=True)


def was_whole(path: str | Path) -> bool:
    """Whether this process found a file whole, and it has the same size and time since."""
    known = _compared.get(os.path.abspath(path))  # noqa: PTH100
    return known is not None and known == _stamp(path)


def remember(path: str | Path) -> None:
    """Take note that a file is whole."""
    _compared[os.path.abspath(path)] = _stamp(path)  # noqa: PTH100


@contextmanager
def noting() -> Iterator[None]:
    """Leave word of a damaged file that the body finds in its run's folder, so that `problem_of` compares all."""
    try:
        yield
    except DamagedFile as damage:
        with suppress(OSError):  # a store may be read-only
            if damage.path.parent.is_dir():
                write_json(damage.path.parent / NOTE, {"file": damage.path.name, "problem": damage.problem})
        raise


def warn(damaged: Sequence[DamagedFile]) -> None:
    """A line for each of the first files in the log, and a count of the others."""
    for line in shortened_list(damaged):
        log.warning("%s", line)


def shortened_list(damaged: Iterable[DamagedFile]) -> list[str]:
    """What is left out because it is damaged, as sentences: the first few and how many more."""
    every = [f"left out: {damage}" for damage in damaged]
    more = [f"left out: {len(every) - SHOWN} more damaged files; all of them: fca status"]
    return every[:SHOWN] + (more if len(every) > SHOWN else [])


def _stamp(path: str | Path) -> tuple[int, int]:
    """Size and time of a file. Raises DamagedFile where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise DamagedFile(path, "is missing") from error
    return found.st_size, found.st_mtime_ns
