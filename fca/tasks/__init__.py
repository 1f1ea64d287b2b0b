"""Tasks: a plan of runs, and the work that yields them. GPU time ends here; the door writes what is yielded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fca.store import Store
from fca.training.recipe import Recipe
from fca.types import ClassSubset, FcaError, Finished, ImageData, Model, Run, Shift, Table


@dataclass(frozen=True)
class Machine:
    """Where the work runs; none of it changes a result, so none of it is part of a run's identity."""

    accelerator: str  # auto, cpu or gpu
    workers: int  # threads that decode images; 0 = one a core
    cache_gb: float  # what is not larger, a data set or all shifts, is decoded once into outputs/cache; else it streams


@runtime_checkable
class Tracker(Protocol):
    """Where runs are followed live beside the store (W&B, or nothing)."""

    def start(self, run: Run) -> Any:
        """A Lightning logger for the curves of this run, or False."""

    def fail(self, run: Run) -> None: ...  # it ended with an error

    def finish(self, row: Mapping[str, Any]) -> None:
        """The run's final columns; called once its row is stored."""

    def publish(self, tables: Sequence[Table], page: Path) -> None:
        """A report: its tables, its page and the pictures beside it."""


@dataclass(frozen=True)
class Setup:
    """One configuration, made of real nouns: what a task plans and works with."""

    data: ImageData
    model: Model
    encoder: Model
    shifts: Sequence[Shift]
    recipe: Recipe
    subset: ClassSubset
    seed: int
    adaptation: str | None
    compat: str | None
    machine: Machine
    store: Store
    tracker: Tracker

    @property
    def cache(self) -> Path:
        """Where decoded pixels lie."""
        return self.store.outputs / "cache"

    def clean_only(self, task: str) -> None:
        """Raise FcaError if this configuration asks a task that looks at images as they are for a shift."""
        if other := [shift.label() for shift in self.shifts if shift.label() != "clean"]:
            raise FcaError("shift", ", ".join(other[:3]), f"clean for task={task}", "use task=predict or task=train")


@runtime_checkable
class Task(Protocol):
    """A kind of work: `plan` names the runs of a configuration, `run` yields each of those asked for as it is done."""

    def plan(self, setup: Setup) -> list[Run]: ...

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]: ...
