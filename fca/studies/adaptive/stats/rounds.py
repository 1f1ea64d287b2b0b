"""The rounds of an adaptive test: a policy's items are evaluated until its budget is spent and its goal is reached."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

from fca.stats.ask import ask_until_done
from fca.studies.adaptive.stats.policies import Policy, Positions


class Rounds:
    """The asker of an adaptive test: asks for the responses to one round of items after the other (`fca.stats.ask`).

    policy:    chooses the items of each round; its record keeps the responses.
    rng:       generator of all random draws.
    is_enough: called each time the policy has spent its budget: whether the test may end. If not, the policy gets the
               same budget once more, until every item was evaluated. None: one budget is enough.
    positions: the items of every round with responses.
    """

    def __init__(self, policy: Policy, rng: np.random.Generator, is_enough: Callable[[], bool] | None = None) -> None:
        self.policy = policy
        self.rng = rng
        self.is_enough = is_enough
        self.positions: list[Positions] = []

    def ask(self) -> Positions | None:
        """Positions of the next round's items; None when the test is over."""
        while True:
            positions = self.policy.next(self.rng)
            if len(positions):
                return positions

            # the budget is spent; is_enough comes first, as live tests make their final estimate in it
            if self.is_enough is None or self.is_enough() or self.policy.record.evaluated.all():
                return None
            self.policy.extend()

    def tell(self, positions: Positions, correct: Bool[np.ndarray, " positions"]) -> None:
        """Record which of a round's items the model got right."""
        self.policy.record.add(positions, correct)
        self.positions.append(positions)


def run_policy(policy: Policy, correct: Bool[np.ndarray, " items"], rng: np.random.Generator) -> Policy:
    """Replay the whole test of one model whose responses to all items are known; returns the policy at its end."""
    ask_until_done(Rounds(policy, rng), lambda positions: correct[positions])
    return policy
