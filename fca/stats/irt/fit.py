"""Fitting item response models to who answered what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

from fca.stats.irt.model import IrtFit, check_answered, check_responses, has_feasibility, model_name
from fca.stats.irt.solve import (
    LEARNED,
    Answers,
    Mode,
    State,
    backward,
    derivatives,
    eliminate,
    find_mode,
    item_prior,
    prepare,
)
from fca.stats.irt.start import first_state, random_state, smoothed_logit
from fca.types import FcaError

# A second look at items that asymptotes give two modes: hard for all, or impossible for some whoever asks.


ROUNDS = 5
BETTER = 1e-6  # nats by which another mode of an item must be higher


def find_best_mode(answers: Answers, start: State) -> Mode:
    """The mode reached from `start`, and from there the best of what each item has when it is begun anew.

    With abilities and prior held, items do not depend on each other, so that each takes the highest of its own modes;
    then all move together again. Ends when no item changes. Models without an upper asymptote need no second look.
    """
    mode = find_mode(answers, start)
    if not has_feasibility(start.model):
        return mode
    for _ in range(ROUNDS):
        best, height = mode.state.item.copy(), _heights(mode)
        changed = np.zeros(len(height), dtype=bool)
        for item in _beginnings(answers, mode.state):
            other = find_mode(answers, replace(mode.state, item=item), fixed_ability=True, fixed_prior=True)
            better = _heights(other) > height + BETTER
            best[:, better], height = other.state.item[:, better], np.maximum(height, _heights(other))
            changed |= better
        if not changed.any():
            break
        again = find_mode(answers, replace(mode.state, item=best))
        mode = replace(again, iterations=mode.iterations + again.iterations)
    return mode


def _heights(mode: Mode) -> Float[np.ndarray, " groups"]:
    return np.asarray(mode.cells.log_likelihood + item_prior(mode.state)[0])


def _beginnings(answers: Answers, state: State) -> tuple[Float[np.ndarray, "k groups"], Float[np.ndarray, "k groups"]]:
    """Easy but rarely feasible: solved in as many cases as it can be. And always feasible, but hard."""
    asked = np.ones_like(answers.right) if answers.asked is None else answers.asked.astype(float)
    logit = smoothed_logit(answers.right.sum(axis=0), asked.sum(axis=0))
    rarely, hard = state.item.copy(), state.item.copy()
    upper = LEARNED[state.model].index("feasibility")
    rarely[upper], rarely[-1] = logit, state.prior.centre - state.prior.spread
    hard[upper], hard[-1] = 3.0, np.maximum(-logit / np.exp(state.prior.log_slope), state.prior.centre)
    for item in (rarely, hard):
        item[-2] = state.prior.log_slope
    return rarely, hard


def fit_irt(
    responses: Float[np.ndarray, "subjects items"],
    model: str = "2pl",
    *,
    start: np.random.Generator | None = None,
    compat: str | None = None,
    seed: int = 0,
) -> IrtFit:
    """Abilities of subjects and parameters of items that explain who is right on what.

    P(right) = guess + (feasibility - guess) / (1 + exp(-discrimination (ability - difficulty)))

    responses: 1 right, 0 wrong, NaN not asked; up to nine in ten may be NaN.
    model:     1pl (difficulty alone), 2pl (and discrimination), 3pl (and guess), 3pl-upper (2pl and feasibility; Sharma
               et al. 2023, eq. 3, who call it 4PL: alias 4pl-feasibility), 4pl (all).
    start:     begin at random instead: only to see that the result does not depend on it.
    compat:    "seed001" fits as Sharma et al. (2023) released it, by variational inference; only it uses `seed`.

    The mode of the joint posterior, with θ ~ N(0, 1), b ~ N(m, s²), m ~ N(0, 5²), log a ~ N(n, 0.5²), feasibility ~
    Beta(5, 1) and guess / feasibility ~ Beta(1, 9), both as densities of logits, which keeps modes off the bounds. The
    scales s and n are not taken at the mode, where the joint posterior is infinite (all b equal; a unit of ability that
    goes to 0): s² is the mean of E[(b - m)²] under Laplace's approximation (an EM step, with a half-normal prior of
    scale 3 and a floor of 0.1), and n is such that the mean of E[θ²] over subjects is 1. In the 1pl a is 1 and ability
    in logits. With an upper asymptote single items have two modes; each is begun twice more, and the higher one kept.
    Deterministic. Raises FcaError for answers that cannot be fitted (`check_responses`).

    >>> fit = fit_irt(np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 0]], dtype=float), "1pl")
    >>> bool((np.diff(fit.ability) < 0).all()), fit.converged
    (True, True)
    """
    name = model_name(model)
    check_responses(responses)
    if compat == "seed001":
        from fca.stats.irt.variational import fit_variational

        return fit_variational(responses, name, seed=seed)
    if compat is not None:
        raise FcaError("compat", repr(compat), "seed001, or none", "leave it out for the mode of the posterior")
    answers = prepare(responses, one_slope=name == "1pl")
    first = first_state(answers, name) if start is None else random_state(answers, name, start)
    return as_fit(find_best_mode(answers, first), answers)


def fit_items(
    responses: Float[np.ndarray, "subjects items"], ability: Float[np.ndarray, " subjects"], model: str = "2pl"
) -> IrtFit:
    """Items fitted while abilities stay as they are, as of the same images at another severity: one scale for all.

    Priors of items are learned from these items alone; standard errors take abilities as known (theirs are 0).

    >>> responses = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 0]], dtype=float)
    >>> fit_items(responses, np.array([1.0, 0.0, -1.0]), "1pl").ability
    array([ 1.,  0., -1.])
    """
    name = model_name(model)
    check_answered(responses)
    if not np.isfinite(ability).all():
        position = int(np.flatnonzero(~np.isfinite(ability))[0])
        raise FcaError(
            f"ability of subject {position}", ability[position], "a finite number", "leave such subjects out"
        )
    answers = prepare(responses, one_slope=name == "1pl")
    first = first_state(answers, name)
    mode = find_mode(answers, replace(first, ability=ability.astype(float)), fixed_ability=True)
    return as_fit(mode, answers, fixed_ability=True)


def as_fit(mode: Mode, answers: Answers, fixed_ability: bool = False) -> IrtFit:
    """Names for the solver's arrays, with standard errors, one line an item again."""
    state, group = mode.state, answers.group
    ability_se, item_se = standard_errors(mode, answers, fixed_ability)
    slope_se = state.slope * item_se[-2] if len(item_se) > 1 else np.zeros(state.item.shape[1])
    feasibility, share = state.asymptotes()
    alike = _alike(answers) if state.model == "1pl" and not fixed_ability else slice(None)
    return IrtFit(
        model=state.model,
        ability=state.ability[alike],
        ability_se=ability_se[alike],
        difficulty=state.difficulty[group],
        difficulty_se=item_se[-1][group],
        discrimination=state.slope[group],
        discrimination_se=slope_se[group],
        feasibility=feasibility[group],
        guess=(feasibility * share)[group],
        log_posterior=mode.log_posterior,
        iterations=mode.iterations,
        converged=mode.converged,
    )


