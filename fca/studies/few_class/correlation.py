"""Does image similarity predict how accurate models will be, beyond what the number of classes predicts?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.stats.correlation import METHODS, correlation, correlation_interval, resampled_correlation
from fca.stats.intervals import FEWEST_DRAWS
from fca.store import Store
from fca.studies.few_class.accuracy import PAPER, chance_of_means, per_subset
from fca.studies.few_class.similarity import SIMSS, similarity_points
from fca.studies.few_class.subset_accuracy import (
    DRAW,
    EMBED,
    SUBSET_SEEDS,
    EmbeddedSplit,
    OfSubsets,
    PerModel,
    accuracy_points,
    embed_rows,
    of_one_draw,
    subsets_of,
    wide,
)
from fca.tables.rows import drop_conflicting_rows, groups_by_columns, require_rows
from fca.tables.table import (
    AT_CHANCE,
    DATASET,
    ENCODER,
    MODEL,
    MODELS,
    NCL,
    NOTE,
    PROTOCOL,
    RUN_ID,
    TOP1,
    UNDEFINED_WITHOUT,
    N,
    P,
    R,
    TableSpec,
    all_at_chance,
)
from fca.types import Column, Table

TARGET = Column("target", str, "", "accuracy: of the best model on each subset (DCN), or of one model")
SCOPE = Column("scope", str, "", "subsets: all, or those of equal ncl")
METHOD = Column("method", str, "", "coefficient")
PREDICTOR = Column("predictor", str, "", "predictor of accuracy")
NAIVE_P = P.with_format(".2g", "p as if subsets were independent")
N_SUBSETS = N.with_format(".0f", "subsets")
COEFFICIENT = R.with_format(".3f", "correlation with accuracy")

CORRELATION = TableSpec(
    "correlation",
    "Does SimSS predict accuracy, over all subsets and among subsets of equal size? (predictor ncl: the baseline)",
    f"{PAPER} section 4.3 and figure 5: scope all, DCN sub and DCN open; the rest is not in the paper",
    (
        *(DATASET, ENCODER, TARGET, SCOPE, METHOD, PREDICTOR),
        *(COEFFICIENT, NAIVE_P, COEFFICIENT.low, COEFFICIENT.high, N_SUBSETS, SUBSET_SEEDS, MODELS, AT_CHANCE, NOTE),
    ),
)
CORRELATION_POINTS = TableSpec(
    "correlation_points",
    "Which accuracy goes with which SimSS?",
    f"{PAPER} figure 5",
    (DATASET, ENCODER, TARGET, PROTOCOL, MODEL, NCL, *DRAW, SIMSS, TOP1),
)
INTERVALS = (
    f"95 %: jackknife over subset seeds, for DCN of {FEWEST_DRAWS} models or more also over models, and Student's t on "
    "Fisher's z"
)


@dataclass(frozen=True)
class Correlation(OfSubsets):
    """`analysis=correlation`; reads `embed` rows, `train` rows and the `predict` rows of full models."""

    tables: ClassVar = (CORRELATION, CORRELATION_POINTS)

    split: EmbeddedSplit = "test"
    per_model: PerModel = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Tables correlation and correlation_points."""
        rows = embed_rows(store, self.query, self.split)
        require_rows(rows.models, "rows of trained or full models", rows.total, "fca run -m task=train subset.ncl=2,5")
        rows = of_one_draw(drop_conflicting_rows(rows, rows.models, "model", self.per_model))
        subsets = subsets_of(rows, self)

        accuracies = accuracy_points(store, rows, subsets)
        similarities = similarity_points(store, rows, subsets)
        scored = similarities.dropna(subset="simss")[["dataset", "encoder", "ncl", *DRAW, "simss"]]
        points = scored.merge(per_subset(accuracies), on=["dataset", "ncl", *DRAW])
        require_rows(points, "subsets with both an accuracy and a similarity", rows.total, EMBED)

        chance = chance_of_means(accuracies)
        lines = []
        points_of_targets = []
        for key, points_of_encoder in groups_by_columns(points, [DATASET, ENCODER]):
            chance_of_dataset = chance[chance[DATASET] == key[DATASET]]
            for target in targets(points_of_encoder):
                at_chance = all_at_chance(chance_of_dataset[_is_behind(target, chance_of_dataset)])
                lines += [{**key, AT_CHANCE: at_chance, **line} for line in correlations(target)]
                points_of_targets.append(target.points)

        run_ids = sorted({*accuracies[RUN_ID], *similarities[RUN_ID]})
        parameters = rows.noted({**asdict(self), "intervals": INTERVALS, "p": "as if subsets were independent"})
        all_points = CORRELATION_POINTS.frame(pd.concat(points_of_targets, ignore_index=True))
        return [
            CORRELATION.table(CORRELATION.frame(lines), parameters, run_ids),
            CORRELATION_POINTS.table(all_points, parameters, run_ids),
        ]


