"""Models of images and texts by OpenCLIP's names: zero-shot classifiers, encoders, towers to train."""

from __future__ import annotations

import difflib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import open_clip
from jaxtyping import Float
from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fca.geometry import ResizeCrop
from fca.models.inputs import Normalise, check_rgb, class_keys, classes_meaning, file_label, resize_crop
from fca.models.weights import SUFFIXES, identity_of, one_line, read_weights, trainable, with_weights
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import Classifier, FcaError

# What a class is called in a prompt.


_WNID = re.compile(r"n\d{8}")


def display_names(keys: Sequence[str], given: Mapping[str, str]) -> tuple[str, ...]:
    """The name of every class key: the given one; WordNet's for a wnid; or the key with spaces for _ and -.

    WordNet's first word is taken, and its definition behind it where two of the classes share that word (ImageNet has
    two cranes). Source: timm's ImageNetInfo. Raises FcaError where two classes would still be called the same.

    >>> display_names(["n02012849", "n01440764", "polar_bear"], {"polar_bear": "ice bear"})
    ('crane', 'tench', 'ice bear')
    """
    names = [given.get(key) or _words(key) for key in keys]
    shared = _twice(names)
    names = [
        f"{name}, {_wordnet('definition')[key]}" if name.lower() in shared and key in _wordnet("definition") else name
        for key, name in zip(keys, names, strict=True)
    ]
    twice = _twice(names)
    if twice:
        called = [key for key, name in zip(keys, names, strict=True) if name.lower() in twice]
        allowed = f"different names in prompts; {', '.join(called)} share {', '.join(sorted(twice))}"
        raise FcaError("model.names", dict(given), allowed, "name them: '+model.names.KEY=NAME'")
    return tuple(names)


def _words(key: str) -> str:
    if _WNID.fullmatch(key) and key in _wordnet("lemma"):
        return _wordnet("lemma")[key].partition(",")[0]
    return re.sub(r"[_-]+", " ", key).strip()


def _twice(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(name.lower() for name in names).items() if count > 1}


@cache
def _wordnet(kind: str) -> dict[str, str]:
    """Words or definitions by wnid, from timm's files and without importing timm."""
    spec = find_spec("timm")  # finds the package without running its __init__
    folder = Path(next(iter((spec and spec.submodule_search_locations) or [])))
    lines = (folder / "data" / "_info" / f"imagenet_synset_to_{kind}.txt").read_text().splitlines()
    return {key: text.strip() for key, _, text in (line.partition("\t") for line in lines)}


@dataclass(frozen=True)
class OpenClip:
    """A CLIP (arXiv:2103.00020) or a relative of it. Without class keys an encoder, with them a zero-shot classifier:

    logits = exp(s) f(image)·t / |f(image)| + b,   t = mean over templates of the texts' unit features, made unit again

    where s is the learned scale and b the learned bias, if any. Features are f(image): the image tower behind its
    projection, not yet of unit length. Training takes the image tower and a fresh linear layer on these features.

    name:      any OpenCLIP name.    weights: null = from scratch; a tag of that name, fetched on first use; or a path.
    templates: prompts with {} for the name of a class.    names: class key -> its name, where the key is not enough.
    classes:   class keys to choose among, or of a trained head's logits; see `naming`.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.    mean, std: of RGB in [0, 1]. Null: on record.
    """

    name: str
    weights: str | None
    templates: list[str]
    names: dict[str, str] | None
    input_size: int | None
    crop_pct: float | None
    interpolation: str | None
    mean: list[float] | None
    std: list[float] | None
    classes: Any

    def label(self) -> str:
        """The name, told from other libraries' networks of that name (convnext_base)."""
        return f"open_clip:{self.name}"

    def weights_label(self) -> str | None:
        """The tag, or the name of the file."""
        return self.weights if self.is_tag else file_label(self.weights)

    def naming(self, classes: Sequence[str]) -> OpenClip:
        """The same model asked about these class keys; one that was given class keys keeps to those."""
        return self if self.classes is not None else replace(self, classes=list(classes))

    def identity(self) -> dict[str, Any]:
        """For a zero-shot classifier also class names and templates. Raises FcaError for what cannot be."""
        self._check()
        asks = self.weights is not None and self.classes is not None
        prompts: dict[str, Any] = {"templates": self.templates, "names": self.names or {}} if asks else {}
        if asks and not isinstance(self.classes, str):
            prompts["names"] = list(self.prompt_names([str(key) for key in self.classes]))
        told = replace(self, weights=None, templates=[], names=None) if self.is_tag else self
        identity = {**identity_of("open_clip", told), "templates": None, "names": None, **prompts}
        if self.is_tag:
            identity |= {"weights": self.weights, "classes": classes_meaning(self.classes)}
        return identity

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model."""
        self._check()

        return classifier_of(self, classes)

    def prompt_names(self, keys: Sequence[str]) -> tuple[str, ...]:
        """What stands for {} in the templates, for each of the class keys."""
        return display_names(keys, self.names or {})

    @property
    def is_tag(self) -> bool:
        """Whether `weights` names published weights and no file."""
        return self.weights is not None and Path(self.weights).suffix not in SUFFIXES and "/" not in self.weights

    def _check(self) -> None:
        """Raise FcaError for a name, tag, template, mean or std that cannot be."""
        names = _registered()
        if self.name not in names:
            near = difflib.get_close_matches(self.name, names) or sorted(names)[:3]
            allowed = f"one of OpenCLIP's {len(names)} names, such as {', '.join(near)}"
            step = "list them: python -c 'import open_clip; print(open_clip.list_models())'"
            raise FcaError("model.name", self.name, allowed, step)
        odd = [template for template in self.templates if template.count("{}") != 1]
        if odd or not self.templates:
            allowed = "at least one prompt, each with one {} where the class is named"
            raise FcaError("model.templates", odd or self.templates, allowed, "correct model.templates")
        check_rgb(self.mean, self.std)
        if self.is_tag:
            record_of(self)


@cache
def _registered() -> frozenset[str]:
    """OpenCLIP's names: those of the files that describe its models. Importing it imports torch."""
    spec = find_spec("open_clip")  # finds the package without running its __init__
    for folder in (spec and spec.submodule_search_locations) or []:
        return frozenset(file.stem for file in Path(folder, "model_configs").glob("*.json"))
    step = "install it: pip install -c constraints.txt 'fca[open-clip]'"
    raise FcaError("model", "open_clip", "a family whose package is installed; open_clip_torch is not", step)


# What OpenClip needs open_clip for; apart from it, so that planning stays quick.


declare_torchvision_ops()


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
