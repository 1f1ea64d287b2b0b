"""Which stored rows an analysis reads, and whether they may stand in one table."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

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
    present_name,
)
from fca.store.filters import as_typed
from fca.store.query import columns_of, conditions_of, rows_matching
from fca.types import FcaError

# Columns with what was requested, besides the columns `recipe_*`. The axes of the analyses here are dataset, model or
# encoder, classes (with ncl and subset_seed) and seed. Rows that differ in anything else are never averaged or compared
# without notice.
CONFIG = (FINGERPRINT, NUM_CLASSES, SPLIT, SHIFT, CORRUPTED_AT, SAMPLER, COMPAT)
# These may differ between models. Within one model they may not, and there a missing value counts as a value.
WEIGHT_COLUMNS = (ADAPTATION, PENALTY_BY, WEIGHTS, SNAPSHOT, INPUT_SIZE, ZERO_SHOT)
MODEL_ROW_COLUMNS = (DATASET, FINGERPRINT, MODEL, CLASSES)
# These follow from how many images the classes of a subset have, so each subset has its own value.
SUBSET_SIZE_COLUMNS = (
    "recipe_passes",
    "recipe_val_max",
)
REQUIRED_COLUMNS = {
    **dict.fromkeys(("train", "predict", "score"), MODEL_ROW_COLUMNS),
    "embed": (*MODEL_ROW_COLUMNS[:2], ENCODER),
}
"""Columns that every row of these tasks has if fca wrote it; a store from elsewhere may have rows without them."""
DATA_LEFT_OUT = "data_left_out"  # parameter of a table: a sentence for each data set that was left out
SHORT = 6  # hex digits of a fingerprint that names a version
CUT = "70/10/20"  # in the name of a data set that was split for training

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rows:
    """The stored rows (one for each finished run) that the few-class analyses read, in one frame for each kind.

    trained:  `train` rows: sub-models, trained on a subset of the classes, and full models, trained on all of them.
    full:     `predict` rows of full models on clean test images, with the best weights (not snapshots of training).
    scored:   `score` rows of the predictions in `full`: the accuracy of a full model on a class subset, whether or not
              a sub-model was trained on that subset.
    embedded: `embed` rows of one split: features of clean images.
    total:    number of rows in the store, whatever the query.
    left_out: a sentence for each data set that was removed because its rows must not be compared.
    """

    trained: pd.DataFrame
    full: pd.DataFrame
    scored: pd.DataFrame
    embedded: pd.DataFrame
    total: int
    left_out: tuple[str, ...] = ()

    @property
    def models(self) -> pd.DataFrame:
        """The `trained` and the `full` rows in one frame."""
        return pd.concat([self.trained, self.full])

    def without(self, conflicts: Mapping[str, Conflict]) -> Rows:
        """These rows without the data sets whose rows must not be compared.

        For each such data set a sentence is logged as a warning and added to `left_out`.

        conflicts: name of such a data set -> in which columns its rows differ.
        """
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
            left_out=tuple(dict.fromkeys((*self.left_out, *sentences))),  # each sentence once, in order
        )

    def noted(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a table, with the sentences of `left_out`, if any, under the key DATA_LEFT_OUT.

        A report prints these sentences on its page.
        """
        if not self.left_out:
            return dict(parameters)
        return {**parameters, DATA_LEFT_OUT: list(self.left_out)}


def select(store: Store, query: str | None, split: str = "test") -> Rows:
    """The rows (stored results of runs) that the few-class analyses read. The store is read once.

    They are trainings, predictions of clean test images by full models with their best weights, scores of these
    predictions on subsets of the classes, and features of clean images (`embed` rows).

    query: restricts the rows; None: no restriction. A condition on a column that a kind of row does not have does not
           restrict this kind: recipe_epochs == 5 keeps all `embed` rows.
    split: the split of the images in `embedded`.
    Raises FcaError for a query that cannot be read.
    """
    rows = readable_rows(store, query)  # of all tasks: the query is checked, but selects no rows yet
    is_clean = rows["shift"] == "clean"
    has_best_weights = rows["snapshot"].fillna("best") == "best"  # earlier snapshots count as other models
    is_full = by_full_models(rows) & is_clean & has_best_weights
    is_embedded = (rows["task"] == "embed") & (rows["split"] == split) & is_clean

    trained = apply_query(rows[rows["task"] == "train"], query)
    full = apply_query(rows[is_full], query)
    embedded = apply_query(rows[is_embedded], query)

    is_scored = (rows["task"] == "score") & rows["parent"].isin(full["run_id"])
    scored = apply_query(rows[is_scored], query)
    scored = scored[scored["ncl"] < scored["num_classes"]]  # a score on all classes repeats its parent in `full`

    # names of data sets distinguish their versions, names of models the adaptations of a network
    trained, full, scored, embedded = by_version(store, [trained, full, scored], embedded)
    model_names = _distinct_names(pd.concat([trained, full]))
    return Rows(
        trained=trained.assign(model=model_names[trained.index]),
        full=full.assign(model=model_names[full.index]),
        scored=scored,  # with the stored names of models: analyses read these rows only for their subsets
        embedded=embedded,
        total=len(rows),
    )


