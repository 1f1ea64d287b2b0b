"""Do the findings of Few-Class Arena on few classes hold here: who is more accurate, where, and does size help?

Each finding is a measure: one value for each class subset, and its mean (or spread) over subset seeds with an interval.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.correlation import correlation
from fca.stats.intervals import LOG, interval_method, jackknife_interval, left_out_weights, mean_with_interval
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

Draws = tuple[pd.DataFrame, int]  # lines (ncl, subset_seed, classes, value), one a subset, and the number of models
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

    few: Annotated[list[int], Allowed(2, non_empty=True), "the numbers of classes that count as few"] = field(
        default_factory=lambda: [2, 3, 4, 5]
    )
    per_model: PerModel = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Table findings: one line for each data set and measure; a measure that is undefined there has no line."""
        # rows: the stored runs; points: the accuracy of every model on every subset, under every protocol
        # per_model: columns of the configuration that may differ between models, such as the learning rate
        rows, points = read_points(store, self, self.per_model)

        lines = []
        for dataset, subset in per_subset(points).groupby("dataset"):
            models = rows.models[rows.models["dataset"] == dataset]
            num_classes = int(models["num_classes"].max())
            # sub-models of few classes have a smaller head: the maximum is the model with the most classes
            params = models.groupby("model")["params"].max().dropna().astype("float64")
            # of full models; the mean is over initialisations
            top1_all_classes = models.groupby("model")["top1_open"].mean().dropna()

            cells_by_finding = measures(subset, params, top1_all_classes, num_classes, self.few)
            for name, cells in cells_by_finding.items():
                measure, unit = MEASURES[name]
                lines.append({DATASET: dataset, FINDING: name, MEASURE: measure, UNIT: unit, **cells})

        intervals = f"95 %: {interval_method('subset seeds')}, of ratios on the logarithm"
        # rows.noted adds the list of data sets that were left out, which the page then names
        parameters = rows.noted({**asdict(self), "intervals": intervals})
        return [PAPER_FINDINGS.table(PAPER_FINDINGS.frame(lines), parameters, sorted(set(points["run_id"])))]


def measures(
    subset: pd.DataFrame, params: pd.Series, top1_all_classes: pd.Series, num_classes: int, few_classes: list[int]
) -> dict[str, dict[str, Any]]:
    """The cells of every finding of MEASURES that is defined on one data set: value, interval, counts and verdict.

    The findings of the paper are called (a) to (d), here with variants such as "a, masked":

    a:   sub-models minus full models on the same subsets, in points of accuracy. "other models": the best of each,
         where no model is stored as both.
    b:   the ratio of two spreads of accuracy (standard deviations between subsets of equal ncl).
    c.1: full models on few classes minus the same models on all classes, in points.
    c.2: rank correlation of size (number of parameters) and accuracy of full models.
    d.1: sub-models of few classes minus sub-models of the most classes, in points.
    d.2: as c.2, of sub-models.

    Returns the cells by these names; a finding for which models or subsets are missing is left out.

    subset:           accuracies (`top1`), one line for each class subset, model and protocol.
    params:           number of parameters of every model.
    top1_all_classes: accuracy of every full model on all classes, where open and masked are the same.
    num_classes:      of the data set; a subset of all its classes counts in d.1 alone, as the most classes.
    few_classes:      the numbers of classes that count as few.
    """
    is_partial = subset["ncl"] < num_classes
    is_few = subset["ncl"].isin(few_classes)
    few = subset[is_partial & is_few]
    more_than_few = subset[is_partial & ~is_few]
    few_open = few[few["protocol"] == "open"]
    few_masked = few[few["protocol"] == "masked"]

    # each inner call returns a value for each subset and the number of models; mean_of turns both into cells, which are
    # empty if the finding is undefined here. "max": of the best model on each subset instead of the mean over models
    value_cells = {
        "a, best of models": mean_of(*sub_minus_full(few, "open", "max")),
        "a, mean of models": mean_of(*sub_minus_full(few, "open")),
        "a, masked": mean_of(*sub_minus_full(few, "masked")),
        "a, other models": mean_of(*best_of_different_models(few, "open")),
        "a, other models, masked": mean_of(*best_of_different_models(few, "masked")),
        "b, full to sub": spread_ratio(few, "open", few, "sub"),
        "b, few to many": spread_ratio(few, "open", more_than_few, "open"),
        "c.1": mean_of(*minus_reference(few_open, top1_all_classes)),
        "c.1, masked": mean_of(*minus_reference(few_masked, top1_all_classes)),
        "c.2": mean_of(*size_correlation(few, params, "open"), limit=1.0),  # a correlation is at most 1
        "d.1": mean_of(*few_minus_most_classes(subset, few_classes)),
        "d.2": mean_of(*size_correlation(few, params, "sub"), limit=1.0),
    }

    defined = {}
    for name, cells in value_cells.items():
        if cells:
            _, unit = MEASURES[name]
            no_effect = 1.0 if unit == "ratio" else 0.0
            defined[name] = {**cells, NO_EFFECT: no_effect, FINDING_VERDICT: _verdict(cells, no_effect)}
    return defined


