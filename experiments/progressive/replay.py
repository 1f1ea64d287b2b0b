"""How well does an adaptive test of a quarter of the images measure all of them, on real responses of ImageNet models?

    python experiments/progressive/replay.py FOLDER                             a quick look, 1 minute
    python experiments/progressive/replay.py FOLDER --splits 5 --repeats 10     the whole table, 8 minutes of one core

FOLDER holds imagenetv2_val50k_top1.npz (modestyachts/ImageNetV2, MIT: top-1 predictions of 67 models for the 50,000
validation images). In each split 45 models calibrate: of each class the 12 images that most of them get right are easy,
12 in the middle medium and the last 12 hard, and a 2pl of their responses is the item bank. The other 20 models are
tested: sessions are classes, 10 groups of 100 classes stand for attributes, 36,000 images in all. Errors are in percent
points against all images; ratios are to Static 3, which evaluates as many, with intervals over tested models
and a median; `same bank`, to random draws with the same bank and estimator. First the same for neyman_irt without a
pilot, computed from its chances: `bank`, of these answers; `true`, were its bank true; `best`, with the chances that
would be best then.

Before that, Table 1 of Huang et al. (2025, arXiv 2503.13058): see table1.py.
"""

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from table1 import print_table1

from fca.stats.intervals import LOG, jackknife_interval
from fca.studies.adaptive.stats import NeymanIrt, OptimalAllocation, make_pool, replay
from fca.studies.adaptive.stats.policies import LEAST_VARIANCE
from fca.studies.irt.stats import fit_irt, score_ability
from fca.studies.progressive.stats.pool import capped_inclusion

DROPPED = ("fv_4k", "fv_16k")  # Fisher vectors, at chance on other test sets of the same images
CALIBRATION, TESTED, GROUPS = 45, 20, 10
BASE = ("static_k", "session_mean")
OF_BANK = ("regression", "difference")
BARS = {  # the ratio to Static 3 of (accuracy, score), at most
    ("gre_two_stage", "mixed_logit"): (0.65, 0.65),
    ("neyman_irt", "difference"): (0.45, 0.40),
}
BESIDE = (  # a fifth of the repeats
    ("neyman_irt score", "difference"),
    *((policy, "regression") for policy in ("random", "defensive_irt", "neyman_irt")),
    ("random", "difference"),
    *(("gre_two_stage", "session_mean"), ("gre_two_stage", "pooled"), ("random", "pooled")),
    *((policy, "stratified") for policy in ("optimal_allocation", "optimal_allocation score")),
    *((policy, "mixed_logit") for policy in ("static_k", "optimal_allocation", "optimal_allocation score")),
    ("fisher_cat", "p_irt"),
)
OPTIONS = {
    "optimal_allocation score": partial(OptimalAllocation, objective="score"),
    "neyman_irt score": partial(NeymanIrt, objective="score"),
}


