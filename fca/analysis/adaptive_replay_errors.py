"""How wrong adaptive tests are: squared error in squared percentage points over attributes, and against Static."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import kendalltau

from fca.analysis.adaptive_replay_runs import BASE
from fca.stats.adaptive import warning
from fca.stats.intervals import cluster_draws, percentile_interval

ABOUT = ["method", "policy", "estimator", "target", "budget", "share"]
MEASURES = ["mse_pp2", "mse_low", "mse_high", "ratio", "ratio_low", "ratio_high", "bias_pp", "coverage", "undefined"]
COUNTS = ["models", "groups", "repeats"]
ERRORS = ["dataset", "model", *ABOUT, "truth", "estimate", *MEASURES, *COUNTS[1:], "warning"]
OVERALL = ["dataset", *ABOUT, *MEASURES, "rank_tau", *COUNTS, "warning"]

Cells = Float[np.ndarray, "models groups"]
Draws = tuple[Float[np.ndarray, "resamples models"], Float[np.ndarray, "resamples groups"]]


def model_lines(dataset: str, frame: pd.DataFrame, budget: float) -> pd.DataFrame:
    """One line a model, method and target (Table 2)."""
    parts = [
        part.assign(model=name) for name, of in frame.groupby("model", sort=False) for part in [overall(of, budget)]
    ]
    return pd.concat(parts).assign(dataset=dataset).reindex(columns=ERRORS).reset_index(drop=True)


def overall_lines(dataset: str, frame: pd.DataFrame, budget: float) -> pd.DataFrame:
    """One line a method, budget and target: the mean over models."""
    return overall(frame, budget).assign(dataset=dataset).reindex(columns=OVERALL)


def overall(frame: pd.DataFrame, budget: float) -> pd.DataFrame:
    """Of these models: squared error and its ratio to Static at `budget`, with what resampling models and groups gives.

    frame: the tests, as of `adaptive_replay_runs.replays`.
    """
    models, groups = frame["model"].nunique(), frame["group"].nunique()
    draws = drawn(models, seed=0), drawn(groups, seed=1)
    base = {
        target: squared(part)
        for target, part in frame[(frame["policy"] == BASE[0]) & (frame["budget"] == budget)].groupby("target")
    }
    lines = []
    for about, part in by_method(frame):
        line = about | measures(squared(part), base.get(about["target"]), draws) | on_average(part)
        lines.append(line | {"models": models, "groups": groups, "repeats": part["repeat"].nunique()})
    return pd.DataFrame(lines)


def by_method(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The tests of one method, budget and target, and what they have in common."""
    for values, part in frame.groupby(ABOUT, sort=False):
        yield dict(zip(ABOUT, values, strict=True)), part


def squared(part: pd.DataFrame) -> Cells:
    """Squared error of every model and group, mean over repeats, in squared percentage points; NaN where a test said
    nothing."""
    part = part.sort_values(["model", "group", "repeat"])
    error = (100 * (part["estimate"] - part["truth"]).to_numpy(dtype=np.float64)) ** 2
    return np.asarray(error.reshape(part["model"].nunique(), part["group"].nunique(), -1).mean(axis=2))


def drawn(number: int, seed: int) -> Float[np.ndarray, "resamples number"]:
    """Weights of bootstrap resamples of that many models or groups; a single one stays."""
    return cluster_draws(number, seed) / number


def measures(cells: Cells, base: Cells | None, draws: Draws) -> dict[str, float]:
    """Mean squared error over models and groups and its ratio to that of `base`, with 95 % intervals.

    Models and groups are resampled, each by itself, the same for both errors of a ratio. No interval with a single one
    of both; no ratio where Static makes no error.
    """
    nothing = dict.fromkeys(MEASURES[:6], float("nan"))
    if np.isnan(cells).any():
        return nothing
    resampled = resampled_means(cells, draws)
    found = nothing | {"mse_pp2": float(cells.mean())}
    if cells.size > 1:
        found["mse_low"], found["mse_high"] = percentile_interval(resampled)
    if base is None or np.isnan(base).any() or not base.any():
        return found
    found["ratio"] = float(cells.mean() / base.mean())
    if cells.size > 1 and cells is not base:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = resampled / resampled_means(base, draws)
        found["ratio_low"], found["ratio_high"] = percentile_interval(np.where(np.isfinite(ratios), ratios, np.nan))
    return found


def resampled_means(cells: Cells, draws: Draws) -> Float[np.ndarray, " resamples"]:
    """Means of the cells in every resample."""
    return np.asarray(((draws[0] @ cells) * draws[1]).sum(axis=1))


def on_average(part: pd.DataFrame) -> dict[str, Any]:
    """What tests of one method and target say on average: truth and estimate, bias, coverage, order of the models."""
    defined = part.dropna(subset=["estimate", "se"])
    covered = (defined["low"] <= defined["truth"]) & (defined["truth"] <= defined["high"])
    means = part.groupby(["repeat", "model"])[["truth", "estimate"]].mean().reset_index()
    return {
        "truth": part["truth"].mean(),
        "estimate": defined["estimate"].mean(),
        "bias_pp": 100 * (defined["estimate"] - defined["truth"]).mean(),
        "coverage": covered.mean() if len(defined) else float("nan"),
        "undefined": len(part) - len(defined),
        "rank_tau": order_kept(means),
        "warning": warning(part["estimator"].iloc[0]) if part["policy"].iloc[0] == "gre_two_stage" else None,
    }


def order_kept(means: pd.DataFrame) -> float:
    """Kendall's tau-b of estimated and true means over models, mean over repeats; NaN with fewer than three models."""
    if means["model"].nunique() < 3:
        return float("nan")
    each = [kendalltau(part["truth"], part["estimate"]).statistic for _, part in means.groupby("repeat")]
    return float(np.mean(each))
