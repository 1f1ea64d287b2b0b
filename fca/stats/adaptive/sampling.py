"""Drawing items without replacement: in shuffled order within strata, or with unequal chances of known size."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Integer


def shuffled_ranks(stratum: Integer[np.ndarray, " items"], rng: np.random.Generator) -> Int[np.ndarray, " items"]:
    """Place of every item in a random order of its stratum, from 0: those below k are a simple random sample of k.

    >>> ranks = shuffled_ranks(np.array([0, 1, 0, 1, 1]), np.random.default_rng(0))
    >>> sorted(ranks[[0, 2]].tolist()), sorted(ranks[[1, 3, 4]].tolist())
    ([0, 1], [0, 1, 2])
    """
    order = np.argsort(stratum + rng.random(len(stratum)))
    sizes = np.bincount(stratum)
    ranks = np.empty(len(stratum), dtype=np.int64)
    ranks[order] = np.arange(len(stratum)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def capped_inclusion(size: Float[np.ndarray, " items"], n: int) -> Float[np.ndarray, " items"]:
    """Chances proportional to `size`, at most 1, that sum to n; items that would pass 1 are taken for certain.

    >>> capped_inclusion(np.array([8.0, 1.0, 1.0, 2.0]), 2)
    array([1.  , 0.25, 0.25, 0.5 ])
    """
    if not 0 <= n <= len(size):
        raise ValueError(f"n={n} of {len(size)} items")
    if (size <= 0).any():
        raise ValueError("an item of size 0 could never be drawn")
    full = np.zeros(len(size), dtype=bool)
    while True:
        chance = np.where(full, 1.0, size * (n - full.sum()) / max(size[~full].sum(), np.finfo(float).tiny))
        if (chance <= 1).all() or full.sum() == n:
            return np.minimum(chance, 1.0)
        full |= chance > 1


def systematic(
    inclusion: Float[np.ndarray, " items"],
    rng: np.random.Generator,
    along: Float[np.ndarray, " items"] | None = None,
) -> Bool[np.ndarray, " items"]:
    """A sample of fixed size in which every item is with exactly its chance (Madow 1949).

    The items' chances are laid end to end; those are drawn in whose stretch a point u, u + 1, ... falls. In random
    order joint chances are close to those of conditional Poisson sampling (Hartley & Rao 1962); `along` a number the
    sample has its share of every range of it, and varies less where residuals depend on it.

    >>> int(systematic(np.array([1.0, 0.5, 0.5]), np.random.default_rng(0)).sum())
    2
    """
    order = rng.permutation(len(inclusion))
    if along is not None:
        order = order[np.argsort(along[order], kind="stable")]
    ends = np.cumsum(inclusion[order])
    n = round(ends[-1])
    points = np.floor(np.concatenate([[0.0], ends * (n / ends[-1])]) + rng.random())
    points[-1] = points[0] + n  # rounding must not cost the last item
    drawn = np.empty(len(inclusion), dtype=bool)
    drawn[order] = np.diff(points) > 0
    return drawn


def fixed_size_variance(
    residual: Float[np.ndarray, "targets drawn"], inclusion: Float[np.ndarray, " drawn"]
) -> Float[np.ndarray, " targets"]:
    """Estimated variance of Σ residual / inclusion over a sample of fixed size with unequal chances.

        m / (m - 1) Σ (1 - π_i) (e_i / π_i - B)²,   B = Σ (1 - π_i) e_i / π_i / Σ (1 - π_i)

    over the m items with π < 1: the Horvitz-Thompson variance with Hájek's (1964) approximation of joint chances, which
    is exact for equal ones (m / π is then the pool: the simple random sample's (1 - f) s² N² / m).

    >>> fixed_size_variance(np.array([[1.0, 0.0, 1.0, 0.0]]), np.full(4, 0.5))
    array([2.66666667])
    """
    open_ = inclusion < 1
    m = int(open_.sum())
    if not m:
        return np.zeros(len(residual))
    if m == 1:
        return np.full(len(residual), np.nan)
    free = 1 - inclusion[open_]
    scaled = residual[:, open_] / inclusion[open_]
    centre = scaled @ free / free.sum()
    return np.asarray(m / (m - 1) * ((scaled - centre[:, None]) ** 2 @ free))
