"""The device, or several for one training, with a process for each, started by the one that plans and writes.

Nothing here imports torch before a training begins: the form of `machine.devices` is checked with every plan.
"""

from __future__ import annotations

import io
import logging
import mmap
import os
import pickle
import platform
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from logging.handlers import QueueHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fca.plugins import PLUGINS, plugins
from fca.training import stop
from fca.types import FcaError, check_choice

if TYPE_CHECKING:
    import torch

ACCELERATORS = ("auto", "cpu", "gpu")
WRAPPED = 1_000_000  # FSDP gathers parts of a network with at least so many parameters one after another
ASK_S = 1.0  # between two looks whether the training is to stop
_PROCESS = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
import fca.training.loop
fca.training.devices.take_part(int(sys.argv[1]))
"""


class Part(NamedTuple):
    """A process of a training: the devices of all, its number among them.    send: to the one that started it."""

    devices: Sequence[torch.device]
    rank: int = 0
    send: Callable[[object], None] | None = None

    def trainer(self, strategy: str) -> dict[str, Any]:
        """Lightning's options: each process has the whole network, or (fsdp) its share of all weights."""
        kind, number = self.devices[0].type, len(self.devices)
        chosen: Any = "auto"
        if number > 1:
            from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy
            from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

            wrapped = partial(size_based_auto_wrap_policy, min_num_params=WRAPPED)
            chosen = FSDPStrategy(auto_wrap_policy=wrapped) if strategy == "fsdp" else DDPStrategy()
        devices = [device.index for device in self.devices] if kind == "cuda" else number
        return {"accelerator": kind, "devices": devices, "strategy": chosen}

    def curves(self) -> Any:
        """A logger whose figures go to the process that started this one."""
        from pytorch_lightning.loggers.logger import DummyLogger

        class Curves(DummyLogger):
            def log_metrics(_, metrics: Any, step: int | None = None) -> None:  # noqa: N805
                if self.rank == 0 and self.send is not None:
                    self.send((metrics, step))

        return Curves()


def device_of(accelerator: str, key: str = "machine.accelerator") -> torch.device:
    """auto: the GPU that there is (CUDA or Apple's), else the CPU. Raises FcaError for a GPU that is not there.

    key: what the error names.
    """
    import torch

    check_choice(key, accelerator, ACCELERATORS, "leave it at auto")
    gpu = next((name for name in ("cuda", "mps") if getattr(torch, name).is_available()), None)
    if accelerator == "gpu" and gpu is None:
        raise FcaError(key, accelerator, "auto or cpu: torch sees no GPU", "check torch.cuda")
    return torch.device("cpu" if accelerator == "cpu" or gpu is None else gpu)


def device_name(accelerator: str) -> str:
    """The name of the device in a row: the GPU's, or the processor's with the number of threads that torch uses."""
    import torch

    device = device_of(accelerator)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"{platform.processor()} GPU"
    listed = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", listed.read_text()) if listed.is_file() else None
    threads = torch.get_num_threads()
    return f"{found[1] if found else platform.processor()}, {threads} thread{'s' if threads > 1 else ''}"


def accelerator_for(module: torch.nn.Module, accelerator: str) -> str:
    """The accelerator that a network runs on: without parameters, such as HOG's, it works in NumPy, on the CPU."""
    return accelerator if any(True for _ in module.parameters()) else "cpu"


def check_devices(devices: object) -> None:
    """Raise FcaError for what cannot be devices on any machine.

    >>> check_devices([0, 2])
    >>> check_devices(0)
    Traceback (most recent call last):
    fca.types.FcaError: machine.devices = 0; allowed: a number from 1, auto, or a list of GPUs: [0,2]; next: correct it
    """
    whole = isinstance(devices, list) and all(type(index) is int and index >= 0 for index in devices)
    listed = whole and 0 < len(set(devices)) == len(devices)  # type: ignore[call-overload, arg-type]
    if not (listed or devices == "auto" or (type(devices) is int and devices >= 1)):
        raise FcaError("machine.devices", devices, "a number from 1, auto, or a list of GPUs: [0,2]", "correct it")


def devices_of(accelerator: str, devices: Any, strategy: str = "auto") -> list[torch.device]:
    """The devices of a training. On a CPU auto is one process, which uses all cores, and a number so many processes.

    Raises FcaError for devices that are not there, and for FSDP without CUDA.
    """
    import torch

    check_devices(devices)
    kind = device_of(accelerator).type
    there = {"cpu": os.cpu_count() or 1, "cuda": torch.cuda.device_count()}.get(kind, 1)
    number = devices if devices != "auto" else 1 if kind == "cpu" else there
    indices = devices if isinstance(devices, list) else list(range(number))
    if max(indices) >= there or (kind != "cuda" and devices is indices):
        allowed = f"GPUs from 0 to {there - 1}" if kind == "cuda" else f"a number up to {there} on {kind}"
        raise FcaError("machine.devices", devices, allowed, "take those that are there")
    if strategy == "fsdp" and kind != "cuda":
        raise FcaError("machine.strategy", strategy, f"auto or ddp on {kind}", "leave it at auto")
    return [torch.device(kind, index) if kind == "cuda" else torch.device(kind) for index in indices]


