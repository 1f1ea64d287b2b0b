"""The points that similarity tables are made of: one set of scores an encoder and subset."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fca.analysis.points import SUBSET, labels_of
from fca.analysis.select import Rows, records
from fca.stats.similarity import class_similarity, subset_scores
from fca.store import Store

SCORES = ["simss", "simss_pooled", "intra", "inter", "nearest_inter"]
SIMILARITY = ["dataset", "encoder", "split", *SUBSET, *SCORES, "images", "note", "run_id"]


def similarity_points(store: Store, rows: Rows, subsets: pd.DataFrame) -> pd.DataFrame:
    """Similarity scores of every subset by every encoder: one matrix a data set and encoder, whatever the subsets.

    A subset with a class of fewer than two images has no score; its `note` says which class.
    """
    lines = []
    for row in records(rows.embedded):
        keys, labels = labels_of(store, row)
        counts = np.bincount(labels, minlength=len(keys))
        usable = counts[labels] > 1
        similarity = class_similarity(np.asarray(store.array(row["run_id"], "features"))[usable], labels[usable])
        for subset in records(subsets[subsets["dataset"] == row["dataset"]]):
            classes = np.array(subset["classes"])
            small = [f"{keys[c]} has {counts[c]}" for c in classes if counts[c] < 2]
            note = f"images in {row['split']}: {', '.join(small)}; a class needs 2" if small else None
            scores = {} if small else subset_scores(similarity, labels[usable], classes)._asdict()
            same = {name: row[name] for name in ("encoder", "split", "run_id")}
            lines.append({**subset, **same, **scores, "images": int(counts[classes].sum()), "note": note})
    points = pd.DataFrame(lines, columns=SIMILARITY)
    points[SCORES] = points[SCORES].astype("float64")
    points = points.astype({"ncl": "int64", "subset_seed": "Int64", "images": "int64"})
    return points.sort_values(["dataset", "encoder", *SUBSET, "run_id"], ignore_index=True)
