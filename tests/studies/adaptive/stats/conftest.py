"""Small pools whose models are drawn: sessions differ by a common effect, and an item bank knows the items."""

import numpy as np
import pytest
from scipy.special import expit

from fca.studies.irt.stats import ItemBank


class Drawn:
    """Models x items answers of a pool of sessions with 12 items a level, in groups of equal size."""

    def __init__(self, seed=0, models=2, sessions=40, groups=2, sd=1.0, per_level=12):
        rng = np.random.default_rng(seed)
        self.levels = np.tile(np.repeat([0, 1, 2], per_level), sessions)
        self.sessions = np.repeat(np.arange(sessions), 3 * per_level)
        self.groups = self.sessions % groups
        items = len(self.levels)
        difficulty = np.array([-2.0, -0.5, 1.5])[self.levels] + sd * rng.standard_normal(sessions)[self.sessions]
        one = np.ones(items)
        self.bank = ItemBank("2pl", difficulty, 1.2 * one, one, 0 * one)
        self.ability = np.linspace(-0.5, 0.8, models)
        self.chance = expit(1.2 * (self.ability[:, None] - difficulty))
        self.correct = rng.random((models, items)) < self.chance

    @property
    def pool(self):
        return self.levels, self.sessions, self.groups


@pytest.fixture
def drawn():
    return Drawn
