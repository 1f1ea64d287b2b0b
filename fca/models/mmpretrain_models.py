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
        """The network with its weights: a classifier if class keys are known, else an encoder.

        classes: if given, it gets a fresh head for them, to be trained.
        Raises FcaError for impossible settings, and for weights that cannot be fetched or do not fit.
        """
        from fca.models.checkpoints import fetched
        from fca.models.networks import classifier, logit_layers, with_optional_head, with_weights

        self._check()
        config = _config(self)
        weights = self.weights
        file_keys = class_keys(self.classes)  # class keys of the weights' logits; empty if unknown
        if self.pretrained:
            weights = str(fetched(weights_of(self.name)))
            file_keys = file_keys or _class_keys_of_test_data(config)

        # To find the layers that give logits, only the component that has them (of most networks, `head`) is built.
        component = _logit_component(config)
        settings = config.model[component]
        layers = logit_layers(lambda logits: _build_component(self, {**settings, "num_classes": logits}))
        head = tuple(f"{component}.{layer}" for layer in layers)
        make = with_optional_head(partial(network, self, config), head)
        # tidy: drops the mean and std that mmpretrain's files hold beside the weights
        module, keys = with_weights(make, head, weights, file_keys, classes, tidy)

        geometry, normalise = _geometry_and_normalisation(self, config)
        return classifier(module, keys, head, geometry, normalise, self.refused)

    @property
    def architecture(self) -> str:
        """The name: mmpretrain has no tags, and a full stop may be part of a name."""
        return self.name

    def _published(self) -> str:
        """The checkpoint's file name, which ends with digits of its sha256."""
        return Path(urlsplit(weights_of(self.name)).path).name

    def _check(self) -> None:
        """Raise FcaError for an unknown name, for settings that would run foreign code, and for mean or std."""
        record_of(self.name)  # raises FcaError for an unknown name
        imported_type = _importable_type(self.kwargs)
        if imported_type:
            allowed = "names of mmpretrain's own registry: one with a full stop would be imported, whatever it is"
            raise FcaError("model.kwargs", imported_type, allowed, "take a registered name")
        Normalise.check(self)


# mmpretrain's own index of its models, read without importing it: names, weights, configurations


class Record(NamedTuple):
    """mmpretrain's entry for a model.

    config:  the file that describes it.
    weights: address of its checkpoint; None if there is none.
    """

    config: Path
    weights: str | None


def record_of(name: str) -> Record:
    """mmpretrain's record of a classifier, by its name in any case. Raises FcaError for an unknown name."""
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
    """mmpretrain's records of all classifiers, by their names in lower case, as mmpretrain itself looks them up.

    They are read from mmpretrain's index of YAML files, without importing it, which would import torch.
    Raises FcaError if mmpretrain is not installed.
    """
    import yaml

    [index] = package_files("mmpretrain", ".mim/model-index.yml")
    folder = index.parent
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is there

    def read(file: str) -> Any:
        """The content of a YAML file, whose path is relative to the index."""
        return yaml.load((folder / file).read_text(), loader)  # noqa: S506  (both loaders are the safe ones)

    records = {}
    for file in read(index.name)["Import"]:
        for model in read(file).get("Models", []):
            results = model.get("Results") or []
            if not isinstance(results, list):  # some files have a single result without a list
                results = [results]
            is_classifier = any(result.get("Task") == TASK for result in results)
            if is_classifier:
                records[model["Name"].lower()] = Record(folder / model["Config"], model.get("Weights"))
    return records


# Building


@cache
def _import_mmpretrain() -> None:
    """Import mmpretrain, which registers its networks, without its warnings.

    Raises FcaError if a library that it needs is missing on this machine.
    """
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()  # mmpretrain imports torchvision, which fails without this on a CPU build of torch
    try:
        with warnings.catch_warnings():
            # Three warnings: torch compiles its own optimisers by torch.jit; mmcv-lite lacks the operator named below;
            # Python warns of escape sequences when it compiles files of these packages for the first time.
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
            warnings.filterwarnings("ignore", "Fail to import ``MultiScaleDeformableAttention``", UserWarning)
            warnings.filterwarnings("ignore", "invalid escape sequence", DeprecationWarning)
            import mmpretrain.datasets
            import mmpretrain.models  # noqa: F401  (else it is imported, and warns, at the first look-up of a model)
            from mmengine.logging import MMLogger
    except ImportError as error:
        step = "libGL.so.1: pip install opencv-python-headless over opencv-python; else docs/adr/0009-model-families.md"
        raise FcaError("model", "mmpretrain", f"a machine where it imports ({error})", step) from error
    MMLogger.get_current_instance().setLevel("WARNING")  # else it logs how it initialised every single weight


