"""`fca results`: stored runs as a table."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from fca import store
from fca.cli import FILTER, Words, as_options, printable, sub_command
from fca.cli.show import check_store
from fca.cli.terminal import as_markdown, as_text
from fca.csv_table import csv_text
from fca.store.columns import (
    ADAPTATION,
    COMPAT,
    DATASET,
    ENCODER,
    HEADLINES,
    LIMIT,
    MAIN,
    MODEL,
    NCL,
    RECIPE,
    SAMPLER,
    SEED,
    SHIFT,
    SNAPSHOT,
    SPLIT,
    SUBSET_SEED,
    TASK,
    present_name,
)
from fca.store.files import write_whole
from fca.store.filters import Filters, combined_query, named_columns, unmatched_filter_lines, words_of
from fca.store.query import rows_matching
from fca.types import FcaError, check_choice

FORMATS = ("table", "csv", "json", "markdown", "parquet")
# Suffix of --out -> format
SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".md": "markdown", ".parquet": "parquet", ".txt": "table"}
MAX_NAMED = 5  # columns that a note lists
# The columns, beside those of the recipe, that state what was requested. Seeds are not among them, because means are
# taken over seeds.
REQUESTED_COLUMNS = (TASK, DATASET, LIMIT, SPLIT, MODEL, SNAPSHOT, ENCODER, SHIFT, ADAPTATION, NCL, SAMPLER, COMPAT)
EXAMPLES = """examples:
  fca results dataset=digits ncl=2,5 'top1>0.9'          filters: a column, a comparison, values
  fca results query='ncl <= 5 or model == "test_vit"'    a condition
  fca results --by model,ncl --sort -top1                the mean of each group, with its interval
  fca results --columns run_id,top1,'recipe_*' --out runs.parquet
"""


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print the table of runs, or write it to a file.

    arguments: the words behind the name of the command.
    Returns exit code 0. The decorator turns an FcaError, such as for an unknown column, into exit code 2.
    """
    parser = Words(prog="fca results", description=__doc__, epilog=EXAMPLES)
    parser.add_argument("filters", nargs="*", metavar=FILTER, help="only these runs; also != < <= > >=")
    parser.offer(lambda _: [f"{column}=" for column in MAIN])  # completion in the shell
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--query", help="a condition, e.g. \"task == 'train' and ncl <= 5\"; also query=...")
    parser.add_argument("--by", default="", metavar="COLUMNS", help="one line a group: mean, 95 %% interval and number")
    parser.add_argument("--columns", help="comma-separated, also recipe_*; with --by those to average (accuracies)")
    parser.add_argument("--sort", default="", metavar="COLUMNS", help="comma-separated; -top1: the highest first")
    parser.add_argument("--format", choices=FORMATS, help="default: that of the file's name, or a table")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write it to this file; csv, json and parquet: all columns"
    )
    words = _with_signs(arguments)  # --sort -top1 as one word, since argparse would take -top1 for an option
    words = as_options(words, ("query", "outputs"))  # query=... becomes --query=..., and outputs=... as well
    options = parser.parse_intermixed_args(words)
    check_store(options.outputs)

    # the format: as given, else by the suffix of the file, else a table to read
    kind = options.format
    if not kind:
        kind = SUFFIXES.get(options.out.suffix, "csv") if options.out else "table"
    if kind == "parquet" and options.out is None:
        raise FcaError("--format", kind, "csv, json, markdown or table without --out", "add --out runs.parquet")

    frame = _selected(options, kind)  # a line for each run, or with --by for each group of runs
    lines = "groups of runs" if options.by else "runs"
    text = _formatted(frame, kind, f"{len(frame)} {lines} in {options.outputs}")
    if options.out is None:
        sys.stdout.write(text.decode())
        return 0
    try:
        write_whole(options.out, lambda file: file.write(text))
    except OSError as error:
        allowed = f"a file that can be written ({error.strerror})"
        raise FcaError("--out", options.out, allowed, "name another") from error
    print(f"{len(frame)} lines in {options.out}")
    return 0


