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
    """Log density of the logit of p ~ Beta(u, d), up to a constant; its gradient; minus its second derivative.

    density(logit p) = p^u (1 - p)^d

    It is the prior of an asymptote p. The density is one of the logit, not of p, because its mode, p = u / (u + d), is
    then inside (0, 1). The density of p itself can have its mode at a bound: Beta(5, 1) is highest at 1.
    logit: of p, one value for each item.
    shape: (u, d).

    >>> log_beta(np.array([np.log(5.0)]), (5.0, 1.0))[1].round(12)
    array([0.])
    """
    up, down = shape
    p, q = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(logit))  # q = 1 - p, exact where p is nearly 1
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
    """A point in parameter space: abilities, free parameters of items, and the learned numbers of the prior.

    item: one column for each group of items; its rows are the parameters that `LEARNED` lists for the model. "slope" is
    the log discrimination, "feasibility" a logit, and "guess" the logit of guess / feasibility.
    Learning guess as a share of feasibility keeps it below feasibility: less able subjects never do better on an item.
    """

    model: str
    ability: Subjects
    item: Parameters
    prior: Prior

    def row(self, name: str, fixed: float) -> Groups:
        """A free parameter of every item, by its name in `LEARNED`; `fixed` for all if the model does not learn it."""
        names = LEARNED[self.model]
        return self.item[names.index(name)] if name in names else np.full(self.item.shape[1], fixed)

    @property
    def difficulty(self) -> Groups:
        """Difficulty of every item."""
        return self.item[-1]

    @property
    def slope(self) -> Groups:
        """Discrimination of every item."""
        return np.exp(self.row("slope", 0.0))

    def asymptotes(self) -> tuple[Groups, Groups]:
        """Feasibility of every item, and its guess as a share of the feasibility; 1 and 0 where not learned."""
        feasibility = 1 / (1 + np.exp(-self.row("feasibility", np.inf)))  # a logit of infinity is 1
        share = 1 / (1 + np.exp(-self.row("guess", -np.inf)))
        return feasibility, share

    def item_prior(self) -> tuple[Array, Array, Array]:
        """Log prior density of each item's free parameters, its gradient, and minus its second derivative.

        The log density is one number for each group of items; the derivatives are parameters x groups. Difficulty and
        log discrimination have normal priors. Asymptotes have Beta priors, as densities of their logits (`log_beta`).
        """
        # the parameter named slope is log discrimination
        mean_of = {"slope": self.prior.log_slope, "difficulty": self.prior.centre}
        sd_of = {"slope": LOG_SLOPE_SD, "difficulty": self.prior.spread}
        log_density = np.zeros(self.item.shape[1])
        gradient, curvature = np.empty((2, *self.item.shape))
        for i, (name, value) in enumerate(zip(LEARNED[self.model], self.item, strict=True)):
            if name in ASYMPTOTES:
                parameter_log_density, gradient[i], curvature[i] = log_beta(value, ASYMPTOTES[name])
            else:
                mean, sd = mean_of[name], sd_of[name]
                parameter_log_density = -((value - mean) ** 2) / (2 * sd**2) - np.log(sd)
                gradient[i] = -(value - mean) / sd**2
                curvature[i] = sd**-2
            log_density += parameter_log_density
        return log_density, gradient, curvature


