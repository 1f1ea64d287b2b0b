"""A network at another depth: before the widening layer of its last stage, or at every depth from one pass.

timm's EfficientNet class (EfficientNet, MobileNetV2, MnasNet, MixNet, TinyNet, ...) ends in a 1x1 convolution
`conv_head` with its normalisation and activation `bn2`, which widens the last stage: from 320 channels to 1280 in
EfficientNet-Lite0. The network that is cut before it has fewer weights and fewer features.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fca.types import Classifier, FcaError


def has_widening(module: nn.Module) -> bool:
    """Whether a network is of timm's EfficientNet class and has a widening layer: a 1x1 convolution before its pooling.

    >>> has_widening(nn.Sequential(nn.Linear(2, 3)))
    False
    """
    # The attributes by which timm's EfficientNet class is recognised, without importing it.
    names = ("conv_stem", "bn1", "blocks", "bn2", "global_pool", "classifier", "reset_classifier", "num_features")
    if not all(hasattr(module, name) for name in names):
        return False
    return isinstance(getattr(module, "conv_head", None), nn.Conv2d)


def cut_before_widening(module: Any, classes: int) -> nn.Module:
    """Remove the widening layer of a network and give it a fresh head, in place; return the same network.

    module:  a network for which `has_widening` holds.
    classes: number of logits of the head; 0 = none, so that the network gives the pooled features.
    """
    module.num_features = module.conv_head.in_channels
    module.set_submodule("conv_head", nn.Identity())
    module.set_submodule("bn2", nn.Identity())
    module.reset_classifier(classes)
    return module


class EveryDepth(nn.Module):
    """Gives the features of every depth side by side, from one pass: first of the cut network, then of the whole.

    network: one for which `has_widening` holds; it loses its head.
    widths:  depth -> number of its features, in the order of the columns.
    """

    def __init__(self, network: Any) -> None:
        """Take the head off a network of timm, and note how many features each depth has.

        network: a network with a widening layer, a convolution before its head that multiplies the channels
                 (`conv_head`). Depth `cut` ends before this layer, depth `whole` after it.
        """
        super().__init__()
        network.reset_classifier(0)
        n_pools = network.global_pool.feat_mult()  # features per channel: 2 if the pooling gives mean and maximum
        self.widths = {
            "cut": network.conv_head.in_channels * n_pools,
            "whole": network.num_features * n_pools,
        }
        self.network = network

    def forward(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch features"]:
        """The pooled features of both depths, as the network's head would get them."""
        network = self.network
        cut_maps = network.blocks(network.bn1(network.conv_stem(images)))
        whole_maps = network.bn2(network.conv_head(cut_maps))
        cut_features = network.forward_head(cut_maps, pre_logits=True)
        whole_features = network.forward_head(whole_maps, pre_logits=True)
        return torch.cat([cut_features, whole_features], dim=1)


def columns_of_depth(classifier: Classifier, depth: str) -> slice:
    """The columns that belong to one depth in the features of a model that was built with depth=all.

    classifier: the built model, which gives the features of every depth side by side.
    depth:      cut (the network before the widening layer of its last stage) or whole (the complete network).

    Raises FcaError if the model was built with another setting of depth, and for a depth that it does not have.

    >>> from fca import load_model
    >>> encoder = load_model("efficientnet_lite0", weights="package", depth="all").build()
    >>> columns_of_depth(encoder, "cut"), columns_of_depth(encoder, "whole")
    (slice(0, 320, None), slice(320, 1600, None))
    """
    if not isinstance(classifier.module, EveryDepth):
        allowed = "a depth of a network that gives the features of every depth"
        raise FcaError("depth", depth, allowed, "build the model with model.depth=all")
    widths = classifier.module.widths
    if depth not in widths:
        raise FcaError("depth", depth, ", ".join(widths), "take one of these")
    names = list(widths)
    start = sum(widths[name] for name in names[: names.index(depth)])  # the features of the depths before this one
    return slice(start, start + widths[depth])
