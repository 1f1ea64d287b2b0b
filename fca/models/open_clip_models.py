"""Models of images and texts by OpenCLIP's names: zero-shot classifiers, encoders, towers to train."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from fca.geometry import INTERPOLATIONS, ResizeCrop
from fca.models import (
    Mean,
    Normalise,
    Std,
    class_keys,
    file_label,
    identity_of,
    not_fetched,
    one_line,
    package_files,
    resize_crop,
    unknown_name,
)
from fca.torchvision_ops import imported
from fca.types import Classifier, FcaError, Model
from fca.validation import Allowed

if TYPE_CHECKING:
    from torch import nn

HEAD = "head"
PREPROCESSING_KEYS = ("mean", "std", "interpolation", "resize_mode")  # of OpenCLIP's records
_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class OpenClip(Model):
    """A CLIP (arXiv:2103.00020) or a relative of it: an encoder without class keys, with them a zero-shot classifier:

    logits = exp(s) f(image)·t / |f(image)| + b,   t = mean over templates of the texts' unit features, made unit again

    where s is the learned scale and b the learned bias, if any. Features are f(image): the image tower behind its
    projection, not yet of unit length. Training takes the image tower and a fresh linear layer on these features.

    name:      any OpenCLIP name.
    weights:   null = from scratch; a tag of that name, fetched on first use; or a path.
    templates: prompts with {} for the name of a class.
    names:     class key -> its name, where the key is not enough.
    classes:   class keys to choose among, or of a trained head's logits; see `naming`.
    choose_among: where `classes` is null: annotation column -> published classes, taken on data sets with this column.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.
    mean, std: of RGB in [0, 1]. Null: on record.
    """

    name: str
    weights: str | None
    templates: list[str]
    names: dict[str, str] | None
    input_size: Annotated[int | None, Allowed(1, 8192)]
    crop_pct: Annotated[float | None, Allowed(above=0, most=1)]
    interpolation: Annotated[str | None, Allowed(choices=tuple(INTERPOLATIONS))]
    mean: Mean
    std: Std
    classes: Any
    choose_among: dict[str, str] = field(default_factory=dict)  # stored configurations lack it

    def label(self) -> str:
        return f"open_clip:{self.name}"  # other libraries have networks of the same name (convnext_base)

    def weights_label(self) -> str | None:
        return self.weights if self.is_tag else file_label(self.weights)

    def naming(self, classes: Sequence[str]) -> OpenClip:
        """A copy of this model that chooses among these class keys; the model itself if it already has class keys."""
        if self.classes is not None:
            return self
        return replace(self, classes=list(classes))

    def reading(self, texts: Sequence[str]) -> OpenClip:
        """A copy of this model as a zero-shot classifier whose classes are these texts, which are used as they are.

        Logits are in the order of the texts.
        """
        # A text is not fit to be a class key: each gets a number as its key, and is the name of that key.
        names = {f"{number:05d}": text for number, text in enumerate(texts)}
        return replace(self, classes=list(names), names=names, templates=["{}"])

    def from_scratch(self) -> Model:
        return replace(self, weights=None)

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: all fields, but `names` and `templates` only beside weights and classes.

        Only with both is it a zero-shot classifier, which makes prompts about each class from names and templates; no
        other use of the model reads them. Weights enter by the name of their tag, or as a file by the file's content.

        Raises FcaError for impossible settings.
        """
        self._check()
        prompts: dict[str, Any] = {"templates": None, "names": None}
        if self.weights is not None and self.classes is not None:
            # `classes` may be one string such as imagenet-1k: it stands for the classes and for their usual names, so
            # only the configured names are added.
            prompts = {"templates": self.templates, "names": self.names or {}}
            if not isinstance(self.classes, str):  # a list of class keys: the names that stand in the prompts
                keys = [str(key) for key in self.classes]
                prompts["names"] = list(display_names(keys, self.names or {}))

        published = self.weights if self.is_tag else None  # None: the weights are a file, or there are none
        identity = identity_of("open_clip", self, published, **prompts)
        del identity["choose_among"]  # a rule that sets `classes`, whose result is already in the identity
        return identity

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The network for one of four uses: a tower to train, a trained one, a zero-shot classifier, or an encoder.

        The tower is the part of OpenCLIP's model that reads images; the other part reads texts.

        classes: class keys to train for; None = to predict or to embed.
        Raises FcaError for impossible settings, for weights that do not fit, and if there are neither weights nor
        classes.
        """
        from fca.models.checkpoints import read_weights
        from fca.models.networks import trainable, with_weights

        self._check()
        keys = tuple(classes or ()) or class_keys(self.classes)
        module: Any
        if self.weights is None:  # a tower to train from scratch
            keys = tuple(trainable(classes))
            module = _tower_with_head(self, None, len(keys))  # None: random weights
        elif not self.is_tag and f"{HEAD}.weight" in read_weights(self.weights):  # a trained tower with its head
            make = partial(_tower_with_head, self, None)  # number of logits -> tower with random weights
            module, keys = with_weights(make, (HEAD,), self.weights, class_keys(self.classes), classes)
        elif keys and classes is None:
            module = _zero_shot(self, keys)
        else:  # a tower to finetune, or an encoder
            module = _tower_with_head(self, self.weights, len(keys))
            if classes is not None:
                # The trained network will be stored without the tag, and must then still get the same pixels.
                _check_input_independent_of_tag(self)

        geometry, normalise = _geometry_and_normalisation(self)
        return Classifier(module, keys, geometry, normalise, module.embed, module.head if keys else None)

    @property
    def is_tag(self) -> bool:
        """Whether `weights` names published weights and no file: no tag has a full stop or a slash."""
        return self.weights is not None and not Path(self.weights).suffix and "/" not in self.weights

    def _check(self) -> None:
        """Raise FcaError for an unknown name or tag, a template without exactly one {}, or impossible mean and std."""
        if self.name not in _registered():
            step = "list them: python -c 'import open_clip; print(open_clip.list_models())'"
            raise unknown_name("OpenCLIP", self.name, _registered(), step)

        invalid_templates = [template for template in self.templates if template.count("{}") != 1]
        if invalid_templates or not self.templates:
            allowed = "at least one prompt, each with one {} where the class is named"
            raise FcaError("model.templates", invalid_templates or self.templates, allowed, "correct model.templates")

        Normalise.check(self)
        if self.is_tag:
            record_of(self)  # raises FcaError for an unknown tag


@cache
def _registered() -> frozenset[str]:
    """OpenCLIP's names, found by the files that describe its models, without importing it, which would import torch."""
    return frozenset(file.stem for file in package_files("open_clip", "model_configs/*.json"))


