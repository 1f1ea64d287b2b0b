"""Training and inference of built classifiers. Names are imported when they are used: planning needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fca.training.batches import Examples
    from fca.training.infer import features_of, logits_of
    from fca.training.loop import Fitted, Place, fit, seed_everything
    from fca.training.recipe import Recipe

__all__ = ["Examples", "Fitted", "Place", "Recipe", "features_of", "fit", "logits_of", "seed_everything"]

_HOMES = {"Examples": "batches", "Recipe": "recipe", "features_of": "infer", "logits_of": "infer"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'loop')}"), name)
