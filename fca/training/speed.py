"""Speed, operations and memory of networks, measured on this machine."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fca.stats.intervals import Estimated, median_with_interval
from fca.training.batches import as_input
from fca.training.devices import accelerator_for, device_of
from fca.types import Classifier

ROUND_S = 0.02  # a round calls a network so often that it takes at least this long: clocks and the system disturb less


class Speed(NamedTuple):
    """The speed of one network, with 95 % intervals.

    latency_ms:   milliseconds for one image, the median over rounds.
    images_per_s: images per second in batches, likewise; None if batches were not measured.
    """

    latency_ms: Estimated
    images_per_s: Estimated | None


class Program(NamedTuple):
    """A network outside of PyTorch, which runs on the CPU.

    call: runs it on bytes of images of this input size.
    """

    call: Callable[[UInt8[np.ndarray, "images size size 3"]], object]
    input_size: int


class Cost(NamedTuple):
    """The cost of one image, the same on any machine.

    flops:  floating-point operations of torch; a multiply and an add are two. 0 for an encoder that works in NumPy.
    memory: bytes of the weights, plus the most that all intermediate results of one image need at the same time.
    params: number of weights.
    """

    flops: int
    memory: int
    params: int


def speeds(
    networks: Sequence[Classifier | Program], batch: int | None, rounds: int, accelerator: str = "auto"
) -> list[Speed]:
    """Measure the speed of each network in interleaved rounds, so that other load on the machine affects all equally.

    The time runs from pixels at input size on the device to logits, on all threads of torch. Decoding and resizing are
    not timed. Returns one Speed for each network.

    batch: images of a batch; None = only single images are measured.
    rounds: how often each network is timed.
    """
    sizes = [1] if batch is None else [1, batch]
    timers_by_network = [[_Timer(network, size, accelerator) for size in sizes] for network in networks]
    for _ in range(rounds):
        for timers in timers_by_network:
            for timer in timers:
                timer.run_round()

    measured = []
    for single_timer, *batch_timers in timers_by_network:
        latency_ms = Estimated(*(1e3 * seconds for seconds in median_with_interval(single_timer.seconds)))
        images_per_s = None
        if batch is not None:
            median, low, high = median_with_interval(batch_timers[0].seconds)
            # The longest time is the lowest speed: the interval's ends change places.
            images_per_s = Estimated(batch / median, batch / high, batch / low)
        measured.append(Speed(latency_ms, images_per_s))
    return measured


class _Timer:
    """Times a network on a batch of noise, in rounds of many calls.

    seconds: for each round, the mean of a call.
    """

    def __init__(self, network: Classifier | Program, size: int, accelerator: str) -> None:
        """Put network and noise on the device, and find how many calls make a round of ROUND_S seconds.

        network:     in PyTorch, or a Program, an ONNX file that onnxruntime runs on the CPU.
        size:        number of images in the batch.
        accelerator: auto, cpu or gpu, for a network in PyTorch.
        """
        used_accelerator = "cpu" if isinstance(network, Program) else accelerator_for(network.module, accelerator)
        self.device = device_of(used_accelerator)
        side = network.input_size
        pixels = torch.randint(0, 256, (size, side, side, 3), dtype=torch.uint8, device=self.device)

        if isinstance(network, Program):
            call = network.call
            noise = pixels.numpy()
            self.call: Callable[[], object] = lambda: call(noise)
        else:
            classifier = network
            classifier.module.eval().to(self.device)
            self.call = lambda: logits(classifier, pixels)

        self.seconds: list[float] = []
        self._time_calls(3)  # the first calls choose algorithms and reserve memory: not counted
        seconds_per_call = max(self._time_calls(1), 1e-6)  # a clock may show 0
        self.calls_per_round = max(1, round(ROUND_S / seconds_per_call))

    def run_round(self) -> None:
        """Time one round, and append its mean to `seconds`."""
        seconds = self._time_calls(self.calls_per_round)
        self.seconds.append(seconds / self.calls_per_round)

    def _time_calls(self, n_calls: int) -> float:
        """Seconds that this number of calls takes; waits for the device before and after."""
        with torch.inference_mode():
            self._synchronise()
            start = time.perf_counter()
            for _ in range(n_calls):
                self.call()
            self._synchronise()
            return time.perf_counter() - start

    def _synchronise(self) -> None:
        """Wait until the device has done all its work. Calls on a CPU return only when their work is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()