def results(
    outputs: str | Path = "outputs",
    query: str | None = None,
    columns: Sequence[str] = (),
    *,
    filters: Filters | None = None,
) -> pd.DataFrame:
    """A table with one line for each finished run, with the columns of `fca.store.results`.

    outputs: the store, a folder that `fca run` filled.
    query:   which runs, e.g. "ncl <= 5 or model == 'test_vit'", see `fca.store.query`; None: all runs.
    columns: the columns to return; empty: all.
    filters: which runs, as the words that `fca results` takes, ["dataset=digits", "ncl<=5"], or as a dictionary,
             {"dataset": "digits", "ncl": [2, 5]}. A run must meet the query and all filters.
    A query, a filter or `columns` may name a column that fca declares but that no run has.
    Raises FcaError if there is no such folder, for a query or filter that cannot be read, and for an unknown column.

    >>> results("no/such/folder")
    Traceback (most recent call last):
    fca.types.FcaError: outputs = no/such/folder; allowed: a folder that fca run filled; next: ...
    """
    check_store(outputs, "outputs")
    words = words_of(filters)  # a dictionary as words too: "ncl=2,5"
    columns = [present_name(name) for name in columns]  # a column may be named as an earlier version of fca called it
    needed_columns = named_columns(query, words) | set(columns)
    frame = frame_with_columns(outputs, needed_columns)
    for name in columns:
        check_choice("--columns", name, frame, "name columns of the results")
    condition = combined_query(query, words, frame)
    if condition is not None:
        frame = rows_matching(frame, condition).reset_index(drop=True)
    return frame[list(columns)] if columns else frame


def frame_with_columns(outputs: str | Path, names: Iterable[str]) -> pd.DataFrame:
    """All finished runs, one line for each.

    names: columns that the caller needs. If no run has one of them, all columns that any task declares are added, so
    that a declared column is found, without values, and only an unknown one is refused.
    """
    frame = store.results(outputs)
    if set(names) <= set(frame):
        return frame
    return store.results(outputs, columns=map(str, store.Store(Path(outputs)).columns()))


def _selected(options: Any, kind: str) -> pd.DataFrame:
    """The table that the options of the command line ask for: a line for each run or, with --by, for each group.

    kind: the format. Without --columns, a table to read (table, markdown) has the columns of MAIN, and a file has all.
    Raises FcaError for an unknown column and a query that cannot be read. Prints notes to stderr on filters that no run
    meets, and on groups whose runs differ in their configuration.
    """
    group_columns = _typed_columns(options.by) if options.by else []
    sort = _typed_columns(options.sort) if options.sort else []
    column_names = _typed_columns(options.columns) if options.columns is not None else []

    # A declared column that no run has is added if the options name it. Patterns select only existing columns.
    needed = {*group_columns, *column_names, *(name.lstrip("-") for name in sort)}
    needed |= named_columns(options.query, options.filters)
    frame = frame_with_columns(options.outputs, (name for name in needed if not _is_pattern(name)))

    condition = combined_query(options.query, options.filters, frame)
    if condition is not None:
        for sentence in unmatched_filter_lines(options.filters, frame):
            print(f"note: {printable(sentence)}", file=sys.stderr)
        frame = rows_matching(frame, condition)

    columns = _expanded(column_names, frame)
    if group_columns:
        for name in group_columns:
            check_choice("--by", name, frame, "name columns of the results")
        frame = grouped(frame, group_columns, columns)  # the means of these columns; if there are none, of accuracies
        _warn_of_mixtures(frame.attrs["mixed"])
        return _sorted(frame, sort).reset_index(drop=True)

    frame = _sorted(frame, sort)
    if columns or kind in ("table", "markdown"):
        frame = frame[columns or list(MAIN)]
    return frame.reset_index(drop=True)


