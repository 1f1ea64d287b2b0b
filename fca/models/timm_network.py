"""What TimmModel needs timm for; apart from it, so that planning stays quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
import timm  # noqa: E402
from timm.data.config import resolve_data_config  # noqa: E402
from timm.data.imagenet_info import infer_imagenet_subset  # noqa: E402
from timm.models import PretrainedCfg, ResNet  # noqa: E402

from fca.geometry import ResizeCrop  # noqa: E402
from fca.models.heads import Layer, split  # noqa: E402
from fca.models.inputs import Normalise, class_keys  # noqa: E402
from fca.models.labels import PRETRAINED  # noqa: E402
from fca.models.timm_net import TimmModel  # noqa: E402
from fca.models.timm_records import record_of, resolved_tag  # noqa: E402
from fca.models.weights import one_line, with_weights  # noqa: E402
from fca.nouns import Classifier, FcaError  # noqa: E402


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
