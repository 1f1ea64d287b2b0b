"""Shifts: changes of images before a model sees them. A configuration names a family, which lists its shifts.

A family is a dataclass with `shifts()` in its own file, and a YAML in `conf/shift/`. A further corruption is a function
in `corruption`, which is listed in its `KINDS`, and a row of constants in `FURTHER` of `constants`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from fca.types import ImageData, Shift

if TYPE_CHECKING:
    from torch import Tensor

Rows = Int[np.ndarray, " rows"]  # positions in `ImageData.items`


@runtime_checkable
class Shifts(Protocol):
    """The object that `shift=...` configures: one shift or several, each of which is a separate run."""

    def shifts(self) -> list[Shift]: ...


@runtime_checkable
class InputImages(Protocol):
    """Images of a data set at a model's input size, with their masks and noise, as tensors on the model's device."""

    data: ImageData
    rows: Rows  # all images, over all batches

    def images(self, rows: Rows) -> Float[Tensor, "rows 3 size size"]: ...  # in [0, 1]

    def masks(self, rows: Rows) -> Bool[Tensor, "rows size size"]: ...  # True on the object

    def backgrounds(self, rows: Rows) -> Float[Tensor, "rows 3 size size"] | None:
        """The images without their objects, if the data set has them (rendered images do); otherwise None."""

    def noise(self, rows: Rows, seed: int, draw: int) -> Float[Tensor, "rows 3 size size"]:
        """Standard normal numbers keyed by seed, image id and draw, so that an image has the same ones in any batch."""

    def once(self, kind: str, key: Any, made: Callable[[], Tensor]) -> Tensor:
        """The last tensor of this kind if its key is the same, else a new one, so that shifts of a batch share it."""


@runtime_checkable
class InputShift(Shift, Protocol):
    """A shift of whole batches at the model's input size, where the objects' masks are available."""

    def at_input(self, shown: InputImages, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        """The changed images, in [0, 1]."""


@dataclass(frozen=True)
class Clean:
    """`shift=clean`: the images as they are."""

    def shifts(self) -> list[Shift]:
        return [self]

    def label(self) -> str:
        return "clean"

    def identity(self) -> str:
        return "clean"

    def reader(self, data: ImageData) -> Callable[[int], UInt8[np.ndarray, "height width 3"]]:
        return data.read
