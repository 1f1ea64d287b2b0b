"""The mode of the posterior of an item response model, by Newton steps that never lower it.

One step moves all parameters at once; between steps the scales of the priors are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

from fca.studies.irt.stats.items import (
    FLAT,
    Blocks,
    backward,
    best_of_grid,
    cholesky,
    climb,
    forward,
    heights,
    own_derivatives,
)
from fca.studies.irt.stats.likelihood import LEARNED, Cells, Groups, Parameters, Prior, Responses, State, Subjects, fill

CENTRE_SD = 5.0  # of the mean difficulty around 0, the mean ability
SPREAD_PRIOR = 3.0  # half-normal scale of the spread of difficulty
SPREAD_FLOOR = 0.1  # in the same unit; of the spread of ability, in logits
SMALL_SPREAD = 0.5  # of either scale, below which it must stand out from what chance alone would give
STEEPEST = 3.0  # mean log discrimination at fixed abilities, beyond which it grows without end
ERRORS = 2.0  # standard errors of no spread at all, beyond which it does
PRIOR_SPREAD = 1.0  # of difficulty, where the responses cannot determine it
PRIOR_LOG_SLOPE = 0.0  # where they cannot determine the unit of ability: a logit, as in the 1pl

Shared = Float[np.ndarray, " shared"]  # abilities, then the mean difficulty
Crosses = Float[np.ndarray, "k shared groups"]
Scales = Float[np.ndarray, "2"]


# One step of Newton's method in all parameters at once, the items eliminated (Schur complement).
def log_posterior(state: State, cells: Cells, count: Groups) -> float:
    """Log likelihood and log prior, without constants."""
    shared = state.ability @ state.ability / 2 + state.prior.centre**2 / (2 * CENTRE_SD**2)
    return float(count @ heights(state, cells) - shared)


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

    observed: the Hessian itself, with the items' own blocks turned positive; else, without asymptotes, its expectation.
    """
    theta, a, b, prior = state.ability, state.slope, state.difficulty, state.prior
    k = len(state.item)
    gradient, block = own_derivatives(state, cells, observed)
    cross = np.empty((k, len(theta) + 1, len(b)))
    cross[:-1, -1], cross[-1, -1] = 0.0, -(prior.spread**-2)
    np.multiply(cells.weight, -(a**2), out=cross[-1, :-1])
    if k > 1:
        np.subtract(b, theta[:, None], out=cross[-2, :-1])
        cross[-2, :-1] *= cross[-1, :-1]
        if observed:  # z has a second derivative itself, by (log a, θ)
            cross[-2, :-1] -= a * cells.error
    for mixed, of_asymptote in zip(cells.mixed, cross, strict=False):
        np.multiply(mixed, a, out=of_asymptote[:-1])
    centre = count @ (b - prior.centre) / prior.spread**2 - prior.centre / CENTRE_SD**2
    shared = np.append(cells.error @ (count * a) - theta, centre)
    diagonal = np.append(cells.weight @ (count * a**2) + 1.0, count.sum() / prior.spread**2 + CENTRE_SD**-2)
    return System(gradient, block, shared, diagonal, cross)


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
    """Newton's step of the shared parameters in `free`, and of all items.

    Where the posterior is not concave in the shared ones, negative curvatures are flipped, so that the step ascends.
    """
    shared = np.zeros(len(small.pushed))
    if len(shared[free]):
        value, vector = np.linalg.eigh(small.complement[free, free])
        value = np.maximum(np.abs(value), FLAT * np.abs(value).max())
        shared[free] = vector @ ((vector.T @ small.pushed[free]) / value)
        shared /= max(np.abs(shared).max() / LONGEST, 1.0)
    item = small.half_item - np.stack([shared @ cross for cross in small.half_cross])
    backward(small.lower, item)
    return shared, item


