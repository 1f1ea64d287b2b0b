"""Allowed values of a configuration key, a stored value or a name: types, ranges and choices, and their description.

The declaration of a key may also have its meaning: `seed: Annotated[Seed, "of the bootstrap"] = 0`.
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
    """The allowed values of a configuration key, declared with its field: `epochs: Annotated[int, Allowed(1)]`.

    least, most:  ends of a range, included.
    above, below: ends, excluded.
    choices:      the allowed texts.
    non_empty:    whether a list needs at least one value.
    For a list or a mapping, the rule applies to every value in it.

    >>> str(Allowed(1)), str(Allowed(above=0, below=1)), str(Allowed(choices=("cpu", "gpu")))
    ('at least 1', 'above 0, below 1', 'cpu, gpu')
    """

    least: int | float | None = None
    most: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    choices: tuple[str, ...] = ()
    non_empty: bool = False

    def __str__(self) -> str:
        """The rule in words, for messages: the choices, or the ends of the range; "" if there is no rule."""
        if self.choices:
            return ", ".join(self.choices)

        ends = {
            "at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        return ", ".join(f"{end} {value:,}" for end, value in ends.items() if value is not None)

    def holds(self, value: object) -> bool:
        """Whether the rule allows a single value.

        A text must be one of the choices, or not empty if there are none. A number must be finite and in the range.
        Values of other types are always allowed.
        """
        if isinstance(value, str):
            return value in self.choices if self.choices else value != ""
        if isinstance(value, bool) or not isinstance(value, int | float):  # in Python a bool is an int
            return True
        if isinstance(value, float) and not math.isfinite(value):
            return False

        is_above = self.above is None or value > self.above
        is_below = self.below is None or value < self.below
        is_at_least = self.least is None or value >= self.least
        is_at_most = self.most is None or value <= self.most
        return is_above and is_below and is_at_least and is_at_most


Seed = Annotated[int, Allowed(0, 2**32 - 1)]  # the range that all random number generators take
Workers = Annotated[int, Allowed(0, 1024)]  # threads or processes: no machine has more cores
Side = Annotated[int, Allowed(1, 8192)]  # of a square input, pixels: one larger image takes a gigabyte as floats
WORDS_BY_TYPE = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a text, not empty",
    list: "a list: [A, B]",
    dict: "keys with values: {A: B}",
}


@cache
def rules_by_field(kind: Any) -> dict[str, tuple[Any, Allowed]]:
    """The fields of a dataclass: name -> its type, and the rule for its values (`Allowed()` if none is declared)."""
    types = get_type_hints(kind)
    annotations = get_type_hints(kind, include_extras=True)
    type_and_rule_by_field = {}
    for field in fields(kind):
        metadata = getattr(annotations[field.name], "__metadata__", ())  # what `Annotated` adds; () without it
        [rule] = [entry for entry in metadata if isinstance(entry, Allowed)] or [Allowed()]
        type_and_rule_by_field[field.name] = (types[field.name], rule)
    return type_and_rule_by_field


def describe_allowed(kind: Any, name: str) -> str:
    """The allowed values of a field of a dataclass in words, for messages: its type, its rule, and "or null".

    kind: the dataclass.
    name: of the field.

    >>> describe_allowed(Allowed, "least"), describe_allowed(Allowed, "non_empty")
    ('a finite number, or null', 'true or false')
    """
    hint, rule = rules_by_field(kind)[name]
    options = list(get_args(hint)) if isinstance(hint, UnionType) else [hint]
    if options == [NoneType]:
        return "null"

    types = [get_origin(option) or option for option in options if option is not NoneType]  # list for list[str]
    last_type = types[-1]  # stands for all of them: int | float is described as a number
    is_container = last_type in (list, dict)
    is_nested = is_dataclass(last_type)
    if rule.choices and not is_container:
        type_words = ""  # the choices show the type
    elif is_nested:
        type_words = f"keys with values: {', '.join(rules_by_field(last_type))}"
    else:
        type_words = WORDS_BY_TYPE.get(last_type, "")

    rule_words = str(rule)
    if rule_words and is_container:
        rule_words = f"each {rule_words}"

    words = [type_words, rule_words]
    if NoneType in options:
        words.append("or null")
    return ", ".join(filter(None, words))


def meanings_of(kind: Any) -> dict[str, str]:
    """The meanings that the fields of a dataclass declare as a text in `Annotated`: name -> text.

    If there are several texts, it is the last one: a type such as `Seed` may have one, and the field adds its own.

    >>> @dataclass
    ... class Test:
    ...     repeats: Annotated[int, Allowed(1), "tests of each model"] = 3
    >>> meanings_of(Test)
    {'repeats': 'tests of each model'}
    """
    annotations = get_type_hints(kind, include_extras=True)
    meanings = {}
    for field in fields(kind):
        metadata = getattr(annotations[field.name], "__metadata__", ())
        texts = [entry for entry in metadata if isinstance(entry, str)]
        if texts:
            meanings[field.name] = texts[-1]
    return meanings


def check_values(kind: type, values: Mapping[str, Any], name: str = "") -> None:
    """Raise FcaError if a field of a dataclass does not allow its value; the message names the first such field.

    kind:   the dataclass, whose fields declare the allowed values (see `Allowed`).
    values: field -> value; a value that is a dataclass itself, or a mapping for one, is checked field by field.
    name:   the group of keys, such as "recipe", so that the message has the whole key as a user types it:
            recipe.epochs.

    Types are not checked. In all fields numbers must be finite, and texts not empty.
    """
    for key, (hint, rule) in rules_by_field(kind).items():
        value = values.get(key)
        typed_key = f"{name}.{key}".removeprefix(".")  # without a name there is no point before the key
        if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):  # not yet an object
            check_values(hint, value, typed_key)
            continue
        if is_dataclass(value):
            check_values(type(value), vars(value), typed_key)
            continue

        for single_value in _single_values(value):  # of a list or a mapping its items
            if not rule.holds(single_value):
                raise FcaError(typed_key, single_value, describe_allowed(kind, key), f"correct {typed_key}")
        if rule.non_empty and value is not None and not value:  # null stays allowed
            raise FcaError(typed_key, value, "one value or more", f"correct {typed_key}")


def check_truths(kind: type, values: Mapping[str, Any], name: str = "") -> None:
    """Raise FcaError for a number other than 0 and 1 in a field of type bool; OmegaConf would take it for true.

    kind, values, name: see `check_values`.
    """
    for key, (hint, _) in rules_by_field(kind).items():
        value = values.get(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if hint is bool and is_number and value not in (0, 1):
            typed_key = f"{name}.{key}".removeprefix(".")
            raise FcaError(typed_key, value, describe_allowed(kind, key), f"correct {typed_key}")


def _single_values(value: object) -> Iterator[object]:
    """The values in lists and mappings, nested at any depth; of any other value, the value itself."""
    items = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(items, Sequence) or isinstance(items, str):
        yield items
        return
    for item in items:
        yield from _single_values(item)


def plain_name(what: str, value: object) -> str:
    """Return a value that will name a file or folder, if it is safe for that.

    It may have up to 100 letters, digits, `.`, `_`, `-` and spaces. Raises FcaError for anything else, such as a name
    that leads to another folder or is hidden.
    what: the key of the value, for the message.

    >>> plain_name("report.name", "few_class 2.0")
    'few_class 2.0'
    """
    if not (isinstance(value, str) and len(value) <= 100 and re.fullmatch(r"\w(?:[\w .-]*[\w-])?", value)):
        allowed = "a plain name: letters, digits, . _ - and spaces inside it, at most 100"
        raise FcaError(what, repr(value)[:120], allowed, "choose another name")
    return value


def has_type(value: Any, hint: Any) -> bool:
    """Whether a value that was read from JSON or YAML has a type such as dict[str, list[float]] or int | None.

    A list counts as a tuple, because JSON has none, and an int as a float. A bool is no int.

    >>> has_type([1, 2.5], list[float] | None), has_type({"a": 1}, dict[str, str])
    (True, False)
    >>> has_type(True, int), has_type([8], tuple[int, ...])
    (False, True)
    """
    kind = get_origin(hint) or hint
    arguments = get_args(hint)
    if kind in (UnionType, Union):
        return any(has_type(value, option) for option in arguments)
    if kind is Any:
        return True

    if kind is tuple and isinstance(value, list):
        if not arguments:
            return True
        has_any_length = arguments[1:] == (...,)  # tuple[int, ...]
        item_hints = [arguments[0]] * len(value) if has_any_length else arguments
        return len(item_hints) == len(value) and all(map(has_type, value, item_hints))

    python_type = dict if kind is Mapping else kind
    if type(value) is not python_type:  # the exact type, because isinstance(True, int) is true
        return kind is float and type(value) is int  # 1 may stand for 1.0
    if not arguments:
        return True

    if isinstance(value, dict):
        key_hint, item_hint = arguments
        return all(has_type(key, key_hint) and has_type(item, item_hint) for key, item in value.items())
    if isinstance(value, list):
        return all(has_type(item, arguments[0]) for item in value)
    return True
