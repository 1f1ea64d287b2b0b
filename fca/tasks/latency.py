"""Latency, throughput, operations and memory of a network on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from fca.models.compiled import Compiled
from fca.models.onnx_file import OnnxFile
from fca.store.columns import DEVICE, FILE_MB, GFLOPS, INPUT_SIZE, LATENCY, LOAD, MEMORY, OTHERS_CPU, PARAMS, SPEED
from fca.tasks import RunContext
from fca.training.devices import accelerator_for, device_name
from fca.types import Column, FcaError, Finished, Model, Run, interval_columns
from fca.validation import Allowed

BATCH = Column("batch", int, "d", "images in a batch")
THREADS = Column("threads", int, "d", "threads that the network ran on")


def check_threads(key: str, threads: int | None) -> None:
    """Raise FcaError for more threads than this machine has cores: thousands of threads would wait forever."""
    cores = os.cpu_count() or 1
    if threads is not None and threads > cores:
        raise FcaError(key, threads, f"1 to {cores}, the cores of this machine, or null for all", f"take {key}={cores}")


class Timed(NamedTuple):
    """The work of a run: a network to measure, and the class keys that its head is given."""

    model: Model
    keys: Sequence[str]


@dataclass(frozen=True)
class Latency:
    """`task=latency`: measures the speed, size and memory of a network with a head for the classes of the subset.

    The networks of several runs are measured in turn, round after round, so that other load on the machine affects all
    of them equally; it is stored as `load`, and as `others_cpu`.

    A compiled network is measured as its file with a linear layer for the classes, an ONNX file as it is, both in
    onnxruntime; all others in PyTorch.

    batch:   images of a batch; null: batches are not measured.
    rounds:  how often each network is timed; results are medians over rounds.
    threads: null: as many as torch takes.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        *interval_columns(LATENCY),
        *interval_columns(SPEED),
        *(BATCH, THREADS, GFLOPS, MEMORY, FILE_MB, LOAD, OTHERS_CPU),
    )
    summary: ClassVar[tuple[Column | str, ...]] = (
        "{latency_ms:.1f} ms an image",
        "{batch_images_per_s:.0f} images/s in batches",
        "{memory_mb:.0f} MB, load {load:.1f}",
        "{gflops:.2f} GFLOPs",
    )

    batch: Annotated[int | None, Allowed(1)]
    rounds: Annotated[int, Allowed(1)]
    threads: Annotated[int | None, Allowed(1, 1024)]

    def plan(self, context: RunContext) -> list[Run[Timed]]:
        """One run, which measures the network with a head for the subset's classes on this machine.

        Raises FcaError for a shift: the input of the network is random pixels, so there are no images to change.
        """
        context.check_clean("latency")
        model = context.model
        ncl = context.subset.ncl
        identity = {  # the id of the run is a hash of it
            "model": model.identity(),
            "ncl": ncl,
            "batch": self.batch,
            "rounds": self.rounds,
            "threads": self.threads,
            "host": socket.gethostname(),  # a speed is valid only for one machine
            "accelerator": context.machine.accelerator,
        }
        columns = {"model": model.label(), "weights": model.weights_label(), "ncl": ncl}
        keys = [context.data.classes[c] for c in context.subset.classes]
        return [Run("latency", identity, columns, work=Timed(model, keys))]

    def run(self, runs: Sequence[Run[Timed]], context: RunContext) -> Iterator[Finished]:
        """Measure the networks of all these runs in interleaved rounds, then yield each run with its columns.

        Rounds are interleaved so that a disturbance of the machine affects all networks equally.
        """
        from fca.training.speed import ProcessorTime, load, on_threads, speeds  # imports torch; planning does not

        check_threads("task.threads", self.threads)
        accelerator = context.machine.accelerator
        load_at_start = load()
        with on_threads(self.threads) as threads:
            subjects = [_network_with_head(run.work.model, run.work.keys, threads) for run in runs]
            networks = [subject.network for subject in subjects]

            start = ProcessorTime.now()
            measured_speeds = speeds(networks, self.batch, self.rounds, accelerator)
            share_of_others = start.share_of_others_until(ProcessorTime.now())

        for run, subject, speed in zip(runs, subjects, measured_speeds, strict=True):
            is_program = subject.file_mb is not None  # such a network runs in onnxruntime, on the CPU
            used_accelerator = "cpu" if is_program else accelerator_for(subject.network.module, accelerator)
            # batches are not measured for task.batch=null
            throughput = {} if speed.images_per_s is None else _interval_columns(SPEED, speed.images_per_s)
            columns: dict[str, Any] = {
                **_interval_columns(LATENCY, speed.latency_ms),
                **throughput,
                BATCH: self.batch,
                THREADS: threads,
                LOAD: load_at_start,
                OTHERS_CPU: share_of_others,  # processor time that other processes took during the measurement
                DEVICE: device_name(used_accelerator),
                GFLOPS: subject.cost.flops / 1e9 or None,  # 0: not counted, as for HOG in NumPy
                MEMORY: subject.cost.memory / 2**20,  # of the weights and the intermediate results of one image
                PARAMS: subject.cost.params,
                INPUT_SIZE: subject.network.input_size,
                FILE_MB: subject.file_mb,
            }
            yield Finished(run, columns, {})


