"""Which way to choose 100 anchors errs least, and is the error that `fca bank anchors` prints honest?

    python experiments/progressive/anchor_methods.py FOLDER            3 CPU minutes; FOLDER as of banks.py

Of each pool of 5,000 items some networks choose the anchors, and the others are new; responses as of banks.py. Root
mean squared error in points: of every way in cross-validation on the networks that choose; `printed`, what they state
for the way that is taken, in whose choice no network's own error had a part; `new`, of the way taken on the new
networks; `plain`, of as many random items on these (computed). `held`: how often the 95 % interval holds the truth of a
new network. `top`: the new networks are the ten best.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
from banks import cifar, imagenet, made

from fca.studies.adaptive.stats import choose_anchors
from fca.studies.adaptive.stats.anchors import METHODS

ITEMS, K = 5000, 100


def one_split(correct, behind, seed, top=0):
    """Squared errors of every way, as printed, on new networks and of random items; intervals that hold; way taken."""
    rng = np.random.default_rng(seed)
    correct = correct[:, np.sort(rng.choice(correct.shape[1], ITEMS, replace=False))]
    order = np.argsort(correct.mean(axis=1)) if top else rng.permutation(len(correct))
    behind = len(correct) - top if top else behind
    chosen, new = correct[order[:behind]], correct[order[behind:]]
    truth = new.mean(axis=1)

    found = choose_anchors(chosen, K, seed=seed)
    value, low, high = found.estimate(new[:, found.items]).T
    errors = {" + ".join(method): error**2 for method, error in found.errors.items()}
    errors["printed"] = np.mean(np.diff(found.checked, axis=1) ** 2)
    errors["new"] = np.mean((value - truth) ** 2)
    errors["plain"] = np.mean(truth * (1 - truth)) * (1 - K / ITEMS) / K
    return errors, np.mean((low <= truth) & (truth <= high)), " + ".join(found.method)


def main(folder):
    cases = {
        "ImageNet, 45 of 65": (partial(imagenet, folder), 45, 4, 0),
        "CIFAR-10, 24 of 34": (partial(cifar, folder), 24, 4, 0),
        "2pl, 60 of 90": (partial(made, "2pl"), 60, 3, 0),
        "3pl, 60 of 90": (partial(made, "3pl"), 60, 3, 0),
        "misfit, 60 of 90": (partial(made, "misfit"), 60, 3, 0),
        "ImageNet, top 10": (partial(imagenet, folder), 0, 2, 10),
        "misfit, top 10": (partial(made, "misfit"), 0, 2, 10),
    }
    names = [*(" + ".join(method) for method in METHODS), "printed", "new", "plain"]
    print(f"| pool | splits | {' | '.join(names)} | held | ways taken |\n|{'---|' * (len(names) + 4)}")
    for name, (responses, behind, splits, top) in cases.items():
        correct = responses()
        found = [one_split(correct, behind, seed, top) for seed in range(splits)]
        cells = [f"{100 * np.mean([errors[way] for errors, *_ in found]) ** 0.5:.2f}" for way in names]
        held = f"{100 * np.mean([held for _, held, _ in found]):.0f}"
        taken = ", ".join(sorted({way for *_, way in found}))
        print(f"| {name} | {splits} | {' | '.join(cells)} | {held} | {taken} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
