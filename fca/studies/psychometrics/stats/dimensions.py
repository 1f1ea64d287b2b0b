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

SWEEPS = 60
TOLERANCE = 1e-3  # of the change of a logit in a sweep, root mean square
FLOOR = 1e-3  # of a learned variance
LONGEST_STEP = 2.0  # of a parameter
HIDDEN_SHARE = 0.1  # of cells

Abilities = Float[np.ndarray, "subjects dimensions"]
Loadings = Float[np.ndarray, "items k"]


class MultiFit(NamedTuple):
    """logit P(right) = Σ_d loading_id θ_sd + intercept_i.

    item: loadings, then the intercept.   mean, variance: of each column of `item`, its normal prior.
    spread: posterior covariance of each item, abilities held.
    """

    ability: Abilities
    item: Loadings
    mean: Float[np.ndarray, " k"]
    variance: Float[np.ndarray, " k"]
    spread: Float[np.ndarray, "items k k"]

    def probability(self) -> Matrix:
        """Predicted chance that each subject is right on each item, averaged over what the items may be.

        P = 1 / (1 + exp(-z / sqrt(1 + π v / 8))), v the posterior variance of the logit z (MacKay 1992)
        """
        design = _design(self.ability)
        variance = np.einsum("sk,ikl,sl->si", design, self.spread, design, optimize=True)
        return expit(design @ self.item.T / np.sqrt(1 + np.pi * variance / 8))


def _design(ability: Abilities) -> Float[np.ndarray, "subjects k"]:
    return np.column_stack([ability, np.ones(len(ability))])


def fit_dimensions(responses: Matrix, dimensions: int) -> MultiFit:
    """Compensatory multidimensional 2PL (Reckase 2009): the mode for θ ~ N(0, I) and normal priors of the items.

    Newton's steps, of all items and of all subjects in turn; then ability gets unit variance again, and means and
    variances of the loadings and of the intercept are learned by an EM step (Laplace), so that a dimension which the
    responses do not show shrinks away. Dimension d starts from the residuals of d - 1. Deterministic; axes are those
    of the fit and have no meaning of their own.

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> fit_dimensions(responses, 2).item.shape
    (50, 3)
    """
    check_responses(responses)
    if not 1 <= dimensions < len(responses):
        raise FcaError("dimensions", dimensions, f"1 to {len(responses) - 1}, fewer than subjects", "lower it")
    # The first dimension starts from the shares right
    present = ~np.isnan(responses)
    ability_logit = smoothed_logit(np.nansum(responses, axis=1), present.sum(axis=1).astype(float))
    first = (ability_logit - ability_logit.mean()) / max(float(ability_logit.std()), 0.1)
    easiness = smoothed_logit(np.nansum(responses, axis=0), present.sum(axis=0).astype(float))
    item = np.column_stack([np.ones_like(easiness), easiness])
    start = MultiFit(first[:, None], item, item.mean(axis=0), np.ones(2), np.zeros((len(item), 2, 2)))
    fit = _settled(responses, start)

    # Each further one from the first principal component of the residuals
    while fit.ability.shape[1] < dimensions:
        residuals = np.where(present, responses - expit(_design(fit.ability) @ fit.item.T), 0.0)
        _, vectors = np.linalg.eigh(residuals @ residuals.T)
        component = vectors[:, -1] * np.sqrt(len(vectors))
        start = MultiFit(
            ability=np.column_stack([fit.ability, component]),
            item=np.insert(fit.item, -1, 0.0, axis=1),
            mean=np.insert(fit.mean, -1, 0.0),
            variance=np.insert(fit.variance, -1, 1.0),
            spread=fit.spread,
        )
        fit = _settled(responses, start)
    return fit


def _settled(responses: Matrix, fit: MultiFit) -> MultiFit:
    """Sweeps until logits hardly change."""
    logits = _design(fit.ability) @ fit.item.T
    for _ in range(SWEEPS):
        fit = _sweep(responses, fit)
        new_logits = _design(fit.ability) @ fit.item.T
        change = float(np.sqrt(np.mean((new_logits - logits) ** 2)))
        logits = new_logits
        if change < TOLERANCE:
            break
    return fit


def _sweep(responses: Matrix, fit: MultiFit) -> MultiFit:
    """One step of all items and of all subjects, abilities of unit variance again, and the priors of the items."""
    k = len(fit.mean)
    item, spread = _newton(responses.T, _design(fit.ability), fit.item, fit.mean, fit.variance)
    ability, ability_covariance = fit_ability(responses, fit._replace(item=item))

    # unit variance, as the prior has it; the first axis keeps its direction, and no probability changes
    centre = ability.mean(axis=0)
    covariance = np.cov(ability.T, bias=True).reshape(k - 1, k - 1) + ability_covariance.mean(axis=0)
    scale = np.linalg.cholesky(covariance)
    unit = np.eye(k)
    unit[:-1, :-1] = scale
    unit[:-1, -1] = centre
    item = item @ unit
    spread = unit.T @ spread @ unit
    ability = np.linalg.solve(scale, (ability - centre).T).T

    # only the first loading and the intercept have a mean; i: items, k: columns of `item`
    has_mean = np.isin(np.arange(k), [0, k - 1])
    mean = np.where(has_mean, item.mean(axis=0), 0.0)
    posterior_variance = np.einsum("ikk->k", spread) / len(item)
    variance = np.maximum(((item - mean) ** 2).mean(axis=0) + posterior_variance, FLOOR)
    return MultiFit(ability, item, mean, variance, spread)


