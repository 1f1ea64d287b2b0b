"""The factors of the variational posterior, and one sweep of coordinate ascent over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import betaln, digamma, entr, expit

from fca.stats.irt.answers import Answers
from fca.stats.irt.family import Family, settle
from fca.stats.irt.start import smoothed_logit

START_SD = 0.5  # of the noise, in logits, that a seed adds to the start
START_VARIANCE = 0.1  # of each q; the first sweep replaces it
Cells = Float[np.ndarray, "subjects groups"]


@dataclass
class Posterior:
    """q of everything; `beta` holds the two parameters of q(λ) of each group of items, None where λ = 1."""

    ability: Family
    difficulty: Family
    discrimination: Family
    beta: Float[np.ndarray, "2 groups"] | None

    @property
    def feasibility(self) -> Float[np.ndarray, " groups"]:
        """Posterior mean of λ."""
        return np.ones(len(self.difficulty.mean)) if self.beta is None else self.beta[0] / self.beta.sum(axis=0)

    @property
    def vector(self) -> Float[np.ndarray, " coordinates"]:
        """All parameters of q, the positive ones as logarithms."""
        families = [family.vector for family in (self.ability, self.difficulty, self.discrimination)]
        return np.concatenate([*families, [] if self.beta is None else np.log(self.beta).ravel()])

    def move_to(self, vector: Float[np.ndarray, " coordinates"]) -> None:
        """Takes on the parameters of a `vector`."""
        for family in (self.ability, self.difficulty, self.discrimination):
            size = len(family.vector)
            family.move_to(vector[:size])
            vector = vector[size:]
        if self.beta is not None:
            self.beta = np.exp(vector).reshape(self.beta.shape)


def first_posterior(answers: Answers, model: str, rng: np.random.Generator) -> Posterior:
    """Accuracies and item means on the logit scale, with noise; a tenth of the wrong answers taken for infeasible.

    >>> from fca.stats.irt.answers import prepare
    >>> first_posterior(prepare(np.eye(3)), "2pl", np.random.default_rng(0)).discrimination.mean
    array([1., 1., 1.])
    """
    asked, wrong = asked_cells(answers), asked_cells(answers) - answers.right
    ability = smoothed_logit(answers.right @ answers.count, asked @ answers.count)
    difficulty = -smoothed_logit(answers.right.sum(axis=0), asked.sum(axis=0))
    starts = [_with_noise(values, rng) for values in (ability - ability.mean(), difficulty)]
    fixed = model == "1pl"
    beta = 1 + np.stack([(answers.right + 0.9 * wrong).sum(axis=0), 0.1 * wrong.sum(axis=0)])
    return Posterior(
        Family.around(starts[0], np.ones(len(ability)), START_VARIANCE),
        Family.around(starts[1], answers.count, START_VARIANCE),
        Family.around(np.ones(len(difficulty)), answers.count, 0.0 if fixed else START_VARIANCE, fixed=fixed),
        beta if model == "3pl-upper" else None,
    )


def _with_noise(values: Float[np.ndarray, " n"], rng: np.random.Generator) -> Float[np.ndarray, " n"]:
    """Equal values stay equal: in 1pl, subjects with as many right answers must end together."""
    levels, which = np.unique(values, return_inverse=True)
    return np.asarray(values + START_SD * rng.standard_normal(len(levels))[which])


def asked_cells(answers: Answers) -> Cells:
    """1 where a cell holds an answer, else 0.

    >>> from fca.stats.irt.answers import prepare
    >>> asked_cells(prepare(np.eye(2)))
    array([[1., 1.],
           [1., 1.]])
    """
    return np.ones_like(answers.right) if answers.asked is None else answers.asked.astype(float)


def local_step(q: Posterior, answers: Answers, asked: Cells) -> tuple[Cells, Cells, float]:
    """The best quadratic in each cell, and the evidence with it.

    -log(1 + exp(∓x)) ≥ ±x/2 - h (x² - ξ²) - log 2 cosh(ξ/2), h = tanh(ξ/2) / 4ξ, tightest at ξ² = E x², x = a (θ - b)

    Returns h and the factor of x (both times the chance that the cell was feasible), and the evidence lower bound.

    >>> from fca.stats.irt.answers import prepare
    >>> answers = prepare(np.eye(3))
    >>> q = first_posterior(answers, "2pl", np.random.default_rng(0))
    >>> h, slope, evidence = local_step(q, answers, np.ones((3, 3)))
    >>> bool((h < 1 / 8).all()), evidence < 0
    (True, True)
    """
    theta, b, a = q.ability, q.difficulty, q.discrimination
    ones = np.ones(len(theta.mean))
    powers = np.stack([ones, theta.mean, theta.square], axis=1)
    xi = np.sqrt(powers @ np.stack([a.square * b.square, -2 * a.square * b.mean, a.square]))
    small = np.expm1(-xi)
    floor = -xi / 2 - np.log(2 + small)  # - log 2 cosh(ξ/2)
    small /= -4 * xi * (2 + small)  # h
    feasible, rest = asked, 0.0
    if q.beta is not None:
        x = powers[:, :2] @ np.stack([-a.mean * b.mean, a.mean])
        feasible, rest = _feasible(q.beta, answers, asked, floor - x / 2)
    slope = feasible * (answers.right - 0.5)
    by_item = np.einsum("sg,sg->g", feasible, floor) + a.mean * (theta.mean @ slope - b.mean * slope.sum(axis=0))
    evidence = by_item @ answers.count + rest + theta.evidence() + b.evidence() + a.evidence()
    small *= feasible
    return small, slope, float(evidence)


def _feasible(beta: np.ndarray, answers: Answers, asked: Cells, miss: Cells) -> tuple[Cells, float]:
    """Chance that each cell was feasible (`miss`: bound on log P(wrong | feasible)), and its evidence; updates q(λ)."""
    wrong = asked > answers.right
    chance = np.where(wrong, expit(digamma(beta[0]) - digamma(beta[1]) + miss), asked)
    entropy = (entr(chance) + entr(np.where(wrong, 1 - chance, 0.0))).sum(axis=0)
    feasible = chance.sum(axis=0)
    beta[:] = 1 + np.stack([feasible, asked.sum(axis=0) - feasible])
    # with this q(λ), E log of the indicators' prior and -KL(q(λ) | U[0, 1]) add up to log B
    return chance, float((entropy + betaln(*beta)) @ answers.count)


def global_step(q: Posterior, count: Float[np.ndarray, " groups"], curvature: Cells, slope: Cells) -> None:
    """Each normal factor in turn given the others: the bound is quadratic in each of b, a, θ.

    >>> from fca.stats.irt.answers import prepare
    >>> answers = prepare(np.eye(3))
    >>> q = first_posterior(answers, "2pl", np.random.default_rng(0))
    >>> global_step(q, answers.count, *local_step(q, answers, np.ones((3, 3)))[:2])
    >>> bool((q.difficulty.variance < 1).all())
    True
    """
    theta, b, a = q.ability, q.difficulty, q.discrimination
    total, by_mean, by_square = np.stack([np.ones(len(theta.mean)), theta.mean, theta.square]) @ curvature
    up, up_mean = np.stack([np.ones(len(theta.mean)), theta.mean]) @ slope
    b.update(2 * a.square * total, 2 * a.square * by_mean - a.mean * up)
    a.update(2 * (by_square - 2 * by_mean * b.mean + total * b.square), up_mean - b.mean * up)
    theta.update(
        2 * curvature @ (count * a.square), slope @ (count * a.mean) + 2 * curvature @ (count * a.square * b.mean)
    )
    settle(theta, b, a)
