"""Quarters of the images by difficulty: what each model solves of them, and which classes are in the outer ones.

A fit gives every item an expected success; the quarters are cut on clean images and applied to corrupted ones
(compat=seed001: cut by raw difficulty at each severity). analysis=class_robustness follows the same quarters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fca.stats.intervals import wilson
from fca.store import Store
from fca.studies.irt.fits import (
    IMAGES_OF_CLASS,
    PAPER,
    PARAMETER,
    PLACE,
    SHARE,
    SHARE_OF_CLASS,
    SUBJECT,
    Compat,
    IrtModel,
    fitted,
)
from fca.studies.irt.fittable import clean_with_subjects, shifted_responses
from fca.studies.irt.not_estimable import priors_noted
from fca.studies.irt.stats import segments
from fca.studies.irt.stats.segments import LEVELS, QUARTERS, SEGMENTS, Codes, PerItem
from fca.tables.answers import DatasetResponses, subjects_at_chance
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import AT_CHANCE, CORRUPTION, DATASET, LABEL, MODEL, N_CLASSES, SEVERITY, N, TableSpec
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Seed

SEED = "seed001"
COMPAT = (None, SEED)
NAMES = {"difficulty": SEGMENTS, "discrimination": LEVELS}  # of the quarters, lowest first
OUTER = {"top": QUARTERS - 1, "bottom": 0}  # the hardest or most discriminating; the easiest or least discriminating
DRAWN = 2400  # lines of the table of subjects in a page
SUBJECTS = (6, 24)  # drawn at least, at most
DRAWN_CLASSES = 20

_SHOWN = {name: name.replace("_", "-") for name in SEGMENTS}
_SHOWN |= {name: f"{name.replace('_', '-')} discrimination" for name in LEVELS}
SEGMENT = Column("segment", str, "", "quarter of the images", _SHOWN)
QUARTER = Column("quarter", str, "", "outer quarter", {"top": "top quarter", "bottom": "bottom quarter"})
RIGHT = Column("right", int, ".0f", "right responses")
SHARE_RIGHT = SHARE.with_format(".1%", "share of right responses")
ITEMS = Column("items", int, ".0f", "images of the class in the segment")
PLACE_BY_ACCURACY = PLACE.with_format(".0f", "rank by accuracy on clean images, 0 is the best")
ALL_CLASSES = N_CLASSES.with_format(".0f", "classes in all")
DIFFERENCE = Column("difference", float, "+.1%", "share in the top minus share in the bottom quarter")

SEGMENT_MODELS = TableSpec(
    "segment_models",
    "How much of the easy and of the hard images does each model solve? (right of n; Wilson's 95 % interval)",
    f"{PAPER}, Table 3, with segments by expected success",
    (
        *(DATASET, CORRUPTION, SEVERITY, SUBJECT, MODEL, SEGMENT, RIGHT, N.with_format(".0f", "responses")),
        *(*interval_columns(SHARE_RIGHT), AT_CHANCE),
    ),
)
SEGMENT_MODELS_SHOWN = TableSpec(
    "segment_models_shown",
    "Who solves the hard images? (subjects from best to worst, clean and at the highest severity)",
    SEGMENT_MODELS.source,
    (*SEGMENT_MODELS.columns, PLACE_BY_ACCURACY, Column("subjects", int, ".0f", "subjects in all")),
)
SEGMENT_CLASSES = TableSpec(
    "segment_classes",
    "Which classes are among the hardest and the easiest, the most and the least discriminating quarter?",
    f"{PAPER}, Figure 4: classes in the top and the bottom 25 % of clean images",
    (DATASET, PARAMETER, QUARTER, LABEL, ITEMS, IMAGES_OF_CLASS, *interval_columns(SHARE_OF_CLASS), AT_CHANCE),
)
SEGMENT_CLASSES_SHOWN = TableSpec(
    "segment_classes_shown",
    "Which classes are hard, which discriminating? (those that differ most between the quarters)",
    f"{PAPER}, Figure 4",
    (*SEGMENT_CLASSES.columns, DIFFERENCE, ALL_CLASSES),
)
METHOD = {
    "segments": "quarters of the images by expected success (mean over the fitted subjects), cut on clean images; the "
    "same cut values under a corruption; compat=seed001: by difficulty b, cut at each severity by itself",
    "ties": "equal images are put in an order drawn from the seed, the same at every severity",
    "at_chance": "on clean images, against always predicting the most frequent label; in segment_classes: whether all "
    "subjects are",
    "fit": "one fit of all severities of a corruption, with the clean images; clean images alone for clean",
}


@dataclass(frozen=True)
class DifficultySegments:
    """`analysis=difficulty_segments`; reads full models' responses to test images, clean and under corruptions."""

    tables: ClassVar = (SEGMENT_MODELS, SEGMENT_MODELS_SHOWN, SEGMENT_CLASSES, SEGMENT_CLASSES_SHOWN)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    model: IrtModel = "2pl"
    compat: Annotated[
        Compat,
        "seed001: segments by raw difficulty, cut at each severity; as in the paper with model=3pl-upper",
    ] = None
    seed: Annotated[Seed, "of the order of equal images, and of the fit under compat"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables segment_models and segment_classes, and of both the lines that are drawn."""
        models, classes = list[pd.DataFrame](), list[dict[str, Any]]()
        runs, left_out = set[str](), list[str]()
        not_estimable: dict[str, list[str]] = {}
        clean = [("clean", gathered) for gathered in clean_with_subjects(store, self.query, self.responses)]
        for of, gathered in chain(clean, shifted_responses(store, self.query)):
            found = quartered(gathered, self.model, self.compat, self.seed)
            if found.not_estimable:
                not_estimable[f"{gathered.dataset} {of}"] = list(found.not_estimable)
            for corruption, severity in places(gathered):
                if severity or of == "clean":
                    models.append(subject_lines(gathered, found, corruption, severity))
            if of == "clean":
                classes += class_lines(gathered, found)
            runs.update(gathered.runs)
            left_out += gathered.left_out
        of_models, of_classes = pd.concat(models, ignore_index=True), SEGMENT_CLASSES.frame(classes)
        frames = [of_models, shown_subjects(of_models), of_classes, shown_classes(of_classes)]
        parameters = {**asdict(self), **METHOD, "left_out": "; ".join(dict.fromkeys(left_out)) or None}
        parameters |= priors_noted(not_estimable)
        return [spec.table(frame, parameters, sorted(runs)) for spec, frame in zip(self.tables, frames, strict=True)]


class Quartered(NamedTuple):
    """A fit's items. success: expected, mean over the fitted subjects.    difficulty: b.

    quarter: by parameter (difficulty, discrimination), 0 = the easiest, the least discriminating; without the
    discrimination where a model gives all items the same.    not_estimable: scales of the fit, see `IrtFit`.
    """

    success: PerItem
    difficulty: PerItem
    quarter: dict[str, Codes]
    not_estimable: tuple[str, ...] = ()


def quartered(gathered: DatasetResponses, model: str, compat: str | None, seed: int) -> Quartered:
    """Fit the responses and sort the items into quarters.

    Raises FcaError for an unknown compat, and where there are no clean items to cut on.
    """
    if compat not in COMPAT:
        raise FcaError("analysis.compat", compat, "null or seed001", "change it")
    items = gathered.responses.items
    fit = fitted(gathered, model, compat, seed)
    order, severity = tie_order(items["image_id"], seed), items["severity"].to_numpy()
    if compat is None and not (severity == 0).any():
        what = f"clean responses of {gathered.dataset} beside those under {items['corruption'].iloc[0]}"
        raise FcaError(what, "none", "those of the same subjects", "fca run task=predict shift=clean with these models")
    success = fit.expected_success
    values = {"difficulty": fit.difficulty if compat == SEED else 1 - success}
    if np.ptp(fit.discrimination) > 0:
        values["discrimination"] = fit.discrimination
    quarter = {name: _cut(value, order, severity, compat == SEED) for name, value in values.items()}
    return Quartered(success, fit.difficulty, quarter, fit.not_estimable)


def tie_order(image_id: pd.Series, seed: int) -> Codes:
    """Who comes first among equal items: a shuffle of the images' names.

    It depends neither on the order of the items, which often is that of the classes and would put the first classes
    into the easier quarter, nor on the severity.

    >>> tie_order(pd.Series(["b", "a", "b"]), seed=0).tolist(), tie_order(pd.Series(["a", "b"]), seed=0).tolist()
    ([1, 0, 1], [0, 1])
    """
    names, code = np.unique(image_id.to_numpy(dtype=str), return_inverse=True)
    return np.random.default_rng(seed).permutation(len(names))[code]


def _cut(value: PerItem, order: Codes, severity: Codes, each: bool) -> Codes:
    """The quarter of every item; each: cut every severity by itself, else all of them as severity 0."""
    quarter = np.empty(len(value), dtype=np.int64)
    for at in np.unique(severity) if each else [0]:
        cut_on = severity == at
        cuts = segments.quarter_cuts(value[cut_on], order[cut_on])
        own = cut_on if each else slice(None)
        quarter[own] = segments.quarters(value[own], order[own], cuts)
    return quarter


def places(gathered: DatasetResponses) -> list[tuple[str, int]]:
    """Every corruption and severity of the items, clean first; a file may have several corruptions."""
    found = gathered.responses.items[["corruption", "severity"]].drop_duplicates()
    return sorted(found.itertuples(index=False, name=None), key=lambda place: (place[1] > 0, *place))


def subject_lines(gathered: DatasetResponses, found: Quartered, corruption: str, severity: int) -> pd.DataFrame:
    """Every subject's share of right responses in each segment at one severity; no line without a response."""
    responses = gathered.responses
    own = ((responses.items["corruption"] == corruption) & (responses.items["severity"] == severity)).to_numpy()
    shares = segments.segment_shares(responses.correct[:, own], found.quarter["difficulty"][own])
    subjects = responses.subjects.loc[responses.subjects.index.repeat(QUARTERS), ["subject", "model"]]
    names = ("right", "n", "share", "share_low", "share_high")
    lines = subjects.reset_index(drop=True).assign(
        **{name: part.ravel() for name, part in zip(names, shares, strict=True)},
        dataset=gathered.dataset,
        corruption=corruption,
        severity=severity,
        segment=np.tile(SEGMENTS, len(responses.subjects)),
        at_chance=np.repeat(subjects_at_chance(responses), QUARTERS),
    )
    return SEGMENT_MODELS.frame(lines[lines["n"] > 0])


def class_lines(gathered: DatasetResponses, found: Quartered) -> Iterator[dict[str, Any]]:
    """How many of each class's clean images are in the top and the bottom quarter; items without a label in none."""
    items = gathered.responses.items
    label, known = items["label"], (items["label"].notna() & (items["severity"] == 0)).to_numpy()
    code, keys = pd.factorize(label[known], sort=True)
    images = np.bincount(code).tolist()
    at_chance = bool(subjects_at_chance(gathered.responses).all())
    for parameter, quarter in found.quarter.items():
        counts = segments.class_counts(quarter[known], code, len(keys))
        for name, column in OUTER.items():
            for key, inside, n in zip(keys, counts[:, column].tolist(), images, strict=True):
                line = (gathered.dataset, parameter, name, key, inside, n, inside / n, *wilson(inside, n), at_chance)
                yield dict(zip(SEGMENT_CLASSES.columns, line, strict=True))


def shown_subjects(models: pd.DataFrame) -> pd.DataFrame:
    """Clean images and the highest severity of each corruption, for subjects spread evenly from best to worst."""
    highest = models.groupby(["dataset", "corruption"])["severity"].transform("max")
    lines = models[models["severity"] == highest]
    panels = lines.groupby(["dataset", "corruption"]).ngroups
    most = int(np.clip(DRAWN // (QUARTERS * panels), *SUBJECTS))
    clean = models[models["severity"] == 0]
    shown = []
    for dataset, part in lines.groupby("dataset", sort=False):
        own = clean[clean["dataset"] == dataset].groupby("subject")[["right", "n"]].sum()
        best_first = (own["right"] / own["n"]).sort_values(ascending=False, kind="stable").index
        ordered = list(dict.fromkeys([*best_first, *part["subject"]]))  # last those with shifted images only
        picked = np.unique(np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int))
        place = {ordered[at]: int(at) for at in picked}
        kept = part[part["subject"].isin(place)]
        shown.append(kept.assign(place=kept["subject"].map(place), subjects=len(ordered)))
    return pd.concat(shown, ignore_index=True)


def shown_classes(classes: pd.DataFrame) -> pd.DataFrame:
    """The classes whose share in the top quarter is furthest above and below that in the bottom quarter."""
    if classes.empty:
        return SEGMENT_CLASSES_SHOWN.frame([])
    by = ["dataset", "parameter", "label"]
    wide = classes.pivot_table(index=by, columns="quarter", values="share", sort=False).reindex(columns=list(OUTER))
    lines = (wide["top"] - wide["bottom"]).rename("difference").reset_index()
    each = lines.groupby(by[:2])["difference"]
    lines["classes"] = each.transform("size")
    rank, half = each.rank(method="first"), DRAWN_CLASSES // 2
    ends = (rank <= half) | (rank > lines["classes"] - half)
    return classes.merge(lines[ends | (lines["classes"] <= DRAWN_CLASSES)], on=by)
