"""He's residual network for 32-pixel images: `model=cifar_resnet20`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fca.geometry import ResizeCrop
from fca.models.inputs import IMAGENET_MEAN, IMAGENET_STD, Normalise, class_keys
from fca.models.labels import file_label
from fca.models.weights import identity_of, with_weights
from fca.nouns import Classifier, FcaError

HEAD = "linear"


@dataclass(frozen=True)
class CifarResNet:
    """The network of arXiv:1512.03385, section 4.2, with shortcuts of option A; 32 pixels, ImageNet mean and std.

    depth:   6 n + 2 layers: 20, 32, 44, 56, 110.
    weights: path of a state dict; null = from scratch.    classes: class keys of its logits, in their order.
    """

    depth: int
    weights: str | None
    classes: Any

    def label(self) -> str:
        """The depth says it all."""
        return f"cifar_resnet{self.depth}"

    def weights_label(self) -> str | None:
        """The name of the file."""
        return file_label(self.weights)

    def identity(self) -> dict[str, Any]:
        """Depth, content of the weights file, and what its logits mean."""
        if self.depth < 8 or self.depth % 6 != 2:
            allowed = "6 n + 2 layers: 8, 14, 20, 32, 44, 56, 110, ..."
            raise FcaError("model.depth", self.depth, allowed, "set model.depth to one of these")
        return identity_of("cifar_resnet", self)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model."""
        from fca.models.cifar_resnet_network import Network

        def make(logits: int) -> Network:
            return Network(self.depth, logits)

        module, keys = with_weights(make, (HEAD,), self.weights, class_keys(self.classes), classes)
        assert isinstance(module, Network)
        return Classifier(
            module=module,
            classes=keys,
            geometry=ResizeCrop(32),
            normalise=Normalise(IMAGENET_MEAN, IMAGENET_STD),
            embed=module.embed,
            head=module.linear if keys else None,
        )
