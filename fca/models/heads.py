"""Where a network of another library ends: its layer of logits, and what that layer sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fca.types import Classifier, FcaError, Geometry

Layer = Callable[[Tensor], Tensor]
MARK = 7919  # logits of a network that is built only to be looked at: a prime, so no other layer is as wide


def layers_of(module: nn.Module, logits: int) -> tuple[str, ...]:
    """Names of the layers with so many outputs, in their order.

    >>> layers_of(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5)), 5)
    ('1',)
    """
    widths = {
        name: layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    }
    return tuple(name for name, width in widths.items() if width == logits)


def looked_at(make: Callable[[int], nn.Module]) -> tuple[str, ...]:
    """Names of the layers that give the logits of the networks that `make` makes from a number of logits.

    Draws no random numbers that a later network would miss, and fills no memory where the network can do without.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                module = make(MARK)
        except NotImplementedError:  # it reads its own first weights (regnet)
            module = make(MARK)
    return layers_of(module, MARK)


def with_or_without(network: Callable[[int], nn.Module], head: Sequence[str]) -> Callable[[int], nn.Module]:
    """Number of logits -> network; for 0 the identity stands for its layers of logits, and it gives its features."""

    def make(logits: int) -> nn.Module:
        module = network(max(logits, 1))
        for name in () if logits else head:
            module.set_submodule(name, nn.Identity())
        return module

    return make


def classifier(
    module: nn.Module,
    keys: tuple[str, ...],
    head: Sequence[str],
    geometry: Geometry,
    normalise: Layer,
    refused: Callable[[Exception], FcaError],
) -> Classifier:
    """The network with its features and the layer over them, as `split` has it; without class keys an encoder."""
    if not keys:
        return Classifier(module, (), geometry, normalise, embed=module, head=None)
    last = module.get_submodule(head[-1])
    embed, layer = split(module, before(module, last), last, geometry.size, refused)
    return Classifier(module, keys, geometry, normalise, embed, layer)


def split(
    module: nn.Module, embed: Layer, head: Any, size: int, refused: Callable[[Exception], FcaError]
) -> tuple[Layer, Layer]:
    """Features and the layer over them, if that gives the logits; or else logits and the identity.

    The latter are networks that take the mean over several heads (deit_*_distilled, levit, crossvit, volo, ...) or pool
    behind their last layer (squeezenet).    refused: the error for a network that cannot take an image of this size.
    """
    trains = module.training
    module.eval()
    image = torch.linspace(-1, 1, 3 * size * size).view(1, 3, size, size)
    with torch.no_grad(), _ramps(head):  # not inference_mode: some networks keep tensors of their first pass
        try:
            logits = module(image)
        except Exception as error:  # each network says in its own way that a size does not fit
            raise refused(error) from error
        if not isinstance(logits, Tensor):
            raise refused(TypeError(f"it answers with a {type(logits).__name__}, not with logits"))
        try:
            features = embed(image)
            holds = features.ndim == 2 and torch.equal(logits, head(features))
        except (IndexError, NotImplementedError, RuntimeError, TypeError):  # a list of heads; another shape
            holds = False
    module.train(trains)
    return (embed, head) if holds else (module, nn.Identity())


@contextmanager
def _ramps(head: Any) -> Iterator[None]:
    """Other weights for a while: heads that begin with zeros would agree with anything."""
    weights = list(head.parameters()) if isinstance(head, nn.Module) else []
    kept = [weight.clone() for weight in weights]
    for weight in weights:
        weight.copy_(torch.linspace(-1, 1, weight.numel()).view_as(weight))
    try:
        yield
    finally:
        for weight, old in zip(weights, kept, strict=True):
            weight.copy_(old)


def before(module: nn.Module, layer: nn.Module) -> Layer:
    """What a layer of a network is given when the network sees images."""

    def embed(images: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            module(images)
        finally:
            handle.remove()
        return seen[0]

    return embed