def design(folder, split, alike=True, model="2pl"):
    """Responses of the tested models, levels, sessions, groups and the bank of one split."""
    file = np.load(folder / "imagenetv2_val50k_top1.npz")
    correct = np.unpackbits(file["correct_bits"], axis=1)[:, : int(file["n_items"])].astype(bool)
    correct = correct[~np.isin(file["models"], DROPPED)]  # 65 models x 50,000 images
    rng = np.random.default_rng(split)
    models = rng.permutation(len(correct))
    calibration, tested = models[:CALIBRATION], models[CALIBRATION : CALIBRATION + TESTED]
    ease = correct[calibration].mean(axis=0)
    order = np.lexsort((rng.random(len(ease)), -ease, file["labels"])).reshape(1000, 50)
    chosen = np.concatenate([order[:, :12], order[:, 19:31], order[:, 38:]], axis=1).ravel()
    by_class = ease[chosen].reshape(1000, 36).mean(axis=1)
    place = np.argsort(np.argsort(rng.random(1000) if alike else by_class + 0.1 * rng.standard_normal(1000)))
    bank = fit_irt(correct[calibration][:, chosen].astype(float), model=model).bank
    levels, session = np.tile(np.repeat([0, 1, 2], 12), 1000), np.repeat(np.arange(1000), 36)
    return correct[tested][:, chosen], levels, session, np.repeat(place * GROUPS // 1000, 36), bank


def factors(pool, weight, p, least):
    """w² (1 / π - 1) of every item, of the mean over groups; π as neyman_irt has them without a pilot, at a quarter.

    least: of p (1 - p).
    """
    size, inclusion = weight * np.sqrt(np.maximum(p * (1 - p), least)), np.empty(pool.n_items)
    for items in (np.flatnonzero(pool.group == g) for g in range(pool.n_groups)):
        inclusion[items] = capped_inclusion(size[items], len(items) // 4)
    return weight**2 * (1 / inclusion - 1) / pool.n_groups


def floor(folder, split, model):
    """Variances of neyman_irt without a pilot and of Static 3, of each model and target: a line each.

    Σ w² (1 / π - 1) e², e the residual of the bank (`bank`), or e² = p (1 - p), its expectation if the bank were true
    (`true`), or that with the chances that were best then, with no least variance (`best`).
    """
    correct, levels, session, group, bank = design(folder, split, model=model)
    pool = make_pool(levels, session, group)
    chance = bank.probability(score_ability(correct.astype(float), bank).ability)
    lines = []
    for at, weight in enumerate(pool.weights):
        for right, p in zip(correct, chance, strict=True):
            share = pool.by_stratum(right) / pool.sizes
            within = pool.by_group(pool.sizes**3 / (pool.sizes - 1) * share * (1 - share)) / pool.group_sizes**2
            static = (1 / 3 - 1 / 12) * within @ pool.level_weights[at] ** 2
            ours, expected = factors(pool, weight, p, LEAST_VARIANCE), p * (1 - p)
            line = {"target": pool.targets[at], "static": static.mean(), "bank": ours @ (right - p) ** 2}
            best = factors(pool, weight, p, 1e-6) @ expected
            lines.append(line | {"true": ours @ expected, "best": best})
    return pd.DataFrame(lines)


def print_floor(folder, splits):
    """As shares of Static 3: of these answers, their median over models, and if the bank were true."""
    for model in ("2pl", "3pl"):
        lines = pd.concat([floor(folder, split, model) for split in range(splits)])
        for target, part in lines.groupby("target"):
            of = {name: part[name].mean() / part["static"].mean() for name in ("bank", "true", "best")}
            of["median of bank"] = (part["bank"] / part["static"]).median()
            print(f"{model}, {target}: " + ", ".join(f"{name} {value:.3f}" for name, value in of.items()), flush=True)
    print()


def one_split(folder, split, repeats, alike):
    """Mean squared error, error, coverage and estimated variance of every model of a split, by method and target."""
    *responses, bank = design(folder, split, alike)
    few = max(repeats // 5, 1)
    methods = [(BASE, repeats), *((method, repeats if alike else few) for method in BARS)]
    methods += [(method, few) for method in BESIDE] if alike else []
    lines = []
    for (policy, estimator), times in methods:
        begun = time.process_time()
        found = replay(*responses, OPTIONS.get(policy, policy), estimator, 0.25, bank, times, seed=split)
        spent = 1000 * (time.process_time() - begun) / (times * len(responses[0]))
        error = 100 * (found["estimate"] - found["truth"])
        covered = (found["low"] <= found["truth"]) & (found["truth"] <= found["high"])
        part = found.assign(mse=error**2, bias=error, coverage=covered, variance=(100 * found["se"]) ** 2)
        part = part.groupby(["model", "target"])[["mse", "bias", "coverage", "variance"]].mean().reset_index()
        lines.append(part.assign(policy=policy, estimator=estimator, split=split, repeats=times, ms=spent))
    return pd.concat(lines)


def ratio_interval(mse, of_base):
    """95 % interval of the ratio of two mean squared errors, over models; no interval of a method over itself."""
    left_out = (mse.sum() - mse) / (of_base.sum() - of_base)
    return jackknife_interval(mse.mean() / of_base.mean(), left_out, scale=LOG)


def summary(lines):
    """One line a method and target: mean over models and splits, and the ratio to Static 3 with its interval."""
    lines = lines.assign(unit=lines["split"] * TESTED + lines["model"]).sort_values("unit", kind="stable")
    methods = lines.groupby(["policy", "estimator", "target"], sort=False)
    rows = []
    for (policy, estimator, target), part in methods:
        mse, static = (of["mse"].to_numpy() for of in (part, methods.get_group((*BASE, target))))
        low, high = ratio_interval(mse, static)
        bar = BARS.get((policy, estimator))
        row = {"policy": policy, "estimator": estimator, "target": target, "repeats": part["repeats"].iloc[0]}
        row |= {"mse": mse.mean(), "ratio": mse.mean() / static.mean(), "low": low, "high": high}
        row["median"] = np.median(mse / static)
        if ("random", estimator, target) in methods.groups and estimator in OF_BANK:
            random = methods.get_group(("random", estimator, target))["mse"].to_numpy()
            low, high = ratio_interval(mse, random)
            row["same bank"] = f"{mse.mean() / random.mean():.3f} [{low:.3f}, {high:.3f}]"
        row["at most"] = "" if bar is None else f"{bar[target == 'score']:.2f}"
        row |= {"bias": part["bias"].mean(), "coverage %": 100 * part["coverage"].mean()}
        rows.append(row | {"mse by its own se": part["variance"].mean(), "ms a test": part["ms"].mean()})
    return pd.DataFrame(rows).round(3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="without it only Table 1 is simulated")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print_table1()
    if options.folder:
        print_floor(options.folder, options.splits)
    for alike in (True, False) if options.folder else ():
        work = partial(one_split, options.folder, repeats=options.repeats, alike=alike)
        with ProcessPoolExecutor(options.jobs) as pool:
            lines = pd.concat(pool.map(work, range(options.splits)))
        kind = "random classes: alike" if alike else "classes by accuracy, noisily: unlike"
        print(f"{options.splits} splits; groups of {kind}\n{summary(lines).to_string(index=False)}\n", flush=True)
        if options.splits > 1:
            unseen = lines[lines["split"] > 0]  # constants of neyman_irt were chosen while looking at split 0
            print(f"without split 0, on which constants were chosen\n{summary(unseen).to_string(index=False)}\n")


if __name__ == "__main__":
    main()
