"""What each wrong answer costs, in the user's own unit: a table of costs, and the answer of least expected cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from fca.csv_table import read_table
from fca.stats.decision import accuracy_draws
from fca.types import FcaError

Matrix = Float[np.ndarray, "classes classes"]
Probabilities = Float[np.ndarray, "images classes"]
Labels = Integer[np.ndarray, " images"]
PerImage = Float[np.ndarray, " images"]
SHOWN = 10  # classes that a message names
EQUAL = 1e-12  # of the largest cost: expected costs that differ by less are the same number, rounded
FORM = "a CSV file: a header with the names of the classes that are answered, then a line for each true class"


@dataclass(frozen=True, eq=False)
class Costs:
    """What an image costs: matrix[j, k] if class j is true and class k is answered, at least 0, in any unit.

    classes: keys, in the order of lines and columns.    file: that the table is from, for messages.

    >>> costs = Costs(("healthy", "ill"), np.array([[0.0, 1.0], [20.0, 0.0]]))
    >>> costs.answers(np.array([[0.9, 0.1], [0.99, 0.01]]))
    array([1, 0])
    """

    classes: tuple[str, ...]
    matrix: Matrix
    file: str = ""

    def expected(self, probabilities: Probabilities) -> Float[np.ndarray, "images answers"]:
        """Expected cost of each answer for each image: sum over true classes j of p_j C[j, k]."""
        return probabilities @ self.matrix

    def answers(self, probabilities: Probabilities) -> Labels:
        """The answer of least expected cost for each image (Bayes decision: Elkan 2001, IJCAI, eq. 1).

        Of answers that cost the same, the most probable class: with 1 for every wrong answer, it is always that one.
        """
        expected = self.expected(probabilities)
        least = expected.min(axis=1, keepdims=True)
        is_least = expected <= least + EQUAL * self.matrix.max()
        return np.where(is_least, probabilities, -1.0).argmax(axis=1)

    def paid(self, labels: Labels, answers: Labels) -> PerImage:
        """What each image costs."""
        return self.matrix[labels, answers]

    def of_pair(self, true: str, answered: str) -> float:
        """What an image of one class costs that is answered as another."""
        return float(self.matrix[self.classes.index(true), self.classes.index(answered)])

    @cached_property
    def excess(self) -> Matrix:
        """What each answer costs more than the cheapest one for the same true class: what a decision can change."""
        return self.matrix - self.matrix.min(axis=1, keepdims=True)

    @property
    def by_name(self) -> dict[str, dict[str, float]]:
        """True class -> answer -> cost."""
        return {
            true: dict(zip(self.classes, line, strict=True))
            for true, line in zip(self.classes, self.matrix.tolist(), strict=True)
        }

    @property
    def described(self) -> str:
        """The table in words: for each true class its most frequent cost of another answer, then those that differ.

        >>> Costs(("a", "b", "c"), np.array([[0, 1.0, 1], [5, 0, 1], [20, 20, 2]])).described
        'a: 1; b: 1 (a 5); c: 20 (c 2)'
        """
        lines = []
        for true, paid in self.by_name.items():
            others = [cost for answer, cost in paid.items() if answer != true]
            usual = max(others, key=lambda cost: (others.count(cost), -cost), default=0.0)
            is_odd = {answer: cost != (0.0 if answer == true else usual) for answer, cost in paid.items()}
            odd = [f"{answer} {amount(paid[answer])}" for answer in paid if is_odd[answer]]
            lines.append(f"{true}: {amount(usual)}" + (f" ({', '.join(odd)})" if odd else ""))
        return "; ".join(lines)

    @cached_property
    def mistakes(self) -> Float[np.ndarray, " confusions"]:
        """`excess` of every pair of a true class and another one that is answered."""
        return self.excess[~np.eye(len(self.classes), dtype=bool)]

    def of(self, classes: Sequence[str], known: Iterable[str] | None = None) -> Costs:
        """The table of these classes alone, in this order.

        known: all classes of the data set, if they are known; the table may have more of them than are asked for.
        Raises FcaError for a class that the table lacks or the data set does not have, and if no answer costs more
        than another.
        """
        known_classes = set(self.classes if known is None else known)
        for name in self.classes:
            if name not in known_classes:
                allowed = f"classes of the data set: {_some(sorted(known_classes))}"
                raise FcaError(f"class of {self.file}", repr(name), allowed, "correct its name, or leave it out")
        place_of = {name: place for place, name in enumerate(self.classes)}
        for name in classes:
            if name not in place_of:
                allowed = f"all of {_some(classes)}"
                step = f"add a line and a column {name!r}"
                raise FcaError(f"classes of {self.file}", f"without {name!r}", allowed, step)

        places = [place_of[name] for name in classes]
        part = Costs(tuple(classes), self.matrix[np.ix_(places, places)], self.file)
        if not part.excess.any():
            allowed = "at least one answer that costs more than another for the same true class"
            raise FcaError(f"costs in {self.file}", "all alike", allowed, "give a wrong answer a cost above 0")
        return part


def read_costs(file: str | Path) -> Costs:
    """A table of costs from a CSV file; see `fca.csv_table` for what is read.

    The header has the classes that are answered, the first column those that are true, each in any order; what stands
    in the corner does not matter. Raises FcaError for a file that is not there, for a class that stands twice or on one
    side alone, and for a cell that is no finite number of at least 0.
    """
    if not Path(file).is_file():
        raise FcaError("costs", file, FORM, "correct the path")
    frame = read_table(Path(file), file)
    corner, *answered = frame.columns
    true = frame[corner].str.strip().tolist()
    if not answered or not true:
        raise FcaError(
            f"costs in {file}", f"lines: {len(true)}, classes in the header: {len(answered)}", FORM, "add them"
        )
    if twice := [name for place, name in enumerate(true) if name in true[:place]]:
        raise FcaError(f"lines of {file}", f"{twice[0]!r} twice", "one line a true class", "remove one of them")
    cells = [dict(zip(answered, line, strict=True)) for line in frame[answered].to_numpy()]
    return costs_of(dict(zip(true, cells, strict=True)), str(file))


def costs_of(lines: Mapping[str, Mapping[str, Any]], file: str = "costs") -> Costs:
    """A table of costs from true class -> answer -> cost.    file: where it is from, for messages.

    Raises FcaError as `read_costs` does.

    >>> costs_of({"cat": {"cat": 0, "dog": 1}, "dog": {"dog": 0, "cat": 2.5}}).matrix.tolist()
    [[0.0, 1.0], [2.5, 0.0]]
    """
    if odd := [line for line in lines.values() if not isinstance(line, Mapping)]:
        raise FcaError(file, odd[0], "true class -> answer -> cost, or a CSV file", "correct it")
    lines = {str(true): {str(answer): cost for answer, cost in line.items()} for true, line in lines.items()}
    true, answered = list(lines), list(dict.fromkeys(name for line in lines.values() for name in line))
    for side, others, where in ((true, answered, "the header"), (answered, true, "the first column")):
        if lost := [name for name in side if name not in others]:
            allowed = f"every class in both; {where} has {_some(others)}"
            raise FcaError(f"class of {file}", repr(lost[0]), allowed, f"add it to {where}, or correct its name")
    matrix = [[_cost(lines[j].get(k, ""), j, k, file) for k in answered] for j in answered]
    return Costs(tuple(answered), np.array(matrix), file)


def _cost(cell: Any, true: str, answered: str, file: str) -> float:
    try:
        cost = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        cost = math.nan
    if not (math.isfinite(cost) and cost >= 0):
        what = f"cost in {file} of {true!r} answered as {answered!r}"
        raise FcaError(
            what, "an empty cell" if cell == "" else repr(cell), "a number of at least 0, e.g. 2.5", "correct it"
        )
    return cost


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


class MeanCost(NamedTuple):
    """Mean cost of some images, and a 95 % interval of it for new images like them."""

    value: float
    low: float
    high: float


def mean_cost(costs: Costs, labels: Labels, answers: Labels) -> MeanCost:
    """What these answers cost, a mean over images.

    The interval is that of `fca.stats.decision.accuracy_draws`, of 1 - excess / largest: the Bayesian bootstrap with
    half an image that costs nothing and half one of the largest cost. So its end stays far off where few images could
    have shown a rare, expensive mistake. With one cost for every mistake it is Jeffreys' interval of the error.
    """
    largest, excess = costs.excess.max(), costs.excess[labels, answers]
    draws = accuracy_draws(1 - excess[None] / largest)[:, 0]
    value = float(costs.paid(labels, answers).mean())
    cheapest = value - float(excess.mean())  # what no answer avoids
    low, high = (cheapest + float(largest * (1 - np.quantile(draws, end))) for end in (0.975, 0.025))
    return MeanCost(value, low, high)


def amount(cost: float) -> str:
    """A cost to three digits, never with an exponent.

    >>> amount(0.41666), amount(1234.5), amount(0.00012), amount(0.0)
    ('0.417', '1,230', '0.00012', '0')
    """
    if not cost or not math.isfinite(cost):
        return f"{cost:g}"
    decimals = 2 - math.floor(math.log10(abs(cost)))
    text = f"{round(cost, decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
