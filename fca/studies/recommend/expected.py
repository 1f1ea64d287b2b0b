"""The expected accuracy of a job's programs, from comparisons on other jobs and from the job's own images."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.csv_table import read_table, with_types
from fca.metric import Metric
from fca.studies.recommend.evidence import Evidence, Program
from fca.studies.recommend.stats.candidate_accuracy import (
    Candidates,
    Hyperparameters,
    JobForecast,
    JobRecord,
    prior,
    records_of,
)

# Both are made by experiments/recommend/regret.py, whose README has the jobs.
MEASURED = Path(__file__).with_name("measured.csv")
HYPERPARAMETERS = Path(__file__).with_name("hyperparameters.json")

Draws = Float[np.ndarray, "draws candidates"]


class Expectation(NamedTuple):
    """Joint posterior draws of all candidates' accuracies on images like the test images.

    With a metric of costs, draws of mean scores: see `Metric`.
    draws:       given other jobs and the job's own images.
    prior_draws: given other jobs alone.
    n_judged:    number of the job's images that judged at least one candidate.
    """

    draws: Draws
    prior_draws: Draws
    n_judged: int


@dataclass(frozen=True, eq=False)
class OtherJobs:
    """Results of programs on other jobs: those that come with this package, and those of the store.

    recorded: the candidates to which the records refer.
    """

    hyperparameters: Hyperparameters
    recorded: Candidates
    records: Sequence[JobRecord]

    @property
    def number(self) -> int:
        """Number of jobs."""
        return len(self.records)

    def expectation(self, evidence: Evidence, metric: Metric, times: int = 1) -> Expectation:
        """Expected accuracies of a job's candidates by a metric; with costs, expected scores.

        times: number of copies of each image that seem to have judged the candidates, to see what more images bring.
        """
        forecast = self.forecast([candidate.program for candidate in evidence.candidates], evidence)
        if metric.costs is not None:
            forecast = forecast.of_losses(metric.losses)
        scores, weights = judged_scores(evidence, metric)  # no column before any training
        posterior = forecast.update(scores, weights, float(times)) if scores.size else forecast

        has_judged = (~np.isnan(scores)).any(axis=0)
        return Expectation(posterior.usual_draws, forecast.usual_draws, int(has_judged.sum()))

    def forecast(self, programs: Sequence[Program], evidence: Evidence) -> JobForecast:
        """The forecast for these programs from other jobs, at this job's number of classes and images."""
        images = evidence.images("train")
        images_per_class = max(float(images.mean()), 1.0)  # its logarithm is a covariate
        return _forecast(self, tuple(programs), len(images), images_per_class)


@lru_cache(maxsize=8)  # a recommendation compares its candidates again and again
def _forecast(other_jobs: OtherJobs, programs: tuple[Program, ...], ncl: int, images_per_class: float) -> JobForecast:
    """The forecast of these programs' accuracies on a new data set, from results on other jobs.

    other_jobs: the hyperparameters of the statistical model, the results (`records`) and the distinct programs in them
                (`recorded`), to which the records refer by position.
    ncl: number of classes of the new job.    images_per_class: its training images per class.
    """
    return prior(
        other_jobs.hyperparameters,
        other_jobs.records,
        other_jobs.recorded,
        candidates=as_candidates(programs),
        ncl=float(ncl),
        images_a_class=images_per_class,
    )


def as_candidates(programs: Iterable[Program]) -> Candidates:
    """The programs as the statistics take them: by the properties that make two programs similar.

    The weights are left out, since the results of earlier jobs (measured.csv) do not name them.
    """
    listed = list(programs)
    return Candidates(
        network=tuple(program.network for program in listed),
        size_px=tuple(float(program.size) for program in listed),
        depth=tuple(program.depth for program in listed),
        precision=tuple(program.precision for program in listed),
        adaptation=tuple(program.adaptation for program in listed),
    )


