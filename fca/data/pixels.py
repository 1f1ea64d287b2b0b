"""Images at a model's size, decoded once into files that all runs share: evaluation crops, and originals to be cropped.

A file (a shard) holds consecutive classes of one split, so that a subset of the classes needs few of them. A process
maps the shards that it uses into its memory and leases them: other processes may remove only shards that nobody leases,
the least recently used first. (On one machine a mapping would outlive its file anyway; on a network file system it
would not.)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import uuid
import weakref
from collections.abc import Callable, Iterable
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
SHARD_BYTES = 128 * 10**6  # about the largest size of a shard with more than one image
DecodeRow = Callable[[int], UInt8[np.ndarray, "height width 3"]]
Rows = Int[np.ndarray, " rows"]
Shards = dict[str, Int[np.ndarray, " _"]]
"""The name of a shard -> the rows (positions in `data.items`) of all images in it."""


def open_pixels(
    data: ImageData,
    geometry: Geometry,
    cache: Path,
    workers: int = 0,
    limit_gb: float = 4.0,
    rows: Rows | None = None,
) -> Crops:
    """The images of a data set after `geometry` (resize and crop); read them by their positions in `data.items`.

    cache:    the folder of the shards. A shard is a file `<fingerprint>-<geometry key>-<first>-<last>.rgb` with the raw
              pixels of many images, one after another. The `.json` beside it holds its checksum and names the images
              that cannot be read. This call writes shards that are missing or damaged. Processes that need the same
              shards at the same time share the work.
    workers:  number of threads that decode; 0 = one per core. (Pillow releases Python's lock, so processes would not be
              faster.)
    limit_gb: the largest size of the folder, in 1e9 bytes. To make room, the shards that were not used for the longest
              time are removed. If there is no room even then, because other shards are in use, images are decoded at
              every access. 0 = existing shards are used, and no shard is written.
    rows:     positions of the images that are needed; None = all. Other images can be read, too, but they may have to
              be decoded at every access.
    """

    def decode_row(row: int) -> UInt8[np.ndarray, "size size 3"]:
        """The image at this position in `data.items`, after the geometry."""
        image, _no_mask = geometry(data.read(row))
        return image

    image_bytes = 3 * geometry.size**2
    shards = _shards_with(data, geometry.key, image_bytes, rows)
    return Crops(size=geometry.size, **_stored(data, decode_row, shards, image_bytes, cache, workers, limit_gb))


def open_originals(
    data: ImageData, geometry: Geometry, cache: Path, workers: int = 0, limit_gb: float = 4.0, *, rows: Rows
) -> WithMargins:
    """The images of a data set, resized as for evaluation but not cropped, so that they keep their margins.

    They are for a training, which crops them anew in every epoch. Large JPEGs are decoded at a smaller scale, which is
    faster. The images are stored in cache files, the shards, which all runs share.

    geometry: how images are resized and cropped.
    cache:    the folder of the shards.
    workers:  number of threads that decode; 0 = one per core.
    limit_gb: the largest size of the folder, in 1e9 bytes. Images that do not fit into it are decoded at every access.
    rows:     positions in `data.items` of the images that are needed.

    Raises FcaError if the geometry is not a ResizeCrop, the only one that can resize without cropping.
    """
    if not isinstance(geometry, ResizeCrop):
        raise FcaError("geometry", geometry, "a ResizeCrop", "set recipe.crop_from=input")

    def decode_row(row: int) -> UInt8[np.ndarray, "height width 3"]:
        """The resized image at this position in `data.items`."""
        token = REDUCED.set(geometry.side)  # a large JPEG is then decoded at a smaller scale
        try:
            return geometry.resized(data.read(row))
        finally:
            REDUCED.reset(token)

    image_bytes = 4 * geometry.side**2  # an estimate: a photograph of 4:3 with 3 channels has 3 * side * (4 / 3 side)
    shards = _shards_with(data, geometry.original_key, image_bytes, rows)
    return WithMargins(**_stored(data, decode_row, shards, image_bytes, cache, workers, limit_gb))


@dataclass(frozen=True)
class Stored:
    """Images in shards, and how all other images are read.

    decode_row: decodes the image at a row (a position in `data.items`), in one of `threads` threads.
    paths, maps: the file of each shard, and its pixels, mapped into memory.
    shard:      for every row, the position of its shard in `maps`; -1 if the image is not stored.
    start, height, width: for every row, where the image begins in its shard, in pixels, and its size.
    lease:      keeps the shards from being removed as long as this object lives.
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
        return {**vars(self), "maps": ()}  # a map would be copied; the other process makes its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the shards again in another process, which relies on the lease of the process that opened them."""
        vars(self).update(state, maps=tuple(map(_map_into_memory, state["paths"])))

    def __len__(self) -> int:
        return len(self.shard)

    def images(self, rows: Rows) -> list[UInt8[np.ndarray, "height width 3"]]:
        """The images at these rows (positions in `data.items`), as read-only views of the shards.

        Images that are not stored in a shard are decoded now, by several threads. Raises UnreadableImage, naming its
        path, if an image cannot be read.
        """
        images: list[Any] = [None] * len(rows)
        not_stored: list[int] = []  # positions in `rows`
        # Where each image is. Lists of plain integers are faster to loop over than arrays.
        places = zip(
            self.shard[rows].tolist(),
            self.start[rows].tolist(),
            self.height[rows].tolist(),
            self.width[rows].tolist(),
            strict=True,
        )
        for i, (shard, start, height, width) in enumerate(places):
            if shard < 0:  # -1: in no shard
                not_stored.append(i)
                continue
            pixels = self.maps[shard][start : start + height * width]  # pixels x 3; `start` counts pixels
            images[i] = pixels.reshape(height, width, 3)

        if not_stored:
            # The threads end with this call, so that a forked process inherits none.
            with ThreadPoolExecutor(min(self.threads, len(not_stored))) as pool:
                decoded = pool.map(self.decode_row, rows[not_stored].tolist())
                for i, image in zip(not_stored, decoded, strict=True):
                    images[i] = image
        return images


