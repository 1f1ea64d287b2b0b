"""Which stored rows an analysis reads, and whether they may stand in one table."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import pandas as pd

from fca.identity import fingerprint
from fca.store import Store
from fca.store.columns import (
    ADAPTATION,
    CLASSES,
    COMPAT,
    CORRUPTED_AT,
    DATASET,
    ENCODER,
    FINGERPRINT,
    FLAG,
    INPUT_SIZE,
    LIMIT,
    MODEL,
    NUM_CLASSES,
    PENALTY_BY,
    SAMPLER,
    SHIFT,
    SNAPSHOT,
    SPLIT,
    TASK,
    WEIGHTS,
    ZERO_SHOT,
)
from fca.store.diverged import DIVERGED
from fca.store.query import columns_of, conditions_of, kept
from fca.types import FcaError

# Columns of what was requested, beside `recipe_*`. The axes of the analyses here are dataset, model or encoder,
# classes (with ncl and subset_seed) and seed; whatever else differs is never averaged over or compared unnoticed.
CONFIG = (FINGERPRINT, NUM_CLASSES, SPLIT, SHIFT, CORRUPTED_AT, SAMPLER, COMPAT)
# These may differ between models; within one, even a missing value counts.
OF_WEIGHTS = (ADAPTATION, PENALTY_BY, WEIGHTS, SNAPSHOT, INPUT_SIZE, ZERO_SHOT)
OF_MODELS = (DATASET, FINGERPRINT, MODEL, CLASSES)
OF_SIZE = ("recipe_passes", "recipe_val_max")  # follow from how many images the classes have: one value for each subset
NEEDED = {
    **dict.fromkeys(("train", "predict", "score", "adaptive_test"), OF_MODELS),
    "embed": (*OF_MODELS[:2], ENCODER),
}
"""What a row of each task has, if it is one of ours; a store may come from elsewhere."""
SHORT = 6  # hex digits of a fingerprint that names a version
CUT = "70/10/20"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rows:
    """The rows that the few-class analyses read, by what they are.

    trained:  `train` rows: sub-models, and full models where ncl is the number of classes.
    full:     those of `by_full_models` on clean images, with the best weights (not snapshots of training).
    scored:   `score` rows of those: class subsets that full models were scored on, whether or not one was trained.
    embedded: `embed` rows of one split.
    """

    trained: pd.DataFrame
    full: pd.DataFrame
    scored: pd.DataFrame
    embedded: pd.DataFrame
    total: int  # rows in the store, whatever the query

    @property
    def models(self) -> pd.DataFrame:
        """Trained and full together."""
        return pd.concat([self.trained, self.full])


def select(store: Store, query: str | None, split: str = "test") -> Rows:
    """Read the store once.

    query: each of its conditions narrows the kinds of row that have its columns: recipe_epochs == 5 leaves `embed` rows
           alone.
    split: of the embedded images.
    """
    rows = every_row(store, query)
    clean = rows["shift"] == "clean"
    final = rows["snapshot"].fillna("best") == "best"  # weights on the way there are other models
    full = by_full_models(rows) & clean & final
    embedded = (rows["task"] == "embed") & (rows["split"] == split) & clean
    trained, complete = narrowed(rows[rows["task"] == "train"], query), narrowed(rows[full], query)
    scored = narrowed(rows[(rows["task"] == "score") & rows["parent"].isin(complete["run_id"])], query)
    scored = scored[scored["ncl"] < scored["num_classes"]]
    trained, complete, scored, similar = by_version(store, [trained, complete, scored], narrowed(rows[embedded], query))
    model = _distinct_names(pd.concat([trained, complete]))
    return Rows(
        trained=trained.assign(model=model[trained.index]),
        full=complete.assign(model=model[complete.index]),
        scored=scored,
        embedded=similar,
        total=len(rows),
    )


def by_full_models(rows: pd.DataFrame) -> pd.Series:
    """Which are `predict` rows on test images by classifiers that know every class of the data set."""
    every_class = (rows["ncl"] == rows["num_classes"]).fillna(value=False)
    return (rows["task"] == "predict") & every_class & (rows["split"] == "test")


def every_row(store: Store, query: str | None) -> pd.DataFrame:
    """All stored rows, once it is known that the query can be read on them; see `narrowed`.

    Those that lack what a row of their task has (NEEDED) are left out, with a line in the log; so are those of
    trainings that diverged, and of what was made with their weights.
    """
    rows = store.rows()
    for task, needed in NEEDED.items():
        lacking = (rows[TASK] == task) & rows[list(needed)].isna().any(axis="columns")
        for run_id in rows["run_id"][lacking]:
            log.warning("run %s is left out: its row lacks one of %s", run_id, ", ".join(needed))
        if lacking.any():
            rows = rows[~lacking]
    if query is not None:
        kept(rows, query, "analysis.query")
    return without_diverged(rows)


def without_diverged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows but for those of trainings that diverged (see fca.store.diverged), which a line in the log counts."""
    is_diverged = rows[FLAG].eq(DIVERGED).fillna(value=False).astype(bool)
    if not is_diverged.any():
        return rows
    _warn_of_diverged(int((is_diverged & (rows[TASK] == "train")).sum()), int(is_diverged.sum()))
    return rows[~is_diverged]


