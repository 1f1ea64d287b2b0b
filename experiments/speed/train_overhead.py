"""Does the runner cost more than a bare PyTorch loop of the same work? Wanted: at most 1.05 times; measured: 1.08.

    FCA_REAL_DATA=... python experiments/speed/train_overhead.py            about 3 minutes on 2 cores

ResNet-18 of width 16 with a CIFAR stem, 5 classes of cifar10.zip: 1,500 training images, batch 64, 5 epochs, one
evaluation of 5,000 test images. The bare loops have all images as normalised float tensors in memory, before their
clock starts. The usual one trains and evaluates; that of the same work does so channels-last, scores 150 val images
after every epoch and evaluates the best epoch's weights, as `fca` does, which starts from uint8 pixels. All run in one
warm process, in turns, from equal weights. CPU seconds stand beside wall seconds, for machines that others use too.
"""

import copy
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from harness import cifar10, composed, machine, options, timed
from torch.nn.functional import cross_entropy

from fca.cli.configure import component
from fca.training.batches import Examples
from fca.training.infer import logits_of
from fca.training.loop import TrainingPlace, fit

CLASSES, BATCH, LR = 5, 64, 0.05
WORDS = (
    *("model=resnet18", "model.stem=cifar", "model.input_size=32", "+model.kwargs.channels=[16,32,64,128]"),
    *("model.crop_pct=1.0", "model.mean=[0.47,0.47,0.47]", "model.std=[0.25,0.25,0.25]", "recipe.optimiser=sgd"),
    *(f"recipe.batch_size={BATCH}", f"recipe.lr={LR}", "recipe.weight_decay=0", "recipe.warmup_epochs=0"),
    *("recipe.grad_clip=0", "recipe.min_steps=0"),
)


def built(config, seed):
    torch.manual_seed(seed)
    return component(config, "model").build([str(i) for i in range(CLASSES)])


def bare(config, seed, train, test, val=None):
    """What one would write by hand; `train`, `test` and `val` are normalised float tensors and labels."""
    net = built(config, seed).module
    optimiser = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, nesterov=True)
    epochs, best, kept = config.recipe.epochs, -1.0, net
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, -(-len(train[0]) // BATCH) * epochs)
    for _ in range(epochs):
        for part in torch.randperm(len(train[0])).split(BATCH):
            loss = cross_entropy(net(train[0][part]), train[1][part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        if val and (top1 := accuracy(net, *val)) > best:
            best, kept = top1, copy.deepcopy(net)
    return accuracy(kept, *test)


def accuracy(net, images, labels):
    net.eval()
    with torch.inference_mode():
        pred = torch.cat([net(part).argmax(1) for part in images.split(256)])
    net.train()
    return float((pred == labels).double().mean())


def ours(config, seed, train, test):
    classifier = built(config, seed)
    examples = Examples(train[0], np.arange(len(train[0])), train[1])
    val = Examples(train[0], np.arange(0, len(train[0]), 10), train[1][::10])
    with tempfile.TemporaryDirectory() as folder:
        fit(
            classifier, examples, val, component(config, "recipe"), seed, TrainingPlace(Path(folder), accelerator="cpu")
        )
        logits = logits_of(classifier, test[0], np.arange(len(test[0])), "cpu")
    return float(np.mean(logits.argmax(1) == test[1]))


def as_tensors(images, labels, memory_format):
    floats = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.47) / 0.25
    return floats.contiguous(memory_format=memory_format), torch.from_numpy(labels)


def main():
    size = options(__doc__, repeats=(5, 1), epochs=(5, 1))
    config = composed(*WORDS, f"recipe.epochs={size.epochs}")
    train, test = cifar10("train", CLASSES, size.smoke), cifar10("test", CLASSES, size.smoke)
    last = [as_tensors(*part, torch.channels_last) for part in (train, test)]
    runs = {
        "bare": (bare, *(as_tensors(*part, torch.contiguous_format) for part in (train, test))),
        "bare, same work": (partial(bare, val=[values[::10] for values in last[0]]), *last),
        "fca": (ours, train, test),
    }
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{len(train[0])} training images, {len(test[0])} test images")
    for function, a, b in runs.values():  # warm up: imports, kernels, allocator
        function(config, 0, (a[0][:200], a[1][:200]), (b[0][:200], b[1][:200]))
    ratios = []
    for repeat in range(size.repeats):
        took = {name: timed(function, config, repeat, a, b) for name, (function, a, b) in runs.items()}
        for name, (wall, cpu, top1) in took.items():
            print(f"{repeat} {name:20} {wall:6.2f} s, {cpu:6.2f} s CPU, top1 {top1:.3f}")
        ratios.append([took["fca"][k] / took[name][k] for name in list(runs)[:2] for k in (0, 1)])
        _print_ratios(str(repeat), ratios[-1])
    _print_ratios("median", np.median(ratios, axis=0))
    machine()


def _print_ratios(name, ratios):
    usual, same = (f"{wall:.3f} ({cpu:.3f} CPU)" for wall, cpu in (ratios[:2], ratios[2:]))
    print(f"{name} fca / bare      {usual}, same work {same}", flush=True)


if __name__ == "__main__":
    main()
