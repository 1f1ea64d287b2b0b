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

Accuracies = Float[np.ndarray, " subdomains"]
Mask = Bool[np.ndarray, " subdomains"]


def by_subdomain(visited: Visits, correct: Visits, n_images: Visits) -> pd.DataFrame:
    """A line for each subdomain with images, all visits together: columns correct, shown, accuracy.

    >>> by_subdomain(np.array([4, 1, 4, 2]), np.array([1, 5, 4, 0]), np.array([10, 10, 10, 0]))["accuracy"].to_dict()
    {1: 0.5, 4: 0.25}
    """
    evidence = pooled(visited, correct, n_images)
    columns = {
        "correct": evidence.correct.astype(np.int64),
        "shown": evidence.n_images.astype(np.int64),
        "accuracy": evidence.accuracy,
    }
    return pd.DataFrame(columns, index=evidence.subdomains)


def value_means(domain: Domain, visited: Visits, correct: Visits, n_images: Visits) -> pd.DataFrame:
    """Mean accuracy of the visited subdomains that have each attribute value.

    Columns attribute, value, accuracy, low, high, visited. The 95 % interval is Student's over subdomains, for these
    were drawn, each with its images; it is missing where fewer than two were visited, or all are alike.
    """
    return _means(domain, 1, by_subdomain(visited, correct, n_images), ["attribute", "value"])


def pair_means(domain: Domain, visited: Visits, correct: Visits, n_images: Visits) -> pd.DataFrame:
    """The same for two values of two attributes: columns attribute, other, value, other_value, accuracy, ..., effect.

    effect: of what main effects (least squares) leave unexplained, the mean square between the cells of two attributes
    over that within them (F); one number for each two attributes, missing where too few subdomains were visited.
    """
    subdomains = by_subdomain(visited, correct, n_images)
    accuracy = subdomains["accuracy"].to_numpy()
    main_effects = np.hstack([cells for _, cells in domain.indicators(1)])[subdomains.index]
    residual = accuracy - main_effects @ np.linalg.lstsq(main_effects, subdomains["accuracy"])[0]

    effects = {}
    for names, cells in domain.indicators(2):
        cell_of_subdomain = cells[subdomains.index].argmax(axis=1)
        effects[names] = _f_ratio(cell_of_subdomain, residual)

    means = _means(domain, 2, subdomains, ["attribute", "other", "value", "other_value"])
    pairs = zip(means["attribute"], means["other"], strict=True)
    return means.assign(effect=[effects[pair] for pair in pairs])


def _f_ratio(cell: Integer[np.ndarray, " visited"], residual: Accuracies) -> float:
    """Mean square between cells over that within them; NaN where either has no degree of freedom, or none is within."""
    counts = np.bincount(cell)
    sums = np.bincount(cell, residual)
    has_subdomains = counts > 0
    n_cells = int(has_subdomains.sum())
    between = float((sums[has_subdomains] ** 2 / counts[has_subdomains]).sum())
    within = float(residual @ residual) - between
    if not 1 < n_cells < len(cell) or within <= 1e-12:
        return np.nan
    return between * (len(cell) - n_cells) / (n_cells - 1) / within


