"""Which of several models is good enough, from their predictions on the same images and from what was expected before.

The posterior is that of a Dirichlet process (Ferguson 1973, doi:10.1214/aos/1176342360) over images: every image seen
has weight 1, what was expected before counts as `strength` further images, s. One draw gives each image i a weight
g_i ~ Gamma(1), the same for all models, and model m, which was expected to be right on a share p, the accuracy

    (sum_i g_i c_mi + A) / (sum_i g_i + A + B),   A ~ Gamma(s p + 1/2),   B ~ Gamma(s (1 - p) + 1/2)

So each accuracy by itself is Beta(s p + right + 1/2, s (1 - p) + wrong + 1/2), and two models that fail on the same
images surely differ by little. The halves are Jeffreys' prior for what no image has shown: without them (the Bayesian
bootstrap, Rubin 1981) a model that is right on all of ten images would be right on all others for certain.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from fca.types import generator

DRAWS = 4000
UNSEEN = 0.5  # images, right and wrong, of Jeffreys' prior
SIZES = (1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # times the images that there are, tried by `images_needed`

Correct = Float[np.ndarray, "models images"]
PerModel = Float[np.ndarray, " models"]
Draws = Float[np.ndarray, "draws models"]


def strength_of(expected: float, low: float, high: float, normal_width: float) -> float:
    """How many images an expectation counts for: Beta(s p, s (1 - p)) has variance p (1 - p) / (s + 1).

    low, high: of an interval that is `normal_width` standard deviations wide; no expectation is surer than one point.
    Never less than 1, one image.

    >>> round(strength_of(0.8, 0.72, 0.88, 2 * 1.96))
    95
    """
    p = float(np.clip(expected, 0.01, 0.99))
    deviation = max((high - low) / normal_width, 0.01)
    return max(1.0, p * (1 - p) / deviation**2 - 1)


def accuracy_draws(
    correct: Correct, prior: PerModel, strength: PerModel, images: float = 1.0, draws: int = DRAWS, seed: int = 0
) -> Draws:
    """Accuracies that agree with what was seen and expected; a column is NaN where there is neither.

    correct:  1 right, 0 wrong, between them a share of equal networks that were right; NaN: not predicted.
    prior:    accuracy that was expected, NaN for none.    strength: images that this counts for.
    images:   weight of every image: 2 shows what twice as many images like these would show.

    >>> draws = accuracy_draws(np.array([[1.0] * 90 + [0] * 10]), np.array([np.nan]), np.array([0.0]))
    >>> draws.mean().round(2), draws.std().round(2)
    (np.float64(0.9), np.float64(0.03))
    """
    rng = generator("decision", seed)
    seen, counted = ~np.isnan(correct), ~np.isnan(prior) & (strength > 0)
    weights = rng.gamma(images, size=(draws, correct.shape[1]))
    mass, share = np.where(counted, strength, 0.0), np.where(counted, prior, 0.5)
    more_right, more_wrong = (rng.gamma(mass * p + UNSEEN, size=(draws, len(p))) for p in (share, 1 - share))
    accuracy = (weights @ np.nan_to_num(correct).T + more_right) / (weights @ seen.T + more_right + more_wrong)
    return np.where(seen.any(axis=1) | counted, accuracy, np.nan)


def probability_within(draws: Draws, margin: float) -> PerModel:
    """The probability that each model is at most `margin` below the best of them (a fraction; NaN: unknown).

    Bayesian multiple comparisons with the best (Hsu 1984): the best is another one from draw to draw.

    >>> probability_within(np.array([[0.9, 0.895, 0.5], [0.8, 0.9, 0.5]]), 0.01).tolist()
    [0.5, 1.0, 0.0]
    """
    known = ~np.isnan(draws).all(axis=0)
    best = np.nanmax(draws[:, known], axis=1, keepdims=True) if known.any() else np.full((len(draws), 1), np.nan)
    return np.where(known, (best - draws <= margin + 1e-12).mean(axis=0), np.nan)


def cheapest(probability: PerModel, cost: PerModel, confidence: float) -> int | None:
    """The cheapest model that is good enough with this confidence; None where none is for certain.

    Such an answer is right less often than the confidence says where models are alike and images few: simulated with
    ten models of accuracy 0.85 and deviation 0.03 in 39 % of cases at 20 images, 80 % at 80 and 90 % at 160.

    >>> cheapest(np.array([0.95, 0.92, 0.2]), np.array([9.0, 4.0, 1.0]), confidence=0.9)
    1
    """
    enough = np.flatnonzero(probability >= confidence)
    return int(enough[np.argmin(cost[enough])]) if len(enough) else None


def images_needed(
    correct: Correct, prior: PerModel, strength: PerModel, cost: PerModel, margin: float, confidence: float
) -> float | None:
    """How many times as many images would settle on a model, if all models stayed as accurate as they are now.

    One of SIZES; None where even the last does not: two models are `margin` apart, or nothing was predicted.
    """
    for size in SIZES:
        found = probability_within(accuracy_draws(correct, prior, strength, images=size), margin)
        if cheapest(found, cost, confidence) is not None:
            return size
    return None


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
