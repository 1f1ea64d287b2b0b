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
    p, q = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(logit))
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
        share = 1 / (1 + np.exp(-self.row("guess", -np.inf)))
        return feasibility, share

    def item_prior(self) -> tuple[Array, Array, Array]:
        """Log density of each item's parameters; by parameter, its gradient and minus its second derivative."""
        mean_of = {"slope": self.prior.log_slope, "difficulty": self.prior.centre}
        sd_of = {"slope": LOG_SLOPE_SD, "difficulty": self.prior.spread}
        density = np.zeros(self.item.shape[1])
        gradient, curvature = np.empty((2, *self.item.shape))
        for i, (name, value) in enumerate(zip(LEARNED[self.model], self.item, strict=True)):
            if name in ASYMPTOTES:
                log_density, gradient[i], curvature[i] = log_beta(value, ASYMPTOTES[name])
            else:
                mean, sd = mean_of[name], sd_of[name]
                log_density = -((value - mean) ** 2) / (2 * sd**2) - np.log(sd)
                gradient[i] = -(value - mean) / sd**2
                curvature[i] = sd**-2
            density += log_density
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

    def part(self, selection: Bool[np.ndarray, " groups"] | Int[np.ndarray, " some"]) -> Responses:
        """Some of the groups, each as an item."""
        present = None if self.present is None else self.present[:, selection]
        count = self.count[selection]
        return Responses(self.right[:, selection], present, count, np.arange(len(count)))

    def sample(self, items: int) -> tuple[Responses, Int[np.ndarray, " some"]]:
        """As many items, evenly spaced by the share of right responses, and the groups that they come from."""
        _, easiness = self.logits()
        hardest_first = np.argsort(easiness, kind="stable")

        # places in the list of all items, where a group of n items takes n places
        last_place_of_group = np.cumsum(self.count[hardest_first])
        n_items = last_place_of_group[-1]
        sampled_places = (np.arange(items) + 0.5) * n_items / items
        group_ranks = np.searchsorted(last_place_of_group, sampled_places, side="right")

        groups, count = np.unique(hardest_first[group_ranks], return_counts=True)
        sampled = replace(self.part(groups), count=count.astype(float))
        return sampled, groups

    def logits(self) -> tuple[Subjects, Groups]:
        """Accuracy of every subject and of every group, as smoothed logits."""
        present = self.indicator
        subject_logits = smoothed_logit(self.right @ self.count, present @ self.count)
        group_logits = smoothed_logit(self.right.sum(axis=0), present.sum(axis=0))
        return subject_logits, group_logits


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
    absent = np.isnan(responses)
    has_absent = bool(absent.any())
    right = np.where(absent, 0.0, responses) if has_absent else responses

    # items with the same bytes are one group
    if one_slope:
        key = right.sum(axis=0).astype("<u4").view("u1").reshape(-1, 4)
    else:
        key = _bits(right == 1)
    if has_absent:
        key = np.concatenate([key, _bits(absent)], axis=1)
    words = np.ascontiguousarray(key).view(f"V{key.shape[1]}").ravel()
    _, first_item, group, count = np.unique(words, return_index=True, return_inverse=True, return_counts=True)

    present = ~absent[:, first_item] if has_absent else None
    if one_slope:
        items_by_group = np.argsort(group, kind="stable")
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        right_of_group = np.add.reduceat(right[:, items_by_group], starts, axis=1) / count
    else:
        right_of_group = np.ascontiguousarray(right[:, first_item], dtype=np.float64)
    return Responses(right_of_group, present, count.astype(float), group)


def _bits(cells: Bool[np.ndarray, "subjects items"]) -> Array:
    """One row of packed bits per item."""
    return np.packbits(cells, axis=0).T


