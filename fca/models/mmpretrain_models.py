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

    kwargs:    changes to its configuration, by component: {backbone: {drop_path_rate: 0.1}}.
    mean, std: of RGB in [0, 1].
    classes:   null = for published weights, those of the data that its configuration names.

    Images are resized by Pillow, where mmpretrain takes OpenCV: accuracies may differ in the third digit.
    """

    mean: Mean
    std: Std

    family = "mmpretrain"

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        from fca.models.checkpoints import fetched
        from fca.models.networks import classifier, logit_layers, with_optional_head, with_weights

        self._check()
        config = _config(self)
        weights = self.weights
        file_keys = class_keys(self.classes)
        if self.pretrained:
            weights = str(fetched(weights_of(self.name)))
            file_keys = file_keys or _classes(config)

        component = _logit_component(config)
        settings = config.model[component]
        layers = logit_layers(lambda logits: _module_of(self, {**settings, "num_classes": logits}))
        head = tuple(f"{component}.{layer}" for layer in layers)
        make = with_optional_head(partial(network, self, config), head)
        module, keys = with_weights(make, head, weights, file_keys, classes, tidy)

        geometry, normalise = _input(self, config)
        return classifier(module, keys, head, geometry, normalise, self.refused)

    @property
    def architecture(self) -> str:
        """The name: mmpretrain has no tags, and a full stop may be part of a name."""
        return self.name

    def _published(self) -> str:
        """The checkpoint's file name, which ends with digits of its sha256."""
        return Path(urlsplit(weights_of(self.name)).path).name

    def _check(self) -> None:
        record_of(self.name)
        imported_type = _importable_type(self.kwargs)
        if imported_type:
            allowed = "names of mmpretrain's own registry: one with a full stop would be imported, whatever it is"
            raise FcaError("model.kwargs", imported_type, allowed, "take a registered name")
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
            if not isinstance(results, list):
                results = [results]
            is_classifier = any(result.get("Task") == TASK for result in results)
            if is_classifier:
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
    settings = _without_downloads(copy.deepcopy(config.model))
    settings[_logit_component(config)]["num_classes"] = logits
    settings.update(data_preprocessor=None, train_cfg=None)
    module = _module_of(model, settings)
    module.init_weights()
    return module


def tidy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict without mmpretrain's normalisation, which `Normalise` does here."""
    return {name: value for name, value in state.items() if not name.startswith("data_preprocessor.")}


def _config(model: MmpretrainModel) -> Any:
    """mmpretrain's configuration of a network, with the model's changes."""
    _import()
    from mmengine.config import Config

    config = Config.fromfile(record_of(model.name).config, lazy_import=False)  # its guess is wrong for RepLKNet
    if model.kwargs:
        config.merge_from_dict({"model": model.kwargs})

    kind = config.model.get("type")
    if kind != "ImageClassifier" or "head" not in config.model:
        step = "choose another network, or model=open_clip for zero-shot"
        raise FcaError("model.name", model.name, f"networks with a head of their own; this is a {kind}", step)
    return config


def _logit_component(config: Any) -> str:
    """The component that gives the logits: the head, or the backbone of VGG and Inception (their heads add a loss)."""
    return "backbone" if "num_classes" in config.model.backbone else "head"


