"""Filters of rows as users type them, COLUMN=VALUES: the same for every command. They are translated to a query.

    dataset=flowers                 rows of this value
    model=resnet18,vgg16            of any of these; also model=[resnet18,vgg16]
    model!=vgg16                    of any other
    ncl<=5                          a comparison of numbers
    encoder=null                    rows without a value
    model='resnet18, probe'         quotes keep a comma in a value (in a shell: "model='resnet18, probe'")

Rows must meet all filters. Columns may also be called by the keys of `fca run`: subset.ncl, recipe.epochs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import pandas as pd

from fca.store.columns import RECIPE, present_name
from fca.store.query import columns_of, rows_matching
from fca.types import FcaError, choices_in_words

Filters = Mapping[str, Any] | Sequence[str]
"""In Python: words as they are typed, or column -> value or list of values, where None stands for a missing value."""

# Column, sign, and the values behind it
_FILTER = re.compile(r"([\w.]+)(==|!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_COLUMN_OF_KEY = {"subset.ncl": "ncl", "subset.seed": "subset_seed", "subset.sampler": "sampler", "model.name": "model"}
# A value of a list up to the next comma or the end: in single quotes (group 1), in double quotes (2), or plain (3)
_VALUE = re.compile(r"""\s*(?:'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)"|([^,]*?))\s*(?:,|$)""", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_SHOWN_VALUES = 5


def key_of(word: str) -> str | None:
    """The key before the sign of a word that has the form of a filter; None for any other word.

    >>> key_of("subset.ncl<=5"), key_of("photos"), key_of("+x=1")
    ('subset.ncl', None, None)
    """
    match = _FILTER.fullmatch(word)
    return None if match is None else match[1]


def column_of(word: str) -> str:
    """The column that a filter names, also if it is called by a key of `fca run` or by an earlier name.

    Raises FcaError for a word that is no filter.

    >>> column_of("subset.ncl<=5"), column_of("recipe.epochs=3")
    ('ncl', 'recipe_epochs')
    """
    key = key_of(word)
    if key is None:
        raise FcaError("word", word, "COLUMN=VALUES, such as ncl=2,5", "fca results --help")
    return present_name(_COLUMN_OF_KEY.get(key, key.replace("recipe.", RECIPE)))


def words_of(filters: Filters | None) -> list[str]:
    """Filters that were given in Python, as the words that a command line would have; an empty list for None.

    filters: a list of such words, or a dictionary: column -> value, or a list of allowed values.
    Raises FcaError for a single string, because its letters would be taken for words.

    >>> words_of({"ncl": [2, 5], "model": "a, b", "encoder": None})
    ['ncl=2,5', "model='a, b'", 'encoder=null']
    """
    if filters is None:
        return []
    if isinstance(filters, str):
        raise FcaError(
            "filters", filters, 'a list of words, or a dictionary such as {"ncl": [2, 5]}', "put [ ] around it"
        )
    if not isinstance(filters, Mapping):
        return list(filters)

    words = []
    for column, value in filters.items():
        values = value if isinstance(value, list | set | range) else [value]
        words.append(f"{column}={','.join(map(as_typed, values))}")
    return words


def as_typed(value: object) -> str:
    """A value as a user types it in a filter. None becomes null, and a whole float loses its decimals.

    Text is quoted where it would be misread: if it is empty or "null", begins with =, has spaces at its ends, or
    contains a comma, bracket, quote or backslash.

    >>> as_typed("=1+1")
    "'=1+1'"
    >>> as_typed(2.0), as_typed("resnet18"), as_typed("a, b"), as_typed("null"), as_typed(None), as_typed((0, 3))
    ('2', 'resnet18', "'a, b'", "'null'", 'null', '[0,3]')
    """
    if value is None:
        return "null"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, tuple):
        return f"[{','.join(map(as_typed, value))}]"
    text = str(value)
    has_special_characters = re.search(r"^=|[,\[\]'\"\\]", text) is not None
    is_misread = text in ("", "null") or text != text.strip() or has_special_characters
    return repr(text) if is_misread else text


