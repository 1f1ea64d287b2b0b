"""Accuracy under corruptions: the figure and the headlines of analysis=corruption_accuracy."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Figure
from fca.report.small import ALIKE, interval
from fca.studies.irt import corruption_accuracy as of
from fca.studies.irt.fits import SUBJECT
from fca.studies.table import AT_CHANCE, CORRUPTION, DATASET, MODEL, SEVERITY
from fca.types import Table

DRAWN = 4  # subjects, the most accurate on clean images


def accuracy_figure(accuracies: Table, losses: Table) -> alt.FacetChart:
    """Accuracy at each severity of each corruption, the most harmful first; one panel a subject."""
    ranked = losses.frame.sort_values(of.CLEAN, ascending=False, kind="stable")
    chosen = ranked[[DATASET, SUBJECT]].drop_duplicates().groupby(DATASET, sort=False).head(DRAWN)
    frame = accuracies.frame.merge(chosen, on=[DATASET, SUBJECT])
    frame = frame.merge(
        losses.frame[[DATASET, SUBJECT, CORRUPTION, of.MEAN, of.LEVELS]], on=[DATASET, SUBJECT, CORRUPTION]
    )
    frame["panel"] = style.panels(frame, DATASET, SUBJECT)
    compared, left_out = of.of_equal_severities(frame)
    place = frame[of.MEAN] + ~frame.index.isin(compared.index)  # those of other severities last: their means differ
    frame = frame.assign(place=place)
    rows = kinds.category(alt.Y, CORRUPTION, alt.EncodingSortField("place", op="mean"), grid=False)
    across = kinds.category(alt.X, SEVERITY, title="severity (0: clean)", labelAngle=0, domain=False, grid=False)
    chart = kinds.heat_map(of.RIGHT, across, rows, accuracies.columns, (0.0, 1.0))
    every = losses.frame[[DATASET, SUBJECT]].drop_duplicates()
    shown = "" if len(chosen) == len(every) else f" The {DRAWN} most accurate of {len(every)} subjects on clean images."
    title = style.title(
        "How accurate is each model under each corruption?",
        f"Each cell is the share of right predictions; the corruption that costs most is on top.{shown}",
        *([f"At the bottom stand corruptions that are {left_out}."] if left_out else []),
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL, CORRUPTION), row=19)


def loss_headlines(losses: pd.DataFrame) -> Iterator[str]:
    """One line a data set: which corruption costs its most accurate subject most, and which least.

    >>> line = {"dataset": "zoo", "subject": "vit", "top1_clean": 0.9}
    >>> lines = [line | {"corruption": "fog", "loss": 0.4, "loss_low": 0.3, "loss_high": 0.5}]
    >>> lines += [line | {"corruption": "snow", "loss": 0.02, "loss_low": -0.01, "loss_high": 0.05}]
    >>> print(*loss_headlines(pd.DataFrame(lines)))
    zoo: vit loses most under fog: +40.0 points [+30.0, +50.0] of 90.0 % on clean images; least under snow: \
+2.0 points [-1.0, +5.0].
    """
    known = losses.dropna(subset=of.LOSS).sort_values(of.CLEAN, ascending=False, kind="stable")
    for dataset, part in known.groupby(DATASET, sort=False):
        best, left_out = of.of_equal_severities(part[part[SUBJECT] == part[SUBJECT].iloc[0]])
        best = best.sort_values(of.LOSS, ascending=False, kind="stable")
        ending = f"; {left_out}." if left_out else "."
        smallest = small.best_of(best, of.LOSS, largest=False)
        first, last = best.iloc[0].to_dict(), smallest.iloc[0].to_dict()
        who, clean = first[SUBJECT], f"{interval({of.CLEAN: first[of.CLEAN]}, of.CLEAN)} on clean images"
        if first.get(AT_CHANCE):
            yield f"{dataset}: {who} is at the level of chance ({clean}), so what corruptions cost it is not known."
            continue
        largest = small.best_of(best, of.LOSS)[CORRUPTION].tolist()
        has_interval = pd.notna(first.get(of.LOSS.low))
        significantly = " significantly" if has_interval else ""
        if first[of.LOSS] <= ALIKE or (has_interval and not first[of.LOSS.low] > 0):
            loss = f"the largest loss, under {small.listed(largest)}, is {interval(first, of.LOSS)}"
            if len(largest) == len(best):
                loss = f"the loss under {'each' if len(best) > 1 else largest[0]} is {interval(first, of.LOSS)}"
            yield f"{dataset}: no corruption lowers the accuracy of {who}{significantly}; {loss} of {clean}{ending}"
            continue
        clean += "" if has_interval else ", without an interval"
        if len(largest) == len(best) > 1:
            every = small.all_of(len(best))
            yield f"{dataset}: {who} loses as much under {every}: {interval(first, of.LOSS)} of {clean}{ending}"
            continue
        verb = "loses most" if len(best) > 1 else "loses accuracy"
        most = f"{who} {verb} under {small.listed(largest)}: {interval(first, of.LOSS)} of {clean}"
        least_under = small.listed(smallest[CORRUPTION].tolist())
        least = f"; least under {least_under}: {interval(last, of.LOSS)}" if len(best) > 1 else ""
        yield f"{dataset}: {most}{least}{ending}"


FIGURES = (
    Figure(
        *("corruption_accuracy", "Accuracy under corruptions", (of.CORRUPTION_ACCURACY, of.CORRUPTION_LOSS)),
        accuracy_figure,
    ),
)
HEADLINES = {of.CORRUPTION_LOSS.name: loss_headlines}
