"""Do the findings of Few-Class Arena on few classes hold here: who is more accurate, where, and does size help?

Each finding is a measure: one value a class subset, and its mean (or spread) over subset seeds with an interval.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.correlation import correlation
from fca.stats.intervals import LOG, interval_over, jackknife_interval, left_out_weights, mean_with_interval
from fca.store import Store
from fca.studies.few_class.accuracy import PAPER, per_subset
from fca.studies.few_class.subset_accuracy import DRAW, SUBSET_SEEDS, OfSubsets, PerModel, read_points, wide
from fca.tables.table import (
    DATASET,
    MEASURE,
    MODEL,
    MODELS,
    NCL,
    NO_MEAN_INTERVAL,
    PROTOCOL,
    UNDEFINED_WITHOUT,
    VALUE,
    VERDICT,
    TableSpec,
)
from fca.types import Column, Table, interval_columns
from fca.validation import Allowed

Draws = tuple[pd.DataFrame, int]  # a `value` for each subset, and over how many models
MEASURES = {  # finding -> what is measured, and in which unit
    "a, best of models": ("the best sub-model minus the best full model, open", "points"),
    "a, mean of models": ("sub-models minus full models, open, mean of models", "points"),
    "a, masked": ("sub-models minus full models, masked", "points"),
    "a, other models": ("the best sub-model minus the best full model, of which none is both, open", "points"),
    "a, other models, masked": ("the best sub-model minus the best full model, none is both, masked", "points"),
    "b, full to sub": ("spread between subsets of equal ncl: full, open / sub-models", "ratio"),
    "b, few to many": ("spread between subsets of full models, open: few classes / more", "ratio"),
    "c.1": ("full models, open: few classes minus all", "points"),
    "c.1, masked": ("full models, masked: few classes minus all", "points"),
    "c.2": ("parameters and open accuracy of full models", "rho"),
    "d.1": ("sub-models: few classes minus the most classes trained", "points"),
    "d.2": ("parameters and accuracy of sub-models", "rho"),
}
FINDING = Column("finding", str, "", "finding, by the paper's letters")
UNIT = Column("unit", str, "", "unit", {"points": "accuracy (% points)", "ratio": "ratio", "rho": "Spearman's rho"})
FINDING_VALUE = VALUE.with_format(".2f")
NO_EFFECT = Column("no_effect", float, ".0f", "value without an effect: 0, and 1 for a ratio")
FINDING_VERDICT = VERDICT.with_format(
    "", "where the interval lies: above or below no effect, or both; or why there is none"
)
PAPER_FINDINGS = TableSpec(
    "findings",
    "Do the findings of Few-Class Arena hold here?",
    f"{PAPER} figure 1, findings (a) to (d); masked and other models are not in the paper",
    (
        DATASET,
        FINDING,
        MEASURE,
        UNIT,
        *interval_columns(FINDING_VALUE),
        NO_EFFECT,
        SUBSET_SEEDS,
        MODELS,
        FINDING_VERDICT,
    ),
)


@dataclass(frozen=True)
class Findings(OfSubsets):
    """`analysis=findings`; reads `train` rows and the `predict` rows of full models, as few_class does."""

    tables: ClassVar = (PAPER_FINDINGS,)

    few: Annotated[list[int], Allowed(2, filled=True), "the numbers of classes that count as few"] = field(
        default_factory=lambda: [2, 3, 4, 5]
    )
    per_model: PerModel = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Table findings; a measure that is undefined on a data set has no line."""
        rows, points = read_points(store, self, self.per_model)
        lines = []
        for dataset, part in per_subset(points).groupby("dataset"):
            models = rows.models[rows.models["dataset"] == dataset]
            params = models.groupby("model")["params"].max().dropna().astype("float64")  # the largest head counts
            whole = models.groupby("model")["top1_open"].mean().dropna()
            for name, found in measures(part, params, whole, int(models["num_classes"].max()), self.few).items():
                what, unit = MEASURES[name]
                lines.append({DATASET: dataset, FINDING: name, MEASURE: what, UNIT: unit, **found})
        intervals = f"95 %: {interval_over('subset seeds')}, of ratios on the logarithm"
        parameters = rows.noted({**asdict(self), "intervals": intervals})
        return [PAPER_FINDINGS.table(PAPER_FINDINGS.frame(lines), parameters, sorted(set(points["run_id"])))]


