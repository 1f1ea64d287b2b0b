"""`fca diff`: what two runs or more differ in: keys, numbers, and the images of which only some are right."""

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

FIRST = 5  # images that are named
UNLIKE = ("outputs", "logger.dir", "logger.group", "plugins", "sweep.print", "sweep.retry", "sweep.head", "sweep.max")


@dataclass(frozen=True)
class Side:
    """A run to be compared.    name: A, B, ...    keys: its configuration, flat."""

    name: str
    store: Store
    row: Row
    keys: Mapping[str, Any]


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print what differs; exit code 2 for an id that is no finished run."""
    parser = Words(prog="fca diff", description=__doc__)
    parser.add_argument("ids", nargs="+", metavar="ID", help="of a run, or its beginning, or its folder")
    parser.offer(ids)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--images", type=int, default=FIRST, help=f"images to name for each pair (default: {FIRST})")
    options = parser.parse_args(arguments)
    if not 2 <= len(options.ids) <= len(ascii_uppercase):
        raise FcaError("ids", " ".join(options.ids), f"2 to {len(ascii_uppercase)} runs", "fca diff ID ID")
    sides = [_side(name, typed, options.outputs) for name, typed in zip(ascii_uppercase, options.ids, strict=False)]
    print(printable("\n".join(_lines(sides, options.images)), keep="\n"))
    return 0


def _side(name: str, typed: str, outputs: str) -> Side:
    store, run_id = find(typed, outputs)
    return Side(name, store, store.row(run_id), flat_config(store.folder(run_id)))


def _lines(sides: Sequence[Side], images: int) -> Iterator[str]:
    for side in sides:
        yield f"{side.name}  {side.row['run_id']}  {line_of(side.row)}"
    frame = differing_keys(sides)
    yield "\n" + (as_text(frame, "configuration") if len(frame) else "configuration: no difference")
    yield "\n" + as_text(_numbers(sides), "numbers")
    yield from _on_the_same_images(sides, images)


def differing_keys(sides: Sequence[Side]) -> pd.DataFrame:
    """A line for each key whose values differ, as they are typed; what only says where things go is left out."""
    keys = dict.fromkeys(key for side in sides for key in side.keys if key not in UNLIKE)
    lines = [{"key": key} | {side.name: _shown(side.keys, key) for side in sides} for key in keys]
    return pd.DataFrame([line for line in lines if len({line[side.name] for side in sides}) > 1])


def _shown(keys: Mapping[str, Any], key: str) -> str:
    return typed_value(keys[key]) if key in keys else "-"


def _numbers(sides: Sequence[Side]) -> pd.DataFrame:
    """What was measured, side by side; of two runs also the difference."""
    found = [numbers_of(side.row) for side in sides]
    names = dict.fromkeys(name for numbers in found for name in numbers)
    lines = [{"number": name} | {side.name: number_with_interval(name, side.row) for side in sides} for name in names]
    if len(sides) == 2:
        for line in lines:
            a, b = (numbers.get(line["number"]) for numbers in found)
            line["B - A"] = "" if a is None or b is None else f"{b - a:+.4g}"
    return pd.DataFrame(lines)


@dataclass(frozen=True)
class Predicted:
    """What a run predicted for images of a split: their positions in it, the predicted labels, and which are right."""

    split: tuple[str, str]  # fingerprint and name
    images: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    right: Bool[np.ndarray, " images"]


def predicted(side: Side) -> Predicted | None:
    """The predictions of a run, or of the best weights of a training; of a score, among its classes alone.

    None where there are none, as of an embed run.
    """
    from fca.stats.protocols import masked_answers
    from fca.tables.predictions import predictions

    row, store = side.row, side.store
    if row["task"] in ("train", "score"):
        rows = store.rows()
        best = (
            (rows["parent"] == row["run_id"])
            & (rows["task"] == "predict")
            & (rows["snapshot"].fillna("best") == "best")
        )
        chosen = rows.loc[best if row["task"] == "train" else rows["run_id"] == row["parent"], "run_id"].tolist()
        source = store.row(chosen[0]) if chosen else None
    else:
        source = row
    if source is None or source["task"] != "predict":
        return None
    found, split = predictions(store, source), (source["fingerprint"], source["split"])
    if row["task"] != "score":
        return Predicted(split, found.images, found.predicted_labels, found.right)
    classes = np.array(row["classes"])
    kept = found.of_classes(row["classes"])
    answers = masked_answers(found.logits[kept], found.columns[classes])
    label_of = {int(column): label for label, column in enumerate(found.columns)}
    labels = np.array([label_of[int(column)] for column in answers], dtype=np.int32)
    return Predicted(split, found.images[kept], labels, answers == found.true[kept])


def _on_the_same_images(sides: Sequence[Side], images: int) -> Iterator[str]:
    """The paired comparison of every two runs with predictions, and the images on which they differ."""
    known = {side.name: one for side in sides if (one := predicted(side)) is not None}
    if without := [side.name for side in sides if side.name not in known]:
        yield f"\nno predictions: {', '.join(without)}"
    pairs = list(combinations([side for side in sides if side.name in known], 2))
    compared = [(a, b, compare(known[a.name], known[b.name])) for a, b in pairs]
    for a, b, found in compared:
        if found is None:
            yield f"\n{a.name} and {b.name}: no image in common"
    paired = [(a, b, found) for a, b, found in compared if found is not None]
    if paired:
        yield "\n" + as_text(
            _differences(paired), "on the same test images (McNemar's exact test; p_holm: of all pairs)"
        )
    for first, second, both in paired:
        yield from _named(first, second, both, images)


@dataclass(frozen=True)
class Compared:
    """Two runs on the images that both predicted: positions in the split, and which of them are right of each."""

    images: Int[np.ndarray, " images"]
    right: Bool[np.ndarray, "2 images"]
    labels: Int[np.ndarray, "2 images"]


def compare(a: Predicted, b: Predicted) -> Compared | None:
    """The images in common; None without any."""
    if a.split != b.split:
        return None
    images, at_a, at_b = np.intersect1d(a.images, b.images, assume_unique=True, return_indices=True)
    if not len(images):
        return None
    return Compared(images, np.stack([a.right[at_a], b.right[at_b]]), np.stack([a.labels[at_a], b.labels[at_b]]))


def _differences(paired: Sequence[tuple[Side, Side, Compared]]) -> pd.DataFrame:
    from fca.stats.comparison import holm, mcnemar, paired_interval

    lines = []
    for a, b, found in paired:
        of_a, of_b = found.right
        only_a, only_b = int((of_a & ~of_b).sum()), int((of_b & ~of_a).sum())
        both, neither = int((of_a & of_b).sum()), int((~of_a & ~of_b).sum())
        low, high = paired_interval(both, only_b, only_a, neither)
        lines.append(
            {
                "pair": f"{b.name} - {a.name}",
                "n": len(found.images),
                "accuracies": f"{of_b.mean():.4f} - {of_a.mean():.4f}",
                "difference": f"{of_b.mean() - of_a.mean():+.4f} [{low:+.4f}, {high:+.4f}]",
                "only_first_right": only_b,
                "only_second_right": only_a,
                "neither_right": neither,
                "p": mcnemar(only_a, only_b),
            }
        )
    frame = pd.DataFrame(lines)
    return frame.assign(p_holm=holm(frame["p"].to_numpy())) if len(frame) > 1 else frame


def _named(a: Side, b: Side, found: Compared, images: int) -> Iterator[str]:
    """How many images only one of the two gets right, or both get wrong in two ways, and the first of them."""
    items = a.store.items(a.row["fingerprint"])
    part = items[items["split"] == a.row["split"]].iloc[found.images]
    classes, of_a, of_b = part["label"].cat.categories, *found.right
    differ = {
        f"only {a.name} right": of_a & ~of_b,
        f"only {b.name} right": of_b & ~of_a,
        "both wrong, in two ways": ~of_a & ~of_b & (found.labels[0] != found.labels[1]),
    }
    if a.row.get("classes") != b.row.get("classes"):
        yield f"\n{a.name} and {b.name} choose among different classes; compared are the images of those that both know"
    yield f"\nimages on which {a.name} and {b.name} differ: {int((found.labels[0] != found.labels[1]).sum())}"
    for what, chosen in differ.items():
        yield f"  {what}: {int(chosen.sum())}"
        for at in np.flatnonzero(chosen)[:images]:
            guesses = [
                f"{side.name} {classes[label] if label >= 0 else '?'}"
                for side, label in zip((a, b), found.labels[:, at], strict=True)
            ]
            yield f"    {part['image_id'].iloc[at]} ({part['label'].iloc[at]}): {', '.join(guesses)}"
