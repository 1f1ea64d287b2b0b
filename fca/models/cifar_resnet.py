"""He's residual network for 32-pixel images: `model=cifar_resnet20`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from fca.geometry import ResizeCrop
from fca.models import IMAGENET_MEAN, IMAGENET_STD, Normalise, class_keys, file_label, identity_of
from fca.types import Classifier, FcaError, Model
from fca.validation import Allowed


@dataclass(frozen=True)
class CifarResNet(Model):
    """The network of arXiv:1512.03385, section 4.2, with shortcuts of option A; 32 pixels, ImageNet mean and std.

    depth:   6 n + 2 layers: 20, 32, 44, 56, 110.
    weights: path of a state dict; null = from scratch.
    classes: class keys of its logits, in their order.
    """

    depth: Annotated[int, Allowed(8, 1202)]
    weights: str | None
    classes: Any

    def label(self) -> str:
        return f"cifar_resnet{self.depth}"

    def weights_label(self) -> str | None:
        return file_label(self.weights)

    def from_scratch(self) -> Model:
        return replace(self, weights=None)

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: all fields, with the weights by content.

        Raises FcaError for a depth that is not 6 n + 2.
        """
        if self.depth < 8 or self.depth % 6 != 2:
            allowed = "6 n + 2 layers: 8, 14, 20, 32, 44, 56, 110, ..."
            raise FcaError("model.depth", self.depth, allowed, "set model.depth to one of these")
        return identity_of("cifar_resnet", self)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The network with its weights, or with a fresh head for `classes`, to be trained.

        Without `classes` it is a classifier if the class keys of its weights are known, else an encoder.
        Raises FcaError if it has neither weights nor classes, and for weights that do not fit.
        """
        from fca.models.networks import CifarNetwork, with_weights

        module: Any
        make = partial(CifarNetwork, self.depth)
        head_names = ("linear",)
        module, keys = with_weights(make, head_names, self.weights, class_keys(self.classes), classes)
        head = module.linear if keys else None
        return Classifier(module, keys, ResizeCrop(32), Normalise(IMAGENET_MEAN, IMAGENET_STD), module.embed, head)
