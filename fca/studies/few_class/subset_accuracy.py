"""Accuracy of every model on every class subset, under every protocol: the input of the few-class tables.

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

from fca.stats.chance import guessing_accuracy
from fca.stats.intervals import wilson
from fca.stats.protocols import grouped_top1, masked_answers, masked_top1
from fca.store import Store
from fca.subset import SAMPLERS, Superclasses, draw_subset, full_set, number_of_classes
from fca.tables.keys import Query
from fca.tables.predictions import Predictions, predictions
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


def accuracy_points(
    store: Store, rows: Rows, subsets: pd.DataFrame, groups: Superclasses | None = None
) -> pd.DataFrame:
    """The accuracy of every model on every class subset, one line for each protocol (columns ACCURACY).

    Protocol `sub` is a sub-model, trained on the subset only; its training run has its accuracy. A full model,
    trained on all classes, is scored from its stored predictions: `open` (it may predict any class) and `masked` (only
    the classes of the subset compete).

    rows:    stored results of runs.
    subsets: the class subsets of every data set, one line each.
    groups:  adds protocol `grouped`, on the images of the subset whose class is in a group; a subset without such a
             class has no line. None: no such protocol.

    Raises FcaError for a full model without test images of a subset.
    """
    # sub-models, joined by the classes that they were trained on
    columns = ["seed", "top1", "top1_low", "top1_high", "n_test", "run_id", "fingerprint", "split"]
    trained = rows.trained[["dataset", "model", "classes", *columns]]  # runs that trained a sub-model
    lines = records(subsets.merge(trained, on=["dataset", "classes"]).assign(protocol="sub"))
    for line in lines:
        # the accuracy of guessing is not stored: it follows from the labels of the images
        fingerprint = line.pop("fingerprint")
        split = line.pop("split")
        line["chance"] = _chance(store, fingerprint, split, line["classes"])

    # full models
    for row in records(rows.full):
        subsets_of_dataset = subsets[subsets["dataset"] == row["dataset"]]
        lines += _score_full_model(store, row, subsets_of_dataset, groups)

    dtypes = {
        "ncl": "int64",
        "subset_seed": "Int64",
        "seed": "Int64",
        "n_test": "Int64",
        "top1": "float64",
        "chance": "float64",
    }
    points = pd.DataFrame(lines, columns=list(ACCURACY)).astype(dtypes)
    key = [column for column in ACCURACY if not column.startswith("top1")]  # all but the accuracy and its interval
    return points.sort_values(key, ignore_index=True)


def _chance(store: Store, fingerprint: str, split: str, classes: Sequence[int]) -> float:
    """The accuracy of guessing the most frequent class, on the images of these classes; NaN if there are none.

    fingerprint: of the data set.
    classes:     labels.
    """
    items = store.items(fingerprint)
    is_of_split = (items["split"] == split).to_numpy()
    labels = items["label"].cat.codes[is_of_split].to_numpy()
    labels_of_subset = labels[np.isin(labels, list(classes))]
    return guessing_accuracy(labels_of_subset) if len(labels_of_subset) else float("nan")


def _score_full_model(
    store: Store, row: Mapping[str, Any], subsets: pd.DataFrame, groups: Superclasses | None
) -> list[dict[str, Any]]:
    """Lines of accuracy_points for one full model: each subset under the protocols open, masked and perhaps grouped.

    row:     the stored `predict` run of the model.
    subsets: the class subsets of its data set.
    groups:  None if there is no protocol grouped. A subset without a class in any group has no line under it.
    Raises FcaError for a subset without images.
    """
    stored = predictions(store, row)
    group_of_column = None if groups is None else groups.codes(stored.logit_classes)

    lines = []
    for subset in records(subsets):
        scores = _scores_on_subset(stored, subset["classes"], group_of_column)
        for protocol, (top1, n_images, chance) in scores.items():
            n_right = round(top1 * n_images)
            low, high = wilson(n_right, n_images)
            lines.append(
                {
                    **subset,
                    "protocol": protocol,
                    "top1": top1,
                    "top1_low": low,
                    "top1_high": high,
                    "n_test": n_images,
                    "chance": chance,
                    "model": row["model"],
                    "seed": row["seed"],
                    "run_id": row["run_id"],
                }
            )
    return lines


def _scores_on_subset(
    stored: Predictions, classes: Sequence[int], group_of_column: np.ndarray | None
) -> dict[str, tuple[float, int, float]]:
    """Protocol -> accuracy of a full model on a subset, number of scored images, accuracy of guessing.

    Guessing always predicts the most frequent of the competing classes: of all classes (open), of the classes of
    the subset (masked), or of the groups (grouped).

    stored:          the predictions for all test images. For each image, `labels` has its label, `true` the column of
                     the logits for its class, and `right` whether the most probable of all classes is right.
    classes:         the labels of the subset; `stored.columns` has the column of each label.
    group_of_column: the group of classes of each column, -1: in no group; None: no protocol grouped.
    Raises FcaError if there is no image of these classes.
    """
    columns = stored.columns[list(classes)]
    is_of_subset = stored.of_classes(classes)
    n_images = int(is_of_subset.sum())
    if not n_images:
        raise FcaError("test images of classes", classes, "at least one", "leave the subset out")

    open_top1 = float(stored.right[is_of_subset].mean())
    masked = masked_top1(stored.logits, columns, stored.true)  # it leaves out images of other classes
    scores = {
        "open": (open_top1, n_images, guessing_accuracy(stored.labels)),
        "masked": (masked, n_images, guessing_accuracy(stored.labels[is_of_subset])),
    }
    if group_of_column is not None and (group_of_column[columns] >= 0).any():
        true = stored.true[is_of_subset]
        top1, n_grouped = grouped_top1(stored.logits[is_of_subset], group_of_column, true)
        group_of_image = group_of_column[true]  # -1: the image's class is in no group, and it is not scored
        scores["grouped"] = (top1, n_grouped, guessing_accuracy(group_of_image[group_of_image >= 0]))
    return scores


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
    """The options that all analyses of class subsets share: the rows to read, and the subsets to score."""

    query: Query = None
    ncl: Annotated[
        list[int | float] | None,
        Allowed(above=0, non_empty=True),
        "numbers of classes, or shares of them below 1; with seeds: a grid of draws instead of the subsets "
        "of the stored sub-models and scores",
    ] = None
    seeds: Annotated[list[int] | None, Allowed(0, 2**32 - 1, non_empty=True), "of this grid's subsets, with ncl"] = None
    sampler: Annotated[str, Allowed(choices=SAMPLERS), "how the grid is drawn"] = "uniform"


def wide(column: Column, points: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Accuracies side by side: a column for each value of `column` (model or protocol), a line for each value of `by`.

    A combination that is not stored is NaN. Of several points in one cell the last counts.
    """
    return points.groupby([*by, column], dropna=False)[TOP1].last().unstack()  # noqa: PD010  pivot drops missing seeds


