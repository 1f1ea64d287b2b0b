"""Batches of images on a device: the same in every run of the same seed and epoch, cropped at random."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64, Shaped, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from fca.progress import track
from fca.training.augment import TRIES, Changes, crops
from fca.training.changes import cut
from fca.training.recipe import Recipe
from fca.types import FcaError, Originals, Packed, Pixels

HELD_BYTES = 2 * 2**30  # image sets up to this size are put on the device once; larger ones are read batch by batch
READ_TOGETHER = 1024
SAMPLED = 16  # images whose size decides whether all can be held
DRAWS = 7  # random numbers an image: flip, shift x, shift y, area, aspect, place x, place y
ASPECT = math.log(4 / 3)  # crops are at most 4:3 or 3:4, as in torchvision's RandomResizedCrop

Part = TypeVar("Part")
Read = TypeVar("Read")


def to_device(array: Shaped[np.ndarray, "*shape"], device: torch.device) -> Shaped[Tensor, "*shape"]:
    """A copy on the device; to CUDA through pinned memory, so that the copy does not block."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def as_input(images: UInt8[Tensor, "batch size size 3"]) -> Float32[Tensor, "batch 3 size size"]:
    """Bytes as stored -> [0, 1]. The strides stay: that is `channels_last`, in which convolutions are fastest."""
    return images.permute(0, 3, 1, 2).float().div_(255)


@dataclass(frozen=True)
class Examples:
    """Images and their labels in logit order: `pixels[rows[i]]` shows class `labels[i]`, one of 0..ncl-1.

    originals: the same images with their margins, for a recipe that crops them.
    """

    pixels: Pixels
    rows: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    originals: Originals | None = None

    def __len__(self) -> int:
        return len(self.rows)


class Batch(NamedTuple):
    """Pixels as stored or cropped; labels; uniform numbers if `warp` is to change them; what else is to change.

    share: number of images in this process, as a multiple of what each would have if all had the same.
    """

    images: UInt8[Tensor, "batch size size 3"]
    labels: Int64[Tensor, " batch"]
    draws: Float32[Tensor, "batch draws"] | None
    changes: Changes | None = None
    share: float = 1.0


class Held(NamedTuple):
    """Packed images on the device; an image begins at pixel `start`."""

    pixels: UInt8[Tensor, "pixels 3"]
    start: Int[np.ndarray, " images"]
    height: Int[np.ndarray, " images"]
    width: Int[np.ndarray, " images"]


