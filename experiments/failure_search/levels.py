"""Do rules, their confirmation and the intervals on fresh images hold their level, and what do they find?

    python experiments/failure_search/levels.py                 1,000 tables a cell; about 35 minutes on 2 cores
    python experiments/failure_search/levels.py --tables 20     a first look
    python experiments/failure_search/levels.py --only "Rules confirmed" --images "5 x 50 | 2 x 50" --tables 600

Tables of 80 subdomains are drawn at random, with equally and unequally many images in each. `correlation` is that of
two images of a subdomain: 0 where all subdomains have one accuracy, 0.1 where their accuracies vary (beta-binomial
counts). Beside each method stands the one it replaced: rank sums with Bonferroni's correction, Welch's t of unweighted
accuracies, and the percentile bootstrap over subdomains. A rule's confirmation also stands beside itself without
permuting subdomains, with permuting between even sides too, and with 999 deals of subdomains at random however few
ways there are to deal them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtr
from scipy.stats import rankdata
from scipy.stats import t as student

from fca.stats.intervals import FRACTION, RESAMPLES, cluster_draws
from fca.studies.search.stats import Domain
from fca.studies.search.stats import counts as counts_of_search
from fca.studies.search.stats.counts import CONFIRMING, NULL_TABLES, null_tables, p_lower, share_with_interval
from fca.studies.search.stats.explain import MIN_SUPPORT, _rules, find_rules, members
from fca.studies.search.stats.replay import replay

DOMAIN = Domain(
    {"weather": ["sun", "rain", "snow"], "time": ["day", "night"], "place": list("abcd"), "color": list("rgbw")},
    [{"not": {"time": "night", "weather": "sun"}}],
)
NIGHT, PLACE = (members(DOMAIN, rule) for rule in ({"time": "night"}, {"place": "b"}))
VISITED, DRAWS = 60, 199  # subdomains that a search visits; null tables of a test, where 999 only add precision
ACCURACIES, CORRELATIONS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.995), (0.0, 0.1)

Images = Callable[[np.random.Generator], np.ndarray]
DESIGNS: Mapping[str, Images] = {  # images of every subdomain of the domain
    "5 everywhere": lambda rng: np.full(len(DOMAIN), 5),
    "20 everywhere": lambda rng: np.full(len(DOMAIN), 20),
    "1 to 50, at random": lambda rng: rng.integers(1, 51, len(DOMAIN)),
    "1 at night, 20 elsewhere": lambda rng: np.where(NIGHT, 1, 20),
    "50 in place b, 3 elsewhere": lambda rng: np.where(PLACE, 50, 3),
}
PLANTED = {  # what fails, and its accuracy; 95 % elsewhere
    "value": ({"color": "g"}, 0.85),
    "pair": ({"time": "night", "place": "b"}, 0.7),
    "triple": ({"time": "night", "place": "b", "weather": "rain"}, 0.2),
}
FRESH = {  # images of the fresh subdomains inside a rule, and outside; five on each side where one number is named
    "50 | 50": ([50] * 5, [50] * 5),
    "20 | 20": ([20] * 5, [20] * 5),
    "10 | 10": ([10] * 5, [10] * 5),
    "5 | 5": ([5] * 5, [5] * 5),
    "50 | 5": ([50] * 5, [5] * 5),
    "50 | 1": ([50] * 5, [1] * 5),
    "1 | 20": ([1] * 5, [20] * 5),
    "1 to 50 | 1 to 50": ([1, 5, 20, 50, 50], [50, 20, 5, 1, 1]),
    "1, 1, 1, 1, 50 | 20": ([1, 1, 1, 1, 50], [20] * 5),
    "20 | 1, 1, 1, 1, 50": ([20] * 5, [1, 1, 1, 1, 50]),
    "2, 3, 1, 30, 8 | 20": ([2, 3, 1, 30, 8], [20] * 5),
    "2 x 50 | 20 x 50": ([50] * 2, [50] * 20),
    "5 x 50 | 20 x 50": ([50] * 5, [50] * 20),
    "20 x 20 | 20 x 20": ([20] * 20, [20] * 20),
    "2 x 50 | 3 x 50": ([50] * 2, [50] * 3),
    "2 x 50 | 4 x 50": ([50] * 2, [50] * 4),
    "2 x 50 | 5 x 50": ([50] * 2, [50] * 5),
    "5 x 50 | 2 x 50": ([50] * 5, [50] * 2),
    "20, 13 | 5 x 20": ([20, 13], [20] * 5),
    "50, 40, 10 | 3 x 50": ([50, 40, 10], [50] * 3),
    "3 x 50 | 5, 5, 100": ([50] * 3, [5, 5, 100]),
}
SETS = {
    "2 x 20": [20] * 2,
    "3 x 20": [20] * 3,
    "2 x 50": [50] * 2,
    "3 x 50": [50] * 3,
    "5, 5, 100": [5, 5, 100],
    "1, 1, 1, 1, 50": [1, 1, 1, 1, 50],
    "5 x 5": [5] * 5,
    "5 x 20": [20] * 5,
    "5 x 50": [50] * 5,
    "1, 5, 20, 50, 50": [1, 5, 20, 50, 50],
    "20 x 20": [20] * 20,
}


def counts(accuracy: Any, correlation: float, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Right images of each subdomain."""
    accuracy = np.broadcast_to(accuracy, len(images))
    if correlation:
        accuracy = rng.beta(accuracy * (1 / correlation - 1), (1 - accuracy) * (1 / correlation - 1))
    return rng.binomial(images, accuracy)


