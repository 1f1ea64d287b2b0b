"""Images at a model's size, decoded once into files that all runs share: evaluation crops, and originals to be cropped.

A file (a shard) holds consecutive classes of one split, so that a subset of the classes needs few of them. Shards that
a process uses are mapped into its memory and leased: others may remove only what nobody leases, the least recently used
first. (On one machine a mapping would outlive its file anyway; on a network file system it would not.)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout
from jaxtyping import Int, UInt8

from fca.data.files import MANY_IMAGES, REDUCED, parallel_map, threads, watched
from fca.data.splits import at_rows
from fca.geometry import ResizeCrop
from fca.store.files import DamagedFile, checksum, make_way, read_object, remove_parts, write_json, write_whole
from fca.types import (
    AtReference,
    DependsOnSize,
    FcaError,
    Geometry,
    ImageData,
    Packed,
    Shift,
    UnreadableImage,
)

log = logging.getLogger(__name__)
SHARD_BYTES = 128 * 10**6
DecodeRow = Callable[[int], UInt8[np.ndarray, "height width 3"]]
Rows = Int[np.ndarray, " rows"]
Shards = dict[str, Int[np.ndarray, " _"]]
"""Name -> all rows of a shard."""


def open_pixels(
    data: ImageData,
    geometry: Geometry,
    cache: Path,
    workers: int = 0,
    limit_gb: float = 4.0,
    rows: Rows | None = None,
) -> Crops:
    """Images of a data set after `geometry`, by their positions in `data.items`, in any order.

    cache:    folder of the shards: `<fingerprint>-<geometry key>-<first>-<last>.rgb`, raw pixels one image after
              another, and `.json` with its checksum and the rows that cannot be read. Missing or damaged shards
              are written by this call; processes that need them at the same time share the work.
    workers:  threads that decode; 0 = one per core. (Pillow leaves Python's lock: processes are no faster.)
    limit_gb: size of the folder in 1e9 bytes. To make room, the least recently used shards are removed. What does not
              fit beside the shards in use is read and decoded at every access; 0 = existing shards are used, none is
              written.
    rows:     the images that are needed; null = all. Others can be asked for, and may have to be decoded.
    """

    def decode_row(row: int) -> UInt8[np.ndarray, "size size 3"]:
        return geometry(data.read(row))[0]

    image_bytes = 3 * geometry.size**2
    shards = _shards_with(data, geometry.key, image_bytes, rows)
    return Crops(size=geometry.size, **_stored(data, decode_row, shards, image_bytes, cache, workers, limit_gb))


def open_originals(
    data: ImageData, geometry: Geometry, cache: Path, workers: int = 0, limit_gb: float = 4.0, *, rows: Rows
) -> WithMargins:
    """The same, resized as for a test but not cropped: see `ResizeCrop.resized`. Large JPEGs are decoded at less scale.

    Raises FcaError for a geometry that is no ResizeCrop.
    """
    if not isinstance(geometry, ResizeCrop):
        raise FcaError("geometry", geometry, "a ResizeCrop", "set recipe.crop_from=input")

    def decode_row(row: int) -> UInt8[np.ndarray, "height width 3"]:
        token = REDUCED.set(geometry.side)
        try:
            return geometry.resized(data.read(row))
        finally:
            REDUCED.reset(token)

    image_bytes = 4 * geometry.side**2  # of a photograph of 4:3
    shards = _shards_with(data, geometry.original_key, image_bytes, rows)
    return WithMargins(**_stored(data, decode_row, shards, image_bytes, cache, workers, limit_gb))


@dataclass(frozen=True)
class Stored:
    """Images in shards and, for all others, how they are read.

    shard: of every row of the data, -1 where the image is not stored; then it is read by `threads` threads.
    start, height, width: where it begins in its shard, in pixels, and its size.
    """

    decode_row: DecodeRow
    threads: int
    paths: tuple[str, ...]
    maps: tuple[UInt8[np.ndarray, "_ 3"], ...] = field(repr=False)
    shard: Int[np.ndarray, " images"]
    start: Int[np.ndarray, " images"]
    height: Int[np.ndarray, " images"]
    width: Int[np.ndarray, " images"]
    lease: Lease | None = field(repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "maps": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process, under the lease of the one that opened them."""
        vars(self).update(state, maps=tuple(map(_mapped, state["paths"])))

    def __len__(self) -> int:
        return len(self.shard)

    def images(self, rows: Rows) -> list[UInt8[np.ndarray, "height width 3"]]:
        """Read-only views of the shards; images that are not stored are decoded now.

        Raises UnreadableImage, naming its path, if an image cannot be read. The threads end with the call, so that a
        forked process inherits none.
        """
        images: list[Any] = [None] * len(rows)
        missing: list[int] = []  # positions in `rows`
        fields = (self.shard[rows], self.start[rows], self.height[rows], self.width[rows])
        for i, (shard, start, height, width) in enumerate(zip(*(values.tolist() for values in fields), strict=True)):
            if shard < 0:
                missing.append(i)
                continue
            pixels = self.maps[shard][start : start + height * width]
            images[i] = pixels.reshape(height, width, 3)

        if missing:
            with ThreadPoolExecutor(min(self.threads, len(missing))) as pool:
                decoded = pool.map(self.decode_row, rows[missing].tolist())
                for i, image in zip(missing, decoded, strict=True):
                    images[i] = image
        return images


@dataclass(frozen=True)
class Crops(Stored):
    """Images of one size."""

    size: int

    def __getitem__(self, rows: Rows) -> UInt8[np.ndarray, "rows size size 3"]:
        """A copy in memory."""
        no_images = np.empty((0, self.size, self.size, 3), np.uint8)
        return np.concatenate([no_images, *(image[None] for image in self.images(rows))])


@dataclass(frozen=True)
class WithMargins(Stored):
    """Images of any shape."""

    def __getitem__(self, rows: Rows) -> Packed:
        """A copy in memory."""
        images = self.images(rows)
        no_pixels = np.empty((0, 3), np.uint8)
        pixels = np.concatenate([no_pixels, *(image.reshape(-1, 3) for image in images)])
        heights = np.array([image.shape[0] for image in images], np.int64)
        widths = np.array([image.shape[1] for image in images], np.int64)
        return Packed(pixels, heights, widths)


# Which shards exist, which are written, and which are removed.


def _shards_with(data: ImageData, key: str, image_bytes: int, rows: Rows | None) -> Shards:
    """The shards that hold these rows; all shards if `rows` is None."""
    split = np.unique(data.items["split"].to_numpy(str), return_inverse=True)[1]
    section = split * len(data.classes) + data.labels  # a class in a split
    order = np.argsort(section, kind="stable")
    is_needed = np.full(len(order), rows is None)
    if rows is not None:
        is_needed[rows] = True

    max_images = max(1, SHARD_BYTES // image_bytes)
    cuts = _cuts(section[order], len(data.classes), max_images)
    shards: Shards = {}
    for start, stop in pairwise(cuts):
        rows_of_shard = order[start:stop]
        if is_needed[rows_of_shard].any():
            shards[f"{data.fingerprint}-{key}-{start}-{stop}"] = rows_of_shard
    return shards


def _cuts(sections: Int[np.ndarray, " images"], n_classes: int, max_images: int) -> list[int]:
    """Where shards of at most `max_images` begin, and the end.

    sections: split * n_classes + class of every image, in order. Classes share a shard only within a split; a class
    that is too large for a shard is cut evenly.

    >>> _cuts(np.array([0, 0, 1, 1, 1, 2, 4, 5, 5, 5, 5, 5]), n_classes=4, max_images=4)
    [0, 2, 6, 7, 9, 12]
    """
    inner_bounds = (np.flatnonzero(np.diff(sections)) + 1).tolist()
    cuts = [0]
    open_split = -1  # the split of the shard that may take another class; -1: none may
    for begin, end in pairwise([0, *inner_bounds, len(sections)]):
        n_pieces = -(-(end - begin) // max_images)
        split = int(sections[begin]) // n_classes

        fits_open_shard = n_pieces == 1 and split == open_split and end - cuts[-1] <= max_images
        if cuts[-1] < begin and not fits_open_shard:
            cuts.append(begin)

        if n_pieces == 1:
            open_split = split
        else:
            open_split = -1
            cuts += [begin + (end - begin) * piece // n_pieces for piece in range(1, n_pieces + 1)]

    if cuts[-1] != len(sections):
        cuts.append(len(sections))
    return cuts


def _stored(
    data: ImageData, decode_row: DecodeRow, shards: Shards, image_bytes: int, cache: Path, workers: int, limit_gb: float
) -> dict[str, Any]:
    """The fields of Stored; missing shards are written, first those that no other process is writing."""
    bytes_of_shard = {name: len(rows) * image_bytes for name, rows in shards.items()}
    lease = _lease_of(cache, bytes_of_shard, limit_gb * 1e9)
    leased_shards = {name: rows for name, rows in shards.items() if lease and name in lease.sizes}

    records = {}
    for name, rows in leased_shards.items():
        record = _record_if_whole(cache / f"{name}.rgb", len(rows))
        if record:
            records[name] = record

    progress_label = f"decoding {data.name}"
    for lock_timeout in (0, -1):  # pass by what another process is writing, then wait for it
        missing = [name for name in leased_shards if name not in records]
        lengths = [len(leased_shards[name]) for name in missing]
        long = sum(lengths) >= MANY_IMAGES > max(lengths, default=0)  # else each shard has a bar
        for name in watched(missing, progress_label, long=long):
            lock = cache / f".{name}.lock"
            make_way(lock)
            with suppress(Timeout), FileLock(lock, timeout=lock_timeout):
                path = cache / f"{name}.rgb"
                rows = leased_shards[name]
                records[name] = _record_if_whole(path, len(rows)) or _build(
                    path, decode_row, rows, workers, progress_label
                )

    shard, start, height, width = np.full((4, len(data.items)), -1)
    paths: list[str] = []
    for name, record in records.items():
        rows = leased_shards[name]
        heights = np.array(record["height"], np.int64)
        widths = np.array(record["width"], np.int64)
        shard[rows] = len(paths)
        start[rows] = np.cumsum(heights * widths) - heights * widths
        height[rows] = heights
        width[rows] = widths
        shard[[int(row) for row in record["unreadable"]]] = -1
        paths.append(str((cache / f"{name}.rgb").resolve()))

    return {
        "decode_row": decode_row,
        "threads": threads(workers),
        "paths": tuple(paths),
        "maps": tuple(map(_mapped, paths)),
        "shard": shard,
        "start": start,
        "height": height,
        "width": width,
        "lease": lease,
    }


def _mapped(path: str) -> UInt8[np.ndarray, "_ 3"]:
    with pa.memory_map(path) as file:  # its mapping stays, without an open file
        return np.frombuffer(file.read_buffer(), np.uint8).reshape(-1, 3)


class Lease:
    """Shards that a process uses, and their sizes, in a file that is locked until the object or the process ends."""

    def __init__(self, cache: Path, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        path = cache / f".{uuid.uuid4().hex}.lease"
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(sizes))
        file.flush()
        weakref.finalize(self, _end_lease, path, file, os.getpid()).atexit = False  # a dead process locks nothing


def _end_lease(path: Path, file: Any, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        with suppress(OSError):
            path.unlink(missing_ok=True)
    file.close()


def _lease_of(cache: Path, sizes: dict[str, int], limit: float) -> Lease | None:
    """A lease of those shards that exist or fit into the cache, after removing idle ones where that makes enough room.

    sizes: bytes of each shard that is needed.    limit: of the cache, in bytes.
    """
    if not cache.is_dir():
        if not any(size <= limit for size in sizes.values()):
            return None
        cache.mkdir(parents=True, exist_ok=True)

    if not _may_be_written(cache):  # without a lease here, another process could remove a shard while it is read
        level = logging.WARNING if limit else logging.INFO
        log.log(level, "%s cannot be written to: images are decoded at every access", cache)
        return None

    make_way(cache / ".lock")
    with FileLock(cache / ".lock"):
        on_disk = _shards_on_disk(cache)
        in_use = _leased_bytes(cache)
        # a shard in use that is not on the disk is being written by another process
        granted = {name: size for name, size in sizes.items() if name in on_disk or name in in_use}

        idle_names = on_disk.keys() - in_use.keys() - granted.keys()
        idle = sorted((on_disk[name].last_use_ns, name) for name in idle_names)  # the least recently used first

        size_in_cache = in_use | {name: shard.size for name, shard in on_disk.items()}
        used_bytes = sum(size_in_cache.values())
        idle_bytes = sum(size_in_cache[name] for _, name in idle)
        for name, size in sizes.items():
            could_fit = used_bytes - idle_bytes + size <= limit
            if name in granted or not could_fit:
                continue

            while used_bytes + size > limit:  # there are enough idle shards, as it could fit
                _, oldest = idle.pop(0)
                for file_name in (f".{oldest}.lock", f"{oldest}.rgb", f"{oldest}.json"):
                    (cache / file_name).unlink(missing_ok=True)
                used_bytes -= size_in_cache[oldest]
                idle_bytes -= size_in_cache[oldest]
            granted[name] = size
            used_bytes += size

        for name in granted:  # the time of the last use
            with suppress(OSError):
                os.utime(cache / f"{name}.json")
        return Lease(cache, granted) if granted else None


def _may_be_written(cache: Path) -> bool:
    """Whether this user can lock the folder and put files into it, as in another user's store they cannot."""
    lock = cache / ".lock"
    return os.access(cache, os.R_OK | os.W_OK | os.X_OK) and (not lock.is_file() or os.access(lock, os.R_OK | os.W_OK))


class ShardOnDisk(NamedTuple):
    """Bytes of a shard's files, and the time of their last use."""

    size: int
    last_use_ns: int


def _shards_on_disk(cache: Path) -> dict[str, ShardOnDisk]:
    """The shards in a cache, by name."""
    shards: dict[str, ShardOnDisk] = {}
    for path in cache.iterdir():
        if path.suffix not in (".rgb", ".json") or not path.is_file():
            continue
        status = path.stat()
        known = shards.get(path.stem, ShardOnDisk(0, 0))
        shards[path.stem] = ShardOnDisk(known.size + status.st_size, max(known.last_use_ns, status.st_mtime_ns))
    return shards


def _leased_bytes(cache: Path) -> dict[str, int]:
    """Bytes of the shards that running processes lease, by shard. Leases of processes that have ended are removed.

    A process holds a lock on its lease as long as it runs.
    """
    sizes: dict[str, int] = {}
    for path in cache.glob(".*.lease"):
        make_way(path)  # removes what is no file: opening a pipe would wait for ever
        with suppress(FileNotFoundError, DamagedFile), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # its process is running
                lease = read_object(path)
                sizes.update({name: size for name, size in lease.items() if isinstance(size, int)})
            else:  # the lock was free, so its process has ended
                path.unlink()
    return sizes


# One shard.


def _record_if_whole(path: Path, n_images: int) -> dict[str, Any] | None:
    """The record of a shard if both files are whole; None if the shard must be written.

    Pixels with the size and time in their record are trusted; with another time, their checksum is compared.
    """
    record_path = path.with_suffix(".json")
    try:
        kinds = {"height": list, "width": list, "size": int, "mtime_ns": int, "xxh3_128": str, "unreadable": dict}
        record = read_object(record_path, key=str, images=int, **kinds)
        if (record["key"], record["images"]) != (path.stem, n_images):
            raise DamagedFile(record_path, "is of other pixels")

        status = path.stat()
        has_new_time = status.st_mtime_ns != record["mtime_ns"]
        if status.st_size != record["size"]:
            raise DamagedFile(path, "was altered")
        if has_new_time and checksum(path) != record["xxh3_128"]:
            raise DamagedFile(path, "was altered")
        if has_new_time:
            with suppress(OSError):
                write_json(record_path, {**record, "mtime_ns": status.st_mtime_ns})
    except FileNotFoundError:
        return None
    except DamagedFile as damaged:
        log.warning("images are decoded again: %s", damaged)
        return None
    return record


def _build(path: Path, decode_row: DecodeRow, rows: Rows, workers: int, progress_label: str) -> dict[str, Any]:
    """Write the pixels under another name, then their record, then rename: the name means that both are whole.

    Plain writes, not a memory map: a full disk then raises an error and does not kill the process.
    """
    unreadable: dict[str, str] = {}  # row -> why
    shapes: list[tuple[int, int]] = []
    record: dict[str, Any] = {}

    def pixels(i: int) -> UInt8[np.ndarray, "height width 3"]:
        try:
            return decode_row(int(rows[i]))
        except UnreadableImage as error:
            unreadable[str(rows[i])] = str(error)
            return np.zeros((0, 0, 3), np.uint8)

    def write(file: BinaryIO) -> None:
        digest = xxhash.xxh3_128()
        for image in parallel_map(pixels, len(rows), workers, progress_label):
            shapes.append(image.shape[:2])
            if image.size:
                buffer = np.ascontiguousarray(image).data
                digest.update(buffer)
                file.write(buffer)
        file.flush()  # so that its size and time are final

        status = os.fstat(file.fileno())
        heights, widths = zip(*shapes, strict=True)
        record.update(
            key=path.stem,
            images=len(rows),
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            xxh3_128=digest.hexdigest(),
            unreadable=unreadable,
            height=heights,
            width=widths,
        )
        write_json(path.with_suffix(".json"), record)

    make_way(path, path.with_suffix(".json"))
    remove_parts(path.parent)
    write_whole(path, write)
    return record


def shifted(data: ImageData, shift: Shift, split: str) -> ImageData:
    """The images of `split` alone, in their order, each changed by `shift` before geometry; masks go with them.

    The fingerprint identifies the changed pixels among cached ones and nothing else: the images are those of `data`.
    Raises FcaError if the shift has no such images.
    """
    shift_digest = hashlib.sha256(json.dumps(shift.identity(), sort_keys=True).encode()).hexdigest()[:12]
    masks = shift.masks(data) if isinstance(shift, DependsOnSize) else data.mask
    return at_rows(
        replace(data, mask=masks),
        data.rows(split),
        read=shift.reader(data),
        name=f"{data.name}, {shift.label()}",
        fingerprint=f"{data.fingerprint}-{split}-{shift_digest}",
    )


def geometry_under(shift: Shift, geometry: Geometry) -> Geometry:
    """A network's geometry for images that a shift changed."""
    return shift.geometry(geometry) if isinstance(shift, AtReference) else geometry
