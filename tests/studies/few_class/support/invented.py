"""Tables as the analyses make them, from invented accuracies of a likely shape (no store, no training)."""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import pandas as pd

from fca.report.page import Result
from fca.stats.intervals import wilson
from fca.store.columns import BASE
from fca.studies.few_class import accuracy as few_class
from fca.studies.few_class import correlation as correlation_analysis
from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.correlation import Correlation
from fca.studies.few_class.similarity import SIMILARITY, Similarity
from fca.studies.few_class.subset_accuracy import ACCURACY
from fca.subset import draw_subset, full_set
from fca.tables.table import TOP1
from fca.types import Table

MODELS = ("test_efficientnet", "test_resnet", "test_vit")
NCL = (2, 3, 5, 10)


def subset_lines(dataset: str, classes: int, ncl: Iterable[int], seeds: Sequence[int]) -> list[dict]:
    drawn = [draw_subset(classes, n, seed) if n < classes else full_set(classes) for n in ncl for seed in seeds]
    return [
        {"dataset": dataset, "ncl": s.ncl, "subset_seed": s.seed, "sampler": s.sampler, "classes": s.classes}
        for s in dict.fromkeys(drawn)
    ]


def points(lines: list[dict], models: Sequence[str], rng: np.random.Generator) -> pd.DataFrame:
    """Full models flat in ncl, masked ones rising as ncl falls, sub-models above them."""
    found = []
    for line in lines:
        hard = 0.03 * rng.normal()
        for k, model in enumerate(models):
            base = 0.91 - 0.03 * k + hard + 0.025 * rng.normal()
            ease = 0.09 * (1 - np.log(line["ncl"]) / np.log(10))
            for protocol, rise in (("sub", 1.0 - 0.3 * k), ("open", 0.0), ("masked", 0.8)):
                n = 36 * line["ncl"]
                correct = round(n * float(np.clip(base + rise * ease, 0, 1)))
                low, high = wilson(correct, n)
                scored = {"top1": correct / n, "top1_low": low, "top1_high": high, "n_test": n, "seed": 0}
                run_id = f"{rng.integers(16**12):012x}"
                found.append({**line, **scored, "model": model, "protocol": protocol, "run_id": run_id})
    frame = pd.DataFrame(found, columns=list(ACCURACY))
    return frame.astype({"subset_seed": "Int64", "seed": "Int64", "n_test": "Int64"})


def scores(lines: list[dict], encoders: Sequence[str], rng: np.random.Generator) -> pd.DataFrame:
    found = []
    for line in lines:
        for encoder in encoders:
            simss = 0.28 - 0.06 * np.log(line["ncl"]) + 0.02 * rng.normal()
            parts = {"simss": simss, "simss_pooled": simss - 0.01, "intra": 0.8, "inter": 0.6, "nearest_inter": 0.7}
            same = {"encoder": encoder, "split": "test", "images": 36 * line["ncl"], "run_id": "0123456789ab"}
            found.append({**line, **same, **parts, "note": None})
    return pd.DataFrame(found, columns=list(SIMILARITY.columns)).astype({"subset_seed": "Int64"})


def few_class_tables(frame: pd.DataFrame) -> list[Table]:
    subset = few_class.per_subset(frame)
    partial = subset[subset["ncl"] < subset["ncl"].max()]
    full = frame[frame["protocol"] == "open"].rename(columns={"top1": "top1_open"})
    frames = {
        "accuracy_points": frame,
        "accuracy": few_class.accuracy(subset),
        "gap": few_class.gap(partial),
        "dcn": few_class.dcn(subset),
        "ranks": few_class.ranks(subset),
        "rank_agreement": few_class.rank_agreement(partial, full),
    }
    runs = tuple(frame["run_id"])
    specs = {spec.name: spec for spec in few_class.FewClass.tables}
    return [specs[name].table(part, {"sampler": "uniform"}, runs) for name, part in frames.items()]


def correlation_tables(accuracies: pd.DataFrame, similarities: pd.DataFrame) -> list[Table]:
    draw = ["dataset", "ncl", "subset_seed", "classes"]
    both = similarities[[*draw, "encoder", "simss"]].merge(few_class.per_subset(accuracies), on=draw)
    lines, drawn = [], []
    for (dataset, encoder), part in both.groupby(["dataset", "encoder"]):
        same = {"dataset": dataset, "encoder": encoder}
        for target in correlation_analysis.targets(part):
            lines += [{**same, **line} for line in correlation_analysis.correlations(target)]
            drawn.append(target.points.assign(**same))
    specs = correlation_analysis.Correlation.tables
    frames = (specs[0].frame(lines), specs[1].frame(pd.concat(drawn, ignore_index=True)))
    return [spec.table(frame, {"split": "test"}, ("0123456789ab",)) for spec, frame in zip(specs, frames, strict=True)]


def tables(
    models: Sequence[str] = MODELS,
    ncl: Sequence[int] = NCL,
    datasets: Sequence[str] = ("digits",),
    encoders: Sequence[str] = ("hog",),
    seeds: Sequence[int] = (0, 1, 2),
) -> list[Table]:
    return list(_tables(*(tuple(values) for values in (models, ncl, datasets, encoders, seeds))))


@cache
def _tables(
    models: Sequence[str], ncl: Sequence[int], datasets: Sequence[str], encoders: Sequence[str], seeds: Sequence[int]
) -> list[Table]:
    rng = np.random.default_rng(0)
    lines = [line for dataset in datasets for line in subset_lines(dataset, 10, ncl, seeds)]
    accuracies, similarities = points(lines, models, rng), scores(lines, encoders, rng)
    scored = SIMILARITY.table(similarities, {"split": "test"}, ("0123456789ab",))
    return [*few_class_tables(accuracies), scored, *correlation_tables(accuracies, similarities)]


ANALYSES = (FewClass, Similarity, Correlation)
COLUMNS = (TOP1, TOP1.low, TOP1.high)


def results(tables: Iterable[Table], missing: str = "") -> list[Result]:
    """The tables by the analysis that makes them; `missing`: why the others have none."""
    return [
        Result(kind(), [table for table in tables if table.name in {spec.name for spec in kind.tables}], missing)
        for kind in ANALYSES
    ]


def run_rows(tables: Sequence[Table]) -> pd.DataFrame:
    """Rows of the store that such tables would come from."""
    frame = next(table.frame for table in tables if table.name == "accuracy_points")
    rows = frame[frame["protocol"] == "sub"].drop(columns="protocol")
    fixed = {"task": "train", "split": "test", "num_classes": 10, "shift": "clean", "device": "cpu", "host": "lab1"}
    made = {"commit": "1a2b3c4", "versions": "fca 0.1.0, torch 2.13.0", "finished": "2026-01-02T03:04:05.678+00:00"}
    command = [f"fca run model={m} subset.ncl={n}" for m, n in zip(rows["model"], rows["ncl"], strict=True)]
    rows = rows.assign(**fixed, **made, command=command, train_s=1.25, recipe_lr=0.1)
    return rows.reset_index(drop=True).reindex(columns=[*BASE, "recipe_lr"])
