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
from fca.tables.rows import apply_query, by_full_models, readable_rows, records, require_rows, with_names_of_versions
from fca.types import FcaError

log = logging.getLogger(__name__)
COMMAND = "fca run -m task=predict dataset=cifar10 model=resnet18,vgg16 shift=clean,corruption/all"
_DISTINGUISHED_BY = ("adaptation", "weights", "seed", "run")  # added in this order to a name that several subjects have
_RUN = re.compile(r"(?P<run>[0-9a-f]{12})/(?P<snapshot>[^/]+)")  # weights of a training: 0123456789ab/best


def rows_of_subjects(store: Store, query: str | None) -> pd.DataFrame:
    """The predictions of full models on test images, clean or under a corruption, with the subject of each.

    A row of the result is one `predict` run. A subject is what responds in item response theory: a network at one
    snapshot (the weights at some point of its training). Sub-models are no subjects, because they know only some of the
    classes and were not evaluated on all images.

    New columns: `subject` (its name), `corruption` (a kind, or clean) and `severity` (0 for clean). `model` and
    `snapshot` are changed to the model and the snapshot of the subject. Each version of a data set, such as its first
    20 images, counts as a data set. Images may be corrupted at the reference size (224 pixels) or as stored; if a data
    set has rows of a corruption at the reference size, its rows of this corruption at other sizes are left out. The
    result is sorted by data set, subject, corruption and severity.

    query: restricts the rows; None: all.
    Raises FcaError for a query that cannot be read.
    """
    rows = readable_rows(store, query)  # the query is checked, but selects no rows yet
    rows = apply_query(rows[by_full_models(rows)], query)

    # rows under shifts that are no corruptions are left out
    corruptions = rows["shift"].fillna("").map(kind_and_severity)
    rows = rows[corruptions.notna()].reset_index(drop=True)
    rows = with_names_of_versions(store, rows)
    # a line for each row, in the same order
    corruption_columns = pd.DataFrame(corruptions.dropna().tolist(), columns=["kind", "severity"])
    rows = rows.assign(
        corruption=_distinct_corruption_names(rows, corruption_columns["kind"]),
        severity=corruption_columns["severity"],
    )
    rows = _without_other_sizes(rows)

    rows_by_dataset = [dataset_rows for _, dataset_rows in rows.groupby("dataset")]
    if not rows_by_dataset:
        return rows.assign(subject=None)  # pd.concat refuses an empty list
    with_subjects = [dataset_rows.assign(**_subject_columns(dataset_rows)) for dataset_rows in rows_by_dataset]
    return pd.concat(with_subjects).sort_values(["dataset", "subject", "corruption", "severity"], ignore_index=True)


