"""How every figure looks, how it is filtered, and how it becomes a file. Nothing here knows what is drawn."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from fca.csv_table import csv_text

COLUMN_WIDTH = 3.3 * 72  # of a column of a paper, in points
PRINT_FONT_SIZE = 8  # of text in a figure of a paper, in points
PAGE_FONT_SIZE = 12  # of text in a figure on the page, in pixels
MAX_SUBTITLE_LENGTH = 120  # characters in a line below the title of a figure
VEGA_LITE = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]  # 6.4: what altair writes and the page runs
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
# Okabe and Ito's colours (distinct under every colour blindness), darkened or lightened to 3:1 against the ground.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b0568f", "#56b4e9", "#8a6d00", "#000000")
_DARK = ("#4db3f0", "#ff9248", "#2fcf9f", "#e79ac8", "#9ad4f5", "#e0c04a", "#ffffff")


class NothingToDraw(Exception):
    """A figure without a single point; the message gives the reason."""


def config(dark: bool = False) -> dict[str, Any]:
    """Vega-Lite's configuration: fonts, colours and grid of the light or the dark page.

    Its colours are ink (main text), soft (labels and axes), grid lines, and the ranges that encode values.
    """
    ink, soft, grid = ("#e8eaed", "#a9b0bb", "#2e343d") if dark else ("#1c2128", "#57606a", "#e6e8eb")
    text = {"labelColor": soft, "titleColor": soft, "labelFont": FONT, "titleFont": FONT}
    lines = {"gridColor": grid, "domainColor": soft, "tickColor": soft}
    size = {"labelFontSize": PAGE_FONT_SIZE, "titleFontSize": PAGE_FONT_SIZE, "titleFontWeight": "normal"}
    title = {"anchor": "start", "font": FONT, "fontSize": 16, "fontWeight": 600, "offset": 14}
    subtitle = {"subtitleFont": FONT, "subtitleFontSize": 12, "subtitlePadding": 6}
    return {
        "background": "transparent" if dark else "#ffffff",
        "font": FONT,
        "padding": 8,
        "view": {"stroke": None},
        "axis": {**text, **size, "labelLimit": 240, "titlePadding": 8, **lines},
        "axisX": {"grid": False, "labelAngle": 0},
        "legend": {**text, **size, "labelLimit": 320, "symbolSize": 90, "symbolOpacity": 1, "orient": "top"},
        "header": {**text, "labelFontSize": 13, "labelColor": ink, "labelFontWeight": 600, "titleFontSize": 12},
        "title": {**title, **subtitle, "color": ink, "subtitleColor": soft},
        "rule": {"color": soft},
        "text": {"color": ink, "font": FONT},
        "range": {
            "category": list(_DARK if dark else _LIGHT),
            "ordinal": {"scheme": "viridis", "extent": [0.3, 1.0] if dark else [0.0, 0.85]},
            "heatmap": {"scheme": "viridis"},
        },
    }


def data(frame: pd.DataFrame) -> alt.InlineData:
    """The lines of a frame as the data of a figure: one JSON object a line."""
    names = [str(name) for name in frame]
    columns = [cells(frame[name]) for name in frame]
    return _SharedLines(values=[dict(zip(names, line, strict=True)) for line in zip(*columns, strict=True)])


class _SharedLines(alt.InlineData):
    """Data that all copies of a figure share: Altair copies a chart deeply at every step, and none changes its data."""

    def __deepcopy__(self, _: Any) -> _SharedLines:
        return self


def cells(column: pd.Series) -> list[Any]:
    """A column as JSON: missing stays null, a list of classes becomes a short text.

    >>> cells(pd.Series([(0, 7), None])), cells(pd.Series([0.5, float("nan")]))
    (['0, 7', None], [0.5, None])
    >>> cells(pd.Series([range(20)]))
    ['0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more']
    """
    return [_text(value) for value in column.astype(object).where(column.notna(), None).tolist()]


def _text(value: Any) -> Any:
    """A sequence as a short text; any other value unchanged."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value

    first_elements = ", ".join(str(element) for element in value[:12])
    if len(value) <= 12:
        return first_elements
    return f"{first_elements} and {len(value) - 12} more"