@dataclass(frozen=True)
class Target:
    """An accuracy to be predicted, one point for each subset: of one model, or of the best of several (DCN).

    table: the accuracy of every one of those models on every subset, missing where it was not evaluated.
    """

    points: pd.DataFrame
    table: Float[np.ndarray, "subsets models"]


def targets(points: pd.DataFrame) -> Iterator[Target]:
    """DCN of each protocol, then every model under each protocol; the points are of one data set and encoder."""
    points_by_protocol = {protocol: points[points["protocol"] == protocol] for protocol in PROTOCOL.choices}
    points_by_name = {f"DCN {protocol}": accuracies for protocol, accuracies in points_by_protocol.items()}
    for model in sorted(set(points["model"])):
        for protocol, accuracies in points_by_protocol.items():
            points_by_name[f"{model} {protocol}"] = accuracies[accuracies["model"] == model]

    for name, accuracies in points_by_name.items():
        if accuracies.empty:
            continue
        best_first = accuracies.sort_values("top1", ascending=False, kind="stable")
        best = best_first.groupby(["ncl", *DRAW], dropna=False).first().reset_index()
        yield Target(best.assign(target=name), wide(MODEL, accuracies, ["ncl", *DRAW]).to_numpy())


def _is_behind(target: Target, accuracies: pd.DataFrame) -> pd.Series:
    """Which accuracies a target is made of: those of one model under one protocol, or of all models (DCN)."""
    first = target.points.iloc[0]
    has_protocol = accuracies[PROTOCOL] == first[PROTOCOL]
    if first[TARGET].startswith("DCN "):
        return has_protocol
    return has_protocol & (accuracies[MODEL] == first[MODEL])


def correlations(target: Target) -> Iterator[dict[str, Any]]:
    """SimSS over all points, within every ncl pooled, and at each ncl; ncl alone over all points."""
    ncl = target.points["ncl"].to_numpy()
    simss = target.points["simss"].to_numpy()
    top1 = target.points["top1"].to_numpy()
    best_without = _best_without_each_model(target.table)  # left out x subsets

    # Predictor, its values, scope, points of the scope, groups within which it is correlated
    everywhere = np.ones(len(ncl), dtype=bool)
    predictors: list[tuple[str, np.ndarray, str, np.ndarray, np.ndarray | None]] = [
        ("simss", simss, "all", everywhere, None),
        ("simss", simss, "within ncl", everywhere, ncl),
        *(("simss", simss, f"ncl={n}", ncl == n, None) for n in np.unique(ncl)),
        ("ncl", ncl, "all", everywhere, None),
    ]

    for method, (predictor, x, scope, is_in_scope, groups) in product(METHODS, predictors):
        estimate = correlation(x[is_in_scope], top1[is_in_scope], method, groups)
        each_once = np.ones((len(best_without), int(is_in_scope.sum())), dtype=np.int64)
        without_each_model = resampled_correlation(
            x[is_in_scope], best_without[:, is_in_scope], each_once, method, groups
        )

        cluster, seeds = pd.factorize(target.points["subset_seed"][is_in_scope])
        over_models = [without_each_model] if len(without_each_model) else []
        low, high = correlation_interval(x[is_in_scope], top1[is_in_scope], cluster, method, groups, over_models)
        lacks_interval = np.isnan(low) and not np.isnan(estimate.r)
        yield {
            "target": target.points["target"].iloc[0],
            "models": target.table.shape[1],
            "scope": scope,
            "predictor": predictor,
            "method": method,
            "n": estimate.n,
            "seeds": len(seeds),
            "r": estimate.r,
            "p": estimate.p,
            "r_low": low,
            "r_high": high,
            "note": UNDEFINED_WITHOUT if lacks_interval else None,
        }


def _best_without_each_model(
    table: Float[np.ndarray, "subsets models"],
) -> Float[np.ndarray, "left_out subsets"]:
    """The best accuracy on every subset with each model left out, NaN where no other was evaluated.

    Empty for fewer than FEWEST_DRAWS models: the best is then that of the models at hand.
    """
    n_subsets, n_models = table.shape
    if n_models < FEWEST_DRAWS:
        return np.empty((0, n_subsets))
    accuracies = np.nan_to_num(table, nan=-np.inf)
    best = np.stack([np.delete(accuracies, model, axis=1).max(axis=1) for model in range(n_models)])
    return np.where(np.isinf(best), np.nan, best)
