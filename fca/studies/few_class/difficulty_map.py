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
KEY = [DATASET, ENCODER, SPLIT]
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
    (*KEY, CLASS_A, CLASS_B, SIMSS),
)
DIFFICULTY_MAP = TableSpec(
    "difficulty_map",
    "Which classes resemble which? (the classes with the hardest pairs, alike ones side by side)",
    f"{PAPER} on every subset of two classes; places by average linkage of SimSS",
    (*KEY, CLASS_A, CLASS_B, PLACE_A, PLACE_B, SIMSS),
)
DIFFICULTY_CLASSES = TableSpec(
    "difficulty_classes",
    "How hard is each class? (mean SimSS of its pairs, and the class it is hardest to separate from)",
    f"{PAPER} on every subset of two classes",
    (*KEY, CLASS, IMAGES, SIMSS_MEAN, SIMSS_NEAREST, NEAREST, PLACE, NOTE),
)
DIFFICULTY_SUBSETS = TableSpec(
    "difficulty_subsets",
    "Which few classes are the hardest and the easiest together? (beside the spread of random subsets)",
    f"{PAPER}; greedy search with swaps, exact for two classes, and for three of up to 20",
    (*KEY, NCL, EXTREME, SIMSS, RANDOM_MEAN, *QUANTILES, RANDOM, SEED, CLASSES, KEYS),
)
DIFFICULTY_WHAT_IF = TableSpec(
    "difficulty_what_if",
    "What would adding a class to a subset, or making two of its classes one, change?",
    f"{PAPER}, recomputed in closed form",
    (*KEY, SUBSET_KEYS, CHANGE, CLASS_A, CLASS_B, SIMSS_BEFORE, SIMSS_AFTER, SIMSS_CHANGE),
)
MAP_CLASSES = 60  # classes on the map: those with the hardest pairs
BASE_CLASSES = 5  # classes of the subset to change if the user names none


