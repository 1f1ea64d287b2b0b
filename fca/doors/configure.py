"""From a composed configuration to nouns: the data, models, subset and task of one job, and its plan of runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from fca.data.limit import first_images
from fca.doors.plugs import plug
from fca.nouns import ClassSubset, FcaError, ImageData, Run
from fca.store import Store
from fca.subset import draw_subset, full_set, named_subset, number_of_classes
from fca.tasks import Setup, Task

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
        adaptation=config.adaptation,
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
