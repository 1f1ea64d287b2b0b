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
        """Tables correlation and correlation_points.

        Raises FcaError if no `embed` runs, no models, or no subsets with both an accuracy and a similarity are stored.
        """
        rows = embed_rows(store, self.query, self.split)
        require_rows(rows.models, "rows of trained or full models", rows.total, "fca run -m task=train subset.ncl=2,5")
        # leave out data sets whose models differ in configuration, because their accuracies are not comparable
        # (per_model: columns of the configuration that may differ between models)
        comparable_rows = drop_conflicting_rows(rows, rows.models, "model", self.per_model)
        # leave out data sets whose rows, of models, scores or `embed` runs, differ in number of classes or in sampler:
        # a subset seed would not draw the same classes in all rows
        rows = of_one_draw(comparable_rows)

        # SimSS and accuracy of every subset, joined by its draw: subset seed and classes
        subsets = subsets_of(rows, self)
        accuracies = accuracy_points(store, rows, subsets)
        similarities = similarity_points(store, rows, subsets)
        scored_subsets = similarities.dropna(subset="simss")[["dataset", "encoder", "ncl", *DRAW, "simss"]]
        points = scored_subsets.merge(per_subset(accuracies), on=["dataset", "ncl", *DRAW])
        require_rows(points, "subsets with both an accuracy and a similarity", rows.total, EMBED)

        chance = chance_of_means(accuracies)
        lines = []
        target_points = []
        for key, points_of_encoder in groups_by_columns(points, [DATASET, ENCODER]):
            chance_of_dataset = chance[chance[DATASET] == key[DATASET]]
            for target in targets(points_of_encoder):
                # whether all models of the target are at the level of chance, at every ncl; a DCN target has all models
                # of its protocol
                is_of_target = _is_of_target(target, chance_of_dataset)
                shared_cells = {**key, AT_CHANCE: all_at_chance(chance_of_dataset[is_of_target])}
                for line in correlations(target):
                    lines.append({**shared_cells, **line})
                target_points.append(target.points)

        runs = sorted({*accuracies[RUN_ID], *similarities[RUN_ID]})
        # rows.noted adds the list of data sets that were left out, which the page then names
        parameters = rows.noted({**asdict(self), "intervals": INTERVALS, "p": "as if subsets were independent"})
        points_frame = CORRELATION_POINTS.frame(pd.concat(target_points, ignore_index=True))
        return [
            CORRELATION.table(CORRELATION.frame(lines), parameters, runs),
            CORRELATION_POINTS.table(points_frame, parameters, runs),
        ]


@dataclass(frozen=True)
class Target:
    """An accuracy that SimSS may predict: of one model, or of the best of several models (DCN).

    points: one line for each subset, with `target` (its name), `top1`, `simss` and `ncl`.
    table:  subsets x models: the accuracies of all models that it is the best of, NaN where one was not evaluated.
    """

    points: pd.DataFrame
    table: np.ndarray


def targets(points: pd.DataFrame) -> Iterator[Target]:
    """The accuracies that SimSS may predict: of the best model (DCN) under each protocol, then of every single model.

    A target is a series of accuracies, one for each subset. A combination of model and protocol without any points has
    no target.
    points: accuracy (`top1`) and SimSS of every model, protocol and subset, for one data set and encoder.
    """
    points_by_target = {}
    for protocol in PROTOCOL.choices:
        points_by_target[f"DCN {protocol}"] = points[points["protocol"] == protocol]
    for model in sorted(set(points["model"])):
        for protocol in PROTOCOL.choices:
            is_of_target = (points["protocol"] == protocol) & (points["model"] == model)
            points_by_target[f"{model} {protocol}"] = points[is_of_target]

    for name, points_of_target in points_by_target.items():
        if points_of_target.empty:
            continue

        # the best model on each subset; for a single model this is just that model
        best_first = points_of_target.sort_values("top1", ascending=False, kind="stable")
        best = best_first.groupby(["ncl", *DRAW], dropna=False).first().reset_index()  # DRAW: subset seed and classes
        # subsets x models; the subsets are in the order of `best`
        accuracies = wide(MODEL, points_of_target, ["ncl", *DRAW]).to_numpy()
        yield Target(best.assign(target=name), accuracies)


