"""Do policies on whole batches keep up with torchvision's, which change one image at a time?

    python experiments/speed/augment.py            about 1 minute; one thread, the best of 3 rounds in turns

Images a CPU second, of noise of 32 and 224 pixels. Ours: numbers drawn for a batch, then floats in [0, 1] in and out,
as in a training. Theirs: the same operations on each uint8 image (3-Augment, which torchvision lacks, is composed of
its parts). `draw_crops` are random resized crops and flips from images a third larger.
"""

from functools import partial

import numpy as np
import torch
from harness import machine, options, timed

from fca.torchvision_ops import declare_torchvision_ops
from fca.training.augment import Augment, draw_crops
from fca.training.changes import apply_changes, crop_and_resize, erase

declare_torchvision_ops()

from torchvision.transforms import v2  # noqa: E402

JITTER = v2.ColorJitter(0.3, 0.3, 0.3)
THREE = [v2.Grayscale(3), v2.RandomSolarize(128, p=1.0), v2.GaussianBlur(13, (0.1, 2.0))]
POLICIES = {
    "randaugment": (Augment("randaugment", 2, 9, 0.0, 0.0), v2.RandAugment()),
    "trivial": (Augment("trivial", 0, 0, 0.0, 0.0), v2.TrivialAugmentWide()),
    "autoaugment": (Augment("autoaugment", 0, 0, 0.0, 0.0), v2.AutoAugment()),
    "three_augment": (Augment("three_augment", 0, 0, 0.3, 0.0), v2.Compose([v2.RandomChoice(THREE), JITTER])),
    "jitter 0.3": (Augment("none", 0, 0, 0.3, 0.0), JITTER),
    "erasing 0.25": (Augment("none", 0, 0, 0.0, 0.25), v2.RandomErasing(0.25, value="random")),
}


def in_batches(augment, images, rng):
    changes = augment.draw_changes(rng, len(images), images.shape[-1])
    return erase(apply_changes(images, changes), changes.erased)


def crops_in_batches(images, size, rng):
    n, side = images.shape[:2]
    sides, starts = np.full(n, side), np.arange(n) * side**2
    uniform = rng.random((n, 23))
    windows = np.column_stack([starts, sides, draw_crops(uniform, sides, sides, 0.08), uniform[:, -1] < 0.5])
    return crop_and_resize(images.view(-1, 3), torch.from_numpy(windows.astype(np.int64)), size)


def one_by_one(transform, images):
    return torch.stack([transform(image) for image in images])


def report(name, ours, theirs, size):
    """The most images a CPU second of both."""
    spent = [[timed(work).cpu for work in (ours, theirs)] for _ in range(size.rounds)]
    found = size.images / np.min(spent, axis=0)
    print(f"  {name:14} {found[0]:8.0f} {found[1]:8.0f} {found[0] / found[1]:6.2f}", flush=True)


def main():
    size = options(__doc__, images=(64, 8), rounds=(3, 1))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng, n = np.random.default_rng(0), size.images
    for side in (32, 224)[: 1 if size.smoke else 2]:
        stored = torch.randint(0, 256, (n, side, side, 3), dtype=torch.uint8)
        images = stored.permute(0, 3, 1, 2)
        floats, planes = images.float() / 255, images.contiguous()
        print(f"{side} px: images a CPU second, ours and torchvision's; ratio")
        for name, (augment, transform) in POLICIES.items():
            given = floats if name.startswith("erasing") else planes
            ours, theirs = partial(in_batches, augment, floats, rng), partial(one_by_one, transform, given)
            report(name, ours, theirs, size)
        large = torch.randint(0, 256, (n, side * 4 // 3, side * 4 // 3, 3), dtype=torch.uint8)
        resized = v2.Compose([v2.RandomResizedCrop(side, antialias=False), v2.RandomHorizontalFlip()])
        planes = large.permute(0, 3, 1, 2).contiguous()
        report("crops", partial(crops_in_batches, large, side, rng), partial(one_by_one, resized, planes), size)
    machine()


if __name__ == "__main__":
    main()
