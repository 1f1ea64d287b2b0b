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

CENTRE_SD = 5.0  # of the prior of the mean difficulty, around 0, the mean ability
STEPS = 200  # the most steps of Newton's method
TOLERANCE = 1e-6  # logits; smaller changes in a step end the fit
LEVEL = 0.95  # of the intervals
Effects = Float[np.ndarray, " effects"]
Design = Float[np.ndarray, "items effects"]


class FacetFit(NamedTuple):
    """Effects on difficulty in logits, with 95 % intervals over networks.

    low, high: both ends of the interval of each effect; NaN for a single network.
    ability: of subjects, in logits.
    difficulty: of images without effects, in logits.
    log_likelihood: at the mode.
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
    """Effects on the difficulty of images, such as the effect of a severity step (linear logistic test model).

    logit P(right) = θ_s - b_image - Σ_k design_ik effect_k   (Fischer 1973; De Boeck & Wilson 2004, chapter 6)

    P is the chance that subject s is right on item i, with θ_s the subject's ability and b the difficulty of the item's
    image. The result is the mode of the posterior, by Newton's method, with θ ~ N(0, 1) and b ~ N(m, s²), and without a
    prior of the effects. m and s are learned; their own priors are wide.

    The 95 % interval of an effect is effect ± t sqrt(variance), over G networks, whose snapshots are the subjects:

    variance of an effect = G / (G - 1) Σ_g influence_g²,   t: Student's, with G - 1 degrees of freedom

    influence_g is what the responses of network g contribute to the effect (sandwich estimator by network).

    responses: subjects x items, an item being an image under a condition; 1, 0, NaN for no response.
    image: of each item, a number from 0.
    design: one column for each effect, e.g. the severity of fog, 0 for other items. Clean images, all 0, fix the
        origin. Raises FcaError for an effect without any item, and for a subject or an item without a response.
    network: of each subject, from 0; snapshots of one network are not independent, so intervals count networks.

    >>> rng = np.random.default_rng(0)
    >>> ability, easiness, severity = rng.normal(size=(20, 1, 1)), rng.normal(size=100), np.arange(3.0)[:, None]
    >>> p = 1 / (1 + np.exp(-(ability + easiness - 0.5 * severity)))  # subjects, severities, images
    >>> responses = (rng.random(p.shape) < p).astype(float).reshape(20, -1)
    >>> image, design = np.tile(np.arange(100), 3), np.repeat(severity, 100, axis=0)
    >>> fit_facets(responses, image, design, np.arange(20)).effect.round(1)
    array([0.5])
    """
    check_answered(responses)
    unused_effects = np.flatnonzero(~design.any(axis=0))
    if len(unused_effects):
        unused = f"none for effect {unused_effects[0]}"
        raise FcaError("items with an effect", unused, "1 or more", "leave out this effect")

    n_subjects = len(responses)
    n_images = int(image.max()) + 1
    # items x images, 1 where an item shows the image
    image_indicator = csr_array((np.ones(len(image)), (np.arange(len(image)), image)), shape=(len(image), n_images))

    shared = np.zeros(n_subjects + design.shape[1])  # parameters that all images share: abilities, then effects
    b = np.zeros(n_images)
    centre = 0.0  # m
    spread = 1.0  # s
    for _ in range(STEPS):
        system = _newton_system(responses, image_indicator, design, shared, b, spread)

        # gradient of the log posterior: first of the log likelihood, of which `_scores` returns a column for each group
        # of subjects, here for each single subject; then of the priors N(0, 1) of θ and N(m, s²) of b
        shared_scores, image_scores = _scores(system.error, image_indicator, design, np.arange(n_subjects))
        shared_gradient = shared_scores.sum(axis=1, keepdims=True)
        shared_gradient[:n_subjects, 0] -= shared[:n_subjects]
        image_gradient = image_scores.sum(axis=1, keepdims=True)
        image_gradient[:, 0] -= (b - centre) / spread**2

        # Newton step. One factor shortens all of it, so that no ability or effect moves by more than 1 logit and no
        # image by more than 3: a longer step could overshoot. Near the mode steps are far shorter, so the limits do not
        # change the result
        shared_column, b_column = _solve(system, shared_gradient, image_gradient)
        shared_step = shared_column[:, 0]
        b_step = b_column[:, 0]
        step_size = 1 / max(1.0, np.abs(shared_step).max(), np.abs(b_step).max() / 3)
        shared = shared + step_size * shared_step
        b = b + step_size * b_step

        # EM step of the prior of b, N(m, s²): the most probable m (its own prior is N(0, CENTRE_SD²)), then s. The
        # expected square of b - m also has the posterior variance of b, about 1 / curvature
        previous_centre = centre
        previous_spread = spread
        centre = float(b.sum() / (n_images + spread**2 / CENTRE_SD**2))
        spread = learned_spread(float(((b - centre) ** 2 + 1 / system.image_curvature).sum()), n_images)

        prior_change = max(abs(centre - previous_centre), abs(spread - previous_spread))
        if max(prior_change, np.abs(shared_step).max(), np.abs(b_step).max()) < TOLERANCE:
            break

    effect = shared[n_subjects:]
    half_width = _half_widths(system, image_indicator, design, network)
    return FacetFit(
        effect=effect,
        low=effect - half_width,
        high=effect + half_width,
        ability=shared[:n_subjects],
        difficulty=b,
        log_likelihood=system.log_likelihood,
    )


class _NewtonSystem(NamedTuple):
    """Residuals, blocks of the negative Hessian of the log posterior, and the log likelihood, at one point.

    error: residuals x - P, 0 for a missing response.
    shared_curvature: the block of abilities and effects, which all images share.
    image_curvature: the block of the difficulties of images; it is diagonal, and only its diagonal is here.
    cross_curvature: the block of the shared parameters with the difficulties of images.
    """

    error: Matrix
    shared_curvature: Float[np.ndarray, "shared shared"]
    image_curvature: Float[np.ndarray, " images"]
    cross_curvature: Float[np.ndarray, "shared images"]
    log_likelihood: float


def _newton_system(
    responses: Matrix, image_indicator: Any, design: Design, shared: np.ndarray, b: np.ndarray, spread: float
) -> _NewtonSystem:
    """The residuals, the negative Hessian of the log posterior and the log likelihood, at these parameters.

    logit P(right) = θ_s - b_image - Σ_k design_ik effect_k   for subject s and item i; θ ~ N(0, 1), b ~ N(m, s²)

    responses: subjects x items; 1, 0, NaN for no response.
    image_indicator: sparse, items x images, 1 where an item shows the image.
    design: how much of each effect k an item i has.
    shared: the parameters that all images share: abilities θ, then effects.
    b: difficulties of the images.
    spread: s, of the prior of b.
    """
    n_subjects = len(responses)
    present = ~np.isnan(responses)
    z = shared[:n_subjects, None] - image_indicator @ b - design @ shared[n_subjects:]  # logits
    p = expit(z)
    log_chance = np.where(responses == 1, z, 0.0) - np.logaddexp(0, z)  # of each response
    log_likelihood = float(np.where(present, log_chance, 0.0).sum())

    # blocks of Σ P (1 - P) x xᵀ over responses, where x has 1 for ability, -design for effects and -1 for the image
    weight = p * (1 - p) * present
    item_weight = weight.sum(axis=0)
    weighted_design = item_weight[:, None] * design
    ability_block = np.diag(weight.sum(axis=1) + 1.0)  # 1: curvature of the prior N(0, 1)
    ability_by_effect = -weight @ design
    effect_block = design.T @ weighted_design
    ability_by_image = -(image_indicator.T @ weight.T).T  # -weight @ image_indicator, with the sparse matrix first
    effect_by_image = (image_indicator.T @ weighted_design).T

    return _NewtonSystem(
        error=np.where(present, responses - p, 0.0),
        shared_curvature=np.block([[ability_block, ability_by_effect], [ability_by_effect.T, effect_block]]),
        image_curvature=image_indicator.T @ item_weight + spread**-2,  # s⁻²: curvature of the prior N(m, s²)
        cross_curvature=np.vstack([ability_by_image, effect_by_image]),
        log_likelihood=log_likelihood,
    )


def _scores(
    error: Matrix, image_indicator: Any, design: Design, group: Integer[np.ndarray, " subjects"]
) -> tuple[Float[np.ndarray, "shared groups"], Float[np.ndarray, "images groups"]]:
    """The gradient of the log likelihood of the responses of each group of subjects, such as a network's snapshots.

    Returns the derivatives by the shared parameters (abilities, then effects), and by the difficulties of images. The
    logit of a right response is ability - difficulty of the image - design x effects.

    error: residuals x - P, subjects x items; 0 for a missing response.
    image_indicator: sparse, items x images, 1 where an item shows the image.
    design: how much of each effect an item has.
    group: of each subject, a number from 0.
    """
    membership = np.eye(int(group.max()) + 1)[group]  # subjects x groups, 1 in the subject's group
    group_error = membership.T @ error  # groups x items
    by_ability = membership * error.sum(axis=1, keepdims=True)
    by_effect = -(group_error @ design).T
    by_image = -(image_indicator.T @ group_error.T)
    return np.vstack([by_ability, by_effect]), by_image


def _solve(
    system: _NewtonSystem, shared_gradient: np.ndarray, image_gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of the negative Hessian times gradients (one a column), for shared parameters and for images.

    With blocks A (shared), D (images, diagonal) and C (cross), images are eliminated (Schur complement):

    shared = (A - C D⁻¹ Cᵀ)⁻¹ (g_shared - C D⁻¹ g_images),   images = D⁻¹ (g_images - Cᵀ shared)

    system: has the blocks of the negative Hessian.
    shared_gradient, image_gradient: g_shared and g_images, the derivatives by the shared parameters (abilities, then
        effects) and by the difficulties of images.
    """
    scaled_cross = system.cross_curvature / system.image_curvature  # C D⁻¹
    factor = cho_factor(system.shared_curvature - scaled_cross @ system.cross_curvature.T)
    shared = cho_solve(factor, shared_gradient - scaled_cross @ image_gradient)
    images = (image_gradient - system.cross_curvature.T @ shared) / system.image_curvature[:, None]
    return shared, images


