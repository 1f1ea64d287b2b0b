"""Does image similarity predict how accurate models will be, beyond what the number of classes predicts?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, ClassVar, NamedTuple

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

        # SimSS and accuracy of every subset
        subsets = subsets_of(rows, self)
        accuracies = accuracy_points(store, rows, subsets)
        similarities = similarity_points(store, rows, subsets)
        scored_subsets = similarities.dropna(subset="simss")[["dataset", "encoder", "ncl", *DRAW, "simss"]]
        points = scored_subsets.merge(per_subset(accuracies), on=["dataset", "ncl", *DRAW])
        require_rows(points, "subsets with both an accuracy and a similarity", rows.total, EMBED)

        chance = chance_of_means(accuracies)
        lines = []
        target_points = []
        for key, of_encoder in groups_by_columns(points, [DATASET, ENCODER]):
            chance_of_dataset = chance[chance[DATASET] == key[DATASET]]
            for target in targets(of_encoder):
                is_of_target = _is_of_target(target, chance_of_dataset)
                shared_cells = {**key, AT_CHANCE: all_at_chance(chance_of_dataset[is_of_target])}
                for line in correlations(target):
                    lines.append({**shared_cells, **line})
                target_points.append(target.points)

        runs = sorted({*accuracies[RUN_ID], *similarities[RUN_ID]})
        parameters = rows.noted({**asdict(self), "intervals": INTERVALS, "p": "as if subsets were independent"})
        points_frame = CORRELATION_POINTS.frame(pd.concat(target_points, ignore_index=True))
        return [
            CORRELATION.table(CORRELATION.frame(lines), parameters, runs),
            CORRELATION_POINTS.table(points_frame, parameters, runs),
        ]


@dataclass(frozen=True)
class Target:
    """An accuracy to predict, one point for each subset: of one model, or of the best of several (DCN).

    table: the accuracy of each of those models on each subset, missing where it was not evaluated.
    """

    points: pd.DataFrame
    table: np.ndarray


def targets(points: pd.DataFrame) -> Iterator[Target]:
    """DCN of each protocol, then every model under each protocol.

    points: accuracies with SimSS, of one data set and encoder.
    """
    points_by_target = {}
    for protocol in PROTOCOL.choices:
        points_by_target[f"DCN {protocol}"] = points[points["protocol"] == protocol]
    for model in sorted(set(points["model"])):
        for protocol in PROTOCOL.choices:
            is_of_target = (points["protocol"] == protocol) & (points["model"] == model)
            points_by_target[f"{model} {protocol}"] = points[is_of_target]

    for name, of_target in points_by_target.items():
        if of_target.empty:
            continue

        best_first = of_target.sort_values("top1", ascending=False, kind="stable")
        best = best_first.groupby(["ncl", *DRAW], dropna=False).first().reset_index()
        accuracies = wide(MODEL, of_target, ["ncl", *DRAW]).to_numpy()  # subsets x models
        yield Target(best.assign(target=name), accuracies)


def _is_of_target(target: Target, accuracies: pd.DataFrame) -> pd.Series:
    """Which accuracies a target consists of: one model's under one protocol, or those of all models (DCN)."""
    first_point = target.points.iloc[0]
    has_protocol = accuracies[PROTOCOL] == first_point[PROTOCOL]
    if first_point[TARGET].startswith("DCN "):
        return has_protocol
    return has_protocol & (accuracies[MODEL] == first_point[MODEL])


class _Scope(NamedTuple):
    """The subsets over which a predictor is correlated with accuracy."""

    name: str
    predictor: str
    x: np.ndarray
    is_included: np.ndarray  # bool, of each subset
    groups: np.ndarray | None  # correlate within these, pooled


def correlations(target: Target) -> Iterator[dict[str, Any]]:
    """SimSS over all points, within every ncl pooled, and at each ncl; ncl alone over all points."""
    points = target.points
    ncl = points["ncl"].to_numpy()
    simss = points["simss"].to_numpy()
    top1 = points["top1"].to_numpy()
    best_without_each_model = _best_without_each_model(target.table)  # left-out models x subsets

    all_subsets = np.ones(len(ncl), dtype=bool)
    scopes = [
        _Scope("all", "simss", simss, all_subsets, None),
        _Scope("within ncl", "simss", simss, all_subsets, ncl),
        *(_Scope(f"ncl={n}", "simss", simss, ncl == n, None) for n in np.unique(ncl)),
        _Scope("all", "ncl", ncl, all_subsets, None),
    ]

    for method, scope in product(METHODS, scopes):
        x = scope.x[scope.is_included]
        y = top1[scope.is_included]
        estimate = correlation(x, y, method, scope.groups)

        # DCN also varies with the models at hand: leave out each
        over_models = []
        if len(best_without_each_model):
            best_in_scope = best_without_each_model[:, scope.is_included]
            each_once = np.ones(best_in_scope.shape, dtype=np.int64)
            over_models.append(resampled_correlation(x, best_in_scope, each_once, method, scope.groups))
        seed_of_point, seeds = pd.factorize(points["subset_seed"][scope.is_included])
        low, high = correlation_interval(x, y, seed_of_point, method, scope.groups, over_models)

        lacks_interval = np.isnan(low) and not np.isnan(estimate.r)
        yield {
            "target": points["target"].iloc[0],
            "models": target.table.shape[1],
            "scope": scope.name,
            "predictor": scope.predictor,
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

    No rows for fewer than FEWEST_DRAWS models: then the result is about the models at hand only.
    """
    n_models = table.shape[1]
    if n_models < FEWEST_DRAWS:
        return np.empty((0, len(table)))

    without_missing = np.nan_to_num(table, nan=-np.inf)
    best = np.stack([np.delete(without_missing, model, axis=1).max(axis=1) for model in range(n_models)])
    return np.where(np.isinf(best), np.nan, best)
