"""Which model to use for these images: the front of accuracy and time, a choice on it, and what would help."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

import pandas as pd

from fca.allowed import Allowed
from fca.store import Store
from fca.store.columns import FILE_MB, INPUT_SIZE, PARAMS, PRECISION, TRAIN_S, WEIGHTS
from fca.studies.recommend.choice import (
    CANDIDATE,
    DEPTH,
    EPOCHS,
    EXPECTED,
    JOBS,
    JUDGED,
    LINE,
    METRIC,
    N_JUDGED,
    ON_FRONT,
    PREDICTED,
    SEEDS,
    TESTED_COPIES,
    VERDICT,
    WHY,
    WITHIN,
    Limits,
    Weighed,
)
from fca.studies.recommend.evidence import (
    ADAPTATION,
    COMMAND,
    GFLOPS,
    LATENCY,
    LOAD,
    MEMORY,
    SPEED,
    evidence,
    job_names,
)
from fca.studies.recommend.expected import known_jobs
from fca.studies.recommend.images import CLASSES, CONFUSIONS, RELABEL, classes, confusions, mislabelled
from fca.studies.recommend.metric import ACCURACY, BALANCED, Metric
from fca.studies.recommend.more_images import MORE_IMAGES, more_images
from fca.studies.rows import require
from fca.studies.table import AT_CHANCE, CHANCE, DATASET, MODEL, N_TEST, NCL, RUN_ID, TOP1, TableSpec, filled
from fca.types import Column, Table, with_interval

STEP, REASON = Column("step", str, "", "what to try"), Column("reason", str, "", "why")
SOURCE = (
    "hierarchical model of accuracies (Gelman et al. 2013, chapter 15) with paired images; "
    "Hsu, 1984 (comparisons with the best)"
)
OF_CANDIDATE = (
    *(CANDIDATE, MODEL, WEIGHTS, INPUT_SIZE, DEPTH, PRECISION, ADAPTATION, VERDICT, WHY),
    *(METRIC, *with_interval(EXPECTED), WITHIN, *with_interval(LATENCY), FILE_MB, SPEED, GFLOPS, MEMORY),
    *(PARAMS, LOAD, *with_interval(PREDICTED), JOBS, JUDGED, N_JUDGED, EPOCHS, SEEDS, TRAIN_S),
    *(*with_interval(TOP1), CHANCE, AT_CHANCE, N_TEST, TESTED_COPIES, RUN_ID),
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
    """`analysis=recommendation`; reads `train`, `predict`, `latency`, `compile` and `learning_curve` rows.

    query:    narrows the trainings, to those of one job where there are several.
    within:   how far below the best a model may be, in points.    confidence: that it is.
    metric:   accuracy, or balanced: every class counts alike, however many images it has.
    latency_ms, memory_mb, file_mb, params_m: the most that a model may take, for one image; null: no limit.
    smallest: the column by which one model is smaller than another.
    """

    tables: ClassVar = (RECOMMENDATION, ANSWER, CONFUSIONS, RELABEL, CLASSES, NEXT, MORE_IMAGES)

    query: str | None = None
    within: Annotated[float, Allowed(0, 100)] = 1.0
    confidence: Annotated[float, Allowed(above=0.5, below=1)] = 0.9
    metric: Annotated[str, Allowed(choices=(ACCURACY, BALANCED))] = ACCURACY
    latency_ms: Annotated[float | None, Allowed(above=0)] = None
    memory_mb: Annotated[float | None, Allowed(above=0)] = None
    file_mb: Annotated[float | None, Allowed(above=0)] = None
    params_m: Annotated[float | None, Allowed(above=0)] = None
    smallest: Annotated[str, Allowed(choices=("latency_ms", "file_mb", "memory_mb", "gflops", "params"))] = "latency_ms"

    def __call__(self, store: Store) -> list[Table]:
        """One line a candidate of every job; the answer, confusions, labels, classes, next steps and curve of each."""
        jobs = evidence(store, self.query)
        require(jobs, "trainings", len(store.rows()), COMMAND)
        every_job = jobs if self.query is None else evidence(store, None)  # what other jobs show, the query keeps out
        parts: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        for job, name in zip(jobs, job_names(jobs), strict=True):
            others = [other for other in every_job if other.job.fingerprint != job.job.fingerprint]
            weighed = Weighed(job, known_jobs(others, self.quality), self.limits, self.quality)
            suspects = mislabelled(job)
            confused = confusions(job, None if weighed.chosen_is_at_chance else weighed.chosen)
            steps = pd.DataFrame(list(weighed.steps()), columns=[STEP, REASON])
            answer = None if weighed.answer is None else weighed.candidates[weighed.answer].program
            curve = more_images(job, None if weighed.chosen_is_at_chance else answer, self.quality)
            frames = (weighed.frame, weighed.answer_frame, confused, suspects, classes(job, suspects), steps, curve)
            for part, frame in zip(parts, frames, strict=True):
                part.append(frame.assign(dataset=name))
        runs = (row["run_id"] for job in jobs for row in job.trained)
        tables = [pd.concat(part, ignore_index=True) for part in parts]
        return filled(self.tables, tables, asdict(self) | METHOD, runs)

    @property
    def limits(self) -> Limits:
        """What is asked of a model."""
        return Limits(
            self.within / 100,
            self.confidence,
            self.latency_ms,
            self.memory_mb,
            self.file_mb,
            self.params_m,
            self.smallest,
        )

    @property
    def quality(self) -> Metric:
        """What a prediction is worth."""
        return Metric(self.metric)
