"""Which images should be labelled next? Three ways to choose them from an unlabelled pool, against random choice.

    python experiments/recommend/label_next.py --out OUT      20 minutes on one core, after regret.py features --out OUT

A job has 2, 5 or 10 classes of a data set, with 5 or 10 labelled images each; the pool are its other training images,
as many of each class as there are, or with 0.6 times as many of each class as of the one before. A way chooses 20 of
the pool, a probe is fitted with their labels as well, and judged on the test images, which choose nothing. Random
choice is the mean of several draws.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from regret import sides
from scipy.special import softmax

from fca.progress import track
from fca.stats.features import fit_probe
from fca.stats.intervals import mean_with_interval

ENCODER = "tf_efficientnet_lite0_192_fp32_cut"
NCLS, LABELLED, SEEDS, CHOSEN, POOL_A_CLASS, TESTED = (2, 5, 10), (5, 10), 3, 20, 150, 600
RANDOM_DRAWS = 6
UNEQUAL = 0.6  # images of a class in an unequal pool, as a share of those of the class before
CANDIDATES, JUDGED, LIKELY = 40, 400, 4  # of expected error: images that are tried, pool images and classes that count


class Start(NamedTuple):
    """What is known before the choice.

    features, labels: of the labelled images.    pool: features of the others.    probe: fitted to the labelled ones.
    """

    features: np.ndarray
    labels: np.ndarray
    pool: np.ndarray
    probe: object


class Spread(NamedTuple):
    """Covariance of the ridge regression's outputs for the pool images, up to a factor, and its noise."""

    covariance: np.ndarray
    noise: float

    def gain(self):
        """How much less the variances of all pool images add up to, when one of them is labelled."""
        return np.square(self.covariance).sum(axis=0) / (np.diag(self.covariance) + self.noise)

    def without(self, at):
        """After the label of one image is known."""
        column = self.covariance[:, at]
        return self._replace(covariance=self.covariance - np.outer(column, column) / (column[at] + self.noise))


def spread_of(start):
    centre = start.features.mean(axis=0)
    own, pool = start.features - centre, start.pool - centre
    noise = start.probe.penalty * len(own) * np.square(own).mean()
    inverse = np.linalg.inv(own @ own.T + noise * np.eye(len(own)))
    to_own = pool @ own.T
    return Spread(pool @ pool.T - to_own @ inverse @ to_own.T, noise)


def by_margin(start, rng):
    """Those between whose two likeliest classes the probe hesitates most."""
    likely = np.sort(softmax(start.probe.logits(start.pool), axis=1), axis=1)
    return np.argsort(likely[:, -1] - likely[:, -2])[:CHOSEN]


def by_variance(start, rng):
    """Those that leave least variance of the outputs for the pool, one after another (Yu, Bi and Tresp 2006)."""
    spread, chosen = spread_of(start), []
    for _ in range(CHOSEN):
        gain = spread.gain()
        gain[chosen] = -1.0
        chosen.append(int(gain.argmax()))
        spread = spread.without(chosen[-1])
    return np.array(chosen)


def by_expected_error(start, rng):
    """Those that leave the least expected error on the pool (Roy and McCallum 2001), among the most promising ones.

    The expectation is over the classes that the probe holds for likely; a label changes the outputs by the regression.
    """
    spread, chosen = spread_of(start), []
    logits = start.probe.logits(start.pool)
    judged = rng.permutation(len(start.pool))[:JUDGED]
    size = logits.max(axis=1).mean() - logits.min(axis=1).mean()  # of a step from one class to another
    for _ in range(CHOSEN):
        error = 1 - softmax(logits, axis=1).max(axis=1)
        promise = spread.gain() * error
        promise[chosen] = -1.0
        tried = np.argsort(-promise)[:CANDIDATES]
        left = [error_after(spread, logits, size, at, judged) for at in tried]
        chosen.append(int(tried[np.argmin(left)]))
        spread = spread.without(chosen[-1])
    return np.array(chosen)


