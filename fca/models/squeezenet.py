"""torchvision's SqueezeNet 1.0 (arXiv:1602.07360): `model=squeezenet1_0`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fca.geometry import ResizeCrop
from fca.models.inputs import IMAGENET_MEAN, IMAGENET_STD, Normalise, class_keys
from fca.models.weights import file_label, identity_of, with_weights
from fca.nouns import Classifier

if TYPE_CHECKING:
    from torch import nn

HEAD = "classifier.1"


@dataclass(frozen=True)
class SqueezeNet:
    """1.2 million weights; ImageNet mean and std.

    weights: path of a state dict; null = from scratch.    classes: class keys of its logits, in their order.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.

    It pools behind its last convolution, not before it. So a classifier's pooled features ARE its logits (its head is
    the identity); without a head they are the mean of the last feature map, 512 numbers.
    """

    weights: str | None
    classes: Any
    input_size: int
    crop_pct: float
    interpolation: str

    def label(self) -> str:
        """The same for every width of head."""
        return "squeezenet1_0"

    def weights_label(self) -> str | None:
        """The name of the file."""
        return file_label(self.weights)

    def identity(self) -> dict[str, Any]:
        """Input, content of the weights file, and what its logits mean."""
        return identity_of("squeezenet1_0", self)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model."""
        from torch import nn

        module, keys = with_weights(network, (HEAD,), self.weights, class_keys(self.classes), classes)
        return Classifier(
            module=module,
            classes=keys,
            geometry=ResizeCrop(self.input_size, self.crop_pct, self.interpolation),
            normalise=Normalise(IMAGENET_MEAN, IMAGENET_STD),
            embed=module,
            head=nn.Identity() if keys else None,
        )


def network(logits: int) -> nn.Module:
    """The network with random weights; without logits it ends with the mean of its last feature map."""
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    from torch import nn
    from torchvision.models import squeezenet1_0

    module: nn.Module = squeezenet1_0(num_classes=max(logits, 1))
    if not logits:
        module.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1))
    return module
