"""How often do the 95 % intervals of fca contain the truth, with 3 to 50 draws?

    python experiments/intervals/coverage_tables.py                    all tables of README.md; about 12 CPU minutes
    python experiments/intervals/coverage_tables.py --only means       one of them
    python experiments/intervals/coverage_tables.py --repeats 50       a first look

Every cell is the share of simulated intervals that contain the true value, in percent, among those that are not
missing; `missing` is the largest share without an interval in the row. The Monte Carlo standard error of 2,000
repetitions is 0.5 points at 95 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr
from scipy.stats import t as student

from fca.stats.comparison import rank_stability
from fca.stats.correlation import correlation_interval, kendall
from fca.stats.intervals import (
    FRACTION,
    LOG,
    SIGNED_FRACTION,
    jackknife_interval,
    mean_interval,
    mean_with_interval,
    median_with_interval,
)
from fca.studies.few_class.stats.prediction import HeldOut, judge
from fca.studies.irt.stats.segments import class_robustness
from fca.studies.progressive.stats.hierarchy import expected_score, explained_scores
from fca.studies.reliance.stats.reliance import class_means, relative_foreground_sensitivity
from fca.studies.search.stats.explain import agreement

DRAWS = (3, 5, 8, 10, 20, 50)
LARGE = 400_000  # draws that stand for the population, where its value has no formula
MEAN_BY_SEVERITY = np.array([0.0, 0.2, 0.4, 0.8, 1.2])  # difficulty of a class under a corruption
LOGNORMAL_R = 0.88  # Pearson's r of exp(0.7 x) and exp(0.7 y), normal with r 0.9
EXPECTATION = 3000  # simulations whose mean stands for the expected gain of a predictor

Interval = tuple[float, float]
Simulate = Callable[[np.random.Generator, int], Interval]


@dataclass(frozen=True)
class Row:
    """One row of a table: a quantity, how it is drawn, the true value, and one simulated interval of so many draws."""

    name: str
    truth: float
    simulate: Simulate


class Population(NamedTuple):
    """Draws of a quantity and its true mean."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    mean: float
    within: Interval


REAL = (-float("inf"), float("inf"))
POPULATIONS = (
    Population("normal", lambda rng, shape: rng.normal(size=shape), 0.0, REAL),
    Population("heavy tails (t, 5 df)", lambda rng, shape: rng.standard_t(5, size=shape), 0.0, REAL),
    Population("lognormal, sigma 0.5", lambda rng, shape: np.exp(rng.normal(size=shape) / 2), np.exp(0.125), REAL),
    Population("exponential", lambda rng, shape: rng.exponential(size=shape), 1.0, REAL),
    Population("accuracy near 1: beta(18, 1)", lambda rng, shape: rng.beta(18, 1, size=shape), 18 / 19, FRACTION),
    Population("accuracy: beta(45, 5)", lambda rng, shape: rng.beta(45, 5, size=shape), 0.9, FRACTION),
    Population("0.97 of 100 images", lambda rng, shape: rng.binomial(100, 0.97, size=shape) / 100, 0.97, FRACTION),
    Population("0.95 of 20 images", lambda rng, shape: rng.binomial(20, 0.95, size=shape) / 20, 0.95, FRACTION),
    Population("0.8 of 4 images", lambda rng, shape: rng.binomial(4, 0.8, size=shape) / 4, 0.8, FRACTION),
    Population("right or wrong, 0.8", lambda rng, shape: rng.binomial(1, 0.8, size=shape) * 1.0, 0.8, FRACTION),
)


def _of_mean(values: np.ndarray, within: Interval) -> Interval:
    return mean_interval(values, np.arange(len(values)), within)


def students(values: np.ndarray) -> Interval:
    """Student's interval, to compare with."""
    half = float(student.ppf(0.975, len(values) - 1)) * values.std(ddof=1) / len(values) ** 0.5
    return values.mean() - half, values.mean() + half


