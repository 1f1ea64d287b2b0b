"""Progressive difficulty: do models fail hard images before easy ones?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fca.lazy import lazy_names

if TYPE_CHECKING:
    from fca.studies.progressive.stats.hierarchy import hierarchical_score

__all__ = ["hierarchical_score"]

_HOMES = {
    "hierarchical_score": "fca.studies.progressive.stats.hierarchy",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
