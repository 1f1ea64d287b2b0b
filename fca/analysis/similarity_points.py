"""The points that similarity tables are made of: one set of scores an encoder and subset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fca.analysis.points import SUBSET, labels_of
from fca.analysis.select import Rows, records
from fca.stats.similarity import class_similarity, subset_scores
from fca.store import Store

SCORES = ["simss", "simss_pooled", "intra", "inter", "nearest_inter"]
SIMILARITY = ["dataset", "encoder", "split", *SUBSET, *SCORES, "images", "note", "run_id"]


@dataclass(frozen=True)
class Embedded:
    """What an `embed` row tells, of the classes with two images or more; nothing where fewer than two classes have.

    keys:   class keys in label order.    counts: images of each, those that were embedded or sampled.
    labels: of the images in the matrix.    features: of the same images; None where a function compared pairs.
    pairs:  the similarities that such a function gave.
    """

    keys: list[str]
    counts: Int[np.ndarray, " all_classes"]
    labels: Int[np.ndarray, " images"]
    features: Float[np.ndarray, "images features"] | None
    pairs: Float[np.ndarray, "images classes"] | None

    @cached_property
    def similarity(self) -> Float[np.ndarray, "images classes"]:
        """Of every image to every class; raises what class_similarity does."""
        if self.features is None:
            return np.empty((0, 0)) if self.pairs is None else self.pairs
        return class_similarity(self.features, self.labels) if len(self.labels) else np.empty((0, 0))


def embedded(store: Store, row: Mapping[str, Any]) -> Embedded:
    """Read an `embed` row: its features, or the similarities that a function of two images gave."""
    keys, labels = labels_of(store, row)
    compared = (store.folder(row["run_id"]) / "similarity.npy").exists()
    if compared:
        labels = labels[store.array(row["run_id"], "sampled")]
    counts = np.bincount(labels, minlength=len(keys))
    classes = np.flatnonzero(counts > 1)
    usable = np.flatnonzero(np.isin(labels, classes)) if len(classes) > 1 else np.empty(0, np.int64)
    if compared:
        pairs = store.array(row["run_id"], "similarity")[np.ix_(usable, classes)].astype(np.float64)
        return Embedded(keys, counts, labels[usable], None, pairs)
    return Embedded(keys, counts, labels[usable], np.asarray(store.array(row["run_id"], "features"))[usable], None)


def similarity_points(store: Store, rows: Rows, subsets: pd.DataFrame) -> pd.DataFrame:
    """Similarity scores of every subset by every encoder: one matrix a data set and encoder, whatever the subsets.

    A subset with a class of fewer than two images has no score; its `note` says which class.
    """
    lines = []
    for row in records(rows.embedded):
        found = embedded(store, row)
        for subset in records(subsets[subsets["dataset"] == row["dataset"]]):
            classes = np.array(subset["classes"])
            small = [f"{found.keys[c]} has {found.counts[c]}" for c in classes if found.counts[c] < 2]
            note = f"images in {row['split']}: {', '.join(small)}; a class needs 2" if small else None
            scores = {} if small else subset_scores(found.similarity, found.labels, classes)._asdict()
            same = {name: row[name] for name in ("encoder", "split", "run_id")}
            lines.append({**subset, **same, **scores, "images": int(found.counts[classes].sum()), "note": note})
    points = pd.DataFrame(lines, columns=SIMILARITY)
    points[SCORES] = points[SCORES].astype("float64")
    points = points.astype({"ncl": "int64", "subset_seed": "Int64", "images": "int64"})
    return points.sort_values(["dataset", "encoder", *SUBSET, "run_id"], ignore_index=True)