# Names of classes in prompts


def display_names(keys: Sequence[str], configured: Mapping[str, str]) -> tuple[str, ...]:
    """The name of every class key, for prompts.

    keys:       class keys.
    configured: class key -> name; other keys are named as follows.

    A wnid gets the first word that WordNet has for it (by timm's ImageNetInfo). WordNet's definition follows if another
    class has the same word: ImageNet has two cranes. Any other key is its own name, with spaces for _ and -.
    Raises FcaError if two classes would still have the same name, apart from upper and lower case.

    >>> display_names(["n02012849", "n01440764", "polar_bear"], {"polar_bear": "ice bear"})
    ('crane', 'tench', 'ice bear')
    """
    first_names = [configured.get(key) or _name_of_key(key) for key in keys]
    shared_names = _repeated(first_names)

    names = []
    for key, name in zip(keys, first_names, strict=True):
        if name.lower() in shared_names and key in _wordnet("definition"):
            name = f"{name}, {_wordnet('definition')[key]}"
        names.append(name)

    repeated_names = _repeated(names)
    if repeated_names:
        ambiguous_keys = [key for key, name in zip(keys, names, strict=True) if name.lower() in repeated_names]
        allowed = f"different names in prompts; {', '.join(ambiguous_keys)} share {', '.join(sorted(repeated_names))}"
        raise FcaError("model.names", dict(configured), allowed, "name them: '+model.names.KEY=NAME'")
    return tuple(names)


def _name_of_key(key: str) -> str:
    """WordNet's first word for a wnid (ImageNet's key of a class); any other key with spaces for _ and -."""
    if _WNID.fullmatch(key) and key in _wordnet("lemma"):
        first_word, _, _ = _wordnet("lemma")[key].partition(",")
        return first_word
    return re.sub(r"[_-]+", " ", key).strip()


def _repeated(names: Sequence[str]) -> set[str]:
    """The names that occur more than once if upper and lower case are not distinguished; in lower case."""
    counts = Counter(name.lower() for name in names)
    return {name for name, count in counts.items() if count > 1}


