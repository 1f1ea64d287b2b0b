"""A model of images and texts as a zero-shot classifier over any texts."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypeIs

from fca.models import starts_from_scratch
from fca.tasks.predict import Nameable
from fca.types import FcaError, Model


def zero_shot_classifier(encoder: Model, texts: Sequence[str], key: str = "encoder") -> Model:
    """The encoder as a classifier over these texts, in this order. Raises FcaError for an encoder of images alone.

    key: the encoder's key on the command line.
    """
    if not can_read(encoder):
        step = f"add model@{key}=open_clip {key}.name=ViT-L-14 {key}.weights=openai, or do without"
        raise FcaError(key, name_of(encoder), "a model of images and texts, with weights", step)
    return encoder.reading(texts)


def can_read(model: Model) -> TypeIs[Nameable]:
    """Whether a model compares images with texts."""
    return isinstance(model, Nameable) and not starts_from_scratch(model)


def name_of(model: Model) -> str:
    """The name of a model with its weights, in tables."""
    return " ".join(filter(None, [model.label(), model.weights_label()]))
