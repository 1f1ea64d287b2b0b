"""The points that accuracy tables are made of: one accuracy a model, protocol and subset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fca.analysis.select import Rows, records
from fca.groups import Groups
from fca.nouns import FcaError
from fca.stats.intervals import wilson
from fca.stats.protocols import grouped_top1, masked_top1
from fca.store import Store

SUBSET = ["ncl", "subset_seed", "sampler", "classes"]
ACCURACY = ["dataset", "model", "protocol", *SUBSET, "seed", "top1", "top1_low", "top1_high", "n_test", "run_id"]
PROTOCOLS = ("sub", "open", "masked", "grouped")


def accuracy_points(store: Store, rows: Rows, subsets: pd.DataFrame, groups: Groups | None = None) -> pd.DataFrame:
    """Accuracy of every model on every subset: `sub` from its training run, the other protocols from stored answers.

    With groups also `grouped`, on those images of the subset whose class is in a group; missing where there is none.
    """
    how = rows.trained[["dataset", "model", "classes", "seed", "top1", "top1_low", "top1_high", "n_test", "run_id"]]
    lines = records(subsets.merge(how, on=["dataset", "classes"]).assign(protocol="sub"))
    for row in records(rows.full):
        lines += _scored(store, row, subsets[subsets["dataset"] == row["dataset"]], groups)
    points = pd.DataFrame(lines, columns=ACCURACY)
    points = points.astype(
        {"ncl": "int64", "subset_seed": "Int64", "seed": "Int64", "n_test": "Int64", "top1": "float64"}
    )
    return points.sort_values([c for c in ACCURACY if not c.startswith("top1")], ignore_index=True)


def _scored(store: Store, row: Mapping[str, Any], subsets: pd.DataFrame, groups: Groups | None) -> list[dict[str, Any]]:
    """One full model on each subset, under every protocol."""
    keys, labels = labels_of(store, row)
    logit_keys = store.array(row["run_id"], "logit_classes").tolist()
    logit_of = {key: logit for logit, key in enumerate(logit_keys)}
    group = None if groups is None else groups.codes(logit_keys)
    column = np.array([logit_of[key] for key in keys])
    true = column[labels]
    right = store.array(row["run_id"], "pred") == true  # kept from float32 logits; the logits may be float16
    logits = np.asarray(store.array(row["run_id"], "logits"))
    lines = []
    for subset in records(subsets):
        columns = column[list(subset["classes"])]
        inside = np.isin(true, columns)
        n = int(inside.sum())
        if not n:
            raise FcaError("test images of classes", subset["classes"], "at least one", "leave the subset out")
        top1 = {"open": (float(right[inside].mean()), n), "masked": (masked_top1(logits, columns, true), n)}
        if group is not None and (group[columns] >= 0).any():
            top1["grouped"] = grouped_top1(logits[inside], group, true[inside])
        for protocol, (value, of) in top1.items():
            low, high = wilson(round(value * of), of)
            scored = {"protocol": protocol, "top1": value, "top1_low": low, "top1_high": high, "n_test": of}
            lines.append({**subset, **scored, **{name: row[name] for name in ("model", "seed", "run_id")}})
    return lines


def labels_of(store: Store, row: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """Class keys in label order, and the label of each image behind a row's arrays."""
    items = store.items(row["fingerprint"])
    label = items["label"][items["split"] == row["split"]].cat
    return label.categories.tolist(), label.codes.to_numpy().astype(np.int64)
