"""A classifier of many classes seen as one of few groups: `model=grouped model@model.base=mobilenetv1_100`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fca.subset import read_groups
from fca.types import Classifier, FcaError


@dataclass(frozen=True)
class Grouped:
    """A network whose classes count as groups; a group's logit is the logarithm of its summed probabilities.

    logit(group) = log Σ softmax(logits of the base)[class], over the classes of the group

    The largest is what fca.stats.protocols.grouped_top1 scores. Classes in no group are left out, so that a softmax of
    these logits is given that one of the groups is shown.

    base:   any model with weights whose class keys are known.
    groups: name of a shipped file, or path of one.    group_columns: its columns of class keys and of groups.
    """

    base: Any  # a Model
    groups: str
    group_columns: list[str]

    def label(self) -> str:
        """The name of the base and of its groups, `mobilenetv1_100 imagenet_16`."""
        return f"{self.base.label()} {read_groups(self.groups, self.group_columns).name}"

    def weights_label(self) -> str | None:
        """The weights of the base."""
        return self.base.weights_label()

    @property
    def weights(self) -> str | None:
        """The weights of the base; None: it has none, and cannot predict."""
        return getattr(self.base, "weights", "none needed")

    def identity(self) -> dict[str, Any]:
        """The base, and which class is in which group. Raises FcaError for a file that holds no groups."""
        groups = read_groups(self.groups, self.group_columns)
        return {"family": "grouped", "base": self.base.identity(), "groups": dict(groups.of)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The base with a head of groups: `embed` is that of the base, whose layers lie inside `module`.

        Raises FcaError for `classes` (groups are not trained), and where the base knows classes of fewer than two.
        """
        import torch
        from torch import Tensor, nn

        from fca.models.networks import Joined

        if classes is not None:
            step = f"train the base itself: model={self.base.label()}"
            raise FcaError("model", self.label(), "a model to predict with: groups are not trained", step)
        base, groups = self.base.build(), read_groups(self.groups, self.group_columns)
        codes, names = torch.from_numpy(groups.codes(base.classes)), sorted(set(groups.of.values()))
        columns = [torch.nonzero(codes == code).flatten() for code in range(len(names))]
        known = [name for name, of in zip(names, columns, strict=True) if len(of)]
        if len(known) < 2:
            allowed = f"groups of the {len(base.classes)} classes that {self.base.label()} knows, two or more"
            raise FcaError("model.groups", self.groups, allowed, "give groups of its class keys, or model.base.classes")

        class Summed(nn.Module):
            """Logits of classes -> logarithms of the summed probabilities of groups."""

            def forward(self, logits: Tensor) -> Tensor:
                logarithms = logits.float().log_softmax(dim=1)
                return torch.stack([logarithms[:, of].logsumexp(dim=1) for of in columns if len(of)], dim=1)

        head: Any = base.head
        joined = Joined(base, nn.Sequential(head, Summed()))
        return Classifier(joined, tuple(known), base.geometry, base.normalise, base.embed, joined.head)