def by_full_models(rows: pd.DataFrame) -> pd.Series:
    """Whether each row is a `predict` row on test images by a full model, which knows all classes of its data set."""
    knows_every_class = (rows["ncl"] == rows["num_classes"]).fillna(value=False)  # rows of some tasks have no ncl
    return (rows["task"] == "predict") & knows_every_class & (rows["split"] == "test")


def readable_rows(store: Store, query: str | None) -> pd.DataFrame:
    """All stored rows that an analysis may read; a row is the record of a finished run.

    Three kinds of rows are left out, which the log reports: rows that lack a column which their task requires
    (REQUIRED_COLUMNS), rows of trainings that diverged, and rows that were computed with the weights of such trainings.

    query: is only checked here. The caller applies it with `apply_query` to each kind of rows separately, because it
           may name columns that only some kinds have.
    Raises FcaError for a query that cannot be read.
    """
    rows = store.rows()
    for task, columns in REQUIRED_COLUMNS.items():
        rows = without_incomplete(rows, task, columns)
    if query is not None:
        rows_matching(rows, query, "query")  # raises FcaError for a query that cannot be read
    return without_diverged(rows)


def without_incomplete(rows: pd.DataFrame, task: str, needed: Sequence[str]) -> pd.DataFrame:
    """The rows without incomplete rows of this task, which lack a value in a needed column; the log names their runs.

    fca itself writes no such rows, but a store may come from elsewhere.
    """
    is_lacking = (rows[TASK] == task) & rows[list(needed)].isna().any(axis="columns")
    if not is_lacking.any():
        return rows

    for run_id in rows["run_id"][is_lacking]:
        log.warning("run %s is left out: its row lacks one of %s", run_id, ", ".join(needed))
    return rows[~is_lacking]


