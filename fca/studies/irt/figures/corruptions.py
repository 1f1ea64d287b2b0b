"""Accuracy under corruptions: the figure and the statements of analysis=corruption_accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import ALIKE, format_with_interval
from fca.studies.irt.corruption_accuracy import LOSS, MEAN_ACCURACY, RIGHT, SEVERITY_LEVELS, of_equal_severities
from fca.studies.irt.fits import SUBJECT
from fca.tables.table import AT_CHANCE, CORRUPTION, DATASET, MODEL, SEVERITY, TOP1_CLEAN
from fca.types import Table, interval_columns

SUBJECTS_DRAWN = 4  # subjects, the most accurate on clean images


def accuracy_figure(accuracies: Table, losses: Table) -> alt.FacetChart:
    """Draw a heat map of accuracy at each severity of each corruption, the most harmful first; one panel per subject.

    Only the few subjects of each data set that are most accurate on clean images are drawn.
    accuracies, losses: tables corruption_accuracy (by severity) and corruption_loss (means over severities).
    """
    # the most accurate subjects of each data set
    best_first = losses.frame.sort_values(TOP1_CLEAN, ascending=False, kind="stable")
    subjects = best_first[[DATASET, SUBJECT]].drop_duplicates()
    shown_subjects = subjects.groupby(DATASET, sort=False).head(SUBJECTS_DRAWN)
    loss_columns = losses.frame[[DATASET, SUBJECT, CORRUPTION, MEAN_ACCURACY, SEVERITY_LEVELS]]
    frame = accuracies.frame.merge(shown_subjects, on=[DATASET, SUBJECT])
    frame = frame.merge(loss_columns, on=[DATASET, SUBJECT, CORRUPTION])
    frame["panel"] = style.panels(frame, DATASET, SUBJECT)

    # corruptions are ordered by mean accuracy. Those that were run at other severities come last, because their means
    # are not comparable
    compared, left_out_text = of_equal_severities(frame)
    is_left_out = ~frame.index.isin(compared.index)
    frame = frame.assign(place=frame[MEAN_ACCURACY] + is_left_out)  # accuracy is at most 1: adding 1 puts a line last

    rows = kinds.category(alt.Y, CORRUPTION, alt.EncodingSortField("place", op="mean"), grid=False)
    severity_axis = kinds.category(alt.X, SEVERITY, title="severity (0: clean)", labelAngle=0, domain=False, grid=False)
    chart = kinds.heat_map(RIGHT, severity_axis, rows, accuracies.columns, (0.0, 1.0))

    subtitle = "Each cell is the share of right predictions; the corruption that costs most is on top."
    if len(shown_subjects) < len(subjects):
        subtitle += f" The {SUBJECTS_DRAWN} most accurate of {len(subjects)} subjects on clean images."
    subtitles = [subtitle]
    if left_out_text:
        subtitles.append(f"The corruptions at the bottom are {left_out_text}.")
    title = style.title("How accurate is each model under each corruption?", *subtitles)
    return style.faceted(chart, frame, title, filters=(DATASET, MODEL, CORRUPTION), row=19)


def loss_statements(losses: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on the subject that is most accurate on clean images: which corruption costs it most, and how much.

    For a subject at the level of chance, the only sentence states this, because it has no accuracy to lose.

    losses: the lines of table corruption_loss for one data set.

    >>> line = {"dataset": "zoo", "subject": "vit", "top1_clean": 0.9, "top1_mean_low": 0.4, "top1_mean_high": 0.6}
    >>> fog = line | {"corruption": "fog", "top1_mean": 0.5, "loss": 0.4, "loss_low": 0.3, "loss_high": 0.5}
    >>> snow = line | {"corruption": "snow", "top1_mean": 0.55, "loss": 0.35, "loss_low": 0.2, "loss_high": 0.5}
    >>> for statement in loss_statements(pd.DataFrame([fog, snow])): print(statement.sentence)
    Of 2 corruptions of zoo, fog hurts vit most: 50.0 % [40.0, 60.0] right over its severities, 90.0 % on clean images.
    zoo: the largest loss of vit, under fog, is +40.0 points [+30.0, +50.0]; the smallest, under snow, +35.0 points \
[+20.0, +50.0].
    >>> at_chance = pd.DataFrame([fog, snow]).assign(at_chance=True, top1_clean=0.1)
    >>> [statement] = loss_statements(at_chance)
    >>> print(statement.sentence)
    Not known: on clean images of zoo, vit is at the level of chance (10.0 % right).
    """
    subject = losses.sort_values(TOP1_CLEAN, ascending=False, kind="stable")[SUBJECT].iloc[0]
    losses_of_subject = losses[losses[SUBJECT] == subject].sort_values(MEAN_ACCURACY, kind="stable")
    # only corruptions with the same severities are compared; `left_out_text` names the others
    compared, left_out_text = of_equal_severities(losses_of_subject)
    lowest = compared.iloc[0].to_dict()  # under the corruption with the lowest accuracy

    # the figure has a line at the accuracy on clean images, unless it is missing
    clean_accuracy = lowest[TOP1_CLEAN] if pd.notna(lowest[TOP1_CLEAN]) else None
    chart = small.dots(
        compared,
        CORRUPTION,
        MEAN_ACCURACY,
        (CORRUPTION, *interval_columns(MEAN_ACCURACY), TOP1_CLEAN),
        line=clean_accuracy,
    )
    if lowest.get(AT_CHANCE):
        level = f"at the level of chance ({_clean_accuracy(lowest)} right)"
        yield Statement(f"Not known: on clean images of {lowest[DATASET]}, {subject} is {level}.", chart)
        return

    ending = f"; {left_out_text}." if left_out_text else "."
    yield Statement(f"{_most_harmful(compared)}{ending}", chart)

    with_loss = compared.dropna(subset=LOSS)  # missing without responses to clean images
    if len(with_loss):
        yield Statement(f"{lowest[DATASET]}: {_largest_and_smallest_loss(with_loss)}{ending}")


