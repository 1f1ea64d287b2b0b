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
    """What one stored `predict` run predicted for each image that it evaluated.

    images:  the positions of these images among the images of the split.
    labels:  label index of each image: the position of its class in `classes`.
    classes: class keys of the data set, in label order.
    columns: column of the logits for each label index; -1 for a class that the model does not know.
    pred:    predicted column of the logits for each image. It was stored beside the logits because these may be stored
             as float16, from which the prediction of the float32 logits does not follow exactly.
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
        """Column of the logits that belongs to the true class of each image; -1 if the model does not know it."""
        return self.columns[self.labels]

    @cached_property
    def right(self) -> Bool[np.ndarray, " images"]:
        """Whether each prediction is right when any class of the model may be predicted."""
        return self.pred == self.true

    @cached_property
    def predicted_labels(self) -> Int[np.ndarray, " images"]:
        """Label index predicted for each image; -1 for a class that the data set does not have."""
        label_of_column = {int(column): label for label, column in enumerate(self.columns)}

        # The label is looked up once for each distinct column; `inverse` then gives every image its column's label
        columns, inverse = np.unique(self.pred, return_inverse=True)
        labels = np.array([label_of_column.get(int(column), -1) for column in columns], dtype=np.int32)
        return labels[inverse]

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
    """The stored predictions of a `predict` row, matched with the images and classes of its data set.

    Raises DamagedFile if an array of the run is missing or altered.
    """
    classes, labels = labels_of(store, row)
    # A run evaluates only the images of its classes, in the order of the split
    images = np.flatnonzero(np.isin(labels, list(row["classes"])))
    columns = logit_columns(store.array(row["run_id"], "logit_classes").tolist(), classes)
    pred = np.asarray(store.array(row["run_id"], "pred", lines=len(images))).astype(np.int64)
    return Predictions(store, row["run_id"], images, labels[images], tuple(classes), columns, pred)


def labels_of(store: Store, row: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """The class keys of a row's data set, and the class of each image of the row's split as a position among them.

    row: a stored row; its columns fingerprint and split name the images.
    """
    items = store.items(row["fingerprint"])
    label = items["label"][items["split"] == row["split"]].cat
    return label.categories.tolist(), label.codes.to_numpy().astype(np.int64)
