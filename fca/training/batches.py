"""The device, and batches of images on it: the same in every run of the same seed and epoch, warped at random."""

from __future__ import annotations

import math
import platform
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64, UInt8
from rich.progress import track
from torch import Tensor
from torch.nn.functional import grid_sample

from fca.types import FcaError, Pixels, check_choice

ACCELERATORS = ("auto", "cpu", "gpu")
HELD_BYTES = 2 * 2**30  # image sets up to this size are put on the device once; larger ones are read batch by batch
READ_TOGETHER = 1024
DRAWS = 7  # random numbers an image: flip, shift x, shift y, area, aspect, place x, place y
ASPECT = math.log(4 / 3)  # crops are at most 4:3 or 3:4, as in torchvision's RandomResizedCrop

Part = TypeVar("Part")
Read = TypeVar("Read")


def device_of(accelerator: str) -> torch.device:
    """auto: the GPU that there is (CUDA or Apple's), else the CPU. Raises FcaError for a GPU that is not there."""
    check_choice("machine.accelerator", accelerator, ACCELERATORS, "leave it at auto")
    gpu = next((name for name in ("cuda", "mps") if getattr(torch, name).is_available()), None)
    if accelerator == "gpu" and gpu is None:
        raise FcaError("machine.accelerator", accelerator, "auto or cpu: torch sees no GPU", "check torch.cuda")
    return torch.device("cpu" if accelerator == "cpu" or gpu is None else gpu)


def device_name(accelerator: str) -> str:
    """The name of the device in a row: the GPU's, or the processor's with the number of threads that torch uses."""
    device = device_of(accelerator)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"{platform.processor()} GPU"
    listed = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", listed.read_text()) if listed.is_file() else None
    return f"{found[1] if found else platform.processor()}, {torch.get_num_threads()} threads"


def to_device(pixels: UInt8[np.ndarray, "*shape"], device: torch.device) -> UInt8[Tensor, "*shape"]:
    """A copy on the device; to CUDA through pinned memory, so that the copy does not block."""
    tensor = torch.from_numpy(np.ascontiguousarray(pixels))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def as_input(images: UInt8[Tensor, "batch size size 3"]) -> Float32[Tensor, "batch 3 size size"]:
    """Bytes as stored -> [0, 1]. The strides stay: that is `channels_last`, in which convolutions are fastest."""
    return images.permute(0, 3, 1, 2).float().div_(255)


@dataclass(frozen=True)
class Examples:
    """Images and their labels in logit order: `pixels[rows[i]]` shows class `labels[i]`, one of 0..ncl-1."""

    pixels: Pixels
    rows: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]

    def __len__(self) -> int:
        return len(self.rows)


class Batch(NamedTuple):
    """Pixels as stored, labels, and for images that `warp` will change their uniform random numbers."""

    images: UInt8[Tensor, "batch size size 3"]
    labels: Int64[Tensor, " batch"]
    draws: Float32[Tensor, "batch draws"] | None


