"""Why a classifier fails: accuracy by attribute value and pair, rules for failures, agreement of two classifiers."""

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

MIN_SUPPORT = 5  # visited subdomains that a rule needs, if it has so many
FAMILY_LEVEL = 0.05  # of finding any rule where there is none

Accuracies = Float[np.ndarray, " subdomains"]
Mask = Bool[np.ndarray, " subdomains"]


def by_subdomain(visited: Visits, correct: Visits, n_images: Visits) -> pd.DataFrame:
    """One line for each subdomain that has images, all visits together: columns correct, shown, accuracy.

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

    Columns attribute, value, accuracy, low, high, visited (the number of these subdomains). The 95 % interval is
    Student's over subdomains, since these are the units that were drawn, each with its images. It is missing where
    fewer than two were visited, or all have the same accuracy.

    visited, correct, n_images: of each visit its subdomain, its right images and its images.
    """
    return _means(domain, 1, by_subdomain(visited, correct, n_images), ["attribute", "value"])


def pair_means(domain: Domain, visited: Visits, correct: Visits, n_images: Visits) -> pd.DataFrame:
    """Mean accuracy for each pair of values of two attributes, over the visited subdomains that have both values.

    The columns are attribute, other, value, other_value (the pair), accuracy (the mean), low, high (its 95 % interval
    over subdomains), visited (the number of these subdomains), and effect: how much the combination of the two
    attributes matters beyond each alone. The effect is an F ratio, the same number for all pairs of values of two
    attributes. Main effects of the values of all attributes are fitted to accuracy by least squares; F is the mean
    square of the residuals between pairs of values over the mean square within pairs. The effect is missing where too
    few subdomains were visited.

    visited, correct, n_images: of each visit its subdomain, its right images and its images.
    """
    results = by_subdomain(visited, correct, n_images)  # the index has the numbers of the visited subdomains
    # visited subdomains x values: 1 where the subdomain has the value
    value_indicators = np.hstack([cells for _, cells in domain.indicators(1)])[results.index]
    accuracy = results["accuracy"].to_numpy()
    main_effects = np.linalg.lstsq(value_indicators, accuracy)[0]
    residual = accuracy - value_indicators @ main_effects

    effect_of_pair = {}  # names of two attributes -> effect
    for names, cells in domain.indicators(2):
        cell_of_subdomain = cells[results.index].argmax(axis=1)  # the number of its pair of values
        effect_of_pair[names] = _f_ratio(cell_of_subdomain, residual)

    means = _means(domain, 2, results, ["attribute", "other", "value", "other_value"])
    pairs = zip(means["attribute"], means["other"], strict=True)
    return means.assign(effect=[effect_of_pair[pair] for pair in pairs])


def _f_ratio(cell: Integer[np.ndarray, " visited"], residual: Float[np.ndarray, " visited"]) -> float:
    """How much residuals differ between cells: the mean square between cells over the mean square within cells (F).

    F = (B / (k - 1)) / (W / (n - k)),   B = sum over k cells of (sum of residuals)² / size,   W = sum residual² - B

    A cell has the subdomains with one pair of attribute values.

    cell: the number of the cell of each of the n residuals; some numbers may have none.
    NaN where either mean square has no degree of freedom, or where the residuals of each cell are all equal.
    """
    sizes = np.bincount(cell)
    is_filled = sizes > 0
    k = int(is_filled.sum())
    n = len(cell)
    sums = np.bincount(cell, residual)[is_filled]
    between = float((sums**2 / sizes[is_filled]).sum())
    within = float(residual @ residual) - between

    if not 1 < k < n or within <= 1e-12:  # 0 but for rounding
        return float("nan")
    return between * (n - k) / (k - 1) / within


