"""Images at a model's input size: decoded once into a memory-mapped file that all runs share, or read on demand."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from filelock import FileLock
from jaxtyping import Int, UInt8

from fca.data.files import in_order, threads
from fca.data.splits import at_rows
from fca.store.files import remove_parts, write_whole
from fca.types import Geometry, ImageData, Pixels, Shift, UnreadableImage

One = Callable[[int], UInt8[np.ndarray, "size size 3"]]


def open_pixels(data: ImageData, geometry: Geometry, cache: Path, workers: int = 0, limit_gb: float = 4.0) -> Pixels:
    """All images of a data set after `geometry`, ready to be drawn in any order.

    cache:    folder of `<fingerprint>-<geometry key>.npy` (and `.json`: row -> why it is unreadable), which this call
              writes if they are not there; processes that need it at the same time wait while one of them writes it.
    workers:  threads that decode; 0 = one per core.
    limit_gb: a set whose pixels take more (in 1e9 bytes) is not cached but read and decoded at every access.
    """

    def one(row: int) -> UInt8[np.ndarray, "size size 3"]:
        return geometry(data.read(row))[0]

    shape = (len(data.items), geometry.size, geometry.size, 3)
    if math.prod(shape) > limit_gb * 1e9:
        return Streamed(one, shape, threads(workers))
    path = cache / f"{data.fingerprint}-{geometry.key}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                _build(path, one, shape, workers, f"decoding {data.name}")
    unreadable = json.loads(path.with_suffix(".json").read_text())
    return Cached(np.load(path, mmap_mode="r"), one, frozenset(map(int, unreadable)))


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


def _build(path: Path, one: One, shape: tuple[int, int, int, int], workers: int, doing: str) -> None:
    """Write the array under another name, the unreadable rows, then rename: the array's name means that both are whole.

    Plain writes, not a memory map: a full disk is then an error and not a dead process.
    """
    unreadable: dict[int, str] = {}

    def pixels(row: int) -> UInt8[np.ndarray, "size size 3"]:
        try:
            return one(row)
        except UnreadableImage as error:
            unreadable[row] = str(error)
            return np.zeros(shape[1:], np.uint8)

    def write(file: BinaryIO) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for image in in_order(pixels, shape[0], workers, doing):
            file.write(np.ascontiguousarray(image).data)
        path.with_suffix(".json").write_text(json.dumps(unreadable, indent=1, sort_keys=True))

    remove_parts(path.parent)
    write_whole(path, write)


def shifted(data: ImageData, shift: Shift, split: str) -> ImageData:
    """The images of `split` alone, in their order, each changed by `shift` before geometry; masks stay what they were.

    Its fingerprint names the changed pixels among cached ones and nothing else: the images are those of `data`.
    Raises FcaError if the shift has no such images.
    """
    meaning = hashlib.sha256(json.dumps(shift.identity(), sort_keys=True).encode()).hexdigest()[:12]
    names = {"name": f"{data.name}, {shift.label()}", "fingerprint": f"{data.fingerprint}-{split}-{meaning}"}
    return at_rows(data, data.rows(split), read=shift.reader(data), **names)
