"""What a tracker shows of a store: one entry a training, with its configuration in the words of the command line.

An entry's summary has the results of one row; the other rows that belong to it are its tables, one a task. Rows that
belong to no training have an entry of their own; all predictions of one model on one data set share theirs.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from fca.store import Store
from fca.store.columns import RECIPE, Row
from fca.store.damage import FITTED, is_run_id
from fca.store.files import content_of, if_whole, read_object, read_yaml

CONFIG = "config.yaml"
_NAMES = {  # group of the command line -> columns of rows -> keys of that group, and a few beside these
    "dataset": {"dataset": "name"}
    | {n: n for n in ("group", "fingerprint", "fingerprint_kind", "num_classes", "split", "n_train", "n_val")},
    "model": {"model": "name", "weights": "weights"},
    "encoder": {"encoder": "name"},
    "adaptation": {"adaptation": "name"},
    "subset": {"ncl": "ncl", "subset_seed": "seed", "sampler": "sampler", "classes": "classes"},
    "task": {"task": "name"},
    "machine": {"device": "device", "host": "host"},
}
KEYS = {column: f"{group}.{key}" for group, keys in _NAMES.items() for column, key in keys.items()}
KEYS |= {name: name for name in ("limit", "compat", "seed", "commit", "versions", "command")}
OTHERS = ("logger", "sweep")  # of a configuration: nothing about the run
TEXTS_OF_LISTS = ("recipe_augment", "recipe_callbacks", "recipe_optimiser_options")  # the configuration has the lists
USUAL = {"snapshot": "best", "shift": "clean"}  # not worth a word
NO_RESULTS = {*KEYS, *USUAL, "run_id", "parent", "finished"}
NAMES_IN_TABLES = {*USUAL, "run_id", "ncl", "subset_seed", "sampler", "classes", "encoder"}
HISTORY = {"train_loss": "train/loss", "train_top1": "train/top1", "val_loss": "val/loss", "val_top1": "val/top1"}
_SECRET = re.compile(r"token|secret|password|passwd|api_?key|credential", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_TYPED = re.compile(rf"(\S*(?:{_SECRET.pattern})[^\s=]*=)\S+", re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """One entry of a tracker.

    id:    of the training's run; of one of its own for the predictions of a model that was not trained here.
    rows:  the row whose results are its summary, then those in its tables.
    store: where they lie.
    """

    id: str
    rows: tuple[Row, ...]
    store: Store

    @property
    def head(self) -> Row:
        """The row that the entry is about."""
        return self.rows[0]

    @property
    def state(self) -> dict[str, str]:
        """What the entry holds: run_id -> when its row was written."""
        return {row["run_id"]: row.get("finished", "") for row in self.rows}

    @property
    def has_summary(self) -> bool:
        """Whether the head is more than one among equals: shifted predictions alone have no clean one before them."""
        return self.head["task"] != "predict" or self.head.get("shift", "clean") == "clean"

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration that the head was made with, completed by its row."""
        return config_of(self.store, self.head)

    @property
    def summary(self) -> dict[str, Any]:
        """The head's results: numbers and words that are no part of the configuration."""
        if not self.has_summary:
            return {}

        keys_of_task = self.config.get("task", {})
        results = {
            name: value
            for name, value in _without(NO_RESULTS, self.head).items()
            if isinstance(value, str | int | float) and name not in keys_of_task
        }
        if self.head["task"] == "train" and "images_per_s" in results:  # a curve has this name: that of the training
            results["predict_images_per_s"] = results.pop("images_per_s")
        return results

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Task -> its rows that are not in the summary: their ids, what differs from the head, their results."""
        lines: dict[str, list[Row]] = {}
        for row in self.rows:
            if not self._is_in_summary(row):
                lines.setdefault(row["task"], []).append(_without(NO_RESULTS - NAMES_IN_TABLES, row))
        return {task: pd.DataFrame(of_task) for task, of_task in lines.items()}

    def _is_in_summary(self, row: Row) -> bool:
        """The head is, unless it is one prediction among equals; so is the clean test of a training's best weights."""
        if row is self.head:
            return self.has_summary
        return self.head["task"] == "train" and row["task"] == "predict" and _is_usual(row)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The figures of every epoch of a training, as `fitted.json` has them; `step` is the optimiser's."""
        epochs: list[dict[str, Any]] = []
        with if_whole():
            epochs = read_object(self.store.folder(self.head["run_id"]) / FITTED, history=list)["history"]

        batches = math.ceil(self.head.get("n_train", 1) / self.head.get("recipe_batch_size", 1))
        steps = batches * self.head.get("recipe_passes", 1)
        return [
            {"step": (epoch + 1) * steps - 1, "epoch": epoch, **_curves(figures)}
            for epoch, figures in enumerate(epochs)
        ]


def _without(names: Collection[str], row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in names and not name.startswith(RECIPE)}


def _is_usual(row: Row) -> bool:
    """Whether a prediction is of unchanged images by the best weights."""
    return all(row.get(name, usual) == usual for name, usual in USUAL.items())


