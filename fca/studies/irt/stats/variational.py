"""Variational inference with hierarchical priors, as in Sharma et al. (2023), appendix B.1, with two additions.

P = λ / (1 + exp(-a (θ - b))),  each of θ, b, log a ~ N(μ, 1/τ) with its μ ~ N(0, 10⁶), τ ~ Gamma(1, 1),  λ ~ U[0, 1]

Taken as written, and maximised, this gives all items nearly one discrimination: a flat λ explains wrong responses of
able subjects so cheaply that the learned spread of a shrinks (ADR 24). Therefore two things here are not in the paper.
A share of the items, learned too, has no cap (λ = 1, where py-irt starts every λ and leaves most of them); and q keeps
the parameters of one item together instead of taking their product. log a is normal, as in py-irt since 0.7.1, not a.

Below: the points at which the posterior of an item is computed, a step for items, a step for subjects, and the fit.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import digamma, gammaln

from fca.studies.irt.stats.likelihood import Responses, prepare
from fca.studies.irt.stats.model import IrtFit, check_responses, model_name
from fca.types import FcaError, check_choice

VARIATIONAL = ("1pl", "2pl", "3pl-upper")
MEAN_VARIANCE = 1e6  # μ ~ N(0, 10⁶)
START_SD = 0.1  # of the noise, in abilities' standard deviations, that a seed adds to the start
TOLERANCE = 3e-4  # of a sweep's largest change, in abilities' standard deviations or logarithms of scales
LONGEST_STEP = 1.0  # of one step of an ability
GRID_REACH = 4.0, 3.0  # of the grids of b and of log a, in standard deviations of their priors
SLOPE_POINTS, CAP_POINTS = 11, 10  # points of log a, and of λ < 1
DIFFICULTY_POINTS = 31, 45  # points of b for up to a hundred subjects, and for more, which separate closer difficulties
LARGEST_LOGIT = 80.0  # |z| beyond which single precision ends
BLOCK = 1 << 21  # points of items at a time

Vector = Float[np.ndarray, " n"]
Pairs = Float[np.ndarray, " pairs"]
Table = Float[np.ndarray, "subjects points"]


class Population(NamedTuple):
    """E μ and E τ under q(μ) q(τ) for parameters z ~ N(μ, 1/τ), and what the prior of μ and τ adds to the evidence."""

    centre: float
    precision: float
    evidence: float

    @property
    def spread(self) -> float:
        """Standard deviation that stands for τ."""
        return self.precision**-0.5


def population(mean: Vector, variance: Vector, count: Vector) -> Population:
    """Learn the prior N(μ, 1/τ) of parameters z of one kind, such as all difficulties, from the posterior of each z.

    q(τ) = Gamma(1 + n/2, 1 + Σ E(z - μ)² / 2),   q(μ) = N(E τ Σ E z / t, 1/t),   t = n E τ + 10⁻⁶

    The priors are μ ~ N(0, 10⁶), hence the 10⁻⁶ (1 / MEAN_VARIANCE below), and τ ~ Gamma(1, 1). Each of q(μ) and q(τ)
    depends on the other. So they are updated in turn until the variance of q(μ) stays the same. Here q is the
    approximate posterior, and E the expectation under q.
    mean, variance: of the posterior of each z.
    count: how many parameters each entry stands for, since items with equal responses are one group; n = Σ count.

    `evidence` is what uncertain μ and τ add to the evidence lower bound: E log p(z, μ, τ) - E log q(μ, τ), less
    E log N(z; E μ, 1 / E τ), which the caller adds together with the entropy of z.

    >>> prior = population(np.array([0.0, 2.0]), np.zeros(2), np.ones(2))
    >>> round(prior.centre, 3), round(prior.precision, 3)
    (1.0, 0.75)
    """
    n = float(count.sum())
    total = float(count @ mean)
    shape = 1 + n / 2
    centre = total / n
    centre_variance = 0.0  # of q(μ)
    previous_variance = -1.0  # no variance, so that the loop starts
    while abs(centre_variance - previous_variance) > 1e-12 * centre_variance:
        previous_variance = centre_variance
        rate = 1 + float(count @ ((mean - centre) ** 2 + variance + centre_variance)) / 2
        precision = shape / rate
        centre_variance = 1 / (n * precision + 1 / MEAN_VARIANCE)
        centre = centre_variance * precision * total

    # E log p(z | μ, τ) - E log N(z; E μ, 1 / E τ)
    log_precision = float(digamma(shape) - np.log(rate))  # E log τ
    evidence = n / 2 * (log_precision - np.log(precision) - precision * centre_variance)
    # E log (prior / q) of μ, then of τ
    ratio = centre_variance / MEAN_VARIANCE
    evidence += 0.5 * (1 + np.log(ratio) - ratio - centre**2 / MEAN_VARIANCE)
    evidence += shape - np.log(rate) + gammaln(shape) + (1 - shape) * digamma(shape) - precision
    return Population(centre, precision, float(evidence))


class Grid(NamedTuple):
    """Points where the posterior of an item is computed: every λ at every pair of b and log a, in this order.

    difficulty, slope: b and log a of every pair, in standard deviations of their priors, from the priors' means.
    log_prior: log prior probability of every pair.
    feasibility: the levels of λ; the last one is 1, an item without a cap.
    cap_prior: prior probability of every level for an item with a cap (λ < 1); 0 for the level 1.
    width: distance from point to point, of b and of log a; 0 for a parameter with one point.
    """

    difficulty: Pairs
    slope: Pairs
    log_prior: Pairs
    feasibility: Float[np.ndarray, " levels"]
    cap_prior: Float[np.ndarray, " levels"]
    width: tuple[float, float]

    @property
    def dtype(self) -> str:
        """Type of arrays over the points: single precision where there are thousands of points, to save time."""
        return "f4" if len(self.feasibility) > 1 else "f8"


def grid(model: str, subjects: int) -> Grid:
    """Points where the posterior of an item is computed: even steps of b and log a; λ at points of U[0, 1] and at 1.

    b is difficulty and a discrimination; both b and log a are in standard deviations of their priors. λ is feasibility:
    below 1 it is a cap on the chance of a right response. In the 1PL log a is 0 everywhere. Only 3pl-upper has λ below
    1, at Gauss-Legendre points.
    model: 1pl, 2pl or 3pl-upper.
    subjects: their number. With more than a hundred, the posterior of b is so narrow that it needs finer steps.

    >>> grid("1pl", 10).difficulty.shape, grid("3pl-upper", 10).difficulty.shape, grid("3pl-upper", 10).cap_prior.shape
    ((31,), (341,), (11,))
    """
    n_difficulties = DIFFICULTY_POINTS[1] if subjects > 100 else DIFFICULTY_POINTS[0]
    b = np.linspace(-GRID_REACH[0], GRID_REACH[0], n_difficulties)
    log_a = np.zeros(1) if model == "1pl" else np.linspace(-GRID_REACH[1], GRID_REACH[1], SLOPE_POINTS)
    slope_grid, difficulty_grid = np.meshgrid(log_a, b, indexing="ij")
    slope = slope_grid.ravel()
    difficulty = difficulty_grid.ravel()
    log_prior = -(slope**2 + difficulty**2) / 2  # log density of standard normal priors, without constants
    log_prior -= np.log(np.exp(log_prior).sum())  # so that the prior probabilities sum to 1

    if model == "3pl-upper":
        node, node_weight = np.polynomial.legendre.leggauss(CAP_POINTS)  # of [-1, 1]
        feasibility = np.append((node + 1) / 2, 1.0)
        # The prior of λ of an item with a cap, which has λ below 1, hence 0 at λ = 1. The share of items without a cap,
        # whose λ is 1, is learned separately.
        cap_prior = np.append(node_weight / 2, 0.0)
    else:
        feasibility = np.ones(1)
        cap_prior = np.zeros(1)  # no item has a cap
    slope_width = log_a[1] - log_a[0] if len(log_a) > 1 else 0.0
    return Grid(
        difficulty=difficulty,
        slope=slope,
        log_prior=log_prior,
        feasibility=feasibility,
        cap_prior=cap_prior,
        width=(b[1] - b[0], slope_width),  # distances of neighbouring points
    )


@dataclass(frozen=True)
class Scale:
    """Priors of items as learned: of difficulty, of log discrimination, and the share of items without a cap."""

    centre: float
    spread: float
    log_slope: float
    slope_spread: float
    uncapped: float


@dataclass(frozen=True)
class State:
    """q(θ) of every subject, and the priors of items."""

    ability: Vector
    variance: Vector
    scale: Scale


def first_state(data: Responses, model: str, rng: np.random.Generator) -> State:
    """Where the fit starts: abilities as standardised logits of accuracy, plus noise from `rng`, by which seeds differ.

    This fixes the sign and the scale of ability: abler subjects are right more often. The mean and the spread of
    difficulty are taken from the logits of the items' shares of wrong responses, in the same unit. In the 1PL the unit
    is a logit and all discriminations are 1. Under 3pl-upper, an item has a cap (a feasibility below 1) with prior
    probability 0.5 at the start.

    >>> first_state(prepare(np.eye(3)), "2pl", np.random.default_rng(0)).scale.uncapped
    1.0
    """
    accuracy_logit, easiness = data.logits()  # of each subject's and of each group's share of right responses
    has_one_slope = model == "1pl"
    accuracy_logit = accuracy_logit - accuracy_logit.mean()
    # the unit of ability, in logits; it is never near 0, even if all subjects have nearly equal accuracies
    unit = 1.0 if has_one_slope else max(float(accuracy_logit.std()), 0.1)

    # subjects with equal accuracies get equal noise, so that they start equal
    levels, level_of_subject = np.unique(accuracy_logit, return_inverse=True)
    noise = START_SD * rng.standard_normal(len(levels))[level_of_subject]
    ability = accuracy_logit / unit + noise

    centre = -float(np.average(easiness, weights=data.count)) / unit
    spread = float(np.sqrt(np.average((easiness / unit + centre) ** 2, weights=data.count)))
    scale = Scale(
        centre=centre,
        spread=max(spread, 0.5),  # never near 0, even if all items are nearly equally hard
        log_slope=float(np.log(unit)),
        slope_spread=0.0 if has_one_slope else 0.5,  # of log discrimination: a first guess, learned in the first sweep
        uncapped=0.5 if model == "3pl-upper" else 1.0,  # share of items with feasibility 1
    )
    return State(ability, np.full(len(ability), 0.01), scale)  # a standard deviation of 0.1 for every ability


class Logs(NamedTuple):
    """Expected log probabilities of responses under q(θ) at every point of a grid, and their derivatives by θ.

    Each is a pair of tables of subjects x points, for a right and for a wrong response. The expectation is the mean at
    two values of θ, one standard deviation to each side, which is exact for cubics.
    """

    value: tuple[Table, Table]
    first: tuple[Table, Table]
    second: tuple[Table, Table]


def logs(state: State, points: Grid) -> Logs:
    """Expected log probabilities of a right and of a wrong response, with derivatives by θ: all subjects x points.

    P(right) = λ / (1 + exp(-z)),   P(wrong) = (1 - λ) + λ / (1 + exp z),   z = a (θ - b)

    The expectation is over q(θ) of the subject, a normal density. It is computed as the mean at two values of θ, one
    standard deviation below and above the mean of q(θ) (Gauss-Hermite quadrature with two points).
    points: values of b, log a and λ. Its b and log a are in standard deviations of the priors in `state.scale`. Its
    dtype is single precision where there are thousands of points, to save time.

    >>> state = first_state(prepare(np.eye(3)), "1pl", np.random.default_rng(0))
    >>> right, wrong = logs(state, grid("1pl", 3)).value
    >>> bool((np.exp(right) + np.exp(wrong) <= 1).all())
    True
    """
    scale = state.scale
    slope = np.exp(scale.log_slope + scale.slope_spread * points.slope).astype(points.dtype)
    difficulty = scale.centre + scale.spread * points.difficulty
    feasibility = points.feasibility.astype(points.dtype)[:, None]  # levels x 1

    # six tables: values, first and second derivatives by θ, each for a right and for a wrong response. Each table is
    # subjects x levels of λ x pairs of b and log a
    shape = (len(state.ability), len(points.feasibility), len(points.slope))
    means = np.zeros((6, *shape), points.dtype)
    for side in (-1.0, 1.0):
        distance = (state.ability + side * np.sqrt(state.variance))[:, None] - difficulty
        z = np.clip(slope * distance, -LARGEST_LOGIT, LARGEST_LOGIT).astype(points.dtype)  # exp(z) stays finite
        z = z[:, None]  # subjects x 1 x pairs
        solved = 1 / (1 + np.exp(-z))
        missed = 1 / (1 + np.exp(z))
        wrong = (1 - feasibility) + feasibility * missed  # P(wrong)
        wrong_slope = feasibility * (-slope * solved * missed) / wrong  # of log P(wrong)
        terms = (  # values, first and second derivatives, of log P(right) and of log P(wrong)
            np.log(feasibility) + np.log(solved),
            np.log(wrong),
            slope * missed,
            wrong_slope,
            -(slope**2) * solved * missed,
            wrong_slope * (slope * (missed - solved) - wrong_slope),
        )
        for mean, term in zip(means, terms, strict=True):
            mean += term / 2  # each side has half of the weight

    tables = means.reshape(6, shape[0], -1)  # subjects x points
    return Logs(value=(tables[0], tables[1]), first=(tables[2], tables[3]), second=(tables[4], tables[5]))


class Items(NamedTuple):
    """Posterior of the items of each group (items with equal responses), computed on the points of a grid.

    difficulty, slope: mean and variance of b and of log a.
    feasibility: mean of λ.
    uncapped: probability that the item has no cap (λ = 1).
    right, wrong: how many right and wrong responses of each subject are to items at each point. An item counts at every
    point by the posterior probability of this point.
    evidence: Σ log P(responses to an item) over all items, given q(θ).
    """

    difficulty: Float[np.ndarray, "2 groups"]
    slope: Float[np.ndarray, "2 groups"]
    feasibility: Float[np.ndarray, " groups"]
    uncapped: Float[np.ndarray, " groups"]
    right: Table
    wrong: Table
    evidence: float


def items_step(log_chances: Logs, data: Responses, scale: Scale, points: Grid) -> Items:
    """The posterior of every item given q(θ), by Bayes' rule at every point of the grid.

    log density = Σ right log P(right) + Σ wrong log P(wrong) + log prior
                = Σ right gain + Σ log P(wrong) + log prior,   gain = log P(right) - log P(wrong)

    The sums are over the subjects with a response to the item. b is difficulty, a discrimination, λ feasibility; an
    item with λ = 1 has no cap. The result has, for each group of items with equal responses, mean and variance of b and
    of log a, the mean of λ and the probability that λ is 1; and for each subject the expected numbers of right and of
    wrong responses to items at each point, where an item counts at a point by its posterior probability there.
    log_chances: log P(right) and log P(wrong) of each subject at each point, from `logs`.
    scale: the priors of items.
    points: values of b, log a and λ, with b and log a in standard deviations of `scale`. Its dtype is single precision
    where there are thousands of points, to save time.

    >>> data = prepare(np.eye(3))
    >>> state, points = first_state(data, "2pl", np.random.default_rng(0)), grid("2pl", 3)
    >>> items = items_step(logs(state, points), data, state.scale, points)
    >>> round(float(items.right.sum()), 3), round(float(items.wrong.sum()), 3)
    (3.0, 6.0)
    """
    n_levels = len(points.feasibility)
    is_uncapped = points.feasibility == 1
    with np.errstate(divide="ignore"):  # a level without prior mass has log 0 = -inf
        log_level_prior = np.log((1 - scale.uncapped) * points.cap_prior + scale.uncapped * is_uncapped)
    log_prior = (log_level_prior[:, None] + points.log_prior).ravel().astype(points.dtype)  # by point

    functions = _moment_functions(points)  # b, b², log a, (log a)², λ and whether λ is 1: points x 6
    log_right, log_wrong = log_chances.value  # subjects x points
    gain = log_right - log_wrong
    all_wrong = log_wrong.sum(axis=0) + log_prior  # Σ log P(wrong) + log prior, if no response is missing

    # groups in blocks, because their densities at all points are large
    correct = data.right.astype(points.dtype)
    # 1 where a subject responded to an item, else 0. `data.present` is None if no response is missing: then sums over
    # all subjects are enough, and faster
    present = data.indicator.astype(points.dtype)
    moments = np.empty((functions.shape[1], len(data.count)))
    evidence = 0.0
    expected_right, expected_responses = np.zeros((2, *log_right.shape), points.dtype)
    groups_in_block = max(BLOCK // len(log_prior), 1)
    for start in range(0, len(data.count), groups_in_block):
        block = slice(start, start + groups_in_block)
        log_density = correct[:, block].T @ gain  # groups x points
        log_density += all_wrong if data.present is None else present[:, block].T @ log_wrong + log_prior
        posterior, log_evidence = _normalise(log_density)
        moments[:, block] = (posterior @ functions).T

        # sums over groups, each of which counts as often as it has items
        evidence += float(data.count[block] @ log_evidence)
        posterior *= data.count[block, None].astype(points.dtype)  # now the expected number of items at each point
        expected_right += correct[:, block] @ posterior
        expected_responses += posterior.sum(axis=0) if data.present is None else present[:, block] @ posterior

    return Items(
        # from moments in standard deviations of the prior to mean and variance on the scale of ability, and of log a.
        # A point stands for all values nearest to it, so the distance of the points (`width`) adds to the variance
        difficulty=_mean_and_variance(moments[:2], scale.centre, scale.spread, points.width[0]),
        slope=_mean_and_variance(moments[2:4], scale.log_slope, scale.slope_spread, points.width[1]),
        feasibility=moments[4] if n_levels > 1 else np.ones(len(data.count)),
        uncapped=moments[5],
        right=expected_right,
        wrong=np.maximum(expected_responses - expected_right, 0),  # rounding can make the difference negative
        evidence=evidence,
    )


def _normalise(log_density: Float[np.ndarray, "groups points"]) -> tuple[Float[np.ndarray, "groups points"], Vector]:
    """The posterior probability of each point, and log P(responses), the log of the sum of the densities of all points.

    log_density: log likelihood plus log prior of each group of items at each point. It is overwritten by the posterior,
    because it is large.
    """
    highest = log_density.max(axis=1, keepdims=True)  # taken off, so that exp cannot overflow
    posterior = np.exp(log_density - highest, out=log_density)
    total = posterior.sum(axis=1, keepdims=True)
    posterior /= total
    return posterior, np.log(total[:, 0]) + highest[:, 0]


def _moment_functions(points: Grid) -> Float[np.ndarray, "points 6"]:
    """Values at every point of the functions whose posterior means are wanted: b, b², log a, (log a)², λ, λ is 1.

    Points are ordered as in `Grid`: all pairs of b and log a at the first level of λ, then at the next.
    """
    n_levels = len(points.feasibility)
    pair_functions = np.stack([points.difficulty, points.difficulty**2, points.slope, points.slope**2])
    level_functions = np.stack([points.feasibility, points.feasibility == 1])
    by_pair = np.tile(pair_functions, n_levels)
    by_level = np.repeat(level_functions, len(points.slope), axis=1)
    return np.concatenate([by_pair, by_level]).T.astype(points.dtype)


def _mean_and_variance(
    moments: Float[np.ndarray, "2 groups"], centre: float, spread: float, width: float
) -> Float[np.ndarray, "2 groups"]:
    """Mean and variance of a parameter z of each group from the moments E t and E t² of t = (z - centre) / spread.

    width: distance of t between two points of the grid. A point stands for all values of t nearest to it, which adds
    the variance of a uniform density of this width, width² / 12.
    """
    mean, mean_square = moments
    variance = np.maximum(mean_square - mean**2, 0) + width**2 / 12  # not below 0 by rounding
    return np.stack([centre + spread * mean, spread**2 * variance])


def subjects_step(state: State, log_chances: Logs, items: Items, prior: Population) -> tuple[Vector, Vector]:
    """Update the mean and the variance of q(θ) of every subject, given the posterior of the items.

    The mean takes one Newton step from `state` towards the maximum of the subject's expected log posterior. The
    variance is the inverse of the curvature (minus the second derivative) of this log posterior.

    The expectation is over the unknown b, log a and λ of the items. They have values on the points of a grid, and an
    item is at each point with its posterior probability. Therefore `items.right` and `items.wrong` are the expected
    numbers of right and wrong responses of each subject to items at each point; they are the weights of the points.

    An item with a cap (λ below 1) makes the log posterior less concave, or not concave at all. So the curvature is
    never taken below a quarter of the sum of squared slopes, which estimates the information in the responses. This
    least curvature is positive, so that the step ascends and the variance is positive. It is only a quarter of the
    estimate, so that it replaces the curvature only where that is much smaller than the estimate.
    log_chances: log probabilities of responses and their derivatives by θ at `state`, from `logs`.
    prior: of abilities, N(prior.centre, 1 / prior.precision).
    """
    slope = np.zeros(len(state.ability))
    curvature = np.zeros(len(state.ability))
    least_curvature = np.zeros(len(state.ability))
    expected_counts = (items.right, items.wrong)  # of responses: subjects x points
    for count, first, second in zip(expected_counts, log_chances.first, log_chances.second, strict=True):
        # s: subjects, p: points
        slope += np.einsum("sp,sp->s", count, first)
        curvature -= np.einsum("sp,sp->s", count, second)
        least_curvature += np.einsum("sp,sp,sp->s", count, first, first) / 4

    precision = np.maximum(curvature, least_curvature) + prior.precision
    distance_to_prior = state.ability - prior.centre
    step = (slope - prior.precision * distance_to_prior) / precision
    mean = state.ability + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
    return mean, 1 / precision


def sweep(state: State, data: Responses, points: Grid) -> tuple[State, Items, float]:
    """One round of the fit: the posterior of items given subjects, the priors of both, then subjects given items.

    Items with equal responses form a group, computed once; `data.count` has the number of items of each group. An item
    with a cap has a chance of a right response that ends below 1 (its feasibility), however able the subject.

    Returns the new state, the posterior of the items, and the evidence lower bound at `state`, before the round. The
    items fit the abilities of `state`, so they are in its unit, not in that of the new state.
    θ is ability, with mean `state.ability` and variance `state.variance`. The evidence is the sum of log P(responses)
    over items, E log (prior(θ) / q(θ)) over subjects, and what the uncertain means and precisions of the priors add.
    The responses determine neither the origin nor the unit of ability. So the new state is shifted and scaled such
    that abilities have mean 0 and, where discrimination is learned, E θ² has mean 1. In the 1PL the unit is a logit.
    """
    has_one_slope = points.width[1] == 0  # the 1PL: a single point of log a
    log_chances = logs(state, points)
    items = items_step(log_chances, data, state.scale, points)

    # priors of abilities, difficulties and log discriminations, and the evidence
    ability_prior = population(state.ability, state.variance, np.ones(len(state.ability)))
    squares = (state.ability - ability_prior.centre) ** 2 + state.variance  # E (θ - centre)²
    # 2 E log (prior(θ) / q(θ)) of each subject, for normal densities
    prior_terms = np.log(ability_prior.precision * state.variance) + 1 - ability_prior.precision * squares
    difficulty_mean, difficulty_variance = items.difficulty
    difficulty_prior = population(difficulty_mean, difficulty_variance, data.count)
    evidence = items.evidence + ability_prior.evidence
    evidence += 0.5 * float(prior_terms.sum())
    evidence += difficulty_prior.evidence

    log_slope = 0.0  # a = 1 in the 1PL
    slope_spread = 0.0
    if not has_one_slope:
        slope_mean, slope_variance = items.slope  # of log a
        slope_prior = population(slope_mean, slope_variance, data.count)
        evidence += slope_prior.evidence
        log_slope = slope_prior.centre
        slope_spread = slope_prior.spread

    uncapped = state.scale.uncapped  # the share of items without a cap
    if points.cap_prior.any():  # the share has a prior Beta(2, 2), which keeps it off 0 and 1 with few items
        evidence += float(np.log(uncapped) + np.log1p(-uncapped))
        # the mode of its posterior, from the expected number of items without a cap
        uncapped = (float(data.count @ items.uncapped) + 1) / (float(data.count.sum()) + 2)

    # abilities; then they and the priors are moved to the new origin and unit
    theta, variance = subjects_step(state, log_chances, items, ability_prior)
    shift = float(theta.mean())
    unit = 1.0 if has_one_slope else float(np.sqrt(np.mean((theta - shift) ** 2 + variance)))
    scale = Scale(
        centre=(difficulty_prior.centre - shift) / unit,
        spread=difficulty_prior.spread / unit,
        log_slope=log_slope + np.log(unit),
        slope_spread=slope_spread,
        uncapped=uncapped,
    )
    return State((theta - shift) / unit, variance / unit**2, scale), items, evidence


def change(previous: State, state: State) -> float:
    """How much a sweep changed the state: the largest change of an ability, of a log variance, or of a field of Scale.

    >>> state = first_state(prepare(np.eye(3)), "2pl", np.random.default_rng(0))
    >>> change(state, state)
    0.0
    """
    ability_change = np.abs(state.ability - previous.ability).max()
    variance_change = np.abs(np.log(state.variance / previous.variance)).max()
    scale_changes = np.abs(np.subtract(astuple(state.scale), astuple(previous.scale)))
    return float(max(ability_change, variance_change, *scale_changes.tolist()))


def fit_variational(
    responses: Float[np.ndarray, "subjects items"], model: str = "3pl-upper", seed: int = 0, epochs: int = 2000
) -> IrtFit:
    """Fit by variational inference under the priors of Sharma et al. (2023), eq. 3 to 5, with two additions.

    P = λ / (1 + exp(-a (θ - b))),   each of θ, b, log a ~ N(μ, 1/τ) with its own μ ~ N(0, 10⁶) and τ ~ Gamma(1, 1)

    The posterior is approximated by q, a product over subjects, items and each μ and τ: a normal for θ, a normal for μ
    and a Gamma for τ as in the paper. The parameters of one item have the best q of any shape, on a grid; this is the
    first addition. The evidence lower bound is maximised in q of items, priors and subjects in turn. Variances are 1/τ,
    as in the paper (py-irt reads 1/τ as a standard deviation). The paper's prior of every cap λ is U[0, 1]. Here it is
    the prior of the items that have a cap, and the share of items without one (λ = 1) is learned: the second addition.

    responses: 1 right, 0 wrong, NaN missing.
    model:  1pl (a = 1), 2pl (λ = 1), 3pl-upper.
    epochs: sweeps at most; `converged` if these were enough.
    seed:   of the noise that is added to the start, the logit accuracies. It changes the result by little more than the
            tolerance, 3e-4.

    In the result, ability has mean 0; except in the 1pl, E θ² has mean 1. `discrimination` is exp(E log a), as py-irt
    gives it, and positive. `feasibility` is E λ. `*_se` are posterior standard deviations. `log_posterior` is the
    evidence lower bound. Raises FcaError for responses, models and epochs that cannot be fitted.

    >>> responses = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, np.nan]])
    >>> fit_variational(responses, "1pl").ability.round(2)
    array([-0.37, -0.37,  0.73])
    """
    name = model_name(model)
    check_choice("model", name, VARIATIONAL, "take one of these, or leave out compat")
    if epochs < 1:
        raise FcaError("epochs", epochs, "1 or more", "raise it")
    check_responses(responses)
    data = prepare(responses, one_slope=name == "1pl")
    points = grid(name, len(responses))

    state = first_state(data, name, np.random.default_rng(seed))
    moved = np.inf
    sweeps = 0
    while moved > TOLERANCE and sweeps < epochs:
        sweeps += 1
        previous = state
        state, items, evidence = sweep(previous, data, points)
        moved = change(previous, state)

    # the last sweep computed the items from the abilities before it, so these are the abilities that fit the items
    slope = np.exp(items.slope[0])
    return IrtFit(
        model=name,
        ability=previous.ability,
        ability_se=np.sqrt(previous.variance),
        difficulty=items.difficulty[0][data.group],
        difficulty_se=np.sqrt(items.difficulty[1])[data.group],
        discrimination=slope[data.group],
        discrimination_se=(slope * np.sqrt(items.slope[1]))[data.group],
        feasibility=items.feasibility[data.group],
        guess=np.zeros(len(data.group)),
        log_posterior=evidence,
        iterations=sweeps,
        converged=moved <= TOLERANCE,
    )
