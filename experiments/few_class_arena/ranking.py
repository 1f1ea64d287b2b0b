"""What the paper's Table 1 says of choosing a model by ImageNet, or always the same one. Needs no run."""

from __future__ import annotations

import numpy as np
import pandas as pd
from paper import DATASETS, DCN

from fca.stats.correlation import correlation, resampled_correlation
from fca.stats.intervals import bootstrap_mean, percentile_interval, point_weights


def agreement(paper: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rho over models of every data set's accuracies with those on ImageNet: the paper's, and ours.

    paper: Table 1.    table: our cells (see cells.table1).    Interval: bootstrap over models.
    """
    cells = table[table["paper_model"] != DCN]
    ours = cells.pivot_table(index="paper_dataset", columns="paper_model", values="top1", dropna=False)
    lines = []
    for whose, frame in (("paper", paper.drop(columns=DCN)), ("ours", ours)):
        for short in [name for name in DATASETS if name in frame.index and "IN1K" in frame.index and name != "IN1K"]:
            both = frame.loc[["IN1K", short]].dropna(axis="columns")
            lines.append({"paper_dataset": short, "dataset": DATASETS[short], "whose": whose, **_rho(both)})
    columns = ["paper_dataset", "dataset", "whose", "rho", "rho_low", "rho_high", "p", "models"]
    frame = pd.DataFrame(lines, columns=columns).dropna(subset="rho")
    return frame.sort_values(["whose", "rho"], ascending=False, kind="stable", ignore_index=True)


def _rho(both: pd.DataFrame) -> dict[str, float]:
    models = both.shape[1]
    if models < 3:
        return {"rho": np.nan, "models": models}
    reference, there = both.to_numpy()
    found = correlation(there, reference, "spearman")
    low, high = percentile_interval(
        resampled_correlation(there, reference, point_weights(np.arange(models)), "spearman")
    )
    return {"rho": found.r, "rho_low": low, "rho_high": high, "p": found.p, "models": models}


def regret(paper: pd.DataFrame) -> pd.DataFrame:
    """How far always taking one model stays below each data set's best: mean, interval over data sets, worst case."""
    models = paper.drop(columns=DCN)
    below = models.rsub(models.max(axis="columns"), axis="index")
    lines = []
    for model, lost in below.items():
        low, high = bootstrap_mean(lost.to_numpy(), np.arange(len(lost)))
        mean = {"top1_regret": lost.mean(), "top1_regret_low": low, "top1_regret_high": high}
        worst = {"top1_regret_worst": lost.max(), "worst_on": str(lost.idxmax())}
        lines.append({"paper_model": model, **mean, **worst, "datasets": len(lost)})
    return pd.DataFrame(lines).sort_values("top1_regret", ignore_index=True)
