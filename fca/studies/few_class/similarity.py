"""How hard class subsets look: SimSS and its parts, by the definitions and as the released script has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fca.stats.correlation import correlation
from fca.stats.similarity import class_similarity, fca_released, released_draw, subset_scores
from fca.store import Store
from fca.studies.few_class.subset_accuracy import (
    DIFFERENCE,
    SUBSET,
    EmbeddedSplit,
    OfSubsets,
    embed_rows,
    of_one_draw,
    subsets_of,
)
from fca.subset import number_of_classes
from fca.tables.predictions import labels_of
from fca.tables.rows import Rows, groups_by_columns, records
from fca.tables.table import DATASET, ENCODER, IMAGES, NOTE, RUN_ID, SPLIT, SUBSET_SEED, SUBSETS, R, TableSpec
from fca.types import Column, Table

SIMSS = Column("simss", float, ".4f", "SimSS (lower: harder to separate)")
SIMSS_POOLED = Column("simss_pooled", float, ".4f", "SimSS pooled over images instead of classes")
INTRA = Column("intra", float, ".4f", "similarity within classes")
INTER = Column("inter", float, ".4f", "similarity between classes")
NEAREST_INTER = Column("nearest_inter", float, ".4f", "similarity to the nearest other class of each image")
IMAGES_OF_SUBSET = IMAGES.with_format(".0f", "images of the subset")
STEP = Column("step", int, ".0f", "position in the loop of the released script")
S_ALPHA_RELEASED = Column("s_alpha_released", float, ".4f", "S_alpha of the released script")
S_BETA_RELEASED = Column("s_beta_released", float, ".4f", "S_beta of the released script")
SIMSS_RELEASED = Column("simss_released", float, ".4f", "SimSS of the released script")
RELEASED_MINUS_OURS = DIFFERENCE.with_format("+.4f", "SimSS, released minus ours")
DIFFERENCE_ABSOLUTE = Column("difference_absolute", float, ".4f", "mean absolute difference")
DIFFERENCE_LARGEST = Column("difference_largest", float, ".4f", "largest absolute difference")
POOLED_ABSOLUTE = Column("pooled_absolute", float, ".4f", "mean absolute difference from our SimSS pooled over images")

SOURCE_COLUMNS = [DATASET, ENCODER, SPLIT]
SCORES = [SIMSS, SIMSS_POOLED, INTRA, INTER, NEAREST_INTER]
LOGGED = [S_ALPHA_RELEASED, S_BETA_RELEASED, SIMSS_RELEASED]
SOURCE = "the code released with Few-Class Arena (arXiv:2411.01099); fca.stats.similarity lists its quirks"
ORDER = (
    "lists of images carried over from subset to subset: ncl by ncl (as asked for, else ascending), within it seed by "
    "seed; a subset that no seed drew is scored alone"
)
SIMILARITY = TableSpec(
    "similarity",
    "How alike are the images of each class subset, within classes and between? (higher simss = easier)",
    "Few-Class Arena (arXiv:2411.01099) eqs. 1 to 4 with sim = (cos + 1) / 2",
    (*SOURCE_COLUMNS, *SUBSET, *SCORES, IMAGES_OF_SUBSET, NOTE, RUN_ID),
)
RELEASED = TableSpec(
    "released",
    "What would the released script log for each subset, quirk for quirk?",
    SOURCE,
    (*SOURCE_COLUMNS, *SUBSET, STEP, *SCORES[:4], *LOGGED, RELEASED_MINUS_OURS, RUN_ID),
)
RELEASED_AGREEMENT = TableSpec(
    "released_agreement",
    "How far is the released SimSS from ours? (released minus ours on the same subsets: exact, so no interval)",
    SOURCE,
    (*SOURCE_COLUMNS, SUBSETS, RELEASED_MINUS_OURS, DIFFERENCE_ABSOLUTE, DIFFERENCE_LARGEST, POOLED_ABSOLUTE, R),
)


@dataclass(frozen=True)
class Embedded:
    """The similarities of an `embed` row, for the classes with two images or more; empty if fewer than two have them.

    keys:   class keys in label order.    counts: images of each, those that were embedded or sampled.
    labels: of the images in the matrix.    features: of the same images; None where a function compared pairs.
    pairs:  the similarities that such a function gave.
    """

    keys: list[str]
    counts: Int[np.ndarray, " all_classes"]
    labels: Int[np.ndarray, " images"]
    features: Float[np.ndarray, "images features"] | None
    pairs: Float[np.ndarray, "images classes"] | None

    @cached_property
    def similarity(self) -> Float[np.ndarray, "images classes"]:
        """Of every image to every class; raises what class_similarity does."""
        if self.features is None:
            return np.empty((0, 0)) if self.pairs is None else self.pairs
        return class_similarity(self.features, self.labels) if len(self.labels) else np.empty((0, 0))


def embedded(store: Store, row: Mapping[str, Any]) -> Embedded:
    """Read an `embed` row: its features, or the similarities that a function of two images gave."""
    run_id = row["run_id"]
    keys, labels = labels_of(store, row)
    has_pairs = store.has_array(run_id, "similarity")
    if has_pairs:
        labels = labels[store.array(run_id, "sampled")]
    values = store.array(run_id, "similarity" if has_pairs else "features", lines=len(labels))

    counts = np.bincount(labels, minlength=len(keys))
    classes = np.flatnonzero(counts > 1)
    is_usable = np.isin(labels, classes) if len(classes) > 1 else np.zeros(len(labels), dtype=bool)
    rows = np.flatnonzero(is_usable)
    if has_pairs:
        pairs = values[np.ix_(rows, classes)].astype(np.float64)
        return Embedded(keys, counts, labels[rows], None, pairs)
    return Embedded(keys, counts, labels[rows], np.asarray(values)[rows], None)


def similarity_points(store: Store, rows: Rows, subsets: pd.DataFrame) -> pd.DataFrame:
    """Similarity scores of every subset by every encoder: one matrix for each data set and encoder.

    A subset with a class of fewer than two images has no score; its `note` names the class.
    """
    lines = []
    for row in records(rows.embedded):
        embedding = embedded(store, row)
        for subset in records(subsets[subsets["dataset"] == row["dataset"]]):
            classes = np.array(subset["classes"])
            small = [c for c in classes if embedding.counts[c] < 2]
            note = None
            scores: dict[str, Any] = {}
            if small:
                counts = ", ".join(f"{embedding.keys[c]} has {embedding.counts[c]}" for c in small)
                note = f"images in {row['split']}: {counts}; a class needs 2"
            else:
                scores = subset_scores(embedding.similarity, embedding.labels, classes)._asdict()
            line = {
                **subset,
                "encoder": row["encoder"],
                "split": row["split"],
                "run_id": row["run_id"],
                **scores,
                "images": int(embedding.counts[classes].sum()),
                "note": note,
            }
            lines.append(line)

    points = SIMILARITY.frame(lines)
    points[SCORES] = points[SCORES].astype("float64")
    points = points.astype({"ncl": "int64", "subset_seed": "Int64", "images": "int64"})
    return points.sort_values(["dataset", "encoder", *SUBSET, "run_id"], ignore_index=True)


def released_lines(store: Store, rows: Rows, points: pd.DataFrame, ncl: Sequence[int | float] | None) -> pd.DataFrame:
    """The lines of table `released`, one for each subset and encoder.

    points: of similarity_points; subsets without a score, and encoders that have no features, are left out.
    ncl:    the order of the loop, numbers or shares of the classes; a number that is listed twice is scored twice, as
            where a tenth of the classes are 4.
    """
    lines: list[dict[str, Any]] = []
    for row in records(rows.embedded):
        is_of_row = (points[RUN_ID] == row["run_id"]) & (points[DATASET] == row["dataset"])
        lines += _lines(embedded(store, row), points[is_of_row], ncl)
    return RELEASED.frame(lines).astype({SUBSET_SEED: "Int64"})


def _lines(embedding: Embedded, points: pd.DataFrame, ncl: Sequence[int | float] | None) -> Iterator[dict[str, Any]]:
    """The lines of one encoder, in the order of the released script's loop."""
    if embedding.features is None:
        return
    n_classes = len(embedding.keys)
    scored = points.dropna(subset=SIMSS)
    sizes = [number_of_classes(n, n_classes) for n in ncl or sorted(set(scored["ncl"]))]
    step = count()
    for sequence in _sequences(scored, sizes):
        draws = [_as_drawn(line, n_classes) for line in sequence]
        logged = fca_released(embedding.features, embedding.labels, draws)
        for line, logged_scores in zip(sequence, logged, strict=True):
            columns: dict[str, Any] = {name: line[name] for name in RELEASED.columns if name in line}
            released_scores: dict[str, Any] = dict(zip(LOGGED, logged_scores, strict=True))
            yield {
                **columns,
                **released_scores,
                STEP: next(step),
                RELEASED_MINUS_OURS: logged_scores.simss - line[SIMSS],
            }


