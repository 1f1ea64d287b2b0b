"""What is lost when an image is stored small. These functions take and give bytes: rounding to them is the loss."""

from __future__ import annotations

import io

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from fca.shifts.constants import Number

Bytes = UInt8[np.ndarray, "height width 3"]


def jpeg_compression(image: Bytes, quality: Number) -> Bytes:
    """Written and read as a JPEG of this quality, 1 to 95.

    >>> int(jpeg_compression(np.full((8, 8, 3), 255, np.uint8), 25).min())
    255
    """
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(quality))
    return np.asarray(Image.open(file))


def pixelate(image: Bytes, share: Number) -> Bytes:
    """Shrunk to this share of each side and enlarged again, both by area.

    >>> int(pixelate(np.full((8, 8, 3), 255, np.uint8), 0.25).min())
    255
    """
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))
