"""One real photograph, as scikit-learn ships it, at the sizes that the published sets have."""

from functools import cache

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_sample_image

from fca.types import ImageData


@cache
def photograph(height, width):
    """The china temple, 427 x 640 pixels, its middle cut and resized."""
    image = Image.fromarray(load_sample_image("china.jpg"))
    scale = min(image.width / width, image.height / height)
    wide, high = width * scale, height * scale
    left, top = max(0, (image.width - wide) / 2), max(0, (image.height - high) / 2)  # may be -1e-14
    box = left, top, min(left + wide, image.width), min(top + high, image.height)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC, box))


def data_of(images, split="test", prefix="test/", labels=None):
    """ImageData of pixels in memory."""
    ids = [f"{prefix}{i:05d}" for i in range(len(images))]
    labels = labels or ["a"] * len(images)
    items = pd.DataFrame({"image_id": ids, "label": labels, "split": split})
    return ImageData("photographs", items, tuple(sorted(set(labels))), "0" * 12, lambda i: images[i])
