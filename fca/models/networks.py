"""Built networks, imported inside `build` only: their weights, networks of ours, layers of logits and features."""

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

from fca.finite import broken_tensors
from fca.models import check_built, check_count, no_weights
from fca.models.checkpoints import BATCH_COUNT, SHOWN_NAMES, Names, Tidy, belongs, read_weights
from fca.types import Classifier, FcaError, Geometry, Model
from fca.validation import has_type

Layer = Callable[[Tensor], Tensor]
Make = Callable[[int], nn.Module]  # number of logits -> network
Refuse = Callable[[Exception], FcaError]
MARKER_WIDTH = 7919  # logits of a network that is built only to find its head: a prime, so no other layer is as wide

# Networks with their weights


def with_weights(
    make: Make, head: Names, weights: str | None, file_keys: Names, classes: Names | None, tidy: Tidy = dict
) -> tuple[nn.Module, tuple[str, ...]]:
    """Build a network with its weights; return it and the class keys (names of classes) of its logits.

    The result is a network with random weights, a network with the weights and the head of a file, a network with a
    file's weights and a fresh head, or an encoder without a head. `weights`, `file_keys` and `classes` decide which.

    make:      number of logits -> network with random weights; 0 = without a head.
    head:      names of the modules that give the logits.
    weights:   path of a file; None = random weights, for which `classes` are needed.
    file_keys: class keys of the logits in the file; empty when it has no logits or their classes are unknown.
    classes:   class keys to train for: a fresh head for them takes the place of the file's. None = nothing is trained:
               the file's own head is kept if `file_keys` are given, else the network has no head.
    tidy:      state dict of the file -> the same under the network's names, without tensors that it does not need.

    Raises FcaError for weights that do not fit (naming the tensors), for another number of logits than class keys, and
    if neither weights nor classes are given.
    """
    if weights is None:
        keys = tuple(trainable(classes))
        return make(len(keys)), keys

    keys = tuple(file_keys if classes is None else classes)
    module = make(len(keys))  # without class keys it has no head
    state = read_weights(weights, module.state_dict(), head, tidy)

    fresh = head  # the modules that keep random weights
    if classes is None and file_keys:  # the head of the file stays
        fresh = ()
        # Counts of batches (BATCH_COUNT) may be missing: older files lack them, and no prediction needs them.
        outside_head = [name for name in module.state_dict() if not belongs(name, head)]
        has_all_outside_head = all(name in state or name.endswith(BATCH_COUNT) for name in outside_head)
        # Otherwise the file is of another network. Then the head is not checked here, because the error that
        # `fit_weights` raises below is more useful: it names the tensors that are missing.
        if has_all_outside_head:
            _check_head_has_logit_per_key(state, head, file_keys, weights)

    state = {name: value for name, value in state.items() if not belongs(name, fresh)}
    fit_weights(module, state, fresh, weights)
    return module, keys


def trainable(classes: Names | None) -> Names:
    """The classes to train for. Raises FcaError for None: a network with random weights can only be trained."""
    if classes is None:
        raise no_weights()
    return classes


def fit_weights(module: nn.Module, state: Mapping[str, Tensor], fresh: Names, name: str) -> None:
    """Copy a state dict into a network (`module`) in place.

    state: tensor name -> tensor.
    fresh: names of modules that may keep their random weights; every other tensor of the network must be in `state`.
    name:  the file's name, for messages.

    Raises FcaError, naming the tensors, for the first of these problems: tensors that are no plain floating-point
    numbers (such as integers of a quantised network), other shapes, missing or unexpected names, NaN or infinity.
    """
    _check_number_types(module, state, name)

    # A state dict may carry version numbers of modules. Only the root module gets one here, since MNASNet requires it.
    # Layers without a version number take the file for an old one: they rename tensors that older versions of their
    # library named differently.
    versioned = OrderedDict(state)
    versioned._metadata = {"": {"version": module._version}}  # type: ignore[attr-defined]
    try:
        differences = module.load_state_dict(versioned, strict=False)
    except RuntimeError as error:  # even without strict, torch raises this for other shapes, one line for each tensor
        error_lines = str(error).splitlines()[1:]  # after the heading
        keys_by_problem = {"misshaped": [line.strip().removeprefix("size mismatch for ") for line in error_lines]}
    else:
        keys_by_problem = {
            "missing": [key for key in differences.missing_keys if not belongs(key, fresh)],
            "unexpected": sorted(differences.unexpected_keys),
        }

    problems = [f"{len(keys)} {kind}: {_first_names(keys)}" for kind, keys in keys_by_problem.items() if keys]
    if problems:
        allowed = f"the {len(module.state_dict())} keys of this network; {'; '.join(problems)}"
        raise FcaError("model.weights", name, allowed, "choose the model that these weights belong to")
    check_finite_weights(module, state, name)


