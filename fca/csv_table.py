"""Tables of text in CSV, as people actually write them: read exactly as they are, and written for a spreadsheet.

Every table that fca reads or writes as CSV goes through this module. A table is read if it has only one meaning;
otherwise the error names the line, so no cell ever gets under another column's name. What is read:

text:       UTF-8, with or without the byte order mark that Excel writes, and UTF-16 with its mark.
separator:  comma, semicolon or tab, judged by the first lines; a first line sep=; declares it.
header:     the first line; spaces around names are ignored, and if a space follows every separator of the header, all
            spaces after separators are ignored.
line ends:  LF, CRLF or CR; separators at the end of every line, and lines of nothing but separators at the end of the
            file, are no cells.
cells:      as they are: NA, null, True and 01 are text. Only an apostrophe before =, +, -, @, tab or CR, which
            `csv_text` writes, is removed.
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
SEPARATOR_LINE = re.compile(r"sep=(.)(?:\r\n|\r|\n)")  # a first line that declares the separator, for Excel
LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")  # with its end, if it has one
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # the start of a cell that a spreadsheet would compute, or of an escaped one
ESCAPED = re.compile(r"'+[=+\-@\t\r]")
SAMPLED_LINES = 20  # by which the separator is judged
CHUNK_LINES = 1000  # lines in memory as lists: with more, Python's garbage collector takes as long as the reader
MAX_CELLS = 8  # in a message


class TableLines(NamedTuple):
    """A table, line by line.

    names: those of the columns.
    cells: those of each line, as many as names.
    """

    names: list[str]
    cells: Iterator[list[str]]


def read_table(source: bytes | str | Path, name: str | Path, comments: bool = False) -> pd.DataFrame:
    """Read a CSV table into columns of text, "" where a cell is empty; the head of this module lists what is read.

    source:   the file's bytes, or its path; a path that ends in .gz is unpacked.
    name:     of the file, for messages.
    comments: whether lines that begin with # are ignored.

    A column without a name gets one from its position, "Unnamed: 0", as in pandas; such columns at the end are left out
    if they are empty.

    Raises FcaError for a line with too many or too few cells, a quote that is not closed, bytes that are not text, a
    column name that occurs twice, and a file without a header; the message names the line. Raises OSError for a file
    that cannot be read.

    >>> read_table(b"path; label;\\n1.png;01;\\n2.png;NA;\\n", "list.csv").to_dict("list")
    {'path': ['1.png', '2.png'], 'label': ['01', 'NA']}
    """
    text = _read_text(source, name, comments)
    # spaces after separators are ignored if the header has one after each of its separators
    lines = text.lines(skips_spaces=text.has_spaced_header, clean_name=str.strip)
    columns = [column or f"Unnamed: {position}" for position, column in enumerate(lines.names)]
    frame = _frame_of_unquoted_text(text, columns)  # the fast way, for simple tables
    if frame is None:
        frame = _frame_of_lines(lines.cells, columns)

    # Leave out empty columns without a name at the end.
    n_until_last_name = max(number for number, column in enumerate(lines.names, 1) if column)
    for column in reversed(columns[n_until_last_name:]):  # up to the last one that has a cell with text
        if (frame[column] != "").any():
            break
        frame = frame.drop(columns=column)

    for column in columns[: len(frame.columns)]:
        if frame[column].str.startswith("'").any():  # few columns have cells that `csv_text` escaped
            frame[column] = frame[column].map(without_escape)
    return frame


def read_lines(source: bytes | str | Path, name: str | Path) -> TableLines:
    """Read a CSV table line by line: for tables with too many columns for a frame, such as one column for each image.

    source, name, errors: as of `read_table`. The column names of such tables are data, so they keep their spaces; a
    missing name is "". Cells keep the apostrophe that `without_escape` removes.
    """
    return _read_text(source, name, comments=False).lines(skips_spaces=False, clean_name=str)


def without_escape(text: str) -> str:
    """A cell without the apostrophe that `csv_text` put before it; other cells are unchanged.

    >>> without_escape("'=cat"), without_escape("'n"), without_escape("''-1")
    ('=cat', "'n", "'-1")
    """
    return text[1:] if ESCAPED.match(text) else text


def with_escape(text: str) -> str:
    """A cell with an apostrophe before it, if a spreadsheet would take it for a formula, or if it is an escaped one.

    >>> with_escape("=cat"), with_escape("cat"), with_escape("'-1")
    ("'=cat", 'cat', "''-1")
    """
    return f"'{text}" if FORMULA.match(text) else text


def csv_text(frame: pd.DataFrame) -> str:
    """A frame as CSV for people, without its index; `read_table` returns the same text in every cell.

    A text that begins with =, +, -, @, tab or CR gets an apostrophe before it, because a spreadsheet would compute it
    (https://owasp.org/www-community/attacks/CSV_Injection). Numbers stay numbers; a missing value is an empty cell.

    >>> print(csv_text(pd.DataFrame({"label": ["=1+1", "-1", "cat"], "score": [-1, 2, 3]})), end="")
    label,score
    '=1+1,-1
    '-1,2
    cat,3
    """
    escaped = frame.copy(deep=False)
    escaped.columns = pd.Index([_with_escape_if_text(column) for column in frame.columns])
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        is_number = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)
        if not is_number and not _needs_no_escape(column):  # escaping cell by cell is slow
            escaped.isetitem(position, column.astype(object).map(_with_escape_if_text).array)

    text = str(escaped.to_csv(index=False))
    if "\r" in text:  # in a cell it would end the line, unless the cell is in quotes
        text = str(escaped.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC))
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
    """Give columns of numbers, or of True and False, the types that pandas infers; all other columns stay text.

    frame: text, as `read_table` returns it. An empty cell becomes a missing value. NA, null, nan and the like are
    missing values in a column of numbers, and texts in a column of text.

    >>> with_types(pd.DataFrame({"age": ["3", "NA"], "kind": ["", "NA"]})).values.tolist()
    [[3.0, nan], [nan, 'NA']]
    """
    if not frame.shape[1]:  # pandas cannot read a table without columns
        return frame

    from pyarrow import Table
    from pyarrow.csv import WriteOptions, write_csv

    # pandas infers types only when it reads CSV, so the columns are written as CSV first
    buffer = io.BytesIO()
    write_csv(Table.from_pandas(frame, preserve_index=False), buffer, WriteOptions(quoting_style="all_valid"))
    buffer.seek(0)
    # low_memory=False: a column gets one type as a whole, not one for each chunk of lines
    typed = pd.read_csv(buffer, low_memory=False, skip_blank_lines=False).set_axis(frame.index)

    for column in frame:
        is_empty = frame[column] == ""
        is_numeric = pd.api.types.is_numeric_dtype(typed[column])  # True and False too
        # pandas takes a column of nothing but NA, null ... for numbers; without a single number they are texts
        has_only_names_for_missing = bool(typed[column].isna().all()) and not is_empty.all()
        if not is_numeric or has_only_names_for_missing:
            typed[column] = frame[column].mask(is_empty)
    return typed


def _needs_no_escape(column: pd.Series) -> bool:
    """Whether a column is known to hold only text, and no text that needs an apostrophe."""
    return isinstance(column.dtype, pd.StringDtype) and not column.str.match(FORMULA).any()


def _with_escape_if_text(cell: Any) -> Any:
    return with_escape(cell) if isinstance(cell, str) else cell


# The text of a file.


def _read_text(source: bytes | str | Path, name: str | Path, comments: bool) -> _TableText:
    content = source if isinstance(source, bytes) else _read_unpacked(Path(source))
    return _TableText(_decode_text(content, name), str(name), comments)


def _read_unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked if its name ends in .gz. Raises OSError (also for a damaged .gz)."""
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error) as error:
        raise gzip.BadGzipFile(str(error)) from error  # which is an OSError


