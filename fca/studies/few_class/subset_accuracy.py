"""Accuracy of every model on every class subset, under every protocol: what few-class tables are made of.

Subsets are those of the stored sub-models and scores, or a grid of draws. With the predictions behind each accuracy,
models can be compared image by image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from fca.stats.chance import guessing
from fca.stats.intervals import wilson
from fca.stats.protocols import grouped_top1, masked_answers, masked_top1
from fca.store import Store
from fca.subset import SAMPLERS, Groups, draw_subset, full_set, number_of_classes
from fca.tables.keys import Query
from fca.tables.predictions import predictions
from fca.tables.rows import Rows, drop_conflicting_rows, records, require_rows, select
from fca.tables.table import (
    CHANCE,
    CLASSES,
    DATASET,
    MODEL,
    N_TEST,
    NCL,
    PROTOCOL,
    RUN_ID,
    SAMPLER,
    SEED,
    SEEDS,
    SUBSET_SEED,
    TOP1,
)
from fca.types import SPLITS, ClassSubset, Column, FcaError, interval_columns
from fca.validation import Allowed

SUBSET = (NCL, SUBSET_SEED, SAMPLER, CLASSES)
NAMED = "named"  # the sampler of classes that nobody drew
DRAW = [SUBSET_SEED, CLASSES]  # which subset of one size: two seeds may draw the same classes
EMBED = "fca run task=embed model@encoder=hog"
COMMAND = "fca run -m task=train model=resnet18,vgg16 subset.ncl=2,5 'subset.seed=range(0,5)'"
ACCURACY = (DATASET, MODEL, PROTOCOL, *SUBSET, SEED, *interval_columns(TOP1), CHANCE, N_TEST, RUN_ID)

SUBSET_SEEDS = SEEDS.with_format(".0f", "subset seeds")
DIFFERENCE = Column("difference", float, "+.2%", "difference of accuracies")


def accuracy_points(store: Store, rows: Rows, subsets: pd.DataFrame, groups: Groups | None = None) -> pd.DataFrame:
    """Accuracy of every model on every subset: `sub` from its training run, other protocols from stored predictions.

    With groups also `grouped`, on those images of the subset whose class is in a group; missing where there is none.
    """
    measured = ["seed", "top1", "top1_low", "top1_high", "n_test", "run_id", "fingerprint", "split"]
    how = rows.trained[["dataset", "model", "classes", *measured]]
    lines = records(subsets.merge(how, on=["dataset", "classes"]).assign(protocol="sub"))
    for line in lines:
        line["chance"] = _guessing(store, line.pop("fingerprint"), line.pop("split"), line["classes"])
    for row in records(rows.full):
        lines += _scored(store, row, subsets[subsets["dataset"] == row["dataset"]], groups)
    kinds = {"ncl": "int64", "subset_seed": "Int64", "seed": "Int64", "n_test": "Int64"}
    kinds |= {"top1": "float64", "chance": "float64"}
    points = pd.DataFrame(lines, columns=list(ACCURACY)).astype(kinds)
    return points.sort_values([c for c in ACCURACY if not c.startswith("top1")], ignore_index=True)


def _guessing(store: Store, fingerprint: str, split: str, classes: Sequence[int]) -> float:
    """Accuracy of guessing on the images of a subset."""
    items = store.items(fingerprint)
    label = items["label"].cat.codes[(items["split"] == split).to_numpy()].to_numpy()
    tested = label[np.isin(label, list(classes))]
    return guessing(tested) if len(tested) else float("nan")


def _scored(store: Store, row: Mapping[str, Any], subsets: pd.DataFrame, groups: Groups | None) -> list[dict[str, Any]]:
    """One full model on each subset, under every protocol.

    Guessing among all classes is right as often as the most frequent class of all images; among those of a subset or
    among groups, as the most frequent of these.
    """
    found = predictions(store, row)
    group = None if groups is None else groups.codes(found.logit_classes)
    true, logits = found.true, found.logits
    lines = []
    for subset in records(subsets):
        columns = found.columns[list(subset["classes"])]
        inside = found.of_classes(subset["classes"])
        n = int(inside.sum())
        if not n:
            raise FcaError("test images of classes", subset["classes"], "at least one", "leave the subset out")
        top1 = {"open": (float(found.right[inside].mean()), n), "masked": (masked_top1(logits, columns, true), n)}
        guesses = {"open": guessing(found.labels), "masked": guessing(found.labels[inside])}
        if group is not None and (group[columns] >= 0).any():
            top1["grouped"] = grouped_top1(logits[inside], group, true[inside])
            group_of_image = group[true[inside]]
            guesses["grouped"] = guessing(group_of_image[group_of_image >= 0])
        for protocol, (value, of) in top1.items():
            low, high = wilson(round(value * of), of)
            scored = {"protocol": protocol, "top1": value, "top1_low": low, "top1_high": high, "n_test": of}
            scored["chance"] = guesses[protocol]
            lines.append({**subset, **scored, **{name: row[name] for name in ("model", "seed", "run_id")}})
    return lines


PerModel = Annotated[
    list[str], "columns that differ between models by intention, e.g. [recipe_lr]; [recipe]: all of the recipe"
]
EmbeddedSplit = Annotated[
    str,
    Allowed(choices=SPLITS),
    "of the embedded images: test is what the paper scores, train what a practitioner has",
]


@dataclass(frozen=True)
class OfSubsets:
    """What all analyses of class subsets ask for: the rows to read, and the subsets to score."""

    query: Query = None
    ncl: Annotated[
        list[int | float] | None,
        Allowed(above=0, filled=True),
        "numbers of classes, or shares of them below 1; with seeds: a grid of draws instead of the subsets "
        "of the stored sub-models and scores",
    ] = None
    seeds: Annotated[list[int] | None, Allowed(0, 2**32 - 1, filled=True), "of this grid's subsets, with ncl"] = None
    sampler: Annotated[str, Allowed(choices=SAMPLERS), "how the grid is drawn"] = "uniform"


def wide(column: Column, points: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Accuracies: one column a model (or protocol), one line for what agrees in `by`; missing where none is stored."""
    return points.groupby([*by, column], dropna=False)[TOP1].last().unstack()  # noqa: PD010  pivot drops missing seeds


