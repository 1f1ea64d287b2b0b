"""The difficulty of a data set class by class: all pairs, the hardest and easiest subsets, and what one change does."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from fca.analysis.difficulty_tables import SHOWN, Mapped
from fca.analysis.select import one_config, records, require, select
from fca.analysis.similarity_points import embedded
from fca.nouns import FcaError, Table
from fca.store import Store

PAPER = "Few-Class Arena (arXiv:2411.01099) eq. 4"
SAME = ["dataset", "encoder", "split"]
RANDOM = ["random_mean", "random_q05", "random_q50", "random_q95"]
ABOUT = {  # name: columns, question, source
    "difficulty_pairs": (
        ["class_a", "class_b", "simss"],
        "How hard are two classes to tell apart? (SimSS of every pair, the hardest first; higher = easier)",
        f"{PAPER} on every subset of two classes",
    ),
    "difficulty_map": (
        ["class_a", "class_b", "place_a", "place_b", "simss"],
        "Which classes resemble which? (the classes with the hardest pairs, alike ones side by side)",
        f"{PAPER} on every subset of two classes; places by average linkage of SimSS",
    ),
    "difficulty_classes": (
        ["class", "images", "simss_mean", "simss_nearest", "nearest", "place", "note"],
        "How hard is each class? (mean SimSS of its pairs, and the class it is hardest to tell from)",
        f"{PAPER} on every subset of two classes",
    ),
    "difficulty_subsets": (
        ["ncl", "extreme", "simss", *RANDOM, "random", "seed", "classes", "keys"],
        "Which few classes are the hardest and the easiest together? (beside the spread of random subsets)",
        f"{PAPER}; greedy search with swaps, exact for two classes, and for three of up to 20",
    ),
    "difficulty_what_if": (
        ["subset", "change", "class_a", "class_b", "simss_before", "simss_after", "difference"],
        "What would adding a class to a subset, or making two of its classes one, change?",
        f"{PAPER}, recomputed in closed form",
    ),
}


@dataclass(frozen=True)
class DifficultyMap:
    """`analysis=difficulty_map`; reads `embed` rows.

    query:       narrows the rows.    split: of the embedded images.
    sizes:       of the hardest and easiest subsets; those beyond a data set's classes are left out for it.
    draws, seed: random subsets of each size to compare them with.
    classes:     keys or indices of the subset of the what-ifs; None: the hardest five (or all but one).
    """

    query: str | None = None
    split: str = "test"
    sizes: list[int] = field(default_factory=lambda: [2, 3, 5, 10])
    draws: int = 1000
    seed: int = 0
    classes: list[Any] | None = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables difficulty_pairs, difficulty_map, difficulty_classes, difficulty_subsets and difficulty_what_if."""
        rows = select(store, self.query, self.split)
        command = "fca run task=embed model@encoder=hog"
        require(rows.embedded, f"embed rows of split {self.split}", rows.total, command)
        one_config(rows.embedded, "encoder")
        frames: dict[str, list[pd.DataFrame]] = {name: [] for name in ABOUT}
        for row in records(rows.embedded.sort_values(["dataset", "encoder", "run_id"])):
            mapped = Mapped(embedded(store, row), self.split, self.sizes, self.draws, self.seed, self.classes)
            for name, frame in mapped.frames():
                frames[name].append(frame.assign(**{key: str(row[key]) for key in SAME}))
        if not frames["difficulty_pairs"]:
            what = f"classes with two images in {self.split} of {', '.join(sorted(set(rows.embedded['dataset'])))}"
            raise FcaError(what, "0 or 1", "2 or more", "embed another split, or a larger set")
        runs = tuple(sorted(rows.embedded["run_id"]))
        parameters = {**asdict(self), "shown": SHOWN}
        return [
            Table(name, question, source, _joined(frames[name], [*SAME, *columns]), parameters, runs)
            for name, (columns, question, source) in ABOUT.items()
        ]


def _joined(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)
