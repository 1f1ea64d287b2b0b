"""The class subsets that an analysis scores: those of the stored sub-models, or a grid of draws."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from fca.analysis.select import Rows, one_config
from fca.nouns import ClassSubset, FcaError
from fca.subset import draw_subset, full_set, number_of_classes

COLUMNS = ["dataset", "ncl", "subset_seed", "sampler", "classes"]


@dataclass(frozen=True)
class Grid:
    """Every (ncl, or share of the classes below 1, and seed) drawn by one sampler; both None: what the store has."""

    ncl: list[int | float] | None
    seeds: list[int] | None
    sampler: str

    def __post_init__(self) -> None:
        if (self.ncl is None) != (self.seeds is None):
            given = f"analysis.ncl={self.ncl} analysis.seeds={self.seeds}"
            raise FcaError("grid of subsets", given, "both, or neither", "name the other one too")


def subsets_of(rows: Rows, grid: Grid) -> pd.DataFrame:
    """The subsets of every data set among the rows, one line a draw.

    Without a grid: the classes of the stored sub-models, each under every (ncl, seed, sampler) that draws it (two seeds
    may draw the same classes: trained once, drawn twice). Where there are none: all classes.
    """
    everything = pd.concat([rows.models, rows.embedded])
    one_config(everything[["dataset", "task", "model", "num_classes"]], "model")  # label indices must mean the same
    lines = []
    for dataset, part in everything.groupby("dataset"):
        num_classes = int(part["num_classes"].max())
        trained = rows.trained[rows.trained["dataset"] == dataset]
        subsets = _of_grid(num_classes, grid) if grid.ncl else _found(num_classes, trained) or [full_set(num_classes)]
        lines += [(dataset, s.ncl, s.seed, s.sampler, s.classes) for s in subsets]
    frame = pd.DataFrame(lines, columns=COLUMNS)
    return frame.astype({"dataset": "str", "ncl": "int64", "subset_seed": "Int64", "sampler": "str"})


def _of_grid(num_classes: int, grid: Grid) -> list[ClassSubset]:
    sizes = [number_of_classes(asked, num_classes) for asked in grid.ncl or ()]
    drawn = [draw_subset(num_classes, n, seed, grid.sampler) for n in sizes for seed in grid.seeds or ()]
    return list(dict.fromkeys(drawn))  # all classes are one subset, whatever the seed


def _found(num_classes: int, trained: pd.DataFrame) -> list[ClassSubset]:
    known = set(trained["classes"])
    values = {name: sorted(trained[name].dropna().unique()) for name in ("sampler", "ncl", "subset_seed")}
    drawn = [
        draw_subset(num_classes, int(ncl), int(seed), sampler)
        for sampler in values["sampler"]
        for ncl in values["ncl"]
        if ncl < num_classes
        for seed in values["subset_seed"]
    ]
    drawn = [subset for subset in drawn if subset.classes in known]
    named = known - {subset.classes for subset in drawn}
    return [*drawn, *(ClassSubset(classes) for classes in sorted(named))]
