"""Which models differ on the same images, how firm their order is over class subsets, and how many seeds would tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fca.stats.intervals import LEVEL, RESAMPLES, bootstrap_mean
from fca.stats.paired import holm, kendall_w, mcnemar, paired_interval, rank_stability, seeds_needed
from fca.store import Store
from fca.studies.few_class.accuracy import DRAW, PAPER
from fca.studies.few_class.subset_accuracy import COMMAND, Grid, answered_points
from fca.studies.rows import require
from fca.types import Table

BY = ["dataset", "protocol", "ncl"]
COUNTS = [
    "images",
    "only_a_right",
    "only_b_right",
    "subsets",
    "seeds",
    "more_seeds",
    "more_seeds_low",
    "more_seeds_high",
]
PAIRED = [*BY, "model_a", "model_b", *COUNTS[:3], "difference", "difference_low", "difference_high", "p", "p_holm"]
PAIRED += ["told_apart", "order_kept", *COUNTS[3:], "note"]
RANKS = [*BY, "model", "p_best", "rank", "rank_low", "rank_high", "kendall_w", "subsets"]
UNBOUNDED = "more_seeds has no upper bound: no difference is within what these seeds allow"


@dataclass(frozen=True)
class Comparison:
    """`analysis=comparison`; reads `train` rows, the `predict` rows of their best weights, and those of full models.

    query:       narrows the rows.
    ncl, seeds:  a grid of draws to score instead of the subsets of the stored sub-models; sampler: how it is drawn.
    per_model:   config columns that differ between models by intention, e.g. [recipe_lr].
    """

    query: str | None = None
    ncl: list[int | float] | None = None
    seeds: list[int] | None = None
    sampler: str = "uniform"
    per_model: list[str] = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Tables paired and rank_stability."""
        answered = answered_points(store, self.query, Grid(self.ncl, self.seeds, self.sampler), self.per_model)
        subset = per_subset(answered.points)
        frames = {"paired": paired(subset), "rank_stability": stability(subset)}
        require(frames["paired"], "pairs of models on one subset", answered.total, COMMAND)
        parameters = {**asdict(self), **METHOD}
        return [Table(name, *ABOUT[name], frame, parameters, answered.runs) for name, frame in frames.items()]


METHOD = {
    "p": "exact McNemar over the images of all subsets, each counted once, for the model right on it more often; it is "
    "of the networks at hand and knows nothing of others of the same models, newly initialised",
    "p_holm": "Holm's correction over all pairs of models of one data set, protocol and ncl",
    "difference": f"mean over subsets; 95 %: {RESAMPLES} bootstrap resamples of subset seeds, one subset: Newcombe 10",
    "told_apart": "p_holm below 0.05 and 0 outside the interval of the difference",
    "more_seeds": "beyond those at hand, for a paired t test over seeds with level 0.05 and power 0.8 if the mean "
    "difference seen is the true one; low and high: ends of the effect's 95 % interval",
    "order_kept, p_best, rank": f"over {RESAMPLES} bootstrap resamples of subset seeds",
}
ABOUT = {
    "paired": (
        "Which models differ on the same images, and how many more subset seeds would tell the others apart?",
        f"{PAPER} compares means only; McNemar 1947, Newcombe 1998 (method 10), Holm 1979, Cohen 1988 (chapter 2)",
    ),
    "rank_stability": (
        "How firm is the order of the models over class subsets? (1 = best; kendall_w: agreement of subsets)",
        f"{PAPER} figure 2b, with the bootstrap over subset seeds; Kendall and Babington Smith 1939",
    ),
}


def per_subset(points: pd.DataFrame) -> pd.DataFrame:
    """One line a model and subset: the mean over initialisation seeds of the accuracy and of every image's answer.

    images, right: of the stored answers, None unless every initialisation has them.
    """
    by = ["dataset", "model", "protocol", "ncl", *DRAW, "fingerprint"]
    lines = []
    for key, inits in points.groupby(by, dropna=False):
        line = {**dict(zip(by, key, strict=True)), "top1": inits["top1"].mean(), "images": None, "right": None}
        if inits["answers"].notna().all():
            line["images"] = inits["answers"].iloc[0].images
            line["right"] = np.mean([answers.right for answers in inits["answers"]], axis=0)
        lines.append(line)
    return pd.DataFrame(lines, columns=[*by, "top1", "images", "right"]).astype({"subset_seed": "Int64"})


