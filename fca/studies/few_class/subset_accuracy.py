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
    trainings = rows.trained[["dataset", "model", "classes", *measured]]
    lines = records(subsets.merge(trainings, on=["dataset", "classes"]).assign(protocol="sub"))
    for line in lines:
        line["chance"] = _guessing(store, line.pop("fingerprint"), line.pop("split"), line["classes"])
    for row in records(rows.full):
        lines += _scored(store, row, subsets[subsets["dataset"] == row["dataset"]], groups)

    points = pd.DataFrame(lines, columns=list(ACCURACY)).astype(
        {
            "ncl": "int64",
            "subset_seed": "Int64",
            "seed": "Int64",
            "n_test": "Int64",
            "top1": "float64",
            "chance": "float64",
        }
    )
    return points.sort_values([c for c in ACCURACY if not c.startswith("top1")], ignore_index=True)


def _guessing(store: Store, fingerprint: str, split: str, classes: Sequence[int]) -> float:
    """Accuracy of guessing on the images of a subset."""
    items = store.items(fingerprint)
    is_of_split = (items["split"] == split).to_numpy()
    labels = items["label"].cat.codes[is_of_split].to_numpy()
    labels_of_subset = labels[np.isin(labels, list(classes))]
    return guessing(labels_of_subset) if len(labels_of_subset) else float("nan")


def _scored(store: Store, row: Mapping[str, Any], subsets: pd.DataFrame, groups: Groups | None) -> list[dict[str, Any]]:
    """One full model on each subset, under every protocol.

    Guessing among all classes is right as often as the most frequent class of all images; among those of a subset or
    among groups, as the most frequent of these.
    """
    stored = predictions(store, row)
    group_of_logit = None if groups is None else groups.codes(stored.logit_classes)
    lines = []
    for subset in records(subsets):
        columns = stored.columns[list(subset["classes"])]
        is_inside = stored.of_classes(subset["classes"])
        n_images = int(is_inside.sum())
        if not n_images:
            raise FcaError("test images of classes", subset["classes"], "at least one", "leave the subset out")

        # protocol -> accuracy, images, accuracy of guessing
        scores = {
            "open": (float(stored.right[is_inside].mean()), n_images, guessing(stored.labels)),
            "masked": (
                masked_top1(stored.logits, columns, stored.true),
                n_images,
                guessing(stored.labels[is_inside]),
            ),
        }
        if group_of_logit is not None and (group_of_logit[columns] >= 0).any():
            true = stored.true[is_inside]
            top1, n_grouped = grouped_top1(stored.logits[is_inside], group_of_logit, true)
            group_of_image = group_of_logit[true]
            scores["grouped"] = (top1, n_grouped, guessing(group_of_image[group_of_image >= 0]))

        for protocol, (top1, n, chance) in scores.items():
            low, high = wilson(round(top1 * n), n)
            line = {
                **subset,
                "protocol": protocol,
                "top1": top1,
                "top1_low": low,
                "top1_high": high,
                "n_test": n,
                "chance": chance,
                "model": row["model"],
                "seed": row["seed"],
                "run_id": row["run_id"],
            }
            lines.append(line)
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
    """Accuracies, one column for each model (or protocol), one line for each value of `by`; missing if not stored."""
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
    all_rows = pd.concat([rows.models, rows.scored, rows.embedded])
    return drop_conflicting_rows(rows, all_rows, "model", columns=("num_classes", "sampler"))


def subsets_of(rows: Rows, options: OfSubsets) -> pd.DataFrame:
    """The subsets of every data set among the rows (see `of_one_draw`), one line for each draw.

    With ncl and seeds: that grid of draws. Without: the classes of the stored sub-models and of stored scores, each
    under every (ncl, seed, sampler) that draws it (two seeds may draw the same classes: trained once, drawn twice),
    named classes under the sampler `named`; or, where there are none, all classes.
    Raises FcaError if only one of ncl and seeds is configured.
    """
    if (options.ncl is None) != (options.seeds is None):
        typed = f"analysis.ncl={options.ncl} analysis.seeds={options.seeds}"
        raise FcaError("grid of subsets", typed, "both, or neither", "name the other one too")

    all_rows = pd.concat([rows.models, rows.scored, rows.embedded])
    rows_with_subset = pd.concat([rows.trained, rows.scored])
    lines = []
    for dataset, rows_of_dataset in all_rows.groupby("dataset"):
        num_classes = int(rows_of_dataset["num_classes"].max())
        if options.ncl is None or options.seeds is None:
            stored = rows_with_subset[rows_with_subset["dataset"] == dataset]
            subsets = _stored_subsets(num_classes, stored) or [full_set(num_classes)]
        else:
            sizes = [number_of_classes(size, num_classes) for size in options.ncl]
            grid = product(sizes, options.seeds)
            draws = [draw_subset(num_classes, size, seed, options.sampler) for size, seed in grid]
            subsets = list(dict.fromkeys(draws))  # all classes are one subset, whatever the seed
        for subset in subsets:
            lines.append((dataset, subset.ncl, subset.seed, subset.sampler, subset.classes))

    frame = pd.DataFrame(lines, columns=[DATASET, *SUBSET])
    return frame.astype({"dataset": "str", "ncl": "int64", "subset_seed": "Int64", "sampler": "str"})


