"""Who answered what: the matrix that item response theory, label checks and adaptive tests start from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.nouns import FcaError


@dataclass(frozen=True)
class Responses:
    """Answers of subjects (models, their snapshots, people) on items (images, or images under a shift).

    correct:  1 right, 0 wrong, NaN not asked.
    subjects: one line a subject: `subject` (its name, told apart from all others), `model` (subjects of one model are
              not independent), `snapshot` (missing where there is none).
    items:    one line an item: `item` (its name), `image_id`, `label` (class key; missing if not known), `corruption`
              (clean, defocus_blur, ...) and `severity` (0 = clean).
    pred:     the class that was answered, as a position in `classes`; -1 not asked or another class. None: not known.
    classes:  class keys; empty when neither answers nor labels are known.
    """

    correct: Float[np.ndarray, "subjects items"]
    subjects: pd.DataFrame
    items: pd.DataFrame
    pred: Integer[np.ndarray, "subjects items"] | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for names, column in ((self.subjects, "subject"), (self.items, "item")):
            twice = names[column][names[column].duplicated()]
            if len(twice):
                raise FcaError(f"{column} names", f"{twice.iloc[0]} twice", "names that differ", f"rename one {column}")

    @property
    def accuracy(self) -> Float[np.ndarray, " subjects"]:
        """Share of right answers of each subject among the items it was asked."""
        return np.asarray(np.nanmean(self.correct, axis=1))


class Place(NamedTuple):
    """Where an item's pixels come from."""

    image_id: str
    corruption: str  # clean, or a kind: defocus_blur
    severity: int  # 0 = clean


_SHIFT = re.compile(r"[^/@]+/(?P<kind>[^/@]+)/(?P<severity>[1-5])")
_SNAPSHOT = re.compile(r"(?P<model>.+)/(?P<snapshot>best|0?\.\d+|1\.0+)")


def kind_and_severity(shift: str) -> tuple[str, int] | None:
    """Of a shift's name; None where it is no corruption.

    >>> kind_and_severity("cifar_c/fog/3"), kind_and_severity("clean"), kind_and_severity("noise/gaussian/0.25")
    (('fog', 3), ('clean', 0), None)
    """
    if shift == "clean":
        return "clean", 0
    found = _SHIFT.fullmatch(shift)
    return (found["kind"], int(found["severity"])) if found else None


def place_of(item: str) -> Place:
    """What an item's name says: `<image_id>`, or `<image_id>@<shift>`.

    >>> place_of("a@b.png@corruption/fog/3"), place_of("a@b.png")
    (Place(image_id='a@b.png', corruption='fog', severity=3), Place(image_id='a@b.png', corruption='clean', severity=0))
    """
    image_id, _, shift = item.rpartition("@")
    found = kind_and_severity(shift) if image_id and shift != "clean" else None
    return Place(item, "clean", 0) if found is None else Place(image_id, *found)


def frame_of_items(items: Sequence[str], labels: Sequence[str | None] | None = None) -> pd.DataFrame:
    """The frame of `Responses.items` of these names, with the class keys where they are known.

    >>> frame_of_items(["a.png@corruption/fog/3"], ["cat"]).values.tolist()
    [['a.png@corruption/fog/3', 'a.png', 'cat', 'fog', 3]]
    """
    keys = [None] * len(items) if labels is None else list(labels)
    frame = pd.DataFrame({"item": pd.Series(list(items), dtype=object)})
    places = pd.DataFrame([place_of(item) for item in items], columns=list(Place._fields))
    frame = pd.concat([frame, places], axis="columns").astype({"image_id": object, "severity": "int64"})
    frame.insert(2, "label", pd.Series(keys, dtype=object))
    return frame


def frame_of_subjects(
    subjects: Sequence[str], models: Sequence[str] | None = None, snapshots: Sequence[str | None] | None = None
) -> pd.DataFrame:
    """The frame of `Responses.subjects` of these names; what is not given is read from them: `resnet18/0.1`.

    >>> frame_of_subjects(["resnet18/0.1", "timm/vit_b16"])["model"].tolist()
    ['resnet18', 'timm/vit_b16']
    """
    found = [_SNAPSHOT.fullmatch(name) for name in subjects]
    read = [
        (match["model"], match["snapshot"]) if match else (name, None)
        for name, match in zip(subjects, found, strict=True)
    ]
    columns = {
        "subject": list(subjects),
        "model": [model for model, _ in read] if models is None else list(models),
        "snapshot": [at for _, at in read] if snapshots is None else [at or None for at in snapshots],
    }
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
