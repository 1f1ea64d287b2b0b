"""The device of a training, or several with a process for each, started by the process that plans and writes.

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
WRAPPED_PARAMS = 1_000_000  # FSDP gathers layers with at least this many parameters one after another
POLL_S = 1.0  # seconds between two checks whether a stop is requested
_PROCESS = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
import fca.training.loop
fca.training.devices.run_process(int(sys.argv[1]))
"""


class TrainingProcess(NamedTuple):
    """A process of a training: the devices of all processes, its rank.    send: to the process that started it."""

    devices: Sequence[torch.device]
    rank: int = 0
    send: Callable[[object], None] | None = None

    def trainer_options(self, strategy: str) -> dict[str, Any]:
        """Lightning's options: each process has the whole network, or (fsdp) its share of all weights."""
        kind = self.devices[0].type
        n_devices = len(self.devices)
        return {
            "accelerator": kind,
            "devices": [device.index for device in self.devices] if kind == "cuda" else n_devices,
            "strategy": self._strategy(strategy) if n_devices > 1 else "auto",
        }

    def _strategy(self, name: str) -> Any:
        from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

        if name != "fsdp":
            return DDPStrategy()
        policy = partial(size_based_auto_wrap_policy, min_num_params=WRAPPED_PARAMS)
        return FSDPStrategy(auto_wrap_policy=policy)

    def forwarding_logger(self) -> Any:
        """A logger that sends its figures to the process that started this one."""
        from pytorch_lightning.loggers.logger import DummyLogger

        class ForwardingLogger(DummyLogger):
            def log_metrics(_, metrics: Any, step: int | None = None) -> None:  # noqa: N805
                if self.rank == 0 and self.send is not None:
                    self.send((metrics, step))

        return ForwardingLogger()


def device_of(accelerator: str, key: str = "machine.accelerator") -> torch.device:
    """The device of an accelerator; auto: the GPU that there is (CUDA or Apple's), else the CPU.

    Raises FcaError for a GPU that is not there.    key: what the error names.
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

    cpuinfo = Path("/proc/cpuinfo")
    model_name = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.is_file() else None
    processor = model_name[1] if model_name else platform.processor()
    threads = torch.get_num_threads()
    return f"{processor}, {threads} thread{'s' if threads > 1 else ''}"


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
    if isinstance(devices, list):
        are_indices = all(type(index) is int and index >= 0 for index in devices)
        is_valid = are_indices and 0 < len(set(devices)) == len(devices)
    else:
        is_number = type(devices) is int and devices >= 1
        is_valid = is_number or devices == "auto"

    if not is_valid:
        raise FcaError("machine.devices", devices, "a number from 1, auto, or a list of GPUs: [0,2]", "correct it")


def devices_of(accelerator: str, devices: Any, strategy: str = "auto") -> list[torch.device]:
    """The devices of a training. On a CPU auto is one process, which uses all cores, and a number so many processes.

    Raises FcaError for devices that are not there, and for FSDP without CUDA.
    """
    import torch

    check_devices(devices)
    kind = device_of(accelerator).type
    available_by_kind = {"cpu": os.cpu_count() or 1, "cuda": torch.cuda.device_count()}
    n_available = available_by_kind.get(kind, 1)

    if isinstance(devices, list):
        indices = devices
    elif devices == "auto":
        indices = [0] if kind == "cpu" else list(range(n_available))
    else:
        indices = list(range(devices))

    is_list_without_cuda = isinstance(devices, list) and kind != "cuda"
    if max(indices) >= n_available or is_list_without_cuda:
        allowed = f"GPUs from 0 to {n_available - 1}" if kind == "cuda" else f"a number up to {n_available} on {kind}"
        raise FcaError("machine.devices", devices, allowed, "take those that are there")
    if strategy == "fsdp" and kind != "cuda":
        raise FcaError("machine.strategy", strategy, f"auto or ddp on {kind}", "leave it at auto")

    if kind == "cuda":
        return [torch.device(kind, index) for index in indices]
    return [torch.device(kind) for _ in indices]


def devices_name(accelerator: str, devices: Any) -> str:
    """The name of a training's devices in a row, after their number if there are several."""
    n_devices = len(devices_of(accelerator, devices))
    name = device_name(accelerator)
    return f"{n_devices} x {name}" if n_devices > 1 else name


