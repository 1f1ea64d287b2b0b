"""What does an adaptive test of a quarter of the images say about all of them, on real answers of ImageNet models?

    python experiments/progressive/replay.py FOLDER                             a quick look, 1 minute
    python experiments/progressive/replay.py FOLDER --splits 5 --repeats 50     the whole table, 10 minutes on 2 cores

FOLDER holds imagenetv2_val50k_top1.npz (modestyachts/ImageNetV2, MIT: top-1 answers of 67 models on the 50,000
validation images). In each split 45 models calibrate: of each class the 12 images that most of them get right are easy,
12 in the middle medium and the last 12 hard, and a 2pl of their answers is the item bank. The other 20 models are
tested: sessions are classes, 10 groups of 100 classes stand for attributes, 36,000 images in all. Errors are in percent
points against all images; ratios are to Static 3, which asks as many, with bootstrap intervals over tested models.

Before that, Table 1 of Huang et al. (2025, arXiv 2503.13058): average items asked by level, given their Table 2.
"""

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit
from scipy.stats import binom

from fca.stats.adaptive import MAPPING_L, MAPPING_Q, GreTwoStage, OptimalAllocation, replay
from fca.stats.intervals import cluster_draws
from fca.stats.irt import fit_irt

DROPPED = ("fv_4k", "fv_16k")  # Fisher vectors, at chance on other test sets of the same images
CALIBRATION, TESTED, GROUPS = 45, 20, 10
BASE = ("static_k", "session_mean")
ASKED_OF_US = {  # the rows with a bar: (accuracy, score), at most
    ("gre_two_stage", "mixed_logit"): (0.65, 0.65),
    ("neyman_irt", "difference"): (0.45, 0.40),
}
BESIDE = (  # a fifth of the repeats
    *(("gre_two_stage", estimator) for estimator in ("session_mean", "pooled")),
    *(("random", estimator) for estimator in ("pooled", "difference")),
    *((policy, "mixed_logit") for policy in ("static_k", "optimal_allocation", "optimal_allocation score")),
    ("fisher_cat", "p_irt"),
)
OPTIONS = {"optimal_allocation score": partial(OptimalAllocation, objective="score")}
# Huang et al., Tables 1 and 2: items by level; score and accuracy in percent
PAPER = pd.DataFrame(
    {
        "ResNet101": [2.56, 3.96, 2.48, 35.3, 48.5],
        "ViT-B16": [2.00, 3.89, 3.07, 43.8, 56.9],
        "ConvNext-B": [1.55, 3.46, 3.98, 59.2, 70.2],
        "CLIP-RN101": [2.60, 3.89, 2.51, 36.4, 48.1],
        "CLIP-ViT-B16": [1.47, 3.61, 3.93, 57.6, 69.8],
        "CLIP-ConvNext-B": [1.62, 3.79, 3.58, 51.0, 64.6],
    },
    index=["easy", "medium", "hard", "score", "accuracy"],
)
NODES = np.linspace(-5, 5, 101)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def level_rates(hard, score, accuracy):
    """The easy and medium accuracies that give score and accuracy, in shares, with this one on hard images."""
    medium = 7 * score - 3 * accuracy - 3 * hard
    return np.array([3 * accuracy - hard - medium, medium, hard])


def intercepts(rates, sd):
    """Of a logit with a session effect of this sd, so that each level has its rate over sessions."""
    return np.array([brentq(lambda b, rate=rate: WEIGHTS @ expit(b + sd * NODES) - rate, -20, 20) for rate in rates])


def expected_items(rates, sd, mapping):
    """Items asked by level, over sessions: round 1 and what its points lead to."""
    easy, medium, hard = expit(intercepts(rates, sd)[:, None] + sd * NODES)
    asked = np.array([1.0, 2.0, 1.0])
    for e in (0, 1):
        for m, h in product((0, 1, 2), (0, 1)):
            chance = binom.pmf(e, 1, easy) * binom.pmf(m, 2, medium) * binom.pmf(h, 1, hard)
            asked = asked + (WEIGHTS @ chance) * np.array(mapping[e + 2 * m + 4 * h])
    return asked


def table1(mapping, sd=1.5, sessions=10_000, seed=0):
    """Items asked by level in simulated tests: hard accuracy, the one free number a model, is fitted to Table 1."""
    lines = {}
    for name, model in PAPER.items():
        paper = model[["easy", "medium", "hard"]].to_numpy()
        score, accuracy = model["score"] / 100, model["accuracy"] / 100

        def misfit(hard, paper=paper, score=score, accuracy=accuracy):
            rates = level_rates(hard, score, accuracy)
            if rates.min() < 1e-3 or rates.max() > 1 - 1e-3:
                return 100.0
            return float(((expected_items(rates, sd, mapping) - paper) ** 2).sum())

        grid = np.linspace(0.01, 0.7, 139)
        near = grid[np.argmin([misfit(h) for h in grid])]
        best = minimize_scalar(misfit, bounds=(near - 0.005, near + 0.005), method="bounded").x
        rng = np.random.default_rng(seed)
        levels = np.tile(np.repeat([0, 1, 2], 12), sessions)
        session = np.repeat(np.arange(sessions), 36)
        eta = intercepts(level_rates(best, score, accuracy), sd)[levels] + sd * rng.standard_normal(sessions)[session]
        correct = rng.random((1, len(eta))) < expit(eta)
        test = partial(GreTwoStage, mapping=mapping)
        found = replay(correct, levels, session, session % GROUPS, test, "session_mean", repeats=3, seed=seed)
        asked = found[["asked_easy", "asked_medium", "asked_hard"]].mean().to_numpy() / (sessions / GROUPS)
        lines[name] = [*asked.round(2), *paper, np.abs(asked - paper).max().round(2)]
    heads = ["easy", "medium", "hard", "paper easy", "paper medium", "paper hard", "largest difference"]
    return pd.DataFrame(lines, index=heads).T


