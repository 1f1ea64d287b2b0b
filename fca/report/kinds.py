"""The kinds of figures: points with intervals, heat map, scatter, bars, pictures. They draw declared columns.

Each kind takes the columns to draw and returns the layers of one panel; `style.faceted` repeats them, one panel a value
of the frame's column `panel`. Axis titles, formats and tooltips come from the declarations (`fca.types.Column`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from fca.types import Column

ZERO = 0.0  # where a line of reference often stands
CONTRAST = ("#a9629a", "#b07d00", "#7d8590")  # 3:1 on white and on black; not the colours of the protocols
GREY = CONTRAST[2]
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_OPEN = {"zero": False, "padding": 8}
TICKS = 8  # about as many numbers stand below a panel
Names = Sequence[str] | None


@dataclass(frozen=True)
class Hue:
    """One colour and one shape for each value of a column; a click in the legend dims the other values.

    words:   value -> how the legend shows it, in order; they keep their colours whatever is present.
    present: the values in the legend.    colours, shapes: in the order of `words`; None: those of the page.
    ordered: colours run from dark to light.    columns: of the legend, where one row would be too wide.
    """

    column: str
    words: dict[Any, str]
    present: tuple[Any, ...]
    colours: Names = None
    shapes: Names = SHAPES
    title: str | None = None
    ordered: bool = False
    columns: int | None = None

    @property
    def picked(self) -> alt.Parameter:
        """What a click in the legend chooses: the figure dims the rest, the page filters by it."""
        return alt.selection_point(name=f"picked_{self.column}", fields=[self.column], bind="legend", toggle="true")

    def colour(self) -> alt.Color:
        """The channel of colours."""
        scale = alt.Scale(domain=list(self.words), range=self.colours or alt.Undefined)
        return alt.Color(f"{self.column}:{'O' if self.ordered else 'N'}", scale=scale, legend=self._legend())

    def shape(self) -> alt.Shape | alt.Value:
        """The channel of shapes, for eyes and printers without colour."""
        if self.shapes is None:
            return alt.value("circle")
        shapes = [self.shapes[at % len(self.shapes)] for at in range(len(self.words))]
        scale = alt.Scale(domain=list(self.words), range=shapes)
        return alt.Shape(f"{self.column}:N", scale=scale, legend=self._legend())

    def opacity(self, full: float = 1.0) -> Any:
        """Dimmed unless it is picked."""
        return alt.condition(self.picked, alt.value(full), alt.value(0.1 * full))

    def _legend(self) -> alt.Legend | None:
        if not self.present:
            return None
        words = {str(value): text for value, text in self.words.items()}
        label = f"{json.dumps(words)}[datum.value]"
        columns = self.columns or alt.Undefined
        return alt.Legend(title=self.title, values=list(self.present), labelExpr=label, columns=columns)


def hue(
    column: Column, frame: pd.DataFrame, colours: Names = None, shapes: Names = SHAPES, legend: bool = True, **look: Any
) -> Hue:
    """The hue of a column: its declared values in their order, else those of the frame, sorted.

    legend: whether there is one.    look: title, ordered and columns of `Hue`.
    """
    found = set(frame[column].dropna())
    values = dict(column.choices) or {value: str(value) for value in sorted(found)}
    present = tuple(value for value in values if value in found) if legend else ()
    return Hue(str(column), values, present, colours, shapes, **look)


def tooltips(columns: Iterable[Column]) -> list[alt.Tooltip]:
    """What hovering shows: numbers in their declared format, everything else as text."""
    return [
        alt.Tooltip(str(column), type="quantitative", format=column.number_format)
        if column.number_format
        else alt.Tooltip(str(column), type="nominal")
        for column in columns
    ]


def quantity(channel: type, column: Column, title: str | None = None, grid: bool | None = None, **scale: Any) -> Any:
    """A numeric axis: title and number format of the column; shares as percent, differences with their sign."""
    form, title = column.number_format, column.meaning if title is None else title
    unit = {True: " (% points)" if form.startswith("+") else " (%)"}.get(form.endswith("%"), "")
    value = "100 * datum.value" if unit else "datum.value"
    axis: dict[str, Any] = {} if grid is None else {"grid": grid}
    if column.value_type is int:
        axis |= {"tickMinStep": 1, "format": ",.0f", "tickCount": TICKS}
        axis["labelExpr"] = "datum.value % 1 ? '' : datum.label"  # of 0 to 1 Vega also marks a half, and calls it 1
    elif channel is alt.X and scale.get("type") != "log":
        axis["tickCount"] = TICKS
    if form.startswith("+"):
        axis |= {"labelExpr": f"datum.value == 0 ? '0' : format({value}, '+')", "tickCount": 5}
    elif unit:
        axis |= {"format": ".2~%", "tickCount": 5}
    spread = alt.Scale(**(_OPEN | scale))
    return channel(f"{column}:Q", title=f"{title}{unit}" if title else None, axis=alt.Axis(**axis), scale=spread)


def category(channel: type, column: str, order: Any = "ascending", title: str | None = None, **axis: Any) -> Any:
    """An axis of names or steps, in this order."""
    look = alt.Axis(**({"grid": True, "ticks": False, "bandPosition": 0 if axis.pop("bands", False) else 0.5} | axis))
    return channel(f"{column}:N", title=title, sort=order, axis=look)


def interval_marks(base: alt.Chart, value: Column, upright: bool) -> alt.Chart:
    """The rule from the lower to the upper end of a value's interval, where there is one."""
    rule: Any = base.transform_filter(f"isValid(datum.{value.low})").mark_rule(strokeWidth=2, clip=True)
    ends = ("y", "y2") if upright else ("x", "x2")
    return rule.encode(**dict(zip(ends, (f"{value.low}:Q", f"{value.high}:Q"), strict=True)))