class _Subject(NamedTuple):
    """A network to measure, and its cost in operations, memory and parameters.

    file_mb: size of an ONNX program; None for a network in PyTorch.
    """

    network: Any
    cost: Any
    file_mb: float | None


def _network_with_head(model: Model, keys: Sequence[str], threads: int) -> _Subject:
    """A model in the form in which its speed is measured, with a head for these classes if it takes one.

    A compiled network (an ONNX program of features) becomes the file that `fca export` would write of a linear probe on
    it. An ONNX file keeps the head that it has. A model that takes no head, such as HOG, is measured without one; this
    hardly matters, as a linear layer is cheap.

    keys: class keys of the head.
    threads: number of threads of onnxruntime; torch has its number already.
    """
    from fca.training.speed import cost  # imports torch

    if isinstance(model, Compiled):
        feature_columns = model.description.columns(model.depth)  # slice of the program's features
        n_features = feature_columns.stop - feature_columns.start
        weight = np.zeros((len(keys), n_features))  # the values of the weights do not change the speed
        bias = weight[:, 0]  # zeros, one for each class
        return _program_in_onnxruntime(model.with_head(weight, bias), model.description.geometry.size, threads)

    if isinstance(model, OnnxFile):
        return _program_in_onnxruntime(model.program, model.description.geometry.size, threads)

    takes_head = model.from_scratch() is not None  # it can have random weights, unlike HOG
    classifier = model.build(keys if takes_head else None)
    return _Subject(classifier, cost(classifier), file_mb=None)  # no file of an ONNX program


def _program_in_onnxruntime(content: bytes, size: int, threads: int) -> _Subject:
    """A classifier's ONNX program in onnxruntime, and its cost.

    content: the bytes of its file.
    size: side of its input in pixels.
    """
    from fca.models.programs import LOGITS, Session, cost_of
    from fca.training.speed import Program  # imports torch

    session = Session(content, threads)
    network = Program(lambda images: session.run(images, [LOGITS]), size)
    return _Subject(network, cost_of(content), len(content) / 1e6)


def _interval_columns(column: Column, estimate: Sequence[float]) -> dict[str, float | None]:
    """An estimate and the ends of its interval as columns.

    estimate: the value, the lower and the upper end.

    After too few rounds the ends are NaN; their columns are None.
    """
    columns = {}
    for name, value in zip(interval_columns(column), estimate, strict=True):
        columns[str(name)] = None if np.isnan(value) else value
    return columns
