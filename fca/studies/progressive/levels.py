"""Responses to images by attribute and level of difficulty, from stored predictions; the columns of all their tables.

A session is a class and an attribute: an adaptive test moves up and down the levels within one. Huang et al. (2025,
arXiv 2503.13058) count two targets over the level accuracies e, m and h: accuracy and score.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Integer, Shaped
from scipy.special import softmax

from fca.stats.intervals import FRACTION, SIGNED_FRACTION, mean_with_interval
from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.studies.progressive.stats.pool import LEVEL_WEIGHTS, Pool, make_pool
from fca.studies.progressive.stats.pool import LEVELS as LEVELS
from fca.tables.answers import rows_of_subjects
from fca.tables.keys import Query
from fca.tables.predictions import Predictions, predictions
from fca.tables.rows import records, require_rows
from fca.tables.table import ATTRIBUTE as ANY_ATTRIBUTE
from fca.tables.table import IMAGE_ID, LABEL
from fca.types import BEST, Column, FcaError, interval_columns

log = logging.getLogger(__name__)
PAPER = "Huang et al. (2025, arXiv 2503.13058)"
COMMAND = "fca run -m experiment=progressive"
PROTOCOLS = ("open", "masked")

ATTRIBUTE = ANY_ATTRIBUTE.with_format("", "attribute that makes the image easy or hard")
LEVEL = Column("level", str, "", "level of difficulty", {level: level for level in LEVELS})
ACCURACY = Column("accuracy", float, ".1%", "accuracy, (easy + medium + hard) / 3")
SCORE = Column("score", float, ".1%", "score, (easy + 2 medium + 4 hard) / 7")
BY_LEVEL = tuple(Column(level, float, ".1%", f"share right of {level} images") for level in LEVELS)
SESSIONS = Column("sessions", int, ".0f", "sessions (class and attribute)")
SHARE = Column("share", float, ".1%", "share")
TRIPLET = Column("triplet", str, "", "triplet of an easy, a medium and a hard image")
ITEM = (IMAGE_ID, LABEL, ATTRIBUTE, LEVEL, TRIPLET)

LevelProtocol = Annotated[
    str, "open: any class that a model knows may be predicted; masked: only those that the images have"
]
Line = dict[str, Any]  # of a table: column -> cell


class LevelResponses(NamedTuple):
    """What the full models of one data set predicted for those of its test images that have an attribute and a level.

    items:      image_id, label, attribute, level (easy, medium, hard), triplet (missing where there is none); one line
                for each column of `correct`.
    models:     the name of each model, with its seed where it was trained here.
    correct:    whether each model is right on each image.
    confidence: the largest probability that the model gives to one of the classes that may be predicted.
    runs:       ids of the stored predictions.
    """

    dataset: str
    fingerprint: str
    items: pd.DataFrame
    models: tuple[str, ...]
    correct: Bool[np.ndarray, "models items"]
    confidence: Float[np.ndarray, "models items"]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class LevelAnalysis:
    """Options of analyses of levels; they read `predict` rows of full models on sets with attributes and levels."""

    query: Query = None
    protocol: LevelProtocol = "open"


def responses_by_level(store: Store, query: str | None = None, protocol: str = "open") -> list[LevelResponses]:
    """Responses to clean test images of data sets with columns `attribute` and `level`, one for each data set.

    Models are those that know every class of the set, with their best weights, without snapshots of training. Images
    without attribute or level are left out.

    query:    narrows the stored rows; None reads all.
    protocol: open, any class that the model knows may be predicted; masked, only those that the images have (a model of
              the 1,000 classes of ImageNet on images of 100 of them). Where a model knows no other class, both are the
              same.

    A data set with a level of another name is left out, with a line in the log, if there are others.
    Raises FcaError for an unknown protocol, and when no data set is left.
    """
    sources = sets_with_levels(store, query, protocol)
    requirement = "predictions of full models on test images with columns attribute and level"
    require_rows(sources, requirement, len(store.rows()), COMMAND)
    return sources


def sets_with_levels(store: Store, query: str | None, protocol: str) -> list[LevelResponses]:
    """Responses to clean test images that have an attribute and a level, one LevelResponses for each data set.

    The list is empty when no data set of the store has levels (`responses_by_level` raises an error then). Data sets
    that cannot be read are left out, with a line in the log. If that leaves none, the first problem is raised as
    FcaError: an empty list would mean that the store has no such data.

    query:    narrows the stored rows; None reads all.
    protocol: open, any class that the model knows may be predicted; masked, only those that the images have.
    """
    if protocol not in PROTOCOLS:
        raise FcaError("analysis.protocol", protocol, " or ".join(PROTOCOLS), "take one of them")
    rows = rows_of_subjects(store, query)
    is_best_snapshot = rows["snapshot"].fillna(BEST) == BEST  # a model that was not trained here has no snapshot
    rows = rows[(rows["shift"] == "clean") & is_best_snapshot]

    sources: list[LevelResponses] = []
    problems: list[FcaError] = []
    for dataset, rows_of_dataset in rows.groupby("dataset"):
        try:
            source = _read_dataset(store, str(dataset), rows_of_dataset, protocol)
        except FcaError as error:
            problems.append(error)
            continue
        if source is not None:
            sources.append(source)

    if problems and not sources:
        raise problems[0]
    for problem in problems:
        log.warning("a data set is left out: %s", problem)
    return sources


def levels_of(items: pd.DataFrame) -> Integer[np.ndarray, " items"]:
    """Levels as numbers: 0 easy, 1 medium, 2 hard.

    >>> levels_of(pd.DataFrame({"level": ["hard", "easy"]}))
    array([2, 0])
    """
    return np.array([LEVELS.index(level) for level in items["level"]], dtype=np.int64)


def sessions_of(items: pd.DataFrame) -> Shaped[np.ndarray, " items"]:
    """The session of each item, `class/attribute`.

    >>> sessions_of(pd.DataFrame({"label": ["car"], "attribute": ["size"]})).tolist()
    ['car/size']
    """
    return (items["label"].astype(str) + "/" + items["attribute"].astype(str)).to_numpy(dtype=str)


def has_levels(items: pd.DataFrame) -> bool:
    """Whether any image has an attribute and a level."""
    return {ATTRIBUTE, LEVEL} <= set(items) and bool(items[[ATTRIBUTE, LEVEL]].notna().all(axis=1).any())


def pool_of(items: pd.DataFrame) -> Pool:
    """The pool of an adaptive test: images by level, session (class and attribute) and group (attribute).

    Images without levels are a single group, with the classes as its sessions.
    """
    if not has_levels(items):
        return make_pool(None, items["label"].to_numpy(dtype=str))
    return make_pool(levels_of(items), sessions_of(items), items["attribute"].to_numpy(dtype=str))


def with_complete_sessions(source: LevelResponses) -> LevelResponses:
    """The responses without the images of sessions that lack a level; the log names the first of these sessions.

    A session is a class and an attribute. It may lack a level because its images were rejected, or never made. Raises
    FcaError when no session has all levels.
    """
    sessions = sessions_of(source.items)
    # of every image: how many levels its session has
    n_levels = source.items["level"].groupby(sessions).transform("nunique")
    has_all_levels = (n_levels == len(LEVELS)).to_numpy()
    incomplete_sessions = sorted(set(sessions[~has_all_levels]))
    if not has_all_levels.any():
        required = f"sessions (class/attribute) of {source.dataset} with {', '.join(LEVELS)} images"
        step = "make the images of the level that is missing"
        raise FcaError(required, f"none of {len(incomplete_sessions)}", "1 or more", step)
    if incomplete_sessions:
        number = len(incomplete_sessions)
        examples = ", ".join(incomplete_sessions[:5]) + (", ..." if number > 5 else "")
        log.warning("%s: %d sessions lack a level and are left out: %s", source.dataset, number, examples)

    return source._replace(
        items=source.items[has_all_levels].reset_index(drop=True),
        correct=source.correct[:, has_all_levels],
        confidence=source.confidence[:, has_all_levels],
    )


def mean_cells(
    column: Column,
    values: Float[np.ndarray, " n"],
    within: tuple[float, float] = SIGNED_FRACTION,
) -> Line:
    """The cells of a column with the mean of some values, and of both ends of its 95 % interval.

    values: shares, or differences of shares, such as one for each class.
    within: the range that the interval is limited to.
    """
    each_by_itself = None  # no clusters of values that are drawn together
    return cells(interval_columns(column), mean_with_interval(values, each_by_itself, within))


def score_cells(rates: Float[np.ndarray, "n 3"]) -> Line:
    """The cells of the mean accuracies by level, and of accuracy and score with their intervals.

    rates: accuracy by level of each class or session, over which the intervals are.
    """
    line = cells(BY_LEVEL, rates.mean(axis=0).tolist())
    for target, weights in zip((ACCURACY, SCORE), LEVEL_WEIGHTS, strict=True):
        line |= mean_cells(target, rates @ weights, FRACTION)
    return line


def cells(columns: Iterable[Column], values: Iterable[Any]) -> Line:
    """A line of a table, or a part of it, from its columns and their values in the same order."""
    return dict(zip(columns, values, strict=True))


def columns_of(stored: Predictions, labels: Sequence[int] | Int[np.ndarray, " labels"]) -> Int[np.ndarray, " columns"]:
    """The logit columns of the classes with these label indices, ascending and each once.

    Classes that the model does not know have no column, and are left out.
    """
    columns = np.unique(stored.columns[np.asarray(labels)])
    return columns[columns >= 0]  # -1: the model does not know the class


def _read_dataset(store: Store, dataset: str, rows: pd.DataFrame, protocol: str) -> LevelResponses | None:
    """The responses of the models of one data set; None if none of its images has an attribute and a level.

    rows: the rows of stored predictions for this data set, one for each model.
    Raises FcaError for a level that is not easy, medium or hard.
    """
    prediction_rows = sorted(records(rows), key=lambda row: (row["subject"], row["run_id"]))
    # All rows are of the same version of the data set and of its test images.
    fingerprint, split = prediction_rows[0]["fingerprint"], prediction_rows[0]["split"]
    items = store.items(fingerprint)
    if not {ATTRIBUTE, LEVEL} <= set(items):
        return None

    item_columns = list(map(str, ITEM))  # `reindex` adds columns that the data set lacks, with empty cells
    items = items[items["split"] == split].reindex(columns=item_columns).astype(object)  # not as categories
    has_level = items[[ATTRIBUTE, LEVEL]].notna().all(axis=1).to_numpy()
    if not has_level.any():
        return None
    items = items[has_level].reset_index(drop=True)
    unknown_levels = sorted({str(level) for level in items["level"]} - set(LEVELS))
    if unknown_levels:
        step = f"name levels so, or leave the data set out: 'fingerprint!={fingerprint}'"
        raise FcaError(f"level of {dataset}", ", ".join(unknown_levels[:5]), ", ".join(LEVELS), step)

    responses = [_correct_and_confidence(store, row, has_level, protocol) for row in prediction_rows]
    return LevelResponses(
        dataset=dataset,
        fingerprint=fingerprint,
        items=items,
        models=tuple(_name_without_best(row) for row in prediction_rows),  # all have their best weights
        correct=np.stack([correct for correct, _ in responses]),
        confidence=np.stack([confidence for _, confidence in responses]),
        runs=tuple(sorted(row["run_id"] for row in prediction_rows)),
    )


def _name_without_best(row: Mapping[str, Any]) -> str:
    """The name of a row's model without `/best`: "resnet18, seed 1" for the subject "resnet18/best, seed 1".

    `/best` distinguishes best weights from snapshots of training, which are not read here.
    """
    model, subject = str(row["model"]), str(row["subject"])
    best = f"{model}/{BEST}"
    return model + subject[len(best) :] if subject.startswith(best) else subject


def _correct_and_confidence(
    store: Store, row: Mapping[str, Any], has_level: Bool[np.ndarray, " images"], protocol: str
) -> tuple[Bool[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """Whether one model is right on each image that has a level, and how confident it is.

    Its confidence is the largest probability that it gives to a class that may be predicted.

    row:       the row of the model's stored predictions.
    has_level: for each image of these predictions, whether it has an attribute and a level.
    protocol:  open: any class that the model knows may be predicted; masked: only those that the images have.
    """
    # Of each image: `labels` has the index of its class, `true` the logit column of its class, `right` whether the
    # prediction among all classes of the model is right.
    stored = predictions(store, row)
    allowed = columns_of(stored, stored.labels[has_level])  # logit columns of the classes that the images have
    if protocol == "open" or len(allowed) == len(stored.logit_classes):  # every class of the model may be predicted
        # "p_max" is the stored probability of the predicted class, among all classes of the model
        confidence = store.array(row["run_id"], "p_max")[has_level].astype(np.float32)
        return stored.right[has_level], confidence

    logits = stored.logits[has_level]
    confidence = softmax(logits[:, allowed].astype(np.float32), axis=1).max(axis=1)
    return masked_answers(logits, allowed) == stored.true[has_level], confidence
