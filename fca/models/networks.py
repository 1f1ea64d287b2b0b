"""Built networks, imported inside `build` only: with their weights; ours; layers of logits and their features."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import linear, normalize, pad, relu

from fca.allowed import fits
from fca.finite import broken_tensors
from fca.models import check_built, check_count, no_weights
from fca.models.checkpoints import COUNT, SHOWN, Names, Tidy, belongs, read_weights
from fca.types import Classifier, FcaError, Geometry, Model

Layer = Callable[[Tensor], Tensor]
Make = Callable[[int], nn.Module]  # number of logits -> network
Refuse = Callable[[Exception], FcaError]
MARK = 7919  # logits of a network that is built only to find its head: a prime, so no other layer is as wide

# Networks with their weights


def with_weights(
    make: Make, head: Names, weights: str | None, known: Names, classes: Names | None, tidy: Tidy = dict
) -> tuple[nn.Module, tuple[str, ...]]:
    """A network with its weights, and the class keys of its logits.

    make:    number of logits -> network with random weights; 0 = without a head.
    head:    names of the modules that give the logits.
    known:   class keys of the logits in the file; empty when it has none or they are unknown.
    classes: to train anew: the file's head, if any, is replaced by a fresh one of these classes.
    tidy:    for files whose keys are not yet those of the network; see `read_weights`.

    Without `classes` the file's own head is kept, or none if `known` is empty. Raises FcaError for weights that do
    not fit (which keys), another number of logits than class keys, and neither weights nor classes.
    """
    if weights is None:
        return make(len(trainable(classes))), tuple(classes or ())
    kept = tuple(known if classes is None else classes)
    module = make(len(kept))
    state = read_weights(weights, module.state_dict(), head, tidy)
    if classes is None and known:
        names = module.state_dict()
        is_whole_below = all(name in state or belongs(name, head) or name.endswith(COUNT) for name in names)
        if is_whole_below:  # else it is another network, of which `fit_weights` names what is missing
            _check_head(state, head, known, weights)
        head = ()  # the own one of the file stays
    state = {key: value for key, value in state.items() if not belongs(key, head)}
    fit_weights(module, state, head, weights)
    return module, kept


def trainable(classes: Names | None) -> Names:
    """The classes to train for; raises FcaError if there are none: random weights can be trained, and nothing else."""
    if classes is None:
        raise no_weights()
    return classes


def fit_weights(module: nn.Module, state: Mapping[str, Tensor], fresh: Names, name: str) -> None:
    """Put a state dict into a network, key by key; only modules named in `fresh` may keep their random weights.

    Layers rename the keys of older files, as their libraries wrote them to: no file records which version it has.
    Raises FcaError naming those that are no plain numbers with a fraction (integers of a quantised network, ...),
    misshaped keys, or else missing and unexpected ones, or those that hold NaN or infinity.
    """
    _check_kinds(module, state, name)
    versioned = OrderedDict(state)
    versioned._metadata = {"": {"version": module._version}}  # type: ignore[attr-defined]  # MNASNet asks for its own
    try:
        found = module.load_state_dict(versioned, strict=False)
    except RuntimeError as error:
        misshaped = [line.strip().removeprefix("size mismatch for ") for line in str(error).splitlines()[1:]]
        problems = {"misshaped": misshaped}
    else:
        missing = [key for key in found.missing_keys if not belongs(key, fresh)]
        problems = {"missing": missing, "unexpected": sorted(found.unexpected_keys)}
    listed = [
        f"{len(keys)} {kind}: {', '.join(keys[:SHOWN])}{', ...' if len(keys) > SHOWN else ''}"
        for kind, keys in problems.items()
        if keys
    ]
    if listed:
        allowed = f"the {len(module.state_dict())} keys of this network; {'; '.join(listed)}"
        raise FcaError("model.weights", name, allowed, "choose the model that these weights belong to")
    check_finite_weights(module, state, name)


def _check_kinds(module: nn.Module, state: Mapping[str, Tensor], name: str) -> None:
    """Raise FcaError for tensors that torch would convert to other weights, or cannot copy.

    Integers of a quantised network lack their scales here, complex numbers would lose a part.
    """
    parameters = dict(module.named_parameters())
    wrong = []
    for key, value in state.items():
        has_values = value.layout == torch.strided and not value.is_meta
        is_plain = has_values and not value.is_quantized
        has_fraction = key not in parameters or value.dtype == parameters[key].dtype or value.is_floating_point()
        if not (is_plain and has_fraction):
            kind = str(value.dtype if has_values else "meta" if value.is_meta else value.layout).removeprefix("torch.")
            wrong.append(f"{key} ({kind})")
    if wrong:
        listed = ", ".join(wrong[:SHOWN]) + (", ..." if len(wrong) > SHOWN else "")
        allowed = f"floating-point numbers; of other kinds are {len(wrong)} of {len(state)} tensors: {listed}"
        raise FcaError(
            "model.weights", name, allowed, "take the weights as they were before quantisation or conversion"
        )


def check_finite_weights(module: nn.Module, state: Mapping[str, Tensor], name: str) -> None:
    """Raise FcaError for weights that hold NaN or infinity, with the first tensors that do."""
    broken = broken_tensors(state, {parameter for parameter, _ in module.named_parameters()})
    if broken:
        listed = ", ".join(broken[:SHOWN]) + (", ..." if len(broken) > SHOWN else "")
        allowed = f"finite numbers; NaN or infinite are {len(broken)} of {len(state)} tensors: {listed}"
        raise FcaError("model.weights", name, allowed, "take weights of a training that did not diverge")


# Networks that a training of ours left


def restored(model: Model, path: Path, trained: Names, classes: Names | None) -> Classifier:
    """The network that a model builds, with the weights that its training stored in a file: every tensor of both.

    trained: class keys of the stored logits.    classes: None = those; others: a fresh head for them, which is all that
    depends on how many there are, over the stored rest.

    Whatever the model itself knows of weights, it builds from scratch: so any model can be restored.
    Raises FcaError for a network that the stored tensors do not fit, naming them.
    """
    scratch = _from_scratch(model)
    keys = list(trained if classes is None else classes)
    built = scratch.build(keys)
    check_built(model, built, keys)
    fresh = [] if classes is None else _dependent_on(scratch, built, keys)
    state = {name: value for name, value in load_file(path).items() if name not in fresh}
    try:
        fit_weights(built.module, state, fresh, str(path))
    except FcaError as error:
        _, _, allowed, _ = error.args
        kind = type(model).__qualname__
        step = f"let `build` of {kind} give the network that was trained, or train it again"
        raise FcaError(f"weights for what {kind} builds", path, allowed, step) from error
    return built


def _from_scratch(model: Any) -> Model:
    """The model without the weights that its training began with, which may be gone by now."""
    hints = get_type_hints(type(model))
    has_weights = any(field.name == "weights" for field in fields(model)) and model.weights is not None
    return replace(model, weights=None) if has_weights and fits(None, hints["weights"]) else model


def _dependent_on(model: Model, built: Classifier, keys: Names) -> list[str]:
    """Names of the tensors whose shape depends on how many classes there are, as those of a head.

    The random numbers of what is built later stay as they are.
    """
    with torch.random.fork_rng(devices=[]):
        larger = model.build([*keys, "one more class"])
    shapes = {name: value.shape for name, value in larger.module.state_dict().items()}
    return [name for name, value in built.module.state_dict().items() if shapes.get(name) != value.shape]


def _check_head(state: Mapping[str, Tensor], head: Names, known: Names, name: str) -> None:
    logits = [len(state[key]) for key in (f"{part}.weight" for part in head) if key in state]
    if not logits:
        keys = ", ".join(head)
        step = "train a head for them (task=train), or use them as an encoder (model.classes=null)"
        raise FcaError("model.weights", name, f"weights with a head ({keys}); these have none", step)
    check_count(known, logits[0], f"the logits in {name}")


# Networks of ours


class CifarBlock(nn.Module):
    """y = relu(F(x) + shortcut(x)) with two 3x3 layers in F; the shortcut has no weights (option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = _conv3x3(outputs, outputs, 1), nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x: Float[Tensor, "batch inputs h w"]) -> Float[Tensor, "batch outputs h2 w2"]:
        residual = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        if self.added:
            # Option A: every second pixel, and half of the added zero channels on either side.
            before = self.added // 2
            x = pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.added - before))
        return relu(residual + x)