def check_columns(words: Iterable[str], columns: Iterable[object], keys: Iterable[str] = ()) -> None:
    """Raise FcaError for a filter on an unknown column; the error suggests a similar name.

    words:   the filters.
    columns: the known columns.
    keys:    keys that the command takes beside filters; a mistyped key looks like a filter, so they are suggested, too.
    """
    names = [str(column) for column in columns]
    for word in words:
        column = column_of(word)
        if column in names:
            continue

        similar_names = difflib.get_close_matches(column, [*keys, *names], n=1)
        step = f"did you mean {similar_names[0]}?" if similar_names else "name columns of the results"
        allowed = choices_in_words(names, column)
        if keys:
            allowed = f"a key ({', '.join(keys)}) or a column ({allowed})"
        raise FcaError("column", column, allowed, step)


def query_of(word: str, frame: pd.DataFrame) -> str:
    """The query (see `fca.store.query`) that a filter, such as ncl=2,5, means on this frame.

    The values in the column of the frame decide whether a typed value is a number, a truth value, a tuple or text.
    Raises FcaError for a word that is no filter, an unknown column, several values after < or >, and text where the
    column has numbers.

    >>> frame = pd.DataFrame({"ncl": [2, 5], "model": ["a", "b"], "subset_seed": [0, 1]})
    >>> query_of("subset.ncl=2,5", frame), query_of("model!=a", frame), query_of("model=null", frame)
    ('ncl in [2, 5]', "model not in ['a']", 'model == None')
    >>> query_of("ncl<=3", frame), query_of("model=[a,b]", frame)
    ('ncl <= 3', "model in ['a', 'b']")
    """
    column = column_of(word)
    check_columns([word], frame)
    match = _FILTER.fullmatch(word)
    assert match is not None  # column_of has refused other words
    sign = match[2]
    typed = match[3].strip()

    present = frame[column].dropna()
    has_tuples = present.map(lambda value: isinstance(value, tuple)).any()  # a column such as `classes`
    if has_tuples and typed != "null":
        values: list[str | None] = [typed]  # [0,3] is one tuple, not a list of two values
    else:
        values = _typed_values(typed)

    literals: list[str] = []
    for value in values:
        if value is not None:
            literals += _literals(column, value, present)

    if sign in ("<", "<=", ">", ">="):
        # null has no literal; a value that may be a number or a text has two, which are in no common order
        if len(values) > 1 or len(literals) != 1:
            raise FcaError(word, typed, f"one value after {sign}", f"give one: {column}{sign}VALUE")
        return f"{column} {sign} {literals[0]}"

    is_negated = sign == "!="
    conditions = []
    if literals:
        membership = "not in" if is_negated else "in"
        conditions.append(f"{column} {membership} [{', '.join(literals)}]")
    if None in values:
        equality = "!=" if is_negated else "=="
        conditions.append(f"{column} {equality} None")
    return (" and " if is_negated else " or ").join(conditions)


def combined_query(query: str | None, words: Sequence[str], frame: pd.DataFrame) -> str | None:
    """One query that holds where the given query and all filters hold; None if there are neither.

    query: a query, or None.
    words: the filters as they are typed, such as ncl=2,5.
    frame: the rows to which the query will be applied; their values decide whether a typed value is a number or text.

    >>> combined_query("ncl == 2 or seed == 1", ["ncl=5"], pd.DataFrame({"ncl": [2], "seed": [1]}))
    '(ncl == 2 or seed == 1) and (ncl in [5])'
    """
    queries = [query_of(word, frame) for word in words]
    if query is not None:
        queries.insert(0, query)

    if not queries:
        return None
    if len(queries) == 1:
        return queries[0]
    return " and ".join(f"({condition})" for condition in queries)