def error_after(spread, logits, size, at, judged):
    """Expected error on the judged images when one image is labelled."""
    probability = softmax(logits[at])
    step = spread.covariance[judged, at] / (spread.covariance[at, at] + spread.noise)
    total = 0.0
    for label in np.argsort(-probability)[:LIKELY]:
        target = size * (np.arange(len(probability)) == label)
        changed = logits[judged] + step[:, None] * (target - logits[at])
        total += probability[label] * (1 - softmax(changed, axis=1).max(axis=1)).mean()
    return total / np.sort(probability)[-LIKELY:].sum()


WAYS = {"margin": by_margin, "variance": by_variance, "expected error": by_expected_error}


def replayed(place):
    """A line for each job of a data set: accuracy before, and what 20 labels of each way add."""
    items = pd.read_csv(place / "items.csv", dtype={"image_id": str})
    labels = pd.factorize(items["label"], sort=True)[0]
    is_test = sides(items["split"].to_numpy(), labels)
    features = np.load(place / f"{ENCODER}.npy").astype(np.float64)
    count = labels.max() + 1
    jobs = [
        (ncl, n, seed, equal)
        for ncl in NCLS
        if ncl <= count
        for n in LABELLED
        for seed in range(SEEDS)
        for equal in (True, False)
    ]
    lines = []
    for ncl, n, seed, equal in track(jobs, f"jobs of {place.name}", len(jobs)):
        rng = np.random.default_rng([ncl, n, seed])
        classes = rng.permutation(count)[:ncl]
        own, pool = drawn(rng, labels, is_test, classes, n, equal)
        test = np.flatnonzero(np.isin(labels, classes) & is_test)[:TESTED]
        if len(pool) >= 2 * CHOSEN:
            about = {"dataset": place.name, "ncl": ncl, "labelled": n, "equal": equal}
            lines.append(about | one_job(features, labels, own, pool, test, rng))
    return lines


def drawn(rng, labels, is_test, classes, n, equal):
    """Labelled images and the pool of a job."""
    own, pool = [], []
    for place, label in enumerate(classes):
        members = rng.permutation(np.flatnonzero((labels == label) & ~is_test))
        most = POOL_A_CLASS if equal else int(POOL_A_CLASS * UNEQUAL**place)
        own += list(members[:n])
        pool += list(members[n:][:most])
    return np.array(own), np.array(pool)


def one_job(features, labels, own, pool, test, rng):
    def accuracy(images):
        probe = fit_probe(features[images], np.unique(labels[images], return_inverse=True)[1])
        return (np.unique(labels[own])[probe.logits(features[test]).argmax(axis=1)] == labels[test]).mean()

    probe = fit_probe(features[own], np.unique(labels[own], return_inverse=True)[1])
    start = Start(features[own], labels[own], features[pool], probe)
    now = accuracy(own)
    at_random = [accuracy(np.concatenate([own, rng.permutation(pool)[:CHOSEN]])) for _ in range(RANDOM_DRAWS)]
    line = {"now": now, "random": np.mean(at_random) - now}
    for way, choose in WAYS.items():
        line[way] = accuracy(np.concatenate([own, pool[choose(start, rng)]])) - now
    return line


def report(lines):
    """What each way adds beyond random choice, in points, with 95 % intervals over data sets."""
    frame = pd.DataFrame(lines)
    for title, some in (
        ("all", frame),
        ("equal pools", frame[frame["equal"]]),
        ("unequal pools", frame[~frame["equal"]]),
    ):
        dataset = pd.factorize(some["dataset"])[0]
        print(f"\n{title}: {len(some)} jobs")
        for way in ("random", *WAYS):
            beyond = some[way] - (0.0 if way == "random" else some["random"])
            found = mean_with_interval(100 * beyond.to_numpy(), dataset)
            print(f"{way:15} {found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]")
    print((100 * frame.groupby("dataset")[["now", "random", *WAYS]].mean()).round(1).to_string())


def main(out):
    lines = []
    for place in sorted(Path(out, "features").iterdir()):
        lines += replayed(place)
    report(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="folder with the features of regret.py")
    main(parser.parse_args().out)
