"""What a key of a configuration, a stored value or a name may be: types, ranges and choices, and their words.

Beside them may stand what a key means: `seed: Annotated[Seed, "of the bootstrap"] = 0`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from fca.types import FcaError


@dataclass(frozen=True)
class Allowed:
    """What a key may be, declared where its dataclass has it: `epochs: Annotated[int, Allowed(1)]`.

    least, most: ends of a range that belong to it.    above, below: ends that do not.    choices: of a text.
    filled: whether a list needs a value. Of a list or a mapping, every value is meant.

    >>> str(Allowed(1)), str(Allowed(above=0, below=1)), str(Allowed(choices=("cpu", "gpu")))
    ('at least 1', 'above 0, below 1', 'cpu, gpu')
    """

    least: int | float | None = None
    most: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    choices: tuple[str, ...] = ()
    filled: bool = False

    def __str__(self) -> str:
        ends = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return ", ".join(self.choices or [f"{end} {value:,}" for end, value in ends.items() if value is not None])

    def holds(self, value: object) -> bool:
        """Whether a text is a choice, or not empty; whether a number is finite and in the range."""
        if isinstance(value, str):
            return value in (self.choices or {value} - {""})
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        low = self.above is None or value > self.above, self.least is None or value >= self.least
        high = self.below is None or value < self.below, self.most is None or value <= self.most
        return all((*low, *high)) and (isinstance(value, int) or math.isfinite(value))


Seed = Annotated[int, Allowed(0, 2**32 - 1)]  # what all generators of random numbers take
Workers = Annotated[int, Allowed(0, 1024)]  # threads or processes: more than the cores of any machine help nobody
Side = Annotated[int, Allowed(1, 8192)]  # of a square input, pixels: one image beyond takes a gigabyte as numbers
KINDS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text, not empty"}
KINDS |= {list: "a list: [A, B]", dict: "keys with values: {A: B}"}


@cache
def declared(kind: Any) -> dict[str, tuple[Any, Allowed]]:
    """The fields of a dataclass: name -> its type, and what of it is allowed."""
    plain, marked = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    marks = {
        name: [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Allowed)]
        for name, hint in marked.items()
    }
    return {known.name: (plain[known.name], *(marks[known.name] or [Allowed()])) for known in fields(kind)}


def allowed_of(kind: Any, name: str) -> str:
    """What a field of a dataclass may be, in words.

    >>> allowed_of(Allowed, "least"), allowed_of(Allowed, "filled")
    ('a finite number, or null', 'true or false')
    """
    hint, rule = declared(kind)[name]
    options = list(get_args(hint)) if isinstance(hint, UnionType) else [hint]
    if options == [NoneType]:
        return "null"
    origins = [get_origin(option) or option for option in options if option is not NoneType]
    last, nested = origins[-1], is_dataclass(origins[-1])
    first = f"keys with values: {', '.join(declared(last))}" if nested else KINDS.get(last, "")
    each = "each " if last in (list, dict) and str(rule) else ""
    words = [each + str(rule)] if rule.choices and not each else [first, each + str(rule)]
    return ", ".join(filter(None, words)) + (", or null" if NoneType in options else "")


def meanings_of(kind: Any) -> dict[str, str]:
    """The fields of a dataclass that declare what they mean, with the text; of several texts the field's own, the last.

    >>> @dataclass
    ... class Test:
    ...     repeats: Annotated[int, Allowed(1), "tests of each model"] = 3
    >>> meanings_of(Test)
    {'repeats': 'tests of each model'}
    """
    texts = {
        name: [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, str)]
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }
    return {known.name: texts[known.name][-1] for known in fields(kind) if texts[known.name]}


def check_values(kind: type, values: Mapping[str, Any], name: str = "") -> None:
    """Raise FcaError for the first value that its field of a dataclass does not allow, naming the key as it is typed.

    Types are not looked at. Numbers must be finite, and texts not empty, in all fields.    name: of the group.
    """
    for key, (hint, rule) in declared(kind).items():
        value, typed = values.get(key), f"{name}.{key}".removeprefix(".")
        if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):
            check_values(hint, value, typed)
        elif is_dataclass(value):
            check_values(type(value), vars(value), typed)
        elif wrong := [single for single in _singles(value) if not rule.holds(single)]:
            raise FcaError(typed, wrong[0], allowed_of(kind, key), f"correct {typed}")
        elif rule.filled and value is not None and not value:
            raise FcaError(typed, value, "one value or more", f"correct {typed}")


def check_truths(kind: type, values: Mapping[str, Any], name: str = "") -> None:
    """Raise FcaError for a number other than 0 and 1 where true or false is due: OmegaConf takes any for true."""
    for key, (hint, _) in declared(kind).items():
        value = values.get(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if hint is bool and is_number and value not in (0, 1):
            typed = f"{name}.{key}".removeprefix(".")
            raise FcaError(typed, value, allowed_of(kind, key), f"correct {typed}")


def _singles(value: object) -> Iterator[object]:
    """The values in lists and mappings, or the value itself."""
    inner = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        for part in inner:
            yield from _singles(part)
    else:
        yield inner


def plain_name(what: str, value: object) -> str:
    """The value, which is to name a file or folder: letters, digits, `.`, `_`, `-` and spaces, at most 100 of them.

    Raises FcaError for anything else, such as a name that leads to another folder or is hidden.

    >>> plain_name("report.name", "few_class 2.0")
    'few_class 2.0'
    """
    if not (isinstance(value, str) and len(value) <= 100 and re.fullmatch(r"\w(?:[\w .-]*[\w-])?", value)):
        allowed = "a plain name: letters, digits, . _ - and spaces inside it, at most 100"
        raise FcaError(what, repr(value)[:120], allowed, "choose another name")
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a value, as JSON and YAML give it, is of a type such as dict[str, list[float]] or int | None.

    >>> fits([1, 2.5], list[float] | None), fits({"a": 1}, dict[str, str]), fits(True, int), fits([8], tuple[int, ...])
    (True, False, False, True)
    """
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (UnionType, Union):
        return any(fits(value, part) for part in parts)
    if kind is Any:
        return True
    if kind is tuple and isinstance(value, list):  # JSON has no tuples
        hints = [parts[0]] * len(value) if parts[1:] == (...,) else parts
        return not parts or (len(hints) == len(value) and all(map(fits, value, hints)))
    if type(value) is not (dict if kind is Mapping else kind):
        return kind is float and type(value) is int
    if isinstance(value, dict):
        return not parts or all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in value.items())
    return not (isinstance(value, list) and parts) or all(fits(one, parts[0]) for one in value)
