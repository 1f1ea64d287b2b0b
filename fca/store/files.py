"""Files that are either complete or absent: written under a temporary name, flushed, renamed; and how they are read.

A file of the store may be missing, cut, altered or something else; the functions that read one then raise DamagedFile.
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

SIGNED = b"xxh3_128="  # marks the checksum of a file inside the file
PLACE = SIGNED + b"0" * 32  # stands for the checksum while it is computed
MACHINE_IN_NEED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ETIMEDOUT, errno.ESTALE)
"""Errors of the machine that pass, and do not mean that a file is damaged."""

_WRITER = re.compile(r"\.(\d+)@(.+)\.[0-9a-f]{12}\.part")  # process id and host in the names of `part_of`
DEEPEST = 40  # levels of nesting in a JSON or YAML text; ours have about ten
LONGEST_YAML = 1_000_000  # bytes of a configuration; ours have a few thousand
MOST_VALUES = 100_000  # values of a configuration
PLAIN_TAGS = [f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")]
_unfinished: set[Path] = set()  # files that this process is writing


class DamagedFile(Exception):
    """A file of the store that is missing, cut, altered, or not what its name promises.

    >>> print(DamagedFile("outputs/runs/0123456789ab/row.json", "is empty"))
    outputs/runs/0123456789ab/row.json is empty
    """

    def __init__(self, path: str | Path, problem: str) -> None:
        super().__init__(str(path), problem)  # two strings, so that it can be pickled between processes

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
    """`with if_whole():` ends its block silently if a file that the block reads is missing, damaged or unreadable.

    It is for files without which the caller can go on. The code behind the block runs in any case.
    """
    with suppress(DamagedFile, OSError):
        yield


@contextmanager
def refused_if_damaged(key: str, value: object, allowed: str, step: str) -> Iterator[None]:
    """Turn the error of a missing or damaged file in the `with` block into an FcaError about what the user typed.

    key, value: what the user typed, such as an option and the path after it.
    allowed:    what the file should be; the error adds what is wrong with it.
    step:       what to do next.
    """
    try:
        yield
    except (DamagedFile, FileNotFoundError, IsADirectoryError) as error:
        raise FcaError(key, value, f"{allowed}: {error}", step) from error


def part_of(path: Path) -> Path:
    """A new temporary path beside `path`, for a file that will be renamed to `path` when it is complete.

    Its name has the process and its host, by which leftovers of killed processes are found (see `abandoned_parts`).
    """
    return path.with_name(f".{path.name}.{os.getpid()}@{socket.gethostname()}.{uuid.uuid4().hex[:12]}.part")


def remove_parts(folder: Path) -> None:
    """Remove from a folder the unfinished files that killed processes of this host left there."""
    for unfinished_path in abandoned_parts(folder):
        unfinished_path.unlink(missing_ok=True)


def abandoned_parts(folder: Path) -> Iterator[Path]:
    """The temporary files in a folder whose writers are processes of this host that no longer exist.

    A file of the store is written under a temporary name, .NAME.PID@HOST.RANDOM.part, and renamed when it is complete.
    Files of other hosts are not among them, because their processes cannot be checked from here.
    """
    for unfinished_path in folder.glob(".*.part"):
        writer = _WRITER.search(unfinished_path.name)  # process id and host
        if writer is None:  # fca did not write the file
            continue

        pid = int(writer[1])
        host = writer[2]
        if host == socket.gethostname() and not psutil.pid_exists(pid):
            yield unfinished_path


def abandon_parts() -> None:
    """Remove the unfinished files of this process, which is about to end."""
    for unfinished_path in list(_unfinished):
        unfinished_path.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file so that it is either complete or absent, even if the process is killed.

    `write` fills a temporary file beside `path`, which is flushed to the disk and then renamed to `path`. If anything
    fails, the temporary file is removed and an earlier file at `path` stays.

    write: is given the open temporary file.
    Raises OSError that names `path`, also for a full disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = part_of(path)
    _unfinished.add(temporary_path)  # files that this process removes if it is ended while it writes
    try:
        with naming(path), temporary_path.open("wb") as file:  # an OSError names `path`, not the temporary file
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary_path.replace(path)
    finally:
        with suppress(OSError):  # an error here would hide that of writing
            temporary_path.unlink(missing_ok=True)  # it is no longer there after a rename
        _unfinished.discard(temporary_path)


def open_to_append(path: Path) -> BinaryIO:
    """Open a file to append and read, and create it if it does not exist; never a file behind a symbolic link.

    A store may come from a stranger, and a link in it may point to any file of the user, so a symbolic link is removed.
    A file with several hard links (as in a backup) is replaced by a copy, so that the other names keep their content.
    Raises OSError for a path that is no regular file.
    """
    if path.is_symlink():
        path.unlink()
    elif path.is_file() and path.stat().st_nlink > 1:
        content = path.read_bytes()
        write_whole(path, lambda file: file.write(content))

    # if a link or a pipe was put there meanwhile, the link is refused and the pipe does not block
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return os.fdopen(descriptor, "a+b")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give every OSError of the `with` block the path of this file; the error of a full disk would name no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # raised by a library with a text of its own
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text, complete or not at all."""
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Write JSON, complete or not at all. Raises ValueError for NaN."""
    write_text(path, json.dumps(value, allow_nan=False, indent=1))


def write_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file, complete or not at all.

    Raises ValueError for an array of Python objects, which could only be loaded by unpickling them.
    """
    if array.dtype.hasobject:
        raise ValueError(f"{path.name} holds Python objects, which would be pickled")
    write_whole(path, partial(_write_npy, np.asarray(array, order="C")))


