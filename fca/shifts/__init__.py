"""Shifts: what is done to images before a model sees them. A configuration names a family, which lists its shifts.

A family is a dataclass with `shifts()` in a file of its own, and a YAML in `conf/shift/`. One more corruption is a
function in `corruption`, which `KINDS` there lists, and a row of constants: `FURTHER` in `constants`.
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
    """What `shift=...` configures: one shift or many, each of which is a run of its own."""

    def shifts(self) -> list[Shift]: ...


@runtime_checkable
class Shown(Protocol):
    """Images of a data set at a model's input size, and what shifts of them need, as tensors on the model's device."""

    data: ImageData
    rows: Rows  # all that are shown, in any batch

    def images(self, rows: Rows) -> Float[Tensor, "rows 3 size size"]: ...  # in [0, 1]

    def masks(self, rows: Rows) -> Bool[Tensor, "rows size size"]: ...  # True on the object

    def backgrounds(self, rows: Rows) -> Float[Tensor, "rows 3 size size"] | None:
        """The images as they are without their objects, where the data set knows that (rendered images do)."""

    def noise(self, rows: Rows, seed: int, draw: int) -> Float[Tensor, "rows 3 size size"]:
        """Standard normal numbers, the same for an image in any batch: keyed by seed, image id and draw."""

    def once(self, kind: str, key: Any, made: Callable[[], Tensor]) -> Tensor:
        """What was made last of this kind, if its key is the same: for many shifts of one batch."""


@runtime_checkable
class InputShift(Shift, Protocol):
    """A shift of stage `input`: of whole batches at the model's input size, where an object's mask is at hand."""

    def at_input(self, shown: Shown, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
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
