"""Accuracies of a class subset from what a model answered on the whole split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fca.groups import Groups
from fca.nouns import ClassSubset, FcaError, ImageData, Run
from fca.stats.intervals import wilson
from fca.stats.protocols import grouped_top1, masked_top1, open_top1
from fca.tasks import Setup


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