def fit_ability(responses: Matrix, fit: MultiFit) -> tuple[Abilities, Float[np.ndarray, "subjects d d"]]:
    """One Newton step of abilities, items held, from those of the fit; and their posterior covariances.

    >>> fit = MultiFit(np.zeros((1, 1)), np.array([[1.0, 0.0]]), np.zeros(2), np.ones(2), np.zeros((1, 2, 2)))
    >>> fit_ability(np.array([[1.0]]), fit)[0]
    array([[0.4]])
    """
    d = fit.ability.shape[1]
    loadings = fit.item[:, :-1]
    intercept = fit.item[:, -1]
    return _newton(responses, loadings, fit.ability, np.zeros(d), np.ones(d), intercept)


def _newton(
    responses: Float[np.ndarray, "rows columns"],
    design: Float[np.ndarray, "columns k"],
    beta: Float[np.ndarray, "rows k"],
    mean: Float[np.ndarray, " k"],
    variance: Float[np.ndarray, " k"],
    offset: Float[np.ndarray, " columns"] | float = 0.0,
) -> tuple[Float[np.ndarray, "rows k"], Float[np.ndarray, "rows k k"]]:
    """One step of every row's logistic regression with a normal prior, and the inverse Hessian before it."""
    k = design.shape[1]
    present = ~np.isnan(responses)
    p = expit(beta @ design.T + offset)
    gradient = np.where(present, responses - p, 0.0) @ design - (beta - mean) / variance
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    curvature = ((p * (1 - p) * present) @ products).reshape(-1, k, k) + np.diag(1 / variance)
    inverse = np.linalg.inv(curvature)
    step = np.einsum("rkl,rl->rk", inverse, gradient)  # r: rows, k, l: coefficients
    step_length = np.abs(step).max(axis=1, keepdims=True)
    return beta + step * np.minimum(1.0, LONGEST_STEP / np.maximum(step_length, CERTAIN)), inverse


class Losses(NamedTuple):
    """Mean negative log likelihood, in nats, of each subject's hidden responses; NaN for one without any."""

    dimensions: int
    hold_out: str
    loss: Float[np.ndarray, " subjects"]


def held_out_dimensions(responses: Matrix, network: Network, most: int = 3, seed: int = 0) -> Iterator[Losses]:
    """Loss of 1 to `most` dimensions on held-out responses: cells, then subjects, fewest dimensions first.

    Cells (a tenth) and subjects as `fca.studies.irt.stats.held_out_fit` has them; with two networks cells alone.
    Snapshots of one network never stand on both sides. Raises FcaError as `hide` and `fit_irt` do.

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> [(losses.dimensions, losses.hold_out) for losses in held_out_dimensions(responses, np.arange(20), most=1)]
    [(1, 'cells'), (1, 'subjects')]
    """
    check_responses(responses)
    rng = np.random.default_rng(seed)
    hidden = hide(responses, HIDDEN_SHARE, rng, network)
    for dimensions in range(1, most + 1):
        fit = fit_dimensions(np.where(hidden, np.nan, responses), dimensions)
        yield Losses(dimensions, "cells", _loss(responses, fit.probability(), hidden))
    if network.max() < 2:
        return
    split = split_networks(responses, network, rng)
    for dimensions in range(1, most + 1):
        loss = np.full(len(responses), np.nan)
        for k in range(split.folds):
            is_test = split.fold == k
            loss[is_test] = _loss_of_new(responses, is_test, split.shown[is_test], dimensions)
        yield Losses(dimensions, "subjects", loss)


def _loss_of_new(
    responses: Matrix, is_test: Bool[np.ndarray, " subjects"], is_shown: Bool[np.ndarray, "new items"], dimensions: int
) -> Float[np.ndarray, " new"]:
    """Loss of networks that the items were not fitted to, whose abilities come from their shown responses."""
    is_known_item = (~np.isnan(responses[~is_test])).any(axis=0)
    train = responses[~is_test][:, is_known_item]
    new = responses[is_test][:, is_known_item]
    is_shown = is_shown[:, is_known_item]

    fit = fit_dimensions(train, min(dimensions, len(train) - 1))
    fit = fit._replace(ability=np.zeros((len(new), fit.ability.shape[1])))
    shown_responses = np.where(is_shown, new, np.nan)
    for _ in range(SWEEPS):
        ability, _ = fit_ability(shown_responses, fit)
        change = np.abs(ability - fit.ability).max()
        fit = fit._replace(ability=ability)
        if change < TOLERANCE:
            break
    return _loss(new, fit.probability(), ~is_shown & ~np.isnan(new))


def _loss(responses: Matrix, p: Matrix, hidden: Bool[np.ndarray, "subjects items"]) -> Float[np.ndarray, " subjects"]:
    """Mean negative log likelihood of each subject's hidden responses."""
    likelihood = np.clip(np.where(responses == 1, p, 1 - p), CERTAIN, 1.0)
    total = -(np.log(likelihood) * hidden).sum(axis=1)
    n_hidden = hidden.sum(axis=1)
    return np.where(n_hidden > 0, total / np.maximum(n_hidden, 1), np.nan)