def _is_of_target(target: Target, accuracies: pd.DataFrame) -> pd.Series:
    """Whether each of these lines (of a protocol and model) belongs to a target; for DCN, lines of all models do."""
    first_point = target.points.iloc[0]
    has_protocol = accuracies[PROTOCOL] == first_point[PROTOCOL]
    if first_point[TARGET].startswith("DCN "):
        return has_protocol
    return has_protocol & (accuracies[MODEL] == first_point[MODEL])


class _Scope(NamedTuple):
    """The subsets over which a predictor is correlated with accuracy.

    name:        as in the table.
    predictor:   its name; x: its value on each subset.
    is_included: bool, whether each subset belongs to the scope.
    groups:      a number for each subset; the correlation is then within groups of equal numbers, pooled. None: over
                 all subsets of the scope together.
    """

    name: str
    predictor: str
    x: np.ndarray
    is_included: np.ndarray
    groups: np.ndarray | None


def correlations(target: Target) -> Iterator[dict[str, Any]]:
    """The lines of table `correlation` for one target, without data set and encoder.

    There is one line for each method (the coefficient) and scope. SimSS is correlated with accuracy over all subsets,
    among subsets of equal ncl (pooled over ncl), and at each single ncl. The baseline is the correlation of ncl alone
    with accuracy, over all subsets. If r is known and its interval is not, a note gives the reason.

    target: an accuracy of each subset, of one model or of the best of several (DCN). Its `points` have that accuracy,
            SimSS and ncl of each subset; its `table` has the accuracies of all its models, subsets x models.
    """
    points = target.points
    ncl = points["ncl"].to_numpy()
    simss = points["simss"].to_numpy()
    top1 = points["top1"].to_numpy()
    # left-out models x subsets: the best accuracy of the other models
    best_without_each_model = _best_without_each_model(target.table)

    all_subsets = np.ones(len(ncl), dtype=bool)
    # name in the table, name and values of the predictor, subsets of the scope, and groups within which r is computed
    scopes = [
        _Scope("all", "simss", simss, is_included=all_subsets, groups=None),
        _Scope("within ncl", "simss", simss, is_included=all_subsets, groups=ncl),
        *(_Scope(f"ncl={n}", "simss", simss, is_included=ncl == n, groups=None) for n in np.unique(ncl)),
        _Scope("all", "ncl", ncl, is_included=all_subsets, groups=None),
    ]

    for method, scope in product(METHODS, scopes):
        x = scope.x[scope.is_included]
        y = top1[scope.is_included]
        estimate = correlation(x, y, method, scope.groups)

        # the interval is a jackknife over subset seeds. DCN depends on the models at hand, so its interval is over
        # models too: r is also computed with each model left out
        further_jackknives = []
        if len(best_without_each_model):  # empty if there are too few models: the interval is then over seeds alone
            best_in_scope = best_without_each_model[:, scope.is_included]
            each_subset_once = np.ones(best_in_scope.shape, dtype=np.int64)  # weights: no subset is resampled here
            r_without_each_model = resampled_correlation(x, best_in_scope, each_subset_once, method, scope.groups)
            further_jackknives.append(r_without_each_model)
        # a code for each seed; -1 for a subset that no seed drew, which is never left out
        seed_of_point, seeds = pd.factorize(points["subset_seed"][scope.is_included])
        low, high = correlation_interval(x, y, seed_of_point, method, scope.groups, further_jackknives)

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
    """The best accuracy on every subset with each model in turn left out; NaN where no other model was evaluated.

    It has no lines for fewer than FEWEST_DRAWS models: these show nothing about other models, and the correlation is
    then only about the models at hand.
    """
    n_models = table.shape[1]
    if n_models < FEWEST_DRAWS:
        return np.empty((0, len(table)))

    without_missing = np.nan_to_num(table, nan=-np.inf)  # a missing accuracy is never the best
    best = np.stack([np.delete(without_missing, model, axis=1).max(axis=1) for model in range(n_models)])
    return np.where(np.isinf(best), np.nan, best)
