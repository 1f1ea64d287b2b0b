"""How tables of analyses look in W&B: as its tables, its own charts, and scalars that one compares between reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from fca.report.pictures import is_pictures, picture
from fca.store.columns import NCL
from fca.types import Table

if TYPE_CHECKING:
    import wandb

MAX_SHORT_LINES = 50  # lines of a table whose values are scalars that one compares


def as_table(frame: pd.DataFrame) -> wandb.Table:
    """The frame as a W&B table, in which missing values are None, and data URIs of pictures become pictures."""
    import wandb

    plain = frame.astype(object).where(frame.notna(), None)
    picture_columns = [str(name) for name in frame if is_pictures(frame[name])]
    for name in picture_columns:
        images = [None if uri is None else wandb.Image(picture(uri)) for uri in plain[name]]
        plain[name] = pd.Series(images, index=plain.index, dtype="object")

    lines = plain.to_numpy(dtype=object)  # faster than giving W&B the frame, in which it looks up every cell by itself
    table = wandb.Table(columns=[str(name) for name in plain], data=lines, allow_mixed_types=True)
    for name in picture_columns:  # without the cast W&B shows the word Image instead of the picture
        table.cast(name, wandb.Image, optional=True)
    return table


def report_id(metadata: Mapping[str, Any]) -> str:
    """The id of a report's run in W&B: the same report on the same query goes on in it.

    >>> report_id({"report": "few_class", "query": None, "command": "fca report"})
    '49defc8b51d0'
    """
    text = json.dumps(["report", metadata.get("report"), metadata.get("query")])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def scalars(table: Table) -> dict[str, float]:
    """The numbers of a short table, by the name `analysis/TABLE/ROW/COLUMN`.

    Empty for a table of more than MAX_SHORT_LINES lines, which nobody compares number by number. ROW joins the values
    of the first columns that together distinguish the lines (`key_columns`), so the name of a number stays the same
    when other columns change.
    """
    if len(table.frame) > MAX_SHORT_LINES:
        return {}

    keys = key_columns(table)
    numeric_columns = [
        column
        for column in table.columns
        if column.value_type in (int, float) and column not in keys and column in table.frame
    ]
    value_by_name: dict[str, float] = {}
    for line in table.frame.to_dict("records"):
        row = "/".join(_word(line[key]) for key in keys) or "all"
        for column in numeric_columns:
            value = line[column]
            if not pd.isna(value):
                value_by_name[f"analysis/{table.name}/{row}/{column}"] = float(value)
    return value_by_name


def key_columns(table: Table) -> list[str]:
    """The first columns without measured values that distinguish all lines, or all of them where none do."""
    names: list[str] = []
    for column in table.columns:
        if column.value_type is not float and column in table.frame:
            names.append(str(column))
            if not table.frame[names].astype(str).duplicated().any():
                break
    return names


def _word(value: Any) -> str:
    """A value as a part of a key: W&B reads a point as a level below."""
    return "-" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value).replace(".", ",").replace("/", "|")


def chart_of(table: Table) -> Any:
    """W&B's own chart of the first measured column of a table, which is its first column of type float.

    It has lines over the number of classes (ncl) if there are several such numbers, and otherwise bars. None for a
    table without measured values, and for a table in which more than MAX_SHORT_LINES lines have one.
    """
    import wandb

    measured = [str(column) for column in table.columns if column.value_type is float and column in table.frame]
    if not measured:
        return None
    value_column = measured[0]
    frame = table.frame.dropna(subset=[value_column])
    if frame.empty or len(frame) > MAX_SHORT_LINES:
        return None

    keys = key_columns(table)
    label_columns = [key for key in keys if key != NCL]
    label_values = frame[label_columns].itertuples(index=False)
    labels = [" ".join(map(_word, values)) or table.name for values in label_values]
    plain = pd.DataFrame({"which": pd.Series(labels, frame.index), value_column: frame[value_column].astype(float)})

    has_several_ncl = NCL in keys and not frame[NCL].eq(frame[NCL].iloc[0]).all()
    if has_several_ncl:
        plain[str(NCL)] = frame[NCL].astype(float)
        return wandb.plot.line(as_table(plain), str(NCL), value_column, stroke="which", title=table.question)
    return wandb.plot.bar(as_table(plain), "which", value_column, title=table.question)
