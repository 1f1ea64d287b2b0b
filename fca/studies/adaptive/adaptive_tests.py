"""Live adaptive tests beside the predictions of the same network for every image: the estimates, and the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.store.columns import PREDICT_S, SHIFT, WEIGHTS
from fca.studies.adaptive.stats import TARGETS
from fca.studies.progressive.levels import ACCURACY, ATTRIBUTE, SCORE, Line, cells, columns_of, has_levels, pool_of
from fca.studies.progressive.stats.pool import LEVELS
from fca.tables import table
from fca.tables.keys import Query
from fca.tables.predictions import predictions
from fca.tables.rows import (
    MODEL_ROW_COLUMNS,
    apply_query,
    by_version,
    readable_rows,
    records,
    require_rows,
    without_incomplete,
)
from fca.tables.table import DATASET, MODEL, NCL, PROTOCOL, RUN_ID, SEED, TableSpec, filled
from fca.types import BEST, Column, Table

COMMAND = "fca run task=adaptive_test dataset=rendered model=run model.run_id=..."

POLICY = Column("policy", str, "", "policy that chooses the images, with options")
ESTIMATOR = Column("estimator", str, "", "estimator of accuracy and score")
BUDGET = Column("budget", float, ".3~%", "share of the images that may be evaluated at a time")
WIDTH = Column("width", float, ".3~", "width of the interval at which the test stops")
TARGET = Column("target", str, "", "what is estimated", {str(column): column.meaning for column in (ACCURACY, SCORE)})
ESTIMATE = Column("estimate", float, ".2%", "estimate")
LOW = Column("low", float, ".2%", "lower end of the 95 % interval")
HIGH = Column("high", float, ".2%", "upper end of the 95 % interval")
TRUTH = Column("truth", float, ".2%", "value on all images")
ERROR = Column("error_pp", float, "+.2f", "error in percentage points")
COVERED = Column("covered", bool, "", "whether the interval contains the value on all images")
EVALUATED = tuple(Column(f"asked_{level}", int, ".0f", f"{level} images evaluated") for level in LEVELS)
N_EVALUATED = Column("n_evaluated", int, ".0f", "images evaluated")
N_POOL = Column("n_pool", int, ".0f", "images")
SHARE = Column("share", float, ".1%", "share of the images evaluated")
ROUNDS = Column("rounds", int, ".0f", "rounds")
FULL_S = Column("full_s", float, ".1f", "seconds of the predict run on all images")
TIME_SHARE = Column("time_share", float, ".1%", "seconds of the test over those of the predict run")
WARNING = table.WARNING.with_format("", "known bias of the estimator under this policy")

_TEST_COLUMNS = (RUN_ID, DATASET, MODEL, WEIGHTS, SHIFT, NCL, POLICY, ESTIMATOR, BUDGET, WIDTH, PROTOCOL, SEED)
_RESULT_COLUMNS = (TARGET, ESTIMATE, LOW, HIGH, TRUTH, ERROR, COVERED)
_COUNT_COLUMNS = (N_EVALUATED, N_POOL, SHARE, *EVALUATED, ROUNDS, PREDICT_S, FULL_S)
_SOURCE = "Huang et al. (2025, arXiv 2503.13058), table 2, of tests that really ran"
ADAPTIVE_TESTS = TableSpec(
    "adaptive_tests",
    "How accurate are live adaptive tests?",
    _SOURCE,
    (*_TEST_COLUMNS, *_RESULT_COLUMNS, *_COUNT_COLUMNS, TIME_SHARE, WARNING),
)
ADAPTIVE_TEST_ATTRIBUTES = TableSpec(
    "adaptive_test_attributes",
    "How accurate are live adaptive tests on each attribute?",
    _SOURCE,
    (*_TEST_COLUMNS, ATTRIBUTE, *_RESULT_COLUMNS, *EVALUATED),
)
METHOD = {
    "truth": "from the predict run of the same weights on all images of the same data under the same shift, where it "
    "is stored (protocol masked: where its logits are)",
    "covered": "the 95 % interval contains the truth",
    "time_share": "seconds of the test over those of that predict run, where both ran on one device of one host",
}


@dataclass(frozen=True)
class AdaptiveTests:
    """`analysis=adaptive_tests`; reads `adaptive_test` rows, and `predict` rows of the same weights where stored."""

    tables: ClassVar = (ADAPTIVE_TESTS, ADAPTIVE_TEST_ATTRIBUTES)

    query: Query = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables adaptive_tests (one line per test and target) and adaptive_test_attributes (also by attribute).

        Raises FcaError when the store has no adaptive test that matches the query.
        """
        # rows of adaptive tests that lack a data set, model or classes (MODEL_ROW_COLUMNS) are left out with a warning
        rows = without_incomplete(readable_rows(store, self.query), "adaptive_test", MODEL_ROW_COLUMNS)
        tests = apply_query(rows[rows["task"] == "adaptive_test"], self.query)
        # distinguish versions of one data set by their names. `by_version` also renames rows of features; none are here
        tests, _ = by_version(store, [tests], embedded=rows[:0])
        require_rows(tests, "adaptive tests", len(rows), COMMAND)

        # the predict run on all images, with which each test is compared; of several runs the last to finish
        is_full_run = (rows["task"] == "predict") & (rows["split"] == "test")
        full_run_by_images = {_network_and_images(row): row for row in records(rows[is_full_run])}

        overall: list[Line] = []
        by_attribute: list[Line] = []
        runs: set[str] = set()
        for row in records(tests):
            runs.add(row["run_id"])
            truth = None
            full_run = full_run_by_images.get(_network_and_images(row))
            if full_run is not None:
                runs.add(full_run["run_id"])
                truth = truth_of(store, row, full_run)
            overall += _overall_lines(row, full_run, truth)
            by_attribute += _attribute_lines(store, row, truth)
        return filled(self.tables, (overall, by_attribute), asdict(self) | METHOD, runs)


