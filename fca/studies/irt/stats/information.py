"""Information of items and tests about ability, and the reliability of ability estimates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq

from fca.studies.irt.stats.model import ItemBank, Items, Subjects

NODES = 61  # of the quadrature over θ ~ N(0, 1)
TINY = 1e-300


def information(bank: ItemBank, ability: float) -> Items:
    """Fisher information of every item at an ability: P'² / (P (1 - P)) (Birnbaum 1968).

    >>> one = np.ones(1)
    >>> information(ItemBank("2pl", 0 * one, 2 * one, one, 0 * one), 0.0)
    array([1.])
    """
    p = bank.probability(np.array([ability]))[0]
    span = bank.feasibility - bank.guess
    share = (p - bank.guess) / span
    return (bank.discrimination * span * share * (1 - share)) ** 2 / np.maximum(p * (1 - p), TINY)


def total_information(bank: ItemBank, ability: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Information of all items together at each ability: Σ I_i(θ); 1 / sqrt(Σ I_i) is the standard error there.

    >>> one = np.ones(4)
    >>> total_information(ItemBank("2pl", 0 * one, 2 * one, one, 0 * one), np.array([0.0]))
    array([4.])
    """
    return np.array([information(bank, theta).sum() for theta in ability.tolist()])


def marginal_reliability(
    bank: ItemBank, share: float = 1.0, spread: float = 1.0, values: Float[np.ndarray, " n"] | None = None
) -> float:
    """Expected squared correlation of ability with its estimate, over θ ~ N(0, spread²), before any response is seen.

    r² = E[I s² / (I s² + 1)],   I = share · Σ I_i(θ),   s = spread   (Green et al. 1984, as in mirt's marginal_rxx)

    share:  of the items, drawn at random; above 1, more items like these.
    values: `total_information` at spread · `nodes()[0]`, where it is known already.

    >>> one = np.ones(100)
    >>> bank = ItemBank("1pl", 0 * one, one, one, 0 * one)
    >>> round(marginal_reliability(bank), 2), round(marginal_reliability(bank, 0.1), 2)
    (0.95, 0.66)
    """
    node, weight = nodes()
    total = total_information(bank, spread * node) if values is None else values
    gain = share * total * spread**2
    return float(weight @ (gain / (gain + 1)))


def nodes() -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Gauss and Hermite's nodes and weights for an expectation over N(0, 1).

    >>> node, weight = nodes()
    >>> round(float(weight @ node**2), 9)
    1.0
    """
    node, weight = hermegauss(NODES)
    return node, weight / weight.sum()


def items_needed(bank: ItemBank, reliability: float = 0.95, spread: float = 1.0) -> int | None:
    """How many items drawn at random from a bank (with copies, if it is too small) reach a marginal reliability.

    Solves `marginal_reliability(bank, share) = reliability` for share; the number is share times the items. None where
    no number does: abilities that do not differ (spread 0) cannot be ordered by any test.

    >>> one = np.ones(100)
    >>> items_needed(ItemBank("1pl", 0 * one, one, one, 0 * one), 0.95)
    100
    """
    total = total_information(bank, spread * nodes()[0])

    def excess_reliability(log_share: float) -> float:
        return marginal_reliability(bank, float(np.exp(log_share)), spread, total) - reliability

    if excess_reliability(30.0) < 0:
        return None
    share = np.exp(brentq(excess_reliability, -30.0, 30.0))
    return int(np.ceil(share * len(bank.difficulty)))


def empirical_reliability(ability: Subjects, ability_se: Subjects) -> float:
    """Share of the variance of ability that is not error, for these subjects.

    var(θ̂) / (var(θ̂) + mean(se²)), θ̂ a posterior mean or mode (as in mirt's empirical_rxx; population variance)

    NaN where it is not defined: for one subject, or for equal abilities known without error.

    >>> round(empirical_reliability(np.array([-1.0, 1.0]), np.array([0.5, 0.5])), 3)
    0.8
    """
    variance = float(np.var(ability))
    error_variance = float(np.mean(ability_se**2))
    if len(ability) < 2 or variance + error_variance == 0:
        return float("nan")
    return variance / (variance + error_variance)