STEPS = 1000
TOLERANCE = 1e-8  # of a step, relative to 1 + the parameter
CAREFUL = 3  # first steps without asymptotes, by expected information, which is positive wherever they start
SETTLED = 0.3  # a step, relative to the last change of the prior's scales, after which these are learned again
NEAR = 0.05  # a change of the scales below which steps must settle first
FURTHEST = 1.0  # that scales are moved beyond an EM step, in logarithms
PATIENCE = 30  # steps after which secants are not trusted: they can cycle
LONGEST = 1.0  # of one step in any ability
FAR = 0.1  # a step of an item, relative to 1 + the parameter, that a quadratic does not describe


class Learning(NamedTuple):
    """Which scales of the prior are learned from the responses; the others are held where they are.

    spread: of difficulty.    slope: mean log discrimination, which is the unit of ability.
    """

    spread: bool = True
    slope: bool = True


@dataclass(frozen=True)
class Mode:
    """The state where the steps ended, one pass over the cells there, and whether the steps converged."""

    state: State
    cells: Cells
    log_posterior: float
    iterations: int
    converged: bool
    learning: Learning


def find_mode(
    data: Responses,
    state: State,
    fixed_ability: bool = False,
    tolerance: float = TOLERANCE,
    learning: Learning = Learning(),  # noqa: B008 - a tuple
) -> Mode:
    """Newton steps in all abilities, items and the prior's centre; each is followed by learning the prior's scales.

    No step lowers the log posterior. Converged when steps and changes of the prior are below the tolerance.
    """
    careful = CAREFUL if len(state.item) <= 2 else 0
    cells, trial = Cells.empty(data, state.model), Cells.empty(data, state.model)
    fill(cells, data, state)
    free = slice(len(state.ability) if fixed_ability else 0, None)
    iteration, moved, learned = 0, np.inf, list[Learned]()
    while max(moved, _size(learned)) > tolerance and iteration < STEPS:
        iteration += 1
        shared, item, difficulty_variance, ability_variance = _ascent(state, cells, data, iteration > careful, free)
        state, moved = _climb(data, state, cells, trial, shared, item)
        cells, trial = trial, cells
        if iteration < PATIENCE and tolerance < moved > SETTLED * (size := _size(learned)) and size < NEAR:
            continue
        here = _scales(state.prior)
        state = _relearned(state, difficulty_variance, ability_variance, data, fixed_ability, learning)
        new = Learned(here, _scales(state.prior) - here)
        learned = _kept(learned, new) if iteration < PATIENCE else [*learned[-2:], new]
        if careful < iteration and _size(learned) > tolerance:
            if iteration < PATIENCE:
                state = replace(state, prior=_further(state.prior, _secant(learned)))
            elif len(learned) == 3:
                state, learned = replace(state, prior=_further(state.prior, _limit(learned))), learned[:0]
    converged = max(moved, _size(learned)) <= tolerance
    return Mode(state, cells, log_posterior(state, cells, data.count), iteration, bool(converged), learning)


class Learned(NamedTuple):
    """Scales of the prior, and how an EM step at the mode given them would change them."""

    scales: Scales
    change: Scales


def _scales(prior: Prior) -> Scales:
    return np.array([np.log(prior.spread), prior.log_slope])


def _size(learned: Sequence[Learned]) -> float:
    """Of the last change."""
    return float(np.abs(learned[-1].change).max()) if learned else np.inf


def _kept(learned: list[Learned], new: Learned) -> list[Learned]:
    """The last three, or the new one alone where changes grow: items changed modes, and the earlier ones mislead."""
    return [*learned[-2:], new] if np.abs(new.change).max() < _size(learned) else [new]


def _secant(learned: Sequence[Learned]) -> Scales:
    """How far it is to where the changes vanish, if they are linear in the scales (Anderson's acceleration)."""
    if len(learned) < 2:
        return np.zeros(2)
    scales, change = (np.diff(values, axis=0).T for values in zip(*learned, strict=True))
    weights = np.linalg.lstsq(change, learned[-1].change, rcond=1e-6)[0]
    return -(scales + change) @ weights


