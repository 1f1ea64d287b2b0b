#!/usr/bin/env python
"""Are corrupted photographs changed as much as ImageNet-C's, whatever the size of the files? And what does that cost?

    python experiments/irt_corruption/strength.py                    3 CPU minutes; photographs that libraries ship
    python experiments/irt_corruption/strength.py REAL_DATA          and, from a folder with images/imagenet_sample.zip
                                                                     and weights/mobilenetv1_100.safetensors, accuracy;
                                                                     5 CPU minutes more
    python experiments/irt_corruption/strength.py --smoke            seconds; the figures mean nothing

Strength is the root mean square of (corrupted - clean) over the pixels that a network of 224 pixels is given, 0 to 255.
The clean image went the same way without a corruption. imagecorruptions is the port of ImageNet-C's own code; it gets
the photographs after Resize 256 and CenterCrop 224, as ImageNet-C's authors made theirs.

Six photographs are resized to each shorter side. `stored` is shift.at=stored, `reference` the default.
"""

import argparse
import csv
import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import imagecorruptions
import numpy as np
import skimage.data
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

import fca
from fca.data.pixels import geometry_under
from fca.geometry import REFERENCE, ResizeCrop
from fca.shifts.constants import PUBLISHED
from fca.shifts.corruption import Corruption, corrupted
from fca.stats.intervals import wilson
from fca.types import keyed_rng

SIDES = (288, 375, 500)
NETWORK = ResizeCrop(224, 0.875, "bilinear")  # of most published networks of 224 pixels


def photographs(side):
    """Six photographs with this shorter side."""
    arrays = [*load_sample_images().images, *(getattr(skimage.data, name)() for name in ("astronaut", "cat"))]
    arrays += [skimage.data.coffee(), skimage.data.rocket()]
    return [np.asarray(resized(array, side)) for array in arrays]


def resized(image, side):
    """With this shorter side, as torchvision's Resize does."""
    height, width = image.shape[:2]
    shorter = min(height, width)
    return Image.fromarray(image).resize((side * width // shorter, side * height // shorter), Image.Resampling.BILINEAR)


def theirs(image, kind, severity, seed):
    """The photograph as ImageNet-C's authors would have corrupted it."""
    np.random.seed(seed)  # noqa: NPY002  it draws from the global generator, but for two kinds
    seeded = {"seed": seed} if kind in ("impulse_noise", "glass_blur") else {}
    return imagecorruptions.corrupt(imagenet_crop(image), severity, kind, **seeded)


def imagenet_crop(image):
    """Resize 256, CenterCrop 224."""
    whole = resized(image, 256)
    left, top = (round((length - 224) / 2) for length in whole.size)
    return np.asarray(whole.crop((left, top, left + 224, top + 224)))


def ours(image, kind, severity, seed, at):
    """What a network of 224 pixels is given."""
    shift = Corruption(kind, severity, seed, at)
    before = REFERENCE(image)[0] if at == "reference" else image
    changed = corrupted(before, kind, severity, keyed_rng(seed, kind))
    return geometry_under(shift, NETWORK)(changed)[0]


def rms(changed, clean):
    return float(np.sqrt(np.mean((changed.astype(float) - clean) ** 2)))


def strengths(images, kind, severity):
    """Mean strength over photographs: stored, reference and imagecorruptions."""
    found = []
    for seed, image in enumerate(images):
        clean, crop = NETWORK(image)[0], imagenet_crop(image)
        stored, reference = (ours(image, kind, severity, seed, at) for at in ("stored", "reference"))
        found.append([rms(stored, clean), rms(reference, crop), rms(theirs(image, kind, severity, seed), crop)])
    return np.mean(found, axis=0)


def print_strengths(kinds, severity):
    print(f"\nRMS change of 224 x 224 pixels at severity {severity}, mean of 6 photographs\n")
    columns = [f"{name} {side}" for side in SIDES for name in ("stored", "reference", "theirs")]
    print(f"| corruption | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    by_side = [photographs(side) for side in SIDES]
    for kind in kinds:
        cells = [f"{value:.1f}" for images in by_side for value in strengths(images, kind, severity)]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def print_accuracies(real, every):
    """Of mobilenetv1_100 on imagenet_sample under gaussian noise 3."""
    archive = zipfile.ZipFile(real / "images/imagenet_sample.zip")
    lines = list(csv.DictReader(io.TextIOWrapper(archive.open("index.csv"))))[::every]
    images = [np.asarray(Image.open(io.BytesIO(archive.read(line["path"]))).convert("RGB")) for line in lines]
    wnids = np.array([line["wnid"] for line in lines])
    classifier = fca.load_model("mobilenetv1_100", weights=str(real / "weights/mobilenetv1_100.safetensors")).build()
    own = classifier.geometry
    once = geometry_under(Corruption("gaussian_noise", 3), own)
    larger = [np.asarray(resized(image, 375)) for image in images]
    kind, severity = "gaussian_noise", 3

    def noisy(image, seed):
        return corrupted(image, kind, severity, keyed_rng(seed, kind))

    ways = {
        "clean": lambda at: own(images[at])[0],
        "no corruption, at the reference size": lambda at: once(REFERENCE(images[at])[0])[0],
        "no corruption, at the reference size, margin cut twice": lambda at: own(REFERENCE(images[at])[0])[0],
        "noise, stored at 288": lambda at: own(noisy(images[at], at))[0],
        "noise, stored at 375": lambda at: own(noisy(larger[at], at))[0],
        "noise, reference size": lambda at: once(noisy(REFERENCE(images[at])[0], at))[0],
        "noise, reference size, margin cut twice": lambda at: own(noisy(REFERENCE(images[at])[0], at))[0],
        "noise by imagecorruptions": lambda at: once(theirs(images[at], kind, severity, at))[0],
    }
    print(f"\nmobilenetv1_100, {len(images)} images of imagenet_sample, gaussian_noise 3\n")
    print("| images | accuracy [95 %] |\n|---|---|")
    for name, way in ways.items():
        with ThreadPoolExecutor(2) as pool:
            pixels = np.stack(list(pool.map(way, range(len(images)))))
        right = int((np.array(classifier.classes)[predicted(classifier, pixels)] == wnids).sum())
        low, high = wilson(right, len(images))
        print(f"| {name} | {right / len(images):.3f} [{low:.3f}, {high:.3f}] |", flush=True)


def predicted(classifier, pixels):
    module, found = classifier.module.eval(), []
    with torch.inference_mode():
        for batch in np.array_split(pixels, -(-len(pixels) // 50)):
            unit = torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous() / 255
            found.append(module(classifier.normalise(unit)).argmax(1))
    return torch.cat(found).numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("real", nargs="?", type=Path, metavar="REAL_DATA")
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    print_strengths(["gaussian_noise", "jpeg_compression"] if options.smoke else list(PUBLISHED), options.severity)
    if options.real is not None:
        print_accuracies(options.real, every=50 if options.smoke else 1)


if __name__ == "__main__":
    main()
