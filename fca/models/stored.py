"""A trained run as a model: `model=run model.run_id=... model.snapshot=best`. How its network is written and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fca.types import Classifier, FcaError, Model

DESCRIPTION = "model.json"
SUFFIX = ".safetensors"
BEST = "best"


@dataclass(frozen=True)
class StoredRun:
    """The weights that a `train` run left in its folder.

    outputs:  where runs are kept.    run_id: of the train run.
    snapshot: best (the best epoch on val), or an asked fraction of all steps: 0.5.
    """

    outputs: str
    run_id: str
    snapshot: str

    def label(self) -> str:
        """That of the network that was trained."""
        return self._trained()[0].label()

    def weights_label(self) -> str | None:
        """Which run and snapshot."""
        return f"{self.run_id}/{self._name}"

    def identity(self) -> dict[str, Any]:
        """The run, which says everything, and the snapshot. Raises FcaError if they are not there."""
        self._weights()
        return {"run": self.run_id, "snapshot": self._name}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """See nouns.Model: the network as it was trained, or with a fresh head for `classes`."""
        model, trained = self._trained()
        stored: Any = model  # every family of networks has these two fields
        return replace(stored, weights=str(self._weights()), classes=trained).build(classes)  # type: ignore[no-any-return]

    @property
    def _name(self) -> str:
        return snapshot_name(self.snapshot)

    @property
    def _folder(self) -> Path:
        return Path(self.outputs) / "runs" / self.run_id

    def _trained(self) -> tuple[Model, list[str]]:
        """The network that was trained, and its class keys in logit order."""
        try:
            return model_from(json.loads((self._folder / DESCRIPTION).read_text()))
        except FileNotFoundError:
            runs = sorted(path.parent.name for path in self._folder.parent.glob(f"*/{DESCRIPTION}"))
            shown = ", ".join(runs[:10]) + (", ..." if len(runs) > 10 else "") if runs else "none yet"
            allowed = f"a train run in {self.outputs}: {shown}"
            raise FcaError("model.run_id", self.run_id, allowed, "list them: fca results") from None

    def _weights(self) -> Path:
        self._trained()
        found = {snapshot_name(path.stem.removeprefix("snapshot-")): path for path in self._folder.glob(f"*{SUFFIX}")}
        if self._name not in found:
            allowed = f"what run {self.run_id} kept: {', '.join(sorted(found)) or 'nothing yet'}"
            step = "choose one, or train with recipe.snapshots=[...]"
            raise FcaError("model.snapshot", self.snapshot, allowed, step)
        return found[self._name]


def describe_model(model: Model, classes: Sequence[str]) -> dict[str, Any]:
    """What model.json says: the network that is trained and the class keys of its logits; see `model_from`.

    A model that is itself a stored run is described by what was trained there.
    """
    if isinstance(model, StoredRun):
        model, _ = model._trained()
    kind: Any = type(model)
    return {
        "target": f"{kind.__module__}.{kind.__qualname__}",
        "fields": asdict(model),  # type: ignore[call-overload]
        "classes": list(classes),
    }


def model_from(description: Mapping[str, Any]) -> tuple[Model, list[str]]:
    """The model that `describe_model` described, as it was before training, and its class keys in logit order."""
    module, _, name = str(description["target"]).rpartition(".")
    model: Model = getattr(import_module(module), name)(**description["fields"])
    return model, list(description["classes"])


def snapshot_name(name: str | float) -> str:
    """One spelling of a snapshot: 0.5 for 0.50.

    >>> snapshot_name("0.50"), snapshot_name("best")
    ('0.5', 'best')
    """
    try:
        return str(float(name))
    except ValueError:
        return str(name)