def logits(classifier: Classifier, pixels: Tensor) -> Tensor:
    """The logits of stored pixels (batch, size, size, 3), or their features if the classifier is an encoder."""
    network = classifier.module if classifier.classes else classifier.embed
    output: Tensor = network(classifier.normalise(as_input(pixels)))
    return output


def cost(classifier: Classifier) -> Cost:
    """Count the cost of one image, in one pass on the CPU; the result is the same on every machine.

    The cost is the number of floating-point operations, the memory in bytes, and the number of weights. The memory is
    that of the weights, plus the most that the intermediate results need at the same time (`results.peak`).
    """
    module = classifier.module.eval().cpu()
    side = classifier.input_size
    pixels = torch.zeros((1, side, side, 3), dtype=torch.uint8)

    results = _ResultBytes()  # counts the memory of intermediate results while `with` is active
    with torch.inference_mode(), FlopCounterMode(display=False) as counter, results:
        logits(classifier, pixels)

    bytes_by_address = {}  # keyed by address, since weights may share memory, which counts once
    for weights in (*module.parameters(), *module.buffers()):
        storage = weights.untyped_storage()
        bytes_by_address[storage.data_ptr()] = storage.nbytes()
    return Cost(
        flops=counter.get_total_flops(),
        memory=sum(bytes_by_address.values()) + results.peak,
        params=sum(weights.numel() for weights in module.parameters()),
    )


class _ResultBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, adds up the bytes of intermediate results that are alive, and keeps the highest sum in `peak`.

    torch calls it for every operation. The results of an operation count until their storage is freed; views of inputs
    share the storage of these, and do not count.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current = 0
        self.peak = 0
        self.live_storages: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do one operation of torch, which calls this for each, and count the memory of its results.

        Results that share memory with the operation's inputs, such as views, need no memory of their own.
        """
        # `tree_leaves` finds the tensors in nested arguments and results
        input_storages = {_storage_id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if not isinstance(leaf, Tensor):
                continue
            storage_id = _storage_id(leaf)
            if storage_id not in input_storages and storage_id not in self.live_storages:
                self._add(storage_id, leaf.untyped_storage())
        return result

    def _add(self, storage_id: int, storage: Any) -> None:
        """Count a storage (the memory behind tensors) from now until it is freed."""
        size = storage.nbytes()
        self.live_storages.add(storage_id)
        self.current += size
        self.peak = max(self.peak, self.current)

        def subtract() -> None:
            self.live_storages.discard(storage_id)
            self.current -= size

        weakref.finalize(storage, subtract)  # calls it when the storage is freed


def _storage_id(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def on_threads(threads: int | None) -> Iterator[int]:
    """Let torch use this number of threads in the body of `with`, and yield it; None = as many as it uses already."""
    previous_threads = torch.get_num_threads()
    used_threads = threads or previous_threads
    torch.set_num_threads(used_threads)
    try:
        yield used_threads
    finally:
        torch.set_num_threads(previous_threads)


class ProcessorTime(NamedTuple):
    """Seconds of processor time since the machine started, added up over all cores.

    passed:          all of it, used or not.
    used:            by any process.
    used_by_process: by this process.
    """

    passed: float
    used: float
    used_by_process: float

    @classmethod
    def now(cls) -> ProcessorTime:
        """The times until this call."""
        machine_times = psutil.cpu_times()._asdict()
        process_times = psutil.Process().cpu_times()
        # Time of guests, of virtual machines, is also counted in `user`.
        passed = sum(seconds for kind, seconds in machine_times.items() if not kind.startswith("guest"))
        idle = machine_times["idle"] + machine_times.get("iowait", 0.0)
        return cls(passed, passed - idle, process_times.user + process_times.system)

    def share_of_others_until(self, later: ProcessorTime) -> float:
        """The share of all processor time between this and a later moment that other processes used, from 0 to 1.

        >>> ProcessorTime(100, 50, 5).share_of_others_until(ProcessorTime(120, 66, 13))
        0.4
        """
        passed = later.passed - self.passed
        used = later.used - self.used
        used_by_process = later.used_by_process - self.used_by_process
        if passed <= 0:  # both moments are in one tick of the system's clock
            return 0.0
        return max(0.0, used - used_by_process) / passed  # times are rounded to ticks, so a difference could be < 0


def load() -> float:
    """Load average over the last minute, per core: 0 on an idle machine, 1 on a busy one."""
    return psutil.getloadavg()[0] / (os.cpu_count() or 1)