def _verdict(cells: dict[str, Any], no_effect: float) -> str:
    """Whether the interval is above or below no effect or contains it; or in words why there is no interval.

    cells:     the value and its interval.
    no_effect: the value without an effect, 1 for a ratio and otherwise 0.
    """
    low = cells[FINDING_VALUE.low]
    high = cells[FINDING_VALUE.high]
    if pd.isna(low):
        # a mean takes two subset seeds that differ; a ratio of spreads also has to be defined without each seed in turn
        is_ratio = no_effect != 0
        return UNDEFINED_WITHOUT if is_ratio else NO_MEAN_INTERVAL
    if low > no_effect:
        return "above"
    if high < no_effect:
        return "below"
    return "not significant"


def sub_minus_full(subset: pd.DataFrame, protocol: str, aggregate: str = "mean") -> Draws:
    """The accuracy of sub-models minus the accuracy of full models on each subset, in points; the number of models.

    Only models that have both accuracies on a subset count there.

    subset:    see measures.
    protocol:  of the full models.
    aggregate: how the accuracies of several models become one before the difference: their mean or the best (max).
    """
    accuracies = wide(PROTOCOL, subset, [MODEL, NCL, *DRAW])  # a column for each protocol
    pairs = accuracies.reindex(columns=["sub", protocol]).dropna()
    over_models = pairs.groupby([NCL, *DRAW]).agg(aggregate)
    values = 100 * (over_models["sub"] - over_models[protocol])
    n_models = pairs.index.get_level_values(MODEL).nunique()
    return values.rename("value").reset_index(), n_models


def best_of_different_models(subset: pd.DataFrame, protocol: str) -> Draws:
    """The best sub-model minus the best full model on each subset, in points, and the number of models.

    This is for stores in which the sub-models are other architectures than the full models. If any model was stored as
    both, the result has no values, because sub_minus_full then compares each model with itself.

    subset:   accuracies, one line for each subset, model and protocol.
    protocol: of the full models.
    """
    sub = subset[subset["protocol"] == "sub"]
    full = subset[subset["protocol"] == protocol]
    if set(sub["model"]) & set(full["model"]):
        return pd.DataFrame(columns=[NCL, *DRAW, "value"]), 0  # DRAW: subset seed and classes

    best_sub = sub.groupby([NCL, *DRAW])["top1"].max()
    best_full = full.groupby([NCL, *DRAW])["top1"].max()
    values = (100 * (best_sub - best_full)).dropna().rename("value").reset_index()
    return values, sub["model"].nunique() + full["model"].nunique()


def minus_reference(few: pd.DataFrame, reference: pd.Series) -> Draws:
    """Accuracy minus the model's own reference accuracy, in points: the mean over models on each subset.

    few:       accuracies at few classes, under one protocol.
    reference: indexed by model, or by model and subset_seed; then only the same seed is compared. A model without a
               reference is left out.
    """
    reference_frame = reference.rename("reference").reset_index()
    pairs = few.merge(reference_frame, on=list(reference.index.names))
    differences = pairs.assign(value=100 * (pairs["top1"] - pairs["reference"]))
    values = differences.groupby([NCL, *DRAW], dropna=False)["value"].mean().reset_index()
    return values, pairs["model"].nunique()


def few_minus_most_classes(subset: pd.DataFrame, few_classes: list[int]) -> Draws:
    """Accuracy of sub-models at few classes minus accuracy at the most classes that any was trained on, in points.

    Both accuracies are of the same model and subset seed; their difference on a subset is averaged over models. Returns
    these means and the number of models.

    subset:      accuracies, one line for each subset, model and protocol.
    few_classes: the numbers of classes that count as few.
    """
    sub = subset[subset["protocol"] == "sub"]
    has_most_classes = sub["ncl"] == sub["ncl"].max()
    few = sub[sub["ncl"].isin(few_classes) & ~has_most_classes]

    with_most_classes = sub[has_most_classes]
    reference_key = ["model", "subset_seed"]
    if with_most_classes["subset_seed"].isna().all():  # all classes need no draw: one reference for every seed
        reference_key = ["model"]
    reference = with_most_classes.groupby(reference_key)["top1"].mean()
    return minus_reference(few, reference)


def size_correlation(few: pd.DataFrame, params: pd.Series, protocol: str) -> Draws:
    """Spearman's rho between the number of parameters and the accuracy of the models, on each subset.

    Subsets with fewer than three models are left out, and so are subsets on which rho is undefined because all
    accuracies are equal. Returns the values and the number of models.

    few:      accuracies at few classes.
    protocol: of the models that count.
    params:   number of parameters by model; a model that is missing there is left out.
    """
    has_size = few["model"].isin(params.index)
    sized = few[(few["protocol"] == protocol) & has_size]

    lines = []
    for key, accuracies_of_subset in sized.groupby([NCL, *DRAW], dropna=False):  # DRAW: subset seed and classes
        if accuracies_of_subset["model"].nunique() >= 3:  # rho of two models is always 1 or -1
            sizes = accuracies_of_subset["model"].map(params).to_numpy()
            rho = correlation(sizes, accuracies_of_subset["top1"].to_numpy(), "spearman").r
            lines.append((*key, rho))
    values = pd.DataFrame(lines, columns=[NCL, *DRAW, "value"]).dropna(subset="value")
    return values, sized["model"].nunique()


