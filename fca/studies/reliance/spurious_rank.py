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
PAPER, EVERY = "Moayeri, Singla & Feizi, 2022 (Hard ImageNet), section 6", "all classes"
CLASSES = 6  # with pictures
RANK = Column("rank", float, ".1f", "rank among the images of the class in its split, 1: strongest cues")
SCORE = Column("score", float, ".3f", "mean rank over the features (lower: stronger), or mean z-score (higher)")
FEATURE = Column("feature", int, ".0f", "feature of the encoder")
IMPORTANCE = Column("importance", float, ".3f", "mean of feature times class weight over train images of the class")
SUBJECT = Column("subject", str, "", "model; the encoder: ranked by its own features", filters=True)
K = Column("k", int, ".0f", "images of either end of the ranking")
TOP = Column("top_accuracy", float, ".1%", "accuracy on the images with the strongest cues")
BOTTOM = Column("bottom_accuracy", float, ".1%", "accuracy on the images with the weakest cues")
GAP = Column("gap", float, "+.1%", "accuracy with the strongest cues minus accuracy with the weakest")
ENDS = (*interval_columns(TOP), *interval_columns(BOTTOM), *interval_columns(GAP))
END = Column("end", str, "", "end of the ranking", {"top": "strongest cues", "bottom": "weakest cues"})
_IMAGES, _MODEL = (DATASET, SPLIT, LABEL), (SUBJECT, MODEL, ADAPTATION, SEED)
_SHOWN = (RANK, END, THUMBNAIL, TOP, BOTTOM)
_TABLES = (
    ("spurious_ranks", "Which images of a class show its cues most strongly?", (*_IMAGES, IMAGE_ID, RANK, SCORE)),
    ("feature_importance", "Which features decide for a class?", (DATASET, ENCODER, LABEL, FEATURE, IMPORTANCE)),
    ("spurious_gap", "How much less accurate are models where cues are weak?", (*_IMAGES, *_MODEL, K, *ENDS)),
    ("spurious_pictures", "What do strong and weak cues look like?", (*_IMAGES, IMAGE_ID, *_SHOWN)),
)
SPECS = tuple(TableSpec(name, question, PAPER, columns) for name, question, columns in _TABLES)
SPURIOUS_RANKS, FEATURE_IMPORTANCE, SPURIOUS_GAP, SPURIOUS_PICTURES = SPECS


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
        """Raises FcaError for no features (or no layer on them), several encoders, and a file that is wrong."""
        rows = readable_rows(store, self.query)
        tested = apply_query(rows[rows["task"] == "predict"], self.query)
        lines, runs = list[Any](), list[str]()
        for row, layers in self._encoded(rows):
            items = store.items(row["fingerprint"])
            x = store.array(row["run_id"], "features", lines=len(items)).astype(np.float32)
            if self.features is None:
                layer, train = load_file(store.folder(layers[0]) / "best.safetensors"), items["split"] == "train"
                chosen = weights = important(x[train], items["label"][train], layer, self.top)
            else:
                chosen, weights = read_features(self.features, row, items, x.shape[1]), pd.DataFrame()
            ranked = _ranked(items, x, chosen, self.by).assign(dataset=row["dataset"])
            gaps, read = _gaps(store, tested, row, ranked, self.k)
            weights = weights.assign(dataset=row["dataset"], encoder=row["encoder"])
            lines.append((ranked, weights, gaps, _pictures(store, row["fingerprint"], ranked, gaps, self.shown)))
            runs += [row["run_id"], *layers, *read]
        gap = "Newcombe's interval; of the mean, Student's t over classes, corrected for skewness"
        parameters = asdict(self) | {"sha256": self.features and file_sha256(self.features), "gap": gap}
        frames = (pd.concat(part, ignore_index=True) for part in zip(*lines, strict=True))
        return filled(SPECS, frames, parameters, runs)

    def _encoded(self, rows: pd.DataFrame) -> Iterator[tuple[Row, list[str]]]:
        """The embed run to rank by, one a data set; and where no file chooses the features, a layer on them."""
        embedded = apply_query(rows[(rows["task"] == "embed") & (rows["split"] == "all")], self.query)
        if self.encoder is not None:
            embedded = embedded[(embedded["encoder"] == self.encoder) | (embedded["run_id"] == self.encoder)]
        linear = rows["adaptation"].isin(["probe", "head"]) & (rows["ncl"] == rows["num_classes"])
        layers = apply_query(rows[linear & rows["parent"].isin(embedded["run_id"])], self.query)
        layers = layers.sort_values(["adaptation", "seed"], ascending=[False, True])  # the probe, which is exact, first
        if self.features is None:
            embedded = embedded[embedded["run_id"].isin(layers["parent"])]
        what = "embed rows of all images" + " with a probe or head on them" * (not self.features)
        require_rows(embedded, what, len(rows), COMMAND)
        for dataset, part in embedded.groupby("dataset"):
            if len(part) > 1:
                found = ", ".join(part["encoder"] + " (run " + part["run_id"] + ")")
                raise FcaError(f"encoders on {dataset}", found, "one", "choose it: analysis.encoder=NAME or run")
            [row] = records(part)
            yield row, layers["run_id"][layers["parent"] == row["run_id"]].tolist()[: self.features is None]


