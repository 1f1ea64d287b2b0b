"""The small figures beside headlines: a curve, a few named dots, a cloud, lines. They draw declared columns."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.types import Column

HEIGHT = 72  # of a small figure, pixels
MAX_NAMES = 4  # names beside a figure or in a sentence
MAX_LABEL_LENGTH = 14  # letters of a line below a picture
COLOUR = "#1f83c9"  # 3:1 on white and on black
ALIKE = 1e-12  # a smaller difference of two shares is the rounding of equal ones


def curve(frame: pd.DataFrame, along: Column, value: Column, hover: Sequence[Column], line: float | None = None) -> Any:
    """A small figure of a value with its interval over ordered steps, such as numbers of classes.

    frame: a line for each step, with the value and the ends of its interval.
    along: the column of the steps.
    hover: the columns shown under the pointer.
    line:  the value at which a dashed line of reference is drawn.

    >>> share = Column("top1", float, ".1%", "accuracy")
    >>> frame = pd.DataFrame({"ncl": [2, 5], "top1": [0.9, 0.8], "top1_low": [0.8, 0.7], "top1_high": [1.0, 0.9]})
    >>> len(curve(frame, Column("ncl", int, ".0f", "classes"), share, [share, share.low]).layer)
    3
    """
    base: Any = alt.Chart().encode(x=_steps(along), tooltip=kinds.tooltips(hover))
    values = base.encode(y=_axis(alt.Y, value))
    layers = [] if line is None else [kinds.reference(line, on_y=True)]
    layers += [
        values.mark_line(strokeWidth=1.5, color=COLOUR),
        kinds.interval_marks(base.encode(color=alt.value(COLOUR)), value, on_y=True),
        values.mark_point(filled=True, size=60, opacity=1, color=COLOUR),
    ]
    return _sized(kinds.layers(*layers), frame)


def dots(frame: pd.DataFrame, names: str, value: Column, hover: Sequence[Column], line: float | None = None) -> Any:
    """A value with its interval for each of the first MAX_NAMES lines of a frame, the first in colour, the others grey.

    names: the column of the names at the side.
    hover: the columns shown under the pointer.
    line:  the value at which a dashed line of reference is drawn.
    """
    first_lines = frame.head(MAX_NAMES).reset_index(drop=True)
    first_lines = first_lines.assign(first=first_lines.index == 0)

    name_axis = kinds.category(alt.Y, names, first_lines[names].tolist(), labelLimit=190, domain=False)
    colour = alt.condition("datum.first", alt.value(COLOUR), alt.value(kinds.GREY))
    base: Any = alt.Chart().encode(y=name_axis, color=colour, tooltip=kinds.tooltips(hover))

    layers = [] if line is None else [kinds.reference(line, on_y=False)]
    if value.low in first_lines:
        layers.append(kinds.interval_marks(base, value, on_y=False))
    layers.append(base.mark_point(filled=True, size=70, opacity=1).encode(x=_axis(alt.X, value)))
    return _sized(kinds.layers(*layers), first_lines)


def cloud(frame: pd.DataFrame, x: Column, y: Column, hover: Sequence[Column]) -> Any:
    """One mark for each line of the frame, and the least-squares line through them.

    hover: the columns shown under the pointer.
    """
    across, up = _axis(alt.X, x), _axis(alt.Y, y)
    marks: Any = alt.Chart().mark_point(filled=True, size=45, color=COLOUR, opacity=0.8)
    marks = marks.encode(x=across, y=up, tooltip=kinds.tooltips(hover))
    return _sized(kinds.layers(kinds.least_squares(x, y, across, up), marks), frame)


def lines(frame: pd.DataFrame, x: Column, y: Column, series: Column, hover: Sequence[Column]) -> Any:
    """A line for each value of the column `series`: in colour for the first line of the frame, grey for the others."""
    frame = frame.assign(first=frame[series] == frame[series].iloc[0])
    base: Any = alt.Chart().mark_line(strokeWidth=2)
    base = base.encode(x=_axis(alt.X, x), y=_axis(alt.Y, y), detail=f"{series}:N")
    colour = alt.condition("datum.first", alt.value(COLOUR), alt.value(kinds.GREY))
    return _sized(kinds.layers(base.encode(color=colour, tooltip=kinds.tooltips(hover))), frame)


def strip(frame: pd.DataFrame, below: Column, hover: Sequence[Column]) -> Any:
    """The first pictures of a frame (column `thumbnail`) beside each other, each above its label.

    below: the column of the labels, which are wrapped.
    hover: the columns shown under the pointer.
    """
    pictures = frame.head(MAX_NAMES).reset_index(drop=True)
    labels = ["\n".join(textwrap.wrap(label, MAX_LABEL_LENGTH)) for label in pictures[below].astype(str)]
    pictures = pictures.assign(place=pictures.index, below=labels)

    # always MAX_NAMES places, so that fewer pictures are not spread over the whole width
    x = alt.X("place:O", axis=None, scale=alt.Scale(domain=list(range(MAX_NAMES))))
    base = alt.Chart().encode(x=x, tooltip=kinds.tooltips(hover))
    # y: the middle of the picture, 8 pixels above the middle of the figure, which leaves room for the label below
    images: Any = base.mark_image(width=HEIGHT - 4, height=HEIGHT - 4).encode(y=alt.value(HEIGHT / 2 - 8))
    words: Any = base.mark_text(fontSize=11, limit=88, lineBreak="\n").encode(y=alt.value(HEIGHT))
    layers = [
        images.encode(url="thumbnail:N", href="large:N"),
        words.encode(text="below:N"),
    ]
    return _sized(kinds.layers(*layers), pictures)


def _steps(along: Column) -> alt.X:
    """An axis of ordered steps without a title: the label of the first step has the meaning of the column instead."""
    axis = alt.Axis(labelExpr=f"datum.index == 0 ? datum.label + ' {along.meaning}' : datum.label")
    return alt.X(f"{along}:O", title=None, sort=None, axis=axis)


def _axis(channel: type, value: Column) -> Any:
    """The axis of a small figure: few ticks, no grid lines. Counts start at 0; a vertical axis has its title above.

    channel: `alt.X` or `alt.Y`.
    value:   the column on the axis.
    """
    scale: dict[str, Any] = {"zero": True} if value.value_type is int else {}
    encoding = kinds.quantity(channel, value, grid=False, **scale)
    axis = encoding["axis"]
    axis["tickCount"] = 3
    if channel is alt.Y:
        title_above = {"titleAngle": 0, "titleAlign": "left", "titleX": 0, "titleY": -10}
        for name, setting in title_above.items():
            axis[name] = setting
    return encoding


def _sized(chart: Any, frame: pd.DataFrame) -> Any:
    """The chart with the data of this frame, as wide as its container."""
    sized_chart = chart.properties(width="container", height=HEIGHT, data=alt.NamedData("table"))
    sized_chart.data = style.data(frame)
    return sized_chart


def format_with_interval(line: Any, value: Column) -> str:
    """A number with its interval as text for a sentence, in the unit of its column.

    The interval is left out where it is missing or has no width.

    line: a line of a table: has the number in column `value`, and the ends of its interval in `value.low` and
          `value.high`.

    >>> share = Column("top1", float, ".1%", "accuracy")
    >>> format_with_interval({"top1": 0.981, "top1_low": 0.97, "top1_high": 0.99}, share)
    '98.1 % [97.0, 99.0]'
    >>> format_with_interval({"r": 0.5, "r_low": None}, Column("r", float, ".2f", "correlation"))
    '0.50'
    >>> format_with_interval({"top1": 1.0, "top1_low": 1.0, "top1_high": 1.0}, share)  # all draws are alike
    '100.0 %'
    """
    number_format = value.number_format
    factor = 1
    unit = ""
    if number_format.endswith("%"):
        factor = 100
        unit = " points" if number_format.startswith("+") else " %"
        number_format = f"{number_format[:-1]}f"

    number = f"{factor * line[value]:{number_format}}{unit}"
    if pd.isna(line.get(value.low)) or line[value.low] == line[value.high]:
        return number

    low = f"{factor * line[value.low]:{number_format}}"
    high = f"{factor * line[value.high]:{number_format}}"
    return f"{number} [{low}, {high}]"


def listed(names: Sequence[Any]) -> str:
    """Names joined for a sentence, at most four.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    words = [str(name) for name in names]
    if len(words) > MAX_NAMES:
        n_others = len(words) - (MAX_NAMES - 1)
        words = [*words[: MAX_NAMES - 1], f"{n_others} more"]

    all_but_last = ", ".join(words[:-1])
    return " and ".join(filter(None, [all_but_last, words[-1]]))


