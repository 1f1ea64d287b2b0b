"""From a start to the mode: Newton steps that never lower the posterior, and scales learned between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

# What is assumed before any answer, and how the answers set its scales.


LOG_SLOPE_SD = 0.5  # of log discrimination around its mean
FEASIBILITY = (5.0, 1.0)  # Beta: most items can be solved by nearly everyone who is able enough
GUESS = (1.0, 9.0)  # Beta, of guess / feasibility: a blind answer is right in one of ten cases, or less often
CENTRE_SD = 5.0  # of the mean difficulty around 0, the mean ability
SPREAD_PRIOR = 3.0  # half-normal scale of the spread of difficulty
SPREAD_FLOOR = 0.1  # in the same unit


@dataclass(frozen=True)
class Prior:
    """θ ~ N(0, 1); b ~ N(centre, spread²); log a ~ N(log_slope, 0.5²). These three numbers are learned."""

    centre: float = 0.0
    spread: float = 1.0
    log_slope: float = 0.0


def learned_spread(squares: float, items: int) -> float:
    """The most probable spread when difficulties lie Σ E[(b - centre)²] = `squares` apart; never below a floor.

    Maximises -items log s - squares / (2 s²) - s² / (2 · 3²): a normal density of each item, a half-normal one of s.

    >>> round(learned_spread(4000.0, 1000), 2)
    2.0
    """
    width = SPREAD_PRIOR**2
    variance = width * (np.sqrt(items**2 + 4 * squares / width) - items) / 2
    return float(max(np.sqrt(variance), SPREAD_FLOOR))


def log_beta(
    logit: Float[np.ndarray, " items"], shape: tuple[float, float]
) -> tuple[Float[np.ndarray, " items"], Float[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """Log density of a logit whose inverse is Beta(u, d), up to a constant; its gradient; minus its second derivative.

    As a density of the logit it is p^u (1 - p)^d: its mode u / (u + d) lies inside (0, 1), unlike Beta(5, 1)'s own.

    >>> log_beta(np.array([np.log(5.0)]), (5.0, 1.0))[1].round(12)
    array([0.])
    """
    up, down = shape
    p, q = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(logit))
    density = -up * np.logaddexp(0, -logit) - down * np.logaddexp(0, logit)
    return density, up * q - down * p, (up + down) * p * q


# A point in parameter space, and the prior's part of the posterior there.


# what is learned of each item; difficulty comes last, so that its variance is read off a Cholesky factor
LEARNED = {
    "1pl": ("difficulty",),
    "2pl": ("slope", "difficulty"),
    "3pl": ("guess", "slope", "difficulty"),
    "3pl-upper": ("feasibility", "slope", "difficulty"),
    "4pl": ("feasibility", "guess", "slope", "difficulty"),
}


@dataclass(frozen=True)
class State:
    """Abilities and free parameters of items: log discrimination, logits of feasibility and of guess / feasibility.

    That guess is learned as a share of feasibility keeps it below: no item may be solved more often by the less able.
    """

    model: str
    ability: Float[np.ndarray, " subjects"]
    item: Float[np.ndarray, "k groups"]
    prior: Prior

    def row(self, name: str) -> Float[np.ndarray, " groups"] | None:
        """Free parameter of every item by its name; None where the model does not learn it."""
        names = LEARNED[self.model]
        return self.item[names.index(name)] if name in names else None

    @property
    def difficulty(self) -> Float[np.ndarray, " groups"]:
        """Of every item."""
        return np.asarray(self.item[-1])

    @property
    def slope(self) -> Float[np.ndarray, " groups"]:
        """Discrimination of every item."""
        row = self.row("slope")
        return np.ones(self.item.shape[1]) if row is None else np.exp(row)

    def asymptotes(self) -> tuple[Float[np.ndarray, " groups"], Float[np.ndarray, " groups"]]:
        """Feasibility, and guess as a share of it."""
        upper, lower = self.row("feasibility"), self.row("guess")
        ones = np.ones(self.item.shape[1])
        return (
            ones if upper is None else 1 / (1 + np.exp(-upper)),
            0 * ones if lower is None else 1 / (1 + np.exp(-lower)),
        )


def item_prior(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log density of each item's parameters; by parameter (k, groups), its gradient and minus its second derivative."""
    density = np.zeros(state.item.shape[1])
    gradient, curvature = np.empty_like(state.item), np.empty_like(state.item)
    for position, name in enumerate(LEARNED[state.model]):
        value = state.item[position]
        if name in ("feasibility", "guess"):
            term, gradient[position], curvature[position] = log_beta(
                value, FEASIBILITY if name == "feasibility" else GUESS
            )
        else:
            slope = name == "slope"
            mean, sd = (state.prior.log_slope, LOG_SLOPE_SD) if slope else (state.prior.centre, state.prior.spread)
            term = -((value - mean) ** 2) / (2 * sd**2) - np.log(sd)
            gradient[position], curvature[position] = -(value - mean) / sd**2, sd**-2
        density += term
    return density, gradient, curvature


