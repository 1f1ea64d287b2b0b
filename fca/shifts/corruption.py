"""The 19 corruptions of CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich, arXiv:1903.12261) as shifts."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fca.shifts import drawing
from fca.shifts.constants import constants, each
from fca.shifts.operations import Bytes, Rng, to_bytes, to_unit
from fca.types import FcaError, ImageData, Shift

DRAWING = 1  # raised whenever any corruption's pixels change
SMALLEST = 8  # pixels of the shorter side: below, kernels are wider than the image


@dataclass(frozen=True)
class Corruptions:
    """`shift=corruption/...`: one shift a kind and severity.

    kinds:      names of corruptions (see `conf/shift/corruption/`).    severities: 1 (weakest) to 5.
    seed:       of whatever is drawn: noise, angles, flakes. The same image gets the same under the same seed.
    """

    kinds: list[str]
    severities: list[int]
    seed: int

    def shifts(self) -> list[Shift]:
        """Kinds in their order, each at every severity. Raises FcaError for a kind, severity or seed not allowed."""
        chosen = each(self.kinds, self.severities)
        if self.seed < 0:
            raise FcaError("shift.seed", self.seed, "0 and above", "take another seed")
        return [Corruption(kind, severity, self.seed) for kind, severity in chosen]


@dataclass(frozen=True)
class Corruption:
    """One corruption at one severity, applied to the stored image, before the model's resize and crop."""

    kind: str
    severity: int
    seed: int = 0

    def label(self) -> str:
        """As in tables.

        >>> Corruption("fog", 2).label()
        'corruption/fog/2'
        """
        return f"corruption/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """Kind, severity, the version of the drawing code; the seed where something is drawn; what the ice of frost is.

        >>> Corruption("contrast", 1, seed=7).identity()
        {'corruption': 'contrast', 'severity': 1, 'drawing': 1}
        """
        known = {"corruption": self.kind, "severity": self.severity, "drawing": DRAWING}
        if draws(self.kind):
            known["seed"] = self.seed
        return {**known, "ice": "procedural, not the published photographs"} if self.kind == "frost" else known

    def reader(self, data: ImageData) -> Callable[[int], Bytes]:
        """The corrupted pixels of the image at a position; the same in any order, worker or batch."""
        return Corrupted(self, data.read, data.items["image_id"].tolist())


@dataclass(frozen=True)
class Corrupted:
    """Reads images and corrupts them, each with random numbers of its own."""

    corruption: Corruption
    read: Callable[[int], Bytes]
    ids: list[str]

    def __call__(self, index: int) -> Bytes:
        """The corrupted pixels of the image at this position."""
        made, image_id = self.corruption, self.ids[index]
        image = self.read(index)
        if min(image.shape[:2]) < SMALLEST:
            size = f"{image.shape[0]} x {image.shape[1]} pixels"
            raise FcaError(f"size of {image_id}", size, f"{SMALLEST} pixels or more a side", "leave it out, or enlarge")
        return corrupted(image, made.kind, made.severity, generator(made.seed, image_id, made.label()))


def corrupted(image: Bytes, kind: str, severity: int, rng: Rng) -> Bytes:
    """An image after a corruption, with the published constants for its size (see `constants`).

    The published ImageNet-C was made from crops of 224 pixels; this works on an image of any size as it is stored.
    Raises FcaError for a kind or severity that does not exist.

    >>> image = np.full((32, 48, 3), 100, np.uint8)
    >>> corrupted(image, "brightness", 5, np.random.default_rng(0))[0, 0].tolist()
    [176, 176, 176]
    """
    known = constants(kind, severity, image.shape[0], image.shape[1])
    draw: Callable[..., Any] = getattr(drawing, kind)
    if draw in drawing.ON_BYTES:
        return np.asarray(draw(image, *known))
    return to_bytes(draw(to_unit(image), *known, **({"rng": rng} if draws(kind) else {})))


def generator(seed: int, image_id: str, label: str) -> Rng:
    """Random numbers that depend on nothing but these three: a counter (Philox) keyed by their sha256.

    >>> round(generator(0, "test/00017", "corruption/fog/1").random(), 3)
    0.743
    """
    key = hashlib.sha256("\x1f".join((str(seed), image_id, label)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))


@cache
def draws(kind: str) -> bool:
    """Whether a kind draws random numbers. Raises FcaError for a kind that does not exist.

    >>> draws("fog"), draws("contrast")
    (True, False)
    """
    each([kind], [1], ("corruption", "severity"))
    return "rng" in inspect.signature(getattr(drawing, kind)).parameters
