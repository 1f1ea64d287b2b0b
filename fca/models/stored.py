"""Trained runs as models, `model=run model.run_id=... model.snapshot=best`; model.json, which describes a network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from fca.models import identity_of
from fca.models.compiled import Compiled
from fca.plugins import check_contract, class_of
from fca.store import Store
from fca.store.damage import compare, is_run_id, noting, removed
from fca.store.files import DamagedFile, read_object
from fca.types import Classifier, FcaError, Model
from fca.validation import has_type

DESCRIPTION = "model.json"
SUFFIX = ".safetensors"
BEST = "best"


@dataclass(frozen=True)
class StoredRun(Model):
    """The network that a `train` run trained, with the weights that the run left in its folder.

    outputs:  the store, the folder in which runs are kept.
    run_id:   the id of the train run.
    snapshot: best (the epoch with the best validation accuracy), or a fraction of all steps as in recipe.snapshots:
    0.5.
    """

    outputs: str
    run_id: str
    snapshot: str

    def label(self) -> str:
        model, _ = self._trained_model_and_classes()
        return model.label()

    def weights_label(self) -> str | None:
        return f"{self.run_id}/{self._snapshot_name}"

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: the run of the training, which stands for its configuration, and the snapshot.

        Raises FcaError if either does not exist, or if the training diverged; DamagedFile for damaged files of the run.
        """
        damage = Store(Path(self.outputs)).problem(self.run_id) if is_run_id(self.run_id) else None
        if damage:
            raise damage
        self._weights_file()  # raises FcaError if they are not there
        return {"run": self.run_id, "snapshot": self._snapshot_name}

    def keys(self) -> list[str]:
        """The class keys of the network's logits, in their order. Raises FcaError for a run that does not exist."""
        _, classes = self._trained_model_and_classes()
        return classes

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The network with its trained weights.

        classes: if given, the network gets a fresh head for them, to be trained further.
        Raises FcaError for a run that does not exist, diverged or lost its weights, and for `classes` if it trained a
        probe; DamagedFile if the file of weights is not the one that the run wrote.
        """
        model, trained_classes = self._trained_model_and_classes()
        weights = self._weights_file()
        # `compare` raises DamagedFile if the file has another size or hash than the run recorded. Then `noting` leaves
        # a note in the run's folder: while it is there, the store compares all files of this run with their hashes.
        with noting():
            compare(weights)

        if isinstance(model, Probed):  # a linear classifier on frozen features: the file has this classifier alone
            return replace(model, weights=str(weights), classes=trained_classes).build(classes)

        from fca.models.networks import restored

        return restored(model, weights, trained_classes, classes)

    def compiled(self) -> Compiled | None:
        """The compiled network whose features this run's linear classifier reads; None for other runs.

        Runs of adaptation=probe train such a classifier on the features of a network that stays as it is.
        """
        model, _ = self._trained_model_and_classes()
        if not isinstance(model, Probed):
            return None
        base = model.base_model()
        return base if isinstance(base, Compiled) else None

    def program(self) -> bytes | None:
        """The ONNX program of a compiled network with this run's linear classifier as its last layer.

        None for runs that trained no linear classifier on the features of a compiled network.
        """
        from fca.models.checkpoints import read_weights

        base = self.compiled()
        if base is None:
            return None
        layer = read_weights(str(self._weights_file()))
        return base.with_head(layer["weight"].numpy(), layer["bias"].numpy())

    @property
    def _snapshot_name(self) -> str:
        return snapshot_name(self.snapshot)

    def _trained_model_and_classes(self) -> tuple[Any, list[str]]:
        """The model that was trained, as configured, and its class keys in logit order: the content of model.json.

        Raises FcaError for a run that does not exist or trained nothing, and DamagedFile if the content of model.json
        is another run instead of a network.
        """
        folder = Path(self.outputs) / "runs"
        path = folder / self.run_id / DESCRIPTION
        try:
            if not is_run_id(self.run_id):  # such as `../elsewhere`, which would leave the store
                raise FileNotFoundError(self.run_id)
            description = read_object(path, target=str, fields=dict, classes=list)
            model, classes = model_from_description(description, str(path))
        except FileNotFoundError:
            run_ids = sorted(path.parent.name for path in folder.glob(f"*/{DESCRIPTION}"))
            examples = ", ".join(run_ids[:10]) or "none yet"
            if len(run_ids) > 10:
                examples += ", ..."
            allowed = f"a train run in {self.outputs}: {examples}"
            raise FcaError("model.run_id", self.run_id, allowed, "list them: fca results") from None

        if isinstance(model, StoredRun):  # `describe_model` writes none, since runs could name each other in a circle
            raise DamagedFile(path, f"describes no network but run {model.run_id:.40}")
        if isinstance(model, Probed):
            # The network whose features it reads may be a run of this store, which may have moved since the training.
            model = model.in_store(self.outputs)
        return model, classes

    def _weights_file(self) -> Path:
        """The file in the run's folder that has the weights of the chosen snapshot, a moment of the training.

        Raises FcaError for a training that diverged, whose weights mean nothing; if the file was removed on purpose,
        with the command that makes it again; and for a snapshot that the run never kept.
        """
        self._trained_model_and_classes()  # raises FcaError for a run that is not there
        store = Store(Path(self.outputs))
        if store.has_diverged(self.run_id):
            allowed = (
                "a training whose losses and weights stayed finite; this one diverged, and its weights mean nothing"
            )
            step = "train again with a lower recipe.lr, or choose another run: fca results task=train"
            raise FcaError("model.run_id", self.run_id, allowed, step)

        folder = Path(self.outputs, "runs", self.run_id)
        snapshot = self._snapshot_name  # in its single spelling: 0.5 where the setting is 0.50
        file_by_snapshot = {_snapshot_in_file(path): path for path in folder.glob(f"*{SUFFIX}")}
        if snapshot in file_by_snapshot:
            return file_by_snapshot[snapshot]

        # `removed` gives: name of a removed file -> what removed it, in words
        reason_by_snapshot = {_snapshot_in_file(Path(name)): reason for name, reason in removed(folder).items()}
        reason = reason_by_snapshot.get(snapshot)
        if reason:
            # The run's own command, but such that it keeps the weights this time.
            words = str(store.row(self.run_id).get("command")).split(" ")
            command = " ".join(word for word in words if not word.startswith("machine.keep_weights="))
            step = f"train it again: rm -r {folder}; {command} machine.keep_weights=snapshots"
            allowed = f"weights that are there; those of run {self.run_id} were removed by {reason}"
            raise FcaError("model.snapshot", self.snapshot, allowed, step)

        allowed = f"what run {self.run_id} kept: {', '.join(sorted(file_by_snapshot)) or 'nothing yet'}"
        step = "choose one, or train with recipe.snapshots=[...]"
        raise FcaError("model.snapshot", self.snapshot, allowed, step)


@dataclass(frozen=True)
class Probed(Model):
    """A frozen network with a linear classifier (a probe) on its features: the model that adaptation=probe trains.

    base:    description of the network whose features are read: its class (`target`) and `fields`. If it names a file
             of weights, that file must still exist.
    weights: file with the probe's weight (classes, features) and bias (classes); None while the probe is not trained.
    classes: class keys of its logits.
    """

    base: Mapping[str, Any]
    weights: str | None = None
    classes: Any = None

    @classmethod
    def of(cls, model: Model) -> Probed:
        """An untrained probe on the features of this model, which may itself be a stored run."""
        return cls(_class_and_fields(model))

    def in_store(self, outputs: str) -> Probed:
        """The same probe, but with a base that is read from this store, if the base is a stored run that the store has.

        The description of a probe names the folder in which the store was. It may have been moved or copied since then.
        outputs: folder of the store.
        """
        base_fields = self.base.get("fields")
        if not isinstance(base_fields, dict) or not {"outputs", "run_id"} <= base_fields.keys():
            return self  # the base is no stored run

        run_id = str(base_fields["run_id"])
        if not is_run_id(run_id) or not Path(outputs, "runs", run_id).is_dir():
            return self
        return replace(self, base={**self.base, "fields": {**base_fields, "outputs": outputs}})

    def label(self) -> str:
        return self.base_model().label()

    def weights_label(self) -> str | None:
        return self.base_model().weights_label()

    def identity(self) -> dict[str, Any]:
        return identity_of("probe", self, base=self.base_model().identity())

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The base network with the probe, a linear classifier, as its head.

        Raises FcaError for `classes`, since a probe is not trained further, and for a probe that is not trained yet.
        """
        from torch import nn

        from fca.models.checkpoints import read_weights
        from fca.models.networks import Joined

        if classes is not None or self.weights is None:  # without weights it is not trained yet
            step = f"train the network itself: model={self.label()} with its weights"
            raise FcaError("model", "a probe", "a model to predict with: it has nothing to be trained further", step)

        encoder = self.base_model().build()
        layer = read_weights(self.weights)
        n_classes, n_features = layer["weight"].shape
        head = nn.Linear(n_features, n_classes)
        head.load_state_dict(layer)
        module = Joined(encoder, head)
        return Classifier(module, tuple(self.classes), encoder.geometry, encoder.normalise, encoder.embed, head)

    def base_model(self) -> Model:
        """The model whose features the probe (a linear classifier) reads.

        If the base is a stored run that trained a probe, the base of that probe is taken, and so on. Raises FcaError if
        the base is described as a probe itself, and for runs that name each other in a circle.
        """
        # self.base has the class and the fields of a model. A description of a model must also have class keys; a base
        # has none, since only its features are read.
        model, _ = model_from_description({**self.base, "classes": []})
        visited: list[Model] = []  # stored runs that trained a probe
        while isinstance(model, StoredRun) and model not in visited:
            stored_model, _ = model._trained_model_and_classes()
            if not isinstance(stored_model, Probed):
                return model
            visited.append(model)
            model, _ = model_from_description({**stored_model.base, "classes": []})

        # A probe, or a run that was met before: no command writes such a base, only an edit of the file.
        if isinstance(model, Probed) or model in visited:
            raise FcaError("base of a probe", repr(self.base)[:80], "a network", "train this run again")
        return model


