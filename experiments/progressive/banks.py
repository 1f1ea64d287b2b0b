"""What does an item bank gain, and what the choice of the images: against random draws with the same bank?

    python experiments/progressive/banks.py FOLDER                    every design, 10 CPU minutes
    python experiments/progressive/banks.py FOLDER --designs top      those with this in their name
    ... --csv FILE                                                    a line a network, kept

FOLDER holds imagenetv2_val50k_top1.npz (modestyachts/ImageNetV2, MIT) and cifar10_test_predictions.npz
(modestyachts/CIFAR-10.1, MIT). Designs: ImageNet, 10,000 random images, 45 of 65 networks behind the bank and the
others tested, two splits; CIFAR-10, 24 of 34, two splits; made responses of 90 networks to 10,000 items, 60 behind the
bank: `2pl`, `3pl` (guesses and wrong labels; the bank is a 2pl), `misfit` (18 networks in five snapshots with three
abilities, and with items of their own); the same with the bank's items shuffled, so that it knows nothing; `top`: the
1, 3, 10 best networks are tested and the bank is of the others; `levels`: 20 planted networks on 432 images of 12
sessions with levels behind the bank, as in interval_coverage.py.

Root mean squared error in points. It is computed: for the chances of each test and the residuals of all images, the
variance of the estimate over draws (Hájek's formula, as for the intervals), not the error of one draw; a few tests a
network differ in the ability and in the line by which a bank is followed. Ratios to random draws with the same bank and
estimator, with 95 % intervals over networks (log ratios of networks, Student's t). `held`: how often the 95 % interval
of a drawn test holds the truth.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from interval_coverage import PLANTED, even, planted
from joblib import Parallel, delayed
from scipy import special

from fca.studies.adaptive.stats import estimate, make_pool, run_policy, start_policy
from fca.studies.adaptive.stats.estimators import regression_predictions, sample_weights
from fca.studies.adaptive.stats.policies import response_probabilities
from fca.studies.irt.stats import ItemBank, fit_irt

ITEMS, TESTED = 10_000, 20
NUMBERS = (100, 300, 1000, 4000)
REPEATS = {100: 6, 300: 4, 1000: 2, 4000: 2}  # tests a network
SAME_BANK = ("random", "regression")
METHODS = (
    ("random", "plain"),  # the share right, without bank; of items with levels, by level
    SAME_BANK,
    ("defensive_irt", "regression"),  # the default with a bank
    ("neyman_irt", "regression"),
    ("neyman_irt", "difference"),  # the default before
)
DROPPED = ("fv_4k", "fv_16k")  # Fisher vectors, at chance on other test sets of the same images


def imagenet(folder):
    file = np.load(folder / "imagenetv2_val50k_top1.npz")
    correct = np.unpackbits(file["correct_bits"], axis=1)[:, : int(file["n_items"])].astype(bool)
    return correct[~np.isin(file["models"], DROPPED)]


def cifar(folder):
    file = np.load(folder / "cifar10_test_predictions.npz")
    return file["predictions"] == file["labels"]


def made(kind, folder=None):
    """Responses of 90 networks to 10,000 items."""
    rng = np.random.default_rng(0)
    difficulty, slope = rng.normal(-0.4, 1.5, ITEMS), rng.lognormal(0, 0.5, ITEMS)
    ability = rng.normal(0.7, 1, (90, 1))
    chance = special.expit(slope * (ability - difficulty))
    if kind == "3pl":
        guess, feasible = rng.beta(2, 5, ITEMS), rng.beta(20, 1, ITEMS)
        chance = guess + np.maximum(feasible - guess, 0) * chance
    if kind == "misfit":
        network, snapshot = np.repeat(np.arange(18), 5), np.tile(np.linspace(-1, 0.4, 5), 18)
        abilities = rng.normal(0.8, 0.8, (18, 3))[network] + snapshot[:, None] + rng.normal(0, 0.15, (90, 3))
        mixture = rng.dirichlet([0.6] * 3, ITEMS).T
        of_network = rng.normal(0, 0.8, (18, ITEMS))[network]
        chance = special.expit(slope * (abilities @ mixture - difficulty) + of_network)
    return rng.random(chance.shape) < chance


def bank_of(correct, seed, shuffled):
    bank = fit_irt(correct.astype(float)).bank
    order = np.random.default_rng(seed).permutation(correct.shape[1]) if shuffled else slice(None)
    return ItemBank(bank.model, *(values[order] for values in bank[1:]))


def split(correct, behind, seed, shuffled=False, top=0):
    """Pool, responses of the tested networks, and the bank; `top`: the best networks are tested."""
    rng = np.random.default_rng(seed)
    if correct.shape[1] > ITEMS:
        correct = correct[:, np.sort(rng.choice(correct.shape[1], ITEMS, replace=False))]
    order = np.argsort(-correct.mean(axis=1)) if top else rng.permutation(len(correct))
    tested, known = (order[:top], order[top:]) if top else (order[behind:], order[:behind])
    pool = make_pool(None, np.arange(correct.shape[1]))
    return pool, correct[tested[:TESTED]], bank_of(correct[known], seed, shuffled)


def with_levels(name, shuffled=False):
    pool, draw, bank = planted(even, PLANTED[name])
    rng = np.random.default_rng(2)
    order = rng.permutation(pool.n_items) if shuffled else slice(None)
    return pool, np.stack([draw(rng) for _ in range(TESTED)]), ItemBank("2pl", *(one[order] for one in bank[1:]))


def case(responses, *options, **more):
    return split(responses(), *options, **more)


def designs(folder):
    """How to make each design, by name; several of one name are put together."""
    sources = {"ImageNet": (partial(imagenet, folder), 45, 2), "CIFAR-10": (partial(cifar, folder), 24, 2)}
    sources |= {kind: (partial(made, kind), 60, 1) for kind in ("2pl", "3pl", "misfit")}
    for name, (responses, behind, splits) in sources.items():
        for seed in range(splits):
            yield name, partial(case, responses, behind, seed)
    for name in ("ImageNet", "CIFAR-10", "2pl"):
        responses, behind, _ = sources[name]
        yield f"{name}, useless bank", partial(case, responses, behind, 0, shuffled=True)
    for top in (1, 3, 10):
        for name in ("ImageNet", "CIFAR-10", "misfit"):
            yield f"{name}, top {top}", partial(case, sources[name][0], 0, 0, top=top)
    for name in ("an effect a session", "an effect for each level", "near the ceiling (.95)"):
        yield f"levels, {name}", partial(with_levels, name)
    yield "levels, useless bank", partial(with_levels, "an effect a session", shuffled=True)


def variance(pool, record, right, predicted):
    """Of the mean accuracy over groups, over draws with these chances, for the residuals of all items."""
    residual, total = pool.weights[0] * (right - predicted), 0.0
    for sample, weight in zip(record.samples, sample_weights(pool, record), strict=True):
        for group in range(pool.n_groups):
            items = ~sample.evaluated_before & (pool.group == group)
            chance = sample.inclusion[items]
            varying = chance * (1 - chance)
            if varying.any():
                scaled = residual[items] / chance
                centre = varying @ scaled / varying.sum()
                total += weight[group] ** 2 * (varying @ (scaled - centre) ** 2)
    return total / pool.n_groups**2


def one_test(pool, right, bank, policy, estimator, n, seed):
    """Variance in squared points; whether the interval holds the truth, unknown for the plain sample."""
    rng = np.random.default_rng(seed)
    record = run_policy(start_policy(policy, pool, n / pool.n_items, bank), right, rng).record
    if estimator == "plain":
        right_by_level, asked = (pool.by_group(pool.by_stratum(one)) for one in (record.right, record.evaluated))
        share = (right_by_level + 0.5) / (asked + 1)
        return 1e4 * variance(pool, record, right, share[pool.group, pool.level]), np.nan
    found = estimate(estimator, pool, record, bank).overall
    truth = pool.truth(right)[:, 0].mean()
    held = found.low[0, 0] <= truth + 1e-12 and truth <= found.high[0, 0] + 1e-12
    predicted = (
        regression_predictions(pool, record, bank)[0]
        if estimator == "regression"
        else response_probabilities(record, bank)
    )
    return 1e4 * variance(pool, record, right, predicted), float(held)


def measure(name, make, at):
    """A line a tested network, number of images and method."""
    pool, tested, bank = make()
    lines = []
    for n in (n for n in NUMBERS if n <= 0.75 * pool.n_items):
        for network, right in enumerate(tested):
            for policy, estimator in METHODS:
                tests = [
                    one_test(pool, right, bank, policy, estimator, n, [network, repeat]) for repeat in range(REPEATS[n])
                ]
                squared, held = np.mean(tests, axis=0)
                line = {"design": name, "n": n, "network": (at, network), "method": f"{policy} + {estimator}"}
                lines.append(line | {"mse": squared, "held": held, "accuracy": right.mean()})
    return pd.DataFrame(lines)


def against(part, method, base):
    """Ratio of root mean squared errors with its interval: log ratios of networks."""
    errors = part.pivot_table(index="network", columns="method", values="mse")
    ratio = np.log(errors[method] / errors[base]) / 2
    if len(ratio) < 2:
        return f"{np.exp(ratio.mean()):.2f}"
    reach = special.stdtrit(len(ratio) - 1, 0.975) * ratio.std() / len(ratio) ** 0.5
    return f"{np.exp(ratio.mean()):.2f} [{np.exp(ratio.mean() - reach):.2f}, {np.exp(ratio.mean() + reach):.2f}]"


def summary(lines):
    """A line a design and number of images."""
    names = [" + ".join(method) for method in METHODS]
    same, default = " + ".join(SAME_BANK), names[2]
    rows = []
    for (design, n), part in lines.groupby(["design", "n"], sort=False):
        by_method = part.groupby("method")
        error = by_method["mse"].mean() ** 0.5
        row = {"design": design, "images": n, "networks": part["network"].nunique()}
        row |= {name: f"{error[name]:.2f}" for name in names}
        row["default / same bank"] = against(part, default, same)
        row["default / plain"] = against(part, default, names[0])
        row["before / same bank"] = against(part, names[4], same)
        held = 100 * by_method["held"].mean()
        row["held"] = f"{held[same]:.0f}, {held[default]:.0f}, {held[names[4]]:.0f}"
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--designs", default="", help="those with this in their name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    chosen = [one for one in designs(options.folder) if options.designs in one[0]]
    work = (delayed(measure)(*one, at) for at, one in enumerate(chosen))
    lines = pd.concat(Parallel(options.jobs)(work), ignore_index=True)
    if options.csv:
        lines.to_csv(options.csv, index=False)
    rows = summary(lines)
    for row in [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]:
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
