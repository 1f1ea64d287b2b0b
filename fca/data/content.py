"""What the files of a data set contain: a digest of each file's bytes, remembered as long as the file looks unchanged.

Digests are stored in the user's cache folder, one Parquet file per root, the index. A digest is used again while path,
size, time of modification, time of change and inode are as they were. A digest that was taken within CLOCK_NS of the
file's last change is not stored: the file may change again within one tick of the clock, and would look the same.
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
MANY_BYTES = 2 * 10**8  # from which on a progress bar is shown
FILES_PER_BATCH = 64  # files that a thread reads in one call
SWEEP = "FCA_SWEEP"  # environment variable: names the folder in which the processes of one sweep share their listings
ABANDONED_S = 30 * 24 * 3600  # age from which on such a folder belongs to a sweep that was killed

_DIGEST_SCHEMA = FILE_SCHEMA.append(pa.field("digest", pa.string()))
_FOLDER_SIZE = -1  # the size in a line that stands for a folder
log = logging.getLogger(__name__)


@dataclass
class Inventory:
    """The files under a root, and the digests of their bytes as far as they are known.

    known: one line per file of the listing: the columns of FILE_SCHEMA, and `digest`, which is missing if not known.
    began: when the files were listed, in nanoseconds; 0 if another process did it.
    """

    files: Files
    listing: Listing
    known: pa.Table
    began: int = 0

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """The digests of files' bytes, as path -> digest: of all `paths`, and of any other file whose digest is known.

        A digest is the xxh3 hash of the file's bytes (128 bits as 32 hex digits), or UNREADABLE. Digests of `paths`
        that are not known are computed now, by several threads, and stored for later runs. A progress bar shows MB/s if
        that takes long.

        The table `self.known` has one line per file; its column `digest` is null where the digest is not known.
        """
        is_requested = pc.is_in(self.known["path"], pa.array(list(paths), pa.string()))
        # `combine_chunks` makes one array of a column, as `replace_with_mask` needs them.
        is_missing = pc.and_(is_requested, pc.is_null(self.known["digest"])).combine_chunks()
        if pc.any(is_missing).as_py():
            new_digests = pa.array(_read_and_digest(self.files, self.known.filter(is_missing)), pa.string())
            old_digests = self.known["digest"].combine_chunks()
            digests = pc.replace_with_mask(old_digests, is_missing, new_digests)
            self.known = _with_digests(self.known, digests)
            self._remember()  # for later runs, and for the other processes of this sweep

        with_digest = self.known.filter(pc.is_valid(self.known["digest"]))
        return dict(zip(with_digest["path"].to_pylist(), with_digest["digest"].to_pylist(), strict=True))

    def _remember(self) -> None:
        """Store the known digests in the root's index, and share them with the processes of this sweep.

        The index leaves out unreadable files, which somebody may repair, and files that changed just before they were
        listed: they may change again within one tick of the file system's clock, and would then look the same.
        """
        share(self)
        # Any later change of these files gets another time, even with the coarsest clock of a file system.
        is_unchanged = pc.less(self.known["ctime_ns"], self.began - CLOCK_NS)
        is_readable = pc.not_equal(self.known["digest"], UNREADABLE)  # null, and so left out, where no digest is known
        lasting = self.known.filter(pc.and_(is_unchanged, is_readable))
        # An empty table does not replace an index. If there is none yet it is written, as `has_index` looks for the
        # file.
        if lasting.num_rows or not os.path.exists(_index_path(self.files)):  # noqa: PTH110  False also if unreadable
            _write(_index_path(self.files), _root_identity(self.files), lasting)


def inventory(files: Files) -> Inventory:
    """List the files under a root, with the digests of their bytes that are known from earlier runs.

    The processes of a sweep (`fca run -m`) list the root only once: the first one shares the result with the others.
    """
    shared = _shared_inventory(files)  # None outside of a sweep, and in its first process
    if shared:
        return shared

    # Digests of files that changed just before this time will not be stored: such a file may change again within one
    # tick of the file system's clock, and would then look the same.
    began = time.time_ns()
    listing = files.listing()
    earlier = _stored_table(_index_path(files), _root_identity(files))  # of an earlier run; empty if there was none
    files_with_digests = _with_known_digests(listing.files, earlier)  # a file that has changed has no digest yet
    listed = Inventory(files, listing, files_with_digests, began)
    share(listed)
    return listed


def has_index(root: str) -> bool:
    """Whether this user's cache has an index of this folder or archive, because it was listed before."""
    return os.path.exists(_index_path(open_root(root, "images")))  # noqa: PTH110  False also if unreadable


