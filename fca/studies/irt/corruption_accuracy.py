"""How accurate each model is under each corruption, and how much it loses (analysis=corruption_accuracy)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.intervals import FRACTION, SIGNED_FRACTION, mean_interval, wilson
from fca.store import Store
from fca.studies.irt.fits import SUBJECT
from fca.studies.irt.fittable import shifted_responses
from fca.tables.answers import DatasetResponses, at_severity, subjects_at_chance
from fca.tables.keys import Query
from fca.tables.table import (
    AT_CHANCE,
    CORRUPTION,
    DATASET,
    IMAGES,
    MODEL,
    SEVERITIES,
    SEVERITY,
    TOP1,
    TOP1_CLEAN,
    TableSpec,
    filled,
)
from fca.types import Column, FcaError, Table, interval_columns

SOURCE = "Hendrycks & Dietterich, 2019, section 4, without the division by the errors of AlexNet"
RIGHT = TOP1.with_format(".0%", "accuracy")
MEAN_ACCURACY = Column("top1_mean", float, ".1%", "accuracy, mean over severities")
LOSS = Column("loss", float, "+.1%", "accuracy lost, mean over severities")
SEVERITY_LEVELS = Column("severity_levels", str, "", "the severities above 0, over which means are taken")

CORRUPTION_ACCURACY = TableSpec(
    "corruption_accuracy",
    "How accurate is each model under each corruption? (severity 0: clean)",
    SOURCE,
    (DATASET, SUBJECT, MODEL, CORRUPTION, SEVERITY, *interval_columns(RIGHT), IMAGES),
)
CORRUPTION_LOSS = TableSpec(
    "corruption_loss",
    "Which corruption costs most accuracy?",
    SOURCE,
    (
        DATASET,
        SUBJECT,
        MODEL,
        CORRUPTION,
        *interval_columns(LOSS),
        *interval_columns(MEAN_ACCURACY),
        TOP1_CLEAN,
        AT_CHANCE,
        SEVERITIES,
        SEVERITY_LEVELS,
        IMAGES,
    ),
)
METHOD = {
    "loss": "accuracy on clean images minus the mean accuracy over the severities, on the same images",
    "at_chance": "on clean images, against always predicting the most frequent label",
    "intervals": "95 % over images: Wilson's at one severity, Student's t of the images' means over severities",
}


def levels_in_words(levels: Iterable[int]) -> str:
    """Severities as the column of a table has them.

    >>> levels_in_words([1, 2, 5])
    '1, 2, 5'
    """
    return ", ".join(str(level) for level in levels)


def of_equal_severities(lines: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Keep the lines whose corruptions were run at the same severities, so that means over severities are comparable.

    Returns these lines and a clause that names the corruptions left out, empty if none is. A mean over severities 1 to
    5 is not comparable with a mean over 1 to 4. The lines with the most frequent list of severities are kept; among
    equally frequent lists, those with the longest list. All lines are kept if the column of severities is missing.

    >>> lines = pd.DataFrame({"corruption": ["fog", "snow", "jpeg"], "severity_levels": ["1, 2", "1, 2", "1"]})
    >>> compared, left_out_text = of_equal_severities(lines)
    >>> compared["corruption"].tolist(), left_out_text
    (['fog', 'snow'], 'not compared, because of other severities: jpeg (1)')
    """
    if SEVERITY_LEVELS not in lines or lines[SEVERITY_LEVELS].nunique(dropna=False) < 2:
        return lines, ""

    corruptions = lines[[CORRUPTION, SEVERITY_LEVELS]].drop_duplicates()
    frequency = corruptions[SEVERITY_LEVELS].value_counts()
    # `levels` is a text such as "1, 2", which is longer for more severities
    common_levels = max(frequency.index, key=lambda levels: (frequency[levels], len(levels)))
    others = corruptions[corruptions[SEVERITY_LEVELS] != common_levels]
    names = [f"{kind} ({levels})" for kind, levels in zip(others[CORRUPTION], others[SEVERITY_LEVELS], strict=True)]
    comparable_lines = lines[lines[SEVERITY_LEVELS] == common_levels]
    return comparable_lines, f"not compared, because of other severities: {', '.join(names)}"


