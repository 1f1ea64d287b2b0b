"""What several tests share: a folder of images that differ in colour."""

import numpy as np
from PIL import Image


def folder_of_colours(root, per_class=30):
    """Red, green and blue squares with noise, in a folder a class."""
    rng = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
            pixels[..., channel] += 100
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root