# Answers made ready for fitting: items with the same answers are one item that counts several times.


@dataclass(frozen=True)
class Answers:
    """The likelihood's whole input.

    right:  share of right answers among the items of a group; 0 where not asked.
    asked:  which cells hold an answer; None when all do.
    count:  items in each group.    group: the group of each item.
    """

    right: Float[np.ndarray, "subjects groups"]
    asked: Bool[np.ndarray, "subjects groups"] | None
    count: Float[np.ndarray, " groups"]
    group: Int[np.ndarray, " items"]


def prepare(responses: Float[np.ndarray, "subjects items"], one_slope: bool = False) -> Answers:
    """Group items whose parameters must come out equal; nothing is approximated.

    Items with the same answers have the same posterior. With one slope for all (1PL), an item's number of right answers
    among the subjects that were asked says all about it (sufficiency; Rasch 1960), and the answers enter a subject's
    likelihood only as a sum, so that such items share their mean answers.

    >>> prepare(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).count
    array([1., 2.])
    """
    absent = np.isnan(responses)
    holes = bool(absent.any())
    right = np.where(absent, 0.0, responses) if holes else responses
    key = right.sum(axis=0).astype("<u4").view("u1").reshape(-1, 4) if one_slope else _bits(right == 1)
    if holes:
        key = np.concatenate([key, _bits(absent)], axis=1)
    words = np.ascontiguousarray(key).view(f"V{key.shape[1]}").ravel()
    _, first, group, count = np.unique(words, return_index=True, return_inverse=True, return_counts=True)
    asked = ~absent[:, first] if holes else None
    if one_slope:
        order = np.argsort(group, kind="stable")
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        means = np.add.reduceat(right[:, order], starts, axis=1) / count
    else:
        means = np.ascontiguousarray(right[:, first], dtype=np.float64)
    return Answers(means, asked, count.astype(float), group)


def _bits(cells: Bool[np.ndarray, "subjects items"]) -> np.ndarray:
    return np.packbits(cells, axis=0).T


# The dense work: every subject on every item, once a step, in blocks of items that stay in the processor's cache.


BLOCK = 1 << 15  # cells at a time: a quarter of a megabyte an array
TINY = 1e-300  # a probability that is not 0


@dataclass(frozen=True)
class Cells:
    """What one pass over all cells leaves behind. All are 0 where not asked.

    log_likelihood: of one item of each group.
    error:  derivative of a cell's log likelihood by z = a (θ - b); right - p without asymptotes.
    weight: Fisher information of a cell on z; p (1 - p) without asymptotes.
    For the m asymptotes that are learned, by their logits:
    asymptote (m, groups): gradient.  own (m, m, groups): information.  mixed (m, subjects, groups): with z.
    """

    log_likelihood: Float[np.ndarray, " groups"]
    error: Float[np.ndarray, "subjects groups"]
    weight: Float[np.ndarray, "subjects groups"]
    asymptote: Float[np.ndarray, "m groups"]
    own: Float[np.ndarray, "m m groups"]
    mixed: Float[np.ndarray, "m subjects groups"]

    @classmethod
    def empty(cls, answers: Answers, model: str) -> Cells:
        """Room for a pass; its values are not yet set."""
        subjects, groups = answers.right.shape
        m = max(len(LEARNED[model]) - 2, 0)
        dense = np.empty((2, subjects, groups))
        return cls(
            np.empty(groups), dense[0], dense[1],
            np.empty((m, groups)), np.empty((m, m, groups)), np.empty((m, subjects, groups)),
        )  # fmt: skip


