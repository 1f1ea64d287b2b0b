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
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout
from jaxtyping import Int, UInt8

from fca.data.files import LONG, REDUCED, in_order, threads, watched
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
One = Callable[[int], UInt8[np.ndarray, "height width 3"]]
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
              another, and `.json` with its checksum and the rows that cannot be read. Those that are missing or damaged
              are made by this call; processes that need them at the same time share the work.
    workers:  threads that decode; 0 = one per core. (Pillow leaves Python's lock: processes are no faster.)
    limit_gb: size of the folder in 1e9 bytes. To make room, the least recently used shards go. What does not fit beside
              the shards in use is read and decoded at every access; 0 = nothing is made, what is there is used.
    rows:     the images that are needed; null = all. Others can be asked for, and may have to be decoded.
    """

    def one(row: int) -> UInt8[np.ndarray, "size size 3"]:
        return geometry(data.read(row))[0]

    image_bytes = 3 * geometry.size**2
    wanted = _wanted(data, geometry.key, image_bytes, rows)
    return Crops(size=geometry.size, **_stored(data, one, wanted, image_bytes, cache, workers, limit_gb))


def open_originals(
    data: ImageData, geometry: Geometry, cache: Path, workers: int = 0, limit_gb: float = 4.0, *, rows: Rows
) -> WithMargins:
    """The same, resized as for a test but not cropped: see `ResizeCrop.resized`. Large JPEGs are decoded at less scale.

    Raises FcaError for a geometry that is no ResizeCrop.
    """
    if not isinstance(geometry, ResizeCrop):
        raise FcaError("geometry", geometry, "a ResizeCrop", "set recipe.crop_from=input")

    def one(row: int) -> UInt8[np.ndarray, "height width 3"]:
        token = REDUCED.set(geometry.side)
        try:
            return geometry.resized(data.read(row))
        finally:
            REDUCED.reset(token)

    image_bytes = 4 * geometry.side**2  # of a photograph of 4:3
    wanted = _wanted(data, geometry.original_key, image_bytes, rows)
    return WithMargins(**_stored(data, one, wanted, image_bytes, cache, workers, limit_gb))


@dataclass(frozen=True)
class Stored:
    """Images in shards and, for all others, how they are read.

    shard: of every row of the data, -1 where the image is not stored; then it is read by `threads` threads.
    start, height, width: where it begins in its shard, in pixels, and its size.
    """

    one: One
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
        """Views of the shards, not to be written on; what is not stored is decoded now.

        Raises UnreadableImage, naming its path, if one of them cannot be read. The threads end with the call: nothing
        is left to a forked process.
        """
        fields = (self.shard, self.start, self.height, self.width)
        found: list[Any] = [
            self.maps[shard][start : start + height * width].reshape(height, width, 3) if shard >= 0 else None
            for shard, start, height, width in zip(*(values[rows].tolist() for values in fields), strict=True)
        ]
        if absent := [(place, row) for place, row in enumerate(rows.tolist()) if found[place] is None]:
            with ThreadPoolExecutor(min(self.threads, len(absent))) as pool:
                for (place, _), image in zip(absent, pool.map(self.one, (row for _, row in absent)), strict=True):
                    found[place] = image
        return found


@dataclass(frozen=True)
class Crops(Stored):
    """Images of one size."""

    size: int

    def __getitem__(self, rows: Rows) -> UInt8[np.ndarray, "rows size size 3"]:
        """A copy in memory."""
        none = np.empty((0, self.size, self.size, 3), np.uint8)
        return np.concatenate([none, *(image[None] for image in self.images(rows))])


@dataclass(frozen=True)
class WithMargins(Stored):
    """Images of any shape."""

    def __getitem__(self, rows: Rows) -> Packed:
        """A copy in memory."""
        images = self.images(rows)
        pixels = np.concatenate([np.empty((0, 3), np.uint8), *(image.reshape(-1, 3) for image in images)])
        height, width = (np.array([image.shape[side] for image in images], np.int64) for side in (0, 1))
        return Packed(pixels, height, width)


# Which shards there are, which of them are made, and which have to go.


def _wanted(data: ImageData, key: str, image_bytes: int, rows: Rows | None) -> Shards:
    """The shards that hold these rows."""
    split = np.unique(data.items["split"].to_numpy(str), return_inverse=True)[1]
    part = split * len(data.classes) + data.labels
    order = np.argsort(part, kind="stable")
    asked = np.full(len(order), rows is None)
    if rows is not None:
        asked[rows] = True
    cuts = _cuts(part[order], len(data.classes), max(1, SHARD_BYTES // image_bytes))
    return {
        f"{data.fingerprint}-{key}-{start}-{stop}": order[start:stop]
        for start, stop in pairwise(cuts)
        if asked[order[start:stop]].any()
    }


def _cuts(parts: Int[np.ndarray, " images"], classes: int, most: int) -> list[int]:
    """Where shards of at most so many images begin, and the end.

    parts: split * classes + class of every image, in order. Classes share a shard only where they are of one split;
    one that is too large for a shard is cut evenly.

    >>> _cuts(np.array([0, 0, 1, 1, 1, 2, 4, 5, 5, 5, 5, 5]), classes=4, most=4)
    [0, 2, 6, 7, 9, 12]
    """
    edges = [*(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
    cuts, open_split = [0], -1
    for begin, end in pairwise([0, *edges]):
        pieces, split = -(-(end - begin) // most), int(parts[begin]) // classes
        if cuts[-1] < begin and (pieces > 1 or split != open_split or end - cuts[-1] > most):
            cuts.append(begin)
        open_split = split if pieces == 1 else -1
        if pieces > 1:
            cuts += [begin + (end - begin) * piece // pieces for piece in range(1, pieces + 1)]
    return cuts if cuts[-1] == len(parts) else [*cuts, len(parts)]


def _stored(
    data: ImageData, one: One, wanted: Shards, image_bytes: int, cache: Path, workers: int, limit_gb: float
) -> dict[str, Any]:
    """The fields of Stored; missing shards are made, first those that no other process is making."""
    lease = _leased(cache, {name: len(rows) * image_bytes for name, rows in wanted.items()}, limit_gb * 1e9)
    kept = {name: rows for name, rows in wanted.items() if lease and name in lease.sizes}
    records = {name: record for name, rows in kept.items() if (record := _whole(cache / f"{name}.rgb", len(rows)))}
    for wait in (0, -1):
        lengths, doing = [len(rows) for name, rows in kept.items() if name not in records], f"decoding {data.name}"
        long = sum(lengths) >= LONG > max(lengths, default=0)  # else each shard has a bar
        for name in watched([name for name in kept if name not in records], doing, long=long):
            make_way(lock := cache / f".{name}.lock")
            with suppress(Timeout), FileLock(lock, timeout=wait):
                path = cache / f"{name}.rgb"
                records[name] = _whole(path, len(kept[name])) or _build(path, one, kept[name], workers, doing)
    fields, paths = np.full((4, len(data.items)), -1), list[str]()
    for name, record in records.items():
        height, width = np.array(record["height"], np.int64), np.array(record["width"], np.int64)
        start = np.cumsum(height * width) - height * width
        fields[:, kept[name]] = np.full(len(start), len(paths)), start, height, width
        fields[0, [int(row) for row in record["unreadable"]]] = -1
        paths.append(str((cache / f"{name}.rgb").resolve()))
    named = dict(zip(("shard", "start", "height", "width"), fields, strict=True))
    files = {"paths": tuple(paths), "maps": tuple(map(_mapped, paths))}
    return {"one": one, "threads": threads(workers), "lease": lease, **files, **named}


def _mapped(path: str) -> UInt8[np.ndarray, "_ 3"]:
    with pa.memory_map(path) as file:  # its mapping stays, without an open file
        return np.frombuffer(file.read_buffer(), np.uint8).reshape(-1, 3)


class Lease:
    """Shards that a process uses, and their sizes, in a file that is locked until the object or the process ends."""

    def __init__(self, cache: Path, sizes: dict[str, int]) -> None:
        self.sizes, path = sizes, cache / f".{uuid.uuid4().hex}.lease"
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(sizes))
        file.flush()
        weakref.finalize(self, _end, path, file, os.getpid()).atexit = False  # a dead process locks nothing


def _end(path: Path, file: Any, owner: int) -> None:
    if os.getpid() == owner:  # and not its forked child
        with suppress(OSError):
            path.unlink(missing_ok=True)
    file.close()


def _leased(cache: Path, wanted: dict[str, int], limit: float) -> Lease | None:
    """A lease of those shards that are there or may be made; others are removed where that makes enough room."""
    if not cache.is_dir():
        if not any(size <= limit for size in wanted.values()):
            return None
        cache.mkdir(parents=True, exist_ok=True)
    if not _may_be_written(cache):  # no lease can be taken of what others may remove
        log.log(
            logging.WARNING if limit else logging.INFO,
            "%s cannot be written to: images are decoded at every access",
            cache,
        )
        return None
    make_way(cache / ".lock")
    with FileLock(cache / ".lock"):
        there, in_use = _there(cache), _in_use(cache)
        granted = {name: wanted[name] for name in wanted if name in there or name in in_use}
        idle = sorted((used, name) for name, (_, used) in there.items() if name not in in_use and name not in granted)
        sizes = in_use | {name: size for name, (size, _) in there.items()}
        taken, movable = sum(sizes.values()), sum(sizes[name] for _, name in idle)
        for name, size in wanted.items():
            if name in granted or taken - movable + size > limit:
                continue
            while taken + size > limit:
                _, old = idle.pop(0)
                for name_of_old in (f".{old}.lock", f"{old}.rgb", f"{old}.json"):
                    (cache / name_of_old).unlink(missing_ok=True)
                taken, movable = taken - sizes[old], movable - sizes[old]
            granted[name], taken = size, taken + size
        for name in granted:
            with suppress(OSError):
                os.utime(cache / f"{name}.json")
        return Lease(cache, granted) if granted else None


def _may_be_written(cache: Path) -> bool:
    """Whether this user can lock the folder and put files into it, as in another user's store they cannot."""
    lock = cache / ".lock"
    return os.access(cache, os.R_OK | os.W_OK | os.X_OK) and (not lock.is_file() or os.access(lock, os.R_OK | os.W_OK))


def _there(cache: Path) -> dict[str, tuple[int, int]]:
    """Shards: bytes and time of the last use."""
    found: dict[str, tuple[int, int]] = {}
    for path in cache.iterdir():
        if path.suffix in (".rgb", ".json") and path.is_file():
            about, (size, used) = path.stat(), found.get(path.stem, (0, 0))
            found[path.stem] = size + about.st_size, max(used, about.st_mtime_ns)
    return found


def _in_use(cache: Path) -> dict[str, int]:
    """Shards that other processes, or this one, lease; what dead ones left, and what is no lease, is removed."""
    found: dict[str, int] = {}
    for path in cache.glob(".*.lease"):
        make_way(path)  # a pipe would be waited for
        with suppress(FileNotFoundError, DamagedFile), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found |= {name: size for name, size in read_object(path).items() if isinstance(size, int)}
            else:
                path.unlink()
    return found


# One shard.


def _whole(path: Path, images: int) -> dict[str, Any] | None:
    """The record of a shard if both files are whole; None where they are to be made.

    Pixels with the size and time in their record are trusted; with another time, their bytes are compared.
    """
    about = path.with_suffix(".json")
    try:
        kinds = {"height": list, "width": list, "size": int, "mtime_ns": int, "xxh3_128": str, "unreadable": dict}
        record = read_object(about, key=str, images=int, **kinds)
        if (record["key"], record["images"]) != (path.stem, images):
            raise DamagedFile(about, "is of other pixels")
        found = path.stat()
        if found.st_size != record["size"] or (
            found.st_mtime_ns != record["mtime_ns"] and checksum(path) != record["xxh3_128"]
        ):
            raise DamagedFile(path, "was altered")
        if found.st_mtime_ns != record["mtime_ns"]:
            with suppress(OSError):
                write_json(about, {**record, "mtime_ns": found.st_mtime_ns})
    except FileNotFoundError:
        return None
    except DamagedFile as damaged:
        log.warning("images are decoded again: %s", damaged)
        return None
    return record


def _build(path: Path, one: One, rows: Rows, workers: int, doing: str) -> dict[str, Any]:
    """Write the pixels under another name, their record, then rename: the name means that both are whole.

    Plain writes, not a memory map: a full disk is then an error and not a dead process.
    """
    unreadable, record, sides = dict[str, str](), dict[str, Any](), list[tuple[int, int]]()

    def pixels(at: int) -> UInt8[np.ndarray, "height width 3"]:
        try:
            return one(int(rows[at]))
        except UnreadableImage as error:
            unreadable[str(rows[at])] = str(error)
            return np.zeros((0, 0, 3), np.uint8)

    def write(file: BinaryIO) -> None:
        digest = xxhash.xxh3_128()
        for image in in_order(pixels, len(rows), workers, doing):
            sides.append(image.shape[:2])
            part = np.ascontiguousarray(image).data
            if image.size:
                digest.update(part)
                file.write(part)
        file.flush()  # so that its size and time are final
        stat, (height, width) = os.fstat(file.fileno()), zip(*sides, strict=True)
        record.update(key=path.stem, images=len(rows), size=stat.st_size, mtime_ns=stat.st_mtime_ns)
        record.update(xxh3_128=digest.hexdigest(), unreadable=unreadable, height=height, width=width)
        write_json(path.with_suffix(".json"), record)

    make_way(path, path.with_suffix(".json"))
    remove_parts(path.parent)
    write_whole(path, write)
    return record


def shifted(data: ImageData, shift: Shift, split: str) -> ImageData:
    """The images of `split` alone, in their order, each changed by `shift` before geometry; masks go with them.

    Its fingerprint names the changed pixels among cached ones and nothing else: the images are those of `data`.
    Raises FcaError if the shift has no such images.
    """
    meaning = hashlib.sha256(json.dumps(shift.identity(), sort_keys=True).encode()).hexdigest()[:12]
    names = {"name": f"{data.name}, {shift.label()}", "fingerprint": f"{data.fingerprint}-{split}-{meaning}"}
    masks = shift.masks(data) if isinstance(shift, DependsOnSize) else data.mask
    return at_rows(replace(data, mask=masks), data.rows(split), read=shift.reader(data), **names)


def geometry_under(shift: Shift, usual: Geometry) -> Geometry:
    """A network's geometry for images that a shift changed."""
    return shift.geometry(usual) if isinstance(shift, AtReference) else usual