@dataclass(frozen=True)
class Responses:
    """The whole input of the likelihood; items with the same responses form a group, which is fitted as one item.

    right:   share of right responses of each subject among the items of a group; 0 where missing.
    present: which cells (pairs of subject and group) hold a response; None when all do.
    count:   items in each group, which is how often the group counts.    group: the group of each item.
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
        """The responses to the selected groups alone, by a mask or by positions; each counts as often as before.

        The result stands for groups only: its field `group` numbers them, as if each were a single item.
        """
        present = None if self.present is None else self.present[:, selection]
        count = self.count[selection]
        return Responses(self.right[:, selection], present, count, np.arange(len(count)))

    def sample(self, items: int) -> tuple[Responses, Int[np.ndarray, " some"]]:
        """Responses to a sample of `items` items, spread evenly from the hardest to the easiest.

        Also returns the positions of the groups that the sampled items come from. In the sample, the count of a group
        is the number of its items that were sampled. No random draws are involved.
        """
        _, easiness = self.logits()  # of each group: logit of its share of right responses
        hardest_first = np.argsort(easiness, kind="stable")

        # in the list of all items by easiness, a group of n items takes n places
        end_of_group = np.cumsum(self.count[hardest_first])
        n_items = end_of_group[-1]
        sampled_places = (np.arange(items) + 0.5) * n_items / items
        group_ranks = np.searchsorted(end_of_group, sampled_places, side="right")  # the group at each place

        groups, count = np.unique(hardest_first[group_ranks], return_counts=True)
        sampled = replace(self.part(groups), count=count.astype(float))
        return sampled, groups

    def logits(self) -> tuple[Subjects, Groups]:
        """Smoothed logits of each subject's share of right responses, and of each group's share (its easiness)."""
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
    """Group the items that must get equal parameters, so that each group is fitted once; the estimates do not change.

    Items with the same responses have the same posterior. With one slope for all (1PL), items need only have responses
    of the same subjects and equally many right ones: this number is sufficient for the difficulty (Rasch 1960), and a
    subject's responses enter its likelihood only as their sum. The responses of such a group are the items' mean.

    responses: 1 right, 0 wrong, NaN missing.
    one_slope: whether the model is the 1PL.

    >>> prepare(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).count
    array([1., 2.])
    """
    absent = np.isnan(responses)
    has_absent = bool(absent.any())
    right = np.where(absent, 0.0, responses) if has_absent else responses

    # a key of bytes for each item (items x bytes); items with the same key are one group
    if one_slope:
        key = right.sum(axis=0).astype("<u4").view("u1").reshape(-1, 4)  # the four bytes of the number right
    else:
        key = _pack_bits(right == 1)
    if has_absent:
        key = np.concatenate([key, _pack_bits(absent)], axis=1)
    words = np.ascontiguousarray(key).view(f"V{key.shape[1]}").ravel()  # one value an item, which np.unique can sort
    _, first_item, group, count = np.unique(words, return_index=True, return_inverse=True, return_counts=True)

    present = ~absent[:, first_item] if has_absent else None
    if one_slope:  # mean response of each subject to the items of a group, which can differ in their responses
        items_by_group = np.argsort(group, kind="stable")
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        right_of_group = np.add.reduceat(right[:, items_by_group], starts, axis=1) / count
    else:
        right_of_group = np.ascontiguousarray(right[:, first_item], dtype=np.float64)
    return Responses(right_of_group, present, count.astype(float), group)


def _pack_bits(cells: Bool[np.ndarray, "subjects items"]) -> Array:
    """The truth values of each item packed into bytes, eight subjects a byte: items x bytes."""
    return np.packbits(cells, axis=0).T


def first_state(data: Responses, model: str) -> State:
    """Where a fit starts: abilities and difficulties computed directly from the shares of right responses.

    Abilities are the logits of the subjects' accuracies, standardised (in the 1PL only centred, as its unit is a
    logit). Difficulties are minus the logits of the items' shares of right responses, in the same unit. All slopes are
    equal; asymptotes start at the mode of their prior.
    """
    accuracy_logit, easiness = data.logits()  # of each subject's and of each group's share of right responses
    accuracy_logit -= accuracy_logit.mean()
    # the unit of ability, in logits; it is never near 0, even if all subjects have nearly equal accuracies
    unit = 1.0 if model == "1pl" else max(float(accuracy_logit.std()), 0.1)
    ability = accuracy_logit / unit
    difficulty = -easiness / unit

    # start of the prior: b ~ N(centre, spread²), and log a around log unit, so that z = a (θ - b) is in logits
    centre = float(np.average(difficulty, weights=data.count))
    spread = float(np.sqrt(np.average((difficulty - centre) ** 2, weights=data.count)))
    spread = max(spread, 0.5)  # never near 0, even if all items are nearly equally hard
    prior = Prior(centre=centre, spread=spread, log_slope=float(np.log(unit)))
    log_slope = np.full(len(difficulty), np.log(unit))
    return _state_with_asymptotes(model, ability, difficulty, log_slope, prior)


def random_state(data: Responses, model: str, rng: np.random.Generator) -> State:
    """A start of normal draws for abilities and items, to check whether the mode depends on the start."""
    subjects, groups = data.right.shape
    ability = np.asarray(rng.normal(0.0, 1, subjects))
    difficulty = np.asarray(rng.normal(0.0, 1, groups))
    log_slope = np.asarray(rng.normal(0.0, LOG_SLOPE_SD, groups))
    return _state_with_asymptotes(model, ability, difficulty, log_slope, Prior())


def _state_with_asymptotes(model: str, ability: Subjects, difficulty: Groups, log_slope: Groups, prior: Prior) -> State:
    """A state of these values; the asymptotes that the model learns are set to the mode of their prior."""
    value_by_name = {name: np.full(len(difficulty), np.log(up / down)) for name, (up, down) in ASYMPTOTES.items()}
    value_by_name["slope"] = log_slope
    value_by_name["difficulty"] = difficulty
    return State(model, ability, np.stack([value_by_name[name] for name in LEARNED[model]]), prior)


# The dense work, once a step: every subject on every item, in blocks of items that stay in the processor's cache.
BLOCK = 1 << 15  # cells at a time: a quarter of a megabyte an array
LARGEST = 690.0  # |z|, beyond which exp(z) or its inverse is no float64


@dataclass(frozen=True)
class Cells:
    """Log likelihood and its derivatives from one pass over all cells (pairs of a subject and a group of items).

    log_likelihood: of one item of each group.
    error:  derivative of a cell's log likelihood by z = a (θ - b); right - p without asymptotes.
    weight: minus its second derivative by z; p (1 - p) without asymptotes.
    For the m asymptotes that are learned, as logits:
    asymptote: gradient by them.
    own: minus second derivatives by each two of them.
    mixed: minus second derivatives of each cell by an asymptote and z, one matrix for each asymptote.
    by_item: sums over subjects of error, weight and each mixed matrix, times 1 and z, for weight also times z².

    The matrices error, weight and mixed are 0 where a response is missing. They have no columns where only items move,
    because only steps in abilities need them.
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
        """Arrays of the right shapes for the log likelihood and its derivatives, whose values `fill` sets later.

        matrices: False leaves out the arrays of subjects x groups, which only steps in abilities need; only their sums
        over subjects (`by_item`) remain.
        """
        subjects, groups = data.right.shape
        m = max(len(LEARNED[model]) - 2, 0)  # asymptotes: parameters beyond slope and difficulty; 1PL has no slope
        columns = groups if matrices else 0
        powers_by_matrix = (2, 3, *[2] * m)  # of z: 1 and z for error and mixed; 1, z and z² for weight
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
    """Set all arrays of `cells` at `state`: the log likelihood of the responses and its derivatives.

    A cell is a pair of a subject and a group of items. The derivatives of its log likelihood by z = a (θ - b), with θ
    ability, a discrimination and b difficulty, are error (the first), weight (minus the second), and for models with
    asymptotes mixed (minus the second by an asymptote and z). `cells.by_item` has their sums over subjects, times 1 and
    z, for weight also times z². The work is done in blocks of groups, which stay in the processor's cache.
    """
    subjects, groups = data.right.shape
    width = max(BLOCK // subjects, 1)  # groups in a block
    powers_of_ability = state.ability ** np.arange(3)[:, None]  # 1, θ, θ²: powers x subjects
    slope = state.slope
    asymptotes = np.stack(state.asymptotes())
    learns_asymptotes = len(cells.asymptote) > 0  # it has a row for each learned asymptote
    for start in range(0, groups, width):
        block = slice(start, start + width)
        z = state.ability[:, None] - state.difficulty[block]
        z *= slope[block]
        right = data.right[:, block]
        present = None if data.present is None else data.present[:, block]
        if learns_asymptotes:
            derivatives = _fill_with_asymptotes(cells, block, z, right, present, state, asymptotes[:, block])
        else:
            derivatives = _fill_without_asymptotes(cells, block, z, right, present)

        # sums over subjects of error, weight and mixed, times 1, θ and for weight θ²: rows x groups
        for sums, derivative in zip(cells.by_item, derivatives, strict=True):
            sums[:, block] = powers_of_ability[: len(sums)] @ derivative
        if cells.error.size:  # the matrices themselves are wanted, for steps in abilities
            for matrix, derivative in zip((cells.error, cells.weight, *cells.mixed), derivatives, strict=True):
                matrix[:, block] = derivative

    # from sums with powers of θ to sums with powers of z, where x is error, weight or mixed:
    # Σ xz = a (Σ xθ - b Σ x) and Σ xz² = a² (Σ xθ² - 2b Σ xθ + b² Σ x)
    for sums in cells.by_item:
        difficulty_sum = state.difficulty * sums[0]  # b Σ x
        if len(sums) > 2:  # of weight; row 2 needs Σ xθ, which row 1 holds until the next line changes it
            sums[2] = slope**2 * (sums[2] - state.difficulty * (2 * sums[1] - difficulty_sum))
        sums[1] = slope * (sums[1] - difficulty_sum)


def _fill_without_asymptotes(
    cells: Cells, block: slice, z: Matrix, right: Matrix, present: Array | None
) -> tuple[Matrix, Matrix]:
    """For a model without asymptotes, set a block's log likelihood; return error and weight of each cell of the block.

    log likelihood = Σ right z - log(1 + exp z),   error = right - p,   weight = p (1 - p),   p = 1 / (1 + exp -z)

    All three need one exponential, small = exp(-|z|): log(1 + exp z) = max(z, 0) + log(1 + small), and
    p (1 - p) = small / (1 + small)². Error and weight are first and minus second derivative of a cell's log likelihood
    by z, and 0 where a response is missing.
    z: a (θ - b) of each cell, overwritten.
    right: 1 or 0, and 0 where missing.
    present: None if none is missing.
    """
    if present is not None:  # z = small = 0 where missing: such a cell then adds 0 to everything
        z *= present
    small = np.exp(-np.abs(z))  # never overflows
    if present is not None:
        small *= present
    one_plus_small = 1.0 + small

    # s: subjects, g: groups
    linear_term = np.einsum("sg,sg->g", right, z) - np.maximum(z, 0.0).sum(axis=0)
    cells.log_likelihood[block] = linear_term - _sum_logs(one_plus_small)  # Σ log(1 + small) over subjects

    # in place, because this is the hottest code of a fit
    chance = np.where(z > 0, 1.0, small)  # p = 1 / (1 + small) or small / (1 + small); 0 where missing
    chance /= one_plus_small
    small /= one_plus_small
    small /= one_plus_small
    return right - chance, small


def _sum_logs(factors: Matrix) -> Groups:
    """Σ log over subjects of factors in [1, 2]: one logarithm for 1,000 of them, since 2^1000 is still a float64."""
    starts = range(0, len(factors), 1000)
    return sum(np.log(np.multiply.reduce(factors[start : start + 1000], axis=0)) for start in starts)


def _fill_with_asymptotes(
    cells: Cells, block: slice, z: Matrix, right: Matrix, present: Array | None, state: State, asymptotes: Array
) -> tuple[Matrix, ...]:
    """For a model with asymptotes, set a block's log likelihood and its derivatives by asymptotes; return those by z.

    p = feasibility (share + (1 - share) / (1 + exp -z)),   share = guess / feasibility
    c = p where the response is right, 1 - p where it is wrong: the chance of the observed response

    Returns matrices of subjects x groups of the block, 0 where a response is missing: error and weight (first and minus
    second derivative of log c by z), and for each learned asymptote minus the mixed derivative by its logit and z.
    z: a (θ - b) of each cell, overwritten.
    right: 1 or 0, and 0 where missing.
    present: None if none is missing.
    asymptotes: feasibility and share of each group of the block.
    """
    feasibility, share = asymptotes
    infeasible = 1 - feasibility
    span = feasibility * (1 - share)
    unit_vector = np.ones(len(right))  # for sums over subjects
    wrong = 1.0 - right
    sign = right - wrong  # 1 right, -1 wrong

    # likely: what the logistic function alone gives for the observed response, 1 / (1 + exp -z) where right and
    # 1 / (1 + exp z) where wrong; unlikely = 1 - likely. Memory of arrays is reused, because this code is hot
    z *= sign
    odds = np.exp(np.clip(z, -LARGEST, LARGEST, out=z), out=z)  # clipped, so that it is finite and above 0
    unlikely = 1.0 / (1.0 + odds)
    likely = np.multiply(odds, unlikely, out=odds)

    # c = feasibility share + span likely where right, (1 - feasibility) + span likely where wrong
    chance = right * (feasibility * share - infeasible)
    chance += infeasible
    chance += likely * span

    log_chance = np.log(chance)
    inverse_chance = np.divide(1.0, chance, out=chance)
    n_responses: Array | float = float(len(right))  # to each item
    if present is not None:  # a missing response adds 0 to the likelihood and, by 1 / c = 0, to all derivatives
        log_chance *= present
        inverse_chance *= present
        n_responses = unit_vector @ present
    cells.log_likelihood[block] = unit_vector @ log_chance

    # derivatives of log c by z: error = rise where right, -rise where wrong;   weight = (likely - unlikely + rise) rise
    # with rise = span likely unlikely / c
    rise = likely * unlikely
    rise *= span
    rise *= inverse_chance
    error = np.multiply(sign, rise, out=sign)
    likely -= unlikely
    likely += rise
    weight = np.multiply(likely, rise, out=likely)  # `likely` now is likely - unlikely + rise
    mixed = _fill_asymptotes(cells, block, state, asymptotes, (right, wrong, inverse_chance, error), n_responses)
    return error, weight, *mixed


def _fill_asymptotes(
    cells: Cells,
    block: slice,
    state: State,
    asymptotes: Array,
    cell_arrays: tuple[Matrix, ...],
    n_responses: Array | float,
) -> list[Matrix]:
    """Set a block's derivatives by the logits of the learned asymptotes; return each cell's mixed derivatives with z.

    With f = feasibility, s = share = guess / f, and c the chance of the observed response:

    lost = (1 - f) / c where the response is wrong, 0 where it is right
    won  = (1 - f) / c where the response is wrong, f / c where it is right

    That is, lost is the probability that a wrong response came from infeasibility, and won is the chance of the
    response at s = 1, where everyone is right with probability f, over its chance c.

    The derivatives of the log likelihood, Σ log c over the n responses to an item, are:

    by logit f:   gradient Σ (1 - f - lost),   minus second derivative Σ ((1 - f) f - lost + lost²)
    by logit s:   gradient Σ s (won - 1),   minus second derivative Σ s (s won² - won + 1 - s)
    by both:      minus second derivative Σ s (lost - lost²)
    with z:       minus second derivative of log c of each cell: -error lost for f, s error won for s

    Gradients are written to `cells.asymptote`, minus second derivatives by two asymptotes to `cells.own`. Among the
    learned asymptotes f is the first and s the last; each may be the only one.
    asymptotes: f and s of each group of the block.
    cell_arrays: right and wrong (1 or 0), 1 / c (0 where missing; overwritten), and error (derivative of log c by z).
    n_responses: n of each item, or one number for all.
    """
    feasibility, share = asymptotes
    right, wrong, inverse_chance, error = cell_arrays
    gradient = cells.asymptote[:, block]
    curvature = cells.own[:, :, block]
    unit_vector = np.ones(len(right))  # for sums over subjects
    mixed: list[Matrix] = []

    infeasible = 1 - feasibility
    lost = wrong * inverse_chance
    lost *= infeasible
    total = unit_vector @ lost
    squares = np.einsum("sg,sg->g", lost, lost)
    if "feasibility" in LEARNED[state.model]:
        gradient[0] = n_responses * infeasible - total
        curvature[0, 0] = n_responses * infeasible * feasibility - total + squares
        mixed.append(-error * lost)
    if "guess" in LEARNED[state.model]:
        # by both f and s, from the sums of `lost`. If s is learned alone, [0, -1] is the same element as [-1, -1]; the
        # assignment to [-1, -1] below then replaces this value
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
