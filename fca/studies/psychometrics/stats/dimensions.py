"""How many abilities do responses show: models of one to three dimensions, judged by held-out responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from fca.studies.irt.stats.held_out import CERTAIN, Network, hide, split_networks
from fca.studies.irt.stats.likelihood import smoothed_logit
from fca.studies.irt.stats.model import Matrix, check_responses
from fca.types import FcaError

SWEEPS = 60  # the most sweeps of a fit
TOLERANCE = 1e-3  # root mean square change of the logits in a sweep, below which a fit has converged
FLOOR = 1e-3  # of a learned variance
LONGEST = 2.0  # largest change of a parameter in one step
SHARE = 0.1  # the share of the responses that are hidden

Abilities = Float[np.ndarray, "subjects dimensions"]
Loadings = Float[np.ndarray, "items k"]


class MultiFit(NamedTuple):
    """A fit with several abilities: logit P(right) = Σ_d loading_id θ_sd + intercept_i.

    ability: θ, subjects x dimensions d.
    item: parameters of each item i: its loadings, then the intercept.
    mean, variance: of the normal prior of each column of `item`, which all items share.
    spread: posterior covariance of each item's parameters, given the abilities.
    """

    ability: Abilities
    item: Loadings
    mean: Float[np.ndarray, " k"]
    variance: Float[np.ndarray, " k"]
    spread: Float[np.ndarray, "items k k"]

    def probability(self) -> Matrix:
        """Predicted chance that each subject is right on each item, averaged over the posterior of the items.

        P = 1 / (1 + exp(-z / sqrt(1 + π v / 8)))   (MacKay 1992)

        z is the logit at the mode, and v its posterior variance, from the covariance `spread` of an item's parameters.
        """
        design = _with_intercept(self.ability)
        # s: subject, i: item, k and l: parameters of the item
        variance = np.einsum("sk,ikl,sl->si", design, self.spread, design, optimize=True)
        return expit(design @ self.item.T / np.sqrt(1 + np.pi * variance / 8))

    def logits(self) -> Matrix:
        """The logit z of each subject and item, at the mode."""
        return _with_intercept(self.ability) @ self.item.T


def _with_intercept(ability: Abilities) -> Float[np.ndarray, "subjects k"]:
    """The design of the items: abilities, then a column of ones for the intercept."""
    return np.column_stack([ability, np.ones(len(ability))])


def fit_dimensions(responses: Matrix, dimensions: int) -> MultiFit:
    """Fit the compensatory multidimensional 2PL (Reckase 2009), in which several abilities add up.

    logit P(subject s is right on item i) = Σ_d loading_id θ_sd + intercept_i   over dimensions d

    The result is the mode for abilities θ ~ N(0, I) and normal priors of the items. Each sweep takes a Newton step of
    all items, then one of all subjects, and rescales ability to unit variance. An EM step (Laplace) then learns means
    and variances of the priors of the loadings and the intercept, so that a dimension which the responses do not
    support shrinks to nothing. The fit starts with one dimension and adds one at a time, from the residuals of the fit
    before. It is deterministic; the axes are arbitrary.

    responses: subjects x items; 1, 0, NaN for no response. Raises FcaError for responses that cannot be fitted, and
        unless 1 <= dimensions < number of subjects.

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> fit_dimensions(responses, 2).item.shape
    (50, 3)
    """
    check_responses(responses)
    if not 1 <= dimensions < len(responses):
        raise FcaError("dimensions", dimensions, f"1 to {len(responses) - 1}, fewer than subjects", "lower it")
    fit = _sweep_until_converged(responses, _one_dimensional_start(responses))
    while fit.ability.shape[1] < dimensions:
        fit = _sweep_until_converged(responses, _with_new_dimension(responses, fit))
    return fit


def _one_dimensional_start(responses: Matrix) -> MultiFit:
    """A fit of one dimension to start from: logit P = loading θ + intercept, for ability θ.

    Abilities and intercepts (the easiness of items) are logits of the shares of right responses, the abilities
    standardised; all loadings are 1. `mean` and `variance` describe the normal prior of each column of `item`, and
    `spread` the posterior covariance of each item's two parameters. `spread` is not known before the first sweep, which
    improves all abilities and items once.
    """
    present = ~np.isnan(responses)
    # from numbers of right and of all responses; smoothed: finite where all or none are right
    ability = smoothed_logit(np.nansum(responses, axis=1), present.sum(axis=1).astype(float))
    # at least 0.1: the standard deviation of subjects of equal accuracy is 0
    standardised = (ability - ability.mean()) / max(float(ability.std()), 0.1)

    easiness = smoothed_logit(np.nansum(responses, axis=0), present.sum(axis=0).astype(float))
    item = np.column_stack([np.ones_like(easiness), easiness])  # items x (loading, intercept)
    return MultiFit(
        ability=standardised[:, None],
        item=item,
        mean=item.mean(axis=0),
        variance=np.ones(2),
        spread=np.zeros((len(item), 2, 2)),  # the first sweep replaces it without reading it
    )


def _with_new_dimension(responses: Matrix, fit: MultiFit) -> MultiFit:
    """The fit with one more ability to start from, on which no item loads yet.

    The new ability is the first principal component of the residuals x - P, which the fit does not explain yet: x is
    a response, 1 or 0, and P its chance to be right. `item` has a column of loadings for each ability and then the
    intercepts; `mean` and `variance` are those of the normal prior of each of its columns. `spread`, the posterior
    covariance of each item's parameters, keeps its old shape, because the next step of the fit (a sweep, which improves
    all parameters once) replaces it without reading it.
    """
    residuals = np.where(~np.isnan(responses), responses - expit(fit.logits()), 0.0)
    _, eigenvectors = np.linalg.eigh(residuals @ residuals.T)  # eigenvalues ascend: the last one is the largest
    component = eigenvectors[:, -1] * np.sqrt(len(eigenvectors))  # of mean square 1 over subjects
    # the last column of items is the intercept: the loading of the new ability goes before it
    return MultiFit(
        ability=np.column_stack([fit.ability, component]),
        item=np.insert(fit.item, -1, 0.0, axis=1),
        mean=np.insert(fit.mean, -1, 0.0),  # the prior of the new loadings is N(0, 1)
        variance=np.insert(fit.variance, -1, 1.0),
        spread=fit.spread,
    )


def _sweep_until_converged(responses: Matrix, fit: MultiFit) -> MultiFit:
    """The fit after sweeps, each of which improves all abilities, items and priors once.

    Sweeps end when the predicted logits of all responses hardly change (by TOLERANCE), or after SWEEPS of them.
    """
    logits = fit.logits()
    for _ in range(SWEEPS):
        fit = _sweep(responses, fit)
        previous_logits = logits
        logits = fit.logits()
        if float(np.sqrt(np.mean((logits - previous_logits) ** 2))) < TOLERANCE:
            break
    return fit


def _sweep(responses: Matrix, fit: MultiFit) -> MultiFit:
    """The fit after one sweep of the model logit P = Σ_d loading_d θ_d + intercept, for abilities θ.

    A sweep takes one Newton step of all items and one of all abilities. It then rescales the abilities to mean 0 and
    variance 1, uncorrelated. Last, an EM step learns the prior: each column of `item` (loadings, then the intercept)
    has a normal prior with a `mean` and a `variance` that all items share. `spread` is the posterior covariance of each
    item's k parameters; an EM step adds it to the variance, as the parameters are not known exactly.
    """
    # one regression for each item (a row of responses.T) on the abilities, then one for each subject on the items
    item, spread = _newton_step(responses.T, _with_intercept(fit.ability), fit.item, fit.mean, fit.variance)
    ability, ability_covariance = fit_ability(responses, fit._replace(item=item))

    # θ = L θ' + c with θ' of unit variance; L is triangular, so the first axis keeps its direction.
    # Loadings and intercept change so that no logit does
    k = len(fit.mean)
    centre = ability.mean(axis=0)  # c
    # covariance of the estimates, plus their uncertainty; reshape: for a single ability np.cov is a number
    covariance = np.cov(ability.T, bias=True).reshape(k - 1, k - 1) + ability_covariance.mean(axis=0)
    scale = np.linalg.cholesky(covariance)  # L
    transform = np.eye(k)
    transform[:-1, :-1] = scale
    transform[:-1, -1] = centre
    item = item @ transform
    spread = transform.T @ spread @ transform
    ability = np.linalg.solve(scale, (ability - centre).T).T

    # only the first loading and the intercept have a prior mean other than 0. The prior of the further loadings has
    # mean 0, so that dimensions which the responses do not support shrink to nothing
    has_mean = np.isin(np.arange(k), [0, k - 1])
    mean = np.where(has_mean, item.mean(axis=0), 0.0)
    posterior_variance = np.einsum("ikk->k", spread) / len(item)  # of each column: mean over items i of the diagonals
    variance = np.maximum(((item - mean) ** 2).mean(axis=0) + posterior_variance, FLOOR)
    return MultiFit(ability, item, mean, variance, spread)


def fit_ability(responses: Matrix, fit: MultiFit) -> tuple[Abilities, Float[np.ndarray, "subjects d d"]]:
    """Abilities after one Newton step from the abilities of the fit, with its items; and their posterior covariances.

    The prior of each ability is N(0, 1).

    responses: subjects x items; 1, 0, NaN for no response.

    >>> fit = MultiFit(np.zeros((1, 1)), np.array([[1.0, 0.0]]), np.zeros(2), np.ones(2), np.zeros((1, 2, 2)))
    >>> fit_ability(np.array([[1.0]]), fit)[0]
    array([[0.4]])
    """
    d = fit.ability.shape[1]
    loadings = fit.item[:, :-1]
    intercept = fit.item[:, -1]
    return _newton_step(responses, loadings, fit.ability, np.zeros(d), np.ones(d), intercept)


def _newton_step(
    responses: Float[np.ndarray, "rows columns"],
    design: Float[np.ndarray, "columns k"],
    beta: Float[np.ndarray, "rows k"],
    mean: Float[np.ndarray, " k"],
    variance: Float[np.ndarray, " k"],
    offset: Float[np.ndarray, " columns"] | float = 0.0,
) -> tuple[Float[np.ndarray, "rows k"], Float[np.ndarray, "rows k k"]]:
    """One Newton step of the logistic regression of every row, logit P = beta x + offset, with a normal prior of beta.

    P is the chance of a right response. Rows are subjects (beta is their abilities) or items (beta is their
    parameters). Returns the coefficients after the step, and the inverse of the negative Hessian of the log posterior
    at the point from which the step starts, which approximates their posterior covariance.

    responses: 1, 0, NaN for no response.
    design: x of each column.
    beta: coefficients of each row, where the step starts.
    mean, variance: of the prior of each coefficient.
    offset: known part of the logit, for each column.
    """
    k = design.shape[1]
    present = ~np.isnan(responses)
    p = expit(beta @ design.T + offset)
    gradient = np.where(present, responses - p, 0.0) @ design - (beta - mean) / variance

    # Σ_c P (1 - P) x_c x_cᵀ over columns c, plus the curvature of the prior
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)  # x_c x_cᵀ: columns x k²
    curvature = ((p * (1 - p) * present) @ products).reshape(-1, k, k) + np.diag(1 / variance)
    inverse = np.linalg.inv(curvature)

    # a shorter step where a coefficient would change by more than LONGEST
    step = np.einsum("rkl,rl->rk", inverse, gradient)  # r: row, k and l: coefficients
    largest_change = np.abs(step).max(axis=1, keepdims=True)
    step_size = np.minimum(1.0, LONGEST / np.maximum(largest_change, CERTAIN))  # CERTAIN is tiny: no division by 0
    return beta + step * step_size, inverse


class Losses(NamedTuple):
    """How well one number of dimensions predicts hidden responses.

    hold_out: what was hidden: "cells" (single responses) or "subjects".
    loss: mean negative log likelihood, in nats, of each subject's hidden responses; NaN for a subject without any.
    """

    dimensions: int
    hold_out: str
    loss: Float[np.ndarray, " subjects"]


def held_out_dimensions(
    responses: Matrix, network: Network, max_dimensions: int = 3, seed: int = 0
) -> Iterator[Losses]:
    """How well models of 1 to `max_dimensions` dimensions of ability predict responses that were hidden from their fit.

    Yields the loss for each number of dimensions, first on hidden cells, then on held-out subjects. The loss is the
    mean negative log likelihood, in nats, of each subject's hidden responses.

    Cells: about a tenth of all pairs of network and item is hidden at random, and predicted by a fit to the rest.
    Subjects: a fifth of the networks (a fold) is left out, and items are fitted to the others. The abilities of the
    subjects left out are estimated from a random half of their responses, and the other half is predicted. Every
    network is left out once. With fewer than three networks no subjects are held out.

    Subjects can be snapshots of one network, which are not independent: they are all hidden, or left out, together.

    responses: subjects x items; 1, 0, NaN for no response.
    network: of each subject, a number from 0.
    Raises FcaError for responses that cannot be fitted, if none can be hidden (as with a single network), and for as
    many dimensions as subjects.

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> losses = held_out_dimensions(responses, np.arange(20), max_dimensions=1)
    >>> [(loss.dimensions, loss.hold_out) for loss in losses]
    [(1, 'cells'), (1, 'subjects')]
    """
    check_responses(responses)
    rng = np.random.default_rng(seed)

    hidden = hide(responses, SHARE, rng, network)
    for dimensions in range(1, max_dimensions + 1):
        fit = fit_dimensions(np.where(hidden, np.nan, responses), dimensions)
        yield Losses(dimensions, "cells", _loss_by_subject(responses, fit.probability(), hidden))

    if network.max() < 2:  # numbers from 0: fewer than the three networks that a split takes
        return

    split = split_networks(responses, network, rng)
    for dimensions in range(1, max_dimensions + 1):
        loss = np.full(len(responses), np.nan)
        for fold in range(split.folds):
            is_test = split.fold == fold
            is_observed = split.shown[is_test]  # the responses that show the abilities of the held-out subjects
            loss[is_test] = _loss_of_new_subjects(responses, is_test, is_observed, dimensions)
        yield Losses(dimensions, "subjects", loss)


def _loss_of_new_subjects(
    responses: Matrix,
    is_test: Bool[np.ndarray, " subjects"],
    is_observed: Bool[np.ndarray, "new items"],
    dimensions: int,
) -> Float[np.ndarray, " new"]:
    """The loss of each new subject, whose ability is estimated from a part of its responses, on its other responses.

    The loss is the mean negative log likelihood, in nats. Items are fitted to the training subjects only. Items without
    a response of a training subject are left out.

    is_test: which subjects are new; the others are the training subjects.
    is_observed: from which responses of the new subjects ability is estimated; the loss is on the other responses.
    dimensions: number of abilities of the fitted model.
    """
    has_training_response = (~np.isnan(responses[~is_test])).any(axis=0)
    train = responses[~is_test][:, has_training_response]
    test = responses[is_test][:, has_training_response]
    is_observed = is_observed[:, has_training_response]

    # the items of the training subjects; new subjects start at the mean ability
    fit = fit_dimensions(train, min(dimensions, len(train) - 1))  # a fit takes fewer dimensions than subjects
    fit = fit._replace(ability=np.zeros((len(test), fit.ability.shape[1])))

    # Newton steps, each from the abilities in `fit`, until the abilities of the new subjects hardly change
    observed = np.where(is_observed, test, np.nan)
    for _ in range(SWEEPS):
        ability, _ = fit_ability(observed, fit)
        change = np.abs(ability - fit.ability).max()
        fit = fit._replace(ability=ability)
        if change < TOLERANCE:
            break

    return _loss_by_subject(test, fit.probability(), ~is_observed & ~np.isnan(test))


def _loss_by_subject(
    responses: Matrix, p: Matrix, hidden: Bool[np.ndarray, "subjects items"]
) -> Float[np.ndarray, " subjects"]:
    """Mean negative log likelihood of each subject's hidden responses; NaN for a subject without any.

    responses: 1, 0, NaN for no response.
    p: predicted chance of a right response.
    hidden: which responses count.
    """
    likelihood = np.clip(np.where(responses == 1, p, 1 - p), CERTAIN, 1.0)  # at least CERTAIN, so that no loss is inf
    total = -(np.log(likelihood) * hidden).sum(axis=1)
    n_hidden = hidden.sum(axis=1)
    return np.where(n_hidden > 0, total / np.maximum(n_hidden, 1), np.nan)
