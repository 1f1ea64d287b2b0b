"""Images and masks at a model's input size, on its device: for shifts that know where objects are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from fca.data.files import threads
from fca.data.pixels import open_pixels
from fca.data.splits import at_rows
from fca.finite import check_outputs
from fca.progress import track
from fca.shifts import InputShift, Rows
from fca.tasks import RunContext
from fca.tasks.checks import WITH_MASKS
from fca.training.batches import as_input, to_device
from fca.training.devices import device_of
from fca.training.infer import batch_size_of
from fca.types import Classifier, FcaError, Geometry, ImageData, Pixels, keyed_rng


@dataclass(frozen=True)
class MaskGeometry:
    """Resizes a mask as a geometry resizes its image; the mask is read as an image, with grey pixels of 0 and 1."""

    image_geometry: Geometry

    @property
    def key(self) -> str:
        return f"{self.image_geometry.key}-mask"

    @property
    def size(self) -> int:
        return self.image_geometry.size

    def __call__(
        self, image: UInt8[np.ndarray, "height width 3"], mask: Bool[np.ndarray, "height width"] | None = None
    ) -> tuple[UInt8[np.ndarray, "size size 3"], None]:
        """The resized mask as an image of 0 and 1, and None, as a geometry returns an image and its mask.

        image: the mask, with three equal channels.
        mask: ignored, as a mask has no mask of its own.
        """
        _, resized_mask = self.image_geometry(image, image[..., 0] > 0)
        grey = np.asarray(resized_mask, np.uint8)[..., None]
        return np.repeat(grey, 3, axis=2), None


class AtInput:
    """Images, masks, backgrounds and noise for shifts of stage `input` (see fca.shifts.InputImages).

    They are tensors at the input size of a classifier, on its device. The methods take rows: positions in `data.items`.

    split: the split of the images, whose masks and backgrounds are decoded once into outputs/cache.
    rows:  all images that shifts will read, over all batches.
    """

    def __init__(self, data: ImageData, split: str, rows: Rows, classifier: Classifier, context: RunContext) -> None:
        """Open the images now; masks and backgrounds are opened when a shift first needs them.

        split: the split of the images.
        rows: positions in `data.items` of all images that shifts will read.
        """
        machine = context.machine
        self.data = data
        self.rows = rows
        self.device = device_of(machine.accelerator)

        # Masks and backgrounds are stored for the whole split, and indexed by positions in it.
        self._split = split
        self._split_rows = data.rows(split)
        self._split_data = at_rows(data, self._split_rows)
        self._geometry = classifier.geometry
        self._n_threads = threads(machine.workers)
        self._open = partial(open_pixels, cache=context.cache, workers=machine.workers, limit_gb=machine.cache_gb)
        self._pixels = self._open(data, classifier.geometry, rows=rows)
        # for `once`: kind of tensor, such as "noise" -> what the latest one depends on (its key), and this tensor
        self._latest_tensors = dict[str, tuple[Any, Tensor]]()

    def images(self, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        """The pixels of these images, in [0, 1]."""

        def read_images() -> Tensor:
            return as_input(to_device(self._pixels[rows], self.device))

        return self.once("images", rows.tobytes(), read_images)

    def masks(self, rows: Rows) -> Bool[Tensor, "rows size size"]:
        """The masks of these images: True on the object. Raises FcaError for an image without a mask."""

        def read_masks() -> Tensor:
            grey = self._masks[self._positions_in_split(rows)]  # three equal channels
            return to_device(np.ascontiguousarray(grey[..., 0]), self.device).bool()

        return self.once("masks", rows.tobytes(), read_masks)

    def backgrounds(self, rows: Rows) -> Float[Tensor, "rows 3 size size"] | None:
        """The images without their objects, where the data set has a `background` of each image id; else None."""
        if self._backgrounds is None:
            return None
        return as_input(to_device(self._backgrounds[self._positions_in_split(rows)], self.device))

    def noise(self, rows: Rows, seed: int, draw: int) -> Float[Tensor, "rows 3 size size"]:
        """Standard normal noise for each image.

        The random numbers depend on (seed, image id, draw) alone and are drawn on the CPU, so an image has the same
        noise on any device and in any batch.

        draw: number of the draw, for shifts that need several independent noises for an image.
        """

        def draw_noise() -> Tensor:
            """The noise of the images `rows` for this seed and draw, as a tensor on the device.

            Threads draw the images at the same time.
            """
            image_ids = self.data.items["image_id"].iloc[rows].tolist()
            side = self._geometry.size
            noise = np.empty((len(rows), 3, side, side), np.float32)

            def fill(i: int) -> None:
                keyed_rng(seed, image_ids[i], "noise", draw).standard_normal(dtype=np.float32, out=noise[i])

            with ThreadPoolExecutor(self._n_threads) as pool:  # numpy releases Python's lock while it draws
                list(pool.map(fill, range(len(rows))))  # `list` raises an error that a thread has raised
            return torch.from_numpy(noise).to(self.device)

        # `once` calls `draw_noise` only if the latest noise was of other images, another seed or draw: shifts that are
        # computed in turn on one batch share its noise.
        return self.once("noise", (rows.tobytes(), seed, draw), draw_noise)

    def once(self, kind: str, key: Any, make: Callable[[], Tensor]) -> Tensor:
        """The latest tensor of this kind if its key is the same, else a new tensor that `make` computes.

        So shifts that are computed in turn on one batch share its tensors. Only one tensor of each kind is kept: those
        of earlier batches are freed.

        kind: images, masks, noise, or a name that a shift chooses.
        key: what the tensor depends on, such as rows.
        """
        latest = self._latest_tensors.get(kind)
        if latest is not None and latest[0] == key:
            return latest[1]

        tensor = make()
        self._latest_tensors[kind] = (key, tensor)
        return tensor

    @cached_property
    def _masks(self) -> Pixels:
        """The masks of the split at input size; they are indexed by positions in the split.

        Masks are read as images with three equal channels of 0 and 1, so that they are decoded and cached like images.
        Raises FcaError, when a mask is read, for an image without a mask.
        """
        image_ids = self.data.items["image_id"].tolist()

        def read_mask(position: int) -> UInt8[np.ndarray, "height width 3"]:
            """The mask of the image at this position in the split; FcaError if the image has none."""
            row = int(self._split_rows[position])
            mask = self.data.mask(row)
            if mask is None:
                allowed = f"a mask for every image of {self.data.name}"
                raise FcaError(f"mask of {image_ids[row]}", None, allowed, WITH_MASKS)
            return np.repeat(mask[..., None], 3, axis=2).view(np.uint8)  # as an image: three channels of 0 and 1

        # a data set of its own: the fingerprint keeps its cached pixels apart from those of the images
        mask_data = replace(
            self._split_data,
            read=read_mask,
            name=f"masks of {self.data.name}",
            fingerprint=f"{self.data.fingerprint}-{self._split}-mask",
        )
        # MaskGeometry resizes and crops a mask as the geometry does its image.
        return self._open(mask_data, MaskGeometry(self._geometry), rows=self._positions_in_split(self.rows))

    @cached_property
    def _backgrounds(self) -> Pixels | None:
        """The images of the split without their objects; they are indexed by positions in the split.

        None if the data set has no such images. They are cached at input size, like the images themselves.
        """
        background = self.data.background
        if background is None:
            return None

        image_ids = self.data.items["image_id"].iloc[self._split_rows].tolist()
        # a data set of its own: the fingerprint keeps its cached pixels apart from those of the images
        background_data = replace(
            self._split_data,
            read=lambda position: background(image_ids[position]),
            name=f"backgrounds of {self.data.name}",
            fingerprint=f"{self.data.fingerprint}-{self._split}-background",
        )
        return self._open(background_data, self._geometry, rows=self._positions_in_split(self.rows))

    def _positions_in_split(self, rows: Rows) -> Rows:
        """The positions within the split of images that are given by their positions in `data.items`."""
        return np.searchsorted(self._split_rows, rows)  # `_split_rows` is ascending


SIDE = 64  # pixels of an example
MANY = 2000  # forwarded images from which on there is a progress bar


class OutputsUnderShifts(NamedTuple):
    """Outputs of a classifier for images under several shifts.

    logits, examples: one array per shift.
    examples: some of the shifted images, SIDE pixels a side.
    mask_area: share of each image that is object.
    """

    logits: list[Float32[np.ndarray, "images logits"]]
    examples: list[UInt8[np.ndarray, "examples side side 3"]]
    mask_area: Float32[np.ndarray, " images"]


def outputs_under(
    shifts: Sequence[InputShift], classifier: Classifier, images: AtInput, example_rows: Rows
) -> OutputsUnderShifts:
    """The classifier's outputs for all images under each of these shifts, in full precision (float32).

    For each batch of images all shifts are computed in turn, so that pixels, masks and noise are made once: `images`
    keeps the latest of each.

    example_rows: positions in `data.items` of the images of which thumbnails under each shift are returned.
    Raises FcaError for logits that are NaN or infinite, and for an image without a mask.
    """
    module = classifier.module.eval().to(images.device)
    n_images = len(images.rows)
    n_batches = -(-n_images // batch_size_of(classifier.input_size))  # rounded up
    batches = np.array_split(images.rows, n_batches)

    logit_batches: list[list[Float32[np.ndarray, "batch logits"]]] = [[] for _ in shifts]
    mask_areas: list[Float32[Tensor, " batch"]] = []
    n_forwarded = 0
    with torch.inference_mode():
        for rows in track(batches, f"{len(shifts)} shifts of images", long=n_images * len(shifts) >= MANY):
            mask_areas.append(images.masks(rows).flatten(1).float().mean(1).cpu())

            for shift, batches_of_shift in zip(shifts, logit_batches, strict=True):
                shifted = shift.at_input(images, rows)
                shifted = shifted.contiguous(memory_format=torch.channels_last)  # 1.5 times as fast
                logits = module(classifier.normalise(shifted)).float().cpu().numpy()
                check_outputs("logits", logits, before=n_forwarded)  # `before`: images already checked, for the message
                batches_of_shift.append(logits)
            n_forwarded += len(rows)

        examples = [_thumbnails(shift.at_input(images, example_rows)) for shift in shifts]

    return OutputsUnderShifts(
        logits=[np.concatenate(batches_of_shift) for batches_of_shift in logit_batches],
        examples=examples,
        mask_area=torch.cat(mask_areas).numpy(),
    )


def _thumbnails(images: Float[Tensor, "images 3 size size"]) -> UInt8[np.ndarray, "images side side 3"]:
    """These images, with values in [0, 1], resized to SIDE pixels a side and stored as bytes."""
    small = interpolate(images, (SIDE, SIDE), mode="area")
    channels_last = small.permute(0, 2, 3, 1)
    return (channels_last * 255).round().byte().cpu().numpy()
