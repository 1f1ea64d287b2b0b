"""What does it cost to follow `fca recommend`, and are its intervals right? On jobs of data sets that it has not seen.

    python experiments/recommend/regret.py features --images FOLDER --weights FOLDER --out OUT   an hour on two cores
    python experiments/recommend/regret.py times --weights FOLDER --out OUT    3 minutes: time of each program
    python experiments/recommend/regret.py jobs --out OUT                      10 minutes: draws jobs, fits all probes
    python experiments/recommend/regret.py fit --out OUT                       a minute, leaving out each set in turn
    python experiments/recommend/regret.py table --out OUT                     2 minutes: the tables of the README
    python experiments/recommend/regret.py figure --out OUT                    regret against time, from the last table
    ... fit --out OUT --shipped fca/studies/recommend        also writes what comes with the package

A job is a draw of classes and training images of one data set. Every candidate (network, input size, depth, precision)
is judged as fca does it: by training images, each left out, and by validation images. Ways to choose are judged on
split halves of the test images: the best candidate is the best of one half, all are compared on the other one.
"""

import argparse
import io
import json
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import NamedTuple

import altair as alt
import numpy as np
import onnx
import pandas as pd
import vl_convert
from PIL import Image

from fca.cli.configure import load_data, load_model
from fca.cli.places import CONF
from fca.data.splits import fixed_draw
from fca.models.programs import Session, encoder_program, only_output, quantised
from fca.progress import track
from fca.stats.decision import probability_within
from fca.stats.features import fit_probe
from fca.stats.intervals import mean_with_interval, wilson
from fca.studies.recommend.networks import smaller_sizes, weight_files
from fca.studies.recommend.stats.candidate_accuracy import Candidates, Hyperparameters, fit, prior, records_of
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
PACKAGES = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")
SIZES = 3  # below the usual one
CALIBRATION = 32
NCLS, SEEDS, IMAGES_A_CLASS, TEST_A_CLASS, VAL_SHARE = (2, 3, 5, 10, 20), 5, (10, 20, 40, 100), 60, 0.2
MARGIN, CONFIDENCE, SPLITS, DRAWS = 0.01, 0.9, 20, 2000
ROUNDS, CALLS = 9, 5  # of measuring times
SURE = (0.9, 0.7, 0.0)  # lower ends of the probabilities that an answer states
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
        encoders = list(encoders_of(options.weights))
        for label, model in track(encoders, f"features of {name}", len(encoders)):
            programs_of(label, model, data, rows, folder)


def encoders_of(weights):
    """Name and model of each network at each size: those of packages, and those of files as `fca recommend` takes."""
    options = [path.stem for path in (CONF / "model").glob("*.yaml")]
    given = dict.fromkeys(PACKAGES, "package") | weight_files(weights, options)
    for network, file in given.items():
        model = load_model(network, weights=file)
        for size in (model.input_size, *smaller_sizes(model.input_size, SIZES)):
            yield model.label(), load_model(network, weights=file, input_size=size)


def pixels_of(classifier, data, rows):
    return np.stack([classifier.geometry(data.read(int(row)))[0] for row in rows])


def hog_features(hog, pixels):
    import torch

    return hog.embed(torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255).numpy()


def programs_of(label, model, data, rows, folder):
    """The features of one network at one size, in fp32 and int8, an array for each depth."""
    model, depths = with_every_depth(model)
    names = {precision: f"{label}_{model.input_size}_{precision}" for precision in ("fp32", "int8")}
    if all((folder / f"{name}_{depth}.npy").is_file() for name in names.values() for depth in depths):
        return
    encoder = model.build()
    pixels = pixels_of(encoder, data, rows)
    trained_on = np.flatnonzero((data.items["split"].iloc[rows] != "test").to_numpy())
    drawn = fixed_draw(data, rows[trained_on] if len(trained_on) else rows, CALIBRATION)
    program = encoder_program(encoder, depths)
    programs = {"fp32": program, "int8": quantised(program, pixels[np.isin(rows, drawn)])}
    for precision, content in programs.items():
        session = Session(content)
        parts = [[session.run(pixels[at : at + 32], [depth]) for depth in depths] for at in range(0, len(rows), 32)]
        for depth, values in zip(depths, zip(*parts, strict=True), strict=True):
            keep(folder / f"{names[precision]}_{depth}.npy", np.concatenate(values))


def keep(path, values):
    np.save(path, values.astype(np.float16))


