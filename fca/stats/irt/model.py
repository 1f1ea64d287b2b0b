"""What an item response model says: parameters, probabilities, and the names of its variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from fca.types import FcaError

MODELS = ("1pl", "2pl", "3pl", "3pl-upper", "4pl")
ALIASES = {"4pl-feasibility": "3pl-upper"}  # "4PL" in Sharma et al. 2023, eq. 3: an upper asymptote, but no lower one


def model_name(model: str) -> str:
    """The one spelling of a model's name; raises FcaError for a name that is none.

    >>> model_name("4pl-feasibility")
    '3pl-upper'
    """
    name = ALIASES.get(model, model)
    if name not in MODELS:
        allowed = ", ".join((*MODELS, *ALIASES))
        raise FcaError("model", repr(model), allowed, "take one of these; 2pl is a good default")
    return name


def has_guess(model: str) -> bool:
    """Whether the model learns a lower asymptote."""
    return model in ("3pl", "4pl")


def has_feasibility(model: str) -> bool:
    """Whether the model learns an upper asymptote."""
    return model in ("3pl-upper", "4pl")


class ItemBank(NamedTuple):
    """Saved items: all that it takes to score new subjects.

    difficulty: on the scale of ability; discrimination: > 0; feasibility, guess: upper and lower asymptote in [0, 1].
    """

    model: str
    difficulty: Float[np.ndarray, " items"]
    discrimination: Float[np.ndarray, " items"]
    feasibility: Float[np.ndarray, " items"]
    guess: Float[np.ndarray, " items"]

    def probability(self, ability: Float[np.ndarray, " subjects"]) -> Float[np.ndarray, "subjects items"]:
        """P = guess + (feasibility - guess) / (1 + exp(-discrimination (ability - difficulty))).

        >>> one = np.ones(1)
        >>> ItemBank("2pl", 0 * one, one, one, 0 * one).probability(np.array([0.0]))
        array([[0.5]])
        """
        solved = expit(self.discrimination * (ability[:, None] - self.difficulty))
        return np.asarray(self.guess + (self.feasibility - self.guess) * solved)


@dataclass(frozen=True)
class IrtFit:
    """Abilities of subjects and parameters of items on one scale, with standard errors.

    ability:        θ, in standard deviations of the fitted subjects (2pl and wider) or in logits (1pl).
    difficulty:     b, the ability that lies half-way between guess and feasibility, on the scale of ability.
    discrimination: a > 0, slope at b; 1 in 1pl.    feasibility, guess: asymptotes; 1 and 0 where not learned.
    *_se:           standard errors (Laplace), given the learned hyperparameters; 0 for what is not learned.
    log_posterior:  at the mode, given the learned hyperparameters.    converged: False if the steps ran out.
    Under compat="seed001" the discrimination may be negative, *_se are posterior standard deviations under mean field
    (too small by construction), and log_posterior is the evidence lower bound.
    """

    model: str
    ability: Float[np.ndarray, " subjects"]
    ability_se: Float[np.ndarray, " subjects"]
    difficulty: Float[np.ndarray, " items"]
    difficulty_se: Float[np.ndarray, " items"]
    discrimination: Float[np.ndarray, " items"]
    discrimination_se: Float[np.ndarray, " items"]
    feasibility: Float[np.ndarray, " items"]
    guess: Float[np.ndarray, " items"]
    log_posterior: float
    iterations: int
    converged: bool

    @property
    def bank(self) -> ItemBank:
        """The items alone, to score new subjects with."""
        return ItemBank(self.model, self.difficulty, self.discrimination, self.feasibility, self.guess)

    def probability(self) -> Float[np.ndarray, "subjects items"]:
        """Chance that each subject is right on each item, by the model."""
        return self.bank.probability(self.ability)

    @property
    def p_max(self) -> Float[np.ndarray, " items"]:
        """Chance of the ablest fitted subject: low for an item that nobody solves, whatever takes the blame.

        p_max = guess + (feasibility - guess) / (1 + exp(-discrimination (max ability - difficulty)))

        For an item that nobody solves, low feasibility and high difficulty explain the same answers;
        this depends on neither alone.
        """
        return np.asarray(self.bank.probability(self.ability.max(keepdims=True))[0])

    @property
    def expected_success(self) -> Float[np.ndarray, " items"]:
        """Mean chance over the fitted subjects: an item's easiness that all its parameters agree on."""
        total = np.zeros(len(self.difficulty))
        for ability in self.ability:  # subject by subject: no matrix of subjects x items
            total += self.bank.probability(np.array([ability]))[0]
        return total / len(self.ability)


# Whether answers can be fitted at all, told before any work.


def check_values(responses: Float[np.ndarray, "subjects items"]) -> None:
    """Raises FcaError, with value and position, for any answer that is not 1, 0 or NaN.

    >>> check_values(np.array([[1.0, 0.0, np.nan]]))
    """
    bad = ~((responses == 0) | (responses == 1) | np.isnan(responses))
    if bad.any():
        subject, item = np.argwhere(bad)[0]
        what = f"answer of subject {subject} on item {item} ({int(bad.sum())} such answers)"
        raise FcaError(what, responses[subject, item], "1 (right), 0 (wrong), NaN (not asked)", "code answers so")


def check_answered(responses: Float[np.ndarray, "subjects items"]) -> None:
    """Raises FcaError for values other than 0, 1 and NaN, and for a subject or an item without any answer.

    >>> check_answered(np.array([[1.0, 0.0], [1.0, np.nan]]))
    """
    subjects, items = responses.shape
    if not subjects or not items:
        raise FcaError("subjects x items", f"{subjects} x {items}", "1 or more of each", "add answers")
    check_values(responses)
    asked = ~np.isnan(responses)
    for axis, name in ((1, "subjects"), (0, "items")):
        empty = np.flatnonzero(~asked.any(axis=axis))
        if len(empty):
            what = f"{name} without any answer"
            raise FcaError(what, f"{len(empty)}, the first at position {empty[0]}", "0", f"leave out such {name}")


def check_responses(responses: Float[np.ndarray, "subjects items"]) -> None:
    """Raises FcaError for answers that abilities and items cannot be learned from; positions count from 0.

    Values other than 0, 1 and NaN; fewer than 2 subjects; a subject or an item without any answer; no item on which
    two subjects differ.

    >>> check_responses(np.array([[1.0, 0.0], [1.0, 1.0]]))
    """
    if len(responses) < 2:
        raise FcaError("subjects", len(responses), "2 or more", "add answers of other models")
    check_answered(responses)
    right, asked = np.nansum(responses, axis=0), (~np.isnan(responses)).sum(axis=0)
    if ((right == 0) | (right == asked)).all():
        what, allowed = f"items that divide the subjects, among {len(right)}", "1 or more"
        raise FcaError(what, 0, allowed, "add subjects, or items that some of them get wrong")
