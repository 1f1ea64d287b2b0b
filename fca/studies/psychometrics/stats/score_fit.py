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
    items = responses.shape[1]
    whole = responses[~np.isnan(responses).any(axis=1)]
    nan = np.full(items, np.nan)
    if not 3 <= items <= MOST_ITEMS or not len(whole):
        return ScoreFit(nan, np.zeros(items), nan)
    at, weight = hermegauss(NODES)
    expected = expected_share(bank.probability(at), weight / weight.sum())
    score = whole.sum(axis=1).astype(np.int64)
    number = np.bincount(score, minlength=items + 1)[1:-1].astype(float)
    right = [np.bincount(score, weights=of_item, minlength=items + 1)[1:-1] for of_item in whole.T]
    found = np.array([_grouped(number, *each) for each in zip(right, expected.T, strict=True)]).T
    df = found[1] - len(LEARNED[bank.model])
    enough = df >= 1
    statistic = np.where(enough, found[0], np.nan)
    return ScoreFit(statistic, np.where(enough, df, 0.0), chi2.sf(statistic, np.where(enough, df, 1.0)))


def expected_share(p: PerNode, weight: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, "scores items"]:
    """Expected share right on each item among those with 1 to n - 1 right responses, over weighted abilities."""
    nodes, items = p.shape
    every = score_chances(p)
    # removes each item from the whole test, from the end where rounding errors shrink: S_k = q T_k + p T_k-1
    up, down = np.zeros((2, nodes, items, items))  # nodes, scores 0..n-1 without the item, item
    high = p > 0.5
    low_p, high_p = np.where(high, 0.0, p), np.where(high, p, 1.0)
    before, after = np.zeros_like(p), np.zeros_like(p)
    for k in range(items):
        up[:, k] = before = (every[:, k, None] - low_p * before) / (1 - low_p)
        down[:, items - 1 - k] = after = (every[:, items - k, None] - (1 - high_p) * after) / high_p
    without = np.where(high[:, None], down, up)
    joint = np.einsum("q,qi,qki->ki", weight, p, without)[:-1]  # k - 1 right elsewhere, and this one
    return joint / (weight @ every)[1:-1, None]


def score_chances(p: PerNode) -> Scores:
    """Chance of 0 to n right responses at each ability (Lord & Wingersky 1984).

    >>> score_chances(np.array([[0.5, 0.5]]))
    array([[0.25, 0.5 , 0.25]])
    """
    chances = np.zeros((len(p), p.shape[1] + 1))
    chances[:, 0] = 1.0
    for one in p.T[..., None]:
        chances[:, 1:] = chances[:, 1:] * (1 - one) + chances[:, :-1] * one
        chances[:, :1] *= 1 - one
    return chances


def _grouped(number: PerScore, right: PerScore, expected: PerScore) -> tuple[float, int]:
    """S-X² over groups of neighbouring scores, and how many there are; what is left over joins the last group."""
    groups: list[np.ndarray] = []
    open_group = np.zeros(3)  # subjects, right, expected right
    for line in np.stack([number, right, number * expected], axis=1):
        open_group = open_group + line
        if min(open_group[2], open_group[0] - open_group[2]) >= FEWEST:
            groups.append(open_group)
            open_group = np.zeros(3)
    if not groups:
        return np.nan, 0
    groups[-1] = groups[-1] + open_group
    n, seen, mean = np.array(groups).T
    return float(((seen - mean) ** 2 / (mean * (1 - mean / n))).sum()), len(groups)