def _means(domain: Domain, strength: int, results: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The mean accuracy, with its interval, of the visited subdomains of each rule; a line for each rule.

    A rule is a combination of values of `strength` attributes. The interval is Student's over subdomains, at 95 % and
    within [0, 1].

    results: accuracy by visited subdomain, see `by_subdomain`.
    columns: names for the columns of the rule's attributes, then for those of its values.
    """
    accuracy = results["accuracy"].to_numpy()
    lines = []
    for rule, is_member in _rules(domain, strength):
        inside = accuracy[is_member[results.index]]
        mean = float(inside.mean()) if len(inside) else np.nan
        cluster = np.arange(len(inside))  # every subdomain is a cluster of its own, as subdomains were drawn
        low, high = mean_interval(inside, cluster, within=FRACTION)  # FRACTION: 0 to 1
        # iterating over a rule gives its attributes
        lines.append((*rule, *rule.values(), mean, low, high, len(inside)))

    return pd.DataFrame(lines, columns=[*columns, "accuracy", "low", "high", "visited"])


def _rules(domain: Domain, strength: int) -> Iterator[tuple[dict[str, Any], Mask]]:
    """Every combination of `strength` attributes' values that a subdomain has, and which subdomains have it."""
    for names, cells in domain.indicators(strength):
        for is_member in cells.T > 0:
            values = domain.values(int(is_member.argmax()))  # of the first subdomain that has the combination
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
    """Up to `most` rules whose subdomains have low accuracy; a rule is {attribute: value} with one or two entries.

    Rules are found one after another (greedy subgroup discovery), each among the visited subdomains that are in no
    earlier rule:

    1. Candidates are rules with MIN_SUPPORT visited subdomains; a rule with fewer subdomains needs all of them visited.
    2. All candidates are tested together at 5 %, one-sided, against random tables in which no attribute matters and
       subdomains vary as they do here (see `p_of_rules`).
    3. Of the significant candidates, the one with the lowest (share inside - share) sqrt(images inside) is selected.
       Both shares are of right images: inside the rule, and among all subdomains compared. A subdomain counts with its
       effective images, which are fewer than its images, as the images of a subdomain are correlated.
    4. A second value is added to a rule of one value if the narrower rule is significantly worse than the rest of the
       selected rule.

    visited, correct, n_images: of each visit its subdomain, its right images and its images.
    tables: number of random tables of a test.
    """
    results = by_subdomain(visited, correct, n_images)
    counts = (results["correct"].to_numpy(), results["shown"].to_numpy())
    rules, members_by_rule = zip(*_rules(domain, 1), *_rules(domain, 2), strict=True)
    needed = np.minimum(np.sum(members_by_rule, axis=1), MIN_SUPPORT)  # visited subdomains that each rule needs
    has = np.array(members_by_rule)[:, results.index]  # rules x visited
    is_free = np.ones(len(results), dtype=bool)  # in no rule so far
    rng = np.random.default_rng(0)  # fixed: the same visits give the same rules

    selected_rules: list[dict[str, Any]] = []
    while len(selected_rules) < most:
        best = _lowest_rule(has, needed, counts, is_free, tables, rng)
        if best is None:
            break

        # narrow it by a second value, if the narrower rule is significantly worse among the rule's subdomains
        is_narrower = np.array([rules[best].items() < rule.items() for rule in rules])  # a proper subset of entries
        out_of_reach = len(results) + 1  # more than all, so that only narrower rules are candidates
        needed_if_narrower = np.where(is_narrower, needed, out_of_reach)
        narrower = _lowest_rule(has, needed_if_narrower, counts, is_free & has[best], tables, rng)
        if narrower is not None:
            best = narrower

        selected_rules.append(rules[best])
        is_free &= ~has[best]

    return selected_rules


def _lowest_rule(
    has: Bool[np.ndarray, "rules visited"],
    needed: Integer[np.ndarray, " rules"],
    counts: tuple[Integer[np.ndarray, " visited"], Integer[np.ndarray, " visited"]],
    among: Mask,
    tables: int,
    rng: np.random.Generator,
) -> int | None:
    """The position of the rule with the lowest accuracy among some subdomains; None if no rule is significantly low.

    The lowest rule has the smallest (share inside - share) sqrt(images inside), so that a rule with many images comes
    before one with few and the same share. Shares are of right images: inside the rule, and among all these subdomains.
    `p_of_rules` decides which rules are significantly low.

    has:    which visited subdomains each rule has.
    needed: how many of the subdomains in `among` a rule must have to be a candidate.
    counts: right images and images of each visited subdomain.
    among:  which visited subdomains are compared; all others are ignored.
    tables, rng: number of random tables of the test, and what draws them.
    """
    correct, n_images = (count[among] for count in counts)
    n_inside = has[:, among].sum(axis=1)
    # a rule that has all subdomains has none outside to be compared with
    candidates = np.flatnonzero((n_inside >= needed) & (n_inside < among.sum()))
    all_equal = correct.sum() in (0, n_images.sum())  # all images are wrong, or all are right
    if not len(candidates) or all_equal:
        return None

    has_candidate = has[np.ix_(candidates, among)]  # candidates x compared subdomains
    is_significant = p_of_rules(has_candidate, correct, n_images, tables, rng) <= FAMILY_LEVEL
    if not is_significant.any():
        return None

    # (share inside - share) sqrt(images inside). A subdomain counts with its effective images; they depend on how
    # correlated its images are, which is estimated as if one accuracy were behind all subdomains: all are in group 0
    one_group = np.zeros(len(n_images), dtype=np.int64)
    weight = effective_images(n_images, image_correlation(correct, n_images, one_group))
    share = weight @ (correct / n_images) / weight.sum()
    excess = weight * (correct / n_images - share)  # right images beyond the average share, of each subdomain
    score = has_candidate @ excess / np.sqrt(has_candidate @ weight)
    return int(candidates[np.where(is_significant, score, np.inf).argmin()])


def agreement(first: Accuracies, second: Accuracies, seed: int = 0) -> tuple[Estimated, Estimated, float]:
    """Whether two classifiers fail in the same subdomains.

    Returns three things: Spearman's rho of their accuracies; the overlap, which is the share of the first classifier's
    worst tenth of subdomains that is also in the worst tenth of the second; and the overlap expected by chance.
    Subdomains of equal accuracy at the edge of a worst tenth count in part. Intervals are over subdomains: of rho by
    the jackknife, of the overlap by the bootstrap.

    first, second: accuracy of each subdomain.

    >>> agreement(np.arange(20) / 20, np.arange(20) / 20)[1].value
    1.0
    """
    n = len(first)
    n_worst = max(round(n / 10), 1)
    all_once = np.ones((1, n), dtype=np.int64)
    # resamples x subdomains: how often each is drawn; the first line is the sample itself
    draws = np.vstack([all_once, cluster_draws(n, seed)])
    # the part of each subdomain that is in both worst tenths, from 0 to 1; resamples x subdomains
    in_both = _share_in_worst(first, draws, n_worst) * _share_in_worst(second, draws, n_worst)
    overlaps = (in_both * draws).sum(axis=1) / n_worst
    # n: subdomains drawn; the interval is widened where they are few
    overlap = Estimated(float(overlaps[0]), *percentile_interval(overlaps[1:], n))

    r = correlation(first, second, "spearman").r
    cluster = np.arange(n)  # every subdomain is a cluster of its own, as subdomains were drawn
    rho = Estimated(r, *correlation_interval(first, second, cluster, "spearman"))
    return rho, overlap, n_worst / n


def _share_in_worst(accuracy: Accuracies, draws: Integer[np.ndarray, "draws subdomains"], n_worst: int) -> Any:
    """How far each subdomain belongs to the worst of each resample, from 0 to 1; draws x subdomains.

    The n_worst lowest copies of a resample are its worst. Copies of equal accuracy at the edge share the places that
    are left, so their subdomains belong to the worst in part.

    draws: how often each resample has each subdomain (its copies).
    """
    _, level = np.unique(accuracy, return_inverse=True)  # rank of each accuracy, from 0; equal ones have the same
    is_of_level = np.eye(level.max() + 1, dtype=np.int64)[level]  # subdomains x levels, 0 or 1
    copies_of_level = draws @ is_of_level  # draws x levels
    copies_below = copies_of_level.cumsum(axis=1) - copies_of_level
    n_in_worst = np.clip(n_worst - copies_below, 0, copies_of_level)  # copies of each level among the worst
    share_of_level = n_in_worst / np.maximum(copies_of_level, 1)
    return share_of_level[:, level]
