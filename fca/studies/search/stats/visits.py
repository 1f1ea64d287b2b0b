"""The visits of a search: a policy's subdomains are asked for, and the images of each visit are counted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from fca.studies.search.stats.policies import Policy


class SearchVisits:
    """Asks for the images of one subdomain after the other; see `fca.stats.ask`.

    policy: chooses the subdomain of a visit from the visits so far.    most: visits; None: no end of its own.
    """

    def __init__(self, policy: Policy, most: int | None = None) -> None:
        self.policy, self.most = policy, most
        self._counts = np.zeros((3, 16 if most is None else most), dtype=np.int64)
        self._asked = self._answered = 0

    @property
    def history(self) -> Int[np.ndarray, "3 visits"]:
        """Subdomain, images right and images shown of every visit, in the order asked; in hand, a visit shows none."""
        return self._counts[:, : self._asked]

    def ask(self) -> int | None:
        """The subdomain to visit next. Raises FcaError where none is open."""
        if self._asked == self.most:
            return None
        if self._asked == self._counts.shape[1]:
            self._counts = np.hstack([self._counts, np.zeros_like(self._counts)])

        visited, correct, n_images = self.history
        subdomain = self.policy.next(visited, correct, n_images)
        self._counts[0, self._asked] = subdomain
        self._asked += 1
        return subdomain

    def tell(self, subdomain: int, answer: tuple[int, int]) -> None:
        """Count a visit's images: those that were right, and those that were shown."""
        self._counts[1:, self._answered] = answer
        self._answered += 1
