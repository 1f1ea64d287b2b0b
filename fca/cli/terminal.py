"""Text for the terminal: tables, runs on a line, numbers with their intervals, curves, bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from string import Formatter
from typing import Any

import pandas as pd

from fca.cli import printable
from fca.report.pictures import is_pictures
from fca.store.columns import HEADLINES, Row

USUAL_VALUES = {"snapshot": "best", "shift": "clean"}  # column -> the value that the line of a run does not mention
CURVE_WIDTH = 40  # characters
BARS = "▁▂▃▄▅▆▇█"


def as_text(frame: pd.DataFrame, title: str, max_lines: int | None = None) -> str:
    """A data frame as a table of plain text under its title.

    Columns without any value and columns of pictures are left out.
    max_lines: the number of lines to show; a last line then has the number of the lines left out. None: all lines.
    """
    if frame.empty:
        return f"{title}\n(no line)"

    head = frame[shown_columns(frame)].head(max_lines or len(frame))
    padded_columns = []
    for name in head:  # over thousands of lines, this takes a fifth of the time of pandas' to_string
        values = head[name].astype(object).where(head[name].notna(), "")  # a missing value is an empty cell
        cells = [str(name), *map(_cell, values)]
        width = max(map(len, cells))
        padded_columns.append([cell.rjust(width) for cell in cells])

    lines = [title]
    lines += [" ".join(cells) for cells in zip(*padded_columns, strict=True)]
    if len(head) < len(frame):
        lines.append(f"... and {len(frame) - len(head)} lines more")
    return "\n".join(lines)


def as_markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table, in the columns of `shown_columns`; columns of numbers are aligned to the right.

    >>> print(as_markdown(pd.DataFrame({"model": ["a|b"], "top1": [0.98765]})))
    | model | top1 |
    | --- | ---: |
    | a\\|b | 0.9877 |
    """
    table = frame[shown_columns(frame)]
    alignments = ["---:" if pd.api.types.is_numeric_dtype(table[name]) else "---" for name in table]
    cells = table.astype(object).where(table.notna(), "").map(lambda value: _cell(value).replace("|", "\\|"))
    lines = [list(table), alignments, *cells.to_numpy()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def shown_columns(frame: pd.DataFrame) -> list[str]:
    """The columns of a frame that have any value, without columns of pictures."""
    return [str(name) for name in frame if frame[name].notna().any() and not is_pictures(frame[name])]


def line_of(row: Row, summary: Sequence[str] = ()) -> str:
    """A finished run on one line: task, data, model, accuracies with their intervals, and its flag (diverged, chance).

    summary: further columns to show, or templates such as "{n_seen} images"; the task of the run declares them.
    """
    words = [str(row[key]) for key in ("task", "dataset", "model", "encoder") if key in row]
    if "ncl" in row:
        words.append(f"ncl={row['ncl']}")
    # the snapshot of the weights and the shift of the images, unless they are the usual ones
    words += [str(row[key]) for key, usual_value in USUAL_VALUES.items() if row.get(key, usual_value) != usual_value]

    for template in dict.fromkeys((*HEADLINES, *summary)):  # HEADLINES: the columns of accuracies; each is shown once
        entry = _entry(template, row)
        if entry:
            words.append(entry)

    flag = f"  {row['flag']}!" if "flag" in row else ""
    return " ".join(words) + flag


def _entry(entry: str, row: Row) -> str | None:
    """One part of the line of a run: a template filled with values of a row, or a column of the row with its value.

    A column with an interval becomes "name value [low, high]", and a column without one name=value. All but name=value
    begin with a further space, which sets them apart. None if the row lacks a value.
    entry: a template with columns in braces, or the name of a column.

    >>> _entry("{n_seen} of {n_all} images", {"n_seen": 3, "n_all": 9})
    ' 3 of 9 images'
    >>> _entry("top1", {"top1": 0.5, "top1_low": 0.4, "top1_high": 0.6}), _entry("rounds", {"rounds": 3})
    (' top1 0.5000 [0.4000, 0.6000]', 'rounds=3')
    """
    names = [name for _, name, _, _ in Formatter().parse(entry) if name]  # in braces; none in a plain column
    if not set(names or [entry]) <= set(row):
        return None
    if names:
        return f" {entry.format_map(row)}"
    if f"{entry}_low" in row:
        return f" {entry} {row[entry]:.4f} [{row[f'{entry}_low']:.4f}, {row[f'{entry}_high']:.4f}]"
    return f"{entry}={row[entry]}"


def number_with_interval(name: str, row: Row) -> str:
    """A value of a row as text, with its interval if the row has one; empty if the row lacks it."""
    if name not in row:
        return ""
    low = row.get(f"{name}_low")
    high = row.get(f"{name}_high")
    if low is None or high is None:
        return _cell(row[name])
    return f"{_cell(row[name])} [{_cell(low)}, {_cell(high)}]"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def sparkline(values: Sequence[float]) -> str:
    """A curve as a text of bars: the lowest bar stands for its lowest value, the highest bar for its highest value.

    A curve with more than CURVE_WIDTH values is cut into CURVE_WIDTH parts of equal length, whose means are shown.

    >>> sparkline([1.0, 2.0, 4.0, 8.0]), sparkline([3.0, 3.0])
    ('▁▂▄█', '▁▁')
    """
    size = len(values)
    heights = list(values)
    if size > CURVE_WIDTH:
        heights = []
        for column in range(CURVE_WIDTH):
            start = size * column // CURVE_WIDTH
            end = size * (column + 1) // CURVE_WIDTH
            heights.append(sum(values[start:end]) / (end - start))

    lowest = min(heights)
    span = (max(heights) - lowest) or 1.0  # a constant curve has span 0, and gets the lowest bars
    highest_bar = len(BARS) - 1
    return "".join(BARS[round((height - lowest) / span * highest_bar)] for height in heights)


def typed_value(value: Any) -> str:
    """A value of the configuration as it is typed on the command line, where lists and mappings need no quotes."""
    if isinstance(value, str):
        return value
    return json.dumps(value, default=list).replace('"', "")


def as_bytes(size: int) -> str:
    """A number of bytes in powers of 1,000, as disks are sold.

    >>> as_bytes(0), as_bytes(4_096), as_bytes(6_400_000)
    ('0 B', '4.1 kB', '6.4 MB')
    """
    power = min(4, max(0, len(str(size)) - 1) // 3)  # of 1,000, from the number of digits; the largest unit is TB
    if power == 0:
        return f"{size} B"
    unit = ("B", "kB", "MB", "GB", "TB")[power]
    return f"{size / 1000**power:.1f} {unit}"
