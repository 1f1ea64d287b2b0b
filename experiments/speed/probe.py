"""How long do the probes of a whole grid take, against scikit-learn's fits of the same classifiers?

python experiments/speed/probe.py            invented features, 100 classes x 200 images x 512 numbers; 14 subsets
"""

import numpy as np
from harness import features_of, machine, options, timed
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from fca.stats.features import PENALTIES, fit_probe
from fca.subset import draw_subset


def val_top1(x, y, val, val_y):
    """Our probe, which also leaves training images out to choose its penalty."""
    return (fit_probe(x, y).logits(val).argmax(axis=1) == val_y).mean()


def ridges(x, y, val, val_y):
    """One fit for each penalty, the best on val: what a user would write."""
    x, val = x.astype(np.float64), val.astype(np.float64)
    unit = np.square(x - x.mean(axis=0)).mean() * len(x)
    return max(RidgeClassifier(alpha=penalty * unit).fit(x, y).score(val, val_y) for penalty in PENALTIES)


def logistic(x, y, val, val_y):
    """The usual linear probe (arXiv:2103.00020) at seven penalties."""
    x, val = x.astype(np.float64), val.astype(np.float64)
    return max(LogisticRegression(C=c, max_iter=1000).fit(x, y).score(val, val_y) for c in np.logspace(-6, 0, 7))


def main():
    size = options(__doc__, classes=(100, 5), images=(20_000, 200), dimensions=(512, 16))
    values, labels = features_of(size.images, size.classes, size.dimensions, spread=6.0)
    val = np.random.default_rng(1).random(size.images) < 0.2
    cases = []
    for ncl in (n for n in (2, 3, 4, 5, 10, 20, 40) if n < size.classes):
        for subset in (draw_subset(size.classes, ncl, seed) for seed in (0, 1)):
            inside, new = np.isin(labels, subset.classes), subset.new_labels(labels)
            fit, choose = inside & ~val, inside & val
            cases.append((values[fit], new[fit], values[choose], new[choose]))
    ours = timed(lambda: [val_top1(*case) for case in cases])
    print(f"{len(cases)} probes: {ours.wall:.2f} s, val top1 {np.mean(ours.result):.3f}")
    for name, work in (("RidgeClassifier, a fit a penalty", ridges), ("LogisticRegression, 7 penalties", logistic)):
        peer = timed(lambda work=work: [work(*case) for case in cases])
        times = f"{peer.wall / ours.wall:.1f} times as long"
        print(f"{name}: {peer.wall:.2f} s = {times}, val top1 {np.mean(peer.result):.3f}")
    machine()


if __name__ == "__main__":
    main()
