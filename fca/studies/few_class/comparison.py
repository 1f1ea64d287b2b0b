"""Which models differ on the same images, how stable their order is, and how many more subset seeds would help."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.comparison import holm, kendall_w, mcnemar, paired_interval, rank_stability, seeds_needed
from fca.stats.intervals import (
    FEWEST_DRAWS,
    LEVEL,
    RESAMPLES,
    SIGNED_FRACTION,
    interval_over,
    mean_with_interval,
)
from fca.store import Store
from fca.studies.few_class.accuracy import PAPER, RANK, with_all_at_chance
from fca.studies.few_class.subset_accuracy import (
    COMMAND,
    DIFFERENCE,
    DRAW,
    SUBSET_SEEDS,
    OfSubsets,
    PerModel,
    points_with_predictions,
    wide,
)
from fca.tables.rows import groups_by_columns, require_rows
from fca.tables.table import (
    AT_CHANCE,
    DATASET,
    IMAGES,
    MODEL,
    NCL,
    NOTE,
    P_HOLM,
    PROTOCOL,
    SUBSETS,
    P,
    TableSpec,
    no_interval,
)
from fca.types import Column, Table, interval_columns

NO_SPREAD = "no interval: the difference is the same in all subset seeds"
UNBOUNDED = "more_seeds has no upper bound: no difference is within what these seeds allow"

BY = [DATASET, PROTOCOL, NCL]
MODEL_A = Column("model_a", str, "", "first model of the pair")
MODEL_B = Column("model_b", str, "", "second model of the pair")
SAME_IMAGES = IMAGES.with_format(".0f", "test images that both models predicted")
ONLY_A_RIGHT = Column("only_a_right", int, ".0f", "images that only the first model gets right")
ONLY_B_RIGHT = Column("only_b_right", int, ".0f", "images that only the second model gets right")
LEAD = DIFFERENCE.with_format("+.2%", "first minus second model")
MCNEMAR_P = P.with_format(".2g", "p of McNemar's test")
SIGNIFICANT = Column("significant", bool, "", "whether the pair differs significantly")
ORDER_KEPT = Column("order_kept", float, ".0%", "share of bootstrap resamples that keep the order of the pair")
MORE_SEEDS = Column("more_seeds", int, ".0f", "subset seeds still needed to separate the pair")
P_BEST = Column("p_best", float, ".0%", "share of bootstrap resamples in which the model has the best mean accuracy")
STANDING = RANK.with_format(".1f", "rank of the mean accuracy, 1 is the best")
KENDALL_W = Column("kendall_w", float, ".2f", "Kendall's W: agreement of the subsets on the order of the models")

PAIRED = TableSpec(
    "paired",
    "Which models differ on the same images, and how many more subset seeds would separate the others?",
    f"{PAPER} compares means only; McNemar 1947, Newcombe 1998 (method 10), Holm 1979, Cohen 1988 (chapter 2)",
    (
        *(*BY, MODEL_A, MODEL_B, SAME_IMAGES, ONLY_A_RIGHT, ONLY_B_RIGHT, *interval_columns(LEAD), MCNEMAR_P, P_HOLM),
        *(SIGNIFICANT, ORDER_KEPT, SUBSETS, SUBSET_SEEDS, *interval_columns(MORE_SEEDS), NOTE),
    ),
)
RANK_STABILITY = TableSpec(
    "rank_stability",
    "How stable is the order of the models over class subsets? (1 = best; kendall_w: agreement of subsets)",
    f"{PAPER} figure 2b, over bootstrap resamples of subset seeds; Kendall and Babington Smith 1939",
    (*BY, MODEL, P_BEST, *interval_columns(STANDING), KENDALL_W, SUBSETS, SUBSET_SEEDS, AT_CHANCE, NOTE),
)
METHOD = {
    "p": "exact McNemar over the images of all subsets, each counted once, for the model right on it more often; it "
    "compares the networks at hand, not others of the same models with new initial weights",
    "p_holm": "Holm's correction over all pairs of models of one data set, protocol and ncl",
    "difference": f"mean over subsets; 95 %: {interval_over('subset seeds')}, one subset: Newcombe 10",
    "significant": "p_holm below 0.05 and 0 outside the interval of the difference; missing where p_holm is below 0.05 "
    "and there is no interval",
    "more_seeds": "beyond those at hand, for a paired t test over seeds with level 0.05 and power 0.8 if the mean "
    "difference seen is the true one; low and high: ends of the effect's 95 % interval",
    "order_kept, p_best, rank": f"over {RESAMPLES} bootstrap resamples of subset seeds, of {FEWEST_DRAWS} or more",
}


@dataclass(frozen=True)
class Comparison(OfSubsets):
    """`analysis=comparison`; reads `train` rows, the `predict` rows of their best weights, and those of full models."""

    tables: ClassVar = (PAIRED, RANK_STABILITY)

    per_model: PerModel = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Tables paired and rank_stability."""
        found = points_with_predictions(store, self, self.per_model)
        subset = per_subset(found.points)
        pairs, parameters = paired(subset), found.rows.noted({**asdict(self), **METHOD})
        require_rows(pairs, "pairs of models on one subset", found.rows.total, COMMAND)
        frames = (pairs, with_all_at_chance(stability(subset), found.points, BY))
        return [spec.table(frame, parameters, found.runs) for spec, frame in zip(self.tables, frames, strict=True)]


