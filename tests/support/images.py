"""A small folder of images whose classes differ in colour."""

import numpy as np
from PIL import Image


def write_images(folder, per_class=12, classes=("ant", "bee", "cat", "dog", "eel")):
    """folder/{train,test}/class/i.png, 32 pixels, the same at every call."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for index, key in enumerate(classes):
            place = folder / split / key
            place.mkdir(parents=True)
            for i in range(per_class):
                pixels = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
                pixels[:, :, index % 3] += 40 * (1 + index // 3)
                Image.fromarray(pixels).save(place / f"{i}.png")
    return folder
