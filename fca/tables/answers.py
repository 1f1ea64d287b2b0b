"""Responses of networks to images, from stored runs and files: matrices of right and wrong, with what they are of."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool

from fca.stats.chance import guessing, right_at_chance
from fca.store import Store
from fca.tables.predictions import labels_of, predictions
from fca.tables.responses import (
    Responses,
    frame_of_subjects,
    joined,
    kind_and_severity,
    read_responses,
    stem_of,
    stored_set,
)
from fca.tables.rows import by_full_models, by_version, every_row, narrowed, records, require
from fca.types import FcaError

log = logging.getLogger(__name__)
COMMAND = "fca run -m task=predict dataset=cifar10 model=resnet18,vgg16 shift=clean,corruption/all"
_DISTINGUISHED_BY = ("adaptation", "weights", "seed", "run")  # in this order, where one name has several of them
_RUN = re.compile(r"(?P<run>[0-9a-f]{12})/(?P<snapshot>[^/]+)")


def answering_rows(store: Store, query: str | None) -> pd.DataFrame:
    """`predict` rows on test images by models that know every class of the data set, clean or under a corruption.

    Where a data set has a corruption at the reference size and also on images as they are stored (or in rows of before
    there was a reference size), only the former are read.
    Rows that know only some of the classes (sub-models) are no subjects: they were not evaluated on all items.
    With columns subject (named), corruption, severity, and `model` and `snapshot` of the subject. query: narrows them.
    Each version of a data set is one of its own (see `by_version`). Raises FcaError for a query that cannot be read.
    """
    rows = every_row(store, query)
    rows = narrowed(rows[by_full_models(rows)], query)
    places = rows["shift"].fillna("").map(kind_and_severity)
    rows, _ = by_version(store, [rows[places.notna()].reset_index(drop=True)], rows[:0])
    known = pd.DataFrame(places.dropna().tolist(), columns=["kind", "severity"])
    rows = rows.assign(corruption=_distinct_kinds(rows, known["kind"]), severity=known["severity"])
    rows = _at_one_size(rows)
    named = [part.assign(**_named(part)) for _, part in rows.groupby("dataset")]
    if not named:
        return rows.assign(subject=None)
    return pd.concat(named).sort_values(["dataset", "subject", "corruption", "severity"], ignore_index=True)


def _at_one_size(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at the reference size alone, for every corruption of a data set that has such rows.

    Others are of stored images, or of published ones whose margin the network's crop cut a second time. They are far
    from those at the reference size, and would be one network that answers twice.
    """
    at_reference = rows["corrupted_at"] == "reference"
    has_both = at_reference.groupby([rows["dataset"], rows["corruption"]]).transform("any") & ~at_reference
    is_published = rows["shift"].str.startswith("imagenet_c/")
    for (dataset, of_published), part in rows[has_both].groupby(["dataset", is_published[has_both]]):
        log.warning(
            "%d runs on %s are left out: %s; type 'corrupted_at!=reference' to read them",
            len(part),
            dataset,
            "the network's crop cut the margin of ImageNet-C's images a second time, which in other runs it does not"
            if of_published
            else "the images were corrupted as stored, those of other runs at the reference size",
        )
    return rows[~has_both]


def _distinct_kinds(rows: pd.DataFrame, kind: pd.Series) -> pd.Series:
    """defocus_blur; where a data set has it from two sources (generated, published), corruption/defocus_blur."""
    source = rows["shift"].str.split("/").str[0]
    several = source.groupby([rows["dataset"], kind]).transform("nunique") > 1
    return kind.where(~several, source + "/" + kind)


