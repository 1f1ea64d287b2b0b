"""What the files of a data set contain: a digest of the bytes of each, remembered while all that a look shows stays.

Digests are stored in the user's cache folder, one Parquet file a root. A digest is used again while path, size, time of
modification, time of change and inode are as they were. One that was taken within CLOCK_NS of the file's last change is
not kept: the file may change again within one tick of the clock, and would look the same.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from rich import get_console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from fca.data.files import FILE_SCHEMA, MANY_IMAGES, READER_THREADS, Files, Listing, content_of, open_root
from fca.identity import UNREADABLE
from fca.store.files import remove_parts, write_whole
from fca.types import UnreadableImage

CLOCK_NS = 2 * 10**9  # the coarsest clock of a file system in use (FAT)
LARGE = 2 * 10**8  # bytes from which on a progress bar is shown
FILES_PER_BATCH = 64  # files that a thread reads in one go
SWEEP = "FCA_SWEEP"  # environment variable: in which listing the processes of one sweep share what they found
ABANDONED_S = 30 * 24 * 3600  # age from which on such a listing belongs to a sweep that was killed

_KNOWN = FILE_SCHEMA.append(pa.field("digest", pa.string()))
_FOLDER = -1  # size of a line that stands for a folder
log = logging.getLogger(__name__)


@dataclass
class Inventory:
    """The files under a root, and their digests as far as they are known.

    known: a line for every file of the listing: the columns of FILE_SCHEMA and `digest`, missing where it is not known.
    began: when the files were looked at, nanoseconds; 0 where another process did.
    """

    files: Files
    listing: Listing
    known: pa.Table
    began: int = 0

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """Path -> xxh3 of the file's bytes (128 bits, 32 hex digits), or UNREADABLE, for at least these files.

        Missing digests are computed now, by several threads; a progress bar shows MB/s where that takes long.
        """
        is_requested = pc.is_in(self.known["path"], pa.array(list(paths), pa.string()))
        is_missing = pc.and_(is_requested, pc.is_null(self.known["digest"])).combine_chunks()
        if pc.any(is_missing).as_py():
            new_digests = pa.array(_read(self.files, self.known.filter(is_missing)), pa.string())
            old_digests = self.known["digest"].combine_chunks()
            digests = pc.replace_with_mask(old_digests, is_missing, new_digests)
            self.known = _with_digests(self.known, digests)
            self._keep()

        with_digest = self.known.filter(pc.is_valid(self.known["digest"]))
        return dict(zip(with_digest["path"].to_pylist(), with_digest["digest"].to_pylist(), strict=True))

    def _keep(self) -> None:
        """Remember the digests, for later and for the processes of this sweep."""
        share(self)
        is_unchanged = pc.less(self.known["ctime_ns"], self.began - CLOCK_NS)
        is_readable = pc.not_equal(self.known["digest"], UNREADABLE)  # null, and so left out, where it is not known
        lasting = self.known.filter(pc.and_(is_unchanged, is_readable))
        if lasting.num_rows or not os.path.exists(_index(self.files)):  # noqa: PTH110  False also where it may not be read
            _write(_index(self.files), _about(self.files), lasting)


def inventory(files: Files) -> Inventory:
    """The files under a root: within a sweep as its first process listed them, else as they are now."""
    shared = _shared(files)
    if shared:
        return shared

    began = time.time_ns()
    listing = files.listing()
    index = _stored(_index(files), _about(files))
    listed = Inventory(files, listing, _recognised(listing.files, index), began)
    share(listed)
    return listed


def has_index(root: str) -> bool:
    """Whether this user's cache has an index of this folder or archive: it was listed before."""
    return os.path.exists(_index(open_root(root, "images")))  # noqa: PTH110  False also where it may not be read


def _recognised(files: pa.Table, index: pa.Table) -> pa.Table:
    """The files with the digests that the index has for them as they are now."""
    if index.select(FILE_SCHEMA.names).equals(files):
        return index

    indexed_files = zip(*(index[name].to_pylist() for name in FILE_SCHEMA.names), strict=True)
    digest_of_file = dict(zip(indexed_files, index["digest"].to_pylist(), strict=True))
    current_files = zip(*(files[name].to_pylist() for name in FILE_SCHEMA.names), strict=True)
    digests = [digest_of_file.get(file) for file in current_files]
    return _with_digests(files, pa.array(digests, pa.string()))


def _with_digests(files: pa.Table, digests: pa.Array) -> pa.Table:
    return pa.table([*(files[name] for name in FILE_SCHEMA.names), digests], _KNOWN)


# Reading.


def _read(files: Files, new: pa.Table) -> list[str]:
    """The digests of these files, in their order."""
    paths = new["path"].to_pylist()
    sizes = new["size"].to_pylist()
    is_long = len(paths) >= MANY_IMAGES or sum(sizes) >= LARGE
    shows_bar = is_long and get_console().is_terminal
    columns = TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()

    digests: list[str] = []
    with ThreadPoolExecutor(READER_THREADS) as pool, Progress(*columns, transient=True, disable=not shows_bar) as bar:
        task = bar.add_task(files.root, total=sum(sizes))
        starts = range(0, len(paths), FILES_PER_BATCH)
        batches = [paths[start : start + FILES_PER_BATCH] for start in starts]
        for start, batch_digests in zip(starts, pool.map(partial(_digests, files), batches), strict=True):
            digests += batch_digests
            bar.advance(task, sum(sizes[start : start + FILES_PER_BATCH]))
    return digests