def _write_npy(array: np.ndarray, file: BinaryIO) -> None:
    """Write an array in the .npy format, as np.save does; np.save itself would hide why the disk refused to write."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    file.write(array.data)


def write_frame(path: Path, frame: pd.DataFrame, about: str = "") -> None:
    """Write a frame as a Parquet file with a checksum of its own content, complete or not at all.

    about: identity of the frame, such as a fingerprint, which goes into the checksum. `read_frame` needs the same, so
           that it refuses the file of another frame.
    """
    table = pa.Table.from_pandas(frame, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), b"fca": PLACE}  # `signed` puts the checksum in this place
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), buffer)
    write_whole(path, lambda file: file.write(signed(buffer.getvalue(), about)))


def read_object(path: str | Path, **kinds: type) -> dict[str, Any]:
    """The object in a JSON file, as a dictionary.

    kinds: key -> type of its value, for keys that the object must have; it may have others.
    Raises DamagedFile for a file without such an object, FileNotFoundError if there is no file.
    """
    return parsed(path, content_of(path), **kinds)


def parsed(path: str | Path, content: bytes, **kinds: type) -> dict[str, Any]:
    """The object in JSON content that was read from a file, as a dictionary.

    path:  the file, for the error.
    kinds: key -> type of its value, for keys that the object must have.
    Raises DamagedFile for content that is no JSON object, or is nested too deeply, and for a missing or wrong key.
    """
    if not content:
        raise DamagedFile(path, "is empty")

    try:
        value = json.loads(content, parse_constant=_refuse_constant)
        n_brackets = content.count(b"[") + content.count(b"{")
        if n_brackets > DEEPEST:  # a quick check first: with fewer brackets the value cannot be too deep
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
    """The bytes of a file. Raises DamagedFile if it cannot be read, FileNotFoundError if there is none."""
    with _reading_errors_as_damage(path), open(path, "rb") as file:  # noqa: PTH123  half the time of Path, over thousands of rows
        return file.read()


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The configuration in a YAML file, as a dictionary.

    Raises DamagedFile for invalid YAML, YAML that makes objects or is enormous, and YAML that is no dictionary;
    FileNotFoundError if there is no file.
    """
    content = content_of(path)
    check_yaml(path, content)
    try:
        configuration = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date, too many digits
        raise DamagedFile(path, f"is no YAML ({error})") from error
    if not isinstance(configuration, dict):
        raise DamagedFile(path, "is no configuration")
    return configuration


