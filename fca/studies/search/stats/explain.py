"""Why a classifier fails: accuracy by attribute value and pair, rules that describe failures, agreement of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer

from fca.stats.correlation import correlation, correlation_interval
from fca.stats.intervals import FRACTION, Estimated, cluster_draws, mean_interval, percentile_interval
from fca.studies.generate.stats.domain import Domain
from fca.studies.search.stats.counts import effective_images, image_correlation, p_of_rules
from fca.studies.search.stats.models import Visits, pooled

SUPPORT = 5  # visited subdomains that a rule needs, if it has so many
FAMILY_LEVEL = 0.05  # of finding any rule where there is none

Found = Float[np.ndarray, " subdomains"]
Mask = Bool[np.ndarray, " subdomains"]


def by_subdomain(visited: Visits, correct: Visits, shown: Visits) -> pd.DataFrame:
    """Line a subdomain of which images were shown, all visits together: columns correct, shown, accuracy.

    >>> by_subdomain(np.array([4, 1, 4, 2]), np.array([1, 5, 4, 0]), np.array([10, 10, 10, 0]))["accuracy"].to_dict()
    {1: 0.5, 4: 0.25}
    """
    of = pooled(visited, correct, shown)
    counts = {"correct": of.correct.astype(np.int64), "shown": of.shown.astype(np.int64)}
    return pd.DataFrame(counts | {"accuracy": of.accuracy}, index=of.subdomains)


def value_means(domain: Domain, visited: Visits, correct: Visits, shown: Visits) -> pd.DataFrame:
    """Mean accuracy of the visited subdomains that have each attribute value.

    Columns attribute, value, accuracy, low, high, visited. The 95 % interval is Student's over subdomains, for these
    were drawn, each with its images; it is missing where fewer than two were visited, or all are alike.
    """
    return _means(domain, 1, by_subdomain(visited, correct, shown), ["attribute", "value"])


def pair_means(domain: Domain, visited: Visits, correct: Visits, shown: Visits) -> pd.DataFrame:
    """The same for two values of two attributes: columns attribute, other, value, other_value, accuracy, ..., effect.

    effect: of what main effects (least squares) leave unexplained, the mean square between the cells of two attributes
    over that within them (F); one number for each two attributes, missing where too few subdomains were visited.
    """
    of = by_subdomain(visited, correct, shown)
    main = np.hstack([cells for _, cells in domain.indicators(1)])[of.index]
    rest = of["accuracy"].to_numpy() - main @ np.linalg.lstsq(main, of["accuracy"])[0]
    effects = {names: _f_ratio(cells[of.index].argmax(axis=1), rest) for names, cells in domain.indicators(2)}
    means = _means(domain, 2, of, ["attribute", "other", "value", "other_value"])
    return means.assign(effect=[effects[pair] for pair in zip(means["attribute"], means["other"], strict=True)])


def _f_ratio(cell: Integer[np.ndarray, " visited"], rest: Found) -> float:
    n = np.bincount(cell)
    between = float((np.bincount(cell, rest)[n > 0] ** 2 / n[n > 0]).sum())
    within, kinds = float(rest @ rest) - between, int((n > 0).sum())
    return between * (len(cell) - kinds) / (kinds - 1) / within if 1 < kinds < len(cell) and within > 1e-12 else np.nan


def _means(domain: Domain, strength: int, of: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    lines, accuracy = [], of["accuracy"].to_numpy()
    for rule, has in _rules(domain, strength):
        inside = accuracy[has[of.index]]
        mean = float(inside.mean()) if len(inside) else np.nan
        interval = mean_interval(inside, np.arange(len(inside)), FRACTION)
        lines.append((*rule, *rule.values(), mean, *interval, len(inside)))
    return pd.DataFrame(lines, columns=[*columns, "accuracy", "low", "high", "visited"])


def _rules(domain: Domain, strength: int) -> Iterator[tuple[dict[str, Any], Mask]]:
    for names, cells in domain.indicators(strength):
        for has in cells.T > 0:
            values = domain.values(int(has.argmax()))
            yield {name: values[name] for name in names}, has


def members(domain: Domain, rule: Mapping[str, Any]) -> Mask:
    """Which subdomains have all values of a rule.

    >>> members(Domain({"time": ["day", "night"], "weather": ["sun", "rain"]}), {"time": "night", "weather": "rain"})
    array([False, False, False,  True])
    """
    return np.array([rule.items() <= domain.values(one).items() for one in range(len(domain))])


def find_rules(
    domain: Domain, visited: Visits, correct: Visits, shown: Visits, most: int = 5, tables: int = 999
) -> list[dict[str, Any]]:
    """Up to `most` rules, attribute -> value with one or two entries, whose subdomains have low accuracy.

    Greedy subgroup discovery among visited subdomains that no earlier rule has. Candidates are rules with SUPPORT
    visited subdomains, or all of a rule that has fewer. They are tested at 5 % for all of them together, one-sided,
    against tables in which no attribute matters and subdomains vary as they do here
    (`fca.studies.search.stats.counts`). Of the significant ones that with the lowest (share inside - share) sqrt(images
    inside) is taken, each subdomain with its effective images, and narrowed by a second value if that is significantly
    worse.    tables: drawn for a test.
    """
    of = by_subdomain(visited, correct, shown)
    counts = of["correct"].to_numpy(), of["shown"].to_numpy()
    rules, cells = zip(*_rules(domain, 1), *_rules(domain, 2), strict=True)
    needed, has = np.minimum(np.sum(cells, axis=1), SUPPORT), np.array(cells)[:, of.index]
    free, found, rng = np.ones(len(of), dtype=bool), list[dict[str, Any]](), np.random.default_rng(0)

    while len(found) < most and (best := _lowest(has, needed, counts, free, tables, rng)) is not None:
        narrower = np.array([rules[best].items() < rule.items() for rule in rules])
        needed_of_narrower = np.where(narrower, needed, len(of) + 1)
        narrowed = _lowest(has, needed_of_narrower, counts, free & has[best], tables, rng)
        best = best if narrowed is None else narrowed
        found.append(rules[best])
        free &= ~has[best]

    return found


def _lowest(
    has: Bool[np.ndarray, "rules visited"],
    needed: Integer[np.ndarray, " rules"],
    counts: tuple[Integer[np.ndarray, " visited"], Integer[np.ndarray, " visited"]],
    among: Mask,
    tables: int,
    rng: np.random.Generator,
) -> int | None:
    """Which rule is worst among some subdomains; None where none is significant."""
    correct, shown = (count[among] for count in counts)
    inside = has[:, among].sum(axis=1)
    tried = np.flatnonzero((inside >= needed) & (inside < among.sum()))
    if not len(tried) or correct.sum() in (0, shown.sum()):
        return None

    has_tried = has[np.ix_(tried, among)]
    low = p_of_rules(has_tried, correct, shown, tables, rng) <= FAMILY_LEVEL
    if not low.any():
        return None

    weight = effective_images(shown, image_correlation(correct, shown, np.zeros(len(shown), dtype=np.int64)))
    lack = weight * (correct / shown - weight @ (correct / shown) / weight.sum())
    score = has_tried @ lack / np.sqrt(has_tried @ weight)
    return int(tried[np.where(low, score, np.inf).argmin()])


def agreement(first: Found, second: Found, seed: int = 0) -> tuple[Estimated, Estimated, float]:
    """Whether two classifiers fail in the same subdomains: Spearman's rho, overlap of their worst tenths, by chance.

    overlap: share of the worst tenth by the first that is in the worst tenth by the second; subdomains that are equal
    at its edge count in part.    Intervals are over subdomains: of rho by the jackknife, of the overlap by bootstrap.
    first, second: accuracy of each subdomain.

    >>> agreement(np.arange(20) / 20, np.arange(20) / 20)[1].value
    1.0
    """
    n, worst = len(first), max(round(len(first) / 10), 1)
    draws = np.vstack([np.ones((1, n), dtype=np.int64), cluster_draws(n, seed)])
    both = _in_worst(first, draws, worst) * _in_worst(second, draws, worst)
    overlaps = (both * draws).sum(axis=1) / worst
    overlap = Estimated(float(overlaps[0]), *percentile_interval(overlaps[1:], n))
    r = correlation(first, second, "spearman").r
    rho = Estimated(r, *correlation_interval(first, second, np.arange(n), "spearman"))
    return rho, overlap, worst / n


def _in_worst(accuracy: Found, draws: Integer[np.ndarray, "draws subdomains"], worst: int) -> Any:
    """Share of each subdomain's copies that is among the worst of a resample."""
    _, level = np.unique(accuracy, return_inverse=True)
    copies = draws @ np.eye(level.max() + 1, dtype=np.int64)[level]
    below = copies.cumsum(axis=1) - copies
    return (np.clip(worst - below, 0, copies) / np.maximum(copies, 1))[:, level]
