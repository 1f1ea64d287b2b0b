"""How long a network takes for one image and for many here, and what it costs in operations and memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fca.allowed import Allowed
from fca.models import starts_from_scratch
from fca.store.columns import DEVICE, INPUT_SIZE, PARAMS
from fca.studies.recommend.evidence import GFLOPS, LATENCY, LOAD, MEMORY, SPEED
from fca.tasks import Setup
from fca.types import Classifier, Column, FcaError, Finished, Model, Run, with_interval

BATCH = Column("batch", int, "d", "images a batch of that")
THREADS = Column("threads", int, "d", "threads that the network ran on")


def check_threads(key: str, threads: int | None) -> None:
    """Raise FcaError for more threads than this machine has cores: they wait for each other, thousands without end."""
    cores = os.cpu_count() or 1
    if threads is not None and threads > cores:
        raise FcaError(key, threads, f"1 to {cores}, the cores of this machine, or null for all", f"take {key}={cores}")


@dataclass(frozen=True)
class Latency:
    """`task=latency`: one run for a network, head size, machine and number of threads.

    Runs that are done together are measured in turn, round after round, so that what else the machine does hits all of
    them alike; it is stored as `load`.

    batch:   images of a batch.    rounds: of which the medians are taken.    threads: null: as many as torch takes.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        *with_interval(LATENCY),
        *with_interval(SPEED),
        *(BATCH, THREADS, GFLOPS, MEMORY, LOAD),
    )
    summary: ClassVar[tuple[Column | str, ...]] = (
        "{latency_ms:.1f} ms an image, {batch_images_per_s:.0f} images/s in batches",
        "{memory_mb:.0f} MB, load {load:.1f}",
        "{gflops:.2f} GFLOPs",
    )

    batch: Annotated[int, Allowed(1)]
    rounds: Annotated[int, Allowed(1)]
    threads: Annotated[int | None, Allowed(1, 1024)]

    def plan(self, setup: Setup) -> list[Run]:
        """One run: the network with a head for the subset's classes, on this machine."""
        setup.clean_only("latency")
        model, ncl, where = setup.model, setup.subset.ncl, socket.gethostname()
        identity = {
            "model": model.identity(),
            "ncl": ncl,
            "batch": self.batch,
            "rounds": self.rounds,
            "threads": self.threads,
            "host": where,
            "accelerator": setup.machine.accelerator,
        }
        about = {"model": model.label(), "weights": model.weights_label(), "ncl": ncl}
        keys = [setup.data.classes[c] for c in setup.subset.classes]
        return [Run("latency", identity, about, work=(model, keys))]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """All networks of these runs in interleaved rounds."""
        from fca.training.batches import device_name
        from fca.training.speed import cost, load, on_threads, speeds

        check_threads("task.threads", self.threads)
        busy, accelerator = load(), setup.machine.accelerator
        built = [_built(*run.work) for run in runs]
        costs = [cost(one) for one in built]
        with on_threads(self.threads) as threads:
            found, device = speeds(built, self.batch, self.rounds, accelerator), device_name(accelerator)
        for run, one, price, speed in zip(runs, built, costs, found, strict=True):
            columns: dict[str, Any] = {
                **_measured(LATENCY, speed.latency_ms),
                **_measured(SPEED, speed.images_per_s),
                BATCH: self.batch,
                THREADS: threads,
                LOAD: busy,
                DEVICE: device,
                GFLOPS: price.flops / 1e9 or None,
                MEMORY: price.memory / 2**20,
                PARAMS: price.params,
                INPUT_SIZE: one.input_size,
            }
            yield Finished(run, columns, {})


def _built(model: Model, keys: Sequence[str]) -> Classifier:
    """With a head for these classes; what cannot have one, such as HOG, without: a linear layer is little work."""
    return model.build(keys if hasattr(model, "weights") or starts_from_scratch(model) else None)


def _measured(column: Column, value: Sequence[float]) -> dict[str, float | None]:
    """With its interval, which few rounds do not have."""
    return {str(name): end if end == end else None for name, end in zip(with_interval(column), value, strict=True)}