def check_yaml(path: str | Path, content: bytes) -> None:
    """Raise DamagedFile for invalid YAML, YAML that makes objects, or YAML with more values than a configuration has.

    The text is checked event by event before it is loaded, because loading a few lines whose aliases repeat each other
    can take gigabytes.
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
    """Counts the values in a YAML text and the levels of their nesting, as if every alias were written out.

    An alias (*a) repeats the value that an anchor (&a) marked. Aliases inside aliases multiply, so that a text of a few
    lines can stand for gigabytes. A collection is a list or mapping; its height is the number of levels in it.
    """

    def __init__(self) -> None:
        self.total = 0
        self.open_collections: list[tuple[str | None, int]] = []  # anchor or None, and `total` where it began
        self.heights = [0]  # height seen so far: of the whole text, then of each open collection
        self.size_of_anchor: dict[
            str | None, tuple[int, int]
        ] = {}  # anchor -> number of values, height; None: no anchor

    def add(self, event: yaml.Event) -> None:
        """Count the values of the next event of the parser, and the levels of their nesting.

        An alias counts as all values that it repeats. The height of a collection (list or mapping) is the number of
        levels in it. `heights` has the height so far of the whole text and of each collection that is still open. If
        the last of them is lower than the height that `_count` is given, it becomes that height. `size_of_anchor` has
        the number of values and the height of what each anchor marks.

        Raises ValueError for a tag that could make any object, an alias without a finished anchor, and a text that has
        too many values or is nested too deeply.
        """
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in PLAIN_TAGS:
            raise ValueError(f"has the tag {tag}, which may make any object")

        match event:
            case yaml.AliasEvent():  # counts as the value that it repeats
                if event.anchor not in self.size_of_anchor:
                    raise ValueError(f"has the alias *{event.anchor} inside of &{event.anchor}, or without it")
                values, height = self.size_of_anchor[event.anchor]
                self._count(values, height)
            case yaml.ScalarEvent():  # a plain value has height 0; the anchor is None if it has none
                self.size_of_anchor[event.anchor] = (1, 0)
                self._count(1, 0)
            case yaml.CollectionStartEvent():  # counts as a value itself
                self.open_collections.append((event.anchor, self.total))
                self.heights.append(0)  # nothing is in it yet
                self._count(1, 0)
            case yaml.CollectionEndEvent():
                anchor, total_at_start = self.open_collections.pop()
                height = self.heights.pop() + 1  # its contents and the collection itself
                self.size_of_anchor[anchor] = (self.total - total_at_start, height)
                # for the collection around it, only the height: the values in it were counted one by one
                self._count(0, height)

    def _count(self, values: int, height: int) -> None:
        """Add values to the total, and note the levels of nesting in them for the innermost open collection.

        values: their number.
        height: levels of nesting in them; 0 for plain values.
        Raises ValueError if the text has too many values or is nested too deeply.
        """
        self.total += values
        self.heights[-1] = max(self.heights[-1], height)
        if self.total > MOST_VALUES:
            raise ValueError(f"has over {MOST_VALUES:,} values, with those that its aliases repeat")
        if len(self.open_collections) + height > DEEPEST:
            raise ValueError(f"is nested more than {DEEPEST} deep")


@contextmanager
def opened(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open a file to read its bytes.

    Raises DamagedFile for one that cannot be read or is no regular file, FileNotFoundError if there is none.
    """
    with _reading_errors_as_damage(path), Path(path).open("rb") as file:
        yield file