def paired(subset: pd.DataFrame) -> pd.DataFrame:
    """One line a pair of models with a common subset: model_a minus model_b, by name."""
    lines: list[dict[str, Any]] = []
    for key, part in subset.groupby(BY):
        family = []
        for a, b in combinations(sorted(part["model"].unique()), 2):
            of_a, of_b = (part[part["model"] == model] for model in (a, b))
            both = of_a.merge(of_b, on=[*DRAW, "fingerprint"], suffixes=("_a", "_b"))
            if len(both):
                family.append({**dict(zip(BY, key, strict=True)), "model_a": a, "model_b": b, **_pair(both)})
        lines += _corrected(family)
    frame = pd.DataFrame(lines, columns=PAIRED)
    return frame.astype({"told_apart": "boolean", **dict.fromkeys(COUNTS, "Int64")})


def _pair(both: pd.DataFrame) -> dict[str, Any]:
    """Two models on the subsets that both answered."""
    cluster = pd.factorize(both["subset_seed"])[0]
    top1 = both[["top1_a", "top1_b"]].to_numpy()
    each = top1[:, 0] - top1[:, 1]
    counts, low, high = _images(both)
    if len(both) > 1:
        low, high = bootstrap_mean(each, cluster)
    drawn = each[cluster >= 0]
    needed = seeds_needed(drawn)
    more = [max(0.0, seeds - len(drawn)) if np.isfinite(seeds) else None for seeds in needed]
    notes = [counts.pop("note"), UNBOUNDED if np.isinf(needed.high) else None]
    return {
        **counts,
        "difference": each.mean(),
        "difference_low": low,
        "difference_high": high,
        "order_kept": rank_stability(top1, cluster).kept[0, 1],
        "subsets": len(both),
        "seeds": len(drawn),
        **dict(zip(COUNTS[5:], more, strict=True)),
        "note": "; ".join(note for note in notes if note) or None,
    }


def _images(both: pd.DataFrame) -> tuple[dict[str, Any], float, float]:
    """Who is right where the other is not, with p; and the interval of the difference where there is one subset."""
    there = both[both["right_a"].notna() & both["right_b"].notna()]
    if there.empty:
        return {"p": np.nan, "note": "no answers image by image of both models"}, np.nan, np.nan
    a, b = (np.concatenate(there[name].tolist()) for name in ("right_a", "right_b"))
    _, image = np.unique(np.concatenate(there["images_a"].tolist()), return_inverse=True)
    lead = np.bincount(image, weights=a - b)
    only_a, only_b = (int((side * lead > 1e-9).sum()) for side in (1, -1))
    note = f"images of {len(there)} of {len(both)} subsets" if len(there) < len(both) else None
    counts = {"images": len(lead), "only_a_right": only_a, "only_b_right": only_b, "p": mcnemar(only_a, only_b)}
    cells = [float(cell.sum()) for cell in (a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b))]
    return {**counts, "note": note}, *paired_interval(*cells)


def _corrected(family: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """With p_holm over the lines that have a p, and what may then be said."""
    p = np.array([line["p"] for line in family], dtype=np.float64)
    corrected = np.full(len(p), np.nan)
    corrected[~np.isnan(p)] = holm(p[~np.isnan(p)])
    for line, value in zip(family, corrected.tolist(), strict=True):
        low, high = line["difference_low"], line["difference_high"]
        known = np.isfinite([value, low, high]).all()
        apart = bool(value < 1 - LEVEL and (low > 0 or high < 0)) if known else None
        yield {**line, "p_holm": value, "told_apart": apart}


def stability(subset: pd.DataFrame) -> pd.DataFrame:
    """One line a model: where it stands over resamples of the subsets that every model of its kind answered."""
    lines: list[dict[str, Any]] = []
    for key, part in subset.groupby(BY):
        grouped = part.groupby([*DRAW, "fingerprint"], dropna=False)
        models, model = np.unique(part["model"], return_inverse=True)
        table = np.full((grouped.ngroups, len(models)), np.nan)
        table[grouped.ngroup(), model] = part["top1"]
        seeds = np.empty(grouped.ngroups, dtype=object)
        seeds[grouped.ngroup()] = part["subset_seed"]
        complete = ~np.isnan(table).any(axis=1)
        if len(models) > 1 and complete.any():
            table = table[complete]
            found = rank_stability(table, pd.factorize(pd.array(seeds[complete], dtype="Int64"))[0])
            same = {**dict(zip(BY, key, strict=True)), "kendall_w": kendall_w(table), "subsets": len(table)}
            columns = zip(models, found.p_best, found.rank, found.low, found.high, strict=True)
            lines += [{**same, **dict(zip(RANKS[3:8], values, strict=True))} for values in columns]
    return pd.DataFrame(lines, columns=RANKS)
