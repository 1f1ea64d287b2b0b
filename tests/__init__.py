"""Shapes in signatures are checked while tests run: pyproject.toml names `tests.checked` to jaxtyping's import hook."""

import functools
import inspect
from collections import Counter
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import beartype as checked

MOST = 20  # calls of a function that each test checks: not all of the thousands in a loop
calls: Counter[int] = Counter()  # of this test
of_all = jaxtyping.jaxtyped


def has_shapes(hint: Any) -> bool:
    """Whether a hint has an array with named axes somewhere in it."""
    return (inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)) or any(map(has_shapes, get_args(hint)))


def resolved(function: Any) -> dict[str, Any]:
    """Hints that are known while tests run; names imported for type checkers alone are not."""
    known: dict[str, Any] = {}
    for name, hint in function.__annotations__.items():
        try:
            known |= get_type_hints(type("", (), {"__annotations__": {name: hint}}), function.__globals__, None, True)
        except (NameError, AttributeError):
            continue
    return known


def jaxtyped(decorated: Any = None, *, typechecker: Any = None) -> Any:
    """What the import hook decorates everything with, for functions with shapes alone: mypy checks other types.

    The hook's own way binds the arguments of every call and checks them twice: a third of the time of all tests.
    """
    if decorated is None:
        return jaxtyped
    if inspect.isclass(decorated):
        if is_dataclass(decorated):
            decorated.__init__ = jaxtyped(decorated.__init__)
        return decorated
    if "<locals>" in decorated.__qualname__:
        return decorated
    hints = resolved(decorated)
    if inspect.isgeneratorfunction(decorated):
        hints.pop("return", None)  # what is yielded is not looked at
    if not any(map(has_shapes, hints.values())):
        return decorated
    decorated.__annotations__ = hints
    checking, name = of_all(checked(decorated), typechecker=None), id(decorated)

    @functools.wraps(decorated)
    def of_first_calls(*args: Any, **keys: Any) -> Any:
        if calls[name] == MOST:
            return decorated(*args, **keys)
        calls[name] += 1
        return checking(*args, **keys)

    return of_first_calls


jaxtyping.jaxtyped = jaxtyped
