"""`fca diff`: how two or more runs differ: keys, numbers, and the images that only some of them classify right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_uppercase
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from fca.cli import Words, printable, sub_command
from fca.cli.show import find, flat_config, ids, numbers_of
from fca.cli.terminal import as_text, line_of, number_with_interval, typed_value
from fca.store import Store
from fca.store.columns import Row
from fca.types import FcaError

MAX_IMAGES = 5  # that are named for each kind of difference
NOT_COMPARED = (  # keys that decide where files go and how a sweep proceeds, not what is computed
    "outputs",
    "logger.dir",
    "logger.group",
    "plugins",
    "sweep.print",
    "sweep.retry",
    "sweep.head",
    "sweep.max",
)


@dataclass(frozen=True)
class Side:
    """A run that is compared with others.

    name: A, B, ..., by which the output calls it.
    keys: its configuration, see `flat_config`.
    """

    name: str
    store: Store
    row: Row
    keys: Mapping[str, Any]


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print how two or more runs differ.

    arguments: the words behind the name of the command.
    Returns exit code 0. The decorator turns an FcaError, such as for an id of no finished run, into exit code 2.
    """
    parser = Words(prog="fca diff", description=__doc__)
    parser.add_argument("ids", nargs="+", metavar="ID", help="id of a run, its beginning, or its folder")
    parser.offer(ids)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument(
        "--images", type=int, default=MAX_IMAGES, help=f"images to name for each pair (default: {MAX_IMAGES})"
    )
    options = parser.parse_args(arguments)
    if not 2 <= len(options.ids) <= len(ascii_uppercase):
        raise FcaError("ids", " ".join(options.ids), f"2 to {len(ascii_uppercase)} runs", "fca diff ID ID")
    names_and_ids = zip(ascii_uppercase, options.ids, strict=False)  # A, B, ...; most letters are not needed
    # a side is one of the runs: its name A, B, ..., its row and its configuration
    sides = [_side(name, typed, options.outputs) for name, typed in names_and_ids]
    print(printable("\n".join(_lines(sides, options.images)), keep="\n"))
    return 0


def _side(name: str, typed: str, outputs: str) -> Side:
    """The finished run that was typed (see `find`), under this name. Raises FcaError if there is none."""
    store, run_id = find(typed, outputs)
    return Side(name, store, store.row(run_id), flat_config(store.folder(run_id)))


def _lines(sides: Sequence[Side], max_images: int) -> Iterator[str]:
    """The lines of the output: the runs, then how their configurations, numbers and predictions differ."""
    for side in sides:
        yield f"{side.name}  {side.row['run_id']}  {line_of(side.row)}"

    frame = differing_keys(sides)
    yield "\n" + (as_text(frame, "configuration") if len(frame) else "configuration: no difference")
    yield "\n" + as_text(_numbers(sides), "numbers")
    yield from _on_the_same_images(sides, max_images)


def differing_keys(sides: Sequence[Side]) -> pd.DataFrame:
    """A table with a line for each key of the configuration in which runs differ: `key`, and a column for each run.

    Values are as they are typed, and - where a run lacks the key. Keys in NOT_COMPARED are left out.
    """
    compared_keys = dict.fromkeys(key for side in sides for key in side.keys if key not in NOT_COMPARED)

    lines = []
    for key in compared_keys:
        value_by_side = {side.name: typed_value(side.keys[key]) if key in side.keys else "-" for side in sides}
        if len(set(value_by_side.values())) > 1:
            lines.append({"key": key, **value_by_side})
    return pd.DataFrame(lines)


def _numbers(sides: Sequence[Side]) -> pd.DataFrame:
    """A table with a line for each number that any of the runs measured, and a column for each run.

    With two runs, a further column has their difference; it is empty if one of the runs lacks the number.
    sides: the runs, with the names A, B, ... that the output gives them.
    """
    numbers_of_sides = [numbers_of(side.row) for side in sides]
    names = dict.fromkeys(name for numbers in numbers_of_sides for name in numbers)  # each name once, in order

    lines = []
    for name in names:
        line = {"number": name}
        for side in sides:
            line[side.name] = number_with_interval(name, side.row)
        if len(sides) == 2:
            a, b = (numbers.get(name) for numbers in numbers_of_sides)
            line["B - A"] = "" if a is None or b is None else f"{b - a:+.4g}"
        lines.append(line)
    return pd.DataFrame(lines)


