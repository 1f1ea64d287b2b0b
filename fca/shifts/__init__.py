"""Shifts: what is done to images before a model sees them. A configuration names a family, which lists its shifts.

A family is a dataclass with `shifts()` in a file of its own, and a YAML in `conf/shift/`. One more corruption is a
function in `corruption`, its constants, and a YAML in `conf/shift/corruption/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from fca.types import ImageData, Shift


@runtime_checkable
class Shifts(Protocol):
    """What `shift=...` configures: one shift or many, each of which is a run of its own."""

    def shifts(self) -> list[Shift]: ...


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


def overrides(option: str) -> list[str]:
    """The words of a command line that select the shift which rows spell so: family/kind/severity.

    Any other option of the group `shift` is returned as it is. Kind and severity are checked where the family lists
    its shifts.

    >>> overrides("corruption/fog/3")
    ['shift=corruption/all', 'shift.kinds=[fog]', 'shift.severities=[3]']
    >>> overrides("corruption/fog")
    ['shift=corruption/fog']
    """
    family, _, rest = option.partition("/")
    kind, _, severity = rest.partition("/")
    if not severity.isdecimal():
        return [f"shift={option}"]
    return [f"shift={family}/all", f"shift.kinds=[{kind}]", f"shift.severities=[{severity}]"]
