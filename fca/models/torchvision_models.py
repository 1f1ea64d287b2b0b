"""Any classification network of torchvision: `model=torchvision model.name=...`, or a named one in conf/model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fca.geometry import ResizeCrop
from fca.models import LibraryModel, Normalise, class_keys, networks_of, resize_crop, unknown_name
from fca.torchvision_ops import imported
from fca.types import Classifier, FcaError

if TYPE_CHECKING:
    from torch import Tensor, nn

# transform_input: from ImageNet's mean and std to the mean and std of 0.5 that Google's weights were trained with.
GOOGLE_NETWORKS = ("googlenet", "inception_v3")
SET_BY_FCA = {"num_classes", "weights", "aux_logits"}  # keywords
AUXILIARY_HEADS = ("AuxLogits.", "aux1.", "aux2.")
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")  # in files written before torch allowed no dots


@dataclass(frozen=True)
class TorchvisionModel(LibraryModel):
    """A classification network that torchvision has a name for: resnet50, or with a tag resnet50.IMAGENET1K_V1.

    Auxiliary heads, which only help training, are not built. GoogLeNet and Inception rescale their normalised input as
    their published weights need it (transform_input), whether trained here or there. A network that pools behind its
    last layer (SqueezeNet) has its logits as features if it is a classifier; as an encoder it gives the mean of its
    last map.
    """

    family = "torchvision"

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The network with its weights: a classifier if class keys are known, else an encoder.

        classes: if given, it gets a fresh head for them, to be trained.
        Raises FcaError for impossible settings, and for weights that cannot be fetched or do not fit.
        """
        from fca.models.checkpoints import fetched
        from fca.models.networks import classifier, logit_layers, with_optional_head, with_weights

        self._check()
        record = record_of(self.name)
        weights = self.weights
        file_keys = class_keys(self.classes)  # class keys of the weights' logits; empty if unknown
        if self.pretrained:
            weights = str(fetched(record.url))
            file_keys = file_keys or class_keys("imagenet-1k")

        make = partial(network, self)  # number of logits -> network with random weights
        head = logit_layers(make)  # names of the layers that give the logits; each architecture has its own
        make_any = with_optional_head(make, head)  # also makes networks of 0 logits, without a head
        # tidy: gives tensors of old files their present names, and drops auxiliary heads
        module, keys = with_weights(make_any, head, weights, file_keys, classes, tidy)

        geometry, normalise = _geometry_and_normalisation(self, record)
        return classifier(module, keys, head, geometry, normalise, self.refused)

    def _published(self) -> str:
        return f"{self.architecture}.{record_of(self.name).name}"

    def _check(self) -> None:
        """Raise FcaError for an unknown name or tag."""
        if self.architecture not in _registered():
            step = "list them: https://docs.pytorch.org/vision/stable/models.html#classification"
            raise unknown_name("torchvision", self.architecture, _registered(), step)
        if "." in self.name:  # other names need no look into torchvision, which takes seconds
            record_of(self.name)  # raises FcaError for an unknown tag


def _registered() -> frozenset[str]:
    return networks_of("torchvision", r"\*,\s*weights")


_models = partial(imported, "torchvision.models")


def network(model: TorchvisionModel, logits: int) -> nn.Module:
    """torchvision's network with random weights and this number of logits.

    Raises FcaError for keywords (model.kwargs) that it does not take, or that fca sets itself.
    """
    reserved = SET_BY_FCA & set(model.kwargs)
    if reserved:
        raise model.refused(ValueError(f"{', '.join(sorted(reserved))} is set by fca"))

    kwargs: dict[str, Any] = {"num_classes": logits, **model.kwargs}
    if model.architecture in GOOGLE_NETWORKS:
        # No auxiliary heads, which only help training. The published weights need transform_input (rescaled input).
        # init_weights=True is torchvision's default, but it warns if that is not given.
        kwargs = {"aux_logits": False, "transform_input": True, "init_weights": True, **kwargs}
    try:
        module: nn.Module = _models().get_model(model.architecture, **kwargs)
    except (AssertionError, TypeError, ValueError) as error:
        raise model.refused(error) from error
    return module


def record_of(name: str) -> Any:
    """torchvision's record of published weights: address, tag and preprocessing.

    name: architecture.tag, or only an architecture for its default weights. The architecture has to be one of
          torchvision's. Raises FcaError for an unknown tag.
    """
    architecture, _, tag = name.partition(".")
    records = _models().get_model_weights(architecture)
    if not tag:
        return records.DEFAULT
    if tag not in records.__members__:
        allowed = ", ".join(f"{architecture}.{record.name}" for record in records)
        raise FcaError("model.name", name, allowed, f"correct the tag {tag!r}, or leave it out")
    return records[tag]


def tidy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A published state dict under the names of today's networks, without the tensors of auxiliary heads.

    Old DenseNets have names such as `denselayer1.norm.1.weight`, which now is `denselayer1.norm1.weight`.
    """
    renamed = {_OLD_DENSENET.sub(r"\1\2", name): value for name, value in state.items()}
    return {name: value for name, value in renamed.items() if not name.startswith(AUXILIARY_HEADS)}


def _geometry_and_normalisation(model: TorchvisionModel, record: Any) -> tuple[ResizeCrop, Normalise]:
    """Resize, crop and normalisation of torchvision's record of weights, with the model's own values over them."""
    preset = record.transforms()
    crop = preset.crop_size[0]
    side = preset.resize_size[0]
    interpolation = model.interpolation or preset.interpolation.value
    geometry = resize_crop(crop, side, model.input_size, model.crop_pct, interpolation)
    return geometry, Normalise(tuple(preset.mean), tuple(preset.std))
