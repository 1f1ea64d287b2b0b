"""Quarters of the images by difficulty: each model's share of right responses, and the classes in the outer quarters.

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

COMPAT_AS_PAPER = "seed001"
COMPAT = (None, COMPAT_AS_PAPER)
QUARTER_NAMES = {"difficulty": SEGMENTS, "discrimination": LEVELS}  # of the quarters, lowest first
# top: the hardest or most discriminating quarter; bottom: the easiest or least discriminating one
OUTER_QUARTERS = {"top": QUARTERS - 1, "bottom": 0}
MOST_LINES_DRAWN = 2400  # lines of the table of subjects in a page
FEWEST_AND_MOST_SUBJECTS = (6, 24)  # drawn at least, at most
MOST_CLASSES_DRAWN = 20

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
        DATASET,
        CORRUPTION,
        SEVERITY,
        SUBJECT,
        MODEL,
        SEGMENT,
        RIGHT,
        N.with_format(".0f", "responses"),
        *interval_columns(SHARE_RIGHT),
        AT_CHANCE,
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
        """Tables segment_models and segment_classes, and the lines of each that figures draw.

        Every data set is fitted on its clean images, and once more for each kind of corruption, with the clean images
        and all severities together. Table segment_classes uses the fits of clean images alone.
        Where the responses do not determine a spread of ability or difficulty, a fit takes it from the prior (not
        estimable); the tables' parameters have a note on each such fit.

        Raises FcaError if no responses can be fitted, and for an unknown compat.
        """
        model_frames: list[pd.DataFrame] = []
        lines_of_classes: list[dict[str, Any]] = []
        runs: set[str] = set()
        left_out: list[str] = []
        not_estimable: dict[str, list[str]] = {}

        clean = [("clean", gathered) for gathered in clean_with_subjects(store, self.query, self.responses)]
        for fitted_kind, gathered in chain(clean, shifted_responses(store, self.query)):
            quartered_items = quartered(gathered, self.model, self.compat, self.seed)
            if quartered_items.not_estimable:
                not_estimable[f"{gathered.dataset} {fitted_kind}"] = list(quartered_items.not_estimable)

            for corruption, severity in places(gathered):  # every such pair among the items
                # clean images also take part in the fits of corruptions; their lines come from their own fit alone
                if severity or fitted_kind == "clean":
                    model_frames.append(subject_lines(gathered, quartered_items, corruption, severity))
            if fitted_kind == "clean":
                lines_of_classes += class_lines(gathered, quartered_items)
            runs.update(gathered.runs)
            left_out += gathered.left_out

        models = pd.concat(model_frames, ignore_index=True)
        classes = SEGMENT_CLASSES.frame(lines_of_classes)
        frames = [models, shown_subjects(models), classes, shown_classes(classes)]
        parameters = {
            **asdict(self),
            **METHOD,
            "left_out": "; ".join(dict.fromkeys(left_out)) or None,
            **priors_noted(not_estimable),
        }
        return [spec.table(frame, parameters, sorted(runs)) for spec, frame in zip(self.tables, frames, strict=True)]


class Quartered(NamedTuple):
    """Items of a fit with their quarters.

    success:    expected success of each item, its chance of a right response averaged over the fitted subjects.
    difficulty: b of each item.
    quarter:    the quarter of each item by name of the parameter (difficulty, discrimination): 0 is the easiest or
                least discriminating, 3 the hardest or most discriminating. Without discrimination if the model gives
                all items the same.
    not_estimable: scales that the responses did not determine, see `IrtFit`.
    """

    success: PerItem
    difficulty: PerItem
    quarter: dict[str, Codes]
    not_estimable: tuple[str, ...] = ()


def quartered(gathered: DatasetResponses, model: str, compat: str | None, seed: int) -> Quartered:
    """Fit the responses, and sort the items into quarters of difficulty and of discrimination.

    The quarters of difficulty are by 1 - expected success (the mean fitted chance of a right response). The clean
    images are cut into four equal parts, and the same limits place the images of all severities. With compat "seed001"
    the quarters are by difficulty b, and the items of each severity are cut separately, as in the paper (Sharma et al.
    2023).
    model: the item response model to fit.
    seed: draws the order of images with equal values; with compat also the noise at the start of the fit.
    Raises FcaError for an unknown compat, and with compat None if there are no clean items to cut on.
    """
    if compat not in COMPAT:
        raise FcaError("analysis.compat", compat, "null or seed001", "change it")

    items = gathered.responses.items
    fit = fitted(gathered, model, compat, seed)
    order = tie_order(items["image_id"], seed)  # random, so that equal items do not fill quarters class by class
    severity = items["severity"].to_numpy()
    if compat is None and not (severity == 0).any():
        what = f"clean responses of {gathered.dataset} beside those under {items['corruption'].iloc[0]}"
        raise FcaError(what, "none", "those of the same subjects", "fca run task=predict shift=clean with these models")

    success = fit.expected_success
    values_by_parameter = {"difficulty": fit.difficulty if compat == COMPAT_AS_PAPER else 1 - success}
    if np.ptp(fit.discrimination) > 0:  # in the 1pl all items have the same discrimination, so there are no quarters
        values_by_parameter["discrimination"] = fit.discrimination
    quarter_by_parameter = {
        parameter: _sort_into_quarters(values, order, severity, cut_each_severity=compat == COMPAT_AS_PAPER)
        for parameter, values in values_by_parameter.items()
    }
    return Quartered(success, fit.difficulty, quarter_by_parameter, fit.not_estimable)


def tie_order(image_id: pd.Series, seed: int) -> Codes:
    """Rank of every item among items of equal difficulty: the place of its image in a shuffle of all images.

    An image has the same rank at every severity. Ties are not broken by the order of the items, because items are often
    ordered by class, so that the first classes would come into the easier quarter.

    >>> tie_order(pd.Series(["b", "a", "b"]), seed=0).tolist(), tie_order(pd.Series(["a", "b"]), seed=0).tolist()
    ([1, 0, 1], [0, 1])
    """
    names, image_of_item = np.unique(image_id.to_numpy(dtype=str), return_inverse=True)  # position among sorted names
    return np.random.default_rng(seed).permutation(len(names))[image_of_item]


def _sort_into_quarters(value: PerItem, order: Codes, severity: Codes, cut_each_severity: bool) -> Codes:
    """The quarter of every item by `value`, 0 (lowest) to 3.

    order: rank that breaks ties between items of equal value.
    cut_each_severity: True cuts the items of each severity separately into four equal quarters. False cuts only the
    clean items into equal quarters; the values at these cuts place the items of all severities.
    """
    if not cut_each_severity:
        is_clean = severity == 0
        cuts = segments.quarter_cuts(value[is_clean], order[is_clean])
        return segments.quarters(value, order, cuts)

    quarter = np.empty(len(value), dtype=np.int64)
    for level in np.unique(severity):
        is_at_level = severity == level
        cuts = segments.quarter_cuts(value[is_at_level], order[is_at_level])
        quarter[is_at_level] = segments.quarters(value[is_at_level], order[is_at_level], cuts)
    return quarter


def places(gathered: DatasetResponses) -> list[tuple[str, int]]:
    """Every pair of corruption and severity among the items, clean first.

    Items of a file may have several corruptions.
    """
    pairs = gathered.responses.items[["corruption", "severity"]].drop_duplicates()
    return sorted(pairs.itertuples(index=False, name=None), key=lambda pair: (pair[1] > 0, *pair))


def subject_lines(
    gathered: DatasetResponses, quartered_items: Quartered, corruption: str, severity: int
) -> pd.DataFrame:
    """Lines of table segment_models: each subject's share of right responses in each quarter of difficulty.

    The lines are for one corruption and severity. A subject without a response in a quarter has no line there.
    """
    responses = gathered.responses
    has_corruption = responses.items["corruption"] == corruption
    has_severity = responses.items["severity"] == severity
    is_selected = (has_corruption & has_severity).to_numpy()
    quarter = quartered_items.quarter["difficulty"][is_selected]
    shares = segments.segment_shares(responses.correct[:, is_selected], quarter)  # subjects x quarters

    # one line per subject and quarter, the quarters of a subject one after the other
    subjects = responses.subjects.loc[responses.subjects.index.repeat(QUARTERS), ["subject", "model"]]
    lines = subjects.reset_index(drop=True).assign(
        right=shares.right.ravel(),
        n=shares.n.ravel(),
        share=shares.share.ravel(),
        share_low=shares.low.ravel(),
        share_high=shares.high.ravel(),
        dataset=gathered.dataset,
        corruption=corruption,
        severity=severity,
        segment=np.tile(SEGMENTS, len(responses.subjects)),
        at_chance=np.repeat(subjects_at_chance(responses), QUARTERS),
    )
    return SEGMENT_MODELS.frame(lines[lines["n"] > 0])


def class_lines(gathered: DatasetResponses, quartered_items: Quartered) -> Iterator[dict[str, Any]]:
    """Lines of table segment_classes: the share of each class's clean images in the top and in the bottom quarter.

    This is given for the quarters of difficulty and for those of discrimination. Items without a label are left out.
    quartered_items: the quarter of every item, 0 to 3, by parameter.
    """
    items = gathered.responses.items
    is_clean_with_label = (items["label"].notna() & (items["severity"] == 0)).to_numpy()
    class_of_item, class_names = pd.factorize(items["label"][is_clean_with_label], sort=True)
    images_of_class = np.bincount(class_of_item).tolist()
    all_at_chance = bool(subjects_at_chance(gathered.responses).all())

    for parameter, quarter in quartered_items.quarter.items():
        # counts: classes x quarters; only the top and the bottom quarter are tabulated
        counts = segments.class_counts(quarter[is_clean_with_label], class_of_item, len(class_names))
        for quarter_name, column in OUTER_QUARTERS.items():
            counts_in_quarter = counts[:, column].tolist()
            for name, count, n_images in zip(class_names, counts_in_quarter, images_of_class, strict=True):
                low, high = wilson(count, n_images)
                yield {
                    "dataset": gathered.dataset,
                    "parameter": parameter,
                    "quarter": quarter_name,
                    "label": name,
                    "items": count,
                    "images": n_images,
                    "share": count / n_images,
                    "share_low": low,
                    "share_high": high,
                    "at_chance": all_at_chance,
                }


def shown_subjects(models: pd.DataFrame) -> pd.DataFrame:
    """The lines of segment_models that a figure has space for, with each subject's rank by accuracy on clean images.

    Only clean images and the highest severity of each corruption are shown. Of each data set 6 to 24 subjects are
    shown, fewer where there are many panels; they are spread evenly from best to worst.
    models: the frame of segment_models.
    """
    highest_severity = models.groupby(["dataset", "corruption"])["severity"].transform("max")
    at_highest = models[models["severity"] == highest_severity]  # of "clean" the highest severity is 0
    n_panels = at_highest.groupby(["dataset", "corruption"]).ngroups  # of the figure
    # each subject has a line for each quarter in each panel, and a page holds a limited number of lines
    most_subjects = int(np.clip(MOST_LINES_DRAWN // (QUARTERS * n_panels), *FEWEST_AND_MOST_SUBJECTS))
    clean = models[models["severity"] == 0]

    frames = []
    for dataset, lines in at_highest.groupby("dataset", sort=False):
        clean_counts = clean[clean["dataset"] == dataset].groupby("subject")[["right", "n"]].sum()
        clean_accuracy = clean_counts["right"] / clean_counts["n"]
        best_first = clean_accuracy.sort_values(ascending=False, kind="stable").index
        # subjects without responses to clean images have no rank, so they come last
        subjects = list(dict.fromkeys([*best_first, *lines["subject"]]))

        # places evenly from 0 (the best) to the last
        n_shown = min(most_subjects, len(subjects))
        shown_places = np.unique(np.linspace(0, len(subjects) - 1, n_shown).round().astype(int))
        place_of_subject = {subjects[place]: int(place) for place in shown_places}
        shown_lines = lines[lines["subject"].isin(place_of_subject)]
        place = shown_lines["subject"].map(place_of_subject)
        frames.append(shown_lines.assign(place=place, subjects=len(subjects)))
    return pd.concat(frames, ignore_index=True)


def shown_classes(classes: pd.DataFrame) -> pd.DataFrame:
    """The lines of segment_classes that a figure has space for, with the difference between top and bottom quarter.

    Quarters are those of all items by the parameter (difficulty, say). The difference is the share of a class's images
    that are in the top quarter, minus the share in the bottom quarter. Up to 20 classes of a data set are all shown. Of
    more, only the ten with the highest and the ten with the lowest difference are shown.
    classes: the frame of segment_classes; it is empty where no item has a label.
    """
    if classes.empty:
        return SEGMENT_CLASSES_SHOWN.frame([])

    keys = ["dataset", "parameter", "label"]
    # one line per class and parameter, with the columns top and bottom, of NaN for a quarter without lines
    shares = classes.pivot_table(index=keys, columns="quarter", values="share", sort=False)
    shares = shares.reindex(columns=list(OUTER_QUARTERS))
    lines = (shares["top"] - shares["bottom"]).rename("difference").reset_index()

    differences_by_panel = lines.groupby(["dataset", "parameter"])["difference"]
    lines["classes"] = differences_by_panel.transform("size")
    rank = differences_by_panel.rank(method="first")
    half = MOST_CLASSES_DRAWN // 2
    is_outermost = (rank <= half) | (rank > lines["classes"] - half)
    is_shown = is_outermost | (lines["classes"] <= MOST_CLASSES_DRAWN)
    return classes.merge(lines[is_shown], on=keys)
