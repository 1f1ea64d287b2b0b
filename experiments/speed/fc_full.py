"""What do stored logits of a full model save? 50 class subsets scored from them, against a forward pass for each.

    FCA_REAL_DATA=... python experiments/speed/fc_full.py            about 2 minutes on 2 cores

A pass for each subset is what the released Few-Class Arena does. Expect: 50 subsets in under 1 s with the same
accuracies; open 0.9173 on all classes and as the mean over the pairs.
"""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import torch
from harness import cifar10, composed, machine, options, real_data, timed

from fca.cli.configure import component
from fca.stats.protocols import masked_top1, open_top1
from fca.subset import draw_subset


def forward(classifier, pixels):
    """Logits; no more than a loop over batches."""
    with torch.inference_mode():
        batches = torch.from_numpy(pixels).permute(0, 3, 1, 2).split(256)
        return torch.cat([classifier.module(classifier.normalise(batch / 255)) for batch in batches]).numpy()


def from_logits(path, true, subsets):
    """All that is needed once the logits are on disk, reading them included."""
    logits = np.load(path)
    open_ = [open_top1(logits[inside], true[inside]) for inside in (np.isin(true, classes) for classes in subsets)]
    return open_, [masked_top1(logits, classes, true) for classes in subsets]


def main():
    size = options(__doc__, subsets=(50, 3))
    pixels, true = cifar10("test", 10, size.smoke)
    weights = [] if size.smoke else [f"model.weights={real_data()}/weights/cifar10_resnet20.safetensors"]
    model = component(composed("model=cifar_resnet20", *weights), "model")
    classifier = model.build([str(c) for c in range(10)] if size.smoke else None)
    classifier.module.eval()
    pairs = [np.array(pair) for pair in itertools.combinations(range(10), 2)]
    subsets = (pairs + [np.array(draw_subset(10, 5, seed).classes) for seed in range(5)])[-size.subsets :]

    once = timed(forward, classifier, pixels)
    logits = once.result
    print(f"one pass over {len(true)} images: {once.wall:.1f} s, open top1 {open_top1(logits, true):.4f}")
    inside = [np.isin(true, classes) for classes in subsets]
    again = timed(lambda: [open_top1(forward(classifier, pixels[rows]), true[rows]) for rows in inside])
    print(f"{len(subsets)} subsets, a forward pass each: {again.wall:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "logits.npy", logits)
        stored = timed(from_logits, Path(folder) / "logits.npy", true, subsets)
    open_, masked = stored.result
    assert np.allclose(open_, again.result, atol=1e-3)  # another batch size may turn an image that is near a tie
    print(f"from stored logits, open and masked: {stored.wall:.3f} s ({again.wall / stored.wall:,.0f} times less)")
    for name, part in {"5 draws of ncl=5": slice(-5, None), "pairs": slice(0, -5)}.items():
        if open_[part]:
            print(f"{name}: open {np.mean(open_[part]):.4f}, masked {np.mean(masked[part]):.4f}")
    machine()


if __name__ == "__main__":
    main()
