"""What a classifier answers on every image of a split whose class it knows; subsets are scored from stored logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from fca.data.splits import as_trained_on
from fca.groups import Groups, read_groups
from fca.models.stored import StoredRun
from fca.nouns import FcaError, Finished, Model, Run
from fca.store import State, Store
from fca.store.columns import Row
from fca.tasks import Setup
from fca.tasks.answers import CLEAN, answers, predict_run, subset_columns
from fca.tasks.score import score, score_run


@runtime_checkable
class Nameable(Protocol):
    """A model that answers about any classes it is told the names of (zero-shot)."""

    def naming(self, classes: Sequence[str]) -> Model: ...


@dataclass(frozen=True)
class Predict:
    """`task=predict`: one heavy run a shift for the whole split; light `score` runs when a subset or groups are asked.

    keep:   logits = keep them for shifted images too (40 bytes an image of ten classes); null = for clean ones only.
    groups: a file of classes and groups, or the name of one (see fca.groups), for the grouped protocol.
    group_columns: the file's columns of class keys and of groups.
    """

    split: str
    keep: str | None
    groups: str | None
    group_columns: list[str]

    def plan(self, setup: Setup) -> list[Run]:
        """A predict run a shift, whatever the subset and seed; the scores of the subset on their stored logits."""
        if self.keep not in (None, "logits"):
            raise FcaError("task.keep", self.keep, "null or logits", "leave it out, or set task.keep=logits")
        setup, _ = _as_trained(setup)
        model, groups = _model(setup), self._groups()
        snapshot = model.identity().get("snapshot")  # of a stored run
        columns = {"model": model.label(), "weights": model.weights_label(), "snapshot": snapshot}
        heavy = [predict_run(setup.data, self.split, model.identity(), columns, shift) for shift in setup.shifts]
        if setup.subset.ncl == len(setup.data.classes) and groups is None:
            return heavy
        if self.keep is None and any(shift.label() != CLEAN.label() for shift in setup.shifts):
            raise FcaError("task.keep", None, "logits, to score a subset of shifted images", "add task.keep=logits")
        return heavy + [score_run(run, setup, groups, subset_columns(setup)) for run in heavy]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Build the model once and forward the split once a shift; score from what is stored."""
        setup, asks = _as_trained(setup)
        wanted = {run.run_id for run in runs}
        heavy = [run for run in self.plan(setup) if run.task == "predict"]
        asked = [(run, shift) for run, shift in zip(heavy, setup.shifts, strict=True) if run.run_id in wanted]
        if asked:
            classifier = _model(setup).build()
            setup.store.keep_items(setup.data)
        for run, shift in asked:
            yield answers(run, setup, setup.data, classifier, self.split, asks, shift, self.keep == "logits")
        for run in runs:
            if run.task == "score":
                yield Finished(run, score(setup, run, self._groups()), {})

    def _groups(self) -> Groups | None:
        return None if self.groups is None else read_groups(self.groups, self.group_columns)


def _as_trained(setup: Setup) -> tuple[Setup, Sequence[int] | None]:
    """The setup with the data as a stored run's training cut them, and the classes that it is asked about, if not all.

    As released (compat), a sub-model's head has all classes, and it is asked about those of its subset alone. So the
    answers of a stored run are the same, whether its training or a later prediction asks for them.
    """
    trained = _trained(setup.model)
    if trained is None:
        return setup, None
    data = as_trained_on(setup.data, trained["fingerprint"])
    own = data.fingerprint == trained["fingerprint"]
    return replace(setup, data=data), trained["classes"] if own and trained.get("compat") else None


def _trained(model: Model) -> Row | None:
    """The row of the training that a stored run is, once that is done."""
    if not isinstance(model, StoredRun):
        return None
    store = Store(Path(model.outputs))
    return store.row(model.run_id) if store.state(model.run_id) is State.DONE else None


def _model(setup: Setup) -> Model:
    return setup.model.naming(setup.data.classes) if isinstance(setup.model, Nameable) else setup.model