def _stored_subsets(num_classes: int, rows: pd.DataFrame) -> list[ClassSubset]:
    """The subsets of stored rows: under every stored sampler, size and seed that draws them, and the named ones."""
    stored_classes = set(rows["classes"])
    samplers = sorted(rows["sampler"].dropna().unique())
    sizes = [size for size in sorted(rows["ncl"].dropna().unique()) if size < num_classes]
    seeds = sorted(rows["subset_seed"].dropna().unique())

    drawn = []
    for sampler, size, seed in product(samplers, sizes, seeds):
        subset = draw_subset(num_classes, int(size), int(seed), sampler)
        if subset.classes in stored_classes:
            drawn.append(subset)

    not_drawn = sorted(stored_classes - {subset.classes for subset in drawn})
    named = [ClassSubset(c, sampler=NAMED if len(c) < num_classes else None) for c in not_drawn]
    return [*drawn, *named]


def read_points(
    store: Store, options: OfSubsets, per_model: Sequence[str], groups: Groups | None = None
) -> tuple[Rows, pd.DataFrame]:
    """The stored rows, and `accuracy_points` of all models on the chosen subsets; FcaError if there are none."""
    rows = select(store, options.query)
    require_rows(rows.models, "rows of trained or full models", rows.total, COMMAND)
    rows = of_one_draw(drop_conflicting_rows(rows, rows.models, "model", per_model))
    points = accuracy_points(store, rows, subsets_of(rows, options), groups)
    require_rows(points, "models of these subsets", rows.total, COMMAND)
    return rows, points


class PredictedSubset(NamedTuple):
    """Predictions of one run on the test images of one subset."""

    images: np.ndarray  # positions among the test images of the data set
    labels: np.ndarray  # label indices in the data set
    right: np.ndarray  # bool


class PointsWithPredictions(NamedTuple):
    """`accuracy_points` with `fingerprint` and `predictions` (None where none are stored), and the runs behind them."""

    points: pd.DataFrame
    runs: tuple[str, ...]
    rows: Rows


def points_with_predictions(store: Store, options: OfSubsets, per_model: Sequence[str]) -> PointsWithPredictions:
    """Every accuracy of every model on every subset, with the images behind it; the options are those of few_class.

    A sub-model's predictions are in the predict row of its best weights; without that row they are None.
    """
    rows, points = read_points(store, options, per_model)
    points = points.dropna(subset="top1").reset_index(drop=True)
    row_by_run_id = {row["run_id"]: row for row in records(rows.models)}
    predict_row_by_training = _predict_rows_of_trainings(store)

    run_ids = set(points["run_id"])
    predictions_by_point: dict[Any, PredictedSubset] = {}
    for run_id, points_of_run in points.groupby("run_id"):
        row = row_by_run_id[run_id]
        predict_row = predict_row_by_training.get(str(run_id)) if row["task"] == "train" else row
        if predict_row is None:
            continue
        run_ids.add(predict_row["run_id"])
        predicted = _predicted(store, predict_row, points_of_run)
        predictions_by_point.update(zip(points_of_run.index, predicted, strict=True))

    stored = [predictions_by_point.get(point) for point in points.index]
    points = points.assign(
        fingerprint=[row_by_run_id[run_id]["fingerprint"] for run_id in points["run_id"]],
        predictions=pd.Series(stored, index=points.index, dtype="object"),
    )
    return PointsWithPredictions(points, tuple(sorted(run_ids)), rows)


def _predict_rows_of_trainings(store: Store) -> dict[str, dict[str, Any]]:
    """Training run -> the predict row of its best weights on clean test images."""
    rows = store.rows("task == 'predict' and split == 'test' and shift == 'clean'")
    best = rows[rows["parent"].notna() & rows["snapshot"].fillna("best").eq("best")]
    return {row["parent"]: row for row in records(best)}


def _predicted(store: Store, row: Mapping[str, Any], points: pd.DataFrame) -> Iterator[PredictedSubset]:
    """One run's predictions on the subset of each of its points, by the protocol of the point."""
    stored = predictions(store, row)
    for point in records(points):
        is_inside = stored.of_classes(point["classes"])
        right = stored.right[is_inside]
        if point["protocol"] == "masked":
            columns = stored.columns[list(point["classes"])]
            right = masked_answers(stored.logits[is_inside], columns) == stored.true[is_inside]
        yield PredictedSubset(stored.images[is_inside], stored.labels[is_inside], right)