def _curves(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {HISTORY.get(name, name): value for name, value in figures.items() if isinstance(value, int | float)}


def entry_id(row: Row, store: Store) -> str:
    """The entry to which a row belongs: that of the training whose weights or arrays it read, if there is one."""
    passed = {row["run_id"]}
    while row["task"] != "train":
        weights_of, _, snapshot = str(row.get("weights", "")).partition("/")
        source = store.row_if_whole(row.get("parent") or (weights_of if snapshot else ""))
        if source is None or source["run_id"] in passed:  # removed, in another store; or rows lead round in a circle
            break
        passed.add(source["run_id"])
        row = source
    return _of_model_and_data(row, store) if row["task"] == "predict" else str(row["run_id"])


def _of_model_and_data(row: Row, store: Store) -> str:
    """What all predictions of a model's weights on a split of a data set share."""
    model: Any = None
    with if_whole():
        model = read_yaml(store.folder(row["run_id"]) / CONFIG).get("model")
    known = {n: row.get(n) for n in ("fingerprint", "split", "model", "weights", "zero_shot_classes", "input_size")}
    text = json.dumps([known, model], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def entry_with(identity: str, rows: Iterable[Row], store: Store) -> Entry:
    """The entry of these rows, of which those given twice count once; its head is the training or clean prediction."""
    known = {row["run_id"]: row for row in rows}
    if identity not in known and is_run_id(identity):
        training = store.row_if_whole(identity)
        if training is not None:
            known[identity] = training

    def order(row: Row) -> tuple[Any, ...]:
        place = row["run_id"] != identity, row["task"] != "predict", not _is_usual(row)
        return *place, row["task"], str(row.get("shift", ""))

    return Entry(identity, tuple(sorted(known.values(), key=order)), store)


def config_of(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run, nested as its keys are typed, without `_target_`, secrets and what is not about it.

    What a row has for a key that was left open stands at that key; what came of a value that was given (the learning
    rate for this batch size, the tag of pretrained weights) stands below `effective`, where it differs.
    """
    typed = typed_of(store, row)
    return completed({key: cleaned(value) for key, value in typed.items() if key not in OTHERS}, row)


def typed_of(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run without secrets; empty where its file is missing or damaged."""
    with if_whole():
        return cleaned(read_yaml(store.folder(row["run_id"]) / CONFIG), targets=True)
    return {}


def completed(config: dict[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with what a row knows beside it.

    >>> completed({"subset": {"ncl": None}, "recipe": {"lr": 0.1}}, {"ncl": 10, "recipe_lr": 0.025})
    {'subset': {'ncl': 10}, 'recipe': {'lr': 0.1}, 'effective': {'recipe': {'lr': 0.025}}}
    """
    for name, value in row.items():
        key = f"recipe.{name.removeprefix(RECIPE)}" if name.startswith(RECIPE) else KEYS.get(name)
        if key is None or name in TEXTS_OF_LISTS or value is None:
            continue
        value = cleaned(list(value) if isinstance(value, tuple) else value)
        *groups, last = key.split(".")
        node = _node(config, groups)
        if node.get(last) in (None, {}):
            node[last] = value
        elif node[last] != value and type(node[last]) is not dict:
            _node(config, ["effective", *groups])[last] = value
    return config


def _node(config: dict[str, Any], groups: Iterable[str]) -> dict[str, Any]:
    for group in groups:
        if not isinstance(config.get(group), dict):
            config[group] = {}
        config = config[group]
    return config


def cleaned(value: Any, *, targets: bool = False) -> Any:
    """A part of a configuration without secrets: keys that are called so, and passwords in addresses.

    targets: whether it keeps `_target_`.

    >>> cleaned({"_target_": "fca.data.hf.Hub", "root": "https://me:pw@host/x", "token": "hf_1", "splits": {"a": 1}})
    {'root': 'https://host/x', 'splits': {'a': 1}}
    >>> cleaned("fca run dataset.token=hf_1 seed=0")
    'fca run dataset.token=... seed=0'
    """
    if isinstance(value, Mapping):
        kept = {str(k): v for k, v in value.items() if targets or k != "_target_"}
        return {k: cleaned(v, targets=targets) for k, v in kept.items() if not _SECRET.search(k)}
    if isinstance(value, list):
        return [cleaned(one, targets=targets) for one in value]
    return _TYPED.sub(r"\1...", _IN_URL.sub("", value)) if isinstance(value, str) else value


def command_of(store: Store, row: Mapping[str, Any]) -> str:
    """The command of a run; of one that is under way, the first line of its configuration."""
    if "command" in row:
        return str(row["command"])
    with if_whole():
        first = content_of(store.folder(row["run_id"]) / CONFIG).decode(errors="replace").partition("\n")[0]
        return first.removeprefix("# ") if first.startswith("# ") else ""
    return ""


def experiment_of(command: str) -> str | None:
    """The experiment that a command names.

    >>> experiment_of("fca run experiment=few_class seed=1"), experiment_of("fca run seed=1")
    ('few_class', None)
    """
    found = re.search(r"(?:^|\s)\+?experiment=([\w/.-]+)", command)
    return found[1] if found and found[1] != "null" else None


def name_of(row: Mapping[str, Any]) -> str:
    """What the run is called in a list of runs: `train digits resnet18 ncl=5 subset_seed=0 seed=0`."""
    named = [f"{name}={row[name]}" for name in ("ncl", "subset_seed", "seed") if row.get(name) is not None]
    other = [str(row[n]) for n, usual in USUAL.items() if row.get(n, usual) != usual]
    return " ".join([*(str(row[n]) for n in ("task", "dataset", "model", "encoder") if row.get(n)), *named, *other])
