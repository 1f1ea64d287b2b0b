"""Every predictor of accuracy against ncl alone: held-out error, gain, intervals, and a verdict in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fca.stats.correlation import correlation, resampled_correlation
from fca.stats.intervals import percentile_interval, point_weights
from fca.stats.prediction import HeldOut, held_out, judge, verdict

BASELINE = "log_ncl"
BASELINES = ("mean", "ncl", BASELINE)
PREDICTORS = {  # name -> regressors; all but the baselines add to log ncl
    "mean": (),
    "ncl": ("ncl",),
    BASELINE: (BASELINE,),
    "simss": (BASELINE, "simss"),
    "separation": (BASELINE, "separation"),
    "intra_inter": (BASELINE, "intra", "inter"),
    "silhouette": (BASELINE, "silhouette"),
    "knn": (BASELINE, "knn"),
    "probe": (BASELINE, "probe"),
    "logme": (BASELINE, "logme"),
}
HELD_OUT = ("subset seed", "data set")
WITHIN = ["within_ncl_r", "within_ncl_r_low", "within_ncl_r_high", "within_ncl_p"]
POINTS = [f"{name}{end}" for name in ("error_points", "gain_points") for end in ("", "_low", "_high")]
COLUMNS = ["encoder", "target", "held_out", "predictor", "n", "datasets", "seeds", *WITHIN, *POINTS]
COLUMNS += ["better_in", "coverage", "coverage_low", "coverage_high", "width_points", "verdict"]
OF_POINT = ["dataset", "encoder", "target", "held_out", "predictor"]
OF_POINT += ["ncl", "subset_seed", "classes", "model", "models", "value"]
PREDICTED = ["top1_predicted", "top1_predicted_low", "top1_predicted_high"]


def judged(points: pd.DataFrame, worth: float) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Every predictor on the same points of one encoder and target: its line of `prediction`, and its points.

    Unseen are the subset seeds of a known data set, and then, where there are several, whole data sets. What is unseen
    is what the bootstrap resamples: points of one data set share what is particular to it.
    points: one line a subset: the columns that PREDICTORS name, top1, dataset, subset_seed, ncl. A predictor with a
            missing value is left out.
    worth:  the least gain that is of use, as a fraction.
    """
    drawn = points.groupby(["dataset", "subset_seed"]).ngroup()
    cluster = drawn.fillna(-1).to_numpy(dtype=np.int64)  # all classes were not drawn
    counts = {"n": len(points), "datasets": points["dataset"].nunique(), "seeds": drawn.nunique()}
    same = {name: points[name].iloc[0] for name in ("encoder", "target")} | counts
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    known = {name: names for name, names in PREDICTORS.items() if points[list(names)].notna().all(axis=None)}
    alone = {name: names[1] for name, names in known.items() if len(names) == 2}  # of one number beside log ncl
    within = _within(points, alone, cluster)
    for way in HELD_OUT[: 1 + (counts["datasets"] > 1)]:
        held = {name: _held(points, list(regressors), way) for name, regressors in known.items()}
        unseen = cluster if way == HELD_OUT[0] else pd.factorize(points["dataset"])[0]
        error = judge(accuracy, held[BASELINE], held[BASELINE], unseen).error
        for name in known:
            line = {**same, "held_out": way, "predictor": name, **within[name], **_gain(name, accuracy, held, unseen)}
            line["better_in"] = None if name == BASELINE else _better(points, held[name], held[BASELINE])
            line["verdict"] = _verdict(line, name in alone, error, worth)
            yield line, _predicted(points, line, alone.get(name), held[name])


def _held(points: pd.DataFrame, regressors: list[str], way: str) -> HeldOut:
    """Each subset seed from the others of its data set, or each data set from the others."""
    x, y = points[regressors].to_numpy(dtype=np.float64), points["top1"].to_numpy(dtype=np.float64)
    dataset, seed = pd.factorize(points["dataset"])[0], pd.factorize(points["subset_seed"])[0]
    if way == "data set":
        return held_out(x, y, dataset)
    answer = HeldOut(*(np.full(len(y), np.nan) for _ in range(3)))
    for k in np.unique(dataset):
        there = dataset == k
        for values, part in zip(answer, held_out(x[there], y[there], seed[there]), strict=True):
            values[there] = part
    return answer


def _within(points: pd.DataFrame, alone: Mapping[str, str], cluster: np.ndarray) -> dict[str, dict[str, float]]:
    """Correlation with accuracy among subsets of equal ncl in one data set; missing where it is not of one number."""
    found = {name: dict.fromkeys(WITHIN, np.nan) for name in PREDICTORS}
    groups, y = points.groupby(["dataset", "ncl"]).ngroup().to_numpy(), points["top1"].to_numpy(dtype=np.float64)
    weights = point_weights(cluster)
    for name, column in alone.items():
        x = points[column].to_numpy(dtype=np.float64)
        estimate = correlation(x, y, groups=groups)
        low = high = np.nan
        if cluster.max() > 0:  # one seed says nothing about another
            low, high = percentile_interval(resampled_correlation(x, y, weights, groups=groups))
        found[name] = dict(zip(WITHIN, (estimate.r, low, high, estimate.p), strict=True))
    return found


def _gain(name: str, accuracy: np.ndarray, held: Mapping[str, HeldOut], cluster: np.ndarray) -> dict[str, float]:
    """Error and gain in accuracy points, coverage as a fraction; ncl alone has no gain over itself."""
    found = judge(accuracy, held[name], held[BASELINE], cluster)
    error = [100 * value for value in (found.error, found.error_low, found.error_high)]
    gain = [100 * value for value in (found.gain, found.gain_low, found.gain_high)]
    told = dict(zip(POINTS, [*error, *([np.nan] * 3 if name == BASELINE else gain)], strict=True))
    covered = {"coverage": found.coverage, "coverage_low": found.coverage_low, "coverage_high": found.coverage_high}
    return {**told, **covered, "width_points": 100 * found.width}


def _better(points: pd.DataFrame, held: HeldOut, alone: HeldOut) -> int | None:
    """In how many data sets the mean error is below that of ncl alone; None where nothing was predicted."""
    gain = (points["top1"] - alone.predicted).abs() - (points["top1"] - held.predicted).abs()
    each = gain.groupby(points["dataset"]).mean()
    return int((each > 0).sum()) if each.notna().any() else None


def _verdict(line: Mapping[str, Any], alone: bool, error: float, worth: float) -> str:
    """error: of ncl alone; the correlation within data sets says nothing about how much new ones are off."""
    if line["predictor"] in BASELINES:
        return "baseline"
    gain = line["gain_points_low"] / 100, line["gain_points_high"] / 100
    within = (line[WITHIN[1]], line[WITHIN[2]]) if alone else None
    return verdict(gain, worth, within, error if line["held_out"] == HELD_OUT[0] else None)


def _predicted(points: pd.DataFrame, line: Mapping[str, Any], alone: str | None, held: HeldOut) -> pd.DataFrame:
    value = points[alone] if alone else np.nan
    told = {"held_out": line["held_out"], "predictor": line["predictor"], "value": value}
    return points.assign(**told, **dict(zip(PREDICTED, held, strict=True)))[[*OF_POINT, "top1", *PREDICTED]]
