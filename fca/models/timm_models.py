"""Any network of timm: `model=timm model.name=...`, or one of the named points in conf/model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import timm
from jaxtyping import Float
from timm.data.config import resolve_data_config
from timm.data.imagenet_info import infer_imagenet_subset
from timm.models import (
    EfficientNet,
    PretrainedCfg,
    ResNet,
    generate_default_cfgs,
    get_pretrained_cfg,
    is_model,
    list_models,
    list_pretrained,
    register_model,
)
from timm.models.efficientnet import _gen_mobilenet_v1
from torch import Tensor, nn

from fca.geometry import ResizeCrop
from fca.models.heads import Layer, split
from fca.models.inputs import PRETRAINED, Normalise, check_rgb, class_keys, classes_meaning, file_label, keywords_label
from fca.models.weights import identity_of, one_line, with_weights
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import Classifier, FcaError

STEMS = ("timm", "cifar")


@dataclass(frozen=True)
class TimmModel:
    """A network that timm has a name for. Null leaves a value of its input to timm's record of the named weights.

    name:       any timm name, with or without a tag: resnet50, resnet50.a1_in1k.
    weights:    null = from scratch; pretrained = timm's, from its hub on first use; or the path of a state dict.
    stem:       timm, or cifar for small images: one 3x3 convolution, no stride, no pooling (timm's ResNets).
    kwargs:     any keyword that timm takes for this network.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.    mean, std: of RGB in [0, 1].
    classes:    class keys of the weights' logits in their order, or the name of an ImageNet (imagenet-1k).
    projection: as an encoder, give what the weights' last layer gives: CLIP's joint space of images and texts.
    """

    name: str
    weights: str | None
    stem: str
    kwargs: dict[str, Any]
    input_size: int | None
    crop_pct: float | None
    interpolation: str | None
    mean: list[float] | None
    std: list[float] | None
    classes: Any
    projection: bool

    def label(self) -> str:
        """The architecture: name without tag, stem and keywords where they differ from timm's."""
        stem = [f"stem={self.stem}"] if self.stem != "timm" else []
        return keywords_label(" ".join([self.architecture, *stem]), self.kwargs)

    def weights_label(self) -> str | None:
        """The tag of timm's weights, or the name of the file."""
        if self.weights != PRETRAINED:
            return file_label(self.weights)
        return self._resolved().partition(".")[2] or PRETRAINED

    def identity(self) -> dict[str, Any]:
        """Without timm where neither a tag nor its weights are asked for: planning stays quick."""
        self._check()
        if self.weights != PRETRAINED:
            return identity_of("timm", self)
        identity = identity_of("timm", replace(self, name=self.architecture, weights=None))
        return {**identity, "weights": self._resolved(), "classes": classes_meaning(self.classes)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model; pretrained weights without class keys, or whose classes timm does not know: an encoder."""

        self._check()
        return classifier_of(self, classes)

    @property
    def architecture(self) -> str:
        """The name without its tag."""
        return self.name.partition(".")[0]

    def _resolved(self) -> str:
        """The name with the tag of the weights that timm would fetch."""

        return resolved_tag(self.name)

    def _check(self) -> None:
        """Raise FcaError for a name, stem, mean or std that cannot be."""
        if "." in self.name or self.name not in _registered():
            record_of(self.name)
        if self.stem not in STEMS:
            raise FcaError("model.stem", self.stem, ", ".join(STEMS), "set model.stem to one of these")
        if self.stem == "cifar" and self.weights == PRETRAINED:
            raise FcaError(
                "model.stem", "cifar", "timm: pretrained weights belong to timm's stem", "train from scratch"
            )
        check_rgb(self.mean, self.std)


@cache
def _registered() -> frozenset[str]:
    """Names of networks, read off the files that define them: importing timm takes seconds, planning should not.

    timm knows a network by a function of its name whose first argument is `pretrained`.
    """
    spec = find_spec("timm")  # finds the package without running its __init__
    folders = (spec and spec.submodule_search_locations) or []
    files = [file for folder in folders for file in Path(folder, "models").glob("*.py")]
    files.append(Path(__file__))
    return frozenset(
        name for file in files for name in re.findall(r"^def (\w+)\(\s*pretrained\b", file.read_text(), re.M)
    )


# Networks that timm can build but has no name for: narrow MobileNetV1 (arXiv:1704.04861), padded as TensorFlow does.
#
# Importing this file makes the names known to timm.


declare_torchvision_ops()

_RECORD = {"num_classes": 1000, "input_size": (3, 224, 224), "first_conv": "conv_stem", "classifier": "classifier"}
default_cfgs = generate_default_cfgs({"mobilenetv1_025.untrained": _RECORD, "mobilenetv1_050.untrained": _RECORD})


@register_model
def mobilenetv1_025(pretrained: bool = False, **kwargs: Any) -> EfficientNet:
    """A quarter of the channels."""
    return _narrow("mobilenetv1_025", 0.25, pretrained, kwargs)


@register_model
def mobilenetv1_050(pretrained: bool = False, **kwargs: Any) -> EfficientNet:
    """Half of the channels."""
    return _narrow("mobilenetv1_050", 0.5, pretrained, kwargs)


def _narrow(name: str, channels: float, pretrained: bool, kwargs: dict[str, Any]) -> EfficientNet:
    kwargs = {"pad_type": "same", **kwargs}
    network: EfficientNet = _gen_mobilenet_v1(name, channels, pretrained=pretrained, **kwargs)  # type: ignore[no-untyped-call]
    return network


# What timm knows about its names: which there are, which weights have which tag.


declare_torchvision_ops()


@cache
def record_of(name: str) -> PretrainedCfg:
    """What timm knows about a name's weights and their input; raises FcaError for a name or tag it does not know."""
    architecture, _, tag = name.partition(".")
    if not is_model(architecture):
        names = list_models()
        near = difflib.get_close_matches(architecture, names) or names[:3]
        allowed = f"one of timm's {len(names)} names, such as {', '.join(near)}"
        raise FcaError("model.name", name, allowed, "list them: python -c 'import timm; print(timm.list_models())'")
    try:
        record = get_pretrained_cfg(name)
    except RuntimeError:
        record = None
    if record is None:
        raise FcaError("model.name", name, _tags(architecture), f"correct the tag {tag!r}, or leave it out")
    return record


def resolved_tag(name: str) -> str:
    """The name with the tag of the weights that timm would fetch; raises FcaError if there are none."""
    record = record_of(name)
    if not record.has_weights:
        architecture = name.partition(".")[0]
        raise FcaError("model.weights", "pretrained", _tags(architecture), "train it from scratch: model.weights=null")
    return f"{record.architecture}.{record.tag}" if record.tag else str(record.architecture)


def _tags(architecture: str) -> str:
    tags = ", ".join(list_pretrained(f"{architecture}.*"))
    return tags if tags else f"no pretrained weights: timm has none for {architecture}"


# What TimmModel needs timm for; apart from it, so that planning stays quick.


declare_torchvision_ops()


def classifier_of(model: TimmModel, classes: Sequence[str] | None) -> Classifier:
    """The built network with its input as the model says, or else as timm's record does."""
    record = record_of(model.name if model.weights != PRETRAINED else resolved_tag(model.name))
    known = class_keys(model.classes)
    if model.weights == PRETRAINED:
        known = known or class_keys(infer_imagenet_subset({"num_classes": record.num_classes}))
    projects = model.projection and classes is None and not known
    if model.weights == PRETRAINED:
        module, keys = _from_hub(model, record, known, classes)
    else:
        # A projection belongs to what the weights hold, so it is loaded like any other layer.
        head = () if projects else _names(record.classifier)
        module, keys = with_weights(
            lambda logits: network(model, None if projects else logits), head, model.weights, known, classes
        )

    geometry, normalise = _input(model, module)
    embed, layer = _pooled(module), None
    if projects:
        embed = module
    elif keys:
        embed, layer = _split(model, module, geometry.size)
    return Classifier(module, keys, geometry, normalise, embed, layer)


def network(model: TimmModel, logits: int | None, pretrained: bool = False) -> nn.Module:
    """timm's network with random or pretrained weights; logits None = as many as the pretrained ones have.

    Raises FcaError for keywords that it does not take, and for pretrained weights that cannot be fetched.
    """
    kwargs: dict[str, Any] = dict(model.kwargs)
    if model.stem == "cifar" and "channels" in kwargs:
        # timm's plain stem has 64 channels whatever follows; a deep one has 2 * stem_width.
        kwargs = {"stem_type": "deep", "stem_width": kwargs["channels"][0] // 2, **kwargs}
    if logits is not None:
        kwargs["num_classes"] = logits
    size = model.input_size
    record = {} if size is None else {"input_size": (3, size, size)}  # also reaches networks made for one size
    try:
        module: nn.Module = timm.create_model(model.name, pretrained, pretrained_cfg_overlay=record, **kwargs)
    except Exception as error:  # timm's networks refuse what they cannot be with errors of every kind
        raise _refused(model, pretrained, error) from error
    return with_cifar_stem(module, model.name) if model.stem == "cifar" else module


def with_cifar_stem(module: nn.Module, name: str) -> nn.Module:
    """One 3x3 convolution of stride 1 for the stem, no pooling: small images keep their pixels (arXiv:1512.03385, 4.2).

    Raises FcaError for a network that is not one of timm's ResNets.
    """
    if not isinstance(module, ResNet):
        allowed = f"timm, for {name}: only timm's ResNet class (resnet*, resnext*, seresnet*, ...) has such a stem"
        raise FcaError("model.stem", "cifar", allowed, "set model.stem=timm, or choose such a network")
    last = [layer for layer in module.conv1.modules() if isinstance(layer, nn.Conv2d)][-1]
    stem = nn.Conv2d(3, last.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as timm does
    module.set_submodule("conv1", stem)
    module.set_submodule("maxpool", nn.Identity())
    return module


def _from_hub(
    model: TimmModel, record: PretrainedCfg, known: Sequence[str], classes: Sequence[str] | None
) -> tuple[nn.Module, tuple[str, ...]]:
    """timm's pretrained network and the class keys of its logits, as `with_weights` for a file."""
    if classes is not None:
        module = network(model, len(classes), pretrained=True)
        if len(classes) == record.num_classes:
            module.reset_classifier(len(classes))  # type: ignore[operator]  # timm kept the pretrained head
        return module, tuple(classes)
    if known and len(known) != record.num_classes:
        step = "give the class key of every logit, in their order: model.classes=[...]"
        raise FcaError("model.classes", f"{len(known)} keys", f"{record.num_classes} keys, the logits", step)
    logits = None if known or model.projection else 0
    return network(model, logits, pretrained=True), tuple(known)


def _refused(model: TimmModel, pretrained: bool, error: Exception) -> FcaError:
    if pretrained and isinstance(error, OSError):
        file = f"https://huggingface.co/timm/{resolved_tag(model.name)}/resolve/main/model.safetensors"
        step = f"connect once, or copy {file} here and set model.weights=PATH"
        return FcaError("model.weights", PRETRAINED, f"weights that can be fetched ({type(error).__name__})", step)
    asked = {"input_size": model.input_size, **model.kwargs}
    return FcaError(
        "model.kwargs", asked, f"what timm's {model.name} takes ({one_line(error)})", "correct or remove them"
    )


def _input(model: TimmModel, module: nn.Module) -> tuple[ResizeCrop, Normalise]:
    given = {key: getattr(model, key) for key in ("crop_pct", "interpolation", "mean", "std")}
    given = {key: value for key, value in given.items() if value is not None}
    config = resolve_data_config(given, model=module)  # type: ignore[no-untyped-call]
    _, height, width = config["input_size"]
    if height != width or config["crop_mode"] == "border":
        allowed = f"networks whose input is a filled square, not {height} x {width} in mode {config['crop_mode']}"
        raise FcaError("model.name", model.name, allowed, "choose another network")
    geometry = ResizeCrop(height, config["crop_pct"], config["interpolation"], config["crop_mode"] == "squash")
    return geometry, Normalise(tuple(config["mean"]), tuple(config["std"]))


def _pooled(module: nn.Module) -> Layer:
    """What timm pools for the last layer."""

    def embed(images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch features"]:
        return module.forward_head(module.forward_features(images), pre_logits=True)  # type: ignore[operator, no-any-return]

    return embed


def _split(model: TimmModel, module: nn.Module, size: int) -> tuple[Layer, Layer]:
    """Pooled features and the layer over them, where that is all; see `split`."""
    head = module.get_classifier()  # type: ignore[operator]
    if isinstance(head, nn.Conv2d):
        head = nn.Sequential(nn.Unflatten(1, (-1, 1, 1)), head, nn.Flatten())
    return split(module, _pooled(module), head, size, lambda error: _refused(model, False, error))


def _names(classifier: Any) -> tuple[str, ...]:
    return (classifier,) if isinstance(classifier, str) else tuple(classifier or ())