def per_subset(points: pd.DataFrame) -> pd.DataFrame:
    """One line for each model and subset: means over initialisation seeds of accuracy and of each image's correctness.

    images, right: of the stored predictions, None unless every initialisation has them.
    """
    by = ["dataset", "model", "protocol", "ncl", *DRAW, "fingerprint"]
    lines = []
    for key, inits in groups_by_columns(points, by):
        line = {**key, "top1": inits["top1"].mean(), "images": None, "right": None}
        if inits["predictions"].notna().all():
            line["images"] = inits["predictions"].iloc[0].images
            line["right"] = np.mean([one.right for one in inits["predictions"]], axis=0)
        lines.append(line)
    return pd.DataFrame(lines, columns=[*by, "top1", "images", "right"]).astype({"subset_seed": "Int64"})


def paired(subset: pd.DataFrame) -> pd.DataFrame:
    """One line a pair of models with a common subset: model_a minus model_b, by name."""
    lines = []
    for key, part in groups_by_columns(subset, BY):
        for a, b in combinations(sorted(part["model"].unique()), 2):
            of_a, of_b = (part[part["model"] == model] for model in (a, b))
            both = of_a.merge(of_b, on=[*DRAW, "fingerprint"], suffixes=("_a", "_b"))
            if len(both):
                lines.append({**key, "model_a": a, "model_b": b, **_pair(both)})
    frame = PAIRED.frame(lines)
    frame[P_HOLM] = frame.dropna(subset=MCNEMAR_P).groupby(BY)[MCNEMAR_P].transform(lambda p: holm(p.to_numpy()))
    has_interval = frame[[LEAD.low, LEAD.high]].notna().all(axis="columns")
    beyond_0 = (frame[LEAD.low] > 0) | (frame[LEAD.high] < 0)
    clear_images = frame[P_HOLM] < 1 - LEVEL
    known = frame[P_HOLM].notna() & (has_interval | ~clear_images)
    frame[SIGNIFICANT] = (clear_images & beyond_0).astype("boolean").where(known)
    kinds: dict[str, Any] = {
        str(column): "Int64" for column in PAIRED.columns if column.value_type is int and column != NCL
    }
    return frame.astype(kinds)


def _pair(both: pd.DataFrame) -> dict[str, Any]:
    """Two models on the subsets that both were evaluated on."""
    top1, cluster = both[["top1_a", "top1_b"]].to_numpy(), pd.factorize(both["subset_seed"])[0]
    each = top1[:, 0] - top1[:, 1]
    drawn = each[cluster >= 0]
    needed = seeds_needed(drawn)
    more = [max(0.0, seeds - len(drawn)) if np.isfinite(seeds) else None for seeds in needed]
    counts, over_images = _images(both)
    mean, *over_subsets = mean_with_interval(each, both["subset_seed"], within=SIGNED_FRACTION)
    kept = no_interval(len(drawn), "subset seeds")
    has_no_spread = len(drawn) > 1 and np.isnan(over_subsets[0])
    notes = [
        counts.pop("note"),
        NO_SPREAD if has_no_spread else None,
        UNBOUNDED if np.isinf(needed.high) else None,
        kept and f"order_kept: {kept}",
    ]
    return {
        **counts,
        **dict(zip(interval_columns(LEAD), [mean, *(over_subsets if len(both) > 1 else over_images)], strict=True)),
        "order_kept": rank_stability(top1, cluster).kept[0, 1],
        "subsets": len(both),
        "seeds": len(drawn),
        **dict(zip(interval_columns(MORE_SEEDS), more, strict=True)),
        "note": "; ".join(note for note in notes if note) or None,
    }


def _images(both: pd.DataFrame) -> tuple[dict[str, Any], tuple[float, float]]:
    """Who is right where the other is not, with p; and the interval of the difference where there is one subset."""
    there = both[both["right_a"].notna() & both["right_b"].notna()]
    if there.empty:
        return {"p": np.nan, "note": "predictions of both models are not stored"}, (np.nan, np.nan)
    a, b = (np.concatenate(there[name].tolist()) for name in ("right_a", "right_b"))
    _, image = np.unique(np.concatenate(there["images_a"].tolist()), return_inverse=True)
    lead = np.bincount(image, weights=a - b)
    only_a, only_b = (int((side * lead > 1e-9).sum()) for side in (1, -1))
    note = f"images of {len(there)} of {len(both)} subsets" if len(there) < len(both) else None
    counts = {"images": len(lead), "only_a_right": only_a, "only_b_right": only_b, "p": mcnemar(only_a, only_b)}
    cells = [float(cell.sum()) for cell in (a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b))]
    return {**counts, "note": note}, paired_interval(*cells)


def stability(subset: pd.DataFrame) -> pd.DataFrame:
    """One line a model: where it stands over resamples of the subsets that every model of its kind was evaluated on."""
    lines: list[dict[str, Any]] = []
    for key, part in groups_by_columns(subset, BY):
        complete = wide(MODEL, part, [*DRAW, "fingerprint"]).dropna()
        if complete.shape[1] > 1 and len(complete):
            table = complete.to_numpy()
            found = rank_stability(table, pd.factorize(complete.index.get_level_values("subset_seed"))[0])
            seeds = complete.index.get_level_values("subset_seed").nunique()
            same = {**key, "kendall_w": kendall_w(table), "subsets": len(table), "seeds": seeds}
            same["note"] = no_interval(seeds, "subset seeds")
            columns = zip(complete, found.p_best, found.rank, found.low, found.high, strict=True)
            names = (MODEL, P_BEST, *interval_columns(STANDING))
            lines += [{**same, **dict(zip(names, values, strict=True))} for values in columns]
    return RANK_STABILITY.frame(lines)
