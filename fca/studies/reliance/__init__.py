"""Object or surroundings: does a model rely on the object or on spurious cues around it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fca.lazy import lazy_names

if TYPE_CHECKING:
    from fca.studies.reliance.stats.reliance import relative_foreground_sensitivity

__all__ = ["relative_foreground_sensitivity"]

_HOMES = {
    "relative_foreground_sensitivity": "fca.studies.reliance.stats.reliance",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