@dataclass(frozen=True)
class CorruptionAccuracy:
    """`analysis=corruption_accuracy`; reads full models' responses to clean and corrupted test images."""

    tables: ClassVar = (CORRUPTION_ACCURACY, CORRUPTION_LOSS)

    query: Query = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables corruption_accuracy (by subject, corruption and severity) and corruption_loss (over all severities).

        Raises FcaError without corrupted images.
        """
        accuracies: list[dict[str, Any]] = []
        losses: list[dict[str, Any]] = []
        runs: set[str] = set()
        left_out: list[str] = []
        # one subject is enough, because no item response model is fitted
        for corruption, gathered in shifted_responses(store, self.query, fewest=1):
            keys = {"dataset": gathered.dataset, "corruption": corruption}
            accuracies += [keys | line for line in severity_lines(gathered)]
            losses += [keys | line for line in loss_lines(gathered)]
            runs.update(gathered.runs)
            left_out += [f"{corruption}: {reason}" for reason in gathered.left_out]

        if not losses:
            command = "fca run -m task=predict model=run model.run_id=ID shift=clean,corruption/all"
            value = f"none among the {len(store.rows())} stored rows"
            raise FcaError("corrupted images with responses", value, "1 corruption or more", f"make some: {command}")
        parameters = {**asdict(self), **METHOD, "left_out": "; ".join(left_out) or None}
        return filled(self.tables, (accuracies, losses), parameters, runs)


def severity_lines(gathered: DatasetResponses) -> Iterator[dict[str, Any]]:
    """Lines of table corruption_accuracy: each subject's accuracy at each severity, with Wilson's 95 % interval.

    Accuracy is over the images that the subject responded to. The caller adds data set and corruption.
    """
    for severity in sorted(gathered.responses.items["severity"].unique()):
        responses = at_severity(gathered, int(severity)).responses
        for subject, correct in zip(responses.subjects.to_dict("records"), responses.correct, strict=True):
            correct = correct[~np.isnan(correct)]
            low, high = wilson(int(correct.sum()), len(correct))
            yield {
                "subject": subject["subject"],
                "model": subject["model"],
                "severity": int(severity),
                "top1": correct.mean(),
                "top1_low": low,
                "top1_high": high,
                "images": len(correct),
            }


def loss_lines(gathered: DatasetResponses) -> Iterator[dict[str, Any]]:
    """How much accuracy one corruption costs each subject, with 95 % intervals over images.

    loss = 1/n Σ_i (clean_i - 1/S Σ_s right_is)   for n images and S severities

    clean_i is 1 if the subject is right on the clean image i, right_is if it is right on image i at severity s: each
    corrupted image is compared with the clean one. Every subject has responses at all severities, but may lack those to
    the clean images; then it has no loss, only its mean accuracy over severities.
    Yields lines of table corruption_loss; the caller adds data set and corruption.
    """
    items = gathered.responses.items
    severity = items["severity"].to_numpy()
    image = items["image_id"].astype("category").cat.codes.to_numpy()  # of each item, numbered from 0
    is_corrupted = severity > 0
    levels = np.unique(severity[is_corrupted]).tolist()
    severities_of_image = np.bincount(image[is_corrupted])  # how many severities above 0 each image has

    is_at_chance = subjects_at_chance(gathered.responses)
    subjects = gathered.responses.subjects.to_dict("records")
    for subject, correct, at_chance in zip(subjects, gathered.responses.correct, is_at_chance, strict=True):
        mean_by_image = np.bincount(image[is_corrupted], correct[is_corrupted]) / severities_of_image
        clean_by_image = np.full(len(mean_by_image), np.nan)
        clean_by_image[image[severity == 0]] = correct[severity == 0]

        group_of_image = np.arange(len(mean_by_image))  # for the intervals, images are independent draws
        # FRACTION keeps an interval within 0 to 1, SIGNED_FRACTION within -1 to 1
        mean_low, mean_high = mean_interval(mean_by_image, group_of_image, FRACTION)
        line: dict[str, Any] = {
            "subject": subject["subject"],
            "model": subject["model"],
            "images": len(mean_by_image),
            "severities": len(levels),
            SEVERITY_LEVELS: levels_in_words(levels),
            "top1_mean": mean_by_image.mean(),
            MEAN_ACCURACY.low: mean_low,
            MEAN_ACCURACY.high: mean_high,
            AT_CHANCE: bool(at_chance),
        }
        if not np.isnan(clean_by_image).any():  # the subject responded to all clean images
            loss_by_image = clean_by_image - mean_by_image
            line["top1_clean"] = clean_by_image.mean()
            line["loss"] = loss_by_image.mean()
            line[LOSS.low], line[LOSS.high] = mean_interval(loss_by_image, group_of_image, SIGNED_FRACTION)
        yield line
