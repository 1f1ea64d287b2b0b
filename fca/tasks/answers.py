"""What a classifier says about the images of a split: the run, its columns and its arrays."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fca.data.pixels import open_pixels
from fca.data.shifted import shifted
from fca.models.stored import StoredRun
from fca.nouns import Arrays, Classifier, FcaError, Finished, ImageData, Run, Shift
from fca.shifts import Clean
from fca.stats.protocols import open_top1
from fca.tasks import Setup
from fca.tasks.score import with_interval

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
