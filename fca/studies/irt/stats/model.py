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
GRID = np.linspace(-4.0, 4.0, 17)  # starts where asymptotes can make several modes
TINY = 1e-300


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
    discrimination: a > 0, slope at b; 1 in 1pl.    feasibility, guess: asymptotes; 1 and 0 where not learned.
    *_se:           standard errors (Laplace), given the learned hyperparameters; 0 for what is not learned.
    log_posterior:  at the mode, given the learned hyperparameters.    converged: False if the steps ran out.
    not_estimable:  scales that the responses do not determine, so that the prior's take their place: "spread of
                    difficulty" (then 1), "spread of ability" (then ability is in logits, as in 1pl), "mean
                    discrimination" (at fixed abilities; then 1).
    Under compat="seed001" they are what `fit_variational` says: posterior means and standard deviations, and the
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
        """Mean chance over the fitted subjects: an item's easiness that all its parameters agree on."""
        # subject by subject: no matrix of subjects x items
        return sum(self.bank.probability(ability)[0] for ability in self.ability[:, None]) / len(self.ability)


def check_answered(responses: Matrix) -> None:
    """Raises FcaError for values other than 0, 1 and NaN, and for a subject or an item without any response.

    >>> check_answered(np.array([[1.0, 0.0], [1.0, np.nan]]))
    """
    subjects, items = responses.shape
    if not subjects or not items:
        raise FcaError("subjects x items", f"{subjects} x {items}", "1 or more of each", "add answers")
    present = ~np.isnan(responses)
    bad = present & (responses != 0) & (responses != 1)
    if bad.any():
        subject, item = np.argwhere(bad)[0]
        what = f"answer of subject {subject} on item {item} ({int(bad.sum())} such answers)"
        raise FcaError(what, responses[subject, item], "1 (right), 0 (wrong), NaN (not asked)", "code answers so")
    for axis, name in ((1, "subjects"), (0, "items")):
        if len(empty := np.flatnonzero(~present.any(axis=axis))):
            found = f"{len(empty)}, the first at position {empty[0]}"
            raise FcaError(f"{name} without any answer", found, "0", f"leave out such {name}")


def parts_of(responses: Matrix) -> Int[np.ndarray, " subjects"]:
    """The part of each subject, 0..k-1, largest first: subjects of one part are linked by items that both responded to,
    or by a chain of such subjects.

    Connected components of the bipartite graph of subjects and items. Nothing in the responses compares the abilities
    of two parts: adding a constant to all abilities and difficulties of one of them changes no probability.

    >>> parts_of(np.array([[1.0, np.nan, np.nan], [np.nan, 1.0, 0.0], [np.nan, np.nan, 1.0]]))
    array([1, 0, 0])
    """
    present = ~np.isnan(responses)
    if present.all():
        return np.zeros(len(responses), dtype=np.intp)

    responded = present.astype(np.float32)
    shares_an_item = csr_array(responded @ responded.T > 0)
    number, part = connected_components(shares_an_item, directed=False)
    largest_first = np.argsort(-np.bincount(part, minlength=number), kind="stable")
    rank = np.empty(number, dtype=np.intp)
    rank[largest_first] = np.arange(number)
    return rank[part]


def check_responses(responses: Matrix) -> None:
    """Raises FcaError for responses that abilities and items cannot be learned from; positions count from 0.

    Values other than 0, 1 and NaN; fewer than 2 subjects; a subject or an item without any response; no item on which
    two subjects differ; subjects that no common item links to the others (`parts_of`).

    >>> check_responses(np.array([[1.0, 0.0], [1.0, 1.0]]))
    """
    if len(responses) < 2:
        raise FcaError("subjects", len(responses), "2 or more", "add answers of other models")
    check_answered(responses)
    right, present = np.nansum(responses, axis=0), (~np.isnan(responses)).sum(axis=0)
    if ((right == 0) | (right == present)).all():
        what = f"items that divide the subjects, among {len(right)}"
        raise FcaError(what, 0, "1 or more", "add subjects, or items that some of them get wrong")
    part = parts_of(responses)
    if part.max() > 0:
        described = [_described(responses, part == at) for at in range(part.max() + 1)]
        step = "fit each part alone, or add subjects that respond to items of several parts"
        value = f"{len(described)} parts without a common item: {'; '.join(described[:5])}"
        raise FcaError("subjects on one scale", value, "one part, linked by common items", step)


