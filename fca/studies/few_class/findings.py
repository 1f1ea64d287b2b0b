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
        for dataset, accuracies in per_subset(points).groupby("dataset"):
            models = rows.models[rows.models["dataset"] == dataset]
            num_classes = int(models["num_classes"].max())
            params = models.groupby("model")["params"].max().dropna().astype("float64")  # the largest head counts
            on_all_classes = models.groupby("model")["top1_open"].mean().dropna()
            for name, values in measures(accuracies, params, on_all_classes, num_classes, self.few).items():
                description, unit = MEASURES[name]
                lines.append({DATASET: dataset, FINDING: name, MEASURE: description, UNIT: unit, **values})

        intervals = f"95 %: {interval_over('subset seeds')}, of ratios on the logarithm"
        parameters = rows.noted({**asdict(self), "intervals": intervals})
        return [PAPER_FINDINGS.table(PAPER_FINDINGS.frame(lines), parameters, sorted(set(points["run_id"])))]


def measures(
    subset: pd.DataFrame, params: pd.Series, on_all_classes: pd.Series, num_classes: int, few_classes: list[int]
) -> dict[str, dict[str, Any]]:
    """The measures that are defined on one data set, each with its interval and verdict.

    subset: fca.studies.few_class.accuracy.per_subset.    params: of every model.
    on_all_classes: accuracy of every full model on all classes, where open and masked are the same.
    """
    is_partial = subset["ncl"] < num_classes
    is_few = subset["ncl"].isin(few_classes)
    few = subset[is_partial & is_few]
    more = subset[is_partial & ~is_few]
    open_few = few[few["protocol"] == "open"]
    masked_few = few[few["protocol"] == "masked"]

    values_by_finding = {
        "a, best of models": mean_of(*paired(few, "open", "max")),
        "a, mean of models": mean_of(*paired(few, "open")),
        "a, masked": mean_of(*paired(few, "masked")),
        "a, other models": mean_of(*unpaired(few, "open")),
        "a, other models, masked": mean_of(*unpaired(few, "masked")),
        "b, full to sub": ratio(few, "open", few, "sub"),
        "b, few to many": ratio(few, "open", more, "open"),
        "c.1": mean_of(*against(open_few, on_all_classes)),
        "c.1, masked": mean_of(*against(masked_few, on_all_classes)),
        "c.2": mean_of(*scaling(few, params, "open"), largest=1.0),
        "d.1": mean_of(*growth(subset, few_classes)),
        "d.2": mean_of(*scaling(few, params, "sub"), largest=1.0),
    }

    defined = {name: values for name, values in values_by_finding.items() if values}
    for name, values in defined.items():
        _, unit = MEASURES[name]
        no_effect = 1.0 if unit == "ratio" else 0.0
        values[NO_EFFECT] = no_effect
        values[FINDING_VERDICT] = _verdict(values, no_effect)
    return defined


def _verdict(values: dict[str, Any], no_effect: float) -> str:
    """Where the interval lies, or why there is none."""
    low = values[FINDING_VALUE.low]
    high = values[FINDING_VALUE.high]
    if pd.isna(low):
        return UNDEFINED_WITHOUT if no_effect else NO_MEAN_INTERVAL
    if low > no_effect:
        return "above"
    return "below" if high < no_effect else "not significant"


def paired(subset: pd.DataFrame, protocol: str, aggregate: str = "mean") -> Draws:
    """Sub-models minus full models on the same subset: their mean or best (max), over the models that have both."""
    pairs = wide(PROTOCOL, subset, [MODEL, NCL, *DRAW]).reindex(columns=["sub", protocol]).dropna()
    by_subset = pairs.groupby([NCL, *DRAW]).agg(aggregate)
    values = 100 * (by_subset["sub"] - by_subset[protocol])
    return values.rename("value").reset_index(), pairs.index.get_level_values(MODEL).nunique()


def unpaired(subset: pd.DataFrame, protocol: str) -> Draws:
    """The best sub-model minus the best full model where no model is both; nothing where one is (see paired)."""
    sub = subset[subset["protocol"] == "sub"]
    full = subset[subset["protocol"] == protocol]
    if set(sub["model"]) & set(full["model"]):
        return pd.DataFrame(columns=[NCL, *DRAW, "value"]), 0

    best_sub = sub.groupby([NCL, *DRAW])["top1"].max()
    best_full = full.groupby([NCL, *DRAW])["top1"].max()
    values = (100 * (best_sub - best_full)).dropna().rename("value").reset_index()
    return values, sub["model"].nunique() + full["model"].nunique()


def against(few: pd.DataFrame, reference: pd.Series) -> Draws:
    """Accuracy at few classes minus the reference of the same model (and of the same subset seed, if it has one)."""
    compared = few.merge(reference.rename("reference").reset_index(), on=list(reference.index.names))
    compared = compared.assign(value=100 * (compared["top1"] - compared["reference"]))
    values = compared.groupby([NCL, *DRAW], dropna=False)["value"].mean()
    return values.reset_index(), compared["model"].nunique()