def keyed(*key: int) -> np.random.Generator:
    """A counter-based generator that starts from its key alone: nothing has to be stored to draw the same again.

    >>> keyed(0, 3).permutation(4).tolist() == keyed(0, 3).permutation(4).tolist()
    True
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class Batches:
    """What Lightning iterates over once an epoch, instead of a DataLoader and its worker processes.

    seed:     order (and draws) of an epoch follow from (seed, epoch); None = in the order of the examples.
    draws:    uniform random numbers to give with every training image.
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
        self.epoch = 0  # counted from 0; the caller sets it
        self.labels = torch.from_numpy(examples.labels.astype(np.int64)).to(device)
        image = examples.pixels[examples.rows[:1]]
        small = image.nbytes * len(examples) <= HELD_BYTES
        self.held = self._hold(image.shape[1:], progress) if small else None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Batch]:
        order, draws = self._drawn()
        on_device = order.to(self.device).tensor_split(self.count)
        if self.held is None:
            images = read_ahead(self._read, (self.examples.rows[part] for part in order.tensor_split(self.count)))
        else:
            images = map(self.held.__getitem__, on_device)
        for part, shown in zip(on_device, images, strict=True):
            yield Batch(shown, self.labels[part], None if draws is None else draws[part])

    def _drawn(self) -> tuple[Int64[Tensor, " images"], Float32[Tensor, "images draws"] | None]:
        number = len(self.examples)
        if self.seed is None:
            return torch.arange(number), None
        rng = keyed(self.seed, self.epoch)
        order = torch.from_numpy(rng.permutation(number))
        draws = torch.from_numpy(rng.random((number, self.draws), dtype=np.float32)).to(self.device)
        return order, draws if self.draws else None

    def _hold(self, image: tuple[int, ...], progress: bool) -> UInt8[Tensor, "images size size 3"]:
        rows = self.examples.rows
        held = torch.empty((len(rows), *image), dtype=torch.uint8, device=self.device)
        places = [slice(start, start + READ_TOGETHER) for start in range(0, len(rows), READ_TOGETHER)]
        parts = read_ahead(self._read, (rows[place] for place in places))
        shown = track(parts, "reading images", len(places), transient=True, disable=not progress)
        for place, part in zip(places, shown, strict=True):
            held[place] = part
        return held

    def _read(self, rows: Int[np.ndarray, " batch"]) -> UInt8[Tensor, "batch size size 3"]:
        return to_device(self.examples.pixels[rows], self.device)


def read_ahead(read: Callable[[Part], Read], parts: Iterable[Part], ahead: int = 2) -> Iterator[Read]:
    """`read` every part in one thread, up to `ahead` parts early; an error is raised where its part is due."""
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


def warp(
    images: Float[Tensor, "batch 3 size size"],
    draws: Float32[Tensor, "batch draws"],
    flip: bool,
    shift: float,
    scale_min: float,
) -> Float[Tensor, "batch 3 size size"]:
    """Flip, translate and crop every image by a random window of its own: x_in = a x_out + t along each axis, bilinear.

    a is the window's share of the side (negative when mirrored), t its centre plus the shift; x runs from -1 to 1.

    draws:     uniform in [0, 1), DRAWS of them an image.
    flip:      mirror the images whose first number is below one half.
    shift:     up to this share of the side, in whole pixels, equally likely; outside the image is 0.
    scale_min: the window's area is uniform in [scale_min, 1], its log aspect in ±log(4/3); what sticks out is cut off
               (torchvision draws again, which makes large windows rarer).
    """
    size = images.shape[-1]
    mirrored, shifts, area, aspect, places = draws[:, :1], draws[:, 1:3], draws[:, 3:4], draws[:, 4:5], draws[:, 5:7]
    reach = round(shift * size)
    centre = 2 / size * ((shifts * (2 * reach + 1)).floor() - reach)
    share = torch.ones_like(shifts)
    if scale_min < 1:
        side = (scale_min + (1 - scale_min) * area).sqrt()
        stretch = ((aspect - 0.5) * ASPECT).exp()  # the square root of the aspect: log aspect is in ±ASPECT
        share = torch.cat([side * stretch, side / stretch], 1).clamp(max=1)
        centre = centre + (2 * places - 1) * (1 - share)
    if flip:
        share = share * torch.cat([torch.where(mirrored < 0.5, -1.0, 1.0), torch.ones_like(mirrored)], 1)
    pixel = (torch.arange(size, device=images.device) * 2 + 1) / size - 1
    across, down = (share[:, i : i + 1] * pixel + centre[:, i : i + 1] for i in (0, 1))
    grid = torch.stack([across[:, None, :].expand(-1, size, -1), down[:, :, None].expand(-1, -1, size)], 3)
    return grid_sample(images, grid.to(images.dtype), padding_mode="zeros", align_corners=False)