def _digests(files: Files, paths: Sequence[str]) -> list[str]:
    return [_digest(files, path) for path in paths]


def _digest(files: Files, path: str) -> str:
    """Of one file's bytes; an archive checks them against its own CRC as they are read."""
    try:
        return xxhash.xxh3_128_hexdigest(content_of(files, path)[0])
    except UnreadableImage:
        return UNREADABLE


# The files in the cache.


def user_cache() -> Path:
    """The user's cache folder: `$FCA_CACHE`, else `$XDG_CACHE_HOME/fca`, else `~/.cache/fca`."""
    xdg = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("FCA_CACHE") or f"{xdg}/fca").expanduser()


def _place() -> Path:
    return user_cache() / "content"


def _index(files: Files) -> Path:
    return _place() / f"{hashlib.sha256(_about(files)).hexdigest()[:16]}.parquet"


def _about(files: Files) -> bytes:
    return f"1 {Path(files.root).resolve()}".encode()


def _write(path: Path, about: bytes, table: pa.Table) -> None:
    """The table, whole or not at all; where nothing can be written work goes on, and files are read again next time."""
    buffer = io.BytesIO()
    marked = table.replace_schema_metadata({"fca": about, "lines": str(table.num_rows)})
    pq.write_table(marked, buffer, write_page_checksum=True)
    try:
        remove_parts(path.parent)
        write_whole(path, lambda file: file.write(buffer.getbuffer()))
    except OSError as error:
        _warn(f"what files contain is not remembered: {_place()} cannot be written ({error.strerror}); set FCA_CACHE")


@cache
def _warn(text: str) -> None:
    """Once a process."""
    log.warning(text)


def _stored(path: Path, about: bytes, columns: pa.Schema = _KNOWN) -> pa.Table:
    """What `_write` left there; an empty table where that is missing, damaged or about something else."""
    with suppress(OSError, ValueError, pa.ArrowException):
        table = pq.read_table(path, page_checksum_verification=True)
        marks = {b"fca": about, b"lines": str(table.num_rows).encode()}
        if table.schema.equals(columns) and table.schema.metadata == marks:
            return table.replace_schema_metadata(None)
    return columns.empty_table()


def remembered_table(file: Path, meaning: str, columns: pa.Schema, look: Callable[[], pa.Table]) -> pa.Table:
    """What `look` finds in a file that holds many images; remembered while path, size, times and inode stay.

    meaning: of `look`: all that decides its table beside the file's bytes.
    """
    status = file.stat()
    began = time.time_ns()
    state = f"1 {file.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {meaning}"
    key = hashlib.sha256(f"{file.resolve()} {meaning}".encode()).hexdigest()[:16]
    path = _place() / "inside" / f"{key}.parquet"

    table = _stored(path, state.encode(), columns)
    if table.num_rows:
        return table

    table = look()
    if status.st_ctime_ns < began - CLOCK_NS:
        _write(path, state.encode(), table)
    return table


# What the processes of a sweep share.


@contextmanager
def shared_listings() -> Iterator[None]:
    """Within it each root is listed once: processes that are started take over what this process found."""
    sweeps = _place() / "sweeps"
    outer_token = os.environ.get(SWEEP)
    token = uuid4().hex
    os.environ[SWEEP] = token
    try:
        yield
    finally:
        os.environ.pop(SWEEP)
        if outer_token:
            os.environ[SWEEP] = outer_token
        shutil.rmtree(sweeps / token, ignore_errors=True)
        with suppress(OSError):  # of a cache that may not be read: the work is done, and `_write` has warned
            for sweep in sweeps.glob("*"):
                if time.time() - sweep.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(sweep, ignore_errors=True)


def _shared(files: Files) -> Inventory | None:
    """What a process of this sweep found under a root, if there is a sweep and a process has looked."""
    if SWEEP not in os.environ:
        return None
    table = _stored(_of_sweep(files), _about(files))
    if not table.num_rows:
        return None

    is_folder = pc.equal(table["size"], _FOLDER)
    folders = table.filter(is_folder)["path"].to_pylist()
    files_with_digests = table.filter(pc.invert(is_folder))
    listing = Listing(files_with_digests.select(FILE_SCHEMA.names), frozenset(folders))
    return Inventory(files, listing, files_with_digests)


def share(found: Inventory) -> None:
    """Let the other processes of this sweep have it; nothing outside of a sweep."""
    if SWEEP in os.environ:
        folders = pa.Table.from_pylist([{"path": path, "size": _FOLDER} for path in found.listing.folders], _KNOWN)
        _write(_of_sweep(found.files), _about(found.files), pa.concat_tables([found.known, folders]))


def _of_sweep(files: Files) -> Path:
    return _index(files).parent / "sweeps" / os.environ[SWEEP] / _index(files).name