def devices_name(accelerator: str, devices: Any) -> str:
    """What a row calls the devices of a training: by the number of them, if there are several."""
    number = len(devices_of(accelerator, devices))
    return f"{number} x " * (number > 1) + device_name(accelerator)


def launch(work: Callable[..., Any], given: Sequence[Any], devices: Sequence[torch.device], logger: Any) -> None:
    """Call `work(*given, part)` in a process for every device, which form a group, and return when all have returned.

    Arrays in memory maps are mapped there again; all else is copied. Log records and figures of the first process come
    here, the latter to `logger`, a Lightning logger or False. The first error in any process ends all of them and is
    raised here, RuntimeError for one that died, e.g. for want of memory. They end with this process, however it ends.
    """
    import torch

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    threads = max(1, torch.get_num_threads() // len(devices))
    environment = {**os.environ, "NODE_RANK": "0", "OMP_NUM_THREADS": str(threads), PLUGINS: ",".join(plugins())}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    left, processes = dict[Any, Popen[bytes]](), list[Popen[bytes]]()
    try:
        for rank in range(len(devices)):
            here, there = Pipe()
            with there:
                own = {"LOCAL_RANK": str(rank)}  # by which Lightning knows that it is to start no process
                command = [sys.executable, "-P", "-c", _PROCESS, str(there.fileno())]
                processes.append(Popen(command, env=environment | own, pass_fds=[there.fileno()]))  # noqa: S603
            left[here] = processes[-1]
        payload = _pickled((work, given))
        for rank, here in enumerate(left):
            with suppress(OSError):  # it died: seen below
                here.send((devices, rank, store.port))
                here.send_bytes(payload)
        while left:
            for ready in wait(list(left), ASK_S):
                _receive(ready, left, logger)
            for here in left if stop.requested.is_set() else ():
                with suppress(OSError):
                    here.send_bytes(b"stop")
        if logger:
            logger.finalize("success")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _receive(here: Any, left: dict[Any, Popen[bytes]], logger: Any) -> None:
    try:
        message = here.recv()
    except (EOFError, OSError):
        raise RuntimeError(f"a process of the training died: exit code {left[here].wait()}") from None
    if message is None:
        del left[here]
    elif isinstance(message, BaseException):
        raise message
    elif isinstance(message, tuple):
        logger.log_metrics(*message)
    elif logging.getLogger(message.name).isEnabledFor(message.levelno):
        logging.getLogger(message.name).handle(message)


def _pickled(given: object) -> bytes:
    from joblib.externals.cloudpickle import Pickler

    class ByName(Pickler):  # type: ignore[misc]
        def reducer_override(self, value: object) -> Any:
            if type(value) is np.memmap and isinstance(value.base, mmap.mmap) and value.flags.c_contiguous:
                return np.memmap, (value.filename, value.dtype, "r", value.offset, value.shape)
            return super().reducer_override(value)

    file = io.BytesIO()
    ByName(file).dump(given)
    return file.getvalue()


def take_part(handle: int) -> None:
    """What a process of `launch` does: its part of the work; then it reports how that ended."""
    import torch

    connection, lock = Connection(handle), threading.Lock()
    devices, rank, port = connection.recv()
    payload = connection.recv_bytes()

    def end_with_parent() -> None:
        with suppress(EOFError, OSError):
            while connection.recv_bytes():
                stop.requested.set()
        os._exit(1)

    def send(message: object) -> None:
        with lock:
            connection.send(message)

    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.captureWarnings(True)
    logging.getLogger("fca").setLevel(logging.INFO)
    listening = QueueHandler(SimpleNamespace(put_nowait=send))
    logging.getLogger().addHandler(logging.NullHandler() if rank else listening)
    try:
        own = devices[rank] if devices[rank].type == "cuda" else None
        if own:
            torch.cuda.set_device(own)
        group = {"backend": "nccl" if own else "gloo", "rank": rank, "world_size": len(devices), "device_id": own}
        store = torch.distributed.TCPStore("127.0.0.1", port)  # type: ignore[attr-defined]
        torch.distributed.init_process_group(store=store, **group)
        work, given = pickle.loads(payload)  # noqa: S301
        work(*given, Part(devices, rank, send))
        send(None)
    except BaseException as error:
        error.add_note(f"in process {rank} of the training:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        send(error)
    threading.Event().wait()  # to be ended: if connections closed now, others would fail of that