def measures(
    subset: pd.DataFrame, params: pd.Series, whole: pd.Series, num_classes: int, few_classes: list[int]
) -> dict[str, dict[str, Any]]:
    """The measures that are defined on one data set, each with its interval and verdict.

    subset: fca.studies.few_class.accuracy.per_subset.    params: of every model.    whole: accuracy of every full model
    on all classes, where open and masked are the same.
    """
    partial, is_few = subset["ncl"] < num_classes, subset["ncl"].isin(few_classes)
    few, more = subset[partial & is_few], subset[partial & ~is_few]
    found = {
        "a, best of models": mean_of(*paired(few, "open", "max")),
        "a, mean of models": mean_of(*paired(few, "open")),
        "a, masked": mean_of(*paired(few, "masked")),
        "a, other models": mean_of(*unpaired(few, "open")),
        "a, other models, masked": mean_of(*unpaired(few, "masked")),
        "b, full to sub": ratio(few, "open", few, "sub"),
        "b, few to many": ratio(few, "open", more, "open"),
        "c.1": mean_of(*against(few[few["protocol"] == "open"], whole)),
        "c.1, masked": mean_of(*against(few[few["protocol"] == "masked"], whole)),
        "c.2": mean_of(*scaling(few, params, "open"), most=1.0),
        "d.1": mean_of(*growth(subset, few_classes)),
        "d.2": mean_of(*scaling(few, params, "sub"), most=1.0),
    }
    return {name: one | _verdict(one, float(MEASURES[name][1] == "ratio")) for name, one in found.items() if one}


def _verdict(found: dict[str, Any], no_effect: float) -> dict[str, Any]:
    low, high = found[FINDING_VALUE.low], found[FINDING_VALUE.high]
    verdict = "above" if low > no_effect else "below" if high < no_effect else "not significant"
    why_none = UNDEFINED_WITHOUT if no_effect else NO_MEAN_INTERVAL
    return {NO_EFFECT: no_effect, FINDING_VERDICT: why_none if pd.isna(low) else verdict}


def paired(subset: pd.DataFrame, protocol: str, how: str = "mean") -> Draws:
    """Sub-models minus full models on the same subset: their mean or best (max), over the models that have both."""
    both = wide(PROTOCOL, subset, [MODEL, NCL, *DRAW]).reindex(columns=["sub", protocol]).dropna()
    means = both.groupby([NCL, *DRAW]).agg(how)
    values = 100 * (means["sub"] - means[protocol])
    return values.rename("value").reset_index(), both.index.get_level_values(MODEL).nunique()


def unpaired(subset: pd.DataFrame, protocol: str) -> Draws:
    """The best sub-model minus the best full model where no model is both; nothing where one is (see paired)."""
    sub, full = (subset[subset["protocol"] == p] for p in ("sub", protocol))
    if set(sub["model"]) & set(full["model"]):
        return pd.DataFrame(columns=[NCL, *DRAW, "value"]), 0
    best = [part.groupby([NCL, *DRAW])["top1"].max() for part in (sub, full)]
    values = (100 * (best[0] - best[1])).dropna().rename("value").reset_index()
    return values, sub["model"].nunique() + full["model"].nunique()


def against(few: pd.DataFrame, reference: pd.Series) -> Draws:
    """Accuracy at few classes minus the reference of the same model (and of the same subset seed, if it has one)."""
    both = few.merge(reference.rename("reference").reset_index(), on=list(reference.index.names))
    drawn = both.assign(value=100 * (both["top1"] - both["reference"])).groupby([NCL, *DRAW], dropna=False)
    return drawn["value"].mean().reset_index(), both["model"].nunique()