def _decode_text(content: bytes, name: str | Path) -> str:
    """The text in a file's bytes, without a byte order mark. Raises FcaError naming the line that is no text.

    UTF-16 needs its mark; everything else is read as UTF-8.
    name: of the file, for messages.
    """
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    step = "save it as CSV UTF-8, which spreadsheets and editors offer"
    try:
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")  # -sig: skips the mark, if there is one
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        context = content[max(0, error.start - 20) : error.start + 20]
        raise FcaError(f"line {line} of {name}", context, f"text in UTF-8 ({error})", step) from error

    if "\0" in text:  # UTF-16 without its mark, or no text at all
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FcaError(f"line {line} of {name}", "a byte of 0", "text in UTF-8", step)
    return text


@dataclass(frozen=True)
class _TableText:
    """The text of a CSV table.

    name:     of its file.
    comments: whether lines that begin with # are ignored.
    """

    text: str
    name: str
    comments: bool

    def lines(self, skips_spaces: bool, clean_name: Callable[[str], str]) -> TableLines:
        """The names of the columns, and an iterator over the lines, which are checked as they are read.

        skips_spaces: whether spaces after separators are ignored.
        clean_name:   cell of the header -> column name.

        The first line after the header decides about separators at the end. If it has as many cells as the header, the
        header's last cells are columns, even without a name. If it has fewer, the further empty cells of the header
        are no columns. If it has more, every line after the header must have these separators at its end.
        Raises FcaError for a missing header and repeated names; the iterator raises it for a line with too many or too
        few cells.
        """
        reader, header = self.reader_after_header(skips_spaces)
        names = [without_escape(clean_name(cell)) for cell in header]
        if not any(names):
            raise FcaError(f"table in {self.name}", "no header", "a first line with the names of columns", "add it")

        with _errors_naming_line(reader, self.name):
            first_line = next((cells for cells in reader if not _is_blank(cells)), None)  # after the header
        width = len(names) if first_line is None else len(first_line)
        n_until_last_name = max(number for number, column in enumerate(names, 1) if column)
        if n_until_last_name <= width < len(names):  # only the header ends with separators, which are no columns
            names = names[:width]

        duplicates = [column for column, times in Counter(names).items() if column and times > 1]
        if duplicates:
            value = f"{duplicates[0]!r} twice"
            raise FcaError(f"columns of {self.name}", value, "names that differ", "rename one of them")

        n_cells = max(width, len(names))  # more than names if all lines but the header end with separators
        all_lines = chain([] if first_line is None else [first_line], reader)
        return TableLines(names, _checked_lines(all_lines, reader, names, n_cells, self.name))

    def reader_after_header(self, skips_spaces: bool) -> tuple[Any, list[str]]:
        """A CSV reader of the lines after the header, and the cells of the header; [] if there is no header.

        skips_spaces: whether spaces after separators are ignored.
        """
        reader = csv.reader(
            self.physical_lines(),
            delimiter=self.separator,
            skipinitialspace=skips_spaces,
            strict=True,
        )
        with _errors_naming_line(reader, self.name):
            if SEPARATOR_LINE.match(self.text):
                next(reader)  # the line sep=; is not the header
            header = next((cells for cells in reader if not _is_blank(cells)), [])
        return reader, header

    @cached_property
    def has_spaced_header(self) -> bool:
        """Whether a space follows every separator of the header."""
        _, header = self.reader_after_header(skips_spaces=False)
        return len(header) > 1 and all(column.startswith(" ") for column in header[1:])

    @cached_property
    def separator(self) -> str:
        """The separator between cells: the declared one, or else the one that fits the first lines best.

        The best separator splits the header into several cells; among those that do, it gives most of the first lines
        as many cells as the header, and then the most cells.
        """

        def fit(separator: str) -> tuple[bool, int, int]:
            """Whether it splits the header, how many lines are as wide as the header, and the header's width."""
            reader = csv.reader(self.physical_lines(), delimiter=separator)
            widths = [len(cells) for cells in islice(filter(None, reader), SAMPLED_LINES)]  # None: without empty lines
            header_width = widths[0] if widths else 0
            return header_width > 1, widths.count(header_width), header_width

        declaration = SEPARATOR_LINE.match(self.text)
        if declaration:
            return declaration[1]
        try:
            return max(SEPARATORS, key=fit)  # of equal ones the first
        except csv.Error:
            return SEPARATORS[0]  # reading the lines will raise the error, which then names the line

    def physical_lines(self) -> Iterator[str]:
        """The text line by line; a comment becomes an empty line, so that the other lines keep their numbers."""
        lines = (match[0] for match in LINE.finditer(self.text))  # an io.StringIO would copy the entire text
        if not self.comments:
            return lines
        return ("\n" if line.startswith("#") else line for line in lines)


