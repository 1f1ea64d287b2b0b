"""Failure search: where a classifier fails, why, and how few images it takes to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fca.lazy import lazy_names

if TYPE_CHECKING:
    from fca.studies.generate.stats.domain import Domain
    from fca.studies.search.stats.policies import make_policy

__all__ = ["Domain", "make_policy"]

_HOMES = {
    "Domain": "fca.studies.generate.stats.domain",
    "make_policy": "fca.studies.search.stats.policies",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
