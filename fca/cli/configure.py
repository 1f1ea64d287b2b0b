"""From a composed configuration to nouns: the data, models, subset and task of one job, and its plan of runs."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from fca.data.splits import first_images
from fca.store import Store
from fca.subset import draw_subset, full_set, named_subset, number_of_classes
from fca.tasks import Setup, Task
from fca.types import ClassSubset, FcaError, ImageData, Run

# From YAML to plugs: a plug is the dataclass that `_target_` names, and its fields are the keys and types allowed.


_MADE: dict[str, Any] = {}  # planning thousands of runs makes each plug once


def plug(config: DictConfig, group: str) -> Any:
    """The object that a group's node describes; equal nodes give the same object.

    Raises FcaError for an unknown key, a wrong type or a missing value, naming it as the user would type it.
    """
    key = group + json.dumps(OmegaConf.to_container(config[group], resolve=True), sort_keys=True)
    if key not in _MADE:
        with _explained(_plain(config, group), group):
            _MADE[key] = OmegaConf.to_object(typed(config, group))
    return _MADE[key]


def typed(config: DictConfig, group: str) -> DictConfig:
    """A group's node under the types of its plug; values may still be missing (`???`).

    A plug may hold plugs: those of its values that name a class, as a data set its generator.
    """
    return _under_types(_plain(config, group), group)


def _under_types(values: dict[str, Any], name: str) -> DictConfig:
    schema = _schema(_class(values["_target_"]))
    held = {key: value for key, value in values.items() if isinstance(value, dict) and "_target_" in value}
    plugs = {key: _under_types(value, f"{name}.{key}") for key, value in held.items()}
    with _explained(values, name):
        given = {key: plugs.get(key, value) for key, value in values.items() if key != "_target_"}
        return cast("DictConfig", OmegaConf.merge(schema, given))


def _plain(config: DictConfig, group: str) -> dict[str, Any]:
    return cast("dict[str, Any]", OmegaConf.to_container(config[group], resolve=True))


@contextmanager
def _explained(values: dict[str, Any], group: str) -> Iterator[None]:
    """OmegaConf's errors as ours: the key as it is typed, its value, what is allowed."""
    try:
        yield
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or ""
        first = str(error).splitlines()[0]
        fields = ", ".join(f"{group}.{name!s}" for name in _schema(_class(values["_target_"])))
        allowed = fields if isinstance(error, ConfigKeyError) else first
        value = OmegaConf.select(OmegaConf.create(values), key, throw_on_missing=False)
        step = f"set {group}.{key}=... or look at conf/{group.rpartition('.')[2].replace('encoder', 'model')}/"
        raise FcaError(f"{group}.{key}", value, allowed, step) from error


def _class(target: str) -> type:
    module, _, name = target.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


@cache
def _schema(plug_class: type) -> DictConfig:
    """The fields of a plug as a typed node. Frozen dataclasses make read-only nodes; this one is to be filled."""
    schema: DictConfig = OmegaConf.structured(plug_class)
    _unlock(schema)
    return schema


def _unlock(node: DictConfig) -> None:
    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)  # there is no public way to a child whose value is still missing
        if isinstance(child, DictConfig):
            _unlock(child)


COMPATS = ("fca",)
_LOADED: dict[tuple[int, int | None], ImageData] = {}  # listed once for all jobs of a process


@dataclass(frozen=True)
class Job:
    """A configuration ready to work: its task, what it works with, and the runs it stands for."""

    task: Task
    setup: Setup
    plan: list[Run]
    config: str  # the resolved YAML, kept beside every run
    command: str


def job_of(config: DictConfig, overrides: list[str]) -> Job:
    """Check a configuration whole and plan it; reads no image and writes nothing."""
    if config.seed < 0:
        raise FcaError("seed", config.seed, "0 or more", "set seed=0")
    if config.compat not in (None, *COMPATS):
        raise FcaError("compat", config.compat, f"null, {', '.join(COMPATS)}", "take one of these")
    data = _load(config)
    setup = Setup(
        data=data,
        model=plug(config, "model"),
        encoder=plug(config, "encoder"),
        shifts=list({shift.label(): shift for shift in plug(config, "shift").shifts()}.values()),
        recipe=plug(config, "recipe"),
        subset=_subset(config, data),
        seed=config.seed,
        adaptation=None if config.adaptation is None else plug(config, "adaptation"),
        compat=config.compat,
        machine=plug(config, "machine"),
        store=Store(Path(config.outputs)),
        tracker=plug(config, "logger"),
    )
    task = plug(config, "task")
    return Job(task, setup, task.plan(setup), OmegaConf.to_yaml(config, resolve=True), _command(overrides))


def _command(overrides: list[str]) -> str:
    """The command line of this configuration alone; an experiment that sweeps is told not to."""
    words = [word for word in overrides if not word.startswith("sweep.")]
    alone = ["hydra.mode=RUN"] if any(word.startswith("experiment=") for word in words) else []
    return shlex.join(["fca", "run", *words, *alone])


def _load(config: DictConfig) -> ImageData:
    loader = plug(config, "dataset")
    key = (id(loader), config.limit)  # equal nodes are one plug, which lives as long as the process
    if key not in _LOADED:
        data = loader.load()
        _LOADED[key] = data if config.limit is None else first_images(data, config.limit)
    return _LOADED[key]


def _subset(config: DictConfig, data: ImageData) -> ClassSubset:
    asked = config.subset
    if asked.classes is not None:
        if asked.ncl is not None and asked.ncl != len(asked.classes):
            raise FcaError(
                "subset.ncl", asked.ncl, f"{len(asked.classes)}, as subset.classes has", "give only one of them"
            )
        return named_subset(data.classes, list(asked.classes))
    if asked.ncl is None:
        return full_set(len(data.classes))
    ncl = number_of_classes(asked.ncl, len(data.classes))
    return draw_subset(len(data.classes), ncl, asked.seed, asked.sampler)
