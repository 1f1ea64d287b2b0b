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
MAX_RUNS = 300  # that can be compared on a page
MAX_EPOCHS = 2_000  # of a learning curve
MAX_WRONG = 5_000  # wrong images listed for a run
MAX_THUMBNAILS = 60  # of a page


def write_comparison_scripts(folder: Path, store: Store, rows: pd.DataFrame) -> None:
    """Write the scripts with which a page compares runs: compare/<run id>.js for each run, and thumbnails.js.

    The file of a training has its learning curve, and its best weights' predictions for clean test images. The file of
    a prediction has these predictions, if they are for clean test images, and the learning curve of the training of its
    weights, if there was one. A run with neither has no file. Only the last MAX_RUNS runs are written.

    folder: the folder of the page.
    rows:   the runs of the page, one a line, with the columns of stored results.
    """
    # predictions for unchanged test images
    is_clean_test = (rows["task"] == "predict") & (rows["split"] == "test") & (rows["shift"] == "clean")
    clean_rows = rows[is_clean_test]
    clean_run_ids = set(clean_rows[RUN_ID])
    # run id of a training -> the clean prediction of its best weights (column `parent` names the training)
    has_best_weights = clean_rows["snapshot"].fillna("best") == "best"  # a training may also store earlier weights
    best_rows = clean_rows[has_best_weights].dropna(subset="parent")
    clean_row_of_training = best_rows.drop_duplicates("parent").set_index("parent")

    n_wrong: Counter[tuple[str, str]] = Counter()  # (fingerprint, image) -> runs that get it wrong
    written_rows = rows[rows["task"].isin(["train", "predict"])].sort_values("finished").tail(MAX_RUNS)
    for row in written_rows.to_dict("records"):
        run_id = row[RUN_ID]
        is_training = row["task"] == "train"

        predictions: dict[str, Any] = {}
        if is_training and run_id in clean_row_of_training.index:  # a training shows the predictions of its weights
            # a complete row again: `set_index` took the column `parent` away
            clean_row = {**clean_row_of_training.loc[run_id].to_dict(), "parent": run_id}
            predictions = _right_and_wrong_images(store, clean_row)
        elif run_id in clean_run_ids:
            predictions = _right_and_wrong_images(store, row)

        training_id = run_id if is_training else row["parent"]  # missing for a model that was not trained here
        curve = _curve(store.folder(str(training_id))) if pd.notna(training_id) else []
        if not predictions and not curve:
            continue

        # a run with a curve alone has no `wrong` images, and adds nothing
        n_wrong.update((predictions["fingerprint"], image) for image in predictions.get("wrong", ()))
        # the script calls the page's function fcaRun with these values
        write(folder / FOLDER / f"{run_id}.js", "fcaRun", run_id, {**predictions, "curve": curve})

    thumbnails = dict(_disputed_thumbnails(store, n_wrong, len(written_rows)))
    write(folder / FOLDER / "thumbnails.js", "fcaThumbnails", thumbnails)


def write(path: Path, function: str, *values: Any) -> None:
    """Write a script that calls a function of the page with these values."""
    arguments = ", ".join(json.dumps(value, allow_nan=False) for value in values)
    write_text(path, f"{function}({arguments});\n")


def _right_and_wrong_images(store: Store, row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """The images that a prediction got right and wrong, for the page that compares runs.

    Empty where the arrays of the prediction are missing, damaged or of another data set. Keys are `fingerprint` (of the
    data set), `classes` (class -> number of right images, number of images) and `wrong` (image id -> its class and the
    predicted class, for the first MAX_WRONG images that are wrong).

    row: the stored result of the prediction.
    """
    # Damaged files end the block, as does a predicted class that is not in the list of classes (IndexError): such a
    # run is compared by its row alone.
    with if_whole(), suppress(IndexError):
        classes = np.asarray(store.array(row[RUN_ID], "logit_classes"))
        pred = np.asarray(store.array(row[RUN_ID], "pred"))
        items = store.items(row["fingerprint"])
        labels = items["label"].astype(str)
        # the prediction has the images of its split whose class the model knows, in the order of the items
        is_predicted = (items["split"] == row["split"]) & labels.isin(classes)
        if is_predicted.sum() != len(pred):  # the stored description is of another version of the data
            return {}

        true_classes = labels[is_predicted]
        predicted_classes = classes[pred].astype(str)
        # for each image whether it is right, indexed by its true class
        is_right = pd.Series(predicted_classes == true_classes.to_numpy(), true_classes.to_numpy())
        counts_by_class = is_right.groupby(level=0).agg(["sum", "size"])

        wrong_images = {}
        images = items.loc[is_predicted, "image_id"]
        for image, true_class, predicted_class in zip(images, true_classes, predicted_classes, strict=True):
            if true_class != predicted_class:
                wrong_images[image] = [true_class, predicted_class]
        return {
            "fingerprint": row["fingerprint"],
            "classes": {key: [int(n_right), int(size)] for key, n_right, size in counts_by_class.itertuples()},
            "wrong": dict(list(wrong_images.items())[:MAX_WRONG]),
        }
    return {}


def _curve(folder: Path) -> list[dict[str, Any]]:
    """The learning curve of a training: for each epoch its number and the finite values, such as losses, by name.

    Empty where the training stored no history, or where its file is damaged or has another content.

    folder: the folder of the training's run.
    """
    with if_whole():  # a missing or damaged file ends the block, without an error
        history = read_object(folder / FITTED).get("history")
        if not isinstance(history, list):
            return []
        curve = []
        for epoch, line in enumerate(history[:MAX_EPOCHS], start=1):
            finite_values = _finite(line) if isinstance(line, dict) else {}
            curve.append({"epoch": epoch, **finite_values})
        return curve
    return []


def _finite(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The finite numbers among these values: JSON has no NaN."""
    return {name: value for name, value in figures.items() if isinstance(value, int | float) and math.isfinite(value)}


def _disputed_thumbnails(store: Store, n_wrong: Counter[tuple[str, str]], n_runs: int) -> Iterator[tuple[str, str]]:
    """Image id and thumbnail (a data URI) of the images on which runs disagree most, where the images still exist.

    Runs disagree most on an image that half of the runs get wrong.

    n_wrong: (fingerprint of the data set, image id) -> how many of the n_runs runs get the image wrong.
    """
    disputed = sorted(n_wrong, key=lambda image: abs(n_wrong[image] - n_runs / 2))[:MAX_THUMBNAILS]
    fingerprints = dict.fromkeys(fingerprint for fingerprint, _ in disputed)
    for fingerprint in fingerprints:
        images = [image for image_fingerprint, image in disputed if image_fingerprint == fingerprint]
        uris = pictures(store, images, fingerprint).thumbnails
        for image, uri in zip(images, uris, strict=True):
            if uri is not None:
                yield image, uri
