"""Which test images every model gets right on every subset: what paired comparisons and variances are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fca.analysis.points import accuracy_points, labels_of
from fca.analysis.select import one_config, records, require, select
from fca.analysis.subsets import Grid, subsets_of
from fca.stats.protocols import masked_answers
from fca.store import Store

COMMAND = "fca run -m task=train model=resnet18,vgg16 subset.ncl=2,5 'subset.seed=range(0,5)'"


class Answers(NamedTuple):
    """Of one run on the test images of one subset."""

    images: np.ndarray  # positions among the test images of the data set
    labels: np.ndarray  # label indices in the data set
    right: np.ndarray  # bool


class Answered(NamedTuple):
    """`accuracy_points` with their `fingerprint` and `answers` (None where there are none), and what they are from."""

    points: pd.DataFrame
    runs: tuple[str, ...]
    total: int  # rows in the store


def answered_points(store: Store, query: str | None, grid: Grid, per_model: Sequence[str]) -> Answered:
    """Every accuracy of every model on every subset, with the images behind it; the options are those of few_class.

    A sub-model's answers are in the predict row of its best weights; without that row its `answers` are None.
    """
    rows = select(store, query)
    require(rows.models, "rows of trained or full models", rows.total, COMMAND)
    one_config(rows.models, "model", per_model)
    points = accuracy_points(store, rows, subsets_of(rows, grid)).dropna(subset="top1").reset_index(drop=True)
    require(points, "models of these subsets", rows.total, COMMAND)
    about = {row["run_id"]: row for row in records(rows.models)}
    children = _children(store)
    answers: list[Answers | None] = [None] * len(points)
    read = set(points["run_id"])
    for run_id, part in points.groupby("run_id"):
        row = about[run_id]
        source = children.get(str(run_id)) if row["task"] == "train" else row
        if source is not None:
            read.add(source["run_id"])
            for at, answer in zip(part.index, _answers(store, source, part), strict=True):
                answers[at] = answer
    fingerprint = [about[run_id]["fingerprint"] for run_id in points["run_id"]]
    points = points.assign(fingerprint=fingerprint, answers=pd.Series(answers, index=points.index, dtype="object"))
    return Answered(points, tuple(sorted(read)), rows.total)


def _children(store: Store) -> dict[str, dict[str, Any]]:
    """Training run -> the predict row of its best weights on clean test images."""
    rows = store.rows("task == 'predict' and split == 'test' and shift == 'clean'")
    best = rows[rows["parent"].notna() & rows["snapshot"].fillna("best").eq("best")]
    return {row["parent"]: row for row in records(best)}


def _answers(store: Store, row: Mapping[str, Any], points: pd.DataFrame) -> list[Answers | None]:
    """One run's answers on the subset of each of its points, by the protocol of the point."""
    keys, every = labels_of(store, row)
    known = np.flatnonzero(np.isin(every, list(row["classes"])))  # the images that its arrays have
    labels = every[known]
    logit_of = {key: logit for logit, key in enumerate(store.array(row["run_id"], "logit_classes").tolist())}
    column = np.array([logit_of.get(key, -1) for key in keys])
    pred = np.asarray(store.array(row["run_id"], "pred"))
    found: list[Answers | None] = []
    for point in records(points):
        inside = np.isin(labels, list(point["classes"]))
        true = column[labels[inside]]
        right = None
        if point["protocol"] in ("sub", "open"):
            right = pred[inside] == true
        elif point["protocol"] == "masked":
            logits = store.array(row["run_id"], "logits")[inside]
            right = masked_answers(logits, column[list(point["classes"])]) == true
        found.append(None if right is None else Answers(known[inside], labels[inside], right))
    return found
