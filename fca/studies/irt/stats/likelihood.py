"""Prior and likelihood of item response models: grouped responses, a point in parameter space, and where fits start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

Array = np.ndarray
Subjects = Float[np.ndarray, " subjects"]
Items = Float[np.ndarray, " items"]
Groups = Float[np.ndarray, " groups"]  # groups of items with equal responses
Matrix = Float[np.ndarray, "subjects groups"]
Parameters = Float[np.ndarray, "k groups"]  # k free parameters an item

LOG_SLOPE_SD = 0.5  # of log discrimination around its mean
ASYMPTOTES = {  # (u, d) of a Beta
    "feasibility": (5.0, 1.0),  # most items can be solved by nearly everyone who is able enough
    "guess": (1.0, 9.0),  # of guess / feasibility: a blind guess is right in one of ten cases, or less often
}


@dataclass(frozen=True)
class Prior:
    """θ ~ N(0, 1); b ~ N(centre, spread²); log a ~ N(log_slope, 0.5²). These three numbers are learned."""

    centre: float = 0.0
    spread: float = 1.0
    log_slope: float = 0.0


def log_beta(logit: Items, shape: tuple[float, float]) -> tuple[Items, Items, Items]:
    """Log density of a logit whose inverse is Beta(u, d), up to a constant; its gradient; minus its second derivative.

    As a density of the logit it is p^u (1 - p)^d: its mode u / (u + d) lies inside (0, 1), unlike Beta(5, 1)'s own.

    >>> log_beta(np.array([np.log(5.0)]), (5.0, 1.0))[1].round(12)
    array([0.])
    """
    up, down = shape
    p = 1 / (1 + np.exp(-logit))
    q = 1 / (1 + np.exp(logit))
    density = -up * np.logaddexp(0, -logit) - down * np.logaddexp(0, logit)
    return density, up * q - down * p, (up + down) * p * q


# the free parameters of an item; difficulty comes last, so that its variance can be read from a Cholesky factor
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

    Learning guess as a share of feasibility keeps it below feasibility: less able subjects never do better on an item.
    """

    model: str
    ability: Subjects
    item: Parameters
    prior: Prior

    def row(self, name: str, fixed: float) -> Groups:
        """Free parameter of every item by its name; `fixed` where the model does not learn it."""
        names = LEARNED[self.model]
        return self.item[names.index(name)] if name in names else np.full(self.item.shape[1], fixed)

    @property
    def difficulty(self) -> Groups:
        """Of every item."""
        return self.item[-1]

    @property
    def slope(self) -> Groups:
        """Discrimination of every item."""
        return np.exp(self.row("slope", 0.0))

    def asymptotes(self) -> tuple[Groups, Groups]:
        """Feasibility, and guess as a share of it."""
        feasibility = 1 / (1 + np.exp(-self.row("feasibility", np.inf)))
        guess_share = 1 / (1 + np.exp(-self.row("guess", -np.inf)))
        return feasibility, guess_share

    def item_prior(self) -> tuple[Array, Array, Array]:
        """Log density of each item's parameters; by parameter, its gradient and minus its second derivative."""
        mean_and_sd = {
            "slope": (self.prior.log_slope, LOG_SLOPE_SD),
            "difficulty": (self.prior.centre, self.prior.spread),
        }
        density = np.zeros(self.item.shape[1])
        gradient, curvature = np.empty((2, *self.item.shape))
        for i, (name, value) in enumerate(zip(LEARNED[self.model], self.item, strict=True)):
            if name in ASYMPTOTES:
                term, gradient[i], curvature[i] = log_beta(value, ASYMPTOTES[name])
            else:
                mean, sd = mean_and_sd[name]
                term = -((value - mean) ** 2) / (2 * sd**2) - np.log(sd)
                gradient[i] = -(value - mean) / sd**2
                curvature[i] = sd**-2
            density += term
        return density, gradient, curvature