def _module_of(model: MmpretrainModel, settings: dict[str, Any]) -> Any:
    """The module that a component of a configuration describes."""
    from mmengine.config import ConfigDict
    from mmengine.registry import DefaultScope
    from mmpretrain.registry import MODELS

    with DefaultScope.overwrite_default_scope("mmpretrain"):
        try:
            return MODELS.build(ConfigDict(settings))
        except (AssertionError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise model.refused(error) from error


def _importable_type(value: Any) -> str | None:
    """The first `type` in a configuration that mmengine would import by its path, as any class or function."""
    if isinstance(value, dict):
        kind = value.get("type")
        is_registered_name = isinstance(kind, str) and kind.isidentifier()
        if kind is not None and not is_registered_name:
            return str(kind)
        inner_values = list(value.values())
    elif isinstance(value, list):
        inner_values = value
    else:
        return None

    for inner_value in inner_values:
        imported_type = _importable_type(inner_value)
        if imported_type:
            return imported_type
    return None


def _without_downloads(settings: Any) -> Any:
    """Settings without the weights that configurations for fine-tuning would download: scratch means scratch."""
    if isinstance(settings, list):
        return [_without_downloads(value) for value in settings]
    if not isinstance(settings, dict):
        return settings

    values = {key: _without_downloads(value) for key, value in settings.items() if key != "pretrained"}
    if values.get("init_cfg") and "Pretrained" in str(values["init_cfg"]):
        del values["init_cfg"]
    return type(settings)(values)


def _classes(config: Any) -> tuple[str, ...]:
    """Class keys of the data that the configuration tests on; none where mmpretrain does not list them all."""
    from mmpretrain.registry import DATASETS

    dataset = config.test_dataloader.dataset.type
    if dataset == "ImageNet":
        return class_keys("imagenet-1k")

    metadata = getattr(DATASETS.get(dataset), "METAINFO", None) or {}
    keys = metadata.get("classes") or ()
    if len(keys) != config.model[_logit_component(config)].num_classes:
        return ()
    return tuple(map(str, keys))


def _input(model: MmpretrainModel, config: Any) -> tuple[ResizeCrop, Normalise]:
    """The geometry and normalisation of the test pipeline, with the model's own values over it."""
    steps = config.test_dataloader.dataset.pipeline
    return _geometry(model, steps), _normalisation(model, config, steps)


def _geometry(model: MmpretrainModel, steps: Sequence[dict[str, Any]]) -> ResizeCrop:
    """The geometry of a test pipeline.    steps: of the pipeline; a later one replaces values of those before it."""
    settings: dict[str, Any] = {}
    for step in steps:
        settings.update(_geometry_of_step(step))

    crop = settings.get("crop") or settings.get("side") or model.input_size
    if crop is None:
        allowed = f"a size: {model.name} takes images as they are"
        raise FcaError("model.input_size", None, allowed, "set model.input_size (and model.crop_pct=1)")

    side = settings.get("side") or crop
    interpolation = model.interpolation or settings.get("interpolation") or "bilinear"
    squash = settings.get("squash", False)
    return resize_crop(crop, side, model.input_size, model.crop_pct, interpolation, squash)


def _normalisation(model: MmpretrainModel, config: Any, steps: Sequence[dict[str, Any]]) -> Normalise:
    """The normalisation of a configuration, for RGB in [0, 1]."""
    preprocessor = config.model.get("data_preprocessor") or config.get("data_preprocessor") or {}

    def in_unit_range(key: str) -> tuple[float, ...]:
        return tuple(round(value / 255, 9) for value in preprocessor.get(key) or (0, 0, 0))

    mean = in_unit_range("mean")
    std = in_unit_range("std")
    if not any(std):
        std = (1 / 255,) * 3

    reads_bgr = any(step["type"] == "LoadImageFromFile" for step in steps)
    bgr = reads_bgr and not preprocessor.get("to_rgb")
    if bgr:  # its record is in that order, too
        mean = mean[::-1]
        std = std[::-1]
    return Normalise(tuple(model.mean or mean), tuple(model.std or std), bgr)


def _geometry_of_step(step: dict[str, Any]) -> dict[str, Any]:
    """The geometry (side, crop, interpolation, squash) that a step of mmpretrain's test pipeline sets."""

    def pixels(value: Any) -> int:
        return int(value if isinstance(value, int) else max(value))

    kind = step["type"]
    interpolation = step.get("interpolation")
    if interpolation == "area":
        interpolation = "box"

    if kind == "ResizeEdge":
        return {"side": pixels(step["scale"]), "interpolation": interpolation}
    if kind == "Resize":
        return {
            "side": pixels(step["scale"]),
            "interpolation": interpolation,
            "squash": not step.get("keep_ratio"),
        }
    if kind == "CenterCrop":
        return {"crop": pixels(step["crop_size"])}
    if kind == "EfficientNetCenterCrop":
        crop = pixels(step["crop_size"])
        return {
            "crop": crop,
            "side": crop + step.get("crop_padding", 32),
            "interpolation": interpolation or "bicubic",
        }
    return {}
