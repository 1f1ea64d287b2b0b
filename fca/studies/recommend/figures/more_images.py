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
from fca.types import Table, interval_columns

TWICE = 2.0  # the sentence is about this multiple of the images, or the largest that predictions were checked for
FEWEST_TIMES = 1.2  # below this multiple there is no sentence
SMALL_GAIN = 0.01  # below this the sentence omits the accuracy: the curve's may differ from the answer's by as much
COLOURS = ("#0072b2", "#c4562b")  # 3:1 on white and on black


def more_images_figure(curve: Table) -> alt.FacetChart:
    """The figure of accuracy against training images per class: measured with up to all images, predicted with more.

    curve: table `recommendation_more_images`, with a line for each number of images. Its accuracy was measured or
           predicted, as column POINT states.
    """
    frame = curve.frame.assign(panel=style.panels(curve.frame, DATASET))
    across = kinds.quantity(alt.X, A_CLASS, "training images per class", grid=True, type="log", padding=20, nice=False)
    up = kinds.quantity(alt.Y, ACCURACY, "accuracy", grid=True)

    # the expected accuracy: a line with its band, and a point at each number of images
    colour = kinds.hue(POINT, frame, COLOURS, title="Colour").colour()
    base = alt.Chart().encode(x=across, color=colour)
    band: Any = base.mark_area(opacity=0.2)
    band = band.encode(y=f"{ACCURACY.low}:Q", y2=f"{ACCURACY.high}:Q")
    line: Any = base.mark_line(strokeWidth=2)
    line = line.encode(y=up)
    hover = [column for column in curve.columns if column not in (DATASET, SHARE_RIGHT)]
    points: Any = base.mark_point(filled=True, size=45)
    points = points.encode(y=up, tooltip=kinds.tooltips(hover))

    # the measured accuracies, from which the expected ones are estimated
    diamonds: Any = alt.Chart().mark_point(shape="diamond", filled=True, size=90, color=COLOURS[0], opacity=1)
    diamonds = diamonds.transform_filter(f"datum.{POINT} == '{MEASURED}'")
    diamonds = diamonds.encode(x=across, y=f"{SHARE_RIGHT}:Q", tooltip=kinds.tooltips([A_CLASS, SHARE_RIGHT]))

    title = style.title(
        "Would more training images help?",
        "Diamonds are measured: the probe on all training images and on halves, quarters and eighths of them. The line "
        "is the expected accuracy with its 90 % band; it ends where predictions were not compared with measurements.",
    )
    return style.faceted(kinds.layers(band, line, points, diamonds), frame, title, filters=(DATASET,), height=320)


def more_images_statements(curve: pd.DataFrame) -> list[Statement]:
    """The statement on how much accuracy is expected to rise with twice as many training images.

    If predictions end before that, the statement is about the largest predicted number of images. It is left out, and
    the list is empty, if predictions end below FEWEST_TIMES times the present number.
    curve: table `recommendation_more_images` of one data set; column TIMES is a multiple of the present number.

    >>> line = {"dataset": "photos", "images_a_class": 20.0, "accuracy": 0.8, "accuracy_low": 0.76}
    >>> line |= {"accuracy_high": 0.84, "times": 1.0, "point": "predicted", "metric": "accuracy"}
    >>> twice = line | {"images_a_class": 40.0, "accuracy": 0.84, "accuracy_high": 0.87, "times": 2.0}
    >>> twice |= {"accuracy_low": 0.8, "gain": 0.04, "gain_low": 0.01, "gain_high": 0.06}
    >>> print(more_images_statements(pd.DataFrame([line, twice]))[0].sentence)
    With 20 more training images a class, 40 a class in all, 84.0 % [80.0, 87.0] is expected, \
+4.0 points [+1.0, +6.0] against now.
    >>> [statement] = more_images_statements(pd.DataFrame([line, twice | {"gain_low": -0.01}]))
    >>> print(statement.sentence.split("expected, ")[1])
    +4.0 points [-1.0, +6.0] against now, which may be nothing.
    >>> print(more_images_statements(pd.DataFrame([line, twice | {"gain": 0.003, "gain_low": -0.01}]))[0].sentence)
    20 more training images a class, 40 a class in all, bring less than a point: +0.3 points [-1.0, +6.0] are expected.
    """
    predicted = curve[curve[POINT] == PREDICTED].sort_values(TIMES)
    up_to_twice = predicted[predicted[TIMES] <= TWICE]
    if up_to_twice.empty or (up_to_twice[TIMES] < FEWEST_TIMES).all():
        return []

    line = up_to_twice.iloc[-1].to_dict()
    images = line[A_CLASS]
    present_images = images / line[TIMES]
    more_images = f"{images - present_images:.0f} more training images a class, {images:.0f} a class in all"
    gain = small.format_with_interval(line, MORE_GAIN)
    if line[MORE_GAIN] < SMALL_GAIN:  # without the accuracy, whose error may be as large as the gain
        sentence = f"{more_images}, bring less than a point: {gain} are expected."
    else:
        accuracy = small.format_with_interval(line, ACCURACY.with_format(".1%", "accuracy"))
        metric = " of balanced accuracy" if line[METRIC] == BALANCED else ""
        doubt = ", which may be nothing" if line[MORE_GAIN.low] <= 0 else ""
        sentence = f"With {more_images}, {accuracy}{metric} is expected, {gain} against now{doubt}."

    hover = (A_CLASS, TIMES, *interval_columns(ACCURACY), *interval_columns(MORE_GAIN))
    return [Statement(sentence, small.curve(predicted, A_CLASS, ACCURACY, hover))]
