"""What difficulty_map tells of one data set and encoder, table by table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from fca.analysis.similarity_points import Embedded
from fca.stats.difficulty import extreme_subset, pair_simss, random_simss, what_if_added, what_if_merged
from fca.stats.similarity import subset_scores
from fca.subset import named_subset

SHOWN = 60  # classes on the map: those with the hardest pairs
BASE = 5  # classes of the subset that is added to where none is asked for


@dataclass(frozen=True)
class Mapped:
    """One data set and encoder. Rows and columns of `pairs` are the usable classes, `usable` their label indices."""

    found: Embedded
    split: str
    sizes: list[int]
    draws: int
    seed: int
    classes: list[Any] | None

    @cached_property
    def usable(self) -> np.ndarray:
        return np.unique(self.found.labels)

    @cached_property
    def pairs(self) -> np.ndarray:
        return pair_simss(self.found.similarity, self.found.labels)

    def frames(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Table name and lines; nothing where fewer than two classes have two images."""
        if not len(self.usable):
            return
        yield "difficulty_pairs", self._pairs()
        yield "difficulty_classes", self._classes()
        yield "difficulty_map", self._map()
        for name, lines in (("difficulty_subsets", self._subsets()), ("difficulty_what_if", self._what_if())):
            frame = pd.DataFrame(lines)
            if len(frame):
                yield name, frame

    def _key(self, classes: np.ndarray) -> np.ndarray:
        """Keys of usable classes by their place among them."""
        keys: np.ndarray = np.array(self.found.keys, dtype=object)[self.usable[classes]]
        return keys

    def _pairs(self) -> pd.DataFrame:
        a, b = np.triu_indices(len(self.usable), 1)
        frame = pd.DataFrame({"class_a": self._key(a), "class_b": self._key(b), "simss": self.pairs[a, b]})
        return frame.sort_values("simss", kind="stable", ignore_index=True)

    def _classes(self) -> pd.DataFrame:
        """One line a class of the data set; `note` says why one has no score."""
        frame = pd.DataFrame({"class": self.found.keys, "images": self.found.counts})
        scores = {
            "simss_mean": np.nanmean(self.pairs, axis=1),
            "simss_nearest": np.nanmin(self.pairs, axis=1),
            "nearest": self._key(np.nanargmin(self.pairs, axis=1)),
            "note": None,
        }
        place = pd.Series(np.arange(len(self.order)), index=self.usable[self.order])
        frame = frame.join(pd.DataFrame(scores, index=self.usable)).assign(place=place.astype("Int64"))
        frame.loc[frame["simss_mean"].isna(), "note"] = f"fewer than two images in {self.split}"
        return frame

    @cached_property
    def order(self) -> np.ndarray:
        """The classes with the hardest pairs, alike ones side by side: the leaves of a clustering."""
        hardest = np.sort(np.argsort(np.nanmin(self.pairs, axis=1), kind="stable")[:SHOWN])
        distances = self.pairs[np.ix_(hardest, hardest)] - np.nanmin(self.pairs)
        np.fill_diagonal(distances, 0.0)
        linked = linkage(squareform(distances, checks=False), "average", optimal_ordering=True)
        order: np.ndarray = hardest[leaves_list(linked)]
        return order

    def _map(self) -> pd.DataFrame:
        a, b = np.triu_indices(len(self.order), 1)
        first, second = self.order[a], self.order[b]
        keys = {"class_a": self._key(first), "class_b": self._key(second)}
        return pd.DataFrame({**keys, "place_a": a, "place_b": b, "simss": self.pairs[first, second]})

    def _subsets(self) -> Iterator[dict[str, Any]]:
        matrix, labels = self.found.similarity, self.found.labels
        for size in (n for n in self.sizes if n <= len(self.usable)):
            drawn = random_simss(matrix, labels, size, self.draws, self.seed)
            spread = dict(
                zip(("random_q05", "random_q50", "random_q95"), np.quantile(drawn, (0.05, 0.5, 0.95)), strict=True)
            )
            random = {"random_mean": drawn.mean(), **spread, "random": len(drawn), "seed": self.seed}
            for extreme in ("hardest", "easiest"):
                best = extreme_subset(matrix, labels, size, extreme == "hardest", pairs=self.pairs)
                keys = tuple(self.found.keys[c] for c in best.classes)
                chosen = {"classes": best.classes, "keys": keys}
                yield {"ncl": size, "extreme": extreme, "simss": best.simss, **random, **chosen}

    def _what_if(self) -> Iterator[dict[str, Any]]:
        """Every class added, the one that hurts most first; every two merged, those that help most first."""
        matrix, labels, keys = self.found.similarity, self.found.labels, self.found.keys
        base = self._base()
        before = subset_scores(matrix, labels, base).simss
        same = {"subset": tuple(keys[c] for c in base), "simss_before": before}
        added = what_if_added(matrix, labels, base)
        for place in np.argsort(added, kind="stable")[: len(added) - len(base)]:
            after = {"simss_after": before + added[place], "difference": added[place]}
            yield {**same, "change": "add", "class_a": keys[self.usable[place]], "class_b": None, **after}
        pairs = combinations(base.tolist(), 2) if len(base) > 2 else ()
        merged = {pair: what_if_merged(matrix, labels, base, *pair) for pair in pairs}
        for a, b in sorted(merged, key=lambda pair: -merged[pair]):
            after = {"simss_after": merged[a, b], "difference": merged[a, b] - before}
            yield {**same, "change": "merge", "class_a": keys[a], "class_b": keys[b], **after}

    def _base(self) -> np.ndarray:
        if self.classes is None:
            size = max(2, min(BASE, len(self.usable) - 1))
            return np.array(extreme_subset(self.found.similarity, self.found.labels, size, pairs=self.pairs).classes)
        return np.array(named_subset(self.found.keys, self.classes).classes)
