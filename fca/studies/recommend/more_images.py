"""Would more training images help? The learning curve of the recommended program, and what it predicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.metric import Metric
from fca.store import columns
from fca.store.columns import JUDGED_IMAGES
from fca.studies.recommend.choice import CANDIDATE, GAIN, METRIC
from fca.studies.recommend.evidence import FITS, PROBE, RIGHT, SIZES, Evidence, Program
from fca.studies.recommend.stats.learning_curve import (
    Forecast,
    Hyperparameters,
    Measured,
    forecast,
    measured_from,
    reach,
)
from fca.tables.rows import records
from fca.tables.table import DATASET, NCL, RUN_ID, TableSpec
from fca.types import Column, interval_columns

# Made by experiments/recommend/more_images.py, whose README has the jobs.
HYPERPARAMETERS = Path(__file__).with_name("learning_curve.json")

PREDICTED, MEASURED = "predicted", "measured"
POINT = Column(
    "point",
    str,
    "",
    "measured: with these training images or parts of them; predicted: with more, as far as predictions were checked",
    {MEASURED: MEASURED, PREDICTED: PREDICTED},
)
IMAGES = Column("images", float, ",.0f", "training images")
A_CLASS = Column("images_a_class", float, ",.1f", "training images a class")
TIMES = Column("times", float, ".2f", "training images, as a multiple of those that there are")
ACCURACY = Column("accuracy", float, ".1%", "accuracy expected on images like those that judge the probe (90 %)")
SHARE_RIGHT = Column("measured", float, ".1%", "share of the images that judge which is right; no probe has seen them")
MORE_GAIN = GAIN.with_format("+.1%", "accuracy beyond that with the images that there are (90 %)")
N_FITS = columns.N_FITS.with_format(",.0f", "probes that were fitted to so many images")
STEPS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)  # times as many images that a prediction is listed for

MORE_IMAGES = TableSpec(
    "recommendation_more_images",
    "How accurate would the recommended model be with more training images?",
    "learning curve on the probit scale, with other jobs as prior (Cortes et al. 1993; Hestness et al. 2017, "
    "arXiv:1712.00409; Gelman et al. 2013, chapter 14)",
    (
        *(DATASET, NCL, CANDIDATE, METRIC, POINT, IMAGES, A_CLASS, TIMES),
        *(*interval_columns(ACCURACY), *interval_columns(MORE_GAIN), SHARE_RIGHT, N_FITS, RUN_ID),
    ),
)


def more_images(evidence: Evidence, program: Program | None, metric: Metric) -> pd.DataFrame:
    """The lines of table MORE_IMAGES: accuracies measured with parts of the training images, then predicted with more.

    evidence: stored results of the job.    metric: by which its candidates are compared.
    program:  the recommended program; None if there is none.
    The result is empty unless the program is a linear probe whose learning curve was measured. It is also empty with
    costs, because predictions were learnt from accuracies only.
    """
    if program is None or program.adaptation != PROBE or metric.costs is not None:
        return MORE_IMAGES.frame([])
    row = curve_row(evidence, program)  # the row of the run that measured the curve
    if row is None:
        return MORE_IMAGES.frame([])

    n = float(row["n_train"])
    ncl = len(evidence.job.classes)
    measured = measured_curve(evidence, row, metric)
    # the prior of the curve comes with fca: it was fitted to the learning curves of jobs on other data sets
    curve = forecast(curves_of_other_jobs(), measured, n)

    lines = []
    # size: number of training images; fits: how many probes were fitted to so many, top1: their mean accuracy
    for size, top1, fits in sorted(zip(measured.sizes, measured.accuracy, measured.fits, strict=True)):
        expected = _expected_columns(curve, size, ncl)
        lines.append({**expected, POINT: MEASURED, SHARE_RIGHT: top1, N_FITS: fits})
    # up to the largest size for which predictions were checked (reach); a multiple of n may be rounded up
    largest_size = reach(n, ncl) * (1 + 1e-9)
    for size in n * np.array(STEPS):
        if size <= largest_size:
            expected = _expected_columns(curve, size, ncl)
            lines.append({**expected, POINT: PREDICTED, **_gain_columns(curve, size)})

    metadata = {NCL: ncl, CANDIDATE: program.name, METRIC: metric.name, RUN_ID: row["run_id"]}
    return pd.DataFrame([{**metadata, **line} for line in lines])


def curve_row(evidence: Evidence, program: Program) -> Mapping[str, Any] | None:
    """The row of the latest task=learning_curve of this program and the job's images; None if there is none."""
    rows = evidence.store.rows(f"task == 'learning_curve' and fingerprint == '{evidence.job.fingerprint}'")
    rows_of_program = [
        row
        for row in records(rows)
        if tuple(row["classes"]) == evidence.job.classes and evidence.program_of(row) == program
    ]
    return max(rows_of_program, key=lambda row: row["finished"], default=None)


def measured_curve(evidence: Evidence, row: Mapping[str, Any], metric: Metric) -> Measured:
    """The accuracies that a run of task=learning_curve measured, with the weights of a metric.

    row: of that run.
    """
    sizes, fits, right, images = (
        evidence.store.array(row["run_id"], name) for name in (SIZES, FITS, RIGHT, JUDGED_IMAGES)
    )
    labels = evidence.items["label"].cat.codes.to_numpy()[images]
    return measured_from(sizes, fits, right.astype(np.float64), metric.weights(labels))


@cache
def curves_of_other_jobs() -> Hyperparameters:
    """The distribution of learning curves over other jobs."""
    return Hyperparameters.from_json(json.loads(HYPERPARAMETERS.read_text()))


def _expected_columns(curve: Forecast, size: float, ncl: int) -> dict[Any, Any]:
    """The columns of a number of training images (`size`) and of the accuracy expected with them.

    curve: the expected learning curve; its `n` is the present number of training images.    ncl: number of classes.
    """
    sizes: Float[np.ndarray, "1"] = np.array([size])
    low, high = curve.interval(sizes)
    accuracy = (curve.accuracy(sizes)[0], low[0], high[0])
    return {
        IMAGES: size,
        A_CLASS: size / ncl,
        TIMES: size / curve.n,
        **dict(zip(interval_columns(ACCURACY), accuracy, strict=True)),
    }


def _gain_columns(curve: Forecast, size: float) -> dict[Any, Any]:
    """The columns of the expected gain over the present number of images; none for that number itself."""
    if size <= curve.n:
        return {}
    return dict(zip(interval_columns(MORE_GAIN), curve.gain(size), strict=True))