def times(options):
    """OUT/times.csv: milliseconds for one image of each program, one thread, the median of rounds in turn."""
    calls = {("hog", 32, "whole", "fp32"): hog_call()}
    for label, model in encoders_of(options.weights):
        model, depths = with_every_depth(model)
        program = encoder_program(model.build(), depths)
        noise = np.random.default_rng(0).integers(0, 256, (8, model.input_size, model.input_size, 3), np.uint8)
        for precision, content in (("fp32", program), ("int8", quantised(program, noise))):
            for depth in depths:
                part = only_output(onnx.load_from_string(content), depth).SerializeToString()
                calls[label, model.input_size, depth, precision] = partial(Session(part, 1).run, noise[:1], [depth])
    lines = [(*program, 1000 * seconds) for program, seconds in zip(calls, in_turn(calls.values()), strict=True)]
    columns = ["network", "size", "depth", "precision", "ms"]
    pd.DataFrame(lines, columns=columns).to_csv(Path(options.out, "times.csv"), index=False)


def hog_call():
    hog = load_model("hog").build()
    return partial(hog_features, hog, np.zeros((1, 32, 32, 3), np.uint8))


def in_turn(calls):
    """Median seconds of each call, over rounds in which all take turns; each round is several calls."""
    rounds = [[timeit(call, number=CALLS) / CALLS for call in calls] for _ in track(range(ROUNDS), "rounds", ROUNDS)]
    return np.median(rounds, axis=0)


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
    """The lines of all jobs of one data set; right and wrong answers go to files."""
    items = pd.read_csv(place / "items.csv")
    labels = pd.factorize(items["label"], sort=True)[0]
    is_test = sides(items["split"].to_numpy(), labels)
    features = {path.stem: np.load(path).astype(np.float32) for path in sorted(place.glob("*.npy"))}
    count = labels.max() + 1
    drawn = [(ncl, seed) for ncl in NCLS if ncl <= count for seed in range(SEEDS if ncl < count else 2)]
    lines = []
    for ncl, seed in track(drawn, f"jobs of {place.name}", len(drawn)):
        rng = np.random.default_rng([ncl, seed])
        classes = np.sort(rng.permutation(count)[:ncl])
        images = drawn_images(rng, classes, labels, is_test, IMAGES_A_CLASS[(seed + ncl) % 4])
        if len(images.train) < 2 * ncl or len(images.test) < 10:
            continue
        job = f"{place.name}_{ncl}_{seed}"
        about = {"dataset": place.name, "job": job, "ncl": ncl, "images_a_class": round(len(images.train) / ncl, 2)}
        lines += job_lines(about, features, np.searchsorted(classes, labels), images, folder / f"{job}.npz")
    return lines


def job_lines(about, features, labels, images, file):
    """A line for each candidate of one job, and a file of which images it gets right."""
    judged, tested, lines = [], [], []
    for name, values in features.items():
        probe = fit_probe(values[images.train], labels[images.train])
        left_out = probe.left_out.argmax(axis=1) == labels[images.train][probe.judged]
        checked = probe.logits(values[images.val]).argmax(axis=1) == labels[images.val]
        judged.append(np.concatenate([left_out, checked]))
        tested.append(probe.logits(values[images.test]).argmax(axis=1) == labels[images.test])

        network, size, precision, depth = name.rsplit("_", 3)
        program = {"network": network, "size": int(size), "depth": depth, "precision": precision}
        counts = {"n_judged": len(judged[-1]), "right_judged": judged[-1].sum()}
        counts |= {"n_test": len(tested[-1]), "right_test": tested[-1].sum()}
        lines.append(about | program | {"adaptation": "probe"} | counts)
    np.savez_compressed(file, judged=judged, test=tested, n_val=len(images.val))
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