# Rules.


def rank_sum_rule(visited: np.ndarray, correct: np.ndarray, shown: np.ndarray) -> dict[str, Any] | None:
    """The first rule as it was found before: rank sums of accuracies, Bonferroni over the candidates."""
    rules, cells = zip(*_rules(DOMAIN, 1), *_rules(DOMAIN, 2), strict=True)
    needed, has = np.minimum(np.sum(cells, axis=1), MIN_SUPPORT), np.array(cells)[:, visited]
    accuracy, everywhere = correct / shown, np.ones(len(visited), dtype=bool)
    best = _lowest_ranks(has, needed, accuracy, everywhere)
    if best is None:
        return None

    narrower = np.array([rules[best].items() < rule.items() for rule in rules])
    narrowed = _lowest_ranks(has, np.where(narrower, needed, len(visited) + 1), accuracy, has[best])
    return dict(rules[best if narrowed is None else narrowed])


def _lowest_ranks(has: np.ndarray, needed: np.ndarray, accuracy: np.ndarray, among: np.ndarray) -> int | None:
    """Which rule is worst among some subdomains; None where none is significant."""
    ranks, n, inside = rankdata(accuracy[among]), among.sum(), has[:, among].sum(axis=1)
    tried = (inside >= needed) & (inside < n)
    if not tried.any() or np.ptp(ranks) == 0:
        return None

    sd = np.sqrt(ranks.var() * inside * (n - inside) / (n - 1))
    low = tried & (has[:, among] @ (ranks - ranks.mean()) < ndtri(0.05 / tried.sum()) * sd)
    score = has[:, among] @ (accuracy[among] - accuracy[among].mean()) / np.sqrt(np.maximum(inside, 1))
    return int(np.where(low, score, np.inf).argmin()) if low.any() else None


def first_rule(visited: np.ndarray, correct: np.ndarray, shown: np.ndarray) -> dict[str, Any] | None:
    found = find_rules(DOMAIN, visited, correct, shown, most=1, tables=DRAWS)
    return found[0] if found else None


def level_of_rules(tables: int, design: str, accuracy: float, correlation: float) -> dict[str, Any]:
    """Share of tables with nothing planted in which there is a rule."""
    found = np.zeros(2)
    for seed in range(tables):
        rng = np.random.default_rng([1, seed])
        images = DESIGNS[design](rng)
        visited = np.sort(rng.permutation(len(DOMAIN))[:VISITED])
        correct = counts(accuracy, correlation, images[visited], rng)
        rules = (method(visited, correct, images[visited]) for method in (rank_sum_rule, first_rule))
        found += [rule is not None for rule in rules]
    cell = {"images": design, "accuracy": accuracy, "correlation": correlation}
    return cell | {"before": found[0] / tables, "now": found[1] / tables}


