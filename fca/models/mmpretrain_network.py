"""What MmpretrainModel needs mmpretrain for; apart from it, so that planning stays quick."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
from fca.nouns import Classifier, FcaError  # noqa: E402

try:
    with warnings.catch_warnings():  # optimisers that torch itself compiles as it advises against; mmcv for mmcv-lite
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        warnings.filterwarnings("ignore", "Fail to import ``MultiScaleDeformableAttention``", UserWarning)
        warnings.filterwarnings("ignore", "invalid escape sequence", DeprecationWarning)  # in files compiled just now
        import mmpretrain.datasets
        import mmpretrain.models  # noqa: F401  (registers them; else the first look-up would, and warn then)
        from mmengine.config import Config, ConfigDict
        from mmengine.logging import MMLogger
        from mmengine.registry import DefaultScope
        from mmpretrain.registry import DATASETS, MODELS
except ImportError as error:
    step = "libGL.so.1: pip install opencv-python-headless over opencv-python; else see docs/adr/0009-model-families.md"
    raise FcaError("model", "mmpretrain", f"a machine where it imports ({error})", step) from error

from fca.geometry import ResizeCrop  # noqa: E402
from fca.models.heads import classifier, looked_at, with_or_without  # noqa: E402
from fca.models.hub import fetched  # noqa: E402
from fca.models.inputs import Normalise, class_keys, resize_crop  # noqa: E402
from fca.models.labels import PRETRAINED  # noqa: E402
from fca.models.mmpretrain_net import MmpretrainModel  # noqa: E402
from fca.models.mmpretrain_records import record_of, weights_of  # noqa: E402
from fca.models.weights import one_line, read_weights, with_weights  # noqa: E402

MMLogger.get_current_instance().setLevel("WARNING")  # else it tells how it initialised every single weight


@dataclass(frozen=True)
class Bgr:
    """Red and blue change places behind the normalisation: networks that were trained on OpenCV's order."""

    normalise: Normalise

    def __call__(self, images: Tensor) -> Tensor:
        """Mean and std are of red, green and blue."""
        return self.normalise(images).flip(1)


def classifier_of(model: MmpretrainModel, classes: Sequence[str] | None) -> Classifier:
    """The built network with its input as the model says, or else as mmpretrain's configuration does."""
    config = _config(model)
    weights, known = model.weights, class_keys(model.classes)
    if weights == PRETRAINED:
        weights, known = str(fetched(weights_of(model.name))), known or _classes(config)
    end = _end(config)
    head = tuple(f"{end}.{name}" for name in looked_at(lambda logits: _made(model, config.model[end], logits)))
    make = with_or_without(partial(network, model, config), head)
    module, keys = with_weights(make, head, weights, known, classes, read)
    return classifier(module, keys, head, *_input(model, config), lambda error: _refused(model, error))


def network(model: MmpretrainModel, config: Config, logits: int) -> nn.Module:
    """mmpretrain's network with random weights, initialised as its configuration says but without fetching any."""
    parts = _unfetched(copy.deepcopy(config.model))
    parts[_end(config)].num_classes = logits
    parts.update(data_preprocessor=None, train_cfg=None)
    module = _made(model, parts, None)
    module.init_weights()  # type: ignore[operator]
    return module


def read(weights: str) -> dict[str, Tensor]:
    """A checkpoint's state dict, without running code; normalisation is ours and stays out."""
    state = read_weights(weights)
    return {key: value for key, value in state.items() if not key.startswith("data_preprocessor.")}


def _config(model: MmpretrainModel) -> Config:
    config = Config.fromfile(record_of(model.name).config, lazy_import=False)  # its guess is wrong for RepLKNet
    if model.kwargs:
        config.merge_from_dict({"model": model.kwargs})
    if config.model.get("type") != "ImageClassifier" or "head" not in config.model:
        allowed = f"networks with a head of their own; this is a {config.model.get('type')}"
        raise FcaError("model.name", model.name, allowed, "choose another network, or model=open_clip for zero-shot")
    return config