def _described(responses: Matrix, member: Bool[np.ndarray, " subjects"]) -> str:
    positions = np.flatnonzero(member)
    items = int((~np.isnan(responses[member])).any(axis=0).sum())
    named = ", ".join(map(str, positions[:3])) + (", ..." if len(positions) > 3 else "")
    return f"{len(positions)} subjects x {items} items (positions {named})"


class Scored(NamedTuple):
    """Abilities on the bank's scale, and their standard errors with the items taken as known."""

    ability: Subjects
    ability_se: Subjects


def score_ability(responses: Matrix, bank: ItemBank) -> Scored:
    """The most probable ability of each subject, given responses (1, 0, NaN) to a bank's items and θ ~ N(0, 1).

    Fisher scoring, in milliseconds; the standard error is 1 / sqrt(1 + I(θ)) with I the Fisher information of the items
    with a response. Raises FcaError if the bank has another number of items, and as `check_answered` does for subjects
    without responses.

    >>> one = np.ones(2)
    >>> bank = ItemBank("2pl", 0 * one, one, one, 0 * one)
    >>> score_ability(np.array([[1.0, 0.0], [1.0, np.nan]]), bank).ability.round(3)
    array([0.   , 0.401])
    """
    items = len(bank.difficulty)
    if responses.shape[1] != items:
        step = "give a column for each item; NaN where not asked"
        raise FcaError("items answered", responses.shape[1], f"{items}, the items of the bank", step)
    used = (~np.isnan(responses)).any(axis=0)  # an item without any response is no error here
    check_answered(responses[:, used] if used.any() else responses)
    ability = np.zeros(len(responses))
    if bank.model not in ("1pl", "2pl"):
        heights = np.stack([_local(responses, bank, np.full(len(responses), point))[0] for point in GRID])
        ability = GRID[heights.argmax(axis=0)]
    height, slope, information = _local(responses, bank, ability)
    for _ in range(STEPS):
        step_size = np.clip(slope / information, -2.0, 2.0)
        new = _local(responses, bank, ability + step_size)
        while (fell := new[0] < height - 1e-12 * np.abs(height)).any() and np.abs(step_size[fell]).max() > TOLERANCE:
            step_size[fell] /= 2
            new = _local(responses, bank, ability + step_size)
        ability = ability + step_size
        height, slope, information = new
        if np.abs(step_size).max() < TOLERANCE:
            break
    return Scored(ability, 1 / np.sqrt(information))


def _local(responses: Matrix, bank: ItemBank, ability: Subjects) -> tuple[Subjects, Subjects, Subjects]:
    """Log posterior of each subject's ability, its slope, and 1 + Fisher information."""
    z = bank.discrimination * (ability[:, None] - bank.difficulty)
    solved, missed = expit(z), expit(-z)
    span = bank.feasibility - bank.guess
    p = np.maximum(bank.guess + span * solved, TINY)
    q = np.maximum((1 - bank.feasibility) + span * missed, TINY)
    rise = bank.discrimination * span * solved * missed
    right, wrong = responses == 1, responses == 0
    height = np.where(right, np.log(p), np.where(wrong, np.log(q), 0.0)).sum(axis=1) - ability**2 / 2
    slope = np.where(right, rise / p, np.where(wrong, -rise / q, 0.0)).sum(axis=1) - ability
    information = np.where(right | wrong, rise * (rise / (p * q)), 0.0).sum(axis=1) + 1.0
    return height, slope, information