def all_of(number: int, things: str = "") -> str:
    """Two or more things, all of them, in a sentence.

    >>> all_of(3, "sub-models"), all_of(2, "sub-models"), all_of(2)
    ('all 3 sub-models', 'both sub-models', 'both')
    """
    return f"{'both' if number == 2 else f'all {number}'} {things}".rstrip()


def best_of(frame: pd.DataFrame, value: Column, largest: bool = True) -> pd.DataFrame:
    """All lines with the largest value (or the smallest): several where they are equal.

    >>> best_of(pd.DataFrame({"model": ["a", "b", "c"], "top1": [0.5, 0.9, 0.9]}), Column("top1"))["model"].tolist()
    ['b', 'c']
    """
    values = frame[value].astype(float).round(12)  # means of equal shares may differ in their last digit
    return frame[values == (values.max() if largest else values.min())]


def shared_line(equal: pd.DataFrame, value: Column) -> dict[Hashable, Any]:
    """The first of several lines of equal value; without an interval where theirs differ.

    >>> lines = pd.DataFrame({"model": ["a", "b"], "top1": [0.9, 0.9], "top1_low": [0.8, 0.85], "top1_high": 0.95})
    >>> shared_line(lines, Column("top1"))
    {'model': 'a', 'top1': 0.9, 'top1_low': nan, 'top1_high': nan}
    """
    line = equal.iloc[0].to_dict()
    intervals = equal[[value.low, value.high]].astype(float).round(12)
    if len(intervals.drop_duplicates()) > 1:
        line[value.low] = float("nan")
        line[value.high] = float("nan")
    return line