def fill(cells: Cells, answers: Answers, state: State, observed: bool) -> None:
    """One pass over all cells at `state`, into `cells`; observed: second derivatives in place of their expectation."""
    logistic = len(cells.asymptote) == 0
    for part in _parts(answers):
        z = state.ability[:, None] - state.difficulty[part]
        z *= state.slope[part]
        asked = None if answers.asked is None else answers.asked[:, part]
        if logistic:
            _logistic(cells, part, z, answers.right[:, part], asked)
        else:
            _bounded(cells, part, z, answers.right[:, part], asked, state, observed)


def _parts(answers: Answers) -> Iterator[slice]:
    subjects, groups = answers.right.shape
    width = max(BLOCK // subjects, 1)
    return (slice(start, min(start + width, groups)) for start in range(0, groups, width))


def _logistic(cells: Cells, part: slice, z: np.ndarray, right: np.ndarray, asked: np.ndarray | None) -> None:
    """Log likelihood Σ right z - log(1 + exp z), which shares its exponential with both derivatives."""
    if asked is not None:
        z *= asked
    small = np.exp(-np.abs(z))  # never overflows
    if asked is not None:
        small *= asked
    whole = 1.0 + small
    chosen = np.einsum("sg,sg->g", right, z) - np.maximum(z, 0.0).sum(axis=0)
    cells.log_likelihood[part] = chosen - _log_product(whole)
    solved = np.where(z > 0, 1.0, small)
    solved /= whole
    np.subtract(right, solved, out=cells.error[:, part])
    small /= whole
    small /= whole
    cells.weight[:, part] = small


def _log_product(whole: Float[np.ndarray, "subjects groups"]) -> Float[np.ndarray, " groups"]:
    """Σ log over subjects of factors in [1, 2]: one logarithm for 1,000 of them, since 2^1000 is still a float64."""
    starts = range(0, len(whole), 1000)
    return np.asarray(sum(np.log(np.multiply.reduce(whole[start : start + 1000], axis=0)) for start in starts))


def _bounded(
    cells: Cells,
    part: slice,
    z: np.ndarray,
    right: np.ndarray,
    asked: np.ndarray | None,
    state: State,
    observed: bool,
) -> None:
    """With asymptotes: p = feasibility (share + (1 - share) / (1 + exp -z)), share = guess / feasibility.

    A cell's log likelihood has minus second derivatives (p_k / c)² - p_kl / c where right, with chance c = p, and the
    same with c = -(1 - p) where wrong; expected over answers, p_k p_l / (p (1 - p)).
    """
    feasibility, share = (row[part] for row in state.asymptotes())
    solved, missed = expit(z), expit(-z)
    p = np.maximum(feasibility * (share + (1 - share) * solved), TINY)
    q = np.maximum((1 - feasibility) + feasibility * (1 - share) * missed, TINY)
    truly = right > 0
    score, chance, information = np.where(truly, 1 / p, -1 / q), np.where(truly, p, q), 1 / (p * q)
    if asked is not None:
        chance[~asked] = 1.0
        score *= asked
        information *= asked
    cells.log_likelihood[part] = np.log(chance).sum(axis=0)
    by_z = feasibility * (1 - share) * solved * missed
    by = {"feasibility": (1 - feasibility) * p, "guess": feasibility * share * (1 - share) * missed}
    # second derivatives: of z by z and by each asymptote's logit as multiples of by_z, and among those as multiples
    bend = {"feasibility": 1 - 2 * feasibility, "guess": 1 - 2 * share}
    tilt = {"feasibility": 1 - feasibility, "guess": -share}
    names = LEARNED[state.model][:-2]
    error = score * by_z
    cells.error[:, part] = error
    cells.weight[:, part] = error * (error - (missed - solved)) if observed else by_z * information * by_z
    for i, name in enumerate(names):
        mine = score * by[name]
        cells.asymptote[i, part] = mine.sum(axis=0)
        cells.mixed[i][:, part] = error * (mine - tilt[name]) if observed else by_z * information * by[name]
        for j, other in enumerate(names[: i + 1]):
            theirs = score * by[other]
            twist = bend[name] * mine if i == j else tilt["feasibility"] * mine
            own = mine * theirs - twist if observed else by[name] * information * by[other]
            cells.own[i, j, part] = cells.own[j, i, part] = own.sum(axis=0)


# Many small symmetric systems at once, one a group of items, the group on the last axis.


def cholesky(block: Float[np.ndarray, "k k groups"]) -> Float[np.ndarray, "k k groups"]:
    """Lower triangles L with L Lᵀ = block; raises LinAlgError if any block is not positive.

    >>> cholesky(np.array([[[4.0]]]))
    array([[[2.]]])
    """
    lower = np.zeros_like(block)
    for i in range(len(block)):
        for j in range(i + 1):
            left = block[i, j] - np.einsum("kg,kg->g", lower[i, :j], lower[j, :j])
            if i == j and not (left > 0).all():
                raise LinAlgError(f"{int((~(left > 0)).sum())} blocks of items are not positive")
            lower[i, j] = np.sqrt(left) if i == j else left / lower[j, j]
    return lower


def forward(lower: Float[np.ndarray, "k k groups"], right: Float[np.ndarray, "k *any groups"]) -> None:
    """L⁻¹ right, in place."""
    for i in range(len(lower)):
        for j in range(i):
            right[i] -= lower[i, j] * right[j]
        right[i] /= lower[i, i]


def backward(lower: Float[np.ndarray, "k k groups"], right: Float[np.ndarray, "k *any groups"]) -> None:
    """L⁻ᵀ right, in place."""
    for i in reversed(range(len(lower))):
        for j in range(i + 1, len(lower)):
            right[i] -= lower[j, i] * right[j]
        right[i] /= lower[i, i]


# One step of Newton's method in all parameters at once, the items eliminated (Schur complement).


def log_posterior(state: State, cells: Cells, count: Float[np.ndarray, " groups"]) -> float:
    """Log likelihood and log prior, without constants."""
    shared = state.ability @ state.ability / 2 + state.prior.centre**2 / (2 * CENTRE_SD**2)
    return float(count @ (cells.log_likelihood + item_prior(state)[0]) - shared)


@dataclass(frozen=True)
class System:
    """Gradient and negative Hessian of the log posterior.

    Of one item of each group: gradient `item`, `block`. Shared by all (abilities, then the prior's centre): gradient
    `shared`, `diagonal`. Between an item's k-th parameter and the shared ones: `cross`.
    """

    item: Float[np.ndarray, "k groups"]
    block: Float[np.ndarray, "k k groups"]
    shared: Float[np.ndarray, " shared"]
    diagonal: Float[np.ndarray, " shared"]
    cross: Float[np.ndarray, "k shared groups"]


def derivatives(state: State, cells: Cells, count: Float[np.ndarray, " groups"], observed: bool) -> System:
    """All derivatives at a point that `cells` was filled at.

    observed: the Hessian itself where an item's own block of it is positive. Otherwise, and always for asymptotes, its
    expectation (Fisher information), which is positive everywhere.
    """
    theta, a, b, k = state.ability, state.slope, state.difficulty, len(state.item)
    _, gradient, curvature = item_prior(state)
    block = np.zeros((k, k, len(b)))
    cross = np.zeros((k, len(theta) + 1, len(b)))
    powers = np.stack([np.ones_like(theta), theta, theta**2])
    error, weight = powers[:2] @ cells.error, powers @ cells.weight
    gradient[-1] -= a * error[0]
    block[-1, -1] = a**2 * weight[0]
    np.multiply(cells.weight, -(a**2), out=cross[-1, :-1])
    cross[-1, -1] = -(state.prior.spread**-2)
    _add_asymptotes(gradient, block, cross, cells, powers, a, b)
    if k > 1:
        slack = a * (error[1] - b * error[0])
        gradient[-2] += slack
        block[-2, -2] = a**2 * (weight[2] - 2 * b * weight[1] + b**2 * weight[0])
        block[-2, -1] = block[-1, -2] = -(a**2) * (weight[1] - b * weight[0])
        np.subtract(theta[:, None], b, out=cross[-2, :-1])
        cross[-2, :-1] *= cells.weight
        cross[-2, :-1] *= a**2
    for i in range(k):
        block[i, i] += curvature[i]
    if observed and k > 1:  # z has second derivatives itself, by (log a, log a), (log a, b) and (log a, θ)
        block[-2, -2] -= slack
        block[-2, -1] += a * error[0]
        block[-1, -2] += a * error[0]
        cross[-2, :-1] -= a * cells.error
        _make_positive(block)
    prior = state.prior
    centre = count @ (b - prior.centre) / prior.spread**2 - prior.centre / CENTRE_SD**2
    shared = np.append(cells.error @ (count * a) - theta, centre)
    diagonal = np.append(cells.weight @ (count * a**2) + 1.0, count.sum() / prior.spread**2 + CENTRE_SD**-2)
    return System(gradient, block, shared, diagonal, cross)


def _add_asymptotes(
    gradient: np.ndarray,
    block: np.ndarray,
    cross: np.ndarray,
    cells: Cells,
    powers: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> None:
    """The rows of feasibility and guess, where they are learned: z depends on log a, b and θ."""
    m = len(cells.asymptote)
    gradient[:m] += cells.asymptote
    block[:m, :m] = cells.own
    for i in range(m):
        mixed = powers[:2] @ cells.mixed[i]
        block[i, -1] = block[-1, i] = -a * mixed[0]
        block[i, -2] = block[-2, i] = a * (mixed[1] - b * mixed[0])
        np.multiply(cells.mixed[i], a, out=cross[i, :-1])


def _make_positive(block: Float[np.ndarray, "k k groups"]) -> None:
    """Where an item's posterior is not concave, turn negative curvatures round: the step still ascends."""
    values = np.linalg.eigvalsh(block.transpose(2, 0, 1))
    bad = np.flatnonzero(values[:, 0] < 1e-3 * values[:, -1])
    if len(bad):
        value, vector = np.linalg.eigh(block[:, :, bad].transpose(2, 0, 1))
        value = np.maximum(np.abs(value), 1e-3 * np.abs(value).max(axis=1, keepdims=True))
        block[:, :, bad] = np.einsum("gik,gk,gjk->ijg", vector, value, vector)


@dataclass(frozen=True)
class Eliminated:
    """The shared parameters' own system, the items solved for: `complement` x = `pushed`.

    lower: Cholesky factors L of the items' blocks.   half_item, half_cross: L⁻¹ of their gradients and crosses.
    """

    complement: Float[np.ndarray, "shared shared"]
    pushed: Float[np.ndarray, " shared"]
    lower: Float[np.ndarray, "k k groups"]
    half_item: Float[np.ndarray, "k groups"]
    half_cross: Float[np.ndarray, "k shared groups"]


def eliminate(now: System, count: Float[np.ndarray, " groups"]) -> Eliminated:
    """Schur complement of all items; uses up `now.cross`. Raises LinAlgError if a block is not positive."""
    lower = cholesky(now.block)
    half_item, half_cross = now.item.copy(), now.cross
    forward(lower, half_item)
    forward(lower, half_cross)
    complement, pushed = np.diag(now.diagonal), now.shared.copy()
    for cross, item in zip(half_cross, half_item, strict=True):
        weighted = cross * np.sqrt(count)
        complement -= weighted @ weighted.T
        pushed -= cross @ (count * item)
    return Eliminated(complement, pushed, lower, half_item, half_cross)


def step(small: Eliminated, free: slice) -> tuple[Float[np.ndarray, " shared"], Float[np.ndarray, "k groups"]]:
    """Newton's step of the shared parameters in `free`, and of all items; raises LinAlgError if it is no ascent."""
    shared = np.zeros(len(small.pushed))
    if len(shared[free]):
        shared[free] = cho_solve(cho_factor(small.complement[free, free]), small.pushed[free])
    item = small.half_item - np.stack([shared @ cross for cross in small.half_cross])
    backward(small.lower, item)
    return shared, item


STEPS = 1000
TOLERANCE = 1e-8  # of a step, relative to 1 + the parameter
ROUGH = 1e-4
CAREFUL = 3  # first steps by expected information, which is positive wherever they start
LONGEST = 2.0  # of one step in log discrimination and in logits


@dataclass(frozen=True)
class Mode:
    """Where the steps ended, with what one pass over the cells there gave, and how it went."""

    state: State
    cells: Cells
    log_posterior: float
    iterations: int
    converged: bool


def find_mode(answers: Answers, state: State, fixed_ability: bool = False, fixed_prior: bool = False) -> Mode:
    """Newton's steps in all abilities, items and the prior's centre; after each, spread and slope mean are relearned.

    Every step is halved until the log posterior rises. Converged when steps and changes of the prior are below 1e-8.
    fixed_prior (with fixed_ability): items alone move, each in a posterior of its own; to 1e-4, enough to rank modes.
    """
    cells, trial = Cells.empty(answers, state.model), Cells.empty(answers, state.model)
    fill(cells, answers, state, observed=False)
    free = slice(len(state.ability) + fixed_prior if fixed_ability else 0, None)
    tolerance = ROUGH if fixed_prior else TOLERANCE
    iteration, change, learned = 0, np.inf, [_scales(state.prior)]
    while change > tolerance and iteration < STEPS:
        iteration += 1
        shared, item, difficulty_variance, ability_variance = _ascent(state, cells, answers, iteration > CAREFUL, free)
        reached, change = _climb(answers, state, cells, trial, shared, item, iteration >= CAREFUL)
        cells, trial = trial, cells
        state = reached
        if not fixed_prior:
            state = _relearned(reached, difficulty_variance, ability_variance, answers, fixed_ability)
        learned.append(_scales(state.prior))
        change = max(change, float(np.abs(_scales(state.prior) - _scales(reached.prior)).max()))
        if len(learned) == 4 and change > tolerance:
            if iteration > CAREFUL:
                state = replace(state, prior=_ahead(state.prior, learned))
            learned = [_scales(state.prior)]
    value = log_posterior(state, cells, answers.count)
    return Mode(state, cells, value, iteration, bool(change <= tolerance))


def _scales(prior: Prior) -> Float[np.ndarray, "2"]:
    return np.array([np.log(prior.spread), prior.log_slope])


def _ahead(prior: Prior, learned: Sequence[Float[np.ndarray, "2"]]) -> Prior:
    """Where scales that approach their limit by a steady ratio are going (Aitken's extrapolation)."""
    earlier, later = learned[-2] - learned[-3], learned[-1] - learned[-2]
    ratio = float(earlier @ later) / max(float(earlier @ earlier), 1e-300)
    if not 0 < ratio < 1:
        return prior
    spread, slope = learned[-1] + np.clip(later * ratio / (1 - ratio), -1.0, 1.0)
    return replace(prior, spread=max(float(np.exp(spread)), SPREAD_FLOOR), log_slope=float(slope))


def _climb(
    answers: Answers, state: State, cells: Cells, trial: Cells, shared: np.ndarray, item: np.ndarray, observed: bool
) -> tuple[State, float]:
    """As much of a step as raises the log posterior (up to rounding), leaving `trial` filled there; its size."""
    before = log_posterior(state, cells, answers.count)
    length = 1.0 if len(item) == 1 else min(1.0, LONGEST / max(np.abs(item[:-1]).max(), 1e-12))
    while True:
        prior = replace(state.prior, centre=state.prior.centre + length * float(shared[-1]))
        reached = State(state.model, state.ability + length * shared[:-1], state.item + length * item, prior)
        fill(trial, answers, reached, observed)
        if log_posterior(reached, trial, answers.count) >= before - 1e-12 * abs(before) or length < 1e-9:
            break
        length /= 2
    sizes = np.abs(shared).max(), np.abs(item / (1 + np.abs(state.item))).max()
    return reached, float(max(sizes))


def _ascent(
    state: State, cells: Cells, answers: Answers, observed: bool, free: slice
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " groups"], Float[np.ndarray, " subjects"]]:
    """A step, with the variance of each difficulty (abilities known) and of each ability (items known)."""
    while True:
        now = derivatives(state, cells, answers.count, observed)
        try:
            small = eliminate(now, answers.count)
            shared, item = step(small, free)
            return shared, item, small.lower[-1, -1] ** -2, 1 / now.diagonal[:-1]
        except LinAlgError:
            if not observed:
                raise
            observed = False
            fill(cells, answers, state, observed)  # no concave place: the expected information is positive everywhere


def _relearned(
    state: State,
    difficulty_variance: Float[np.ndarray, " groups"],
    ability_variance: Float[np.ndarray, " subjects"],
    answers: Answers,
    fixed_ability: bool,
) -> State:
    """Scales that the answers support: an EM step with the variances of Laplace's approximation.

    Where slopes are learned the unit of ability is free; E[θ²] = 1, as the prior says, fixes it. Abilities,
    difficulties and slopes then change their unit together, and no probability changes.
    """
    prior, item, unit = state.prior, state.item, 1.0
    if len(item) > 1 and fixed_ability:
        prior = replace(prior, log_slope=float(np.average(item[-2], weights=answers.count)))
    elif len(item) > 1:
        unit = float(np.sqrt(np.mean(state.ability**2 + ability_variance)))
        prior = Prior(prior.centre / unit, prior.spread / unit, prior.log_slope + np.log(unit))
        item = item.copy()
        item[-2] += np.log(unit)
        item[-1] /= unit
    squares = (item[-1] - prior.centre) ** 2 + difficulty_variance / unit**2
    spread = learned_spread(float(answers.count @ squares), int(answers.count.sum()))
    return State(state.model, state.ability / unit, item, replace(prior, spread=spread))