@cache
def _warn_of_diverged(trainings: int, rows: int) -> None:
    """Once a process: a report reads the same rows for each of its analyses."""
    which = "1 training that diverged is" if trainings == 1 else f"{trainings} trainings that diverged are"
    others = f", with {rows - trainings} rows of what these weights answered" if rows > trainings else ""
    log.warning("%s left out%s: no accuracy (fca results flag=diverged)", which, others)


def by_version(store: Store, models: Sequence[pd.DataFrame], embedded: pd.DataFrame) -> list[pd.DataFrame]:
    """These rows, with a name of its own in column `dataset` for every version of a data set that is among them.

    cifar100, where there is one. Of several, a look at its first images is `cifar100 (limit 20)`, and the whole one
    cifar100; several whole ones (or older rows, without a limit) are `cifar100 (3f2a91)`, by their fingerprint.
    A set that is all test and its 70/10/20 cut, which networks train on, are one version: features of all images stand
    beside accuracies on the cut's test images. Where models were tested on both, these are two, with the features of
    all images for each.

    Column `stored` keeps the name that is stored: versions of one data set are no independent data sets.
    models: rows of trainings and predictions.    embedded: of features.
    """
    tested = pd.concat(models)
    read = pd.concat([tested, embedded])
    of_models: dict[str, str] = {}
    of_features: dict[str, list[str]] = {}
    for dataset, part in read.groupby(DATASET):
        if len(set(part[FINGERPRINT])) == 1:
            continue
        rows = store.rows()
        whole, words = _versions(store, part, rows[rows[DATASET] == dataset])
        for version, its in words.items():
            places = sorted({one for one in tested[FINGERPRINT] if whole.get(one) == version})
            for one in places:
                place = [] if len(places) == 1 else ["all test" if one == version else CUT]
                of_models[one] = _called(str(dataset), [*its, *place])
            of_features[version] = [of_models[one] for one in places] or [_called(str(dataset), its)]
    single = {one: [name] for one, name in of_models.items()}
    return [*(_renamed(rows, single) for rows in models), _renamed(embedded, of_features)]


