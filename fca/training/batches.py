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
from fca.training.augment import TRIES, Changes, draw_crops
from fca.training.changes import crop_and_resize
from fca.training.recipe import Recipe
from fca.types import FcaError, Originals, Packed, Pixels

PRELOAD_BYTES = 2 * 2**30  # image sets up to this size are put on the device once; larger ones are read batch by batch
READ_TOGETHER = 1024  # images that are read at a time to be preloaded
SIZE_SAMPLE = 16  # images whose size decides whether all are preloaded
DRAWS_PER_IMAGE = 7  # random numbers of `warp`: flip, shift x, shift y, area, aspect, place x, place y
MAX_LOG_ASPECT = math.log(4 / 3)  # crops are at most 4:3 or 3:4, as in torchvision's RandomResizedCrop

Chunk = TypeVar("Chunk")
Content = TypeVar("Content")


def to_device(array: Shaped[np.ndarray, "*shape"], device: torch.device) -> Shaped[Tensor, "*shape"]:
    """A copy of an array on the device; to CUDA through pinned memory, so that the copy does not block."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def as_input(images: UInt8[Tensor, "batch size size 3"]) -> Float32[Tensor, "batch 3 size size"]:
    """Images as stored (bytes) -> float images in [0, 1], whose channels come second.

    The strides stay as they were, which is `channels_last`, in which convolutions are fastest.
    """
    return images.permute(0, 3, 1, 2).float().div_(255)


@dataclass(frozen=True)
class Examples:
    """Images and their labels: `pixels[rows[i]]` shows the class with the number `labels[i]`, one of 0..ncl-1.

    pixels:    images at input size, read when they are indexed.
    rows:      which of them are examples.
    originals: the same images with their margins, for a recipe that crops them at random; None if there are none.
    """

    pixels: Pixels
    rows: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    originals: Originals | None = None

    def __len__(self) -> int:
        return len(self.rows)


class Batch(NamedTuple):
    """The share of a batch that one process trains on.

    images:  pixels as stored, or cropped at random.
    draws:   uniform random numbers for `warp`; None if it is not to change the images.
    changes: random operations and erased rectangles; None if there are none.
    share:   number of images in this process over the mean number in all processes.
    """

    images: UInt8[Tensor, "batch size size 3"]
    labels: Int64[Tensor, " batch"]
    draws: Float32[Tensor, "batch draws"] | None
    changes: Changes | None = None
    share: float = 1.0


class DeviceImages(NamedTuple):
    """Images of any shape on the device, one after another in `pixels`.

    start: position in `pixels` at which each image begins.
    height, width: size of each image in pixels.
    """

    pixels: UInt8[Tensor, "pixels 3"]
    start: Int[np.ndarray, " images"]
    height: Int[np.ndarray, " images"]
    width: Int[np.ndarray, " images"]

    def select(self, positions: Int[np.ndarray, " chosen"]) -> DeviceImages:
        """The images at these positions; they share the pixels with all others."""
        return DeviceImages(self.pixels, self.start[positions], self.height[positions], self.width[positions])


def count_batches(images: int, batch_size: int, min_images: int = 1) -> int:
    """Number of batches of nearly equal size that show all images once, each with at most `batch_size` images.

    If a batch would have fewer than `min_images`, the images are cut into fewer batches; these may be larger than
    `batch_size`.

    >>> count_batches(7, 2), count_batches(7, 2, min_images=2), count_batches(8, 2, min_images=2)
    (4, 3, 4)
    """
    n_batches = -(-images // batch_size)  # rounded up
    smallest_batch = images // n_batches  # sizes differ by one image at most
    if smallest_batch >= min_images:
        return n_batches
    return max(1, images // min_images)  # one batch if there are fewer images than `min_images` altogether


def epoch_rng(*key: int) -> np.random.Generator:
    """Random numbers that depend on a key alone, so that nothing has to be stored to draw the same again.

    key: such as seed and epoch.

    >>> epoch_rng(0, 3).permutation(4).tolist() == epoch_rng(0, 3).permutation(4).tolist()
    True
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class Batches:
    """Batches of an epoch, which Lightning reads instead of a DataLoader and its worker processes.

    All processes of a training draw the same epoch. Each takes every `world`th image of a batch, beginning with its own
    rank, so that repeats of an image go to different processes.

    epoch: the number of the epoch to iterate over, from 0, which the caller sets.
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
        min_images: int = 1,
    ) -> None:
        """Count the batches, and put all images on the device if they are expected to fit PRELOAD_BYTES.

        examples:    images and labels.
        batch_size:  largest number of images of a batch, over all processes.
        seed:        all that is drawn in an epoch follows from (seed, epoch); None = nothing is drawn, and images come
                     in the order of the examples.
        recipe:      has the passes over the images in an epoch, the repeats of an image in a pass, and how images are
                     changed; None = each image once, as it is stored.
        progress:    show a bar while images are read into memory.
        rank, world: the number of this process, from 0, and how many processes there are.
        min_images:  fewest images of a batch, over all processes: batch norm may need two in each process.

        Raises FcaError if the recipe crops originals (images with their margins) and the examples have none.
        """
        self.examples = examples
        self.device = device
        self.seed = seed
        self.recipe = recipe
        self.world = world
        self.epoch = 0
        self._rank_slice = slice(rank, None, world)  # images of a batch that this process takes

        self.passes = recipe.passes if recipe else 1
        self.repeats = recipe.repeats if recipe else 1  # a pass then has fewer different images, not more batches
        self.n_batches = count_batches(len(examples), batch_size, min_images) * self.passes
        self.labels = torch.from_numpy(examples.labels.astype(np.int64)).to(device)
        self.size = examples.pixels[examples.rows[:1]].shape[1]  # side in pixels: the same for all images

        self.crops = recipe is not None and recipe.crops
        if self.crops and examples.originals is None:
            raise FcaError("recipe.crop_from", "original", "input: there are no originals here", "set it to input")

        # Estimate the bytes of all images by some that are spread over the examples: originals, if the recipe crops
        # them, differ in size. `examples.rows` has the positions of the examples in `examples.pixels`.
        sample_step = -(-len(examples) // SIZE_SAMPLE)  # rounded up: at most SIZE_SAMPLE images
        sample = self._read(examples.rows[::sample_step])
        sample_images = len(sample.height)  # `sample.pixels` has the pixels of all these images in a row
        expected_bytes = sample.pixels.nbytes / sample_images * len(examples)
        self.preloaded = self._put_all_on_device(progress) if expected_bytes <= PRELOAD_BYTES else None

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[Batch]:
        """Yield the images of this process in each batch of the epoch whose number is in `self.epoch`.

        Each process takes every `world`th image of a batch. Random numbers are drawn for the whole batch, and each
        process takes the numbers of its own images. So an image gets the same numbers for any number of processes.
        """
        epoch = self.epoch
        order, draws = self._draw_order(epoch)

        # This process's images, batch by batch: read ahead from their store, or taken from those on the device.
        whole_batches = order.tensor_split(self.n_batches)  # positions in the examples
        own_positions = [batch[self._rank_slice].numpy() for batch in whole_batches]
        if self.preloaded is None:
            images_by_batch = read_ahead(self._read_to_device, (self.examples.rows[own] for own in own_positions))
        else:
            preloaded = self.preloaded
            # `select` copies no pixels: it gives the sizes of these images, and where they begin in `preloaded.pixels`,
            # which has the pixels of all examples. `_batch_pixels` then takes out the pixels of these images.
            images_by_batch = (preloaded.select(own) for own in own_positions)

        # The same positions on the device, where they select labels and pixels, and the random numbers for `warp`.
        positions_by_batch = order.to(self.device).tensor_split(self.n_batches)
        draws_by_batch = draws.to(self.device).tensor_split(self.n_batches)

        steps = zip(images_by_batch, positions_by_batch, draws_by_batch, strict=True)
        for index, (images, batch_positions, batch_draws) in enumerate(steps):
            positions = batch_positions[self._rank_slice]
            warp_draws = batch_draws[self._rank_slice]
            batch_size = len(whole_batches[index])
            # One generator for each batch. The 2 separates it from the other generators of this epoch.
            rng = epoch_rng(self.seed or 0, epoch, index, 2)  # without a seed nothing is drawn from it

            # `positions` select pixels only where all images are preloaded
            pixels = self._batch_pixels(images, positions, rng, batch_size)
            # the augmentation of the recipe, of this process's images; the warp is apart from it
            changes = self._draw_changes(rng, batch_size)
            yield Batch(
                pixels,
                self.labels[positions],
                warp_draws if warp_draws.shape[1] else None,  # no columns: the recipe does not warp
                changes,
                # The weight of this process's loss: its number of images over the mean number in a process, which is
                # batch_size / world.
                share=len(positions) * self.world / batch_size,
            )

    def _draw_order(self, epoch: int) -> tuple[Int64[Tensor, " shown"], Float32[Tensor, "shown draws"]]:
        """The order in which an epoch shows the images, as positions in the examples, and random numbers for `warp`.

        The random numbers are uniform in [0, 1): DRAWS_PER_IMAGE columns, or none if images are not warped. There is a
        row for each image that is shown, in the same order.
        """
        n_examples = len(self.examples)
        if self.seed is None:  # nothing is drawn: the images come in order, and are not warped
            return torch.arange(n_examples), torch.empty(n_examples, 0)

        # With repeats, a pass shows the first 1 / repeats of a random order, each image several times in a row.
        rng = epoch_rng(self.seed, epoch)
        repeated = np.arange(n_examples) // self.repeats  # 0, 0, 1, 1, ... for two repeats
        order = np.concatenate([rng.permutation(n_examples)[repeated] for _ in range(self.passes)])

        is_warped = self.recipe is not None and self.recipe.warps and not self.crops  # crops have draws of their own
        n_draws = DRAWS_PER_IMAGE if is_warped else 0
        draws = rng.random((len(order), n_draws), dtype=np.float32)
        if self.passes == self.repeats == 1:
            # Here row i of `draws` was drawn for example i, so the rows are put into the order in which examples are
            # shown. Trainings stored before there were passes and repeats drew their numbers in this way: they stay
            # reproducible.
            draws = draws[order]
        return torch.from_numpy(order), torch.from_numpy(draws)

    def _batch_pixels(
        self, images: DeviceImages, positions: Int64[Tensor, " batch"], rng: np.random.Generator, batch_size: int
    ) -> UInt8[Tensor, "batch size size 3"]:
        """The pixels of this process's images in a batch, cropped at random if the recipe crops originals.

        images:     where this process's images begin in `images.pixels`, and their sizes: originals of any shape if the
                    recipe crops, else at input size. `images.pixels` has the pixels of all examples if they are
                    preloaded, else of this process's images alone.
        positions:  positions of this process's images in the examples.
        rng:        the batch's random numbers.
        batch_size: number of images of the batch over all processes.
        """
        recipe = self.recipe
        # Nothing to crop: all images have one size. A recipe that crops always comes with a seed.
        if recipe is None or self.seed is None or not self.crops:
            pixels = images.pixels.view((-1, self.size, self.size, 3))
            return pixels if self.preloaded is None else pixels[positions]  # preloaded: `pixels` has all examples

        # 2 * TRIES + 2 numbers for the crop; the last number is for mirroring.
        uniform = rng.random((batch_size, 2 * TRIES + 3))[self._rank_slice]
        boxes = draw_crops(uniform, images.height, images.width, recipe.scale_min)
        is_mirrored = recipe.flip & (uniform[:, -1] < 0.5)
        # For each image: start in the pixels, width; top, left, height and width of its crop; whether it is mirrored.
        windows = np.column_stack([images.start, images.width, boxes, is_mirrored]).astype(np.int64)
        return crop_and_resize(images.pixels, to_device(windows, self.device), self.size)

    def _draw_changes(self, rng: np.random.Generator, batch_size: int) -> Changes | None:
        """The random changes of this process's images in a batch; None if the recipe has none.

        rng: the batch's random numbers.
        batch_size: number of its images over all processes.
        """
        if self.recipe is None or self.recipe.augment.label() is None:  # without a label it changes nothing
            return None
        changes = self.recipe.augment.draw_changes(rng, batch_size, self.size)
        return Changes(*(values[self._rank_slice] for values in changes))

    def _put_all_on_device(self, progress: bool) -> DeviceImages:
        """Read all images of the examples, and put them on the device.

        progress: whether to show a bar.
        """
        rows = self.examples.rows
        chunks = [rows[start : start + READ_TOGETHER] for start in range(0, len(rows), READ_TOGETHER)]
        reading = read_ahead(self._read, chunks)
        packed_chunks = list(track(reading, "reading images", len(chunks), long=progress))

        height = np.concatenate([packed.height for packed in packed_chunks])
        width = np.concatenate([packed.width for packed in packed_chunks])
        n_pixels = sum(len(packed.pixels) for packed in packed_chunks)
        pixels = torch.empty((n_pixels, 3), dtype=torch.uint8, device=self.device)

        start = 0
        while packed_chunks:  # each is freed once it is copied: memory holds no second copy of all images
            chunk_pixels = torch.from_numpy(np.ascontiguousarray(packed_chunks.pop(0).pixels))
            end = start + len(chunk_pixels)
            pixels[start:end] = chunk_pixels
            start = end
        return _with_starts(pixels, height, width)

    def _read(self, rows: Int[np.ndarray, " batch"]) -> Packed:
        """Read images, packed one after another: originals if the recipe crops them, else images at input size.

        rows: positions of the images in `examples.pixels`.
        """
        if self.crops and self.examples.originals is not None:
            return self.examples.originals[rows]
        pixels = self.examples.pixels[rows]
        sides = np.full(len(rows), self.size)
        return Packed(pixels.reshape(-1, 3), sides, sides)

    def _read_to_device(self, rows: Int[np.ndarray, " batch"]) -> DeviceImages:
        """Read images by their rows, and copy them to the device."""
        packed = self._read(rows)
        return _with_starts(to_device(packed.pixels, self.device), packed.height, packed.width)


def _with_starts(pixels: Tensor, height: Int[np.ndarray, " images"], width: Int[np.ndarray, " images"]) -> DeviceImages:
    """Packed images with the position at which each begins: the number of pixels of all images before it."""
    ends = np.cumsum(height.astype(np.int64) * width)
    starts = np.concatenate([[0], ends[:-1]])
    return DeviceImages(pixels, starts, height, width)


def read_ahead(read: Callable[[Chunk], Content], chunks: Iterable[Chunk], ahead: int = 2) -> Iterator[Content]:
    """Yield `read(chunk)` for every chunk in order, while a thread already reads the next `ahead` chunks.

    So reading overlaps with what the caller computes. An error in `read` is raised when its chunk is due.
    """
    pool = ThreadPoolExecutor(1, "read-ahead")
    pending: deque[Future[Content]] = deque()
    try:
        for chunk in chunks:
            pending.append(pool.submit(read, chunk))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)  # the caller may stop before the last chunk


def warp(
    images: Float[Tensor, "batch 3 size size"],
    draws: Float32[Tensor, "batch draws"],
    flip: bool,
    shift: float,
    scale_min: float,
) -> Float[Tensor, "batch 3 size size"]:
    """Flip, translate and crop every image by a random window of its own, with bilinear interpolation.

    An output pixel at x_out shows the input at

        x_in = a x_out + t   along each axis; x runs from -1 to 1 over the image, from edge to edge.

    a is the side of the window over that of the image (negative along x if the image is mirrored), t the position of
    the window's centre plus the shift.

    draws:     uniform in [0, 1), DRAWS_PER_IMAGE of them for each image.
    flip:      mirror the images whose first number is below one half.
    shift:     largest translation as a share of the side. All translations by whole pixels up to it are equally likely;
               pixels from outside of the image are 0.
    scale_min: the window's area as a share of the image is uniform in [scale_min, 1], its log aspect in ±log(4/3). A
               window that is wider or higher than the image is cut to the image (torchvision draws such a window again,
               which makes large windows rarer). 1: no crop.
    """
    size = images.shape[-1]
    flip_draw = draws[:, :1]
    shift_draws = draws[:, 1:3]  # x, y
    area_draw = draws[:, 3:4]
    aspect_draw = draws[:, 4:5]
    place_draws = draws[:, 5:7]  # x, y

    # t: a shift of -reach, ..., reach pixels; a pixel is 2 / size wide.
    reach = round(shift * size)
    centre = 2 / size * ((shift_draws * (2 * reach + 1)).floor() - reach)  # images x 2

    # a: the sides of the window, whose place within the image moves its centre.
    share = torch.ones_like(shift_draws)  # images x 2
    if scale_min < 1:
        side = (scale_min + (1 - scale_min) * area_draw).sqrt()
        # The log aspect is (2 draw - 1) MAX_LOG_ASPECT. `stretch` is the square root of the aspect, since
        # width / height = (side stretch) / (side / stretch) = stretch².
        stretch = ((aspect_draw - 0.5) * MAX_LOG_ASPECT).exp()
        share = torch.cat([side * stretch, side / stretch], 1).clamp(max=1)
        centre = centre + (2 * place_draws - 1) * (1 - share)  # anywhere, so that the window stays in the image
    if flip:  # a is negative along x where the image is mirrored
        sign_x = torch.where(flip_draw < 0.5, -1.0, 1.0)
        share = share * torch.cat([sign_x, torch.ones_like(flip_draw)], 1)

    # x_in = a x_out + t, for the pixel centres of the output.
    x_out = (torch.arange(size, device=images.device) * 2 + 1) / size - 1
    x_in = share[:, 0:1] * x_out + centre[:, 0:1]  # images x size
    y_in = share[:, 1:2] * x_out + centre[:, 1:2]
    x_grid = x_in[:, None, :].expand(-1, size, -1)  # the same in all rows
    y_grid = y_in[:, :, None].expand(-1, -1, size)  # the same in all columns
    grid = torch.stack([x_grid, y_grid], 3)  # images x size x size x 2
    return grid_sample(images, grid.to(images.dtype), padding_mode="zeros", align_corners=False)
