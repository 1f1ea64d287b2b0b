"""Models of images and texts by OpenCLIP's names: zero-shot classifiers, encoders, towers to train."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fca.models.inputs import check_rgb, classes_meaning
from fca.models.labels import file_label
from fca.models.prompts import display_names
from fca.models.weights import SUFFIXES, identity_of
from fca.nouns import Classifier, FcaError


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
        from fca.models.open_clip_network import classifier_of

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
            from fca.models.open_clip_network import record_of

            record_of(self)


@cache
def _registered() -> frozenset[str]:
    """OpenCLIP's names: those of the files that describe its models. Importing it imports torch."""
    spec = find_spec("open_clip")  # finds the package without running its __init__
    for folder in (spec and spec.submodule_search_locations) or []:
        return frozenset(file.stem for file in Path(folder, "model_configs").glob("*.json"))
    step = "install it: pip install -c constraints.txt 'fca[open-clip]'"
    raise FcaError("model", "open_clip", "a family whose package is installed; open_clip_torch is not", step)
