"""S-X²: does an item follow its curve at every number of right responses (Orlando & Thissen 2000)?

For tests of few items taken by many subjects. With thousands of items no two subjects have the same score, so there is
nothing to compare; use infit and outfit there (`fca.studies.psychometrics.stats.item_fit`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import chi2

from fca.studies.irt.stats.likelihood import LEARNED
from fca.studies.irt.stats.model import ItemBank, Items, Matrix

NODES = 41  # abilities at which integrals are evaluated
MOST_ITEMS = 300  # above, groups of scores would be nearly empty, and time grows with the square
FEWEST = 1.0  # a group of scores needs as many expected right and expected wrong responses
Scores = Float[np.ndarray, "nodes scores"]
PerNode = Float[np.ndarray, "nodes items"]
PerScore = Float[np.ndarray, " scores"]


class ScoreFit(NamedTuple):
    """S-X² of every item, its degrees of freedom and p value; NaN (df 0) where too few groups of scores remain."""

    statistic: Items
    df: Items
    p: Items


def score_fit(responses: Matrix, bank: ItemBank) -> ScoreFit:
    """S-X² of every item: does it have as many right responses as the model expects at each score?

    S-X²_i = Σ_k N_k (O_ik - E_ik)² / (E_ik (1 - E_ik)),   E_ik = ∫ P_i S_k-1^(-i) φ / ∫ S_k φ   over scores k = 1..n-1

    The score k of a subject is its number of right responses to the n items; only subjects with a response to every
    item count.

    N_k: number of subjects with the score k.
    O_ik, E_ik: observed and expected share of these subjects that is right on item i.
    S_k, S_k^(-i): chance of the score k at an ability, on all items and without item i (Lord & Wingersky 1984).
    P_i: chance of a right response to item i at an ability.
    φ: density of ability, N(0, 1); integrals are over ability.

    Neighbouring scores are joined until each group of subjects expects one right and one wrong response. Degrees of
    freedom: number of groups minus number of the item's parameters.

    With fewer than 3 or more than 300 items, or without subjects that count, statistics are NaN, with df 0. Above
    300 items groups would be nearly empty, and the time grows with the square of the number of items.

    responses: subjects x items; 1, 0, NaN for no response.
    bank: items fitted to these responses.

    >>> ones = np.ones(4)
    >>> responses = (np.random.default_rng(0).random((500, 4)) < 0.5).astype(float)
    >>> score_fit(responses, ItemBank("1pl", 0 * ones, ones, ones, 0 * ones)).df
    array([2., 2., 2., 2.])
    """
    n_items = responses.shape[1]
    complete = responses[~np.isnan(responses).any(axis=1)]
    if not 3 <= n_items <= MOST_ITEMS or not len(complete):
        missing = np.full(n_items, np.nan)
        return ScoreFit(missing, np.zeros(n_items), missing)

    ability, weight = hermegauss(NODES)  # Gauss-Hermite quadrature over N(0, 1), up to a factor
    expected_shares = expected_share(bank.probability(ability), weight / weight.sum())  # E: scores x items

    # counts by score without 0 and n ([1:-1]): all and none right have no information on an item
    score = complete.sum(axis=1).astype(np.int64)
    subjects_by_score = np.bincount(score, minlength=n_items + 1)[1:-1].astype(float)  # N_k

    statistic, n_groups = np.zeros((2, n_items))
    for item in range(n_items):
        right_by_score = np.bincount(score, weights=complete[:, item], minlength=n_items + 1)[1:-1]
        statistic[item], n_groups[item] = _grouped_chi2(subjects_by_score, right_by_score, expected_shares[:, item])

    n_parameters = len(LEARNED[bank.model])  # LEARNED: the fitted parameters of an item, for each kind of model
    df = n_groups - n_parameters
    has_df = df >= 1
    statistic = np.where(has_df, statistic, np.nan)
    p = chi2.sf(statistic, np.where(has_df, df, 1.0))  # NaN with the statistic
    return ScoreFit(statistic, np.where(has_df, df, 0.0), p)


def expected_share(p: PerNode, weight: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, "scores items"]:
    """The expected share that is right on each item, among subjects with k = 1 .. n - 1 right responses to n items.

    E_ik = Σ_q w_q p_qi T_q,k-1,-i / Σ_q w_q S_qk   over nodes q, the abilities at which an integral is evaluated

    S_qk: chance of k right responses to all items at node q.
    T_qk,-i: chance of k right responses to all items but i.

    p: chance of a right response to each item at each node.
    weight: w, of the nodes.
    """
    n_nodes, n_items = p.shape
    all_items = score_chances(p)  # S: nodes x scores 0..n

    # T follows from S_k = (1 - p) T_k + p T_k-1. It is solved from low scores up where p is low and from high scores
    # down where p is high: rounding errors shrink in these directions
    upwards, downwards = np.zeros((2, n_nodes, n_items, n_items))  # T: nodes x scores 0..n-1 x item left out
    is_high = p > 0.5
    low_p = np.where(is_high, 0.0, p)  # 0 where `upwards` is not used, so that it does not overflow there
    high_p = np.where(is_high, p, 1.0)  # 1 where `downwards` is not used
    lower_score = np.zeros_like(p)  # T of the score that was solved last, going up
    higher_score = np.zeros_like(p)  # the same, going down
    for k in range(n_items):
        lower_score = (all_items[:, k, None] - low_p * lower_score) / (1 - low_p)
        upwards[:, k] = lower_score
        higher_score = (all_items[:, n_items - k, None] - (1 - high_p) * higher_score) / high_p
        downwards[:, n_items - 1 - k] = higher_score
    without_item = np.where(is_high[:, None], downwards, upwards)

    # q: node, k: score without the item, i: item. With the item right as well, row k is the score k + 1
    joint = np.einsum("q,qi,qki->ki", weight, p, without_item)[:-1]  # not the last: all n items right
    return joint / (weight @ all_items)[1:-1, None]  # scores 1 .. n - 1


def score_chances(p: PerNode) -> Scores:
    """The chance of 0 to n right responses at each ability, item by item (Lord & Wingersky 1984).

    p: chance of a right response to each item at each ability (node).

    >>> score_chances(np.array([[0.5, 0.5]]))
    array([[0.25, 0.5 , 0.25]])
    """
    chances = np.zeros((len(p), p.shape[1] + 1))
    chances[:, 0] = 1.0  # without items the score is 0
    for item_p in p.T[..., None]:  # nodes x 1
        chances[:, 1:] = chances[:, 1:] * (1 - item_p) + chances[:, :-1] * item_p
        chances[:, :1] *= 1 - item_p
    return chances


def _grouped_chi2(subjects: PerScore, right: PerScore, expected_shares: PerScore) -> tuple[float, int]:
    """S-X² of one item over groups of neighbouring scores, and the number of groups; NaN and 0 if there is no group.

    S-X² = Σ_g (O_g - E_g)² / (E_g (1 - E_g / N_g)),   O, E: observed and expected right responses, N: subjects

    A score is a subject's number of right responses to all items. Scores are joined, from low to high, until a group g
    expects FEWEST right and FEWEST wrong responses. Scores that remain at the end join the last group.

    subjects: number of subjects at each score.
    right: how many of these subjects are right on the item.
    expected_shares: the share of these subjects that the model expects to be right.
    """
    counts_by_score = np.stack([subjects, right, subjects * expected_shares], axis=1)
    groups: list[np.ndarray] = []
    open_group = np.zeros(3)  # subjects, right, expected right
    for counts in counts_by_score:
        open_group = open_group + counts
        n_subjects, _, expected_right = open_group
        if min(expected_right, n_subjects - expected_right) >= FEWEST:
            groups.append(open_group)
            open_group = np.zeros(3)

    if not groups:
        return np.nan, 0

    groups[-1] = groups[-1] + open_group
    n, observed, expected = np.array(groups).T
    return float(((observed - expected) ** 2 / (expected * (1 - expected / n))).sum()), len(groups)
