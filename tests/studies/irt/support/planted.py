"""Planted answers: subjects and items whose parameters are known."""

from typing import NamedTuple

import numpy as np


class Planted(NamedTuple):
    responses: np.ndarray
    ability: np.ndarray
    difficulty: np.ndarray
    discrimination: np.ndarray
    feasibility: np.ndarray


def planted(subjects, items, seed=0, infeasible=0.0, ability_mean=0.0, ability_sd=1.0):
    """Abilities, items and answers; a share of items is solved in less than half of the cases by anyone."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=subjects)
    if subjects > 1:  # so that the planted unit is the fitted one
        ability = (ability - ability.mean()) / ability.std()
    ability = ability_mean + ability_sd * ability
    difficulty = rng.normal(-0.5, 1.2, items)
    discrimination = np.exp(rng.normal(0.2, 0.4, items))
    blocked = rng.random(items) < infeasible
    feasibility = np.where(blocked, rng.uniform(0.02, 0.5, items), 1.0 if not infeasible else rng.beta(20, 1, items))
    p = feasibility / (1 + np.exp(-discrimination * (ability[:, None] - difficulty)))
    return Planted((rng.random(p.shape) < p).astype(float), ability, difficulty, discrimination, feasibility)


def with_holes(responses, share, seed=0):
    """The same answers, a share of them not asked."""
    return np.where(np.random.default_rng(seed).random(responses.shape) < share, np.nan, responses)