def important(x: Float[np.ndarray, "images features"], labels: pd.Series, layer: Any, top: int) -> pd.DataFrame:
    """The `top` features of each class by mean(feature * weight) over its images that a linear layer gets right.

    labels: categorical, in label order.    layer: weight and bias. Over all images of a class that it never gets right.
    """
    right, lines = (x @ layer["weight"].T + layer["bias"]).argmax(axis=1) == labels.cat.codes, list[dict[str, Any]]()
    for label, weight in zip(labels.cat.categories, layer["weight"], strict=True):
        own = labels == label
        value = x[own & right if (own & right).any() else own].mean(axis=0) * weight
        best = np.argsort(-value, kind="stable")[:top].tolist()
        lines += [{"label": label, "feature": feature, "importance": value[feature]} for feature in best]
    return pd.DataFrame(lines)


def read_features(file: str, row: Row, items: pd.DataFrame, n: int) -> pd.DataFrame:
    """Annotated features: columns label and feature. Raises FcaError for a file, class or feature that is none."""
    frame = read_table(file, file) if Path(file).is_file() else pd.DataFrame()
    if frame.empty or not {"class", "feature"} <= set(frame):
        raise FcaError("analysis.features", file, "a CSV file with columns class and feature", "correct it")
    known = {"class": set(items["label"]), "feature": {str(feature) for feature in range(n)}}
    for column, allowed in {"class": f"classes of {row['dataset']}", "feature": f"0 to {n - 1}"}.items():
        if len(wrong := frame[column][~frame[column].isin(known[column])]):
            check_meant(f"{column} in {file}", wrong, known[column], f"the data set {row['dataset']}")
            raise FcaError(f"{column} in {file}", wrong.iloc[0], allowed, f"features are of {row['encoder']}")
    return frame.rename(columns={"class": "label"}).astype({"feature": int})


