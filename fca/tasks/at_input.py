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
from fca.tasks import Setup
from fca.training.batches import as_input, to_device
from fca.training.devices import device_of
from fca.training.infer import batch_size_of
from fca.types import Classifier, FcaError, Geometry, ImageData, Pixels, generator


@dataclass(frozen=True)
class MaskGeometry:
    """The geometry of masks that are kept as images are: grey pixels of 0 and 1."""

    of: Geometry

    @property
    def key(self) -> str:
        return f"{self.of.key}-mask"

    @property
    def size(self) -> int:
        return self.of.size

    def __call__(
        self, image: UInt8[np.ndarray, "height width 3"], mask: Bool[np.ndarray, "height width"] | None = None
    ) -> tuple[UInt8[np.ndarray, "size size 3"], None]:
        """The mask is in `image`."""
        found = self.of(image, image[..., 0] > 0)[1]
        return np.repeat(np.asarray(found, np.uint8)[..., None], 3, axis=2), None


class AtInput:
    """What shifts of stage `input` are given (see fca.shifts.Shown); rows are positions in `data.items`.

    split: whose masks and true backgrounds are read, each once into outputs/cache.    rows: the images that are shown.
    """

    def __init__(self, data: ImageData, split: str, rows: Rows, classifier: Classifier, setup: Setup) -> None:
        machine = setup.machine
        self.data, self.rows, self.device = data, rows, device_of(machine.accelerator)
        self._geometry, self._of_split, self._threads = classifier.geometry, data.rows(split), threads(machine.workers)
        self._open = partial(open_pixels, cache=setup.cache, workers=machine.workers, limit_gb=machine.cache_gb)
        self._pixels = self._open(data, classifier.geometry, rows=rows)
        self._open_split = partial(self._open, rows=np.searchsorted(self._of_split, rows))
        self._kept = partial(replace, at_rows(data, self._of_split))
        self._split, self._last = split, dict[str, tuple[Any, Tensor]]()

    def images(self, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        """Pixels in [0, 1]."""
        return self.once("images", rows.tobytes(), lambda: as_input(to_device(self._pixels[rows], self.device)))

    def masks(self, rows: Rows) -> Bool[Tensor, "rows size size"]:
        """True on the object. Raises FcaError for an image without a mask."""

        def made() -> Tensor:
            found = self._masks[np.searchsorted(self._of_split, rows)][..., 0]
            return to_device(np.ascontiguousarray(found), self.device).bool()

        return self.once("masks", rows.tobytes(), made)

    def backgrounds(self, rows: Rows) -> Float[Tensor, "rows 3 size size"] | None:
        """The images without their objects, where the data set has a `background` of each image id; else None."""
        if self._backgrounds is None:
            return None
        return as_input(to_device(self._backgrounds[np.searchsorted(self._of_split, rows)], self.device))

    def noise(self, rows: Rows, seed: int, draw: int) -> Float[Tensor, "rows 3 size size"]:
        """Standard normal numbers by (seed, image id, draw), drawn on the CPU: the same on any device."""

        def made() -> Tensor:
            ids, side = self.data.items["image_id"].iloc[rows].tolist(), self._geometry.size
            noise = np.empty((len(rows), 3, side, side), np.float32)

            def fill(at: int) -> None:
                generator(seed, ids[at], "noise", draw).standard_normal(dtype=np.float32, out=noise[at])

            with ThreadPoolExecutor(self._threads) as pool:  # numpy leaves Python's lock while it draws
                list(pool.map(fill, range(len(rows))))
            return torch.from_numpy(noise).to(self.device)

        return self.once("noise", (rows.tobytes(), seed, draw), made)

    def once(self, kind: str, key: Any, made: Callable[[], Tensor]) -> Tensor:
        """What was made last of this kind, if its key is the same: for many shifts of one batch."""
        if kind not in self._last or self._last[kind][0] != key:
            self._last[kind] = key, made()
        return self._last[kind][1]

    @cached_property
    def _masks(self) -> Pixels:
        ids, of = self.data.items["image_id"].tolist(), self._of_split

        def read(at: int) -> UInt8[np.ndarray, "height width 3"]:
            mask = self.data.mask(int(of[at]))
            if mask is None:
                step = "use a set that has them: manifest with a column mask or mask_box, rendered, hard_imagenet, ..."
                raise FcaError(f"mask of {ids[of[at]]}", None, f"a mask for every image of {self.data.name}", step)
            return np.repeat(mask[..., None], 3, axis=2).view(np.uint8)

        names = {"name": f"masks of {self.data.name}", "fingerprint": f"{self.data.fingerprint}-{self._split}-mask"}
        return self._open_split(self._kept(read=read, **names), MaskGeometry(self._geometry))

    @cached_property
    def _backgrounds(self) -> Pixels | None:
        background = self.data.background
        if background is None:
            return None
        ids = self.data.items["image_id"].iloc[self._of_split].tolist()
        names = {"name": f"backgrounds of {self.data.name}"}
        names["fingerprint"] = f"{self.data.fingerprint}-{self._split}-background"
        return self._open_split(self._kept(read=lambda at: background(ids[at]), **names), self._geometry)


SIDE = 64  # pixels of an example
MANY = 2000  # forwarded images from which on there is a progress bar


class Under(NamedTuple):
    """What a classifier makes of images under several shifts.

    examples: some of the shifted images, SIDE pixels a side.    mask_area: share of each image that is object.
    """

    logits: list[Float32[np.ndarray, "images logits"]]
    examples: list[UInt8[np.ndarray, "examples side side 3"]]
    mask_area: Float32[np.ndarray, " images"]


def outputs_under(shifts: Sequence[InputShift], classifier: Classifier, shown: AtInput, examples: Rows) -> Under:
    """Every shift of a batch in turn, so that its pixels, masks and noise are made once; in full precision.

    examples: rows among those that are shown.    Raises FcaError for logits that are NaN or infinite.
    """
    module = classifier.module.eval().to(shown.device)
    n_images = len(shown.rows)
    batches = np.array_split(shown.rows, -(-n_images // batch_size_of(classifier.input_size)))
    logits: list[list[Float32[np.ndarray, "batch logits"]]] = [[] for _ in shifts]
    mask_area = []
    seen = 0
    with torch.inference_mode():
        for rows in track(batches, f"{len(shifts)} shifts of images", long=n_images * len(shifts) >= MANY):
            mask_area.append(shown.masks(rows).flatten(1).float().mean(1).cpu())
            for shift, logits_under_shift in zip(shifts, logits, strict=True):
                changed = shift.at_input(shown, rows).contiguous(memory_format=torch.channels_last)  # 1.5 times as fast
                outputs = module(classifier.normalise(changed)).float().cpu().numpy()
                check_outputs("logits", outputs, before=seen)
                logits_under_shift.append(outputs)
            seen += len(rows)
        pictures = [_picture_of(shift.at_input(shown, examples)) for shift in shifts]
    return Under([np.concatenate(of_shift) for of_shift in logits], pictures, torch.cat(mask_area).numpy())


def _picture_of(images: Float[Tensor, "images 3 size size"]) -> UInt8[np.ndarray, "images side side 3"]:
    """Images in [0, 1], SIDE pixels a side."""
    small = interpolate(images, (SIDE, SIDE), mode="area")
    return (small.permute(0, 2, 3, 1) * 255).round().byte().cpu().numpy()