def _alike(answers: Answers) -> Int[np.ndarray, " subjects"]:
    """For each subject the first one with as many right answers on the same items: in the 1PL exactly as able.

    Sums in another order differ by rounding; subjects that are tied must stay tied.
    """
    totals = np.round(answers.right @ answers.count).astype(np.int64)
    rows = totals[:, None] if answers.asked is None else np.column_stack([totals, np.packbits(answers.asked, axis=1)])
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[group])


def standard_errors(
    mode: Mode, answers: Answers, fixed_ability: bool
) -> tuple[Float[np.ndarray, " subjects"], Float[np.ndarray, "k groups"]]:
    """Laplace: roots of the diagonal of the inverse negative Hessian in all abilities and items, given the prior.

    With S the Schur complement of the items, S⁻¹ is the covariance of abilities and B⁻¹ + B⁻¹ C S⁻¹ Cᵀ B⁻¹ that of an
    item with block B and crosses C.
    """
    small = eliminate(derivatives(mode.state, mode.cells, answers.count, observed=True), answers.count)
    subjects, k = len(mode.state.ability), len(small.half_item)
    inverse = np.zeros((k, k, small.half_item.shape[1]))
    inverse[np.arange(k), np.arange(k)] = 1.0
    backward(small.lower, inverse)  # L⁻ᵀ
    own = np.einsum("klg,klg->kg", inverse, inverse)
    if fixed_ability:
        return np.zeros(subjects), np.sqrt(own)
    covariance = cho_solve(cho_factor(small.complement[:-1, :-1]), np.eye(subjects))
    half = np.linalg.cholesky(covariance).T
    backward(small.lower, small.half_cross)
    shared = [np.einsum("sg,sg->g", spread, spread) for spread in (half @ cross[:-1] for cross in small.half_cross)]
    return np.sqrt(np.diag(covariance)), np.sqrt(own + np.stack(shared))
