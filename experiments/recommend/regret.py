"""How much does following `fca recommend` lose, against always the same model, ImageNet's best, training all?

    python experiments/recommend/regret.py run --images FOLDER --weights FOLDER --outputs OUT   (CPU hours; resumes)
    python experiments/recommend/regret.py table --outputs OUT        the tables of README.md
    ... run --later ..., table --later ...        of jobs that were drawn when the way of judging was settled
    ... table --outputs OUT --measured fca/studies/recommend/measured.csv        what predictions rest on
    ... table --later --outputs OUT --coverage fca/studies/recommend/coverage.csv        how often intervals held

Each job is a subset of the classes of one of five data sets. On it `fca recommend` has its minutes; then every
candidate that it did not train is trained whole, so that each way to choose can be judged. Predictions for a job come
from the jobs of the other data sets alone. Regret is judged on test images, which chose nothing.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from fca.cli.application import composed
from fca.cli.configure import component
from fca.cli.recommend import Search, quoted
from fca.stats.intervals import mean_with_interval
from fca.store import Store
from fca.store.files import write_json
from fca.studies.recommend.evidence import evidence_of
from fca.studies.recommend.expected import AFTER, BEFORE, points
from fca.studies.recommend.recommendation import Recommendation, Weighed, name_of

MINUTES = 600  # enough for all rounds: what they cost is counted instead, by the seconds of the trainings
WEIGHTS = ("mobilenetv1_025", "mobilenetv1_050", "mobilenetv1_100", "squeezenet1_0")
TUNED = WEIGHTS[:1]  # the others take 4 to 30 minutes to fine-tune on one core
IMAGENET_BEST = ("mobilenetv1_100", "probe")
JOBS = {  # (ncl, subset seed); null: all classes. The way of judging was chosen on these
    "clothing": [(5, 0), (5, 1), (8, 2), (None, 0), (5, 10), (8, 11)],
    "signdigits": [(5, 0), (5, 1), (8, 2), (None, 0), (5, 10), (8, 11)],
    "grocery": [(5, 0), (10, 1), (20, 2), (20, 3), (5, 10), (10, 11), (20, 12)],
    "omniglot_small": [(5, 0), (10, 1), (20, 2), (20, 3), (5, 10), (10, 11), (20, 12)],
    "cifar10": [(2, 0), (5, 1), (5, 2), (None, 0)],
}
LATER = {  # drawn when it was settled: their regret chose nothing
    "clothing": [(5, 20), (8, 21)],
    "signdigits": [(5, 20), (8, 21)],
    "grocery": [(5, 20), (10, 21), (20, 22)],
    "omniglot_small": [(5, 20), (10, 21), (20, 22)],
    "cifar10": [(2, 20), (5, 21)],
}
KEYS = {
    "signdigits": ["dataset.mirror=false"],
    "omniglot_small": ["dataset.mirror=false", "dataset.splits={small1: test, small2: null}"],  # they share alphabets
    "cifar10": ["limit=200"],
}


def search_of(dataset, ncl, seed, options):
    words = [
        "dataset=folder",
        f"dataset.root={quoted(str(Path(options.images) / dataset))}.zip".replace("'.zip", ".zip'"),
    ]
    words += [*KEYS.get(dataset, []), f"outputs={quoted(options.outputs)}", "logger=none", "machine.accelerator=cpu"]
    words += [] if ncl is None else [f"subset.ncl={ncl}", f"subset.seed={seed}"]
    files = ", ".join(f"{name}: {quoted(f'{options.weights}/{name}.safetensors')}" for name in WEIGHTS)
    asked = [f"weights={{{files}}}", f"minutes={options.minutes}", "threads=1", "device=cpu"]
    config = composed("recommend", [*[word for word in words if word.split(".")[0] != "machine"], *asked])
    search = Search(config, words, component(config, "analysis"))
    tuned = [network.label in TUNED or "finetune" not in network.ways for network in search.networks]
    ways = [
        one if is_tuned else one._replace(ways=("probe",)) for one, is_tuned in zip(search.networks, tuned, strict=True)
    ]
    search.networks = ways  # of the class's cached property
    return search


def run(options):
    for dataset, jobs in (LATER if options.later else JOBS).items():
        for ncl, seed in jobs:
            file = Path(options.outputs) / "regret" / f"{dataset}_{ncl}_{seed}.json"
            found = json.loads(file.read_text()) if file.exists() else None
            if (found and found["whole"]) or (options.only and dataset not in options.only):
                continue
            print(f"--- {dataset} ncl={ncl} seed={seed}", flush=True)
            search = search_of(dataset, ncl, seed, options)
            if found is None:  # else it was stopped while the rest was trained, which `fca recommend` must not see
                found = recommended(search) | {"dataset": dataset, "whole": False}
                write_json(file, found)
            for network in search.networks:
                for way in network.ways:
                    search._train(network, way)
            write_json(file, found | {"whole": True})


def recommended(search):
    """What `fca recommend` works on, and the trainings that it makes."""
    search.describe()
    search.measure()
    search.probe()
    search.halve()
    of = evidence_of(search.store, *search.of)
    seen = [row["run_id"] for row in of.trained]
    return {"fingerprint": search.of[0], "classes": list(search.of[1]), "seen": seen}


def jobs_of(store, outputs):
    for file in sorted((Path(outputs) / "regret").glob("*.json")):
        about = json.loads(file.read_text()) | {"job": file.stem}
        if about["whole"]:
            yield about, evidence_of(store, about["fingerprint"], tuple(about["classes"]))


def seen_by_recommend(of, about):
    """The evidence without the runs that were made after it."""
    rows = tuple(row for row in of.trained if row["run_id"] in about["seen"])
    return type(of)(of.store, of.job, rows, of.checked, of.tested, of.embedded, of.speed)


def chosen(about, of, known):
    """Each way to choose -> the training that it uses; all trainings that went whole; and what recommend weighed."""
    every = {one.key: one.first for one in of.candidates if one.trained and one.speed is not None}
    best = max(every.values(), key=lambda row: (row["val_top1"], -latency_of(of, row)))
    weighed = Weighed(seen_by_recommend(of, about), known, Recommendation())
    whole = Weighed(of, known, Recommendation())
    ways = {
        "fca recommend": weighed.chosen,
        "the same choice, everything trained": whole.chosen,
        "train everything, best on val": best,
    }
    for (model, _, adaptation), row in every.items():
        ways[f"always {model.split()[0]}, {adaptation}"] = row
        if (model.split()[0], adaptation) == IMAGENET_BEST:
            ways["best on ImageNet"] = row
    return ways, every, weighed


def latency_of(of, row):
    weights = row["weights"] if isinstance(row["weights"], str) else None
    return of.speed[row["model"], weights]["latency_ms"]


def tables(store, outputs, later=False):
    """One line a job and way to choose, and one a job and candidate with what was predicted."""
    found = list(jobs_of(store, outputs))
    known = pd.DataFrame([line for _, of in found for line in points(of)])
    choices, predictions = [], []
    wanted = {f"{dataset}_{ncl}_{seed}" for dataset, jobs in (LATER if later else JOBS).items() for ncl, seed in jobs}
    for about, of in found:
        if about["job"] not in wanted:
            continue
        others = known[known["dataset"] != of.job.dataset]
        ways, every, weighed = chosen(about, of, others)
        top = max(row["top1"] for row in every.values())
        fastest = min(latency_of(of, row) for row in every.values() if row["top1"] == top)
        job = {"dataset": of.job.dataset, "ncl": len(of.job.classes), "job": about["job"]}
        job |= {"n_test": next(iter(every.values()))["n_test"], "sure": weighed.decided is not None}
        whole = sum(row["train_s"] for row in every.values())
        cost = sum(row["train_s"] for row in of.trained if row["run_id"] in about["seen"]) / whole
        for way, row in ways.items():
            line = {"way": way, "regret": 100 * (top - row["top1"]), "slower": latency_of(of, row) / fastest}
            choices.append(job | line | {"cost": cost})
        for at, one in enumerate(weighed.candidates):
            if one.key in every:
                truth, n, before = every[one.key]["top1"], every[one.key]["n_test"], weighed.before[at]
                line = dict.fromkeys(
                    ("predicted", "low", "high", "expected", "after_low", "after_high", "judged", "whole")
                )
                line |= {"candidate": name_of(one.key), "adaptation": one.key[2], "top1": truth, "n_test": n}
                if before is not None:
                    line |= {"predicted": before.value, "low": before.low, "high": before.high}
                if one.trained and at in weighed.compared:
                    ends = np.quantile(on_test(weighed.draws[:, at], n), (0.05, 0.95))
                    line |= {"expected": weighed.mean[at], "after_low": ends[0], "after_high": ends[1]}
                    line |= {"judged": one.first["top1"], "whole": one.first["run_id"] == every[one.key]["run_id"]}
                predictions.append(job | line)
    return pd.DataFrame(choices), pd.DataFrame(predictions), known


def on_test(accuracies, n):
    """What n test images would show of each of these accuracies: they are a sample themselves."""
    return np.random.default_rng(0).binomial(int(n), np.clip(accuracies, 0, 1)) / n


def coverage_of(part, name, low, high, truth):
    """How often an interval holds the accuracy on test images; points, as are its width and the mean error."""
    noise = np.sqrt(part[truth] * (1 - part[truth]) / part["n_test"])
    found = {
        "n": len(part),
        "jobs": part["job"].nunique(),
        "inside": ((part[truth] >= part[low]) & (part[truth] <= part[high])).mean(),
    }
    found |= {"width": 100 * (part[high] - part[low]).mean(), "error": 100 * (part[name] - part[truth]).abs().mean()}
    return found | {"noise_of_the_test": 80 * noise.mean()}


AFTER_ENDS = ("expected", "after_low", "after_high")


def coverage_file(predictions):
    """What the answers of `fca recommend` say of their intervals: of weights that were judged, and of predictions."""
    cases = (
        (BEFORE, predictions.dropna(subset=["low"]), ("predicted", "low", "high"), "top1"),
        (AFTER, predictions.dropna(subset=["judged"]), AFTER_ENDS, "judged"),
    )
    lines = []
    for when, cases_of, interval, truth in cases:
        for adaptation, part in cases_of.groupby("adaptation"):
            measured = coverage_of(part, *interval, truth)
            about = {"when": when, "adaptation": adaptation}
            lines.append(about | {"intervals": measured["n"], "jobs": measured["jobs"], "inside": measured["inside"]})
    return pd.DataFrame(lines)


def table(options):
    choices, predictions, known = tables(Store(Path(options.outputs)), options.outputs, options.later)
    if options.measured:
        known.round(5).to_csv(options.measured, index=False)
    if options.coverage:
        coverage_file(predictions).round(4).to_csv(options.coverage, index=False)
    summary = []
    for way, part in choices.groupby("way"):
        regret = mean_with_interval(part["regret"].to_numpy(), pd.factorize(part["dataset"])[0], within=(0.0, 100.0))
        slower = np.exp(np.log(part["slower"]).mean())
        summary.append({"way": way, "jobs": len(part), "regret": regret.value, "low": regret.low, "high": regret.high,
                        "worst": part["regret"].max(), "latency_ratio": slower})  # fmt: skip
    print(pd.DataFrame(summary).sort_values("regret").round(2).to_string(index=False))
    print(f"fca recommend trained for {choices['cost'].mean():.0%} of the time that training everything takes")
    advice = choices[choices["way"] == "fca recommend"]
    print(advice[["job", "n_test", "sure", "regret"]].round(1).to_string(index=False))
    sure = advice.loc[advice["sure"], "regret"]
    print(f"{len(sure)} answers were sure; {(sure > Recommendation().within).sum()} of them lost more than a point")
    after = AFTER_ENDS
    judged = predictions.dropna(subset=["judged"])
    cases = (
        ("before training", predictions.dropna(subset=["low"]), ("predicted", "low", "high"), "top1"),
        ("of the weights that were judged", judged, after, "judged"),
        ("... of a third, when trained whole", judged[~judged["whole"].astype(bool)], after, "top1"),
    )
    coverage = [
        {"when": when, "adaptation": adaptation} | coverage_of(part, *interval, truth)
        for when, cases_of, interval, truth in cases
        for adaptation, part in cases_of.groupby("adaptation")
    ]
    print(pd.DataFrame(coverage).round(2).to_string(index=False))
    probes = judged[judged["adaptation"] == "probe"].groupby("dataset")
    each = {dataset: coverage_of(part, *after, "judged") for dataset, part in probes}
    print("linear probes, of the weights that were judged", pd.DataFrame(each).T.round(2).to_string(), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--images")
    parser.add_argument("--weights")
    parser.add_argument("--outputs", required=True)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--later", action="store_true", help="of the jobs that were drawn later, for `table` also")
    parser.add_argument("--measured", help="write the points that predictions rest on into this file")
    parser.add_argument("--coverage", help="write how often intervals held into this file")
    given = parser.parse_args()
    {"run": run, "table": table}[given.what](given)
