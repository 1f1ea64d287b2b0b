"""Abilities of subjects and parameters of items fitted jointly, or items alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from fca.studies.irt.stats.likelihood import Responses, first_state, prepare, random_state
from fca.studies.irt.stats.model import IrtFit, Matrix, check_answered, check_responses, model_name
from fca.studies.irt.stats.solve import Mode, find_estimable_mode, standard_errors
from fca.studies.irt.stats.variational import fit_variational
from fca.types import FcaError


def fit_irt(
    responses: Matrix,
    model: str = "2pl",
    *,
    start: np.random.Generator | None = None,
    compat: str | None = None,
    seed: int = 0,
) -> IrtFit:
    """Fit abilities of subjects and parameters of items that explain which responses are right.

    P(right) = guess + (feasibility - guess) / (1 + exp(-discrimination (ability - difficulty)))

    Below, θ is ability, b difficulty and a discrimination.

    responses: 1 right, 0 wrong, NaN missing; up to nine in ten may be NaN.
    model:     1pl (difficulty alone), 2pl (and discrimination), 3pl (and guess), 3pl-upper (2pl and feasibility; Sharma
               et al. 2023, eq. 3, who call it 4PL: alias 4pl-feasibility), 4pl (all).
    start:     random numbers for a random start, to check that the result does not depend on the start; None: start at
               logits of the shares of right responses.
    compat:    "seed001" fits by variational inference, as Sharma et al. (2023) do, with two additions without which all
               items get nearly one discrimination (docs/adr/0024); only it uses `seed`.

    The fit is the mode of the joint posterior, with θ ~ N(0, 1), b ~ N(m, s²), m ~ N(0, 5²), log a ~ N(n, 0.5²),
    feasibility ~ Beta(5, 1) and guess / feasibility ~ Beta(1, 9). Both Betas are densities of logits, which keeps modes
    off the bounds. In the 1pl a is 1 and ability is in logits.

    Two scales are learned: s, the spread of difficulty, and exp(n), the spread of ability in logits (not in the 1pl).
    They are not taken at the mode, because the joint posterior is infinite where all b are equal or the unit of ability
    goes to 0. EM steps under Laplace's approximation learn them: s² as the mean of E[(b - m)²] over items (with a
    half-normal prior of scale 3 on s, and a floor of 0.1), n such that the mean of E[θ²] over subjects is 1, as the
    prior of θ has it.

    The spread of difficulty is not estimable if it falls to its floor. A scale below 0.5, and any scale of a fit that
    did not converge, is not estimable either unless it exceeds what chance gives (two standard errors of a variance
    learned from values that do not differ). The name of a scale that is not estimable is in `not_estimable`; s = 1
    or n = 0 is taken instead, and standard errors are those under this prior (docs/adr/0043).

    With an upper asymptote an item can have two modes, so each item is started several times and keeps its highest.
    The result is deterministic. Raises FcaError for responses that cannot be fitted (`check_responses`), and for an
    unknown model or compat.

    >>> fit = fit_irt(np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 0]], dtype=float), "1pl")
    >>> bool((np.diff(fit.ability) < 0).all()), fit.converged
    (True, True)
    """
    if compat == "seed001":
        return fit_variational(responses, model, seed=seed)
    if compat is not None:
        raise FcaError("compat", repr(compat), "seed001, or none", "leave it out for the mode of the posterior")
    name = model_name(model)
    check_responses(responses)
    data = prepare(responses, one_slope=name == "1pl")
    first = first_state(data, name) if start is None else random_state(data, name, start)
    return as_fit(find_estimable_mode(data, first), data)


def fit_items(responses: Matrix, ability: Float[np.ndarray, " subjects"], model: str = "2pl") -> IrtFit:
    """Fit items with abilities held fixed, for example the same images at another severity, to put all on one scale.

    Priors of items are learned from these items alone. Standard errors of items take abilities as known; standard
    errors of abilities are 0.
    responses, model: as in `fit_irt`. Raises FcaError for a subject or an item without any response, for values other
    than 0, 1 and NaN, and for an ability that is not finite.

    >>> responses = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 0]], dtype=float)
    >>> fit_items(responses, np.array([1.0, 0.0, -1.0]), "1pl").ability
    array([ 1.,  0., -1.])
    """
    name = model_name(model)
    check_answered(responses)
    for subject in np.flatnonzero(~np.isfinite(ability)):
        raise FcaError(f"ability of subject {subject}", ability[subject], "a finite number", "leave such subjects out")
    data = prepare(responses, one_slope=name == "1pl")
    first = replace(first_state(data, name), ability=ability.astype(float))
    return as_fit(find_estimable_mode(data, first, fixed_ability=True), data, fixed_ability=True)


def as_fit(mode: Mode, data: Responses, fixed_ability: bool = False) -> IrtFit:
    """The fit that users see: the solver's mode with standard errors, item by item instead of group by group.

    The solver fits items with equal responses as one group; each item gets the values of its group (`data.group`, the
    group of each item). A scale of the prior that the solver did not learn is named in `not_estimable`.
    fixed_ability: whether abilities were held fixed; their standard errors then are 0.
    """
    state = mode.state
    group = data.group
    ability_se, item_se = standard_errors(mode, data, fixed_ability)  # item_se: parameters x groups
    # the parameters of a group end with log discrimination and difficulty; the 1pl has difficulty alone
    difficulty_se = item_se[-1]
    if len(item_se) > 1:  # se(a) = a se(log a)
        slope_se = state.slope * item_se[-2]
    else:  # 1pl: discrimination is 1, not learned
        slope_se = np.zeros(state.item.shape[1])
    feasibility, guess_share = state.asymptotes()  # the solver learns guess / feasibility
    guess = feasibility * guess_share

    ability = state.ability
    if state.model == "1pl" and not fixed_ability:
        # equally many right responses to the same items give equal abilities. Rounding must not make them different,
        # so each subject gets the ability of the first subject that is tied with it
        first_tied_subject = _first_tied_subjects(data)
        ability = ability[first_tied_subject]
        ability_se = ability_se[first_tied_subject]

    # `learning` has a flag for each scale of the prior: whether it was learned. The mean log discrimination (`slope`)
    # stands for the spread of ability, unless abilities are held fixed and have their spread from elsewhere
    not_estimable: list[str] = []
    if not mode.learning.spread:
        not_estimable.append("spread of difficulty")
    if not mode.learning.slope:
        not_estimable.append("mean discrimination" if fixed_ability else "spread of ability")

    return IrtFit(
        model=state.model,
        ability=ability,
        ability_se=ability_se,
        difficulty=state.difficulty[group],
        difficulty_se=difficulty_se[group],
        discrimination=state.slope[group],
        discrimination_se=slope_se[group],
        feasibility=feasibility[group],
        guess=guess[group],
        log_posterior=mode.log_posterior,
        iterations=mode.iterations,
        converged=mode.converged,
        not_estimable=tuple(not_estimable),
    )


def _first_tied_subjects(data: Responses) -> Int[np.ndarray, " subjects"]:
    """For each subject, the position of the first subject with equally many right responses to the same items.

    The 1PL gives both subjects the same ability. The fitted abilities can differ by rounding, which would break the
    tie; so the caller gives every subject the ability of the first.
    """
    n_right = np.round(data.right @ data.count).astype(np.int64)
    if data.present is None:
        keys = n_right[:, None]
    else:
        keys = np.column_stack([n_right, np.packbits(data.present, axis=1)])  # and which items were answered, as bits
    _, first_subject, tie = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first_subject[tie]
