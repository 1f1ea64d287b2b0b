"""How accurate each model is under each corruption, and what a corruption costs it (analysis=corruption_accuracy)."""

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
MEAN = Column("top1_mean", float, ".1%", "accuracy, mean over severities")
LOSS = Column("loss", float, "+.1%", "accuracy lost, mean over severities")
LEVELS = Column("severity_levels", str, "", "the severities above 0, over which means are taken")

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
        *(DATASET, SUBJECT, MODEL, CORRUPTION, *interval_columns(LOSS), *interval_columns(MEAN), TOP1_CLEAN, AT_CHANCE),
        *(SEVERITIES, LEVELS, IMAGES),
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
    """The lines whose corruptions have the same severities, and a clause that names the others (empty without any).

    A mean over severities 1 to 5 is not compared with one over 1 to 4. The severities that most corruptions have count;
    of equally many, the longer list. Lines of tables from before severities were listed are all kept.

    >>> lines = pd.DataFrame({"corruption": ["fog", "snow", "jpeg"], "severity_levels": ["1, 2", "1, 2", "1"]})
    >>> compared, left_out = of_equal_severities(lines)
    >>> compared["corruption"].tolist(), left_out
    (['fog', 'snow'], 'not compared, because of other severities: jpeg (1)')
    """
    if LEVELS not in lines or lines[LEVELS].nunique(dropna=False) < 2:
        return lines, ""
    kinds = lines[[CORRUPTION, LEVELS]].drop_duplicates()
    frequency = kinds[LEVELS].value_counts()
    usual = max(frequency.index, key=lambda levels: (frequency[levels], len(levels)))
    others = kinds[kinds[LEVELS] != usual]
    names = [f"{kind} ({levels})" for kind, levels in zip(others[CORRUPTION], others[LEVELS], strict=True)]
    return lines[lines[LEVELS] == usual], f"not compared, because of other severities: {', '.join(names)}"


@dataclass(frozen=True)
class CorruptionAccuracy:
    """`analysis=corruption_accuracy`; reads full models' responses to clean and corrupted test images."""

    tables: ClassVar = (CORRUPTION_ACCURACY, CORRUPTION_LOSS)

    query: Query = None

    def __call__(self, store: Store) -> list[Table]:
        """One line a severity, and one a corruption. Raises FcaError without corrupted images."""
        accuracies, losses, runs = list[dict[str, Any]](), list[dict[str, Any]](), set[str]()
        left_out = list[str]()
        for corruption, gathered in shifted_responses(store, self.query, fewest=1):
            about = {"dataset": gathered.dataset, "corruption": corruption}
            accuracies += [about | line for line in severity_lines(gathered)]
            losses += [about | line for line in loss_lines(gathered)]
            runs.update(gathered.runs)
            left_out += [f"{corruption}: {why}" for why in gathered.left_out]
        if not losses:
            command = "fca run -m task=predict model=run model.run_id=ID shift=clean,corruption/all"
            seen = f"none among the {len(store.rows())} stored rows"
            raise FcaError("corrupted images with responses", seen, "1 corruption or more", f"make some: {command}")
        parameters = {**asdict(self), **METHOD, "left_out": "; ".join(left_out) or None}
        return filled(self.tables, (accuracies, losses), parameters, runs)


def severity_lines(gathered: DatasetResponses) -> Iterator[dict[str, Any]]:
    """Accuracy of each subject at each severity, with Wilson's interval."""
    for severity in sorted(gathered.responses.items["severity"].unique()):
        part = at_severity(gathered, int(severity)).responses
        for subject, of in zip(part.subjects.to_dict("records"), part.correct, strict=True):
            known = of[~np.isnan(of)]
            low, high = wilson(int(known.sum()), len(known))
            line = {"subject": subject["subject"], "model": subject["model"], "severity": int(severity)}
            yield line | {"top1": known.mean(), "top1_low": low, "top1_high": high, "images": len(known)}


def loss_lines(gathered: DatasetResponses) -> Iterator[dict[str, Any]]:
    """What the corruption costs each subject: images are matched, and their means over severities are averaged.

    loss = 1/n Σ_i (clean_i - 1/S Σ_s right_is)   for n images and S severities
    """
    items = gathered.responses.items
    severity = items["severity"].to_numpy()
    image = items["image_id"].astype("category").cat.codes.to_numpy()
    each = np.bincount(image[severity > 0])
    is_at_chance = subjects_at_chance(gathered.responses)
    subjects = gathered.responses.subjects.to_dict("records")
    for subject, right, at_chance in zip(subjects, gathered.responses.correct, is_at_chance, strict=True):
        mean = np.bincount(image[severity > 0], right[severity > 0]) / each
        clean = np.full(len(mean), np.nan)
        clean[image[severity == 0]] = right[severity == 0]
        alone = np.arange(len(mean))  # every image is drawn by itself
        line: dict[str, Any] = {"subject": subject["subject"], "model": subject["model"], "images": len(mean)}
        levels = np.unique(severity[severity > 0]).tolist()
        line |= {"severities": len(levels), LEVELS: levels_in_words(levels), "top1_mean": mean.mean()}
        line[AT_CHANCE] = bool(at_chance)
        line[MEAN.low], line[MEAN.high] = mean_interval(mean, alone, FRACTION)
        if not np.isnan(clean).any():
            line |= {"top1_clean": clean.mean(), "loss": (clean - mean).mean()}
            line[LOSS.low], line[LOSS.high] = mean_interval(clean - mean, alone, SIGNED_FRACTION)
        yield line