def embed_rows(store: Store, query: str | None, split: str) -> Rows:
    """The stored rows of the data sets whose `embed` rows of this split agree in their configuration.

    query: narrows the rows (see select).
    split: of the embedded images.
    Raises FcaError if there are no such `embed` rows.
    """
    rows = select(store, query, split)
    require_rows(rows.embedded, f"embed rows of split {split}", rows.total, EMBED)
    return drop_conflicting_rows(rows, rows.embedded, "encoder")


def of_one_draw(rows: Rows) -> Rows:
    """The rows without the data sets in which number of classes or sampler differ between rows.

    With another number of classes a label means another class, and with another sampler a subset seed draws other
    classes.
    """
    all_rows = pd.concat([rows.models, rows.scored, rows.embedded])
    return drop_conflicting_rows(rows, all_rows, "model", columns=("num_classes", "sampler"))


def subsets_of(rows: Rows, options: OfSubsets) -> pd.DataFrame:
    """The class subsets of every data set among the rows, one line for each draw.

    With ncl and seeds in the options, these are a grid of draws. Without, they are the classes of the stored sub-models
    and of the stored scores of full models. Each is listed once for every (ncl, seed, sampler) that draws it: two seeds
    may draw the same classes, which are trained only once. Classes that no seed drew have the sampler `named`. If no
    subsets are stored, the only one is all classes.

    rows: of data sets with one number of classes and one sampler each, so that a seed draws the same classes in all.

    Raises FcaError if only one of ncl and seeds is given.
    """
    if (options.ncl is None) != (options.seeds is None):
        typed = f"analysis.ncl={options.ncl} analysis.seeds={options.seeds}"
        raise FcaError("grid of subsets", typed, "both, or neither", "name the other one too")

    all_rows = pd.concat([rows.models, rows.scored, rows.embedded])
    rows_with_subsets = pd.concat([rows.trained, rows.scored])
    lines = []
    for dataset, rows_of_dataset in all_rows.groupby("dataset"):
        num_classes = int(rows_of_dataset["num_classes"].max())
        if options.ncl is None or options.seeds is None:
            subsets = _stored_subsets(num_classes, rows_with_subsets[rows_with_subsets["dataset"] == dataset])
            if not subsets:
                subsets = [full_set(num_classes)]
        else:
            sizes = [number_of_classes(size, num_classes) for size in options.ncl]
            grid = []
            for size, seed in product(sizes, options.seeds):
                grid.append(draw_subset(num_classes, size, seed, options.sampler))
            subsets = list(dict.fromkeys(grid))  # all classes are one subset, whatever the seed

        for subset in subsets:
            lines.append((dataset, subset.ncl, subset.seed, subset.sampler, subset.classes))
    frame = pd.DataFrame(lines, columns=[DATASET, *SUBSET])
    return frame.astype({"dataset": "str", "ncl": "int64", "subset_seed": "Int64", "sampler": "str"})