def embed_rows(store: Store, query: str | None, split: str) -> Rows:
    """The stored rows of the data sets whose `embed` rows of this split have one configuration.

    Raises FcaError where there are none.
    """
    rows = select(store, query, split)
    require_rows(rows.embedded, f"embed rows of split {split}", rows.total, EMBED)
    return drop_conflicting_rows(rows, rows.embedded, "encoder")


def of_one_draw(rows: Rows) -> Rows:
    """The rows of those data sets whose label indices mean the same in all of them, and whose draws are of one kind."""
    everything = pd.concat([rows.models, rows.scored, rows.embedded])
    return drop_conflicting_rows(rows, everything, "model", columns=("num_classes", "sampler"))


def subsets_of(rows: Rows, asked: OfSubsets) -> pd.DataFrame:
    """The subsets of every data set among the rows (see `of_one_draw`), one line a draw.

    With ncl and seeds: that grid of draws. Without: the classes of the stored sub-models and of stored scores, each
    under every (ncl, seed, sampler) that draws it (two seeds may draw the same classes: trained once, drawn twice),
    named classes under the sampler `named`; or, where there are none, all classes.
    Raises FcaError if only one of ncl and seeds is given.
    """
    if (asked.ncl is None) != (asked.seeds is None):
        given = f"analysis.ncl={asked.ncl} analysis.seeds={asked.seeds}"
        raise FcaError("grid of subsets", given, "both, or neither", "name the other one too")
    everything = pd.concat([rows.models, rows.scored, rows.embedded])
    stored = pd.concat([rows.trained, rows.scored])
    lines = []
    for dataset, part in everything.groupby("dataset"):
        num_classes = int(part["num_classes"].max())
        if asked.ncl is None or asked.seeds is None:
            subsets = _found(num_classes, stored[stored["dataset"] == dataset]) or [full_set(num_classes)]
        else:
            sizes = [number_of_classes(size, num_classes) for size in asked.ncl]
            drawn = [draw_subset(num_classes, n, seed, asked.sampler) for n in sizes for seed in asked.seeds]
            subsets = list(dict.fromkeys(drawn))  # all classes are one subset, whatever the seed
        lines += [(dataset, s.ncl, s.seed, s.sampler, s.classes) for s in subsets]
    frame = pd.DataFrame(lines, columns=[DATASET, *SUBSET])
    return frame.astype({"dataset": "str", "ncl": "int64", "subset_seed": "Int64", "sampler": "str"})


