"""S-X²: does an item follow its curve at every number of right responses (Orlando & Thissen 2000)?

For tests of few items taken by many subjects. With thousands of items every subject has a score of its own, and there
is nothing to compare; infit and outfit (`fca.studies.psychometrics.stats.item_fit`) are for that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import chi2

from fca.studies.irt.stats.likelihood import LEARNED
from fca.studies.irt.stats.model import ItemBank, Items, Matrix

NODES = 41
MOST_ITEMS = 300  # above, all cells would be nearly empty; and time grows with the square
FEWEST = 1.0  # expected right and wrong responses of a group of scores
Scores = Float[np.ndarray, "nodes scores"]
PerNode = Float[np.ndarray, "nodes items"]
PerScore = Float[np.ndarray, " scores"]


class ScoreFit(NamedTuple):
    """S-X² of every item, its degrees of freedom and p value; NaN (and 0) where too few groups of scores are left."""

    statistic: Items
    df: Items
    p: Items


def score_fit(responses: Matrix, bank: ItemBank) -> ScoreFit:
    """S-X² of every item, from subjects with a response to every item.

    S-X²_i = Σ_k N_k (O_ik - E_ik)² / (E_ik (1 - E_ik)),   E_ik = ∫ P_i S_k-1^(-i) φ / ∫ S_k φ   over scores k = 1..n-1

    S_k: chance of k right responses at an ability; S^(-i): without item i (Lord & Wingersky 1984). Neighbouring scores
    are joined until each group expects one right and one wrong response; df: groups less the item's parameters.
    bank: fitted to these responses, with ability N(0, 1). All NaN for fewer than 3 or more than 300 items.

    >>> one = np.ones(4)
    >>> responses = (np.random.default_rng(0).random((500, 4)) < 0.5).astype(float)
    >>> score_fit(responses, ItemBank("1pl", 0 * one, one, one, 0 * one)).df
    array([2., 2., 2., 2.])
    """
    n_items = responses.shape[1]
    is_complete = ~np.isnan(responses).any(axis=1)
    complete = responses[is_complete]
    if not 3 <= n_items <= MOST_ITEMS or not len(complete):
        unknown = np.full(n_items, np.nan)
        return ScoreFit(unknown, np.zeros(n_items), unknown)

    ability, weight = hermegauss(NODES)
    expected = expected_share(bank.probability(ability), weight / weight.sum())  # scores x items
    score = complete.sum(axis=1).astype(np.int64)
    n_subjects = np.bincount(score, minlength=n_items + 1)[1:-1].astype(float)
    statistics = np.empty(n_items)
    n_groups = np.empty(n_items)
    for i in range(n_items):
        n_right = np.bincount(score, weights=complete[:, i], minlength=n_items + 1)[1:-1]
        statistics[i], n_groups[i] = _grouped(n_subjects, n_right, expected[:, i])

    df = n_groups - len(LEARNED[bank.model])
    has_freedom = df >= 1
    statistic = np.where(has_freedom, statistics, np.nan)
    p = chi2.sf(statistic, np.where(has_freedom, df, 1.0))
    return ScoreFit(statistic, np.where(has_freedom, df, 0.0), p)


def expected_share(p: PerNode, weight: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, "scores items"]:
    """Expected share right on each item among those with 1 to n - 1 right responses, over weighted abilities.

    Each item is removed from the whole test by S_k = (1 - P_i) T_k + P_i T_k-1, T: without item i; from k = 0 upwards
    where P_i is at most 0.5, else from k = n downwards, which is where rounding errors shrink.
    """
    nodes, n_items = p.shape
    chances = score_chances(p)
    upwards, downwards = np.zeros((2, nodes, n_items, n_items))  # nodes, scores 0..n-1 without the item, item
    is_high = p > 0.5
    low_p = np.where(is_high, 0.0, p)  # used upwards
    high_p = np.where(is_high, p, 1.0)  # used downwards
    chance_below = np.zeros_like(p)
    chance_above = np.zeros_like(p)
    for k in range(n_items):
        chance_below = (chances[:, k, None] - low_p * chance_below) / (1 - low_p)
        upwards[:, k] = chance_below
        chance_above = (chances[:, n_items - k, None] - (1 - high_p) * chance_above) / high_p
        downwards[:, n_items - 1 - k] = chance_above

    without_item = np.where(is_high[:, None], downwards, upwards)
    # q: nodes, i: items, k: right responses elsewhere, and one more on this item
    joint = np.einsum("q,qi,qki->ki", weight, p, without_item)[:-1]
    return joint / (weight @ chances)[1:-1, None]


def score_chances(p: PerNode) -> Scores:
    """Chance of 0 to n right responses at each ability (Lord & Wingersky 1984).

    >>> score_chances(np.array([[0.5, 0.5]]))
    array([[0.25, 0.5 , 0.25]])
    """
    chances = np.zeros((len(p), p.shape[1] + 1))
    chances[:, 0] = 1.0
    for p_item in p.T[..., None]:
        chances[:, 1:] = chances[:, 1:] * (1 - p_item) + chances[:, :-1] * p_item
        chances[:, :1] *= 1 - p_item
    return chances


def _grouped(n_subjects: PerScore, n_right: PerScore, expected: PerScore) -> tuple[float, int]:
    """S-X² over groups of neighbouring scores, and the number of groups; what remains joins the last group.

    n_subjects, n_right: at each score, all and those right on the item.    expected: share right on the item.
    """
    groups: list[np.ndarray] = []
    open_group = np.zeros(3)  # subjects, right, expected right
    for counts in np.stack([n_subjects, n_right, n_subjects * expected], axis=1):
        open_group = open_group + counts
        subjects, _, expected_right = open_group
        if min(expected_right, subjects - expected_right) >= FEWEST:
            groups.append(open_group)
            open_group = np.zeros(3)
    if not groups:
        return np.nan, 0
    groups[-1] = groups[-1] + open_group
    n, right, mean = np.array(groups).T
    statistic = ((right - mean) ** 2 / (mean * (1 - mean / n))).sum()
    return float(statistic), len(groups)
