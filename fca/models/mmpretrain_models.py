"""Any classifier of OpenMMLab's mmpretrain: `model=mmpretrain model.name=...`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from fca.geometry import ResizeCrop
from fca.models import (
    PRETRAINED,
    LibraryModel,
    Mean,
    Normalise,
    Std,
    class_keys,
    package_files,
    resize_crop,
    unknown_name,
)
from fca.types import Classifier, FcaError

if TYPE_CHECKING:
    from torch import Tensor, nn

TASK = "Image Classification"


@dataclass(frozen=True)
class MmpretrainModel(LibraryModel):
    """An image classifier that mmpretrain has a name for (with the task Image Classification): resnet18_8xb32_in1k.

    kwargs:    changes to its configuration, by part: {backbone: {drop_path_rate: 0.1}}.
    mean, std: of RGB in [0, 1].
    classes:   null = for published weights, those of the data that its configuration names.

    Images are resized by Pillow, where mmpretrain takes OpenCV: accuracies may differ in the third digit.
    """

    mean: Mean
    std: Std

    family = "mmpretrain"

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        from fca.models.networks import classifier, fetched, logit_layers, with_or_without, with_weights

        self._check()
        config = _config(self)
        weights, known = self.weights, class_keys(self.classes)
        if self.pretrained:
            weights, known = str(fetched(weights_of(self.name))), known or _classes(config)
        end = _end(config)
        parts = config.model[end]
        layers = logit_layers(lambda logits: _made(self, {**parts, "num_classes": logits}))
        head = tuple(f"{end}.{name}" for name in layers)
        make = with_or_without(partial(network, self, config), head)
        module, keys = with_weights(make, head, weights, known, classes, tidy)
        return classifier(module, keys, head, *_input(self, config), self.refused)

    @property
    def architecture(self) -> str:
        """The name: mmpretrain has no tags, and a full stop may be part of a name."""
        return self.name

    def _published(self) -> str:
        """The checkpoint's file name, which ends with digits of its sha256."""
        return Path(urlsplit(weights_of(self.name)).path).name

    def _check(self) -> None:
        record_of(self.name)
        if named := _code_in(self.kwargs):
            allowed = "names of mmpretrain's own registry: one with a full stop would be imported, whatever it is"
            raise FcaError("model.kwargs", named, allowed, "take a registered name")
        Normalise.check(self)


# mmpretrain's own index of its models, read without importing it: names, weights, configurations


class Record(NamedTuple):
    """A model of mmpretrain.    config: the file that describes it.    weights: address of its checkpoint."""

    config: Path
    weights: str | None


def record_of(name: str) -> Record:
    """mmpretrain's record of a classifier; raises FcaError for an unknown name."""
    records = _records()
    if name.lower() not in records:
        step = f"list them: python -c \"from mmpretrain import list_models; print(list_models(task='{TASK}'))\""
        raise unknown_name("mmpretrain", name.lower(), records, step, "classifiers")
    return records[name.lower()]


def weights_of(name: str) -> str:
    """The address of a model's checkpoint; raises FcaError if mmpretrain publishes none."""
    weights = record_of(name).weights
    if weights is None:
        allowed = f"no pretrained weights: mmpretrain has none for {name}"
        raise FcaError("model.weights", PRETRAINED, allowed, "train it from scratch: model.weights=null")
    return weights


@cache
def _records() -> dict[str, Record]:
    """Records by lower-case name, as mmpretrain looks them up."""
    import yaml

    [index] = package_files("mmpretrain", ".mim/model-index.yml")
    folder = index.parent
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is there

    def read(file: str) -> Any:
        return yaml.load((folder / file).read_text(), loader)  # noqa: S506  (both loaders are the safe ones)

    records = {}
    for file in read(index.name)["Import"]:
        for model in read(file).get("Models", []):
            results = model.get("Results") or []
            if any(result.get("Task") == TASK for result in (results if isinstance(results, list) else [results])):
                records[model["Name"].lower()] = Record(folder / model["Config"], model.get("Weights"))
    return records


# Building