def _first_names(names: Names) -> str:
    """The first SHOWN_NAMES of these names, for a message, with an ellipsis if there are more."""
    return ", ".join(names[:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")


def _check_number_types(module: nn.Module, state: Mapping[str, Tensor], name: str) -> None:
    """Raise FcaError for tensors that torch cannot copy into the network, or would copy as other weights.

    These are integer or complex values of parameters (the integers of a quantised network would lack their scales), and
    tensors that are quantised, sparse or without values (device meta).

    module: the network.
    state:  tensor name -> tensor, from the file.
    name:   the file's name.
    """
    parameters = dict(module.named_parameters())
    unsuitable = []
    for key, value in state.items():
        has_values = value.layout == torch.strided and not value.is_meta  # neither sparse nor without memory
        is_buffer = key not in parameters  # which may be integers, such as counts
        has_suitable_type = is_buffer or value.dtype == parameters[key].dtype or value.is_floating_point()
        if has_values and has_suitable_type and not value.is_quantized:
            continue

        kind: object = value.dtype
        if value.is_meta:
            kind = "meta"
        elif not has_values:
            kind = value.layout
        unsuitable.append(f"{key} ({str(kind).removeprefix('torch.')})")

    if unsuitable:
        counts = f"{len(unsuitable)} of {len(state)} tensors"
        allowed = f"floating-point numbers; of other kinds are {counts}: {_first_names(unsuitable)}"
        step = "take the weights as they were before quantisation or conversion"
        raise FcaError("model.weights", name, allowed, step)


def check_finite_weights(module: nn.Module, state: Mapping[str, Tensor], name: str) -> None:
    """Raise FcaError, naming the first tensors, if a state dict holds NaN or infinity.

    name: the file's name.
    """
    broken = broken_tensors(state, {parameter for parameter, _ in module.named_parameters()})
    if broken:
        allowed = f"finite numbers; NaN or infinite are {len(broken)} of {len(state)} tensors: {_first_names(broken)}"
        raise FcaError("model.weights", name, allowed, "take weights of a training that did not diverge")


# Networks that fca trained


def restored(model: Model, path: Path, trained_keys: Names, classes: Names | None) -> Classifier:
    """The network that a model builds, with the weights that its training stored in a file.

    path:         the file, which must have exactly the tensors of the network.
    trained_keys: class keys (names of classes) of the stored logits.
    classes:      None = build the network for the same classes. Otherwise it gets a fresh head for these classes, and
                  every tensor whose shape does not depend on the number of classes comes from the file.

    The network is first built without the weights that its training began with, since their file may be gone by now.
    Raises FcaError, naming the tensors, for a network that the stored tensors do not fit.
    """
    scratch = _from_scratch(model)  # the model without the weights that its training began with
    keys = list(trained_keys if classes is None else classes)
    built = scratch.build(keys)
    check_built(model, built, keys)

    fresh = [] if classes is None else _names_dependent_on_classes(scratch, built, keys)
    state = {name: value for name, value in load_file(path).items() if name not in fresh}
    try:
        fit_weights(built.module, state, fresh, str(path))
    except FcaError as error:
        # The step of that error, to choose another model, does not help here: `build` has changed since the training.
        _, _, allowed, _ = error.args  # key, value, allowed values, next step
        kind = type(model).__qualname__
        step = f"let `build` of {kind} give the network that was trained, or train it again"
        raise FcaError(f"weights for what {kind} builds", path, allowed, step) from error
    return built


def _from_scratch(model: Any) -> Model:
    """The model without the weights that its training began with: their file may be gone by now.

    A user's model whose field `weights` may not be None stays as it is.
    """
    has_weights_field = any(field.name == "weights" for field in fields(model))
    if not has_weights_field or model.weights is None:
        return model
    hints = get_type_hints(type(model))
    return replace(model, weights=None) if has_type(None, hints["weights"]) else model


def _names_dependent_on_classes(model: Model, built: Classifier, keys: Names) -> list[str]:
    """Names of the tensors whose shape depends on the number of classes, such as the tensors of a head.

    They are found by building the network once more for one class more.

    keys: the classes that `built` was built for.
    """
    with torch.random.fork_rng(devices=[]):  # networks that are built later draw the same weights as without this one
        larger = model.build([*keys, "one more class"])
    larger_shapes = {name: value.shape for name, value in larger.module.state_dict().items()}
    return [name for name, value in built.module.state_dict().items() if larger_shapes.get(name) != value.shape]


def _check_head_has_logit_per_key(state: Mapping[str, Tensor], head: Names, file_keys: Names, name: str) -> None:
    """Raise FcaError unless a file's state dict has a head, with one logit for each class key.

    head: names of the modules that give the logits.
    name: the file's name, for messages.
    """
    head_weights = [state[f"{module}.weight"] for module in head if f"{module}.weight" in state]
    if not head_weights:
        step = "train a head for them (task=train), or use them as an encoder (model.classes=null)"
        raise FcaError("model.weights", name, f"weights with a head ({', '.join(head)}); these have none", step)
    check_count(file_keys, len(head_weights[0]), f"the logits in {name}")


# Networks of ours


class CifarBlock(nn.Module):
    """Residual block of two 3x3 layers F: y = relu(F(x) + shortcut(x)).

    The shortcut has no weights (option A of arXiv:1512.03385): the identity, or, where the number of channels grows,
    every `stride`-th pixel with channels of zeros added.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Make a block from `inputs` to `outputs` channels, whose first convolution has this stride."""
        super().__init__()
        self.conv1 = _conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv3x3(outputs, outputs, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.added_channels = outputs - inputs

    def forward(self, x: Float[Tensor, "batch inputs h w"]) -> Float[Tensor, "batch outputs h2 w2"]:
        """y = relu(F(x) + shortcut(x)); h2 and w2 are h and w over the stride."""
        residual = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        if self.added_channels:
            # Option A: take every `stride`-th pixel, and add half of the zero channels on either side.
            n_below = self.added_channels // 2
            n_above = self.added_channels - n_below
            x = pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, n_below, n_above))
        return relu(residual + x)


class CifarNetwork(nn.Module):
    """The residual network for small images of arXiv:1512.03385, section 4.2, of depth = 6 n + 2 layers.

    A 3x3 convolution, three stages of n blocks with 16, 32 and 64 channels, the mean over the image, one linear layer.
    logits: number of outputs of the linear layer; 0 = there is none, and the network gives its features.
    """

    def __init__(self, depth: int, logits: int) -> None:
        """Make the residual network for small images of arXiv:1512.03385, section 4.2, with random weights.

        depth:  6 n + 2 layers: the first convolution, three stages of n blocks with two convolutions each, and the
                linear layer.
        logits: outputs of the linear layer; 0 = without a linear layer.
        """
        super().__init__()
        blocks_per_stage = (depth - 2) // 6  # n

        def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            """Blocks of which the first changes the number of channels and has the stride."""
            first_block = CifarBlock(inputs, outputs, stride)
            other_blocks = (CifarBlock(outputs, outputs, 1) for _ in range(blocks_per_stage - 1))
            return nn.Sequential(first_block, *other_blocks)

        self.conv1 = _conv3x3(3, 16, 1)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(16, 16, 1)
        self.layer2 = stage(16, 32, 2)
        self.layer3 = stage(32, 64, 2)
        self.linear = nn.Linear(64, logits) if logits else nn.Identity()
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)  # of arXiv:1502.01852, as in arXiv:1512.03385

    def embed(self, x: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch features"]:
        """The mean over the last feature map: 64 numbers an image."""
        maps: Tensor = self.layer3(self.layer2(self.layer1(relu(self.bn1(self.conv1(x))))))
        return maps.mean((2, 3))

    def forward(self, x: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch logits"]:
        return self.linear(self.embed(x))


def _conv3x3(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class Tower(nn.Module):
    """OpenCLIP's image tower, which ends in a projection to its features, and a layer over them (or the identity)."""

    def __init__(self, visual: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.visual = visual
        self.head = head

    def embed(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch features"]:
        """The projected features, not scaled to unit length."""
        features: Any = self.visual(images)
        return features[0] if isinstance(features, tuple) else features  # CoCa's tower returns tokens, too

    def forward(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch logits"]:
        return self.head(self.embed(images))


class ZeroShot(nn.Module):
    """Zero-shot logits of CLIP: exp(scale) cos(features, texts) + bias.

    texts: one unit vector for each class.
    """

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
        self.encoder = encoder.module
        self.head = head
        self.embed = encoder.embed

    def forward(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch logits"]:
        return self.head(self.embed(images))


# The layer of logits in a network of another library, and its input


def logit_layers(make: Make) -> tuple[str, ...]:
    """Names of the layers that give the logits in a library's networks, found by building one with a marked width.

    make: number of logits -> network. It is called with MARKER_WIDTH, a large prime, which is no width of other layers.
    So a linear layer or convolution with this number of outputs gives logits. The state of torch's random numbers does
    not change.

    >>> logit_layers(lambda logits: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, logits)))
    ('1',)
    """
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):  # only shapes are needed: no memory is filled
                module = make(MARKER_WIDTH)
        except NotImplementedError:  # a network that reads its own first weights while it is built (regnet)
            module = make(MARKER_WIDTH)

    names = []
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            width = layer.out_features
        elif isinstance(layer, nn.Conv2d):
            width = layer.out_channels
        else:
            continue
        if width == MARKER_WIDTH:
            names.append(name)
    return tuple(names)


def with_optional_head(network: Make, head: Names) -> Make:
    """Extend a function that makes networks with 1 or more logits, so that 0 makes a network without a head.

    head: names of the layers that give the logits. In a network without a head the identity takes their place, so the
    network gives its features.
    """

    def make(logits: int) -> nn.Module:
        """The network with this number of logits, or without a head for 0."""
        if logits:
            return network(logits)

        module = network(1)  # libraries build none with 0 logits
        for name in head:
            module.set_submodule(name, nn.Identity())
        return module

    return make


def classifier(
    module: nn.Module, keys: tuple[str, ...], head: Names, geometry: Geometry, normalise: Layer, refuse: Refuse
) -> Classifier:
    """The Classifier of a network: its features, and the layer that turns them into logits, are found by `split`.

    keys:   class keys of the logits; empty for a network without a head, which becomes an encoder.
    head:   names of the layers that give the logits.
    refuse: turns an error of the network into the FcaError to raise.
    """
    if not keys:
        return Classifier(module, (), geometry, normalise, embed=module, head=None)
    last = module.get_submodule(head[-1])  # of several heads `split` finds that the last alone gives no logits
    embed, layer = split(module, input_of(last, module), last, geometry.size, refuse)
    return Classifier(module, keys, geometry, normalise, embed, layer)


def split(module: nn.Module, embed: Layer, head: Any, size: int, refuse: Refuse) -> tuple[Layer, Layer]:
    """Split a network into features and the layer over them: logits = layer(features(images)).

    Most networks can be split: head(embed(images)) are their logits. This is checked on a test image, and `embed` and
    `head` are returned. Other networks take the mean over several heads (deit_*_distilled, levit, crossvit, volo, ...)
    or pool behind their last layer (squeezenet). For these the whole network and the identity are returned: their
    logits serve as features.

    embed:  images -> features.
    head:   features -> logits.
    size:   side of the test image in pixels.
    refuse: turns an error of the network, such as one for this size, into the FcaError to raise.
    """
    was_training = module.training
    module.eval()
    image = torch.linspace(-1, 1, 3 * size * size).view(1, 3, size, size)
    # A head of zeros would give 0 for any features, and so seem to fit. Therefore `_ramp_weights` gives the head other
    # weights while the two ways to compute logits are compared. no_grad is used instead of inference_mode, since some
    # networks keep tensors of their first pass, and a later training cannot use tensors made in inference_mode.
    with torch.no_grad(), _ramp_weights(head):
        try:
            logits = module(image)
        except Exception as error:  # every network refuses a size with errors of its own
            raise refuse(error) from error
        if not isinstance(logits, Tensor):
            raise refuse(TypeError(f"it answers with a {type(logits).__name__}, not with logits"))

        try:
            features = embed(image)
            head_gives_logits = features.ndim == 2 and torch.equal(logits, head(features))
        except (IndexError, NotImplementedError, RuntimeError, TypeError):  # a list of heads; another shape
            head_gives_logits = False

    module.train(was_training)
    return (embed, head) if head_gives_logits else (module, nn.Identity())


@contextmanager
def _ramp_weights(head: Any) -> Iterator[None]:
    """Fill each parameter of a head with values rising from -1 to 1, in the body of `with`; restore them afterwards.

    It needs `torch.no_grad`, since it changes parameters in place.
    `split` compares the network's logits with head(features). With a head of zeros both are 0, whatever the features.
    """
    weights = list(head.parameters()) if isinstance(head, nn.Module) else []
    original_weights = [weight.clone() for weight in weights]
    for weight in weights:
        weight.copy_(torch.linspace(-1, 1, weight.numel()).view_as(weight))
    try:
        yield
    finally:
        for weight, original in zip(weights, original_weights, strict=True):
            weight.copy_(original)


def input_of(layer: nn.Module, module: nn.Module) -> Layer:
    """Return a function that gives the input of one layer of a network for a batch of images.

    If the layer is the head of the network, these are the features.

    module: the whole network.
    """

    def embed(images: Tensor) -> Tensor:
        """Run the whole network on the images, and return what the layer received."""
        layer_inputs: list[Tensor] = []
        handle = layer.register_forward_pre_hook(lambda _, inputs: layer_inputs.append(inputs[0]))
        try:
            module(images)
        finally:
            handle.remove()
        return layer_inputs[0]

    return embed
