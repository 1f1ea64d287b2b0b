"""Which model to use for these images: the front of accuracy and time, a choice on it, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import pandas as pd

from fca.allowed import Allowed
from fca.costs import Costs, costs_of, read_costs
from fca.metric import ACCURACY, BALANCED, BY_COST, Metric
from fca.store import Store
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
from fca.studies.recommend.choice import (
    BALANCED_TOP1,
    CANDIDATE,
    COST,
    COST_EXPECTED,
    COST_JUDGED,
    COST_OF_ONE_ANSWER,
    DEPTH,
    EPOCHS,
    EXPECTED,
    JOBS,
    JUDGED,
    LINE,
    METRIC,
    N_JUDGED,
    ON_FRONT,
    ONE_ANSWER,
    PREDICTED,
    SEEDS,
    TESTED_COPIES,
    VERDICT,
    WHY,
    WITHIN,
    Limits,
    Weighed,
)
from fca.studies.recommend.evidence import ADAPTATION, COMMAND, Evidence, evidence, job_names
from fca.studies.recommend.expected import KnownJobs, known_jobs
from fca.studies.recommend.finetuning import FINETUNING, finetuning
from fca.studies.recommend.images import CLASSES, CONFUSIONS, RELABEL, classes, confusions, mislabelled
from fca.studies.recommend.more_images import MORE_IMAGES, more_images
from fca.tables.keys import Query
from fca.tables.rows import require
from fca.tables.table import AT_CHANCE, CHANCE, DATASET, MODEL, N_TEST, NCL, RUN_ID, TOP1, TableSpec, filled
from fca.types import Column, FcaError, Table, with_interval

STEP, REASON = Column("step", str, "", "what to try"), Column("reason", str, "", "why")
SOURCE = (
    "hierarchical model of accuracies (Gelman et al. 2013, chapter 15) with paired images; "
    "Hsu, 1984 (comparisons with the best)"
)
OF_CANDIDATE = (
    *(CANDIDATE, MODEL, WEIGHTS, INPUT_SIZE, DEPTH, PRECISION, ADAPTATION, VERDICT, WHY),
    *(METRIC, *with_interval(EXPECTED), WITHIN, *with_interval(LATENCY), FILE_MB, SPEED, GFLOPS, MEMORY),
    *(PARAMS, LOAD, *with_interval(PREDICTED), JOBS, JUDGED, N_JUDGED, EPOCHS, SEEDS, TRAIN_S),
    *(*with_interval(TOP1), *with_interval(BALANCED_TOP1), CHANCE, AT_CHANCE, N_TEST, TESTED_COPIES, RUN_ID),
    *(*with_interval(COST_EXPECTED), COST_JUDGED, *with_interval(COST), COST_OF_ONE_ANSWER, ONE_ANSWER),
)
RECOMMENDATION = TableSpec(
    "recommendation",
    "Which model should I use?",
    SOURCE,
    (DATASET, NCL, LINE, *OF_CANDIDATE, ON_FRONT),
)
ANSWER = TableSpec(
    "recommendation_answer",
    "Which model is the smallest within some points of the best, the most accurate, and one of half the time?",
    SOURCE,
    (DATASET, NCL, LINE, *OF_CANDIDATE),
)
NEXT = TableSpec("recommendation_next", "What would change the answer?", SOURCE, (DATASET, STEP, REASON))
BY_COSTS = {
    "decided_by_costs": "every image gets the answer of least expected cost under the probabilities of the network. "
    "Intervals of the cost of test images are 95 %, with half an image of the largest cost that none has shown. "
    "Other jobs count with their accuracies"
}
METHOD = {
    "decided_by": "validation images (which also chose each training's epoch, but nothing of a linear probe); for "
    "linear probes also training images, each left out of a fit of the probe that is delivered; and how such models "
    "compared on other jobs. Test images choose nothing",
    "intervals": "90 % of expected accuracy, on images like the test images; 95 % of latency and of accuracy on test "
    "images. How often such intervals held on data sets that the model had not seen: experiments/recommend",
    "at_chance": "on test images, against always predicting the most frequent of their classes; of a model at chance "
    "no confusions are listed, and of probes at chance no labels",
    "expected": "of the weights that were judged, which may be those of a part of a training: see epochs",
}


@dataclass(frozen=True)
class Recommendation:
    """`analysis=recommendation`; reads `train`, `predict`, `latency`, `compile` and `learning_curve` rows."""

    tables: ClassVar = (RECOMMENDATION, ANSWER, CONFUSIONS, RELABEL, CLASSES, NEXT, MORE_IMAGES, FINETUNING)

    query: Annotated[Query, "which trainings, those of one job where there are several: type dataset=photos"] = None
    within: Annotated[
        float | None,
        Allowed(0),
        "points below the best that a model may be; with costs, how much more an image may cost; null: one "
        "more mistake in a hundred images, which is a point, or its mean cost",
    ] = None
    confidence: Annotated[float, Allowed(above=0.5, below=1), "probability that it is not further below"] = 0.9
    metric: Annotated[
        str | None,
        Allowed(choices=(ACCURACY, BALANCED)),
        "accuracy, or balanced: every class counts alike, however many images it has; null: accuracy, or the costs",
    ] = None
    costs: Annotated[
        Any,
        "of each wrong answer: a CSV file whose lines are true classes and whose columns are answers, or "
        "{TRUE_CLASS: {ANSWER: COST}}; null: no costs, metric decides",
    ] = None
    latency_ms: Annotated[float | None, Allowed(above=0), "the most that one image may take; null: no limit"] = None
    memory_mb: Annotated[
        float | None,
        Allowed(above=0),
        "the most that weights and intermediate results of one image may take; null: no limit",
    ] = None
    file_mb: Annotated[float | None, Allowed(above=0), "the largest size of the program's file; null: no limit"] = None
    params_m: Annotated[float | None, Allowed(above=0), "the most parameters, in millions; null: no limit"] = None
    smallest: Annotated[
        str,
        Allowed(choices=("latency_ms", "file_mb", "memory_mb", "gflops", "params")),
        "by what one model is smaller than another",
    ] = "latency_ms"

    def check(self) -> None:
        """Raise FcaError for a metric beside costs, a margin above 100 points, and a file that is no table of costs."""
        if self.costs is not None and self.metric is not None:
            allowed = "left out beside costs=, which decide alone"
            raise FcaError("metric", self.metric, allowed, "give metric= or costs=; costs can weigh classes")
        if self.costs is None and self.within is not None and self.within > 100:
            raise FcaError("within", self.within, "a finite number, at least 0, at most 100 points", "correct within")
        self.cost_table  # noqa: B018

    @cached_property
    def cost_table(self) -> Costs | None:
        """The costs as they were given."""
        if self.costs is None:
            return None
        return costs_of(self.costs) if isinstance(self.costs, Mapping) else read_costs(str(self.costs))

    def __call__(self, store: Store) -> list[Table]:
        """One line a candidate of every job; the answer, confusions, labels, classes, next steps and curve of each."""
        jobs = evidence(store, self.query)
        require(jobs, "trainings", len(store.rows()), COMMAND)
        every_job = jobs if self.query is None else evidence(store, None)  # what other jobs show, the query keeps out
        frames_of_tables: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        for job, name in zip(jobs, job_names(jobs), strict=True):
            others = [other for other in every_job if other.job.fingerprint != job.job.fingerprint]
            frames = self._frames(job, self.weighed(job, known_jobs(others, self.metric_of_others)))
            for frames_of_table, frame in zip(frames_of_tables, frames, strict=True):
                frames_of_table.append(frame.assign(dataset=name))
        tables = [pd.concat(frames, ignore_index=True) for frames in frames_of_tables]
        runs = (row["run_id"] for job in jobs for row in job.trained)
        return filled(self.tables, tables, self._parameters(), runs)

    def _frames(self, of: Evidence, weighed: Weighed) -> list[pd.DataFrame]:
        """What each of `tables` says of one job."""
        suspects = mislabelled(of)
        is_at_chance = weighed.chosen_is_at_chance  # then nothing rests on what is recommended
        answer = None if weighed.answer is None or is_at_chance else weighed.candidates[weighed.answer]
        return [
            weighed.frame,
            weighed.answer_frame,
            confusions(of, None if answer is None else answer.first, weighed.metric),
            suspects,
            classes(of, suspects),
            pd.DataFrame(list(weighed.steps()), columns=[STEP, REASON]),
            more_images(of, None if answer is None else answer.program, weighed.metric),
            finetuning(of),
        ]

    def _parameters(self) -> dict[str, Any]:
        """The options, with what they mean where they were left out, and how the tables were made."""
        parameters = asdict(self) | METHOD
        parameters["metric"] = self.metric or ACCURACY
        if self.within is None:
            parameters["within"] = 1.0 if self.cost_table is None else "one more mistake in a hundred images"
        if self.cost_table is not None:
            parameters |= {"metric": BY_COST, "costs": self.cost_table.described} | BY_COSTS
        return parameters

    def weighed(self, of: Evidence, known: KnownJobs) -> Weighed:
        """The candidates of a job by this metric.    known: by `metric_of_others`."""
        metric = self.metric_of(of)
        return Weighed(of, known, self.limits(metric), metric)

    def limits(self, metric: Metric) -> Limits:
        """What is asked of a model."""
        return Limits(
            metric.margin(self.within),
            self.confidence,
            self.latency_ms,
            self.memory_mb,
            self.file_mb,
            self.params_m,
            self.smallest,
        )

    @property
    def metric_of_others(self) -> Metric:
        """By which other jobs are compared: they have other classes, so costs say nothing of them."""
        return Metric(self.metric or ACCURACY)

    def metric_of(self, of: Evidence) -> Metric:
        """What an answer is worth in a job. Raises FcaError for a table of costs that lacks some of its classes."""
        if self.cost_table is None:
            return self.metric_of_others
        costs = self.cost_table.of(of.classes, of.items["label"].cat.categories.astype(str))
        images = of.images("train")
        base = float(costs.matrix.min(axis=1) @ images / images.sum())
        return Metric(BY_COST, costs, base)
