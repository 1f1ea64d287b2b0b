"""The mode of the posterior of an item response model, by Newton steps that never lower it.

One step moves all parameters at once; between steps the scales of the priors are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

from fca.studies.irt.stats.items import (
    LEAST_CURVATURE,
    Blocks,
    backward,
    best_of_grid,
    cholesky,
    climb,
    forward,
    heights,
    own_derivatives,
)
from fca.studies.irt.stats.likelihood import LEARNED, Cells, Groups, Parameters, Prior, Responses, State, Subjects, fill

CENTRE_SD = 5.0  # of the mean difficulty around 0, the mean ability
SPREAD_PRIOR = 3.0  # half-normal scale of the spread of difficulty
SPREAD_FLOOR = 0.1  # in the same unit; of the spread of ability, in logits
SMALL_SPREAD = 0.5  # of either scale, below which it must exceed the spread that chance alone gives
LARGEST_LOG_SLOPE = 3.0  # mean log discrimination at fixed abilities, beyond which it grows without end
ERRORS = 2.0  # standard errors above 0 from which a variance is not there by chance
PRIOR_SPREAD = 1.0  # of difficulty, where the responses cannot determine it
PRIOR_LOG_SLOPE = 0.0  # where the responses cannot determine the unit of ability: a logit, as in the 1pl

Shared = Float[np.ndarray, " shared"]  # abilities, then the mean difficulty
Crosses = Float[np.ndarray, "k shared groups"]
Scales = Float[np.ndarray, "2"]


# One step of Newton's method in all parameters at once, the items eliminated (Schur complement).
def log_posterior(state: State, cells: Cells, count: Groups) -> float:
    """Log likelihood plus log prior at `state`, without constants.

    cells: the log likelihoods at `state`, computed by `fill`.
    count: items in each group of items with equal responses. Such items have equal log posteriors (`heights`).
    """
    # minus the log prior of abilities, θ ~ N(0, 1), and of the mean difficulty, N(0, CENTRE_SD²)
    shared = state.ability @ state.ability / 2 + state.prior.centre**2 / (2 * CENTRE_SD**2)
    return float(count @ heights(state, cells) - shared)


@dataclass(frozen=True)
class System:
    """Gradient and negative Hessian of the log posterior.

    item, block: gradient and negative Hessian in the own parameters of one item of each group.
    shared, diagonal: gradient and diagonal of the negative Hessian in the parameters that all items share, which are
    the abilities and, last, the prior's centre (the mean difficulty).
    cross: negative second derivatives by a parameter of an item and a shared parameter.
    """

    item: Parameters
    block: Blocks
    shared: Shared
    diagonal: Shared
    cross: Crosses


def derivatives(state: State, cells: Cells, count: Groups, observed: bool) -> System:
    """Gradient and negative Hessian of the log posterior at `state`, in abilities, items and the prior's centre.

    z = a (θ - b),   dz/dθ = a,   dz/db = -a,   dz/d(log a) = z

    θ is ability, a discrimination, b difficulty. The negative Hessian has three kinds of entries that are not 0:
    - a block for the parameters of each item; the result has one block, and one gradient, for each group of equal items
    - a diagonal for the abilities and the prior's centre (the mean difficulty), which all items share
    - the cross: second derivatives by a parameter of an item and one of these shared parameters

    cells: computed at `state` by `fill`; `error` and `weight` are the first and minus the second derivative by z of the
    log likelihood of each subject's response to each item, `mixed` minus the second by an asymptote and z.
    count: items in each group of items with equal responses.
    observed: True for the Hessian itself, with the block of each item made positive definite, so that a step ascends;
    False for its expectation, which is positive everywhere and exists here for models without asymptotes only.
    """
    theta, a, b, prior = state.ability, state.slope, state.difficulty, state.prior
    k = len(state.item)
    gradient, block = own_derivatives(state, cells, observed)  # of each item in its own parameters

    # negative second derivatives by an item's and a shared parameter, k x shared x groups: the k parameters of an item
    # are asymptotes, log a and b; the shared ones are the abilities and, last, the prior's centre
    cross = np.empty((k, len(theta) + 1, len(b)))
    cross[:-1, -1] = 0.0  # only the difficulty depends on the centre
    cross[-1, -1] = -(prior.spread**-2)
    np.multiply(cells.weight, -(a**2), out=cross[-1, :-1])  # b with θ: weight dz/db dz/dθ
    if k > 1:  # log a with θ: weight z a = (b - θ) (-weight a²)
        np.subtract(b, theta[:, None], out=cross[-2, :-1])
        cross[-2, :-1] *= cross[-1, :-1]
        if observed:  # z has a second derivative itself, by (log a, θ)
            cross[-2, :-1] -= a * cells.error
    for mixed, cross_of_asymptote in zip(cells.mixed, cross, strict=False):  # asymptotes are the first rows
        np.multiply(mixed, a, out=cross_of_asymptote[:-1])

    # of the shared parameters, with the priors θ ~ N(0, 1) and b ~ N(centre, spread²)
    ability_gradient = cells.error @ (count * a) - theta
    ability_diagonal = cells.weight @ (count * a**2) + 1.0
    centre_gradient = count @ (b - prior.centre) / prior.spread**2 - prior.centre / CENTRE_SD**2
    centre_diagonal = count.sum() / prior.spread**2 + CENTRE_SD**-2
    return System(
        item=gradient,
        block=block,
        shared=np.append(ability_gradient, centre_gradient),
        diagonal=np.append(ability_diagonal, centre_diagonal),
        cross=cross,
    )


@dataclass(frozen=True)
class Eliminated:
    """Newton's equations of the shared parameters after the items are eliminated: `complement` x = `reduced_gradient`.

    x is the step of the abilities and, last, of the prior's centre.
    lower: Cholesky factors L of the items' blocks.
    half_item, half_cross: L⁻¹ times the items' gradients, and L⁻¹ times their crosses with the shared parameters.
    """

    complement: Float[np.ndarray, "shared shared"]
    reduced_gradient: Shared
    lower: Blocks
    half_item: Parameters
    half_cross: Crosses


def eliminate(system: System, count: Groups) -> Eliminated:
    """Eliminate the items from Newton's equations: the Schur complement, an equation for the shared parameters alone.

    complement = D - Σ n Cᵀ B⁻¹ C,   reduced_gradient = g - Σ n Cᵀ B⁻¹ h

    The step x of the shared parameters then solves complement x = reduced_gradient. The sums are over groups of n
    items each (`count`). Of one item, B = L Lᵀ is the block, C the cross with the shared parameters, h the gradient.
    Of the shared parameters, g is the gradient and D the diagonal. The result also has L, L⁻¹ h (`half_item`) and
    L⁻¹ C (`half_cross`), from which `step` finds the steps of the items.
    Overwrites `system.cross`. Raises LinAlgError if a block is not positive definite.
    """
    lower = cholesky(system.block)
    half_item = system.item.copy()
    half_cross = system.cross  # not copied: it is as large as the responses
    forward(lower, half_item)  # in place: L⁻¹ h
    forward(lower, half_cross)  # in place: L⁻¹ C

    # Cᵀ B⁻¹ C = (L⁻¹ C)ᵀ (L⁻¹ C), summed over the k parameters of an item
    complement = np.diag(system.diagonal)
    reduced_gradient = system.shared.copy()
    for cross, item in zip(half_cross, half_item, strict=True):  # shared x groups, groups
        weighted_cross = cross * np.sqrt(count)
        complement -= weighted_cross @ weighted_cross.T
        reduced_gradient -= cross @ (count * item)  # Cᵀ B⁻¹ h = (L⁻¹ C)ᵀ L⁻¹ h
    return Eliminated(complement, reduced_gradient, lower, half_item, half_cross)


def step(eliminated: Eliminated, free: slice) -> tuple[Shared, Parameters]:
    """Newton's step of the shared parameters (abilities, then the mean difficulty) and of all items.

    eliminated: the equation S x = r of the shared parameters, where S is `complement` and r is their gradient after the
                items were eliminated (`reduced_gradient`). Of each item it has the Cholesky factor L (`lower`) of its
                block B, L⁻¹ h (`half_item`) for its gradient h, and L⁻¹ C (`half_cross`) for its cross C with the
                shared parameters.
    free: positions of the shared parameters that may move. The others, such as fixed abilities, get a step of 0.

    Where the posterior is not concave in the shared parameters, negative curvatures are flipped, so that the step
    ascends. The step of the shared parameters is shortened to LONGEST_STEP.
    """
    # x = S⁻¹ r, from the eigenvectors of S
    shared = np.zeros(len(eliminated.reduced_gradient))
    if len(shared[free]):
        eigenvalue, eigenvector = np.linalg.eigh(eliminated.complement[free, free])
        curvature = np.abs(eigenvalue)
        least_curvature = LEAST_CURVATURE * curvature.max()  # a flat direction would get an endless step
        curvature = np.maximum(curvature, least_curvature)
        shared[free] = eigenvector @ ((eigenvector.T @ eliminated.reduced_gradient[free]) / curvature)
        shared /= max(np.abs(shared).max() / LONGEST_STEP, 1.0)

    # the items follow: B⁻¹ (h - C x) = L⁻ᵀ (L⁻¹ h - L⁻¹ C x)
    item = eliminated.half_item - np.stack([shared @ cross for cross in eliminated.half_cross])
    backward(eliminated.lower, item)  # multiplies `item` by L⁻ᵀ in place
    return shared, item


STEPS = 1000
TOLERANCE = 1e-8  # of a step, relative to 1 + the parameter
EXPECTED_HESSIAN_STEPS = 3  # first steps, without asymptotes: by expected information, which is positive everywhere
SETTLED_RATIO = 0.3  # a step is settled if it is smaller than this times the last change of the prior's scales
SMALL_SCALE_CHANGE = 0.05  # a change of the scales below which steps must settle before the scales are learned again
FURTHEST = 1.0  # that scales are moved beyond an EM step, in logarithms
SECANT_STEPS = 30  # steps after which secants are not trusted: they can cycle
LONGEST_STEP = 1.0  # of one step in any ability
FAR_STEP = 0.1  # a step of an item, relative to 1 + the parameter, that a quadratic does not describe


class Learning(NamedTuple):
    """Which scales of the prior are learned from the responses; the others are held where they are.

    spread: of difficulty.
    slope: mean log discrimination, which is the unit of ability.
    """

    spread: bool = True
    slope: bool = True


@dataclass(frozen=True)
class Mode:
    """The state where the steps ended, the derivatives of the log likelihood there, and whether the steps converged.

    learning: the scales of the prior that were learned.
    """

    state: State
    cells: Cells
    log_posterior: float
    iterations: int
    converged: bool
    learning: Learning


def find_mode(
    data: Responses,
    state: State,
    fixed_ability: bool = False,
    tolerance: float = TOLERANCE,
    learning: Learning = Learning(),  # noqa: B008 - a tuple
) -> Mode:
    """The mode of the posterior, climbed from `state` by Newton steps in all abilities, items and the prior's centre.

    No Newton step lowers the log posterior. Between Newton steps, the scales of the prior (the spread of difficulty and
    the mean log discrimination) are learned by an EM step. EM steps alone approach their limit slowly, so the scales
    are then moved further, to where the changes of the last EM steps lead. In the first 30 steps this is done with
    secants: the change by an EM step is taken as linear in the scales, and they move to where it would be 0 (Anderson's
    acceleration). As secants can cycle, Aitken's extrapolation replaces them later.

    fixed_ability: abilities stay as they are in `state`.
    learning: the scales that are learned.

    The result has `converged` if the last Newton step and the last EM step were both at most `tolerance`, within 1,000
    steps. It also holds the state, and the log likelihoods and derivatives (`Cells`) there.
    """
    # the first steps use the expected Hessian, which is positive everywhere; it is not available with asymptotes
    has_asymptotes = len(state.item) > 2  # parameters beyond slope and difficulty
    n_expected_steps = 0 if has_asymptotes else EXPECTED_HESSIAN_STEPS
    free = slice(len(state.ability) if fixed_ability else 0, None)  # abilities are the first shared parameters
    cells = Cells.empty(data, state.model)
    trial_cells = Cells.empty(data, state.model)
    fill(cells, data, state)

    iteration = 0
    moved = np.inf  # size of the last Newton step
    # the last EM steps, three at most; `_last_change` is the size of the last one, infinite before the first
    history: list[ScaleChange] = []
    while max(moved, _last_change(history)) > tolerance and iteration < STEPS:
        iteration += 1
        is_observed = iteration > n_expected_steps  # uses the Hessian itself
        # the steps of shared and item parameters, and the posterior variances from which the EM step learns the scales
        shared, item, difficulty_variance, ability_variance = _newton_step(state, cells, data, is_observed, free)
        state, moved = _take_step(data, state, cells, trial_cells, shared, item)
        cells, trial_cells = trial_cells, cells  # `cells` are now at the new state; the next step fills the others

        # secants compare EM steps, each of which should start from the mode at its scales. So near the end, where the
        # scales change little, Newton steps are repeated without an EM step until they are small: at most the
        # tolerance, or small against the last change of the scales
        may_use_secants = iteration < SECANT_STEPS
        last_change = _last_change(history)
        is_near_end = last_change < SMALL_SCALE_CHANGE
        is_unsettled = tolerance < moved and moved > SETTLED_RATIO * last_change
        if may_use_secants and is_near_end and is_unsettled:
            continue

        # an EM step of the scales; `change` has the log scales before it, and what it adds to them
        scales = _log_scales(state.prior)
        state = _learn_scales(state, difficulty_variance, ability_variance, data, fixed_ability, learning)
        change = ScaleChange(scales, _log_scales(state.prior) - scales)
        if may_use_secants:
            history = _with_change(history, change)  # starts again if the change has grown, as old secants then mislead
        else:
            history = [*history[-2:], change]  # the three steps that Aitken's extrapolation needs

        # the scales are not moved further in the first steps, far from the mode, nor when they have converged
        if is_observed and _last_change(history) > tolerance:
            prior, history = _extrapolate_scales(state.prior, history, may_use_secants)
            state = replace(state, prior=prior)

    converged = max(moved, _last_change(history)) <= tolerance
    return Mode(state, cells, log_posterior(state, cells, data.count), iteration, bool(converged), learning)


class ScaleChange(NamedTuple):
    """Scales of the prior as logarithms (see `_log_scales`), and how an EM step at these scales changed them."""

    scales: Scales
    change: Scales


def _log_scales(prior: Prior) -> Scales:
    """Logarithms of the spread of difficulty and of the mean discrimination."""
    return np.array([np.log(prior.spread), prior.log_slope])


def _last_change(history: Sequence[ScaleChange]) -> float:
    """The larger change of the two log scales in the last EM step; infinite before the first EM step."""
    return float(np.abs(history[-1].change).max()) if history else np.inf


def _with_change(history: list[ScaleChange], change: ScaleChange) -> list[ScaleChange]:
    """The history with a new EM step, cut to the last three steps.

    If the new step changed the scales more than the step before it, the history starts again with the new step alone:
    where changes grow, items have changed modes, so that earlier steps mislead.
    """
    is_smaller = np.abs(change.change).max() < _last_change(history)
    return [*history[-2:], change] if is_smaller else [change]


def _extrapolate_scales(prior: Prior, history: list[ScaleChange], use_secants: bool) -> tuple[Prior, list[ScaleChange]]:
    """Move the scales of the prior on, to where the changes of the last EM steps lead.

    history: the last EM steps, at least one.
    use_secants: True after every EM step by secants; False by Aitken's extrapolation, after every third EM step.
    Returns the prior, and the history with which `find_mode` goes on.
    """
    if use_secants:
        return _move_scales(prior, _secant_step(history)), history
    if len(history) < 3:
        return prior, history
    return _move_scales(prior, _aitken_step(history)), []  # three EM steps must follow without a jump between them


def _secant_step(history: Sequence[ScaleChange]) -> Scales:
    """How far to move the log scales so that an EM step would no longer change them (Anderson's acceleration).

    The change by an EM step is taken as a linear function of the scales, which the last two or three EM steps
    determine. A single EM step does not determine it, so the distance then is 0.
    """
    if len(history) < 2:
        return np.zeros(2)

    scale_differences = np.diff([entry.scales for entry in history], axis=0).T  # scales x steps
    change_differences = np.diff([entry.change for entry in history], axis=0).T
    # combine differences of changes to the last change; the same combination of steps back leaves a change of 0
    weights = np.linalg.lstsq(change_differences, history[-1].change, rcond=1e-6)[0]
    return -(scale_differences + change_differences) @ weights


def _aitken_step(history: Sequence[ScaleChange]) -> Scales:
    """How far to move the log scales to the limit that their EM steps approach (Aitken's extrapolation).

    If each change is r times the previous change, all changes after the last one add up to last · r / (1 - r). The
    distance is 0 where changes grow (r ≥ 1) or change their sign (r ≤ 0), since they then have no such limit.
    """
    previous = history[-2].change
    last = history[-1].change
    ratio = float(previous @ last) / max(float(previous @ previous), 1e-300)  # least squares; no division by 0
    return last * ratio / (1 - ratio) if 0 < ratio < 1 else np.zeros(2)


def _move_scales(prior: Prior, distance: Scales) -> Prior:
    """The prior with its log scales moved by `distance`, each by 1 at most; the spread of difficulty has a floor."""
    log_spread, log_slope = _log_scales(prior) + np.clip(distance, -FURTHEST, FURTHEST)
    return replace(prior, spread=max(float(np.exp(log_spread)), SPREAD_FLOOR), log_slope=float(log_slope))


def _take_step(
    data: Responses, state: State, cells: Cells, trial_cells: Cells, shared: np.ndarray, item: np.ndarray
) -> tuple[State, float]:
    """Take a Newton step, halved until it does not lower the log posterior, or until it is too short to matter.

    Returns the state reached, and the size of the whole step before it was halved: the largest move of a shared
    parameter, or of an item's parameter relative to 1 + its value.
    cells: the log likelihoods of the responses and their derivatives at `state`.
    trial_cells: arrays that are filled with those at the state reached.
    shared: step of the abilities and, last, of the prior's centre.
    item: step of the items (parameters x groups).

    Newton's step takes the log posterior as quadratic, which is wrong for an item that would move far. Such an item
    climbs to its own mode instead, at the abilities reached. If the whole step lowers the log posterior, the shorter
    steps are of abilities and centre alone, and all items climb to their own modes.
    """
    height = log_posterior(state, cells, data.count)
    item_size = np.abs(item / (1 + np.abs(state.item))).max(axis=0)  # by group, relative to 1 + the parameter
    climbs_alone = item_size > FAR_STEP
    length = 1.0
    while True:
        prior = replace(state.prior, centre=state.prior.centre + length * float(shared[-1]))
        reached = State(state.model, state.ability + length * shared[:-1], state.item + length * item, prior)
        if climbs_alone.any():
            start = replace(reached, item=state.item[:, climbs_alone])
            reached.item[:, climbs_alone] = climb(data.part(climbs_alone), start)[0]
        fill(trial_cells, data, reached)

        has_risen = log_posterior(reached, trial_cells, data.count) >= height - 1e-12 * abs(height)  # up to rounding
        if has_risen or length < 1e-9:  # so short a step changes nothing but rounding
            return reached, float(max(np.abs(shared).max(), item_size.max()))
        length = length / 2
        climbs_alone = np.ones_like(climbs_alone)  # the joint step of the items failed


def _newton_step(
    state: State, cells: Cells, data: Responses, observed: bool, free: slice
) -> tuple[np.ndarray, np.ndarray, Groups, Subjects]:
    """Newton's step at `state`, and the variances (Laplace's approximation) from which the prior's scales are learned.

    Returns the step of the shared parameters (abilities and, last, the prior's centre), the step of the items, the
    variance of the difficulty of an item of each group with abilities taken as known, and the variance of each ability
    with items taken as known.
    observed: True for the Hessian itself, False for its expectation.
    free: the shared parameters that may move.
    """
    system = derivatives(state, cells, data.count, observed)
    eliminated = eliminate(system, data.count)
    shared, item = step(eliminated, free)

    # difficulty is the last parameter of an item: its variance, the last diagonal element of B⁻¹, is 1 / L_kk²
    difficulty_variance = eliminated.lower[-1, -1] ** -2
    # before the mode, asymptotes can make the curvature of an ability negative: the prior's variance replaces it
    precision = system.diagonal[:-1]
    ability_variance = 1 / np.where(precision > 0, precision, 1.0)
    return shared, item, difficulty_variance, ability_variance


def learned_spread(squares: float, items: int) -> float:
    """The most probable standard deviation s of the difficulties, given their squared deviations; never below a floor.

    s = argmax -items log s - squares / (2 s²) - s² / (2 · 3²)

    That is a normal density of each item's difficulty, and a half-normal prior of s with scale 3.
    squares: Σ E[(b - centre)²] over the items.

    >>> round(learned_spread(4000.0, 1000), 2)
    2.0
    """
    # a derivative of 0 is a quadratic equation in s², of which this is the positive root
    prior_variance = SPREAD_PRIOR**2
    variance = prior_variance * (np.sqrt(items**2 + 4 * squares / prior_variance) - items) / 2
    return float(max(np.sqrt(variance), SPREAD_FLOOR))


def _learn_scales(
    state: State,
    difficulty_variance: Groups,
    ability_variance: Subjects,
    data: Responses,
    fixed_ability: bool,
    learning: Learning,
) -> State:
    """The state with both scales of the prior, spread of difficulty and mean log discrimination, after an EM step.

    The spread of difficulty becomes the most probable one given all difficulties. The mean log discrimination is
    learned as the unit of ability: the mean of E[θ²] over subjects is made 1, as in the prior of abilities. With u the
    root of this mean, θ and b are divided by u and log u is added to log a: z = a (θ - b) and probabilities stay.
    With fixed abilities the unit is given, and the mean log discrimination becomes the mean over the items.

    difficulty_variance: posterior variance of the difficulty of an item, by group (Laplace's approximation).
    ability_variance: posterior variance of each subject's ability (likewise).
    learning: the scales that are learned; the others stay.
    """
    prior = state.prior
    item = state.item  # the rows end with log discrimination (not in the 1pl) and difficulty
    unit = 1.0
    has_slope = len(item) > 1  # all models but 1pl
    if has_slope and learning.slope and fixed_ability:  # the unit is given by the abilities
        prior = replace(prior, log_slope=float(np.average(item[-2], weights=data.count)))
    elif has_slope and learning.slope:
        unit = float(np.sqrt(np.mean(state.ability**2 + ability_variance)))
        prior = Prior(prior.centre / unit, prior.spread / unit, prior.log_slope + np.log(unit))
        item = item.copy()
        item[-2] += np.log(unit)
        item[-1] /= unit

    if learning.spread:
        squares = (item[-1] - prior.centre) ** 2 + difficulty_variance / unit**2  # E[(b - centre)²] by group
        spread = learned_spread(float(data.count @ squares), int(data.count.sum()))
    else:
        spread = state.prior.spread
    return State(state.model, state.ability / unit, item, replace(prior, spread=spread))


# With asymptotes an item can have two modes: hard for every subject, or impossible in some cases for any subject.
MOST_ROUNDS = 10
ROUGH_TOLERANCE = 1e-3  # the tolerance while items still change modes
SAMPLE_SIZE = 1500  # items that abilities and scales are first learned from
HOPELESS_DEPTH = 5.0  # nats below its present mode from which an item does not start again
HEIGHT_MARGIN = 1e-3  # nats by which another mode of an item must be higher


def find_best_mode(
    data: Responses,
    start: State,
    fixed_ability: bool = False,
    learning: Learning = Learning(),  # noqa: B008 - a tuple
) -> Mode:
    """The mode of the posterior, climbed from `start`; with asymptotes, every item is at the highest of its own modes.

    With asymptotes and many items, a sample of the items is solved first, to save time, and the fit starts from the
    abilities and the prior of that sample.
    fixed_ability: abilities stay as they are in `start`.
    learning: the scales of the prior that are learned.
    """
    has_asymptotes = len(start.item) > 2  # parameters beyond slope and difficulty
    if not has_asymptotes:
        return find_mode(data, start, fixed_ability, learning=learning)

    if len(data.count) > 2 * SAMPLE_SIZE:
        sample, positions = data.sample(SAMPLE_SIZE)
        sample_start = replace(start, item=start.item[:, positions])
        sample_state = _find_best_mode_roughly(sample, sample_start, fixed_ability, learning).state
        start = replace(start, ability=sample_state.ability, prior=sample_state.prior)
    rough = _find_best_mode_roughly(data, start, fixed_ability, learning)
    mode = find_mode(data, rough.state, fixed_ability, learning=learning)
    return replace(mode, iterations=mode.iterations + rough.iterations)


def _find_best_mode_roughly(data: Responses, start: State, fixed_ability: bool, learning: Learning) -> Mode:
    """The mode in which every item is at the highest of its own modes, to the rough tolerance ROUGH_TOLERANCE.

    A round has two steps. At fixed abilities and prior, items do not depend on each other, so each item moves to its
    highest mode. Then `find_mode` moves all abilities, items and the prior together. The rounds end when no item
    changes its mode, or after ten. An item that reached only one mode in a round is not started again in the next.
    """
    item, _ = climb(data, replace(start, item=best_of_grid(data, start)))
    mode = find_mode(data, replace(start, item=item), fixed_ability, ROUGH_TOLERANCE, learning)
    with_several_modes = np.arange(len(data.count))  # at first all are tried
    for _ in range(MOST_ROUNDS):
        item, with_several_modes, n_changed = _move_to_highest_modes(data, mode, with_several_modes)
        if not n_changed:
            break
        next_mode = find_mode(data, replace(mode.state, item=item), fixed_ability, ROUGH_TOLERANCE, learning)
        mode = replace(next_mode, iterations=mode.iterations + next_mode.iterations)
    return mode


def _move_to_highest_modes(
    data: Responses, mode: Mode, tried: Int[np.ndarray, " tried"]
) -> tuple[Parameters, Int[np.ndarray, " several"], int]:
    """Move items to the highest of the modes that they reach from several starts, at the abilities and prior of `mode`.

    An item is a group of items with equal responses, which all move together.
    tried: positions of the items that are started again.
    Returns the parameters of all items, the positions of the items that reached several modes, and how many items were
    moved.
    """
    data = data.part(tried)
    item = mode.state.item.copy()
    state = replace(mode.state, item=item[:, tried])
    cells = Cells.empty(data, state.model, matrices=False)  # sums over subjects suffice for steps of items
    current_height = heights(mode.state, mode.cells)[tried]
    best_height = current_height.copy()
    has_several_modes = np.zeros(len(tried), dtype=bool)

    for start_item in (best_of_grid(data, state), *_other_starts(data, state)):
        start = replace(state, item=start_item)
        fill(cells, data, start)
        is_promising = heights(start, cells) > best_height - HOPELESS_DEPTH
        promising = np.flatnonzero(is_promising)  # starts far below the best mode so far are not climbed, to save time
        reached_item, reached_height = climb(data.part(promising), replace(start, item=start_item[:, promising]))
        has_several_modes[promising] |= np.abs(reached_height - current_height[promising]) > HEIGHT_MARGIN

        is_better = reached_height > best_height[promising] + HEIGHT_MARGIN
        improved = promising[is_better]
        item[:, tried[improved]] = reached_item[:, is_better]
        best_height[improved] = reached_height[is_better]
    return item, tried[has_several_modes], int((best_height > current_height).sum())


def _other_starts(data: Responses, state: State) -> tuple[Parameters, ...]:
    """Parameters of every item at two starts, which explain wrong responses in the two ways that a feasibility allows.

    At the first start the items are easy but have a low feasibility (upper asymptote). At the second start they have a
    feasibility near 1 but are hard. For a model without a feasibility there are no such starts: an empty tuple.
    """
    if "feasibility" not in LEARNED[state.model]:
        return ()

    _, easiness = data.logits()  # of each item: the logit of its share of right responses
    feasibility = LEARNED[state.model].index("feasibility")  # its row
    prior = state.prior

    # rows are free parameters: feasibility as a logit, log discrimination last but one, difficulty last
    rarely_feasible = state.item.copy()
    rarely_feasible[feasibility] = easiness  # so the feasibility is the share of right responses
    rarely_feasible[-2] = prior.log_slope
    rarely_feasible[-1] = prior.centre - prior.spread

    hard = state.item.copy()
    hard[feasibility] = 3.0  # a feasibility of 0.95
    hard[-2] = prior.log_slope
    difficulty = -easiness / np.exp(prior.log_slope)  # at ability 0 the chance is then nearly that share
    hard[-1] = np.maximum(difficulty, prior.centre)  # never easier than the mean item
    return rarely_feasible, hard


# Few responses do not determine all scales. Such a scale, if it is learned, falls to 0, and all estimates look exact.
def find_estimable_mode(data: Responses, start: State, fixed_ability: bool = False) -> Mode:
    """The mode that `find_best_mode` finds, with the scales of the prior learned only if the responses determine them.

    The scales are the spread of difficulty and the mean log discrimination, which is the unit of ability. A scale is in
    doubt if it is small or if the fit did not converge. If its variance is then within two standard errors of 0, or the
    spread of difficulty is at its floor, the scale is fixed (spread of difficulty 1; the unit of ability a logit), and
    everything else is fitted again. `Mode.learning` holds which scales were learned. Where the responses determine both
    scales, the result is exactly that of `find_best_mode`.
    fixed_ability: abilities stay as they are in `start`.
    """
    mode = find_best_mode(data, start, fixed_ability)
    for _ in Learning():  # one round for each scale: each fit can show that one more scale cannot be learned
        estimable = _find_estimable_scales(mode, data, fixed_ability)
        if estimable == mode.learning:
            break

        spread = start.prior.spread if estimable.spread else PRIOR_SPREAD
        log_slope = start.prior.log_slope if estimable.slope else PRIOR_LOG_SLOPE
        restart = replace(start, prior=replace(start.prior, spread=spread, log_slope=log_slope))
        refit = find_best_mode(data, restart, fixed_ability, estimable)
        mode = replace(refit, iterations=mode.iterations + refit.iterations)

    return mode


def _find_estimable_scales(mode: Mode, data: Responses, fixed_ability: bool) -> Learning:
    """Which of the scales that `mode` learned are determined by the responses: spread of difficulty, unit of ability.

    The result states whether each is: `spread` (of difficulty), and `slope` (the unit of ability). Abilities have a
    standard deviation of 1 unit. In logits it is exp(prior.log_slope), the slope that items have on average: the code
    names it `ability_spread`. The 1pl has no slopes, and its `slope` is returned as it was.

    A scale is in doubt if it is small, or if the fit did not converge. It is then rejected unless the variance of
    difficulty (for the spread) or of ability (for the unit) is larger than chance explains. A spread at its floor
    (SPREAD_FLOOR), which a fit does not go below, is rejected in any case. If both are in doubt, the
    unit is tested first. If the unit is rejected, the spread is not tested here: the caller fits again with a fixed
    unit, and in that fit the spread may be estimable.

    Fixed abilities have a unit already. The fit then learns only the items' mean slope at these abilities, which is
    rejected if it grows without end.
    """
    prior, learning = mode.state.prior, mode.learning
    ability_spread = float(np.exp(prior.log_slope))  # of the subjects, in logits
    has_slopes = len(mode.state.item) > 1  # the parameters of an item; the 1pl has difficulty alone, and all slopes 1
    learns_slope = learning.slope and has_slopes
    if learns_slope and fixed_ability:  # at LARGEST_LOG_SLOPE it is taken to grow without end
        learning = learning._replace(slope=prior.log_slope < LARGEST_LOG_SLOPE)
    doubts_spread = learning.spread and (prior.spread < SMALL_SPREAD or not mode.converged)
    doubts_slope = learns_slope and not fixed_ability and (ability_spread < SMALL_SPREAD or not mode.converged)
    if not doubts_spread and not doubts_slope:
        return learning

    system = derivatives(mode.state, mode.cells, data.count, observed=True)  # by the Hessian, not its expectation
    if doubts_slope and not _ability_exceeds_chance(system):
        return learning._replace(slope=False)
    if doubts_spread:
        exceeds_floor = prior.spread > SPREAD_FLOOR
        learning = learning._replace(spread=exceeds_floor and _difficulty_exceeds_chance(system, prior, data.count))
    return learning


def _ability_exceeds_chance(system: System) -> bool:
    """Whether the variance of ability is larger than chance explains; it is 1, in the unit that was learned.

    system: derivatives of the log posterior at the mode. Its `diagonal` has the information on every ability, by the
    responses and by the prior (1), and comes to the prior's centre last.
    """
    ability_information = float(np.mean(system.diagonal[:-1])) - 1.0  # by the responses
    return _exceeds_chance(1.0, ability_information, len(system.diagonal) - 1)


def _difficulty_exceeds_chance(system: System, prior: Prior, count: Groups) -> bool:
    """Whether the learned variance of difficulty, prior.spread², is larger than chance explains.

    system: derivatives of the log posterior at the mode. Its `block` is the negative Hessian in an item's parameters,
    of which difficulty is the last. The precision of difficulty, with abilities known and the item's other parameters
    unknown, is the square of the last element of the block's Cholesky factor. It includes the prior's 1 / spread².
    count: items in each group of items with equal responses.
    """
    items = int(count.sum())
    difficulty_precision = cholesky(system.block)[-1, -1] ** 2  # by group
    difficulty_information = float(count @ difficulty_precision) / items - prior.spread**-2  # by the responses
    return _exceeds_chance(prior.spread**2, difficulty_information, items)


def _exceeds_chance(variance: float, information: float, number: int) -> bool:
    """Whether a learned variance of `number` values (abilities or difficulties) is larger than chance explains.

    If n values did not differ at all, and each were estimated with sampling variance v, their variance would be learned
    as 0 with a standard error of v sqrt(2 / n). The learned variance must be at least twice this standard error.
    information: of the responses on one value; its inverse is the sampling variance v.
    """
    sampling_variance = 1 / max(information, 1e-12)  # responses may give no information
    return bool(variance >= ERRORS * np.sqrt(2 / number) * sampling_variance)


def standard_errors(mode: Mode, data: Responses, fixed_ability: bool) -> tuple[Subjects, Parameters]:
    """Standard errors of abilities and of the items' free parameters (parameters x groups), by Laplace's approximation.

    They are the roots of the diagonal of the inverse negative Hessian in all abilities and items, given the prior.
    S is the Schur complement that is left when the items are eliminated, B the block of an item in the negative
    Hessian, and C the block between the item and the shared parameters. Then S⁻¹ is the covariance of abilities, and
    B⁻¹ + B⁻¹ C S⁻¹ Cᵀ B⁻¹ is the covariance of the item's parameters.

    The prior's centre, the mean difficulty, is taken as known if all scales of the prior were learned. A scale that was
    not learned shows that the responses are few. They then leave the centre uncertain too, and its uncertainty is part
    of the standard errors of items. Abilities count from the mean of the subjects, so their standard errors always take
    the centre as known.
    fixed_ability: abilities are taken as known; their standard errors are 0.
    """
    system = derivatives(mode.state, mode.cells, data.count, observed=True)  # by the Hessian, not its expectation
    eliminated = eliminate(system, data.count)  # S is its `complement`, L Lᵀ = B its `lower`, L⁻¹ C its `half_cross`
    k, n_groups = eliminated.half_item.shape

    # diagonal of B⁻¹ = L⁻ᵀ L⁻¹, from L⁻ᵀ; k, l: parameters, g: groups
    inverse = np.repeat(np.eye(k)[:, :, None], n_groups, axis=2)  # an identity matrix for each group
    backward(eliminated.lower, inverse)  # in place: L⁻ᵀ
    item_variance = np.einsum("klg,klg->kg", inverse, inverse)
    if fixed_ability:
        return np.zeros(len(mode.state.ability)), np.sqrt(item_variance)

    ability_covariance = _invert_positive_definite(eliminated.complement[:-1, :-1])  # the centre comes last
    is_centre_known = all(mode.learning)  # a flag for each scale: whether it was learned
    if is_centre_known:
        shared_covariance = ability_covariance
    else:
        shared_covariance = _invert_positive_definite(eliminated.complement)

    # diagonal of B⁻¹ C S⁻¹ Cᵀ B⁻¹, with S⁻¹ = R Rᵀ: sums of squares of Rᵀ Cᵀ B⁻¹; s: shared, g: groups
    root = np.linalg.cholesky(shared_covariance).T
    backward(eliminated.lower, eliminated.half_cross)  # in place: L⁻ᵀ L⁻¹ C = B⁻¹ C
    variance_by_parameter = []
    for cross in eliminated.half_cross:
        rotated = root @ cross[: len(root)]  # without the centre where it is known
        variance_by_parameter.append(np.einsum("sg,sg->g", rotated, rotated))
    return np.sqrt(np.diag(ability_covariance)), np.sqrt(item_variance + np.stack(variance_by_parameter))


def _invert_positive_definite(matrix: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """The inverse of a positive definite matrix, by its Cholesky factor."""
    return cho_solve(cho_factor(matrix), np.eye(len(matrix)))
