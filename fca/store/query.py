"""Queries on the columns of a table: conditions that are read here and never run as Python.

A query comes from a command line, a notebook or a configuration that somebody else wrote, and pandas' own `query` calls
what it names: functions, methods such as `model.to_csv`. The language is the part of pandas' that chooses lines:

    comparisons         ==  !=  <  <=  >  >=  in  not in, also chained: 2 <= ncl < 10
    between them        and, or, not (or & | ~), parentheses
    names of columns    as they are, or in backticks where they are no words: `file name`
    literals            numbers, text in quotes, True, False, lists and tuples of these; None is a missing value
"""

from __future__ import annotations

import ast
import difflib
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from fca.store.columns import present_name
from fca.types import FcaError, choices_in_words

LANGUAGE = "comparisons (==, !=, <, <=, >, >=, in, not in) of columns with literals or columns; and, or, not, ()"
LONGEST = 1_000_000  # characters
DEEP = "it is nested too deeply"

_TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`([^`\n]+)`|[&|]""")
_WORDS = {"&": " and ", "|": " or "}  # which bind less than a comparison, as users of pandas expect
_COMPARED: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}


def rows_matching(frame: pd.DataFrame, query: str, name: str = "query") -> pd.DataFrame:
    """The lines that a query keeps. Raises FcaError, which calls the query by `name`, if it cannot be read.

    A missing value fails every comparison but !=, as in pandas; `weights == None` keeps the lines where it is missing.
    `ncl == [2, 3]` means `ncl in [2, 3]`.

    >>> frame = pd.DataFrame({"ncl": [2, 5, 9], "model": ["a", "b", None]})
    >>> rows_matching(frame, "2 < ncl <= 9 and model != 'a'")["ncl"].tolist()
    [5, 9]
    >>> rows_matching(frame, "model == None")["ncl"].tolist()
    [9]
    >>> rows_matching(frame, "model.to_csv('x')")
    Traceback (most recent call last):
    fca.types.FcaError: query = model.to_csv('x'); allowed: comparisons ...
    """
    try:
        tree, columns = _parsed(query)
        chosen = _Reader(frame, columns).condition(tree)
        return frame[chosen.fillna(value=False).astype(bool)]
    except (_Refused, RecursionError) as error:
        reason = error if isinstance(error, _Refused) else DEEP
        allowed = f"{LANGUAGE}; columns: {choices_in_words(frame.columns)}"
        raise FcaError(name, _short(query), allowed, f"mend it: {reason}") from error


def columns_of(query: str, name: str = "query") -> set[str]:
    """The columns that a query names. Raises FcaError, as `rows_matching` does, if it cannot be read.

    >>> sorted(columns_of("ncl <= 5 and `file name` in ['a']"))
    ['file name', 'ncl']
    """
    tree, columns = _understood(query, name)
    return {columns.get(node.id, node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)}


def conditions_of(query: str, name: str = "query") -> list[str]:
    """The conditions that `and` joins, each a query of its own. Raises FcaError, as `rows_matching` does.

    >>> conditions_of("ncl <= 5 and (`file name` in ['a'] or seed == 1)")
    ['ncl <= 5', "`file name` in ['a'] or seed == 1"]
    >>> conditions_of("(ncl <= 5 and seed == 1) and (task == 'train')")
    ['ncl <= 5', 'seed == 1', "task == 'train'"]
    """
    tree, columns = _understood(query, name)
    texts = [ast.unparse(condition) for condition in _joined_by_and(tree)]
    for word, column in columns.items():
        texts = [text.replace(word, f"`{column}`") for text in texts]
    return texts


def _joined_by_and(tree: ast.expr) -> list[ast.expr]:
    """The parts of a tree that `and` joins, also those in parentheses."""
    match tree:
        case ast.BoolOp(ast.And(), parts):
            return [condition for part in parts for condition in _joined_by_and(part)]
    return [tree]


def _understood(query: str, name: str) -> tuple[ast.expr, dict[str, str]]:
    try:
        return _parsed(query)
    except _Refused as error:
        raise FcaError(name, _short(query), LANGUAGE, f"mend it: {error}") from error


class _Refused(Exception):
    """Why a query cannot be read: the part that is no part of the language."""


def _parsed(query: str) -> tuple[ast.expr, dict[str, str]]:
    """The query's tree, and the column that each name in it stands for where it was in backticks."""
    if len(query) > LONGEST:
        raise _Refused(f"it has {len(query):,} characters, more than {LONGEST:,}")
    columns: dict[str, str] = {}

    def replaced(token: re.Match[str]) -> str:
        if token[1] is None:
            return _WORDS.get(token[0], token[0])
        columns[word := f"backticks_{token[1].encode().hex()}"] = token[1]
        return word

    try:
        return ast.parse(_TOKEN.sub(replaced, query).strip(), mode="eval").body, columns
    except (RecursionError, MemoryError) as error:
        raise _Refused(DEEP) from error
    except SyntaxError as error:
        near = (error.text or "")[max(0, (error.offset or 1) - 1) :].strip()
        raise _Refused(error.msg + (f" at {_short(near)}" if near else "")) from error


class _Reader:
    """Evaluates a tree on a frame, part by part; what it does not know it refuses."""

    def __init__(self, frame: pd.DataFrame, columns: Mapping[str, str]) -> None:
        self.frame, self.columns = frame, columns

    def condition(self, node: ast.expr) -> pd.Series:
        """True, False or missing for every line."""
        match node:
            case ast.BoolOp(op, values):
                joined = operator.and_ if isinstance(op, ast.And) else operator.or_
                return functools.reduce(joined, map(self.condition, values))
            case ast.UnaryOp(ast.Not() | ast.Invert(), part):
                return ~self.condition(part)
            case ast.Compare(left, operators, right):
                parts = zip([left, *right], operators, right, strict=False)
                return functools.reduce(operator.and_, (self._compared(*part) for part in parts))
            case ast.Name() if pd.api.types.is_bool_dtype(column := self._column(node)):
                return column
            case ast.Name() | ast.Constant():
                self._value(node)
                raise _refused(node, "is no condition: compare it with something")
        raise _refused(node)

    def _compared(self, left: ast.expr, comparison: ast.cmpop, right: ast.expr) -> pd.Series:
        """One comparison of a column, which may stand on either side."""
        if not isinstance(left, ast.Name):
            if not isinstance(right, ast.Name) or type(comparison) not in _TURNED:
                raise _refused(left, "stands where a column should be")
            left, right = right, left
            comparison = _TURNED[type(comparison)]()

        column = self._column(left)
        value = self._value(right)
        if isinstance(comparison, ast.In | ast.NotIn) and not isinstance(value, list | tuple):
            raise _refused(right, "is no list")
        if isinstance(comparison, ast.Is | ast.IsNot):
            raise _refused(right, "is compared by ==, not by `is`")

        if value is None and isinstance(comparison, ast.Eq | ast.NotEq):
            return column.isna() if isinstance(comparison, ast.Eq) else column.notna()
        if isinstance(value, str) and isinstance(comparison, ast.Eq | ast.NotEq):
            value = [value]  # as pandas does: a missing text then differs from every text
        try:
            if isinstance(value, list | tuple):
                return self._among(column, comparison, value)
            return _COMPARED[type(comparison)](column, value)
        except (TypeError, ValueError, OverflowError) as error:
            raise _refused(right, f"cannot be compared so with {left.id} ({column.dtype})") from error

    def _among(self, column: pd.Series, comparison: ast.cmpop, values: Iterable[Any]) -> pd.Series:
        """Whether each value of the column is among these values, or is not."""
        if not isinstance(comparison, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
            raise TypeError("a list has no order")

        allowed_values = list(values)
        if isinstance(values, tuple) and column.dtype == object:
            allowed_values.append(values)  # a tuple may be one value, as in the column `classes`
        is_among = column.isin(allowed_values)
        return is_among if isinstance(comparison, ast.In | ast.Eq) else ~is_among

    def _column(self, node: ast.Name) -> pd.Series:
        name = self.columns.get(node.id, node.id)
        if name not in self.frame:
            name = present_name(name)
        if name not in self.frame:
            near = difflib.get_close_matches(name, map(str, self.frame.columns))
            raise _Refused(f"there is no column {name!r}" + (f", but {' and '.join(near)}" if near else ""))
        return self.frame[name]

    def _value(self, node: ast.expr) -> Any:
        """A column, a plain value, or a list or tuple of plain values."""
        match node:
            case ast.Name():
                return self._column(node)
            case ast.Constant(str() | bool() | int() | float() | None as value):
                return value
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, ast.Constant(int() | float() as value)):
                return -value if isinstance(sign, ast.USub) else value
            case ast.List(parts) | ast.Tuple(parts) | ast.Set(parts):
                values = [self._literal(part) for part in parts]
                return tuple(values) if isinstance(node, ast.Tuple) else values
        raise _refused(node)

    def _literal(self, node: ast.expr) -> Any:
        """What stands in a list: a plain value, or a tuple of them."""
        value = self._value(node)
        if isinstance(value, pd.Series | list):
            raise _refused(node, "is no literal")
        return value


def _refused(node: ast.expr, why: str = "is no part of a query") -> _Refused:
    return _Refused(f"{_short(ast.unparse(node))} {why}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}..."
