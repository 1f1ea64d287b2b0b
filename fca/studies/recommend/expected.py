"""How accurate a job's programs are expected to be: how such programs compared on other jobs, and its own images."""

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
    """Accuracies of all candidates on images like the test images, as draws that keep what they share.

    Of a metric of costs, mean scores: see `Metric`.
    draws: with the job's own images.    before: from other jobs alone.    n_judged: the job's images that judged some.
    """

    draws: Draws
    before: Draws
    n_judged: int


@dataclass(frozen=True, eq=False)
class KnownJobs:
    """How programs compared on other jobs: those that came with this package, and the store's.

    recorded: the candidates that the records mean.
    """

    hyperparameters: Hyperparameters
    recorded: Candidates
    records: Sequence[JobRecord]

    @property
    def number(self) -> int:
        return len(self.records)

    def expectation(self, of: Evidence, metric: Metric, times: int = 1) -> Expectation:
        """Of the candidates of a job.    times: as if so many times as many images had judged them, all alike."""
        forecast = self.forecast([candidate.program for candidate in of.candidates], of)
        if metric.costs is not None:
            forecast = forecast.of_losses(metric.losses)
        correct, weights = judged_matrix(of, metric)
        update = forecast.update(correct, weights, float(times)) if correct.size else forecast
        return Expectation(update.usual_draws, forecast.usual_draws, int((~np.isnan(correct)).any(axis=0).sum()))

    def forecast(self, programs: Sequence[Program], of: Evidence) -> JobForecast:
        """What other jobs expect of these programs for a job with so many classes and images."""
        images = of.images("train")
        return _forecast(self, tuple(programs), len(images), max(float(images.mean()), 1.0))


@lru_cache(maxsize=8)  # a recommendation weighs its candidates again and again
def _forecast(known: KnownJobs, programs: tuple[Program, ...], ncl: int, images_a_class: float) -> JobForecast:
    candidates = as_candidates(programs)
    return prior(known.hyperparameters, known.records, known.recorded, candidates, float(ncl), images_a_class)


def as_candidates(programs: Iterable[Program]) -> Candidates:
    """The programs by what makes two of them alike; the weights are no part of it."""
    columns = zip(
        *((one.network, float(one.size), one.depth, one.precision, one.adaptation) for one in programs), strict=True
    )
    return Candidates(*columns)


def judged_matrix(
    of: Evidence, metric: Metric
) -> tuple[Float[np.ndarray, "candidates images"], Float[np.ndarray, " images"]]:
    """What each candidate scores on each image that judges it (NaN: it does not), and how much that image counts."""
    judged = {at: of.judged(candidate.first, metric) for at, candidate in enumerate(of.candidates) if candidate.trained}
    if not judged:
        return np.empty((len(of.candidates), 0)), np.empty(0)

    labels = pd.concat([pd.Series(seen.labels, index=seen.images) for seen in judged.values()])
    label_of_image = labels[~labels.index.duplicated()].sort_index()
    column_of_image = pd.Series(range(len(label_of_image)), index=label_of_image.index)
    correct = np.full((len(of.candidates), len(label_of_image)), np.nan)
    for at, seen in judged.items():
        correct[at, column_of_image[seen.images]] = metric.scores(seen.labels, seen.predicted)
    return correct, metric.weights(label_of_image.to_numpy())


def known_jobs(others: Iterable[Evidence], metric: Metric) -> KnownJobs:
    """The jobs that came with this package, and those of the store, by this metric: accuracy, or balanced."""
    return _with_own(tuple(tuple(line.values()) for other in others for line in lines_of(other, metric)))


@lru_cache(maxsize=4)  # one recommendation asks several times
def _with_own(own: Sequence[tuple[Any, ...]]) -> KnownJobs:
    """The jobs of the package and these lines, each with the columns of measured.csv."""
    shipped = _measured()
    frame = pd.concat([shipped, pd.DataFrame(own, columns=shipped.columns)], ignore_index=True) if own else shipped
    recorded, records = records_of(frame)
    return KnownJobs(_hyperparameters(), recorded, records)


@cache
def _measured() -> pd.DataFrame:
    return with_types(read_table(MEASURED, MEASURED))


@cache
def _hyperparameters() -> Hyperparameters:
    return Hyperparameters.from_json(json.loads(HYPERPARAMETERS.read_text()))


def lines_of(evidence: Evidence, metric: Metric) -> list[dict[str, Any]]:
    """What the candidates of a job reached, a line each that was trained and tested, as in measured.csv.

    Counts of a weighted metric are its value times the number of images.
    """
    lines = []
    for candidate in evidence.candidates:
        if not candidate.trained or candidate.first["run_id"] not in evidence.tested:
            continue
        program, judged = candidate.program, evidence.judged(candidate.first, metric)
        tested = evidence.predicted(candidate.first, "test")
        n_judged, n_test = len(judged.labels), len(tested.labels)
        lines.append(
            {
                "dataset": evidence.job.fingerprint,
                "job": f"{evidence.job.fingerprint[:8]}:{','.join(map(str, evidence.job.classes))}",
                "ncl": len(evidence.job.classes),
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