def growth(subset: pd.DataFrame, few_classes: list[int]) -> Draws:
    """Accuracy of sub-models at few classes minus at the most classes that any was trained on."""
    sub = subset[subset["protocol"] == "sub"]
    has_most_classes = sub["ncl"] == sub["ncl"].max()
    few = sub[sub["ncl"].isin(few_classes) & ~has_most_classes]

    largest = sub[has_most_classes]
    keys = ["model"] if largest["subset_seed"].isna().all() else ["model", "subset_seed"]
    return against(few, largest.groupby(keys)["top1"].mean())


def scaling(few: pd.DataFrame, params: pd.Series, protocol: str) -> Draws:
    """Spearman's rho of parameters and accuracy over the models of every subset (three or more)."""
    with_params = few[(few["protocol"] == protocol) & few["model"].isin(params.index)]
    lines = []
    for key, models in with_params.groupby([NCL, *DRAW], dropna=False):
        if models["model"].nunique() >= 3:
            sizes = models["model"].map(params).to_numpy()
            rho = correlation(sizes, models["top1"].to_numpy(), "spearman").r
            lines.append((*key, rho))
    values = pd.DataFrame(lines, columns=[NCL, *DRAW, "value"]).dropna(subset="value")
    return values, with_params["model"].nunique()


def mean_of(draws: pd.DataFrame, models: int, largest: float = 100.0) -> dict[str, Any]:
    """The mean over subsets, and its interval over subset seeds; nothing where there is no subset.

    largest: the largest possible value, and -largest the smallest: 100 points, or a correlation of 1.
    """
    if draws.empty:
        return {}
    seeds = draws["subset_seed"]
    mean = mean_with_interval(draws["value"], seeds, within=(-largest, largest))
    return _measured(*mean, seeds.nunique(), models)


def _measured(*values: Any) -> dict[str, Any]:
    return dict(zip((*interval_columns(FINDING_VALUE), SUBSET_SEEDS, MODELS), values, strict=True))


def ratio(top: pd.DataFrame, top_protocol: str, bottom: pd.DataFrame, bottom_protocol: str) -> dict[str, Any]:
    """Standard deviation between subsets of one ncl, pooled over ncl; models averaged first, the same ones on top.

    A subset that one of these models did not predict is left out: else the spread would also be between models.
    """
    top = top[top["protocol"] == top_protocol]
    bottom = bottom[bottom["protocol"] == bottom_protocol]
    models = set(top["model"]) & set(bottom["model"])
    top_means = _means_of_subsets(top, models)
    bottom_means = _means_of_subsets(bottom, models)
    fewest_seeds = min(top_means["subset_seed"].nunique(), bottom_means["subset_seed"].nunique())
    if fewest_seeds < 2:
        return {}

    # The ratio with all seeds, then with each seed left out
    seeds = sorted({*top_means["subset_seed"], *bottom_means["subset_seed"]})
    every_seed = np.ones((1, len(seeds)), dtype=np.int64)
    weights = np.vstack([every_seed, left_out_weights(np.arange(len(seeds)))])  # (1 + seeds) x seeds
    with np.errstate(divide="ignore", invalid="ignore"):
        value, *values_left_out = _spread(top_means, seeds, weights) / _spread(bottom_means, seeds, weights)
    if not np.isfinite(value):
        return {}
    interval = jackknife_interval(value, np.array(values_left_out), scale=LOG)
    return _measured(value, *interval, fewest_seeds, len(models))


def _means_of_subsets(accuracies: pd.DataFrame, models: set[str]) -> pd.DataFrame:
    """The mean accuracy of these models on each subset that all of them predicted."""
    by_subset = accuracies[accuracies["model"].isin(models)].groupby([NCL, *DRAW], as_index=False)
    means = by_subset.agg(top1=("top1", "mean"), models=("model", "size"))
    return means[means["models"] == len(models)]


def _spread(means: pd.DataFrame, seeds: list[Any], weights: np.ndarray) -> np.ndarray:
    """Standard deviation between subsets of equal ncl, pooled over ncl, for each row of weights.

    sqrt(Σ_ncl Σ_i w_i (y_i - ȳ)² / Σ_ncl (n - 1)), with n = Σ_i w_i

    weights: how often each subset seed counts, rows x seeds.
    """
    squares = freedom = 0.0
    for _, subsets in means.groupby("ncl"):
        columns = [seeds.index(seed) for seed in subsets["subset_seed"]]
        weight = weights[:, columns]  # rows x subsets
        n = weight.sum(axis=1)
        top1 = subsets["top1"].to_numpy()
        mean = weight @ top1 / np.maximum(n, 1)
        squares = squares + (weight * (top1 - mean[:, None]) ** 2).sum(axis=1)
        freedom = freedom + np.maximum(n - 1, 0)
    return np.sqrt(squares / freedom)