class CifarNetwork(nn.Module):
    """depth = 6 n + 2: a 3x3 stem, three stages of n blocks, mean over the image, one linear layer (or none)."""

    def __init__(self, depth: int, logits: int) -> None:
        super().__init__()

        def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            later = (CifarBlock(outputs, outputs, 1) for _ in range((depth - 2) // 6 - 1))
            return nn.Sequential(CifarBlock(inputs, outputs, stride), *later)

        self.conv1, self.bn1 = _conv3x3(3, 16, 1), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2)
        self.linear = nn.Linear(64, logits) if logits else nn.Identity()
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)  # arXiv:1502.01852, as in the paper

    def embed(self, x: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch features"]:
        """The mean over the last feature map: 64 numbers an image."""
        maps: Tensor = self.layer3(self.layer2(self.layer1(relu(self.bn1(self.conv1(x))))))
        return maps.mean((2, 3))

    def forward(self, x: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch logits"]:
        return self.linear(self.embed(x))


def _conv3x3(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class Tower(nn.Module):
    """OpenCLIP's image tower and a layer over its projected features (or none)."""

    def __init__(self, visual: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.visual, self.head = visual, head

    def embed(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch features"]:
        """Behind the projection, not of unit length."""
        features: Any = self.visual(images)
        return features[0] if isinstance(features, tuple) else features  # CoCa's tower also gives tokens

    def forward(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch logits"]:
        return self.head(self.embed(images))


class ZeroShot(nn.Module):
    """A layer: exp(scale) cos(features, texts) + bias; `texts` are unit vectors, one a class."""

    def __init__(self, texts: Float[Tensor, "classes features"], scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", scale.exp() * texts)
        self.register_buffer("bias", None if bias is None else bias.expand(len(texts)).clone())

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch classes"]:
        return linear(normalize(features, dim=-1), self.weight, self.bias)  # type: ignore[arg-type]


class Joined(nn.Module):
    """An encoder and a layer over its features as one module, so that both move to a device together."""

    def __init__(self, encoder: Classifier, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head, self.embed = encoder.module, head, encoder.embed

    def forward(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch logits"]:
        return self.head(self.embed(images))


# The layer of logits in a network of another library, and what it is given


def logit_layers(make: Make) -> tuple[str, ...]:
    """Names of the layers that give the logits, in the networks that `make` makes from a number of logits.

    The random numbers of a later network stay as they are; no memory is filled where the network allows it.

    >>> logit_layers(lambda logits: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, logits)))
    ('1',)
    """
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                module = make(MARK)
        except NotImplementedError:  # it reads its own first weights (regnet)
            module = make(MARK)
    widths = {
        name: layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    }
    return tuple(name for name, width in widths.items() if width == MARK)


def with_or_without(network: Make, head: Names) -> Make:
    """Number of logits -> network; for 0 its layers of logits are the identity, so that it gives its features."""

    def make(logits: int) -> nn.Module:
        module = network(max(logits, 1))
        for name in () if logits else head:
            module.set_submodule(name, nn.Identity())
        return module

    return make


def classifier(
    module: nn.Module, keys: tuple[str, ...], head: Names, geometry: Geometry, normalise: Layer, refuse: Refuse
) -> Classifier:
    """The network with its features and the layer over them (see `split`); without class keys an encoder."""
    if not keys:
        return Classifier(module, (), geometry, normalise, embed=module, head=None)
    last = module.get_submodule(head[-1])
    embed, layer = split(module, input_of(last, module), last, geometry.size, refuse)
    return Classifier(module, keys, geometry, normalise, embed, layer)


def split(module: nn.Module, embed: Layer, head: Any, size: int, refuse: Refuse) -> tuple[Layer, Layer]:
    """Features and the layer over them, if that gives the logits; or else logits and the identity.

    The latter are networks that take the mean over several heads (deit_*_distilled, levit, crossvit, volo, ...) or pool
    behind their last layer (squeezenet).    refuse: the error for a network that cannot take an image of this size.
    """
    trains = module.training
    module.eval()
    image = torch.linspace(-1, 1, 3 * size * size).view(1, 3, size, size)
    with torch.no_grad(), _ramps(head):  # not inference_mode: some networks keep tensors of their first pass
        try:
            logits = module(image)
        except Exception as error:  # every network refuses a size with errors of its own
            raise refuse(error) from error
        if not isinstance(logits, Tensor):
            raise refuse(TypeError(f"it answers with a {type(logits).__name__}, not with logits"))
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


def input_of(layer: nn.Module, module: nn.Module) -> Layer:
    """Images -> the input of one of the network's layers."""

    def embed(images: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            module(images)
        finally:
            handle.remove()
        return seen[0]

    return embed