def _found(num_classes: int, given: pd.DataFrame) -> list[ClassSubset]:
    known = set(given["classes"])
    axes = (sorted(given[name].dropna().unique()) for name in ("sampler", "ncl", "subset_seed"))
    draws = [draw_subset(num_classes, int(n), int(seed), how) for how, n, seed in product(*axes) if n < num_classes]
    drawn = [subset for subset in draws if subset.classes in known]
    named = known - {subset.classes for subset in drawn}
    return [*drawn, *(ClassSubset(c, sampler=NAMED if len(c) < num_classes else None) for c in sorted(named))]


def read_points(
    store: Store, asked: OfSubsets, per_model: Sequence[str], groups: Groups | None = None
) -> tuple[Rows, pd.DataFrame]:
    """The stored rows, and `accuracy_points` of all models on the subsets asked for; FcaError where there are none."""
    rows = select(store, asked.query)
    require_rows(rows.models, "rows of trained or full models", rows.total, COMMAND)
    rows = of_one_draw(drop_conflicting_rows(rows, rows.models, "model", per_model))
    points = accuracy_points(store, rows, subsets_of(rows, asked), groups)
    require_rows(points, "models of these subsets", rows.total, COMMAND)
    return rows, points


class PredictedSubset(NamedTuple):
    """Of one run on the test images of one subset."""

    images: np.ndarray  # positions among the test images of the data set
    labels: np.ndarray  # label indices in the data set
    right: np.ndarray  # bool


class PointsWithPredictions(NamedTuple):
    """`accuracy_points` with `fingerprint` and `predictions` (None where none are stored), and the runs behind them."""

    points: pd.DataFrame
    runs: tuple[str, ...]
    rows: Rows


def points_with_predictions(store: Store, asked: OfSubsets, per_model: Sequence[str]) -> PointsWithPredictions:
    """Every accuracy of every model on every subset, with the images behind it; the options are those of few_class.

    A sub-model's predictions are in the predict row of its best weights; without that row they are None.
    """
    rows, points = read_points(store, asked, per_model)
    points = points.dropna(subset="top1").reset_index(drop=True)
    about = {row["run_id"]: row for row in records(rows.models)}
    children = _children(store)
    found: dict[Any, PredictedSubset] = {}
    read = set(points["run_id"])
    for run_id, part in points.groupby("run_id"):
        row = about[run_id]
        source = children.get(str(run_id)) if row["task"] == "train" else row
        if source is not None:
            read.add(source["run_id"])
            found |= zip(part.index, _predicted(store, source, part), strict=True)
    fingerprint = [about[run_id]["fingerprint"] for run_id in points["run_id"]]
    stored = pd.Series([found.get(at) for at in points.index], index=points.index, dtype="object")
    points = points.assign(fingerprint=fingerprint, predictions=stored)
    return PointsWithPredictions(points, tuple(sorted(read)), rows)


def _children(store: Store) -> dict[str, dict[str, Any]]:
    """Training run -> the predict row of its best weights on clean test images."""
    rows = store.rows("task == 'predict' and split == 'test' and shift == 'clean'")
    best = rows[rows["parent"].notna() & rows["snapshot"].fillna("best").eq("best")]
    return {row["parent"]: row for row in records(best)}


def _predicted(store: Store, row: Mapping[str, Any], points: pd.DataFrame) -> Iterator[PredictedSubset]:
    """One run's predictions on the subset of each of its points, by the protocol of the point."""
    stored = predictions(store, row)
    for point in records(points):
        inside = stored.of_classes(point["classes"])
        right = stored.right[inside]
        if point["protocol"] == "masked":
            columns = stored.columns[list(point["classes"])]
            right = masked_answers(stored.logits[inside], columns) == stored.true[inside]
        yield PredictedSubset(stored.images[inside], stored.labels[inside], right)