def _network_and_images(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The network and the images of a row: equal for an adaptive test and the predict run on all of its images.

    Weights that a stored training made are identified by its run and the snapshot, published ones by their name.
    """
    weights, parent = row["weights"], row["parent"]
    if isinstance(parent, str):  # the id of the training
        snapshot = BEST if pd.isna(row["snapshot"]) else row["snapshot"]
        weights = f"{parent}/{snapshot}"
    values = (row["fingerprint"], row["model"], weights, row["shift"], row["input_size"])
    return tuple(None if pd.isna(value) else value for value in values)  # NaN would equal no other key


def truth_of(
    store: Store, test: Mapping[str, Any], full: Mapping[str, Any]
) -> Float[np.ndarray, "groups targets"] | None:
    """Accuracy and score of every attribute on all images of the test's classes, from stored predictions.

    Images without levels have neither attributes nor a score: the result is their accuracy alone (1 x 1).
    The result is None where the predictions are not stored: the predict run lacks a class of the test, or its logits
    where the test's protocol (masked) needs them.

    test: the row of the adaptive test.
    full: the row of the predict run.
    """
    if not set(test["classes"]) <= set(full["classes"]):
        return None

    stored = predictions(store, full)
    allowed = columns_of(stored, test["classes"])  # positions of the logits of the test's classes
    has_same_answers = test["protocol"] == "open" or len(allowed) == len(stored.logit_classes)
    if has_same_answers:  # every class of the model competes in the test too
        right = stored.right
    elif store.has_array(stored.run_id, "logits"):
        right = masked_answers(stored.logits, allowed) == stored.true  # only the test's classes compete
    else:
        return None

    items = store.items(full["fingerprint"])
    items = items[items["split"] == full["split"]].iloc[stored.images]  # in the order of the predictions
    is_tested = stored.of_classes(test["classes"])
    if has_levels(items[is_tested]):  # then a test evaluates only images with an attribute and a level
        is_tested = is_tested & items[["attribute", "level"]].notna().all(axis=1).to_numpy()
    return pool_of(items[is_tested]).truth(right[is_tested])


def _overall_lines(
    row: Mapping[str, Any], full: Mapping[str, Any] | None, truth: Float[np.ndarray, "groups targets"] | None
) -> Iterator[Line]:
    """A line for each target of a test (accuracy, score): its estimate beside the truth, as means over attributes.

    row:   the row of the test.
    full:  the row of the predict run on all images; None if there is none.
    truth: what `truth_of` returns: the targets of every attribute on all images; None if not known.
    """
    columns = _cells_of(row, (*_TEST_COLUMNS, *_COUNT_COLUMNS, WARNING))
    if full is not None:
        columns[FULL_S] = full["predict_s"]
        if row["device"] == full["device"] and row["host"] == full["host"]:  # else times are not comparable
            columns[TIME_SHARE] = row["predict_s"] / full["predict_s"]

    targets = TARGETS if _has_levels(row) else TARGETS[:1]  # without levels no score
    for i, target in enumerate(targets):
        true_value = None if truth is None else truth[:, i].mean()
        yield columns | _estimate_beside_truth(
            target, row[target], row[f"{target}_low"], row[f"{target}_high"], true_value
        )


def _attribute_lines(
    store: Store, row: Mapping[str, Any], truth: Float[np.ndarray, "groups targets"] | None
) -> Iterator[Line]:
    """A line for each attribute and target of a test: its estimate beside the truth.

    A test of images without levels has no attributes, and so no line.
    row:   the row of the test.
    truth: what `truth_of` returns: the targets of every attribute on all images; None if not known.
    """
    if not _has_levels(row):
        return

    columns = _cells_of(row, _TEST_COLUMNS)
    names = store.array(row["run_id"], "groups")  # the groups of the pool are attributes
    n_evaluated = store.array(row["run_id"], "group_asked")  # groups x levels
    estimates = store.array(row["run_id"], "group_estimate")  # groups x targets x (value, se, low, high)
    for group, name in enumerate(names):
        columns_of_group = columns | {ATTRIBUTE: str(name)} | cells(EVALUATED, n_evaluated[group].tolist())
        for i, target in enumerate(TARGETS):
            value, _, low, high = estimates[group, i].tolist()
            true_value = None if truth is None else truth[group, i]
            yield columns_of_group | _estimate_beside_truth(target, value, low, high, true_value)


def _has_levels(row: Mapping[str, Any]) -> bool:
    """Whether the images of a test have levels: only then its row counts evaluated images by level."""
    return bool(pd.notna(row.get(EVALUATED[0])))


def _cells_of(row: Mapping[str, Any], columns: Sequence[Column]) -> Line:
    """The cells of these columns in a row; NaN for columns that the row does not have."""
    return cells(columns, (row.get(column, np.nan) for column in columns))


def _estimate_beside_truth(target: str, value: Any, low: Any, high: Any, truth: Any) -> Line:
    """The cells of an estimate, its interval, the truth, the error, and whether the interval contains the truth.

    target: accuracy or score.
    truth:  None if not known; then the line has no cells of the error and of whether the interval contains the truth.
    """
    line: Line = {
        TARGET: target,
        ESTIMATE: value,
        LOW: low,
        HIGH: high,
        TRUTH: truth,
    }
    if truth is not None and not pd.isna(value):
        line[ERROR] = 100 * (value - truth)
        line[COVERED] = None if pd.isna(low) else bool(low <= truth <= high)
    return line
