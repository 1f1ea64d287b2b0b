"""Any network of timm: `model=timm model.name=...`, or one of the named networks in conf/model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from fca.geometry import ResizeCrop
from fca.models import (
    LibraryModel,
    Mean,
    Normalise,
    Std,
    check_count,
    class_keys,
    identity_of,
    networks_of,
    not_fetched,
    unknown_name,
)
from fca.models.package_weights import PACKAGE, WeightsPackage, no_package, package_file
from fca.torchvision_ops import imported
from fca.types import Classifier, FcaError, check_choice
from fca.validation import Allowed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fca.models.checkpoints import Names
    from fca.models.networks import Make

STEMS = ("timm", "cifar")
DEPTHS = ("whole", "cut", "all")


@dataclass(frozen=True)
class TimmModel(LibraryModel):
    """A network that timm has a name for: resnet50, or with the tag of its weights resnet50.a1_in1k.

    stem:       timm, or cifar for small images: one 3x3 convolution, no stride, no pooling (timm's ResNets).
    mean, std:  of RGB in [0, 1].
    projection: as an encoder, give what the weights' last layer gives: CLIP's joint space of images and texts.
    package:    name, version and sha256 of the installed package whose file weights=package stands for; see
                `fca.models.package_weights`.
    depth:      whole; cut: the network before the widening layer of its last stage, with a head for the classes that it
                is trained for (see `fca.models.depths`); all: an encoder with the features of every depth side by side.
                The weights' own logits are the whole network's: without classes to train for, the others are encoders.
    """

    stem: str
    mean: Mean
    std: Std
    projection: bool
    package: dict[str, str] | None = None
    depth: Annotated[str, Allowed(choices=DEPTHS)] = "whole"

    family = "timm"

    def label(self) -> str:
        """The model's name in tables: without tag, then stem, keywords and depth where they differ from timm's.

        The input size is not part of it: rows of results have a column for it.
        """
        if self.stem != "timm":  # written like the keywords, and before them
            return replace(self, stem="timm", kwargs={"stem": self.stem, **self.kwargs}).label()
        label = super().label()
        return label if self.depth == "whole" else f"{label} depth={self.depth}"

    def weights_label(self) -> str | None:
        if self.is_packaged:
            return self._package().label
        return super().weights_label()

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: all fields, with the weights by content or by their published name.

        Weights of an installed package enter by the sha256 of their file, whichever package it comes from. Raises
        FcaError for impossible settings, and for a package that is not installed.
        """
        without_package = replace(self, package=None)  # a package is only the place where the weights can be found
        if not self.is_packaged:
            return super(TimmModel, without_package).identity()

        self._check()
        package = self._package()
        package_file(package)  # only for its errors
        return identity_of(self.family, without_package, package.sha256)

    def depths(self) -> tuple[str, ...]:
        """The depths that this network has, in the order of the features of depth=all; known without building it."""
        return ("cut", "whole") if self.architecture in _networks_with_widening() else ("whole",)

    def at_depth(self, depth: str) -> TimmModel:
        return replace(self, depth=depth)

    @property
    def is_packaged(self) -> bool:
        """Whether its weights come from an installed package."""
        return self.weights == PACKAGE

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The network with its weights: a classifier if it has class keys, else an encoder.

        classes: if given, it gets a fresh head for them, to be trained. Otherwise its classes are the classes of the
                 weights' logits, if they are known (`_class_keys`).

        With depth=cut the network ends before its last, widening layer; with depth=all it is an encoder, which gives
        the features of the cut and of the whole network side by side.
        Raises FcaError for impossible settings, such as training with depth=all, and for weights that do not fit.
        """
        from torch import nn

        from fca.models.networks import split

        self._check()
        if self.depth == "all" and classes is not None:
            raise self._untrainable()

        file_keys = self._class_keys() if self.depth == "whole" else ()  # the weights' logits are the whole network's
        # An encoder with `projection` gives the outputs of the weights' last layer: CLIP's joint space with texts.
        gives_projection = self.projection and classes is None and not file_keys
        module, keys = _with_weights(self, file_keys, classes, gives_projection)
        geometry, normalise = _geometry_and_normalisation(self, module)
        if self.depth != "whole":
            module = _at_depth(self, module, len(keys))  # a cut network gets a fresh head for its keys

        def pooled(images: Tensor) -> Tensor:
            """The features before the head, one vector for each image."""
            return module.forward_head(module.forward_features(images), pre_logits=True)

        if not keys:  # an encoder; with a projection, or with every depth, its output already is the features
            embed: Any = module if gives_projection or self.depth == "all" else pooled
            return Classifier(module, keys, geometry, normalise, embed, None)

        head = module.get_classifier()
        if isinstance(head, nn.Conv2d):  # such a head takes maps: the pooled features become maps of one pixel
            head = nn.Sequential(nn.Unflatten(1, (-1, 1, 1)), head, nn.Flatten())
        # `split` checks on an image of this size that head(pooled(images)) are the logits. If they are not, as with
        # networks of several heads, `embed` is the whole network, whose logits serve as features, and `layer` the
        # identity. self.refused: turns an error of the network into an FcaError.
        embed, layer = split(module, pooled, head, geometry.size, self.refused)
        return Classifier(module, keys, geometry, normalise, embed, layer)

    def _class_keys(self) -> tuple[str, ...]:
        """The class keys of the weights' logits: as configured, or, for timm's own weights, those of an ImageNet.

        Empty for other weights, whose logits have no known meaning, and where timm knows no ImageNet with as many
        classes.
        """
        configured_keys = class_keys(self.classes)
        if configured_keys or not self.pretrained:
            return configured_keys
        logits = record_of(self._published()).num_classes
        return class_keys(_timm().data.infer_imagenet_subset({"num_classes": logits}))

    def _package(self) -> WeightsPackage:
        """The package that holds the weights. Raises FcaError for a model whose YAML names none."""
        if self.package is None:
            raise no_package(self.name)
        return WeightsPackage.of(self.package)

    def _published(self) -> str:
        """The name of timm's weights: architecture.tag. Raises FcaError if timm has no weights for this network."""
        record = record_of(self.name)
        if not record.has_weights:
            step = "train it from scratch: model.weights=null"
            raise FcaError("model.weights", self.weights, _tags_in_words(self.architecture), step)
        return f"{record.architecture}.{record.tag}" if record.tag else str(record.architecture)  # some have no tag

    def _check(self) -> None:
        """Raise FcaError for an unknown name or tag, and for settings that exclude each other."""
        has_tag = "." in self.name
        if has_tag or self.name not in _registered():  # other names need no look into timm, which takes seconds
            record_of(self.name)  # raises FcaError for an unknown name or tag
        check_choice("model.stem", self.stem, STEMS, "set model.stem to one of these")
        if self.stem == "cifar" and (self.pretrained or self.is_packaged):
            allowed = "timm: pretrained weights belong to timm's stem"
            raise FcaError("model.stem", "cifar", allowed, "train from scratch")
        if self.depth != "whole":
            self._check_depth()
        Normalise.check(self)  # mean and std

    def _check_depth(self) -> None:
        """Raise FcaError if the network does not have the configured depth, or if the other settings exclude it.

        The depth is cut or all; whole, which every network has and no setting excludes, is not checked here. A
        network of depth cut ends before its last, widening layer; depth all gives the features of cut and whole.
        """
        check_choice("model.depth", self.depth, DEPTHS, "set model.depth to one of these")
        if "cut" not in self.depths():
            raise _no_other_depth(self)
        if self.projection:
            allowed = f"false with model.depth={self.depth}, whose features come before the last layer"
            raise FcaError("model.projection", self.projection, allowed, "set one of the two keys alone")
        if self.depth == "all" and self.weights is None:  # it could only be trained, but features of all depths cannot
            raise self._untrainable()

    def _untrainable(self) -> FcaError:
        """The error for training with depth=all, or for depth=all without weights, which could only be trained."""
        allowed = "whole or cut to train, each with its own head; all is an encoder of a network with weights"
        step = "set model.depth=whole or model.depth=cut, or give model.weights"
        return FcaError("model.depth", "all", allowed, step)


# Depths

# Of timm's EfficientNet class these alone go from their last stage to the pooling, without a widening layer.
NOT_WIDENED = frozenset({"mobilenetv1_100", "mobilenetv1_125", "mobilenetv1_025", "mobilenetv1_050"})


@cache
def _networks_with_widening() -> frozenset[str]:
    """Names of the networks that can be cut before their widening layer, found in the text of timm's file."""
    return networks_of("timm", "pretrained", "models/efficientnet.py") - NOT_WIDENED


def _no_other_depth(model: TimmModel) -> FcaError:
    """The error for a network without a widening layer, which has no depth but the whole."""
    allowed = (
        f"whole for {model.name}: no 1x1 layer widens its last stage before the pooling, as it does in timm's "
        "EfficientNet class (efficientnet*, mobilenetv2*, mnasnet*, mixnet*, tinynet*, ...)"
    )
    return FcaError("model.depth", model.depth, allowed, "set model.depth=whole, or choose such a network")


def _at_depth(model: TimmModel, module: nn.Module, classes: int) -> nn.Module:
    """Turn a whole network into the network of depth `model.depth`, in place.

    At depth `cut` it ends before its widening layer and gets a fresh head; at depth `all` it gives the features of the
    cut and of the whole network.

    classes: number of logits of the cut network's head; 0 = none.

    Raises FcaError for a network without a widening layer.
    """
    from fca.models.depths import EveryDepth, cut_before_widening, has_widening

    if not has_widening(module):  # found by name before; but this version of timm may build it in another way
        raise _no_other_depth(model)
    if model.depth == "all":
        return EveryDepth(module)
    return cut_before_widening(module, classes)


# Names and tags

# Two networks that timm can build but has no name for: narrow MobileNetV1 (arXiv:1704.04861), padded as in TensorFlow.
NARROW_MOBILENETS = {"mobilenetv1_025": 0.25, "mobilenetv1_050": 0.5}  # share of the channels
_RECORD = {"num_classes": 1000, "input_size": (3, 224, 224), "first_conv": "conv_stem", "classifier": "classifier"}
default_cfgs = dict.fromkeys(
    NARROW_MOBILENETS, _RECORD
)  # timm's register_model looks for this name in the module of an entry


def _entry_for_narrow_mobilenet(name: str) -> Any:
    """The function that timm calls to build a narrow MobileNetV1 of this name (see NARROW_MOBILENETS)."""

    def entry(pretrained: bool = False, **kwargs: Any) -> Any:
        """Build the network, as timm's own functions of its networks do."""
        from timm.models.efficientnet import _gen_mobilenet_v1

        kwargs = {"pretrained": pretrained, "pad_type": "same", **kwargs}  # padded as in TensorFlow
        return _gen_mobilenet_v1(name, NARROW_MOBILENETS[name], **kwargs)  # type: ignore[no-untyped-call]

    entry.__name__ = name  # timm registers a function under its name
    return entry


@cache
def _timm() -> Any:
    """timm, imported on first use, with the two narrow networks of NARROW_MOBILENETS registered."""
    timm = imported("timm")
    for name in NARROW_MOBILENETS:
        timm.models.register_model(_entry_for_narrow_mobilenet(name))
    return timm


@cache
def _registered() -> frozenset[str]:
    return networks_of("timm", "pretrained").union(NARROW_MOBILENETS)


@cache
def record_of(name: str) -> Any:
    """timm's record of weights: their tag, number of classes and input.

    name: architecture.tag, or only an architecture for its default weights. Raises FcaError for an unknown name or tag.
    """
    models = _timm().models
    architecture, _, tag = name.partition(".")
    if not models.is_model(architecture):
        step = "list them: python -c 'import timm; print(timm.list_models())'"
        raise unknown_name("timm", architecture, models.list_models(), step)
    try:
        record = models.get_pretrained_cfg(name)
    except RuntimeError:  # timm's error for an unknown tag
        record = None
    if record is None:
        raise FcaError("model.name", name, _tags_in_words(architecture), f"correct the tag {tag!r}, or leave it out")
    return record


def _tags_in_words(architecture: str) -> str:
    """The published weights of a network, for a message."""
    tags = ", ".join(_timm().models.list_pretrained(f"{architecture}.*"))
    return tags or f"no pretrained weights: timm has none for {architecture}"


# Building


def _with_weights(
    model: TimmModel, file_keys: Sequence[str], classes: Sequence[str] | None, gives_projection: bool
) -> tuple[Any, tuple[str, ...]]:
    """Build timm's network with the model's weights; return it and the class keys of its logits, if it has any.

    The weights are published by timm, in an installed package, in a file, or random.

    file_keys:        class keys of the weights' logits; empty if unknown.
    classes:          class keys to train for, with a fresh head; None: nothing is trained.
    gives_projection: whether the weights' last layer (a projection) is kept although it gives features, not logits.
    Raises FcaError for weights that cannot be fetched, are not installed or do not fit.
    """
    if model.pretrained:
        return _with_pretrained_weights(model, file_keys, classes)

    from fca.models.networks import with_weights

    # The head: names of the modules that give logits, which timm calls the classifier. `with_weights` makes them anew
    # for `classes`, and leaves them out of an encoder. A projection has to be loaded from the weights like the layers
    # before it, so a network that gives it has no head.
    classifier_names = record_of(model.name).classifier or ()
    if isinstance(classifier_names, str):
        classifier_names = (classifier_names,)
    head = () if gives_projection else tuple(classifier_names)

    def make(logits: int) -> nn.Module:
        """The network with this number of logits. A projection instead has the width of timm's own weights (None)."""
        return network(model, None if gives_projection else logits)

    if model.is_packaged:
        return _with_packaged_weights(model, make, head, file_keys, classes)
    return with_weights(make, head, model.weights, file_keys, classes)


def _with_pretrained_weights(
    model: TimmModel, file_keys: Sequence[str], classes: Sequence[str] | None
) -> tuple[Any, tuple[str, ...]]:
    """The network with weights that timm itself fetches, and the class keys of its logits.

    file_keys: class keys of the published logits; empty if unknown.
    classes:   class keys to train for, with a fresh head; None: nothing is trained.
    Without any class keys the result is an encoder, whose outputs are features. Raises FcaError if the number of
    `file_keys` is not the number of logits.
    """
    logits = record_of(model._published()).num_classes
    if classes is not None:
        module: Any = network(model, len(classes), pretrained=True)
        if len(classes) == logits:  # timm then keeps the pretrained head: replace it by a fresh one
            module.reset_classifier(logits)
        return module, tuple(classes)

    if file_keys:
        check_count(file_keys, logits)
    # The last layer gives the known classes, or with `projection` the features (CLIP's joint space with texts).
    keeps_last_layer = bool(file_keys) or model.projection
    width = None if keeps_last_layer else 0  # None: as published; 0: no last layer
    return network(model, width, pretrained=True), tuple(file_keys)


def _with_packaged_weights(
    model: TimmModel, make: Make, head: Names, file_keys: Names, classes: Names | None
) -> tuple[Any, tuple[str, ...]]:
    """The network with weights from an installed package, and the class keys of its logits.

    The file's tensors have the names of another library, so they are renamed to timm's by their order. The other
    arguments are those of `networks.with_weights`: how networks are made, names of the head's modules, class keys of
    the file and class keys to train for. Raises FcaError if the package or its file is missing, and for weights that do
    not fit.
    """
    import torch

    from fca.models.checkpoints import in_order_of
    from fca.models.networks import with_weights

    file = package_file(model._package())
    with torch.device("meta"):  # no memory for weights: only names and shapes are needed
        as_published = network(model, None)  # with its published number of logits, as in the file
    rename = in_order_of(as_published.state_dict(), file.name)
    return with_weights(make, head, str(file), file_keys, classes, rename)


def network(model: TimmModel, logits: int | None, pretrained: bool = False) -> nn.Module:
    """Build timm's network for a model, with its keywords and stem (first layers), and random or pretrained weights.

    logits: their number; 0 = none, so that it gives features; None = as many as the published weights have.
    Raises FcaError for keywords that it does not take, and for pretrained weights that cannot be downloaded.
    """
    kwargs = dict(model.kwargs)  # keywords of timm's function for this architecture; channels: width of each stage
    if model.stem == "cifar" and "channels" in kwargs:
        # The cifar stem takes over the width of the stem that timm builds, which has to be that of the first stage.
        # timm's plain stem always has 64 channels; a deep one has 2 * stem_width.
        kwargs = {"stem_type": "deep", "stem_width": kwargs["channels"][0] // 2, **kwargs}
    if logits is not None:
        kwargs["num_classes"] = logits

    size = model.input_size
    # An input size in the record reaches all networks, also networks that timm builds for a single size.
    overlay = {} if size is None else {"input_size": (3, size, size)}
    try:
        module: nn.Module = _timm().create_model(model.name, pretrained, pretrained_cfg_overlay=overlay, **kwargs)
    except Exception as error:  # timm's networks refuse keywords with errors of every kind
        is_download_error = pretrained and isinstance(error, OSError)
        if not is_download_error:
            raise model.refused(error) from error
        file = f"https://huggingface.co/timm/{model._published()}/resolve/main/model.safetensors"
        raise not_fetched(model.weights, file, type(error).__name__) from error

    return with_cifar_stem(module, model.name) if model.stem == "cifar" else module


def with_cifar_stem(module: Any, name: str) -> nn.Module:
    """Replace the stem of a ResNet, in place, by one 3x3 convolution of stride 1 without pooling; return the network.

    Small images then keep their resolution (arXiv:1512.03385, section 4.2).

    name: the network's name, for the message.
    Raises FcaError for a network that is not one of timm's ResNets.
    """
    from torch import nn

    if not isinstance(module, _timm().models.ResNet):
        allowed = f"timm, for {name}: only timm's ResNet class (resnet*, resnext*, seresnet*, ...) has such a stem"
        raise FcaError("model.stem", "cifar", allowed, "set model.stem=timm, or choose such a network")

    convolutions = [layer for layer in module.conv1.modules() if isinstance(layer, nn.Conv2d)]
    # As wide as the last convolution of the old stem, which may have several.
    stem = nn.Conv2d(3, convolutions[-1].out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as timm does
    module.set_submodule("conv1", stem)
    module.set_submodule("maxpool", nn.Identity())
    return module


def _geometry_and_normalisation(model: TimmModel, module: nn.Module) -> tuple[ResizeCrop, Normalise]:
    """How images are resized, cropped and normalised: by timm's record of the network, or the model's own settings.

    module: the network, which has the record.
    Raises FcaError for a network whose input is not square, or is padded by a border.
    """
    names = ("crop_pct", "interpolation", "mean", "std")
    configured = {name: getattr(model, name) for name in names if getattr(model, name) is not None}
    config = _timm().data.resolve_data_config(configured, model=module)

    _, height, width = config["input_size"]
    if height != width or config["crop_mode"] == "border":
        allowed = f"networks whose input is a filled square, not {height} x {width} in mode {config['crop_mode']}"
        raise FcaError("model.name", model.name, allowed, "choose another network")

    is_squashed = config["crop_mode"] == "squash"
    geometry = ResizeCrop(height, config["crop_pct"], config["interpolation"], squash=is_squashed)
    return geometry, Normalise(tuple(config["mean"]), tuple(config["std"]))