def _limit(learned: Sequence[Learned]) -> Scales:
    """How far it is to where scales end that approach it by a steady ratio (Aitken's extrapolation)."""
    earlier, later = (one.change for one in learned[-2:])
    ratio = float(earlier @ later) / max(float(earlier @ earlier), 1e-300)
    return later * ratio / (1 - ratio) if 0 < ratio < 1 else np.zeros(2)


def _further(prior: Prior, scales: Scales) -> Prior:
    """The prior with its scales moved on, not too far."""
    spread, slope = _scales(prior) + np.clip(scales, -FURTHEST, FURTHEST)
    return replace(prior, spread=max(float(np.exp(spread)), SPREAD_FLOOR), log_slope=float(slope))


def _climb(
    data: Responses, state: State, cells: Cells, trial: Cells, shared: np.ndarray, item: np.ndarray
) -> tuple[State, float]:
    """As much of a step as raises the log posterior (up to rounding), leaving `trial` filled there; its size.

    Items that the step would carry far climb on their own instead, at the abilities reached; so do all items if the
    whole step fails.
    """
    before = log_posterior(state, cells, data.count)
    size, length = np.abs(item / (1 + np.abs(state.item))).max(axis=0), 1.0
    alone = size > FAR
    while True:
        prior = replace(state.prior, centre=state.prior.centre + length * float(shared[-1]))
        reached = State(state.model, state.ability + length * shared[:-1], state.item + length * item, prior)
        if alone.any():
            reached.item[:, alone] = climb(data.part(alone), replace(reached, item=state.item[:, alone]))[0]
        fill(trial, data, reached)
        if log_posterior(reached, trial, data.count) >= before - 1e-12 * abs(before) or length < 1e-9:
            break
        length, alone = length / 2, np.ones_like(alone)
    return reached, float(max(np.abs(shared).max(), size.max()))


def _ascent(
    state: State, cells: Cells, data: Responses, observed: bool, free: slice
) -> tuple[np.ndarray, np.ndarray, Groups, Subjects]:
    """A step, with the variance of each difficulty (abilities known) and of each ability (items known)."""
    now = derivatives(state, cells, data.count, observed)
    small = eliminate(now, data.count)
    shared, item = step(small, free)
    # before the mode, asymptotes can make the curvature of an ability negative: the prior's variance stands for it
    precision = now.diagonal[:-1]
    ability_variance = 1 / np.where(precision > 0, precision, 1.0)
    return shared, item, small.lower[-1, -1] ** -2, ability_variance


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
    state: State,
    difficulty_variance: Groups,
    ability_variance: Subjects,
    data: Responses,
    fixed_ability: bool,
    learning: Learning,
) -> State:
    """Scales learned from the responses: an EM step with the variances of Laplace's approximation.

    Where slopes are learned the unit of ability is free; E[θ²] = 1, as in the prior, fixes it. Abilities, difficulties
    and slopes then change their unit together, and no probability changes.
    """
    prior, item, unit = state.prior, state.item, 1.0
    if len(item) > 1 and fixed_ability and learning.slope:
        prior = replace(prior, log_slope=float(np.average(item[-2], weights=data.count)))
    elif len(item) > 1 and learning.slope:
        unit = float(np.sqrt(np.mean(state.ability**2 + ability_variance)))
        prior = Prior(prior.centre / unit, prior.spread / unit, prior.log_slope + np.log(unit))
        item = item.copy()
        item[-2] += np.log(unit)
        item[-1] /= unit
    if not learning.spread:
        return State(state.model, state.ability / unit, item, replace(prior, spread=state.prior.spread))
    squares = (item[-1] - prior.centre) ** 2 + difficulty_variance / unit**2
    spread = learned_spread(float(data.count @ squares), int(data.count.sum()))
    return State(state.model, state.ability / unit, item, replace(prior, spread=spread))


# With asymptotes an item can have two modes: hard for every subject, or impossible in some cases for any subject.
ROUNDS = 10
ROUGH = 1e-3  # the tolerance while items still change modes
SAMPLE = 1500  # items that abilities and scales are first learned from
DEEP = 5.0  # nats below its present mode from which an item does not start again
BETTER = 1e-3  # nats by which another mode of an item must be higher


