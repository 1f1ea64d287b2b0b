"""A frozen network with a linear classifier on its features: what a probe run is as a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fca.models.stored import model_from
from fca.models.weights import identity_of, read_weights
from fca.types import Classifier, FcaError, Model

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Probed:
    """The model of `model=run` for a run of adaptation=probe; made by that run, not by hand.

    base:    the network whose features are read, as its class and fields; its weights file must still be there.
    weights: file with the classifier's weight (classes, features) and bias.    classes: class keys of its logits.
    """

    base: Mapping[str, Any]
    weights: str | None = None
    classes: Any = None

    @classmethod
    def of(cls, model: Model) -> Probed:
        """Over the features of this model, which may itself be a stored run."""
        kind: Any = type(model)
        return cls({"target": f"{kind.__module__}.{kind.__qualname__}", "fields": asdict(model)})  # type: ignore[call-overload]

    def label(self) -> str:
        """That of the network."""
        return self._base().label()

    def weights_label(self) -> str | None:
        """That of the network's weights."""
        return self._base().weights_label()

    def identity(self) -> dict[str, Any]:
        """The network's, and the content of the classifier's file."""
        return {**identity_of("probe", self), "base": self._base().identity()}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model; raises FcaError when asked for other classes."""
        import torch

        if classes is not None or self.weights is None:
            step = f"train the network itself: model={self.label()} with its weights"
            raise FcaError("model", "a probe", "a model to predict with: it has nothing to be trained further", step)
        encoder = self._base().build()
        state = read_weights(self.weights)
        logits, features = state["weight"].shape
        head = torch.nn.Linear(features, logits)
        head.load_state_dict(state)
        module = _joined(encoder, head)
        return Classifier(module, tuple(self.classes), encoder.geometry, encoder.normalise, encoder.embed, head)

    def _base(self) -> Model:
        return model_from({**self.base, "classes": []})[0]


def _joined(encoder: Classifier, head: nn.Module) -> nn.Module:
    """One module, so that both move to a device together: head(embed(images))."""
    import torch

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = encoder.module, head

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(encoder.embed(images))
            return logits

    return Joined()