def without_diverged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without diverged trainings and without runs that used their weights; a log line counts both.

    Both kinds carry DIVERGED in the column `flag`.
    """
    is_diverged = rows[FLAG].eq(DIVERGED).fillna(value=False).astype(bool)
    if not is_diverged.any():
        return rows

    n_trainings = int((is_diverged & (rows[TASK] == "train")).sum())
    _warn_of_diverged(n_trainings, int(is_diverged.sum()))
    return rows[~is_diverged]


@cache
def _warn_of_diverged(n_trainings: int, n_rows: int) -> None:
    """Log how many rows were left out because a training diverged.

    Cached, so that a report, which reads the same rows for each of its analyses, logs the line once.

    n_trainings: diverged trainings.
    n_rows:      these, and the runs that used their weights.
    """
    trainings = "1 training that diverged is" if n_trainings == 1 else f"{n_trainings} trainings that diverged are"
    predictions = ""
    if n_rows > n_trainings:
        predictions = f", with {n_rows - n_trainings} rows of what these weights answered"
    log.warning("%s left out%s: no accuracy (fca results flag=diverged)", trainings, predictions)


def by_version(store: Store, models: Sequence[pd.DataFrame], embedded: pd.DataFrame) -> list[pd.DataFrame]:
    """The same frames, with names in column `dataset` that distinguish the versions of a data set.

    Two versions of a data set have the same name but different images (and fingerprints). They are named like this:
    - If only one version of cifar100 is read, it stays `cifar100`.
    - If several are read, one that was limited to its first images is called `cifar100 (limit 20)`, and the complete
      one `cifar100`. Several complete ones (or rows of earlier versions of fca, which recorded no limit) get the
      beginning of their fingerprint: `cifar100 (3f2a91)`.
    - A set that has only a test split is cut 70/10/20 when networks are trained on it. The set and its cut count as one
      version, so that features of all its images are compared with accuracies on the test images of the cut. If models
      were tested on both, each gets a name of its own, and the rows of features are repeated for both names.

    models:   frames of trainings and predictions.
    embedded: rows of features.
    Returns the frames of `models` in their order, then `embedded`. Their new column `stored` keeps the stored name,
    because versions of one data set are not independent data sets.
    """
    model_rows = pd.concat(models)
    all_rows = pd.concat([model_rows, embedded])
    # fingerprint in the rows -> new names of its data set: one for rows of models, one or several for rows of features
    model_names: dict[str, list[str]] = {}
    feature_names: dict[str, list[str]] = {}

    for dataset, dataset_rows in all_rows.groupby(DATASET):
        if len(set(dataset_rows[FINGERPRINT])) == 1:  # a single version keeps its name
            continue

        stored_rows = store.rows()
        stored_rows = stored_rows[stored_rows[DATASET] == dataset]
        # A version is the fingerprint of the whole set. `version_of` has it for the fingerprint of the set and of its
        # cut. The words of a version, such as "limit 20", distinguish its name from the names of other versions.
        version_of, words_of_version = _versions_and_words(store, dataset_rows, stored_rows)
        for version, words in words_of_version.items():
            # fingerprints on which models were tested: of the whole set, of its cut, or both
            tested = sorted({key for key in model_rows[FINGERPRINT] if version_of.get(key) == version})
            tested_names = _names_of_tested_sets(str(dataset), version, words, tested)
            for tested_fingerprint, tested_name in tested_names.items():
                model_names[tested_fingerprint] = [tested_name]

            # Features are of the whole set. They take the names of the accuracies with which they are compared, if any
            feature_names[version] = list(tested_names.values()) or [_dataset_name(str(dataset), words)]

    renamed_models = [_with_dataset_names(rows, model_names) for rows in models]
    return [*renamed_models, _with_dataset_names(embedded, feature_names)]


def _names_of_tested_sets(dataset: str, version: str, words: Sequence[str], tested: Sequence[str]) -> dict[str, str]:
    """The new name of the data set for each fingerprint of one version on which models were tested.

    A version is the whole set or its 70/10/20 cut. If models were tested on both, a further word distinguishes them.

    version: fingerprint of the whole set.
    words:   what distinguishes the version, such as "limit 20".
    tested:  fingerprints of what models were tested on: the whole set, its cut, or both.
    """
    names: dict[str, str] = {}
    for tested_fingerprint in tested:
        all_words = list(words)
        if len(tested) > 1:
            is_whole_set = tested_fingerprint == version
            all_words.append("all test" if is_whole_set else CUT)
        names[tested_fingerprint] = _dataset_name(dataset, all_words)
    return names


def _with_dataset_names(rows: pd.DataFrame, names: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """The rows with new names of data sets in column `dataset`; column `stored` has the stored names.

    names: fingerprint of a data set -> its new names. A row is repeated for each of them. Rows whose fingerprint is not
           among the keys keep their name.
    """
    if not names:
        return rows.assign(stored=rows[DATASET])

    fingerprints_and_datasets = zip(rows[FINGERPRINT], rows[DATASET], strict=True)
    names_of_rows = [names.get(fingerprint, [dataset]) for fingerprint, dataset in fingerprints_and_datasets]
    dataset_names = pd.Series(names_of_rows, rows.index, dtype="object")
    renamed = rows.assign(stored=rows[DATASET], dataset=dataset_names)  # each cell of `dataset` is a list of names
    return renamed.explode(DATASET).astype({DATASET: "str"})  # one row for each name


def _dataset_name(dataset: str, words: Sequence[str]) -> str:
    """The name with its distinguishing words: cifar100 (limit 20, all test); without words, cifar100."""
    return f"{dataset} ({', '.join(words)})" if words else dataset


def with_names_of_versions(store: Store, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of models (trainings, predictions) with names in column `dataset` that distinguish its versions.

    The names are those of `by_version`, such as `cifar100 (limit 20)` for its first 20 images.
    """
    no_features = rows[:0]
    [named_rows, _] = by_version(store, [rows], no_features)
    return named_rows


