"""Does the runner cost more than a bare PyTorch loop? At most 1.2 times, at the same accuracy.

    FCA_REAL_DATA=... python experiments/speed/train_overhead.py --repeats 5        about 3 minutes on 2 cores

ResNet-18 of width 16 with a CIFAR stem, 5 classes of cifar10.zip: 1,500 training images, batch 64, 5 epochs, one
evaluation of 5,000 test images. The bare loop has all images as normalised float tensors in memory, before its clock
starts, and does nothing else than train and evaluate; `fca` starts from uint8 pixels, scores 150 val images after every
epoch, keeps the best weights, writes a checkpoint an epoch. Both run in one warm process, in turns, from equal
weights. CPU seconds stand beside wall seconds, for machines that others use too.
"""

import argparse
import io
import os
import platform
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
from fca.models.timm_models import TimmModel  # noqa: E402
from fca.training import Examples, Place, Recipe, fit, logits_of  # noqa: E402

CLASSES, EPOCHS, BATCH, LR = 5, 5, 64, 0.05
RECIPE = Recipe(
    epochs=EPOCHS, batch_size=BATCH, optimiser="sgd", lr=LR, weight_decay=0.0, momentum=0.9, schedule="cosine",
    warmup_epochs=0.0, milestones=[], gamma=0.1, precision="32-true", label_smoothing=0.0, mixup=0.0, flip=False,
    shift=0.0, scale_min=1.0, grad_clip=0.0, snapshots=[],
)  # fmt: skip
MODEL = TimmModel(
    name="resnet18", weights=None, stem="cifar", kwargs={"channels": [16, 32, 64, 128]}, input_size=32, crop_pct=1.0,
    interpolation=None, mean=[0.47] * 3, std=[0.25] * 3, classes=None, projection=False,
)  # fmt: skip


def read(split):
    """uint8 pixels and labels of the first 5 classes."""
    images, labels = [], []
    with zipfile.ZipFile(Path(os.environ["FCA_REAL_DATA"]) / "images" / "cifar10.zip") as archive:
        names = [name.split("/") for name in sorted(archive.namelist()) if name.endswith(".png")]
        chosen = sorted({name[-2] for name in names})[:CLASSES]
        for name in names:
            if name[-3] == split and name[-2] in chosen:
                images.append(np.asarray(Image.open(io.BytesIO(archive.read("/".join(name)))).convert("RGB")))
                labels.append(chosen.index(name[-2]))
    return np.stack(images), np.array(labels)


def classifier(seed):
    torch.manual_seed(seed)
    return MODEL.build([str(i) for i in range(CLASSES)])


def bare(seed, train, test):
    """What one would write by hand; `train` and `test` are normalised float tensors and labels."""
    net = classifier(seed).module
    optimiser = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, nesterov=True)
    steps = -(-len(train[0]) // BATCH) * EPOCHS
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(train[0])).split(BATCH):
            loss = cross_entropy(net(train[0][part]), train[1][part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    net.eval()
    with torch.inference_mode():
        pred = torch.cat([net(images).argmax(1) for images in test[0].split(256)])
    return float((pred == test[1]).double().mean())


def ours(seed, train, test):
    built = classifier(seed)
    examples = Examples(train[0], np.arange(len(train[0])), train[1])
    val = Examples(train[0], np.arange(0, len(train[0]), 10), train[1][::10])
    with tempfile.TemporaryDirectory() as folder:
        fit(built, examples, val, RECIPE, seed, Place(Path(folder), accelerator="cpu"))
        logits = logits_of(built, test[0], np.arange(len(test[0])), "cpu")
    return float(np.mean(logits.argmax(1) == test[1]))


def timed(function, *arguments):
    wall, cpu = time.perf_counter(), time.process_time()
    top1 = function(*arguments)
    return time.perf_counter() - wall, time.process_time() - cpu, top1


def as_tensors(images, labels, memory_format):
    floats = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.47) / 0.25
    return floats.contiguous(memory_format=memory_format), torch.from_numpy(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    train, test = read("train"), read("test")
    layouts = {"bare": torch.contiguous_format, "bare, channels last": torch.channels_last}
    runs = {name: (bare, as_tensors(*train, f), as_tensors(*test, f)) for name, f in layouts.items()}
    runs["fca"] = (ours, train, test)
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{len(train[0])} training images, {len(test[0])} test images")
    for function, a, b in runs.values():  # warm up: imports, kernels, allocator
        function(0, (a[0][:200], a[1][:200]), (b[0][:200], b[1][:200]))
    ratios = []
    for repeat in range(repeats):
        took = {name: timed(function, repeat, a, b) for name, (function, a, b) in runs.items()}
        for name, (wall, cpu, top1) in took.items():
            print(f"{repeat} {name:20} {wall:6.2f} s, {cpu:6.2f} s CPU, top1 {top1:.3f}")
        ratios.append([took["fca"][k] / took[name][k] for name in layouts for k in (0, 1)])
        print(f"{repeat} fca / bare           {ratios[-1][0]:.3f} ({ratios[-1][1]:.3f} CPU),", end=" ")
        print(f"channels last {ratios[-1][2]:.3f} ({ratios[-1][3]:.3f} CPU)", flush=True)
    middle = np.median(ratios, axis=0)
    print(f"median fca / bare      {middle[0]:.3f} ({middle[1]:.3f} CPU),", end=" ")
    print(f"channels last {middle[2]:.3f} ({middle[3]:.3f} CPU)")


if __name__ == "__main__":
    main()
