"""What is assumed before any answer, and how the answers set its scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

LOG_SLOPE_SD = 0.5  # of log discrimination around its mean
FEASIBILITY = (5.0, 1.0)  # Beta: most items can be solved by nearly everyone who is able enough
GUESS = (1.0, 9.0)  # Beta, of guess / feasibility: a blind answer is right in one of ten cases, or less often
CENTRE_SD = 5.0  # of the mean difficulty around 0, the mean ability
SPREAD_PRIOR = 3.0  # half-normal scale of the spread of difficulty
SPREAD_FLOOR = 0.1  # in the same unit


@dataclass(frozen=True)
class Prior:
    """θ ~ N(0, 1); b ~ N(centre, spread²); log a ~ N(log_slope, 0.5²). These three numbers are learned."""

    centre: float = 0.0
    spread: float = 1.0
    log_slope: float = 0.0


def learned_spread(squares: float, items: int) -> float:
    """The most probable spread when difficulties lie Σ E[(b - centre)²] = `squares` apart; never below a floor.

    Maximises -items log s - squares / (2 s²) - s² / (2 · 3²): a normal density of each item, a half-normal one of s.

    >>> round(learned_spread(4000.0, 1000), 2)
    2.0
    """
    width = SPREAD_PRIOR**2
    variance = width * (np.sqrt(items**2 + 4 * squares / width) - items) / 2
    return float(max(np.sqrt(variance), SPREAD_FLOOR))


def log_beta(
    logit: Float[np.ndarray, " items"], shape: tuple[float, float]
) -> tuple[Float[np.ndarray, " items"], Float[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """Log density of a logit whose inverse is Beta(u, d), up to a constant; its gradient; minus its second derivative.

    As a density of the logit it is p^u (1 - p)^d: its mode u / (u + d) lies inside (0, 1), unlike Beta(5, 1)'s own.

    >>> log_beta(np.array([np.log(5.0)]), (5.0, 1.0))[1].round(12)
    array([0.])
    """
    up, down = shape
    p, q = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(logit))
    density = -up * np.logaddexp(0, -logit) - down * np.logaddexp(0, logit)
    return density, up * q - down * p, (up + down) * p * q
