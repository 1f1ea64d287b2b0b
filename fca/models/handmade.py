"""Encoders without weights: `model@encoder=hog`, `model@encoder=pixels`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32

from fca.geometry import ResizeCrop
from fca.identity import canonical
from fca.types import Classifier, FcaError, Model
from fca.validation import Allowed, Side

if TYPE_CHECKING:
    from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, ITU-R BT.601


@dataclass(frozen=True)
class Handmade(Model):
    """Base of encoders without weights.

    input_size: side in pixels that images are resized to.
    """

    input_size: Side

    family = ""  # in identities, and as a label
    learns: ClassVar[bool] = False

    def label(self) -> str:
        return self.family

    def weights_label(self) -> str | None:
        return None

    def identity(self) -> dict[str, Any]:
        return {"family": self.family, **canonical("model", asdict(self))}

    @property
    def geometry(self) -> ResizeCrop:
        return ResizeCrop(self.input_size)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The encoder, which has no logits. Raises FcaError for `classes`: it has no weights that could be trained."""
        import torch

        if classes is not None:
            allowed = "a network: this one has no weights that could be trained"
            raise FcaError("model", self.label(), allowed, "use it as model@encoder, or choose another model")
        module = torch.nn.Identity()  # stands for a network: `embed` computes the features
        return Classifier(module, (), self.geometry, normalise=module, embed=self.embed, head=None)

    def embed(self, images: Tensor) -> Tensor:
        """Features of images in [0, 1]: shape (batch, 3, size, size) -> (batch, features)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Hog(Handmade):
    """Histograms of oriented gradients (Dalal and Triggs, CVPR 2005) of the grey image, by scikit-image.

    cell:         side of a cell in pixels.
    block:        side of a block, over which histograms are normalised, in cells.
    orientations: bins of a histogram.
    """

    cell: Annotated[int, Allowed(1)]
    block: Annotated[int, Allowed(1)]
    orientations: Annotated[int, Allowed(1)]

    family = "hog"

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: the family and all fields.

        Raises FcaError for images that are smaller than a block, and so have no features.
        """
        block_side = self.cell * self.block  # in pixels
        if not 0 < block_side <= self.input_size:
            allowed = f"at most input_size={self.input_size} together"
            step = "lower one, or raise model.input_size"
            raise FcaError("model.cell x model.block", f"{self.cell} x {self.block}", allowed, step)
        return super().identity()

    def embed(self, images: Tensor) -> Tensor:
        """Histograms of oriented gradients of each image in grey, block by block: shape (batch, features)."""
        import torch
        from skimage.feature import hog

        features = [
            hog(image, self.orientations, (self.cell, self.cell), (self.block, self.block), feature_vector=True)
            for image in grey(images.cpu().numpy())
        ]
        return torch.from_numpy(np.stack(features).astype(np.float32))


@dataclass(frozen=True)
class PixelFeatures(Handmade):
    """The pixels themselves, in [0, 1], row by row.

    grey: one channel instead of three.
    """

    grey: bool

    family = "pixels"

    def embed(self, images: Tensor) -> Tensor:
        """The images' values, flattened: (batch, channels * size * size)."""
        import torch

        pixels = torch.from_numpy(grey(images.cpu().numpy())) if self.grey else images
        return pixels.flatten(1)


def grey(images: Float[np.ndarray, "images 3 size size"]) -> Float32[np.ndarray, "images size size"]:
    """The luma of RGB images: 0.299 red + 0.587 green + 0.114 blue.

    >>> grey(np.ones((1, 3, 1, 1), np.float32)).round(3).tolist()
    [[[1.0]]]
    """
    return np.tensordot(images, np.array(LUMA, images.dtype), axes=(1, 0)).astype(np.float32)
