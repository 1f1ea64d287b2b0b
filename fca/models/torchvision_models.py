"""Any classification network of torchvision: `model=torchvision model.name=...`, or a named point in conf/model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torchvision.models import WeightsEnum, get_model, get_model_weights

from fca.geometry import ResizeCrop
from fca.models.heads import classifier, looked_at, with_or_without
from fca.models.inputs import (
    PRETRAINED,
    Normalise,
    class_keys,
    classes_meaning,
    file_label,
    keywords_label,
    resize_crop,
)
from fca.models.weights import (
    fetched,
    identity_of,
    one_line,
    read_weights,
    with_weights,
)
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import Classifier, FcaError


@dataclass(frozen=True)
class TorchvisionModel:
    """A classification network that torchvision has a name for. Null leaves its input to torchvision's record.

    name:    any name, with or without the tag of its weights: resnet50, resnet50.IMAGENET1K_V1.
    weights: null = from scratch; pretrained = torchvision's, fetched on first use; or the path of a state dict.
    kwargs:  any keyword that torchvision takes for this network.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.
    classes: class keys of the weights' logits in their order; torchvision's own weights know ImageNet's wnids.

    Networks with auxiliary heads are built without them. GoogLeNet and Inception rescale their normalised input as
    their published weights need it (transform_input), whether trained here or there. Where a network pools behind its
    last layer (SqueezeNet), a classifier's features ARE its logits; as an encoder it gives the mean of its last map.
    """

    name: str
    weights: str | None
    kwargs: dict[str, Any]
    input_size: int | None
    crop_pct: float | None
    interpolation: str | None
    classes: Any

    def label(self) -> str:
        """The name without tag, and the keywords."""
        return keywords_label(self.architecture, self.kwargs)

    def weights_label(self) -> str | None:
        """The tag of torchvision's weights, or the name of the file."""
        return file_label(self.weights) if self.weights != PRETRAINED else self._resolved().partition(".")[2]

    def identity(self) -> dict[str, Any]:
        """Without torchvision where neither a tag nor its weights are asked for: planning stays quick."""
        self._check()
        if self.weights != PRETRAINED:
            return identity_of("torchvision", self)
        identity = identity_of("torchvision", replace(self, name=self.architecture, weights=None))
        return {**identity, "weights": self._resolved(), "classes": classes_meaning(self.classes)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model."""

        self._check()
        return classifier_of(self, classes)

    @property
    def architecture(self) -> str:
        """The name without its tag."""
        return self.name.partition(".")[0]

    def _resolved(self) -> str:
        """Name and tag of the weights that torchvision would fetch."""

        return f"{self.architecture}.{record_of(self.name).name}"

    def _check(self) -> None:
        """Raise FcaError for a name or a tag that torchvision does not know."""
        names = _registered()
        if self.architecture not in names:
            near = difflib.get_close_matches(self.architecture, names) or sorted(names)[:3]
            allowed = f"one of torchvision's {len(names)} names, such as {', '.join(near)}"
            step = "list them: https://docs.pytorch.org/vision/stable/models.html#classification"
            raise FcaError("model.name", self.name, allowed, step)
        if "." in self.name:
            self._resolved()


@cache
def _registered() -> frozenset[str]:
    """Names of classification networks, read off the files that define them: importing torchvision imports torch.

    torchvision knows a network by a function of its name whose first argument is the keyword `weights`.
    """
    spec = find_spec("torchvision")  # finds the package without running its __init__
    folders = (spec and spec.submodule_search_locations) or []
    files = [file for folder in folders for file in Path(folder, "models").glob("*.py")]
    return frozenset(
        name for file in files for name in re.findall(r"^def (\w+)\(\s*\*,\s*weights\b", file.read_text(), re.M)
    )


# What TorchvisionModel needs torchvision for; apart from it, so that planning stays quick.


declare_torchvision_ops()


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
