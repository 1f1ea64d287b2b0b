"""A second look at items that asymptotes give two modes: hard for all, or impossible for some whoever asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from fca.stats.irt.answers import Answers
from fca.stats.irt.model import has_feasibility
from fca.stats.irt.solve import Mode, find_mode
from fca.stats.irt.start import smoothed_logit
from fca.stats.irt.state import LEARNED, State, item_prior

ROUNDS = 5
BETTER = 1e-6  # nats by which another mode of an item must be higher


def find_best_mode(answers: Answers, start: State) -> Mode:
    """The mode reached from `start`, and from there the best of what each item has when it is begun anew.

    With abilities and prior held, items do not depend on each other, so that each takes the highest of its own modes;
    then all move together again. Ends when no item changes. Models without an upper asymptote need no second look.
    """
    mode = find_mode(answers, start)
    if not has_feasibility(start.model):
        return mode
    for _ in range(ROUNDS):
        best, height = mode.state.item.copy(), _heights(mode)
        changed = np.zeros(len(height), dtype=bool)
        for item in _beginnings(answers, mode.state):
            other = find_mode(answers, replace(mode.state, item=item), fixed_ability=True, fixed_prior=True)
            better = _heights(other) > height + BETTER
            best[:, better], height = other.state.item[:, better], np.maximum(height, _heights(other))
            changed |= better
        if not changed.any():
            break
        again = find_mode(answers, replace(mode.state, item=best))
        mode = replace(again, iterations=mode.iterations + again.iterations)
    return mode


def _heights(mode: Mode) -> Float[np.ndarray, " groups"]:
    return np.asarray(mode.cells.log_likelihood + item_prior(mode.state)[0])


def _beginnings(answers: Answers, state: State) -> tuple[Float[np.ndarray, "k groups"], Float[np.ndarray, "k groups"]]:
    """Easy but rarely feasible: solved in as many cases as it can be. And always feasible, but hard."""
    asked = np.ones_like(answers.right) if answers.asked is None else answers.asked.astype(float)
    logit = smoothed_logit(answers.right.sum(axis=0), asked.sum(axis=0))
    rarely, hard = state.item.copy(), state.item.copy()
    upper = LEARNED[state.model].index("feasibility")
    rarely[upper], rarely[-1] = logit, state.prior.centre - state.prior.spread
    hard[upper], hard[-1] = 3.0, np.maximum(-logit / np.exp(state.prior.log_slope), state.prior.centre)
    for item in (rarely, hard):
        item[-2] = state.prior.log_slope
    return rarely, hard
