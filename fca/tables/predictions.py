"""What stored runs predicted: the one place where stored arrays meet class keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fca.stats.protocols import logit_columns
from fca.store import Store


@dataclass(frozen=True)
class Predictions:
    """What one stored run predicted for the images behind its arrays.

    images:  positions among the images of the row's split.    labels: label index of each image.
    classes: class keys of the data set, in label order.
    columns: label index -> column of the logits, -1 for a class that the model does not know.
    pred:    predicted column of each image; kept from float32 logits, where stored logits may be float16.
    """

    store: Store
    run_id: str
    images: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    classes: tuple[str, ...]
    columns: Int[np.ndarray, " classes"]
    pred: Int[np.ndarray, " images"]

    @cached_property
    def true(self) -> Int[np.ndarray, " images"]:
        """Column of the class of each image."""
        return self.columns[self.labels]

    @cached_property
    def right(self) -> Bool[np.ndarray, " images"]:
        """Whether each prediction is right when any class of the model may be predicted."""
        return self.pred == self.true

    @cached_property
    def predicted_labels(self) -> Int[np.ndarray, " images"]:
        """Label index predicted for each image; -1 for a class that the data set does not have."""
        label_of = {int(column): label for label, column in enumerate(self.columns)}
        columns, inverse = np.unique(self.pred, return_inverse=True)
        return np.array([label_of.get(int(column), -1) for column in columns], dtype=np.int32)[inverse]

    @cached_property
    def logits(self) -> Float[np.ndarray, "images logits"]:
        """Logits, float32 or float16."""
        return np.asarray(self.store.array(self.run_id, "logits", lines=len(self.images)))

    @cached_property
    def logit_classes(self) -> tuple[str, ...]:
        """Class keys in the order of the logits."""
        return tuple(self.store.array(self.run_id, "logit_classes").tolist())

    def of_classes(self, labels: Sequence[int]) -> Bool[np.ndarray, " images"]:
        """Which images are of these classes."""
        return np.isin(self.labels, list(labels))


def predictions(store: Store, row: Mapping[str, Any]) -> Predictions:
    """The predictions of a `predict` row: the one place where stored arrays meet class keys."""
    classes, labels = labels_of(store, row)
    images = np.flatnonzero(np.isin(labels, list(row["classes"])))
    columns = logit_columns(store.array(row["run_id"], "logit_classes").tolist(), classes)
    pred = np.asarray(store.array(row["run_id"], "pred", lines=len(images))).astype(np.int64)
    return Predictions(store, row["run_id"], images, labels[images], tuple(classes), columns, pred)


def labels_of(store: Store, row: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """Class keys in label order, and the label of each image of a row's split."""
    items = store.items(row["fingerprint"])
    label = items["label"][items["split"] == row["split"]].cat
    return label.categories.tolist(), label.codes.to_numpy().astype(np.int64)
