"""Item response models: their names, items, fits and probabilities; checks of responses; abilities of new subjects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from fca.types import FcaError

Subjects = Float[np.ndarray, " subjects"]
Items = Float[np.ndarray, " items"]
Matrix = Float[np.ndarray, "subjects items"]

MODELS = ("1pl", "2pl", "3pl", "3pl-upper", "4pl")
ALIASES = {"4pl-feasibility": "3pl-upper"}  # "4PL" in Sharma et al. 2023, eq. 3: an upper asymptote, but no lower one
NAMES = (*MODELS, *ALIASES)
STEPS = 100
TOLERANCE = 1e-9
START_GRID = np.linspace(-4.0, 4.0, 17)  # starts where asymptotes can make several modes
SMALLEST_CHANCE = 1e-300


def model_name(model: str) -> str:
    """The one spelling of a model's name; raises FcaError for an unknown name.

    >>> model_name("4pl-feasibility")
    '3pl-upper'
    """
    name = ALIASES.get(model, model)
    if name not in MODELS:
        allowed = ", ".join(NAMES)
        raise FcaError("model", repr(model), allowed, "take one of these; 2pl is a good default")
    return name


class ItemBank(NamedTuple):
    """Saved items: all that is needed to score new subjects.

    difficulty: on the scale of ability; discrimination: > 0; feasibility, guess: upper and lower asymptote in [0, 1].
    """

    model: str
    difficulty: Items
    discrimination: Items
    feasibility: Items
    guess: Items

    def probability(self, ability: Subjects) -> Matrix:
        """P = guess + (feasibility - guess) / (1 + exp(-discrimination (ability - difficulty))).

        >>> one = np.ones(1)
        >>> ItemBank("2pl", 0 * one, one, one, 0 * one).probability(np.array([0.0]))
        array([[0.5]])
        """
        solved = expit(self.discrimination * (ability[:, None] - self.difficulty))
        return self.guess + (self.feasibility - self.guess) * solved


@dataclass(frozen=True)
class IrtFit:
    """Abilities of subjects and parameters of items on one scale, with standard errors.

    ability:        θ, in standard deviations of the fitted subjects (2pl and wider) or in logits (1pl).
    difficulty:     b, the ability half-way between guess and feasibility, on the scale of ability.
    discrimination: a > 0, slope at b; 1 in 1pl.
    feasibility:    upper asymptote; 1 where not learned.
    guess:          lower asymptote; 0 where not learned.
    *_se:           standard errors (Laplace), given the learned hyperparameters; 0 for what is not learned.
    log_posterior:  at the mode, given the learned hyperparameters.
    converged:      False if the steps ran out.
    not_estimable:  scales that the responses do not determine, so that the prior's take their place: "spread of
                    difficulty" (then 1), "spread of ability" (then ability is in logits, as in 1pl), "mean
                    discrimination" (at fixed abilities; then 1).
    Under compat="seed001" they come from `fit_variational`: posterior means and standard deviations, and the
    evidence lower bound for log_posterior.
    """

    model: str
    ability: Subjects
    ability_se: Subjects
    difficulty: Items
    difficulty_se: Items
    discrimination: Items
    discrimination_se: Items
    feasibility: Items
    guess: Items
    log_posterior: float
    iterations: int
    converged: bool
    not_estimable: tuple[str, ...] = ()

    @property
    def bank(self) -> ItemBank:
        """The items alone, to score new subjects with."""
        return ItemBank(self.model, self.difficulty, self.discrimination, self.feasibility, self.guess)

    def probability(self) -> Matrix:
        """Predicted chance that each subject is right on each item."""
        return self.bank.probability(self.ability)

    @property
    def p_max(self) -> Items:
        """Predicted chance of the ablest fitted subject: low for an item that nobody solves, for whatever reason.

        p_max = guess + (feasibility - guess) / (1 + exp(-discrimination (max ability - difficulty)))

        For an item that nobody solves, low feasibility and high difficulty explain the same responses;
        this depends on neither alone.
        """
        return self.bank.probability(self.ability.max(keepdims=True))[0]

    @property
    def expected_success(self) -> Items:
        """Each item's predicted chance of a right response, averaged over the fitted subjects.

        It is a measure of easiness that is well determined even where several values of the item's parameters explain
        its responses equally well.
        """
        # subject by subject, to save the memory of a matrix of subjects x items
        total = sum(self.bank.probability(ability)[0] for ability in self.ability[:, None])
        return total / len(self.ability)


def check_answered(responses: Matrix) -> None:
    """Raise FcaError for values other than 0, 1 and NaN, and for a subject or an item without any response.

    No subjects or no items at all are an error too. Positions in the message count from 0.

    >>> check_answered(np.array([[1.0, 0.0], [1.0, np.nan]]))
    """
    subjects, items = responses.shape
    if not subjects or not items:
        raise FcaError("subjects x items", f"{subjects} x {items}", "1 or more of each", "add answers")

    present = ~np.isnan(responses)
    is_invalid = present & (responses != 0) & (responses != 1)
    if is_invalid.any():
        subject, item = np.argwhere(is_invalid)[0]
        what = f"answer of subject {subject} on item {item} ({int(is_invalid.sum())} such answers)"
        raise FcaError(what, responses[subject, item], "1 (right), 0 (wrong), NaN (not asked)", "code answers so")

    for axis, name in ((1, "subjects"), (0, "items")):
        empty = np.flatnonzero(~present.any(axis=axis))
        if len(empty):
            value = f"{len(empty)}, the first at position {empty[0]}"
            raise FcaError(f"{name} without any answer", value, "0", f"leave out such {name}")


def parts_of(responses: Matrix) -> Int[np.ndarray, " subjects"]:
    """Split the subjects into parts that common items link; the number of each subject's part, 0 for the largest.

    Two subjects are linked by an item that both responded to, or by a chain of subjects who are linked in this way:
    parts are the connected components of this graph. Nothing in the responses compares the abilities of two parts:
    adding a constant to all abilities and difficulties of one part changes no probability.

    responses: 1, 0, NaN for no response.

    >>> parts_of(np.array([[1.0, np.nan, np.nan], [np.nan, 1.0, 0.0], [np.nan, np.nan, 1.0]]))
    array([1, 0, 0])
    """
    present = ~np.isnan(responses)
    if present.all():
        return np.zeros(len(responses), dtype=np.intp)

    responded = present.astype(np.float32)
    shares_an_item = csr_array(responded @ responded.T > 0)  # subjects x subjects
    n_parts, component = connected_components(shares_an_item, directed=False)

    # number the components by their size, largest first
    largest_first = np.argsort(-np.bincount(component, minlength=n_parts), kind="stable")
    rank_of_component = np.empty(n_parts, dtype=np.intp)
    rank_of_component[largest_first] = np.arange(n_parts)
    return rank_of_component[component]


def check_responses(responses: Matrix) -> None:
    """Raise FcaError for responses that abilities and items cannot be learned from.

    These are: values other than 0, 1 and NaN; fewer than 2 subjects; a subject or an item without any response; no item
    on which two subjects differ; subjects that no common item links to the others. Positions in the message count
    from 0.

    >>> check_responses(np.array([[1.0, 0.0], [1.0, 1.0]]))
    """
    if len(responses) < 2:
        raise FcaError("subjects", len(responses), "2 or more", "add answers of other models")
    check_answered(responses)

    right = np.nansum(responses, axis=0)
    n_responses = (~np.isnan(responses)).sum(axis=0)
    divides_subjects = (right != 0) & (right != n_responses)
    if not divides_subjects.any():
        what = f"items that divide the subjects, among {len(right)}"
        raise FcaError(what, 0, "1 or more", "add subjects, or items that some of them get wrong")

    part_of_subject = parts_of(responses)
    n_parts = part_of_subject.max() + 1
    if n_parts > 1:
        descriptions = [_describe_part(responses, part_of_subject == part) for part in range(n_parts)]
        step = "fit each part alone, or add subjects that respond to items of several parts"
        value = f"{n_parts} parts without a common item: {'; '.join(descriptions[:5])}"
        raise FcaError("subjects on one scale", value, "one part, linked by common items", step)


def _describe_part(responses: Matrix, is_member: Bool[np.ndarray, " subjects"]) -> str:
    """Size of a part of the subjects, and the positions of its first three subjects, for the message of an error."""
    positions = np.flatnonzero(is_member)
    n_items = int((~np.isnan(responses[is_member])).any(axis=0).sum())  # with a response of the part
    shown_positions = ", ".join(map(str, positions[:3])) + (", ..." if len(positions) > 3 else "")
    return f"{len(positions)} subjects x {n_items} items (positions {shown_positions})"


class Scored(NamedTuple):
    """Abilities on the bank's scale, and their standard errors with the items taken as known."""

    ability: Subjects
    ability_se: Subjects


