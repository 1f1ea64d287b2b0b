"""Values that the declaration of a field refuses, as they are typed: a changed range needs no edit of a test."""

from dataclasses import dataclass
from typing import get_args, get_origin

from fca.validation import Allowed, describe_allowed, rules_by_field


@dataclass(frozen=True)
class RefusedValue:
    """A value that a key does not take: the word after `key=`, and how the refusal begins behind the key's name."""

    typed: str
    message: str


def refused_values(kind: type, field: str) -> list[RefusedValue]:
    """Values just beyond each end of the range that a dataclass declares for a field, or a text that is no choice.

    Raises AssertionError for a field that declares neither, of which there is nothing to refuse.
    """
    hint, rule = rules_by_field(kind)[field]
    types = _single_types(hint)
    values = _beyond(rule, step=0.1 if float in types else 1)
    assert values, f"{kind.__name__}.{field} declares no range"
    assert not any(rule.holds(value) for value in values), f"{kind.__name__}.{field} takes one of {values}"

    is_list = any(get_origin(option) is list for option in (hint, *get_args(hint)))
    refused = []
    for value in values:
        read = float(value) if float in types and int not in types else value  # as OmegaConf reads it
        message = f"{read}; allowed: {describe_allowed(kind, field)}; next: "
        refused.append(RefusedValue(f"[{value}]" if is_list else f"{value}", message))
    return refused


def _beyond(rule: Allowed, step: float) -> list[int | float | str]:
    """What a rule refuses, nearest to what it takes: an end that does not belong to the range is refused itself."""
    if rule.choices:
        return [f"not_{rule.choices[0]}"]

    values: list[int | float | str] = []
    if rule.least is not None:
        values.append(rule.least - step)
    if rule.above is not None:
        values += [rule.above, rule.above - step]
    if rule.below is not None:
        values += [rule.below, rule.below + step]
    if rule.most is not None:
        values.append(rule.most + step)
    return values


def _single_types(hint: object) -> set[object]:
    """The types of a value in a hint such as list[int | float] | None."""
    inner = get_args(hint)
    return {single for part in inner for single in _single_types(part)} if inner else {hint}