def _with_known_digests(files: pa.Table, index: pa.Table) -> pa.Table:
    """The listed files with the column `digest`, taken from the index; missing for files that are new or look changed.

    files: one line per file, with the columns of FILE_SCHEMA: path, size, times and inode.
    index: the files of an earlier listing, with the same columns and `digest`.
    """
    if index.select(FILE_SCHEMA.names).equals(files):
        return index  # nothing has changed: much faster than the comparison of single files

    # A file is the tuple of all its columns: if one of them has changed, it is not found in the index.
    indexed_files = zip(*(index[name].to_pylist() for name in FILE_SCHEMA.names), strict=True)
    digest_of_file = dict(zip(indexed_files, index["digest"].to_pylist(), strict=True))
    current_files = zip(*(files[name].to_pylist() for name in FILE_SCHEMA.names), strict=True)
    digests = [digest_of_file.get(file) for file in current_files]
    return _with_digests(files, pa.array(digests, pa.string()))


def _with_digests(files: pa.Table, digests: pa.Array) -> pa.Table:
    return pa.table([*(files[name] for name in FILE_SCHEMA.names), digests], _DIGEST_SCHEMA)


# Reading.


def _read_and_digest(files: Files, lines: pa.Table) -> list[str]:
    """Read files by several threads, and return the digests of their bytes in the same order.

    lines: one line per file, with the columns `path` and `size` (bytes).
    """
    paths = lines["path"].to_pylist()
    sizes = lines["size"].to_pylist()
    is_long = len(paths) >= MANY_IMAGES or sum(sizes) >= MANY_BYTES
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
    """The digest of one file's bytes, or UNREADABLE; an archive checks them against its own CRC as they are read."""
    try:
        return xxhash.xxh3_128_hexdigest(content_of(files, path)[0])
    except UnreadableImage:
        return UNREADABLE


# The files in the cache.


def user_cache() -> Path:
    """The user's cache folder: `$FCA_CACHE`, else `$XDG_CACHE_HOME/fca`, else `~/.cache/fca`."""
    xdg = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("FCA_CACHE") or f"{xdg}/fca").expanduser()


def _cache_folder() -> Path:
    return user_cache() / "content"


def _index_path(files: Files) -> Path:
    return _cache_folder() / f"{hashlib.sha256(_root_identity(files)).hexdigest()[:16]}.parquet"


def _root_identity(files: Files) -> bytes:
    """A text that identifies a root and the version (1) of its index; stored in the index, and hashed for its name."""
    return f"1 {Path(files.root).resolve()}".encode()


def _write(path: Path, identity: bytes, table: pa.Table) -> None:
    """Write a table with its identity, whole or not at all; a table is later read only with the same identity.

    identity: a text that states what the table is about, such as the path of the root whose files it lists.

    If nothing can be written, a warning is logged and the work goes on: the files will be read again next time.
    """
    buffer = io.BytesIO()
    # `_stored_table` accepts a table only if it has this identity, and as many lines as were written.
    table_with_identity = table.replace_schema_metadata({"fca": identity, "lines": str(table.num_rows)})
    pq.write_table(table_with_identity, buffer, write_page_checksum=True)
    try:
        remove_parts(path.parent)  # unfinished files of processes that were killed
        write_whole(path, lambda file: file.write(buffer.getbuffer()))
    except OSError as error:
        folder = _cache_folder()
        _warn_once(
            f"what files contain is not remembered: {folder} cannot be written ({error.strerror}); set FCA_CACHE"
        )


@cache
def _warn_once(text: str) -> None:
    """Log this warning once per process."""
    log.warning(text)


def _stored_table(path: Path, identity: bytes, columns: pa.Schema = _DIGEST_SCHEMA) -> pa.Table:
    """The table that `_write` left at `path`; an empty one if it is missing, damaged, or has another identity."""
    with suppress(OSError, ValueError, pa.ArrowException):
        table = pq.read_table(path, page_checksum_verification=True)
        expected_metadata = {b"fca": identity, b"lines": str(table.num_rows).encode()}
        if table.schema.equals(columns) and table.schema.metadata == expected_metadata:
            return table.replace_schema_metadata(None)
    return columns.empty_table()