def read(folder):
    """65 models x 50,000 images, right or wrong, and the class of each image."""
    file = np.load(folder / "imagenetv2_val50k_top1.npz")
    correct = np.unpackbits(file["correct_bits"], axis=1)[:, : int(file["n_items"])].astype(bool)
    return correct[~np.isin(file["models"], DROPPED)], file["labels"]


def design(folder, split, alike=True):
    """Answers of the tested models, levels, sessions, groups and the bank of one split."""
    correct, labels = read(folder)
    rng = np.random.default_rng(split)
    models = rng.permutation(len(correct))
    calibration, tested = models[:CALIBRATION], models[CALIBRATION : CALIBRATION + TESTED]
    ease = correct[calibration].mean(axis=0)
    order = np.lexsort((rng.random(len(ease)), -ease, labels)).reshape(1000, 50)
    chosen = np.concatenate([order[:, :12], order[:, 19:31], order[:, 38:]], axis=1).ravel()
    by_class = ease[chosen].reshape(1000, 36).mean(axis=1)
    place = np.argsort(np.argsort(rng.random(1000) if alike else by_class + 0.1 * rng.standard_normal(1000)))
    group = np.repeat(place * GROUPS // 1000, 36)
    bank = fit_irt(correct[calibration][:, chosen].astype(float)).bank
    levels, session = np.tile(np.repeat([0, 1, 2], 12), 1000), np.repeat(np.arange(1000), 36)
    return correct[tested][:, chosen], levels, session, group, bank


def one_split(folder, split, repeats, alike):
    """Mean squared error, error, coverage and estimated variance of every model of a split, by method and target."""
    *answers, bank = design(folder, split, alike)
    few = max(repeats // 5, 1)
    methods = [(BASE, repeats), *((method, repeats if alike else few) for method in ASKED_OF_US)]
    methods += [(method, few) for method in BESIDE] if alike else []
    lines = []
    for (policy, estimator), times in methods:
        begun = time.process_time()
        found = replay(*answers, OPTIONS.get(policy, policy), estimator, 0.25, bank, times, seed=split)
        spent = 1000 * (time.process_time() - begun) / (times * len(answers[0]))
        error = 100 * (found["estimate"] - found["truth"])
        covered = (found["low"] <= found["truth"]) & (found["truth"] <= found["high"])
        part = found.assign(mse=error**2, bias=error, coverage=covered, said=(100 * found["se"]) ** 2)
        part = part.groupby(["model", "target"])[["mse", "bias", "coverage", "said", "asked"]].mean().reset_index()
        lines.append(part.assign(policy=policy, estimator=estimator, split=split, repeats=times, ms=spent))
    return pd.concat(lines)


def summary(lines):
    """One line a method and target: mean over models and splits, and the ratio to Static 3 with its interval."""
    lines = lines.assign(unit=lines["split"] * TESTED + lines["model"])
    draws = cluster_draws(lines["unit"].nunique())
    base = lines[(lines["policy"] == BASE[0]) & (lines["estimator"] == BASE[1])]
    rows = []
    for (policy, estimator, target), part in lines.groupby(["policy", "estimator", "target"], sort=False):
        mse = part.sort_values("unit")["mse"].to_numpy()
        static = base[base["target"] == target].sort_values("unit")["mse"].to_numpy()
        low, high = np.quantile((draws @ mse) / (draws @ static), [0.025, 0.975])
        bar = ASKED_OF_US.get((policy, estimator))
        row = {"policy": policy, "estimator": estimator, "target": target, "repeats": part["repeats"].iloc[0]}
        row |= {"mse": mse.mean(), "ratio": mse.mean() / static.mean(), "low": low, "high": high}
        row["at most"] = "" if bar is None else f"{bar[target == 'score']:.2f}"
        row |= {"bias": part["bias"].mean(), "coverage %": 100 * part["coverage"].mean()}
        row |= {"mse by its own se": part["said"].mean(), "ms a test": part["ms"].mean()}
        rows.append(row)
    return pd.DataFrame(rows).round(3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="without it only Table 1 is simulated")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    pd.set_option("display.width", 200, "display.max_columns", 20)
    for name, mapping in (("Q", MAPPING_Q), ("L", MAPPING_L)):
        print(f"Table 1, mapping {name}, session effects of sd 1.5\n{table1(mapping)}\n")
    if options.folder is None:
        return
    for alike in (True, False):
        work = partial(one_split, options.folder, repeats=options.repeats, alike=alike)
        with ProcessPoolExecutor(options.jobs) as pool:
            lines = pd.concat(pool.map(work, range(options.splits)))
        kind = "random classes: alike" if alike else "classes by accuracy, noisily: unlike"
        print(f"{options.splits} splits; groups of {kind}\n{summary(lines).to_string(index=False)}\n")
        if options.splits > 1:
            unseen = lines[lines["split"] > 0]  # constants of neyman_irt were chosen while looking at split 0
            print(f"without split 0, on which constants were chosen\n{summary(unseen).to_string(index=False)}\n")


if __name__ == "__main__":
    main()
