"""The choice among the programs of one job: what each is expected to reach, which three lines are the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.costs import mean_cost
from fca.metric import BALANCED, Metric
from fca.stats.chance import at_chance
from fca.stats.decision import pareto, probability_within
from fca.stats.intervals import balanced_accuracy
from fca.store import columns
from fca.store.columns import (
    FILE_MB,
    GFLOPS,
    INPUT_SIZE,
    LATENCY,
    LOAD,
    MEMORY,
    PARAMS,
    PRECISION,
    SPEED,
    TRAIN_S,
    WEIGHTS,
)
from fca.studies.recommend.evidence import ADAPTATION, FINETUNE, PROBE, Candidate, Evidence, Program
from fca.studies.recommend.expected import Expectation, KnownJobs
from fca.tables import table
from fca.tables.table import AT_CHANCE, CHANCE, MODEL, N_TEST, NCL, RUN_ID, TOP1, TOP1_PREDICTED
from fca.types import Column, with_interval

CANDIDATE = Column("candidate", str, "", "model: network, input size, depth and precision, and how it is adapted")
DEPTH = Column("depth", str, "", "whole, or cut before the last, widening layer")
PREDICTED = TOP1_PREDICTED.with_format(".1%", "accuracy expected from other jobs alone (90 %)")
JOBS = Column("jobs", int, ".0f", "other jobs that this rests on")
EXPECTED = Column("top1_expected", float, ".1%", "accuracy to expect on new images (90 %)")
EPOCHS = Column("epochs", int, ".0f", "epochs of its longest training")
SEEDS = table.SEEDS.with_format(".0f", "trainings of that length")
GAIN = Column("gain", float, "+.1%", "accuracy gained")
JUDGED = Column("top1_judged", float, ".1%", "accuracy on the images that chose: validation, and training left out")
N_JUDGED = columns.N_JUDGED.with_format(".0f", "images that chose")
WITHIN = Column("within", float, ".0%", "probability that it is within the margin of the best")
ON_FRONT = Column("on_front", bool, "", "whether no other candidate is as accurate and as fast")
WHY = Column("why", str, "", "the limit that it is over")
TESTED_COPIES = Column("tested_copies", int, ",", "test images that are copies of training or validation images")

CHOSEN, GUESS, GOOD, OPEN = "recommended", "best guess", "good enough", "undecided"
WORSE, UNTRAINED, UNMEASURED, REFUSED = "worse", "not trained", "speed not measured", "over a limit"
_VERDICTS = (CHOSEN, GUESS, GOOD, OPEN, WORSE, UNTRAINED, UNMEASURED, REFUSED)
VERDICT = table.VERDICT.with_format(
    "",
    "good enough: within the margin of the best with the confidence asked for, as far as it was trained; worse: not, "
    "with that confidence",
).with_choices({word: word for word in _VERDICTS})

SMALLEST, BEST, FASTER = "smallest", "most accurate", "half the time"
METRIC = Column("metric", str, "", "what decides: accuracy, balanced accuracy, or cost by a table of costs")
BALANCED_TOP1 = Column("balanced_top1", float, ".1%", "mean over classes of the accuracy on their test images")
COST = Column("cost", float, ".3g", "mean cost of a test image, in the unit of the table of costs")
COST_EXPECTED = Column("cost_expected", float, ".3g", "mean cost to expect of new images (90 %)")
COST_JUDGED = Column("cost_judged", float, ".3g", "mean cost of the images that chose")
COST_OF_ONE_ANSWER = Column(
    "cost_of_one_answer", float, ".3g", "least mean cost of one and the same answer to all test images"
)
ONE_ANSWER = Column("one_answer", str, "", "that answer")
LINE = Column("line", str, "", "which line of the answer it is", {name: name for name in (SMALLEST, BEST, FASTER)})
FASTER_POINTS = 2  # of accuracy, or as many more mistakes in a hundred: the most that half the time may cost
TIMES_IMAGES = (2, 3, 5, 10, 20, 50, 100)  # times as many images, tried in turn


@dataclass(frozen=True)
class Limits:
    """What is asked of a model.

    within: how far below the best it may be, in the metric's score.    confidence: that it is.
    latency_ms, memory_mb, file_mb, params_m: the most that it may take; None: no limit.
    smallest: the column by which one model is smaller than another.
    """

    within: float
    confidence: float
    latency_ms: float | None = None
    memory_mb: float | None = None
    file_mb: float | None = None
    params_m: float | None = None
    smallest: str = "latency_ms"

    def over(self, speed: Mapping[str, Any] | None) -> str | None:
        """The limit that a measured network is over, in words."""
        if speed is None:
            return None
        limits = {
            "latency_ms": self.latency_ms,
            "memory_mb": self.memory_mb,
            "file_mb": self.file_mb,
            "params": self.params_m,
        }
        for name, most in limits.items():
            value = _number(speed.get(name)) / (1e6 if name == "params" else 1)
            if most is not None and not value <= most:  # also what was not measured
                return f"{name.replace('params', 'params_m')} = {value:.3g} > {most:g}"
        return None

    def cost(self, speed: Mapping[str, Any] | None) -> float:
        """By which candidates are compared; infinite where it was not measured."""
        value = _number((speed or {}).get(self.smallest))
        return float("inf") if np.isnan(value) else value


class Line(NamedTuple):
    """One line of the answer.    name: SMALLEST, BEST or FASTER.    at: position of the candidate."""

    name: str
    at: int


class Weighed:
    """The candidates of one job, what is expected of each, and which is recommended.

    compared: positions of those within all limits that were measured and judged.
    """

    def __init__(self, of: Evidence, known: KnownJobs, limits: Limits, metric: Metric) -> None:
        self.of, self.known, self.limits, self.metric = of, known, limits, metric
        self.candidates: Sequence[Candidate] = of.candidates
        self.over = [limits.over(candidate.speed) for candidate in self.candidates]
        self.cost = np.array([limits.cost(candidate.speed) for candidate in self.candidates])
        self.expectation: Expectation = known.expectation(of, metric)
        self.draws = self.expectation.draws
        self.compared = [
            at
            for at, candidate in enumerate(self.candidates)
            if candidate.trained and candidate.speed is not None and self.over[at] is None
        ]
        self.within = np.full(len(self.candidates), np.nan)
        self.within[self.compared] = probability_within(self.draws[:, self.compared], limits.within)

    @cached_property
    def mean(self) -> Float[np.ndarray, " candidates"]:
        """Expected accuracy; of costs, expected score."""
        return self.draws.mean(axis=0)

    @cached_property
    def best(self) -> int | None:
        """The most accurate within the limits, as far as is known; None before any training."""
        return max(self.compared, key=lambda at: self.mean[at], default=None)

    @cached_property
    def answer(self) -> int | None:
        """The smallest that is expected to be within the margin of the best; None before any training.

        Of several whose times cannot be told apart, the most accurate.
        """
        if self.best is None:
            return None
        lowest = self.mean[self.best] - self.limits.within
        good = [at for at in self.compared if self.mean[at] >= lowest]
        smallest = min(good, key=lambda at: self.cost[at])
        as_small = [at for at in good if self.cost[at] == self.cost[smallest] or self._are_times_alike(at, smallest)]
        return max(as_small, key=lambda at: self.mean[at])

    def _are_times_alike(self, one: int, other: int) -> bool:
        """Whether time decides, and the intervals of these candidates' times overlap."""
        if self.limits.smallest != LATENCY:
            return False
        speeds = [self.candidates[at].speed or {} for at in (one, other)]
        lows, highs = ([_number(speed.get(end)) for speed in speeds] for end in (LATENCY.low, LATENCY.high))
        return bool(np.max(lows) <= np.min(highs))  # False where one was measured without an interval

    @property
    def is_sure(self) -> bool:
        """Whether the answer is within the margin of the best with the confidence asked for."""
        return self.answer is not None and bool(self.within[self.answer] >= self.limits.confidence)

    @cached_property
    def lines(self) -> list[Line]:
        """The answer: the smallest within the margin, the most accurate, and half the time for at most two points."""
        if self.answer is None or self.best is None:
            return []
        faster = [
            at
            for at in self.compared
            if self.cost[at] <= self.cost[self.answer] / 2
            and self.mean[at] >= self.mean[self.answer] - FASTER_POINTS * self.metric.point
        ]
        lines = [Line(SMALLEST, self.answer), Line(BEST, self.best)]
        if faster:
            lines.append(Line(FASTER, max(faster, key=lambda at: self.mean[at])))
        return lines

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        """The training to use."""
        return None if self.answer is None else self.candidates[self.answer].first

    @property
    def can_be_shipped(self) -> bool:
        """Whether the training to use is a network, which `fca export` writes; HOG has no parameters and is none."""
        return self.answer is not None and bool((self.candidates[self.answer].speed or {}).get("params"))

    @cached_property
    def guess(self) -> float:
        """Accuracy on test images of always predicting the most frequent class; NaN without any."""
        images = self.of.images("test")
        return float(images.max() / images.sum()) if images.sum() else float("nan")

    @property
    def chosen_is_at_chance(self) -> bool:
        """Whether the test images do not show that the training to use is better than guessing."""
        return self.chosen is not None and _is_at_chance(self.chosen, self.guess)

    def position(self, program: Program) -> int:
        """Of a candidate among all."""
        return next(at for at, candidate in enumerate(self.candidates) if candidate.program == program)

    def front(self, some: Sequence[int]) -> list[bool]:
        """Which of these candidates no other of them beats in accuracy and size."""
        return pareto(self.mean[list(some)], self.cost[list(some)]).tolist()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One line a candidate: the recommended one first, then by expected accuracy."""
        inside = [at for at, limit in enumerate(self.over) if limit is None]
        on_front = {at for at, on in zip(inside, self.front(inside), strict=True) if on}
        line_of = {line.at: line.name for line in reversed(self.lines)}
        lines = [
            self._line(at) | {ON_FRONT: at in on_front, LINE: line_of.get(at)} for at in range(len(self.candidates))
        ]
        order = sorted(range(len(lines)), key=lambda at: (at != self.answer, -self.mean[at], at))
        return pd.DataFrame([lines[at] for at in order])

    @cached_property
    def answer_frame(self) -> pd.DataFrame:
        """The lines of the answer, each with all that is known of its candidate."""
        return pd.DataFrame([{LINE: line.name, **self._line(line.at)} for line in self.lines])

    def _line(self, at: int) -> dict[str, Any]:
        candidate = self.candidates[at]
        program = candidate.program
        line: dict[str, Any] = {
            CANDIDATE: program.name,
            MODEL: program.network,
            WEIGHTS: program.weights,
            INPUT_SIZE: program.size,
            DEPTH: program.depth,
            PRECISION: program.precision,
            ADAPTATION: program.adaptation,
            NCL: len(self.of.job.classes),
            VERDICT: self._verdict(at),
            WHY: self.over[at],
            WITHIN: self.within[at],
            METRIC: self.metric.name,
            JOBS: self.known.number,
            **self._expected(at),
        }
        if candidate.speed is not None:
            columns = (*with_interval(LATENCY), SPEED, GFLOPS, MEMORY, FILE_MB, PARAMS, LOAD)
            line |= {column: candidate.speed.get(column) for column in columns}
        if candidate.trained:
            line |= self._trained(candidate)
        return line

    def _expected(self, at: int) -> dict[str, Any]:
        """What is expected of a candidate, with 90 % intervals: its accuracy, or its cost in the user's unit."""
        low, high = np.quantile(self.draws[:, at], (0.05, 0.95))
        if self.metric.costs is not None:
            values = (self.metric.cost(score) for score in (self.mean[at], high, low))
            return dict(zip(with_interval(COST_EXPECTED), values, strict=True))
        before = self.expectation.before[:, at]
        before_low, before_high = np.quantile(before, (0.05, 0.95))
        return {
            **dict(zip(with_interval(EXPECTED), (self.mean[at], low, high), strict=True)),
            **dict(zip(with_interval(PREDICTED), (before.mean(), before_low, before_high), strict=True)),
        }

    def _trained(self, candidate: Candidate) -> dict[str, Any]:
        first, judged = candidate.first, self.of.judged(candidate.first, self.metric)
        line: dict[str, Any] = {column: first.get(column) for column in (*with_interval(TOP1), N_TEST, TRAIN_S, RUN_ID)}
        line |= {
            CHANCE: self.guess,
            AT_CHANCE: _is_at_chance(first, self.guess),
            TESTED_COPIES: self.of.tested_copies,
            EPOCHS: first.get("recipe_epochs"),
            SEEDS: len(candidate.trained),
            N_JUDGED: len(judged.labels),
        }
        if self.metric.costs is None:
            line |= {JUDGED: self.metric.value(judged.labels, judged.predicted)}
            return line | self._balanced_on_test(first)
        paid = self.metric.costs.paid(judged.labels, judged.predicted)
        return line | {COST_JUDGED: float(paid.mean())} | self._cost_on_test(first)

    def _balanced_on_test(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a training gets right of test images, each class alike, where that is the metric."""
        if self.metric.name != BALANCED or row["run_id"] not in self.of.tested:
            return {}
        tested = self.of.answered(row, "test", self.metric)
        images = np.bincount(tested.labels)
        correct = np.bincount(tested.labels, weights=tested.labels == tested.predicted)
        balanced = balanced_accuracy(correct[images > 0], images[images > 0])
        return dict(zip(with_interval(BALANCED_TOP1), balanced, strict=True))

    def _cost_on_test(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What the answers of a training for the test images cost, and the best one and the same answer to all."""
        costs = self.metric.costs
        if costs is None or row["run_id"] not in self.of.tested:
            return {}
        tested = self.of.answered(row, "test", self.metric)
        paid = mean_cost(costs, tested.labels, tested.predicted)
        of_each = costs.matrix[tested.labels].mean(axis=0)
        return {
            **dict(zip(with_interval(COST), paid, strict=True)),
            COST_OF_ONE_ANSWER: float(of_each.min()),
            ONE_ANSWER: costs.classes[int(of_each.argmin())],
        }

    def _verdict(self, at: int) -> str:
        if self.over[at] is not None:
            return REFUSED
        if at not in self.compared:
            return UNMEASURED if self.candidates[at].trained else UNTRAINED
        if at == self.answer:
            return CHOSEN if self.is_sure else GUESS
        if self.within[at] >= self.limits.confidence:
            return GOOD
        return WORSE if self.within[at] <= 1 - self.limits.confidence else OPEN

    # What would change the answer

    def steps(self) -> Iterator[tuple[str, str]]:
        """What to try, most telling first, each with its reason."""
        if self.answer is None:
            yield "give more minutes", "no candidate within the limits has been trained"
            return
        if self.chosen_is_at_chance:
            yield (
                "give more images, and look at the labels",
                "no better than guessing, the images show nothing else",
            )
            yield from self._weights_step()
            return
        yield from self._weights_step()
        if not self.is_sure:
            yield self._more_images_step()
        yield from self._limits_step()
        yield from self._finetuning_step()

    def _weights_step(self) -> Iterator[tuple[str, str]]:
        """Pretrained weights, where no candidate has any: nothing else gains as much."""
        if not any(candidate.program.weights for candidate in self.candidates):
            yield (
                "pip install 'fca[weights]'",
                "no candidate has pretrained weights; with them a linear probe is usually far more accurate",
            )

    def _finetuning_step(self) -> Iterator[tuple[str, str]]:
        """Fine-tuning the networks of the answer, where that was not tried."""
        trained = {candidate.program for candidate in self.candidates if candidate.trained}
        for line in self.lines[:2]:
            program = self.candidates[line.at].program
            tuned = program._replace(precision="fp32", adaptation=FINETUNE)
            if program.adaptation != PROBE or program.weights is None or tuned in trained:
                continue
            why = "a probe leaves the network as it is; fine-tuning starts from it, and is kept where it is better"
            yield f"fine-tune {program.network} at {program.size} px: minutes=20", why
            return

    def _more_images_step(self) -> tuple[str, str]:
        """How many images would make the answer sure."""
        n = self.expectation.n_judged
        for times in TIMES_IMAGES:
            draws = self.known.expectation(self.of, self.metric, times).draws[:, self.compared]
            if probability_within(draws, self.limits.within).max() >= self.limits.confidence:
                why = f"about {times} times as many would settle it, were all as accurate as now"
                return f"judge by about {times * n} images instead of {n}", why
        margin = self.metric.difference(self.limits.within)
        return "accept a wider margin", f"no number of images would separate models {margin} apart"

    def _limits_step(self) -> Iterator[tuple[str, str]]:
        """What a candidate over the limits would add."""
        over = [at for at, limit in enumerate(self.over) if limit is not None]
        if not over or self.best is None:
            return
        best = max(over, key=lambda at: self.mean[at])
        gain = float(self.mean[best] - self.mean[self.best])
        if gain >= self.limits.within:
            name = self.candidates[best].program.name
            gained = (
                f"add {100 * gain:.1f} points" if self.metric.costs is None else f"save {self.metric.difference(gain)}"
            )
            yield "relax the limits", f"{name} is expected to {gained} ({self.over[best]})"


def _is_at_chance(row: Mapping[str, Any], guess: float) -> bool:
    """Of a training on its test images."""
    low = row.get(TOP1.low)
    return low is not None and at_chance(float(low), guess)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