def mean_of(draws: pd.DataFrame, n_models: int, limit: float = 100.0) -> dict[str, Any]:
    """The cells of the mean over subsets and its interval over subset seeds; empty if there are no subsets.

    draws, n_models: see Draws.
    limit: values are within [-limit, limit]: 100 points, or a correlation of 1.
    """
    if draws.empty:
        return {}

    seeds = draws["subset_seed"]
    mean, low, high = mean_with_interval(draws["value"], seeds, within=(-limit, limit))
    return _value_cells(mean, low, high, seeds.nunique(), n_models)


def _value_cells(value: float, low: float, high: float, n_seeds: int, n_models: int) -> dict[str, Any]:
    """The cells of a finding's value, of both ends of its interval, and of the seeds and models behind it."""
    return {
        FINDING_VALUE: value,
        FINDING_VALUE.low: low,
        FINDING_VALUE.high: high,
        SUBSET_SEEDS: n_seeds,
        MODELS: n_models,
    }


def spread_ratio(top: pd.DataFrame, top_protocol: str, bottom: pd.DataFrame, bottom_protocol: str) -> dict[str, Any]:
    """The cells of a ratio of two spreads and its interval over subset seeds; empty if the ratio is undefined.

    A spread is the standard deviation, between class subsets of equal ncl, of the mean accuracy over models. Both
    spreads are of the same models. A subset that one of these models did not predict is left out: otherwise the spread
    would also be between models.

    top, bottom: accuracies of the numerator and the denominator, one line for each subset, model and protocol; only
                 lines under `top_protocol` and `bottom_protocol` count.
    """
    top_points = top[top["protocol"] == top_protocol]
    bottom_points = bottom[bottom["protocol"] == bottom_protocol]
    models = set(top_points["model"]) & set(bottom_points["model"])
    top_means = _means_over_models(top_points, models)  # one line for each subset
    bottom_means = _means_over_models(bottom_points, models)
    n_seeds = min(top_means["subset_seed"].nunique(), bottom_means["subset_seed"].nunique())
    if n_seeds < 2:  # with a single seed there is one subset of each ncl, which has no spread
        return {}

    # the ratio from all seeds, then with each seed left out, for the jackknife
    seeds = sorted({*top_means["subset_seed"], *bottom_means["subset_seed"]})
    every_seed = np.ones((1, len(seeds)), dtype=np.int64)
    weights = np.vstack([every_seed, left_out_weights(np.arange(len(seeds)))])  # resamples x seeds
    with np.errstate(divide="ignore", invalid="ignore"):  # a spread of 0 makes the ratio infinite or NaN
        ratios = _spread(top_means, seeds, weights) / _spread(bottom_means, seeds, weights)
    value = ratios[0]
    if not np.isfinite(value):
        return {}

    low, high = jackknife_interval(value, ratios[1:], scale=LOG)  # the logarithm of a ratio is nearly normal
    return _value_cells(value, low, high, n_seeds, len(models))


def _means_over_models(points: pd.DataFrame, models: set[str]) -> pd.DataFrame:
    """The mean accuracy of these models on each drawn subset that all of them predicted."""
    by_subset = points[points["model"].isin(models)].groupby([NCL, *DRAW], as_index=False)
    means = by_subset.agg(top1=("top1", "mean"), models=("model", "size"))
    return means[means["models"] == len(models)]


def _spread(means: pd.DataFrame, seeds: list[Any], weights: np.ndarray) -> np.ndarray:
    """Standard deviation between subsets of equal ncl, pooled over ncl; one value for each resample of the seeds.

    sqrt(sum_ncl sum_i w_i (a_i - mean_ncl)^2 / sum_ncl (n_ncl - 1)),   n_ncl = sum_i w_i

    A resample in which no ncl has two subsets is NaN.

    means:   accuracy a_i of each subset i.
    seeds:   the subset seed of each column of weights.
    weights: resamples x seeds; w_i is how often the seed of subset i counts.
    """
    squares = freedom = 0.0
    for _, at_ncl in means.groupby("ncl"):
        column_of_subset = [seeds.index(seed) for seed in at_ncl["subset_seed"]]
        w = weights[:, column_of_subset]  # resamples x subsets
        n = w.sum(axis=1)
        top1 = at_ncl["top1"].to_numpy()
        mean = w @ top1 / np.maximum(n, 1)  # where n is 0 all w are 0, and the mean does not matter
        squares = squares + (w * (top1 - mean[:, None]) ** 2).sum(axis=1)
        freedom = freedom + np.maximum(n - 1, 0)
    return np.sqrt(squares / freedom)
