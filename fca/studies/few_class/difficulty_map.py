"""The difficulty of a data set class by class: all pairs, the hardest and easiest subsets, and what one change does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from fca.stats.similarity import subset_scores
from fca.store import Store
from fca.studies.few_class.similarity import SIMSS, Embedded, embedded
from fca.studies.few_class.stats.difficulty import (
    extreme_subset,
    pair_simss,
    random_simss,
    what_if_added,
    what_if_merged,
)
from fca.studies.few_class.subset_accuracy import DIFFERENCE, EmbeddedSplit, embed_rows
from fca.subset import named_subset
from fca.tables.keys import Query
from fca.tables.rows import records
from fca.tables.table import CLASSES, DATASET, ENCODER, IMAGES, NCL, NOTE, SEED, SPLIT, TableSpec
from fca.types import Column, FcaError, Table
from fca.validation import Allowed, Seed

PAPER = "Few-Class Arena (arXiv:2411.01099) eq. 4"
SAME = [DATASET, ENCODER, SPLIT]
CLASS_A = Column("class_a", str, "", "first class")
CLASS_B = Column("class_b", str, "", "second class")
PLACE_A = Column("place_a", int, ".0f", "place of the first class on the map")
PLACE_B = Column("place_b", int, ".0f", "place of the second class on the map")
CLASS = Column("class", str, "", "class")
SIMSS_MEAN = Column("simss_mean", float, ".4f", "mean SimSS of its pairs")
SIMSS_NEAREST = Column("simss_nearest", float, ".4f", "SimSS with the nearest class (lower: harder to separate)")
NEAREST = Column("nearest", str, "", "class that it is hardest to separate from")
PLACE = Column("place", int, ".0f", "place on the map")
EXTREME = Column("extreme", str, "", "", {"hardest": "hardest", "easiest": "easiest"})
RANDOM_MEAN = Column("random_mean", float, ".4f", "mean SimSS of random subsets")
QUANTILES = [
    Column(f"random_q{q}", float, ".4f", f"{q} % quantile of SimSS of random subsets") for q in ("05", "50", "95")
]
RANDOM = Column("random", int, ".0f", "random subsets")
KEYS = Column("keys", tuple, "", "classes of the subset")
SUBSET_KEYS = Column("subset", tuple, "", "classes of the subset that is changed")
CHANGE = Column("change", str, "", "", {"add": "add", "merge": "merge"})
SIMSS_BEFORE = Column("simss_before", float, ".4f", "SimSS before the change")
SIMSS_AFTER = Column("simss_after", float, ".4f", "SimSS after the change")
SIMSS_CHANGE = DIFFERENCE.with_format("+.4f", "change of SimSS (below 0: harder)")

DIFFICULTY_PAIRS = TableSpec(
    "difficulty_pairs",
    "How hard are two classes to separate? (SimSS of every pair, the hardest first; higher = easier)",
    f"{PAPER} on every subset of two classes",
    (*SAME, CLASS_A, CLASS_B, SIMSS),
)
DIFFICULTY_MAP = TableSpec(
    "difficulty_map",
    "Which classes resemble which? (the classes with the hardest pairs, alike ones side by side)",
    f"{PAPER} on every subset of two classes; places by average linkage of SimSS",
    (*SAME, CLASS_A, CLASS_B, PLACE_A, PLACE_B, SIMSS),
)
DIFFICULTY_CLASSES = TableSpec(
    "difficulty_classes",
    "How hard is each class? (mean SimSS of its pairs, and the class it is hardest to separate from)",
    f"{PAPER} on every subset of two classes",
    (*SAME, CLASS, IMAGES, SIMSS_MEAN, SIMSS_NEAREST, NEAREST, PLACE, NOTE),
)
DIFFICULTY_SUBSETS = TableSpec(
    "difficulty_subsets",
    "Which few classes are the hardest and the easiest together? (beside the spread of random subsets)",
    f"{PAPER}; greedy search with swaps, exact for two classes, and for three of up to 20",
    (*SAME, NCL, EXTREME, SIMSS, RANDOM_MEAN, *QUANTILES, RANDOM, SEED, CLASSES, KEYS),
)
DIFFICULTY_WHAT_IF = TableSpec(
    "difficulty_what_if",
    "What would adding a class to a subset, or making two of its classes one, change?",
    f"{PAPER}, recomputed in closed form",
    (*SAME, SUBSET_KEYS, CHANGE, CLASS_A, CLASS_B, SIMSS_BEFORE, SIMSS_AFTER, SIMSS_CHANGE),
)
MAX_CLASSES_ON_MAP = 60  # those with the hardest pairs
BASE_SIZE = 5  # classes of the subset that is added to where none is configured


@dataclass(frozen=True)
class Mapped:
    """One data set and encoder. Rows and columns of `pairs` are the usable classes, `usable` their label indices."""

    embedding: Embedded
    options: DifficultyMap

    @cached_property
    def usable(self) -> np.ndarray:
        return np.unique(self.embedding.labels)

    @cached_property
    def pairs(self) -> np.ndarray:
        return pair_simss(self.embedding.similarity, self.embedding.labels)

    def frames(self) -> dict[TableSpec, pd.DataFrame]:
        """The lines of each table that has some: none where fewer than two classes have two images."""
        if not len(self.usable):
            return {}
        frames = (
            self._pairs(),
            self._map(),
            self._classes(),
            pd.DataFrame(self._subsets()),
            pd.DataFrame(self._what_if()),
        )
        return {spec: frame for spec, frame in zip(self.options.tables, frames, strict=True) if len(frame)}

    def _keys_of(self, classes: np.ndarray) -> np.ndarray:
        """Keys of usable classes by their position among them."""
        return np.array(self.embedding.keys, dtype=object)[self.usable[classes]]

    def _lines(self, a: np.ndarray, b: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame({"class_a": self._keys_of(a), "class_b": self._keys_of(b), "simss": self.pairs[a, b]})

    def _pairs(self) -> pd.DataFrame:
        lines = self._lines(*np.triu_indices(len(self.usable), 1))
        return lines.sort_values("simss", kind="stable", ignore_index=True)

    def _classes(self) -> pd.DataFrame:
        """One line for each class of the data set; `note` gives the reason where one has no score."""
        scores = {
            "simss_mean": np.nanmean(self.pairs, axis=1),
            "simss_nearest": np.nanmin(self.pairs, axis=1),
            "nearest": self._keys_of(np.nanargmin(self.pairs, axis=1)),
            "note": None,
        }
        place = pd.Series(np.arange(len(self.order)), index=self.usable[self.order])

        frame = pd.DataFrame({"class": self.embedding.keys, "images": self.embedding.counts})
        frame = frame.join(pd.DataFrame(scores, index=self.usable)).assign(place=place.astype("Int64"))
        frame.loc[frame["simss_mean"].isna(), "note"] = f"fewer than two images in {self.options.split}"
        return frame

    @cached_property
    def order(self) -> np.ndarray:
        """The classes with the hardest pairs, similar ones side by side: the leaves of a clustering."""
        hardest_first = np.argsort(np.nanmin(self.pairs, axis=1), kind="stable")
        hardest = np.sort(hardest_first[:MAX_CLASSES_ON_MAP])
        distances = self.pairs[np.ix_(hardest, hardest)] - np.nanmin(self.pairs)
        np.fill_diagonal(distances, 0.0)
        tree = linkage(squareform(distances, checks=False), "average", optimal_ordering=True)
        return hardest[leaves_list(tree)]

    def _map(self) -> pd.DataFrame:
        a, b = np.triu_indices(len(self.order), 1)
        return self._lines(self.order[a], self.order[b]).assign(place_a=a, place_b=b)

    def _subsets(self) -> Iterator[dict[str, Any]]:
        """The hardest and the easiest subset of each size, beside random ones."""
        similarity = self.embedding.similarity
        labels = self.embedding.labels
        sizes = [size for size in self.options.sizes if size <= len(self.usable)]
        for size in sizes:
            random = random_simss(similarity, labels, size, self.options.draws, self.options.seed)
            quantiles = np.quantile(random, (0.05, 0.5, 0.95))
            for extreme in EXTREME.choices:
                subset = extreme_subset(similarity, labels, size, extreme == "hardest", pairs=self.pairs)
                yield {
                    "ncl": size,
                    "extreme": extreme,
                    **subset._asdict(),
                    "keys": tuple(self.embedding.keys[label] for label in subset.classes),
                    "random_mean": random.mean(),
                    "random": len(random),
                    "seed": self.options.seed,
                    **dict(zip(QUANTILES, quantiles, strict=True)),
                }

    def _what_if(self) -> Iterator[dict[str, Any]]:
        """Every class added, the most harmful first; every two classes merged, the most helpful first."""
        similarity = self.embedding.similarity
        labels = self.embedding.labels
        keys = self.embedding.keys
        base = self._base()
        before = subset_scores(similarity, labels, base).simss
        same_values = {"subset": tuple(keys[label] for label in base), "simss_before": before}

        change_by_added = what_if_added(similarity, labels, base)  # NaN for the classes of the subset, sorted last
        n_others = len(change_by_added) - len(base)
        for i in np.argsort(change_by_added, kind="stable")[:n_others]:
            yield {
                **same_values,
                "change": "add",
                "class_a": keys[self.usable[i]],
                "class_b": None,
                "simss_after": before + change_by_added[i],
                "difference": change_by_added[i],
            }

        if len(base) < 3:  # merged, two classes leave nothing to compare with
            return
        pairs = combinations(base.tolist(), 2)
        merged = {pair: what_if_merged(similarity, labels, base, *pair) for pair in pairs}
        for a, b in sorted(merged, key=lambda pair: -merged[pair]):
            yield {
                **same_values,
                "change": "merge",
                "class_a": keys[a],
                "class_b": keys[b],
                "simss_after": merged[a, b],
                "difference": merged[a, b] - before,
            }

    def _base(self) -> np.ndarray:
        """The subset that classes are added to and merged in."""
        if self.options.classes is not None:
            return np.array(named_subset(self.embedding.keys, self.options.classes, "classes").classes)
        size = max(2, min(BASE_SIZE, len(self.usable) - 1))
        hardest = extreme_subset(self.embedding.similarity, self.embedding.labels, size, pairs=self.pairs)
        return np.array(hardest.classes)


@dataclass(frozen=True)
class DifficultyMap:
    """`analysis=difficulty_map`; reads `embed` rows."""

    tables: ClassVar = (DIFFICULTY_PAIRS, DIFFICULTY_MAP, DIFFICULTY_CLASSES, DIFFICULTY_SUBSETS, DIFFICULTY_WHAT_IF)

    query: Query = None
    split: EmbeddedSplit = "test"
    sizes: Annotated[
        list[int],
        Allowed(2, filled=True),
        "of the hardest and easiest subsets; those beyond a data set's classes are left out for it",
    ] = field(default_factory=lambda: [2, 3, 5, 10])
    draws: Annotated[
        int, Allowed(1), "random subsets of each size to compare with; all of them where there are no more"
    ] = 1000
    seed: Annotated[Seed, "of the random subsets"] = 0
    classes: Annotated[
        list[Any] | None,
        "class keys of a subset to add to and merge in, as in subset.classes; null: the hardest 5, or all but one",
    ] = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables difficulty_pairs, difficulty_map, difficulty_classes, difficulty_subsets and difficulty_what_if."""
        selected = embed_rows(store, self.query, self.split)
        rows = selected.embedded
        frames: dict[TableSpec, list[pd.DataFrame]] = {spec: [] for spec in self.tables}
        for row in records(rows.sort_values(["dataset", "encoder", "run_id"])):
            same_values = {str(column): str(row[column]) for column in SAME}
            for spec, frame in Mapped(embedded(store, row), self).frames().items():
                frames[spec].append(frame.assign(**same_values))
        if not frames[DIFFICULTY_PAIRS]:
            datasets = ", ".join(sorted(set(rows["dataset"])))
            what = f"classes with two images in {self.split} of {datasets}"
            raise FcaError(what, "0 or 1", "2 or more", "embed another split, or a larger set")

        run_ids = sorted(rows["run_id"])
        parameters = selected.noted({**asdict(self), "shown": MAX_CLASSES_ON_MAP})
        tables = []
        for spec, frames_of_table in frames.items():
            lines = pd.concat(frames_of_table, ignore_index=True) if frames_of_table else ()
            tables.append(spec.table(spec.frame(lines), parameters, run_ids))
        return tables
