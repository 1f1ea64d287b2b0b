"""Mean-field variational inference with hierarchical priors, as in Sharma et al. (2023), appendix B.1.

Discrimination has a normal prior there, so it can be negative, and an item or the whole scale reversed. The start
(higher accuracy is more able, discrimination 1) fixes the direction of the scale; an item that better subjects miss
stays negative. For items that nobody solves only the prior separates feasibility from difficulty: use p_max.

First the parameters with a learned mean and precision, then one sweep of coordinate ascent, then the fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import betaln, digamma, entr, expit, gammaln

from fca.stats.irt.likelihood import Responses, prepare
from fca.stats.irt.model import IrtFit, check_responses, model_name
from fca.types import FcaError, check_choice

VARIATIONAL = ("1pl", "2pl", "3pl-upper")
MEAN_VARIANCE = 1e6  # μ ~ N(0, 10⁶)
START_SD = 0.5  # of the noise, in logits, that a seed adds to the start
START_VARIANCE = 0.1  # of each q; the first sweep replaces it
TOLERANCE = 1e-7  # rise of the evidence a sweep, in nats a response, below which the ascent has ended

Vector = Float[np.ndarray, " n"]
Coordinates = Float[np.ndarray, " coordinates"]
Cells = Float[np.ndarray, "subjects groups"]


@dataclass
class Family:
    """q(z) q(μ) q(τ) of parameters z ~ N(μ, 1/τ), μ ~ N(0, 10⁶), τ ~ Gamma(1, 1) (shape, rate).

    mean, variance: of each z.    count: how many parameters each entry stands for.
    centre, centre_variance: of q(μ).    shape, rate: of q(τ).    fixed: z is known, and there is no prior.
    """

    mean: Vector
    variance: Vector
    count: Vector
    centre: float
    centre_variance: float
    shape: float
    rate: float
    fixed: bool = False

    @classmethod
    def around(cls, mean: Vector, count: Vector, variance: float, fixed: bool = False) -> Family:
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
    def square(self) -> Vector:
        """E z²."""
        return self.mean**2 + self.variance

    @property
    def precision(self) -> float:
        """E τ."""
        return self.shape / self.rate

    def update(self, precision: Vector, weighted: Vector) -> None:
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
    def vector(self) -> Coordinates:
        """All that is learned, the positive ones as logarithms."""
        prior = [self.centre, np.log(self.centre_variance), np.log(self.rate)]
        return np.concatenate([self.mean, np.log(self.variance), prior])

    def move_to(self, vector: Coordinates) -> None:
        """Set what is learned from a `vector`."""
        n = len(self.mean)
        self.mean, self.variance = vector[:n].copy(), np.exp(vector[n : 2 * n])
        self.centre, self.centre_variance, self.rate = float(vector[-3]), *map(float, np.exp(vector[-2:]))


def standardise(ability: Family, difficulty: Family, discrimination: Family) -> None:
    """The best origin and unit of the scale, which no response determines; at once, where single updates would creep.

    Moving θ and b together changes only the prior of their μ: best at μ_θ = -μ_b. With u = factor² on θ and b (and 1/u
    on a), the evidence is -P/u - Q u - log(u) / 2 plus a constant: best at Q u² + u/2 = P.

    >>> parts = [Family.around(np.array([-1.0, 3.0]), np.ones(2), 0.1) for _ in range(3)]
    >>> standardise(*parts)
    >>> round(parts[0].centre + parts[1].centre, 12)
    0.0
    """
    shift = (ability.centre + difficulty.centre) / 2
    for family in (ability, difficulty):
        family.mean, family.centre = family.mean - shift, family.centre - shift
    if discrimination.fixed:
        return
    families = ability, difficulty, discrimination
    means = [(family.centre**2 + family.centre_variance) / (2 * MEAN_VARIANCE) for family in families]
    p = ability.precision + difficulty.precision + means[2]
    q = discrimination.precision + sum(means[:2])
    factor = float(np.sqrt((np.sqrt(0.25 + 4 * p * q) - 0.5) / (2 * q)))
    for family, by in zip(families, (factor, factor, 1 / factor), strict=True):
        family.scale(by)


@dataclass
class Posterior:
    """q of everything; `beta` holds the two parameters of q(λ) of each group of items, None where λ = 1."""

    ability: Family
    difficulty: Family
    discrimination: Family
    beta: Float[np.ndarray, "2 groups"] | None

    @property
    def learned(self) -> list[Family]:
        """The families of parameters that are not fixed."""
        return [family for family in (self.ability, self.difficulty, self.discrimination) if not family.fixed]

    @property
    def vector(self) -> Coordinates:
        """All parameters of q, the positive ones as logarithms."""
        logs = np.empty(0) if self.beta is None else np.log(self.beta).ravel()
        return np.concatenate([*(family.vector for family in self.learned), logs])

    def move_to(self, vector: Coordinates) -> None:
        """Set all parameters from a `vector`."""
        for family in self.learned:
            own, vector = np.split(vector, [len(family.vector)])
            family.move_to(own)
        if self.beta is not None:
            self.beta = np.exp(vector).reshape(self.beta.shape)


def first_posterior(data: Responses, model: str, rng: np.random.Generator) -> Posterior:
    """Accuracies and item means on the logit scale, with noise; a tenth of the wrong responses count as infeasible.

    >>> first_posterior(prepare(np.eye(3)), "2pl", np.random.default_rng(0)).discrimination.mean
    array([1., 1., 1.])
    """
    (ability, easiness), wrong = data.logits(), data.indicator - data.right
    starts = [_with_noise(values, rng) for values in (ability - ability.mean(), -easiness)]
    beta = 1 + np.stack([(data.right + 0.9 * wrong).sum(axis=0), 0.1 * wrong.sum(axis=0)])
    return Posterior(
        Family.around(starts[0], np.ones(len(ability)), START_VARIANCE),
        Family.around(starts[1], data.count, START_VARIANCE),
        Family.around(np.ones(len(easiness)), data.count, START_VARIANCE * (model != "1pl"), fixed=model == "1pl"),
        beta if model == "3pl-upper" else None,
    )


def _with_noise(values: Vector, rng: np.random.Generator) -> Vector:
    """Equal values stay equal: in 1pl, subjects with as many right responses must end together."""
    levels, which = np.unique(values, return_inverse=True)
    return values + START_SD * rng.standard_normal(len(levels))[which]


def local_step(q: Posterior, data: Responses, present: Cells) -> tuple[Cells, Cells, float]:
    """The best quadratic in each cell, and the evidence with it.

    -log(1 + exp(∓x)) ≥ ±x/2 - h (x² - ξ²) - log 2 cosh(ξ/2), h = tanh(ξ/2) / 4ξ, tightest at ξ² = E x², x = a (θ - b)

    Returns h and the factor of x (both times the chance that the cell was feasible), and the evidence lower bound.

    >>> data = prepare(np.eye(3))
    >>> q = first_posterior(data, "2pl", np.random.default_rng(0))
    >>> h, slope, evidence = local_step(q, data, np.ones((3, 3)))
    >>> bool((h < 1 / 8).all()), evidence < 0
    (True, True)
    """
    theta, b, a = q.ability, q.difficulty, q.discrimination
    powers = np.stack([np.ones(len(theta.mean)), theta.mean, theta.square], axis=1)
    xi = np.sqrt(powers @ np.stack([a.square * b.square, -2 * a.square * b.mean, a.square]))
    small = np.expm1(-xi)
    floor = -xi / 2 - np.log(2 + small)  # - log 2 cosh(ξ/2)
    small /= -4 * xi * (2 + small)  # h
    feasible, rest = present, 0.0
    if q.beta is not None:
        x = powers[:, :2] @ np.stack([-a.mean * b.mean, a.mean])
        feasible, rest = _feasible(q.beta, data, present, floor - x / 2)
    slope = feasible * (data.right - 0.5)
    by_item = np.einsum("sg,sg->g", feasible, floor) + a.mean * (theta.mean @ slope - b.mean * slope.sum(axis=0))
    evidence = by_item @ data.count + rest + theta.evidence() + b.evidence() + a.evidence()
    small *= feasible
    return small, slope, float(evidence)


def _feasible(beta: np.ndarray, data: Responses, present: Cells, miss: Cells) -> tuple[Cells, float]:
    """Chance that each cell was feasible (`miss`: bound on log P(wrong | feasible)), and its evidence; updates q(λ)."""
    wrong = present > data.right
    chance = np.where(wrong, expit(digamma(beta[0]) - digamma(beta[1]) + miss), present)
    entropy = (entr(chance) + entr(np.where(wrong, 1 - chance, 0.0))).sum(axis=0)
    feasible = chance.sum(axis=0)
    beta[:] = 1 + np.stack([feasible, present.sum(axis=0) - feasible])
    # with this q(λ), E log of the indicators' prior and -KL(q(λ) | U[0, 1]) add up to log B
    return chance, float((entropy + betaln(*beta)) @ data.count)


def global_step(q: Posterior, count: Float[np.ndarray, " groups"], curvature: Cells, slope: Cells) -> None:
    """Each normal factor in turn given the others: the bound is quadratic in each of b, a, θ.

    >>> data = prepare(np.eye(3))
    >>> q = first_posterior(data, "2pl", np.random.default_rng(0))
    >>> global_step(q, data.count, *local_step(q, data, np.ones((3, 3)))[:2])
    >>> bool((q.difficulty.variance < 1).all())
    True
    """
    theta, b, a = q.ability, q.difficulty, q.discrimination
    powers = np.stack([np.ones(len(theta.mean)), theta.mean, theta.square])
    (total, by_mean, by_square), (up, up_mean) = powers @ curvature, powers[:2] @ slope
    b.update(2 * a.square * total, 2 * a.square * by_mean - a.mean * up)
    a.update(2 * (by_square - 2 * by_mean * b.mean + total * b.square), up_mean - b.mean * up)
    theta.update(
        2 * curvature @ (count * a.square), slope @ (count * a.mean) + 2 * curvature @ (count * a.square * b.mean)
    )
    standardise(theta, b, a)


def fit_variational(
    responses: Float[np.ndarray, "subjects items"], model: str = "3pl-upper", seed: int = 0, epochs: int = 2000
) -> IrtFit:
    """Posterior means and standard deviations under the paper's priors (Sharma et al. 2023, eq. 3 to 5).

    P = λ / (1 + exp(-a (θ - b))),  λ ~ U[0, 1],  each of θ, b, a ~ N(μ, 1/τ) with its μ ~ N(0, 10⁶), τ ~ Gamma(1, 1)

    Variances, as the text has them (py-irt reads 1/τ as a standard deviation). q is a product of normals for θ, b, a
    and μ, Gamma for τ, and Beta for λ, which the paper leaves open: the best one given the others. The evidence lower
    bound rises by coordinate ascent in closed form, without sampling: the logistic's logarithm is bounded by the
    quadratic of Jaakkola and Jordan (2000, Stat. Comput. 10:25), and a wrong response is either infeasible or a miss
    (an indicator a cell). The bound and the factorisation make standard deviations too small, and few subjects (19), or
    the 3PL with any number that was tried, leave all items nearly one discrimination: it shows no difference in it.

    model:  1pl (a = 1), 2pl (λ = 1), 3pl-upper.    epochs: sweeps at most; `converged` if fewer were enough.
    seed:   of the noise on the start: logit accuracies and minus the items' logit means, a = 1.
    In the result, `log_posterior` is the evidence lower bound, `*_se` are posterior standard deviations, and
    `discrimination` may be negative. Raises FcaError for responses, models and epochs that cannot be fitted.

    >>> responses = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, np.nan]])
    >>> fit_variational(responses, "1pl").ability.round(2)
    array([0.01, 0.01, 0.98])
    """
    name = model_name(model)
    check_choice("model", name, VARIATIONAL, "take one of these, or leave out compat")
    if epochs < 1:
        raise FcaError("epochs", epochs, "1 or more", "raise it")
    check_responses(responses)
    data = prepare(responses, one_slope=name == "1pl")
    q = first_posterior(data, name, np.random.default_rng(seed))
    evidence, sweeps, converged = ascend(q, data, epochs)
    ones = np.ones(len(data.count))
    items = {"feasibility": ones if q.beta is None else q.beta[0] / q.beta.sum(axis=0), "guess": 0 * ones}
    for parameter, family in (("difficulty", q.difficulty), ("discrimination", q.discrimination)):
        items |= {parameter: family.mean, f"{parameter}_se": np.sqrt(family.variance)}
    of_items = {parameter: values[data.group] for parameter, values in items.items()}
    ability, ability_se = q.ability.mean, np.sqrt(q.ability.variance)
    return IrtFit(name, ability, ability_se, **of_items, log_posterior=evidence, iterations=sweeps, converged=converged)


def ascend(q: Posterior, data: Responses, epochs: int) -> tuple[float, int, bool]:
    """Sweeps until the evidence stops rising, changing `q` in place; (evidence, sweeps, whether it stopped).

    After every third sweep it tries an extrapolation, which counts as a sweep, and keeps it if the evidence rises.

    >>> data = prepare(np.eye(3))
    >>> ascend(first_posterior(data, "1pl", np.random.default_rng(0)), data, 100)[1:]
    (9, True)
    """
    present = data.indicator
    enough = TOLERANCE * float((present @ data.count).sum())
    curvature, slope, evidence = local_step(q, data, present)
    trail: list[Coordinates] = []  # starts after the sweep that follows an extrapolation
    sweeps = 0
    while sweeps < epochs:
        sweeps, before = sweeps + 1, evidence
        global_step(q, data.count, curvature, slope)
        curvature, slope, evidence = local_step(q, data, present)
        if evidence - before < enough:
            return evidence, sweeps, True
        trail.append(q.vector)
        if len(trail) == 3 and sweeps < epochs:
            sweeps += 1
            with np.errstate(all="ignore"):  # an extrapolation that overflows has no evidence, and is undone
                q.move_to(extrapolate(*trail))
                jump = local_step(q, data, present)
            if jump[2] > evidence:
                curvature, slope, evidence = jump
            else:
                q.move_to(trail[-1])
            trail = []
    return evidence, epochs, False


def extrapolate(first: Coordinates, second: Coordinates, third: Coordinates) -> Coordinates:
    """The point that a slow ascent is heading for, from three points of it (SQUAREM, S3; Varadhan and Roland 2008).

    x + 2 s r + s² v,  r the first step, v the change from first to second step, s = max(1, |r| / |v|); s = 1: third

    >>> extrapolate(np.array([0.0]), np.array([0.5]), np.array([0.75]))  # on its way to 1, half of the rest a step
    array([1.])
    """
    step = second - first
    change = third - second - step
    size = max(1.0, float(np.linalg.norm(step) / np.linalg.norm(change)))
    return first + 2 * size * step + size**2 * change