@cache
def _wordnet(kind: str) -> dict[str, str]:
    """wnid -> WordNet's words (kind lemma) or definition (kind definition), from the text of timm's files."""
    [file] = package_files("timm", f"data/_info/imagenet_synset_to_{kind}.txt")
    text_by_wnid = {}
    for line in file.read_text().splitlines():
        wnid, _, text = line.partition("\t")
        text_by_wnid[wnid] = text.strip()
    return text_by_wnid


# Building


_open_clip = partial(imported, "open_clip")


def record_of(model: OpenClip) -> dict[str, Any]:
    """OpenCLIP's record of a model's weights: a dictionary with their preprocessing, activation and address.

    A tag names published weights. A model without a tag, whose weights are a file or random, gets the record of the
    first tag that OpenCLIP has for the network, so that images are prepared as for these weights. Empty if OpenCLIP has
    none.
    Raises FcaError for an unknown tag, and for a tag whose weights were trained with another activation than the
    network of this name has.
    """
    pretrained = _open_clip().pretrained
    tags = pretrained.list_pretrained_tags_by_model(model.name)
    if not model.is_tag:
        return pretrained.get_pretrained_cfg(model.name, tags[0]) if tags else {}

    record: dict[str, Any] = pretrained.get_pretrained_cfg(model.name, str(model.weights))
    if not record:
        allowed = ", ".join(tags) or f"no tag: OpenCLIP has no weights for {model.name}"
        raise FcaError("model.weights", model.weights, f"{allowed}; or a path", "set model.weights to one of these")

    # Two networks that differ only in their activation have separate names, with and without -quickgelu.
    has_quick_gelu = bool(_config(model).get("quick_gelu"))
    if has_quick_gelu != bool(record.get("quick_gelu")):
        other_name = model.name.removesuffix("-quickgelu") if has_quick_gelu else f"{model.name}-quickgelu"
        allowed = f"{other_name}: the weights {model.weights} belong to its activation"
        raise FcaError("model.name", model.name, allowed, f"set model.name={other_name}")
    return record


def _config(model: OpenClip) -> dict[str, Any]:
    return _open_clip().get_model_config(model.name) or {}


def _tower_with_head(model: OpenClip, weights: str | None, logits: int) -> nn.Module:
    """The image tower with a fresh linear layer over its features; for 0 logits without one.

    weights: a tag or the path of a file, as in `_image_and_text_model`; None = random weights.
    """
    from torch import nn

    from fca.models.networks import Tower

    # The tower is built before the head: stored runs drew their random weights in this order.
    visual = _image_and_text_model(model, weights).visual
    if logits == 0:
        return Tower(visual, nn.Identity())
    features = int(_config(model)["embed_dim"])
    return Tower(visual, nn.Linear(features, logits))


def _zero_shot(model: OpenClip, keys: Sequence[str]) -> nn.Module:
    """OpenCLIP's image network (its tower) with a layer that compares features with texts, for one logit per class.

    The texts are prompts about the classes, such as "a photo of a cat". The features of the texts are the weights of
    the layer, so the result classifies images without a training.

    keys: class keys.
    Raises FcaError if the library of the model's tokenizer is missing, and for classes that would share a name.
    """
    from fca.models.networks import Tower, ZeroShot

    clip = _image_and_text_model(model, model.weights)
    allowed_models = "models whose tokenizer is here (CLIP's own always is)"
    # OSError: a tokenizer of Hugging Face that could not be fetched
    with _refusing_models_without_library(model, allowed_models, ImportError, OSError):
        tokenizer = _open_clip().get_tokenizer(model.name)

    names = display_names(keys, model.names or {})
    # OpenCLIP returns the texts' features as (features, classes); the layer's weights are (classes, features)
    texts = _open_clip().build_zero_shot_classifier(clip.eval(), tokenizer, names, model.templates).T
    bias = None if clip.logit_bias is None else clip.logit_bias.detach()
    return Tower(clip.visual, ZeroShot(texts, clip.logit_scale.detach(), bias))


