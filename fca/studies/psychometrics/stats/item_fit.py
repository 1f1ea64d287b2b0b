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

BLOCK = 1 << 17  # responses at a time, to bound memory
FEWEST = 5.0  # expected right and expected wrong responses, below which a mean square has no z
TINY = 1e-12  # keeps variances above 0 where P rounds to 0 or 1
SUREST = 1e-3  # least variance of a response in outfit, so that no single response dominates it
NIL = 0.05  # expected variance of all responses together, below which a mean square means nothing
Values = Float[np.ndarray, " n"]
Gradient = Float[np.ndarray, "k subjects items"]


class MeanSquares(NamedTuple):
    """Outfit and infit, the mean squared residuals of each item or subject, and their standard deviations.

    outfit_sd, infit_sd: standard deviations of outfit and infit if the model holds. They are NaN below five expected
        right or five expected wrong responses, where the distribution of a mean square is not known.
    """

    outfit: Values
    outfit_sd: Values
    infit: Values
    infit_sd: Values


class Misfit(NamedTuple):
    """Outfit and infit, their expectation if the model holds, and z, which is then about standard normal.

    Responses with a mean square above its expectation are noisier than expected, those below it more regular. z is NaN
    for too few responses.
    """

    outfit: Values
    outfit_expected: Values
    outfit_z: Values
    infit: Values
    infit_expected: Values
    infit_z: Values


