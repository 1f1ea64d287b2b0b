"""Responses that can be fitted: of subjects that common items link, with right and wrong ones of every subject."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fca.store import Store
from fca.studies.irt.stats import check_responses, parts_of
from fca.tables.answers import (
    DatasetResponses,
    clean_responses,
    responses_of_dataset,
    rows_of_subjects,
    select_responses,
)
from fca.types import FcaError

log = logging.getLogger(__name__)
SHOWN_SUBJECTS, SHOWN_PARTS = 3, 5  # subjects of a part, and parts, that a line in the log names


def clean_with_subjects(store: Store, query: str | None, files: Sequence[str] = ()) -> list[DatasetResponses]:
    """Responses to clean images that can be fitted, one entry for each data set.

    Responses come from stored runs, as selected by `query` (None: all), and from files. If no common items link all
    subjects of a data set, each linked part becomes a data set of its own. Stored data sets that cannot be fitted are
    left out, with a line in the log. Raises FcaError if none is left, and if no part of a file can be fitted.
    """
    fittable: list[DatasetResponses] = []
    problems: list[FcaError] = []
    for gathered in clean_responses(store, query, files):
        # a file (it has no fingerprint) is kept in any case, because the user named it: if it cannot be fitted, its fit
        # raises the error
        is_stored = gathered.fingerprint is not None
        try:
            parts = linked_parts(gathered)
        except FcaError as error:  # no part can be fitted
            if not is_stored:
                raise
            problems.append(error)
            continue

        for part in parts:
            problem = unfit(part) if is_stored else None  # why the data set cannot be fitted, or None
            if problem is None:
                fittable.append(part)
            else:
                problems.append(problem)

    if not fittable:
        raise problems[0]
    for problem in problems:
        log.warning("left out: %s", problem)
    return fittable


def linked_parts(gathered: DatasetResponses, image: Int[np.ndarray, " items"] | None = None) -> list[DatasetResponses]:
    """Split the responses into parts whose subjects common items link; a list of one if all subjects are linked.

    Each part is a data set of its own (`zoo, part 1 of 2`, the one with most subjects first), since nothing compares
    the abilities of two parts. A part has only the items to which its subjects responded.

    image: number of the image of each item; None: each item is an image of its own. If given, a common image links
    subjects, even if it was corrupted differently for each.

    A warning names the parts. Parts that cannot be fitted, for example with too few subjects, are left out with a
    warning. Raises FcaError if no part can be fitted.
    """
    responses = gathered.responses
    part_of_subject = _number_parts(responses.correct, image)
    n_parts = int(part_of_subject.max()) + 1
    if n_parts == 1:
        return [gathered]

    link = "item" if image is None else "image"
    fittable: list[DatasetResponses] = []
    problems: list[FcaError] = []
    descriptions: list[str] = []
    for number in range(n_parts):
        name = f"{gathered.dataset}, part {number + 1} of {n_parts}"
        is_in_part = part_of_subject == number
        has_response = (~np.isnan(responses.correct[is_in_part])).any(axis=0)  # by item
        linked_part = select_responses(gathered, is_in_part, has_response)
        descriptions.append(f"part {number + 1}: {_size_and_names(linked_part)}")

        # every part notes that it stands apart, beside what was left out of the responses before
        reason = f"{name}: shares no {link} with the {sum(~is_in_part)} other subjects"
        linked_part = linked_part._replace(dataset=name, left_out=(*gathered.left_out, reason))
        problem = unfit(linked_part)  # why the part cannot be fitted, or None
        if problem is None:
            fittable.append(linked_part)
        else:
            problems.append(problem)

    _warn_of_parts(gathered.dataset, link, descriptions)
    if not fittable:
        raise problems[0]
    for problem in problems[:SHOWN_PARTS]:
        log.warning("left out: %s", problem)
    return fittable


def _number_parts(
    correct: Float[np.ndarray, "subjects items"], image: Int[np.ndarray, " items"] | None
) -> Int[np.ndarray, " subjects"]:
    """The number of the linked part of each subject; part 0 has most subjects.

    Two subjects are linked by an item that both responded to, or by a chain of subjects that are linked in this way.
    correct: NaN where a subject has no response to an item.
    image: number of the image of each item, if a common image is to link subjects as well; None: only a common item.
    """
    present = ~np.isnan(correct)
    if image is not None:  # from subjects x items to subjects x images: any response to an item of the image
        is_item_of_image = np.zeros((len(image), int(image.max()) + 1))  # items x images
        is_item_of_image[np.arange(len(image)), image] = 1.0
        present = present @ is_item_of_image > 0
    return parts_of(np.where(present, 1.0, np.nan))  # only which responses are missing matters


def _warn_of_parts(dataset: str, link: str, descriptions: Sequence[str]) -> None:
    """Log a warning that subjects of several parts cannot be compared, and what to do about it.

    link: what the subjects of two parts do not have in common, "item" or "image".
    descriptions: of each part.
    """
    n_parts = len(descriptions)
    shown_descriptions = list(descriptions[:SHOWN_PARTS])
    if n_parts > SHOWN_PARTS:
        shown_descriptions.append(f"and {n_parts - SHOWN_PARTS} more")
    log.warning(
        "%s: subjects of %d parts have no %s in common, so they are fitted apart and never compared; %s. %s",
        dataset,
        n_parts,
        link,
        "; ".join(shown_descriptions),
        "For one scale, add subjects that respond to items of several parts; for one part, leave the other subjects "
        "out of the file, or of the store by query=...",
    )


def _size_and_names(gathered: DatasetResponses) -> str:
    """How many subjects and items a part has, with the names of its first subjects, for a line in the log."""
    names = gathered.responses.subjects["subject"].tolist()
    shown_names = ", ".join(names[:SHOWN_SUBJECTS])
    if len(names) > SHOWN_SUBJECTS:
        shown_names += ", ..."
    return f"{len(names)} subjects x {len(gathered.responses.items):,} items ({shown_names})"


def unfit(gathered: DatasetResponses) -> FcaError | None:
    """Why these responses cannot be fitted, as an error that names the data set; None if they can be fitted."""
    try:
        check_responses(gathered.responses.correct)
    except FcaError as error:
        subject, *details = error.args  # what the error is about, value, allowed, next step
        return FcaError(f"{gathered.dataset}: {subject}", *details)
    return None


def shifted_responses(store: Store, query: str | None, fewest: int = 2) -> Iterator[tuple[str, DatasetResponses]]:
    """Yield the kind of corruption and the responses under it, for every data set and kind with stored runs.

    Each item is an image at one severity of the kind. Clean images (severity 0) are included if their runs are stored;
    a subject without responses to them has NaN there. Only subjects with responses at every severity are used; the
    field `left_out` of the yielded responses names the other subjects.

    A kind is left out, with a line in the log, if fewer than `fewest` subjects have responses at every severity, or if
    the responses cannot be fitted. The latter is checked only if `fewest` is 2 or more, since analyses with `fewest` 1
    fit nothing.
    Raises FcaError, after the last kind, if no kind was yielded and some kind had enough subjects, but too few of them
    with every severity: the user can run the missing severities. In all other cases nothing is raised.
    """
    rows = rows_of_subjects(store, query)
    clean_rows = rows[rows["shift"] == "clean"]
    shifted_rows = rows[rows["shift"] != "clean"]
    too_few_subjects: list[tuple[str, FcaError]] = []  # kinds to report at the end, each with the error
    has_yielded = False
    for (dataset, kind), rows_of_kind in shifted_rows.groupby(["dataset", "corruption"], sort=True):
        if rows_of_kind["subject"].nunique() < fewest:
            log.warning("%s on %s is left out: fewer than %d subjects answered it", kind, dataset, fewest)
            continue

        complete_subjects, lacking_texts = _subjects_with_every_severity(rows_of_kind)
        if len(complete_subjects) < fewest:
            what = f"subjects with every severity of {kind} on {dataset}"
            value = f"{len(complete_subjects)}: {'; '.join(lacking_texts)}"
            step = "run the missing ones, or leave the severity out by query=..."
            error = FcaError(what, value, f"{fewest} or more", step)  # raised at the end, if no kind is left
            too_few_subjects.append((f"{kind} on {dataset}", error))
            continue

        used_rows = pd.concat([clean_rows[clean_rows["dataset"] == dataset], rows_of_kind])
        used_rows = used_rows[used_rows["subject"].isin(complete_subjects)]
        gathered = responses_of_dataset(store, str(dataset), used_rows)._replace(left_out=tuple(lacking_texts))
        problem = unfit(gathered) if fewest > 1 else None  # why they cannot be fitted, or None
        if problem is not None:
            log.warning("%s is left out: %s", kind, problem)
            continue
        has_yielded = True
        yield str(kind), gathered

    if too_few_subjects and not has_yielded:
        raise too_few_subjects[0][1]
    for name, error in too_few_subjects:
        log.warning("%s is left out: %s", name, error)


def _subjects_with_every_severity(rows_of_kind: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The subjects with a run at every severity, and for each of the others a text with the severities that it lacks.

    rows_of_kind: rows of one data set and kind of corruption; the severities are those that any subject has.
    """
    severities = set(rows_of_kind["severity"])
    complete_subjects: list[str] = []
    lacking_texts: list[str] = []
    for subject, rows_of_subject in rows_of_kind.groupby("subject"):
        lacking = severities - set(rows_of_subject["severity"])
        if lacking:
            lacking_texts.append(f"{subject} lacks {', '.join(map(str, sorted(lacking)))}")
        else:
            complete_subjects.append(str(subject))
    return complete_subjects, lacking_texts
