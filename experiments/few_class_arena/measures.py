"""What the findings are measured by: one value a class subset, and its mean or spread over subset seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from paper import FEW

from fca.stats.correlation import correlation
from fca.stats.intervals import bootstrap_mean, percentile_interval, point_weights

DRAW = ["ncl", "subset_seed", "classes"]
Draws = tuple[pd.DataFrame, int]  # a `value` a subset, and over how many models


def paired(subset: pd.DataFrame, protocol: str, how: str = "mean") -> Draws:
    """Sub-models minus full models on the same subset: their mean or best (max), over the models that have both."""
    pair = ["model", *DRAW]
    sub, full = (subset.loc[subset["protocol"] == p, [*pair, "top1"]] for p in ("sub", protocol))
    both = sub.merge(full, on=pair, suffixes=("", "_full"))
    told = both.groupby(DRAW, as_index=False)[["top1", "top1_full"]].agg(how)
    return told.assign(value=100 * (told["top1"] - told["top1_full"])), both["model"].nunique()


def unpaired(subset: pd.DataFrame, protocol: str) -> Draws:
    """The best sub-model minus the best full model where no model is both; nothing where one is (see paired)."""
    sub, full = (subset[subset["protocol"] == p] for p in ("sub", protocol))
    if set(sub["model"]) & set(full["model"]):
        return pd.DataFrame(columns=[*DRAW, "value"]), 0
    best = [part.groupby(DRAW)["top1"].max() for part in (sub, full)]
    told = (100 * (best[0] - best[1])).dropna().rename("value").reset_index()
    return told, sub["model"].nunique() + full["model"].nunique()


def against(few: pd.DataFrame, reference: pd.DataFrame, protocol: str) -> Draws:
    """Accuracy at few classes minus that of the same model on the reference (the same subset seed, if it has one)."""
    few, reference = (part[part["protocol"] == protocol] for part in (few, reference))
    by = ["model"] if reference["subset_seed"].isna().all() else ["model", "subset_seed"]
    there = reference.groupby(by)["top1"].mean().rename("reference").reset_index()
    both = few.merge(there, on=by)
    return _per_draw(both.assign(value=100 * (both["top1"] - both["reference"]))), both["model"].nunique()


def growth(subset: pd.DataFrame) -> Draws:
    """Accuracy of sub-models at few classes minus at the most classes that any was trained on."""
    sub = subset[subset["protocol"] == "sub"]
    most = sub["ncl"].max()
    return against(sub[sub["ncl"].isin(FEW) & (sub["ncl"] < most)], sub[sub["ncl"] == most], "sub")


def scaling(few: pd.DataFrame, params: pd.Series, protocol: str) -> Draws:
    """Spearman's rho of parameters and accuracy over the models of every subset (three or more)."""
    sized = few[(few["protocol"] == protocol) & few["model"].isin(params.index)]
    lines = []
    for key, part in sized.groupby(DRAW, dropna=False):
        if part["model"].nunique() >= 3:
            rho = correlation(part["model"].map(params).to_numpy(), part["top1"].to_numpy(), "spearman").r
            lines.append({**dict(zip(DRAW, key, strict=True)), "value": rho})
    frame = pd.DataFrame(lines, columns=[*DRAW, "value"]).dropna(subset="value")
    return frame, sized["model"].nunique()


def _per_draw(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.groupby(DRAW, dropna=False, as_index=False).agg(value=("value", "mean"))


def mean_of(draws: pd.DataFrame, models: int) -> dict[str, Any]:
    if draws.empty:
        return {}
    low, high = bootstrap_mean(draws["value"].to_numpy(), pd.factorize(draws["subset_seed"])[0])
    return {
        "value": draws["value"].mean(),
        "low": low,
        "high": high,
        "seeds": draws["subset_seed"].nunique(),
        "models": models,
    }


def ratio(top: pd.DataFrame, top_protocol: str, bottom: pd.DataFrame, bottom_protocol: str) -> dict[str, Any]:
    """Standard deviation between subsets of one ncl, pooled over ncl; models averaged first, the same ones on top.

    A subset that one of these models has not answered is left out: else the spread would also be between models.
    """
    parts = [top[top["protocol"] == top_protocol], bottom[bottom["protocol"] == bottom_protocol]]
    models = set(parts[0]["model"]) & set(parts[1]["model"])
    means = [
        part[part["model"].isin(models)]
        .groupby(DRAW, as_index=False)
        .agg(top1=("top1", "mean"), models=("model", "size"))
        for part in parts
    ]
    means = [part[part["models"] == len(models)] for part in means]
    if any(part["subset_seed"].nunique() < 2 for part in means):
        return {}
    seeds = sorted({*means[0]["subset_seed"], *means[1]["subset_seed"]})
    weights = np.vstack([np.ones(len(seeds), dtype=np.int64), point_weights(np.arange(len(seeds)))])
    with np.errstate(divide="ignore", invalid="ignore"):
        value, *drawn = _spread(means[0], seeds, weights) / _spread(means[1], seeds, weights)
    if not np.isfinite(value):
        return {}
    low, high = percentile_interval(np.where(np.isfinite(drawn), drawn, np.nan))
    return {"value": value, "low": low, "high": high, "seeds": len(seeds), "models": len(models)}


def _spread(part: pd.DataFrame, seeds: list[int], weights: np.ndarray) -> np.ndarray:
    """In every resample of subset seeds; the first is the data themselves."""
    squares = freedom = 0.0
    for _, same in part.groupby("ncl"):
        drawn = weights[:, [seeds.index(seed) for seed in same["subset_seed"]]]
        n, top1 = drawn.sum(axis=1), same["top1"].to_numpy()
        mean = drawn @ top1 / np.maximum(n, 1)
        squares = squares + (drawn * (top1 - mean[:, None]) ** 2).sum(axis=1)
        freedom = freedom + np.maximum(n - 1, 0)
    spread: np.ndarray = np.sqrt(squares / freedom)
    return spread
