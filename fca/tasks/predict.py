"""What a classifier answers on every image of a split whose class it knows; subsets are scored from stored logits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from fca.data.pixels import open_pixels, shifted
from fca.data.splits import as_trained_on
from fca.models.stored import StoredRun
from fca.shifts import Clean
from fca.stats.intervals import wilson
from fca.stats.protocols import grouped_top1, masked_top1, open_top1
from fca.store import State, Store
from fca.store.columns import Row
from fca.subset import Groups, read_groups
from fca.tasks import Setup
from fca.types import Arrays, Classifier, ClassSubset, FcaError, Finished, ImageData, Model, Run, Shift

# Accuracies of a class subset from what a model answered on the whole split.


def with_interval(name: str, top1: float, n: int) -> dict[str, float]:
    """A headline accuracy with its Wilson interval, as three columns."""
    low, high = wilson(round(top1 * n), n)
    return {name: top1, f"{name}_low": low, f"{name}_high": high}


def scored(said: Mapping[str, Any], data: ImageData, subset: ClassSubset, flag: str | None) -> dict[str, Any]:
    """A sub-model's own columns from those of its answers; `flag` chance where it may be naming the commonest class."""
    shared = {key: said[key] for key in ("n_test", "predict_s", "images_per_s", "params", "input_size", "device")}
    top1 = with_interval("top1", said["top1_open"], said["n_test"])
    tested = data.labels[data.rows("test", subset.classes)]
    commonest = np.bincount(tested).max() / len(tested)  # what always naming one class would score
    return {**shared, **top1, "flag": flag or ("chance" if top1["top1_low"] <= commonest else None)}


def score_run(heavy: Run, setup: Setup, groups: Groups | None, subset: Mapping[str, Any]) -> Run:
    """The run that scores a subset, under groups if there are any, on the stored answers of the heavy one."""
    keys = [setup.data.classes[c] for c in setup.subset.classes]
    identity = {"parent": heavy.run_id, "classes": keys, **({"groups": dict(groups.of)} if groups else {})}
    about = {**heavy.about, **subset, "groups": groups.name if groups else None}
    return Run("score", identity, about, heavy.run_id, light=True)


def score(setup: Setup, run: Run, groups: Groups | None) -> dict[str, Any]:
    """A subset's open, masked and, with groups, grouped accuracy from the parent's stored logits."""
    parent = setup.store.row(str(run.parent))
    unknown = set(setup.subset.classes) - set(parent["classes"])
    if unknown:
        keys = ", ".join(setup.data.classes[c] for c in sorted(unknown))
        raise FcaError("subset.classes", keys, "classes that the model knows", "choose another subset or model")
    rows = setup.data.rows(parent["split"], parent["classes"])
    logit_keys = setup.store.array(parent["run_id"], "logit_classes").tolist()
    logit_of = {key: logit for logit, key in enumerate(logit_keys)}
    columns = np.array([logit_of.get(key, -1) for key in setup.data.classes])
    inside = np.isin(setup.data.labels[rows], setup.subset.classes)
    true = columns[setup.data.labels[rows][inside]]
    logits = _logits(setup, parent["run_id"])[inside]
    chosen = columns[list(setup.subset.classes)]
    answers = {
        "n_test": int(inside.sum()),
        **with_interval("top1_open", open_top1(logits, true), len(true)),
        **with_interval("top1_masked", masked_top1(logits, chosen, true), len(true)),
    }
    if groups:
        top1, n = grouped_top1(logits, groups.codes(logit_keys), true)
        answers |= {"n_grouped": n, **with_interval("top1_grouped", top1, n)}
    return answers


def _logits(setup: Setup, run_id: str) -> np.ndarray:
    try:
        return setup.store.array(run_id, "logits")
    except FileNotFoundError:
        folder = setup.store.folder(run_id)
        step = f"remove {folder} and ask again with task.keep=logits"
        raise FcaError("logits of run", run_id, "kept: it was made without task.keep=logits", step) from None


# What a classifier says about the images of a split: the run, its columns and its arrays.


CLEAN = Clean()
LOGITS_FLOAT32_MB = 64  # larger matrices of logits are kept as float16


def subset_columns(setup: Setup) -> dict[str, Any]:
    """The columns that say which classes, and how they were drawn."""
    subset = setup.subset
    return {"ncl": subset.ncl, "subset_seed": subset.seed, "sampler": subset.sampler, "classes": subset.classes}


def data_columns(data: ImageData, split: str, shift: Shift = CLEAN) -> dict[str, Any]:
    """The columns that say which images, and how they are shown."""
    return {
        "dataset": data.name,
        "fingerprint": data.fingerprint,
        "num_classes": len(data.classes),
        "split": split,
        "shift": shift.label(),
    }


