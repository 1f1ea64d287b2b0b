"""Tables of text in CSV, as people really write them: read to the letter, and written for a spreadsheet.

Every table that fca reads or writes as CSV goes through here. A table is read if it can mean one thing only, else its
line is named: no cell ever lands under another column's name. What is read:

text:       UTF-8, with or without the mark that Excel writes, and UTF-16 with its mark.
separator:  comma, semicolon or tab, as the first lines have it; a first line sep=; states it.
header:     the first line; spaces around names do not count, and where one follows every separator none counts there.
ends:       of lines LF, CRLF or CR; separators at the end of every line, and lines of nothing but separators at the end
            of the file, are no cells.
cells:      as they are: NA, null, True and 01 are text. Only an apostrophe before =, +, -, @, tab or CR, which
            `csv_text` put there, is removed.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fca.types import FcaError

SEPARATORS = (",", ";", "\t")
STATED = re.compile(r"sep=(.)(?:\r\n|\r|\n)")
"""The line by which Excel knows the separator."""
LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")
FORMULA = re.compile(r"'*[=+\-@\t\r]")
ESCAPED = re.compile(r"'+[=+\-@\t\r]")
SAMPLE = 20  # lines by which the separator is known
CHUNK = 1000  # lines that are held as lists: of more, Python's collector takes as long as the reader
CELLS = 8  # that a message shows


class Lines(NamedTuple):
    """A table, line by line.    names: of the columns.    cells: of each line, as many as there are names."""

    names: list[str]
    cells: Iterator[list[str]]


def read_table(source: bytes | str | Path, name: str | Path, comments: bool = False) -> pd.DataFrame:
    """A table as columns of text, "" where a cell is empty; see the head of this module for what is read.

    source:   the file's bytes, or its path; a path that ends in .gz is unpacked.    name: of the file, for messages.
    comments: whether lines that begin with # are none of the table.
    A column without a name is called after its place, "Unnamed: 0", as pandas does; the last ones are left out if they
    are empty.

    Raises FcaError naming the line: too many or too few cells, a quote that is not closed, bytes that are no text, a
    column name that stands twice, and a file without a header. Raises OSError for a file that cannot be read.

    >>> read_table(b"path; label;\\n1.png;01;\\n2.png;NA;\\n", "list.csv").to_dict("list")
    {'path': ['1.png', '2.png'], 'label': ['01', 'NA']}
    """
    table = _opened(source, name, comments)
    lines = table.lines(table.spaced, str.strip)
    columns = [column or f"Unnamed: {place}" for place, column in enumerate(lines.names)]
    frame = _without_quotes(table, columns)
    if frame is None:
        frame = _framed(lines.cells, columns)

    unnamed_at_end = len(columns) - max(place for place, column in enumerate(lines.names, 1) if column)
    for column in columns[::-1][:unnamed_at_end]:
        if (frame[column] != "").any():
            break
        frame = frame.drop(columns=column)

    for kept in columns[: len(frame.columns)]:
        if frame[kept].str.startswith("'").any():
            frame[kept] = frame[kept].map(without_escape)
    return frame


def read_lines(source: bytes | str | Path, name: str | Path) -> Lines:
    """A table line by line, where a frame of its columns would be too wide; see `read_table`.

    Names of columns are what is measured there, so they are taken to the letter, with their spaces; one that is not
    there is "". A cell may still have the apostrophe that `without_escape` removes.
    """
    return _opened(source, name, comments=False).lines(spaced=False, named=str)


def without_escape(text: str) -> str:
    """A cell as it was before `csv_text` put an apostrophe before it.

    >>> without_escape("'=cat"), without_escape("'n"), without_escape("''-1")
    ('=cat', "'n", "'-1")
    """
    return text[1:] if ESCAPED.match(text) else text


def with_escape(text: str) -> str:
    """A cell with an apostrophe before it, if a spreadsheet would take it for a formula.

    >>> with_escape("=cat"), with_escape("cat"), with_escape("'-1")
    ("'=cat", 'cat', "''-1")
    """
    return f"'{text}" if FORMULA.match(text) else text


def csv_text(frame: pd.DataFrame) -> str:
    """A frame as CSV for people, without its index; `read_table` gives back the same text in every cell.

    A text that begins with =, +, -, @, tab or CR gets an apostrophe before it, because a spreadsheet would compute it
    (https://owasp.org/www-community/attacks/CSV_Injection). Numbers stay numbers; a missing value is an empty cell.

    >>> print(csv_text(pd.DataFrame({"label": ["=1+1", "-1", "cat"], "score": [-1, 2, 3]})), end="")
    label,score
    '=1+1,-1
    '-1,2
    cat,3
    """
    safe = frame.copy(deep=False)
    safe.columns = pd.Index([_safe(column) for column in frame.columns])
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        is_number = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)
        if not is_number and not _is_harmless(column):
            safe.isetitem(place, column.astype(object).map(_safe).array)
    text = str(safe.to_csv(index=False))
    if "\r" in text:  # in a cell it would end the line, unless the cell is in quotes
        text = str(safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC))
    return text


def csv_line(cells: Iterable[str]) -> str:
    """One line of texts as `csv_text` writes it, for tables that are written line by line.

    >>> csv_line(["a,b", "=c", ""])
    '"a,b",\\'=c,\\n'
    """
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(map(with_escape, cells))
    return buffer.getvalue()


def with_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of numbers, or of True and False, as pandas reads them; all others stay text.

    Missing is an empty cell and, in a column of numbers, NA, null, nan and the like. In one of text these are texts.

    >>> with_types(pd.DataFrame({"age": ["3", "NA"], "kind": ["", "NA"]})).values.tolist()
    [[3.0, nan], [nan, 'NA']]
    """
    if not frame.shape[1]:
        return frame

    from pyarrow import Table
    from pyarrow.csv import WriteOptions, write_csv

    buffer = io.BytesIO()
    write_csv(Table.from_pandas(frame, preserve_index=False), buffer, WriteOptions(quoting_style="all_valid"))
    buffer.seek(0)
    typed = pd.read_csv(buffer, low_memory=False, skip_blank_lines=False).set_axis(frame.index)

    for column in frame:
        is_empty = frame[column] == ""
        is_of_numbers = pd.api.types.is_numeric_dtype(typed[column])  # True and False too
        is_of_names_for_missing = bool(typed[column].isna().all()) and not is_empty.all()  # NA alone is a text
        if not is_of_numbers or is_of_names_for_missing:
            typed[column] = frame[column].mask(is_empty)
    return typed


def _is_harmless(column: pd.Series) -> bool:
    """Whether no text of a column of nothing but text can need an apostrophe; False where it may be of any kind."""
    return isinstance(column.dtype, pd.StringDtype) and not column.str.match(FORMULA).any()


def _safe(cell: Any) -> Any:
    return with_escape(cell) if isinstance(cell, str) else cell


# The text of a file.


def _opened(source: bytes | str | Path, name: str | Path, comments: bool) -> _Text:
    content = source if isinstance(source, bytes) else _bytes(Path(source))
    return _Text(_decoded(content, name), str(name), comments)


def _bytes(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error) as error:
        raise gzip.BadGzipFile(str(error)) from error


def _decoded(content: bytes, name: str | Path) -> str:
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    step = "save it as CSV UTF-8, which spreadsheets and editors offer"
    try:
        text = content.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        around = content[max(0, error.start - 20) : error.start + 20]
        raise FcaError(f"line {line} of {name}", around, f"text in UTF-8 ({error})", step) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FcaError(f"line {line} of {name}", "a byte of 0", "text in UTF-8", step)
    return text


@dataclass(frozen=True)
class _Text:
    """The text of a table.    name: of its file.    comments: whether lines that begin with # are none of it."""

    text: str
    name: str
    comments: bool

    def lines(self, spaced: bool, named: Callable[[str], str]) -> Lines:
        """Names of the columns, and the lines, checked as they are read.

        spaced: see below.    named: a cell of the header -> the name.
        """
        reader, header = self.begun(spaced)
        names = [without_escape(named(column)) for column in header]
        if not any(names):
            raise FcaError(f"table in {self.name}", "no header", "a first line with the names of columns", "add it")
        with _naming(reader, self.name):
            first = next((cells for cells in reader if not _is_blank(cells)), None)
        width = len(names) if first is None else len(first)
        last_named = max(place for place, column in enumerate(names, 1) if column)
        if last_named <= width < len(names):
            names = names[:width]  # the header alone has separators at its end
        if twice := [column for column, times in Counter(names).items() if column and times > 1]:
            raise FcaError(f"columns of {self.name}", f"{twice[0]!r} twice", "names that differ", "rename one of them")

        expected = max(width, len(names))  # more than there are names where every line has separators at its end
        every = chain([] if first is None else [first], reader)
        return Lines(names, _checked(every, reader, names, expected, self.name))

    def begun(self, spaced: bool) -> tuple[Any, list[str]]:
        """A reader that stands behind the header, and the header.    spaced: see below."""
        reader = csv.reader(self.physical_lines(), delimiter=self.separator, skipinitialspace=spaced, strict=True)
        with _naming(reader, self.name):
            if STATED.match(self.text):
                next(reader)
            return reader, next((cells for cells in reader if not _is_blank(cells)), [])

    @cached_property
    def spaced(self) -> bool:
        """Whether a space follows every separator of the header: then none counts that follows one."""
        _, header = self.begun(spaced=False)
        return len(header) > 1 and all(column.startswith(" ") for column in header[1:])

    @cached_property
    def separator(self) -> str:
        """The one that is stated, or by which the first lines have as many cells as the header, and the most."""

        def fit(separator: str) -> tuple[bool, int, int]:
            reader = csv.reader(self.physical_lines(), delimiter=separator)
            first = [len(cells) for cells in islice(filter(None, reader), SAMPLE)]
            names = first[0] if first else 0
            return names > 1, first.count(names), names

        if stated := STATED.match(self.text):
            return stated[1]
        try:
            return max(SEPARATORS, key=fit)  # of equal ones the first
        except csv.Error:
            return SEPARATORS[0]  # the line is named when it is read

    def physical_lines(self) -> Iterator[str]:
        """The text line by line; a comment is an empty line, so that the others keep their numbers."""
        lines = (match[0] for match in LINE.finditer(self.text))  # an io.StringIO would copy all of the text
        return ("\n" if line.startswith("#") else line for line in lines) if self.comments else lines


# Its lines.


def _framed(lines: Iterator[list[str]], columns: Sequence[str]) -> pd.DataFrame:
    import pyarrow as pa

    schema = pa.schema([(column, pa.string()) for column in columns])
    parts = [schema.empty_table()]
    while chunk := list(islice(lines, CHUNK)):
        parts.append(pa.table(list(zip(*chunk, strict=True)), schema))
    return pa.concat_tables(parts).to_pandas().astype("str")


def _without_quotes(table: _Text, columns: Sequence[str]) -> pd.DataFrame | None:
    """The frame, where every line has a cell a column and none has a quote; else None.

    Arrow's reader takes a tenth of the time and splits such lines as Python's does; with quotes it is more lenient.
    """
    is_plain = len(columns) > 1 and '"' not in table.text
    if not is_plain or table.comments or table.spaced or STATED.match(table.text):
        return None

    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

    places = [f"f{place}" for place in range(len(columns))]
    as_text = ConvertOptions(column_types=dict.fromkeys(places, pa.string()), strings_can_be_null=False)
    without_header = ReadOptions(autogenerate_column_names=True)
    parse = ParseOptions(delimiter=table.separator, quote_char=False)
    try:
        read = read_csv(pa.BufferReader(table.text.encode()), without_header, parse, as_text)
    except pa.ArrowInvalid:
        return None
    if read.num_columns != len(columns):
        return None

    frame = read.slice(1).rename_columns(list(columns)).to_pandas().astype("str")
    if len(frame) and not any(frame.iloc[-1]):
        has_cells = (frame != "").any(axis=1).to_numpy().nonzero()[0]
        frame = frame.iloc[: has_cells[-1] + 1 if len(has_cells) else 0]
    return frame


def _checked(
    lines: Iterable[list[str]], reader: Any, names: Sequence[str], expected: int, name: str
) -> Iterator[list[str]]:
    """The lines, each with a cell a name, but for blank ones and those at the end whose cells are all empty.

    lines: of the reader, which knows their numbers.
    expected: cells of a line as it stands in the file, with the empty ones behind separators at its end.
    """
    empty: list[list[str]] = []
    with _naming(reader, name):
        for cells in lines:
            if len(cells) == expected == len(names) and cells[0] and not empty:
                yield cells  # as most lines are
                continue
            if _is_blank(cells):
                continue
            if len(cells) != expected or any(cells[len(names) :]):
                raise _odd_line(cells, names, expected, reader.line_num, name)
            if expected > 1 and not any(cells):
                empty.append(cells[: len(names)])
                continue
            yield from empty
            empty.clear()
            yield cells[: len(names)]


def _is_blank(cells: Sequence[str]) -> bool:
    return not cells or (len(cells) == 1 and cells[0].isspace())


@contextmanager
def _naming(reader: Any, name: str) -> Iterator[None]:
    """Name the line that a reader cannot read."""
    try:
        yield
    except csv.Error as error:
        allowed = 'a cell with a quote in it in quotes, and that quote twice: "5"" disk"'
        raise FcaError(f"line {reader.line_num} of {name}", error, allowed, "close or remove the quote") from error


def _odd_line(cells: Sequence[str], names: Sequence[str], expected: int, number: int, name: str) -> FcaError:
    """The error of a line with too many or too few cells."""
    allowed = f"{len(names)}, as in the header: {_first(names)}"
    if len(cells) == len(names):
        allowed = f"{expected}, as in the lines before it, which have separators at the end"
        step = "end every line alike: with these separators, or none of them"
    elif len(cells) < len(names):
        step = "add the missing cells, empty ones too"
    else:
        quote = "put a cell that contains the separator in quotes"
        step = f"{quote}, or give every column a name; R: write.csv(..., row.names = FALSE)"
    number_of_cells = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    return FcaError(f"line {number} of {name}", f"{number_of_cells}: {_first(cells)}", allowed, step)


def _first(cells: Sequence[str]) -> str:
    return ", ".join(map(repr, cells[:CELLS])) + (", ..." if len(cells) > CELLS else "")
