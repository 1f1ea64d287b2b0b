"""Responses that can be fitted: of subjects that common items link, with right and wrong ones of every subject."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

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
NAMED, SHOWN_PARTS = 3, 5  # subjects of a part, and parts, that a line names


def clean_with_subjects(store: Store, query: str | None, files: Sequence[str] = ()) -> list[DatasetResponses]:
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


def linked_parts(gathered: DatasetResponses, image: Int[np.ndarray, " items"] | None = None) -> list[DatasetResponses]:
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

    parts, problems, described = list[DatasetResponses](), list[FcaError](), list[str]()
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


def _part_of(gathered: DatasetResponses, subjects: Bool[np.ndarray, " subjects"]) -> DatasetResponses:
    """Some subjects, and the items that any of them responded to."""
    items = (~np.isnan(gathered.responses.correct[subjects])).any(axis=0)
    return select_responses(gathered, subjects, items)


def _names_of(gathered: DatasetResponses) -> str:
    names = gathered.responses.subjects["subject"].tolist()
    named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return f"{len(names)} subjects x {len(gathered.responses.items):,} items ({named})"


def unfit(gathered: DatasetResponses) -> FcaError | None:
    """Why no ability and item can be learned from these responses, naming the data set; None if they can."""
    try:
        check_responses(gathered.responses.correct)
    except FcaError as error:
        what, *rest = error.args
        return FcaError(f"{gathered.dataset}: {what}", *rest)
    return None


def shifted_responses(store: Store, query: str | None, fewest: int = 2) -> Iterator[tuple[str, DatasetResponses]]:
    """Answers under every kind of corruption, one a kind and data set: items are images at each severity, and clean.

    Subjects are those that answered every severity that any did; the others are named in `left_out`. Severity 0 (clean)
    is there where it is stored, NaN for a subject without. A kind that fewer than `fewest` subjects answered is left
    out, and with two or more one that cannot be fitted, with a line in the log. So is a kind that enough subjects
    answered, but too few of them at every severity; raises FcaError if no other kind is left.
    """
    rows = rows_of_subjects(store, query)
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
        gathered = responses_of_dataset(store, str(dataset), used)._replace(left_out=tuple(left_out))
        if fewest > 1 and (problem := unfit(gathered)):
            log.warning("%s is left out: %s", kind, problem)
            continue
        is_any_whole = True
        yield str(kind), gathered
    if too_few_subjects and not is_any_whole:
        raise too_few_subjects[0][1]
    for name, error in too_few_subjects:
        log.warning("%s is left out: %s", name, error)
