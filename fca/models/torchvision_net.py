"""Any classification network of torchvision: `model=torchvision model.name=...`, or a named point in conf/model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fca.models.inputs import classes_meaning
from fca.models.labels import PRETRAINED, file_label, keywords_label
from fca.models.weights import identity_of
from fca.nouns import Classifier, FcaError


@dataclass(frozen=True)
class TorchvisionModel:
    """A classification network that torchvision has a name for. Null leaves its input to torchvision's record.

    name:    any name, with or without the tag of its weights: resnet50, resnet50.IMAGENET1K_V1.
    weights: null = from scratch; pretrained = torchvision's, fetched on first use; or the path of a state dict.
    kwargs:  any keyword that torchvision takes for this network.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.
    classes: class keys of the weights' logits in their order; torchvision's own weights know ImageNet's wnids.

    Networks with auxiliary heads are built without them. GoogLeNet and Inception rescale their normalised input as
    their published weights need it (transform_input), whether trained here or there. Where a network pools behind its
    last layer (SqueezeNet), a classifier's features ARE its logits; as an encoder it gives the mean of its last map.
    """

    name: str
    weights: str | None
    kwargs: dict[str, Any]
    input_size: int | None
    crop_pct: float | None
    interpolation: str | None
    classes: Any

    def label(self) -> str:
        """The name without tag, and the keywords."""
        return keywords_label(self.architecture, self.kwargs)

    def weights_label(self) -> str | None:
        """The tag of torchvision's weights, or the name of the file."""
        return file_label(self.weights) if self.weights != PRETRAINED else self._resolved().partition(".")[2]

    def identity(self) -> dict[str, Any]:
        """Without torchvision where neither a tag nor its weights are asked for: planning stays quick."""
        self._check()
        if self.weights != PRETRAINED:
            return identity_of("torchvision", self)
        identity = identity_of("torchvision", replace(self, name=self.architecture, weights=None))
        return {**identity, "weights": self._resolved(), "classes": classes_meaning(self.classes)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model."""
        from fca.models.torchvision_network import classifier_of

        self._check()
        return classifier_of(self, classes)

    @property
    def architecture(self) -> str:
        """The name without its tag."""
        return self.name.partition(".")[0]

    def _resolved(self) -> str:
        """Name and tag of the weights that torchvision would fetch."""
        from fca.models.torchvision_network import record_of

        return f"{self.architecture}.{record_of(self.name).name}"

    def _check(self) -> None:
        """Raise FcaError for a name or a tag that torchvision does not know."""
        names = _registered()
        if self.architecture not in names:
            near = difflib.get_close_matches(self.architecture, names) or sorted(names)[:3]
            allowed = f"one of torchvision's {len(names)} names, such as {', '.join(near)}"
            step = "list them: https://docs.pytorch.org/vision/stable/models.html#classification"
            raise FcaError("model.name", self.name, allowed, step)
        if "." in self.name:
            self._resolved()


@cache
def _registered() -> frozenset[str]:
    """Names of classification networks, read off the files that define them: importing torchvision imports torch.

    torchvision knows a network by a function of its name whose first argument is the keyword `weights`.
    """
    spec = find_spec("torchvision")  # finds the package without running its __init__
    folders = (spec and spec.submodule_search_locations) or []
    files = [file for folder in folders for file in Path(folder, "models").glob("*.py")]
    return frozenset(
        name for file in files for name in re.findall(r"^def (\w+)\(\s*\*,\s*weights\b", file.read_text(), re.M)
    )