def find_best_mode(
    data: Responses,
    start: State,
    fixed_ability: bool = False,
    learning: Learning = Learning(),  # noqa: B008 - a tuple
) -> Mode:
    """The mode reached from `start`; with asymptotes, the best of each item's own modes.

    Abilities and the prior of many items start where a sample of the items has them.
    """
    if len(start.item) <= 2:
        return find_mode(data, start, fixed_ability, learning=learning)
    if len(data.count) > 2 * SAMPLE:
        few, at = data.sample(SAMPLE)
        known = _best_roughly(few, replace(start, item=start.item[:, at]), fixed_ability, learning).state
        start = replace(start, ability=known.ability, prior=known.prior)
    rough = _best_roughly(data, start, fixed_ability, learning)
    mode = find_mode(data, rough.state, fixed_ability, learning=learning)
    return replace(mode, iterations=mode.iterations + rough.iterations)


def _best_roughly(data: Responses, start: State, fixed_ability: bool, learning: Learning) -> Mode:
    """With abilities and prior held, items do not depend on each other, so each takes its highest mode; then all move
    together again. Ends when no item changes; items that had one mode are not tried again.
    """
    item = climb(data, replace(start, item=best_of_grid(data, start)))[0]
    mode = find_mode(data, replace(start, item=item), fixed_ability, ROUGH, learning)
    several = np.arange(len(data.count))
    for _ in range(ROUNDS):
        item, several, changed = _highest(data, mode, several)
        if not changed:
            break
        again = find_mode(data, replace(mode.state, item=item), fixed_ability, ROUGH, learning)
        mode = replace(again, iterations=mode.iterations + again.iterations)
    return mode


def _highest(
    data: Responses, mode: Mode, tried: Int[np.ndarray, " tried"]
) -> tuple[Parameters, Int[np.ndarray, " several"], int]:
    """The highest known mode of every item at the abilities of `mode`.

    tried: items to start again. Also returns which of them have several modes, and how many items changed theirs.
    """
    data, item = data.part(tried), mode.state.item.copy()
    state = replace(mode.state, item=item[:, tried])
    first = heights(mode.state, mode.cells)[tried]
    height, several, cells = (
        first.copy(),
        np.zeros(len(tried), dtype=bool),
        Cells.empty(data, state.model, matrices=False),
    )
    for other in (best_of_grid(data, state), *_other_starts(data, state)):
        start = replace(state, item=other)
        fill(cells, data, start)
        at = np.flatnonzero(heights(start, cells) > height - DEEP)
        found, reached = climb(data.part(at), replace(start, item=other[:, at]))
        several[at] |= np.abs(reached - first[at]) > BETTER
        better = reached > height[at] + BETTER
        at = at[better]
        item[:, tried[at]], height[at] = found[:, better], reached[better]
    return item, tried[several], int((height > first).sum())


def _other_starts(data: Responses, state: State) -> tuple[Parameters, ...]:
    """Easy but rarely feasible: solved in as many cases as it can be. And always feasible, but hard."""
    if "feasibility" not in LEARNED[state.model]:
        return ()
    logit = data.logits()[1]
    rarely, hard = state.item.copy(), state.item.copy()
    upper = LEARNED[state.model].index("feasibility")
    rarely[upper], rarely[-1] = logit, state.prior.centre - state.prior.spread
    hard[upper], hard[-1] = 3.0, np.maximum(-logit / np.exp(state.prior.log_slope), state.prior.centre)
    rarely[-2] = hard[-2] = state.prior.log_slope
    return rarely, hard


