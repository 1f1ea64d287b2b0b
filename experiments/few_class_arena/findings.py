"""The paper's findings (a) to (d) on few classes, asked of any study: what it says, what we see, is it told apart?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from curves import family, known
from measures import DRAW, against, growth, mean_of, paired, ratio, scaling, unpaired
from paper import CLASSES, FAMILY, FEW, IMAGENET, base, full_command, sub_command
from studies import Study

from fca.studies.few_class.accuracy import per_subset

COLUMNS = ["dataset", "finding", "paper_says", "measure", "paper_sign", "value", "low", "high", "seeds", "models"]
VERDICT = "told_apart"


class Finding(NamedTuple):
    """One line: what is measured, and the sign that the paper's sentence would have."""

    name: str
    says: str
    measure: str
    sign: str  # "above 0", "below 0", "not above 0" or "above 1", "below 1"


FEWEST = f"{FEW[0]} to {FEW[-1]} classes"
HIGHER = "sub-models attain higher accuracy than full models"
RANGE = "few classes widen the range of accuracy of full models; sub-models narrow it"
DROP = "full models lose accuracy at few classes"
LARGER = "larger full models are better at few classes"
GROW = "sub-models gain accuracy at few classes"
NO_SCALE = "larger sub-models are not better at few classes"
APART = "the best sub-model minus the best full model, of which none is both"
OPTIONAL = ("a4", "a5")
FINDINGS = {
    "a1": Finding(
        "a, best of models", HIGHER, "the best sub-model minus the best full model, open (points)", "above 0"
    ),
    "a2": Finding(
        "a, mean of models", HIGHER, "sub-models minus full models, open, mean of models (points)", "above 0"
    ),
    "a3": Finding("a, masked", HIGHER, "sub-models minus full models, masked (points; not in the paper)", "above 0"),
    "a4": Finding("a, other models", HIGHER, f"{APART}, open (points)", "above 0"),
    "a5": Finding("a, other models, masked", HIGHER, f"{APART}, masked (points; not in the paper)", "above 0"),
    "b1": Finding("b, full to sub", RANGE, "spread between subsets of equal ncl: full, open / sub-models", "above 1"),
    "b2": Finding("b, few to many", RANGE, f"spread between subsets of full models, open: {FEWEST} / more", "above 1"),
    "c1": Finding("c.1", DROP, f"full models, open: {FEWEST} minus all (points)", "below 0"),
    "c1m": Finding(
        "c.1, masked", DROP, f"full models, masked: {FEWEST} minus all (points; not in the paper)", "below 0"
    ),
    "c2": Finding("c.2", LARGER, "rho of parameters and open accuracy of full models", "above 0"),
    "d1": Finding("d.1", GROW, f"sub-models: {FEWEST} minus the most classes trained (points)", "above 0"),
    "d2": Finding("d.2", NO_SCALE, "rho of parameters and accuracy of sub-models", "not above 0"),
}


def findings(studies: Iterable[Study]) -> pd.DataFrame:
    """Every finding on ImageNet (the ResNet family) and on every other study (all its models).

    value: of the measure; points are percentage points. Interval: 95 % bootstrap over subset seeds.
    told_apart: whether the interval excludes 0 (a ratio: 1), and on whose side.
    """
    lines, met = [], False
    for study in studies:
        met |= study.dataset == IMAGENET
        points = family(study) if study.dataset == IMAGENET else known(study.points)
        lines += _of(study.name, per_subset(points), study.params, study.num_classes)
    if not met:
        lines = [*_of(IMAGENET, per_subset(_NOTHING), pd.Series(dtype="float64"), 1000), *lines]
    frame = pd.DataFrame(lines, columns=[*COLUMNS, VERDICT, "command"])
    return frame.astype({"value": "float64", "low": "float64", "high": "float64"})


_NOTHING = pd.DataFrame(columns=["dataset", "model", "protocol", *DRAW, "top1"]).astype({"top1": "float64"})


def _of(dataset: str, subset: pd.DataFrame, params: pd.Series, num_classes: int) -> list[dict[str, Any]]:
    partial = subset[subset["ncl"] < num_classes]
    few = partial[partial["ncl"].isin(FEW)]
    whole = subset[subset["ncl"] == num_classes]
    # a full model on all classes is what it is whatever it was told: masked and open agree there
    measured = {
        "a1": mean_of(*paired(few, "open", "max")),
        "a2": mean_of(*paired(few, "open")),
        "a3": mean_of(*paired(few, "masked")),
        "a4": mean_of(*unpaired(few, "open")),
        "a5": mean_of(*unpaired(few, "masked")),
        "b1": ratio(few, "open", few, "sub"),
        "b2": ratio(few, "open", partial[~partial["ncl"].isin(FEW)], "open"),
        "c1": mean_of(*against(few, whole, "open")),
        "c1m": mean_of(*against(few, whole, "masked")),
        "c2": mean_of(*scaling(few, params, "open")),
        "d1": mean_of(*growth(subset)),
        "d2": mean_of(*scaling(few, params, "sub")),
    }
    models = FAMILY if base(dataset) == IMAGENET else ()
    told = [(key, found) for key, found in measured.items() if found or key not in OPTIONAL]
    return [_line(dataset, FINDINGS[key], found, models) for key, found in told]


def _line(dataset: str, finding: Finding, found: dict[str, Any], models: tuple[str, ...]) -> dict[str, Any]:
    value, low, high = (found.get(name, np.nan) for name in ("value", "low", "high"))
    middle = 1 if finding.sign.endswith("1") else 0
    if pd.isna(value):
        commands = [full_command(base(dataset), models), sub_command(base(dataset), models)]
        needs = {"a": commands, "b": commands, "c": commands[:1], "d": commands[1:]}[finding.name[0]]
        verdict, command = None, " && ".join(needs) if base(dataset) in CLASSES else None
    else:
        command = None
        verdict = _verdict(low, high, middle, finding.sign)
    told = {"paper_says": finding.says, "measure": finding.measure, "paper_sign": finding.sign}
    return {"dataset": dataset, "finding": finding.name, **told, **found, VERDICT: verdict, "command": command}


def _verdict(low: float, high: float, middle: float, sign: str) -> str:
    if pd.isna(low):
        return "no: one subset seed says nothing of another"
    if low <= middle <= high:
        return "no"
    above = low > middle
    return "yes, as the paper says" if above == sign.startswith("above") else "yes, the other way"
