"""The dense work: every subject on every item, once a step, in blocks of items that stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from fca.stats.irt.answers import Answers
from fca.stats.irt.state import LEARNED, State

BLOCK = 1 << 15  # cells at a time: a quarter of a megabyte an array
TINY = 1e-300  # a probability that is not 0


@dataclass(frozen=True)
class Cells:
    """What one pass over all cells leaves behind. All are 0 where not asked.

    log_likelihood: of one item of each group.
    error:  derivative of a cell's log likelihood by z = a (θ - b); right - p without asymptotes.
    weight: Fisher information of a cell on z; p (1 - p) without asymptotes.
    For the m asymptotes that are learned, by their logits:
    asymptote (m, groups): gradient.  own (m, m, groups): information.  mixed (m, subjects, groups): with z.
    """

    log_likelihood: Float[np.ndarray, " groups"]
    error: Float[np.ndarray, "subjects groups"]
    weight: Float[np.ndarray, "subjects groups"]
    asymptote: Float[np.ndarray, "m groups"]
    own: Float[np.ndarray, "m m groups"]
    mixed: Float[np.ndarray, "m subjects groups"]

    @classmethod
    def empty(cls, answers: Answers, model: str) -> Cells:
        """Room for a pass; its values are not yet set."""
        subjects, groups = answers.right.shape
        m = max(len(LEARNED[model]) - 2, 0)
        dense = np.empty((2, subjects, groups))
        return cls(
            np.empty(groups), dense[0], dense[1],
            np.empty((m, groups)), np.empty((m, m, groups)), np.empty((m, subjects, groups)),
        )  # fmt: skip


def fill(cells: Cells, answers: Answers, state: State, observed: bool) -> None:
    """One pass over all cells at `state`, into `cells`; observed: second derivatives in place of their expectation."""
    logistic = len(cells.asymptote) == 0
    for part in _parts(answers):
        z = state.ability[:, None] - state.difficulty[part]
        z *= state.slope[part]
        asked = None if answers.asked is None else answers.asked[:, part]
        if logistic:
            _logistic(cells, part, z, answers.right[:, part], asked)
        else:
            _bounded(cells, part, z, answers.right[:, part], asked, state, observed)


def _parts(answers: Answers) -> Iterator[slice]:
    subjects, groups = answers.right.shape
    width = max(BLOCK // subjects, 1)
    return (slice(start, min(start + width, groups)) for start in range(0, groups, width))


def _logistic(cells: Cells, part: slice, z: np.ndarray, right: np.ndarray, asked: np.ndarray | None) -> None:
    """Log likelihood Σ right z - log(1 + exp z), which shares its exponential with both derivatives."""
    if asked is not None:
        z *= asked
    small = np.exp(-np.abs(z))  # never overflows
    if asked is not None:
        small *= asked
    whole = 1.0 + small
    chosen = np.einsum("sg,sg->g", right, z) - np.maximum(z, 0.0).sum(axis=0)
    cells.log_likelihood[part] = chosen - _log_product(whole)
    solved = np.where(z > 0, 1.0, small)
    solved /= whole
    np.subtract(right, solved, out=cells.error[:, part])
    small /= whole
    small /= whole
    cells.weight[:, part] = small


def _log_product(whole: Float[np.ndarray, "subjects groups"]) -> Float[np.ndarray, " groups"]:
    """Σ log over subjects of factors in [1, 2]: one logarithm for 1,000 of them, since 2^1000 is still a float64."""
    starts = range(0, len(whole), 1000)
    return np.asarray(sum(np.log(np.multiply.reduce(whole[start : start + 1000], axis=0)) for start in starts))


def _bounded(
    cells: Cells,
    part: slice,
    z: np.ndarray,
    right: np.ndarray,
    asked: np.ndarray | None,
    state: State,
    observed: bool,
) -> None:
    """With asymptotes: p = feasibility (share + (1 - share) / (1 + exp -z)), share = guess / feasibility.

    A cell's log likelihood has minus second derivatives (p_k / c)² - p_kl / c where right, with chance c = p, and the
    same with c = -(1 - p) where wrong; expected over answers, p_k p_l / (p (1 - p)).
    """
    feasibility, share = (row[part] for row in state.asymptotes())
    solved, missed = expit(z), expit(-z)
    p = np.maximum(feasibility * (share + (1 - share) * solved), TINY)
    q = np.maximum((1 - feasibility) + feasibility * (1 - share) * missed, TINY)
    truly = right > 0
    score, chance, information = np.where(truly, 1 / p, -1 / q), np.where(truly, p, q), 1 / (p * q)
    if asked is not None:
        chance[~asked] = 1.0
        score *= asked
        information *= asked
    cells.log_likelihood[part] = np.log(chance).sum(axis=0)
    by_z = feasibility * (1 - share) * solved * missed
    by = {"feasibility": (1 - feasibility) * p, "guess": feasibility * share * (1 - share) * missed}
    # second derivatives: of z by z and by each asymptote's logit as multiples of by_z, and among those as multiples
    bend = {"feasibility": 1 - 2 * feasibility, "guess": 1 - 2 * share}
    tilt = {"feasibility": 1 - feasibility, "guess": -share}
    names = LEARNED[state.model][:-2]
    error = score * by_z
    cells.error[:, part] = error
    cells.weight[:, part] = error * (error - (missed - solved)) if observed else by_z * information * by_z
    for i, name in enumerate(names):
        mine = score * by[name]
        cells.asymptote[i, part] = mine.sum(axis=0)
        cells.mixed[i][:, part] = error * (mine - tilt[name]) if observed else by_z * information * by[name]
        for j, other in enumerate(names[: i + 1]):
            theirs = score * by[other]
            twist = bend[name] * mine if i == j else tilt["feasibility"] * mine
            own = mine * theirs - twist if observed else by[name] * information * by[other]
            cells.own[i, j, part] = cells.own[j, i, part] = own.sum(axis=0)