def read_array(path: Path) -> np.ndarray:
    """The array in a .npy file, memory-mapped and read without pickle.

    Raises DamagedFile for a file that is missing, is no .npy file, or does not have the length that its header states.
    """
    try:
        with _reading_errors_as_damage(path):
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        header_size = getattr(array, "offset", 0)  # where the values begin in the file
        if array.nbytes + header_size != path.stat().st_size:
            raise DamagedFile(path, "is longer than its header allows")
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    except (OSError, DamagedFile):  # these state what is wrong, or are no fault of the file
        raise
    except Exception as error:  # whatever numpy's parser of headers raises
        raise DamagedFile(path, f"is no whole array ({_one_line(error)})") from error
    return array


def read_frame(path: Path, about: str = "") -> pd.DataFrame:
    """The frame in a Parquet file that `write_frame` wrote.

    about: identity of the frame, such as a fingerprint. It is part of the checksum in the file, so that the file of
           another frame cannot take its place.
    Raises DamagedFile for a file that is missing, was altered, or was written with another `about`.
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
    """Remove a file or link, or a folder with all that it contains; nothing happens if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):  # checked first: a read-only disk refuses even to remove a missing file
        path.unlink(missing_ok=True)


def make_way(*paths: Path) -> None:
    """Remove what stands in the place of each of these files and is no file: a folder, pipe or broken link."""
    for path in paths:
        if not path.is_file():
            remove(path)


@contextmanager
def _reading_errors_as_damage(path: str | Path) -> Iterator[None]:
    """Turn errors of the `with` block, which reads this file, into DamagedFile.

    For a missing file FileNotFoundError is raised. Errors in MACHINE_IN_NEED (too many open files, no memory, ...) stay
    as they are, because they are no fault of the file.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  to read a pipe or device may never end
            raise DamagedFile(path, "is no file")
        yield
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114
            raise DamagedFile(path, "is a link to nothing") from None
        raise
    except NotADirectoryError:  # a file stands in the place of a folder on the path
        if os.path.lexists(os.path.dirname(path)):  # noqa: PTH120
            raise DamagedFile(os.path.dirname(path), "is not a folder") from None  # noqa: PTH120
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except OSError as error:
        if error.errno in MACHINE_IN_NEED or error.errno is None:  # None: not an error of the system
            raise
        raise DamagedFile(path, f"cannot be read ({os.strerror(error.errno)})") from error


def signed(content: bytes, about: str = "") -> bytes:
    """The content of a file with its checksum in place of PLACE, which the content must contain.

    about: identity of the content; the checksum covers it, too.
    """
    digest = xxhash.xxh3_128_hexdigest(content + about.encode())
    return content.replace(PLACE, SIGNED + digest.encode())


def is_as_signed(content: bytes, about: str = "") -> bool:
    """Whether the content of a file matches the checksum in it; False for a content without a checksum.

    about: as it was given to `signed`.
    """
    _, mark, text_after_mark = content.rpartition(SIGNED)
    if not mark:
        return False

    digest = text_after_mark[:32]  # hex digits
    return signed(content.replace(mark + digest, PLACE), about) == content


def _refuse_constant(constant: str) -> None:
    """Raise ValueError for NaN and Infinity, which Python's parser accepts but JSON does not have."""
    raise ValueError(f"{constant} is no number")


def _check_depth(value: object) -> None:
    """Raise RecursionError for a JSON value with more than DEEPEST levels of nesting, on which recursive code may fail.

    The levels are visited one after another, without recursion.
    """
    level_values = [value]  # all values at the present level of nesting
    for _ in range(DEEPEST):
        inner_values: list[object] = []
        for outer_value in level_values:
            if isinstance(outer_value, dict):
                inner_values += outer_value.values()
            elif isinstance(outer_value, list):
                inner_values += outer_value
        if not inner_values:
            return
        level_values = inner_values
    raise RecursionError(f"nested more than {DEEPEST} deep")


def _one_line(error: Exception) -> str:
    """The beginning of the first line of an error's text."""
    return f"{str(error).partition(chr(10))[0]:.80}"
