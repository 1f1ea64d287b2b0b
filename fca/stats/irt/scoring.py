"""New subjects against saved items, in milliseconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from fca.stats.irt.model import ItemBank, check_answered, has_feasibility, has_guess
from fca.types import FcaError

STEPS = 100
TOLERANCE = 1e-9
GRID = np.linspace(-4.0, 4.0, 17)  # starts where asymptotes can make several modes
TINY = 1e-300


class Scored(NamedTuple):
    """Abilities on the bank's scale, and their standard errors with the items taken as known."""

    ability: Float[np.ndarray, " subjects"]
    ability_se: Float[np.ndarray, " subjects"]


def score_ability(responses: Float[np.ndarray, "subjects items"], bank: ItemBank) -> Scored:
    """The most probable ability of each subject, given its answers (1, 0, NaN) on a bank's items and θ ~ N(0, 1).

    Fisher scoring; the standard error is 1 / sqrt(1 + I(θ)) with I the Fisher information of the items asked. Raises
    FcaError if the bank has another number of items, and as `check_answered` does for subjects without answers.

    >>> one = np.ones(2)
    >>> bank = ItemBank("2pl", 0 * one, one, one, 0 * one)
    >>> score_ability(np.array([[1.0, 0.0], [1.0, np.nan]]), bank).ability.round(3)
    array([0.   , 0.401])
    """
    if responses.shape[1] != len(bank.difficulty):
        allowed = f"{len(bank.difficulty)}, the items of the bank"
        raise FcaError(
            "items answered", responses.shape[1], allowed, "give a column for each item; NaN where not asked"
        )
    _check_subjects(responses)
    ability = np.zeros(len(responses))
    if has_guess(bank.model) or has_feasibility(bank.model):
        heights = np.stack([_local(responses, bank, np.full(len(responses), point))[0] for point in GRID])
        ability = GRID[heights.argmax(axis=0)]
    height, slope, information = _local(responses, bank, ability)
    for _ in range(STEPS):
        step = np.clip(slope / information, -2.0, 2.0)
        new = _local(responses, bank, ability + step)
        while (fell := new[0] < height - 1e-12 * np.abs(height)).any() and np.abs(step[fell]).max() > TOLERANCE:
            step[fell] /= 2
            new = _local(responses, bank, ability + step)
        ability = ability + step
        height, slope, information = new
        if np.abs(step).max() < TOLERANCE:
            break
    return Scored(ability, 1 / np.sqrt(information))


def _check_subjects(responses: Float[np.ndarray, "subjects items"]) -> None:
    asked_items = (~np.isnan(responses)).any(axis=0)  # items that nobody was asked are no fault here
    check_answered(responses[:, asked_items] if asked_items.any() else responses)


def _local(
    responses: Float[np.ndarray, "subjects items"], bank: ItemBank, ability: Float[np.ndarray, " subjects"]
) -> tuple[Float[np.ndarray, " subjects"], Float[np.ndarray, " subjects"], Float[np.ndarray, " subjects"]]:
    """Log posterior of each subject's ability, its slope, and 1 + Fisher information."""
    z = bank.discrimination * (ability[:, None] - bank.difficulty)
    solved, missed = expit(z), expit(-z)
    span = bank.feasibility - bank.guess
    p = np.maximum(bank.guess + span * solved, TINY)
    q = np.maximum((1 - bank.feasibility) + span * missed, TINY)
    rise = bank.discrimination * span * solved * missed
    right, wrong = responses == 1, responses == 0
    height = np.where(right, np.log(p), np.where(wrong, np.log(q), 0.0)).sum(axis=1) - ability**2 / 2
    slope = np.where(right, rise / p, np.where(wrong, -rise / q, 0.0)).sum(axis=1) - ability
    information = np.where(right | wrong, rise * (rise / (p * q)), 0.0).sum(axis=1) + 1.0
    return height, slope, information
