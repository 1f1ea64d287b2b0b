"""Which metrics of reliance on surroundings follow the truth, where it is known (analysis=metric_truth)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fca.store import Store
from fca.studies.reliance.shift_labels import DRAW_NUMBER
from fca.studies.reliance.stats.reliance import class_accuracy, rank_stability, relative_foreground_sensitivity
from fca.tables import table
from fca.tables.keys import Query
from fca.tables.predictions import predictions
from fca.tables.rows import apply_query, by_full_models, groups_by_columns, readable_rows, records, require_rows
from fca.tables.table import DATASET, MODEL, RUN_ID, SEED, TOP1, VALUE, TableSpec, filled
from fca.types import Column, Table, interval_columns

CLEAN = "clean"
SWAPPED = "swap/background"
SALIENCY_COLUMNS = ("saliency_iou", "saliency_mass", "saliency_density_gap")
MIN_SPREAD = 0.2  # range of networks' reliance that a metric must show
MIN_NETWORKS = 10  # of these a correlation of 0.7 differs significantly from 0 (Fisher's z)
ALL_CUES = "all"
_CUES = {"color": "colour", "texture": "texture", "object": "co-object", ALL_CUES: "all cues together"}
FOLLOWS = "follows"
UNCONFIRMED = "not confirmed"
UNDECIDED = "undecided"
_VERDICTS = (FOLLOWS, UNCONFIRMED, UNDECIDED)

METRIC = Column("metric", str, "", "metric of reliance")
CUE = Column("cue", str, "", "cue in the background", _CUES, filters=True)
STRENGTH = Column("cue_strength", float, ".2~f", "cue strength in training")
RELIANCE = Column("reliance", float, "+.1%", "accuracy lost by exact exchange of backgrounds")
METRIC_VALUE = VALUE.with_format(".3f", "value of the metric")
N_NETWORKS = Column("nets", int, ".0f", "networks")
N_UNDEFINED = Column("undefined", int, ".0f", "networks for which the metric is not defined")
SPREAD = Column("spread", float, ".1%", "range of the networks' reliance")
SIGN = Column("sign", int, "+.0f", "sign of the correlation that the metric claims")
RHO_STRENGTH = Column("rho_cue_strength", float, "+.2f", f"rank correlation with {STRENGTH.meaning}")
RHO_RELIANCE = Column("rho_reliance", float, "+.2f", f"rank correlation with {RELIANCE.meaning}")
TRUTH_BY_RHO = {RHO_STRENGTH: STRENGTH, RHO_RELIANCE: RELIANCE}
VERDICT = table.VERDICT.with_format("", "verdict on the metric").with_choices({name: name for name in _VERDICTS})
FAILS = Column("fails", str, "", "cues for which the metric fails")

SOURCE = "own; metrics of Moayeri, Singla & Feizi, 2022 (Hard ImageNet) and RIVAL10 (arXiv:2201.10766)"
TRUTH = TableSpec(
    "metric_truth",
    "Which metrics of reliance follow the truth, and for which cues not?",
    SOURCE,
    (
        METRIC,
        CUE,
        N_NETWORKS,
        N_UNDEFINED,
        SPREAD,
        SIGN,
        *interval_columns(RHO_STRENGTH),
        *interval_columns(RHO_RELIANCE),
        VERDICT,
        FAILS,
    ),
)
NETWORKS = TableSpec(
    "metric_truth_networks",
    "What does each metric show of a network?",
    SOURCE,
    (DATASET, MODEL, SEED, RUN_ID, CUE, STRENGTH, TOP1, RELIANCE, METRIC, METRIC_VALUE),
)
METHOD = {
    FOLLOWS: "for every cue the interval (jackknife over networks, on Fisher's z) of the correlation with reliance "
    "has its sign",
    UNCONFIRMED: f"for a cue it has not, though {MIN_NETWORKS} or more networks differ by {MIN_SPREAD:.0%} or more in "
    "reliance",
}


@dataclass(frozen=True)
class MetricTruth:
    """`analysis=metric_truth`; reads `predict` and `saliency` rows of networks whose cue is known."""

    tables: ClassVar = (TRUTH, NETWORKS)

    query: Query = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables metric_truth (a line for each metric and cue) and metric_truth_networks (for each network and metric).

        Raises FcaError without networks that were trained on images with a known cue and tested with exactly exchanged
        backgrounds.
        """
        networks, runs = _networks(store, self.query)
        requirement = "networks trained on images with a cue, and tested with exactly exchanged backgrounds"
        require_rows(networks, requirement, len(store.rows()), "fca run -m experiment=rendered_cues")
        return filled(self.tables, [metric_verdicts(networks), networks], asdict(self) | METHOD, runs)