@dataclass(frozen=True)
class Crops(Stored):
    """Square images of one size."""

    size: int

    def __getitem__(self, rows: Rows) -> UInt8[np.ndarray, "rows size size 3"]:
        """A copy of these images in memory, which may be written to."""
        no_images = np.empty((0, self.size, self.size, 3), np.uint8)  # for no rows
        return np.concatenate([no_images, *(image[None] for image in self.images(rows))])


@dataclass(frozen=True)
class WithMargins(Stored):
    """Images that are not cropped yet, so their shapes differ."""

    def __getitem__(self, rows: Rows) -> Packed:
        """A copy of these images in memory: their pixels one after another, their heights and their widths."""
        images = self.images(rows)
        no_pixels = np.empty((0, 3), np.uint8)  # for no rows
        pixels = np.concatenate([no_pixels, *(image.reshape(-1, 3) for image in images)])
        heights = np.array([image.shape[0] for image in images], np.int64)
        widths = np.array([image.shape[1] for image in images], np.int64)
        return Packed(pixels, heights, widths)


# Which shards exist, which are written, and which are removed.


def _shards_with(data: ImageData, key: str, image_bytes: int, rows: Rows | None) -> Shards:
    """The shards that hold these rows (positions in `data.items`); all shards if `rows` is None.

    A shard is a cache file with the decoded images of consecutive classes. Which images share a shard depends on the
    whole data set alone, not on `rows`, so that all runs use the same shards.

    key:         identifies the geometry (resize and crop), and is part of a shard's name.
    image_bytes: the size of one decoded image (an estimate will do), which limits the number of images in a shard.
    """
    split_number = np.unique(data.items["split"].to_numpy(str), return_inverse=True)[1]  # of each image
    section = split_number * len(data.classes) + data.labels  # the images of one class in one split
    order = np.argsort(section, kind="stable")  # the images of one section follow each other
    is_needed = np.full(len(order), rows is None)
    if rows is not None:
        is_needed[rows] = True

    max_images = max(1, SHARD_BYTES // image_bytes)
    bounds = _shard_bounds(section[order], len(data.classes), max_images)
    shards: Shards = {}
    for start, stop in pairwise(bounds):
        rows_of_shard = order[start:stop]
        if is_needed[rows_of_shard].any():
            shards[f"{data.fingerprint}-{key}-{start}-{stop}"] = rows_of_shard
    return shards


def _shard_bounds(sections: Int[np.ndarray, " images"], n_classes: int, max_images: int) -> list[int]:
    """Divide images among shards (cache files) of at most `max_images` images, so that a class is in few shards.

    Returns the position of the first image of each shard, and after them the number of images. A shard may hold several
    classes of the same split. A class that is too large for one shard gets several shards of its own, of equal size.

    sections: split * n_classes + class of every image (both as numbers), in ascending order.

    >>> _shard_bounds(np.array([0, 0, 1, 1, 1, 2, 4, 5, 5, 5, 5, 5]), n_classes=4, max_images=4)
    [0, 2, 6, 7, 9, 12]
    """
    section_starts = (np.flatnonzero(np.diff(sections)) + 1).tolist()  # without the first, which is 0
    bounds = [0]
    open_split = -1  # the split of the last shard if that shard may take another class, otherwise -1
    for begin, end in pairwise([0, *section_starts, len(sections)]):
        n_shards = -(-(end - begin) // max_images)  # rounded up
        split = int(sections[begin]) // n_classes

        fits_open_shard = n_shards == 1 and split == open_split and end - bounds[-1] <= max_images
        # If the last bound is `begin`, a new shard begins here already: at the start, and after a large class.
        if bounds[-1] < begin and not fits_open_shard:
            bounds.append(begin)

        if n_shards == 1:
            open_split = split
        else:
            open_split = -1
            bounds += [begin + (end - begin) * i // n_shards for i in range(1, n_shards + 1)]

    if bounds[-1] != len(sections):
        bounds.append(len(sections))
    return bounds


def _stored(
    data: ImageData, decode_row: DecodeRow, shards: Shards, image_bytes: int, cache: Path, workers: int, limit_gb: float
) -> dict[str, Any]:
    """Lease `shards`, write those that are missing or damaged, and return the fields of the class Stored.

    A shard is a cache file of decoded images, and a lease keeps other processes from removing it. A shard that does not
    fit into the cache gets no lease and is not written: its images are decoded at every access.

    decode_row:  decodes the image at a row, a position in `data.items`.
    shards:      name -> rows of its images.
    image_bytes: size of one decoded image.
    cache:       the folder of the shards.
    limit_gb:    its largest size, in 1e9 bytes.
    workers:     number of threads that decode; 0 = one per core.
    """
    bytes_of_shard = {name: len(rows) * image_bytes for name, rows in shards.items()}
    lease = _lease_what_fits(cache, bytes_of_shard, limit_gb * 1e9)
    leased_shards = {name: rows for name, rows in shards.items() if lease and name in lease.sizes}

    # The record of a shard has the height and width of each of its images, and the rows that cannot be read.
    records = _read_or_write_shards(leased_shards, cache, decode_row, workers, f"decoding {data.name}")

    # The fields of Stored, one value per image of the data; -1 for images that are not stored.
    shard, start, height, width = np.full((4, len(data.items)), -1)
    paths: list[str] = []
    for name, record in records.items():
        rows = leased_shards[name]
        heights = np.array(record["height"], np.int64)
        widths = np.array(record["width"], np.int64)
        n_pixels = heights * widths  # 0 for an unreadable image, which has height and width 0
        shard[rows] = len(paths)
        start[rows] = np.cumsum(n_pixels) - n_pixels  # the number of pixels of all images before this one
        height[rows] = heights
        width[rows] = widths
        unreadable_rows = [int(row) for row in record["unreadable"]]
        shard[unreadable_rows] = -1  # decoded again when they are read, which then raises the error
        paths.append(str((cache / f"{name}.rgb").resolve()))

    return {
        "decode_row": decode_row,
        "threads": threads(workers),
        "paths": tuple(paths),
        "maps": tuple(map(_map_into_memory, paths)),
        "shard": shard,
        "start": start,
        "height": height,
        "width": width,
        "lease": lease,
    }


def _read_or_write_shards(
    shards: Shards, cache: Path, decode_row: DecodeRow, workers: int, progress_label: str
) -> dict[str, dict[str, Any]]:
    """Make sure that these shards (cache files of decoded images) exist, and return the record of each by its name.

    Shards that are missing or damaged in the cache are written now. Processes that need the same shards at the same
    time share the work: each writes the shards that no other process is writing.

    shards:         name -> rows of its images.
    progress_label: of the progress bar.
    """
    records = {}
    for name, rows in shards.items():
        record = _record_if_whole(cache / f"{name}.rgb", len(rows))
        if record:
            records[name] = record

    # First pass (timeout 0): skip shards that another process is writing. Second pass (-1): wait for these shards.
    for lock_timeout in (0, -1):
        missing = [name for name in shards if name not in records]
        lengths = [len(shards[name]) for name in missing]
        # Small shards that hold many images together have one progress bar, which `watched` shows if `long` is true.
        # A shard of MANY_IMAGES has a bar of its own, see `_write_shard`, so then there is no common bar.
        has_common_bar = sum(lengths) >= MANY_IMAGES > max(lengths, default=0)
        for name in watched(missing, progress_label, long=has_common_bar):
            lock = cache / f".{name}.lock"
            make_way(lock)  # removes a folder or pipe of this name
            with suppress(Timeout), FileLock(lock, timeout=lock_timeout):
                path = cache / f"{name}.rgb"
                rows = shards[name]
                record = _record_if_whole(path, len(rows))  # another process may have written it meanwhile
                records[name] = record or _write_shard(path, decode_row, rows, workers, progress_label)
    return records


def _map_into_memory(path: str) -> UInt8[np.ndarray, "_ 3"]:
    """All pixels of a shard, read from the disk only when they are used."""
    with pa.memory_map(path) as file:  # the mapping stays when the file is closed
        return np.frombuffer(file.read_buffer(), np.uint8).reshape(-1, 3)


class Lease:
    """Shows other processes which shards (cache files) this process uses, so that they do not remove them.

    It is a file with the names and sizes of the shards, locked until this object or its process ends.
    """

    def __init__(self, cache: Path, sizes: dict[str, int]) -> None:
        """Lease shards of a cache: write them into a new lease file, and lock it.

        The caller holds the lock of the cache: otherwise another process could remove the file before it is locked.

        sizes: name of each shard -> its bytes.
        """
        self.sizes = sizes
        path = cache / f".{uuid.uuid4().hex}.lease"
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(sizes))
        file.flush()
        # `_end_lease` runs when this object is deleted, but not at the end of the process: the lock then ends anyway,
        # and other processes remove the file. In a forked process, which it recognises by another process id,
        # `_end_lease` does not remove the file, because the parent may still lease the shards.
        finalizer = weakref.finalize(self, _end_lease, path, file, os.getpid())
        finalizer.atexit = False


def _end_lease(path: Path, file: Any, owner: int) -> None:
    """Remove and unlock a lease's file; a forked child, which is not its `owner` (a process id), only closes it."""
    if os.getpid() == owner:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    file.close()


def _lease_what_fits(cache: Path, sizes: dict[str, int], limit: float) -> Lease | None:
    """Lease the needed shards that exist, and those that can still be written within the limit of the cache.

    A shard is a cache file of decoded images; a lease keeps other processes from removing it. To make room, idle shards
    are removed. A shard is idle if no process leases it and this call does not need it.

    sizes: the needed shards: name -> bytes.
    limit: largest size of the cache, in bytes.

    Returns None if no shard is leased: there is no room, or the cache cannot be written to, which a line in the log
    states.
    """
    if not cache.is_dir():
        if not any(size <= limit for size in sizes.values()):
            return None  # nothing will be stored, so no folder is made
        cache.mkdir(parents=True, exist_ok=True)

    if not _may_be_written(cache):  # without a lease here, another process could remove a shard while it is read
        level = logging.WARNING if limit else logging.INFO  # with a limit of 0 nobody expects that images are stored
        log.log(level, "%s cannot be written to: images are decoded at every access", cache)
        return None

    make_way(cache / ".lock")
    with FileLock(cache / ".lock"):
        on_disk = _shards_on_disk(cache)
        in_use = _leased_bytes(cache)
        # A shard that is in use but not on the disk is being written by another process.
        granted = {name: size for name, size in sizes.items() if name in on_disk or name in in_use}  # needs no room

        idle_names = on_disk.keys() - in_use.keys() - granted.keys()
        idle = sorted((on_disk[name].last_use_ns, name) for name in idle_names)  # the least recently used first

        # Shards that are still being written count with their full size; shards on the disk with their real size.
        size_in_cache = in_use | {name: shard.size for name, shard in on_disk.items()}
        used_bytes = sum(size_in_cache.values())
        idle_bytes = sum(size_in_cache[name] for _, name in idle)
        for name, size in sizes.items():
            fits_without_idle = used_bytes - idle_bytes + size <= limit  # after the removal of all idle shards
            if name in granted or not fits_without_idle:
                continue

            while used_bytes + size > limit:  # the shard fits at the latest when no idle one is left
                _, oldest = idle.pop(0)
                for file_name in (f".{oldest}.lock", f"{oldest}.rgb", f"{oldest}.json"):
                    (cache / file_name).unlink(missing_ok=True)
                used_bytes -= size_in_cache[oldest]
                idle_bytes -= size_in_cache[oldest]
            granted[name] = size
            used_bytes += size

        for name in granted:  # the time of its .json marks when a shard was last used
            with suppress(OSError):  # the shard may not be written yet
                os.utime(cache / f"{name}.json")
        return Lease(cache, granted) if granted else None


def _may_be_written(cache: Path) -> bool:
    """Whether this user may put files into the folder and lock it, which is not so in another user's store."""
    lock = cache / ".lock"
    folder_is_writable = os.access(cache, os.R_OK | os.W_OK | os.X_OK)
    return folder_is_writable and (not lock.is_file() or os.access(lock, os.R_OK | os.W_OK))


class ShardOnDisk(NamedTuple):
    """The bytes of a shard's two files together, and the time of their last use."""

    size: int
    last_use_ns: int


def _shards_on_disk(cache: Path) -> dict[str, ShardOnDisk]:
    """The shards in a cache, by name, with the size of each and the time of its last use.

    A shard has two files, .rgb and .json. Their sizes are added, and the later one of their times counts.
    """
    shards: dict[str, ShardOnDisk] = {}
    for path in cache.iterdir():
        if path.suffix not in (".rgb", ".json") or not path.is_file():
            continue
        status = path.stat()
        other_file = shards.get(path.stem, ShardOnDisk(0, 0))  # zeros for the first file of a shard
        size = other_file.size + status.st_size
        shards[path.stem] = ShardOnDisk(size, max(other_file.last_use_ns, status.st_mtime_ns))
    return shards


def _leased_bytes(cache: Path) -> dict[str, int]:
    """The shards that running processes lease: name -> bytes. Leases of processes that have ended are removed.

    A lease is a file with the names and sizes of shards. Its process holds a lock on it as long as the process runs.
    """
    sizes: dict[str, int] = {}
    for path in cache.glob(".*.lease"):
        make_way(path)  # removes what is no file: opening a pipe would wait for ever
        with suppress(FileNotFoundError, DamagedFile), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # its process is running
                lease = read_object(path)
                # A damaged lease may hold anything: a value that cannot be a size is ignored.
                sizes.update({name: size for name, size in lease.items() if isinstance(size, int)})
            else:  # the lock was free, so its process has ended
                path.unlink()
    return sizes


# One shard.


def _record_if_whole(path: Path, n_images: int) -> dict[str, Any] | None:
    """The record of a shard (the content of its .json) if both files are whole; None if the shard must be written.

    path:     the shard's .rgb file.
    n_images: how many images it should hold.

    Pixels are trusted if size and time of their file are those in the record. If only the time differs, as after the
    cache was copied, their checksum is compared, and the new time is stored. A warning names a damaged shard.
    """
    record_path = path.with_suffix(".json")
    try:
        # `read_object` raises DamagedFile unless the JSON has these keys, with values of these types.
        kinds = {"height": list, "width": list, "size": int, "mtime_ns": int, "xxh3_128": str, "unreadable": dict}
        record = read_object(record_path, key=str, images=int, **kinds)
        if (record["key"], record["images"]) != (path.stem, n_images):
            raise DamagedFile(record_path, "is of other pixels")  # renamed, or another number of images

        status = path.stat()
        has_new_time = status.st_mtime_ns != record["mtime_ns"]
        if status.st_size != record["size"]:
            raise DamagedFile(path, "was altered")
        if has_new_time and checksum(path) != record["xxh3_128"]:
            raise DamagedFile(path, "was altered")
        if has_new_time:
            with suppress(OSError):  # a disk may be full; then the checksum is compared again next time
                write_json(record_path, {**record, "mtime_ns": status.st_mtime_ns})
    except FileNotFoundError:
        return None
    except DamagedFile as damaged:
        log.warning("images are decoded again: %s", damaged)
        return None
    return record


def _write_shard(path: Path, decode_row: DecodeRow, rows: Rows, workers: int, progress_label: str) -> dict[str, Any]:
    """Decode the images of a shard into the file `path`, store its record beside it, and return the record.

    rows: positions of the images in `data.items`, the arguments of `decode_row`.

    The order of steps makes sure that a file under the name `path` is whole and has its record: the pixels are first
    written under another name, then the record is written, and then the pixels are renamed. The pixels are plain
    writes, not a memory map, so that a full disk raises an error and does not kill the process.
    """
    unreadable: dict[str, str] = {}  # row -> why
    record: dict[str, Any] = {}

    def pixels_or_nothing(i: int) -> UInt8[np.ndarray, "height width 3"]:
        """Decode the image at position i of `rows`; an unreadable image has no pixels, and a note in `unreadable`."""
        try:
            return decode_row(int(rows[i]))
        except UnreadableImage as error:
            unreadable[str(rows[i])] = str(error)
            return np.zeros((0, 0, 3), np.uint8)

    def write_pixels_and_record(file: BinaryIO) -> None:
        """Write the images one after another into an open file, and then the record into its own file."""
        images = parallel_map(pixels_or_nothing, len(rows), workers, progress_label)
        written = _write_images(file, images)  # images are decoded meanwhile, which fills `unreadable`
        record.update(key=path.stem, images=len(rows), unreadable=unreadable, **written)
        write_json(path.with_suffix(".json"), record)

    make_way(path, path.with_suffix(".json"))  # removes a folder or pipe of this name
    remove_parts(path.parent)  # unfinished files of processes that were killed
    write_whole(path, write_pixels_and_record)  # renames at the end
    return record


def _write_images(file: BinaryIO, images: Iterable[UInt8[np.ndarray, "height width 3"]]) -> dict[str, Any]:
    """Write the pixels of images (at least one) into an open file, and return what a shard's record states of them.

    That is `size`, `mtime_ns` and `xxh3_128` (size, time and checksum of the file), and `height` and `width`, each with
    one value per image. An image that cannot be read has no pixels: its height and width are 0.
    """
    shapes: list[tuple[int, int]] = []
    digest = xxhash.xxh3_128()
    for image in images:
        shapes.append(image.shape[:2])
        if image.size:
            buffer = np.ascontiguousarray(image).data
            digest.update(buffer)
            file.write(buffer)
    file.flush()  # so that its size and time are final

    status = os.fstat(file.fileno())
    heights, widths = zip(*shapes, strict=True)
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "xxh3_128": digest.hexdigest(),
        "height": heights,
        "width": widths,
    }


def shifted(data: ImageData, shift: Shift, split: str) -> ImageData:
    """The images of one split, in their order, each changed by `shift` before a network's geometry is applied.

    Some shifts, such as corruptions, resize and crop large images; they do the same to the masks. The fingerprint of
    the result serves only to distinguish its pixels from others in the cache; results of runs state the fingerprint of
    `data`.

    Raises FcaError if the shift reads published copies of the images, as of ImageNet-C, and some of them are missing.
    """
    shift_identity = json.dumps(shift.identity(), sort_keys=True)
    shift_digest = hashlib.sha256(shift_identity.encode()).hexdigest()[:12]
    # A shift of the type DependsOnSize treats large images differently from small ones: it may resize and crop them.
    masks = shift.masks(data) if isinstance(shift, DependsOnSize) else data.mask
    return at_rows(
        replace(data, mask=masks),
        data.rows(split),
        read=shift.reader(data),
        name=f"{data.name}, {shift.label()}",
        fingerprint=f"{data.fingerprint}-{split}-{shift_digest}",
    )


def geometry_under(shift: Shift, geometry: Geometry) -> Geometry:
    """The geometry (resize and crop) that a network applies to images changed by `shift`: usually its own.

    A shift that crops images to a reference size adapts it, so that the same margin is not cropped twice.
    """
    return shift.geometry(geometry) if isinstance(shift, AtReference) else geometry