# The lines of a table.


def _frame_of_lines(lines: Iterator[list[str]], columns: Sequence[str]) -> pd.DataFrame:
    """A frame of text from lines with one cell per column; in chunks, as many lists slow the garbage collector."""
    import pyarrow as pa

    schema = pa.schema([(column, pa.string()) for column in columns])
    tables = [schema.empty_table()]
    while chunk := list(islice(lines, CHUNK_LINES)):
        cells_by_column = list(zip(*chunk, strict=True))
        tables.append(pa.table(cells_by_column, schema))
    return pa.concat_tables(tables).to_pandas().astype("str")


def _frame_of_unquoted_text(text: _TableText, columns: Sequence[str]) -> pd.DataFrame | None:
    """The table as a frame of text, read by Arrow, if no cell has a quote and every line has one cell per column.

    Returns None for all other tables, which Python's slower reader must read. For simple tables Arrow gives the same
    cells in a tenth of the time; with quotes it accepts what Python's reader reports as an error.
    """
    has_many_columns = len(columns) > 1  # else Arrow would take a line of spaces for a cell
    if not has_many_columns or '"' in text.text:
        return None
    if text.comments or text.has_spaced_header or SEPARATOR_LINE.match(text.text):  # Arrow has no such options
        return None

    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

    arrow_names = [f"f{position}" for position in range(len(columns))]  # the names that Arrow gives
    as_text = ConvertOptions(column_types=dict.fromkeys(arrow_names, pa.string()), strings_can_be_null=False)
    without_header = ReadOptions(autogenerate_column_names=True)
    without_quotes = ParseOptions(delimiter=text.separator, quote_char=False)
    try:
        table = read_csv(pa.BufferReader(text.text.encode()), without_header, without_quotes, as_text)
    except pa.ArrowInvalid:  # lines of different lengths
        return None
    if table.num_columns != len(columns):  # separators at the end of every line
        return None

    without_header_line = table.slice(1)
    frame = without_header_line.rename_columns(list(columns)).to_pandas().astype("str")
    ends_with_empty_line = len(frame) > 0 and not any(frame.iloc[-1])
    if ends_with_empty_line:  # a line of separators alone: cut all such lines at the end
        filled_lines = (frame != "").any(axis=1).to_numpy().nonzero()[0]
        n_lines = filled_lines[-1] + 1 if len(filled_lines) else 0
        frame = frame.iloc[:n_lines]
    return frame