def verdicts(store: Store) -> dict[str, tuple[str, list[str]]]:
    """Name of a metric -> its verdict (follows, not confirmed or undecided), and the cues for which it fails.

    Empty if the store has no networks whose cue is known.
    """
    networks, _ = _networks(store, None)
    verdict_by_metric: dict[str, tuple[str, list[str]]] = {}
    for line in records(metric_verdicts(networks).drop_duplicates(METRIC)):
        failing_cues = [cue for cue in line[FAILS].split(", ") if cue]
        verdict_by_metric[line[METRIC]] = (line[VERDICT], failing_cues)
    return verdict_by_metric


def metric_verdicts(networks: pd.DataFrame) -> pd.DataFrame:
    """The frame of table metric_truth: a line for each metric and cue, and one for each metric and all cues together.

    A line has the metric's rank correlation with both truths over networks: with the strength of the cue in training,
    and with reliance, the accuracy lost on images with another background. The verdict on a metric depends on reliance
    alone. A cue can be tested if MIN_NETWORKS networks or more were trained with it, and their reliance differs by
    MIN_SPREAD or more. The metric fails for such a cue unless the whole interval of the correlation has the sign that
    the metric claims. Its verdict is: not confirmed if it fails for a cue, follows if all cues can be tested and it
    fails for none, else undecided.

    networks: a line for each network and metric, as from `_networks`.
    """
    lines: list[dict[Any, Any]] = []
    for metric, networks_of_metric in networks.groupby(METRIC, sort=False):
        # the claim: accuracy without the object should rise with reliance, every other metric should fall
        sign = 1 if str(metric).startswith("accuracy/ablate") else -1
        columns_by_cue: dict[str, dict[Any, Any]] = {}
        for cue, networks_of_cue in networks_of_metric.groupby(CUE, sort=False):
            columns_by_cue[str(cue)] = _correlation_columns(networks_of_cue, sign)

        tested_cues = [cue for cue, columns in columns_by_cue.items() if _is_testable(columns)]
        failing_cues = [cue for cue in tested_cues if not _has_claimed_sign(columns_by_cue[cue])]
        if failing_cues:
            verdict = UNCONFIRMED
        elif len(tested_cues) == len(columns_by_cue):
            verdict = FOLLOWS
        else:
            verdict = UNDECIDED

        columns_by_cue[ALL_CUES] = _correlation_columns(networks_of_metric, sign)
        for cue, columns in columns_by_cue.items():
            lines.append({**columns, METRIC: metric, CUE: cue, VERDICT: verdict, FAILS: ", ".join(failing_cues)})
    return TRUTH.frame(lines)


def _is_testable(columns: Mapping[Any, Any]) -> bool:
    """Whether the networks of a line can decide about its metric: they are many, and their reliance differs enough."""
    return bool(columns[N_NETWORKS] >= MIN_NETWORKS and columns[SPREAD] >= MIN_SPREAD)


def _has_claimed_sign(columns: Mapping[Any, Any]) -> bool:
    """Whether the whole interval of the correlation with reliance has the sign that the metric claims."""
    sign = columns[SIGN]
    return bool(sign * columns[RHO_RELIANCE.low] > 0 and sign * columns[RHO_RELIANCE.high] > 0)


def _correlation_columns(networks: pd.DataFrame, sign: int) -> dict[Any, Any]:
    """Columns of a line of table metric_truth: the rank correlation of one metric with either truth over networks.

    It is Spearman's, with its 95 % interval over networks. The truths are the strength of the cue in training, and
    reliance, the accuracy lost on images with another background. Networks without a value of the metric are counted,
    and left out of the correlations.

    networks: a line for each network, with the value of the metric.
    sign:     of the correlation that the metric claims, 1 or -1.
    """
    values = networks[METRIC_VALUE]
    columns: dict[Any, Any] = {
        N_NETWORKS: len(networks),
        N_UNDEFINED: values.isna().sum(),
        SPREAD: np.ptp(networks[RELIANCE]),  # largest minus smallest
        SIGN: sign,
    }
    for rho, truth in TRUTH_BY_RHO.items():  # column of the correlation, column of the truth
        # Spearman's correlation and both ends of its interval, here over networks
        correlation = rank_stability(values.to_numpy(float), networks[truth].to_numpy(float))
        columns |= dict(zip(interval_columns(rho), correlation, strict=True))
    return columns