def _image_and_text_model(model: OpenClip, weights: str | None) -> Any:
    """OpenCLIP's whole model of images and texts. Its weights are read without running code.

    weights: a tag if `model.is_tag`, else the path of a file; None = random weights.
    Raises FcaError for a missing library, weights that cannot be downloaded, and a file that does not fit.
    """
    tag = weights if model.is_tag else None
    try:
        allowed_models = "models without Hugging Face's text towers"
        with _refusing_models_without_library(model, allowed_models, ImportError):
            clip = _open_clip().create_model(
                model.name,
                tag,
                force_image_size=model.input_size,
                pretrained_text=False,  # else it would download further weights for the part that reads texts
                weights_only=True,
            )
    except RuntimeError as error:  # for a tag: its weights could not be downloaded
        if tag is None:  # nothing was to be downloaded: an error of another kind
            raise
        record = record_of(model)
        hub = record.get("hf_hub", "").rstrip("/")
        file = f"https://huggingface.co/{hub}/resolve/main/open_clip_model.safetensors" if hub else record.get("url")
        # only the type of the error is shown: its text lists ten attempts to download
        raise not_fetched(tag, file, type(error).__name__) from error

    if weights is not None and tag is None:  # a file
        _load_file(model, clip, weights)
    return clip


def _load_file(model: OpenClip, clip: Any, weights: str) -> None:
    """Load a file of weights into OpenCLIP's model (`clip`), in place. Raises FcaError for weights of another model.

    OpenCLIP's own loader is used because it adapts names and sizes of tensors. But it reads a file by its suffix.
    Therefore the tensors are first read without running code of the file, and the loader gets a copy of them with the
    suffix that it expects.
    """
    import torch

    from fca.models.checkpoints import read_weights
    from fca.models.networks import check_finite_weights

    state = read_weights(weights, clip.state_dict())
    check_finite_weights(clip, state, weights)
    with _quiet(), TemporaryDirectory(prefix="fca-") as folder:
        copy = f"{folder}/weights.pt"
        torch.save(state, copy)
        try:
            _open_clip().load_checkpoint(clip, copy)
        except RuntimeError as error:
            allowed = f"weights of OpenCLIP's {model.name} ({one_line(error)})"
            raise FcaError("model.weights", weights, allowed, "choose the model of these weights") from error


@contextmanager
def _refusing_models_without_library(model: OpenClip, allowed_models: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise FcaError in place of these errors of the body of `with`, in which OpenCLIP is also muted.

    They arise for models that read texts by a library (transformers) that is not installed.

    allowed_models: which models can be chosen instead, for the message.
    errors:         the classes of error to convert.
    """
    try:
        with _quiet():
            yield
    except errors as error:
        step = "choose another, or pip install transformers"
        raise FcaError("model.name", model.name, f"{allowed_models} ({one_line(error)})", step) from error


def _preprocessing(model: OpenClip) -> dict[str, Any]:
    """The mean, std, interpolation and resize mode of images (PREPROCESSING_KEYS) by key.

    Each is the model's own value, else that in OpenCLIP's record of the weights, else OpenCLIP's default.
    """
    record = record_of(model)
    defaults = vars(_open_clip().transform.PreprocessCfg())
    values = {key: getattr(model, key, None) or record.get(key) or defaults[key] for key in PREPROCESSING_KEYS}
    return {**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])}


def _check_input_independent_of_tag(model: OpenClip) -> None:
    """Raise FcaError if finetuning from a tag would train on other pixels than the trained network will get.

    A tag names published weights, and may have a preprocessing of its own. The trained network is stored without the
    tag, so its images are later preprocessed as OpenCLIP does by the network's name alone.
    """
    with_tag = _preprocessing(model)
    without_tag = _preprocessing(replace(model, weights=None))
    if with_tag != without_tag:
        allowed = f"input as OpenCLIP has it for {model.name}: {without_tag}; {model.weights} wants {with_tag}"
        raise FcaError("model.weights", model.weights, allowed, "set model.mean and model.std, or choose another tag")


def _geometry_and_normalisation(model: OpenClip) -> tuple[ResizeCrop, Normalise]:
    """Resize, crop and normalisation by OpenCLIP's record, with the model's own values over it."""
    values = _preprocessing(model)
    image_size = _config(model)["vision_cfg"].get("image_size", 224)
    side = image_size if isinstance(image_size, int) else max(image_size)  # some records have height and width
    squash = values["resize_mode"] == "squash"
    geometry = resize_crop(side, side, model.input_size, model.crop_pct, values["interpolation"], squash)
    return geometry, Normalise(values["mean"], values["std"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Mute the root logger in the body of `with`: OpenCLIP logs each of its steps to it, also those that fail."""
    root = logging.getLogger()
    previous_handlers = root.handlers
    root.handlers = [logging.NullHandler()]
    try:
        yield
    finally:
        root.handlers = previous_handlers
