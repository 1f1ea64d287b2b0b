"""Resize and crop from a stored image of any size to the square input of a network, with the same box for its mask."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from fca.types import FcaError, Geometry, check_choice

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")  # those of timm
INTERPOLATIONS = {name: Image.Resampling[name.upper()] for name in FILTERS}


@dataclass(frozen=True)
class ResizeCrop:
    """Resize so that the shorter side is floor(size / crop_pct), then crop the centre: timm's evaluation transform.

    size:          side of the result in pixels.
    crop_pct:      fraction of the shorter side that the crop keeps, in (0, 1].
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
        """Name of the result of `resized` in the pixel cache: resized side and filter."""
        suffix = "-squash" if self.squash else ""
        return f"{self.side}-{self.interpolation}{suffix}"

    def after_crop(self, share: float) -> ResizeCrop:
        """The geometry for images that were already cropped to a fraction `share` of their shorter side.

        It crops less, so that no margin is cropped twice. If `crop_pct` is at most `share`, the network sees the same
        part of the scene as for uncropped images; otherwise it sees the full cropped image.

        >>> ResizeCrop(224, 0.875).after_crop(0.875).crop_pct, round(ResizeCrop(224, 0.7).after_crop(0.875).crop_pct, 2)
        (1.0, 0.8)
        """
        return replace(self, crop_pct=min(1.0, self.crop_pct / share))

    def resized(self, image: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "new_height new_width 3"]:
        """The image resized as for evaluation but not cropped, so that training can crop it at random.

        With `squash` both sides are `side`. An image that is smaller is enlarged.
        """
        return np.array(self._resize(image))

    def __call__(
        self, image: UInt8[np.ndarray, "height width 3"], mask: Bool[np.ndarray, "height width"] | None = None
    ) -> tuple[UInt8[np.ndarray, "size size 3"], Bool[np.ndarray, "size size"] | None]:
        """Resize and crop an image, and its mask if there is one (else None), to the input size."""
        resized = self._resize(image)
        width, height = resized.size
        left = round((width - self.size) / 2)
        top = round((height - self.size) / 2)
        box = (left, top, left + self.size, top + self.size)
        pixels = np.array(resized.crop(box))
        if mask is None:
            return pixels, None

        mask_image = Image.fromarray(mask.view(np.uint8))  # False and True as 0 and 1
        resized_mask = mask_image.resize(resized.size, Image.Resampling.NEAREST)
        return pixels, np.array(resized_mask.crop(box), dtype=bool)

    def _resize(self, image: UInt8[np.ndarray, "height width 3"]) -> Image.Image:
        """The image with `side` as its shorter side (with `squash`, as both sides), before the crop."""
        height, width = image.shape[:2]
        side = self.side
        if self.squash:
            size = (side, side)
        else:
            shorter = min(height, width)
            size = (side * width // shorter, side * height // shorter)  # the longer side is rounded down
        return Image.fromarray(image).resize(size, INTERPOLATIONS[self.interpolation])


REFERENCE = ResizeCrop(224, 0.875, "bilinear")
"""ImageNet-C's geometry: shorter side to 256 pixels, then the central 224 x 224, as in torchvision."""
REFERENCE_ABOVE = 96
"""Images with a shorter side above this many pixels take ImageNet-C's constants, at REFERENCE."""


def is_above_reference(height: int, width: int) -> bool:
    """Whether an image of this size is resized to ImageNet-C's REFERENCE before it is corrupted.

    >>> is_above_reference(96, 500), is_above_reference(97, 97)
    (False, True)
    """
    return min(height, width) > REFERENCE_ABOVE


@dataclass(frozen=True)
class AfterReference:
    """A network's geometry for images of which the larger ones were already cropped to REFERENCE, as by corruptions.

    For these it crops less, so that no margin is cropped twice.
    usual: the network's geometry for all other images. If it is not a ResizeCrop, it is used for all images.
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
        """Resize and crop an image, and its mask if there is one (else None), to the input size."""
        if isinstance(self.usual, ResizeCrop) and is_above_reference(*image.shape[:2]):
            return self.usual.after_crop(REFERENCE.crop_pct)(image, mask)
        return self.usual(image, mask)