# Scales that few responses leave open: learned all the same, they fall to 0, and everything looks known exactly.
def find_estimable_mode(data: Responses, start: State, fixed_ability: bool = False) -> Mode:
    """`find_best_mode`, with the scales of the prior learned only as far as the responses determine them.

    A scale that ends at its floor, or is small and within two standard errors of 0, is held at the prior's value
    instead (spread of difficulty 1; the unit of ability a logit), and the rest is fitted again. Where no scale does,
    this is `find_best_mode` to the last digit.
    """
    mode = find_best_mode(data, start, fixed_ability)
    for _ in Learning():  # each fit can show one more scale that cannot be learned
        estimable = _estimable(mode, data, fixed_ability)
        if estimable == mode.learning:
            break

        spread = start.prior.spread if estimable.spread else PRIOR_SPREAD
        log_slope = start.prior.log_slope if estimable.slope else PRIOR_LOG_SLOPE
        held = replace(start, prior=replace(start.prior, spread=spread, log_slope=log_slope))
        again = find_best_mode(data, held, fixed_ability, estimable)
        mode = replace(again, iterations=mode.iterations + again.iterations)

    return mode


def _estimable(mode: Mode, data: Responses, fixed_ability: bool) -> Learning:
    """Which of the scales that were learned the responses determine.

    If n values did not differ at all, and each were estimated with sampling variance v, their variance would be learned
    as 0 with a standard error of v sqrt(2 / n). A small scale, or one that learning did not settle, must exceed that.
    """
    prior, learning = mode.state.prior, mode.learning
    ability_spread = float(np.exp(prior.log_slope))  # in logits
    learns_slope = learning.slope and len(mode.state.item) > 1
    if learns_slope and fixed_ability:  # then it is no unit: only steps without end are in doubt
        learning = learning._replace(slope=prior.log_slope < STEEPEST)
        learns_slope = False
    doubts_spread = learning.spread and (prior.spread < SMALL_SPREAD or not mode.converged)
    doubts_slope = learns_slope and (ability_spread < SMALL_SPREAD or not mode.converged)
    if not doubts_spread and not doubts_slope:
        return learning

    now = derivatives(mode.state, mode.cells, data.count, observed=True)
    items = int(data.count.sum())
    item_precision = cholesky(now.block)[-1, -1] ** 2
    item_information = float(data.count @ item_precision) / items - prior.spread**-2
    ability_information = float(np.mean(now.diagonal[:-1])) - 1.0  # less that of the prior
    stands_out = _stands_out(prior.spread**2, item_information, items) and prior.spread > SPREAD_FLOOR
    unit_stands_out = _stands_out(1.0, ability_information, len(mode.state.ability))
    if doubts_slope and not unit_stands_out:
        return learning._replace(slope=False)  # first the unit, in which the spread of difficulty is learned anew
    return learning._replace(spread=learning.spread and (stands_out or not doubts_spread))


def _stands_out(variance: float, information: float, number: int) -> bool:
    """Whether a variance of `number` values is above what chance gives where they do not differ."""
    sampling_variance = 1 / max(information, 1e-12)
    return bool(variance >= ERRORS * np.sqrt(2 / number) * sampling_variance)


def standard_errors(mode: Mode, data: Responses, fixed_ability: bool) -> tuple[Subjects, Parameters]:
    """Laplace: roots of the diagonal of the inverse negative Hessian in all abilities and items, given the prior.

    Where a scale of the prior was not learned, its centre is not taken as known for items either: few responses leave
    it as open as the scale. Abilities count from the mean of the subjects in any case.

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
    own_covariance = _inverse(small.complement[:-1, :-1])
    with_centre = not all(mode.learning)
    covariance = _inverse(small.complement) if with_centre else own_covariance
    half = np.linalg.cholesky(covariance).T
    backward(small.lower, small.half_cross)
    spreads = [half @ cross[: len(half)] for cross in small.half_cross]
    shared = [np.einsum("sg,sg->g", spread, spread) for spread in spreads]
    return np.sqrt(np.diag(own_covariance)), np.sqrt(own + np.stack(shared))


def _inverse(matrix: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """Of a positive definite matrix."""
    return cho_solve(cho_factor(matrix), np.eye(len(matrix)))
