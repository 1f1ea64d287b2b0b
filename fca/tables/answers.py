"""Response matrices (networks x images, right or wrong), from stored runs and from files."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool

from fca.stats.chance import count_is_at_chance, guessing_accuracy
from fca.store import Store
from fca.tables.predictions import labels_of, predictions
from fca.tables.responses import (
    Responses,
    frame_of_subjects,
    kind_and_severity,
    matching_stored_dataset,
    read_responses,
    stem_of,
    with_file_subjects,
)
from fca.tables.rows import apply_query, by_full_models, by_version, readable_rows, records, require_rows
from fca.types import FcaError

log = logging.getLogger(__name__)
COMMAND = "fca run -m task=predict dataset=cifar10 model=resnet18,vgg16 shift=clean,corruption/all"
_DISTINGUISHED_BY = ("adaptation", "weights", "seed", "run")  # in this order, where one name has several of them
_RUN = re.compile(r"(?P<run>[0-9a-f]{12})/(?P<snapshot>[^/]+)")


def rows_of_subjects(store: Store, query: str | None) -> pd.DataFrame:
    """`predict` rows on test images by models that know every class of the data set, clean or under a corruption.

    Where a data set has a corruption at the reference size and also on images as they are stored (or in rows of before
    there was a reference size), only the former are read.
    Rows that know only some of the classes (sub-models) are no subjects: they were not evaluated on all items.
    Adds the columns subject (its name), corruption and severity; `model` and `snapshot` become those of the subject.
    query: narrows the rows. Each version of a data set counts as a data set (see `by_version`).
    Raises FcaError for a query that cannot be read.
    """
    rows = readable_rows(store, query)
    rows = apply_query(rows[by_full_models(rows)], query)

    corruptions = rows["shift"].fillna("").map(kind_and_severity)  # None: no corruption
    rows = rows[corruptions.notna()].reset_index(drop=True)
    rows, _ = by_version(store, [rows], rows[:0])
    corruption_columns = pd.DataFrame(corruptions.dropna().tolist(), columns=["kind", "severity"])
    rows = rows.assign(
        corruption=_distinct_kinds(rows, corruption_columns["kind"]),
        severity=corruption_columns["severity"],
    )
    rows = _at_one_size(rows)

    rows_by_dataset = [dataset_rows for _, dataset_rows in rows.groupby("dataset")]
    if not rows_by_dataset:
        return rows.assign(subject=None)
    with_subjects = [dataset_rows.assign(**_subject_columns(dataset_rows)) for dataset_rows in rows_by_dataset]
    return pd.concat(with_subjects).sort_values(["dataset", "subject", "corruption", "severity"], ignore_index=True)


def _at_one_size(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at the reference size alone, for every corruption of a data set that has such rows.

    The other rows are of images as stored, or of published images whose margin the network's crop cut a second time.
    Their responses differ much from those at the reference size: one network would count as two subjects.
    """
    is_at_reference = rows["corrupted_at"] == "reference"
    has_reference = is_at_reference.groupby([rows["dataset"], rows["corruption"]]).transform("any")
    is_left_out = has_reference & ~is_at_reference

    is_published = rows["shift"].str.startswith("imagenet_c/")
    groups = rows[is_left_out].groupby(["dataset", is_published[is_left_out]])
    for (dataset, of_published_images), left_out_rows in groups:
        if of_published_images:
            reason = (
                "the network's crop cut the margin of ImageNet-C's images a second time, "
                "which in other runs it does not"
            )
        else:
            reason = "the images were corrupted as stored, those of other runs at the reference size"
        log.warning(
            "%d runs on %s are left out: %s; type 'corrupted_at!=reference' to read them",
            len(left_out_rows),
            dataset,
            reason,
        )
    return rows[~is_left_out]


def _distinct_kinds(rows: pd.DataFrame, kind: pd.Series) -> pd.Series:
    """defocus_blur; where a data set has it from two sources (generated, published), corruption/defocus_blur."""
    source = rows["shift"].str.split("/").str[0]
    has_several_sources = source.groupby([rows["dataset"], kind]).transform("nunique") > 1
    return kind.where(~has_several_sources, source + "/" + kind)


