"""Any classifier of OpenMMLab's mmpretrain: `model=mmpretrain model.name=...`."""

from __future__ import annotations

import copy
import difflib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from torch import Tensor, nn

from fca.geometry import ResizeCrop
from fca.models.heads import classifier, looked_at, with_or_without
from fca.models.inputs import (
    PRETRAINED,
    Normalise,
    check_rgb,
    class_keys,
    classes_meaning,
    file_label,
    keywords_label,
    resize_crop,
)
from fca.models.weights import (
    fetched,
    identity_of,
    one_line,
    read_weights,
    with_weights,
)
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import Classifier, FcaError

# What mmpretrain's own index says of its models, read without importing it: names, weights, configurations.


TASK = "Image Classification"


class Record(NamedTuple):
    """A model of mmpretrain.    config: the file that describes it.    weights: address of its checkpoint."""

    config: Path
    weights: str | None


def record_of(name: str) -> Record:
    """mmpretrain's record of a classifier; raises FcaError for a name that it does not know."""
    records = _records()
    if name.lower() not in records:
        near = difflib.get_close_matches(name.lower(), records) or sorted(records)[:3]
        allowed = f"one of mmpretrain's {len(records)} classifiers, such as {', '.join(near)}"
        step = f"list them: python -c \"from mmpretrain import list_models; print(list_models(task='{TASK}'))\""
        raise FcaError("model.name", name, allowed, step)
    return records[name.lower()]


def weights_of(name: str) -> str:
    """The address of a model's checkpoint; raises FcaError if mmpretrain publishes none."""
    weights = record_of(name).weights
    if weights is None:
        allowed = f"no pretrained weights: mmpretrain has none for {name}"
        raise FcaError("model.weights", "pretrained", allowed, "train it from scratch: model.weights=null")
    return weights


@cache
def _records() -> dict[str, Record]:
    """Records by lower-case name, as mmpretrain looks them up."""
    import yaml

    folder = _folder()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is there

    def read(file: str) -> Any:
        return yaml.load((folder / file).read_text(), loader)  # noqa: S506  (both loaders are the safe ones)

    records = {}
    for file in read("model-index.yml")["Import"]:
        for model in read(file).get("Models", []):
            if any(result.get("Task") == TASK for result in _results(model)):
                records[model["Name"].lower()] = Record(folder / model["Config"], model.get("Weights"))
    return records


def _folder() -> Path:
    spec = find_spec("mmpretrain")  # finds the package without running its __init__
    folders = (spec and spec.submodule_search_locations) or []
    for folder in folders:
        return Path(folder, ".mim")
    step = "install it: pip install -c constraints.txt 'fca[mmpretrain]'"
    raise FcaError("model", "mmpretrain", "a family whose package is installed; mmpretrain is not", step)


def _results(model: dict[str, Any]) -> list[dict[str, Any]]:
    results = model.get("Results") or []
    return results if isinstance(results, list) else [results]


@dataclass(frozen=True)
class MmpretrainModel:
    """An image classifier that mmpretrain has a name for. Null leaves a value of its input to mmpretrain's config.

    name:    any name with the task Image Classification: resnet18_8xb32_in1k.
    weights: null = from scratch; pretrained = OpenMMLab's, fetched on first use; or the path of a checkpoint.
    kwargs:  what its configuration is to say otherwise, by part: {backbone: {drop_path_rate: 0.1}}.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.    mean, std: of RGB in [0, 1].
    classes: class keys of the weights' logits in their order; null = those of the data its configuration names.

    Images are resized by Pillow, where mmpretrain takes OpenCV: accuracies may differ in the third digit.
    """

    name: str
    weights: str | None
    kwargs: dict[str, Any]
    input_size: int | None
    crop_pct: float | None
    interpolation: str | None
    mean: list[float] | None
    std: list[float] | None
    classes: Any

    def label(self) -> str:
        """The name, and the keywords."""
        return keywords_label(self.name, self.kwargs)

    def weights_label(self) -> str | None:
        """The name of the file, here or on the web."""
        return file_label(self.weights) if self.weights != PRETRAINED else self._published()

    def identity(self) -> dict[str, Any]:
        """Published checkpoints enter by their name, which ends with digits of their sha256."""
        record_of(self.name)
        check_rgb(self.mean, self.std)
        if self.weights != PRETRAINED:
            return identity_of("mmpretrain", self)
        identity = identity_of("mmpretrain", replace(self, weights=None))
        return {**identity, "weights": self._published(), "classes": classes_meaning(self.classes)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model."""
        self.identity()

        return classifier_of(self, classes)

    def _published(self) -> str:
        return Path(urlsplit(weights_of(self.name)).path).name


# What MmpretrainModel needs mmpretrain for; apart from it, so that planning stays quick.


declare_torchvision_ops()

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