def network(model: MmpretrainModel, config: Any, logits: int) -> nn.Module:
    """mmpretrain's network with random weights and this number of logits.

    config: the network's configuration (see `_config`). Weights are initialised as configured; none are downloaded.
    """
    settings = _without_downloads(copy.deepcopy(config.model))
    settings[_logit_component(config)]["num_classes"] = logits
    settings.update(data_preprocessor=None, train_cfg=None)  # fca normalises, and mixes images, itself
    module = _build_component(model, settings)
    module.init_weights()
    return module


def tidy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict without the mean and std that mmpretrain stores in it: `Normalise` does that step here."""
    return {name: value for name, value in state.items() if not name.startswith("data_preprocessor.")}


def _config(model: MmpretrainModel) -> Any:
    """mmpretrain's configuration of a network, with the changes of `model.kwargs`.

    Raises FcaError for an unknown name, for a network that is no image classifier with a head, such as a model of
    images and texts, and if mmpretrain cannot be imported.
    """
    _import_mmpretrain()
    from mmengine.config import Config

    # lazy_import=False is the style of mmpretrain's files. Without it mmengine guesses, wrongly for RepLKNet.
    config = Config.fromfile(record_of(model.name).config, lazy_import=False)
    if model.kwargs:
        config.merge_from_dict({"model": model.kwargs})

    kind = config.model.get("type")
    if kind != "ImageClassifier" or "head" not in config.model:
        step = "choose another network, or model=open_clip for zero-shot"
        raise FcaError("model.name", model.name, f"networks with a head of their own; this is a {kind}", step)
    return config


def _logit_component(config: Any) -> str:
    """The component of a network that gives the logits: usually the head.

    It is the backbone in VGG and Inception, whose heads only compute a loss.
    """
    return "backbone" if "num_classes" in config.model.backbone else "head"


def _build_component(model: MmpretrainModel, settings: dict[str, Any]) -> Any:
    """Build the module that settings of mmpretrain describe: a whole network or one component of it.

    model: the model that the error names. Raises FcaError for settings that the component does not take.
    """
    from mmengine.config import ConfigDict
    from mmengine.registry import DefaultScope
    from mmpretrain.registry import MODELS

    with DefaultScope.overwrite_default_scope("mmpretrain"):  # looks up names among mmpretrain's components
        try:
            return MODELS.build(ConfigDict(settings))
        except (AssertionError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise model.refused(error) from error


def _importable_type(value: Any) -> str | None:
    """The first `type` in settings that is no plain name, and so would be imported by mmengine; None if there is none.

    mmengine imports a `type` with a full stop by its path: it may be any class or function.

    value: settings, which may contain dictionaries and lists at any depth.
    """
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
    """A copy of settings without the entries by which mmpretrain would download weights while it builds a network.

    fca loads weights itself, or starts from random ones. The entries are `pretrained` and an `init_cfg` of type
    Pretrained, at any depth.
    """
    if isinstance(settings, list):
        return [_without_downloads(value) for value in settings]
    if not isinstance(settings, dict):
        return settings

    # _without_downloads of each value reaches entries at any depth
    values = {key: _without_downloads(value) for key, value in settings.items() if key != "pretrained"}
    if values.get("init_cfg") and "Pretrained" in str(values["init_cfg"]):  # str: it may be a dictionary or a list
        del values["init_cfg"]
    return type(settings)(values)  # a ConfigDict, whose keys are also attributes, stays one


def _class_keys_of_test_data(config: Any) -> tuple[str, ...]:
    """The class keys of the logits of mmpretrain's own weights: the classes of the data set that they are tested on.

    config: the network's configuration, which names this data set.
    Empty if mmpretrain does not list the classes of that data set, or lists another number than the network has logits.
    For ImageNet the class keys are always its 1,000 wnids: mmpretrain lists only names in words.
    """
    from mmpretrain.registry import DATASETS

    dataset = config.test_dataloader.dataset.type
    if dataset == "ImageNet":
        return class_keys("imagenet-1k")

    metadata = getattr(DATASETS.get(dataset), "METAINFO", None) or {}
    keys = metadata.get("classes") or ()
    if len(keys) != config.model[_logit_component(config)].num_classes:
        return ()
    return tuple(map(str, keys))


def _geometry_and_normalisation(model: MmpretrainModel, config: Any) -> tuple[ResizeCrop, Normalise]:
    """Resize, crop and normalisation of a configuration's test pipeline, with the model's own values over them."""
    steps = config.test_dataloader.dataset.pipeline
    return _geometry(model, steps), _normalisation(model, config, steps)


def _geometry(model: MmpretrainModel, steps: Sequence[dict[str, Any]]) -> ResizeCrop:
    """How test images are resized and cropped: by mmpretrain's test pipeline, or by the model's own settings if given.

    steps: settings of the pipeline's steps, in their order. If two steps set the same value, the later one counts.

    In pixels, `crop` is the side of the central square that is kept, and `side` the shorter side of the resized image.
    Raises FcaError if neither the pipeline nor the model gives a size.
    """
    settings: dict[str, Any] = {}
    for step in steps:
        settings.update(_geometry_of_step(step))

    # without a step that crops, the network takes the whole resized image
    crop = settings.get("crop") or settings.get("side") or model.input_size
    if crop is None:
        allowed = f"a size: {model.name} takes images as they are"
        raise FcaError("model.input_size", None, allowed, "set model.input_size (and model.crop_pct=1)")

    side = settings.get("side") or crop  # a pipeline may crop without resizing
    interpolation = model.interpolation or settings.get("interpolation") or "bilinear"
    squash = settings.get("squash", False)
    # where the model has its own input_size and crop_pct, they replace crop and the ratio crop / side
    return resize_crop(crop, side, model.input_size, model.crop_pct, interpolation, squash)


def _normalisation(model: MmpretrainModel, config: Any, steps: Sequence[dict[str, Any]]) -> Normalise:
    """The normalisation that a configuration describes, for RGB images in [0, 1], with the model's own values over it.

    config: mmpretrain's configuration of the network.
    steps:  settings of the steps of its test pipeline.
    """
    preprocessor = config.model.get("data_preprocessor") or config.get("data_preprocessor") or {}

    def in_unit_range(key: str) -> tuple[float, ...]:
        """The mean or std of each channel, for values in [0, 1] instead of 0 to 255; zeros if it is not configured."""
        # Rounded, so that 57.12 / 255 is 0.224 and not 0.22399999999999998.
        return tuple(round(value / 255, 9) for value in preprocessor.get(key) or (0, 0, 0))

    mean = in_unit_range("mean")
    std = in_unit_range("std")
    if not any(std):  # no std is configured: values stay at 0 to 255, as after a division of [0, 1] by 1 / 255
        std = (1 / 255,) * 3

    reads_bgr = any(step["type"] == "LoadImageFromFile" for step in steps)  # this step reads by OpenCV: BGR
    bgr = reads_bgr and not preprocessor.get("to_rgb")
    if bgr:  # the configuration then has mean and std in the order BGR, too; `Normalise` takes them as RGB
        mean = mean[::-1]
        std = std[::-1]
    return Normalise(tuple(model.mean or mean), tuple(model.std or std), bgr)


def _geometry_of_step(step: dict[str, Any]) -> dict[str, Any]:
    """The part of the geometry that one step of mmpretrain's test pipeline sets; empty for steps that change no size.

    step: the settings of the step.

    The keys of the result are `side` (shorter side of the resized image in pixels), `crop` (side in pixels),
    `interpolation` and `squash` (whether both sides are resized to `side`).
    """

    def pixels(value: Any) -> int:
        """A size given as one number or as two sides.

        The larger side counts: in mmpretrain's test pipelines the other is equal, or -1 for one that keeps the ratio.
        """
        return int(value if isinstance(value, int) else max(value))

    kind = step["type"]
    interpolation = step.get("interpolation")
    if interpolation == "area":  # OpenCV's name for Pillow's box filter
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
        return {  # 32 and bicubic are mmpretrain's own defaults of this step
            "crop": crop,
            "side": crop + step.get("crop_padding", 32),
            "interpolation": interpolation or "bicubic",
        }
    return {}
