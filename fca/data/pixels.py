"""Images at a model's input size: decoded once into a memory-mapped file that all runs share, or read on demand."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash
from filelock import FileLock
from jaxtyping import Int, UInt8

from fca.data.files import in_order, threads
from fca.data.splits import at_rows
from fca.store.files import DamagedFile, checksum, make_way, read_object, remove_parts, write_json, write_whole
from fca.types import Geometry, ImageData, Pixels, Shift, UnreadableImage

log = logging.getLogger(__name__)
One = Callable[[int], UInt8[np.ndarray, "size size 3"]]


def open_pixels(data: ImageData, geometry: Geometry, cache: Path, workers: int = 0, limit_gb: float = 4.0) -> Pixels:
    """All images of a data set after `geometry`, ready to be drawn in any order.

    cache:    folder of `<fingerprint>-<geometry key>.npy`, and `.json` with its checksum and the rows that cannot be
              read, which this call writes if they are not there or not whole; processes that need it at the same time
              wait while one of them writes it.
    workers:  threads that decode; 0 = one per core.
    limit_gb: a set whose pixels take more (in 1e9 bytes) is not cached but read and decoded at every access.
    """

    def one(row: int) -> UInt8[np.ndarray, "size size 3"]:
        return geometry(data.read(row))[0]

    shape = (len(data.items), geometry.size, geometry.size, 3)
    if math.prod(shape) > limit_gb * 1e9:
        return Streamed(one, shape, threads(workers))
    path = cache / f"{data.fingerprint}-{geometry.key}.npy"
    unreadable = _whole(path, shape)
    if unreadable is None:
        cache.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f"{path.name}.lock")
        make_way(lock)
        with FileLock(lock):
            unreadable = _whole(path, shape)
            if unreadable is None:
                unreadable = _build(path, one, shape, workers, f"decoding {data.name}")
    return Cached(np.load(path, mmap_mode="r", allow_pickle=False), one, frozenset(map(int, unreadable)))


@dataclass(frozen=True)
class Cached:
    """Pixels from the memory map; those that could not be read are tried again, so a repaired file is used at once."""

    pixels: UInt8[np.ndarray, "images size size 3"]
    one: One
    unreadable: frozenset[int]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, rows: Int[np.ndarray, " rows"]) -> UInt8[np.ndarray, "rows size size 3"]:
        """A copy in memory."""
        chosen: np.ndarray = np.asarray(self.pixels[rows])
        if self.unreadable:
            for place, row in enumerate(rows.tolist()):
                if row in self.unreadable:
                    chosen[place] = self.one(row)
        return chosen


@dataclass(frozen=True)
class Streamed:
    """Pixels of a set too large to keep, read at every access by a few threads of their own."""

    one: One
    shape: tuple[int, int, int, int]
    threads: int

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Int[np.ndarray, " rows"]) -> UInt8[np.ndarray, "rows size size 3"]:
        """Read and decoded now; the threads end with the call, so nothing is left to a forked process."""
        chosen = np.empty((len(rows), *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(self.threads) as pool:
            for place, pixels in enumerate(pool.map(self.one, rows.tolist())):
                chosen[place] = pixels
        return chosen


def _whole(path: Path, shape: tuple[int, int, int, int]) -> dict[str, str] | None:
    """The rows of cached pixels that cannot be read, if both files are whole; None where they are to be made.

    An array with the size and time in its record is trusted; with another time, its bytes are compared.
    """
    about = path.with_suffix(".json")
    try:
        record = read_object(about, key=str, shape=list, size=int, mtime_ns=int, xxh3_128=str, unreadable=dict)
        if (record["key"], record["shape"]) != (path.stem, list(shape)):
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
    return record["unreadable"]


def _build(path: Path, one: One, shape: tuple[int, int, int, int], workers: int, doing: str) -> dict[str, str]:
    """Write the array under another name, its record, then rename: the array's name means that both are whole.

    Plain writes, not a memory map: a full disk is then an error and not a dead process.
    """
    digest, unreadable = xxhash.xxh3_128(), dict[str, str]()

    def pixels(row: int) -> UInt8[np.ndarray, "size size 3"]:
        try:
            return one(row)
        except UnreadableImage as error:
            unreadable[str(row)] = str(error)
            return np.zeros(shape[1:], np.uint8)

    def write(file: BinaryIO) -> None:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
        images = (np.ascontiguousarray(image).data for image in in_order(pixels, shape[0], workers, doing))
        for part in chain([header.getbuffer()], images):
            digest.update(part)
            file.write(part)
        file.flush()  # so that its size and time are final
        stat = os.fstat(file.fileno())
        record: dict[str, Any] = {"key": path.stem, "shape": shape, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        record |= {"xxh3_128": digest.hexdigest(), "unreadable": unreadable}
        write_json(path.with_suffix(".json"), record)

    make_way(path, path.with_suffix(".json"))
    remove_parts(path.parent)
    write_whole(path, write)
    return unreadable


def shifted(data: ImageData, shift: Shift, split: str) -> ImageData:
    """The images of `split` alone, in their order, each changed by `shift` before geometry; masks stay what they were.

    Its fingerprint names the changed pixels among cached ones and nothing else: the images are those of `data`.
    Raises FcaError if the shift has no such images.
    """
    meaning = hashlib.sha256(json.dumps(shift.identity(), sort_keys=True).encode()).hexdigest()[:12]
    names = {"name": f"{data.name}, {shift.label()}", "fingerprint": f"{data.fingerprint}-{split}-{meaning}"}
    return at_rows(data, data.rows(split), read=shift.reader(data), **names)