def score_ability(responses: Matrix, bank: ItemBank) -> Scored:
    """The most probable ability of each subject, given its responses to a bank's items and the prior θ ~ N(0, 1).

    A bank holds items whose parameters are known from an earlier fit. The ability is found by Fisher scoring, that is
    by Newton steps with the expected curvature. Its standard error is 1 / sqrt(1 + I(θ)), with I the Fisher information
    of the items that have a response of the subject; 1 is the information of the prior.
    responses: 1 right, 0 wrong, NaN missing; a column for each item of the bank.
    Raises FcaError for another number of columns, for other values, and for a subject without responses.

    >>> one = np.ones(2)
    >>> bank = ItemBank("2pl", 0 * one, one, one, 0 * one)
    >>> score_ability(np.array([[1.0, 0.0], [1.0, np.nan]]), bank).ability.round(3)
    array([0.   , 0.401])
    """
    items = len(bank.difficulty)
    if responses.shape[1] != items:
        step = "give a column for each item; NaN where not asked"
        raise FcaError("items answered", responses.shape[1], f"{items}, the items of the bank", step)
    # items without any response are no error, so they are left out of the check; if no item has one, all are checked,
    # so that the error names a subject
    has_response = (~np.isnan(responses)).any(axis=0)  # by item
    check_answered(responses[:, has_response] if has_response.any() else responses)

    # start at 0; with asymptotes, which can make several modes, at the highest point of a grid
    ability = np.zeros(len(responses))
    if bank.model not in ("1pl", "2pl"):
        height_by_point = []
        for point in START_GRID:
            height, _, _ = _local_posterior(responses, bank, np.full(len(responses), point))
            height_by_point.append(height)
        ability = START_GRID[np.stack(height_by_point).argmax(axis=0)]

    # log posterior (height), its derivative (slope) and 1 + I(θ) (information), each by subject
    height, slope, information = _local_posterior(responses, bank, ability)
    for _ in range(STEPS):
        step = np.clip(slope / information, -2.0, 2.0)  # of every subject; long steps overshoot
        trial = _local_posterior(responses, bank, ability + step)
        while True:  # halve the steps that lower the posterior
            trial_height = trial[0]
            fell = trial_height < height - 1e-12 * np.abs(height)  # by more than rounding
            if not fell.any() or np.abs(step[fell]).max() <= TOLERANCE:  # falling steps are negligible
                break
            step[fell] /= 2
            trial = _local_posterior(responses, bank, ability + step)

        ability = ability + step
        height, slope, information = trial
        if np.abs(step).max() < TOLERANCE:
            break
    return Scored(ability, 1 / np.sqrt(information))


