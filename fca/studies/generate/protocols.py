"""The contract of every generator of test images and every writer of their descriptions, and what these share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, UInt8

from fca.types import FcaError


class Refused(Exception):
    """The generator will not draw this (its content policy): recorded with its reason, the rest goes on."""


class Unavailable(Exception):
    """The service was tried again with back-off and is still down: generation stops, all images so far are kept."""


@dataclass(frozen=True)
class Request:
    """One image of a plan that is to be drawn.

    label:    its class KEY.                 name: what a person calls the class.
    level:    easy, medium or hard.          sublevel: 1 to 9, three a level, easy to hard.
    index:    0, 1, ... of its class, attribute and level; the sublevels take turns.
    seed:     of this image; the easy, medium and hard image of a triplet share it.
    prompt:   what to draw, in words; None where the generator needs none.
    """

    label: str
    name: str
    attribute: str
    level: str
    sublevel: int
    index: int
    seed: int
    prompt: str | None

    @property
    def key(self) -> str:
        """Its name among all of a plan, and the stem of its file.

        >>> Request("car", "car", "view", "easy", 1, 3, 0, None).key
        'car/view/easy/03-1'
        """
        return f"{self.label}/{self.attribute}/{self.level}/{self.index:02d}-{self.sublevel}"

    @property
    def triplet(self) -> str:
        """Shared by the matched easy, medium and hard image.

        >>> Request("car", "car", "view", "hard", 7, 3, 0, None).triplet
        'car/view/03'
        """
        return f"{self.label}/{self.attribute}/{self.index:02d}"

    def words(self) -> str:
        """The prompt, for a generator that needs one. Raises FcaError where there is none."""
        if self.prompt is None:
            raise FcaError(f"prompt of {self.key}", "none", "words", "write descriptions in the plan")
        return self.prompt


@dataclass(frozen=True)
class Conditioned:
    """One image that is to be drawn under the conditions of a subdomain (values of an evaluation domain's attributes).

    label:  what the image is to show.      values: attribute -> value, such as time -> night.
    seed:   of this image.                  prompt: what to draw, in words.
    """

    label: str
    values: Mapping[str, Any]
    seed: int
    prompt: str

    @property
    def key(self) -> str:
        """Its name in messages.

        >>> Conditioned("dog", {"time": "night", "weather": "sunny"}, 3, "").key
        'dog, time: night, weather: sunny, seed 3'
        """
        conditions = [f"{name}: {value}" for name, value in self.values.items()]
        return ", ".join([self.label, *conditions, f"seed {self.seed}"])

    def words(self) -> str:
        return self.prompt


Wanted = Request | Conditioned


class Drawn(NamedTuple):
    """An image, its masks, and facts about how it was drawn, which JSON can hold.

    visible: pixels that show the object.    full: pixels that would show it if nothing were in front of it.
    Masks are None from a generator that makes none.
    """

    image: UInt8[np.ndarray, "height width 3"]
    visible: Bool[np.ndarray, "height width"] | None
    full: Bool[np.ndarray, "height width"] | None
    facts: Mapping[str, Any]  # revised_prompt, measured, ...


@runtime_checkable
class Generator(Protocol):
    """Draws images; configured but not yet loaded: cheap to make, heavy imports wait for the first image."""

    @property
    def prompted(self) -> bool:
        """Whether it draws from words."""

    @property
    def parallel(self) -> bool:
        """Whether several processes may draw at once: true for a program on the CPU, false for a GPU or a service."""

    def label(self) -> str: ...  # its name in journals and tables

    def version(self) -> str:
        """All that decides its pixels beside the request: version of the drawing, or model, steps, size."""

    def price(self) -> float:
        """Money an image; 0.0 where it is drawn on this machine. Raises FcaError where it is not known."""

    def draw(self, request: Wanted) -> Drawn:
        """The image. Raises Refused, Unavailable, or FcaError for a request that it can never draw."""


@runtime_checkable
class Batched(Generator, Protocol):
    """A generator that draws several images in one pass, on one device or in a process for each of several."""

    @property
    def batch_size(self) -> int:
        """Images in one pass. An image is the same in any batch, but for rounding."""

    def places(self) -> Sequence[str]:
        """Devices that it draws on; one that is named twice gets two processes."""

    def on(self, device: str) -> Batched:
        """The same on one device."""

    def prepare(self) -> None:
        """Load what it needs, so that the time of the first images is theirs alone."""

    def draw_batch(self, requests: Sequence[Wanted]) -> list[Drawn | Refused]:
        """The images; Refused in the place of one that it will not draw. Raises what `draw` raises."""


@runtime_checkable
class Conditional(Generator, Protocol):
    """A generator that draws known conditions alone: a domain can be checked before anything is drawn."""

    @property
    def conditions(self) -> Mapping[str, tuple[str, ...]]:
        """Attribute -> values that it draws."""


@runtime_checkable
class Writer(Protocol):
    """Writes descriptions of images: a language model."""

    def label(self) -> str: ...  # its name in journals and plans

    def price(self) -> float:
        """Money a call. Raises FcaError where it is not known."""

    def describe(self, name: str, attribute: str) -> list[str]:
        """Nine descriptions of an image of that class, easy to hard by the attribute. Raises Refused, Unavailable."""


def missing_package(name: str) -> FcaError:
    """What a generator raises where its library is not installed."""
    return FcaError(f"package {name}", "missing", "installed", "pip install 'fca[generate]'")
