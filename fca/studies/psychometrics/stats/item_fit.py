"""Do items and subjects respond as the fitted model expects: infit and outfit, and S-X² for tests of few items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from fca.studies.irt.stats import fit_irt
from fca.studies.irt.stats.likelihood import ASYMPTOTES, LEARNED, LOG_SLOPE_SD
from fca.studies.irt.stats.model import IrtFit, ItemBank, Matrix
from fca.types import FcaError

BLOCK = 1 << 17  # cells at a time
FEWEST = 5.0  # expected right and expected wrong responses, below which a mean square has no z
TINY = 1e-12
SUREST = 1e-3  # variance of a response below which its surprise counts no more: one response must not be all of outfit
NIL = 0.05  # expected variance of all responses together, below which no mean square says anything
Values = Float[np.ndarray, " n"]
Gradient = Float[np.ndarray, "k subjects items"]


class MeanSquares(NamedTuple):
    """Mean squared residuals of items or of subjects, and the relative standard deviation of each.

    *_sd is NaN below five expected right or five expected wrong responses, where a mean square has no distribution.
    """

    outfit: Values
    outfit_sd: Values
    infit: Values
    infit_sd: Values


class Misfit(NamedTuple):
    """How far mean squares are from what the model makes; z is about standard normal if the model holds.

    Above what is expected: noisier; below: more regular than expected. NaN: too few responses for a z.
    """

    outfit: Values
    outfit_expected: Values
    outfit_z: Values
    infit: Values
    infit_expected: Values
    infit_z: Values


def mean_squares(responses: Matrix, fit: IrtFit) -> tuple[MeanSquares, MeanSquares]:
    """Outfit and infit of every item, and of every subject (Wright & Masters 1982, chapter 5).

    outfit = mean of (x - P)² / W,   infit = Σ (x - P)² / Σ W,   W = P (1 - P): 1 at the true P, whoever responds.
    In outfit W counts as 0.001 at least (and Σ W / max(W, 0.001) as the number of responses), so that one surprise
    among nearly certain responses does not reach thousands; both are NaN where Σ W < 0.05: nothing could surprise.
    Outfit is moved by single surprises far from an item's difficulty, infit by many near it. Both are linear in x - P:

    Σ ((x - P)² - W) = Σ (x - P) c,   c = 1 - 2 P for infit, c / W for outfit
    Var = Σ W c² - d' (2 B⁻¹ - B⁻¹ J B⁻¹) d,   d = Σ c ∂P/∂β,   J the information on the parameters β, B with the prior

    The second term is what fitting takes away: an item's slope follows the very residuals that are judged (without it
    an infit's z has a standard deviation of 0.2 to 0.7 in the 2pl). β: of an item its parameters, of a subject ability.
    responses: 1, 0, NaN for no response; those of the fit. Raises FcaError for others.

    >>> responses = (np.random.default_rng(0).random((30, 50)) < np.linspace(0.2, 0.9, 30)[:, None]).astype(float)
    >>> items, subjects = mean_squares(responses, fit_irt(responses, "1pl"))
    >>> items.infit.shape, subjects.infit.shape
    ((50,), (30,))
    """
    if responses.shape != (len(fit.ability), len(fit.difficulty)):
        allowed = f"{len(fit.ability)} x {len(fit.difficulty)}, those of the fit"
        shape = " x ".join(map(str, responses.shape))
        raise FcaError("subjects x items of responses", shape, allowed, "take the responses that were fitted")

    # Items are finished block by block; the sums of subjects grow over the blocks
    n_subjects = len(responses)
    width = max(BLOCK // n_subjects, 1)
    blocks_of_items = []
    sums_of_subjects = np.zeros((2, 7, n_subjects))
    for start in range(0, responses.shape[1], width):
        block = slice(start, start + width)
        bank = ItemBank(fit.model, *(values[block] for values in fit.bank[1:]))
        gradient, ability_gradient = _gradient(fit, bank)
        terms = _terms(responses[:, block], bank.probability(fit.ability), gradient, ability_gradient)
        fitted_variance = _fitted_variance(terms.along, terms.information, _precision(fit, bank))
        blocks_of_items.append(_finished(terms.sums.sum(axis=2), fitted_variance))
        sums_of_subjects += terms.sums.sum(axis=3)

    # The parameter of a subject is its ability: one entry of d and J, and a prior of variance 1
    along = sums_of_subjects[:, -2:-1]
    information = sums_of_subjects[0, -1][:, None, None]
    fitted_variance = _fitted_variance(along, information, np.ones((1, 1)))
    of_items = np.concatenate(blocks_of_items, axis=1)
    of_subjects = _finished(sums_of_subjects, fitted_variance)
    return MeanSquares(*of_items), MeanSquares(*of_subjects)


class _Terms(NamedTuple):
    """Terms of outfit and infit.

    sums:  (x - P)² w, its expectation, W c², expected right and wrong, c ∂P/∂θ, information on θ, for weight w.
    along: d of the items.   information: J of their parameters.
    """

    sums: Float[np.ndarray, "2 7 subjects items"]
    along: Float[np.ndarray, "2 k items"]
    information: Float[np.ndarray, "items k k"]


def _terms(responses: Matrix, p: Matrix, gradient: Gradient, ability_gradient: Matrix) -> _Terms:
    present = ~np.isnan(responses)
    noise = np.maximum(p * (1 - p), TINY)  # W
    square = np.where(present, (responses - p) ** 2, 0.0)
    gradient = gradient * present
    # k, l: parameters, s: subjects, i: items
    information = np.einsum("ksi,lsi->ikl", gradient, gradient / noise)

    outfit_weight = 1 / np.maximum(noise, SUREST)
    infit_weight = np.ones_like(p)
    sums = []
    along = []
    for weight in (outfit_weight, infit_weight):
        c = (1 - 2 * p) * weight * present
        sums.append(
            [
                square * weight,
                noise * weight * present,
                noise * c**2,
                p * present,
                (1 - p) * present,
                c * ability_gradient,
                ability_gradient**2 / noise * present,
            ]
        )
        along.append(np.einsum("ksi,si->ki", gradient, c))
    return _Terms(np.array(sums), np.array(along), information)


def _fitted_variance(along: np.ndarray, information: np.ndarray, prior: np.ndarray) -> Float[np.ndarray, "2 n"]:
    """d' (2 B⁻¹ - B⁻¹ J B⁻¹) d of every item or subject, for outfit and infit: the variance that fitting takes away."""
    inverse = np.linalg.inv(information + prior)
    # c: outfit and infit, i: items or subjects, k, l: parameters
    return np.einsum("cki,ikl,cli->ci", along, 2 * inverse - inverse @ information @ inverse, along)


