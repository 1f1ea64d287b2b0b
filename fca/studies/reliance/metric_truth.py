"""Which metrics of reliance on surroundings follow the truth, where it is known (analysis=metric_truth)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fca.store import Store
from fca.studies.reliance.stats.reliance import class_accuracy, rank_stability, relative_foreground_sensitivity
from fca.tables import table
from fca.tables.keys import Query
from fca.tables.predictions import predictions
from fca.tables.rows import apply_query, by_full_models, groups_by_columns, readable_rows, records, require_rows
from fca.tables.table import DATASET, MODEL, RUN_ID, SEED, TOP1, VALUE, TableSpec, filled
from fca.types import Column, Table, interval_columns

CLEAN, SWAPPED = "clean", "swap/background"
SALIENCY = ("saliency_iou", "saliency_mass", "saliency_density_gap")
STRONG = 0.2  # range of networks' reliance that a metric must show
ENOUGH = 10  # networks: of these a correlation of 0.7 differs significantly from 0 (Fisher's z)
_CUES = {"color": "colour", "texture": "texture", "object": "co-object", "all": "all cues together"}
FOLLOWS, UNCONFIRMED, UNDECIDED = _VERDICTS = ("follows", "not confirmed", "undecided")

METRIC = Column("metric", str, "", "metric of reliance")
CUE = Column("cue", str, "", "cue in the background", _CUES, filters=True)
STRENGTH = Column("cue_strength", float, ".2~f", "cue strength in training")
RELIANCE = Column("reliance", float, "+.1%", "accuracy lost by exact exchange of backgrounds")
METRIC_VALUE = VALUE.with_format(".3f", "value of the metric")
NETS = Column("nets", int, ".0f", "networks")
UNDEFINED = Column("undefined", int, ".0f", "networks for which the metric is not defined")
SPREAD = Column("spread", float, ".1%", "range of the networks' reliance")
SIGN = Column("sign", int, "+.0f", "sign of the correlation that the metric claims")
TRUTHS = STRENGTH, RELIANCE
RHOS = tuple(Column(f"rho_{of}", float, "+.2f", f"rank correlation with {of.meaning}") for of in TRUTHS)
VERDICT = table.VERDICT.with_format("", "verdict on the metric").with_choices({name: name for name in _VERDICTS})
FAILS = Column("fails", str, "", "cues for which the metric fails")

_OF = (
    METRIC,
    CUE,
    NETS,
    UNDEFINED,
    SPREAD,
    SIGN,
    *interval_columns(RHOS[0]),
    *interval_columns(RHOS[1]),
    VERDICT,
    FAILS,
)
SOURCE = "own; metrics of Moayeri, Singla & Feizi, 2022 (Hard ImageNet) and RIVAL10 (arXiv:2201.10766)"
TRUTH = TableSpec("metric_truth", "Which metrics of reliance follow the truth, and for which cues not?", SOURCE, _OF)
_OF_NET = (DATASET, MODEL, SEED, RUN_ID, CUE, STRENGTH, TOP1, RELIANCE, METRIC, METRIC_VALUE)
NETWORKS = TableSpec("metric_truth_networks", "What does each metric show of a network?", SOURCE, _OF_NET)
METHOD = {
    FOLLOWS: "for every cue the interval (jackknife over networks, on Fisher's z) of the correlation with reliance "
    "has its sign",
    UNCONFIRMED: f"for a cue it has not, though {ENOUGH} or more networks differ by {STRONG:.0%} or more in reliance",
}


@dataclass(frozen=True)
class MetricTruth:
    """`analysis=metric_truth`; reads `predict` and `saliency` rows of networks whose cue is known."""

    tables: ClassVar = (TRUTH, NETWORKS)

    query: Query = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables metric_truth and metric_truth_networks. Raises FcaError without networks trained with a cue."""
        networks, runs = _networks(store, self.query)
        what = "networks trained on images with a cue, and tested with exactly exchanged backgrounds"
        require_rows(networks, what, len(store.rows()), "fca run -m experiment=rendered_cues")
        return filled(self.tables, [judged(networks), networks], asdict(self) | METHOD, runs)


def verdicts(store: Store) -> dict[str, tuple[str, list[str]]]:
    """Metric -> follows, not confirmed or undecided, and the cues for which it is not; empty without a cue."""
    lines = records(judged(_networks(store, None)[0]).drop_duplicates(METRIC))
    return {line[METRIC]: (line[VERDICT], [cue for cue in line[FAILS].split(", ") if cue]) for line in lines}


