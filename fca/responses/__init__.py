"""Who answered what: the matrix that item response theory, label checks and adaptive tests start from."""

from __future__ import annotations

from dataclasses import dataclass

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
