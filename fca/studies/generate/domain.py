"""`domain=...`: the conditions under which a classifier is tested, their words, and the class to recognise."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import softmax

from fca.names import check_meant
from fca.studies.generate.protocols import Conditioned
from fca.studies.generate.stats.domain import Domain
from fca.subset import read_superclasses
from fca.types import FcaError, check_choice
from fca.validation import Allowed

DECISIONS = ("half", "largest")


@dataclass(frozen=True)
class EvaluationDomain:
    """Attributes with their values, rules that exclude combinations, a prompt, and the classes that count as right.

    A subdomain is a valid combination of values, one for each attribute; its number is its position in `space`.

    name:       of the domain.    subject: the object of every image; `{subject}` in the prompt.
    attributes, rules: see fca.studies.generate.stats.domain.Domain.
    prompt:     words with `{ATTRIBUTE}` for each attribute.
    target:     a name among `targets`, or a class key.
    targets:    name -> class keys of the classifier, or groups of them, whose probabilities are summed.
    groups:     name of a file of groups that comes with fca, or a path; null: only class keys.
    group_columns: its columns of class keys and of groups.
    decision:   half: right if the target's probability is at least one half, as with two classes.
                largest: right if it is above that of every other class.
    """

    name: str
    subject: str
    attributes: dict[str, list[str]]
    rules: list[Any]
    prompt: str
    target: str
    targets: dict[str, list[str]]
    groups: str | None
    group_columns: list[str]
    decision: Annotated[str, Allowed(choices=DECISIONS)]

    def check(self) -> None:
        """Raise FcaError for rules that exclude everything, and for a prompt that does not name each attribute."""
        # The names in braces are attributes, and `subject`, the object of every image. The name is None for text
        # that no braces follow.
        names_in_prompt = {name for _, name, _, _ in string.Formatter().parse(self.prompt) if name is not None}
        for name in sorted(names_in_prompt):
            check_choice("attribute in domain.prompt", name, ["subject", *self.attributes], "correct domain.prompt")
        missing = [name for name in self.attributes if name not in names_in_prompt]
        if missing:
            problem = f"attributes that domain.prompt lacks: {', '.join(missing)}"
            raise FcaError(problem, self.prompt, "{ATTRIBUTE} for each of them", "add them to domain.prompt")
        _ = self.space  # computed here because it raises if no combination of values is valid

    @cached_property
    def space(self) -> Domain:
        """The valid subdomains."""
        return Domain(self.attributes, self.rules)

    def wanted(self, subdomain: int, seed: int) -> Conditioned:
        """What is to be drawn for an image of a subdomain.    subdomain: its number."""
        values = self.space.values(subdomain)
        return Conditioned(self.subject, values, seed, self.prompt.format(subject=self.subject, **values))

    @property
    def prompts(self) -> list[str]:
        """The prompt of each subdomain, in order."""
        return [self.wanted(subdomain, 0).prompt for subdomain in range(len(self.space))]

    def columns(self, classes: Sequence[str]) -> Int[np.ndarray, " target"]:
        """The columns of a classifier's logits that belong to the target: the classes that count as a right answer.

        A class belongs to the target by its key, or by its group in the file of groups. Raises FcaError if no class
        belongs to the target, or if all do, so that every prediction would be right.

        classes: the class keys of the logits, in order.
        """
        group_of_class = {} if self.groups is None else read_superclasses(self.groups, self.group_columns).of
        # raises for a class that the file spells in another way, as it would silently be in no group
        check_meant("class of the model", classes, group_of_class, f"the file of groups {self.groups}")

        # `targets` lists the class keys and groups behind the name of a target; a target that it lacks is a class key.
        target_names = self.targets.get(self.target, [self.target])
        columns = [
            column
            for column, key in enumerate(classes)
            if key in target_names or group_of_class.get(key) in target_names
        ]
        if not columns or len(columns) == len(classes):
            allowed = f"classes of the model, some but not all: {', '.join(classes[:5])}, ..."
            raise FcaError("domain.target", self.target, allowed, "set domain.target, or take another model")
        return np.array(columns)

    def judged(
        self, logits: Float[np.ndarray, "images logits"], columns: Int[np.ndarray, " target"]
    ) -> tuple[Bool[np.ndarray, " images"], Float[np.ndarray, " images"]]:
        """Whether the target is recognised in each image (see `decision`), and the summed probability of its classes.

        columns: the columns of the target's logits, see the method `columns`.
        """
        probabilities = softmax(np.asarray(logits, np.float64), axis=1)
        target = probabilities[:, columns].sum(axis=1)
        if self.decision == "half":
            return target >= 0.5, target
        largest_other = np.delete(probabilities, columns, axis=1).max(axis=1)
        return target > largest_other, target