def level_of_searches(tables: int, policy: str, accuracy: float, correlation: float) -> dict[str, Any]:
    """The same where a policy chose 40 subdomains, of 20 images each."""
    found = np.zeros(2)
    for seed in range(tables):
        rng = np.random.default_rng([2, seed])
        right = counts(accuracy, correlation, np.full(len(DOMAIN), 20), rng)
        table = (np.arange(20) < right[:, None]).astype(np.int8)
        done = replay(DOMAIN, table, policy, seed, (20,), 40)
        visited = np.argsort(done.visited)
        of = done.visited[visited], done.correct[visited], done.n_images[visited]
        found += [method(*of) is not None for method in (rank_sum_rule, first_rule)]
    cell = {"policy": policy, "accuracy": accuracy, "correlation": correlation}
    return cell | {"before": found[0] / tables, "now": found[1] / tables}


def power_of_rules(tables: int, planted: str, images: int, correlation: float) -> dict[str, Any]:
    """Share of tables in which the first rule is what was planted, or a part of it."""
    failing, low = PLANTED[planted]
    accuracy = np.where(members(DOMAIN, failing), low, 0.95)
    found = np.zeros(2)
    for seed in range(tables):
        rng = np.random.default_rng([3, seed])
        visited = np.sort(rng.permutation(len(DOMAIN))[:VISITED])
        correct = counts(accuracy[visited], correlation, np.full(VISITED, images), rng)
        rules = (method(visited, correct, np.full(VISITED, images)) for method in (rank_sum_rule, first_rule))
        found += [rule is not None and rule.items() <= failing.items() for rule in rules]
    cell = {"planted": planted, "images": images, "correlation": correlation}
    return cell | {"before": found[0] / tables, "now": found[1] / tables}


# Fresh images.


def welch(correct: np.ndarray, shown: np.ndarray, inside: np.ndarray) -> float:
    """The p-value as it was before, of the subdomains' accuracies; NaN where all are alike."""
    accuracy = correct / shown
    sides = accuracy[inside], accuracy[~inside]
    variances = [side.var(ddof=1) / len(side) for side in sides]
    if sum(variances) == 0:
        return float("nan")
    freedom = sum(variances) ** 2 / sum(v**2 / (len(side) - 1) for v, side in zip(variances, sides, strict=True))
    return float(stdtr(freedom, (sides[0].mean() - sides[1].mean()) / np.sqrt(sum(variances))))


def even_sides(correct: np.ndarray, shown: np.ndarray, inside: np.ndarray) -> float:
    """The p-value as if all sides were even: by t and by Fisher's test, without permuting subdomains."""
    with patch.object(counts_of_search, "EVEN_SHARE", 0.0):
        return p_lower(correct, shown, inside)


def uneven_sides(correct: np.ndarray, shown: np.ndarray, inside: np.ndarray) -> float:
    """The p-value as if no sides were even: always with permuting."""
    with patch.object(counts_of_search, "EVEN_SHARE", np.inf):
        return p_lower(correct, shown, inside)


def random_deals(correct: np.ndarray, shown: np.ndarray, inside: np.ndarray) -> float:
    """The p-value as it was with few subdomains: of deals at random however few there are, and never undecided."""
    with (
        patch.object(counts_of_search, "_dealt_tables", dealt_at_random),
        patch.object(counts_of_search, "CONFIRMING", 1),
    ):
        return p_lower(correct, shown, inside)


def dealt_at_random(correct: np.ndarray, shown: np.ndarray, inside: np.ndarray, correlation: float) -> np.ndarray:
    """The table itself and 999 `null_tables`."""
    return np.vstack([correct, null_tables(correct, shown, correlation, NULL_TABLES, np.random.default_rng(0))])


def confirmed(tables: int, design: str, accuracies: tuple[float, float], correlation: float) -> dict[str, Any]:
    """Share of tables in which a rule is confirmed, of these accuracies inside and outside."""
    inside, outside = FRESH[design]
    shown, is_inside = np.array(inside + outside), np.arange(len(inside + outside)) < len(inside)
    truth, rng = np.where(is_inside, *accuracies), np.random.default_rng(4)
    drawn = [counts(truth, correlation, shown, rng) for _ in range(tables)]
    tests = {
        "before": welch,
        "without_permuting": even_sides,
        "always_permuting": uneven_sides,
        "random_deals": random_deals,
        "now": p_lower,
    }
    p_values = {name: np.array([test(of, shown, is_inside) for of in drawn]) for name, test in tests.items()}
    shares = {name: np.mean(p <= CONFIRMING) for name, p in p_values.items()}
    cell = {"images": design, "inside": accuracies[0], "outside": accuracies[1], "correlation": correlation}
    return cell | shares | {"undecided": np.isnan(p_values["now"]).mean()}