def _means(domain: Domain, strength: int, subdomains: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Mean accuracy, with its interval, of the visited subdomains of each value (strength 1) or pair of values (2)."""
    accuracy = subdomains["accuracy"].to_numpy()
    lines = []
    for rule, is_member in _rules(domain, strength):
        inside = accuracy[is_member[subdomains.index]]
        mean = float(inside.mean()) if len(inside) else np.nan
        interval = mean_interval(inside, np.arange(len(inside)), FRACTION)
        lines.append((*rule, *rule.values(), mean, *interval, len(inside)))
    return pd.DataFrame(lines, columns=[*columns, "accuracy", "low", "high", "visited"])


def _rules(domain: Domain, strength: int) -> Iterator[tuple[dict[str, Any], Mask]]:
    """Each combination of values of `strength` attributes, with the subdomains that have it."""
    for names, cells in domain.indicators(strength):
        for is_member in cells.T > 0:
            values = domain.values(int(is_member.argmax()))  # of its first subdomain
            yield {name: values[name] for name in names}, is_member


def members(domain: Domain, rule: Mapping[str, Any]) -> Mask:
    """Which subdomains have all values of a rule.

    >>> members(Domain({"time": ["day", "night"], "weather": ["sun", "rain"]}), {"time": "night", "weather": "rain"})
    array([False, False, False,  True])
    """
    return np.array([rule.items() <= domain.values(subdomain).items() for subdomain in range(len(domain))])


def find_rules(
    domain: Domain, visited: Visits, correct: Visits, n_images: Visits, most: int = 5, tables: int = 999
) -> list[dict[str, Any]]:
    """Up to `most` rules, attribute -> value with one or two entries, whose subdomains have low accuracy.

    Greedy subgroup discovery among visited subdomains that no earlier rule has. Candidates are rules with SUPPORT
    visited subdomains, or all of a rule that has fewer. They are tested at 5 % for all of them together, one-sided,
    against tables in which no attribute matters and subdomains vary as they do here
    (`fca.studies.search.stats.counts`). Of the significant ones that with the lowest (share inside - share) sqrt(images
    inside) is taken, each subdomain with its effective images, and narrowed by a second value if that is significantly
    worse.    tables: drawn for a test.
    """
    subdomains = by_subdomain(visited, correct, n_images)
    n_subdomains = len(subdomains)
    counts = subdomains["correct"].to_numpy(), subdomains["shown"].to_numpy()
    rules, members_of_rules = zip(*_rules(domain, 1), *_rules(domain, 2), strict=True)
    is_member = np.array(members_of_rules)[:, subdomains.index]  # rules x visited subdomains
    support = np.minimum(np.sum(members_of_rules, axis=1), SUPPORT)

    low_rules: list[dict[str, Any]] = []
    is_free = np.ones(n_subdomains, dtype=bool)  # of every rule so far
    rng = np.random.default_rng(0)
    while len(low_rules) < most:
        best = _lowest(is_member, support, counts, is_free, tables, rng)
        if best is None:
            break

        # A second value, if that is significantly worse than the first alone
        is_narrower = np.array([rules[best].items() < rule.items() for rule in rules])
        support_of_narrower = np.where(is_narrower, support, n_subdomains + 1)
        narrowed = _lowest(is_member, support_of_narrower, counts, is_free & is_member[best], tables, rng)
        if narrowed is not None:
            best = narrowed

        low_rules.append(rules[best])
        is_free &= ~is_member[best]
    return low_rules


def _lowest(
    is_member: Bool[np.ndarray, "rules visited"],
    support: Integer[np.ndarray, " rules"],
    counts: tuple[Integer[np.ndarray, " visited"], Integer[np.ndarray, " visited"]],
    is_candidate: Mask,
    tables: int,
    rng: np.random.Generator,
) -> int | None:
    """Which rule is worst among the candidate subdomains; None where none is significant.

    support: candidate subdomains that a rule needs.    counts: right and all images of each subdomain.
    """
    correct, n_images = (count[is_candidate] for count in counts)
    n_inside = is_member[:, is_candidate].sum(axis=1)
    tested_rules = np.flatnonzero((n_inside >= support) & (n_inside < is_candidate.sum()))
    if not len(tested_rules) or correct.sum() in (0, n_images.sum()):
        return None

    is_inside = is_member[np.ix_(tested_rules, is_candidate)]
    is_significant = p_of_rules(is_inside, correct, n_images, tables, rng) <= FAMILY_LEVEL
    if not is_significant.any():
        return None

    # (share inside - share) sqrt(images inside), with effective images
    one_group = np.zeros(len(n_images), dtype=np.int64)
    weight = effective_images(n_images, image_correlation(correct, n_images, one_group))
    accuracy = correct / n_images
    lack = weight * (accuracy - weight @ accuracy / weight.sum())
    score = is_inside @ lack / np.sqrt(is_inside @ weight)
    return int(tested_rules[np.where(is_significant, score, np.inf).argmin()])


def agreement(first: Accuracies, second: Accuracies, seed: int = 0) -> tuple[Estimated, Estimated, float]:
    """Whether two classifiers fail in the same subdomains: Spearman's rho, overlap of their worst tenths, by chance.

    overlap: share of the worst tenth by the first that is in the worst tenth by the second; subdomains that are equal
    at its edge count in part.    Intervals are over subdomains: of rho by the jackknife, of the overlap by bootstrap.
    first, second: accuracy of each subdomain.

    >>> agreement(np.arange(20) / 20, np.arange(20) / 20)[1].value
    1.0
    """
    n = len(first)
    n_worst = max(round(n / 10), 1)
    all_once = np.ones((1, n), dtype=np.int64)
    draws = np.vstack([all_once, cluster_draws(n, seed)])  # how often each subdomain counts
    in_both = _in_worst(first, draws, n_worst) * _in_worst(second, draws, n_worst)
    overlaps = (in_both * draws).sum(axis=1) / n_worst
    overlap = Estimated(float(overlaps[0]), *percentile_interval(overlaps[1:], n))

    r = correlation(first, second, "spearman").r
    rho = Estimated(r, *correlation_interval(first, second, np.arange(n), "spearman"))
    return rho, overlap, n_worst / n


def _in_worst(accuracy: Accuracies, draws: Integer[np.ndarray, "draws subdomains"], n_worst: int) -> Any:
    """Share of each subdomain's copies that is among the worst of a resample."""
    _, level = np.unique(accuracy, return_inverse=True)
    copies = draws @ np.eye(level.max() + 1, dtype=np.int64)[level]  # draws x levels of accuracy
    copies_below = copies.cumsum(axis=1) - copies
    share_in_worst = np.clip(n_worst - copies_below, 0, copies) / np.maximum(copies, 1)
    return share_in_worst[:, level]