def predict_run(
    data: ImageData,
    split: str,
    model: dict[str, Any],
    about: dict[str, Any],
    shift: Shift = CLEAN,
    parent: str | None = None,
) -> Run:
    """The run of these weights on these images: its identity knows neither subset nor seed."""
    identity = {"data": data.fingerprint, "split": split, "model": model, "shift": shift.identity()}
    return Run("predict", identity, {**about, **data_columns(data, split, shift)}, parent)


def answers(
    run: Run,
    setup: Setup,
    data: ImageData,
    classifier: Classifier,
    split: str,
    classes: Sequence[int] | None = None,
    shift: Shift = CLEAN,
    keep_logits: bool = False,
) -> Finished:
    """Forward every image of the split whose class the classifier knows, as the shift shows it; keep what it said.

    classes: label indices to ask about, where that is not all it knows.    keep_logits: even of shifted images.
    """
    from fca.training.batches import device_name
    from fca.training.infer import logits_of

    asked = range(len(data.classes)) if classes is None else classes
    known = [index for index in asked if data.classes[index] in classifier.classes]
    if not known:
        raise FcaError(
            "model.classes",
            ", ".join(classifier.classes[:5]) + ", ...",
            f"at least one class of {data.name}: {', '.join(data.classes[:5])}, ...",
            "give the data set's class keys in logit order as model.classes=[...]",
        )
    rows = data.rows(split, known)
    if not len(rows):
        raise FcaError("split", split, f"a split of {data.name} with images of the known classes", "see: task=describe")
    clean = shift.label() == "clean"
    shown = data if clean else shifted(data, shift, split)
    room = setup.machine.cache_gb if clean else setup.machine.cache_gb / len(setup.shifts)  # for all of them together
    pixels = open_pixels(shown, classifier.geometry, setup.cache, setup.machine.workers, room)
    places = rows if clean else np.searchsorted(data.rows(split), rows)
    start = time.perf_counter()
    logits = logits_of(classifier, pixels, places, accelerator=setup.machine.accelerator)
    seconds = time.perf_counter() - start
    position = {key: logit for logit, key in enumerate(classifier.classes)}
    true = np.array([position.get(key, -1) for key in data.classes])[data.labels[rows]]
    columns = {
        **answer_columns(logits, true, data, known),
        "predict_s": seconds,
        "images_per_s": len(rows) / seconds,
        "params": sum(p.numel() for p in classifier.module.parameters()),
        "input_size": classifier.input_size,
        "device": device_name(setup.machine.accelerator),
    }
    arrays = answer_arrays(logits, true, classifier.classes)
    if not (clean or keep_logits):
        del arrays["logits"]
    return Finished(run, columns, arrays)


def stored_answers(runs: Sequence[Run], setup: Setup, data: ImageData) -> Iterator[Finished]:
    """What the weights that a train run kept answer on test; every snapshot is loaded once.

    runs: predict runs, those of one snapshot after each other; their parent is the train run, which is done.
    """
    shifts = {shift.label(): shift for shift in (CLEAN, *setup.shifts)}
    for snapshot, same in groupby(runs, lambda run: str(run.identity["model"]["snapshot"])):
        of_one = list(same)
        classifier = StoredRun(str(setup.store.outputs), str(of_one[0].parent), snapshot).build()
        for run in of_one:
            shift = shifts[run.about["shift"]]
            yield answers(run, setup, data, classifier, "test", setup.subset.classes, shift)


def answer_columns(
    logits: Float[np.ndarray, "images logits"], true: Int[np.ndarray, " images"], data: ImageData, known: list[int]
) -> dict[str, Any]:
    """Open accuracy (argmax over all logits) on these images, with its Wilson interval."""
    return {
        "ncl": len(known),
        "classes": known,
        "n_test": len(true),
        **with_interval("top1_open", open_top1(logits, true), len(true)),
    }


def answer_arrays(
    logits: Float[np.ndarray, "images logits"], true: Int[np.ndarray, " images"], classes: Sequence[str]
) -> Arrays:
    """pred, p_true and p_max from float32 logits; the logits themselves as float16 when they are large."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    p = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    small = logits.nbytes <= LOGITS_FLOAT32_MB * 2**20
    return {
        "pred": logits.argmax(axis=1).astype(np.int32),
        "p_true": p[np.arange(len(true)), true].astype(np.float32),
        "p_max": p.max(axis=1).astype(np.float32),
        "logits": logits.astype(np.float32 if small else np.float16),
        "logit_classes": np.array(classes),
    }


@runtime_checkable
class Nameable(Protocol):
    """A model that answers about any classes it is told the names of (zero-shot)."""

    def naming(self, classes: Sequence[str]) -> Model: ...


@dataclass(frozen=True)
class Predict:
    """`task=predict`: one heavy run a shift for the whole split; light `score` runs when a subset or groups are asked.

    keep:   logits = keep them for shifted images too (40 bytes an image of ten classes); null = for clean ones only.
    groups: a file of classes and groups, or the name of one (see fca.subset), for the grouped protocol.
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
