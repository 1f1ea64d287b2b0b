"""Resize and crop from a stored image of any size to the square input of a network, with the same box for its mask."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from fca.types import FcaError, Geometry, check_choice

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")  # that timm knows
INTERPOLATIONS = {name: Image.Resampling[name.upper()] for name in FILTERS}


@dataclass(frozen=True)
class ResizeCrop:
    """Resize so that the shorter side is floor(size / crop_pct), then cut the centre: timm's evaluation transform.

    size:          side of the result in pixels.
    crop_pct:      share of the shorter side that is kept, in (0, 1].
    interpolation: Pillow's filter for images; masks take the nearest pixel.
    squash:        resize both sides to floor(size / crop_pct), so that no margin is lost but the shape changes.

    Raises FcaError for a value out of range. An image that already has the size is unchanged at crop_pct 1.

    >>> ResizeCrop(224, 0.875, "bicubic").key
    '224-256-bicubic'
    >>> ResizeCrop(2)(np.zeros((4, 6, 3), np.uint8))[0].shape
    (2, 2, 3)
    """

    size: int
    crop_pct: float = 1.0
    interpolation: str = "bilinear"
    squash: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise FcaError("input_size", self.size, "at least 1 pixel", "set the model's input_size")
        if not 0 < self.crop_pct <= 1:
            raise FcaError("crop_pct", self.crop_pct, "above 0 and at most 1", "set the model's crop_pct")
        check_choice("interpolation", self.interpolation, INTERPOLATIONS, "set the model's interpolation")

    @property
    def side(self) -> int:
        """Shorter side of the resized image before it is cropped, in pixels."""
        return math.floor(self.size / self.crop_pct)

    @property
    def key(self) -> str:
        """Name of the result in the pixel cache: size, resized side and filter."""
        return f"{self.size}-{self.original_key}"

    @property
    def original_key(self) -> str:
        """Name of what `resized` returns in the pixel cache: resized side and filter."""
        return f"{self.side}-{self.interpolation}" + ("-squash" if self.squash else "")

    def after_crop(self, share: float) -> ResizeCrop:
        """The geometry for images that were already cut to this share of their shorter side: no margin is cut twice.

        The field of view is that of whole images where `crop_pct` is at most `share`; else all that is left is shown.

        >>> ResizeCrop(224, 0.875).after_crop(0.875).crop_pct, round(ResizeCrop(224, 0.7).after_crop(0.875).crop_pct, 2)
        (1.0, 0.8)
        """
        return replace(self, crop_pct=min(1.0, self.crop_pct / share))

    def resized(self, image: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "new_height new_width 3"]:
        """The image with its margins, from which a training crops at random: at the scale of the evaluation.

        With `squash` it has the shape that the evaluation shows, side x side. A smaller image is enlarged here too.
        """
        return np.array(self._resized(image))

    def __call__(
        self, image: UInt8[np.ndarray, "height width 3"], mask: Bool[np.ndarray, "height width"] | None = None
    ) -> tuple[UInt8[np.ndarray, "size size 3"], Bool[np.ndarray, "size size"] | None]:
        """The image, and its mask if there is one, at input size."""
        whole = self._resized(image)
        left, top = (round((length - self.size) / 2) for length in whole.size)
        box = (left, top, left + self.size, top + self.size)
        pixels = np.array(whole.crop(box))
        if mask is None:
            return pixels, None
        shape = Image.fromarray(mask.view(np.uint8)).resize(whole.size, Image.Resampling.NEAREST).crop(box)
        return pixels, np.array(shape, dtype=bool)

    def _resized(self, image: UInt8[np.ndarray, "height width 3"]) -> Image.Image:
        height, width = image.shape[:2]
        side, shorter = self.side, min(height, width)
        # the longer side is rounded down
        sides = (side, side) if self.squash else (side * width // shorter, side * height // shorter)
        return Image.fromarray(image).resize(sides, INTERPOLATIONS[self.interpolation])


REFERENCE = ResizeCrop(224, 0.875, "bilinear")
"""ImageNet-C's own: shorter side to 256 pixels, then the middle 224 x 224; as torchvision resizes Pillow's images."""
REFERENCE_ABOVE = 96
"""Pixels of the shorter side above which ImageNet-C's constants hold, and images are brought to REFERENCE."""


def is_above_reference(height: int, width: int) -> bool:
    """Whether an image of this size is corrupted at REFERENCE.

    >>> is_above_reference(96, 500), is_above_reference(97, 97)
    (False, True)
    """
    return min(height, width) > REFERENCE_ABOVE


@dataclass(frozen=True)
class AfterReference:
    """A network's geometry for a set of which the larger images come at REFERENCE: their margin is not cut twice.

    usual: the network's own, for all other images. One that is no ResizeCrop is used for all of them.
    """

    usual: Geometry

    @property
    def key(self) -> str:
        """Name of the result in the pixel cache."""
        return f"{self.usual.key}-after-{REFERENCE.key}"

    @property
    def size(self) -> int:
        """Side of the network's input, in pixels."""
        return self.usual.size

    def __call__(
        self, image: UInt8[np.ndarray, "height width 3"], mask: Bool[np.ndarray, "height width"] | None = None
    ) -> tuple[UInt8[np.ndarray, "size size 3"], Bool[np.ndarray, "size size"] | None]:
        """The image, and its mask if there is one, at input size."""
        if isinstance(self.usual, ResizeCrop) and is_above_reference(*image.shape[:2]):
            return self.usual.after_crop(REFERENCE.crop_pct)(image, mask)
        return self.usual(image, mask)
