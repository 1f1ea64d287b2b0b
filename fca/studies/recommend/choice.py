"""The choice among the programs of one job: the expected accuracy of each, and the up to three lines of the answer."""

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
from fca.stats.chance import is_at_chance
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
from fca.studies.recommend.expected import Expectation, OtherJobs
from fca.tables import table
from fca.tables.table import AT_CHANCE, CHANCE, MODEL, N_TEST, NCL, RUN_ID, TOP1, TOP1_PREDICTED
from fca.types import Column, interval_columns

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
    "good enough: within the margin of the best with the requested confidence, as far as it was trained; worse: not, "
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
FASTER_POINTS = 2  # accuracy that half the time may cost, points; of costs, mistakes per hundred images
TIMES_IMAGES = (2, 3, 5, 10, 20, 50, 100)  # multiples of the number of images, tried in turn


@dataclass(frozen=True)
class Limits:
    """What a model must satisfy.

    within:     margin: how far the model may be below the best one, in the metric's score.
    confidence: probability with which it has to be within the margin.
    latency_ms, memory_mb, file_mb, params_m: the largest values allowed; None: no limit.
    smallest:   the column by which one model is smaller than another.
    """

    within: float
    confidence: float
    latency_ms: float | None = None
    memory_mb: float | None = None
    file_mb: float | None = None
    params_m: float | None = None
    smallest: str = "latency_ms"

    def exceeded(self, latency_row: Mapping[str, Any] | None) -> str | None:
        """The first limit that a measured program exceeds, such as "latency_ms = 12.3 > 10"; None if it exceeds none.

        latency_row: the stored result of task=latency; None if the program was not measured at all. It then exceeds no
            limit, but is not compared either.
        """
        if latency_row is None:
            return None

        params = _number(latency_row.get("params"))  # _number: NaN for a missing value
        value_and_limit = {
            "latency_ms": (_number(latency_row.get("latency_ms")), self.latency_ms),
            "memory_mb": (_number(latency_row.get("memory_mb")), self.memory_mb),
            "file_mb": (_number(latency_row.get("file_mb")), self.file_mb),
            "params_m": (params / 1e6, self.params_m),
        }
        for name, (value, limit) in value_and_limit.items():
            is_within = limit is None or value <= limit  # False for NaN: what was not measured may exceed the limit
            if not is_within:
                return f"{name} = {value:.3g} > {limit:g}"
        return None

    def size(self, latency_row: Mapping[str, Any] | None) -> float:
        """The value of column `smallest`, by which candidates are compared; infinite if it was not measured."""
        value = _number((latency_row or {}).get(self.smallest))
        return float("inf") if np.isnan(value) else value


class Line(NamedTuple):
    """One line of the recommendation.

    name:      SMALLEST, BEST (the most accurate) or FASTER (half the time of the smallest).
    candidate: position among the candidates.
    """

    name: str
    candidate: int