@dataclass(frozen=True)
class Mapped:
    """The tables of one data set and encoder.

    Only classes with two images or more are usable. Unless they are called labels, classes are positions among the
    usable ones: 0 is the usable class with the smallest label.
    """

    embedding: Embedded
    options: DifficultyMap

    @cached_property
    def usable(self) -> np.ndarray:
        """The label of each usable class, in ascending order."""
        return np.unique(self.embedding.labels)

    @cached_property
    def pairs(self) -> np.ndarray:
        """SimSS of every pair of usable classes, a symmetric matrix; NaN on the diagonal."""
        return pair_simss(self.embedding.similarity, self.embedding.labels)

    def frames(self) -> dict[TableSpec, pd.DataFrame]:
        """The lines of each table, without the columns data set, encoder and split; tables without lines are left out.

        The result is empty if fewer than two classes are usable, that is, have two images or more. Raises FcaError for
        unknown classes in the options.
        """
        if not len(self.usable):  # also empty if only one class has two images or more: it has no pair
            return {}

        subsets = pd.DataFrame(self._subsets())
        what_if = pd.DataFrame(self._what_if())
        frame_by_table = {
            DIFFICULTY_PAIRS: self._pairs(),
            DIFFICULTY_MAP: self._map(),
            DIFFICULTY_CLASSES: self._classes(),
            DIFFICULTY_SUBSETS: subsets,
            DIFFICULTY_WHAT_IF: what_if,
        }
        return {spec: frame for spec, frame in frame_by_table.items() if len(frame)}

    def _keys(self, classes: np.ndarray) -> np.ndarray:
        """The class keys of these usable classes."""
        return np.array(self.embedding.keys, dtype=object)[self.usable[classes]]

    def _pair_lines(self, a: np.ndarray, b: np.ndarray) -> pd.DataFrame:
        """One line for each pair of usable classes a[i] and b[i]: their keys and SimSS."""
        return pd.DataFrame({"class_a": self._keys(a), "class_b": self._keys(b), "simss": self.pairs[a, b]})

    def _pairs(self) -> pd.DataFrame:
        """Table difficulty_pairs: every pair of usable classes, the hardest first."""
        a, b = np.triu_indices(len(self.usable), 1)  # all pairs with a < b
        return self._pair_lines(a, b).sort_values("simss", kind="stable", ignore_index=True)

    def _classes(self) -> pd.DataFrame:
        """Table difficulty_classes: one line for each class of the data set, in label order.

        A class with fewer than two images is not usable: it has no scores, and a `note` gives the reason. `place` is
        the position on the map (table difficulty_map); classes that are not on the map have none.

        `self.usable` has the labels of the usable classes, `self.pairs` the SimSS of every two of them (a matrix), and
        `self.order` the positions in `usable` of the classes on the map, in the order of the map.
        """
        frame = pd.DataFrame({"class": self.embedding.keys, "images": self.embedding.counts})  # index: the label

        # scores of the usable classes; the diagonal of self.pairs (a class with itself) is NaN and does not count
        nearest_class = np.nanargmin(self.pairs, axis=1)
        scores = {
            "simss_mean": np.nanmean(self.pairs, axis=1),
            "simss_nearest": np.nanmin(self.pairs, axis=1),
            "nearest": self._keys(nearest_class),
            "note": None,
        }
        scores_by_label = pd.DataFrame(scores, index=self.usable)
        labels_on_map = self.usable[self.order]  # in the order of their places
        place = pd.Series(np.arange(len(labels_on_map)), index=labels_on_map)
        frame = frame.join(scores_by_label).assign(place=place.astype("Int64"))

        has_no_score = frame["simss_mean"].isna()
        frame.loc[has_no_score, "note"] = f"fewer than two images in {self.options.split}"
        return frame

    @cached_property
    def order(self) -> np.ndarray:
        """The classes on the map in the order of their places, similar ones side by side.

        These are the MAP_CLASSES usable classes with the hardest pairs, in the order of the leaves of a hierarchical
        clustering.
        """
        simss_with_nearest = np.nanmin(self.pairs, axis=1)
        hardest = np.sort(np.argsort(simss_with_nearest, kind="stable")[:MAP_CLASSES])

        # SimSS is low for similar classes and may be negative: made a distance from the smallest SimSS on
        distances = self.pairs[np.ix_(hardest, hardest)] - np.nanmin(self.pairs)
        np.fill_diagonal(distances, 0.0)
        tree = linkage(squareform(distances, checks=False), "average", optimal_ordering=True)
        return hardest[leaves_list(tree)]

    def _map(self) -> pd.DataFrame:
        """Table difficulty_map: every pair of the classes on the map, with their places."""
        place_a, place_b = np.triu_indices(len(self.order), 1)  # all pairs with place_a < place_b
        lines = self._pair_lines(self.order[place_a], self.order[place_b])
        return lines.assign(place_a=place_a, place_b=place_b)

    def _subsets(self) -> Iterator[dict[str, Any]]:
        """Lines of difficulty_subsets: the hardest and the easiest subset of each size, beside random ones.

        Sizes beyond the number of usable classes (those with two images or more) are skipped.
        """
        similarity = self.embedding.similarity
        labels = self.embedding.labels

        for size in self.options.sizes:
            if size > len(self.usable):
                continue

            simss = random_simss(similarity, labels, size, self.options.draws, self.options.seed)
            quantiles = np.quantile(simss, (0.05, 0.5, 0.95))
            random_cells = {
                "random_mean": simss.mean(),
                "random": len(simss),
                "seed": self.options.seed,  # of the random draws
                **dict(zip(QUANTILES, quantiles, strict=True)),  # QUANTILES: the columns of 5, 50 and 95 %
            }
            for extreme in EXTREME.choices:  # hardest, easiest
                # pairs: the SimSS of every two classes, given so that it is not computed again
                subset = extreme_subset(similarity, labels, size, extreme == "hardest", pairs=self.pairs)
                yield {
                    "ncl": size,
                    "extreme": extreme,
                    **subset._asdict(),  # classes and simss
                    "keys": tuple(self.embedding.keys[label] for label in subset.classes),
                    **random_cells,
                }

    def _what_if(self) -> Iterator[dict[str, Any]]:
        """Lines of difficulty_what_if: the SimSS of one subset after each possible change.

        The first lines add each of the other classes to the subset, beginning with the class that lowers SimSS most.
        The later lines merge two classes of the subset into one, beginning with the pair that raises SimSS most.
        """
        similarity = self.embedding.similarity  # of each image to each usable class (two images or more)
        labels = self.embedding.labels  # of these images
        keys = self.embedding.keys
        subset = self._subset_to_change()  # labels of the user's classes, or of the hardest few
        simss_before = subset_scores(similarity, labels, subset).simss
        shared_cells = {"subset": tuple(keys[label] for label in subset), "simss_before": simss_before}

        # changes[i] is for adding the class with the label self.usable[i]; NaN for classes that the subset has already
        changes = what_if_added(similarity, labels, subset)
        n_other_classes = len(changes) - len(subset)
        for i in np.argsort(changes, kind="stable")[:n_other_classes]:  # NaN is sorted last and cut off
            yield {
                **shared_cells,
                "change": "add",
                "class_a": keys[self.usable[i]],
                "class_b": None,
                "simss_after": simss_before + changes[i],
                "difference": changes[i],
            }

        if len(subset) < 3:  # merging two classes would leave a single one, which has no SimSS
            return
        simss_by_pair = {}
        for a, b in combinations(subset.tolist(), 2):
            simss_by_pair[a, b] = what_if_merged(similarity, labels, subset, a, b)
        for a, b in sorted(simss_by_pair, key=lambda pair: -simss_by_pair[pair]):
            simss_after = simss_by_pair[a, b]
            yield {
                **shared_cells,
                "change": "merge",
                "class_a": keys[a],
                "class_b": keys[b],
                "simss_after": simss_after,
                "difference": simss_after - simss_before,
            }

    def _subset_to_change(self) -> np.ndarray:
        """The labels of the subset that _what_if changes: the user's classes, or the hardest few.

        Raises FcaError for unknown class keys in the options.
        """
        if self.options.classes is not None:
            return np.array(named_subset(self.embedding.keys, self.options.classes, "classes").classes)

        size = max(2, min(BASE_CLASSES, len(self.usable) - 1))  # one class is left to add, but two are the fewest
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
        Allowed(2, non_empty=True),
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
        """Tables difficulty_pairs, difficulty_map, difficulty_classes, difficulty_subsets and difficulty_what_if.

        An `embed` run stores the features of a data set by one encoder. Each adds its lines. Raises FcaError if no
        `embed` runs are stored, or no run has two classes with two images or more.
        """
        rows = embed_rows(store, self.query, self.split)
        embed = rows.embedded

        frames_by_table: dict[TableSpec, list[pd.DataFrame]] = {spec: [] for spec in self.tables}
        for row in records(embed.sort_values(["dataset", "encoder", "run_id"])):
            key_cells = {key: str(row[key]) for key in KEY}  # data set, encoder and split
            mapped = Mapped(embedded(store, row), self)  # computes all tables of one data set and encoder
            for spec, frame in mapped.frames().items():
                frames_by_table[spec].append(frame.assign(**key_cells))
        if not frames_by_table[DIFFICULTY_PAIRS]:  # every run with two usable classes has pairs
            datasets = ", ".join(sorted(set(embed["dataset"])))
            classes = f"classes with two images in {self.split} of {datasets}"
            raise FcaError(classes, "0 or 1", "2 or more", "embed another split, or a larger set")

        runs = sorted(embed["run_id"])
        # rows.noted adds the list of data sets that were left out, which the page then names
        parameters = rows.noted({**asdict(self), "shown": MAP_CLASSES})  # the most classes on the map
        tables = []
        for spec, frames in frames_by_table.items():
            lines = pd.concat(frames, ignore_index=True) if frames else ()
            tables.append(spec.table(spec.frame(lines), parameters, runs))
        return tables
