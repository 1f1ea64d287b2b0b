"""What OpenClip needs open_clip for; apart from it, so that planning stays quick."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
import open_clip  # noqa: E402
from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model  # noqa: E402

from fca.geometry import ResizeCrop  # noqa: E402
from fca.models.inputs import Normalise, class_keys, resize_crop  # noqa: E402
from fca.models.open_clip_net import OpenClip  # noqa: E402
from fca.models.weights import one_line, read_weights, trainable, with_weights  # noqa: E402
from fca.nouns import Classifier, FcaError  # noqa: E402

HEAD = "head"
ON_RECORD = ("mean", "std", "interpolation", "resize_mode")


class Tower(nn.Module):
    """The image tower and a layer over its projected features (or none)."""

    def __init__(self, visual: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.visual, self.head = visual, head

    def embed(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch features"]:
        """Behind the projection, not of unit length."""
        features: Any = self.visual(images)
        found: Tensor = features[0] if isinstance(features, tuple) else features  # CoCa's tower also gives its tokens
        return found

    def forward(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch logits"]:
        logits: Tensor = self.head(self.embed(images))
        return logits


class ZeroShot(nn.Module):
    """exp(scale) cos(features, texts) + bias; `texts` are unit vectors, one a class."""

    def __init__(self, texts: Float[Tensor, "classes features"], scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", scale.exp() * texts)
        self.register_buffer("bias", None if bias is None else bias.expand(len(texts)).clone())

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch classes"]:
        return linear(normalize(features, dim=-1), self.weight, self.bias)  # type: ignore[arg-type]


def classifier_of(model: OpenClip, classes: Sequence[str] | None) -> Classifier:
    """A tower to train, a trained one, a zero-shot classifier or an encoder: see OpenClip."""
    keys = tuple(classes or ()) or class_keys(model.classes)
    if model.weights is None:
        keys = tuple(trainable(classes))
        module = _tower(model, len(keys))
    elif not model.is_tag and f"{HEAD}.weight" in read_weights(model.weights):
        make = lambda logits: _tower(model, logits)  # noqa: E731
        trained, keys = with_weights(make, (HEAD,), model.weights, class_keys(model.classes), classes)
        assert isinstance(trained, Tower)
        module = trained
    else:
        clip = _loaded(model)
        if classes is not None:
            _same_input(model)
            head: nn.Module = nn.Linear(_width(model), len(keys))
        else:
            head = _zero_shot(model, clip, keys) if keys else nn.Identity()
        module = Tower(clip.visual, head)  # type: ignore[arg-type]
    geometry, normalise = _input(model)
    return Classifier(module, keys, geometry, normalise, module.embed, module.head if keys else None)


def record_of(model: OpenClip) -> dict[str, Any]:
    """What OpenCLIP knows about the weights of a tag, or else about the first ones of that name.

    Raises FcaError for a tag it does not know, and for one whose networks had another activation than the name's.
    """
    tags = list_pretrained_tags_by_model(model.name)
    if not model.is_tag:
        record: dict[str, Any] = get_pretrained_cfg(model.name, tags[0]) if tags else {}
        return record
    record = get_pretrained_cfg(model.name, str(model.weights))
    if not record:
        allowed = ", ".join(tags) or f"no tag: OpenCLIP has no weights for {model.name}"
        raise FcaError("model.weights", model.weights, f"{allowed}; or a path", "set model.weights to one of these")
    quick = bool((open_clip.get_model_config(model.name) or {}).get("quick_gelu"))
    if quick != bool(record.get("quick_gelu")):
        other = model.name.removesuffix("-quickgelu") if quick else f"{model.name}-quickgelu"
        allowed = f"{other}: the weights {model.weights} belong to its activation"
        raise FcaError("model.name", model.name, allowed, f"set model.name={other}")
    return record


def _tower(model: OpenClip, logits: int) -> Tower:
    clip: Any = _created(model, None)
    return Tower(clip.visual, nn.Linear(_width(model), logits) if logits else nn.Identity())


def _loaded(model: OpenClip) -> nn.Module:
    """The model of images and texts with its weights, which are read without running code."""
    try:
        return _created(model, model.weights)
    except RuntimeError as error:
        if not model.is_tag:
            allowed = f"weights of OpenCLIP's {model.name} ({one_line(error)})"
            step = "choose the model that these weights belong to"
            raise FcaError("model.weights", model.weights, allowed, step) from error
        record = record_of(model)
        hub = record.get("hf_hub", "").rstrip("/")
        file = f"https://huggingface.co/{hub}/resolve/main/open_clip_model.safetensors" if hub else record.get("url")
        allowed = f"weights that can be fetched ({type(error).__name__})"  # its text is that of ten retries
        step = f"connect once, or copy {file} here and set model.weights=PATH"
        raise FcaError("model.weights", model.weights, allowed, step) from error


def _created(model: OpenClip, weights: str | None) -> nn.Module:
    try:
        with _quiet():
            made: nn.Module = open_clip.create_model(
                model.name, weights, force_image_size=model.input_size, pretrained_text=False, weights_only=True
            )
    except ImportError as error:
        allowed = f"models without Hugging Face's text towers ({one_line(error)})"
        raise FcaError("model.name", model.name, allowed, "choose another, or pip install transformers") from error
    return made


def _zero_shot(model: OpenClip, clip: Any, keys: Sequence[str]) -> ZeroShot:
    try:
        with _quiet():
            tokenizer = open_clip.get_tokenizer(model.name)
    except (ImportError, OSError) as error:
        allowed = f"models whose tokenizer is here ({one_line(error)}); CLIP's own always is"
        raise FcaError("model.name", model.name, allowed, "choose another, or pip install transformers") from error
    names = model.prompt_names(keys)
    texts = open_clip.build_zero_shot_classifier(clip.eval(), tokenizer, names, model.templates).T
    return ZeroShot(texts, clip.logit_scale.detach(), None if clip.logit_bias is None else clip.logit_bias.detach())


def _width(model: OpenClip) -> int:
    return int((open_clip.get_model_config(model.name) or {})["embed_dim"])


def _preprocessing(model: OpenClip, record: dict[str, Any]) -> dict[str, Any]:
    plain = vars(open_clip.transform.PreprocessCfg())
    given = {key: getattr(model, key, None) or record.get(key) or plain[key] for key in ON_RECORD}
    return {**given, "mean": tuple(given["mean"]), "std": tuple(given["std"])}


def _same_input(model: OpenClip) -> None:
    """Raise FcaError where the trained network, known by its name and no more by its tag, would see other pixels."""
    here = _preprocessing(model, record_of(model))
    later = _preprocessing(model, record_of(replace(model, weights=None)))
    if here != later:
        allowed = f"input as OpenCLIP has it for {model.name}: {later}; {model.weights} wants {here}"
        raise FcaError("model.weights", model.weights, allowed, "set model.mean and model.std, or choose another tag")


def _input(model: OpenClip) -> tuple[ResizeCrop, Normalise]:
    told = _preprocessing(model, record_of(model))
    size = ((open_clip.get_model_config(model.name) or {})["vision_cfg"]).get("image_size", 224)
    side = size if isinstance(size, int) else max(size)
    squash = told["resize_mode"] == "squash"
    geometry = resize_crop(side, side, model.input_size, model.crop_pct, told["interpolation"], squash)
    return geometry, Normalise(told["mean"], told["std"])


@contextmanager
def _quiet() -> Iterator[None]:
    """OpenCLIP tells the root logger each step; its errors are told as ours."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, [logging.NullHandler()]
    try:
        yield
    finally:
        root.handlers = handlers
