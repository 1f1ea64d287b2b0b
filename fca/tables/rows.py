"""Which stored rows an analysis reads, and whether they may stand in one table."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

import pandas as pd

from fca.identity import fingerprint
from fca.store import Store
from fca.store.columns import (
    ADAPTATION,
    CLASSES,
    COMPAT,
    CORRUPTED_AT,
    DATASET,
    DIVERGED,
    ENCODER,
    FINGERPRINT,
    FLAG,
    INPUT_SIZE,
    LIMIT,
    MODEL,
    NUM_CLASSES,
    PENALTY_BY,
    RECIPE,
    SAMPLER,
    SHIFT,
    SNAPSHOT,
    SPLIT,
    TASK,
    WEIGHTS,
    ZERO_SHOT,
)
from fca.store.filters import as_typed
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
    **dict.fromkeys(("train", "predict", "score"), OF_MODELS),
    "embed": (*OF_MODELS[:2], ENCODER),
}
"""What a row of each of these tasks has, if it is one of ours; a store may come from elsewhere."""
DATA_LEFT_OUT = "data_left_out"  # the parameter of a table: a sentence for each data set that it lacks, and why
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
    left_out: a sentence for each data set that is not there because its rows do not belong together.
    """

    trained: pd.DataFrame
    full: pd.DataFrame
    scored: pd.DataFrame
    embedded: pd.DataFrame
    total: int  # rows in the store, whatever the query
    left_out: tuple[str, ...] = ()

    @property
    def models(self) -> pd.DataFrame:
        """Trained and full together."""
        return pd.concat([self.trained, self.full])

    def without(self, conflicts: Mapping[str, Conflict]) -> Rows:
        """The rows of the other data sets; the log names those that go."""
        sentences = [conflict.sentence for conflict in conflicts.values()]
        for sentence in sentences:
            log.warning("%s", sentence)

        def others(part: pd.DataFrame) -> pd.DataFrame:
            return part[~part[DATASET].isin(list(conflicts))]

        return replace(
            self,
            trained=others(self.trained),
            full=others(self.full),
            scored=others(self.scored),
            embedded=others(self.embedded),
            left_out=tuple(dict.fromkeys((*self.left_out, *sentences))),
        )

    def noted(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of a table of these rows, with the sentences on what was left out, which a page shows."""
        return {**parameters, **({DATA_LEFT_OUT: list(self.left_out)} if self.left_out else {})}


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
        rows = with_needed(rows, task, needed)
    if query is not None:
        kept(rows, query, "query")
    return without_diverged(rows)


def with_needed(rows: pd.DataFrame, task: str, needed: Sequence[str]) -> pd.DataFrame:
    """The rows but for those of this task that lack a column that its rows have; the log names them."""
    is_lacking = (rows[TASK] == task) & rows[list(needed)].isna().any(axis="columns")
    if not is_lacking.any():
        return rows

    for run_id in rows["run_id"][is_lacking]:
        log.warning("run %s is left out: its row lacks one of %s", run_id, ", ".join(needed))
    return rows[~is_lacking]


def without_diverged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows but for those of trainings that diverged, which a line in the log counts."""
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


@dataclass(frozen=True)
class Conflict:
    """Rows of one data set that may not stand in one table.

    columns: that differ and are no axis.    values: of the first, as one would type them.
    filters: the words to type that keep one value of each.    per_model: whether each model has its own value.
    """

    dataset: str
    columns: tuple[str, ...]
    values: tuple[str, ...]
    filters: str
    per_model: bool

    @property
    def sentence(self) -> str:
        """What is left out, why, and what brings it back."""
        more = f" (also {', '.join(self.columns[1:])})" if len(self.columns) > 1 else ""
        return (
            f"{self.dataset} is left out: its rows differ in {self.columns[0]} ({', '.join(self.values)}){more}, "
            f"which is no axis of this analysis; {self._step}"
        )

    def error(self) -> MixedRows:
        """The same, where nothing is left."""
        allowed = f"one value on {self.dataset}: it is no axis of this analysis"
        return MixedRows(f"{self.columns[0]} of the rows read", ", ".join(self.values), allowed, self._step)

    @property
    def _step(self) -> str:
        step = f"keep one, e.g. {self.filters}"
        if self.per_model:
            column = self.columns[0]
            whole_recipe = " or, for all of the recipe, [recipe]" if column.startswith(RECIPE) else ""
            step += f"; or, where each model has its own by intention, analysis.per_model=[{column}]{whole_recipe}"
        return step


def comparable(
    rows: Rows,
    read: pd.DataFrame,
    name: str,
    per_model: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> Rows:
    """The rows without the data sets within which those that are read differ in a column that is no axis.

    read: those of the rows that an analysis puts in one table.    name: the column that names models or encoders.
    per_model: columns that may differ between models by intention, `recipe` for all of the recipe.
    columns: the only ones that are looked at; None: all.
    A missing value differs from nothing, except in OF_WEIGHTS.
    Raises MixedRows when nothing is left to read, naming column, values and the filter to type.
    """
    how = (name, per_model, columns)
    conflicts: dict[str, Conflict] = {}
    for dataset, part in read.groupby(DATASET):
        differing = _differing(part, *how)
        if differing is not None:
            conflicts[str(dataset)] = _conflict(str(dataset), part, read, differing, how)
    if not conflicts:
        return rows
    if len(conflicts) < read[DATASET].nunique():
        return rows.without(conflicts)

    first = next(iter(conflicts.values()))
    if len(conflicts) > 1:  # a filter for the first data set alone would lead to the same error for the next one
        first = replace(first, dataset=", ".join(conflicts), filters=shlex.join(_agreeing(read, how)))
    raise first.error()


def filters_that_agree(trained: pd.DataFrame) -> list[str]:
    """Filters that keep those of these trainings which may stand in one table; none where all of them may.

    trained: rows as they are stored. Versions of a data set, and ways to adapt a network, have names of their own then.
    """
    version = trained[DATASET] + " " + trained[FINGERPRINT].astype("object").fillna("")
    named = trained.assign(dataset=version, model=_distinct_names(trained))
    return _agreeing(named, (str(MODEL), ("recipe",), None))


def _agreeing(read: pd.DataFrame, how: tuple[Any, ...]) -> list[str]:
    """A filter for each column in which rows of some data set may not differ, but do.    how: as for `_differing`."""
    words: list[str] = []
    kept_rows = read
    while True:
        of_datasets = (_differing(part, *how) for _, part in kept_rows.groupby(DATASET))
        differing = next((one for one in of_datasets if one is not None), None)
        if differing is None:
            return words
        chosen = _one_value(kept_rows, differing)
        words.append(chosen.word)
        kept_rows = kept_rows[chosen.is_kept]


class _Differing(NamedTuple):
    """A column in which rows of one data set differ, its values, and whether each model has one value."""

    column: str
    values: pd.Series
    per_model: bool


def _differing(
    part: pd.DataFrame, name: str, per_model: Sequence[str], columns: Sequence[str] | None
) -> _Differing | None:
    """The first column in which rows of one data set may not differ, but do."""
    looked_at = [str(column) for column in part if columns is None or column in columns]
    requested = [column for column in looked_at if column in CONFIG or column.startswith(RECIPE)]
    for column in requested:
        if len(_values(part[column].dropna())) < 2:
            continue
        own_by_intention = column in per_model or ("recipe" in per_model and column.startswith(RECIPE))
        keys = [part[name]] if own_by_intention else []
        if column in OF_SIZE:
            keys.append(part[CLASSES].map(str))
        groups = [group for _, group in part.groupby(keys)] if keys else [part]
        for group in groups:
            values = group[column].dropna()
            if len(_values(values)) > 1:
                each_has_one = all(len(_values(of[column].dropna())) < 2 for _, of in group.groupby(name))
                return _Differing(column, values, name == MODEL and each_has_one)

    for column in [column for column in OF_WEIGHTS if column in looked_at]:
        for _, group in part.groupby([TASK, name]):
            if len(_values(group[column])) > 1:
                return _Differing(column, group[column], per_model=False)
    return None


def _conflict(
    dataset: str, part: pd.DataFrame, read: pd.DataFrame, first: _Differing, how: tuple[Any, ...]
) -> Conflict:
    """What to say of a data set whose rows differ; keeping one value of each column leaves rows that agree."""
    columns, conditions, words = [], [], []
    kept_rows, differing = part, cast("_Differing | None", first)
    while differing is not None:
        chosen = _one_value(kept_rows, differing)
        columns.append(differing.column)
        words.append(chosen.word)
        conditions.append(chosen.condition)
        kept_rows = kept_rows[chosen.is_kept]
        differing = _differing(kept_rows, *how)

    if len(set(read[DATASET])) == 1:
        filters = shlex.join(words)
    else:  # the filter may not take the rows of other data sets away
        condition = " and ".join(conditions)
        condition = f"({condition})" if len(conditions) > 1 else condition
        filters = f"query={shlex.quote(f'{_other_than(dataset, part, read)} or {condition}')}"
    return Conflict(dataset, tuple(columns), tuple(_values(first.values)), filters, first.per_model)


class _OneValue(NamedTuple):
    """The rows with one value of a column: which they are, and how that is typed, as a filter and in a query."""

    is_kept: pd.Series
    word: str
    condition: str


def _one_value(rows: pd.DataFrame, differing: _Differing) -> _OneValue:
    """The rows with the commonest value of the column in which they differ."""
    column, value = differing.column, _commonest(differing.values)
    is_missing = rows[column].isna()
    is_kept = is_missing if value is None else rows[column] == value
    word, condition = f"{column}={as_typed(value)}", f"{column} == {_literal(value)}"
    if value is not None and column not in OF_WEIGHTS and is_missing.any():  # which differ from nothing
        is_kept |= is_missing
        word, condition = f"{word},null", f"({condition} or {column} == None)"
    return _OneValue(is_kept, word, condition)


def _other_than(dataset: str, part: pd.DataFrame, read: pd.DataFrame) -> str:
    """The condition that holds for every data set but this one, of which several versions may be stored."""
    stored = part["stored"].iloc[0] if "stored" in part else dataset
    of_same_name = read[read["stored"] == stored][DATASET].nunique() if "stored" in read else 1
    if of_same_name == 1:
        return f"{DATASET} != {_literal(stored)}"
    return f"{FINGERPRINT} != {_literal(part[FINGERPRINT].iloc[0])}"


def _commonest(values: pd.Series) -> Any:
    """The value of most rows, of equally frequent ones the first as they are typed; None where most have none."""
    typed = values.map(as_typed, na_action="ignore").fillna("null")
    counts = typed.value_counts()
    chosen = min(counts[counts == counts.max()].index)
    value = values[typed == chosen].iloc[0]
    return None if chosen == "null" and pd.isna(value) else value


def _literal(value: Any) -> str:
    """A value in a query, with double quotes, which need no others around them in a shell."""
    if isinstance(value, str):
        return repr(value) if '"' in value or "\\" in value else f'"{value}"'
    whole = isinstance(value, float) and value.is_integer()
    return repr(int(value)) if whole else repr(value)


def _values(column: pd.Series) -> list[str]:
    """As one would type them; a column of whole numbers with gaps comes as floats."""
    values = {as_typed(value) for value in column.dropna().tolist()}
    return [*sorted(values), *(["missing"] if column.isna().any() else [])]


def narrowed(rows: pd.DataFrame, query: str | None) -> pd.DataFrame:
    """The rows that a query keeps; of its conditions (see `conditions_of`) one on a column that they lack keeps all."""
    if query is None:
        return rows
    known = set(rows.dropna(axis="columns", how="all"))
    for condition in conditions_of(query, "query"):
        if columns_of(condition) <= known:
            rows = kept(rows, condition, "query")
    return rows
