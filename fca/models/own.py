"""Your own embedding as an encoder: `model@encoder=own encoder.function=mymodule.embed`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, UInt8

from fca.geometry import ResizeCrop
from fca.identity import settled
from fca.models.functions import called, function_of, source_of
from fca.models.handmade import encoder
from fca.nouns import Classifier, FcaError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OwnEmbedding:
    """A function of yours: uint8 (images, size, size, 3) -> numbers (images, features), as an encoder.

    function: module.name; the module is looked for in the current folder too.
    input_size, crop_pct, interpolation: what happens to an image first, see fca.geometry.ResizeCrop.

    It means what its source says: changing the module's file makes another encoder of it. What the function reads
    (weights, other modules) is not followed: name the function anew when that changes.
    """

    function: str
    input_size: int
    crop_pct: float
    interpolation: str

    def label(self) -> str:
        """The function's name."""
        return self.function

    def weights_label(self) -> str | None:
        return None

    def identity(self) -> dict[str, Any]:
        """All fields, and the sha256 of the function's source file. Raises FcaError if there is none."""
        return {"family": "own", **settled("model", asdict(self)), "source": source_of("model.function", self.function)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """An encoder; raises FcaError when asked for classes, and later when the function gives something else."""
        geometry = ResizeCrop(self.input_size, self.crop_pct, self.interpolation)
        function = function_of("model.function", self.function)

        def numbers(pixels: UInt8[np.ndarray, "images size size 3"]) -> np.ndarray:
            return np.array(function(pixels), np.float32)

        def embed(images: Tensor) -> Tensor:
            import torch

            pixels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
            features = called("model.function", self.function, numbers, pixels)
            if features.ndim != 2 or len(features) != len(pixels) or not np.isfinite(features).all():
                allowed = f"a function that gives finite numbers of shape ({len(pixels)}, features) for as many images"
                value = f"{self.function} -> {features.shape}"
                raise FcaError("model.function", value, allowed, "correct the function")
            return torch.from_numpy(features)

        return encoder(self.function, geometry, embed, classes)


def mean_colour(pixels: UInt8[np.ndarray, "images size size 3"]) -> Float64[np.ndarray, "images 6"]:
    """Mean and standard deviation of red, green and blue, in [0, 1]: an example to copy.

    >>> mean_colour(np.full((1, 2, 2, 3), 255, np.uint8)).tolist()
    [[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]]
    """
    unit = pixels / 255
    return np.concatenate([unit.mean(axis=(1, 2)), unit.std(axis=(1, 2))], axis=1)
