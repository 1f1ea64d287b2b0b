"""Tasks plan runs, then do their work and yield their rows. GPU time ends here; the CLI writes the rows and arrays.

`plan` gives every Run its work (`Run.work`), so that `run` plans nothing again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from typing_extensions import TypeVar

from fca.data.splits import for_training
from fca.store import Store
from fca.training.devices import check_devices
from fca.training.recipe import Recipe
from fca.training.trainer import TrainerKeys
from fca.types import ClassSubset, Column, FcaError, Finished, ImageData, Model, Run, Shift, Table
from fca.validation import Allowed, Workers

N_UNUSED = Column("n_unused", int, ",", "images left out: in no class folder, or of a class that train or test lacks")

Work = TypeVar("Work", default=Any)

FINDINGS = (
    "findings.csv"  # in a run's folder: one line per finding that a person should look at; kinds in column `finding`
)


@dataclass(frozen=True)
class Machine:
    """The machine that the work runs on; nothing here changes a result or is part of a run's identity."""

    accelerator: Annotated[str, Allowed(choices=("auto", "cpu", "gpu"))]
    devices: Any  # of one training: a number, auto (all there are) or a list of GPUs
    strategy: Annotated[str, Allowed(choices=("auto", "ddp", "fsdp"))]  # of several devices
    compile: Annotated[str, Allowed(choices=("auto", "true", "false"))]  # networks, where it pays
    workers: Workers  # threads that decode images; 0 = one a core
    # Images that fit (of a data set, or of all its shifts) are decoded once into outputs/cache; others are streamed.
    cache_gb: Annotated[float, Allowed(0)]
    checkpoint_s: Annotated[float, Allowed(0)]  # seconds between two checkpoints of a training; 0 = after every epoch
    keep_weights: Annotated[str, Allowed(choices=("best", "snapshots", "none"))]  # of a training, once it has predicted

    def check(self) -> None:
        """Raise FcaError for devices that no machine has."""
        check_devices(self.devices)


@runtime_checkable
class Tracker(Protocol):
    """Shows runs beside the store (W&B, TensorBoard, nothing). No method raises: a failing copy must not stop work."""

    def connect(self) -> None: ...  # once before the first run of a sweep

    def start(self, run: Run) -> Any:
        """A Lightning logger for the curves of this run, or False."""

    def fail(self, run: Run) -> None: ...  # it ended with an error

    def finish(self, row: Mapping[str, Any]) -> None:
        """The run's final columns; called once its row is stored."""

    def close(self) -> None: ...  # the job has ended, or the sweep: no row follows

    def publish(self, tables: Sequence[Table], page: Path, metadata: Mapping[str, Any]) -> None:
        """A report: its tables, its page and the pictures beside it.

        metadata: its report, query and command.
        """


@dataclass(frozen=True)
class RunContext:
    """One configuration as objects, from which a task plans its runs."""

    data: ImageData
    model: Model
    encoder: Model
    shifts: Sequence[Shift]
    recipe: Recipe
    subset: ClassSubset
    seed: int
    adaptation: Task
    compat: str | None
    machine: Machine
    trainer: TrainerKeys
    store: Store
    tracker: Tracker

    def for_training(self) -> RunContext:
        """This context with the data in the splits that a training uses (see `fca.data.splits.for_training`)."""
        return replace(self, data=for_training(self.data))

    @property
    def cache(self) -> Path:
        """The folder of decoded pixels."""
        return self.store.outputs / "cache"

    def check_clean(self, task: str) -> None:
        """Raise FcaError if a shift is configured.

        task: the name of the task, which reads images as they are.
        """
        shifts = [shift.label() for shift in self.shifts if shift.label() != "clean"]
        if shifts:
            raise FcaError("shift", ", ".join(shifts[:3]), f"clean for task={task}", "use task=predict or task=train")


@runtime_checkable
class HasImages(Protocol):
    """The work of a run whose arrays have a line for each of these images, or for some of them."""

    @property
    def data(self) -> ImageData: ...


@runtime_checkable
class Task(Protocol[Work]):
    """A kind of work: `plan` lists the runs of a configuration, `run` yields runs as they finish.

    An adaptation of a network to its classes (fca/tasks/adaptation) is a task, too: `task=train` does the one that is
    configured, on the data as a training sees them.

    Work:    what a run needs, beside the context; `plan` puts it into `Run.work`.
    columns: those of its rows, beside the columns that all tasks share (fca/store/columns.py).
    summary: shown by the terminal for a row beside its accuracies: a column, with its interval where it has one, or a
             text such as "{n_evaluated} of {n_pool} images".
    """

    columns: ClassVar[tuple[Column, ...]]
    summary: ClassVar[tuple[Column | str, ...]]

    def plan(self, context: RunContext) -> list[Run[Work]]:
        """The runs, each after those that it needs. Raises FcaError for what cannot be done with this context."""

    def run(self, runs: Sequence[Run[Work]], context: RunContext) -> Iterator[Finished]:
        """runs: of a plan of this context, in its order; those that another process does or did are left out."""