def _versions_and_words(
    store: Store, dataset_rows: pd.DataFrame, stored_rows: pd.DataFrame
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The versions of one data set: fingerprint -> version, and version -> the words that distinguish it in a name.

    A version is the fingerprint that the set had before it was cut 70/10/20 for training. Its words are its limit (the
    number of first images that were used), if it has one, and the beginning of its fingerprint if several versions have
    the same limit. A single version needs no words.

    dataset_rows: the rows of the data set that an analysis reads.
    stored_rows:  all stored rows of that data set.
    """
    version_of = _fingerprints_before_cut(store, tuple(sorted(stored_rows[FINGERPRINT].dropna().unique())))
    versions = sorted({version_of[fingerprint_read] for fingerprint_read in dataset_rows[FINGERPRINT]})

    # Any stored row of a version may record its limit, also one that the analysis does not read
    limit_of_version: dict[str, str] = {}
    if LIMIT in stored_rows:
        limited_rows = stored_rows.dropna(subset=LIMIT)
        for limited_fingerprint, n_images in zip(limited_rows[FINGERPRINT], limited_rows[LIMIT], strict=True):
            limit_of_version[version_of[str(limited_fingerprint)]] = f"limit {int(n_images)}"

    if len(versions) == 1:
        return version_of, {versions[0]: []}

    limits = [limit_of_version.get(version) for version in versions]
    words_of_version: dict[str, list[str]] = {}
    for version, limit in zip(versions, limits, strict=True):
        words = [] if limit is None else [limit]
        if limits.count(limit) > 1:  # another version has this limit, or none too
            words.append(version[:SHORT])
        words_of_version[version] = words
    return version_of, words_of_version


@lru_cache(maxsize=32)  # hashing all items takes long, and each analysis of a report asks again
def _fingerprints_before_cut(store: Store, fingerprints: tuple[str, ...]) -> dict[str, str]:
    """Fingerprint of a data set -> the fingerprint that the set had before it was cut 70/10/20 for training.

    A set that is no cut, or whose original is not stored, has its own fingerprint as value.

    fingerprints: all stored fingerprints of the versions of one data set.
    """
    items_by_fingerprint = {stored: store.items(stored) for stored in fingerprints}
    # only sets without a training split are cut: these may be originals
    test_only = [stored for stored, items in items_by_fingerprint.items() if set(items["split"]) == {"test"}]

    fingerprint_before_cut = {}
    for stored, items in items_by_fingerprint.items():
        fingerprint_before_cut[stored] = stored
        for original in test_only:
            if original == stored or len(items_by_fingerprint[original]) != len(items):  # a cut keeps all images
                continue
            # the fingerprint of a cut is a hash of its items and of the fingerprint of the original
            if fingerprint(items, original) == stored:
                fingerprint_before_cut[stored] = original
                break
    return fingerprint_before_cut


def _distinct_names(rows: pd.DataFrame) -> pd.Series:
    """The name of each row's model, extended by its adaptation where this is needed to distinguish networks.

    Where the rows of a data set have several adaptations, `finetune` and `probe` are added to the name, as in
    `resnet18, probe`; models with another adaptation keep their name. Apply the query first, because it uses the stored
    names.
    """
    n_adaptations = rows.groupby("dataset")["adaptation"].transform("nunique")
    is_marked = (n_adaptations > 1) & rows["adaptation"].isin(["finetune", "probe"])
    return rows["model"].where(~is_marked, rows["model"] + ", " + rows["adaptation"])


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each line of a frame as a dictionary: column name -> value."""
    return [{str(name): value for name, value in line.items()} for line in frame.to_dict("records")]


def groups_by_columns(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield, for each group of rows with equal values in the columns `by`, these values and the rows of the group.

    The values are a dictionary: column -> value. A missing value counts as a value, so no row is dropped.
    """
    for values, group_rows in frame.groupby(list(by), dropna=False):
        value_by_column = dict(zip(by, values, strict=True))
        yield value_by_column, group_rows


def require_rows(found: Sized, what: str, total: int, command: str) -> None:
    """Raise FcaError if there is nothing to analyse, that is, if `found` is empty.

    found:   rows, or other things that the analysis needs.
    what:    the same in words, for the error.
    total:   number of stored rows.
    command: a command that makes what is missing.
    """
    if not len(found):
        raise FcaError(what, f"none among the {total} stored rows", "1 or more", f"make some with: {command}")


class MixedRows(FcaError):
    """The rows that an analysis read differ in a column that is not one of its axes; the user must filter them."""


@dataclass(frozen=True)
class Conflict:
    """The columns in which rows of one data set differ, so that they must not be in one table.

    These columns are no axis of the analysis. An axis is a column whose values the analysis compares or averages over,
    such as the model or the seed.

    columns:   the columns in which the rows differ.
    values:    the values of the first of these columns, as a user types them.
    filters:   the words to type so that one value of each of these columns is kept.
    per_model: whether each model has a single value of its own in the first column.
    """

    dataset: str
    columns: tuple[str, ...]
    values: tuple[str, ...]
    filters: str
    per_model: bool

    @property
    def sentence(self) -> str:
        """A sentence for the log: which data set is left out, why, and what to type to include it."""
        further_columns = f" (also {', '.join(self.columns[1:])})" if len(self.columns) > 1 else ""
        return (
            f"{self.dataset} is left out: its rows differ in {self.columns[0]} ({', '.join(self.values)})"
            f"{further_columns}, which is no axis of this analysis; {self._step}"
        )

    def error(self) -> MixedRows:
        """The error to raise where no data set is left without a conflict."""
        allowed = f"one value on {self.dataset}: it is no axis of this analysis"
        return MixedRows(f"{self.columns[0]} of the rows read", ", ".join(self.values), allowed, self._step)

    @property
    def _step(self) -> str:
        """What the user can type: filters that keep one value, or the option that lets models differ in the column."""
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
    """Leave out the data sets whose rows must not be compared; each is logged, and noted in `left_out` of the result.

    An axis of an analysis is a column whose values it compares or averages over, such as the model or the seed. The
    rows of a data set must not be compared if they differ in a column that is no axis, such as the number of epochs:
    the difference would be mistaken for a difference between models. A missing value equals every value, except in
    WEIGHT_COLUMNS (such as the adaptation and the input size), which may differ between models, but not within one.

    rows:      everything that the analysis read; the result is these rows without the data sets with a conflict.
    read:      the rows that the analysis puts in one table; these are checked.
    name:      the column that names models or encoders.
    per_model: columns that the user allowed to differ between models; `recipe` stands for the whole recipe.
    columns:   the columns to look at; None: all.
    Raises MixedRows if every data set has a conflict. This error names the column, its values and the filter to type.
    """
    rule = _ComparisonRule(name, per_model, columns)
    conflicts: dict[str, Conflict] = {}
    for dataset, dataset_rows in read.groupby(DATASET):
        differing = _first_difference(dataset_rows, rule)
        if differing is not None:
            conflicts[str(dataset)] = _conflict(str(dataset), dataset_rows, read, differing, rule)

    if not conflicts:
        return rows
    if len(conflicts) < read[DATASET].nunique():
        return rows.without(conflicts)

    conflict = next(iter(conflicts.values()))
    # The error is about the first data set. Its filter must suit all of them: a filter for the first one alone would
    # lead to the same error for the next one
    if len(conflicts) > 1:
        conflict = replace(conflict, dataset=", ".join(conflicts), filters=shlex.join(_agreeing_filters(read, rule)))
    raise conflict.error()


def filters_that_agree(trained: pd.DataFrame) -> list[str]:
    """The filters, such as recipe_epochs=5, that leave only trainings which may be compared in one table.

    Empty if all of them may be compared. Differences between versions of a data set, or between adaptations of a
    network, need no filter, because analyses treat these as different data sets and models.

    trained: `train` rows as they are stored.
    """
    version = trained[DATASET] + " " + trained[FINGERPRINT].astype("object").fillna("")
    distinguished = trained.assign(dataset=version, model=_distinct_names(trained))
    return _agreeing_filters(distinguished, _ComparisonRule(name=str(MODEL), per_model=("recipe",), columns=None))


class _ComparisonRule(NamedTuple):
    """Which columns of the rows of one data set must agree.

    name:      the column that names models or encoders.
    per_model: columns that may differ between models; `recipe` stands for the whole recipe.
    columns:   the columns to look at; None: all.
    """

    name: str
    per_model: Sequence[str]
    columns: Sequence[str] | None


def _agreeing_filters(read: pd.DataFrame, rule: _ComparisonRule) -> list[str]:
    """Filters, as typed on a command line, that keep only rows which may be compared.

    After them the rows of every data set agree in all columns that must agree (`rule`). There is one filter for each
    column in which rows of some data set differ. It keeps the most frequent value; further differences are searched for
    among the rows that it keeps.
    """
    filters: list[str] = []
    remaining = read
    while True:
        differences = (_first_difference(dataset_rows, rule) for _, dataset_rows in remaining.groupby(DATASET))
        differing = next((difference for difference in differences if difference is not None), None)
        if differing is None:
            return filters

        choice = _rows_with_commonest_value(remaining, differing)
        filters.append(choice.word)  # the filter as it is typed, such as recipe_epochs=5
        remaining = remaining[choice.is_selected]


class _Differing(NamedTuple):
    """A column in which rows of one data set differ although they must agree.

    values:    the column's values in the rows that must agree.
    per_model: whether each model has a single value, so that the user may allow models to differ.
    """

    column: str
    values: pd.Series
    per_model: bool


def _first_difference(dataset_rows: pd.DataFrame, rule: _ComparisonRule) -> _Differing | None:
    """The first column in which rows of one data set differ although they must agree; None if there is none.

    Columns of CONFIG (what was requested) and of the recipe must agree between all rows that are compared.
    WEIGHT_COLUMNS must agree only between the rows of one model and task, since networks may start from different
    weights.

    rule: which columns are looked at, which column names the model, and which columns may differ between models.
    """
    compared = [str(column) for column in dataset_rows if rule.columns is None or column in rule.columns]

    # What was requested (CONFIG and the recipe) must agree between all rows; a missing value equals every value
    for column in compared:
        if column not in CONFIG and not column.startswith(RECIPE):
            continue
        if len(_distinct_values(dataset_rows[column].dropna())) < 2:  # a quick check before the groups are made
            continue

        for group in _groups_that_must_agree(dataset_rows, column, rule):
            values = group[column].dropna()
            if len(_distinct_values(values)) < 2:
                continue

            # If each model has a single value, the error suggests the option `per_model`, with which the user allows
            # models to differ. There is no such option for encoders
            has_one_per_model = all(
                len(_distinct_values(model_rows[column].dropna())) < 2 for _, model_rows in group.groupby(rule.name)
            )
            return _Differing(column, values, per_model=rule.name == MODEL and has_one_per_model)

    # Properties of the weights must agree within a model; here a missing value counts as a value
    for column in WEIGHT_COLUMNS:
        if column not in compared:
            continue
        for _, group in dataset_rows.groupby([TASK, rule.name]):
            if len(_distinct_values(group[column])) > 1:
                return _Differing(column, group[column], per_model=False)
    return None


def _groups_that_must_agree(dataset_rows: pd.DataFrame, column: str, rule: _ComparisonRule) -> list[pd.DataFrame]:
    """The rows of one data set in groups, each of which must have a single value in this column.

    If the user allowed the column to differ between models, there is a group for each model. If it follows from the
    number of images of a subset (SUBSET_SIZE_COLUMNS), there is a group for each subset. Otherwise all rows are one
    group.
    """
    keys = []
    if column in rule.per_model or ("recipe" in rule.per_model and column.startswith(RECIPE)):
        keys.append(dataset_rows[rule.name])  # the names of the models
    if column in SUBSET_SIZE_COLUMNS:
        keys.append(dataset_rows[CLASSES].map(str))  # as text: rows without a subset form a group too
    if not keys:
        return [dataset_rows]
    return [group for _, group in dataset_rows.groupby(keys)]


def _conflict(
    dataset: str, dataset_rows: pd.DataFrame, read: pd.DataFrame, first: _Differing, rule: _ComparisonRule
) -> Conflict:
    """The conflict of a data set whose rows differ, with filters that keep one value of each column that differs.

    If the analysis reads one data set, the filters are words such as recipe_epochs=5. If it reads several, they are one
    query that leaves the rows of the others as they are.

    dataset_rows: the rows of this data set.
    read:         the rows of all data sets that the analysis puts in one table.
    first:        the first difference between `dataset_rows`; it also states whether each model has a single value of
                  its own (`per_model`), so that the user may allow models to differ.
    rule:         which columns must agree.
    """
    columns: list[str] = []
    words: list[str] = []  # filters as they are typed: recipe_epochs=5
    conditions: list[str] = []  # the same as conditions of a query: recipe_epochs == 5
    remaining = dataset_rows
    differing: _Differing | None = first
    while differing is not None:
        choice = _rows_with_commonest_value(remaining, differing)
        columns.append(differing.column)
        words.append(choice.word)
        conditions.append(choice.condition)
        remaining = remaining[choice.is_selected]
        differing = _first_difference(remaining, rule)  # filters may resolve several differences at once

    if len(set(read[DATASET])) == 1:
        filters = shlex.join(words)
    else:  # the filter must not remove the rows of other data sets
        condition = " and ".join(conditions)
        if len(conditions) > 1:
            condition = f"({condition})"
        other_datasets = _condition_on_other_datasets(dataset, dataset_rows, read)
        query = shlex.quote(f"{other_datasets} or {condition}")
        filters = f"query={query}"
    return Conflict(dataset, tuple(columns), tuple(_distinct_values(first.values)), filters, first.per_model)


class _Selection(NamedTuple):
    """The rows that have a certain value in a column.

    is_selected: whether each row is one of them.
    word:        the filter that selects them, as it is typed.
    condition:   the same as a condition in a query.
    """

    is_selected: pd.Series
    word: str
    condition: str


def _rows_with_commonest_value(rows: pd.DataFrame, differing: _Differing) -> _Selection:
    """Those of the rows that have the most frequent value in a column, and how a user selects them.

    rows:      the rows to select from.
    differing: the column, and its values in the rows that differ, which decide what is most frequent.
    """
    column = differing.column
    value = _commonest(differing.values)
    word = f"{column}={as_typed(value)}"
    condition = f"{column} == {_literal(value)}"
    is_missing = rows[column].isna()
    if value is None:  # most rows have no value, which only `isna` finds: NaN == NaN is False
        return _Selection(is_missing, word, condition)

    has_value = rows[column] == value
    if column in WEIGHT_COLUMNS or not is_missing.any():
        return _Selection(has_value, word, condition)

    # outside WEIGHT_COLUMNS a missing value equals every value, so rows without a value stay
    return _Selection(has_value | is_missing, f"{word},null", f"({condition} or {column} == None)")


def _condition_on_other_datasets(dataset: str, dataset_rows: pd.DataFrame, read: pd.DataFrame) -> str:
    """The condition of a query that holds for the rows of every data set except this one.

    A query is applied to stored names, whereas `by_version` may have renamed data sets; then column `stored` has the
    stored names. If several versions share the stored name, it cannot exclude one of them, so the condition is on the
    fingerprint.

    dataset:      its name in the analysis.
    dataset_rows: its rows.
    read:         the rows of all data sets.
    """
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
    """The most frequent value of a column; None if missing is the most frequent.

    Of equally frequent values it is the one whose typed form comes first in the alphabet.
    """
    typed_values = values.map(as_typed, na_action="ignore").fillna("null")
    counts = typed_values.value_counts()
    commonest = min(counts[counts == counts.max()].index)
    value = values[typed_values == commonest].iloc[0]  # as it is stored, not as text
    return None if commonest == "null" and pd.isna(value) else value


def _literal(value: Any) -> str:
    """A value as it is written in a query.

    Text is in double quotes, so that single quotes can enclose the whole query in a shell. A whole number is written
    without decimals, although columns with missing values hold floats.
    """
    if isinstance(value, str):
        needs_escapes = '"' in value or "\\" in value
        return repr(value) if needs_escapes else f'"{value}"'
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def _distinct_values(column: pd.Series) -> list[str]:
    """The distinct values of a column as a user types them, sorted; "missing" comes last if a value is missing."""
    values = sorted({as_typed(value) for value in column.dropna().tolist()})
    if column.isna().any():
        values.append("missing")
    return values


def apply_query(rows: pd.DataFrame, query: str | None) -> pd.DataFrame:
    """The rows that meet the conditions of a query.

    Conditions joined by `and` are applied one by one. A condition on a column in which none of these rows has a value
    is skipped: a query on recipe_epochs keeps all rows of features, which have no recipe.

    query: None: all rows are returned.
    """
    if query is None:
        return rows

    columns_with_values = set(rows.dropna(axis="columns", how="all"))
    for condition in conditions_of(query, "query"):  # each condition that `and` joins to others
        # a query may use an earlier name of a column
        names = {name if name in rows else present_name(name) for name in columns_of(condition)}
        if names <= columns_with_values:
            rows = rows_matching(rows, condition, "query")
    return rows
