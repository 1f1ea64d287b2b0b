"""The visits of a search: a policy chooses the subdomains, and the images of each visit are counted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from fca.studies.search.stats.policies import Policy


class SearchVisits:
    """The questions of a search: the images of one subdomain after the other. See `fca.stats.ask` for the protocol.

    policy: chooses the subdomain of a visit from the visits so far.    most: visits at most; None: no limit.
    """

    def __init__(self, policy: Policy, most: int | None = None) -> None:
        self.policy = policy
        self.most = most
        # subdomain, images right and images shown (rows) of every visit (columns); without a limit it grows
        self._visits = np.zeros((3, 16 if most is None else most), dtype=np.int64)
        self._n_begun = 0
        self._n_finished = 0

    @property
    def history(self) -> Int[np.ndarray, "3 visits"]:
        """Subdomain, images right and images shown of every visit, in the order begun; unfinished visits show none."""
        return self._visits[:, : self._n_begun]

    def ask(self) -> int | None:
        """The subdomain to visit next, or None after `most` visits.

        The visit is added to the history without images; `tell` adds the counts of its images. Raises FcaError if no
        subdomain may be visited again.
        """
        if self._n_begun == self.most:
            return None
        if self._n_begun == self._visits.shape[1]:  # the array is full: double it
            self._visits = np.hstack([self._visits, np.zeros_like(self._visits)])

        visited, correct, n_images = self.history
        subdomain = self.policy.next(visited, correct, n_images)
        self._visits[0, self._n_begun] = subdomain
        self._n_begun += 1
        return subdomain

    def tell(self, subdomain: int, answer: tuple[int, int]) -> None:
        """Count the images of the oldest unfinished visit: those that were right, and those that were shown."""
        self._visits[1:, self._n_finished] = answer
        self._n_finished += 1