def percentiles(accuracy: np.ndarray) -> tuple[float, float]:
    """The plain percentile bootstrap over subdomains."""
    means = cluster_draws(len(accuracy), resamples=RESAMPLES) @ accuracy / len(accuracy)
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    return low, high


def students(accuracy: np.ndarray) -> tuple[float, float]:
    """Student's interval over subdomains; NaN, NaN where all are alike."""
    deviation = accuracy.std(ddof=1) / len(accuracy) ** 0.5
    if deviation <= 1e-12:
        return float("nan"), float("nan")
    half = student.ppf(0.975, len(accuracy) - 1) * deviation
    return max(FRACTION[0], accuracy.mean() - half), min(FRACTION[1], accuracy.mean() + half)


def covered(tables: int, images: str, accuracy: float, correlation: float) -> dict[str, Any]:
    """Share of 95 % intervals that contain the accuracy, and their mean width."""
    shown, rng = np.array(SETS[images]), np.random.default_rng(5)
    drawn = [counts(accuracy, correlation, shown, rng) for _ in range(tables)]
    ends = {
        "bootstrap": [percentiles(of / shown) for of in drawn],
        "student": [students(of / shown) for of in drawn],
        "now": [share_with_interval(of, shown)[1:] for of in drawn],
    }
    cell = {"images": images, "accuracy": accuracy, "correlation": correlation}
    shares = {name: np.mean([low <= accuracy <= high for low, high in of]) for name, of in ends.items()}
    widths = {f"width_{name}": pd.Series([high - low for low, high in of]).mean() for name, of in ends.items()}
    return cell | shares | widths


def cells() -> Iterator[tuple[str, Callable[..., dict[str, Any]], Sequence[tuple[Any, ...]]]]:
    """Title, what is measured, and where."""
    grid = [(p, correlation) for p in ACCURACIES for correlation in CORRELATIONS]
    of_rules = [(design, *at) for design in DESIGNS for at in grid if at[0] not in (0.8, 0.95)]
    yield "Rules found where there are none (5 % is right)", level_of_rules, of_rules
    searched = [(policy, p, 0.0) for policy in ("random", "bo", "gp_pairwise") for p in (0.9, 0.98)]
    yield "The same after searches of 40 of 80 subdomains", level_of_searches, searched
    planted = [(name, images, correlation) for name in PLANTED for images in (10, 50) for correlation in CORRELATIONS]
    yield "Planted rules found first", power_of_rules, planted
    alike = [(design, (p, p), correlation) for design in FRESH for p, correlation in grid]
    yield "Rules confirmed that are none (2.5 % is right)", confirmed, alike
    lower = [(0.85, 0.95), (0.7, 0.9), (0.4, 0.8), (0.5, 0.95)]
    apart = [(design, of, rho) for design in FRESH for of in lower for rho in CORRELATIONS]
    yield "Rules confirmed that are some", confirmed, apart
    accuracies = [(p, correlation) for p in (0.5, 0.8, 0.9, 0.95, 0.99) for correlation in (0.0, 0.05, 0.1, 0.3)]
    yield "95 % intervals that contain the accuracy", covered, [(images, *at) for images in SETS for at in accuracies]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000, help="simulated tables in each cell")
    parser.add_argument("--only", default="", help="tables whose title contains this text")
    parser.add_argument("--images", default="", help="cells whose first entry, mostly the images, contains this text")
    parser.add_argument("--cells", type=int, help="the first cells of each table alone")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        for title, measure, places in cells():
            chosen = [place for place in places if given.images in place[0]][: given.cells]
            if given.only in title and chosen:
                lines = pool.map(partial(measure, given.tables), *zip(*chosen, strict=True))
                print(f"\n{title}\n{pd.DataFrame(lines).round(3).to_string(index=False)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
