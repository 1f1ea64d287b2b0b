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
_SCALE_OF_VALUES = {"zero": False, "padding": 8}  # an axis need not begin at 0; marks keep 8 pixels from its ends
TICKS = 8  # about as many numbers as fit below a panel
TICKS_WITH_UNIT = 5  # numbers with a sign or in percent are wider
Names = Sequence[str] | None


@dataclass(frozen=True)
class Hue:
    """One colour and one shape for each value of a column; a click in the legend dims the other values.

    words:   value -> how the legend shows it, in order; a value keeps its colour whichever values are present.
    present: the values in the legend; empty: no legend.
    colours, shapes: in the order of `words`; colours None: those of the page; shapes None: circles.
    ordered: the values have an order, and colours run from dark to light.
    columns: of the legend, where one row would be too wide.
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
        """The value that was clicked in the legend: the figure dims all others, and the page filters by it."""
        return alt.selection_point(name=f"picked_{self.column}", fields=[self.column], bind="legend", toggle="true")

    def colour(self) -> alt.Color:
        """The channel of colours."""
        scale = alt.Scale(domain=list(self.words), range=self.colours or alt.Undefined)
        measurement_type = "O" if self.ordered else "N"  # Vega-Lite: ordinal or nominal
        return alt.Color(f"{self.column}:{measurement_type}", scale=scale, legend=self._legend())

    def shape(self) -> alt.Shape | alt.Value:
        """The channel of shapes, which distinguish the values without colour."""
        if self.shapes is None:
            return alt.value("circle")
        shapes = [self.shapes[index % len(self.shapes)] for index in range(len(self.words))]
        scale = alt.Scale(domain=list(self.words), range=shapes)
        return alt.Shape(f"{self.column}:N", scale=scale, legend=self._legend())

    def opacity(self, full: float = 1.0) -> Any:
        """The channel of opacity: `full` for the picked value, a tenth of it for the others."""
        return alt.condition(self.picked, alt.value(full), alt.value(0.1 * full))

    def _legend(self) -> alt.Legend | None:
        """The legend of the present values in their words; None where no value is to be in it."""
        if not self.present:
            return None
        words = {str(value): text for value, text in self.words.items()}
        word_of_value = f"{json.dumps(words)}[datum.value]"  # a Vega expression: looks the word up in a literal
        columns = self.columns or alt.Undefined
        return alt.Legend(title=self.title, values=list(self.present), labelExpr=word_of_value, columns=columns)


def hue(
    column: Column, frame: pd.DataFrame, colours: Names = None, shapes: Names = SHAPES, legend: bool = True, **look: Any
) -> Hue:
    """The hue of a column: its declared values in their order, else those of the frame, sorted.

    legend: whether there is one.
    look:   title, ordered and columns of `Hue`.
    """
    values_in_frame = set(frame[column].dropna())
    words = dict(column.choices)
    if not words:
        words = {value: str(value) for value in sorted(values_in_frame)}
    present = tuple(value for value in words if value in values_in_frame) if legend else ()
    return Hue(str(column), words, present, colours, shapes, **look)


def tooltips(columns: Iterable[Column]) -> list[alt.Tooltip]:
    """What is shown under the pointer: numbers in their declared format, everything else as text."""
    channels = []
    for column in columns:
        if column.number_format:
            channels.append(alt.Tooltip(str(column), type="quantitative", format=column.number_format))
        else:
            channels.append(alt.Tooltip(str(column), type="nominal"))
    return channels


def quantity(channel: type, column: Column, title: str | None = None, grid: bool | None = None, **scale: Any) -> Any:
    """A numeric axis in the number format of a column: shares as percent, differences with their sign.

    The format ends in % for a share, and begins with + for a difference.

    channel: `alt.X` or `alt.Y`.
    title:   None: the meaning of the column; empty: no title.
    grid:    whether there are grid lines; None: as in the style of all figures.
    scale:   settings of `alt.Scale`, over the usual ones: the axis need not begin at 0, and has a margin.
    """
    number_format = column.number_format
    is_share = number_format.endswith("%")
    is_difference = number_format.startswith("+")
    unit = ""
    if is_share:
        unit = " (% points)" if is_difference else " (%)"

    axis: dict[str, Any] = {}  # labelExpr: a Vega expression for the text of each label
    if grid is not None:
        axis["grid"] = grid
    if column.value_type is int:
        axis["tickMinStep"] = 1
        axis["format"] = ",.0f"
        axis["tickCount"] = TICKS
        axis["labelExpr"] = "datum.value % 1 ? '' : datum.label"  # from 0 to 1 Vega also marks 0.5, and labels it 1
    elif channel is alt.X and scale.get("type") != "log":  # a logarithmic axis has ticks of its own
        axis["tickCount"] = TICKS
    if is_difference:
        value_in_unit = "100 * datum.value" if is_share else "datum.value"  # of shares: percentage points
        axis["labelExpr"] = f"datum.value == 0 ? '0' : format({value_in_unit}, '+')"  # only 0 has no sign
        axis["tickCount"] = TICKS_WITH_UNIT  # fewer ticks, because a sign makes labels wider
    elif is_share:
        axis["format"] = ".2~%"  # at most two decimals: 98.5%
        axis["tickCount"] = TICKS_WITH_UNIT  # likewise, because of the percent sign

    text = column.meaning if title is None else title
    title_with_unit = f"{text}{unit}" if text else None
    return channel(
        f"{column}:Q", title=title_with_unit, axis=alt.Axis(**axis), scale=alt.Scale(**(_SCALE_OF_VALUES | scale))
    )


def category(channel: type, column: str, order: Any = "ascending", title: str | None = None, **axis: Any) -> Any:
    """An axis of names or steps.

    order: as `sort` of altair: "ascending", or the names in their order.
    axis:  as of `alt.Axis`; and `bands=True` for grid lines between the names in place of through them.
    """
    band_position = 0 if axis.pop("bands", False) else 0.5
    look = alt.Axis(**({"grid": True, "ticks": False, "bandPosition": band_position} | axis))
    return channel(f"{column}:N", title=title, sort=order, axis=look)


def interval_marks(base: alt.Chart, value: Column, on_y: bool) -> alt.Chart:
    """The rule from the lower to the upper end of a value's interval, for lines that have one.

    on_y: whether the value is on the vertical axis.
    """
    rule: Any = base.transform_filter(f"isValid(datum.{value.low})").mark_rule(strokeWidth=2, clip=True)
    if on_y:
        return rule.encode(y=f"{value.low}:Q", y2=f"{value.high}:Q")
    return rule.encode(x=f"{value.low}:Q", x2=f"{value.high}:Q")


def reference(at: float | str, on_y: bool) -> alt.Chart:
    """A dashed line across a panel: at a number, or at the values of a column of this name.

    on_y: whether the number is on the vertical axis, so that the line is level.
    """
    place = alt.datum(at) if isinstance(at, float) else f"{at}:Q"
    rule: Any = alt.Chart().mark_rule(strokeDash=[4, 3])
    return rule.encode(y=place) if on_y else rule.encode(x=place)


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
    """A figure of dots, each with its interval from `<value>_low` to `<value>_high` if `hover` has these columns.

    value:    the column that the dots show.
    along:    the channel of the categories: `alt.Y` for dots in rows, `alt.X` for dots in columns.
    hover:    the columns shown under the pointer.
    coloured: the column that gives dots their colours and shapes, and its legend; None: all have one colour.
    dodge:    a column whose values are drawn beside each other within one category.
    line:     where a dashed line crosses the panel: at a value, or at the values of the column with this name.
    joined:   a column; dots with the same value in it (and the same colour) are joined by a line.
    where:    a Vega expression: which lines of the frame are drawn.
    scale:    the axis of the value; None: an axis in the number format of its column.
    size:     of a dot, square pixels.
    """
    on_y = isinstance(along, alt.X)
    value_channel = "y" if on_y else "x"
    category_channel = "x" if on_y else "y"

    encoding: dict[str, Any] = {category_channel: along}
    if dodge is not None:
        offset = alt.XOffset if on_y else alt.YOffset
        encoding[f"{category_channel}Offset"] = offset(f"{dodge}:N", scale=_dodge_scale(coloured, on_y))
    base = alt.Chart() if where is None else alt.Chart().transform_filter(where)
    base = base.encode(**encoding, **_colour_channels(coloured))

    # from back to front: reference, lines, intervals, dots
    charts: list[Any] = []
    if line is not None:
        charts.append(reference(line, on_y))
    if joined is not None:
        lines = base.mark_line(strokeWidth=1.5).encode(**{value_channel: f"{value}:Q"}, detail=f"{joined}:N")
        joins_within_category = along.shorthand == f"{joined}:O"
        if joins_within_category:  # the dots of a line have one place along the axis: join them by value
            lines = lines.encode(order=f"{value}:Q")
        charts.append(lines)
    if value.low in hover:
        charts.append(interval_marks(base, value, on_y))

    value_axis = scale or quantity(alt.Y if on_y else alt.X, value)
    dots: Any = base.mark_point(filled=True, size=size)
    dots = dots.encode(**{value_channel: value_axis}, tooltip=tooltips(hover))
    if coloured is not None:
        # picked: a click in the legend dims the other values
        dots = dots.encode(shape=coloured.shape()).add_params(coloured.picked)
    return layers(*charts, dots)


def _colour_channels(coloured: Hue | None) -> dict[str, Any]:
    """The channels of a hue, which dim what is not picked; without a hue all marks have one colour."""
    if coloured is None:
        return {"color": alt.value(CONTRAST[0])}
    return {"color": coloured.colour(), "opacity": coloured.opacity()}


def _dodge_scale(coloured: Hue | None, on_y: bool) -> alt.Scale:
    """Which values get a place of their own beside each other.

    In rows all values of the hue do, so that places compare between figures; in columns, which are narrow, only the
    present ones.
    """
    if coloured is None:
        return alt.Scale()
    return alt.Scale(domain=[value for value in coloured.words if not on_y or value in coloured.present])


def heat_map(
    value: Column, x: Any, y: Any, hover: Sequence[Column], domain: tuple[float, float], bright_low: bool = False
) -> alt.LayerChart:
    """A square of colour for each pair of categories, with its value as a number on the square.

    x, y:       the channels of the categories.
    hover:      the columns shown under the pointer.
    domain:     the values at the two ends of the colour scale.
    bright_low: whether the lowest value is the brightest.
    """
    middle = sum(domain) / 2
    # a Vega expression; a dark square has a white number
    is_dark_square = f"datum.{value} {'>' if bright_low else '<'} {middle}"
    base = alt.Chart().encode(x=x, y=y, tooltip=tooltips(hover))
    colours = alt.Scale(domain=list(domain), reverse=bright_low)
    squares = base.mark_rect().encode(color=alt.Color(f"{value}:Q", scale=colours, legend=None))
    numbers = base.mark_text(fontSize=12).encode(
        text=alt.Text(f"{value}:Q", format=value.number_format),
        color=alt.condition(is_dark_square, alt.value("#ffffff"), alt.value("#000000")),
    )
    return layers(squares, numbers)


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
    """One bar for each line of the frame.

    offset: `xOffset` or `yOffset`, for bars beside each other.
    """
    marks: Any = alt.Chart().mark_bar()
    marks = marks.encode(x=x, y=y, tooltip=tooltips(hover), **offset, **_colour_channels(coloured))
    return marks if coloured is None else marks.add_params(coloured.picked)


SIDE = 112  # pixels of a picture in a figure, large enough to judge it
GAP = 18  # pixels between two pictures
FIXED = {"fixed": True}  # `usermeta` of a figure whose panels have one width on any page: pictures, squares


def pictures(frame: pd.DataFrame, hover: Sequence[Column], bold: str, plain: str) -> alt.LayerChart:
    """A grid of thumbnails with two lines of text below each.

    frame:       has columns `thumbnail` (a data URI) and `row` and `column` (the place in the grid, from 0). A click on
                 a thumbnail opens the address in the column `large`, which the page adds for pictures of full size.
    hover:       the columns shown under the pointer.
    bold, plain: the columns of the first and the second line of text.
    """
    # every place of the grid is in the domain, so that an empty place, or a picture filtered away, keeps its room
    column_places = list(range(int(frame["column"].max()) + 1))
    row_places = list(range(int(frame["row"].max()) + 1))
    base = alt.Chart().encode(
        x=alt.X("column:O", axis=None, scale=alt.Scale(domain=column_places)),
        y=alt.Y("row:O", axis=None, scale=alt.Scale(domain=row_places)),
        tooltip=tooltips(hover),
    )
    # yOffset and dy, in pixels from the middle of the place: the picture a little higher, the two lines below it
    return layers(
        base.mark_image(width=SIDE, height=SIDE, yOffset=-12).encode(url="thumbnail:N", href="large:N"),
        base.mark_text(fontSize=11, fontWeight=600, limit=SIDE + 14, dy=SIDE / 2 - 4).encode(text=f"{bold}:N"),
        base.mark_text(fontSize=10, limit=SIDE + 14, dy=SIDE / 2 + 8).encode(text=f"{plain}:N"),
    )
