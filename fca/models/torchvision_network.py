"""What TorchvisionModel needs torchvision for; apart from it, so that planning stays quick."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
from torchvision.models import WeightsEnum, get_model, get_model_weights  # noqa: E402

from fca.geometry import ResizeCrop  # noqa: E402
from fca.models.heads import classifier, looked_at, with_or_without  # noqa: E402
from fca.models.hub import fetched  # noqa: E402
from fca.models.inputs import Normalise, class_keys, resize_crop  # noqa: E402
from fca.models.labels import PRETRAINED  # noqa: E402
from fca.models.torchvision_net import TorchvisionModel  # noqa: E402
from fca.models.weights import one_line, read_weights, with_weights  # noqa: E402
from fca.nouns import Classifier, FcaError  # noqa: E402

# transform_input: from ImageNet's mean and std to the mean and std of 0.5 that Google's weights were trained with.
OF_GOOGLE = ("googlenet", "inception_v3")
OURS = {"num_classes", "weights", "aux_logits"}
AUXILIARY = ("AuxLogits.", "aux1.", "aux2.")
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")  # in files written before torch allowed no dots


def classifier_of(model: TorchvisionModel, classes: Sequence[str] | None) -> Classifier:
    """The built network with its input as the model says, or else as torchvision's record does."""
    record = record_of(model.name)
    weights, known = model.weights, class_keys(model.classes)
    if weights == PRETRAINED:
        weights, known = str(fetched(record.url)), known or class_keys("imagenet-1k")
    make = partial(network, model)
    head = looked_at(make)
    module, keys = with_weights(with_or_without(make, head), head, weights, known, classes, read)
    return classifier(module, keys, head, *_input(model, record), lambda error: _refused(model, error))


def network(model: TorchvisionModel, logits: int) -> nn.Module:
    """torchvision's network with random weights; raises FcaError for keywords that it does not take."""
    if ours := OURS & set(model.kwargs):
        raise _refused(model, ValueError(f"{', '.join(sorted(ours))} is set by fca"))
    kwargs: dict[str, Any] = {"num_classes": logits, **model.kwargs}
    if model.architecture in OF_GOOGLE:
        kwargs = {"aux_logits": False, "transform_input": True, "init_weights": True, **kwargs}
    try:
        module: nn.Module = get_model(model.architecture, **kwargs)
    except (AssertionError, TypeError, ValueError) as error:
        raise _refused(model, error) from error
    return module


def record_of(name: str) -> WeightsEnum:
    """torchvision's record of a name's weights, the tagged or the default ones; FcaError for a tag it does not know."""
    architecture, _, tag = name.partition(".")
    records = get_model_weights(architecture)
    if not tag:
        return records.DEFAULT
    if tag not in records.__members__:
        allowed = ", ".join(f"{architecture}.{known.name}" for known in records)
        raise FcaError("model.name", name, allowed, f"correct the tag {tag!r}, or leave it out")
    return records[tag]


def read(weights: str) -> dict[str, Tensor]:
    """A state dict under the keys of today's networks, without auxiliary heads."""
    state = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in read_weights(weights).items()}
    return {key: value for key, value in state.items() if not key.startswith(AUXILIARY)}


def _input(model: TorchvisionModel, record: WeightsEnum) -> tuple[ResizeCrop, Normalise]:
    preset = record.transforms()
    crop, side = preset.crop_size[0], preset.resize_size[0]
    interpolation = model.interpolation or preset.interpolation.value
    geometry = resize_crop(crop, side, model.input_size, model.crop_pct, interpolation)
    return geometry, Normalise(tuple(preset.mean), tuple(preset.std))


def _refused(model: TorchvisionModel, error: Exception) -> FcaError:
    asked = {"input_size": model.input_size, **model.kwargs}
    allowed = f"what torchvision's {model.architecture} takes ({one_line(error)})"
    return FcaError("model.kwargs", asked, allowed, "correct or remove them")
