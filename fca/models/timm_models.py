"""Any network of timm: `model=timm model.name=...`, or one of the named networks in conf/model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fca.geometry import ResizeCrop
from fca.models import (
    LibraryModel,
    Mean,
    Normalise,
    Std,
    check_count,
    class_keys,
    networks_of,
    not_fetched,
    unknown_name,
)
from fca.models.package_weights import PACKAGE, WeightsPackage, in_order
from fca.torchvision_ops import imported
from fca.types import Classifier, FcaError, check_choice

if TYPE_CHECKING:
    from torch import Tensor, nn

STEMS = ("timm", "cifar")
WHOLE, CUT, ALL = DEPTHS = ("whole", "cut", "all")


@dataclass(frozen=True)
class TimmModel(LibraryModel):
    """A network that timm has a name for: resnet50, or with the tag of its weights resnet50.a1_in1k.

    stem:       timm, or cifar for small images: one 3x3 convolution, no stride, no pooling (timm's ResNets).
    mean, std:  of RGB in [0, 1].
    projection: as an encoder, give what the weights' last layer gives: CLIP's joint space of images and texts.
    package:    of the package index, whose weights model.weights=package loads.
    depth:      whole; cut: without the 1x1 layer that widens the last stage (EfficientNet, MobileNetV2); all: an
                encoder whose features are those of cut and whole side by side, from one pass.
    """

    stem: str
    mean: Mean
    std: Std
    projection: bool
    package: WeightsPackage | None = None
    depth: str = WHOLE

    family = "timm"

    def label(self) -> str:
        """Name without tag; stem, depth and keywords where they differ from timm's."""
        changed = {} if self.stem == "timm" else {"stem": self.stem}
        changed |= {} if self.depth == WHOLE else {"depth": self.depth}
        if not changed:
            return super().label()
        return replace(self, stem="timm", depth=WHOLE, kwargs={**changed, **self.kwargs}).label()

    def weights_label(self) -> str | None:
        if self.weights == PACKAGE and self.package is not None:
            return f"{self.package.name} {self.package.version}"
        return super().weights_label()

    def identity(self) -> dict[str, Any]:
        """The package enters by the content of its file."""
        model = self if self.weights != PACKAGE else replace(self, weights=str(self.package_file()))
        identity = super(TimmModel, model).identity()
        later = {"package": None, "depth": WHOLE}  # before, there were none
        del identity["package"]
        return {key: value for key, value in identity.items() if key not in later or value != later[key]}

    def package_file(self) -> Path:
        """The file of model.weights=package. Raises FcaError without a package, and as `WeightsPackage.file`."""
        if self.package is None:
            step = "take one of these, or give a file: model.weights=PATH"
            raise FcaError("model.weights", PACKAGE, f"{_WITH_PACKAGES}; {self.name} has no package", step)
        return self.package.file()

    def depths(self) -> tuple[str, ...]:
        """The depths that this network has, in the order in which depth=all gives their features."""
        return (CUT, WHOLE) if _has_widening_layer(self) else (WHOLE,)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """Pretrained weights without class keys, or with classes unknown to timm, give an encoder."""
        from torch import nn

        from fca.models.networks import split

        self._check()
        known = class_keys(self.classes)
        if self.depth != WHOLE:
            known = ()  # the logits of the weights are those of the whole network
        elif self.pretrained and not known:
            logits = record_of(self._published()).num_classes
            known = class_keys(_timm().data.infer_imagenet_subset({"num_classes": logits}))
        projects = self.projection and classes is None and not known
        module, keys = _with_weights(self, known, classes, projects)
        if self.depth == CUT:
            cut_short(module, len(keys))
        if self.depth == ALL:
            return _of_every_depth(self, module)

        def pooled(images: Tensor) -> Tensor:
            return module.forward_head(module.forward_features(images), pre_logits=True)

        geometry, normalise = _input(self, module)
        embed: Any = module if projects else pooled
        layer = None
        if keys:
            head = module.get_classifier()
            if isinstance(head, nn.Conv2d):
                head = nn.Sequential(nn.Unflatten(1, (-1, 1, 1)), head, nn.Flatten())
            embed, layer = split(module, pooled, head, geometry.size, self.refused)
        return Classifier(module, keys, geometry, normalise, embed, layer)

    def _published(self) -> str:
        record = record_of(self.name)
        if not record.has_weights:
            step = "train it from scratch: model.weights=null"
            raise FcaError("model.weights", self.weights, _tags(self.architecture), step)
        return f"{record.architecture}.{record.tag}" if record.tag else str(record.architecture)

    def _check(self) -> None:
        if "." in self.name or self.name not in _registered():
            record_of(self.name)
        check_choice("model.stem", self.stem, STEMS, "set model.stem to one of these")
        check_choice("model.depth", self.depth, DEPTHS, "set model.depth to one of these")
        if self.depth != WHOLE and not _has_widening_layer(self):
            allowed = f"{WHOLE}: {self.name} has no 1x1 layer that widens its last stage, as EfficientNet has"
            raise FcaError("model.depth", self.depth, allowed, "leave model.depth out, or choose such a network")
        if self.stem == "cifar" and self.pretrained:
            allowed = "timm: pretrained weights belong to timm's stem"
            raise FcaError("model.stem", "cifar", allowed, "train from scratch")
        Normalise.check(self)


# Names and tags

_WITH_PACKAGES = "efficientnet_lite0, efficientnet_lite1 or efficientnet_lite2"  # of conf/model/

# Two networks that timm can build but has no name for: narrow MobileNetV1 (arXiv:1704.04861), padded as in TensorFlow.
NARROW = {"mobilenetv1_025": 0.25, "mobilenetv1_050": 0.5}  # share of the channels
_RECORD = {"num_classes": 1000, "input_size": (3, 224, 224), "first_conv": "conv_stem", "classifier": "classifier"}
default_cfgs = dict.fromkeys(NARROW, _RECORD)  # timm's register_model looks for this name in the module of an entry


def _entry(name: str) -> Any:
    """The function that timm is to call for one of these names."""

    def entry(pretrained: bool = False, **kwargs: Any) -> Any:
        from timm.models.efficientnet import _gen_mobilenet_v1

        kwargs = {"pretrained": pretrained, "pad_type": "same", **kwargs}
        return _gen_mobilenet_v1(name, NARROW[name], **kwargs)  # type: ignore[no-untyped-call]

    entry.__name__ = name
    return entry


@cache
def _timm() -> Any:
    """timm with our two networks registered."""
    timm = imported("timm")
    for name in NARROW:
        timm.models.register_model(_entry(name))
    return timm


@cache
def _registered() -> frozenset[str]:
    return networks_of("timm", "pretrained").union(NARROW)


@cache
def record_of(name: str) -> Any:
    """timm's record of a name's weights and their input; raises FcaError for an unknown name or tag."""
    models = _timm().models
    architecture, _, tag = name.partition(".")
    if not models.is_model(architecture):
        step = "list them: python -c 'import timm; print(timm.list_models())'"
        raise unknown_name("timm", architecture, models.list_models(), step)
    try:
        record = models.get_pretrained_cfg(name)
    except RuntimeError:
        record = None
    if record is None:
        raise FcaError("model.name", name, _tags(architecture), f"correct the tag {tag!r}, or leave it out")
    return record


def _tags(architecture: str) -> str:
    tags = ", ".join(_timm().models.list_pretrained(f"{architecture}.*"))
    return tags or f"no pretrained weights: timm has none for {architecture}"


# Building


def _with_weights(
    model: TimmModel, known: Sequence[str], classes: Sequence[str] | None, projects: bool
) -> tuple[Any, tuple[str, ...]]:
    """timm's network with the model's weights and the class keys of its logits, as `networks.with_weights`."""
    from fca.models.networks import with_weights

    if model.weights == PACKAGE:
        whole = replace(model, depth=WHOLE)
        like = network(whole, None).state_dict()
        head = (record_of(model.name).classifier,)
        file, make = str(model.package_file()), lambda logits: network(whole, logits)
        return with_weights(make, head, file, known, classes, lambda state: in_order(state, like))
    if not model.pretrained:
        # A projection belongs to what the weights hold, so it is loaded like any other layer.
        last = record_of(model.name).classifier or ()
        head = () if projects else (last,) if isinstance(last, str) else tuple(last)
        make = lambda logits: network(model, None if projects else logits)  # noqa: E731
        return with_weights(make, head, model.weights, known, classes)
    logits = record_of(model._published()).num_classes
    if classes is not None:
        module: Any = network(model, len(classes), pretrained=True)
        if len(classes) == logits:
            module.reset_classifier(logits)  # timm kept the pretrained head
        return module, tuple(classes)
    if known:
        check_count(known, logits)
    return network(model, None if known or model.projection else 0, pretrained=True), tuple(known)


def network(model: TimmModel, logits: int | None, pretrained: bool = False) -> nn.Module:
    """timm's network with random or pretrained weights; logits None = as many as the pretrained ones have.

    Raises FcaError for keywords that it does not take, and for pretrained weights that cannot be downloaded.
    """
    kwargs = dict(model.kwargs)
    if model.stem == "cifar" and "channels" in kwargs:
        # timm's plain stem has 64 channels whatever follows; a deep one has 2 * stem_width.
        kwargs = {"stem_type": "deep", "stem_width": kwargs["channels"][0] // 2, **kwargs}
    if logits is not None:
        kwargs["num_classes"] = logits
    size = model.input_size
    record = {} if size is None else {"input_size": (3, size, size)}  # also reaches networks made for one size
    try:
        module: nn.Module = _timm().create_model(model.name, pretrained, pretrained_cfg_overlay=record, **kwargs)
    except Exception as error:  # timm's networks refuse keywords with errors of every kind
        if not (pretrained and isinstance(error, OSError)):
            raise model.refused(error) from error
        file = f"https://huggingface.co/timm/{model._published()}/resolve/main/model.safetensors"
        raise not_fetched(model.weights, file, type(error).__name__) from error
    return with_cifar_stem(module, model.name) if model.stem == "cifar" else module


@cache
def _has_widening(name: str) -> bool:
    """Whether a network of this name ends with a convolution to more channels, before the pooling."""
    import torch

    with torch.device("meta"):
        module = _timm().create_model(name)
    kind = _timm().models.EfficientNet
    return type(module) is kind and isinstance(module.conv_head, torch.nn.Conv2d)


def _has_widening_layer(model: TimmModel) -> bool:
    return _has_widening(model.architecture)


def cut_short(module: Any, logits: int) -> None:
    """Take the widening layer out of a network; its head, if it has logits, is a fresh one on what is left."""
    from torch import nn

    width = module.conv_head.in_channels
    module.conv_head, module.bn2 = nn.Identity(), nn.Identity()
    module.num_features = module.head_hidden_size = width
    module.classifier = nn.Linear(width, logits) if logits else nn.Identity()


def _of_every_depth(model: TimmModel, module: Any) -> Classifier:
    """The encoder whose features are those before and behind the widening layer, side by side."""
    from torch import cat

    if not isinstance(model.weights, str):
        allowed = f"{WHOLE} or {CUT}, to be trained"
        raise FcaError("model.depth", ALL, allowed, "give weights, or choose one depth")
    geometry, normalise = _input(model, module)

    def embed(images: Tensor) -> Tensor:
        stages = module.blocks(module.bn1(module.conv_stem(images)))
        widened = module.bn2(module.conv_head(stages))
        return cat([module.global_pool(stages), module.global_pool(widened)], dim=1)

    return Classifier(module, (), geometry, normalise, embed, None)


def with_cifar_stem(module: Any, name: str) -> nn.Module:
    """One 3x3 convolution of stride 1 for the stem, no pooling: small images keep their pixels (arXiv:1512.03385, 4.2).

    Raises FcaError for a network that is not one of timm's ResNets.
    """
    from torch import nn

    if not isinstance(module, _timm().models.ResNet):
        allowed = f"timm, for {name}: only timm's ResNet class (resnet*, resnext*, seresnet*, ...) has such a stem"
        raise FcaError("model.stem", "cifar", allowed, "set model.stem=timm, or choose such a network")
    last = [layer for layer in module.conv1.modules() if isinstance(layer, nn.Conv2d)][-1]
    stem = nn.Conv2d(3, last.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as timm does
    module.set_submodule("conv1", stem)
    module.set_submodule("maxpool", nn.Identity())
    return module


def _input(model: TimmModel, module: nn.Module) -> tuple[ResizeCrop, Normalise]:
    keys = ("crop_pct", "interpolation", "mean", "std")
    given = {key: getattr(model, key) for key in keys if getattr(model, key) is not None}
    config = _timm().data.resolve_data_config(given, model=module)
    _, height, width = config["input_size"]
    if height != width or config["crop_mode"] == "border":
        allowed = f"networks whose input is a filled square, not {height} x {width} in mode {config['crop_mode']}"
        raise FcaError("model.name", model.name, allowed, "choose another network")
    geometry = ResizeCrop(height, config["crop_pct"], config["interpolation"], config["crop_mode"] == "squash")
    return geometry, Normalise(tuple(config["mean"]), tuple(config["std"]))