def _subject_columns(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns subject, model and snapshot for the rows of one data set.

    Rows with the same network, snapshot and seed are of one subject.
    """
    key_by_index: dict[int, tuple[Any, ...]] = {}
    properties_by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    evaluations: set[tuple[Any, ...]] = set()  # (subject, shift)
    for row in sorted(records(rows.reset_index()), key=lambda row: row["run_id"]):
        key = _subject_key(row)
        if (key, row["shift"]) in evaluations:  # the same network evaluated twice, under two settings: a second subject
            key = (*key, row["run_id"])
        evaluations.add((key, row["shift"]))
        key_by_index[row["index"]] = key

        training_run, _, snapshot, *_ = key
        if key not in properties_by_key:
            properties_by_key[key] = {
                "model": row["model"],
                "snapshot": snapshot,
                "run": training_run or row["run_id"],
            }
        properties = properties_by_key[key]
        for column in ("adaptation", "weights", "seed"):
            value = _none_if_missing(row[column])
            if properties.get(column) is None and not _RUN.fullmatch(str(value)):
                properties[column] = value

    names = _distinct_names(list(properties_by_key.values()))
    name_by_key = dict(zip(properties_by_key, names, strict=True))
    keys = [key_by_index[index] for index in rows.index]
    return {
        "subject": [name_by_key[key] for key in keys],
        "model": [properties_by_key[key]["model"] for key in keys],
        "snapshot": [properties_by_key[key]["snapshot"] for key in keys],
    }


def _subject_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies the subject of a row: training run (or None), model, snapshot, and settings without a run."""
    training_run = _none_if_missing(row["parent"])
    snapshot = _none_if_missing(row["snapshot"])
    weights_of_run = _RUN.fullmatch(str(row["weights"]))
    if weights_of_run is not None:
        training_run = weights_of_run["run"]
        snapshot = weights_of_run["snapshot"]

    if training_run is not None:
        return training_run, row["model"], snapshot or "best"
    columns = ("weights", "adaptation", "seed", "input_size", "compat")
    settings = [_none_if_missing(row[column]) for column in columns]
    return None, row["model"], snapshot, *settings


def _none_if_missing(value: Any) -> Any:
    return None if pd.isna(value) else value


def _distinct_names(subjects: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each subject: its model, its snapshot if the model has several, and what else makes the name unique.

    subjects: model, snapshot and run of each, with adaptation, weights and seed where they are known.
    """
    models_with_snapshots = {subject["model"] for subject in subjects if subject["snapshot"] not in (None, "best")}
    names: list[str] = []
    for subject in subjects:
        model, snapshot = subject["model"], subject["snapshot"]
        names.append(f"{model}/{snapshot}" if snapshot and model in models_with_snapshots else model)

    for column in _DISTINGUISHED_BY:
        column_word = f"{column} " if column in ("seed", "run") else ""
        for name in {name for name in names if names.count(name) > 1}:
            positions = [position for position, other_name in enumerate(names) if other_name == name]
            values = [subjects[position].get(column) for position in positions]
            if len(set(values)) == 1:
                continue
            for position, value in zip(positions, values, strict=True):
                if value not in (None, "scratch"):
                    names[position] = f"{name}, {column_word}{value}"
    return names


class DatasetResponses(NamedTuple):
    """The responses of all subjects of one data set, and the runs that they are from.

    left_out: subjects that are not there because they lack a severity, with what they lack.
    """

    dataset: str
    fingerprint: str | None  # None for files
    responses: Responses
    runs: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def clean_responses(store: Store, query: str | None, files: Sequence[str] = ()) -> list[DatasetResponses]:
    """Responses on clean test images, by data set: stored full models with all snapshots, and files.

    Sub-models are no subjects, because they know only some of the classes.
    files: each is a data set named by its stem; or further subjects of a stored data set, where all its items are
    image_ids of that set. query: narrows the stored rows, not the files.
    Raises FcaError when there is nothing, and for a file whose data set is in doubt (see `matching_stored_dataset`).
    """
    rows = rows_of_subjects(store, query)
    clean_rows = rows[rows["shift"] == "clean"]
    gathered_by_name: dict[str, DatasetResponses] = {}
    for dataset, dataset_rows in clean_rows.groupby("dataset", sort=True):
        gathered_by_name[str(dataset)] = responses_of_dataset(store, str(dataset), dataset_rows)

    for file in files:
        file_responses = read_responses(file)
        name = stem_of(file)
        stored = {key: gathered.responses for key, gathered in gathered_by_name.items() if gathered.fingerprint}
        stored_name = matching_stored_dataset(file_responses, stored, file)
        if stored_name is not None:
            responses = with_file_subjects(stored[stored_name], file_responses)
            gathered_by_name[stored_name] = gathered_by_name[stored_name]._replace(responses=responses)
        elif name in gathered_by_name:
            raise FcaError("analysis.responses", file, f"no second data set called {name}", "rename the file")
        else:
            gathered_by_name[name] = DatasetResponses(name, None, file_responses, ())

    require_rows(gathered_by_name, "responses of full models on clean test images", len(store.rows()), COMMAND)
    return list(gathered_by_name.values())


def select_responses(
    gathered: DatasetResponses, subjects: Bool[np.ndarray, " subjects"], items: Bool[np.ndarray, " items"]
) -> DatasetResponses:
    """The responses of these subjects to these items."""
    responses = gathered.responses
    cells = np.ix_(subjects, items)
    selected = Responses(
        correct=responses.correct[cells],
        subjects=responses.subjects[subjects].reset_index(drop=True),
        items=responses.items[items].reset_index(drop=True),
        pred=None if responses.pred is None else responses.pred[cells],
        classes=responses.classes,
    )
    return gathered._replace(responses=selected)


def subjects_at_chance(responses: Responses) -> Bool[np.ndarray, " subjects"]:
    """Which subjects are at the level of chance on clean images: no better than always the most frequent label.

    Where there are no clean images, on those of the lowest severity. All False where labels are unknown.
    """
    items = responses.items
    is_cleanest = (items["severity"] == items["severity"].min()).to_numpy()
    is_tested = is_cleanest & items["label"].notna().to_numpy()
    if not is_tested.any():
        return np.zeros(len(responses.subjects), dtype=bool)

    chance = guessing_accuracy(items["label"][is_tested].to_numpy(dtype=str))
    correct = responses.correct[:, is_tested]  # subjects x tested items
    n_answered = (~np.isnan(correct)).sum(axis=1)
    n_right = np.nansum(correct, axis=1)
    is_at_chance = [
        answered > 0 and count_is_at_chance(right, int(answered), chance)
        for right, answered in zip(n_right, n_answered, strict=True)
    ]
    return np.array(is_at_chance)


def at_severity(gathered: DatasetResponses, severity: int) -> DatasetResponses:
    """The items of one severity alone, and the subjects that were evaluated on any of them."""
    responses = gathered.responses
    is_of_severity = (responses.items["severity"] == severity).to_numpy()
    has_response = ~np.isnan(responses.correct[:, is_of_severity]).all(axis=1)
    return select_responses(gathered, has_response, is_of_severity)


def responses_of_dataset(store: Store, dataset: str, rows: pd.DataFrame) -> DatasetResponses:
    """The response matrix of one data set: its columns are the images under each shift, in order of severity."""
    first_row = records(rows.head(1))[0]
    fingerprint = first_row["fingerprint"]
    class_keys, label_indices = labels_of(store, first_row)
    labels = np.array(class_keys, dtype=object)[label_indices]
    stored_items = store.items(fingerprint)
    is_of_split = stored_items["split"] == first_row["split"]
    image_ids = stored_items.loc[is_of_split, "image_id"].to_numpy(dtype=object)

    subject_rows = rows.drop_duplicates("subject").sort_values("subject")
    position_of_subject = {name: position for position, name in enumerate(subject_rows["subject"])}

    item_blocks: list[pd.DataFrame] = []
    pred_blocks: list[np.ndarray] = []  # subjects x images, one block per shift
    correct_blocks: list[np.ndarray] = []
    for severity in sorted(rows["severity"].unique()):
        severity_rows = rows[rows["severity"] == severity]
        shift = str(severity_rows["shift"].iloc[0])
        item_columns = {
            "item": image_ids if shift == "clean" else image_ids + f"@{shift}",
            "image_id": image_ids,
            "label": labels,
            "corruption": severity_rows["corruption"].iloc[0],
            "severity": int(severity),
        }
        item_blocks.append(pd.DataFrame(item_columns))

        pred = np.full((len(position_of_subject), len(image_ids)), -1, dtype=np.int32)
        correct = np.full(pred.shape, np.nan)
        for row in records(severity_rows):
            run = predictions(store, row)
            position = position_of_subject[row["subject"]]
            pred[position] = run.predicted_labels
            correct[position] = run.right
        pred_blocks.append(pred)
        correct_blocks.append(correct)

    snapshots = [None if pd.isna(snapshot) else str(snapshot) for snapshot in subject_rows["snapshot"]]
    responses = Responses(
        correct=np.hstack(correct_blocks),
        subjects=frame_of_subjects(subject_rows["subject"].tolist(), subject_rows["model"].tolist(), snapshots),
        items=pd.concat(item_blocks, ignore_index=True),
        pred=np.hstack(pred_blocks),
        classes=tuple(class_keys),
    )
    return DatasetResponses(dataset, str(fingerprint), responses, tuple(sorted(rows["run_id"])))
