"""Is the accuracy by which `fca recommend` judges a linear probe the accuracy of the probe that it delivers?

    python experiments/recommend/probes.py                       invented features, minutes on one core
    python experiments/recommend/probes.py --outputs OUT         features of real images: of all `embed` rows in OUT
        made by: fca run adaptation=probe dataset=folder dataset.root=IMAGES.zip model=... model.weights=... outputs=OUT

A probe is judged by its training images, each left out of a fit, and by validation images that chose nothing. Rows
"before" are of the way until version 0.1: judged on features of length 1 with a penalty of its own, by training and
validation images alike; delivered on features as they are, with the penalty that is best on the validation images.
The truth is the accuracy on many other images. Intervals are nominal 90 % ones, with what a test of that size adds.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from fca.stats.decision import accuracy_draws
from fca.stats.features import PENALTIES, fit_probe, left_out_outputs, sample_rows
from fca.store import Store
from fca.subset import draw_subset

N_VAL = 20
FEWEST_TEST = 50  # draws of classes with fewer images are left out


def before(train, labels, val, val_labels):
    """Whether each image that judged was right, and the delivered classifier."""
    outputs, own = left_out_outputs(np.concatenate([train, val]), np.concatenate([labels, val_labels]))
    mean, targets = train.mean(axis=0), np.eye(own.max() + 1)[labels]
    u, s, vt = np.linalg.svd(train - mean, full_matrices=False)
    unit = np.square(s).sum() / train.shape[1]
    layers = [vt.T @ ((s / (s**2 + penalty * unit))[:, None] * (u.T @ targets)) for penalty in PENALTIES]
    scores = [((val - mean) @ layer + targets.mean(axis=0)).argmax(axis=1) == val_labels for layer in layers]
    best = max(range(len(PENALTIES)), key=lambda k: (scores[k].mean(), PENALTIES[k]))
    delivered = layers[best]
    return outputs.argmax(axis=1) == own, lambda x: ((x - mean) @ delivered + targets.mean(axis=0)).argmax(axis=1)


def now(train, labels, val, val_labels):
    """Likewise, as it is now."""
    probe = fit_probe(train, labels)
    left_out = probe.left_out.argmax(axis=1) == labels[probe.judged]
    on_val = probe.logits(val).argmax(axis=1) == val_labels
    return np.concatenate([left_out, on_val]), lambda x: probe.logits(x).argmax(axis=1)


def judged_and_delivered(way, x, y, train, val, test, rng):
    right, predict = way(x[train], y[train], x[val], y[val])
    draws = accuracy_draws(right[None].astype(float), draws=2000)[:, 0]
    low, high = np.quantile(rng.binomial(len(test), draws) / len(test), (0.05, 0.95))
    delivered = (predict(x[test]) == y[test]).mean()
    return {
        "judged": right.mean(),
        "delivered": delivered,
        "inside": low <= delivered <= high,
        "variance": (right.mean() - delivered) ** 2,
        "binomial": delivered * (1 - delivered) * (1 / len(right) + 1 / len(test)),
    }


def lines(case, draw, repetitions):
    found = []
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        x, y, train, val, test = draw(repetition, rng)
        if len(test) < FEWEST_TEST:
            continue
        for name, way in (("before", before), ("now", now)):
            found.append({**case, "way": name} | judged_and_delivered(way, x, y, train, val, test, rng))
    return found


def clouds(repetition, rng, classes, per_class, dimensions, spread):
    """Classes around centres, in features with a falling spectrum and a common offset, as those of a network have."""
    n = classes * per_class + N_VAL + 2000
    labels = np.arange(n) % classes
    centres = np.random.default_rng([99, repetition]).normal(size=(classes, dimensions))
    scale = 1 / np.sqrt(np.arange(1, dimensions + 1))
    x = (centres[labels] + spread * rng.normal(size=(n, dimensions))) * scale + 1
    order = np.arange(n)
    train, val, test = np.split(order, [classes * per_class, classes * per_class + N_VAL])
    return x, labels, train, val, test


def real(repetition, rng, x, labels, ncl, per_class):
    """A subset of the classes; its images as training, validation and test images, drawn at random."""
    subset = draw_subset(int(labels.max()) + 1, ncl, repetition)
    inside = np.flatnonzero(np.isin(labels, subset.classes))
    y = subset.new_labels(labels[inside])
    train = sample_rows(y, ncl * per_class, seed=repetition)
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), train))
    return x[inside], y, train, rest[:N_VAL], rest[N_VAL:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--outputs")
    parser.add_argument("--repetitions", type=int, default=200)
    options = parser.parse_args()
    table = []
    if options.outputs is None:
        for classes, per_class, spread in ((2, 20, 3.0), (5, 20, 2.0), (5, 100, 3.0), (10, 20, 1.5), (10, 50, 2.5)):
            case = {"case": f"{classes} classes, {per_class} each, spread {spread}"}
            draw = lambda repetition, rng, of=(classes, per_class, 128, spread): clouds(repetition, rng, *of)  # noqa: E731
            table += lines(case, draw, options.repetitions)
    else:
        store = Store(Path(options.outputs))
        for row in store.rows("task == 'embed' and split == 'all'").to_dict("records"):
            x = store.array(row["run_id"], "features").astype(np.float64)
            labels = store.items(row["fingerprint"])["label"].cat.codes.to_numpy().astype(np.int64)
            for ncl, per_class in ((5, 15), (10, 15), (5, 30)):
                draw = lambda repetition, rng, of=(x, labels, ncl, per_class): real(repetition, rng, *of)  # noqa: E731
                case = {"case": f"{row['dataset']} {row['encoder'].split()[0]} {ncl} classes, {per_class} each"}
                table += lines(case, draw, options.repetitions)
    frame = pd.DataFrame(table)
    frame["error"] = frame["judged"] - frame["delivered"]
    by = frame.groupby(["case", "way"], sort=False)
    shown = 100 * by[["judged", "delivered", "error", "inside"]].mean()
    shown["rmse"] = 100 * np.sqrt(by["variance"].mean())
    shown["over_binomial"] = by["variance"].mean() / by["binomial"].mean()
    print(shown.round(2).to_string())


if __name__ == "__main__":
    main()