class Comparison:
    """The candidates of one job, the expected accuracy of each, and which is recommended.

    Methods take the position of a candidate, and attributes have one entry for each candidate.

    exceeded: the limit that it exceeds, in words, or None.
    sizes:    the value by which one candidate is smaller than another, such as its time.
    draws:    joint posterior draws of the expected accuracies, draws x candidates; with costs, of scores.
    compared: positions of the candidates within all limits that were measured and trained.
    within:   probability of each of these to be within the margin of the best of them; NaN for the others.
    """

    def __init__(self, evidence: Evidence, other_jobs: OtherJobs, limits: Limits, metric: Metric) -> None:
        """Compare the candidates of a job: the programs that were measured or trained for its images and classes.

        evidence:   stored results of the job.
        other_jobs: results on other jobs, from which the prior of each candidate's accuracy comes.
        limits:     what the recommended program must satisfy, such as a time for one image.
        metric:     by which candidates are compared: accuracy, balanced accuracy or cost.
        """
        self.evidence = evidence
        self.other_jobs = other_jobs
        self.limits = limits
        self.metric = metric

        self.candidates: Sequence[Candidate] = evidence.candidates
        self.exceeded = [limits.exceeded(candidate.latency_row) for candidate in self.candidates]
        # what is to be small: the time for one image, or another measured column that `limits.smallest` names
        self.sizes = np.array([limits.size(candidate.latency_row) for candidate in self.candidates])

        self.expectation: Expectation = other_jobs.expectation(evidence, metric)
        # random draws from the joint posterior of the candidates' accuracies: draws x candidates
        self.draws = self.expectation.draws

        # positions of the candidates that are within the limits, and whose speed and accuracy are both known
        self.compared = [
            i
            for i, candidate in enumerate(self.candidates)
            if candidate.trainings and candidate.latency_row is not None and self.exceeded[i] is None
        ]
        # the probability of each to be within the margin (limits.within) of the best; NaN for candidates not compared
        self.within = np.full(len(self.candidates), np.nan)
        self.within[self.compared] = probability_within(self.draws[:, self.compared], limits.within)

    @cached_property
    def mean(self) -> Float[np.ndarray, " candidates"]:
        """Expected accuracy of each candidate; with costs, its expected score."""
        return self.draws.mean(axis=0)

    @cached_property
    def best(self) -> int | None:
        """The candidate within the limits with the highest expected accuracy; None before any training."""
        return max(self.compared, key=lambda i: self.mean[i], default=None)

    @cached_property
    def answer(self) -> int | None:
        """Position of the recommended candidate: the smallest that is expected to be within the margin of the best.

        Among candidates that are as small, or whose times do not differ significantly, it is the most accurate one.
        Candidates over a limit, or without a measurement or a training, are not considered. None if none is left.

        `self.mean` has the expected accuracies of the candidates, `self.best` the position of the highest among
        `self.compared`, and `self.sizes` what is to be small, usually the time for one image.
        """
        if self.best is None:
            return None

        lowest_mean = self.mean[self.best] - self.limits.within  # limits.within: the margin
        within_margin = [i for i in self.compared if self.mean[i] >= lowest_mean]
        smallest = min(within_margin, key=lambda i: self.sizes[i])

        as_small = [
            i
            for i in within_margin
            if self.sizes[i] == self.sizes[smallest] or self._are_times_indistinguishable(i, smallest)
        ]
        return max(as_small, key=lambda i: self.mean[i])

    def _are_times_indistinguishable(self, i: int, j: int) -> bool:
        """Whether candidates are compared by time, and the intervals of these two candidates' times overlap."""
        if self.limits.smallest != LATENCY:
            return False
        latency_rows = [self.candidates[k].latency_row or {} for k in (i, j)]
        lows = [_number(row.get(LATENCY.low)) for row in latency_rows]
        highs = [_number(row.get(LATENCY.high)) for row in latency_rows]
        return bool(np.max(lows) <= np.min(highs))  # False for NaN: measured without an interval

    @property
    def is_sure(self) -> bool:
        """Whether the recommended candidate is within the margin of the best with the requested confidence."""
        return self.answer is not None and bool(self.within[self.answer] >= self.limits.confidence)

    @cached_property
    def lines(self) -> list[Line]:
        """The lines of the recommendation: the smallest candidate within the margin of the best, and the best one.

        The smallest one is the recommended candidate. A third line, if any, has a candidate of at most half the time
        (or size) of the recommended one: the most accurate of those whose expected accuracy is at most FASTER_POINTS
        below that of the recommended one. Empty if no candidate can be compared.
        """
        if self.answer is None or self.best is None:
            return []

        lines = [Line(SMALLEST, self.answer), Line(BEST, self.best)]
        half_the_size = self.sizes[self.answer] / 2
        # one point is a hundredth of the accuracy, or with costs one mistake in a hundred images
        lowest_mean = self.mean[self.answer] - FASTER_POINTS * self.metric.point
        faster = [i for i in self.compared if self.sizes[i] <= half_the_size and self.mean[i] >= lowest_mean]
        if faster:
            lines.append(Line(FASTER, max(faster, key=lambda i: self.mean[i])))
        return lines

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        """The row of the training to use, which trained the recommended candidate; None before any training."""
        return None if self.answer is None else self.candidates[self.answer].first_training

    @property
    def can_be_shipped(self) -> bool:
        """Whether `fca export` can write the training to use; HOG has no parameters and is not a network."""
        if self.answer is None:
            return False
        latency_row = self.candidates[self.answer].latency_row or {}
        return bool(latency_row.get("params"))

    @cached_property
    def guess(self) -> float:
        """Accuracy on test images of always predicting the most frequent class; NaN without any test image."""
        images = self.evidence.images("test")
        return float(images.max() / images.sum()) if images.sum() else float("nan")

    @property
    def chosen_is_at_chance(self) -> bool:
        """Whether the test images do not show that the training to use is better than guessing."""
        return self.chosen is not None and _is_at_chance(self.chosen, self.guess)

    def position(self, program: Program) -> int:
        """The position of a program's candidate."""
        return next(i for i, candidate in enumerate(self.candidates) if candidate.program == program)

    def front(self, positions: Sequence[int]) -> list[bool]:
        """For each of these candidates, whether no other of them is both as accurate and as small."""
        return pareto(self.mean[list(positions)], self.sizes[list(positions)]).tolist()

    # Tables

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One line per candidate: the recommended one first, then by decreasing expected accuracy.

        Beside the columns of each candidate: whether it is on the front of accuracy and size, among those within the
        limits, and the name of its line of the recommendation.
        """
        allowed = [i for i, limit in enumerate(self.exceeded) if limit is None]
        on_front = {i for i, is_on_front in zip(allowed, self.front(allowed), strict=True) if is_on_front}
        # reversed, so that a candidate of two lines keeps the name of the first one
        line_of_candidate = {line.candidate: line.name for line in reversed(self.lines)}

        order = sorted(range(len(self.candidates)), key=lambda i: (i != self.answer, -self.mean[i], i))
        return pd.DataFrame([{**self._line(i), ON_FRONT: i in on_front, LINE: line_of_candidate.get(i)} for i in order])

    @cached_property
    def answer_frame(self) -> pd.DataFrame:
        """The lines of the recommendation, each with all columns of its candidate."""
        return pd.DataFrame([{LINE: line.name, **self._line(line.candidate)} for line in self.lines])

    def _line(self, i: int) -> dict[str, Any]:
        """The columns of candidate i in both tables: of all candidates, and of the lines of the recommendation.

        The columns have its program, the verdict on it, the limit that it exceeds (WHY), the probability that it is
        within the margin of the best (WITHIN), the number of other jobs behind the prior (JOBS), and its results.
        """
        candidate = self.candidates[i]
        program = candidate.program
        return {
            CANDIDATE: program.name,
            MODEL: program.network,
            WEIGHTS: program.weights,
            INPUT_SIZE: program.size,
            DEPTH: program.depth,
            PRECISION: program.precision,
            ADAPTATION: program.adaptation,
            NCL: len(self.evidence.job.classes),
            VERDICT: self._verdict(i),
            WHY: self.exceeded[i],
            WITHIN: self.within[i],
            METRIC: self.metric.name,
            JOBS: self.other_jobs.number,
            **self._expected_columns(i),
            **self._measured_columns(candidate),
            **self._training_columns(candidate),
        }

    def _expected_columns(self, i: int) -> dict[str, Any]:
        """The expected accuracy of candidate i with its 90 % interval, and the accuracy expected from other jobs alone.

        With costs, there is only the expected cost in the user's unit, with its 90 % interval.
        """
        low, high = np.quantile(self.draws[:, i], (0.05, 0.95))
        if self.metric.costs is not None:
            costs = [self.metric.cost(score) for score in (self.mean[i], high, low)]  # a high score is a low cost
            return dict(zip(interval_columns(COST_EXPECTED), costs, strict=True))

        expected = (self.mean[i], low, high)
        prior_draws = self.expectation.prior_draws[:, i]
        prior_low, prior_high = np.quantile(prior_draws, (0.05, 0.95))
        expected_before = (prior_draws.mean(), prior_low, prior_high)
        return {
            **dict(zip(interval_columns(EXPECTED), expected, strict=True)),
            **dict(zip(interval_columns(PREDICTED), expected_before, strict=True)),
        }

    @staticmethod
    def _measured_columns(candidate: Candidate) -> dict[str, Any]:
        """Time, memory and size of a candidate; none if it was not measured."""
        if candidate.latency_row is None:
            return {}
        measured = (*interval_columns(LATENCY), SPEED, GFLOPS, MEMORY, FILE_MB, PARAMS, LOAD)
        return {column: candidate.latency_row.get(column) for column in measured}

    def _training_columns(self, candidate: Candidate) -> dict[str, Any]:
        """Columns of a candidate's first training, which is the one to use; none if it was not trained.

        The columns have its results on test images, and its accuracy or mean cost on the images that judge candidates:
        validation images, and training images to which a probe was not fitted.
        """
        if not candidate.trainings:
            return {}

        training = candidate.first_training
        judged = self.evidence.judged(training, self.metric)
        stored = (*interval_columns(TOP1), N_TEST, TRAIN_S, RUN_ID)
        line: dict[str, Any] = {
            **{column: training.get(column) for column in stored},
            CHANCE: self.guess,  # accuracy of always predicting the most frequent class
            AT_CHANCE: _is_at_chance(training, self.guess),
            TESTED_COPIES: self.evidence.tested_copies,  # test images that are copies of training or validation images
            EPOCHS: training.get("recipe_epochs"),
            SEEDS: len(candidate.trainings),
            N_JUDGED: len(judged.labels),
        }
        if self.metric.costs is None:
            value = self.metric.value(judged.labels, judged.predicted)
            return {**line, JUDGED: value, **self._balanced_on_test(training)}

        paid = self.metric.costs.paid(judged.labels, judged.predicted)  # the cost of each image
        return {**line, COST_JUDGED: float(paid.mean()), **self._cost_on_test(training)}

    def _balanced_on_test(self, training: Mapping[str, Any]) -> dict[str, Any]:
        """Balanced accuracy of a training on test images with its 95 % interval, if that is the metric.

        No columns under other metrics, and for a training without predictions for test images.
        """
        if self.metric.name != BALANCED or training["run_id"] not in self.evidence.test_rows:
            return {}
        tested = self.evidence.answered(training, "test", self.metric)
        n_images = np.bincount(tested.labels)
        n_right = np.bincount(tested.labels, weights=tested.labels == tested.predicted)

        has_images = n_images > 0  # a class without test images has no accuracy
        balanced = balanced_accuracy(n_right[has_images], n_images[has_images])
        return dict(zip(interval_columns(BALANCED_TOP1), balanced, strict=True))

    def _cost_on_test(self, training: Mapping[str, Any]) -> dict[str, Any]:
        """Mean cost of a training's answers to the test images, and of the cheapest single answer to all of them.

        No columns without costs, and for a training without predictions for test images.
        """
        costs = self.metric.costs
        if costs is None or training["run_id"] not in self.evidence.test_rows:
            return {}
        tested = self.evidence.answered(training, "test", self.metric)
        cost_with_interval = mean_cost(costs, tested.labels, tested.predicted)
        # for each class, the mean cost if it were the answer to every image; costs.matrix: true class x answer
        cost_of_answer = costs.matrix[tested.labels].mean(axis=0)
        return {
            **dict(zip(interval_columns(COST), cost_with_interval, strict=True)),
            COST_OF_ONE_ANSWER: float(cost_of_answer.min()),
            ONE_ANSWER: costs.classes[int(cost_of_answer.argmin())],
        }

    def _verdict(self, i: int) -> str:
        """The verdict on candidate i, one word of VERDICT.

        For candidates that can be compared it depends on the probability that they are within the margin of the best.
        """
        if self.exceeded[i] is not None:
            return REFUSED
        # within the limits, but not compared: if it was trained, its speed is missing, otherwise the training is
        if i not in self.compared:
            return UNMEASURED if self.candidates[i].trainings else UNTRAINED
        if i == self.answer:
            return CHOSEN if self.is_sure else GUESS
        if self.within[i] >= self.limits.confidence:
            return GOOD
        if self.within[i] <= 1 - self.limits.confidence:
            return WORSE
        return OPEN  # too few images to decide

    # What would change the answer

    def steps(self) -> Iterator[tuple[str, str]]:
        """What to try to get a better or a surer answer, the most useful first: pairs of a step and its reason."""
        if self.answer is None:
            yield "give more minutes", "no candidate within the limits has been trained"
            return
        if self.chosen_is_at_chance:
            yield (
                "give more images, and look at the labels",
                "the model is no better than guessing on these images",
            )
            yield from self._pretrained_weights_step()
            return
        yield from self._pretrained_weights_step()
        if not self.is_sure:
            yield self._more_images_step()
        yield from self._limits_step()
        yield from self._finetuning_step()

    def _pretrained_weights_step(self) -> Iterator[tuple[str, str]]:
        """The step to install pretrained weights, if no candidate has any: nothing else gains as much."""
        if not any(candidate.program.weights for candidate in self.candidates):
            yield (
                "pip install 'fca[weights]'",
                "no candidate has pretrained weights; with them a linear probe is usually far more accurate",
            )

    def _finetuning_step(self) -> Iterator[tuple[str, str]]:
        """The step to fine-tune a recommended network that has only been probed.

        Yields at most one step: for the smallest candidate within the margin if it is a linear probe and its network is
        not fine-tuned yet, or else for the most accurate candidate.
        """
        trained = {candidate.program for candidate in self.candidates if candidate.trainings}
        smallest_and_best = self.lines[:2]
        for line in smallest_and_best:
            program = self.candidates[line.candidate].program
            finetuned = program._replace(precision="fp32", adaptation=FINETUNE)  # networks are trained in fp32
            is_probed_network = program.adaptation == PROBE and program.weights is not None  # HOG has no weights
            if not is_probed_network or finetuned in trained:
                continue

            reason = "a linear probe trains only the last layer; fine-tuning trains all layers, starting from the probe"
            yield f"fine-tune {program.network} at {program.size} px: minutes=20", reason
            return

    def _more_images_step(self) -> tuple[str, str]:
        """The step to judge by more images, with how many are needed until some candidate is surely within the margin.

        The multiples TIMES_IMAGES of the present number are tried in turn, and the first that is enough is stated. If
        none is enough, the step is to accept a wider margin. Returns the step and its reason.
        """
        n = self.expectation.n_judged
        for times in TIMES_IMAGES:
            # as if `times` as many images had judged the candidates, with the same results
            expectation = self.other_jobs.expectation(self.evidence, self.metric, times)
            draws = expectation.draws[:, self.compared]
            if probability_within(draws, self.limits.within).max() >= self.limits.confidence:
                reason = f"about {times} times as many would settle it, were all as accurate as now"
                return f"judge by about {times * n} images instead of {n}", reason

        margin_text = self.metric.difference(self.limits.within)
        return "accept a wider margin", f"no number of images would separate models {margin_text} apart"

    def _limits_step(self) -> Iterator[tuple[str, str]]:
        """The step to relax the limits, if the best candidate over a limit is better than the best one within them.

        Yields no step if the gain is less than the margin, since the user does not mind so small a difference.
        """
        over_limits = [i for i, limit in enumerate(self.exceeded) if limit is not None]
        if not over_limits or self.best is None:
            return

        best_over_limits = max(over_limits, key=lambda i: self.mean[i])
        gain = float(self.mean[best_over_limits] - self.mean[self.best])
        if gain < self.limits.within:
            return

        name = self.candidates[best_over_limits].program.name
        if self.metric.costs is None:
            effect = f"add {100 * gain:.1f} points"
        else:
            effect = f"save {self.metric.difference(gain)}"
        yield "relax the limits", f"{name} is expected to {effect} ({self.exceeded[best_over_limits]})"


def _is_at_chance(training: Mapping[str, Any], guess: float) -> bool:
    """Whether the accuracy of a training on test images is at the level of chance.

    guess: accuracy of always predicting the most frequent class. False for a training without an accuracy.
    """
    low = training.get(TOP1.low)
    return low is not None and is_at_chance(float(low), guess)


def _number(value: Any) -> float:
    """The value of a stored column as a number; NaN if it is missing."""
    return float("nan") if value is None else float(value)
