"""Over the models of a data set: do accurate ones follow the order of levels more, and more than chance makes them?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.stats.correlation import resampled_correlation
from fca.stats.hierarchy import score_and_accuracy
from fca.stats.intervals import cluster_draws, percentile_interval

FEWEST = 4  # models that a correlation over models is of
COLUMNS = ["dataset", "kind", "r", "r_low", "r_high", "p", "models", "networks"]


def over_models(dataset: str, models: pd.DataFrame, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Correlation of score and accuracy over the models of one data set, plain and given chance."""
    values = models[["hierarchical_score", "accuracy", "chance"]].to_numpy(dtype=float).T
    network = pd.factorize(models["model"].str.split(", ").str[0])[0]  # `resnet18, seed 1` is one more resnet18
    networks = int(network.max()) + 1
    about = {"dataset": dataset, "models": len(models), "networks": networks}
    if len(models) < FEWEST:
        yield from ({**about, "kind": kind} for kind in ("pearson", "partial"))
        return
    found = score_and_accuracy(*values)
    drawn = _resampled(values, cluster_draws(networks, seed)[:, network])
    for kind, here, resampled in zip(found._fields, found, drawn, strict=True):
        low, high = percentile_interval(resampled)
        yield {**about, "kind": kind, "r": here.r, "r_low": low, "r_high": high, "p": here.p}


def _resampled(
    values: Float[np.ndarray, "3 models"], times: Integer[np.ndarray, "resamples models"]
) -> tuple[Float[np.ndarray, " resamples"], Float[np.ndarray, " resamples"]]:
    """Both coefficients in every resample; NaN where so few models differ that they lie on a line anyway."""
    score, accuracy, chance = values
    plain, of_score, of_accuracy = (
        resampled_correlation(x, y, times) for x, y in ((score, accuracy), (score, chance), (accuracy, chance))
    )
    left = (1 - of_score**2) * (1 - of_accuracy**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        partial = (plain - of_score * of_accuracy) / np.sqrt(left)
    different = (times > 0).sum(axis=1)
    defined = (different > 3) & (left > 1e-12)  # else chance says all there is: rounding is left
    return np.where(different > 2, plain, np.nan), np.where(defined, partial, np.nan)