def _typed_columns(text: str) -> list[str]:
    """The columns of a typed list, separated by commas, under their present names.

    A - in front of a column, which stands for a descending sort, is kept.
    """
    columns = []
    for word in re.split(r"\s*,\s*", text):
        name = word.removeprefix("-")
        sign = word.removesuffix(name)  # - or nothing
        columns.append(f"{sign}{present_name(name)}")
    return columns


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _expanded(names: Sequence[str], frame: pd.DataFrame) -> list[str]:
    """The columns of a frame that names and patterns (recipe_*) select, in the order of `names`, without duplicates.

    Raises FcaError for an unknown column, and for a pattern without a match.
    """
    columns: list[str] = []
    for name in names:
        matches = []
        if _is_pattern(name):
            matches = [str(column) for column in frame if fnmatchcase(str(column), name)]
        if not matches:  # a plain name, or a pattern without a match; it is refused unless it is a column
            check_choice("--columns", name, frame, "name columns of the results")
        columns += matches or [name]
    return list(dict.fromkeys(columns))


def grouped(frame: pd.DataFrame, by: Sequence[str], values: Sequence[str] = ()) -> pd.DataFrame:
    """A table with one line for each group of runs that have equal values in the columns `by`.

    For each column in `values` (empty: the accuracies) a line has the mean, the ends of its 95 % interval (`_low`,
    `_high`), and the number of runs that have a value (`_n`). The interval is a jackknife interval of the mean, which
    leaves out one draw at a time. A draw is a randomly drawn class subset, or the seed of the initial weights if no
    subset was drawn; all runs of one draw are left out together.
    `attrs["mixed"]` of the result lists columns of the configuration that differ within a group: the mean of such a
    group mixes different settings.
    Raises FcaError for a column in `values` that has no numbers.

    >>> frame = pd.DataFrame({"model": "a", "ncl": 2, "subset_seed": [0, 1], "seed": 0, "top1": [0.7, 0.9]})
    >>> grouped(frame, ["model"], ["top1"]).round(2).to_dict("records")
    [{'model': 'a', 'top1': 0.8, 'top1_low': 0.0, 'top1_high': 1.0, 'top1_n': 2}]
    >>> grouped(frame.assign(subset_seed=[None, None], dataset="digits"), ["model"], ["top1"])["top1_n"].tolist()
    [2]
    """
    from fca.stats.intervals import EVERYWHERE, FRACTION, mean_with_interval  # imports SciPy, needed here alone

    values = values or [name for name in HEADLINES if name in frame and frame[name].notna().any()]
    for name in values:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            raise FcaError("--columns", name, "columns of numbers, with --by", "leave it out, or add it to --by")
    if values:  # only runs that measured any of them
        frame = frame[frame[list(values)].notna().any(axis="columns")]
    draws = _draws(frame)  # for each run a text that identifies its draw
    configuration_columns = _configuration_columns(frame, by)

    lines = []
    mixed_columns: set[str] = set()
    for key, group in frame.groupby(list(by), sort=True, dropna=False):
        line = dict(zip(by, key, strict=True))
        for name in map(str, values):
            numbers = group[name].astype("float64")
            limits = FRACTION if name in HEADLINES else EVERYWHERE  # an accuracy is between 0 and 1
            mean, low, high = mean_with_interval(numbers, draws[group.index], within=limits)
            line[name] = mean
            line[f"{name}_low"] = low
            line[f"{name}_high"] = high
            line[f"{name}_n"] = int(numbers.notna().sum())

            # note columns of the configuration that differ between the runs behind this mean
            measured_runs = group[numbers.notna()]
            for column in configuration_columns:
                values_as_text = measured_runs[column].astype(object).map(repr)  # NaN is not equal to NaN, its text is
                if len(set(values_as_text)) > 1:
                    mixed_columns.add(column)
        lines.append(line)

    result = pd.DataFrame(lines)
    result.attrs["mixed"] = sorted(mixed_columns)
    return result