def _local_posterior(responses: Matrix, bank: ItemBank, ability: Subjects) -> tuple[Subjects, Subjects, Subjects]:
    """Log posterior of each subject at the given ability, its slope there, and the Fisher information there.

    P = guess + (feasibility - guess) / (1 + exp(-a (θ - b))),   Q = 1 - P
    with a the discrimination, b the difficulty of an item

    log p = Σ_right log P + Σ_wrong log Q - θ²/2
    slope = Σ_right P'/P - Σ_wrong P'/Q - θ
    information = 1 + Σ P'²/(P Q)

    Sums are over the items with a response. The prior θ ~ N(0, 1) adds -θ²/2, -θ and 1.
    ability: one value for each subject.
    """
    # subjects x items
    z = bank.discrimination * (ability[:, None] - bank.difficulty)
    solved = expit(z)
    missed = expit(-z)  # 1 - solved, exact where solved is nearly 1
    span = bank.feasibility - bank.guess
    p = np.maximum(bank.guess + span * solved, SMALLEST_CHANCE)  # so that its logarithm is finite
    q = np.maximum((1 - bank.feasibility) + span * missed, SMALLEST_CHANCE)
    rise = bank.discrimination * span * solved * missed  # P', the derivative of P by θ

    is_right = responses == 1
    is_wrong = responses == 0
    log_chance = np.where(is_right, np.log(p), np.where(is_wrong, np.log(q), 0.0))
    log_chance_slope = np.where(is_right, rise / p, np.where(is_wrong, -rise / q, 0.0))
    item_information = np.where(is_right | is_wrong, rise * (rise / (p * q)), 0.0)

    height = log_chance.sum(axis=1) - ability**2 / 2
    slope = log_chance_slope.sum(axis=1) - ability
    information = item_information.sum(axis=1) + 1.0
    return height, slope, information