@cache
def _import() -> None:
    """Import mmpretrain, which registers its networks. Raises FcaError where the machine lacks a library for it."""
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    try:
        with warnings.catch_warnings():  # optimisers that torch itself compiles as it advises against; mmcv-lite
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
            warnings.filterwarnings("ignore", "Fail to import ``MultiScaleDeformableAttention``", UserWarning)
            warnings.filterwarnings("ignore", "invalid escape sequence", DeprecationWarning)  # while compiling files
            import mmpretrain.datasets
            import mmpretrain.models  # noqa: F401  (else the first look-up would import it, and warn then)
            from mmengine.logging import MMLogger
    except ImportError as error:
        step = "libGL.so.1: pip install opencv-python-headless over opencv-python; else docs/adr/0009-model-families.md"
        raise FcaError("model", "mmpretrain", f"a machine where it imports ({error})", step) from error
    MMLogger.get_current_instance().setLevel("WARNING")  # else it logs how it initialised every single weight


def network(model: MmpretrainModel, config: Any, logits: int) -> nn.Module:
    """mmpretrain's network with random weights, initialised as configured but without downloading any."""
    parts = _unfetched(copy.deepcopy(config.model))
    parts[_end(config)]["num_classes"] = logits
    parts.update(data_preprocessor=None, train_cfg=None)
    module = _made(model, parts)
    module.init_weights()
    return module


def tidy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without normalisation, which is ours."""
    return {key: value for key, value in state.items() if not key.startswith("data_preprocessor.")}


def _config(model: MmpretrainModel) -> Any:
    _import()
    from mmengine.config import Config

    config = Config.fromfile(record_of(model.name).config, lazy_import=False)  # its guess is wrong for RepLKNet
    if model.kwargs:
        config.merge_from_dict({"model": model.kwargs})
    if config.model.get("type") != "ImageClassifier" or "head" not in config.model:
        allowed = f"networks with a head of their own; this is a {config.model.get('type')}"
        raise FcaError("model.name", model.name, allowed, "choose another network, or model=open_clip for zero-shot")
    return config


def _end(config: Any) -> str:
    """The part that gives the logits: the head, but the backbone of VGG and Inception, whose heads only add a loss."""
    return "backbone" if "num_classes" in config.model.backbone else "head"


def _made(model: MmpretrainModel, parts: dict[str, Any]) -> Any:
    """The module that a part of a configuration describes."""
    from mmengine.config import ConfigDict
    from mmengine.registry import DefaultScope
    from mmpretrain.registry import MODELS

    with DefaultScope.overwrite_default_scope("mmpretrain"):
        try:
            return MODELS.build(ConfigDict(parts))
        except (AssertionError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise model.refused(error) from error


def _code_in(kwargs: Any) -> str | None:
    """The first value of a `type` in these parts that mmengine would import by its path, as any class or function."""
    if isinstance(kwargs, dict):
        kind = kwargs.get("type")
        if kind is not None and not (isinstance(kind, str) and kind.isidentifier()):
            return str(kind)
    inner = kwargs.values() if isinstance(kwargs, dict) else kwargs if isinstance(kwargs, list) else ()
    return next(filter(None, map(_code_in, inner)), None)


def _unfetched(parts: Any) -> Any:
    """The parts without the weights that configurations for fine-tuning would download: scratch means scratch."""
    if isinstance(parts, dict):
        kept = {key: _unfetched(value) for key, value in parts.items() if key != "pretrained"}
        if kept.get("init_cfg", {}) and "Pretrained" in str(kept["init_cfg"]):
            del kept["init_cfg"]
        return type(parts)(kept)
    return [_unfetched(part) for part in parts] if isinstance(parts, list) else parts


def _classes(config: Any) -> tuple[str, ...]:
    """Class keys of the data that the configuration tests on; none where mmpretrain does not list them all."""
    from mmpretrain.registry import DATASETS

    kind = config.test_dataloader.dataset.type
    if kind == "ImageNet":
        return class_keys("imagenet-1k")
    keys = (getattr(DATASETS.get(kind), "METAINFO", None) or {}).get("classes") or ()
    return tuple(map(str, keys)) if len(keys) == config.model[_end(config)].num_classes else ()


def _input(model: MmpretrainModel, config: Any) -> tuple[ResizeCrop, Normalise]:
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
    bgr = any(step["type"] == "LoadImageFromFile" for step in steps) and not preprocessor.get("to_rgb")
    if bgr:  # and so is its record
        mean, std = mean[::-1], std[::-1]
    return geometry, Normalise(tuple(model.mean or mean), tuple(model.std or std), bgr)


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