def _renamed(rows: pd.DataFrame, names: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """These rows, each as often as its fingerprint has names."""
    if not names:
        return rows.assign(stored=rows[DATASET])
    pairs = zip(rows[FINGERPRINT], rows[DATASET], strict=True)
    found = pd.Series([names.get(one, [name]) for one, name in pairs], rows.index, dtype="object")
    return rows.assign(stored=rows[DATASET], dataset=found).explode(DATASET).astype({DATASET: "str"})


def _called(dataset: str, words: Sequence[str]) -> str:
    return f"{dataset} ({', '.join(words)})" if words else dataset


def _versions(store: Store, read: pd.DataFrame, known: pd.DataFrame) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Fingerprint -> its version, which is that of the set as it was before the cut; and what distinguishes each.

    read: the rows of one data set that are read.    known: all of it that are stored.
    """
    whole = _uncut(store, tuple(sorted(known[FINGERPRINT].dropna().unique())))
    limits = known.dropna(subset=LIMIT).set_index(FINGERPRINT)[LIMIT] if LIMIT in known else pd.Series(dtype="int64")
    limit = {whole[str(one)]: f"limit {int(images)}" for one, images in limits.items()}
    versions = sorted({whole[one] for one in read[FINGERPRINT]})
    if len(versions) == 1:
        return whole, {versions[0]: []}
    looks = [limit.get(one) for one in versions]
    words = {
        one: [word for word in (look, one[:SHORT] if looks.count(look) > 1 else None) if word is not None]
        for one, look in zip(versions, looks, strict=True)
    }
    return whole, words


@lru_cache(maxsize=32)
def _uncut(store: Store, fingerprints: tuple[str, ...]) -> dict[str, str]:
    """Fingerprint -> that of the set of which it is the cut for training (fca.data.splits.for_training), or itself."""
    items = {one: store.items(one) for one in fingerprints}
    uncut = [one for one, of in items.items() if set(of["split"]) == {"test"}]
    found = {}
    for one, of in items.items():
        alike = (other for other in uncut if other != one and len(items[other]) == len(of))
        found[one] = next((other for other in alike if fingerprint(of, other) == one), one)
    return found


def _distinct_names(rows: pd.DataFrame) -> pd.Series:
    """Names: where networks came to a data set's classes in several ways, `resnet18, probe` differs from `resnet18`.

    From scratch stays unmarked. After the query, which asks for the names that are stored.
    """
    ways = rows.groupby("dataset")["adaptation"].transform("nunique")
    marked = (ways > 1) & rows["adaptation"].isin(["finetune", "probe"])
    return rows["model"].where(~marked, rows["model"] + ", " + rows["adaptation"])


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The lines of a frame, column name -> value."""
    return [{str(name): value for name, value in line.items()} for line in frame.to_dict("records")]


def parts(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The lines that agree in these columns (a missing value is a value too), after what they agree on, by column."""
    for key, part in frame.groupby(list(by), dropna=False):
        yield dict(zip(by, key, strict=True)), part


def require(found: Sized, what: str, total: int, command: str) -> None:
    """Raise FcaError when there is nothing to analyse: how much the store holds, and what makes such rows."""
    if not len(found):
        raise FcaError(what, f"none among the {total} stored rows", "1 or more", f"make some with: {command}")


class MixedRows(FcaError):
    """The rows read differ in a column that is no axis of the analysis; a filter chooses among them."""


def one_config(rows: pd.DataFrame, name: str, per_model: Sequence[str] = ()) -> None:
    """Stop when rows of one data set differ in a column that is no axis, naming the values and the filter to add.

    name: the column that names models or encoders.    per_model: columns that may differ between models by intention,
    `recipe` for all of the recipe.
    A missing value differs from nothing, except in OF_WEIGHTS.
    """
    requested = [c for c in map(str, rows) if c in CONFIG or c.startswith("recipe_")]
    varying = [c for c in (*requested, *OF_WEIGHTS) if c in rows and len(_values(rows[c])) > 1]
    for column in [c for c in varying if c in requested]:
        own_by_intention = column in per_model or ("recipe" in per_model and column.startswith("recipe_"))
        within = ["dataset", name] if own_by_intention else ["dataset"]
        by_classes = [rows["classes"].map(str)] if column in OF_SIZE else []
        for (dataset, *_), part in rows.groupby([*within, *by_classes]):
            if len(_values(part[column].dropna())) > 1:
                own = all(len(_values(p[column].dropna())) < 2 for _, p in part.groupby(name))
                raise _differ(column, part[column].dropna(), dataset, name == "model" and own)
    for column in [c for c in varying if c in OF_WEIGHTS]:
        for (dataset, *_), part in rows.groupby(["dataset", "task", name]):
            if len(_values(part[column])) > 1:
                raise _differ(column, part[column], dataset, own=False)


def _values(column: pd.Series) -> list[str]:
    """As one would type them; a column of whole numbers with gaps comes as floats."""
    values = column.dropna().tolist()
    whole = {repr(int(v) if isinstance(v, float) and v.is_integer() else v) for v in values}
    return [*sorted(whole), *(["missing"] if column.isna().any() else [])]


def _differ(column: str, values: pd.Series, dataset: Hashable, own: bool) -> MixedRows:
    shown = _values(values)
    step = f'keep one, e.g. analysis.query="\\"{column} == {shown[0]}\\""'
    if own:
        also = " or, for all of the recipe, [recipe]" if column.startswith("recipe_") else ""
        step += f"; or, where each model has its own by intention, analysis.per_model=[{column}]{also}"
    return MixedRows(
        f"{column} of the rows read", ", ".join(shown), f"one value on {dataset}: it is no axis of this analysis", step
    )


def narrowed(rows: pd.DataFrame, query: str | None) -> pd.DataFrame:
    """The rows that a query keeps; of its conditions (see `conditions_of`) one on a column that they lack keeps all."""
    if query is None:
        return rows
    known = set(rows.dropna(axis="columns", how="all"))
    for condition in conditions_of(query, "analysis.query"):
        if columns_of(condition) <= known:
            rows = kept(rows, condition, "analysis.query")
    return rows
