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
        return 1 / (1 + np.exp(-self.row("feasibility", np.inf))), 1 / (1 + np.exp(-self.row("guess", -np.inf)))

    def item_prior(self) -> tuple[Array, Array, Array]:
        """Log density of each item's parameters; by parameter, its gradient and minus its second derivative."""
        prior, density = self.prior, np.zeros(self.item.shape[1])
        normal = {"slope": (prior.log_slope, LOG_SLOPE_SD), "difficulty": (prior.centre, prior.spread)}
        gradient, curvature = np.empty((2, *self.item.shape))
        for i, (name, value) in enumerate(zip(LEARNED[self.model], self.item, strict=True)):
            if name in ASYMPTOTES:
                term, gradient[i], curvature[i] = log_beta(value, ASYMPTOTES[name])
            else:
                mean, sd = normal[name]
                term = -((value - mean) ** 2) / (2 * sd**2) - np.log(sd)
                gradient[i], curvature[i] = -(value - mean) / sd**2, sd**-2
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

    def part(self, at: Bool[np.ndarray, " groups"] | Int[np.ndarray, " some"]) -> Responses:
        """Some of the groups, each as an item."""
        present = None if self.present is None else self.present[:, at]
        count = self.count[at]
        return Responses(self.right[:, at], present, count, np.arange(len(count)))

    def sample(self, items: int) -> tuple[Responses, Int[np.ndarray, " some"]]:
        """As many items, evenly spaced by the share of right responses, and the groups that they come from."""
        order = np.argsort(self.logits()[1], kind="stable")
        ends = np.cumsum(self.count[order])
        drawn = np.searchsorted(ends, (np.arange(items) + 0.5) * ends[-1] / items, side="right")
        at, count = np.unique(order[drawn], return_counts=True)
        return replace(self.part(at), count=count.astype(float)), at

    def logits(self) -> tuple[Subjects, Groups]:
        """Accuracy of every subject and of every group, as smoothed logits."""
        present = self.indicator
        by_subject = smoothed_logit(self.right @ self.count, present @ self.count)
        return by_subject, smoothed_logit(self.right.sum(axis=0), present.sum(axis=0))