class Images(NamedTuple):
    """Positions of the images of a job."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def drawn_images(rng, classes, labels, is_test, most):
    train, val, test = [], [], []
    for label in classes:
        members = rng.permutation(np.flatnonzero((labels == label) & ~is_test))[:most]
        held_out = max(1, round(VAL_SHARE * len(members)))
        val += list(members[:held_out])
        train += list(members[held_out:])
        test += list(np.flatnonzero((labels == label) & is_test)[:TEST_A_CLASS])
    return Images(*(np.array(part, dtype=int) for part in (train, val, test)))


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


def milliseconds(times, part):
    """Time for one image of each candidate."""
    programs = part[["network", "size", "depth", "precision"]]
    return programs.merge(times, how="left", validate="many_to_one")["ms"].to_numpy()


def table(options):
    """Regret on split halves and time of every way to choose; coverage of intervals; how often sure answers hold.

    OUT/choices.csv keeps a line for each way and job, for the figure.
    """
    measured = pd.read_csv(Path(options.out, "measured.csv"))
    times_of = pd.read_csv(Path(options.out, "times.csv"))
    found = []
    for dataset, lines in measured.groupby("dataset"):
        learnt = learnt_without(dataset, measured, options.out)
        jobs_of_set = list(lines.groupby("job"))
        for job, part in track(jobs_of_set, f"judging {dataset}", len(jobs_of_set)):
            stored = np.load(Path(options.out, "jobs", f"{job}.npz"))
            found.append(judged_job(learnt, part, stored, milliseconds(times_of, part)))
    choices, intervals, answers = (pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True))
    choices.to_csv(Path(options.out, "choices.csv"), index=False)
    report_regret(choices)
    report_differences(choices)
    report_intervals(intervals)
    report_sure(answers)


def learnt_without(dataset, measured, out):
    """What other data sets teach: hyperparameters and records."""
    content = Path(out, "hyperparameters", f"{dataset}.json").read_text()
    recorded, records = records_of(measured[measured["dataset"] != dataset])
    return Hyperparameters.from_json(json.loads(content)), records, recorded


def judged_job(learnt, part, stored, cost):
    """Lines of choices, of intervals and of the answer of one job."""
    about = part.iloc[0]
    of = {"dataset": about["dataset"], "job": about["job"]}
    before = prior(*learnt, candidates_of(part), about["ncl"], about["images_a_class"])
    after = before.update(stored["judged"].astype(float))
    ways = chosen(before, after, stored, cost, part)
    regret = split_half_regret(ways, stored["test"])
    choices = [of | {"way": way, "regret": 100 * regret[way], "ms": cost[at]} for way, at in ways.items()]

    accuracy = stored["test"].mean(axis=1)
    intervals = []
    for when, forecast in (("before", before), ("after", after)):
        low, high = forecast.predictive(stored["test"].shape[1])
        inside = ((accuracy >= low) & (accuracy <= high)).mean()
        intervals.append(of | {"when": when, "inside": inside, "width": 100 * (high - low).mean()})

    answer = ways[OURS]
    stated = probability_within(after.draws(DRAWS), MARGIN)[answer]
    lost = accuracy.max() - accuracy[answer]
    held = {"stated": stated, "held": lost <= MARGIN + 1e-9, "split_half": regret[OURS]}
    return pd.DataFrame(choices), pd.DataFrame(intervals), pd.DataFrame([of | held])


def candidates_of(part):
    programs = zip(*(part[column] for column in ("network", "size", "depth", "precision")), strict=True)
    networks, sizes, depths, precisions = zip(*programs, strict=True)
    return Candidates(networks, tuple(map(float, sizes)), depths, precisions)


OURS = "fca recommend"
FIXED = "always "


def chosen(before, after, stored, cost, part):
    """Way to choose -> position of the candidate."""

    def smallest(values, margin):
        return min(np.flatnonzero(values >= values.max() - margin), key=lambda at: cost[at])

    judged = stored["judged"]
    expected, without, left_out = after.draws(DRAWS).mean(axis=0), before.draws(DRAWS).mean(axis=0), judged.mean(axis=1)
    checked = judged[:, -int(stored["n_val"]) :].mean(axis=1)
    ways = {
        OURS: smallest(expected, MARGIN),
        "fca, most accurate": int(expected.argmax()),
        "fca, smallest within half a point": smallest(expected, MARGIN / 2),
        "fca, smallest within two points": smallest(expected, 2 * MARGIN),
        "other jobs alone, smallest within a point": smallest(without, MARGIN),
        "other jobs alone, most accurate": int(without.argmax()),
        "best left-one-out probe": int(left_out.argmax()),
        "left-one-out, smallest within a point": smallest(left_out, MARGIN),
        "train everything, best on validation images": int(checked.argmax()),
    }
    named = zip(part["network"], part["size"], part["depth"], part["precision"], strict=True)
    fixed = {f"{FIXED}{network} {size} {depth} {p}": at for at, (network, size, depth, p) in enumerate(named)}
    return ways | fixed


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


def summary(choices):
    """A line for each way: mean regret over data sets with its interval, worst job, geometric mean of the time."""
    lines = []
    for way, part in choices.groupby("way"):
        regret = mean_with_interval(part["regret"].to_numpy(), pd.factorize(part["dataset"])[0])
        log_ms = part.assign(log=np.log(part["ms"])).groupby("dataset")["log"].mean()
        ends = {"low": regret.low, "high": regret.high, "worst": part["regret"].max()}
        mean = part.groupby("dataset")["regret"].mean().mean()
        lines.append({"way": way, "regret": mean, **ends, "ms": np.exp(log_ms.mean())})
    return pd.DataFrame(lines).sort_values("regret", ignore_index=True)


def report_regret(choices):
    """With all data sets, and without the one whose pictures contradict themselves."""
    for title, some in (("all sets", choices), ("without cue_conflict", without_cue_conflict(choices))):
        print(f"\n{title}: {some['job'].nunique()} jobs")
        print(summary(some).round(2).to_string(index=False))


def without_cue_conflict(choices):
    return choices[choices["dataset"] != "cue_conflict"]


def report_differences(choices):
    """Regret of other ways minus that of the answer, paired by job, intervals over data sets."""
    for title, some in (("all sets", choices), ("without cue_conflict", without_cue_conflict(choices))):
        regret = some.pivot_table("regret", ["dataset", "job"], "way")
        dataset = pd.factorize(regret.index.get_level_values("dataset"))[0]
        nearest = summary(some)
        is_fixed = nearest["way"].str.startswith(FIXED)
        print(f"\nminus the answer, {title}")
        others = [way for way in nearest.loc[~is_fixed, "way"] if way != OURS]
        for way in [*others, *nearest.loc[is_fixed, "way"][:5]]:
            difference = mean_with_interval((regret[way] - regret[OURS]).to_numpy(), dataset)
            print(f"{way:45} {difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]")


def report_intervals(intervals):
    for by in (["when"], ["dataset", "when"]):
        print(intervals.groupby(by)[["inside", "width"]].mean().round(2).to_string())


def report_sure(answers):
    """How often an answer is within a point of the best on test images, by the probability that it states."""
    upper = np.inf
    for lower in SURE:
        part = answers[(answers["stated"] >= lower) & (answers["stated"] < upper)]
        low, high = wilson(int(part["held"].sum()), len(part)) if len(part) else (np.nan, np.nan)
        of_halves = (part["split_half"] <= MARGIN + 1e-9).mean()
        print(
            f"stated {lower:.0%} or more: {len(part)} answers, mean {part['stated'].mean():.0%}; "
            f"held {part['held'].mean():.0%} [{low:.0%}, {high:.0%}], on split halves {of_halves:.0%}"
        )
        upper = lower


SHOWN = [-2.5, 8.0]  # points of regret; HOG loses more
GREY, COLOURS = "#9aa1ab", ["#0072b2", "#e69f00", "#009e73", "#c4562b", "#a9629a", "#6a5acd", "#7a5c00"]


def figure(options):
    """OUT/regret.png: regret against time. Ways to choose have colours; fixed choices are small and grey."""
    choices = pd.read_csv(Path(options.out, "choices.csv"))
    panels = [panel(choices, "All data sets"), panel(without_cue_conflict(choices), "Without cue_conflict")]
    drawn = alt.hconcat(*panels).configure_legend(orient="bottom", columns=2, labelLimit=400, titleLimit=400)
    Path(options.out, "regret.png").write_bytes(in_few_colours(vl_convert.vegalite_to_png(drawn.to_json(), ppi=110)))


def in_few_colours(content):
    """The picture with 128 colours, which takes a quarter of the bytes."""
    made = io.BytesIO()
    few = Image.open(io.BytesIO(content)).convert("RGB").quantize(128, method=Image.Quantize.MAXCOVERAGE)
    few.save(made, "PNG", optimize=True)
    return made.getvalue()


def panel(choices, title):
    """Regret against time on some data sets."""
    frame = summary(choices)
    frame = frame[~frame["way"].str.startswith("other jobs")]
    is_fixed = frame["way"].str.startswith(FIXED)
    across = alt.X("ms:Q", title="time for one image, ms", scale=alt.Scale(type="log", domain=[1, 30]))
    up = alt.Y("regret:Q", title="regret, points of accuracy", scale=alt.Scale(domain=SHOWN))
    ways = [OURS, *frame.loc[~is_fixed & (frame["way"] != OURS), "way"].sort_values()]
    colour = alt.Color("way:N", title=None, scale=alt.Scale(domain=ways, range=COLOURS), sort=ways)
    fixed = alt.Chart(frame[is_fixed]).encode(x=across, y=up)
    named = alt.Chart(frame[~is_fixed]).encode(x=across, y=up, color=colour)
    layers = [
        fixed.mark_point(filled=True, size=25, color=GREY, opacity=0.8, clip=True),
        alt.Chart(pareto_front(frame[is_fixed]))
        .mark_line(color=GREY, interpolate="step-after", clip=True)
        .encode(x=across, y=up),
        named.mark_rule(strokeWidth=2, opacity=0.6, clip=True).encode(y="low:Q", y2="high:Q"),
        named.mark_point(filled=True, size=110, opacity=1),
    ]
    return alt.layer(*layers).properties(width=400, height=300, title=title)


def pareto_front(frame):
    """The fixed choices that no other one beats in both, by time."""
    ordered = frame.sort_values("ms")
    return ordered[ordered["regret"] <= ordered["regret"].cummin()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("features", "times", "jobs", "fit", "table", "figure"))
    parser.add_argument("--images", help="folder of the zips")
    parser.add_argument("--weights", help="folder of further weights, named as models: mobilenetv1_100.safetensors")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*", help="names of data sets")
    parser.add_argument("--shipped", help="folder in which measured.csv and hyperparameters.json are written anew")
    given = parser.parse_args()
    steps = {"features": features, "times": times, "jobs": jobs, "fit": fit_all, "table": table, "figure": figure}
    steps[given.what](given)
