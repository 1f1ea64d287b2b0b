"""Which images show a class's cues most strongly, and how much accuracy depends on these (analysis=spurious_rank)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from safetensors.numpy import load_file
from scipy.stats import rankdata

from fca.allowed import Allowed
from fca.identity import file_sha256
from fca.report.pictures import pictures
from fca.stats.intervals import SIGNED_FRACTION, mean_with_interval, wilson
from fca.store import Store
from fca.store.columns import ADAPTATION
from fca.store.files import DamagedFile, read_frame, read_object
from fca.studies.answers import predictions
from fca.studies.rows import every_row, narrowed, records, require
from fca.studies.table import DATASET, ENCODER, IMAGE_ID, LABEL, MODEL, SEED, SPLIT, TableSpec, filled
from fca.types import Column, FcaError, ImageData, Table, with_interval

COMMAND = "fca run model=resnet50 model.weights=pretrained adaptation=probe"
PAPER, EVERY = "Moayeri et al. 2022 (Hard ImageNet), section 6", "all classes"
CLASSES = 6  # with pictures
RANK = Column("rank", float, ".1f", "rank among the images of the class in its split, 1: strongest cues")
SCORE = Column("score", float, ".3f", "mean rank over the features (lower: stronger), or mean z-score (higher)")
FEATURE = Column("feature", int, ".0f", "feature of the encoder")
IMPORTANCE = Column("importance", float, ".3f", "mean of feature times class weight over the images counted")
N_IMAGES = Column("n_images", int, ",", "train images of the class that the layer gets right (all, if none)")
SUBJECT = Column("subject", str, "", "model, adaptation, seed; the encoder: ranked by its own features", filters=True)
K = Column("k", int, ".0f", "images of either end of the ranking")
TOP = Column("top_accuracy", float, ".1%", "accuracy on the images with the strongest cues")
BOTTOM = Column("bottom_accuracy", float, ".1%", "accuracy on the images with the weakest cues")
GAP = Column("gap", float, "+.1%", "accuracy with the strongest cues minus accuracy with the weakest")
END = Column("end", str, "", "end of the ranking", {"top": "strongest cues", "bottom": "weakest cues"})
PLACE = (Column("row", int, ".0f", "row in the figure"), Column("column", int, ".0f", "column in the figure"))
THUMBNAIL = Column("thumbnail", str, "", "picture")
MODELS = (DATASET, SPLIT, SUBJECT, MODEL, ADAPTATION, SEED)
QUESTIONS = {
    "spurious_ranks": "Which images of a class show its cues most strongly?",
    "feature_importance": "Which features of the encoder decide for a class?",
    "spurious_gap": "How much less accurate are models where the cues of a class are weak?",
    "spurious_pictures": "What do images with strong and with weak cues look like?",
}
COLUMNS = (
    (DATASET, LABEL, IMAGE_ID, SPLIT, RANK, SCORE),
    (DATASET, ENCODER, LABEL, FEATURE, IMPORTANCE, N_IMAGES),
    (*MODELS, LABEL, K, *with_interval(TOP), *with_interval(BOTTOM), *with_interval(GAP)),
    (DATASET, SPLIT, LABEL, END, RANK, IMAGE_ID, THUMBNAIL, TOP, BOTTOM, *PLACE),
)
SPECS = tuple(TableSpec(name, QUESTIONS[name], PAPER, its) for name, its in zip(QUESTIONS, COLUMNS, strict=True))
SPURIOUS_RANKS, FEATURE_IMPORTANCE, SPURIOUS_GAP, SPURIOUS_PICTURES = SPECS


class Encoded(NamedTuple):
    """The embedded images of one data set, and a linear layer on them where no file chooses the features."""

    row: Mapping[str, Any]
    items: pd.DataFrame
    x: Float[np.ndarray, "images features"]
    layer: Mapping[str, np.ndarray] | None
    runs: list[str]


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


def importance(
    x: Float[np.ndarray, "images features"], labels: Int[np.ndarray, " images"], layer: Mapping[str, np.ndarray]
) -> Iterator[tuple[Float[np.ndarray, " features"], int]]:
    """Of each class mean(feature * class weight) over those images that the layer gets right, and their number."""
    right = (x @ layer["weight"].T + layer["bias"]).argmax(axis=1) == labels
    for label, weight in enumerate(layer["weight"]):
        used = (labels == label) & right
        used = used if used.any() else labels == label
        yield x[used].mean(axis=0) * weight, int(used.sum())


@dataclass(frozen=True)
class SpuriousRank:
    """`analysis=spurious_rank`; ranks the images of an `embed` run by features, and reads `predict` runs on them.

    query:   narrows the rows.    encoder: name of an encoder, or id of an embed run, where there are several.
    features: a CSV of the annotated features (columns class, feature); null: the `top` most important ones of a class,
             by the weights of a probe or head on the same features. Important ones may lie on the object.
    by:      rank = mean rank over the features as in the paper, zscore = mean z-score.
    k:       images of either end that accuracies are compared on, at most a third of a class.
    shown:   pictures of either end, of the CLASSES with the widest gaps.
    """

    tables: ClassVar = SPECS

    query: str | None = None
    encoder: str | None = None
    features: str | None = None
    top: Annotated[int, Allowed(1)] = 5
    by: Annotated[str, Allowed(choices=("rank", "zscore"))] = "rank"
    k: Annotated[int, Allowed(1)] = 100
    shown: Annotated[int, Allowed(1)] = 6

    def __call__(self, store: Store) -> list[Table]:
        """Raises FcaError for no features (or no layer on them), several encoders, and a file that is wrong."""
        rows = every_row(store, self.query)
        lines: list[list[pd.DataFrame]] = [[], [], [], []]
        runs = list[str]()
        for one in self._encoded(store, rows):
            weights, chosen = self._chosen(one)
            ranked = _ranked(one, chosen, self.by)
            gaps, read = _gaps(store, narrowed(rows[rows["task"] == "predict"], self.query), one, ranked, self.k)
            for at, part in enumerate((ranked, weights, gaps, _pictures(store, one, ranked, gaps, self.shown))):
                lines[at].append(part)
            runs += [*one.runs, *read]
        digest = {} if self.features is None else {"sha256": file_sha256(self.features)}
        parameters = {**asdict(self), **digest, "gap": "Newcombe's interval; of the mean, bootstrap over classes"}
        return filled(SPECS, (pd.concat(part, ignore_index=True) for part in lines), parameters, runs)

    def _encoded(self, store: Store, rows: pd.DataFrame) -> Iterator[Encoded]:
        """The features to rank by, one encoder a data set."""
        of = (rows["task"] == "embed") & rows["split"].isin(["all", "train"]) & (rows["shift"] == "clean")
        embedded = narrowed(rows[of], self.query)
        if self.encoder is not None:
            embedded = embedded[(embedded["encoder"] == self.encoder) | (embedded["run_id"] == self.encoder)]
        linear = rows["adaptation"].isin(["probe", "head"]) & (rows["ncl"] == rows["num_classes"])
        layers = narrowed(rows[linear & rows["parent"].isin(embedded["run_id"])], self.query)
        if self.features is None:
            embedded = embedded[embedded["run_id"].isin(layers["parent"])]
        what = "embed rows of all images" + " with a probe or head on them" * (not self.features)
        require(embedded, what, len(rows), COMMAND)
        for dataset, part in embedded.groupby("dataset"):
            if len(part) > 1:
                found = ", ".join(f"{row['encoder']} (run {row['run_id']})" for row in records(part))
                raise FcaError(f"encoders on {dataset}", found, "one", "choose it: analysis.encoder=NAME or run")
            [row] = records(part)
            items = store.items(row["fingerprint"])
            items = items if row["split"] == "all" else items[items["split"] == "train"]
            x = store.array(row["run_id"], "features", lines=len(items)).astype(np.float32)
            own = layers[layers["parent"] == row["run_id"]].sort_values(["adaptation", "seed"], ascending=[False, True])
            used = [] if self.features else own["run_id"].head(1).tolist()  # the probe, which is exact, before a head
            layer = load_file(store.folder(used[0]) / "best.safetensors") if used else None
            yield Encoded(row, items.reset_index(drop=True), x, layer, [row["run_id"], *used])

    def _chosen(self, one: Encoded) -> tuple[pd.DataFrame, dict[str, list[int]]]:
        """The importance of the chosen features, where a layer gives it; and class -> its chosen features."""
        if self.features is not None:
            return FEATURE_IMPORTANCE.frame([]), read_features(self.features, one)
        classes, train = one.items["label"].cat.categories.tolist(), (one.items["split"] == "train").to_numpy()
        about, lines, chosen = {"dataset": one.row["dataset"], "encoder": one.row["encoder"]}, list[Any](), {}
        labels = one.items["label"].cat.codes.to_numpy()[train]
        for label, (weights, n) in zip(classes, importance(one.x[train], labels, one.layer or {}), strict=True):
            chosen[label] = np.argsort(-weights, kind="stable")[: self.top].tolist()
            of = {**about, "label": label, "n_images": n}
            lines += [{**of, "feature": feature, "importance": float(weights[feature])} for feature in chosen[label]]
        return FEATURE_IMPORTANCE.frame(lines), chosen


def read_features(file: str, one: Encoded) -> dict[str, list[int]]:
    """Class -> its annotated features, from a CSV. Raises FcaError for a file, class or feature that is none."""
    if not Path(file).is_file() or not {"class", "feature"} <= set(frame := pd.read_csv(file, dtype=str)):
        raise FcaError("analysis.features", file, "a CSV file with columns class and feature", "correct it")
    known = {"class": set(one.items["label"]), "feature": set(map(str, range(one.x.shape[1])))}
    for column, names in known.items():
        if len(wrong := frame.loc[~frame[column].isin(names), column]):
            allowed = f"classes of {one.row['dataset']}" if column == "class" else f"0 to {one.x.shape[1] - 1}"
            raise FcaError(f"{column} in {file}", wrong.iloc[0], allowed, f"features are of {one.row['encoder']}")
    return {str(label): part.astype(int).tolist() for label, part in frame.groupby("class")["feature"]}


def _ranked(one: Encoded, chosen: Mapping[str, list[int]], by: str) -> pd.DataFrame:
    """Every embedded image of the classes with chosen features, ranked within its class and split."""
    frame = one.items[["label", "image_id", "split"]].astype({"label": str}).assign(dataset=one.row["dataset"])
    groups: Any = frame.groupby(["label", "split"]).indices
    for (label, _), at in groups.items():
        if label in chosen:
            score, rank = cue_ranks(one.x[np.ix_(at, chosen[label])], by)
            frame.loc[at, ["score", "rank"]] = np.stack([score, rank], axis=1)
    return SPURIOUS_RANKS.frame(frame.dropna(subset="rank"))


def _gaps(store: Store, rows: pd.DataFrame, one: Encoded, ranked: pd.DataFrame, k: int) -> tuple[Any, list[str]]:
    """Accuracies at both ends of every class, and their mean gap, of each model that predicted a ranked split."""
    whole = (rows["shift"] == "clean") & (rows["ncl"] == rows["num_classes"]) & rows["split"].isin(ranked["split"])
    rows = rows[whole & (rows["snapshot"].fillna("best") == "best") & (rows["dataset"] == one.row["dataset"])]
    lines, named = list[dict[str, Any]](), set[str]()
    for row in records(rows.sort_values(["model", "adaptation", "seed", "run_id"])):
        known = {name: None if pd.isna(row[name]) else row[name] for name in ("model", "adaptation", "seed")}
        words = [f"seed {int(v)}" if name == "seed" else v for name, v in known.items() if v is not None]
        subject = ", ".join([*words, *["the encoder"] * (row["model"] == one.row["encoder"])])
        subject += f", run {row['run_id']}" * (subject + row["split"] in named)
        named.add(subject + row["split"])
        about = {**known, "dataset": row["dataset"], "split": row["split"], "subject": subject}
        found, items = predictions(store, row), store.items(row["fingerprint"])
        right = pd.Series(found.right, items["image_id"][items["split"] == row["split"]].to_numpy()[found.images])
        of = list[dict[str, Any]]()
        for label, part in ranked[ranked["split"] == row["split"]].groupby("label", sort=False):
            ordered = right.reindex(part.sort_values("rank", kind="stable")["image_id"]).dropna().to_numpy(dtype=bool)
            if n := min(k, len(ordered) // 3):
                of.append({**about, "label": label, "k": n, **_gap(ordered[:n], ordered[-n:])})
        mean = mean_with_interval(np.array([line[GAP] for line in of]), within=SIGNED_FRACTION)
        lines += [*of, {**about, "label": EVERY, **dict(zip(with_interval(GAP), mean, strict=True))}] if of else []
    return SPURIOUS_GAP.frame(lines), rows["run_id"].tolist()


def _gap(top: np.ndarray, bottom: np.ndarray) -> dict[str, float]:
    """Accuracies of both ends with Wilson's intervals; of their difference Newcombe's of independent images (1998).

    d - sqrt((p1 - l1)^2 + (u2 - p2)^2) to d + sqrt((u1 - p1)^2 + (p2 - l2)^2)    (Stat. Med. 17:873, method 10)
    """
    (p1, l1, u1), (p2, l2, u2) = ((end.mean(), *wilson(int(end.sum()), len(end))) for end in (top, bottom))
    gap = (p1 - p2, p1 - p2 - np.hypot(p1 - l1, u2 - p2), p1 - p2 + np.hypot(u1 - p1, p2 - l2))
    names = [str(end) for column in (TOP, BOTTOM, GAP) for end in with_interval(column)]
    return {name: float(value) for name, value in zip(names, (p1, l1, u1, p2, l2, u2, *gap), strict=True)}


def _pictures(store: Store, one: Encoded, ranked: pd.DataFrame, gaps: pd.DataFrame, shown: int) -> pd.DataFrame:
    """The first and the last images of the classes with the widest gaps: test images if they are ranked, else train."""
    split = "test" if (ranked["split"] == "test").any() else "train"
    means = gaps[(gaps["split"] == split) & (gaps["label"] != EVERY)].astype({TOP: float, BOTTOM: float, GAP: float})
    mean = means.groupby("label")[[TOP, BOTTOM, GAP]].mean().sort_values(GAP, ascending=False)
    ranked, frames = ranked[ranked["split"] == split].sort_values("rank", kind="stable"), list[pd.DataFrame]()
    for label in list(dict.fromkeys([*mean.index, *sorted(ranked["label"].unique())]))[:CLASSES]:
        its = ranked[ranked["label"] == label].drop(columns="score")
        n, (top, bottom) = min(shown, len(its) // 2), mean.reindex([label])[[TOP, BOTTOM]].to_numpy()[0]
        for row, (end, part) in enumerate({"top": its.head(n), "bottom": its.tail(n)[::-1]}.items()):
            frames.append(part.assign(end=end, row=row, column=range(n), top_accuracy=top, bottom_accuracy=bottom))
    frame = pd.concat(frames, ignore_index=True)
    found = pictures(store, frame["image_id"].tolist(), one.row["fingerprint"]).thumbnails
    return SPURIOUS_PICTURES.frame(frame.assign(thumbnail=pd.Series(found, dtype="object")))


def ranks_of(
    store: Store, table_id: str, data: ImageData, rows: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
    """The rank of each of these images (positions in items) in a saved table `spurious_ranks`; 1: strongest cues.

    Raises FcaError for an id that is none, a class without ranks, and images that the table lacks.
    """
    folder, names = store.outputs / "tables", dict[str, str]()
    for path in sorted(folder.glob("*/table.json")):
        with suppress(DamagedFile):
            names[path.parent.name] = read_object(path, name=str)["name"]
    if names.get(table_id) != SPURIOUS_RANKS.name:
        known = ", ".join(found for found, name in names.items() if name == SPURIOUS_RANKS.name) or "none yet"
        value = f"{table_id}, a table {names[table_id]}" if table_id in names else table_id
        step = "make one: fca analyse analysis=spurious_rank"
        raise FcaError("adaptation.ranks", value, f"a saved table spurious_ranks: {known}", step)
    try:
        frame = read_frame(folder / table_id / "table.parquet", table_id)[
            [str(name) for name in SPURIOUS_RANKS.columns]
        ]
    except (DamagedFile, KeyError) as error:
        raise FcaError("adaptation.ranks", table_id, f"a whole table: {error}", "save it again: fca analyse") from error
    frame = frame[frame["dataset"] == data.name] if (frame["dataset"] == data.name).any() else frame
    wanted = data.items.iloc[rows]
    if len(lacking := set(wanted["label"]) - set(frame["label"])):
        raise FcaError(
            "classes without ranks", ", ".join(sorted(lacking)), f"classes of table {table_id}", "rank them too"
        )
    rank = frame.drop_duplicates(["label", "image_id"]).set_index(["label", "image_id"])["rank"]
    found = rank.reindex(pd.MultiIndex.from_frame(wanted[["label", "image_id"]].astype(str))).to_numpy()
    if (missing := np.isnan(found)).any():
        what, first = f"images without ranks in table {table_id}", wanted["image_id"].iloc[missing.argmax()]
        raise FcaError(
            what, f"{first} and {missing.sum() - 1} others of {len(found)}", "none", f"rank {data.name} anew"
        )
    return found
