"""Any network of timm: `model=timm model.name=...`, or one of the named points in conf/model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fca.models.inputs import check_rgb, classes_meaning
from fca.models.labels import PRETRAINED, file_label, keywords_label
from fca.models.weights import identity_of
from fca.nouns import Classifier, FcaError

STEMS = ("timm", "cifar")


@dataclass(frozen=True)
class TimmModel:
    """A network that timm has a name for. Null leaves a value of its input to timm's record of the named weights.

    name:       any timm name, with or without a tag: resnet50, resnet50.a1_in1k.
    weights:    null = from scratch; pretrained = timm's, from its hub on first use; or the path of a state dict.
    stem:       timm, or cifar for small images: one 3x3 convolution, no stride, no pooling (timm's ResNets).
    kwargs:     any keyword that timm takes for this network.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.    mean, std: of RGB in [0, 1].
    classes:    class keys of the weights' logits in their order, or the name of an ImageNet (imagenet-1k).
    projection: as an encoder, give what the weights' last layer gives: CLIP's joint space of images and texts.
    """

    name: str
    weights: str | None
    stem: str
    kwargs: dict[str, Any]
    input_size: int | None
    crop_pct: float | None
    interpolation: str | None
    mean: list[float] | None
    std: list[float] | None
    classes: Any
    projection: bool

    def label(self) -> str:
        """The architecture: name without tag, stem and keywords where they differ from timm's."""
        stem = [f"stem={self.stem}"] if self.stem != "timm" else []
        return keywords_label(" ".join([self.architecture, *stem]), self.kwargs)

    def weights_label(self) -> str | None:
        """The tag of timm's weights, or the name of the file."""
        if self.weights != PRETRAINED:
            return file_label(self.weights)
        return self._resolved().partition(".")[2] or PRETRAINED

    def identity(self) -> dict[str, Any]:
        """Without timm where neither a tag nor its weights are asked for: planning stays quick."""
        self._check()
        if self.weights != PRETRAINED:
            return identity_of("timm", self)
        identity = identity_of("timm", replace(self, name=self.architecture, weights=None))
        return {**identity, "weights": self._resolved(), "classes": classes_meaning(self.classes)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model; pretrained weights without class keys, or whose classes timm does not know: an encoder."""
        from fca.models.timm_network import classifier_of

        self._check()
        return classifier_of(self, classes)

    @property
    def architecture(self) -> str:
        """The name without its tag."""
        return self.name.partition(".")[0]

    def _resolved(self) -> str:
        """The name with the tag of the weights that timm would fetch."""
        from fca.models.timm_records import resolved_tag

        return resolved_tag(self.name)

    def _check(self) -> None:
        """Raise FcaError for a name, stem, mean or std that cannot be."""
        if "." in self.name or self.name not in _registered():
            from fca.models.timm_records import record_of

            record_of(self.name)
        if self.stem not in STEMS:
            raise FcaError("model.stem", self.stem, ", ".join(STEMS), "set model.stem to one of these")
        if self.stem == "cifar" and self.weights == PRETRAINED:
            raise FcaError(
                "model.stem", "cifar", "timm: pretrained weights belong to timm's stem", "train from scratch"
            )
        check_rgb(self.mean, self.std)


@cache
def _registered() -> frozenset[str]:
    """Names of networks, read off the files that define them: importing timm takes seconds, planning should not.

    timm knows a network by a function of its name whose first argument is `pretrained`.
    """
    spec = find_spec("timm")  # finds the package without running its __init__
    folders = (spec and spec.submodule_search_locations) or []
    files = [file for folder in folders for file in Path(folder, "models").glob("*.py")]
    files.append(Path(__file__).with_name("mobilenet.py"))
    return frozenset(
        name for file in files for name in re.findall(r"^def (\w+)\(\s*pretrained\b", file.read_text(), re.M)
    )
