"""The gain from fine-tuning: each fine-tuned network against the linear probe on the same network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fca.metric import ACCURACY, Metric
from fca.stats.comparison import paired_interval
from fca.store.columns import TRAIN_S
from fca.studies.recommend.choice import CANDIDATE, EPOCHS, GAIN
from fca.studies.recommend.evidence import FINETUNE, PROBE, Candidate, Evidence
from fca.tables.table import DATASET, N_TEST, RUN_ID, TableSpec
from fca.types import Column, interval_columns

TUNED_TOP1 = Column("top1_finetuned", float, ".1%", "share of test images that the fine-tuned network has right")
PROBE_TOP1 = Column("top1_probe", float, ".1%", "share that the linear probe on the same network has right")
TUNING_GAIN = GAIN.with_format("+.1%", "what fine-tuning gained on the same test images")

FINETUNING = TableSpec(
    "recommendation_finetuning",
    "What did fine-tuning bring? (test images, which were not used to choose the model)",
    "paired difference of accuracies (Newcombe, 1998, method 10)",
    (DATASET, CANDIDATE, TUNED_TOP1, PROBE_TOP1, *interval_columns(TUNING_GAIN), N_TEST, EPOCHS, TRAIN_S, RUN_ID),
)


def finetuning(evidence: Evidence) -> pd.DataFrame:
    """The lines of table FINETUNING: the gain of each fine-tuned network over the linear probe, the largest first.

    A fine-tuned network has a line if there is a linear probe on the same network, and if both were tested.
    evidence: stored results of a job.
    """
    by_program = {candidate.program: candidate for candidate in evidence.candidates if candidate.trainings}
    lines = []
    for program, tuned in by_program.items():
        probe = by_program.get(program.adapted(PROBE))  # the linear probe on the same network, if there is one
        if program.adaptation == FINETUNE and probe is not None and _are_tested(evidence, tuned, probe):
            lines.append(_line(evidence, tuned, probe))
    frame = FINETUNING.frame(lines)
    return frame.sort_values(TUNING_GAIN, ascending=False, kind="stable", ignore_index=True)


def _are_tested(evidence: Evidence, *candidates: Candidate) -> bool:
    """Whether all of these candidates have predictions for test images."""
    return all(candidate.first_training["run_id"] in evidence.test_rows for candidate in candidates)


def _line(evidence: Evidence, tuned: Candidate, probe: Candidate) -> Mapping[Any, Any]:
    """The line of a fine-tuned network in table FINETUNING.

    It has the accuracy of the network and of its linear probe on the same test images, and the difference. The interval
    of the difference is for paired results: it takes into account that the same images test both models.
    """
    tuned_right = _is_right(evidence, tuned)
    probe_right = _is_right(evidence, probe)
    both = int((tuned_right & probe_right).sum())
    only_tuned = int((tuned_right & ~probe_right).sum())
    only_probe = int((~tuned_right & probe_right).sum())
    neither = int((~tuned_right & ~probe_right).sum())
    low, high = paired_interval(both, only_tuned, only_probe, neither)
    gain = tuned_right.mean() - probe_right.mean()

    training = tuned.first_training
    return {
        CANDIDATE: tuned.program.name,
        TUNED_TOP1: tuned_right.mean(),
        PROBE_TOP1: probe_right.mean(),
        **dict(zip(interval_columns(TUNING_GAIN), (gain, low, high), strict=True)),
        N_TEST: len(tuned_right),
        EPOCHS: training.get("recipe_epochs"),
        TRAIN_S: training.get(TRAIN_S),
        RUN_ID: training["run_id"],
    }


def _is_right(evidence: Evidence, candidate: Candidate) -> np.ndarray:
    """Whether the candidate is right on each test image."""
    answered = evidence.answered(candidate.first_training, "test", Metric(ACCURACY))
    return answered.labels == answered.predicted
