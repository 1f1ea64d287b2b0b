"""From a start to the mode: Newton steps that never lower the posterior, and scales learned between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError

from fca.stats.irt.answers import Answers
from fca.stats.irt.cells import Cells, fill
from fca.stats.irt.newton import derivatives, eliminate, log_posterior, step
from fca.stats.irt.priors import SPREAD_FLOOR, Prior, learned_spread
from fca.stats.irt.state import State

STEPS = 1000
TOLERANCE = 1e-8  # of a step, relative to 1 + the parameter
ROUGH = 1e-4
CAREFUL = 3  # first steps by expected information, which is positive wherever they start
LONGEST = 2.0  # of one step in log discrimination and in logits


@dataclass(frozen=True)
class Mode:
    """Where the steps ended, with what one pass over the cells there gave, and how it went."""

    state: State
    cells: Cells
    log_posterior: float
    iterations: int
    converged: bool


def find_mode(answers: Answers, state: State, fixed_ability: bool = False, fixed_prior: bool = False) -> Mode:
    """Newton's steps in all abilities, items and the prior's centre; after each, spread and slope mean are relearned.

    Every step is halved until the log posterior rises. Converged when steps and changes of the prior are below 1e-8.
    fixed_prior (with fixed_ability): items alone move, each in a posterior of its own; to 1e-4, enough to rank modes.
    """
    cells, trial = Cells.empty(answers, state.model), Cells.empty(answers, state.model)
    fill(cells, answers, state, observed=False)
    free = slice(len(state.ability) + fixed_prior if fixed_ability else 0, None)
    tolerance = ROUGH if fixed_prior else TOLERANCE
    iteration, change, learned = 0, np.inf, [_scales(state.prior)]
    while change > tolerance and iteration < STEPS:
        iteration += 1
        shared, item, difficulty_variance, ability_variance = _ascent(state, cells, answers, iteration > CAREFUL, free)
        reached, change = _climb(answers, state, cells, trial, shared, item, iteration >= CAREFUL)
        cells, trial = trial, cells
        state = reached
        if not fixed_prior:
            state = _relearned(reached, difficulty_variance, ability_variance, answers, fixed_ability)
        learned.append(_scales(state.prior))
        change = max(change, float(np.abs(_scales(state.prior) - _scales(reached.prior)).max()))
        if len(learned) == 4 and change > tolerance:
            if iteration > CAREFUL:
                state = replace(state, prior=_ahead(state.prior, learned))
            learned = [_scales(state.prior)]
    value = log_posterior(state, cells, answers.count)
    return Mode(state, cells, value, iteration, bool(change <= tolerance))


def _scales(prior: Prior) -> Float[np.ndarray, "2"]:
    return np.array([np.log(prior.spread), prior.log_slope])


def _ahead(prior: Prior, learned: Sequence[Float[np.ndarray, "2"]]) -> Prior:
    """Where scales that approach their limit by a steady ratio are going (Aitken's extrapolation)."""
    earlier, later = learned[-2] - learned[-3], learned[-1] - learned[-2]
    ratio = float(earlier @ later) / max(float(earlier @ earlier), 1e-300)
    if not 0 < ratio < 1:
        return prior
    spread, slope = learned[-1] + np.clip(later * ratio / (1 - ratio), -1.0, 1.0)
    return replace(prior, spread=max(float(np.exp(spread)), SPREAD_FLOOR), log_slope=float(slope))


def _climb(
    answers: Answers, state: State, cells: Cells, trial: Cells, shared: np.ndarray, item: np.ndarray, observed: bool
) -> tuple[State, float]:
    """As much of a step as raises the log posterior (up to rounding), leaving `trial` filled there; its size."""
    before = log_posterior(state, cells, answers.count)
    length = 1.0 if len(item) == 1 else min(1.0, LONGEST / max(np.abs(item[:-1]).max(), 1e-12))
    while True:
        prior = replace(state.prior, centre=state.prior.centre + length * float(shared[-1]))
        reached = State(state.model, state.ability + length * shared[:-1], state.item + length * item, prior)
        fill(trial, answers, reached, observed)
        if log_posterior(reached, trial, answers.count) >= before - 1e-12 * abs(before) or length < 1e-9:
            break
        length /= 2
    sizes = np.abs(shared).max(), np.abs(item / (1 + np.abs(state.item))).max()
    return reached, float(max(sizes))


def _ascent(
    state: State, cells: Cells, answers: Answers, observed: bool, free: slice
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " groups"], Float[np.ndarray, " subjects"]]:
    """A step, with the variance of each difficulty (abilities known) and of each ability (items known)."""
    while True:
        now = derivatives(state, cells, answers.count, observed)
        try:
            small = eliminate(now, answers.count)
            shared, item = step(small, free)
            return shared, item, small.lower[-1, -1] ** -2, 1 / now.diagonal[:-1]
        except LinAlgError:
            if not observed:
                raise
            observed = False
            fill(cells, answers, state, observed)  # no concave place: the expected information is positive everywhere


def _relearned(
    state: State,
    difficulty_variance: Float[np.ndarray, " groups"],
    ability_variance: Float[np.ndarray, " subjects"],
    answers: Answers,
    fixed_ability: bool,
) -> State:
    """Scales that the answers support: an EM step with the variances of Laplace's approximation.

    Where slopes are learned the unit of ability is free; E[θ²] = 1, as the prior says, fixes it. Abilities,
    difficulties and slopes then change their unit together, and no probability changes.
    """
    prior, item, unit = state.prior, state.item, 1.0
    if len(item) > 1 and fixed_ability:
        prior = replace(prior, log_slope=float(np.average(item[-2], weights=answers.count)))
    elif len(item) > 1:
        unit = float(np.sqrt(np.mean(state.ability**2 + ability_variance)))
        prior = Prior(prior.centre / unit, prior.spread / unit, prior.log_slope + np.log(unit))
        item = item.copy()
        item[-2] += np.log(unit)
        item[-1] /= unit
    squares = (item[-1] - prior.centre) ** 2 + difficulty_variance / unit**2
    spread = learned_spread(float(answers.count @ squares), int(answers.count.sum()))
    return State(state.model, state.ability / unit, item, replace(prior, spread=spread))