def _finished(sums: Float[np.ndarray, "2 7 n"], fitted_variance: Float[np.ndarray, "2 n"]) -> Float[np.ndarray, "4 n"]:
    """Outfit, its standard deviation, infit and its standard deviation, from the sums of `_Terms`."""
    infit_expected = sums[1, 1]  # Σ W
    rows = []
    for (square, expected, variance, right, wrong, *_), fitted in zip(sums, fitted_variance, strict=True):
        expected = np.where(infit_expected < NIL, np.nan, expected)
        sd = np.sqrt(np.maximum(variance - fitted, TINY)) / expected
        is_too_few = np.minimum(right, wrong) < FEWEST
        rows += [square / expected, np.where(is_too_few, np.nan, sd)]
    return np.stack(rows)


def _gradient(fit: IrtFit, bank: ItemBank) -> tuple[Gradient, Matrix]:
    """Derivatives of P by each learned parameter of the items, on the scale of its prior; and by ability."""
    z = bank.discrimination * (fit.ability[:, None] - bank.difficulty)
    upper = bank.feasibility
    guess_share = bank.guess / bank.feasibility
    solved = expit(z)
    slope = (upper - bank.guess) * solved * (1 - solved)  # ∂P/∂z
    gradients = {
        "difficulty": -bank.discrimination * slope,
        "slope": z * slope,
        "feasibility": (1 - upper) * upper * (guess_share + (1 - guess_share) * solved),
        "guess": upper * guess_share * (1 - guess_share) * (1 - solved),
    }
    return np.stack([gradients[name] for name in LEARNED[fit.model]]), bank.discrimination * slope


