"""What several tests share: images and their altered copies."""

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from tests.support.trees import encoded


def crops(side, n):
    """Different pieces of two photographs, shrunk to `side` pixels: real textures without any file."""
    photos = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    tiles = [photo[y : y + 70, x : x + 70] for y in range(0, 357, 71) for x in range(0, 570, 71) for photo in photos]
    busy = [tile for tile in tiles if tile.std(axis=(0, 1)).mean() > 20]
    return [np.asarray(Image.fromarray(tile).resize((side, side), Image.Resampling.BICUBIC)) for tile in busy[:n]]


def again(image, kind, quality):

    return np.asarray(Image.open(io.BytesIO(encoded(Image.fromarray(image), kind, quality=quality))).convert("RGB"))


def resized(image, factor):
    side = round(len(image) * factor)
    return np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR))


COPIES = {
    "jpeg 90": lambda image: again(image, "JPEG", 90),
    "jpeg 50": lambda image: again(image, "JPEG", 50),
    "webp 50": lambda image: again(image, "WEBP", 50),
    "half size": lambda image: resized(image, 0.5),
    "double size": lambda image: resized(image, 2),
    "three quarters": lambda image: resized(image, 0.75),
    "rolled right": lambda image: np.roll(image, 1, axis=1),
    "rolled both ways": lambda image: np.roll(image, (1, -1), axis=(0, 1)),
    "shifted, black border": lambda image: np.pad(image, ((1, 0), (0, 0), (0, 0)))[:-1],
    "shifted, border repeated": lambda image: np.pad(image, ((0, 0), (0, 1), (0, 0)), mode="edge")[:, 1:],
    "cropped": lambda image: image[:, 1:],
    "brighter": lambda image: np.clip(image * 1.1 + 5, 0, 255).astype(np.uint8),
}