def _named(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """The subject, model and snapshot of each row of one data set: same network, snapshot and seed, same subject."""
    lines = sorted(records(rows.reset_index()), key=lambda row: row["run_id"])
    subject_of: dict[int, tuple[Any, ...]] = {}
    about: dict[tuple[Any, ...], dict[str, Any]] = {}
    seen: set[tuple[Any, ...]] = set()
    for row in lines:
        key = _key(row)
        if (key, row["shift"]) in seen:  # the same network evaluated twice, in two ways: one more subject
            key = (*key, row["run_id"])
        seen.add((key, row["shift"]))
        subject_of[row["index"]] = key
        known = about.setdefault(key, {"model": row["model"], "snapshot": key[2], "run": key[0] or row["run_id"]})
        for column in ("adaptation", "weights", "seed"):
            value = _none(row[column])
            if known.get(column) is None and not _RUN.fullmatch(str(value)):
                known[column] = value
    names = dict(zip(about, _distinct_names(list(about.values())), strict=True))
    keys = [subject_of[at] for at in rows.index]
    columns = {name: [about[key][name] for key in keys] for name in ("model", "snapshot")}
    return {"subject": [names[key] for key in keys], **columns}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which subject a row is of: the training run (or None), the network and its settings, the snapshot."""
    run, snapshot = _none(row["parent"]), _none(row["snapshot"])
    found = _RUN.fullmatch(str(row["weights"]))
    if found is not None:
        run, snapshot = found["run"], found["snapshot"]
    if run is not None:
        return run, row["model"], snapshot or "best"
    columns = ("weights", "adaptation", "seed", "input_size", "compat")
    return None, row["model"], snapshot, *(_none(row[column]) for column in columns)


def _none(value: Any) -> Any:
    return None if pd.isna(value) else value


def _distinct_names(about: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each: the model, its snapshot where there are others than the best, and what else is needed."""
    series = {one["model"] for one in about if one["snapshot"] not in (None, "best")}
    named = [f"{one['model']}/{one['snapshot']}" if one["snapshot"] else one["model"] for one in about]
    names = [name if one["model"] in series else one["model"] for name, one in zip(named, about, strict=True)]
    for column in _DISTINGUISHED_BY:
        for name in {name for name in names if names.count(name) > 1}:
            alike = [at for at, other in enumerate(names) if other == name]
            if len({about[at].get(column) for at in alike}) > 1:
                word = f"{column} " if column in ("seed", "run") else ""
                for at in alike:
                    value = about[at].get(column)
                    names[at] = name if value in (None, "scratch") else f"{name}, {word}{value}"
    return names


class Gathered(NamedTuple):
    """The responses of all subjects of one data set, and the runs that they are from.

    left_out: subjects that are not there because they lack a severity, with what they lack.
    """

    dataset: str
    fingerprint: str | None  # None for files
    responses: Responses
    runs: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def clean_responses(store: Store, query: str | None, files: Sequence[str] = ()) -> list[Gathered]:
    """Answers on clean test images, one a data set: every snapshot of every full model, and those of the files.

    Sub-models are no subjects, because they know only some of the classes.
    files: each is a data set of its own, named by its stem; or more subjects of a stored data set, where all its items
    are image_ids of that. query: narrows the stored rows, not the files.
    Raises FcaError when there is nothing, and for a file whose data set is in doubt (see `stored_set`).
    """
    rows = answering_rows(store, query)
    rows = rows[rows["shift"] == "clean"]
    found = {str(name): gathered_of(store, str(name), part) for name, part in rows.groupby("dataset", sort=True)}
    for file in files:
        read, name = read_responses(file), stem_of(file)
        dataset = stored_set(read, {key: one.responses for key, one in found.items() if one.fingerprint}, file)
        if dataset is not None:
            found[dataset] = found[dataset]._replace(responses=joined(found[dataset].responses, read))
        elif name in found:
            raise FcaError("analysis.responses", file, f"no second data set called {name}", "rename the file")
        else:
            found[name] = Gathered(name, None, read, ())
    require(found, "responses of full models on clean test images", len(store.rows()), COMMAND)
    return list(found.values())


def narrowed_to(
    gathered: Gathered, subjects: Bool[np.ndarray, " subjects"], items: Bool[np.ndarray, " items"]
) -> Gathered:
    """The responses of these subjects to these items."""
    every = gathered.responses
    cells = np.ix_(subjects, items)
    pred = None if every.pred is None else every.pred[cells]
    about = (every.subjects[subjects].reset_index(drop=True), every.items[items].reset_index(drop=True))
    return gathered._replace(responses=Responses(every.correct[cells], *about, pred, every.classes))


def subjects_at_chance(responses: Responses) -> Bool[np.ndarray, " subjects"]:
    """Which subjects are at the level of chance on clean images: no better than always the most frequent label.

    Where there are no clean images, on those of the lowest severity. All False where labels are unknown.
    """
    items = responses.items
    is_clean = (items["severity"] == items["severity"].min()).to_numpy() & items["label"].notna().to_numpy()
    if not is_clean.any():
        return np.zeros(len(responses.subjects), dtype=bool)
    guess = guessing(items["label"][is_clean].to_numpy(dtype=str))
    correct = responses.correct[:, is_clean]
    answered = (~np.isnan(correct)).sum(axis=1)
    right = np.nansum(correct, axis=1)
    return np.array([n > 0 and right_at_chance(r, int(n), guess) for r, n in zip(right, answered, strict=True)])


def at_severity(gathered: Gathered, severity: int) -> Gathered:
    """The items of one severity alone, and the subjects that were evaluated on any of them."""
    every = gathered.responses
    items = (every.items["severity"] == severity).to_numpy()
    subjects = ~np.isnan(every.correct[:, items]).all(axis=1)
    return narrowed_to(gathered, subjects, items)


def gathered_of(store: Store, dataset: str, rows: pd.DataFrame) -> Gathered:
    """The matrix of these rows of one data set: a block of items a shift, in order of severity."""
    first = records(rows.head(1))[0]
    keys, labels = labels_of(store, first)
    images = store.items(first["fingerprint"])
    images = images.loc[images["split"] == first["split"], "image_id"].to_numpy(dtype=object)
    about = rows.drop_duplicates("subject").sort_values("subject")
    position = {name: at for at, name in enumerate(about["subject"])}
    blocks, pred, correct = [], [], []
    for severity in sorted(rows["severity"].unique()):
        part = rows[rows["severity"] == severity]
        shift = str(part["shift"].iloc[0])
        names = images if shift == "clean" else images + f"@{shift}"
        block = {"item": names, "image_id": images, "label": np.array(keys, dtype=object)[labels]}
        blocks.append(pd.DataFrame(block | {"corruption": part["corruption"].iloc[0], "severity": int(severity)}))
        predicted = np.full((len(position), len(images)), -1, dtype=np.int32)
        right = np.full(predicted.shape, np.nan)
        for row in records(part):
            at, found = position[row["subject"]], predictions(store, row)
            predicted[at], right[at] = found.predicted_labels, found.right
        pred.append(predicted)
        correct.append(right)
    snapshots = [None if pd.isna(snapshot) else str(snapshot) for snapshot in about["snapshot"]]
    subjects = frame_of_subjects(about["subject"].tolist(), about["model"].tolist(), snapshots)
    items = pd.concat(blocks, ignore_index=True)
    responses = Responses(np.hstack(correct), subjects, items, np.hstack(pred), tuple(keys))
    return Gathered(dataset, str(first["fingerprint"]), responses, tuple(sorted(rows["run_id"])))