@dataclass(frozen=True)
class Predicted:
    """What a run predicted for images of a split.

    split:  fingerprint of the data set, and name of the split.
    images: positions of the images in the split.
    labels: predicted label index of each image; -1 for a class that the data set does not have.
    right:  whether each prediction is right.
    """

    split: tuple[str, str]
    images: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    right: Bool[np.ndarray, " images"]


def predicted(side: Side) -> Predicted | None:
    """The predictions that belong to a run, or None if there are none, as for a run of task embed.

    A training has the predictions of its best weights on the test images. A score run computed the accuracy of another
    run's predictions on a subset of classes. To it belong new predictions for the images of the subset: of each image
    the class with the largest logit among the classes of the subset (protocol masked).
    side: the run.
    """
    from fca.stats.protocols import masked_answers  # imports SciPy
    from fca.tables.predictions import predictions

    source = _run_with_predictions(side)
    if source is None or source["task"] != "predict":
        return None
    stored = predictions(side.store, source)
    split = (source["fingerprint"], source["split"])
    if side.row["task"] != "score":
        return Predicted(split, stored.images, stored.predicted_labels, stored.right)

    # a label index is a position in the classes of the data set; a network may have its logits in another order
    column_of_label = stored.columns  # label index -> column of the logits
    label_of_column = {int(column): label for label, column in enumerate(column_of_label)}

    subset_labels = side.row["classes"]  # label indices of the classes in the subset
    is_of_subset = stored.of_classes(subset_labels)  # for each image, whether its own class is in the subset
    subset_columns = column_of_label[np.array(subset_labels)]
    # for each image the column, among those of the subset, with the largest logit
    predicted_columns = masked_answers(stored.logits[is_of_subset], subset_columns)
    predicted_labels = np.array([label_of_column[int(column)] for column in predicted_columns], dtype=np.int32)
    true_columns = stored.true[is_of_subset]  # for each image the column of its own class
    return Predicted(split, stored.images[is_of_subset], predicted_labels, predicted_columns == true_columns)


def _run_with_predictions(side: Side) -> Row | None:
    """The stored row of the run whose predictions belong to a training or score run; None if there is no such run.

    A run's parent is the run whose result it read. The predictions of a training are in a predict run on clean test
    images with the training as its parent. The predictions of a score run are in its own parent. For any other task,
    the row of the run itself is returned.
    side: the run.
    """
    rows = side.store.rows()
    if side.row["task"] == "train":
        is_best_snapshot = rows["snapshot"].fillna("best") == "best"  # rows without a snapshot are of the best weights
        is_clean_test = (rows["shift"] == "clean") & (rows["split"] == "test")
        is_of_training = (rows["parent"] == side.row["run_id"]) & (rows["task"] == "predict")
        has_predictions = is_of_training & is_best_snapshot & is_clean_test
    elif side.row["task"] == "score":
        has_predictions = rows["run_id"] == side.row["parent"]
    else:
        return side.row

    run_ids = rows.loc[has_predictions, "run_id"].tolist()
    return side.store.row(run_ids[0]) if run_ids else None


def _on_the_same_images(sides: Sequence[Side], max_images: int) -> Iterator[str]:
    """The lines on predictions: a paired comparison of every two runs, and the images on which they differ.

    Runs without predictions, and pairs without a common image, are named instead.
    sides: the runs, with the names A, B, ... that the output gives them.
    max_images: how many images are named for each pair and kind of difference.
    """
    predictions_of = {}
    for side in sides:
        predictions = predicted(side)
        if predictions is not None:
            predictions_of[side.name] = predictions
    names_without = [side.name for side in sides if side.name not in predictions_of]
    if names_without:
        yield f"\nno predictions: {', '.join(names_without)}"

    pairs = []
    for a, b in combinations([side for side in sides if side.name in predictions_of], 2):
        compared = compare(predictions_of[a.name], predictions_of[b.name])
        if compared is None:
            yield f"\n{a.name} and {b.name}: no image in common"
        else:
            pairs.append((a, b, compared))

    if pairs:
        title = "on the same test images (McNemar's exact test; p_holm: of all pairs)"
        yield "\n" + as_text(_differences(pairs), title)
    for a, b, compared in pairs:
        yield from _images_that_differ(a, b, compared, max_images)