def _without_other_sizes(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out rows of a corruption at other sizes if the data set has the corruption at the reference size (224 px).

    Rows at other sizes are of images that were corrupted as stored, or of published corrupted images whose margin the
    network's crop cut a second time. Their shift has the same name as at the reference size, but the responses differ,
    and a network with rows of both would count as two subjects. A warning for each data set gives the number of rows
    that are left out.

    rows: has the columns corrupted_at ("reference" or another size) and corruption.
    """
    is_at_reference = rows["corrupted_at"] == "reference"
    corruption_of_dataset = [rows["dataset"], rows["corruption"]]
    # for each row, whether any row of the same data set and corruption is at the reference size
    has_reference = is_at_reference.groupby(corruption_of_dataset).transform("any")
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


def _distinct_corruption_names(rows: pd.DataFrame, kind: pd.Series) -> pd.Series:
    """The name of the corruption of each row: its kind, such as defocus_blur.

    A data set may have a kind from two sources: generated by fca, or published. Then the source is put before it:
    corruption/defocus_blur and imagenet_c/defocus_blur.

    kind: the kind of corruption of each row.
    """
    source = rows["shift"].str.split("/").str[0]
    has_several_sources = source.groupby([rows["dataset"], kind]).transform("nunique") > 1
    return kind.where(~has_several_sources, source + "/" + kind)


def _subject_columns(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns `subject` (a unique name), `model` and `snapshot` for the rows of one data set, in the order of the rows.

    A subject is a network at one snapshot of its training; its rows under different shifts belong together.
    """
    key_by_index: dict[int, tuple[Any, ...]] = {}  # index of a row -> key of its subject
    properties_by_key: dict[tuple[Any, ...], dict[str, Any]] = {}  # key -> what may distinguish its name from others
    evaluations: set[tuple[Any, ...]] = set()  # (key of the subject, shift) of the rows so far

    # In a fixed order, so that names do not depend on the order of the rows
    rows_by_run_id = sorted(records(rows.reset_index()), key=lambda row: row["run_id"])
    for row in rows_by_run_id:
        key = _subject_key(row)
        if (key, row["shift"]) in evaluations:  # the same network was evaluated again, under other settings
            key = (*key, row["run_id"])  # it counts as a second subject, distinguished by its run id
        evaluations.add((key, row["shift"]))
        key_by_index[row["index"]] = key

        # a key is (training run, model, snapshot, settings ...); the run is None for published weights
        training_run, _, snapshot, *_ = key
        if key not in properties_by_key:  # the first row of a subject
            properties_by_key[key] = {
                "model": row["model"],
                "snapshot": snapshot,
                "run": training_run or row["run_id"],
            }
        properties = properties_by_key[key]
        for column in ("adaptation", "weights", "seed"):
            value = _none_if_missing(row[column])
            is_weights_of_run = _RUN.fullmatch(str(value)) is not None  # then the property `run` has this id already
            if properties.get(column) is None and not is_weights_of_run:  # the first row that has a value decides
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
    """The key of a row's subject (a network at one snapshot): rows under different shifts with the same key share it.

    A network that was trained in the store is identified by the run of its training: (training run, model, snapshot).
    Published weights, which no run trained, are identified by the settings with which they were loaded:
    (None, model, snapshot, settings ...).

    row: a stored row of predictions.
    """
    training_run = _none_if_missing(row["parent"])
    snapshot = _none_if_missing(row["snapshot"])
    weights_of_run = _RUN.fullmatch(str(row["weights"]))  # weights that a run of the store trained: RUN_ID/SNAPSHOT
    if weights_of_run is not None:
        training_run = weights_of_run["run"]
        snapshot = weights_of_run["snapshot"]

    if training_run is not None:
        return training_run, row["model"], snapshot or "best"  # a row without a snapshot used the best weights
    columns = ("weights", "adaptation", "seed", "input_size", "compat")
    settings = [_none_if_missing(row[column]) for column in columns]
    return None, row["model"], snapshot, *settings


def _none_if_missing(value: Any) -> Any:
    return None if pd.isna(value) else value


def _distinct_names(subjects: Sequence[Mapping[str, Any]]) -> list[str]:
    """A unique name for each subject: `model`, or `model/snapshot` if the model has snapshots other than the best.

    Subjects with the same name get further words, such as `resnet18, probe` or `resnet18, seed 1`, until all names
    differ. The last word to be added is the id of the run, which always differs.

    subjects: for each subject its `model`, `snapshot` and `run`, and its `adaptation`, `weights` and `seed` if known.
    """
    models_with_snapshots = {subject["model"] for subject in subjects if subject["snapshot"] not in (None, "best")}
    names: list[str] = []
    for subject in subjects:
        model, snapshot = subject["model"], subject["snapshot"]
        names.append(f"{model}/{snapshot}" if snapshot and model in models_with_snapshots else model)

    for column in _DISTINGUISHED_BY:
        column_word = f"{column} " if column in ("seed", "run") else ""  # a number alone would not explain itself
        repeated_names = {name for name in names if names.count(name) > 1}
        for name in repeated_names:
            # the subjects with this name, and their values of the column
            positions = [position for position, other_name in enumerate(names) if other_name == name]
            values = [subjects[position].get(column) for position in positions]
            if len(set(values)) == 1:  # this column does not distinguish them
                continue
            for position, value in zip(positions, values, strict=True):
                if value not in (None, "scratch"):  # the usual case keeps the plain name
                    names[position] = f"{name}, {column_word}{value}"
    return names


class DatasetResponses(NamedTuple):
    """The responses of all subjects of one data set.

    dataset:     its name; for a file of responses the name of the file without its suffix.
    fingerprint: of the images; None for a file.
    runs:        ids of the runs that made the predictions; empty for a file.
    left_out:    sentences on subjects that were left out because they lack a severity.
    """

    dataset: str
    fingerprint: str | None
    responses: Responses
    runs: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def clean_responses(store: Store, query: str | None, files: Sequence[str] = ()) -> list[DatasetResponses]:
    """The responses (right or wrong) of models to clean test images, one entry for each data set.

    They are from stored predictions and from files. The subjects, which respond, are full models with all of their
    snapshots. Sub-models are no subjects, because they know only some of the classes.

    query: restricts the stored rows, not the files; None: all.
    files: paths. If all items of a file are images of a stored data set, its subjects are added to that data set;
           otherwise the file is a data set of its own, named by its stem.
    Raises FcaError if there are no responses, for a file whose data set is not clear (see `matching_stored_dataset`),
    and for a file with the name of another data set.
    """
    rows = rows_of_subjects(store, query)
    clean_rows = rows[rows["shift"] == "clean"]
    gathered_by_name: dict[str, DatasetResponses] = {}
    for dataset, dataset_rows in clean_rows.groupby("dataset", sort=True):
        gathered_by_name[str(dataset)] = responses_of_dataset(store, str(dataset), dataset_rows)

    for file in files:
        file_responses = read_responses(file)
        name = stem_of(file)
        # only entries from the store have a fingerprint; a file is not matched with an earlier file
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
    """The responses of the selected subjects (models) to the selected items (images).

    The other fields of `gathered`, such as its runs, stay the same.

    subjects, items: masks, True for what is kept.
    """
    responses = gathered.responses
    cells = np.ix_(subjects, items)  # indexes the block where a selected row meets a selected column
    selected = Responses(
        correct=responses.correct[cells],
        subjects=responses.subjects[subjects].reset_index(drop=True),
        items=responses.items[items].reset_index(drop=True),
        pred=None if responses.pred is None else responses.pred[cells],
        classes=responses.classes,
    )
    return gathered._replace(responses=selected)


def subjects_at_chance(responses: Responses) -> Bool[np.ndarray, " subjects"]:
    """Whether the accuracy of each subject is not significantly above always predicting the most frequent label.

    That is so where the lower end of Wilson's 95 % interval of the accuracy is at most the share of the most frequent
    label. Both are of the labelled images of the lowest severity, which are clean images if there are any. All are
    False if no such image has a label; a subject without a response to these images is False.
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
    """The responses to the items (images) of one severity; subjects without a response to any of them are left out."""
    responses = gathered.responses
    is_of_severity = (responses.items["severity"] == severity).to_numpy()
    has_response = ~np.isnan(responses.correct[:, is_of_severity]).all(axis=1)
    return select_responses(gathered, has_response, is_of_severity)


def responses_of_dataset(store: Store, dataset: str, rows: pd.DataFrame) -> DatasetResponses:
    """The response matrix (subjects x items) of one data set.

    The items are all images of the split, once for each severity, by ascending severity. A subject that was not
    evaluated at some severity has no response (NaN, and -1 as predicted class) to the images of that severity.

    rows: rows of `rows_of_subjects` of this data set, with a single shift for each severity.
    """
    first_row = records(rows.head(1))[0]
    fingerprint = first_row["fingerprint"]
    class_keys, label_indices = labels_of(store, first_row)
    labels = np.array(class_keys, dtype=object)[label_indices]  # class key of each image
    stored_items = store.items(fingerprint)  # all rows are of one split, so the first one gives the images
    is_of_split = stored_items["split"] == first_row["split"]
    image_ids = stored_items.loc[is_of_split, "image_id"].to_numpy(dtype=object)

    subject_rows = rows.drop_duplicates("subject").sort_values("subject")
    position_of_subject = {name: position for position, name in enumerate(subject_rows["subject"])}

    item_blocks: list[pd.DataFrame] = []
    pred_blocks: list[np.ndarray] = []  # subjects x images, one block per shift
    correct_blocks: list[np.ndarray] = []  # the same shape: whether each prediction is right
    for severity in sorted(rows["severity"].unique()):
        severity_rows = rows[rows["severity"] == severity]
        shift = str(severity_rows["shift"].iloc[0])  # all rows of a severity have the same
        item_columns = {
            "item": image_ids if shift == "clean" else image_ids + f"@{shift}",
            "image_id": image_ids,
            "label": labels,
            "corruption": severity_rows["corruption"].iloc[0],
            "severity": int(severity),
        }
        item_blocks.append(pd.DataFrame(item_columns))

        pred = np.full((len(position_of_subject), len(image_ids)), -1, dtype=np.int32)
        correct = np.full(pred.shape, np.nan)  # NaN and -1 stay where a subject has no predictions of this severity
        for row in records(severity_rows):
            run = predictions(store, row)
            position = position_of_subject[row["subject"]]
            pred[position] = run.predicted_labels  # positions in `class_keys`
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