def _sequences(scored: pd.DataFrame, sizes: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """The subsets of each sampler in the order of the loop, then each subset that no seed drew by itself."""
    drawn_by_seed = scored[scored["subset_seed"].notna()]
    for _, subsets in drawn_by_seed.groupby("sampler"):
        sequence: list[dict[str, Any]] = []
        for size in sizes:
            sequence += records(subsets[subsets["ncl"] == size].sort_values("subset_seed"))
        yield sequence
    for line in records(scored[scored["subset_seed"].isna()]):
        yield [line]


def _as_drawn(line: Mapping[str, Any], num_classes: int) -> Sequence[int]:
    """The classes in the order of the draw, on which S_beta depends; sorted where the sampler is not the original's."""
    if line["sampler"] == "fca" and line["ncl"] < num_classes:
        return released_draw(num_classes, int(line["ncl"]), int(line["subset_seed"]))
    return tuple(int(c) for c in line["classes"])


def _agreement(lines: pd.DataFrame) -> dict[str, Any]:
    """How far the released SimSS is from ours.

    pooled_absolute: against our SimSS pooled over images, as theirs is; what remains is due to their quirks.
    """
    scored = lines.dropna(subset="simss_released")
    distance = scored["difference"].abs()
    r = None
    if len(scored):
        r = correlation(scored["simss"].to_numpy(), scored["simss_released"].to_numpy()).r
    return {
        "subsets": len(scored),
        "difference": scored["difference"].mean(),
        "difference_absolute": distance.mean(),
        "difference_largest": distance.max(),
        "pooled_absolute": (scored["simss_released"] - scored["simss_pooled"]).abs().mean(),
        "r": r,
    }


@dataclass(frozen=True)
class Similarity(OfSubsets):
    """`analysis=similarity`; reads `embed` rows, and `train` rows for the subsets to score."""

    tables: ClassVar = (SIMILARITY, RELEASED, RELEASED_AGREEMENT)

    split: EmbeddedSplit = "test"

    def __call__(self, store: Store) -> list[Table]:
        """Tables similarity, released and released_agreement."""
        rows = of_one_draw(embed_rows(store, self.query, self.split))
        points = similarity_points(store, rows, subsets_of(rows, self))
        released = released_lines(store, rows, points, self.ncl)
        agreement = RELEASED_AGREEMENT.frame(
            {**key, **_agreement(lines)} for key, lines in groups_by_columns(released, SOURCE_COLUMNS)
        )

        parameters = rows.noted({**asdict(self), "order": ORDER})
        released_run_ids = sorted(set(released[RUN_ID]))
        return [
            SIMILARITY.table(points, rows.noted(asdict(self)), sorted(set(points[RUN_ID]))),
            RELEASED.table(released, parameters, released_run_ids),
            RELEASED_AGREEMENT.table(agreement, parameters, released_run_ids),
        ]
