"""Whether ability orders subjects as accuracy does: Kendall's tau, with the bootstrap over models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fca.stats.intervals import percentile_interval, point_weights

TIED = 1e-7  # below what a single answer changes


class Tau(NamedTuple):
    """Kendall's tau-b and its 95 % interval; NaN where it is undefined (no two subjects differ, or a single model)."""

    tau: float
    low: float
    high: float


def agreement(
    ability: Float[np.ndarray, " subjects"], top1: Float[np.ndarray, " subjects"], models: Sequence[str]
) -> Tau:
    """Tau-b of ability with accuracy; the interval resamples models, all snapshots of one together.

    tau_b = sum s(i, j) t(i, j) / sqrt(sum s² sum t²) over pairs of subjects, s and t the signs of their differences.
    A subject that is drawn twice is no pair with itself.

    >>> agreement(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.7, 0.6]), ["a", "a", "b"]).tau
    0.3333333333333333
    """
    s, t = (_signs(values) for values in (ability, top1))
    cluster = np.unique(np.asarray(models, dtype=str), return_inverse=True)[1]
    [tau] = _tau(s, t, np.ones((1, len(ability))))
    if cluster.max(initial=0) < 1:
        return Tau(float(tau), float("nan"), float("nan"))
    low, high = percentile_interval(_tau(s, t, point_weights(cluster).astype(np.float64)))
    return Tau(float(tau), low, high)


def _signs(values: Float[np.ndarray, " subjects"]) -> Float[np.ndarray, "subjects subjects"]:
    """Of all differences; equal answers give abilities that differ by rounding."""
    difference = values[:, None] - values[None, :]
    return np.asarray(np.sign(np.where(np.abs(difference) < TIED, 0.0, difference)))


def _tau(
    s: Float[np.ndarray, "subjects subjects"],
    t: Float[np.ndarray, "subjects subjects"],
    weights: Float[np.ndarray, "resamples subjects"],
) -> Float[np.ndarray, " resamples"]:
    """Tau-b in every resample, as if subject i were there weights[r, i] times."""
    both, of_s, of_t = (((weights @ pairs) * weights).sum(axis=1) for pairs in (s * t, s * s, t * t))
    answer = np.full(len(weights), np.nan)
    defined = (of_s > 0) & (of_t > 0)
    answer[defined] = both[defined] / np.sqrt(of_s[defined] * of_t[defined])
    return answer