def _checked_lines(
    lines: Iterable[list[str]], reader: Any, names: Sequence[str], n_cells: int, name: str
) -> Iterator[list[str]]:
    """Yield the lines with one cell per column name, without blank lines and without lines of empty cells at the end.

    lines:   cells of each line. They come from `reader`, which has the number of the current line for messages.
    names:   of the columns.
    n_cells: how many cells a line of the file must have; more than names if lines end with separators, and the cells
             after the last name must be empty.
    name:    of the file, for messages.

    Raises FcaError for a line with too many or too few cells, or a wrong quote.
    """
    empty_lines: list[list[str]] = []  # held back until a filled line follows
    with _errors_naming_line(reader, name):
        for cells in lines:
            if len(cells) == n_cells == len(names) and cells[0] and not empty_lines:
                yield cells  # most lines: a fast way for them
                continue
            if _is_blank(cells):
                continue
            if len(cells) != n_cells or any(cells[len(names) :]):  # a text after the last name has no column
                raise _error_of_line(cells, names, n_cells, reader.line_num, name)
            if n_cells > 1 and not any(cells):  # maybe at the end of the file; in one column "" is a value
                empty_lines.append(cells[: len(names)])
                continue

            yield from empty_lines
            empty_lines.clear()
            yield cells[: len(names)]


def _is_blank(cells: Sequence[str]) -> bool:
    """Whether these are the cells of a line without any text, or only with spaces."""
    return not cells or (len(cells) == 1 and cells[0].isspace())


@contextmanager
def _errors_naming_line(reader: Any, name: str) -> Iterator[None]:
    """Turn an error of a CSV reader inside the context, a wrong quote, into an FcaError that names the line."""
    try:
        yield
    except csv.Error as error:
        allowed = 'a cell with a quote in it in quotes, and that quote twice: "5"" disk"'
        raise FcaError(f"line {reader.line_num} of {name}", error, allowed, "close or remove the quote") from error


def _error_of_line(cells: Sequence[str], names: Sequence[str], n_cells: int, number: int, name: str) -> FcaError:
    """The error for a line with too many or too few cells, with advice that fits the probable reason.

    cells:   those of the line.
    names:   of the columns.
    n_cells: number of cells that the line should have; more than names if the lines before it end with separators.
    number:  of the line.
    name:    of the file.
    """
    allowed = f"{len(names)}, as in the header: {_first_cells(names)}"
    if len(cells) == len(names):
        allowed = f"{n_cells}, as in the lines before it, which have separators at the end"
        step = "end every line in the same way: with these separators, or without them"
    elif len(cells) < len(names):
        step = "add the missing cells, empty ones too"
    else:
        quote = "put a cell that contains the separator in quotes"
        step = f"{quote}, or give every column a name; R: write.csv(..., row.names = FALSE)"
    count = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    return FcaError(f"line {number} of {name}", f"{count}: {_first_cells(cells)}", allowed, step)


def _first_cells(cells: Sequence[str]) -> str:
    text = ", ".join(map(repr, cells[:MAX_CELLS]))
    return f"{text}, ..." if len(cells) > MAX_CELLS else text
