"""How long do the probes of a whole grid take, against scikit-learn's fits of the same classifiers?

python experiments/speed/probe.py            invented features, 100 classes x 200 images x 512 numbers; 50 subsets
"""

import time

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from fca.stats.features import PENALTIES, fit_probe
from fca.subset import draw_subset

CLASSES, IMAGES, FEATURES = 100, 200, 512
NCL, SEEDS = (2, 3, 4, 5, 10, 20, 40), (0, 1)


def features():
    """Clouds around a centre a class; a fifth of each class is val."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    values = rng.normal(size=(CLASSES, FEATURES))[labels] + 6 * rng.normal(size=(len(labels), FEATURES))
    return values.astype(np.float16), labels, rng.random(len(labels)) < 0.2


def timed(work, cases):
    """Seconds for all cases, and what each answered."""
    start = time.perf_counter()
    answers = [work(*case) for case in cases]
    return time.perf_counter() - start, answers


def ridges(x, y, val, val_y):
    """One fit a penalty, the best on val: what a user would write."""
    x, val = x.astype(np.float64), val.astype(np.float64)
    unit = np.square(x - x.mean(axis=0)).mean() * len(x)
    return max(RidgeClassifier(alpha=penalty * unit).fit(x, y).score(val, val_y) for penalty in PENALTIES)


def logistic(x, y, val, val_y):
    """The usual linear probe (arXiv:2103.00020) at seven penalties."""
    x, val = x.astype(np.float64), val.astype(np.float64)
    scores = [LogisticRegression(C=c, max_iter=1000).fit(x, y).score(val, val_y) for c in np.logspace(-6, 0, 7)]
    return max(scores)


def main():
    """Print the seconds, and the mean accuracy on val beside them."""
    values, labels, val = features()
    cases = []
    for subset in (draw_subset(CLASSES, ncl, seed) for ncl in NCL for seed in SEEDS):
        inside = np.isin(labels, subset.classes)
        new = subset.new_labels(labels)
        fit, choose = inside & ~val, inside & val
        cases.append((values[fit], new[fit], values[choose], new[choose]))
    ours, found = timed(fit_probe, cases)
    print(f"{len(cases)} probes: {ours:.2f} s, val top1 {np.mean([p.val_top1 for p in found]):.3f}")
    for name, work in (("RidgeClassifier, a fit a penalty", ridges), ("LogisticRegression, 7 penalties", logistic)):
        seconds, scores = timed(work, cases)
        print(f"{name}: {seconds:.2f} s = {seconds / ours:.1f} times as long, val top1 {np.mean(scores):.3f}")


if __name__ == "__main__":
    main()
