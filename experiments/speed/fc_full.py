# What does it save to keep a full model's logits? (50 class subsets scored from stored logits, against a forward pass a
# subset, as the released Few-Class Arena does)
#   FCA_REAL_DATA=... python experiments/speed/fc_full.py            about 2 minutes on 2 cores
# Expect: 50 subsets in under 1 s with the same accuracies; open 0.9173 on all classes and as the mean over the pairs.
# Figures and machine: README.md beside this file. The network is written out so that a pass costs no more than a loop.
import csv
import io
import itertools
import os
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.progress import track
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import pad

from fca.stats.protocols import masked_top1, open_top1
from fca.subset import draw_subset

MEAN, STD = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


class Block(nn.Module):
    def __init__(self, before, width):
        super().__init__()
        self.stride = width // before
        self.conv1 = nn.Conv2d(before, width, 3, self.stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        more = (y.shape[1] - x.shape[1]) // 2
        return torch.relu(y + pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, more, more)))


class ResNet20(nn.Module):
    """He et al.'s network for CIFAR: three stages of three blocks, shortcuts without weights."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        for stage, (before, width) in enumerate([(16, 16), (16, 32), (32, 64)], start=1):
            blocks = nn.Sequential(Block(before, width), Block(width, width), Block(width, width))
            self.add_module(f"layer{stage}", blocks)
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3)))


def test_images(path):
    with zipfile.ZipFile(path) as archive:
        listed = [
            line for line in csv.DictReader(io.TextIOWrapper(archive.open("index.csv"))) if line["split"] == "test"
        ]
        pixels = np.stack([np.asarray(Image.open(archive.open(line["path"])).convert("RGB")) for line in listed])
    return pixels, np.unique([line["label"] for line in listed], return_inverse=True)[1]


def forward(network, pixels):
    with torch.inference_mode():
        batches = torch.from_numpy(pixels).split(256)
        return torch.cat([network((b.permute(0, 3, 1, 2) / 255 - MEAN) / STD) for b in batches]).numpy()


def from_logits(path, true, subsets):
    """All that is needed once the logits are on disk, reading them included."""
    logits = np.load(path)
    open_ = [open_top1(logits[inside], true[inside]) for inside in (np.isin(true, classes) for classes in subsets)]
    return open_, [masked_top1(logits, classes, true) for classes in subsets]


def main():
    root = Path(
        os.environ.get("FCA_REAL_DATA") or sys.exit("set FCA_REAL_DATA to the folder with images/ and weights/")
    )
    pixels, true = test_images(root / "images" / "cifar10.zip")
    network = ResNet20().eval()
    network.load_state_dict(load_file(root / "weights" / "cifar10_resnet20.safetensors"))
    pairs = [np.array(pair) for pair in itertools.combinations(range(10), 2)]
    subsets = pairs + [np.array(draw_subset(10, 5, seed).classes) for seed in range(5)]

    start = time.perf_counter()
    logits = forward(network, pixels)
    once = time.perf_counter() - start
    print(f"one pass over {len(true)} images: {once:.1f} s, open top1 {open_top1(logits, true):.4f}")

    start = time.perf_counter()
    passes = []
    for classes in track(subsets, "forward", transient=True):
        inside = np.isin(true, classes)
        passes.append(open_top1(forward(network, pixels[inside]), true[inside]))
    again = time.perf_counter() - start
    print(f"{len(subsets)} subsets, a forward pass each: {again:.1f} s")

    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "logits.npy", logits)
        start = time.perf_counter()
        open_, masked = from_logits(Path(folder) / "logits.npy", true, subsets)
        stored = time.perf_counter() - start
    assert np.allclose(open_, passes, atol=1e-3)  # another batch size may turn an image that is near a tie
    print(
        f"{len(subsets)} subsets from stored logits, open and masked: {stored:.3f} s ({again / stored:,.0f} times less)"
    )
    for name, part in {"all 45 pairs": slice(45), "5 draws of ncl=5": slice(45, None)}.items():
        print(f"{name}: open {np.mean(open_[part]):.4f}, masked {np.mean(masked[part]):.4f}")
    print(f"{os.cpu_count()} cores, torch {torch.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
