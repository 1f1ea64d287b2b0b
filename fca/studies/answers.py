"""Who answered what, from stored runs and files: the matrices that item response theory and label checks start from."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from fca.stats.chance import guessing, right_at_chance
from fca.stats.irt import check_responses, parts_of
from fca.store import Store
from fca.studies.predictions import labels_of, predictions
from fca.studies.responses import (
    Responses,
    frame_of_subjects,
    joined,
    kind_and_severity,
    read_responses,
    stem_of,
    stored_set,
)
from fca.studies.rows import by_full_models, by_version, every_row, narrowed, records, require
from fca.types import FcaError

log = logging.getLogger(__name__)
NAMED, SHOWN_PARTS = 3, 5  # subjects of a part, and parts, that a line names
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
    found = {str(name): _gathered(store, str(name), part) for name, part in rows.groupby("dataset", sort=True)}
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


def clean_with_subjects(store: Store, query: str | None, files: Sequence[str] = ()) -> list[Gathered]:
    """`clean_responses` that can be fitted: other stored data sets are left out, with a line in the log.

    Subjects that no common item links are data sets of their own (`linked_parts`). Raises FcaError when none is left.
    """
    every = [part for gathered in clean_responses(store, query, files) for part in linked_parts(gathered)]
    problems = [problem for one in every if one.fingerprint is not None and (problem := unfit(one))]
    if len(problems) == len(every):
        raise problems[0]
    for problem in problems:
        log.warning("left out: %s", problem)
    return [one for one in every if one.fingerprint is None or not unfit(one)]


def linked_parts(gathered: Gathered, image: Int[np.ndarray, " items"] | None = None) -> list[Gathered]:
    """The responses apart by subjects that common items link, each part a data set of its own, since nothing compares
    their abilities: `zoo, part 1 of 2`, the one with most subjects first. As they are, if all subjects are linked.

    image: of each item, where subjects are linked by images, whatever was done to them.
    The log names the parts, and those that are left out because too few are in them to be fitted. Raises FcaError if
    that is so of all.
    """
    responses = gathered.responses
    present = ~np.isnan(responses.correct)
    if image is not None:
        of_image = np.zeros((len(image), int(image.max()) + 1))
        of_image[np.arange(len(image)), image] = 1.0
        present = present @ of_image > 0
    part = parts_of(np.where(present, 1.0, np.nan))
    number = int(part.max()) + 1
    if number == 1:
        return [gathered]

    parts, problems, described = list[Gathered](), list[FcaError](), list[str]()
    for at in range(number):
        name = f"{gathered.dataset}, part {at + 1} of {number}"
        one = _part_of(gathered, part == at)
        described.append(f"part {at + 1}: {_names_of(one)}")
        apart = f"{name}: shares no {'item' if image is None else 'image'} with the {sum(part != at)} other subjects"
        one = one._replace(dataset=name, left_out=(*gathered.left_out, apart))
        if problem := unfit(one):
            problems.append(problem)
        else:
            parts.append(one)

    shown = described[:SHOWN_PARTS] + ([f"and {number - SHOWN_PARTS} more"] if number > SHOWN_PARTS else [])
    log.warning(
        "%s: subjects of %d parts have no %s in common, so they are fitted apart and never compared; %s. %s",
        gathered.dataset,
        number,
        "item" if image is None else "image",
        "; ".join(shown),
        "For one scale, add subjects that respond to items of several parts; for one part, leave the other subjects "
        "out of the file, or of the store by query=...",
    )
    if not parts:
        raise problems[0]
    for problem in problems[:SHOWN_PARTS]:
        log.warning("left out: %s", problem)
    return parts


def _part_of(gathered: Gathered, subjects: Bool[np.ndarray, " subjects"]) -> Gathered:
    """Some subjects, and the items that any of them responded to."""
    items = (~np.isnan(gathered.responses.correct[subjects])).any(axis=0)
    return _narrowed(gathered, subjects, items)


def _narrowed(
    gathered: Gathered, subjects: Bool[np.ndarray, " subjects"], items: Bool[np.ndarray, " items"]
) -> Gathered:
    """The responses of these subjects to these items."""
    every = gathered.responses
    cells = np.ix_(subjects, items)
    pred = None if every.pred is None else every.pred[cells]
    about = (every.subjects[subjects].reset_index(drop=True), every.items[items].reset_index(drop=True))
    return gathered._replace(responses=Responses(every.correct[cells], *about, pred, every.classes))


def _names_of(gathered: Gathered) -> str:
    names = gathered.responses.subjects["subject"].tolist()
    named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return f"{len(names)} subjects x {len(gathered.responses.items):,} items ({named})"


def unfit(gathered: Gathered) -> FcaError | None:
    """Why no ability and item can be learned from these responses, naming the data set; None if they can."""
    try:
        check_responses(gathered.responses.correct)
    except FcaError as error:
        what, *rest = error.args
        return FcaError(f"{gathered.dataset}: {what}", *rest)
    return None


def shifted_responses(store: Store, query: str | None, fewest: int = 2) -> Iterator[tuple[str, Gathered]]:
    """Answers under every kind of corruption, one a kind and data set: items are images at each severity, and clean.

    Subjects are those that answered every severity that any did; the others are named in `left_out`. Severity 0 (clean)
    is there where it is stored, NaN for a subject without. A kind that fewer than `fewest` subjects answered is left
    out, and with two or more one that cannot be fitted, with a line in the log. So is a kind that enough subjects
    answered, but too few of them at every severity; raises FcaError if no other kind is left.
    """
    rows = answering_rows(store, query)
    clean = rows[rows["shift"] == "clean"]
    too_few_subjects: list[tuple[str, FcaError]] = []
    is_any_whole = False
    for (dataset, kind), part in rows[rows["shift"] != "clean"].groupby(["dataset", "corruption"], sort=True):
        if part["subject"].nunique() < fewest:
            log.warning("%s on %s is left out: fewer than %d subjects answered it", kind, dataset, fewest)
            continue
        severities = set(part["severity"])
        lacking = {str(subject): severities - set(of["severity"]) for subject, of in part.groupby("subject")}
        left_out = [f"{name} lacks {', '.join(map(str, sorted(of)))}" for name, of in lacking.items() if of]
        whole = [name for name, of in lacking.items() if not of]
        if len(whole) < fewest:
            what = f"subjects with every severity of {kind} on {dataset}"
            step = "run the missing ones, or leave the severity out by query=..."
            too_few = FcaError(what, f"{len(whole)}: {'; '.join(left_out)}", f"{fewest} or more", step)
            too_few_subjects.append((f"{kind} on {dataset}", too_few))
            continue
        used = pd.concat([clean[clean["dataset"] == dataset], part])
        used = used[used["subject"].isin(whole)]
        gathered = _gathered(store, str(dataset), used)._replace(left_out=tuple(left_out))
        if fewest > 1 and (problem := unfit(gathered)):
            log.warning("%s is left out: %s", kind, problem)
            continue
        is_any_whole = True
        yield str(kind), gathered
    if too_few_subjects and not is_any_whole:
        raise too_few_subjects[0][1]
    for name, error in too_few_subjects:
        log.warning("%s is left out: %s", name, error)


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
    return _narrowed(gathered, subjects, items)


def _gathered(store: Store, dataset: str, rows: pd.DataFrame) -> Gathered:
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
