"""Which images show a class's cues most strongly, and how much accuracy depends on these (analysis=spurious_rank)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from safetensors.numpy import load_file
from scipy.stats import rankdata

from fca.csv_table import read_table
from fca.identity import file_sha256
from fca.names import check_meant
from fca.report.pictures import pictures
from fca.stats.comparison import paired_interval
from fca.stats.intervals import SIGNED_FRACTION, mean_with_interval, wilson
from fca.store import Store
from fca.store.columns import ADAPTATION, Row
from fca.store.files import refused_if_damaged
from fca.tables.keys import Query
from fca.tables.predictions import predictions
from fca.tables.rows import apply_query, readable_rows, records, require_rows
from fca.tables.table import (
    DATASET,
    ENCODER,
    IMAGE_ID,
    LABEL,
    MODEL,
    RUN_ID,
    SEED,
    SPLIT,
    THUMBNAIL,
    TableSpec,
    filled,
)
from fca.types import Column, FcaError, ImageData, Table, interval_columns
from fca.validation import Allowed

COMMAND = "fca run model=resnet50 model.weights=pretrained adaptation=probe"
STEP = "make one: fca analyse analysis=spurious_rank"
PAPER = "Moayeri, Singla & Feizi, 2022 (Hard ImageNet), section 6"
ALL_CLASSES = "all classes"
PICTURED_CLASSES = 6  # those with the widest gaps

RANK = Column("rank", float, ".1f", "rank among the images of the class in its split, 1: strongest cues")
SCORE = Column("score", float, ".3f", "mean rank over the features (lower: stronger), or mean z-score (higher)")
FEATURE = Column("feature", int, ".0f", "feature of the encoder")
IMPORTANCE = Column("importance", float, ".3f", "mean of feature times class weight over train images of the class")
SUBJECT = Column("subject", str, "", "model; the encoder: ranked by its own features", filters=True)
K = Column("k", int, ".0f", "images of either end of the ranking")
TOP = Column("top_accuracy", float, ".1%", "accuracy on the images with the strongest cues")
BOTTOM = Column("bottom_accuracy", float, ".1%", "accuracy on the images with the weakest cues")
GAP = Column("gap", float, "+.1%", "accuracy with the strongest cues minus accuracy with the weakest")
GAP_COLUMNS = (*interval_columns(TOP), *interval_columns(BOTTOM), *interval_columns(GAP))
END = Column("end", str, "", "end of the ranking", {"top": "strongest cues", "bottom": "weakest cues"})
_CLASS_COLUMNS = (DATASET, SPLIT, LABEL)
_MODEL_COLUMNS = (SUBJECT, MODEL, ADAPTATION, SEED)

SPURIOUS_RANKS = TableSpec(
    "spurious_ranks",
    "Which images of a class show its cues most strongly?",
    PAPER,
    (*_CLASS_COLUMNS, IMAGE_ID, RANK, SCORE),
)
FEATURE_IMPORTANCE = TableSpec(
    "feature_importance",
    "Which features decide for a class?",
    PAPER,
    (DATASET, ENCODER, LABEL, FEATURE, IMPORTANCE),
)
SPURIOUS_GAP = TableSpec(
    "spurious_gap",
    "How much less accurate are models where cues are weak?",
    PAPER,
    (*_CLASS_COLUMNS, *_MODEL_COLUMNS, K, *GAP_COLUMNS),
)
SPURIOUS_PICTURES = TableSpec(
    "spurious_pictures",
    "What do strong and weak cues look like?",
    PAPER,
    (*_CLASS_COLUMNS, IMAGE_ID, RANK, END, THUMBNAIL, TOP, BOTTOM),
)
SPECS = (SPURIOUS_RANKS, FEATURE_IMPORTANCE, SPURIOUS_GAP, SPURIOUS_PICTURES)


@dataclass(frozen=True)
class SpuriousRank:
    """`analysis=spurious_rank`; ranks the images of an `embed` run by features, and reads `predict` runs on them.

    Important features may lie on the object.
    """

    tables: ClassVar = SPECS

    query: Query = None
    encoder: Annotated[str | None, "name of the encoder, or id of its embed run, where there are several"] = None
    features: Annotated[
        str | None,
        "a CSV of annotated features (columns class, feature); null: the most important ones of each class, "
        "by the weights of a probe or head on the same features",
    ] = None
    top: Annotated[int, Allowed(1), "how many of these"] = 5
    by: Annotated[
        str,
        Allowed(choices=("rank", "zscore")),
        "rank: mean rank over the features, as in the paper; zscore: mean z-score",
    ] = "rank"
    k: Annotated[
        int, Allowed(1), "images of either end that accuracies are compared on, at most a third of a class"
    ] = 100
    shown: Annotated[int, Allowed(1), "pictures of either end, of the classes with the widest gaps"] = 6

    def __call__(self, store: Store) -> list[Table]:
        """The four tables of SPECS, over all data sets.

        Raises FcaError without stored features, without a linear layer on them (if no file names features), for several
        encoders on one data set, and for a file of features that does not fit.
        """
        rows = readable_rows(store, self.query)  # of all tasks: the query is checked, but selects no rows yet
        predict_rows = apply_query(rows[rows["task"] == "predict"], self.query)

        rank_frames: list[pd.DataFrame] = []
        importance_frames: list[pd.DataFrame] = []
        gap_frames: list[pd.DataFrame] = []
        picture_frames: list[pd.DataFrame] = []
        runs_read: list[str] = []
        for embed_row, layer_runs in self._encoders(rows):
            dataset = embed_row["dataset"]
            encoder = embed_row["encoder"]
            items = store.items(embed_row["fingerprint"])
            features = store.array(embed_row["run_id"], "features", lines=len(items)).astype(np.float32)
            runs_read.append(embed_row["run_id"])

            # the features that rank the images of each class: the most important ones by the weights of a linear layer
            # (the first run of `layer_runs`), or those that a file names
            if self.features is None:
                layer = load_file(store.folder(layer_runs[0]) / "best.safetensors")
                is_train = items["split"] == "train"
                importances = important_features(features[is_train], items["label"][is_train], layer, self.top)
                chosen = importances
                runs_read.append(layer_runs[0])
            else:
                chosen = read_features(self.features, embed_row, items, features.shape[1])
                importances = pd.DataFrame()
            ranked = _ranked_images(items, features, chosen, self.by).assign(dataset=dataset)

            tested = _tested_models(predict_rows, dataset, ranked)
            gaps = _gaps(store, tested, encoder, ranked, self.k)
            runs_read += tested["run_id"].tolist()

            rank_frames.append(ranked)
            importance_frames.append(importances.assign(dataset=dataset, encoder=encoder))
            gap_frames.append(gaps)
            picture_frames.append(_pictures(store, embed_row["fingerprint"], ranked, gaps, self.shown))

        frames_by_table = (rank_frames, importance_frames, gap_frames, picture_frames)
        tables = [pd.concat(frames, ignore_index=True) for frames in frames_by_table]
        parameters = {
            **asdict(self),
            "sha256": self.features and file_sha256(self.features),
            "gap": "Newcombe's interval; of the mean, Student's t over classes, corrected for skewness",
        }
        return filled(SPECS, tables, parameters, runs_read)

    def _encoders(self, rows: pd.DataFrame) -> Iterator[tuple[Row, list[str]]]:
        """For each data set the stored row of the features that rank its images, and linear layers on these features.

        A layer is given by the id of its run; its weights show which features matter for a class. A probe comes before
        a head. There is at least one layer unless the field `features` names a file, which needs none.

        Raises FcaError without features, and for a data set with features of several encoders.
        """
        embed_rows = apply_query(rows[(rows["task"] == "embed") & (rows["split"] == "all")], self.query)
        if self.encoder is not None:
            is_chosen = (embed_rows["encoder"] == self.encoder) | (embed_rows["run_id"] == self.encoder)
            embed_rows = embed_rows[is_chosen]

        # layers for all classes of the data set; the parent of a layer's run is the run of its features
        is_linear = rows["adaptation"].isin(["probe", "head"]) & (rows["ncl"] == rows["num_classes"])
        layer_rows = apply_query(rows[is_linear & rows["parent"].isin(embed_rows["run_id"])], self.query)
        # a probe is solved exactly, a head trained by Adam: descending order puts "probe" before "head"
        layer_rows = layer_rows.sort_values(["adaptation", "seed"], ascending=[False, True])

        requirement = "embed rows of all images"
        if self.features is None:
            embed_rows = embed_rows[embed_rows["run_id"].isin(layer_rows["parent"])]
            requirement += " with a probe or head on them"
        require_rows(embed_rows, requirement, len(rows), COMMAND)

        for dataset, rows_of_dataset in embed_rows.groupby("dataset"):
            if len(rows_of_dataset) > 1:
                encoders = ", ".join(rows_of_dataset["encoder"] + " (run " + rows_of_dataset["run_id"] + ")")
                raise FcaError(f"encoders on {dataset}", encoders, "one", "choose it: analysis.encoder=NAME or run")
            [embed_row] = records(rows_of_dataset)
            is_on_features = layer_rows["parent"] == embed_row["run_id"]
            yield embed_row, layer_rows["run_id"][is_on_features].tolist()


def important_features(
    features: Float[np.ndarray, "images features"], labels: pd.Series, layer: Any, n_features: int
) -> pd.DataFrame:
    """The `n_features` most important features of each class, a line each with columns label, feature and importance.

    The importance of a feature for a class is the mean of feature * class weight over the images of the class that the
    linear layer predicts right, or over all of its images if it predicts none of them right.

    features: of training images.
    labels:   their classes, a categorical whose categories are in label order.
    layer:    name -> array of a linear layer on the features: `weight` (classes x features) and `bias` (classes).
    """
    logits = features @ layer["weight"].T + layer["bias"]  # images x classes
    is_right = logits.argmax(axis=1) == labels.cat.codes

    lines: list[dict[str, Any]] = []
    for label, class_weight in zip(labels.cat.categories, layer["weight"], strict=True):
        is_of_class = labels == label
        is_averaged = is_of_class & is_right
        if not is_averaged.any():
            is_averaged = is_of_class

        importance = features[is_averaged].mean(axis=0) * class_weight
        most_important_first = np.argsort(-importance, kind="stable")
        for feature in most_important_first[:n_features].tolist():
            lines.append({"label": label, "feature": feature, "importance": importance[feature]})
    return pd.DataFrame(lines)


def read_features(file: str, embed_row: Row, items: pd.DataFrame, n_features: int) -> pd.DataFrame:
    """The features that a CSV file names for each class: a frame with columns label and feature (its number).

    Raises FcaError for a missing or damaged file, missing columns, and an unknown class or feature.

    file:       has the columns class and feature.
    embed_row:  the stored row of the features.
    items:      items of the data set; column `label` has their classes.
    n_features: how many features the encoder has.
    """
    frame = read_table(file, file) if Path(file).is_file() else pd.DataFrame()
    if frame.empty or not {"class", "feature"} <= set(frame):
        raise FcaError("analysis.features", file, "a CSV file with columns class and feature", "correct it")

    dataset = embed_row["dataset"]
    encoder = embed_row["encoder"]

    def check(column: str, known_values: set[str], allowed: str) -> None:
        """Raise FcaError for a value of this column that is not known; the text proposes one of similar spelling."""
        unknown = frame[column][~frame[column].isin(known_values)]
        if len(unknown):
            check_meant(f"{column} in {file}", unknown, known_values, f"the data set {dataset}")
            raise FcaError(f"{column} in {file}", unknown.iloc[0], allowed, f"features are of {encoder}")

    check("class", set(items["label"]), f"classes of {dataset}")
    # the cells of the file are text, so that numbers of features are compared as text
    check("feature", {str(feature) for feature in range(n_features)}, f"0 to {n_features - 1}")
    return frame.rename(columns={"class": "label"}).astype({"feature": int})


def cue_ranks(features: Float[np.ndarray, "images chosen"], by: str) -> tuple[Any, Any]:
    """Score and rank of the images of a class by some of their features; rank 1 has the strongest cues.

    Images of equal score get the mean of their ranks.

    by: rank = the score is the mean over features of the image's rank (a low score is strong);
        zscore = it is the mean of (f - mean) / standard deviation (a high score is strong), 0 for a constant feature.

    >>> cue_ranks(np.array([[0.0, 5.0], [2.0, 6.0], [1.0, 7.0]]), "rank")
    (array([3. , 1.5, 1.5]), array([3. , 1.5, 1.5]))
    """
    if by == "rank":
        mean_rank = rankdata(-features, axis=0).mean(axis=1)
        return mean_rank, rankdata(mean_rank)

    deviation = features.std(axis=0)
    z_scores = (features - features.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    mean_z = z_scores.mean(axis=1)
    return mean_z, rankdata(-mean_z)


def _ranked_images(items: pd.DataFrame, features: np.ndarray, chosen: pd.DataFrame, by: str) -> pd.DataFrame:
    """The images with their score and rank within class and split, strongest cues first; rank 1 is the strongest.

    Images of classes without chosen features are left out.

    items, features: of all images of the data set, in the same order.
    chosen: a line for each class (`label`) and feature that ranks its images.
    by:     "rank": the score is the mean over the features of the image's rank; "zscore": the mean of its z-scores.
    """
    images = items[["label", "image_id", "split"]].astype({"label": str})
    for label, chosen_of_class in chosen.groupby("label")["feature"]:
        columns = chosen_of_class.tolist()
        images_of_class = images[images["label"] == label]
        for _, images_of_split in images_of_class.groupby("split"):
            rows = images_of_split.index
            score, rank = cue_ranks(features[rows][:, columns], by)
            images.loc[rows, ["score", "rank"]] = np.stack([score, rank], axis=1)

    ranked = images.dropna(subset="rank")
    return ranked.sort_values(["label", "split", "rank"], kind="stable")


def _tested_models(predict_rows: pd.DataFrame, dataset: str, ranked: pd.DataFrame) -> pd.DataFrame:
    """Stored predictions of ranked images: rows of full models on clean images, each with a distinct name.

    A full model knows all classes of the data set. Column `subject` has the distinct name.

    predict_rows: all rows of predictions.
    ranked:       the ranked images; only predictions of their splits are returned.
    """
    is_clean = predict_rows["shift"] == "clean"
    is_full = predict_rows["ncl"] == predict_rows["num_classes"]
    is_ranked = predict_rows["split"].isin(ranked["split"])
    is_best = predict_rows["snapshot"].fillna("best") == "best"  # not weights from the midst of a training
    is_of_dataset = predict_rows["dataset"] == dataset
    rows = predict_rows[is_clean & is_full & is_ranked & is_best & is_of_dataset]

    # names that are still equal within a split are extended by adaptation, then by seed, then by run
    rows = rows.assign(subject=rows[MODEL])
    for column, word in (("adaptation", ""), (SEED, "seed "), (RUN_ID, "run ")):
        is_ambiguous = rows.duplicated([SPLIT, SUBJECT], keep=False)
        suffix = ", " + word + rows[column].astype("string")
        rows[SUBJECT] += suffix.where(is_ambiguous).fillna("")
    return rows


def _gaps(store: Store, tested: pd.DataFrame, encoder: str, ranked: pd.DataFrame, k: int) -> pd.DataFrame:
    """A table with a line for each tested model and class, and one for each model with the mean gap over classes.

    The gap is the accuracy on the `k` images of a class with the strongest cues minus the accuracy on the `k` images
    with the weakest. Of a class with fewer than 3 k images a third is taken at either end; a class with fewer than
    three images is left out.

    tested:  rows of predictions, as from `_tested_models`.
    encoder: name of the model whose features rank the images; its name is marked in the lines.
    ranked:  the ranked images, strongest cues first.
    """
    if tested.empty:
        return SPURIOUS_GAP.frame([])

    lines: list[dict[Any, Any]] = []
    for row in records(tested.sort_values([SPLIT, SUBJECT])):
        model_columns = {column: row[column] for column in (DATASET, SPLIT, *_MODEL_COLUMNS)}
        if row[MODEL] == encoder:
            model_columns[SUBJECT] += ", the encoder"

        # image id -> whether this model predicts the image right
        predicted = predictions(store, row)
        items = store.items(row["fingerprint"])
        ids_of_split = items["image_id"][items["split"] == row[SPLIT]].to_numpy()
        right_by_image = pd.Series(predicted.right, ids_of_split[predicted.images])

        class_lines: list[dict[Any, Any]] = []
        for label, ranked_of_class in ranked[ranked["split"] == row[SPLIT]].groupby("label"):
            # strongest cues first; a ranked image that the model did not predict is dropped
            is_right = right_by_image.reindex(ranked_of_class["image_id"]).dropna().to_numpy(dtype=bool)
            n_at_end = min(k, len(is_right) // 3)
            if n_at_end:
                gap_columns = _gap(is_right[:n_at_end], is_right[-n_at_end:])
                class_lines.append({**model_columns, LABEL: label, K: n_at_end, **gap_columns})
        if not class_lines:
            continue

        class_gaps = np.array([line[GAP] for line in class_lines])
        mean_gap = mean_with_interval(class_gaps, within=SIGNED_FRACTION)
        mean_columns = dict(zip(interval_columns(GAP), mean_gap, strict=True))
        lines += [*class_lines, {**model_columns, LABEL: ALL_CLASSES, **mean_columns}]
    return SPURIOUS_GAP.frame(lines)


def _gap(top_right: np.ndarray, bottom_right: np.ndarray) -> dict[Any, float]:
    """GAP_COLUMNS: accuracy at the top and at the bottom of a ranking, and the gap (top minus bottom), with intervals.

    Accuracies have Wilson's intervals. The gap has Newcombe's (1998, method 10), which takes counts of pairs: both
    right, only one right, neither. Images at the top and at the bottom are not paired but independent, so it gets the
    counts that are expected of independent pairs: with the accuracies p and q, both are right in n p q of n pairs.

    top_right, bottom_right: whether each image of an end is predicted right; equally many of both ends.
    """
    n = len(top_right)
    p = float(top_right.mean())
    q = float(bottom_right.mean())

    # expected numbers among n pairs of a top and a bottom image
    n_both_right = n * p * q
    n_only_top = n * p * (1 - q)
    n_only_bottom = n * (1 - p) * q
    n_neither = n * (1 - p) * (1 - q)
    gap_interval = paired_interval(n_both_right, n_only_top, n_only_bottom, n_neither)

    values = (
        p,
        *wilson(int(top_right.sum()), n),
        q,
        *wilson(int(bottom_right.sum()), n),
        p - q,
        *gap_interval,
    )
    return dict(zip(GAP_COLUMNS, values, strict=True))


def _pictures(
    store: Store, fingerprint: str, ranked: pd.DataFrame, gaps: pd.DataFrame, n_pictures: int
) -> pd.DataFrame:
    """Lines of table spurious_pictures: the first and last images of the classes with the widest gaps, with thumbnails.

    Gaps in accuracy are means over models. The images are test images if these are ranked; otherwise they are of the
    ranked split that comes first in the alphabet.

    fingerprint: of the data set's images.
    ranked:      the ranked images, strongest cues first.
    gaps:        lines of table spurious_gap.
    n_pictures:  pictures at either end of a class; at most half of its images are shown there.
    """
    split = ranked["split"].min()  # in alphabetical order test comes first
    ranked = ranked[ranked["split"] == split].drop(columns="score")

    # means over models; a class without a gap comes last
    class_means = gaps[gaps["split"] == split].groupby("label")[[GAP, TOP, BOTTOM]].mean()
    class_means = class_means.reindex(ranked["label"].unique())
    widest = class_means.sort_values(GAP, ascending=False, kind="stable").head(PICTURED_CLASSES)

    frames: list[pd.DataFrame] = []
    for label, _, top_accuracy, bottom_accuracy in widest.itertuples():  # the gap itself was only to sort by
        images = ranked[ranked["label"] == label]
        images = images.assign(top_accuracy=top_accuracy, bottom_accuracy=bottom_accuracy)
        n_at_end = min(n_pictures, len(images) // 2)
        frames.append(images.head(n_at_end).assign(end="top"))
        frames.append(images.tail(n_at_end)[::-1].assign(end="bottom"))  # weakest cues first

    frame = pd.concat(frames, ignore_index=True)
    thumbnails = pictures(store, frame["image_id"].tolist(), fingerprint).thumbnails
    return SPURIOUS_PICTURES.frame(frame.assign(thumbnail=pd.Series(thumbnails, dtype="object")))


def ranks_of(store: Store, table_id: str | None, data: ImageData, rows: Int[np.ndarray, " rows"]) -> Any:
    """The rank of each of these images within its class; rank 1 has the strongest cues of the class.

    table_id: id of a saved table `spurious_ranks`; None: the ranks are in the images' annotation column `rank`.
    rows:     positions of the images in the items of the data.
    Raises FcaError for an unknown id, without the column, and if a class or an image has no rank.
    """
    images = data.items.iloc[rows]
    if table_id is not None:
        source = f"table {table_id}"
        ranks = _saved_ranks(store, table_id, data.name, images)
    elif "rank" in images:
        source = "column rank"
        ranks = pd.to_numeric(images["rank"], errors="coerce").to_numpy(np.float64)  # NaN for a text or an empty cell
    else:
        allowed = "id of a saved table spurious_ranks, or images with a column rank (dataset.ranks of hard_imagenet)"
        raise FcaError("adaptation.ranks", None, allowed, STEP)

    is_missing = np.isnan(ranks)
    unranked_classes = sorted(set(images["label"]) - set(images["label"][~is_missing]))
    if unranked_classes:
        raise FcaError("classes without ranks", ", ".join(unranked_classes), f"classes of {source}", "rank them too")
    if is_missing.any():
        first_missing = images["image_id"].iloc[is_missing.argmax()]
        value = f"{first_missing} and {is_missing.sum() - 1} others of {len(ranks)}"
        raise FcaError(f"images without ranks in {source}", value, "none", f"rank {data.name} anew")
    return ranks


def _saved_ranks(store: Store, table_id: str, dataset: str, images: pd.DataFrame) -> Float[np.ndarray, " images"]:
    """The ranks of these images in a saved table, NaN for an image that the table lacks.

    If the table has no line of this data set, images are looked up by class and id in the lines of all data sets.

    images: has columns label and image_id.
    """
    lines = _saved_lines(store, table_id)
    is_of_dataset = lines["dataset"] == dataset
    if is_of_dataset.any():
        lines = lines[is_of_dataset]

    keys = ["label", "image_id"]
    rank_by_image = lines.drop_duplicates(keys).set_index(keys)["rank"]
    return rank_by_image.reindex(pd.MultiIndex.from_frame(images[keys].astype(str))).to_numpy()


def _saved_lines(store: Store, table_id: str) -> pd.DataFrame:
    """The lines of a saved table `spurious_ranks`.

    Raises FcaError for an id of no such table, with a list of those that exist, and for a damaged table.
    """
    name_by_id = {saved_id: described["name"] for saved_id, described in store.saved_tables().items()}
    if name_by_id.get(table_id) != SPURIOUS_RANKS.name:
        rank_table_ids = [saved_id for saved_id, name in name_by_id.items() if name == SPURIOUS_RANKS.name]
        value = f"{table_id}, a table {name_by_id[table_id]}" if table_id in name_by_id else table_id
        allowed = f"a saved table spurious_ranks: {', '.join(rank_table_ids) or 'none yet'}"
        raise FcaError("adaptation.ranks", value, allowed, STEP)

    with refused_if_damaged("adaptation.ranks", table_id, "a whole table", "save it again: fca analyse"):
        return store.saved_lines(table_id, SPURIOUS_RANKS.columns)
