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

COLUMN, POINTS = 3.3 * 72, 8  # of a paper: points in the width of a column, and in the height of a letter
LONGEST = 120  # characters in a line below the title of a figure
VEGA_LITE = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]  # 6.4: what altair writes and the page runs
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
# Okabe and Ito's colours (distinct under every colour blindness), darkened or lightened to 3:1 against the ground.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b0568f", "#56b4e9", "#8a6d00", "#000000")
_DARK = ("#4db3f0", "#ff9248", "#2fcf9f", "#e79ac8", "#9ad4f5", "#e0c04a", "#ffffff")


class NothingToDraw(Exception):
    """A figure without a single point; the message gives the reason."""


def config(dark: bool = False) -> dict[str, Any]:
    """Vega-Lite's configuration: fonts, colours and grid of the light or the dark page."""
    ink, soft, grid = ("#e8eaed", "#a9b0bb", "#2e343d") if dark else ("#1c2128", "#57606a", "#e6e8eb")
    text = {"labelColor": soft, "titleColor": soft, "labelFont": FONT, "titleFont": FONT}
    lines = {"gridColor": grid, "domainColor": soft, "tickColor": soft}
    size = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
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
    """The lines of a frame as JSON of a figure."""
    names = [str(name) for name in frame]
    lines = zip(*(cells(frame[name]) for name in frame), strict=True)
    return _Lines(values=[dict(zip(names, line, strict=True)) for line in lines])


class _Lines(alt.InlineData):
    """Altair copies a chart deeply at every step; nothing changes these lines, so all copies share them."""

    def __deepcopy__(self, _: Any) -> _Lines:
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
    """The heading of each line's panel: the values of those fields that differ within the figure."""
    if frame.empty:
        raise NothingToDraw("no run has what this figure needs, or no value among them is defined")

    heading_fields = [name for name in fields if differs(frame[name])]
    if not heading_fields:
        heading_fields = list(fields[-1:])
    return frame[heading_fields].astype(str).agg(" · ".join, axis="columns")


def title(question: str, *lines: str) -> alt.Title:
    """The question that a figure answers, and below it lines that explain its marks, none too long for a file."""
    return alt.Title(question, subtitle=[part for line in lines for part in textwrap.wrap(line, LONGEST)])


def faceted(
    chart: alt.TopLevelMixin,
    frame: pd.DataFrame,
    title: alt.Title,
    filters: Iterable[str],
    height: int = 240,
    columns: int | None = None,
    row: int | None = None,
) -> alt.FacetChart:
    """One panel for each value of `panel`, in order of appearance, with one filter for each field.

    filters: the parameter `only_<field>` lists what is shown; empty shows all. A line without a value in the field (a
    best of all models has no model) stays.    columns: panels in a row, else what the page is wide.
    row: pixels for each name on the vertical axis, where panels have names of their own; then `height` does not count.
    """
    panel_names = list(dict.fromkeys(frame["panel"]))
    if not columns:
        most_columns = 3 if len(panel_names) in (5, 6, 9) else 4
        columns = min(len(panel_names), most_columns)
    width = {1: 560, 2: 400, 3: 290}.get(columns, 220)

    header = alt.Header(title=None, labelExpr="split(datum.label, '\\n')")
    panel = alt.Facet("panel:N", sort=panel_names, header=header)
    sized: Any = chart.properties(width=width, height=height)
    figure: alt.FacetChart = sized.facet(facet=panel, columns=columns, data=alt.NamedData("table"), title=title)

    fields = list(filters)
    for field in fields:
        figure = figure.transform_filter(only(field))
    figure = figure.add_params(*(alt.param(name=f"only_{field}", value=[]) for field in fields))

    if row is not None:
        figure = figure.resolve_scale(y="independent")
        figure.spec.height = alt.Step(row)
        figure.align = "each"
    figure.data = data(frame)
    return figure


def only(field: str) -> str:
    """The condition that leaves what the parameter `only_<field>` lists; an empty list leaves all."""
    return f"!length(only_{field}) || datum.{field} == null || indexof(only_{field}, datum.{field}) >= 0"


def differs(values: pd.Series) -> bool:
    """Whether there is more than one value."""
    return len(values.unique()) > 1


def ncl_axis(gap: float | None = 0.4) -> alt.X:
    """The number of classes as steps: 2, 3, 5, 10, 100 would crowd on a scale. gap: share of a step left empty.

    None: for single dots, which have no width.
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
    """Write the figure on white, without a browser: `stem`.svg, .png, .pdf, its data as .csv, and for a paper's column
    `stem`-column.svg and .pdf.
    """
    svg = as_svg(figure)
    column = _for_column(figure, float(_size(svg)[1]))
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".svg").write_text(svg)
    stem.with_suffix(".png").write_bytes(vl_convert.svg_to_png(svg, scale=2))
    stem.with_suffix(".pdf").write_bytes(vl_convert.svg_to_pdf(svg))
    stem.with_name(f"{stem.name}-column.svg").write_text(_resized(column, "pt"))
    stem.with_name(f"{stem.name}-column.pdf").write_bytes(vl_convert.svg_to_pdf(_resized(column)))
    lines = figure.get("datasets", {}).get(figure.get("data", {}).get("name"), [])
    stem.with_suffix(".csv").write_text(csv_text(pd.DataFrame(lines)), encoding="utf-8")


def _size(svg: str) -> re.Match[str]:
    """Its first width and height, which are those of the whole."""
    found = re.search(r'width="([0-9.]+)" height="([0-9.]+)"', svg)
    assert found is not None  # Vega writes both
    return found


def _resized(svg: str, unit: str = "") -> str:
    """As wide as the column of a paper."""
    size = _size(svg)
    height = float(size[2]) * COLUMN / float(size[1])
    return svg.replace(size[0], f'width="{COLUMN:.1f}{unit}" height="{height:.1f}{unit}"', 1)


def _for_column(figure: dict[str, Any], page_width: float) -> str:
    """The figure as SVG for the column of a paper: panels below each other, text of 8 points, no title.

    page_width: the width of the figure on the page.
    """
    untitled = {name: value for name, value in figure.items() if name != "title"}
    panel = figure.get("spec", {})
    if "width" in panel and "usermeta" not in figure:
        # width of the axis beside a panel, at the column's font size
        axis_width = (page_width - figure["columns"] * panel["width"]) / figure["columns"] * POINTS / 12
        untitled["columns"] = 1
        untitled["spec"] = {**panel, "width": max(COLUMN / 2, COLUMN - axis_width)}

    print_config = {**_printed(config()), "padding": 1}
    print_config["legend"] |= {"columns": 1, "symbolSize": 40}
    print_config["axis"] |= {"labelLimit": COLUMN / 3}
    return vl_convert.vegalite_to_svg({**untitled, "config": print_config}, vl_version=VEGA_LITE)


def _printed(look: Any) -> Any:
    """The configuration with every font at the size of a paper's figures."""
    if not isinstance(look, dict):
        return look
    return {name: POINTS if name.lower().endswith("fontsize") else _printed(part) for name, part in look.items()}