def _networks(store: Store, query: str | None) -> tuple[pd.DataFrame, list[str]]:
    """The frame of table metric_truth_networks (a line for each network and metric), and the ids of the runs read.

    A network counts if it was trained on images with a known cue, and tested on the same data set, clean and with the
    backgrounds exchanged (shift SWAPPED). Only rendered images have a known cue. Their backgrounds are also known
    without the object, so that the exchange is exact.
    """
    rows = readable_rows(store, query)
    trained_on = rows[rows["task"] == "train"].set_index("run_id")["fingerprint"]  # training run -> its data set
    # predictions of test images by models of all classes, and saliency maps. Only here the query is applied, which
    # `readable_rows` has only checked: a query on a shift, for example, would leave out the trainings
    rows = apply_query(rows[by_full_models(rows) | (rows["task"] == "saliency")], query)

    # column `run`: the training of the network. It is the row's parent if one command trained and tested; a later test
    # names it in column `weights` (RUN_ID/...)
    run_of_weights = rows["weights"].astype("string").str.split("/").str[0]
    rows = rows.assign(run=rows["parent"].fillna(run_of_weights))
    is_best = rows["snapshot"].fillna("best") == "best"  # other snapshots of a training are other networks
    is_same_data = rows["run"].map(trained_on) == rows["fingerprint"]
    rows = rows[is_best & is_same_data]

    # without exchanged backgrounds the true reliance on a data set is not known
    with_swap = rows["fingerprint"][rows["shift"] == SWAPPED]
    rows = rows[rows["fingerprint"].isin(with_swap)]

    lines: list[dict[Any, Any]] = []
    for network, rows_of_network in groups_by_columns(rows, ["dataset", "fingerprint", "model", "run"]):
        items = store.items(network["fingerprint"])
        accuracy = _accuracy_by_shift(store, rows_of_network[rows_of_network["task"] == "predict"])
        has_cue = {"cue", "cue_strength"} <= set(items)
        if not has_cue or not {CLEAN, SWAPPED} <= set(accuracy):
            continue

        network_columns = {
            DATASET: network["dataset"],
            MODEL: network["model"],
            RUN_ID: network["run"],
            SEED: rows_of_network["seed"].max(),  # some rows of a network lack the seed
            CUE: items["cue"].iloc[0],  # one cue and strength for all images of a data set
            STRENGTH: items["cue_strength"].iloc[0],
            TOP1: accuracy[CLEAN],
            RELIANCE: accuracy[CLEAN] - accuracy[SWAPPED],
        }
        value_by_metric = _value_by_metric(accuracy, rows_of_network[rows_of_network["task"] == "saliency"])
        for metric, value in value_by_metric.items():
            lines.append({**network_columns, METRIC: metric, METRIC_VALUE: value})

    networks = NETWORKS.frame(lines)
    runs = rows["run_id"][rows["run"].isin(networks[RUN_ID])].tolist()
    return networks, runs


def _accuracy_by_shift(store: Store, rows: pd.DataFrame) -> dict[str, float]:
    """Shift, without the number of its draw -> the mean of the class accuracies, averaged over draws of noise.

    rows: `predict` rows of one network.
    """
    accuracies = []
    for row in records(rows):
        predicted = predictions(store, row)
        by_class = class_accuracy(predicted.right, predicted.labels, len(predicted.classes))
        accuracies.append(np.nanmean(by_class))

    shift = rows["shift"].str.replace(DRAW_NUMBER, "", regex=True)
    return dict(pd.Series(accuracies, shift, dtype=float).groupby(level=0).mean())


def _value_by_metric(accuracy: Mapping[str, float], saliency_rows: pd.DataFrame) -> dict[str, float]:
    """Name of each metric of reliance that was measured on a network -> its value, NaN where it is not defined.

    The metrics are:
    - accuracy/SHIFT: accuracy without the object, or before a background from which another object was tiled out.
    - rfs/LEVEL: relative foreground sensitivity to noise of each level. With the accuracies a_fg (noise in the object)
      and a_bg (noise around it), and their mean m, it is (a_bg - a_fg) / (2 min(m, 1 - m)).
    - saliency/NAME: the saliency metrics of SALIENCY_COLUMNS.

    accuracy:      shift -> accuracy of the network under it.
    saliency_rows: stored rows of the network's saliency runs; empty if there are none.
    """
    values: dict[str, float] = {}
    for shift in accuracy:
        if shift.startswith("ablate/") or shift.endswith("/pasted"):
            values[f"accuracy/{shift}"] = accuracy[shift]

    for shift in accuracy:
        if "/foreground/" in shift:
            level = shift.removeprefix("noise/foreground/")  # KIND/LEVEL, e.g. l2/30; may have further words behind
            foreground = accuracy.get(f"noise/foreground/{level}", np.nan)
            background = accuracy.get(f"noise/background/{level}", np.nan)
            values[f"rfs/{level}"] = relative_foreground_sensitivity(foreground, background)

    # a network may have maps of several layers, a row for each; rows stand in the order in which the runs finished, and
    # the last one counts
    for row in records(saliency_rows.tail(1)):
        for column in SALIENCY_COLUMNS:
            if column in row:  # there is no column if no stored run has a value of this metric
                values[column.replace("_", "/", 1)] = row[column]  # saliency_iou is called saliency/iou
    return values