def describe_model(model: Model, classes: Sequence[str]) -> dict[str, Any]:
    """The content of model.json: class and fields of the model that is trained, and the class keys of its logits.

    A stored run that is trained further is described by the model that was trained there, so that no two runs can name
    each other.
    """
    if isinstance(model, StoredRun):
        model, _ = model._trained_model_and_classes()
    return {**_class_and_fields(model), "classes": list(classes)}


def _class_and_fields(model: Any) -> dict[str, Any]:
    """A model as JSON, from which an equal model can be made: the path of its class (`target`) and its `fields`.

    Raises FcaError for fields that JSON cannot hold.
    """
    kind = type(model)
    names = {field.name for field in fields(model) if field.init}  # the fields that its class takes as arguments
    values = {name: value for name, value in asdict(model).items() if name in names}
    try:
        json.dumps(values)
    except TypeError as error:
        allowed = f"text, numbers, lists and dictionaries, of which the model is made again ({error})"
        raise FcaError(f"fields of {kind.__qualname__}", repr(values)[:80], allowed, "change their types") from error
    return {"target": f"{kind.__module__}.{kind.__qualname__}", "fields": values}


def model_from_description(description: object, path: str = DESCRIPTION) -> tuple[Any, list[str]]:
    """The inverse of `describe_model`: the model as it was before training, and its class keys in logit order.

    description: content of model.json.
    path:        that file's path, for messages.

    The file may come from elsewhere, so only certain classes are made from it: those of fca.models, or of a module that
    the user lists under `plugins`. Raises FcaError for another class, and for fields that are missing, unknown or of
    another type.
    """
    step = "train this run again"
    content = description if isinstance(description, dict) else {}
    has_keys = set(content) >= {"target", "fields", "classes"}
    if not has_keys or not has_type(content["classes"], list[str]):
        raise FcaError(path, repr(description)[:80], "target, fields and classes of a model", step)

    kind: Any = class_of(f"target in {path}", content["target"], "fca.models")
    values = content["fields"]
    field_by_name = {field.name: field for field in fields(kind) if field.init}
    required = set()  # names of the fields without a default
    for name, field in field_by_name.items():
        if field.default is MISSING and field.default_factory is MISSING:
            required.add(name)

    check_contract(f"target in {path}", kind, Model)  # raises FcaError for a class that is no model
    if not isinstance(values, dict) or not required <= set(values) <= set(field_by_name):
        allowed = f"{', '.join(field_by_name)} of {kind.__name__}"
        raise FcaError(f"fields in {path}", repr(values)[:80], allowed, step)

    for name, hint in get_type_hints(kind).items():
        if name in values and not has_type(values[name], hint):
            raise FcaError(f"{name} in {path}", repr(values[name])[:80], f"a value of {hint}", step)
    return kind(**values), content["classes"]


def _snapshot_in_file(path: Path) -> str:
    """The snapshot whose weights a file holds, by its name: best.safetensors or snapshot-0.50.safetensors."""
    return snapshot_name(path.stem.removeprefix("snapshot-"))


def snapshot_name(name: str | float) -> str:
    """The single spelling of a snapshot: the shortest decimal of a fraction, or its name.

    >>> snapshot_name("0.50"), snapshot_name("best")
    ('0.5', 'best')
    """
    try:
        return str(float(name))
    except ValueError:
        return str(name)
