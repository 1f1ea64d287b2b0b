#!/usr/bin/env python
"""Which model predicts held-out responses best: hidden ones of known networks, and those of networks left out?

    python experiments/irt_corruption/held_out.py outputs/responses/{imagenet_val,cifar10_test}.npz cue_conflict.csv.gz

Files are those of published.py. Cells: mean of five ways to hide a tenth; subjects: mean of two ways to divide the
networks. Differences to the 2pl are paired; their 95 % intervals are over networks. Beside them: the difference without
the four weakest networks, and how many networks a model predicts better than the 2pl does.

    python experiments/irt_corruption/held_out.py simulated

plants 2pl and 3pl answers of 15, 19 and 30 networks to 1,000 items, with one weak network and without, and prints the
expected log loss of hidden responses (exact, from the planted chances) and Spearman's rho of fitted with planted
difficulty and discrimination; ten draws each.
"""

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import spearmanr

from fca.stats.intervals import FEWEST_DRAWS, mean_with_interval
from fca.studies.irt.stats import MODELS, HeldOut, fit_irt, held_out_fit
from fca.tables.responses import read_responses

SEEDS = {"cells": range(5), "subjects": range(2)}
ITEMS = 10_000  # of a file, at most, drawn by seed 0
WEAKEST = 4
DRAWS = 10


def over_networks(values: np.ndarray) -> str:
    """Mean over networks that all have as many items, with its interval from five networks on."""
    k = len(values)
    if k < FEWEST_DRAWS:
        return f"{values.mean():+.4f} ({k} networks)" if k else ""
    _, low, high = mean_with_interval(values)
    return f"{values.mean():+.4f} [{low:+.4f}, {high:+.4f}]"


def by_network(found: list[HeldOut]) -> np.ndarray:
    """Log loss of each network, mean over the ways to hold out."""
    return np.mean([one.loss / one.number for one in found], axis=0)


def published(paths: list[Path]) -> None:
    """A line a file, way of holding out, and model."""
    print(
        "| responses | held out | model | log loss | less that of the 2pl | without the 4 weakest | networks | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for path in paths:
        responses = read_responses(path)
        network = pd.factorize(responses.subjects["model"])[0]
        size = responses.correct.shape[1]
        drawn = np.sort(np.random.default_rng(0).permutation(size)[:ITEMS])
        correct = responses.correct[:, drawn]
        accuracy = np.array([np.nanmean(correct[network == at]) for at in range(network.max() + 1)])
        strong = np.argsort(accuracy)[WEAKEST:]
        for hold_out, seeds in SEEDS.items():
            two = np.zeros(0)
            for model in ("2pl", *(model for model in MODELS if model != "2pl")):
                begun = time.process_time()
                found = [held_out_fit(correct, model, seed=seed, hold_out=hold_out, network=network) for seed in seeds]
                spent = (time.process_time() - begun) / len(found)
                loss = by_network(found)
                two = loss if model == "2pl" else two
                mean = np.mean([one.nll for one in found])
                cells = [path.name.split(".")[0], hold_out, model, f"{mean:.4f}"]
                if model != "2pl":
                    better = f"better for {(loss < two).sum()} of {len(loss)}"
                    cells += [over_networks(loss - two), over_networks((loss - two)[strong]), better]
                else:
                    cells += ["", "", ""]
                print(f"| {' | '.join(cells)} | {spent:.1f} |", flush=True)
            margins = np.mean([one.baseline_nll for one in found])
            print(f"| {path.name.split('.')[0]} | {hold_out} | margins | {margins:.4f} | | | | |", flush=True)


def planted(rng: np.random.Generator, networks: int, guess: bool, weak: bool, items: int) -> tuple[np.ndarray, ...]:
    """Chances of right responses, difficulty, discrimination."""
    ability = rng.normal(0, 1, networks)
    if weak:
        ability[0] = -3.5
    difficulty, slope = rng.normal(-1, 1.2, items), np.exp(rng.normal(0.3, 0.4, items))
    least = rng.beta(2, 18, items) if guess else np.zeros(items)
    return least + (1 - least) * expit(slope * (ability[:, None] - difficulty)), difficulty, slope


def simulated(items: int = 1000, draws: int = DRAWS) -> None:
    """A line a design: the 3pl less the 2pl in expected log loss, and recovery by both."""
    print("| networks | planted | 2pl | 3pl less 2pl | 3pl better | rho b, 2pl / 3pl | rho a, 2pl / 3pl |")
    print("|---|---|---|---|---|---|---|")
    for networks in (15, 19, 30):
        for guess, weak in ((False, False), (False, True), (True, False), (True, True)):
            lines = []
            for seed in range(draws):
                rng = np.random.default_rng([seed, networks, guess, weak])
                p, difficulty, slope = planted(rng, networks, guess, weak, items)
                correct, hidden = (rng.random(p.shape) < p).astype(float), rng.random(p.shape) < 0.1
                seen = np.where(hidden, np.nan, correct)
                kept = (~np.isnan(seen)).any(axis=0)
                line = []
                for model in ("2pl", "3pl"):
                    fit = fit_irt(seen[:, kept], model)
                    q, chance = fit.probability()[hidden[:, kept]], p[:, kept][hidden[:, kept]]
                    loss = -np.mean(chance * np.log(q) + (1 - chance) * np.log1p(-q))
                    rho = (spearmanr(a, b).statistic for a, b in (
                        (fit.difficulty, difficulty[kept]), (fit.discrimination, slope[kept])))  # fmt: skip
                    line.append([loss, *rho])
                lines.append(line)
            two, three = np.transpose(lines, (1, 2, 0))
            more = three[0] - two[0]
            error = 1.96 * more.std(ddof=1) / draws**0.5
            what = f"{'3pl' if guess else '2pl'}{', one weak network' if weak else ''}"
            cells = [str(networks), what, f"{two[0].mean():.4f}", f"{more.mean():+.4f} ± {error:.4f}"]
            cells += [f"{(more < 0).sum()} of {draws}"]
            cells += [f"{two[at].mean():.3f} / {three[at].mean():.3f}" for at in (1, 2)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    begun = time.process_time()
    if sys.argv[1:] == ["simulated"]:
        simulated()
    else:
        published([Path(name) for name in sys.argv[1:]])
    print(f"{time.process_time() - begun:.0f} CPU seconds")