def mean_squares(responses: Matrix, fit: IrtFit) -> tuple[MeanSquares, MeanSquares]:
    """Outfit and infit of every item, then outfit and infit of every subject (Wright & Masters 1982, chapter 5).

    Both are mean squares: means of the squared residuals x - P relative to their variance W = P (1 - P), over the
    responses to an item or of a subject. x is a response, 1 or 0, and P its chance to be right under the fit. At the
    true P both are 1 on average:

    outfit = mean of (x - P)² / W,   infit = Σ (x - P)² / Σ W

    Outfit reacts to single surprises far from an item's difficulty, infit to many near it. In outfit W is replaced by
    max(W, 0.001), and the number of responses by Σ W / max(W, 0.001), so that one surprise among nearly certain
    responses does not reach thousands. Both are NaN where Σ W < 0.05, as no response could surprise.

    The standard deviation of a mean square is sqrt(Var) / Σ W for infit, and sqrt(Var) / number of responses for
    outfit. Var is the variance of a sum that is linear in x - P, because x is 0 or 1:

    Σ ((x - P)² - W) = Σ (x - P) c,   c = 1 - 2 P for infit; both sides are divided by W for outfit
    Var = Σ W c² - d' (2 B⁻¹ - B⁻¹ J B⁻¹) d,   d = Σ c ∂P/∂β,   J = Σ (∂P/∂β) (∂P/∂β)' / W,   B = J + prior

    β are the parameters of an item, or the ability θ of a subject. J is the information of the responses on β, and
    `prior` the curvature of the prior of β. The second term of Var is the variance that fitting removes, because β
    follows the same residuals that are tested. Without it the z of infit would have a standard deviation of 0.2 to 0.7
    in the 2pl.

    responses: those of the fit, subjects x items; 1, 0, NaN for no response. Raises FcaError for another shape.

    >>> responses = (np.random.default_rng(0).random((30, 50)) < np.linspace(0.2, 0.9, 30)[:, None]).astype(float)
    >>> items, subjects = mean_squares(responses, fit_irt(responses, "1pl"))
    >>> items.infit.shape, subjects.infit.shape
    ((50,), (30,))
    """
    if responses.shape != (len(fit.ability), len(fit.difficulty)):
        allowed = f"{len(fit.ability)} x {len(fit.difficulty)}, those of the fit"
        shape = " x ".join(map(str, responses.shape))
        raise FcaError("subjects x items of responses", shape, allowed, "take the responses that were fitted")

    # one block of items at a time, to bound memory: the sums of its items are complete, those of subjects grow
    n_subjects, n_items = responses.shape
    block_items = max(BLOCK // n_subjects, 1)
    item_mean_squares = []  # for each block: (outfit, its sd, infit, its sd) x items
    # for each subject the sums of the terms of the equations, such as (x - P)² at position SQUARE and W at EXPECTED.
    # The first axis is outfit, infit; the second is the terms
    subject_sums = np.zeros((2, N_TERMS, n_subjects))
    for start in range(0, n_items, block_items):
        block = slice(start, start + block_items)
        bank = ItemBank(fit.model, *(values[block] for values in fit.bank[1:]))  # [0] is the model
        gradient, ability_gradient = _gradients(fit, bank)  # ∂P/∂β of the items, ∂P/∂θ
        terms = _terms_of_responses(responses[:, block], bank.probability(fit.ability), gradient, ability_gradient)

        # the second term of Var, of the items
        removed_variance = _removed_variance(terms.item_direction, terms.item_information, _prior_precision(fit, bank))
        item_sums = terms.sums.sum(axis=2)  # over subjects
        item_mean_squares.append(_mean_squares_and_sds(item_sums, removed_variance))
        subject_sums += terms.sums.sum(axis=3)  # over the items of the block

    # a subject's only parameter β is its ability θ, whose prior N(0, 1) has the curvature 1
    direction = subject_sums[:, ABILITY_DIRECTION, None]  # d = Σ c ∂P/∂θ
    information = subject_sums[0, ABILITY_INFORMATION][:, None, None]  # J, the same for outfit and infit
    removed_variance = _removed_variance(direction, information, np.ones((1, 1)))
    subject_mean_squares = _mean_squares_and_sds(subject_sums, removed_variance)
    return MeanSquares(*np.concatenate(item_mean_squares, axis=1)), MeanSquares(*subject_mean_squares)


# positions on the second axis of _Terms.sums
N_TERMS = 7
SQUARE, EXPECTED, VARIANCE, RIGHT, WRONG, ABILITY_DIRECTION, ABILITY_INFORMATION = range(N_TERMS)


class _Terms(NamedTuple):
    """The terms of the sums in mean_squares. The first axis of `sums` and `item_direction` is outfit, then infit.

    sums: for every response the terms SQUARE (x - P)² w, EXPECTED W w, VARIANCE W c², RIGHT P, WRONG 1 - P,
        ABILITY_DIRECTION c ∂P/∂θ and ABILITY_INFORMATION (∂P/∂θ)² / W; 0 for a missing response. The weight w is
        1 / max(W, 0.001) for outfit and 1 for infit, and c = (1 - 2 P) w.
    item_direction: d = Σ c ∂P/∂β of each item, over its k parameters β.
    item_information: J, the information of the responses on the parameters of each item.
    """

    sums: Float[np.ndarray, "2 7 subjects items"]
    item_direction: Float[np.ndarray, "2 k items"]
    item_information: Float[np.ndarray, "items k k"]


def _terms_of_responses(responses: Matrix, p: Matrix, gradient: Gradient, ability_gradient: Matrix) -> _Terms:
    """The terms of every response, from which outfit, infit and their standard deviations are summed.

    outfit, infit = Σ (x - P)² w / Σ W w,   W = P (1 - P),   w = 1 / max(W, 0.001) for outfit, 1 for infit

    Their variance sums W c² with c = (1 - 2 P) w. Fitting removes a part of it, which follows from d = Σ c ∂P/∂β and
    from the information J = Σ (∂P/∂β) (∂P/∂β)' / W, for the parameters β of an item and for the ability θ of a subject.
    Σ P and Σ (1 - P), the expected numbers of right and of wrong responses, show where there are too few for a standard
    deviation.

    responses: x, subjects x items; 1, 0, NaN for no response.
    p: predicted chance P of a right response.
    gradient: ∂P/∂β of each of the k parameters of the items.
    ability_gradient: ∂P/∂θ.
    """
    present = ~np.isnan(responses)
    response_variance = np.maximum(p * (1 - p), TINY)  # W; TINY: no division by 0
    squared_error = np.where(present, (responses - p) ** 2, 0.0)
    gradient = gradient * present
    # k and l: parameters of the item, s: subject, i: item
    item_information = np.einsum("ksi,lsi->ikl", gradient, gradient / response_variance)

    sums = np.empty((2, N_TERMS, *p.shape))  # (outfit, infit) x terms x subjects x items
    item_direction = []
    weights = (1 / np.maximum(response_variance, SUREST), np.ones_like(p))  # w of outfit, then of infit
    for terms, weight in zip(sums, weights, strict=True):  # `terms` is a view: the loop fills `sums`
        c = (1 - 2 * p) * weight * present
        terms[SQUARE] = squared_error * weight
        terms[EXPECTED] = response_variance * weight * present
        terms[VARIANCE] = response_variance * c**2
        terms[RIGHT] = p * present
        terms[WRONG] = (1 - p) * present
        terms[ABILITY_DIRECTION] = c * ability_gradient
        terms[ABILITY_INFORMATION] = ability_gradient**2 / response_variance * present
        item_direction.append(np.einsum("ksi,si->ki", gradient, c))  # d = Σ c ∂P/∂β
    return _Terms(sums, np.array(item_direction), item_information)


def _removed_variance(
    direction: Float[np.ndarray, "2 k n"], information: Float[np.ndarray, "n k k"], prior: np.ndarray
) -> Float[np.ndarray, "2 n"]:
    """The variance that fitting removes from the squared residuals of outfit and infit, of every item or subject.

    d' (2 B⁻¹ - B⁻¹ J B⁻¹) d,   B = J + prior

    It is removed because the k fitted parameters β of an item, or the ability of a subject, follow the same residuals.

    direction: d = Σ c ∂P/∂β, where Σ (x - P) c is the sum of squared residuals less its expectation; for outfit, then
        for infit.
    information: J, the information of the responses on β.
    prior: curvature of the prior of β, one matrix for all items or subjects, or one for each.
    """
    inverse = np.linalg.inv(information + prior)  # B⁻¹
    # c: outfit or infit, k and l: parameters, i: item or subject
    return np.einsum("cki,ikl,cli->ci", direction, 2 * inverse - inverse @ information @ inverse, direction)


def _mean_squares_and_sds(
    sums: Float[np.ndarray, "2 7 n"], removed_variance: Float[np.ndarray, "2 n"]
) -> Float[np.ndarray, "4 n"]:
    """Outfit, its standard deviation, infit, its standard deviation; of every item or subject.

    mean square = Σ (x - P)² w / Σ W w,   sd = sqrt(Σ W c² - removed variance) / Σ W w

    x is a response, 1 or 0, P its chance to be right, and W = P (1 - P). The weight w is 1 / max(W, 0.001) for outfit
    and 1 for infit, and c = (1 - 2 P) w. Both values are NaN where Σ W < NIL, as no response could surprise. The
    standard deviation is also NaN with fewer than FEWEST expected right (Σ P) or wrong responses.

    sums: for outfit and infit, the sums over the responses of each item or subject, at these positions: SQUARE
        Σ (x - P)² w, EXPECTED Σ W w, VARIANCE Σ W c², RIGHT Σ P, WRONG Σ (1 - P). Others are not used.
    removed_variance: the variance that fitting removes from Σ (x - P)² w, as the fit follows the same responses.
    """
    infit_sums = sums[1]
    is_certain = infit_sums[EXPECTED] < NIL  # Σ W, as w is 1 for infit

    mean_squares_and_sds = []
    for fit_sums, removed in zip(sums, removed_variance, strict=True):
        expected = np.where(is_certain, np.nan, fit_sums[EXPECTED])
        sd = np.sqrt(np.maximum(fit_sums[VARIANCE] - removed, TINY)) / expected
        has_few_responses = np.minimum(fit_sums[RIGHT], fit_sums[WRONG]) < FEWEST
        mean_squares_and_sds.append(fit_sums[SQUARE] / expected)
        mean_squares_and_sds.append(np.where(has_few_responses, np.nan, sd))
    return np.stack(mean_squares_and_sds)


def _gradients(fit: IrtFit, bank: ItemBank) -> tuple[Gradient, Matrix]:
    """The derivatives of P by each item parameter that the model learns, and by ability θ.

    P is the chance of a right response:

    P = guess + (feasibility - guess) / (1 + exp(-z)),   z = slope (θ - difficulty)

    Item parameters are on the scale of their prior: the difficulty, the logarithm of the slope, the logits of
    feasibility and of guess / feasibility.

    bank: parameters of some of the items of the fit; `discrimination` is the slope.
    """
    z = bank.discrimination * (fit.ability[:, None] - bank.difficulty)  # subjects x items
    sigmoid = expit(z)
    upper = bank.feasibility
    guess_share = bank.guess / upper
    by_z = (upper - bank.guess) * sigmoid * (1 - sigmoid)  # ∂P/∂z

    # guess moves with feasibility, of which it is a share
    by_parameter = {
        "difficulty": -bank.discrimination * by_z,
        "slope": z * by_z,
        "feasibility": (1 - upper) * upper * (guess_share + (1 - guess_share) * sigmoid),
        "guess": upper * guess_share * (1 - guess_share) * (1 - sigmoid),
    }
    gradient = np.stack([by_parameter[name] for name in LEARNED[fit.model]])  # names of the learned parameters
    return gradient, bank.discrimination * by_z


def _prior_precision(fit: IrtFit, bank: ItemBank) -> Float[np.ndarray, "items k k"]:
    """The curvature of the prior of every item's learned parameters, a diagonal matrix for each item.

    The curvature of a normal prior is 1 / variance. The variance of difficulties, which `fit_irt` learns but does not
    return, is estimated: the variance of the fitted difficulties plus their mean squared standard error. The asymptotes
    q (feasibility, and guess / feasibility) have the priors Beta(u, d) of ASYMPTOTES, whose curvature on the scale of
    logit q is (u + d) q (1 - q).

    bank: parameters of some of the items of the fit.
    """
    ones = np.ones(len(bank.difficulty))
    guess_share = bank.guess / bank.feasibility
    by_parameter = {
        "difficulty": ones / (np.var(fit.difficulty) + np.mean(fit.difficulty_se**2)),
        "slope": ones / LOG_SLOPE_SD**2,
        "feasibility": sum(ASYMPTOTES["feasibility"]) * bank.feasibility * (1 - bank.feasibility),
        "guess": sum(ASYMPTOTES["guess"]) * guess_share * (1 - guess_share),
    }
    precision = np.stack([by_parameter[name] for name in LEARNED[fit.model]], axis=1)  # items x k
    return np.eye(precision.shape[1]) * precision[:, None, :]


def replicates(
    responses: Matrix, fit: IrtFit, rng: np.random.Generator, number: int
) -> Iterator[tuple[Matrix, IrtFit]]:
    """Responses simulated from a fit, each with the fit to them: they show how statistics vary if the model holds.

    responses: the observed ones; those that are missing are missing in every replicate.
    number: of replicates.

    >>> responses = (np.random.default_rng(0).random((9, 200)) < np.linspace(0.2, 0.9, 9)[:, None]).astype(float)
    >>> [(simulated, refit)] = replicates(responses, fit_irt(responses, "1pl"), np.random.default_rng(0), 1)
    >>> bool(mean_squares(simulated, refit)[1].infit.max() < 1)
    True
    """
    missing = np.isnan(responses)
    p = fit.probability()
    for _ in range(number):
        simulated = np.where(missing, np.nan, rng.random(p.shape) < p)
        yield simulated, fit_irt(simulated, fit.model)


def misfit(observed: MeanSquares, simulated: Sequence[MeanSquares]) -> Misfit:
    """Compare observed outfit and infit with those of simulated responses (a parametric bootstrap of their mean).

    z = (³√m - mean ³√m*) / (sd / 3 · sqrt(1 + 1 / R))

    m is an observed mean square (outfit or infit) with the standard deviation sd, and m* are the mean squares of R
    simulated replicates. Cube roots of mean squares are nearly normal (Wilson and Hilferty); near 1 their standard
    deviation is sd / 3. The 1 / R is for the uncertainty of the mean of the replicates. Simulation is needed
    because the expected mean square is below 1: the curves of items are fitted to these few subjects, and so are closer
    to their responses than the true curves. For a subject with thousands of items this shift is many standard
    deviations.

    observed, simulated: of the same items or subjects; `simulated` has one entry for each replicate.

    >>> observed = MeanSquares(*(np.array([value]) for value in (1.331, 0.3, 1.0, 0.3)))
    >>> replicate = MeanSquares(*(np.array([value]) for value in (1.0, 0.3, 1.0, 0.3)))
    >>> misfit(observed, [replicate, replicate, replicate, replicate]).outfit_z.round(3)
    array([0.894])
    """
    simulated_outfit = [replicate.outfit for replicate in simulated]
    simulated_infit = [replicate.infit for replicate in simulated]
    return Misfit(
        outfit=observed.outfit,
        outfit_expected=np.mean(simulated_outfit, axis=0),
        outfit_z=_bootstrap_z(observed.outfit, observed.outfit_sd, simulated_outfit),
        infit=observed.infit,
        infit_expected=np.mean(simulated_infit, axis=0),
        infit_z=_bootstrap_z(observed.infit, observed.infit_sd, simulated_infit),
    )


def _bootstrap_z(mean_square: Values, sd: Values, simulated: list[Values]) -> Values:
    """z of a mean square m against those of R simulated replicates, m*, on cube roots, which are nearly normal.

    z = (³√m - mean ³√m*) / (sd / 3 · sqrt(1 + 1 / R))

    sd: standard deviation of m; a third of it is that of ³√m near m = 1.
    simulated: m* of each replicate.
    """
    simulated_roots = np.cbrt(simulated)  # replicates x items or subjects
    spread = sd / 3 * np.sqrt(1 + 1 / len(simulated_roots))
    return (np.cbrt(mean_square) - simulated_roots.mean(axis=0)) / spread
