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
MAX_STEPS = 200  # of Newton's method
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
    idle_effects = np.flatnonzero(~design.any(axis=0))
    if len(idle_effects):
        what = f"none for effect {idle_effects[0]}"
        raise FcaError("items with an effect", what, "1 or more", "leave out this effect")

    n_subjects = len(responses)
    n_effects = design.shape[1]
    n_images = int(image.max()) + 1
    items = np.arange(len(image))
    of_image = csr_array((np.ones(len(image)), (items, image)), shape=(len(image), n_images))

    shared = np.zeros(n_subjects + n_effects)  # abilities, then effects
    b = np.zeros(n_images)
    centre = 0.0
    spread = 1.0
    for _ in range(MAX_STEPS):
        system = _system(responses, of_image, design, shared, b, spread)

        # Newton's step, shortened where it is long
        scores_shared, scores_images = _scores(system.error, of_image, design, np.arange(n_subjects))
        gradient_shared = scores_shared.sum(axis=1, keepdims=True)
        gradient_images = scores_images.sum(axis=1, keepdims=True)
        gradient_shared[:n_subjects, 0] -= shared[:n_subjects]
        gradient_images[:, 0] -= (b - centre) / spread**2
        solved_shared, solved_images = _solved(system, gradient_shared, gradient_images)
        step_shared = solved_shared[:, 0]
        step_b = solved_images[:, 0]
        length = 1 / max(1.0, np.abs(step_shared).max(), np.abs(step_b).max() / 3)
        shared = shared + length * step_shared
        b = b + length * step_b

        # The prior of the images
        last_centre = centre
        last_spread = spread
        centre = float(b.sum() / (n_images + spread**2 / CENTRE_SD**2))
        spread = learned_spread(float(((b - centre) ** 2 + 1 / system.block).sum()), n_images)
        largest_change = max(
            abs(centre - last_centre),
            abs(spread - last_spread),
            np.abs(step_shared).max(),
            np.abs(step_b).max(),
        )
        if largest_change < TOLERANCE:
            break

    half_width = _half_widths(system, of_image, design, network, n_effects)
    effect = shared[n_subjects:]
    ability = shared[:n_subjects]
    return FacetFit(effect, effect - half_width, effect + half_width, ability, b, system.log_likelihood)


class _System(NamedTuple):
    """Residuals and the negative Hessian by blocks.

    shared: of what all images share (abilities, effects).    block: of images, diagonal.    cross: between the two.
    """

    error: Matrix
    shared: Float[np.ndarray, "shared shared"]
    block: Float[np.ndarray, " images"]
    cross: Float[np.ndarray, "shared images"]
    log_likelihood: float


def _system(
    responses: Matrix, of_image: Any, design: Design, shared: np.ndarray, b: np.ndarray, spread: float
) -> _System:
    """Residuals and negative Hessian at these parameters."""
    n_subjects = len(responses)
    present = ~np.isnan(responses)
    ability = shared[:n_subjects]
    effect = shared[n_subjects:]
    z = ability[:, None] - of_image @ b - design @ effect
    p = expit(z)
    log_likelihood = np.where(present, np.where(responses == 1, z, 0.0) - np.logaddexp(0, z), 0.0).sum()

    weight = p * (1 - p) * present  # subjects x items
    weight_of_item = weight.sum(axis=0)
    weighted_design = weight_of_item[:, None] * design
    ability_block = np.diag(weight.sum(axis=1) + 1.0)
    ability_effect_block = -weight @ design
    effect_block = design.T @ weighted_design
    shared_block = np.block([[ability_block, ability_effect_block], [ability_effect_block.T, effect_block]])
    cross = np.vstack([-(of_image.T @ weight.T).T, (of_image.T @ weighted_design).T])
    error = np.where(present, responses - p, 0.0)
    return _System(error, shared_block, of_image.T @ weight_of_item + spread**-2, cross, float(log_likelihood))


def _scores(
    error: Matrix, of_image: Any, design: Design, group: Integer[np.ndarray, " subjects"]
) -> tuple[Float[np.ndarray, "shared groups"], Float[np.ndarray, "images groups"]]:
    """Gradient of the log likelihood of each group of subjects, by what is shared and by images."""
    member = np.eye(int(group.max()) + 1)[group]  # subjects x groups
    error_of_group = member.T @ error  # groups x items
    by_ability = member * error.sum(axis=1, keepdims=True)
    by_effect = -(error_of_group @ design).T
    by_image = -(of_image.T @ error_of_group.T)
    return np.vstack([by_ability, by_effect]), by_image


def _solved(system: _System, shared: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse Hessian times gradients, images eliminated."""
    scaled = system.cross / system.block
    factor = cho_factor(system.shared - scaled @ system.cross.T)
    solved_shared = cho_solve(factor, shared - scaled @ images)
    solved_images = (images - system.cross.T @ solved_shared) / system.block[:, None]
    return solved_shared, solved_images


def _half_widths(
    system: _System, of_image: Any, design: Design, network: Integer[np.ndarray, " subjects"], n_effects: int
) -> Effects:
    """Half of each interval: G / (G - 1) times the sum of squares of the G networks' influences on an effect."""
    n_networks = int(network.max()) + 1
    if n_networks < 2:
        return np.full(n_effects, np.nan)
    influence_shared, _ = _solved(system, *_scores(system.error, of_image, design, network))
    influence = influence_shared[-n_effects:]  # effects x networks
    variance = n_networks / (n_networks - 1) * (influence**2).sum(axis=1)
    return np.sqrt(variance) * t.ppf(0.5 + LEVEL / 2, n_networks - 1)
