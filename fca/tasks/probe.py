"""Probes: a linear classifier on the features of a frozen network, from one pass over all images."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from safetensors.numpy import save

from fca.models.stored import BEST, Probed, describe_model
from fca.stats.features import Probe, fit_probe
from fca.store.files import write_json, write_whole
from fca.tasks import Setup
from fca.tasks.adaptation import PROBE
from fca.tasks.embed import ALL, Embed
from fca.tasks.predict import (
    CLEAN,
    answer_arrays,
    answer_columns,
    data_columns,
    predict_run,
    scored,
    stored_answers,
    subset_columns,
)
from fca.types import Finished, ImageData, Run

MEASURED = ("params", "input_size", "device", "predict_s", "images_per_s")  # by the pass that the features came from


def plan_probe(setup: Setup, data: ImageData) -> list[Run]:
    """The features of all images (whatever the subset), then the probe and its answers, which take no launcher.

    A probe knows no recipe and no seed: its solution is exact.
    """
    [features] = Embed(ALL).plan(_as_encoder(setup, data))
    keys = [data.classes[c] for c in setup.subset.classes]
    identity = {"data": data.fingerprint, "classes": keys, "model": setup.model.identity(), "adaptation": PROBE}
    about = {
        **data_columns(data, "test"),
        **subset_columns(setup),
        "model": setup.model.label(),
        "weights": setup.model.weights_label(),
        "adaptation": PROBE,
    }
    train = Run("train", identity, about, features.run_id, light=True)
    best, about = {"run": train.run_id, "snapshot": BEST}, {**about, "snapshot": BEST}
    clean = replace(predict_run(data, "test", best, about, parent=train.run_id), light=True)
    others = [shift for shift in setup.shifts if shift.label() != CLEAN.label()]
    return [features, train, clean, *(predict_run(data, "test", best, about, s, train.run_id) for s in others)]


def run_probe(runs: Sequence[Run], setup: Setup, data: ImageData) -> Iterator[Finished]:
    """Embed once; solve for the subset; answer its test images, those of a shift by the network and the probe on it."""
    features, train, predict, *others = plan_probe(setup, data)
    wanted = {run.run_id for run in runs}
    if features.run_id in wanted:
        yield from Embed(ALL).run([features], _as_encoder(setup, data))
    if {train.run_id, predict.run_id} & wanted:
        for finished in _solved(features, train, predict, setup, data):
            if finished.run.run_id in wanted:
                yield finished
    yield from stored_answers([run for run in others if run.run_id in wanted], setup, data)


def _as_encoder(setup: Setup, data: ImageData) -> Setup:
    return replace(setup, data=data, encoder=setup.model, shifts=[CLEAN])


def _solved(features: Run, train: Run, predict: Run, setup: Setup, data: ImageData) -> Iterator[Finished]:
    subset, values = setup.subset, setup.store.array(features.run_id, "features")
    rows = {split: data.rows(split, subset.classes) for split in ("train", "val", "test")}
    label = {split: subset.new_labels(data.labels[chosen]) for split, chosen in rows.items()}
    start = time.perf_counter()
    probe = fit_probe(values[rows["train"]], label["train"], values[rows["val"]], label["val"])
    seconds = time.perf_counter() - start
    _keep(probe, train, setup, data)
    logits = probe.logits(values[rows["test"]]).astype(np.float32)
    measured = {key: value for key, value in setup.store.row(features.run_id).items() if key in MEASURED}
    said = {**answer_columns(logits, label["test"], data, list(subset.classes)), **measured}
    columns: dict[str, Any] = {
        "n_train": len(rows["train"]),
        "n_val": len(rows["val"]),
        "val_top1": probe.val_top1,
        "penalty": probe.penalty,
        "train_s": seconds,
    }
    yield Finished(train, {**columns, **scored(said, data, subset, None)}, {})
    yield Finished(predict, said, answer_arrays(logits, label["test"], [data.classes[c] for c in subset.classes]))


def _keep(probe: Probe, run: Run, setup: Setup, data: ImageData) -> None:
    """Leave the probe in its run's folder as model=run reads it."""
    folder = setup.store.folder(run.run_id)
    described = describe_model(Probed.of(setup.model), [data.classes[c] for c in setup.subset.classes])
    write_json(folder / "model.json", described)
    state = {"weight": probe.weight.astype(np.float32), "bias": probe.bias.astype(np.float32)}
    write_whole(folder / "best.safetensors", lambda file: file.write(save(state)))