def _stored_subsets(num_classes: int, rows: pd.DataFrame) -> list[ClassSubset]:
    """The subsets in rows of one data set; each is listed once for every draw that gives its classes.

    Draws are every combination of the samplers, sizes and seeds in the rows. Subsets that none of them gives come last:
    classes named by the user (sampler `named`) and all classes (no sampler).
    """
    stored_classes = set(rows["classes"])

    samplers = sorted(rows["sampler"].dropna().unique())
    sizes = sorted(rows["ncl"].dropna().unique())
    seeds = sorted(rows["subset_seed"].dropna().unique())
    drawn_subsets = []
    for sampler, ncl, seed in product(samplers, sizes, seeds):
        if ncl >= num_classes:  # all classes are not drawn
            continue
        subset = draw_subset(num_classes, int(ncl), int(seed), sampler)
        if subset.classes in stored_classes:
            drawn_subsets.append(subset)

    drawn_classes = {subset.classes for subset in drawn_subsets}
    undrawn_subsets = []
    for classes in sorted(stored_classes - drawn_classes):
        sampler = NAMED if len(classes) < num_classes else None
        undrawn_subsets.append(ClassSubset(classes, sampler=sampler))
    return [*drawn_subsets, *undrawn_subsets]


def read_points(
    store: Store, options: OfSubsets, per_model: Sequence[str], groups: Superclasses | None = None
) -> tuple[Rows, pd.DataFrame]:
    """The stored rows, and `accuracy_points` of all models on the subsets that the options select.

    per_model: columns that may differ between models (see drop_conflicting_rows).
    groups:    see accuracy_points.
    Raises FcaError if no models are stored, or none was evaluated on these subsets.
    """
    rows = select(store, options.query)
    require_rows(rows.models, "rows of trained or full models", rows.total, COMMAND)
    # without the data sets whose rows do not belong in one table
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
    """`accuracy_points` with the predictions behind them.

    points: with the columns `fingerprint` (of the data set) and `predictions` (a PredictedSubset, or None).
    runs:   the ids of all runs read.
    rows:   the stored rows.
    """

    points: pd.DataFrame
    runs: tuple[str, ...]
    rows: Rows


def points_with_predictions(store: Store, options: OfSubsets, per_model: Sequence[str]) -> PointsWithPredictions:
    """Every accuracy of every model on every subset, with the predictions behind it.

    A full model's predictions are in its own `predict` row. The accuracy of a sub-model is in the row of its training,
    and its predictions are in a `predict` row of its best weights; without that row they are None.

    options:   which runs are read, and which subsets.
    per_model: columns of the configuration that may differ between models.
    Raises FcaError if no models are stored, or none was evaluated on these subsets.
    """
    rows, points = read_points(store, options, per_model)
    points = points.dropna(subset="top1").reset_index(drop=True)
    model_row_by_run = {row["run_id"]: row for row in records(rows.models)}
    predict_row_by_training = _predict_rows_of_trainings(store)

    runs_read = set(points["run_id"])
    predictions_by_point: dict[Any, PredictedSubset] = {}  # keys: the index of points
    for run_id, points_of_run in points.groupby("run_id"):
        predict_row: Mapping[str, Any] | None = model_row_by_run[run_id]  # for a full model
        if model_row_by_run[run_id]["task"] == "train":
            predict_row = predict_row_by_training.get(str(run_id))
        if predict_row is None:
            continue

        runs_read.add(predict_row["run_id"])
        predicted_subsets = _predictions_of_points(store, predict_row, points_of_run)
        predictions_by_point.update(zip(points_of_run.index, predicted_subsets, strict=True))

    fingerprints = [model_row_by_run[run_id]["fingerprint"] for run_id in points["run_id"]]
    stored_predictions = [predictions_by_point.get(point) for point in points.index]
    points = points.assign(
        fingerprint=fingerprints,
        predictions=pd.Series(stored_predictions, index=points.index, dtype="object"),
    )
    return PointsWithPredictions(points, tuple(sorted(runs_read)), rows)


def _predict_rows_of_trainings(store: Store) -> dict[str, dict[str, Any]]:
    """Id of a training run -> the stored `predict` row of its best weights on clean test images."""
    rows = store.rows("task == 'predict' and split == 'test' and shift == 'clean'")
    is_of_training = rows["parent"].notna()
    has_best_weights = rows["snapshot"].fillna("best").eq("best")  # others are of earlier epochs
    return {row["parent"]: row for row in records(rows[is_of_training & has_best_weights])}


def _predictions_of_points(store: Store, row: Mapping[str, Any], points: pd.DataFrame) -> Iterator[PredictedSubset]:
    """One run's predictions on the subset of each of its points, by the protocol of the point (sub, open or masked).

    row:    the `predict` row of the run.
    points: accuracies of the run, one line for each subset (`classes`) and protocol.
    """
    stored = predictions(store, row)
    for point in records(points):
        is_of_subset = stored.of_classes(point["classes"])
        is_right = stored.right[is_of_subset]  # by the predictions as stored: protocols sub and open
        if point["protocol"] == "masked":  # only the classes of the subset may be predicted
            columns = stored.columns[list(point["classes"])]
            masked = masked_answers(stored.logits[is_of_subset], columns)
            is_right = masked == stored.true[is_of_subset]  # both are columns of the logits
        yield PredictedSubset(stored.images[is_of_subset], stored.labels[is_of_subset], is_right)