def _half_widths(
    system: _NewtonSystem, image_indicator: Any, design: Design, network: Integer[np.ndarray, " subjects"]
) -> Effects:
    """Half the width of each effect's 95 % interval over networks; NaN for a single network.

    variance of an effect = G / (G - 1) Σ_g influence_g²   over G networks g

    The influence of network g on the effect is the effect's row of the inverse of the negative Hessian times the scores
    (gradient of the log likelihood) of the network's responses. The interval uses Student's t with G - 1 degrees of
    freedom.

    system: residuals and negative Hessian at the mode.
    image_indicator: sparse, items x images, 1 where an item shows the image.
    design: items x effects.
    network: of each subject, a number from 0.
    """
    n_effects = design.shape[1]
    n_networks = int(network.max()) + 1
    if n_networks < 2:
        return np.full(n_effects, np.nan)

    shared_scores, image_scores = _scores(system.error, image_indicator, design, network)
    shared_influence, _ = _solve(system, shared_scores, image_scores)  # the inverse times scores
    influence = shared_influence[-n_effects:]  # effects x networks, as effects come after the abilities
    variance = n_networks / (n_networks - 1) * (influence**2).sum(axis=1)
    return np.sqrt(variance) * t.ppf(0.5 + LEVEL / 2, n_networks - 1)