def judged_scores(
    evidence: Evidence, metric: Metric
) -> tuple[Float[np.ndarray, "candidates images"], Float[np.ndarray, " images"]]:
    """The score of each candidate of a job on each image, and the weight of each image in the metric.

    The score of a prediction is 1 if it is right and 0 if it is wrong. With costs, it falls with the cost of the
    prediction: from 1 for the cheapest prediction for the true class to 0 for the most expensive mistake of all.
    The images are all that judge some candidate: left-out training images of probes, and validation images. The score
    is NaN where a candidate is not judged by an image. Without any training both arrays have no images.
    """
    judged_by_candidate = {
        i: evidence.judged(candidate.first_training, metric)
        for i, candidate in enumerate(evidence.candidates)
        if candidate.trainings
    }
    if not judged_by_candidate:
        return np.empty((len(evidence.candidates), 0)), np.empty(0)

    # every image that judges some candidate is a column, in the order of the data
    labels = pd.concat([pd.Series(judged.labels, index=judged.images) for judged in judged_by_candidate.values()])
    label_of_image = labels[~labels.index.duplicated()].sort_index()  # the index has positions in the data
    column_of_image = pd.Series(range(len(label_of_image)), index=label_of_image.index)

    scores = np.full((len(evidence.candidates), len(label_of_image)), np.nan)
    for i, judged in judged_by_candidate.items():
        scores[i, column_of_image[judged.images]] = metric.scores(judged.labels, judged.predicted)
    return scores, metric.weights(label_of_image.to_numpy())


def gather_other_jobs(jobs: Iterable[Evidence], metric: Metric) -> OtherJobs:
    """The results of the jobs that come with this package, and of these jobs of the store.

    metric: accuracy or balanced accuracy, by which the results of the store are counted.
    """
    lines_of_store = tuple(tuple(line.values()) for job in jobs for line in lines_of(job, metric))  # can be hashed
    return _with_shipped_jobs(lines_of_store)


@lru_cache(maxsize=4)  # one recommendation asks several times
def _with_shipped_jobs(lines_of_store: Sequence[tuple[Any, ...]]) -> OtherJobs:
    """The jobs that come with the package, and these lines of others, which have the columns of measured.csv."""
    frame = _shipped_jobs()
    if lines_of_store:
        frame_of_store = pd.DataFrame(lines_of_store, columns=frame.columns)
        frame = pd.concat([frame, frame_of_store], ignore_index=True)
    recorded, records = records_of(frame)
    return OtherJobs(_hyperparameters(), recorded, records)


@cache
def _shipped_jobs() -> pd.DataFrame:
    """The results of the jobs that come with the package: one line for each job and candidate."""
    return with_types(read_table(MEASURED, MEASURED))


@cache
def _hyperparameters() -> Hyperparameters:
    """The hyperparameters that come with the package, fitted to its jobs."""
    return Hyperparameters.from_json(json.loads(HYPERPARAMETERS.read_text()))


def lines_of(evidence: Evidence, metric: Metric) -> list[dict[str, Any]]:
    """Results of a job's candidates in the columns of measured.csv: one line per trained and tested candidate.

    The lines are evidence for the expected accuracy of the same candidates on another job. A candidate has results on
    n_judged images, which decide between candidates, and on n_test test images. The former are validation images and,
    for a linear probe, training images that were left out in turn. right_judged and right_test are how many of them the
    candidate predicts right; with balanced accuracy, this accuracy times the number of images.
    """
    lines = []
    for candidate in evidence.candidates:
        if not candidate.trainings or candidate.first_training["run_id"] not in evidence.test_rows:
            continue

        program = candidate.program
        judged = evidence.judged(candidate.first_training, metric)
        # labels of `tested` are numbered in the data set, those of `judged` in the job: accuracy, balanced or not, is
        # the same by both
        tested = evidence.predicted(candidate.first_training, "test")
        n_judged = len(judged.labels)
        n_test = len(tested.labels)
        lines.append(
            {
                "dataset": evidence.job.fingerprint,  # not the name, which two data sets can share
                "job": f"{evidence.job.fingerprint[:8]}:{','.join(map(str, evidence.job.classes))}",
                "ncl": len(evidence.job.classes),
                # at least 1, since its logarithm is taken
                "images_a_class": max(float(evidence.images("train").mean()), 1.0),
                "network": program.network,
                "size": program.size,
                "depth": program.depth,
                "precision": program.precision,
                "adaptation": program.adaptation,
                "n_judged": n_judged,
                "right_judged": n_judged * metric.value(judged.labels, judged.predicted),
                "n_test": n_test,
                "right_test": n_test * metric.value(tested.labels, tested.predicted_labels),
            }
        )
    return lines
