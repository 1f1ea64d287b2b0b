"""An evaluation domain: the valid combinations of some attributes' values, its subdomains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fca.types import FcaError, check_choice

Rule = Mapping[str, Mapping[str, Any]]
MOST = 200_000  # combinations: all of them are listed


@dataclass(frozen=True, eq=False)
class Domain:
    """Attributes, their values, and rules that exclude combinations of them.

    attributes: name -> its values, each once.
    rules:      `{"not": {attribute: value, ...}}` excludes what has all of these values; in place of a value there may
                be a list, any of which counts.

    Raises FcaError for a name or a value that is unknown, for attributes without values, and where no combination is
    left.

    >>> rule = {"not": {"time": "night", "weather": "sunny"}}
    >>> Domain({"time": ["day", "night"], "weather": ["sunny", "rain"]}, [rule]).subdomains
    (('day', 'sunny'), ('day', 'rain'), ('night', 'rain'))
    """

    attributes: Mapping[str, Sequence[Any]]
    rules: Sequence[Rule] = ()

    def __post_init__(self) -> None:
        """Refuse what describes no domain."""
        if not self.attributes:
            raise FcaError("attributes", "none", "at least one, with its values", "name some")
        for name, values in self.attributes.items():
            if isinstance(values, str) or not values or len(set(values)) < len(values):
                raise FcaError(f"attributes.{name}", values, "a list of different values", "correct it")
        if (count := int(np.prod([float(len(values)) for values in self.attributes.values()]))) > MOST:
            raise FcaError("attributes", f"{count:,} combinations", f"up to {MOST:,}", "leave out values or attributes")
        for rule in self.rules:
            self._check_rule(rule)
        if not self.subdomains:
            raise FcaError("rules", f"{len(self.rules)} rules", "rules that leave a combination", "remove one of them")

    def _check_rule(self, rule: Rule) -> None:
        if (
            not isinstance(rule, Mapping)
            or list(rule) != ["not"]
            or not isinstance(rule["not"], Mapping)
            or not rule["not"]
        ):
            allowed = "{not: {ATTRIBUTE: VALUE, ...}}, or a list of values"
            raise FcaError("rules", rule, allowed, "write it so")
        for name, values in rule["not"].items():
            check_choice("attribute in rules", name, self.attributes, "correct the rule")
            for value in _listed(values):
                check_choice(f"{name} in rules", value, self.attributes[name], "correct the rule")

    @cached_property
    def subdomains(self) -> tuple[tuple[Any, ...], ...]:
        """The valid combinations in itertools.product order; a subdomain is its row number here."""
        excluded = [{name: _listed(values) for name, values in rule["not"].items()} for rule in self.rules]
        places = {name: place for place, name in enumerate(self.attributes)}

        def is_valid(combination: tuple[Any, ...]) -> bool:
            return not any(all(combination[places[n]] in values for n, values in rule.items()) for rule in excluded)

        return tuple(filter(is_valid, product(*self.attributes.values())))

    def __len__(self) -> int:
        return len(self.subdomains)

    def values(self, subdomain: int) -> dict[str, Any]:
        """Attribute -> value of a subdomain."""
        return dict(zip(self.attributes, self.subdomains[subdomain], strict=True))

    @cached_property
    def codes(self) -> Int[np.ndarray, "subdomains attributes"]:
        """Position of each subdomain's value among those of each attribute."""
        at = [{value: place for place, value in enumerate(values)} for values in self.attributes.values()]
        rows = [[of[value] for of, value in zip(at, row, strict=True)] for row in self.subdomains]
        return np.array(rows, dtype=np.int64)

    def indicators(self, strength: int) -> Iterator[tuple[tuple[str, ...], Float[np.ndarray, "subdomains cells"]]]:
        """For every set of `strength` attributes: their names, and which of their value tuples each subdomain has.

        A column for each tuple that some valid subdomain has. strength 1 is the one-hot coding.

        >>> [(names, cells.shape) for names, cells in Domain({"a": [0, 1], "b": [0, 1, 2]}).indicators(1)]
        [(('a',), (6, 2)), (('b',), (6, 3))]
        """
        names = list(self.attributes)
        for chosen in combinations(range(len(names)), strength):
            _, cell = np.unique(self.codes[:, chosen], axis=0, return_inverse=True)
            yield tuple(names[place] for place in chosen), np.eye(int(cell.max()) + 1)[cell.ravel()]

    def as_json(self) -> str:
        """What `domain_of` reads."""
        rules = [{"not": dict(rule["not"])} for rule in self.rules]
        return json.dumps({"attributes": {name: list(of) for name, of in self.attributes.items()}, "rules": rules})


def domain_of(text: str) -> Domain:
    """The domain that was written as JSON. Raises FcaError for what is none: a store may come from elsewhere."""
    try:
        values = json.loads(text)
        return Domain(values["attributes"], values["rules"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FcaError("domain", text[:60], "a domain as a search wrote it", "restore the run, or remove it") from error


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]
