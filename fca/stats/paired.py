"""Two classifiers on the same images: exact test, interval of the difference, and correction for many comparisons."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from fca.stats.intervals import LEVEL, wilson


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact p that two classifiers are equally often right, from the images that only one of them gets right.

    If they are, each such image is a fair coin: two-sided binomial test of only_a among only_a + only_b (McNemar 1947,
    in its exact form). Images that both or neither get right do not count. No such image at all: p = 1.

    >>> mcnemar(1, 7)
    0.0703125
    """
    if min(only_a, only_b) < 0:
        raise ValueError(f"only_a={only_a}, only_b={only_b}: counts of images cannot be negative")
    discordant = only_a + only_b
    return float(binomtest(only_a, discordant, 0.5).pvalue) if discordant else 1.0


def paired_interval(
    both: int | float, only_a: int | float, only_b: int | float, neither: int | float, level: float = LEVEL
) -> tuple[float, float]:
    """Interval of accuracy a minus accuracy b on the same n images (Newcombe 1998, Stat. Med. 17:2635, method 10).

    low  = d - sqrt((pa - la)² - 2 φ (pa - la)(ub - pb) + (ub - pb)²)
    high = d + sqrt((ua - pa)² - 2 φ (ua - pa)(pb - lb) + (pb - lb)²)

    with d = pa - pb, the Wilson intervals [la, ua] and [lb, ub] of both accuracies, and φ the correlation between being
    right of the two, reduced by a continuity correction where it is positive. Unlike d ± 2 standard errors it stays in
    [-1, 1], and does not vanish where the two agree on every image. Raises ValueError without images.

    Counts may be fractions (means over several runs of each classifier); Wilson then takes the nearest whole counts.

    >>> [round(end, 4) for end in paired_interval(59, 6, 16, 80)]
    [-0.1186, -0.0046]
    """
    n = both + only_a + only_b + neither
    if min(both, only_a, only_b, neither) < 0 or n == 0:
        cells = (both, only_a, only_b, neither)
        raise ValueError(f"counts (both, only a, only b, neither) = {cells}: none may be negative, one must be above 0")
    right_a, right_b = both + only_a, both + only_b
    (low_a, high_a), (low_b, high_b) = (wilson(round(right), round(n), level) for right in (right_a, right_b))
    pa, pb = round(right_a) / round(n), round(right_b) / round(n)
    product, margins = both * neither - only_a * only_b, right_a * (n - right_a) * right_b * (n - right_b)
    corrected = max(product - n / 2, 0.0) if product > 0 else product
    phi = corrected / margins**0.5 if margins > 0 else 0.0  # 0 where one classifier is always right or always wrong

    def length(one: float, other: float) -> float:
        return float(max(one**2 - 2 * phi * one * other + other**2, 0.0) ** 0.5)

    d = (only_a - only_b) / n
    return max(-1.0, d - length(pa - low_a, high_b - pb)), min(1.0, d + length(high_a - pa, pb - low_b))


def holm(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """p values corrected for their number: the chance of even one false positive stays below the level.

    In order of size, the i-th smallest of m times (m - i + 1), never below the one before, at most 1 (Holm 1979). Valid
    whatever the dependence between tests, as between pairs of models that share a model and the images.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    from statsmodels.stats.multitest import multipletests  # two seconds to import

    return np.asarray(multipletests(p, method="holm")[1])