def percentiles(values: np.ndarray, rng: np.random.Generator) -> Interval:
    """The percentile bootstrap, to compare with."""
    means = rng.choice(values, (1000, len(values))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return low, high


def means() -> Iterator[Row]:
    """Means of independent draws; for the normal ones and accuracies near 1 also what other methods give."""
    for one in POPULATIONS:
        yield Row(one.name, one.mean, lambda rng, n, one=one: _of_mean(one.draw(rng, (n,)), one.within))
    for one in (POPULATIONS[0], POPULATIONS[4]):
        yield Row(f"Student's: {one.name}", one.mean, lambda rng, n, one=one: students(one.draw(rng, (n,))))
        yield Row(f"percentiles: {one.name}", one.mean, lambda rng, n, one=one: percentiles(one.draw(rng, (n,)), rng))


def clusters() -> Iterator[Row]:
    """Means and differences over clusters: subset seeds or classes with several values each, equally many or not."""

    def equal(rng: np.random.Generator, n: int) -> Interval:
        cluster = np.repeat(np.arange(n), 3)
        values = rng.normal(size=n)[cluster] + rng.normal(size=3 * n)
        return mean_interval(values, cluster)

    def unequal(rng: np.random.Generator, n: int) -> Interval:
        cluster = np.repeat(np.arange(n), 1 + rng.poisson(2, size=n))
        values = rng.normal(size=n)[cluster] + rng.normal(size=len(cluster))
        return mean_interval(values, cluster)

    def doubling(rng: np.random.Generator, n: int) -> Interval:
        cluster = np.repeat(np.arange(n), 2 ** (np.arange(n) % 6))
        values = rng.normal(size=n)[cluster] + 0.5 * rng.normal(size=len(cluster))
        return mean_interval(values, cluster)

    def large(rng: np.random.Generator, n: int, effect: float = 1.0) -> Interval:
        cluster = np.repeat(np.arange(n), [n - 1, *[1] * (n - 1)])
        values = effect * rng.normal(size=n)[cluster] + 0.5 * rng.normal(size=len(cluster))
        return mean_interval(values, cluster)

    def difference(rng: np.random.Generator, n: int) -> Interval:
        """Two models on 50 images of each subset, accuracies about 0.9 and 0.95."""
        p = rng.beta(20, 2, size=n)
        a, b = (rng.binomial(50, share) / 50 for share in (p, (1 + p) / 2))
        return mean_with_interval(b - a, None, SIGNED_FRACTION)[1:]

    yield Row("three values a cluster", 0.0, equal)
    yield Row("one value a cluster or more", 0.0, unequal)
    yield Row("1, 2, 4, 8, 16 or 32 values a cluster", 0.0, doubling)
    yield Row("one cluster has half of the values", 0.0, large)
    yield Row("the same, and clusters do not differ", 0.0, partial(large, effect=0.0))
    yield Row("paired difference of two accuracies", (1 - 20 / 22) / 2, difference)


def ratios() -> Iterator[Row]:
    """Ratios: of squared errors to a baseline's, over models and over models and groups; kept accuracy; of spreads."""

    def one_way(rng: np.random.Generator, n: int) -> Interval:
        size = rng.exponential(size=n)  # a hard model is hard for both
        a, b = (size * rng.chisquare(4, size=n) / 4 for _ in range(2))
        left = (0.5 * (a.sum() - a)) / (b.sum() - b)
        return jackknife_interval(0.5 * a.sum() / b.sum(), left, scale=LOG)

    def two_way(rng: np.random.Generator, n: int) -> Interval:
        a, b = two_errors(rng, n, 5)
        left = [
            np.array([_without(a, k, axis) / _without(b, k, axis) for k in range(a.shape[axis])]) for axis in (0, 1)
        ]
        return jackknife_interval(a.mean() / b.mean(), *left, scale=LOG)

    def kept(rng: np.random.Generator, n: int) -> Interval:
        clean = rng.beta(9, 1, size=n)
        images = np.stack([rng.binomial(20, clean), rng.binomial(20, clean * 0.6)]) / 20
        return class_means(images, np.arange(n)).estimate(lambda of_clean, grey: grey / of_clean, 0, 1)[1:]

    def spreads(rng: np.random.Generator, n: int) -> Interval:
        a, b = 2 * rng.normal(size=n), rng.normal(size=n)
        left = np.array([np.delete(a, k).std(ddof=1) / np.delete(b, k).std(ddof=1) for k in range(n)])
        return jackknife_interval(a.std(ddof=1) / b.std(ddof=1), left, scale=LOG)

    yield Row("squared errors, half of the baseline's", 0.5, one_way)
    yield Row("the same, over models and five groups", 0.5, two_way)
    yield Row("accuracy kept, over classes", 0.6, kept)
    yield Row("spread, twice the other", 2.0, spreads)


def two_errors(rng: np.random.Generator, models: int, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors of two methods by model and group: a hard model and a hard group are hard for both."""
    size = rng.exponential(size=(models, 1)) + rng.exponential(size=(1, groups))
    a, b = (size * rng.chisquare(4, size=(models, groups)) / 4 for _ in range(2))
    return 0.5 * a, b


def _without(errors: np.ndarray, at: int, axis: int) -> float:
    return float(np.delete(errors, at, axis=axis).mean())


def correlations() -> Iterator[Row]:
    """Pearson's r, Spearman's rho and Kendall's tau of independent points, skewed ones, and within groups by seed."""
    for rho in (0.0, 0.5, 0.9):
        yield Row(f"Pearson, normal, r {rho}", rho, lambda rng, n, rho=rho: _independent(*bivariate(rng, n, rho)))
    population = np.random.default_rng(7)
    for rho in (0.0, 0.5, 0.9):
        x, y = (np.exp(0.7 * values) for values in bivariate(population, LARGE, rho))
        truth = float(np.corrcoef(x, y)[0, 1])
        yield Row(
            f"Pearson, lognormal, r {truth:.2f}",
            truth,
            lambda rng, n, rho=rho: _independent(*(np.exp(0.7 * values) for values in bivariate(rng, n, rho))),
        )
    for rho in (0.0, 0.5, 0.9):
        truth = 6 / np.pi * np.arcsin(rho / 2)  # Spearman's of a bivariate normal (Pearson 1907)
        yield Row(
            f"Spearman, r {truth:.2f}", truth, lambda rng, n, rho=rho: _independent(*bivariate(rng, n, rho), "spearman")
        )
    for rho in (0.0, 0.9):
        truth = 2 / np.pi * np.arcsin(rho)
        yield Row(f"Kendall, tau {truth:.2f}", truth, lambda rng, n, rho=rho: _kendall(*bivariate(rng, n, rho)))
    yield Row(
        f"Fisher's: Pearson, lognormal, r {LOGNORMAL_R}",
        LOGNORMAL_R,
        lambda rng, n: fishers(*(np.exp(0.7 * values) for values in bivariate(rng, n, 0.9))),
    )
    for shared in (0.0, 0.5):
        yield Row(
            f"useless predictor within four ncl, {shared:.0%} of the variance by seed",
            0.0,
            lambda rng, n, shared=shared: _within(rng, n, shared),
        )


def fishers(x: np.ndarray, y: np.ndarray) -> Interval:
    """Fisher's own interval of Pearson's r, to compare with; missing for three points."""
    if len(x) < 4:
        return float("nan"), float("nan")
    z, half = np.arctanh(np.corrcoef(x, y)[0, 1]), 1.96 / (len(x) - 3) ** 0.5
    return float(np.tanh(z - half)), float(np.tanh(z + half))


def bivariate(rng: np.random.Generator, n: int, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal points with this correlation."""
    x, noise = rng.normal(size=(2, n))
    return x, rho * x + (1 - rho**2) ** 0.5 * noise


def _independent(x: np.ndarray, y: np.ndarray, method: str = "pearson") -> Interval:
    return correlation_interval(x, y, np.arange(len(x)), method)


def _kendall(x: np.ndarray, y: np.ndarray) -> Interval:
    return kendall(x, y, [str(k) for k in range(len(x))])[1:]


def _within(rng: np.random.Generator, seeds: int, shared: float) -> Interval:
    cluster, groups = np.repeat(np.arange(seeds), 4), np.tile(np.arange(4), seeds)
    of_seed, own = rng.normal(size=(2, seeds))[:, cluster], rng.normal(size=(2, 4 * seeds))
    x, y = shared**0.5 * of_seed + (1 - shared) ** 0.5 * own + 3 * groups
    return correlation_interval(x, y, cluster, groups=groups)


def others() -> Iterator[Row]:
    """Medians, ranks, overlaps, scores, sensitivity, instability, and the gain of a predictor on held-out folds."""
    yield Row("median, exponential", np.log(2), lambda rng, n: median_with_interval(list(rng.exponential(size=n)))[1:])
    yield Row("rank of the second of four models", 2.0, _rank)
    x, y = bivariate(np.random.default_rng(8), LARGE, 0.7)
    truth = float((y[x < np.quantile(x, 0.1)] < np.quantile(y, 0.1)).mean())
    yield Row("overlap of two worst tenths", truth, _overlap)

    rates = _session_rates(np.random.default_rng(9), 20_000)
    session, level = float(expected_score(*rates.T).mean()), float(expected_score(*rates.mean(axis=0)))
    yield Row("hierarchical score by session, over classes", session, lambda rng, n: _scores(rng, n).session[1:])
    yield Row("hierarchical score by level", level, lambda rng, n: _scores(rng, n).level[1:])
    yield Row("session excess", session - level, lambda rng, n: _scores(rng, n).excess[1:])

    means = _noisy_accuracies(np.random.default_rng(10), LARGE).mean(axis=1)
    truth = float(relative_foreground_sensitivity(*means))
    yield Row("relative foreground sensitivity, over classes", truth, _sensitivity)
    yield Row("instability of a class over five severities, over images", float(MEAN_BY_SEVERITY.std()), _instability)
    for r in (0.0, 0.5):
        name = f"gain of a predictor (r = {r}) on new subset seeds, less its mean"
        yield Row(name, 0.0, lambda rng, n, r=r: _gain(rng, n, r))


def _rank(rng: np.random.Generator, seeds: int) -> Interval:
    difficulty = rng.normal(size=(seeds, 1))
    accuracy = np.array([1.0, 0.5, 0.0, -0.5]) + difficulty + rng.normal(size=(seeds, 4))
    stability = rank_stability(accuracy, np.arange(seeds))
    return stability.low[1], stability.high[1]


def _overlap(rng: np.random.Generator, n: int) -> Interval:
    x, y = bivariate(rng, n, 0.7)
    return agreement(ndtr(x), ndtr(y), int(rng.integers(2**31)))[1][1:]


def _session_rates(rng: np.random.Generator, classes: int) -> np.ndarray:
    """Accuracies by level of five sessions a class, twelve triplets each; classes and sessions differ in difficulty."""
    eta = np.array([2.0, 1.0, -1.0]) + rng.normal(size=(classes, 1, 1)) + rng.normal(size=(classes, 5, 1))
    p = 1 / (1 + np.exp(-eta))
    return (rng.binomial(12, p) / 12).reshape(-1, 3)


def _scores(rng: np.random.Generator, classes: int):
    return explained_scores(_session_rates(rng, classes), np.repeat(np.arange(classes), 5))


def _noisy_accuracies(rng: np.random.Generator, classes: int) -> np.ndarray:
    share = rng.beta(4, 2, size=classes)
    return np.stack([rng.binomial(20, share * 0.7), rng.binomial(20, share)]) / 20


def _sensitivity(rng: np.random.Generator, classes: int) -> Interval:
    means = class_means(_noisy_accuracies(rng, classes), np.arange(classes))
    return means.estimate(relative_foreground_sensitivity, 0, 1, within=SIGNED_FRACTION)[1:]


def _gains(rng: np.random.Generator, seeds: int, r: float):
    """Gain over log ncl alone of a predictor that has this correlation with the rest, on 4 subsets of each seed."""
    cluster, ncl = np.repeat(np.arange(seeds), 4), np.tile(np.log([2.0, 3, 5, 10]), seeds)
    predictor, noise = rng.normal(size=(2, 4 * seeds))
    accuracy = np.clip(0.9 - 0.12 * ncl + 0.05 * (r * predictor + (1 - r**2) ** 0.5 * noise), 0, 1)
    intercept = np.ones(4 * seeds)
    baseline = _left_out(np.stack([intercept, ncl], axis=1), accuracy, cluster)
    model = _left_out(np.stack([intercept, ncl, predictor], axis=1), accuracy, cluster)
    return judge(accuracy, model, baseline, cluster).gain


def _left_out(regressors: np.ndarray, accuracy: np.ndarray, fold: np.ndarray) -> HeldOut:
    """Predictions of fca.studies.few_class.stats.prediction.held_out, without its intervals, which take longest."""
    predicted = np.empty(len(accuracy))
    for k in np.unique(fold):
        weights = np.linalg.lstsq(regressors[fold != k], accuracy[fold != k])[0]
        predicted[fold == k] = np.clip(regressors[fold == k] @ weights, 0, 1)
    unknown = np.full(len(accuracy), np.nan)
    return HeldOut(predicted, unknown, unknown)


def _gain(rng: np.random.Generator, seeds: int, r: float) -> Interval:
    """Moved by the expected gain of so many seeds, which is a little below 0 for a useless predictor."""
    gain = _gains(rng, seeds, r)
    return gain.low - _expected_gain(seeds, r), gain.high - _expected_gain(seeds, r)


def _instability(rng: np.random.Generator, images: int) -> Interval:
    difficulty = MEAN_BY_SEVERITY + rng.normal(size=(images, 1)) + 0.5 * rng.normal(size=(images, 5))
    label, severity = np.zeros(images, dtype=np.int64), np.arange(1.0, 6.0)
    found = class_robustness(difficulty[..., None], difficulty, label, severity, seed=int(rng.integers(2**31)))
    return found.instability_low[0], found.instability_high[0]


@lru_cache
def _expected_gain(seeds: int, r: float) -> float:
    rng = np.random.default_rng([11, seeds])
    return float(np.mean([_gains(rng, seeds, r).value for _ in range(EXPECTATION)]))


TABLES = {"means": means, "clusters": clusters, "ratios": ratios, "correlations": correlations, "others": others}


def covered(rows: Iterator[Row], draws: tuple[int, ...], repeats: int) -> pd.DataFrame:
    """The coverage of each row at each number of draws, in percent; missing where most intervals are."""
    lines = []
    for row in rows:
        line: dict[str, float | str] = {"quantity": row.name}
        missing = []
        for n in draws:
            rng = np.random.default_rng([n, 0])
            ends = np.array([row.simulate(rng, n) for _ in range(repeats)], dtype=float)
            given = ends[~np.isnan(ends).any(axis=1)]
            missing.append(1 - len(given) / repeats)
            inside = (given[:, 0] <= row.truth + 1e-9) & (row.truth - 1e-9 <= given[:, 1])
            line[str(n)] = 100 * inside.mean() if missing[-1] <= 0.5 else np.nan
        lines.append(line | {"missing": 100 * max(missing)})
    return pd.DataFrame(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables as markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES, help="one table")
    parser.add_argument("--repeats", type=int, default=2000, help="intervals in each cell")
    parser.add_argument("--draws", type=int, nargs="+", default=list(DRAWS), help="numbers of draws")
    options = parser.parse_args(arguments)
    for name in [options.only] if options.only else TABLES:
        table = covered(TABLES[name](), tuple(options.draws), options.repeats)
        header = [str(column) for column in table]
        print(f"\n### {name}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
        for line in table.itertuples(index=False):
            cells = [line[0], *("" if np.isnan(value) else f"{value:.1f}" for value in line[1:])]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
