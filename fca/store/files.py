"""Files that are either whole or absent: written under another name, flushed, renamed; and how they are read.

What reads a file of the store expects that it may be missing, cut, altered or something else: it raises DamagedFile.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import socket
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
import yaml

from fca.types import FcaError

SIGNED = b"xxh3_128="  # before the checksum of a file inside it
PLACE = SIGNED + b"0" * 32
MACHINE_IN_NEED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ETIMEDOUT, errno.ESTALE)
"""Errors that pass, and are no fault of a file."""

_WRITER = re.compile(r"\.(\d+)@(.+)\.[0-9a-f]{12}\.part")
DEEPEST = 40  # lists and objects inside each other in a JSON or YAML text; ours have some ten
LONGEST_YAML, MOST_VALUES = 1_000_000, 100_000  # bytes and values of a configuration; ours have a few thousand
PLAIN_TAGS = [f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")]
_unfinished: set[Path] = set()  # files that this process is writing


class DamagedFile(Exception):
    """A file of the store that is missing, cut, altered, or something else than its name promises.

    >>> print(DamagedFile("outputs/runs/0123456789ab/row.json", "is empty"))
    outputs/runs/0123456789ab/row.json is empty
    """

    def __init__(self, path: str | Path, problem: str) -> None:
        super().__init__(str(path), problem)  # two texts: so it can be sent between processes

    @property
    def path(self) -> Path:
        """Which file."""
        return Path(self.args[0])

    @property
    def problem(self) -> str:
        """What is wrong with it, as the rest of a sentence."""
        return self.args[1]

    def __str__(self) -> str:
        return f"{self.args[0]} {self.args[1]}"


@contextmanager
def if_whole() -> Iterator[None]:
    """Leave the body where a file of the store that it reads is missing or damaged: what it is for does without."""
    with suppress(DamagedFile, OSError):
        yield


@contextmanager
def refused_if_damaged(key: str, value: object, allowed: str, step: str) -> Iterator[None]:
    """Raise FcaError where a file that the body reads is missing or damaged: the user named it, and learns the reason.

    allowed: what the file should be; the reason follows it.
    """
    try:
        yield
    except (DamagedFile, FileNotFoundError, IsADirectoryError) as error:
        raise FcaError(key, value, f"{allowed}: {error}", step) from error


def part_of(path: Path) -> Path:
    """A temporary name beside `path` that names its writer: a process of this host."""
    return path.with_name(f".{path.name}.{os.getpid()}@{socket.gethostname()}.{uuid.uuid4().hex[:12]}.part")


def remove_parts(folder: Path) -> None:
    """Remove what killed processes of this host left unfinished in a folder."""
    for part in abandoned_parts(folder):
        part.unlink(missing_ok=True)


def abandoned_parts(folder: Path) -> Iterator[Path]:
    """What killed processes of this host left unfinished in a folder."""
    for part in folder.glob(".*.part"):
        writer = _WRITER.search(part.name)
        if writer and writer[2] == socket.gethostname() and not psutil.pid_exists(int(writer[1])):
            yield part


def abandon_parts() -> None:
    """Remove what this process is writing; it is about to end."""
    for part in list(_unfinished):
        part.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk, rename it; on an error nothing stays.

    An OSError names the file: a full disk's own does not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    _unfinished.add(part)
    try:
        with naming(path), part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        _unfinished.discard(part)


def open_to_append(path: Path) -> BinaryIO:
    """A file of ours to add to, made if it is not there, which can also be read; never a file that a link leads to.

    A store may come from a stranger, and a link in it may lead to any file of the user's: it is removed. A file with
    several names (hard links, as of a backup) is copied first, so that the others keep their content.
    """
    if path.is_symlink():
        path.unlink()
    elif path.is_file() and path.stat().st_nlink > 1:
        content = path.read_bytes()
        write_whole(path, lambda file: file.write(content))

    # Should a link or a pipe have come in between: the link is refused, the pipe is not waited for.
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return os.fdopen(descriptor, "a+b")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of the body names this file: that of a full disk names none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def write_text(path: Path, text: str) -> None:
    """A UTF-8 text, whole or absent."""
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """JSON, whole or absent; NaN is refused."""
    write_text(path, json.dumps(value, allow_nan=False, indent=1))


def write_array(path: Path, array: np.ndarray) -> None:
    """A .npy file that loads without pickle, whole or absent."""
    if array.dtype.hasobject:
        raise ValueError(f"{path.name} holds Python objects, which would be pickled")
    write_whole(path, partial(_write_npy, np.asarray(array, order="C")))


def _write_npy(array: np.ndarray, file: BinaryIO) -> None:
    """As np.save, whose writing hides why a disk refuses."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    file.write(array.data)


