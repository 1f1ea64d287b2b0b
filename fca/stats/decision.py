"""Which of several models is good enough, from draws of their accuracies.

`accuracy_draws` gives such draws where nothing is known but the images: the posterior of a Dirichlet process (Ferguson
1973, doi:10.1214/aos/1176342360) over images. One draw gives each image i a weight g_i ~ Gamma(1), the same for all
models, and model m the accuracy

    (sum_i g_i c_mi + A) / (sum_i g_i + A + B),   A, B ~ Gamma(1/2)

So each accuracy by itself is Beta(right + 1/2, wrong + 1/2), and two models that fail on the same images surely differ
by little. The halves are Jeffreys' prior for what no image has shown: without them (the Bayesian bootstrap, Rubin 1981)
a model that is right on all of ten images would be right on all others for certain.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from fca.types import keyed_rng

DRAWS = 4000
UNSEEN = 0.5  # images, right and wrong, of Jeffreys' prior

Correct = Float[np.ndarray, "models images"]
PerModel = Float[np.ndarray, " models"]
Draws = Float[np.ndarray, "draws models"]


def accuracy_draws(correct: Correct, draws: int = DRAWS) -> Draws:
    """Accuracies that agree with what was seen.

    correct: 1 right, 0 wrong, between them a share that an answer is worth.

    >>> draws = accuracy_draws(np.array([[1.0] * 90 + [0] * 10]))
    >>> draws.mean().round(2), draws.std().round(2)
    (np.float64(0.9), np.float64(0.03))
    """
    models, images = correct.shape
    rng = keyed_rng("decision", 0)
    weights = rng.gamma(1.0, size=(draws, images))
    unseen_right, unseen_wrong = (rng.gamma(UNSEEN, size=(draws, models)) for _ in range(2))
    return (weights @ correct.T + unseen_right) / (weights.sum(axis=1, keepdims=True) + unseen_right + unseen_wrong)


def probability_within(draws: Draws, margin: float) -> PerModel:
    """The probability that each model is at most `margin` below the best of them (a fraction; NaN: unknown).

    Bayesian multiple comparisons with the best (Hsu 1984): the best is another one from draw to draw.

    >>> probability_within(np.array([[0.9, 0.895, 0.5], [0.8, 0.9, 0.5]]), 0.01).tolist()
    [0.5, 1.0, 0.0]
    """
    known = ~np.isnan(draws).all(axis=0)
    best = np.nanmax(draws[:, known], axis=1, keepdims=True) if known.any() else np.full((len(draws), 1), np.nan)
    return np.where(known, (best - draws <= margin + 1e-12).mean(axis=0), np.nan)


def probability_chosen(draws: Draws, cost: PerModel, margin: float) -> PerModel:
    """The probability that each model is the cheapest of those at most `margin` below the best of them (a fraction).

    >>> draws = np.array([[0.9, 0.895, 0.5], [0.8, 0.9, 0.5]])
    >>> probability_chosen(draws, cost=np.array([2.0, 5.0, 1.0]), margin=0.01).tolist()
    [0.5, 0.5, 0.0]
    """
    best = draws.max(axis=1, keepdims=True)
    cost_if_good = np.where(best - draws <= margin + 1e-12, cost, np.inf)
    chosen = cost_if_good.argmin(axis=1)
    return np.bincount(chosen, minlength=draws.shape[1]) / len(draws)


def pareto(accuracy: PerModel, cost: PerModel) -> Bool[np.ndarray, " models"]:
    """Which models no other one beats: at least as accurate and as cheap, and better in one of the two.

    Unknown accuracies (NaN) are never beaten and beat nothing.

    >>> pareto(np.array([0.9, 0.8, 0.95, np.nan]), np.array([2.0, 3.0, 9.0, 9.0])).tolist()
    [True, False, True, True]
    """
    better = (accuracy[None] >= accuracy[:, None]) & (cost[None] <= cost[:, None])
    strictly = (accuracy[None] > accuracy[:, None]) | (cost[None] < cost[:, None])
    beaten = np.asarray((better & strictly).any(axis=1))
    return ~beaten
