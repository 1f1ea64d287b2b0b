"""Live adaptive tests beside the answers of the same model to every image: what they said, and what is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from fca.stats.adaptive import LEVELS, TARGETS, make_pool
from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.studies.progressive.levels import levels_of, sessions_of
from fca.studies.rows import check_query, narrowed, records, require
from fca.types import Table

COMMAND = "fca run task=adaptive_test dataset=rendered model=run model.run_id=..."
ABOUT = ["run_id", "dataset", "model", "weights", "shift", "ncl", "policy", "estimator", "budget", "width", "protocol"]
ABOUT += ["seed"]
SAID = ["target", "estimate", "low", "high", "truth", "error_pp", "covered"]
COUNTS = ["n_asked", "n_pool", "share", "asked_easy", "asked_medium", "asked_hard", "rounds", "predict_s", "full_s"]
TESTS = [*ABOUT, *SAID, *COUNTS, "time_share", "warning"]
GROUPS = [*ABOUT, "attribute", *SAID, "asked_easy", "asked_medium", "asked_hard"]
SOURCE = "Huang et al. (2025, arXiv 2503.13058), table 2, of tests that were really taken"
METHOD = {
    "truth": "from the predict run of the same weights on all images of the same data under the same shift, where it "
    "is stored (protocol masked: where its logits are)",
    "covered": "the 95 % interval holds the truth",
    "time_share": "seconds of the test over those of that predict run, where both ran on one device of one host",
}


@dataclass(frozen=True)
class AdaptiveTests:
    """`analysis=adaptive_tests`; reads `adaptive_test` rows, and `predict` rows of the same weights where there are.

    query: narrows the rows.
    """

    query: str | None = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables adaptive_tests (a line a test and target) and adaptive_test_attributes (also by attribute)."""
        rows = store.rows()
        check_query(rows, self.query)
        tests = narrowed(rows[rows["task"] == "adaptive_test"], self.query)
        require(tests, "adaptive tests", len(rows), COMMAND)
        full = {_key(row): row for row in records(rows[(rows["task"] == "predict") & (rows["split"] == "test")])}
        overall: list[dict[str, Any]] = []
        by_group: list[dict[str, Any]] = []
        runs: set[str] = set()
        for row in records(tests):
            beside = full.get(_key(row))
            truth = None if beside is None else truth_of(store, row, beside)
            overall += _overall(row, beside, truth)
            by_group += _by_group(store, row, truth)
            runs |= {row["run_id"]} | (set() if beside is None else {beside["run_id"]})
        return [
            Table(
                "adaptive_tests",
                "What did adaptive tests say, and was it true?",
                SOURCE,
                pd.DataFrame(overall, columns=TESTS),
                {**asdict(self), **METHOD},
                tuple(sorted(runs)),
            ),
            Table(
                "adaptive_test_attributes",
                "What did adaptive tests say of each attribute, and was it true?",
                SOURCE,
                pd.DataFrame(by_group, columns=GROUPS),
                {**asdict(self), **METHOD},
                tuple(sorted(runs)),
            ),
        ]


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which network answers which images: weights of a training by its run and snapshot, others by their names."""
    weights, parent = row["weights"], row["parent"]
    if isinstance(parent, str):
        weights = f"{parent}/{'best' if pd.isna(row['snapshot']) else row['snapshot']}"
    told = (row["fingerprint"], row["model"], weights, row["shift"], row["input_size"])
    return tuple(None if pd.isna(value) else value for value in told)


def truth_of(store: Store, test: Mapping[str, Any], full: Mapping[str, Any]) -> Float[np.ndarray, "groups 2"] | None:
    """Accuracy and score of every attribute on all images of the test's classes; None where they are not stored.

    full: the row of the predict run.
    """
    items = store.items(full["fingerprint"])
    keys = items["label"].cat.categories
    items = items[items["split"] == full["split"]]
    items = items[items["label"].isin(keys[list(full["classes"])])].reset_index(drop=True)
    mine = keys[list(test["classes"])]
    there = (items["label"].isin(mine) & items["attribute"].notna() & items["level"].notna()).to_numpy()
    right = _right(store, full, items, mine.tolist(), str(test["protocol"]))
    if right is None or not set(test["classes"]) <= set(full["classes"]):
        return None
    items = items[there]
    pool = make_pool(levels_of(items), sessions_of(items), items["attribute"].to_numpy(dtype=str))
    return pool.truth(right[there])


def _right(
    store: Store, full: Mapping[str, Any], items: pd.DataFrame, classes: list[str], protocol: str
) -> Bool[np.ndarray, " images"] | None:
    """Which images the predict run got right; masked: with answers among `classes` alone."""
    logit_classes = store.array(full["run_id"], "logit_classes")
    if protocol == "open" or set(logit_classes.tolist()) <= set(classes):
        said = np.asarray(store.array(full["run_id"], "pred"))
    elif (store.folder(full["run_id"]) / "logits.npy").exists():
        allowed = np.flatnonzero(np.isin(logit_classes, classes))
        said = masked_answers(np.asarray(store.array(full["run_id"], "logits")), allowed)
    else:
        return None
    return np.asarray(logit_classes[said] == items["label"].astype(str).to_numpy(dtype=str))


def _overall(
    row: Mapping[str, Any], full: Mapping[str, Any] | None, truth: Float[np.ndarray, "groups 2"] | None
) -> list[dict[str, Any]]:
    """A line a target: the mean over attributes."""
    about = {name: row.get(name) for name in (*ABOUT, *COUNTS, "warning")}
    if full is not None:
        about["full_s"] = full["predict_s"]
        if row["device"] == full["device"] and row["host"] == full["host"]:
            about["time_share"] = row["predict_s"] / full["predict_s"]
    lines = []
    for at, target in enumerate(TARGETS):
        numbers = (row[target], row[f"{target}_low"], row[f"{target}_high"])
        lines.append(about | _said(target, *numbers, None if truth is None else truth[:, at].mean()))
    return lines


def _by_group(
    store: Store, row: Mapping[str, Any], truth: Float[np.ndarray, "groups 2"] | None
) -> list[dict[str, Any]]:
    """A line an attribute and target."""
    about = {name: row.get(name) for name in ABOUT}
    names, asked, found = (store.array(row["run_id"], name) for name in ("groups", "group_asked", "group_estimate"))
    lines = []
    for group, name in enumerate(names.tolist()):
        counts = {f"asked_{level}": int(asked[group, at]) for at, level in enumerate(LEVELS)}
        for at, target in enumerate(TARGETS):
            value, _, low, high = found[group, at].tolist()
            true = None if truth is None else truth[group, at]
            lines.append({**about, "attribute": name, **counts, **_said(target, value, low, high, true)})
    return lines


def _said(target: str, value: Any, low: Any, high: Any, truth: Any) -> dict[str, Any]:
    """An estimate beside the truth; what is not known stays missing."""
    line = {"target": target, "estimate": value, "low": low, "high": high, "truth": truth}
    if truth is None or pd.isna(value):
        return line
    covered = None if pd.isna(low) else bool(low <= truth <= high)
    return {**line, "error_pp": 100 * (value - truth), "covered": covered}