def write_frame(path: Path, frame: pd.DataFrame, about: str = "") -> None:
    """A Parquet file, whole or absent, signed.    about: see `read_frame`."""
    buffer, table = io.BytesIO(), pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), b"fca": PLACE}), buffer)
    write_whole(path, lambda file: file.write(signed(buffer.getvalue(), about)))


def read_object(path: str | Path, **kinds: type) -> dict[str, Any]:
    """The object in a JSON file; it must have these keys with values of these types.

    Raises DamagedFile for anything else; FileNotFoundError where nothing is.
    """
    return parsed(path, content_of(path), **kinds)


def parsed(path: str | Path, content: bytes, **kinds: type) -> dict[str, Any]:
    """The same of a content that was read from this path."""
    if not content:
        raise DamagedFile(path, "is empty")
    try:
        value = json.loads(content, parse_constant=_refuse)
        if content.count(b"[") + content.count(b"{") > DEEPEST:  # of most rows this takes a fiftieth of their time
            _check_depth(value)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(path, f"is not JSON ({_one_line(error)})") from error
    if not isinstance(value, dict):
        raise DamagedFile(path, "is not a JSON object")
    for key, kind in kinds.items():
        if key not in value:
            raise DamagedFile(path, f"lacks {key}")
        if not isinstance(value[key], kind):
            raise DamagedFile(path, f"has {value[key]!s:.60} as {key}, not a {kind.__name__}")
    return value


