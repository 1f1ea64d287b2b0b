"""How many bytes do the Few-Class Arena's runs take, by kind, and what does machine.keep_weights save?

    python experiments/speed/disk.py            2 minutes: builds the ten networks without weights, stores nothing

Computed from the networks' own sizes and from what a run writes for each test image. The paper's grid: ten data sets x
ten models x N in 2, 3, 4, 5, 10, 10 %, 20 %, 40 %, 60 %, 80 % x 5 subset seeds, and the full models. The paper reports
1,591 runs and not which; they count here as so many average runs of the grid.
"""

import sys
from pathlib import Path

import numpy as np
from harness import machine, options

sys.path.insert(0, str(Path(__file__).parents[1] / "few_class_arena"))
from arena_paper import CLASSES, TEN, grid

import fca
from fca.cli.clean import as_bytes
from fca.tasks.predict import prediction_arrays

PAPER, SEEDS = 1591, 5
TEST = {  # images of our test splits
    "gtsrb": 12_630, "cifar100": 10_000, "imagenet": 50_000, "food101": 25_250, "caltech101": 1_735,
    "caltech256": 5_956, "quickdraw": 34_500, "cub200": 5_794, "indoor67": 1_340, "dtd": 1_880,
}  # fmt: skip
TEXTS = 20_000  # both runs' row.json, config.yaml and log.txt, model.json and fitted.json, as found beside 40 epochs


def main():
    """Print both tables."""
    asked = options(__doc__, models=(len(TEN), 1))
    weights = {}
    print(f"{'model':<22}{'best':>10}{'last.ckpt':>11}   a run: best weights; the checkpoint while it trains (AdamW)")
    for name in TEN[: asked.models]:
        network = fca.load_model(name, weights=None).build([f"class {at}" for at in range(10)]).module
        state = sum(value.nbytes for value in network.state_dict().values())
        adam = 2 * sum(value.nbytes for value in network.parameters())
        weights[name] = state
        print(f"{name:<22}{as_bytes(state):>10}{as_bytes(state + adam):>11}   {(state + adam) / state:.1f} to "
              f"{(2 * state + adam) / state:.1f} times the weights")  # fmt: skip
    predicted = {dataset: mean_of_grid(classes, TEST[dataset]) for dataset, classes in CLASSES.items()}
    best, arrays = int(np.mean(list(weights.values()))), int(np.mean(list(predicted.values())))
    print(f"\n{'of a run, on average':<34}{'one run':>16}{f'{PAPER:,} runs':>12}")
    kinds = {"best weights": best, "predictions with their logits": arrays, "rows, configurations, logs": TEXTS}
    for kind, size in kinds.items():
        print(f"{kind:<40}{as_bytes(size):>10}{as_bytes(PAPER * size):>12}")
    for keep, size in {"snapshots (one asked for)": 2 * best, "best": best, "none": 0}.items():
        total = size + arrays + TEXTS
        print(f"{f'keep_weights={keep}':<40}{as_bytes(total):>10}{as_bytes(PAPER * total):>12}")
    machine()


def mean_of_grid(classes, images):
    """Average bytes of the arrays of a run: every image of its classes, and as many logits as it has classes."""
    sizes = [count for count in grid(classes) for _ in range(SEEDS if count < classes else 1)]
    return np.mean([per_image(count, images * count // classes) for count in sizes])


def per_image(logits, images):
    """Bytes of what `predict` stores, from its own arrays of one image, and of logits in half precision where large."""
    row = prediction_arrays(np.zeros((1, logits), np.float32), np.zeros(1, int), ["n01440764"] * logits)
    half = 4 * logits * images > 64 * 2**20
    return images * (sum(row[name].nbytes for name in ("pred", "p_true", "p_max")) + (2 if half else 4) * logits)


if __name__ == "__main__":
    main()