def _most_harmful(compared: pd.DataFrame) -> str:
    """A clause that names the corruptions under which one subject is least accurate, or states that none harms it.

    The most harmful corruption counts as harmful if the whole interval of its loss is above 0; without an interval, if
    its loss is above 0. If even this one is not, the clause states that no corruption lowers accuracy. Without an
    accuracy on clean images there is no loss, and the clause only compares the corruptions.

    compared: the lines of the subject in table corruption_loss, the least accurate first.
    """
    line = compared.iloc[0].to_dict()  # of the most harmful corruption
    dataset, subject = line[DATASET], line[SUBJECT]
    has_clean = pd.notna(line[TOP1_CLEAN])
    on_clean = f", {_clean_accuracy(line)} on clean images" if has_clean else ""
    if len(compared) == 1:
        right = f"{format_with_interval(line, MEAN_ACCURACY)} of the images of {dataset} over its severities"
        return f"Under {line[CORRUPTION]}, {subject} is right on {right}{on_clean}"

    worst = small.best_of(compared, MEAN_ACCURACY, largest=False)[CORRUPTION].tolist()  # several where they are equal
    right = f"{format_with_interval(line, MEAN_ACCURACY)} right over {'its' if len(worst) == 1 else 'their'} severities"
    corruptions = f"Of {len(compared)} corruptions of {dataset}"
    has_interval = pd.notna(line.get(LOSS.low))
    # a loss of up to ALIKE is 0 but for rounding
    if has_clean and (line[LOSS] <= ALIKE or (has_interval and not line[LOSS.low] > 0)):
        significantly = " significantly" if has_interval else ""
        return f"{corruptions}, none lowers the accuracy of {subject}{significantly}: at least {right}{on_clean}"

    ending = on_clean
    if has_clean and not has_interval:
        ending += " (the difference has no interval)"
    if len(worst) == len(compared):
        return f"{corruptions}, {small.all_of(len(compared))} hurt {subject} as much: {right}{ending}"
    hurt = "hurts" if len(worst) == 1 else "hurt"
    return f"{corruptions}, {small.listed(worst)} {hurt} {subject} most: {right}{ending}"


def _clean_accuracy(line: Mapping[Any, Any]) -> str:
    return format_with_interval({TOP1_CLEAN: line[TOP1_CLEAN]}, TOP1_CLEAN)


def _largest_and_smallest_loss(lines: pd.DataFrame) -> str:
    """A clause with the largest and the smallest loss of accuracy of one subject, and under which corruptions they are.

    lines: the lines of the subject in table corruption_loss, all with a loss.
    """
    subject = lines[SUBJECT].iloc[0]
    # all lines with the largest loss, and all with the smallest
    largest, smallest = (small.best_of(lines, LOSS, is_largest) for is_largest in (True, False))
    largest_loss, smallest_loss = (format_with_interval(equal.iloc[0], LOSS) for equal in (largest, smallest))
    if len(largest) == len(lines):  # all losses are equal
        corruptions = "each" if len(lines) > 1 else lines[CORRUPTION].iloc[0]
        return f"the loss of {subject} under {corruptions} is {largest_loss}"

    costly, harmless = (small.listed(equal[CORRUPTION].tolist()) for equal in (largest, smallest))
    largest_of_all = f"the largest loss of {subject}, under {costly}, is {largest_loss}"
    return f"{largest_of_all}; the smallest, under {harmless}, {smallest_loss}"
