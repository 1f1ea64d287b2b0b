"""Where the steps begin."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fca.stats.irt.solve import FEASIBILITY, GUESS, LEARNED, LOG_SLOPE_SD, Answers, Prior, State


def first_state(answers: Answers, model: str) -> State:
    """Standardised logit accuracies, and minus the logit of each item's mean: one sign, one scale, no chance."""
    asked = np.ones_like(answers.right) if answers.asked is None else answers.asked.astype(float)
    ability = smoothed_logit(answers.right @ answers.count, asked @ answers.count)
    ability -= ability.mean()
    difficulty = -smoothed_logit(answers.right.sum(axis=0), asked.sum(axis=0))
    unit = 1.0 if model == "1pl" else max(float(ability.std()), 0.1)
    ability, difficulty = np.asarray(ability / unit), np.asarray(difficulty / unit)
    centre = float(np.average(difficulty, weights=answers.count))
    spread = float(np.sqrt(np.average((difficulty - centre) ** 2, weights=answers.count)))
    prior = Prior(centre, max(spread, 0.5), float(np.log(unit)))
    return _state(model, ability, difficulty, np.full(len(difficulty), np.log(unit)), prior)


def random_state(answers: Answers, model: str, rng: np.random.Generator) -> State:
    """Normal draws, to try whether the mode depends on the start."""
    subjects, groups = answers.right.shape
    ability, difficulty, slope = (
        rng.normal(0.0, sd, n) for sd, n in ((1, subjects), (1, groups), (LOG_SLOPE_SD, groups))
    )
    return _state(model, np.asarray(ability), np.asarray(difficulty), np.asarray(slope), Prior())


def _state(
    model: str,
    ability: Float[np.ndarray, " subjects"],
    difficulty: Float[np.ndarray, " groups"],
    slope: Float[np.ndarray, " groups"],
    prior: Prior,
) -> State:
    """Asymptotes start at the mode of their prior."""
    modes = {"feasibility": np.log(FEASIBILITY[0] / FEASIBILITY[1]), "guess": np.log(GUESS[0] / GUESS[1])}
    rows = {name: np.full(len(difficulty), value) for name, value in modes.items()}
    rows |= {"slope": slope, "difficulty": difficulty}
    return State(model, ability, np.stack([rows[name] for name in LEARNED[model]]), prior)


def smoothed_logit(right: Float[np.ndarray, " n"], asked: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """log((right + .5) / (asked - right + .5)): finite where all or none are right.

    >>> smoothed_logit(np.array([2.0]), np.array([4.0]))
    array([0.])
    """
    return np.asarray(np.log((right + 0.5) / (asked - right + 0.5)))