def judged(networks: pd.DataFrame) -> pd.DataFrame:
    """A line a metric and cue: its correlation with both truths over networks, and the verdict on the metric."""
    lines: list[dict[Any, Any]] = []
    for metric, of_metric in networks.groupby(METRIC, sort=False):
        sign = 1 if str(metric).startswith("accuracy/ablate") else -1
        of_cue = {str(cue): _correlated(part, sign) for cue, part in of_metric.groupby(CUE, sort=False)}
        tested = [cue for cue, one in of_cue.items() if one[NETS] >= ENOUGH and one[SPREAD] >= STRONG]
        fails = [cue for cue in tested if not all(sign * of_cue[cue][end] > 0 for end in (RHOS[1].low, RHOS[1].high))]
        verdict = UNCONFIRMED if fails else FOLLOWS if len(tested) == len(of_cue) else UNDECIDED
        about: dict[Any, Any] = {METRIC: metric, VERDICT: verdict, FAILS: ", ".join(fails)}
        of_cue["all"] = _correlated(of_metric, sign)
        lines += [{**about, CUE: cue, **one} for cue, one in of_cue.items()]
    return TRUTH.frame(lines)


def _correlated(of: pd.DataFrame, sign: int) -> dict[Any, Any]:
    line = {NETS: len(of), UNDEFINED: of[METRIC_VALUE].isna().sum(), SPREAD: np.ptp(of[RELIANCE]), SIGN: sign}
    for rho, truth in zip(RHOS, TRUTHS, strict=True):
        rank = rank_stability(of[METRIC_VALUE].to_numpy(float), of[truth].to_numpy(float))
        line |= dict(zip(interval_columns(rho), rank, strict=True))
    return line


def _networks(store: Store, query: str | None) -> tuple[pd.DataFrame, list[str]]:
    """A line a metric of every network trained on images with a cue and tested on the same set, and the runs read."""
    rows = readable_rows(store, query)
    trained = rows[rows["task"] == "train"].set_index("run_id")["fingerprint"]
    rows = apply_query(rows[by_full_models(rows) | (rows["task"] == "saliency")], query)
    rows = rows.assign(run=rows["parent"].fillna(rows["weights"].astype("string").str.split("/").str[0]))
    rows = rows[(rows["snapshot"].fillna("best") == "best") & (rows["run"].map(trained) == rows["fingerprint"])]
    rows = rows[rows["fingerprint"].isin(rows["fingerprint"][rows["shift"] == SWAPPED])]  # others have no cue
    lines: list[dict[Any, Any]] = []
    for at, part in groups_by_columns(rows, ["dataset", "fingerprint", "model", "run"]):
        items, accuracy = store.items(at["fingerprint"]), _accuracies(store, part[part["task"] == "predict"])
        if {"cue", "cue_strength"} <= set(items) and {CLEAN, SWAPPED} <= set(accuracy):
            about = {DATASET: at["dataset"], MODEL: at["model"], RUN_ID: at["run"], SEED: part["seed"].max()}
            about |= {CUE: items["cue"].iloc[0], STRENGTH: items["cue_strength"].iloc[0], TOP1: accuracy[CLEAN]}
            about |= {RELIANCE: accuracy[CLEAN] - accuracy[SWAPPED]}
            of = _metrics(accuracy, part[part["task"] == "saliency"])
            lines += [{**about, METRIC: name, METRIC_VALUE: value} for name, value in of.items()]
    networks = NETWORKS.frame(lines)
    return networks, rows["run_id"][rows["run"].isin(networks[RUN_ID])].tolist()


def _accuracies(store: Store, rows: pd.DataFrame) -> dict[str, float]:
    """Shift -> class-mean accuracy, averaged over draws of noise."""
    found = [predictions(store, row) for row in records(rows)]
    means = [np.nanmean(class_accuracy(one.right, one.labels, len(one.classes))) for one in found]
    shift = rows["shift"].str.replace(r"/draw\d+$", "", regex=True)
    return dict(pd.Series(means, shift, dtype=float).groupby(level=0).mean())


def _metrics(accuracy: Mapping[str, float], saliency: pd.DataFrame) -> dict[str, float]:
    """Every metric that was measured, NaN where it is not defined."""
    kept = [shift for shift in accuracy if shift.startswith("ablate/") or shift.endswith("/pasted")]
    found = {f"accuracy/{shift}": accuracy[shift] for shift in kept}
    for level in (shift.removeprefix("noise/foreground/") for shift in accuracy if "/foreground/" in shift):
        foreground, background = (accuracy.get(f"noise/{one}/{level}", np.nan) for one in ("foreground", "background"))
        found[f"rfs/{level}"] = relative_foreground_sensitivity(foreground, background)
    for row in records(saliency.tail(1)):  # the last one made, if there are several layers
        found |= {name.replace("_", "/", 1): row[name] for name in SALIENCY if name in row}
    return found
