"""Does the learning curve of `fca recommend` hold? Images are hidden, predicted, and then shown.

    python experiments/recommend/regret.py features --images FOLDER --out OUT    features, as for the regret
    python experiments/recommend/more_images.py curves --out OUT                 20 minutes on one core: all probes
    python experiments/recommend/more_images.py table --out OUT                  minutes: fits, leaving out each set
    ... table --out OUT --shipped fca/studies/recommend      also writes the hyperparameters that come with the package

A job is a draw of classes and images of one data set, a half or a quarter of what there is. Its curve is measured as
task=learning_curve does, on its images alone. Then probes are fitted to two and four times as many training images,
and the accuracy on test images is compared with what the curve had predicted.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from regret import NCLS, sides

from fca.progress import track
from fca.stats.features import fit_probe
from fca.stats.nested_subsets import measure

SEEDS, TEST_SHARE, TEST_A_CLASS, VAL_SHARE, FEWEST_TEST = 8, 0.3, 60, 0.2, 20
PROGRAMS, OTHERS = 12, 1  # of a job: those that the chosen one is the best of, and those whose curve is measured too


def curves(options):
    """OUT/curves/<set>.json: of each job and program what was measured on its images, and what more images brought."""
    folder = Path(options.out, "curves_given" if options.given else "curves")
    folder.mkdir(parents=True, exist_ok=True)
    for place in sorted(Path(options.out, "features").iterdir()):
        if options.only is None or place.name in options.only:
            (folder / f"{place.name}.json").write_text(json.dumps(list(curves_of(place, options.given)), indent=0))


def curves_of(place, given):
    items = pd.read_csv(place / "items.csv")
    labels = pd.factorize(items["label"], sort=True)[0]
    is_test = sides(items["split"].to_numpy(), labels) if given else drawn_test(labels)
    arrays = {path.stem: np.load(path).astype(np.float32) for path in sorted(place.glob("*.npy"))}
    count = labels.max() + 1
    drawn = [(ncl, seed) for ncl in NCLS if ncl <= count for seed in range(SEEDS)]
    for ncl, seed in track(drawn, f"curves of {place.name}", len(drawn)):
        rng = np.random.default_rng([ncl, seed])
        classes = np.sort(rng.permutation(count)[:ncl])
        train, val, test = drawn_images(rng, classes, labels, is_test, times=(4, 2)[seed % 2])
        own = np.searchsorted(classes, labels)
        if len(test) < FEWEST_TEST or np.bincount(own[train[0]]).min() < 4:
            continue
        some = rng.permutation(list(arrays))[:PROGRAMS]
        judged = {name: left_out_top1(arrays[name], own, train[0], val) for name in some}
        chosen = max(judged, key=judged.get)
        others = [name for name in some if name != chosen][:OTHERS]
        about = {"dataset": place.name, "job": f"{place.name}_{ncl}_{seed}", "ncl": ncl}
        for name in (chosen, *others):
            yield (
                about | {"program": str(name), "chosen": name == chosen} | line_of(arrays[name], own, train, val, test)
            )


def drawn_test(labels):
    """A share of each class, whatever its split: images like those of the job."""
    is_test = np.zeros(len(labels), bool)
    for label in range(labels.max() + 1):
        members = np.random.default_rng([2, label]).permutation(np.flatnonzero(labels == label))
        is_test[members[: round(TEST_SHARE * len(members))]] = True
    return is_test


def drawn_images(rng, classes, labels, is_test, times):
    """Training images of the job, and those with as many and three times as many more; validation and test images."""
    train, val, test = [[] for _ in range(int(np.log2(times)) + 1)], [], []
    for label in classes:
        members = rng.permutation(np.flatnonzero((labels == label) & ~is_test))
        fitted = int(len(members) / (times + VAL_SHARE / (1 - VAL_SHARE)))
        held_out = max(1, round(fitted * VAL_SHARE / (1 - VAL_SHARE)))
        val += list(members[:held_out])
        for doubling, rows in enumerate(train):
            rows += list(members[held_out : held_out + fitted * 2**doubling])
        test += list(np.flatnonzero((labels == label) & is_test)[:TEST_A_CLASS])
    return [np.array(rows) for rows in train], np.array(val), np.array(test)


def left_out_top1(values, own, train, val):
    probe = fit_probe(values[train], own[train])
    left_out = probe.left_out.argmax(axis=1) == own[train][probe.judged]
    return np.concatenate([left_out, probe.logits(values[val]).argmax(axis=1) == own[val]]).mean()


def line_of(values, own, train, val, test):
    subsets = measure(values[train[0]], own[train[0]], values[val], own[val])
    tested = np.stack(
        [fit_probe(values[rows], own[rows]).logits(values[test]).argmax(axis=1) == own[test] for rows in train]
    )
    return {
        "images": len(train[0]),
        "sizes": subsets.sizes.tolist(),
        "fits": subsets.fits.tolist(),
        "right": subsets.right.mean(axis=1).tolist(),
        "covariance": np.cov(subsets.right, ddof=0).tolist(),
        "n_judged": len(subsets.judged),
        "test_sizes": [len(rows) for rows in train],
        "test_right": tested.mean(axis=1).tolist(),
        "test_covariance": np.cov(tested, ddof=0).tolist(),
        "n_test": len(test),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["curves", "table"])
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*", help="data sets")
    parser.add_argument("--given", action="store_true", help="test images of the given test split, maybe harder ones")
    given = parser.parse_args()
    {"curves": curves}[given.what](given)


if __name__ == "__main__":
    main()
