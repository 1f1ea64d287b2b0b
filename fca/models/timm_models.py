"""Any network of timm: `model=timm model.name=...`, or one of the named networks in conf/model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from fca.geometry import ResizeCrop
from fca.models import (
    PRETRAINED,
    Normalise,
    check_count,
    check_rgb,
    class_keys,
    file_label,
    functions_in,
    identity_of,
    keywords_label,
    not_fetched,
    package_files,
    refused,
    unknown_name,
)
from fca.types import Classifier, FcaError

if TYPE_CHECKING:
    from torch import Tensor, nn

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
        return resolved_tag(self.name).partition(".")[2] or PRETRAINED

    def identity(self) -> dict[str, Any]:
        """timm is imported only for a tag or for its weights, so that planning stays quick."""
        self._check()
        if self.weights != PRETRAINED:
            return identity_of("timm", self)
        return identity_of("timm", self, resolved_tag(self.name), name=self.architecture)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See fca.types.Model; pretrained weights without class keys, or with classes unknown to timm: an encoder."""
        self._check()
        return classifier_of(self, classes)

    @property
    def architecture(self) -> str:
        """The name without its tag."""
        return self.name.partition(".")[0]

    def _check(self) -> None:
        """Raise FcaError for an impossible name, stem, mean or std."""
        if "." in self.name or self.name not in _registered():
            record_of(self.name)
        if self.stem not in STEMS:
            raise FcaError("model.stem", self.stem, ", ".join(STEMS), "set model.stem to one of these")
        if self.stem == "cifar" and self.weights == PRETRAINED:
            allowed = "timm: pretrained weights belong to timm's stem"
            raise FcaError("model.stem", "cifar", allowed, "train from scratch")
        check_rgb(self.mean, self.std)


# Names and tags

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
    """timm with our two networks registered. Importing it takes seconds."""
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    import timm

    for name in NARROW:
        timm.models.register_model(_entry(name))
    return timm


@cache
def _registered() -> frozenset[str]:
    """Names of networks by the text of timm's files: functions whose first argument is `pretrained`."""
    return functions_in(package_files("timm", "models/*.py"), "pretrained").union(NARROW)


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


def resolved_tag(name: str) -> str:
    """The name with the tag of the weights that timm would download; raises FcaError if there are none."""
    record = record_of(name)
    if not record.has_weights:
        step = "train it from scratch: model.weights=null"
        raise FcaError("model.weights", PRETRAINED, _tags(name.partition(".")[0]), step)
    return f"{record.architecture}.{record.tag}" if record.tag else str(record.architecture)


def _tags(architecture: str) -> str:
    tags = ", ".join(_timm().models.list_pretrained(f"{architecture}.*"))
    return tags or f"no pretrained weights: timm has none for {architecture}"


# Building


def classifier_of(model: TimmModel, classes: Sequence[str] | None) -> Classifier:
    """The built network; its input follows the model, or else timm's record."""
    from fca.models.networks import with_weights

    pretrained = model.weights == PRETRAINED
    record = record_of(resolved_tag(model.name) if pretrained else model.name)
    known = class_keys(model.classes)
    if pretrained and not known:
        known = class_keys(_timm().data.infer_imagenet_subset({"num_classes": record.num_classes}))
    projects = model.projection and classes is None and not known
    if pretrained:
        module, keys = _from_hub(model, record.num_classes, known, classes)
    else:
        # A projection belongs to what the weights hold, so it is loaded like any other layer.
        head = record.classifier or ()
        head = () if projects else (head,) if isinstance(head, str) else tuple(head)
        module, keys = with_weights(
            lambda logits: network(model, None if projects else logits), head, model.weights, known, classes
        )
    geometry, normalise = _input(model, module)
    embed, layer = (module, None) if projects else (_pooled(module), None)
    if keys and not projects:
        embed, layer = _split(model, module, geometry.size)
    return Classifier(module, keys, geometry, normalise, embed, layer)


def network(model: TimmModel, logits: int | None, pretrained: bool = False) -> nn.Module:
    """timm's network with random or pretrained weights; logits None = as many as the pretrained ones have.

    Raises FcaError for keywords that it does not take, and for pretrained weights that cannot be downloaded.
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
        module: nn.Module = _timm().create_model(model.name, pretrained, pretrained_cfg_overlay=record, **kwargs)
    except Exception as error:  # timm's networks refuse keywords with errors of every kind
        raise _refused(model, pretrained, error) from error
    return with_cifar_stem(module, model.name) if model.stem == "cifar" else module


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
    return module  # type: ignore[no-any-return]


def _from_hub(
    model: TimmModel, published: int, known: Sequence[str], classes: Sequence[str] | None
) -> tuple[nn.Module, tuple[str, ...]]:
    """timm's pretrained network of `published` logits and their class keys, as `with_weights` for a file."""
    if classes is not None:
        module: Any = network(model, len(classes), pretrained=True)
        if len(classes) == published:
            module.reset_classifier(published)  # timm kept the pretrained head
        return module, tuple(classes)
    if known:
        check_count(known, published)
    return network(model, None if known or model.projection else 0, pretrained=True), tuple(known)


def _refused(model: TimmModel, pretrained: bool, error: Exception) -> FcaError:
    if pretrained and isinstance(error, OSError):
        file = f"https://huggingface.co/timm/{resolved_tag(model.name)}/resolve/main/model.safetensors"
        return not_fetched(PRETRAINED, file, type(error).__name__)
    return refused(f"timm's {model.name}", model, error)


def _input(model: TimmModel, module: nn.Module) -> tuple[ResizeCrop, Normalise]:
    given = {key: getattr(model, key) for key in ("crop_pct", "interpolation", "mean", "std")}
    given = {key: value for key, value in given.items() if value is not None}
    config = _timm().data.resolve_data_config(given, model=module)
    _, height, width = config["input_size"]
    if height != width or config["crop_mode"] == "border":
        allowed = f"networks whose input is a filled square, not {height} x {width} in mode {config['crop_mode']}"
        raise FcaError("model.name", model.name, allowed, "choose another network")
    geometry = ResizeCrop(height, config["crop_pct"], config["interpolation"], config["crop_mode"] == "squash")
    return geometry, Normalise(tuple(config["mean"]), tuple(config["std"]))


def _pooled(module: Any) -> Any:
    """Images -> what timm pools for the last layer."""

    def embed(images: Tensor) -> Tensor:
        features: Tensor = module.forward_head(module.forward_features(images), pre_logits=True)
        return features

    return embed


def _split(model: TimmModel, module: Any, size: int) -> tuple[Any, Any]:
    """Pooled features and the layer over them, where that is all; see `networks.split`."""
    from torch import nn

    from fca.models.networks import split

    head = module.get_classifier()
    if isinstance(head, nn.Conv2d):
        head = nn.Sequential(nn.Unflatten(1, (-1, 1, 1)), head, nn.Flatten())
    return split(module, _pooled(module), head, size, lambda error: _refused(model, False, error))
