"""The costs of wrong answers, in a unit of the user's choice: a table, and the answer of least expected cost."""

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
MAX_NAMES = 10  # classes that a message names
ROUNDING = 1e-12  # share of the largest cost: expected costs that differ by less differ by rounding errors
CSV_FORM = "a CSV file: a header with the names of the classes that are answered, then a line for each true class"


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of answers: an image costs matrix[j, k] if class j is true and class k is the answer.

    Costs are at least 0, in any unit.

    classes: keys, in the order of rows and columns.
    file:    the source of the table, for messages.

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

        answer = argmin over k of sum over j of p_j C[j, k]

        If several answers have the least expected cost, it is the most probable class of them. So if every wrong answer
        costs 1, the answer is the most probable class.
        """
        expected = self.expected(probabilities)
        lowest = expected.min(axis=1, keepdims=True)
        is_lowest = expected <= lowest + ROUNDING * self.matrix.max()
        return np.where(is_lowest, probabilities, -1.0).argmax(axis=1)  # -1: below any probability

    def paid(self, labels: Labels, answers: Labels) -> PerImage:
        """The cost of each image, given its true class and its answer (both as positions in `classes`)."""
        return self.matrix[labels, answers]

    def of_pair(self, true: str, answered: str) -> float:
        """The cost of an image of class `true` that is answered as `answered`."""
        j = self.classes.index(true)
        k = self.classes.index(answered)
        return float(self.matrix[j, k])

    @cached_property
    def excess(self) -> Matrix:
        """Cost of each answer above the cheapest one for the same true class: the part that a decision can change."""
        return self.matrix - self.matrix.min(axis=1, keepdims=True)

    @property
    def by_name(self) -> dict[str, dict[str, float]]:
        """The table as true class -> answer -> cost, by class keys."""
        costs_by_class = {}
        for true, row in zip(self.classes, self.matrix.tolist(), strict=True):
            costs_by_class[true] = dict(zip(self.classes, row, strict=True))
        return costs_by_class

    @property
    def described(self) -> str:
        """The table in words: for each true class the most frequent cost of a wrong answer, then the exceptions.

        Of equally frequent costs it is the lowest. A right answer that costs something is an exception, too.

        >>> Costs(("a", "b", "c"), np.array([[0, 1.0, 1], [5, 0, 1], [20, 20, 2]])).described
        'a: 1; b: 1 (a 5); c: 20 (c 2)'
        """
        descriptions = []
        for true, cost_of_answer in self.by_name.items():
            wrong_costs = [cost for answer, cost in cost_of_answer.items() if answer != true]
            frequent_cost = _most_frequent(wrong_costs)

            exceptions = []
            for answer, cost in cost_of_answer.items():
                regular_cost = 0.0 if answer == true else frequent_cost
                if cost != regular_cost:
                    exceptions.append(f"{answer} {format_cost(cost)}")

            description = f"{true}: {format_cost(frequent_cost)}"
            if exceptions:
                description += f" ({', '.join(exceptions)})"
            descriptions.append(description)
        return "; ".join(descriptions)

    @cached_property
    def mistakes(self) -> Float[np.ndarray, " confusions"]:
        """The `excess` of every wrong answer for every true class, in one array."""
        is_wrong = ~np.eye(len(self.classes), dtype=bool)
        return self.excess[is_wrong]

    def of(self, classes: Sequence[str], known: Iterable[str] | None = None) -> Costs:
        """The part of the table for these classes, in this order.

        classes: keys of the classes of a job, all of which the table must have; it may have others.
        known:   keys of all classes of the data set, to find misspelt classes of the table; None: there is no such
                 check.
        Raises FcaError if the table lacks one of `classes`, if it has a class that the data set does not have, and if
        every answer costs the same, so that no decision could save anything.
        """
        classes_of_data = set(self.classes if known is None else known)  # None: no class of the table is unknown
        for name in self.classes:
            if name not in classes_of_data:
                allowed = f"classes of the data set: {_first_names(sorted(classes_of_data))}"
                raise FcaError(f"class of {self.file}", repr(name), allowed, "correct its name, or leave it out")

        position_of = {name: position for position, name in enumerate(self.classes)}
        for name in classes:
            if name not in position_of:
                allowed = f"all of {_first_names(classes)}"
                step = f"add a line and a column {name!r}"
                raise FcaError(f"classes of {self.file}", f"without {name!r}", allowed, step)

        positions = [position_of[name] for name in classes]
        matrix = self.matrix[np.ix_(positions, positions)]
        costs = Costs(tuple(classes), matrix, self.file)
        if not costs.excess.any():
            allowed = "at least one answer that costs more than another for the same true class"
            raise FcaError(f"costs in {self.file}", "all equal", allowed, "give a wrong answer a cost above 0")
        return costs


def read_costs(file: str | Path) -> Costs:
    """Read a table of costs from a CSV file; `fca.csv_table` lists the formats that are read.

    The header has the answered classes, and the first column the true classes, each in any order; the corner cell is
    ignored. Raises FcaError for a file that does not exist, for a class that occurs twice or only in one of header and
    first column, and for a cell that is not a finite number of at least 0.
    """
    if not Path(file).is_file():
        raise FcaError("costs", file, CSV_FORM, "correct the path")

    frame = read_table(Path(file), file)
    corner, *answered_classes = frame.columns
    true_classes = frame[corner].str.strip().tolist()
    if not answered_classes or not true_classes:
        sizes = f"lines: {len(true_classes)}, classes in the header: {len(answered_classes)}"
        raise FcaError(f"costs in {file}", sizes, CSV_FORM, "add them")

    duplicates = [name for line, name in enumerate(true_classes) if name in true_classes[:line]]
    if duplicates:
        raise FcaError(f"lines of {file}", f"{duplicates[0]!r} twice", "one line a true class", "remove one of them")

    lines = {}
    for true, cells in zip(true_classes, frame[answered_classes].to_numpy(), strict=True):
        lines[true] = dict(zip(answered_classes, cells, strict=True))
    return costs_of(lines, str(file))


def costs_of(lines: Mapping[str, Mapping[str, Any]], file: str = "costs") -> Costs:
    """Make a table of costs from a mapping: true class -> answer -> cost.

    file: its source, for messages.

    The classes of the table have the order of the answers. Raises FcaError if the true classes are not the same as the
    answers, and for a missing cost or a cost that is not a finite number of at least 0.

    >>> costs_of({"cat": {"cat": 0, "dog": 1}, "dog": {"dog": 0, "cat": 2.5}}).matrix.tolist()
    [[0.0, 1.0], [2.5, 0.0]]
    """
    for line in lines.values():
        if not isinstance(line, Mapping):
            raise FcaError(file, line, "true class -> answer -> cost, or a CSV file", "correct it")

    costs = {}
    for true, line in lines.items():
        costs[str(true)] = {str(answer): cost for answer, cost in line.items()}

    true_classes = list(costs)
    answered_classes = list(dict.fromkeys(answer for line in costs.values() for answer in line))
    _check_all_in(true_classes, answered_classes, "the header", file)
    _check_all_in(answered_classes, true_classes, "the first column", file)

    matrix = np.empty((len(answered_classes), len(answered_classes)))
    for j, true in enumerate(answered_classes):
        for k, answered in enumerate(answered_classes):
            cell = costs[true].get(answered, "")  # a missing cost is an error, as an empty cell is
            matrix[j, k] = _checked_cost(cell, true, answered, file)
    return Costs(tuple(answered_classes), matrix, file)


def _check_all_in(names: Sequence[str], classes: Sequence[str], place: str, file: str) -> None:
    """Raise FcaError for a class of `names` that is not among `classes`, those in `place`: header or first column."""
    for name in names:
        if name not in classes:
            allowed = f"every class in both; {place} has {_first_names(classes)}"
            raise FcaError(f"class of {file}", repr(name), allowed, f"add it to {place}, or correct its name")


def _checked_cost(cell: Any, true: str, answered: str, file: str) -> float:
    """The cost in a cell. Raises FcaError unless it is a finite number of at least 0."""
    try:
        cost = math.nan if isinstance(cell, bool) else float(cell)  # YAML's true is no number
    except (TypeError, ValueError):
        cost = math.nan

    if not (math.isfinite(cost) and cost >= 0):
        raise FcaError(
            f"cost in {file} of {true!r} answered as {answered!r}",
            "an empty cell" if cell == "" else repr(cell),
            "a number of at least 0, e.g. 2.5",
            "correct it",
        )
    return cost


def _most_frequent(costs: Sequence[float]) -> float:
    """The most frequent cost; the lowest one if several are equally frequent, and 0 if there is none."""
    return max(costs, key=lambda cost: (costs.count(cost), -cost), default=0.0)


def _first_names(names: Sequence[str]) -> str:
    text = ", ".join(names[:MAX_NAMES])
    return f"{text}, ..." if len(names) > MAX_NAMES else text


class MeanCost(NamedTuple):
    """Mean cost of some images, and its 95 % interval for new images like them."""

    value: float
    low: float
    high: float


def mean_cost(costs: Costs, labels: Labels, answers: Labels) -> MeanCost:
    """The mean cost of these answers over the images, with a 95 % interval for new images.

    labels, answers: true class and answer of each image, as positions in `costs.classes`.

    The excess of an image is its cost above that of the cheapest answer for its true class; its score is
    1 - excess / largest excess of the table. `fca.stats.decision.accuracy_draws` draws the mean score, and the interval
    has the costs at its 97.5 % and 2.5 % quantiles. The draws are a Bayesian bootstrap with half an unseen image of
    excess 0 and half an unseen image of the largest excess. So the upper end stays high if too few images were seen to
    rule out a rare, expensive mistake. If all mistakes cost the same, it is Jeffreys' interval of the error.
    """
    largest = costs.excess.max()
    excess = costs.excess[labels, answers]
    mean_score_draws = accuracy_draws(1 - excess[None] / largest)[:, 0]  # it takes scores of several models: here one

    value = float(costs.paid(labels, answers).mean())
    unavoidable = value - float(excess.mean())  # the mean cost of the cheapest answers
    low = unavoidable + float(largest * (1 - np.quantile(mean_score_draws, 0.975)))
    high = unavoidable + float(largest * (1 - np.quantile(mean_score_draws, 0.025)))
    return MeanCost(value, low, high)


def format_cost(cost: float) -> str:
    """A cost with three significant digits, never with an exponent.

    >>> format_cost(0.41666), format_cost(1234.5), format_cost(0.00012), format_cost(0.0)
    ('0.417', '1,230', '0.00012', '0')
    """
    if not cost or not math.isfinite(cost):
        return f"{cost:g}"

    decimals = 2 - math.floor(math.log10(abs(cost)))  # negative for costs of 1,000 or more: 1,234 -> 1,230
    text = f"{round(cost, decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
