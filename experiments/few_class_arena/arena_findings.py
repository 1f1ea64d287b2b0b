"""The paper's findings (a) to (d) on few classes: what it reports, what we see, and whether that is significant.

A measure is one value for each class subset, and its mean (or spread) over subset seeds with a bootstrap interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from arena_paper import CLASSES, FAMILY, FEW, IMAGENET, TEXTS, base, full_command, sub_command
from arena_tables import COMMAND, Study, spec, typed

from fca.stats.correlation import correlation
from fca.stats.intervals import mean_with_interval, percentile_interval, point_weights
from fca.studies.few_class.accuracy import per_subset
from fca.studies.few_class.correlation import SEEDS
from fca.studies.table import DATASET, MODELS
from fca.types import Column

DRAW = ["ncl", "subset_seed", "classes"]
Draws = tuple[pd.DataFrame, int]  # a `value` for each subset, and over how many models
VERDICT = Column("told_apart", str, "", "whether the interval excludes 0 (of a ratio: 1), and on whose side")
FINDING = Column("finding", str, "", "finding, by the paper's letters")
VALUE, LOW, HIGH = (Column(name, float, ".2f", f"{name} of the measure") for name in ("value", "low", "high"))
_WORDS = (Column("paper_says", str, "", "what the paper reports"), Column("measure"), Column("paper_sign"))
FIGURE1_FINDINGS, BEYOND_FINDINGS = (
    spec(name, DATASET, FINDING, *_WORDS, VALUE, LOW, HIGH, SEEDS, MODELS, VERDICT, COMMAND)
    for name in ("figure1_findings", "beyond_findings")
)


def findings(studies: Iterable[Study]) -> pd.DataFrame:
    """Every finding on ImageNet (the ResNet family) and on every other study (all its models).

    value: of the measure; points are percentage points. Interval: 95 % bootstrap over subset seeds.
    told_apart: whether the interval excludes 0 (a ratio: 1), and on whose side.
    """
    lines, on_imagenet = [], False
    for study in studies:
        subset = per_subset(study.points)
        if study.dataset == IMAGENET:
            on_imagenet, subset = True, subset[subset["model"].isin(FAMILY)]
        models = study.view.frame.query("task != 'embed'").groupby("model")
        params = models["params"].max().dropna().astype("float64")  # the largest head counts
        lines += _of_study(study.name, measures(subset, params, study.num_classes))
    if not on_imagenet:
        lines = [*_of_study(IMAGENET, {}), *lines]
    return typed(FIGURE1_FINDINGS, lines)


def measures(subset: pd.DataFrame, params: pd.Series, num_classes: int) -> dict[str, dict[str, Any]]:
    """The measure of every finding; empty where it is undefined. On all classes, open and masked are the same."""
    whole, partial = (subset[found] for found in (subset["ncl"] == num_classes, subset["ncl"] < num_classes))
    few, more = (partial[found] for found in (partial["ncl"].isin(FEW), ~partial["ncl"].isin(FEW)))
    return {
        "a, best of models": mean_of(*paired(few, "open", "max")),
        "a, mean of models": mean_of(*paired(few, "open")),
        "a, masked": mean_of(*paired(few, "masked")),
        "a, other models": mean_of(*unpaired(few, "open")),
        "a, other models, masked": mean_of(*unpaired(few, "masked")),
        "b, full to sub": ratio(few, "open", few, "sub"),
        "b, few to many": ratio(few, "open", more, "open"),
        "c.1": mean_of(*against(few, whole, "open")),
        "c.1, masked": mean_of(*against(few, whole, "masked")),
        "c.2": mean_of(*scaling(few, params, "open")),
        "d.1": mean_of(*growth(subset)),
        "d.2": mean_of(*scaling(few, params, "sub")),
    }


def _of_study(study: str, measured: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A line for each finding; (a) between other models only where it is measured."""
    dataset = base(study)
    models = FAMILY if dataset == IMAGENET else ()
    for name, measure in TEXTS["measures"].items():
        reported, sign = TEXTS["findings"][name.partition(",")[0]]
        found = measured.get(name, {})
        if not found and name.startswith("a, other models"):
            continue
        if found:
            found |= {VERDICT: _verdict(found[LOW], found[HIGH], sign)}
        elif dataset in CLASSES:
            commands = [full_command(dataset, models), sub_command(dataset, models)]
            needed = {"c": commands[:1], "d": commands[1:]}.get(name[0], commands)
            found = {COMMAND: " && ".join(needed)}
        about = dict(zip(FIGURE1_FINDINGS.columns, (study, name, reported, measure, sign), strict=False))
        yield {**about, **found}


def _verdict(low: float, high: float, sign: str) -> str:
    middle = int(sign[-1])
    if pd.isna(low):
        return "no: one subset seed has no interval"
    if low <= middle <= high:
        return "no"
    return "yes, as in the paper" if (low > middle) == sign.startswith("above") else "yes, the other way"