def smoothed_logit(right: Float[np.ndarray, " n"], responses: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """log((right + .5) / (responses - right + .5)): finite where all or none are right.

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
    holes = bool(absent.any())
    right = np.where(absent, 0.0, responses) if holes else responses
    key = right.sum(axis=0).astype("<u4").view("u1").reshape(-1, 4) if one_slope else _bits(right == 1)
    if holes:
        key = np.concatenate([key, _bits(absent)], axis=1)
    words = np.ascontiguousarray(key).view(f"V{key.shape[1]}").ravel()
    _, first, group, count = np.unique(words, return_index=True, return_inverse=True, return_counts=True)
    present = ~absent[:, first] if holes else None
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
    ability, difficulty = ability / unit, -easiness / unit
    centre = float(np.average(difficulty, weights=data.count))
    spread = float(np.sqrt(np.average((difficulty - centre) ** 2, weights=data.count)))
    prior = Prior(centre, max(spread, 0.5), float(np.log(unit)))
    return _state(model, ability, difficulty, np.full(len(difficulty), np.log(unit)), prior)


def random_state(data: Responses, model: str, rng: np.random.Generator) -> State:
    """Normal draws, to try whether the mode depends on the start."""
    subjects, groups = data.right.shape
    sizes = (1, subjects), (1, groups), (LOG_SLOPE_SD, groups)
    ability, difficulty, slope = (np.asarray(rng.normal(0.0, sd, n)) for sd, n in sizes)
    return _state(model, ability, difficulty, slope, Prior())


def _state(model: str, ability: Subjects, difficulty: Groups, slope: Groups, prior: Prior) -> State:
    """Asymptotes start at the mode of their prior."""
    rows = {name: np.full(len(difficulty), np.log(up / down)) for name, (up, down) in ASYMPTOTES.items()}
    rows |= {"slope": slope, "difficulty": difficulty}
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
        subjects, groups = data.right.shape
        m, columns = max(len(LEARNED[model]) - 2, 0), groups * matrices
        by_item = tuple(np.empty((powers, groups)) for powers in (2, 3, *[2] * m))
        error, weight, *mixed = np.empty((2 + m, subjects, columns))
        of_items = np.empty(groups), by_item, np.empty((m, groups)), np.empty((m, m, groups))
        return cls(*of_items, error, weight, mixed)


def fill(cells: Cells, data: Responses, state: State) -> None:
    """One pass over all cells at `state`, into `cells`."""
    subjects, groups = data.right.shape
    width = max(BLOCK // subjects, 1)
    powers, slope, asymptotes = state.ability ** np.arange(3)[:, None], state.slope, np.stack(state.asymptotes())
    for start in range(0, groups, width):
        part = slice(start, start + width)
        z = state.ability[:, None] - state.difficulty[part]
        z *= slope[part]
        present = None if data.present is None else data.present[:, part]
        if len(cells.asymptote):
            found = _bounded(cells, part, z, data.right[:, part], present, state, asymptotes[:, part])
        else:
            found = _logistic(cells, part, z, data.right[:, part], present)
        for sums, one in zip(cells.by_item, found, strict=True):
            sums[:, part] = powers[: len(sums)] @ one
        if cells.error.size:
            for matrix, one in zip((cells.error, cells.weight, *cells.mixed), found, strict=True):
                matrix[:, part] = one
    for sums in cells.by_item:  # so far times 1, θ, θ²
        by_difficulty = state.difficulty * sums[0]
        if len(sums) > 2:
            sums[2] = slope**2 * (sums[2] - state.difficulty * (2 * sums[1] - by_difficulty))
        sums[1] = slope * (sums[1] - by_difficulty)


def _logistic(cells: Cells, part: slice, z: Matrix, right: Matrix, present: Array | None) -> tuple[Matrix, Matrix]:
    """Log likelihood Σ right z - log(1 + exp z), which shares its exponential with both derivatives."""
    if present is not None:
        z *= present
    small = np.exp(-np.abs(z))  # never overflows
    if present is not None:
        small *= present
    whole = 1.0 + small
    chosen = np.einsum("sg,sg->g", right, z) - np.maximum(z, 0.0).sum(axis=0)
    cells.log_likelihood[part] = chosen - _log_product(whole)
    solved = np.where(z > 0, 1.0, small)
    solved /= whole
    small /= whole
    small /= whole
    return right - solved, small


def _log_product(whole: Matrix) -> Groups:
    """Σ log over subjects of factors in [1, 2]: one logarithm for 1,000 of them, since 2^1000 is still a float64."""
    starts = range(0, len(whole), 1000)
    return sum(np.log(np.multiply.reduce(whole[start : start + 1000], axis=0)) for start in starts)


def _bounded(
    cells: Cells, part: slice, z: Matrix, right: Matrix, present: Array | None, state: State, asymptotes: Array
) -> tuple[Matrix, ...]:
    """With asymptotes: p = feasibility (share + (1 - share) / (1 + exp -z)), share = guess / feasibility.

    In terms of what was observed, right or wrong, its chance c is p or 1 - p, of which 1 / (1 + exp ∓z) is what z
    moves. Derivatives by the logits of asymptotes are those of (1 - feasibility) / c where wrong ("lost", 0 where
    right) and feasibility / c where right ("won", 0 where wrong).
    """
    feasibility, share = asymptotes
    missed, span, ones = 1 - feasibility, feasibility * (1 - share), np.ones(len(right))
    wrong = 1.0 - right
    sign = right - wrong
    z *= sign
    odds = np.exp(np.clip(z, -LARGEST, LARGEST, out=z), out=z)
    unlikely = 1.0 / (1.0 + odds)
    likely = np.multiply(odds, unlikely, out=odds)
    chance = right * (feasibility * share - missed)
    chance += missed
    chance += likely * span
    log, inverse, number = np.log(chance), np.divide(1.0, chance, out=chance), float(len(right))
    if present is not None:
        log *= present
        inverse *= present
        number = ones @ present
    cells.log_likelihood[part] = ones @ log
    rise = likely * unlikely
    rise *= span
    rise *= inverse
    likely -= unlikely
    likely += rise
    error, weight = np.multiply(sign, rise, out=sign), np.multiply(likely, rise, out=likely)
    return error, weight, *_by_asymptotes(cells, part, state, asymptotes, (right, wrong, inverse, error), number)


def _by_asymptotes(
    cells: Cells, part: slice, state: State, asymptotes: Array, of_cells: tuple[Matrix, ...], number: Array | float
) -> list[Matrix]:
    """Sets the derivatives by asymptotes; returns those with z. number: of responses to each item."""
    (feasibility, share), (right, wrong, inverse, error) = asymptotes, of_cells
    gradient, own, ones, mixed = cells.asymptote[:, part], cells.own[:, :, part], np.ones(len(right)), list[Matrix]()
    missed = 1 - feasibility
    lost = wrong * inverse
    lost *= missed
    total, squares = ones @ lost, np.einsum("sg,sg->g", lost, lost)
    if "feasibility" in LEARNED[state.model]:
        gradient[0] = number * missed - total
        own[0, 0] = number * missed * feasibility - total + squares
        mixed.append(-error * lost)
    if "guess" in LEARNED[state.model]:
        own[0, -1] = own[-1, 0] = share * (total - squares)
        won = np.multiply(right, inverse, out=inverse)
        won *= feasibility
        won += lost
        total, squares = ones @ won, np.einsum("sg,sg->g", won, won)
        gradient[-1] = share * (total - number)
        own[-1, -1] = share * (share * squares - total + number * (1 - share))
        won *= error
        mixed.append(np.multiply(won, share, out=won))
    return mixed