def first_state(data: Responses, model: str) -> State:
    """Start of a fit: standardised logit accuracies, and minus the logit of each item's mean, on the same scale."""
    accuracy_logit, easiness = data.logits()
    accuracy_logit -= accuracy_logit.mean()
    unit = 1.0 if model == "1pl" else max(float(accuracy_logit.std()), 0.1)
    ability = accuracy_logit / unit
    difficulty = -easiness / unit

    centre = float(np.average(difficulty, weights=data.count))
    spread = float(np.sqrt(np.average((difficulty - centre) ** 2, weights=data.count)))
    prior = Prior(centre, max(spread, 0.5), float(np.log(unit)))
    log_slope = np.full(len(difficulty), np.log(unit))
    return _state(model, ability, difficulty, log_slope, prior)


def random_state(data: Responses, model: str, rng: np.random.Generator) -> State:
    """Normal draws, to check whether the mode depends on the start."""
    subjects, groups = data.right.shape
    ability = np.asarray(rng.normal(0.0, 1, subjects))
    difficulty = np.asarray(rng.normal(0.0, 1, groups))
    log_slope = np.asarray(rng.normal(0.0, LOG_SLOPE_SD, groups))
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
        """Arrays for a pass; their values are not set yet."""
        subjects, groups = data.right.shape
        m = max(len(LEARNED[model]) - 2, 0)
        columns = groups if matrices else 0
        powers_by_matrix = (2, 3, *[2] * m)  # of error, weight and mixed
        error, weight, *mixed = np.empty((2 + m, subjects, columns))
        return cls(
            log_likelihood=np.empty(groups),
            by_item=tuple(np.empty((powers, groups)) for powers in powers_by_matrix),
            asymptote=np.empty((m, groups)),
            own=np.empty((m, m, groups)),
            error=error,
            weight=weight,
            mixed=mixed,
        )


