"""The points that predictors are judged on: what features tell of a subset, and how accurate the best model is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fca.analysis.few_class import DRAW, dcn, per_subset
from fca.analysis.points import SUBSET
from fca.analysis.select import Rows, records
from fca.analysis.similarity_points import Embedded, embedded, similarity_points
from fca.stats.predictors import cosine_silhouette, knn_top1, logme, probe_top1, sample_rows, separation
from fca.store import Store

OF_IMAGES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {  # read a sample; the others read all images
    "silhouette": cosine_silhouette,
    "knn": knn_top1,
    "probe": probe_top1,
    "logme": logme,
}
VALUES = ["simss", "intra", "inter", "separation", *OF_IMAGES]


def predictor_points(store: Store, rows: Rows, subsets: pd.DataFrame, images: int) -> pd.DataFrame:
    """All predictors of every subset by every encoder; a class of fewer than two images leaves its subset out.

    Those of OF_IMAGES are missing where pairs of images were compared by a function, which leaves no features.
    images: the most of a subset that OF_IMAGES read (fca.stats.predictors.sample_rows).
    """
    scored = similarity_points(store, rows, subsets).dropna(subset="simss")
    row_of = {row["run_id"]: row for row in records(rows.embedded)}
    lines = []
    for run_id, part in scored.groupby("run_id"):
        found = embedded(store, row_of[run_id])
        for line in records(part):
            told = _of_images(found, np.array(line["classes"]), images)
            lines.append({**line, "separation": separation(line["intra"], line["inter"]), **told})
    points = pd.DataFrame(lines, columns=["dataset", "encoder", *SUBSET, *VALUES, "run_id"])
    return points.astype({"ncl": "int64", "subset_seed": "Int64", **dict.fromkeys(VALUES, "float64")})


def _of_images(found: Embedded, classes: np.ndarray, images: int) -> dict[str, float]:
    if found.features is None:
        return {}
    inside = np.flatnonzero(np.isin(found.labels, classes))
    sampled = inside[sample_rows(found.labels[inside], images)]
    return {name: score(found.features[sampled], found.labels[sampled]) for name, score in OF_IMAGES.items()}


def joined(told: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Predictors beside the best accuracy of any model, one line an encoder, target and different subset.

    accuracies: accuracy_points with a column `target`; the models of one target compete to be the best.
    Two seeds that drew the same classes are one subset, which keeps the first: else it would help to predict itself.
    """
    best = [dcn(per_subset(part)).assign(target=target) for target, part in accuracies.groupby("target")]
    if not best:
        return pd.DataFrame()
    points = told.drop(columns="run_id").merge(pd.concat(best), on=["dataset", "ncl", *DRAW])
    points = points.sort_values(["encoder", "target", "dataset", "ncl", *DRAW], ignore_index=True)
    return points.drop_duplicates(["encoder", "target", "dataset", "classes"], ignore_index=True)
