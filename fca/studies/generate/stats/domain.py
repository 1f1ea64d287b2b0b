"""An evaluation domain: the valid combinations of some attributes' values, its subdomains."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fca.types import FcaError, check_choice

Rule = Mapping[str, Mapping[str, Any]]
MAX_COMBINATIONS = 200_000  # all of them are listed


@dataclass(frozen=True, eq=False)
class Domain:
    """Attributes, their values, and rules that exclude combinations of them.

    attributes: name -> its values, each once.
    rules:      `{"not": {attribute: value, ...}}` excludes combinations that have all of these values. In place of a
                value there may be a list: a combination then has to have one of its values.

    Raises FcaError for a name or a value that is unknown, for attributes without values, and if no combination is left.

    >>> rule = {"not": {"time": "night", "weather": "sunny"}}
    >>> Domain({"time": ["day", "night"], "weather": ["sunny", "rain"]}, [rule]).subdomains
    (('day', 'sunny'), ('day', 'rain'), ('night', 'rain'))
    """

    attributes: Mapping[str, Sequence[Any]]
    rules: Sequence[Rule] = ()

    def __post_init__(self) -> None:
        """Raise FcaError for no attributes, bad values or rules, too many combinations, and rules that exclude all."""
        if not self.attributes:
            raise FcaError("attributes", "none", "at least one, with its values", "name some")
        for name, values in self.attributes.items():
            # a string would count as a list of its letters
            if isinstance(values, str) or not values or len(set(values)) < len(values):
                raise FcaError(f"attributes.{name}", values, "a list of different values", "correct it")
        n_combinations = math.prod(len(values) for values in self.attributes.values())
        if n_combinations > MAX_COMBINATIONS:
            step = "leave out values or attributes"
            raise FcaError("attributes", f"{n_combinations:,} combinations", f"up to {MAX_COMBINATIONS:,}", step)
        for rule in self.rules:
            self._check_rule(rule)
        if not self.subdomains:
            raise FcaError("rules", f"{len(self.rules)} rules", "rules that leave a combination", "remove one of them")

    def _check_rule(self, rule: Rule) -> None:
        """Raise FcaError unless a rule is {not: {ATTRIBUTE: VALUE, ...}} with attributes and values that exist."""
        has_form = isinstance(rule, Mapping) and list(rule) == ["not"]
        if not has_form or not isinstance(rule["not"], Mapping) or not rule["not"]:
            allowed = "{not: {ATTRIBUTE: VALUE, ...}}, or a list of values"
            raise FcaError("rules", rule, allowed, "write it so")
        for name, values in rule["not"].items():
            check_choice("attribute in rules", name, self.attributes, "correct the rule")
            for value in _as_list(values):
                check_choice(f"{name} in rules", value, self.attributes[name], "correct the rule")

    @cached_property
    def subdomains(self) -> tuple[tuple[Any, ...], ...]:
        """The valid combinations of values, in the order of itertools.product.

        A subdomain is one of them; other methods take its position here as its number.
        """
        excluded_values = [{name: _as_list(values) for name, values in rule["not"].items()} for rule in self.rules]
        subdomains = []
        for combination in product(*self.attributes.values()):
            value_of = dict(zip(self.attributes, combination, strict=True))
            # a rule applies if all of its attributes have one of its values
            is_excluded = any(
                all(value_of[name] in excluded for name, excluded in rule.items()) for rule in excluded_values
            )
            if not is_excluded:
                subdomains.append(combination)
        return tuple(subdomains)

    def __len__(self) -> int:
        """The number of subdomains."""
        return len(self.subdomains)

    def values(self, subdomain: int) -> dict[str, Any]:
        """The values of a subdomain: attribute -> value.    subdomain: its position in `subdomains`."""
        return dict(zip(self.attributes, self.subdomains[subdomain], strict=True))

    @cached_property
    def codes(self) -> Int[np.ndarray, "subdomains attributes"]:
        """The values of each subdomain as numbers: each value's position among the values of its attribute."""
        positions = [{value: position for position, value in enumerate(values)} for values in self.attributes.values()]
        codes = [
            [position_of[value] for position_of, value in zip(positions, subdomain, strict=True)]
            for subdomain in self.subdomains
        ]
        return np.array(codes, dtype=np.int64)

    def indicators(self, strength: int) -> Iterator[tuple[tuple[str, ...], Float[np.ndarray, "subdomains cells"]]]:
        """For every set of `strength` attributes: their names, and which combination of their values a subdomain has.

        The combinations are a 0/1 matrix, with a column for each combination that occurs in a valid subdomain. A row
        has a single 1. With a strength of 1 it is the one-hot coding of an attribute.

        >>> [(names, cells.shape) for names, cells in Domain({"a": [0, 1], "b": [0, 1, 2]}).indicators(1)]
        [(('a',), (6, 2)), (('b',), (6, 3))]
        """
        names = list(self.attributes)
        for positions in combinations(range(len(names)), strength):
            # return_inverse: for each subdomain, the number of its combination among those that occur
            _, combination = np.unique(self.codes[:, positions], axis=0, return_inverse=True)
            n_combinations = int(combination.max()) + 1
            names_of_set = tuple(names[position] for position in positions)
            yield names_of_set, np.eye(n_combinations)[combination.ravel()]  # rows of the identity matrix: one-hot

    def as_json(self) -> str:
        """The domain as text that `domain_of` reads."""
        attributes = {name: list(values) for name, values in self.attributes.items()}
        rules = [{"not": dict(rule["not"])} for rule in self.rules]
        return json.dumps({"attributes": attributes, "rules": rules})


def domain_of(text: str) -> Domain:
    """The domain that `Domain.as_json` wrote as text.

    Raises FcaError for other text, as the store that holds it may come from elsewhere.
    """
    try:
        values = json.loads(text)
        return Domain(values["attributes"], values["rules"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FcaError("domain", text[:60], "a domain as a search wrote it", "restore the run, or remove it") from error


def _as_list(values: Any) -> list[Any]:
    """The values of a rule: those of a list, or a single one."""
    if isinstance(values, Sequence) and not isinstance(values, str):
        return list(values)
    return [values]
