"""Item response theory: which images are hard or mislabelled, which models get them right, what corruption breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fca.lazy import lazy_names

if TYPE_CHECKING:
    from fca.studies.irt.stats.fit import fit_irt
    from fca.studies.irt.stats.model import IrtFit, ItemBank

__all__ = ["IrtFit", "ItemBank", "fit_irt"]

_HOMES = {
    "IrtFit": "fca.studies.irt.stats.model",
    "ItemBank": "fca.studies.irt.stats.model",
    "fit_irt": "fca.studies.irt.stats.fit",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