def panels(frame: pd.DataFrame, *fields: str) -> pd.Series:
    """The heading of each line's panel: the values of those fields that differ within the figure, else of the last.

    Raises NothingToDraw for an empty frame.
    """
    if frame.empty:
        raise NothingToDraw("no run has what this figure needs, or no value among them is defined")

    heading_fields = [name for name in fields if differs(frame[name])]
    if not heading_fields:
        heading_fields = list(fields[-1:])
    return frame[heading_fields].astype(str).agg(" · ".join, axis="columns")


def title(question: str, *lines: str) -> alt.Title:
    """The question that a figure answers, and below it lines that explain its marks, none too long for a file."""
    return alt.Title(question, subtitle=[part for line in lines for part in textwrap.wrap(line, MAX_SUBTITLE_LENGTH)])


def faceted(
    chart: alt.TopLevelMixin,
    frame: pd.DataFrame,
    title: alt.Title,
    filters: Iterable[str],
    height: int = 240,
    columns: int | None = None,
    row: int | None = None,
) -> alt.FacetChart:
    """A figure of one panel for each value of the frame's column `panel`, in order of appearance.

    chart:   the marks of one panel, without data.
    filters: fields by which the page can filter. Each gets a parameter `only_<field>`, the list of values that are
             shown; empty shows all. A line without a value in the field (a best of all models has no model) stays.
    height:  of a panel, pixels; not used where `row` is given.
    columns: panels in a row; None: as many as fit the page.
    row:     pixels for each name on the vertical axis, for panels that each have other names; None: all panels share
             one vertical axis.
    """
    panel_names = list(dict.fromkeys(frame["panel"]))
    if not columns:
        max_columns = 3 if len(panel_names) in (5, 6, 9) else 4  # these numbers of panels fill rows of three better
        columns = min(len(panel_names), max_columns)
    width = {1: 560, 2: 400, 3: 290}.get(columns, 220)  # pixels of a panel: together about the width of the page

    header = alt.Header(title=None, labelExpr="split(datum.label, '\\n')")  # a heading may have several lines
    panel = alt.Facet("panel:N", sort=panel_names, header=header)
    sized: Any = chart.properties(width=width, height=height)
    figure: alt.FacetChart = sized.facet(facet=panel, columns=columns, data=data(frame), title=title)

    fields = list(filters)
    for field in fields:
        figure = figure.transform_filter(only(field))
    figure = figure.add_params(*(alt.param(name=f"only_{field}", value=[]) for field in fields))

    if row is not None:
        figure = figure.resolve_scale(y="independent")
        figure.spec.height = alt.Step(row)
        # the tops of panels in one row of the grid are aligned; their heights differ with their numbers of names
        figure.align = "each"
    return figure


def only(field: str) -> str:
    """The Vega expression that keeps what the parameter `only_<field>` lists; an empty list keeps all."""
    return f"!length(only_{field}) || datum.{field} == null || indexof(only_{field}, datum.{field}) >= 0"


def differs(values: pd.Series) -> bool:
    """Whether there is more than one value."""
    return len(values.unique()) > 1


def ncl_axis(gap: float | None = 0.4) -> alt.X:
    """The number of classes as steps: 2, 3, 5, 10, 100 would crowd on a linear scale.

    gap: share of a step left empty between bars; None for single dots, which have no width.
    """
    scale = alt.Undefined if gap is None else alt.Scale(paddingInner=gap)
    return alt.X("ncl:O", title="ncl, number of classes", sort="ascending", scale=scale)


def names_axis(column: str, order: Any) -> alt.Y:
    """Names down the side of a heat map, in this order."""
    bare = alt.Axis(domain=False, ticks=False)
    return alt.Y(f"{column}:N", title=None, sort=order, scale=alt.Scale(paddingInner=0.08), axis=bare)


def spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The figure as Vega-Lite, without any look (the page and the files add theirs) and without any address."""
    return {name: part for name, part in chart.to_dict().items() if name not in ("config", "$schema")}


def as_svg(figure: dict[str, Any]) -> str:
    """The figure as SVG, on white."""
    return vl_convert.vegalite_to_svg({**figure, "config": config()}, vl_version=VEGA_LITE)


def save(figure: dict[str, Any], stem: Path) -> None:
    """Write the figure, on a white ground, as files that begin with the path `stem`. It needs no browser.

    The files are `stem`.svg, .png and .pdf, the data as `stem`.csv, and `stem`-column.svg and `stem`-column.pdf, which
    fit the column of a paper.
    """
    svg = as_svg(figure)
    page_width = float(_size_attributes(svg)["width"])
    column_svg = _for_column(figure, page_width)

    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".svg").write_text(svg)
    stem.with_suffix(".png").write_bytes(vl_convert.svg_to_png(svg, scale=2))
    stem.with_suffix(".pdf").write_bytes(vl_convert.svg_to_pdf(svg))
    stem.with_name(f"{stem.name}-column.svg").write_text(_column_wide(column_svg, "pt"))
    # without a unit: the PDF has a point for each pixel
    stem.with_name(f"{stem.name}-column.pdf").write_bytes(vl_convert.svg_to_pdf(_column_wide(column_svg)))

    # the data of all panels, which the figure holds under a name
    name_of_data = figure.get("data", {}).get("name")
    lines = figure.get("datasets", {}).get(name_of_data, [])
    stem.with_suffix(".csv").write_text(csv_text(pd.DataFrame(lines)), encoding="utf-8")


def _size_attributes(svg: str) -> re.Match[str]:
    """The first width and height in an SVG, the size of the whole picture; groups `width` and `height` have them."""
    match = re.search(r'width="(?P<width>[0-9.]+)" height="(?P<height>[0-9.]+)"', svg)
    assert match is not None  # Vega writes both
    return match


def _column_wide(svg: str, unit: str = "") -> str:
    """An SVG scaled to the width of a paper's column.

    unit: the unit of its width and height; empty: pixels.
    """
    size = _size_attributes(svg)
    width, height = float(size["width"]), float(size["height"])
    scaled_height = height * COLUMN_WIDTH / width
    return svg.replace(size[0], f'width="{COLUMN_WIDTH:.1f}{unit}" height="{scaled_height:.1f}{unit}"', 1)


def _for_column(figure: dict[str, Any], page_width: float) -> str:
    """The figure as SVG for the column of a paper: text of 8 points, no title, and panels below each other.

    Only panels whose width may change are put below each other; others keep their width and their places.

    page_width: the width of the figure on the page, pixels.
    """
    untitled = {name: value for name, value in figure.items() if name != "title"}
    panel = figure.get("spec", {})
    has_fixed_width = "usermeta" in figure  # which marks figures of pictures or squares: their panels keep their width
    if "width" in panel and not has_fixed_width:
        # On the page, each panel has an axis with names and numbers beside it. In print this axis is narrower by the
        # ratio of the two font sizes, and the panel gets the rest of the paper's column.
        axis_on_page = (page_width - figure["columns"] * panel["width"]) / figure["columns"]
        axis_in_print = axis_on_page * PRINT_FONT_SIZE / PAGE_FONT_SIZE
        untitled["columns"] = 1
        # at least half of the column, however wide the names on the axes are
        untitled["spec"] = {**panel, "width": max(COLUMN_WIDTH / 2, COLUMN_WIDTH - axis_in_print)}

    print_config = {**_with_print_fonts(config()), "padding": 1}
    print_config["legend"] |= {"columns": 1, "symbolSize": 40}
    print_config["axis"] |= {"labelLimit": COLUMN_WIDTH / 3}
    return vl_convert.vegalite_to_svg({**untitled, "config": print_config}, vl_version=VEGA_LITE)


def _with_print_fonts(config: Any) -> Any:
    """A configuration of Vega-Lite, or a value in it, with every font at the size of a paper's figures."""
    if not isinstance(config, dict):
        return config
    print_config = {}
    for name, value in config.items():
        is_font_size = name.lower().endswith("fontsize")
        print_config[name] = PRINT_FONT_SIZE if is_font_size else _with_print_fonts(value)
    return print_config
