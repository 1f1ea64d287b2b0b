"""Do tests of images without levels that stop at a width hold the truth?

    python experiments/progressive/width_without_levels.py            6 CPU minutes; --exact: the first table alone

A test asks a share (the budget) of N images, and as many again until its 95 % interval is at most so wide, as
task=adaptive_test does. First table, `random` + `hypergeometric`: exact, by summing over all that can be seen, since
the number right decides when a test stops; `proportional` varies no more. Over accuracies .05 to .99: the least
coverage and the largest bias in points. Second table: tests with a bank, `difference`, simulated; the bank is fitted on
20 other networks, every test has a network of its own. Monte Carlo errors are at most 1.3 points of coverage near
93 %, at 400 tests.
"""

import argparse
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import hypergeom

from fca.studies.adaptive.stats import estimate, make_pool, run_policy, start_policy
from fca.studies.adaptive.stats.simple import exact_interval
from fca.studies.irt.stats import fit_irt

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99)
WIDTHS = (0.02, 0.04, 0.06, 0.1, 0.2)
TINY = 1e-13  # chances that are left out
interval = cache(exact_interval)


def exactly(items, right_of_all, step, width):
    """Coverage, bias in points and mean share asked of a test that stops at a width; step: items a round."""
    truth, asked, seen, chance = right_of_all / items, 0, np.array([0]), np.array([1.0])
    total = np.zeros(3)
    while len(seen):
        more = min(step, items - asked)
        drawn = np.arange(more + 1)
        new = np.zeros(int(seen.max() - seen.min()) + more + 1)
        for count, weight in zip(seen, chance, strict=True):
            at = count - seen.min()
            new[at : at + more + 1] += weight * hypergeom.pmf(drawn, items - asked, right_of_all - count, more)
        asked, seen = asked + more, seen.min() + np.flatnonzero(new > TINY)
        chance = new[new > TINY]
        low, high = np.array([interval(int(count), asked, items) for count in seen]).reshape(-1, 2).T
        stops = (high - low <= width) | (asked == items)
        held = (low <= truth + 1e-12) & (truth <= high + 1e-12)
        values = np.stack([held, 100 * (seen / asked - truth), np.full(len(seen), asked / items)])
        total += (values * chance)[:, stops].sum(axis=1)
        seen, chance = seen[~stops], chance[~stops]
    return total


def exact_table():
    print("| images | budget | width | least coverage | largest bias | asked |\n|---|---|---|---|---|---|")
    for items in (100, 500, 1000, 5000):
        for budget in (0.02, 0.1, 0.25):
            for width in WIDTHS:
                found = np.array([exactly(items, round(p * items), round(budget * items), width) for p in SHARES])
                bias = found[np.abs(found[:, 1]).argmax(), 1]
                asked = f"{found[:, 2].min():.2f} to {found[:, 2].max():.2f}"
                print(
                    f"| {items:,} | {budget} | {width} | {100 * found[:, 0].min():.1f} | {bias:+.2f} | {asked} |",
                    flush=True,
                )


def planted(items, share):
    """A pool of 20 classes, chances of a right answer of a new network, and a bank."""
    rng = np.random.default_rng(0)
    difficulty, slope = rng.normal(0, 1.5, items), rng.lognormal(0, 0.4, items)
    centre = brentq(lambda theta: expit(slope * (theta - difficulty)).mean() - share, -20, 20)
    others = expit(slope * (centre + rng.normal(size=(20, 1)) - difficulty))
    bank = fit_irt((rng.random(others.shape) < others).astype(float)).bank
    new = lambda rng: expit(slope * (centre + 0.3 * rng.normal() - difficulty))  # noqa: E731
    return make_pool(None, np.arange(items) % 20), new, bank


def simulated(policy, pool, new, bank, budget, width, seed):
    """Error in points, share asked, and whether the interval holds the truth, where it first is narrow enough."""
    rng = np.random.default_rng([seed, 1])
    correct = rng.random(pool.n_items) < new(rng)
    test, truth = start_policy(policy, pool, budget, bank), correct.mean()
    while True:
        record = run_policy(test, correct, rng).record
        whole = estimate("difference", pool, record, bank).overall
        low, high = whole.low[0, 0], whole.high[0, 0]
        if record.evaluated.all() or high - low <= width:
            held = low - 1e-12 <= truth <= high + 1e-12
            return 100 * (whole.value[0, 0] - truth), record.evaluated.mean(), held
        test.extend()


def simulated_table(tests):
    print("| policy | images | accuracy | width | asked | bias | coverage |\n|---|---|---|---|---|---|---|")
    for items, width in ((200, 0.1), (1000, 0.06), (5000, 0.04)):
        for share in (0.05, 0.3, 0.7, 0.9, 0.99):
            case = planted(items, share)
            for policy in ("random", "neyman_irt"):
                found = np.mean([simulated(policy, *case, 0.1, width, seed) for seed in range(tests)], axis=0)
                error, asked, held = found
                cells = f"{asked:.2f} | {error:+.2f} | {100 * held:.1f}"
                print(f"| {policy} | {items:,} | {share} | {width} | {cells} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exact", action="store_true", help="the first table alone")
    parser.add_argument("--tests", type=int, default=400, help="a cell of the second")
    options = parser.parse_args()
    exact_table()
    if not options.exact:
        simulated_table(options.tests)
