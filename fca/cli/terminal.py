"""How the terminal shows what a store has: tables, runs on a line, numbers with their intervals, curves, bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from string import Formatter
from typing import Any

import pandas as pd

from fca.cli import printable
from fca.report.pictures import is_pictures
from fca.store.columns import HEADLINES, Row

USUAL = {"snapshot": "best", "shift": "clean"}  # not worth a word
WIDTH = 40  # of a curve, characters
BARS = "▁▂▃▄▅▆▇█"


def as_text(frame: pd.DataFrame, title: str, most: int | None = None) -> str:
    """A frame as plain text under its title: its first `most` lines, in the columns of `shown_columns`."""
    if frame.empty:
        return f"{title}\n(no line)"
    shown = frame[shown_columns(frame)].head(most or len(frame))
    columns = []
    for name in shown:  # a fifth of the time of to_string over thousands of lines
        present = shown[name].notna()
        cells = [str(name), *map(_cell, shown[name].astype(object).where(present, ""))]
        width = max(map(len, cells))
        columns.append([cell.rjust(width) for cell in cells])
    lines = map(" ".join, zip(*columns, strict=True))
    more = [f"... and {len(frame) - len(shown)} lines more"] if len(shown) < len(frame) else []
    return "\n".join([title, *lines, *more])


def as_markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table, in the columns that have any value.

    >>> print(as_markdown(pd.DataFrame({"model": ["a|b"], "top1": [0.98765]})))
    | model | top1 |
    | --- | ---: |
    | a\\|b | 0.9877 |
    """
    shown = frame[shown_columns(frame)]
    marks = {name: "---:" if pd.api.types.is_numeric_dtype(shown[name]) else "---" for name in shown}
    cells = shown.astype(object).where(shown.notna(), "").map(lambda value: _cell(value).replace("|", "\\|"))
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (shown, marks.values(), *cells.to_numpy()))


def shown_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that have any value, but for pictures."""
    return [str(name) for name in frame if frame[name].notna().any() and not is_pictures(frame[name])]


def line_of(row: Row, summary: Sequence[str] = ()) -> str:
    """A finished run on one line: what it is, and its headline with the interval."""
    words = [str(row[key]) for key in ("task", "dataset", "model", "encoder") if key in row]
    words += [f"ncl={row['ncl']}"] if "ncl" in row else []
    words += [str(row[key]) for key, usual in USUAL.items() if row.get(key, usual) != usual]
    words += filter(None, (_entry(entry, row) for entry in dict.fromkeys((*HEADLINES, *summary))))
    return " ".join(words) + (f"  {row['flag']}!" if "flag" in row else "")


def _entry(entry: str, row: Row) -> str | None:
    """A template filled in; a column with its interval, or as name=value; None where the row has no such value.

    >>> _entry("{n_seen} of {n_all} images", {"n_seen": 3, "n_all": 9})
    ' 3 of 9 images'
    >>> _entry("top1", {"top1": 0.5, "top1_low": 0.4, "top1_high": 0.6}), _entry("rounds", {"rounds": 3})
    (' top1 0.5000 [0.4000, 0.6000]', 'rounds=3')
    """
    names = [name for _, name, _, _ in Formatter().parse(entry) if name]
    if not set(names or [entry]) <= set(row):
        return None
    if names:
        return f" {entry.format_map(row)}"
    if f"{entry}_low" in row:
        return f" {entry} {row[entry]:.4f} [{row[f'{entry}_low']:.4f}, {row[f'{entry}_high']:.4f}]"
    return f"{entry}={row[entry]}"


def number_with_interval(name: str, row: Row) -> str:
    """A number of a row, with its interval where it has one."""
    if name not in row:
        return ""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return _cell(row[name]) + (f" [{_cell(low)}, {_cell(high)}]" if low is not None and high is not None else "")


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def sparkline(values: Sequence[float]) -> str:
    """A curve as bars from its lowest to its highest value; a long one by the means of equal parts.

    >>> sparkline([1.0, 2.0, 4.0, 8.0]), sparkline([3.0, 3.0])
    ('▁▂▄█', '▁▁')
    """
    size = len(values)
    parts = [values[size * at // WIDTH : size * (at + 1) // WIDTH] for at in range(WIDTH)] if size > WIDTH else []
    means = [sum(part) / len(part) for part in parts] or list(values)
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in means)


def typed_value(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, str):
        return value
    return json.dumps(value, default=list).replace('"', "")


def as_bytes(size: int) -> str:
    """A number of bytes in powers of 1,000, as disks are sold.

    >>> as_bytes(0), as_bytes(4_096), as_bytes(6_400_000)
    ('0 B', '4.1 kB', '6.4 MB')
    """
    power = min(4, max(0, len(str(size)) - 1) // 3)
    return f"{size / 1000**power:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}" if power else f"{size} B"
