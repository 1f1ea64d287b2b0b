"""Files of answers about images of a stored data set: which set that is, and their subjects beside the stored ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fca.nouns import FcaError
from fca.responses import Responses
from fca.responses.files import stem_of


def stored_set(read: Responses, stored: Mapping[str, Responses], file: str) -> str | None:
    """The stored data set (by name) whose images all items of a file are; None where it has none of any.

    Data sets may name their images alike (cifar10 and cifar100: test/00000), so labels in the file must be those
    stored; where several sets remain, the file is of the one that it is called after.
    Raises FcaError where only some items are known, where labels differ, and where several sets remain.
    """
    known = {name: read.items["item"].isin(set(of.items["image_id"])) for name, of in stored.items()}
    whole = [name for name, those in known.items() if those.all()]
    if not whole:
        for name, those in known.items():
            if those.any():
                raise _only_some(read.items.loc[~those, "item"], len(those), name, file)
        return None
    relabelled = {name: _first_relabelled(read, stored[name]) for name in whole}
    alike = [name for name, told in relabelled.items() if told is None]
    if not alike:
        allowed = f"the labels of {', '.join(whole)}, which has images of these names"
        raise FcaError(f"labels in {file}", relabelled[whole[0]], allowed, "take its class keys, or rename the items")
    if len(alike) == 1 or stem_of(file) in alike:
        return alike[0] if len(alike) == 1 else stem_of(file)
    step = f"call the file after its data set, e.g. {alike[0]}.npz, or give labels"
    raise FcaError(f"data set of {file}", " or ".join(alike), "one: all of these have images of its names", step)


def _only_some(unknown: pd.Series, items: int, dataset: str, file: str) -> FcaError:
    allowed = f"all or none are image_ids of {dataset}, of which it names {items - len(unknown)}"
    what = f"{len(unknown)} of {items} items of {file}"
    return FcaError(what, ", ".join(unknown.head(5)), allowed, "rename the items, or leave them out")


def _first_relabelled(read: Responses, stored: Responses) -> str | None:
    """The first item whose label in the file is not the stored one; None if there is none, or no label in the file."""
    ours = read.items["item"].map(stored.items.set_index("item")["label"])
    other = read.items["label"].notna() & (read.items["label"] != ours)
    if not other.any():
        return None
    first = int(np.flatnonzero(other)[0])
    return f"{read.items['item'].iloc[first]}: {read.items['label'].iloc[first]}, stored as {ours.iloc[first]}"


def joined(stored: Responses, read: Responses) -> Responses:
    """The subjects of a file below those of the store; NaN where they were not asked.

    A file that says only right or wrong tells the class of the right answers; wrong ones are "another class".
    """
    at = pd.Index(stored.items["item"]).get_indexer(pd.Index(read.items["item"]))
    correct = np.full((len(read.subjects), len(stored.items)), np.nan)
    correct[:, at] = read.correct
    pred = np.full(correct.shape, -1, dtype=np.int32)
    position = {key: place for place, key in enumerate(stored.classes)}
    if read.pred is None:
        label = stored.items["label"].map(position).to_numpy()[at]
        pred[:, at] = np.where(read.correct == 1, label, -1)
    else:
        class_of = np.array([*(position.get(key, -1) for key in read.classes), -1])  # the last for -1, not asked
        pred[:, at] = class_of[read.pred]
    assert stored.pred is not None  # as stored rows have it
    subjects = pd.concat([stored.subjects, read.subjects], ignore_index=True)
    both: dict[str, Any] = {"correct": np.vstack([stored.correct, correct]), "pred": np.vstack([stored.pred, pred])}
    return replace(stored, subjects=subjects, **both)
