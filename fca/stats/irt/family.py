"""Normal parameters with a learned mean and precision: the hierarchical priors of variational inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import digamma, gammaln

MEAN_VARIANCE = 1e6  # μ ~ N(0, 10⁶)


@dataclass
class Family:
    """q(z) q(μ) q(τ) of parameters z ~ N(μ, 1/τ), μ ~ N(0, 10⁶), τ ~ Gamma(1, 1) (shape, rate).

    mean, variance: of each z.    count: how many parameters each line stands for.
    centre, centre_variance: of q(μ).    shape, rate: of q(τ).    fixed: z is known, and there is no prior.
    """

    mean: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]
    count: Float[np.ndarray, " n"]
    centre: float
    centre_variance: float
    shape: float
    rate: float
    fixed: bool = False

    @classmethod
    def around(
        cls, mean: Float[np.ndarray, " n"], count: Float[np.ndarray, " n"], variance: float, fixed: bool = False
    ) -> Family:
        """Given means, one variance for all, and the prior that suits them.

        >>> family = Family.around(np.array([0.0, 2.0]), np.ones(2), 0.0)
        >>> family.shape, family.rate, round(family.centre, 3)
        (2.0, 2.0, 1.0)
        """
        centre, spread = float(np.average(mean, weights=count)), np.full(len(mean), variance)
        family = cls(mean, spread, count, centre, 0.0, 1 + float(count.sum()) / 2, 1.0, fixed)
        family.update_prior()
        return family

    @property
    def square(self) -> Float[np.ndarray, " n"]:
        """E z²."""
        return np.asarray(self.mean**2 + self.variance)

    @property
    def precision(self) -> float:
        """E τ."""
        return self.shape / self.rate

    def update(self, precision: Float[np.ndarray, " n"], weighted: Float[np.ndarray, " n"]) -> None:
        """q(z) from a likelihood exp(weighted z - precision z² / 2) and the prior; then q(μ) and q(τ)."""
        if self.fixed:
            return
        self.variance = 1 / (self.precision + precision)
        self.mean = self.variance * (self.precision * self.centre + weighted)
        self.update_prior()

    def update_prior(self) -> None:
        """q(τ) = Gamma(1 + n/2, 1 + Σ E(z - μ)² / 2), then q(μ) = N(E τ Σ E z / t, 1/t), t = n E τ + 10⁻⁶.

        >>> family = Family.around(np.zeros(3), np.ones(3), 1.0)
        >>> family.rate, round(family.centre_variance * 3 * family.precision, 4)
        (2.5, 1.0)
        """
        self.rate = 1 + self._squares() / 2
        self.centre_variance = 1 / (float(self.count.sum()) * self.precision + 1 / MEAN_VARIANCE)
        self.centre = self.centre_variance * self.precision * float(self.count @ self.mean)

    def _squares(self) -> float:
        """Σ E(z - μ)²."""
        return float(self.count @ ((self.mean - self.centre) ** 2 + self.variance + self.centre_variance))

    def evidence(self) -> float:
        """E log p(z, μ, τ) - E log q(z, μ, τ), in nats; 0 if fixed.

        >>> Family.around(np.ones(3), np.ones(3), 0.0, fixed=True).evidence()
        0.0
        """
        if self.fixed:
            return 0.0
        n, log_rate = float(self.count.sum()), float(np.log(self.rate))
        digamma_shape = float(digamma(self.shape))
        values = 0.5 * (n * (digamma_shape - log_rate) - self.precision * self._squares())
        values += 0.5 * (float(self.count @ np.log(self.variance)) + n)
        ratio = self.centre_variance / MEAN_VARIANCE
        centre = 0.5 * (1 + float(np.log(ratio)) - ratio - self.centre**2 / MEAN_VARIANCE)
        entropy = self.shape - log_rate + float(gammaln(self.shape)) + (1 - self.shape) * digamma_shape
        return values + centre + entropy - self.precision

    def scale(self, factor: float) -> None:
        """Everything in a unit `factor` times smaller: numbers grow by `factor`."""
        self.mean, self.centre = self.mean * factor, self.centre * factor
        self.variance, self.centre_variance = self.variance * factor**2, self.centre_variance * factor**2
        self.rate *= factor**2

    @property
    def vector(self) -> Float[np.ndarray, " coordinates"]:
        """All that is learned, the positive ones as logarithms; nothing if fixed."""
        if self.fixed:
            return np.empty(0)
        prior = [self.centre, np.log(self.centre_variance), np.log(self.rate)]
        return np.concatenate([self.mean, np.log(self.variance), prior])

    def move_to(self, vector: Float[np.ndarray, " coordinates"]) -> None:
        """Takes on what a `vector` holds."""
        if self.fixed:
            return
        n = len(self.mean)
        self.mean, self.variance = vector[:n].copy(), np.exp(vector[n : 2 * n])
        self.centre, self.centre_variance, self.rate = float(vector[-3]), *map(float, np.exp(vector[-2:]))


def settle(ability: Family, difficulty: Family, discrimination: Family) -> None:
    """The best origin and unit of the scale, which no answer tells; all at once, where single updates would creep.

    Moving θ and b together changes only the prior of their μ: best at μ_θ = -μ_b. With u = factor² on θ and b (and 1/u
    on a), the evidence is -P/u - Q u - log(u) / 2 plus a constant: best at Q u² + u/2 = P.

    >>> parts = [Family.around(np.array([-1.0, 3.0]), np.ones(2), 0.1) for _ in range(3)]
    >>> settle(*parts)
    >>> round(parts[0].centre + parts[1].centre, 12)
    0.0
    """
    shift = (ability.centre + difficulty.centre) / 2
    for family in (ability, difficulty):
        family.mean, family.centre = family.mean - shift, family.centre - shift
    if discrimination.fixed:
        return
    means = [(family.centre**2 + family.centre_variance) / (2 * MEAN_VARIANCE) for family in (ability, difficulty)]
    slope = (discrimination.centre**2 + discrimination.centre_variance) / (2 * MEAN_VARIANCE)
    p = ability.precision + difficulty.precision + slope
    q = discrimination.precision + sum(means)
    factor = float(np.sqrt((np.sqrt(0.25 + 4 * p * q) - 0.5) / (2 * q)))
    ability.scale(factor)
    difficulty.scale(factor)
    discrimination.scale(1 / factor)
