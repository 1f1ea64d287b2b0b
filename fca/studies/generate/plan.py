"""The plan of a generated set: classes, attributes, nine descriptions of each, number of images; an editable file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import yaml

from fca.render import LEVELS
from fca.store.files import DamagedFile, read_yaml
from fca.studies.generate.protocols import Request
from fca.types import FcaError, check_choice
from fca.validation import Allowed, check_values, has_type, plain_name

SUBLEVELS = 9  # three per level, easy to hard
TURNS = 3  # sublevels of a level, used in turn
PerLevel = Annotated[int, Allowed(1, 10_000)]  # limited, since all images are listed
_FOLDER_NAME = re.compile(r"[^\s/\\.][^/\\]*")  # names become folders


@dataclass(frozen=True)
class Plan:
    """A test set in levels, before any image is drawn.

    name:         of the set and its folder.
    classes:      class key -> its name for a person.
    attributes:   attribute -> nine descriptions of an image, easy to hard, three per level; `{name}` stands for the
                  class. An empty list if the generator needs no words, or if every class has its own descriptions.
    descriptions: class key -> attribute -> its own nine descriptions; they take precedence over the attribute's.
    per_level:    images per (class, attribute, level), spread over its three sublevels in turn.
    seed:         of all images.
    file:         a YAML file with some of these keys, whose values replace the ones here.
    """

    name: str
    classes: dict[str, str]
    attributes: dict[str, list[str]]
    descriptions: dict[str, dict[str, list[str]]]
    per_level: PerLevel
    seed: Annotated[int, Allowed(0)]
    file: str | None = None

    def resolved(self, per_level: int | None = None) -> Plan:
        """The plan with the values of its file, checked. Raises FcaError for the first value that is not allowed.

        per_level: images per (class, attribute, level), in place of the plan's number; None = as planned.
        """
        values = {} if self.file is None else _values_of_file(self.file)
        if per_level is not None:
            values["per_level"] = per_level
        plan = replace(self, file=None, **values)
        plan._check()
        return plan

    def template(self, label: str, attribute: str) -> list[str]:
        """The nine descriptions of a class under an attribute, with {name} for the class; empty if there are none."""
        return self.descriptions.get(label, {}).get(attribute) or self.attributes[attribute]

    def prompt(self, label: str, attribute: str, sublevel: int) -> str | None:
        """The description of a sublevel (1 to 9) with the class's name in it; None without descriptions."""
        nine = self.template(label, attribute)
        return nine[sublevel - 1].replace("{name}", self.classes[label]) if nine else None

    def requests(self) -> Iterator[Request]:
        """Every image of the plan, triplet by triplet: the easy, the medium and the hard image of one seed.

        The first triplets of all classes and attributes come first, then the second ones. So the images that a budget
        allows are balanced.
        """
        for index in range(self.per_level):
            for label, name in self.classes.items():
                for attribute in self.attributes:
                    seed = seed_of(self.seed, label, attribute, index)
                    for number, level in enumerate(LEVELS):
                        # Sublevels 1 to 9, three for each level; successive triplets take these three in turn.
                        sublevel = number * TURNS + index % TURNS + 1
                        prompt = self.prompt(label, attribute, sublevel)
                        yield Request(label, name, attribute, level, sublevel, index, seed, prompt)

    def __len__(self) -> int:
        """The number of images."""
        return len(self.classes) * len(self.attributes) * len(LEVELS) * self.per_level

    def check_words(self) -> None:
        """Raise FcaError for a class and attribute without descriptions, which a prompted generator cannot draw."""
        for label in self.classes:
            for attribute in self.attributes:
                if not self.template(label, attribute):
                    step = f"write them under plan.attributes.{attribute}, or let a language model: writer=openai"
                    raise FcaError(f"descriptions of {label}, {attribute}", "none", "nine, easy to hard", step)

    def as_yaml(self) -> str:
        """A plan file of the same content."""
        values = {key: value for key, value in asdict(self).items() if key != "file"}
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)

    def _check(self) -> None:
        """Raise FcaError for the first value that is not allowed: numbers, then names, then descriptions."""
        check_values(Plan, {"per_level": self.per_level, "seed": self.seed}, "plan")
        for key in ("classes", "attributes"):
            if not getattr(self, key):
                raise FcaError(f"plan.{key}", "none", "at least one", "name some in the plan")
        plain_name("plan.name", self.name)  # raises for a name that cannot be a folder's
        for name in (*self.classes, *self.attributes):  # these may have more characters than a plain name, but no slash
            if not _FOLDER_NAME.fullmatch(name):
                raise FcaError("name in the plan", repr(name), "a name that can be a folder's", "change it")
        self._check_texts()

    def _check_texts(self) -> None:
        """Raise FcaError for descriptions that are not nine, or of an unknown class or attribute.

        An attribute has nine descriptions for all classes, or none; a class may have nine of its own for it.
        """
        for attribute, nine in self.attributes.items():
            _check_nine(f"plan.attributes.{attribute}", nine)
        for label, by_attribute in self.descriptions.items():
            for attribute, nine in by_attribute.items():
                key = f"plan.descriptions.{label}.{attribute}"
                if label not in self.classes or attribute not in self.attributes:
                    raise FcaError(key, "unknown", "classes and attributes of the plan", "correct its name")
                _check_nine(key, nine)


def seed_of(seed: int, label: str, attribute: str, index: int) -> int:
    """The seed of a triplet, 31 bits: practically different for every class, attribute and index.

    seed: the plan's seed.    index: number of the triplet within its class and attribute.

    >>> seed_of(0, "car", "view", 3) == seed_of(0, "car", "view", 3) != seed_of(0, "car", "view", 4)
    True
    """
    digest = hashlib.sha256(f"{seed}/{label}/{attribute}/{index}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def _check_nine(where: str, nine: Sequence[str]) -> None:
    """Raise FcaError unless these are nine descriptions, or none.    where: their key in the plan, for the error.

    A description must not be blank, and must have nothing in braces but {name}.
    """
    if len(nine) not in (0, SUBLEVELS):
        raise FcaError(where, f"{len(nine)} descriptions", f"{SUBLEVELS}, easy to hard, or none", "add or remove some")
    for text in nine:
        if not text.strip() or re.search(r"\{(?!name\})\w*\}", text):  # a word in braces that is not `name`
            raise FcaError(where, repr(text), "words, and {name} where the class's name goes", "correct it")


def _values_of_file(file: str) -> dict[str, Any]:
    """The values of a plan file, by key.

    Raises FcaError for a file that cannot be read, for an unknown key, and for a value of the wrong type.
    """
    # a plan file has the fields of Plan, except the path of a file
    types = {name: hint for name, hint in get_type_hints(Plan).items() if name != "file"}
    try:
        values = read_yaml(Path(file).expanduser())
    except (OSError, DamagedFile) as error:
        allowed = f"a readable YAML file with keys of {', '.join(types)}"
        raise FcaError("plan.file", file, allowed, f"mend it: {error}") from error
    # A copy of a file in conf/plan/ also has `_target_`, and `file: null`.
    values = {key: value for key, value in values.items() if key != "_target_"}
    if values.get("file") is None:
        values.pop("file", None)
    for key, value in values.items():
        check_choice(f"key of {file}", key, types, "correct its name")
        if not has_type(value, types[key]):
            raise FcaError(f"{key} of {file}", repr(value)[:80], "what conf/plan/rendered.yaml shows", "correct it")
    return values
