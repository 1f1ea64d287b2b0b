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

# A text in single or double quotes, a name in backticks (group 1), or one of & |
_TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`([^`\n]+)`|[&|]""")
_WORDS = {"&": " and ", "|": " or "}  # these bind more weakly than a comparison, as users of pandas expect of & and |
_FUNCTION_OF: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# a < b is b > a
_SIDES_SWAPPED = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


def rows_matching(frame: pd.DataFrame, query: str, name: str = "query") -> pd.DataFrame:
    """The lines of a frame for which a query is true.

    As in pandas, a missing value meets no comparison except !=, and `ncl == [2, 3]` means `ncl in [2, 3]`. Unlike
    in pandas, `weights == None` keeps the lines without a value.

    name: what the error calls the query.
    Raises FcaError if the query cannot be read.

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
        is_true = _Reader(frame, columns).condition(tree)
        return frame[is_true.fillna(value=False).astype(bool)]  # a comparison with a missing value is missing
    except (_Refused, RecursionError) as error:
        reason = error if isinstance(error, _Refused) else DEEP
        allowed = f"{LANGUAGE}; columns: {choices_in_words(frame.columns)}"
        raise FcaError(name, _short(query), allowed, f"mend it: {reason}") from error


def columns_of(query: str, name: str = "query") -> set[str]:
    """The names of columns in a query. Raises FcaError, as `rows_matching` does, if it cannot be read.

    >>> sorted(columns_of("ncl <= 5 and `file name` in ['a']"))
    ['file name', 'ncl']
    """
    tree, columns = _parsed_or_error(query, name)
    return {columns.get(node.id, node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)}


def conditions_of(query: str, name: str = "query") -> list[str]:
    """The conditions that `and` joins in a query, each as the text of a query. Raises FcaError as `rows_matching` does.

    >>> conditions_of("ncl <= 5 and (`file name` in ['a'] or seed == 1)")
    ['ncl <= 5', "`file name` in ['a'] or seed == 1"]
    >>> conditions_of("(ncl <= 5 and seed == 1) and (task == 'train')")
    ['ncl <= 5', 'seed == 1', "task == 'train'"]
    """
    tree, columns = _parsed_or_error(query, name)  # `columns`: word -> name in backticks for which it stands
    texts = [ast.unparse(condition) for condition in _joined_by_and(tree)]
    for word, column in columns.items():  # back from the words that stand for names in backticks
        texts = [text.replace(word, f"`{column}`") for text in texts]
    return texts


def _joined_by_and(tree: ast.expr) -> list[ast.expr]:
    """The conditions that `and` joins at the top of a tree, also across parentheses; otherwise the tree itself."""
    match tree:
        case ast.BoolOp(ast.And(), parts):
            return [condition for part in parts for condition in _joined_by_and(part)]
    return [tree]


def _parsed_or_error(query: str, name: str) -> tuple[ast.expr, dict[str, str]]:
    """The syntax tree of a query and its names in backticks, as `_parsed` returns them.

    name: what the error calls the query.
    Raises FcaError if the query cannot be read.
    """
    try:
        return _parsed(query)
    except _Refused as error:
        raise FcaError(name, _short(query), LANGUAGE, f"mend it: {error}") from error


class _Refused(Exception):
    """A query cannot be read; the text of the error names the part that cannot be read, and the reason."""


def _parsed(query: str) -> tuple[ast.expr, dict[str, str]]:
    """The syntax tree of a query, and a dictionary for the columns that the query names in backticks.

    Python's parser knows no backticks, so each such name is replaced by a word; the dictionary is word -> column.
    The operators & and | become `and` and `or`.
    Raises _Refused for a text that Python's parser does not take as an expression.
    """
    if len(query) > LONGEST:
        raise _Refused(f"it has {len(query):,} characters, more than {LONGEST:,}")
    columns: dict[str, str] = {}

    def as_python(token: re.Match[str]) -> str:
        """The text that replaces a match of _TOKEN: a text in quotes, a name in backticks, & or |."""
        column = token[1]
        if column is None:  # & or |; a text in quotes stays as it is
            return _WORDS.get(token[0], token[0])
        word = f"backticks_{column.encode().hex()}"  # hex, because the name may have any characters
        columns[word] = column
        return word

    try:
        python_text = _TOKEN.sub(as_python, query).strip()
        return ast.parse(python_text, mode="eval").body, columns
    except (RecursionError, MemoryError) as error:
        raise _Refused(DEEP) from error
    except SyntaxError as error:
        position = max(0, (error.offset or 1) - 1)  # Python counts from 1
        near = (error.text or "")[position:].strip()
        raise _Refused(error.msg + (f" at {_short(near)}" if near else "")) from error


class _Reader:
    """Evaluates the syntax tree of a query on a frame, node by node.

    It knows only the nodes of the language, and raises _Refused for any other, so that no query can run code.
    columns: word in the tree -> the column that it stands for, as `_parsed` returns it.
    """

    def __init__(self, frame: pd.DataFrame, columns: Mapping[str, str]) -> None:
        self.frame = frame
        self.columns = columns

    def condition(self, node: ast.expr) -> pd.Series:
        """Whether the condition holds for each line of the frame: True, False, or missing.

        node: the syntax tree of the condition.
        Raises _Refused for what is no condition.
        """
        match node:
            case ast.BoolOp(op, values):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                return functools.reduce(join, map(self.condition, values))
            case ast.UnaryOp(ast.Not() | ast.Invert(), part):
                return ~self.condition(part)
            case ast.Compare(left, operators, right):
                # A chain such as 2 <= ncl < 10 is 2 <= ncl and ncl < 10: (left side, operator, right side) of each.
                # The last of the left sides has no operator, and zip drops it
                comparisons = zip([left, *right], operators, right, strict=False)
                return functools.reduce(operator.and_, (self._compared(*comparison) for comparison in comparisons))
            case ast.Name() if pd.api.types.is_bool_dtype(column := self._column(node)):
                return column
            case ast.Name() | ast.Constant():
                self._value(node)  # raises for an unknown column, which is the better error
                raise _refused(node, "is no condition: compare it with something")
        raise _refused(node)

    def _compared(self, left: ast.expr, comparison: ast.cmpop, right: ast.expr) -> pd.Series:
        """The result of one comparison for each line of the frame: True, False, or missing.

        One side, left or right, is a column; the other side is a literal or another column.
        Raises _Refused for another comparison, and for values that cannot be compared with the column.
        """
        if not isinstance(left, ast.Name):
            if not isinstance(right, ast.Name) or type(comparison) not in _SIDES_SWAPPED:
                raise _refused(left, "stands where a column should be")
            left, right = right, left  # 5 <= ncl is read as ncl >= 5
            comparison = _SIDES_SWAPPED[type(comparison)]()

        column = self._column(left)
        value = self._value(right)
        if isinstance(comparison, ast.In | ast.NotIn) and not isinstance(value, list | tuple):
            raise _refused(right, "is no list")
        if isinstance(comparison, ast.Is | ast.IsNot):
            raise _refused(right, "is compared by ==, not by `is`")

        if value is None and isinstance(comparison, ast.Eq | ast.NotEq):
            return column.isna() if isinstance(comparison, ast.Eq) else column.notna()
        if isinstance(value, str) and isinstance(comparison, ast.Eq | ast.NotEq):
            value = [value]  # compared as a list, as pandas does: then a missing text differs from every text
        try:
            if isinstance(value, list | tuple):
                return self._is_among(column, comparison, value)
            return _FUNCTION_OF[type(comparison)](column, value)
        except (TypeError, ValueError, OverflowError) as error:
            raise _refused(right, f"cannot be compared so with {left.id} ({column.dtype})") from error

    def _is_among(self, column: pd.Series, comparison: ast.cmpop, values: Iterable[Any]) -> pd.Series:
        """Whether each value of the column is among these values, or, for != and `not in`, is not among them.

        Raises TypeError for another comparison.
        """
        if not isinstance(comparison, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
            raise TypeError("a list has no order")

        allowed_values = list(values)
        if isinstance(values, tuple) and column.dtype == object:
            allowed_values.append(values)  # a tuple may be one value, as in the column `classes`
        is_among = column.isin(allowed_values)
        return is_among if isinstance(comparison, ast.In | ast.Eq) else ~is_among

    def _column(self, node: ast.Name) -> pd.Series:
        """The column of the frame that a name in the query means. Raises _Refused for an unknown name."""
        name = self.columns.get(node.id, node.id)
        if name not in self.frame:
            name = present_name(name)  # of an earlier version
        if name not in self.frame:
            near = difflib.get_close_matches(name, map(str, self.frame.columns))
            raise _Refused(f"there is no column {name!r}" + (f", but {' and '.join(near)}" if near else ""))
        return self.frame[name]

    def _value(self, node: ast.expr) -> Any:
        """The value of one side of a comparison: a column, a plain value, or a list or tuple of plain values.

        A set becomes a list. Raises _Refused for anything else.
        """
        match node:
            case ast.Name():
                return self._column(node)
            case ast.Constant(str() | bool() | int() | float() | None as value):
                return value
            # Python parses -1 as the sign and the number 1
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, ast.Constant(int() | float() as value)):
                return -value if isinstance(sign, ast.USub) else value
            case ast.List(parts) | ast.Tuple(parts) | ast.Set(parts):
                values = [self._literal(part) for part in parts]
                return tuple(values) if isinstance(node, ast.Tuple) else values
        raise _refused(node)

    def _literal(self, node: ast.expr) -> Any:
        """An entry of a list: a plain value, or a tuple of these. Raises _Refused for a column or another list."""
        value = self._value(node)
        if isinstance(value, pd.Series | list):
            raise _refused(node, "is no literal")
        return value


def _refused(node: ast.expr, why: str = "is no part of a query") -> _Refused:
    return _Refused(f"{_short(ast.unparse(node))} {why}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}..."
