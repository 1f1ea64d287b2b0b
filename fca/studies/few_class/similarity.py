"""How hard class subsets look: SimSS and its parts, by the definitions and as the released script has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fca.stats.correlation import correlation
from fca.stats.similarity import class_similarity, fca_released, released_draw, subset_scores
from fca.store import Store
from fca.studies.answers import labels_of
from fca.studies.few_class.subset_accuracy import SUBSET, Grid, subsets_of
from fca.studies.rows import Rows, one_config, records, require, select
from fca.subset import number_of_classes
from fca.types import Table

# The points that similarity tables are made of: one set of scores an encoder and subset.


SCORES = ["simss", "simss_pooled", "intra", "inter", "nearest_inter"]
SIMILARITY = ["dataset", "encoder", "split", *SUBSET, *SCORES, "images", "note", "run_id"]


@dataclass(frozen=True)
class Embedded:
    """What an `embed` row tells, of the classes with two images or more; nothing where fewer than two classes have.

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
    keys, labels = labels_of(store, row)
    compared = (store.folder(row["run_id"]) / "similarity.npy").exists()
    if compared:
        labels = labels[store.array(row["run_id"], "sampled")]
    counts = np.bincount(labels, minlength=len(keys))
    classes = np.flatnonzero(counts > 1)
    usable = np.flatnonzero(np.isin(labels, classes)) if len(classes) > 1 else np.empty(0, np.int64)
    if compared:
        pairs = store.array(row["run_id"], "similarity")[np.ix_(usable, classes)].astype(np.float64)
        return Embedded(keys, counts, labels[usable], None, pairs)
    return Embedded(keys, counts, labels[usable], np.asarray(store.array(row["run_id"], "features"))[usable], None)


def similarity_points(store: Store, rows: Rows, subsets: pd.DataFrame) -> pd.DataFrame:
    """Similarity scores of every subset by every encoder: one matrix a data set and encoder, whatever the subsets.

    A subset with a class of fewer than two images has no score; its `note` says which class.
    """
    lines = []
    for row in records(rows.embedded):
        found = embedded(store, row)
        for subset in records(subsets[subsets["dataset"] == row["dataset"]]):
            classes = np.array(subset["classes"])
            small = [f"{found.keys[c]} has {found.counts[c]}" for c in classes if found.counts[c] < 2]
            note = f"images in {row['split']}: {', '.join(small)}; a class needs 2" if small else None
            scores = {} if small else subset_scores(found.similarity, found.labels, classes)._asdict()
            same = {name: row[name] for name in ("encoder", "split", "run_id")}
            lines.append({**subset, **same, **scores, "images": int(found.counts[classes].sum()), "note": note})
    points = pd.DataFrame(lines, columns=SIMILARITY)
    points[SCORES] = points[SCORES].astype("float64")
    points = points.astype({"ncl": "int64", "subset_seed": "Int64", "images": "int64"})
    return points.sort_values(["dataset", "encoder", *SUBSET, "run_id"], ignore_index=True)


# What the released similarity script would have logged for the subsets of a table, beside our scores.


SAME = ["dataset", "encoder", "split"]
LOGGED = ["s_alpha_released", "s_beta_released", "simss_released"]
RELEASED = [*SAME, *SUBSET, "step", "simss", "simss_pooled", "intra", "inter", *LOGGED, "difference", "run_id"]
AGREEMENT = [*SAME, "subsets", "difference", "difference_absolute", "difference_largest", "pooled_absolute", "r"]
SOURCE = "the code released with Few-Class Arena (arXiv:2411.01099); fca.stats.similarity lists its quirks"
ORDER = (
    "lists of images carried over from subset to subset: ncl by ncl (as asked for, else ascending), within it seed by "
    "seed; a subset that no seed drew is scored alone"
)


