"""Abilities of new subjects as posterior means (EAP)."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from fca.studies.irt.stats.model import ItemBank, Matrix, Scored, Subjects, score_ability

NODES = 41
PASSES = 4  # at most; each centres and scales the nodes by the posterior that the previous pass found
SMALLEST_CHANCE = 1e-300


def score_eap(responses: Matrix, bank: ItemBank) -> Scored:
    """Each subject's expected ability and its posterior standard deviation, given its responses to a bank's items.

    θ̂ = ∫ θ L(θ) φ(θ) dθ / ∫ L(θ) φ(θ) dθ   (Bock & Mislevy 1982)

    L is the likelihood of the responses, φ the density of the prior N(0, 1). The integrals are computed by
    Gauss-Hermite quadrature with nodes around each subject's own mode (Naylor & Smith 1982). Nodes spread over the
    prior would be too far apart: after 10,000 items the posterior is a fiftieth as wide as the prior.
    responses: 1 right, 0 wrong, NaN missing; a column for each item. Raises FcaError as `score_ability` does.

    >>> one = np.ones(2)
    >>> bank = ItemBank("2pl", 0 * one, one, one, 0 * one)
    >>> scored = score_eap(np.array([[1.0, 0.0], [1.0, np.nan]]), bank)
    >>> scored.ability.round(3), scored.ability_se.round(3)
    (array([0.   , 0.413]), array([0.835, 0.911]))
    """
    # nodes start around the mode; each pass moves and scales them by the posterior that the previous pass found
    centre, scale = score_ability(responses, bank)
    node, node_weight = hermegauss(NODES)
    for _ in range(PASSES):
        points = centre[:, None] + scale[:, None] * node  # subjects x nodes
        # log (L φ) at each node, without constants: `log_posterior` includes the prior
        height = np.stack([log_posterior(responses, bank, point) for point in points.T], axis=1)
        # Σ weight f(x) is the integral of f(x) exp(-x²/2), so the factor exp(-x²/2) is divided out of L φ
        height += node**2 / 2 + np.log(node_weight)
        mass = np.exp(height - height.max(axis=1, keepdims=True))  # the largest is 1, so exp cannot overflow
        mass /= mass.sum(axis=1, keepdims=True)  # posterior probability of each node

        mean = (mass * points).sum(axis=1)
        sd = np.sqrt((mass * (points - mean[:, None]) ** 2).sum(axis=1))
        is_mean_stable = np.abs(mean - centre).max() < 1e-3 * scale.min()
        is_sd_stable = np.abs(sd / scale - 1).max() < 1e-2
        centre, scale = mean, sd
        if is_mean_stable and is_sd_stable:
            break
    return Scored(centre, scale)


def log_posterior(responses: Matrix, bank: ItemBank, ability: Subjects) -> Subjects:
    """Log posterior of each subject's ability, without constants: log likelihood of its responses, less θ²/2.

    responses: 1 right, 0 wrong, NaN missing.
    ability: one value for each subject.

    >>> one = np.ones(1)
    >>> log_posterior(np.array([[1.0]]), ItemBank("1pl", 0 * one, one, one, 0 * one), np.zeros(1)).round(3)
    array([-0.693])
    """
    p = bank.probability(ability)
    chance = np.where(responses == 1, p, 1 - p)
    chance[np.isnan(responses)] = 1.0  # adds nothing
    return np.log(np.maximum(chance, SMALLEST_CHANCE)).sum(axis=1) - ability**2 / 2
