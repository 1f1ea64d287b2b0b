"""How a network comes to its classes: from scratch, from given weights, or not at all (a probe on its features)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fca.tasks import Setup
from fca.training.recipe import Recipe
from fca.types import FcaError, Model

SCRATCH, FINETUNE, PROBE = ADAPTATIONS = ("scratch", "finetune", "probe")


def adaptation_of(setup: Setup) -> str:
    """What `adaptation` says; null means finetune for a model with weights, else scratch.

    Raises FcaError for another word, for compat with a probe, and for a model that lacks or cannot lose its weights.
    """
    model: Any = setup.model
    bare = getattr(model, "weights", "none by nature") is None  # has weights to give, and none were given
    asked = setup.adaptation or (SCRATCH if model.weights_label() is None else FINETUNE)
    if asked not in ADAPTATIONS:
        raise FcaError("adaptation", asked, ", ".join(ADAPTATIONS), "take one of these")
    if asked != SCRATCH and bare:
        step = "give them: model.weights=pretrained, or model.weights=PATH"
        raise FcaError("adaptation", asked, f"scratch: {model.label()} has no weights", step)
    if asked == SCRATCH and not hasattr(model, "weights"):
        step = "name the network itself, e.g. model=resnet18"
        raise FcaError("adaptation", asked, f"finetune or probe: {model.label()} is given with what it learnt", step)
    if setup.compat and asked == PROBE:
        raise FcaError("adaptation", asked, "scratch or finetune: the original has no probes", "leave compat out")
    return asked


def model_of(setup: Setup, adaptation: str) -> Model:
    """The model to begin with: from scratch it has no weights, whatever was given."""
    model: Any = setup.model
    return replace(model, weights=None) if adaptation == SCRATCH and model.weights is not None else model  # type: ignore[no-any-return]


def recipe_of(setup: Setup, adaptation: str) -> Recipe:
    """The recipe as it comes to: its learning rate for this batch size and beginning, no flip where that lies.

    Raises FcaError for a recipe out of range.
    """
    setup.recipe.check()
    scaled = setup.recipe.scaled(finetune=adaptation == FINETUNE)
    return replace(scaled, flip=scaled.flip and setup.data.mirror)