def paired(subset: pd.DataFrame, protocol: str, how: str = "mean") -> Draws:
    """Sub-models minus full models on the same subset: their mean or best (max), over the models that have both."""
    pair = ["model", *DRAW]
    sub, full = (subset.loc[subset["protocol"] == p, [*pair, "top1"]] for p in ("sub", protocol))
    both = sub.merge(full, on=pair, suffixes=("", "_full"))
    means = both.groupby(DRAW, as_index=False)[["top1", "top1_full"]].agg(how)
    return means.assign(value=100 * (means["top1"] - means["top1_full"])), both["model"].nunique()


def unpaired(subset: pd.DataFrame, protocol: str) -> Draws:
    """The best sub-model minus the best full model where no model is both; nothing where one is (see paired)."""
    sub, full = (subset[subset["protocol"] == p] for p in ("sub", protocol))
    if set(sub["model"]) & set(full["model"]):
        return pd.DataFrame(columns=[*DRAW, "value"]), 0
    best = [part.groupby(DRAW)["top1"].max() for part in (sub, full)]
    values = (100 * (best[0] - best[1])).dropna().rename("value").reset_index()
    return values, sub["model"].nunique() + full["model"].nunique()


def against(few: pd.DataFrame, reference: pd.DataFrame, protocol: str) -> Draws:
    """Accuracy at few classes minus that of the same model on the reference (the same subset seed, if it has one)."""
    few, reference = (part[part["protocol"] == protocol] for part in (few, reference))
    by = ["model"] if reference["subset_seed"].isna().all() else ["model", "subset_seed"]
    both = few.merge(reference.groupby(by)["top1"].mean().rename("reference").reset_index(), on=by)
    both = both.assign(value=100 * (both["top1"] - both["reference"]))
    return both.groupby(DRAW, dropna=False, as_index=False).agg(value=("value", "mean")), both["model"].nunique()


def growth(subset: pd.DataFrame) -> Draws:
    """Accuracy of sub-models at few classes minus at the most classes that any was trained on."""
    sub = subset[subset["protocol"] == "sub"]
    most = sub["ncl"].max()
    return against(sub[sub["ncl"].isin(FEW) & (sub["ncl"] < most)], sub[sub["ncl"] == most], "sub")


def scaling(few: pd.DataFrame, params: pd.Series, protocol: str) -> Draws:
    """Spearman's rho of parameters and accuracy over the models of every subset (three or more)."""
    sized = few[(few["protocol"] == protocol) & few["model"].isin(params.index)]
    lines = []
    for key, part in sized.groupby(DRAW, dropna=False):
        if part["model"].nunique() >= 3:
            rho = correlation(part["model"].map(params).to_numpy(), part["top1"].to_numpy(), "spearman").r
            lines.append((*key, rho))
    return pd.DataFrame(lines, columns=[*DRAW, "value"]).dropna(subset="value"), sized["model"].nunique()


def mean_of(draws: pd.DataFrame, models: int) -> dict[str, Any]:
    """The mean over subsets, and its interval over subset seeds; nothing where there is no subset."""
    if draws.empty:
        return {}
    seeds = draws["subset_seed"]
    return _measured(*mean_with_interval(draws["value"], seeds), seeds.nunique(), models)


def _measured(*values: float) -> dict[str, Any]:
    return dict(zip((VALUE, LOW, HIGH, SEEDS, MODELS), values, strict=True))


def ratio(top: pd.DataFrame, top_protocol: str, bottom: pd.DataFrame, bottom_protocol: str) -> dict[str, Any]:
    """Standard deviation between subsets of one ncl, pooled over ncl; models averaged first, the same ones on top.

    A subset that one of these models did not predict is left out: else the spread would also be between models.
    """
    parts = [top[top["protocol"] == top_protocol], bottom[bottom["protocol"] == bottom_protocol]]
    models = set(parts[0]["model"]) & set(parts[1]["model"])
    means = []
    for part in parts:
        by = part[part["model"].isin(models)].groupby(DRAW, as_index=False)
        mean = by.agg(top1=("top1", "mean"), models=("model", "size"))
        means.append(mean[mean["models"] == len(models)])
    if any(part["subset_seed"].nunique() < 2 for part in means):
        return {}
    seeds = sorted({*means[0]["subset_seed"], *means[1]["subset_seed"]})
    weights = np.vstack([np.ones(len(seeds), dtype=np.int64), point_weights(np.arange(len(seeds)))])
    with np.errstate(divide="ignore", invalid="ignore"):
        value, *drawn = _spread(means[0], seeds, weights) / _spread(means[1], seeds, weights)
    if not np.isfinite(value):
        return {}
    interval = percentile_interval(np.where(np.isfinite(drawn), drawn, np.nan))
    return _measured(value, *interval, len(seeds), len(models))


def _spread(part: pd.DataFrame, seeds: list[int], weights: np.ndarray) -> np.ndarray:
    """In every resample of subset seeds; the first is the data themselves."""
    squares = freedom = 0.0
    for _, same in part.groupby("ncl"):
        drawn = weights[:, [seeds.index(seed) for seed in same["subset_seed"]]]
        n, top1 = drawn.sum(axis=1), same["top1"].to_numpy()
        mean = drawn @ top1 / np.maximum(n, 1)
        squares = squares + (drawn * (top1 - mean[:, None]) ** 2).sum(axis=1)
        freedom = freedom + np.maximum(n - 1, 0)
    return np.sqrt(squares / freedom)
