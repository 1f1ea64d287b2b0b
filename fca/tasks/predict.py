"""What a classifier answers on every image of a split whose class it knows; subsets are scored from stored logits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from fca.data.pixels import open_pixels
from fca.groups import Groups, read_groups
from fca.nouns import Arrays, Classifier, FcaError, Finished, ImageData, Model, Run
from fca.stats.protocols import open_top1
from fca.tasks import Setup
from fca.tasks.score import score, score_run, with_interval

LOGITS_FLOAT32_MB = 64  # larger matrices of logits are kept as float16


@runtime_checkable
class Nameable(Protocol):
    """A model that answers about any classes it is told the names of (zero-shot)."""

    def naming(self, classes: Sequence[str]) -> Model: ...


@dataclass(frozen=True)
class Predict:
    """`task=predict`: one heavy run for the whole split, and a light `score` run when a subset or groups are asked for.

    groups: a file of classes and groups, or the name of one (see fca.groups), for the grouped protocol.
    group_columns: the file's columns of class keys and of groups.
    """

    split: str
    groups: str | None
    group_columns: list[str]

    def plan(self, setup: Setup) -> list[Run]:
        """The predict run, whatever the subset and seed, and the score of the subset on its stored logits."""
        model = _model(setup)
        columns = {"model": model.label(), "weights": model.weights_label()}
        heavy = predict_run(setup.data, self.split, model.identity(), columns)
        groups = self._groups()
        if setup.subset.ncl == len(setup.data.classes) and groups is None:
            return [heavy]
        return [heavy, score_run(heavy, setup, groups, subset_columns(setup))]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Forward the split once; score from what is stored."""
        for run in runs:
            if run.task == "score":
                yield Finished(run, score(setup, run, self._groups()), {})
            else:
                classifier = _model(setup).build()
                setup.store.keep_items(setup.data)
                yield answers(run, setup, setup.data, classifier, self.split)

    def _groups(self) -> Groups | None:
        return None if self.groups is None else read_groups(self.groups, self.group_columns)


def _model(setup: Setup) -> Model:
    return setup.model.naming(setup.data.classes) if isinstance(setup.model, Nameable) else setup.model


def subset_columns(setup: Setup) -> dict[str, Any]:
    """The columns that say which classes, and how they were drawn."""
    subset = setup.subset
    return {"ncl": subset.ncl, "subset_seed": subset.seed, "sampler": subset.sampler, "classes": subset.classes}


def data_columns(data: ImageData, split: str) -> dict[str, Any]:
    """The columns that say which images."""
    return {
        "dataset": data.name,
        "fingerprint": data.fingerprint,
        "num_classes": len(data.classes),
        "split": split,
        "shift": "clean",
    }


def predict_run(
    data: ImageData, split: str, model: dict[str, Any], about: dict[str, Any], parent: str | None = None
) -> Run:
    """The run of these weights on these images: its identity knows neither subset nor seed."""
    identity = {"data": data.fingerprint, "split": split, "model": model, "shift": "clean"}
    return Run("predict", identity, {**data_columns(data, split), **about}, parent)


def answers(
    run: Run, setup: Setup, data: ImageData, classifier: Classifier, split: str, classes: Sequence[int] | None = None
) -> Finished:
    """Forward every image of the split whose class the classifier knows, and keep what it said.

    classes: label indices to ask about, where that is not all it knows.
    """
    from fca.training.device import device_name
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
    pixels = open_pixels(data, classifier.geometry, setup.cache, setup.machine.workers, setup.machine.cache_gb)
    start = time.perf_counter()
    logits = logits_of(classifier, pixels, rows, accelerator=setup.machine.accelerator)
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
    return Finished(run, columns, answer_arrays(logits, true, classifier.classes))


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
