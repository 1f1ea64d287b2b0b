"""Which model to use for these images: the front of accuracy and time, a choice on it, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import pandas as pd

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
    Comparison,
    Limits,
)
from fca.studies.recommend.evidence import ADAPTATION, COMMAND, Evidence, evidence_of_jobs, job_names
from fca.studies.recommend.expected import OtherJobs, gather_other_jobs
from fca.studies.recommend.finetuning import FINETUNING, finetuning
from fca.studies.recommend.images import CLASSES, CONFUSIONS, RELABEL, classes, confusions, mislabelled
from fca.studies.recommend.more_images import MORE_IMAGES, more_images
from fca.tables.keys import Query
from fca.tables.rows import require_rows
from fca.tables.table import AT_CHANCE, CHANCE, DATASET, MODEL, N_TEST, NCL, RUN_ID, TOP1, TableSpec, filled
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Allowed

STEP, REASON = Column("step", str, "", "what to try"), Column("reason", str, "", "why")
SOURCE = (
    "hierarchical model of accuracies (Gelman et al. 2013, chapter 15) with paired images; "
    "Hsu, 1984 (comparisons with the best)"
)
OF_CANDIDATE = (
    *(CANDIDATE, MODEL, WEIGHTS, INPUT_SIZE, DEPTH, PRECISION, ADAPTATION, VERDICT, WHY),
    *(METRIC, *interval_columns(EXPECTED), WITHIN, *interval_columns(LATENCY), FILE_MB, SPEED, GFLOPS, MEMORY),
    *(PARAMS, LOAD, *interval_columns(PREDICTED), JOBS, JUDGED, N_JUDGED, EPOCHS, SEEDS, TRAIN_S),
    *(*interval_columns(TOP1), *interval_columns(BALANCED_TOP1), CHANCE, AT_CHANCE, N_TEST, TESTED_COPIES, RUN_ID),
    *(*interval_columns(COST_EXPECTED), COST_JUDGED, *interval_columns(COST), COST_OF_ONE_ANSWER, ONE_ANSWER),
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
    """`analysis=recommendation`: which model to use, from rows of `train`, `predict`, `latency`, `compile` and others.

    Rows are stored results of runs. A job is a set of images and classes for which a model is needed.
    """

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
        """Raise FcaError for a metric beside costs, a margin above 100 points, or a file without a table of costs."""
        if self.costs is not None and self.metric is not None:
            allowed = "left out beside costs=, which decide alone"
            raise FcaError("metric", self.metric, allowed, "give metric= or costs=; costs can weigh classes")
        if self.costs is None and self.within is not None and self.within > 100:
            raise FcaError("within", self.within, "a finite number, at least 0, at most 100 points", "correct within")
        self.cost_table  # noqa: B018  reads the file, which raises

    @cached_property
    def cost_table(self) -> Costs | None:
        """The table of costs; None without costs. Raises FcaError for a missing file, and one without such a table."""
        if self.costs is None:
            return None
        if isinstance(self.costs, Mapping):
            return costs_of(self.costs)
        return read_costs(str(self.costs))

    def __call__(self, store: Store) -> list[Table]:
        """The filled tables, in the order of `tables`; each has the lines of all jobs that the query selects.

        Raises FcaError if the store has no training that matches the query, or for costs of the wrong classes.
        """
        jobs = evidence_of_jobs(store, self.query)
        require_rows(jobs, "trainings", len(store.rows()), COMMAND)

        # the query selects the jobs that get an answer; results of all other jobs inform it
        all_jobs = jobs if self.query is None else evidence_of_jobs(store, None)

        frames_of_tables: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        for job, name in zip(jobs, job_names(jobs), strict=True):
            # Results on other data sets give the prior of each candidate's accuracy. It treats this job's data set as
            # a new one, so other jobs on the same images are left out
            jobs_of_other_data = [other for other in all_jobs if other.job.fingerprint != job.job.fingerprint]
            # metric_of_others: accuracy or balanced accuracy, as costs are about this job's classes
            other_jobs = gather_other_jobs(jobs_of_other_data, self.metric_of_others)
            comparison = self.compare(job, other_jobs)
            frames = self._frames(job, comparison)
            for frames_of_table, frame in zip(frames_of_tables, frames, strict=True):
                frames_of_table.append(frame.assign(dataset=name))

        tables = [pd.concat(frames, ignore_index=True) for frames in frames_of_tables]
        run_ids = (training["run_id"] for job in jobs for training in job.trainings)
        return filled(self.tables, tables, self._parameters(), run_ids)

    def _frames(self, evidence: Evidence, comparison: Comparison) -> list[pd.DataFrame]:
        """The lines of each of `tables` for one job, in their order; a frame is empty where a table has none.

        evidence: stored results of the job.    comparison: of its candidates, with the recommended one.
        """
        suspects = mislabelled(evidence)

        # a model at the level of chance has no confusions and no learning curve
        answer = None
        if comparison.answer is not None and not comparison.chosen_is_at_chance:
            answer = comparison.candidates[comparison.answer]
        return [
            comparison.frame,
            comparison.answer_frame,
            confusions(evidence, None if answer is None else answer.first_training, comparison.metric),
            suspects,
            classes(evidence, suspects),
            pd.DataFrame(list(comparison.steps()), columns=[STEP, REASON]),
            more_images(evidence, None if answer is None else answer.program, comparison.metric),
            finetuning(evidence),
        ]

    def _parameters(self) -> dict[str, Any]:
        """What the tables store beside their lines: the options with their defaults filled in, and the methods."""
        parameters = {**asdict(self), **METHOD, "metric": self.metric or ACCURACY}
        if self.within is None:  # the margin, in points; with costs its default is in words
            parameters["within"] = 1.0 if self.cost_table is None else "one more mistake in a hundred images"
        if self.cost_table is not None:
            parameters.update(BY_COSTS)  # the method of deciding by costs, in words
            parameters["metric"] = BY_COST
            parameters["costs"] = self.cost_table.described
        return parameters

    def compare(self, evidence: Evidence, other_jobs: OtherJobs) -> Comparison:
        """The candidates of a job, compared by the metric of the options.

        other_jobs: results on other jobs, by `metric_of_others`.
        """
        metric = self.metric_of(evidence)
        return Comparison(evidence, other_jobs, self.limits(metric), metric)

    def limits(self, metric: Metric) -> Limits:
        """The limits that a model must satisfy; the margin, `within`, is converted to a difference of metric scores."""
        return Limits(
            within=metric.margin(self.within),
            confidence=self.confidence,
            latency_ms=self.latency_ms,
            memory_mb=self.memory_mb,
            file_mb=self.file_mb,
            params_m=self.params_m,
            smallest=self.smallest,
        )

    @property
    def metric_of_others(self) -> Metric:
        """The metric of other jobs: they have other classes, so costs do not apply to them."""
        return Metric(self.metric or ACCURACY)

    def metric_of(self, evidence: Evidence) -> Metric:
        """The metric by which the candidates of a job are compared.

        Raises FcaError for a table of costs that lacks one of its classes, or has a class that the data set does not.
        """
        if self.cost_table is None:
            return self.metric_of_others
        classes_of_data = evidence.items["label"].cat.categories.astype(str)
        costs = self.cost_table.of(evidence.classes, classes_of_data)

        # The mean cost of a training image if every answer were the cheapest for its class; right answers may cost too.
        # A score counts only what answers cost beyond that
        n_images = evidence.images("train")
        cheapest_cost = costs.matrix.min(axis=1)
        base = float(cheapest_cost @ n_images / n_images.sum())
        return Metric(BY_COST, costs, base)