def _precision(fit: IrtFit, bank: ItemBank) -> Float[np.ndarray, "items k k"]:
    """Curvature of the prior, with the spread of difficulties about as `fit_irt` learns it."""
    ones = np.ones(len(bank.difficulty))
    guess_share = bank.guess / bank.feasibility
    curvatures = {
        "difficulty": ones / (np.var(fit.difficulty) + np.mean(fit.difficulty_se**2)),
        "slope": ones / LOG_SLOPE_SD**2,
        "feasibility": sum(ASYMPTOTES["feasibility"]) * bank.feasibility * (1 - bank.feasibility),
        "guess": sum(ASYMPTOTES["guess"]) * guess_share * (1 - guess_share),
    }
    prior = np.stack([curvatures[name] for name in LEARNED[fit.model]], axis=1)
    return np.eye(prior.shape[1]) * prior[:, None, :]


def replicates(
    responses: Matrix, fit: IrtFit, rng: np.random.Generator, number: int
) -> Iterator[tuple[Matrix, IrtFit]]:
    """Responses drawn from a fit, and their own fit: what statistics are like if the model holds. Holes stay.

    >>> responses = (np.random.default_rng(0).random((9, 200)) < np.linspace(0.2, 0.9, 9)[:, None]).astype(float)
    >>> [(drawn, again)] = replicates(responses, fit_irt(responses, "1pl"), np.random.default_rng(0), 1)
    >>> bool(mean_squares(drawn, again)[1].infit.max() < 1)
    True
    """
    missing = np.isnan(responses)
    p = fit.probability()
    for _ in range(number):
        drawn = np.where(missing, np.nan, rng.random(p.shape) < p)
        yield drawn, fit_irt(drawn, fit.model)


def misfit(observed: MeanSquares, expected: Sequence[MeanSquares]) -> Misfit:
    """Observed mean squares against those of simulated responses (a parametric bootstrap of their mean).

    z = (³√m - mean ³√m*) / (sd / 3 · sqrt(1 + 1 / R)),   R replicates m*, cube roots after Wilson and Hilferty

    Expected mean squares are below 1: items bend towards the few subjects they were fitted to, by about the number of
    an item's parameters over that of subjects. Over thousands of items this shifts a subject by many of its own
    standard deviations, so a subject's z means nothing without simulation.

    >>> one = MeanSquares(*(np.array([value]) for value in (1.331, 0.3, 1.0, 0.3)))
    >>> other = MeanSquares(*(np.array([value]) for value in (1.0, 0.3, 1.0, 0.3)))
    >>> misfit(one, [other, other, other, other]).outfit_z.round(3)
    array([0.894])
    """
    outfit_expected, outfit_z = _against_replicates(
        observed.outfit, observed.outfit_sd, [replicate.outfit for replicate in expected]
    )
    infit_expected, infit_z = _against_replicates(
        observed.infit, observed.infit_sd, [replicate.infit for replicate in expected]
    )
    return Misfit(observed.outfit, outfit_expected, outfit_z, observed.infit, infit_expected, infit_z)


def _against_replicates(observed: Values, sd: Values, replicates: Sequence[Values]) -> tuple[Values, Values]:
    """The mean of the replicates, and z of the observed mean squares (see `misfit`)."""
    roots = np.cbrt(replicates)  # replicates x items or subjects
    spread = sd / 3 * np.sqrt(1 + 1 / len(roots))
    return np.mean(replicates, axis=0), (np.cbrt(observed) - roots.mean(axis=0)) / spread
