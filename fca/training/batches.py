"""Batches of uint8 images, on the device: the same ones in every epoch of the same seed, wherever and however often."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64, UInt8
from rich.progress import track
from torch import Tensor

from fca.training.device import to_device

HELD_BYTES = 2 * 2**30  # image sets up to this size are put on the device once; larger ones are read batch by batch
READ_TOGETHER = 1024

Part = TypeVar("Part")
Read = TypeVar("Read")


@runtime_checkable
class Pixels(Protocol):
    """Images by position: an array of row numbers gives uint8 pixels of shape (rows, size, size, 3)."""

    def __getitem__(self, rows: Any, /) -> UInt8[np.ndarray, "rows size size 3"]: ...


@dataclass(frozen=True)
class Examples:
    """Images and their labels in logit order: `pixels[rows[i]]` shows class `labels[i]`, one of 0..ncl-1."""

    pixels: Pixels
    rows: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]

    def __len__(self) -> int:
        return len(self.rows)


class Batch(NamedTuple):
    """Pixels as stored, labels, and for images that are to be warped their uniform random numbers."""

    images: UInt8[Tensor, "batch size size 3"]
    labels: Int64[Tensor, " batch"]
    draws: Float32[Tensor, "batch draws"] | None


def keyed(*key: int) -> np.random.Generator:
    """A counter-based generator that starts anew from its key, so that no state need be kept.

    >>> keyed(0, 3).permutation(4).tolist() == keyed(0, 3).permutation(4).tolist()
    True
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class Batches:
    """What Lightning iterates over once an epoch, instead of a DataLoader and its worker processes.

    seed:  order (and draws) of an epoch follow from (seed, epoch); None = in the order of the examples.
    draws: uniform random numbers to give with every training image.
    progress: show a bar while images are read into memory.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        device: torch.device,
        seed: int | None = None,
        draws: int = 0,
        progress: bool = False,
    ) -> None:
        self.examples, self.device, self.seed, self.draws = examples, device, seed, draws
        self.count = -(-len(examples) // batch_size)
        self.epoch = 0  # counted from 0; whoever iterates sets it
        self.labels = torch.from_numpy(examples.labels.astype(np.int64)).to(device)
        image = examples.pixels[examples.rows[:1]]
        small = image.nbytes * len(examples) <= HELD_BYTES
        self.held = self._hold(image.shape[1:], progress) if small else None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Batch]:
        order, draws = self._drawn()
        on_device = order.to(self.device).tensor_split(self.count)
        if self.held is not None:
            held = self.held
            images: Iterator[Tensor] = (held[part] for part in on_device)
        else:
            images = read_ahead(self._read, (self.examples.rows[part] for part in order.tensor_split(self.count)))
        for part, shown in zip(on_device, images, strict=True):
            yield Batch(shown, self.labels[part], None if draws is None else draws[part])

    def _drawn(self) -> tuple[Int64[Tensor, " images"], Float32[Tensor, "images draws"] | None]:
        number = len(self.examples)
        if self.seed is None:
            return torch.arange(number), None
        rng = keyed(self.seed, self.epoch)
        order = torch.from_numpy(rng.permutation(number))
        if not self.draws:
            return order, None
        return order, torch.from_numpy(rng.random((number, self.draws), dtype=np.float32)).to(self.device)

    def _hold(self, image: tuple[int, ...], progress: bool) -> UInt8[Tensor, "images size size 3"]:
        rows = self.examples.rows
        held = torch.empty((len(rows), *image), dtype=torch.uint8, device=self.device)
        starts = range(0, len(rows), READ_TOGETHER)
        parts = read_ahead(self._read, (rows[start : start + READ_TOGETHER] for start in starts))
        for start, part in track(
            zip(starts, parts, strict=True), "reading images", len(starts), transient=True, disable=not progress
        ):
            held[start : start + READ_TOGETHER] = part
        return held

    def _read(self, rows: Int[np.ndarray, " batch"]) -> UInt8[Tensor, "batch size size 3"]:
        return to_device(self.examples.pixels[rows], self.device)


def read_ahead(read: Callable[[Part], Read], parts: Iterable[Part], ahead: int = 2) -> Iterator[Read]:
    """`read` every part in one thread, up to `ahead` parts before they are asked for; errors come where they belong."""
    pool = ThreadPoolExecutor(1, "read-ahead")
    waiting: deque[Future[Read]] = deque()
    try:
        for part in parts:
            waiting.append(pool.submit(read, part))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
