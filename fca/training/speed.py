"""How fast networks are, how many operations they take and how much memory: measured, on this machine."""

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
    """What one network takes.

    latency_ms: median over the rounds for one image, with its 95 % interval.    images_per_s: in batches, likewise;
    None where no batches were measured.
    """

    latency_ms: Estimated
    images_per_s: Estimated | None


class Program(NamedTuple):
    """A network outside of PyTorch, on the CPU.    call: bytes of images of this size -> whatever it gives."""

    call: Callable[[UInt8[np.ndarray, "images size size 3"]], object]
    input_size: int


class Cost(NamedTuple):
    """What one image takes on any machine: floating-point operations (a multiply and an add are two) and bytes.

    flops:  of torch's operations; 0 for an encoder that works in NumPy.
    memory: of the weights and, at its highest, of all intermediate results of one image.
    """

    flops: int
    memory: int
    params: int


def speeds(
    networks: Sequence[Classifier | Program], batch: int | None, rounds: int, accelerator: str = "auto"
) -> list[Speed]:
    """Of each network, from interleaved rounds: what else the machine does hits all alike.

    From pixels at input size on the device to logits; decoding and resizing are not counted. On all threads of torch.
    batch: images of a batch; None: batches are not measured.
    """
    sizes = [1] if batch is None else [1, batch]
    timed = [[_Timed(network, size, accelerator) for size in sizes] for network in networks]
    for _ in range(rounds):
        for of_network in timed:
            for of_size in of_network:
                of_size.round()

    measured = []
    for single, *batches in timed:
        latency_ms = Estimated(*(1e3 * seconds for seconds in median_with_interval(single.seconds)))
        images_per_s = None
        if batch is not None:
            middle, low, high = median_with_interval(batches[0].seconds)
            images_per_s = Estimated(batch / middle, batch / high, batch / low)
        measured.append(Speed(latency_ms, images_per_s))
    return measured


class _Timed:
    """A network with a batch of noise, called in rounds."""

    def __init__(self, network: Classifier | Program, size: int, accelerator: str) -> None:
        used = "cpu" if isinstance(network, Program) else accelerator_for(network.module, accelerator)
        self.device = device_of(used)
        side = network.input_size
        pixels = torch.randint(0, 256, (size, side, side, 3), dtype=torch.uint8, device=self.device)
        if isinstance(network, Program):
            call, noise = network.call, pixels.numpy()
            self.call: Callable[[], object] = lambda: call(noise)
        else:
            classifier = network
            classifier.module.eval().to(self.device)
            self.call = lambda: logits(classifier, pixels)
        self.seconds: list[float] = []
        self._calls(3)  # the first ones choose algorithms and reserve memory
        self.calls = max(1, round(ROUND_S / max(self._calls(1), 1e-6)))

    def round(self) -> None:
        self.seconds.append(self._calls(self.calls) / self.calls)

    def _calls(self, times: int) -> float:
        with torch.inference_mode():
            self._wait()
            start = time.perf_counter()
            for _ in range(times):
                self.call()
            self._wait()
            return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()


def logits(classifier: Classifier, pixels: Tensor) -> Tensor:
    """From stored pixels (batch, size, size, 3) to logits, or to the features of an encoder."""
    network = classifier.module if classifier.classes else classifier.embed
    output: Tensor = network(classifier.normalise(as_input(pixels)))
    return output


def cost(classifier: Classifier) -> Cost:
    """Counted in one pass of one image on the CPU, so it is the same on every machine."""
    module, side = classifier.module.eval().cpu(), classifier.input_size
    pixels = torch.zeros((1, side, side, 3), dtype=torch.uint8)
    live = _Live()
    with torch.inference_mode(), FlopCounterMode(display=False) as counted, live:
        logits(classifier, pixels)
    weights = [*module.parameters(), *module.buffers()]
    own = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in weights}
    params = sum(one.numel() for one in module.parameters())
    return Cost(counted.get_total_flops(), sum(own.values()) + live.peak, params)


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of results that are alive, and remembers the highest sum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_place(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, Tensor) and (place := _place(one)) not in given | self.known:
                self._add(place, one.untyped_storage())
        return result

    def _add(self, place: int, storage: Any) -> None:
        size = storage.nbytes()
        self.known.add(place)
        self.now += size
        self.peak = max(self.peak, self.now)

        def freed() -> None:
            self.known.discard(place)
            self.now -= size

        weakref.finalize(storage, freed)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def on_threads(threads: int | None) -> Iterator[int]:
    """Let torch use so many threads in the body, and give their number; None: as many as it has."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield threads or before
    finally:
        torch.set_num_threads(before)


class ProcessorTime(NamedTuple):
    """Seconds of all cores since the machine started: those that passed, those used, those used by this process."""

    passed: float
    used: float
    own: float

    @classmethod
    def now(cls) -> ProcessorTime:
        """Until now."""
        of_machine, of_process = psutil.cpu_times()._asdict(), psutil.Process().cpu_times()
        passed = sum(seconds for kind, seconds in of_machine.items() if not kind.startswith("guest"))  # part of `user`
        idle = of_machine["idle"] + of_machine.get("iowait", 0.0)
        return cls(passed, passed - idle, of_process.user + of_process.system)

    def share_of_others_until(self, later: ProcessorTime) -> float:
        """The share of the machine's processor time that other processes used between the two.

        >>> ProcessorTime(100, 50, 5).share_of_others_until(ProcessorTime(120, 66, 13))
        0.4
        """
        passed, used, own = (after - before for before, after in zip(self, later, strict=True))
        return max(0.0, used - own) / passed if passed > 0 else 0.0


def load() -> float:
    """Processes that compute or wait to, a core, over the last minute: 0 on an idle machine, 1 on a busy one."""
    return psutil.getloadavg()[0] / (os.cpu_count() or 1)