def content_of(path: str | Path) -> bytes:
    """The bytes of a file. Raises DamagedFile if it cannot be read; FileNotFoundError where nothing is."""
    with _damage(path), open(path, "rb") as file:  # noqa: PTH123  half the time of Path, over thousands of rows
        return file.read()


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The keys of a YAML file. Raises DamagedFile for what is no configuration, see `check_yaml`.

    FileNotFoundError where nothing is.
    """
    content = content_of(path)
    check_yaml(path, content)
    try:
        found = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that there is not, digits without end
        raise DamagedFile(path, f"is no YAML ({error})") from error
    if not isinstance(found, dict):
        raise DamagedFile(path, "is no configuration")
    return found


def check_yaml(path: str | Path, content: bytes) -> None:
    """Raise DamagedFile for YAML that is none, that makes objects, or that makes more than a configuration has.

    It is looked at event by event: a few lines whose aliases repeat each other can make gigabytes.
    """
    if len(content) > LONGEST_YAML:
        raise DamagedFile(path, f"has {len(content):,} bytes, over {LONGEST_YAML:,}, as no configuration has")
    measure = _Measure()
    try:
        for event in yaml.parse(content, yaml.CSafeLoader):
            measure.add(event)
    except yaml.YAMLError as error:
        raise DamagedFile(path, f"is no YAML ({error})") from error
    except ValueError as error:
        raise DamagedFile(path, str(error)) from error


class _Measure:
    """How many values a YAML text makes, and how deep, with all that its aliases repeat; ValueError if too many."""

    def __init__(self) -> None:
        self.total = 0
        self.started: list[tuple[str | None, int]] = []  # collections that have not ended: anchor, the total before it
        self.heights = [0]  # of what these hold so far, and of the whole text: collections inside each other
        self.anchored: dict[str | None, tuple[int, int]] = {}  # anchor -> values in it, its height

    def add(self, event: yaml.Event) -> None:
        """Count what comes next in the text."""
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in PLAIN_TAGS:
            raise ValueError(f"has the tag {tag}, which may make any object")

        match event:
            case yaml.AliasEvent():
                if event.anchor not in self.anchored:
                    raise ValueError(f"has the alias *{event.anchor} inside of &{event.anchor}, or without it")
                self._hold(*self.anchored[event.anchor])
            case yaml.ScalarEvent():
                self.anchored[event.anchor] = 1, 0
                self._hold(1, 0)
            case yaml.CollectionStartEvent():
                self.started.append((event.anchor, self.total))
                self.heights.append(0)
                self._hold(1, 0)
            case yaml.CollectionEndEvent():
                anchor, before = self.started.pop()
                height = self.heights.pop() + 1
                self.anchored[anchor] = self.total - before, height
                self._hold(0, height)

    def _hold(self, values: int, height: int) -> None:
        """Count these values in the collections around them."""
        self.total += values
        self.heights[-1] = max(self.heights[-1], height)
        if self.total > MOST_VALUES:
            raise ValueError(f"has over {MOST_VALUES:,} values, with those that its aliases repeat")
        if len(self.started) + height > DEEPEST:
            raise ValueError(f"is nested more than {DEEPEST} deep")


@contextmanager
def opened(path: str | Path) -> Iterator[io.BufferedReader]:
    """A file to read. Raises DamagedFile if it cannot be read or is none; FileNotFoundError where nothing is."""
    with _damage(path), Path(path).open("rb") as file:
        yield file


def read_array(path: Path) -> np.ndarray:
    """A .npy file, memory-mapped and without pickle. Raises DamagedFile for anything else, and if it is missing."""
    try:
        with _damage(path):
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.nbytes + getattr(array, "offset", 0) != path.stat().st_size:
            raise DamagedFile(path, "is longer than its header allows")
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    except (OSError, DamagedFile):
        raise
    except Exception as error:  # whatever numpy's parser of headers raises
        raise DamagedFile(path, f"is no whole array ({_one_line(error)})") from error
    return array


def read_frame(path: Path, about: str = "") -> pd.DataFrame:
    """A frame that `write_frame` wrote with the same `about`: what it is, so that another one is not taken for it.

    Raises DamagedFile for anything else, and if it is missing.
    """
    try:
        content = content_of(path)
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    if not is_as_signed(content, about):
        raise DamagedFile(path, "is another table, or was altered")
    try:
        return pd.read_parquet(io.BytesIO(content))
    except Exception as error:  # whatever the parsers of Parquet, Arrow and pandas raise
        raise DamagedFile(path, f"is no whole table ({_one_line(error)})") from error


def checksum(path: str | Path) -> str:
    """xxh3_128 of a file's bytes, 32 hex digits. Raises DamagedFile if it cannot be read."""
    with opened(path) as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def remove(path: Path) -> None:
    """Remove what is there, also where it is a folder in the place of a file; nothing is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):  # asked first: a disk that may only be read refuses even to remove nothing
        path.unlink(missing_ok=True)


def make_way(*paths: Path) -> None:
    """Remove what stands in the place of these files and is none: a folder, a pipe, a link to nothing."""
    for path in paths:
        if not path.is_file():
            remove(path)


@contextmanager
def _damage(path: str | Path) -> Iterator[None]:
    """An error of reading a file, as DamagedFile; FileNotFoundError and passing need go on."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  a pipe or device may never end
            raise DamagedFile(path, "is no file")
        yield
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114
            raise DamagedFile(path, "is a link to nothing") from None
        raise
    except NotADirectoryError:
        if os.path.lexists(os.path.dirname(path)):  # noqa: PTH120
            raise DamagedFile(os.path.dirname(path), "is not a folder") from None  # noqa: PTH120
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except OSError as error:
        if error.errno in MACHINE_IN_NEED or error.errno is None:
            raise
        raise DamagedFile(path, f"cannot be read ({os.strerror(error.errno)})") from error


def signed(content: bytes, about: str = "") -> bytes:
    """A file's content with its own checksum where it has PLACE.    about: what it is, which is signed with it."""
    return content.replace(PLACE, SIGNED + xxhash.xxh3_128_hexdigest(content + about.encode()).encode())


def is_as_signed(content: bytes, about: str = "") -> bool:
    """Whether a content is as it was signed; False for one without a signature."""
    _, mark, end = content.rpartition(SIGNED)
    return bool(mark) and signed(content.replace(mark + end[:32], PLACE), about) == content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _check_depth(value: object) -> None:
    """Raise RecursionError for a value that is nested deeper than anything of ours: what walks through it may stop."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            one
            for outer in level
            if isinstance(outer, dict | list)
            for one in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise RecursionError(f"nested more than {DEEPEST} deep")


def _one_line(error: Exception) -> str:
    """The beginning of an error's text."""
    return f"{str(error).partition(chr(10))[0]:.80}"
