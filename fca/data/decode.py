"""Bytes of an image file -> upright 8-bit pixels, whatever the file's mode."""

from __future__ import annotations

import io

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image, ImageOps

from fca.nouns import UnreadableImage

MASK_OBJECTS = ("bright", "dark")


def decode(content: bytes, path: str) -> UInt8[np.ndarray, "height width 3"]:
    """The RGB pixels of an encoded image, turned upright by its EXIF orientation.

    Transparent parts show white, as on a page (what lies under them is arbitrary and never seen by people). 16 bits
    are scaled to 8 (65535 -> 255), not clipped. Grey, palette, 1 bit and CMYK are converted. Of an animation the first
    frame counts. Raises UnreadableImage naming `path` for anything else: truncated, no image, floating point.
    """
    return np.array(_upright(content, path, "RGB"))


def decode_mask(content: bytes, path: str, objects: str) -> Bool[np.ndarray, "height width"]:
    """The object mask that an image file shows: True on the object.

    objects: "bright" (values above half) or "dark" (the others). A file that holds no value above 1 counts 1 as bright.
    """
    grey = np.asarray(_upright(content, path, "L"))
    bright = grey > (127 if grey.max() > 1 else 0)
    return bright if objects == "bright" else ~bright


def upright_size(content: bytes, path: str) -> tuple[int, int]:
    """Height and width of the decoded image, from its header alone."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # orientations with the sides exchanged
            return (image.width, image.height) if turned else (image.height, image.width)
    except Exception as error:
        raise UnreadableImage(f"{path}: {error}") from error


def _upright(content: bytes, path: str, mode: str) -> Image.Image:
    try:
        with Image.open(io.BytesIO(content)) as image:
            upright: Image.Image = ImageOps.exif_transpose(image)
            return _eight_bits(upright).convert(mode)
    except Exception as error:  # Pillow's formats raise OSError, SyntaxError, ValueError, struct.error, zlib.error ...
        raise UnreadableImage(f"{path}: {error}") from error


def _eight_bits(image: Image.Image) -> Image.Image:
    """Opaque and 8 bits a channel."""
    if image.mode == "F":
        raise ValueError("floating point pixels have no agreed range; store 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("32-bit pixels have no agreed range; store 8 or 16 bits")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
    return image
