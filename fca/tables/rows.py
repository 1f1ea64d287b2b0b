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
from fca.store.query import columns_of, conditions_of, rows_matching
from fca.types import FcaError

# Columns of what was requested, beside `recipe_*`. The axes of the analyses here are dataset, model or encoder,
# classes (with ncl and subset_seed) and seed; whatever else differs is never averaged over or compared unnoticed.
CONFIG = (FINGERPRINT, NUM_CLASSES, SPLIT, SHIFT, CORRUPTED_AT, SAMPLER, COMPAT)
# These may differ between models; within one, even a missing value counts.
WEIGHT_COLUMNS = (ADAPTATION, PENALTY_BY, WEIGHTS, SNAPSHOT, INPUT_SIZE, ZERO_SHOT)
MODEL_ROW_COLUMNS = (DATASET, FINGERPRINT, MODEL, CLASSES)
SUBSET_SIZE_COLUMNS = (
    "recipe_passes",
    "recipe_val_max",
)  # follow from how many images the classes have: one value for each subset
REQUIRED_COLUMNS = {
    **dict.fromkeys(("train", "predict", "score"), MODEL_ROW_COLUMNS),
    "embed": (*MODEL_ROW_COLUMNS[:2], ENCODER),
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
        """The rows of the data sets that have no conflict; the log names the data sets left out."""
        sentences = [conflict.sentence for conflict in conflicts.values()]
        for sentence in sentences:
            log.warning("%s", sentence)

        def without_conflicts(rows: pd.DataFrame) -> pd.DataFrame:
            return rows[~rows[DATASET].isin(list(conflicts))]

        return replace(
            self,
            trained=without_conflicts(self.trained),
            full=without_conflicts(self.full),
            scored=without_conflicts(self.scored),
            embedded=without_conflicts(self.embedded),
            left_out=tuple(dict.fromkeys((*self.left_out, *sentences))),
        )

    def noted(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of a table of these rows, with the sentences on what was left out, which a page shows."""
        if not self.left_out:
            return dict(parameters)
        return {**parameters, DATA_LEFT_OUT: list(self.left_out)}


def select(store: Store, query: str | None, split: str = "test") -> Rows:
    """Read the store once.

    query: each of its conditions narrows the kinds of row that have its columns: recipe_epochs == 5 leaves `embed` rows
           alone.
    split: of the embedded images.
    """
    rows = readable_rows(store, query)
    is_clean = rows["shift"] == "clean"
    has_best_weights = rows["snapshot"].fillna("best") == "best"  # earlier snapshots count as other models
    is_full = by_full_models(rows) & is_clean & has_best_weights
    is_embedded = (rows["task"] == "embed") & (rows["split"] == split) & is_clean

    trained = apply_query(rows[rows["task"] == "train"], query)
    full = apply_query(rows[is_full], query)
    embedded = apply_query(rows[is_embedded], query)

    is_scored = (rows["task"] == "score") & rows["parent"].isin(full["run_id"])
    scored = apply_query(rows[is_scored], query)
    scored = scored[scored["ncl"] < scored["num_classes"]]

    trained, full, scored, embedded = by_version(store, [trained, full, scored], embedded)
    model_names = _distinct_names(pd.concat([trained, full]))
    return Rows(
        trained=trained.assign(model=model_names[trained.index]),
        full=full.assign(model=model_names[full.index]),
        scored=scored,
        embedded=embedded,
        total=len(rows),
    )


def by_full_models(rows: pd.DataFrame) -> pd.Series:
    """Which are `predict` rows on test images by classifiers that know every class of the data set."""
    every_class = (rows["ncl"] == rows["num_classes"]).fillna(value=False)
    return (rows["task"] == "predict") & every_class & (rows["split"] == "test")


def readable_rows(store: Store, query: str | None) -> pd.DataFrame:
    """All stored rows, after a check that the query can be read on them; `apply_query` applies the query.

    Leaves out rows that lack a required column of their task (NEEDED), with a line in the log, and rows of diverged
    trainings and of what was made with their weights.
    """
    rows = store.rows()
    for task, columns in REQUIRED_COLUMNS.items():
        rows = without_incomplete(rows, task, columns)
    if query is not None:
        rows_matching(rows, query, "query")  # raises FcaError for a query that cannot be read
    return without_diverged(rows)


def without_incomplete(rows: pd.DataFrame, task: str, needed: Sequence[str]) -> pd.DataFrame:
    """The rows without those of this task that lack one of the needed columns; the log names them."""
    is_lacking = (rows[TASK] == task) & rows[list(needed)].isna().any(axis="columns")
    if not is_lacking.any():
        return rows

    for run_id in rows["run_id"][is_lacking]:
        log.warning("run %s is left out: its row lacks one of %s", run_id, ", ".join(needed))
    return rows[~is_lacking]


def without_diverged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without those of trainings that diverged, which a line in the log counts."""
    is_diverged = rows[FLAG].eq(DIVERGED).fillna(value=False).astype(bool)
    if not is_diverged.any():
        return rows

    n_trainings = int((is_diverged & (rows[TASK] == "train")).sum())
    _warn_of_diverged(n_trainings, int(is_diverged.sum()))
    return rows[~is_diverged]


@cache
def _warn_of_diverged(n_trainings: int, n_rows: int) -> None:
    """Once a process: a report reads the same rows for each of its analyses."""
    trainings = "1 training that diverged is" if n_trainings == 1 else f"{n_trainings} trainings that diverged are"
    predictions = ""
    if n_rows > n_trainings:
        predictions = f", with {n_rows - n_trainings} rows of what these weights answered"
    log.warning("%s left out%s: no accuracy (fca results flag=diverged)", trainings, predictions)


def by_version(store: Store, models: Sequence[pd.DataFrame], embedded: pd.DataFrame) -> list[pd.DataFrame]:
    """These rows, where column `dataset` distinguishes the versions of a data set.

    A single version of cifar100 stays `cifar100`. Of several, one with its first images only is `cifar100 (limit 20)`,
    and the complete one `cifar100`; several complete ones (or older rows, without a limit) are `cifar100 (3f2a91)`, by
    their fingerprint.
    A set that is all test and its 70/10/20 cut, which networks train on, are one version: features of all images stand
    beside accuracies on the cut's test images. Where models were tested on both, these are two, with the features of
    all images for each.

    Column `stored` keeps the stored name: versions of one data set are no independent data sets.
    models: rows of trainings and predictions.    embedded: rows of features.
    """
    model_rows = pd.concat(models)
    all_rows = pd.concat([model_rows, embedded])
    model_names: dict[str, list[str]] = {}  # fingerprint -> the name of its data set
    feature_names: dict[str, list[str]] = {}  # fingerprint -> every name under which its features are read

    for dataset, dataset_rows in all_rows.groupby(DATASET):
        if len(set(dataset_rows[FINGERPRINT])) == 1:
            continue

        stored_rows = store.rows()
        stored_rows = stored_rows[stored_rows[DATASET] == dataset]
        version_of, words_of_version = _versions(store, dataset_rows, stored_rows)
        for version, words in words_of_version.items():
            tested = sorted({name for name in model_rows[FINGERPRINT] if version_of.get(name) == version})
            for tested_fingerprint in tested:
                all_words = list(words)
                if len(tested) > 1:
                    all_words.append("all test" if tested_fingerprint == version else CUT)
                model_names[tested_fingerprint] = [_dataset_name(str(dataset), all_words)]

            names_of_tested = [name for fingerprint in tested for name in model_names[fingerprint]]
            feature_names[version] = names_of_tested or [_dataset_name(str(dataset), words)]

    renamed_models = [_renamed(rows, model_names) for rows in models]
    return [*renamed_models, _renamed(embedded, feature_names)]


def _renamed(rows: pd.DataFrame, names: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """These rows with the names of their fingerprint as data set; a row with several names is repeated for each."""
    if not names:
        return rows.assign(stored=rows[DATASET])

    fingerprints_and_datasets = zip(rows[FINGERPRINT], rows[DATASET], strict=True)
    names_of_rows = [names.get(fingerprint, [dataset]) for fingerprint, dataset in fingerprints_and_datasets]
    dataset_names = pd.Series(names_of_rows, rows.index, dtype="object")
    renamed = rows.assign(stored=rows[DATASET], dataset=dataset_names)
    return renamed.explode(DATASET).astype({DATASET: "str"})


def _dataset_name(dataset: str, words: Sequence[str]) -> str:
    """cifar100 (limit 20, all test); without words, cifar100."""
    return f"{dataset} ({', '.join(words)})" if words else dataset


def _versions(
    store: Store, dataset_rows: pd.DataFrame, stored_rows: pd.DataFrame
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Version of each fingerprint (the fingerprint before the 70/10/20 cut), and words that distinguish each version.

    dataset_rows: the rows of one data set that an analysis reads.    stored_rows: all stored rows of that data set.
    """
    version_of = _uncut(store, tuple(sorted(stored_rows[FINGERPRINT].dropna().unique())))
    versions = sorted({version_of[name] for name in dataset_rows[FINGERPRINT]})

    limit_of_version: dict[str, str] = {}
    if LIMIT in stored_rows:
        limited_rows = stored_rows.dropna(subset=LIMIT)
        for limited, n_images in zip(limited_rows[FINGERPRINT], limited_rows[LIMIT], strict=True):
            limit_of_version[version_of[str(limited)]] = f"limit {int(n_images)}"

    if len(versions) == 1:
        return version_of, {versions[0]: []}

    limits = [limit_of_version.get(version) for version in versions]
    words_of_version: dict[str, list[str]] = {}
    for version, limit in zip(versions, limits, strict=True):
        words = [] if limit is None else [limit]
        if limits.count(limit) > 1:
            words.append(version[:SHORT])
        words_of_version[version] = words
    return version_of, words_of_version


@lru_cache(maxsize=32)
def _uncut(store: Store, fingerprints: tuple[str, ...]) -> dict[str, str]:
    """Fingerprint of the set before the cut for training (fca.data.splits.for_training); itself where there is none."""
    items_by_fingerprint = {name: store.items(name) for name in fingerprints}
    test_only = [name for name, items in items_by_fingerprint.items() if set(items["split"]) == {"test"}]

    uncut = {}
    for name, items in items_by_fingerprint.items():
        uncut[name] = name
        for candidate in test_only:
            if candidate == name or len(items_by_fingerprint[candidate]) != len(items):
                continue
            if fingerprint(items, candidate) == name:
                uncut[name] = candidate
                break
    return uncut


def _distinct_names(rows: pd.DataFrame) -> pd.Series:
    """Model names; where a data set has several adaptations, `resnet18, probe` differs from `resnet18`.

    Models trained from scratch stay unmarked. Call it after the query, which uses the stored names.
    """
    n_adaptations = rows.groupby("dataset")["adaptation"].transform("nunique")
    is_marked = (n_adaptations > 1) & rows["adaptation"].isin(["finetune", "probe"])
    return rows["model"].where(~is_marked, rows["model"] + ", " + rows["adaptation"])


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The lines of a frame, column name -> value."""
    return [{str(name): value for name, value in line.items()} for line in frame.to_dict("records")]


def groups_by_columns(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Groups of rows that agree in these columns (missing counts as a value), each after its values by column."""
    for values, group_rows in frame.groupby(list(by), dropna=False):
        value_by_column = dict(zip(by, values, strict=True))
        yield value_by_column, group_rows


def require_rows(found: Sized, what: str, total: int, command: str) -> None:
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
        further_columns = f" (also {', '.join(self.columns[1:])})" if len(self.columns) > 1 else ""
        return (
            f"{self.dataset} is left out: its rows differ in {self.columns[0]} ({', '.join(self.values)})"
            f"{further_columns}, which is no axis of this analysis; {self._step}"
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


def drop_conflicting_rows(
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
    A missing value differs from nothing, except in WEIGHT_COLUMNS.
    Raises MixedRows when nothing is left to read, naming column, values and the filter to type.
    """
    rule = _ComparisonRule(name, per_model, columns)
    conflicts: dict[str, Conflict] = {}
    for dataset, dataset_rows in read.groupby(DATASET):
        differing = _differing(dataset_rows, rule)
        if differing is not None:
            conflicts[str(dataset)] = _conflict(str(dataset), dataset_rows, read, differing, rule)

    if not conflicts:
        return rows
    if len(conflicts) < read[DATASET].nunique():
        return rows.without(conflicts)

    conflict = next(iter(conflicts.values()))
    if len(conflicts) > 1:  # a filter for the first data set alone would lead to the same error for the next one
        conflict = replace(conflict, dataset=", ".join(conflicts), filters=shlex.join(_agreeing(read, rule)))
    raise conflict.error()


def filters_that_agree(trained: pd.DataFrame) -> list[str]:
    """Filters that keep those of these trainings which may stand in one table; none where all of them may.

    trained: rows as they are stored. Versions of a data set, and adaptations of a network, are distinguished first.
    """
    version = trained[DATASET] + " " + trained[FINGERPRINT].astype("object").fillna("")
    distinguished = trained.assign(dataset=version, model=_distinct_names(trained))
    return _agreeing(distinguished, _ComparisonRule(name=str(MODEL), per_model=("recipe",), columns=None))


class _ComparisonRule(NamedTuple):
    """Which columns of the rows of one data set must agree; fields: parameters of `drop_conflicting_rows`."""

    name: str
    per_model: Sequence[str]
    columns: Sequence[str] | None


def _agreeing(read: pd.DataFrame, rule: _ComparisonRule) -> list[str]:
    """A filter for each column in which rows of some data set may not differ, but do."""
    filters: list[str] = []
    remaining = read
    while True:
        differences = (_differing(dataset_rows, rule) for _, dataset_rows in remaining.groupby(DATASET))
        differing = next((difference for difference in differences if difference is not None), None)
        if differing is None:
            return filters

        choice = _one_value(remaining, differing)
        filters.append(choice.word)
        remaining = remaining[choice.is_selected]


class _Differing(NamedTuple):
    """A column in which rows of one data set differ, its values, and whether each model has one value."""

    column: str
    values: pd.Series
    per_model: bool


def _differing(dataset_rows: pd.DataFrame, rule: _ComparisonRule) -> _Differing | None:
    """The first column in which rows of one data set may not differ, but do."""
    compared = [str(column) for column in dataset_rows if rule.columns is None or column in rule.columns]

    for column in compared:
        if column not in CONFIG and not column.startswith(RECIPE):
            continue
        if len(_values(dataset_rows[column].dropna())) < 2:
            continue

        for group in _groups_that_must_agree(dataset_rows, column, rule):
            values = group[column].dropna()
            if len(_values(values)) > 1:
                model_values = [_values(model_rows[column].dropna()) for _, model_rows in group.groupby(rule.name)]
                has_one_per_model = all(len(values_of_model) < 2 for values_of_model in model_values)
                return _Differing(column, values, per_model=rule.name == MODEL and has_one_per_model)

    for column in WEIGHT_COLUMNS:
        if column not in compared:
            continue
        for _, group in dataset_rows.groupby([TASK, rule.name]):
            if len(_values(group[column])) > 1:
                return _Differing(column, group[column], per_model=False)
    return None


def _groups_that_must_agree(dataset_rows: pd.DataFrame, column: str, rule: _ComparisonRule) -> list[pd.DataFrame]:
    """The rows of one data set, split by model or by subset where the column may differ between these."""
    keys = []
    if column in rule.per_model or ("recipe" in rule.per_model and column.startswith(RECIPE)):
        keys.append(dataset_rows[rule.name])
    if column in SUBSET_SIZE_COLUMNS:
        keys.append(dataset_rows[CLASSES].map(str))
    if not keys:
        return [dataset_rows]
    return [group for _, group in dataset_rows.groupby(keys)]


def _conflict(
    dataset: str, dataset_rows: pd.DataFrame, read: pd.DataFrame, first: _Differing, rule: _ComparisonRule
) -> Conflict:
    """The conflict of a data set whose rows differ; its filters keep one value of each column."""
    columns: list[str] = []
    conditions: list[str] = []
    words: list[str] = []
    remaining = dataset_rows
    differing = cast("_Differing | None", first)
    while differing is not None:
        choice = _one_value(remaining, differing)
        columns.append(differing.column)
        words.append(choice.word)
        conditions.append(choice.condition)
        remaining = remaining[choice.is_selected]
        differing = _differing(remaining, rule)

    if len(set(read[DATASET])) == 1:
        filters = shlex.join(words)
    else:  # the filter must not remove the rows of other data sets
        condition = " and ".join(conditions)
        if len(conditions) > 1:
            condition = f"({condition})"
        other_datasets = _other_than(dataset, dataset_rows, read)
        query = shlex.quote(f"{other_datasets} or {condition}")
        filters = f"query={query}"
    return Conflict(dataset, tuple(columns), tuple(_values(first.values)), filters, first.per_model)


class _OneValue(NamedTuple):
    """The rows with one value of a column: which they are, and how that is typed, as a filter and in a query."""

    is_selected: pd.Series
    word: str
    condition: str


def _one_value(rows: pd.DataFrame, differing: _Differing) -> _OneValue:
    """The rows with the most frequent value of the column in which they differ."""
    column = differing.column
    value = _commonest(differing.values)
    word = f"{column}={as_typed(value)}"
    condition = f"{column} == {_literal(value)}"
    is_missing = rows[column].isna()
    if value is None:
        return _OneValue(is_missing, word, condition)

    has_value = rows[column] == value
    if column in WEIGHT_COLUMNS or not is_missing.any():
        return _OneValue(has_value, word, condition)

    # a missing value differs from nothing, so these rows stay
    return _OneValue(has_value | is_missing, f"{word},null", f"({condition} or {column} == None)")


def _other_than(dataset: str, dataset_rows: pd.DataFrame, read: pd.DataFrame) -> str:
    """The condition that holds for every data set but this one, of which several versions may be stored."""
    stored_name = dataset
    n_versions = 1
    if "stored" in dataset_rows:
        stored_name = dataset_rows["stored"].iloc[0]
    if "stored" in read:
        n_versions = read[read["stored"] == stored_name][DATASET].nunique()

    if n_versions == 1:
        return f"{DATASET} != {_literal(stored_name)}"
    return f"{FINGERPRINT} != {_literal(dataset_rows[FINGERPRINT].iloc[0])}"


def _commonest(values: pd.Series) -> Any:
    """The most frequent value, of equally frequent ones the first as typed; None where most rows have no value."""
    typed_values = values.map(as_typed, na_action="ignore").fillna("null")
    counts = typed_values.value_counts()
    commonest = min(counts[counts == counts.max()].index)
    value = values[typed_values == commonest].iloc[0]
    return None if commonest == "null" and pd.isna(value) else value


def _literal(value: Any) -> str:
    """A value in a query, with double quotes, so that single quotes can enclose the query in a shell."""
    if isinstance(value, str):
        needs_escapes = '"' in value or "\\" in value
        return repr(value) if needs_escapes else f'"{value}"'
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def _values(column: pd.Series) -> list[str]:
    """The distinct values of a column as one would type them; `missing` comes last."""
    values = sorted({as_typed(value) for value in column.dropna().tolist()})
    if column.isna().any():
        values.append("missing")
    return values


def apply_query(rows: pd.DataFrame, query: str | None) -> pd.DataFrame:
    """The rows that meet the conditions of a query; a condition on a column that the rows lack removes none."""
    if query is None:
        return rows

    columns_with_values = set(rows.dropna(axis="columns", how="all"))
    for condition in conditions_of(query, "query"):
        if columns_of(condition) <= columns_with_values:
            rows = rows_matching(rows, condition, "query")
    return rows