@dataclass(frozen=True)
class Responses:
    """The whole input of the likelihood; items with the same responses are one item that counts several times.

    right:   share of right responses among the items of a group; 0 where missing.
    present: which cells hold a response; None when all do.
    count:   items in each group.    group: the group of each item.
    """

    right: Matrix
    present: Bool[np.ndarray, "subjects groups"] | None
    count: Groups
    group: Int[np.ndarray, " items"]

    @property
    def indicator(self) -> Matrix:
        """1 where a cell holds a response, else 0."""
        return np.ones_like(self.right) if self.present is None else self.present.astype(float)

    def part(self, groups: Bool[np.ndarray, " groups"] | Int[np.ndarray, " some"]) -> Responses:
        """Some of the groups, each as an item."""
        present = None if self.present is None else self.present[:, groups]
        count = self.count[groups]
        return Responses(self.right[:, groups], present, count, np.arange(len(count)))

    def sample(self, items: int) -> tuple[Responses, Int[np.ndarray, " some"]]:
        """As many items, evenly spaced by the share of right responses, and the groups that they come from."""
        _, easiness = self.logits()
        order = np.argsort(easiness, kind="stable")
        last_items = np.cumsum(self.count[order])  # of each group in this order
        positions = (np.arange(items) + 0.5) * last_items[-1] / items
        sampled = np.searchsorted(last_items, positions, side="right")
        groups, count = np.unique(order[sampled], return_counts=True)
        return replace(self.part(groups), count=count.astype(float)), groups

    def logits(self) -> tuple[Subjects, Groups]:
        """Accuracy of every subject and of every group, as smoothed logits."""
        present = self.indicator
        by_subject = smoothed_logit(self.right @ self.count, present @ self.count)
        return by_subject, smoothed_logit(self.right.sum(axis=0), present.sum(axis=0))