@dataclass(frozen=True)
class Compared:
    """Two runs on the images that both predicted.

    images: positions in the split.
    right: whether each run, a line of the array, predicted each image right.
    labels: the label index that each run predicted.
    """

    images: Int[np.ndarray, " images"]
    right: Bool[np.ndarray, "2 images"]
    labels: Int[np.ndarray, "2 images"]


def compare(a: Predicted, b: Predicted) -> Compared | None:
    """What two runs predicted on the images that both have; None if they have no image in common.

    a, b: the predictions of each run: `images` are positions in the split, `labels` the predicted label indices, and
          `right` whether each prediction is right.
    """
    if a.split != b.split:  # of another data set or split, where the same position is another image
        return None
    # at_a, at_b: where the common images are in the arrays of a and of b
    images, at_a, at_b = np.intersect1d(a.images, b.images, assume_unique=True, return_indices=True)
    if not len(images):
        return None
    right = np.stack([a.right[at_a], b.right[at_b]])
    labels = np.stack([a.labels[at_a], b.labels[at_b]])
    return Compared(images, right, labels)


def _differences(pairs: Sequence[tuple[Side, Side, Compared]]) -> pd.DataFrame:
    """A table with a line for each pair of runs: accuracies, their difference with its interval, and McNemar's test.

    The pair (A, B) is compared as B - A, so "first" in the names of columns is B, and "second" is A. The 95 % interval
    is Newcombe's for two accuracies on the same images. The p value is of McNemar's exact test: whether the images that
    only one run classifies right are divided between the runs as by fair coins. With several pairs there is also the
    p value corrected for their number (Holm). compared.right has a line for each run: whether each image is right.
    """
    from fca.stats.comparison import holm, mcnemar, paired_interval  # imports SciPy

    lines = []
    for a, b, compared in pairs:
        right_a, right_b = compared.right
        only_a = int((right_a & ~right_b).sum())
        only_b = int((right_b & ~right_a).sum())
        both_right = int((right_a & right_b).sum())
        neither = int((~right_a & ~right_b).sum())
        low, high = paired_interval(both_right, only_b, only_a, neither)
        lines.append(
            {
                "pair": f"{b.name} - {a.name}",
                "n": len(compared.images),
                "accuracies": f"{right_b.mean():.4f} - {right_a.mean():.4f}",
                "difference": f"{right_b.mean() - right_a.mean():+.4f} [{low:+.4f}, {high:+.4f}]",
                "only_first_right": only_b,
                "only_second_right": only_a,
                "neither_right": neither,
                "p": mcnemar(only_a, only_b),
            }
        )
    frame = pd.DataFrame(lines)
    return frame.assign(p_holm=holm(frame["p"].to_numpy())) if len(frame) > 1 else frame


def _images_that_differ(a: Side, b: Side, compared: Compared, max_images: int) -> Iterator[str]:
    """The lines on images that two runs classify differently: their number, and examples with both predictions.

    There are three kinds of difference: only run a is right, only run b is right, or both are wrong with different
    classes. At most max_images images are named for each kind.
    compared: `images` are the positions in the split of the images that both runs have. `labels` (the predicted label
              indices) and `right` (whether they are right) have a line for each run.
    """
    items = a.store.items(a.row["fingerprint"])  # the list of images of the data set, with a line for each
    images = items[items["split"] == a.row["split"]].iloc[compared.images]
    class_keys = images["label"].cat.categories  # label index -> class key
    right_a, right_b = compared.right
    is_label_different = compared.labels[0] != compared.labels[1]
    differences = {
        f"only {a.name} right": right_a & ~right_b,
        f"only {b.name} right": right_b & ~right_a,
        "both wrong, in two ways": ~right_a & ~right_b & is_label_different,
    }

    if a.row.get("classes") != b.row.get("classes"):
        yield f"\n{a.name} and {b.name} choose among different classes; compared are the images of those that both know"
    yield f"\nimages on which {a.name} and {b.name} differ: {int(is_label_different.sum())}"
    for difference, is_different in differences.items():
        yield f"  {difference}: {int(is_different.sum())}"
        for position in np.flatnonzero(is_different)[:max_images]:
            guesses = []
            for side, label in zip((a, b), compared.labels[:, position], strict=True):
                key = class_keys[label] if label >= 0 else "?"  # -1: the network has classes that the data set lacks
                guesses.append(f"{side.name} {key}")
            image = images.iloc[position]
            yield f"    {image['image_id']} ({image['label']}): {', '.join(guesses)}"
