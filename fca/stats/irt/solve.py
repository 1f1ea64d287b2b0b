"""The mode of the posterior of an item response model, by Newton steps that never lower it.

One step moves all parameters at once; between steps the scales of the priors are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fca.stats.irt.likelihood import LEARNED, Cells, Groups, Parameters, Prior, Responses, State, Subjects, fill

CENTRE_SD = 5.0  # of the mean difficulty around 0, the mean ability
SPREAD_PRIOR = 3.0  # half-normal scale of the spread of difficulty
SPREAD_FLOOR = 0.1  # in the same unit

Shared = Float[np.ndarray, " shared"]  # abilities, then the mean difficulty
Crosses = Float[np.ndarray, "k shared groups"]
Blocks = Float[np.ndarray, "k k groups"]
Scales = Float[np.ndarray, "2"]


# Many small symmetric systems at once, one for each group of items, with the group on the last axis.
def cholesky(block: Blocks) -> Blocks:
    """Lower triangles L with L Lᵀ = block; raises LinAlgError if any block is not positive.

    >>> cholesky(np.array([[[4.0]]]))
    array([[[2.]]])
    """
    lower = np.zeros_like(block)
    for i in range(len(block)):
        for j in range(i + 1):
            left = block[i, j] - np.einsum("kg,kg->g", lower[i, :j], lower[j, :j])
            if i == j and not (left > 0).all():
                raise LinAlgError(f"{int((~(left > 0)).sum())} blocks of items are not positive")
            lower[i, j] = np.sqrt(left) if i == j else left / lower[j, j]
    return lower


def forward(lower: Blocks, right: Float[np.ndarray, "k *any groups"]) -> None:
    """L⁻¹ right, in place."""
    for i in range(len(lower)):
        for j in range(i):
            right[i] -= lower[i, j] * right[j]
        right[i] /= lower[i, i]


def backward(lower: Blocks, right: Float[np.ndarray, "k *any groups"]) -> None:
    """L⁻ᵀ right, in place."""
    for i in reversed(range(len(lower))):
        for j in range(i + 1, len(lower)):
            right[i] -= lower[j, i] * right[j]
        right[i] /= lower[i, i]


# One step of Newton's method in all parameters at once, the items eliminated (Schur complement).
def log_posterior(state: State, cells: Cells, count: Groups) -> float:
    """Log likelihood and log prior, without constants."""
    shared = state.ability @ state.ability / 2 + state.prior.centre**2 / (2 * CENTRE_SD**2)
    return float(count @ (cells.log_likelihood + state.item_prior()[0]) - shared)


@dataclass(frozen=True)
class System:
    """Gradient and negative Hessian of the log posterior.

    Of one item of each group: gradient `item`, `block`. Shared by all (abilities, then the prior's centre): gradient
    `shared`, `diagonal`. Between an item's k-th parameter and the shared ones: `cross`.
    """

    item: Parameters
    block: Blocks
    shared: Shared
    diagonal: Shared
    cross: Crosses


def derivatives(state: State, cells: Cells, count: Groups, observed: bool) -> System:
    """All derivatives at a point that `cells` was filled at.

    observed: the Hessian itself where an item's own block of it is positive. Otherwise, and always for asymptotes, its
    expectation (Fisher information), which is positive everywhere.
    """
    theta, a, b, prior = state.ability, state.slope, state.difficulty, state.prior
    k, m = len(state.item), len(cells.asymptote)
    _, gradient, curvature = state.item_prior()
    block = np.eye(k)[:, :, None] * curvature
    cross = np.zeros((k, len(theta) + 1, len(b)))
    powers = np.stack([np.ones_like(theta), theta, theta**2])
    error, weight = powers[:2] @ cells.error, powers @ cells.weight
    gradient[-1] -= a * error[0]
    block[-1, -1] += a**2 * weight[0]
    np.multiply(cells.weight, -(a**2), out=cross[-1, :-1])
    cross[-1, -1] = -(prior.spread**-2)
    if k > 1:
        slack = a * (error[1] - b * error[0])
        gradient[-2] += slack
        block[-2, -2] += a**2 * (weight[2] - 2 * b * weight[1] + b**2 * weight[0])
        block[-2, -1] = block[-1, -2] = -(a**2) * (weight[1] - b * weight[0])
        np.subtract(theta[:, None], b, out=cross[-2, :-1])
        cross[-2, :-1] *= cells.weight
        cross[-2, :-1] *= a**2
    if m:  # z depends on log a, b and θ
        mixed = np.moveaxis(powers[:2] @ cells.mixed, 1, 0)
        gradient[:m] += cells.asymptote
        block[:m, :m] += cells.own
        block[:m, -1] = block[-1, :m] = -a * mixed[0]
        block[:m, -2] = block[-2, :m] = a * (mixed[1] - b * mixed[0])
        np.multiply(cells.mixed, a, out=cross[:m, :-1])
    if observed and k > 1:  # z has second derivatives itself, by (log a, log a), (log a, b) and (log a, θ)
        block[-2, -2] -= slack
        block[[-2, -1], [-1, -2]] += a * error[0]
        cross[-2, :-1] -= a * cells.error
        _make_positive(block)
    centre = count @ (b - prior.centre) / prior.spread**2 - prior.centre / CENTRE_SD**2
    shared = np.append(cells.error @ (count * a) - theta, centre)
    diagonal = np.append(cells.weight @ (count * a**2) + 1.0, count.sum() / prior.spread**2 + CENTRE_SD**-2)
    return System(gradient, block, shared, diagonal, cross)


def _make_positive(block: Blocks) -> None:
    """Flip negative curvatures where an item's posterior is not concave, so that the step still ascends."""
    values = np.linalg.eigvalsh(block.transpose(2, 0, 1))
    bad = np.flatnonzero(values[:, 0] < 1e-3 * values[:, -1])
    if len(bad):
        value, vector = np.linalg.eigh(block[:, :, bad].transpose(2, 0, 1))
        value = np.maximum(np.abs(value), 1e-3 * np.abs(value).max(axis=1, keepdims=True))
        block[:, :, bad] = np.einsum("gik,gk,gjk->ijg", vector, value, vector)


@dataclass(frozen=True)
class Eliminated:
    """The system of the shared parameters after the items are eliminated: `complement` x = `pushed`.

    lower: Cholesky factors L of the items' blocks.   half_item, half_cross: L⁻¹ of their gradients and crosses.
    """

    complement: Float[np.ndarray, "shared shared"]
    pushed: Shared
    lower: Blocks
    half_item: Parameters
    half_cross: Crosses


def eliminate(now: System, count: Groups) -> Eliminated:
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


def step(small: Eliminated, free: slice) -> tuple[Shared, Parameters]:
    """Newton's step of the shared parameters in `free`, and of all items; raises LinAlgError if it is no ascent."""
    shared = np.zeros(len(small.pushed))
    if len(shared[free]):
        shared[free] = cho_solve(cho_factor(small.complement[free, free]), small.pushed[free])
    item = small.half_item - np.stack([shared @ cross for cross in small.half_cross])
    backward(small.lower, item)
    return shared, item


STEPS = 1000
TOLERANCE = 1e-8  # of a step, relative to 1 + the parameter
ROUGH = 1e-4
CAREFUL = 3  # first steps by expected information, which is positive wherever they start
LONGEST = 2.0  # of one step in log discrimination and in logits


@dataclass(frozen=True)
class Mode:
    """The state where the steps ended, one pass over the cells there, and whether the steps converged."""

    state: State
    cells: Cells
    log_posterior: float
    iterations: int
    converged: bool


def find_mode(data: Responses, state: State, fixed_ability: bool = False, fixed_prior: bool = False) -> Mode:
    """Newton steps in all abilities, items and the prior's centre; each is followed by learning the prior's scales.

    Every step is halved until the log posterior rises. Converged when steps and changes of the prior are below 1e-8.
    fixed_prior (with fixed_ability): only items move, each in its own posterior; to 1e-4, enough to rank modes.
    """
    cells, trial = Cells.empty(data, state.model), Cells.empty(data, state.model)
    fill(cells, data, state, observed=False)
    free = slice(len(state.ability) + fixed_prior if fixed_ability else 0, None)
    tolerance = ROUGH if fixed_prior else TOLERANCE
    iteration, change, learned = 0, np.inf, [_scales(state.prior)]
    while change > tolerance and iteration < STEPS:
        iteration += 1
        shared, item, difficulty_variance, ability_variance = _ascent(state, cells, data, iteration > CAREFUL, free)
        reached, change = _climb(data, state, cells, trial, shared, item, iteration >= CAREFUL)
        cells, trial, state = trial, cells, reached
        if not fixed_prior:
            state = _relearned(reached, difficulty_variance, ability_variance, data, fixed_ability)
        learned.append(_scales(state.prior))
        change = max(change, float(np.abs(_scales(state.prior) - _scales(reached.prior)).max()))
        if len(learned) == 4 and change > tolerance:
            if iteration > CAREFUL:
                state = replace(state, prior=_ahead(state.prior, learned))
            learned = [_scales(state.prior)]
    return Mode(state, cells, log_posterior(state, cells, data.count), iteration, bool(change <= tolerance))


def _scales(prior: Prior) -> Scales:
    return np.array([np.log(prior.spread), prior.log_slope])


def _ahead(prior: Prior, learned: Sequence[Scales]) -> Prior:
    """The limit of scales that approach it by a steady ratio (Aitken's extrapolation)."""
    earlier, later = learned[-2] - learned[-3], learned[-1] - learned[-2]
    ratio = float(earlier @ later) / max(float(earlier @ earlier), 1e-300)
    if not 0 < ratio < 1:
        return prior
    spread, slope = learned[-1] + np.clip(later * ratio / (1 - ratio), -1.0, 1.0)
    return replace(prior, spread=max(float(np.exp(spread)), SPREAD_FLOOR), log_slope=float(slope))


def _climb(
    data: Responses, state: State, cells: Cells, trial: Cells, shared: np.ndarray, item: np.ndarray, observed: bool
) -> tuple[State, float]:
    """As much of a step as raises the log posterior (up to rounding), leaving `trial` filled there; its size."""
    before = log_posterior(state, cells, data.count)
    length = 1.0 if len(item) == 1 else min(1.0, LONGEST / max(np.abs(item[:-1]).max(), 1e-12))
    while True:
        prior = replace(state.prior, centre=state.prior.centre + length * float(shared[-1]))
        reached = State(state.model, state.ability + length * shared[:-1], state.item + length * item, prior)
        fill(trial, data, reached, observed)
        if log_posterior(reached, trial, data.count) >= before - 1e-12 * abs(before) or length < 1e-9:
            break
        length /= 2
    return reached, float(max(np.abs(shared).max(), np.abs(item / (1 + np.abs(state.item))).max()))


def _ascent(
    state: State, cells: Cells, data: Responses, observed: bool, free: slice
) -> tuple[np.ndarray, np.ndarray, Groups, Subjects]:
    """A step, with the variance of each difficulty (abilities known) and of each ability (items known)."""
    while True:
        now = derivatives(state, cells, data.count, observed)
        try:
            small = eliminate(now, data.count)
            shared, item = step(small, free)
            return shared, item, small.lower[-1, -1] ** -2, 1 / now.diagonal[:-1]
        except LinAlgError:
            if not observed:
                raise
            observed = False
            fill(cells, data, state, observed)  # no concave place: the expected information is positive everywhere


def learned_spread(squares: float, items: int) -> float:
    """The most probable spread when difficulties lie Σ E[(b - centre)²] = `squares` apart; never below a floor.

    Maximises -items log s - squares / (2 s²) - s² / (2 · 3²): a normal density of each item, a half-normal one of s.

    >>> round(learned_spread(4000.0, 1000), 2)
    2.0
    """
    width = SPREAD_PRIOR**2
    variance = width * (np.sqrt(items**2 + 4 * squares / width) - items) / 2
    return float(max(np.sqrt(variance), SPREAD_FLOOR))


def _relearned(
    state: State, difficulty_variance: Groups, ability_variance: Subjects, data: Responses, fixed_ability: bool
) -> State:
    """Scales learned from the responses: an EM step with the variances of Laplace's approximation.

    Where slopes are learned the unit of ability is free; E[θ²] = 1, as in the prior, fixes it. Abilities, difficulties
    and slopes then change their unit together, and no probability changes.
    """
    prior, item, unit = state.prior, state.item, 1.0
    if len(item) > 1 and fixed_ability:
        prior = replace(prior, log_slope=float(np.average(item[-2], weights=data.count)))
    elif len(item) > 1:
        unit = float(np.sqrt(np.mean(state.ability**2 + ability_variance)))
        prior = Prior(prior.centre / unit, prior.spread / unit, prior.log_slope + np.log(unit))
        item = item.copy()
        item[-2] += np.log(unit)
        item[-1] /= unit
    squares = (item[-1] - prior.centre) ** 2 + difficulty_variance / unit**2
    spread = learned_spread(float(data.count @ squares), int(data.count.sum()))
    return State(state.model, state.ability / unit, item, replace(prior, spread=spread))


# With asymptotes an item can have two modes: hard for every subject, or impossible in some cases for any subject.
ROUNDS = 5
BETTER = 1e-6  # nats by which another mode of an item must be higher


def find_best_mode(data: Responses, start: State) -> Mode:
    """The mode reached from `start`, then for each item the best of its own modes, started anew.

    With abilities and prior held, items do not depend on each other, so each takes its highest mode; then all move
    together again. Ends when no item changes. Models without an upper asymptote need no second start.
    """
    mode = find_mode(data, start)
    if "feasibility" not in LEARNED[start.model]:
        return mode
    for _ in range(ROUNDS):
        best, height = mode.state.item.copy(), _heights(mode)
        for item in _other_starts(data, mode.state):
            other = find_mode(data, replace(mode.state, item=item), fixed_ability=True, fixed_prior=True)
            better = _heights(other) > height + BETTER
            best[:, better], height = other.state.item[:, better], np.maximum(height, _heights(other))
        if (best == mode.state.item).all():
            break
        again = find_mode(data, replace(mode.state, item=best))
        mode = replace(again, iterations=mode.iterations + again.iterations)
    return mode


def _heights(mode: Mode) -> Groups:
    return mode.cells.log_likelihood + mode.state.item_prior()[0]


def _other_starts(data: Responses, state: State) -> tuple[Parameters, Parameters]:
    """Easy but rarely feasible: solved in as many cases as it can be. And always feasible, but hard."""
    logit = data.logits()[1]
    rarely, hard = state.item.copy(), state.item.copy()
    upper = LEARNED[state.model].index("feasibility")
    rarely[upper], rarely[-1] = logit, state.prior.centre - state.prior.spread
    hard[upper], hard[-1] = 3.0, np.maximum(-logit / np.exp(state.prior.log_slope), state.prior.centre)
    rarely[-2] = hard[-2] = state.prior.log_slope
    return rarely, hard


def standard_errors(mode: Mode, data: Responses, fixed_ability: bool) -> tuple[Subjects, Parameters]:
    """Laplace: roots of the diagonal of the inverse negative Hessian in all abilities and items, given the prior.

    With S the Schur complement of the items, S⁻¹ is the covariance of abilities and B⁻¹ + B⁻¹ C S⁻¹ Cᵀ B⁻¹ that of an
    item with block B and crosses C.
    """
    small = eliminate(derivatives(mode.state, mode.cells, data.count, observed=True), data.count)
    subjects, k = len(mode.state.ability), len(small.half_item)
    inverse = np.repeat(np.eye(k)[:, :, None], small.half_item.shape[1], axis=2)
    backward(small.lower, inverse)  # L⁻ᵀ
    own = np.einsum("klg,klg->kg", inverse, inverse)
    if fixed_ability:
        return np.zeros(subjects), np.sqrt(own)
    covariance = cho_solve(cho_factor(small.complement[:-1, :-1]), np.eye(subjects))
    half = np.linalg.cholesky(covariance).T
    backward(small.lower, small.half_cross)
    shared = [np.einsum("sg,sg->g", spread, spread) for spread in (half @ cross[:-1] for cross in small.half_cross)]
    return np.sqrt(np.diag(covariance)), np.sqrt(own + np.stack(shared))