def cue_ranks(features: Float[np.ndarray, "images chosen"], by: str) -> tuple[Any, Any]:
    """Score and rank (1: strongest) of a class's images by their chosen features; ties get the mean of their ranks.

    by: rank = mean rank over the features; zscore = mean of (f - mean) / standard deviation, 0 for a constant feature.

    >>> cue_ranks(np.array([[0.0, 5.0], [2.0, 6.0], [1.0, 7.0]]), "rank")
    (array([3. , 1.5, 1.5]), array([3. , 1.5, 1.5]))
    """
    if by == "rank":
        score = rankdata(-features, axis=0).mean(axis=1)
        return score, rankdata(score)
    spread = features.std(axis=0)
    score = ((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).mean(axis=1)
    return score, rankdata(-score)


def _ranked(items: pd.DataFrame, x: np.ndarray, chosen: pd.DataFrame, by: str) -> pd.DataFrame:
    """The images of the classes with chosen features, ranked within class and split, strongest cues first."""
    frame = items[["label", "image_id", "split"]].astype({"label": str})
    for label, features in chosen.groupby("label")["feature"]:
        groups: Any = frame[frame["label"] == label].groupby("split").groups
        for at in groups.values():
            frame.loc[at, ["score", "rank"]] = np.stack(cue_ranks(x[at][:, features.tolist()], by), axis=1)
    return frame.dropna(subset="rank").sort_values(["label", "split", "rank"], kind="stable")


def _gaps(store: Store, rows: pd.DataFrame, encoded: Row, ranked: pd.DataFrame, k: int) -> tuple[Any, list[str]]:
    """Accuracies at both ends of every class, and their mean gap, of each model that predicted a ranked split."""
    whole = (rows["shift"] == "clean") & (rows["ncl"] == rows["num_classes"]) & rows["split"].isin(ranked["split"])
    rows = rows[whole & (rows["snapshot"].fillna("best") == "best") & (rows["dataset"] == encoded["dataset"])]
    rows = rows.assign(subject=rows[MODEL])
    for column, word in (("adaptation", ""), (SEED, "seed "), (RUN_ID, "run ")):  # as far as names are alike
        alike = rows.duplicated([SPLIT, SUBJECT], keep=False)
        rows[SUBJECT] += (", " + word + rows[column].astype("string")).where(alike).fillna("")
    lines = list[dict[Any, Any]]()
    for row in records(rows.sort_values([SPLIT, SUBJECT]) if len(rows) else rows):
        about = {column: row[column] for column in (DATASET, SPLIT, *_MODEL)}
        about[SUBJECT] += ", the encoder" * (row[MODEL] == encoded["encoder"])
        found, items = predictions(store, row), store.items(row["fingerprint"])
        right = pd.Series(found.right, items["image_id"][items["split"] == row[SPLIT]].to_numpy()[found.images])
        of = list[dict[Any, Any]]()
        for label, part in ranked[ranked["split"] == row[SPLIT]].groupby("label"):
            ordered = right.reindex(part["image_id"]).dropna().to_numpy(dtype=bool)
            if n := min(k, len(ordered) // 3):
                of.append({**about, LABEL: label, K: n, **_gap(ordered[:n], ordered[-n:])})
        mean = mean_with_interval(np.array([line[GAP] for line in of]), within=SIGNED_FRACTION)
        lines += [*of, {**about, LABEL: EVERY, **dict(zip(interval_columns(GAP), mean, strict=True))}] if of else []
    return SPURIOUS_GAP.frame(lines), rows["run_id"].tolist()


def _gap(top: np.ndarray, bottom: np.ndarray) -> dict[Any, float]:
    """Accuracies of both ends with Wilson's intervals; their difference with that of Newcombe, 1998, method 10.

    Of independent images: of pairs that are right together as often as the product of both accuracies.
    """
    n, p, q = len(top), float(top.mean()), float(bottom.mean())
    ends = paired_interval(n * p * q, n * p * (1 - q), n * (1 - p) * q, n * (1 - p) * (1 - q))
    values = (p, *wilson(int(top.sum()), n), q, *wilson(int(bottom.sum()), n), p - q, *ends)
    return dict(zip(ENDS, values, strict=True))


def _pictures(store: Store, fingerprint: str, ranked: pd.DataFrame, gaps: pd.DataFrame, shown: int) -> pd.DataFrame:
    """The first and the last images of the classes with the widest gaps: test images if they are ranked, else train."""
    split = ranked["split"].min()
    ranked = ranked[ranked["split"] == split].drop(columns="score")
    mean = gaps[gaps["split"] == split].groupby("label")[[GAP, TOP, BOTTOM]].mean().reindex(ranked["label"].unique())
    frames = list[pd.DataFrame]()
    for label, _, top, bottom in mean.sort_values(GAP, ascending=False, kind="stable").head(CLASSES).itertuples():
        its = ranked[ranked["label"] == label].assign(top_accuracy=top, bottom_accuracy=bottom)
        n = min(shown, len(its) // 2)
        frames += [its.head(n).assign(end="top"), its.tail(n)[::-1].assign(end="bottom")]
    frame = pd.concat(frames, ignore_index=True)
    found = pictures(store, frame["image_id"].tolist(), fingerprint).thumbnails
    return SPURIOUS_PICTURES.frame(frame.assign(thumbnail=pd.Series(found, dtype="object")))


def ranks_of(store: Store, table_id: str | None, data: ImageData, rows: Int[np.ndarray, " rows"]) -> Any:
    """The rank of each of these images (positions in items); 1: strongest cues.

    table_id: of a saved table `spurious_ranks`; None: the images' own annotation column `rank`.
    Raises FcaError for an id that is none, no such column, a class without ranks, and images that have none.
    """
    wanted, keys, where = data.items.iloc[rows], ["label", "image_id"], f"table {table_id}"
    if table_id is not None:
        frame = _saved(store, table_id)
        frame = frame[frame["dataset"] == data.name] if (frame["dataset"] == data.name).any() else frame
        rank = frame.drop_duplicates(keys).set_index(keys)["rank"]
        found = rank.reindex(pd.MultiIndex.from_frame(wanted[keys].astype(str))).to_numpy()
    elif "rank" in wanted:
        where, found = "column rank", pd.to_numeric(wanted["rank"], errors="coerce").to_numpy(np.float64)
    else:
        allowed = "id of a saved table spurious_ranks, or images with a column rank (dataset.ranks of hard_imagenet)"
        raise FcaError("adaptation.ranks", None, allowed, STEP)
    missing = np.isnan(found)
    if lacking := sorted(set(wanted["label"]) - set(wanted["label"][~missing])):
        raise FcaError("classes without ranks", ", ".join(lacking), f"classes of {where}", "rank them too")
    if missing.any():
        value = f"{wanted['image_id'].iloc[missing.argmax()]} and {missing.sum() - 1} others of {len(found)}"
        raise FcaError(f"images without ranks in {where}", value, "none", f"rank {data.name} anew")
    return found


def _saved(store: Store, table_id: str) -> pd.DataFrame:
    names = {saved_id: described["name"] for saved_id, described in store.saved_tables().items()}
    if names.get(table_id) != SPURIOUS_RANKS.name:
        known = ", ".join(found for found, name in names.items() if name == SPURIOUS_RANKS.name) or "none yet"
        value = f"{table_id}, a table {names[table_id]}" if table_id in names else table_id
        raise FcaError("adaptation.ranks", value, f"a saved table spurious_ranks: {known}", STEP)
    with refused_if_damaged("adaptation.ranks", table_id, "a whole table", "save it again: fca analyse"):
        return store.saved_lines(table_id, SPURIOUS_RANKS.columns)
