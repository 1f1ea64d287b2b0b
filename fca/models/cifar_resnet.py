"""He's residual network for 32-pixel images: `model=cifar_resnet20`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from jaxtyping import Float

from fca.geometry import ResizeCrop
from fca.models import IMAGENET_MEAN, IMAGENET_STD, Normalise, class_keys, file_label, identity_of
from fca.types import Classifier, FcaError

if TYPE_CHECKING:
    from torch import Tensor, nn

HEAD = "linear"
WIDTHS = (16, 32, 64)


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
        """Name and depth."""
        return f"cifar_resnet{self.depth}"

    def weights_label(self) -> str | None:
        """The name of the file."""
        return file_label(self.weights)

    def identity(self) -> dict[str, Any]:
        """Depth, content of the weights file, and the meaning of its logits."""
        if self.depth < 8 or self.depth % 6 != 2:
            allowed = "6 n + 2 layers: 8, 14, 20, 32, 44, 56, 110, ..."
            raise FcaError("model.depth", self.depth, allowed, "set model.depth to one of these")
        return identity_of("cifar_resnet", self)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See fca.types.Model."""
        from fca.models.networks import with_weights

        def make(logits: int) -> nn.Module:
            return network(self.depth, logits)

        module, keys = with_weights(make, (HEAD,), self.weights, class_keys(self.classes), classes)
        embed: Any = module.embed
        head: Any = module.linear if keys else None
        return Classifier(module, keys, ResizeCrop(32), Normalise(IMAGENET_MEAN, IMAGENET_STD), embed, head)


@cache
def block() -> Any:
    """A class: y = relu(F(x) + shortcut(x)) with two 3x3 layers in F; the shortcut has no weights (option A)."""
    from torch import nn
    from torch.nn.functional import pad, relu

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
            self.conv2, self.bn2 = conv3x3(outputs, outputs, 1), nn.BatchNorm2d(outputs)
            self.stride, self.added = stride, outputs - inputs

        def forward(self, x: Float[Tensor, "batch inputs h w"]) -> Float[Tensor, "batch outputs h2 w2"]:
            residual = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
            if self.added:
                # Option A: every second pixel, and half of the added zero channels on either side.
                before = self.added // 2
                x = pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.added - before))
            return relu(residual + x)

    return Block


def network(depth: int, logits: int) -> nn.Module:
    """depth = 6 n + 2: a 3x3 stem, three stages of n blocks, mean over the image, one linear layer (or none)."""
    from torch import nn
    from torch.nn.functional import relu

    def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        later = (block()(outputs, outputs, 1) for _ in range((depth - 2) // 6 - 1))
        return nn.Sequential(block()(inputs, outputs, stride), *later)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv3x3(3, WIDTHS[0], 1), nn.BatchNorm2d(WIDTHS[0])
            self.layer1 = stage(WIDTHS[0], WIDTHS[0], 1)
            self.layer2 = stage(WIDTHS[0], WIDTHS[1], 2)
            self.layer3 = stage(WIDTHS[1], WIDTHS[2], 2)
            self.linear = nn.Linear(WIDTHS[2], logits) if logits else nn.Identity()
            for layer in self.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    nn.init.kaiming_normal_(layer.weight)  # arXiv:1502.01852, as in the paper

        def embed(self, x: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch features"]:
            """The mean over the last feature map: 64 numbers an image."""
            maps: Tensor = self.layer3(self.layer2(self.layer1(relu(self.bn1(self.conv1(x))))))
            return maps.mean((2, 3))

        def forward(self, x: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch logits"]:
            return self.linear(self.embed(x))

    return Network()


def conv3x3(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    """A 3x3 convolution that keeps the image's size at stride 1."""
    from torch import nn

    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
