"""What several tests share: small files in the layout of Hard ImageNet."""

import numpy as np
from PIL import Image

from tests.support.trees import encoded

SLED, PATIO = "n03218198", "n03899768"


def shape(seed, size=(6, 7)):
    """A random rectangle that neither is empty nor fills the image."""
    rng, mask = np.random.default_rng(seed), np.zeros(size, bool)
    top, left = rng.integers(0, 3, 2)
    mask[top : top + rng.integers(1, 4), left : left + rng.integers(1, 4)] = True
    return mask


def write(file, pixels, kind="PNG", **options):
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.where(pixels, np.uint8(255), np.uint8(0)) if pixels.dtype == bool else pixels
    file.write_bytes(encoded(Image.fromarray(pixels), kind, **options))


def names(wnids, train=4, val=2):
    """(wnid, ImageNet's file name) of so many images of each."""
    for place, wnid in enumerate(wnids):
        yield from ((wnid, f"{wnid}_{i}.JPEG") for i in range(train))
        yield from ((wnid, f"ILSVRC2012_val_{8 * place + i:08d}.JPEG") for i in range(val))


def part(file):
    return "val" if file.startswith("ILSVRC") else "train"


def imagenet(root, wnids=(SLED, PATIO), **counts):
    for seed, (wnid, file) in enumerate(names(wnids, **counts)):
        pixels = np.random.default_rng(seed).integers(0, 256, (6, 7, 3), dtype=np.uint8)
        write(root / part(file) / wnid / file, pixels, "JPEG")
    return root
