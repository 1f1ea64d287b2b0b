"""A classifier of many classes seen as one of few groups: `model=grouped model@model.base=mobilenetv1_100`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fca.subset import read_groups
from fca.types import Classifier, FcaError, Model


@dataclass(frozen=True)
class Grouped(Model):
    """A network whose classes count as groups; the largest logit is what fca.stats.protocols.grouped_top1 scores.

    logit(group) = log Σ softmax(logits of the base)[class], over the classes of the group; other classes are left out.

    base:   any model with weights whose class keys are known.
    groups: name of a shipped file, or path of one.    group_columns: its columns of class keys and of groups.
    """

    contracts: ClassVar[Mapping[str, type]] = {"base": Model}

    base: Any
    groups: str
    group_columns: list[str]

    def label(self) -> str:
        return f"{self.base.label()} {read_groups(self.groups, self.group_columns).name}"

    def weights_label(self) -> str | None:
        return self.base.weights_label()

    def identity(self) -> dict[str, Any]:
        """The base, and which class is in which group. Raises FcaError for a file that holds no groups."""
        of = dict(read_groups(self.groups, self.group_columns).of)
        return {"family": "grouped", "base": self.base.identity(), "groups": of}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The base with a head of groups. Raises FcaError for `classes`, and where fewer than two groups are known."""
        import torch
        from torch import Tensor, nn

        from fca.models.networks import Joined

        if classes is not None:
            step = f"train the base itself: model={self.base.label()}"
            raise FcaError("model", self.label(), "a model to predict with: groups are not trained", step)
        base, groups = self.base.build(), read_groups(self.groups, self.group_columns)
        codes, names = groups.codes(base.classes), sorted(set(groups.of.values()))
        columns = {names[code]: np.flatnonzero(codes == code) for code in np.unique(codes[codes >= 0])}
        if len(columns) < 2:
            allowed = f"groups of the {len(base.classes)} classes that {self.base.label()} knows, two or more"
            raise FcaError("model.groups", self.groups, allowed, "give groups of its class keys, or model.base.classes")

        class Summed(nn.Module):
            def forward(self, logits: Tensor) -> Tensor:
                logarithms = logits.float().log_softmax(dim=1)
                return torch.stack([logarithms[:, of].logsumexp(dim=1) for of in columns.values()], dim=1)

        joined = Joined(base, nn.Sequential(base.head, Summed()))
        return Classifier(joined, tuple(columns), base.geometry, base.normalise, base.embed, joined.head)
