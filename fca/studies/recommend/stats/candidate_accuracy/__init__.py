"""How accurate each candidate of a job will be: expected from earlier jobs, updated by the job's own images."""

from __future__ import annotations

from fca.studies.recommend.stats.candidate_accuracy.candidates import COLUMNS, Candidates, JobRecord, records_of
from fca.studies.recommend.stats.candidate_accuracy.covariances import Hyperparameters, usual_hyperparameters
from fca.studies.recommend.stats.candidate_accuracy.fitting import fit
from fca.studies.recommend.stats.candidate_accuracy.forecast import Interval, JobForecast, prior

__all__ = [
    "COLUMNS", "Candidates", "Hyperparameters", "Interval", "JobForecast", "JobRecord", "fit",
    "prior", "records_of", "usual_hyperparameters",
]  # fmt: skip
