"""A classifier of many classes seen as one of few groups: `model=grouped model@model.base=mobilenetv1_100`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fca.subset import read_superclasses
from fca.types import Classifier, FcaError, Model


@dataclass(frozen=True)
class Grouped(Model):
    """A network whose classes count as groups; the largest logit is what fca.stats.protocols.grouped_top1 scores.

    logit(group) = log Σ softmax(logits of the base)[class], over the classes of the group; other classes are left out.

    base:          any model with weights whose class keys are known.
    groups:        name of a shipped file, or path of one.
    group_columns: its columns of class keys and of groups.
    """

    contracts: ClassVar[Mapping[str, type]] = {"base": Model}

    base: Any
    groups: str
    group_columns: list[str]

    def label(self) -> str:
        return f"{self.base.label()} {read_superclasses(self.groups, self.group_columns).name}"

    def weights_label(self) -> str | None:
        return self.base.weights_label()

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: the base model's identity, and which class belongs to which group.

        Raises FcaError for a file that holds no groups.
        """
        groups = read_superclasses(self.groups, self.group_columns)
        return {
            "family": "grouped",
            "base": self.base.identity(),
            "groups": dict(groups.of),
        }

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The base network with one logit for each group that contains at least one of the base's classes.

        Raises FcaError for `classes`, since groups are not trained, and if fewer than two groups contain such classes.
        """
        import torch
        from torch import Tensor, nn

        from fca.models.networks import Joined

        if classes is not None:
            step = f"train the base itself: model={self.base.label()}"
            raise FcaError("model", self.label(), "a model to predict with: groups are not trained", step)

        base = self.base.build()
        groups = read_superclasses(self.groups, self.group_columns)
        group_names = sorted(set(groups.of.values()))  # groups.of: class key -> name of its group
        # For each logit of the base the position of its group in group_names; negative for a class without a group.
        group_of_logit = groups.codes(base.classes)
        logits_by_group = {}  # name of a group -> positions of the base's logits of its classes
        for group in np.unique(group_of_logit[group_of_logit >= 0]):
            logits_by_group[group_names[group]] = np.flatnonzero(group_of_logit == group)
        if len(logits_by_group) < 2:
            allowed = f"groups of the {len(base.classes)} classes that {self.base.label()} knows, two or more"
            raise FcaError("model.groups", self.groups, allowed, "give groups of its class keys, or model.base.classes")

        class GroupLogits(nn.Module):
            """log Σ softmax(logits)[class] over the classes of each group."""

            def forward(self, logits: Tensor) -> Tensor:
                log_probabilities = logits.float().log_softmax(dim=1)
                sums = [log_probabilities[:, positions].logsumexp(dim=1) for positions in logits_by_group.values()]
                return torch.stack(sums, dim=1)

        # features of the base -> its head -> sums over groups
        module = Joined(base, nn.Sequential(base.head, GroupLogits()))
        keys = tuple(logits_by_group)
        return Classifier(module, keys, base.geometry, base.normalise, base.embed, module.head)
