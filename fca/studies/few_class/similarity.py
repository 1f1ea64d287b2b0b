"""How hard class subsets look: SimSS and its parts, by the definitions and as the released script computes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
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

KEY = [DATASET, ENCODER, SPLIT]
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
    (*KEY, *SUBSET, *SCORES, IMAGES_OF_SUBSET, NOTE, RUN_ID),
)
RELEASED = TableSpec(
    "released",
    "What would the released script log for each subset, quirk for quirk?",
    SOURCE,
    (*KEY, *SUBSET, STEP, *SCORES[:4], *LOGGED, RELEASED_MINUS_OURS, RUN_ID),
)
RELEASED_AGREEMENT = TableSpec(
    "released_agreement",
    "How far is the released SimSS from ours? (released minus ours on the same subsets: exact, so no interval)",
    SOURCE,
    (*KEY, SUBSETS, RELEASED_MINUS_OURS, DIFFERENCE_ABSOLUTE, DIFFERENCE_LARGEST, POOLED_ABSOLUTE, R),
)


@dataclass(frozen=True)
class Embedded:
    """What a stored `embed` run knows about the images of a data set.

    keys:     class keys of the data set, in label order.
    counts:   for each label, the number of images that were embedded (sampled, where a function compared pairs).
    labels:   label of each usable image: of classes with two images or more. Empty unless two classes have them.
    features: of the usable images; None where a function compared pairs of images and there are no features.
    pairs:    the similarities that this function returned, of each usable image to each usable class; otherwise None.
    """

    keys: list[str]
    counts: Int[np.ndarray, " all_classes"]
    labels: Int[np.ndarray, " images"]
    features: Float[np.ndarray, "images features"] | None
    pairs: Float[np.ndarray, "images classes"] | None

    @cached_property
    def similarity(self) -> Float[np.ndarray, "images classes"]:
        """The mean similarity of every usable image to every usable class (see class_similarity, whose errors it has).

        It has no lines and no columns if no image is usable.
        """
        if self.pairs is not None:
            return self.pairs
        if self.features is None or not len(self.labels):
            return np.empty((0, 0))
        return class_similarity(self.features, self.labels)


def embedded(store: Store, row: Mapping[str, Any]) -> Embedded:
    """Read what an `embed` run stored: features of images, or the mean similarity of each image to each class.

    The run has similarities instead of features if its encoder is a function that compares two images. Only usable
    images are kept: images of classes with two images or more, if there are two such classes.

    row: the row of the run.
    """
    run_id = row["run_id"]
    keys, labels = labels_of(store, row)
    compares_pairs = store.has_array(run_id, "similarity")
    if compares_pairs:
        labels = labels[store.array(run_id, "sampled")]  # pairs are costly: a sample of the images was compared
    # images x classes (similarity), or images x features; an array without a line for each image is refused
    values = store.array(run_id, "similarity" if compares_pairs else "features", lines=len(labels))

    # similarity within a class takes two images; a subset takes two such classes
    counts = np.bincount(labels, minlength=len(keys))
    usable_classes = np.flatnonzero(counts > 1)
    usable_images = np.empty(0, np.int64)  # stays empty with fewer than two usable classes
    if len(usable_classes) > 1:
        usable_images = np.flatnonzero(np.isin(labels, usable_classes))

    features = pairs = None
    if compares_pairs:
        pairs = values[np.ix_(usable_images, usable_classes)].astype(np.float64)
    else:
        features = np.asarray(values)[usable_images]
    return Embedded(keys, counts, labels[usable_images], features, pairs)


def similarity_points(store: Store, rows: Rows, subsets: pd.DataFrame) -> pd.DataFrame:
    """Table `similarity`: SimSS and its parts, for every class subset and every `embed` row of its data set.

    A subset with a class of fewer than two images has no scores; its `note` names the class.

    rows:    stored results, among them the `embed` rows.
    subsets: the class subsets of every data set, one line each.
    """
    lines = []
    for row in records(rows.embedded):
        embedding = embedded(store, row)
        for subset in records(subsets[subsets["dataset"] == row["dataset"]]):
            classes = np.array(subset["classes"])
            counts = embedding.counts[classes]

            scores: dict[str, float] = {}
            note = None
            # "key has 1": classes with too few images
            small_classes = [f"{embedding.keys[c]} has {n}" for c, n in zip(classes, counts, strict=True) if n < 2]
            if small_classes:
                note = f"images in {row['split']}: {', '.join(small_classes)}; a class needs 2"
            else:
                scores = subset_scores(embedding.similarity, embedding.labels, classes)._asdict()

            lines.append(
                {
                    **subset,
                    "encoder": row["encoder"],
                    "split": row["split"],
                    "run_id": row["run_id"],
                    **scores,
                    "images": int(counts.sum()),
                    "note": note,
                }
            )

    points = SIMILARITY.frame(lines)
    points[SCORES] = points[SCORES].astype("float64")
    points = points.astype({"ncl": "int64", "subset_seed": "Int64", "images": "int64"})
    return points.sort_values(["dataset", "encoder", *SUBSET, "run_id"], ignore_index=True)


def released_lines(store: Store, rows: Rows, points: pd.DataFrame, ncl: Sequence[int | float] | None) -> pd.DataFrame:
    """Table `released`: what the script released with the paper logs for each subset, beside our scores.

    points: see similarity_points. Subsets without a score, and encoders that have no features, are left out.
    ncl:    numbers of classes, or shares of them, in the order of the script's loop; None: ascending. A number that
            occurs twice is scored twice, for example 4 and a share that comes to 4 classes.
    """
    lines: list[dict[str, Any]] = []
    for row in records(rows.embedded):
        is_of_row = (points[RUN_ID] == row["run_id"]) & (points[DATASET] == row["dataset"])
        lines += _released_lines_of_encoder(embedded(store, row), points[is_of_row], ncl)
    return RELEASED.frame(lines).astype({SUBSET_SEED: "Int64"})


def _released_lines_of_encoder(
    embedding: Embedded, points: pd.DataFrame, ncl: Sequence[int | float] | None
) -> Iterator[dict[str, Any]]:
    """The lines of table `released` of one data set and encoder: the scores that the released script would log.

    Lines are in the order of the script's loop over subsets, because it carries lists of images from subset to subset.

    embedding: features of the images by the encoder; without features there are no lines.
    points:    one line for each subset, with its SimSS, of this data set and encoder.
    ncl:       numbers of classes, or shares of all classes, in the order of the script's loop; None: ascending.
    """
    if embedding.features is None:  # the script computes similarities from features
        return

    num_classes = len(embedding.keys)
    scored = points.dropna(subset=SIMSS)
    sizes = [number_of_classes(n, num_classes) for n in ncl or sorted(set(scored["ncl"]))]

    step = 0
    for subsets in _sequences(scored, sizes):
        # the classes of each subset in the order in which the script visits them, on which its scores depend
        class_orders = [_class_order(subset, num_classes) for subset in subsets]
        logged_scores = fca_released(embedding.features, embedding.labels, class_orders)
        for subset, logged in zip(subsets, logged_scores, strict=True):
            shared_cells: dict[str, Any] = {name: subset[name] for name in RELEASED.columns if name in subset}
            logged_cells: dict[str, Any] = dict(zip(LOGGED, logged, strict=True))
            yield {
                **shared_cells,
                **logged_cells,
                STEP: step,
                RELEASED_MINUS_OURS: logged.simss - subset[SIMSS],
            }
            step += 1


def _sequences(scored: pd.DataFrame, sizes: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """The sequences of subsets over which the released script carries its lists of images.

    Each sampler has one sequence: its drawn subsets, size by size and within a size seed by seed, which is the order of
    the script's loop. Each subset that no seed drew follows as a sequence of its own, as the script does not have it.

    scored: one line for each subset that has a SimSS, of one data set and encoder.
    sizes:  in the loop's order.
    """
    is_drawn = scored["subset_seed"].notna()
    for _, subsets_of_sampler in scored[is_drawn].groupby("sampler"):
        sequence = []
        for size in sizes:
            subsets_of_size = subsets_of_sampler[subsets_of_sampler["ncl"] == size]
            sequence += records(subsets_of_size.sort_values("subset_seed"))
        yield sequence

    for subset in records(scored[~is_drawn]):
        yield [subset]


def _class_order(subset: Mapping[str, Any], num_classes: int) -> Sequence[int]:
    """The classes of a subset in the order in which the released script would visit them; its S_beta depends on it.

    This is the order of the draw for the paper's sampler (fca), unless the subset is all classes; otherwise sorted.
    """
    if subset["sampler"] == "fca" and subset["ncl"] < num_classes:
        return released_draw(num_classes, int(subset["ncl"]), int(subset["subset_seed"]))
    return tuple(int(c) for c in subset["classes"])


def _agreement(released: pd.DataFrame) -> dict[str, Any]:
    """The cells of table `released_agreement`: how far the SimSS of the released script is from ours.

    `pooled_absolute` is the mean distance from `simss_pooled`: our SimSS, but as a mean over images instead of classes.
    The script takes the mean over images too, so this distance is due to its other quirks. `r` is Pearson's
    correlation of the script's SimSS with ours; None without subsets.

    released: lines of table `released`, of one data set, encoder and split.
    """
    scored = released.dropna(subset="simss_released")
    distance = scored["difference"].abs()
    distance_to_pooled = (scored["simss_released"] - scored["simss_pooled"]).abs()
    r = None
    if len(scored):
        r = correlation(scored["simss"].to_numpy(), scored["simss_released"].to_numpy()).r
    return {
        "subsets": len(scored),
        "difference": scored["difference"].mean(),
        "difference_absolute": distance.mean(),
        "difference_largest": distance.max(),
        "pooled_absolute": distance_to_pooled.mean(),
        "r": r,
    }


@dataclass(frozen=True)
class Similarity(OfSubsets):
    """`analysis=similarity`; reads `embed` rows, and `train` rows for the subsets to score."""

    tables: ClassVar = (SIMILARITY, RELEASED, RELEASED_AGREEMENT)

    split: EmbeddedSplit = "test"

    def __call__(self, store: Store) -> list[Table]:
        """Tables similarity, released and released_agreement. Raises FcaError if no `embed` runs are stored.

        The tables `released` and released_agreement compare our scores with those of the paper's script.
        """
        # without data sets whose rows differ in the number of classes or the sampler: seeds would draw other classes
        rows = of_one_draw(embed_rows(store, self.query, self.split))
        points = similarity_points(store, rows, subsets_of(rows, self))
        released = released_lines(store, rows, points, self.ncl)
        # a line for each data set, encoder and split (KEY)
        agreement = RELEASED_AGREEMENT.frame(
            {**key, **_agreement(lines)} for key, lines in groups_by_columns(released, KEY)
        )

        # rows.noted adds the list of data sets that were left out, which the page then names. The script carries images
        # from subset to subset, so its tables also record the order of the subsets.
        released_parameters = rows.noted({**asdict(self), "order": ORDER})
        released_runs = sorted(set(released[RUN_ID]))
        return [
            SIMILARITY.table(points, rows.noted(asdict(self)), sorted(set(points[RUN_ID]))),
            RELEASED.table(released, released_parameters, released_runs),
            RELEASED_AGREEMENT.table(agreement, released_parameters, released_runs),
        ]
