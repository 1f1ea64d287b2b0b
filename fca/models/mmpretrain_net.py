"""Any classifier of OpenMMLab's mmpretrain: `model=mmpretrain model.name=...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fca.models.inputs import check_rgb, classes_meaning
from fca.models.labels import PRETRAINED, file_label, keywords_label
from fca.models.mmpretrain_records import record_of, weights_of
from fca.models.weights import identity_of
from fca.nouns import Classifier


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
        from fca.models.mmpretrain_network import classifier_of

        return classifier_of(self, classes)

    def _published(self) -> str:
        return Path(urlsplit(weights_of(self.name)).path).name
