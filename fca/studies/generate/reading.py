"""A model of images and texts as a classifier over any texts."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypeIs

from fca.models import starts_from_scratch
from fca.tasks.predict import Nameable
from fca.types import FcaError, Model


def reading(encoder: Model, texts: Sequence[str], key: str = "encoder") -> Model:
    """The encoder as a classifier over these texts, in this order. Raises FcaError for one that cannot read.

    key: what the encoder is called on the command line.
    """
    if not reads(encoder):
        step = f"add model@{key}=open_clip {key}.name=ViT-L-14 {key}.weights=openai, or do without"
        raise FcaError(key, name_of(encoder), "a model of images and texts, with weights", step)
    return encoder.reading(texts)


def reads(model: Model) -> TypeIs[Nameable]:
    """Whether it compares images with texts."""
    return isinstance(model, Nameable) and not starts_from_scratch(model)


def name_of(model: Model) -> str:
    """A model with its weights, in tables."""
    return " ".join(filter(None, [model.label(), model.weights_label()]))
