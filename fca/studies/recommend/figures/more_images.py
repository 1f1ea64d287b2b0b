"""The learning curve of the recommended program as a figure and as a sentence."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fca.metric import BALANCED
from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.studies.recommend.choice import METRIC
from fca.studies.recommend.more_images import (
    A_CLASS,
    ACCURACY,
    MEASURED,
    MORE_GAIN,
    POINT,
    PREDICTED,
    SHARE_RIGHT,
    TIMES,
)
from fca.tables.table import DATASET
from fca.types import Table, with_interval

TWICE = 2.0  # times as many images that the sentence is about, or as many as predictions were checked for
FEWEST_TIMES = 1.2  # below this nothing is said
SMALL_GAIN = 0.01  # below this the accuracy itself is not said: the curve's may differ from the answer's by as much
COLOURS = ("#0072b2", "#c4562b")  # 3:1 on white and on black


def more_images_figure(curve: Table) -> alt.FacetChart:
    """Accuracy against training images a class: measured with parts of them, predicted with more."""
    frame = curve.frame.assign(panel=style.panels(curve.frame, DATASET))
    coloured = kinds.hue(POINT, frame, COLOURS, title="Colour")
    across = kinds.quantity(alt.X, A_CLASS, "training images a class", grid=True, type="log", padding=20, nice=False)
    up = kinds.quantity(alt.Y, ACCURACY, "accuracy", grid=True)
    base = alt.Chart().encode(x=across, color=coloured.colour())
    band: Any = base.mark_area(opacity=0.2).encode(y=f"{ACCURACY.low}:Q", y2=f"{ACCURACY.high}:Q")
    line: Any = base.mark_line(strokeWidth=2).encode(y=up)
    hover = [column for column in curve.columns if column not in (DATASET, SHARE_RIGHT)]
    ends: Any = base.mark_point(filled=True, size=45).encode(y=up, tooltip=kinds.tooltips(hover))
    measured: Any = alt.Chart().mark_point(shape="diamond", filled=True, size=90, color=COLOURS[0], opacity=1)
    measured = measured.transform_filter(f"datum.{POINT} == '{MEASURED}'")
    measured = measured.encode(x=across, y=f"{SHARE_RIGHT}:Q", tooltip=kinds.tooltips([A_CLASS, SHARE_RIGHT]))
    title = style.title(
        "Would more training images help?",
        "Diamonds are measured: the probe on all training images and on halves, quarters and eighths of them. The line "
        "is the expected accuracy with its 90 % band; it ends where predictions were not compared with the truth.",
    )
    return style.faceted(kinds.layers(band, line, ends, measured), frame, title, (DATASET,), 320)


def more_images_statements(curve: pd.DataFrame) -> list[Statement]:
    """What twice as many training images are expected to bring; nothing where no prediction was checked that far.

    >>> line = {"dataset": "photos", "images_a_class": 20.0, "accuracy": 0.8, "accuracy_low": 0.76}
    >>> line |= {"accuracy_high": 0.84, "times": 1.0, "point": "predicted", "metric": "accuracy"}
    >>> more = line | {"images_a_class": 40.0, "accuracy": 0.84, "accuracy_high": 0.87, "times": 2.0}
    >>> more |= {"accuracy_low": 0.8, "gain": 0.04, "gain_low": 0.01, "gain_high": 0.06}
    >>> print(more_images_statements(pd.DataFrame([line, more]))[0].sentence)
    With 20 more training images a class, 40 a class in all, 84.0 % [80.0, 87.0] is expected, \
+4.0 points [+1.0, +6.0] against now.
    >>> [statement] = more_images_statements(pd.DataFrame([line, more | {"gain_low": -0.01}]))
    >>> print(statement.sentence.split("expected, ")[1])
    +4.0 points [-1.0, +6.0] against now, which may be nothing.
    >>> print(more_images_statements(pd.DataFrame([line, more | {"gain": 0.003, "gain_low": -0.01}]))[0].sentence)
    20 more training images a class, 40 a class in all, bring less than a point: +0.3 points [-1.0, +6.0] are expected.
    """
    predicted = curve[curve[POINT] == PREDICTED]
    reached = predicted[predicted[TIMES] <= TWICE]
    if reached.empty or (reached[TIMES] < FEWEST_TIMES).all():
        return []
    line = reached.sort_values(TIMES).iloc[-1].to_dict()
    images = line[A_CLASS]
    more = f"{images - images / line[TIMES]:.0f} more training images a class, {images:.0f} a class in all"
    right = small.interval(line, ACCURACY.with_format(".1%", "accuracy"))
    kind = " of balanced accuracy" if line[METRIC] == BALANCED else ""
    gain = small.interval(line, MORE_GAIN)
    doubt = ", which may be nothing" if line[MORE_GAIN.low] <= 0 else ""
    sentence = f"With {more}, {right}{kind} is expected, {gain} against now{doubt}."
    if line[MORE_GAIN] < SMALL_GAIN:
        sentence = f"{more}, bring less than a point: {gain} are expected."
    shown = predicted.sort_values(TIMES)
    chart = small.curve(shown, A_CLASS, ACCURACY, (A_CLASS, TIMES, *with_interval(ACCURACY), *with_interval(MORE_GAIN)))
    return [Statement(sentence, chart)]
