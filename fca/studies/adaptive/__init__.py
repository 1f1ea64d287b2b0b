"""Adaptive tests: the accuracy on all images from a part of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fca.lazy import lazy_names

if TYPE_CHECKING:
    from fca.studies.adaptive.stats import replay

__all__ = ["replay"]

_HOMES = {
    "replay": "fca.studies.adaptive.stats",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
