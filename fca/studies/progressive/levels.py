"""Responses to images by attribute and level of difficulty, from stored predictions; the columns of all their tables.

A session is a class and an attribute: an adaptive test moves up and down the levels within one. Huang et al. (2025,
arXiv 2503.13058) count two targets over the level accuracies e, m and h: accuracy and score.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from fca.tables.answers import answering_rows
from fca.tables.keys import Query
from fca.tables.predictions import Predictions, predictions
from fca.tables.rows import records, require
from fca.tables.table import ATTRIBUTE as ANY_ATTRIBUTE
from fca.tables.table import IMAGE_ID, LABEL
from fca.types import BEST, Column, FcaError, with_interval

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


class ByLevel(NamedTuple):
    """What the full models of one data set predicted for its test images, each of an attribute and a level.

    items: image_id, label, attribute, level (easy, medium, hard), triplet (missing where there is none); one line a
    column of `correct`.    confidence: the greatest of the probabilities of the classes that may be predicted.
    """

    dataset: str
    fingerprint: str
    items: pd.DataFrame
    models: tuple[str, ...]
    correct: Bool[np.ndarray, "models items"]
    confidence: Float[np.ndarray, "models items"]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class OfLevels:
    """What analyses of levels ask for; they read `predict` rows of full models on sets with attributes and levels."""

    query: Query = None
    protocol: LevelProtocol = "open"


def responses_by_level(store: Store, query: str | None = None, protocol: str = "open") -> list[ByLevel]:
    """Responses to clean test images of data sets with columns `attribute` and `level`, one a data set.

    Models are those that know every class of the set, with their best weights, without snapshots of training. Images
    without attribute or level are left out.
    protocol: open, any class that the model knows may be predicted; masked, only those that the images have (a model of
    the 1,000 classes of ImageNet on images of 100 of them). Where a model knows no other class, both are the same.
    A data set with a level of another name is left out, with a line in the log.
    Raises FcaError for an unknown protocol, and when there is nothing.
    """
    found = sets_with_levels(store, query, protocol)
    what = "predictions of full models on test images with columns attribute and level"
    require(found, what, len(store.rows()), COMMAND)
    return found


def sets_with_levels(store: Store, query: str | None, protocol: str) -> list[ByLevel]:
    """The same, also when there is nothing."""
    if protocol not in PROTOCOLS:
        raise FcaError("analysis.protocol", protocol, " or ".join(PROTOCOLS), "take one of them")
    rows = answering_rows(store, query)
    rows = rows[(rows["shift"] == "clean") & (rows["snapshot"].fillna(BEST) == BEST)]
    found: list[ByLevel] = []
    problems: list[FcaError] = []
    for name, part in rows.groupby("dataset"):
        try:
            found += _of_dataset(store, str(name), part, protocol)
        except FcaError as error:
            problems.append(error)
    if problems and not found:
        raise problems[0]
    for problem in problems:
        log.warning("a data set is left out: %s", problem)
    return found


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

    Of images without levels one group, whose sessions are the classes.
    """
    if not has_levels(items):
        return make_pool(None, items["label"].to_numpy(dtype=str))
    return make_pool(levels_of(items), sessions_of(items), items["attribute"].to_numpy(dtype=str))


def whole_sessions(found: ByLevel) -> ByLevel:
    """Without the sessions that lack a level (their images were rejected, or never made); the log names these.

    Raises FcaError when no session is left.
    """
    sessions = sessions_of(found.items)
    whole = (found.items["level"].groupby(sessions).transform("nunique") == len(LEVELS)).to_numpy()
    left_out = sorted(set(sessions[~whole]))
    if not whole.any():
        what = f"sessions (class/attribute) of {found.dataset} with {', '.join(LEVELS)} images"
        raise FcaError(what, f"none of {len(left_out)}", "1 or more", "make the images of the level that is missing")
    if left_out:
        named = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
        log.warning("%s: %d sessions lack a level and are left out: %s", found.dataset, len(left_out), named)
    items = found.items[whole].reset_index(drop=True)
    return found._replace(items=items, correct=found.correct[:, whole], confidence=found.confidence[:, whole])


def mean_cells(
    column: Column,
    values: Float[np.ndarray, " n"],
    within: tuple[float, float] = SIGNED_FRACTION,
) -> Line:
    """The cells of a mean of shares, or of differences of shares, and of both ends of its interval."""
    return cells(with_interval(column), mean_with_interval(values, None, within))


def score_cells(rates: Float[np.ndarray, "n 3"]) -> Line:
    """The cells of the level accuracies, and of accuracy and score with their intervals over the rows of `rates`."""
    line = cells(BY_LEVEL, rates.mean(axis=0).tolist())
    for target, weights in zip((ACCURACY, SCORE), LEVEL_WEIGHTS, strict=True):
        line |= mean_cells(target, rates @ weights, FRACTION)
    return line


def cells(columns: Iterable[Column], values: Iterable[Any]) -> Line:
    """Part of a line of a table."""
    return dict(zip(columns, values, strict=True))


def columns_of(found: Predictions, labels: Sequence[int] | Int[np.ndarray, " labels"]) -> Int[np.ndarray, " columns"]:
    """The columns of the logits for these label indices that the model knows, in order."""
    columns = np.unique(found.columns[np.asarray(labels)])
    return columns[columns >= 0]


def _of_dataset(store: Store, dataset: str, rows: pd.DataFrame, protocol: str) -> Iterator[ByLevel]:
    """Nothing for a data set without the columns."""
    lines = sorted(records(rows), key=lambda row: (row["subject"], row["run_id"]))
    items = store.items(lines[0]["fingerprint"])
    if not {ATTRIBUTE, LEVEL} <= set(items):
        return
    items = items[items["split"] == lines[0]["split"]].reindex(columns=list(map(str, ITEM))).astype(object)
    there = items[[ATTRIBUTE, LEVEL]].notna().all(axis=1).to_numpy()
    if not there.any():
        return
    items = items[there].reset_index(drop=True)
    if wrong := sorted({str(level) for level in items["level"]} - set(LEVELS)):
        step = f"name levels so, or leave the data set out: 'fingerprint!={lines[0]['fingerprint']}'"
        raise FcaError(f"level of {dataset}", ", ".join(wrong[:5]), ", ".join(LEVELS), step)
    correct, confidence = zip(*(_responses(store, row, there, protocol) for row in lines), strict=True)
    models, runs = tuple(_name(row) for row in lines), tuple(sorted(row["run_id"] for row in lines))
    yield ByLevel(dataset, lines[0]["fingerprint"], items, models, np.stack(correct), np.stack(confidence), runs)


def _name(row: Mapping[str, Any]) -> str:
    """The subject's name without `/best`, which distinguishes it from snapshots; none of these are read."""
    model, subject = str(row["model"]), str(row["subject"])
    best = f"{model}/{BEST}"
    return model + subject[len(best) :] if subject.startswith(best) else subject


def _responses(
    store: Store, row: Mapping[str, Any], there: Bool[np.ndarray, " images"], protocol: str
) -> tuple[Bool[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """Right or wrong, and confidence, of one model on the images that are there."""
    found = predictions(store, row)
    allowed = columns_of(found, found.labels[there])
    if protocol == "open" or len(allowed) == len(found.logit_classes):
        return found.right[there], store.array(row["run_id"], "p_max")[there].astype(np.float32)
    logits = found.logits[there]
    confidence = softmax(logits[:, allowed].astype(np.float32), axis=1).max(axis=1)
    return masked_answers(logits, allowed) == found.true[there], confidence
