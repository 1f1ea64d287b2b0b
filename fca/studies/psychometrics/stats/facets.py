"""Explanatory item response theory: what a corruption's severity adds to an item's difficulty."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.special import expit
from scipy.stats import t

from fca.studies.irt.stats.model import Matrix, Subjects, check_answered
from fca.studies.irt.stats.solve import learned_spread
from fca.types import FcaError

CENTRE_SD = 5.0  # of the mean easiness around 0, the mean ability
STEPS = 200
TOLERANCE = 1e-6
LEVEL = 0.95
Effects = Float[np.ndarray, " effects"]
Design = Float[np.ndarray, "items effects"]


class FacetFit(NamedTuple):
    """Effects on difficulty in logits, and their 95 % intervals over networks like these; NaN for a single network.

    ability: of subjects; difficulty: of images without effects, both in logits.   log_likelihood: at the mode.
    """

    effect: Effects
    low: Effects
    high: Effects
    ability: Subjects
    difficulty: Float[np.ndarray, " images"]
    log_likelihood: float


def fit_facets(
    responses: Matrix, image: Integer[np.ndarray, " items"], design: Design, network: Integer[np.ndarray, " subjects"]
) -> FacetFit:
    """Difficulty of an item as that of its image plus effects of what was done to it (linear logistic test model).

    logit P(right) = θ_s - b_image - Σ_k design_ik effect_k   (Fischer 1973; De Boeck & Wilson 2004, chapter 6)

    responses: 1, 0, NaN; subjects x items, an item being an image under a condition.    image: of each item, from 0.
    design:    one column an effect, e.g. the severity of fog, 0 for other items. Clean images, all 0, fix its origin.
    network:   of each subject; its snapshots are not independent, so intervals count networks.
    The mode with θ ~ N(0, 1), b ~ N(m, s²) with s learned, effects without prior. Intervals: the sandwich of
    the networks' scores with all other parameters eliminated, Student's t of networks - 1 degrees of freedom.
    Raises FcaError for an effect that no response bears on.

    >>> rng = np.random.default_rng(0)
    >>> ability, easiness, severity = rng.normal(size=(20, 1, 1)), rng.normal(size=100), np.arange(3.0)[:, None]
    >>> p = 1 / (1 + np.exp(-(ability + easiness - 0.5 * severity)))  # subjects, severities, images
    >>> responses = (rng.random(p.shape) < p).astype(float).reshape(20, -1)
    >>> image, design = np.tile(np.arange(100), 3), np.repeat(severity, 100, axis=0)
    >>> fit_facets(responses, image, design, np.arange(20)).effect.round(1)
    array([0.5])
    """
    check_answered(responses)
    for idle in np.flatnonzero(~design.any(axis=0))[:1]:
        raise FcaError("items with an effect", f"none for effect {idle}", "1 or more", "leave out this effect")
    subjects, effects, images = len(responses), design.shape[1], int(image.max()) + 1
    of_image = csr_array((np.ones(len(image)), (np.arange(len(image)), image)), shape=(len(image), images))
    shared, b, centre, spread = np.zeros(subjects + effects), np.zeros(images), 0.0, 1.0
    for _ in range(STEPS):
        now = _system(responses, of_image, design, shared, b, spread)
        whole = [of.sum(axis=1, keepdims=True) for of in _scores(now.error, of_image, design, np.arange(subjects))]
        whole[0][:subjects, 0] -= shared[:subjects]
        whole[1][:, 0] -= (b - centre) / spread**2
        step_shared, step_b = (step[:, 0] for step in _solved(now, *whole))
        length = 1 / max(1.0, np.abs(step_shared).max(), np.abs(step_b).max() / 3)
        shared, b, before = shared + length * step_shared, b + length * step_b, (centre, spread)
        centre = float(b.sum() / (images + spread**2 / CENTRE_SD**2))
        spread = learned_spread(float(((b - centre) ** 2 + 1 / now.block).sum()), images)
        moved = max(abs(centre - before[0]), abs(spread - before[1]), np.abs(step_shared).max(), np.abs(step_b).max())
        if moved < TOLERANCE:
            break
    half = _half_widths(now, of_image, design, network, effects)
    effect = shared[subjects:]
    return FacetFit(effect, effect - half, effect + half, shared[:subjects], b, now.log_likelihood)


class _System(NamedTuple):
    """Residuals and negative Hessian: of what all images share (abilities, effects), of images, between the two."""

    error: Matrix
    shared: Float[np.ndarray, "shared shared"]
    block: Float[np.ndarray, " images"]
    cross: Float[np.ndarray, "shared images"]
    log_likelihood: float


def _system(
    responses: Matrix, of_image: Any, design: Design, shared: np.ndarray, b: np.ndarray, spread: float
) -> _System:
    subjects, present = len(responses), ~np.isnan(responses)
    z = shared[:subjects, None] - of_image @ b - design @ shared[subjects:]
    p = expit(z)
    weight = p * (1 - p) * present
    likelihood = float(np.where(present, np.where(responses == 1, z, 0.0) - np.logaddexp(0, z), 0.0).sum())
    by_item = weight.sum(axis=0)
    both = -weight @ design
    corner = design.T @ (by_item[:, None] * design)
    of_shared = np.block([[np.diag(weight.sum(axis=1) + 1.0), both], [both.T, corner]])
    cross = np.vstack([-(of_image.T @ weight.T).T, (of_image.T @ (by_item[:, None] * design)).T])
    error = np.where(present, responses - p, 0.0)
    return _System(error, of_shared, of_image.T @ by_item + spread**-2, cross, likelihood)


def _scores(
    error: Matrix, of_image: Any, design: Design, group: Integer[np.ndarray, " subjects"]
) -> tuple[Float[np.ndarray, "shared groups"], Float[np.ndarray, "images groups"]]:
    """Gradient of the log likelihood of each group of subjects, by what is shared and by images."""
    member = np.eye(int(group.max()) + 1)[group]
    summed = member.T @ error
    return np.vstack([member * error.sum(axis=1, keepdims=True), -(summed @ design).T]), -(of_image.T @ summed.T)


def _solved(now: _System, shared: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse Hessian times gradients, images eliminated."""
    scaled = now.cross / now.block
    factor = cho_factor(now.shared - scaled @ now.cross.T)
    of_shared = cho_solve(factor, shared - scaled @ images)
    return of_shared, (images - now.cross.T @ of_shared) / now.block[:, None]


def _half_widths(
    now: _System, of_image: Any, design: Design, network: Integer[np.ndarray, " subjects"], effects: int
) -> Effects:
    """Half of each interval: G / (G - 1) times the sum of squares of the G networks' influences on an effect."""
    networks = int(network.max()) + 1
    if networks < 2:
        return np.full(effects, np.nan)
    influence = _solved(now, *_scores(now.error, of_image, design, network))[0][-effects:]
    variance = networks / (networks - 1) * (influence**2).sum(axis=1)
    return np.sqrt(variance) * t.ppf(0.5 + LEVEL / 2, networks - 1)
