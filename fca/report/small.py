"""The small figures beside headlines: a curve, a few named dots, a cloud, lines. They draw declared columns."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.types import Column

HEIGHT, NAMED = 72, 4  # pixels; names at the side
WIDEST = 14  # letters of a line below a picture
COLOUR = "#1f83c9"  # 3:1 on white and on black
ALIKE = 1e-12  # a smaller difference of two shares is the rounding of equal ones


def curve(frame: pd.DataFrame, along: Column, value: Column, hover: Sequence[Column], line: float | None = None) -> Any:
    """A value with its interval over ordered steps; `line` is a reference.

    >>> share = Column("top1", float, ".1%", "accuracy")
    >>> frame = pd.DataFrame({"ncl": [2, 5], "top1": [0.9, 0.8], "top1_low": [0.8, 0.7], "top1_high": [1.0, 0.9]})
    >>> len(curve(frame, Column("ncl", int, ".0f", "classes"), share, [share, share.low]).layer)
    3
    """
    base: Any = alt.Chart().encode(x=_steps(along), tooltip=kinds.tooltips(hover))
    marks = base.encode(y=_axis(alt.Y, value))
    layers = [] if line is None else [kinds.reference(line, upright=True)]
    ends = kinds.interval(base.encode(color=alt.value(COLOUR)), value, upright=True)
    drawn = [
        marks.mark_line(strokeWidth=1.5, color=COLOUR),
        ends,
        marks.mark_point(filled=True, size=60, opacity=1, color=COLOUR),
    ]
    return _sized(kinds.layers(*layers, *drawn), frame)


def dots(frame: pd.DataFrame, names: str, value: Column, hover: Sequence[Column], line: float | None = None) -> Any:
    """A value with its interval for the first names of the frame, the first in colour; `line` is a reference."""
    frame = frame.head(NAMED).reset_index(drop=True).assign(first=lambda few: few.index == 0)
    along = kinds.category(alt.Y, names, frame[names].tolist(), labelLimit=190, domain=False)
    colour = alt.condition("datum.first", alt.value(COLOUR), alt.value(kinds.GREY))
    base: Any = alt.Chart().encode(y=along, color=colour, tooltip=kinds.tooltips(hover))
    layers = [] if line is None else [kinds.reference(line, upright=False)]
    if value.low in frame:
        layers.append(kinds.interval(base, value, upright=False))
    layers.append(base.mark_point(filled=True, size=70, opacity=1).encode(x=_axis(alt.X, value)))
    return _sized(kinds.layers(*layers), frame)


def cloud(frame: pd.DataFrame, x: Column, y: Column, hover: Sequence[Column]) -> Any:
    """One mark a line of the frame, and the straight line through them."""
    across, up = _axis(alt.X, x), _axis(alt.Y, y)
    marks: Any = alt.Chart().mark_point(filled=True, size=45, color=COLOUR, opacity=0.8)
    marks = marks.encode(x=across, y=up, tooltip=kinds.tooltips(hover))
    return _sized(kinds.layers(kinds.least_squares(x, y, across, up), marks), frame)


def lines(frame: pd.DataFrame, x: Column, y: Column, one: Column, hover: Sequence[Column]) -> Any:
    """A line for each value of `one`; the first of the frame in colour."""
    frame = frame.assign(first=frame[one] == frame[one].iloc[0])
    base: Any = alt.Chart().mark_line(strokeWidth=2).encode(x=_axis(alt.X, x), y=_axis(alt.Y, y), detail=f"{one}:N")
    colour = alt.condition("datum.first", alt.value(COLOUR), alt.value(kinds.GREY))
    return _sized(kinds.layers(base.encode(color=colour, tooltip=kinds.tooltips(hover))), frame)


def strip(frame: pd.DataFrame, below: Column, hover: Sequence[Column]) -> Any:
    """The first pictures of the frame (column `thumbnail`) beside each other, with a word below each, in lines."""
    few = frame.head(NAMED).reset_index(drop=True)
    few = few.assign(place=few.index, below=["\n".join(textwrap.wrap(word, WIDEST)) for word in few[below].astype(str)])
    places = alt.Scale(domain=list(range(NAMED)))
    base = alt.Chart().encode(x=alt.X("place:O", axis=None, scale=places), tooltip=kinds.tooltips(hover))
    images: Any = base.mark_image(width=HEIGHT - 4, height=HEIGHT - 4).encode(y=alt.value(HEIGHT / 2 - 8))
    words: Any = base.mark_text(fontSize=11, limit=88, lineBreak="\n").encode(y=alt.value(HEIGHT))
    drawn = [images.encode(url="thumbnail:N", href="large:N"), words.encode(text="below:N")]
    return _sized(kinds.layers(*drawn), few)


def _steps(along: Column) -> alt.X:
    axis = alt.Axis(labelExpr=f"datum.index == 0 ? datum.label + ' {along.meaning}' : datum.label")
    return alt.X(f"{along}:O", title=None, sort=None, axis=axis)


def _axis(channel: type, value: Column) -> Any:
    """Few ticks, counts from 0; the title of an upright axis lies above it."""
    above = {"titleAngle": 0, "titleAlign": "left", "titleX": 0, "titleY": -10}
    scale: dict[str, Any] = {"zero": True} if value.kind is int else {}
    axis = kinds.quantity(channel, value, None, False, **scale)
    for name, at in ({"tickCount": 3} | (above if channel is alt.Y else {})).items():
        axis["axis"][name] = at
    return axis


def _sized(chart: Any, frame: pd.DataFrame) -> Any:
    """As wide as its place."""
    drawn = chart.properties(width="container", height=HEIGHT, data=alt.NamedData("table"))
    drawn.data = style.data(frame)
    return drawn


def interval(line: Any, value: Column) -> str:
    """A number with its interval as a sentence has it, in the unit of its column.

    >>> share = Column("top1", float, ".1%", "accuracy")
    >>> interval({"top1": 0.981, "top1_low": 0.97, "top1_high": 0.99}, share)
    '98.1 % [97.0, 99.0]'
    >>> interval({"r": 0.5, "r_low": None}, Column("r", float, ".2f", "correlation"))
    '0.50'
    >>> interval({"top1": 1.0, "top1_low": 1.0, "top1_high": 1.0}, share)  # all draws are alike: it shows no error
    '100.0 %'
    """
    form, factor, unit = value.number_format, 1, ""
    if form.endswith("%"):
        form, factor, unit = f"{form[:-1]}f", 100, " points" if form.startswith("+") else " %"
    shown = f"{factor * line[value]:{form}}{unit}"
    if pd.isna(line.get(value.low)) or line[value.low] == line[value.high]:
        return shown
    return f"{shown} [{factor * line[value.low]:{form}}, {factor * line[value.high]:{form}}]"


def listed(names: Sequence[Any]) -> str:
    """Names as a sentence has them, at most four.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    words = [str(name) for name in names]
    if len(words) > NAMED:
        words = [*words[: NAMED - 1], f"{len(words) - NAMED + 1} more"]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def all_of(number: int, things: str = "") -> str:
    """Every one of some things in a sentence, of two or more.

    >>> all_of(3, "sub-models"), all_of(2, "sub-models"), all_of(2)
    ('all 3 sub-models', 'both sub-models', 'both')
    """
    return f"{'both' if number == 2 else f'all {number}'} {things}".rstrip()


def best_of(frame: pd.DataFrame, value: Column, largest: bool = True) -> pd.DataFrame:
    """All lines with the largest value (or the smallest): several where they are equal.

    >>> best_of(pd.DataFrame({"model": ["a", "b", "c"], "top1": [0.5, 0.9, 0.9]}), Column("top1"))["model"].tolist()
    ['b', 'c']
    """
    values = frame[value].astype(float).round(12)
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
        line |= {value.low: float("nan"), value.high: float("nan")}
    return line
