"""One step of Newton's method in all parameters at once, the items eliminated (Schur complement)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve

from fca.stats.irt.blocks import backward, cholesky, forward
from fca.stats.irt.cells import Cells
from fca.stats.irt.priors import CENTRE_SD
from fca.stats.irt.state import State, item_prior


def log_posterior(state: State, cells: Cells, count: Float[np.ndarray, " groups"]) -> float:
    """Log likelihood and log prior, without constants."""
    shared = state.ability @ state.ability / 2 + state.prior.centre**2 / (2 * CENTRE_SD**2)
    return float(count @ (cells.log_likelihood + item_prior(state)[0]) - shared)


@dataclass(frozen=True)
class System:
    """Gradient and negative Hessian of the log posterior.

    Of one item of each group: gradient `item`, `block`. Shared by all (abilities, then the prior's centre): gradient
    `shared`, `diagonal`. Between an item's k-th parameter and the shared ones: `cross`.
    """

    item: Float[np.ndarray, "k groups"]
    block: Float[np.ndarray, "k k groups"]
    shared: Float[np.ndarray, " shared"]
    diagonal: Float[np.ndarray, " shared"]
    cross: Float[np.ndarray, "k shared groups"]


def derivatives(state: State, cells: Cells, count: Float[np.ndarray, " groups"], observed: bool) -> System:
    """All derivatives at a point that `cells` was filled at.

    observed: the Hessian itself where an item's own block of it is positive. Otherwise, and always for asymptotes, its
    expectation (Fisher information), which is positive everywhere.
    """
    theta, a, b, k = state.ability, state.slope, state.difficulty, len(state.item)
    _, gradient, curvature = item_prior(state)
    block = np.zeros((k, k, len(b)))
    cross = np.zeros((k, len(theta) + 1, len(b)))
    powers = np.stack([np.ones_like(theta), theta, theta**2])
    error, weight = powers[:2] @ cells.error, powers @ cells.weight
    gradient[-1] -= a * error[0]
    block[-1, -1] = a**2 * weight[0]
    np.multiply(cells.weight, -(a**2), out=cross[-1, :-1])
    cross[-1, -1] = -(state.prior.spread**-2)
    _add_asymptotes(gradient, block, cross, cells, powers, a, b)
    if k > 1:
        slack = a * (error[1] - b * error[0])
        gradient[-2] += slack
        block[-2, -2] = a**2 * (weight[2] - 2 * b * weight[1] + b**2 * weight[0])
        block[-2, -1] = block[-1, -2] = -(a**2) * (weight[1] - b * weight[0])
        np.subtract(theta[:, None], b, out=cross[-2, :-1])
        cross[-2, :-1] *= cells.weight
        cross[-2, :-1] *= a**2
    for i in range(k):
        block[i, i] += curvature[i]
    if observed and k > 1:  # z has second derivatives itself, by (log a, log a), (log a, b) and (log a, θ)
        block[-2, -2] -= slack
        block[-2, -1] += a * error[0]
        block[-1, -2] += a * error[0]
        cross[-2, :-1] -= a * cells.error
        _make_positive(block)
    prior = state.prior
    centre = count @ (b - prior.centre) / prior.spread**2 - prior.centre / CENTRE_SD**2
    shared = np.append(cells.error @ (count * a) - theta, centre)
    diagonal = np.append(cells.weight @ (count * a**2) + 1.0, count.sum() / prior.spread**2 + CENTRE_SD**-2)
    return System(gradient, block, shared, diagonal, cross)


def _add_asymptotes(
    gradient: np.ndarray,
    block: np.ndarray,
    cross: np.ndarray,
    cells: Cells,
    powers: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> None:
    """The rows of feasibility and guess, where they are learned: z depends on log a, b and θ."""
    m = len(cells.asymptote)
    gradient[:m] += cells.asymptote
    block[:m, :m] = cells.own
    for i in range(m):
        mixed = powers[:2] @ cells.mixed[i]
        block[i, -1] = block[-1, i] = -a * mixed[0]
        block[i, -2] = block[-2, i] = a * (mixed[1] - b * mixed[0])
        np.multiply(cells.mixed[i], a, out=cross[i, :-1])


def _make_positive(block: Float[np.ndarray, "k k groups"]) -> None:
    """Where an item's posterior is not concave, turn negative curvatures round: the step still ascends."""
    values = np.linalg.eigvalsh(block.transpose(2, 0, 1))
    bad = np.flatnonzero(values[:, 0] < 1e-3 * values[:, -1])
    if len(bad):
        value, vector = np.linalg.eigh(block[:, :, bad].transpose(2, 0, 1))
        value = np.maximum(np.abs(value), 1e-3 * np.abs(value).max(axis=1, keepdims=True))
        block[:, :, bad] = np.einsum("gik,gk,gjk->ijg", vector, value, vector)


@dataclass(frozen=True)
class Eliminated:
    """The shared parameters' own system, the items solved for: `complement` x = `pushed`.

    lower: Cholesky factors L of the items' blocks.   half_item, half_cross: L⁻¹ of their gradients and crosses.
    """

    complement: Float[np.ndarray, "shared shared"]
    pushed: Float[np.ndarray, " shared"]
    lower: Float[np.ndarray, "k k groups"]
    half_item: Float[np.ndarray, "k groups"]
    half_cross: Float[np.ndarray, "k shared groups"]


def eliminate(now: System, count: Float[np.ndarray, " groups"]) -> Eliminated:
    """Schur complement of all items; uses up `now.cross`. Raises LinAlgError if a block is not positive."""
    lower = cholesky(now.block)
    half_item, half_cross = now.item.copy(), now.cross
    forward(lower, half_item)
    forward(lower, half_cross)
    complement, pushed = np.diag(now.diagonal), now.shared.copy()
    for cross, item in zip(half_cross, half_item, strict=True):
        weighted = cross * np.sqrt(count)
        complement -= weighted @ weighted.T
        pushed -= cross @ (count * item)
    return Eliminated(complement, pushed, lower, half_item, half_cross)


def step(small: Eliminated, free: slice) -> tuple[Float[np.ndarray, " shared"], Float[np.ndarray, "k groups"]]:
    """Newton's step of the shared parameters in `free`, and of all items; raises LinAlgError if it is no ascent."""
    shared = np.zeros(len(small.pushed))
    if len(shared[free]):
        shared[free] = cho_solve(cho_factor(small.complement[free, free]), small.pushed[free])
    item = small.half_item - np.stack([shared @ cross for cross in small.half_cross])
    backward(small.lower, item)
    return shared, item
