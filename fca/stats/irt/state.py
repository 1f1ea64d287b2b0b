"""A point in parameter space, and the prior's part of the posterior there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from fca.stats.irt.priors import FEASIBILITY, GUESS, LOG_SLOPE_SD, Prior, log_beta

# what is learned of each item; difficulty comes last, so that its variance is read off a Cholesky factor
LEARNED = {
    "1pl": ("difficulty",),
    "2pl": ("slope", "difficulty"),
    "3pl": ("guess", "slope", "difficulty"),
    "3pl-upper": ("feasibility", "slope", "difficulty"),
    "4pl": ("feasibility", "guess", "slope", "difficulty"),
}


@dataclass(frozen=True)
class State:
    """Abilities and free parameters of items: log discrimination, logits of feasibility and of guess / feasibility.

    That guess is learned as a share of feasibility keeps it below: no item may be solved more often by the less able.
    """

    model: str
    ability: Float[np.ndarray, " subjects"]
    item: Float[np.ndarray, "k groups"]
    prior: Prior

    def row(self, name: str) -> Float[np.ndarray, " groups"] | None:
        """Free parameter of every item by its name; None where the model does not learn it."""
        names = LEARNED[self.model]
        return self.item[names.index(name)] if name in names else None

    @property
    def difficulty(self) -> Float[np.ndarray, " groups"]:
        """Of every item."""
        return np.asarray(self.item[-1])

    @property
    def slope(self) -> Float[np.ndarray, " groups"]:
        """Discrimination of every item."""
        row = self.row("slope")
        return np.ones(self.item.shape[1]) if row is None else np.exp(row)

    def asymptotes(self) -> tuple[Float[np.ndarray, " groups"], Float[np.ndarray, " groups"]]:
        """Feasibility, and guess as a share of it."""
        upper, lower = self.row("feasibility"), self.row("guess")
        ones = np.ones(self.item.shape[1])
        return (
            ones if upper is None else 1 / (1 + np.exp(-upper)),
            0 * ones if lower is None else 1 / (1 + np.exp(-lower)),
        )


def item_prior(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log density of each item's parameters; by parameter (k, groups), its gradient and minus its second derivative."""
    density = np.zeros(state.item.shape[1])
    gradient, curvature = np.empty_like(state.item), np.empty_like(state.item)
    for position, name in enumerate(LEARNED[state.model]):
        value = state.item[position]
        if name in ("feasibility", "guess"):
            term, gradient[position], curvature[position] = log_beta(
                value, FEASIBILITY if name == "feasibility" else GUESS
            )
        else:
            slope = name == "slope"
            mean, sd = (state.prior.log_slope, LOG_SLOPE_SD) if slope else (state.prior.centre, state.prior.spread)
            term = -((value - mean) ** 2) / (2 * sd**2) - np.log(sd)
            gradient[position], curvature[position] = -(value - mean) / sd**2, sd**-2
        density += term
    return density, gradient, curvature