def _draws(frame: pd.DataFrame) -> pd.Series:
    """For each run a text that identifies its random draw, such as "subset_seed digits/2/0"; equal texts: same draw.

    The draw is the class subset (data set, ncl and subset seed). Without a subset seed it is the seed of the initial
    weights. A run with neither seed has None.
    """
    draws = pd.Series(None, index=frame.index, dtype=object)
    if frame.empty:
        return draws

    for seed, further_columns in ((SEED, ()), (SUBSET_SEED, (DATASET, NCL))):  # the second overrules the first
        if seed not in frame:
            continue
        columns = [*(column for column in further_columns if column in frame), seed]
        draw_of_run = frame[columns].astype(object).map(str).agg("/".join, axis="columns")  # digits/2/0
        draws = draws.where(frame[seed].isna(), f"{seed} " + draw_of_run)
    return draws


def _configuration_columns(frame: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """The columns of a frame that state what was requested, those of the recipe included, except those in `by`."""
    recipe_columns = [str(name) for name in frame if str(name).startswith(RECIPE)]
    candidates = (*map(str, REQUESTED_COLUMNS), *recipe_columns)
    return [name for name in candidates if name in frame and name not in by]


def _warn_of_mixtures(mixed_columns: Sequence[str]) -> None:
    """Print a note to stderr if runs of one group differ in columns of the configuration; at most MAX_NAMED are named.

    mixed_columns: all such columns; if there are none, nothing is printed.
    """
    if not mixed_columns:
        return
    columns = ", ".join(mixed_columns[:MAX_NAMED])
    if len(mixed_columns) > MAX_NAMED:
        columns += f" and {len(mixed_columns) - MAX_NAMED} more"
    if len(mixed_columns) == 1:
        print(f"note: within a line also {columns} differs; filter, or add it to --by", file=sys.stderr)
    else:
        print(f"note: within a line also {columns} differ; filter, or add them to --by", file=sys.stderr)


def _sorted(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The lines sorted by these columns; -top1 means by top1 with the highest first. FcaError for an unknown column."""
    columns = [name.removeprefix("-") for name in names]
    for name in columns:
        check_choice("--sort", name, frame, "name columns of the table")
    if not columns:
        return frame
    is_ascending = [not name.startswith("-") for name in names]
    return frame.sort_values(columns, ascending=is_ascending, kind="stable")


def _with_signs(arguments: Sequence[str]) -> list[str]:
    """The words of the command line, with `--sort -top1` as the single word `--sort=-top1`.

    As two words, argparse would take -top1 for an option.
    """
    words = list(arguments)
    positions = [position for position, word in enumerate(words[:-1]) if word == "--sort"]
    for position in reversed(positions):  # from the end, so that earlier positions stay valid
        words[position : position + 2] = [f"--sort={words[position + 1]}"]
    return words


def _formatted(frame: pd.DataFrame, kind: str, title: str) -> bytes:
    """The table as the bytes of a file.

    kind: one of FORMATS.
    title: the line above a table to read; other formats have none.
    """
    if kind == "parquet":
        file = io.BytesIO()
        # a column of Parquet has one type: a column with several is written as texts
        frame.apply(_as_parquet_column).to_parquet(file, index=False)
        return file.getvalue()
    if kind == "csv":
        return csv_text(frame).encode()
    if kind == "json":
        return frame.to_json(orient="records", lines=True, double_precision=15).encode()  # one object a line
    text = as_markdown(frame) if kind == "markdown" else as_text(frame, title)
    return f"{text}\n".encode()


def _as_parquet_column(column: pd.Series) -> pd.Series:
    """The column as Parquet can hold it: as JSON if its values, or the entries of its tuples, have several types."""
    types_in_tuples = {type(entry) for value in column if isinstance(value, tuple) for entry in value}
    has_several_types = column.dtype == object and len({type(value) for value in column.dropna()}) > 1
    if has_several_types or len(types_in_tuples) > 1:
        return column.map(json.dumps, na_action="ignore")
    return column
