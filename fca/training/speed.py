"""How fast networks are, how many operations they take and how much memory: measured, on this machine."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fca.stats.intervals import Estimated, median_with_interval
from fca.training.batches import as_input, device_of
from fca.types import Classifier

ROUND_S = 0.02  # a round calls a network so often that it takes at least this long: clocks and the system disturb less


class Speed(NamedTuple):
    """What one network takes.

    latency_ms: median over the rounds for one image, with its 95 % interval.    images_per_s: in batches, likewise.
    """

    latency_ms: Estimated
    images_per_s: Estimated


class Cost(NamedTuple):
    """What one image takes on any machine: floating-point operations (a multiply and an add are two) and bytes.

    flops:  of torch's operations; 0 for an encoder that works in NumPy.
    memory: of the weights and, at its highest, of all intermediate results of one image.
    """

    flops: int
    memory: int
    params: int


def speeds(classifiers: Sequence[Classifier], batch: int, rounds: int, accelerator: str = "auto") -> list[Speed]:
    """Of each network, from interleaved rounds: what else the machine does hits all alike.

    From pixels at input size on the device to logits; decoding and resizing are not counted. On all threads of torch.
    """
    timed = [_Timed(one, size, accelerator) for one in classifiers for size in (1, batch)]
    for _ in range(rounds):
        for one in timed:
            one.round()
    found = [median_with_interval(one.seconds) for one in timed]
    return [
        Speed(Estimated(*(1e3 * s for s in single)), Estimated(*(batch / many[k] for k in (0, 2, 1))))
        for single, many in zip(found[::2], found[1::2], strict=True)
    ]


class _Timed:
    """A network with a batch of noise, called in rounds."""

    def __init__(self, classifier: Classifier, size: int, accelerator: str) -> None:
        self.classifier, self.device = classifier, device_of(accelerator)
        classifier.module.eval().to(self.device)
        side = classifier.input_size
        self.pixels = torch.randint(0, 256, (size, side, side, 3), dtype=torch.uint8, device=self.device)
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
                logits(self.classifier, self.pixels)
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


def load() -> float:
    """Processes that compute or wait to, a core, over the last minute: 0 on an idle machine, 1 on a busy one."""
    return psutil.getloadavg()[0] / (os.cpu_count() or 1)