def remembered_table(file: Path, meaning: str, columns: pa.Schema, make_table: Callable[[], pa.Table]) -> pa.Table:
    """A table about the content of one large file, such as a tar of many images: a stored one, or else a new one.

    The stored table is used as long as the file looks unchanged, that is while its path, size, times and inode stay the
    same. So the file need not be read through in every run.

    meaning:    a text with all that decides the table beside the file's bytes, such as settings.
    columns:    the columns of the table.
    make_table: reads the file and returns the table.
    """
    status = file.stat()
    began = time.time_ns()
    # The identity of the table, which changes with the state of the file; 1 is the version of what is stored.
    state = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    identity = f"1 {file.resolve()} {state} {meaning}".encode()
    # Where the table is stored. This name leaves out the state, so that a new table replaces the old one.
    key = hashlib.sha256(f"{file.resolve()} {meaning}".encode()).hexdigest()[:16]
    table_path = _cache_folder() / "inside" / f"{key}.parquet"

    table = _stored_table(table_path, identity, columns)  # empty if none is stored for this state of the file
    if table.num_rows:
        return table

    table = make_table()
    if status.st_ctime_ns < began - CLOCK_NS:  # else the file could change again and look the same
        _write(table_path, identity, table)
    return table


# What the processes of a sweep share.


@contextmanager
def shared_listings() -> Iterator[None]:
    """Within this context, processes that are started list each root only once: the first one shares what it found.

    The listings are stored in a folder of the cache, which is removed at the end. The name of this folder is in the
    environment variable SWEEP, which the processes inherit.
    """
    sweeps = _cache_folder() / "sweeps"
    outer_token = os.environ.get(SWEEP)  # of a context around this one
    token = uuid4().hex
    os.environ[SWEEP] = token
    try:
        yield
    finally:
        os.environ.pop(SWEEP)
        if outer_token:
            os.environ[SWEEP] = outer_token
        shutil.rmtree(sweeps / token, ignore_errors=True)
        # Remove folders of sweeps that were killed. An error is ignored: the work of this sweep is done, and where the
        # cache cannot be used, `_write` has warned.
        with suppress(OSError):
            for sweep in sweeps.glob("*"):
                if time.time() - sweep.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(sweep, ignore_errors=True)


def _shared_inventory(files: Files) -> Inventory | None:
    """The inventory of a root that another process of this sweep has shared; None if none has, and outside of a sweep.

    The inventory is read from a stored table. It has a line per file, with its digest if that is known, and a line per
    folder, which has the size -1.
    """
    if SWEEP not in os.environ:
        return None
    table = _stored_table(_shared_path(files), _root_identity(files))
    if not table.num_rows:
        return None

    is_folder = pc.equal(table["size"], _FOLDER_SIZE)
    folders = table.filter(is_folder)["path"].to_pylist()
    files_with_digests = table.filter(pc.invert(is_folder))
    listing = Listing(files_with_digests.select(FILE_SCHEMA.names), frozenset(folders))
    # `began`, the time of the listing, stays 0, because only the process that listed the files knows it. Digests are
    # stored for later runs only for files that last changed before `began`. With 0 that is no file, so digests that are
    # computed here are shared within the sweep, but not stored.
    return Inventory(files, listing, files_with_digests)


def share(file_inventory: Inventory) -> None:
    """Let the other processes of this sweep have an inventory; does nothing outside of a sweep.

    One table is stored. It has a line per file, with its digest if that is known, and a line per folder, which has the
    size -1. The inventory has the lines of files as the table `known`, the root with its files as `files`, and the
    listed paths as `listing`.
    """
    if SWEEP in os.environ:
        folder_lines = [{"path": path, "size": _FOLDER_SIZE} for path in file_inventory.listing.folders]
        folders = pa.Table.from_pylist(folder_lines, _DIGEST_SCHEMA)
        _write(
            _shared_path(file_inventory.files),
            _root_identity(file_inventory.files),
            pa.concat_tables([file_inventory.known, folders]),
        )


def _shared_path(files: Files) -> Path:
    """Where the processes of this sweep share the listing of a root."""
    return _index_path(files).parent / "sweeps" / os.environ[SWEEP] / _index_path(files).name
