"""Zero-shot reading of images: a model of images and texts as a classifier over any texts."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypeIs

from fca.models import starts_from_scratch
from fca.tasks.predict import Nameable
from fca.types import FcaError, Model


def reading(encoder: Model, texts: Sequence[str], key: str = "encoder") -> Model:
    """The encoder as a classifier over these texts, in this order.

    key: the encoder's key on the command line.
    Raises FcaError for an encoder that cannot compare images with texts.
    """
    if not reads(encoder):
        step = f"add model@{key}=open_clip {key}.name=ViT-L-14 {key}.weights=openai, or do without"
        raise FcaError(key, name_of(encoder), "a model of images and texts, with weights", step)
    return encoder.reading(texts)


def reads(model: Model) -> TypeIs[Nameable]:
    """Whether the model compares images with texts and has weights."""
    return isinstance(model, Nameable) and not starts_from_scratch(model)


def name_of(model: Model) -> str:
    """The model's label with that of its weights, as tables have it."""
    labels = [model.label(), model.weights_label()]
    return " ".join(filter(None, labels))