def batches_of(images: int, batch_size: int, fewest: int = 1) -> int:
    """How many batches of nearly equal size show so many images once; fewer where one would have less than `fewest`.

    >>> batches_of(7, 2), batches_of(7, 2, fewest=2), batches_of(8, 2, fewest=2)
    (4, 3, 4)
    """
    number = -(-images // batch_size)
    return number if images // number >= fewest else max(1, images // fewest)


def keyed(*key: int) -> np.random.Generator:
    """A counter-based generator that starts from its key alone: nothing has to be stored to draw the same again.

    >>> keyed(0, 3).permutation(4).tolist() == keyed(0, 3).permutation(4).tolist()
    True
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class Batches:
    """What Lightning iterates over once an epoch, instead of a DataLoader and its worker processes.

    Several processes draw the whole epoch alike; each takes every `world`th image of a batch, beginning with its own
    number, so that repeats of an image go to different ones.

    seed:        all that is drawn in an epoch follows from (seed, epoch); None = in the order of the examples.
    recipe:      of a training, for passes, repeats and changes of images; None = images as they are stored.
    progress:    show a bar while images are read into memory.
    rank, world: number of this process, from 0, and of all.
    fewest:      images of a batch in all processes together.
    Raises FcaError if the recipe crops originals and the examples have none.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        device: torch.device,
        seed: int | None = None,
        recipe: Recipe | None = None,
        progress: bool = False,
        rank: int = 0,
        world: int = 1,
        fewest: int = 1,
    ) -> None:
        self.examples, self.device, self.seed, self.recipe = examples, device, seed, recipe
        self.mine, self.world = slice(rank, None, world), world
        self.passes, self.repeats = (recipe.passes, recipe.repeats) if recipe else (1, 1)
        self.count = batches_of(len(examples), batch_size, fewest) * self.passes
        self.epoch = 0  # counted from 0; the caller sets it
        self.labels = torch.from_numpy(examples.labels.astype(np.int64)).to(device)
        self.crops = recipe is not None and recipe.crops
        if self.crops and examples.originals is None:
            raise FcaError("recipe.crop_from", "original", "input: there are no originals here", "set it to input")
        self.size = examples.pixels[examples.rows[:1]].shape[1]
        some = self._read(examples.rows[:: -(-len(examples) // SAMPLED)])
        small = some.pixels.nbytes / len(some.height) * len(examples) <= HELD_BYTES
        self.held = self._hold(progress) if small else None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Batch]:
        epoch = self.epoch
        order, draws = self._drawn(epoch)
        parts = order.tensor_split(self.count)
        mine = [part[self.mine].numpy() for part in parts]
        if self.held is None:
            read = read_ahead(self._streamed, (self.examples.rows[part] for part in mine))
        else:
            held = self.held
            read = (Held(held.pixels, *(values[part] for values in held[1:])) for part in mine)
        split = (values.to(self.device).tensor_split(self.count) for values in (order, draws))
        for index, (images, *drawn) in enumerate(zip(read, *split, strict=True)):
            places, numbers = (values[self.mine] for values in drawn)
            rng = keyed(self.seed or 0, epoch, index, 2)  # what is drawn batch by batch
            shown, changes = self._seen(images, places, rng, len(parts[index]))
            share = len(places) * self.world / len(parts[index])
            yield Batch(shown, self.labels[places], numbers if numbers.shape[1] else None, changes, share)

    def _drawn(self, epoch: int) -> tuple[Int64[Tensor, " shown"], Float32[Tensor, "shown draws"]]:
        """The images of an epoch in order, and their numbers for `warp`."""
        number, recipe = len(self.examples), self.recipe
        if self.seed is None:
            return torch.arange(number), torch.empty(number, 0)
        rng, kept = keyed(self.seed, epoch), np.arange(number) // self.repeats
        order = np.concatenate([rng.permutation(number)[kept] for _ in range(self.passes)])
        warps = recipe is not None and recipe.warps and not self.crops
        draws = rng.random((len(order), DRAWS * warps), dtype=np.float32)
        if self.passes == self.repeats == 1:
            draws = draws[order]  # numbers belong to the image, as they did when each was shown once
        return torch.from_numpy(order), torch.from_numpy(draws)

    def _seen(
        self, images: Held, places: Int64[Tensor, " batch"], rng: np.random.Generator, size: int
    ) -> tuple[UInt8[Tensor, "batch size size 3"], Changes | None]:
        """The pixels of a batch, cropped if need be, and its changes; size: of the batch in all processes."""
        recipe, shape = self.recipe, (-1, self.size, self.size, 3)
        if recipe is None or self.seed is None or not self.crops:
            shown = images.pixels.view(shape)
            shown = shown if self.held is None else shown[places]
        else:
            uniform = rng.random((size, 2 * TRIES + 3))[self.mine]
            boxes = crops(uniform, images.height, images.width, recipe.scale_min)
            mirrored = recipe.flip & (uniform[:, -1] < 0.5)
            windows = np.column_stack([images.start, images.width, boxes, mirrored]).astype(np.int64)
            shown = cut(images.pixels, to_device(windows, self.device), self.size)
        if recipe is None or recipe.augment.label() is None:
            return shown, None
        return shown, Changes(*(values[self.mine] for values in recipe.augment.drawn(rng, size, self.size)))

    def _hold(self, progress: bool) -> Held:
        rows = self.examples.rows
        parts = [rows[start : start + READ_TOGETHER] for start in range(0, len(rows), READ_TOGETHER)]
        reading = read_ahead(self._read, parts)
        read = list(track(reading, "reading images", len(parts), long=progress))
        height, width = (np.concatenate(sides) for sides in list(zip(*read, strict=True))[1:])
        pixels = torch.empty((sum(len(part.pixels) for part in read), 3), dtype=torch.uint8, device=self.device)
        start = 0
        while read:  # freed as it is copied
            part = torch.from_numpy(np.ascontiguousarray(read.pop(0).pixels))
            pixels[start : start + len(part)] = part
            start += len(part)
        return _placed(pixels, height, width)

    def _read(self, rows: Int[np.ndarray, " batch"]) -> Packed:
        if self.crops and self.examples.originals is not None:
            return self.examples.originals[rows]
        pixels, sides = self.examples.pixels[rows], np.full(len(rows), self.size)
        return Packed(pixels.reshape(-1, 3), sides, sides)

    def _streamed(self, rows: Int[np.ndarray, " batch"]) -> Held:
        packed = self._read(rows)
        return _placed(to_device(packed.pixels, self.device), packed.height, packed.width)


def _placed(pixels: Tensor, height: Int[np.ndarray, " images"], width: Int[np.ndarray, " images"]) -> Held:
    ends = np.cumsum(height.astype(np.int64) * width)
    return Held(pixels, np.concatenate([[0], ends[:-1]]), height, width)


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