def fill(cells: Cells, data: Responses, state: State) -> None:
    """One pass over all cells at `state`, into `cells`."""
    subjects, groups = data.right.shape
    width = max(BLOCK // subjects, 1)
    powers_of_ability = state.ability ** np.arange(3)[:, None]
    slope = state.slope
    asymptotes = np.stack(state.asymptotes())
    for start in range(0, groups, width):
        block = slice(start, start + width)
        z = state.ability[:, None] - state.difficulty[block]
        z *= slope[block]
        right = data.right[:, block]
        present = None if data.present is None else data.present[:, block]
        if len(cells.asymptote):
            derivatives = _bounded(cells, block, z, right, present, state, asymptotes[:, block])
        else:
            derivatives = _logistic(cells, block, z, right, present)

        # error, weight, mixed: sums over subjects times 1, θ, θ², and the matrices themselves
        for sums, derivative in zip(cells.by_item, derivatives, strict=True):
            sums[:, block] = powers_of_ability[: len(sums)] @ derivative
        if cells.error.size:
            for matrix, derivative in zip((cells.error, cells.weight, *cells.mixed), derivatives, strict=True):
                matrix[:, block] = derivative

    # from sums times θ and θ² to sums times z and z², z = a (θ - b)
    for sums in cells.by_item:
        difficulty_sum = state.difficulty * sums[0]
        if len(sums) > 2:
            sums[2] = slope**2 * (sums[2] - state.difficulty * (2 * sums[1] - difficulty_sum))
        sums[1] = slope * (sums[1] - difficulty_sum)


def _logistic(cells: Cells, block: slice, z: Matrix, right: Matrix, present: Array | None) -> tuple[Matrix, Matrix]:
    """Sets the log likelihood Σ right z - log(1 + exp z); returns both derivatives, which share its exponential.

    With small = exp(-|z|): log(1 + exp z) = max(z, 0) + log(1 + small), and p (1 - p) = small / (1 + small)².
    """
    if present is not None:
        z *= present
    small = np.exp(-np.abs(z))  # never overflows
    if present is not None:
        small *= present
    one_plus_small = 1.0 + small

    # s: subjects, g: groups
    linear_term = np.einsum("sg,sg->g", right, z) - np.maximum(z, 0.0).sum(axis=0)
    cells.log_likelihood[block] = linear_term - _log_product(one_plus_small)

    # in place, because this is the hottest code of a fit
    chance = np.where(z > 0, 1.0, small)
    chance /= one_plus_small
    small /= one_plus_small
    small /= one_plus_small
    return right - chance, small


def _log_product(factors: Matrix) -> Groups:
    """Σ log over subjects of factors in [1, 2]: one logarithm for 1,000 of them, since 2^1000 is still a float64."""
    starts = range(0, len(factors), 1000)
    return sum(np.log(np.multiply.reduce(factors[start : start + 1000], axis=0)) for start in starts)


def _bounded(
    cells: Cells, block: slice, z: Matrix, right: Matrix, present: Array | None, state: State, asymptotes: Array
) -> tuple[Matrix, ...]:
    """With asymptotes: p = feasibility (share + (1 - share) / (1 + exp -z)), share = guess / feasibility.

    In terms of the observed response, right or wrong, its chance c is p or 1 - p, of which 1 / (1 + exp ∓z) is what z
    moves. Derivatives by the logits of asymptotes are those of (1 - feasibility) / c where wrong ("lost", 0 where
    right) and feasibility / c where right ("won", 0 where wrong).
    """
    feasibility, share = asymptotes
    missed = 1 - feasibility
    span = feasibility * (1 - share)
    unit_vector = np.ones(len(right))  # for sums over subjects
    wrong = 1.0 - right
    sign = right - wrong

    # chance of the observed response; arrays are reused, because this is hot
    z *= sign
    odds = np.exp(np.clip(z, -LARGEST, LARGEST, out=z), out=z)
    unlikely = 1.0 / (1.0 + odds)
    likely = np.multiply(odds, unlikely, out=odds)
    chance = right * (feasibility * share - missed)
    chance += missed
    chance += likely * span

    log_chance = np.log(chance)
    inverse_chance = np.divide(1.0, chance, out=chance)
    n_responses: Array | float = float(len(right))
    if present is not None:
        log_chance *= present
        inverse_chance *= present
        n_responses = unit_vector @ present
    cells.log_likelihood[block] = unit_vector @ log_chance

    # rise = span likely unlikely / c;   error = ± rise;   weight = (likely - unlikely + rise) rise
    rise = likely * unlikely
    rise *= span
    rise *= inverse_chance
    likely -= unlikely
    likely += rise
    error = np.multiply(sign, rise, out=sign)
    weight = np.multiply(likely, rise, out=likely)
    mixed = _by_asymptotes(cells, block, state, asymptotes, (right, wrong, inverse_chance, error), n_responses)
    return error, weight, *mixed


def _by_asymptotes(
    cells: Cells,
    block: slice,
    state: State,
    asymptotes: Array,
    cell_arrays: tuple[Matrix, ...],
    n_responses: Array | float,
) -> list[Matrix]:
    """Sets the derivatives by asymptotes; returns those with z. n_responses: to each item."""
    feasibility, share = asymptotes
    right, wrong, inverse_chance, error = cell_arrays
    gradient = cells.asymptote[:, block]
    curvature = cells.own[:, :, block]
    unit_vector = np.ones(len(right))  # for sums over subjects
    mixed: list[Matrix] = []

    missed = 1 - feasibility
    lost = wrong * inverse_chance
    lost *= missed
    total = unit_vector @ lost
    squares = np.einsum("sg,sg->g", lost, lost)
    if "feasibility" in LEARNED[state.model]:
        gradient[0] = n_responses * missed - total
        curvature[0, 0] = n_responses * missed * feasibility - total + squares
        mixed.append(-error * lost)
    if "guess" in LEARNED[state.model]:
        curvature[0, -1] = curvature[-1, 0] = share * (total - squares)
        won = np.multiply(right, inverse_chance, out=inverse_chance)
        won *= feasibility
        won += lost
        total = unit_vector @ won
        squares = np.einsum("sg,sg->g", won, won)
        gradient[-1] = share * (total - n_responses)
        curvature[-1, -1] = share * (share * squares - total + n_responses * (1 - share))
        won *= error
        mixed.append(np.multiply(won, share, out=won))
    return mixed