def reference(at: float | str, upright: bool) -> alt.Chart:
    """A dashed line across a panel: at a number, or at the values of a column of this name."""
    place = alt.datum(at) if isinstance(at, float) else f"{at}:Q"
    rule: Any = alt.Chart().mark_rule(strokeDash=[4, 3])
    return rule.encode(**{"y" if upright else "x": place})


def layers(*charts: Any) -> alt.LayerChart:
    """Charts over each other, the first at the back."""
    return alt.LayerChart(layer=list(charts))


def points_with_intervals(
    value: Column,
    along: Any,
    hover: Sequence[Column],
    coloured: Hue | None = None,
    *,
    dodge: str | None = None,
    line: float | str | None = None,
    joined: str | None = None,
    where: str | None = None,
    scale: Any = None,
    size: int = 80,
) -> alt.LayerChart:
    """Dots with the interval `<value>_low` to `<value>_high` where there is one.

    along:  the channel of the categories: `alt.Y` for dots in rows, `alt.X` for dots in columns.
    dodge:  a column whose values stand beside each other at the same place.    line: where a dashed line stands.
    joined: a column; dots with the same value (and colour) are joined by a line.    where: which lines of the frame.
    scale:  the value's own axis (see `quantity`), else that of the column.
    """
    upright = isinstance(along, alt.X)
    axis, across = ("y", "x") if upright else ("x", "y")
    encoded: dict[str, Any] = {across: along}
    if dodge is not None:
        offset = alt.XOffset if upright else alt.YOffset
        encoded[f"{across}Offset"] = offset(f"{dodge}:N", scale=_places(coloured, upright))
    base = alt.Chart() if where is None else alt.Chart().transform_filter(where)
    base = base.encode(**encoded, **_dimmed(coloured))
    charts: list[Any] = [] if line is None else [reference(line, upright)]
    if joined is not None:
        lines = base.mark_line(strokeWidth=1.5).encode(**{axis: f"{value}:Q"}, detail=f"{joined}:N")
        charts.append(lines.encode(order=f"{value}:Q") if along.shorthand == f"{joined}:O" else lines)
    if value.low in hover:
        charts.append(interval_marks(base, value, upright))
    dots: Any = base.mark_point(filled=True, size=size)
    dots = dots.encode(**{axis: scale or quantity(alt.Y if upright else alt.X, value)}, tooltip=tooltips(hover))
    if coloured is not None:
        dots = dots.encode(shape=coloured.shape()).add_params(coloured.picked)
    return layers(*charts, dots)