def launch(work: Callable[..., Any], args: Sequence[Any], devices: Sequence[torch.device], logger: Any) -> None:
    """Call `work(*args, process)` in a process for every device, which form a group; return when all have returned.

    Arrays in memory maps are mapped there again; all else is copied. Log records and figures of the first process come
    here, the latter to `logger`, a Lightning logger or False. The first error in any process ends all of them and is
    raised here, RuntimeError for one that died, e.g. for want of memory. They end with this process, however it ends.
    """
    import torch

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    threads = max(1, torch.get_num_threads() // len(devices))
    environment = {
        **os.environ,
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": str(threads),
        PLUGINS: ",".join(plugins()),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }

    processes: list[Popen[bytes]] = []
    running: dict[Any, Popen[bytes]] = {}  # by this end of its pipe
    try:
        for rank in range(len(devices)):
            connection, remote_connection = Pipe()
            with remote_connection:
                handle = remote_connection.fileno()
                process = Popen(  # noqa: S603
                    [sys.executable, "-P", "-c", _PROCESS, str(handle)],
                    env={**environment, "LOCAL_RANK": str(rank)},  # with it Lightning starts no process itself
                    pass_fds=[handle],
                )
            processes.append(process)
            running[connection] = process

        payload = _pickled((work, args))
        for rank, connection in enumerate(running):
            with suppress(OSError):  # the process died: `_receive` raises that
                connection.send((devices, rank, store.port))
                connection.send_bytes(payload)

        while running:
            for ready_connection in wait(list(running), POLL_S):
                _receive(ready_connection, running, logger)
            if stop.requested.is_set():
                for connection in running:
                    with suppress(OSError):
                        connection.send_bytes(b"stop")

        if logger:
            logger.finalize("success")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _receive(connection: Any, running: dict[Any, Popen[bytes]], logger: Any) -> None:
    """Handle a message of a process: None when it has returned, an error, figures, or a log record."""
    try:
        message = connection.recv()
    except (EOFError, OSError):
        exit_code = running[connection].wait()
        raise RuntimeError(f"a process of the training died: exit code {exit_code}") from None

    if message is None:
        del running[connection]
    elif isinstance(message, BaseException):
        raise message
    elif isinstance(message, tuple):
        logger.log_metrics(*message)
    elif logging.getLogger(message.name).isEnabledFor(message.levelno):
        logging.getLogger(message.name).handle(message)


def _pickled(value: object) -> bytes:
    """Pickled bytes in which an array of a memory map is the name of its file and its place there."""
    from joblib.externals.cloudpickle import Pickler

    class MapByName(Pickler):  # type: ignore[misc]
        def reducer_override(self, value: object) -> Any:
            if type(value) is np.memmap and isinstance(value.base, mmap.mmap) and value.flags.c_contiguous:
                return np.memmap, (value.filename, value.dtype, "r", value.offset, value.shape)
            return super().reducer_override(value)

    file = io.BytesIO()
    MapByName(file).dump(value)
    return file.getvalue()


def run_process(handle: int) -> None:
    """Do the work of one process of `launch`, then report how that ended."""
    import torch

    connection = Connection(handle)
    lock = threading.Lock()
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

    # Only the first process sends its log records.
    logging.captureWarnings(True)
    logging.getLogger("fca").setLevel(logging.INFO)
    sending_handler = QueueHandler(SimpleNamespace(put_nowait=send))
    logging.getLogger().addHandler(logging.NullHandler() if rank else sending_handler)

    try:
        gpu = devices[rank] if devices[rank].type == "cuda" else None
        if gpu:
            torch.cuda.set_device(gpu)
        store = torch.distributed.TCPStore("127.0.0.1", port)  # type: ignore[attr-defined]
        torch.distributed.init_process_group(
            store=store,
            backend="nccl" if gpu else "gloo",
            rank=rank,
            world_size=len(devices),
            device_id=gpu,
        )
        work, args = pickle.loads(payload)  # noqa: S301
        work(*args, TrainingProcess(devices, rank, send))
        send(None)
    except BaseException as error:
        error.add_note(f"in process {rank} of the training:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        send(error)

    threading.Event().wait()  # until `launch` kills this process: if connections closed now, others would fail of that
