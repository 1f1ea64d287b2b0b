"""What fine-tuning brought: each fine-tuned network against the linear probe on the same network."""

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
from fca.types import Column, with_interval

TUNED_TOP1 = Column("top1_finetuned", float, ".1%", "share of test images that the fine-tuned network has right")
PROBE_TOP1 = Column("top1_probe", float, ".1%", "share that the linear probe on the same network has right")
TUNING_GAIN = GAIN.with_format("+.1%", "what fine-tuning gained on the same test images")

FINETUNING = TableSpec(
    "recommendation_finetuning",
    "What did fine-tuning bring? (test images, which chose nothing)",
    "paired difference of accuracies (Newcombe, 1998, method 10)",
    (DATASET, CANDIDATE, TUNED_TOP1, PROBE_TOP1, *with_interval(TUNING_GAIN), N_TEST, EPOCHS, TRAIN_S, RUN_ID),
)


def finetuning(of: Evidence) -> pd.DataFrame:
    """A line for each fine-tuned network with a probe to compare it with, the largest gain first."""
    by_program = {candidate.program: candidate for candidate in of.candidates if candidate.trained}
    lines = []
    for program, tuned in by_program.items():
        probe = by_program.get(program.adapted(PROBE))
        if program.adaptation == FINETUNE and probe is not None and _are_tested(of, tuned, probe):
            lines.append(_line(of, tuned, probe))
    found = FINETUNING.frame(lines)
    return found.sort_values(TUNING_GAIN, ascending=False, kind="stable", ignore_index=True)


def _are_tested(of: Evidence, *candidates: Candidate) -> bool:
    return all(candidate.first["run_id"] in of.tested for candidate in candidates)


def _line(of: Evidence, tuned: Candidate, probe: Candidate) -> Mapping[Any, Any]:
    by_tuned, by_probe = (_is_right(of, candidate) for candidate in (tuned, probe))
    cells = [(by_tuned & by_probe), (by_tuned & ~by_probe), (~by_tuned & by_probe), (~by_tuned & ~by_probe)]
    low, high = paired_interval(*(int(cell.sum()) for cell in cells))
    return {
        CANDIDATE: tuned.program.name,
        TUNED_TOP1: by_tuned.mean(),
        PROBE_TOP1: by_probe.mean(),
        **dict(zip(with_interval(TUNING_GAIN), (by_tuned.mean() - by_probe.mean(), low, high), strict=True)),
        N_TEST: len(by_tuned),
        EPOCHS: tuned.first.get("recipe_epochs"),
        TRAIN_S: tuned.first.get(TRAIN_S),
        RUN_ID: tuned.first["run_id"],
    }


def _is_right(of: Evidence, candidate: Candidate) -> np.ndarray:
    """Which test images a candidate has right."""
    answered = of.answered(candidate.first, "test", Metric(ACCURACY))
    return answered.labels == answered.predicted
