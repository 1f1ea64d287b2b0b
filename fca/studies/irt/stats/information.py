"""Information of items and tests about ability, and the reliability of ability estimates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq

from fca.studies.irt.stats.model import ItemBank, Items, Subjects

NODES = 61  # of the quadrature over θ ~ N(0, 1)
SMALLEST_VARIANCE = 1e-300


def information(bank: ItemBank, ability: float) -> Items:
    """Fisher information of every item at an ability: how precisely a response measures it there (Birnbaum 1968).

    I(θ) = P'² / (P (1 - P))

    >>> one = np.ones(1)
    >>> information(ItemBank("2pl", 0 * one, 2 * one, one, 0 * one), 0.0)
    array([1.])
    """
    p = bank.probability(np.array([ability]))[0]
    span = bank.feasibility - bank.guess
    share = (p - bank.guess) / span  # 1 / (1 + exp(-a (θ - b)))
    return (bank.discrimination * span * share * (1 - share)) ** 2 / np.maximum(p * (1 - p), SMALLEST_VARIANCE)


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
    """The reliability that a test of these items would have for subjects with abilities θ ~ N(0, spread²).

    r² = E[I s² / (I s² + 1)],   I = share · Σ I_i(θ),   s = spread   (Green et al. 1984, as in mirt's marginal_rxx)

    It is the expected squared correlation of ability with its estimate, before any response is seen: 1 is perfect. The
    expectation over θ is computed by quadrature (`nodes`).
    share:  share of the items of the bank that the test has, drawn at random; above 1, the test has more items, of the
            same kind.
    values: the information of all items at the nodes, total_information(bank, spread * nodes()[0]), if it is already
            known; None: it is computed here.

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
    """Nodes and weights of Gauss-Hermite quadrature for an expectation over N(0, 1): E f(x) = Σ weight · f(node).

    >>> node, weight = nodes()
    >>> round(float(weight @ node**2), 9)
    1.0
    """
    node, weight = hermegauss(NODES)
    return node, weight / weight.sum()


def items_needed(bank: ItemBank, reliability: float = 0.95, spread: float = 1.0) -> int | None:
    """The least number of items, drawn at random from a bank, that reaches a marginal reliability.

    Solves `marginal_reliability(bank, share, spread) = reliability` for the share; the number is the share times the
    number of items of the bank. It may be larger than the bank: so many items of the same kind are needed. None if no
    number reaches the reliability: no test can order abilities that do not differ (spread 0).
    spread: standard deviation of the abilities.

    >>> one = np.ones(100)
    >>> items_needed(ItemBank("1pl", 0 * one, one, one, 0 * one), 0.95)
    100
    """
    total = total_information(bank, spread * nodes()[0])

    def excess_reliability(log_share: float) -> float:
        return marginal_reliability(bank, float(np.exp(log_share)), spread, total) - reliability

    # the share is searched as a logarithm, from e^-30 to e^30; reliability rises with it
    if excess_reliability(30.0) < 0:
        return None
    share = np.exp(brentq(excess_reliability, -30.0, 30.0))
    return int(np.ceil(share * len(bank.difficulty)))


def empirical_reliability(ability: Subjects, ability_se: Subjects) -> float:
    """The share of the variance of estimated abilities that is not error, for these subjects.

    var(θ̂) / (var(θ̂) + mean(se²)), with the population variance (as in mirt's empirical_rxx)

    ability, ability_se: posterior means or modes θ̂, and their standard errors.
    NaN where it is not defined: for one subject, or for equal abilities known without error.

    >>> round(empirical_reliability(np.array([-1.0, 1.0]), np.array([0.5, 0.5])), 3)
    0.8
    """
    variance = float(np.var(ability))
    error_variance = float(np.mean(ability_se**2))
    if len(ability) < 2 or variance + error_variance == 0:
        return float("nan")
    return variance / (variance + error_variance)
