"""Which of several models is good enough, from draws of their accuracies.

`accuracy_draws` makes such draws from the images alone: the posterior of a Dirichlet process (Ferguson 1973,
doi:10.1214/aos/1176342360) over images. One draw gives each image i a weight g_i ~ Gamma(1), the same for all models,
and model m the accuracy

    (sum_i g_i c_mi + A) / (sum_i g_i + A + B),   A, B ~ Gamma(1/2)

So each accuracy by itself is Beta(right + 1/2, wrong + 1/2), and two models that fail on the same images differ little
in every draw. The halves are Jeffreys' prior for unseen images: without them (the Bayesian bootstrap, Rubin 1981) a
model that is right on all of ten images would be right on all other images with certainty.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from fca.types import keyed_rng

DRAWS = 4000
PRIOR_IMAGES = 0.5  # of Jeffreys' prior: so many right ones and so many wrong ones
ROUNDING = 1e-12

Correct = Float[np.ndarray, "models images"]
PerModel = Float[np.ndarray, " models"]
Draws = Float[np.ndarray, "draws models"]


def accuracy_draws(correct: Correct, draws: int = DRAWS) -> Draws:
    """Draws of the models' accuracies from their joint posterior, which takes the images as a random sample.

    A draw gives each image i a weight g_i, the same for all models, and model m the accuracy

        (sum_i g_i c_mi + A) / (sum_i g_i + A + B),   g_i ~ Gamma(1),   A, B ~ Gamma(1/2)

    with c_mi the score of the model for the image. A and B, drawn for each model, are the weights of half a right and
    half a wrong image that are unseen (Jeffreys' prior): with them ten right predictions of ten give no certainty.

    correct: score of each model's prediction for each image: 1 right, 0 wrong, or in between for a partial score.
    draws:   number of draws. They are the same in every call with the same scores.

    >>> draws = accuracy_draws(np.array([[1.0] * 90 + [0] * 10]))
    >>> draws.mean().round(2), draws.std().round(2)
    (np.float64(0.9), np.float64(0.03))
    """
    models, images = correct.shape
    rng = keyed_rng("decision", 0)
    image_weights = rng.gamma(1.0, size=(draws, images))
    prior_right = rng.gamma(PRIOR_IMAGES, size=(draws, models))
    prior_wrong = rng.gamma(PRIOR_IMAGES, size=(draws, models))

    right = image_weights @ correct.T + prior_right  # draws x models
    total = image_weights.sum(axis=1, keepdims=True) + prior_right + prior_wrong
    return right / total


def probability_within(draws: Draws, margin: float) -> PerModel:
    """The probability that each model's accuracy is at most `margin` below that of the best model.

    It is the share of draws in which this holds; which model is best varies from draw to draw (Bayesian multiple
    comparisons with the best, Hsu 1984).
    draws: see `accuracy_draws`; NaN in all draws of a model whose accuracy is unknown. Its probability is NaN then.

    >>> probability_within(np.array([[0.9, 0.895, 0.5], [0.8, 0.9, 0.5]]), 0.01).tolist()
    [0.5, 1.0, 0.0]
    """
    has_draws = ~np.isnan(draws).all(axis=0)
    if not has_draws.any():
        return np.full(draws.shape[1], np.nan)

    best = np.nanmax(draws[:, has_draws], axis=1, keepdims=True)
    is_within = best - draws <= margin + ROUNDING
    return np.where(has_draws, is_within.mean(axis=0), np.nan)


def probability_chosen(draws: Draws, cost: PerModel, margin: float) -> PerModel:
    """The probability that each model is the cheapest of the models that are at most `margin` below the best one.

    It is the share of draws in which this holds. Of equally cheap models the first one counts.
    draws: see `accuracy_draws`.
    cost:  of each model.

    >>> draws = np.array([[0.9, 0.895, 0.5], [0.8, 0.9, 0.5]])
    >>> probability_chosen(draws, cost=np.array([2.0, 5.0, 1.0]), margin=0.01).tolist()
    [0.5, 0.5, 0.0]
    """
    best = draws.max(axis=1, keepdims=True)
    is_within = best - draws <= margin + ROUNDING
    cost_if_within = np.where(is_within, cost, np.inf)
    chosen = cost_if_within.argmin(axis=1)
    return np.bincount(chosen, minlength=draws.shape[1]) / len(draws)


def pareto(accuracy: PerModel, cost: PerModel) -> Bool[np.ndarray, " models"]:
    """Which models no other model dominates.

    A model dominates another one if it is at least as accurate and at most as expensive, and better in one of the two.
    A model of unknown accuracy (NaN) is never dominated and dominates none.

    >>> pareto(np.array([0.9, 0.8, 0.95, np.nan]), np.array([2.0, 3.0, 9.0, 9.0])).tolist()
    [True, False, True, True]
    """
    # models x models: whether the second model is at least as good as the first one, and better in one respect
    is_as_good = (accuracy[None] >= accuracy[:, None]) & (cost[None] <= cost[:, None])
    is_better = (accuracy[None] > accuracy[:, None]) | (cost[None] < cost[:, None])
    is_dominated = np.asarray((is_as_good & is_better).any(axis=1))
    return ~is_dominated
