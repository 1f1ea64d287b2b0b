"""What a classifier answers on every image of a split whose class it knows; subsets are scored from stored logits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fca.data.pixels import open_pixels
from fca.nouns import Arrays, Classifier, FcaError, Finished, ImageData, Run
from fca.stats.intervals import wilson
from fca.stats.protocols import masked_top1, open_top1
from fca.tasks import Setup

LOGITS_FLOAT32_MB = 64  # larger matrices of logits are kept as float16


@dataclass(frozen=True)
class Predict:
    """`task=predict`: one heavy run for the whole split, and a light `score` run when a subset is asked for."""

    split: str

    def plan(self, setup: Setup) -> list[Run]:
        """The predict run, whatever the subset and seed, and the score of the subset on its stored logits."""
        columns = {"model": setup.model.label(), "weights": setup.model.weights_label()}
        heavy = predict_run(setup.data, self.split, setup.model.identity(), columns)
        if setup.subset.ncl == len(setup.data.classes):
            return [heavy]
        keys = [setup.data.classes[c] for c in setup.subset.classes]
        about = {**heavy.about, **subset_columns(setup)}
        return [heavy, Run("score", {"parent": heavy.run_id, "classes": keys}, about, heavy.run_id, light=True)]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Forward the split once; score from what is stored."""
        for run in runs:
            if run.task == "score":
                yield Finished(run, score(setup, run), {})
            else:
                classifier = setup.model.build()
                setup.store.keep_items(setup.data)
                yield answers(run, setup, setup.data, classifier, self.split)


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


def answers(run: Run, setup: Setup, data: ImageData, classifier: Classifier, split: str) -> Finished:
    """Forward every image of the split whose class the classifier knows, and keep what it said."""
    from fca.training.device import device_name
    from fca.training.infer import logits_of

    known = [index for index, key in enumerate(data.classes) if key in classifier.classes]
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


def with_interval(name: str, top1: float, n: int) -> dict[str, float]:
    """A headline accuracy with its Wilson interval, as three columns."""
    low, high = wilson(round(top1 * n), n)
    return {name: top1, f"{name}_low": low, f"{name}_high": high}


def score(setup: Setup, run: Run) -> dict[str, Any]:
    """A subset's open and masked accuracy from the parent's stored logits."""
    parent = setup.store.row(str(run.parent))
    unknown = set(setup.subset.classes) - set(parent["classes"])
    if unknown:
        keys = ", ".join(setup.data.classes[c] for c in sorted(unknown))
        raise FcaError("subset.classes", keys, "classes that the model knows", "choose another subset or model")
    rows = setup.data.rows(parent["split"], parent["classes"])
    logit_of = {key: logit for logit, key in enumerate(setup.store.array(parent["run_id"], "logit_classes"))}
    columns = np.array([logit_of.get(key, -1) for key in setup.data.classes])
    inside = np.isin(setup.data.labels[rows], setup.subset.classes)
    true = columns[setup.data.labels[rows][inside]]
    logits = setup.store.array(parent["run_id"], "logits")[inside]
    chosen = columns[list(setup.subset.classes)]
    return {
        "n_test": int(inside.sum()),
        **with_interval("top1_open", open_top1(logits, true), len(true)),
        **with_interval("top1_masked", masked_top1(logits, chosen, true), len(true)),
    }
