"""What does it cost to follow `fca recommend`, and are its intervals right? On jobs of data sets that it has not seen.

    python experiments/recommend/regret.py features --images FOLDER --out OUT   an hour on two cores for eight sets
    python experiments/recommend/regret.py jobs --out OUT                       5 minutes: draws jobs, fits all probes
    python experiments/recommend/regret.py fit --out OUT                        a minute, leaving out each set in turn
    python experiments/recommend/regret.py table --out OUT                      a minute: the tables of the README
    ... fit --out OUT --shipped fca/studies/recommend        also writes what comes with the package

A job is a draw of classes and training images of one data set. Every candidate (network, input size, depth, precision)
is judged as fca does it: by training images, each left out, and by validation images. Ways to choose are judged on
split halves of the test images: the best candidate is the best of one half, all are compared on the other one.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from fca.cli.configure import load_data, load_model
from fca.data.splits import fixed_draw
from fca.models.programs import Session, encoder_program, quantised
from fca.progress import track
from fca.stats.candidate_accuracy import Candidates, Hyperparameters, fit, prior, records_of
from fca.stats.decision import probability_within
from fca.stats.features import fit_probe
from fca.stats.intervals import mean_with_interval
from fca.tasks.compile import with_every_depth

DATASETS = {  # keys of the data set; images of each class and split that are kept (null: all); classes that are kept
    "clothing": ({}, None, None),
    "signdigits": ({}, None, None),
    "cue_conflict": ({"splits": {"conflict": "test", "edges": None, "silhouettes": None}}, None, None),
    "grocery": ({}, None, None),
    "digits": ({}, 100, None),
    "omniglot_small": ({"splits": {"small1": "test", "small2": None}}, None, 60),
    "tinyimagenet60_boxes": ({}, None, 30),
    "cifar10": ({}, 150, None),
}
NETWORKS = {"efficientnet_lite0": (224, 192, 160, 128), "efficientnet_lite1": (240, 192, 160, 128)}
NETWORKS |= {"efficientnet_lite2": (260, 192, 160, 128)}
WEIGHTS = "package"
CALIBRATION = 32
NCLS, SEEDS, IMAGES_A_CLASS, TEST_A_CLASS, VAL_SHARE = (2, 3, 5, 10, 20), 5, (10, 20, 40, 100), 60, 0.2
MARGIN, CONFIDENCE, SPLITS, DRAWS = 0.01, 0.9, 20, 2000
PLAIN = ["dataset", "job", "ncl", "images_a_class", "network", "size", "depth", "precision", "adaptation"]


def data_of(name, images):
    keys = DATASETS[name][0]
    return load_data("digits") if name == "digits" else load_data("folder", root=f"{images}/{name}.zip", **keys)


def rows_of(name, data):
    """The images that are read: at most so many of each class and side, of at most so many classes."""
    _, most, classes = DATASETS[name]
    kept = np.random.default_rng(0).permutation(len(data.classes))[:classes]
    is_test = (data.items["split"] == "test").to_numpy()
    rows = []
    for label in np.sort(kept):
        for side in (is_test, ~is_test):
            members = np.flatnonzero(side & (data.labels == label))
            rows.append(np.random.default_rng([0, int(label)]).permutation(members)[:most])
    return np.sort(np.concatenate(rows))


def features(options):
    """OUT/features/<set>/: items.csv and, for each network, size and precision, the features of its depths."""
    for name in options.only or DATASETS:
        data = data_of(name, options.images)
        rows = rows_of(name, data)
        folder = Path(options.out, "features", name)
        folder.mkdir(parents=True, exist_ok=True)
        data.items.iloc[rows][["image_id", "label", "split"]].to_csv(folder / "items.csv", index=False)
        hog = load_model("hog").build()
        keep(folder / "hog_32_fp32_whole.npy", hog_features(hog, pixels_of(hog, data, rows)))
        grid = [(network, size) for network, sizes in NETWORKS.items() for size in sizes]
        for network, size in track(grid, f"features of {name}", len(grid)):
            programs_of(network, size, data, rows, folder)


def pixels_of(classifier, data, rows):
    return np.stack([classifier.geometry(data.read(int(row)))[0] for row in rows])


def hog_features(hog, pixels):
    import torch

    return hog.embed(torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255).numpy()


def programs_of(network, size, data, rows, folder):
    """The features of one network at one size, in fp32 and int8, an array for each depth."""
    model, depths = with_every_depth(load_model(network, weights=WEIGHTS, input_size=size))
    names = {precision: f"{model.architecture}_{size}_{precision}" for precision in ("fp32", "int8")}
    if all((folder / f"{name}_{depth}.npy").is_file() for name in names.values() for depth in depths):
        return
    encoder = model.build()
    pixels = pixels_of(encoder, data, rows)
    program = encoder_program(encoder, depths)
    trained_on = np.flatnonzero((data.items["split"].iloc[rows] != "test").to_numpy())
    drawn = fixed_draw(data, rows[trained_on] if len(trained_on) else rows, CALIBRATION)
    programs = {"fp32": program, "int8": quantised(program, pixels[np.isin(rows, drawn)])}
    for precision, content in programs.items():
        session = Session(content)
        parts = [[session.run(pixels[at : at + 32], [depth]) for depth in depths] for at in range(0, len(rows), 32)]
        for depth, values in zip(depths, zip(*parts, strict=True), strict=True):
            keep(folder / f"{names[precision]}_{depth}.npy", np.concatenate(values))


def keep(path, values):
    np.save(path, values.astype(np.float16))


def jobs(options):
    """OUT/jobs/<job>.npz, right and wrong of every candidate, and OUT/measured.csv, counts, a line each."""
    folder = Path(options.out, "jobs")
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    sets = sorted(Path(options.out, "features").iterdir())
    for place in sets:
        lines += jobs_of(place, folder)
    pd.DataFrame(lines).to_csv(Path(options.out, "measured.csv"), index=False)
    print(f"{len({line['job'] for line in lines})} jobs of {len(sets)} data sets")


def jobs_of(place, folder):
    items = pd.read_csv(place / "items.csv")
    labels = pd.factorize(items["label"], sort=True)[0]
    is_test = sides(items["split"].to_numpy(), labels)
    arrays = {path.stem: np.load(path).astype(np.float32) for path in sorted(place.glob("*.npy"))}
    count = labels.max() + 1
    lines = []
    drawn = [(ncl, seed) for ncl in NCLS if ncl <= count for seed in range(SEEDS if ncl < count else 2)]
    for ncl, seed in track(drawn, f"jobs of {place.name}", len(drawn)):
        rng = np.random.default_rng([ncl, seed])
        classes = np.sort(rng.permutation(count)[:ncl])
        train, val, test = drawn_images(rng, classes, labels, is_test, IMAGES_A_CLASS[(seed + ncl) % 4])
        if len(train) < 2 * ncl or len(test) < 10:
            continue
        own = np.searchsorted(classes, labels)
        judged, tested = [], []
        for values in arrays.values():
            probe = fit_probe(values[train], own[train])
            left_out = probe.left_out.argmax(axis=1) == own[train][probe.judged]
            judged.append(np.concatenate([left_out, probe.logits(values[val]).argmax(axis=1) == own[val]]))
            tested.append(probe.logits(values[test]).argmax(axis=1) == own[test])
        job = f"{place.name}_{ncl}_{seed}"
        np.savez_compressed(folder / f"{job}.npz", judged=judged, test=tested)
        about = {"dataset": place.name, "job": job, "ncl": ncl, "images_a_class": round(len(train) / ncl, 2)}
        for name, on_judged, on_test in zip(arrays, judged, tested, strict=True):
            network, size, precision, depth = name.rsplit("_", 3)
            program = {"network": network, "size": int(size), "depth": depth, "precision": precision}
            counts = {"n_judged": len(on_judged), "right_judged": on_judged.sum()}
            counts |= {"n_test": len(on_test), "right_test": on_test.sum()}
            lines.append(about | program | {"adaptation": "probe"} | counts)
    return lines


def sides(split, labels):
    """Which images are test images: those of the test split, or half of each class of a set of one split."""
    if (split == "test").any() and (split == "train").any():
        return split == "test"
    is_test = np.zeros(len(labels), bool)
    rng = np.random.default_rng(1)
    for label in range(labels.max() + 1):
        members = np.flatnonzero(labels == label)
        is_test[rng.permutation(members)[: len(members) // 2]] = True
    return is_test


def drawn_images(rng, classes, labels, is_test, most):
    train, val, test = [], [], []
    for label in classes:
        members = rng.permutation(np.flatnonzero((labels == label) & ~is_test))[:most]
        held_out = max(1, round(VAL_SHARE * len(members)))
        val += list(members[:held_out])
        train += list(members[held_out:])
        test += list(np.flatnonzero((labels == label) & is_test)[:TEST_A_CLASS])
    return (np.array(part, dtype=int) for part in (train, val, test))


def fit_all(options):
    """OUT/hyperparameters/<set>.json: from all other sets; all.json from all."""
    measured = pd.read_csv(Path(options.out, "measured.csv"))
    folder = Path(options.out, "hyperparameters")
    folder.mkdir(exist_ok=True)
    names = [*measured["dataset"].unique(), "all"]
    for name in track(names, "fitting", len(names)):
        recorded, records = records_of(measured[measured["dataset"] != name])
        found = fit(records, recorded).to_json()
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1))
    if options.shipped:
        measured.to_csv(Path(options.shipped, "measured.csv"), index=False)
        Path(options.shipped, "hyperparameters.json").write_text((folder / "all.json").read_text())


def milliseconds(part):
    """A model of the time for one image, in proportion to pixels: lite0 at 224 takes 12.5 ms in fp32, half in int8.

    Of a machine with int8 instructions; a cut network takes 0.95 of a whole one. Only order and ratios matter here.
    """
    usual = {"tf_efficientnet_lite0": 12.5 / 224**2, "tf_efficientnet_lite1": 19 / 240**2}
    usual |= {"tf_efficientnet_lite2": 27 / 260**2}
    pixels = part["size"] ** 2 * part["network"].map(usual).fillna(1.5 / 32**2)
    factor = np.where(part["depth"] == "cut", 0.95, 1.0) * np.where(part["precision"] == "int8", 0.5, 1.0)
    return (pixels * factor).to_numpy()


def table(options):
    """Regret on split halves and time of every way to choose; coverage of intervals; how often sure answers hold."""
    measured = pd.read_csv(Path(options.out, "measured.csv"))
    choices, intervals, answers = [], [], []
    for dataset, lines in measured.groupby("dataset"):
        content = Path(options.out, "hyperparameters", f"{dataset}.json").read_text()
        hyperparameters = Hyperparameters.from_json(json.loads(content))
        recorded, records = records_of(measured[measured["dataset"] != dataset])
        for job, part in lines.groupby("job"):
            stored = np.load(Path(options.out, "jobs", f"{job}.npz"))
            programs = zip(*(part[column] for column in ("network", "size", "depth", "precision")), strict=True)
            columns = list(zip(*programs, strict=True))
            candidates = Candidates(columns[0], tuple(map(float, columns[1])), columns[2], columns[3])
            about = part.iloc[0]
            before = prior(hyperparameters, records, recorded, candidates, about["ncl"], about["images_a_class"])
            after = before.update(stored["judged"].astype(float))
            cost, tested = milliseconds(part), stored["test"]
            ways = chosen(before, after, stored["judged"], cost, part)
            for way, regret in split_half_regret(ways, tested).items():
                line = {"dataset": dataset, "job": job, "way": way}
                choices.append(line | {"regret": 100 * regret, "ms": cost[ways[way]]})
            for when, forecast in (("before", before), ("after", after)):
                low, high = forecast.predictive(tested.shape[1])
                truth = tested.mean(axis=1)
                inside = ((truth >= low) & (truth <= high)).mean()
                line = {"dataset": dataset, "when": when, "inside": inside}
                intervals.append(line | {"width": 100 * (high - low).mean()})
            answer = ways["fca recommend"]
            loss = tested.mean(axis=1).max() - tested.mean(axis=1)[answer]
            within = probability_within(after.draws(DRAWS), MARGIN)[answer]
            answers.append({"dataset": dataset, "within": within, "right": loss <= MARGIN + 1e-9})
    report(pd.DataFrame(choices), pd.DataFrame(intervals), pd.DataFrame(answers))


def chosen(before, after, judged, cost, part):
    """Way to choose -> position of the candidate."""

    def smallest(values, margin):
        return min(np.flatnonzero(values >= values.max() - margin), key=lambda at: cost[at])

    expected, without, left_out = after.draws(DRAWS).mean(axis=0), before.draws(DRAWS).mean(axis=0), judged.mean(axis=1)
    ways = {
        "fca recommend": smallest(expected, MARGIN),
        "most accurate by fca": int(expected.argmax()),
        "half a point": smallest(expected, MARGIN / 2),
        "two points": smallest(expected, 2 * MARGIN),
        "other jobs alone, smallest within a point": smallest(without, MARGIN),
        "best left-one-out": int(left_out.argmax()),
        "left-one-out, smallest within a point": smallest(left_out, MARGIN),
    }
    named = zip(part["network"], part["size"], part["depth"], part["precision"], strict=True)
    return ways | {f"always {network} {size} {depth} {p}": at for at, (network, size, depth, p) in enumerate(named)}


def split_half_regret(ways, tested):
    """Mean over random halves of the accuracy that each way loses on one half to the best candidate of the other."""
    rng = np.random.default_rng(0)
    found = {way: [] for way in ways}
    for _ in range(SPLITS):
        order = rng.permutation(tested.shape[1])
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        for one, other in (halves, halves[::-1]):
            share = tested[:, one].mean(axis=1)
            best = rng.choice(np.flatnonzero(share == share.max()))
            accuracy = tested[:, other].mean(axis=1)
            for way, at in ways.items():
                found[way].append(accuracy[best] - accuracy[at])
    return {way: float(np.mean(values)) for way, values in found.items()}


def report(choices, intervals, answers):
    lines = []
    for way, part in choices.groupby("way"):
        of_set = part.groupby("dataset")["regret"].mean()
        regret = mean_with_interval(part["regret"].to_numpy(), pd.factorize(part["dataset"])[0])
        ms = np.exp(part.assign(log=np.log(part["ms"])).groupby("dataset")["log"].mean().mean())
        low, high = regret.low, regret.high
        lines.append(
            {"way": way, "regret": of_set.mean(), "low": low, "high": high, "worst": part["regret"].max(), "ms": ms}
        )
    print(pd.DataFrame(lines).sort_values("regret").round(2).to_string(index=False))
    for by in (["when"], ["dataset", "when"]):
        print(intervals.groupby(by)[["inside", "width"]].mean().round(2).to_string())
    sure = answers[answers["within"] >= CONFIDENCE]
    print(f"sure: {len(sure)} of {len(answers)} answers; {sure['right'].sum()} of these lost a point at most")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("features", "jobs", "fit", "table"))
    parser.add_argument("--images", help="folder of the zips")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*", help="names of data sets")
    parser.add_argument("--shipped", help="folder in which measured.csv and hyperparameters.json are written anew")
    given = parser.parse_args()
    {"features": features, "jobs": jobs, "fit": fit_all, "table": table}[given.what](given)
