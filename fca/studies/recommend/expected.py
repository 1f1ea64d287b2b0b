"""How accurate a network is expected to be before it is trained, from jobs on which it, or others like it, was."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fca.csv_table import read_table, with_types
from fca.stats.prediction import predicted_at
from fca.studies.recommend.evidence import Candidate, Evidence

# Both are made by experiments/recommend/regret.py, whose README has the jobs. Probes in the first are of an earlier
# version (features of length 1, judged by training and validation images), so the second, which is of jobs that chose
# nothing, has no line for what rests on a probe until both are made again.
MEASURED = Path(__file__).with_name("measured.csv")
COVERAGE = Path(__file__).with_name("coverage.csv")
BEFORE, AFTER = "before training", "after training"  # an interval is from earlier jobs, or from the job's own images
HAND = ("hog", None)  # features that need no weights: what a network from scratch is predicted from
REGRESSORS = ["probe", "log_images", "log_ncl"]
COLUMNS = ["dataset", "job", "model", "adaptation", *REGRESSORS, "top1"]
FEWEST, DATASETS = 9, 2  # points, and data sets they must come from, for an interval
MODELS = 3  # networks that they must come from, to say something about another one


class Expected(NamedTuple):
    """An accuracy with its 90 % prediction interval, as fractions, and the number of jobs that it rests on."""

    value: float
    low: float
    high: float
    jobs: int


def measured_coverage() -> pd.DataFrame:
    """How often nominal 90 % intervals held the accuracy on test images: a line for each case that was measured.

    Columns when (BEFORE or AFTER), adaptation, intervals, jobs (numbers of both) and inside (the share that held).
    AFTER is of the very weights that were judged.
    """
    return with_types(read_table(COVERAGE, COVERAGE))


def known_points(others: Iterable[Evidence]) -> pd.DataFrame:
    """Every network that was trained on these jobs and on those that came with this package: one line each."""
    shipped = with_types(read_table(MEASURED, MEASURED)) if MEASURED.is_file() else pd.DataFrame(columns=COLUMNS)
    stored = [line for one in others for line in points(one)]
    return pd.concat([frame for frame in (shipped, pd.DataFrame(stored, columns=COLUMNS)) if len(frame)] or [shipped])


def points(evidence: Evidence) -> list[dict[str, object]]:
    """The trained networks of one job beside what was known before: see `regressors`."""
    lines = []
    for one in evidence.candidates:
        known = regressors(one, evidence)
        tested = [row["top1"] for row in one.trained if not np.isnan(row["top1"])]
        if known is not None and tested:
            model, _, adaptation = one.key
            job = f"{evidence.job.fingerprint[:8]}:{','.join(map(str, evidence.job.classes))}"
            about = {"dataset": evidence.job.dataset, "job": job, "model": model, "adaptation": adaptation}
            lines.append({**about, **dict(zip(REGRESSORS, known, strict=True)), "top1": float(np.mean(tested))})
    return lines


def regressors(one: Candidate, evidence: Evidence) -> tuple[float, float, float] | None:
    """Accuracy of a linear probe, log of the training images a class and log of ncl; None without features.

    The probe is that which `adaptation=probe` delivers, on images that it was not fitted to (see LeftOut): of the
    network's own features, or for one from scratch of HOG. Points that came with this package have an earlier probe in
    its place (see MEASURED).
    """
    model, weights, adaptation = one.key
    probe = evidence.left_out(HAND if adaptation == "scratch" else (model, weights))
    images = evidence.images("train")
    if probe is None or not images.all():
        return None
    return probe.top1, float(np.log(images.mean())), float(np.log(len(images)))


def expected(one: Candidate, evidence: Evidence, known: pd.DataFrame) -> Expected | None:
    """Least squares on the same network and adaptation; with too few jobs of it, on all networks of that adaptation.

    Jobs of one data set are left out together (CV+ intervals, arXiv:1905.02928).
    """
    at = regressors(one, evidence)
    if at is None:
        return None
    model, _, adaptation = one.key
    alike = known[known["adaptation"] == adaptation]
    same = alike[alike["model"] == model]
    for part, models in ((same, 1), (alike, MODELS)):
        if len(part) >= FEWEST and part["dataset"].nunique() >= DATASETS and part["model"].nunique() >= models:
            x, y = part[REGRESSORS].to_numpy(np.float64), part["top1"].to_numpy(np.float64)
            fold = pd.factorize(part["dataset"])[0].astype(np.int64)
            found = predicted_at(x, y, fold, np.array([at]))
            value, low, high = (float(values[0]) for values in found)
            return Expected(value, low, high, part["job"].nunique())
    return None