def released_tables(
    store: Store, rows: Rows, points: pd.DataFrame, ncl: Sequence[int | float] | None, parameters: Mapping[str, Any]
) -> list[Table]:
    """Tables released (one line a subset) and released_agreement (one line an encoder).

    points: of similarity_points; subsets without a score, and encoders that have no features, are left out.
    ncl:    the order of the loop, numbers or shares of the classes; what is asked for twice is gone through twice, as
            where a tenth of the classes are 4.
    """
    lines = [line for row in records(rows.embedded) for line in _lines(store, row, points, ncl)]
    frame = pd.DataFrame(lines, columns=RELEASED)
    frame["subset_seed"] = frame["subset_seed"].astype("Int64")
    agreement = [_agreement(part) for _, part in frame.groupby(SAME)]
    about = {
        "released": ("What would the released script log for each subset, quirk for quirk?", frame),
        "released_agreement": (
            "How far is the released SimSS from ours? (released minus ours on the same subsets: exact, so no interval)",
            pd.DataFrame(agreement, columns=AGREEMENT),
        ),
    }
    runs = tuple(sorted(set(frame["run_id"])))
    asked = {**parameters, "order": ORDER}
    return [Table(name, question, SOURCE, made, asked, runs) for name, (question, made) in about.items()]


def _lines(
    store: Store, row: Mapping[str, Any], points: pd.DataFrame, ncl: Sequence[int | float] | None
) -> Iterator[dict[str, Any]]:
    scored = points[(points["run_id"] == row["run_id"]) & points["simss"].notna()]
    found = embedded(store, row)
    if found.features is None:
        return
    step = 0
    asked = [number_of_classes(n, len(found.keys)) for n in ncl or sorted(set(scored["ncl"]))]
    for sequence in _sequences(scored, asked):
        drawn = [_as_drawn(line, len(found.keys)) for line in sequence]
        for line, logged in zip(sequence, fca_released(found.features, found.labels, drawn), strict=True):
            said = dict(zip(LOGGED, logged, strict=True))
            yield {**line, **said, "step": step, "difference": logged.simss - line["simss"]}
            step += 1


def _sequences(scored: pd.DataFrame, asked: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """The subsets of each sampler in the order of the loop, then each that nothing drew by itself."""
    drawn = scored[scored["subset_seed"].notna()]
    for _, part in drawn.groupby("sampler"):
        yield [line for n in asked for line in records(part[part["ncl"] == n].sort_values("subset_seed"))]
    for line in records(scored[scored["subset_seed"].isna()]):
        yield [line]


def _as_drawn(line: Mapping[str, Any], num_classes: int) -> Sequence[int]:
    """S_beta depends on the order of the draw, which only the original's own sampler has; others: sorted."""
    if line["sampler"] == "fca" and line["ncl"] < num_classes:
        return released_draw(num_classes, int(line["ncl"]), int(line["subset_seed"]))
    return tuple(int(c) for c in line["classes"])


def _agreement(part: pd.DataFrame) -> dict[str, Any]:
    """pooled_absolute: against our SimSS pooled over images, as theirs is; the rest of their quirks."""
    known = part.dropna(subset="simss_released")
    apart = known["difference"].abs()
    return {
        **{name: part[name].iloc[0] for name in SAME},
        "subsets": len(known),
        "difference": known["difference"].mean(),
        "difference_absolute": apart.mean(),
        "difference_largest": apart.max(),
        "pooled_absolute": (known["simss_released"] - known["simss_pooled"]).abs().mean(),
        "r": correlation(known["simss"].to_numpy(), known["simss_released"].to_numpy()).r if len(known) else None,
    }


@dataclass(frozen=True)
class Similarity:
    """`analysis=similarity`; reads `embed` rows, and `train` rows for the subsets to score.

    query:       narrows the rows.
    ncl, seeds:  a grid of draws to score instead of the subsets of the stored sub-models; sampler: how it is drawn.
    split:       of the embedded images; test is what the paper scores, train what a practitioner has.
    """

    query: str | None = None
    ncl: list[int | float] | None = None
    seeds: list[int] | None = None
    sampler: str = "uniform"
    split: str = "test"

    def __call__(self, store: Store) -> list[Table]:
        """Tables similarity, released and released_agreement."""
        rows = select(store, self.query, self.split)
        command = "fca run task=embed model@encoder=hog"
        require(rows.embedded, f"embed rows of split {self.split}", rows.total, command)
        one_config(rows.embedded, "encoder")
        points = similarity_points(store, rows, subsets_of(rows, Grid(self.ncl, self.seeds, self.sampler)))
        return [
            Table(
                "similarity",
                "How alike are the images of each class subset, within classes and between? (higher simss = easier)",
                "Few-Class Arena (arXiv:2411.01099) eqs. 1 to 4 with sim = (cos + 1) / 2",
                points,
                asdict(self),
                tuple(sorted(set(points["run_id"]))),
            ),
            *released_tables(store, rows, points, self.ncl, asdict(self)),
        ]