def _end(config: Config) -> str:
    """The part that gives the logits: the head, but the backbone of VGG and Inception, whose heads only add a loss."""
    return "backbone" if "num_classes" in config.model.backbone else "head"


def _made(model: MmpretrainModel, parts: dict[str, Any], logits: int | None) -> nn.Module:
    """The module that a part of a configuration describes; `logits` overrules its own."""
    if logits is not None:
        parts = {**parts, "num_classes": logits}
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        try:
            module: nn.Module = MODELS.build(ConfigDict(parts))
        except (AssertionError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise _refused(model, error) from error
    return module


def _unfetched(parts: Any) -> Any:
    """The parts without the weights that configurations for fine-tuning would fetch: scratch means scratch."""
    if isinstance(parts, dict):
        kept = {key: _unfetched(value) for key, value in parts.items() if key != "pretrained"}
        if kept.get("init_cfg", {}) and "Pretrained" in str(kept["init_cfg"]):
            del kept["init_cfg"]
        return ConfigDict(kept)
    return parts


def _classes(config: Config) -> tuple[str, ...]:
    """Class keys of the data that the configuration tests on; none where mmpretrain does not know them all."""
    kind = config.test_dataloader.dataset.type
    if kind == "ImageNet":
        return class_keys("imagenet-1k")
    keys = (getattr(DATASETS.get(kind), "METAINFO", None) or {}).get("classes") or ()
    return tuple(map(str, keys)) if len(keys) == config.model[_end(config)].num_classes else ()


def _input(model: MmpretrainModel, config: Config) -> tuple[ResizeCrop, Normalise | Bgr]:
    steps = config.test_dataloader.dataset.pipeline
    found = {key: value for step in steps for key, value in _step(step).items()}
    crop = found.get("crop") or found.get("side") or model.input_size
    if crop is None:
        step = "set model.input_size (and model.crop_pct=1)"
        raise FcaError("model.input_size", None, f"a size: {model.name} takes images as they are", step)
    interpolation = model.interpolation or found.get("interpolation") or "bilinear"
    side = found.get("side") or crop
    geometry = resize_crop(crop, side, model.input_size, model.crop_pct, interpolation, found.get("squash", False))
    preprocessor = config.model.get("data_preprocessor") or config.get("data_preprocessor") or {}
    mean, std = (
        tuple(round(value / 255, 9) for value in preprocessor.get(key) or (0, 0, 0)) for key in ("mean", "std")
    )
    std = std if any(std) else (1 / 255,) * 3
    reads_bgr = any(step["type"] == "LoadImageFromFile" for step in steps) and not preprocessor.get("to_rgb")
    if reads_bgr:  # and so does its record
        mean, std = mean[::-1], std[::-1]
    normalise = Normalise(tuple(model.mean or mean), tuple(model.std or std))
    return geometry, Bgr(normalise) if reads_bgr else normalise


def _step(step: dict[str, Any]) -> dict[str, Any]:
    """What a step of mmpretrain's test pipeline does to the geometry."""

    def number(value: Any) -> int:
        return int(value if isinstance(value, int) else max(value))

    kind, interpolation = step["type"], step.get("interpolation")
    interpolation = "box" if interpolation == "area" else interpolation
    if kind == "ResizeEdge":
        return {"side": number(step["scale"]), "interpolation": interpolation}
    if kind == "Resize":
        return {"side": number(step["scale"]), "interpolation": interpolation, "squash": not step.get("keep_ratio")}
    if kind == "CenterCrop":
        return {"crop": number(step["crop_size"])}
    if kind == "EfficientNetCenterCrop":
        crop = number(step["crop_size"])
        return {"crop": crop, "side": crop + step.get("crop_padding", 32), "interpolation": interpolation or "bicubic"}
    return {}


def _refused(model: MmpretrainModel, error: Exception) -> FcaError:
    asked = {"input_size": model.input_size, **model.kwargs}
    allowed = f"what mmpretrain's {model.name} takes ({one_line(error)})"
    return FcaError("model.kwargs", asked, allowed, "correct or remove them, or choose another network")
