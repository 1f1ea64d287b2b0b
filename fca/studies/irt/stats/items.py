"""Items alone: at fixed abilities each item has a separate posterior, climbed by Newton steps of separate length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError
from scipy.special import expit, logit

from fca.studies.irt.stats.likelihood import LEARNED, LOG_SLOPE_SD, Cells, Groups, Parameters, Responses, State, fill

Blocks = Float[np.ndarray, "k k groups"]

STEPS = 1000
ROUGH_STEP = 1e-4  # a step, relative to 1 + the parameter, at which an item has arrived: enough to rank modes
LONGEST_MOVE = 2.0  # of any parameter in one step
LEAST_CURVATURE = 1e-6  # of any direction, relative to the largest curvature of an item
FEASIBILITIES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97)  # of the grid of starts
GUESS_SHARES = (0.01, 0.1, 0.3, 0.6)  # guess / feasibility, of the grid of starts
N_DIFFICULTIES = 11  # of the grid of starts
SMALLEST_CHANCE = 1e-300
ITEMS_PER_BLOCK = 1000  # items at a time
SHARE_MOVING = 0.7  # share of moving items, below which the others are set aside


# Many small symmetric systems at once, one for each group of items, with the group on the last axis.
def cholesky(block: Blocks) -> Blocks:
    """Cholesky factors of many small matrices at once: for each group of items, a lower triangle L with L Lᵀ = block.

    block: symmetric matrices, k x k x groups: the last axis counts the groups, so every step below is for all of them.
    Raises LinAlgError if any block is not positive definite.

    >>> cholesky(np.array([[[4.0]]]))
    array([[[2.]]])
    """
    lower = np.zeros_like(block)
    for i in range(len(block)):
        for j in range(i + 1):
            # block_ij - Σ_k L_ik L_jk, by group (g), over the columns k < j
            remainder = block[i, j] - np.einsum("kg,kg->g", lower[i, :j], lower[j, :j])
            if i != j:
                lower[i, j] = remainder / lower[j, j]
                continue

            is_positive = remainder > 0
            if not is_positive.all():
                raise LinAlgError(f"{int((~is_positive).sum())} blocks of items are not positive")
            lower[i, i] = np.sqrt(remainder)
    return lower


def forward(lower: Blocks, right: Float[np.ndarray, "k *any groups"]) -> None:
    """Replace `right` by L⁻¹ right: solve with the lower triangles of `cholesky` by forward substitution."""
    for i in range(len(lower)):
        for j in range(i):
            right[i] -= lower[i, j] * right[j]
        right[i] /= lower[i, i]


def backward(lower: Blocks, right: Float[np.ndarray, "k *any groups"]) -> None:
    """Replace `right` by L⁻ᵀ right: solve with the transposed triangles of `cholesky` by backward substitution."""
    for i in reversed(range(len(lower))):
        for j in range(i + 1, len(lower)):
            right[i] -= lower[j, i] * right[j]
        right[i] /= lower[i, i]


def heights(state: State, cells: Cells) -> Groups:
    """Log posterior of one item of each group, given abilities and prior. cells: filled at `state`."""
    return cells.log_likelihood + state.item_prior()[0]


def own_derivatives(state: State, cells: Cells, observed: bool) -> tuple[Parameters, Blocks]:
    """Gradient and negative Hessian of each item's log posterior in the item's own parameters, at fixed abilities.

    z = a (θ - b),   dz/db = -a,   dz/d(log a) = z

    gradient by p = Σ error dz/dp,   negative Hessian by p and q = Σ (weight dz/dp dz/dq - error d²z/dp dq)

    θ is ability, b difficulty, a discrimination; p and q stand for log a or b. The sums are over subjects. Error is the
    first derivative by z of the log likelihood of a response, and weight is the second derivative with its sign
    changed. The log prior's derivatives are added.

    The k free parameters of an item are, in this order: the m learned asymptotes (feasibility, guess) as logits, log a
    (not in the 1PL), b. The gradient is k x groups, the Hessian k x k x groups.
    cells: derivatives of the log likelihood, filled at `state`. By z, summed over subjects: `by_item`. By asymptotes:
    `asymptote` (the gradient, m x groups) and `own` (the negative Hessian, m x m x groups).
    observed: True for the Hessian itself, made positive definite where it is not; False for its expectation (Fisher
    information), which is positive everywhere and exists here for models without asymptotes only.
    """
    a = state.slope
    k = len(state.item)
    m = len(cells.asymptote)
    # sums over subjects; mixed: minus the second derivative by an asymptote and z. Row 0 of each is Σ x, row 1 Σ x z,
    # row 2 (of weight alone) Σ x z²
    error, weight, *mixed = cells.by_item
    _, gradient, curvature = state.item_prior()  # derivatives of the log prior; those of the likelihood are added
    block = np.eye(k)[:, :, None] * curvature  # k x k x groups, the prior's curvature on the diagonal

    # difficulty, the last parameter: dz/db = -a
    gradient[-1] -= a * error[0]
    block[-1, -1] += a**2 * weight[0]
    if k > 1:  # log a, the last but one: dz/d(log a) = z
        gradient[-2] += error[1]
        block[-2, -2] += weight[2]
        block[-2, -1] = -a * weight[1]
        block[-1, -2] = block[-2, -1]

    # asymptotes, the first m
    gradient[:m] += cells.asymptote
    block[:m, :m] += cells.own
    for i, sums in enumerate(mixed):
        block[i, -1] = block[-1, i] = -a * sums[0]
        block[i, -2] = block[-2, i] = sums[1]

    if observed and k > 1:  # the terms - error d²z/dp dq, whose expectation is 0
        block[-2, -2] -= error[1]  # d²z/d(log a)² = z
        block[[-2, -1], [-1, -2]] += a * error[0]  # d²z/d(log a) db = -a, in both places of the symmetric block
        _make_positive(block)
    return gradient, block


def _make_positive(block: Blocks) -> None:
    """Make each block (a negative Hessian) positive definite, in place, so that a Newton step ascends.

    A block is not positive definite where the posterior of the item is not concave. Its negative eigenvalues change
    their sign, and eigenvalues near 0 are raised to LEAST_CURVATURE times the largest.
    """
    matrices = block.transpose(2, 0, 1)  # groups x k x k
    eigenvalues = np.linalg.eigvalsh(matrices)  # ascending
    is_not_positive = eigenvalues[:, 0] < LEAST_CURVATURE * eigenvalues[:, -1]
    not_positive = np.flatnonzero(is_not_positive)
    if not len(not_positive):
        return

    value, vector = np.linalg.eigh(matrices[not_positive])
    size = np.abs(value)
    smallest_allowed = LEAST_CURVATURE * size.max(axis=1, keepdims=True)
    positive_value = np.maximum(size, smallest_allowed)
    # V diag(positive_value) Vᵀ; g: groups, i and j: parameters, k: eigenvectors
    block[:, :, not_positive] = np.einsum("gik,gk,gjk->ijg", vector, positive_value, vector)


def climb(data: Responses, state: State) -> tuple[Parameters, Groups]:
    """Climb each item's log posterior by Newton steps from `state`, at fixed abilities and prior.

    Returns the parameters of each item (parameters x groups) at the mode that it reaches, and its log posterior there.
    At fixed abilities, items do not depend on each other: a step that lowers an item's posterior is halved for this
    item alone. An item has arrived when its step is small. Arrived items are set aside once they are many, to save
    work; until then they take steps like the others. `height` below is the log posterior of an item (`heights`),
    `cells` hold its likelihood and derivatives.
    """
    if not len(data.count):  # no item to climb
        return state.item, np.empty(0)

    # results of all items; every step writes the results of the items that still move
    cells = Cells.empty(data, state.model, matrices=False)  # sums over subjects suffice for steps of items
    fill(cells, data, state)
    reached_item = state.item.copy()
    reached_height = heights(state, cells)

    # the items that still move, by their positions among all
    positions = np.arange(len(reached_height))
    item = state.item
    height = reached_height.copy()
    step = _newton_step(state, cells)
    length = np.ones(len(height))  # of each item's step
    for _ in range(STEPS):
        is_moving = np.abs(length * step / (1 + np.abs(item))).max(axis=0) > ROUGH_STEP
        if not is_moving.any():
            break
        if is_moving.mean() < SHARE_MOVING:  # copying the data pays only when enough items have arrived
            positions = positions[is_moving]
            data = data.part(is_moving)
            item = item[:, is_moving]
            height = height[is_moving]
            step = step[:, is_moving]
            length = length[is_moving]
            cells = Cells.empty(data, state.model, matrices=False)

        trial = replace(state, item=item + length * step)
        fill(cells, data, trial)
        trial_height = heights(trial, cells)
        has_risen = trial_height >= height - 1e-12 * np.abs(height)  # up to rounding

        # an item that has risen takes a new step from there; any other tries half of the old step
        item = np.where(has_risen, trial.item, item)
        height = np.where(has_risen, trial_height, height)
        step = np.where(has_risen, _newton_step(trial, cells), step)
        length = np.where(has_risen, 1.0, length / 2)
        reached_item[:, positions] = item
        reached_height[positions] = height
    return reached_item, reached_height


def best_of_grid(data: Responses, state: State) -> Parameters:
    """Start of each item, for `climb`: the point of a grid over all its parameters where its posterior is highest.

    P(right) = f (s + (1 - s) / (1 + exp(-z))),   P(wrong) = (1 - f) + f (1 - s) / (1 + exp z),   z = a (θ - b)

    f is feasibility, s = guess / f, a discrimination, b difficulty and θ ability. Abilities and prior are taken from
    `state`. The points are the same for all items, so that one matrix product gives all likelihoods. An item here is a
    group of items with equal responses. Returns the parameters of the best point of each: parameters x groups.
    """
    low, high = state.ability.min(), state.ability.max()
    axes = {  # values of each free parameter, by its name in LEARNED: asymptotes are logits, "slope" is log a
        "feasibility": logit(np.array(FEASIBILITIES)),
        "guess": logit(np.array(GUESS_SHARES)),  # as a share of feasibility
        "slope": state.prior.log_slope + LOG_SLOPE_SD * np.arange(-2, 4),  # -2 to 3 prior standard deviations
        "difficulty": np.linspace(low - 1, high + 1, N_DIFFICULTIES),  # an item may be easy or hard for all subjects
    }
    axes_of_model = [axes[name] for name in LEARNED[state.model]]
    coordinates = np.meshgrid(*axes_of_model, indexing="ij")
    points = np.stack([coordinate.ravel() for coordinate in coordinates])  # parameters x points
    grid = replace(state, item=points)  # a state in which every point is an item

    # log chances of a right and of a wrong response: subjects x points
    feasibility, share = grid.asymptotes()
    z = grid.slope * (state.ability[:, None] - grid.difficulty)
    log_right = np.log(np.maximum(feasibility * (share + (1 - share) * expit(z)), SMALLEST_CHANCE))
    log_wrong = np.log(np.maximum((1 - feasibility) + feasibility * (1 - share) * expit(-z), SMALLEST_CHANCE))

    # log posterior = Σ right (log_right - log_wrong) + Σ log_wrong + prior, over the subjects with a response
    log_prior, _, _ = grid.item_prior()  # of each point; its derivatives are not needed
    best_points = np.empty(data.right.shape[1], dtype=np.intp)
    for start in range(0, len(best_points), ITEMS_PER_BLOCK):
        block = slice(start, start + ITEMS_PER_BLOCK)
        height = data.right[:, block].T @ (log_right - log_wrong) + log_prior  # groups x points
        if data.present is None:
            height += log_wrong.sum(axis=0)
        else:
            height += data.present[:, block].T.astype(float) @ log_wrong
        best_points[block] = height.argmax(axis=1)
    return grid.item[:, best_points]


def _newton_step(state: State, cells: Cells) -> Parameters:
    """Newton's step of every item at `state`, shortened so that no parameter moves by more than LONGEST_MOVE.

    cells: filled at `state`.
    """
    step, block = own_derivatives(state, cells, observed=True)  # step is the gradient, solved in place
    lower = cholesky(block)
    forward(lower, step)
    backward(lower, step)

    longest_move = np.abs(step).max(axis=0)
    return step / np.maximum(longest_move / LONGEST_MOVE, 1.0)
