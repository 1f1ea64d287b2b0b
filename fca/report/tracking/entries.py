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
_KEY_BY_COLUMN_OF_GROUP = {  # group of the command line -> column of a row -> key of that group
    "dataset": {"dataset": "name"}
    | {n: n for n in ("group", "fingerprint", "fingerprint_kind", "num_classes", "split", "n_train", "n_val")},
    "model": {"model": "name", "weights": "weights"},
    "encoder": {"encoder": "name"},
    "adaptation": {"adaptation": "name"},
    "subset": {"ncl": "ncl", "subset_seed": "seed", "sampler": "sampler", "classes": "classes"},
    "task": {"task": "name"},
    "machine": {"device": "device", "host": "host"},
}
KEYS = {  # column of a row -> the key under which a tracker shows it, as typed on the command line
    column: f"{group}.{key}" for group, keys in _KEY_BY_COLUMN_OF_GROUP.items() for column, key in keys.items()
} | {name: name for name in ("limit", "compat", "seed", "commit", "versions", "command")}
NOT_ABOUT_THE_RUN = ("logger", "sweep")  # groups of a configuration that trackers do not show
LISTS_AS_TEXT = ("recipe_augment", "recipe_callbacks", "recipe_optimiser_options")  # the configuration has the lists
DEFAULT_CONDITIONS = {"snapshot": "best", "shift": "clean"}  # a clean prediction of the best weights
NO_RESULTS = {*KEYS, *DEFAULT_CONDITIONS, "run_id", "parent", "finished"}
NAMES_IN_TABLES = {*DEFAULT_CONDITIONS, "run_id", "ncl", "subset_seed", "sampler", "classes", "encoder"}
CURVE_NAMES = {"train_loss": "train/loss", "train_top1": "train/top1", "val_loss": "val/loss", "val_top1": "val/top1"}
_SECRET = re.compile(r"token|secret|password|passwd|api_?key|credential", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")  # user:password@ of an address
_TYPED_SECRET = re.compile(rf"(\S*(?:{_SECRET.pattern})[^\s=]*=)\S+", re.IGNORECASE)  # token=... in a command


@dataclass(frozen=True)
class Entry:
    """One entry of a tracker: a training with what was computed from it, or the predictions of one model.

    id:    the run id of the training; a hash for the predictions of a model that was not trained here.
    rows:  first the head, the row whose results are the summary, then the rows that go into tables.
    store: where the files of these rows are stored.
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
        """Whether the head's results are the summary.

        They are not where the entry has only predictions under shifts: none of these stands for the model.
        """
        return self.head["task"] != "predict" or self.head.get("shift", "clean") == "clean"

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration that the head was made with, completed by its row."""
        return config_of(self.store, self.head)

    @property
    def summary(self) -> dict[str, Any]:
        """The results of the entry's head row, by column: numbers and texts that are no part of the configuration.

        Empty if the head is a prediction of shifted images, which does not stand for the model.
        """
        if not self.has_summary:
            return {}

        keys_of_task = self.config.get("task", {})  # a column named like a key of the task repeats this setting
        results: dict[str, Any] = {}
        for name, value in _without(NO_RESULTS, self.head).items():
            is_setting = name in keys_of_task
            if isinstance(value, str | int | float) and not is_setting:
                results[name] = value

        # the curves of a training have an images_per_s of their own: the speed of training
        if self.head["task"] == "train" and "images_per_s" in results:
            results["predict_images_per_s"] = results.pop("images_per_s")
        return results

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Task -> its rows that are not in the summary: their ids, what differs from the head, their results."""
        rows_by_task: dict[str, list[Row]] = {}
        for row in self.rows:
            if not self._is_in_summary(row):
                rows_by_task.setdefault(row["task"], []).append(_without(NO_RESULTS - NAMES_IN_TABLES, row))
        return {task: pd.DataFrame(rows) for task, rows in rows_by_task.items()}

    def _is_in_summary(self, row: Row) -> bool:
        """Whether the summary already has a row's results: if it is the head, or a training's clean test prediction."""
        if row is self.head:
            return self.has_summary
        # a training's row repeats the results of the clean prediction of its best weights
        return self.head["task"] == "train" and row["task"] == "predict" and _is_clean_and_best(row)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The learning curve of a training: a dictionary of values for each epoch, from the training's `fitted.json`.

        Empty without that file. `step` is the index, from 0, of the last optimiser step of the epoch.
        """
        epochs: list[dict[str, Any]] = []
        with if_whole():
            epochs = read_object(self.store.folder(self.head["run_id"]) / FITTED, history=list)["history"]

        # an epoch may be several passes over the training images; 1 stands for a number that the row lacks
        batches_per_pass = math.ceil(self.head.get("n_train", 1) / self.head.get("recipe_batch_size", 1))
        steps_per_epoch = batches_per_pass * self.head.get("recipe_passes", 1)
        return [
            {"step": (epoch + 1) * steps_per_epoch - 1, "epoch": epoch, **_curve_values(values_of_epoch)}
            for epoch, values_of_epoch in enumerate(epochs)
        ]


def _without(names: Collection[str], row: Row) -> Row:
    """A row without these columns and without the columns of the recipe, which the configuration has."""
    return {name: value for name, value in row.items() if name not in names and not name.startswith(RECIPE)}


def _is_clean_and_best(row: Row) -> bool:
    """Whether a prediction is of unchanged images by the best weights."""
    return all(row.get(column, default) == default for column, default in DEFAULT_CONDITIONS.items())


def _curve_values(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of an epoch, by the names of a tracker's curves (`train/loss` for `train_loss`)."""
    return {CURVE_NAMES.get(name, name): value for name, value in figures.items() if isinstance(value, int | float)}


def entry_id(row: Row, store: Store) -> str:
    """The id of the tracker's entry to which a row (the stored result of a run) belongs.

    It is the id of the training whose weights or arrays the row was computed from, directly or through other rows.
    Predictions of a model that was not trained in this store share one entry for each model and data set. Any other row
    without a training has an entry of its own.
    """
    visited = {row["run_id"]}
    while row["task"] != "train":
        training, _, snapshot = str(row.get("weights", "")).partition("/")  # weights of a run are RUN_ID/SNAPSHOT
        source_id = row.get("parent") or (training if snapshot else "")
        source = store.row_if_whole(source_id)
        # no source: there never was one, it was removed, or it is in another store; visited: damaged rows may refer to
        # each other in a circle
        if source is None or source["run_id"] in visited:
            break
        visited.add(source["run_id"])
        row = source
    return _id_of_model_and_data(row, store) if row["task"] == "predict" else str(row["run_id"])


def _id_of_model_and_data(row: Row, store: Store) -> str:
    """A hash that all predictions of one model's weights on one split of a data set share.

    The configuration of the model is part of it: two models of one name may be built differently.
    """
    model: Any = None
    with if_whole():
        model = read_yaml(store.folder(row["run_id"]) / CONFIG).get("model")
    columns = ("fingerprint", "split", "model", "weights", "zero_shot_classes", "input_size")
    text = json.dumps([{name: row.get(name) for name in columns}, model], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def entry_with(identity: str, rows: Iterable[Row], store: Store) -> Entry:
    """The tracker's entry with this id and these rows; of several rows with the same run id the last one counts.

    The head of the entry, its first row, is a training; without it a clean prediction; otherwise the first row by task
    and shift.

    identity: the id of the training, whose row is added from the store if it is not among `rows`; or another id for
              rows without a training.
    """
    row_by_id = {row["run_id"]: row for row in rows}
    if identity not in row_by_id and is_run_id(identity):  # any other id names no folder of a run
        training = store.row_if_whole(identity)
        if training is not None:
            row_by_id[identity] = training

    def rank(row: Row) -> tuple[bool, bool, bool, str, str]:
        """The sort key of a row; False sorts first."""
        is_training = row["run_id"] == identity
        is_prediction = row["task"] == "predict"
        return not is_training, not is_prediction, not _is_clean_and_best(row), row["task"], str(row.get("shift", ""))

    return Entry(identity, tuple(sorted(row_by_id.values(), key=rank)), store)


def config_of(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run, nested as its keys are typed, completed by its row.

    It has no `_target_`, no secrets, and no groups that say nothing about the run (logger, sweep). A value that the
    row has for a key that was left open is stored at that key. Where a value was given and another came of it (the
    learning rate for this batch size, the tag of pretrained weights), the latter is stored under `effective`.
    """
    config = stored_config(store, row)
    about_the_run = {group: value for group, value in config.items() if group not in NOT_ABOUT_THE_RUN}
    return completed(without_secrets(about_the_run), row)


def stored_config(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run as stored, without secrets; empty where its file is missing or damaged."""
    with if_whole():
        return without_secrets(read_yaml(store.folder(row["run_id"]) / CONFIG), keep_targets=True)
    return {}


def completed(config: dict[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Add the values of a row to its configuration: changes `config` and returns it.

    The columns of a row have short names; KEYS has the key of the configuration for each, and a column `recipe_<key>`
    belongs to the key `recipe.<key>`. A key that has no value in the configuration gets the value of the row. Where
    both have a value and the values differ, the row's value is stored under `effective`. Other columns are results and
    are not added.

    >>> completed({"subset": {"ncl": None}, "recipe": {"lr": 0.1}}, {"ncl": 10, "recipe_lr": 0.025})
    {'subset': {'ncl': 10}, 'recipe': {'lr': 0.1}, 'effective': {'recipe': {'lr': 0.025}}}
    """
    for column, value in row.items():
        key = f"recipe.{column.removeprefix(RECIPE)}" if column.startswith(RECIPE) else KEYS.get(column)
        # a column without a key is a result; a column of LISTS_AS_TEXT is the text of a list that `config` has itself
        if key is None or column in LISTS_AS_TEXT or value is None:
            continue

        value = without_secrets(list(value) if isinstance(value, tuple) else value)  # a command may have a password
        *groups, name = key.split(".")
        section = _existing_or_new_section(config, groups)
        if section.get(name) in (None, {}):
            section[name] = value
        elif section[name] != value and type(section[name]) is not dict:  # a nested group is described by its own keys
            _existing_or_new_section(config, ["effective", *groups])[name] = value
    return config


def _existing_or_new_section(config: dict[str, Any], groups: Iterable[str]) -> dict[str, Any]:
    """The mapping under these nested keys of a configuration, made where it is missing."""
    for group in groups:
        if not isinstance(config.get(group), dict):
            config[group] = {}
        config = config[group]
    return config


def without_secrets(value: Any, *, keep_targets: bool = False) -> Any:
    """A value of a configuration without secrets.

    Left out are keys that are named like a secret (`token`, `api_key`), passwords in addresses, and the values that a
    command gives to keys named like a secret.

    keep_targets: whether `_target_`, the class that a group names, stays. A tracker's table of settings has no use for
                  it; a configuration from which a run could be repeated needs it.

    >>> without_secrets({"_target_": "fca.data.hf.Hub", "root": "https://me:pw@host/x", "token": "hf_1"})
    {'root': 'https://host/x'}
    >>> without_secrets("fca run dataset.token=hf_1 seed=0")
    'fca run dataset.token=... seed=0'
    """
    if isinstance(value, Mapping):
        cleaned: dict[str, Any] = {}
        for key, entry in value.items():
            name = str(key)
            is_dropped_target = name == "_target_" and not keep_targets
            if not is_dropped_target and not _SECRET.search(name):
                cleaned[name] = without_secrets(entry, keep_targets=keep_targets)
        return cleaned
    if isinstance(value, list):
        return [without_secrets(entry, keep_targets=keep_targets) for entry in value]
    if isinstance(value, str):
        return _TYPED_SECRET.sub(r"\1...", _PASSWORD_IN_URL.sub("", value))
    return value


def command_of(store: Store, row: Mapping[str, Any]) -> str:
    """The command that started a run; empty where it is not known.

    A run that is under way has no row yet; its configuration has the command as a comment in the first line.
    """
    if "command" in row:
        return str(row["command"])
    with if_whole():
        config = content_of(store.folder(row["run_id"]) / CONFIG).decode(errors="replace")
        first_line = config.partition("\n")[0]
        return first_line.removeprefix("# ") if first_line.startswith("# ") else ""
    return ""


def experiment_of(command: str) -> str | None:
    """The experiment that a command names.

    >>> experiment_of("fca run experiment=few_class seed=1"), experiment_of("fca run seed=1")
    ('few_class', None)
    """
    match = re.search(r"(?:^|\s)\+?experiment=([\w/.-]+)", command)
    return match[1] if match and match[1] != "null" else None


def name_of(row: Mapping[str, Any]) -> str:
    """What the run is called in a list of runs: `train digits resnet18 ncl=5 subset_seed=0 seed=0`.

    The snapshot and the shift are added where they are not the default ones.
    """
    components = [str(row[column]) for column in ("task", "dataset", "model", "encoder") if row.get(column)]
    settings = [f"{column}={row[column]}" for column in ("ncl", "subset_seed", "seed") if row.get(column) is not None]
    conditions = [
        str(row[column]) for column, default in DEFAULT_CONDITIONS.items() if row.get(column, default) != default
    ]
    return " ".join([*components, *settings, *conditions])