def smoothed_logit(right: Float[np.ndarray, " n"], responses: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """log((right + 0.5) / (responses - right + 0.5)): finite where all or none are right.

    >>> smoothed_logit(np.array([2.0]), np.array([4.0]))
    array([0.])
    """
    return np.log((right + 0.5) / (responses - right + 0.5))


def prepare(responses: Float[np.ndarray, "subjects items"], one_slope: bool = False) -> Responses:
    """Group items whose parameters must come out equal; nothing is approximated.

    Items with the same responses have the same posterior. With one slope for all (1PL), the number of right responses
    to an item among those present is sufficient for it (Rasch 1960), and the responses enter a subject's likelihood
    only as a sum, so that such items share their mean response.

    >>> prepare(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).count
    array([1., 2.])
    """
    is_missing = np.isnan(responses)
    has_missing = bool(is_missing.any())
    right = np.where(is_missing, 0.0, responses) if has_missing else responses

    # Bytes that are equal for items of one group
    if one_slope:
        key = right.sum(axis=0).astype("<u4").view("u1").reshape(-1, 4)
    else:
        key = _bits(right == 1)
    if has_missing:
        key = np.concatenate([key, _bits(is_missing)], axis=1)
    words = np.ascontiguousarray(key).view(f"V{key.shape[1]}").ravel()
    _, first, group, count = np.unique(words, return_index=True, return_inverse=True, return_counts=True)

    present = ~is_missing[:, first] if has_missing else None
    if one_slope:
        order = np.argsort(group, kind="stable")
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        means = np.add.reduceat(right[:, order], starts, axis=1) / count
    else:
        means = np.ascontiguousarray(right[:, first], dtype=np.float64)
    return Responses(means, present, count.astype(float), group)


def _bits(cells: Bool[np.ndarray, "subjects items"]) -> Array:
    return np.packbits(cells, axis=0).T


def first_state(data: Responses, model: str) -> State:
    """Standardised logit accuracies, and minus the logit of each item's mean: one sign, one scale, no chance."""
    ability, easiness = data.logits()
    ability -= ability.mean()
    unit = 1.0 if model == "1pl" else max(float(ability.std()), 0.1)
    difficulty = -easiness / unit
    centre = float(np.average(difficulty, weights=data.count))
    spread = float(np.sqrt(np.average((difficulty - centre) ** 2, weights=data.count)))
    prior = Prior(centre, max(spread, 0.5), float(np.log(unit)))
    return _state(model, ability / unit, difficulty, np.full(len(difficulty), np.log(unit)), prior)


def random_state(data: Responses, model: str, rng: np.random.Generator) -> State:
    """Normal draws, to try whether the mode depends on the start."""
    n_subjects, n_groups = data.right.shape
    ability = np.asarray(rng.normal(0.0, 1, n_subjects))
    difficulty = np.asarray(rng.normal(0.0, 1, n_groups))
    log_slope = np.asarray(rng.normal(0.0, LOG_SLOPE_SD, n_groups))
    return _state(model, ability, difficulty, log_slope, Prior())


def _state(model: str, ability: Subjects, difficulty: Groups, log_slope: Groups, prior: Prior) -> State:
    """Asymptotes start at the mode of their prior."""
    rows = {name: np.full(len(difficulty), np.log(up / down)) for name, (up, down) in ASYMPTOTES.items()}
    rows["slope"] = log_slope
    rows["difficulty"] = difficulty
    return State(model, ability, np.stack([rows[name] for name in LEARNED[model]]), prior)


# The dense work, once a step: every subject on every item, in blocks of items that stay in the processor's cache.
BLOCK = 1 << 15  # cells at a time: a quarter of a megabyte an array
LARGEST = 690.0  # |z|, beyond which exp(z) or its inverse is no float64


@dataclass(frozen=True)
class Cells:
    """Results of one pass over all cells. All are 0 where a response is missing.

    log_likelihood: of one item of each group.
    error:  derivative of a cell's log likelihood by z = a (θ - b); right - p without asymptotes.
    weight: minus its second derivative; p (1 - p) without asymptotes.
    For the m asymptotes that are learned, by their logits:
    asymptote (m, groups): gradient.  own (m, m, groups): minus second derivatives.  mixed (m matrices): with z.
    by_item: sums over subjects of error, weight and mixed, times 1, z and (weight) z². The matrices themselves are left
    out (no columns) where only items move.
    """

    log_likelihood: Groups
    by_item: tuple[Float[np.ndarray, "_ groups"], ...]
    asymptote: Float[np.ndarray, "m groups"]
    own: Float[np.ndarray, "m m groups"]
    error: Float[np.ndarray, "subjects columns"]
    weight: Float[np.ndarray, "subjects columns"]
    mixed: list[Float[np.ndarray, "subjects columns"]]

    @classmethod
    def empty(cls, data: Responses, model: str, matrices: bool = True) -> Cells:
        """Room for a pass; its values are not set yet."""
        n_subjects, n_groups = data.right.shape
        m = max(len(LEARNED[model]) - 2, 0)
        n_columns = n_groups if matrices else 0
        n_powers = (2, 3, *[2] * m)  # of z, by which error, weight and mixed are summed
        error, weight, *mixed = np.empty((2 + m, n_subjects, n_columns))
        return cls(
            log_likelihood=np.empty(n_groups),
            by_item=tuple(np.empty((n, n_groups)) for n in n_powers),
            asymptote=np.empty((m, n_groups)),
            own=np.empty((m, m, n_groups)),
            error=error,
            weight=weight,
            mixed=mixed,
        )


def fill(cells: Cells, data: Responses, state: State) -> None:
    """One pass over all cells at `state`, into `cells`."""
    n_subjects, n_groups = data.right.shape
    width = max(BLOCK // n_subjects, 1)
    powers = state.ability ** np.arange(3)[:, None]  # 1, θ, θ²
    slope = state.slope
    asymptotes = np.stack(state.asymptotes())
    for start in range(0, n_groups, width):
        block = slice(start, start + width)
        z = state.ability[:, None] - state.difficulty[block]
        z *= slope[block]
        right = data.right[:, block]
        present = None if data.present is None else data.present[:, block]
        if len(cells.asymptote):
            matrices = _bounded(cells, block, z, right, present, state, asymptotes[:, block])
        else:
            matrices = _logistic(cells, block, z, right, present)

        for sums, matrix in zip(cells.by_item, matrices, strict=True):
            sums[:, block] = powers[: len(sums)] @ matrix
        if cells.error.size:
            for whole_matrix, matrix in zip((cells.error, cells.weight, *cells.mixed), matrices, strict=True):
                whole_matrix[:, block] = matrix

    # The sums are so far times 1, θ, θ²: from θ to z = a (θ - b)
    for sums in cells.by_item:
        by_difficulty = state.difficulty * sums[0]
        if len(sums) > 2:
            sums[2] = slope**2 * (sums[2] - state.difficulty * (2 * sums[1] - by_difficulty))
        sums[1] = slope * (sums[1] - by_difficulty)


def _logistic(cells: Cells, block: slice, z: Matrix, right: Matrix, present: Array | None) -> tuple[Matrix, Matrix]:
    """Log likelihood Σ right z - log(1 + exp z), which shares its exponential with both derivatives.

    Returns error and weight. Works in place: it takes most of the time of a fit.
    """
    if present is not None:
        z *= present
    small = np.exp(-np.abs(z))  # never overflows
    if present is not None:
        small *= present
    normaliser = 1.0 + small
    linear = np.einsum("sg,sg->g", right, z) - np.maximum(z, 0.0).sum(axis=0)  # s: subjects, g: groups
    cells.log_likelihood[block] = linear - _log_product(normaliser)

    p = np.where(z > 0, 1.0, small)
    p /= normaliser
    weight = small  # p (1 - p)
    weight /= normaliser
    weight /= normaliser
    return right - p, weight


def _log_product(factors: Matrix) -> Groups:
    """Σ log over subjects of factors in [1, 2]: one logarithm for 1,000 of them, since 2^1000 is still a float64."""
    starts = range(0, len(factors), 1000)
    return sum(np.log(np.multiply.reduce(factors[start : start + 1000], axis=0)) for start in starts)


def _bounded(
    cells: Cells, block: slice, z: Matrix, right: Matrix, present: Array | None, state: State, asymptotes: Array
) -> tuple[Matrix, ...]:
    """With asymptotes: p = feasibility (share + (1 - share) / (1 + exp -z)), share = guess / feasibility.

    In terms of what was observed, right or wrong, its chance c is p or 1 - p, of which 1 / (1 + exp ∓z) is what z
    moves. Derivatives by the logits of asymptotes are those of (1 - feasibility) / c where wrong ("lost", 0 where
    right) and feasibility / c where right ("won", 0 where wrong). Works in place, as `_logistic` does.
    """
    feasibility, share = asymptotes
    infeasible = 1 - feasibility
    span = feasibility * (1 - share)
    ones = np.ones(len(right))
    wrong = 1.0 - right
    sign = right - wrong

    # likely and unlikely: 1 / (1 + exp ∓z) and the rest, for what was observed
    z *= sign
    odds = np.exp(np.clip(z, -LARGEST, LARGEST, out=z), out=z)
    unlikely = 1.0 / (1.0 + odds)
    likely = np.multiply(odds, unlikely, out=odds)
    chance = right * (feasibility * share - infeasible)
    chance += infeasible
    chance += likely * span

    log_chance = np.log(chance)
    inverse = np.divide(1.0, chance, out=chance)
    n_responses: Array | float = float(len(right))
    if present is not None:
        log_chance *= present
        inverse *= present
        n_responses = ones @ present
    cells.log_likelihood[block] = ones @ log_chance

    # error = ± r, weight = r (likely - unlikely + r), r = likely unlikely span / c
    r = likely * unlikely
    r *= span
    r *= inverse
    likely -= unlikely
    likely += r
    error = np.multiply(sign, r, out=sign)
    weight = np.multiply(likely, r, out=likely)
    mixed = _by_asymptotes(cells, block, state, asymptotes, (right, wrong, inverse, error), n_responses)
    return error, weight, *mixed


def _by_asymptotes(
    cells: Cells,
    block: slice,
    state: State,
    asymptotes: Array,
    of_cells: tuple[Matrix, ...],
    n_responses: Array | float,
) -> list[Matrix]:
    """Sets the derivatives by asymptotes; returns those with z.

    of_cells: right, wrong, 1 / chance and error.    n_responses: to each item.
    """
    feasibility, share = asymptotes
    right, wrong, inverse, error = of_cells
    gradient = cells.asymptote[:, block]
    own = cells.own[:, :, block]
    ones = np.ones(len(right))
    mixed: list[Matrix] = []

    infeasible = 1 - feasibility
    lost = wrong * inverse
    lost *= infeasible
    sum_lost = ones @ lost
    squares_lost = np.einsum("sg,sg->g", lost, lost)  # s: subjects, g: groups
    if "feasibility" in LEARNED[state.model]:
        gradient[0] = n_responses * infeasible - sum_lost
        own[0, 0] = n_responses * infeasible * feasibility - sum_lost + squares_lost
        mixed.append(-error * lost)

    if "guess" in LEARNED[state.model]:
        own[0, -1] = share * (sum_lost - squares_lost)
        own[-1, 0] = own[0, -1]
        won_or_lost = np.multiply(right, inverse, out=inverse)
        won_or_lost *= feasibility
        won_or_lost += lost
        total = ones @ won_or_lost
        squares = np.einsum("sg,sg->g", won_or_lost, won_or_lost)
        gradient[-1] = share * (total - n_responses)
        own[-1, -1] = share * (share * squares - total + n_responses * (1 - share))
        won_or_lost *= error
        mixed.append(np.multiply(won_or_lost, share, out=won_or_lost))
    return mixed