def unmatched_filter_lines(words: Iterable[str], frame: pd.DataFrame) -> list[str]:
    """A sentence for each filter that matches none of these rows; it lists up to _SHOWN_VALUES values of its column.

    words: the filters as they are typed, such as ncl=2,5.
    frame: the rows before any filter is applied.
    """
    sentences = []
    for word in words:
        column = column_of(word)
        if len(rows_matching(frame, query_of(word, frame), word)):
            continue

        values = sorted({as_typed(value) for value in frame[column].dropna()})
        stored_values = (
            f"{column} is {choices_in_words(values[:_SHOWN_VALUES])}" if values else f"no run has a {column}"
        )
        n_further = len(values) - _SHOWN_VALUES
        further = f" and {n_further} more" if n_further > 0 else ""
        sentences.append(f"no run has {word}; {stored_values}{further}")
    return sentences


def named_columns(query: str | None, words: Iterable[str]) -> set[str]:
    """The columns that a query and filters name. Raises FcaError for a query or a filter that cannot be read."""
    query_columns = set() if query is None else columns_of(query)
    return query_columns | {column_of(word) for word in words}


def _typed_values(typed: str) -> list[str | None]:
    """The values of a typed list, separated by commas, without the quotes around them; None for null without quotes.

    The list may stand in brackets.

    >>> _typed_values("[a, 'b, c']"), _typed_values("a"), _typed_values(""), _typed_values("null,'null'")
    (['a', 'b, c'], ['a'], [''], [None, 'null'])
    """
    inner = typed[1:-1] if typed.startswith("[") and typed.endswith("]") else typed
    values: list[str | None] = []
    end = 0
    while True:
        match = _VALUE.match(inner, end)
        assert match is not None  # any text before a comma is a value
        single_quoted, double_quoted, plain = match.groups()
        quoted = single_quoted if single_quoted is not None else double_quoted
        if quoted is not None:
            values.append(re.sub(r"\\(.)", r"\1", quoted))  # a backslash keeps the next character as it is
        else:
            values.append(None if plain == "null" else plain)

        end = match.end()
        if not match[0].endswith(","):  # the last value; text behind a comma is another one, also if empty
            return values


def _literals(column: str, text: str, present: pd.Series) -> list[str]:
    """The literals (constants in a query) that a typed value may mean: one for each kind of value in the column.

    Kinds are number, truth value, tuple and text. In a column of numbers and texts "3" may be the number or the text.
    A kind that the typed text does not fit is left out.

    column:  its name, for the error.
    text:    the typed value.
    present: the values of the column but missing ones.
    Raises FcaError if no kind fits.
    """
    if pd.api.types.is_numeric_dtype(present) and not pd.api.types.is_bool_dtype(present):
        kinds = {"number"}  # known without looking at each value
    else:
        kinds = {_kind(value) for value in present} or {"text"}  # no value: any text fits

    literals = []
    if "truth" in kinds and text.lower() in ("true", "false"):
        literals.append(text.capitalize())
    if "number" in kinds and _NUMBER.fullmatch(text):
        literals.append(text)
    if "tuple" in kinds:
        literals.append(_tuple_literal(text))
    if "text" in kinds:
        literals.append(repr(text))
    if not literals:  # the column has neither tuples nor texts, either of which any value could be
        allowed = {"truth": "true or false", "number": "a number"}
        expected = " or ".join(allowed[kind] for kind in sorted(kinds))
        raise FcaError(column, text, f"{expected}, as the column has", "correct the filter")
    return literals


def _kind(value: object) -> str:
    """The kind of a value in a column: truth, tuple, number or text."""
    if isinstance(value, bool):  # a bool is also a Number
        return "truth"
    if isinstance(value, tuple):
        return "tuple"
    return "number" if isinstance(value, Number) else "text"


def _tuple_literal(text: str) -> str:
    """A typed list as the literal of a tuple in a query.

    >>> _tuple_literal("[0,3]"), _tuple_literal("[a]")
    ('(0, 3,)', "('a',)")
    """
    values = [value or "" for value in _typed_values(text)]
    items = [value if _NUMBER.fullmatch(value) else repr(value) for value in values]
    return f"({', '.join(items)},)"
