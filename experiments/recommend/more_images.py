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
from fca.stats.intervals import FRACTION, mean_with_interval
from fca.studies.recommend.stats.learning_curve import DRAWS, Forecast, Job, Measured, fit, forecast
from fca.studies.recommend.stats.nested_subsets import measure

SEEDS, TEST_SHARE, TEST_A_CLASS, VAL_SHARE, FEWEST_TEST = 8, 0.3, 60, 0.2, 20
PROGRAMS, OTHERS = 12, 1  # of a job: those that the chosen one is the best of, and those whose curve is measured too


def curves(options):
    """OUT/curves/<set>.json: of each job and program what was measured on its images, and what more images brought."""
    folder = Path(options.out, "curves_given" if options.given else "curves")
    folder.mkdir(parents=True, exist_ok=True)
    for place in sorted(Path(options.out, "features").iterdir()):
        is_wanted = options.only is None or place.name in options.only
        if is_wanted and (not options.given or has_test(place)):
            (folder / f"{place.name}.json").write_text(json.dumps(list(curves_of(place, options.given)), indent=0))


def has_test(place):
    splits = set(pd.read_csv(place / "items.csv")["split"])
    return "test" in splits and len(splits) > 1


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


def table(options):
    """Coverage, width and error of what is predicted without each data set, beside two trivial ways."""
    lines, jobs = stored(Path(options.out, "curves"))
    lines_given, jobs_given = stored(Path(options.out, "curves_given"))
    names = sorted({job.dataset for job in jobs})
    judged = []
    for name in track(names, "fitting", len(names)):
        hyperparameters = fit([job for job in jobs if job.dataset != name])
        for test, some, of in (("drawn", lines, jobs), ("given", lines_given, jobs_given)):
            for line, job in zip(some, of, strict=True):
                if job.dataset == name:
                    judged += [{"test": test} | result for result in compared(hyperparameters, line, job)]
    if options.shipped:
        content = json.dumps(fit(jobs).to_json(), indent=1)
        Path(options.shipped, "learning_curve.json").write_text(content + "\n")
    report(pd.DataFrame(judged))


def stored(folder):
    lines = [line for path in sorted(folder.glob("*.json")) for line in json.loads(path.read_text())]
    return lines, [job_from(line) for line in lines]


def job_from(line):
    def part(sizes, fits, right, covariance, images):
        array = [np.array(values, float) for values in (line[sizes], fits, line[right], line[covariance])]
        return Measured(*array[:3], array[3].reshape(len(array[0]), -1), float(line[images]))

    judged = part("sizes", line["fits"], "right", "covariance", "n_judged")
    tested = part("test_sizes", np.ones(len(line["test_sizes"])), "test_right", "test_covariance", "n_test")
    return Job(line["dataset"], line["images"], judged, tested)


def compared(hyperparameters, line, job):
    """A line for each number of images and way: was the accuracy on test images inside, how wide, how far."""
    curve = forecast(hyperparameters, job.judged, job.n)
    n_test, rng = line["n_test"], np.random.default_rng(0)
    now = job.judged.accuracy[0]
    of_judged = now * line["n_judged"] + 0.5, (1 - now) * line["n_judged"] + 0.5
    for at, size in list(enumerate(job.tested.sizes))[1:]:
        truth = job.tested.accuracy[at]
        true_gain = truth - job.tested.accuracy[0]
        covariance = job.tested.covariance[np.ix_([0, at], [0, at])]
        variance = np.trace(covariance) - 2 * covariance[0, 1]  # of the difference on one image
        both = curve.draws(np.array([job.n, size]))
        gains = both[:, 1] - both[:, 0] + np.sqrt(variance / n_test) * rng.normal(size=DRAWS)
        gain_low, gain_high = np.quantile(gains, (0.05, 0.95))
        ways = {
            "curve": both[:, 1],
            "no change": rng.beta(*of_judged, size=DRAWS),
            "other jobs": Forecast(float(job.n), *hyperparameters).draws(np.array([size]))[:, 0],
        }
        for way, draws in ways.items():
            low, high = np.quantile(rng.binomial(n_test, draws) / n_test, (0.05, 0.95))
            yield {
                "dataset": line["dataset"],
                "job": line["job"],
                "chosen": line["chosen"],
                "times": round(size / job.n),
                "images_a_class": size / line["ncl"],
                "way": way,
                "inside": low <= truth <= high,
                "width": 100 * (high - low),
                "own_width": 100 * np.subtract(*np.quantile(draws, (0.95, 0.05))),
                "error": 100 * (draws.mean() - truth),
                "gain_inside": gain_low <= true_gain <= gain_high,
                "gain_width": 100 * (gain_high - gain_low),
                "gain_error": 100 * (gains.mean() - true_gain),
            }


def report(results):
    main = results[results["test"] == "drawn"]
    print("\n".join(row_of("way, times, chosen", by, part) for by, part in main.groupby(["way", "times", "chosen"])))
    curve = main[main["way"] == "curve"]
    for times, part in curve.groupby("times"):
        gain = part[["gain_inside", "gain_width", "gain_error"]].groupby(part["dataset"]).mean().mean()
        print(f"gain of {times} times as many: {gain.round(2).to_dict()}")
    print("\n".join(row_of("data set", name, part) for name, part in curve.groupby("dataset")))
    bins = pd.cut(curve["images_a_class"], [0, 16, 40, 80, 160, 320, 1000])
    print("\n".join(row_of("images a class", name, part) for name, part in curve.groupby(bins, observed=True)))
    given = results[(results["test"] == "given") & (results["way"] == "curve")]
    print("\n".join(row_of("given test split", name, part) for name, part in given.groupby("dataset")))
    for name, part in (("drawn", curve), ("given", given)):
        if len(part):
            print(row_of("all", name, part))


def row_of(kind, name, part):
    """The mean over data sets, with its 95 % interval where there are several."""
    groups = pd.factorize(part["dataset"])[0]
    inside = f"{100 * part['inside'].mean():.0f} %"
    if groups.max() > 0:
        of = mean_with_interval(part["inside"].to_numpy(float), groups, FRACTION)
        inside = f"{100 * of.value:.0f} % [{100 * of.low:.0f}, {100 * of.high:.0f}]"
    error = (
        part.assign(square=part["error"] ** 2)
        .groupby("dataset")[["width", "own_width", "error", "square"]]
        .mean()
        .mean()
    )
    numbers = (
        f"{error['width']:.1f} | {error['own_width']:.1f} | {error['error']:+.1f} | {np.sqrt(error['square']):.1f}"
    )
    return f"| {kind} {name} | {len(part)} | {inside} | {numbers} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["curves", "table"])
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*", help="data sets")
    parser.add_argument("--given", action="store_true", help="test images of the given test split, maybe harder ones")
    parser.add_argument("--shipped", help="folder in which learning_curve.json is written anew")
    given = parser.parse_args()
    {"curves": curves, "table": table}[given.what](given)


if __name__ == "__main__":
    main()