def _dimmed(coloured: Hue | None) -> dict[str, Any]:
    """The channels of a colour, dimmed where it is not picked; without a hue all marks are alike."""
    if coloured is None:
        return {"color": alt.value(CONTRAST[0])}
    return {"color": coloured.colour(), "opacity": coloured.opacity()}


def _places(coloured: Hue | None, upright: bool) -> alt.Scale:
    """In rows every value keeps its place; in columns, which are narrow, only those that are present have one."""
    if coloured is None:
        return alt.Scale()
    return alt.Scale(domain=[value for value in coloured.words if not upright or value in coloured.present])


def heat_map(
    value: Column, x: Any, y: Any, hover: Sequence[Column], domain: tuple[float, float], bright_low: bool = False
) -> alt.LayerChart:
    """A square of colour for each pair, with its number on it. bright_low: the lowest value is the brightest."""
    middle = sum(domain) / 2
    dark = f"datum.{value} {'>' if bright_low else '<'} {middle}"
    base = alt.Chart().encode(x=x, y=y, tooltip=tooltips(hover))
    colours = alt.Scale(domain=list(domain), reverse=bright_low)
    return layers(
        base.mark_rect().encode(color=alt.Color(f"{value}:Q", scale=colours, legend=None)),
        base.mark_text(fontSize=12).encode(
            text=alt.Text(f"{value}:Q", format=value.number_format),
            color=alt.condition(dark, alt.value("#ffffff"), alt.value("#000000")),
        ),
    )


def scatter(x: Any, y: Any, hover: Sequence[Column], coloured: Hue, *, size: int = 80) -> alt.Chart:
    """One mark for each line of the frame."""
    marks: Any = alt.Chart().mark_point(filled=True, size=size)
    marks = marks.encode(x=x, y=y, color=coloured.colour(), shape=coloured.shape(), opacity=coloured.opacity(0.9))
    return marks.encode(tooltip=tooltips(hover)).add_params(coloured.picked)


def least_squares(x: str, y: str, across: Any, up: Any) -> alt.Chart:
    """A dashed straight line through the marks shown; `across` and `up` are the axes of the marks."""
    line: Any = alt.Chart().transform_regression(x, y)
    line = line.mark_line(strokeDash=[5, 3], color="#8b949e", strokeWidth=1.5, clip=True)
    return line.encode(x=across, y=up)


def bars(x: Any, y: Any, hover: Sequence[Column], coloured: Hue | None = None, **offset: Any) -> alt.Chart:
    """One bar for each line of the frame."""
    marks: Any = alt.Chart().mark_bar().encode(x=x, y=y, tooltip=tooltips(hover), **offset, **_dimmed(coloured))
    return marks if coloured is None else marks.add_params(coloured.picked)


SIDE = 112  # pixels of a picture in a figure, large enough to judge it
GAP = 18  # pixels between two pictures
FIXED = {"fixed": True}  # `usermeta` of a figure whose panels have one width on any page: pictures, squares


def pictures(frame: pd.DataFrame, hover: Sequence[Column], bold: str, plain: str) -> alt.LayerChart:
    """A grid of thumbnails (columns `thumbnail`, `row`, `column`) with two lines of text below each.

    bold, plain: the columns of the texts. A click opens the address in the column `large`, where there is one.
    """
    places = {name: alt.Scale(domain=list(range(int(frame[name].max()) + 1))) for name in ("column", "row")}
    base = alt.Chart().encode(
        x=alt.X("column:O", axis=None, scale=places["column"]),
        y=alt.Y("row:O", axis=None, scale=places["row"]),
        tooltip=tooltips(hover),
    )
    return layers(
        base.mark_image(width=SIDE, height=SIDE, yOffset=-12).encode(url="thumbnail:N", href="large:N"),
        base.mark_text(fontSize=11, fontWeight=600, limit=SIDE + 14, dy=SIDE / 2 - 4).encode(text=f"{bold}:N"),
        base.mark_text(fontSize=10, limit=SIDE + 14, dy=SIDE / 2 + 8).encode(text=f"{plain}:N"),
    )
