"""What the page loads to compare runs: their learning curves, accuracy by class, and the images that they get wrong.

A file a run beside the page, which it loads when a reader compares that run: a page that is opened as a file can load
scripts, but no other data.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fca.report.pictures import pictures
from fca.store import Store
from fca.store.columns import RUN_ID
from fca.store.damage import FITTED
from fca.store.files import if_whole, read_object, write_text

FOLDER = "compare"  # beside index.html
RUNS, EPOCHS = 300, 2_000  # that can be compared
WRONG, PICTURED = 5_000, 60  # images of a run; thumbnails of all


def write_compared(folder: Path, store: Store, rows: pd.DataFrame) -> None:
    """Write compare/<run id>.js beside the page for each training, and each prediction of clean test images.

    A training has the predictions of its best weights, and these the curve of their training. Of more than 300 runs
    the last ones are written.
    """
    predicts = rows[(rows["task"] == "predict") & (rows["split"] == "test") & (rows["shift"] == "clean")]
    of_training = predicts.dropna(subset="parent").drop_duplicates("parent").set_index("parent")
    clean = set(predicts[RUN_ID])
    wrong: Counter[tuple[str, str]] = Counter()
    chosen = rows[rows["task"].isin(["train", "predict"])].sort_values("finished").tail(RUNS)
    for row in chosen.to_dict("records"):
        run_id, known = row[RUN_ID], row if row[RUN_ID] in clean else None
        if row["task"] == "train" and run_id in of_training.index:
            known = {**of_training.loc[run_id].to_dict(), "parent": run_id}
        found = _predicted(store, known) if known else {}
        training = run_id if row["task"] == "train" else row["parent"]
        curve = _curve(store.folder(str(training))) if pd.notna(training) else []
        if found or curve:
            wrong.update((found["fingerprint"], image) for image in found.get("wrong", ()))
            write(folder / FOLDER / f"{run_id}.js", "fcaRun", run_id, {**found, "curve": curve})
    write(folder / FOLDER / "thumbnails.js", "fcaThumbnails", dict(_thumbnails(store, wrong, len(chosen))))


def write(path: Path, function: str, *values: Any) -> None:
    """A script that hands these values to a function of the page."""
    write_text(path, f"{function}({', '.join(json.dumps(value, allow_nan=False) for value in values)});\n")


def _predicted(store: Store, row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """Right and all images by class, and label and prediction of each image that is wrong; nothing without arrays."""
    with if_whole(), suppress(IndexError):  # a damaged run is compared by its row alone
        classes, pred = (np.asarray(store.array(row[RUN_ID], name)) for name in ("logit_classes", "pred"))
        items = store.items(row["fingerprint"])
        labels = items["label"].astype(str)
        known = (items["split"] == row["split"]) & labels.isin(classes)
        if known.sum() != len(pred):
            return {}
        keys, predicted = labels[known], classes[pred].astype(str)
        right = pd.Series(predicted == keys.to_numpy(), keys.to_numpy())
        by_class = right.groupby(level=0).agg(["sum", "size"])
        lines = zip(items.loc[known, "image_id"], keys, predicted, strict=True)
        wrong = {image: [label, other] for image, label, other in lines if label != other}
        return {
            "fingerprint": row["fingerprint"],
            "classes": {key: [int(hits), int(size)] for key, hits, size in by_class.itertuples()},
            "wrong": dict(list(wrong.items())[:WRONG]),
        }
    return {}


def _curve(folder: Path) -> list[dict[str, Any]]:
    """The figures of every epoch of a training; nothing where it kept none, or a file from elsewhere holds others."""
    with if_whole():
        history = read_object(folder / FITTED).get("history")
        epochs = history[:EPOCHS] if isinstance(history, list) else []
        lines = [line if isinstance(line, dict) else {} for line in epochs]
        return [{"epoch": epoch, **_finite(line)} for epoch, line in enumerate(lines, start=1)]
    return []


def _finite(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if isinstance(value, int | float) and math.isfinite(value)}


def _thumbnails(store: Store, wrong: Counter[tuple[str, str]], runs: int) -> Iterator[tuple[str, str]]:
    """Image id -> picture, of those that about half of the runs get wrong, where the images are still there."""
    disputed = sorted(wrong, key=lambda image: abs(wrong[image] - runs / 2))[:PICTURED]
    for fingerprint in dict.fromkeys(of for of, _ in disputed):
        images = [image for of, image in disputed if of == fingerprint]
        for image, uri in zip(images, pictures(store, images, fingerprint).thumbnails, strict=True):
            if uri is not None:
                yield image, uri
