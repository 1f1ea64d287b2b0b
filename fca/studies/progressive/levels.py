"""Who answered which image, of which level of difficulty: what analyses of levels and adaptive tests start from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer, Shaped
from scipy.special import softmax

from fca.stats.adaptive import LEVELS
from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.studies.answers import answering_rows, predictions
from fca.studies.rows import records, require
from fca.types import FcaError

log = logging.getLogger(__name__)
COMMAND = "fca run -m experiment=progressive"
PROTOCOLS = ("open", "masked")
COLUMNS = ["image_id", "label", "attribute", "level", "triplet"]


class Levelled(NamedTuple):
    """What the full models of one data set answered to its test images, each of an attribute and a level.

    items: image_id, label, attribute, level (easy, medium, hard), triplet (missing where there is none); one line a
    column of `correct`.    confidence: the greatest of the probabilities of the classes that might be answered.
    """

    dataset: str
    fingerprint: str
    items: pd.DataFrame
    models: tuple[str, ...]
    correct: Bool[np.ndarray, "models items"]
    confidence: Float[np.ndarray, "models items"]
    runs: tuple[str, ...]


def levelled_answers(store: Store, query: str | None = None, protocol: str = "open") -> list[Levelled]:
    """Answers on clean test images of data sets with columns `attribute` and `level`, one a data set.

    Models are those that know every class of the set, with their best weights; snapshots on the way are none. Images
    without attribute or level are left out.
    protocol: open, any class that the model knows may be answered; masked, only those that the images have (a model of
    the 1,000 classes of ImageNet on images of 100 of them). Where a model knows no other class, both are the same.
    Raises FcaError for an unknown protocol, a level of another name, and when there is nothing.
    """
    if protocol not in PROTOCOLS:
        raise FcaError("analysis.protocol", protocol, " or ".join(PROTOCOLS), "take one of them")
    rows = answering_rows(store, query)
    final = rows["snapshot"].isna() | (rows["snapshot"] == "best")
    rows = rows[(rows["shift"] == "clean") & final]
    found = [one for name, part in rows.groupby("dataset") for one in _of_dataset(store, str(name), part, protocol)]
    what = "answers of full models on test images with columns attribute and level"
    require(pd.DataFrame(list(found)), what, len(store.rows()), COMMAND)
    return found


def levels_of(items: pd.DataFrame) -> Integer[np.ndarray, " items"]:
    """Levels as numbers: 0 easy, 1 medium, 2 hard.

    >>> levels_of(pd.DataFrame({"level": ["hard", "easy"]}))
    array([2, 0])
    """
    return np.array([LEVELS.index(level) for level in items["level"]], dtype=np.int64)


def sessions_of(items: pd.DataFrame) -> Shaped[np.ndarray, " items"]:
    """The session of each item, `class/attribute`: what an adaptive test and the score of hierarchy count as one.

    >>> sessions_of(pd.DataFrame({"label": ["car"], "attribute": ["size"]})).tolist()
    ['car/size']
    """
    return (items["label"].astype(str) + "/" + items["attribute"].astype(str)).to_numpy(dtype=str)


def whole_sessions(found: Levelled) -> Levelled:
    """Without the sessions that lack a level (their images were struck, or never made), which the log names.

    Raises FcaError when no session is left.
    """
    sessions = pd.Series(sessions_of(found.items))
    whole = (found.items["level"].groupby(sessions.to_numpy()).transform("nunique") == len(LEVELS)).to_numpy()
    left_out = sorted(set(sessions[~whole]))
    if not whole.any():
        what = f"sessions (class/attribute) of {found.dataset} with {', '.join(LEVELS)} images"
        raise FcaError(what, f"none of {len(left_out)}", "1 or more", "make the images of the level that is missing")
    if left_out:
        named = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
        log.warning("%s: %d sessions lack a level and are left out: %s", found.dataset, len(left_out), named)
    items = found.items[whole].reset_index(drop=True)
    return found._replace(items=items, correct=found.correct[:, whole], confidence=found.confidence[:, whole])


def _of_dataset(store: Store, dataset: str, rows: pd.DataFrame, protocol: str) -> Iterator[Levelled]:
    """None for a data set without the columns."""
    lines = sorted(records(rows), key=lambda row: (row["subject"], row["run_id"]))
    items = store.items(lines[0]["fingerprint"])
    if not {"attribute", "level"} <= set(items):
        return
    items = items[items["split"] == lines[0]["split"]].reindex(columns=COLUMNS).reset_index(drop=True)
    there = (items["attribute"].notna() & items["level"].notna()).to_numpy()
    if not there.any():
        return
    items = items[there].astype(dict.fromkeys(COLUMNS, object)).reset_index(drop=True)
    wrong = sorted({str(level) for level in items["level"]} - set(LEVELS))
    if wrong:
        step = f"name levels so, or leave the data set out: analysis.query=\"dataset != '{dataset}'\""
        raise FcaError(f"level of {dataset}", ", ".join(wrong[:5]), ", ".join(LEVELS), step)
    answers = [_answers(store, row, there, protocol) for row in lines]
    yield Levelled(
        dataset,
        str(lines[0]["fingerprint"]),
        items,
        tuple(_name(row) for row in lines),
        np.stack([correct for correct, _ in answers]),
        np.stack([confidence for _, confidence in answers]),
        tuple(sorted(row["run_id"] for row in lines)),
    )


def _name(row: dict[str, Any]) -> str:
    """The subject's name; `/best` tells it from snapshots, which are not here."""
    best = f"{row['model']}/best"
    subject = str(row["subject"])
    return row["model"] + subject[len(best) :] if subject.startswith(best) else subject


def _answers(
    store: Store, row: dict[str, Any], there: Bool[np.ndarray, " images"], protocol: str
) -> tuple[Bool[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """Right or wrong, and confidence, of one model on the images that are there."""
    found = predictions(store, row)
    true = found.true[there]
    allowed = np.unique(true)
    if protocol == "open" or len(allowed) == len(found.logit_classes):
        confidence = np.asarray(store.array(row["run_id"], "p_max"))[there]
        return found.right[there], confidence.astype(np.float32)
    logits = found.logits[there]
    confidence = softmax(logits[:, allowed].astype(np.float32), axis=1).max(axis=1)
    return masked_answers(logits, allowed) == true, confidence.astype(np.float32)