def growth(subset: pd.DataFrame, few_classes: list[int]) -> Draws:
    """Accuracy of sub-models at few classes minus at the most classes that any was trained on."""
    sub = subset[subset["protocol"] == "sub"]
    at_most = sub["ncl"] == sub["ncl"].max()
    by = ["model"] if sub.loc[at_most, "subset_seed"].isna().all() else ["model", "subset_seed"]
    return against(sub[sub["ncl"].isin(few_classes) & ~at_most], sub[at_most].groupby(by)["top1"].mean())


def scaling(few: pd.DataFrame, params: pd.Series, protocol: str) -> Draws:
    """Spearman's rho of parameters and accuracy over the models of every subset (three or more)."""
    sized = few[(few["protocol"] == protocol) & few["model"].isin(params.index)]
    lines = []
    for key, part in sized.groupby([NCL, *DRAW], dropna=False):
        if part["model"].nunique() >= 3:
            rho = correlation(part["model"].map(params).to_numpy(), part["top1"].to_numpy(), "spearman").r
            lines.append((*key, rho))
    return pd.DataFrame(lines, columns=[NCL, *DRAW, "value"]).dropna(subset="value"), sized["model"].nunique()


def mean_of(draws: pd.DataFrame, models: int, most: float = 100.0) -> dict[str, Any]:
    """The mean over subsets, and its interval over subset seeds; nothing where there is no subset.

    most: the largest value that there is, and -most the least: 100 points, or a correlation of 1.
    """
    if draws.empty:
        return {}
    seeds = draws["subset_seed"]
    return _measured(*mean_with_interval(draws["value"], seeds, within=(-most, most)), seeds.nunique(), models)


def _measured(*values: Any) -> dict[str, Any]:
    return dict(zip((*interval_columns(FINDING_VALUE), SUBSET_SEEDS, MODELS), values, strict=True))


def ratio(top: pd.DataFrame, top_protocol: str, bottom: pd.DataFrame, bottom_protocol: str) -> dict[str, Any]:
    """Standard deviation between subsets of one ncl, pooled over ncl; models averaged first, the same ones on top.

    A subset that one of these models did not predict is left out: else the spread would also be between models.
    """
    parts = [top[top["protocol"] == top_protocol], bottom[bottom["protocol"] == bottom_protocol]]
    models = set(parts[0]["model"]) & set(parts[1]["model"])
    means = []
    for part in parts:
        by = part[part["model"].isin(models)].groupby([NCL, *DRAW], as_index=False)
        mean = by.agg(top1=("top1", "mean"), models=("model", "size"))
        means.append(mean[mean["models"] == len(models)])
    if any(part["subset_seed"].nunique() < 2 for part in means):
        return {}
    seeds = sorted({*means[0]["subset_seed"], *means[1]["subset_seed"]})
    every_seed = np.ones((1, len(seeds)), dtype=np.int64)
    weights = np.vstack([every_seed, left_out_weights(np.arange(len(seeds)))])
    with np.errstate(divide="ignore", invalid="ignore"):
        value, *left_out = _spread(means[0], seeds, weights) / _spread(means[1], seeds, weights)
    if not np.isfinite(value):
        return {}
    fewest = min(part["subset_seed"].nunique() for part in means)
    return _measured(value, *jackknife_interval(value, np.array(left_out), scale=LOG), fewest, len(models))


def _spread(part: pd.DataFrame, seeds: list[Any], weights: np.ndarray) -> np.ndarray:
    """By the count of each subset seed: of all, and with each seed left out."""
    squares = freedom = 0.0
    for _, same in part.groupby("ncl"):
        drawn = weights[:, [seeds.index(seed) for seed in same["subset_seed"]]]
        n, top1 = drawn.sum(axis=1), same["top1"].to_numpy()
        mean = drawn @ top1 / np.maximum(n, 1)
        squares = squares + (drawn * (top1 - mean[:, None]) ** 2).sum(axis=1)
        freedom = freedom + np.maximum(n - 1, 0)
    return np.sqrt(squares / freedom)
